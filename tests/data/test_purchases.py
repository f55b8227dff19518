"""Purchases, returns and stars: one user's rows alone decide their likes and ratings, on every path."""

import itertools
import random
from collections import defaultdict

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest

import hushrec
from hushrec import Accountant, Both, Budget, Domain, Ratings, Store
from hushrec.errors import InputError
from hushrec.papers.dpals import DPALS
from hushrec.privacy.testing import SeededNoise

ITEMS = [f"i{k}" for k in range(8)]
STARS = Domain(ITEMS, rating_range=(1, 5))
LIKES = Domain(ITEMS, likes=True)
COLUMNS = {"rating": "stars", "quantity": "pieces", "time": "day"}
NOTHING = float("nan")


def table(seed: int, n_users: int = 12, n_rows: int = 150) -> list[tuple]:
    dice = random.Random(seed)
    stars, pieces = [None, None, 0, 1, 3, 4, 5, 9], [None, 0, 1, 1, 2, -1, -1, 0.1, 0.2, -0.3]
    return [
        (
            f"u{dice.randrange(n_users)}",
            dice.choice(ITEMS),
            dice.choice(stars),
            dice.choice(pieces),
            dice.randrange(9),
        )
        for _ in range(n_rows)
    ]


def frame(rows: list[tuple]) -> pa.Table:
    types = [pa.string(), pa.string(), pa.float64(), pa.float64(), pa.int64()]
    columns = [
        pa.array(list(column), kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)
    ]
    return pa.table(columns, ["user", "item", "stars", "pieces", "day"])


def oracle(rows: list[tuple], likes: bool) -> dict[tuple[str, str], tuple[float, int]]:
    """Rating (NaN: bought without stars) and time of each pair, from a dictionary and integers of a tenth."""
    pairs = defaultdict(list)
    for place, (user, item, stars, pieces, day) in enumerate(rows):
        known = not likes and stars is not None and 1 <= stars <= 5
        if known or pieces:
            pairs[user, item].append(
                (known, day, place, stars if known else NOTHING, round(10 * (pieces or 0)))
            )
    found = {}
    for pair, cells in pairs.items():
        known, day, _, stars, _ = max(cells, key=lambda cell: cell[:3])
        if known or sum(cell[-1] for cell in cells) > 0:
            found[pair] = (1.0 if likes else stars, day)
    return found


def test_quantities_that_float32_holds_nearly_add_up_to_nothing() -> None:
    """In millionths, rounded to the nearest: 0.7 is one below 0.7 in float32."""
    rows = {
        "user": ["a"] * 6,
        "item": ["i1"] * 3 + ["i2"] * 3,
        "quantity": [-0.7, -0.3, 1.0, 0.7, 0.3, -0.999999],
    }
    read = Ratings.from_any(rows, LIKES, columns={"quantity": "quantity"})
    assert read.to_arrow()["item"].to_pylist() == ["i2"]


def cells(ratings: Ratings) -> dict[tuple[str, str], tuple[float, int]]:
    rows = np.repeat(ratings.users, np.diff(ratings.matrix.indptr))
    items = np.array(ITEMS)[ratings.matrix.indices]
    pairs = zip(rows.tolist(), items.tolist(), strict=True)
    return dict(
        zip(pairs, zip(ratings.matrix.data.tolist(), ratings.times.tolist(), strict=True), strict=True)
    )


def same(found: dict, expected: dict) -> bool:
    return found.keys() == expected.keys() and all(
        np.array_equal(found[pair], expected[pair], equal_nan=True) for pair in found
    )


