"""Residuals of a factor model on the entries of a sparse matrix, and their sums.

The residual of entry (i, j) is ``values_ij - row_offset_i - col_offset_j - row_factors_i . col_factors_j``,
in float64, for factors of any type. It has the same bits from either side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.kernels import loops, threads
from hushrec.kernels.arrays import BYTES, Array, aligned, check_csr, column_terms, padded, vector

TABLES_BYTES = 1 << 30  # of sums that threads hold: there are fewer threads where they would take more
ENTRIES = 1 << 18  # block of kept residuals: 2 MB
PART_ROWS = 1 << 13  # block of padded factors: 4 MB at rank 64


def added_residuals(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    values: Array,
    row_factors: Array,
    col_factors: Array,
    *,
    row_reach: Array | None = None,
    row_shrink: Array | None = None,
    bound: float = np.inf,
    step: float,
    **terms: Array | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each column's clipped sum over the rows of their weighted residuals times their factors.

    Parameters
    ----------
    indptr, indices, values : arrays
        CSR matrix; column indices below ``len(col_factors)``.
    row_factors, col_factors : (n_rows, d) and (n_cols, d) arrays
        float32 or float64. Without factors of the columns no product is subtracted. Without factors of the
        rows a constant 1 replaces them.
    row_reach : (n_rows,) array, optional
        Multiplies a row's norm before the comparison.
    row_shrink : (n_rows,) array, optional
        Largest scale of a row, at most 1.
    bound : float
        Largest norm of a row's weighted residuals, times its reach. A longer row is scaled down, and a row
        with a norm that is not finite counts as zero.
    step : float
        Power of two of which every product is made a multiple, towards zero, before it is added: the sums
        do not depend on the order of the rows.
    **terms
        Offsets of rows and columns, subtracted from the values, and weights of both, which multiply.

    Returns
    -------
    sums : (n_cols, d) float64 array
        ``sum_i shrink_i * row_weight_i * col_weight_j * residual_ij * row_factors_i``; d = 1 for a constant.
    shrink : (n_rows,) float64 array
    """
    arrays, work = _arguments(indptr, indices, values, row_factors, col_factors, **terms)
    columns = arrays[5]
    columns[:, 1] /= step
    reach, shrink = (_ones(per_row, len(work)) for per_row in (row_reach, row_shrink))
    clip, norms = (reach, float(bound), float(step)), np.empty(len(work))

    def accumulate(table: Array, start: int, stop: int) -> None:
        _in_parts(arrays, clip, start, stop, table, shrink, norms)

    total = _added(accumulate, 2 * work + 2.0, (len(col_factors), max(_width(arrays), 1)))
    return total[:, : max(row_factors.shape[1], 1)] * step, shrink


