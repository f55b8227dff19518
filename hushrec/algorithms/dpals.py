"""DPALS: private alternating least squares as published, for whole users.

Chien et al. 2021, Algorithm 1, with its printed constants mended (docs/errata.md) and the heuristics of its
section 5 as options. For a model to use, take :class:`~hushrec.algorithms.PrivateALS`.

User side (local): a ridge regression of her own ratings on the released item factors, and her bounded
contribution to every item's normal equations (:mod:`hushrec.algorithms.contributions`). Server side
(global): their solution. Sensitivities: docs/proofs/dpals.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svd

from hushrec.algorithms.als import (
    SweepSettings,
    csr,
    half_sweep,
    initial_items,
    solve_statistics,
    user_means,
)
from hushrec.algorithms.baselines import item_weights, level, level_aggregate, level_release, level_scale
from hushrec.algorithms.contributions import (
    Contributions,
    adaptive_weights,
    bounded,
    fitted_users,
    fixed_gramian,
    less_user_means,
    usable_weights,
)
from hushrec.checks import check_choice, check_clips, check_numbers, check_truths, check_within
from hushrec.data import Domain, Ratings
from hushrec.data.sampling import sample_per_user
from hushrec.errors import InputError
from hushrec.estimator import Estimator, UserState
from hushrec.gate import Gate
from hushrec.kernels.packed import frobenius_scale
from hushrec.privacy import Budget, Plan, Release

Array = NDArray[Any]

#: Part of an iteration's budget for the Gramian of the unobserved cells.
_UNOBSERVED_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class DPALS(Estimator):
    """Algorithm 1 of Chien et al. 2021 with its constants mended; the defaults add nothing to it.

    Parameters
    ----------
    rank, iterations : int
        Number of factors, up to 900, and of releases of the item factors (r and T of the paper), >= 1.
    regularization : float
        Ridge on the factors of a user and of an item (lambda), > 0.
    clipping : {"rating", "user"}
        Clip every rating less its level (line 1), or the norm of a user's whole contribution to the
        right-hand sides.
    clip : float or None
        Bound of that clip in units of half the rating range (Gamma_M), or of its square with
        ``clipping="user"``, > 0. None, no clip, only without privacy.
    user_norm : float or None
        Bound on the norm of a user's factors (Gamma_u), in units of half the rating range, > 0. None only
        without privacy.
    sampling : {"uniform", "tail", "weights"}
        What enters the statistics: ``max_ratings_per_user`` of a user's ratings, at random or the rarest
        items first (section 5.1); or all of them, weighted to norm 1 a user (adaptive weights, Krichene et
        al. 2023).
    max_ratings_per_user : int
        Ratings of a user in the statistics for "uniform" and "tail" (k), >= 1.
    weight_exponent : float
        Adaptive weights are the released item weight to this power, in [-1, 0].
    item_fraction : float
        Share of the catalogue, most frequent first by released weights, that gets factors, in (0, 1].
    center : {"middle", "level", "user"}
        Subtract the middle of the declared range, the released mean of the users' means (section 5.2), or
        each user's own mean, which is free. Likes are not centred.
    orthonormalize : bool
        Line 13.
    unobserved_weight : float
        Weight of every cell's pull to 0 for likes (section 5.2), >= 0.
    level_share, weights_share, factor_share : float
        Parts of the budget (of mu squared) for the level, the item weights and all iterations, in [0, 1];
        what is not released gets none, and the rest is scaled to the whole.
    gramian_share : float
        Part of an iteration's budget for its Gramians, in (0, 1).

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: what is released is (epsilon, delta)-DP; a user's factors
    are computed from it and her own ratings. Every release is Gaussian and mu squared adds up to the
    budget's; :meth:`plan` lists them with their sensitivities, docs/proofs/dpals.md proves these.
    """

    name: ClassVar[str] = "dpals"

    rank: int = 2
    iterations: int = 3
    regularization: float = 20.0
    clipping: str = "rating"
    clip: float | None = 0.6
    user_norm: float | None = 0.1
    sampling: str = "uniform"
    max_ratings_per_user: int = 50
    weight_exponent: float = -0.25
    item_fraction: float = 1.0
    center: str = "middle"
    orthonormalize: bool = False
    unobserved_weight: float = 0.0
    level_share: float = 0.01
    weights_share: float = 0.05
    factor_share: float = 0.35
    gramian_share: float = 0.5

    def __post_init__(self) -> None:
        check_numbers(
            rank=(self.rank, int, 1, 900),
            iterations=(self.iterations, int, 1, None),
            regularization=(self.regularization, float, 0, None),
            max_ratings_per_user=(self.max_ratings_per_user, int, 1, None),
            item_fraction=(self.item_fraction, float, 0, 1),
            unobserved_weight=(self.unobserved_weight, float, 0, None),
            level_share=(self.level_share, float, 0, 1),
            weights_share=(self.weights_share, float, 0, 1),
            factor_share=(self.factor_share, float, 0, 1),
            gramian_share=(self.gramian_share, float, 0, 1),
        )
        check_within(weight_exponent=(self.weight_exponent, -1, 0))
        check_clips(clip=self.clip, user_norm=self.user_norm)
        check_truths(orthonormalize=self.orthonormalize)
        check_choice(
            clipping=(self.clipping, ("rating", "user")),
            sampling=(self.sampling, ("uniform", "tail", "weights")),
            center=(self.center, ("middle", "level", "user")),
        )

    @property
    def scores(self) -> str:  # type: ignore[override]
        """Likes where unobserved cells count as dislikes, ratings otherwise."""
        return "likes" if self.unobserved_weight > 0 else "ratings"

    # ------------------------------------------------------------------ plan

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        if math.isfinite(budget.epsilon):
            for name in ("clip", "user_norm"):
                if getattr(self, name) is None:
                    raise InputError(f"{name}=None means no clip, which is not private; pass a bound.")
        parts = self._parts()
        total = math.fsum(parts.values())
        planned = []
        for label, part in parts.items():
            share = fraction * part / total
            if label == "level":
                planned.append(level_release(budget, share))
            else:
                sensitivity = self._sensitivity(label, budget.relation == "replace", domain)
                planned.append(Release(label, budget.share(share), sensitivity, budget.unit, budget.relation))
        return Plan(budget, planned)

    def _parts(self) -> dict[str, float]:
        """Every release's part of the budget, before scaling to 1, in order of release."""
        parts = {}
        if self.center == "level" and self.scores == "ratings":
            parts["level"] = self.level_share
        if (
            self.sampling == "tail"
            or (self.sampling == "weights" and self.weight_exponent != 0)
            or self.item_fraction < 1
        ):
            parts["item weights"] = self.weights_share
        for step in range(1, self.iterations + 1):
            share = self.factor_share / self.iterations
            if self.unobserved_weight:
                parts[f"unobserved gramian {step}"] = share * _UNOBSERVED_SHARE
                share *= 1 - _UNOBSERVED_SHARE
            parts[f"item statistics {step}"] = share
        return parts

    @property
    def _cells(self) -> float:
        """Bound on a user's sum of squared weights over the items she contributes to (k of the paper)."""
        return 1.0 if self.sampling == "weights" else float(self.max_ratings_per_user)

    def _bounds(self, domain: Domain) -> tuple[float, float]:
        """Declared bounds of the clip and of a user's norm, in rating units; infinite where there is none."""
        unit = domain.half_width**2 if self.clipping == "user" else domain.half_width
        clip = math.inf if self.clip is None else unit * self.clip
        return clip, math.inf if self.user_norm is None else self.user_norm * domain.half_width

    def _sensitivity(self, label: str, replace: bool, domain: Domain) -> float:
        """Most that one user moves a release, in the norm of its scale (docs/proofs/dpals.md).

        Under replace, contributions that cannot point away from each other (counts, positive semidefinite
        matrices) move by sqrt(2) times as much as under add-remove.
        """
        if label.startswith("item statistics"):
            return self._statistics_sensitivity(replace)
        positive = math.sqrt(2.0) if replace else 1.0
        if label == "item weights":
            return positive * math.sqrt(self._cells)
        norm = self._bounds(domain)[1]
        return 1.0 if math.isinf(norm) else positive * norm**2

    def _statistics_sensitivity(self, replace: bool) -> float:
        """Sensitivity of Gramians and right-hand sides jointly, in scaled units."""
        gram = self._cells * self._gram_unit**2
        sums = 1.0 if self.clipping == "user" else self._cells
        if not replace:
            return math.sqrt(gram + sums)
        if self.clipping == "user":
            return math.sqrt(2 * gram + 4 * sums)
        cosine = min(1.0, 1 / (2 * self._gram_unit**2))
        return math.sqrt((2 - 2 * cosine**2) * gram + (2 + 2 * cosine) * sums)

    @property
    def _gram_unit(self) -> float:
        """Weight of the Gramians in their release, so that they cost ``gramian_share`` of it."""
        sums = 1.0 if self.clipping == "user" else self._cells
        return math.sqrt(self.gramian_share / (1 - self.gramian_share) * sums / self._cells)

    def _statistics_scale(self, clip: float, user_norm: float) -> Array | None:
        """Units of the statistics: packed Gramian, then right-hand side; None without clips."""
        if math.isinf(clip) or math.isinf(user_norm):
            return None
        gram = frobenius_scale(self.rank) * self._gram_unit / user_norm**2
        bound = clip if self.clipping == "user" else clip * user_norm
        return np.concatenate([gram, np.full(self.rank, 1 / bound)])

    # ------------------------------------------------------------------ training

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        """Algorithm 1; comments give its lines."""
        center = self._level(ratings, gate)
        if self.center == "user":
            ratings = less_user_means(ratings)
        sampled = ratings
        if self.sampling != "weights":
            sampled = sample_per_user(ratings, self.max_ratings_per_user, seed)
        weights, supported = self._item_weights(sampled, gate)
        relative = None
        if self.sampling == "weights":  # powers of two, by which exact sums can be multiplied
            relative = np.exp2(np.round(np.log2(adaptive_weights(weights, self.weight_exponent))))
        frequent = self._frequent(weights)
        local = Contributions(self._rows(ratings, sampled, frequent, weights, seed), center, relative)
        dtype = np.float32 if self.user_norm is None else np.float64  # without bounds nothing is exact
        items = initial_items(ratings.domain.n_items, self.rank, seed, dtype)
        items = self._rounds(ratings, local, np.where(frequent[:, None], items, 0), frequent, gate)
        return {
            "center": np.float64(center),
            "item_bias": items[:, -1].astype(np.float64),
            "item_factors": items[:, :-1].astype(np.float32),
            "supported": supported.astype(np.uint8),
            "regularization": np.float64(self.regularization),
        }

    def _rounds(
        self, ratings: Ratings, local: Contributions, items: Array, frequent: Array, gate: Gate
    ) -> Array:
        """Lines 4 to 13: users, statistics of every item, solutions."""
        from hushrec.kernels.least_squares import project_psd

        size = self.rank * (self.rank + 1) // 2
        clip, user_norm = self._bounds(ratings.domain)
        clips = {"rating_clip": clip} if self.clipping == "rating" else {"user_clip": clip}
        for step in range(1, self.iterations + 1):
            users = fitted_users(ratings, local.center, items, self._ridge)
            users[:, :-1] = bounded(users[:, :-1], user_norm)  # line 16
            pull = None
            if self.unobserved_weight:
                label = f"unobserved gramian {step}"
                exact = fixed_gramian(users[:, :-1], user_norm)
                packed = gate.release(label, exact, scale=frobenius_scale(self.rank))
                pull = self.unobserved_weight * project_psd(packed[None])[0]
            statistics = local.item_statistics(users, self._ridge, user_norm=user_norm, **clips)
            noisy = gate.release_blocks(
                f"item statistics {step}",
                (np.hstack(block) for block in statistics),
                scale=self._statistics_scale(clip, user_norm),
            )
            # lines 10 and 11; the ridge is added after the projection, which it would otherwise undo
            projected = ((project_psd(block[:, :size]), block[:, size:]) for block in noisy)
            solved = solve_statistics(projected, self._ridge, self.rank, pull)
            items = np.where(frequent[:, None], solved, items)
            if self.orthonormalize:  # line 13, as the polar factor
                left, _, right = svd(items[:, :-1], full_matrices=False, lapack_driver="gesvd")
                items[:, :-1] = left @ right
        return items

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: ridge regression of a user's own ratings on the released item factors (equation 1)."""
        items = np.column_stack([arrays["item_factors"], arrays["item_bias"]]).astype(np.float64)
        means, rows = np.zeros(history.n_users), history
        if self.center == "user":
            means, rows = user_means(history), less_user_means(history)
        users = half_sweep(csr(rows.matrix), float(arrays["center"]), items, self._ridge)
        return UserState(offset=users[:, -1] + means, factors=users[:, :-1])

    # ------------------------------------------------------------------ steps

    @property
    def _ridge(self) -> SweepSettings:
        return SweepSettings(
            regularization=self.regularization,
            bias_regularization=None,
            unobserved_weight=self.unobserved_weight,
        )

    def _level(self, ratings: Ratings, gate: Gate) -> float:
        """Level that ratings are taken from."""
        domain = ratings.domain
        if gate.plans("level"):
            noisy = gate.release("level", level_aggregate(ratings), scale=level_scale(domain))
            return level(noisy, domain)[0]
        return 0.0 if self.center == "user" or self.scores == "likes" else domain.midpoint

    def _item_weights(self, sampled: Ratings, gate: Gate) -> tuple[Array, NDArray[np.bool_]]:
        """Released weight of every item, a sum of the users' weights or sampled counts, and its support."""
        n_items = sampled.domain.n_items
        if not gate.plans("item weights"):
            return usable_weights(np.ones(n_items), 0.0)
        if self.sampling == "weights":
            exact = item_weights(sampled)
        else:
            exact = np.bincount(sampled.matrix.indices, minlength=n_items).astype(np.float64)
        return usable_weights(gate.release("item weights", exact), gate.noise_sd("item weights"))

    def _frequent(self, weights: Array) -> NDArray[np.bool_]:
        """Items that get factors: the most frequent ones by released weight (section 5.1)."""
        frequent = np.zeros(len(weights), dtype=bool)
        frequent[np.argsort(-weights, kind="stable")[: math.ceil(self.item_fraction * len(weights))]] = True
        return frequent

    def _rows(
        self, ratings: Ratings, sampled: Ratings, frequent: Array, weights: Array, seed: int
    ) -> Ratings:
        """Rows that enter the statistics: frequent items only, sampled uniformly or from the tail."""
        if self.item_fraction == 1 and self.sampling != "tail":
            return sampled
        rows = ratings.where(frequent[ratings.matrix.indices], drop_empty=False, keyed=True)
        if self.sampling == "weights":
            return rows
        priority = weights if self.sampling == "tail" else None
        return sample_per_user(rows, self.max_ratings_per_user, seed, priority=priority)
