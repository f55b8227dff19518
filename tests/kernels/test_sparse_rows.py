"""Clips and sums of sparse rows against dense NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from hushrec.kernels.sparse_rows import at_columns, clipped_rows, from_threshold
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


def test_a_rating_at_a_threshold_that_float32_rounds_is_a_like() -> None:
    values = np.array([4.1, np.nextafter(np.float32(4.1), np.float32(0)), np.nan, 1.0, 5.0], np.float32)
    assert float(values[0]) < 4.1
    starts, columns, kept = from_threshold((np.array([0, 2, 2, 5]), np.arange(5), values), 4.1)
    assert starts.tolist() == [0, 1, 1, 3] and columns.tolist() == [0, 2, 4]
    assert np.isnan(kept[1]) and kept[[0, 2]].tolist() == [values[0], 5.0]  # a purchase has no rating


@pytest.mark.parametrize("density", [0.0, 0.1, 0.6])
def test_entries_in_some_columns_are_those_of_the_dense_matrix(density: float) -> None:
    rng = np.random.default_rng(6)
    dense = rng.normal(size=(30, 12)) * (rng.random((30, 12)) < density)
    matrix = sp.csr_array(dense)
    for chosen in (rng.random(12) < 0.5, np.arange(12) == 11, np.zeros(12, bool), np.ones(12, bool)):
        found = at_columns(matrix, chosen)
        assert found.shape == (30, chosen.sum()) and np.array_equal(found.toarray(), dense[:, chosen])
        assert found.indices.dtype == matrix.indices.dtype and found.has_sorted_indices
        assert (np.diff(found.indptr) == (dense[:, chosen] != 0).sum(axis=1)).all()
    assert at_columns(matrix, np.ones(12, bool)) is matrix
