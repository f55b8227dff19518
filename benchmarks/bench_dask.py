"""Dask: speed against workers and threads, and kills of workers and of the driver, each with its target.

    python -m benchmarks.bench_dask [--store STORE] [--ratings 1e8] [--kills 20] [--drivers 5] [--long]

A line a target, PASS or what falls short; exits 1 if any does. Without --store ratings are generated, for
speed so many, for kills a million. --long takes 200 kills of workers and 50 of the driver. Speed means
something on an idle machine only, and a busy one needs a longer --time-out.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import logging
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster
from distributed.chaos import KillWorker

from benchmarks.bench_scale import domain_of, generate
from hushrec.data import Store
from hushrec.data.store import Partition
from hushrec.engines.dask import Dask
from hushrec.kernels import threads
from hushrec.models import PrivateALS
from hushrec.privacy import Accountant, Budget, Ledger
from hushrec.privacy.testing import SeededNoise

BUDGET = Budget(5.0, 1e-6)
MODEL = PrivateALS(rank=12, bias_rounds=4, iterations=4, features=False)
#: Times that two workers are faster than one, or which part of what two processes reach without Dask where
#: these do not reach it; and of the time of two threads.
SPEEDUP, SHARE, OVERHEAD = 1.7, 0.95, 1.15
#: What speed is measured with: as many questions of each kind as it takes.
FEW = PrivateALS(rank=12, bias_rounds=2, iterations=2, features=False)
#: Whoever waits takes over what another has not begun at once, not within a second.
SETTINGS = {
    "distributed.worker.memory.terminate": False,
    "distributed.scheduler.work-stealing-interval": "50ms",
}
#: No limit on how often a task may lose its worker. Who is silent is given up by the engine, not by Dask.
FAULTS = {
    "distributed.comm.timeouts.connect": "2s",
    "distributed.scheduler.allowed-failures": 1000,
    "logging.distributed": "critical",
}


def main() -> None:
    """Print a line a target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--ratings", type=float, default=1e8)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--drivers", type=int, default=5)
    parser.add_argument("--time-out", type=float, default=2.0, help="seconds until a worker is given up")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--no-speed", action="store_true", help="kills only")
    parser.add_argument("--driver", nargs=4, metavar=("STORE", "SCHEDULER", "LEDGER", "RESUME"))
    parser.add_argument("--half", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.half:
        train_half(*options.half)
        return
    if options.driver:
        drive(*options.driver)
        return
    if options.long:
        options.kills, options.drivers = 200, 50
    good: list[bool] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = generated(folder, 10**6)
        if not options.no_speed:
            large = Store(options.store) if options.store else generated(folder, int(options.ratings))
            print(f"speed: {large.n_ratings:,} ratings of {large.n_users:,} users", flush=True)
            good += speed(large, small)
        print(f"kills: {small.n_ratings:,} ratings of {small.n_users:,} users", flush=True)
        good += [workers(small, options.kills, options.time_out), chaos(small)]
        good += [drivers(small, folder, options.drivers)]
    sys.exit(not all(good))


def generated(folder: Path, n_ratings: int) -> Store:
    """A store of so many generated ratings."""
    place = folder / str(n_ratings)
    place.mkdir()
    generate(n_ratings, place / "rows")
    store = Store.prepare(str(place / "rows"), place / "store", domain_of(n_ratings))
    shutil.rmtree(place / "rows")
    return store


def trained(store: Store, engine: Dask | None = None, model: PrivateALS = MODEL) -> bytes:
    """The model under a fixed noise."""
    return model.fit(store, Accountant(BUDGET, noise=SeededNoise(1)), seed=1, engine=engine).to_bytes()


@contextlib.contextmanager
def cluster(n_workers: int, **settings: Any) -> Iterator[tuple[LocalCluster, Client]]:
    """Worker processes of one thread each, on this machine alone."""
    with dask.config.set({**SETTINGS, **settings}):
        local = LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            preload=["hushrec.engines.dask", "hushrec.models.private_als"],
            silence_logs=logging.CRITICAL,
        )
        with local, Client(local) as client:
            yield local, client


def verdict(good: bool, words: str) -> bool:
    """Print a line."""
    print(f"{'PASS       ' if good else 'FALLS SHORT'} {words}", flush=True)
    return good


