"""EASE against ridge regressions of each item on the others, and how item-item models are served."""

import math

import numpy as np
import pytest

from hushrec.data import Domain, Ratings
from hushrec.models import EASE, ease as room
from hushrec.privacy import Accountant, Budget


def no_privacy() -> Accountant:
    return Accountant(Budget(math.inf, 1e-6))


def regressions(likes: np.ndarray, ridge: float) -> np.ndarray:
    """Weights by the definition: each column on all others, as an augmented least-squares problem."""
    n_items = likes.shape[1]
    weights = np.zeros((n_items, n_items))
    for item in range(n_items):
        others = np.delete(np.arange(n_items), item)
        design = np.vstack([likes[:, others], math.sqrt(ridge) * np.eye(n_items - 1)])
        target = np.concatenate([likes[:, item], np.zeros(n_items - 1)])
        weights[others, item] = np.linalg.lstsq(design, target, rcond=None)[0]
    return weights


def at_norm_one(likes: np.ndarray) -> np.ndarray:
    return likes / np.linalg.norm(likes, axis=1, keepdims=True)


def drawn(seed: int, n_users: int = 60, n_items: int = 14) -> Ratings:
    """Users like three to six of the items; no user likes the last item."""
    rng = np.random.default_rng(seed)
    rows = [(f"u{u}", i) for u in range(n_users) for i in rng.choice(n_items - 1, rng.integers(3, 7), False)]
    users, items = map(list, zip(*rows))
    return Ratings.from_any((users, items, None), Domain(range(n_items), (0, 1)), implicit=True)


@pytest.mark.parametrize("ridge", [0.5, 7.0, 300.0])
def test_scores_are_those_of_ridge_regressions(ridge: float) -> None:
    ratings = drawn(1)
    likes = ratings.matrix.toarray()
    model = EASE(regularization=ridge).fit(ratings, no_privacy())
    scores = model.predict(ratings, ratings.domain.items) - model.item_bias
    np.testing.assert_allclose(scores, at_norm_one(likes) @ regressions(likes, ridge), atol=1e-6)
    np.testing.assert_allclose(model.predict_pairs(ratings, ratings), (scores + model.item_bias)[likes > 0])


def test_the_most_liked_items_are_learned_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_ITEMS", 6)
    ratings = drawn(2)
    likes = ratings.matrix.toarray()
    learned = np.sort(np.argsort(-likes.sum(axis=0), kind="stable")[:6])
    model = EASE(regularization=3.0).fit(ratings, no_privacy())
    assert model.arrays["pair_items"].tolist() == learned.tolist()
    scores = model.predict(ratings, ratings.domain.items) - model.item_bias
    expected = np.zeros(likes.shape)
    expected[:, learned] = at_norm_one(likes)[:, learned] @ regressions(likes[:, learned], 3.0)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    best = [item for item, *_ in model.recommend({0: 1.0}, n=14, exclude_seen=False)]
    assert set(best[:6]) == set(learned.tolist())


def test_the_default_ridge_is_five_times_the_mean_number_of_likes() -> None:
    ratings = drawn(8)
    ridge = 5 * ratings.n_ratings / 13
    chosen, given = (EASE(regularization=each).fit(ratings, no_privacy()) for each in (None, ridge))
    np.testing.assert_allclose(chosen.arrays["pair_weights"], given.arrays["pair_weights"], rtol=1e-6)


def test_who_likes_nothing_gets_the_popular_items() -> None:
    ratings = drawn(4)
    counts = ratings.matrix.toarray().sum(axis=0)
    model = EASE(regularization=3.0).fit(ratings, no_privacy())
    best = [item for item, *_ in model.recommend({}, n=5)]
    assert best == np.argsort(-counts, kind="stable")[:5].tolist()
    empty = model.fold_in(ratings).moved(np.array([-1, 2, 0, -1]))
    assert not empty.likes.toarray()[[0, 3]].any() and not empty.offset.any()
    known = at_norm_one(ratings.matrix.toarray()[[2, 0]])
    np.testing.assert_allclose(empty.likes.toarray()[[1, 2]], known, rtol=1e-7)


def test_nobody_and_nothing() -> None:
    ratings = drawn(0)
    nobody = Ratings.from_any((["u"], [None], None), ratings.domain, implicit=True)
    model = EASE().fit(nobody, no_privacy())
    assert model.arrays["pair_weights"].shape == (0, 0) and len(model.recommend({0: 1.0}, n=3)) == 3


def test_a_matrix_that_is_not_positive_definite_is_refused() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="^the matrix is not positive definite$"):
        room.item_weights(np.asfortranarray([[1.0, 2.0], [2.0, 1.0]]))


@pytest.mark.parametrize("rows", [1, 4, 13, 100])
def test_a_matrix_is_counted_in_any_blocks(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ratings = drawn(1)
    likes = ratings.matrix.toarray().astype(np.float64)
    monkeypatch.setattr(room, "_ROWS_AT_A_TIME", rows)
    model = EASE(regularization=7.0).fit(ratings, no_privacy())
    np.testing.assert_allclose(model.arrays["pair_weights"], regressions(likes, 7.0)[:13, :13], atol=1e-7)
    assert model.item_bias == pytest.approx(1e-6 * likes.sum(axis=0) / likes.sum(axis=0).max(), abs=1e-15)
    assert model.arrays["center"] == 0 and model.arrays["supported"].tolist() == [1] * 13 + [0]


def test_a_rating_below_the_threshold_moves_nothing() -> None:
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((60, 9)) < 0.5)
    domain = Domain(list(range(9)), rating_range=(1, 5))
    model = EASE(like_threshold=4.0).fit(
        Ratings.from_any((users, items, rng.integers(1, 6, len(users))), domain), no_privacy()
    )
    liked, item = {1: 4.0, 3: 5.0}, 7
    found, alone = model.explain({0: 1.0, **liked, 2: 2.0}, item), model.explain(liked, item)
    assert found.score == pytest.approx(alone.score)
    moved, wanted = (dict(each[:2] for each in why.because) for why in (found, alone))
    assert {place: moved.get(place, 0.0) for place in range(4)} == pytest.approx({0: 0, 2: 0, **wanted})
