"""Cholesky factorizations of many small symmetric matrices at once, one in each lane of a register.

Entry (a, b) of all matrices is one register of `work`, so every step is a vector operation. Blocks of 4 x 4
are kept in registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from hushrec.kernels import simd
from hushrec.kernels.arrays import SIDE
from hushrec.machine_code import inner


@inner
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


@inner
def cholesky(work, order, floor, inverse):
    """Factor one matrix per lane in place (strict lower triangle), the inverse diagonal into `inverse`.

    `work` holds rows of `order` registers, a multiple of 4. Pivots not above `floor` count as zero.
    """
    lanes = simd.lanes(work)
    pitch = order * lanes
    for a in range(0, order * lanes, SIDE * lanes):
        for b in range(0, a + lanes, SIDE * lanes):
            at, diagonal = a * order + b, b * order + b
            sums = _load_tile(work, at, pitch)
            for k in range(0, b, lanes):
                left = simd.load_rows(work, a * order + k, pitch, SIDE)
                right = simd.load_rows(work, b * order + k, pitch, SIDE)
                sums = simd.subtract_outer(sums, left, right)
            if b < a:
                _solve_tile(sums, work, at, diagonal, pitch, inverse, b)
            else:
                _factor_tile(sums, work, at, pitch, floor, inverse, b)


@inner
def back_substitute(work, order, rank, inverse):
    """Replace row `rank` of the factor (the solution of L y = rhs) by the solution of L^T x = y."""
    lanes = simd.lanes(work)
    pitch = order * lanes
    y = rank * pitch
    for b in range((rank - 1) // SIDE * SIDE * lanes, -1, -SIDE * lanes):
        solved = _solve_back(work, y + b, b * order + b, pitch, inverse, b)
        for k in range(0, b, lanes):
            rest = _less_products(simd.load(work, y + k), work, b * order + k, pitch, solved)
            simd.store(work, y + k, rest)


# Blocks as instructions: straight lines of a few dozen, which numba takes long to infer the types of


@simd.intrinsic
def _load_tile(typingctx: Any, work: Any, at: Any, pitch: Any) -> Any:
    tile = types.UniTuple(simd.Register(work.dtype), SIDE * SIDE)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places = [place for row in _tile(builder, tile.dtype, *arguments[1:]) for place in row]
        return context.make_tuple(
            builder, tile, [simd.read(context, builder, work, arguments[0], column) for column in places]
        )

    return tile(work, types.int64, types.int64), codegen


@simd.intrinsic
def _factor_tile(
    typingctx: Any, sums: Any, work: Any, at: Any, pitch: Any, floor: Any, inverse: Any, diagonal: Any
) -> Any:
    integer = types.int64

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        tile, data, start, stride, floors, inverses, place = arguments
        rows = _rows(builder, tile)
        places = _tile(builder, sums.dtype, start, stride)
        for column, entry in enumerate(_tile(builder, sums.dtype, place, stride)[0]):
            least = simd.read(context, builder, floor, floors, entry)
            for row in rows[column:]:
                for known in range(column):
                    row[column] = simd.less(builder, row[column], row[known], rows[column][known])
            root = simd.inverse_root(builder, rows[column][column], least)
            simd.write(context, builder, inverse, inverses, entry, root)
            for row, where in zip(rows[column + 1 :], places[column + 1 :], strict=True):
                row[column] = builder.fmul(row[column], root)
                simd.write(context, builder, work, data, where[column], row[column])
        return context.get_dummy_value()

    return types.void(sums, work, integer, integer, floor, inverse, integer), codegen


@simd.intrinsic
def _solve_tile(
    typingctx: Any, sums: Any, work: Any, at: Any, diagonal: Any, pitch: Any, inverse: Any, column: Any
) -> Any:
    integer = types.int64

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        tile, data, start, corner, stride, inverses, place = arguments
        factor = _lower(context, builder, work, data, _tile(builder, sums.dtype, corner, stride))
        roots = [
            simd.read(context, builder, inverse, inverses, entry)
            for entry in _tile(builder, sums.dtype, place, stride)[0]
        ]
        for row, places in zip(_rows(builder, tile), _tile(builder, sums.dtype, start, stride), strict=True):
            for j in range(SIDE):
                for k in range(j):
                    row[j] = simd.less(builder, row[j], row[k], factor[j][k])
                row[j] = builder.fmul(row[j], roots[j])
                simd.write(context, builder, work, data, places[j], row[j])
        return context.get_dummy_value()

    return types.void(sums, work, integer, integer, integer, inverse, integer), codegen


@simd.intrinsic
def _solve_back(
    typingctx: Any, work: Any, y: Any, diagonal: Any, pitch: Any, inverse: Any, column: Any
) -> Any:
    """Four unknowns from the transposed block of the diagonal, into `work` at `y`; they are returned too."""
    integer, group = types.int64, types.UniTuple(simd.Register(work.dtype), SIDE)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, start, corner, stride, inverses, place = arguments
        factor = _lower(context, builder, work, data, _tile(builder, group.dtype, corner, stride))
        places = _tile(builder, group.dtype, start, stride)[0]
        roots = _tile(builder, group.dtype, place, stride)[0]
        solved = [simd.read(context, builder, work, data, entry) for entry in places]
        for j in reversed(range(SIDE)):
            for k in reversed(range(j + 1, SIDE)):
                solved[j] = simd.less(builder, solved[j], factor[k][j], solved[k])
            root = simd.read(context, builder, inverse, inverses, roots[j])
            solved[j] = builder.fmul(solved[j], root)
            simd.write(context, builder, work, data, places[j], solved[j])
        return context.make_tuple(builder, group, solved)

    return group(work, integer, integer, integer, inverse, integer), codegen


@simd.intrinsic
def _less_products(typingctx: Any, total: Any, work: Any, at: Any, pitch: Any, factors: Any) -> Any:
    """total - work[at + i * pitch:][:lanes] * factors[i] for each i in turn."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rest, data, start, stride, group = arguments
        for place, factor in zip(
            simd.steps(builder, start, stride, SIDE), cgutils.unpack_tuple(builder, group), strict=True
        ):
            rest = simd.less(builder, rest, simd.read(context, builder, work, data, place), factor)
        return rest

    return total(total, work, types.int64, types.int64, factors), codegen


def _tile(builder: Any, register: simd.Register, start: Any, pitch: Any) -> list[list[Any]]:
    lanes = ir.Constant(start.type, register.lanes)
    return [simd.steps(builder, row, lanes, SIDE) for row in simd.steps(builder, start, pitch, SIDE)]


def _rows(builder: Any, tile: Any) -> list[list[Any]]:
    registers = cgutils.unpack_tuple(builder, tile)
    return [registers[at : at + SIDE] for at in range(0, SIDE * SIDE, SIDE)]


def _lower(context: Any, builder: Any, work: Any, data: Any, places: list[list[Any]]) -> list[list[Any]]:
    return [
        [simd.read(context, builder, work, data, place) for place in row[:below]]
        for below, row in enumerate(places)
    ]
