"""An accountant for one week of a season."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import NoneType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hushrec.checks import check_flags, check_kind, shown
from hushrec.errors import BudgetError, InputError
from hushrec.privacy.accountant import Accountant
from hushrec.privacy.attendance import Attendance
from hushrec.privacy.journal import Draft, Journal
from hushrec.privacy.ledger import Ledger
from hushrec.privacy.noise import NoiseSource
from hushrec.privacy.release import Plan, Release, check_fit
from hushrec.privacy.season import OF_A_SEASON, Season, Week, epsilon_together
from hushrec.privacy.statement import PrivacyStatement


class _Digested(Protocol):
    @property
    def digest(self) -> str:
        """SHA-256 of the model file."""


class SeasonAccountant(Accountant):
    """Spends one week of a season's budget; make one for each week.

    Parameters
    ----------
    season : Season
        Equal to the one in the ledger.
    after : PrivacyStatement, optional
        `Model.privacy` of the last week's model; None before week 0.
    skip : bool
        Pass over weeks that were cut short, or begin a new model.
    week : int, optional
        The number of the week; refused if it is not the next one.
    early : bool
        The week may begin sooner than the season's gap allows.
    attendance : Attendance, optional
        Counts each user's trainings; it needs a ledger. Without it a week counts as a training of all users.
    ledger, dataset, noise, data_is_public
        See :class:`Accountant`. Without a ledger neither a repeated week nor an edited model is detected.

    Privacy
    -------
    All weeks together, past and future, satisfy the season's budget for each user id. Proof:
    docs/proofs/seasons.md.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> season = hushrec.Season(hushrec.Budget(epsilon=5, delta=1e-6))
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
        check_kind(season, Season, "season", "pass Season(budget)")
        check_flags(skip=skip, early=early)
        super().__init__(
            season.budget,
            ledger=ledger,
            dataset=dataset,
            noise=noise,
            data_is_public=data_is_public,
        )
        check_kind(attendance, (Attendance, NoneType), "attendance", "pass Attendance(path)")
        if attendance is not None and ledger is None:
            raise InputError(
                "An attendance is kept with a ledger; pass --ledger too (ledger=Ledger(path)).",
                parameter="attendance",
            )
        self.attendance, self._admitted, self._admits = attendance, False, False
        self.after, self._early = None, early
        number = 0
        if after is not None:
            self.after = last = _week_of(after, season, dataset)
            number = last.number + 1
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
        if week is not None:
            _check_meant(week, number, season)
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
        spent = Plan(self.budget, self.releases).mu / self.week.season.mu
        return f"SeasonAccountant({self.week}, of which {spent**2:.0%} is spent; for all weeks {self.budget})"

    @property
    def remaining_fraction(self) -> float:
        spent = Plan(self.budget, self.releases).mu / self.budget.mu
        return max(0.0, self.week.season.fraction - spent**2)

    def check(self, plan: Plan) -> None:
        with self._lock:
            self._check_fit(plan.releases)
            if self.ledger is not None:
                made = len(self.releases)
                self.ledger.check_week(
                    self.week, plan.releases, after=self.after, made=made, early=self._early
                )

    @contextmanager
    def admit(self, users: Iterable[str] = ()) -> Iterator[np.ndarray]:
        """Yield the weight of each user in this week, or one weight of all users without an attendance.

        The attendance counts the training for these users before any charge. Releases are allowed within the
        context only. `users` are canonical texts of ids, each once.
        """
        season, dataset = self.week.season, self.week.dataset
        if self._admitted:
            raise BudgetError("This week of a season has admitted its users; train it once.")
        if self.ledger is not None:
            # the ledger has charges of `week.number` weeks, now and at this week's first charge
            self.ledger.check_week(self.week, (), after=self.after, early=self._early)
        counts: npt.ArrayLike = self.week.number
        if self.attendance is not None and self.ledger is not None:
            last = self.ledger.season(dataset, season.name).run
            counts = self.attendance.admit(self.week, last, users)
        self._admitted = self._admits = True
        try:
            yield season.weight(counts)
        finally:
            self._admits = False

    def check_model(self, model: _Digested) -> None:
        """Refuse a model whose digest differs from the one in the ledger."""
        if self.ledger is not None and self.after is not None:
            self.ledger.check_model(self.after, model.digest)

    def wrote(self, model: _Digested) -> None:
        """Record the digest of this week's model, before its file gets a name."""
        if self.ledger is not None and self.releases:
            self.ledger.wrote(self.week, model.digest)

    def statement(
        self, public: Iterable[str] = (), notes: Iterable[str] = (), *, exact_arithmetic: bool = False
    ) -> PrivacyStatement:
        notes = (*notes, OF_A_SEASON)
        if self.ledger is None and self.after is not None:
            notes += ("Without a ledger nothing tells whether the last week's model was edited.",)
        if self._others:
            budgets = [self.budget, *(other.budget for other in self._others)]
            names = ", ".join(f'"{other.name}"' for other in self._others)
            both = self.budget.spell(epsilon_together(budgets, self.budget.delta))
            notes += (f"Users who are also in season {names} of this data set are promised {both} together.",)
        return replace(super().statement(public, notes, exact_arithmetic=exact_arithmetic), week=self.week)

    def _charge(
        self, release: Release, take: Callable[[], Any] = lambda: None, journal: Journal | None = None
    ) -> tuple[Any, Draft | None]:
        if not self._admits:
            raise BudgetError(
                "A week of a season cannot release rows that were not weighed; train it with fit or"
                " continue_training."
            )
        return super()._charge(release, take, journal)

    def _record(self, ledger: Ledger, release: Release, step: int | None) -> None:
        step = len(self.releases)
        charge = ledger.charge(self.dataset, self.run, release, step=step, week=self.week, early=self._early)
        self.week = replace(self.week, charge=charge)

    def _check_fit(self, coming: Iterable[Release]) -> None:
        coming = tuple(coming)
        self.week.season.check_week(self.week.number, [*self.releases, *coming])
        check_fit(self.budget, self._releases, coming)


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
