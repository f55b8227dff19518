"""The server's memory over weeks: a Kalman filter for every released statistic.

A statistic changes by a random walk and is released with known noise. Its drift variance is fitted to
released values: the state holds the log likelihood of every candidate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.serving.modelfile import Expected, Size
from hushrec.training.gate import Gate
from hushrec.training.posterior import ratio
from hushrec.training.users import Users
from hushrec.types import Array

# The drifts' candidates and prior were tried on the drifting worlds of bench_year at seeds 11 and 12.

#: Reliability of each item; 0 for new ones.
SEEN = {"item_seen": Expected("f", ("items",), 0.0, 1.0)}
#: Candidates of a week's drift variance, in units of a usual variance of the statistic.
DRIFTS = np.concatenate([[0.0], np.geomspace(1e-5, 0.3, 12)])
#: Prior mean of the drift.
_USUAL_DRIFT = 2e-3
#: Prior deviation of a week's growth, and of a declared number of users, as a part of it.
_USUAL_GROWTH = 0.05
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
        Of the measured state, before it drifted.
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
    return evidence + fit - fit.max()


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
        """Return arrays for a model file; those with a row an item are named ``item_...``."""
        return dict(zip(self.expected(name), self))

    def with_new(self, seen: NDArray[np.bool_]) -> Tracked:
        if seen.all() or not seen.any():
            return self
        usual, square = float(np.median(self.mean[seen])), float((self.mean[seen] ** 2).mean())
        return Tracked(np.where(seen, self.mean, usual), np.where(seen, self.variance, square), self.evidence)

    def measured(self, released: Array, noise_variance: Any, *, grows: bool = False) -> Tracked:
        """Return the statistic after another release.

        ``grows``: all entries may have grown by one factor, as sums over users do.
        """
        noise = np.broadcast_to(np.asarray(noise_variance, dtype=np.float64), released.shape)
        mean, variance = self.mean, self.variance
        if grows:
            factor = _growth(mean, released, variance + noise)
            mean, variance = factor * mean, factor**2 * variance
        usual = float((mean**2).mean())
        one = np.ones_like(released)
        evidence = learned(self.evidence, released - mean, one, variance, noise, usual)
        variance = variance + drift(evidence) * usual
        gain = 1 - ratio(noise, variance + noise)
        return Tracked(mean + gain * (released - mean), (1 - gain) * variance, evidence)


def first_count(n_users: float, counted_sd: float) -> Array:
    """The number of users and its variance, released in week 0 or declared then."""
    return np.array([n_users, max(counted_sd, _USUAL_GROWTH * n_users) ** 2])


def counted_again(users: Users, gate: Gate, counts: Array, weights: Tracked) -> tuple[Array, Tracked]:
    """Release and return the number of users with its variance, and the item weights."""
    count = Tracked(counts[:1], counts[1:], no_evidence())
    released = gate.release("number of users", users.count())
    count = count.measured(released, gate.noise_sd("number of users") ** 2, grows=True)
    released = gate.release("item weights", users.item_weights())
    weights = weights.measured(released, gate.noise_sd("item weights") ** 2, grows=True)
    return np.array([count.mean[0], count.variance[0]]), weights


def _growth(mean: Array, released: Array, variance: Array) -> float:
    precision = _USUAL_GROWTH**-2.0
    weight = ratio(mean, variance)
    return (precision + float((weight * released).sum())) / (precision + float((weight * mean).sum()))