@pytest.mark.parametrize(("seed", "likes"), itertools.product(range(4), (False, True)))
def test_every_path_reads_what_a_dictionary_reads(seed: int, likes: bool, tmp_path, monkeypatch) -> None:
    rows = table(seed)
    whole, domain, expected = frame(rows), LIKES if likes else STARS, oracle(rows, likes)
    columns = {role: name for role, name in COLUMNS.items() if not (likes and role == "rating")}
    pq.write_table(whole, tmp_path / "t.parquet", row_group_size=40)
    whole.to_pandas().to_csv(tmp_path / "t.csv", index=False)
    whole.to_pandas().to_csv(tmp_path / "german.csv", index=False, sep=";", decimal=",")
    monkeypatch.setattr("hushrec.data.preparing._FOLDED_ROWS", 5)
    monkeypatch.setattr("hushrec.data.preparing._HELD_ROWS", 20)
    sources = [
        whole, whole.to_pandas(), pl.from_arrow(whole), whole.to_pydict(),
        *(tmp_path / name for name in ("t.parquet", "t.csv", "german.csv")),
    ]  # fmt: skip
    for source in sources:
        ratings = Ratings.from_any(source, domain, columns=columns)
        assert same(cells(ratings), expected)
        store = Store.prepare(source, tmp_path / "store", domain, columns=columns, partitions=3, force=True)
        assert same(cells(store.ratings()), expected)
        look = Ratings.check(source, domain, columns=columns)
        assert (look.usable, look.users) == (ratings.n_ratings, ratings.n_users)
        assert look.usable + sum(each.count for each in look.dropped) == look.rows == len(rows)
    pq.write_table(ratings.to_arrow(), tmp_path / "again.parquet")
    again = Ratings.from_any(tmp_path / "again.parquet", domain, columns={"time": True})
    assert same(cells(again), expected)
    assert same(cells(again.union(again)), expected)


@pytest.mark.parametrize("form", [frame, lambda rows: frame(rows).to_pandas()])
def test_one_users_null_zero_or_return_changes_nothing_of_other_users(form, tmp_path) -> None:
    rows = table(9)
    hostile = [(None, None), (None, 0), (None, -5), (0, None), (5, -1), (None, 1e300), (None, -1e-9)]
    hostile.append((NOTHING, NOTHING))
    for read in (
        lambda rows: Ratings.from_any(form(rows), STARS, columns=COLUMNS),
        lambda rows: Store.prepare(form(rows), tmp_path / "s", STARS, columns=COLUMNS, force=True).ratings(),
    ):
        base = cells(read(rows))
        for (stars, pieces), place in itertools.product(hostile, (0, 70)):
            more = [*rows[:place], ("mallory", "i1", stars, pieces, 3), *rows[place:]]
            found = cells(read(more))
            assert same({pair: cell for pair, cell in found.items() if pair[0] != "mallory"}, base)


def liked(ratings: Ratings, threshold: float | None) -> set[tuple[str, str]]:
    return set(cells(ratings.liked(threshold)))


def test_a_like_is_a_purchase_without_stars_or_has_stars_from_the_threshold_up() -> None:
    rows = table(5)
    expected = oracle(rows, likes=False)
    ratings = Ratings.from_any(frame(rows), STARS, columns=COLUMNS)
    assert liked(ratings, 4) == {pair for pair, (stars, _) in expected.items() if not stars < 4}
    assert cells(ratings.starred()) == {pair: cell for pair, cell in expected.items() if cell[0] == cell[0]}


def trained(ratings: Ratings | Store, budget: Budget) -> hushrec.Model:
    estimator = Both.planned(budget, ratings.domain, n_users=300)
    return estimator.fit(ratings, Accountant(budget, noise=SeededNoise(0), data_is_public=True))


