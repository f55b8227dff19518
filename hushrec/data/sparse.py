"""SciPy's sparse matrices of users by items."""

from __future__ import annotations

from typing import Any

import numpy as np

from hushrec.errors import InputError


def check_sparse(matrix: Any) -> None:
    """Refuse a sparse matrix with inconsistent arrays: compiled code would read past their ends."""
    try:
        fits = _arrays_fit(matrix)
    except (TypeError, ValueError, IndexError, AttributeError):
        fits = False
    if not fits:
        raise InputError(
            f"The arrays of the sparse matrix ({matrix.format}) do not fit together: a position in them is"
            " outside of the matrix, or their lengths differ; build it again from rows, columns and values."
        )


def _arrays_fit(matrix: Any) -> bool:
    if matrix.format in ("csr", "csc", "bsr"):
        shape = matrix.shape[::-1] if matrix.format == "csc" else matrix.shape
        blocks = matrix.blocksize if matrix.format == "bsr" else (1, 1)
        starts, positions = matrix.indptr, matrix.indices
        return (
            starts.shape == (shape[0] // blocks[0] + 1,)
            and starts[0] == 0
            and bool((starts[1:] >= starts[:-1]).all())
            and starts[-1] == len(positions) == len(matrix.data)
            and _inside(positions, shape[1] // blocks[1])
        )
    if matrix.format == "lil" and [len(row) for row in matrix.rows] != [len(row) for row in matrix.data]:
        return False
    entries = matrix.tocoo()
    places = zip((entries.row, entries.col), matrix.shape)
    return all(len(each) == len(entries.data) and _inside(each, size) for each, size in places)


def _inside(positions: np.ndarray, size: int) -> bool:
    return positions.dtype.kind in "iu" and (
        len(positions) == 0 or 0 <= int(positions.min()) <= int(positions.max()) < size
    )
