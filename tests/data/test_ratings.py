import dataclasses
import decimal
import math
import tracemalloc
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from data_oracle import as_dictionary, build, item_order, text_key
from hypothesis import given, settings, strategies as st

from hushrec.data import (
    Domain,
    Ratings,
    building,
    leave_k_out,
    sample_per_user,
    split_ratings,
    strong_generalization,
)
from hushrec.data.ids import canonical_text
from hushrec.errors import InputError

CATALOGUE = Domain([str(number) for number in range(1, 9)], rating_range=(1, 5))
TRIPLES = (["u", "v", "u", "w"], [3, 1, 2, 8], [4.0, 5.0, 1.0, 2.5])
EXPECTED = {"u": {1: 1.0, 2: 4.0}, "v": {0: 5.0}, "w": {7: 2.5}}


def frame(library):
    return library({"userId": TRIPLES[0], "movieId": TRIPLES[1], "rating": TRIPLES[2]})


def sources():
    users, items, ratings = TRIPLES
    table = pa.table({"user": users, "item": items, "rating": ratings})
    yield "triples", TRIPLES
    yield "arrays", (np.array(users), np.array(items, np.uint16), np.array(ratings, np.float16))
    yield "big-endian", (np.array(users), np.array(items, ">i4"), np.array(ratings, ">f8"))
    yield "objects", (np.array(users, object), np.array(items, object), np.array(ratings, object))
    yield "iterators", (iter(users), iter(items), iter(ratings))
    yield "text", (users, [str(item) for item in items], [str(rating) for rating in ratings])
    yield "mapping", {"USER_ID": users, "Item": items, "score": ratings}
    yield "pandas", frame(pd.DataFrame)
    yield "pandas objects", frame(pd.DataFrame).astype(object)
    yield "pandas categories", frame(pd.DataFrame).astype({"userId": "category", "movieId": "category"})
    yield "pandas arrow", frame(pd.DataFrame).convert_dtypes(dtype_backend="pyarrow")
    yield "pandas nullable", frame(pd.DataFrame).convert_dtypes()
    yield "pandas shuffled index", frame(pd.DataFrame).set_index(pd.Index([9, 3, 3, 0]))
    yield "polars", frame(pl.DataFrame)
    yield "polars lazy", frame(pl.DataFrame).lazy()
    yield "polars categories", frame(pl.DataFrame).with_columns(pl.col("userId").cast(pl.Categorical))
    yield (
        "polars objects",
        pl.DataFrame(
            {
                "user": pl.Series(users, dtype=pl.Object),
                "item": pl.Series(items, dtype=pl.Object),
                "rating": ratings,
            }
        ),
    )
    yield "arrow", table
    yield "arrow chunks", pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1)])
    yield "arrow batch", table.to_batches()[0]
    yield "arrow reader", table.to_reader()
    for kind in (pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view(), pa.large_binary()):
        yield f"arrow {kind}", table.set_column(0, "user", table["user"].cast(kind))
    for kind in (pa.int8(), pa.uint64(), pa.float32(), pa.decimal128(21, 2), pa.string(), pa.float16()):
        yield f"arrow items {kind}", table.set_column(1, "item", table["item"].cast(kind))
        plain = table["rating"] if not pa.types.is_integer(kind) else pa.array([4, 5, 1, 2])
        if not pa.types.is_integer(kind):
            yield f"arrow ratings {kind}", table.set_column(2, "rating", plain.cast(kind))
    for kind in (pa.int8(), pa.uint32(), pa.int64()):
        coded = pa.chunked_array(
            [c.dictionary_encode().cast(pa.dictionary(kind, pa.string())) for c in table["user"].chunks]
        )
        yield f"arrow dictionary {kind}", table.set_column(0, "user", coded)
    yield "arrow dictionary of ratings", table.set_column(2, "rating", table["rating"].dictionary_encode())


@pytest.mark.parametrize("source", [pytest.param(s, id=name) for name, s in sources()])
def test_every_source_gives_the_same_ratings(source):
    ratings = Ratings.from_any(source, CATALOGUE)
    assert as_dictionary(ratings) == EXPECTED
    assert ratings.matrix.dtype == np.float32
    assert ratings.matrix.indices.dtype == np.int32
    assert (ratings.n_users, ratings.n_items, ratings.n_ratings) == (3, 8, 4)


def test_the_named_constructors():
    for ratings in (
        Ratings.from_any((*TRIPLES,), CATALOGUE),
        Ratings.from_any(frame(pd.DataFrame), CATALOGUE),
        Ratings.from_any(frame(pl.DataFrame), CATALOGUE),
        Ratings.from_any(frame(pl.LazyFrame), CATALOGUE),
        Ratings.from_any(frame(pa.table), CATALOGUE),
        Ratings.from_any(frame(pl.DataFrame), CATALOGUE),
    ):
        assert as_dictionary(ratings) == EXPECTED


