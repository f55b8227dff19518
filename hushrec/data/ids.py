"""Columns of ids and ratings: canonical texts and float32, one cell at a time.

Every rule here is a function of one cell.
"""

from __future__ import annotations

import datetime
import math
import numbers
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hushrec.data.arrays import (
    PLAIN,
    check_scalar_type,
    decoded,
    dictionary,
    is_declared,
    plain_values,
    too_long,
    typed_or_objects,
)

#: Units of a quantity of 1.
UNIT = 10**6
_LARGEST = 1 << 53  # from here on floats skip integers
_MOST_BITS = 3400  # of an integer with at most 1,024 digits
# the forms in which Python, pandas and CSV files write floats that may have been integers
_TEXT_OF_WHOLE_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)\.0")
#: 3,5 and 1.234,50
_DECIMAL_COMMA = re.compile(r"[+-]?([0-9]+|[0-9]{1,3}(\.[0-9]{3})+),[0-9]+")
_TEXT_OF_LARGE_FLOAT = re.compile(r"-?[0-9]([.,][0-9]*)?[eE]\+[0-9]+")
_DIGITS = re.compile(r"-?[0-9]{16,}(\.0*)?")
NO_TEXT = "\ufffd"  # begins the canonical text of bytes and surrogates that are no text
_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)


def canonical_text(value: Any, *, exact: bool = True) -> str | None:
    r"""Return the text that identifies an id, or None where there is no id.

    The integer 7, the texts "7" and "7.0", and the float 7.0 are one id, "7". Surrounding blanks do not
    count; zeros and case do. Bytes are read as UTF-8, a UUID as its usual text.

    No ids: None, NaN, infinities, empty text, cells of more than 1,024 bytes, dates and times, objects of any
    other class, and floats (or their text) of 2^53 and beyond, which several integers share. Bytes that are
    no text become "\ufffdx" and their hexadecimal digits, lone surrogates "\ufffdu" and theirs; "\ufffd" at
    the start of a text is doubled.

    ``exact`` False: integers of 2^53 and beyond are no ids either, since one missing cell of NumPy or pandas
    makes floats of the column.
    """
    try:
        return _text_of(value, exact)
    except Exception:  # an object of the caller's that fails
        return None


def _text_of(value: Any, exact: bool) -> str | None:
    if isinstance(value, str):
        return None if too_long(value) else _text_of_text(value.strip())
    if value is None or isinstance(value, _TIMES):
        return None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        whole = int(value)
        return str(whole) if exact and whole.bit_length() < _MOST_BITS or abs(whole) < _LARGEST else None
    if isinstance(value, (complex, np.complexfloating)):  # what NumPy makes of numbers next to 3j
        return _text_of(value.real, exact) if value.imag == 0 else None
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if number != value or abs(number) >= _LARGEST:  # NaN, more digits than a float has, infinite, large
            return None
        return str(int(number)) if number.is_integer() else repr(number)
    if isinstance(value, (bytes, bytearray, memoryview)):
        if too_long(value):
            return None
        text = decoded(bytes(value))
        return f"{NO_TEXT}x{bytes(value).strip().hex()}" if text is None else _text_of(text, exact)
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value.adjusted()) > 1000:
            return None
        text = format(value, "f")  # all digits, where normalize() would round to 28
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return _text_of("0" if text == "-0" else text, exact)
    return str(value) if isinstance(value, uuid.UUID) else None


def _text_of_text(text: str) -> str | None:
    if not text.isascii() and (text[0] == NO_TEXT or not _is_unicode(text)):
        return NO_TEXT + (text if _is_unicode(text) else "u" + text.encode("utf-8", "surrogatepass").hex())
    if _TEXT_OF_WHOLE_FLOAT.fullmatch(text):
        return str(int(text[:-2])) if abs(float(text)) < _LARGEST else None
    return None if not text or _TEXT_OF_LARGE_FLOAT.fullmatch(text) else text