def test_the_ratings_part_never_sees_a_purchase_and_costs_the_same_without_any_stars(tmp_path) -> None:
    budget, rows = Budget(5, 1e-5), table(3, n_users=300, n_rows=3000)
    columns = {"rating": "stars", "quantity": "pieces"}
    both = trained(Ratings.from_any(frame(rows), STARS, columns=columns), budget)
    stars = trained(Ratings.from_any(frame(rows), STARS, columns={"rating": "stars"}), budget)
    for name, array in stars.arrays.items():
        assert np.array_equal(both.arrays[name], array)
    store = Store.prepare(frame(rows), tmp_path / "s", STARS, columns=columns)
    stored = trained(store, budget)
    assert all(np.array_equal(array, stored.arrays[name]) for name, array in both.arrays.items())
    assert all(np.array_equal(array, stored.lists.arrays[name]) for name, array in both.lists.arrays.items())
    unstarred = [(user, item, None, pieces, day) for user, item, _, pieces, day in rows]
    none = trained(Ratings.from_any(frame(unstarred), STARS, columns=columns), budget)
    assert none.privacy.releases == both.privacy.releases
    for model in (both, none):
        assert all(np.isfinite(array).all() for array in model.arrays.values() if array.dtype.kind == "f")
    history = Ratings.from_any(frame(rows), STARS, columns=columns)
    assert np.isfinite(both.predict(history, ITEMS)).all()
    measured = hushrec.evaluate(both, *hushrec.leave_k_out(history, 1, seed=0), k=3, resamples=10)
    assert np.isfinite(measured["rmse"].value) and measured["recall@3"].value > 0


def test_an_evaluation_counts_purchases_without_stars_as_relevant_and_says_so() -> None:
    for columns, named in ((COLUMNS, True), ({"rating": "stars"}, False)):
        rows = Ratings.from_any(frame(table(3, 60, 900)), STARS, columns=columns)
        parts = hushrec.leave_k_out(rows, 1, seed=0)
        budgets, options = [5.0], {"delta": 1e-6, "data_is_public": True, "relevant_from": 4}
        compared = hushrec.compare(*parts, ["popular"], budgets, **options)
        model = hushrec.Popular().fit(rows, Accountant(Budget(5, 1e-6), data_is_public=True))
        measured = hushrec.evaluate(model, *parts, relevant_from=4, k=len(ITEMS), metrics=["hit-rate"])
        assert measured[f"hit-rate@{len(ITEMS)}"].value == 1
        for text in (measured.text(), compared.markdown()):
            assert "ratings from 4 up" in text and ("purchases without a rating" in text) == named


@pytest.mark.parametrize(
    ("estimator", "epsilon"),
    [
        (hushrec.ItemBias(), 5),
        (hushrec.ALS(rank=2, unobserved_weight=0.1), np.inf),
        (DPALS.of(rank=2, iterations=1, unobserved_weight=0.1), 5),
    ],
)
def test_a_model_that_reads_values_trains_on_the_stars(estimator, epsilon, tmp_path) -> None:
    budget, rows = Budget(epsilon, 1e-5), table(3)
    columns = {"rating": "stars", "quantity": "pieces"}
    models = []
    for asked in (columns, {"rating": "stars"}):
        ratings = Ratings.from_any(frame(rows), STARS, columns=asked)
        accountant = Accountant(budget, noise=SeededNoise(0), data_is_public=True)
        models.append(estimator.fit(ratings, accountant).arrays)
    assert all(np.array_equal(models[0][name], models[1][name]) for name in ("item_bias", "item_factors"))
    with pytest.raises(InputError, match=f"{estimator.name} does not use purchases"):
        store = Store.prepare(frame(rows), tmp_path / "s", STARS, columns=columns)
        estimator.fit(store, Accountant(budget, data_is_public=True))


def test_a_purchase_table_for_likes_needs_a_domain_of_likes() -> None:
    unit = Domain(ITEMS, rating_range=(0, 1))
    with pytest.raises(InputError, match=r"Domain\(items, likes=True\)"):
        Ratings.from_any(frame(table(0)), unit, columns={"quantity": "pieces"}, implicit=True)
    with pytest.raises(InputError, match="no column named 'amount'"):
        Ratings.from_any(frame(table(0)), LIKES, columns={"quantity": "amount"})


def orders_and_reviews(seed: int) -> tuple[list[tuple], list[tuple]]:
    rows = table(seed)
    orders = [(user, item, None, pieces, day) for user, item, _, pieces, day in rows[:90]]
    return orders, [(user, item, stars, None, day) for user, item, stars, _, day in rows[90:]]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("names", ["asked for", "usual"])
