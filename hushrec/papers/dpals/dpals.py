"""DPALS: private alternating least squares as published, for whole users.

Chien et al. 2021, Algorithm 1, its printed constants corrected (docs/papers/errata.md), with the heuristics
of its section 5. Sensitivities: docs/proofs/dpals.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svd

from hushrec.checks import Clip, Count, NotNegative, Part, Positive, Settings, Share
from hushrec.data import Domain, Ratings
from hushrec.data.sampling import sample_per_user
from hushrec.errors import InputError
from hushrec.kernels.arrays import BiasedFactors
from hushrec.kernels.fixed_point import FACTOR_BITS, spacing
from hushrec.kernels.packed import frobenius_scale
from hushrec.kernels.residuals import residual_norms
from hushrec.kernels.sweeps import SweepSettings, csr, initial_items, solve_statistics, statistics
from hushrec.models.private_als.users import FittedUsers
from hushrec.privacy import Bound, Bounded, Budget, Plan, positive
from hushrec.serving.scoring import UserState
from hushrec.training.estimator import Estimator
from hushrec.training.gate import Gate
from hushrec.training.posterior import adaptive_weights, level, usable_weights
from hushrec.training.trainable import Round, plan_of
from hushrec.training.users import (
    LEVEL_BOUND,
    clip_factor,
    clipped_rows,
    fixed_gramian,
    less_user_means,
    ridge_on_items,
    ridge_parts,
    user_means,
)
from hushrec.types import Array

#: Fraction of an iteration's budget for the Gramian of the unobserved cells. No study chose it.
_UNOBSERVED_SHARE = 0.05
#: Entries of noisy Gramians that are projected at once (32 MB).
_ENTRIES_AT_ONCE = 1 << 22


@dataclass(frozen=True, kw_only=True)
class DPALS(Estimator["SampledUsers"]):
    """DPALS (Chien et al. 2021), constants corrected.

    Parameters
    ----------
    rank, iterations : int
        Number of factors, up to 900, and of releases of the item factors (r and T of the paper), >= 1.
    regularization : float
        Ridge on the factors of a user and of an item (lambda), > 0.
    clipping : {"rating", "user"}
        Clip each rating less its level (line 1), or the norm of a user's contribution to the right-hand
        sides.
    clip : float or None
        Bound of that clip in units of half the rating range (Gamma_M), or of its square with
        ``clipping="user"``, > 0. May be None without privacy.
    user_norm : float or None
        Bound on the norm of a user's factors (Gamma_u), in units of half the rating range, > 0. May be
        None without privacy.
    sampling : {"uniform", "tail", "weights"}
        Input of the statistics: ``max_ratings_per_user`` of a user's ratings, at random or the rarest items
        first (section 5.1); or all, weighted to norm 1 per user (Krichene et al. 2023).
    max_ratings_per_user : int
        Ratings of a user in the statistics for "uniform" and "tail" (k), >= 1.
    tuning : DPALS.Tuning

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: the releases are (epsilon, delta)-DP. A user's factors are
    computed from them and the user's own ratings. Every release is Gaussian and mu squared adds up to the
    budget's; :meth:`plan` lists them with their sensitivities, docs/proofs/dpals.md proves these.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> estimator = hushrec.papers.DPALS(rank=2, iterations=2)
    >>> model = estimator.fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> len(model.recommend({ratings.domain.items[0]: 5}, n=3))
    3
    """

    name: ClassVar[str] = "dpals"

    @dataclass(frozen=True, kw_only=True)
    class Tuning(Settings):
        """The heuristics of section 5, off by default, and fractions of the budget, which no study chose.

        docs/understand/frontier.md has the best ones for some data sets.

        Parameters
        ----------
        weight_exponent : float
            Adaptive weights are the released item weight to this power, in [-1, 0].
        item_fraction : float
            Fraction of the catalogue, most frequent first by released weights, that gets factors, in (0, 1].
        center : {"middle", "level", "user"}
            Subtract the middle of the declared range, the released mean of the users' means (section 5.2), or
            each user's mean. Likes are not centred.
        orthonormalize : bool
            Line 13.
        unobserved_weight : float
            Weight of every cell's pull to 0 for likes (section 5.2), >= 0.
        level_share, weights_share, factor_share : float
            Fractions of the budget (of mu squared) for the level, the item weights and all iterations, in [0,
            1]. A value that is not released gets none, and the others are scaled up.
        gramian_share : float
            Fraction of an iteration's budget for its Gramians, in (0, 1).
        """

        weight_exponent: Annotated[float, "[-1, 0]"] = -0.25
        item_fraction: Annotated[float, "(0, 1]"] = 1.0
        center: Literal["middle", "level", "user"] = "middle"
        orthonormalize: bool = False
        unobserved_weight: NotNegative = 0.0
        level_share: Share = 0.01
        weights_share: Share = 0.05
        factor_share: Share = 0.35
        gramian_share: Part = 0.5

    rank: Annotated[int, "[1, 900]"] = 2
    iterations: Count = 3
    regularization: Positive = 20.0
    clipping: Literal["rating", "user"] = "rating"
    clip: Clip | None = 0.6
    user_norm: Clip | None = 0.1
    sampling: Literal["uniform", "tail", "weights"] = "uniform"
    max_ratings_per_user: Count = 50
    tuning: Tuning = Tuning()

    @property
    def scores(self) -> str:  # type: ignore[override]
        """Likes where unobserved cells count as dislikes, ratings otherwise."""
        return "likes" if self.tuning.unobserved_weight > 0 else "ratings"

    # ------------------------------------------------------------------ plan

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        if math.isfinite(budget.epsilon):
            for name in ("clip", "user_norm"):
                if getattr(self, name) is None:
                    raise InputError(f"{name}=None means no clip, which is not private; pass a bound.")
        rounds = []
        if self.tuning.center == "level" and self.scores == "ratings":
            rounds.append(Round("level", self.tuning.level_share, LEVEL_BOUND))
        weighted = self.sampling == "weights" and self.tuning.weight_exponent != 0
        if self.sampling == "tail" or weighted or self.tuning.item_fraction < 1:
            rounds.append(Round("item weights", self.tuning.weights_share, positive(math.sqrt(self._cells))))
        for step in range(1, self.iterations + 1):
            share = self.tuning.factor_share / self.iterations
            if self.tuning.unobserved_weight:
                gramian = positive(self._bounds(domain)[1] ** 2)
                rounds.append(Round(f"unobserved gramian {step}", share * _UNOBSERVED_SHARE, gramian))
                share *= 1 - _UNOBSERVED_SHARE
            rounds.append(Round(f"item statistics {step}", share, self.statistics_bound))
        return plan_of(rounds, budget, fraction)

    @property
    def _cells(self) -> float:
        """Bound on a user's sum of squared weights in the statistics (k of the paper)."""
        return 1.0 if self.sampling == "weights" else float(self.max_ratings_per_user)

    def _bounds(self, domain: Domain) -> tuple[float, float]:
        """Return the clip and the bound of a user's norm, in rating units; infinite for no bound."""
        unit = domain.half_width**2 if self.clipping == "user" else domain.half_width
        clip = math.inf if self.clip is None else unit * self.clip
        return clip, math.inf if self.user_norm is None else self.user_norm * domain.half_width

    @property
    def statistics_bound(self) -> Bound:
        """Most that a user moves Gramians and right-hand sides together, in scaled units."""
        gram = self._cells * self.gram_unit**2
        sums = 1.0 if self.clipping == "user" else self._cells
        if self.clipping == "user":
            return Bound(math.sqrt(gram + sums), math.sqrt(2 * gram + 4 * sums))
        cosine = min(1.0, 1 / (2 * self.gram_unit**2))
        return Bound(math.sqrt(gram + sums), math.sqrt((2 - 2 * cosine**2) * gram + (2 + 2 * cosine) * sums))

    @property
    def gram_unit(self) -> float:
        """Weight of the Gramians in their release."""
        sums = 1.0 if self.clipping == "user" else self._cells
        return math.sqrt(self.tuning.gramian_share / (1 - self.tuning.gramian_share) * sums / self._cells)

    # ------------------------------------------------------------------ training

    def users(self, ratings: Ratings) -> SampledUsers:
        return SampledUsers(ratings, self)

    def train(self, users: SampledUsers, gate: Gate, seed: int) -> dict[str, Any]:
        """Algorithm 1; comments give its lines."""
        domain = users.domain
        center = 0.0 if self.tuning.center == "user" or self.scores == "likes" else domain.midpoint
        if gate.planned("level"):
            center = level(gate.release("level", users.level()), domain)[0]
        users.sample(seed)
        weights, supported = usable_weights(np.ones(domain.n_items), 0.0)
        if gate.planned("item weights"):
            released = gate.release("item weights", users.sampled_weights())
            weights, supported = usable_weights(released, gate.noise_sd("item weights"))
        relative = None
        if self.sampling == "weights":  # powers of two, by which exact sums can be multiplied
            relative = np.exp2(np.round(np.log2(adaptive_weights(weights, self.tuning.weight_exponent))))
        frequent = self._frequent(weights)
        users.choose(frequent, weights, seed)
        users.weigh(center, relative)
        dtype = np.float32 if self.user_norm is None else np.float64  # without bounds nothing is exact
        items = initial_items(domain.n_items, self.rank, seed, dtype)
        trained = BiasedFactors(self._rounds(users, np.where(frequent[:, None], items, 0), frequent, gate))
        return {
            "center": np.float64(center),
            "item_bias": trained.biases.astype(np.float64),
            "item_factors": trained.factors.astype(np.float32),
            "supported": supported.astype(np.uint8),
            "regularization": np.float64(self.regularization),
        }

    def _rounds(self, users: SampledUsers, items: Array, frequent: Array, gate: Gate) -> Array:
        """Lines 4 to 13."""
        size = self.rank * (self.rank + 1) // 2
        clip, user_norm = self._bounds(users.domain)
        for step in range(1, self.iterations + 1):
            users.fit(items, self._ridge)
            users.clip(user_norm)  # line 16
            unobserved = None
            if self.tuning.unobserved_weight:
                packed = gate.release(f"unobserved gramian {step}", users.gramian(user_norm))
                unobserved = self.tuning.unobserved_weight * project_psd(packed[None])[0]
            noisy = gate.release(f"item statistics {step}", users.item_statistics(clip, user_norm))
            # lines 10 and 11; the ridge is added after the projection, which it would otherwise undo
            blocks = np.array_split(noisy, math.ceil(len(noisy) * self.rank**2 / _ENTRIES_AT_ONCE))
            projected = ((project_psd(block[:, :size]), block[:, size:]) for block in blocks)
            solved = solve_statistics(projected, self._ridge, self.rank, unobserved)
            items = np.where(frequent[:, None], solved, items)
            if self.tuning.orthonormalize:  # line 13, as the polar factor
                factors = BiasedFactors(items).factors
                left, _, right = svd(factors, full_matrices=False, lapack_driver="gesvd")
                factors[:] = left @ right
        return items

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: ridge regression of a user's own ratings (equation 1)."""
        means, rows = np.zeros(history.n_users), history
        if self.tuning.center == "user":
            means, rows = user_means(history), less_user_means(history)
        state = ridge_on_items(arrays, rows.matrix, self._ridge)
        return state._replace(offset=state.offset + means)

    def score_parts(self, arrays: Mapping[str, Array], history: Ratings, column: int) -> Array:
        rows = less_user_means(history) if self.tuning.center == "user" else history
        return ridge_parts(arrays, rows.matrix, self._ridge, column)

    @property
    def _ridge(self) -> SweepSettings:
        return SweepSettings(
            regularization=self.regularization,
            bias_regularization=None,
            unobserved_weight=self.tuning.unobserved_weight,
        )

    def _frequent(self, weights: Array) -> NDArray[np.bool_]:
        """Section 5.1."""
        frequent = np.zeros(len(weights), dtype=bool)
        count = math.ceil(self.tuning.item_fraction * len(weights))
        frequent[np.argsort(-weights, kind="stable")[:count]] = True
        return frequent


