"""Server side: item features as the prior mean of item biases and factors.

The model is ``v_j = B f_j + e_j`` with public features ``f_j``. ``B`` and the variance of ``e_j`` are fitted
to released sums by marginal likelihood (MacKay 1992; Agarwal and Chen 2009), which also gives the probability
that the features are useful. They are weighed by it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from hushrec.types import Array

#: Candidates of the variance that features explain and of the rest, in units of the prior variance. They
#: reach far above 1: a prior that is too narrow would let worthless features fit the noise.
_VARIANCES = np.exp2(np.arange(-6.0, 9.0))
#: Growth of the log likelihood at which features are as likely to be of use as not: the best of the
#: candidates grows by chance, too (`make bench PART=features`).
_EVIDENCE = 3.0
#: Fraction of the residual variance that users' slopes on features may explain, if features are of no use to
#: released biases, and if they are. Tuned on 314 users of ML-100K who did not train
#: (benchmarks/features.py).
_SLOPES_SHARE = 0.015, 0.07


def slope_columns(scores: Array, unit_variance: float, useful: float) -> Array:
    """Return item columns on which every user fits slopes, next to the learned factors.

    Parameters
    ----------
    scores : ndarray of shape (n_items, n_components)
        From :func:`hushrec.data.features.feature_scores`.
    unit_variance : float
        Residual variance over the prior variance of a user's factors.
    useful : float
        Probability that features are of use to the biases.
    """
    least, most = _SLOPES_SHARE
    return np.asarray(math.sqrt((least + useful * (most - least)) * unit_variance) * scores)


def expected_from_features(
    scores: Array, released: Array, slope: Array, variance: Array, noise_variance: Array
) -> tuple[Array, Array, float]:
    """Return the prior mean (n_items, width) and variance (n_items,) of what sums measure, given the
    features, and the probability that they are of use, which weighs both.

    Parameters
    ----------
    scores : ndarray of shape (n_items, n_components)
    released, slope, noise_variance : ndarray of shape (n_items, width)
        Released sums ``slope * v + noise``.
    variance : ndarray of shape (n_items,)
        Prior variance of ``v`` without features.
    """
    known = scores.any(axis=1)
    mean = np.zeros_like(released)
    if not known.any():
        return mean, variance, 0.0
    candidates = _VARIANCES * float(variance[known].mean())  # one for all items: see _VARIANCES
    measured = released[known], slope[known], noise_variance[known]
    fits = [_fit(scores[known], *measured, rest, candidates) for rest in candidates]
    alone = int(np.argmax([fit.alone for fit in fits]))
    best = int(np.argmax([fit.together for fit in fits]))
    useful = float(expit(fits[best].together - fits[alone].alone - _EVIDENCE))
    mean[known] = useful * (scores[known] @ fits[best].coefficients)
    explained = useful * max(0.0, 1 - float(candidates[best] / candidates[alone]))
    return mean, np.where(known, (1 - explained) * variance, variance), useful


class _Fit(NamedTuple):
    """Log marginal likelihoods without and with features, and the posterior mean of ``B``."""

    alone: float
    together: float
    coefficients: Array


def _fit(
    scores: Array, released: Array, slope: Array, noise_variance: Array, variance: float, explained: Array
) -> _Fit:
    """Fit for a given variance of ``e_j`` and the best variance of ``B f_j``."""
    alone, spectra = 0.0, []
    for column in range(released.shape[1]):
        root = np.sqrt(slope[:, column] ** 2 * variance + noise_variance[:, column])
        design, target = scores * (slope[:, column] / root)[:, None], released[:, column] / root
        values, vectors = np.linalg.eigh(design.T @ design)
        spectra.append((np.maximum(values, 0.0), vectors.T @ (design.T @ target), vectors))
        alone -= float(np.log(root).sum() + target @ target / 2)
    values, along, vectors = map(np.stack, zip(*spectra, strict=True))  # a row a column of sums
    scaled = explained[:, None, None] * values
    gains = explained[:, None, None] * along**2 / (1 + scaled) - np.log1p(scaled)
    best = int(np.argmax(gains.sum(axis=(1, 2))))
    coefficients = np.einsum("cfk,ck->fc", vectors, explained[best] * along / (1 + scaled[best]))
    return _Fit(alone, alone + float(gains[best].sum()) / 2, coefficients)
