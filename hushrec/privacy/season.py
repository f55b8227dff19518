"""A season: one budget for all weekly trainings on the same users, in which a user weighs less and less.

A week is any period: the ledger counts trainings, and reads the clock only where a gap is declared. Proof:
docs/proofs/seasons.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt

from hushrec.checks import check_kind, check_numbers, line_of_text, shown
from hushrec.errors import BudgetError, InputError
from hushrec.privacy.accounting import ROUNDING, epsilon_of, total_mu
from hushrec.privacy.budget import Budget, Charge, Cost
from hushrec.privacy.ledger_records import Row

#: Weights are multiples of this power of two, so that weighted sums of integers are exact.
WEIGHT_STEP = 2.0**-5
#: Largest cost of a first training over the declared one; rounding weights down makes it larger.
_MOST_LOST = 1.25
#: In the statement of every training of a season.
OF_A_SEASON = (
    "The season has no end. A user id weighs less in each further training in which it has a row, so the"
    " promise covers all its models together, past and future. What earlier models hold of a user who left"
    " stays there, within this promise. The unit is an id: a person who returns under another id begins anew."
)


@dataclass(frozen=True)
class Season:
    """A budget for any number of weekly trainings. A user's k-th training weighs `weights[k]`.

    All trainings have the same noise. A user's first training costs the part `first` of the budget. The
    others share the rest: each costs `decay` times the one before. Weights are rounded down to 32nds.

    Parameters
    ----------
    budget : Budget
        For one user in all trainings. Its relation is add-remove, and it reserves nothing for failures.
    first : float
        Part of mu squared of a user's first training, from 0.001 to below 1.
    decay : float
        Cost of a user's training relative to the one before, from the third on; above 0, up to 0.999. `first`
        is at least ``(1 - first) * (1 - decay)``, because no training weighs more than an earlier one.
    name : str
        Unique among the seasons of a data set.
    gap : float
        Shortest time in days between first charges of two weeks, up to 366; 0 looks at no clock.

    Examples
    --------
    >>> season = hushrec.Season(hushrec.Budget(epsilon=5, delta=1e-6), name="shop")
    >>> season.weights[:3], len(season.weights)                   # a user's first trainings, and their number
    ((1.0, 0.4375, 0.40625), 52)
    """

    budget: Budget
    first: float = 1 / 3
    decay: float = 0.9
    name: str = "1"
    gap: float = 0.0

    def __post_init__(self) -> None:
        check_kind(self.budget, Budget, "budget", "pass Budget(epsilon=..., delta=...)")
        if not self.budget.private:
            raise InputError(
                "An infinite epsilon is not a season's budget; pass a finite one.", parameter="epsilon"
            )
        if (self.budget.unit, self.budget.relation) != ("user", "add-remove") or self.budget.failure:
            raise InputError(
                "A season needs unit 'user', relation 'add-remove' and no reserve for failures; declare such"
                " a budget.",
                parameter="relation",
            )
        line_of_text("name", self.name)
        rules = {"first": "[0.001, 1)", "decay": "(0, 0.999]", "gap": "[0, 366]"}
        for field, interval in rules.items():
            value = getattr(self, field)
            check_numbers(**{field: (value, float, interval)})
            object.__setattr__(self, field, float(value))
        if self._cost(1) > 1 + ROUNDING:
            raise InputError(
                f"With first={self.first:g} and decay={self.decay:g} a user's second training would weigh"
                " more than the first; pass a larger first or decay.",
                parameter="first",
            )
        if self.fraction > _MOST_LOST * self.first:
            raise InputError(
                f"With first={self.first:g} and decay={self.decay:g} many of a user's trainings would weigh"
                f" less than {WEIGHT_STEP:g}, which counts as 0; pass a smaller first or decay.",
                parameter="decay",
            )

    def _cost(self, number: int) -> float:
        """Return the declared cost of a user's training, from 0, over that of the first."""
        if number == 0:
            return 1.0
        return (1 - self.first) * (1 - self.decay) * self.decay ** (number - 1) / self.first

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """Weights of a user's trainings, from 1 down to the least one above 0."""
        weights: list[float] = []
        while weight := math.floor(math.sqrt(self._cost(len(weights))) / WEIGHT_STEP + 1e-9) * WEIGHT_STEP:
            weights.append(weight)
        return tuple(weights)

    @property
    def fraction(self) -> float:
        """Part of mu squared that each week may spend, for users of weight 1."""
        return 1 / math.fsum(weight**2 for weight in self.weights)

    @property
    def mu(self) -> float:
        """Largest mu of a week."""
        return self.budget.mu * math.sqrt(self.fraction)

    def weight(self, counts: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the weight of users by the number of their trainings before."""
        every = np.append(self.weights, 0.0)
        return every[np.minimum(counts, len(self.weights))]

    def cost_of_a_user(self, weeks: Iterable[float]) -> float:
        """Return the largest mu squared of one user, given that of each week in order.

        The user can have taken part in any set of the weeks.
        """
        dearest = np.full(len(self.weights) + 1, -np.inf)  # by the number of the user's trainings
        dearest[0] = 0.0
        for cost in weeks:
            dearest[1:] = np.maximum(dearest[1:], dearest[:-1] + np.square(self.weights) * cost)
        return float(dearest.max())

    def check_week(self, week: int, costs: Iterable[Cost]) -> None:
        """Raise an error if costs cannot be weighed, or do not fit a week."""
        costs = tuple(costs)
        if any(cost.epsilon is not None or cost.failure for cost in costs):
            raise InputError(
                f"Season {shown(self.name)} weighs users, which needs Gaussian noise; train another model."
            )
        spent = total_mu(cost.mu for cost in costs)
        if spent**2 > self.mu**2 * (1 + ROUNDING):
            raise BudgetError(
                f"Week {week} of season {shown(self.name)} would cost mu = {spent:.6g}, past the"
                f" {self.mu:.6g} of a week; nothing was released."
            )

    def plan(self) -> list[dict[str, Any]]:
        """Return weight and cost of some of a user's trainings, from 1."""
        rows = []
        for number in (1, 2, 5, 14, 27):
            if number <= len(self.weights):
                weight = self.weights[number - 1]
                alone = epsilon_of(self.mu * weight, self.budget.delta)
                row = {"training": number, "weight": weight, "part": self.fraction * weight**2}
                rows.append(row | {"epsilon_alone": alone})
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, all but the budget."""
        return {name: getattr(self, name) for name in ("name", "first", "decay", "gap")}

    def __str__(self) -> str:
        apart = f", {self.gap:g} days apart" if self.gap else ""
        return (
            f"season {shown(self.name)}: a user's first training spends {self.fraction:.3g} of mu squared,"
            f" later ones less, from the third on about {self.decay:g} times the one before{apart}"
        )


@dataclass(frozen=True)
class Week:
    """A training of a season.

    Attributes
    ----------
    number : int
        From 0.
    dataset, run : str
        Names in the ledger.
    charge : str or None
        Hash of its last charge, by which the ledger recognizes its own models.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> season = hushrec.Season(hushrec.Budget(epsilon=5, delta=1e-6), name="1")
    >>> book = hushrec.Ledger("ledger.sqlite")
    >>> book.open_season("shop", season)
    >>> week = hushrec.SeasonAccountant(season, ledger=book, dataset="shop")
    >>> model = hushrec.PrivateALS().fit(ratings, week)
    >>> model.privacy.week.number, model.privacy.week.dataset
    (0, 'shop')
    """

    season: Season
    number: int
    dataset: str = "default"
    run: str = ""
    charge: str | None = None

    def __str__(self) -> str:
        return f"week {self.number} of {self.season}"

    def to_dict(self) -> dict[str, Any]:
        entry = {"week": self.number, "dataset": self.dataset, "run": self.run, "charge": self.charge}
        return self.season.to_dict() | entry

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any] | None, budget: Budget) -> Week | None:
        """Inverse of `to_dict`; raises KeyError or TypeError."""
        if entry is None:
            return None
        shape = (entry[field] for field in ("first", "decay", "name", "gap"))
        season = Season(budget, *shape)
        number, run, charge = entry["week"], entry["run"], entry["charge"]
        kinds = type(number), type(run), type(charge)
        if kinds not in ((int, str, str), (int, str, NoneType)) or number < 0:
            raise TypeError("not a week of a season")
        return cls(season, number, line_of_text("dataset", entry["dataset"]), run, charge)


def epsilon_together(budgets: Iterable[Budget], delta: float) -> float:
    """Return epsilon at `delta` for a user in all of these seasons."""
    return epsilon_of(total_mu(budget.mu for budget in budgets), delta)


@dataclass(frozen=True)
class SeasonSummary:
    """A season as the ledger knows it.

    Attributes
    ----------
    begun : int
        Weeks that charged anything.
    mu : float
        Largest cost of its charges for one user.
    run : str or None
        The run of its last charge.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> season = hushrec.Season(hushrec.Budget(epsilon=5, delta=1e-6), name="1")
    >>> book = hushrec.Ledger("ledger.sqlite")
    >>> book.open_season("shop", season)
    >>> week = hushrec.SeasonAccountant(season, ledger=book, dataset="shop")
    >>> model = hushrec.PrivateALS().fit(ratings, week)
    >>> book.season("shop", "1").begun
    1
    """

    season: Season
    dataset: str
    closed: bool
    begun: int
    mu: float
    charges: int
    run: str | None

    def __repr__(self) -> str:
        return f"SeasonSummary({self})"

    @property
    def reserved(self) -> float:
        """Mu squared that it may still spend."""
        return 0.0 if self.closed else max(0.0, self.season.budget.mu**2 - self.mu**2)

    @property
    def spent_epsilon(self) -> float:
        """Epsilon of its charges."""
        budget = self.season.budget
        return epsilon_of(self.mu, budget.delta) if self.mu else 0.0

    def __str__(self) -> str:
        budget, state = self.season.budget, "closed" if self.closed else "open"
        return (
            f'Season {shown(self.season.name)} of data set "{self.dataset}" is {state}: {self.begun}'
            f" weeks were run and charged at most {budget.spell(self.spent_epsilon)} to a user,"
            f" {(self.mu / (budget.mu or 1.0)) ** 2:.1%} of mu squared of its budget of {budget}"
        )

    def to_dict(self) -> dict[str, Any]:
        budget = self.season.budget
        return self.season.to_dict() | {
            "dataset": self.dataset,
            "budget": {**budget.promise, "mu": budget.mu},
            "closed": self.closed,
            "begun": self.begun,
            "charged": {"epsilon": self.spent_epsilon, "mu": self.mu, "charges": self.charges},
        }


def of_one_user(charges: Iterable[Row], seasons: Iterable[Season]) -> list[Cost]:
    """Return the largest cost of one user: of charges outside of seasons, and of each season."""
    named, weeks = {season.name: season for season in seasons}, dict[str, dict[str, float]]()
    costs = list[Cost]()
    for row in charges:
        if row.season is None:
            costs.append(row)
        else:
            runs = weeks.setdefault(row.season, {})
            runs[row.run] = runs.get(row.run, 0.0) + row.mu**2
    for name, runs in weeks.items():
        costs.append(Charge(math.sqrt(named[name].cost_of_a_user(runs.values())), None, 0.0))
    return costs


def renamed(season: Season, others: Iterable[SeasonSummary]) -> Season:
    """Return the season under the first number that is free."""
    names = {summary.season.name for summary in others}
    return replace(season, name=next(str(n) for n in range(1, len(names) + 2) if str(n) not in names))
