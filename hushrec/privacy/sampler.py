"""Exact noise: the rounding of an ideal real-valued sum, from random words. Proof: docs/proofs/noise.md.

`add_noise` turns ``value`` into ``g round((value + scale * Z) / g)``: Z is a real number of the normal or
Laplace law, and g a power of two that depends on the scale only. A compiled function does so in float64, with
proven margins. `draw_exactly` repeats the few draws within a margin in integers of any length, from the
same words and further bits of the same real numbers.

One draw reads from its first word 32 bits for the cell [k h, (k+1) h) of |Z|, by inversion, 31 for the start
of a uniform V, and 1 for the sign. From the next word it reads the place X in the cell, |Z| = h (k + X). It
accepts if V < exp(-t), t = X (a_k + b X). If 31 bits of V do not decide, it reads 64 more; after a rejection,
a new X and V.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from hushrec.machine_code import compiled
from hushrec.privacy.exact import Uniform, exp_minus

Words = Callable[[int], npt.NDArray[np.uint64]]
_Array = npt.NDArray[Any]

#: An entry's grid is 2^-24 to 2^-25 of its scale.
GRID_BITS = 25
#: In grid steps: beyond it too many draws would be done in Python.
LARGEST_SCALE = 2.0**40

# docs/proofs/noise.md explains each of these
_THRESHOLD_BITS = 128
_GUARD_BITS = 128  # that thresholds are computed with and cut
_WIDTH_BITS = 5  # cells are 2^-5 wide
_CELL_BITS, _COIN_BITS, _GUIDE_BITS = 32, 31, 12
_COIN_MASK, _COIN_UNIT = 2**_COIN_BITS - 1, 2.0**-_COIN_BITS  # numba would compile a power function
_TERMS = 12  # of the series of exp(-t): the rest is below 2^-62
_FAR = 2.0**110  # a value of so many grid steps is an integer of them, and noise is below its last bit
_HALF_EXPONENT = 600  # two powers of two up to 2^600 have every power that float64 holds as their product
_POWERS = np.ldexp(1.0, np.arange(-_HALF_EXPONENT, _HALF_EXPONENT + 1))
_PENDING = 256  # undecided draws that are kept before they are done: far more than a chunk has


@dataclass(frozen=True)
class Margins:
    """Distances at which float64 decides; docs/proofs/noise.md bounds its errors by less."""

    acceptance: float = 2.0**-45  # of V against exp(-t)
    rounding: float = 2.0**-46  # of the sum against a half-integer, in parts of the scale
    sum: float = 2.0**-50  # the same, for what does not grow with the scale


@dataclass(frozen=True, eq=False)
class Law:
    """The law of |Z| in cells of width h = 2^-`cell_bits`.

    Attributes
    ----------
    thresholds : tuple of int
        floor(2^128 P(|Z| < (k + 1) h)) for k = 0, 1, ... up to the first that is 2^128 - 1.
    finer : callable
        The same for another number of bits, off by at most one.
    cell_bits : int
    base, slope, curve : float
        t = X (base + k slope + curve X); powers of two or zero.
    """

    thresholds: tuple[int, ...]
    finer: Callable[[int], tuple[int, ...]]
    cell_bits: int
    base: float
    slope: float
    curve: float

    def rate(self, k: int) -> float:
        return self.base + k * self.slope

    @cached_property
    def high(self) -> npt.NDArray[np.uint32]:
        """First 32 bits of the thresholds, up to all ones."""
        bits = [threshold >> (_THRESHOLD_BITS - _CELL_BITS) for threshold in self.thresholds]
        return np.array(bits[: bits.index(2**_CELL_BITS - 1) + 1], dtype=np.uint32)

    @cached_property
    def guide(self) -> npt.NDArray[np.uint16]:
        """Where a search in `high` begins, by the first bits of the word."""
        starts = np.arange(2**_GUIDE_BITS, dtype=np.uint64) << np.uint64(_CELL_BITS - _GUIDE_BITS)
        return np.searchsorted(self.high, starts.astype(np.uint32)).astype(np.uint16)

    @cached_property
    def quick(self) -> npt.NDArray[np.uint32]:
        """floor(2^31 (1 - largest t of the cell)): the first bits of V that accept for any X."""
        return np.array([self.quick_bits(k) for k in range(len(self.high))], dtype=np.uint32)

    def quick_bits(self, k: int) -> int:
        largest = Fraction(self.rate(k)) + Fraction(self.curve)
        return max(0, int((1 - largest) * 2**_COIN_BITS))


@cache
def gaussian() -> Law:
    """The standard normal law, in cells of 1/32."""
    square = 2.0 ** (-2 * _WIDTH_BITS)
    thresholds = _gaussian_thresholds(_THRESHOLD_BITS)
    return Law(thresholds, _gaussian_thresholds, _WIDTH_BITS, base=0.0, slope=square, curve=square / 2)


@cache
def exponential() -> Law:
    """The standard exponential law, that of |Z| for a Laplace variable Z, in cells of 1/32."""
    thresholds = _exponential_thresholds(_THRESHOLD_BITS)
    return Law(thresholds, _exponential_thresholds, _WIDTH_BITS, base=2.0**-_WIDTH_BITS, slope=0.0, curve=0.0)


@cache
def _gaussian_thresholds(bits: int) -> tuple[int, ...]:
    precision = bits + _GUARD_BITS
    one, width = 1 << precision, 2 * _WIDTH_BITS
    end = math.ceil(math.sqrt(2 * math.log(2) * (bits + 56)))  # the tail beyond is below 2^-(bits + 56)
    terms = math.ceil((precision + 3 * (end + 1)) / 6)  # further ones are below 2^-precision
    # mass of a cell over h sqrt(2/pi): exp(-k^2 h^2 / 2) times the integral of exp(-h^2 (k x + x^2/2))
    factor, ratio = one, exp_minus(Fraction(1, 2 << width), precision)
    step = exp_minus(Fraction(1, 1 << width), precision)
    masses = []
    for k in range(end << _WIDTH_BITS):
        before, term, integral = 0, one, one
        for n in range(1, terms):
            before, term = term, -((k * term + before) >> width) // n
            integral += term // (n + 1)
        masses.append(factor * integral >> precision)
        factor, ratio = factor * ratio >> precision, ratio * step >> precision
    total, sums, thresholds = sum(masses), 0, []
    for mass in masses:
        sums += mass
        thresholds.append((sums << bits) // total)
    return _below_one(thresholds, bits)


@cache
def _exponential_thresholds(bits: int) -> tuple[int, ...]:
    precision = bits + _GUARD_BITS
    ratio = power = exp_minus(Fraction(1, 1 << _WIDTH_BITS), precision)
    thresholds = []
    for _ in range(bits << _WIDTH_BITS):
        thresholds.append(((1 << precision) - power) >> _GUARD_BITS)
        power = power * ratio >> precision
    return _below_one(thresholds, bits)


def add_noise(
    values: npt.NDArray[np.float64],
    scales: npt.NDArray[np.float64],
    grids: npt.NDArray[np.int32],
    law: Law,
    draw: Words,
    margins: Margins | None = None,
) -> None:
    """Replace each value by the grid point nearest to value + scale * Z, Z independent.

    Parameters
    ----------
    values : (n,) ndarray of float64
        Values that are not finite stay.
    scales : (n,) or (1,) ndarray of float64
        In grid steps, from 0 to `LARGEST_SCALE`.
    grids : (n,) or (1,) ndarray of int32
        Base-2 exponents of the grid steps.
    law : Law
        The law of |Z|; Z is symmetric.
    draw : callable
        Returns so many fresh random words.
    margins : Margins
        For tests.
    """
    margins = margins or Margins()
    pending = np.empty((_PENDING, 3), dtype=np.int64)
    done, stride = 0, int(len(scales) > 1)
    while done < len(values):
        left = len(values) - done
        words = draw(2 * left + left // 16 + 64)
        done, count = _add_noise(
            values, scales, grids, stride, done, words, pending,
            law.high, law.guide, law.quick, 2.0**-law.cell_bits, law.base, law.slope, law.curve,
            margins.acceptance, margins.rounding, margins.sum, _POWERS,
        )  # fmt: skip
        for index, start, stop in pending[:count].tolist():
            stream = chain(words[start:stop].tolist(), _further(draw))
            scale, grid = float(scales[index * stride]), int(grids[index * stride])
            values[index] = draw_exactly(float(values[index]), scale, grid, law, stream)


def draw_exactly(value: float, scale: float, grid: int, law: Law, words: Iterator[int]) -> float:
    """Return one value of `add_noise`, in integers of any length."""
    first = next(words)
    k = _cell(law, Uniform(first >> 32, 32, words))
    sign = -1 if first & 1 else 1
    coin = Uniform(first >> 1 & _COIN_MASK, _COIN_BITS, words)
    place = Uniform(next(words), 64, words)
    while not (coin.bits < law.quick_bits(k) or _accepted(law, k, place, coin)):
        coin = Uniform(next(words) >> 1 & _COIN_MASK, _COIN_BITS, words)
        place = Uniform(next(words), 64, words)
    if scale == 0 or not math.isfinite(value):
        return value
    exact = Fraction(value) / Fraction(2) ** grid
    if abs(exact) >= _FAR:
        return value
    cell = sign * Fraction(scale) / 2**law.cell_bits
    while True:
        ends = [exact + cell * (k + end) + Fraction(1, 2) for end in place.ends()]
        nearest = {end.numerator // end.denominator for end in ends}
        if len(nearest) == 1:
            with np.errstate(all="ignore"):  # a warning would reveal the value
                return float(np.ldexp(float(nearest.pop()), grid))
        place.refine()


def _cell(law: Law, uniform: Uniform) -> int:
    """The number of thresholds, to all their bits, that the uniform reaches."""
    bits, thresholds = _THRESHOLD_BITS, law.thresholds
    while True:
        shift = bits - uniform.count
        first = uniform.bits << shift if shift > 0 else uniform.bits >> -shift
        last = first + (1 << max(shift, 0))
        # a threshold is less than 2 off, being cut; beyond the last there are more
        least, most = bisect_right(thresholds, first - 2), bisect_right(thresholds, last)
        if least == most < len(thresholds):
            return least
        if uniform.count < bits:
            uniform.refine()
        else:
            bits *= 2
            thresholds = law.finer(bits)


def _accepted(law: Law, k: int, place: Uniform, coin: Uniform) -> bool:
    rate, curve = Fraction(law.rate(k)), Fraction(law.curve)
    coin.refine()
    while True:
        nearest, farthest = (end * (rate + curve * end) for end in place.ends())
        precision = coin.count + 64
        unit = 1 << (precision - coin.count)
        if (coin.bits + 1) * unit <= exp_minus(farthest, precision) - precision:
            return True
        if coin.bits * unit >= exp_minus(nearest, precision) + precision:
            return False
        place.refine()
        coin.refine()


def _below_one(thresholds: list[int], bits: int) -> tuple[int, ...]:
    return tuple(thresholds[: thresholds.index(2**bits - 1) + 1])


def _further(draw: Words) -> Iterator[int]:
    while True:
        yield from draw(8).tolist()


@compiled
def _add_noise(
    values: _Array, scales: _Array, grids: _Array, stride: int, done: int, words: _Array, pending: _Array,
    high: _Array, guide: _Array, quick: _Array, width: float, base: float, slope: float, curve: float,
    acceptance_margin: float, rounding_margin: float, sum_margin: float, powers: _Array,
) -> tuple[int, int]:  # fmt: skip
    """Continue from `done`; return the number of values done, and of those pending.

    A pending value is unchanged; `pending` has its index and the range of words that it has read.
    """
    position, count = 0, 0
    while done < len(values) and position < len(words) - 16 and count < len(pending):
        start = position
        first = words[position]
        position += 1
        bits = first >> np.uint64(64 - _CELL_BITS)
        k = np.int64(guide[first >> np.uint64(64 - _GUIDE_BITS)])
        while bits > high[k]:
            k += 1
        decided = bits != high[k]
        place, coin = 0.0, (first >> np.uint64(1)) & np.uint64(_COIN_MASK)
        while decided:
            if position + 3 > len(words):
                decided = False
                break
            place = float(np.int64(words[position] >> np.uint64(11))) * 2.0**-53
            position += 1
            if coin < quick[k]:
                break
            uniform = (float(coin) + float(words[position]) * 2.0**-64) * _COIN_UNIT
            position += 1
            t = place * (base + k * slope + curve * place)
            chance = 1.0  # of acceptance: the series of exp(-t)
            for n in range(_TERMS, 0, -1):
                chance = 1.0 - t * chance / n
            if uniform < chance - acceptance_margin:
                break
            if not uniform > chance + acceptance_margin:
                decided = False
                break
            coin = (words[position] >> np.uint64(1)) & np.uint64(_COIN_MASK)
            position += 1
        value, scale, grid = values[done], scales[done * stride], np.int64(grids[done * stride])
        half = grid >> 1  # 2^grid is the product of two powers that no float64 is too small for
        rest = grid - half
        steps = value * powers[_HALF_EXPONENT - half] * powers[_HALF_EXPONENT - rest]
        if decided and scale != 0.0 and abs(steps) < _FAR:
            whole = np.floor(steps)
            noise = scale * width * (k + place)
            if first & np.uint64(1):
                noise = -noise
            total = (steps - whole) + noise + 0.5
            nearest = np.floor(total)
            margin = scale * rounding_margin + sum_margin
            decided = margin < total - nearest < 1.0 - margin
            if decided:
                steps = whole + nearest
                values[done] = steps * powers[_HALF_EXPONENT + half] * powers[_HALF_EXPONENT + rest]
        if not decided:
            pending[count, 0], pending[count, 1], pending[count, 2] = done, start, position
            count += 1
        done += 1
    return done, count
