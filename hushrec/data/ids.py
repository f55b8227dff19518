"""Columns of a table to canonical ids and float32 ratings, one cell at a time.

Every rule here is a function of one cell. Where a whole column is converted at once, that is a faster
way to the same result: no type is inferred from the rows, and no cell can change what another becomes.
"""

from __future__ import annotations

import math
import numbers
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hushrec.errors import InputError

_PART = 1 << 20  # rows handled at a time, where a whole column would double the memory


def canonical_text(value: Any) -> str | None:
    """The text that identifies an id, or None where there is no id.

    The integer 7, ``numpy.int32(7)``, the text "7", the float 7.0 (what a data frame makes of an integer
    column with one hole) and its text "7.0" are one id, "7". Text is stripped of surrounding blanks and kept
    as it is otherwise ("007" and "7" differ, and so do "a" and "A"). Bytes are read as UTF-8, a UUID as its
    usual text. None, NaN, NaT, infinities, empty text and containers are no ids.
    """
    if isinstance(value, str):
        text = value.strip()
        if text.endswith(".0") and text[:-2].lstrip("-").isdecimal() and text.isascii():
            text = text[:-2]
        return text.encode("utf-8", "backslashreplace").decode() or None
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return _decimal_digits(int(value))
    if isinstance(value, (float, np.floating)):
        value = float(value)
        if not math.isfinite(value):
            return None
        return str(int(value)) if value.is_integer() and abs(value) < 2.0**63 else repr(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return canonical_text(bytes(value).decode("utf-8", "backslashreplace"))
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value.adjusted()) > 1000:
            return None
        return canonical_text(format(value.normalize(), "f"))
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, np.datetime64) and np.isnat(value):
        return None
    if isinstance(value, Iterable):
        return None
    try:
        return canonical_text(str(value))
    except Exception:  # an object of the caller's that cannot be written is no id
        return None


def _decimal_digits(value: int) -> str | None:
    return str(value) if value.bit_length() < 4096 else None


def parse_rating(value: Any) -> float:
    """The number in one cell; NaN where there is none ("n/a", None, "1_000", a container)."""
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value).decode("utf-8", "replace")
    if isinstance(value, str):
        if "_" in value:
            return math.nan
    elif not isinstance(value, (numbers.Real, Decimal, np.bool_)):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError, ArithmeticError):
        return math.nan


@dataclass(frozen=True, eq=False)
class Encoded:
    """A column of ids: ``codes`` (int32, -1 = no id) into the distinct ids, given and canonical."""

    codes: np.ndarray
    values: np.ndarray | pa.Array
    texts: pa.Array


def encode_ids(column: Any) -> Encoded:
    """Encode a column of ids of any type; distinct ids are numbered by first appearance."""
    column = _as_arrow_or_objects(column)
    if isinstance(column, np.ndarray):
        return _encode_objects(column)
    _check_scalar_type(column.type, "ids")
    codes, values = _dictionary(column)
    texts = _canonical_array(values)
    return _merge_equal_texts(codes, values, texts)


def encode_ratings(column: Any) -> np.ndarray:
    """A column of ratings as float32, NaN where a cell holds no number; a new array."""
    column = _as_arrow_or_objects(column)
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
        if isinstance(column, np.ndarray):
            return np.fromiter(map(parse_rating, column), dtype=np.float64, count=len(column)).astype(
                np.float32
            )
        return _numbers(column)


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        ratings = np.empty(len(column), dtype=np.float32)
        start = 0
        for chunk in column.chunks:  # nulls become NaN
            cells = chunk if pa.types.is_float32(kind) else chunk.cast(pa.float64(), safe=False)
            ratings[start : start + len(chunk)] = cells.to_numpy(zero_copy_only=False)
            start += len(chunk)
        return ratings
    if pa.types.is_temporal(kind):
        raise InputError(f"The rating column holds {kind}, not numbers; name the column that holds ratings.")
    _check_scalar_type(kind, "ratings")
    codes, values = _dictionary(column)
    parsed = np.fromiter(map(parse_rating, plain_values(values)), dtype=np.float64, count=len(values))
    return np.append(parsed, math.nan).astype(np.float32)[codes]


