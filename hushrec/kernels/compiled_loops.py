"""The kernels' loops as machine code. Their wrappers check the arguments.

numba is loaded with this module, which `hushrec.kernels.loops` imports when a kernel is first called.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from hushrec.kernels import simd
from hushrec.kernels.arrays import BYTES
from hushrec.kernels.cholesky import back_substitute, cholesky, interleave
from hushrec.machine_code import compiled, inner

TILE = 8  # rows of a Gramian that are accumulated together: two tiles are 16 of 32 registers
#: Numbers of factors that are prefetched: at rank 12 the misses of 48 entries, while rows of rank 64 would
#: push one another out of the first cache.
AHEAD = 768
#: Number of items that are scored for all users at once: their factors fit the first cache.
AT_ONCE = 128
_arranged: dict[int, Any] = {}


@inner
def ahead_of(width):
    """Entries between a prefetch and its use."""
    return min(48, max(12, AHEAD // max(width, 1)))


@inner
def combine(coefficients, first, step, block, width, count, columns, out, at):
    """out[at + c] += sum_k coefficients[first + k * step] * block[k, c] for the registers c < columns."""
    fours = count // 4 * 4
    for c in range(0, columns, simd.lanes(block)):
        sums = simd.zeros(block, 4)
        for k in range(0, fours, 4):
            i = first + k * step
            sums = simd.add_scaled(sums, coefficients, i, step, block, k * width + c, width, 4)
        for k in range(fours, count):
            i = first + k * step
            sums = simd.add_scaled(sums, coefficients, i, step, block, k * width + c, width, 1)
        total = simd.add(simd.add(sums[0], sums[1]), simd.add(sums[2], sums[3]))
        simd.store(out, at + c, simd.add(simd.load(out, at + c), total))


@inner
def combine_truncated(coefficients, block, width, count, out):
    """out[c] += sum_k trunc(coefficients[k] * block[k, c]): sums of integers, exact below 2^53."""
    for c in range(0, width, simd.lanes(block)):
        even, odd = simd.zeros(block, 2)
        k = 0
        while k + 2 <= count:
            first = simd.multiply(simd.splat(coefficients, k), simd.load(block, k * width + c))
            second = simd.multiply(simd.splat(coefficients, k + 1), simd.load(block, (k + 1) * width + c))
            even, odd = simd.add(even, simd.truncate(first)), simd.add(odd, simd.truncate(second))
            k += 2
        if k < count:
            first = simd.multiply(simd.splat(coefficients, k), simd.load(block, k * width + c))
            even = simd.add(even, simd.truncate(first))
        simd.store(out, c, simd.add(simd.load(out, c), simd.add(even, odd)))


@inner
def accumulate(block, count, width, rank, gram):
    """gram[a, b] += sum_k block[k, a] * block[k, b] for b <= a (and some b beyond)."""
    lanes = simd.lanes(block)
    full = rank // TILE * TILE
    for a in range(0, full, TILE):
        c = 0
        while c + lanes < a + TILE:  # two registers of columns at a time
            left, right = simd.zeros(block, 8), simd.zeros(block, 8)
            for k in range(count):
                left = simd.add_outer(left, block, k * width + a, simd.load(block, k * width + c))
                right = simd.add_outer(right, block, k * width + a, simd.load(block, k * width + c + lanes))
            simd.add_rows(gram, a * width + c, width, left)
            simd.add_rows(gram, a * width + c + lanes, width, right)
            c += 2 * lanes
        if c < a + TILE:
            left = simd.zeros(block, 8)
            for k in range(count):
                left = simd.add_outer(left, block, k * width + a, simd.load(block, k * width + c))
            simd.add_rows(gram, a * width + c, width, left)
    for a in range(full, rank):
        combine(block, a, width, block, width, count, a + 1, gram, a * width)


@compiled
def row_range(
    indptr, indices, values, table, columns, weight, clip, step, start, stop, sums, solves,
    gram, rhs, ridge, grown, growth, solution, small, block, targets, square, total, work, floor, inverse,
):  # fmt: skip
    """Normal equations of the rows where `sums`, then their solutions where `solves`.

    One function for both compiles faster; ``step=None`` is compiled apart, with less code. With both, `gram`
    and `rhs` hold only the rows of one solve.
    """
    rank, width = len(ridge), table.shape[1]
    lanes, size, order = simd.lanes(table), len(targets), len(inverse) // simd.lanes(table)
    flat, pairs, further = table.reshape(-1), columns.reshape(-1), ahead_of(width)
    unit, limit = table.dtype.type(1.0 if step is None else step), table.dtype.type(clip)
    for first in range(start, stop, lanes):
        rows = min(lanes, stop - first)
        shift = first if sums and solves else start
        for row in range(first, first + rows if sums else first):
            simd.clear(square, 0, rank * width)
            simd.clear(total, 0, width)
            for begin in range(indptr[row], indptr[row + 1], size):
                count = min(size, indptr[row + 1] - begin)
                for k in range(count):
                    column = np.int64(indices[begin + k])
                    target = min(max(values[begin + k] - columns[column, 0], -limit), limit)
                    targets[k] = target * columns[column, 1] / unit
                    ahead = np.int64(indices[min(begin + k + further, indptr[stop] - 1)])
                    simd.prefetch(pairs, ahead * 2)
                    for c in range(0, width, lanes):
                        simd.prefetch(flat, ahead * width + c)
                        simd.store(block, k * width + c, simd.load(flat, column * width + c))
                accumulate(block, count, width, rank, square)
                if step is None:
                    combine(targets, np.int64(0), np.int64(1), block, width, count, width, total, np.int64(0))
                else:
                    combine_truncated(targets, block, width, count, total)
            position = 0
            for a in range(rank):
                rhs[row - shift, a] = weight[row] * (unit * total[a])
                for b in range(a + 1):
                    gram[row - shift, position] = weight[row] * square[a * width + b]
                    position += 1
        if solves:
            interleave(gram, first - shift, rows, rank, order, work)
            for a in range(rank):
                for lane in range(rows):
                    at = (a * order + a) * lanes + lane
                    work[at] += ridge[a] * growth[first + lane] if a < grown else ridge[a]
                    floor[a * lanes + lane] = max(small * work[at], work.dtype.type(0))
                    work[(rank * order + a) * lanes + lane] = rhs[first - shift + lane, a]
            cholesky(work, order, floor, inverse)
            back_substitute(work, order, rank, inverse)
            for lane in range(rows):
                for a in range(rank):
                    solution[first - start + lane, a] = work[(rank * order + a) * lanes + lane]


@inner
def fill(row, rows, start):
    for c in range(0, len(row), simd.lanes(row)):
        simd.store(row, c, simd.load_wide(rows, start + c))


@compiled
def clipped_range(
    indptr, indices, values, left, right, columns, offset, weight, reach, bound, step, start, stop, sums,
    shrink, norms, row, kept,
):  # fmt: skip
    """Norms of rows' residuals; products with rows' factors, truncated, are added to columns' sums, if any.

    Rows are prefetched, since tables of many columns are in a far cache. Residuals are kept between the two
    passes.
    """
    lanes, width, depth = simd.lanes(offset), len(row), min(len(row), right.shape[1])
    rows, table, out, pairs = left.reshape(-1), right.reshape(-1), sums.reshape(-1), columns.reshape(-1)
    first, last, further = indptr[start], indptr[stop] - 1, ahead_of(max(width, depth))
    for i in range(start, stop):
        square = 0.0
        fill(row, rows, i * left.shape[1])
        for k in range(indptr[i], indptr[i + 1]):
            column, ahead = np.int64(indices[k]), np.int64(indices[min(k + further, last)])
            product = simd.zeros(offset, 1)[0]
            simd.prefetch(pairs, ahead * 2)
            for c in range(0, depth, lanes):
                simd.prefetch(table, ahead * right.shape[1] + c)
                numbers = simd.load_wide(table, column * right.shape[1] + c)
                product = simd.multiply_add(simd.load(row, c), numbers, product)
            residual = (values[k] - (offset[i] + columns[column, 0])) - simd.lane_sum(product)
            kept[k - first] = residual
            residual *= columns[column, 1]
            square += residual * residual
        norms[i] = step * np.sqrt(square)
        length = reach[i] * (weight[i] * norms[i])
        if length > bound:
            shrink[i] = min(shrink[i], bound / length)
        if not length < np.inf:
            shrink[i] = 0.0
    for i in range(start, stop if len(sums) else start):
        factor = weight[i] * shrink[i]
        if factor == 0 or shrink[i] == 0:  # residuals may be infinite, or weights no numbers
            continue
        fill(row, rows, i * left.shape[1])
        for k in range(indptr[i], indptr[i + 1]):
            column, ahead = np.int64(indices[k]), np.int64(indices[min(k + further, last)])
            kept[k - first] = (kept[k - first] * factor) * columns[column, 1]
            if width == 0:
                out[column] += np.trunc(kept[k - first])
            simd.prefetch(pairs, ahead * 2)
            coefficient = simd.splat(kept, k - first)
            for c in range(0, width, lanes):
                simd.prefetch(out, ahead * width + c)
                terms = simd.truncate(simd.multiply(coefficient, simd.load(row, c)))
                simd.store(out, column * width + c, simd.add(simd.load(out, column * width + c), terms))


@compiled
def weight_range(indptr, indices, weights, start, stop, sums):
    for i in range(start, stop):
        for k in range(indptr[i], indptr[i + 1]):
            sums[indices[k], 0] += weights[i]


@compiled
def product_range(users, items, left, right, start, stop, products):
    lanes = simd.lanes(products)
    rows, columns = left.reshape(-1), right.reshape(-1)
    width = min(left.shape[1], right.shape[1])
    for n in range(start, stop):
        product = simd.zeros(products, 1)[0]
        for c in range(0, width, lanes):
            row = simd.load_wide(rows, users[n] * left.shape[1] + c)
            column = simd.load_wide(columns, items[n] * right.shape[1] + c)
            product = simd.multiply_add(row, column, product)
        products[n] = simd.lane_sum(product)


@compiled
def row_product_range(left, table, start, stop, products, total):
    rank, width = table.shape
    rows, columns = left.reshape(-1), table.reshape(-1)
    for i in range(start, stop):
        simd.clear(total, 0, width)
        combine(rows, i * rank, np.int64(1), columns, width, rank, width, total, np.int64(0))
        for a in range(products.shape[1]):
            products[i, a] = total[a]


@compiled
def table_sum_range(indptr, indices, values, table, start, stop, sums):
    for row in range(start, stop):
        for k in range(indptr[row], indptr[row + 1]):
            if 0 <= indices[k] < len(table):
                for c in range(table.shape[1]):
                    sums[row, c] += values[k] * table[indices[k], c]


@compiled
def scattered_range(indptr, indices, values, columns, weights, start, stop, sums):
    for row in range(start, stop):
        for k in range(indptr[row], indptr[row + 1]):
            for c in range(columns.shape[1]):
                sums[row, columns[indices[k], c]] += values[k] * weights[indices[k], c]


@compiled
def value_sum_range(indptr, values, start, stop, sums):
    for row in range(start, stop):
        begin, end = indptr[row], indptr[row + 1]
        lanes = simd.zeros(sums, 1)[0]  # additions that need not wait for one another
        whole = end - (end - begin) % 8
        for k in range(begin, whole, 8):
            lanes = simd.add(lanes, simd.load_wide(values, k))
        total = simd.pair_sum(lanes)
        for k in range(whole, end):
            total += values[k]
        sums[row] = total


@compiled
def square_range(indptr, values, center, start, stop, sums):
    for row in range(start, stop):
        total = 0.0
        for k in range(indptr[row], indptr[row + 1]):
            deviation = values[k] - center[row]
            total += deviation * deviation
        sums[row] = total


@compiled
def sum_range(indptr, indices, weights, start, stop, sums):
    for row in range(start, stop):
        total = 0.0
        for k in range(indptr[row], indptr[row + 1]):
            total += weights[indices[k]]
        sums[row] = total


@compiled
def outer_range(indptr, columns, values, start, stop, packed):
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


@compiled
def choose_range(scores, leading, start, stop, items, best):
    n_items, count = scores.shape[1], items.shape[1]
    for row in range(start, stop):
        items[row, :] = -1
        best[row, :] = -np.inf
        filled = 0  # places taken, those of the leading items once these are through
        for group in (True, False):
            begin = filled
            if begin == count:
                break
            lowest = best[row, count - 1]
            for item in range(n_items):
                score = scores[row, item]
                if score > lowest and leading[item] == group:
                    place = min(filled, count - 1)
                    while place > begin and best[row, place - 1] < score:
                        best[row, place] = best[row, place - 1]
                        items[row, place] = items[row, place - 1]
                        place -= 1
                    best[row, place] = score
                    items[row, place] = item
                    filled = min(filled + 1, count)
                    lowest = best[row, count - 1]


def arranged(items):
    """Return a table of items by register of items, column and item; kept as long as a read-only table."""
    if (kept := _arranged.get(id(items))) is not None:
        return kept
    (n_items, width), lanes = items.shape, BYTES // 8
    table = np.zeros(
        (-(-n_items // lanes) * lanes, width), np.float32 if items.dtype == np.float32 else float
    )
    table[:n_items] = items
    turned = np.ascontiguousarray(table.reshape(len(table) // lanes, lanes, width).transpose(0, 2, 1))
    if not items.flags.writeable:
        _arranged[id(items)] = turned
        weakref.finalize(items, _arranged.pop, id(items), None)
    return turned


@inner
def four_products(users, rows, turned, places, width, like):
    """Return four products of a row of users and a register of items, summed over the columns in order."""
    one, two, three, four = simd.zeros(like, 4)
    for c in range(width):
        at = c * simd.lanes(like)
        one = simd.multiply_add(simd.splat(users, rows[0] + c), simd.load_wide(turned, places[0] + at), one)
        two = simd.multiply_add(simd.splat(users, rows[1] + c), simd.load_wide(turned, places[1] + at), two)
        three = simd.multiply_add(
            simd.splat(users, rows[2] + c), simd.load_wide(turned, places[2] + at), three
        )
        four = simd.multiply_add(simd.splat(users, rows[3] + c), simd.load_wide(turned, places[3] + at), four)
    return one, two, three, four


@compiled
def score_range(users, items, offset, level, start, stop, scores):
    """Score four users and a register of items at a time, or one user and four registers."""
    n_items, width, lanes = scores.shape[1], users.shape[1], simd.lanes(scores)
    flat, out, turned = users.reshape(-1), scores.reshape(-1), items.reshape(-1)
    whole = n_items - n_items % lanes
    for begin in range(0, whole, AT_ONCE):
        end = min(begin + AT_ONCE, whole)
        for first in range(start, stop, 4):
            alone = stop - first == 1
            rows = first, min(first + 1, stop - 1), min(first + 2, stop - 1), min(first + 3, stop - 1)
            at = rows[0] * width, rows[1] * width, rows[2] * width, rows[3] * width
            for item in range(begin, end, 4 * lanes if alone else lanes):
                if alone:
                    last = end - lanes
                    to = (
                        item,
                        min(item + lanes, last),
                        min(item + 2 * lanes, last),
                        min(item + 3 * lanes, last),
                    )
                    places = to[0] * width, to[1] * width, to[2] * width, to[3] * width
                    cells = four_products(flat, (at[0], at[0], at[0], at[0]), turned, places, width, scores)
                else:
                    to, place = (item, item, item, item), item * width
                    cells = four_products(flat, at, turned, (place, place, place, place), width, scores)
                for k in range(4):
                    base = simd.add(simd.splat(offset, rows[k]), simd.load(level, to[k]))
                    simd.store(out, rows[k] * n_items + to[k], simd.add(base, cells[k]))
    for row in range(start, stop):
        for item in range(whole, n_items):
            product = 0.0
            for c in range(width):
                product += users[row, c] * items[item // lanes, c, item % lanes]
            scores[row, item] = (offset[row] + level[item]) + product
