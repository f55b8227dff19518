"""Ranges cover all rows once, and the number of threads obeys its limits."""

from __future__ import annotations

import numpy as np
import pytest

from hushrec.kernels import threads


@pytest.mark.parametrize("n_rows", [0, 1, 16, 17, 1000])
@pytest.mark.parametrize("scale", [1.0, 1e5, 1e9])
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
