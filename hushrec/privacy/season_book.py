"""The seasons of a ledger: their budgets, and which weeks were run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from hushrec.errors import BudgetError, InputError
from hushrec.privacy._validate import name, shown
from hushrec.privacy.accounting import total_mu
from hushrec.privacy.budget import Budget, Cost
from hushrec.privacy.ledger_file import OF_A_WEEK, Charge, Dataset, LedgerFile
from hushrec.privacy.release import Release
from hushrec.privacy.season import Season, SeasonSummary, Week, epsilon_together


class SeasonBook(LedgerFile):
    """What a ledger does with seasons; each of its methods is one transaction.

    A week's charges count in its season's budget, in the week's slice of it, and in the data set's budget.
    """

    def open_season(self, dataset: str, season: Season, *, add_up: bool = False) -> None:
        """Give a data set a season.

        Parameters
        ----------
        dataset : str
        season : Season
        add_up : bool
            That the data set has or had another season, to whose cost this one's adds, is understood.

        Raises
        ------
        BudgetError
            There is another season and `add_up` is not set, or the budget of the data set has no room.
        InputError
            The name is taken, or unit or relation is not that of the earlier charges.
        """
        name("dataset", dataset)
        budget = season.budget
        with self._transaction("IMMEDIATE") as connection:
            limit = self._open_to(connection, dataset, budget.unit, budget.relation)
            known = self._seasons(connection, dataset)
            names = [each.season.name for each in known]
            if season.name in names:
                raise InputError(
                    f'Data set "{dataset}" has a season {shown(season.name)} already; give this one another'
                    " name."
                )
            if known and not add_up:
                both = epsilon_together([*(each.season.budget for each in known), budget], budget.delta)
                raise BudgetError(
                    f'Data set "{dataset}" has had {len(known)} season{"s" * (len(known) > 1)}'
                    f" ({', '.join(map(shown, names))}), and this one adds to it: whoever is in all of them"
                    f" would be promised {budget.spell(both)}; pass --add-up if that is understood."
                )
            planned: list[Cost] = [*self._outside(connection, dataset), _Whole(budget)]
            planned += [_Whole(each.season.budget) for each in known]
            if limit is not None and not limit.allows(planned):
                raise BudgetError(
                    f'Data set "{dataset}" has a budget of {limit}, which has no room for this season of'
                    f" {budget} beside what was charged or promised; declare a smaller one."
                )
            if self._dataset(connection, dataset) is None:
                self._put_dataset(connection, dataset, Dataset(budget.unit, budget.relation, None))
            limits = (budget.epsilon, budget.delta, budget.failure)
            row = (dataset, season.name, season.weeks, season.first_share, *limits, 0)
            connection.execute("INSERT INTO seasons VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            self._seal(connection)

    def close_season(self, dataset: str, season: str) -> None:
        """Allow no further week of a season, for good."""
        with self._transaction("IMMEDIATE") as connection:
            self._season(connection, dataset, season)
            where = "dataset = ? AND name = ?"
            connection.execute(f"UPDATE seasons SET closed = 1 WHERE {where}", (dataset, season))
            self._seal(connection)

    def seasons(self, dataset: str) -> list[SeasonSummary]:
        """All seasons of a data set, in the order in which they were opened."""
        with self._transaction("DEFERRED") as connection:
            return self._seasons(connection, dataset)

    def season(self, dataset: str, season: str) -> SeasonSummary:
        """A season of a data set; refused where there is none of that name."""
        with self._transaction("DEFERRED") as connection:
            return self._season(connection, dataset, season)

    def check_week(
        self, week: Week, releases: Iterable[Release], *, after: Week | None = None, made: int = 0
    ) -> None:
        """Raise what charging a week's releases would raise; write nothing.

        Parameters
        ----------
        week : Week
        releases : iterable of Release
        after : Week, optional
            That of the model from which it goes on.
        made : int
            Releases of the week that whoever asks has made already: others must not have made any.
        """
        with self._transaction("DEFERRED", OF_A_WEEK) as connection:
            self._check(connection, week.dataset, tuple(releases))
            self._check_week(connection, week, tuple(releases), after, made)

    # ---------------------------------------------------------------------- inside a transaction

    def _check_week(
        self,
        connection: sqlite3.Connection,
        week: Week,
        releases: Iterable[Release],
        after: Week | None = None,
        made: int | None = None,
    ) -> None:
        found, called = self._season(connection, week.dataset, week.season.name), shown(week.season.name)
        if found.season != week.season:
            raise InputError(
                f"Season {called} is another one in the ledger {self.path}: there it is {found.season}, with"
                f" a budget of {found.season.budget}; use the ledger in which the model's season was opened."
            )
        if found.closed:
            raise BudgetError(f"Season {called} was closed: nothing more is charged to it.")
        if after is not None and not self._wrote(connection, after):
            raise InputError(
                f"This model's week {after.number} of season {called} is not in the ledger {self.path}: use"
                " the ledger that it was charged to."
            )
        mine = self._charges_of(connection, week.dataset, week.season.name, week.run)
        begun = found.begun - bool(mine)
        if begun > week.number or (made is not None and len(mine) != made):
            raise BudgetError(
                f"Week {week.number} of season {called} was run already; go on from the model that it wrote,"
                " or with --skip-week if it was cut short, which leaves its slice unspent."
            )
        if begun < week.number:
            raise InputError(
                f"The ledger {self.path} has seen {begun} weeks of season {called}, so week {week.number}"
                " cannot be next; use the ledger that the season's weeks were charged to."
            )
        week.season.check_week(week.number, [*mine, *releases])

    def _season(self, connection: sqlite3.Connection, dataset: str, season: str) -> SeasonSummary:
        self._known(connection, dataset)
        for each in self._seasons(connection, dataset):
            if each.season.name == season:
                return each
        raise InputError(
            f'Data set "{dataset}" has no season {shown(season)} in the ledger {self.path}; open one with'
            " hushrec season open."
        )

    def _seasons(self, connection: sqlite3.Connection, dataset: str) -> list[SeasonSummary]:
        query = (
            "SELECT s.name, s.weeks, s.first_share, s.epsilon, s.delta, d.unit, d.relation, s.failure,"
            " s.closed"
            " FROM seasons AS s JOIN datasets AS d ON d.name = s.dataset WHERE s.dataset = ? ORDER BY s.rowid"
        )
        found = []
        for called, weeks, share, *budget, closed in connection.execute(query, (dataset,)).fetchall():
            season = Season(Budget(*budget), weeks, share, called)
            charges = self._charges_of(connection, dataset, called)
            runs, last = connection.execute(
                "SELECT COUNT(DISTINCT run), MAX(id) FROM charges WHERE dataset = ? AND season = ?",
                (dataset, called),
            ).fetchone()
            if last is not None:
                last = connection.execute("SELECT hash FROM charges WHERE id = ?", (last,)).fetchone()[0]
            mu = total_mu(charge.mu for charge in charges)
            found.append(SeasonSummary(season, dataset, closed != 0, runs, mu, len(charges), last))
        return found

    @staticmethod
    def _wrote(connection: sqlite3.Connection, week: Week) -> bool:
        """Whether a week's last charge is in this ledger."""
        row = connection.execute(
            "SELECT hash FROM charges WHERE dataset = ? AND season = ? AND run = ? ORDER BY id DESC LIMIT 1",
            (week.dataset, week.season.name, week.run),
        ).fetchone()
        return row is not None and row[0] == week.charge

    def _charges_of(
        self, connection: sqlite3.Connection, dataset: str, season: str, run: str | None = None
    ) -> list[Charge]:
        where = "dataset = ? AND season = ?" + (" AND run = ?" if run else "")
        return self._charges(connection, where, (dataset, season, *([run] if run else [])))

    def _outside(self, connection: sqlite3.Connection, dataset: str) -> list[Charge]:
        """Charges of a data set that belong to no season."""
        return self._charges(connection, "dataset = ? AND season IS NULL", (dataset,))


class _Whole:
    """All of a budget as one cost."""

    epsilon = None

    def __init__(self, budget: Budget) -> None:
        self.mu, self.failure = budget.mu, budget.failure
