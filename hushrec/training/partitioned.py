"""The users of many partitions as one private side: a contribution is the sum of the partitions', exactly.

A training asks its users for bounded sums. Where the users lie in partitions, every question goes to each of
them with the released values that users were told before, and the answers, integers in units of their step,
are added in any order: the same bits whatever the partitions are and wherever they are asked. No partition
remembers anything between two questions, so that one which is lost is asked again and nothing needs to hold
all users at once.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import numpy as np

from hushrec.data import Domain, Ratings, Store
from hushrec.data.ratings import joined
from hushrec.errors import HushrecError
from hushrec.kernels import threads
from hushrec.kernels.residuals import TABLES_BYTES
from hushrec.privacy import Bounded
from hushrec.training.users import Users
from hushrec.types import Array

#: Blocks are answered together up to so many ratings an item, and in all; of several threads each answers so
#: many times at least. An answer costs a table of all items.
_RATINGS_AN_ITEM, _MOST_TOGETHER, _SHARES = 64, 1 << 23, 4
#: Makes the private side of some users' rows: an estimator's method `users`.
Make = Callable[[Ratings], Any]


class Call(NamedTuple):
    """A method of a private side, dotted where it is of a part ("lists.item_weights"), and its arguments.

    The arguments are released values, or public.
    """

    name: str
    positional: tuple[Any, ...]
    named: dict[str, Any]

    @property
    def finite(self) -> bool:
        """True where all its arrays are finite: users compute with no others."""
        return all(np.isfinite(each).all() for each in _arrays((self.positional, self.named)))

    def of(self, users: Any) -> Any:
        """Call the method of these users."""
        return attrgetter(self.name)(users)(*self.positional, **self.named)


class Question(NamedTuple):
    """A question of a training to its users.

    Attributes
    ----------
    told : tuple of Call
        Calls that return nothing, by which they take released values; of each method the last one counts.
    asked : Call
        The call that returns bounded sums.
    size : int
        Octets of these sums, which are public.
    """

    told: tuple[Call, ...]
    asked: Call
    size: int = 0

    @property
    def finite(self) -> bool:
        """True where all that users are told and asked with is finite."""
        return all(call.finite for call in (*self.told, self.asked))


class Engine(Protocol):
    """The place where the partitions of a training are asked."""

    def verify(self, rows: Store) -> None:
        """Refuse a store whose files are not as they were written, before anything is asked."""

    def asking(self, make: Make, rows: Any) -> AbstractContextManager[Callable[[Question], Sequence[Array]]]:
        """A function that adds what all partitions answer, for as long as a training lasts.

        Parameters
        ----------
        make : callable
            The private side of some rows.
        rows : Store
            The rows of all users.
        """


def contributions(make: Make, rows: Ratings, question: Question) -> tuple[Bounded, ...]:
    """Return what some users answer: partial sums with what bounds them."""
    users = make(rows)
    for call in question.told:
        call.of(users)
    return _several(question.asked.of(users))


def answer(make: Make, rows: Ratings, question: Question) -> list[Array]:
    """Return what some users answer: partial sums, privileged, of integers in units of their step."""
    return [each._take() for each in contributions(make, rows, question)]


def add(totals: list[Array] | None, parts: Sequence[Array]) -> list[Array]:
    """Partial sums added up; the first may be changed in place."""
    if totals is None:
        return [np.array(part) for part in parts]
    for total, part in zip(totals, parts, strict=True):
        total += part
    return totals


def answer_all(make: Make, blocks: Iterable[Callable[[], Ratings]], question: Question) -> list[Array] | None:
    """Add what all blocks of users answer, each on one thread; None where there is no block.

    A thread holds the table of what its users add, and all threads one of what was added so far: there are
    fewer threads where these would take more than `TABLES_BYTES`.

    Parameters
    ----------
    make : callable
    blocks : iterable of callables
        Each reads its rows when it is called, and they are dropped after their answer.
    question : Question
    """
    blocks, totals = list(blocks), None
    waiting, lock, adding = iter(blocks), threading.Lock(), threading.Lock()
    count = max(1, min(threads.count(), TABLES_BYTES // max(2 * question.size, 1)))
    most = max(1, len(blocks) // (_SHARES * count)) if count > 1 else len(blocks)

    def together() -> list[Ratings]:
        """The rows of the next block, and of more where items are many."""
        rows: list[Ratings] = []
        held, enough = 0, 1
        while len(rows) < most and held < enough:
            with lock:
                read = next(waiting, None)
            if read is None:
                break
            rows.append(read())
            held += rows[-1].n_ratings
            enough = min(_RATINGS_AN_ITEM * rows[-1].n_items, _MOST_TOGETHER)
        return rows

    def work() -> None:
        nonlocal waiting, totals
        try:
            with threads.limit(1):
                while rows := together():
                    parts = answer(make, joined(rows[0].domain, rows), question)
                    with adding:
                        totals = parts if totals is None else add(totals, parts)
        except BaseException:
            with lock:
                waiting = iter(())  # nobody begins another block
            raise

    if count == 1:
        work()
        return totals
    with ThreadPoolExecutor(count) as pool:
        found = [pool.submit(contextvars.copy_context().run, work) for _ in range(count)]
        try:
            for each in found:
                each.result()
        except BaseException:  # an interruption comes here, not to a worker
            with lock:
                waiting = iter(())
            raise
    return totals


class Streaming:
    """The engine of one process: blocks of users one after the other, on as many threads as there are."""

    @contextmanager
    def asking(self, make: Make, rows: Any) -> Iterator[Callable[[Question], Sequence[Array]]]:
        """Yield a function that adds what all blocks of users answer."""
        yield lambda question: answer_all(make, rows.blocks(), question) or []

    def verify(self, rows: Store) -> None:
        """Refuse a store whose files are not as they were written."""
        rows.verify()

    def each(self, work: Callable[..., Any], stores: Sequence[Store], public: Any) -> list[Any]:
        """Return what ``work(number, partitions, public)`` comes to, for the partitions of each number.

        Parameters
        ----------
        work : callable
        stores : sequence of Store
            With the same number of partitions, so that a user is in the same one.
        public : object
        """

        def one(number: int) -> Any:
            with threads.limit(1):
                return work(number, [store.partitions()[number] for store in stores], public)

        for store in stores:
            store.verify()
        with ThreadPoolExecutor(threads.count()) as pool:
            return list(pool.map(one, range(len(stores[0].partitions()))))


class PartitionedUsers:
    """The private side of a training whose users lie in partitions.

    It has the methods of the private side that ``make`` returns. One that returns nothing is remembered, one
    that returns :class:`~hushrec.privacy.Bounded` values is asked of all partitions. Which it is, and what
    bounds the values, is seen on no users at all.

    Parameters
    ----------
    make : callable
        The private side of some rows. Of its methods that return nothing, a call replaces an earlier one of
        the same method.
    domain : Domain
    ask : callable
        As from `Engine.asking`.
    """

    def __init__(self, make: Make, domain: Domain, ask: Callable[[Question], Sequence[Array]]) -> None:
        self._nobody = make(Ratings.from_any(([], [], []), domain))
        self._ask = ask
        self._told: dict[str, Call] = {}

    def __getattr__(self, name: str) -> Any:
        found = attrgetter(name)(self._nobody)
        if isinstance(found, Users):
            return _Part(self, name)
        return partial(self._call, name) if callable(found) else found

    def _call(self, name: str, *positional: Any, **named: Any) -> Any:
        call = Call(name, positional, named)
        if not call.finite:
            raise HushrecError("A released value is not finite; users compute with none such. Train anew.")
        zero = call.of(self._nobody)
        if zero is None:  # as it was told: whoever told it may change an array afterwards
            self._told.pop(name, None)
            self._told[name] = deepcopy(call)
            return None
        empty = _several(zero)
        nothing = [each._take() for each in empty]
        parts = ("", name.rpartition(".")[0])  # what another part was told does not matter to this one
        told = tuple(each for key, each in self._told.items() if key.rpartition(".")[0] in parts)
        sums = self._ask(Question(told, call, sum(each.nbytes for each in nothing))) or nothing
        # a partition's bounds and steps hold for the sum: they are public, and a user is in one partition
        whole = tuple(Bounded(value, **each.declared) for each, value in zip(empty, sums, strict=True))
        return whole if isinstance(zero, tuple) else whole[0]


class _Part:
    """A private side within another."""

    def __init__(self, whole: PartitionedUsers, name: str) -> None:
        self._whole, self._name = whole, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, f"{self._name}.{name}")


def _arrays(value: Any) -> Iterator[Array]:
    """Arrays of floats within tuples, lists and dictionaries."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        yield value
    elif isinstance(value, tuple | list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _arrays(each)


def _several(found: Any) -> tuple[Bounded, ...]:
    several = found if isinstance(found, tuple) else (found,)
    if not all(isinstance(each, Bounded) for each in several):
        raise HushrecError("What this estimator asks of its users cannot be added over partitions of them.")
    return several
