"""Messages between nodes and the server of a private training."""

from __future__ import annotations

from dataclasses import dataclass, field

from hushrec.network.messages import Message, Name, Secret, Words, check, secret


@dataclass(frozen=True)
class Enrolment(Message):
    """A node joins a private training.

    Attributes
    ----------
    node : str
    agreement : str
        Fingerprint of the settings it agreed to.
    envelope_key : bytes
        Public key that shares for this node are sealed with.
    signature : bytes
        Of agreement, node and digest of its token; as all signatures, empty where no keys are registered.
    """

    node: Name
    agreement: str
    envelope_key: Secret
    signature: bytes = b""


@dataclass(frozen=True)
class Neighbours(Message):
    """Answer to an enrolment, once all have enrolled: the node's neighbours in order, with their keys."""

    session: Name
    agreement: str
    names: tuple[str, ...]
    envelope_keys: dict[str, bytes]

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.envelope_keys.keys() == set(self.names), "Each neighbour comes with its envelope key.")


@dataclass(frozen=True)
class Prepared(Message):
    """First step of a release: a fresh mask key, signed, and shares of both secrets for each neighbour.

    ``state`` is the digest of the totals that the node was told so far and of its steps in this release.
    """

    node: str
    mask_key: Secret
    state: str
    shares: dict[str, bytes]
    signature: bytes = b""


@dataclass(frozen=True)
class Envelopes(Message):
    """Answer: mask keys of the neighbours that take part, and their shares sealed for this node."""

    mask_keys: dict[str, bytes]
    shares: dict[str, bytes]
    signatures: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self.shares.keys() == self.mask_keys.keys(), "Each mask key comes with a share.")


@dataclass(frozen=True)
class Masked(Message):
    """Second step: the node's integers and noise under its masks, uint64.

    ``met`` tells of its neighbours in order which ones it shares a mask with, 1 or 0 each, signed.
    """

    node: str
    values: Words
    met: str = ""
    signature: bytes = b""


@dataclass(frozen=True)
class Survivors(Message):
    """Answer: which of the node's neighbours are in the total, and which dropped out before it.

    Where keys are registered: ``everybody`` in the total, and what neighbours in it signed with their sums.
    """

    alive: tuple[str, ...]
    dropped: tuple[str, ...]
    everybody: tuple[str, ...] = ()
    met: dict[str, str] = field(default_factory=dict)
    signatures: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Agreed(Message):
    """Between the second step and the third, where keys are registered: a node signs who is in the total."""

    node: str
    signature: bytes


@dataclass(frozen=True)
class Quorum(Message):
    """Answer: the signatures of all who signed the same."""

    signatures: dict[str, bytes]


@dataclass(frozen=True)
class Unmasking(Message):
    """Third step: the node's own seed, shares of the seeds of the alive and of the keys of the dropped."""

    node: str
    seed: Secret
    seeds: dict[str, bytes]
    keys: dict[str, bytes]

    def __post_init__(self) -> None:
        super().__post_init__()
        for share in (*self.seeds.values(), *self.keys.values()):
            secret(share)


@dataclass(frozen=True)
class Sum(Message):
    """The noisy total of a release, uint64: the only thing that the server learns."""

    values: Words
