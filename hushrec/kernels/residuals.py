"""Residuals of a factor model on the entries of a sparse matrix, and what is summed from them.

The residual of entry (i, j) is ``values_ij - row_offset_i - col_offset_j - row_factors_i . col_factors_j``.
Everything is computed in float64, whatever the factors' type, and row by row as in `least_squares`. A
residual is the same number, to the last bit, whichever of its two sides are the rows: what a norm is computed
from is what a sum adds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.kernels import simd, threads
from hushrec.kernels.arrays import Array, check_csr, column_terms, padded, vector
from hushrec.kernels.least_squares import combine, combine_truncated

TABLES_BYTES = 1 << 30  # of sums that threads hold: there are fewer threads where they would take more
BLOCK = 64  # entries gathered at a time: 32 KB at rank 64, a first-level cache


def residual_sums(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    values: Array,
    row_factors: Array,
    col_factors: Array,
    *,
    row_offset: Array | None = None,
    col_offset: Array | None = None,
    row_weight: Array | None = None,
    col_weight: Array | None = None,
    step: float = 0.0,
) -> NDArray[np.float64]:
    """Weighted sums of residuals times column factors.

    Parameters
    ----------
    indptr, indices, values : arrays
        CSR matrix; column indices below ``len(col_factors)``.
    row_factors, col_factors : (n_rows, d) and (n_cols, d) arrays
        float32 or float64.
    row_offset, col_offset : (n_rows,) and (n_cols,) arrays, optional
        Subtracted from the values.
    row_weight, col_weight : (n_rows,) and (n_cols,) arrays, optional
        Their product weighs an entry.
    step : float
        Power of two of which every product is made a multiple, towards zero, before it is added
        (`hushrec.kernels.fixed_point`); 0 adds the products as they are.

    Returns
    -------
    (n_rows, d) float64 array
        ``sum_j row_weight_i * col_weight_j * residual_ij * col_factors_j``; zero for rows without entries.
    """
    arrays, work = _arguments(
        indptr, indices, values, row_factors, col_factors, row_offset, col_offset, row_weight, col_weight
    )
    rank = row_factors.shape[1]
    sums = np.empty((len(work), rank))

    def accumulate(start: int, stop: int) -> None:
        _residual_range(*arrays, float(step), start, stop, sums, *_scratch(arrays))

    threads.run(accumulate, work)
    return sums


def added_residuals(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    values: Array,
    row_factors: Array,
    col_factors: Array,
    *,
    row_offset: Array | None = None,
    col_offset: Array | None = None,
    row_weight: Array | None = None,
    col_weight: Array | None = None,
    step: float,
) -> NDArray[np.float64]:
    """What `residual_sums` returns of the transposed matrix, row by row and without transposing it.

    Every thread adds to a table of its own. Products are integers in units of ``step``, so that neither the
    order of the rows nor the number of threads can be told from the sums.

    Parameters
    ----------
    indptr, indices, values, row_factors, col_factors, row_offset, col_offset, row_weight, col_weight
        As in `residual_sums`.
    step : float
        Power of two, not 0.

    Returns
    -------
    (n_cols, d) float64 array
        ``sum_i row_weight_i * col_weight_j * residual_ij * row_factors_i``.
    """
    arrays, work = _arguments(
        indptr, indices, values, row_factors, col_factors, row_offset, col_offset, row_weight, col_weight
    )
    left, columns = arrays[3], arrays[5]
    columns[:, 1] /= step
    width = min(left.shape[1], arrays[4].shape[1])

    def accumulate(table: Array, start: int, stop: int) -> None:
        _added_range(*arrays, start, stop, table, *_row(arrays), np.empty(1))

    total = _added(accumulate, 2 * work, (len(col_factors), width))
    return total[:, : row_factors.shape[1]] * step


def added_weights(
    indptr: NDArray[np.integer], indices: NDArray[np.integer], weights: Array, n_cols: int
) -> NDArray[np.float64]:
    """Sum of the rows' weights over each column's entries; exact, in any order, for fixed-point weights.

    Parameters
    ----------
    indptr, indices : arrays
        Structure of a CSR matrix.
    weights : (n_rows,) float64 array
    n_cols : int

    Returns
    -------
    (n_cols,) float64 array
    """
    starts, columns, _ = check_csr(indptr, indices, np.zeros(len(indices), np.float32), n_cols)
    rows = vector(weights, len(starts) - 1, np.dtype(np.float64), 0.0, "weights")

    def accumulate(table: Array, start: int, stop: int) -> None:
        _weight_range(starts, columns, rows, start, stop, table)

    return _added(accumulate, np.diff(starts) + 1.0, (n_cols, 1))[:, 0]


def _added(
    accumulate: Callable[[Array, int, int], None], work: Array, shape: tuple[int, int]
) -> NDArray[np.float64]:
    """The sum of the tables that threads add to, each to its own; no more of them than memory allows."""
    tables: list[NDArray[np.float64]] = []
    spare: list[NDArray[np.float64]] = []

    def on_a_table(start: int, stop: int) -> None:
        try:
            table = spare.pop()
        except IndexError:
            table = np.zeros(shape)
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
    *,
    row_offset: Array | None = None,
    col_offset: Array | None = None,
    col_weight: Array | None = None,
) -> NDArray[np.float64]:
    """Euclidean norms of the rows' weighted residuals.

    Parameters as in `residual_sums`.

    Returns
    -------
    (n_rows,) float64 array
        ``sqrt(sum_j (col_weight_j * residual_ij)^2)``; zero for rows without entries.
    """
    arrays, work = _arguments(
        indptr, indices, values, row_factors, col_factors, row_offset, col_offset, None, col_weight
    )
    norms = np.empty(len(work))

    def accumulate(start: int, stop: int) -> None:
        _norm_range(*arrays, start, stop, norms, *_row(arrays))

    threads.run(accumulate, work)
    return norms


def predict_pairs(
    user_rows: NDArray[np.integer], item_rows: NDArray[np.integer], user_factors: Array, item_factors: Array
) -> NDArray[np.float64]:
    """Dot products of pairs of factor rows.

    Parameters
    ----------
    user_rows, item_rows : (n,) integer arrays
        Rows of the two tables.
    user_factors, item_factors : (n_users, d) and (n_items, d) arrays
        float32 or float64.

    Returns
    -------
    (n,) float64 array
    """
    users, items = np.ascontiguousarray(user_rows, np.int64), np.ascontiguousarray(item_rows, np.int64)
    if users.shape != items.shape or user_factors.shape[1] != item_factors.shape[1]:
        raise ValueError("user and item arrays differ in length or rank.")
    for rows, factors in ((users, user_factors), (items, item_factors)):
        if len(rows) and rows.view(np.uint64).max() >= len(factors):
            raise ValueError(f"a row is not among the {len(factors)} factor rows.")
    tables = padded(user_factors), padded(item_factors)
    products = np.empty(len(users))

    def multiply(start: int, stop: int) -> None:
        _product_range(users, items, *tables, start, stop, products)

    threads.run(multiply, np.full(len(users), 2.0 * user_factors.shape[1]))
    return products


def row_products(left: Array, right: Array) -> NDArray[np.float64]:
    """The matrix product, each row of it a function of its row of `left` and of `right` alone.

    BLAS sums a row in an order that can depend on how many rows there are.

    Parameters
    ----------
    left, right : (n_rows, d) and (d, n_cols) arrays

    Returns
    -------
    (n_rows, n_cols) float64 array
    """
    rows = np.ascontiguousarray(left, dtype=np.float64)
    table = padded(np.asarray(right, dtype=np.float64))
    products = np.empty((len(rows), right.shape[1]))

    def multiply(start: int, stop: int) -> None:
        _row_product_range(rows, table, start, stop, products, *simd.aligned(table.dtype, table.shape[1]))

    threads.run(multiply, np.full(len(rows), float(right.size)))
    return products


def _arguments(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    values: Array,
    row_factors: Array,
    col_factors: Array,
    row_offset: Array | None,
    col_offset: Array | None,
    row_weight: Array | None,
    col_weight: Array | None,
) -> tuple[tuple[NDArray[Any], ...], NDArray[np.float64]]:
    n_cols, rank = col_factors.shape
    indptr, indices, values = check_csr(indptr, indices, values, n_cols)
    n_rows = len(indptr) - 1
    if row_factors.shape != (n_rows, rank):
        raise ValueError(f"row_factors has shape {row_factors.shape} instead of {(n_rows, rank)}.")
    dtype = np.dtype(np.float64)
    columns = column_terms(n_cols, dtype, col_offset, col_weight)
    offset = vector(row_offset, n_rows, dtype, 0.0, "row_offset")
    weight = vector(row_weight, n_rows, dtype, 1.0, "row_weight")
    work = np.diff(indptr) * (2.0 * rank) + rank
    return (indptr, indices, values, padded(row_factors), padded(col_factors), columns, offset, weight), work


def _row(arrays: tuple[NDArray[Any], ...]) -> list[NDArray[np.float64]]:
    """Memory for a row of `left`, in float64."""
    # a float32 table is padded to more columns than a float64 one
    return simd.aligned(np.dtype(np.float64), min(arrays[3].shape[1], arrays[4].shape[1]))


def _scratch(arrays: tuple[NDArray[Any], ...]) -> list[NDArray[np.float64]]:
    """Of `_residual_range`: a row, gathered columns, residuals and their sum."""
    (row,) = _row(arrays)
    return [row, *simd.aligned(row.dtype, BLOCK * len(row), BLOCK, len(row))]


@simd.inner
def _fill(row, rows, start):
    """The numbers of one row of a table, in float64."""
    for c in range(0, len(row), simd.lanes(row)):
        simd.store(row, c, simd.load_wide(rows, start + c))


@simd.inner
def _residual(values, offset, columns, i, k, column, row, flat, start):
    """Of entry k, in row i and a column whose factors begin at flat[start]."""
    product = simd.zeros(row, 1)[0]
    for c in range(0, len(row), simd.lanes(row)):
        product = simd.multiply_add(simd.load(row, c), simd.load_wide(flat, start + c), product)
    return values[k] - (offset[i] + columns[column, 0]) - simd.lane_sum(product)


@simd.compiled
def _residual_range(
    indptr, indices, values, left, right, columns, offset, weight, step, start, stop, out,
    row, block, residuals, total,
):  # fmt: skip
    """Sums (n_rows, rank) of residuals times column factors."""
    width, lanes = len(row), simd.lanes(row)
    flat, rows = right.reshape(-1), left.reshape(-1)
    for i in range(start, stop):
        simd.clear(total, 0, width)
        scale, unit = (weight[i] / step, step) if step else (1.0, weight[i])
        _fill(row, rows, i * left.shape[1])
        for begin in range(indptr[i], indptr[i + 1], BLOCK):
            count = min(BLOCK, indptr[i + 1] - begin)
            for k in range(count):
                column = np.int64(indices[begin + k])
                product = simd.zeros(row, 1)[0]
                for c in range(0, width, lanes):  # as in `_residual`, and the factors are kept
                    numbers = simd.load_wide(flat, column * right.shape[1] + c)
                    simd.store(block, k * width + c, numbers)
                    product = simd.multiply_add(simd.load(row, c), numbers, product)
                residual = values[begin + k] - (offset[i] + columns[column, 0]) - simd.lane_sum(product)
                residuals[k] = residual * columns[column, 1] * scale
            if step:
                combine_truncated(residuals, block, width, count, total)
            else:
                combine(residuals, np.int64(0), np.int64(1), block, width, count, width, total, np.int64(0))
        for a in range(out.shape[1]):
            out[i, a] = unit * total[a]


@simd.compiled
def _norm_range(indptr, indices, values, left, right, columns, offset, weight, start, stop, norms, row):
    """Norms of the rows' residuals."""
    flat, rows = right.reshape(-1), left.reshape(-1)
    for i in range(start, stop):
        _fill(row, rows, i * left.shape[1])
        square = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            column = np.int64(indices[k])
            residual = _residual(values, offset, columns, i, k, column, row, flat, column * right.shape[1])
            residual *= columns[column, 1]
            square += residual * residual
        norms[i] = np.sqrt(square)


