"""Cells to canonical ids and numbers against answers by hand, columns against their cells, one by one."""

from __future__ import annotations

import datetime
import math
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hushrec.data.ids import canonical_text, encode_ids, encode_ratings, given_ids, lookup, parse_rating


class Written:
    """An object of the caller's own class, which is no id."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


TEXTS: list[tuple[Any, str | None]] = [
    ("a b", "a b"), (" a\t", "a"), ("", None), ("  ", None), ("007", "007"), ("A", "A"), ("é ", "é"),
    ("7.0", "7"), ("-7.0", "-7"), ("-0.0", "0"), ("07.0", "07.0"), ("7.00", "7.00"), ("7.5", "7.5"),
    ("9007199254740991.0", "9007199254740991"), ("9007199254740992.0", None), ("-9007199254740992.0", None),
    ("1e+20", None), ("-1.5E+3", None), ("1.e+3", None), ("1e20", "1e20"), ("1e-20", "1e-20"),
    ("é" * 512, "é" * 512), ("é" * 513, None), ("\ufffda", "\ufffd\ufffda"), ("a\ufffd", "a\ufffd"),
    ("\ud800", "\ufffdueda080"), (" \ud800b", "\ufffdueda08062"), ("None", "None"), ("nan", "nan"),
    (True, "true"), (np.bool_(False), "false"), (None, None), (pd.NA, None), (pd.NaT, None), (7, "7"),
    (np.uint8(7), "7"), (-(2**60), str(-(2**60))), (1 << 3398, str(1 << 3398)), (1 << 3400, None), (7.0, "7"),
    (-0.0, "0"), (2.5, "2.5"), (1e-7, "1e-07"), (np.float32(0.5), "0.5"),
    (np.float32(0.1), "0.10000000149011612"), (2.0**53 - 1, "9007199254740991"), (2.0**53, None),
    (-(2.0**53), None), (math.nan, None), (math.inf, None), (np.longdouble(1) / 3, None), (3 + 0j, "3"),
    (3 + 1j, None), (np.complex64(2.5), "2.5"), (b" a ", "a"), (bytearray(b"7.0"), "7"),
    (memoryview(b"x"), "x"), (b"\xff ", "\ufffdxff"), (b"", None), (Decimal("8.50"), "8.5"),
    (Decimal("100"), "100"), (Decimal("1E+2"), "100"), (Decimal("-0.00"), "0"), (Decimal("0"), "0"),
    (Decimal("-3"), "-3"), (Decimal("1E+1000"), "1" + "0" * 1000), (Decimal("1E+1001"), None),
    (Decimal("1E-1000"), "0." + "0" * 999 + "1"), (Decimal("1E-1001"), None), (Decimal("NaN"), None),
    (Decimal("Infinity"), None), (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (Written(" 7.0 "), None), (datetime.date(2020, 1, 2), None),
    (datetime.timedelta(3), None), (datetime.time(3), None), (np.datetime64("2020"), None),
    (np.timedelta64(3, "s"), None), ([1], None), ((), None), ({}, None),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), TEXTS, ids=range(len(TEXTS)))
def test_the_text_of_one_id(value: Any, text: str | None) -> None:
    assert canonical_text(value) == text


NUMBERS: list[tuple[Any, float]] = [
    (2.5, 2.5), ("2.5", 2.5), (" 4 ", 4.0), (b"2", 2.0), (bytearray(b"2"), 2.0), (True, 1.0),
    (np.bool_(True), 1.0), (3, 3.0), (np.int8(3), 3.0), (np.float16(2.5), 2.5), (Decimal("2.5"), 2.5),
    (3 + 0j, 3.0), (np.complex64(2.0), 2.0), ("1e400", math.inf), ("-inf", -math.inf),
]  # fmt: skip
BAD = ["1_0", "4,5,6", "n/a", "", b"\xff", None, 3 + 4j, [], [4.0], {}, 10**400, Decimal("sNaN")]
BAD += [Written("3"), np.timedelta64(3, "s"), datetime.timedelta(3), np.datetime64("2020")]
NUMBERS += [(bad, math.nan) for bad in BAD]


@pytest.mark.parametrize(("value", "number"), NUMBERS, ids=lambda each: repr(each)[:30])
def test_the_number_of_one_rating(value: Any, number: float) -> None:
    found = parse_rating(value)
    assert type(found) is float and (found == number or math.isnan(found) and math.isnan(number))


def twin(cells: list[Any], exact: bool = True) -> tuple[list[int], list[str], list[Any]]:
    """Codes, canonical texts and the first of the ids that are one, cell by cell."""
    codes: list[int] = []
    texts: dict[str, Any] = {}
    for cell in cells:
        text = canonical_text(cell, exact=exact)
        if text is not None:
            texts.setdefault(text, cell)
        codes.append(-1 if text is None else list(texts).index(text))
    return codes, list(texts), list(texts.values())


CELLS: dict[str, list[Any]] = {
    "numbers": [7, 3, 7, None, 0, -2, 3, 9, 7, 1],
    "large": [2**53, 2**53 - 1, None, 2**60 + 1, 2**60 + 2, 2**53, -(2**53)],
    "words": ["b", "a", "b", None, "c", "a", "d-e", "b", "f:g/h"],
    "blanks": ["b", " b", "a ", "", None, "7.0", "7", "a", "  ", "é", "\ufffd"],
    "floats": [7.0, 2.5, None, 7.0, -0.0, 2.0**53, 1e300, 2.5],
    "octets": [b"a", b"\xff", None, b" a", b"", b"\xfe", b"\xff"],
    "nothing": [],
    "nulls": [None, None],
}


def dictionary(cells: list[Any]) -> pa.ChunkedArray:
    """Return a column of two chunks with dictionaries that repeat a value and hold a null and an unused
    value."""
    values = [*dict.fromkeys(reversed([cell for cell in cells if cell is not None]))]
    unused = {int: 99, str: "unused", float: 99.5, bytes: b"unused"}
    values = [unused[type(values[0])], *values, *values[:1], None] if values else values
    kind = pa.array(values).type
    if pa.types.is_null(kind):
        return pa.chunked_array([pa.array(cells, pa.string()).dictionary_encode()])
    places = [None if cell is None else values.index(cell) for cell in cells]
    half = len(cells) // 2
    parts = [places[:half], places[half:]]
    return pa.chunked_array(
        [pa.DictionaryArray.from_arrays(pa.array(part, pa.int32()), pa.array(values, kind)) for part in parts]
    )


FORMS: dict[str, Any] = {
    "list": list,
    "range": lambda cells: range(10, -3, -2),
    "objects": lambda cells: np.array([*cells, None], object)[:-1],
    "arrow": lambda cells: pa.array(cells),
    "chunks": lambda cells: pa.chunked_array([cells[:3], [], cells[3:]], pa.array(cells).type),
    "dictionary": dictionary,
    "polars": lambda cells: pl.Series(cells),
    "polars objects": lambda cells: pl.Series(cells, dtype=pl.Object),
    "pandas objects": lambda cells: pd.Series(cells, dtype=object),
    "pandas category": lambda cells: pd.Series(cells, dtype=object).astype("category"),
    "pandas chunks": lambda cells: pd.Series(
        pd.arrays.ArrowExtensionArray(pa.chunked_array([cells[:3], cells[3:]], pa.array(cells).type))
    ),
}
GUESSED = ("objects", "pandas objects", "pandas category")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CELLS)
def test_a_column_is_its_cells_one_after_the_other(name: str, form: str) -> None:
    cells = CELLS[name]
    column = FORMS[form](cells)
    cells = list(range(10, -3, -2)) if form == "range" else cells
    guessed = form.startswith(GUESSED)
    for exact in (False, True):
        codes, texts, firsts = twin(cells, exact or not guessed)
        found = encode_ids(column, exact=exact)
        assert found.codes.tolist() == codes and found.codes.dtype == np.int32 and len(found) == len(cells)
        assert found.texts.to_pylist() == texts and found.texts.type == pa.large_string()
        if name not in ("octets", "nulls", "nothing"):
            assert given_ids(found.values) == firsts
        wanted = [texts.index(text) if text in texts else -1 for text in map(canonical_text, [*cells, "no"])]
        assert lookup([*cells, "no"], found.texts).tolist() == wanted
    assert encode_ids(found) is found


@pytest.mark.parametrize(
    "column",
    [
        pd.to_datetime(pd.Series([0, 1, None, 1]), unit="s", utc=True),
        pd.Series(pd.PeriodIndex(["2020", "2021", None, "2021"], freq="Y")),
        pd.Series(pd.interval_range(0, 4)),
    ],
    ids=lambda column: str(column.dtype),
)
def test_a_type_that_pandas_chose_is_read_as_its_objects(column) -> None:
    """One more cell could turn the column into objects; the other cells must not change."""
    found, wanted = encode_ids(column), encode_ids(column.astype(object))
    assert found.codes.tolist() == wanted.codes.tolist() and found.texts.equals(wanted.texts)


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("range", "objects")])
def test_ratings_of_a_column_are_those_of_its_cells(form: str) -> None:
    """Each rounded from float64 to float32 once."""
    for cells in ([1.1, 2.5, None, 1e300, -0.0], [1, None, 2**40, -3], ["1.1", "x", None, "1e40", "2"]):
        column = [math.nan if cell is None else cell for cell in cells] if form == "list" else cells
        found = encode_ratings(FORMS[form](column))
        with np.errstate(over="ignore"):
            wanted = np.array([parse_rating(cell) for cell in cells]).astype(np.float32)
        assert found.dtype == np.float32 and found.tobytes() == wanted.tobytes()
    near = 1 + 2.0**-24 + 2.0**-50  # just above the middle of two float32
    assert encode_ratings([near]).tolist() == [1 + 2.0**-23] == encode_ratings([str(near)]).tolist()
    assert encode_ratings(pa.array([str(near)])).tolist() == [1 + 2.0**-23]
