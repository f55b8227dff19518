"""Measure how many lists a server gives a second, how fast, and whether it stays small and up.

Everything runs on this machine: the server, and one process that asks over 16 kept connections for the lists
of users with histories of 20. The spare capacity of the machine shows in the rate of a Starlette route that
returns a constant, in the same run and with the same requests.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import TOY, Targets

CONNECTIONS, HISTORY, RANK, LISTED = 16, 20, 32, 20
#: Items: lists a second in a closed loop, and milliseconds within which 99 of 100 come at half that rate.
RATES = {100: (2000, 30)} if TOY else {10_000: (2000, 30), 100_000: (400, 80)}
#: Items, and milliseconds of processor for one list in a process.
ONE_LIST = {100: 5.0} if TOY else {1000: 0.2, 10_000: 0.27}
_MOST_GROWTH = 1.05


@dataclass
class Measured:
    """Measures of one load."""

    seconds: float = 0.0
    replies: int = 0
    errors: int = 0
    waits: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Replies a second."""
        return self.replies / self.seconds

    def percentile(self, part: float) -> float:
        """Milliseconds."""
        return float(np.percentile(self.waits or [np.inf], part)) * 1e3


class Load:
    """Kept connections to one server, each with at most one request under way."""

    def __init__(self, port: int, requests: list[bytes]) -> None:
        self._requests, self._port, self._next = requests, port, 0
        self._selector = selectors.DefaultSelector()
        self._idle: deque[socket.socket] = deque(self._connected() for _ in range(CONNECTIONS))
        self._asked: dict[socket.socket, tuple[float, bytearray]] = {}

    def run(self, seconds: float, per_second: float | None = None) -> Measured:
        """Ask for so long: as fast as replies come, or so many a second whether they come or not."""
        found, start = Measured(), time.perf_counter()
        due: deque[float] = deque()
        planned = 0
        while (now := time.perf_counter() - start) < seconds or self._asked:
            if now >= seconds:  # what never got its turn has waited at least so long
                found.waits.extend(now - each for each in due)
                due.clear()
            if now >= seconds + 30:
                raise SystemExit("The server has not answered for 30 seconds.")
            if per_second is None:
                due.extend([now] * (len(self._idle) if now < seconds else 0))
            else:
                while now < seconds and planned / per_second <= now:
                    due.append(planned / per_second)
                    planned += 1
            while due and self._idle:
                self._ask(self._idle.popleft(), start + due.popleft())
            for key, _ in self._selector.select(0.0005 if per_second else 0.05):
                self._take(key.fileobj, found)
        found.seconds = min(now, seconds)
        return found

    def _connected(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(made, selectors.EVENT_READ)
        return made

    def _ask(self, connection: socket.socket, asked: float) -> None:
        self._next = (self._next + 1) % len(self._requests)
        self._asked[connection] = (asked, bytearray())
        connection.sendall(self._requests[self._next])

    def _take(self, connection: Any, found: Measured) -> None:
        """Read what came; a whole reply of 200 counts, all else is an error and a new connection."""
        try:
            part = connection.recv(1 << 16)
        except OSError:
            part = b""
        asked, got = self._asked.get(connection, (0.0, bytearray()))
        got += part
        head, blank, body = got.partition(b"\r\n\r\n")
        if part and not blank:
            return
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if part and len(body) < int(length or 0):
            return
        self._asked.pop(connection, None)
        if part and head.startswith(b"HTTP/1.1 200"):
            found.replies += 1
            found.waits.append(time.perf_counter() - asked)
            self._idle.append(connection)
            return
        found.errors += 1
        self._selector.unregister(connection)
        connection.close()
        self._idle.append(self._connected())


def model(n_items: int, path: Path, seed: int = 0) -> Path:
    """A model of random factors: the learned values do not affect the measures."""
    from hushrec.data import Domain, realistic
    from hushrec.models import PrivateALS
    from hushrec.privacy import Accountant, Budget
    from hushrec.serving.model import Model

    small = PrivateALS(rank=2, iterations=1).fit(
        realistic(50, 20, 300, seed=0), Accountant(Budget(2.0, 1e-6))
    )
    rng = np.random.default_rng(seed)
    domain = Domain([f"item {number}" for number in range(n_items)], rating_range=(1, 5))
    arrays = dict(small.arrays) | {
        "item_bias": rng.standard_normal(n_items) / 4,
        "item_factors": (rng.standard_normal((n_items, RANK)) / 4).astype(np.float32),
        "supported": np.ones(n_items, np.uint8),
    }
    made = Model(estimator=PrivateALS(rank=RANK), domain=domain, arrays=arrays, privacy=small.privacy)
    made.save(path)
    return path


def requests_for(n_items: int, count: int = 200) -> list[bytes]:
    """Requests for the lists of different users."""
    rng, found = np.random.default_rng(1), []
    for _ in range(count):
        items = rng.choice(n_items, HISTORY, replace=False)
        ratings = {f"item {item}": float(rng.integers(1, 6)) for item in items}
        body = json.dumps({"ratings": ratings, "n": LISTED}).encode()
        head = f"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        found.append(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return found


def one_list(path: Path, n_items: int) -> float:
    """Milliseconds of processor that a process takes for one list, the fewest of many."""
    from hushrec.serving.model import load

    loaded = load(path)
    bodies = [request.partition(b"\r\n\r\n")[2] for request in requests_for(n_items)]
    histories, taken = [json.loads(body)["ratings"] for body in bodies], []
    for history in histories * (1 if TOY else 5):
        start = time.thread_time()
        loaded.recommend(history, LISTED)
        taken.append(time.thread_time() - start)
    return min(taken) * 1e3


@contextmanager
def served(paths: list[Path], workers: int) -> Iterator[tuple[int, int]]:
    """A server of these models: its port and its process."""
    line = [sys.executable, "-m", "hushrec", "serve", *map(str, paths), "--workers", str(workers)]
    line += ["--port", "0", "--requests-per-second", "1e9"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().rpartition(":")[2]), process.pid
        finally:
            process.send_signal(signal.SIGTERM)


async def constant(scope: Any, receive: Any, send: Any) -> None:
    """A Starlette application with one route, which reads its request and returns a constant."""
    await _constant(scope, receive, send)


def _application() -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        await request.body()
        return Response(b'{"items":[]}', media_type="application/json")

    return Starlette(routes=[Route("/v1/recommend", answer, methods=["POST"])])


_constant = _application()


@contextmanager
def constant_served(workers: int) -> Iterator[int]:
    """The constant route, in as many processes, by the same protocol; its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "uvicorn", "benchmarks.serve:constant", "--port", str(port)]
    line += ["--workers", str(workers), "--http", "httptools", "--log-level", "critical", "--lifespan", "off"]
    with subprocess.Popen(line, stdin=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
            time.sleep(1)
            yield port
        finally:
            process.send_signal(signal.SIGTERM)


def used(parent: int) -> tuple[int, float]:
    """Bytes of memory of a process and its children, and the seconds of processor they took."""
    memory, ticks = 0, 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if str(parent) in (folder.name, fields[1]):
            memory += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
            ticks += int(fields[11]) + int(fields[12])
    return memory, ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3 if TOY else 10.0)
    parser.add_argument("--soak", type=float, default=0.9 if TOY else 180.0)
    parser.add_argument("--swaps", type=int, default=1 if TOY else 20)
    parser.add_argument("--workers", type=int, default=1 if TOY else 2)
    given, targets = parser.parse_args(), Targets()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with constant_served(given.workers) as port:
            load = Load(port, requests_for(min(RATES)))
            load.run(given.seconds / 5)
            base = load.run(given.seconds)
        for n_items, most in ONE_LIST.items():
            spent = one_list(model(n_items, folder / f"one{n_items}.hush"), n_items)
            targets.at_most(spent, most, f"{n_items:,} items: ms of processor for one list in a process")
        print(f"a constant Starlette route: {base.rate:,.0f} a second, load average {os.getloadavg()[0]:.1f}")
        for n_items, (rate, wait) in RATES.items():
            path = model(n_items, folder / f"m{n_items}.hush")
            with served([path], given.workers) as (port, process):
                load = Load(port, requests_for(n_items))
                load.run(given.seconds / 5)
                before = used(process)[1]
                closed = load.run(given.seconds)
                cost = (used(process)[1] - before) / max(closed.replies, 1) * 1e3
                part = f"{closed.rate / base.rate:.2f} of the constant route's rate"
                print(f"{n_items:,} items: {cost:.2f} ms of processor a list, {part}")
                targets.at_least(closed.rate, rate, f"{n_items:,} items, closed loop: lists a second")
                opened = load.run(given.seconds, rate / 2)
                what = f"{n_items:,} items, open loop at {rate // 2:,} a second: p99 in ms"
                targets.at_most(opened.percentile(99), wait, what)
                targets.line(not closed.errors + opened.errors, f"{n_items:,} items: no errors")
                if n_items == min(RATES):
                    lasting(targets, load, process, path, given, rate)
    targets.exit()


def lasting(
    targets: Targets, load: Load, process: int, path: Path, given: argparse.Namespace, rate: int
) -> None:
    """Memory over minutes of load, then exchanges of the model under it."""
    sizes, errors = [], 0
    for _ in range(3):
        errors += load.run(given.soak / 3, rate / 4).errors
        sizes.append(used(process)[0])
    targets.at_most(sizes[2] / sizes[0], _MOST_GROWTH, "memory of the last third of the load over the first")
    others = [model(min(RATES), path.with_name(f"other{seed}.hush"), seed).read_bytes() for seed in (1, 2)]
    for number in range(given.swaps):
        new = path.with_name("new")
        new.write_bytes(others[number % 2])
        new.replace(path)
        errors += load.run(given.seconds / 7, rate / 4).errors
    targets.line(not errors, f"{given.swaps} exchanges of the model under load: {errors} errors")


if __name__ == "__main__":
    main()
