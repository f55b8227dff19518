"""Vector registers for numba: a 64-byte SIMD value and the few operations that the kernels need.

A register is an ordinary value of a numba function: ``load`` reads 16 float32 (or 8 float64) numbers,
arithmetic is lane by lane, and LLVM maps it to the machine's instructions (AVX-512, AVX2, NEON). LLVM alone
finds no such registers in scalar loops. Every operation is a fixed IEEE one (no fast-math), so results do not
depend on where a function is inlined. Indices are not checked: the caller keeps the lanes after ``index`` in
the array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.core.datamodel import PrimitiveModel

from hushrec.kernels.arrays import BYTES

# Any: numba's annotations do not describe the decorated functions or the results.
intrinsic: Any = extending.intrinsic


class Register(types.Type):
    """64 bytes of float32 or float64 lanes."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        self.lanes = BYTES * 8 // dtype.bitwidth
        super().__init__(name=f"Register({dtype}x{self.lanes})")


def _llvm(register: Register) -> ir.VectorType:
    element = ir.FloatType() if register.dtype == types.float32 else ir.DoubleType()
    return ir.VectorType(element, register.lanes)


@extending.register_model(Register)
class _RegisterModel(PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Register) -> None:
        super().__init__(dmm, fe_type, _llvm(fe_type))


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def read(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """The register array[index:index + lanes]."""
    pointer = _pointer(context, builder, array_type, array, index)
    pointer = builder.bitcast(pointer, _llvm(Register(array_type.dtype)).as_pointer())
    return builder.load(pointer, align=array_type.dtype.bitwidth // 8)


def write(context: Any, builder: Any, array_type: Any, array: Any, index: Any, value: Any) -> None:
    """array[index:index + lanes] = value."""
    pointer = builder.bitcast(_pointer(context, builder, array_type, array, index), value.type.as_pointer())
    builder.store(value, pointer, align=array_type.dtype.bitwidth // 8)


def less(builder: Any, total: Any, left: Any, right: Any) -> Any:
    """total - left * right, rounded once."""
    return _call(builder, "fma", [builder.fneg(left), right, total])


def steps(builder: Any, start: Any, step: Any, count: int) -> list[Any]:
    """start, start + step, ..., `count` of them."""
    return [builder.add(start, builder.mul(step, ir.Constant(start.type, n))) for n in range(count)]


def _splat(builder: Any, scalar: Any, vector: ir.VectorType) -> Any:
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)


def _emitted(emit: Callable[..., Any]) -> Any:
    """The code generator that numba asks for, of a function of the builder and the arguments alone."""
    return lambda context, builder, signature, arguments: emit(builder, *arguments)


def _call(builder: Any, name: str, arguments: Sequence[Any]) -> Any:
    vector = arguments[0].type
    suffix = f"v{vector.count}f{32 if isinstance(vector.element, ir.FloatType) else 64}"
    signature = ir.FunctionType(vector, [vector] * len(arguments))
    function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.{name}.{suffix}")
    return builder.call(function, arguments)


def _zero(vector: ir.VectorType) -> ir.Constant:
    return ir.Constant(vector, [0.0] * vector.count)


@intrinsic
def lanes(typingctx: Any, array: Any) -> Any:
    count = ir.Constant(ir.IntType(64), Register(array.dtype).lanes)
    return types.int64(array), _emitted(lambda builder, array: count)


@intrinsic
def load(typingctx: Any, array: Any, index: Any) -> Any:
    """The numbers array[index:index + lanes]."""
    return Register(array.dtype)(array, types.int64), lambda context, builder, _, arguments: read(
        context, builder, array, *arguments
    )


@intrinsic
def load_wide(typingctx: Any, array: Any, index: Any) -> Any:
    """The numbers array[index:index + 8] as float64 lanes, exact for float32 arrays too."""
    register = Register(types.float64)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = _llvm(register)
        narrow = wide if array.dtype == types.float64 else ir.VectorType(ir.FloatType(), wide.count)
        pointer = builder.bitcast(_pointer(context, builder, array, *arguments), narrow.as_pointer())
        numbers = builder.load(pointer, align=array.dtype.bitwidth // 8)
        return numbers if narrow is wide else builder.fpext(numbers, wide)

    return register(array, types.int64), codegen


@intrinsic
def store(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        write(context, builder, array, *arguments)
        return context.get_dummy_value()

    return types.void(array, types.int64, value), codegen


@intrinsic(prefer_literal=True)
def load_rows(typingctx: Any, array: Any, index: Any, step: Any, count: Any) -> Any:
    """The registers array[index + i * step:][:lanes] for i below `count` (a literal), as a tuple."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    group = types.UniTuple(Register(array.dtype), count.literal_value)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, start, stride, _ = arguments
        rows = [read(context, builder, array, data, at) for at in steps(builder, start, stride, group.count)]
        return context.make_tuple(builder, group, rows)

    return group(array, types.int64, types.int64, count), codegen


@intrinsic
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    """Send for the cache line of array[index], which is not waited for."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        octets, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [octets, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        pointer = builder.bitcast(_pointer(context, builder, array, *arguments), octets)
        builder.call(function, [pointer, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


@intrinsic
def splat(typingctx: Any, array: Any, index: Any) -> Any:
    """The number array[index] in every lane."""
    register = Register(array.dtype)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        scalar = builder.load(_pointer(context, builder, array, *arguments))
        return _splat(builder, scalar, _llvm(register))

    return register(array, types.int64), codegen


@intrinsic
def multiply(typingctx: Any, left: Any, right: Any) -> Any:
    return left(left, right), _emitted(ir.IRBuilder.fmul)


@intrinsic
def add(typingctx: Any, left: Any, right: Any) -> Any:
    return left(left, right), _emitted(ir.IRBuilder.fadd)


@intrinsic
def multiply_add(typingctx: Any, left: Any, right: Any, total: Any) -> Any:
    """total + left * right, rounded once."""

    return total(left, right, total), _emitted(lambda builder, *terms: _call(builder, "fma", terms))


@intrinsic
def truncate(typingctx: Any, value: Any) -> Any:
    """The integer next to each lane, towards zero."""

    return value(value), _emitted(lambda builder, value: _call(builder, "trunc", [value]))


def inverse_root(builder: Any, value: Any, floor: Any) -> Any:
    """1 / sqrt(value) in the lanes where value > floor, 0 in the others."""
    vector = value.type
    one = ir.Constant(vector, [1.0] * vector.count)
    positive = builder.fcmp_ordered(">", value, floor)
    root = _call(builder, "sqrt", [builder.select(positive, value, one)])
    return builder.select(positive, builder.fdiv(one, root), _zero(vector))


def _tree(builder: Any, total: Any, *, neighbours: bool) -> Any:
    """The sum over the lanes as a balanced tree: of neighbours, or of either half."""
    while total.type.count > 1:
        half = total.type.count // 2
        undefined = ir.Constant(total.type, ir.Undefined)
        mask = ir.VectorType(ir.IntType(32), half)
        by, other = (2, 1) if neighbours else (1, half)
        places = [[by * place + start for place in range(half)] for start in (0, other)]
        parts = [builder.shuffle_vector(total, undefined, ir.Constant(mask, place)) for place in places]
        total = builder.fadd(*parts)
    return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))


@intrinsic
def lane_sum(typingctx: Any, value: Any) -> Any:
    """The sum over the lanes, half to half."""
    return value.dtype(value), _emitted(lambda builder, value: _tree(builder, value, neighbours=False))


@intrinsic
def pair_sum(typingctx: Any, value: Any) -> Any:
    """The sum over the lanes, neighbour to neighbour."""
    return value.dtype(value), _emitted(lambda builder, value: _tree(builder, value, neighbours=True))


@intrinsic(prefer_literal=True)
def zeros(typingctx: Any, array: Any, count: Any) -> Any:
    """A tuple of `count` (a literal) zero registers for numbers of the array's type."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    register = Register(array.dtype)
    group = types.UniTuple(register, count.literal_value)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_tuple(builder, group, [_zero(_llvm(register))] * group.count)

    return group(array, count), codegen


@intrinsic
def add_outer(typingctx: Any, totals: Any, array: Any, index: Any, row: Any) -> Any:
    """totals[i] + array[index + i] * row for every i: one step of a register tile."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        tile, data, start, vector = arguments
        result = []
        for position, total in enumerate(cgutils.unpack_tuple(builder, tile)):
            offset = builder.add(start, ir.Constant(start.type, position))
            scalar = builder.load(_pointer(context, builder, array, data, offset))
            result.append(_call(builder, "fma", [_splat(builder, scalar, vector.type), vector, total]))
        return context.make_tuple(builder, totals, result)

    return totals(totals, array, types.int64, row), codegen


@intrinsic(prefer_literal=True)
def add_scaled(
    typingctx: Any, totals: Any, array: Any, index: Any, step: Any, rows: Any, at: Any, width: Any, count: Any
) -> Any:
    """totals[i] + array[index + i * step] * rows[at + i * width:][:lanes] for the first `count` totals."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    integer = types.int64

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        tile, data, start, stride, block, first, pitch, _ = arguments
        result, size = cgutils.unpack_tuple(builder, tile), count.literal_value
        places = zip(steps(builder, start, stride, size), steps(builder, first, pitch, size), strict=True)
        for position, (scalar, row) in enumerate(places):
            number = builder.load(_pointer(context, builder, array, data, scalar))
            vector = read(context, builder, rows, block, row)
            terms = [_splat(builder, number, vector.type), vector, result[position]]
            result[position] = _call(builder, "fma", terms)
        return context.make_tuple(builder, totals, result)

    return totals(totals, array, integer, integer, rows, integer, integer, count), codegen


@intrinsic
def add_rows(typingctx: Any, array: Any, index: Any, step: Any, totals: Any) -> Any:
    """array[index + i * step:][:lanes] += totals[i] for every i: empties a register tile."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, start, stride, tile = arguments
        registers = cgutils.unpack_tuple(builder, tile)
        for place, total in zip(steps(builder, start, stride, len(registers)), registers, strict=True):
            before = read(context, builder, array, data, place)
            write(context, builder, array, data, place, builder.fadd(before, total))
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, totals), codegen


@intrinsic
def subtract_outer(typingctx: Any, totals: Any, left: Any, right: Any) -> Any:
    """totals[i * len(right) + j] - left[i] * right[j] for tuples of registers."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        tile, rows, columns = (cgutils.unpack_tuple(builder, argument) for argument in arguments)
        result = []
        for i, row in enumerate(rows):
            negative = builder.fneg(row)
            for j, column in enumerate(columns):
                result.append(_call(builder, "fma", [negative, column, tile[i * len(columns) + j]]))
        return context.make_tuple(builder, totals, result)

    return totals(totals, left, right), codegen


@intrinsic
def clear(typingctx: Any, array: Any, start: Any, stop: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, first, last = arguments
        vector = _llvm(Register(array.dtype))
        stride = ir.Constant(first.type, vector.count)
        with cgutils.for_range_slice(builder, first, last, stride, first.type) as (place, _):
            write(context, builder, array, data, place, _zero(vector))
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), codegen
