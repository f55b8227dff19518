"""Predictions and lists against a twin that serves one user at a time, from dictionaries and loops."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.kernels.loops import in_numpy
from hushrec.serving.batch import stream_lists
from hushrec.serving.item_rows import compact
from hushrec.serving.recommend import Recommender
from hushrec.serving.scoring import UserState

N_ITEMS, RANK, USERS = 13, 3, ("u", "v", "w", "x", "y")
DOMAIN = Domain([f"i{place}" for place in range(N_ITEMS)], rating_range=(1, 5))
ITEMS = list(DOMAIN.items)
RNG = np.random.default_rng(8)
HISTORIES = {
    user: {ITEMS[i]: float(RNG.integers(1, 6)) for i in RNG.permutation(N_ITEMS)[: 2 * number]}
    for number, user in enumerate(USERS)
}
HISTORIES["u"] = {ITEMS[0]: 2.0}
ROWS = Ratings.from_any(
    tuple(zip(*[(user, item, r) for user, rated in HISTORIES.items() for item, r in rated.items()])), DOMAIN
)
TASTE = np.random.default_rng(9).normal(size=(N_ITEMS, RANK))


@dataclass(frozen=True)
class Fake:
    """The level is a tenth of a user's sum, the taste is the sum over the rated items."""

    scores: str = "ratings"
    name: str = "fake"

    def fold_in(self, arrays, history: Ratings) -> UserState:
        matrix = history.matrix.toarray().astype(np.float64)
        taste = matrix @ TASTE[:, : arrays["item_factors"].shape[1]] / 20
        likes = sp.csr_array(matrix) if arrays.keys() & {"pair_items", "neighbours"} else None
        return UserState(matrix.sum(axis=1) / 10, taste, likes)


def served(kind: str = "dense", scores: str = "ratings", **more) -> Recommender:
    rng = np.random.default_rng(10)
    arrays = {"center": np.float64(2.5), "item_bias": rng.normal(size=N_ITEMS)}
    if kind in ("learned", "parts"):
        arrays["pair_items"] = np.array([0, 2, 3, 7, 11])
        arrays["pair_weights"] = rng.normal(size=(5, 5))
        arrays["item_factors"] = rng.normal(size=(N_ITEMS, RANK if kind == "parts" else 0))
    if kind == "parts":
        arrays["neighbours"] = rng.integers(0, N_ITEMS, (N_ITEMS, 4)).astype(np.int32)
        arrays |= {"similarity": rng.random((N_ITEMS, 4)), "word_weight": np.float64(1.3)}
        arrays["public_factors"] = rng.normal(size=(N_ITEMS, 2))
    elif kind == "learned":
        pass
    elif kind == "few rows":
        arrays["item_factors"] = compact(
            rng.normal(size=(N_ITEMS, RANK)) * (np.arange(N_ITEMS) % 5 == 2)[:, None]
        )
        assert len(arrays["item_factors"].rows) == 3
    else:
        arrays["item_factors"] = rng.normal(size=(N_ITEMS, RANK))
    return Recommender(Fake(scores), DOMAIN, arrays | more.pop("arrays", {}), **more)


def score(model: Recommender, history: dict[str, float], item: str) -> float:
    """One score, before it is clipped."""
    arrays, place = model.arrays, ITEMS.index(item)
    found = float(arrays["center"]) + arrays["item_bias"][place] + sum(history.values()) / 10
    taste = sum(r * TASTE[ITEMS.index(i)] / 20 for i, r in history.items()) + np.zeros(RANK)
    found += sum(a * b for a, b in zip(taste, arrays["item_factors"][place]))
    for other, rating in history.items() if "neighbours" in arrays else ():
        near = zip(*(arrays[name][ITEMS.index(other)] for name in ("neighbours", "similarity")))
        found += rating * 1.3 * sum(math.sqrt(cosine) ** 3 for at, cosine in near if at == place)
        found += rating * arrays["public_factors"][ITEMS.index(other)] @ arrays["public_factors"][place]
    learned = [ITEMS[i] for i in arrays.get("pair_items", ())]
    if item in learned:
        row = arrays["pair_weights"][:, learned.index(item)]
        found += sum(history.get(each, 0.0) * weight for each, weight in zip(learned, row))
    return found


