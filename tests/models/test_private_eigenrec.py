"""Private EigenRec: contributions against dense rows, and lists on generated likes."""

import math

import numpy as np
import pytest

from hushrec.data import Domain, Ratings, strong_generalization
from hushrec.evaluation import evaluate
from hushrec.models import Popular, PrivateEigenRec
from hushrec.models.private_eigenrec.items import ItemStatistics
from hushrec.models.private_eigenrec.users import LikingUsers
from hushrec.privacy import Accountant, Budget, positive, signed
from tests.models.twins import small
from tests.opening import opened

UNIT = Domain(range(25), rating_range=(0, 1))


def likes_of_groups(n_users: int, n_items: int, groups: int, seed: int) -> Ratings:
    """Users like items of one group, and the popular items of others."""
    rng = np.random.default_rng(seed)
    users, items = [], []
    for user in range(n_users):
        mine = np.arange(user % groups, n_items, groups)
        own = rng.choice(mine, min(8, len(mine) - 2), replace=False)
        liked = np.union1d(own, rng.choice(n_items // 4, 3, replace=False))
        users += [f"u{user}"] * len(liked)
        items += [f"i{item}" for item in liked]
    domain = Domain(items=[f"i{item}" for item in range(n_items)], rating_range=(0, 1))
    return Ratings.from_any((users, items, None), domain, implicit=True)


def test_it_finds_tastes_where_popularity_does_not() -> None:
    parts = strong_generalization(likes_of_groups(3000, 120, 4, 0), 0.1, seed=1)
    budget = Budget(5.0, 1e-6)
    figures = []
    for estimator in (PrivateEigenRec.planned(budget, parts.train.domain, 2700), Popular()):
        model = estimator.fit(parts.train, Accountant(budget), seed=0)
        figures.append(
            evaluate(model, parts.fold_in, parts.target, k=10, resamples=0)["capped-recall@10"].value
        )
    assert figures[0] > 1.5 * figures[1] > 0


def test_who_likes_nothing_gets_the_popular_items_and_nobody_what_she_likes() -> None:
    ratings = likes_of_groups(300, 40, 2, 0)
    budget = Budget(20.0, 1e-6)
    model = PrivateEigenRec(rank=2).fit(ratings, Accountant(budget))
    popular = [ratings.domain.items[column] for column in np.argsort(-model.item_bias, kind="stable")]
    supported = [item for item in popular if model.arrays["supported"][ratings.domain.items.index(item)]]
    assert [item for item, *_ in model.recommend({}, n=5)] == supported[:5]
    liked = {"i0": 1.0, "i2": 1.0}
    best = [item for item, *_ in model.recommend(liked, n=40)]
    assert len(best) == 38 and not set(best) & set(liked)


@pytest.mark.parametrize("n_items", [1, 2, 3])
def test_tiny_catalogues(n_items: int) -> None:
    domain = Domain(items=range(n_items), rating_range=(0, 1))
    ratings = Ratings.from_any(([0, 1, 1], [0, 0, n_items - 1], None), domain, implicit=True)
    model = PrivateEigenRec(rank=5).fit(ratings, Accountant(Budget(1.0, 1e-6)))
    assert len(model.item_factors) == n_items
    assert np.isfinite(model.predict({0: 1.0}, list(domain.items))).all()


def test_products_that_would_underflow_are_still_scaled_to_norm_one() -> None:
    """A contribution is bounded even where the square of every product is 0 in floating point."""
    users = LikingUsers(small())
    users.scale(np.ones(12), np.ones(12))
    ordinary, tiny = (opened(users.item_sums(np.full((12, 3), size))) for size in (1.0, 1e-200))
    assert tiny == pytest.approx(ordinary, rel=1e-6) and np.abs(tiny).max() > 0
    assert not opened(users.item_sums(np.zeros((12, 3)))).any()


@pytest.mark.parametrize("weight", [400.0, 1e4])
def test_what_one_user_adds_is_what_the_definition_says(weight: float) -> None:
    """Includes users with a row near popularity: the rest is at most twice as long then. Oracle: dense rows,
    one user at a time."""
    rng, n, model = np.random.default_rng(5), 25, PrivateEigenRec.of(rank=3, learned_items=20)
    known = ItemStatistics.of(model.tuning, 50.0, np.r_[weight, 300.0, rng.uniform(20, 200, n - 2)], 0.5, 3)
    learned, (scale, first) = known.learned, (known.scale, known.first)
    vectors, direction = rng.standard_normal((n, 3)), first / np.linalg.norm(first)
    rows = [[0], [0, 1], list(range(n)), [2], *(rng.choice(n, size, replace=False) for size in (3, 5, 9, 20))]
    rows.append(np.flatnonzero(~learned)[:2])  # who likes nothing that is learned
    longest = set()
    for items in rows:
        ratings = Ratings.from_any((["u"] * len(items), list(items), [1.0] * len(items)), UNIT)
        users = model.users(ratings)
        users.scale(scale, first)
        row = np.zeros(n)
        row[items] = scale[items]
        row /= max(np.linalg.norm(row), 1e-300)
        rest = row - (row @ direction) * direction
        length = np.linalg.norm(rest)
        factors = row @ vectors
        factors /= max(np.linalg.norm(factors), 1e-300)
        sums, matrix = users.item_sums(vectors), users.item_matrix()
        wanted = np.outer(rest / max(length, 1 / 2), factors)[learned]
        assert opened(sums).reshape(wanted.shape) == pytest.approx(wanted, abs=1e-5)
        assert np.linalg.norm(opened(sums)) <= 1
        full = (rest / max(length, 1 / 2))[learned]
        wanted = np.outer(full, full)[np.tril_indices(learned.sum())]
        assert opened(matrix) == pytest.approx(wanted, abs=0.025)
        assert np.linalg.norm(opened(matrix) * matrix.weight) <= 1
        longest.add(0 if not length else 2 if length < 1 / 2 else 1)
    assert longest == {0, 1, 2}
    assert sums.bound == signed(1.0) and matrix.bound == positive(1.0) and matrix.step == 2.0**-26


@pytest.mark.parametrize("weight", [400.0, 1e4])
def test_rows_of_the_matrix_are_rounded_to_the_nearest_step(weight: float) -> None:
    """Their sums are exact. Oracle: integers, user by user."""
    rng, n, model = np.random.default_rng(5), 25, PrivateEigenRec.of(rank=3, learned_items=20)
    known = ItemStatistics.of(model.tuning, 50.0, np.r_[weight, 300.0, rng.uniform(20, 200, n - 2)], 0.5, 3)
    scale, first, learned = known.scale, known.first, known.learned
    rows = [[0], [0, 1], list(range(n)), [2], *(rng.choice(n, size, replace=False) for size in (3, 5, 9, 20))]
    cells = [(user, int(item), 1.0) for user, items in enumerate(rows) for item in items]
    users = model.users(Ratings.from_any(tuple(map(list, zip(*cells))), UNIT))
    users.scale(scale, first)
    step, grid = 2.0**-13, 2.0 ** (math.ceil(math.log2(first.max())) - 5)
    total, square = np.zeros((n, n), dtype=object), first @ first
    for items in rows:
        row = np.zeros(n)
        row[items] = scale[items]
        row /= np.linalg.norm(row)
        along = row @ first
        length = max(math.sqrt(max(1 - along**2 / square, 0.0)), 1 / 2)
        room = 1 - step / 2 * math.sqrt(len(items)) - step / grid / 2 * math.sqrt(square)
        room *= 1 - 2.0**-22
        own = np.floor(room * row / length / step + 0.5).astype(int)
        taken = math.floor(room * along / (length * square) / (step / grid) + 0.5)
        own = own - np.rint(first / grid).astype(int) * taken
        total += np.outer(own, own).astype(object)
    found = users.item_matrix()
    expected = total[np.ix_(learned, learned)][np.tril_indices(learned.sum())]
    assert (opened(found) / step**2).astype(int).tolist() == expected.tolist()
