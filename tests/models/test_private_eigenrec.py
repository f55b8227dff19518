"""Private EigenRec against a slow dense twin with the same noise, and at work."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.linalg

from hushrec.data import Domain, Ratings, strong_generalization
from hushrec.data.keys import mix
from hushrec.evaluation import evaluate
from hushrec.models import Popular, PrivateEigenRec
from hushrec.models.private_eigenrec.items import ItemStatistics
from hushrec.models.private_eigenrec.users import LikingUsers
from hushrec.privacy import Accountant, Budget, positive, signed
from hushrec.training.posterior import item_weights
from tests.models.twins import full, run, small
from tests.opening import opened

UNIT = Domain(range(25), rating_range=(0, 1))


@pytest.mark.parametrize(("support", "most"), [(9.0, 22), (5.0, 9)])
def test_it_matches_a_slow_twin(support: float, most: int) -> None:
    """Three rounds, the halves, then scores by the definition: project a row, undo the scales."""
    ratings = likes_of_groups(90, 30, 2, 3)
    settings = {"weight_exponent": -0.4, "support": support, "learned_items": most}
    model, noise, noise_sd = run(PrivateEigenRec.of(rank=2, iterations=3, **settings), ratings)
    likes = (ratings.matrix.toarray() > 0).astype(np.float64)

    exact = (likes / np.sqrt(likes.sum(axis=1, keepdims=True))).sum(axis=0)
    weights, weights_sd = exact + noise["item weights"], noise_sd["item weights"]
    ranked = np.argsort(-weights)[:most]
    learned = np.sort(ranked[weights[ranked] > support * weights_sd])
    assert 4 <= len(learned) <= most < 30 and (len(learned) < most) == (support > 8)
    popularity = item_weights(weights, weights_sd).mean
    popularity /= popularity.max()
    scale = popularity[learned] ** -0.4
    first = popularity[learned] * scale / np.linalg.norm(popularity[learned] * scale)
    grid = 2.0 ** (np.ceil(np.log2(first.max())) - 5)  # so that the largest entry is 17 to 32 steps
    rounded = np.floor(first / grid)
    apart = np.eye(len(learned)) - np.outer(rounded, rounded) / (rounded @ rounded)
    n_users = round(90 + noise["number of users"][0])

    def again(label: str, part: float) -> np.ndarray:
        """Return the noise of the sums; weights of this release are averaged with the earlier ones."""
        nonlocal weights, weights_sd
        drawn, sd = noise[label], noise_sd[label]
        if part > 0:
            variances = np.array([weights_sd**2, sd**2 / part])
            weights = np.average([weights, exact + drawn[:30]], 0, 1 / variances)
            weights_sd = (1 / variances).sum() ** -0.5
        return drawn[30:] if part > 0 else drawn

    vectors, rounds, parts = apart @ np.random.default_rng(4).standard_normal((len(learned), 2)), [], []
    for label in ("item sums 1", "item sums 2", "item sums 3", "halves of likes"):
        doubt = min((1 - item_weights(weights, weights_sd).known) / 0.05, 1.0)
        if len(rounds) >= 2:
            _, sums, sd = as_one(rounds, n_users)
            edge = sd * (math.sqrt(len(learned)) + math.sqrt(2))
            doubt *= 1 - max(0.0, 1 - (edge / np.linalg.norm(sums, 2)) ** 2)
        parts.append(round(doubt if len(rounds) >= 2 else min(doubt, 0.5), 2))
        drawn = again(label, parts[-1])
        sd = noise_sd[label] / math.sqrt(1 - parts[-1])
        if label == "halves of likes":
            break
        sums = np.zeros((len(learned), 2))
        for row in likes[:, learned] * scale:
            factors = vectors.T @ row
            if factors.any():
                rest = apart @ row / np.linalg.norm(row)
                sums += np.outer(rest / max(np.linalg.norm(rest), 0.5), factors / np.linalg.norm(factors))
        rounds.append((vectors, apart @ (sums + drawn.reshape(sums.shape)), sd))
        left, values, _ = np.linalg.svd(as_one(rounds, n_users)[1], full_matrices=False)
        left *= [np.sign(max(column, key=abs)) for column in left.T]
        vectors = left * (values / values[0]) ** -0.5
    assert 0 < max(parts) < 1, "the test needs rounds of weights and sums"

    # one half of the likes against the other
    plus, minus = np.zeros((2, 2)), np.zeros((2, 2))
    for row in likes[:, learned]:
        dealt = sorted(np.flatnonzero(row), key=lambda item: int(mix(np.array([item], np.uint64))[0]))
        halves = [left[own].T @ scale[own] for own in (dealt[::2], dealt[1::2])]
        if all(half.any() for half in halves):
            one, two = (half / np.linalg.norm(half) for half in halves)
            plus += np.outer(one + two, one + two) / 4
            minus += np.outer(one - two, one - two) / 4
    plus, minus = plus + full(drawn[:3], 2), minus + full(drawn[3:], 2)
    products, squares = np.diag(plus - minus), np.maximum(np.diag(plus + minus), abs(np.diag(plus - minus)))
    products = products - (products + squares) * np.minimum(
        n_users / values.sum() / values, 1
    )  # what rows owe to themselves
    deviations = np.sqrt(2 * sd**2 + squares**2 / n_users)
    candidates = np.linspace(-1, 1, 101)
    likely = np.exp(-(((products[:, None] - squares[:, None] * candidates) / deviations[:, None]) ** 2) / 2)
    likely = np.vstack([likely, np.ones(101)])  # a dimension of which nothing is known
    usual = np.full(101, 1 / 101)
    for _ in range(100):
        usual = (likely * usual / (likely @ usual)[:, None]).mean(axis=0)
    shown = (products > 3 * deviations).any()
    reliability = np.sign(candidates) * (2 * abs(candidates) / (1 + abs(candidates))) ** (0.5 if shown else 1)
    gains = np.maximum(likely * usual @ reliability / (likely @ usual), 0)[:-1]
    if not shown:
        sure = np.maximum(products, 0) / deviations
        gains *= sure**2 / (1 + (products / deviations) ** 2)
    assert gains.max() < 1 and shown == (support > 8), "one case needs a dimension that counts"
    assert model.arrays["directions"] == (products > 3 * deviations).sum()

    final = item_weights(weights, weights_sd).mean
    final /= final.max()
    supported = np.argsort(-weights)[:most]
    supported = np.union1d(learned, supported[weights[supported] > support * weights_sd])
    length = np.linalg.norm(popularity[learned] * scale)
    for user, row in enumerate(likes[:, learned] * scale):
        if not row.any():
            continue
        taste = left @ (gains * (left.T @ row)) / scale
        expected = np.where(np.isin(np.arange(30), supported), final, weights / weights.max())
        strength = length**2 / (1 + 2 / likes[user].sum())  # half with two likes
        expected[learned] += taste * strength / (likes[user, learned] * scale**2 @ final[learned])
        history = ratings.rows(np.arange(ratings.n_users) == user)
        np.testing.assert_allclose(model.predict(history, ratings.domain.items)[0], expected, atol=1e-3)


def as_one(rounds: list[Any], n_users: float) -> Any:
    """M Q from the normal equations of all rounds' sums, as a round would have released it."""
    probe, noisy, sd = rounds[-1]
    tells = [np.trace(p.T @ s) > 3 * deviation * np.sqrt((p**2).sum()) for p, s, deviation in rounds]
    if not tells[-1]:
        return rounds[-1]
    axes = scipy.linalg.orth(probe)
    normal, right = np.zeros((2, 2)), np.zeros_like(probe)
    for (p, s, deviation), telling in zip(rounds, tells, strict=True):
        if telling:
            unit = p / (np.trace(p.T @ s) / n_users)
            normal += axes.T @ unit @ unit.T @ axes / deviation**2
            right += s @ unit.T @ axes / deviation**2
    root = np.real(scipy.linalg.sqrtm(normal))
    mean = right @ np.linalg.inv(normal)  # the noise of its rows has covariance inv(normal)
    length = math.sqrt(np.sum(axes @ root * (mean @ root)) / n_users)
    return axes @ root, mean @ root / length, 1 / length


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


def diagonal_and_below(matrix: np.ndarray) -> np.ndarray:
    return np.concatenate([matrix.diagonal(), matrix[np.tril_indices(len(matrix), -1)]])


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
        assert opened(matrix).ravel() == pytest.approx(diagonal_and_below(np.outer(full, full)), abs=0.025)
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
    expected = diagonal_and_below(total[np.ix_(learned, learned)])
    assert (opened(found).ravel() / step**2).astype(int).tolist() == expected.tolist()
