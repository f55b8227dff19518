"""Without the packages of an extra: one sentence, before anything is spent."""

import subprocess
import sys

import pytest


@pytest.fixture(autouse=True)
def without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def assert_asked_for(result):
    assert result.exit_code == 1 and result.stdout == ""
    assert result.stderr.startswith("Error: A plot needs more packages; install them with: pip")


def test_a_comparison(run, files):
    line = ["compare", files.ratings, "--epsilons", "1", "--delta", "1e-6", *files.domain]
    assert_asked_for(run(*line, "--out-dir", "out"))
    assert not run.ledger.exists() and not any(run.folder.iterdir())


def test_everything_else_goes_on(run, files):
    assert run("report", files.model).exit_code == 0


def test_no_module_fails_in_another_way_without_the_packages_of_all_extras() -> None:
    code = """
import importlib, pkgutil, sys
absent = "starlette uvicorn httpx anyio matplotlib distributed dask flint mlflow lenskit".split()
sys.modules.update(dict.fromkeys(absent))
import hushrec
for module in pkgutil.walk_packages(hushrec.__path__, "hushrec.", onerror=lambda name: None):
    try:
        importlib.import_module(module.name)
    except hushrec.errors.MissingPackageError:
        print(module.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {"hushrec.server", "hushrec.network.transport"} <= set(done.stdout.split())
