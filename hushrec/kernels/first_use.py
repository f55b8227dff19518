"""The kernels of the usual training, compiled by two processes where this machine has not done it before.

Machine code is kept on the disk, so this is once after installation. numba compiles one function at a time in
a process, and a third of the seconds are one function's: a second process compiles that one and the smallest,
while this one reads the ratings and compiles the rest. Both call the kernels on a matrix of one entry; no row
has a part in it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np

from hushrec.kernels import threads

SAID = "Compiling kernels, once after installation; this takes a few seconds."
_INDEX = "least_squares._row_range-*.nbi"
LONGEST = 60.0  # seconds that the other process is waited for; what it has not done is compiled here
_collects = False  # whether garbage was looked for before


@cache
def cold() -> bool:
    """Tell whether the largest kernel was not on the disk when this process first asked."""
    if _surely_cold():
        return True
    from hushrec.kernels.least_squares import compiled_before

    return not compiled_before()


def _surely_cold() -> bool:
    """The same by the names of files, where that is to be seen before the half second that numba loads."""
    named, beside = os.environ.get("NUMBA_CACHE_DIR"), Path(__file__).with_name("__pycache__")
    if not named and not os.access(beside, os.W_OK):
        return False  # numba has a place of its own
    files = Path(named).glob(f"*/{_INDEX}") if named else beside.glob(_INDEX)
    return next(files, None) is None


@cache
def begin() -> subprocess.Popen[bytes] | None:
    """Have another process compile half of the kernels, where that is to be done and there are two cores.

    Until `finish`, nothing looks for garbage.
    """
    if not cold():
        return None
    global _collects
    logging.getLogger("hushrec").info(SAID)
    _collects = gc.isenabled()
    gc.disable()  # looking for garbage is a seventh of the time to compile
    if threads.count() < 2 or getattr(sys, "frozen", False) or "python" not in Path(sys.executable).name:
        return None
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        other = subprocess.Popen(
            [sys.executable, "-P", "-m", "hushrec.kernels.first_use"],
            # its registers are written by hand: LLVM's further passes take time and gain nothing
            env={**os.environ, "PYTHONPATH": paths, "NUMBA_NUM_THREADS": "1", "NUMBA_OPT": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except OSError:  # no further process is allowed
        return None
    atexit.register(_stop, other)
    return other


@cache
def finish() -> None:
    """Compile other kernels meanwhile, then wait for the largest, or compile what is missing."""
    if not cold():
        return
    other = begin()
    try:
        _others()
        with contextlib.suppress(subprocess.TimeoutExpired):
            if other is not None:
                other.wait(LONGEST)
        _largest()
        _smallest()
    finally:
        if _collects:
            gc.enable()


def _stop(other: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        other.kill()
        other.wait()


_STARTS, _COLUMNS, _VALUES = np.array([0, 1], np.int32), np.zeros(1, np.int32), np.ones(1, np.float32)
_ENTRY = _STARTS, _COLUMNS, _VALUES


def _largest() -> None:
    from hushrec.kernels import least_squares

    least_squares.solve_rows(*_ENTRY, np.ones((1, 2), np.float32), 1.0)


def _smallest() -> None:
    from hushrec.kernels import residuals, sparse_rows

    residuals.added_weights(_STARTS, _COLUMNS, np.ones(1), 1)
    sparse_rows.row_sums(_STARTS, _VALUES)
    sparse_rows.row_squares(_STARTS, _VALUES, np.zeros(1))
    sparse_rows.weight_sums(_STARTS, _COLUMNS, np.ones(1))


def _others() -> None:
    from hushrec.kernels import residuals

    factors = np.ones((1, 2))
    residuals.residual_norms(*_ENTRY, factors, factors)
    residuals.added_residuals(*_ENTRY, factors, factors, step=1.0)


if __name__ == "__main__":
    gc.disable()
    _largest()
    _smallest()
