"""A column of any container as typed Arrow chunks, or as Python objects to be read cell by cell.

No type is inferred from the rows: no cell changes how another is read.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hushrec.errors import InputError

#: Bytes of the longest id, rating or time: bounds the memory of one user's cells.
MAX_CELL_BYTES = 1 << 10
PLAIN = r"^[\w:/-]+$"  # ASCII without blanks: the canonical text is the text itself
#: Types of text -> the same with 64-bit offsets.
TEXT = {
    pa.string(): pa.large_string(),
    pa.string_view(): pa.large_string(),
    pa.large_string(): pa.large_string(),
    pa.binary(): pa.large_binary(),
    pa.binary_view(): pa.large_binary(),
    pa.large_binary(): pa.large_binary(),
}


def typed_or_objects(column: Any) -> pa.ChunkedArray | np.ndarray:
    """Return Arrow chunks, or Python objects where no type was declared.

    Texts have 64-bit offsets; too long cells are empty. UUIDs become text.
    """
    module = type(column).__module__.partition(".")[0]
    try:
        if module == "pandas":
            column = _of_pandas(column)
        elif module == "polars":
            column = _of_polars(column)
        if isinstance(column, range):
            column = np.arange(column.start, column.stop, column.step)
        if isinstance(column, np.ndarray):
            column = _of_numpy(column)
        elif isinstance(column, pa.Array) or hasattr(column, "__arrow_c_array__"):
            column = pa.chunked_array([column if isinstance(column, pa.Array) else pa.array(column)])
        elif hasattr(column, "__arrow_c_stream__") and not isinstance(column, pa.ChunkedArray):
            column = pa.chunked_array(column)
        if isinstance(column, pa.ChunkedArray):
            return pa.chunked_array([plain_chunk(c) for c in column.chunks or [column.combine_chunks()]])
    except pa.ArrowException as error:
        kind = getattr(column, "dtype", getattr(column, "type", type(column).__name__))
        why = (
            f" ({error})" if isinstance(error, pa.ArrowNotImplementedError) else ""
        )  # others may hold a cell
        raise InputError(
            f"A column holds {kind}, which cannot be read as ids, ratings or times{why}."
        ) from None
    if isinstance(column, (str, bytes)) or not isinstance(column, Iterable):
        raise InputError(f"A column of ids or ratings must be a sequence, not {type(column).__name__}.")
    array = column if isinstance(column, np.ndarray) else np.fromiter(column, object)
    if len(array) and all(type(cell) is str for cell in array):
        try:  # the same result, faster
            return pa.chunked_array([plain_chunk(pa.array(array, pa.large_string()))])
        except (UnicodeEncodeError, pa.ArrowException):
            pass  # a lone surrogate
    return array


def is_declared(column: Any) -> bool:
    """Return whether the type was fixed before the cells, so no cell can change it."""
    kind = getattr(column, "dtype", None)
    if type(column).__module__.partition(".")[0] == "pandas":
        if isinstance(categories := getattr(kind, "categories", None), Iterable):
            return is_declared(categories)
        is_nullable = str(kind).startswith(("Int", "UInt"))  # pandas' own, which has room for a missing cell
        return is_nullable or type(kind).__name__ == "ArrowDtype"
    is_arrow = hasattr(column, "__arrow_c_stream__") or hasattr(column, "__arrow_c_array__")
    return is_arrow or isinstance(column, range) or type(column).__module__.startswith("polars")


def _of_pandas(column: Any) -> Any:
    kind = getattr(column, "dtype", None)
    if kind is None:
        raise InputError(f"A column of ids or ratings must be a sequence, not {type(column).__name__}.")
    if str(kind) == "category":
        held = getattr(column, "cat", column)  # of a Series; an index or an array holds them itself
        categories, codes = typed_or_objects(held.categories), np.asarray(held.codes)
        if isinstance(categories, np.ndarray):
            return np.append(categories, np.array([None], dtype=object))[codes]
        indices = pa.array(codes.astype(np.int64), mask=codes < 0)
        return pa.DictionaryArray.from_arrays(indices, categories.combine_chunks())
    if isinstance(kind, np.dtype):
        return np.asarray(column)
    try:
        converted = pa.array(getattr(column, "array", column))
    except Exception:  # an extension type that Arrow does not know
        return np.asarray(column, dtype=object)
    is_inferred = isinstance(converted.type, pa.BaseExtensionType) or pa.types.is_temporal(converted.type)
    if is_inferred and type(kind).__name__ != "ArrowDtype":  # one cell more could make it objects
        return np.asarray(column, dtype=object)
    return converted


def _of_polars(column: Any) -> Any:
    kind = str(getattr(column, "dtype", ""))
    if kind == "Object":
        return np.fromiter(column.to_list(), object)
    if kind in ("Int128", "UInt128"):  # Arrow has no integers of 128 bits
        return column.cast(str).to_arrow()
    return column.to_arrow()


def _of_numpy(array: np.ndarray) -> Any:
    if array.ndim != 1:
        raise InputError(f"A column must have one dimension, not {array.ndim}.")
    if array.dtype.kind in "iuf" and array.dtype.itemsize <= 8:
        with np.errstate(all="ignore"):
            array = array.astype(np.float32 if array.dtype == np.float16 else array.dtype.newbyteorder("="))
        return pa.chunked_array([pa.array(array)])
    if array.dtype.kind == "m":  # NumPy makes durations of integers next to one: refused by its type
        raise InputError("A column holds durations; name one that holds plain ids, ratings or times.")
    if array.dtype.kind == "M":  # among other cells they would be objects, which are no ids either
        return np.full(len(array), None, dtype=object)
    return array if array.dtype == object else np.fromiter(array.tolist(), object)


def plain_chunk(chunk: pa.Array) -> pa.Array:
    kind = chunk.type
    if isinstance(kind, pa.BaseExtensionType):
        is_uuid = getattr(kind, "extension_name", "") == "arrow.uuid"
        return _uuid_texts(chunk.storage) if is_uuid else plain_chunk(chunk.storage)
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(chunk.indices, plain_chunk(chunk.dictionary))
    if pa.types.is_float16(kind):
        return chunk.cast(pa.float32())
    if kind not in TEXT:
        return chunk
    chunk = chunk.cast(TEXT[kind])
    lengths = pc.binary_length(chunk)
    if (pc.max(lengths).as_py() or 0) <= MAX_CELL_BYTES:
        return chunk
    return pc.if_else(pc.greater(lengths, MAX_CELL_BYTES), pa.scalar("", chunk.type), chunk)


def _uuid_texts(storage: pa.Array) -> pa.Array:
    encoded = storage.dictionary_encode()
    texts = [str(uuid.UUID(bytes=octets)) for octets in encoded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(texts, pa.large_string()))


def check_scalar_type(kind: pa.DataType, what: str, *, moments: bool = False) -> None:
    """Refuse lists, structures or times by their declared type; ``moments`` lets dates pass."""
    inner = kind
    while pa.types.is_dictionary(inner):
        inner = inner.value_type
    is_moment = pa.types.is_timestamp(inner) or pa.types.is_date(inner)
    if pa.types.is_nested(inner) or (pa.types.is_temporal(inner) and not (moments and is_moment)):
        raise InputError(f"The column of {what} holds {kind}; name one that holds plain {what}.")


def dictionary(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """Return codes (int32, -1 for null) and distinct values by first appearance."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), -1, np.int32), pa.array([], pa.large_string())
    if len(column) == 0:
        return np.zeros(0, np.int32), pa.array([], kind.value_type if pa.types.is_dictionary(kind) else kind)
    if pa.types.is_dictionary(kind):
        try:
            encoded = column.unify_dictionaries()
        except pa.ArrowException:  # nulls in a dictionary, or more values than fit
            return dictionary(column.cast(kind.value_type))
        # a dictionary may repeat a value, hold null, or hold values of no row, in an order of all rows
        inner_codes, values = dictionary(pa.chunked_array([encoded.chunk(0).dictionary]))
        codes = np.append(inner_codes, np.int32(-1))[_codes(encoded)]
        by_row = pa.array(codes, mask=codes < 0).dictionary_encode()
        return by_row.indices.fill_null(-1).to_numpy(), values.take(by_row.dictionary)
    try:
        encoded = column.dictionary_encode()
    except pa.ArrowNotImplementedError as error:
        raise InputError(
            f"A column holds {kind}, which cannot be read as ids or ratings ({error})."
        ) from None
    return _codes(encoded), encoded.chunk(encoded.num_chunks - 1).dictionary


