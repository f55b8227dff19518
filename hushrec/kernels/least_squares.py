"""Ridge regressions of all rows of a sparse matrix on shared factors: the work of alternating least squares.

Row i of a CSR matrix minimises ``sum_j w_ij (t_ij - x . factors_j)^2 + x . ridge_i x`` over its entries, with
targets ``t_ij = values_ij - col_offset_j`` and weights ``w_ij = row_weight_i * col_weight_j >= 0``. One
thread sums a row in the order of its entries, so results do not depend on the number of threads or on the
other rows.

Symmetric matrices are packed lower triangles (:mod:`hushrec.kernels.packed`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.kernels import loops, threads
from hushrec.kernels.arrays import (
    BYTES,
    Array,
    check_csr,
    cholesky_scratch,
    column_terms,
    float_type,
    padded,
    vector,
)
from hushrec.kernels.fixed_point import truncated

BLOCK_BYTES = 24576  # gathered factor rows: they stay in a first-level cache of 32 KB


def normal_equations(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    values: Array,
    factors: Array,
    *,
    col_offset: Array | None = None,
    row_weight: Array | None = None,
    col_weight: Array | None = None,
    clip: float = np.inf,
    factor_step: float = 0.0,
    rhs_step: float = 0.0,
) -> tuple[Array, Array]:
    """Return the Gramians and right-hand sides of all rows.

    Parameters
    ----------
    factors : (n_cols, d) array
        float32 or float64; results have its type and are computed in it.
    clip : float
        Targets are clipped to [-clip, clip].
    factor_step, rhs_step : float
        The weighted factors ``sqrt(col_weight_j) * factors_j`` and the terms of `rhs` are truncated towards
        zero to multiples of these powers of two (float64 only, and `row_weight` must be powers of two). 0: no
        truncation.

    Returns
    -------
    gram : (n_rows, d * (d + 1) // 2) array
        ``sum_j w_ij factors_j factors_j^T``, packed lower triangles.
    rhs : (n_rows, d) array
        ``sum_j w_ij t_ij factors_j``. Rows without entries are zero in both.
    """
    if (factor_step or rhs_step) and factors.dtype != np.float64:
        raise ValueError(f"exact sums need float64 factors, not {factors.dtype}.")
    if (factor_step or rhs_step) and row_weight is not None and (np.frexp(row_weight)[0] != 0.5).any():
        raise ValueError("exact sums need powers of two as row_weight.")
    arrays, work = _arguments(indptr, indices, values, factors, col_offset, row_weight, col_weight)
    table = arrays[3]
    table[:] = truncated(table, factor_step)
    n_rows, rank = len(work), factors.shape[1]
    gram = np.empty((n_rows, rank * (rank + 1) // 2), table.dtype)
    rhs = np.empty((n_rows, rank), table.dtype)

    solution, ridge = np.empty((0, rank), table.dtype), (np.empty(rank, table.dtype), rank)
    growth = np.empty(0, table.dtype)
    row_range = loops.active().row_range

    def accumulate(start: int, stop: int) -> None:
        part = gram[start:stop], rhs[start:stop]
        steps = float(clip), float(rhs_step) or None, start, stop, True, False
        row_range(*arrays, *steps, *part, *ridge, growth, solution, *_scratch(rank, table.dtype))

    threads.run(accumulate, work)
    return gram, rhs


def ridge_solve(gram: Array, rhs: Array, ridge: Array | float) -> Array:
    """Solve ``(gram_i + diag(ridge)) x_i = rhs_i`` for every row i by Cholesky; shape (n_rows, d).

    A pivot up to d * machine epsilon times its diagonal counts as zero, and so does its unknown. Rows without
    entries solve to zero, and nothing raises.
    """
    dtype = float_type(gram)  # never read-only, which numba takes for another type
    gram, rhs = np.require(gram, dtype, ("C", "W")), np.require(rhs, dtype, ("C", "W"))
    n_rows, rank = rhs.shape
    if gram.shape != (n_rows, rank * (rank + 1) // 2):
        raise ValueError(f"gram has shape {gram.shape}, which does not fit rhs of shape {rhs.shape}.")
    ridges = vector(ridge, rank, dtype), rank, np.ones(n_rows, dtype)
    solution = np.empty((n_rows, rank), dtype)

    nothing = [np.empty(shape, dtype) for shape in (0, (0, rank), (0, 2), 0)]
    arrays = np.zeros(1, np.int64), np.empty(0, np.int32), *nothing
    row_range = loops.active().row_range

    def solve(start: int, stop: int) -> None:
        part = gram[start:stop], rhs[start:stop], *ridges, solution[start:stop]
        row_range(*arrays, np.inf, None, start, stop, False, True, *part, *_scratch(rank, dtype))

    threads.run(solve, np.full(n_rows, _solve_work(rank)))
    return solution


def solve_rows(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    values: Array,
    factors: Array,
    ridge: Array | float,
    *,
    growth: Array | float = 1.0,
    col_offset: Array | None = None,
    constant: bool = False,
) -> Array:
    """`normal_equations` then `ridge_solve`, bit for bit, without ever holding all Gramians.

    ``growth``, of shape (n_rows,), multiplies each row's ridge. If ``constant``, the last column of the
    factors counts as 1, and its ridge does not grow.
    """
    arrays, work = _arguments(indptr, indices, values, factors, col_offset)
    if constant:
        arrays[3][:, factors.shape[1] - 1] = 1
    rank, dtype = factors.shape[1], factors.dtype
    ridges = vector(ridge, rank, dtype), rank - constant, vector(growth, len(work), dtype)
    solution = np.empty((len(work), rank), dtype)
    row_range = loops.active().row_range

    def solve(start: int, stop: int) -> None:
        rows = BYTES // dtype.itemsize  # that are solved side by side
        gram, rhs = np.empty((rows, rank * (rank + 1) // 2), dtype), np.empty((rows, rank), dtype)
        part = gram, rhs, *ridges, solution[start:stop]
        row_range(*arrays, np.inf, None, start, stop, True, True, *part, *_scratch(rank, dtype))

    threads.run(solve, work + _solve_work(rank))
    return solution


def _arguments(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    values: Array,
    factors: Array,
    col_offset: Array | None,
    row_weight: Array | None = None,
    col_weight: Array | None = None,
) -> tuple[tuple[NDArray[Any], ...], NDArray[np.float64]]:
    (n_cols, rank), dtype = factors.shape, float_type(factors)
    indptr, indices, values = check_csr(indptr, indices, values, n_cols)
    values = values.astype(dtype, copy=False)  # or the kernel would be compiled for pairs of types
    scale = None if col_weight is None else np.sqrt(np.asarray(col_weight, dtype))
    columns = column_terms(n_cols, dtype, col_offset, scale)
    weight = vector(1.0 if row_weight is None else row_weight, len(indptr) - 1, dtype)
    work = (indptr[1:] - indptr[:-1]) * (rank * (rank + 3.0) / 2.0)
    return (indptr, indices, values, padded(factors, scale), columns, weight), work


def _scratch(rank: int, dtype: np.dtype) -> tuple[Any, ...]:
    """Return the relative size of a pivot that counts as zero, and the scratch memory of `row_range`."""
    small, *sizes = _sizes(rank, dtype)
    return small, *cholesky_scratch(rank, dtype, *sizes)


@cache
def _sizes(rank: int, dtype: np.dtype) -> tuple[Any, ...]:
    lanes = BYTES // dtype.itemsize
    width = -(-rank // lanes) * lanes
    size = max(BLOCK_BYTES // (max(width, 1) * dtype.itemsize), 8)
    return dtype.type(rank * np.finfo(dtype).eps), size * width, size, rank * width, width


def _solve_work(rank: int) -> float:
    return (rank + 1.0) ** 3 / 6.0 + 2.0 * rank**2
