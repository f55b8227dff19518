"""What the Frank-Wolfe paper's algorithms complete: each user's sampled ratings less a level that is known.

The level of a rating is ``center + item_bias + user's offset``. The first two are public or released; the
offset is the user's own, hence free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.algorithms.private_als import PrivateALS
from hushrec.checks import CLIPS, check_choice, check_numbers, check_within
from hushrec.data import Domain, Ratings
from hushrec.data.sampling import sample_per_user
from hushrec.errors import InputError
from hushrec.estimator import Estimator
from hushrec.gate import Gate
from hushrec.privacy import Budget, Gaussian, Release
from hushrec.users import FittedUsers, user_means

Array = NDArray[Any]


class CentredRows(NamedTuple):
    """Private: users' rows as they enter an algorithm.

    Attributes
    ----------
    matrix : csr_array of shape (n_users, n_items), float64
        Sampled ratings less their level.
    offset : ndarray of shape (n_users,)
        Each user's offset.
    """

    matrix: sp.csr_array
    offset: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class CentredEstimator(Estimator):
    """An estimator of sampled rows less their level.

    Parameters
    ----------
    max_ratings_per_user : int
        Ratings of a user that are used (xi of the paper), >= 1; a sample keyed by her id where she has more.
    center : {"user", "biases", "averages", "middle"}
        Subtract the middle of the declared range and, beside it: a user's own mean; released item biases
        and her offset from them; the same with exact item averages, only without privacy; or nothing.
    bias_clip : float
        Bound of the first bias round of :class:`~hushrec.algorithms.PrivateALS`, which makes the
        released biases, in units of the released spread, > 0.
    bias_share : float
        Part of the budget (of mu squared) for them, in (0, 1).
    """

    max_ratings_per_user: int = 80
    center: str = "user"
    bias_clip: float = 0.67
    bias_share: float = 0.5

    _CENTERS: ClassVar[tuple[str, ...]] = ("user", "biases", "middle")

    def __post_init__(self) -> None:
        check_numbers(
            max_ratings_per_user=(self.max_ratings_per_user, int, 1, None),
        )
        check_within(bias_clip=(self.bias_clip, *CLIPS))
        check_choice(center=(self.center, self._CENTERS))
        check_numbers(bias_share=(self.bias_share, float, 0, 1))
        if self.bias_share in (0, 1):
            raise InputError(f"bias_share={self.bias_share!r} is out of range; pass one between 0 and 1.")

    def _row_bound(self, clip: float | None, domain: Domain) -> float:
        """A clip of a row in rating units; None is a norm that no row less her own mean exceeds."""
        return (clip or math.sqrt(self.max_ratings_per_user)) * domain.half_width

    @property
    def _biases(self) -> PrivateALS:
        return PrivateALS(rank=0, iterations=0, features=False, bias_clip=self.bias_clip)

    def _level_releases(
        self, budget: Budget, domain: Domain, fraction: float
    ) -> tuple[tuple[Release, ...], float]:
        """Releases of the level, and the fraction of the budget that is left after them."""
        if self.center != "biases":
            return (), fraction
        plan = self._biases.releases(budget, domain, fraction * self.bias_share)
        return plan.releases, fraction * (1 - self.bias_share)

    def _level(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        """Server side: public part of the level, and the seed that the users' samples are drawn with."""
        level = {
            "center": np.float64(ratings.domain.midpoint),
            "item_bias": np.zeros(ratings.domain.n_items),
        }
        if self.center == "biases":
            released = self._biases.train(FittedUsers(ratings), gate, seed)
            level = {name: released[name] for name in (*level, "bias_regularization")}
        elif self.center == "averages":
            level["item_bias"] = _item_averages(ratings)
        return level | {"sampling_seed": np.int64(seed)}

    def _rows(self, arrays: Mapping[str, Array], ratings: Ratings) -> CentredRows:
        """Local: every user's sample less its level; the same in training and in serving."""
        from hushrec.kernels.sparse_rows import row_sums

        sampled = sample_per_user(ratings, self.max_ratings_per_user, int(arrays["sampling_seed"]))
        matrix = sampled.matrix
        counts = np.diff(matrix.indptr)
        values = matrix.data.astype(np.float64)
        values -= float(arrays["center"]) + arrays["item_bias"].astype(np.float64)[matrix.indices]
        offset = np.zeros(ratings.n_users)
        if self.center != "middle":
            damping = float(arrays["bias_regularization"]) if self.center == "biases" else 0.0
            sums = row_sums(matrix.indptr, values)
            offset = sums / np.maximum(counts + damping, 1)
            values -= np.repeat(offset, counts)
        return CentredRows(with_values(matrix, values), offset)


def exact_release(name: str, budget: Budget) -> Release:
    """The one release of an algorithm without privacy: its whole model, unprotected."""
    if budget.private:
        raise InputError(
            f"{name} has no privacy: train a private model, or say that you want none",
            parameter="epsilon",
            value=math.inf,
        )
    return Release("exact model", Gaussian(0.0), 1.0, budget.unit, budget.relation)


def clipped(rows: sp.csr_array, bound: float) -> sp.csr_array:
    """Rows scaled down to norm ``bound`` where they are longer."""
    from hushrec.kernels.sparse_rows import clipped_rows

    values = clipped_rows(rows.indptr, rows.data, bound)
    return with_values(rows, values)


def with_values(rows: sp.csr_array, values: Array) -> sp.csr_array:
    """A matrix of the same structure."""
    matrix = sp.csr_array((values, rows.indices, rows.indptr), shape=rows.shape)
    matrix.has_sorted_indices = True
    return matrix


def _item_averages(ratings: Ratings) -> NDArray[np.float64]:
    """Exact mean over an item's raters of their deviation from their own mean; not private."""
    matrix, n_items = ratings.matrix, ratings.domain.n_items
    deviation = matrix.data - np.repeat(user_means(ratings), np.diff(matrix.indptr))
    sums = np.bincount(matrix.indices, deviation, minlength=n_items)
    return sums / np.maximum(np.bincount(matrix.indices, minlength=n_items), 1)
