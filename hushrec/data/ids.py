"""Columns of a table to canonical ids and float32 ratings, one cell at a time.

Every rule here is a function of one cell. Where a whole column is converted at once, that is a faster
way to the same result: no type is inferred from the rows, and no cell can change what another becomes.
"""

from __future__ import annotations

import datetime
import math
import numbers
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hushrec.errors import InputError

#: A longer text is no id, no rating and no time: one user's are not to fill the memory that all share.
MAX_CELL_BYTES = 1 << 10
_PART = 1 << 20  # rows handled at a time, where a whole column would double the memory
_LARGEST = 1 << 53  # from here on floats skip integers
# the forms in which Python, pandas and CSV files write floats that may have been integers
_TEXT_OF_WHOLE_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)\.0")
_TEXT_OF_LARGE_FLOAT = re.compile(r"-?[0-9](\.[0-9]*)?[eE]\+[0-9]+")
_PLAIN = r"^[\w:/-]+$"  # ASCII without blanks, whose canonical text is itself
NO_TEXT = "\ufffd"  # begins the canonical text of what is no text
#: Text, whatever the length of all cells together.
TEXT = {
    pa.string(): pa.large_string(),
    pa.string_view(): pa.large_string(),
    pa.large_string(): pa.large_string(),
    pa.binary(): pa.large_binary(),
    pa.binary_view(): pa.large_binary(),
    pa.large_binary(): pa.large_binary(),
}
_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)


def canonical_text(value: Any, *, exact: bool = True) -> str | None:
    r"""The text that identifies an id, or None where there is no id.

    The integer 7, ``numpy.int32(7)``, the text "7", the float 7.0 (what a data frame makes of an integer
    column with one hole) and its text "7.0" are one id, "7". Text is stripped of surrounding blanks and kept
    as it is otherwise ("007" and "7" differ, and so do "a" and "A"). Bytes are read as UTF-8, a UUID as its
    usual text, any other object as ``str`` writes it.

    No ids are None, NaN, NaT, infinities, empty text, text or bytes of more than 1,024 bytes, containers,
    dates and times, and whole numbers of 2^53 and beyond that are a float or the text of one
    ("1.152921504606847e+18"): floats do not tell them apart.
    What is no Unicode text becomes "\ufffdx" (bytes) or "\ufffdu" (surrogates) and its bytes in hexadecimal;
    text that begins with "\ufffd" itself is given one more, so that no two ids meet.

    Parameters
    ----------
    value : object
    exact : bool
        False for a cell of NumPy or pandas, where integers of 2^53 and beyond are no ids either: one missing
        cell would have made the whole column floats.
    """
    try:
        return _text_of(value, exact)
    except Exception:  # an object of the caller's that cannot be written
        return None


def _text_of(value: Any, exact: bool) -> str | None:
    if isinstance(value, (str, bytes, bytearray, memoryview)) and too_long(value):
        return None
    if isinstance(value, str):
        text = value.strip()
        if not text.isascii() and (text[0] == NO_TEXT or not _is_unicode(text)):
            return NO_TEXT + (
                text if _is_unicode(text) else "u" + text.encode("utf-8", "surrogatepass").hex()
            )
        if _TEXT_OF_WHOLE_FLOAT.fullmatch(text):
            return str(int(text[:-2])) if abs(float(text)) < _LARGEST else None
        return None if not text or _TEXT_OF_LARGE_FLOAT.fullmatch(text) else text
    if value is None or type(value).__name__ in ("NAType", "NaTType") or isinstance(value, _TIMES):
        return None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        whole = int(value)
        return str(whole) if exact and whole.bit_length() < 3400 or abs(whole) < _LARGEST else None
    if isinstance(value, (complex, np.complexfloating)):  # what a data frame makes of numbers beside 3j
        return _text_of(value.real, exact) if value.imag == 0 else None
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if number != value or abs(number) >= _LARGEST:  # NaN, more digits than a float has, infinite, large
            return None
        return str(int(number)) if number.is_integer() else repr(number)
    if isinstance(value, (bytes, bytearray, memoryview)):
        decoded = _decoded(bytes(value))
        return f"{NO_TEXT}x{bytes(value).strip().hex()}" if decoded is None else _text_of(decoded, exact)
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value.adjusted()) > 1000:
            return None
        text = format(value, "f")  # all digits, where normalize() would round to 28
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return _text_of("0" if text == "-0" else text, exact)
    return None if isinstance(value, Iterable) else _text_of(str(value), exact)


