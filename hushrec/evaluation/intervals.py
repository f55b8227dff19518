"""Figures with confidence intervals: the percentile bootstrap over users."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from hushrec.types import Array

#: Part of the resamples below an interval, and above it; and the interval's level.
_TAIL = 0.025
CONFIDENCE = 1 - 2 * _TAIL
#: Bootstrap samples of the users.
RESAMPLES = 1000
#: Users, each of whom counts as often as they were drawn.
Sample = TypeVar("Sample")


@dataclass(frozen=True)
class Metric(Generic[Sample]):
    """A figure of users, and the range that it cannot leave.

    Attributes
    ----------
    name : str
    of : function
        From a sample of users to the figure; NaN if there is nothing to measure.
    low : float
    high : float or function
        A function finds it from all users.
    """

    name: str
    of: Callable[[Sample], float]
    low: float = 0.0
    high: float | Callable[[Sample], float] = 1.0


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
    metrics: Sequence[Metric[Sample]],
    sample: Callable[[Array], Sample],
    n_users: int,
    resamples: int,
    seed: int,
) -> dict[str, Estimate]:
    """Return figures with 95% intervals: percentile bootstrap over users, re-centred on the figures.

    ``sample`` gets how often each user is drawn, shape (n_users,). A resample holds 63% of the distinct
    users, so its coverage is biased downwards. Shifting the percentiles by (figure - mean of the resamples)
    corrects this, and hardly moves the other metrics. An interval stays within the metric's range. It is NaN
    where its figure is, or without resamples.
    """
    every = sample(np.ones(n_users))
    draws = map(sample, _draws(n_users, resamples if n_users else 0, seed))
    drawn_figures = np.array([[metric.of(one) for metric in metrics] for one in draws])
    found = {}
    for metric, drawn in zip(metrics, drawn_figures.reshape(-1, len(metrics)).T, strict=True):
        value, low, high = float(metric.of(every)), math.nan, math.nan
        if not np.isnan(drawn).all():
            ends = np.nanquantile(drawn, [_TAIL, 1 - _TAIL]) + value - np.nanmean(drawn)
            highest = metric.high(every) if callable(metric.high) else metric.high
            low, high = (float(end) for end in ends)
            low, high = min(max(low, metric.low), value), max(min(high, highest), value)
        found[metric.name] = Estimate(value, low, high)
    return found


def _draws(n_users: int, resamples: int, seed: int) -> Iterator[Array]:
    generator = np.random.default_rng(seed)
    for _ in range(resamples):
        yield np.bincount(generator.integers(0, n_users, n_users), minlength=n_users).astype(np.float64)
