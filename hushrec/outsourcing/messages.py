"""Typed messages between nodes and servers: frozen dataclasses that check themselves, written as JSON.

Arrays travel as base64 of their bytes with type and shape, integers and text as they are. Whatever does not
fit a message exactly is refused with one sentence before anything is done with it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError, InputError

Array = NDArray[Any]
_TYPES = {"<f8": np.float64, "<i4": np.int32, "<u8": np.uint64}
_LONGEST_NAME = 200


class Refusal(HushrecError):
    """A server's answer that is another HTTP code than 200, and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Message:
    """Base of all messages; equality is that of what would be sent."""

    def to_json(self) -> bytes:
        """The message as it travels."""
        return self._json

    @cached_property
    def _json(self) -> bytes:  # one total goes to many nodes
        return _raw({field.name: getattr(self, field.name) for field in fields(self)})  # type: ignore[arg-type]

    def fingerprint(self) -> str:
        """SHA-256 of the message, in hexadecimal digits."""
        return hashlib.sha256(self.to_json()).hexdigest()


Kind = TypeVar("Kind", bound=Message)
_hints = cache(typing.get_type_hints)


def from_json(kind: type[Kind], raw: bytes) -> Kind:
    """Read a message of one type, or refuse with InputError.

    Parameters
    ----------
    kind : type of Message
    raw : bytes
        Whatever came over the network.
    """
    try:
        entries = json.loads(raw.decode())
    except (ValueError, RecursionError):
        raise InputError(f"This is no JSON, and a message of type {kind.__name__} was expected.") from None
    wanted = _hints(kind)  # type: ignore[arg-type]
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if not isinstance(entries, dict) or set(entries) != set(names):
        raise InputError(f"A {kind.__name__} message has exactly the fields {', '.join(names)}.")
    return kind(**{name: _value(entries[name], wanted[name], f"{kind.__name__}.{name}") for name in names})


def _raw(value: Any) -> bytes:
    """JSON with sorted keys; base64, which is most of it, holds nothing that JSON would escape."""
    if isinstance(value, np.ndarray):
        code = value.dtype.newbyteorder("<").str
        raw = np.ascontiguousarray(value, dtype=code).tobytes()
        return _raw({"type": code, "shape": value.shape, "bytes": raw})
    if isinstance(value, bytes):
        return b'"%b"' % base64.b64encode(value)
    if isinstance(value, tuple):
        return b"[%b]" % b", ".join(map(_raw, value))
    if isinstance(value, dict):
        return b"{%b}" % b", ".join(b"%b: %b" % (_raw(key), _raw(value[key])) for key in sorted(value))
    return json.dumps(value, allow_nan=False).encode()


def _value(entry: Any, wanted: Any, name: str) -> Any:
    """The field's value, of exactly the type that the message declares."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted == Array and isinstance(entry, dict):
        return _array(entry, name)
    if origin is tuple and isinstance(entry, list):
        return tuple(_value(each, parts[0], name) for each in entry)
    if origin is dict and isinstance(entry, dict):
        return {key: _value(each, parts[1], name) for key, each in entry.items()}
    if wanted is bytes and isinstance(entry, str):
        return _bytes(entry, name)
    if wanted is float and type(entry) in (int, float) and abs(entry) < math.inf:
        return _finite(entry, name)
    if wanted in (int, str, bool) and type(entry) is wanted:
        return entry
    raise InputError(f"{name} is of the wrong type.")


def _finite(number: float, name: str) -> float:
    try:
        return float(number)
    except OverflowError:
        raise InputError(f"{name} is no finite number.") from None


def _bytes(text: str, name: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise InputError(f"{name} is no base64.") from None


def _array(entry: dict[str, Any], name: str) -> Array:
    shape = entry.get("shape")
    good = set(entry) == {"type", "shape", "bytes"} and isinstance(shape, list) and len(shape) <= 2
    good = good and isinstance(entry["type"], str) and entry["type"] in _TYPES
    if not good or not all(type(side) is int and 0 <= side < 1 << 31 for side in shape or ()):
        raise InputError(f"{name} is no array: it needs a type ({', '.join(_TYPES)}), a shape and bytes.")
    raw = _bytes(entry["bytes"], name) if isinstance(entry["bytes"], str) else b""
    size = 1
    for side in shape or ():
        size *= side
    if len(raw) != size * np.dtype(entry["type"]).itemsize:
        raise InputError(f"{name} has another number of bytes than its shape needs.")
    array = np.frombuffer(raw, dtype=entry["type"]).reshape(shape).astype(_TYPES[entry["type"]])
    if array.dtype == np.float64 and not np.isfinite(array).all():
        raise InputError(f"{name} holds a number that is not finite.")
    return array


def fingerprint(items: Iterable[object]) -> str:
    """SHA-256 of the item ids in order: nodes and server agree on positions."""
    return hashlib.sha256(json.dumps([str(item) for item in items]).encode()).hexdigest()


def check_name(name: str) -> None:
    """Refuse a node's name that is empty, overlong or not printable."""
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise InputError(f"A node's name has 1 to {_LONGEST_NAME} printable characters.")


def check(condition: bool, sentence: str) -> None:
    """Refuse a message."""
    if not condition:
        raise InputError(sentence)


# ---------------------------------------------------------------------- masked completion


