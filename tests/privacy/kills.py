"""Ends a training at the n-th thing that it does to ledger, journal and noise."""

import os
import signal
from pathlib import Path

import numpy as np

from hushrec.privacy import SystemNoise, journal
from hushrec.privacy.journal import Journal
from hushrec.privacy.ledger import Ledger

#: Before and after each of these a training may be killed.
STEPS = (
    (Ledger, "charge"),
    (Ledger, "keep"),
    (Ledger, "forget"),
    (SystemNoise, "add_gaussian"),
    (Journal, "_write_header"),
    (journal.Draft, "write"),
    (journal.Draft, "finish"),
    (Path, "replace"),
    (Path, "unlink"),
    (os, "fsync"),
)


class Killed(BaseException):
    """Nothing is done after it."""


class Kill:
    """Counts steps, and at the given one ends it all: the process, or by `Killed` in any state."""

    def __init__(self, monkeypatch, at: int | None = None, process: bool = False) -> None:
        self.steps, self._at, self._process = 0, at, process
        for owner, name in STEPS:
            monkeypatch.setattr(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, function):
        def call(*arguments, **options):
            self._tick()
            result = function(*arguments, **options)
            self._tick()
            return result

        return call

    def _tick(self) -> None:
        self.steps += 1
        if self._at is not None and self.steps >= self._at:
            if self._process:
                os.kill(os.getpid(), signal.SIGKILL)
            raise Killed


def noise_by_label(monkeypatch, drawn: list[str] | Path) -> None:
    """The same noise whenever a release of that label and shape is drawn; each draw is written down."""

    def add_gaussian(self, value, sd, label):
        if isinstance(drawn, list):
            drawn.append(label)
        else:
            with drawn.open("a") as file:
                file.write(f"{label}\n")
        numbers = np.random.default_rng([*label.encode(), value.size]).normal(size=value.shape)
        return value + np.asarray(sd) * numbers

    monkeypatch.setattr(SystemNoise, "add_gaussian", add_gaussian)
