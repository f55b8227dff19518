"""Clips and Frank-Wolfe steps of sparse rows against dense NumPy."""

import numpy as np

from hushrec.kernels.sparse_rows import clipped_rows, frank_wolfe_rows
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
