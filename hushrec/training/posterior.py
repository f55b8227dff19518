"""The server's side of a training: posterior estimates from released values, whose noise is known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Domain
from hushrec.serving.score_mixing import LISTED
from hushrec.types import Array

#: Smallest item weight. No study chose it.
_SMALLEST_WEIGHT = 1e-2
#: Released weight of a supported item, in units of its noise, which exceeds it once in three million items.
_SUPPORT = 5.0
#: Part of the noise that stays in a weight. Tuned with `python -m benchmarks.never_loses`.
_NOISE_KEPT = 0.5
#: Candidates of a variance over its usual value, in logarithms; their prior is standard normal.
_LOGARITHMS = np.linspace(-8.0, 8.0, 401)
#: Points of the distribution of the weights, bins of the released values, rounds of a fit: limits of time.
_WEIGHT_GRID, _WEIGHT_BINS, _ROUNDS = 200, 4000, 100


def level(noisy: Array, domain: Domain) -> tuple[float, float]:
    """Return the mean of the users' means, and the number of users, at least 1."""
    n_users = max(float(noisy[1]), 1.0)
    return float(np.clip(domain.midpoint + noisy[0] / n_users, domain.low, domain.high)), n_users


def usable_weights(released: Array, noise_sd: float) -> tuple[Array, NDArray[np.bool_]]:
    """Return item weights > 0, and which items are supported."""
    return np.maximum(released, max(noise_sd, _SMALLEST_WEIGHT)), released > _SUPPORT * noise_sd


class ItemWeights(NamedTuple):
    """Posterior item weights.

    Attributes
    ----------
    mean : ndarray of shape (n_items,)
        Above 0.
    supported : ndarray of bool, shape (n_items,)
        Whether the released weight exceeds its noise.
    known : float
        Weight of the items with the largest means over that of the heaviest ones, 0 to 1.
    """

    mean: Array
    supported: NDArray[np.bool_]
    known: float


def item_weights(released: Array, noise_sd: float) -> ItemWeights:
    """Estimate the item weights from `Users.item_weights` released.

    Posterior means under the likeliest mixture of point masses on a logarithmic grid. Released values are
    binned by a fifth of their noise. A part of the noise is added, in squares: too large a weight costs less
    than too small a one.
    """
    supported = released > _SUPPORT * noise_sd
    if noise_sd < _SMALLEST_WEIGHT:
        return ItemWeights(np.maximum(released, _SMALLEST_WEIGHT), supported, 1.0)
    support = np.geomspace(_SMALLEST_WEIGHT, max(float(released.max()), 2 * _SMALLEST_WEIGHT), _WEIGHT_GRID)
    step = max(noise_sd / 5, float(np.ptp(released)) / _WEIGHT_BINS)
    bins, counts = np.unique(np.rint(released / step), return_counts=True)
    blurred = np.hypot(noise_sd, np.gradient(support) / 2)  # the grid is as fine as the noise, or unchanged
    likelihood = -0.5 * ((step * bins[:, None] - support) / blurred) ** 2 - np.log(blurred)
    means, masses = posterior_means(support, likelihood, counts)
    mean = np.interp(released, step * bins, means)
    listed = min(LISTED, len(released))
    heaviest = (
        np.diff(np.minimum(np.cumsum(len(released) * masses[::-1]), listed), prepend=0.0) @ support[::-1]
    )
    known = min(float(np.sort(mean)[-listed:].sum() / heaviest), 1.0)
    return ItemWeights(np.hypot(mean, _NOISE_KEPT * noise_sd), supported, known)


def posterior_means(candidates: Array, likelihood: Array, counts: Array | float = 1.0) -> tuple[Array, Array]:
    """Return the posterior mean of each unknown number, and the prior of each candidate.

    The prior is the likeliest mixture for all unknowns (Kiefer and Wolfowitz 1956), by expectation
    maximisation from a flat start.

    Parameters
    ----------
    likelihood : ndarray of shape (n_unknowns, n_candidates)
        Logarithms, up to a constant for each unknown.
    counts : ndarray of shape (n_unknowns,) or float
        Frequency of each row.
    """
    likely = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    masses = np.full(len(candidates), 1 / len(candidates))
    times = np.broadcast_to(np.asarray(counts, np.float64), len(likely))
    for _ in range(_ROUNDS):
        masses = masses * ((times / (likely @ masses)) @ likely) / times.sum()
    joint = likely * masses
    return joint @ candidates / joint.sum(axis=1), masses


