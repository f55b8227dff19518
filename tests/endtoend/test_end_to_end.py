"""B: from the file to everything that leaves the process.

The noisy releases of a run are played to the same run on a file that differs in one user. Model, tables,
standard output and error, log records, warnings, exit code and written files must be the same, byte for byte;
output for the curator must be marked as such.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import random
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import benchmarks.demo
from hushrec.cli import run
from hushrec.data import Domain, Ratings
from hushrec.models import ESTIMATORS, Both, Estimator, PrivateALS
from hushrec.privacy import Accountant, Budget, Ledger, RepeatAndSelect
from hushrec.privacy.testing import NoiseCall, SeededNoise
from hushrec.serving.batch import PRIVATE_TABLE
from hushrec.training.run import release_user_count
from tests.endtoend.options import GENERAL, ONE_BIT, OPTIONS, words
from tests.endtoend.seen import Seen, Tape, files_of, leaves_the_same, observe
from tests.endtoend.worlds import CHANGES, FORMATS, KINDS, MAGIC, all_pairs, domain_words, long, pair, write

ROOT = Path(__file__).parents[2]

#: Parts of a choice of options in addition to the words of the command line.
FILES = {
    "format": list(FORMATS),
    "change": list(CHANGES),
    "rows": list(KINDS),
    "likes": [False, True],
    "terminal": [False, True],
}


def train_words(model: str, choice: dict, folder: Path) -> list[str]:
    declared = domain_words(folder, choice["format"], choice["likes"])
    return ["--model", model, "--delta", "1e-5", *declared, *words(choice)]


def trained(model: str, choice: dict, folder: Path, seed: int) -> Seen:
    """Two trainings with a choice of options on files that differ in one user."""
    kind, likes = choice["format"], choice["likes"]
    both = pair(kind, choice["change"], choice["rows"], likes, random.Random(seed))

    def world(place: Path, number: int):
        read = write(place / FORMATS[kind], kind, both[number], likes)
        line = ["train", *read, *train_words(model, choice, place), "--out", "model.hush"]
        return partial(run, line)

    return leaves_the_same(folder, world, terminal=choice["terminal"])


@pytest.mark.parametrize(("epsilon", "code"), [("1", 1), ("200", 0)], ids=["stops", "trains"])
def test_the_released_number_of_users_alone_decides(epsilon, code, tmp_path):
    """It decides whether a training stops, and the settings."""
    choice = {name: values[0] for name, values in FILES.items()}
    choice |= dict.fromkeys(OPTIONS["both"], ()) | {"epsilon": ("--epsilon", epsilon)}
    seen = trained("both", choice, tmp_path, 1)
    assert seen.code == code and ("is indistinguishable from 0" in seen.stderr) == bool(code)


def check_training(model: str, rows: int | None, folder: Path, record) -> None:
    kinds = {"likes": [False]} if ESTIMATORS[model].scores == "ratings" else {}  # it refuses likes
    choices = all_pairs({**FILES, **kinds, **GENERAL, **OPTIONS[model]}, seed=0)
    if rows is not None:
        choices = random.Random(model).sample(choices, rows)
    done = 0
    for number, choice in enumerate(choices):
        try:
            seen = trained(model, choice, folder / str(number), number)
        except AssertionError as error:
            raise AssertionError(f"{model}, choice {number}, {choice}: {error}") from None
        done += seen.code == 0
        stopped = seen.code == 1 and "is indistinguishable from 0" in seen.stderr  # by what was released
        assert seen.code == 0 or stopped or (seen.code == 2 and seen.stderr.startswith("Error: ")), seen
    assert done >= 0.4 * len(choices), "most of what is tried is refused"
    record("pairs", len(choices))


@pytest.mark.parametrize("model", OPTIONS)
def test_training(model, tmp_path, record_property):
    check_training(model, 4, tmp_path, record_property)


@pytest.mark.full
@pytest.mark.parametrize("model", OPTIONS)
def test_training_with_all_pairs_of_options(model, tmp_path, record_property):
    check_training(model, None, tmp_path, record_property)


@pytest.mark.parametrize("kind", ["movielens-100k", "movielens-dat"])
@pytest.mark.parametrize("number", range(len(MAGIC)))
def test_the_first_line_of_a_file_without_header(kind, number, tmp_path):
    """Killed: a user id that makes the file look like another format."""

    def world(place: Path, at: int):
        mark = b"\t" if kind == "movielens-100k" else b"::"
        first = [mark.join([MAGIC[number] + b"mallory", b"1", b"4", b"0"])] if at else []
        read = write(place / FORMATS[kind], kind, [*first, ("u1", 1, 4), ("u2", 2, 3)], False)
        declared = domain_words(place, kind, False)
        line = ["train", *read, "--model", "global-mean", "--epsilon", "1", "--delta", "1e-5", *declared]
        return partial(run, [*line, "--out", "model.hush"])

    assert leaves_the_same(tmp_path, world).code == 0


# ---------------------------------------------------------------------- the value of one rating


def check_one_bit(rows: int | None, folder: Path, record) -> None:
    """Which cells are observed is public; whether they are likes is not."""
    general = {name: GENERAL[name] for name in ("epsilon", "seed", "json", "ledger")}
    formats = {"format": ["csv", "parquet", "movielens-dat"], "terminal": [False, True]}
    choices = all_pairs({**formats, **general, **ONE_BIT}, seed=0)
    if rows is not None:
        choices = random.Random(1).sample(choices, rows)
    for number, choice in enumerate(choices):
        dice = random.Random(number)
        cells = [(f"u{user}", item) for user in range(8) for item in dice.sample(range(1, 13), 6)]
        both = [[(*cell, dice.choice((1, 2, 3, 4, 5))) for cell in cells] for _ in range(2)]

        def world(place: Path, at: int, choice=choice, both=both):
            read = write(place / FORMATS[choice["format"]], choice["format"], both[at], False)
            line = ["train", *read, *train_words("one-bit", {**choice, "likes": False}, place)]
            return partial(run, [*line, "--unit", "rating", "--out", "model.hush"])

        seen = leaves_the_same(folder / str(number), world, terminal=choice["terminal"])
        assert seen.code == 0 or "--link" in seen.stderr, (choice, seen)
    record("pairs", len(choices))


def test_one_bit(tmp_path, record_property):
    check_one_bit(4, tmp_path, record_property)


@pytest.mark.full
def test_one_bit_with_all_pairs_of_options(tmp_path, record_property):
    check_one_bit(None, tmp_path, record_property)


# ---------------------------------------------------------------------- the other commands

CASES = [(kind, change, rows) for kind in ("csv", "parquet") for change in CHANGES for rows in KINDS]
SOME = [
    ("csv", "removed", "ordinary"),
    ("parquet", "alone", "nothing"),
    ("movielens-dat", "added", "first"),
    ("tsv", "replaced", "lines"),
    ("numbers", "added", "cells"),
    ("named", "alone", "everything"),
]


def files(place: Path, number: int, case: tuple[str, str, str], likes: bool = False) -> list[str]:
    """Write one of two files that differ in a user; words that read it."""
    kind, change, rows = case
    both = pair(kind, change, rows, likes, random.Random(repr(case)))
    return write(place / FORMATS[kind], kind, both[number], likes)


def check_python(model: str, case: tuple[str, str, str], terminal: bool, folder: Path) -> None:
    """``planned(...).fit(...)``, the model saved, its statement and everything else that prints itself."""

    def world(place: Path, number: int):
        path, *_ = files(place, number, case)
        names = {"user": "who", "item": "what", "rating": "stars"} if case[0] == "named" else None

        def call() -> None:
            budget, domain = Budget(5, 1e-6), Domain(range(1, 13), rating_range=(1, 5))
            ratings = Ratings.from_any(path, domain, columns=names)
            accountant = Accountant(budget, ledger=Ledger("ledger.sqlite"), dataset="shop")
            n_users = release_user_count(ratings, accountant)
            estimator = ESTIMATORS[model].planned(budget, domain, n_users)
            trained = estimator.fit(ratings, accountant, progress=terminal)
            trained.save("model.hush")
            print(ratings, accountant.releases, accountant.spent_mu, estimator, trained, n_users)
            print(trained.privacy.text(), trained.privacy.to_dict())

        return call

    seen = leaves_the_same(folder, world, terminal=terminal)
    assert seen.code is None and "model.hush" in seen.files, seen.code
    assert ("training" in seen.stderr) == terminal


@pytest.mark.parametrize("model", OPTIONS)
def test_from_python(model, tmp_path):
    number = list(OPTIONS).index(model)
    check_python(model, SOME[number % len(SOME)], bool(number % 2), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("model", OPTIONS)
def test_from_python_at_length(model, terminal, tmp_path):
    for number, case in enumerate([*CASES, *SOME]):
        check_python(model, case, terminal, tmp_path / str(number))


def check_tune(model: str, tried: str, case: tuple[str, str, str], folder: Path, json: bool = False) -> None:
    """The best of several runs on one file, of another number of runs on the other."""
    seen, calls = [], []
    for number, runs in ((0, 1), (1, 1), (1, 3)):
        place = folder / f"{number}{runs}"
        place.mkdir(parents=True)
        likes = domain_words(place, case[0], False)
        line = ["tune", *files(place, number, case), "--model", model, "--try", tried, "--epsilon", "5"]
        line += ["--delta", "1e-6", *likes, "--out", "model.hush", *(["--json"] if json else [])]
        tape = Tape((calls + 2 * [worse(call) for call in calls]) if runs == 3 else calls or None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RepeatAndSelect, "draw_number_of_runs", lambda self, runs=runs: runs)
            patch.setattr("hushrec.evaluation.tuning.secrets.randbelow", lambda n: 0)
            seen.append(observe(place, partial(run, line), tape))
        calls = calls or tape.calls
    assert seen[0].code == 0, seen[0]
    assert not (found := [each for other in seen[1:] for each in seen[0].differences(other)]), found


def worse(call: NoiseCall) -> NoiseCall:
    """The same release, but a score that no run wins with."""
    return replace(call, output=np.array([1e12, 1.0])) if call.label == "score" else call


@pytest.mark.parametrize("case", SOME, ids="-".join)
def test_tune(case, tmp_path):
    check_tune("item-bias", "clip=0.3,0.6", case, tmp_path, json=case[0] == "csv")


@pytest.mark.full
@pytest.mark.parametrize("case", [*CASES, *SOME], ids="-".join)
def test_tune_at_length(case, tmp_path):
    tried = {"private-als": "rank=2,3", "item-bias": "clip=0.3,0.6", "dpals": "rank=1,2"}
    for number, (model, values) in enumerate(tried.items()):
        check_tune(model, values, case, tmp_path / str(number), json=bool(number))


def compare_words(place: Path, models: str, *more: str) -> list[str]:
    declared = domain_words(place, "csv", models == "popular")
    return ["--models", models, "--epsilons", "1,5", "--delta", "1e-6", *declared, "--out-dir", "out", *more]


def check_compare(models: str, case: tuple[str, str, str], folder: Path, *more: str, **options) -> None:
    """Everything except the errors on held-out ratings, which are marked private in all places."""
    likes = models == "popular"

    def world(place: Path, number: int):
        line = ["compare", *files(place, number, case, likes), *compare_words(place, models, *more)]
        return partial(run, line)

    seen = leaves_the_same(folder, world, public=without_figures, **options)
    assert seen.code == 0, seen
    assert {name for name in seen.files if name.startswith("out/")} == {
        f"out/comparison.{kind}" for kind in ("md", "parquet", "png", "svg")
    }


@pytest.mark.parametrize("case", [*SOME[:3], SOME[-1]], ids="-".join)
def test_compare(case, tmp_path):
    json = ["--json"] if case[0] in ("csv", "named") else []
    check_compare("item-bias", case, tmp_path, *json, terminal=True)


def test_compare_of_both_jobs(tmp_path):
    check_compare("both", SOME[0], tmp_path, "--users", "100")


@pytest.mark.full
@pytest.mark.parametrize("case", [*CASES, *SOME], ids="-".join)
@pytest.mark.parametrize("models", ["popular", "private-als", "one-bit-user,item-bias"])
def test_compare_at_length(models, case, tmp_path):
    check_compare(models, case, tmp_path / "text", terminal=True)
    check_compare(models, case, tmp_path / "json", "--json", "--draws", "2", "--users", "100")


ASKED = (
    ["--user", "u3", "--explain"],
    ["--user", "nobody", "--json"],
    ["--user", "u5", "--include-seen", "-n", "12"],
    ["--all", "--out", "lists.parquet"],
    ["--all", "--out", "lists.private.parquet", "--json"],
    ["--all", "--out-dir", "lists"],
)
HISTORIES = [(kind, change) for kind in ("csv", "parquet") for change in ("added", "removed", "replaced")]


@pytest.mark.parametrize("estimator", [PrivateALS(), Both()], ids=["private-als", "both"])
@pytest.mark.parametrize("kind, change", HISTORIES)
def test_recommend(kind, change, estimator, tmp_path):
    """A user's list, on the screen and in a file, does not depend on the others' rows in the history."""

    def world(asked, place: Path, number: int):
        dice = random.Random(change)
        both = pair(kind, change, "ordinary", False, dice)
        rows = [[("U3" if user == "mallory" else user, *row) for user, *row in each] for each in both]
        (place / "model.hush").write_bytes(model_file(estimator))
        line = ["recommend", "model.hush", *write(place / FORMATS[kind], kind, rows[number], False)]
        return partial(run, [*line, *asked])

    for number, line in enumerate(ASKED):
        options = {"public": without_her_list} if "--all" in line else {}
        seen = leaves_the_same(tmp_path / str(number), partial(world, line), **options)
        assert seen.code == 0, seen


@pytest.mark.parametrize("estimator", [PrivateALS(), Both()], ids=["private-als", "both"])
@pytest.mark.parametrize("kind, change", HISTORIES)
def test_predict(kind, change, estimator, tmp_path):
    """Predictions for some users, and all that is printed, do not depend on others' rows in the history."""

    def world(more, place: Path, number: int):
        both = pair(kind, change, "everything", False, random.Random(change))
        (place / "model.hush").write_bytes(model_file(estimator))
        (place / "pairs.csv").write_text("user,item\nu3,1\nu3,none\nnobody,2\n,3\nu5,12\n", encoding="utf-8")
        history = write(place / FORMATS[kind], kind, both[number], False)
        return partial(run, ["predict", "model.hush", *history, "pairs.csv", *more])

    for number, more in enumerate((["--out", "p.csv"], ["--out", "p.private.parquet", "--json"])):
        seen = leaves_the_same(tmp_path / str(number), partial(world, more))
        assert seen.code == 0 and PRIVATE_TABLE in " ".join(seen.stdout.split()) and more[1] in seen.files, (
            seen
        )


