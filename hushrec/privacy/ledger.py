"""A ledger: the charges of every run on a data set, on disk before anything is released.

One SQLite file in WAL mode with ``synchronous=FULL``: a charge survives a power cut once `Ledger.charge` has
returned. BEGIN IMMEDIATE orders processes. A chain of hashes finds a changed, lost or inserted row.
"""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hushrec import notebook
from hushrec.checks import Single, check_flags, check_kind, line_of_text, plural, shown
from hushrec.disk import check_only_name, sync_folder, the_path
from hushrec.errors import BudgetError, HushrecError, InputError, LedgerError
from hushrec.privacy import ledger_rules as rules, schema
from hushrec.privacy.accounting import ROUNDING, total_mu, valid_delta
from hushrec.privacy.budget import Budget, Charge, Cost, composed_epsilon, pure_epsilon
from hushrec.privacy.ledger_records import LedgerSummary, Row, RunSummary, Share
from hushrec.privacy.release import Release
from hushrec.privacy.reservation import Reservation, Reserved
from hushrec.privacy.schema import Book, Dataset, by_run, looks
from hushrec.privacy.season import Season, SeasonSummary, Week, of_one_user

_LOG = logging.getLogger("hushrec.privacy.ledger")
RESUMED = " A training that had begun goes on with --resume."
#: A week of a season keeps no journal.
OF_A_WEEK = (
    " A week that had begun is not taken up again: go on with --skip-week, or begin a new model with hushrec"
    " train."
)
#: Delta at which a notebook shows epsilon where a data set has no budget.
_SHOWN_DELTA = 1e-6


def default_path() -> Path:
    """Return $HUSHREC_LEDGER, or ledger.sqlite in the platform's state folder.

    Examples
    --------
    >>> hushrec.privacy.default_path().name
    'ledger.sqlite'
    """
    if chosen := os.environ.get("HUSHREC_LEDGER"):
        return Path(chosen)
    return _own_path()


def _own_path() -> Path:
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


def _is_own(path: Path) -> bool:
    with suppress(LedgerError):  # there is no home folder
        return path == _own_path().resolve()
    return False


