"""The best-scored items of each row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushrec.kernels import simd, threads
from hushrec.kernels.arrays import check_csr, float_type, vector
from hushrec.types import Array

#: Items whose factors are turned at a time, a multiple of what a register holds: they fit the first cache.
_TURNED = 128


def top_k(
    scores: NDArray[np.floating],
    count: int,
    exclude_indptr: NDArray[np.integer] | None = None,
    exclude_indices: NDArray[np.integer] | None = None,
    first: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    """The `count` best items of each row, those of `first` before the others, then by descending score.

    Equal scores come by ascending item.

    Parameters
    ----------
    scores : (n_rows, n_items) array
        float32 or float64. Items scored -inf or NaN are never chosen.
    count : int
        Items wanted of each row.
    exclude_indptr, exclude_indices : arrays, optional
        CSR structure of the items that each row must not get, in any order.
    first : (n_items,) bool array, optional
        Items that come before all others, whatever the scores; all by default.

    Returns
    -------
    items : (n_rows, count) int64 array
        -1 where a row has fewer than `count` candidates.
    scores : (n_rows, count) array
        Of the type of `scores`; -inf there.
    """
    scores = np.ascontiguousarray(scores)
    dtype = float_type(scores)
    if count < 0:
        raise ValueError(f"count must not be negative, but is {count}.")
    n_rows, n_items = scores.shape
    if exclude_indptr is None or exclude_indices is None:
        exclude_indptr, exclude_indices = np.zeros(n_rows + 1, np.int64), np.empty(0, np.int32)
    values = np.empty(len(exclude_indices), np.float32)
    indptr, indices, _ = check_csr(exclude_indptr, exclude_indices, values, n_items)
    if len(indptr) != n_rows + 1:
        raise ValueError("exclude_indptr does not fit the scores.")
    leading = np.ones(n_items, np.bool_)
    leading[:] = True if first is None else first
    items = np.empty((n_rows, count), np.int64)
    best = np.empty((n_rows, count), dtype)

    def choose(start: int, stop: int) -> None:
        _choose_range(scores, indptr, indices, leading, start, stop, items, best)

    threads.run(choose, np.full(n_rows, float(n_items)))
    return items, best


@simd.compiled
def _choose_range(scores, indptr, indices, leading, start, stop, items, best):
    n_items, count = scores.shape[1], items.shape[1]
    excluded = np.zeros(n_items, np.bool_)
    for row in range(start, stop):
        items[row, :] = -1
        best[row, :] = -np.inf
        for entry in range(indptr[row], indptr[row + 1]):
            excluded[np.int64(indices[entry])] = True
        filled = 0  # places taken, those of the leading items once these are through
        for group in (True, False):
            begin = filled
            if begin == count:
                break
            lowest = best[row, count - 1]
            for item in range(n_items):
                score = scores[row, item]
                if score > lowest and leading[item] == group and not excluded[item]:
                    place = min(filled, count - 1)
                    while place > begin and best[row, place - 1] < score:
                        best[row, place] = best[row, place - 1]
                        items[row, place] = items[row, place - 1]
                        place -= 1
                    best[row, place] = score
                    items[row, place] = item
                    filled = min(filled + 1, count)
                    lowest = best[row, count - 1]
        for entry in range(indptr[row], indptr[row + 1]):
            excluded[np.int64(indices[entry])] = False


def row_scores(users: Array, items: Array, offset: Array, level: Array) -> NDArray[np.float64]:
    """``offset[:, None] + level + users @ items.T`` in float64, without a copy of the items.

    The bits of a user's scores are that user's alone: BLAS rounds a row as the number of rows and its place
    among them make it, which would tell them of the other users.

    Parameters
    ----------
    users : (n, d) array
    items : (n_items, d) array
        float32 or float64.
    offset, level : (n,) and (n_items,) arrays
        Of users and items.
    """
    if users.ndim != 2 or items.shape[1:] != users.shape[1:]:
        raise ValueError("users must be of shape (n, d) and items (n_items, d).")
    double = np.dtype(np.float64)
    users, flat = np.ascontiguousarray(users, double), np.ascontiguousarray(items).reshape(-1)
    offset = vector(offset, len(users), double, 0.0, "offset")
    level = vector(level, len(items), double, 0.0, "level")
    found = np.empty((len(users), len(items)))

    def score(start: int, stop: int) -> None:
        _score_range(users, flat, offset, level, start, stop, found)

    threads.run(score, np.full(len(users), float(len(items))))
    return found


@simd.compiled
def _score_range(users, items, offset, level, start, stop, scores):
    """Four users at a time, a register of items: each score is summed over the columns in their order."""
    n_items, width, lanes = scores.shape[1], users.shape[1], simd.lanes(scores)
    flat, out = users.reshape(-1), scores.reshape(-1)
    turned = np.zeros(_TURNED * width)  # by register of items, column, item
    for begin in range(0, n_items, _TURNED):
        size = min(_TURNED, n_items - begin)
        whole = size - size % lanes
        for item in range(0, whole, lanes):
            own = (begin + item) * width
            for c in range(width):
                for lane in range(lanes):
                    turned[item * width + c * lanes + lane] = items[own + lane * width + c]
        for first in range(start, stop, 4):
            rows = first, min(first + 1, stop - 1), min(first + 2, stop - 1), min(first + 3, stop - 1)
            at = rows[0] * width, rows[1] * width, rows[2] * width, rows[3] * width
            to = rows[0] * n_items, rows[1] * n_items, rows[2] * n_items, rows[3] * n_items
            for item in range(0, whole, lanes):
                one, two, three, four = simd.zeros(scores, 4)
                for c in range(width):
                    column = simd.load(turned, item * width + c * lanes)
                    one = simd.multiply_add(simd.splat(flat, at[0] + c), column, one)
                    two = simd.multiply_add(simd.splat(flat, at[1] + c), column, two)
                    three = simd.multiply_add(simd.splat(flat, at[2] + c), column, three)
                    four = simd.multiply_add(simd.splat(flat, at[3] + c), column, four)
                place = begin + item
                same = simd.load(level, place)
                simd.store(out, to[0] + place, simd.add(simd.add(simd.splat(offset, rows[0]), same), one))
                simd.store(out, to[1] + place, simd.add(simd.add(simd.splat(offset, rows[1]), same), two))
                simd.store(out, to[2] + place, simd.add(simd.add(simd.splat(offset, rows[2]), same), three))
                simd.store(out, to[3] + place, simd.add(simd.add(simd.splat(offset, rows[3]), same), four))
        for row in range(start, stop):
            for item in range(begin + whole, begin + size):
                product = 0.0
                for c in range(width):
                    product += users[row, c] * items[item * width + c]
                scores[row, item] = (offset[row] + level[item]) + product
