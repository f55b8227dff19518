"""SVD after cleansing against a dense twin, and its neighbours against interpolation weights."""

import math

import numpy as np
import pytest

from hushrec.data import Domain, Ratings
from hushrec.kernels.packed import unpacked
from hushrec.papers.mcsherry_mironov import CleansedSVD
from tests.opening import opened
from tests.papers.completion import N_ITEMS, completed, recorded, rows_of, small

BETA_M, BETA_P, BETA, CLAMP = 0.7, 2.0, 0.4, 0.5


def model_of(ratings, **changes):
    settings = {
        "item_shrinkage": BETA_M,
        "user_shrinkage": BETA_P,
        "covariance_shrinkage": BETA,
        "residual_clamp": CLAMP,
        "regularization": 0.3,
    }
    return recorded(CleansedSVD.of(**(settings | changes)), ratings)


def twin(ratings, calls):
    """Item means, residual rows, offsets and the cleansed covariance from the recorded releases."""
    sums, counts = np.split(calls[0].output, 2)
    counts = np.maximum(counts, 0)
    average = np.clip(sums.sum() / counts.sum(), -1, 1)
    means = np.clip((sums + BETA_M * average) / (counts + BETA_M), -1, 1)
    rows, offsets = [], []
    for items, values, _ in rows_of(ratings, "middle"):
        deviation = values - means[items]
        offsets.append(deviation.sum() / (len(items) + BETA_P))
        rows.append((items, np.clip(deviation - offsets[-1], -CLAMP, CLAMP)))
    covariance, weights = unpacked(calls[1].output), np.maximum(unpacked(calls[2].output), 0)
    cleansed = np.zeros((N_ITEMS, N_ITEMS))
    for a in range(N_ITEMS):
        for b in range(N_ITEMS):
            alike = np.eye(N_ITEMS, dtype=bool) if a == b else ~np.eye(N_ITEMS, dtype=bool)
            typical = covariance[alike].sum() / weights[alike].sum()
            cleansed[a, b] = (covariance[a, b] + BETA * typical) / (weights[a, b] + BETA)
    return means, counts, rows, np.array(offsets), cleansed


def truncated(cleansed: np.ndarray, counts: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Rank-r covariance, truncated where noise is the same everywhere, and a basis of its span."""
    root = np.sqrt(counts)
    values, vectors = np.linalg.eigh(cleansed * np.outer(root, root))
    kept = np.argsort(-values)[:rank]
    kept = kept[values[kept] > 0]
    low = (vectors[:, kept] * values[kept]) @ vectors[:, kept].T / np.outer(root, root)
    return low, np.linalg.qr(vectors[:, kept] / root[:, None])[0]


@pytest.mark.usefixtures("plain_sums")
def test_the_released_sums() -> None:
    ratings = small()
    _, calls = model_of(ratings)
    means, _, rows, _, _ = twin(ratings, calls)
    sums, counts = np.zeros(N_ITEMS), np.zeros(N_ITEMS)
    covariance, weights = np.zeros((N_ITEMS, N_ITEMS)), np.zeros((N_ITEMS, N_ITEMS))
    for (items, residual), (_, values, _) in zip(rows, rows_of(ratings, "middle")):
        if len(items):
            sums[items] += values / math.sqrt(len(items))
            counts[items] += 1 / math.sqrt(len(items))
            covariance[np.ix_(items, items)] += np.outer(residual, residual) / len(items)
            weights[np.ix_(items, items)] += 1 / len(items)
    np.testing.assert_allclose(calls[0].value, np.concatenate([sums, counts]), atol=1e-5)
    np.testing.assert_allclose(unpacked(calls[1].value), covariance, atol=1e-5)
    np.testing.assert_allclose(unpacked(calls[2].value), weights, atol=1e-5)


def test_projection_matches_a_dense_twin() -> None:
    ratings = small(n_users=200)
    model, calls = model_of(ratings, rank=3)
    means, counts, rows, offsets, cleansed = twin(ratings, calls)
    _, basis = truncated(cleansed, counts, 3)
    expected = []
    for (items, residual), offset in zip(rows, offsets):
        full = np.zeros(N_ITEMS)
        full[items] = residual
        expected.append(means + offset + basis @ (basis.T @ full))
    np.testing.assert_allclose(completed(model, ratings), expected, atol=1e-6)


@pytest.mark.parametrize("rank", [3, None])
def test_neighbours_are_interpolated_with_the_weights_of_the_covariance(rank: int | None) -> None:
    """Bell and Koren: own items' weights w for item j solve (C[own, own] + v I) w = C[own, j]."""
    ratings = small(n_users=200)
    model, calls = model_of(ratings, rank=rank, prediction="neighbours")
    means, counts, rows, offsets, cleansed = twin(ratings, calls)
    low, _ = truncated(cleansed, counts, N_ITEMS if rank is None else rank)
    expected = []
    for (items, residual), offset in zip(rows, offsets):
        weights = np.linalg.solve(low[np.ix_(items, items)] + 0.3 * np.eye(len(items)), low[items])
        expected.append(means + offset + residual @ weights)
    np.testing.assert_allclose(completed(model, ratings), expected, atol=1e-6)


def test_item_sums_of_a_narrow_range_far_from_zero_are_those_of_float64() -> None:
    """The middle of the range may have no float32. Oracle: exact fractions."""
    low = float(2**24)
    domain = Domain(["a", "b"], rating_range=(low, low + 7))
    rows = [("u", "a", low + 6), ("u", "b", low + 2), ("v", "b", low + 4), ("w", "a", low)]
    ratings = Ratings.from_any((*map(list, zip(*rows)),), domain)
    users = CleansedSVD(max_ratings_per_user=5).users(ratings)
    users.sample(0)
    sums = opened(users.item_means())
    each = 1 / math.sqrt(2)
    expected = [2.5 * each - 3.5, -1.5 * each + 0.5, each + 1, each + 1]
    assert sums == pytest.approx(expected, abs=1e-6)
