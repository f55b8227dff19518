"""Times of ratings: one cell at a time, the latest of a pair stays, and every choice of rows keeps them."""

import datetime
import decimal
import math
import random

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from hushrec.data import Domain, Ratings, sample_per_user, split_ratings
from hushrec.data.times import NO_TIME, encode_times, parse_time
from hushrec.errors import InputError
from tests.data.hostile_cells import RATINGS, USERS
from tests.data.test_rows_alone import CELLS, FORMS, columns_of, types, watched

DOMAIN = Domain(range(8), rating_range=(0, 5))
NOON = 1_577_880_000  # 2020-01-01 12:00 UTC
SAME = [
    NOON, float(NOON), NOON + 0.75, str(NOON), f"{NOON}.5", f" {NOON} ", b"1577880000", decimal.Decimal(NOON),
    np.int32(NOON), "2020-01-01T12:00:00", "2020-01-01 12:00:00.999Z", "2020-01-01T13:00:00+01:00",
    datetime.datetime(2020, 1, 1, 12), pd.Timestamp("2020-01-01 12:00"), np.datetime64("2020-01-01T12"),
    pd.Timestamp("2020-01-01 07:00", tz="America/New_York"), np.datetime64("2020-01-01T12:00:00.9", "ns"),
    datetime.datetime(2020, 1, 1, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1))), complex(NOON),
]  # fmt: skip
NONE = [
    None, math.nan, math.inf, "", "yesterday", "1_0", b"\xff", "\ud800", True, [], {}, pd.NaT, pd.NA, 1e300,
    10**400,
    np.datetime64("NaT"), np.timedelta64(5, "s"), datetime.timedelta(5), datetime.time(5), 3j,
    decimal.Decimal("NaN"),
    2**63, np.datetime64(2**62, "D"), np.datetime64(10**15, "Y"),
]  # fmt: skip


@pytest.mark.parametrize("cell", SAME, ids=repr)
def test_one_moment_however_it_is_written(cell):
    assert parse_time(cell) == NOON
    assert encode_times([cell, None]).tolist() == [NOON, NO_TIME]


@pytest.mark.parametrize("cell", NONE, ids=repr)
def test_what_is_no_time(cell):
    assert parse_time(cell) == NO_TIME
    assert encode_times([cell, NOON]).tolist() == [NO_TIME, NOON]


def test_rounded_down():
    assert [parse_time(cell) for cell in (-0.5, "-0.5", datetime.datetime(1969, 12, 31, 23, 59, 59, 1))] == [
        -1
    ] * 3
    assert parse_time(datetime.date(1969, 12, 31)) == -86_400
    assert encode_times(pa.array([-1, 1], pa.timestamp("ns"))).tolist() == [-1, 0]