@pytest.mark.parametrize("epsilon", ["1", "1000000"])
@pytest.mark.parametrize("words", [[], ["--json"]], ids=["text", "json"])
def test_similar(epsilon, words, tmp_path):
    """Similar items, or the refusal to name any, are a function of the releases."""

    def world(place: Path, number: int):
        line = ["train", *files(place, number, SOME[0]), "--epsilon", epsilon, "--delta", "1e-6"]
        line += [*domain_words(place, "csv", False), "--users", "100", "--out", "model.hush"]

        def both() -> int:
            assert run(line) == 0
            return run(["similar", "model.hush", "3", *words])

        return both

    seen = leaves_the_same(tmp_path, world)
    assert seen.code == 0 or "does not know which items go together" in seen.stderr


@cache
def model_file(estimator: Estimator) -> bytes:
    domain = Domain([str(n) for n in range(1, 13)], rating_range=(1, 5))
    ratings = Ratings.from_any((["a", "a", "b"], ["1", "2", "3"], [5, 4, 1]), domain)
    return estimator.fit(ratings, Accountant(Budget(5, 1e-6), noise=SeededNoise(3))).to_bytes()


def without_her_list(seen: Seen) -> Seen:
    """The private table without the rows of U3, or the folder without their file; both are marked private."""
    assert PRIVATE_TABLE in " ".join(seen.stdout.split())
    kept = {}
    for name, (mode, content) in seen.files.items():
        if name.endswith(".parquet"):
            table = pq.read_table(pa.BufferReader(content))
            assert PRIVATE_TABLE.encode() in table.schema.metadata.values()
            content = [table.schema.metadata, [row for row in table.to_pylist() if row["user"] != "U3"]]
        if name == "lists/index.private.csv":
            content = [line for line in content.splitlines() if not line.startswith(b"U3,")]
        if not name.startswith("lists/U3"):
            kept[name] = (mode, content)
    return replace(seen, files=kept)


