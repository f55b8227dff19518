"""Settings of private ALS, their planning, and its releases.

Rule and study: docs/guides/planning.md. Sensitivities: docs/proofs/private-als.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Self

from hushrec.checks import Clip, Count, Part, Positive, Settings, Share
from hushrec.data import Domain
from hushrec.errors import InputError
from hushrec.models.private_als.updates import BIAS_PRIOR, BIAS_SLOPE, or_infinite
from hushrec.models.private_als.users import FittedUsers
from hushrec.privacy import Bound, Budget, Plan, counted, jointly, positive, signed
from hushrec.training.estimator import Estimator
from hushrec.training.trainable import Round, plan_of
from hushrec.training.users import SPREADS_BOUND

#: Part of the budget for a residual variance.
_RESIDUAL_SHARE = 0.004
#: Above this the number of users limits learning, not the noise.
_LARGEST_MU = 8.0
#: Planned rounds of the factors, and those at the start that release a residual variance before. Six more
#: rounds, or variances, gain at most 0.0003 of the range on ML-1M, ML-100K, Yahoo! R3, Jester and Coat.
_ROUNDS, _RESIDUALS = 12, 6
#: Largest planned ranks, below and from a signal; and items for each factor.
_LARGEST_RANKS, _PLENTY, _ITEMS_PER_FACTOR = (8, 12), 10, 8
#: Planned relative budget of the factors: without a signal, its growth with the signal, and at most.
_LEAST_SHARE, _SHARE_GROWS, _MOST_SHARE = 0.3, 0.1, 0.8
#: Planned clip of factors over the root of the rank, and the signal from which it grows.
_PLANNED_CLIP, _CLIP_GROWS = 0.1, 50
#: Bound of a user's contribution to a bias round and to an iteration, in the units of the tuning.
_BIAS_CLIP, _FACTOR_CLIP = 0.67, 0.28
_FACTOR_PRIOR, _USER_VARIANCE = 0.6, 0.02
#: These clips over the prior deviation of what they bound, for :func:`known_part`.
BIAS_NOISE = _BIAS_CLIP / (BIAS_SLOPE * BIAS_PRIOR)
FACTOR_NOISE = _FACTOR_CLIP / (_FACTOR_PRIOR * _USER_VARIANCE)
#: Smallest :func:`known_part` of the biases: less of the budget would need noise that exact sums cannot hold.
_LEAST_PART = 1e-3

#: Parts of a week's budget: number of users, item weights, residual variance, Gramian, biases, factors. Tuned
#: with `python -m benchmarks.year` on drifting worlds.
_COUNT, _WEIGHTS, _RESIDUAL, _GRAMIAN, _BIASES, _FACTORS = 0.01, 0.03, 0.01, 0.02, 0.26, 0.6


@dataclass(frozen=True, kw_only=True)
class ALSSettings(Estimator[FittedUsers]):
    """The settings that :class:`hushrec.PrivateALS` documents, and their releases."""

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
        part = max(known_part(BIAS_NOISE, budget, domain, n_users), _LEAST_PART)  # else the level needs it
        settings: dict[str, Any] = {
            "n_users": n_users,
            "weights_share": part * cls.Tuning.weights_share,
            "bias_share": part * cls.Tuning.bias_share,
        }
        visible = known_part(FACTOR_NOISE, budget, domain, n_users) > 0.5
        if signal >= 1 and domain.n_items >= _ITEMS_PER_FACTOR and visible:
            of_items = max(2, domain.n_items // _ITEMS_PER_FACTOR)
            rank = min(_LARGEST_RANKS[signal >= _PLENTY], 2 + int(signal), of_items)
            growth = min(max(signal / _CLIP_GROWS, 1.0) ** 0.25, 2.0)
            settings |= {
                "rank": rank,
                "iterations": _ROUNDS,
                "factor_share": min(_MOST_SHARE, _LEAST_SHARE + _SHARE_GROWS * signal),
                "factor_clip": _PLANNED_CLIP * math.sqrt(rank) * growth,
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
        if self.scores == "ratings":
            rounds.insert(0, Round("level", self.tuning.level_share, signed(1.0)))
        return rounds

    def _factor_round(self, step: int) -> list[Round]:
        tuning, share = self.tuning, self.tuning.factor_share / self.iterations
        clip = signed(or_infinite(tuning.factor_clip))
        variance = Round(f"residual variance {step}", _RESIDUAL_SHARE, counted(1.0))
        return [
            *[variance][: step <= _RESIDUALS],
            Round(f"gramian {step}", share * tuning.gramian_share, self._gramian_bound),
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

    def weekly_releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        clips = self.tuning
        rounds = [
            Round("number of users", _COUNT, counted(1.0)),
            Round("item weights", _WEIGHTS, positive(1.0)),
            Round("residual variance", _RESIDUAL, counted(1.0)),
        ]
        if self.bias_rounds:
            rounds.append(Round("item biases", _BIASES, signed(or_infinite(clips.bias_clip))))
        if self.factor_rounds:
            rounds += [
                Round("gramian", _GRAMIAN, self._gramian_bound),
                Round("item sums", _FACTORS, signed(or_infinite(clips.factor_clip))),
            ]
        return plan_of(rounds, budget, fraction)

    @property
    def _gramian_bound(self) -> Bound:
        return jointly(positive(1.0), counted(1.0)).times(or_infinite(self.tuning.user_norm) ** 2)


def known_part(noise: float, budget: Budget, domain: Domain, n_users: int) -> float:
    """Return the part of a prior variance that the whole budget would explain if all items weighed alike.

    ``noise`` is the clip of a contribution over the prior deviation of what it adds.
    """
    return 1 / (1 + domain.n_items * (noise / (budget.mu * n_users)) ** 2)
