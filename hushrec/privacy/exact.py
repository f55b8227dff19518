"""Real numbers of which some bits are known, and exp between bounds."""

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
