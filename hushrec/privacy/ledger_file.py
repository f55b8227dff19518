"""The file of a ledger: opened, checked and changed in transactions, each of them all or nothing."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from hushrec.checks import Single, check_kind, shown
from hushrec.disk import sync_folder
from hushrec.errors import BudgetError, HushrecError, InputError, LedgerError
from hushrec.privacy import schema
from hushrec.privacy.budget import Budget

RESUMED = " A training that had begun goes on with --resume."
#: Of a failure in a week of a season, which keeps no journal.
OF_A_WEEK = (
    " A week that had begun is not taken up again: go on with --skip-week, or after week 0 with another"
    " season."
)

#: Which charges are those of a run on a data set.
OF_RUN = "dataset = ? AND run = ?"


@dataclass(frozen=True)
class Charge:
    """The cost of one recorded release."""

    mu: float
    epsilon: float | None
    failure: float


class Dataset(NamedTuple):
    """An entry of the ledger on a data set, beside its charges."""

    unit: str
    relation: str
    budget: Budget | None
    closed: bool = False


class LedgerFile(Single):
    """The part that all transactions of `Ledger` share."""

    busy_timeout = 30.0
    """Seconds to wait for another process before giving up."""

    _instead = "open its file where it is needed, with Ledger(path)"

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        check_kind(path, (str, os.PathLike), "path", "pass the path of a ledger")
        try:
            self.path = Path(path).expanduser().absolute()
        except RuntimeError:
            raise LedgerError(
                f"The ledger {str(path)!r} is in a home folder that does not exist; pass another path."
            ) from None
        self._verified = (0, schema.GENESIS)
        with self._errors(""):
            if not self.path.exists():
                if not create:
                    raise LedgerError(f"There is no ledger at {self.path}; check the path.")
                self._create()
            self._migrate()
        with self._transaction("DEFERRED", "") as connection:
            if connection.execute("PRAGMA quick_check").fetchone()[0] != "ok":
                raise LedgerError(f"The ledger {self.path} is damaged; restore it from a copy.")

    @staticmethod
    def _dataset(connection: sqlite3.Connection, dataset: str) -> Dataset | None:
        row = connection.execute("SELECT * FROM datasets WHERE name = ?", (dataset,)).fetchone()
        if row is None:
            return None
        _, unit, relation, epsilon, delta, failure, closed = row
        budget = None if epsilon is None else Budget(epsilon, delta, unit, relation, failure)
        return Dataset(unit, relation, budget, closed != 0)

    def _known(self, connection: sqlite3.Connection, dataset: str) -> Dataset:
        """A data set that must be there."""
        known = self._dataset(connection, dataset)
        if known is None:
            names = [each[0] for each in connection.execute("SELECT name FROM datasets ORDER BY name")]
            listed = "; it has " + ", ".join(map(shown, names)) if names else ", and no other"
            raise InputError(
                f'The ledger has no data set "{dataset}"{listed}; its first training, hushrec ledger open or'
                " hushrec season open begins it."
            )
        return known

    def _open_to(
        self, connection: sqlite3.Connection, dataset: str, unit: str, relation: str
    ) -> Budget | None:
        """The budget of a data set, if it has one; refuse another unit or relation, and a closed one."""
        known = self._dataset(connection, dataset) or Dataset(unit, relation, None)
        if (known.unit, known.relation) != (unit, relation):
            raise InputError(
                f'Data set "{dataset}" of the ledger counts unit {known.unit!r} and relation'
                f" {known.relation!r}; {unit!r} and {relation!r} cannot be added to them: use the same, or"
                " another data-set name."
            )
        if known.closed:
            raise BudgetError(
                f'Data set "{dataset}" was closed in the ledger {self.path}: nothing more is charged to it.'
            )
        return known.budget

    @staticmethod
    def _put_dataset(connection: sqlite3.Connection, name: str, known: Dataset) -> None:
        budget = known.budget
        limits = (None, None, 0.0) if budget is None else (budget.epsilon, budget.delta, budget.failure)
        row = (name, known.unit, known.relation, *limits, int(known.closed))
        connection.execute("INSERT OR REPLACE INTO datasets VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        LedgerFile._seal(connection)

    @staticmethod
    def _seal(connection: sqlite3.Connection) -> None:
        """Bring the head to what is no charge."""
        connection.execute("UPDATE head SET tables = ?", (schema.tables(connection),))

    @staticmethod
    def _charges(connection: sqlite3.Connection, where: str, values: tuple[Any, ...]) -> list[Charge]:
        rows = connection.execute(f"SELECT mu, epsilon, failure FROM charges WHERE {where}", values)
        return [Charge(*row) for row in rows]

    def _damaged(self) -> LedgerError:
        what = f"The ledger {self.path} was changed or damaged (hash chain); restore it from a copy."
        return LedgerError(what)

    def _verify(self, connection: sqlite3.Connection) -> None:
        """Follow the chain from the last verified charge to the head."""
        count, previous = self._verified
        if count:
            row = connection.execute("SELECT hash FROM charges WHERE id = ?", (count,)).fetchone()
            if row != (previous,):
                raise self._damaged()
        rows = connection.execute("SELECT * FROM charges WHERE id > ? ORDER BY id", (count,))
        head = schema.chained(rows, count, previous)
        orphans = "SELECT COUNT(*) FROM charges WHERE dataset NOT IN (SELECT name FROM datasets)"
        if (
            head is None
            or connection.execute("SELECT * FROM head").fetchall() != [(*head, schema.tables(connection))]
            or connection.execute("SELECT COUNT(*) FROM charges").fetchone() != (head[0],)
            or connection.execute(orphans).fetchone() != (0,)
        ):
            raise self._damaged()
        self._verified = head

    @contextmanager
    def _transaction(self, kind: str, then: str = RESUMED) -> Iterator[sqlite3.Connection]:
        """Open, begin, verify the chain; commit at the end or roll back. No connection outlives it."""
        with self._errors(then), closing(self._connect()) as connection:  # rolls back what is not committed
            connection.execute(f"BEGIN {kind}")
            self._verify(connection)
            yield connection
            connection.execute("COMMIT")

    def _migrate(self) -> None:
        """Bring an older ledger to this schema, all of it or nothing."""
        with closing(self._connect(older=True)) as connection:
            if schema.version_of(connection) == schema.VERSION:
                return
            connection.execute("BEGIN IMMEDIATE")
            if schema.version_of(connection) != schema.VERSION:  # of two processes the second finds it done
                if not schema.migrate(connection):
                    raise self._damaged()
                connection.execute("COMMIT")

    def _connect(self, *, older: bool = False) -> sqlite3.Connection:
        uri = f"file:{quote(str(self.path))}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, timeout=self.busy_timeout, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = ON")
            version = schema.version_of(connection)
            if version != schema.VERSION and not (older and version == schema.OLDER):
                raise LedgerError(
                    f"{self.path} is not a ledger, or was cut short; check the path."
                    if version == 0
                    else f"The ledger {self.path} has schema {version}, and this version of hushrec reads"
                    f" {schema.OLDER} and {schema.VERSION}; use it with the version that wrote it, or, if 0.1"
                    " did, open it once with hushrec 0.2."
                )
        except BaseException as error:
            connection.close()
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB:
                raise LedgerError(f"{self.path} is not a ledger; check the path.") from None
            raise
        return connection

    def _create(self) -> None:
        """Write an empty ledger beside its place and link it there, so that nobody sees a part of it."""
        if Path(f"{self.path}-wal").exists() and not self.path.exists():  # or another process was first
            raise LedgerError(
                f"The ledger {self.path} is gone but its write-ahead log is there; restore it or remove both."
            )
        if not self.path.parent.exists():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.path.name}.{os.urandom(8).hex()}")
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("BEGIN")
                schema.create(connection)
                connection.execute("COMMIT")
            with suppress(FileExistsError):  # another process was first, and its ledger is as good
                if os.name == "nt":
                    draft.rename(self.path)
                else:
                    self.path.hardlink_to(draft)
            sync_folder(self.path.parent)
        finally:
            draft.unlink(missing_ok=True)

    @contextmanager
    def _errors(self, then: str = RESUMED) -> Iterator[None]:
        """Turn every failure of the file into a LedgerError that says what to do then."""
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
