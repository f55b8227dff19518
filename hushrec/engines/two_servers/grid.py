"""The integers in which contributions and noise are added up. Proof: docs/proofs/two-servers.md."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError, InputError
from hushrec.privacy import Bounded, Release
from hushrec.types import Array

#: One server's noise is at least this many steps, as a power of two.
_LEAST_NOISE_BITS = 20
#: In sensitivities; more noise does not fit next to the sums in 64 bits.
LARGEST_MULTIPLIER = 2.0**12
#: Bounds on exact sums, in steps, and on the noise of all, in standard deviations of one server's.
_LARGEST_SUM, _LARGEST_NOISE = 2.0**53, 2.0**20


class Grid(NamedTuple):
    """The integers of one release, for each entry.

    Attributes
    ----------
    steps : ndarray
        Value of one integer, a power of two.
    noise_sd : ndarray
        Standard deviation of one server's noise, in steps.
    coarse : ndarray
        The step of users' contributions, in steps.
    """

    steps: Array
    noise_sd: Array
    coarse: Array

    @classmethod
    def of(cls, planned: Release, bounded: Bounded, shape: tuple[int, ...]) -> Grid:
        if not np.all(bounded.step > 0):
            raise InputError(f"Release {planned.label!r} is not an exact sum; two servers cannot add it up.")
        sd = planned.amounts(bounded)
        # powers of two both: a multiple of the one is a multiple of the smaller
        finer = np.exp2(np.floor(np.log2(sd)) - _LEAST_NOISE_BITS)
        step = np.minimum(bounded.step, finer)
        steps, sds, coarse = (np.broadcast_to(array, shape).ravel() for array in (step, sd, bounded.step))
        return cls(steps, sds / steps, coarse / steps)

    def value(self, label: str, total: NDArray[np.uint64]) -> Array:
        signed = total.view(np.int64)
        largest = _LARGEST_SUM * self.coarse + _LARGEST_NOISE * self.noise_sd
        if signed.shape != self.steps.shape or np.any(np.abs(signed.astype(np.float64)) > largest):
            raise HushrecError(f"No sum and noise can make this total of release {label!r}; refused.")
        return np.asarray(signed * self.steps)
