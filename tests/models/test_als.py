"""ALS against a slow NumPy twin, and against DPALS without privacy."""

import math
import tracemalloc

import numpy as np
import pytest

from hushrec.data import Domain, Ratings, realistic, split_ratings
from hushrec.kernels.sweeps import csr
from hushrec.models import ALS, als
from hushrec.privacy import Accountant, Budget
from hushrec.training.users import user_means


def no_privacy() -> Accountant:
    return Accountant(Budget(math.inf, 1e-6))


def small(seed: int = 0) -> Ratings:
    rng = np.random.default_rng(seed)
    rows = [
        (f"u{u}", f"i{i}", float(rng.integers(1, 6))) for u in range(40) for i in rng.choice(25, 8, False)
    ]
    domain = Domain(items=[f"i{i}" for i in range(25)], rating_range=(1, 5))
    return Ratings.from_any((*map(list, zip(*rows)),), domain)


@pytest.mark.parametrize("rating_range", [(0, 1e30), (-1e30, 1e30), (16777216, 16777219), (0.1, 0.7)])
def test_user_means_are_summed_in_float64(rating_range: tuple[float, float]) -> None:
    domain, rng = Domain(range(4000), rating_range), np.random.default_rng(5)
    rows = [(user, item, rng.uniform(*rating_range)) for user in range(5) for item in range(1000 * user + 1)]
    rows += [("x", item, end) for item, end in zip(range(600), rating_range * 300)]
    rows += [("y", item, rating_range[1]) for item in range(1001)]
    ratings = Ratings.from_any((*map(list, zip(*rows)),), domain)
    matrix = ratings.matrix
    for start, stop, mean in zip(matrix.indptr, matrix.indptr[1:], user_means(ratings)):
        values = matrix.data[start:stop].tolist()
        exact = math.fsum(values) / len(values)
        assert abs(mean - exact) <= 1e-13 * max(map(abs, rating_range))


def slow_solve(matrix: np.ndarray, seen: np.ndarray, center: float, other: np.ndarray) -> np.ndarray:
    """Row by row: ridge regression of ratings on the other side's factors and a constant.

    The ridge on factors grows as the root of the number of ratings, rounded to a power of two.
    """
    solved = np.zeros((len(matrix), other.shape[1]))
    for row in range(len(matrix)):
        columns = np.flatnonzero(seen[row])
        growth = math.sqrt(2 ** round(math.log2(len(columns))) / seen.sum(axis=1).mean())
        ridge = np.array([2.0 * growth] * (other.shape[1] - 1) + [0.7])
        design = np.column_stack([other[columns, :-1], np.ones(len(columns))])
        target = matrix[row, columns] - center - other[columns, -1]
        solved[row] = np.linalg.solve(design.T @ design + np.diag(ridge), design.T @ target)
    return solved


def test_explicit_ratings_match_a_slow_twin() -> None:
    ratings = small()
    dense = ratings.matrix.toarray().astype(np.float64)
    seen = dense > 0
    rank = 3
    center = np.mean([dense[user, seen[user]].mean() for user in range(len(dense))])
    items = np.zeros((25, rank + 1))
    items[:, :rank] = np.random.default_rng(4).standard_normal((25, rank)) * 0.3 / np.sqrt(rank)
    for _ in range(3):  # biases first
        left = np.where(seen, dense - center - items[:, rank], 0)
        left = np.where(seen, dense - center - (left.sum(axis=1) / (seen.sum(axis=1) + 0.7))[:, None], 0)
        items[:, rank] = left.sum(axis=0) / (seen.sum(axis=0) + 0.7)
    for _ in range(3):
        users = slow_solve(dense, seen, center, items)
        items = slow_solve(dense.T, seen.T, center, users)
    users = slow_solve(dense, seen, center, items)

    settings = {"regularization": 2.0, "bias_regularization": 0.7, "ridge_exponent": 0.5}
    estimator = ALS(rank=rank, iterations=3, dtype="float64", **settings)
    model = estimator.fit(ratings, no_privacy(), seed=4)
    np.testing.assert_allclose(model.item_factors, items[:, :rank], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.item_bias, items[:, rank], rtol=1e-6, atol=1e-9)
    scores = center + users[:, -1:] + items[:, -1] + users[:, :-1] @ items[:, :-1].T
    np.testing.assert_allclose(
        model.predict(ratings, ratings.domain.items), np.clip(scores, 1, 5), rtol=1e-5, atol=1e-5
    )


