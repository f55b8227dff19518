"""A reservation: budget that one running training may still charge, and others may not.

A locked file next to the ledger shows that the process is alive.
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hushrec.checks import Single
from hushrec.disk import hold, is_held, private_file
from hushrec.errors import LedgerError

_SUFFIX = ".lock"


class Reserved(NamedTuple):
    """The reserved and uncharged cost of a training; its owner is a process of a machine."""

    name: str
    dataset: str
    time: str
    owner: str
    mu: float
    epsilon: float | None
    failure: float


class Reservation(Single):
    """The file that this process locks; the caller closes it."""

    _instead = "reserve anew with Ledger.reserve"

    def __init__(self, folder: Path) -> None:
        self.name = os.urandom(16).hex()
        self.owner = f"process {os.getpid()} on {platform.node() or 'this machine'}"
        self._path = _path(folder, self.name)
        folder.mkdir(mode=0o700, exist_ok=True)
        private_file(self._path).close()
        try:
            held = hold(self._path)
        except OSError as error:
            self._path.unlink()
            raise LedgerError(
                f"The file system of {folder} has no file locks ({error.strerror}), so trainings could spend"
                " the same budget; keep the ledger on a local disk (--ledger, HUSHREC_LEDGER)."
            ) from None
        assert held is not None  # its name is new
        self._file = self._path.open("rb") if held.closed else held  # Windows deletes no file that is open

    def close(self) -> None:
        self._file.close()
        with suppress(OSError):  # a file that no process holds reserves nothing
            self._path.unlink()


def lives(folder: Path, name: str) -> bool:
    return is_held(_path(folder, name))


def sweep(folder: Path, names: set[str]) -> None:
    """Remove the files of killed processes."""
    for path in folder.glob(f"*{_SUFFIX}"):
        if path.stem not in names and not is_held(path):
            path.unlink(missing_ok=True)


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}{_SUFFIX}"
