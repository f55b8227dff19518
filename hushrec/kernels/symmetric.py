"""Symmetric matrices of order n as packed lower triangles: sums of outer products, eigenpairs, thresholds.

Entry (a, b), b <= a, of a packed triangle is number ``a * (a + 1) // 2 + b``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.kernels import simd, threads
from hushrec.kernels.arrays import check_csr

#: Orders up to this get all of LAPACK's accuracy, larger ones Lanczos iterations.
_LARGEST_DIRECT = 1200

Array = NDArray[Any]


def outer_sums(indptr: Array, indices: Array, values: Array, n_cols: int) -> NDArray[np.float64]:
    """Sum of the outer products of the rows of a sparse matrix, ``A.T @ A``.

    An entry of the result is summed by one thread, in the order of the rows. Time is proportional to the
    sum of the squared numbers of entries of the rows.

    Parameters
    ----------
    indptr, indices, values : arrays
        CSR matrix with ascending column indices.
    n_cols : int

    Returns
    -------
    (n_cols * (n_cols + 1) // 2,) float64 array
        Packed lower triangle.
    """
    indptr, indices, values = check_csr(indptr, indices, values, n_cols)
    packed = np.zeros(n_cols * (n_cols + 1) // 2)
    counts = np.bincount(indices, minlength=n_cols).astype(np.float64)
    work = counts * np.cumsum(counts)
    # every range reads all rows, hence few ranges
    work *= 2 * threads.SMALLEST_RANGE * threads.count() / max(work.sum(), 1.0)
    columns = indices.view(np.uint32 if indices.dtype.itemsize == 4 else np.uint64)

    def accumulate(start: int, stop: int) -> None:
        _outer_range(indptr, columns, values.astype(np.float64, copy=False), start, stop, packed)

    threads.run(accumulate, work)
    return packed


def frobenius_scale(order: int) -> NDArray[np.float64]:
    """Units of a packed triangle in which its Euclidean norm is the Frobenius norm of the matrix."""
    scale = np.full(order * (order + 1) // 2, math.sqrt(2.0))
    diagonal = np.arange(1, order + 1)
    scale[diagonal * (diagonal + 1) // 2 - 1] = 1.0
    return scale


def unpacked(packed: Array) -> NDArray[np.float64]:
    """The symmetric matrix of a packed lower triangle, shape (n, n)."""
    order = (math.isqrt(8 * len(packed) + 1) - 1) // 2
    full = np.zeros((order, order))
    rows, columns = np.tril_indices(order)
    full[rows, columns] = packed
    full[columns, rows] = packed
    return full


def top_eigenpairs(matrix: Array, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Largest eigenvalues of a symmetric matrix and their orthonormal eigenvectors, from a fixed start.

    Parameters
    ----------
    matrix : (n, n) array
    count : int
        At most n.

    Returns
    -------
    values : (count,) array
        Descending.
    vectors : (n, count) array
    """
    from scipy.linalg import eigh
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    order = len(matrix)
    if order > _LARGEST_DIRECT and count < order // 10:
        try:
            values, vectors = eigsh(matrix, count, which="LA", v0=np.ones(order))
            best = np.argsort(-values)
            return values[best], vectors[:, best]
        except ArpackNoConvergence:
            pass
    values, vectors = eigh(matrix, subset_by_index=[order - count, order - 1])
    return values[::-1], vectors[:, ::-1]


def top_right_singular(matrix: Any) -> tuple[float, NDArray[np.float64]]:
    """Largest singular value of a sparse matrix and its right singular vector, from a fixed start.

    Parameters
    ----------
    matrix : SciPy CSR array of shape (n_rows, n_cols)

    Returns
    -------
    value : float
    vector : (n_cols,) array
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    order = matrix.shape[1]
    if order <= _LARGEST_DIRECT:
        square = unpacked(outer_sums(matrix.indptr, matrix.indices, matrix.data, order))
        values, vectors = top_eigenpairs(square, 1)
    else:
        operator = LinearOperator((order, order), matvec=lambda v: matrix.T @ (matrix @ v), dtype=np.float64)
        values, vectors = eigsh(operator, 1, which="LA", v0=np.ones(order))
    return math.sqrt(max(values[0], 0.0)), vectors[:, 0]


def nuclear_threshold(singular_values: Array, bound: float) -> NDArray[np.float64]:
    """Singular values soft-thresholded so that they add up to at most ``bound``.

    This is the Euclidean projection onto the ball of the nuclear norm (Duchi et al. 2008 for the simplex).

    Parameters
    ----------
    singular_values : (n,) array
        Not negative, descending.
    bound : float
        Greater than 0.

    Returns
    -------
    (n,) array
    """
    excess = np.cumsum(singular_values) - bound
    if len(excess) == 0 or excess[-1] <= 0:
        return np.array(singular_values, dtype=np.float64)
    taus = excess / np.arange(1, len(excess) + 1)
    tau = taus[np.flatnonzero(singular_values > taus)[-1]]
    return np.maximum(singular_values - tau, 0.0)


@simd.compiled
def _outer_range(indptr, columns, values, start, stop, packed):
    """Rows start, ..., stop - 1 of the packed triangle."""
    for row in range(len(indptr) - 1):
        begin, end = indptr[row], indptr[row + 1]
        for a in range(begin, end):
            column = np.uint64(columns[a])
            if column >= stop:
                break
            if column < start:
                continue
            base = column * (column + np.uint64(1)) // np.uint64(2)
            value = values[a]
            for b in range(begin, a + 1):
                packed[base + np.uint64(columns[b])] += value * values[b]
