"""The gate of a training whose sums are seen in total only: secure aggregation over nodes.

Contributions are fixed-point numbers already, so they travel as the integers that they are, and the total is
exact and the same in any order. Noise is drawn by the nodes, each an equal share, on the same grid. Proofs:
docs/proofs/secure-aggregation.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError, InputError
from hushrec.privacy import Bounded, Plan, Release
from hushrec.privacy.release import SMALLEST_NOISE
from hushrec.training.gate import PlannedGate
from hushrec.types import Array

#: ``total(index, label, integers, noise_sd, steps)``: what integers and noise add up to, as uint64.
#: An integer stands for so many ``steps``, in which a node's ``noise_sd`` is; an entry each.
Total = Callable[[int, str, NDArray[np.uint64], Array, Array], NDArray[np.uint64]]

#: One node's noise is at least this many steps, as a power of two: sums of rounded noise are rounded sums.
_LEAST_NOISE_BITS = 20
#: Noise of more than this many sensitivities has no place beside the sums in 64 bits.
LARGEST_MULTIPLIER = 2.0**12
#: Exact sums are below so many steps, and noise of all nodes below so many standard deviations of one.
_LARGEST_SUM, _LARGEST_NOISE = 2.0**53, 2.0**20


class SecureGate(PlannedGate):
    """A gate whose releases are totals over nodes.

    Parameters
    ----------
    plan : Plan
        What the nodes send.
    honest : int
        Nodes that are in every total and do not collude: their shares of noise add up to the planned one.
    total : callable
        Adds up over the nodes.
    """

    def __init__(self, plan: Plan, honest: int, total: Total) -> None:
        super().__init__(plan)
        self._order = {release.label: index for index, release in enumerate(plan.releases)}
        self._honest, self._total = honest, total

    def release(self, label: str, bounded: Bounded) -> Array:
        """Add this node's share of noise, have all nodes' integers added up, and return their sum."""
        planned, value = self._as_planned(label, bounded), bounded._take()
        grid = Grid.of(planned, bounded, value.shape, self._honest, self.private)
        integers = (value.ravel() / grid.steps).astype(np.int64).view(np.uint64)
        total = self._total(self._order[label], label, integers, grid.noise_sd, grid.steps)
        return grid.value(label, total).reshape(value.shape)


class Grid(NamedTuple):
    """The integers that one release is added up in; an entry each.

    Attributes
    ----------
    steps : ndarray
        What an integer stands for, a power of two.
    noise_sd : ndarray
        Of who draws noise, in steps.
    coarse : ndarray
        The step of what users contribute, in steps.
    """

    steps: Array
    noise_sd: Array
    coarse: Array

    @classmethod
    def of(
        cls, planned: Release, bounded: Bounded, shape: tuple[int, ...], shares: int, private: bool = True
    ) -> Grid:
        """The grid of a planned release whose noise is drawn in so many equal shares."""
        if not np.all(bounded.step > 0):
            raise InputError(f"Release {planned.label!r} is no exact sum; nodes cannot add it up.")
        share = planned.noise_sd / math.sqrt(shares) / np.asarray(bounded.entry_scale)
        if private and not np.all((share > SMALLEST_NOISE) & (share < math.inf)):
            raise InputError(f"scale makes the noise of release {planned.label!r} vanish; bring it near 1.")
        # powers of two both: whatever is a multiple of the one is a multiple of the smaller
        finer = np.exp2(np.floor(np.log2(np.maximum(share, 1e-300))) - _LEAST_NOISE_BITS)
        step = np.where(share > 0, np.minimum(bounded.step, finer), bounded.step)
        steps, sd, coarse = (np.broadcast_to(each, shape).ravel() for each in (step, share, bounded.step))
        return cls(steps, sd / steps, coarse / steps)

    def value(self, label: str, total: NDArray[np.uint64]) -> Array:
        """Return what a total stands for; refuse one that no sum and noise can have made."""
        signed = total.view(np.int64)
        largest = _LARGEST_SUM * self.coarse + _LARGEST_NOISE * self.noise_sd
        if signed.shape != self.steps.shape or np.any(np.abs(signed.astype(np.float64)) > largest):
            raise HushrecError(f"The total of release {label!r} is none that nodes can add up to; refused.")
        return np.asarray(signed * self.steps)
