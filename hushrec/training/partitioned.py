"""The users of many partitions as one users' side.

A query goes to each partition with the released values that the users need. The answers are integers in units
of their step, so their sum has the same bits in any order, for any partitions. A partition keeps nothing
between two queries, so a lost one is asked again.
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
from numpy.typing import NDArray

from hushrec.data import Domain, Ratings, Store
from hushrec.data.ratings import joined, of_nobody
from hushrec.errors import HushrecError
from hushrec.kernels import threads
from hushrec.kernels.residuals import TABLES_BYTES
from hushrec.privacy import Bounded
from hushrec.privacy.season import WEIGHT_STEP
from hushrec.training.users import Users
from hushrec.types import Array

#: Blocks are answered together up to this many ratings per item, and ratings in all, since an answer costs a
#: table of all items; each of several threads answers at least this many times.
_RATINGS_AN_ITEM, _MOST_TOGETHER, _SHARES = 64, 1 << 23, 4
#: An estimator's method `users`.
Make = Callable[[Ratings], Any]


class Call(NamedTuple):
    """A method of the users' side, as "lists.item_weights" of its part `lists`, and public arguments."""

    name: str
    positional: tuple[Any, ...]
    named: dict[str, Any]

    @property
    def finite(self) -> bool:
        return all(np.isfinite(array).all() for array in _arrays((self.positional, self.named)))

    def of(self, users: Any) -> Any:
        return attrgetter(self.name)(users)(*self.positional, **self.named)


class Query(NamedTuple):
    """Calls that send released values to the users, and one that returns bounded sums of `size` bytes."""

    updates: tuple[Call, ...]
    call: Call
    size: int = 0


class Engine(Protocol):
    """The place where the partitions of a training are asked."""

    def verify(self, rows: Store) -> None:
        """Refuse a store with changed files, before the first query."""

    def asking(self, make: Make, rows: Any) -> AbstractContextManager[Callable[[Query], Sequence[Array]]]:
        """Yield a function that sums the answers of all partitions, for the time of a training."""


def contributions(make: Make, rows: Ratings, query: Query) -> tuple[Bounded, ...]:
    users = make(rows)
    for call in query.updates:
        call.of(users)
    return _several(query.call.of(users))


def add(totals: list[Array] | None, parts: Sequence[Array]) -> list[Array]:
    """Return the sums, in place of the first."""
    if totals is None:
        return [np.array(part) for part in parts]
    for total, part in zip(totals, parts, strict=True):
        total += part
    return totals