def test_plan(tmp_path):
    """It reads no ratings, even if they are in the same folder."""

    def world(place: Path, number: int):
        files(place, number, SOME[0])
        declared = domain_words(place, "csv", False)
        return partial(run, ["plan", "--epsilon", "1", "--delta", "1e-6", *declared, "--users", "1000"])

    assert leaves_the_same(tmp_path, world, terminal=True).code == 0


@pytest.mark.parametrize(
    "case", [("csv", "alone", "ordinary"), *long(*([case] for case in SOME[:-1]))], ids="-".join
)
def test_demo(case, tmp_path):
    """``make demo`` on a file of one's own: all but errors, comparison and the copies of the ratings."""

    def world(place: Path, number: int):
        domain_words(place, case[0], False)
        path, *_ = files(place, number, case)
        return partial(demo, ["--ratings", path, "--catalogue", "items.txt"])

    seen = leaves_the_same(tmp_path, world, public=without_figures)
    assert seen.code is None, seen
    assert "demo-output/model.hush" in seen.files


def demo(words: list[str]) -> None:
    """The demo, its commands run in this process."""

    def invoke(command: list[str], stderr: int | None = None, **_: object) -> SimpleNamespace:
        printed = io.StringIO()
        hidden = contextlib.nullcontext() if stderr is None else contextlib.redirect_stderr(io.StringIO())
        with contextlib.redirect_stdout(printed), hidden:
            code = run(command[3:])
        return SimpleNamespace(returncode=code, stdout=printed.getvalue())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["demo", *words])
        patch.setattr("benchmarks.demo.subprocess.run", invoke)
        benchmarks.demo.main()


