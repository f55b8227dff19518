"""Baselines that every private recommender must beat; each is one release.

Proofs of the sensitivities: docs/proofs/baselines.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hushrec.checks import Clip, Positive
from hushrec.data import Domain, Ratings
from hushrec.kernels.sweeps import SweepSettings
from hushrec.privacy import Budget, Plan, jointly, positive, signed, together
from hushrec.serving.scoring import UserState
from hushrec.training.estimator import Estimator
from hushrec.training.gate import Gate
from hushrec.training.kalman import SEEN, Tracked
from hushrec.training.posterior import level, ratio
from hushrec.training.trainable import Round, plan_of
from hushrec.training.users import LEVEL_BOUND, Users, ridge_on_items, ridge_parts
from hushrec.types import Array, ModelArrays

_TRACKED = "item_sums", "item_weights", "level"


class _SameForAll(Estimator[Users]):
    """All users have the same scores."""

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        return UserState(np.zeros(history.n_users), np.zeros((history.n_users, 0)))

    def score_parts(self, arrays: Mapping[str, Array], history: Ratings, column: int) -> Array:
        return np.zeros(history.n_ratings)  # all users have the same scores


@dataclass(frozen=True, kw_only=True)
class GlobalMean(_SameForAll):
    """One number for all users: the mean of their means.

    Privacy
    -------
    One Gaussian release of two numbers: the sum over users of (their mean rating - middle of the range) in
    units of half the range, and the number of users. Unit: user. One user moves each by at most 1, so the
    sensitivity is sqrt(2) under add-remove and 2 under replace. DPALS (section 5.2) instead counts every
    rating and understates the cost by the cap on ratings per user; see docs/proofs/baselines.md.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> model = hushrec.models.GlobalMean().fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> first, second, *others = ratings.domain.items
    >>> a, b = model.predict({first: 5}, [first, second])
    >>> bool(a == b)                                              # one number for all users
    True
    """

    name: ClassVar[str] = "global-mean"
    supports_partitions: ClassVar[bool] = True

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return plan_of([Round("level", 1.0, LEVEL_BOUND)], budget, fraction)

    def train(self, users: Users, gate: Gate, seed: int) -> dict[str, Any]:
        noisy = gate.release("level", users.level())
        return _served(level(noisy, users.domain)[0], np.zeros(users.domain.n_items))


@dataclass(frozen=True, kw_only=True)
class ItemBias(Estimator[Users]):
    """A user's own mean plus a private item bias.

    Each user spreads a contribution of bounded norm over their rated items: their ratings minus their own
    mean, every cell weighted 1/sqrt(number of their ratings). If the norm exceeds ``clip``, the whole is
    scaled down. Items are then shrunk according to their noise.

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

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> model = hushrec.ItemBias().fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> item = ratings.domain.items[0]
    >>> 1 <= model.predict({item: 5}, [ratings.domain.items[1]])[0] <= 5
    True
    """

    name: ClassVar[str] = "item-bias"
    supports_partitions: ClassVar[bool] = True

    expected: ClassVar[ModelArrays] = ModelArrays(
        state=SEEN
        | Tracked.expected("item_sums", "items")
        | Tracked.expected("item_weights", "items")
        | Tracked.expected("level", 2)
    )

    clip: Clip = 0.45
    prior_sd: Positive = 0.25
    user_regularization: Positive = 3.0

    _WEIGHT_PART: ClassVar[float] = 0.7
    _LEVEL_PART: ClassVar[float] = 0.1

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        parts = signed(1.0), positive(self._WEIGHT_PART), LEVEL_BOUND.times(self._LEVEL_PART)
        return plan_of([Round("item biases", 1.0, jointly(*parts))], budget, fraction)

    def train(self, users: Users, gate: Gate, seed: int) -> ModelArrays:
        return self._shrunk([Tracked.first(*release) for release in self._release(users, gate)], users.domain)

    def week(self, users: Users, gate: Gate, last: ModelArrays) -> ModelArrays:
        seen, made = last.state["item_seen"] > 0, self._release(users, gate)
        before = [Tracked.of(last.state, name) for name in _TRACKED]
        before[:2] = [tracked.with_new(seen) for tracked in before[:2]]
        (counted, variance), n_users = (column[1] for column in made[2]), max(float(before[2].mean[1]), 1.0)
        part = before[1].part(*made[1], counted / n_users, max(math.sqrt(variance) / n_users, 1e-6))
        tracked = [one.measured(*release, part) for one, release in zip(before, made, strict=True)]
        return self._shrunk(tracked, users.domain)

    def _release(self, users: Users, gate: Gate) -> list[tuple[Array, Array]]:
        half, n_items = users.domain.half_width, users.domain.n_items
        deviations, weights = users.item_deviations(self.clip)
        parts = [deviations, weights.times(self._WEIGHT_PART), users.level().times(self._LEVEL_PART)]
        noisy, sd = gate.release("item biases", together(parts)), gate.noise_sd("item biases")
        units = np.array([self.clip * half, 1 / self._WEIGHT_PART]), np.array([half, 1.0]) / self._LEVEL_PART
        released = np.split(noisy, [n_items, 2 * n_items])
        return [(part, (sd * unit) ** 2) for part, unit in zip(released, (*units[0], units[1]), strict=True)]

    def _shrunk(self, tracked: list[Tracked], domain: Domain) -> ModelArrays:
        sums, weights, levels = tracked
        counts = np.maximum(weights.mean, 0.0)
        variance = sums.variance / (self.prior_sd * domain.half_width) ** 2
        state = {"item_seen": np.ones(domain.n_items)}
        for name, statistic in zip(_TRACKED, tracked, strict=True):
            state |= statistic.to_arrays(name)
        biases = ratio(sums.mean * counts, counts**2 + variance)
        return ModelArrays(_served(level(levels.mean, domain)[0], biases), state)

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        return ridge_on_items(arrays, history.matrix, self._ridge)

    def score_parts(self, arrays: Mapping[str, Array], history: Ratings, column: int) -> Array:
        return ridge_parts(arrays, history.matrix, self._ridge, column)

    @property
    def _ridge(self) -> SweepSettings:
        return SweepSettings(regularization=1.0, bias_regularization=self.user_regularization)


@dataclass(frozen=True, kw_only=True)
class Popular(_SameForAll):
    """The most popular items, by private counts.

    Privacy
    -------
    One Gaussian release of the item weights: each user spreads 1/sqrt(number of their ratings) over each
    item they rated, a vector of norm 1. Unit: user. Sensitivity 1 under add-remove, sqrt(2) under replace
    (non-negative vectors of norm 1).

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> model = hushrec.Popular().fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> len(model.recommend({}, n=10))                           # a user without ratings
    10
    """

    name: ClassVar[str] = "popular"
    supports_partitions: ClassVar[bool] = True
    scores: ClassVar[str] = "likes"
    like_threshold: ClassVar[float | None] = None  # each row counts, purchases too
    expected: ClassVar[ModelArrays] = ModelArrays(state=SEEN | Tracked.expected("item_weights", "items"))

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return plan_of([Round("item weights", 1.0, positive(1.0))], budget, fraction)

    def train(self, users: Users, gate: Gate, seed: int) -> ModelArrays:
        noisy = gate.release("item weights", users.item_weights())
        return self._counted(Tracked.first(noisy, gate.noise_sd("item weights") ** 2))

    def week(self, users: Users, gate: Gate, last: ModelArrays) -> ModelArrays:
        release = gate.release("item weights", users.item_weights()), gate.noise_sd("item weights") ** 2
        before = Tracked.of(last.state, "item_weights").with_new(last.state["item_seen"] > 0)
        return self._counted(before.measured(*release, before.part(*release)))

    @staticmethod
    def _counted(tracked: Tracked) -> ModelArrays:
        state = tracked.to_arrays("item_weights") | {"item_seen": np.ones(len(tracked.mean))}
        return ModelArrays(_served(0.0, tracked.mean), state)


def _served(center: float, biases: Array) -> dict[str, Any]:
    return {"center": np.float64(center), "item_bias": biases, "item_factors": np.zeros((len(biases), 0))}
