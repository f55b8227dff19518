"""The server's side of a training on no users: its next question, with units and noise."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Domain, Ratings
from hushrec.data.ratings import of_nobody
from hushrec.engines.two_servers.grid import Grid
from hushrec.errors import HushrecError
from hushrec.kernels.threads import one_blas_thread
from hushrec.privacy import Bounded, Plan
from hushrec.training.gate import PlannedGate
from hushrec.training.partitioned import Make, PartitionedUsers, Query, contributions
from hushrec.types import Array

#: A noisy total: integers modulo 2^64.
Words = NDArray[np.uint64]

#: Bits of an entry's place in an answer, below the question's number.
_PLACE_BITS = 40
#: Size of a stand-in, in standard deviations of the noise.
_STAND_IN = 50.0
#: Copies of a rehearsal's rows: with a million users all taste exceeds the noise.
_COPIES = 1 << 14


class Round(NamedTuple):
    """Questions that nodes are asked at once.

    `release` opened it; the training's questions are from `first` to before `stop`.
    """

    release: int
    first: int
    stop: int


class Opened(NamedTuple):
    """The questions of a round, their digests, their answers' steps, and a digest of the totals so far."""

    questions: tuple[Query, ...]
    keys: tuple[str, ...]
    steps: tuple[Array, ...]
    totals_digest: bytes

    @property
    def size(self) -> int:
        return sum(map(len, self.steps))


class Wanted(NamedTuple):
    """The next release: its number, its entries' places among the answers, all questions' digests."""

    release: int
    question: NDArray[np.int64]
    place: NDArray[np.int64]
    keys: tuple[str, ...]
    grid: Grid


#: ``total_of(wanted)`` returns the total of a release, or None.
TotalOf = Callable[[Wanted], Words | None]


class Training(NamedTuple):
    """A training to replay: its releases with the noise of one server, and with that of both."""

    estimator: Any
    domain: Domain
    seed: int
    plan: Plan
    both: Plan


class _Enough(Exception):
    """A replay may stop."""


class Replay(PlannedGate):
    """The server's side of a training on no users, up to a release without a total, or with stand-ins.

    Its users' side returns the places of entries in the nodes' answers.
    """

    def __init__(
        self,
        training: Training,
        totals: Sequence[Words] | TotalOf,
        stand_in: int | None = None,
        until: float = math.inf,
    ) -> None:
        super().__init__(training.both)
        self._training, self._stand_in, self._until = training, stand_in, until
        self._total = totals if callable(totals) else _of(totals)
        self._order = {release.label: number for number, release in enumerate(training.plan.releases)}
        self._made = 0
        self._nobody = of_nobody(training.domain)
        self.asked: list[Query] = []
        self.keys: list[str] = []
        self.steps: list[Array] = []
        self.needed, self.totals_digest = 0, b""
        self.wanted: Wanted | None = None

    def run(self) -> Any:
        """Return the trained arrays, or None if a total is missing."""
        estimator, domain, seed, *_ = self._training
        users = PartitionedUsers(estimator.users, domain, self._ask)
        try:
            with one_blas_thread(), np.errstate(all="ignore"):
                return estimator.train(users, self, seed)
        except _Enough:
            return None
        except HushrecError:
            raise
        except Exception as error:
            if self.wanted is not None and self._stand_in is not None:
                return None  # a stand-in is not a total
            raise HushrecError(
                f"This training cannot continue with these totals ({type(error).__name__}); it stops."
            ) from error

    def opened(self, which: Round) -> Opened:
        span = slice(which.first, which.stop)
        if not 0 <= which.first < which.stop == len(self.asked):
            raise HushrecError("A server has opened a round that this training does not have; refused.")
        return Opened(
            tuple(self.asked[span]), tuple(self.keys[span]), tuple(self.steps[span]), self.totals_digest
        )

    def release(self, label: str, bounded: Bounded) -> Array:
        self._as_planned(label, bounded)
        number, places = self._order[label], bounded._steps()
        grid = Grid.of(self._training.plan.releases[number], bounded, places.shape)
        if number != self._made:
            raise HushrecError(f"Release {label!r} does not come in the order of the plan.")
        self._made += 1
        question, place = places.ravel() >> _PLACE_BITS, places.ravel() & ((1 << _PLACE_BITS) - 1)
        wanted = Wanted(number, question, place, tuple(self.keys), grid)
        total = None if self.wanted is not None else self._total(wanted)
        if total is not None:
            self.totals_digest = hashlib.sha256(self.totals_digest + total.tobytes()).digest()
            return grid.value(label, total).reshape(places.shape)
        if self.wanted is None:
            self.wanted = wanted
            self.needed = len(self.keys)
            if self._stand_in is None:
                raise _Enough
        wave = 1.5 + np.cos((self._stand_in or 0) + np.arange(places.size))
        return (_STAND_IN * wave * grid.noise_sd * grid.steps).reshape(places.shape)

    def _ask(self, question: Query) -> list[Array]:
        if len(self.asked) >= self._until:
            raise _Enough
        number = len(self.asked)
        parts = contributions(self._training.estimator.users, self._nobody, question)
        shapes = [np.shape(part._take()) for part in parts]
        sizes = [math.prod(shape) for shape in shapes]
        steps = [np.broadcast_to(part.step, shape).ravel() for part, shape in zip(parts, shapes, strict=True)]
        self.asked.append(deepcopy(question))  # a copy: the training may change an array afterwards
        self.steps.append(np.concatenate(steps))
        self.keys.append(_key(question))
        places = (number << _PLACE_BITS) + np.arange(sum(sizes), dtype=np.int64)
        return [
            place.reshape(shape)
            for place, shape in zip(np.split(places, np.cumsum(sizes)[:-1]), shapes, strict=True)
        ]


def _of(totals: Sequence[Words]) -> TotalOf:
    return lambda wanted: totals[wanted.release] if wanted.release < len(totals) else None


def rehearsal(training: Training, rows: Ratings) -> str:
    """Return a digest of a training's questions on copies of made-up rows, without noise."""
    answers: list[Words] = []

    def total_of(wanted: Wanted) -> Words:
        for number in range(len(answers), len(replay.asked)):
            one = Opened((replay.asked[number],), (replay.keys[number],), (replay.steps[number],), b"")
            answers.append(integers(training.estimator.users, rows, one))
        ends = np.cumsum([0, *map(len, answers)])
        sums = np.concatenate(answers)[ends[wanted.question] + wanted.place]
        return sums * wanted.grid.coarse.astype(np.uint64) * np.uint64(_COPIES)

    replay = Replay(training, total_of)
    replay.run()
    return hashlib.sha256("".join(replay.keys).encode()).hexdigest()


def integers(make: Make, rows: Ratings, opened: Opened) -> Words:
    """Return the users' private sums to a round, modulo 2^64."""
    parts = []
    for question in opened.questions:
        parts += [np.ravel(bounded._steps()) for bounded in contributions(make, rows, question)]
    return np.concatenate(parts).view(np.uint64)


def _key(question: Query) -> str:
    digest = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        elif isinstance(value, tuple | list | dict):
            digest.update(f"{type(value).__name__}{len(value)}".encode())
            for entry in value.items() if isinstance(value, dict) else value:
                add(entry)
        else:
            digest.update(repr(value).encode())

    add(question)
    return digest.hexdigest()
