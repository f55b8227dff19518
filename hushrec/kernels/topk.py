"""The best-scored items of each row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushrec.kernels import loops, threads
from hushrec.kernels.arrays import float_type, frozen, vector
from hushrec.types import Array


def top_k(
    scores: NDArray[np.floating], count: int, first: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    """The `count` best items of each row, those of `first` before the others, then by descending score.

    Equal scores come by ascending item.

    Parameters
    ----------
    scores : (n_rows, n_items) array
        float32 or float64. Items scored -inf or NaN are never chosen.
    first : (n_items,) bool array, optional
        Items that precede all others at any score; all by default.

    Returns
    -------
    items : (n_rows, count) int64 array
        -1 where a row has fewer than `count` candidates.
    scores : (n_rows, count) array
        Same type as `scores`; -inf where there is no item.
    """
    scores = np.ascontiguousarray(scores)
    dtype = float_type(scores)
    if count < 0:
        raise ValueError(f"count must not be negative, but is {count}.")
    n_rows, n_items = scores.shape
    leading = vector(True if first is None else first, n_items, np.dtype(np.bool_))
    items = np.empty((n_rows, count), np.int64)
    best = np.empty((n_rows, count), dtype)
    choose_range = loops.active().choose_range

    def choose(start: int, stop: int) -> None:
        choose_range(scores, leading, start, stop, items, best)

    threads.run(choose, np.full(n_rows, float(n_items)))
    return items, best


def row_scores(users: Array, items: Array, offset: Array, level: Array) -> NDArray[np.float64]:
    """Return ``offset[:, None] + level + users @ items.T`` in float64.

    A user's scores have bits of their own: BLAS would round a row according to the number of rows and its
    position, which depend on other users.
    """
    if users.ndim != 2 or items.shape[1:] != users.shape[1:] or level.shape != items.shape[:1]:
        raise ValueError("users must be of shape (n, d), items (n_items, d), and level of shape (n_items,).")
    double = np.dtype(np.float64)
    users, offset = np.ascontiguousarray(users, double), vector(offset, len(users), double)
    level = frozen(np.asarray(level, double))
    scores = np.empty((len(users), len(items)))
    active = loops.active()
    score_range, table = active.score_range, active.arranged(items)

    def score(start: int, stop: int) -> None:
        score_range(users, table, offset, level, start, stop, scores)

    threads.run(score, np.full(len(users), float(len(items))))
    return scores
