"""Projection of noisy Gramians onto the positive semidefinite matrices, one matrix a register lane.

A Cholesky factorization finds the matrices that need it. Those get their eigenvectors from one-sided Jacobi
rotations (M. R. Hestenes, Inversion of matrices by biorthogonalization, 1958) of the matrix moved to be
definite: they take more arithmetic than other methods, but the same in every lane.
"""

from __future__ import annotations

import numpy as np

from hushrec.kernels import simd, threads
from hushrec.kernels.arrays import SIDE, Array, aligned, cholesky_scratch, float_type
from hushrec.kernels.cholesky import cholesky, interleave
from hushrec.machine_code import compiled, inner

MOST_SWEEPS = 40  # 5 to 9 happen


def project_psd(gram: Array) -> Array:
    """The nearest positive semidefinite matrices: negative eigenvalues become zero.

    A matrix whose Cholesky factorization succeeds is returned unchanged. Only the others need eigenvalues.
    Rounding is forgiven: 8 * d * machine epsilon of the largest entry.

    Parameters
    ----------
    gram : (n_rows, d * (d + 1) // 2) array
        Packed lower triangles, float32 or float64; not changed.

    Returns
    -------
    (n_rows, d * (d + 1) // 2) array
    """
    gram = np.array(gram, order="C")
    dtype = float_type(gram)
    n_rows, size = gram.shape
    rank = int((2 * size + 0.25) ** 0.5)
    if size != rank * (rank + 1) // 2:
        raise ValueError(f"gram has {size} columns, which is not a packed triangle.")
    tolerance = np.array([8 * rank * np.finfo(dtype).eps], dtype)
    failed = np.empty(n_rows, np.bool_)

    def attempt(first: int, last: int) -> None:
        _attempt_range(gram[first:last], rank, tolerance, failed[first:last], *cholesky_scratch(rank, dtype))

    threads.run(attempt, np.full(n_rows, rank**3 / 6.0 + 2.0 * rank**2))
    bad = np.flatnonzero(failed)

    def clamp(first: int, last: int) -> None:
        part = bad[first:last]
        matrices = gram[part].astype(np.float64)
        work, scaled, squares = cholesky_scratch(rank, matrices.dtype)
        columns, shift, scale = aligned(work.dtype, len(work), 8, 8)
        _clamp_range(matrices, rank, work, scaled, squares, columns, shift, scale)
        gram[part] = matrices

    threads.run(clamp, np.full(len(bad), 15.0 * rank**3))
    return gram


@compiled
def _attempt_range(gram, rank, tolerance, failed, work, floor, inverse):
    """Mark the matrices whose Cholesky factorization fails, with a tolerance relative to the largest
    entry."""
    lanes = simd.lanes(work)
    order = inverse.shape[0] // lanes
    for first in range(0, len(gram), lanes):
        count = min(lanes, len(gram) - first)
        interleave(gram, first, count, rank, order, work)
        for lane in range(count):
            largest = np.abs(gram[first + lane]).max()
            for a in range(rank):
                work[(a * order + a) * lanes + lane] += tolerance[0] * largest
            failed[first + lane] = largest > 0
        cholesky(work, order, floor, inverse)
        for lane in range(count):
            lowest = inverse[lane]
            for a in range(1, rank):
                lowest = min(lowest, inverse[a * lanes + lane])
            failed[first + lane] = failed[first + lane] and lowest == 0


