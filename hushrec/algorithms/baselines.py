"""The models that every private recommender must beat; each is one release.

Proofs of the sensitivities: docs/proofs/baselines.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hushrec.algorithms.als import SweepSettings, csr, half_sweep, user_means
from hushrec.checks import CLIPS, check_numbers, check_users, check_within
from hushrec.data import Domain, Ratings
from hushrec.estimator import Estimator, UserState
from hushrec.gate import Gate
from hushrec.kernels.fixed_point import SAFE, spacing, truncated
from hushrec.privacy import Accountant, Budget, Plan, Release

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class GlobalMean(Estimator):
    """Predict one number for everybody: the mean of the users' means.

    Privacy
    -------
    One Gaussian release of two numbers: the sum over users of (her mean rating - middle of the range) in
    units of half the range, and the number of users. Unit: user. One user moves each by at most 1, so the
    sensitivity is sqrt(2) under add-remove and 2 under replace. DPALS (section 5.2) instead counts every
    rating and understates the cost by the cap on ratings per user; see docs/proofs/baselines.md.
    """

    name: ClassVar[str] = "global-mean"

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return Plan(budget, (level_release(budget, fraction),))

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        domain = ratings.domain
        noisy = gate.release("level", level_aggregate(ratings), scale=level_scale(domain))
        return {
            "center": np.float64(level(noisy, domain)[0]),
            "item_bias": np.zeros(domain.n_items),
            "item_factors": np.zeros((domain.n_items, 0)),
        }

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        return UserState(np.zeros(history.n_users), np.zeros((history.n_users, 0)))


@dataclass(frozen=True, kw_only=True)
class ItemBias(Estimator):
    """User mean (free, each user computes her own) plus a private bias per item.

    Each user spreads a contribution of bounded norm over the items she rated: her ratings minus her own
    mean, every cell weighted 1/sqrt(number of her ratings), the whole scaled down to norm ``clip`` where it
    is larger. Items are then shrunk by what is known of their noise.

    Parameters
    ----------
    clip : float
        Bound on a user's weighted residuals, in units of half the rating range, > 0.
    prior_sd : float
        Spread of item biases assumed by the shrinkage, in units of half the rating range, > 0.
    user_regularization : float
        Ridge on user offsets, in ratings, > 0.

    Privacy
    -------
    One Gaussian release, jointly of: the weighted residual sums (norm <= clip), the item weights (norm
    <= 1, weighed by 0.7) and the level of :class:`GlobalMean` (two numbers, weighed by 0.1).
    Unit: user. Sensitivity in those units sqrt(1 + 0.7^2 + 2 * 0.1^2) under add-remove; under replace
    the signed parts double and the non-negative ones grow by sqrt(2). Proof: docs/proofs/baselines.md.
    """

    name: ClassVar[str] = "item-bias"

    clip: float = 0.45
    prior_sd: float = 0.25
    user_regularization: float = 3.0

    _WEIGHT_PART: ClassVar[float] = 0.7
    _LEVEL_PART: ClassVar[float] = 0.1

    def __post_init__(self) -> None:
        check_within(clip=(self.clip, *CLIPS))
        check_numbers(
            prior_sd=(self.prior_sd, float, 0, None),
            user_regularization=(self.user_regularization, float, 0, None),
        )

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        add_remove = budget.relation == "add-remove"
        signed, counted = (1.0, 1.0) if add_remove else (4.0, 2.0)
        level_squared = 2.0 if add_remove else 4.0
        squared = signed + counted * self._WEIGHT_PART**2 + level_squared * self._LEVEL_PART**2
        one = Release("item biases", budget.share(fraction), math.sqrt(squared), budget.unit, budget.relation)
        return Plan(budget, (one,))

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        domain = ratings.domain
        n_items = domain.n_items
        sums, weights = self._local(ratings)
        scale = np.concatenate(
            [
                np.full(n_items, 1 / (self.clip * domain.half_width)),
                np.full(n_items, self._WEIGHT_PART),
                self._LEVEL_PART * level_scale(domain),
            ]
        )
        noisy = gate.release(
            "item biases", np.concatenate([sums, weights, level_aggregate(ratings)]), scale=scale
        )
        return self._global(noisy, domain, gate.noise_sd("item biases"))

    def _local(self, ratings: Ratings) -> tuple[Array, Array]:
        """User side: bounded residual sums and weights, summed over users, shape (n_items,) each."""
        from hushrec.kernels.residuals import residual_norms, residual_sums

        means = user_means(ratings)
        weight = unit_weights(ratings)
        no_factors = np.zeros((ratings.n_users, 1)), np.zeros((ratings.domain.n_items, 1))
        norms = weight * residual_norms(*csr(ratings.matrix), *no_factors, row_offset=means)
        bound = self.clip * ratings.domain.half_width
        shrink = clip_factor(norms, bound)
        ones = np.ones((ratings.n_users, 1))
        zero = np.zeros((ratings.domain.n_items, 1))
        sums = residual_sums(
            *csr(ratings.transposed),
            zero,
            ones,
            col_offset=means,
            col_weight=weight * shrink,
            step=spacing(bound),
        )
        return sums[:, 0], item_weights(ratings, weight * shrink)

    def _global(self, noisy: Array, domain: Domain, noise_sd: float) -> dict[str, Any]:
        """Server side: shrunken biases from the released sums and weights."""
        n_items = domain.n_items
        sums, weights = noisy[:n_items], np.maximum(noisy[n_items : 2 * n_items], 0.0)
        variance = (noise_sd * self.clip / self.prior_sd) ** 2
        bias = sums * weights / np.maximum(weights**2 + variance, 1e-12)
        center = level(noisy[2 * n_items :], domain)[0]
        return {
            "center": np.float64(center),
            "item_bias": bias,
            "item_factors": np.zeros((n_items, 0)),
        }

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        items = arrays["item_bias"][:, None].astype(np.float64)
        settings = SweepSettings(regularization=1.0, bias_regularization=self.user_regularization)
        users = half_sweep(csr(history.matrix), float(arrays["center"]), items, settings)
        return UserState(offset=users[:, 0], factors=users[:, :0])


@dataclass(frozen=True, kw_only=True)
class Popular(Estimator):
    """Recommend the most popular items to everybody, by privately released counts.

    Privacy
    -------
    One Gaussian release of the item weights: each user spreads 1/sqrt(number of her ratings) over each
    item she rated, a vector of norm 1. Unit: user. Sensitivity 1 under add-remove, sqrt(2) under replace
    (non-negative vectors of norm 1).
    """

    name: ClassVar[str] = "popular"
    scores: ClassVar[str] = "likes"

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return Plan(budget, (weights_release(budget, fraction),))

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        return {
            "center": np.float64(0.0),
            "item_bias": gate.release("item weights", item_weights(ratings)),
            "item_factors": np.zeros((ratings.domain.n_items, 0)),
        }

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        return UserState(np.zeros(history.n_users), np.zeros((history.n_users, 0)))


# ---------------------------------------------------------------------- parts that other models release too


def level_release(budget: Budget, fraction: float, label: str = "level") -> Release:
    """Planned release of :func:`level_aggregate`: sensitivity sqrt(2) (add-remove) or 2 (replace)."""
    sensitivity = math.sqrt(2.0) if budget.relation == "add-remove" else 2.0
    return Release(label, budget.share(fraction), sensitivity, budget.unit, budget.relation)


def level_aggregate(ratings: Ratings) -> Array:
    """Local: (sum over users of her mean - middle of the range, number of users), shape (2,).

    The mean is clamped into the declared range, so a user moves the sum by at most half the range.
    """
    domain = ratings.domain
    deviations = np.clip(user_means(ratings) - domain.midpoint, -domain.half_width, domain.half_width)
    return np.array([truncated(deviations, spacing(domain.half_width)).sum(), float(ratings.n_users)])


def level_scale(domain: Domain) -> Array:
    """Units in which one user moves each number of :func:`level_aggregate` by at most 1."""
    return np.array([1 / domain.half_width, 1.0])


def level(noisy: Array, domain: Domain) -> tuple[float, float]:
    """Global: (mean of the users' means within the declared range, number of users >= 1)."""
    n_users = max(float(noisy[1]), 1.0)
    return float(np.clip(domain.midpoint + noisy[0] / n_users, domain.low, domain.high)), n_users


def weights_release(budget: Budget, fraction: float, label: str = "item weights") -> Release:
    """Planned release of :func:`item_weights`: sensitivity 1 (add-remove) or sqrt(2) (replace)."""
    sensitivity = 1.0 if budget.relation == "add-remove" else math.sqrt(2.0)
    return Release(label, budget.share(fraction), sensitivity, budget.unit, budget.relation)


def unit_weights(ratings: Ratings) -> Array:
    """Local: 1/sqrt(number of her ratings) of each user, shape (n_users,)."""
    return SAFE / np.sqrt(np.maximum(np.diff(ratings.matrix.indptr), 1))


def item_weights(ratings: Ratings, user_weight: Array | None = None) -> Array:
    """Local: sum over users of their weight at each item, a vector of norm <= 1 a user; shape (n_items,)."""
    user_weight = unit_weights(ratings) if user_weight is None else user_weight
    return weight_sums(ratings.transposed, truncated(user_weight, spacing(1.0)))


def weight_sums(matrix: Any, col_weight: Array) -> Array:
    """Sum over each row's cells of the columns' weights, shape (n_rows,); no array of the cells' size."""
    from hushrec.kernels import sparse_rows

    return sparse_rows.weight_sums(matrix.indptr, matrix.indices, col_weight)


def clip_factor(norms: Array, bound: float) -> Array:
    """Factor <= 1 that brings each norm to at most ``bound`` > 0, whatever the norm's rounding errors."""
    return bound * SAFE / np.maximum(norms, bound * SAFE)


def release_user_count(ratings: Ratings, accountant: Accountant, share: float = 0.01) -> int:
    """Number of users, released for a share of the budget, to plan with.

    Parameters
    ----------
    ratings : Ratings
        The private rows.
    accountant : Accountant
        Charged ``share`` of its budget's mu squared.
    share : float
        In (0, 1).

    Returns
    -------
    int
        At least 1.

    Privacy
    -------
    One Gaussian release. Unit: user. Sensitivity 1 under add-remove, and under replace too, since a
    user's rows may be replaced by rows of which none can be used.
    """
    check_users(ratings, accountant)
    budget = accountant.budget
    planned = Release("number of users", budget.share(share), 1.0, budget.unit, budget.relation)
    gate = Gate(accountant, Plan(budget, (planned,)))
    noisy = gate.release("number of users", np.array([float(ratings.rated().n_users)]))
    return max(1, round(float(noisy[0])))
