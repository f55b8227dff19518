"""What is compiled at first use, and by whom."""

import gc
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from hushrec.kernels import first_use

TRAINING = """
import json
import numba
from hushrec import Accountant, Both, Budget, realistic
from hushrec.kernels import first_use, least_squares, residuals, sparse_rows, threads
threads.count = lambda: 2
other = first_use.begin()
first_use.finish()
kernels = [each for room in (least_squares, residuals, sparse_rows)
           for each in vars(room).values() if isinstance(each, numba.core.dispatcher.Dispatcher)]
before = {each.__name__: len(each.signatures) for each in kernels}
ratings = realistic(300, 60, 6000, seed=0)
budget = Budget(5, 1e-6)
model = Both.planned(budget, ratings.domain, 300)
model.fit(ratings, Accountant(budget, data_is_public=True))
new = [each.__name__ for each in kernels if len(each.signatures) > before[each.__name__]]
print(json.dumps([new, other.returncode, least_squares._row_range.stats.cache_hits.total()]))
"""


def test_the_usual_training_compiles_nothing_that_was_not_compiled_at_once(tmp_path):
    """And the largest kernel was compiled by the other process, into the cache that both know."""
    done = subprocess.run(
        [sys.executable, "-c", TRAINING],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout) == [[], 0, 1], done.stderr


@pytest.fixture
def fresh(monkeypatch):
    """A process that has not asked yet; what it would compile is counted."""
    compiled = []
    for name in ("cold", "begin", "finish"):
        function = getattr(first_use, name).__wrapped__
        monkeypatch.setattr(first_use, name, first_use.cache(function))
    monkeypatch.setattr(first_use, "_surely_cold", lambda: True)
    monkeypatch.setattr(first_use, "_largest", lambda: compiled.append("largest"))
    monkeypatch.setattr(first_use, "_others", lambda: compiled.append(gc.isenabled()))
    monkeypatch.setattr(first_use.threads, "count", lambda: 2)
    return compiled


@pytest.mark.parametrize("what", ["one core", "a program of its own", "no process"])
def test_one_process_compiles_all_where_there_can_be_no_other(what, fresh, monkeypatch):
    begun = []
    if what == "one core":
        monkeypatch.setattr(first_use.threads, "count", lambda: 1)
    elif what == "a program of its own":
        monkeypatch.setattr(sys, "executable", "/opt/shop/shop")

    def popen(*words, **more):
        begun.append(words)
        raise OSError

    monkeypatch.setattr(first_use, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": popen}))
    first_use.finish()
    first_use.finish()
    assert fresh == [False, "largest"] and gc.isenabled()
    assert len(begun) == (what == "no process")


def test_the_other_process_is_asked_once_and_does_not_outlive_this_one(fresh, monkeypatch):
    program = "import time; time.sleep(600)"
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda words, **more: popen([words[0], "-c", program], **more))
    monkeypatch.setattr(first_use, "LONGEST", 0.1)
    other = first_use.begin()
    assert first_use.begin() is other and other.poll() is None
    first_use.finish()
    first_use._stop(other)
    assert other.poll() is not None and fresh == [False, "largest"] and gc.isenabled()