@pytest.mark.parametrize(
    ("given_ids", "expected"),
    [
        (["a", "b"], ["a", "b"]),
        ([7, 8], [7, 8]),
        (np.array([7, 8], np.uint8), [7, 8]),
        (np.array([7.0, 8.0, math.nan])[:2], [7, 8]),
        (["7", "8"], ["7", "8"]),
        ([uuid.UUID(int=1), b"x"], [uuid.UUID(int=1), b"x"]),
        ([7, "a"], [7, "a"]),
        (pa.array([uuid.UUID(int=k).bytes for k in (1, 2)], pa.uuid()), [uuid.UUID(int=1), uuid.UUID(int=2)]),
        (pd.Series([7, 8]), [7, 8]),
        (pd.Series([7, 8], dtype="Int64"), [7, 8]),
        (pd.Series(["a", "b"], dtype="category"), ["a", "b"]),
        (pd.Series([7, 8], dtype="category"), [7, 8]),
        ([decimal.Decimal("1.5"), True], [decimal.Decimal("1.5"), True]),
    ],
)  # fmt: skip
def test_users_come_back_as_they_went_in(given_ids, expected):
    ratings = Ratings.from_any((given_ids, [1, 2], [3, 3]), CATALOGUE)
    assert list(ratings.users) == expected
    assert [type(user) for user in ratings.users.tolist()] == [type(user) for user in expected]
    assert ratings.user_index(expected).tolist() == [0, 1]
    assert len(ratings.to_arrow()) == 2


def test_arrow_uuid_and_text_uuid_are_one_user():
    user = uuid.UUID(int=77)
    typed = Ratings.from_any((pa.array([user.bytes], pa.uuid()), [1], [3]), CATALOGUE)
    text = Ratings.from_any(([str(user)], [1], [3]), CATALOGUE)
    assert typed.user_keys == text.user_keys


def test_to_arrow_gives_the_ratings_back():
    domain = Domain([10, 20, 30], rating_range=(0, 1))
    table = pa.table(
        {"user": pa.array([5, 5, 4], pa.int16()), "item": [30, 10, 20], "rating": [0.5, 0.25, 1.0]}
    )
    out = Ratings.from_any(table, domain).to_arrow()
    assert out.schema.field("user").type == pa.int16()
    assert out.to_pydict() == {"user": [5, 5, 4], "item": [10, 30, 20], "rating": [0.25, 0.5, 1.0]}
    assert as_dictionary(Ratings.from_any(out, domain)) == as_dictionary(Ratings.from_any(table, domain))
    mixed = Ratings.from_any(([1, "a"], [10, 20], [0, 0]), Domain([10, "20"], rating_range=(0, 1)))
    assert mixed.to_arrow().to_pydict() == {"user": ["1", "a"], "item": ["10", "20"], "rating": [0.0, 0.0]}


class TestRulesForBadRows:
    def build(self, *rows, domain=CATALOGUE):
        users, items, ratings = zip(*rows, strict=True) if rows else ((), (), ())
        return as_dictionary(Ratings.from_any((list(users), list(items), list(ratings)), domain))

    def test_the_last_of_a_pair_stays(self):
        assert self.build(("u", 1, 2), ("v", 1, 3), ("u", "1", 5), ("u", 1.0, 4)) == {
            "u": {0: 4.0},
            "v": {0: 3.0},
        }

    def test_a_bad_rating_does_not_replace_a_good_one(self):
        assert self.build(("u", 1, 2), ("u", 1, math.nan), ("u", 1, 9)) == {"u": {0: 2.0}}

    @pytest.mark.parametrize(
        "bad", [math.nan, math.inf, -math.inf, 0.99, 5.01, 1e308, None, "n/a", "", [], "0_4", 3j]
    )
    def test_bad_ratings_are_dropped(self, bad):
        assert self.build(("u", 1, 2), ("u", 2, bad), ("v", 1, bad)) == {"u": {0: 2.0}}

    @pytest.mark.parametrize("bad", ["A7", None, math.nan, "", 99, [], {}])
    def test_unknown_items_are_dropped(self, bad):
        assert self.build(("u", 1, 2), ("u", bad, 3), ("v", bad, 3)) == {"u": {0: 2.0}}

    @pytest.mark.parametrize("bad", [None, math.nan, "", "  ", pd.NA, pd.NaT, [], {}, math.inf])
    def test_rows_without_a_user_are_dropped(self, bad):
        assert self.build((bad, 1, 2), ("u", 1, 3)) == {"u": {0: 3.0}}

    def test_the_ends_of_the_range_belong_to_it(self):
        assert self.build(("u", 1, 1), ("u", 2, 5), ("u", 3, "5.0")) == {"u": {0: 1.0, 1: 5.0, 2: 5.0}}

    @pytest.mark.parametrize("kind", [np.float32, np.float64])
    def test_ends_that_float32_cannot_hold(self, kind):
        domain = Domain(["a", "b"], rating_range=(-0.1, 0.1))
        values = np.array([-0.1, 0.1], kind)
        stored = Ratings.from_any((["u", "u"], ["a", "b"], values), domain).matrix.data
        assert len(stored) == 2
        assert stored.astype(np.float64).min() >= -0.1
        assert stored.astype(np.float64).max() <= 0.1
        np.testing.assert_allclose(stored, [-0.1, 0.1], rtol=1e-6)

    def test_zero_is_a_rating_where_the_range_holds_it(self):
        domain = Domain(["a"], rating_range=(0, 1))
        assert self.build(("u", "a", 0), domain=domain) == {"u": {0: 0.0}}

    def test_no_rows_are_no_users(self):
        for empty in (
            ([], [], []),
            pa.table({"user": pa.nulls(0), "item": pa.nulls(0), "rating": pa.nulls(0)}),
        ):
            ratings = Ratings.from_any(empty, CATALOGUE)
            assert (ratings.n_users, ratings.n_ratings) == (0, 0)
            assert ratings.matrix.shape == (0, 8)
            assert len(ratings.users) == len(ratings.user_keys) == len(ratings.to_arrow()) == 0
            assert ratings.transposed.shape == (8, 0)

    def test_beyond_the_cap_a_keyed_sample_stays(self):
        n_items = 200
        domain = Domain(range(n_items), rating_range=(0, 1), max_ratings_per_user=7)
        items = np.random.default_rng(0).permutation(n_items)
        ratings = Ratings.from_any(
            (
                ["u"] * n_items + ["v"] * 7 + ["w"] * 8,
                [*items, *items[:7], *items[:8]],
                np.ones(n_items + 15),
            ),
            domain,
        )
        kept = as_dictionary(ratings)
        assert set(kept["u"]) == set(item_order("u", range(n_items), 0, "cap")[:7])
        assert set(kept["v"]) == set(items[:7].tolist())
        assert set(kept["w"]) == set(item_order("w", items[:8].tolist(), 0, "cap")[:7])

    def test_the_cap_counts_distinct_usable_items(self):
        domain = Domain(range(10), rating_range=(0, 1), max_ratings_per_user=3)
        rows = [("u", 1, 1), ("u", 1, 1), ("u", 2, 7), ("u", 99, 1), ("u", 2, 1), ("u", 3, 1)]
        assert set(self.build(*rows, domain=domain)["u"]) == {1, 2, 3}