@dataclass(frozen=True)
class Task(Message):
    """What a completion server publishes (Algorithm 1, line 1).

    Attributes
    ----------
    catalogue : str
        SHA-256 of the item ids in order, so that a node knows that positions mean the same.
    keys : tuple of ndarray
        Orthonormal public columns of each round so far, shape (n_items, mask_rank of the round).
    noise_sd : float
        Standard deviation of the mask coefficients.
    rounds : int
        1 or 2.
    open : bool
        Whether uploads of the round ``len(keys)`` are taken.
    """

    catalogue: str
    keys: tuple[Array, ...]
    noise_sd: float
    rounds: int
    open: bool

    def __post_init__(self) -> None:
        check(self.rounds in (1, 2) and 1 <= len(self.keys) <= self.rounds, "A task has 1 or 2 rounds.")
        check(self.noise_sd > 0, "A task's noise_sd is above 0.")
        for key in self.keys:
            check(
                key.dtype == np.float64 and key.ndim == 2 and len(key) == len(self.keys[0]),
                "A task's keys are float64 matrices with one row per item.",
            )


@dataclass(frozen=True)
class Upload(Message):
    """A node's masked column of one round (Algorithm 2, line 4).

    Attributes
    ----------
    node : str
    round : int
        1 or 2.
    items : ndarray of shape (n_ratings,), int32
        Ascending positions in the catalogue: in clear, as the scheme has it.
    values : ndarray of shape (n_ratings,), float64
    """

    node: str
    round: int
    items: Array
    values: Array

    def __post_init__(self) -> None:
        check_name(self.node)
        check(self.round in (1, 2), "An upload is of round 1 or 2.")
        check(self.items.dtype == np.int32 and self.items.ndim == 1, "Upload.items is a list of int32.")
        check(
            self.values.dtype == np.float64 and self.values.shape == self.items.shape,
            "Upload.values is a list of float64, one for each item.",
        )
        check(len(self.items) > 0, "An upload holds at least one rating.")
        check(
            bool(self.items[0] >= 0 and (self.items[1:] > self.items[:-1]).all()),
            "Upload.items are positions in the catalogue, ascending, none twice.",
        )


@dataclass(frozen=True)
class Record(Message):
    """What an eavesdropper keeps of an upload: all that the reconstruction needs.

    Attributes
    ----------
    values : ndarray of shape (n_ratings,)
        Masked values.
    public_rows : ndarray of shape (n_ratings, mask_rank)
        The public key at the uploaded items, of all rounds side by side.
    """

    values: Array
    public_rows: Array

    def __post_init__(self) -> None:
        check(
            self.values.ndim == 1
            and self.public_rows.ndim == 2
            and len(self.values) == len(self.public_rows),
            "A record holds one row of the public key for each masked value.",
        )


@dataclass(frozen=True)
class Accepted(Message):
    """The server has stored the upload for good.

    Attributes
    ----------
    digest : str
        Of the upload.
    """

    digest: str


@dataclass(frozen=True)
class Column(Message):
    """A node's completed column, still masked, shape (n_items,)."""

    values: Array

    def __post_init__(self) -> None:
        check(self.values.dtype == np.float64 and self.values.ndim == 1, "A column is a list of float64.")


@dataclass(frozen=True)
class Problem(Message):
    """Why a request was refused, in one sentence."""

    error: str


# ---------------------------------------------------------------------- secure aggregation


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

    node: str
    agreement: str
    envelope_key: bytes
    signature: bytes = b""

    def __post_init__(self) -> None:
        check_name(self.node)
        check(len(self.envelope_key) == 32, "A public key has 32 bytes.")


@dataclass(frozen=True)
class Neighbours(Message):
    """Answer to an enrolment, once all have enrolled: the node's neighbours in order, with their keys."""

    session: str
    agreement: str
    names: tuple[str, ...]
    envelope_keys: dict[str, bytes]

    def __post_init__(self) -> None:
        check_name(self.session)


@dataclass(frozen=True)
class Prepared(Message):
    """First step of a release: a fresh mask key, signed, and shares of both secrets for each neighbour."""

    node: str
    mask_key: bytes
    shares: dict[str, bytes]
    signature: bytes = b""

    def __post_init__(self) -> None:
        check(len(self.mask_key) == 32, "A public key has 32 bytes.")


@dataclass(frozen=True)
class Envelopes(Message):
    """Answer: mask keys of the neighbours that take part, and their shares sealed for this node."""

    mask_keys: dict[str, bytes]
    shares: dict[str, bytes]
    signatures: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Masked(Message):
    """Second step: the node's integers and noise under its masks, uint64.

    ``met`` tells of its neighbours in order which ones it shares a mask with, 1 or 0 each, signed.
    """

    node: str
    values: Array
    met: str = ""
    signature: bytes = b""

    def __post_init__(self) -> None:
        check(self.values.dtype == np.uint64 and self.values.ndim == 1, "Masked values are a list of uint64.")


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
    seed: bytes
    seeds: dict[str, bytes]
    keys: dict[str, bytes]

    def __post_init__(self) -> None:
        secrets = [self.seed, *self.seeds.values(), *self.keys.values()]
        check(all(len(secret) == 32 for secret in secrets), "A seed, and a share, has 32 bytes.")


@dataclass(frozen=True)
class Sum(Message):
    """The noisy total of a release, uint64: the only thing that the server learns."""

    values: Array

    def __post_init__(self) -> None:
        check(self.values.dtype == np.uint64 and self.values.ndim == 1, "A total is a list of uint64.")
