"""The base of every algorithm: frozen hyper-parameters, a plan of releases, a training through a gate.

Left of the gate everything is privileged; what the gate returns is public and ends in
the :class:`~hushrec.Billboard`, from which any user, known or new, is served by folding their own
ratings in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.checks import Settings, check_domain, check_kind
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

#: The private side of an estimator: a `Users`, or the ratings where there is no privacy.
PrivateSide = TypeVar("PrivateSide")


class Round(NamedTuple):
    """One planned release of a training.

    Attributes
    ----------
    label : str
        Its name at the gate and in the privacy statement.
    share : float
        Part of the budget (of mu squared), relative to the other rounds' shares.
    bound : Bound
        The most that one user moves it, in the units of its release.
    """

    label: str
    share: float
    bound: Bound


def plan_of(rounds: Iterable[Round], budget: Budget, fraction: float, whole: float | None = None) -> Plan:
    """Gaussian releases that spend ``fraction`` of the budget's mu squared.

    The rounds' shares are parts of ``whole``, their sum by default.
    """
    rounds = tuple(rounds)
    whole = math.fsum(each.share for each in rounds) if whole is None else whole
    planned = []
    for label, share, bound in rounds:
        if not share > 0:
            raise InputError(f"Release {label!r} gets no part of the budget; raise the share that is for it.")
        sensitivity = bound.under(budget.relation)
        if math.isinf(sensitivity) and not budget.private:
            sensitivity = 1.0  # no clip, and no noise either
        law = budget.share(fraction * share / whole)
        planned.append(Release(label, law, sensitivity, budget.unit, budget.relation))
    return Plan(budget, planned)


def check_planned(budget: Budget, domain: Domain) -> None:
    """Refuse what is no budget or no domain, as where they were swapped."""
    check_kind(budget, Budget, "budget", "pass Budget(epsilon=..., delta=...)")
    check_kind(domain, Domain, "domain", "pass Domain(items=..., rating_range=(low, high))")


def exact_plan(name: str, budget: Budget, instead: str = "a private model") -> Plan:
    """The one release of an algorithm without privacy: its whole model, unprotected."""
    if budget.private:
        raise InputError(
            f"{name} has no privacy: train {instead}, or say that you want none",
            parameter="epsilon",
            value=math.inf,
        )
    return Plan(budget, (Release("exact model", Gaussian(0.0), 1.0, budget.unit, budget.relation),))


@dataclass(frozen=True, kw_only=True)
class Estimator(Settings, Generic[PrivateSide]):
    """Hyper-parameters of one algorithm; frozen, so training never changes them.

    Subclasses write ``name``, :meth:`releases` (what will pass the gate, computable without data),
    :meth:`users` (the private side), :meth:`train` (the public side: it asks the users for bounded values,
    releases them through the gate, and computes with what comes out) and :meth:`fold_in` (the local step that
    serves a user from the billboard). One that can continue a season writes :meth:`week` too, and one that
    chooses its settings by the number of users :meth:`planned`.

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
    #: Units of privacy that its sensitivities are derived for.
    units: ClassVar[tuple[str, ...]] = ("user",)
    #: What its scores are: ``"ratings"`` within the range, ``"likes"`` that only rank, or ``"log-odds"``.
    scores: ClassVar[str] = "ratings"
    #: What its arrays hold, beside those of every model: a file in which they hold anything else is refused.
    expected: ClassVar[ModelArrays | Mapping[str, Expected]] = {}
    #: True where what is released is a sum of fixed-point numbers, free of floating-point rounding.
    exact_arithmetic: ClassVar[bool] = True
    #: True where its users remember nothing but the last call of each method that returns nothing, so that
    #: they may lie in partitions (:mod:`hushrec.training.partitioned`).
    streams: ClassVar[bool] = False
    #: Follow from what a class writes: it has its own :meth:`planned`, its own :meth:`week`.
    uses_user_count: ClassVar[bool]
    goes_on: ClassVar[bool]

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        cls.uses_user_count = cls.planned.__func__ is not Estimator.planned.__func__  # type: ignore[attr-defined]
        cls.goes_on = cls.week is not Estimator.week

    @classmethod
    def planned(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        """Settings chosen from public quantities alone: the defaults, unless an estimator knows better.

        Parameters
        ----------
        budget : Budget
            The whole budget of the run.
        domain : Domain
            The declared catalogue, rating range and cap per user.
        n_users : int
            The declared or released number of users.
        **changes
            Settings that override the choice, those of the tuning too.
        """
        return cls.of(changes)

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        """Every release of a run that spends ``fraction`` of the budget's mu squared."""
        raise NotImplementedError

    def users(self, ratings: Ratings) -> PrivateSide:
        """The private side of a training on these rows, as :meth:`train` takes it."""
        return Users(ratings)  # type: ignore[return-value]

    def train(self, users: PrivateSide, gate: Gate, seed: int) -> ModelArrays | dict[str, Any]:
        """The public side: released arrays ``center``, ``item_bias``, ``item_factors``, ...

        :class:`~hushrec.types.ModelArrays` where there is more than users are served with.

        It holds released values only: the methods of ``users`` return :class:`~hushrec.privacy.Bounded`
        values, which nothing but the gate opens.
        """
        raise NotImplementedError

    def fold_in(self, arrays: Mapping[str, NDArray[Any]], history: Ratings) -> UserState:
        """Local step: what each user computes from the released arrays and their own rows."""
        raise NotImplementedError

    def score_parts(
        self, arrays: Mapping[str, NDArray[Any]], history: Ratings, column: int
    ) -> NDArray[np.float64]:
        """Return what each rating of one user adds to the score of an item, shape (history.n_ratings,).

        Local, as :meth:`fold_in`; refused where an estimator's scores are no sum over a user's items.
        """
        raise InputError(f"{self.name} cannot say what each rating adds to a score; it has no explanations.")

    def uses_features(self, budget: Budget, domain: Domain) -> bool:
        """Tell whether a training under this budget uses the domain's item features."""
        return False

    def notes(self, budget: Budget, domain: Domain) -> tuple[str, ...]:
        """Return what else its privacy statement must say, in words."""
        return ()

    def plan(self, budget: Budget, domain: Domain) -> Plan:
        """Return the releases of a run under ``budget``, with the noise of each; needs no data.

        Parameters
        ----------
        budget : Budget
            The whole budget of the run.
        domain : Domain
            The declared catalogue, rating range and cap per user.

        Returns
        -------
        Plan
            The releases in order. After :meth:`fit` with a fresh accountant of the same budget,
            ``accountant.releases == plan.releases``.
        """
        check_planned(budget, domain)
        check_domain(self, domain)
        return self.releases(budget, domain, 1.0)

    def weekly_releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        """Every release of a later week of a season that spends ``fraction`` of the budget's mu squared.

        Those of a first training, where an estimator has no others.
        """
        return self.releases(budget, domain, fraction)

    def week(self, users: PrivateSide, gate: Gate, last: ModelArrays) -> ModelArrays:
        """The public side of a later week: as :meth:`train`, from what the last week made."""
        raise NotImplementedError

    fit = run.fit
    #: Called by :meth:`Billboard.continue_training`.
    next_week = run.next_week
