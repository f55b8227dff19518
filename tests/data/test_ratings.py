import dataclasses
import datetime
import decimal
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from data_oracle import as_dictionary, build, item_order
from hypothesis import given, settings, strategies as st

from hushrec.data import (
    Domain,
    Ratings,
    leave_k_out,
    ratings_builder,
    sample_per_user,
    split_ratings,
    strong_generalization,
)
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
    objects = [pl.Series(name, cells, pl.Object) for name, cells in (("user", users), ("item", items))]
    yield "polars objects", pl.DataFrame(objects).with_columns(rating=pl.Series(ratings))
    yield "arrow", table
    yield "arrow chunks", pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1)])
    yield "arrow batch", table.to_batches()[0]
    yield "arrow reader", table.to_reader()


@pytest.mark.parametrize("source", [pytest.param(s, id=name) for name, s in sources()])
def test_every_source_gives_the_same_ratings(source):
    ratings = Ratings.from_any(source, CATALOGUE)
    assert as_dictionary(ratings) == EXPECTED
    assert ratings.matrix.dtype == np.float32
    assert ratings.matrix.indices.dtype == np.int32
    assert (ratings.n_users, ratings.n_items, ratings.n_ratings) == (3, 8, 4)


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

    def test_a_bad_rating_does_not_replace_a_good_one(self):
        assert self.build(("u", 1, 2), ("u", 1, math.nan), ("u", 1, 9)) == {"u": {0: 2.0}}

    def test_bad_cells_drop_their_rows(self):
        """The bad cell is a rating, an item or a user."""
        for bad in (math.nan, math.inf, 0.99, 5.01, 1e308, None, "n/a", "", [], "0_4", 3j):
            assert self.build(("u", 1, 2), ("u", 2, bad), ("v", 1, bad)) == {"u": {0: 2.0}}
        for bad in ("A7", None, math.nan, "", 99, [], {}):
            assert self.build(("u", 1, 2), ("u", bad, 3), ("v", bad, 3)) == {"u": {0: 2.0}}
        for bad in (None, math.nan, "", "  ", pd.NA, pd.NaT, [], {}, math.inf):
            assert self.build((bad, 1, 2), ("u", 1, 3)) == {"u": {0: 3.0}}
        for role in ("user", "item", "rating"):
            table = {"user": ["u"], "item": ["1"], "rating": [1.0], role: pa.nulls(1)}
            assert Ratings.from_any(pa.table(table), CATALOGUE).n_users == 0

    def test_no_rows_are_no_users(self):
        nobody = pa.table({"user": pa.nulls(0), "item": pa.nulls(0), "rating": pa.nulls(0)})
        for empty in (([], [], []), nobody):
            ratings = Ratings.from_any(empty, CATALOGUE)
            assert ratings.matrix.shape == (0, 8) and ratings.transposed.shape == (8, 0)
            assert repr(ratings) == str(Ratings.from_any(TRIPLES, CATALOGUE))
            assert len(ratings.users) == len(ratings.user_keys) == len(ratings.to_arrow()) == 0

    def test_beyond_the_cap_a_keyed_sample_stays(self):
        domain = Domain(range(200), rating_range=(0, 1), max_ratings_per_user=7)
        items = np.random.default_rng(0).permutation(200).tolist()
        users = ["u"] * 200 + ["v"] * 7 + ["w"] * 8
        cells = (users, [*items, *items[:7], *items[:8]], np.ones(215))
        kept = as_dictionary(Ratings.from_any(cells, domain))
        assert set(kept["u"]) == set(item_order("u", range(200), 0, "cap")[:7])
        assert set(kept["v"]) == set(items[:7])
        assert set(kept["w"]) == set(item_order("w", items[:8], 0, "cap")[:7])

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


