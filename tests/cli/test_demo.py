"""`make demo`, on less data: what it ends with."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import demo
from hushrec.privacy import Budget, Ledger
from tests.command_line import invoke

ROOT = Path(__file__).parents[2]


def ending(printed):
    """What is printed after the bar, where all that is public and the model's list must stand."""
    end = printed[printed.index("=" * 80) :]
    places = [end.index(words) for words in ("PRIVACY STATEMENT", "(the model)", "rank  item")]
    assert places == sorted(places)
    assert "\n  10  " in end  # ten recommendations
    return end


@pytest.mark.true("E4")
@pytest.mark.full  # `make demo` runs it on more data
def test_generated_data(tmp_path):
    code = "import benchmarks.demo as d; d.SHAPE = (300, 60, 6000); d.main()"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HUSHREC_LEDGER": str(tmp_path / "ledger.sqlite"),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    end = ending(done.stdout)
    assert (
        end.index("item-bias, epsilon 5") < end.index("global-mean, epsilon 5") < end.index("als, no privacy")
    )
    assert f"Plot:  {tmp_path / 'demo-output' / 'comparison.png'}" in end
    assert (tmp_path / "demo-output" / "comparison.png").exists()
    assert not (tmp_path / "ledger.sqlite").exists()


def test_a_file_of_ones_own_is_charged_for_one_model(files, tmp_path, monkeypatch, capsys):
    """Its commands in this process: another takes two seconds to load each time."""
    table = pq.read_table(files.ratings).rename_columns(["who", "what", "stars"])
    pq.write_table(table, tmp_path / "own.parquet")

    def run(*words, quiet=False, fails=False):
        print("$ hushrec", *words)
        done = invoke(*words)
        assert done.exit_code == 0 or fails, done.stderr
        print("" if quiet else done.stdout)
        return done.stdout

    own = ["--ratings", tmp_path / "own.parquet", "--catalogue", files.catalogue, "--rating-range", "1", "5"]
    own += ["--columns", "user=who,item=what,rating=stars", "--dataset", "shop"]
    monkeypatch.setattr(demo, "run", run)
    monkeypatch.setattr(sys, "argv", ["demo", *map(str, own)])
    monkeypatch.setenv("HUSHREC_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.chdir(tmp_path)
    demo.main()
    printed = capsys.readouterr().out
    end = ending(printed)
    said = printed.index("One model will be charged: epsilon = 5 at delta = 1e-06 (unit: user")
    assert said < printed.index("$ hushrec train")
    rows = [line[2:35].strip() for line in end.splitlines() if line.startswith("  ") and "  –" in line]
    assert rows == ["user means, released by it", "popularity, released by it", "popular, epsilon 5, by plan"]
    assert 'data set "shop" charged epsilon = 5 ' in end[end.index("ledger show") :]
    summary = Ledger(tmp_path / "ledger.sqlite").summary("shop", 1e-6)
    assert summary.mu == pytest.approx(Budget(5, 1e-6).mu)
    assert not (tmp_path / "demo-output" / "ledger.sqlite").exists()  # `make clean` deletes that folder


def test_wrong_words_end_in_one_sentence(files, tmp_path, monkeypatch, capsys):
    """In words of make, and before anything is written."""
    pq.write_table(
        pq.read_table(files.ratings).rename_columns(["who", "what", "stars"]), tmp_path / "own.parquet"
    )
    monkeypatch.chdir(tmp_path)
    declared = ["--ratings", "own.parquet", "--catalogue", files.catalogue]
    for words, says in (
        (declared[:2], "Declare the items, too: make demo RATINGS=path CATALOGUE=path"),
        ([*declared, "--columns", "80"], "COLUMNS=user=Kunde,item=Artikel,rating=Sterne"),
        ([*declared, "--columns", "user"], "COLUMNS 'user' is not NAME=VALUE"),
    ):
        monkeypatch.setattr(sys, "argv", ["demo", *words])
        with pytest.raises(SystemExit) as stopped:
            demo.main()
        told = capsys.readouterr().err
        assert stopped.value.code == 2 and says in told and told.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["own.parquet"]
