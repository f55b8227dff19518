"""Alternating least squares without privacy: the reference that private models are judged against.

Explicit ratings: ``rating ~ center + user offset + item bias + user factors . item factors``, all of it
solved by alternating ridge regressions (:mod:`hushrec.kernels.sweeps`). Likes: every observed cell is 1 and
every cell, observed or not, is pulled to 0 with ``unobserved_weight`` (Hu, Koren and Volinsky 2008, in the
form of Chien et al. 2021, section 5.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hushrec.checks import check_numbers
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.estimator import Estimator, UserState, exact_plan
from hushrec.gate import Gate
from hushrec.kernels.sweeps import SweepSettings, csr, half_sweep, initial_items
from hushrec.privacy import Bound, Bounded, Budget, Plan
from hushrec.users import user_means

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ALS(Estimator[Ratings]):
    """Matrix factorisation by alternating least squares, with no privacy at all.

    Parameters
    ----------
    rank : int
        Number of factors, >= 0 (0 leaves offsets and biases).
    iterations : int
        Sweeps over users and items, >= 1.
    regularization : float or None
        Ridge on the factors of a user or an item, > 0. None chooses it from the ratings: their noise, taken
        as 0.42 of half the range, times the sum of the roots of the mean number of ratings a user and an
        item has, where noise stops looking like a factor (Candes and Plan 2010); 20 for likes.
    bias_regularization : float
        Ridge on user offsets and item biases, > 0.
    unobserved_weight : float
        Weight of every cell's pull towards 0. Above 0 the data are likes: no offsets, no biases, and
        scores are not clipped to the rating range.
    dtype : {"float32", "float64"}
        Arithmetic of the sweeps.
    """

    name: ClassVar[str] = "als"

    rank: int = 32
    iterations: int = 15
    regularization: float | None = None
    bias_regularization: float = 5.0
    unobserved_weight: float = 0.0
    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_numbers(
            rank=(self.rank, int, 0, None),
            iterations=(self.iterations, int, 1, None),
            regularization=(1.0 if self.regularization is None else self.regularization, float, 0, None),
            bias_regularization=(self.bias_regularization, float, 0, None),
            unobserved_weight=(self.unobserved_weight, float, 0, None),
        )
        if self.dtype not in ("float32", "float64"):
            raise InputError(f"dtype={self.dtype!r} is not known; pass 'float32' or 'float64'.")

    @property
    def scores(self) -> str:  # type: ignore[override]
        """Likes where unobserved cells count as dislikes, ratings otherwise."""
        return "likes" if self.unobserved_weight > 0 else "ratings"

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        """One entry that says what it is: the whole model, unprotected."""
        return exact_plan(self.name, budget, "private-als")

    def users(self, ratings: Ratings) -> Ratings:
        """There is no private side."""
        return ratings

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        """Alternate the two half sweeps from a random start."""
        regularization = self._regularization(ratings)
        settings = self._settings(regularization)
        center = 0.0 if self.scores == "likes" else mean_of_user_means(user_means(ratings), ratings.domain)
        items = initial_items(ratings.domain.n_items, self.rank, seed, self.dtype)
        for _ in range(self.iterations):
            users = half_sweep(csr(ratings.matrix), center, items, settings)
            items = half_sweep(csr(ratings.transposed), center, users, settings)
        released = gate.release("exact model", Bounded(items, Bound(math.inf, math.inf)))
        return {
            "center": np.float64(center),
            "item_bias": released[:, self.rank].astype(np.float64),
            "item_factors": released[:, : self.rank].astype(np.float32),
            "regularization": np.float64(regularization),
        }

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Ridge regression of a user's own ratings on the item factors (equation 1)."""
        items = np.column_stack([arrays["item_factors"], arrays["item_bias"]]).astype(np.float64)
        settings = self._settings(float(arrays["regularization"]))
        users = half_sweep(csr(history.matrix), float(arrays["center"]), items, settings)
        return UserState(offset=users[:, self.rank], factors=users[:, : self.rank])

    def _regularization(self, ratings: Ratings) -> float:
        if self.regularization is not None:
            return self.regularization
        if self.scores == "likes" or not ratings.n_ratings:
            return 20.0
        items = max(1, len(np.unique(ratings.matrix.indices)))
        spread = math.sqrt(ratings.n_ratings / ratings.n_users) + math.sqrt(ratings.n_ratings / items)
        return 0.42 * ratings.domain.half_width * spread

    def _settings(self, regularization: float) -> SweepSettings:
        return SweepSettings(
            regularization=regularization,
            bias_regularization=None if self.scores == "likes" else self.bias_regularization,
            unobserved_weight=self.unobserved_weight,
        )


def mean_of_user_means(means: NDArray[np.float64], domain: Domain) -> float:
    """Level of the ratings with one vote a user, or the middle of the range where nobody votes."""
    return float(domain.midpoint + (means - domain.midpoint).sum() / max(len(means), 1))