def too_long(cell: str | bytes | bytearray | memoryview) -> bool:
    """Tell whether a cell has more octets, in UTF-8, than an id, a rating or a time may have."""
    if isinstance(cell, str) and not cell.isascii():
        return len(cell) > MAX_CELL_BYTES or len(cell.encode("utf-8", "surrogatepass")) > MAX_CELL_BYTES
    return len(cell) > MAX_CELL_BYTES


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _decoded(cell: bytes) -> str | None:
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return None


def parse_rating(value: Any) -> float:
    """The number in one cell; NaN where there is none ("n/a", None, "1_000", a container)."""
    if type(value) is float:
        return value
    try:
        if isinstance(value, (str, bytes, bytearray)) and too_long(value):
            return math.nan
        if isinstance(value, (bytes, bytearray)):
            value = bytes(value).decode()
        if isinstance(value, (complex, np.complexfloating)) and value.imag == 0:
            value = value.real
        if isinstance(value, str):
            return math.nan if "_" in value else float(value)
        if isinstance(value, (numbers.Real, Decimal, np.bool_)) and not isinstance(value, _TIMES):
            return float(value)
    except Exception:  # no number; an object of the caller's that fails
        pass
    return math.nan


@dataclass(frozen=True, eq=False)
class Encoded:
    """A column of ids: ``codes`` (int32, -1 = no id) into the distinct ids, given and canonical.

    ``values`` is an Arrow array where the column's type was fixed before its cells, as in Arrow, polars and
    files, and an array of Python objects otherwise.
    """

    codes: np.ndarray
    values: np.ndarray | pa.Array
    texts: pa.Array

    def __len__(self) -> int:
        return len(self.codes)


def encode_ids(column: Any, *, exact: bool = False) -> Encoded:
    """Encode a column of ids of any type; distinct ids are numbered by first appearance.

    NumPy and pandas choose a column's type by all its cells, so there an id must be one whatever the type is
    (see `canonical_text`). ``exact`` leaves that out: for ids that are asked for, which are no rows.
    """
    if isinstance(column, Encoded):
        return column
    module = type(column).__module__.partition(".")[0]
    guessed = module in ("numpy", "pandas")
    exact = exact or not guessed
    fixed = not guessed and (isinstance(column, range) or module == "polars" or _is_arrow(column))
    column = as_arrow_or_objects(column)
    if isinstance(column, np.ndarray):
        cells = pa.array((canonical_text(value, exact=exact) for value in column), pa.large_string())
        return _merge_equal_texts(np.arange(len(column), dtype=np.int32), column, cells)
    check_scalar_type(column.type, "ids")
    codes, values = dictionary(column)
    texts = _canonical_array(values)
    if fixed and pa.types.is_integer(values.type):  # no two of them have one text
        return Encoded(codes, values, texts)
    if _is_text(values.type):
        values = _in_utf8(values, texts)
    if not fixed:
        if pa.types.is_integer(values.type) and not exact:
            small = np.abs(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)) < _LARGEST
            texts = pc.if_else(pa.array(small), texts, None)
        values = np.fromiter(given_ids(values), object)
    return _merge_equal_texts(codes, values, texts)


def lookup(ids: Any, texts: pa.Array) -> np.ndarray:
    """Position of each id among canonical texts, -1 where it is not there (int64)."""
    if isinstance(ids, (str, bytes, int, np.integer, uuid.UUID)):
        ids = [ids]
    return positions_of(encode_ids(ids, exact=True), texts).astype(np.int64)


def positions_of(ids: Encoded, texts: pa.Array) -> np.ndarray:
    """`lookup` of encoded ids, as int32."""
    if ids.texts is texts:
        return ids.codes.astype(np.int32, copy=False)
    return np.append(places(ids.texts, texts), np.int32(-1))[ids.codes]


def places(texts: pa.Array, among: pa.Array) -> np.ndarray:
    """Position (int32) of each canonical text among others, -1 where it is not there."""
    found = pc.index_in(texts, value_set=among).fill_null(-1)
    return found.to_numpy(zero_copy_only=False).astype(np.int32)


def given_ids(values: np.ndarray | pa.Array) -> list[Any]:
    """Distinct ids as Python objects; a number is the same whatever others have made of its column."""
    return [_plain_number(v) for v in (values if isinstance(values, np.ndarray) else plain_values(values))]


