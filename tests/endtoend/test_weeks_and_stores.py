"""B, for what takes several commands: stores, weeks of a season, a training that is cut short and resumed.

As in test_end_to_end.py: the noisy releases of one world are played to another that differs in one user,
and all output of the process must be the same. A store itself is private, and so is what `prepare` prints.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from hushrec.cli import run
from hushrec.data.store_files import PRIVATE_STORE
from hushrec.errors import InputError
from tests.endtoend.seen import leaves_the_same
from tests.endtoend.test_end_to_end import CASES, SOME
from tests.endtoend.worlds import FORMATS, domain_words, long, pair, write

MODELS = ("both", "item-bias", "private-eigenrec", "private-als", "popular")
EVERY = [*CASES, *SOME]
Case = tuple[str, str, str]
PROMISE = ["--epsilon", "8", "--delta", "1e-6"]


class _Noon(datetime):
    """A clock that always shows noon, to compare hashes of times."""

    @classmethod
    def now(cls, tz: object = None) -> datetime:
        return datetime(2026, 1, 1, 12, tzinfo=UTC)


def every_time_alike(act: Callable[[], object]) -> Callable[[], object]:
    """Fix values that are random or depend on the time by design: names of runs, time stamps."""

    def again() -> object:
        names = itertools.count(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hushrec.privacy.ledger.datetime", _Noon)
            random_bytes = SimpleNamespace(urandom=lambda n: next(names).to_bytes(n), getpid=os.getpid)
            patch.setattr("hushrec.privacy.accountant.os", random_bytes)
            return act()

    return again


def in_turn(*lines: list[str]) -> Callable[[], list[int]]:
    """The exit codes of several commands."""
    return every_time_alike(lambda: [run(line) for line in lines])


def ratings(place: Path, number: int, case: Case, week: int = 0) -> list[str]:
    """One of two files of a week that differ in a user, who is in every week; words that read it."""
    kind, change, rows = case
    both = pair(kind, change, rows, False, random.Random(f"{case}, {week}"))
    folder = place / f"week-{week}"
    folder.mkdir()
    path, *words = write(folder / FORMATS[kind], kind, both[number], False)
    return [f"week-{week}/{path}", *words]


def prepared(place: Path, number: int, case: Case, name: str, week: int = 0, *more: str) -> str:
    """A store of such a file; of how many partitions must not show."""
    declared = domain_words(place, case[0], False)
    line = ["prepare", *ratings(place, number, case, week), *declared, *more, "--out", str(place / name)]
    shown = io.StringIO()
    with contextlib.chdir(place), contextlib.redirect_stdout(shown):
        assert run([*line, "--partitions", str(1 + 2 * number)]) == 0
    assert PRIVATE_STORE in shown.getvalue()
    return name


# stores


@pytest.mark.parametrize(
    ("case", "model"), [*zip(SOME, MODELS), *long(*itertools.product(EVERY, MODELS))], ids=str
)
def test_a_store(case, model, tmp_path):
    def world(place: Path, number: int):
        store = prepared(place, number, case, "shop.store")
        return in_turn(["train", store, "--model", model, *PROMISE, "--out", "model.hush"])

    seen = leaves_the_same(tmp_path, world, terminal=True)
    assert seen.code == [0], seen


# weeks


@pytest.mark.parametrize(
    ("case", "model", "store"),
    [*((*pair, False) for pair in zip(SOME[::-1], MODELS)), *long(*itertools.product(EVERY, MODELS, [True]))],
    ids=str,
)
def test_the_weeks_of_a_season(case, model, store, tmp_path):
    """Three weeks, in the last of which the catalogue is another one."""

    def world(place: Path, number: int):
        declared = domain_words(place, case[0], False)
        others = [f"{n}\n" for n in range(1, 100) if n != 5] + ["new\n"]
        (place / "others.txt").write_text("".join(others), encoding="utf-8")
        weeks = [ratings(place, number, case, week) for week in (0, 1, 2)]
        if store:
            weeks[1] = [prepared(place, number, case, "week-3.store", 3)]
        opened = ["season", "open", *PROMISE]
        first = ["train", *weeks[0], "--model", model, "--season", "1", *PROMISE, *declared]
        first += ["--out", "0.hush"]
        second = ["retrain", "0.hush", *weeks[1], "--out", "1.hush"]
        third = ["retrain", "1.hush", *weeks[2], "--catalogue", "others.txt", "--drop-missing-items"]
        third += ["--json", "--out", "2.hush"]
        return in_turn(opened, first, second, third, ["season", "show"])

    seen = leaves_the_same(tmp_path, world, terminal=True)
    assert seen.code == [0] * 5, seen
    assert {"0.hush", "1.hush", "2.hush"} < set(seen.files)


@pytest.mark.parametrize("since", ["0", "2026-01-01"])
@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("rows", ["ordinary", "nothing"])
def test_a_window(since, store, rows, tmp_path):
    """Killed: an exit code that reveals whether a user has a row in the window or in the store."""
    case = ("movielens-dat", "alone", rows)
    more = ["--since", since, *([] if store else ["--format", "movielens-dat"])]

    def world(place: Path, number: int):
        declared = domain_words(place, case[0], False)
        read = (
            [prepared(place, number, case, "s", 1, "--times")] if store else ratings(place, number, case, 1)
        )
        (place / "week-0.csv").write_text("user,item,rating\nu,1,3\nv,2,4\n", encoding="utf-8")
        opened = ["season", "open", *PROMISE]
        first = ["train", "week-0.csv", "--model", "popular", "--season", "1", *PROMISE, *declared]
        return in_turn(
            opened, [*first, "--out", "0.hush"], ["retrain", "0.hush", *read, *more, "--out", "1.hush"]
        )

    seen = leaves_the_same(tmp_path, world)
    assert seen.code == [0, 0, 0], seen


# a training that is cut short


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize(
    ("case", "model"),
    [*zip(SOME[:2], MODELS), (SOME[2], "dpals"), *long(*itertools.product(EVERY, [*MODELS, "dpals"]))],
    ids=str,
)
def test_a_training_that_is_cut_short(case, model, resumed, tmp_path):
    """Compare the files after the interruption, and the resulting model."""

    def world(place: Path, number: int):
        declared = domain_words(place, case[0], False)
        line = ["train", *ratings(place, number, case), "--model", model, *PROMISE, *declared]
        line += ["--out", "model.hush"]

        def act() -> list[int]:
            def no_room(*_: object) -> None:
                raise InputError("there is no room.")

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("hushrec.serving.model.Model.save", no_room)
                first = run(line)
            return [first, run([*line, "--resume"])] if resumed else [first]

        return every_time_alike(act)

    seen = leaves_the_same(tmp_path, world, terminal=True)
    assert seen.code == ([1, 0] if resumed else [1]), seen
    assert any(".trainings/" in name for name in seen.files) != resumed
