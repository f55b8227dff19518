"""Settings of private ALS, their planning, and its releases.

Rule and study: docs/guides/planning.md. Sensitivities: docs/proofs/private-als.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from hushrec.checks import Clip, Count, Part, Positive, Settings, Share
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.models.private_als.train import BIAS_PRIOR, train_first
from hushrec.models.private_als.updates import BIAS_SLOPE, or_infinite, stored_ridge
from hushrec.models.private_als.week import EXPECTED, train_week, weekly_rounds
from hushrec.privacy import Budget, Plan, counted, jointly, positive, signed
from hushrec.training.estimator import Estimator, Round, UserState, plan_of
from hushrec.training.gate import Gate
from hushrec.training.users import LEVEL_BOUND, SPREADS_BOUND, FittedUsers, ridge_on_items, ridge_parts
from hushrec.types import Array, ModelArrays

#: Part of the budget for a residual variance.
_RESIDUAL_SHARE = 0.004
#: Above this the number of users limits learning, not the noise.
_LARGEST_MU = 8.0
#: Planned rounds of the factors, and those at the start that release a residual variance before. Six more
#: rounds, or variances, gain at most 0.0003 of the range on ML-1M, ML-100K, Yahoo! R3, Jester and Coat.
_ROUNDS, _RESIDUALS = 12, 6
#: Bound of a user's contribution to a bias round and to an iteration, in the units of the tuning.
_BIAS_CLIP, _FACTOR_CLIP = 0.67, 0.28
_FACTOR_PRIOR, _USER_VARIANCE = 0.6, 0.02
#: These clips over the prior deviation of what they bound, for :func:`known_part`.
BIAS_NOISE = _BIAS_CLIP / (BIAS_SLOPE * BIAS_PRIOR)
FACTOR_NOISE = _FACTOR_CLIP / (_FACTOR_PRIOR * _USER_VARIANCE)


@dataclass(frozen=True, kw_only=True)
class PrivateALS(Estimator[FittedUsers]):
    """Private alternating least squares, for ratings.

    Use :meth:`planned`, which chooses everything from public values, or pass ``rank`` and ``iterations``.
    ``PrivateALS()`` alone trains item biases only. With ``item_features`` in the domain, the prior mean of
    item biases and factors is a regression on them (:mod:`hushrec.models.private_als.features`).

    Parameters
    ----------
    rank : int
        Number of item factors, from 0 to 900.
    features : bool
        Start the first two factors from released values, without privacy cost: the item's standardised bias
        and log weight. Needs ``rank >= 2`` and at least one bias round.
    iterations : int
        Releases of the item factors, >= 0.
    bias_rounds : int
        Releases of the item biases before the first factors, >= 0.
    tuning : PrivateALS.Tuning
        Values that studies chose.
    n_users : int or None
        Declared number of users; None releases it together with the level.

    Notes
    -----
    A rating is ``r_ij = c + b_i + b_j + u_i v_j + e_ij``, of user i and item j. The user solves one ridge
    regression of their ratings on ``[v_j, 1]``. With weights ``c_ij`` of norm 1 a user and factors ``u_i``,
    each iteration releases the users' second moments and the item sums

        ``G = sum_i u_i u_i' + noise``,    ``S_j = sum_i c_ij e_ij u_i + noise``,

    each user's part clipped. Let ``d`` be the error of ``v_j`` along an eigenvector of G, with prior variance
    p, s the part of ``S_j`` along it, and x the eigenvalue times the item's released weight. Then s is x d
    plus noise of variance ``noise^2 + residual x``, and the server adds the posterior mean

        ``E[d] = p x s / (p x^2 + noise^2 + residual x)``.

    Clips are multiples of the spread, the released standard deviation of a user's ratings about their own
    mean, and of the residual variance, which the first six iterations release. As the model improves, clips
    and noise shrink.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: the releases are (epsilon, delta)-DP. A user's factors are
    computed from them and the user's own ratings. Every release is Gaussian and mu squared adds up to the
    budget's; :meth:`plan` lists them with their sensitivities, docs/proofs/private-als.md proves these.

    Examples
    --------
    >>> ratings = hushrec.realistic(2000, 50, 60_000, seed=0)
    >>> budget = hushrec.Budget(epsilon=5, delta=1e-6)
    >>> estimator = hushrec.PrivateALS.planned(budget, ratings.domain, n_users=2000)
    >>> model = estimator.fit(ratings, hushrec.Accountant(budget))
    >>> len(model.recommend({ratings.domain.items[0]: 5}, n=3))
    3
    """

    name: ClassVar[str] = "private-als"
    supports_partitions: ClassVar[bool] = True
    expected: ClassVar[ModelArrays] = EXPECTED

    @dataclass(frozen=True, kw_only=True)
    class Tuning(Settings):
        """Values that ``python -m benchmarks.never_loses`` chose (docs/guides/planning.md).

        Parameters
        ----------
        factor_prior : float
            Standard deviation of item factors that the server's updates assume, > 0.
        user_variance : float
            Prior variance of a user's factors, in units of the squared spread, > 0.
        bias_clip : float or None
            Bound of a user's contribution to a bias round, in units of the spread, > 0. None means no clip,
            without privacy only.
        factor_clip : float or None
            Bound of a user's contribution to an iteration, in units of the spread times the root of the
            residual variance, > 0.
        user_norm : float or None
            Bound on the norm of a user's factors, in units of the spread, > 0. None only without privacy.
        weight_exponent : float
            Adaptive weights (Krichene et al. 2023) are the released item weight to this power, in [-1, 0].
        level_share, weights_share, bias_share, factor_share : float
            Relative budgets (of mu squared), in [0, 1]: the level and as much for the spreads, the item
            weights, all bias rounds, all iterations. They are scaled to the whole budget.
        gramian_share : float
            Part of an iteration's budget for its Gramian, in (0, 1).
        """

        factor_prior: Positive = _FACTOR_PRIOR
        user_variance: Positive = _USER_VARIANCE
        bias_clip: Clip | None = _BIAS_CLIP
        factor_clip: Clip | None = _FACTOR_CLIP
        user_norm: Clip | None = 0.7
        weight_exponent: Annotated[float, "[-1, 0]"] = -0.25
        level_share: Share = 0.01
        weights_share: Share = 0.15
        bias_share: Share = 0.4
        factor_share: Share = 0.35
        gramian_share: Part = 0.01

    rank: Annotated[int, "[0, 900]"] = 2
    features: bool = True
    iterations: Annotated[int, "[0, inf)"] = 0
    bias_rounds: Annotated[int, "[0, inf)"] = 4
    tuning: Tuning = Tuning()
    n_users: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features and (not self.bias_rounds or self.rank < 2):
            raise InputError(
                "features needs rank >= 2 and bias_rounds >= 1", parameter="features", value=False
            )

    @classmethod
    def settings_for(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        """Choose by mu times users per item (docs/guides/planning.md)."""
        signal = min(budget.mu, _LARGEST_MU) * n_users / domain.n_items
        part = known_part(BIAS_NOISE, budget, domain, n_users)  # else the level needs the budget
        settings: dict[str, Any] = {
            "n_users": n_users,
            "weights_share": part * cls.Tuning.weights_share,
            "bias_share": part * cls.Tuning.bias_share,
        }
        visible = known_part(FACTOR_NOISE, budget, domain, n_users) > 0.5
        if signal >= 1 and domain.n_items >= 8 and visible:
            rank = min(12 if signal >= 10 else min(8, 2 + int(signal)), max(2, domain.n_items // 8))
            settings |= {
                "rank": rank,
                "iterations": _ROUNDS,
                "factor_share": min(0.8, 0.3 + 0.1 * signal),
                "factor_clip": 0.1 * math.sqrt(rank) * min(max(signal / 50, 1.0) ** 0.25, 2.0),
            }
        return cls.of(settings, changes)

    @property
    def factor_rounds(self) -> int:
        """Releases of the item factors; 0 without factors."""
        return self.iterations if self.rank else 0

    @property
    def learned_factors(self) -> int:
        """Factors that do not start from released features."""
        return self.rank - 2 * self.features

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        if math.isfinite(budget.epsilon):
            self._check_clips()
        tuning, rounds = self.tuning, self._first_rounds()
        clip, share = signed(or_infinite(tuning.bias_clip)), tuning.bias_share / max(self.bias_rounds, 1)
        rounds += [Round(f"item biases {step}", share, clip) for step in range(1, self.bias_rounds + 1)]
        for step in range(1, self.factor_rounds + 1):
            rounds += self._factor_round(step)
        return plan_of(rounds, budget, fraction)

    def _check_clips(self) -> None:
        needed = {
            "bias_clip": self.bias_rounds > 0,
            "factor_clip": self.factor_rounds > 0,
            "user_norm": self.factor_rounds > 0,
        }
        for name, wanted in needed.items():
            if wanted and getattr(self.tuning, name) is None:
                raise InputError(f"{name}=None means no clip, which is not private; pass a bound.")

    def _first_rounds(self) -> list[Round]:
        rounds = [
            Round("spreads", self.tuning.level_share, SPREADS_BOUND),
            Round("item weights", self.tuning.weights_share, positive(1.0)),
        ]
        if self.n_users is None:
            rounds.insert(0, Round("level", self.tuning.level_share, LEVEL_BOUND))
        elif self.scores == "ratings":  # no user is counted again
            rounds.insert(0, Round("level", self.tuning.level_share, signed(1.0)))
        return rounds

    def _factor_round(self, step: int) -> list[Round]:
        tuning, share = self.tuning, self.tuning.factor_share / self.iterations
        gramian = jointly(positive(1.0), counted(1.0)).times(or_infinite(tuning.user_norm) ** 2)
        clip = signed(or_infinite(tuning.factor_clip))
        variance = Round(f"residual variance {step}", _RESIDUAL_SHARE, counted(1.0))
        return [
            *[variance][: step <= _RESIDUALS],
            Round(f"gramian {step}", share * tuning.gramian_share, gramian),
            Round(f"item sums {step}", share * (1 - tuning.gramian_share), clip),
        ]

    def uses_features(self, budget: Budget, domain: Domain) -> bool:
        return domain.item_features is not None

    def notes(self, budget: Budget, domain: Domain) -> tuple[str, ...]:
        if domain.item_features is None:
            return ()
        count = domain.item_features.shape[1]
        return (
            f"Assumed public too: {count} item features. They cost nothing: only released values, and users"
            " on their own devices, met them.",
        )

    def users(self, ratings: Ratings) -> FittedUsers:
        return FittedUsers(ratings)

    def train(self, users: FittedUsers, gate: Gate, seed: int) -> ModelArrays:
        return train_first(self, users, gate, seed)

    def weekly_releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return plan_of(weekly_rounds(self), budget, fraction)

    def week(self, users: FittedUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
        return train_week(self, users, gate, last)

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        return ridge_on_items(arrays, history.matrix, stored_ridge(arrays))

    def score_parts(self, arrays: Mapping[str, Array], history: Ratings, column: int) -> Array:
        return ridge_parts(arrays, history.matrix, stored_ridge(arrays), column)


def known_part(noise: float, budget: Budget, domain: Domain, n_users: int) -> float:
    """Return the part of a prior variance that the whole budget would explain if all items weighed alike.

    ``noise`` is the clip of a contribution over the prior deviation of what it adds.
    """
    return 1 / (1 + domain.n_items * (noise / (budget.mu * n_users)) ** 2)
