"""Arrays as the compiled functions take them: contiguous, of few types, safe to index with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

BYTES = 64  # of AVX-512's registers, and of a cache line
SIDE = 4  # rows and columns of a Cholesky block: 16 sums and their 8 factors fit 32 registers


@dataclass(frozen=True, slots=True)
class BiasedFactors:
    """Users' or items' factors and biases: views of the one table that half sweeps take and return.

    ``table`` has shape (n, rank + 1): factors, then the biases (users' are called offsets).
    """

    table: NDArray[Any]

    @classmethod
    def joined(cls, factors: NDArray[Any], biases: NDArray[Any]) -> BiasedFactors:
        return cls(np.concatenate([factors, biases[:, None]], axis=1, dtype=np.float64))

    @property
    def factors(self) -> NDArray[Any]:
        return self.table[:, :-1]

    @property
    def biases(self) -> NDArray[Any]:
        return self.table[:, -1]

    @property
    def rank(self) -> int:
        return self.table.shape[1] - 1


def aligned(dtype: np.dtype, *counts: int) -> list[NDArray[Any]]:
    """Return zeros that start at cache lines, so no register straddles two."""
    lanes = BYTES // dtype.itemsize
    memory = np.zeros(sum(counts) + (len(counts) + 1) * lanes, dtype)
    start, arrays = -memory.__array_interface__["data"][0] % BYTES // dtype.itemsize, []
    for count in counts:
        arrays.append(memory[start : start + count])
        start += -(-count // lanes) * lanes
    return arrays


def cholesky_scratch(rank: int, dtype: np.dtype, *counts: int) -> list[NDArray[Any]]:
    """Return zeros, and work, floor and inverse for matrices of order rank + 1 (a row is the right side)."""
    lanes = BYTES // dtype.itemsize
    order = (rank + SIDE) // SIDE * SIDE
    scratch = aligned(dtype, *counts, order * order * lanes, order * lanes, order * lanes)
    scratch[-2][rank * lanes :] = np.inf  # the rows beyond are no unknowns
    return scratch


def float_type(array: Array) -> np.dtype:
    if array.dtype not in (np.float32, np.float64):
        raise ValueError(f"float32 or float64 expected, not {array.dtype}.")
    return array.dtype


def vector(value: Any, size: int, dtype: np.dtype) -> NDArray[Any]:
    """Return a copy; it is never read-only, which numba takes for another type."""
    whole = np.empty(size, dtype)
    whole[:] = value  # refuses another shape
    return whole


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a contiguous view or copy that is always read-only, which numba takes for another type."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


def column_terms(n_cols: int, dtype: np.dtype, offset: Array | None, weight: Array | None) -> Array:
    """Offset (0 by default) and weight (1) of each column, shape (n_cols, 2)."""
    terms = np.empty((n_cols, 2), dtype)
    terms[:, 0] = 0.0 if offset is None else offset
    terms[:, 1] = 1.0 if weight is None else weight
    return terms


def check_csr(
    indptr: NDArray[np.integer], indices: NDArray[np.integer], values: Array, n_cols: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], Array]:
    starts = np.ascontiguousarray(indptr, np.int64)
    columns = np.ascontiguousarray(indices, np.int32)
    values = np.ascontiguousarray(values, np.float32 if values.dtype == np.float32 else np.float64)
    falls = np.count_nonzero(starts[1:] < starts[:-1])
    if len(starts) == 0 or starts[0] < 0 or starts[-1] > len(columns) or falls:
        raise ValueError("indptr must not decrease and must stay within the entries.")
    if values.shape != columns.shape:
        raise ValueError(f"{len(values)} values do not fit {len(columns)} indices.")
    used = columns[starts[0] : starts[-1]].view(np.uint32)  # a negative index is a large one
    if np.count_nonzero(used >= n_cols):
        raise ValueError(f"a column index is not among the {n_cols} columns.")
    return starts, columns, values


def padded(factors: Array, scale: Array | None = None) -> Array:
    """Factors (times `scale`, row by row) with zero columns up to whole registers, rows on cache lines."""
    dtype = factors.dtype
    lanes = BYTES // dtype.itemsize
    n_rows, rank = factors.shape
    width = -(-rank // lanes) * lanes
    table = aligned(dtype, n_rows * width)[0].reshape(n_rows, width)
    if scale is None:
        table[:, :rank] = factors
    else:
        np.multiply(factors, scale[:, None], out=table[:, :rank])
    return table
