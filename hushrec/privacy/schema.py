"""The tables of a ledger, their hashes, and how an older file becomes one of today
(docs/reference/ledger.md)."""

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from typing import Any

APPLICATION = 0x68757368  # "hush" in SQLite's application_id
VERSION = 5
#: A ledger of this one, of version 0.2, is brought up to date when it is opened.
OLDER = 4
GENESIS = "0" * 64  # in the place of the hash before the first charge

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
    dataset TEXT NOT NULL REFERENCES datasets, name TEXT NOT NULL, weeks INTEGER NOT NULL,
    first_share REAL NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, failure REAL NOT NULL,
    closed INTEGER NOT NULL, gap REAL NOT NULL, PRIMARY KEY (dataset, name)
);
CREATE TABLE journal (
    charge INTEGER PRIMARY KEY REFERENCES charges, file TEXT NOT NULL, digest TEXT NOT NULL
);
CREATE TABLE models (charge INTEGER PRIMARY KEY REFERENCES charges, digest TEXT NOT NULL);
CREATE TABLE head (count INTEGER NOT NULL, hash TEXT NOT NULL, tables TEXT NOT NULL)
"""


def digest(row: Iterable[Any]) -> str:
    """Hash of a row, or of all rows of the small tables."""
    return hashlib.sha256(json.dumps(list(row)).encode()).hexdigest()


def tables(connection: sqlite3.Connection, version: int = VERSION) -> str:
    """Hash of all that is not a charge: data sets, seasons, journal, models."""
    ordered = ["datasets ORDER BY name", "seasons ORDER BY dataset, name", "journal ORDER BY charge"]
    ordered += ["models ORDER BY charge"] * (version > 4)
    return digest(connection.execute(f"SELECT * FROM {each}").fetchall() for each in ordered)


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty ledger."""
    for statement in _COLUMNS.split(";"):
        connection.execute(statement)
    connection.execute("INSERT INTO head VALUES (0, ?, ?)", (GENESIS, tables(connection)))
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def append(connection: sqlite3.Connection, row: tuple[Any, ...]) -> tuple[int, str]:
    """Add a charge, all but its number and hashes, to the chain; return the new head."""
    count, previous = connection.execute("SELECT count, hash FROM head").fetchone()
    linked = (count + 1, *row, previous)
    head = digest(linked)
    connection.execute(f"INSERT INTO charges VALUES ({', '.join('?' * 16)})", (*linked, head))
    connection.execute("UPDATE head SET count = ?, hash = ?", (count + 1, head))
    return count + 1, head


def chained(rows: Iterable[tuple[Any, ...]], count: int, previous: str) -> tuple[int, str] | None:
    """The head after charges that follow one of that number and hash; None where the chain breaks."""
    for row in rows:
        count += 1
        if row[0] != count or row[-2] != previous or row[-1] != digest(row[:-1]):
            return None
        previous = row[-1]
    return count, previous


def version_of(connection: sqlite3.Connection) -> int:
    """Schema of a ledger; 0 of a file that is none."""
    application, version = (
        connection.execute(f"PRAGMA {mark}").fetchone()[0] for mark in ("application_id", "user_version")
    )
    return int(version) if application == APPLICATION else 0


def migrate(connection: sqlite3.Connection) -> bool:
    """Bring a ledger of schema 4 to this one, in a transaction; False where its hashes are not right.

    It knew no gap between weeks, and no digests of models: those of its weeks are empty.
    """
    head = chained(connection.execute("SELECT * FROM charges ORDER BY id"), 0, GENESIS)
    found = connection.execute("SELECT * FROM head").fetchall()
    if head is None or found != [(*head, tables(connection, 4))]:
        return False
    connection.execute("ALTER TABLE seasons ADD COLUMN gap REAL NOT NULL DEFAULT 0")
    connection.execute(next(each for each in _COLUMNS.split(";") if "TABLE models" in each))
    weeks = "SELECT MAX(id), '' FROM charges WHERE season IS NOT NULL GROUP BY dataset, season, run"
    connection.execute(f"INSERT INTO models {weeks}")
    connection.execute("UPDATE head SET tables = ?", (tables(connection),))
    connection.execute(f"PRAGMA user_version = {VERSION}")
    return True