def speed(store: Store, small: Store) -> list[bool]:
    """One worker, two, and two threads of one process, the better of two times; compiled before."""

    def timed(engine: Dask | None = None) -> tuple[bytes, float]:
        trained(small, engine, FEW)
        start = time.perf_counter()
        found = trained(store, engine, FEW)
        return found, time.perf_counter() - start

    with threads.limit(2):
        whole, alone = timed()
    times, same = {1: math.inf, 2: math.inf}, True
    for n_workers in (2, 1, 2, 1):
        with cluster(n_workers) as (_, client):
            found, seconds = timed(Dask(client))
        times[n_workers] = min(times[n_workers], seconds)
        same &= found == whole
    with threads.limit(2):
        alone = min(alone, timed()[1])
    with threads.limit(1):
        single = timed()[1]
    halves = min(bare_halves(store, small) for _ in range(2))
    ratio, over, ceiling = times[1] / times[2], times[2] / alone, single / halves
    words = f"2 workers {ratio:.2f} times one ({times[1]:.1f} s; asked >= {SPEEDUP})"
    if ratio < SPEEDUP:
        words += f"; two processes without Dask {ceiling:.2f} times one ({single:.1f} s), of which that is"
        words += f" {ratio / ceiling:.0%} (asked >= {SHARE:.0%} where the machine has no {SPEEDUP} to give)"
    return [
        verdict(same, "bytes with 1 and 2 workers are those of one process"),
        verdict(ratio >= min(SPEEDUP, SHARE * ceiling if ceiling < SPEEDUP else SPEEDUP), words),
        verdict(
            over <= OVERHEAD,
            f"2 workers take {over:.2f} times 2 threads ({times[2]:.1f} s; asked <= {OVERHEAD})",
        ),
    ]


class Half(Store):
    """Every second partition of a store, the first or the second of them."""

    second = 0

    def partitions(self) -> list[Partition]:
        """Return every second partition."""
        return super().partitions()[self.second :: 2]


