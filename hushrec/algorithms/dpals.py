"""DPALS: alternating least squares under user-level joint differential privacy.

Chien et al. 2021, Algorithm 1, with the printed constants corrected (docs/errata.md), the adaptive weights of
Krichene et al. 2023, and three additions: biases first, one clip for a user's whole contribution, and one
Gramian shared by all items.

User side (local): a ridge regression of her own ratings on the released item factors, and her bounded
contribution to the item sums. Server side (global): the update of the item factors from the noisy sums.
Sensitivities: docs/proofs/dpals.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import svd

from hushrec.algorithms.als import (
    SweepSettings,
    csr,
    gramian,
    half_sweep,
    initial_items,
    solve_statistics,
    statistics,
    user_means,
)
from hushrec.algorithms.base import Estimator, Gate, UserState
from hushrec.algorithms.baselines import (
    clip_factor,
    item_weights,
    level,
    level_aggregate,
    level_release,
    level_scale,
    weight_sums,
    weights_release,
)
from hushrec.algorithms.checks import check_choice, check_numbers
from hushrec.data import Domain, Ratings
from hushrec.data.sampling import sample_per_user
from hushrec.errors import InputError
from hushrec.kernels.packed import frobenius_scale, top_eigenpairs, unpacked
from hushrec.privacy import Budget, Plan, Release

Array = NDArray[Any]

#: Server's model of an item's bias, in units of half the rating range: spread around its regression on the
#: log weight, and sampling variance of a released sum per unit of weight.
_BIAS_PRIOR, _BIAS_SAMPLING = 0.325, 0.19
#: A bias round moves a user's own offset too and meets clipped contributions: the slope of what is released
#: in the biases is this fraction of the released weight.
_BIAS_SLOPE = 0.35
#: Part of a user's mean squared residual that is taken for noise: the rest is what her factors will explain.
_RESIDUAL_SHRINKAGE = 0.8
#: Items up to which a planned model starts from a private item x item matrix.
_LARGEST_SPECTRAL = 4000
#: Part of an iteration's budget for the Gramian of the unobserved cells.
_UNOBSERVED_SHARE = 0.05
#: Released item weights are not taken for smaller than this, nor than their noise.
_SMALLEST_WEIGHT = 1e-2
#: An item is recommended before others only if its released weight is this many times its noise.
_SUPPORT = 5.0


@dataclass(frozen=True, kw_only=True)
class DPALS(Estimator):
    """Private alternating least squares.

    Give ``rank`` and ``iterations`` or let :meth:`planned` choose everything from public quantities.

    Parameters
    ----------
    rank : int
        Number of item factors, >= 0.
    features : bool
        Start the first two factors from what is released already, at no cost: the item's standardised bias
        and log weight. Every user fits her own slopes; the iterations refine both like any factor. Needs
        ``rank >= 2``, ``gramian="shared"`` and at least one bias round.
    iterations : int
        Releases of the item factors, >= 0.
    bias_rounds : int
        Releases of the item biases before the first factors, >= 0.
    regularization : float
        Ridge on a user's factors, > 0.
    bias_regularization : float
        Ridge on a user's offset, in ratings, > 0.
    item_regularization : float
        Ridge on an item's factors (``gramian="item"`` only), > 0.
    factor_prior : float
        Spread of item factors that the server's updates assume (``gramian="shared"`` only), > 0.
    residual_weight : float
        Sampling variance of an item's sums per unit of weight, in units of half the rating range squared,
        >= 0 (``gramian="shared"`` only).
    user_variance : float
        Prior variance of a user's factors in the same units, >= 0 (``gramian="shared"`` only). Above 0 the
        users' ridge becomes the released residual variance over it, and a user counts in the Gramian with
        her uncertainty (an EM step), without which item factors grow until the ridge has no effect.
    gramian : {"shared", "item"}
        One r x r statistic for all items, scaled by their released weights, and updates by residuals; or one
        per item and outright solutions, as Algorithm 1 prints them.
    clipping : {"user", "rating"}
        Clip the norm of a user's whole contribution, or every rating's residual (Algorithm 1, line 1).
    bias_clip, factor_clip : float or None
        Bound of the clip in the first bias round and the first iteration, in units of half the rating range
        (its square for ``factor_clip`` with ``clipping="user"``, which bounds residuals times factors), > 0.
        None, no clip, only without privacy.
    bias_clip_decay, factor_clip_decay : float
        Factor of the bound from one round to the next, in (0, 1].
    user_norm : float or None
        Bound on the norm of a user's factors (Gamma_u), in units of half the rating range, > 0. None only
        without privacy.
    sampling : {"weights", "uniform", "tail"}
        What enters the sums: all ratings, weighted to norm 1 a user (adaptive weights, 2023); or
        ``max_ratings_per_user`` of a user's ratings, at random or the rarest items first (section 5.1).
    max_ratings_per_user : int
        Ratings of a user in the sums for "uniform" and "tail", >= 1.
    weight_exponent : float
        Adaptive weights are the released item weight to this power, in [-1, 0].
    item_fraction : float
        Share of the catalogue, most frequent first by released weights, that gets factors, in (0, 1].
    biases : bool
        False leaves out offsets and biases, as Algorithm 1 has it.
    center : {"level", "middle", "user"}
        Subtract the released mean of the users' means, the middle of the declared range, or each user's own
        mean (with ``biases=False``; free).
    start : {"random", "spectral"}
        First learned factors: random, or the top eigenvectors of a private item x item matrix (Remark 2).
    start_clip : float or None
        Bound on a user's weighted residuals in that matrix, in units of half the rating range, > 0. None
        only without privacy.
    orthonormalize : bool
        Algorithm 1, line 13, with ``gramian="item"``.
    unobserved_weight : float
        Weight of every cell's pull to 0 for likes (section 5.2), >= 0; needs ``gramian="item"`` and
        ``biases=False``.
    level_share, weights_share, residual_share, start_share, bias_share, factor_share : float
        Parts of the budget (of mu squared) for the level, the item weights, the residual variance, the
        spectral start, all bias rounds and all iterations; what is not released gets none, and the rest is
        scaled to the whole.
    gramian_share : float
        Part of an iteration's budget for its Gramian(s), in (0, 1).
    bias_share_growth, factor_share_growth : float
        A round's budget as a multiple of the one before, > 0.
    n_users : int or None
        Declared number of users; None releases it together with the level.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: what is released is (epsilon, delta)-DP; a user's factors
    are computed from it and her own ratings. Every release is Gaussian and mu squared adds up to the
    budget's; :meth:`plan` lists them with their sensitivities, docs/proofs/dpals.md proves these.
    """

    name: ClassVar[str] = "dpals"

    rank: int = 2
    features: bool = True
    iterations: int = 0
    bias_rounds: int = 4
    regularization: float = 30.0
    bias_regularization: float = 8.0
    item_regularization: float = 10.0
    factor_prior: float = 0.6
    residual_weight: float = 0.06
    user_variance: float = 0.005
    gramian: str = "shared"
    clipping: str = "user"
    bias_clip: float | None = 0.35
    factor_clip: float | None = 0.05
    bias_clip_decay: float = 0.85
    factor_clip_decay: float = 0.9
    user_norm: float | None = 0.35
    sampling: str = "weights"
    max_ratings_per_user: int = 50
    weight_exponent: float = -0.25
    item_fraction: float = 1.0
    biases: bool = True
    center: str = "level"
    start: str = "random"
    orthonormalize: bool = False
    unobserved_weight: float = 0.0
    level_share: float = 0.01
    weights_share: float = 0.26
    start_clip: float | None = 0.2
    residual_share: float = 0.005
    start_share: float = 0.1
    bias_share: float = 0.4
    factor_share: float = 0.35
    gramian_share: float = 0.01
    bias_share_growth: float = 1.4
    factor_share_growth: float = 1.3
    n_users: int | None = None

    def __post_init__(self) -> None:
        check_numbers(
            rank=(self.rank, int, 0, None),
            iterations=(self.iterations, int, 0, None),
            bias_rounds=(self.bias_rounds, int, 0, None),
            regularization=(self.regularization, float, 0, None),
            bias_regularization=(self.bias_regularization, float, 0, None),
            item_regularization=(self.item_regularization, float, 0, None),
            factor_prior=(self.factor_prior, float, 0, None),
            residual_weight=(self.residual_weight, float, 0, None),
            user_variance=(self.user_variance, float, 0, None),
            bias_clip_decay=(self.bias_clip_decay, float, 0, 1),
            factor_clip_decay=(self.factor_clip_decay, float, 0, 1),
            max_ratings_per_user=(self.max_ratings_per_user, int, 1, None),
            item_fraction=(self.item_fraction, float, 0, 1),
            unobserved_weight=(self.unobserved_weight, float, 0, None),
            level_share=(self.level_share, float, 0, 1),
            weights_share=(self.weights_share, float, 0, 1),
            residual_share=(self.residual_share, float, 0, 1),
            start_share=(self.start_share, float, 0, 1),
            bias_share=(self.bias_share, float, 0, 1),
            gramian_share=(self.gramian_share, float, 0, 1),
            factor_share=(self.factor_share, float, 0, 1),
            bias_share_growth=(self.bias_share_growth, float, 0, None),
            factor_share_growth=(self.factor_share_growth, float, 0, None),
        )
        if isinstance(self.weight_exponent, bool) or not -1 <= self.weight_exponent <= 0:
            raise InputError(
                f"weight_exponent={self.weight_exponent!r} is out of range; pass one from -1 to 0."
            )
        for name in ("bias_clip", "factor_clip", "start_clip", "user_norm"):
            if getattr(self, name) is not None:
                check_numbers(**{name: (getattr(self, name), float, 0, None)})
        if self.n_users is not None:
            check_numbers(n_users=(self.n_users, int, 1, None))
        check_choice(
            gramian=(self.gramian, ("shared", "item")),
            clipping=(self.clipping, ("user", "rating")),
            sampling=(self.sampling, ("weights", "uniform", "tail")),
            center=(self.center, ("level", "middle", "user")),
            start=(self.start, ("random", "spectral")),
        )
        if self.bias_rounds and not self.biases:
            raise InputError("bias_rounds needs biases; pass bias_rounds=0 with biases=False.")
        if self.features and (self.gramian != "shared" or not self.bias_rounds or self.rank < 2):
            raise InputError(
                "features needs rank >= 2, gramian='shared' and bias_rounds >= 1; pass features=False."
            )
        if self.biases and self.center == "user":
            raise InputError(
                "center='user' is for biases=False; with biases every user has an offset anyway."
            )
        if self.unobserved_weight and (self.biases or self.gramian != "item"):
            raise InputError("unobserved_weight needs gramian='item' and biases=False; likes have no biases.")
        if self.orthonormalize and (self.biases or self.gramian != "item"):
            raise InputError("orthonormalize needs gramian='item' and biases=False.")
        if self.start == "spectral" and (self.gramian != "shared" or self.sampling != "weights"):
            raise InputError("start='spectral' needs gramian='shared' and sampling='weights'.")

    @classmethod
    def as_published(
        cls,
        *,
        rank: int,
        iterations: int,
        max_ratings_per_user: int,
        user_norm: float | None,
        rating_bound: float | None,
        regularization: float,
        **changes: Any,
    ) -> DPALS:
        """Algorithm 1 of Chien et al. 2021 with its constants mended and nothing added.

        Parameters
        ----------
        rank, iterations, max_ratings_per_user, regularization
            r, T, k and lambda of the paper.
        user_norm, rating_bound : float or None
            Gamma_u and Gamma_M in units of half the rating range; None is no clip, only without privacy.
        **changes
            Heuristics of section 5 and other fields, for example ``sampling="tail"``, ``item_fraction=0.2``,
            ``center="user"`` or ``orthonormalize=True``.
        """
        settings: dict[str, Any] = {
            "features": False,
            "bias_rounds": 0,
            "biases": False,
            "gramian": "item",
            "clipping": "rating",
            "sampling": "uniform",
            "weight_exponent": 0.0,
            "center": "middle",
            "gramian_share": 0.5,
            "factor_clip_decay": 1.0,
            "factor_share_growth": 1.0,
        }
        return cls(
            rank=rank,
            iterations=iterations,
            max_ratings_per_user=max_ratings_per_user,
            user_norm=user_norm,
            factor_clip=rating_bound,
            regularization=regularization,
            item_regularization=regularization,
            **(settings | changes),
        )

    @classmethod
    def planned(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> DPALS:
        """Hyper-parameters chosen from public quantities alone (docs/planning.md).

        Parameters
        ----------
        budget : Budget
            The run's budget.
        domain : Domain
            The declared catalogue, rating range and cap per user.
        n_users : int
            Declared, or released by :func:`hushrec.algorithms.baselines.release_user_count`.
        **changes
            Fields to set otherwise.

        Returns
        -------
        DPALS
        """
        check_numbers(n_users=(n_users, int, 1, None))
        signal = min(budget.mu * n_users / domain.n_items, 1e6)
        settings: dict[str, Any] = {"n_users": n_users, "bias_share": 0.73}
        if signal >= 1 and domain.n_items >= 8:
            large = signal >= 10
            spectral = large and domain.n_items <= _LARGEST_SPECTRAL
            rank = min(12 if large else min(8, 2 + int(signal)), max(2, domain.n_items // 8))
            settings |= {
                "rank": rank,
                "iterations": 4,
                "weights_share": 0.15,
                "factor_share": (factor_share := min(0.55, 0.3 + 0.05 * signal)),
                "start_share": (start_share := 0.1 if spectral else 0.0),
                "bias_share": 0.835 - factor_share - start_share,
                "factor_clip": (0.05 if large else 0.025) * math.sqrt(rank),
                "start": "spectral" if spectral else "random",
            }
        return cls(**(settings | changes))

    @property
    def implicit(self) -> bool:  # type: ignore[override]
        """True where the data are likes."""
        return self.unobserved_weight > 0

    @property
    def _learned(self) -> int:
        """Factors that do not start from released features."""
        return self.rank - 2 * self.features

    # ------------------------------------------------------------------ plan

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        if math.isfinite(budget.epsilon):
            self._check_clips()
        parts = self._parts()
        total = math.fsum(parts.values())
        planned = []
        for label, part in parts.items():
            share = fraction * part / total
            if label == "level":
                planned.append(level_release(budget, share))
            elif label == "item weights" and self.sampling == "weights":
                planned.append(weights_release(budget, share))
            else:
                sensitivity = self._sensitivity(label, budget.relation == "replace", domain)
                planned.append(Release(label, budget.share(share), sensitivity, budget.unit, budget.relation))
        return Plan(budget, planned)

    def _check_clips(self) -> None:
        needed = {
            "bias_clip": self.bias_rounds > 0,
            "factor_clip": self.rank > 0 and self.iterations > 0,
            "user_norm": self.rank > 0 and self.iterations > 0,
            "start_clip": self._learned > 0 and self.iterations > 0 and self.start == "spectral",
        }
        for name, wanted in needed.items():
            if wanted and getattr(self, name) is None:
                raise InputError(f"{name}=None means no clip, which is not private; pass a bound.")

    def _parts(self) -> dict[str, float]:
        """Every release's part of the budget, before scaling to 1, in order of release."""
        factors = self.rank > 0 and self.iterations > 0
        parts = {}
        shared = factors and self.gramian == "shared"
        if (self.center == "level" and not self.implicit) or (shared and self.n_users is None):
            parts["level"] = self.level_share
        if (
            self.gramian == "shared"
            or self.bias_rounds > 0
            or self.sampling == "tail"
            or (self.sampling == "weights" and self.weight_exponent != 0)
            or self.item_fraction < 1
        ):
            parts["item weights"] = self.weights_share
        for step, part in enumerate(_geometric(self.bias_rounds, self.bias_share_growth), 1):
            parts[f"item biases {step}"] = self.bias_share * part
        if shared and self.user_variance:
            parts["residual variance"] = self.residual_share
        if factors and self._learned and self.start == "spectral":
            parts["start"] = self.start_share
        for step, part in enumerate(
            _geometric(self.iterations if factors else 0, self.factor_share_growth), 1
        ):
            share = self.factor_share * part
            if self.gramian == "shared":
                parts[f"gramian {step}"] = share * self.gramian_share
                parts[f"item sums {step}"] = share * (1 - self.gramian_share)
                continue
            if self.unobserved_weight:
                parts[f"unobserved gramian {step}"] = share * _UNOBSERVED_SHARE
                share *= 1 - _UNOBSERVED_SHARE
            parts[f"item statistics {step}"] = share
        return parts

    @property
    def _cells(self) -> float:
        """Bound on a user's sum of squared weights over the items she contributes to (k of the paper)."""
        return 1.0 if self.sampling == "weights" else float(self.max_ratings_per_user)

    def _clip(self, label: str, domain: Domain) -> float:
        """Declared bound of a round's clip, in rating units (squared for a joint clip of the factor sums)."""
        step, unit = int(label.split()[-1]) - 1, domain.half_width
        if label.startswith("item biases"):
            return math.inf if self.bias_clip is None else unit * self.bias_clip * self.bias_clip_decay**step
        unit = unit**2 if self.clipping == "user" else unit
        return (
            math.inf if self.factor_clip is None else unit * self.factor_clip * self.factor_clip_decay**step
        )

    def _user_bound(self, domain: Domain) -> float:
        """Declared bound on the norm of a user's factors, in rating units."""
        return math.inf if self.user_norm is None else self.user_norm * domain.half_width

    def _sensitivity(self, label: str, replace: bool, domain: Domain) -> float:
        """Most that one user moves a release, in the norm of its scale (docs/proofs/dpals.md).

        Under replace, contributions that cannot point away from each other (counts, positive semidefinite
        matrices) move by sqrt(2) times as much as under add-remove, all others by twice as much.
        """
        positive, signed = (math.sqrt(2.0), 2.0) if replace else (1.0, 1.0)
        if label == "item weights":
            return positive * math.sqrt(self._cells)
        if label == "residual variance":
            return domain.half_width**2
        if label == "start":
            return positive * ((self.start_clip or 1.0) * domain.half_width) ** 2
        if label.startswith("item statistics"):
            return self._statistics_sensitivity(replace)
        bound, norm = self._clip(label, domain), 1.0
        if not label.startswith("item biases"):
            norm = self._user_bound(domain)
        if math.isinf(bound) or math.isinf(norm):
            return 1.0  # no clip, and no noise either: the budget is infinite
        if label.startswith("gramian") and self.user_variance:  # the users' uncertainty beside it
            return math.sqrt(positive**2 + 1) * norm**2
        if label.startswith(("gramian", "unobserved gramian")):
            return positive * norm**2
        return signed * (bound if self.clipping == "user" else bound * norm * math.sqrt(self._cells))

    def _statistics_sensitivity(self, replace: bool) -> float:
        """Sensitivity of an item-wise release, Gramians and right-hand sides jointly, in scaled units."""
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
        """Weight of the Gramians in an item-wise release, so that they cost ``gramian_share`` of it."""
        sums = 1.0 if self.clipping == "user" else self._cells
        return math.sqrt(self.gramian_share / (1 - self.gramian_share) * sums / self._cells)

    def _statistics_scale(self, clip: float, row_norm: float) -> Array | None:
        """Units of an item-wise release: packed Gramian, then right-hand side; None without clips."""
        if math.isinf(clip) or math.isinf(row_norm):
            return None
        width = self.rank + self.biases
        gram = frobenius_scale(width) * self._gram_unit / row_norm**2
        bound = clip if self.clipping == "user" else clip * row_norm
        return np.concatenate([gram, np.full(width, 1 / bound)])

    # ------------------------------------------------------------------ training

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        """Algorithm 1: bias rounds, then iterations, each ending in a release."""
        center, n_users = self._level(ratings, gate)
        if self.center == "user":
            ratings = _less_user_means(ratings)
        sampled = ratings
        if self.sampling != "weights":
            sampled = sample_per_user(ratings, self.max_ratings_per_user, seed)
        weights = self._item_weights(sampled, gate)
        noise_sd = gate.noise_sd("item weights") if gate.plans("item weights") else 0.0
        supported = weights > _SUPPORT * noise_sd
        weights = np.maximum(weights, max(noise_sd, _SMALLEST_WEIGHT))
        relative, slopes = self._relative(weights)

        dtype = np.float64 if gate.private else np.float32  # what is released is summed in float64
        items = np.zeros((ratings.domain.n_items, 1), dtype=dtype)
        local = _LocalSums(sampled, relative, center, self.clipping)
        items = self._bias_rounds(ratings, local, items, weights, slopes, gate)

        frequent = self._frequent(weights)
        local = _LocalSums(
            self._frequent_rows(ratings, sampled, frequent, weights, seed), relative, center, self.clipping
        )
        if self.features:
            columns = [
                _standardised(items[:, 0], weights),
                _standardised(np.log(weights), weights),
                items[:, 0],
            ]
            items = np.column_stack(columns).astype(dtype)
        ridge = self._user_ridge
        if self.rank and self.iterations:
            if gate.plans("residual variance"):
                ridge = self._adapted_ridge(ratings, local, items, n_users, gate)
            items = self._start(ratings, local, items, ridge, frequent, gate, seed)
            if self.gramian == "shared":
                items = self._shared_rounds(ratings, local, items, ridge, slopes * frequent, n_users, gate)
            else:
                items = self._item_rounds(ratings, local, items, frequent, gate)
        return {
            "center": np.float64(center),
            "item_bias": items[:, -1].astype(np.float64),
            "item_factors": items[:, :-1].astype(np.float32),
            "supported": supported.astype(np.uint8),
            "regularization": np.float64(ridge.regularization),
        }

    def _bias_rounds(
        self, ratings: Ratings, local: _LocalSums, items: Array, weights: Array, slopes: Array, gate: Gate
    ) -> Array:
        """Rounds of rank 0: a user's only factor is the constant."""
        half_width = ratings.domain.half_width
        slope = _BIAS_SLOPE * slopes
        variance = np.full(len(items), (_BIAS_PRIOR * half_width) ** 2)
        popularity = np.column_stack([np.ones(len(items)), _standardised(np.log(weights), weights)])
        for step in range(1, self.bias_rounds + 1):
            label = f"item biases {step}"
            users = self._users(ratings, local.center, items, self._user_ridge)
            constant = np.hstack([np.ones_like(users), users])
            clip = self._clip(label, ratings.domain)
            sums, _ = local.sums(np.hstack([np.zeros_like(items), items]), constant, math.inf, clip)
            noisy = gate.release(label, sums)[:, 0]
            noise_variance = gate.noise_sd(label) ** 2 + _BIAS_SAMPLING * half_width**2 * slope
            common = _regression(noisy, slope[:, None] * popularity, noise_variance + slope**2 * variance)
            change = popularity @ common  # rare items are closer to other rare items than to the mean
            gain = _gain(slope, variance, noise_variance)
            items = items + (change + gain * (noisy - slope * change))[:, None].astype(items.dtype)
            variance *= 1 - gain * slope
        return items

    def _adapted_ridge(
        self, ratings: Ratings, local: _LocalSums, items: Array, n_users: float, gate: Gate
    ) -> SweepSettings:
        """Users' ridge for the released residual variance: one vote a user, her mean squared residual."""
        square = ratings.domain.half_width**2
        users = self._users(ratings, local.center, items, self._user_ridge)
        votes = np.minimum(local.mean_squares(items, users), square)
        noisy = gate.release("residual variance", np.array([votes.sum()]))
        variance = _RESIDUAL_SHRINKAGE * float(np.clip(noisy[0] / n_users, square / 400, square))
        return replace(self._user_ridge, regularization=variance / (self.user_variance * square))

    def _shared_rounds(
        self,
        ratings: Ratings,
        local: _LocalSums,
        items: Array,
        ridge: SweepSettings,
        slopes: Array,
        n_users: float,
        gate: Gate,
    ) -> Array:
        """Iterations with one Gramian for all items and updates by residuals."""
        square = ratings.domain.half_width**2
        bound = self._user_bound(ratings.domain)
        for step in range(1, self.iterations + 1):
            users = self._users(ratings, local.center, items, ridge)
            label, sums_label = f"gramian {step}", f"item sums {step}"
            sums, gram = local.sums(items, users, bound, self._clip(sums_label, ratings.domain))
            scale = frobenius_scale(self.rank)
            if self.user_variance:
                shares = local.uncertainty(items, slopes, ridge.regularization)
                gram = np.append(gram, shares.sum())
                scale = np.append(scale, 1.0 if math.isinf(bound) else bound**2)
            gram = gate.release(label, gram, scale=scale)
            noisy = gate.release(sums_label, sums)
            variance = 0.0
            if self.user_variance:
                variance = self.user_variance * square * float(np.clip(gram[-1] / n_users, 0.0, 1.0))
                gram = gram[:-1]
            values, vectors = np.linalg.eigh(unpacked(gram))
            values = np.maximum(values, gate.noise_sd(label)) / n_users + variance
            noisy = noisy - variance * slopes[:, None] * items[:, :-1]
            if step == 1 and self.start == "random":  # the learned columns were a guess: solve outright
                guess = items[:, :-1] * (np.arange(self.rank) >= 2 * self.features)
                noisy = noisy + slopes[:, None] * ((guess @ vectors) * values) @ vectors.T
                items[:, :-1] -= guess
            slope = slopes[:, None] * values  # of the sums in the factors, along the Gramian's eigenvectors
            noise_variance = gate.noise_sd(sums_label) ** 2 + self.residual_weight * square * slope
            gain = _gain(slope, self.factor_prior**2, noise_variance)
            items[:, :-1] += (gain * (noisy @ vectors)) @ vectors.T
        return items

    def _item_rounds(
        self, ratings: Ratings, local: _LocalSums, items: Array, frequent: Array, gate: Gate
    ) -> Array:
        """Iterations with one Gramian an item and outright solutions: Algorithm 1, lines 7 to 13."""
        from hushrec.kernels.least_squares import project_psd

        ridge = replace(self._user_ridge, regularization=self.item_regularization)
        size = (self.rank + self.biases) * (self.rank + self.biases + 1) // 2
        bound = self._user_bound(ratings.domain)
        row_norm = math.hypot(bound, 1.0) if self.biases else bound  # beside the constant column
        for step in range(1, self.iterations + 1):
            users = self._users(ratings, local.center, items, self._user_ridge)
            if math.isfinite(bound):  # line 16
                users[:, :-1] *= clip_factor(_norms(users[:, :-1]), bound)[:, None]
            pull = None
            if self.unobserved_weight:
                label = f"unobserved gramian {step}"
                packed = gate.release(label, gramian(users[:, :-1]), scale=frobenius_scale(self.rank))
                pull = self.unobserved_weight * project_psd(packed[None])[0]
            label = f"item statistics {step}"
            clip = self._clip(label, ratings.domain)
            blocks = (np.hstack(block) for block in local.statistics(items, users, ridge, clip, row_norm))
            noisy = gate.release_blocks(label, blocks, scale=self._statistics_scale(clip, row_norm))
            # lines 10 and 11; the ridge is added after the projection, which it would otherwise undo
            projected = ((project_psd(block[:, :size]), block[:, size:]) for block in noisy)
            solved = solve_statistics(projected, ridge, self.rank, pull)
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
            means, rows = user_means(history), _less_user_means(history)
        ridge = replace(self._user_ridge, regularization=float(arrays["regularization"]))
        users = half_sweep(csr(rows.matrix), float(arrays["center"]), items, ridge)
        return UserState(offset=users[:, -1] + means, factors=users[:, :-1])

    # ------------------------------------------------------------------ steps

    @property
    def _user_ridge(self) -> SweepSettings:
        return SweepSettings(
            regularization=self.regularization,
            bias_regularization=self.bias_regularization if self.biases else None,
            unobserved_weight=self.unobserved_weight,
        )

    def _users(self, ratings: Ratings, center: float, items: Array, ridge: SweepSettings) -> Array:
        """Local: every user's factors and offset, in float32 (what leaves her is clipped in float64)."""
        solved = half_sweep(csr(ratings.matrix), center, items.astype(np.float32), ridge).astype(items.dtype)
        solved[~np.isfinite(solved).all(axis=1)] = 0.0  # repaired inside the user: no clip holds a NaN
        return solved

    def _level(self, ratings: Ratings, gate: Gate) -> tuple[float, float]:
        """Level that ratings are taken from, and number of users: released, declared, or not needed."""
        domain = ratings.domain
        center = 0.0 if self.center == "user" or self.implicit else domain.midpoint
        n_users = 1.0
        if gate.plans("level"):
            noisy = gate.release("level", level_aggregate(ratings), scale=level_scale(domain))
            released, n_users = level(noisy, domain)
            center = released if self.center == "level" and not self.implicit else center
        return center, n_users if self.n_users is None else float(self.n_users)

    def _item_weights(self, sampled: Ratings, gate: Gate) -> Array:
        """Released weight of every item: sum of the users' weights, or sampled counts."""
        n_items = sampled.domain.n_items
        if not gate.plans("item weights"):
            return np.ones(n_items)
        if self.sampling == "weights":
            exact = item_weights(sampled)
        else:
            exact = np.bincount(sampled.matrix.indices, minlength=n_items).astype(np.float64)
        return gate.release("item weights", exact)

    def _relative(self, weights: Array) -> tuple[Array | None, Array]:
        """Adaptive weights w_j of the items (2023 sequel), and the item weights when cells weigh that much.

        The second is an estimate from what is released: the new sum itself would be a new release.
        """
        if self.sampling != "weights":
            return None, weights
        relative = (weights / weights.max()) ** self.weight_exponent
        return relative, weights * relative / math.sqrt((weights * relative**2).sum() / weights.sum())

    def _frequent(self, weights: Array) -> NDArray[np.bool_]:
        """Items that get factors: the most frequent ones by released weight (section 5.1)."""
        frequent = np.zeros(len(weights), dtype=bool)
        frequent[np.argsort(-weights, kind="stable")[: math.ceil(self.item_fraction * len(weights))]] = True
        return frequent

    def _frequent_rows(
        self, ratings: Ratings, sampled: Ratings, frequent: Array, weights: Array, seed: int
    ) -> Ratings:
        """Rows that enter the factor sums: frequent items only, sampled uniformly or from the tail."""
        if self.item_fraction == 1 and self.sampling != "tail":
            return sampled
        rows = ratings.where(frequent[ratings.matrix.indices], drop_empty=False)
        if self.sampling == "weights":
            return rows
        priority = weights if self.sampling == "tail" else None
        return sample_per_user(rows, self.max_ratings_per_user, seed, priority=priority)

    def _start(
        self,
        ratings: Ratings,
        local: _LocalSums,
        items: Array,
        ridge: SweepSettings,
        frequent: Array,
        gate: Gate,
        seed: int,
    ) -> Array:
        """First learned factors, between the features and the biases: random, or spectral (Remark 2)."""
        n_items = len(items)
        if self._learned and self.start == "spectral":
            users = self._users(ratings, local.center, items, ridge)
            clip = math.inf if self.start_clip is None else self.start_clip * ratings.domain.half_width
            packed = local.outer_products(items, users, clip)
            matrix = unpacked(gate.release("start", packed, scale=frobenius_scale(n_items)))
            np.fill_diagonal(matrix, 0.0)  # a diagonal entry is a sum of squares, noise included
            learned = top_eigenpairs(matrix, self._learned)[1] * math.sqrt(n_items) * self.factor_prior
        else:
            learned = initial_items(n_items, self._learned, seed, items.dtype)[:, :-1]
        learned = np.where(frequent[:, None], learned, 0)
        return np.hstack([items[:, :-1], learned, items[:, -1:]]).astype(items.dtype)


