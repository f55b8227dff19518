"""One model for ratings and lists: two models trained under one budget.

Each job has a model with a fraction of the budget; mu squared adds up. The model of likes is trained on
ratings from a declared threshold up, which every user selects from their own rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self, cast

import numpy as np
from scipy.special import ndtr

from hushrec.checks import Part, check_names
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.models.private_als import PrivateALS
from hushrec.models.private_als.settings import BIAS_NOISE, known_part
from hushrec.models.private_eigenrec import PrivateEigenRec
from hushrec.models.private_eigenrec.users import RATED
from hushrec.privacy import Budget, Plan, Release
from hushrec.registry import best
from hushrec.serving.scoring import UserState
from hushrec.training.estimator import Estimator
from hushrec.training.gate import Gate, LabelledGate
from hushrec.training.named import choose
from hushrec.training.posterior import expected_variance, item_weights, ratio
from hushrec.training.trainable import Trainable
from hushrec.training.users import Users
from hushrec.types import Array, ModelArrays

#: A release of the model of ratings, and the array that keeps it.
_WEIGHTS, _WEIGHTS_ARRAY = "item weights", "item_weights"
#: Prior squared deviation of the likes' item weights from those expected, as a part of their square.
_USUAL_DEVIATION = 0.02
#: Smallest square of `known_part`: the ratings get a share of any budget, with noise that exact sums hold.
_LEAST_PART = 1e-3


class BothUsers(Users):
    """The users' sides of the two trainings, on the same users."""

    def __init__(self, rows: Ratings, ratings: Estimator[Any], lists: Estimator[Any]) -> None:
        super().__init__(rows)
        self._models = ratings, lists

    @cached_property
    def ratings(self) -> Any:
        return self._models[0].users(self._ratings.starred().rated())

    @cached_property
    def lists(self) -> Any:
        return self._models[1].users(self._ratings)


def combined(released: Array, noise_sd: float, expected: Array, expected_sd: Array) -> tuple[Array, float]:
    """Combine released and expected item weights by inverse variance; return them and the noise left.

    The expectation is known up to a factor, with an error in proportion to it. Both are estimated from all
    items.
    """
    factor = np.clip(ratio(released.sum(), expected.sum()), 1.0, 1 / RATED)
    expected, expected_sd = factor * expected, factor * expected_sd
    variance = noise_sd**2 + expected_sd**2
    size = np.square(item_weights(expected, math.sqrt(float((expected_sd**2).mean()))).mean)
    mean, missed = float(size.mean()), float(((released - expected) ** 2 - variance).mean())
    missed_sd = math.sqrt(2 / len(released)) * float(variance.mean())
    doubt = expected_sd**2 + expected_variance(missed / mean, missed_sd / mean, _USUAL_DEVIATION) * size
    gain = ratio(noise_sd**2, noise_sd**2 + doubt)
    left = (1 - gain) ** 2 * noise_sd**2 + (gain * expected_sd) ** 2
    return released + gain * (expected - released), math.sqrt(float(left.mean()))