def test_orders_and_reviews_are_two_tables_of_one_data_set(tmp_path, seed, names) -> None:
    orders, reviews = orders_and_reviews(seed)
    tables = [frame(orders).drop_columns("stars"), frame(reviews).drop_columns("pieces")]
    columns = COLUMNS
    if names == "usual":
        tables[0] = tables[0].rename_columns(["customer_id", "sku", "Qty", "day"])
        columns = {"time": "day"}
    pq.write_table(tables[0], tmp_path / "orders.parquet")
    pv.write_csv(tables[1], tmp_path / "reviews.csv")
    paths = [tmp_path / "orders.parquet", str(tmp_path / "reviews.csv")]
    expected = oracle(orders + reviews, likes=False)
    for source in (tables, paths, [tables[0].to_pandas(), paths[1]]):
        found = Ratings.from_any(source, STARS, columns=columns)
        assert same(cells(found), expected) and found.purchases
        assert len(set(found.user_texts.to_pylist())) == found.n_users
    store = Store.prepare(paths, tmp_path / "s", STARS, columns=columns, partitions=3)
    assert same(cells(store.ratings()), expected) and store.purchases
    looked = Ratings.check(paths, STARS, columns=columns)
    assert (looked.usable, looked.users) == (len(expected), found.n_users)
    both = {user for user, *_ in (pair[:1] for pair in oracle(orders, False))}
    both &= {user for user, *_ in (pair[:1] for pair in oracle(reviews, False))}
    few = Ratings.check(paths, Domain(ITEMS, rating_range=(1, 5), max_ratings_per_user=2), columns=columns)
    per_user = [sum(user == other for other, _ in expected) for user in {user for user, _ in expected}]
    assert few.usable == sum(min(count, 2) for count in per_user)
    assert few.users_over_cap == sum(count > 2 for count in per_user)
    assert looked.in_all == len(both) and [name for name, _ in looked.tables] == list(map(str, paths))


WRONG_TABLES = [
    ({"rating": "sterne"}, "'sterne'|orders.csv"),
    ({"quantity": "Menge"}, "orders.csv' has no column for the ratings"),
    ({"user": "wer"}, "No table has a column named 'wer'"),
    ({"time": True}, "reviews.csv' has no column for the times"),
]


@pytest.mark.parametrize(("columns", "says"), WRONG_TABLES)
@pytest.mark.parametrize("read", [Ratings.from_any, Ratings.check, None])
def test_a_name_that_no_table_has_is_refused(tmp_path, read, columns, says) -> None:
    (tmp_path / "orders.csv").write_text("user,item,pieces,date\na,i1,2,2024-01-01\n")
    (tmp_path / "reviews.csv").write_text("user,item,stars\na,i1,2\n")
    paths = [tmp_path / "orders.csv", tmp_path / "reviews.csv"]
    with pytest.raises(InputError, match=says) as caught:
        columns = {"quantity": "pieces"} | columns
        if read is None:
            Store.prepare(paths, tmp_path / "s", STARS, columns=columns)
        else:
            read(paths, STARS, columns=columns)
    assert len(str(caught.value).splitlines()) == 1 and not (tmp_path / "s").exists()


def test_purchases_of_an_item_again_are_not_called_unused(tmp_path) -> None:
    (tmp_path / "orders.csv").write_text("user,item,qty\na,i1,2\na,i1,1\na,i2,1\na,i2,-1\n")
    look = Ratings.check(tmp_path / "orders.csv", LIKES, columns={"quantity": True})
    text = look.text()
    assert look.usable == 1 and "rated" not in text.partition("Items")[0]
    assert look.items_unseen == LIKES.n_items - 1  # i2 was returned
    assert "2 a purchase of an item that the user bought again; quantities are added (lines 2, 4)" in text
    assert "1 not used: the quantities add up to 0 or less" in text
