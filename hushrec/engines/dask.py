"""Training over the partitions of a store on a Dask cluster: the same bytes on any number of workers.

The driver alone holds ledger, noise and the server's side. Workers open partitions by path, and integer sums
return through a tree. No task makes a release, since tasks are repeated. A worker's failure returns as one
word; its log, spill folder and dashboard are as private as the store.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from functools import cache
from typing import Any

import numpy as np

from hushrec.data import Store
from hushrec.data.store import Partition
from hushrec.errors import HushrecError, InputError, MissingPackageError
from hushrec.kernels import threads
from hushrec.kernels.residuals import TABLES_BYTES
from hushrec.privacy.statement import library_version
from hushrec.training.partitioned import Make, Query, add, answer_all
from hushrec.types import Array

#: Result of a task: partial sums, or a word for a failure.
Answer = list[Array] | str

#: Tasks a thread, so others can take some over; partial sums added at once.
_TASKS_PER_THREAD, _TOGETHER = 8, 8
#: Attempts at a query whose workers were lost.
_TRIES = 5
#: Longest wait between two tries, in seconds.
_PAUSE = 16.0
_WORDS = {
    "memory": "A worker ran out of memory; give workers more, or prepare the store with more partitions.",
    "store": "A worker could not read its partitions; all must reach the store's folder, unchanged.",
    "version": "A worker has another version of hushrec than the driver; start all with the same.",
    "failed": "A worker failed; why is private, and in its log.",
    "lost": "Workers were lost again and again with one task; why is private, and may be in their logs.",
    "nobody": "No worker is left, or the scheduler is gone.",
}
_FINAL = ("version", "nobody")
_RESUME = " What was charged stays charged, and a training with a ledger can be resumed."
#: Of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LOG = logging.getLogger("hushrec")


class Dask:
    """A Dask cluster as the engine of a training: ``fit(store, accountant, engine=Dask(client))``.

    Parameters
    ----------
    client : distributed.Client or str
        Client, or the scheduler's address (TLS as in Dask's configuration).
    patience : float
        Seconds to wait for the scheduler, and for workers when none is left.
    silence : float
        Seconds without a message after which a worker is dropped.

    Privacy
    -------
    Workers see their partitions' rows, and partial sums travel to the driver. The holder of the ratings must
    own the cluster. Use Dask's TLS beyond one machine.

    Examples
    --------
    >>> from distributed import Client
    >>> from hushrec.engines.dask import Dask
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> store = hushrec.Store.prepare(ratings, "store", ratings.domain, partitions=2)
    >>> accountant = hushrec.Accountant(hushrec.Budget(5, 1e-6))
    >>> with Client(processes=False, dashboard_address="127.0.0.1:0") as client:
    ...     model = hushrec.ItemBias().fit(store, accountant, engine=Dask(client))
    """

    def __init__(self, client: Any, *, patience: float = 60.0, silence: float = 60.0) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise MissingPackageError("Dask", "dask") from None
        if not isinstance(client, str | Client):
            raise InputError(
                f"client must be a Dask client or a scheduler's address, not {type(client).__name__}."
            )
        self._patience, self._silence, self._owned = patience, silence, isinstance(client, str)
        self._client = _connected(client, patience) if isinstance(client, str) else client
        try:
            self._check_versions()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Dask:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster, if it was joined by its address."""
        if self._owned:
            with contextlib.suppress(Exception):
                self._client.close(timeout=2)

    @contextlib.contextmanager
    def asking(self, make: Make, rows: Any) -> Iterator[Callable[[Query], Sequence[Array]]]:
        """Yield a function that sums the answers of all users of a store."""
        if not isinstance(rows, Store):
            raise InputError("Dask trains on a store; make one with Store.prepare or hushrec prepare.")

        def ask(query: Query) -> list[Array]:
            if not rows.blocks():  # nobody has this weight of a season
                return []

            def attempt() -> Answer:
                with self._tasks(query) as (submit, shipped):
                    return self._patiently(self._tree(submit, make, rows, shipped, query.size))

            return self._repeated(attempt, _RESUME)

        yield ask

    def verify(self, rows: Store) -> None:
        """Refuse a store with a changed file; the workers read every byte."""
        for damage in self.each(_damage, (rows,), None):
            if damage:
                raise InputError(damage)

    def each(self, work: Callable[..., Any], stores: Sequence[Store], public: Any) -> list[Any]:
        """Return ``work(number, partitions, public)`` for the partitions of each number.

        It runs on a worker, on one thread, perhaps more than once.
        """
        count = len(stores[0].partitions())
        if any(len(store.partitions()) != count for store in stores):
            raise InputError("The stores differ in their number of partitions; prepare both with the same.")
        done: dict[int, Any] = {}

        def attempt() -> Answer:
            with self._tasks(public) as (submit, shipped):
                futures = {
                    number: submit(_one, work, stores, number, shipped, library_version())
                    for number in range(count)
                    if number not in done
                }
                for number, future in futures.items():
                    answer = self._patiently(future)
                    if isinstance(answer, str):
                        return answer
                    done[number] = answer[0]
            return [done[number] for number in range(count)]

        return self._repeated(attempt)

    # ------------------------------------------------------------------ the driver's side

    def _repeated(self, attempt: Callable[[], Answer], advice: str = "") -> list[Any]:
        """Return the first attempt's answer that is no word for a failure."""
        tries, word = 0, ""
        while tries < _TRIES and word not in _FINAL:
            try:
                answer = attempt() if self._somebody() else "nobody"
            except (Exception, CancelledError):
                _LOG.debug("tasks were lost", exc_info=True)
                answer = "lost" if self._client.status == "running" else "nobody"
            if not isinstance(answer, str):
                return answer
            word = answer
            tries += word != "silent"
            if word == "lost":  # others may be on their way
                time.sleep(min(2.0**tries, _PAUSE))
        raise HushrecError(_WORDS[word] + advice)

    @contextlib.contextmanager
    def _tasks(self, public: Any) -> Iterator[tuple[Callable[..., Any], Any]]:
        import dask

        futures: list[Any] = []

        def submit(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
                futures.append(self._client.submit(function, *arguments, pure=False, **options))
            return futures[-1]

        try:
            yield submit, submit(_itself, public)
        finally:
            for future in futures:
                with contextlib.suppress(Exception):
                    future.release()

    def _tree(self, submit: Callable[..., Any], make: Make, rows: Store, shipped: Any, size: int) -> Any:
        """Submit a tree of sums. A thread gets the same blocks at every query: its worker has them mapped."""
        workers, layer = self._workers(), []
        tasks_a_thread = min(max(TABLES_BYTES // max(size, 1), 1), _TASKS_PER_THREAD)
        for worker, share in zip(
            workers, np.array_split(np.arange(len(rows.blocks())), len(workers)), strict=True
        ):
            there: dict[str, Any] = {"workers": [worker], "allow_other_workers": True}
            tasks = [
                submit(_work, make, rows, numbers.tolist(), shipped, library_version(), **there)
                for numbers in np.array_split(share, tasks_a_thread)
                if len(numbers)
            ]
            layer += [submit(_added, tasks, **there)] if tasks else []
        while len(layer) > 1:
            starts = range(0, len(layer), _TOGETHER)
            layer = [submit(_added, layer[start : start + _TOGETHER]) for start in starts]
        return layer[0]

    def _patiently(self, future: Any) -> Answer:
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        while not done.wait(min(1.0, self._silence / 2)):
            if not self._somebody():
                return "nobody"
            if self._client.run_on_scheduler(_give_up, silence=self._silence):
                return "silent"  # what others wait for may never come from it
        answer: Answer = future.result(timeout=self._patience)
        return answer

    def _somebody(self) -> bool:
        until = time.monotonic() + self._patience
        while not self._workers():
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        return True

    def _workers(self) -> list[str]:
        if self._client.status != "running":
            return []
        try:
            workers = self._client.nthreads()
        except Exception:
            return []
        return [address for address in sorted(workers) for _ in range(workers[address])]

    def _check_versions(self) -> None:
        """Refuse workers of another version; tasks refuse those that join later."""
        try:
            versions = self._client.run(importlib.metadata.version, "hushrec", on_error="return")
        except Exception:
            raise HushrecError("The cluster's scheduler does not answer; check that it runs.") from None
        if any(version != importlib.metadata.version("hushrec") for version in versions.values()):
            raise InputError(_WORDS["version"])


def _connected(address: str, patience: float) -> Any:
    from distributed import Client

    quiet = logging.getLogger("distributed")
    level = quiet.level
    try:
        quiet.setLevel(logging.CRITICAL)
        return Client(address, timeout=patience, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        why = "not in time" if isinstance(error, TimeoutError) else type(error).__name__
        raise HushrecError(
            f"The scheduler at {address} cannot be reached ({why}); check its address, that it runs, and for"
            " tls:// Dask's certificates."
        ) from None
    finally:
        quiet.setLevel(level)


# ---------------------------------------------------------------------- on the scheduler


async def _give_up(dask_scheduler: Any, silence: float) -> int:
    """Drop silent workers."""
    from distributed.metrics import time as now

    silent = [who for who, state in dask_scheduler.workers.items() if now() - state.last_seen > silence]
    for address in silent:
        await dask_scheduler.remove_worker(address, stimulus_id=f"hushrec-silent-{now()}")
    return len(silent)


# ---------------------------------------------------------------------- on the workers


def _itself(query: Any) -> Any:
    return query


def _work(make: Make, rows: Store, numbers: list[int], query: Query, version: str) -> Answer:
    def run() -> list[Array]:
        blocks = rows.blocks()
        return answer_all(make, [blocks[number] for number in numbers], query) or []

    return _guarded(run, version)


def _one(work: Callable[..., Any], stores: Sequence[Store], number: int, public: Any, version: str) -> Answer:
    return _guarded(lambda: [work(number, [store.partitions()[number] for store in stores], public)], version)


def _damage(number: int, partitions: Sequence[Partition], public: None) -> str | None:
    try:
        partitions[0].verify()
    except InputError as error:
        return str(error)
    return None


def _guarded(run: Callable[[], list[Any]], version: str) -> Answer:
    """Return the result of a run, or a word for a failure."""
    if version != library_version():
        return "version"
    _keep_memory()
    try:
        with threads.limit(1), threads.one_blas_thread():
            return run()
    except MemoryError:
        return "memory"
    except Exception as error:
        logging.getLogger("distributed.worker").exception("a task of hushrec failed; what follows is private")
        return "store" if isinstance(error, InputError) else "failed"


@cache
def _keep_memory() -> None:
    """Keep freed memory for the next block, where glibc would return it at once."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # other systems have other libraries
        libc = ctypes.CDLL(None)
        for parameter, octets in ((_TRIM_THRESHOLD, 1 << 28), (_MMAP_THRESHOLD, 1 << 25)):
            libc.mallopt(parameter, octets)


def _added(parts: list[Answer]) -> Answer:
    totals: list[Array] | None = None
    for part in parts:
        if isinstance(part, str):
            return part
        totals = add(totals, part) if part else totals
    return totals or []
