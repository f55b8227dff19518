"""Server side of private ALS: how released sums update the items."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hushrec.kernels.packed import frobenius_scale, unpacked
from hushrec.kernels.sweeps import SweepSettings
from hushrec.models.private_als.features import expected_from_features
from hushrec.training.posterior import left_after, ratio, shrinkage, wiener_gain
from hushrec.types import Array

_TINY = float(np.finfo(np.float64).tiny)
#: Number of items whose factors are updated at a time.
_ITEMS_AT_A_TIME = 1 << 10
#: Numbers of ratings that users may have in the mean.
_COUNTS = np.geomspace(1e-3, 1e7, 400)
#: Slope of the released sums in the biases, per released weight. Below 1, since users' offsets move too and
#: contributions are clipped. Tuned with `python -m benchmarks.never_loses`.
BIAS_SLOPE = 0.5
#: Prior deviation of an item's bias from its regression on the log weight, in units of the spread.
BIAS_PRIOR = 0.65
#: A user's squared residual counts for at most this many times the last released residual variance.
RESIDUAL_BOUND = 2.0


def stored_ridge(arrays: Mapping[str, Array]) -> SweepSettings:
    return SweepSettings(
        regularization=float(arrays["regularization"]),
        bias_regularization=float(arrays["bias_regularization"]),
    )


def or_infinite(clip: float | None) -> float:
    return math.inf if clip is None else clip


class Level(NamedTuple):
    """Released estimates about the ratings before any item is released.

    Attributes
    ----------
    center : float
        Mean rating.
    n_users : float
        Declared or released, >= 1.
    spread : float
        Standard deviation of a user's ratings about their own mean.
    bias_regularization : float
        Ridge on a user's offset, in ratings.
    user_variance : float
        Prior variance of a user's factors.
    """

    center: float
    n_users: float
    spread: float
    bias_regularization: float
    user_variance: float

    def ridge(self, residual: float) -> SweepSettings:
        return SweepSettings(
            regularization=residual / self.user_variance,
            bias_regularization=self.bias_regularization,
        )


class Ground(NamedTuple):
    """Released or public values that all rounds use.

    Attributes
    ----------
    level : Level
    slopes : ndarray of shape (n_items,)
        Slopes of the released sums in the items.
    scores : ndarray of shape (n_items, n_components)
        Scores of the items in their features' components.
    """

    level: Level
    slopes: Array
    scores: Array


class Biases(NamedTuple):
    """The estimated item biases, with their variance before and after the rounds."""

    items: Array
    prior: Array
    variance: Array
    useful: float

    @property
    def reliability(self) -> Array:
        return 1 - self.variance / self.prior


def weighted_slopes(weights: Array, relative: Array) -> Array:
    """Estimate the item weights for adaptive cell weights, without another release."""
    return np.asarray(weights * relative / math.sqrt((weights * relative**2).sum() / weights.sum()))


def residual_variance(released: Array, last: float, bound: float, n_users: float, noise_sd: float) -> float:
    """Return the residual variance, from one vote a user; at least the standard error of its release."""
    error = bound * noise_sd / n_users
    mean = float(released[0]) / n_users
    estimate = last + float(shrinkage(last, error)) * (mean - last)
    return max(estimate, error, float(np.finfo(np.float64).eps) * last)


class KnownFactors(NamedTuple):
    """Precision of the factors at the end of a training.

    Attributes
    ----------
    variance : ndarray of shape (n_items, rank)
    gramian, gramian_variance : ndarray
        Packed, then the users' uncertainty; per user.
    """

    variance: Array
    gramian: Array
    gramian_variance: Array


def packed_variance(noise_sd: float, rank: int, user_norm: float, spread: float) -> Array:
    """Return the noise variance of a packed Gramian and of the users' uncertainty."""
    return np.append((noise_sd * spread**2 / frobenius_scale(rank)) ** 2, (noise_sd / user_norm**2) ** 2)


def bias_sampling(slopes: Array, n_users: float, unit: float) -> Array:
    cell = n_users / slopes.sum()  # a cell's usual weight
    return np.asarray(cell * slopes * unit**2)


