"""One user more or less, however hostile her rows, leaves every other user byte for byte as she was.

A failure here is a leak, not a nuisance: each rule for bad rows must look at one user only, whatever type,
order or damage her cells have.
"""

import itertools
import random

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile_cells import ITEMS, LINES, RATINGS, USERS

from hushrec.data import (
    Domain,
    Ratings,
    leave_k_out,
    sample_per_user,
    split_ratings,
    strong_generalization,
)

N_ITEMS = 12
DOMAIN = Domain(range(1, N_ITEMS + 1), rating_range=(1, 5), max_ratings_per_user=9)
PRIORITY = np.random.default_rng(3).integers(0, 4, N_ITEMS)
HONEST = [
    (user, item, float(rating))
    for user, item, rating in zip(
        *np.random.default_rng(0).integers([[1], [1], [1]], [[8], [N_ITEMS + 1], [6]], (3, 90)).tolist(),
        strict=True,
    )
]


def state(ratings, without=()):
    """All that is known of each user, as bytes, by her key; and the order of the users."""
    samples = [
        ratings,
        sample_per_user(ratings, 4, seed=1),
        sample_per_user(ratings, 4, seed=1, priority=PRIORITY),
        *leave_k_out(ratings, 2, seed=1),
        *split_ratings(ratings, (0.5, 0.3, 0.2), seed=1),
        *strong_generalization(ratings, 0.4, seed=1),
    ]
    rows = {}
    for number, part in enumerate(samples):
        matrix = part.matrix
        for row, key in enumerate(part.user_keys.tolist()):
            one = slice(matrix.indptr[row], matrix.indptr[row + 1])
            shown = (matrix.indices[one].tobytes(), matrix.data[one].tobytes(), part.users[row])
            rows.setdefault(key, {})[number] = shown
    order = [key for key in ratings.user_keys.tolist() if key not in without]
    return {key: rows[key] for key in order}, order


def interleaved(rows, added, seed):
    """The rows with others put in at random places, both kept in order."""
    dice = random.Random(seed)
    places = sorted(dice.randrange(len(rows) + 1) for _ in added)
    merged = list(rows)
    for place, row in zip(reversed(places), reversed(added), strict=True):
        merged.insert(place, row)
    return merged


def columns_of(rows):
    return [list(column) for column in zip(*rows, strict=True)]


def build(rows):
    return Ratings.from_any((*columns_of(rows),), DOMAIN)


BASE, ORDER = state(build(HONEST))


def check(ratings):
    """Others than the honest users may be there; these are as they were, in the same order."""
    rows, order = state(ratings)
    assert [key for key in order if key in BASE] == ORDER
    assert {key: rows[key] for key in ORDER} == BASE


def test_the_base_is_worth_checking():
    assert len(BASE) == 7
    assert any(
        len(part[0]) == 9 * 4 for rows in BASE.values() for number, part in rows.items() if number == 0
    )


@pytest.mark.parametrize("position", range(len(USERS)))
def test_hostile_users(position, record_property):
    record_property("fixtures", 3)
    user = USERS[position]
    for seed, added in enumerate(
        [[(user, 1, 4)], [(user, item, 4) for item in ITEMS], [(user, 2, r) for r in RATINGS]]
    ):
        check(build(interleaved(HONEST, added, seed)))


@pytest.mark.parametrize("position", range(len(ITEMS)))
def test_hostile_items(position, record_property):
    record_property("fixtures", 2)
    check(build(interleaved(HONEST, [("mallory", ITEMS[position], 4)] * 3, position)))
    # her own good ratings stay as well
    added = [("mallory", 1, 2), ("mallory", ITEMS[position], 9), ("mallory", 2, 3)]
    found = build(interleaved(HONEST, added, position)).for_users(["mallory"])
    assert found.matrix.toarray()[0, :2].tolist() == [2, 3]


