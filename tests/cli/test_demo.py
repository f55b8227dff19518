"""`make demo`, on less data: what it ends with."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hushrec.privacy import Budget, Ledger

ROOT = Path(__file__).parents[2]


def demo(tmp_path, *arguments):
    code = "import sys, benchmarks.demo as d; d.SHAPE = (300, 60, 6000); sys.argv[1:] = eval(sys.argv[1])"
    return subprocess.run(
        [sys.executable, "-c", f"{code}; d.main()", repr([str(argument) for argument in arguments])],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HUSHREC_LEDGER": str(tmp_path / "ledger.sqlite")},
        capture_output=True,
        text=True,
    )


def ending(done):
    """What is printed after the bar, where all that is public and the model's list must stand."""
    assert done.returncode == 0, done.stderr
    end = done.stdout[done.stdout.index("=" * 80) :]
    places = [end.index(words) for words in ("PRIVACY STATEMENT", "(the model)", "rank  item")]
    assert places == sorted(places)
    assert "\n  10  " in end  # ten recommendations
    return end


@pytest.mark.full  # `make demo` runs it on more data
def test_generated_data(tmp_path):
    end = ending(demo(tmp_path))
    assert (
        end.index("item-bias, epsilon 5") < end.index("global-mean, epsilon 5") < end.index("als, no privacy")
    )
    assert f"Plot:  {tmp_path / 'demo-output' / 'comparison.png'}" in end
    assert (tmp_path / "demo-output" / "comparison.png").exists()
    assert not (tmp_path / "ledger.sqlite").exists()


def test_a_file_of_ones_own_is_charged_for_one_model(files, tmp_path):
    table = pq.read_table(files.ratings).rename_columns(["who", "what", "stars"])
    pq.write_table(table, tmp_path / "own.parquet")
    own = ["--ratings", tmp_path / "own.parquet", "--catalogue", files.catalogue, "--rating-range", "1", "5"]
    done = demo(tmp_path, *own, "--columns", "user=who,item=what,rating=stars", "--dataset", "shop")
    end = ending(done)
    said = done.stdout.index("One model will be charged: epsilon = 5 at delta = 1e-06 (unit: user")
    assert said < done.stdout.index("$ hushrec train")
    assert 'data set "shop" charged epsilon = 5 ' in end[end.index("ledger show") :]
    summary = Ledger(tmp_path / "ledger.sqlite").summary("shop", 1e-6)
    assert summary.mu == pytest.approx(Budget(5, 1e-6).mu)
    assert not (tmp_path / "demo-output" / "ledger.sqlite").exists()  # `make clean` deletes that folder
