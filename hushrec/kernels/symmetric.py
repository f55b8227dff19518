"""The symmetric matrix A^T A of a sparse A."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushrec.kernels import loops, threads
from hushrec.kernels.arrays import check_csr
from hushrec.types import Array


def outer_sums(indptr: Array, indices: Array, values: Array, n_cols: int) -> NDArray[np.float64]:
    """Return the packed lower triangle of ``A.T @ A`` for a CSR matrix with ascending column indices.

    An entry of the result is summed by one thread, in the order of the rows. Time is proportional to the
    sum of the squared numbers of entries of the rows.
    """
    indptr, indices, values = check_csr(indptr, indices, values, n_cols)
    packed = np.zeros(n_cols * (n_cols + 1) // 2)
    counts = np.bincount(indices, minlength=n_cols).astype(np.float64)
    work = counts * np.cumsum(counts)
    # every range reads all rows, hence few ranges
    work *= 2 * threads.SMALLEST_RANGE * threads.count() / max(work.sum(), 1.0)
    columns = indices.view(np.uint32)
    outer_range = loops.active().outer_range

    def accumulate(start: int, stop: int) -> None:
        outer_range(indptr, columns, values.astype(np.float64, copy=False), start, stop, packed)

    threads.run(accumulate, work)
    return packed
