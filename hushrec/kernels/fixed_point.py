"""Fixed-point contributions: multiples of a power of two. Their float64 sums are exact.

An exact sum does not depend on order, threads or blocks, and one user moves it by exactly their contribution
(Casacuberta et al. 2022). Numbers are truncated towards zero, which makes no vector longer. A user's entry is
at most ``2 ** ENTRY_BITS`` steps, hence `LARGEST_COUNT` users stay below ``2 ** 53``. Sums of more users are
sums of blocks in int64 (docs/proofs/exact-sums.md).
"""

from __future__ import annotations

import math

import numpy as np

from hushrec.types import Array

#: Steps up to the bound of an entry, as a power of two: for sums of entries, and of products of two of them.
ENTRY_BITS, FACTOR_BITS = 28, 14
#: Largest number of users (or ratings, where ratings are summed) of an exact sum in float64.
LARGEST_COUNT = 1 << (53 - ENTRY_BITS)
#: Fraction of a bound that vectors are scaled to. Norms and weights in float64 have a relative error
#: of about 2^-23 at most: they have fewer than 2^31 terms, the limit of a catalogue.
CLIP_MARGIN = 1.0 - 2.0**-22


def spacing(bound: float, bits: int = ENTRY_BITS) -> float:
    """Return the step, a power of two: numbers up to `bound` are at most ``2 ** bits`` of it; 0 if
    unbounded."""
    if math.isinf(bound):
        return 0.0
    return math.ldexp(1.0, math.frexp(bound)[1] - bits)


def truncated(values: Array, step: float) -> Array:
    """Return values as multiples of `step`, towards zero; the values themselves where it is 0.

    Values that are not finite become 0: no contribution exceeds its bound.
    """
    if not step:
        return values
    steps = np.asarray(values, dtype=np.float64) / step
    np.trunc(steps, out=steps)
    if not (finite := np.isfinite(steps)).all():
        steps[~finite] = 0.0
    return np.multiply(steps, step, out=steps)
