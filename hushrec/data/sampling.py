"""Samples of each user's ratings that no other user can change."""

from __future__ import annotations

import numpy as np

from hushrec.checks import check_count
from hushrec.data.keys import smallest_per_row, stream_base
from hushrec.data.ratings import Ratings
from hushrec.errors import InputError


def sample_per_user(ratings: Ratings, count: int, seed: int, priority: np.ndarray | None = None) -> Ratings:
    """Return at most ``count`` ratings of each user, drawn without regard to any other user.

    Parameters
    ----------
    ratings : Ratings
    count : int
        Positive.
    seed : int
    priority : ndarray, shape (n_items,), optional
        Public or released: items of smallest priority first, ties by the hash. Released item counts give
        tail ("adaptive") sampling of DPALS (Chien et al. 2021, section 5).

    Returns
    -------
    Ratings
        The same users in the same order.

    Raises
    ------
    InputError
        ``count`` is not a positive integer, or ``priority`` has the wrong shape or holds NaN.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> sample = hushrec.data.sample_per_user(ratings, 5, seed=0)
    >>> int(np.diff(sample.matrix.indptr).max())
    5
    """
    count = check_count("count", count)
    rank = None if priority is None else _dense_rank(priority, ratings.n_items)
    base = stream_base(ratings.user_keys, seed, "sample")
    counts = np.full(ratings.n_users, min(count, 1 << 31), dtype=np.int64)
    matrix = ratings.matrix
    if np.diff(matrix.indptr).max(initial=0) <= count:
        return ratings
    mask = smallest_per_row(matrix.indptr, matrix.indices, base, counts, rank)
    return ratings.where(mask, drop_empty=False, keyed=True)


def _dense_rank(priority: np.ndarray, n_items: int) -> np.ndarray:
    priority = np.asarray(priority)
    if priority.shape != (n_items,) or priority.dtype.kind not in "iufb" or np.isnan(priority).any():
        raise InputError(f"priority must hold one number for each of the {n_items} items.")
    return np.unique(priority, return_inverse=True)[1].astype(np.int64)