@simd.compiled
def _added_range(
    indptr, indices, values, left, right, columns, offset, weight, start, stop, sums, row, scaled
):  # fmt: skip
    """Add the truncated products of residuals and row factors to the sums of the columns."""
    flat, rows, out = right.reshape(-1), left.reshape(-1), sums.reshape(-1)
    for i in range(start, stop):
        _fill(row, rows, i * left.shape[1])
        for k in range(indptr[i], indptr[i + 1]):
            column = np.int64(indices[k])
            residual = _residual(values, offset, columns, i, k, column, row, flat, column * right.shape[1])
            scaled[0] = residual * weight[i] * columns[column, 1]
            coefficient = simd.splat(scaled, 0)
            for c in range(0, len(row), simd.lanes(row)):
                terms = simd.truncate(simd.multiply(coefficient, simd.load(row, c)))
                at = column * len(row) + c
                simd.store(out, at, simd.add(simd.load(out, at), terms))


@simd.compiled
def _weight_range(indptr, indices, weights, start, stop, sums):
    for i in range(start, stop):
        for k in range(indptr[i], indptr[i + 1]):
            sums[indices[k], 0] += weights[i]


@simd.compiled
def _product_range(users, items, left, right, start, stop, products):
    """Dot products of the rows users[n] of `left` and items[n] of `right`."""
    lanes = simd.lanes(products)
    rows, columns = left.reshape(-1), right.reshape(-1)
    width = min(left.shape[1], right.shape[1])
    for n in range(start, stop):
        product = simd.zeros(products, 1)[0]
        for c in range(0, width, lanes):
            row = simd.load_wide(rows, users[n] * left.shape[1] + c)
            column = simd.load_wide(columns, items[n] * right.shape[1] + c)
            product = simd.multiply_add(row, column, product)
        products[n] = simd.lane_sum(product)


@simd.compiled
def _row_product_range(left, table, start, stop, products, total):
    rank, width = table.shape
    rows, columns = left.reshape(-1), table.reshape(-1)
    for i in range(start, stop):
        simd.clear(total, 0, width)
        combine(rows, i * rank, np.int64(1), columns, width, rank, width, total, np.int64(0))
        for a in range(products.shape[1]):
            products[i, a] = total[a]
