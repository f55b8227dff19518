"""The attendance of a season: how many trainings each user was in. PRIVATE, next to the ratings.

The file holds a keyed hash of each user id with a count, and the latest runs that it counts. It is
written before a training charges anything, so the ledger's last run is in it (docs/proofs/seasons.md, "The
attendance").
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hushrec.checks import check_kind
from hushrec.disk import check_only_name, hold, the_path, whole
from hushrec.errors import InputError, LedgerError
from hushrec.privacy.season import Week

#: Bytes of a hash of a user id, of a count, and of the digest with which the file begins.
_ID, _COUNT, _DIGEST = 16, 4, 32
#: Follows the digest.
_START = b'{"dataset": '


class Attendance:
    """A file of counts, without ids. It keeps the count of a user whose ratings are erased.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> season = hushrec.Season(hushrec.Budget(epsilon=5, delta=1e-6))
    >>> book = hushrec.Ledger("ledger.sqlite")
    >>> book.open_season("shop", season)
    >>> people = hushrec.privacy.Attendance("shop.attendance")
    >>> week = hushrec.SeasonAccountant(season, ledger=book, dataset="shop", attendance=people)
    >>> model = hushrec.PrivateALS().fit(ratings, week)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        check_kind(path, (str, os.PathLike), "path", "pass the path of a file")
        self.path = the_path(path, "The attendance")

    def __repr__(self) -> str:
        return f"Attendance(private counts in {str(self.path)!r})"

    def admit(self, week: Week, last: str | None, users: Iterable[str]) -> np.ndarray:
        """Count a training for each user; return the numbers of the users' trainings before.

        `last` is the run that the ledger charged last to the season. `users` are canonical texts of ids, each
        once.
        """
        with self._errors():
            self._check_kind()
        with self._errors(), self._alone():
            check_only_name(self.path, "The attendance", beside=[self._lock])
            head, counts = self._read(week, last)
            key = bytes.fromhex(head["key"])
            hashes = [
                hashlib.blake2b(user.encode("utf-8", "surrogatepass"), key=key, digest_size=_ID).digest()
                for user in users
            ]
            before = np.array([counts.get(key_of_user, 0) for key_of_user in hashes], np.int64)
            counts |= dict(zip(hashes, (before + 1).tolist(), strict=True))
            runs = head["runs"]
            head["runs"] = [*runs[runs.index(last) :], week.run]
            self._write(head, counts)
        return before

    def _check_kind(self) -> None:
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            start = file.read(_DIGEST + len(_START))
        if not start.endswith(_START):
            raise InputError(
                f"{str(self.path)!r} is not an attendance, or is damaged; pass the file that this season's"
                " trainings wrote, or a new name in its first training. Nothing was charged."
            )

    def _read(self, week: Week, last: str | None) -> tuple[dict[str, Any], dict[bytes, int]]:
        where = f"The attendance {str(self.path)!r}"
        belongs = {"dataset": week.dataset, "season": week.season.name}
        if not self.path.exists():
            if last is None:
                return {**belongs, "key": os.urandom(32).hex(), "runs": [None]}, {}
            raise InputError(
                f"{where} is lost, and the users' counts with it; restore it, go on without an attendance, or"
                " close the season and open another one, whose cost adds to this one's. Nothing was charged."
            )
        raw = self.path.read_bytes()
        digest, content = raw[:_DIGEST], raw[_DIGEST:]
        if digest != _digest(content):
            raise InputError(f"{where} was damaged or edited; restore it from a copy. Nothing was charged.")
        line, _, rows = content.partition(b"\n")
        head = json.loads(line)
        if {key: head[key] for key in belongs} != belongs:
            raise InputError(
                f"{where} is of season {head['season']!r} of data set {head['dataset']!r}; pass that of"
                f" season {week.season.name!r} of data set {week.dataset!r}. Nothing was charged."
            )
        if last not in head["runs"]:
            raise InputError(
                f"{where} does not hold the last training of the ledger: one of the two is an old copy, or of"
                " another season of that name. Pass the newest copies of both. Nothing was charged."
            )
        size = _ID + _COUNT
        ends = range(0, len(rows), size)
        return head, {
            rows[at : at + _ID]: int.from_bytes(rows[at + _ID : at + size], "little") for at in ends
        }

    def _write(self, head: dict[str, Any], counts: dict[bytes, int]) -> None:
        rows = b"".join(user + counts[user].to_bytes(_COUNT, "little") for user in sorted(counts))
        content = json.dumps(head).encode() + b"\n" + rows
        with whole(self.path.with_name(f".{self.path.name}.part"), self.path) as file:
            file.write(_digest(content) + content)

    @property
    def _lock(self) -> Path:
        return self.path.with_name(f"{self.path.name}.lock")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._lock.touch(mode=0o600)
        held = hold(self._lock)
        if held is None:
            raise InputError(f"Another training uses the attendance {str(self.path)!r}; wait for it.")
        try:
            yield
        finally:
            held.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LedgerError(
                f"The attendance {str(self.path)!r} cannot be read or written ({error.strerror}). Nothing was"
                " charged."
            ) from None


def _digest(content: bytes) -> bytes:
    """Return the bytes with which a file begins; those of another format differ."""
    return hashlib.blake2b(content, digest_size=_DIGEST, person=b"attendance 1").digest()