def is_rounded(cell: Any) -> bool:
    """Return whether a cell is a number that a float or a spreadsheet rounded, which several ids share."""
    if isinstance(cell, (int, np.integer)):
        return abs(int(cell)) >= _LARGEST
    if isinstance(cell, (float, np.floating)):
        return _LARGEST <= abs(float(cell)) < math.inf
    text = bytes(cell).decode("utf-8", "replace") if isinstance(cell, (bytes, bytearray)) else cell
    if not isinstance(text, str):
        return False
    return any(form.fullmatch(text.strip()) for form in (_TEXT_OF_LARGE_FLOAT, _DIGITS))


def why_no_id(cell: Any) -> str:
    """Return why `canonical_text` gives None, as the end of a sentence."""
    if is_rounded(cell):
        return "is a number whose last digits a spreadsheet or a float has lost; write it as text"
    if isinstance(cell, _TIMES):
        return "is a date or a time; write an id as text or as an integer"
    return "is no id, which is text, a number or a UUID of at most 1,024 bytes"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_rating(value: Any) -> float:
    """Return the number in a cell, also with a decimal comma; NaN for anything else."""
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
            return _number_of_text(value.strip())
        if isinstance(value, (numbers.Real, Decimal, np.bool_)) and not isinstance(value, _TIMES):
            return float(value)
    except Exception:  # no number; an object of the caller's that fails
        pass
    return math.nan


def _number_of_text(text: str) -> float:
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    if _DECIMAL_COMMA.fullmatch(text):
        text = text.replace(".", "").replace(",", ".")
    return math.nan if "_" in text else float(text)


@dataclass(frozen=True, eq=False)
class Encoded:
    """A column of ids as codes into its distinct ids.

    Attributes
    ----------
    codes : ndarray of int32
        -1 where a row has no id.
    values : Arrow array or ndarray of object
        Distinct ids as given; an Arrow array where the type was declared.
    texts : Arrow array of large_string
        Their canonical texts.
    """

    codes: np.ndarray
    values: np.ndarray | pa.Array
    texts: pa.Array

    def __len__(self) -> int:
        return len(self.codes)


def encode_ids(column: Any, *, exact: bool = False) -> Encoded:
    """Number distinct ids by first appearance; ``exact`` as of `canonical_text`, for ids that are no rows."""
    if isinstance(column, Encoded):
        return column
    fixed = is_declared(column)
    exact = exact or fixed or type(column).__module__.partition(".")[0] not in ("numpy", "pandas")
    column = typed_or_objects(column)
    if isinstance(column, np.ndarray):
        cells = pa.array((canonical_text(value, exact=exact) for value in column), pa.large_string())
        return _merge_equal_texts(np.arange(len(column), dtype=np.int32), column, cells)
    check_scalar_type(column.type, "ids")
    codes, values = dictionary(column)
    texts = _canonical_array(values)
    if fixed and pa.types.is_integer(values.type):  # no two of them have one text
        return Encoded(codes, values, texts)
    if pa.types.is_large_string(values.type):
        values = _in_utf8(values, texts)
    if not fixed and not pa.types.is_integer(values.type):
        values = np.fromiter(given_ids(values), object)
    elif not exact:
        small = np.abs(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)) < _LARGEST
        texts = pc.if_else(pa.array(small), texts, None)
    return _merge_equal_texts(codes, values, texts)


def lookup(ids: Any, texts: pa.Array) -> np.ndarray:
    """Return the position (int64) of each id, -1 where it is not there."""
    if isinstance(ids, (str, bytes, int, np.integer, uuid.UUID)):
        ids = [ids]
    return positions_of(encode_ids(ids, exact=True), texts).astype(np.int64)


def positions_of(ids: Encoded, texts: pa.Array) -> np.ndarray:
    """Return the position (int32) of encoded ids, -1 where not there."""
    if ids.texts is texts:
        return ids.codes.astype(np.int32, copy=False)
    return np.append(places(ids.texts, texts), np.int32(-1))[ids.codes]


def places(texts: pa.Array, among: pa.Array) -> np.ndarray:
    """Return the position (int32) of each canonical text, -1 where not there."""
    positions = pc.index_in(texts, value_set=among).fill_null(-1)
    return positions.to_numpy(zero_copy_only=False).astype(np.int32)


def given_ids(values: np.ndarray | pa.Array) -> list[Any]:
    """Return Python objects; a whole number is an int for any column type."""
    return [_plain_number(v) for v in (values if isinstance(values, np.ndarray) else plain_values(values))]


