"""The base of every algorithm: frozen settings, a plan of releases, a training through a gate."""

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
from hushrec.privacy import (
    Bound,
    Budget,
    Gaussian,
    Plan,
    Release,
)
from hushrec.serving.modelfile import Expected
from hushrec.serving.scoring import UserState
from hushrec.training import run
from hushrec.training.gate import Gate
from hushrec.training.users import Users
from hushrec.types import ModelArrays

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
        planned.append(Release(label, law, sensitivity, budget.unit, budget.relation))
    return Plan(budget, planned)


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
class Estimator(Settings, Generic[PrivateSide]):
    """Frozen settings of one algorithm.

    A subclass writes ``name``, :meth:`releases`, :meth:`users`, :meth:`train` and :meth:`fold_in`. It may add
    :meth:`week` for seasons, and :meth:`settings_for` to choose settings by budget and number of users.

    Parameters
    ----------
    planned_for : Budget or None
        The budget that :meth:`planned` chose the settings for. Another one is refused, unless
        ``set_params(planned_for=None)`` allows it.

    Examples
    --------
    >>> estimator = hushrec.PrivateALS(rank=8, iterations=2)
    >>> estimator.get_params()["rank"]
    8
    >>> estimator.set_params(rank=16).rank, estimator.rank        # frozen: a new one
    (16, 8)
    >>> domain = hushrec.Domain(["alien", "matrix"], rating_range=(1, 5))
    >>> plan = hushrec.ItemBias().plan(hushrec.Budget(5, 1e-6), domain)
    >>> [release.label for release in plan.releases]
    ['item biases']
    """

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
        bases = [base for base in cls.__mro__ if base is not Estimator]
        cls.uses_user_count = any("settings_for" in vars(base) for base in bases)
        cls.supports_seasons = cls.week is not Estimator.week

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
        run.check_budget(self, budget)
        check_domain(self, domain)
        return self.releases(budget, domain, 1.0)

    def budgets(self, budget: Budget) -> list[tuple[Estimator[Any], Budget]]:
        """Return this model and those within, each with its budget."""
        return [(self, budget)]

    def weekly_releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        """Return the plan of a later week."""
        return self.releases(budget, domain, fraction)

    def check_week(self, domain: Domain, last: ModelArrays) -> None:
        """Refuse a later week that the last week's arrays do not allow."""

    def week(self, users: PrivateSide, gate: Gate, last: ModelArrays) -> ModelArrays:
        """Train a later week from the last week's arrays."""
        raise NotImplementedError

    fit = run.fit
    #: Called by :meth:`Model.continue_training`.
    next_week = run.next_week