class _LocalSums:
    """User side: bounded contributions of the users, summed over them; privileged until released.

    A cell weighs ``a_i w_j``: ``w_j`` from released item weights and ``a_i`` such that the squares of a
    user's weights add up to 1; or 1, where her rows are at most k sampled ones.
    """

    def __init__(self, rows: Ratings, item_weight: Array | None, center: float, clipping: str) -> None:
        self.rows, self.center, self.clipping = rows, center, clipping
        counts = np.diff(rows.matrix.indptr)
        self.item_weight = np.ones(rows.domain.n_items) if item_weight is None else item_weight
        self.user_weight = (counts > 0).astype(np.float64)
        self.normalised = item_weight is not None
        if item_weight is not None:
            squares = weight_sums(rows.matrix, item_weight**2)
            self.user_weight[counts > 0] = 1 / np.sqrt(squares[counts > 0])

    def sums(self, items: Array, users: Array, user_norm: float, clip: float) -> tuple[Array, Array]:
        """Every item's sum of weighted, clipped residuals times user factors, and the packed shared Gramian.

        With the joint clip a user's contribution to the first, one vector over all items, has norm at most
        ``clip``; with the clip per rating it is ``clip * user_norm`` times her weights. In both cases she
        adds a matrix of Frobenius norm at most ``user_norm ** 2`` to the second.
        """
        from hushrec.kernels.residuals import residual_norms, residual_sums

        factors, offsets = users[:, :-1].astype(np.float64), users[:, -1]
        within = np.ones(len(users)) if math.isinf(user_norm) else clip_factor(_norms(factors), user_norm)
        levels = {"row_offset": items[:, -1] + self.center, "col_offset": offsets}
        if self.clipping == "rating":
            factors, shrink = factors * within[:, None], np.ones(len(users))
        else:
            shrink = within**2
            if math.isfinite(clip):
                norms = self.user_weight * residual_norms(
                    *csr(self.rows.matrix),
                    factors,
                    items[:, :-1],
                    row_offset=levels["col_offset"],
                    col_offset=levels["row_offset"],
                    col_weight=self.item_weight,
                )
                shrink = np.minimum(shrink, clip_factor(norms * _norms(factors), clip))
        sums = residual_sums(
            *csr(self.rows.transposed),
            items[:, :-1],
            factors,
            **levels,
            row_weight=self.item_weight,
            col_weight=self.user_weight * shrink,
            clip=clip if self.clipping == "rating" else math.inf,
        )
        present = shrink * (self.user_weight > 0)
        return sums, gramian(factors, present)

    def statistics(
        self, items: Array, users: Array, settings: SweepSettings, clip: float, row_norm: float
    ) -> Iterator[tuple[Array, Array]]:
        """Normal equations of every item, block by block (Algorithm 1, lines 10 and 11, without noise)."""
        from hushrec.kernels.residuals import residual_norms

        shrink = np.ones(self.rows.n_users)
        if math.isfinite(clip) and self.clipping == "user":
            zeros = np.zeros((len(users), 1)), np.zeros((len(items), 1))
            target_norms = residual_norms(
                *csr(self.rows.matrix),
                *zeros,
                row_offset=users[:, -1] + self.center,
                col_weight=self.item_weight,
            )
            shrink = clip_factor(self.user_weight * target_norms * row_norm, clip)
        weighted = self.normalised or math.isfinite(clip)
        return statistics(
            csr(self.rows.transposed),
            self.center,
            users,
            settings,
            row_weight=self.item_weight if weighted else None,
            col_weight=self.user_weight * shrink if weighted else None,
            clip=clip if self.clipping == "rating" else math.inf,
        )

    def outer_products(self, items: Array, users: Array, clip: float) -> Array:
        """Packed item x item sum of outer products of the users' weighted, clipped residual rows."""
        matrix = self.rows.matrix
        cells, residual = self._residuals(items, users)
        residual = residual * self.item_weight[matrix.indices] * self.user_weight[cells]
        if math.isfinite(clip):
            squares = np.bincount(cells, residual**2, minlength=self.rows.n_users)
            residual *= clip_factor(np.sqrt(squares), clip)[cells]
        clipped = sp.csr_array((residual, matrix.indices, matrix.indptr), shape=matrix.shape)
        return (clipped.T @ clipped).toarray()[np.tril_indices(len(items))]

    def mean_squares(self, items: Array, users: Array) -> Array:
        """Every user's mean squared residual, shape (n_users,)."""
        from hushrec.kernels.residuals import residual_norms

        matrix = self.rows.matrix
        pair = users[:, :-1], items[:, :-1]
        if items.shape[1] == 1:
            pair = np.zeros_like(users), np.zeros_like(items)
        level = items[:, -1] + self.center
        norms = residual_norms(*csr(matrix), *pair, row_offset=users[:, -1], col_offset=level)
        return norms**2 / np.maximum(np.diff(matrix.indptr), 1)

    def uncertainty(self, items: Array, weights: Array, regularization: float) -> Array:
        """Every user's posterior over prior variance, mean over the factors; in [0, 1], shape (n_users,).

        That of a user with as many ratings as she has, of items as they are rated by all: her own normal
        equations would say it more exactly, and cost as much as a sweep.
        """
        factors = items[:, :-1].astype(np.float64)
        typical = np.linalg.eigvalsh((factors * (weights / weights.sum())[:, None]).T @ factors)
        counts, places = np.unique(np.diff(self.rows.matrix.indptr), return_inverse=True)
        ridge = regularization + counts[:, None] * np.maximum(typical, 0.0)
        return np.where(counts > 0, (regularization / ridge).mean(axis=1), 0.0)[places]

    def _residuals(self, items: Array, users: Array) -> tuple[Array, Array]:
        """User of each cell, and what the model leaves of its rating."""
        from hushrec.kernels.residuals import predict_pairs

        matrix = self.rows.matrix
        cells = np.repeat(np.arange(self.rows.n_users), np.diff(matrix.indptr))
        residual = matrix.data - self.center - items[matrix.indices, -1] - users[cells, -1]
        if items.shape[1] > 1:
            residual = residual - predict_pairs(cells, matrix.indices, users[:, :-1], items[:, :-1])
        return cells, residual


