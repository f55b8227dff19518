"""The rows that the paper's algorithms complete: each user's sampled ratings less a known level.

The level is ``center + item_bias + user's offset``. The first two are public or released; the user computes
the offset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.checks import Clip, Count, Part
from hushrec.data import Domain, Ratings
from hushrec.data.sampling import sample_per_user
from hushrec.kernels.sparse_rows import row_sums, with_values
from hushrec.models.private_als import PrivateALS
from hushrec.models.private_als.users import FittedUsers
from hushrec.papers.frank_wolfe.eigensolvers import RowUsers
from hushrec.privacy import Budget, Plan, Release
from hushrec.serving.modelfile import Expected
from hushrec.training.estimator import Estimator
from hushrec.training.gate import Gate
from hushrec.training.trainable import PrivateSide, exact_plan
from hushrec.training.users import user_means
from hushrec.types import Array

#: Values of `CentredEstimator.center` with privacy.
Released = Literal["user", "biases", "middle"]


@dataclass(frozen=True, kw_only=True)
class CentredEstimator(Estimator[PrivateSide]):
    """An estimator of sampled rows less their level.

    Parameters
    ----------
    max_ratings_per_user : int
        Ratings of a user that are used (xi of the paper), >= 1; of more, a sample keyed by the user's id.
    center : {"user", "biases", "averages", "middle"}
        Subtract the middle of the declared range, and one of: a user's own mean; released item biases and the
        user's offset from them; the same with exact item averages (without privacy only); nothing else.
    bias_clip : float
        Bound of the first bias round of :class:`~hushrec.models.PrivateALS`, in units of the released
        spread, > 0.
    bias_share : float
        Fraction of the budget (of mu squared) for the biases, in (0, 1).
    n_users : int, optional
        Number of users, declared or released, in units of which the biases' sums are read. With
        ``center="biases"`` a training without it releases it first.
    """

    expected: ClassVar[dict[str, Expected]] = {
        "bias_regularization": Expected("f", (), 0.0),
        "sampling_seed": Expected("iu"),
    }

    max_ratings_per_user: Count = 80
    center: Literal["user", "biases", "averages", "middle"] = "user"
    bias_clip: Clip = 0.67
    bias_share: Part = 0.5
    n_users: Count | None = None

    @property
    def counts_users(self) -> bool:
        return self.center == "biases" and self.n_users is None

    def _row_bound(self, clip: float | None, domain: Domain) -> float:
        """In rating units; by default a norm that no centred row exceeds."""
        return (clip or math.sqrt(self.max_ratings_per_user)) * domain.half_width

    @property
    def _biases(self) -> PrivateALS:
        tuning = PrivateALS.Tuning(bias_clip=self.bias_clip)
        return PrivateALS(rank=0, iterations=0, features=False, n_users=self.n_users, tuning=tuning)

    def _level_releases(
        self, budget: Budget, domain: Domain, fraction: float
    ) -> tuple[tuple[Release, ...], float]:
        if self.center != "biases":
            return (), fraction
        plan = self._biases.releases(budget, domain, fraction * self.bias_share)
        return plan.releases, fraction * (1 - self.bias_share)

    def _level(self, users: CentredUsers, gate: Gate, seed: int) -> dict[str, Any]:
        """Server side: released level, and the seed of the samples."""
        level = _middle(users.domain)
        if self.center == "biases":
            released = self._biases.train(users, gate, seed).serve
            level = {name: released[name] for name in level}
        return level | {"sampling_seed": np.int64(seed)}

    def rows(self, arrays: Mapping[str, Array], ratings: Ratings) -> tuple[sp.csr_array, Array]:
        """Local: every user's sample less its level, and their offset."""
        sampled = sample_per_user(ratings, self.max_ratings_per_user, int(arrays["sampling_seed"]))
        matrix = sampled.matrix
        counts = np.diff(matrix.indptr)
        values = matrix.data.astype(np.float64)
        values -= float(arrays["center"]) + arrays["item_bias"].astype(np.float64)[matrix.indices]
        offset = np.zeros(ratings.n_users)
        if self.center != "middle":
            counted = counts + float(arrays["bias_regularization"])
            offset = row_sums(matrix.indptr, values) / np.maximum(counted, 1)
            values -= np.repeat(offset, counts)
        return with_values(matrix, values), offset


@dataclass(frozen=True, kw_only=True)
class ExactEstimator(CentredEstimator[Ratings]):
    """An estimator without privacy, whose averages are exact."""

    max_ratings_per_user: Count = 10_000
    center: Literal["user", "averages", "middle"] = "averages"

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return exact_plan(self.name, budget)

    def users(self, ratings: Ratings) -> Ratings:
        return ratings


class CentredUsers(FittedUsers, RowUsers):
    """Users who fit themselves to the biases, and contribute rows less their level."""

    _centred: sp.csr_array  # of :meth:`centre`

    def __init__(self, ratings: Ratings, settings: CentredEstimator) -> None:
        super().__init__(ratings)
        self._settings = settings

    def centre(self, level: Mapping[str, Array]) -> None:
        self._centred, _ = self._settings.rows(level, self._ratings)
        self._contributed = self._centred


def exact_level(ratings: Ratings, center: str, seed: int) -> dict[str, Any]:
    level = _middle(ratings.domain)
    if center == "averages":
        level["item_bias"] = _item_averages(ratings)
    return level | {"sampling_seed": np.int64(seed)}


def _middle(domain: Domain) -> dict[str, Any]:
    return {
        "center": np.float64(domain.midpoint),
        "item_bias": np.zeros(domain.n_items),
        "bias_regularization": np.float64(0.0),
    }


def _item_averages(ratings: Ratings) -> NDArray[np.float64]:
    """Mean deviation of an item's raters from their own means; not private."""
    matrix, n_items = ratings.matrix, ratings.domain.n_items
    deviation = matrix.data - np.repeat(user_means(ratings), np.diff(matrix.indptr))
    sums = np.bincount(matrix.indices, deviation, minlength=n_items)
    return sums / np.maximum(np.bincount(matrix.indices, minlength=n_items), 1)