def shown(model: Recommender, value: float) -> float:
    return min(max(value, 1.0), 5.0) if model.scores == "ratings" else value


def best(model, history, n=10, exclude_seen=True, items=None, exclude_items=(), rated=None) -> list[tuple]:
    """A list with predicted ratings: sorted by score, then by place in the catalogue."""
    chosen = [item for item in ITEMS if items is None or item in items]
    chosen = [i for i in chosen if i not in exclude_items and not (exclude_seen and i in history)]
    chosen.sort(key=lambda item: -score(model, history, item))
    scores, rated = [score(model, history, item) for item in chosen[:n]], rated or model
    predicts = rated.scores == "ratings"
    ratings = [shown(rated, score(rated, history, item)) if predicts else None for item in chosen[:n]]
    return list(zip(chosen, scores, ratings))


def same(found: list[tuple], wanted: list[tuple]) -> None:
    assert [item for item, *_ in found] == [item for item, *_ in wanted]
    for place in (1, 2):
        numbers, others = ([(*each, None)[place] for each in rows] for rows in (found, wanted))
        assert numbers == (others if None in others else pytest.approx(others, rel=1e-12))


OPTIONS = [
    {},
    {"n": 1},
    {"n": np.int32(4), "exclude_seen": False},
    {"n": 1000, "exclude_seen": False},
    {"items": ITEMS[2:9]},
    {"exclude_items": [ITEMS[0], ITEMS[5]], "exclude_seen": False},
    {"items": ITEMS[1:], "exclude_items": ITEMS[4:7]},
    {"items": []},
    {"exclude_items": []},
]


@pytest.mark.parametrize("made", [list, tuple, iter, np.array])
def test_unknown_items_of_a_public_list_are_skipped_and_counted(made) -> None:
    model, more = served(), ["newer than the model", 77]
    for options in ({"items": ITEMS[2:9]}, {"exclude_items": ITEMS[4:7]}, {"items": ITEMS[:3] * 500}):
        [(name, items)] = options.items()
        for ask, history in ((model.recommend, {}), (model.recommend_batch, ROWS), (stream_lists, ROWS)):
            arguments = (model, history) if ask is stream_lists else (history,)
            with pytest.warns(UserWarning, match=f"^{name}: skipped 2 of {len(items) + 2:,} items") as warned:
                found = ask(*arguments, **{name: made([*items, *more])})
            assert len(warned) == 1 and warned[0].filename == __file__
            wanted = ask(*arguments, **options)
            assert found == wanted if ask == model.recommend else list(found) == list(wanted)


@pytest.mark.parametrize("scores", ["ratings", "likes", "log-odds"])
@pytest.mark.parametrize("kind", ["dense", "few rows", "learned", "parts"])
@pytest.mark.parametrize("block", [1, 2 * N_ITEMS, 1 << 22])
def test_lists_are_those_of_the_twin(kind: str, scores: str, block: int, monkeypatch) -> None:
    """One user at a time, with machine code and without, in a batch, and as positions, in any blocks."""
    monkeypatch.setattr("hushrec.serving.scoring._SCORES_PER_BLOCK", block)
    model = served(kind, scores)
    for options in OPTIONS:
        wanted = {user: best(model, history, **options) for user, history in HISTORIES.items()}
        for user, history in HISTORIES.items():
            same(model.recommend(history, **options), wanted[user])
            with in_numpy():
                same(model.recommend(list(history.items()), **options), wanted[user])
        table = model.recommend_batch(ROWS, **options)
        names = {
            "user": pa.large_string(),
            "item": pa.large_string(),
            "rank": pa.int32(),
            "score": pa.float64(),
        }
        names |= {"rating": pa.float64()} if scores == "ratings" else {}
        assert table.column_names == list(names) and table.schema.types[2:] == list(names.values())[2:]
        rows = [(*row, None)[:5] for row in zip(*table.to_pydict().values())]
        for user, lists in wanted.items():
            same([(item, *values) for who, item, _, *values in rows if who == user], lists)
            assert [rank for who, _, rank, *_ in rows if who == user] == list(range(1, len(lists) + 1))
        columns = np.concatenate([columns for columns, *_ in model.rank(ROWS, **options)])
        assert columns.shape == (len(USERS), min(options.get("n", 10), N_ITEMS))
        found = [[ITEMS[place] for place in row if place >= 0] for row in columns]
        assert found == [[item for item, *_ in wanted[user]] for user in ROWS.users]