class Ledger(Single):
    """A file of charges that processes share. Each method is one transaction.

    Parameters
    ----------
    path : str or path
    create : bool
        Create a missing file with its first record, for its owner only, in a folder that exists; the log
        reports it.

    Raises
    ------
    LedgerError
        The file cannot be used, is no ledger, was changed, has a second name, or is mounted apart from its
        folder.

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

    busy_timeout = 30.0
    """Seconds to wait for another process."""

    _instead = "open its file where it is needed, with Ledger(path)"

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        check_kind(path, (str, os.PathLike), "path", "pass the path of a ledger")
        self.path = the_path(path, "The ledger", LedgerError)
        self._verified = (0, schema.GENESIS)
        with self._errors(""):
            self._new = not self.path.exists()
            if self._new and not create:
                raise LedgerError(f"There is no ledger at {self.path}; check the path.")
            if self._new:
                self._check_place()
        with self._transaction("DEFERRED", "") as book:
            if not book.is_sound():
                raise LedgerError(f"The ledger {self.path} is damaged; restore it from a copy.")

    def __repr__(self) -> str:
        try:
            summaries = [str(summary) for summary in self._summaries()]
        except HushrecError:
            summaries = ["cannot be read"]
        return f"Ledger({str(self.path)!r}: {'; '.join(summaries) or 'no data set yet'})"

    def _repr_html_(self) -> str:
        return notebook.table(self.path.name, [()]) + "".join(
            map(LedgerSummary._repr_html_, self._summaries())
        )

    def _summaries(self) -> list[LedgerSummary]:
        return [self.summary(dataset, unless_declared=_SHOWN_DELTA) for dataset in self.datasets()]

    @property
    def trainings(self) -> Path:
        """Folder of the journals and locks of trainings."""
        return schema.trainings_of(self.path)

    # ---------------------------------------------------------------------- data sets

    def datasets(self) -> list[str]:
        """Return all names."""
        with self._transaction("DEFERRED") as book:
            return book.datasets()

    def open_dataset(self, dataset: str, budget: Budget) -> None:
        """Give a data set a budget for all its runs, or lower it.

        After the first charge the reserve for failures can only be lowered.

        Raises
        ------
        BudgetError
            It raises the budget or the reserve, or is less than the charges.
        InputError
            The budget is infinite, or its unit or relation is not that of the earlier charges.
        """
        line_of_text("dataset", dataset)
        check_kind(budget, Budget, "budget", "pass Budget(epsilon=..., delta=...)")
        if not budget.private:
            raise InputError("An infinite epsilon is not a budget; pass a finite one.", parameter="epsilon")
        with self._transaction("IMMEDIATE") as book:
            current = rules.open_to(book, dataset, budget.unit, budget.relation)
            if current is not None and (budget.epsilon > current.epsilon or budget.delta > current.delta):
                raise BudgetError(
                    f'The budget of data set "{dataset}" is {current}; neither its epsilon nor its delta can '
                    "be raised: that would break what its users were promised."
                )
            if (
                current is not None
                and book.charges(dataset)
                and (budget.failure > current.failure or budget.mu > current.mu * (1 + ROUNDING))
            ):
                raise BudgetError(
                    f'Data set "{dataset}" has been charged under the budget {current}; what is reserved for '
                    "failures can be chosen before the first charge only, since afterwards the choice could "
                    "follow what was released."
                )
            trainings = rules.running(book, dataset)
            committed = [*book.committed(dataset), *trainings]
            budget.check_reserve(committed)
            if not budget.allows(committed):
                spent = budget.spell(composed_epsilon(committed, budget.delta))
                reserved = rules.also_reserved(book.seasons(dataset), trainings, ", with")
                raise BudgetError(
                    f'Data set "{dataset}" has been charged {spent} already{reserved}, past a budget of'
                    f" {budget}; declare at least that."
                )
            book.put_dataset(dataset, Dataset(budget.unit, budget.relation, budget))

    def close_dataset(self, dataset: str) -> None:
        """Allow no further charge to a data set, for good."""
        line_of_text("dataset", dataset)
        with self._transaction("IMMEDIATE") as book:
            book.put_dataset(dataset, rules.dataset_of(book, dataset)._replace(closed=True))

    def summary(
        self, dataset: str, delta: float | None = None, *, unless_declared: float | None = None
    ) -> LedgerSummary:
        """Return the cost of all runs on a data set.

        ``delta`` is by default the budget's, or ``unless_declared`` without a budget. Failures of selections
        raise the latter if they use it up.
        """
        with self._transaction("DEFERRED") as book:
            known = rules.dataset_of(book, dataset)
            if delta is None:
                delta = unless_declared if known.budget is None else known.budget.delta
            delta = valid_delta(delta)
            rows = [row for spelling in book.spellings(dataset) for row in book.charges(spelling)]
            charges = book.costs_of_a_user(dataset)
            failures = math.fsum(charge.failure for charge in charges)
            if known.budget is None and composed_epsilon(charges, delta) == math.inf:
                delta += failures if delta + failures < 1 else 0.0
            still = book.open_seasons(dataset)
            return LedgerSummary(
                dataset=dataset,
                **known._asdict(),
                epsilon=composed_epsilon(charges, delta),
                delta=delta,
                mu=total_mu(charge.mu for charge in charges),
                charges=len(rows),
                runs=len(by_run(rows)),
                reserved=math.fsum(season.reserved for season in still),
                promised=composed_epsilon(book.committed(dataset), delta) if still else None,
                running=math.fsum(training.mu**2 for training in rules.running(book, dataset)),
            )

    def left(self, dataset: str) -> str | None:
        """Return the free budget of a data set in words; None without a budget."""
        with self._transaction("DEFERRED") as book:
            budget = rules.dataset_of(book, dataset).budget
            if budget is None:
                return None
            trainings = rules.running(book, dataset)
            left = budget.left([*book.committed(dataset), *trainings])
            return f"{left}{rules.also_reserved((), trainings, ', next to')}"

    def shares(self, dataset: str) -> list[Share]:
        """Return mu squared of each season, each running training, and all other runs."""
        with self._transaction("DEFERRED") as book:
            rules.dataset_of(book, dataset)
            shares = [
                Share(
                    f"season {shown(summary.season.name)}, {summary.begun} weeks"
                    f"{', closed' * summary.closed}",
                    summary.mu**2,
                    summary.reserved,
                )
                for summary in book.seasons(dataset)
            ]
            shares += [
                Share(f"training since {training.time}, {training.owner}", 0.0, training.mu**2)
                for training in rules.running(book, dataset)
            ]
            others = book.charges(dataset, "season IS NULL")
            noun, spent = "other run" if shares else "run", total_mu(charge.mu for charge in others) ** 2
            return [*shares, Share(plural(len(by_run(others)), noun), spent, 0.0)]

    def history(self, dataset: str, delta: float) -> list[RunSummary]:
        """Return every run on a data set, with mu and epsilon so far."""
        delta = valid_delta(delta)
        with self._transaction("DEFERRED") as book:
            rules.dataset_of(book, dataset)
            runs, seasons = by_run(book.charges(dataset)), book.seasons(dataset)
        summaries, so_far = [], list[Row]()
        for charges in runs:
            so_far += charges
            together = of_one_user(so_far, [summary.season for summary in seasons])
            epsilon = composed_epsilon(together, delta)
            mu = total_mu(charge.mu for charge in together)
            summaries.append(RunSummary(charges[0].run, charges[0].time, len(charges), epsilon, mu))
        return summaries

    def chain(
        self, dataset: str, count: int | None = None
    ) -> tuple[tuple[int, str] | None, list[tuple[Any, ...]]]:
        """Return the head of the chain and a data set's charges, when all data sets had ``count`` charges.

        The head is None if there are fewer.
        """
        with self._transaction("DEFERRED") as book:
            rules.dataset_of(book, dataset)
            head = self._verified if count is None else book.head_at(count)
            return head, book.chain(dataset, sys.maxsize if count is None else count)

    # ---------------------------------------------------------------------- charges

    def check(
        self,
        dataset: str,
        releases: Iterable[Release],
        *,
        run: str = "",
        allow_composition: bool = False,
        reservation: Reservation | None = None,
    ) -> None:
        """Check a charge; write nothing."""
        with self._transaction("DEFERRED") as book:
            others, mine = rules.reserved_by(book, dataset, reservation)
            rest = [] if mine is None else [rules.without(mine, tuple(releases))]
            rules.check(book, dataset, tuple(releases), [*others, *rest], run, allow_composition)

    def reserve(
        self,
        dataset: str,
        releases: Iterable[Release],
        *,
        run: str = "",
        allow_composition: bool = False,
        reservation: Reservation | None = None,
    ) -> Reservation:
        """Keep budget for releases until the reservation is closed or this process ends.

        By default the reservation is a new one, which the caller closes.
        """
        line_of_text("dataset", dataset)
        coming = tuple(releases)
        made = None
        with self._transaction("IMMEDIATE") as book:
            others, _ = rules.reserved_by(book, dataset, reservation)
            rules.check(book, dataset, coming, others, run, allow_composition)
            rules.sweep_reservations(book)
            try:
                if reservation is None:
                    reservation = made = Reservation(self.trainings)
                mu = total_mu(release.mu for release in coming)
                failure = math.fsum(release.failure for release in coming)
                now = datetime.now(UTC).isoformat(timespec="seconds")
                cost = (mu, pure_epsilon(coming), failure)
                book.put_reservation(Reserved(reservation.name, dataset, now, reservation.owner, *cost))
            except BaseException:
                if made is not None:
                    made.close()
                raise
        return reservation

    def charge(
        self,
        dataset: str,
        run: str,
        release: Release,
        *,
        step: int | None = None,
        week: Week | None = None,
        allow_composition: bool = False,
        early: bool = False,
        reservation: Reservation | None = None,
    ) -> str:
        """Record one release durably and return the charge's hash, or raise and record nothing.

        Parameters
        ----------
        dataset : str
            Its first charge fixes unit and relation.
        step : int, optional
            Number of the release in its run; charged once.
        week : Week, optional
            The release counts in its season's budget too.
        allow_composition : bool
            Allow a run in addition to an open season, where the data set has no budget.
        early : bool
            Allow a week sooner than its season's gap.
        reservation : Reservation, optional
            Pays the cost.
        """
        with self._transaction("IMMEDIATE", RESUMED if week is None else OF_A_WEEK) as book:
            if week is not None:
                rules.open_to(book, dataset, release.unit, release.relation)
                rules.check_week(book, week, (release,), made=step, early=early)
            else:
                others, mine = rules.reserved_by(book, dataset, reservation)
                if mine is not None:
                    rest = rules.without(mine, (release,))
                    book.put_reservation(rest)
                    others.append(rest)
                rules.check(book, dataset, (release,), others, run, allow_composition)
            if book.charges(dataset, "run = ? AND step = ?", run, step):
                raise BudgetError(
                    f'Release {release.label!r} of this run on data set "{dataset}" was charged already; it '
                    "is made once only."
                )
            if book.dataset(dataset) is None:
                book.put_dataset(dataset, Dataset(release.unit, release.relation, None))
            now = datetime.now(UTC).isoformat(timespec="seconds")
            row: tuple[Any, ...] = (
                dataset, run, now, release.label, repr(release.mechanism), release.sensitivity, release.mu,
                release.epsilon, release.failure, release.unit, release.relation,
                None if week is None else week.season.name, step,
            )  # fmt: skip
            head = book.append(row)
        self._verified = head
        return head[1]

    def numbered(self, dataset: str, run: str) -> dict[int, Row]:
        """Return the charges of a run by their step."""
        with self._transaction("DEFERRED") as book:
            rows = book.charges(dataset, "run = ?", run)
        return {row.step: row for row in rows if row.step is not None}

    def keep(self, dataset: str, run: str, step: int, file: str, digest: str) -> None:
        """Record where the noisy value of a charge is kept."""
        with self._transaction("IMMEDIATE") as book:
            book.keep(dataset, run, step, file, digest)

    def forget(self, run: str, first: int, stop: int) -> None:
        """Forget where the noisy values of a range of steps are kept."""
        with self._transaction("IMMEDIATE") as book:
            book.forget(run, first, stop)

    # ---------------------------------------------------------------------- seasons

    def open_season(self, dataset: str, season: Season, *, allow_composition: bool = False) -> None:
        """Give a data set a season, for which the data set's budget reserves all of the season's.

        Raises
        ------
        BudgetError
            There is another season, or a run and no budget, and `allow_composition` is not set; or the
            budget has no room.
        InputError
            The name is taken, or unit or relation is not that of the earlier charges.
        """
        line_of_text("dataset", dataset)
        check_flags(allow_composition=allow_composition)
        budget = season.budget
        with self._transaction("IMMEDIATE") as book:
            limit = rules.open_to(book, dataset, budget.unit, budget.relation)
            known = book.seasons(dataset)
            names = [summary.season.name for summary in known]
            if taken := [name for name in names if looks(name) == looks(season.name)]:
                raise InputError(
                    f'Data set "{dataset}" has a season {ascii(taken[0])} already; give this one another'
                    " name."
                )
            others = book.charges(dataset, "season IS NULL") if limit is None else []
            if (known or others) and not allow_composition:
                budgets = [*(summary.season.budget for summary in known), budget]
                costs: list[Cost] = [*others, *(Charge(each.mu, None, 0.0) for each in budgets)]
                both = composed_epsilon(costs, budget.delta)
                parts = [f"{plural(len(known), 'season')} ({', '.join(map(shown, names))})"] * bool(known)
                parts += [plural(len(by_run(others)), "other run" if known else "run")] * bool(others)
                raise BudgetError(
                    f'Data set "{dataset}" has had {" and ".join(parts)}, and this one adds to it: users of'
                    f" all of them would have {budget.spell(both)}; pass --allow-composition"
                    " (allow_composition=True) if you accept that."
                )
            if limit is not None:
                coming = [Charge(budget.mu, None, 0.0)]
                rules.check_room(book, dataset, limit, coming, rules.running(book, dataset))
            if book.dataset(dataset) is None:
                book.put_dataset(dataset, Dataset(budget.unit, budget.relation, None))
            book.put_season(dataset, season)

    def close_season(self, dataset: str, season: str) -> None:
        """Allow no further week, and free the rest of the season's budget (docs/proofs/seasons.md)."""
        with self._transaction("IMMEDIATE") as book:
            rules.season_of(book, dataset, season)
            book.close_season(dataset, season)

    def seasons(self, dataset: str) -> list[SeasonSummary]:
        """Return the seasons in the order of their opening."""
        with self._transaction("DEFERRED") as book:
            return book.seasons(dataset)

    def season(self, dataset: str, season: str) -> SeasonSummary:
        """Return a season, or refuse its name."""
        with self._transaction("DEFERRED") as book:
            return rules.season_of(book, dataset, season)

    def check_week(
        self,
        week: Week,
        releases: Iterable[Release],
        *,
        after: Week | None = None,
        made: int = 0,
        early: bool = False,
    ) -> None:
        """Check a charge of a week's releases; write nothing.

        ``after`` is the week of the model that it continues, and ``made`` the number of the week's releases
        so far: no other process may have made any.
        """
        coming = tuple(releases)
        with self._transaction("DEFERRED", OF_A_WEEK) as book:
            rules.open_to(book, week.dataset, week.season.budget.unit, week.season.budget.relation)
            rules.check_week(book, week, coming, after, made, early)

    def wrote(self, week: Week, digest: str) -> None:
        """Record the digest of a week's model, the only one that the next week continues."""
        with self._transaction("IMMEDIATE", OF_A_WEEK) as book:
            rules.check_own(book, week)
            book.put_model(week, digest)

    def check_model(self, week: Week, digest: str) -> None:
        """Refuse a model that the week did not write."""
        with self._transaction("DEFERRED", OF_A_WEEK) as book:
            rules.check_own(book, week)
            if book.has_model(week, digest):
                return
        raise InputError(
            f"This model is not the one that week {week.number} of season {shown(week.season.name)}"
            f" wrote: its digest is not in the ledger {self.path}. It was edited, saved with int8, or its"
            " training was cut short; pass the file as it was written. Nothing was charged."
        )

    # ---------------------------------------------------------------------- the file

    @contextmanager
    def _transaction(self, kind: str, then: str = RESUMED) -> Iterator[Book]:
        connect = self._connect if kind == "IMMEDIATE" else self._connect_to_read
        with self._errors(then), closing(connect()) as connection:  # rolls back uncommitted changes
            connection.execute(f"BEGIN {kind}")
            book = Book(connection, self.path)
            head = book.verified(*self._verified)
            if head is None:
                what = f"The ledger {self.path} was changed or damaged (hash chain); restore it from a copy."
                raise LedgerError(what)
            self._verified = head
            yield book
            connection.execute("COMMIT")

    def _connect_to_read(self) -> sqlite3.Connection:
        """Read a ledger that does not exist yet as an empty one: a refused command leaves no file."""
        if not self._new or self.path.exists():
            return self._connect()
        self._check_names()
        connection = sqlite3.connect(":memory:", isolation_level=None)
        schema.create(connection, self.path)
        return connection

    def _connect(self) -> sqlite3.Connection:
        self._check_names()
        if self._new and not self.path.exists():
            self._create()
        self._new = False
        schema.check_file(self.path)
        uri = f"file:{quote(str(self.path))}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, timeout=self.busy_timeout, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_names(self) -> None:
        """Refuse a second name: it would have a log of its own, with charges that this one misses."""
        if self.path.is_file() and self.path.stat().st_nlink > 1:
            for draft in self.path.parent.glob(f".{escape(self.path.name)}.*"):  # cut off after its link
                with suppress(FileNotFoundError):
                    if draft.samefile(self.path):
                        draft.unlink()
        beside = [self.trainings, *(Path(f"{self.path}{log}") for log in ("-wal", "-shm"))]
        check_only_name(self.path, "The ledger", LedgerError, beside)

    def _check_place(self) -> None:
        """Refuse a place at which no ledger can begin."""
        for suffix in ("-wal", "-journal"):  # SQLite would apply what another ledger left
            left = Path(f"{self.path}{suffix}")
            if left.exists() and not self.path.exists():  # or another process was first
                raise LedgerError(
                    f"The ledger {self.path} is missing but its log {left.name} exists; restore the ledger,"
                    " or move the log away."
                )
        if not self.path.parent.exists() and not _is_own(self.path):
            raise LedgerError(
                f"There is no folder {str(self.path.parent)!r} for a ledger; check the path, or create"
                " the folder if a new ledger shall begin there."
            )

    def _create(self) -> None:
        """Write an empty ledger, then link it, so no process reads a part of it."""
        self._check_place()
        if _is_own(self.path):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.path.name}.{os.urandom(8).hex()}")
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("BEGIN")
                schema.create(connection, draft)
                connection.execute("COMMIT")
            with suppress(FileExistsError):  # another process was first, and its ledger is as good
                if os.name == "nt":
                    draft.rename(self.path)
                else:
                    self.path.hardlink_to(draft)
            sync_folder(self.path.parent)
            _LOG.warning("Created a new ledger at %s; charges in other ledgers are not counted.", self.path)
        finally:
            draft.unlink(missing_ok=True)

    @contextmanager
    def _errors(self, then: str = RESUMED) -> Iterator[None]:
        try:
            yield
        except HushrecError:
            raise
        except (sqlite3.Error, OSError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise LedgerError(
                f"The ledger {self.path} could not be used ({reason}), so nothing more was released; check "
                f"the file and its folder.{then}"
            ) from error
