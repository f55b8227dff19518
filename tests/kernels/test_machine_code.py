"""Kernels are compiled anywhere: without a home, a writable folder, a password entry or space."""

from __future__ import annotations

import errno
import importlib.util
import math
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import hushrec
from hushrec import machine_code
from hushrec.data import realistic
from hushrec.kernels.loops import in_numpy
from hushrec.registry import ESTIMATORS

PACKAGE = Path(hushrec.__file__).parent
ONCE, IN_MEMORY = "Compiling kernels, once after installation", "Compiling kernels in memory"
SOURCE = """
from hushrec.machine_code import compiled

@compiled
def total(array):
    result = array[0] - array[0]
    for number in array:
        result += number
    return result
"""


@pytest.fixture(scope="module")
def common():
    """Return a folder that all accounts reach; each run of pytest closes the folder of all runs again."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def job(common):
    """Make likes and a catalogue in a folder that all accounts may write to."""
    folder = common / "job"
    folder.mkdir()
    folder.chmod(0o777)
    rows = realistic(2000, 12, 12000, seed=0).matrix.tocoo()
    lines = [f"{user},{item}" for user, item in zip(rows.row, rows.col)]
    (folder / "likes.csv").write_text("user,item\n" + "\n".join(lines) + "\n")
    (folder / "items.txt").write_text("".join(f"{item}\n" for item in range(12)))
    return folder


def train(out):
    words = f"train likes.csv --implicit --catalogue items.txt --epsilon 8 --delta 1e-6 --out {out}"
    return [*words.split(), "--dataset", out, "--ledger", "ledger.sqlite"]


def hushrec_as(folder, words, prefix=(), package=PACKAGE, **environment):
    """Run a command with only the given environment."""
    paths = [package.parent, *(path for path in sys.path if "site-packages" in path)]
    python = shutil.which("python3.11", path="/usr/bin") if prefix else sys.executable
    done = subprocess.run(
        [*prefix, python, "-m", "hushrec", *words],
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "HUSHREC_DEBUG": "1",
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            **environment,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def read_only(common):
    """Copy the package to where no other user can write."""
    target = common / "installed" / "hushrec"
    return Path(shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__")))


@pytest.mark.skipif(
    os.name != "posix"
    or os.geteuid() != 0
    or not shutil.which("setpriv")
    or sys.version_info[:2] != (3, 11)
    or not Path("/usr/bin/python3.11").exists(),
    reason="becoming another user needs root",
)
def test_without_a_writable_folder_kernels_are_compiled_in_memory(job, read_only):
    """The user has no password entry: numba alone left a folder named ~ there."""
    other = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups")
    own = job / "other user"
    own.mkdir()
    own.chmod(0o777)
    for name in ("likes.csv", "items.txt"):
        shutil.copy(job / name, own / name)
    said = hushrec_as(own, train("model.hush"), other, read_only)
    assert said.count(IN_MEMORY) == 1 and "NUMBA_CACHE_DIR" in said and ONCE not in said
    said = hushrec_as(own, ["recommend", "model.hush", "likes.csv", "--user", "7"], other, read_only)
    assert "Compiling" not in said
    assert {path.name for path in own.iterdir() if path.is_dir()} <= {"ledger.sqlite.trainings"}


def test_compilation_is_announced_once_and_a_single_list_needs_none(job, tmp_path):
    """Also if numba is set to compile nothing."""
    kernels = {"NUMBA_CACHE_DIR": str(tmp_path / "kernels"), "HOME": str(tmp_path)}
    assert hushrec_as(job, train("first.hush"), NUMBA_DISABLE_JIT="1", **kernels).count(ONCE) == 1
    (folder,) = (tmp_path / "kernels").iterdir()
    before = sorted(folder.rglob("*.nbi"))
    assert before and folder.stat().st_mode & 0o077 == 0
    again = [
        train("second.hush"),
        ["recommend", "first.hush", "likes.csv", "--user", "7", "--explain"],
        ["recommend", "first.hush", "likes.csv", "--all", "--out", "lists.parquet"],
    ]
    for words in again[:2]:
        assert "Compiling" not in hushrec_as(job, words, **kernels)
    assert sorted(folder.rglob("*.nbi")) == before  # one user's list compiled nothing
    assert "Compiling" not in hushrec_as(job, again[2], **kernels)
    assert set(folder.rglob("*.nbi")) > set(before)


def load(path):
    """The module again, as another process would."""
    spec = importlib.util.spec_from_file_location("total_of_numbers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.total


@pytest.fixture
def caching(monkeypatch):
    """Replace numba's function that writes a file of machine code."""
    from numba.core.caching import IndexDataCacheFile

    write = IndexDataCacheFile._save_data

    def replace(with_):
        monkeypatch.setattr(IndexDataCacheFile, "_save_data", lambda *arguments: with_(write, *arguments))

    return replace


