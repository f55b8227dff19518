"""Messages between devices and servers of a training over two servers."""

from __future__ import annotations

from dataclasses import dataclass

from hushrec.network.messages import Message, Words


@dataclass(frozen=True)
class Nonce(Message):
    """What the other server asks for when both first meet.

    Attributes
    ----------
    agreement : str
        Its fingerprint.
    nonce : str
        A number that was drawn when the server's folder was made.
    role : str
    devices : str
        Digest of the devices' names, under the token of the two servers.
    session : str
        The one that it is in already; empty where it has met nobody yet.
    """

    agreement: str
    nonce: str
    role: str
    devices: str
    session: str


@dataclass(frozen=True)
class State(Message):
    """The place where a server is in its protocol.

    Attributes
    ----------
    session : str
        Digest of agreement and both nonces.
    round : tuple of int
        The open round: its release, first and last question; empty where none is open.
    digest : str
        What a share of the round carries.
    totals : int
        Releases that are known.
    over : bool
        Whether that is all of them.
    role : str
        The server's, in case a device has their addresses the wrong way round.
    """

    session: str
    round: tuple[int, ...]
    digest: str
    totals: int
    over: bool
    role: str


@dataclass(frozen=True)
class Held(Message):
    """The devices whose shares of a round a server has, in order; it takes no more."""

    devices: tuple[str, ...]


@dataclass(frozen=True)
class Sum(Message):
    """A server's noisy share of a release, or the total of both."""

    values: Words


@dataclass(frozen=True)
class Taken(Message):
    """Answer to a share: it is there."""

    device: str
