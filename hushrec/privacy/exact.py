"""Real numbers of which some bits are known, and exp and log between bounds: what exact draws are made of."""

from collections.abc import Iterator
from fractions import Fraction


class Uniform:
    """A uniform real number in [0, 1) of which `count` bits are known."""

    def __init__(self, bits: int, count: int, words: Iterator[int]) -> None:
        self.bits, self.count, self._words = bits, count, words

    def refine(self) -> None:
        self.bits, self.count = self.bits << 64 | next(self._words), self.count + 64

    def ends(self) -> tuple[Fraction, Fraction]:
        return Fraction(self.bits, 1 << self.count), Fraction(self.bits + 1, 1 << self.count)


def exp_minus(t: Fraction, precision: int) -> int:
    """2^precision exp(-t) for t >= 0, precision at least 64, with an error below `precision`."""
    if 2 * t > 1:  # the square of the half: twice the error of 8 bits more
        return exp_minus(t / 2, precision + 8) ** 2 >> (precision + 16)
    numerator, denominator = t.numerator, t.denominator
    term = total = 1 << precision
    n = 0
    while term > 0:
        n += 1
        term = term * numerator // (denominator * n)
        total += -term if n % 2 else term
    return total


def log(x: Fraction, precision: int) -> int:
    """2^precision log(x) for x >= 1, precision at least 64, with an error below (1 + log2(x)) * precision."""
    halvings = (x.numerator // x.denominator).bit_length() - 1
    return _log_below_two(x / (1 << halvings), precision) + halvings * _log_below_two(Fraction(2), precision)


def _log_below_two(x: Fraction, precision: int) -> int:
    """2 artanh((x - 1) / (x + 1)) for 1 <= x <= 2: at most precision / 3 terms, each rounded down twice."""
    y = (x - 1) / (x + 1)
    power, total, n = (y.numerator << precision) // y.denominator, 0, 1
    square = y * y
    while power > 0:
        total += power // n
        power, n = power * square.numerator // square.denominator, n + 2
    return 2 * total
