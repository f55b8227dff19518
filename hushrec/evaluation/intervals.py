"""Figures with confidence intervals: the percentile bootstrap over users."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hushrec.types import Array

#: From how often each user is drawn, shape (n_users,), to the figures, shape (n_figures,).
Figures = Callable[[Array], Array]


@dataclass(frozen=True)
class Estimate:
    """A figure and its interval: of confidence where it was measured, of what to expect where not.

    Attributes
    ----------
    value : float
        The figure; NaN where nothing was there to measure.
    low, high : float
        Ends of the interval.

    Examples
    --------
    >>> found = hushrec.evaluation.Estimate(value=0.91, low=0.90, high=0.92)
    >>> found.low < found.value < found.high
    True
    """

    value: float
    low: float
    high: float


def estimates(
    names: Sequence[str], figures: Figures, n_users: int, resamples: int, seed: int
) -> dict[str, Estimate]:
    """Figures by name, each with its interval."""
    values = figures(np.ones(n_users))
    low, high = bootstrap_interval(values, figures, n_users, resamples, seed)
    return {name: Estimate(*map(float, triple)) for name, *triple in zip(names, values, low, high)}


def bootstrap_interval(
    values: Array, figures: Figures, n_users: int, resamples: int, seed: int, confidence: float = 0.95
) -> tuple[Array, Array]:
    """Percentile bootstrap over users, re-centred on the figures.

    A resample holds 63% of the distinct users, so its coverage is biased downwards; shifting the
    percentiles by (figure - mean of the resamples) takes that out, and hardly moves the other metrics.

    Parameters
    ----------
    values : ndarray of shape (n_figures,)
        The figures on the users as they are.
    figures : callable
        From how often each user is drawn, shape (n_users,), to the figures.
    n_users, resamples, seed : int
        Users, resamples and the seed that draws them.
    confidence : float
        Level of the interval.

    Returns
    -------
    (low, high) : ndarrays of shape (n_figures,)
        The figure lies between them. NaN where a figure is, or without resamples.
    """
    if resamples == 0 or n_users == 0:
        return np.full(len(values), np.nan), np.full(len(values), np.nan)
    drawn = np.array([figures(weights) for weights in _draws(n_users, resamples, seed)])
    tail = (1 - confidence) / 2
    some = ~np.isnan(drawn).all(axis=0)
    shift = np.zeros(len(values))
    shift[some] = values[some] - np.nanmean(drawn[:, some], axis=0)
    low, high = np.full(len(values), np.nan), np.full(len(values), np.nan)
    low[some], high[some] = np.nanquantile(drawn[:, some], [tail, 1 - tail], axis=0)
    return np.clip(low + shift, 0.0, values), np.maximum(high + shift, values)


def _draws(n_users: int, resamples: int, seed: int) -> Iterator[Array]:
    generator = np.random.default_rng(seed)
    for _ in range(resamples):
        yield np.bincount(generator.integers(0, n_users, n_users), minlength=n_users).astype(np.float64)