@pytest.mark.parametrize(("order", "block"), [("any", 1 << 20), ("users", 1000), ("users and items", 1000)])
def test_many_rows_against_a_dictionary(order, block, monkeypatch):
    slices = ratings_builder.slices
    monkeypatch.setattr(ratings_builder, "slices", lambda length: slices(length, block))
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
    @pytest.mark.parametrize("form", ["csr", "csc", "coo", "dok"])
    def test_any_format(self, form):
        kind = sp.csr_matrix if form == "csr" else sp.csr_array
        matrix = kind(np.array([[0, 3, 0], [0, 0, 0], [5, 0, 1.0]])).asformat(form)
        domain = Domain(["a", "b", "c"], rating_range=(1, 5))
        ratings = Ratings.from_any(matrix, domain)
        assert as_dictionary(ratings) == {"0": {1: 3.0}, "2": {0: 5.0, 2: 1.0}}
        assert ratings.users.tolist() == [0, 2] and ratings.by_position
        named = Ratings.from_any((["x", "y", "z"], matrix), domain)
        assert list(as_dictionary(named)) == ["x", "z"] and not named.by_position

    def test_what_the_caller_does_to_the_matrix_later_is_no_matter(self):
        matrix = sp.csr_array(np.array([[3, 4], [5, 0]], np.float32))
        matrix.data[2] = 9
        ratings = Ratings.from_any(matrix, Domain(["a", "b"], rating_range=(1, 5)))
        assert matrix.data.tolist() == [3, 4, 9]
        for array in (matrix.data, matrix.indices, matrix.indptr):
            array[:] = 1
        assert as_dictionary(ratings) == {"0": {0: 3, 1: 4}}

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
        domain = Domain(["a", "b"], rating_range=(0, 1))
        assert as_dictionary(Ratings.from_any(matrix, domain)) == {"0": {0: 0.0, 1: 0.5}}
        for entries in (matrix, matrix.tocsr(), matrix.astype(bool), matrix - 2 * matrix):
            likes = as_dictionary(Ratings.from_any(entries, domain, implicit=True))
            assert likes == ({} if (entries.data <= 0).all() else {"0": {1: 1.0}})

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


def test_likes_need_no_ratings_and_all_others_do():
    domain = Domain(["a", "b"], rating_range=(0, 1))
    table = pa.table({"user": ["u", "u"], "item": ["a", "b"]})
    for source in (table, (["u", "u"], ["a", "b"], None), (["u", "u"], ["a", "b"], [math.nan, 9])):
        assert as_dictionary(Ratings.from_any(source, domain, implicit=True)) == {"u": {0: 1.0, 1: 1.0}}
    for source in (table, (["u"], ["a"], None)):
        with pytest.raises(InputError, match="implicit=True"):
            Ratings.from_any(source, domain)


def test_of_one_user_there_is_always_one_row():
    for history in ({3: 4, "1": 5.0, "zz": 3, 2: "n/a"}, [(3, 4), ("1", 5.0)], iter([("1", 5), (3, 4)])):
        found = as_dictionary(Ratings.of_user(history, CATALOGUE))
        assert list(found.values()) == [{0: 5.0, 2: 4.0}]
    for history in ({}, [], {"zz": 3}, {1: math.nan}):
        assert Ratings.of_user(history, CATALOGUE).matrix.shape == (1, 8)
    for bad in (3, "abc", None, [1, 2], [(1, 2, 3)]):
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
        for bad in ([3], [-1], [True], [[True, False, True]], [0, 0]):
            with pytest.raises(InputError):
                ratings.rows(bad)

    def test_where_and_aligned_to(self):
        ratings = self.ratings()
        low = ratings.matrix.data <= 2
        assert as_dictionary(ratings.where(low)) == {"u": {1: 1.0}}
        assert as_dictionary(ratings.where(low, drop_empty=False)) == {"u": {1: 1.0}, "v": {}, "w": {}}
        other = Ratings.from_any((["z", "v"], [1, 1], [1, 1]), CATALOGUE)
        assert as_dictionary(ratings.aligned_to(other)) == {"z": {}, "v": EXPECTED["v"]}
        assert ratings.user_index(["w", "u", None, "x"]).tolist() == [2, 0, -1, -1]

    def test_for_users(self):
        with pytest.warns(UserWarning, match="None of these users has a rating here"):
            assert self.ratings().for_users(["nobody", "U"]).n_ratings == 0
        picked = self.ratings().for_users(["w", "nobody", "u"])
        assert as_dictionary(picked) == {"w": EXPECTED["w"], "nobody": {}, "u": EXPECTED["u"]}
        assert picked.users.tolist() == ["w", "nobody", "u"]
        with pytest.raises(InputError):
            self.ratings().for_users(["u", "u"])

    def test_union(self):
        first = Ratings.from_any(([1, 1, 2], [1, 2, 3], [2, 2, 2]), CATALOGUE)
        second = Ratings.from_any((["1", "9"], [2, 5], [4, 5]), CATALOGUE)
        both = first.union(second)
        assert as_dictionary(both) == {"1": {0: 2.0, 1: 4.0}, "2": {2: 2.0}, "9": {4: 5.0}}
        assert both.users.tolist() == [1, 2, "9"]
        assert as_dictionary(first) == {"1": {0: 2.0, 1: 2.0}, "2": {2: 2.0}}
        one, two = (Ratings.from_any((pa.array([user]), [1], [1]), CATALOGUE) for user in (3, 4))
        assert one.union(two).users.dtype == np.int64
        capped = Domain(range(20), rating_range=(0, 1), max_ratings_per_user=5)
        parts = range(5), range(5, 10)
        one, two = (Ratings.from_any((["u"] * 5, part, np.ones(5)), capped) for part in parts)
        assert set(as_dictionary(one.union(two))["u"]) == set(item_order("u", range(10), 0, "cap")[:5])
        with pytest.raises(InputError, match="domain"):
            first.union(Ratings.from_any(([1], [1], [1]), Domain([1], rating_range=(1, 5))))