DAMAGES = {
    "empty": lambda raw: b"",
    "cut short": lambda raw: raw[: len(raw) * 2 // 3],
    "zeros": lambda raw: bytes(len(raw)),
    "one bit": lambda raw: raw[: len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 1]) + raw[len(raw) // 2 + 1 :],
    "of others": lambda raw: b"\x80\x04}\x94.",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_machine_code_that_cannot_be_read_is_compiled_again(tmp_path, monkeypatch, damage):
    path, numbers = tmp_path / "total_of_numbers.py", np.arange(1, 4)
    path.write_text(SOURCE)
    monkeypatch.setattr(machine_code, "_folder", lambda: tmp_path)
    load(path)(numbers)
    for kind in ("nbi", "nbc"):
        assert (files := list(tmp_path.rglob(f"*total*.{kind}")))
        for file in files:
            file.write_bytes(DAMAGES[damage](file.read_bytes()))
        assert load(path)(numbers) == 6
    (index,) = tmp_path.rglob("*total*.nbi")
    written = index.stat().st_mtime_ns
    assert load(path)(numbers) == 6 and index.stat().st_mtime_ns == written  # it was read


CHARGES = """
import pathlib, sys, hushrec
from hushrec import machine_code
from hushrec.training import named

made, kernels, charge, before = machine_code._dispatcher, [], hushrec.Ledger.charge, []
machine_code._dispatcher = lambda function: kernels.append(made(function)) or kernels[-1]

def loaded():
    return {(kernel.py_func.__name__, types) for kernel in kernels for types in kernel.signatures}

def charged(*arguments, **options):
    before.append(loaded())
    return charge(*arguments, **options)

hushrec.Ledger.charge = charged
rows, public = hushrec.realistic(500, 80, 9000, seed=0), None
if sys.argv[2] == "store":
    rows = hushrec.Store.prepare(rows, "store", rows.domain, partitions=2)
elif sys.argv[2] == "donors":
    rows = hushrec.realistic(500, 1200, 9000, seed=0)
    items = rows.domain.items
    table = {"item": items, "title": [f"word{item % 7} other{item % 5}" for item in range(1200)]}
    domain = hushrec.Domain(items, rating_range=(1, 5), item_features=table)
    rows, public = rows.from_any(rows, domain), hushrec.PublicRatings(donors=list(rows.users[:60]))
book, last = hushrec.Ledger("ledger"), pathlib.Path("last.hush")
season = hushrec.Season(hushrec.Budget(5, 1e-6))
if sys.argv[2] != "season":
    accountant = hushrec.Accountant(hushrec.Budget(5, 1e-6), ledger=book)
    named.train(sys.argv[1], rows, accountant, public=public)
elif last.exists():
    model = hushrec.load(last)
    model.continue_training(rows, hushrec.SeasonAccountant.following(model.privacy, ledger=book))
else:
    book.open_season("default", season)
    accountant = hushrec.SeasonAccountant(season, ledger=book)
    named.train(sys.argv[1], rows, accountant, keep=lambda model: model.save(last))
assert before[0] and before[0] == loaded(), loaded() - before[0]
"""


@pytest.mark.parametrize(
    "model, place",
    [("private-als", "store"), ("private-eigenrec", "donors"), ("both", "store"), ("both", "season")],
)
def test_every_kernel_is_loaded_before_the_first_charge(tmp_path, model, place):
    """A kernel that cannot be compiled must not cost budget."""
    for _ in range(1 + (place == "season")):  # a first training, and a week in a process of its own
        done = subprocess.run(
            [sys.executable, "-c", CHARGES, model, place], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def test_a_full_disk_is_no_error(tmp_path, caching):
    path = tmp_path / "total_of_numbers.py"
    path.write_text(SOURCE)

    def full(write, *arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    caching(full)
    assert load(path)(np.arange(1, 4)) == 6


def test_two_that_compile_at_once_do_not_mix_their_files(tmp_path, caching):
    """Both find no machine code; one compiles for integers, the other for floats, writing in turn."""
    path = tmp_path / "total_of_numbers.py"
    path.write_text(SOURCE)
    integers, floats = np.arange(1, 4), np.arange(1.0, 4.0)
    one, other, writing = load(path), load(path), []

    def other_writes_first(write, *arguments):
        if not writing:
            writing.append(True)
            (index,) = Path(arguments[0]._index_path).parent.glob("*total*.nbi")
            index.unlink()  # the other process looked before it was written
            assert other(floats) == 6.0
        write(*arguments)

    caching(other_writes_first)
    assert one(integers) == 6
    again = load(path)
    assert again(integers) == 6
    assert again(floats) == 6.0


@pytest.mark.parametrize("model", ["both", "als", "ease", "private-eigenrec", "popular"])
def test_lists_without_machine_code_are_those_with_it(model):
    """A model's list for one user, and the same by the kernels of many."""
    ratings = realistic(80, 40, 1500, seed=1)
    budget = hushrec.Budget(math.inf, 1e-6) if model in ("als", "ease") else hushrec.Budget(8, 1e-6)
    trained = ESTIMATORS[model]().fit(ratings, hushrec.Accountant(budget))
    table = trained.recommend_batch(ratings, 5)
    for user in (0, 7):
        row = ratings.matrix[[user]]
        own = [(ratings.domain.items[item], value) for item, value in zip(row.indices, row.data.tolist())]
        with in_numpy():
            alone = trained.recommend(own, 5)
        rows = table.filter(np.asarray(table["user"]) == ratings.users[user]).to_pylist()
        assert [row["item"] for row in rows] == [each.item for each in alone]
        found, expected = [each.score for each in alone], [row["score"] for row in rows]
        np.testing.assert_allclose(found, expected, rtol=1e-5)  # als computes in float32
