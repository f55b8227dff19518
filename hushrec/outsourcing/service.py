"""The HTTP side of a server: limits on sizes, rates and connections, JSON in and out, clear refusals."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from hushrec.errors import HushrecError, InputError
from hushrec.outsourcing.messages import Message, Problem


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What clients may ask of a server.

    Attributes
    ----------
    body_bytes : int
        Longest request.
    requests_per_second : float
        Of one address, on average; bursts of ten seconds' worth pass. A refused request does not count.
    connections : int
        Of all clients together, open at the same time; more are turned away.
    idle_seconds : float
        A connection that says nothing for so long is closed.
    """

    body_bytes: int = 16 << 20
    requests_per_second: float = 50.0
    connections: int = 256
    idle_seconds: float = 30.0


class Refusal(HushrecError):
    """A request that is answered with another HTTP code than 200 and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


#: ``answer(method, path parts, token, body)`` returns the reply or raises Refusal or InputError.
Answer = Callable[[str, list[str], str, bytes], Message]


class Service(ThreadingHTTPServer):
    """Serves ``answer`` over HTTP, on the loopback address by default; `url` says where.

    Parameters
    ----------
    answer : callable
        Called with the method, the parts of the path, the bearer token and the body.
    host, port : str and int
        Port 0 takes a free one.
    limits : Limits
    """

    daemon_threads = True
    request_queue_size = 512

    def __init__(
        self, answer: Answer, *, host: str = "127.0.0.1", port: int = 0, limits: Limits | None = None
    ) -> None:
        self.answer = answer
        self.limits = limits or Limits()
        self._slots = threading.BoundedSemaphore(self.limits.connections)
        self._buckets: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise InputError(
                f"Cannot listen on {host}:{port} ({error.strerror}); pass a free port."
            ) from None

    @property
    def url(self) -> str:
        """Address of the service."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def __enter__(self) -> Service:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)  # the client retries
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is the client's affair; nothing is logged."""

    def admit(self, address: str) -> None:
        """Take a request from the address's bucket, or refuse."""
        rate, now = self.limits.requests_per_second, time.monotonic()
        with self._lock:
            if len(self._buckets) > 10_000:
                self._buckets.clear()
            left, then = self._buckets.get(address, (10 * rate, now))
            left = min(10 * rate, left + (now - then) * rate)
            self._buckets[address] = (left - 1 if left >= 1 else left, now)
        if left < 1:
            raise Refusal(429, "Too many requests from this address; try again in a second.")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "hushrec", ""
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Service

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.limits.idle_seconds)

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        try:
            self.server.admit(self.client_address[0])
            body = self._body()
            parts = [unquote(part) for part in self.path.split("/") if part]
            kind, _, token = self.headers.get("Authorization", "").partition(" ")
            reply = self.server.answer(self.command, parts, token if kind == "Bearer" else "", body)
            self._send(200, reply)
        except Refusal as refusal:
            self._send(refusal.status, Problem(str(refusal)))
        except InputError as error:
            self._send(400, Problem(str(error)))
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception as error:  # its words may hold somebody's data
            self._send(500, Problem(f"The server failed ({type(error).__name__})."))

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0" if self.command == "GET" else "")
        if not length.isdecimal():
            raise Refusal(411, "A POST request needs a Content-Length.")
        if len(length) > 18 or int(length) > self.server.limits.body_bytes:  # int() refuses 5,000 digits
            raise Refusal(413, f"A request has at most {self.server.limits.body_bytes:,} bytes.")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ConnectionError
        return body

    def _send(self, status: int, message: Message) -> None:
        body = message.to_json()
        if status >= 400:  # what is left of the request was not read
            self.close_connection = True
        with contextlib.suppress(ConnectionError, TimeoutError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if status >= 400:
                self.send_header("Connection", "close")
            if status in (425, 429, 503):
                self.send_header("Retry-After", "1")
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

    def log_message(self, format: str, *arguments: Any) -> None:
        """No log: it would tell who took part when."""
