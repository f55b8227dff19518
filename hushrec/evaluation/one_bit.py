"""Metrics of scores that separate likes from dislikes."""

from __future__ import annotations

import numpy as np

from hushrec.evaluation.intervals import Estimate, estimates
from hushrec.kernels.one_bit import likelihood
from hushrec.types import Array


def sign_accuracy(scores: Array, liked: Array, weights: Array | None = None) -> float:
    """Return the fraction of right signs; a score of 0 counts as a dislike."""
    return float(np.average((scores > 0) == (liked > 0), weights=weights))


def log_loss(scores: Array, liked: Array, link: str = "logistic", weights: Array | None = None) -> float:
    """In nats."""
    losses, _ = likelihood(np.asarray(scores, dtype=np.float64), (liked > 0).astype(np.float64), link)
    return float(np.average(losses, weights=weights))


def auc(scores: Array, liked: Array, weights: Array | None = None) -> float:
    """Return the chance that a liked cell scores above a disliked one, ties half; NaN without both."""
    weights = np.ones(len(scores)) if weights is None else weights
    levels, places = np.unique(scores, return_inverse=True)
    likes = np.bincount(places, weights * (liked > 0), minlength=len(levels))
    dislikes = np.bincount(places, weights * (liked <= 0), minlength=len(levels))
    pairs = likes.sum() * dislikes.sum()
    below = np.cumsum(dislikes) - dislikes / 2
    return float((likes @ below) / pairs) if pairs else float("nan")


def average_relative_error(estimate: Array, truth: Array) -> float:
    """Squared, relative to the truth's squared norm (Li et al. 2021, section 5.1)."""
    return float(((estimate - truth) ** 2).sum() / (np.asarray(truth) ** 2).sum())


def sign_metrics(
    scores: Array, liked: Array, indptr: Array, resamples: int, seed: int, link: str = "logistic"
) -> dict[str, Estimate]:
    """Return accuracy, log loss and AUC of scores, with bootstrap intervals over users.

    ``indptr`` has the offsets of each user's cells; ``link`` "logistic" means log-odds, "probit" probits.
    """
    counts = np.diff(indptr)

    def figures(users: Array) -> Array:
        cells = np.repeat(users, counts)
        if not cells.any():
            return np.full(3, np.nan)
        measures = [sign_accuracy(scores, liked, cells), log_loss(scores, liked, link, cells)]
        return np.array([*measures, auc(scores, liked, cells)])

    return estimates(("accuracy", "log_loss", "auc"), figures, len(counts), resamples, seed)