@pytest.mark.parametrize("position", range(len(RATINGS)))
def test_hostile_ratings(position, record_property):
    record_property("fixtures", 1)
    added = [("mallory", 1, 2), ("mallory", 2, RATINGS[position]), ("mallory", 3, 3)]
    ratings = build(interleaved(HONEST, added, position))
    check(ratings)
    row = ratings.for_users(["mallory"]).matrix.toarray()[0]
    assert row[[0, 2]].tolist() == [2, 3]
    assert row[1] in (0, 1, 4)


def test_a_user_with_a_million_rows(record_property):
    record_property("fixtures", 1)
    n_rows = 1_000_000
    users = np.array([7_000_000] * n_rows + [user for user, _, _ in HONEST])
    items = np.concatenate([np.arange(n_rows) % 20, [item for _, item, _ in HONEST]])
    values = np.concatenate([np.full(n_rows, 3.0), [rating for _, _, rating in HONEST]])
    ratings = Ratings.from_any((users, items, values), DOMAIN)
    assert np.diff(ratings.matrix.indptr).max() == 9
    check(ratings)


FORMS = ["lists", "object arrays", "pandas", "pandas category", "polars objects"]


@pytest.mark.parametrize("form", FORMS)
def test_fuzz_of_cells(form, record_property):
    fuzz_cells(form, 200, form)
    record_property("fuzzed", 200)


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
def test_fuzz_of_cells_at_length(form, record_property):
    fuzz_cells(form, 1600, f"{form}, at length")
    record_property("fuzzed", 1600)


def fuzz_cells(form, cases, seed):
    dice = random.Random(seed)
    for case in range(cases):
        user = dice.choice(USERS)
        if form == "pandas category" and user is True:
            continue  # pandas itself takes True and 1 for one category
        n_rows = dice.randrange(1, 20)
        added = [(user, dice.choice([*ITEMS, 2, 3]), dice.choice([*RATINGS, 5])) for _ in range(n_rows)]
        columns = columns_of(interleaved(HONEST, added, case))
        if form == "lists":
            ratings = Ratings.from_any((*columns,), DOMAIN)
        else:
            arrays = [np.empty(len(column), dtype=object) for column in columns]
            for array, column in zip(arrays, columns, strict=True):
                for place, cell in enumerate(column):
                    array[place] = cell
            if form == "object arrays":
                ratings = Ratings.from_any((*arrays,), DOMAIN)
            elif form == "polars objects":
                series = [
                    pl.Series(name, list(a), dtype=pl.Object) for name, a in zip("uir", arrays, strict=True)
                ]
                ratings = Ratings.from_any(pl.DataFrame(series), DOMAIN, columns=("u", "i", "r"))
            else:
                series = [pd.Series(array, dtype=object) for array in arrays]
                if form == "pandas category":
                    try:
                        series[0] = series[0].astype("category")
                    except Exception:  # pandas itself refuses what cannot be hashed or compared
                        continue
                frame = pd.concat(series, axis=1, keys=("user", "item", "rating"))
                ratings = Ratings.from_any(frame, DOMAIN)
        check(ratings)


