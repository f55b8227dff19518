"""Ledgers as hushrec 0.2 wrote them."""

import hashlib
import json
import sqlite3


def as_schema_4(path, *changes):
    """Make of a ledger what hushrec 0.2 would have written: no gap, no digests of models."""
    with sqlite3.connect(path) as connection:
        for statement in ("DROP TABLE models", "ALTER TABLE seasons DROP COLUMN gap", *changes):
            connection.execute(statement)
        connection.execute("PRAGMA user_version = 4")
        ordered = ("datasets ORDER BY name", "seasons ORDER BY dataset, name", "journal ORDER BY charge")
        rows = [connection.execute(f"SELECT * FROM {each}").fetchall() for each in ordered]
        digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
        connection.execute("UPDATE head SET tables = ?", (digest,))
    connection.close()
