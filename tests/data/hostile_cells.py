"""Cells and lines that real files hold and readers trip over."""

from __future__ import annotations

import datetime
import math
import uuid
from decimal import Decimal

import numpy as np


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = object.__hash__


USERS = [
    "mallory", "", "   ", None, math.nan, math.inf, -math.inf, "é", "𝕏" * 50, "x" * 100_000, "\ud800",
    b"\xff\xfe", b"", uuid.UUID(int=3), -1, 2**31, 2**63 - 1, 2**64, 10**400, 10**5000, 1e308, 0.5,
    Decimal("8.50"), Decimal("NaN"), Decimal("1e999999"), True, np.int8(-3), np.float32(2.5),
    np.datetime64("NaT"), datetime.date(2020, 2, 29), [], [1, 2], {}, {"a": 1}, (1,), object, Unprintable(),
    "=1+1", "\x00", "a\nb", "a\rb", 'a"b', '"', "a,b", "\ufeffmallory", "1_0", "0007", "7.5", "A7", "nan",
    "None", "\u202eabc", np.array([1, 2]), 3 + 4j, "٣",
]  # fmt: skip

ITEMS = [
    1, "1", 1.0, "1.0", b"1", Decimal(1), np.uint8(1), " 1 ", "A7", "", None, math.nan, math.inf, 0, -1,
    99_999, 2**70, 10**400, 1.5, True, [], {}, "1\n2", "x" * 100_000, "\ud800", b"\xff", Unprintable(),
    uuid.UUID(int=1), "1_0", "01",
]  # fmt: skip

RATINGS = [
    4, 4.0, "4", b"4", " 4 ", "4.0", Decimal(4), np.float16(4), True, "n/a", "", None, math.nan, math.inf,
    -math.inf, 1e308, -1e308, 5e-324, 10**400, -(10**400), "1e400", "inf", "nan", "1_0", "4,5,6", "0x4", "٤",
    Decimal("NaN"), Decimal("sNaN"), Decimal("1e999999"), 3 + 4j, [], {}, np.array([4.0]), Unprintable(),
    b"\xff", "\ud800", 0.999999, 5.000001, -4, 0, 1e-45, np.datetime64("2020-01-01"), "4" * 5000, 10**5000,
]  # fmt: skip

LINES = [
    b"", b" ", b"\x00", b"\x00,\x00,\x00", b",", b",,", b",,,", b",,,,,,,,", b'"', b'""', b'"""', b'"mallory',
    b'"mallory,1,4', b'mallory,"1,4', b'mallory,1,"4', b'mallory,1,4"', b'"mallory","1","4"',
    b'"mal""lory",1,4', b'"mal,lory",1,4', b'mal"lory,1,4', b'mal"lory,1,"4', b'"mallory"x,1,4',
    b' "mallory",1,4', b"mallory", b"mallory,1", b"mallory,1,", b"mallory,,4", b",1,4", b"mallory,1,4,5,6",
    b"mallory;1;4", b"mallory\t1\t4", b"mallory,A7,4", b"mallory,1,n/a", b"mallory,1,nan", b"mallory,1,inf",
    b"mallory,1,-1e308", b"mallory,1,1e400", b"mallory,1,4,5,6,7,8,9", b"\xff\xfe,1,4",
    b"\xef\xbb\xbfmallory,1,4", b"mallory,\xff,4", b"mallory,1,\xff", b"mallory\\,1,4", b"mallory,1\\,4",
    b"'mallory',1,4", b"#mallory,1,4", b"mallory,1,4\rmallory,2,5", b"\r\r\r", b"\x1f\x1f\x1f", b"\x1a",
    b"mallory,1,4 ", b"user,item,rating", b"x" * 65_537, b"x" * 200_000 + b",1,4", b'"' * 65_536,
    b'"' + b"x" * 200_000 + b'",1,4', b"," * 70_000, "\u2028mallory,1,4".encode(), "mal\x85lory,1,4".encode(),
    b"mallory,1,4\x0bmallory,2,5\x0c",
]  # fmt: skip
