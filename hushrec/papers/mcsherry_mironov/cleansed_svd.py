"""SVD after cleansing: item averages, then a weighted covariance shrunk to its averages, all of it noisy.

McSherry and Mironov 2009, the baseline of Jain, Thakkar and Thakurta 2018, recalibrated from one rating to
one user. Sensitivities: docs/proofs/cleansed_svd.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.checks import Count, Positive, Settings
from hushrec.data import Domain, Ratings
from hushrec.data.sampling import sample_per_user
from hushrec.kernels.fixed_point import spacing, truncated
from hushrec.kernels.packed import unpacked
from hushrec.kernels.sparse_rows import row_sums, with_values
from hushrec.kernels.sweeps import ridge_fit
from hushrec.privacy import Bounded, Budget, Plan, positive, signed, together
from hushrec.serving.modelfile import Expected
from hushrec.serving.scoring import UserState
from hushrec.training.estimator import Estimator
from hushrec.training.gate import Gate
from hushrec.training.trainable import Round, plan_of
from hushrec.training.users import Users, outer_product_sum, unit_weights
from hushrec.types import Array

#: Least released weight that is divided by. No study chose it.
_SMALLEST_WEIGHT = 1e-6
#: Item sums and weights have norm at most 1 each, and weights are positive.
_MEANS_BOUND = positive(math.sqrt(2.0))


@dataclass(frozen=True, kw_only=True)
class CleansedSVD(Estimator["CleansedUsers"]):
    """McSherry and Mironov 2009, for whole users.

    Parameters
    ----------
    rank : int or None
        Eigenvectors of the cleansed covariance, >= 1, or None for all with a positive eigenvalue.
    prediction : {"projection", "neighbours"}
        Project a user's residuals on the eigenvectors, or interpolate them from the user's items with the
        weights of the cleansed covariance (Bell and Koren 2007).
    regularization : float
        Variance of a single rating in addition to the covariance, for the interpolation, in units of the
        square of half the rating range, > 0.
    residual_clamp : float
        Residuals are clamped to +-B, in units of half the rating range, > 0.
    tuning : CleansedSVD.Tuning
    max_ratings_per_user : int
        Ratings of a user that are used, >= 1.
    means_share, weights_share : float
        Fractions of the budget (of mu squared) for the item averages and for the weights; the covariance gets
        the rest.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: item averages and covariance are (epsilon, delta)-DP, a user's
    factors are computed from them and their own rows. Three Gaussian releases; a user with c ratings has
    weights 1/sqrt(c) in the first and 1/c in the others. Item sums (in units of half the range) and weights:
    sensitivity sqrt(2) under add-remove, 2 under replace. Covariance (in units of B^2) and weights: 1 and
    sqrt(2) each.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> estimator = hushrec.papers.CleansedSVD(rank=3)
    >>> model = estimator.fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> len(model.recommend({ratings.domain.items[0]: 5}, n=3))
    3
    """

    name: ClassVar[str] = "cleansed-svd"
    expected: ClassVar[dict[str, Expected]] = {"sampling_seed": Expected("iu")}

    @dataclass(frozen=True, kw_only=True)
    class Tuning(Settings):
        """Weights of averages; no study chose them.

        Parameters
        ----------
        item_shrinkage, user_shrinkage, covariance_shrinkage : float
            Added ratings at the average, in an item's mean, a user's mean and every entry of the covariance
            (beta_m, beta_p and beta of the paper), > 0. The first and last are in units of released weight.
        """

        item_shrinkage: Positive = 1.0
        user_shrinkage: Positive = 5.0
        covariance_shrinkage: Positive = 1.0

    rank: Count | None = 10
    prediction: Literal["projection", "neighbours"] = "projection"
    regularization: Positive = 0.25
    residual_clamp: Positive = 0.5
    tuning: Tuning = Tuning()
    max_ratings_per_user: Count = 80
    means_share: Annotated[float, "[0, 0.5]"] = 0.2
    weights_share: Annotated[float, "[0, 0.49]"] = 0.3

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        clamp = self.residual_clamp * domain.half_width
        rounds = [
            Round("item means", self.means_share, _MEANS_BOUND),
            Round("covariance", 1 - self.means_share - self.weights_share, positive(clamp**2)),
            Round("weights", self.weights_share, positive(1.0)),
        ]
        return plan_of(rounds, budget, fraction, 1.0)

    def users(self, ratings: Ratings) -> CleansedUsers:
        return CleansedUsers(ratings, self)

    def train(self, users: CleansedUsers, gate: Gate, seed: int) -> dict[str, Any]:
        users.sample(seed)
        means, popularity = self._item_means(gate.release("item means", users.item_means()), users.domain)
        arrays: dict[str, Any] = {"sampling_seed": np.int64(seed)}
        arrays |= {"center": np.float64(users.domain.midpoint), "item_bias": means}
        users.subtract(arrays)
        covariance = unpacked(gate.release("covariance", users.covariance()))
        weights = unpacked(gate.release("weights", users.weights()))
        cleansed = _cleansed(covariance, weights, self.tuning.covariance_shrinkage)
        root = np.sqrt(np.maximum(popularity, _SMALLEST_WEIGHT))
        # noise is the same for all entries where they are scaled by the square roots of the weights
        values, vectors = np.linalg.eigh(cleansed * np.outer(root, root))
        kept = np.flatnonzero(values > 0)[::-1][: len(root) if self.rank is None else self.rank]
        return arrays | {"item_factors": vectors[:, kept] * np.sqrt(values[kept]) / root[:, None]}

    def _item_means(self, noisy: Array, domain: Domain) -> tuple[Array, Array]:
        """Return averages less the middle of the range, and weights."""
        sums, counts, half = noisy[: domain.n_items], noisy[domain.n_items :], domain.half_width
        counts = np.maximum(counts, 0.0)
        average = np.clip(sums.sum() / max(counts.sum(), 1.0), -half, half)
        means = (sums + self.tuning.item_shrinkage * average) / (counts + self.tuning.item_shrinkage)
        return np.clip(means, -half, half), counts

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: the user's residuals, then projection or interpolation.

        For factors F of the cleansed covariance C = F F^T and the user's items U, the interpolation
        C[:, U] (C[U, U] + v I)^-1 r is F times the ridge regression of r on F[U] with ridge v.
        """
        sampled = sample_per_user(history, self.max_ratings_per_user, int(arrays["sampling_seed"]))
        residuals, offset = self.residuals(arrays, sampled)
        factors = arrays["item_factors"].astype(np.float64)
        if self.prediction == "neighbours":
            noise = self.regularization * history.domain.half_width**2
            return UserState(offset, ridge_fit(residuals, factors, noise))
        return UserState(offset, residuals @ np.linalg.pinv(factors).T)

    def residuals(self, arrays: Mapping[str, Array], sampled: Ratings) -> tuple[sp.csr_array, Array]:
        """Local: ratings less item and user averages, clamped; and the user averages."""
        matrix = sampled.matrix
        counts = np.diff(matrix.indptr)
        level = float(arrays["center"]) + arrays["item_bias"].astype(np.float64)
        values = matrix.data - level[matrix.indices]
        offset = row_sums(matrix.indptr, values) / (counts + self.tuning.user_shrinkage)
        clamp = self.residual_clamp * sampled.domain.half_width
        return with_values(matrix, np.clip(values - np.repeat(offset, counts), -clamp, clamp)), offset