ids = st.sampled_from(["a", "b", "c", "7", "8"])
spelled = {"7": [7, "7", 7.0, "7.0", b"7", np.int16(7)], "8": [8, "8", 8.0, b"8"]}


@st.composite
def tables(draw):
    plain, cells = [], []
    for _ in range(draw(st.integers(0, 30))):
        user, item = draw(st.none() | ids), draw(st.none() | ids | st.just("zz"))
        rating = draw(st.sampled_from([1.0, 2.5, 5.0, 0.0, 6.0, math.nan, math.inf]))
        plain.append((user, item, rating))
        cells.append(
            [draw(st.sampled_from(spelled.get(cell, [cell]))) for cell in (user, item)]
            + [draw(st.sampled_from([rating, str(rating), np.float32(rating), decimal.Decimal(str(rating))]))]
        )
    return plain, cells


@settings(max_examples=150, deadline=None)
@given(tables())
def test_against_a_dictionary(table):
    plain, cells = table
    domain = Domain(["c", "a", 7, 8], rating_range=(1, 5))
    expected = build(plain, ["c", "a", "7", "8"], 1.0, 5.0)
    columns = [list(column) for column in zip(*cells, strict=True)] or [[], [], []]
    assert as_dictionary(Ratings.from_any((*columns,), domain)) == expected
    objects = pd.DataFrame(dict(zip(("user", "item", "rating"), columns, strict=True)), dtype=object)
    assert as_dictionary(Ratings.from_any(objects, domain)) == expected


@pytest.mark.parametrize("block", [1 << 20, 1000])
@pytest.mark.parametrize("order", ["any", "users", "users and items"])
def test_many_rows_against_a_dictionary(order, block, monkeypatch):
    slices = building.slices
    monkeypatch.setattr(building, "slices", lambda length: slices(length, block))
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 300, 20_000), rng.integers(0, 55, 20_000)
    values = rng.choice([0.5, 1.0, 2.0, 5.0, 6.0, math.nan], 20_000)
    if order != "any":  # rows of a pair follow one another where both are sorted
        users = np.sort(users)
        items = items if order == "users" else items[np.lexsort((items, users))]
    domain = Domain(range(50), rating_range=(1, 5))
    rows = zip(map(str, users), map(str, items), values, strict=True)
    expected = build(rows, [str(item) for item in range(50)], 1, 5)
    found = as_dictionary(Ratings.from_any((users, items, values), domain))
    assert found == expected
    assert list(found) == list(expected)