def _plain_number(value: Any) -> Any:
    if isinstance(value, (complex, np.complexfloating)):
        value = value.real
    if isinstance(value, (float, np.floating)):
        value = float(value)
        return int(value) if value.is_integer() and abs(value) < _LARGEST else value
    return int(value) if isinstance(value, np.integer) else value


def encode_ratings(column: Any) -> np.ndarray:
    """A column of ratings as float32, NaN where a cell holds no number; a new array."""
    with np.errstate(all="ignore"):
        if isinstance(column, list) and set(map(type, column)) <= {float}:  # one user's, often
            return np.array(column, np.float64).astype(np.float32)
    column = as_arrow_or_objects(column)
    with np.errstate(all="ignore"):  # what float32 cannot hold becomes infinite; a signalling NaN stays a NaN
        if isinstance(column, np.ndarray):
            return np.fromiter(map(parse_rating, column), np.float64).astype(np.float32)
        kind = column.type
        check_scalar_type(kind, "ratings")
        if pa.types.is_floating(kind) or pa.types.is_integer(kind):
            return _numbers(column)
        codes, values = dictionary(column)
        parsed = np.fromiter(map(parse_rating, plain_values(values)), np.float64)
        return np.append(parsed, math.nan).astype(np.float32)[codes]


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Typed numbers chunk by chunk, null as NaN."""
    ratings, start = np.empty(len(column), dtype=np.float32), 0
    for chunk in column.chunks:
        cells = chunk if pa.types.is_float32(chunk.type) else chunk.cast(pa.float64(), safe=False)
        ratings[start : start + len(chunk)] = cells.to_numpy(zero_copy_only=False)
        start += len(chunk)
    return ratings


def _is_arrow(column: Any) -> bool:
    return hasattr(column, "__arrow_c_stream__") or hasattr(column, "__arrow_c_array__")


def as_arrow_or_objects(column: Any) -> pa.ChunkedArray | np.ndarray:
    """A typed Arrow column, or an object array to be read cell by cell."""
    found = _arrow_or_objects(column)
    return found if isinstance(found, np.ndarray) else _of_short_cells(found)


def _of_short_cells(column: pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = [short_cells(chunk) for chunk in column.chunks or [column.combine_chunks()]]
    return pa.chunked_array(chunks)


def short_cells(column: pa.Array) -> pa.Array:
    """Text with room for all cells together; one that is too long becomes empty, which is no id either."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(column.indices, short_cells(column.dictionary))
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if kind not in TEXT:
        return column
    column = column.cast(TEXT[kind])
    lengths = pc.binary_length(column)
    if (pc.max(lengths).as_py() or 0) <= MAX_CELL_BYTES:
        return column
    return pc.if_else(pc.greater(lengths, MAX_CELL_BYTES), pa.scalar("", column.type), column)


def _arrow_or_objects(column: Any) -> pa.ChunkedArray | np.ndarray:
    if isinstance(column, pa.ChunkedArray):
        return column
    if isinstance(column, pa.Array):
        return pa.chunked_array([column])
    module = type(column).__module__.partition(".")[0]
    if module == "pandas":
        return _from_pandas_column(column)
    if module == "polars":
        if str(column.dtype) == "Object":
            return _objects(column.to_list())
        return as_arrow_or_objects(column.to_arrow())
    if isinstance(column, np.ndarray) and column.ndim != 1:
        raise InputError(f"A column must have one dimension, not {column.ndim}.")
    if isinstance(column, np.ndarray) and column.dtype != object:
        if column.dtype.kind in "iuf" and column.dtype.itemsize <= 8:
            with np.errstate(all="ignore"):
                if column.dtype == np.float16:
                    column = column.astype(np.float32)
                native = column.astype(column.dtype.newbyteorder("="), copy=False)
            return pa.chunked_array([pa.array(native)])
        if column.dtype.kind == "m":  # NumPy makes durations of integers beside one: refused by its type
            raise InputError("A column holds durations; name one that holds plain ids, ratings or times.")
        if column.dtype.kind == "M":  # among other cells they would be objects, and no ids either
            return np.full(len(column), None, dtype=object)
        return _objects(column.tolist())
    if hasattr(column, "__arrow_c_stream__"):
        return pa.chunked_array(column)
    if hasattr(column, "__arrow_c_array__"):
        return pa.chunked_array([pa.array(column)])
    if isinstance(column, range):
        return pa.chunked_array([pa.array(np.arange(column.start, column.stop, column.step))])
    if isinstance(column, (str, bytes)) or not isinstance(column, Iterable):
        raise InputError(f"A column of ids or ratings must be a sequence, not {type(column).__name__}.")
    return _objects(column)