def _plain_number(value: Any) -> Any:
    if isinstance(value, (complex, np.complexfloating)):
        value = value.real
    if isinstance(value, (float, np.floating)):
        value = float(value)
        return int(value) if value.is_integer() and abs(value) < _LARGEST else value
    is_whole = isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value()
    return int(value) if is_whole or isinstance(value, np.integer) else value


def encode_ratings(column: Any) -> np.ndarray:
    """Return float32, NaN where a cell holds no number."""
    with np.errstate(all="ignore"):  # what float32 cannot hold becomes infinite; a signalling NaN stays a NaN
        if isinstance(column, list) and set(map(type, column)) <= {float}:  # one user's, often
            return np.array(column, np.float64).astype(np.float32)
        column = typed_or_objects(column)
        if isinstance(column, np.ndarray):
            return np.fromiter(map(parse_rating, column), np.float64).astype(np.float32)
        kind = column.type
        check_scalar_type(kind, "ratings")
        if pa.types.is_floating(kind) or pa.types.is_integer(kind):
            return _numbers(column)
        codes, values = dictionary(column)
        parsed = np.fromiter(map(parse_rating, plain_values(values)), np.float64)
        return np.append(parsed, math.nan).astype(np.float32)[codes]


def encode_quantities(column: Any) -> np.ndarray:
    """Return int64 in millionths (their sum has no order), 0 for no finite number; at most a million."""
    numbers = np.nan_to_num(encode_ratings(column).astype(np.float64), posinf=0, neginf=0)
    return np.rint(np.clip(numbers, -UNIT, UNIT) * UNIT).astype(np.int64)


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    kind = pa.float32() if pa.types.is_float32(column.type) else pa.float64()
    cells = (chunk.cast(kind, safe=False).to_numpy(zero_copy_only=False) for chunk in column.chunks)
    return np.concatenate([np.zeros(0, np.float32), *(part.astype(np.float32, copy=False) for part in cells)])


def _canonical_array(values: pa.Array) -> pa.Array:
    if pa.types.is_integer(values.type):
        return values.cast(pa.large_string())
    if pa.types.is_large_string(values.type):
        is_plain = pc.match_substring_regex(values, PLAIN)
        if pc.all(is_plain, min_count=0).as_py():
            return values
    return pa.array([canonical_text(value) for value in plain_values(values)], pa.large_string())


def _in_utf8(values: pa.Array, texts: pa.Array) -> pa.Array:
    """Replace values that are not UTF-8 by their canonical form, so the others are read."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        pairs = zip(plain_values(values), texts.to_pylist(), strict=True)
        return pa.array([text if isinstance(cell, bytes) else cell for cell, text in pairs], values.type)
    return values


def _merge_equal_texts(codes: np.ndarray, values: np.ndarray | pa.Array, texts: pa.Array) -> Encoded:
    merged = texts.dictionary_encode()
    distinct = merged.dictionary
    if len(distinct) == len(texts):
        return Encoded(codes, values, texts)
    recode = np.append(merged.indices.cast(pa.int32()).fill_null(-1).to_numpy(), np.int32(-1))
    return Encoded(recode[codes], take(values, places(distinct, texts)), distinct)


def take(values: np.ndarray | pa.Array, positions: np.ndarray) -> Any:
    return values[positions] if isinstance(values, np.ndarray) else values.take(pa.array(positions))


def join_ids(parts: Sequence[Encoded]) -> Encoded:
    starts = np.cumsum([0, *(len(part.texts) for part in parts[:-1])], dtype=np.int32)
    codes = [
        np.where(part.codes < 0, -1, part.codes + start) for part, start in zip(parts, starts, strict=True)
    ]
    values = [part.values for part in parts]
    texts = pa.concat_arrays([part.texts for part in parts])
    types = {value.type if isinstance(value, pa.Array) else object for value in values}
    if len(types) == 1 and object not in types:
        joined = pa.concat_arrays(values)
    else:
        joined = np.fromiter((id for value in values for id in given_ids(value)), object)
    return _merge_equal_texts(np.concatenate(codes), joined, texts)
