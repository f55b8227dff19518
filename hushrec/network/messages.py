"""Typed messages between nodes and servers: frozen dataclasses that check themselves, written as JSON.

Arrays travel as base64 with type and shape. Input that does not fit exactly is refused. Annotations check
sizes and ranges: ``Annotated[str, check_name]``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Annotated, Any, TypeVar

import numpy as np

from hushrec.checks import is_line
from hushrec.errors import HushrecError, InputError
from hushrec.types import Array

_TYPES = {"<f8": np.float64, "<i4": np.int32, "<u8": np.uint64}
#: Bytes of a usual answer.
SHORT = 1 << 16
#: Characters: 128 bits in hexadecimal digits.
SHORTEST_TOKEN = 32


class Refusal(HushrecError):
    """A server's answer that is another HTTP code than 200, and one sentence (exit code 1)."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def check(condition: bool, sentence: str) -> None:
    if not condition:
        raise InputError(sentence)


def check_name(name: str) -> None:
    check(is_line(name), "A node's name has 1 to 200 printable characters and is not blank.")


def check_token(token: str) -> None:
    if len(token) < SHORTEST_TOKEN:
        raise Refusal(401, f"A node needs a bearer token of at least {SHORTEST_TOKEN} characters.")


def check_digest(text: str) -> None:
    check(len(text) == 64 and set(text) <= set("0123456789abcdef"), "A digest has 64 hexadecimal digits.")


def array_bytes(size: int) -> int:
    """Return the most bytes of a message with so many 64-bit numbers."""
    return 1024 + 11 * size  # base64 has 4 characters for 3 bytes


def array_of(code: str, dimensions: int = 1) -> Callable[[Array], None]:
    def fits(value: Array) -> None:
        good = value.dtype == np.dtype(code) and value.ndim == dimensions
        check(good, f"An array here is of type {code} and has {dimensions} dimension(s).")

    return fits


Name = Annotated[str, check_name]
Digest = Annotated[str, check_digest]
Floats = Annotated[Array, array_of("<f8")]
Words = Annotated[Array, array_of("<u8")]


_hints: Callable[[Any], dict[str, Any]] = cache(partial(typing.get_type_hints, include_extras=True))


class Message:
    def __post_init__(self) -> None:
        for name, wanted in _hints(type(self)).items():
            for refuse in getattr(wanted, "__metadata__", ()):
                refuse(getattr(self, name))

    def to_json(self) -> bytes:
        return self._json

    @cached_property
    def _json(self) -> bytes:  # one total goes to many nodes
        entries = {name: getattr(self, name) for name in _hints(type(self))}
        return json.dumps(entries, sort_keys=True, allow_nan=False, default=_entry).encode()

    def fingerprint(self) -> str:
        return hashlib.sha256(self.to_json()).hexdigest()


@dataclass(frozen=True)
class Problem(Message):
    """Why a request was refused, in one sentence."""

    error: str


Kind = TypeVar("Kind", bound=Message)


def from_json(kind: type[Kind], raw: bytes) -> Kind:
    """Read a message of one type from the network, or raise InputError."""
    try:
        entries = json.loads(raw.decode())
    except (ValueError, RecursionError):
        raise InputError(f"This is not JSON, and a message of type {kind.__name__} was expected.") from None
    wanted = _hints(kind)
    if not isinstance(entries, dict) or entries.keys() != wanted.keys():
        raise InputError(f"A {kind.__name__} message has exactly the fields {', '.join(wanted)}.")
    values = {}
    for name, declared in wanted.items():
        try:
            values[name] = _value(entries[name], declared)
        except (ValueError, OverflowError):
            raise InputError(
                f"{kind.__name__}.{name} is not what the message declares: another type, no base64, an array"
                " of another size than its shape, or a number that is not finite."
            ) from None
    return kind(**values)


def _entry(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    code = value.dtype.newbyteorder("<").str
    return {"type": code, "shape": value.shape, "bytes": np.ascontiguousarray(value, dtype=code).tobytes()}


def _value(entry: Any, wanted: Any) -> Any:
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is Annotated:
        return _value(entry, parts[0])
    if origin is tuple and isinstance(entry, list):
        return tuple(_value(part, parts[0]) for part in entry)
    if wanted == Array and isinstance(entry, dict) and entry.keys() == {"type", "shape", "bytes"}:
        return _array(*(entry[key] for key in ("type", "shape", "bytes")))
    if wanted is bytes and isinstance(entry, str):
        return binascii.a2b_base64(entry, strict_mode=True)
    if wanted is float and type(entry) in (int, float) and math.isfinite(entry):
        return float(entry)
    if wanted in (int, str, bool) and type(entry) is wanted:
        return entry
    raise ValueError("another type")


def _array(code: Any, shape: Any, text: Any) -> Array:
    if code not in tuple(_TYPES) or not isinstance(shape, list) or len(shape) > 2:
        raise ValueError("no array")
    if not all(type(side) is int and 0 <= side < 1 << 31 for side in shape):
        raise ValueError("no shape")
    array = np.frombuffer(_value(text, bytes), dtype=code).reshape(shape).astype(_TYPES[code])
    if array.dtype == np.float64 and not np.isfinite(array).all():
        raise ValueError("not finite")
    return array