NAMES = ["user_id", "userId", "item", "rating"]
REFUSED = [
    (np.ones((3, 3)), {}, "cannot be read from ndarray"),
    ((1, 2), {}, "Ratings are missing; .* every row is a like; pass implicit=True"),
    ((["u"], np.ones((1, 2))), {}, "cannot be read from tuple"),
    (("u", "i", "r"), {}, "must be a sequence, not str"),
    ((["u"], ["1", "2"], [1.0]), {}, "same number"),
    ((np.ones((2, 2)), ["1", "2"], [1.0, 2.0]), {}, "one dimension"),
    (pa.chunked_array([[1, 2]]), {}, "^An Arrow table is needed, not ChunkedArray.$"),
    (pa.table({"who": ["u"], "item": [1], "rating": [1.0]}), {}, "no column for the users.*columns="),
    (pa.table([["u"], ["v"], [1], [1.0]], names=NAMES), {}, "several columns"),
    (pd.DataFrame([["u", "v", 1, 1.0]], columns=["user", "user", "item", "rating"]), {}, "several columns"),
    (pa.table({"user": ["u"], "item": ["1"], "rating": pa.array([[1]])}), {}, "list"),
    (pa.table({"user": ["u"], "item": ["1"], "rating": [datetime.date(2020, 1, 1)]}), {}, "date"),
    (sp.csr_array((723, 4)), {}, "it has 4 columns.$"),  # the number of users is nobody's business
    ((["a"], sp.csr_array((2, 8))), {}, "one user id"),
    (TRIPLES, {"format": "csv"}, "format is for files"),
    (TRIPLES, {"implicit": True, "domain": Domain(["a"], (2, 5))}, "range that holds 1"),
    (Ratings.from_any(TRIPLES, CATALOGUE), {"domain": Domain([1], (1, 5))}, "another domain"),
    *((TRIPLES, {"domain": domain}, "declare the public catalogue") for domain in (None, (1, 5), ["a"], {})),
]


@pytest.mark.parametrize(("source", "options", "words"), REFUSED)
def test_what_is_no_table_is_refused_in_one_sentence(source, options, words):
    with pytest.raises(InputError, match=words) as refused:
        Ratings.from_any(source, **{"domain": CATALOGUE, **options})
    assert "723" not in str(refused.value) and "\n" not in str(refused.value)


def test_likes_are_the_ratings_from_the_threshold_up():
    """Compared in float32, in which 4.1 is less than 4.1; who likes nothing keeps their row."""
    cells = (["a", "a", "a", "b", "c"], ["x", "y", "z", "x", "y"], [4.1, 4.0, 4.2, 1.0, 4.1])
    ratings = Ratings.from_any(cells, Domain(["x", "y", "z"], (0.1, 5)))
    found = ratings.liked(4.1)
    assert found.users.tolist() == ["a", "b", "c"] and not found.hand_picked
    assert found.matrix.toarray().astype(bool).tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert ratings.liked(None) is ratings and found.liked(4.15).n_ratings == 1
    assert found.rated().users.tolist() == ["a", "c"] and not found.rated().hand_picked
    assert ratings.rated() is ratings


@pytest.mark.parametrize(("mark", "first"), [("hand_picked", True), ("by_position", False)])
def test_a_mark_of_either_is_one_of_both_together(mark, first):
    """Splits of both are joined too, once each, in their order."""
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


def test_what_was_picked_by_hand_stays_so_whatever_is_chosen_of_it():
    """Killed: a private training on rows chosen by a look at several users."""
    plain = Ratings.from_any((*TRIPLES,), CATALOGUE)
    everything = np.ones(plain.n_ratings, dtype=bool)
    for picked in (plain.where(everything), plain.rows(slice(0, 9)), plain.for_users(["u", "v", "w"])):
        assert picked.hand_picked
        keyed = [picked.where(everything, keyed=True), picked.rows([0, 1], keyed=True)]
        parts = *split_ratings(picked, (0.5, 0.5), seed=0), *leave_k_out(picked, 1, seed=0)
        held_out = strong_generalization(picked, 0.5, seed=0)
        chosen = [*keyed, *parts, *held_out, picked.liked(3.0).rated(), picked.aligned_to(plain)]
        chosen += [plain.aligned_to(picked), sample_per_user(picked, 1, seed=0)]
        chosen += [Ratings.from_any(picked.to_arrow(), CATALOGUE)]
        assert all(found.hand_picked for found in chosen)
    assert not plain.where(everything, keyed=True).hand_picked