@compiled
def _clamp_range(gram, rank, work, scaled, squares, columns, shift, scale):
    lanes = simd.lanes(work)
    pitch = scaled.shape[0]
    order = pitch // lanes
    for first in range(0, len(gram), lanes):
        count = min(lanes, len(gram) - first)
        interleave(gram, first, count, rank, order, work)
        for lane in range(lanes):
            square = 0.0
            for a in range(rank):
                for b in range(a + 1):
                    number = work[a * pitch + b * lanes + lane]
                    columns[a * pitch + b * lanes + lane] = columns[b * pitch + a * lanes + lane] = number
                    square += number * number if a == b else 2.0 * number * number
            shift[lane] = 1.01 * np.sqrt(square) + (square == 0.0)  # above minus the lowest eigenvalue
            for a in range(rank):
                columns[a * pitch + a * lanes + lane] += shift[lane]
        _orthogonalize(columns, rank, pitch, squares)
        for p in range(rank):  # column p is now an eigenvector times its eigenvalue plus the shift
            for lane in range(lanes):
                square = squares[p * lanes + lane]
                scale[lane] = min(np.sqrt(square) - shift[lane], 0.0) / square
            factor = simd.load(scale, 0)
            for a in range(0, rank * lanes, lanes):
                simd.store(scaled, a, simd.multiply(simd.load(columns, p * pitch + a), factor))
            for a in range(rank):
                factor = simd.load(scaled, a * lanes)
                for b in range(0, (a + 1) * lanes, lanes):
                    number = simd.load(work, a * pitch + b)
                    other = simd.load(columns, p * pitch + b)
                    simd.store(work, a * pitch + b, simd.subtract_product(number, factor, other))
        for lane in range(count):
            position = 0
            for a in range(rank):
                for b in range(a + 1):
                    gram[first + lane, position] = work[a * pitch + b * lanes + lane]
                    position += 1


@inner
def _orthogonalize(columns, rank, pitch, squares):
    """Rotate pairs of columns until all are orthogonal; their squared norms into `squares`."""
    lanes = simd.lanes(columns)
    for _ in range(MOST_SWEEPS):
        for p in range(rank):
            at = p * pitch
            simd.store(squares, p * lanes, _dot(columns, at, at, rank * lanes, lanes))
        rotated = False
        for first in range(
            0, rank, SIDE
        ):  # a few columns that stay in the first-level cache, with all later ones
            last = min(first + SIDE, rank)
            for q in range(first + 1, rank):
                for p in range(first, min(q, last)):
                    rotated |= _rotate(columns, p, q, rank, pitch, squares)
        if not rotated:
            break


@inner
def _rotate(columns, p, q, rank, pitch, squares):
    """Make columns p and q orthogonal; whether they were not."""
    lanes = simd.lanes(columns)
    tolerance = (4.0 * rank * np.finfo(columns.dtype).eps) ** 2
    alpha, beta = simd.load(squares, p * lanes), simd.load(squares, q * lanes)
    gamma = _dot(columns, p * pitch, q * pitch, rank * lanes, lanes)
    tangent, cosine, sine, turns = simd.rotation(alpha, beta, gamma, tolerance)
    if turns:
        simd.store(squares, p * lanes, simd.subtract_product(alpha, tangent, gamma))
        simd.store(squares, q * lanes, simd.multiply_add(tangent, gamma, beta))
        for k in range(0, rank * lanes, lanes):
            left, right = simd.load(columns, p * pitch + k), simd.load(columns, q * pitch + k)
            turned = simd.subtract_product(simd.multiply(cosine, left), sine, right)
            simd.store(columns, p * pitch + k, turned)
            turned = simd.multiply_add(sine, left, simd.multiply(cosine, right))
            simd.store(columns, q * pitch + k, turned)
    return turns


@inner
def _dot(array, left, right, stop, lanes):
    """Lane by lane, the product of two vectors of stop / lanes registers."""
    s0, s1, s2, s3 = simd.zeros(array, 4)
    k = 0
    while k + SIDE * lanes <= stop:
        l0, l1, l2, l3 = simd.load_rows(array, left + k, lanes, SIDE)
        r0, r1, r2, r3 = simd.load_rows(array, right + k, lanes, SIDE)
        s0, s1 = simd.multiply_add(l0, r0, s0), simd.multiply_add(l1, r1, s1)
        s2, s3 = simd.multiply_add(l2, r2, s2), simd.multiply_add(l3, r3, s3)
        k += SIDE * lanes
    while k < stop:
        s0 = simd.multiply_add(simd.load(array, left + k), simd.load(array, right + k), s0)
        k += lanes
    return simd.add(simd.add(s0, s1), simd.add(s2, s3))
