"""Projected gradients against dense twins of Algorithm 5, and the row clip that makes it private."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from hushrec.kernels.packed import unpacked
from hushrec.papers.frank_wolfe import PrivateProjectedGradient, ProjectedGradient, projected_gradient
from hushrec.papers.frank_wolfe.projected_gradient import FullRows
from tests.opening import opened
from tests.papers.completion import completed, exact, recorded, small

STEPS = ProjectedGradient.Tuning(step_size=0.5, step_decay=0.0)


def targets(ratings) -> tuple[np.ndarray, np.ndarray]:
    dense = ratings.matrix.toarray().astype(np.float64)
    return dense, dense != 0


def lowered(values: np.ndarray, radius: float) -> np.ndarray:
    """Singular values less what brings their sum to the radius, by bisection."""
    low, high = 0.0, values.max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(values - middle, 0).sum() > radius else (low, middle)
    return np.maximum(values - (high if values.sum() > radius else 0), 0)


def project(matrix: np.ndarray, radius: float) -> np.ndarray:
    """Nearest matrix of nuclear norm at most ``radius``."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return left * lowered(values, radius) @ right


def test_without_privacy_it_is_projected_gradient_descent() -> None:
    """P1: Y <- Pi(Y - eta P(Y - Y*)), with Y of the step before."""
    ratings = small()
    target, seen = targets(ratings)
    model = exact(
        ProjectedGradient.of(nuclear_norm=8.0, iterations=6, step_size=0.9, step_decay=0.5, center="middle"),
        ratings,
    )
    matrix = np.zeros_like(target)
    for step in range(1, 7):
        matrix = project(matrix - 0.9 / math.sqrt(step) * np.where(seen, matrix - target, 0), 8.0)
    np.testing.assert_allclose(completed(model, ratings), matrix, atol=1e-5)
    assert np.linalg.norm(completed(model, ratings), "nuc") <= 8.0 * (1 + 1e-6)


@pytest.mark.usefixtures("plain_sums")
def test_private_steps_match_a_dense_twin() -> None:
    ratings = small()
    target, seen = targets(ratings)
    estimator = PrivateProjectedGradient.of(
        nuclear_norm=8.0, iterations=4, step_size=0.5, row_clip=0.6, center="middle"
    )
    model, calls = recorded(estimator, ratings)
    matrix = np.zeros_like(target)
    for call in calls:
        matrix = matrix - 0.5 * np.where(seen, matrix - target, 0)
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        matrix = matrix * np.minimum(1.0, 0.6 / np.maximum(norms, 1e-300))
        np.testing.assert_allclose(unpacked(call.value), matrix.T @ matrix, rtol=1e-6, atol=1e-6)
        squares, vectors = np.linalg.eigh(unpacked(call.output))
        kept = squares > 0  # P3: what noise has made negative is dropped
        values, vectors = np.sqrt(squares[kept]), vectors[:, kept]
        matrix = matrix @ (vectors * (lowered(values, 8.0) / values)) @ vectors.T
    np.testing.assert_allclose(completed(model, ratings), matrix, atol=1e-6)


def test_a_row_is_clipped_by_itself_alone():
    """Rows longer than NumPy's buffer: einsum would sum a lone row in another order than one of two."""
    rng = np.random.default_rng(0)
    wide = sp.csr_array(rng.normal(size=(5, 9000)))

    def rows(count):
        return np.concatenate([block for _, block in FullRows(wide[:count], 1.0, STEPS).stepped()])

    for count in range(1, 5):
        assert np.array_equal(rows(count), rows(5)[:count])


@pytest.mark.parametrize("clip", [0.6, 3.0, 9.0])
def test_sums_of_full_rows_are_on_the_grid_that_they_declare(clip: float) -> None:
    ratings = small()
    relative = clip / ratings.domain.half_width
    model = PrivateProjectedGradient(nuclear_norm=8.0, row_clip=relative, center="middle")
    users = model.users(ratings)
    users.begin(model._level(users, None, 0))
    found = users.gram()
    steps = opened(found) / float(found.step)
    assert (steps == np.rint(steps)).all() and (steps % 2).any()
    assert float(found.step) == 4.0 ** (math.floor(math.log2(clip)) + 1 - 14)


@pytest.mark.parametrize("block", [1, 4, 5, 9, 11])
def test_rows_are_stepped_in_blocks_of_at_least_one(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row may be longer than a block; the blocks together are what all rows at once are."""
    targets = sp.csr_array(np.random.default_rng(3).normal(size=(7, 5)))
    whole = np.concatenate([rows for _, rows in FullRows(targets, 1.0, STEPS).stepped()])
    monkeypatch.setattr(projected_gradient, "_BLOCK", block)
    found = list(FullRows(targets, 1.0, STEPS).stepped())
    assert len(found) == (4 if block > 9 else 7)
    assert np.array_equal(np.concatenate([rows for _, rows in found]), whole)