class TestSciPy:
    @pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok"])
    @pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix])
    def test_any_format(self, form, kind):
        matrix = kind(np.array([[0, 3, 0], [0, 0, 0], [5, 0, 1.0]])).asformat(form)
        domain = Domain(["a", "b", "c"], rating_range=(1, 5))
        ratings = Ratings.from_any(matrix, domain)
        assert as_dictionary(ratings) == {"0": {1: 3.0}, "2": {0: 5.0, 2: 1.0}}
        assert ratings.users.tolist() == [0, 2]
        named = Ratings.from_any((["x", "y", "z"], matrix), domain)
        assert list(as_dictionary(named)) == ["x", "z"]

    def test_the_matrix_is_not_touched(self):
        matrix = sp.csr_array(np.array([[9, 3, 4]], np.float32))
        before = matrix.data.copy()
        Ratings.from_any(matrix, Domain(["a", "b", "c"], rating_range=(1, 5)))
        np.testing.assert_array_equal(matrix.data, before)

    def test_what_the_caller_does_to_the_matrix_later_is_no_matter(self):
        matrix = sp.csr_array(np.array([[3, 4], [5, 0]], np.float32))
        ratings = Ratings.from_any(matrix, Domain(["a", "b"], rating_range=(1, 5)))
        for array in (matrix.data, matrix.indices, matrix.indptr):
            array[:] = 1
        assert as_dictionary(ratings) == {"0": {0: 3, 1: 4}, "1": {0: 5}}

    def test_nothing_is_stored_outside_the_range(self):
        """The float32 nearest to 0.3 is above 0.3; it is a rating of 0.3, stored as the next one below."""
        matrix = sp.csr_array(np.array([[0.3, -0.3], [0.1, 0.3]], np.float32))
        domain = Domain(["a", "b"], rating_range=(-0.3, 0.3))
        ratings = Ratings.from_any(matrix, domain)
        assert ratings.matrix.nnz == 4
        assert np.abs(ratings.matrix.data.astype(np.float64)).max() <= 0.3
        cells = ([0, 0, 1, 1], ["a", "b", "a", "b"], [0.3, -0.3, 0.1, 0.3])
        assert as_dictionary(ratings) == as_dictionary(Ratings.from_any((*cells,), domain))

    def test_explicit_zeros_and_doubles(self):
        matrix = sp.coo_array((np.array([0.0, 1.0, 0.5]), ([0, 0, 0], [0, 1, 1])), shape=(1, 2))
        assert as_dictionary(Ratings.from_any(matrix, Domain(
            ["a", "b"], rating_range=(0, 1)))) == {"0": {0: 0.0, 1: 0.5}}  # fmt: skip

    @pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil"])
    @pytest.mark.parametrize("damage", ["position below", "position above", "start above", "short"])
    def test_a_malformed_matrix_is_refused(self, form, damage):
        """Killed: positions that compiled code reads and writes at without a look."""
        matrix = sp.csr_array(np.array([[3, 4], [5, 1], [2, 2]], np.float32)).asformat(form)
        if form == "lil":
            part = {"position below": -1, "position above": 7, "start above": 2}.get(damage)
            matrix.rows[1] = [0] if part is None else [0, part]
        elif damage == "short":
            matrix.data = matrix.data[:-1]
        elif form == "coo":
            row, col = (axis.copy() for axis in matrix.coords)
            {"start above": row}.get(damage, col)[2] = {"position below": -1}.get(damage, 7)
            matrix.coords = (row, col)
        elif damage == "start above":
            matrix.indptr[1] = 1 << 30
        else:
            matrix.indices[0] = -1 if damage == "position below" else 1 << 30
        for implicit in (False, True):
            with pytest.raises(InputError, match="fit together"):
                Ratings.from_any(matrix, Domain(["a", "b"], (1, 5)), implicit=implicit)

    @pytest.mark.parametrize("ids", [None, ["u", "v"]])
    def test_what_scipy_notes_of_the_order_is_not_believed(self, ids):
        """Killed: a flag, set before the arrays were changed, that lets a user rate an item twice."""
        matrix = sp.csr_array(np.array([[1, 2, 3], [4, 5, 4]], np.float32))
        matrix.has_canonical_format = True
        matrix.indices[:] = [2, 1, 1, 0, 0, 0]
        ratings = Ratings.from_any((ids, matrix), Domain(["a", "b", "c"], (1, 5)))
        first, second = ids or ["0", "1"]
        assert as_dictionary(ratings) == {first: {1: 3, 2: 1}, second: {0: 4}}

    def test_implicit(self):
        matrix = sp.csr_array(np.array([[0, 30, 2]]))
        ratings = Ratings.from_any(matrix, Domain(["a", "b", "c"], rating_range=(0, 1)), implicit=True)
        assert as_dictionary(ratings) == {"0": {1: 1.0, 2: 1.0}}

    def test_a_shape_that_does_not_fit(self):
        with pytest.raises(InputError, match="it has 4 columns") as refused:
            Ratings.from_any(sp.csr_array((723, 4)), CATALOGUE)
        assert "723" not in str(refused.value)  # the number of users is nobody's business
        with pytest.raises(InputError, match="one user id"):
            Ratings.from_any((["a"], sp.csr_array((2, 8))), CATALOGUE)
        with pytest.raises(InputError, match="sparse"):
            Ratings.from_any(np.ones((2, 8)), CATALOGUE)


class TestImplicit:
    domain = Domain(["a", "b"], rating_range=(0, 1))

    def test_without_a_rating_column(self):
        expected = {"u": {0: 1.0, 1: 1.0}}
        for source in (pa.table({"user": ["u", "u"], "item": ["a", "b"]}), (["u", "u"], ["a", "b"], None)):
            assert as_dictionary(Ratings.from_any(source, self.domain, implicit=True)) == expected

    def test_ratings_do_not_count(self):
        assert as_dictionary(Ratings.from_any((["u"], ["a"], [math.nan]), self.domain, implicit=True)) == {
            "u": {0: 1}
        }

    def test_a_range_without_one_is_refused(self):
        with pytest.raises(InputError, match="implicit"):
            Ratings.from_any((["u"], ["a"], None), Domain(["a"], rating_range=(2, 5)), implicit=True)

    def test_missing_ratings_are_refused_otherwise(self):
        with pytest.raises(InputError, match="implicit=True"):
            Ratings.from_any((["u"], ["a"], None), self.domain)
        with pytest.raises(InputError, match="implicit=True"):
            Ratings.from_any(pa.table({"user": ["u"], "item": ["a"]}), self.domain)