def _gain(slope: Array, variance: Array | float, noise_variance: Array) -> Array:
    """Wiener gain: expected change per unit of what is measured as ``slope * change + noise``."""
    return np.asarray(variance * slope / np.maximum(slope**2 * variance + noise_variance, 1e-300))


def _regression(target: Array, design: Array, variance: Array) -> Array:
    """Weighted least squares coefficients, with a trace of a ridge."""
    weighted = design / np.maximum(variance, 1e-300)[:, None]
    return np.linalg.solve(design.T @ weighted + 1e-6 * np.eye(design.shape[1]), weighted.T @ target)


def _less_user_means(ratings: Ratings) -> Ratings:
    """Every user's ratings less their mean: local, hence free (DPALS section 5.2)."""
    matrix = ratings.matrix.copy()
    matrix.data -= np.repeat(user_means(ratings), np.diff(matrix.indptr)).astype(matrix.data.dtype)
    return replace(ratings, matrix=matrix)


def _geometric(count: int, growth: float) -> list[float]:
    """Parts that grow by a factor and add up to 1."""
    parts = [growth**step for step in range(count)]
    return [part / sum(parts) for part in parts]


def _standardised(values: Array, weights: Array) -> Array:
    """Values with weighted mean 0 and variance 1, cut at 4."""
    centred = values - np.average(values, weights=weights)
    spread = math.sqrt(np.average(centred**2, weights=weights))
    return np.clip(centred / max(spread, 1e-12), -4.0, 4.0)


def _norms(factors: Array) -> Array:
    return np.sqrt(np.einsum("ij,ij->i", factors, factors, dtype=np.float64))
