"""Ranges cover all rows once, and the number of threads obeys its limits."""

from __future__ import annotations

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


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize("first_out", [0, 1])
def test_one_blas_thread_until_the_last_is_out(first_out):
    """The first to leave must not give BLAS its threads back while another still computes."""
    with threadpool_limits(limits=2, user_api="blas"):
        before, seen = blas_threads(), []
        both_in, one_out = threading.Barrier(2, timeout=60), threading.Event()

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
