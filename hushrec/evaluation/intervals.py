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
    """A measured figure and its confidence interval.

    Attributes
    ----------
    value : float
        The figure; NaN if there was nothing to measure.
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
    """Return figures with 95% intervals: percentile bootstrap over users, re-centred on the figures.

    A resample holds 63% of the distinct users, so its coverage is biased downwards. Shifting the percentiles
    by (figure - mean of the resamples) corrects this, and hardly moves the other metrics. An interval is NaN
    where its figure is, or without resamples.
    """
    values = figures(np.ones(n_users))
    low, high = np.full((2, len(values)), np.nan)
    if resamples and n_users:
        drawn = np.array([figures(weights) for weights in _draws(n_users, resamples, seed)])
        some = ~np.isnan(drawn).all(axis=0)
        shift = values[some] - np.nanmean(drawn[:, some], axis=0)
        ends = np.nanquantile(drawn[:, some], [0.025, 0.975], axis=0) + shift
        low[some], high[some] = np.clip(ends[0], 0.0, values[some]), np.maximum(ends[1], values[some])
    return {name: Estimate(*map(float, triple)) for name, *triple in zip(names, values, low, high)}


def _draws(n_users: int, resamples: int, seed: int) -> Iterator[Array]:
    generator = np.random.default_rng(seed)
    for _ in range(resamples):
        yield np.bincount(generator.integers(0, n_users, n_users), minlength=n_users).astype(np.float64)
