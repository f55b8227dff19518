"""Threads for the kernels: ranges of rows of about equal work, each computed by one thread.

Plain Python threads call compiled functions that release the lock, so a fork or a second caller breaks
nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

RANGES_PER_THREAD = 16  # the last of 16 ranges to end leaves the other threads idle for little
ROWS_TOGETHER = 16  # ranges start at multiples of this, because rows of a range fill a register
SMALLEST_RANGE = 2e5  # multiply-adds that take about as long as handing out a task, some 30 microseconds

_limit: contextvars.ContextVar[int | None] = contextvars.ContextVar("threads", default=None)
_blas_lock = threading.Lock()
_blas_users = 0  # threads of this process that are inside `one_blas_thread`
_blas_limits: Any = None
_blas_found: tuple[int, Any] = (0, None)  # modules when the libraries were looked for, and these


def count() -> int:
    """Return the number of threads: the available cores, at most OMP_NUM_THREADS and NUMBA_NUM_THREADS."""
    limit = _limit.get()
    if limit is not None:
        return limit
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        asked = os.environ.get(name, "")
        if asked.isdigit():
            cores = min(cores, int(asked))
    return max(cores, 1)


@contextlib.contextmanager
def limit(threads: int) -> Iterator[None]:
    if threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}.")
    token = _limit.set(threads)
    try:
        yield
    finally:
        _limit.reset(token)


def ranges(work: np.ndarray) -> list[tuple[int, int]]:
    n_rows = len(work)
    if n_rows == 1 or (n_rows and work.sum(dtype=np.float64) < 2 * SMALLEST_RANGE):
        return [(0, n_rows)]
    done = np.concatenate([[0.0], np.cumsum(work, dtype=np.float64)])
    pieces = max(1, min(int(done[-1] / SMALLEST_RANGE), RANGES_PER_THREAD * count()))
    bounds = np.searchsorted(done, np.linspace(0.0, done[-1], pieces + 1)[1:-1])
    bounds = bounds // ROWS_TOGETHER * ROWS_TOGETHER
    bounds = np.unique(np.concatenate([[0], bounds, [n_rows]])).tolist()
    return list(pairwise(bounds))


def run(function: Callable[[int, int], object], work: np.ndarray) -> None:
    """Call function(start, stop) for ranges that cover all rows, on as many threads as `count` allows.

    One thread takes the ranges too: what a function holds of all its rows could fill the memory.
    """
    tasks = ranges(work)
    if len(tasks) < 2 or count() == 1:
        for start, stop in tasks:
            function(start, stop)
        return
    with ThreadPoolExecutor(min(count(), len(tasks))) as pool:
        list(pool.map(function, *zip(*tasks, strict=True)))  # after an error no new range starts


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Use one thread in BLAS inside a ``with`` block.

    A threaded BLAS would compete with the kernels for cores, and its rounding depends on its number of
    threads. The number belongs to the process: the first thread sets it and the last one restores it.
    """
    global _blas_users, _blas_limits
    with _blas_lock:
        limited: Any = contextlib.nullcontext()
        if _blas_users == 0:
            _take_blas()
            _blas_limits = _blas().limit(limits=1, user_api="blas")
        else:  # a BLAS over OpenMP has a number for each thread
            limited = _blas().limit(limits=1, user_api="blas")
        _blas_users += 1
    try:
        with limited:
            yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                _take_blas()
                _blas_limits.restore_original_limits()
                _take_blas()


def _blas() -> Any:
    """Return the BLAS libraries. Looking for them reads the names of all files of the process, so once an
    import."""
    from threadpoolctl import ThreadpoolController

    global _blas_found
    if _blas_found[0] != len(sys.modules):
        _blas_found = len(sys.modules), ThreadpoolController()
    return _blas_found[1]


def _take_blas() -> None:
    """threadpoolctl 3.8 obeys only the thread that set OpenBLAS's number first: let it obey this one."""
    from threadpoolctl import OpenBLASController

    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)
