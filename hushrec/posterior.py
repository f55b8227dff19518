"""The public side of a training: what the server makes of released values. No private row comes here.

Released values are measurements with known noise, so that what is unknown is estimated by its posterior:
drawn to what is usual by what the noise leaves open.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Domain

Array = NDArray[Any]

#: Released item weights are not taken for smaller than this, nor than their noise.
_SMALLEST_WEIGHT = 1e-2
#: An item is recommended before others only if its released weight is this many times its noise.
_SUPPORT = 5.0


def level(noisy: Array, domain: Domain) -> tuple[float, float]:
    """(Mean of the users' means within the declared range, number of users >= 1): `Users.level` released."""
    n_users = max(float(noisy[1]), 1.0)
    return float(np.clip(domain.midpoint + noisy[0] / n_users, domain.low, domain.high)), n_users


def usable_weights(released: Array, noise_sd: float) -> tuple[Array, NDArray[np.bool_]]:
    """Item weights > 0, and which items are supported, of `Users.item_weights` released."""
    return np.maximum(released, max(noise_sd, _SMALLEST_WEIGHT)), released > _SUPPORT * noise_sd


def adaptive_weights(weights: Array, exponent: float) -> Array:
    """Adaptive weights ``w_j`` (Krichene et al. 2023): item weights to a power in [-1, 0]."""
    return np.asarray((weights / weights.max()) ** exponent)


def shrinkage(prior_sd: Array | float, noise_sd: float) -> Array:
    """Part of a released number's deviation from what is usual that is taken for real."""
    return np.asarray(prior_sd**2 / np.maximum(prior_sd**2 + noise_sd**2, 1e-300))


def wiener_gain(slope: Array, variance: Array | float, noise_variance: Array) -> Array:
    """Expected change per unit of what is measured as ``slope * change + noise``."""
    return np.asarray(variance * slope / np.maximum(slope**2 * variance + noise_variance, 1e-300))


def regression(
    released: Array, slope: Array, design: Array, variance: Array, noise_variance: Array, precision: Array
) -> tuple[Array, Array]:
    """What released numbers have in common with the columns of a design: coefficients and their precision.

    Parameters
    ----------
    released, slope, variance, noise_variance : ndarray of shape (n_items,)
        Measurements ``slope * v + noise`` of ``v = design @ coefficients + rest``, the rest of that variance.
    design : ndarray of shape (n_items, n_columns)
    precision : ndarray of shape (n_columns, n_columns)
        Of the coefficients beforehand.
    """
    scaled = slope[:, None] * design / np.maximum(noise_variance + slope**2 * variance, 1e-300)[:, None]
    total = precision + scaled.T @ (slope[:, None] * design)
    return np.linalg.solve(total, scaled.T @ released), total


def likeliest_scale(released: Array, variance: Array, noise_variance: Array) -> float:
    """Factor of the variance under which released numbers, noise and all, are likeliest."""
    scales = np.geomspace(1e-4, 1e2, 61)
    totals = np.maximum(scales[:, None] * variance + noise_variance, 1e-300)
    return float(scales[np.argmin((np.log(totals) + released**2 / totals).sum(axis=1))])


def visible_part(noisy: Array, noise_sd: float) -> float:
    """Part of the variance of released numbers that is not their noise's."""
    return float(np.clip(1 - noise_sd**2 / max(float(np.var(noisy)), 1e-300), 0.0, 1.0))


def standardised(values: Array, weights: Array) -> Array:
    """Values with weighted mean 0 and variance 1, cut at 4."""
    centred = values - np.average(values, weights=weights)
    spread = np.sqrt(np.average(centred**2, weights=weights))
    return np.clip(centred / max(float(spread), 1e-12), -4.0, 4.0)
