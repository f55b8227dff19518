"""A season: one budget for a number of weekly trainings on the same users, who come and go.

A week is any period: the ledger counts trainings, and reads the clock only where a gap is declared. Proof:
docs/proofs/seasons.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from types import NoneType
from typing import Any

from hushrec.checks import check_kind, check_numbers, line_of_text, shown
from hushrec.errors import BudgetError, InputError
from hushrec.privacy.accounting import ROUNDING, epsilon_of, total_mu
from hushrec.privacy.budget import Budget, Charge, Cost
from hushrec.privacy.ledger_records import Row

#: In the statement of every training of a lifetime season; {weeks} are each user's.
OF_A_LIFETIME = (
    "The season has no end. Each user id is in at most {weeks} of its trainings: the first ones in which it"
    " has a row. So the promise covers all its models together, past and future. The unit is an id: a person"
    " who returns under another id begins anew."
)
#: In the statement of every season, whether or not a user left.
LEAVING = (
    "A training uses the rows that it is given, so from the week after a user leaves on nothing uses theirs."
    " What models of earlier weeks hold of them stays there and in what was learned from it, within this"
    " promise."
)


@dataclass(frozen=True)
class Season:
    """A budget for weekly trainings: week 0 gets a part of mu squared, the later weeks the rest evenly.

    Parameters
    ----------
    budget : Budget
        For all weeks together.
    weeks : int
        >= 2.
    first_share : float
        Part of mu squared that week 0 gets, in (0, 1).
    name : str
        Unique among the seasons of a data set.
    gap : float
        Shortest time in days between first charges of two weeks, up to 366; 0 looks at no clock.
    lifetime : bool
        Each user takes part in their first `weeks` trainings, which cost the same, and the season has no end.
        The budget's relation is add-remove, and it reserves nothing for failures.

    Examples
    --------
    >>> season = hushrec.Season(hushrec.Budget(epsilon=5, delta=1e-6), weeks=52, name="2026")
    >>> season.fraction(0), round(season.fraction(1), 4)          # parts of the budget
    (0.5, 0.0098)
    """

    budget: Budget
    weeks: int
    first_share: float = 0.5
    name: str = "1"
    gap: float = 0.0
    lifetime: bool = False

    def __post_init__(self) -> None:
        check_kind(self.budget, Budget, "budget", "pass Budget(epsilon=..., delta=...)")
        if not self.budget.private:
            raise InputError(
                "An infinite epsilon is not a season's budget; pass a finite one.", parameter="epsilon"
            )
        if self.budget.unit != "user":
            raise InputError(
                "A season protects users, not single ratings; leave the unit out.", parameter="unit"
            )
        line_of_text("name", self.name)
        rules = {"weeks": (int, "[2, inf)"), "first_share": (float, "(0, 1)"), "gap": (float, "[0, 366]")}
        for field, (kind, interval) in rules.items():
            value = getattr(self, field)
            check_numbers(**{field: (value, kind, interval)})
            object.__setattr__(self, field, kind(value))
        check_kind(self.lifetime, bool, "lifetime", "pass True or False")
        if self.lifetime:
            self._check_lifetime()
            object.__setattr__(self, "first_share", 1 / self.weeks)

    def _check_lifetime(self) -> None:
        if self.first_share not in (0.5, 1 / self.weeks):
            raise InputError("All trainings of a lifetime season cost the same; leave first_share out.")
        if self.budget.relation != "add-remove" or self.budget.failure:
            raise InputError(
                "A lifetime season needs relation 'add-remove' and no reserve for failures; declare such a"
                " budget.",
                parameter="relation",
            )

    def fraction(self, week: int) -> float:
        """Part of mu squared that a week may spend."""
        if week == 0 or self.lifetime:
            return self.first_share
        return (1 - self.first_share) / (self.weeks - 1)

    def mu(self, week: int) -> float:
        """Largest mu of a week."""
        return self.budget.mu * math.sqrt(self.fraction(week))

    def check_week(self, week: int, costs: Iterable[Cost]) -> None:
        """Raise BudgetError if costs do not fit the slice of a week."""
        if week >= self.weeks and not self.lifetime:
            raise BudgetError(
                f"Season {shown(self.name)} is spent: all of its {self.weeks} weeks were run; open another"
                " one, whose budget adds to this one's."
            )
        spent = total_mu(cost.mu for cost in costs)
        if spent**2 > self.mu(week) ** 2 * (1 + ROUNDING):
            raise BudgetError(
                f"Week {week} of season {shown(self.name)} would cost mu = {spent:.6g}, past its slice of"
                f" {self.mu(week):.6g}; nothing was released."
            )

    def plan(self) -> list[dict[str, Any]]:
        """Return the slices of the first and later weeks, with noise at sensitivity 1."""
        rows = []
        slices = [(0, "week 0"), (1, f"weeks 1-{self.weeks - 1}")]
        for week, weeks in [(0, "each week")] if self.lifetime else slices:
            mu = self.mu(week)
            alone = epsilon_of(mu, self.budget.delta - self.budget.failure)
            row = {"weeks": weeks, "part": self.fraction(week), "mu": mu, "noise": 1 / mu}
            rows.append(row | {"epsilon_alone": alone})
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, all but the budget."""
        names = ("name", "weeks", "first_share", "gap", "lifetime")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        first, later, gap = self.first_share, self.fraction(1), self.gap
        apart = f", {gap:g} days apart" if gap else ""
        if self.lifetime:
            return (
                f"lifetime season {shown(self.name)}: each week spends {later:.3g} of mu squared, and a user"
                f" is in at most {self.weeks} weeks{apart}"
            )
        return (
            f"season {shown(self.name)} of {self.weeks} weeks: week 0 spends {first:.3g} of mu"
            f" squared, each later week {later:.3g}{apart}"
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
    >>> season = hushrec.Season(hushrec.Budget(epsilon=5, delta=1e-6), weeks=4)
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
        shape = (entry[field] for field in ("weeks", "first_share", "name", "gap", "lifetime"))
        season = Season(budget, *shape)
        number, run, charge = entry["week"], entry["run"], entry["charge"]
        kinds = type(number), type(run), type(charge)
        if kinds not in ((int, str, str), (int, str, NoneType)) or number < 0:
            raise TypeError("not a week of a season")
        return cls(season, number, line_of_text("dataset", entry["dataset"]), run, charge)


def epsilon_together(budgets: Iterable[Budget], delta: float) -> float:
    """Return epsilon at `delta` for a user in all of these seasons."""
    budgets = tuple(budgets)
    left = delta - math.fsum(budget.failure for budget in budgets)
    return epsilon_of(total_mu(budget.mu for budget in budgets), left) if left > 0 else math.inf


@dataclass(frozen=True)
class SeasonSummary:
    """A season as the ledger knows it.

    Attributes
    ----------
    begun : int
        Weeks that charged anything.
    mu : float
        Cost of its charges; in a lifetime season, of those that one user can be in.
    run : str or None
        Of its last charge.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> season = hushrec.Season(hushrec.Budget(epsilon=5, delta=1e-6), weeks=4)
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
    def weeks_run(self) -> str:
        return f"{self.begun}" if self.season.lifetime else f"{self.begun} of {self.season.weeks}"

    @property
    def spent_epsilon(self) -> float:
        """Epsilon of its charges."""
        budget = self.season.budget
        return epsilon_of(self.mu, budget.delta - budget.failure) if self.mu else 0.0

    def __str__(self) -> str:
        budget, season = self.season.budget, self.season
        spent = self.begun >= season.weeks and not season.lifetime
        state = "closed" if self.closed else "spent" if spent else "open"
        whose = f" for a user, who is in at most {season.weeks} of them" if season.lifetime else " together"
        return (
            f'Season {shown(season.name)} of data set "{self.dataset}" is {state}: {self.weeks_run}'
            f" weeks were run and charged {budget.spell(self.spent_epsilon)}{whose},"
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


def lifetimes_of(seasons: Iterable[Season]) -> dict[str | None, int]:
    """Return the lifetime seasons, each with the number of its trainings that a user is in at most."""
    return {season.name: season.weeks for season in seasons if season.lifetime}


def of_one_user(charges: Iterable[Row], lifetimes: Mapping[str | None, int]) -> list[Cost]:
    """Return the charges of largest cost that one user can be in."""
    costs, trainings = list[Cost](), dict[str | None, dict[str, list[Cost]]]()
    for row in charges:
        if row.season in lifetimes:  # the trainings of largest mu need not be those of largest pure epsilon
            runs = trainings.setdefault(row.season, {})
            runs.setdefault(row.run, []).append(Charge(row.mu, None, row.failure))
        else:
            costs.append(row)
    for season, runs in trainings.items():
        by_cost = sorted(runs.values(), key=lambda run: total_mu(charge.mu for charge in run))
        costs += chain.from_iterable(by_cost[-lifetimes[season] :])
    return costs


def renamed(season: Season, others: Iterable[SeasonSummary]) -> Season:
    """Return the season under the first number that is free."""
    names = {summary.season.name for summary in others}
    return replace(season, name=next(str(n) for n in range(1, len(names) + 2) if str(n) not in names))
