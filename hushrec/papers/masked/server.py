"""The server of masked completion (Algorithm 1): collects masked columns, completes, hands each node its own.

Everything received is in an SQLite file before it is acknowledged, so a kill loses nothing. It serves

    GET  /task             what is to be done and the public key
    POST /columns          a node's masked column, once a round; the same upload again is acknowledged again
    GET  /columns/<node>   the node's completed column, for the bearer of the token it uploaded with
"""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import scipy.sparse as sp

from hushrec.checks import Count, Positive, check_fields, check_numbers
from hushrec.errors import HushrecError, InputError
from hushrec.network.messages import Message, Refusal, check_token, from_json
from hushrec.papers.masked.completion import (
    alternating_minimization,
    estimate_rank,
    nuclear_norm_minimization,
)
from hushrec.papers.masked.masking import column_space, public_key
from hushrec.papers.masked.messages import Accepted, Column, Task, Upload
from hushrec.types import Array

_WAITS = "[0, 1e7]"  # seconds, which the system's clock can count
_RANK_ROOM = 30  # beyond the mask's rank, where the rank is estimated


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a completion server; all of them are public.

    Attributes
    ----------
    catalogue, mask_rank, noise_sd, rounds
        As in :class:`~hushrec.papers.masked.messages.Task`.
    n_items, n_nodes : int
        Rows and columns of the matrix at most.
    enough : int
        Columns that start the completion when no other arrives for ``wait`` seconds; all start it at once.
    wait : float
        Seconds.
    rank : int or None
        Rank of the ratings; None estimates it.
    solver : {"am", "nn"}
        Alternating minimisation or nuclear-norm minimisation.
    seed : int
        Seed of the public key.
    """

    catalogue: str
    n_items: int
    n_nodes: int
    enough: int
    wait: Annotated[float, _WAITS] = 5.0
    mask_rank: Count = 10
    noise_sd: Positive = 100.0
    rank: Count | None = None
    solver: Literal["am", "nn"] = "am"
    rounds: Annotated[int, "[1, 2]"] = 1
    seed: int = 0

    def __post_init__(self) -> None:
        smallest = min(self.n_items, self.enough)
        check_fields(self)
        check_numbers(enough=(self.enough, int, f"[2, {self.n_nodes}]"))
        needed = self.mask_rank + (self.rank or 1)
        if needed >= smallest:
            raise InputError(
                f"mask_rank={self.mask_rank} and a rank of {self.rank or 1} need more than {needed} items and"
                f" columns, and there are {smallest}; pass smaller ranks, or more nodes and items.",
                parameter="mask_rank",
            )


class Store:
    """All that a server has received and computed, in an SQLite file for its owner alone."""

    def __init__(self, path: str | Path, settings: Settings) -> None:
        self._lock = threading.Lock()
        try:
            Path(path).touch(mode=0o600)  # the uploads give the ratings away
            self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=FULL")
            self._file.executescript(
                "CREATE TABLE IF NOT EXISTS settings (line TEXT);CREATE TABLE IF NOT EXISTS uploads (round"
                " INTEGER, node TEXT, token BLOB, message BLOB, PRIMARY KEY (round, node));CREATE TABLE IF"
                " NOT EXISTS completions (round INTEGER PRIMARY KEY, nodes TEXT, rank INTEGER, left BLOB,"
                " right BLOB);"
            )
            stored = self._file.execute("SELECT line FROM settings").fetchone()
            if stored is None:
                self._file.execute("INSERT INTO settings VALUES (?)", (repr(settings),))
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"Cannot use {str(path)!r} as the server's store ({error}).") from None
        if stored is not None and stored[0] != repr(settings):
            raise InputError(
                f"{str(path)!r} belongs to a server with other settings; start it with those or another file."
            )

    def add(self, upload: Upload, token: bytes) -> tuple[bytes, bytes]:
        """Return the stored token and message, perhaps of an earlier upload."""
        place = upload.round, upload.node
        self._run("INSERT OR IGNORE INTO uploads VALUES (?, ?, ?, ?)", *place, token, upload.to_json())
        ((stored_token, stored),) = self._run(
            "SELECT token, message FROM uploads WHERE round = ? AND node = ?", *place
        )
        return stored_token, stored

    def token(self, round: int, node: str) -> bytes | None:
        rows = self._run("SELECT token FROM uploads WHERE round = ? AND node = ?", round, node)
        return rows[0][0] if rows else None

    def count(self, round: int) -> int:
        return int(self._run("SELECT COUNT(*) FROM uploads WHERE round = ?", round)[0][0])

    def uploads(self, round: int) -> list[Upload]:
        rows = self._run("SELECT message FROM uploads WHERE round = ? ORDER BY node", round)
        return [from_json(Upload, raw) for (raw,) in rows]

    def add_completion(self, round: int, nodes: list[str], left: Array, right: Array) -> None:
        values = round, "\n".join(nodes), left.shape[1], left.tobytes(), right.tobytes()
        self._run("INSERT OR IGNORE INTO completions VALUES (?, ?, ?, ?, ?)", *values)

    def completion(self, round: int) -> tuple[list[str], Array, Array] | None:
        rows = self._run("SELECT nodes, rank, left, right FROM completions WHERE round = ?", round)
        for nodes, rank, *factors in rows:
            left, right = (np.frombuffer(raw).reshape(-1, rank) for raw in factors)
            return nodes.split("\n"), left, right
        return None

    def _run(self, statement: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._file.execute(statement, values).fetchall()


class CompletionServer:
    """Answers nodes, and completes each round in a separate thread."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self._store = store
        self._lock = threading.RLock()
        self._arrival = threading.Event()
        self._keys = [public_key(settings.n_items, settings.mask_rank, settings.seed)]
        self._columns: dict[str, Array] = {}
        self._trouble = ""
        for round in range(1, settings.rounds + 1):
            if (done := store.completion(round)) is not None:
                self._finish(round, *done)
        threading.Thread(target=self._work, daemon=True).start()

    def answer(self, method: str, path: list[str], token: str, body: bytes) -> Message:
        match method, path:
            case "GET", ["task"]:
                return self.task()
            case "POST", ["columns"]:
                return self.accept(from_json(Upload, body), token)
            case "GET", ["columns", node]:
                return self.column(node, token)
        raise Refusal(404, "There is no such page; see /task.")

    def admit(self, method: str, path: list[str], token: str, length: int) -> None:
        """Refuse a request before its body is read."""
        if method == "POST":
            check_token(token)
            if path != ["columns"]:
                raise Refusal(404, "There is no such page; see /task.")

    def task(self) -> Task:
        settings = self.settings
        with self._lock:
            keys, open = tuple(self._keys), not self._columns and not self._trouble
        return Task(settings.catalogue, keys, settings.noise_sd, settings.rounds, open)

    def accept(self, upload: Upload, token: str) -> Accepted:
        """Take a column once, or acknowledge it again."""
        check_token(token)
        n_items, digest = self.settings.n_items, _digest(token)
        if upload.items[-1] >= n_items:
            raise InputError(f"An upload's items are positions in a catalogue of {n_items} items.")
        with self._lock:
            known = self._store.token(upload.round, upload.node)
            if known is None:
                self._check_open(upload, digest)
            stored_token, stored = self._store.add(upload, digest)
            if known is None:
                self._arrival.set()
        if not hmac.compare_digest(stored_token, digest):
            raise Refusal(403, "This node has uploaded already, with another token.")
        if stored != upload.to_json():
            raise Refusal(409, "This node has uploaded another column already; one is taken in a round.")
        return Accepted(upload.fingerprint())

    def _check_open(self, upload: Upload, token: bytes) -> None:
        if self._columns or self._trouble or upload.round < len(self._keys):
            raise Refusal(409, f"Round {upload.round} is closed.")
        if upload.round > len(self._keys):
            raise Refusal(409, f"Round {upload.round} has not begun.")
        if upload.round == 2:
            first = self._store.token(1, upload.node)
            if first is None or not hmac.compare_digest(first, token):
                raise Refusal(403, "Round 2 is for the nodes of round 1, with the same token.")
        elif self._store.count(1) >= self.settings.n_nodes:
            raise Refusal(409, f"All {self.settings.n_nodes} nodes have uploaded.")

    def column(self, node: str, token: str) -> Column:
        known = self._store.token(1, node)
        if known is None or not hmac.compare_digest(known, _digest(token)):
            raise Refusal(403, "This token is not that of this node.")
        with self._lock:
            if self._trouble:
                raise Refusal(409, self._trouble)
            if not self._columns:
                raise Refusal(425, "The matrix is not complete yet.")
            if node not in self._columns:
                raise Refusal(409, "This node's last column did not arrive in time.")
            return Column(self._columns[node])

    def _work(self) -> None:
        try:
            while not self._columns:
                round = len(self._keys)
                self._wait(round)
                uploads = self._store.uploads(round)
                left, right = complete(uploads, self.settings)
                nodes = [upload.node for upload in uploads]
                self._store.add_completion(round, nodes, left, right)
                self._finish(round, nodes, left, right)
        except Exception as error:  # no client waits for ever
            why = str(error) if isinstance(error, HushrecError) else type(error).__name__
            with self._lock:
                self._trouble = f"The matrix could not be completed ({why})."

    def _wait(self, round: int) -> None:
        wanted = self.settings.n_nodes if round == 1 else self._store.count(1)
        while True:
            self._arrival.clear()
            arrived = self._store.count(round)
            enough = arrived >= self.settings.enough
            if arrived >= wanted or (not self._arrival.wait(self.settings.wait if enough else 60) and enough):
                return

    def _finish(self, round: int, nodes: list[str], left: Array, right: Array) -> None:
        with self._lock:
            if round < self.settings.rounds:
                self._keys.append(column_space(right))
            else:
                self._columns = {node: right @ row for node, row in zip(nodes, left, strict=True)}


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def complete(uploads: list[Upload], settings: Settings) -> tuple[Array, Array]:
    values = np.concatenate([upload.values for upload in uploads])
    items = np.concatenate([upload.items for upload in uploads])
    starts = np.cumsum([0, *(len(upload.items) for upload in uploads)])
    observed = sp.csr_array((values, items, starts), shape=(len(uploads), settings.n_items))
    if settings.solver == "nn":
        completed = nuclear_norm_minimization(observed)
    else:
        largest = min(observed.shape) - 1
        room = min(largest, settings.mask_rank + _RANK_ROOM)
        rank = estimate_rank(observed, room) if settings.rank is None else settings.rank + settings.mask_rank
        completed = alternating_minimization(observed, min(rank, largest))
    return completed.left, completed.right