class TestOfUser:
    def test_mapping_and_pairs(self):
        for history in ({3: 4, "1": 5.0, "zz": 3, 2: "n/a"}, [(3, 4), ("1", 5.0)], iter([("1", 5), (3, 4)])):
            ratings = Ratings.of_user(history, CATALOGUE)
            assert list(as_dictionary(ratings).values()) == [{0: 5.0, 2: 4.0}]

    def test_there_is_always_one_row(self):
        for history in ({}, [], {"zz": 3}, {1: math.nan}):
            ratings = Ratings.of_user(history, CATALOGUE)
            assert ratings.matrix.shape == (1, 8)
            assert ratings.n_ratings == 0

    def test_implicit(self):
        domain = Domain(["a", "b"], rating_range=(0, 1))
        assert list(as_dictionary(Ratings.of_user(["b", "zz"], domain, implicit=True)).values()) == [{1: 1.0}]

    @pytest.mark.parametrize("bad", [3, "abc", None, [1, 2], [(1, 2, 3)]])
    def test_what_holds_no_pairs(self, bad):
        with pytest.raises(InputError, match="pairs"):
            Ratings.of_user(bad, CATALOGUE)


class TestSelecting:
    def ratings(self):
        return Ratings.from_any((*TRIPLES,), CATALOGUE)

    def test_rows(self):
        ratings = self.ratings()
        assert as_dictionary(ratings.rows([2, 0])) == {"w": EXPECTED["w"], "u": EXPECTED["u"]}
        assert as_dictionary(ratings.rows(slice(1, None))) == {"v": EXPECTED["v"], "w": EXPECTED["w"]}
        assert as_dictionary(ratings.rows(np.array([False, True, False]))) == {"v": EXPECTED["v"]}
        assert as_dictionary(ratings.rows([True, False, False])) == {"u": EXPECTED["u"]}
        assert ratings.rows([]).n_users == 0
        assert ratings.rows(1).users.tolist() == ["v"]
        assert ratings.rows([2, 0]).matrix.has_canonical_format

    @pytest.mark.parametrize("bad", [[3], [-1], [True], [[True, False, True]]])
    def test_rows_that_do_not_exist(self, bad):
        with pytest.raises(InputError):
            self.ratings().rows(bad)

    def test_for_users(self):
        picked = self.ratings().for_users(["w", "nobody", "u"])
        assert as_dictionary(picked) == {"w": EXPECTED["w"], "nobody": {}, "u": EXPECTED["u"]}
        assert picked.users.tolist() == ["w", "nobody", "u"]
        with pytest.raises(InputError):
            self.ratings().for_users(["u", "u"])

    def test_aligned_to(self):
        other = Ratings.from_any((["z", "v"], [1, 1], [1, 1]), CATALOGUE)
        assert as_dictionary(self.ratings().aligned_to(other)) == {"z": {}, "v": EXPECTED["v"]}
        empty = Ratings.from_any(([], [], []), CATALOGUE)
        assert as_dictionary(empty.aligned_to(other)) == {"z": {}, "v": {}}

    def test_user_index(self):
        assert self.ratings().user_index(["w", "u", None, "x"]).tolist() == [2, 0, -1, -1]
        assert Ratings.from_any(([7, 8], [1, 1], [3, 3]), CATALOGUE).user_index(["8", 7.0]).tolist() == [
            1,
            0,
        ]

    def test_where(self):
        ratings = self.ratings()
        high = ratings.matrix.data > 2
        assert as_dictionary(ratings.where(high)) == {"u": {2: 4.0}, "v": {0: 5.0}, "w": {7: 2.5}}
        low = ratings.where(~high)
        assert as_dictionary(low) == {"u": {1: 1.0}}
        assert as_dictionary(ratings.where(~high, drop_empty=False)) == {"u": {1: 1.0}, "v": {}, "w": {}}

    def test_union(self):
        first = Ratings.from_any(([1, 1, 2], [1, 2, 3], [2, 2, 2]), CATALOGUE)
        second = Ratings.from_any((["1", "9"], [2, 5], [4, 5]), CATALOGUE)
        both = first.union(second)
        assert as_dictionary(both) == {"1": {0: 2.0, 1: 4.0}, "2": {2: 2.0}, "9": {4: 5.0}}
        assert both.users.tolist() == [1, 2, "9"]
        assert as_dictionary(first) == {"1": {0: 2.0, 1: 2.0}, "2": {2: 2.0}}
        one, two = (Ratings.from_any((pa.array([user]), [1], [1]), CATALOGUE) for user in (3, 4))
        assert one.union(two).users.dtype == np.int64
        with pytest.raises(InputError, match="domain"):
            first.union(Ratings.from_any(([1], [1], [1]), Domain([1], rating_range=(1, 5))))

    def test_union_keeps_the_cap(self):
        domain = Domain(range(20), rating_range=(0, 1), max_ratings_per_user=5)
        first = Ratings.from_any((["u"] * 5, range(5), np.ones(5)), domain)
        second = Ratings.from_any((["u"] * 5, range(5, 10), np.ones(5)), domain)
        assert set(as_dictionary(first.union(second))["u"]) == set(item_order("u", range(10), 0, "cap")[:5])

    def test_transposed(self):
        ratings = self.ratings()
        assert ratings.transposed is ratings.transposed
        assert ratings.transposed.format == "csr"
        assert ratings.transposed.indices.dtype == np.int32
        np.testing.assert_array_equal(ratings.transposed.toarray(), ratings.matrix.toarray().T)


