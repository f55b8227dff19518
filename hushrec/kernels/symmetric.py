"""The symmetric matrix A^T A of a sparse A."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushrec.kernels import simd, threads
from hushrec.kernels.arrays import check_csr
from hushrec.types import Array


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
        Packed lower triangle (`hushrec.kernels.packed`).
    """
    indptr, indices, values = check_csr(indptr, indices, values, n_cols)
    packed = np.zeros(n_cols * (n_cols + 1) // 2)
    counts = np.bincount(indices, minlength=n_cols).astype(np.float64)
    work = counts * np.cumsum(counts)
    # every range reads all rows, hence few ranges
    work *= 2 * threads.SMALLEST_RANGE * threads.count() / max(work.sum(), 1.0)
    columns = indices.view(np.uint32)

    def accumulate(start: int, stop: int) -> None:
        _outer_range(indptr, columns, values.astype(np.float64, copy=False), start, stop, packed)

    threads.run(accumulate, work)
    return packed


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