class TestTextFiles:
    honest = tuple(f"{user},{item},{rating}".encode() for user, item, rating in HONEST)

    def read(self, path, lines, ending=b"\n", header=b"user,item,rating"):
        path.write_bytes(ending.join([header, *lines]) + ending)
        return Ratings.read(path, DOMAIN)

    def expected(self, path):
        return state(self.read(path, self.honest))

    @pytest.mark.parametrize("position", range(len(LINES)))
    def test_hostile_lines(self, tmp_path, position, record_property):
        record_property("fixtures", 4)
        expected, order = self.expected(tmp_path / "base.csv")
        for copies, ending in itertools.product((1, 5), (b"\n", b"\r\n")):
            lines = interleaved(list(self.honest), [LINES[position]] * copies, position)
            rows, found = state(self.read(tmp_path / "more.csv", lines, ending))
            assert [key for key in found if key in expected] == order
            assert {key: rows[key] for key in order} == expected

    def test_fuzz_of_lines(self, tmp_path, monkeypatch, record_property):
        self.fuzz_lines(tmp_path, monkeypatch, 200, 5)
        record_property("fuzzed", 200)

    @pytest.mark.full
    def test_fuzz_of_lines_at_length(self, tmp_path, monkeypatch, record_property):
        self.fuzz_lines(tmp_path, monkeypatch, 1600, 6)
        record_property("fuzzed", 1600)

    def fuzz_lines(self, tmp_path, monkeypatch, cases, seed):
        expected, order = self.expected(tmp_path / "base.csv")
        dice = random.Random(seed)
        pieces = [
            *'"",,,;\t:\\\'#',
            '""',
            "mallory",
            "1",
            "5",
            "1e999",
            "\x00",
            "\ufeff",
            "é",
            "\x1f",
            "\u2028",
            " ",
            "n/a",
        ]
        for case in range(cases):
            monkeypatch.setattr("hushrec.data.textfiles._BLOCK_BYTES", dice.choice([64, 500, 1 << 24]))
            added = [
                "m" + "".join(dice.choices(pieces, k=dice.randrange(12))) for _ in range(dice.randrange(1, 9))
            ]
            lines = interleaved(list(self.honest), [line.encode() for line in added], case)
            rows, found = state(self.read(tmp_path / "more.csv", lines))
            assert [key for key in found if key in expected] == order
            assert {key: rows[key] for key in order} == expected

    def test_quoting_style_is_no_matter(self, tmp_path):
        expected = self.expected(tmp_path / "base.csv")
        quoted = [b",".join(b'"%s"' % cell for cell in line.split(b",")) for line in self.honest]
        assert state(self.read(tmp_path / "quoted.csv", quoted)) == expected
        assert (
            state(self.read(tmp_path / "slow.csv", [*quoted, b'"x"y,1,1']))[0].items() >= expected[0].items()
        )


@pytest.mark.parametrize("kind", ["text", "floats", "integers", "binary", "dictionary"])
def test_parquet_columns(tmp_path, kind):
    """The honest rows read the same whether or not a hostile user forced another type on the column."""
    path = tmp_path / "r.parquet"
    users, items, values = columns_of(HONEST)
    added = {
        "text": ["mallory", None, "A7", "x" * 10_000],
        "floats": [None, 0.5, float("nan"), float("inf")],
        "integers": [None, -1, 2**40, 2**62],
        "binary": [b"\xff", b"", None, b"\x00"],
        "dictionary": ["mallory", None, "A7", ""],
    }[kind]
    plain = {"text": pa.string(), "floats": pa.float64(), "integers": pa.int64(), "binary": pa.binary()}
    cast = {"text": str, "floats": float, "integers": int, "binary": lambda v: str(v).encode()}
    change, arrow = cast.get(kind, str), plain.get(kind, pa.string())
    for cell in added:
        table = pa.table(
            {
                "user": pa.array([cell, *map(change, users), cell], arrow),
                "item": pa.array([change(3), *map(change, items), cell], arrow),
                "rating": pa.array([4.0, *values, None]),
            }
        )
        if kind == "dictionary":
            table = table.set_column(0, "user", table["user"].dictionary_encode())
        pq.write_table(table, path)
        ratings = Ratings.read(path, DOMAIN)
        rows, order = state(ratings)
        assert [key for key in order if key in BASE] == ORDER
        for key in ORDER:
            assert {n: part[:2] for n, part in rows[key].items()} == {
                n: part[:2] for n, part in BASE[key].items()
            }


def test_removing_any_user():
    for gone in sorted({user for user, _, _ in HONEST}):
        left = build([row for row in HONEST if row[0] != gone])
        rows, order = state(left)
        assert order == [key for key in ORDER if key in rows]
        assert len(order) == len(ORDER) - 1
        assert all(rows[key] == BASE[key] for key in order)
