"""Half sweeps against dense normal equations, in any blocks."""

import numpy as np
import pytest
import scipy.sparse as sp

from hushrec.kernels.sweeps import SweepSettings, csr, gramian, half_sweep, ridge_fit

RNG = np.random.default_rng(11)
DENSE = RNG.normal(3, 1, (9, 14)) * (RNG.random((9, 14)) < 0.5)
DENSE[4] = 0  # somebody without ratings
MATRIX = csr(sp.csr_array(DENSE))
OTHER = RNG.normal(size=(14, 4))  # three factors, and offsets


def packed(matrix: np.ndarray) -> np.ndarray:
    return matrix[np.tril_indices(len(matrix))]


def test_outer_products_of_all_rows_are_added() -> None:
    for rows in (30, 10_000):
        factors = RNG.normal(size=(rows, 3))
        assert gramian(factors) == pytest.approx(packed(factors.T @ factors))
    assert gramian(factors[:0]).tolist() == [0.0] * 6


@pytest.mark.parametrize(("bias", "unobserved"), [(None, 0.0), (2.5, 0.0), (None, 0.3)])
def test_every_row_is_a_ridge_regression(bias, unobserved) -> None:
    """Factors and perhaps a constant fit ratings less level and offsets; unobserved cells count as 0."""
    settings = SweepSettings(regularization=0.7, bias_regularization=bias, unobserved_weight=unobserved)
    found = half_sweep(MATRIX, 3.0, OTHER, settings)
    for row, ratings in zip(found, DENSE):
        seen = ratings != 0
        design = OTHER[:, :3] if bias is None else np.column_stack([OTHER[:, :3], np.ones(14)])
        ridge = np.diag([0.7] * 3 + ([] if bias is None else [bias]))
        every = unobserved * design.T @ design if unobserved else 0.0
        target = (ratings - 3.0 - OTHER[:, 3])[seen]
        solved = np.linalg.solve(design[seen].T @ design[seen] + ridge + every, design[seen].T @ target)
        assert row == pytest.approx(np.append(solved, 0.0)[:4], abs=1e-9)
    if bias is None and not unobserved:
        plain = np.column_stack([OTHER[:, :3], np.zeros(14)])
        fitted = ridge_fit(sp.csr_array(DENSE), plain[:, :3], 0.7)
        assert fitted == pytest.approx(half_sweep(MATRIX, 0.0, plain, settings)[:, :3], abs=1e-9)
        assert ridge_fit(sp.csr_array(DENSE), plain[:, :0], 0.7).shape == (9, 0)
