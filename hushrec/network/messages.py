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
from dataclasses import dataclass, fields
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


@dataclass(frozen=True)
class Problem(Message):
    """Why a request was refused, in one sentence."""

    error: str