def test_likes_match_a_slow_twin() -> None:
    domain = Domain(items=[f"i{i}" for i in range(25)], rating_range=(0, 1))
    base = small()
    seen = base.matrix.toarray() > 0
    users, items = np.nonzero(seen)
    likes = Ratings.from_any(
        ([f"u{u}" for u in users], [f"i{i}" for i in items], np.ones(len(users))), domain
    )
    rank, weight, ridge = 2, 0.3, 1.5
    right = np.random.default_rng(1).standard_normal((25, rank)) * 0.3 / np.sqrt(rank)

    def solve(seen: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.array(
            [
                np.linalg.solve(
                    other[row].T @ other[row] + weight * other.T @ other + ridge * np.eye(rank),
                    other[row].sum(axis=0),
                )
                for row in seen
            ]
        )

    for _ in range(2):
        left = solve(seen, right)
        right = solve(seen.T, left)
    estimator = ALS(rank=rank, iterations=2, regularization=ridge, unobserved_weight=weight, dtype="float64")
    model = estimator.fit(likes, no_privacy(), seed=1)
    np.testing.assert_allclose(model.item_factors, right, rtol=1e-5, atol=1e-6)
    assert model.scores == "likes"
    assert np.all(model.item_bias == 0)


def test_quality_on_movielens_1m(real_data) -> None:
    """README: RMSE <= 0.855 on a random 90/10 split (peers reach 0.852 to 0.857)."""
    domain = Domain(items=range(1, 3953), rating_range=(1, 5))
    train, test = split_ratings(Ratings.from_any(real_data("ml-1m.parquet"), domain), (0.9, 0.1), seed=0)
    predicted = ALS().fit(train, no_privacy()).predict_pairs(train, test)
    assert math.sqrt(np.mean((predicted - test.matrix.data) ** 2)) <= 0.855


def test_a_fit_takes_little_more_than_the_ratings_a_second_time():
    rows = realistic(3000, 400, 300_000, seed=0)
    model = ALS(rank=4, iterations=1, regularization=1.0)
    model.fit(realistic(30, 10, 200, seed=0), no_privacy())
    tracemalloc.start()
    model.fit(rows, no_privacy())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 26 * rows.n_ratings


def means_in_turn(rows: dict[int, dict[int, float]], center: float, n_items: int) -> tuple:
    """Biases of items and ridges on offsets and biases by moments, six rounds; and the residual spread."""
    raters = [[u for u in rows if j in rows[u]] for j in range(n_items)]
    own = {u: [r - center for r in row.values()] for u, row in rows.items()}
    squares = sum((x - np.mean(each)) ** 2 for each in own.values() for x in each)
    many = [u for u in rows if len(own[u]) > 1]
    within = squares / max(sum(len(own[u]) - 1 for u in many), 1)
    between = np.mean([np.mean(own[u]) ** 2 - within / len(own[u]) for u in many]) if many else 0.0

    def ridge(signal: float) -> float:
        return within / max(signal, within / 200) if within else 1.0

    users, biases, total = ridge(between), np.zeros(n_items), sum(map(len, raters))
    for _ in range(6):
        offsets = {
            u: sum(r - center - biases[j] for j, r in row.items()) / (len(row) + users)
            for u, row in rows.items()
        }
        sums = [sum(rows[u][j] - center - offsets[u] for u in each) for j, each in enumerate(raters)]
        spread = sum(x * x / len(each) for x, each in zip(sums, raters) if each)
        items = ridge((spread - sum(map(bool, raters)) * within) / total)
        biases = np.array([x / (len(each) + items) for x, each in zip(sums, raters)])
    left = [(r - center - offsets[u] - biases[j]) ** 2 for u, row in rows.items() for j, r in row.items()]
    return biases, users, items, math.sqrt(np.mean(left))


@pytest.mark.parametrize("kind", ["usual", "one rating each", "all alike", "levels", "items"])
def test_biases_and_their_ridges_are_moments_of_the_ratings(kind: str) -> None:
    """Oracle: loops; also where a variance is zero, negative or unknown."""
    rng = np.random.default_rng(8)
    rows: dict[int, dict[int, float]] = {}
    for user in range(30):
        size = 1 if kind == "one rating each" else int(rng.integers(1, 9))
        chosen = rng.choice(11, size, replace=False)  # nobody rates the last item
        level, noise = {"levels": (user % 9, 0.05), "items": (0, 0.05)}.get(kind, (0, 1.0))
        rows[user] = {
            int(j): 4.0
            if kind == "all alike"
            else 3 + level + noise * rng.normal() + (j if kind == "items" else 0)
            for j in chosen
        }
    cells = [(user, j, r) for user, row in rows.items() for j, r in row.items()]
    ratings = Ratings.from_any(tuple(map(list, zip(*cells))), Domain(range(12), (0, 20)))
    rows = {u: {j: float(np.float32(r)) for j, r in row.items()} for u, row in rows.items()}
    by_items = csr(ratings.matrix.T.tocsr())
    found, given = (als._biases_first(ratings, by_items, 3.5, ridge, 6) for ridge in (None, 7.0))
    biases, offset_ridge, bias_ridge, noise = means_in_turn(rows, 3.5, 12)
    assert found.biases == pytest.approx(biases, abs=1e-9) and found.biases[11] == 0
    assert (found.offset_ridge, found.bias_ridge) == pytest.approx((offset_ridge, bias_ridge))
    assert found.noise == pytest.approx(noise)
    assert (given.offset_ridge, given.bias_ridge) == (7.0, 7.0)


def test_a_user_is_served_by_a_ridge_that_grows_with_their_ratings() -> None:
    """Oracle: normal equations in float64, one user at a time."""
    rng = np.random.default_rng(2)
    arrays = {
        "center": np.float64(3.3), "item_factors": rng.normal(size=(25, 3)).astype(np.float32),
        "item_bias": rng.normal(size=25), "regularization": np.float64(1.7),
        "bias_regularization": np.float64(0.9),
    }  # fmt: skip
    sizes = [0, 1, 2, 3, 5, 6, 11, 12, 23]
    cells = [(u, f"i{i}", float(rng.integers(1, 6))) for u, n in enumerate(sizes) for i in range(n)]
    domain = small().domain
    for given in (None, 0.4):
        model = ALS(ridge_exponent=0.8, bias_regularization=given)
        for user, size in enumerate(sizes):
            theirs = [each for each in cells if each[0] == user]
            state = model.fold_in(
                arrays, Ratings.from_any(tuple(map(list, zip(*theirs))) or ([], [], []), domain)
            )
            if not size:
                assert state.factors.shape == (0, 3)
                continue
            ridge = [1.7 * (2 ** round(math.log2(size))) ** 0.8] * 3 + [0.9]
            design = np.column_stack([arrays["item_factors"][:size].astype(float), np.ones(size)])
            target = np.array([each[2] for each in theirs]) - 3.3 - arrays["item_bias"][:size]
            wanted = np.linalg.solve(design.T @ design + np.diag(ridge), design.T @ target)
            found = np.r_[state.factors[0], state.offset[0]]
            assert found == pytest.approx(wanted, rel=1e-10, abs=1e-11)


def test_ratings_of_low_rank_without_noise_are_fitted() -> None:
    """The deviation after biases is taste there, and a ridge for that much noise keeps a third of it."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((600, 3)) @ rng.standard_normal((3, 120)) / math.sqrt(3)
    known = rng.random(truth.shape) < 0.4
    ratings = Ratings.from_any((*known.nonzero(), truth[known]), Domain(range(120), (-20, 20)))
    hidden = Ratings.from_any((*(~known).nonzero(), truth[~known]), ratings.domain)
    found = ALS().fit(ratings, no_privacy()).predict_pairs(ratings, hidden)
    assert np.sqrt(np.mean((found - hidden.matrix.data) ** 2)) < 0.03


def test_items_without_a_rating_do_not_change_the_ridge() -> None:
    rows, ridges = small(), []
    for more in ([], [f"more {place}" for place in range(30)]):
        wide = Ratings.from_any(rows.to_arrow(), Domain([*rows.domain.items, *more], rating_range=(1, 5)))
        ridges.append(ALS(rank=1, iterations=1).fit(wide, no_privacy()).arrays["regularization"])
    assert ridges[0] == pytest.approx(ridges[1])
