"""A column of times to whole numbers, one cell at a time; see docs/guides/time.md."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hushrec.data.arrays import check_scalar_type, dictionary, plain_values, too_long, typed_or_objects
from hushrec.data.ids import parse_rating

#: Time of a rating without a time: before all times.
NO_TIME = int(np.iinfo(np.int64).min)

#: No float64 within it is rounded past int64 or to `NO_TIME`.
_FURTHEST = 1 << 62
#: 24.12.2025, also with a time of day
_DOTTED = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})(?:,?[ T]+([0-9]{1,2})(:.+))?")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FINER = ("ms", "us", "ns", "ps", "fs", "as")  # NumPy's units below a second

#: Seconds since 1970 reach 10^11 in the year 5138, milliseconds in 1973.
_UNITS = {"seconds": 10**11, "milliseconds": 10**14, "microseconds": 10**17}


#: Advice for a column of which no time can be read.
HOW_TO_WRITE = "write dates as 2024-06-30 or 30.06.2024, or seconds since 1970"


def unit_of(times: np.ndarray) -> str:
    """Return the unit of most times since 1970; seconds where there is none."""
    known = times[times != NO_TIME]
    middle = float(np.median(np.abs(known))) if len(known) else 0.0
    return next((unit for unit, end in _UNITS.items() if middle < end), "nanoseconds")


def encode_times(column: Any) -> np.ndarray:
    """Return int64, `NO_TIME` where a cell holds no time.

    Dates, timestamps, ISO 8601 text and text such as 24.12.2025 12:51 become seconds since 1970 (UTC).
    Numbers keep the source's unit. Both are rounded down, numbers from the nearest float64.
    """
    kind = getattr(column, "dtype", None)
    if hasattr(kind, "categories") and hasattr(column, "cat") and hasattr(column.cat, "codes"):  # pandas
        return np.append(encode_times(column.cat.categories.to_series()), NO_TIME)[column.cat.codes]
    if hasattr(kind, "tz"):  # pandas: the same moments without their zone
        column = column.dt.tz_convert(None)
        kind = column.dtype
    if isinstance(kind, np.dtype) and kind.kind == "M":
        return _of_datetimes(np.asarray(column))
    column = typed_or_objects(column)
    if isinstance(column, np.ndarray):
        return np.fromiter(map(parse_time, column), dtype=np.int64, count=len(column))
    check_scalar_type(column.type, "times", moments=True)
    return np.concatenate([np.zeros(0, np.int64), *(_of_typed(chunk) for chunk in column.chunks)])


def join_filled(parts: Sequence[np.ndarray | None], lengths: Sequence[int], filler: int) -> np.ndarray | None:
    """Fill missing columns of int64, or return None if all are missing."""
    if all(part is None for part in parts):
        return None
    pairs = zip(parts, lengths, strict=True)
    return np.concatenate([np.full(length, filler) if part is None else part for part, length in pairs])


def parse_time(value: Any) -> int:
    try:
        return _time_of(value)
    except Exception:  # no time; an object of the caller's that fails
        return NO_TIME


def _time_of(value: Any) -> int:
    if isinstance(value, (str, bytes, bytearray)) and too_long(value):
        return NO_TIME
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value).decode()
    if isinstance(value, str) and "_" not in value and math.isnan(parse_rating(value)):
        value = datetime.datetime.fromisoformat(_in_iso(value.strip()))
    if hasattr(value, "to_datetime64"):  # a Timestamp of pandas
        value = value.to_datetime64()
    if isinstance(value, np.datetime64):
        return int(_of_datetimes(np.array([value]))[0])
    if isinstance(value, datetime.date):
        if not isinstance(value, datetime.datetime):
            value = datetime.datetime(value.year, value.month, value.day)
        moment = value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value
        return (moment - _EPOCH) // datetime.timedelta(seconds=1)
    number = math.nan if isinstance(value, (bool, np.bool_)) else parse_rating(value)
    return math.floor(number) if abs(number) <= _FURTHEST else NO_TIME


def _in_iso(text: str) -> str:
    dotted = _DOTTED.fullmatch(text)
    if dotted is None:
        return text
    day, month, year, hour, rest = dotted.groups()
    clock = "" if hour is None else f"T{hour:0>2}{rest}"
    return f"{year}-{month:0>2}-{day:0>2}{clock}"


def _of_typed(column: pa.Array) -> np.ndarray:
    kind = column.type
    if pa.types.is_integer(kind):
        ticks = column.cast(pa.int64(), safe=False).fill_null(NO_TIME).to_numpy(zero_copy_only=False)
        if not pa.types.is_uint64(kind) and not column.null_count and np.abs(ticks).max(initial=0) < 1 << 53:
            return ticks  # the same result, faster
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _of_numbers(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        unit = kind.unit if pa.types.is_timestamp(kind) else "D" if pa.types.is_date32(kind) else "ms"
        ticks = column.cast(pa.int32()) if unit == "D" else column
        moments = ticks.cast(pa.int64()).fill_null(NO_TIME).to_numpy(zero_copy_only=False)
        return _of_datetimes(moments.view(f"M8[{unit}]"))
    codes, values = dictionary(pa.chunked_array([column]))
    return np.append(_of_values(values), NO_TIME)[codes]


def _of_values(values: pa.Array) -> np.ndarray:
    if values.type not in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        return np.array([parse_time(value) for value in plain_values(values)], dtype=np.int64)
    digits = pc.match_substring_regex(values, r"^-?[0-9]{1,18}$")  # the same result, faster
    plain = pc.if_else(digits, values, None).cast(pa.large_string()).cast(pa.float64())
    times = _of_numbers(plain.to_numpy(zero_copy_only=False))
    others = np.flatnonzero(~digits.to_numpy(zero_copy_only=False))
    times[others] = [parse_time(value) for value in plain_values(values.take(pa.array(others)))]
    return times


def _of_numbers(numbers: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        inside = np.abs(numbers) <= _FURTHEST
        return np.where(inside, np.floor(np.where(inside, numbers, 0)).astype(np.int64), NO_TIME)


def _of_datetimes(moments: np.ndarray) -> np.ndarray:
    """Return seconds; none where int64 cannot hold them."""
    seconds = moments.astype("M8[s]")
    is_exact = np.datetime_data(moments.dtype)[0] in _FINER or seconds.astype(moments.dtype) == moments
    ticks = seconds.view(np.int64)
    return np.where(is_exact & (np.abs(ticks) <= _FURTHEST), ticks, NO_TIME)
