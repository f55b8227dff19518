"""The HTTP side of a client: one kept connection, typed replies, limits and safe retries.

A server may lie, so sizes and times are bounded, and answers are not unzipped.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import socket
import ssl
import threading
import time
import weakref
from typing import Any
from urllib.parse import quote

from hushrec.errors import HushrecError, InputError, MissingPackageError
from hushrec.network.messages import SHORT, Kind, Message, Problem, Refusal, from_json

try:
    import httpx
except ImportError:
    raise MissingPackageError("Talking to a server", "outsourcing") from None

#: Codes after which a request is repeated, within the patience.
NOT_NOW = (425, 429, 500, 502, 503)
#: Characters of a refusal.
_LONGEST_SENTENCE = 1000

logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log every path, and node names are in them


class TransportError(HushrecError):
    """The server could not be reached, or did not answer in time (exit code 1)."""


class Connection:
    """A connection to one server; any request may be repeated, since servers take the same message twice.

    Parameters
    ----------
    url : str
        ``https://host:port``, or ``http://`` for a server on this machine or behind a TLS proxy.
    patience : float
        Seconds to repeat a request that fails.
    timeout : float
        Longest time in seconds without a byte.
    deadline : float
        Longest time of a request in seconds.
    ca : path, optional
        PEM file of the authority behind the server's certificate; by default the system's.

    Examples
    --------
    >>> from hushrec.network.transport import Connection
    >>> server = Connection("https://recommender.example:8765", ca=None)      # nothing is sent yet
    """

    def __init__(
        self,
        url: str,
        *,
        patience: float = 30.0,
        timeout: float = 60.0,
        deadline: float = 300.0,
        ca: str | None = None,
    ) -> None:
        try:
            server = httpx.URL(url)
        except httpx.InvalidURL:
            server = httpx.URL()
        if server.scheme not in ("http", "https") or not server.host or (server.port or 0) > 65535:
            raise InputError(
                f"{url!r} is not a server's address; write for example https://example.org:8765."
            )
        self._http = httpx.Client(
            base_url=server,
            verify=_trusting(ca) if server.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            timeout=timeout,
            headers={"Accept-Encoding": "identity"},
            limits=httpx.Limits(max_connections=1, keepalive_expiry=None),
            trust_env=False,
        )
        weakref.finalize(self, self._http.close)  # no socket stays open if the caller forgets to close
        self.url, self.patience, self._deadline = url, patience, deadline
        self._socket: socket.socket | None = None

    def close(self) -> None:
        self._http.close()

    def get(self, reply: type[Kind], *path: str, token: str = "", most: int = SHORT) -> Kind:
        """Ask for a message of at most so many bytes."""
        return self._call("GET", path, None, reply, token, most)

    def post(self, content: Message | bytes, reply: type[Kind], *path: str, token: str = "") -> Kind:
        """Send a message or bytes and return the answer."""
        body = content if isinstance(content, bytes) else content.to_json()
        return self._call("POST", path, body, reply, token)

    def _call(
        self,
        method: str,
        path: tuple[str, ...],
        body: bytes | None,
        reply: type[Kind],
        token: str,
        most: int = SHORT,
    ) -> Kind:
        # a node may be called "..", which would lead elsewhere
        target = "/".join(quote(part, safe="").replace(".", "%2E") for part in path)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        deadline, pause = math.inf, 0.05
        while True:
            try:
                status, raw = self._exchange(method, target, body, headers, max(most, SHORT))
                if status == 200:
                    return from_json(reply, raw)
                trouble = _sentence(raw)
            except httpx.RequestError as error:
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    raise TransportError(
                        f"The certificate of {self.url} is not trusted; pass the file of the authority that"
                        " signed it (ca)."
                    ) from None
                trouble, status = f"{self.url} does not answer ({type(error).__name__}).", 0
            if status and status not in NOT_NOW:
                raise Refusal(status, trouble)
            deadline = min(deadline, time.monotonic() + self.patience)
            if time.monotonic() + pause > deadline:
                raise TransportError(trouble)
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, 2.0)

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], most: int
    ) -> tuple[int, bytes]:
        late = threading.Timer(self._deadline, self._hang_up)
        late.daemon = True
        late.start()
        watch = {"trace": self._connected}
        try:
            with self._http.stream(
                method, target, content=body, headers=headers, extensions=watch
            ) as response:
                raw = bytearray()
                for piece in response.iter_raw():
                    raw += piece
                    if len(raw) > most:
                        raise HushrecError(f"{self.url} answers with more than {most:,} bytes; refused.")
                return response.status_code, bytes(raw)
        finally:
            late.cancel()

    def _connected(self, event: str, details: dict[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = details["return_value"].get_extra_info("socket")

    def _hang_up(self) -> None:
        """Wake the thread that waits for this socket: httpx does not bound the sum of its waits."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # closed already
                self._socket.shutdown(socket.SHUT_RDWR)


def _trusting(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise InputError(
            f"Cannot read the authority's certificate {ca!r} ({error.strerror}); check the path."
        ) from None


def _sentence(raw: bytes) -> str:
    try:
        text = from_json(Problem, raw).error
    except InputError:
        text = ""
    good = text.isprintable() and 0 < len(text) <= _LONGEST_SENTENCE
    return text if good else "The server refused without saying why."
