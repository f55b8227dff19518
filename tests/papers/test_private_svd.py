"""Private SVD against a dense twin of Algorithm 4."""

import math

import numpy as np
import pytest

from hushrec.data.sampling import sample_per_user
from hushrec.kernels.packed import unpacked
from hushrec.papers.frank_wolfe import PrivateSVD
from hushrec.privacy import Accountant, Budget
from tests.papers.completion import N_ITEMS, completed, recorded, rows_of, small


def twin(ratings, calls, scale: str, rank: int, bound: float, ridge: float) -> np.ndarray:
    vectors = np.linalg.eigh(unpacked(calls[-1].output))[1][:, ::-1][:, :rank]
    rows = []
    for items, values, level in rows_of(ratings, "user"):
        row = np.zeros(N_ITEMS)
        row[items] = values * min(1.0, bound / max(np.linalg.norm(values), 1e-300))
        if scale == "ridge":
            own = math.sqrt(N_ITEMS) * vectors[items]
            solved = np.linalg.solve(own.T @ own + ridge * np.eye(rank), own.T @ values)
            rows.append(level + math.sqrt(N_ITEMS) * vectors @ solved)
            continue
        rows.append(level + N_ITEMS / max(len(items), 1) * vectors @ (vectors.T @ row))
    return np.array(rows)


@pytest.mark.usefixtures("plain_sums")
@pytest.mark.parametrize("scale", ["local", "ridge"])
def test_it_matches_a_dense_twin_of_algorithm_4(scale: str) -> None:
    ratings = small()
    estimator = PrivateSVD.of(rank=2, row_clip=1.0, scale=scale, regularization=0.7)
    model, calls = recorded(estimator, ratings)
    expected = twin(ratings, calls, scale, 2, 1.0, 0.7)
    np.testing.assert_allclose(completed(model, ratings), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("center", ["biases", "user", "middle"])
def test_rows_are_taken_from_released_levels_and_a_users_own(center: str) -> None:
    """A user's own is their mean deviation, with as many ratings of zero as the released ridge."""
    ratings, bias = small(), np.linspace(-0.4, 0.5, N_ITEMS)
    arrays = {"sampling_seed": np.int64(3), "center": np.float64(0.1), "item_bias": bias}
    damping = 2.5 if center == "biases" else 0.0
    arrays["bias_regularization"] = np.float64(damping)
    model = PrivateSVD(center=center, max_ratings_per_user=5)
    matrix, offset = model.rows(arrays, ratings)
    sampled = sample_per_user(ratings, 5, 3).matrix
    assert np.diff(sampled.indptr).max() == 5 and np.array_equal(matrix.indices, sampled.indices)
    for user, (start, stop) in enumerate(zip(sampled.indptr, sampled.indptr[1:])):
        exact = sampled.data[start:stop].astype(np.float64)
        deviations = exact - 0.1 - bias[sampled.indices[start:stop]]
        own = deviations.sum() / max(stop - start + damping, 1) if center != "middle" else 0.0
        assert offset[user] == pytest.approx(own, abs=1e-12)
        assert matrix.data[start:stop] == pytest.approx(deviations - own, abs=1e-12)


@pytest.mark.parametrize("scale", ["local", "ridge"])
def test_who_has_no_rating_is_served_with_the_level(scale: str) -> None:
    """A rank beyond the catalogue counts as that of all items."""
    model = PrivateSVD(rank=N_ITEMS + 3, scale=scale).fit(small(), Accountant(Budget(5.0, 1e-6)))
    assert model.item_factors.shape == (N_ITEMS, N_ITEMS)
    with np.errstate(all="raise"):
        found = model.predict({}, list(model.domain.items))
    assert found == pytest.approx(np.full(N_ITEMS, model.domain.midpoint))