def adaptive_weights(weights: Array, exponent: float) -> Array:
    """Weigh adaptively (Krichene et al. 2023)."""
    return np.asarray((weights / weights.max()) ** exponent)


def ratio(numerator: Array | float, denominator: Array | float) -> Array:
    """Divide; 0 where the denominator is 0."""
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    return np.divide(numerator, denominator, out=np.zeros(numerator.shape), where=denominator > 0)


def shrinkage(prior_sd: Array | float, noise_sd: float) -> Array:
    """Estimate the part of signal in a released number's deviation from its prior."""
    return ratio(prior_sd**2, prior_sd**2 + noise_sd**2)


def wiener_gain(slope: Array, variance: Array | float, noise_variance: Array) -> Array:
    """Expected change for a measurement ``slope * change + noise`` of 1."""
    return ratio(variance * slope, slope**2 * variance + noise_variance)


def left_after(gain: Array, slope: Array, variance: Array) -> Array:
    """Variance after a measurement with that gain."""
    return np.asarray(np.maximum(1 - gain * slope, 0.0) * variance)


def regression(
    released: Array, slope: Array, design: Array, variance: Array, noise_variance: Array, precision: Array
) -> tuple[Array, Array]:
    """Regress released numbers on a design; return coefficients and their precision.

    Parameters
    ----------
    released, slope, variance, noise_variance : ndarray of shape (n_items,)
        Measurements ``slope * v + noise`` of ``v = design @ coefficients + rest``, the rest of that variance.
    design : ndarray of shape (n_items, n_columns)
    precision : ndarray of shape (n_columns, n_columns)
        Prior variance of the coefficients.
    """
    scaled = ratio(slope, noise_variance + slope**2 * variance)[:, None] * design
    total = precision + scaled.T @ (slope[:, None] * design)
    return np.linalg.solve(total, scaled.T @ released), total


def likely_variance(measured: float, noise_sd: float, usual: float) -> float:
    """Posterior geometric mean of a variance that was released with noise.

    The prior of its logarithm is normal, about that of a usual value.
    """
    values, masses = _variances(measured, noise_sd, usual)
    return float(np.exp(np.log(values) @ masses))


def expected_variance(measured: float, noise_sd: float, usual: float) -> float:
    """Posterior mean under the same prior."""
    values, masses = _variances(measured, noise_sd, usual)
    return float(values @ masses)


def _variances(measured: float, noise_sd: float, usual: float) -> tuple[Array, Array]:
    values = usual * np.exp(_LOGARITHMS)
    # at most as precise as the candidates
    precise = np.hypot(noise_sd, (_LOGARITHMS[1] - _LOGARITHMS[0]) * measured) + values[0]
    return values, _masses(((values - measured) / precise) ** 2 / 2)


def likely_scale(released: Array, variance: Array, noise_variance: Array) -> float:
    """Posterior geometric mean of a factor of the variance; the prior of its logarithm is about 1/2."""
    scales = 0.5 * np.exp(_LOGARITHMS)
    totals = (scale * variance + noise_variance for scale in scales)
    surprise = [float((np.log(total) + released**2 / total).sum()) / 2 for total in totals]
    return float(np.exp(np.log(scales) @ _masses(np.array(surprise))))


def _masses(surprise: Array) -> Array:
    surprise = surprise + _LOGARITHMS**2 / 2
    likelihood = np.exp(surprise.min() - surprise)
    return np.asarray(likelihood / likelihood.sum())


def visible_part(noisy: Array, noise_sd: float) -> float:
    """Return the part of released numbers' variance that noise does not explain."""
    variance = float(np.var(noisy))
    return float(ratio(max(variance - noise_sd**2, 0.0), variance))


def standardised(values: Array, weights: Array) -> Array:
    """Return values of weighted mean 0 and variance 1; all 0 if they are equal."""
    above = values - values.min()
    centred = above - np.average(above, weights=weights)
    return ratio(centred, np.sqrt(np.average(centred**2, weights=weights)))
