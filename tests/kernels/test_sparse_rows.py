"""Clips and Frank-Wolfe steps of sparse rows against dense NumPy."""

import math

import numpy as np
import pytest

from hushrec.kernels.sparse_rows import clipped_rows, row_sums
from hushrec.papers.frank_wolfe.rows import frank_wolfe_rows
from tests.kernels.test_symmetric import sparse


def test_rows_are_clipped_and_never_longer() -> None:
    matrix = sparse(1, 200)
    clipped = matrix.copy()
    clipped.data = clipped_rows(matrix.indptr, matrix.data, 0.7)
    before, after = (np.linalg.norm(each.toarray(), axis=1) for each in (matrix, clipped))
    assert (after <= 0.7).all()
    np.testing.assert_allclose(after, np.minimum(before, 0.7), rtol=1e-6)
    short = before <= 0.69
    assert (clipped.toarray()[short] == matrix.toarray()[short]).all()
    assert clipped_rows(matrix.indptr, matrix.data, np.inf).tobytes() == matrix.data.tobytes()


def test_a_step_is_the_papers() -> None:
    """Y <- Pi((1 - 1/T) Y - (k/T) u v^T) with Pi scaling the whole row by its norm on the entries."""
    rng = np.random.default_rng(2)
    target = sparse(3, 50)
    seen = target.toarray() != 0
    full = rng.standard_normal(target.shape)
    vector = rng.standard_normal(target.shape[1])
    iterate = full[seen]
    residual = iterate - target.data
    scale, coefficient = frank_wolfe_rows(
        target.indptr, target.indices, residual, iterate, vector, 0.9, 0.3, 1.1
    )
    products = np.where(seen, full - target.toarray(), 0) @ vector
    expected = 0.9 * full - 0.3 * np.outer(products, vector)
    norms = np.linalg.norm(np.where(seen, expected, 0), axis=1)
    expected *= np.minimum(1.0, 1.1 / np.maximum(norms, 1e-300))[:, None]
    np.testing.assert_allclose(scale[:, None] * full + np.outer(coefficient, vector), expected, atol=1e-12)
    np.testing.assert_allclose(iterate, expected[seen], atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("largest", [1.0, 3e38])
def test_rows_are_summed_in_float64(dtype, largest) -> None:
    """Each row alone: the others' entries change no bit of its sum, wherever it begins."""
    rng = np.random.default_rng(4)
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 3, 40) * rng.integers(0, 3000, 40))])
    values = (rng.uniform(0.5, 1.0, indptr[-1]) * largest).astype(dtype)
    sums = row_sums(indptr, values)
    assert sums.dtype == np.float64
    for row, (start, stop) in enumerate(zip(indptr, indptr[1:])):
        exact = math.fsum(values[start:stop].tolist())
        assert sums[row] == pytest.approx(exact, rel=1e-13, abs=0.0)
        assert sums[row] == row_sums(np.array([0, stop - start]), values[start:stop].copy())[0]
