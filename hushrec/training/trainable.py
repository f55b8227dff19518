"""The part of an estimator that a training uses: settings, plan, users' side and server's side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.checks import Settings, check_domain, check_kind, check_numbers
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.privacy import Bound, Budget, Gaussian, Plan, Release, counted
from hushrec.serving.modelfile import Expected
from hushrec.serving.scoring import UserState
from hushrec.training.gate import Gate
from hushrec.training.users import Users
from hushrec.types import ModelArrays

#: Smallest mu of a release, since more noise does not fit exact sums (docs/proofs/exact-sums.md).
_SMALLEST_MU = 2.0**-28
#: The users' side: a `Users`, or the ratings if there is no privacy.
PrivateSide = TypeVar("PrivateSide")


class Round(NamedTuple):
    """One planned release of a training.

    Attributes
    ----------
    label : str
    share : float
        Fraction of mu squared, relative to the other rounds.
    bound : Bound
        Bound of one user, in units of the release.
    """

    label: str
    share: float
    bound: Bound


def plan_of(rounds: Iterable[Round], budget: Budget, fraction: float, whole: float | None = None) -> Plan:
    """Return Gaussian releases that spend ``fraction`` of the budget's mu squared.

    Shares are fractions of ``whole``, by default their sum.
    """
    rounds = tuple(rounds)
    whole = math.fsum(round.share for round in rounds) if whole is None else whole
    planned = []
    for label, share, bound in rounds:
        if not share > 0:
            raise InputError(f"Release {label!r} gets no part of the budget; raise its budget fraction.")
        sensitivity = bound.under(budget.relation)
        if math.isinf(sensitivity) and not budget.private:
            sensitivity = 1.0  # no clip, and no noise either
        law = budget.share(fraction * share / whole)
        if law.mu < _SMALLEST_MU:
            raise InputError(
                f"Release {label!r} gets too little of the budget (mu = {law.mu:.2g}); declare a larger"
                " epsilon."
            )
        planned.append(Release(label, law, sensitivity, budget.unit, budget.relation))
    return Plan(budget, planned)


def holds_user_count(setting: str) -> bool:
    """Return whether a setting, also of a model within, is the number of users."""
    return setting.rpartition(".")[2] == "n_users"


#: Labels of the releases that reports read.
USER_COUNT, ITEM_WEIGHTS = "number of users", "item weights"
#: Part of a budget for the number of users, if it is released.
_COUNT_PART = 0.01


def user_count_release(budget: Budget, fraction: float = 1.0) -> Release:
    """Return the release of the number of users; sensitivity 1, under replace too."""
    law, sensitivity = budget.share(_COUNT_PART * fraction), counted(1.0).under(budget.relation)
    return Release(USER_COUNT, law, sensitivity, budget.unit, budget.relation)


def check_planned(budget: Budget, domain: Domain) -> None:
    check_kind(budget, Budget, "budget", "pass Budget(epsilon=..., delta=...)")
    check_kind(domain, Domain, "domain", "pass Domain(items=..., rating_range=(low, high))")


def exact_plan(name: str, budget: Budget, instead: str = "a private model") -> Plan:
    """Return the one release of an algorithm without privacy: its whole model."""
    if budget.private:
        raise InputError(
            f"{name} has no privacy: train {instead}, or say that you want none",
            parameter="epsilon",
            value=math.inf,
        )
    return Plan(budget, (Release("exact model", Gaussian(0.0), 1.0, budget.unit, budget.relation),))


@dataclass(frozen=True, kw_only=True)
class Trainable(Settings, Generic[PrivateSide]):
    """The settings, the plan, the users' side and the server's side of an estimator."""

    #: Name on the command line and in model files.
    name: ClassVar[str] = ""
    #: Units that its sensitivities are derived for.
    units: ClassVar[tuple[str, ...]] = ("user",)
    #: Kind of its scores: ``"ratings"`` within the range, ``"likes"`` that only rank, or ``"log-odds"``.
    scores: ClassVar[str] = "ratings"
    #: Kinds and shapes of its arrays in a model file.
    expected: ClassVar[ModelArrays | Mapping[str, Expected]] = {}
    #: Whether its releases are exact sums of fixed-point numbers.
    exact_arithmetic: ClassVar[bool] = True
    #: Whether its users may be in partitions: of each method without a result only the last call matters.
    supports_partitions: ClassVar[bool] = False
    #: Whether a class has its own :meth:`settings_for`, and its own :meth:`week`.
    uses_user_count: ClassVar[bool]
    supports_seasons: ClassVar[bool]

    planned_for: Budget | None = field(default=None, compare=False, repr=False)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        bases = [base for base in cls.__mro__ if base is not Trainable]
        cls.uses_user_count = any("settings_for" in vars(base) for base in bases)
        cls.supports_seasons = cls.week is not Trainable.week

    @classmethod
    def planned(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        """Return settings chosen from public quantities alone.

        `budget` is of the whole run, `n_users` declared or released. `changes` override the choice, as
        ``**{"ratings.rank": 4}``.
        """
        if not cls.uses_user_count:
            return cls.of(changes)
        check_planned(budget, domain)
        check_numbers(n_users=(n_users, int, "[1, inf)"))
        return replace(cls.settings_for(budget, domain, n_users, **changes), planned_for=budget)

    @classmethod
    def settings_for(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        """Choose the settings for :meth:`planned`."""
        return cls.of(changes)

    @property
    def user_count(self) -> int | None:
        """The number of users that its settings hold, declared or released."""
        return getattr(self, "n_users", None)

    @property
    def counts_users(self) -> bool:
        """Whether a training first releases the number of users, which the settings do not hold."""
        return self.uses_user_count and getattr(self, "n_users", ...) is None

    @property
    def known_users(self) -> float:
        """The number of users, for a training: one without it would plan and scale for a single user."""
        if self.user_count is None:
            raise InputError(
                f"{self.name} needs the number of users; declare n_users, or call fit, which releases it."
            )
        return float(self.user_count)

    def for_users(self, n_users: int) -> Self:
        """Return it with a released number of users, where it needs one."""
        return self.set_params(n_users=n_users) if self.counts_users else self

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        """Return the plan that spends ``fraction`` of the budget's mu squared."""
        raise NotImplementedError

    def with_public(self, same: Ratings, external: Ratings | None) -> Self:
        """Return this model with public rows as a part of its lists; others do not change."""
        return self

    def users(self, ratings: Ratings) -> PrivateSide:
        """Return the users' side."""
        return Users(ratings)  # type: ignore[return-value]

    def train(self, users: PrivateSide, gate: Gate, seed: int) -> ModelArrays | dict[str, Any]:
        """The server's side: release the users' bounded values through the gate.

        Return arrays, as ``center``, ``item_bias`` and ``item_factors``.
        """
        raise NotImplementedError

    def fold_in(self, arrays: Mapping[str, NDArray[Any]], history: Ratings) -> UserState:
        """Compute each user's state from released arrays and the user's rows."""
        raise NotImplementedError

    def score_parts(
        self, arrays: Mapping[str, NDArray[Any]], history: Ratings, column: int
    ) -> NDArray[np.float64]:
        """Return what each rating of one user adds to an item's score, shape (history.n_ratings,)."""
        raise InputError(f"{self.name} cannot say what each rating adds to a score; it has no explanations.")

    def uses_features(self, budget: Budget, domain: Domain) -> bool:
        """Return whether a training uses item features."""
        return False

    def notes(self, budget: Budget, domain: Domain) -> tuple[str, ...]:
        """Return sentences for its privacy statement."""
        return ()

    def plan(self, budget: Budget, domain: Domain) -> Plan:
        """Return the releases of a run that spends the whole budget."""
        check_planned(budget, domain)
        self.check_budget(budget)
        check_domain(self, domain)
        first = [user_count_release(budget)] if self.counts_users else []
        return Plan(budget, [*first, *self.releases(budget, domain, budget.part_left(first)).releases])

    def budgets(self, budget: Budget) -> list[tuple[Trainable[Any], Budget]]:
        """Return this model and those within, each with its budget."""
        return [(self, budget)]

    def check_budget(self, budget: Budget) -> None:
        """Refuse a budget that the settings were not planned for."""
        for model, part in self.budgets(budget):
            plan = model.planned_for
            if plan is not None and replace(plan, relation=part.relation) != part:  # the noise is the same
                whose = "the" if model is self else "its part of the"
                raise InputError(
                    f"This {model.name} was planned for {plan}, and {whose} budget is {part}; plan"
                    " it for this one, or keep its settings with set_params(planned_for=None).",
                    parameter="budget",
                )

    def weekly_releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        """Return the plan of a later week."""
        return self.releases(budget, domain, fraction)

    def check_week(self, domain: Domain, last: ModelArrays) -> None:
        """Refuse a later week that the last week's arrays do not allow."""

    def week(self, users: PrivateSide, gate: Gate, last: ModelArrays) -> ModelArrays:
        """Train a later week from the last week's arrays."""
        raise NotImplementedError
