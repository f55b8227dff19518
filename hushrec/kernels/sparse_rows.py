"""Rows of a sparse matrix: their sums and norms.

Everything is in float64. A row belongs to one thread and is summed in the order of its entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.kernels import loops, threads
from hushrec.kernels.arrays import frozen
from hushrec.kernels.fixed_point import CLIP_MARGIN
from hushrec.kernels.sweeps import CSR
from hushrec.types import Array


def with_values(rows: sp.csr_array, values: Array) -> sp.csr_array:
    """A matrix of the same structure, with ascending column indices."""
    matrix = sp.csr_array((values, rows.indices, rows.indptr), shape=rows.shape)
    matrix.has_sorted_indices = True
    return matrix


def at_columns(rows: sp.csr_array, chosen: NDArray[np.bool_]) -> sp.csr_array:
    """The entries in some columns, renumbered in their order."""
    if chosen.all():
        return rows
    kept = chosen[rows.indices]
    places = (np.cumsum(chosen) - 1).astype(rows.indices.dtype)
    starts = np.concatenate([[0], np.cumsum(kept)])[rows.indptr].astype(rows.indptr.dtype)
    data = rows.data[kept], places[rows.indices[kept]], starts
    part = sp.csr_array(data, shape=(rows.shape[0], int(chosen.sum())), copy=False)
    part.has_sorted_indices = True
    return part


def used_columns(rows: CSR, *tables: Array) -> tuple[CSR, list[Array]]:
    """Return rows over the columns that occur in them, and these columns' rows of each table.

    Unchanged where there are at least as many entries as columns.
    """
    starts, columns, values = rows
    if len(columns) >= len(tables[0]):
        return rows, list(tables)
    places = np.arange(len(columns))
    if len(starts) > 2:
        columns, places = np.unique(columns, return_inverse=True)
    return (starts, places.astype(rows[1].dtype), values), [table[columns] for table in tables]


def from_threshold(rows: CSR, threshold: float | None) -> CSR:
    """Return the entries from a threshold up (None: all), and those that are NaN: purchases."""
    if threshold is None:
        return rows
    starts, columns, values = rows
    kept = ~(values < np.float32(threshold))
    return np.append(0, np.cumsum(kept))[starts], columns[kept], values[kept]


def table_sums(rows: CSR, table: Array) -> NDArray[np.float64]:
    """Return the sum of a table's rows at the columns of each row, times its values; -1 is no column.

    A sum does not depend on other rows, to the bit. It takes the entries in their order.
    """
    sums = np.zeros((len(rows[0]) - 1, table.shape[1]))
    return _added(loops.active().table_sum_range, *_typed(rows), frozen(table), sums)


def scattered_sums(rows: CSR, columns: Array, weights: Array, n_columns: int) -> NDArray[np.float64]:
    """Return rows times a sparse matrix whose row i has ``weights[i]`` at ``columns[i]``, dense.

    As of :func:`table_sums`.
    """
    add, sums = loops.active().scattered_range, np.zeros((len(rows[0]) - 1, n_columns))
    return _added(add, *_typed(rows), columns.astype(np.int32), weights, sums)


def _typed(rows: CSR) -> tuple[Array, Array, Array]:
    starts, columns, values = rows
    return np.asarray(starts, np.int64), np.asarray(columns, np.int64), np.asarray(values, np.float64)


def clipped_rows(indptr: Array, values: Array, bound: float) -> NDArray[np.float64]:
    """Return values with every row scaled down to Euclidean norm ``bound * CLIP_MARGIN`` where it is longer.

    The margin is for the rounding errors of the norm. An infinite bound does not clip.
    """
    clipped = np.array(values, dtype=np.float64)
    return shrunk(indptr, clipped, bound * CLIP_MARGIN)[0] if np.isfinite(bound) else clipped


def shrunk(
    indptr: Array, values: NDArray[np.float64], bound: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return values with every row scaled down to a norm, and the factor of each: 0 where its norm is not
    finite."""
    counts, most = np.diff(indptr), bound * (1 - 1e-15)
    owners = np.repeat(np.arange(len(counts)), counts)
    with np.errstate(all="ignore"):  # a warning would reveal rows
        norms = np.sqrt(np.bincount(owners, values * values, minlength=len(counts)))
        factor = np.where(norms <= most, 1.0, np.where(norms < np.inf, most / norms, 0.0))
        scaled = np.where(factor[owners] > 0, values * factor[owners], 0.0)
    return scaled, factor


def weight_sums(indptr: Array, indices: Array, weights: Array) -> NDArray[np.float64]:
    """Return the sum of the columns' weights over each row's entries; exact for fixed-point weights."""
    return _of_rows(loops.active().sum_range, indptr, indices, np.asarray(weights, dtype=np.float64))


def row_sums(indptr: Array, values: Array) -> NDArray[np.float64]:
    """Return the sum of each row's values in float64, computed from the row alone; 0 for an empty row.

    NumPy and SciPy sum float32 in float32, which overflows, and where they convert they do it by blocks that
    begin in any row.
    """
    return _of_rows(loops.active().value_sum_range, indptr, np.ascontiguousarray(values))


def row_squares(indptr: Array, values: Array, center: Array) -> NDArray[np.float64]:
    """Return the sum of the squares of each row's values less its center, as `row_sums`."""
    return _of_rows(loops.active().square_range, indptr, np.ascontiguousarray(values), center)


def _of_rows(sum_range: Any, indptr: Array, *arrays: Array) -> NDArray[np.float64]:
    return _added(sum_range, indptr, *arrays, np.empty(len(indptr) - 1))


def _added(add: Any, indptr: Array, *arrays: Array) -> NDArray[np.float64]:
    """Call a loop, whose last argument are the sums, for ranges of rows."""
    *entries, sums = arrays

    def accumulate(start: int, stop: int) -> None:
        add(indptr, *entries, start, stop, sums)

    threads.run(accumulate, (np.diff(indptr) + 1.0) * (sums.size / max(len(sums), 1)))
    return sums
