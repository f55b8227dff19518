"""`make demo`, on less data: what it ends with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def demo(tmp_path, *arguments):
    code = "import sys, benchmarks.demo as d; d.SHAPE = (300, 60, 6000); sys.argv[1:] = eval(sys.argv[1])"
    return subprocess.run(
        [sys.executable, "-c", f"{code}; d.main()", repr([str(argument) for argument in arguments])],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HUSHREC_LEDGER": str(tmp_path / "not-this-one.sqlite")},
        capture_output=True,
        text=True,
    )


def assert_complete(done, tmp_path):
    assert done.returncode == 0, done.stderr
    end = done.stdout[done.stdout.index("=" * 80) :]
    wanted = [
        "PRIVACY STATEMENT",
        "(the model)",
        "item-bias, epsilon 5",
        "global-mean, epsilon 5",
        "rank  item",
    ]
    places = [end.index(words) for words in wanted]
    assert places == sorted(places)
    assert "\n  10  " in end  # ten recommendations
    assert f"Plot:  {tmp_path / 'demo-output' / 'comparison.png'}" in end
    assert (tmp_path / "demo-output" / "comparison.png").exists()
    assert not (tmp_path / "not-this-one.sqlite").exists()
    return end


@pytest.mark.full  # `make demo` runs it on more data
def test_generated_data(tmp_path):
    end = assert_complete(demo(tmp_path), tmp_path)
    assert "als, no privacy" in end


def test_a_file_of_ones_own_is_charged(files, tmp_path):
    own = ["--ratings", files.ratings, "--catalogue", files.catalogue, "--rating-range", "1", "5"]
    end = assert_complete(demo(tmp_path, *own), tmp_path)
    assert 'data set "my ratings" charged epsilon = ' in end[end.index("ledger show") :]
    assert "13 runs" in end or "10 runs" in end