class TestWhatIsShown:
    def test_repr_shows_the_domain_only(self):
        small = Ratings.from_any((*TRIPLES,), CATALOGUE)
        empty = Ratings.from_any(([], [], []), CATALOGUE)
        assert repr(small) == repr(empty) == str(empty)
        assert repr(CATALOGUE) in repr(small)

    def test_nothing_is_printed_or_warned(self, recwarn, capfd):
        Ratings.from_any((["u", None, []], [1, "zz", math.nan], ["x", 10**400, 3j]), CATALOGUE).to_arrow()
        assert not recwarn.list
        assert capfd.readouterr() == ("", "")

    def test_keys_are_the_documented_hash(self):
        ratings = Ratings.from_any(([7, "é"], [1, 1], [3, 3]), CATALOGUE)
        assert ratings.user_keys.dtype == np.uint64
        assert ratings.user_keys.tolist() == [text_key("7"), text_key("é")]

    def test_it_is_frozen(self):
        with pytest.raises(AttributeError):
            Ratings.from_any((*TRIPLES,), CATALOGUE).matrix = None


class TestWhatIsRefused:
    @pytest.mark.parametrize("domain", [None, (1, 5), ["a"], {}])
    def test_no_domain(self, domain, tmp_path):
        for call in (
            lambda: Ratings.from_any((*TRIPLES,), domain),
            lambda: Ratings.from_any(TRIPLES, domain),
            lambda: Ratings.read(tmp_path / "none.csv", domain),
            lambda: Ratings.of_user({}, domain),
            lambda: Ratings.from_any(sp.csr_array((1, 1)), domain),
        ):
            with pytest.raises(InputError, match="declare the public catalogue"):
                call()

    @pytest.mark.parametrize(
        "source", [3, None, object(), [1, 2], (1, 2), np.ones((3, 3)), (["u"], ["i"], 3), ("u", "i", "r")]
    )
    def test_what_is_no_table(self, source):
        with pytest.raises(InputError):
            Ratings.from_any(source, CATALOGUE)

    def test_a_stream_that_is_no_table(self):
        with pytest.raises(InputError, match="^An Arrow table is needed, not ChunkedArray.$"):
            Ratings.from_any(pa.chunked_array([[1, 2]]), CATALOGUE)

    def test_columns_of_different_length(self):
        with pytest.raises(InputError, match="same number"):
            Ratings.from_any((["u"], ["1", "2"], [1.0]), CATALOGUE)

    @pytest.mark.parametrize("bad", [np.ones((2, 2)), np.array([["u"], ["v"]], object), 3, "uvw"])
    def test_what_is_no_column(self, bad):
        with pytest.raises(InputError):
            Ratings.from_any((bad, ["1", "2"], [1.0, 2.0]), CATALOGUE)

    def test_missing_columns_are_named(self):
        table = pa.table({"who": ["u"], "item": [1], "rating": [1.0]})
        with pytest.raises(InputError, match=r"no column for the users.*columns="):
            Ratings.from_any(table, CATALOGUE)
        assert Ratings.from_any(table, CATALOGUE, columns={"user": "who"}).n_users == 1
        assert Ratings.from_any(table, CATALOGUE, columns=("who", "item", "rating")).n_users == 1
        with pytest.raises(InputError, match="'nobody'"):
            Ratings.from_any(table, CATALOGUE, columns={"user": "nobody"})
        with pytest.raises(InputError, match="dictionary"):
            Ratings.from_any(table, CATALOGUE, columns={"users": "who"})

    def test_ambiguous_columns(self):
        table = pa.table([["u"], ["v"], [1], [1.0]], names=["user_id", "userId", "item", "rating"])
        with pytest.raises(InputError, match="Several"):
            Ratings.from_any(table, CATALOGUE)
        assert Ratings.from_any(table, CATALOGUE, columns={"user": "userId"}).users.tolist() == ["v"]
        double = pa.table([["u"], ["v"], [1], [1.0]], names=["user", "user", "item", "rating"])
        with pytest.raises(InputError, match="Several"):
            Ratings.from_any(double, CATALOGUE)
        pandas = pd.DataFrame([["u", "v", 1, 1.0]], columns=["user", "user", "item", "rating"])
        with pytest.raises(InputError, match="Several"):
            Ratings.from_any(pandas, CATALOGUE)

    def test_columns_of_the_wrong_type(self):
        good = {"user": ["u"], "item": ["1"], "rating": [1.0]}
        for role in good:
            nested = pa.table({**good, role: pa.array([[1]])})
            with pytest.raises(InputError, match="list"):
                Ratings.from_any(nested, CATALOGUE)
        import datetime

        dated = pa.table({**good, "rating": [datetime.date(2020, 1, 1)]})
        with pytest.raises(InputError, match="date"):
            Ratings.from_any(dated, CATALOGUE)

    def test_a_column_of_nulls_is_no_error(self):
        for role in ("user", "item", "rating"):
            table = pa.table(
                {"user": ["u"], "item": ["1"], "rating": [1.0], role: pa.nulls(1)} | {role: pa.nulls(1)}
            )
            assert Ratings.from_any(table, CATALOGUE).n_users == 0

    def test_other_ratings(self, tmp_path):
        ratings = Ratings.from_any((*TRIPLES,), CATALOGUE)
        with pytest.raises(InputError, match="read over another domain"):
            Ratings.prepare(ratings, tmp_path / "store", Domain([1], rating_range=(1, 5)))
        assert Ratings.from_any(ratings, CATALOGUE) is ratings
        with pytest.raises(InputError, match="another domain"):
            Ratings.from_any(ratings, Domain([1], rating_range=(1, 5)))