@dataclass(frozen=True, kw_only=True)
class Both(Estimator[BothUsers]):
    """Lists and predicted ratings, from two models.

    Parameters
    ----------
    like_threshold : float or None
        Ratings from here up are likes; None means every rating is. Planned: three quarters up the rating
        range.
    lists_share : float
        Part of the budget (of mu squared) for the model that recommends, in (0, 1).
    ratings, lists : Estimator
        The two models; planned: the best ones for the budget.

    Privacy
    -------
    Unit: user. Relation: the budget's. The releases are those of the two models, each with its fraction of mu
    squared, which add up to the budget's. A user's likes are chosen from their own rows by a declared
    threshold, so the sensitivities are those of the models. Proof: docs/proofs/both.md.

    Examples
    --------
    >>> ratings = hushrec.realistic(2000, 50, 60_000, seed=0)
    >>> budget = hushrec.Budget(epsilon=5, delta=1e-6)
    >>> estimator = hushrec.Both.planned(budget, ratings.domain, n_users=2000)
    >>> model = estimator.fit(ratings, hushrec.Accountant(budget))
    >>> history = {ratings.domain.items[0]: 5, ratings.domain.items[1]: 1}
    >>> len(model.recommend(history, n=3)), len(model.predict(history, ratings.domain.items[2:5]))
    (3, 3)
    """

    name: ClassVar[str] = "both"
    supports_partitions: ClassVar[bool] = True

    like_threshold: float | None = None
    lists_share: Part = 0.5
    ratings: Estimator[Any] = field(default_factory=PrivateALS)
    lists: Estimator[Any] = field(default_factory=PrivateEigenRec)

    def __post_init__(self) -> None:
        for name, model in (("ratings", self.ratings), ("lists", self.lists)):
            if not isinstance(model, Estimator):
                raise InputError(f"{name} must be an estimator, not {type(model).__name__}.")
        if not hasattr(self.lists, "like_threshold"):
            raise InputError(
                f"{self.lists.name} does not learn from likes; pass PrivateEigenRec or EASE as lists."
            )
        super().__post_init__()
        object.__setattr__(
            self, "supports_seasons", self.ratings.supports_seasons and self.lists.supports_seasons
        )
        lists = cast(Any, self.lists)
        if (
            lists.like_threshold != self.like_threshold
        ):  # a clone keeps its parameters, as scikit-learn requires
            object.__setattr__(self, "lists", replace(lists, like_threshold=self.like_threshold))

    @classmethod
    def settings_for(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        """Plan the best model for either job, each for its share (docs/guides/both.md)."""
        check_names(cls, changes)
        if domain.likes:
            raise InputError("Likes have no ratings to predict; train private-eigenrec.")
        share = 1 / (1 + max(known_part(BIAS_NOISE, budget, domain, n_users) ** 2, _LEAST_PART))
        shares = cls(lists_share=changes.get("lists_share", share))  # refused where it is out of range
        settings: dict[str, Any] = {
            "like_threshold": domain.like_threshold,
            "lists_share": shares.lists_share,
        }
        inner: dict[str, dict[str, Any]] = {"ratings": {}, "lists": {}}
        for name, value in changes.items():
            job, dot, setting = name.partition(".")
            (inner[job] if dot else settings)[setting or name] = value
        for job in inner:
            if job not in changes:
                model, part = best(job, budget.private), shares.part(budget, job)
                settings[job] = choose(model, part, domain, n_users=n_users, settings=inner[job])
        return cls(**settings)

    @property
    def user_count(self) -> int | None:
        return self.ratings.user_count or self.lists.user_count

    @property
    def counts_users(self) -> bool:
        return self.ratings.counts_users or self.lists.counts_users

    def for_users(self, n_users: int) -> Self:
        counting = (job for job in ("ratings", "lists") if getattr(self, job).counts_users)
        return self.set_params(**{f"{job}__n_users": n_users for job in counting})

    def part(self, budget: Budget, job: str) -> Budget:
        """Return the part of the budget of ``"ratings"`` or ``"lists"``."""
        return budget.part(self.lists_share if job == "lists" else 1 - self.lists_share)

    def budgets(self, budget: Budget) -> list[tuple[Trainable[Any], Budget]]:
        ratings = self.ratings.budgets(self.part(budget, "ratings"))
        return [(self, budget), *ratings, *self.lists.budgets(self.part(budget, "lists"))]

    def set_params(self, **settings: Any) -> Self:
        """Return a copy with these fields changed; without a plan, its models have none either."""
        if settings.get("planned_for", ...) is None:
            settings = {"ratings__planned_for": None, "lists__planned_for": None} | settings
        return super().set_params(**settings)

    def with_public(self, same: Ratings, external: Ratings | None) -> Self:
        return replace(self, lists=self.lists.with_public(same, external))

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return self._of_both("releases", budget, domain, fraction)

    def weekly_releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return self._of_both("weekly_releases", budget, domain, fraction)

    def _of_both(self, method: str, budget: Budget, domain: Domain, fraction: float) -> Plan:
        releases: list[Release] = []
        for label, share in (("ratings", 1 - self.lists_share), ("lists", self.lists_share)):
            plan = getattr(getattr(self, label), method)(budget, domain, fraction * share)
            releases += plan.labelled(prefix=f"{label}: ").releases
        return Plan(budget, releases)

    def users(self, ratings: Ratings) -> BothUsers:
        return BothUsers(ratings, self.ratings, self.lists)

    def train(self, users: BothUsers, gate: Gate, seed: int) -> ModelArrays:
        """Train one model after the other; the first one's item weights improve the second."""
        gates = LabelledGate(gate, "ratings: "), LabelledGate(gate, "lists: ")
        ratings = ModelArrays.of(self.ratings.train(users.ratings, gates[0], seed))
        learner, known = self.lists, gates[0].planned(_WEIGHTS) and _WEIGHTS_ARRAY in ratings.state
        if known and gate.private and isinstance(learner, PrivateEigenRec):
            mean, sd = self._expected_weights(ratings, gates[0].noise_sd(_WEIGHTS), users.domain)
            better = partial(combined, expected=mean, expected_sd=sd)
            lists = learner.train(users.lists, gates[1], seed, better)
        else:
            lists = ModelArrays.of(learner.train(users.lists, gates[1], seed))
        return replace(ratings, lists=lists)

    def check_week(self, domain: Domain, last: ModelArrays) -> None:
        self.ratings.check_week(domain, last)
        self.lists.check_week(domain, cast(ModelArrays, last.lists))

    def week(self, users: BothUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
        ratings = self.ratings.week(users.ratings, LabelledGate(gate, "ratings: "), last)
        lists = self.lists.week(users.lists, LabelledGate(gate, "lists: "), cast(ModelArrays, last.lists))
        return replace(ratings, lists=lists)

    def _expected_weights(self, ratings: ModelArrays, noise_sd: float, domain: Domain) -> tuple[Array, Array]:
        """Return the likes' item weights expected from the ratings, up to a factor, and their noise."""
        arrays = ratings.serve
        chance = np.ones(domain.n_items)
        if self.like_threshold is not None:
            above = (float(arrays["center"]) + arrays["item_bias"] - self.like_threshold) / (
                domain.half_width / 2
            )
            chance = ndtr(above)
        part = RATED + (1 - RATED) * chance
        return ratings.state[_WEIGHTS_ARRAY] * part, noise_sd * part

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        return self.ratings.fold_in(arrays, history)

    def notes(self, budget: Budget, domain: Domain) -> tuple[str, ...]:
        return self.ratings.notes(budget, domain) + self.lists.notes(budget, domain)

    def uses_features(self, budget: Budget, domain: Domain) -> bool:
        return any(model.uses_features(budget, domain) for model in (self.ratings, self.lists))
