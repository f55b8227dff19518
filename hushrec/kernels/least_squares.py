"""Ridge regressions of all rows of a sparse matrix on shared factors: the work of alternating least squares.

Row i of a CSR matrix asks for the x that minimises ``sum_j w_ij (t_ij - x . factors_j)^2 + x . ridge_i x``
over its entries, with targets ``t_ij = values_ij - row_offset_i - col_offset_j`` and weights
``w_ij = row_weight_i * col_weight_j >= 0``. A row belongs to one thread and is summed in the order of its
entries, so results depend neither on the number of threads nor on which rows are computed together.

A symmetric matrix of order d is stored as its packed lower triangle, row by row: entry (a, b), b <= a, is
number ``a * (a + 1) // 2 + b`` of ``d * (d + 1) // 2``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hushrec.kernels import simd, threads

TILE = 8  # rows of a Gramian that are accumulated in registers together
SIDE = 4  # rows and columns of a Cholesky block kept in registers
BLOCK_BYTES = 24576  # gathered factor rows: they stay in the first-level cache

Array = NDArray[np.floating]


def normal_equations(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    values: Array,
    factors: Array,
    *,
    row_offset: Array | None = None,
    col_offset: Array | None = None,
    row_weight: Array | None = None,
    col_weight: Array | None = None,
    start: int = 0,
    stop: int | None = None,
) -> tuple[Array, Array]:
    """Gramians and right-hand sides of the rows start, ..., stop - 1.

    Parameters
    ----------
    indptr, indices, values : arrays
        CSR matrix with rows `indptr[i]:indptr[i + 1]`; column indices below ``len(factors)``.
    factors : (n_cols, d) array
        float32 or float64; results have its type and are computed in it.
    row_offset, col_offset : (n_rows,) and (n_cols,) arrays, optional
        Subtracted from the values.
    row_weight, col_weight : (n_rows,) and (n_cols,) arrays, optional
        Not negative; their product weighs an entry.
    start, stop : int
        The rows wanted; all by default.

    Returns
    -------
    gram : (stop - start, d * (d + 1) // 2) array
        ``sum_j w_ij factors_j factors_j^T``, packed lower triangles.
    rhs : (stop - start, d) array
        ``sum_j w_ij t_ij factors_j``. Rows without entries are zero in both.
    """
    n_rows = len(indptr) - 1
    stop = n_rows if stop is None else stop
    if not 0 <= start <= stop <= n_rows:
        raise ValueError(f"rows {start} to {stop} are not among the {n_rows} rows.")
    part = slice(start, stop)
    if row_offset is not None:
        row_offset = vector(row_offset, n_rows, factors.dtype, 0.0, "row_offset")[part]
    if row_weight is not None:
        row_weight = vector(row_weight, n_rows, factors.dtype, 1.0, "row_weight")[part]
    rows = _Rows(
        indptr[start : stop + 1], indices, values, factors, row_offset, col_offset, row_weight, col_weight
    )
    gram = np.empty((rows.n_rows, rows.rank * (rows.rank + 1) // 2), rows.dtype)
    rhs = np.empty((rows.n_rows, rows.rank), rows.dtype)

    def accumulate(first: int, last: int) -> None:
        _normal_range(*rows.arrays, first, last, gram[first:last], rhs[first:last])

    threads.run(accumulate, rows.work)
    return gram, rhs


def ridge_solve(gram: Array, rhs: Array, ridge: Array | float, row_ridge: Array | None = None) -> Array:
    """Solve ``(gram_i + row_ridge_i * diag(ridge)) x_i = rhs_i`` for every row i by Cholesky.

    A pivot that is not above d * machine epsilon times its diagonal counts as zero, and so does its unknown;
    thus rows without entries solve to zero and nothing raises.

    Parameters
    ----------
    gram : (n_rows, d * (d + 1) // 2) array
        Packed lower triangles, float32 or float64.
    rhs : (n_rows, d) array
    ridge : (d,) array or float
        Added to the diagonals.
    row_ridge : (n_rows,) array, optional
        Multiplies `ridge`, row by row.

    Returns
    -------
    (n_rows, d) array
    """
    gram = np.ascontiguousarray(gram)
    dtype = float_type(gram)
    rhs = np.ascontiguousarray(rhs, dtype)
    n_rows, rank = rhs.shape
    if gram.shape != (n_rows, rank * (rank + 1) // 2):
        raise ValueError(f"gram has shape {gram.shape}, which does not fit rhs of shape {rhs.shape}.")
    ridge = vector(ridge, rank, dtype, 0.0, "ridge")
    row_ridge = vector(row_ridge, n_rows, dtype, 1.0, "row_ridge")
    solution = np.empty((n_rows, rank), dtype)

    def solve(first: int, last: int) -> None:
        part = slice(first, last)
        _ridge_range(gram[part], rhs[part], ridge, row_ridge[part], solution[part])

    threads.run(solve, np.full(n_rows, _solve_work(rank)))
    return solution


def solve_rows(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    values: Array,
    factors: Array,
    ridge: Array | float,
    *,
    row_offset: Array | None = None,
    col_offset: Array | None = None,
    row_weight: Array | None = None,
    col_weight: Array | None = None,
    row_ridge: Array | None = None,
) -> Array:
    """`normal_equations` then `ridge_solve`, bit for bit, without ever holding all Gramians.

    Parameters and result as there: (n_rows, d) array, zero for rows without entries.
    """
    rows = _Rows(indptr, indices, values, factors, row_offset, col_offset, row_weight, col_weight)
    ridge = vector(ridge, rows.rank, rows.dtype, 0.0, "ridge")
    row_ridge = vector(row_ridge, rows.n_rows, rows.dtype, 1.0, "row_ridge")
    solution = np.empty((rows.n_rows, rows.rank), rows.dtype)

    def solve(first: int, last: int) -> None:
        _solve_range(*rows.arrays, ridge, row_ridge, first, last, solution)

    threads.run(solve, rows.work + _solve_work(rows.rank))
    return solution


def project_psd(gram: Array) -> Array:
    """The nearest positive semidefinite matrices: negative eigenvalues become zero.

    A matrix whose Cholesky factorization succeeds is returned as it is, bit for bit; only the others pay for
    their eigenvalues. Rounding is forgiven: 8 * d * machine epsilon of the largest entry.

    Parameters
    ----------
    gram : (n_rows, d * (d + 1) // 2) array
        Packed lower triangles; not changed.

    Returns
    -------
    (n_rows, d * (d + 1) // 2) array
    """
    gram = np.array(gram, order="C")
    dtype = float_type(gram)
    n_rows, size = gram.shape
    rank = int((2 * size + 0.25) ** 0.5)
    if size != rank * (rank + 1) // 2:
        raise ValueError(f"gram has {size} columns, which is no packed triangle.")
    tolerance = np.asarray(8 * rank * np.finfo(dtype).eps, dtype)
    failed = np.empty(n_rows, np.bool_)

    def attempt(first: int, last: int) -> None:
        _attempt_range(gram[first:last], rank, tolerance, failed[first:last])

    threads.run(attempt, np.full(n_rows, _solve_work(rank)))
    bad = np.flatnonzero(failed)
    lower = np.tril_indices(rank)

    def clamp(first: int, last: int) -> None:
        part = bad[first:last]
        full = np.zeros((len(part), rank, rank), np.float64)
        full[:, lower[0], lower[1]] = gram[part]
        eigenvalues, vectors = np.linalg.eigh(full, UPLO="L")
        projected = (vectors * np.maximum(eigenvalues, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1)
        gram[part] = projected[:, lower[0], lower[1]]

    with threadpool_limits(1, "blas"):  # one small matrix shared by several threads takes ten times as long
        threads.run(clamp, np.full(len(bad), 40.0 * rank**3))
    return gram


class _Rows:
    """The arguments of the compiled functions: contiguous, of few types, factors padded to registers."""

    def __init__(
        self,
        indptr: NDArray[np.integer],
        indices: NDArray[np.integer],
        values: Array,
        factors: Array,
        row_offset: Array | None,
        col_offset: Array | None,
        row_weight: Array | None,
        col_weight: Array | None,
    ) -> None:
        n_cols, self.rank = factors.shape
        self.dtype = dtype = float_type(factors)
        indptr, indices, values = check_csr(indptr, indices, values, n_cols)
        self.n_rows = len(indptr) - 1
        columns = np.empty((n_cols, 2), dtype)
        columns[:, 0] = vector(col_offset, n_cols, dtype, 0.0, "col_offset")
        columns[:, 1] = np.sqrt(vector(col_weight, n_cols, dtype, 1.0, "col_weight"))
        table = padded(factors, columns[:, 1])
        offset = vector(row_offset, self.n_rows, dtype, 0.0, "row_offset")
        weight = vector(row_weight, self.n_rows, dtype, 1.0, "row_weight")
        self.arrays = (indptr, indices, values, table, columns, offset, weight)
        self.work = np.diff(indptr) * (self.rank * (self.rank + 3.0) / 2.0)


def check_csr(
    indptr: NDArray[np.integer], indices: NDArray[np.integer], values: Array, n_cols: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], Array]:
    """The CSR arrays with the types that the compiled functions take, safe to index with."""
    starts = np.ascontiguousarray(indptr, np.int64)
    columns = np.ascontiguousarray(indices, np.int32)
    values = np.ascontiguousarray(values, np.float32 if values.dtype == np.float32 else np.float64)
    if len(starts) == 0 or starts[0] < 0 or starts[-1] > len(columns) or (np.diff(starts) < 0).any():
        raise ValueError("indptr must not decrease and must stay within the entries.")
    if values.shape != columns.shape:
        raise ValueError(f"{len(values)} values do not fit {len(columns)} indices.")
    used = columns[starts[0] : starts[-1]].view(np.uint32)  # a negative index is a large one
    if len(used) and used.max() >= n_cols:
        raise ValueError(f"a column index is not among the {n_cols} columns.")
    return starts, columns, values


def padded(factors: Array, scale: Array | None = None) -> Array:
    """Factors (times `scale`, row by row) with zero columns up to whole registers, rows on cache lines."""
    dtype = factors.dtype
    lanes = simd.BYTES // dtype.itemsize
    n_rows, rank = factors.shape
    width = -(-rank // lanes) * lanes
    memory = np.zeros(n_rows * width + lanes, dtype)
    skip = -memory.ctypes.data % simd.BYTES // dtype.itemsize
    table = memory[skip : skip + n_rows * width].reshape(n_rows, width)
    if scale is None:
        table[:, :rank] = factors
    else:
        np.multiply(factors, scale[:, None], out=table[:, :rank])
    return table


def float_type(array: Array) -> np.dtype:
    if array.dtype not in (np.float32, np.float64):
        raise ValueError(f"float32 or float64 expected, not {array.dtype}.")
    return array.dtype


def vector(value: Array | float | None, size: int, dtype: np.dtype, default: float, name: str) -> Array:
    if value is None:
        return np.full(size, default, dtype)
    value = np.asarray(value, dtype)
    if value.shape not in ((), (size,)):
        raise ValueError(f"{name} has shape {value.shape} instead of ({size},).")
    return np.array(np.broadcast_to(value, (size,)))  # never read-only, which numba takes for another type


def _solve_work(rank: int) -> float:
    return (rank + 1.0) ** 3 / 6.0 + 2.0 * rank**2


@simd.compiled
def _load4(work, at, step):
    return (
        simd.load(work, at),
        simd.load(work, at + step),
        simd.load(work, at + 2 * step),
        simd.load(work, at + 3 * step),
    )


@simd.compiled
def _store4(work, at, step, registers):
    simd.store(work, at, registers[0])
    simd.store(work, at + step, registers[1])
    simd.store(work, at + 2 * step, registers[2])
    simd.store(work, at + 3 * step, registers[3])


@simd.compiled
def combine(coefficients, first, step, block, width, count, columns, out, at):
    """out[at + c] += sum_k coefficients[first + k * step] * block[k, c] for the registers c < columns."""
    for c in range(0, columns, simd.lanes(block)):
        s0, s1, s2, s3 = simd.zeros(block, 4)
        k = 0
        while k + 4 <= count:
            i = first + k * step
            b0, b1, b2, b3 = _load4(block, k * width + c, width)
            s0 = simd.multiply_add(simd.splat(coefficients, i), b0, s0)
            s1 = simd.multiply_add(simd.splat(coefficients, i + step), b1, s1)
            s2 = simd.multiply_add(simd.splat(coefficients, i + 2 * step), b2, s2)
            s3 = simd.multiply_add(simd.splat(coefficients, i + 3 * step), b3, s3)
            k += 4
        while k < count:
            i = first + k * step
            s0 = simd.multiply_add(simd.splat(coefficients, i), simd.load(block, k * width + c), s0)
            k += 1
        total = simd.add(simd.add(s0, s1), simd.add(s2, s3))
        simd.store(out, at + c, simd.add(simd.load(out, at + c), total))


@simd.compiled
def _accumulate(block, count, width, rank, gram):
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


@simd.compiled
def _normal_range(indptr, indices, values, table, columns, offset, weight, start, stop, gram, rhs):
    rank, width = rhs.shape[1], table.shape[1]
    lanes = simd.lanes(table)
    flat = table.reshape(-1)
    size = max(BLOCK_BYTES // (width * flat.itemsize), 8)
    block = np.empty(size * width, table.dtype)
    targets = np.empty(size, table.dtype)
    square = np.empty(rank * width, table.dtype)
    total = np.empty(width, table.dtype)
    for row in range(start, stop):
        square[:] = 0.0
        total[:] = 0.0
        for begin in range(indptr[row], indptr[row + 1], size):
            count = min(size, indptr[row + 1] - begin)
            for k in range(count):
                column = np.int64(indices[begin + k])
                target = table.dtype.type(values[begin + k]) - offset[row] - columns[column, 0]
                targets[k] = target * columns[column, 1]
                for c in range(0, width, lanes):
                    simd.store(block, k * width + c, simd.load(flat, column * width + c))
            _accumulate(block, count, width, rank, square)
            combine(targets, 0, 1, block, width, count, width, total, 0)
        position = 0
        for a in range(rank):
            rhs[row - start, a] = weight[row] * total[a]
            for b in range(a + 1):
                gram[row - start, position] = weight[row] * square[a * width + b]
                position += 1


@simd.compiled
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


@simd.compiled
def _remainder(work, a, b, pitch, lanes):
    """The 4 x 4 block (a, b) less the product of the factor's rows before column b."""
    at = a * pitch + b * lanes
    sums = (
        _load4(work, at, lanes)
        + _load4(work, at + pitch, lanes)
        + _load4(work, at + 2 * pitch, lanes)
        + _load4(work, at + 3 * pitch, lanes)
    )
    for k in range(0, b * lanes, lanes):
        left, right = _load4(work, a * pitch + k, pitch), _load4(work, b * pitch + k, pitch)
        sums = simd.subtract_outer(sums, left, right)
    return sums


@simd.compiled
def _cholesky(work, order, floor, inverse):
    """Factor one matrix per lane in place (strict lower triangle), the inverse diagonal into `inverse`.

    `work` holds rows of `order` registers, a multiple of 4. Pivots not above `floor` count as zero.
    """
    lanes = simd.lanes(work)
    pitch = order * lanes
    for a in range(0, order, SIDE):
        for b in range(0, a, SIDE):
            sums = _remainder(work, a, b, pitch, lanes)
            at = b * pitch + b * lanes
            l10, l20, l30 = _load4(work, at, pitch)[1:]
            l21, l31 = _load4(work, at + lanes, pitch)[2:]
            l32 = simd.load(work, at + 3 * pitch + 2 * lanes)
            for_row = a * pitch + b * lanes
            x = _finish(sums[0:4], l10, l20, l21, l30, l31, l32, inverse, b * lanes, lanes)
            _store4(work, for_row, lanes, x)
            x = _finish(sums[4:8], l10, l20, l21, l30, l31, l32, inverse, b * lanes, lanes)
            _store4(work, for_row + pitch, lanes, x)
            x = _finish(sums[8:12], l10, l20, l21, l30, l31, l32, inverse, b * lanes, lanes)
            _store4(work, for_row + 2 * pitch, lanes, x)
            x = _finish(sums[12:16], l10, l20, l21, l30, l31, l32, inverse, b * lanes, lanes)
            _store4(work, for_row + 3 * pitch, lanes, x)
        sums = _remainder(work, a, a, pitch, lanes)
        f0, f1, f2, f3 = _load4(floor, a * lanes, lanes)
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
        _store4(inverse, a * lanes, lanes, (i0, i1, i2, i3))
        at = a * pitch + a * lanes
        simd.store(work, at + pitch, l10)
        simd.store(work, at + 2 * pitch, l20)
        simd.store(work, at + 2 * pitch + lanes, l21)
        simd.store(work, at + 3 * pitch, l30)
        simd.store(work, at + 3 * pitch + lanes, l31)
        simd.store(work, at + 3 * pitch + 2 * lanes, l32)


@simd.compiled
def _back_substitute(work, order, rank, inverse):
    """Replace row `rank` of the factor (the solution of L y = rhs) by the solution of L^T x = y."""
    lanes = simd.lanes(work)
    pitch = order * lanes
    y = rank * pitch
    for b in range((rank - 1) // SIDE * SIDE, -1, -SIDE):
        at = b * pitch + b * lanes
        i0, i1, i2, i3 = _load4(inverse, b * lanes, lanes)
        y0, y1, y2, y3 = _load4(work, y + b * lanes, lanes)
        l10, l20, l30 = _load4(work, at, pitch)[1:]
        l21, l31 = _load4(work, at + lanes, pitch)[2:]
        l32 = simd.load(work, at + 3 * pitch + 2 * lanes)
        x3 = simd.multiply(y3, i3)
        x2 = simd.multiply(simd.subtract_product(y2, l32, x3), i2)
        x1 = simd.multiply(simd.subtract_product(simd.subtract_product(y1, l31, x3), l21, x2), i1)
        rest = simd.subtract_product(simd.subtract_product(y0, l30, x3), l20, x2)
        x0 = simd.multiply(simd.subtract_product(rest, l10, x1), i0)
        _store4(work, y + b * lanes, lanes, (x0, x1, x2, x3))
        for k in range(0, b * lanes, lanes):
            l0, l1, l2, l3 = _load4(work, b * pitch + k, pitch)
            rest = simd.subtract_product(simd.subtract_product(simd.load(work, y + k), l0, x0), l1, x1)
            simd.store(work, y + k, simd.subtract_product(simd.subtract_product(rest, l2, x2), l3, x3))


@simd.compiled
def _interleave(gram, first, count, rank, order, work):
    """One matrix per lane: work[a, b, lane] = gram[first + lane] (a, b); other lanes and rows are zero."""
    lanes = simd.lanes(work)
    if count < lanes:
        work[:] = 0.0
    work[rank * order * lanes :] = 0.0
    position = 0
    for a in range(rank):
        for b in range(a + 1):
            at = (a * order + b) * lanes
            for lane in range(count):
                work[at + lane] = gram[first + lane, position]
            position += 1


@simd.compiled
def _solve_lanes(gram, rhs, first, count, ridge, row_ridge, solution, work, floor, inverse):
    """Rows first, ..., first + count - 1, at most one per lane."""
    lanes = simd.lanes(work)
    rank = ridge.shape[0]
    order = inverse.shape[0] // lanes
    _interleave(gram, first, count, rank, order, work)
    small = work.dtype.type(rank * np.finfo(work.dtype).eps)
    for a in range(rank):
        for lane in range(count):
            at = (a * order + a) * lanes + lane
            work[at] += ridge[a] * row_ridge[first + lane]
            floor[a * lanes + lane] = max(small * work[at], work.dtype.type(0))
            work[(rank * order + a) * lanes + lane] = rhs[first + lane, a]
    _cholesky(work, order, floor, inverse)
    _back_substitute(work, order, rank, inverse)
    for lane in range(count):
        for a in range(rank):
            solution[first + lane, a] = work[(rank * order + a) * lanes + lane]


@simd.compiled
def _scratch(array, rank):
    """work, floor and inverse for matrices of order rank + 1 (the right-hand side is a row of its own)."""
    lanes = simd.lanes(array)
    order = (rank + SIDE) // SIDE * SIDE
    work = np.zeros(order * order * lanes, array.dtype)
    floor = np.zeros(order * lanes, array.dtype)
    floor[rank * lanes :] = np.inf  # the rows beyond are no unknowns
    return work, floor, np.empty(order * lanes, array.dtype)


@simd.compiled
def _ridge_range(gram, rhs, ridge, row_ridge, solution):
    work, floor, inverse = _scratch(gram, len(ridge))
    lanes = simd.lanes(work)
    for first in range(0, len(gram), lanes):
        count = min(lanes, len(gram) - first)
        _solve_lanes(gram, rhs, first, count, ridge, row_ridge, solution, work, floor, inverse)


@simd.compiled
def _solve_range(
    indptr, indices, values, table, columns, offset, weight, ridge, row_ridge, start, stop, solution
):
    rank = len(ridge)
    work, floor, inverse = _scratch(table, rank)
    lanes = simd.lanes(work)
    gram = np.empty((lanes, rank * (rank + 1) // 2), table.dtype)
    rhs = np.empty((lanes, rank), table.dtype)
    for first in range(start, stop, lanes):
        last = min(first + lanes, stop)
        _normal_range(indptr, indices, values, table, columns, offset, weight, first, last, gram, rhs)
        rows = slice(first, last)
        count = last - first
        _solve_lanes(gram, rhs, 0, count, ridge, row_ridge[rows], solution[rows], work, floor, inverse)


@simd.compiled
def _attempt_range(gram, rank, tolerance, failed):
    work, floor, inverse = _scratch(gram, rank)
    lanes = simd.lanes(work)
    order = inverse.shape[0] // lanes
    for first in range(0, len(gram), lanes):
        count = min(lanes, len(gram) - first)
        _interleave(gram, first, count, rank, order, work)
        for lane in range(count):
            largest = np.abs(gram[first + lane]).max()
            for a in range(rank):
                work[(a * order + a) * lanes + lane] += tolerance[()] * largest
            failed[first + lane] = largest > 0
        _cholesky(work, order, floor, inverse)
        for lane in range(count):
            lowest = inverse[lane]
            for a in range(1, rank):
                lowest = min(lowest, inverse[a * lanes + lane])
            failed[first + lane] = failed[first + lane] and lowest == 0
