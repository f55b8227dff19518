"""Cholesky factorizations of many small symmetric matrices at once, one in each lane of a register.

Matrices interleave: number (a, b) of all of them is one register of `work`, so that every operation of the
textbook algorithm is a vector operation, whatever the order. Blocks of 4 x 4 are kept in registers.
"""

from __future__ import annotations

import numpy as np

from hushrec.kernels import simd

SIDE = 4  # rows and columns of a block: 16 sums and their 8 factors fit 32 registers


def scratch(rank: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """work, floor and inverse for matrices of order rank + 1 (the right-hand side is a row of its own)."""
    lanes = simd.BYTES // dtype.itemsize
    order = (rank + SIDE) // SIDE * SIDE
    work, floor, inverse = simd.aligned(dtype, order * order * lanes, order * lanes, order * lanes)
    floor[rank * lanes :] = np.inf  # the rows beyond are no unknowns
    return work, floor, inverse


@simd.inner
def interleave(gram, first, count, rank, order, work):
    """One matrix per lane: work[a, b, lane] = gram[first + lane] (a, b); other lanes and rows are zero."""
    lanes = simd.lanes(work)
    simd.clear(work, 0 if count < lanes else rank * order * lanes, order * order * lanes)
    position = 0
    for a in range(rank):
        for b in range(a + 1):
            at = (a * order + b) * lanes
            for lane in range(count):
                work[at + lane] = gram[first + lane, position]
            position += 1


@simd.inner
def cholesky(work, order, floor, inverse):
    """Factor one matrix per lane in place (strict lower triangle), the inverse diagonal into `inverse`.

    `work` holds rows of `order` registers, a multiple of 4. Pivots not above `floor` count as zero.
    """
    lanes = simd.lanes(work)
    pitch = order * lanes
    for a in range(0, order, SIDE):
        for b in range(0, a, SIDE):
            sums = _remainder(work, a, b, pitch, lanes)
            at = b * pitch + b * lanes
            l10, l20, l30 = load4(work, at, pitch)[1:]
            l21, l31 = load4(work, at + lanes, pitch)[2:]
            l32 = simd.load(work, at + 3 * pitch + 2 * lanes)
            for_row = a * pitch + b * lanes
            x = _finish(sums[0:4], l10, l20, l21, l30, l31, l32, inverse, b * lanes, lanes)
            store4(work, for_row, lanes, x)
            x = _finish(sums[4:8], l10, l20, l21, l30, l31, l32, inverse, b * lanes, lanes)
            store4(work, for_row + pitch, lanes, x)
            x = _finish(sums[8:12], l10, l20, l21, l30, l31, l32, inverse, b * lanes, lanes)
            store4(work, for_row + 2 * pitch, lanes, x)
            x = _finish(sums[12:16], l10, l20, l21, l30, l31, l32, inverse, b * lanes, lanes)
            store4(work, for_row + 3 * pitch, lanes, x)
        sums = _remainder(work, a, a, pitch, lanes)
        f0, f1, f2, f3 = load4(floor, a * lanes, lanes)
        i0 = simd.inverse_root(sums[0], f0)
        l10, l20, l30 = simd.multiply(sums[4], i0), simd.multiply(sums[8], i0), simd.multiply(sums[12], i0)
        i1 = simd.inverse_root(simd.subtract_product(sums[5], l10, l10), f1)
        l21 = simd.multiply(simd.subtract_product(sums[9], l20, l10), i1)
        l31 = simd.multiply(simd.subtract_product(sums[13], l30, l10), i1)
        pivot = simd.subtract_product(simd.subtract_product(sums[10], l20, l20), l21, l21)
        i2 = simd.inverse_root(pivot, f2)
        rest = simd.subtract_product(simd.subtract_product(sums[14], l30, l20), l31, l21)
        l32 = simd.multiply(rest, i2)
        pivot = simd.subtract_product(simd.subtract_product(sums[15], l30, l30), l31, l31)
        i3 = simd.inverse_root(simd.subtract_product(pivot, l32, l32), f3)
        store4(inverse, a * lanes, lanes, (i0, i1, i2, i3))
        at = a * pitch + a * lanes
        simd.store(work, at + pitch, l10)
        simd.store(work, at + 2 * pitch, l20)
        simd.store(work, at + 2 * pitch + lanes, l21)
        simd.store(work, at + 3 * pitch, l30)
        simd.store(work, at + 3 * pitch + lanes, l31)
        simd.store(work, at + 3 * pitch + 2 * lanes, l32)


@simd.inner
def back_substitute(work, order, rank, inverse):
    """Replace row `rank` of the factor (the solution of L y = rhs) by the solution of L^T x = y."""
    lanes = simd.lanes(work)
    pitch = order * lanes
    y = rank * pitch
    for b in range((rank - 1) // SIDE * SIDE, -1, -SIDE):
        at = b * pitch + b * lanes
        i0, i1, i2, i3 = load4(inverse, b * lanes, lanes)
        y0, y1, y2, y3 = load4(work, y + b * lanes, lanes)
        l10, l20, l30 = load4(work, at, pitch)[1:]
        l21, l31 = load4(work, at + lanes, pitch)[2:]
        l32 = simd.load(work, at + 3 * pitch + 2 * lanes)
        x3 = simd.multiply(y3, i3)
        x2 = simd.multiply(simd.subtract_product(y2, l32, x3), i2)
        x1 = simd.multiply(simd.subtract_product(simd.subtract_product(y1, l31, x3), l21, x2), i1)
        rest = simd.subtract_product(simd.subtract_product(y0, l30, x3), l20, x2)
        x0 = simd.multiply(simd.subtract_product(rest, l10, x1), i0)
        store4(work, y + b * lanes, lanes, (x0, x1, x2, x3))
        for k in range(0, b * lanes, lanes):
            l0, l1, l2, l3 = load4(work, b * pitch + k, pitch)
            rest = simd.subtract_product(simd.subtract_product(simd.load(work, y + k), l0, x0), l1, x1)
            simd.store(work, y + k, simd.subtract_product(simd.subtract_product(rest, l2, x2), l3, x3))


@simd.inner
def _remainder(work, a, b, pitch, lanes):
    """The 4 x 4 block (a, b) less the product of the factor's rows before column b."""
    at = a * pitch + b * lanes
    sums = (
        load4(work, at, lanes)
        + load4(work, at + pitch, lanes)
        + load4(work, at + 2 * pitch, lanes)
        + load4(work, at + 3 * pitch, lanes)
    )
    for k in range(0, b * lanes, lanes):
        left, right = load4(work, a * pitch + k, pitch), load4(work, b * pitch + k, pitch)
        sums = simd.subtract_outer(sums, left, right)
    return sums


@simd.inner
def _finish(sums, l10, l20, l21, l30, l31, l32, inverse, at, lanes):
    """One row of a Cholesky block: what is left of its 4 columns, solved against the diagonal block."""
    s0, s1, s2, s3 = sums
    x0 = simd.multiply(s0, simd.load(inverse, at))
    x1 = simd.multiply(simd.subtract_product(s1, x0, l10), simd.load(inverse, at + lanes))
    s2 = simd.subtract_product(simd.subtract_product(s2, x0, l20), x1, l21)
    x2 = simd.multiply(s2, simd.load(inverse, at + 2 * lanes))
    s3 = simd.subtract_product(simd.subtract_product(simd.subtract_product(s3, x0, l30), x1, l31), x2, l32)
    x3 = simd.multiply(s3, simd.load(inverse, at + 3 * lanes))
    return x0, x1, x2, x3


@simd.inner
def load4(work, at, step):
    return (
        simd.load(work, at),
        simd.load(work, at + step),
        simd.load(work, at + 2 * step),
        simd.load(work, at + 3 * step),
    )


@simd.inner
def store4(work, at, step, registers):
    simd.store(work, at, registers[0])
    simd.store(work, at + step, registers[1])
    simd.store(work, at + 2 * step, registers[2])
    simd.store(work, at + 3 * step, registers[3])