def _objects(values: Iterable[Any]) -> pa.ChunkedArray | np.ndarray:
    """Python objects: as Arrow text if every one of them is text (same result, faster), else one by one."""
    array = np.fromiter(values, object)  # np.array would look inside nested sequences
    if len(array) and all(type(value) is str for value in array):
        try:
            return pa.chunked_array([pa.array(array, pa.large_string())])
        except (UnicodeEncodeError, pa.ArrowException):
            pass  # a lone surrogate: read cell by cell
    return array


def _from_pandas_column(series: Any) -> pa.ChunkedArray | np.ndarray:
    if str(series.dtype) == "category":
        categories = as_arrow_or_objects(series.cat.categories.to_series())
        codes = series.cat.codes.to_numpy()
        if isinstance(categories, np.ndarray):
            return np.append(categories, np.array([None], dtype=object))[codes]
        indices = pa.array(codes.astype(np.int64), mask=codes < 0)
        return pa.chunked_array([pa.DictionaryArray.from_arrays(indices, categories.combine_chunks())])
    if isinstance(series.dtype, np.dtype):
        array = np.asarray(series)
        return _objects(array) if series.dtype == object else as_arrow_or_objects(array)
    try:
        converted = pa.array(series)
    except Exception:  # an extension type that Arrow does not know
        return _objects(series.to_numpy(dtype=object))
    kind = converted.type
    inferred = isinstance(kind, pa.BaseExtensionType) or pa.types.is_temporal(kind)
    if inferred and type(series.dtype).__name__ != "ArrowDtype":  # one cell more could make it objects
        return _objects(series.to_numpy(dtype=object))
    return converted if isinstance(converted, pa.ChunkedArray) else pa.chunked_array([converted])


def check_scalar_type(kind: pa.DataType, what: str, *, moments: bool = False) -> None:
    """Refuse columns of lists, structures and times: the type belongs to the file's schema, not to a row.

    ``moments`` lets dates and timestamps pass.
    """
    inner = kind
    while isinstance(inner, pa.BaseExtensionType) or pa.types.is_dictionary(inner):
        inner = inner.storage_type if isinstance(inner, pa.BaseExtensionType) else inner.value_type
    moment = pa.types.is_timestamp(inner) or pa.types.is_date(inner)
    if pa.types.is_nested(inner) or (pa.types.is_temporal(inner) and not (moments and moment)):
        raise InputError(f"The column of {what} holds {kind}; name one that holds plain {what}.")