def check_lengths(*columns: Any) -> None:
    """InputError unless all columns have the same number of rows."""
    if len({len(column) for column in columns}) > 1:
        raise InputError("The columns of users, items and ratings must have the same number of rows.")


def _as_arrow_or_objects(column: Any) -> pa.ChunkedArray | np.ndarray:
    """A typed Arrow column, or an object array to be read cell by cell."""
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
        return _as_arrow_or_objects(column.to_arrow())
    if isinstance(column, np.ndarray) and column.dtype != object:
        if column.ndim != 1:
            raise InputError(f"A column must have one dimension, not {column.ndim}.")
        if column.dtype.kind in "iuf" and column.dtype.itemsize <= 8:
            if column.dtype == np.float16:
                column = column.astype(np.float32)
            native = column.astype(column.dtype.newbyteorder("="), copy=False)
            return pa.chunked_array([pa.array(native)])
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
    if isinstance(values, np.ndarray):
        array = values.reshape(-1)
    else:
        values = values if isinstance(values, Sequence) else list(values)
        array = np.empty(len(values), dtype=object)
        for position, value in enumerate(values):  # numpy would look inside nested sequences
            array[position] = value
    if len(array) and all(type(value) is str for value in array):
        try:
            return pa.chunked_array([pa.array(array, pa.large_string())])
        except (UnicodeEncodeError, pa.ArrowException):
            pass  # a lone surrogate: read cell by cell
    return array


def _from_pandas_column(series: Any) -> pa.ChunkedArray | np.ndarray:
    if str(series.dtype) == "category":
        categories = _as_arrow_or_objects(series.cat.categories.to_series())
        codes = series.cat.codes.to_numpy()
        if isinstance(categories, np.ndarray):
            return np.append(categories, np.array([None], dtype=object))[codes]
        indices = pa.array(codes.astype(np.int64), mask=codes < 0)
        return pa.chunked_array([pa.DictionaryArray.from_arrays(indices, categories.combine_chunks())])
    if isinstance(series.dtype, np.dtype):
        return (
            _as_arrow_or_objects(np.asarray(series))
            if series.dtype != object
            else _objects(np.asarray(series))
        )
    try:
        converted = pa.array(series)
    except Exception:  # an extension type that Arrow does not know
        return _objects(series.to_numpy(dtype=object))
    return converted if isinstance(converted, pa.ChunkedArray) else pa.chunked_array([converted])


def _check_scalar_type(kind: pa.DataType, what: str) -> None:
    """Refuse nested columns: the type belongs to the file's schema, not to a row."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_nested(kind):
        raise InputError(f"A column of {what} holds {kind}; it must hold one plain value in each row.")


def _dictionary(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """Codes (int32, -1 for null) and distinct values of a typed column."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        storage = pa.chunked_array([c.storage for c in column.chunks], kind.storage_type)
        codes, values = _dictionary(storage)
        return codes, pa.ExtensionArray.from_storage(kind, values)
    if pa.types.is_null(kind):
        return np.full(len(column), -1, np.int32), pa.array([], pa.large_string())
    if pa.types.is_dictionary(kind) and column.num_chunks:
        try:
            encoded = column.unify_dictionaries()
        except pa.ArrowException:  # nulls in a dictionary, or more values than its index type can number
            return _dictionary(column.cast(kind.value_type))
        codes = _concatenate([_codes(chunk.indices) for chunk in encoded.chunks], np.int32)
        # A dictionary may repeat a value, hold null or hold values that no row uses.
        inner_codes, values = _dictionary(pa.chunked_array([encoded.chunk(0).dictionary]))
        return _by_appearance(np.append(inner_codes, np.int32(-1))[codes], values)
    plain = {
        pa.string_view(): pa.large_string(),
        pa.binary_view(): pa.large_binary(),
        pa.float16(): pa.float32(),
    }
    if kind in plain:
        column = column.cast(plain[kind])
    if len(column) == 0:
        return np.zeros(0, np.int32), pa.array(
            [], kind.value_type if pa.types.is_dictionary(kind) else column.type
        )
    try:
        encoded = column.dictionary_encode()
    except pa.ArrowNotImplementedError:
        raise InputError(f"A column holds {kind}, which cannot be read as ids or ratings.") from None
    codes = _concatenate([_codes(chunk.indices) for chunk in encoded.chunks], np.int32)
    return codes, encoded.chunk(encoded.num_chunks - 1).dictionary


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


