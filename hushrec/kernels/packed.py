"""Symmetric matrices as packed lower triangles, in NumPy and SciPy alone.

Entry (a, b), b <= a, of a triangle of order n is number ``a * (a + 1) // 2 + b`` of ``n * (n + 1) // 2``.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from hushrec.types import Array

#: Largest order for LAPACK's eigenpairs, which take a third of a second. Larger matrices use Lanczos
#: iterations: about as fast for 8 pairs, and several times faster for one.
LARGEST_DIRECT = 1200
#: Products with a matrix in :func:`ritz_pairs`, and order of the tiles in which a triangle is copied.
_DEPTH, _TILE = 10, 256


def frobenius_scale(order: int) -> NDArray[np.float64]:
    """Units of a packed triangle in which its Euclidean norm is the Frobenius norm of the matrix."""
    scale = np.full(order * (order + 1) // 2, math.sqrt(2.0))
    diagonal = np.arange(1, order + 1)
    scale[diagonal * (diagonal + 1) // 2 - 1] = 1.0
    return scale


def rectangle(order: int) -> tuple[tuple[int, int], NDArray[np.float64]]:
    """Return a shape for a diagonal and the packed rows below it, and the units of its rows.

    Entries are as many as in a packed triangle, and their units as in :func:`frobenius_scale`. The diagonal
    fills the first one or two rows, so that a large matrix needs one unit a row.
    """
    width = order if order % 2 else order // 2
    scale = np.full(((order + 1) * order // 2 // width, 1), math.sqrt(2.0))
    scale[: order // width] = 1.0
    return (len(scale), width), scale


def unpacked(packed: Array) -> NDArray[np.float64]:
    """The symmetric matrix of a packed lower triangle, shape (n, n)."""
    order = (math.isqrt(8 * len(packed) + 1) - 1) // 2
    full = np.zeros((order, order))
    rows, columns = np.tril_indices(order)
    full[rows, columns] = packed
    full[columns, rows] = packed
    return full


def from_rectangle(values: Array, order: int, dtype: npt.DTypeLike) -> Array:
    """Return the symmetric matrix of a flat :func:`rectangle`, shape (n, n)."""
    full = np.empty((order, order), dtype)
    np.fill_diagonal(full, values[:order])
    for row in range(1, order):
        full[row, :row] = values[order + row * (row - 1) // 2 :][:row]
    mirror(full)
    return full


def mirror(matrix: Array) -> None:
    """Copy the lower triangle of a matrix to the upper one."""
    for start in range(0, len(matrix), _TILE):
        tile = slice(start, start + _TILE)
        matrix[tile, start + _TILE :] = matrix[start + _TILE :, tile].T
        square = matrix[tile, tile]
        square[...] = np.tril(square) + np.tril(square, -1).T


def ritz_pairs(matrix: Array, width: int) -> tuple[NDArray[np.float64], Array]:
    """Return about the eigenvalues at both ends of a symmetric matrix's spectrum, ascending, and vectors.

    Block Lanczos iterations (Golub and Underwood 1977) from fixed starts with ``width`` columns. The
    eigenvalues are within the range of the exact ones. Small matrices have all, exactly.
    """
    order = len(matrix)
    if order <= width * _DEPTH:
        return np.linalg.eigh(matrix)
    basis = np.zeros((order, 0), matrix.dtype)
    products = basis
    block = np.random.default_rng(0).standard_normal((order, width)).astype(matrix.dtype)
    for _ in range(_DEPTH):
        for _ in range(2):  # once leaves rounding errors
            block -= basis @ (basis.T @ block)
            block = np.linalg.qr(block)[0]
        basis = np.hstack([basis, block])
        block = matrix @ block
        products = np.hstack([products, block])
    values, axes = np.linalg.eigh((basis.T @ products).astype(np.float64))
    return values, basis @ axes.astype(matrix.dtype)


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
