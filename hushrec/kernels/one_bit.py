"""The law of one-bit labels, and each row's own regression of its labels on shared factors.

A target is the label's probability: 1 for +1, 0 for -1; the logistic loss is linear in it, so any real
number is allowed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit, log_ndtr, ndtr

from hushrec.kernels.least_squares import normal_equations, ridge_solve
from hushrec.kernels.residuals import predict_pairs

Array = NDArray[np.float64]

#: Largest second derivative of a cell's loss in x, over all x (for labels that were not flipped).
CURVATURE = {"logistic": 0.25, "probit": 1.0}


def likelihood(
    x: Array, target: Array, link: str, flips: tuple[float, float] = (0.0, 0.0)
) -> tuple[Array, Array]:
    """Return the negative log-likelihood of each cell and its derivative in x.

    Parameters
    ----------
    x, target : (n,) arrays
        Log-odds (or probits), and targets.
    flips : (float, float)
        Probabilities with which a label +1, and a label -1, were flipped: the observed label is +1 with
        probability c(x) = h(x) (1 - flips[0]) + (1 - h(x)) flips[1].
    """
    logistic = link == "logistic"
    if flips == (0.0, 0.0) and logistic:
        return np.logaddexp(0.0, x) - target * x, expit(x) - target
    if flips == (0.0, 0.0):
        log_like, log_dislike = log_ndtr(x), log_ndtr(-x)
        like, dislike = np.exp(log_density(x) - log_like), np.exp(log_density(x) - log_dislike)
        return -target * log_like - (1 - target) * log_dislike, (1 - target) * dislike - target * like
    to_dislike, to_like = flips
    h = expit(x) if logistic else ndtr(x)
    density = h * (1 - h) if logistic else np.exp(log_density(x))
    seen_like = h * (1 - to_dislike) + (1 - h) * to_like
    seen_dislike = h * to_dislike + (1 - h) * (1 - to_like)
    change = (1 - to_dislike - to_like) * density
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = -target * np.log(seen_like) - (1 - target) * np.log(seen_dislike)
        slope = change * ((1 - target) / seen_dislike - target / seen_like)
    return loss, slope


def log_density(x: Array) -> Array:
    return -0.5 * x * x - 0.5 * math.log(2 * math.pi)


def soft_threshold_for(values: Array, radius: float) -> float:
    """The t >= 0 with ``sum max(values - t, 0) = radius``; 0 where the sum is at most that (values >= 0)."""
    if values.sum() <= radius:
        return 0.0
    descending = np.sort(values)[::-1]
    thresholds = (np.cumsum(descending) - radius) / np.arange(1, len(values) + 1)
    above = np.flatnonzero(descending > thresholds)
    return float(thresholds[above[-1] if len(above) else 0])  # none where the radius is lost to rounding


def regress_labels(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    target: Array,
    col_factors: Array,
    col_offset: Array,
    ridge: Array,
    link: str,
    *,
    iterations: int = 12,
) -> Array:
    """Regress each row's labels on the column factors, with a ridge; shape (n_rows, d).

    Minimises ``sum_j loss(col_offset_j + x . col_factors_j, target_j) + x . diag(ridge) x / 2`` by steps with
    the loss's largest curvature (Boehning and Lindsay 1988), each of which lowers it.

    ``ridge``, of shape (d,), is greater than 0.
    """
    n_rows = len(indptr) - 1
    rows = np.repeat(np.arange(n_rows), np.diff(indptr))
    gram, _ = normal_equations(indptr, indices, target, col_factors)
    gram = CURVATURE[link] * gram
    gradient: Any = sp.csr_array((target, indices, indptr), shape=(n_rows, len(col_factors)))
    solved = np.zeros((n_rows, col_factors.shape[1]))
    for _ in range(iterations):
        x = predict_pairs(rows, indices, solved, col_factors) + col_offset[indices]
        gradient.data = likelihood(x, target, link)[1]
        downhill = -(gradient @ col_factors) - solved * ridge
        solved = solved + ridge_solve(gram, downhill, ridge)
    return solved
