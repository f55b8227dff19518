"""Ranges cover all rows once, and the number of threads obeys its limits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from hushrec.kernels import threads


@settings(max_examples=50, deadline=None)
@given(n_rows=st.integers(0, 1000), scale=st.sampled_from([1.0, 1e5, 1e9]))
def test_ranges_cover_the_rows_in_order(n_rows, scale):
    work = scale / np.arange(1, n_rows + 1)
    tasks = threads.ranges(work)
    assert [row for start, stop in tasks for row in range(start, stop)] == list(range(n_rows))
    assert all(start % threads.ROWS_TOGETHER == 0 for start, _ in tasks)


def test_limits(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert threads.count() == 1
    with threads.limit(7):
        assert threads.count() == 7
    with pytest.raises(ValueError), threads.limit(0):
        pass


def test_an_error_in_a_thread_reaches_the_caller():
    def fail(start, stop):
        raise ZeroDivisionError

    with threads.limit(2), pytest.raises(ZeroDivisionError):
        threads.run(fail, np.full(1000, 1e9))


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize("first_out", [0, 1])
def test_one_blas_thread_until_the_last_is_out(first_out):
    """Who leaves first must not give BLAS its threads back while another still computes."""
    with threadpool_limits(limits=2, user_api="blas"):
        before, seen = blas_threads(), []
        both_in, one_out = threading.Barrier(2, timeout=10), threading.Event()

        def compute(place):
            with threads.one_blas_thread():
                both_in.wait()
                if place != first_out:
                    one_out.wait(10)
                seen.append(blas_threads())
            one_out.set()

        running = [threading.Thread(target=compute, args=(place,)) for place in range(2)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert seen == [{1}, {1}]
        assert blas_threads() == before


def test_libraries_are_looked_for_again_after_an_import_only(monkeypatch):
    """Every training asks: looking for them each time was half of a small one."""
    with threads.one_blas_thread():
        pass
    first = threads._blas()
    with threads.one_blas_thread(), threads.one_blas_thread():
        assert threads._blas() is first
    monkeypatch.setitem(sys.modules, "a_module_with_a_library_of_its_own", sys)
    assert threads._blas() is not first


ALL_AT_ONCE = """
import math, sys, threading
import numpy as np
from hushrec.algorithms import PrivateALS
from hushrec.papers.dpals import DPALS
from hushrec.papers.frank_wolfe import CorrectiveFrankWolfe, PrivateFrankWolfe, PrivateSVD
from hushrec.data import realistic
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise

ratings = realistic(300, 200, 9000, seed=0)
estimators = [
    PrivateALS(rank=8, iterations=1, n_users=300),
    DPALS(rank=4, iterations=1),
    PrivateFrankWolfe(nuclear_norm=50.0, iterations=2),
    CorrectiveFrankWolfe(iterations=1),
    PrivateSVD(rank=4),
]
found = [None] * 9
together = threading.Barrier(9)

def train(place):
    together.wait()
    found[place] = [
        estimator.fit(ratings, Accountant(Budget(5.0, 1e-6), noise=SeededNoise(1)), seed=0).arrays
        for estimator in estimators
    ]

running = [threading.Thread(target=train, args=(place,)) for place in range(9)]
for thread in running:
    thread.start()
for thread in running:
    thread.join()
for others in found[1:]:
    for one, other in zip(found[0], others, strict=True):
        for name in one:
            assert np.array_equal(one[name], other[name]), name
arrays = {f"{place}-{name}": array for place, one in enumerate(found[0]) for name, array in one.items()}
np.savez(sys.argv[1], **arrays)
"""


@pytest.mark.full
def test_nine_trainings_at_once_give_the_same_bits(tmp_path):
    """Nine threads compile, load and train at the same time; then again from what is in the cache."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for run in ("compiled.npz", "loaded.npz"):
        command = [sys.executable, "-c", ALL_AT_ONCE, str(tmp_path / run)]
        subprocess.run(command, env=environment, check=True, timeout=600)
    with np.load(tmp_path / "compiled.npz") as compiled, np.load(tmp_path / "loaded.npz") as loaded:
        assert compiled.files == loaded.files
        for name in compiled.files:
            np.testing.assert_array_equal(compiled[name], loaded[name], err_msg=name)
