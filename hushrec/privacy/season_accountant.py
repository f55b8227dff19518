"""An accountant for one week of a season."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import NoneType
from typing import Any, Protocol

import numpy as np

from hushrec.checks import check_kind, shown
from hushrec.errors import BudgetError, InputError
from hushrec.privacy.accountant import Accountant
from hushrec.privacy.attendance import Attendance
from hushrec.privacy.ledger import Ledger
from hushrec.privacy.noise import NoiseSource
from hushrec.privacy.release import Plan, Release, check_fit
from hushrec.privacy.season import LEAVING, OF_A_LIFETIME, Season, Week, epsilon_together
from hushrec.privacy.statement import PrivacyStatement


class _Digested(Protocol):
    @property
    def digest(self) -> str:
        """SHA-256 of the model file."""


class SeasonAccountant(Accountant):
    """Spends one week's slice of a season's budget; make one for each week.

    Parameters
    ----------
    season : Season
        Equal to the one in the ledger.
    after : PrivacyStatement, optional
        Of the last week's model, `Model.privacy`; None before week 0.
    skip : bool
        Pass over weeks that were cut short. The rest of their slices is not spent.
    week : int, optional
        The number of the week; refused if it is not the next one.
    early : bool
        The week may begin sooner than the season's gap allows.
    attendance : Attendance, optional
        The list of users of a lifetime season, which needs it and a ledger.
    ledger, dataset, noise, data_is_public
        See :class:`Accountant`. Without a ledger neither a repeated week nor an edited model is detected.

    Privacy
    -------
    All weeks together satisfy the season's budget, also for users who come and go (docs/proofs/seasons.md).

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> season = hushrec.Season(hushrec.Budget(epsilon=5, delta=1e-6), weeks=4)
    >>> book = hushrec.Ledger("ledger.sqlite")
    >>> book.open_season("shop", season)
    >>> week = hushrec.SeasonAccountant(season, ledger=book, dataset="shop")
    >>> model = hushrec.PrivateALS().fit(ratings, week)
    >>> week = hushrec.SeasonAccountant.following(model.privacy, ledger=book)
    >>> model = model.continue_training(ratings, week)            # the next week's
    >>> model.privacy.week.number
    1
    """

    _keeps_journal = False  # a week that is cut short is skipped
    _instead = "a copy could spend the same week again; make another SeasonAccountant with the same ledger"

    def __init__(
        self,
        season: Season,
        after: PrivacyStatement | None = None,
        *,
        skip: bool = False,
        week: int | None = None,
        early: bool = False,
        attendance: Attendance | None = None,
        ledger: Ledger | None = None,
        dataset: str = "default",
        noise: NoiseSource | None = None,
        data_is_public: bool = False,
    ) -> None:
        check_kind(season, Season, "season", "pass Season(budget, weeks)")
        super().__init__(
            season.budget,
            ledger=ledger,
            dataset=dataset,
            noise=noise,
            data_is_public=data_is_public,
        )
        check_kind(attendance, (Attendance, NoneType), "attendance", "pass Attendance(path)")
        if season.lifetime != (attendance is not None) or (season.lifetime and ledger is None):
            raise InputError(
                "A lifetime season needs a ledger and its attendance, and no other season has one; pass"
                " --ledger and --attendance (ledger=Ledger(path), attendance=Attendance(path)).",
                parameter="attendance",
            )
        self._attendance, self._admitted, self._admits = attendance, False, False
        self.after, self._early = None, early
        number = 0
        if after is not None:
            self.after = last = _week_of(after, season, dataset)
            number = last.number + 1
            self._releases += () if season.lifetime else after.releases
            if not after.private and not (data_is_public or noise is not None):
                raise InputError(
                    f"This model is NOT PRIVATE ({'; '.join(after.reasons)}), so no private week can follow"
                    " it."
                )
        self._others: list[Season] = []
        if ledger is not None:
            summary = ledger.season(dataset, season.name)  # refused where there is none
            seasons = [known.season for known in ledger.seasons(dataset)]
            self._others = [other for other in seasons if other.name != season.name]
            if skip:
                number = max(number, summary.begun)
                if not season.lifetime:  # with the releases of weeks without a model, none of another process
                    self._releases = ledger.season_releases(dataset, season.name)[: summary.charges]
        if week is not None:
            _check_meant(week, number, season)
        self._before = len(self._releases)
        self.run = f"season {season.name}, week {number}, {self.run[:16]}"
        self.week = Week(season, number, self.dataset, self.run)

    @classmethod
    def following(
        cls, after: PrivacyStatement, *, ledger: Ledger | None = None, skip: bool = False, **options: Any
    ) -> SeasonAccountant:
        """Return the accountant of the week after a model, given the model's statement."""
        week = after.week
        if week is None:
            raise InputError(
                "This model was not trained in a season; open one with hushrec season open and train its"
                " first model with hushrec train --season."
            )
        options = {"dataset": week.dataset} | options
        return cls(week.season, after, ledger=ledger, skip=skip, **options)

    def __repr__(self) -> str:
        spent = Plan(self.budget, self.week_releases).mu / (self.week.season.mu(self.week.number) or 1.0)
        return f"SeasonAccountant({self.week}, of which {spent**2:.0%} is spent; for all weeks {self.budget})"

    @property
    def week_releases(self) -> tuple[Release, ...]:
        """The releases of this week so far."""
        return self.releases[self._before :]

    @property
    def remaining_fraction(self) -> float:
        season, week = self.week.season, self.week.number
        season.check_week(week, ())
        spent = Plan(self.budget, self.week_releases).mu / (self.budget.mu or 1.0)
        left = season.fraction(week) - spent**2
        return max(0.0, left)

    def check(self, plan: Plan) -> None:
        with self._lock:
            self._check_fit(plan.releases)
            if self.ledger is not None:
                made = len(self.week_releases)
                self.ledger.check_week(
                    self.week, plan.releases, after=self.after, made=made, early=self._early
                )

    @contextmanager
    def admit(self, users: Iterable[str]) -> Iterator[np.ndarray]:
        """Yield a mask of the users whose rows this week of a lifetime season may use.

        The attendance counts the training for these users before any charge. Releases are allowed within the
        context only. `users` are canonical texts of ids, each once.
        """
        assert self._attendance is not None and self.ledger is not None, "the season is no lifetime season"
        season, dataset = self.week.season, self.week.dataset
        if self._admitted:
            raise BudgetError("This week of a lifetime season has admitted its users; train it once.")
        # the ledger has charges of `week.number` weeks, now and at this week's first charge
        self.ledger.check_week(self.week, (), after=self.after, early=self._early)
        last = self.ledger.season(dataset, season.name).run
        admitted = self._attendance.admit(self.week, last, users)
        self._admitted = self._admits = True
        try:
            yield admitted
        finally:
            self._admits = False

    def check_model(self, model: _Digested) -> None:
        """Refuse a model whose digest differs from the one in the ledger."""
        if self.ledger is not None and self.after is not None:
            self.ledger.check_model(self.after, model.digest)

    def wrote(self, model: _Digested) -> None:
        """Record the digest of this week's model, before its file gets a name."""
        if self.ledger is not None and self.week_releases:
            self.ledger.wrote(self.week, model.digest)

    def statement(
        self, public: Iterable[str] = (), notes: Iterable[str] = (), *, exact_arithmetic: bool = False
    ) -> PrivacyStatement:
        season = self.week.season
        notes = (*notes, OF_A_LIFETIME.format(weeks=season.weeks) if season.lifetime else LEAVING)
        if self.ledger is None and self.after is not None:
            notes += ("Without a ledger nothing tells whether the last week's model was edited.",)
        if self._others:
            budgets = [self.budget, *(other.budget for other in self._others)]
            names = ", ".join(f'"{other.name}"' for other in self._others)
            both = self.budget.spell(epsilon_together(budgets, self.budget.delta))
            notes += (f"Whoever is also in season {names} of this data set is promised {both} together.",)
        return replace(super().statement(public, notes, exact_arithmetic=exact_arithmetic), week=self.week)

    def _record(self, ledger: Ledger, release: Release, step: int | None) -> None:
        if self._attendance is not None and not self._admits:
            raise BudgetError(
                "A week of a lifetime season cannot release rows that were not admitted; train it with fit"
                " or continue_training."
            )
        step = len(self.week_releases)
        charge = ledger.charge(self.dataset, self.run, release, step=step, week=self.week, early=self._early)
        self.week = replace(self.week, charge=charge)

    def _check_fit(self, coming: Iterable[Release]) -> None:
        coming = tuple(coming)
        check_fit(self.budget, self._releases, coming)
        self.week.season.check_week(self.week.number, [*self.week_releases, *coming])


def _week_of(after: PrivacyStatement, season: Season, dataset: str) -> Week:
    if after.week is None:
        raise InputError("This model was not trained in a season; pass one that was.")
    if after.week.season != season or after.week.dataset != dataset:
        raise BudgetError(
            f'This model is of season "{after.week.season.name}" of data set "{after.week.dataset}", not of'
            " season"
            f' "{season.name}" of "{dataset}" as it was opened; pass the last model of the latter.'
        )
    return after.week


def _check_meant(week: int, number: int, season: Season) -> None:
    if week < number:
        raise BudgetError(
            f"Week {week} of season {shown(season.name)} was run already: the next one is week {number}."
            " Nothing was charged."
        )
    if week > number:
        raise InputError(
            f"Week {week} of season {shown(season.name)} is not the next one, which is week {number}; "
            "continue the model of the week before. Nothing was charged.",
            parameter="week",
        )
