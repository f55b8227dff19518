"""Corrective Frank-Wolfe: refits, strengths of directions; every algorithm of the paper in a comparison."""

import math

import numpy as np
import pytest

from hushrec.kernels.packed import unpacked
from hushrec.papers.frank_wolfe import CorrectiveFrankWolfe
from hushrec.privacy import Budget
from tests.papers.completion import N_ITEMS, completed, recorded, rows_of, small


@pytest.mark.usefixtures("plain_sums")
def test_steps_match_a_dense_twin() -> None:
    """Residuals of refits, hollow noisy matrix, several directions at their strength; twice."""
    ratings = small()
    estimator = CorrectiveFrankWolfe.of(
        iterations=2, block=2, residual_clip=1.0, regularization=0.5, center="user"
    )
    model, calls = recorded(estimator, ratings)
    rows = list(rows_of(ratings, "user"))
    noise_sd = estimator.plan(Budget(50.0, 1e-6), ratings.domain).releases[0].noise_sd
    edge = noise_sd * (math.sqrt(2 * N_ITEMS) + math.sqrt(2 * math.log(2 / 0.1)))
    directions, strongest = np.zeros((N_ITEMS, 0)), 0.0

    def refit(items: np.ndarray, values: np.ndarray) -> np.ndarray:
        own = directions[items]
        ridge = 0.5 / N_ITEMS * np.eye(directions.shape[1])
        return np.linalg.solve(own.T @ own + ridge, own.T @ values) if len(ridge) else np.zeros(0)

    for call in calls:
        expected = np.zeros((N_ITEMS, N_ITEMS))
        for items, values, _ in rows:
            residual = np.zeros(N_ITEMS)
            residual[items] = values - directions[items] @ refit(items, values)
            residual *= min(1.0, 1.0 / max(np.linalg.norm(residual), 1e-300))
            expected += np.outer(residual, residual)
        np.testing.assert_allclose(unpacked(call.value), expected, atol=1e-5)
        hollow = unpacked(call.output)
        np.fill_diagonal(hollow, 0)
        values, vectors = (each[..., ::-1][..., :2] for each in np.linalg.eigh(hollow))
        strengths = np.sqrt(np.maximum(np.maximum(values, 0) ** 2 - edge**2, 0))
        strongest = max(strongest, strengths[0])
        directions = np.hstack([directions, vectors * np.sqrt(np.minimum(strengths / strongest, 1))])
    expected = [level + directions @ refit(items, values) for items, values, level in rows]
    np.testing.assert_allclose(completed(model, ratings), expected, atol=1e-5)
