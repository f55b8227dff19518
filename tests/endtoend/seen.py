"""All output of a process: a run with noise from a tape, its prints, files, logs and warnings."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import os
import re
import sqlite3
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import matplotlib.font_manager  # noqa: F401  (its own cache is written now, not in a run)
import pytest

from hushrec.privacy import noise
from hushrec.privacy.testing import NoiseCall, RecordingNoise, ReplayNoise, SeededNoise

#: The name of a training in its journal.
_RUN = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
#: Time stamps and run ids of the ledger are no function of the rows, and no two runs have the same.
_TIMES = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?")
_EACH_ITS_OWN = {"time", "previous", "hash", "tables", "owner"}


@dataclass(frozen=True)
class Seen:
    """All that an observer of the process sees of a run."""

    code: object
    stdout: str
    stderr: str
    logs: tuple[str, ...]
    warnings: tuple[str, ...]
    files: dict[str, object]

    def differences(self, other: Seen) -> list[str]:
        """Return a description of each difference."""
        found = []
        for field in fields(self):
            one, two = getattr(self, field.name), getattr(other, field.name)
            if field.name == "files":
                names = [name for name in {**one, **two} if one.get(name) != two.get(name)]
                found += [f"{name}: {_short(one.get(name), two.get(name))}" for name in names]
            elif one != two:
                found.append(f"{field.name}: {_short(one, two)}")
        return found


def _short(one: object, two: object) -> str:
    one, two = repr(one), repr(two)
    at = next((n for n, (a, b) in enumerate(zip(one, two)) if a != b), 0)
    return f"{one[max(0, at - 40) : at + 120]}  |  {two[max(0, at - 40) : at + 120]}"


class Tape:
    """Replaces the system's noise: records the releases of a run, or plays them back for any values."""

    def __init__(self, calls: list[NoiseCall] | None = None, seed: int = 0) -> None:
        self._replay = None if calls is None else ReplayNoise(calls)
        self._recorder = RecordingNoise(self._replay or SeededNoise(seed))
        self.failure = ""

    @property
    def calls(self) -> list[NoiseCall]:
        return self._recorder.calls

    def check(self) -> None:
        """All was played, and nothing else was asked for."""
        assert not self.failure, self.failure
        assert self._replay is None or self._replay.finished, "fewer releases than before"

    def source(self) -> type:
        """A class that takes the place of `SystemNoise`."""
        tape = self

        class SystemNoise(noise.SystemNoise):
            def add_gaussian(self, *call: Any) -> Any:
                return tape._call("add_gaussian", call)

            def add_laplace(self, *call: Any) -> Any:
                return tape._call("add_laplace", call)

            def flip(self, *call: Any) -> Any:
                return tape._call("flip", call)

        return SystemNoise

    def _call(self, kind: str, call: tuple[Any, ...]) -> Any:
        try:
            return getattr(self._recorder, kind)(*call)
        except AssertionError as error:
            self.failure = self.failure or str(error)
            raise


class Screen(io.StringIO):
    """A stream that may be a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def observe(folder: Path, act: Callable[[], object], tape: Tape, *, terminal: bool = False) -> Seen:
    """Run something in a folder with its input files; its code is the returned value or the exit code."""
    inputs = files_of(folder)
    logs: list[str] = []
    out, err = Screen(terminal), Screen(terminal)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        _surround(patch, folder)
        patch.setattr("hushrec.privacy.accountant.SystemNoise", tape.source())
        patch.setattr(
            "rich.console.monotonic", itertools.count().__next__
        )  # a second a look: every step is shown
        with _heard(logs), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = _code(act)
    tape.check()
    files = files_of(folder)
    for name, content in inputs.items():
        assert files.pop(name) == content, f"{name} was written to"
    told = tuple(f"{each.category.__name__}: {each.message} ({each.lineno})" for each in warned)
    heard = tuple(_plain(log, folder) for log in logs)
    return Seen(code, *(_plain(each.getvalue(), folder) for each in (out, err)), heard, told, files)


def _surround(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Nothing is written elsewhere: home and temporary files are in the folder."""
    for name in ("HUSHREC_LEDGER", "HUSHREC_DEBUG", "XDG_STATE_HOME"):
        patch.delenv(name, raising=False)
    home = folder / "home"
    home.mkdir(exist_ok=True)
    patch.setenv("HOME", str(home))
    patch.setenv("COLUMNS", "80")
    patch.setattr(tempfile, "tempdir", str(home))
    patch.chdir(folder)


def _code(act: Callable[[], object]) -> object:
    try:
        return act()
    except SystemExit as end:
        return end.code
    except Exception as error:
        return "".join(traceback.format_exception_only(error))


@contextlib.contextmanager
def _heard(logs: list[str]) -> Any:
    """Collect all log records except those of compiling and drawing."""

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logs.append(f"{record.name} {record.levelname} {record.getMessage()}")

    root, quiet = logging.getLogger(), [logging.getLogger(name) for name in ("numba", "matplotlib", "PIL")]
    handler, levels = Listening(0), [each.level for each in (root, *quiet)]
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    for each in quiet:
        each.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for each, level in zip((root, *quiet), levels):
            each.setLevel(level)


def _plain(text: str, folder: Path) -> str:
    return _TIMES.sub("TIME", text.replace(str(folder), "FOLDER"))


def files_of(folder: Path) -> dict[str, object]:
    """Every file by name, with its mode; folders too."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        content = b"" if path.is_dir() else path.read_bytes()
        shown: object = _ledger(path) if content.startswith(b"SQLite format 3") else content
        if path.suffix == ".done":  # of a training that could be made again: its name and time are its own
            shown = _TIMES.sub("TIME", _RUN.sub("RUN", content.decode()))
        found[_RUN.sub("RUN", str(path.relative_to(folder)))] = (oct(os.stat(path).st_mode), shown)
    return found


def _ledger(path: Path) -> object:
    """The rows of a ledger, its time stamps and hashes left out and its runs numbered."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}
    runs: dict[str, int] = {}
    return {
        name: [
            {
                key: runs.setdefault(row[key], len(runs)) if key == "run" else _plain_run(row[key])
                for key in row.keys()  # noqa: SIM118
                if key not in _EACH_ITS_OWN
            }
            for row in rows
        ]
        for name, rows in tables.items()
    }


def _plain_run(value: object) -> object:
    return _RUN.sub("RUN", value) if isinstance(value, str) else value


def leaves_the_same(
    folder: Path,
    worlds: Callable[[Path, int], Callable[[], object]],
    *,
    public: Callable[[Seen], Seen] = lambda seen: seen,
    terminal: bool = False,
) -> Seen:
    """Two runs, the second fed with the first one's releases: all that is seen of them must be equal.

    ``worlds(folder, number)`` writes the inputs of one of them and returns what to do there; ``public``
    removes the parts marked as the curator's.
    """
    seen = []
    calls = None
    for number in (0, 1):
        place = folder / str(number)
        place.mkdir(parents=True)
        tape = Tape(calls)
        seen.append(public(observe(place, worlds(place, number), tape, terminal=terminal)))
        calls = tape.calls
    differences = seen[0].differences(seen[1])
    assert not differences, "; ".join(differences)
    return seen[0]
