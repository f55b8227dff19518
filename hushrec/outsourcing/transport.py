"""The HTTP side of a node: one kept connection, typed replies, and retries that are safe to make."""

from __future__ import annotations

import http.client
import math
import random
import time
from urllib.parse import quote, urlsplit

from hushrec.errors import HushrecError, InputError
from hushrec.outsourcing.messages import Kind, Message, Problem, from_json

#: Code of an answer that waits for others: the request is made again at once, as often as the server says so.
WAITING = 202
#: Codes that mean "not now": the request is made again, within the patience.
NOT_NOW = (425, 429, 500, 502, 503)


class TransportError(HushrecError):
    """The server could not be reached, or did not answer in time (exit code 1)."""


class RefusedError(HushrecError):
    """The server refused the request (exit code 1).

    Attributes
    ----------
    status : int
        HTTP code.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Connection:
    """A connection to one server; every request may be repeated, since servers take the same message twice.

    Parameters
    ----------
    url : str
        ``http://host:port``. Plain HTTP: put a TLS proxy in front of a server that is not on this machine.
    patience : float
        Seconds to keep trying from when the server first does not answer or says "not now".
    timeout : float
        Seconds to wait for one answer.
    """

    def __init__(self, url: str, *, patience: float = 30.0, timeout: float = 60.0) -> None:
        parts = urlsplit(url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host = None
        if parts.scheme not in ("http", "https") or not host:
            raise InputError(f"{url!r} is no server's address; write for example http://127.0.0.1:8765.")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._http = kind(host, port, timeout=timeout)
        self.url, self.patience = url, patience

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def get(self, reply: type[Kind], *path: str, token: str = "") -> Kind:
        """Ask for a message."""
        return self._call("GET", path, b"", reply, token)

    def post(self, message: Message, reply: type[Kind], *path: str, token: str = "") -> Kind:
        """Send a message and return the answer."""
        return self._call("POST", path, message.to_json(), reply, token)

    def _call(self, method: str, path: tuple[str, ...], body: bytes, reply: type[Kind], token: str) -> Kind:
        """Make the request, again and again while the server is away, within the patience."""
        target = "/" + "/".join(quote(part, safe="") for part in path)
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        deadline, pause = math.inf, 0.05
        while True:
            try:
                self._http.request(method, target, body, headers)
                response = self._http.getresponse()
                raw = response.read()
                if response.status == 200:
                    return from_json(reply, raw)
                trouble, status = _sentence(raw), response.status
            except (OSError, http.client.HTTPException) as error:
                self._http.close()
                trouble, status = f"{self.url} does not answer ({type(error).__name__}).", 0
            if status == WAITING:
                deadline, pause = math.inf, 0.05
                continue
            if status and status not in NOT_NOW:
                raise RefusedError(status, trouble)
            deadline = min(deadline, time.monotonic() + self.patience)
            if time.monotonic() + pause > deadline:
                raise TransportError(trouble)
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, 2.0)


def _sentence(raw: bytes) -> str:
    try:
        return from_json(Problem, raw).error
    except InputError:
        return "The server refused without saying why."