MOMENTS = [NOON, 0, -1, None, 2**33]
COLUMNS = {
    "integers": pa.array(MOMENTS),
    "unsigned": pa.array([NOON, 0, 2**64 - 1, None, 2**33], pa.uint64()),
    "floats": pa.array(MOMENTS, pa.float64()),
    "decimals": pa.array(MOMENTS).cast(pa.decimal128(24, 2)),
    "text": pa.array(MOMENTS).cast(pa.string()),
    "bytes": pa.array(MOMENTS).cast(pa.string()).cast(pa.large_binary()),
    "dictionary": pa.array(MOMENTS).cast(pa.string()).dictionary_encode(),
    "pandas": pd.to_datetime(pd.Series(MOMENTS), unit="s"),
    "pandas with a zone": pd.to_datetime(pd.Series(MOMENTS), unit="s").dt.tz_localize("Asia/Tokyo"),
    "pandas objects": pd.Series(MOMENTS, dtype=object),
    "pandas nullable": pd.Series(MOMENTS, dtype="Int64"),
    "numpy": np.array([NOON, 0, -1, "NaT", 2**33], "M8[s]"),
    "polars": pl.Series(MOMENTS),
    "polars moments": pl.from_epoch(pl.Series(MOMENTS), time_unit="s"),
} | {unit: pa.array(MOMENTS, pa.timestamp("s")).cast(pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")}


@pytest.mark.parametrize("form", COLUMNS)
def test_columns(form):
    expected = [NO_TIME if moment is None else moment for moment in MOMENTS]
    if form == "unsigned":
        expected[2] = NO_TIME
    if form == "pandas with a zone":
        expected = [NO_TIME if moment is None else moment - 9 * 3600 for moment in MOMENTS]
    found = encode_times(COLUMNS[form])
    assert found.dtype == np.int64
    assert found.tolist() == expected
    assert encode_times(COLUMNS[form][:0]).tolist() == []


def test_a_missing_time_rounds_nobody_elses():
    """2^60 + 1 is no float64: it is read as the nearest one, with a hole in its column and without."""
    moments = [2**60 + 1, 2**53 + 1]
    for of in (pd.Series, np.array, pa.array, list):
        whole = encode_times(of(moments)).tolist()
        assert encode_times(of([*map(float, moments), math.nan])).tolist() == [*whole, NO_TIME]


def test_dates():
    days = [datetime.date(2020, 1, 1), None, datetime.date(1969, 12, 31)]
    expected = [NOON - 12 * 3600, NO_TIME, -86_400]
    for column in (
        pa.array(days),
        pa.array(days, pa.date64()),
        pl.Series(days),
        np.array(days, "M8[D]"),
        days,
    ):
        assert encode_times(column).tolist() == expected


@pytest.mark.parametrize("kind", [pa.duration("s"), pa.time32("s"), pa.list_(pa.int64())], ids=str)
def test_columns_that_hold_no_moments_are_refused_by_their_type(kind):
    with pytest.raises(InputError, match="column of times"):
        Ratings.from_any((["u"], [1], [3], pa.nulls(1, kind)), DOMAIN)


def timed(ratings):
    """(item, rating, time) of each user."""
    bounds = zip(ratings.matrix.indptr, ratings.matrix.indptr[1:])
    entries = list(zip(ratings.matrix.indices.tolist(), ratings.matrix.data.tolist(), ratings.times.tolist()))
    return dict(
        zip(ratings.user_texts.to_pylist(), [entries[begin:end] for begin, end in bounds], strict=True)
    )


def by_hand(rows):
    """The latest of each pair, the last of a tie, with a dictionary."""
    users = {}
    for user, item, rating, time in rows:
        own = users.setdefault(str(user), {})
        if item not in own or time >= own[item][1]:
            own[item] = (rating, time)
    return {u: [(item, *own[item]) for item in sorted(own)] for u, own in users.items()}


@pytest.mark.parametrize("sorted_already", [False, True])
def test_of_a_pair_the_latest_stays(sorted_already):
    dice = random.Random(0)
    for _ in range(100):
        rows = [
            (dice.randrange(4), dice.randrange(8), dice.randrange(6), dice.choice([NO_TIME, -5, 0, 1, 2]))
            for _ in range(dice.randrange(1, 60))
        ]
        if sorted_already:  # by user and item, pairs several times
            rows.sort(key=lambda row: row[:2])
        columns = [list(column) for column in zip(*rows, strict=True)]
        columns[3] = [None if time == NO_TIME else time for time in columns[3]]
        assert timed(Ratings.from_any(tuple(columns), DOMAIN)) == by_hand(rows)


def test_bad_rows_do_not_replace_good_ones():
    ratings = Ratings.from_any((["u", "u"], [1, 1], [3, 9], [1, 2]), DOMAIN)
    assert timed(ratings) == {"u": [(1, 3.0, 1)]}


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(0)
    return Ratings.from_any(
        (rng.integers(0, 30, 400), rng.integers(0, 8, 400), rng.integers(0, 6, 400), np.arange(400)), DOMAIN
    )


def test_every_choice_keeps_the_times(many):
    whole = {(user, *entry) for user, entries in timed(many).items() for entry in entries}
    first, second = split_ratings(many, (0.5, 0.5), seed=0)
    chosen = [first, second, many.rows([3, 1]), many.for_users([5, 7, "nobody"]), first.aligned_to(second)]
    chosen += [sample_per_user(many, 2, seed=0), many.where(many.matrix.data > 2, drop_empty=False).rated()]
    for part in chosen:
        found = {(user, *entry) for user, entries in timed(part).items() for entry in entries}
        assert found <= whole
        assert len(found) == part.n_ratings > 0
    assert timed(first.union(second)) == timed(second.union(first)).__class__(
        {user: timed(many)[user] for user in first.union(second).user_texts.to_pylist()}
    )


def test_union_with_ratings_without_times():
    timeless = Ratings.from_any((["u", "v"], [1, 2], [1, 2]), DOMAIN)
    timely = Ratings.from_any((["u", "u"], [1, 3], [4, 5], [7, None]), DOMAIN)
    for both in (timeless.union(timely), timely.union(timeless)):
        assert timed(both) == {"u": [(1, 4.0, 7), (3, 5.0, NO_TIME)], "v": [(2, 2.0, NO_TIME)]}
    assert timeless.union(timeless).times is None


def test_the_cap_keeps_the_times():
    domain = Domain(range(8), rating_range=(0, 5), max_ratings_per_user=3)
    ratings = Ratings.from_any((["u"] * 8, range(8), [1] * 8, np.arange(8) * 10), domain)
    assert ratings.n_ratings == 3
    assert (ratings.times == ratings.matrix.indices * 10).all()


def test_a_table_and_back(many):
    table = many.to_arrow()
    assert table.column_names == ["user", "item", "rating", "time"]
    assert timed(Ratings.from_any(table, DOMAIN, columns={"time": True})) == timed(many)
    assert Ratings.from_any(table, DOMAIN).times is None
    hole = Ratings.from_any((["u"], [1], [3], [None]), DOMAIN)
    assert hole.to_arrow()["time"].to_pylist() == [None]


class TestFiles:
    expected = {"u": [(1, 4.0, NOON)], "v": [(2, 3.0, NO_TIME)]}

    def write(self, tmp_path):
        """One table in each format."""
        rows = [("u", 1, 4, NOON), ("u", 1, 5, 0), ("v", 2, 3, "?")]
        for name, mark in (("r.csv", ","), ("r.tsv", "\t"), ("u.data", "\t"), ("r.dat", "::")):
            lines = [mark.join(map(str, row)) for row in rows]
            header = [mark.join(["user", "item", "rating", "timestamp"])] if name.startswith("r.") else []
            header = [] if name == "r.dat" else header
            (tmp_path / name).write_text("\n".join([*header, *lines, ""]))
            yield tmp_path / name
        table = pa.table({"user": ["u", "u", "v"], "item": [1, 1, 2], "rating": [4.0, 5.0, 3.0]})
        for number, times in enumerate(
            (pa.array([NOON, 0, None]), pa.array([NOON, 0, None], pa.timestamp("s")).cast(pa.timestamp("us")))
        ):
            path = tmp_path / f"r{number}.parquet"
            pq.write_table(table.append_column("Timestamp", times), path, row_group_size=1 + number)
            yield path

    def test_every_format(self, tmp_path):
        for path in self.write(tmp_path):
            assert timed(Ratings.read(path, DOMAIN, columns={"time": True})) == self.expected
            assert Ratings.read(path, DOMAIN).times is None  # and then the last one stays
            assert Ratings.read(path, DOMAIN).matrix.data.tolist() == [5, 3]

    def test_by_name_and_missing(self, tmp_path):
        path = tmp_path / "r.csv"
        path.write_text("user,item,rating,when\nu,1,4,2020-01-01T12:00:00Z\n")
        assert timed(Ratings.read(path, DOMAIN, columns={"time": "when"})) == {"u": [(1, 4.0, NOON)]}
        assert Ratings.read(path, DOMAIN, columns={"time": None}).times is None
        for columns in ({"time": True}, {"time": "then"}):
            with pytest.raises(InputError, match="no column .*; pass columns={'time'"):
                Ratings.read(path, DOMAIN, columns=columns)

    def test_likes(self, tmp_path):
        path = tmp_path / "r.csv"
        path.write_text("user,item,date\nu,1,1970-01-02\n")
        ratings = Ratings.read(path, DOMAIN, columns={"time": True}, implicit=True)
        assert timed(ratings) == {"u": [(1, 1.0, 86_400)]}


honest_times = st.lists(
    st.sampled_from(
        [0, -7, NOON, 1.5, 2**60 + 1, 1_700_000_000_123_456_789, "5", pd.Timestamp("2020-01-01")]
    ),
    min_size=1,
    max_size=5,
).filter(lambda cells: len({type(cell) for cell in cells}) == 1)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(honest_times, st.sampled_from([*USERS, *RATINGS, *CELLS, *NONE, *SAME]))
def test_no_cell_moves_anothers_time(form, honest, hostile):
    """A missing time makes floats of a column of integers, a word objects of moments."""
    rows = [(cell,) for cell in honest]
    base, more = columns_of(form, rows), columns_of(form, [*rows, (hostile,)])
    if base is None or more is None or (form in ("arrow", "polars") and types(base) != types(more)):
        return
    if form == "pandas category" and hostile is True:
        return
    if form in ("numpy", "pandas") and more[0].dtype.kind == "m":  # of integers NumPy made durations
        with pytest.raises(InputError, match="durations"):
            encode_times(more[0])
        return
    alone, among = watched(encode_times, base[0]), watched(encode_times, more[0])
    assert among[:-1].tolist() == alone.tolist()


@pytest.mark.parametrize("column", range(4))
def test_integers_that_numpy_made_durations_are_refused(column):
    """One duration among integers makes durations of them all; read as none, it would undo everybody's."""
    columns = [np.array([1, 2]), np.array([1, 2]), np.array([3, 4]), np.array([5, 6])]
    columns[column] = np.array([1, np.timedelta64(2, "s")])
    assert columns[column].dtype.kind == "m"
    with pytest.raises(InputError, match="durations"):
        Ratings.from_any(tuple(columns), Domain([1, 2], rating_range=(1, 5)))


def test_numbers_before_1970_are_rounded_down_whatever_the_column() -> None:
    """Oracle: the floor of each number alone."""
    cells = [-0.5, -1.0, -1.5, 2.5, -(2.0**40) - 0.25, 0.0]
    wanted = [math.floor(cell) for cell in cells]
    columns = [cells, np.array(cells), pa.array(cells), pa.chunked_array([cells[:2], cells[2:]])]
    columns += [pa.array(list(map(str, cells))), pa.array(cells, pa.float32()), np.array(cells, object)]
    for column in columns[:5] + columns[6:]:
        assert encode_times(column).tolist() == wanted
    assert encode_times(columns[5]).tolist()[:4] == wanted[:4]
    assert [parse_time(cell) for cell in cells] == wanted
    whole = pa.array([-3, None, 2**53 + 2, -(2**62), 2**62 + 1024], pa.int64())
    assert encode_times(whole).tolist() == [-3, NO_TIME, 2**53 + 2, -(2**62), NO_TIME]
    for cell in (2**53 - 1, 2**53 + 1, 2**62, 2**62 + 1024, 2**63 - 1):  # the nearest float64, if within 2^62
        nearest = int(float(cell)) if float(cell) <= 2.0**62 else NO_TIME
        assert encode_times(pa.array([cell])).tolist() == [nearest] == [parse_time(cell)]
    assert encode_times(pa.array([7, 2**64 - 1], pa.uint64())).tolist() == [7, NO_TIME]


def test_the_furthest_times_that_are_counted() -> None:
    """Up to 2^62 seconds either way."""
    last = 2**62 // 60
    minutes = np.array([-last - 1, -last, last, last + 1]).astype("M8[m]")
    assert encode_times(minutes).tolist() == [NO_TIME, -60 * last, 60 * last, NO_TIME]
    assert [parse_time(2.0**62), parse_time(2.0**62 + 1024)] == [2**62, NO_TIME]
