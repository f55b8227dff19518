"""Noise of the tests: the system's cipher under keys from the test's name, so no verdict depends on chance.
A test that replaces ``os.urandom`` itself is given its own; a process that a test starts
or forks draws as ever."""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import hushrec.privacy.noise
import hushrec.privacy.selection  # noqa: F401

_REAL = os.urandom
_now: list[Any] = ["", itertools.count(), os.getpid()]  # whose noise, its draws so far, the process


def _urandom(size: int) -> bytes:
    if os.urandom is not _REAL or os.getpid() != _now[2]:
        return os.urandom(size)
    name, draws, _ = _now
    return hashlib.shake_128(f"{name} {next(draws)}".encode()).digest(size)


class _Module(ModuleType):
    """A module with one function replaced, for one of ours that uses it."""

    def __init__(self, real: ModuleType, **replaced: Any) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(replaced)
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


_OS = _Module(os, urandom=_urandom)
_SECRETS = _Module(secrets, randbelow=lambda most: int.from_bytes(_urandom(16), "big") % most)
_WHERE = {
    "hushrec.privacy.noise": ("os", _OS),
    "hushrec.privacy.selection": ("secrets", _SECRETS),
    "hushrec.evaluation.tuning": ("secrets", _SECRETS),
}


@contextmanager
def fixed_by(name: str) -> Iterator[None]:
    """Noise inside is that of the name, from its beginning."""
    for module, (attribute, ours) in _WHERE.items():
        if module in sys.modules:
            setattr(sys.modules[module], attribute, ours)
    before = _now[:]
    _now[:] = name, itertools.count(), os.getpid()
    try:
        yield
    finally:
        _now[:] = before
