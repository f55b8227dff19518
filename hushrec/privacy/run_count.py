"""The random number of runs of a selection, drawn exactly: docs/proofs/selection.md.

The truncated negative binomial law (Papernot and Steinke 2022, definition 1) has a shape s and a parameter g.
k runs have the mass (1 - g)^k / (g^-s - 1) times the product of (l + s)/(l + 1) over l < k. For s = 0 that is
(1 - g)^k / (k log(1/g)). Its distribution function is followed between bounds, in integers; where a uniform
number falls between them, both are made finer.
"""

import math
import os
from collections.abc import Iterator
from fractions import Fraction

from hushrec.privacy.exact import Uniform, exp_minus, log

_PRECISION = 192  # bits of the first bounds: 64 drawn ones and 128 beyond, so few draws need more
_LEAST_BITS = 64  # of the first mass, to keep its relative error small


def success_rate(mean_runs: float, shape: float) -> float:
    """Gamma of the law with this mean, a float64 near the solution; the law is that of this very number."""
    target = math.log(mean_runs)
    from scipy.optimize import brentq  # a sixth of a second to load

    return math.exp(brentq(lambda rate: log_mean(rate, shape) - target, -60.0, -1e-9, xtol=1e-14))


def log_mean(log_gamma: float, shape: float) -> float:
    odds = math.expm1(-log_gamma)
    if shape == 0:
        return math.log(odds / -log_gamma)
    return math.log(shape * odds / -math.expm1(shape * log_gamma))


def draw_number_of_runs(mean_runs: float, shape: float) -> int:
    words = _words()
    return number_of_runs(Uniform(next(words), 64, words), mean_runs, shape)


def number_of_runs(uniform: Uniform, mean_runs: float, shape: float) -> int:
    """Inverse of the distribution function at a uniform number, at least 1."""
    gamma, precision = Fraction(success_rate(mean_runs, shape)), _PRECISION
    while (runs := _search(uniform, gamma, Fraction(shape), precision)) is None:
        precision *= 2
        while uniform.count < precision:
            uniform.refine()
    return runs


def _search(uniform: Uniform, gamma: Fraction, shape: Fraction, precision: int) -> int | None:
    one = 1 << precision
    low, high = _first_mass(gamma, shape, precision)
    if low.bit_length() < _LEAST_BITS:
        return None
    least, most = (end * one for end in uniform.ends())
    runs, low_sum, high_sum = 1, 0, 0
    going, staying = (1 - gamma).as_integer_ratio()
    over, under = shape.as_integer_ratio()
    while low:  # in the far tail nothing is left of it
        low_sum, high_sum = low_sum + low, high_sum + high
        if most <= low_sum:
            return runs
        if least < high_sum:
            return None
        up, down = going * (runs * under + over), staying * under * (runs + 1)
        low, high = low * up // down, -(-high * up // down)
        runs += 1
    return None


def _first_mass(gamma: Fraction, shape: Fraction, precision: int) -> tuple[int, int]:
    one = 1 << precision
    logarithm = log(1 / gamma, precision)
    error = (2 + math.ceil(-math.log2(gamma))) * precision
    ends = [Fraction(logarithm + sign * error, one) for sign in (1, -1)]
    if shape == 0:
        return int((1 - gamma) * one / ends[0]), math.ceil((1 - gamma) * one / ends[1])
    lower, upper = (exp_minus(shape * end, precision) for end in ends)
    lower, upper = lower - precision, upper + precision  # a bound below 0 has too few bits to be used
    if upper >= one:
        return 0, one
    scale = (1 - gamma) * shape * one
    return int(scale * lower / (one - lower)), math.ceil(scale * upper / (one - upper))


def _words() -> Iterator[int]:
    while True:
        yield int.from_bytes(os.urandom(8), "little")