def test_real_ratings_are_read_whole(real_data):
    import pyarrow.parquet as pq

    path = real_data("ml-1m.parquet")
    ratings = Ratings.read(path, Domain(range(1, 3953), rating_range=(1, 5)))
    frame = pq.read_table(path).to_pandas()
    expected = sp.coo_array((frame.rating, (frame.user - 1, frame.item - 1)), shape=(6040, 3952)).tocsr()
    assert ratings.n_ratings == len(frame)
    assert (ratings.matrix != expected[ratings.users - 1]).nnz == 0


def test_likes_are_the_ratings_from_the_threshold_up():
    """Compared in float32, in which 4.1 is less than 4.1; who likes nothing keeps her row."""
    cells = (["a", "a", "a", "b", "c"], ["x", "y", "z", "x", "y"], [4.1, 4.0, 4.2, 1.0, 4.1])
    ratings = Ratings.from_any(cells, Domain(["x", "y", "z"], (0.1, 5)))
    found = ratings.liked(4.1)
    assert found.users.tolist() == ["a", "b", "c"] and not found.hand_picked
    assert found.matrix.toarray().astype(bool).tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert ratings.liked(None) is ratings and found.liked(4.15).n_ratings == 1
    assert found.rated().users.tolist() == ["a", "c"] and not found.rated().hand_picked
    assert ratings.rated() is ratings


@pytest.mark.parametrize("mark", ["hand_picked", "by_position"])
@pytest.mark.parametrize("first", [True, False])
def test_a_mark_of_either_is_one_of_both_together(mark, first):
    """So are the splits of both, once each, in their order."""
    domain = Domain(["x", "y"], (1, 5))
    plain = Ratings.from_any((["a", "b"], ["x", "y"], [4, 2]), domain)
    marked = dataclasses.replace(plain, **{mark: True}, splits=("split:ratings:1", "split:users:2"))
    plain = dataclasses.replace(plain, splits=("split:users:2", "split:ratings:3"))
    pair = (marked, plain) if first else (plain, marked)
    splits = dict.fromkeys(split for each in pair for split in each.splits)
    for found in (pair[0].union(pair[1]), pair[0].aligned_to(pair[1])):
        assert getattr(found, mark) and found.splits == tuple(splits)
        other = {"hand_picked": "by_position", "by_position": "hand_picked"}[mark]
        assert not getattr(found, other)
        again = Ratings.from_any(found.to_arrow(), domain)
        assert getattr(again, mark) and not getattr(again, other) and again.splits == found.splits
    assert not getattr(plain.union(plain), mark)


@pytest.mark.skipif(not hasattr(pa, "decimal32"), reason="an older Arrow")
@pytest.mark.parametrize("role", ["user", "item", "rating"])
def test_a_type_that_arrow_cannot_number_is_refused_in_one_sentence(role):
    table = {"user": ["a", "a"], "item": ["1", "2"], "rating": [3.0, 4.0]}
    table[role] = pa.array([1, 2], pa.decimal32(5))
    with pytest.raises(InputError, match="cannot be read as ids or ratings"):
        Ratings.from_any(table, CATALOGUE)


