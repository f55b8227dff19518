"""SciPy's sparse matrices of users by items."""

from __future__ import annotations

from typing import Any

import numpy as np

from hushrec.errors import InputError


def check_sparse(matrix: Any) -> None:
    """Refuse inconsistent arrays: compiled code would read past their ends."""
    try:
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        if matrix.format == "lil" and any(map(lambda a, b: len(a) != len(b), matrix.rows, matrix.data)):
            raise ValueError
        entries = matrix.tocoo(copy=False)
        places = zip((entries.row, entries.col), matrix.shape, strict=True)
        fits = all(len(place) == len(entries.data) and _inside(place, size) for place, size in places)
    except (TypeError, ValueError, IndexError, AttributeError):
        fits = False
    if not fits:
        raise InputError(
            f"The arrays of the sparse matrix ({matrix.format}) do not fit together: a position in them is"
            " outside of the matrix, or their lengths differ; build it again from rows, columns and values."
        )


def _inside(positions: np.ndarray, size: int) -> bool:
    return positions.dtype.kind in "iu" and (
        len(positions) == 0 or 0 <= int(positions.min()) <= int(positions.max()) < size
    )
