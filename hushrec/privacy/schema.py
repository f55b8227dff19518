"""The SQL of a ledger: tables, hashes and queries (docs/reference/ledger.md)."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import unicodedata
from collections.abc import Iterable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from hushrec.errors import LedgerError
from hushrec.privacy.accounting import total_mu
from hushrec.privacy.budget import Budget, Charge, Cost
from hushrec.privacy.ledger_records import Row
from hushrec.privacy.reservation import Reserved
from hushrec.privacy.season import Season, SeasonSummary, Week, of_one_user

APPLICATION = 0x68726563  # "hrec", SQLite's application_id
VERSION = 1  # SQLite's user_version
GENESIS = "0" * 64  # takes the place of the hash before the first charge

#: Signs without a shape: Unicode's default ignorable ones, and the Braille blank.
_INVISIBLE = re.compile(
    "[\\xad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u202a-\\u202e"
    "\\u2060-\\u206f\\u2800\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\U000e0000-\\U000e0fff]"
)

_MAGIC = b"SQLite format 3\0"

_COLUMNS = """
CREATE TABLE datasets (
    name TEXT PRIMARY KEY, unit TEXT NOT NULL, relation TEXT NOT NULL,
    epsilon REAL, delta REAL, failure REAL NOT NULL, closed INTEGER NOT NULL
);
CREATE TABLE charges (
    id INTEGER PRIMARY KEY, dataset TEXT NOT NULL REFERENCES datasets, run TEXT NOT NULL, time TEXT NOT NULL,
    label TEXT NOT NULL, mechanism TEXT NOT NULL, sensitivity REAL NOT NULL, mu REAL NOT NULL, epsilon REAL,
    failure REAL NOT NULL, unit TEXT NOT NULL, relation TEXT NOT NULL, season TEXT, step INTEGER,
    previous TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE INDEX charges_of_dataset ON charges (dataset);
CREATE UNIQUE INDEX charges_once ON charges (dataset, run, step);
CREATE TABLE seasons (
    dataset TEXT NOT NULL REFERENCES datasets, name TEXT NOT NULL, first REAL NOT NULL, decay REAL NOT NULL,
    epsilon REAL NOT NULL, delta REAL NOT NULL, closed INTEGER NOT NULL, gap REAL NOT NULL,
    PRIMARY KEY (dataset, name)
);
CREATE TABLE journal (
    charge INTEGER PRIMARY KEY REFERENCES charges, file TEXT NOT NULL, digest TEXT NOT NULL
);
CREATE TABLE models (charge INTEGER PRIMARY KEY REFERENCES charges, digest TEXT NOT NULL);
CREATE TABLE reservations (
    name TEXT PRIMARY KEY, dataset TEXT NOT NULL, time TEXT NOT NULL, owner TEXT NOT NULL,
    mu REAL NOT NULL, epsilon REAL, failure REAL NOT NULL
);
CREATE TABLE head (count INTEGER NOT NULL, hash TEXT NOT NULL, tables TEXT NOT NULL)
"""


class Dataset(NamedTuple):
    unit: str
    relation: str
    budget: Budget | None
    closed: bool = False


def digest(row: Iterable[Any]) -> str:
    return hashlib.sha256(json.dumps(list(row)).encode()).hexdigest()


def check_file(path: Path) -> None:
    """Refuse a file that is no ledger of this version, without SQLite, which can change it or its log."""
    header = b""
    if path.is_file():  # a pipe would block
        with path.open("rb") as file:
            header = file.read(100)
    application, version = header[68:72], int.from_bytes(header[60:64], "big")
    if not header.startswith(_MAGIC) or len(header) < 100:
        raise LedgerError(f"{path} is not a ledger, or was cut short; check the path.")
    if application != APPLICATION.to_bytes(4, "big"):
        raise LedgerError(f"{path} is not a ledger; check the path.")
    if version != VERSION:
        raise LedgerError(
            f"The ledger {path} has schema {version}, and this version of hushrec reads schema {VERSION}; use"
            " the version that wrote it."
        )


def create(connection: sqlite3.Connection, path: Path) -> None:
    for statement in _COLUMNS.split(";"):
        connection.execute(statement)
    connection.execute("INSERT INTO head VALUES (0, ?, '')", (GENESIS,))
    Book(connection, path).seal()
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def trainings_of(path: Path) -> Path:
    """Return the folder of the journals and locks of a ledger's trainings."""
    return path.with_name(f"{path.name}.trainings")


@cache
def looks(name: str) -> str:
    """Return a form that names have in common if they look alike: the same users, or the same season."""
    seen = None
    while seen != name:  # each step can make the next one possible
        seen, name = name, unicodedata.normalize("NFKC", name).casefold()
        name = "".join(sign for sign in name if not _INVISIBLE.fullmatch(sign)).strip()
    return name


class Book:
    """The tables of a ledger, within one transaction."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self.path, self.trainings = connection, path, trainings_of(path)
        connection.create_function("looks", 1, looks, deterministic=True)

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values).fetchall()

    # ---------------------------------------------------------------------- hashes

    def tables(self) -> str:
        """Hash all other rows that a promise depends on."""
        ordered = "datasets ORDER BY name", "seasons ORDER BY dataset, name", "journal ORDER BY charge"
        return digest(self._rows(f"SELECT * FROM {table}") for table in (*ordered, "models ORDER BY charge"))

    def seal(self) -> None:
        self._rows("UPDATE head SET tables = ?", self.tables())

    def verified(self, count: int, previous: str) -> tuple[int, str] | None:
        """Follow the chain from a charge; return its end, or None where a row was changed."""
        if count and self._rows("SELECT hash FROM charges WHERE id = ?", count) != [(previous,)]:
            return None
        for row in self._connection.execute("SELECT * FROM charges WHERE id > ? ORDER BY id", (count,)):
            count += 1
            if row[0] != count or row[-2] != previous or row[-1] != digest(row[:-1]):
                return None
            previous = row[-1]
        head = count, previous
        orphans = "SELECT COUNT(*) FROM charges WHERE dataset NOT IN (SELECT name FROM datasets)"
        whole = (
            self._rows("SELECT * FROM head") == [(*head, self.tables())]
            and self._rows("SELECT COUNT(*) FROM charges") == [(count,)]
            and self._rows(orphans) == [(0,)]
        )
        return head if whole else None

    def is_sound(self) -> bool:
        return self._rows("PRAGMA quick_check") == [("ok",)]

    # ---------------------------------------------------------------------- data sets

    def datasets(self) -> list[str]:
        return [name for (name,) in self._rows("SELECT name FROM datasets ORDER BY name")]

    def spellings(self, name: str) -> list[str]:
        """Return all names that look like this one, in the order of their opening; their charges add up."""
        query = "SELECT name FROM datasets WHERE looks(name) = looks(?) ORDER BY rowid"
        return [spelling for (spelling,) in self._rows(query, name)]

    def dataset(self, name: str) -> Dataset | None:
        """Return a data set; where the ledger has it under two names, with the least of their budgets."""
        rows = self._rows("SELECT * FROM datasets WHERE looks(name) = looks(?) ORDER BY rowid", name)
        if not any(row[0] == name for row in rows):
            return None
        _, unit, relation, *_ = rows[0]
        limits = [row[3:6] for row in rows if row[3] is not None]
        least = [min(column) for column in zip(*limits, strict=True)]
        budget = Budget(least[0], least[1], unit, relation, least[2]) if least else None
        return Dataset(unit, relation, budget, any(row[6] for row in rows))

    def put_dataset(self, name: str, dataset: Dataset) -> None:
        budget = dataset.budget
        limits = (None, None, 0.0) if budget is None else (budget.epsilon, budget.delta, budget.failure)
        row = (name, dataset.unit, dataset.relation, *limits, int(dataset.closed))
        columns = ("unit", "relation", "epsilon", "delta", "failure", "closed")
        update = ", ".join(f"{column} = excluded.{column}" for column in columns)
        self._rows(
            f"INSERT INTO datasets VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET {update}",
            *row,
        )
        self.seal()

    # ---------------------------------------------------------------------- charges

    def append(self, row: tuple[Any, ...]) -> tuple[int, str]:
        """Add a charge, all but its number and hashes, to the chain; return the new head."""
        ((count, previous),) = self._rows("SELECT count, hash FROM head")
        linked = (count + 1, *row, previous)
        head = digest(linked)
        self._rows(f"INSERT INTO charges VALUES ({', '.join('?' * 16)})", *linked, head)
        self._rows("UPDATE head SET count = ?, hash = ?", count + 1, head)
        return count + 1, head

    def charges(self, dataset: str, where: str = "1", *values: Any) -> list[Row]:
        query = (
            "SELECT charges.*, file, digest FROM charges LEFT JOIN journal ON charge = id"
            f" WHERE dataset = ? AND ({where}) ORDER BY id"
        )
        return list(map(Row._make, self._rows(query, dataset, *values)))

    def chain(self, dataset: str, last: int) -> list[tuple[Any, ...]]:
        return self._rows("SELECT * FROM charges WHERE dataset = ? AND id <= ? ORDER BY id", dataset, last)

    def head_at(self, count: int) -> tuple[int, str] | None:
        rows = self._rows("SELECT id, hash FROM charges WHERE id = ?", count)
        return rows[0] if rows else None

    # ---------------------------------------------------------------------- kept noisy values

    def keep(self, dataset: str, run: str, step: int, file: str, file_digest: str) -> None:
        charge = "SELECT id, ?, ? FROM charges WHERE dataset = ? AND run = ? AND step = ?"
        self._rows(f"INSERT INTO journal {charge}", file, file_digest, dataset, run, step)
        self.seal()

    def forget(self, run: str, first: int, stop: int) -> None:
        charges = "SELECT id FROM charges WHERE run = ? AND step >= ? AND step < ?"
        self._rows(f"DELETE FROM journal WHERE charge IN ({charges})", run, first, stop)
        self.seal()

    # ---------------------------------------------------------------------- reservations

    def reservations(self, dataset: str | None = None) -> list[Reserved]:
        """Return reservations, also those of dead processes."""
        query = "SELECT * FROM reservations WHERE ? IS NULL OR looks(dataset) = looks(?)"
        rows = self._rows(query, dataset, dataset)
        return [Reserved(*row) for row in rows]

    def put_reservation(self, reserved: Reserved) -> None:
        # not sealed: no promise depends on it
        self._rows("INSERT OR REPLACE INTO reservations VALUES (?, ?, ?, ?, ?, ?, ?)", *reserved)

    def drop_reservation(self, name: str) -> None:
        self._rows("DELETE FROM reservations WHERE name = ?", name)

    # ---------------------------------------------------------------------- seasons and their models

    def put_season(self, dataset: str, season: Season) -> None:
        shape = (season.name, season.first, season.decay, season.budget.epsilon, season.budget.delta)
        self._rows("INSERT INTO seasons VALUES (?, ?, ?, ?, ?, ?, ?, ?)", dataset, *shape, 0, season.gap)
        self.seal()

    def close_season(self, dataset: str, season: str) -> None:
        self._rows("UPDATE seasons SET closed = 1 WHERE dataset = ? AND name = ?", dataset, season)
        self.seal()

    def seasons(self, dataset: str) -> list[SeasonSummary]:
        query = "SELECT * FROM seasons WHERE dataset = ? ORDER BY rowid"
        summaries = []
        for _, name, first, decay, epsilon, delta, closed, gap in self._rows(query, dataset):
            season = Season(Budget(epsilon, delta), first, decay, name, gap)
            rows = self.charges(dataset, "season = ?", name)
            mu = total_mu(cost.mu for cost in of_one_user(rows, [season]))
            begun, run = len(by_run(rows)), rows[-1].run if rows else None
            summaries.append(SeasonSummary(season, dataset, closed != 0, begun, mu, len(rows), run))
        return summaries

    def has_last_charge(self, week: Week) -> bool:
        rows = self.charges(week.dataset, "season = ? AND run = ?", week.season.name, week.run)
        return bool(rows) and rows[-1].hash == week.charge

    def put_model(self, week: Week, model_digest: str) -> None:
        charge = "SELECT id, ? FROM charges WHERE hash = ?"
        self._rows(f"INSERT OR REPLACE INTO models {charge}", model_digest, week.charge)
        self.seal()

    def has_model(self, week: Week, model_digest: str) -> bool:
        query = "SELECT digest FROM models JOIN charges ON id = charge WHERE hash = ?"
        return self._rows(query, week.charge) == [(model_digest,)]

    def last_week_began(self, dataset: str, season: str) -> str | None:
        query = (
            "SELECT MIN(time) FROM charges WHERE dataset = ? AND season = ? AND run ="
            " (SELECT run FROM charges JOIN models ON charge = id WHERE dataset = ? AND season = ?"
            " ORDER BY id DESC LIMIT 1)"
        )
        began = self._rows(query, dataset, season, dataset, season)[0][0]
        return None if began is None else str(began)

    def costs_of_a_user(self, dataset: str, closed_only: bool = False) -> list[Cost]:
        """Return the charges that one user can be in, at most."""
        costs = list[Cost]()
        for spelling in self.spellings(dataset):
            summaries = self.seasons(spelling)
            still = {summary.season.name for summary in summaries if not summary.closed and closed_only}
            rows = [row for row in self.charges(spelling) if row.season not in still]
            costs += of_one_user(rows, [summary.season for summary in summaries])
        return costs

    def open_seasons(self, dataset: str) -> list[SeasonSummary]:
        every = chain.from_iterable(map(self.seasons, self.spellings(dataset)))
        return [summary for summary in every if not summary.closed]

    def committed(self, dataset: str) -> list[Cost]:
        """Return all costs of a data set, and for each open season all of its budget."""
        still = [summary.season.budget for summary in self.open_seasons(dataset)]
        budgets = [Charge(budget.mu, None, 0.0) for budget in still]
        return [*self.costs_of_a_user(dataset, closed_only=True), *budgets]


def by_run(rows: Iterable[Row]) -> list[list[Row]]:
    runs: dict[str, list[Row]] = {}
    for row in rows:
        runs.setdefault(row.run, []).append(row)
    return list(runs.values())
