"""Metrics of scores that separate likes from dislikes."""

from __future__ import annotations

import math

import numpy as np

from hushrec.evaluation.intervals import Estimate, Metric, estimates
from hushrec.kernels.one_bit import likelihood
from hushrec.types import Array


def sign_accuracy(scores: Array, liked: Array, weights: Array | None = None) -> float:
    """Return the fraction of right signs; a score of 0 counts as a dislike."""
    return _mean((scores > 0) == (liked > 0), weights)


def log_loss(scores: Array, liked: Array, link: str = "logistic", weights: Array | None = None) -> float:
    """In nats."""
    losses, _ = likelihood(np.asarray(scores, dtype=np.float64), (liked > 0).astype(np.float64), link)
    return _mean(losses, weights)


def _mean(values: Array, weights: Array | None) -> float:
    """Return NaN if there is nothing to measure."""
    some = len(values) if weights is None else np.any(weights)
    return float(np.average(values, weights=weights)) if some else math.nan


def auc(scores: Array, liked: Array, weights: Array | None = None) -> float:
    """Return the chance that a liked cell scores above a disliked one, ties half; NaN without both."""
    weights = np.ones(len(scores)) if weights is None else weights
    levels, places = np.unique(scores, return_inverse=True)
    likes = np.bincount(places, weights * (liked > 0), minlength=len(levels))
    dislikes = np.bincount(places, weights * (liked <= 0), minlength=len(levels))
    pairs = likes.sum() * dislikes.sum()
    below = np.cumsum(dislikes) - dislikes / 2
    return float((likes @ below) / pairs) if pairs else float("nan")


def sign_metrics(
    scores: Array, liked: Array, indptr: Array, resamples: int, seed: int, link: str = "logistic"
) -> dict[str, Estimate]:
    """Return accuracy, log loss and AUC of scores, with bootstrap intervals over users.

    ``indptr`` has the offsets of each user's cells; ``link`` "logistic" means log-odds, "probit" probits.
    """
    counts = np.diff(indptr)

    metrics: list[Metric[Array]] = [
        Metric("accuracy", lambda cells: sign_accuracy(scores, liked, cells)),
        Metric("log_loss", lambda cells: log_loss(scores, liked, link, cells), high=math.inf),
        Metric("auc", lambda cells: auc(scores, liked, cells)),
    ]
    return estimates(metrics, lambda users: np.repeat(users, counts), len(counts), resamples, seed)
