"""The journal of a training: its noisy values, on disk before they are used.

Noisy values are public, so a killed training resumes without drawing or charging them again (proof:
docs/proofs/accounting.md, section 5). The ledger names the file of a value with its SHA-256. A value without
its training's header is deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from hushrec.disk import hold, private_file, sync_folder, whole
from hushrec.errors import HushrecError, InputError, LedgerError
from hushrec.privacy.ledger import Ledger
from hushrec.privacy.ledger_records import Row
from hushrec.privacy.release import Release

#: Bytes, of an array's header.
_HEADER_BYTES = 256
#: A training of a run begins with a multiple of it.
_STEPS = 1 << 20
#: Key of a binding: another version of the library cannot resume a training.
VERSION = "version of hushrec"
_UNFINISHED, _FINISHED = ".json", ".done"
_VALUE = re.compile(r"(\w+\.\d+)\.\d+\.(?:npy|part)")


class Journal:
    """The noisy values of one training, in the order of its releases.

    `binding` are public values that identify it. With `resume` it continues the last unfinished training with
    this binding, under that training's `run`. `lost` is the number of charged releases without noisy value.
    """

    def __init__(
        self, ledger: Ledger, dataset: str, run: str, binding: dict[str, Any], *, resume: bool
    ) -> None:
        self._ledger, self._dataset, self._binding = ledger, dataset, _plain(binding)
        self._folder = ledger.trainings
        self._lock: IO[bytes] | None = None
        self._drafts: dict[int, Draft] = {}  # by step
        self._used = 0
        self._kept: list[Row] = []
        self.run, self.lost = run, 0
        self._first = self._step = (max(ledger.numbered(dataset, run), default=-1) // _STEPS + 1) * _STEPS
        self._header = self._folder / f"{run}.{self._first}{_UNFINISHED}"
        with self._errors("was read"):
            if resume:
                self._take_up()

    def uncharged(self, coming: tuple[Release, ...]) -> tuple[Release, ...]:
        return coming[max(0, len(self._kept) - self._used) :]

    def next(self, release: Release, shape: tuple[int, ...]) -> np.ndarray | None:
        if self._used == len(self._kept):
            return None
        entry = self._kept[self._used]
        if entry.release != release:
            raise InputError(
                f"The journal continues with release {entry.label!r}, this training with "
                f"{release.label!r}, or with other noise; train again, without resuming."
            )
        value = self._array(entry)
        if value.shape != shape:
            raise InputError(
                f"Release {release.label!r} has another shape in the journal; train again, without resuming."
            )
        self._used += 1
        return value

    def prepare(self, value: np.ndarray) -> Draft:
        with self._errors("took nothing, and nothing was charged"):
            if self._lock is None:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                self._write_header()
                self._sweep(self._finished())
            if (unpaid := self._drafts.get(self._step)) is not None:
                self.drop(unpaid)
            draft = Draft(self._file(self._step), self._step, value.size)
            self._drafts[self._step] = draft
        return draft

    def charged(self) -> None:
        self._step += 1

    def keep(self, draft: Draft, label: str, noisy: np.ndarray) -> np.ndarray:
        what = (
            f"could not take the noisy value of release {label!r}, which stays charged, and is charged again"
            " if the training is resumed; make room first"
        )
        try:
            with self._errors(what):
                draft.write(noisy)
                digest = draft.finish()
            self._ledger.keep(self._dataset, self.run, draft.step, draft.target.name, digest)
        finally:
            self.drop(draft)
        return noisy

    def close(self, *, saved: bool) -> None:
        """Finish the training. An unsaved model can be made again until the next training begins."""
        if self._lock is None:
            return
        with self._errors("was finished, but could not be closed"):
            if saved:
                self._sweep([self._header])
            else:
                self._header = self._header.replace(self._header.with_suffix(_FINISHED))
                sync_folder(self._folder)

    def leave(self) -> None:
        for draft in [*self._drafts.values()]:
            self.drop(draft)
        self._release_lock()

    def drop(self, draft: Draft) -> None:
        draft.discard()
        self._drafts.pop(draft.step, None)

    # ------------------------------------------------------------------ files

    def _file(self, step: int) -> Path:
        return self._folder / f"{self.run}.{self._first}.{step}.npy"

    def _array(self, entry: Row) -> np.ndarray:
        path = self._folder / str(entry.file)
        with self._errors("was read"), path.open("rb") as file:
            if _digest(path) != entry.digest:
                raise ValueError("a noisy value was changed or damaged")
            return np.lib.format.read_array(file, allow_pickle=False)

    def _write_header(self) -> None:
        content = {"dataset": self._dataset, "run": self.run, "first": self._first, "binding": self._binding}
        draft = self._header.with_suffix(".part")
        with whole(draft, self._header) as file:
            file.write(json.dumps(content).encode())
            held = hold(draft)
        self._lock = held

    def _headers(self, suffix: str) -> list[tuple[dict[str, Any], Path]]:
        """Return the data set's headers in the order of their last charges; clocks may go back."""
        headers = []
        for path in self._folder.glob(f"*{suffix}"):
            with contextlib.suppress(FileNotFoundError):  # its training has ended meanwhile
                headers.append((json.loads(path.read_bytes()), path))
        mine = [entry for entry in headers if entry[0]["dataset"] == self._dataset]
        return sorted(mine, key=lambda entry: [row.number for row in self._charges(entry[0]).values()][-1:])

    def _charges(self, header: dict[str, Any]) -> dict[int, Row]:
        rows = self._ledger.numbered(self._dataset, header["run"])
        return {step: row for step, row in rows.items() if 0 <= step - header["first"] < _STEPS}

    def _finished(self) -> list[Path]:
        finished = []
        for _, path in self._headers(_FINISHED):
            with contextlib.suppress(FileNotFoundError):
                if (lock := hold(path)) is not None:
                    lock.close()
                    finished.append(path)
        return finished

    def _sweep(self, finished: list[Path]) -> None:
        """Remove these headers, and then every value without one."""
        for header in finished:
            header.unlink(missing_ok=True)
        values: dict[str, list[Path]] = {}
        for path in self._folder.iterdir():
            if match := _VALUE.fullmatch(path.name):
                values.setdefault(match[1], []).append(path)
        for suffix in (_UNFINISHED, _FINISHED):  # in this order, as names change
            for header in self._folder.glob(f"*{suffix}"):
                values.pop(header.stem, None)
        for training, paths in values.items():
            run, first = training.split(".")
            self._ledger.forget(run, int(first), int(first) + _STEPS)  # of any data set
            for path in paths:
                path.unlink(missing_ok=True)

    def _take_up(self) -> None:
        headers = self._headers(_FINISHED) + self._headers(_UNFINISHED)
        same = [header for header in headers if header[0]["binding"] == self._binding]
        if not headers:
            raise InputError(
                f'There is no unfinished training on data set "{self._dataset}" in the ledger'
                f" {self._ledger.path}; one that was saved is closed. Train again, without resuming."
            )
        if not same:
            _check_same(headers[-1][0]["binding"], self._binding, self._dataset)
        header, self._header = same[-1]
        self.run, self._first = header["run"], header["first"]
        self._lock = hold(self._header)
        if self._lock is None:
            raise InputError(
                f'The unfinished training on data set "{self._dataset}" is still running in another process;'
                " wait for it, or stop it."
            )
        entries = self._charges(header)
        self._step = self._first + len(entries)
        for step, entry in entries.items():
            path = self._file(step)
            if entry.file is None and path.exists():  # whole on disk, and cut off before the ledger named it
                entry = entry._replace(file=path.name, digest=_digest(path))
                self._ledger.keep(self._dataset, self.run, step, path.name, str(entry.digest))
            if entry.file is None:
                self.lost += 1
            else:
                self._kept.append(entry)

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except HushrecError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise LedgerError(f"The journal {self._folder} {what} ({reason}).") from error


