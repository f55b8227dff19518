"""A generator of ratings in a world that changes: item biases, popularity and factors walk at random.

Users stay. Over the year each of an item's biases, log popularities and factors gains half of its initial
variance, and a fifth of the items come new, one after the other. A user rates some items each week, by that
week's truth; the rows of a week are those of the last weeks, which is the declared window. Users keep their
earlier ratings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.data import Domain, Ratings

Array = NDArray[Any]


@dataclass
class Week:
    """A week: rows to train on, ratings to be judged on, and the truth's error on these."""

    train: Ratings
    test: Ratings
    truth: float


@dataclass
class DriftingWorld:
    """Weeks of ratings from 1 to 5, real numbers clipped to that range.

    Parameters
    ----------
    n_users, n_items : int
        Items at the end of the year; a sixth of them, a fifth of the first, come during it.
    weeks : int
    each_week, window : int
        Ratings of a user in a week, and the weeks that count.
    rank : int
    noise : float
    drift : float
        Variance gained over the year, in units of the initial one.
    seed : int
    """

    n_users: int
    n_items: int
    weeks: int
    each_week: int = 12
    window: int = 12
    rank: int = 3
    noise: float = 0.8
    drift: float = 0.5
    seed: int = 0
    _rng: Any = field(init=False)
    _past: list[tuple[Array, Array, Array]] = field(init=False, default_factory=list)
    _latest: Array = field(init=False)

    def __post_init__(self) -> None:
        rng = self._rng = np.random.default_rng(self.seed)
        self._latest = np.zeros((self.n_users, self.n_items))
        self._bias = 0.5 * rng.standard_normal(self.n_items)
        self._log_popularity = rng.standard_normal(self.n_items)
        self._spectrum = 0.5 / math.sqrt(self.rank)
        self._factors = self._spectrum * rng.standard_normal((self.n_items, self.rank))
        self._levels = 0.4 * rng.standard_normal(self.n_users)
        self._tastes = rng.standard_normal((self.n_users, self.rank))
        first = round(self.n_items / 1.2)
        self._arrives = np.concatenate(
            [np.zeros(first), np.sort(rng.integers(1, self.weeks, self.n_items - first))]
        )

    def __iter__(self) -> Any:
        for _ in range(self.window - 1):  # before the season
            self._remember(0)
        for week in range(self.weeks):
            if week:
                self._walk()
            self._remember(week)
            self._past = self._past[-self.window :]
            columns = [
                np.concatenate(each) for each in zip(*reversed(self._past))
            ]  # the latest rating counts
            train = self._ratings(*columns, week)
            users, items, ratings = self._rated(week)
            test = self._ratings(users, items, ratings, week)
            wanted = self._score(users, items) - ratings
            yield Week(train, test, math.sqrt(float((wanted**2).mean())))

    def kept(self, week: Week) -> Ratings:
        """All that users rated until this week, which is the last one that was made."""
        domain = week.train.domain
        return Ratings.from_any(sp.csr_array(self._latest[:, : domain.n_items]), domain)

    def _remember(self, week: int) -> None:
        """A week's ratings; of several of an item by a user the first counts."""
        users, items, ratings = rated = self._rated(week)
        self._past.append(rated)
        self._latest[users[::-1], items[::-1]] = ratings[::-1]

    def _walk(self) -> None:
        step = math.sqrt(self.drift / (self.weeks - 1))
        self._bias += 0.5 * step * self._rng.standard_normal(self.n_items)
        self._log_popularity += step * self._rng.standard_normal(self.n_items)
        self._factors += self._spectrum * step * self._rng.standard_normal(self._factors.shape)

    def _score(self, users: Array, items: Array) -> Array:
        score = 3.4 + self._levels[users] + self._bias[items]
        return np.clip(score + (self._tastes[users] * self._factors[items]).sum(axis=1), 1, 5)

    def _rated(self, week: int) -> tuple[Array, Array, Array]:
        """Users, items, ratings of a week."""
        present = int((self._arrives <= week).sum())
        share = np.exp(self._log_popularity[:present])
        count = self.n_users * self.each_week
        users = np.repeat(np.arange(self.n_users), self.each_week)
        items = self._rng.choice(present, count, p=share / share.sum())
        ratings = self._score(users, items) + self.noise * self._rng.standard_normal(count)
        return users, items, np.clip(ratings, 1, 5)

    def _ratings(self, users: Array, items: Array, ratings: Array, week: int) -> Ratings:
        """Over the catalogue of a week; of several ratings of an item by a user the first stays."""
        n_items = int((self._arrives <= week).sum())
        keys, places = np.unique(users * n_items + items, return_index=True)
        shape = self.n_users, n_items
        matrix = sp.csr_array((ratings[places], (keys // n_items, keys % n_items)), shape=shape)
        return Ratings.from_any(matrix, Domain(range(n_items), rating_range=(1, 5)))