def test_what_was_picked_by_hand_stays_so_whatever_is_chosen_of_it():
    """Killed: a private training that takes rows whose choice looked at several users."""
    plain = Ratings.from_any((*TRIPLES,), CATALOGUE)
    everything = np.ones(plain.n_ratings, dtype=bool)
    for picked in (plain.where(everything), plain.rows(slice(0, 9)), plain.for_users(["u", "v", "w"])):
        assert picked.hand_picked
        chosen = [
            picked.where(everything, keyed=True),
            picked.rows([0, 1], keyed=True),
            picked.liked(3.0),
            picked.liked(3.0).rated(),
            picked.aligned_to(plain),
            plain.aligned_to(picked),
            sample_per_user(picked, 1, seed=0),
            *split_ratings(picked, (0.5, 0.5), seed=0),
            *leave_k_out(picked, 1, seed=0),
            *strong_generalization(picked, 0.5, seed=0),
            Ratings.from_any(picked.to_arrow(), CATALOGUE),
        ]
        assert all(found.hand_picked for found in chosen)
    assert not plain.where(everything, keyed=True).hand_picked


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_nobody_has_one_rating_more_than_the_cap(count):
    domain = Domain(range(9), (1, 5), max_ratings_per_user=3)
    ratings = Ratings.from_any((["u"] * count + ["v"], [*range(count), 7], [4.0] * count + [2.0]), domain)
    kept = sorted(item_order("u", range(count), 0, "cap")[:3])
    assert as_dictionary(ratings) == {"u": dict.fromkeys(kept, 4.0), "v": {7: 2.0}}


def test_users_with_one_id_are_told_from_users_who_differ():
    ratings = Ratings.from_any((*TRIPLES,), CATALOGUE)
    doubled = dataclasses.replace(ratings, user_texts=pa.array(["u", "v", "u"], pa.large_string()))
    assert ratings.users_differ and not doubled.users_differ


def test_a_rating_without_a_time_has_none_in_a_table():
    cells = (["u", "u", "v"], [1, 2, 3], [4.0, 5.0, 2.0], [7, None, -3])
    table = Ratings.from_any(cells, CATALOGUE).to_arrow()
    assert table.column("time").to_pylist() == [7, None, -3] and table.column("time").null_count == 1


@pytest.mark.parametrize("n_items", [3, 100_000])
@pytest.mark.parametrize("timed", [False, True])
def test_rows_are_sorted_however_many_items_there_are(n_items, timed):
    """By user, by item, then as they came; of one pair the last stays."""
    users, items = (
        np.array([1, 0, 1, 0, 1], np.int32),
        np.array([n_items - 1, 1, 0, 1, n_items - 1], np.int32),
    )
    values, times = np.arange(5, dtype=np.float32), np.arange(5) * 10
    found = building._sorted_unique(users, items, values, times if timed else None, 3, n_items)
    assert found.items.tolist() == [1, 0, n_items - 1] and found.items.dtype == np.int32
    assert found.values.tolist() == [3, 2, 4] and found.counts.tolist() == [1, 2, 0]
    assert found.times is None if not timed else found.times.tolist() == [30, 20, 40]


def test_the_last_of_many_ratings_of_one_user_counts():
    rng = np.random.default_rng(0)
    pairs = [
        (str(item), float(value)) for item, value in zip(rng.integers(0, 9, 300), rng.integers(1, 6, 300))
    ]
    found = Ratings.of_user(pairs, CATALOGUE)
    wanted = {place: dict(pairs)[item] for place, item in enumerate(CATALOGUE.items) if item in dict(pairs)}
    assert as_dictionary(found) == {"user": wanted}


def test_where_rows_begin_is_counted_in_as_few_octets_as_hold_it():
    assert building.running_total(np.array([1 << 31, 1])).tolist() == [0, 1 << 31, (1 << 31) + 1]
    ratings = Ratings.from_any((["u"] * 12, [*range(1, 9)] * 1 + [1, 2, 3, 4], [3.0] * 12), CATALOGUE)
    matrix = ratings.matrix
    assert (matrix.indptr.dtype, matrix.indices.dtype, matrix.data.dtype) == (np.int32, np.int32, np.float32)


@pytest.mark.parametrize("kind", [pl.Int32, pl.Int64, pl.UInt8, pl.String])
def test_ids_of_a_typed_column_keep_their_type(kind):
    """Of an Arrow or polars column the type was fixed before its cells."""
    cells = [3, 7, 3] if kind != pl.String else ["3", "7", "3"]
    frame = pl.DataFrame({"user": pl.Series(cells, dtype=kind), "item": [1, 2, 3], "rating": [3.0] * 3})
    for source in (frame, frame.lazy(), frame.to_arrow()):
        found = Ratings.from_any(source, CATALOGUE)
        assert pa.types.is_integer(found.user_column.type) == (kind != pl.String)
        assert found.users.tolist() == cells[:2] and found.user_texts.to_pylist() == ["3", "7"]


ZEROS = [0, -0.0, "0.0", "-0.0", "0", decimal.Decimal("-0.00"), decimal.Decimal("0E+3")]


@pytest.mark.parametrize("zero", ZEROS)
def test_every_zero_is_one_id(zero):
    assert canonical_text(zero) == "0"
    assert (
        canonical_text(decimal.Decimal("-0.5")) == "-0.5" and canonical_text(decimal.Decimal("10.0")) == "10"
    )


def test_a_matrix_is_read_in_few_octets_a_rating_beside_itself():
    rng = np.random.default_rng(0)
    matrix = sp.csr_array(sp.random_array((2000, 500), density=0.5, format="csr", rng=rng, dtype=np.float32))
    matrix.data[:] = 3
    domain = Domain(range(500), rating_range=(1, 5))
    Ratings.from_any(matrix[:9], domain)
    tracemalloc.start()
    Ratings.from_any(matrix, domain)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 18 * matrix.nnz
