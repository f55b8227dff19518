"""A ledger: what every run has spent on a data set, on disk before anything is released.

One SQLite file in WAL mode with ``synchronous=FULL``: a charge that `Ledger.charge` has returned from
survives a kill or a power cut, and BEGIN IMMEDIATE puts processes that race for a budget in order.
Each charge carries the hash of the one before it, and the head those of the budgets, so a changed, lost or
inserted row is found when the ledger is opened; like any file, it cannot defend itself against an owner who
deletes it or writes all of it anew. Whatever goes wrong raises LedgerError, and nothing is released.
"""

import math
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from hushrec import notebook
from hushrec.checks import check_kind, name, plural
from hushrec.errors import BudgetError, HushrecError, InputError, LedgerError
from hushrec.privacy import schema
from hushrec.privacy.accounting import ROUNDING, total_mu, valid_delta
from hushrec.privacy.budget import Budget, composed_epsilon, guarantee
from hushrec.privacy.ledger_file import OF_A_WEEK, OF_RUN, RESUMED, Charge, Dataset
from hushrec.privacy.release import Release
from hushrec.privacy.season import Week
from hushrec.privacy.season_book import SeasonBook, beside

_STEP = f"{OF_RUN} AND step = ?"  # which no step, NULL, equals
#: At which a notebook shows epsilon where a data set has no budget.
_SHOWN_DELTA = 1e-6


