"""The server's memory over weeks: a Kalman filter for every released statistic.

A statistic changes by a random walk and is released with known noise. Its drift variance is fitted to
released values: the state holds the log likelihood of every candidate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.serving.modelfile import Expected, Size
from hushrec.training.gate import Gate
from hushrec.training.posterior import left_after, ratio, wiener_gain
from hushrec.training.users import Users
from hushrec.types import Array

# The drifts' candidates and prior were tried on the drifting worlds of bench_year at seeds 11 and 12.

#: Reliability of each item; 0 for new ones.
SEEN = {"item_seen": Expected("f", ("items",), 0.0, 1.0)}
#: Candidates of a week's drift variance, in units of a usual variance of the statistic.
DRIFTS = np.concatenate([[0.0], np.geomspace(1e-5, 0.3, 12)])
#: Prior mean of the drift.
_USUAL_DRIFT = 2e-3
#: Prior deviation of a week's part of the first week's users where no number of users is released.
_USUAL_CHANGE = 0.3
#: Prior deviation of a declared number of users, as a part of it.
_USUAL_ERROR = 0.05
#: Least part that is estimated.
_LEAST_PART = 1e-3
_TINY = float(np.finfo(np.float64).tiny)


def no_evidence() -> Array:
    """Log likelihoods of the drifts before any week."""
    return -DRIFTS / _USUAL_DRIFT


def drift(evidence: Array) -> float:
    """Estimate the drift variance, in units of the usual variance.

    The gain that a filter settles at grows with the root of the drift, so the mean of roots counts.
    """
    likelihood = np.exp(evidence - evidence.max())
    return float(likelihood @ np.sqrt(DRIFTS) / likelihood.sum()) ** 2


def learned(
    evidence: Array, surprise: Array, slope: Array, variance: Array, noise: Array, usual: Any
) -> Array:
    """Log likelihoods of the drifts after a week.

    Parameters
    ----------
    surprise : ndarray
        Measurement minus expectation: ``slope * change + noise``.
    variance : ndarray
        Variance of the measured state before it drifted.
    noise : ndarray
        Its variance.
    usual : float or ndarray
        Unit of the drifts.
    """
    fit = np.zeros(len(DRIFTS))
    for place, part in enumerate(DRIFTS):
        gained = slope**2 * part * np.asarray(usual)
        # a drift that went unnoticed has left as much unknown as the filter would settle at with it
        settled = np.sqrt((gained / 2) ** 2 + gained * noise) - gained / 2
        total = np.maximum(np.maximum(slope**2 * variance, settled) + gained + noise, _TINY)
        fit[place] = -0.5 * (np.log(total) + surprise**2 / total).sum()
    together: Array = evidence + fit - fit.max()
    return together


class Tracked(NamedTuple):
    """A statistic that is released every week: its posterior, and log likelihoods of its drifts."""

    mean: Array
    variance: Array
    evidence: Array

    @classmethod
    def first(cls, released: Array, noise_variance: Any) -> Tracked:
        return cls(released, np.full(released.shape, noise_variance, dtype=np.float64), no_evidence())

    @classmethod
    def of(cls, state: Mapping[str, Array], name: str) -> Tracked:
        """Inverse of `to_arrays`."""
        return cls(*(state[array] for array in cls.expected(name)))

    @staticmethod
    def expected(name: str, *shape: Size) -> dict[str, Expected]:
        drifts = name.removeprefix("item_")
        return {
            name: Expected("f", shape),
            f"{name}_variance": Expected("f", shape, 0.0),
            f"{drifts}_drifts": Expected("f", (len(DRIFTS),)),
        }

    def to_arrays(self, name: str) -> dict[str, Array]:
        """Return arrays for a model file; ``item_...`` have a row for each item."""
        return dict(zip(self.expected(name), self, strict=True))

    def with_new(self, seen: NDArray[np.bool_]) -> Tracked:
        if seen.all() or not seen.any():
            return self
        usual, square = float(np.median(self.mean[seen])), float((self.mean[seen] ** 2).mean())
        return Tracked(np.where(seen, self.mean, usual), np.where(seen, self.variance, square), self.evidence)

    def part(
        self, released: Array, noise_variance: Any, center: float = 1.0, sd: float = _USUAL_CHANGE
    ) -> float:
        """Estimate this week's users as a part of the first week's; `center` and `sd` are known before.

        Sums over users are measured in units of the first week, so a part multiplies all of them.
        """
        total = self.variance + noise_variance
        weight, square = ratio(self.mean, total), float(ratio(self.mean**2 - self.variance, total).sum())
        precision = sd**-2.0
        found: float = (precision * center + float(weight @ released)) / (precision + max(square, 0.0))
        return max(found, _LEAST_PART)

    def measured(self, released: Array, noise_variance: Any, part: float = 1.0) -> Tracked:
        """Return the statistic after another release, of users who are a part of the first week's."""
        noise = np.broadcast_to(np.asarray(noise_variance, dtype=np.float64), released.shape)
        usual, slope = float((self.mean**2).mean()), np.full(released.shape, part)
        surprise = released - part * self.mean
        evidence = learned(self.evidence, surprise, slope, self.variance, noise, usual)
        variance = self.variance + drift(evidence) * usual
        gain = wiener_gain(slope, variance, noise)
        return Tracked(self.mean + gain * surprise, left_after(gain, slope, variance), evidence)


def counted_again(users: Users, gate: Gate, n_users: float, weights: Tracked) -> tuple[float, Tracked]:
    """Release this week's users, as a part of the first week's `n_users`, and their item weights."""
    counted, sd = float(gate.release("number of users", users.count())[0]), gate.noise_sd("number of users")
    released = gate.release("item weights", users.item_weights())
    variance = gate.noise_sd("item weights") ** 2
    part = weights.part(released, variance, counted / n_users, math.hypot(sd / n_users, _USUAL_ERROR))
    return part, weights.measured(released, variance, part)
