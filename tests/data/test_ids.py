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

from hushrec.data import ids
from hushrec.data.ids import (
    as_text,
    canonical_text,
    compact,
    encode_ids,
    encode_ratings,
    given_ids,
    join_ids,
    lookup,
    parse_rating,
)
from hushrec.errors import InputError


class Written:
    """Of the caller's own."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        if not self.text:
            raise RuntimeError("no text")
        return self.text


TEXTS: list[tuple[Any, str | None]] = [
    ("a b", "a b"), (" a\t", "a"), ("", None), ("  ", None), ("007", "007"), ("A", "A"), ("é ", "é"),
    ("7.0", "7"), ("-7.0", "-7"), ("-0.0", "0"), ("07.0", "07.0"), ("7.00", "7.00"), ("7.5", "7.5"),
    ("9007199254740991.0", "9007199254740991"), ("9007199254740992.0", None), ("-9007199254740992.0", None),
    ("1e+20", None), ("-1.5E+3", None), ("1.e+3", None), ("1e20", "1e20"), ("1e-20", "1e-20"),
    ("\ufffda", "\ufffd\ufffda"), ("a\ufffd", "a\ufffd"), ("\ud800", "\ufffdueda080"), (" \ud800b",
     "\ufffdueda08062"), ("None", "None"), ("nan", "nan"),
    (True, "true"), (np.bool_(False), "false"), (None, None), (pd.NA, None), (pd.NaT, None),
    (7, "7"), (np.uint8(7), "7"), (-(2**60), str(-(2**60))), (1 << 3398, str(1 << 3398)), (1 << 3400, None),
    (7.0, "7"), (-0.0, "0"), (2.5, "2.5"), (1e-7, "1e-07"), (np.float32(0.5), "0.5"),
    (np.float32(0.1), "0.10000000149011612"), (2.0**53 - 1, "9007199254740991"), (2.0**53, None),
    (-(2.0**53), None), (math.nan, None), (math.inf, None), (np.longdouble(1) / 3, None),
    (3 + 0j, "3"), (3 + 1j, None), (np.complex64(2.5), "2.5"),
    (b" a ", "a"), (bytearray(b"7.0"), "7"), (memoryview(b"x"), "x"), (b"\xff ", "\ufffdxff"), (b"", None),
    (Decimal("8.50"), "8.5"), (Decimal("100"), "100"), (Decimal("1E+2"), "100"), (Decimal("-0.00"), "0"),
    (Decimal("0"), "0"), (Decimal("-3"), "-3"), (Decimal("1E+1000"), "1" + "0" * 1000),
    (Decimal("1E+1001"), None), (Decimal("1E-1000"), "0." + "0" * 999 + "1"), (Decimal("1E-1001"), None),
    (Decimal("NaN"), None), (Decimal("Infinity"), None),
    (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"), (Written(" 7.0 "), "7"), (Written(""), None),
    (datetime.date(2020, 1, 2), None), (datetime.timedelta(3), None), (datetime.time(3), None),
    (np.datetime64("2020"), None), (np.timedelta64(3, "s"), None), ([1], None), ((), None), ({}, None),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), TEXTS, ids=range(len(TEXTS)))
def test_the_text_of_one_id(value: Any, text: str | None) -> None:
    assert canonical_text(value) == text


def test_cells_of_a_column_whose_type_was_chosen_by_all_are_no_large_integers() -> None:
    for number, text in ((2**53 - 1, str(2**53 - 1)), (2**53, None), (-(2**53), None), (1 - 2**53, "%d")):
        for kind in (int, np.int64):
            wanted = text and text.replace("%d", str(number))
            assert canonical_text(kind(number), exact=False) == wanted
            assert canonical_text(kind(number)) == str(number)


NUMBERS: list[tuple[Any, float]] = [
    (2.5, 2.5), ("2.5", 2.5), (" 4 ", 4.0), (b"2", 2.0), (bytearray(b"2"), 2.0), (True, 1.0),
    (np.bool_(True), 1.0), (3, 3.0), (np.int8(3), 3.0), (np.float16(2.5), 2.5), (Decimal("2.5"), 2.5),
    (3 + 0j, 3.0), (np.complex64(2.0), 2.0), ("1e400", math.inf), ("-inf", -math.inf),
    *((bad, math.nan) for bad in ("1_0", "4,5", "n/a", "", b"\xff", None, 3 + 4j, [], [4.0], {}, 10**400,
      Decimal("sNaN"), np.timedelta64(3, "s"), datetime.timedelta(3), np.datetime64("2020"), Written("3"))),
]  # fmt: skip


@pytest.mark.parametrize(("value", "number"), NUMBERS, ids=lambda each: repr(each)[:30])
def test_the_number_of_one_rating(value: Any, number: float) -> None:
    found = parse_rating(value)
    assert type(found) is float and (found == number or math.isnan(found) and math.isnan(number))


def test_ids_are_given_back_as_plain_objects() -> None:
    given = np.array([2.0, 2.5, 2.0**53, 3 + 0j, np.int16(4), np.float32(5), "a", None, True], object)
    wanted = [2, 2.5, 2.0**53, 3, 4, 5, "a", None, True]
    found = given_ids(given)
    assert found == wanted and [type(cell) for cell in found] == [type(cell) for cell in wanted]
    assert given_ids(pa.array(["a", None])) == ["a", None] and given_ids(pa.array([7, 8], pa.int8())) == [
        7,
        8,
    ]


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
    """In two chunks whose dictionaries repeat a value, hold a null and one that no row uses."""
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


class Stream:
    """A column of a library that we do not know."""

    def __init__(self, cells: list[Any]) -> None:
        self.column = pa.chunked_array([cells], pa.array(cells).type)

    def __arrow_c_stream__(self, schema: Any = None) -> Any:
        return self.column.__arrow_c_stream__(schema)


class Exported(Stream):
    """One that has no chunks."""

    __arrow_c_stream__ = property()

    def __arrow_c_array__(self, schema: Any = None) -> Any:
        return self.column.combine_chunks().__arrow_c_array__(schema)


FORMS: dict[str, Any] = {
    "stream": Stream,
    "exported": Exported,
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
    "pandas arrow": lambda cells: pd.Series(pd.arrays.ArrowExtensionArray(pa.array(cells))),
    "pandas chunks": lambda cells: pd.Series(
        pd.arrays.ArrowExtensionArray(pa.chunked_array([cells[:3], cells[3:]], pa.array(cells).type))
    ),
}
GUESSED = ("objects", "pandas")


@pytest.mark.parametrize("part", [3, 1 << 20])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CELLS)
def test_a_column_is_its_cells_one_after_the_other(name: str, form: str, part: int, monkeypatch) -> None:
    monkeypatch.setattr(ids, "_PART", part)
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
    [pd.period_range("2020-01", periods=3, freq="M"), pd.interval_range(0.0, 3.0),
     pd.date_range("2020-01-01", periods=3, tz="Asia/Tokyo")],
    ids=["periods", "intervals", "moments"],
)  # fmt: skip
def test_cells_of_a_type_that_pandas_guesses_are_the_users_that_they_are_among_others(column: Any) -> None:
    cells = list(column)
    for guessed in (column.to_series(), pd.Series([cells[0], None, *cells[1:]], dtype=column.dtype)):
        objects = [None if pd.isna(cell) else cell for cell in guessed]
        for form in (guessed, guessed.astype("category")):
            found = encode_ids(form)
            codes, texts, _ = twin(objects, exact=False)
            assert (found.codes.tolist(), found.texts.to_pylist()) == (codes, texts)
        mixed = encode_ids([*objects, "not of their type"])
        assert mixed.codes.tolist()[:-1] == codes and mixed.texts.to_pylist() == [*texts, "not of their type"]


def test_cells_of_a_type_that_arrow_does_not_know_are_read_one_by_one() -> None:
    for cells in ([7, 0, 7, 2], ["b", "a", "b", None], [2.5, None, 2.5, 3.0]):
        found = encode_ids(pd.Series(pd.arrays.SparseArray(cells)))
        codes, texts, _ = twin(cells, exact=False)
        assert (found.codes.tolist(), found.texts.to_pylist()) == (codes, texts)


def test_ids_have_a_type_where_it_was_fixed_before_their_cells() -> None:
    """In Arrow, polars and ranges; a type that was chosen by the ids at hand would tell of all of them."""
    words = [" b", "a", "b"]
    fixed = [pa.array(words), pa.chunked_array([words]), pl.Series(words), range(3), Stream(words)]
    guessed = [
        words,
        tuple(words),
        np.array(words),
        pd.Series(words),
        pd.Series(words, dtype="category"),
        [1, 2],
    ]
    assert [type(encode_ids(column).values) for column in guessed] == [np.ndarray] * len(guessed)
    assert all(isinstance(encode_ids(column).values, pa.Array) for column in fixed)


def test_values_of_a_dictionary_that_no_row_holds_are_no_ids() -> None:
    places = pa.array([2, 3, None, 2, 1], pa.int32())
    column = pa.DictionaryArray.from_arrays(places, pa.array(["unused", "a", "b", "a"]))
    found = encode_ids(column)
    assert found.codes.tolist() == [0, 1, -1, 0, 1] and found.texts.to_pylist() == ["b", "a"]


def test_columns_one_below_another_are_one_column() -> None:
    parts = [["b", "a", None, "b"], [" a", "c"], [], [7, "c", 7.0, None]]
    for kinds in ((0, 1), (2, 0, 3), (0, 1, 2, 3), (3,), (2,)):
        chosen = [parts[kind] for kind in kinds]
        found = join_ids([encode_ids(part) for part in chosen])
        codes, texts, firsts = twin([cell for part in chosen for cell in part])
        assert (found.codes.tolist(), found.texts.to_pylist()) == (codes, texts)
        assert given_ids(found.values) == firsts
    typed = [encode_ids(pa.array(part, pa.int16())) for part in ([5, 4], [4, 6])]
    joined = join_ids(typed)
    assert joined.values.type == pa.int16() and joined.values.to_pylist() == [5, 4, 6]
    mixed = join_ids([*typed, encode_ids(pa.array([4, 9], pa.int64()))])
    assert isinstance(mixed.values, np.ndarray) and mixed.values.tolist() == [5, 4, 6, 9]
    assert mixed.codes.tolist() == [0, 1, 1, 2, 1, 3]


@pytest.mark.parametrize("form", ["list", "arrow", "chunks", "polars", "pandas objects"])
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


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (np.ones((2, 2)), "A column must have one dimension, not 2."),
        (np.array([1, 2], "m8[s]"), "A column holds durations; name one that holds plain ids, ratings or"),
        ("text", "A column of ids or ratings must be a sequence, not str."),
        (b"octets", "A column of ids or ratings must be a sequence, not bytes."),
        (3, "A column of ids or ratings must be a sequence, not int."),
        (pa.array([[1]]), "The column of ids holds list<item: int64>; name one that holds plain ids."),
        (pa.array([{"a": 1}]), "The column of ids holds struct<a: int64>; name one that holds plain ids."),
        (pa.array([1], pa.timestamp("s")), "The column of ids holds timestamp[s]; name one that holds"),
    ],
)
def test_what_is_no_column_is_refused_by_its_kind(column: Any, says: str) -> None:
    with pytest.raises(InputError) as refused:
        encode_ids(column)
    assert str(refused.value).startswith(says)


def test_moments_in_numpy_are_no_ids_and_wide_floats_are_read_one_by_one() -> None:
    assert encode_ids(np.array(["2020", "2021"], "M8[s]")).codes.tolist() == [-1, -1]
    assert encode_ids(np.array([2, 2.5, 2], np.longdouble)).texts.to_pylist() == ["2", "2.5"]
    assert encode_ids(np.array([2, 3], ">i2")).texts.to_pylist() == ["2", "3"]
    assert encode_ids(np.array([2.5], np.float16)).texts.to_pylist() == ["2.5"]


def test_text_of_a_file_is_stripped_where_it_is_text() -> None:
    cells = [b" a ", b"b", b" \xff ", b"\xc2\xa0c", b"b"]
    column = pa.chunked_array(
        [pa.array(cells[:3]).dictionary_encode(), pa.array(cells[3:]).dictionary_encode()]
    )
    found = [cell for chunk in as_text(column).chunks for cell in chunk.cast(pa.large_binary()).to_pylist()]
    assert found == [b"a", b"b", b"\xff", b"c", b"b"]
    assert as_text(pa.chunked_array([], pa.dictionary(pa.int32(), pa.binary()))).to_pylist() == []


def test_columns_are_held_with_each_value_once_where_they_can_be() -> None:
    assert pa.types.is_dictionary(compact(pa.array(["a", "a"])).type)
    one = pa.array([uuid.UUID(int=1).bytes], pa.uuid())
    for kept in (pa.nulls(2), pa.array(["a"]).dictionary_encode(), pa.array([[1]]), one):
        assert compact(kept) is kept