class CleansedUsers(Users):
    """Users whose sampled ratings are weighted by 1/sqrt(number of theirs)."""

    _cell_weights: Array  # of :meth:`sample`
    _residuals: sp.csr_array  # of :meth:`subtract`

    def __init__(self, ratings: Ratings, settings: CleansedSVD) -> None:
        super().__init__(ratings)
        self._settings = settings

    def sample(self, seed: int) -> None:
        self._ratings = sample_per_user(self._ratings, self._settings.max_ratings_per_user, seed)
        self._cell_weights = np.repeat(unit_weights(self._ratings), np.diff(self._ratings.matrix.indptr))

    def item_means(self) -> Bounded:
        """Item sums, of norm at most half the range, and item weights, of norm at most 1."""
        ratings, half = self._ratings, self.domain.half_width
        step = spacing(half)
        deviations = truncated(_deviations(ratings) * self._cell_weights, step)
        sums = with_values(ratings.matrix, deviations).T @ np.ones(ratings.n_users)
        parts = [Bounded(sums, signed(half), scale=1 / half, step=step), self.item_weights()]
        return together(parts, _MEANS_BOUND)

    def subtract(self, arrays: Mapping[str, Array]) -> None:
        self._residuals, _ = self._settings.residuals(arrays, self._ratings)

    def covariance(self) -> Bounded:
        """Packed outer products of weighted residuals, of norm at most the clamp a user."""
        clamp = self._settings.residual_clamp * self.domain.half_width
        weighted = with_values(self._residuals, self._residuals.data * self._cell_weights)
        return outer_product_sum(weighted, clamp)

    def weights(self) -> Bounded:
        """Packed outer products of the weights, of norm at most 1 a user."""
        return outer_product_sum(with_values(self._residuals, self._cell_weights), 1.0)


def _deviations(ratings: Ratings) -> NDArray[np.float64]:
    half = ratings.domain.half_width
    return np.clip(ratings.matrix.data.astype(np.float64) - ratings.domain.midpoint, -half, half)


def _cleansed(covariance: Array, weights: Array, shrinkage: float) -> NDArray[np.float64]:
    """Shrink every entry to the average of its kind, diagonal or not, and divide by its weight."""
    cleansed = np.empty_like(covariance)
    diagonal = np.eye(len(covariance), dtype=bool)
    weights = np.maximum(weights, 0.0)
    for kind in (diagonal, ~diagonal):
        average = covariance[kind].sum() / max(weights[kind].sum(), _SMALLEST_WEIGHT)
        cleansed[kind] = (covariance[kind] + shrinkage * average) / (weights[kind] + shrinkage)
    return cleansed