# ---------------------------------------------------------------------- the curator's own look

NUMBER = r"(nan|–|[\d,]+ \([\d,]+–[\d,]+\)|\d\.\d{4}( \(\S+\))?)"
FIGURE = re.compile(rf"(?<![\w.-]){NUMBER}(?![\w.-])")
KEPT = ("model", "epsilon", "draw", "delta", "unit", "relation", "data_is_public")
COPIES = ("ratings.parquet", "train.parquet", "test.parquet")


def without_figures(seen: Seen) -> Seen:
    """Everything except errors on held-out ratings, which must be marked private."""
    assert "private figure of the curator" in seen.stdout
    kept = {}
    for name, (mode, content) in seen.files.items():
        if "comparison." in name:
            assert b"private figure of the curator" in content, name
            assert "the comparison" in seen.stdout or not name.startswith("demo-output"), name
            if name.endswith(".parquet"):
                table = pq.read_table(pa.BufferReader(content))
                content = [table.schema, table.select(KEPT).to_pylist()]
            else:
                content = FIGURE.sub("#", content.decode()) if name.endswith(".md") else None
        elif name.endswith(COPIES):
            assert f"{Path(name).stem}" in seen.stdout.split("Private: ")[1]
            content = None
        kept[name] = (mode, content)
    return replace(seen, stdout=_screen(seen.stdout), files=kept)


