"""The HTTP side of a server: limits on sizes, rates and connections, JSON in and out, clear refusals."""

from __future__ import annotations

import math
import re
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote

from hushrec.errors import InputError, MissingPackageError
from hushrec.network.messages import Message, Problem, Refusal

try:
    import anyio
    import uvicorn
    from starlette.requests import ClientDisconnect, Request
    from uvicorn.protocols.http.h11_impl import H11Protocol
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    raise MissingPackageError("A server", "serve") from None


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the requests of all clients.

    Attributes
    ----------
    body_bytes : int
        Largest body of a request.
    waiting_bytes : int
        Most bytes of all requests that are arriving or being answered.
    requests_per_second : float
        Average rate of one address, with a burst of ten seconds' requests.
    connections : int
        Most connections of all clients together.
    idle_seconds : float
        Longest time without a byte, or for the head of a request.
    request_seconds : float
        Longest time for a request's body, or for its answer to be received.
    """

    body_bytes: int = 16 << 20
    waiting_bytes: int = 64 << 20
    requests_per_second: float = 50.0
    connections: int = 256
    idle_seconds: float = 30.0
    request_seconds: float = 300.0


@dataclass(frozen=True)
class Reply:
    """A reply in bytes; `media` is its Content-Type."""

    content: bytes | memoryview
    media: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


#: ``answer(method, path parts, token, body)`` returns the reply or raises Refusal or InputError.
Answer = Callable[[str, list[str], str, bytes], Message]

#: ``admit(method, path parts, token, length)`` refuses a request before its body is read.
Admit = Callable[[str, list[str], str, int], None]

#: ``respond(request)`` runs in the event loop, and reads the body of the request when it wants it.
Respond = Callable[[Request], Awaitable[Reply]]

#: ``note(path, status, seconds)`` is called after every reply.
Note = Callable[[str, int, float], None]

#: Bytes that are passed to a connection at once, so a slow client holds no copy of the answer.
_PIECE = 1 << 16

#: SO_LINGER: on, with 0 seconds.
_AT_ONCE = struct.pack("ii", 1, 0)

#: Bytes of a request before its body.
_LONGEST_HEAD = 1 << 16


class Service:
    """Serves answers over HTTP at `url`. It has no log, which would show who took part and when.

    Parameters
    ----------
    answer : callable
        An `Answer`, called in a thread; or a `Respond`, with ``in_loop``.
    port : int
        0 takes a free one.
    listening : socket, optional
        In place of host and port.
    certificate, key : path, optional
        PEM files, for HTTPS; the key if it is not in the certificate's file.
    middleware : callable, optional
        Wraps the ASGI application.

    Examples
    --------
    >>> from hushrec.network.service import Service
    >>> def answer(method, path, token, body):
    ...     return body
    >>> with Service(answer) as service:                          # a free port of this machine
    ...     service.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(
        self,
        answer: Any,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        listening: socket.socket | None = None,
        limits: Limits | None = None,
        certificate: str | None = None,
        key: str | None = None,
        in_loop: bool = False,
        note: Note | None = None,
        admit: Admit | None = None,
        middleware: Callable[[Any], Any] = lambda application: application,
    ) -> None:
        limits = limits or Limits()
        respond: Respond = answer if in_loop else _in_threads(answer)
        if key is not None and certificate is None:
            raise InputError("A TLS key needs its certificate; pass both.")
        config = uvicorn.Config(
            middleware(_application(respond, limits, note, admit)),
            http=_protocol(HttpToolsProtocol if in_loop else H11Protocol, limits.request_seconds),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,  # a client could claim to be another one
            limit_concurrency=limits.connections + 1,
            timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]
            timeout_graceful_shutdown=5,
            backlog=512,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        try:
            config.load()
        except OSError as error:
            raise InputError(
                f"Cannot serve TLS with certificate {certificate!r} ({error.strerror}); pass PEM files of a"
                " certificate and of its key."
            ) from None
        listening = listening or listen(host, port)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listening],), daemon=True)
        address, bound_port = listening.getsockname()[:2]
        address = f"[{address}]" if ":" in address else address
        self.url = f"{'https' if config.is_ssl else 'http'}://{address}:{bound_port}"

    def __enter__(self) -> Service:
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.005)
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.should_exit = True
        self._thread.join()


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a listening socket; ``shared`` ones of one address divide its clients."""
    if shared and not hasattr(socket, "SO_REUSEPORT"):
        raise InputError("This system cannot share a port among workers; pass --workers 1.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512, reuse_port=shared)
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]
        raise InputError(
            f"Cannot listen on {host}:{port} ({why}); pass an address of this machine, and a free port."
        ) from None


class Rates:
    """The number of requests that each address may make now."""

    def __init__(self, per_second: float) -> None:
        self._rate = per_second
        self._buckets: dict[str, tuple[float, float]] = {}

    def admit(self, address: str) -> None:
        now, most = time.monotonic(), 10 * self._rate
        if len(self._buckets) > 10_000:
            self._buckets.clear()
        left, then = self._buckets.get(address, (most, now))
        left = min(most, left + (now - then) * self._rate)
        self._buckets[address] = (left - 1 if left >= 1 else left, now)
        if left < 1:
            raise Refusal(429, "Too many requests from this address; try again in a second.")


class Waiting:
    """The bytes of all open requests."""

    def __init__(self, limits: Limits) -> None:
        self._most, self._taken = max(limits.waiting_bytes, limits.body_bytes), 0

    @contextmanager
    def taking(self, length: int) -> Iterator[None]:
        if self._taken + length > self._most:
            raise Refusal(503, "The server is busy with other requests; try again in a second.")
        self._taken += length
        try:
            yield
        finally:
            self._taken -= length


def _in_threads(answer: Answer) -> Respond:
    async def respond(request: Request) -> Reply:
        parts, token, body = _parts(request), bearer(request), await request.body()
        return Reply(await _in_thread(lambda: answer(request.method, parts, token, body).to_json()))

    return respond


async def _in_thread(do: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(do, abandon_on_cancel=True)


def _parts(request: Request) -> list[str]:
    return [unquote(part) for part in request.scope["raw_path"].decode("latin-1").split("/") if part]


def bearer(request: Request) -> str:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token if kind == "Bearer" else ""


def _application(respond: Respond, limits: Limits, note: Note | None, admit: Admit | None) -> Any:
    rates, waiting = Rates(limits.requests_per_second), Waiting(limits)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, _at_most(limits.body_bytes, receive))
        path, start = scope["path"], time.perf_counter()
        try:
            rates.admit(scope["client"][0])
            length = _length(request, limits.body_bytes, known=admit is not None)
            if admit is not None:
                head = request.method, _parts(request), bearer(request), length
                await _in_thread(lambda: admit(*head))
            with waiting.taking(length):
                reply = await respond(request)
        except ClientDisconnect:
            return
        except (Refusal, InputError) as error:
            reply = Reply(Problem(_brief(str(error))).to_json(), status=getattr(error, "status", 400))
        except Exception as error:  # its text may hold a user's data
            reply = Reply(Problem(f"The server failed ({type(error).__name__}).").to_json(), status=500)
        headers = dict(reply.headers)
        if reply.status >= 400:
            headers |= {"Connection": "close", "Cache-Control": "no-store"}  # the rest was not read
        if reply.status in (425, 429, 503):
            headers["Retry-After"] = "1"
        await _send(reply, headers, send)
        if note is not None:
            note(path, reply.status, time.perf_counter() - start)

    return application


def _brief(sentence: str) -> str:
    """Shorten a long quoted id; a sentence ends with the remedy."""
    return sentence if len(sentence) <= 500 else f"{sentence[:200]} … {sentence[-200:]}"


async def _send(reply: Reply, headers: Mapping[str, str], send: Any) -> None:
    raw = [(key.lower().encode(), value.encode("latin-1")) for key, value in headers.items()]
    if reply.status != 304:
        raw.append((b"content-length", str(len(reply.content)).encode()))
        raw.append((b"content-type", reply.media.encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": raw})
    content = memoryview(reply.content)
    for begin in range(0, max(len(content), 1), _PIECE):
        piece, more = bytes(content[begin : begin + _PIECE]), begin + _PIECE < len(content)
        await send({"type": "http.response.body", "body": piece, "more_body": more})


def _length(request: Request, longest: int, known: bool) -> int:
    """Return the length of the body, or of the longest where chunks arrive and it need not be known."""
    length = request.headers.get("Content-Length", "" if request.method == "POST" else "0")
    if "Transfer-Encoding" in request.headers:
        encodings = [value.lower() for value in request.headers.getlist("Transfer-Encoding")]
        chunked = encodings == ["chunked"] and not known
        length = str(longest) if chunked and "Content-Length" not in request.headers else ""
    if not length.isdecimal():
        raise Refusal(411, "A POST request needs a Content-Length.")
    if request.method != "POST" and int(length):
        raise Refusal(413, f"A {request.method} request must have no body; send a POST request.")
    if int(length) > longest:
        raise _too_long(longest)
    return int(length)


def _too_long(longest: int) -> Refusal:
    return Refusal(413, f"A POST request has at most {longest:,} bytes.")


def _at_most(longest: int, receive: Any) -> Any:
    """Refuse a body as soon as more bytes than that have arrived."""
    arrived = 0

    async def counted() -> Any:
        nonlocal arrived
        message = await receive()
        arrived += len(message.get("body", b""))
        if arrived > longest:
            raise _too_long(longest)
        return message

    return counted


def _protocol(parser: Any, seconds: float) -> Any:
    return type("_Protocol", (_Limited, parser), {"request_seconds": seconds})


class _Limited:
    request_seconds: float
    # of uvicorn's protocols
    cycle: Any
    scope: Any
    headers: Any
    url: bytes
    connections: Any
    limit_concurrency: int | None
    loop: Any
    timeout_keep_alive: float
    transport: Any

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)  # type: ignore[misc]
        self._received, self._unsent, self._moved, self._taken = b"", 0, self.loop.time(), 0
        self._phase, self._since = "head", self._moved
        if len(self.connections) >= (self.limit_concurrency or 0):
            transport.close()  # the client retries
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._received, self._moved = data, self.loop.time()
        if not self._taken:
            self._since = self._moved
        self._taken += len(data)
        super().data_received(data)  # type: ignore[misc]
        if self._taken > _LONGEST_HEAD and (self.cycle is None or self.cycle.response_complete):
            self._refuse(431, f"The address and headers of a request have at most {_LONGEST_HEAD:,} bytes.")

    def on_response_complete(self) -> None:
        self._received, self._phase, self._taken = b"", "", 0
        if self.cycle.response_complete:
            self.cycle.scope, self.scope, self.headers, self.url = {}, None, None, b""
        super().on_response_complete()  # type: ignore[misc]

    def _watch(self) -> None:
        now, unsent = self.loop.time(), self.transport.get_write_buffer_size()
        answering = self.cycle is not None and not self.cycle.response_complete
        if unsent:
            phase, most = "answer", self.request_seconds
        elif answering and not self.cycle.more_body:
            phase, most = "work", math.inf
        elif answering:
            phase, most = "body", self.request_seconds
        else:
            phase, most = "head", self.timeout_keep_alive
        if phase != self._phase:
            self._phase, self._since = phase, now
        if unsent != self._unsent or phase == "work":
            self._unsent, self._moved = unsent, now
        if now - self._since >= most or now - self._moved >= self.timeout_keep_alive:
            if unsent:  # the system would keep megabytes of it, and go on sending
                connection = self.transport.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self.transport.abort()
        elif self in self.connections:
            self.loop.call_later(self.timeout_keep_alive / 4, self._watch)

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that is not HTTP; bad lengths have separate codes."""
        header = re.search(rb"\ncontent-length:([^\r\n]*)", self._received, re.IGNORECASE)
        length = b"0" if header is None else header[1].strip()
        if not length.isdigit():
            self._refuse(411, "The Content-Length of a request is a number of bytes.")
        elif len(length) > 18:
            self._refuse(413, "The Content-Length of this request is too large.")
        else:
            self._refuse(400, "This is no valid HTTP/1.1 request.")

    def _refuse(self, status: int, sentence: str) -> None:
        body = Problem(sentence).to_json()
        head = f"HTTP/1.1 {status} \r\nConnection: close\r\nContent-Type: application/json\r\n"
        self.transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()