class FactorSums(NamedTuple):
    """The released sums of a round of factors.

    Attributes
    ----------
    sums : ndarray of shape (n_items, rank)
        Weighted residuals times users' factors, without the users' shrinkage.
    values, vectors : ndarrays
        Eigenvalues and -vectors of the Gramian, per user.
    noise_sd : float
        Noise of an entry of the sums.
    residual : float
        Residual variance.
    """

    sums: Array
    values: Array
    vectors: Array
    noise_sd: float
    residual: float

    def variance(self, slope: Array) -> Array:
        return np.asarray(self.noise_sd**2 + self.residual * slope)


def spectrum(released: Array, noise_sd: float, n_users: float, level: Level) -> tuple[Array, Array, float]:
    """Return eigenvalues and -vectors of users' second moments, per user, and the users' mean uncertainty.

    ``released`` holds the packed Gramian and, last, the users' uncertainty.
    """
    # the uncertainty of a user's factors counts too, or they would shrink from round to round
    variance = level.user_variance * float(np.clip(released[-1] / n_users, 0.0, 1.0))
    values, vectors = np.linalg.eigh(unpacked(released[:-1]))
    values = np.maximum(values, level.spread**2 * noise_sd) / n_users + variance
    return values, vectors, variance


def factor_update(slopes: Array, variance: Array, scores: Array, released: FactorSums) -> tuple[Array, Array]:
    """Return the expected change of the factors, and their variance along the eigenvectors.

    The release is ``slope * change + noise`` along the eigenvectors: a Wiener gain for each.
    """
    along, usual = released.sums @ released.vectors, variance.mean(axis=1)
    if scores.any():
        slope = slopes[:, None] * released.values
        change, rest, _ = expected_from_features(scores, along, slope, usual, released.variance(slope))
    else:
        change, rest = np.zeros_like(along), usual
    left = np.empty_like(along)
    for start in range(0, len(along), _ITEMS_AT_A_TIME):
        items = slice(start, start + _ITEMS_AT_A_TIME)
        slope = slopes[items, None] * released.values  # of the sums in the factors, along the eigenvectors
        before = variance[items] * (rest[items] / usual[items])[:, None]
        gain = wiener_gain(slope, before, released.variance(slope))
        change[items] += gain * (along[items] - slope * change[items])
        left[items] = left_after(gain, slope, before)
    return change @ released.vectors.T, left


def users_uncertainty(factors: Array, weights: Array, share: float, level: Level, residual: float) -> Array:
    """Estimate the users' mean posterior covariance, shape (rank, rank), from its released part of the prior.

    All users are assumed to have the one number of ratings that fits this part.
    """
    values, vectors = np.linalg.eigh((factors * (weights / weights.sum())[:, None]).T @ factors)
    relative = np.maximum(values, 0.0) / level.ridge(residual).regularization
    shares = (1 / (1 + _COUNTS[:, None] * relative)).mean(axis=1)
    count = np.interp(-share, -shares, _COUNTS)  # at the ends where it is beyond them
    return np.asarray((vectors * (level.user_variance / (1 + count * relative))) @ vectors.T)


def canonical(
    factors: Array, known: KnownFactors, weights: Array, level: Level, residual: float
) -> tuple[Array, KnownFactors]:
    """Rotate the directions so that users' factors have equal variance.

    Directions in which users vary little are shortened in the items, with their noise: an M step of
    expectation maximisation with expanded parameters (Liu, Rubin and Wu 1998). The items' total length stays.
    """
    unsure = users_uncertainty(factors, weights, known.gramian[-1], level, residual)
    values, vectors = np.linalg.eigh(unpacked(known.gramian[:-1]) + unsure)
    parts = weights / weights.sum()
    energy = parts @ (factors @ vectors) ** 2
    usual = max(float(ratio(energy @ values, energy.sum())), _TINY)
    root = np.sqrt(np.clip(values, usual / 2, 2 * usual) / usual)
    turned = factors @ (vectors * root)
    _, turn = np.linalg.eigh((turned * parts[:, None]).T @ turned)
    there = vectors * root @ turn
    factors, second = factors @ there, (turn.T * (values / root**2)) @ turn
    gram = second - users_uncertainty(factors, weights, known.gramian[-1], level, residual)
    return factors, KnownFactors(
        known.variance @ there**2,
        np.append(gram[np.tril_indices(len(gram))], known.gramian[-1]),
        np.append(known.gramian_variance[:-1] * (root**-2.0).mean() ** 2, known.gramian_variance[-1]),
    )
