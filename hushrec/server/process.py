"""The processes of a server: workers, each with all models and a socket, and one that watches them."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from socket import socket
from typing import Any

from starlette.middleware.cors import CORSMiddleware

from hushrec.errors import HushrecError
from hushrec.network.service import Limits, Service, listen
from hushrec.server.answers import Answers
from hushrec.server.metrics import SIZE, Metrics
from hushrec.server.models import Models, OwnRules, Tables, log

#: Seconds between two checks of the model files, and seconds in which a worker must finish its requests.
_LOOK, _FINISH = 1.0, 10.0
#: Seconds before a worker that ended is started again.
_AGAIN = 1.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a server, as in `Models`, `Answers` and `Service`.

    Pages of ``origins`` may read the answers in a browser. ``limits`` hold for each worker.
    """

    models: Mapping[str, Path]
    tables: Mapping[str, Tables] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    rules: OwnRules = OwnRules()
    tokens: Sequence[str] = ()
    names: Sequence[str] = ()
    origins: Sequence[str] = ()
    page: Path | None = None
    limits: Limits = field(default_factory=Limits)
    certificate: str | None = None
    key: str | None = None

    def service(self, listening: socket, models: Models, metrics: Metrics) -> Service:
        return Service(
            Answers(models, metrics, tokens=self.tokens, names=self.names, page=self.page),
            listening=listening,
            limits=self.limits,
            certificate=self.certificate,
            key=self.key,
            in_loop=True,
            note=metrics.note,
            middleware=self._shared,
        )

    def _shared(self, application: Any) -> Any:
        """Let pages of the declared origins read all answers except the metrics."""
        if not self.origins:
            return application
        headers = ["Authorization"] if self.tokens else []
        shared = CORSMiddleware(
            application, allow_origins=self.origins, allow_methods=["GET", "POST"], allow_headers=headers
        )

        async def respond(scope: Any, receive: Any, send: Any) -> None:
            await (application if scope["path"] == "/metrics" else shared)(scope, receive, send)

        return respond


def serve(settings: Settings, host: str, port: int, workers: int, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; requests in progress are answered first.

    Port 0 is a free one. ``ready`` is called with the address once the server answers.
    """
    _more_files()
    stop = threading.Event()
    before = {name: signal.signal(name, lambda *_: stop.set()) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        if workers == 1:
            models = Models(settings.models, settings.tables, settings.columns, settings.rules)
            metrics = Metrics(bytearray(8 * SIZE))
            with settings.service(listen(host, port), models, metrics) as service:
                ready(service.url)
                _look_on(models, metrics, stop)
        else:
            _Workers(settings, host, port, workers).run(stop, ready)
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _look_on(models: Models, metrics: Metrics, stop: threading.Event) -> None:
    parent = os.getppid()
    while not stop.wait(_LOOK) and os.getppid() == parent:
        models.look()
        metrics.models(models.exchanged, models.refused)


class _Workers:
    def __init__(self, settings: Settings, host: str, port: int, count: int) -> None:
        self._settings, self._spawn = settings, multiprocessing.get_context("spawn")
        self._sockets = [listen(host, port, shared=True)]
        port = self._sockets[0].getsockname()[1]
        self._sockets += [listen(host, port, shared=True) for _ in range(count - 1)]
        self._counts = self._spawn.RawArray("d", count * SIZE)
        self._up: Any = self._spawn.SimpleQueue()

    def run(self, stop: threading.Event, ready: Callable[[str], None]) -> None:
        for name in ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, "1")  # the workers share the cores
        processes = [self._start(worker) for worker in range(len(self._sockets))]
        try:
            urls = [self._first_word(processes, stop) for _ in processes]
            if not stop.is_set():
                ready(urls[0])
            while not stop.is_set():
                connection.wait([process.sentinel for process in processes], timeout=0.2)
                for worker, process in enumerate(processes):
                    if not process.is_alive() and not stop.wait(_AGAIN):
                        log.error("A worker ended (code %s) and is started again.", process.exitcode)
                        processes[worker] = self._start(worker)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.join(_FINISH)
                if process.is_alive():
                    process.kill()
                    process.join()
            for listening in self._sockets:
                listening.close()

    def _start(self, worker: int) -> Any:
        arguments = (self._settings, self._sockets[worker], self._counts, worker, self._up)
        process = self._spawn.Process(target=_work, args=arguments, daemon=True)
        process.start()
        return process

    def _first_word(self, processes: Sequence[Any], stop: threading.Event) -> str:
        while self._up.empty():
            if stop.wait(0.02):
                return ""
            ended = [process.exitcode for process in processes if not process.is_alive()]
            if ended and self._up.empty():
                raise HushrecError(f"A worker of the server ended as it started (code {ended[0]}).")
        url, trouble = self._up.get()
        if trouble:
            raise HushrecError(trouble)
        return url


def _work(settings: Settings, listening: socket, counts: Any, worker: int, up: Any) -> None:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the first process ends others
    _more_files()
    metrics = Metrics(counts, worker)
    try:
        models = Models(settings.models, settings.tables, settings.columns, settings.rules)
        service = settings.service(listening, models, metrics)
    except HushrecError as error:
        up.put(("", str(error)))
        return
    with service:
        up.put((service.url, ""))
        _look_on(models, metrics, stop)


def _more_files() -> None:
    """Raise the limit on open files, which bounds connections."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
