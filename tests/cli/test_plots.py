"""Without matplotlib: one sentence, before anything is spent."""

import sys

import pytest


@pytest.fixture(autouse=True)
def without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def assert_asked_for(result):
    assert result.exit_code == 1 and result.stdout == ""
    assert result.stderr.startswith("Error: A plot needs more packages; install them in a clone with: pip")


def test_a_comparison(run, files):
    line = ["compare", files.ratings, "--epsilons", "1", "--delta", "1e-6", *files.domain]
    assert_asked_for(run(*line, "--out-dir", "out"))
    assert not run.ledger.exists() and not any(run.folder.iterdir())


def test_everything_else_goes_on(run, files):
    assert run("report", files.model).exit_code == 0