FORMS_OF_ITEMS = {
    "list": list, "tuple": tuple, "iterator": iter, "keys": lambda items: dict.fromkeys(items).keys(),
    "octets": lambda items: [item.encode() for item in items], "numpy": np.array, "pandas": pd.Series,
    "category": lambda items: pd.Series(items, dtype="category"), "index": pd.Index, "polars": pl.Series,
    "arrow": pa.array, "dictionary": lambda items: pa.array(items).dictionary_encode(),
    "binary": lambda items: pa.array([item.encode() for item in items]),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS_OF_ITEMS)
def test_items_may_be_named_in_any_form(form: str) -> None:
    model, history, made = served(), HISTORIES["w"], FORMS_OF_ITEMS[form]
    for some in (ITEMS[8:11], ITEMS[:5]):
        same(model.recommend(history, items=made(some)), best(model, history, items=some))
        same(model.recommend(history, exclude_items=made(some)), best(model, history, exclude_items=some))
    with pytest.warns(UserWarning, match="skipped 1 of 3 items, not in the model's catalogue of 13 items"):
        listed = model.recommend(history, items=made([ITEMS[0], "other", ITEMS[1]]))
    same(listed, best(model, history, items=ITEMS[:2]))


@pytest.mark.true("E1")
@pytest.mark.parametrize("supported", [0b1011001110010, 0, (1 << N_ITEMS) - 1])
@pytest.mark.parametrize("kind", ["dense", "few rows", "learned", "parts"])
def test_a_list_is_ranked_by_its_scores_whatever_is_asked_for(kind: str, supported: int) -> None:
    """Items that do not exceed their noise come last, also in their scores; ratings are predictions."""
    first = np.array([supported >> place & 1 for place in range(N_ITEMS)], np.uint8)
    lists = served("learned", "likes") if kind == "learned" else served(scores="likes")
    for model in (served(arrays={"supported": first}), served(lists=with_arrays(lists, supported=first))):
        for history in HISTORIES.values():
            whole = model.recommend(history, N_ITEMS, exclude_seen=False)
            scores = {each.item: each.score for each in whole}
            assert [-each.score for each in whole] == sorted(-each.score for each in whole)
            groups = [first[ITEMS.index(each.item)] for each in whole]
            assert groups == sorted(groups, reverse=True)
            raw = [score(model.lists or model, history, each.item) for each in whole]
            ahead = [a > b for a, b, one, other in zip(raw, raw[1:], groups, groups[1:]) if one == other]
            assert all(ahead)
            for options in ({"n": 4}, {"items": ITEMS[3:9]}, {"exclude_items": [whole[0].item]}, {"n": 1000}):
                found = model.recommend(history, **options)
                assert all(each.score == scores[each.item] for each in found)
                ratings = model.predict(history, [each.item for each in found])
                assert [each.rating for each in found] == pytest.approx(ratings, rel=1e-12)
        for n in (3, 7):  # where the items that come last are in some users' lists
            rows = model.recommend_batch(ROWS, n).to_pylist()
            for user, history in HISTORIES.items():
                batch = {row["item"]: row["score"] for row in rows if row["user"] == user}
                alone = {each.item: each.score for each in model.recommend(history, n)}
                assert list(batch) == list(alone) and batch == pytest.approx(alone, rel=1e-12)
    assert json.loads(json.dumps([model.recommend({}), model.predict({}, ITEMS)]))


