"""SVD after cleansing: item averages, then a weighted covariance shrunk to its averages, all of it noisy.

McSherry and Mironov 2009, the baseline of Jain, Thakkar and Thakurta 2018, recalibrated from one rating to
one user. Sensitivities: docs/proofs/cleansed_svd.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.algorithms.centering import with_values
from hushrec.algorithms.private_svd import ridge_fit
from hushrec.checks import check_choice, check_numbers
from hushrec.data import Domain, Ratings
from hushrec.data.sampling import sample_per_user
from hushrec.estimator import Estimator, UserState
from hushrec.gate import Gate
from hushrec.kernels.fixed_point import CLIP_MARGIN, FACTOR_BITS, spacing, truncated
from hushrec.kernels.packed import frobenius_scale, unpacked
from hushrec.kernels.sparse_rows import row_sums
from hushrec.kernels.sweeps import csr
from hushrec.privacy import Bound, Bounded, Budget, Plan, Release, signed, together
from hushrec.users import Users, unit_weights

Array = NDArray[Any]

#: A released weight is not taken for smaller than this.
_SMALLEST_WEIGHT = 1e-6


@dataclass(frozen=True, kw_only=True)
class CleansedSVD(Estimator):
    """Item averages, clamped residuals and a cleansed covariance, then projection or neighbours.

    Parameters
    ----------
    rank : int or None
        Eigenvectors of the cleansed covariance, >= 1; None keeps all with a positive eigenvalue.
    prediction : {"projection", "neighbours"}
        A user's residuals projected on the eigenvectors; or interpolated from the items she rated with the
        weights that the cleansed covariance gives (Bell and Koren 2007, all her items being neighbours).
    regularization : float
        Variance of a single rating beside the covariance, for the interpolation, in units of the square of
        half the rating range, > 0.
    residual_clamp : float
        Residuals are clamped to +-B, in units of half the rating range, > 0.
    item_shrinkage, user_shrinkage, covariance_shrinkage : float
        Fictitious ratings at the average, in an item's mean, a user's mean and every entry of the
        covariance (beta_m, beta_p and beta of the paper), > 0. The first and last are in units of released
        weight.
    max_ratings_per_user : int
        Ratings of a user that are used, >= 1.
    means_share, weights_share : float
        Parts of the budget (of mu squared) for the item averages and for the weights; the covariance gets
        the rest.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: item averages and covariance are (epsilon, delta)-DP, a user's
    factors are computed from them and her own rows. Three Gaussian releases; a user's weights are
    1/sqrt(c) in the first and 1/c in the others, c being the number of her ratings. Item sums (in units of
    half the range) and weights: sensitivity sqrt(2) under add-remove, 2 under replace. Covariance (in
    units of B^2) and weights: 1 and sqrt(2) each. The original protects one rating and needs less noise.
    """

    name: ClassVar[str] = "cleansed-svd"

    rank: int | None = 10
    prediction: str = "projection"
    regularization: float = 0.25
    residual_clamp: float = 0.5
    item_shrinkage: float = 1.0
    user_shrinkage: float = 5.0
    covariance_shrinkage: float = 1.0
    max_ratings_per_user: int = 80
    means_share: float = 0.2
    weights_share: float = 0.3

    def __post_init__(self) -> None:
        check_numbers(
            regularization=(self.regularization, float, 0, None),
            residual_clamp=(self.residual_clamp, float, 0, None),
            item_shrinkage=(self.item_shrinkage, float, 0, None),
            user_shrinkage=(self.user_shrinkage, float, 0, None),
            covariance_shrinkage=(self.covariance_shrinkage, float, 0, None),
            max_ratings_per_user=(self.max_ratings_per_user, int, 1, None),
            means_share=(self.means_share, float, 0, 0.5),
            weights_share=(self.weights_share, float, 0, 0.49),
        )
        if self.rank is not None:
            check_numbers(rank=(self.rank, int, 1, None))
        check_choice(prediction=(self.prediction, ("projection", "neighbours")))

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        positive = math.sqrt(2.0) if budget.relation == "replace" else 1.0
        clamp = self.residual_clamp * domain.half_width
        parts = {
            "item means": (self.means_share, positive * math.sqrt(2.0)),
            "covariance": (1 - self.means_share - self.weights_share, positive * clamp**2),
            "weights": (self.weights_share, positive),
        }
        return Plan(
            budget,
            [
                Release(label, budget.share(fraction * share), sensitivity, budget.unit, budget.relation)
                for label, (share, sensitivity) in parts.items()
            ],
        )

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        domain, n_items = ratings.domain, ratings.n_items
        arrays: dict[str, Any] = {"sampling_seed": np.int64(seed)}
        arrays |= self._means(self._sample(arrays, ratings), domain, gate)
        residuals, _ = self._residuals(arrays, ratings)
        matrix, weights = self._release_covariance(residuals, self.residual_clamp * domain.half_width, gate)
        cleansed = _cleansed(matrix, weights, self.covariance_shrinkage)
        popularity = np.sqrt(np.maximum(arrays.pop("item_weight"), _SMALLEST_WEIGHT))
        # noise is the same for all entries where they are scaled by the square roots of the weights
        values, vectors = np.linalg.eigh(cleansed * np.outer(popularity, popularity))
        kept = np.flatnonzero(values > 0)[::-1][: n_items if self.rank is None else self.rank]
        basis = vectors[:, kept] * np.sqrt(values[kept]) / popularity[:, None]
        return arrays | {"item_factors": basis}

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: the user's residuals, then projection or interpolation.

        With factors F of the cleansed covariance C = F F^T, interpolation C[:, own] (C[own, own] + v I)^-1 r
        is F times the ridge regression of r on F[own] with ridge v.
        """
        residuals, offset = self._residuals(arrays, history)
        factors = arrays["item_factors"].astype(np.float64)
        if self.prediction == "neighbours":
            noise = self.regularization * history.domain.half_width**2
            return UserState(offset, ridge_fit(residuals, factors, noise))
        return UserState(offset, residuals @ np.linalg.pinv(factors).T)

    def _sample(self, arrays: Mapping[str, Array], ratings: Ratings) -> Ratings:
        return sample_per_user(ratings, self.max_ratings_per_user, int(arrays["sampling_seed"]))

    def _means(self, sampled: Ratings, domain: Domain, gate: Gate) -> dict[str, Any]:
        """Server side: item averages shrunk to the global one, both from one release."""
        matrix, n_items = sampled.matrix, domain.n_items
        weights = np.repeat(unit_weights(sampled), np.diff(matrix.indptr))
        half = domain.half_width
        deviations = truncated(_deviations(sampled) * weights, spacing(half))
        sums = with_values(matrix, deviations).T @ np.ones(sampled.n_users)
        bounded = Bounded(sums, signed(half), scale=1 / half, step=spacing(half))
        both = together([bounded, Users(sampled).item_weights()], Bound(math.sqrt(2.0), 2.0))
        noisy = gate.release("item means", both)
        sums, counts = noisy[:n_items], np.maximum(noisy[n_items:], 0.0)
        average = np.clip(sums.sum() / max(counts.sum(), 1.0), -half, half)
        means = (sums + self.item_shrinkage * average) / (counts + self.item_shrinkage)
        center = np.float64(domain.midpoint)
        return {"center": center, "item_bias": np.clip(means, -half, half), "item_weight": counts}

    def _residuals(self, arrays: Mapping[str, Array], ratings: Ratings) -> tuple[sp.csr_array, Array]:
        """Local: ratings less item and user averages, clamped; and the user averages."""
        matrix = self._sample(arrays, ratings).matrix
        counts = np.diff(matrix.indptr)
        level = float(arrays["center"]) + arrays["item_bias"].astype(np.float64)
        values = matrix.data - level[matrix.indices]
        offset = row_sums(matrix.indptr, values) / (counts + self.user_shrinkage)
        clamp = self.residual_clamp * ratings.domain.half_width
        return with_values(matrix, np.clip(values - np.repeat(offset, counts), -clamp, clamp)), offset

    def _release_covariance(self, residuals: sp.csr_array, clamp: float, gate: Gate) -> tuple[Array, Array]:
        """Sums of the outer products of residuals and of places, weighted 1/c for a user of c ratings."""
        from hushrec.kernels.symmetric import outer_sums

        n_items = residuals.shape[1]
        counts = np.diff(residuals.indptr)
        root = np.repeat(CLIP_MARGIN / np.sqrt(np.maximum(counts, 1)), counts)
        scale = frobenius_scale(n_items)
        weighted = truncated(residuals.data * root, spacing(clamp, FACTOR_BITS))
        sums = outer_sums(*csr(with_values(residuals, weighted)), n_items)
        covariance = unpacked(gate.release("covariance", sums, scale=scale))
        places = outer_sums(*csr(with_values(residuals, truncated(root, spacing(1.0, FACTOR_BITS)))), n_items)
        return covariance, unpacked(gate.release("weights", places, scale=scale))


def _deviations(ratings: Ratings) -> NDArray[np.float64]:
    """Local: ratings less the middle of the range, at most half of it in size."""
    half = ratings.domain.half_width
    return np.clip(ratings.matrix.data.astype(np.float64) - ratings.domain.midpoint, -half, half)


def _cleansed(covariance: Array, weights: Array, shrinkage: float) -> NDArray[np.float64]:
    """Every entry shrunk to the average of its kind, diagonal or not, and divided by its weight."""
    cleansed = np.empty_like(covariance)
    diagonal = np.eye(len(covariance), dtype=bool)
    weights = np.maximum(weights, 0.0)
    for kind in (diagonal, ~diagonal):
        average = covariance[kind].sum() / max(weights[kind].sum(), _SMALLEST_WEIGHT)
        cleansed[kind] = (covariance[kind] + shrinkage * average) / (weights[kind] + shrinkage)
    return cleansed
