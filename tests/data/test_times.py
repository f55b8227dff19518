"""Times of ratings: one cell at a time, the latest of a pair stays, and every choice of rows keeps them."""

import datetime
import decimal
import math
import random
from time import tzset

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from hushrec.data import Domain, Ratings, sample_per_user, split_ratings
from hushrec.data.times import NO_TIME, encode_times, parse_time, unit_of
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
    "01.01.2020 12:00", "1.1.2020 12:00:00.9", " 1.1.2020, 12:00", b"01.01.2020T13:00+01:00",
]  # fmt: skip
NONE = [
    None, math.nan, math.inf, "", "yesterday", "1_0", b"\xff", "\ud800", True, [], {}, pd.NaT, pd.NA, 1e300,
    10**400, "32.01.2020", "12.31.2020", "1.1.20", "1.1.2020 noon", "1.1.2020 25:00", "1. 1. 2020 12:00",
    np.datetime64("NaT"), np.timedelta64(5, "s"), datetime.timedelta(5), datetime.time(5), 3j,
    decimal.Decimal("NaN"),
    2**63, np.datetime64(2**62, "D"), np.datetime64(10**15, "Y"),
]  # fmt: skip


@pytest.mark.parametrize(("cells", "time"), [(SAME, NOON), (NONE, NO_TIME)], ids=["one moment", "no time"])
def test_a_time_however_it_is_written(cells, time):
    for cell in cells:
        assert encode_times([cell, None, 7]).tolist() == [time, NO_TIME, 7], cell