def _codes(encoded: pa.ChunkedArray) -> np.ndarray:
    indices = pa.chunked_array([chunk.indices for chunk in encoded.chunks], encoded.type.index_type)
    return indices.cast(pa.int32()).fill_null(-1).to_numpy()


def plain_values(values: pa.Array) -> list[Any]:
    """Return Python objects, and bytes where text is not UTF-8."""
    if not pa.types.is_large_string(values.type):
        return values.to_pylist()
    cells = values.cast(pa.large_binary()).to_pylist()
    return [cell if cell is None or (text := decoded(cell)) is None else text for cell in cells]


def decoded(cell: bytes) -> str | None:
    """Return None for bytes that are not UTF-8."""
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return None


def too_long(cell: str | bytes | bytearray | memoryview) -> bool:
    if isinstance(cell, str) and not cell.isascii():
        return len(cell) > MAX_CELL_BYTES or len(cell.encode("utf-8", "surrogatepass")) > MAX_CELL_BYTES
    return len(cell) > MAX_CELL_BYTES


def as_text(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return bytes as text without surrounding blanks."""
    cells = column.dictionary
    is_plain = pc.and_(
        pc.match_substring_regex(cells, PLAIN), pc.less_equal(pc.binary_length(cells), MAX_CELL_BYTES)
    )
    if pc.all(is_plain, min_count=0).as_py():  # nothing to strip: the same result, faster
        texts = cells.cast(pa.large_string())
    else:  # Arrow would refuse a cell that is not UTF-8
        buffers = pa.array([_stripped(cell) for cell in cells.to_pylist()], pa.large_binary()).buffers()
        texts = pa.Array.from_buffers(pa.large_string(), len(cells), buffers)
    return pa.DictionaryArray.from_arrays(column.indices, texts)


def _stripped(cell: bytes) -> bytes:
    if too_long(cell):
        return b""
    text = decoded(cell)
    return cell.strip() if text is None else text.strip().encode()
