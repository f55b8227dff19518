"""Random sparse matrices with half-star values and some empty rows."""

from __future__ import annotations

import numpy as np


def random_csr(random, n_rows, n_cols, density):
    """CSR arrays (indptr, indices, values); every fifth row is empty, and the last one is full."""
    present = random.random((n_rows, n_cols)) < density
    present[::5] = False
    if n_rows % 5 != 1:
        present[-1:] = True
    indptr = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    values = random.integers(1, 11, indptr[-1]) / 2
    return indptr, np.nonzero(present)[1].astype(np.int32), values.astype(np.float32)