def test_taste_dimensions_are_those_of_the_lists() -> None:
    lists = with_arrays(served(scores="likes"), directions=np.int64(2))
    assert served(lists=lists).directions == 2
    assert served().directions is None and served("learned").directions == 0


@pytest.mark.parametrize("kind", ["dense", "few rows", "learned"])
def test_vectors_rank_as_lists_do(kind: str) -> None:
    """A model, one with lists of another model, and one with items that do not exceed their noise."""
    some = np.array([1, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1, 1, 0], np.uint8)
    for lists in (served(kind, "likes"), with_arrays(served(kind, "likes"), supported=some)):
        for model in (lists, served(lists=lists)):
            products = model.query(ROWS) @ model.item_vectors().T
            (wanted,) = (columns for columns, *_ in model.rank(ROWS, N_ITEMS, exclude_seen=False))
            assert (np.argsort(-products, axis=1, kind="stable") == wanted).all()
            alone = [model.query(HISTORIES[user]) for user in ROWS.users]
            if model.lists is None and "supported" in model.arrays:  # also where the others would come first
                biased = with_arrays(model, item_bias=model.item_bias + 1000.0 * (some == 0))
                longer = np.asarray(model.arrays["item_factors"]) * 500.0
                for hostile in (biased, with_arrays(biased, item_factors=longer)):
                    products = hostile.query(ROWS) @ hostile.item_vectors().T
                    assert (some[np.argsort(-products, axis=1)] == np.sort(some)[::-1]).all()
            np.testing.assert_allclose(alone, model.query(ROWS), rtol=1e-6)
            assert model.query([]).shape == model.item_vectors().shape[1:]


def with_arrays(model: Recommender, **arrays) -> Recommender:
    return replace(model, arrays={**model.arrays, **arrays})


@pytest.mark.parametrize("scores", ["ratings", "likes"])
@pytest.mark.parametrize("kind", ["dense", "few rows", "learned", "parts"])
@pytest.mark.parametrize("block", [2 * N_ITEMS, 1 << 22])
def test_predictions_are_those_of_the_twin(kind: str, scores: str, block: int, monkeypatch) -> None:
    """For one user, many, cells and a table's rows; strangers get the released values alone."""
    monkeypatch.setattr("hushrec.serving.scoring._SCORES_PER_BLOCK", block)
    model, close = served(kind, scores), {"rtol": 1e-12}

    def wanted(user: str, item: str) -> float:
        return shown(model, score(model, HISTORIES.get(user, {}), item))

    asked = [ITEMS[4], ITEMS[0], ITEMS[12], ITEMS[3]]
    for form in (asked, tuple(asked), iter(asked), np.array(asked), pa.array(asked)):
        found = model.predict(HISTORIES["x"], form)
        np.testing.assert_allclose(found, [wanted("x", item) for item in asked], **close)
    table = [[wanted(user, item) for item in asked] for user in ROWS.users]
    np.testing.assert_allclose(model.predict(ROWS, asked), table, **close)
    cells = [("y", "i3"), ("nobody", "i0"), ("u", "i7"), ("v", "i12"), ("nobody", "i2"), ("v", "i1")]
    users, items = (list(column) for column in zip(*cells))
    targets = Ratings.from_any((users, items, [3.0] * len(cells)), DOMAIN)
    matrix = targets.matrix.tocoo()
    places = zip(matrix.coords[0], matrix.coords[1])
    cell_values = [wanted(targets.users[row], ITEMS[column]) for row, column in places]
    np.testing.assert_allclose(model.predict_pairs(ROWS, targets), cell_values, **close)
    asked_of = {"user": [*users, "u", "y"], "item": [*items, "unknown", "i0"]}
    values = [*(wanted(*cell) for cell in cells), math.nan, wanted("y", "i0")]
    for form in (asked_of, pa.table(asked_of)):
        np.testing.assert_allclose(model.predict(ROWS, form), values, **close)