def project_psd(packed: Array) -> Array:
    """Return the nearest positive semidefinite matrices: negative eigenvalues become zero.

    Packed lower triangles, shape (n, d * (d + 1) / 2). Eigenvalues above -8 * d * machine epsilon of the
    largest entry are rounding, and such a matrix is unchanged. The others get that much on their diagonals.
    """
    rank = math.isqrt(2 * packed.shape[1])
    rows, columns = np.tril_indices(rank)
    matrices = np.zeros((len(packed), rank, rank))
    matrices[:, rows, columns] = matrices[:, columns, rows] = packed
    values, vectors = np.linalg.eigh(matrices)
    forgiven = 8 * rank * np.finfo(packed.dtype).eps * np.abs(packed).max(axis=1)
    bad = values[:, 0] < -forgiven
    below = (vectors[bad] * np.minimum(values[bad], 0)[:, None]) @ vectors[bad].transpose(0, 2, 1)
    projected = packed.copy()
    projected[bad] -= below[:, rows, columns] - np.outer(forgiven[bad], rows == columns)
    return projected


class SampledUsers(FittedUsers):
    """Users who contribute normal equations of sampled or weighted ratings."""

    def __init__(self, ratings: Ratings, settings: DPALS) -> None:
        super().__init__(ratings)
        self._settings = settings

    def sample(self, seed: int) -> None:
        """Section 5.1."""
        if self._settings.tuning.center == "user":
            self._ratings = less_user_means(self._ratings)
        self._rows = self._ratings
        if self._settings.sampling != "weights":
            self._rows = sample_per_user(self._ratings, self._settings.max_ratings_per_user, seed)

    def sampled_weights(self) -> Bounded:
        """Sums of weights of norm 1, or of sampled counts, of norm sqrt(k)."""
        if self._settings.sampling == "weights":
            return self.item_weights()
        counts = np.bincount(self._rows.matrix.indices, minlength=self.domain.n_items).astype(np.float64)
        return Bounded(counts, positive(math.sqrt(self._settings.max_ratings_per_user)), step=1.0)

    def choose(self, frequent: Array, weights: Array, seed: int) -> None:
        """Drop rare items, then sample again."""
        settings = self._settings
        if settings.tuning.item_fraction == 1 and settings.sampling != "tail":
            return
        self._rows = self._ratings.where(frequent[self._ratings.matrix.indices], drop_empty=False, keyed=True)
        if settings.sampling != "weights":
            priority = weights if settings.sampling == "tail" else None
            self._rows = sample_per_user(self._rows, settings.max_ratings_per_user, seed, priority=priority)

    def fit(self, items: Array, ridge: SweepSettings) -> None:
        """Fit with the digits that sums in fixed point need."""
        super().fit(items, ridge)
        self._fitted = self._fitted.astype(items.dtype, copy=False)

    def clip(self, user_norm: float) -> None:
        """Line 16."""
        factors = BiasedFactors(self._fitted).factors
        factors[:] = clipped_rows(factors, user_norm)

    def gramian(self, user_norm: float) -> Bounded:
        """Packed sum of the outer products of factors."""
        gram = fixed_gramian(BiasedFactors(self._fitted).factors, user_norm)
        step = spacing(user_norm, FACTOR_BITS) ** 2
        return Bounded(gram, positive(user_norm**2), weight=frobenius_scale(self._settings.rank), step=step)

    def item_statistics(self, clip: float, user_norm: float) -> Bounded:
        """Packed Gramians and right-hand sides of every item, block by block (lines 10 and 11).

        Clipping "rating" limits every rating less its level to ``clip``, "user" the norm of a user's
        right-hand sides over all items.
        """
        settings, users = self._settings, self._fitted
        weighted, shrink = self._item_weight is not None, np.ones(self._rows.n_users)
        rating_clip, user_clip = (math.inf, clip) if settings.clipping == "user" else (clip, math.inf)
        if math.isfinite(user_clip):
            no_factors = np.zeros((len(users), 1)), np.zeros((self.domain.n_items, 1))
            lengths = residual_norms(
                *csr(self._rows.matrix),
                *no_factors,
                row_offset=BiasedFactors(users).biases + self._center,
                col_weight=self._item_weight,
            )
            shrink, weighted = clip_factor(self._user_weight * lengths * user_norm, user_clip), True
        steps = spacing(user_norm, FACTOR_BITS), spacing(min(user_clip, rating_clip * user_norm))
        blocks = statistics(
            csr(self._rows.transposed),
            self._center,
            users,
            self._ridge,
            row_weight=self._item_weight,
            col_weight=self._user_weight * shrink if weighted else None,
            clip=rating_clip,
            factor_step=steps[0],
            rhs_step=steps[1],
        )
        gram_scale = frobenius_scale(settings.rank) * settings.gram_unit / user_norm**2
        rhs_scale = 1 / (clip if settings.clipping == "user" else clip * user_norm)
        weight, bound = np.append(gram_scale, np.full(settings.rank, rhs_scale)), settings.statistics_bound
        if not np.all(weight > 0):  # no clip
            weight, bound = np.ones_like(weight), Bound(math.inf, math.inf)
        entry_steps = np.append(np.full(len(gram_scale), steps[0] ** 2), np.full(settings.rank, steps[1]))
        values = np.concatenate([np.hstack(block) for block in blocks])
        return Bounded(values, bound, weight=weight, step=entry_steps)