MOMENTS = [NOON, 0, -1, None, 2**33]
COLUMNS = {
    "integers": pa.array(MOMENTS),
    "floats": pa.array(MOMENTS, pa.float64()),
    "decimals": pa.array(MOMENTS).cast(pa.decimal128(24, 2)),
    "bytes": pa.array(MOMENTS).cast(pa.string()).cast(pa.large_binary()),
    "dictionary": pa.array(MOMENTS).cast(pa.string()).dictionary_encode(),
    "pandas": pd.to_datetime(pd.Series(MOMENTS), unit="s"),
    "pandas with a zone": pd.to_datetime(pd.Series(MOMENTS), unit="s", utc=True).dt.tz_convert("Asia/Tokyo"),
    "pandas nullable": pd.Series(MOMENTS, dtype="Int64"),
    "numpy": np.array([NOON, 0, -1, "NaT", 2**33], "M8[s]"),
    "polars moments": pl.from_epoch(pl.Series(MOMENTS), time_unit="s"),
    "pandas category": pd.Series(MOMENTS, dtype="Int64").astype("category"),
    "polars category": pl.Series(pa.array(MOMENTS).cast(pa.string())).cast(pl.Categorical),
    "polars enum": pl.Series(pa.array(MOMENTS).cast(pa.string())).cast(
        pl.Enum(["0", "-1", str(NOON), str(2**33)])
    ),
} | {unit: pa.array(MOMENTS, pa.timestamp("s")).cast(pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")}


@pytest.mark.parametrize("form", COLUMNS)
def test_columns(form):
    found = encode_times(COLUMNS[form])
    assert found.dtype == np.int64
    assert found.tolist() == [NO_TIME if moment is None else moment for moment in MOMENTS]
    assert encode_times(COLUMNS[form][:0]).tolist() == []


def test_a_time_without_a_zone_is_utc_wherever_it_is_read(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    tzset()
    try:
        found = [parse_time(text) for text in ("2024-06-30", "2024-06-30T12:00", "2024-06-30T12:00+02:00")]
    finally:
        monkeypatch.undo()
        tzset()
    assert found == [19_904 * 86_400, 19_904 * 86_400 + 43_200, 19_904 * 86_400 + 36_000]


def test_a_missing_time_rounds_nobody_elses():
    """2^60 + 1 is no float64: it is read as the nearest one, with a hole in its column and without."""
    moments = [2**60 + 1, 2**53 + 1]
    for of in (pd.Series, np.array, pa.array, list):
        whole = encode_times(of(moments)).tolist()
        assert encode_times(of([*map(float, moments), math.nan])).tolist() == [*whole, NO_TIME]


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
    both = first.union(second)
    assert timed(both) == {user: timed(many)[user] for user in both.user_texts.to_pylist()}
    assert timed(Ratings.from_any(many.to_arrow(), DOMAIN, columns={"time": True})) == timed(many)
    hole = Ratings.from_any((["u"], [1], [3], [None]), DOMAIN)
    assert hole.to_arrow()["time"].to_pylist() == [None]


def test_union_with_ratings_without_times():
    timeless = Ratings.from_any((["u", "v"], [1, 2], [1, 2]), DOMAIN)
    timely = Ratings.from_any((["u", "u"], [1, 3], [4, 5], [7, None]), DOMAIN)
    for both in (timeless.union(timely), timely.union(timeless)):
        assert timed(both) == {"u": [(1, 4.0, 7), (3, 5.0, NO_TIME)], "v": [(2, 2.0, NO_TIME)]}
    assert timeless.union(timeless).times is None


def test_files_of_every_format(tmp_path):
    rows = [("u", 1, 4, NOON), ("u", 1, 5, 0), ("v", 2, 3, "?")]
    for name, mark in (("r.csv", ","), ("r.tsv", "\t"), ("u.data", "\t"), ("r.dat", "::")):
        header = [("user", "item", "rating", "timestamp")] if name in ("r.csv", "r.tsv") else []
        (tmp_path / name).write_text("".join(mark.join(map(str, row)) + "\n" for row in header + rows))
    table = pa.table({"user": ["u", "u", "v"], "item": [1, 1, 2], "rating": [4.0, 5.0, 3.0]})
    for unit in (pa.int64(), pa.timestamp("s")):
        times = pa.array([NOON, 0, None]).cast(unit)
        pq.write_table(
            table.append_column("Timestamp", times), tmp_path / f"{unit}.parquet", row_group_size=2
        )
    assert len(list(tmp_path.iterdir())) == 6
    for path in tmp_path.iterdir():
        found = Ratings.from_any(path, DOMAIN, columns={"time": True})
        assert timed(found) == {"u": [(1, 4.0, NOON)], "v": [(2, 3.0, NO_TIME)]}
        assert Ratings.from_any(path, DOMAIN).times is None  # and then the last one stays
        assert Ratings.from_any(path, DOMAIN).matrix.data.tolist() == [5, 3]


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


def test_numbers_are_rounded_down_from_the_nearest_float_whatever_the_column() -> None:
    """Oracle: the floor of each number alone."""
    cells = [-0.5, -1.0, -1.5, 2.5, -(2.0**40) - 0.25, 0.0]
    wanted = [math.floor(cell) for cell in cells]
    for column in (cells, np.array(cells), pa.chunked_array([cells[:2], cells[2:]]), [*map(str, cells)]):
        assert encode_times(column).tolist() == wanted
    assert encode_times(pa.array([-1, 1], pa.timestamp("ns"))).tolist() == [-1, 0]
    whole = pa.array([-3, None, 2**53 + 2, -(2**62), 2**62 + 1024], pa.int64())
    assert encode_times(whole).tolist() == [-3, NO_TIME, 2**53 + 2, -(2**62), NO_TIME]
    for cell in (2**53 - 1, 2**53 + 1, 2**62, 2**62 + 1024, 2**63 - 1):  # the nearest float64, if within 2^62
        nearest = int(float(cell)) if float(cell) <= 2.0**62 else NO_TIME
        assert encode_times(pa.array([cell])).tolist() == [nearest] == [parse_time(cell)]


def test_moments_before_1970_are_rounded_down_and_have_the_unit_of_their_size() -> None:
    cell = "1969-12-31T23:59:58.5"
    assert parse_time(cell) == encode_times(pd.Series([pd.Timestamp(cell)]))[0] == -2
    assert unit_of(np.array([-(10**12), NO_TIME])) == unit_of(np.array([10**12])) == "milliseconds"
