"""NumPy twins of the `compiled_loops` that one user's list needs; the others are compiled here too."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Number of items converted at a time, so they stay in a second-level cache.
AT_ONCE = 2048


def __getattr__(name: str) -> Any:
    from hushrec.kernels import compiled_loops

    return getattr(compiled_loops, name)


def row_range(
    indptr, indices, values, table, columns, weight, clip, step, start, stop, sums, solves,
    gram, rhs, ridge, grown, growth, solution, small, *_scratch,
):  # fmt: skip
    rank = len(ridge)
    lower = np.tril_indices(rank)
    shift = start
    for row in range(start, stop):
        if sums and solves:
            shift = row  # `gram` and `rhs` hold one row at a time
        if sums:
            entries = slice(indptr[row], indptr[row + 1])
            liked, items = indices[entries], table[indices[entries], :rank]
            targets = np.clip(values[entries] - columns[liked, 0], -clip, clip) * columns[liked, 1]
            terms = items * targets[:, None] if step is None else np.trunc(items * (targets / step)[:, None])
            gram[row - shift] = weight[row] * (items.T @ items)[lower]
            rhs[row - shift] = weight[row] * (terms.sum(axis=0) * (step or 1.0))
        if solves:
            matrix = np.zeros((rank, rank), table.dtype)
            matrix[lower] = gram[row - shift]
            matrix[np.diag_indices(rank)] += np.append(ridge[:grown] * growth[row], ridge[grown:])
            solution[row - start] = _solved(matrix, rhs[row - shift], small)


def _solved(matrix, rhs, small):
    """Solve by Cholesky from the lower triangle; unknowns with a zero pivot are zero."""
    factor, floor = np.zeros_like(matrix), small * matrix.diagonal()
    for a in range(len(matrix)):
        column = matrix[a:, a] - factor[a:, :a] @ factor[a, :a]
        if column[0] > max(floor[a], 0):
            factor[a:, a] = column / np.sqrt(column[0])
    diagonal = factor.diagonal()
    inverse = np.divide(1, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    unknown = np.zeros_like(rhs)
    for a in range(len(rhs)):
        unknown[a] = (rhs[a] - factor[a, :a] @ unknown[:a]) * inverse[a]
    for a in reversed(range(len(rhs))):
        unknown[a] = (unknown[a] - factor[a + 1 :, a] @ unknown[a + 1 :]) * inverse[a]
    return unknown


def product_range(users, items, left, right, start, stop, products):
    pairs = slice(start, stop)
    rows, columns = left[users[pairs]], right[items[pairs]]
    width = min(rows.shape[1], columns.shape[1])
    products[pairs] = np.einsum("ij,ij->i", rows[:, :width], columns[:, :width], dtype=np.float64)


def table_sum_range(indptr, indices, values, table, start, stop, sums):
    for row in range(start, stop):
        entries = slice(indptr[row], indptr[row + 1])
        known = indices[entries] >= 0
        sums[row] = values[entries][known] @ table[indices[entries][known]].astype(np.float64)


def scattered_range(indptr, indices, values, columns, weights, start, stop, sums):
    for row in range(start, stop):
        entries = slice(indptr[row], indptr[row + 1])
        items = indices[entries]
        np.add.at(sums[row], columns[items], values[entries, None] * weights[items])


def value_sum_range(indptr, values, start, stop, sums):
    for row in range(start, stop):
        sums[row] = values[indptr[row] : indptr[row + 1]].sum(dtype=np.float64)


def square_range(indptr, values, center, start, stop, sums):
    for row in range(start, stop):
        deviations = values[indptr[row] : indptr[row + 1]] - center[row]
        sums[row] = deviations @ deviations


def sum_range(indptr, indices, weights, start, stop, sums):
    for row in range(start, stop):
        sums[row] = weights[indices[indptr[row] : indptr[row + 1]]].sum()


def choose_range(scores, leading, start, stop, items, best):
    for row in range(start, stop):
        items[row], best[row] = -1, -np.inf
        listed = scores[row] > -np.inf
        first = _best(scores[row], np.flatnonzero(listed & leading), items.shape[1])
        rest = items.shape[1] - len(first)
        chosen = np.append(first, _best(scores[row], np.flatnonzero(listed & ~leading), rest))
        items[row, : len(chosen)], best[row, : len(chosen)] = chosen, scores[row, chosen]


def _best(scores, columns, count):
    wanted = scores[columns]
    if 0 < count < len(columns):
        columns = columns[wanted >= np.partition(wanted, -count)[-count]]
        wanted = scores[columns]
    return columns[np.argsort(-wanted, kind="stable")][:count]


def arranged(items):
    return items


def score_range(users, items, offset, level, start, stop, scores):
    for begin in range(0, len(level), AT_ONCE):
        columns = slice(begin, begin + AT_ONCE)
        products = users[start:stop] @ items[columns].astype(np.float64, copy=False).T
        scores[start:stop, columns] = (offset[start:stop, None] + level[columns]) + products
