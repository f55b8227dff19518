"""Symmetric matrices as packed lower triangles, in NumPy and SciPy alone.

Entry (a, b), b <= a, of a triangle of order n is number ``a * (a + 1) // 2 + b`` of ``n * (n + 1) // 2``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from hushrec.types import Array

#: Largest order for LAPACK's eigenpairs, which take a third of a second. Larger matrices use Lanczos
#: iterations: about as fast for 8 pairs, and several times faster for one.
LARGEST_DIRECT = 1200


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
    """Return the `count` largest eigenvalues of a symmetric matrix, descending, and orthonormal eigenvectors
    in columns."""
    order = len(matrix)
    if order > LARGEST_DIRECT and count < order // 10:
        try:
            values, vectors = eigsh(matrix, count, which="LA", v0=np.ones(order))
            best = np.argsort(-values)
            return values[best], vectors[:, best]
        except ArpackNoConvergence:
            pass
    values, vectors = eigh(matrix, subset_by_index=[order - count, order - 1])
    return values[::-1], vectors[:, ::-1]