def _screen(text: str) -> str:
    """A table's lines and JSON's runs, without the figures."""
    if text.startswith("{"):
        found = json.loads(text)
        found["runs"] = [
            {key: value if key in KEPT else None for key, value in row.items()} for row in found["runs"]
        ]
        return json.dumps(found)
    table = re.compile(
        r"^(\| \S+ \||  \S.*, (epsilon|no|released) |[a-z][a-z-]* +(inf|\d[\d.]*) +\S).*$", re.M
    )

    def without(line: str) -> str:
        return re.sub(" +", " ", FIGURE.sub("#", re.sub(r" [\d,]+$", " #", line)))

    return table.sub(lambda line: without(line[0]), text)


# ---------------------------------------------------------------------- real processes


@pytest.mark.parametrize("case", [SOME[0], *long(*([case] for case in SOME[1:]))], ids="-".join)
def test_a_real_process(case, tmp_path):
    """Compare what in-process runs cannot show: file descriptors, a real terminal, the interpreter's exit."""
    screens = []
    for number in (0, 1):
        place = tmp_path / str(number)
        place.mkdir()
        line = ["train", *files(place, number, case), "--model", "private-als", "--epsilon", "5"]
        line += ["--users", "9", "--delta", "1e-6", *domain_words(place, "csv", False), "--out", "model.hush"]
        screens.append(process(place, tmp_path / "tape", line))
    assert screens[0] == screens[1]
    assert screens[0][0] == 0 and b"training: 100%" in screens[0][2] and b"PRIVACY STATEMENT" in screens[0][1]


def process(place: Path, tape: Path, line: list[str]) -> tuple[object, ...]:
    """Return exit code, standard output, standard error on a terminal, and the files."""
    before = {path.name for path in place.iterdir()}
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 80, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HUSHREC_LEDGER": "ledger.sqlite", "COLUMNS": "80"}
    started = subprocess.Popen(
        [sys.executable, "-W", "always", "-m", "tests.endtoend.process", str(tape), *line],
        cwd=place, env=environment, stdout=subprocess.PIPE, stderr=follower,
    )  # fmt: skip
    os.close(follower)
    screen = b""
    with contextlib.suppress(OSError):  # the terminal is closed
        while chunk := os.read(leader, 4096):
            screen += chunk
    os.close(leader)
    stdout, _ = started.communicate(timeout=120)
    written = {name: content for name, content in files_of(place).items() if name not in before}
    return started.returncode, stdout, screen.replace(str(place).encode(), b"."), written