class Draft:
    """A file that gets its name when it is whole on the disk."""

    def __init__(self, target: Path, step: int, size: int) -> None:
        self.target, self.step, self._hash = target, step, hashlib.sha256()
        self._path = target.with_suffix(".part")
        self._file = private_file(self._path)
        try:
            if size and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), 0, _HEADER_BYTES + 8 * size)
        except BaseException:
            self.discard()
            raise

    def write(self, content: Any) -> int:
        if isinstance(content, np.ndarray):
            np.lib.format.write_array(self, np.ascontiguousarray(content), allow_pickle=False)
            return 0
        self._hash.update(content)
        return self._file.write(content)

    def finish(self) -> str:
        self._file.truncate()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._path.replace(self.target)
        sync_folder(self.target.parent)
        return self._hash.hexdigest()

    def discard(self) -> None:
        with contextlib.suppress(OSError):  # a full disk refuses the rest of the buffer
            self._file.close()
        self._path.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(binding: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(binding, default=repr))
    return plain


def _check_same(then: dict[str, Any], now: dict[str, Any], dataset: str) -> None:
    begun, here = then.get(VERSION), now.get(VERSION)
    if begun and here and begun != here:
        raise InputError(
            f'The unfinished training on data set "{dataset}" was started with hushrec {begun}, and this is'
            f" {here}: finish it with that version, or train again, without resuming; what"
            " it was charged stays charged."
        )
    differing = [key for key in sorted(then.keys() | now.keys()) if then.get(key) != now.get(key)]
    if differing:
        raise InputError(
            f'The unfinished training on data set "{dataset}" was started with other settings'
            f" ({', '.join(differing)}); pass those it was started with, or train again, without resuming."
        )