def _codes(indices: pa.Array) -> np.ndarray:
    if indices.null_count:
        mask = indices.is_valid().to_numpy(zero_copy_only=False)
        return np.where(mask, indices.fill_null(0).to_numpy(zero_copy_only=False), -1).astype(np.int32)
    return indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)


def _canonical_array(values: pa.Array) -> pa.Array:
    """Canonical text of distinct typed values; `canonical_text` of each, vectorised where that is simple."""
    kind = values.type
    if pa.types.is_integer(kind):
        return values.cast(pa.large_string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = values.cast(pa.large_string())
        plain = pc.match_substring_regex(text, r"^[\w:/-]+$")
        if pc.all(plain, min_count=0).as_py():
            return text
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        return values.cast(pa.large_string())
    return pa.array([canonical_text(value) for value in plain_values(values)], pa.large_string())


def plain_values(values: pa.Array) -> list[Any]:
    """Arrow values as Python objects; text that is not UTF-8 (a file may hold it) with its bytes escaped."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        octets = values.cast(pa.large_binary()).to_pylist()
        return [None if cell is None else cell.decode("utf-8", "backslashreplace") for cell in octets]
    return values.to_pylist()


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A dictionary-encoded column of bytes as text, without surrounding blanks."""
    column = column.unify_dictionaries()
    if not column.num_chunks:
        return pa.chunked_array([], pa.large_string())
    cells = column.chunk(0).dictionary.to_pylist()
    texts = pa.array([cell.decode("utf-8", "backslashreplace").strip() for cell in cells], pa.large_string())
    return pa.chunked_array([pa.DictionaryArray.from_arrays(c.indices, texts) for c in column.chunks])


def compact(column: pa.Array) -> pa.Array:
    """The same column with each distinct value stored once, where Arrow can do so."""
    kind = column.type
    if pa.types.is_dictionary(kind) or pa.types.is_null(kind) or isinstance(kind, pa.BaseExtensionType):
        return column
    try:
        return column.dictionary_encode()
    except pa.ArrowNotImplementedError:
        return column


def _merge_equal_texts(codes: np.ndarray, values: np.ndarray | pa.Array, texts: pa.Array) -> Encoded:
    """Give values of equal canonical text one code (that of the first) and null texts the code -1."""
    merged = texts.dictionary_encode()
    recode = _codes(merged.indices)
    if len(merged.dictionary) == len(texts):
        return Encoded(codes, values, texts)
    first = np.full(len(merged.dictionary), len(texts), np.int64)
    np.minimum.at(first, recode[recode >= 0], np.flatnonzero(recode >= 0))
    kept = values[first] if isinstance(values, np.ndarray) else values.take(pa.array(first))
    return Encoded(np.append(recode, np.int32(-1))[codes], kept, merged.dictionary)


def _encode_objects(column: np.ndarray) -> Encoded:
    """Cell by cell, remembering the code of each text."""
    lookup: dict[str, int] = {}
    given: list[Any] = []
    codes = np.empty(len(column), np.int32)
    for position, value in enumerate(column):
        text = canonical_text(value)
        if text is None:
            codes[position] = -1
            continue
        code = lookup.setdefault(text, len(lookup))
        if code == len(given):
            given.append(value)
        codes[position] = code
    values = np.empty(len(given), dtype=object)
    for position, value in enumerate(given):
        values[position] = value
    return Encoded(codes, values, pa.array(list(lookup), pa.large_string()))


def _concatenate(parts: list[np.ndarray], dtype: Any) -> np.ndarray:
    if len(parts) == 1:
        return parts[0].astype(dtype, copy=False)
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype)


def is_number(value: Any) -> bool:
    """True for a real number that is not a boolean."""
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
