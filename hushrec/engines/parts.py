"""Training over partitions of the users, in threads or processes: the same model, byte for byte.

Every partition runs the estimator's own training on its own users, and each computes the public side alike.
What they hand to the gate meets here: partial sums, which are exact integers, are added, and the total is
released once. A partition that is lost begins again, and gets from the transcript what was released already:
noise is never drawn twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from hushrec.billboard import Billboard
from hushrec.checks import check_numbers
from hushrec.data import Ratings
from hushrec.errors import HushrecError, InputError
from hushrec.estimator import Estimator
from hushrec.gate import LocalGate, PlannedGate
from hushrec.kernels.threads import one_blas_thread
from hushrec.privacy import Accountant, Bounded, Plan
from hushrec.types import Array

#: A partition that is lost is made again this many times in a row without a release in between.
_TRIES = 3
#: In the place of a block's number: a stream begins, it ends.
_BEGIN, _END = -1, -2


class Step(NamedTuple):
    """What a partition hands over: one value, or one block of a streamed one.

    Attributes
    ----------
    label : str
    block : int or None
        Number of the block, -1 to open the stream, -2 to end it, None where nothing is streamed.
    bounded : dict
        What is declared of the :class:`~hushrec.privacy.Bounded` it belongs to.
    value : ndarray
        The partial sum.
    """

    label: str
    block: int | None
    bounded: dict[str, Any]
    value: Array


class PartGate(PlannedGate):
    """The gate of one partition.

    Parameters
    ----------
    plan : Plan
    exchange : callable
        ``exchange(number, step)`` hands the partition's step of that number over, and gets what was
        released.
    """

    def __init__(self, plan: Plan, exchange: Callable[[int, Step], Array]) -> None:
        super().__init__(plan)
        self._exchange, self._number = exchange, 0

    def release(self, label: str, bounded: Bounded) -> Array:
        """As `Gate.release`."""
        self._as_planned(label, bounded)
        return self._meet(label, None, bounded, bounded._take())

    def release_blocks(self, label: str, bounded: Bounded) -> Iterator[Array]:
        """As `Gate.release_blocks`."""
        self._as_planned(label, bounded)
        self._meet(label, _BEGIN, bounded, np.zeros(0))
        return self._noisy_blocks(label, bounded)

    def _noisy_blocks(self, label: str, bounded: Bounded) -> Iterator[Array]:
        for number, block in enumerate(bounded._take()):
            yield self._meet(label, number, bounded, block)
        self._meet(label, _END, bounded, np.zeros(0))

    def _meet(self, label: str, block: int | None, bounded: Bounded, value: Array) -> Array:
        number, self._number = self._number, self._number + 1
        return self._exchange(number, Step(label, block, bounded.declared, np.asarray(value)))


@dataclass
class Meeting:
    """Where the partitions' partial sums are added and released, one step after the other.

    Attributes
    ----------
    gate : LocalGate
        Charges and draws noise, once a release.
    parts : int
    transcript : list of ndarray
        What was released so far, a step each: public.
    """

    gate: LocalGate
    parts: int
    transcript: list[Array] = field(default_factory=list)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._given: dict[int, Step] = {}
        self._stream: Iterator[Array] = iter(())
        self._block: Array | None = None

    def exchange(self, part: int, number: int, step: Step) -> Array:
        """Hand over a partition's step, wait for the others', and get what was released."""
        with self._changed:
            if number == len(self.transcript) and not self.failure:
                self._given[part] = step
                if len(self._given) == self.parts:
                    self._release()
            self._changed.wait_for(lambda: number < len(self.transcript) or self.failure)
            if number >= len(self.transcript):
                raise _GivenUp
            return self.transcript[number]

    def give_up(self, failure: BaseException) -> None:
        """Wake everybody who waits: there will be no further release."""
        with self._changed:
            self.failure = self.failure or failure
            self._changed.notify_all()

    def _release(self) -> None:
        steps = [self._given[part] for part in sorted(self._given)]
        self._given = {}
        try:
            self.transcript.append(self._released(steps))
        except HushrecError as failure:
            self.failure = failure
        except Exception:  # not tried again: what was charged is drawn once
            self.failure = HushrecError(
                "A release failed, and what was charged stays charged; why is private."
            )
        self._changed.notify_all()

    def _released(self, steps: list[Step]) -> Array:
        first = steps[0]
        if any((step.label, step.block) != (first.label, first.block) for step in steps):
            raise HushrecError("The partitions came to different releases: are they of one version?")
        total = np.sum([step.value for step in steps], axis=0)
        if first.block is None:
            return self.gate.release(first.label, Bounded(total, **first.bounded))
        if first.block == _BEGIN:
            stream = Bounded(self._blocks(), **first.bounded)
            self._stream = self.gate.release_blocks(first.label, stream)
            return total
        if first.block != _END:
            self._block = total
            return next(self._stream)
        self._block = None
        for _ in self._stream:  # to its end, which a journal waits for
            pass
        return total

    def _blocks(self) -> Iterator[Array]:
        while self._block is not None:
            yield self._block


class _GivenUp(Exception):
    """Another partition could not go on."""


def fit(
    estimator: Estimator,
    ratings: Ratings,
    accountant: Accountant,
    *,
    partitions: int,
    processes: bool = False,
    seed: int = 0,
) -> Billboard:
    """Train as :meth:`Estimator.fit` does, over partitions of the users.

    Parameters
    ----------
    estimator, ratings, accountant, seed
        As of :meth:`Estimator.fit`; what is released must be exact (``estimator.exact_arithmetic``).
    partitions : int
        >= 1.
    processes : bool
        A process for each partition; otherwise a thread.

    Returns
    -------
    Billboard
        Whatever the number of partitions: the same bytes, given the same noise.

    Examples
    --------
    >>> from hushrec.engines.parts import fit
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> model = fit(hushrec.ItemBias(), ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)), partitions=4)
    >>> model.privacy.private
    True
    """
    check_numbers(partitions=(partitions, int, "[1, inf)"))
    if not estimator.exact_arithmetic or not accountant.budget.private:
        raise InputError(f"Partial sums of {estimator.name} are not exact here; train it in one piece.")
    plan = estimator.check(ratings, accountant, seed)
    rated = ratings.rated()
    ends = np.linspace(0, rated.n_users, partitions + 1).astype(int)
    meeting = Meeting(LocalGate(accountant, plan), partitions)
    make = _in_process if processes else _in_thread

    def work(part: int) -> dict[str, Any]:
        rows = rated.rows(np.arange(ends[part], ends[part + 1]), keyed=True)
        return _persistently(
            meeting, lambda: make(estimator, plan, rows, seed, partial(meeting.exchange, part))
        )

    with estimator.journaled(ratings.domain, accountant, plan, seed):
        with ThreadPoolExecutor(partitions) as pool, one_blas_thread():
            futures = [pool.submit(work, part) for part in range(partitions)]
        if meeting.failure is not None:
            raise meeting.failure from None
    arrays = futures[0].result()
    privacy = estimator.statement(ratings, accountant)
    return Billboard(estimator=estimator, domain=ratings.domain, arrays=arrays, privacy=privacy)


def _persistently(meeting: Meeting, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A partition's training; where it is lost it is made again, from the transcript of releases."""
    for _ in range(_TRIES):
        try:
            return make()
        except _GivenUp:
            return {}
        except Exception:
            continue
    meeting.give_up(HushrecError("A partition was lost and could not be made again; its cause is private."))
    return {}


def _in_thread(
    estimator: Estimator, plan: Plan, rows: Ratings, seed: int, exchange: Callable[[int, Step], Array]
) -> dict[str, Any]:
    return estimator.train(estimator.users(rows), PartGate(plan, exchange), seed)


def _in_process(
    estimator: Estimator, plan: Plan, rows: Ratings, seed: int, exchange: Callable[[int, Step], Array]
) -> dict[str, Any]:
    """The same in a process of its own, whose steps come through a pipe."""
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(theirs, estimator, plan, rows, seed), daemon=True)
    process.start()
    theirs.close()
    try:
        while True:
            message = ours.recv()
            if isinstance(message, dict):
                return message
            ours.send(exchange(*message))
    finally:
        ours.close()
        process.join(timeout=1)
        process.kill()


def _serve(connection: Any, estimator: Estimator, plan: Plan, rows: Ratings, seed: int) -> None:
    def exchange(number: int, step: Step) -> Array:
        connection.send((number, step))
        return connection.recv()

    with one_blas_thread():
        connection.send(_in_thread(estimator, plan, rows, seed, exchange))
