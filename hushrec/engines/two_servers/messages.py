"""Messages between nodes and servers of a training over two servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

from hushrec.engines.two_servers.shares import ROLES
from hushrec.network.messages import SHORT, Digest, Kind, Message, Words, check, check_digest


class Line(Protocol):
    """A connection to a server (:class:`hushrec.network.transport.Connection`)."""

    def get(self, reply: type[Kind], *path: str, token: str = "", most: int = SHORT) -> Kind:
        """Ask for a message of at most so many bytes."""

    def post(self, content: bytes, reply: type[Kind], *path: str, token: str = "") -> Kind:
        """Send bytes and return the answer."""


def _role(text: str) -> None:
    check(text in ROLES, "A server is the first or the second one.")


def _maybe_digest(text: str) -> None:
    if text:
        check_digest(text)


def _round(numbers: tuple[int, ...]) -> None:
    good = not numbers or (len(numbers) == 3 and numbers[0] >= 0 and 0 <= numbers[1] < numbers[2])
    check(good, "A round is a release, and its first and last question.")


def _count(number: int) -> None:
    check(number >= 0, "A number of releases is at least 0.")


Role = Annotated[str, _role]
MaybeDigest = Annotated[str, _maybe_digest]


@dataclass(frozen=True)
class Nonce(Message):
    """A server's side of the first meeting; `session` is empty before it.

    `nodes` is a digest of the nodes' names, under the token of the two servers.
    """

    agreement: Digest
    rehearsal: Digest
    nonce: Digest
    role: Role
    nodes: Digest
    session: MaybeDigest


@dataclass(frozen=True)
class State(Message):
    """The open round with the digest that its shares carry, or neither; and the number of released totals.

    `session` is a digest of the agreement and both nonces.
    """

    session: MaybeDigest
    round: Annotated[tuple[int, ...], _round]
    digest: MaybeDigest
    totals: Annotated[int, _count]
    over: bool
    role: Role

    def __post_init__(self) -> None:
        super().__post_init__()
        check(bool(self.round) == bool(self.digest), "An open round comes with its digest.")


@dataclass(frozen=True)
class Held(Message):
    """The digest of a closed round, and the nodes whose shares the server has."""

    digest: Digest
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Sum(Message):
    """A server's noisy share of a release, or the total of both."""

    values: Words


@dataclass(frozen=True)
class Taken(Message):
    """The server's answer after it stored a share."""

    node: str
