"""Frank-Wolfe on the rows of a sparse matrix: its users' step, and the top singular vector.

Everything is in float64. A row belongs to one thread and is summed in the order of its entries.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from hushrec.kernels import simd, threads
from hushrec.kernels.packed import LARGEST_DIRECT, top_eigenpairs, unpacked
from hushrec.kernels.sparse_rows import shrink
from hushrec.kernels.symmetric import outer_sums
from hushrec.types import Array


def frank_wolfe_rows(
    indptr: Array,
    indices: Array,
    residual: Array,
    iterate: Array,
    direction: Array,
    keep: float,
    gain: float,
    bound: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One step of every row: ``Pi(keep * iterate - gain * (residual . direction) direction)``.

    Pi scales a row down to norm ``bound`` on its entries (Jain, Thakkar and Thakurta 2018, Algorithm 1).

    Parameters
    ----------
    indptr, indices : arrays
        Structure of a CSR matrix.
    residual, iterate : (n_entries,) float64 arrays
        Iterate less target, and iterate, on the entries. The iterate is overwritten.
    direction : (n_cols,) float64 array
    keep, gain, bound : float

    Returns
    -------
    scale, coefficient : (n_rows,) float64 arrays
        The new row, off its entries too, is ``scale * old row + coefficient * direction``.
    """
    n_rows = len(indptr) - 1
    scale, coefficient = np.empty(n_rows), np.empty(n_rows)

    def step(start: int, stop: int) -> None:
        _step_range(
            indptr, indices, residual, iterate, direction, keep, gain, bound, start, stop, scale, coefficient
        )

    threads.run(step, np.diff(indptr) * 4.0 + 1.0)
    return scale, coefficient


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
    order = matrix.shape[1]
    if order <= LARGEST_DIRECT:
        square = unpacked(outer_sums(matrix.indptr, matrix.indices, matrix.data, order))
        values, vectors = top_eigenpairs(square, 1)
    else:
        operator = LinearOperator((order, order), matvec=lambda v: matrix.T @ (matrix @ v), dtype=np.float64)
        values, vectors = eigsh(operator, 1, which="LA", v0=np.ones(order))
    return math.sqrt(max(values[0], 0.0)), vectors[:, 0]


@simd.compiled
def _step_range(
    indptr, indices, residual, iterate, direction, keep, gain, bound, start, stop, scale, coefficient
):
    for row in range(start, stop):
        begin, end = indptr[row], indptr[row + 1]
        product = 0.0
        for k in range(begin, end):
            product += residual[k] * direction[indices[k]]
        added = -gain * product
        for k in range(begin, end):
            iterate[k] = keep * iterate[k] + added * direction[indices[k]]
        factor = shrink(iterate, begin, end, bound)
        scale[row], coefficient[row] = keep * factor, added * factor