def test_a_history_is_a_mapping_pairs_or_liked_items() -> None:
    """A list of ids where the model is of likes; what cannot be used is named with the reason."""
    model, likes = served(), served(scores="likes")
    liked = dict.fromkeys(["i4", "i0"], 5.0)
    same(likes.recommend(["i4", "i0"]), best(likes, liked))
    same(model.recommend([["i4", 5.0], ("i0", 5.0)]), best(model, liked))
    same(likes.recommend([("i4", 5.0), ("i0", 5.0)]), best(likes, liked))
    same(likes.recommend([]), best(likes, {}))
    same(model.recommend([("i4", 3.0), ("i4", 3.0)]), best(model, {"i4": 3.0}))
    for history, words in (
        ("i4", "'i4' is neither"),
        (b"i4", "a bytes is neither"),
        (5, "must be a mapping"),
        (["i4"], "'i4' is neither"),
        ([("i0", 3.0), "i4"], "'i4' is neither"),
        ({"i0": 3.0, "other": 3.0}, "Item 'other' of these ratings is not in the model's catalogue of 13"),
        ({"i0": 3.0, "i1": 9.0}, "Rating 9.0 of item 'i1' is not a number from 1 to 5"),
        ({"i1": 3.0, "i0": 0.5}, "Rating 0.5 of item 'i0' is not a number from 1 to 5"),
    ):
        with pytest.raises(InputError, match=words):
            model.recommend(history)
    with pytest.raises(InputError, match="'i4' is neither"):
        likes.recommend([("i0", 3.0), "i4"])


def test_items_are_a_list_of_those_of_the_catalogue() -> None:
    model, many = served(), [ITEMS[place % N_ITEMS] for place in range(1001)]
    assert model.predict({}, many) == [*model.predict({}, ITEMS)] * 77
    for items, words in (
        ("i1", "items='i1' is not a list"),
        (b"i1", "is not a list; pass one"),
        (5, "items=5 is not a list"),
        (["i1", "other"], "Item 'other' is not in the model's catalogue of 13 items"),
        (iter(["i1", "other"]), "Item 'other' is not in the model's catalogue of 13 items"),
        ([*many, "other"], "Item 'other' is not"),
    ):
        with pytest.raises(InputError, match=words):
            model.predict({}, items)
    for items in ("i1", b"i1", 5, ["other", "another"], [*map(str, range(2000))]):
        for name in ("items", "exclude_items"):
            with pytest.raises(InputError, match=f"{name}=|{name} has no item of the model's"):
                model.recommend({}, **{name: items})
    for n in (0, -1, True, 2.0, "3", None):
        for ask in (model.recommend, model.recommend_batch):
            with pytest.raises(InputError, match="n=.* is out of range; pass an integer >= 1") as error:
                ask(ROWS if ask == model.recommend_batch else {}, n)
            assert error.value.parameter == "n"


def test_what_is_not_ratings_of_the_models_catalogue_is_refused() -> None:
    model = served()
    with pytest.raises(InputError, match="recommend serves one user"):
        model.recommend(ROWS)
    with pytest.raises(InputError, match="history must be Ratings, not dict"):
        model.recommend_batch({})
    with pytest.raises(InputError, match="histories as Ratings"):
        model.predict({}, {"user": ["u"], "item": ["i1"]})
    wider = Domain(ITEMS, rating_range=(1, 6))
    with pytest.raises(InputError, match="another catalogue or rating range"):
        model.fold_in(Ratings.from_any((["u", "v"], ["i1", "i2"], [3.0, 4.0]), wider))