def bare_halves(store: Store, small: Store) -> float:
    """Seconds of two processes of one thread each, and half of the partitions, that begin together."""
    words = [sys.executable, "-m", "benchmarks.bench_dask", "--half", str(store.path), str(small.path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([*words, number], **pipes) for number in "01"]
    for each in both:
        each.stdout.readline()  # is ready
    for each in both:
        each.stdin.write("\n")
        each.stdin.flush()
    return max(float(each.communicate()[0]) for each in both)


def train_half(path: str, small: str, number: str) -> None:
    """One of `bare_halves`: says that it is ready, waits, trains, and says how long it took."""
    half = Half(path)
    half.second = int(number)
    with threads.limit(1):
        trained(Store(small), None, FEW)
        print("ready", flush=True)
        sys.stdin.readline()
        start = time.perf_counter()
        trained(half, None, FEW)
        print(time.perf_counter() - start)


class Crew:
    """Worker processes of one thread each, replaced when they are gone."""

    def __init__(self, scheduler: str, size: int) -> None:
        words = [
            "-m",
            "distributed.cli.dask_worker",
            scheduler,
            "--no-nanny",
            "--no-dashboard",
            "--nthreads",
            "1",
        ]
        words += [
            "--memory-limit",
            "0",
            "--preload",
            "hushrec.engines.dask",
            "--preload",
            "hushrec.models.private_als",
        ]
        self._command = [sys.executable, *words]
        self.alive: list[subprocess.Popen] = []
        self._dying: list[tuple[float, subprocess.Popen]] = []
        self._size, self._names = size, itertools.count()
        self.names: dict[int, str] = {}
        self.fill()

    def fill(self) -> None:
        """Start as many as are missing, and bury who was stopped long ago."""
        self.alive = [each for each in self.alive if each.poll() is None]
        while len(self.alive) < self._size:
            quiet = subprocess.DEVNULL
            name = str(next(self._names))
            process = subprocess.Popen([*self._command, "--name", name], stdout=quiet, stderr=quiet)
            self.alive.append(process)
            self.names[process.pid] = name
        for since, process in self._dying:
            if time.monotonic() - since > 10:
                process.kill()

    def lose(self, process: subprocess.Popen, way: signal.Signals) -> None:
        """One is killed, or stopped for good."""
        process.send_signal(way)
        self.alive.remove(process)
        self._dying.append((time.monotonic(), process))

    def end(self) -> None:
        """Nobody is left."""
        for process in [*self.alive, *(each for _, each in self._dying)]:
            process.kill()
            process.wait()


def workers(store: Store, kills: int, time_out: float) -> bool:
    """Workers die in three ways while trainings go on."""
    whole, done, right, runs = trained(store), 0, 0, 0
    chance, stop = random.Random(0), threading.Event()
    ways = ("SIGKILL", "SIGSTOP", "os._exit")
    with cluster(0, **FAULTS) as (local, client):
        crew = Crew(local.scheduler_address, 2)
        client.wait_for_workers(2, timeout=300)
        engine = Dask(client, patience=300, silence=time_out)
        trained(store, Dask(client, patience=300))  # compiles
        start = time.perf_counter()
        trained(store, Dask(client, patience=300))
        usual = max(time.perf_counter() - start, 4.0)  # a slow machine starts workers slowly, too

        def kill() -> None:
            nonlocal done
            while not stop.wait(usual * chance.uniform(0.1, 0.6)):
                crew.fill()
                with contextlib.suppress(Exception):  # whoever it is may be on its way out
                    found = client.scheduler_info(n_workers=-1)["workers"]
                    known = {str(each["name"]): address for address, each in found.items()}
                    there = [each for each in crew.alive if crew.names[each.pid] in known]
                    if not there or done >= kills:
                        continue
                    victim, way = chance.choice(there), ways[done % len(ways)]
                    if way == "os._exit":
                        client.run(os._exit, 1, workers=[known[crew.names[victim.pid]]], on_error="return")
                    else:
                        crew.lose(victim, signal.Signals[way])
                    done += 1

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            while done < kills or runs == 0:
                runs += 1
                right += trained(store, engine) == whole
        finally:
            stop.set()
            killer.join()
            crew.end()
    words = f"{done} kills of workers by {', '.join(ways)} in {runs} trainings: {right} right"
    return verdict(right == runs and done >= kills, words)


def chaos(store: Store) -> bool:
    """Dask's own chaos: every worker ends itself after a while, and is replaced."""
    whole, stop = trained(store), threading.Event()
    with cluster(0, **FAULTS) as (local, client):
        crew = Crew(local.scheduler_address, 2)

        def replace() -> None:
            while not stop.wait(0.5):
                crew.fill()

        keeper = threading.Thread(target=replace)
        keeper.start()
        try:
            client.wait_for_workers(2, timeout=300)
            engine = Dask(client, patience=300)
            client.register_plugin(KillWorker(delay="4 s", mode="sys.exit"), name="chaos")
            same = sum(trained(store, engine) == whole for _ in range(3))
        finally:
            stop.set()
            keeper.join()
            crew.end()
    return verdict(same == 3, f"Dask's chaos plugin: {same} of 3 trainings right")


def drivers(store: Store, folder: Path, kills: int) -> bool:
    """The driver dies at random moments and is started again with what it kept."""
    chance, ledger, killed, finished, lost = random.Random(1), folder / "ledger.sqlite", 0, 0, 0
    planned = len(MODEL.plan(BUDGET, store.domain).releases)
    Ledger(ledger)

    def begun() -> bool:
        return any(ledger.with_name(f"{ledger.name}.trainings").glob("*.json"))

    def driver(local: LocalCluster) -> subprocess.Popen:
        words = ["--driver", str(store.path), local.scheduler_address, str(ledger), str(begun())]
        return subprocess.Popen([sys.executable, "-m", "benchmarks.bench_dask", *words])

    with cluster(2) as (local, client):
        trained(store, Dask(client))  # compiles
        start = time.perf_counter()
        finished += driver(local).wait() == 0
        usual = time.perf_counter() - start
        while killed < kills:
            before = begun(), Ledger(ledger).summary("default", 1e-6).charges
            process = driver(local)
            try:
                process.wait(timeout=chance.uniform(0.2, 1.2) * usual)
                finished += process.returncode == 0
                if process.returncode:
                    return verdict(False, f"a driver that was started again ended with {process.returncode}")
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed += 1
                after = begun(), Ledger(ledger).summary("default", 1e-6).charges
                finished += not after[0] and after != before  # it was killed on its way out
        while begun():
            drive(str(store.path), local.scheduler_address, str(ledger), "True")
            finished += 1
    charges = Ledger(ledger).summary("default", 1e-6).charges
    lost = charges - planned * finished
    words = f"{killed} kills of the driver, {finished} trainings of {planned} releases finished"
    return verdict(0 <= lost <= killed, f"{words}, {charges} charges: {lost} lost and charged again")


def drive(store: str, scheduler: str, ledger: str, resume: str) -> None:
    """One training, or the rest of one."""
    accountant = Accountant(BUDGET, ledger=Ledger(ledger), resume=resume == "True")
    with Dask(scheduler) as engine:
        MODEL.fit(Store(store), accountant, seed=1, engine=engine)


if __name__ == "__main__":
    main()