def _width(arrays: tuple[NDArray[Any], ...]) -> int:
    lanes = BYTES // np.result_type(arrays[3], arrays[4]).itemsize
    return -(-arrays[3].shape[1] // lanes) * lanes


def _in_parts(
    arrays: tuple[NDArray[Any], ...],
    clip: tuple[Array, float, float],
    start: int,
    stop: int,
    table: Array,
    shrink: Array,
    norms: Array,
) -> None:
    (indptr, indices, values, left, right, columns, *by_row), (reach, *limits) = arrays, clip
    width, precise = _width(arrays), np.result_type(left, right)
    scratch = [np.empty(0)] * 2
    while start < stop:
        end = int(np.searchsorted(indptr, indptr[start] + ENTRIES, side="right")) - 1
        end = min(max(end, start + 1), start + PART_ROWS, stop)
        if (size := int(indptr[end] - indptr[start])) > len(scratch[1]):  # new memory costs more than its use
            size = max(size, min(ENTRIES, int(indptr[stop] - indptr[start])))
            scratch = aligned(np.dtype(np.float64), width, size)
        rows = slice(start, end)
        factors = padded(left[rows].astype(precise, copy=False))
        part = *(array[rows] for array in by_row), reach[rows], *limits
        entries = indptr[start : end + 1], indices, values
        out = table, shrink[rows], norms[rows]
        loops.active().clipped_range(*entries, factors, right, columns, *part, 0, end - start, *out, *scratch)
        start = end


def added_weights(
    indptr: NDArray[np.integer], indices: NDArray[np.integer], weights: Array, n_cols: int
) -> NDArray[np.float64]:
    """Return the sum of the rows' weights over each column's entries; exact for fixed-point weights."""
    starts, columns, _ = check_csr(indptr, indices, np.zeros(len(indices), np.float32), n_cols)
    rows = vector(weights, len(starts) - 1, np.dtype(np.float64))
    weight_range = loops.active().weight_range

    def accumulate(table: Array, start: int, stop: int) -> None:
        weight_range(starts, columns, rows, start, stop, table)

    return _added(accumulate, np.diff(starts) + 1.0, (n_cols, 1))[:, 0]


def _added(
    accumulate: Callable[[Array, int, int], None], work: Array, shape: tuple[int, int]
) -> NDArray[np.float64]:
    """Return the sum of the tables that threads add to, each to its own."""
    tables: list[NDArray[np.float64]] = []
    spare: list[NDArray[np.float64]] = []

    def on_a_table(start: int, stop: int) -> None:
        try:
            table = spare.pop()
        except IndexError:
            table = aligned(np.dtype(np.float64), shape[0] * shape[1])[0].reshape(shape)
            tables.append(table)
        accumulate(table, start, stop)
        spare.append(table)

    with threads.limit(max(1, min(threads.count(), TABLES_BYTES // (8 * shape[0] * shape[1] + 1)))):
        threads.run(on_a_table, work)
    total = tables.pop() if tables else np.zeros(shape)
    for table in tables:
        total += table
    return total


def residual_norms(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    values: Array,
    row_factors: Array,
    col_factors: Array,
    **terms: Array | None,
) -> NDArray[np.float64]:
    """Return the Euclidean norms of the rows' weighted residuals, shape (n_rows,).

    Parameters as in `added_residuals`, except the row weights, the bound and the step.
    """
    arrays, work = _arguments(indptr, indices, values, row_factors, col_factors, **terms)
    norms, ones = np.empty(len(work)), np.ones(len(work))

    def compute(start: int, stop: int) -> None:
        _in_parts(arrays, (ones, np.inf, 1.0), start, stop, np.empty((0, 1)), ones.copy(), norms)

    threads.run(compute, work)
    return norms


def predict_pairs(
    user_rows: NDArray[np.integer], item_rows: NDArray[np.integer], user_factors: Array, item_factors: Array
) -> NDArray[np.float64]:
    """Return dot products of pairs of factor rows (float32 or float64), shape (n,)."""
    users, items = np.ascontiguousarray(user_rows, np.int64), np.ascontiguousarray(item_rows, np.int64)
    if users.shape != items.shape or user_factors.shape[1] != item_factors.shape[1]:
        raise ValueError("user and item arrays differ in length or rank.")
    for rows, factors in ((users, user_factors), (items, item_factors)):
        if len(rows) and rows.view(np.uint64).max() >= len(factors):
            raise ValueError(f"a row is not among the {len(factors)} factor rows.")
    tables = padded(user_factors), padded(item_factors)
    products = np.empty(len(users))
    product_range = loops.active().product_range

    def multiply(start: int, stop: int) -> None:
        product_range(users, items, *tables, start, stop, products)

    threads.run(multiply, np.full(len(users), 2.0 * user_factors.shape[1]))
    return products


def row_products(left: Array, right: Array) -> NDArray[np.float64]:
    """Return the matrix product. Each row of it is a function of its row of `left` and of `right` alone.

    BLAS sums a row in an order that can depend on how many rows there are.
    """
    rows = np.ascontiguousarray(left, dtype=np.float64)
    table = padded(np.asarray(right, dtype=np.float64))
    products = np.empty((len(rows), right.shape[1]))
    row_product_range = loops.active().row_product_range

    def multiply(start: int, stop: int) -> None:
        row_product_range(rows, table, start, stop, products, *aligned(table.dtype, table.shape[1]))

    threads.run(multiply, np.full(len(rows), float(right.size)))
    return products


def _ones(value: Array | None, n_rows: int) -> NDArray[np.float64]:
    return vector(1.0 if value is None else value, n_rows, np.dtype(np.float64))


def _arguments(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    values: Array,
    row_factors: Array,
    col_factors: Array,
    row_offset: Array | None = None,
    col_offset: Array | None = None,
    row_weight: Array | None = None,
    col_weight: Array | None = None,
) -> tuple[tuple[NDArray[Any], ...], NDArray[np.float64]]:
    n_cols, rank = col_factors.shape
    indptr, indices, values = check_csr(indptr, indices, values, n_cols)
    n_rows = len(indptr) - 1
    if row_factors.shape != (n_rows, rank or row_factors.shape[1]):
        raise ValueError(f"row_factors has shape {row_factors.shape} instead of {(n_rows, rank)}.")
    dtype = np.dtype(np.float64)
    columns = column_terms(n_cols, dtype, col_offset, col_weight)
    offset = vector(0.0 if row_offset is None else row_offset, n_rows, dtype)
    weight = _ones(row_weight, n_rows)
    work = np.diff(indptr) * (2.0 * rank) + rank
    return (indptr, indices, values, row_factors, padded(col_factors), columns, offset, weight), work
