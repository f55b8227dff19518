"""The seasons of a ledger: their budgets, and which weeks were run."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from hushrec.checks import name, plural, shown
from hushrec.errors import BudgetError, InputError
from hushrec.privacy.accounting import total_mu
from hushrec.privacy.budget import Budget, Cost, composed_epsilon
from hushrec.privacy.ledger_file import OF_A_WEEK, OF_RUN, Charge, Dataset, LedgerFile
from hushrec.privacy.release import Release
from hushrec.privacy.season import Season, SeasonSummary, Week, epsilon_together


class Share(NamedTuple):
    """The part of a data set's budget, in mu squared, of a season or of all runs outside of seasons.

    Attributes
    ----------
    what : str
    spent : float
        Of all charges.
    reserved : float
        What an open season is yet to spend.
    """

    what: str
    spent: float
    reserved: float


class SeasonBook(LedgerFile):
    """The part of a ledger that keeps seasons; each of its methods is one transaction.

    A week's charges count in its season's budget, in the week's slice of it, and in the data set's budget,
    where all of an open season's budget is reserved.
    """

    def open_season(self, dataset: str, season: Season, *, allow_composition: bool = False) -> None:
        """Give a data set a season.

        Parameters
        ----------
        dataset : str
        season : Season
        allow_composition : bool
            That the data set has or had another season, to whose cost this one's adds, is understood.

        Raises
        ------
        BudgetError
            There is another season and `allow_composition` is not set, or the budget has no room.
        InputError
            The name is taken, or unit or relation is not that of the earlier charges.
        """
        name("dataset", dataset)
        budget = season.budget
        budget.share(1.0)  # refused where all of delta is reserved, so that no week could release anything
        with self._transaction("IMMEDIATE") as connection:
            limit = self._open_to(connection, dataset, budget.unit, budget.relation)
            known = self._seasons(connection, dataset)
            names = [each.season.name for each in known]
            if season.name in names:
                raise InputError(
                    f'Data set "{dataset}" has a season {shown(season.name)} already; give this one another'
                    " name."
                )
            if known and not allow_composition:
                both = epsilon_together([*(each.season.budget for each in known), budget], budget.delta)
                raise BudgetError(
                    f'Data set "{dataset}" has had {plural(len(known), "season")}'
                    f" ({', '.join(map(shown, names))}), and this one adds to it: whoever is in all of them"
                    f" would be promised {budget.spell(both)}; pass --allow-composition"
                    " (allow_composition=True) if that is understood."
                )
            reserved = self._committed(connection, dataset)
            if limit is not None:
                limit.check_reserve([*reserved, _whole(budget)])
            if limit is not None and not limit.allows([*reserved, _whole(budget)]):
                raise BudgetError(
                    f'Data set "{dataset}" has a budget of {limit}, which has no room for this season of'
                    f" {budget} beside what was charged{beside(known)}; {limit.left(reserved)}."
                )
            if self._dataset(connection, dataset) is None:
                self._put_dataset(connection, dataset, Dataset(budget.unit, budget.relation, None))
            limits = (budget.epsilon, budget.delta, budget.failure)
            row = (dataset, season.name, season.weeks, season.first_share, *limits, 0, season.gap)
            connection.execute("INSERT INTO seasons VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            self._seal(connection)

    def close_season(self, dataset: str, season: str) -> None:
        """Allow no further week of a season, for good; a data set's budget gets back what it did not spend.

        Why that is sound: docs/proofs/seasons.md.
        """
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

    def shares(self, dataset: str) -> list[Share]:
        """Return what each season of a data set takes of mu squared, and last what all other runs take."""
        with self._transaction("DEFERRED") as connection:
            self._known(connection, dataset)
            shares = [
                Share(
                    f"season {shown(each.season.name)}, {each.begun} of {each.season.weeks} weeks"
                    + ", closed" * each.closed,
                    each.mu**2,
                    each.reserved,
                )
                for each in self._seasons(connection, dataset)
            ]
            where, of = "dataset = ? AND season IS NULL", (dataset,)
            runs = connection.execute(f"SELECT COUNT(DISTINCT run) FROM charges WHERE {where}", of)
            number = runs.fetchone()[0]
            outside = total_mu(charge.mu for charge in self._charges(connection, where, of))
            return [*shares, Share(plural(number, "other run" if shares else "run"), outside**2, 0.0)]

    def check_week(
        self,
        week: Week,
        releases: Iterable[Release],
        *,
        after: Week | None = None,
        made: int = 0,
        allow_composition: bool = False,
        early: bool = False,
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
        allow_composition, early : bool
            As of :meth:`Ledger.charge`.
        """
        coming = tuple(releases)
        with self._transaction("DEFERRED", OF_A_WEEK) as connection:
            self._check(connection, week.dataset, coming, of_week=True, allow_composition=allow_composition)
            self._check_week(connection, week, coming, after, made, early)

    def wrote(self, week: Week, digest: str) -> None:
        """Record the digest of the model that a week wrote: the next week goes on from no other."""
        with self._transaction("IMMEDIATE", OF_A_WEEK) as connection:
            if not self._wrote(connection, week):
                raise self._foreign(week)
            charge = "SELECT id, ? FROM charges WHERE hash = ?"
            connection.execute(f"INSERT OR REPLACE INTO models {charge}", (digest, week.charge))
            self._seal(connection)

    def check_model(self, week: Week, digest: str) -> bool:
        """Refuse a model that is not the one which a week wrote; False of a week of hushrec 0.2.

        Of such a week no digest was kept, so nothing can be compared.
        """
        with self._transaction("DEFERRED", OF_A_WEEK) as connection:
            self._season(connection, week.dataset, week.season.name)
            if not self._wrote(connection, week):
                raise self._foreign(week)
            kept = "SELECT digest FROM models JOIN charges ON id = charge WHERE hash = ?"
            row = connection.execute(kept, (week.charge,)).fetchone()
        if row is None or row[0] not in (digest, ""):
            raise InputError(
                f"This model is not the one that week {week.number} of season {shown(week.season.name)}"
                f" wrote: its digest is not in the ledger {self.path}. It was edited, saved with int8, or its"
                " training was cut short; go on from the file as it was written. Nothing was charged."
            )
        return bool(row[0])

    def season_releases(self, dataset: str, season: str) -> list[Release]:
        """All releases that were charged to a season, in order."""
        with self._transaction("DEFERRED") as connection:
            rows = connection.execute(
                "SELECT label, mechanism, sensitivity, unit, relation FROM charges"
                " WHERE dataset = ? AND season = ? ORDER BY id",
                (dataset, season),
            )
            return [Release.from_ledger(*row) for row in rows]

    # ---------------------------------------------------------------------- inside a transaction

    def _check(
        self,
        connection: sqlite3.Connection,
        dataset: str,
        releases: tuple[Release, ...],
        failure: float = 0.0,
        *,
        run: str = "",
        of_week: bool = False,
        allow_composition: bool = False,
    ) -> None:
        """Refuse what does not fit the data set's budget beside what its open seasons reserve.

        A week is in what its season reserves. Where a version that reserved nothing has promised more than
        there is, weeks go on with `allow_composition` for as long as charges alone fit.
        """
        if not releases:
            return
        name("dataset", dataset)
        budget = self._open_to(connection, dataset, releases[0].unit, releases[0].relation)
        still = [each for each in self._seasons(connection, dataset) if not each.closed]
        committed = self._committed(connection, dataset)
        coming: list[Cost] = [*releases, Charge(0.0, 0.0, failure)]
        if total_mu(each.mu for each in coming) == math.inf:
            self._check_exact(connection, dataset, budget)
        if budget is None:
            begun = self._charges(connection, f"{OF_RUN} LIMIT 1", (dataset, run))
            if still and not (of_week or allow_composition or begun):
                raise self._adds_up(dataset, still, [*committed, *coming])
            return
        costs = committed if of_week else [*committed, *coming]
        if of_week and allow_composition:
            costs = [*self._charges(connection, "dataset = ?", (dataset,)), *coming]
        budget.check_reserve(costs)
        if budget.allows(costs):
            return
        total = budget.spell(composed_epsilon(costs, budget.delta))
        if of_week and not allow_composition:
            raise BudgetError(
                f'Data set "{dataset}" was promised more than its budget of {budget} by a version that'
                f" reserved nothing: what was charged{beside(still)} come to {total}. Close a season that"
                " nobody goes on with (hushrec season close), or pass --allow-composition"
                " (allow_composition=True): weeks then go on for as long as the budget lasts. Nothing was"
                " charged."
            )
        raise BudgetError(
            f'This would bring data set "{dataset}" to {total} over all its runs{beside(still)}, past its '
            f"budget of {budget} in the ledger {self.path}; {budget.left(committed)}."
        )

    def _check_exact(self, connection: sqlite3.Connection, dataset: str, budget: Budget | None) -> None:
        """Refuse a release without noise where users were promised privacy, and no other has ended that."""
        charges = self._charges(connection, "dataset = ?", (dataset,))
        promised = budget is not None or charges or self._seasons(connection, dataset)
        if promised and all(charge.mu < math.inf for charge in charges):
            raise BudgetError(
                f'A run without privacy would end what the users of data set "{dataset}" in the ledger'
                f" {self.path} were promised: pass --dataset with a name of its own, or --data-is-public"
                " where the ratings are no secret (in Python dataset=..., or data_is_public=True and no"
                " ledger)."
            )

    def _adds_up(self, dataset: str, still: Sequence[SeasonSummary], costs: Sequence[Cost]) -> BudgetError:
        """Return the refusal of a run beside a season where no budget limits both, with what both cost."""
        budget = still[-1].season.budget
        both = budget.spell(composed_epsilon(costs, budget.delta))
        return BudgetError(
            f'Data set "{dataset}" has no budget but an open season {_names(still)}, and this run adds to it:'
            f" whoever is in all that was charged{beside(still)} and in this would be promised {both}; pass"
            " --allow-composition (allow_composition=True) if that is understood."
        )

    def _committed(self, connection: sqlite3.Connection, dataset: str) -> list[Cost]:
        """All charges of a data set, but in the place of an open season's all of its budget."""
        still = [each.season for each in self._seasons(connection, dataset) if not each.closed]
        rows = connection.execute(
            "SELECT season, mu, epsilon, failure FROM charges WHERE dataset = ?", (dataset,)
        )
        names = {season.name for season in still}
        charges = [Charge(*cost) for season, *cost in rows if season not in names]
        return [*charges, *(_whole(season.budget) for season in still)]

    def _foreign(self, week: Week) -> InputError:
        return InputError(
            f"This model's week {week.number} of season {shown(week.season.name)} is not in the ledger"
            f" {self.path}: use the ledger that it was charged to."
        )

    def _check_gap(self, connection: sqlite3.Connection, week: Week) -> None:
        """Refuse a week sooner than the season's gap after the last one that wrote a model began."""
        began = connection.execute(
            "SELECT MIN(time) FROM charges WHERE dataset = ? AND season = ? AND run ="
            " (SELECT run FROM charges JOIN models ON charge = id WHERE dataset = ? AND season = ?"
            " ORDER BY id DESC LIMIT 1)",
            (week.dataset, week.season.name) * 2,
        ).fetchone()[0]
        if began is None:
            return
        first = datetime.fromisoformat(began) + timedelta(days=week.season.gap)
        if datetime.now(UTC) < first:
            raise BudgetError(
                f"Week {week.number} of season {shown(week.season.name)} is too soon: the last one began at"
                f" {began}, and the season was opened with a gap of {week.season.gap:g} days, so the next may"
                f" begin at {first.isoformat()}. Nothing was charged; pass --early (early=True) to train it"
                " now."
            )

    def _check_week(
        self,
        connection: sqlite3.Connection,
        week: Week,
        releases: Iterable[Cost],
        after: Week | None = None,
        made: int | None = None,
        early: bool = False,
    ) -> None:
        found, called = self._season(connection, week.dataset, week.season.name), shown(week.season.name)
        if found.season != week.season:
            raise InputError(
                f"Season {called} is another one in the ledger {self.path}: there it is {found.season}, with"
                f" a budget of {found.season.budget}; use the ledger in which the model's season was opened."
            )
        if found.closed:
            raise BudgetError(
                f"Season {called} was closed: nothing more is charged to it; hushrec season open"
                " --allow-composition begins another."
            )
        if after is not None and not self._wrote(connection, after):
            raise self._foreign(after)
        mine = self._charges_of(connection, week.dataset, week.season.name, week.run)
        begun = found.begun - bool(mine)
        if begun > week.number or (made is not None and len(mine) != made):
            lost = (
                " or with --skip-week if it was cut short: what it charged stays charged, and the rest of its"
                " slice is spent by nobody."
                if week.number
                else " with hushrec retrain, or, if it was cut short, close the season and open another one"
                " with hushrec season open --allow-composition."
            )
            raise BudgetError(
                f"Week {week.number} of season {called} was run already; go on from the model that it"
                f" wrote,{lost}"
            )
        if begun < week.number:
            raise InputError(
                f"The ledger {self.path} has seen {plural(begun, 'week')} of season {called}, so week"
                f" {week.number} cannot be next; use the ledger that the season's weeks were charged to."
            )
        if week.season.gap and not (mine or early):
            self._check_gap(connection, week)
        week.season.check_week(week.number, [*mine, *releases])
        of_season = self._charges_of(connection, week.dataset, week.season.name)
        week.season.budget.check_reserve([*of_season, *releases])

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
            " s.closed, s.gap"
            " FROM seasons AS s JOIN datasets AS d ON d.name = s.dataset WHERE s.dataset = ? ORDER BY s.rowid"
        )
        found = []
        for called, weeks, share, *budget, closed, gap in connection.execute(query, (dataset,)).fetchall():
            season = Season(Budget(*budget), weeks, share, called, gap)
            charges = self._charges_of(connection, dataset, called)
            runs, _, last = connection.execute(  # in SQLite the hash is that of the row with the largest id
                "SELECT COUNT(DISTINCT run), MAX(id), hash FROM charges WHERE dataset = ? AND season = ?",
                (dataset, called),
            ).fetchone()
            mu = total_mu(charge.mu for charge in charges)
            found.append(SeasonSummary(season, dataset, closed != 0, runs, mu, len(charges), last))
        return found

    @staticmethod
    def _wrote(connection: sqlite3.Connection, week: Week) -> bool:
        """Tell whether a week's last charge is in this ledger."""
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


def _names(seasons: Iterable[SeasonSummary]) -> str:
    return ", ".join(shown(each.season.name) for each in seasons)


def beside(seasons: Iterable[SeasonSummary], joined: str = " and") -> str:
    """Say in a sentence on what runs cost what open seasons reserve beside them."""
    still = [each for each in seasons if not each.closed]
    if not still:
        return ""
    return f"{joined} what season {_names(still)} reserve{'s' * (len(still) == 1)} until closed"


def _whole(budget: Budget) -> Charge:
    """All of a budget as one cost."""
    return Charge(budget.mu, None, budget.failure)
