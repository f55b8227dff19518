"""`make demo`, on less data: its last lines."""

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import demo
from hushrec.privacy import Budget, Ledger
from tests.command_line import invoke

ROOT = Path(__file__).parents[2]


def test_a_file_of_ones_own_is_charged_for_one_model(files, tmp_path, monkeypatch, capsys):
    """Commands run in this process: another takes two seconds to load each time."""
    table = pq.read_table(files.ratings).rename_columns(["who", "what", "stars"])
    pq.write_table(table, tmp_path / "own.parquet")

    def run(*words, fails=False):
        print("$ hushrec", *words)
        done = invoke(*words)
        assert done.exit_code == 0 or fails, done.stderr
        return done.stdout

    own = ["--ratings", tmp_path / "own.parquet", "--catalogue", files.catalogue, "--rating-range", "1", "5"]
    own += ["--columns", "user=who,item=what,rating=stars", "--dataset", "shop"]
    monkeypatch.setattr(demo, "run", run)
    monkeypatch.setattr(sys, "argv", ["demo", *map(str, own)])
    monkeypatch.setenv("HUSHREC_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.chdir(tmp_path)
    demo.main()
    printed = capsys.readouterr().out
    charged = printed.index("One model will be charged: epsilon = 5 at delta = 1e-06 (unit: user")
    trained = printed.index("$ hushrec train")
    places = [printed.index(words) for words in ("PRIVACY STATEMENT", "this model", "Ann likes")]
    assert [charged, trained, *places] == sorted([charged, trained, *places])
    assert printed.count("$ hushrec train") == 1 and "no privacy" not in printed
    assert 'data set "shop" charged epsilon = 5 ' in " ".join(printed.split())
    assert len(printed.splitlines()) <= 60
    summary = Ledger(tmp_path / "ledger.sqlite").summary("shop", 1e-6)
    assert summary.mu == pytest.approx(Budget(5, 1e-6).mu)
    assert not (tmp_path / "demo-output" / "ledger.sqlite").exists()  # `make clean` deletes that folder