def answer_all(make: Make, blocks: Iterable[Callable[[], Ratings]], query: Query) -> list[Array] | None:
    """Return the sums of all blocks' answers; None without a block.

    Each thread holds a table of sums, and all tables fit `TABLES_BYTES`.
    """
    blocks, totals = list(blocks), None
    waiting, lock, adding = iter(blocks), threading.Lock(), threading.Lock()
    count = max(1, min(threads.count(), TABLES_BYTES // max(2 * query.size, 1)))
    threads_each = threads.count() // count
    most = max(1, len(blocks) // (_SHARES * count)) if count > 1 else len(blocks)

    def together() -> Ratings | None:
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
        return joined(rows[0].domain, rows) if rows else None

    def work() -> None:
        nonlocal waiting, totals
        try:
            with threads.limit(threads_each):
                while (rows := together()) is not None:
                    several = contributions(make, rows, query)
                    del rows  # this and the sums may fill the memory
                    parts = [part._steps() for part in several]
                    del several
                    with adding:
                        totals = parts if totals is None else add(totals, parts)
        except BaseException:
            with lock:
                waiting = iter(())  # no thread begins another block
            raise

    if count == 1:
        work()
        return totals
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(contextvars.copy_context().run, work) for _ in range(count)]
        try:
            for future in futures:
                future.result()
        except BaseException:  # an interruption comes here, not to a worker
            with lock:
                waiting = iter(())
            raise
    return totals


class Streaming:
    """The engine of one process, on all threads."""

    @contextmanager
    def asking(self, make: Make, rows: Any) -> Iterator[Callable[[Query], Sequence[Array]]]:
        yield lambda query: answer_all(make, rows.blocks(), query) or []

    def verify(self, rows: Store) -> None:
        rows.verify()

    def each(self, work: Callable[..., Any], stores: Sequence[Store], public: Any) -> list[Any]:
        def one(number: int) -> Any:
            with threads.limit(1):
                return work(number, [store.partitions()[number] for store in stores], public)

        for store in stores:
            store.verify()
        with ThreadPoolExecutor(threads.count()) as pool:
            return list(pool.map(one, range(len(stores[0].partitions()))))


class Admitted(Store):
    """A group of a store's users, by private masks: an entry a user, for each block."""

    def __init__(self, store: Store, masks: Sequence[NDArray[np.bool_]]) -> None:
        self.__dict__.update(vars(store))  # opened again, it could be another one, of other users
        self._store, self._masks = store, masks
        self.n_users = sum(int(mask.sum()) for mask in masks)

    def __reduce__(self) -> tuple[Any, ...]:
        return Admitted, (self._store, self._masks)

    def blocks(self) -> list[Callable[[], Ratings]]:
        pairs = zip(super().blocks(), self._masks, strict=True)
        return [partial(_rows_of, block, mask) for block, mask in pairs if mask.any()]


def _rows_of(block: Callable[[], Ratings], mask: NDArray[np.bool_]) -> Ratings:
    return block().rows(mask, keyed=True)


class PartitionedUsers:
    """The users' side of a training in partitions, with the methods of what ``make`` returns.

    Each call is made on no users first, which shows its kind and bounds. One that returns nothing is kept as
    an update, in place of an earlier one of the same method. One that returns bounded values becomes a query.
    """

    def __init__(self, make: Make, domain: Domain, ask: Callable[[Query], Sequence[Array]]) -> None:
        self._nobody = make(of_nobody(domain))
        self._ask = ask
        self._updates: dict[str, Call] = {}

    def __getattr__(self, name: str) -> Any:
        attribute = attrgetter(name)(self._nobody)
        if isinstance(attribute, Users):
            return _Part(self, name)
        return partial(self._call, name) if callable(attribute) else attribute

    def _call(self, name: str, *positional: Any, **named: Any) -> Any:
        call = Call(name, positional, named)
        if not call.finite:
            raise HushrecError("A released value is not finite, so users cannot use it. Train again.")
        without_users = call.of(self._nobody)
        if without_users is None:
            self._updates.pop(name, None)
            self._updates[name] = deepcopy(call)  # the caller may change an array afterwards
            return None
        empty = _several(without_users)
        parts = ("", name.rpartition(".")[0])  # updates of another part do not matter to this one
        updates = tuple(update for key, update in self._updates.items() if key.rpartition(".")[0] in parts)
        size = sum(bounded._take().nbytes for bounded in empty)
        sums = self._ask(Query(updates, call, size)) or [bounded._steps() for bounded in empty]
        # a partition's bounds and steps hold for the sum: they are public, and a user is in one partition
        whole = tuple(
            Bounded.of_steps(total, **zero.declared) for zero, total in zip(empty, sums, strict=True)
        )
        return whole if isinstance(without_users, tuple) else whole[0]


class _Part:
    def __init__(self, whole: PartitionedUsers, name: str) -> None:
        self._whole, self._name = whole, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, f"{self._name}.{name}")


class WeightedUsers:
    """The users' sides of groups of users as one; the sums of a group are multiplied by its weight.

    Weights are multiples of `WEIGHT_STEP` up to 1, so sums are exact and their bounds hold.
    """

    def __init__(self, groups: Sequence[tuple[float, Any]]) -> None:
        self._groups = groups

    def __getattr__(self, name: str) -> Any:
        found = [(weight, getattr(users, name)) for weight, users in self._groups]
        first = found[0][1]
        if isinstance(first, Users | _Part):
            return WeightedUsers(found)
        return partial(_weighted, found) if callable(first) else first


def _weighted(methods: Sequence[tuple[float, Callable[..., Any]]], *positional: Any, **named: Any) -> Any:
    answers = [(weight, method(*positional, **named)) for weight, method in methods]
    if answers[0][1] is None:
        return None
    groups = [(weight, _several(answer)) for weight, answer in answers]
    totals: list[Array] | None = None
    for weight, parts in groups:
        totals = add(totals, [int(weight / WEIGHT_STEP) * part._steps() for part in parts])
    declared = [part.declared | {"step": WEIGHT_STEP * part.step} for part in groups[0][1]]
    whole = tuple(
        Bounded.of_steps(total, **words) for total, words in zip(totals or [], declared, strict=True)
    )
    return whole if isinstance(answers[0][1], tuple) else whole[0]


def _arrays(value: Any) -> Iterator[Array]:
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        yield value
    elif isinstance(value, tuple | list | dict):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _arrays(entry)


def _several(answer: Any) -> tuple[Bounded, ...]:
    several = answer if isinstance(answer, tuple) else (answer,)
    if not all(isinstance(part, Bounded) and np.all(part.step > 0) for part in several):
        raise HushrecError(
            "This estimator's sums cannot be added exactly over groups of users; train it in memory, and not"
            " in a season."
        )
    return several
