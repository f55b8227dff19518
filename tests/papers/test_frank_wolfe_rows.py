"""Frank-Wolfe's step of sparse rows, and top singular vectors, against dense NumPy."""

import numpy as np
import pytest

from hushrec.kernels.sparse_rows import with_values
from hushrec.papers.frank_wolfe.frank_wolfe import Iterates, top_right_singular
from tests.kernels.test_symmetric import sparse


def test_a_step_is_the_papers() -> None:
    """Y <- Pi((1 - 1/T) Y - (k/T) u v^T) with Pi scaling the whole row by its norm on the entries."""
    rng = np.random.default_rng(2)
    target = sparse(3, 50)
    seen = target.toarray() != 0
    full = rng.standard_normal(target.shape)
    vector = rng.standard_normal(target.shape[1])
    users = Iterates(target, 1.1)
    users.iterate, users.coefficients = full[seen], np.ones((len(full), 1))
    users.advance(with_values(target, full[seen] - target.data), vector, 0.1, 3.0)
    scale, coefficient = users.coefficients.T
    products = np.where(seen, full - target.toarray(), 0) @ vector
    expected = 0.9 * full - 0.3 * np.outer(products, vector)
    norms = np.linalg.norm(np.where(seen, expected, 0), axis=1)
    expected *= np.minimum(1.0, 1.1 / np.maximum(norms, 1e-300))[:, None]
    np.testing.assert_allclose(scale[:, None] * full + np.outer(coefficient, vector), expected, atol=1e-12)
    np.testing.assert_allclose(users.iterate, expected[seen], atol=1e-12)


@pytest.mark.parametrize("n_cols", [20, 1400])
def test_top_right_singular(n_cols: int) -> None:
    matrix = sparse(4, 60, n_cols, 0.1)
    value, vector = top_right_singular(matrix)
    _, values, vectors = np.linalg.svd(matrix.toarray(), full_matrices=False)
    assert value == pytest.approx(values[0], rel=1e-9)
    assert abs(vectors[0] @ vector) == pytest.approx(1.0, abs=1e-9)
