"""Clips and sums of sparse rows against dense NumPy."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from hushrec.kernels.sparse_rows import (
    at_columns,
    clipped_rows,
    row_sums,
    used_columns,
)
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


def test_rows_over_the_columns_that_occur_in_them() -> None:
    """And these columns' rows of each table; rows with as many entries as columns are left as they are."""
    rng = np.random.default_rng(7)
    one, two = rng.normal(size=(50, 3)), np.arange(50)
    for cells in ([[4, 9, 30]], [[30, 4, 9]], [[4, 9], [], [9, 49]], [[], []]):
        indices = np.array([j for row in cells for j in row], dtype=np.int32)
        ends, values = np.cumsum([0, *map(len, cells)]), rng.normal(size=len(indices))
        rows = sp.csr_array((values, indices, ends), shape=(len(cells), 50))
        found, tables = used_columns(rows, one, two)
        assert tables[1].tolist() == sorted({j for row in cells for j in row})
        assert np.array_equal(found.toarray(), rows.toarray()[:, tables[1]])
        assert np.array_equal(tables[0], one[tables[1]])
    full = sp.csr_array(rng.normal(size=(10, 50)))
    found, tables = used_columns(full, one)
    assert found is full and tables[0] is one
    single = sp.csr_array(np.eye(1, 1))
    assert used_columns(single, one[:1])[0] is single
