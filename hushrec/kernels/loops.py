"""The kernels' loops: machine code, or NumPy where machine code would take longer to load than to run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from hushrec.kernels import numpy_loops

_in_numpy: ContextVar[bool] = ContextVar("kernels in NumPy", default=False)


@contextmanager
def in_numpy() -> Iterator[None]:
    """Compute one user's list without numba inside a ``with`` block; results differ by rounding."""
    token = _in_numpy.set(True)
    try:
        yield
    finally:
        _in_numpy.reset(token)


def active() -> Any:
    return numpy_loops if _in_numpy.get() else _compiled()


@cache
def _compiled() -> Any:
    from hushrec.kernels import compiled_loops

    return compiled_loops