def dictionary(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """Codes (int32, -1 for null) and distinct values of a typed column."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        storage = pa.chunked_array([c.storage for c in column.chunks], kind.storage_type)
        codes, values = dictionary(_of_short_cells(storage))
        return codes, values if kind.storage_type in TEXT else pa.ExtensionArray.from_storage(kind, values)
    if pa.types.is_null(kind):
        return np.full(len(column), -1, np.int32), pa.array([], pa.large_string())
    if pa.types.is_dictionary(kind):
        try:
            encoded = column.unify_dictionaries()
            inner = encoded.chunk(0).dictionary
        except (pa.ArrowException, IndexError):  # nulls in a dictionary, more values than fit, or no rows
            return dictionary(column.cast(kind.value_type))
        # A dictionary may repeat a value, hold null or hold values that no row uses.
        inner_codes, values = dictionary(pa.chunked_array([inner]))
        return _by_appearance(np.append(inner_codes, np.int32(-1))[_codes(_indices(encoded))], values)
    if len(column) == 0:
        return np.zeros(0, np.int32), pa.array([], column.type)
    try:
        encoded = column.dictionary_encode()
    except pa.ArrowNotImplementedError:
        raise InputError(f"A column holds {kind}, which cannot be read as ids or ratings.") from None
    return _codes(_indices(encoded)), encoded.chunk(encoded.num_chunks - 1).dictionary


def _by_appearance(codes: np.ndarray, values: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Number values by the first row that holds them: a dictionary's own order may depend on all rows."""
    first = np.full(len(values) + 1, len(codes), dtype=np.int64)
    for stop in range(len(codes), 0, -_PART):
        start = max(0, stop - _PART)
        first[codes[start:stop][::-1]] = np.arange(stop - 1, start - 1, -1)  # the first row is written last
    order = np.argsort(first[:-1], kind="stable")
    order = order[: np.count_nonzero(first[:-1] < len(codes))]  # drop values that no row holds
    place = np.full(len(values) + 1, -1, dtype=np.int32)
    place[order] = np.arange(len(order))
    return place[codes], values.take(pa.array(order))


def _codes(indices: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Indices into a dictionary as int32, -1 for null."""
    return indices.cast(pa.int32()).fill_null(-1).to_numpy()


def _indices(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.indices for chunk in column.chunks], column.type.index_type)


def _canonical_array(values: pa.Array) -> pa.Array:
    """Canonical text of distinct typed values; `canonical_text` of each, vectorised where that is simple."""
    kind = values.type
    if pa.types.is_integer(kind):
        return values.cast(pa.large_string())
    if _is_text(kind):
        text = values.cast(pa.large_string())
        plain = pc.match_substring_regex(text, _PLAIN)
        if pc.all(plain, min_count=0).as_py():
            return text
    return pa.array([canonical_text(value) for value in plain_values(values)], pa.large_string())


def plain_values(values: pa.Array) -> list[Any]:
    """Arrow values as Python objects; text that is not UTF-8 (a file may hold it) as bytes."""
    if not _is_text(values.type):
        return values.to_pylist()
    cells = values.cast(pa.large_binary()).to_pylist()
    return [cell if cell is None or (text := _decoded(cell)) is None else text for cell in cells]


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _in_utf8(values: pa.Array, texts: pa.Array) -> pa.Array:
    """The values, what is not UTF-8 in canonical form: the others are not to fail with it."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        pairs = zip(plain_values(values), texts.to_pylist())
        return pa.array([text if isinstance(cell, bytes) else cell for cell, text in pairs], values.type)
    return values


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A dictionary-encoded column of bytes as text, without surrounding blanks."""
    column = column.unify_dictionaries()
    if not column.num_chunks:
        return pa.chunked_array([], pa.large_string())
    cells = column.chunk(0).dictionary
    plain = pc.and_(
        pc.match_substring_regex(cells, _PLAIN), pc.less_equal(pc.binary_length(cells), MAX_CELL_BYTES)
    )
    if pc.all(plain, min_count=0).as_py():  # nothing to strip: the same result, faster
        texts = cells.cast(pa.large_string())
    else:  # Arrow would refuse a cell that is not UTF-8
        buffers = pa.array([_stripped(cell) for cell in cells.to_pylist()], pa.large_binary()).buffers()
        texts = pa.Array.from_buffers(pa.large_string(), len(cells), buffers)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(c.indices, texts) for c in column.chunks])


def _stripped(cell: bytes) -> bytes:
    if too_long(cell):
        return b""
    text = _decoded(cell)
    return cell.strip() if text is None else text.strip().encode()


def compact(column: Any) -> Any:
    """The same column with each distinct value stored once, where Arrow can do so."""
    kind = getattr(column, "type", None)
    if not isinstance(kind, pa.DataType) or pa.types.is_dictionary(kind) or pa.types.is_null(kind):
        return column
    try:
        return _of_short_cells(column).dictionary_encode()
    except pa.ArrowNotImplementedError:
        return column


def _merge_equal_texts(codes: np.ndarray, values: np.ndarray | pa.Array, texts: pa.Array) -> Encoded:
    """Give values of equal canonical text one code (that of the first) and null texts the code -1."""
    merged = texts.dictionary_encode()
    distinct = merged.dictionary
    if len(distinct) == len(texts):
        return Encoded(codes, values, texts)
    recode = np.append(_codes(merged.indices), np.int32(-1))
    return Encoded(recode[codes], take(values, places(distinct, texts)), distinct)


def take(values: np.ndarray | pa.Array, positions: np.ndarray) -> Any:
    """Entries of a NumPy or an Arrow array."""
    return values[positions] if isinstance(values, np.ndarray) else values.take(pa.array(positions))


def join_ids(parts: Sequence[Encoded]) -> Encoded:
    """Columns of ids one below another."""
    starts = np.cumsum([0, *(len(part.texts) for part in parts)], dtype=np.int32)
    codes = [np.where(part.codes < 0, -1, part.codes + start) for part, start in zip(parts, starts)]
    values = [part.values for part in parts]
    texts = pa.concat_arrays([part.texts for part in parts])
    types = {value.type if isinstance(value, pa.Array) else object for value in values}
    if len(types) == 1 and object not in types:
        joined = pa.concat_arrays(values)
    else:
        joined = np.fromiter((given for value in values for given in given_ids(value)), object)
    return _merge_equal_texts(np.concatenate(codes), joined, texts)