@dataclass(frozen=True)
class LedgerSummary:
    """All charges of one data set, taken together.

    Attributes
    ----------
    dataset, unit, relation : str
    epsilon, delta : float
        Of all charges together; bookkeeping, unless the data set has a budget, which is then the promise.
    mu : float
    charges, runs : int
    budget : Budget or None
    closed : bool
        Whether nothing more may be charged.
    reserved : float
        Part of mu squared that open seasons are yet to spend.
    promised : float or None
        Epsilon at `delta` of all charges with all that open seasons reserve; None where there is none.

    Examples
    --------
    >>> book = hushrec.Ledger("ledger.sqlite")
    >>> accountant = hushrec.Accountant(hushrec.Budget(5, 1e-6), ledger=book, dataset="shop")
    >>> model = hushrec.ItemBias().fit(hushrec.realistic(200, 30, 3000, seed=0), accountant)
    >>> summary = book.summary("shop", delta=1e-6)
    >>> summary.dataset, summary.runs, round(summary.epsilon, 2)
    ('shop', 1, 5.0)
    """

    dataset: str
    unit: str
    relation: str
    epsilon: float
    delta: float
    mu: float
    charges: int
    runs: int
    budget: Budget | None
    closed: bool = False
    reserved: float = 0.0
    promised: float | None = None

    @property
    def shares(self) -> dict[str, float | None] | None:
        """The parts of the budget's mu squared that are spent, reserved and free.

        Without a budget as parts of what is spent and reserved, and nothing tells what is free. None where
        nothing can be a part of it.
        """
        whole = self.mu**2 + self.reserved if self.budget is None else self.budget.mu**2
        if not 0 < whole < math.inf:
            return None
        spent, reserved = self.mu**2 / whole, self.reserved / whole
        free = None if self.budget is None else 0.0 if self.closed else max(0.0, 1 - spent - reserved)
        return {"spent": spent, "reserved": reserved, "free": free}

    def _repr_html_(self) -> str:
        """Return a bar of what is spent, reserved and free, for a notebook."""
        return notebook.shares(f"{self.dataset}: {self}", self.shares or {}, "Parts are of mu squared.")

    def __str__(self) -> str:
        total = guarantee(self.epsilon, self.delta, self.unit, self.relation)
        limit = "no budget is set" if self.budget is None else f"its budget is {self.budget}"
        if self.promised is not None:
            both = guarantee(self.promised, self.delta, self.unit, self.relation)
            with_seasons = f"with what open seasons are yet to spend {both} holds over all of them"
            if self.budget is not None and self.promised > self.budget.epsilon * (1 + ROUNDING):
                with_seasons = "what open seasons reserve is more than its budget has left"
            limit = f"{with_seasons}; {limit}"
        limit += ", and it is closed" if self.closed else ""
        runs = plural(self.runs, "run")
        warning = "NOT PRIVATE, " if self.epsilon == math.inf else ""
        return f'{warning}{runs} on data set "{self.dataset}" charged {total} together; {limit}'

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description (infinity stays a float)."""
        words = ("epsilon", "delta", "failure")
        budget = None if self.budget is None else {word: getattr(self.budget, word) for word in words}
        return asdict(self) | {"budget": budget}

    @classmethod
    def from_dict(cls, entry: dict[str, Any]) -> "LedgerSummary":
        """Inverse of `to_dict`."""
        limit, protects = entry["budget"], (entry["unit"], entry["relation"])
        budget = None
        if limit is not None:
            budget = Budget(limit["epsilon"], limit["delta"], *protects, limit.get("failure", 0.0))
        known = {each.name: entry[each.name] for each in fields(cls) if each.name in entry}
        if not all(isinstance(known.get(word), int | float | None) for word in ("reserved", "promised")):
            raise TypeError("not what seasons reserve")
        return cls(**known | {"budget": budget})  # hushrec 0.2 wrote fewer


class Entry(NamedTuple):
    """A numbered charge of a run, where its noisy value is kept, if it is, and what was released."""

    step: int
    file: str | None
    digest: str | None
    release: tuple[Any, ...]


@dataclass(frozen=True)
class RunSummary:
    """One run of a data set, and where it brought the total.

    Attributes
    ----------
    run, time : str
        Identifier, and the time (UTC) of its first charge.
    charges : int
    epsilon : float
        Of this run and all before it together, at the delta that was asked for.
    mu : float
        Likewise.
    """

    run: str
    time: str
    charges: int
    epsilon: float
    mu: float


def default_path() -> Path:
    """Return $HUSHREC_LEDGER, or ledger.sqlite in hushrec's folder of the platform's state folder.

    Examples
    --------
    >>> hushrec.privacy.default_path().name
    'ledger.sqlite'
    """
    if chosen := os.environ.get("HUSHREC_LEDGER"):
        return Path(chosen)
    try:
        if sys.platform == "win32":
            state = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        else:
            state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError:
        raise LedgerError(
            "There is no home folder for the ledger; name a file with --ledger or HUSHREC_LEDGER."
        ) from None
    return state / "hushrec" / "ledger.sqlite"


class Ledger(SeasonBook):
    """A file of charges, shared by runs and processes.

    Parameters
    ----------
    path : str or path
        Readable and writable by its owner only, as is its folder, where they are created here.
    create : bool
        Whether to create the file if it does not exist.

    Raises
    ------
    LedgerError
        The file cannot be opened or written, is not a ledger, or was damaged or changed.

    Examples
    --------
    >>> ledger = hushrec.Ledger("shop.sqlite")
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> for epsilon in (1, 1):
    ...     accountant = hushrec.Accountant(hushrec.Budget(epsilon, 1e-6), ledger=ledger, dataset="shop")
    ...     model = hushrec.Popular().fit(ratings, accountant)
    >>> round(ledger.summary("shop", 1e-6).epsilon, 2)         # two runs of epsilon 1
    1.45
    """

    def __repr__(self) -> str:
        """Name the path, and what each data set was charged and has reserved, where that can be read."""
        try:
            budgets = {each: self.left(each) is not None for each in self.datasets()}
            said = [str(self.summary(each, None if limited else 1e-6)) for each, limited in budgets.items()]
        except HushrecError:
            said = ["cannot be read"]
        return f"Ledger({str(self.path)!r}: {'; '.join(said) or 'no data set yet'})"

    def open_dataset(self, dataset: str, budget: Budget) -> None:
        """Give a data set a budget that all its runs share, or lower the one it has, not below a reserve.

        The reserve for failures may be set anew until the first charge; then, like the rest, only lowered.

        Raises
        ------
        BudgetError
            It would raise the budget or what is reserved, or more than it has been spent already.
        InputError
            The budget is infinite, or its unit or relation is not that of the earlier charges.
        """
        name("dataset", dataset)
        check_kind(budget, Budget, "budget", "pass Budget(epsilon=..., delta=...)")
        if not budget.private:
            raise InputError("An infinite epsilon is no budget; pass a finite one.", parameter="epsilon")
        with self._transaction("IMMEDIATE") as connection:
            current = self._open_to(connection, dataset, budget.unit, budget.relation)
            if current is not None and (budget.epsilon > current.epsilon or budget.delta > current.delta):
                raise BudgetError(
                    f'The budget of data set "{dataset}" is {current}; neither its epsilon nor its delta can '
                    "be raised: that would break what its users were promised."
                )
            charges = self._charges(connection, "dataset = ?", (dataset,))
            if (
                current is not None
                and charges
                and (budget.failure > current.failure or budget.mu > current.mu * (1 + ROUNDING))
            ):
                raise BudgetError(
                    f'Data set "{dataset}" has been charged under the budget {current}; what is reserved for '
                    "failures can be chosen before the first charge only, since afterwards the choice could "
                    "follow what was released."
                )
            committed = self._committed(connection, dataset)
            budget.check_reserve(committed)
            if not budget.allows(committed):
                spent = budget.spell(composed_epsilon(committed, budget.delta))
                with_seasons = beside(self._seasons(connection, dataset), ", with")
                raise BudgetError(
                    f'Data set "{dataset}" has been charged {spent} already{with_seasons}, past a budget of'
                    f" {budget}; declare at least that."
                )
            self._put_dataset(connection, dataset, Dataset(budget.unit, budget.relation, budget))

    def close_dataset(self, dataset: str) -> None:
        """Allow no further charge to a data set, for good.

        Raises
        ------
        InputError
            The ledger does not know it.
        """
        name("dataset", dataset)
        with self._transaction("IMMEDIATE") as connection:
            known = self._known(connection, dataset)
            self._put_dataset(connection, dataset, known._replace(closed=True))

    def check(
        self,
        dataset: str,
        releases: Iterable[Release],
        *,
        failure: float = 0.0,
        run: str = "",
        allow_composition: bool = False,
    ) -> None:
        """Raise what charging for these releases and a chance of failure would raise; write nothing."""
        with self._transaction("DEFERRED") as connection:
            self._check(
                connection, dataset, tuple(releases), failure, run=run, allow_composition=allow_composition
            )

    def charge(
        self,
        dataset: str,
        run: str,
        release: Release,
        *,
        step: int | None = None,
        failure: float = 0.0,
        week: Week | None = None,
        allow_composition: bool = False,
        early: bool = False,
    ) -> str:
        """Record one release durably, or raise and record nothing.

        A release without noise is recorded with infinite mu where the data set has no budget, and refused
        where it has one.

        Parameters
        ----------
        dataset : str
            Its first charge fixes unit and relation.
        run : str
            Identifier of the run.
        release : Release
        step : int, optional
            Number of the release in its run, where it must not be charged, nor made, twice.
        failure : float
            Chance with which all of the run may fail, charged with its first release only.
        week : Week, optional
            Of a season: the release counts in its budget too.
        allow_composition : bool
            That a run beside an open season of a data set without a budget adds to it is understood; and of
            a week, that an older version has promised more than the data set's budget.
        early : bool
            A week that begins sooner than its season's gap is meant.

        Returns
        -------
        Hash of the charge.
        """
        with self._transaction("IMMEDIATE", RESUMED if week is None else OF_A_WEEK) as connection:
            if self._charges(connection, f"{OF_RUN} LIMIT 1", (dataset, run)):
                failure = 0.0
            of_week = week is not None
            self._check(
                connection,
                dataset,
                (release,),
                failure,
                run=run,
                of_week=of_week,
                allow_composition=allow_composition,
            )
            if week is not None:
                coming = (release, Charge(0.0, 0.0, failure))
                self._check_week(connection, week, coming, made=step, early=early)
            if self._charges(connection, _STEP, (dataset, run, step)):
                raise BudgetError(
                    f'Release {release.label!r} of this run on data set "{dataset}" was charged already; it '
                    "is made once only."
                )
            if self._dataset(connection, dataset) is None:
                self._put_dataset(connection, dataset, Dataset(release.unit, release.relation, None))
            now = datetime.now(UTC).isoformat(timespec="seconds")
            row: tuple[Any, ...] = (
                dataset, run, now, release.label, repr(release.mechanism), release.sensitivity, release.mu,
                release.epsilon, release.failure + failure, release.unit, release.relation,
                None if week is None else week.season.name, step,
            )  # fmt: skip
            head = schema.append(connection, row)
        self._verified = head
        return head[1]

    def charged(self, dataset: str, run: str, step: int) -> bool:
        """Tell whether a numbered release of a run was charged."""
        with self._transaction("DEFERRED") as connection:
            return bool(self._charges(connection, _STEP, (dataset, run, step)))

    def numbered(self, dataset: str, run: str) -> list[Entry]:
        """The charges of a run that have a step, in order."""
        with self._transaction("DEFERRED") as connection:
            rows = connection.execute(
                "SELECT step, file, digest, label, mechanism, sensitivity, unit, relation FROM charges"
                f" LEFT JOIN journal ON charge = id WHERE {OF_RUN} AND step >= 0 ORDER BY id",
                (dataset, run),
            )
            return [Entry(row[0], row[1], row[2], tuple(row[3:])) for row in rows]

    def keep(self, dataset: str, run: str, step: int, file: str, digest: str) -> None:
        """Record where the noisy value of a charge is kept."""
        with self._transaction("IMMEDIATE") as connection:
            charge = f"SELECT id, ?, ? FROM charges WHERE {OF_RUN} AND step = ?"
            connection.execute(f"INSERT INTO journal {charge}", (file, digest, dataset, run, step))
            self._seal(connection)

    def forget(self, run: str, first: int, stop: int) -> None:
        """Record that the noisy values of a run are kept no longer, from a step on and up to another."""
        with self._transaction("IMMEDIATE") as connection:
            charges = "SELECT id FROM charges WHERE run = ? AND step >= ? AND step < ?"
            connection.execute(f"DELETE FROM journal WHERE charge IN ({charges})", (run, first, stop))
            self._seal(connection)

    def summary(self, dataset: str, delta: float | None = None) -> LedgerSummary:
        """Return what all runs on a data set have charged together.

        Parameters
        ----------
        dataset : str
        delta : float, optional
            At which to give epsilon; the delta of the data set's budget by default. Without a budget, more
            of it where selections, which fail with a chance of their own, leave nothing of it to the others.
        """
        with self._transaction("DEFERRED") as connection:
            known = self._known(connection, dataset)
            if delta is None and known.budget is not None:
                delta = known.budget.delta
            delta = valid_delta(delta)
            charges = self._charges(connection, "dataset = ?", (dataset,))
            failures = math.fsum(charge.failure for charge in charges)
            if known.budget is None and composed_epsilon(charges, delta) == math.inf:
                delta += failures if delta + failures < 1 else 0.0
            runs = connection.execute("SELECT COUNT(DISTINCT run) FROM charges WHERE dataset = ?", (dataset,))
            still = [each for each in self._seasons(connection, dataset) if not each.closed]
            promised = composed_epsilon(self._committed(connection, dataset), delta) if still else None
            return LedgerSummary(
                dataset=dataset,
                **known._asdict(),
                epsilon=composed_epsilon(charges, delta),
                delta=delta,
                mu=total_mu(charge.mu for charge in charges),
                charges=len(charges),
                runs=runs.fetchone()[0],
                reserved=math.fsum(each.reserved for each in still),
                promised=promised,
            )

    def left(self, dataset: str) -> str | None:
        """Say what is left of a data set's budget beside what seasons reserve; None where it has none."""
        with self._transaction("DEFERRED") as connection:
            budget = self._known(connection, dataset).budget
            return None if budget is None else budget.left(self._committed(connection, dataset))

    def _repr_html_(self) -> str:
        """Return a bar for each data set, for a notebook."""
        known = [self.summary(dataset, _SHOWN_DELTA) for dataset in self.datasets()]
        own = [each if each.budget is None else self.summary(each.dataset) for each in known]
        return notebook.table(self.path.name, [()]) + "".join(each._repr_html_() for each in own)

    def datasets(self) -> list[str]:
        """Names of all data sets."""
        with self._transaction("DEFERRED") as connection:
            return [each[0] for each in connection.execute("SELECT name FROM datasets ORDER BY name")]

    def chain(
        self, dataset: str, count: int | None = None
    ) -> tuple[tuple[int, str] | None, list[tuple[Any, ...]]]:
        """Return the head of the chain and the charges of a data set, as their hashes count them.

        Parameters
        ----------
        dataset : str
        count : int, optional
            As they were after so many charges of all data sets; the head is None where there never were.
        """
        with self._transaction("DEFERRED") as connection:
            self._known(connection, dataset)
            found = connection.execute("SELECT id, hash FROM charges WHERE id = ?", (count,)).fetchone()
            head = self._verified if count is None else found
            upto = sys.maxsize if count is None else count
            query = "SELECT * FROM charges WHERE dataset = ? AND id <= ? ORDER BY id"
            return head, connection.execute(query, (dataset, upto)).fetchall()

    def history(self, dataset: str, delta: float) -> list[RunSummary]:
        """Return every run on a data set, in order, with the total that it brought.

        Parameters
        ----------
        dataset : str
        delta : float
            At which to give epsilon.
        """
        delta = valid_delta(delta)
        with self._transaction("DEFERRED") as connection:
            self._known(connection, dataset)
            rows = connection.execute(
                "SELECT run, time, mu, epsilon, failure FROM charges WHERE dataset = ? ORDER BY id",
                (dataset,),
            ).fetchall()
        runs: dict[str, tuple[str, list[Charge]]] = {}
        for run, time, *cost in rows:
            runs.setdefault(run, (time, []))[1].append(Charge(*cost))
        summaries, together = [], list[Charge]()
        for run, (time, charges) in runs.items():
            together += charges
            epsilon = composed_epsilon(together, delta)
            mu = total_mu(charge.mu for charge in together)
            summaries.append(RunSummary(run, time, len(charges), epsilon, mu))
        return summaries
