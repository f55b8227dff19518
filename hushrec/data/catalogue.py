"""A declared domain as JSON and arrays, and back, for model files (docs/reference/format.md)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.data.domain import Domain
from hushrec.data.ids import canonical_text
from hushrec.errors import InputError

#: Type of a declared id, stored as UTF-8 text, as bytes, or as JSON (text with a lone surrogate).
KINDS = ("text", "integer", "float", "boolean", "uuid", "bytes", "json")

_READ: dict[str, Callable[[str], Any]] = {
    "text": str,
    "integer": int,
    "float": float,
    "uuid": uuid.UUID,
    "json": json.loads,
    "boolean": {"true": True, "false": False}.__getitem__,
}


def pack(domain: Domain) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the other declarations, and the arrays ``text``, ``offsets`` and ``kinds``.

    An id of a type that is not in :data:`KINDS` becomes text. Item features are left out.
    """
    kinds, texts = [], []
    for item in domain.items:
        kind, octets = _packed(item)
        kinds.append(KINDS.index(kind))
        texts.append(octets)
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    if offsets[-1] >= 1 << 32:
        raise InputError("The ids of the catalogue take more than 4 GB; declare shorter ones.")
    declared: dict[str, Any] = {
        "rating_range": [domain.low, domain.high],
        "max_ratings_per_user": domain.max_ratings_per_user,
    }
    declared |= {name: value for name in ("likes", "item_type") if (value := getattr(domain, name))}
    return declared, {
        "text": np.frombuffer(b"".join(texts), np.uint8),
        "offsets": offsets.astype(np.uint32),
        "kinds": np.array(kinds, np.uint8),
    }


def unpack(declared: Mapping[str, Any], catalogue: Mapping[str, NDArray[Any]]) -> Domain:
    """Raise KeyError, TypeError or ValueError if something is missing or wrong."""
    low, high = declared["rating_range"]
    return Domain(
        tuple(_unpacked_all(catalogue)),
        rating_range=(low, high),
        max_ratings_per_user=declared["max_ratings_per_user"],
        likes=declared.get("likes", False) is True,
        item_type=str(declared.get("item_type", "")),
    )


def _packed(item: Any) -> tuple[str, bytes]:
    if isinstance(item, (np.integer, np.floating, np.bool_)):
        item = item.item()
    if isinstance(item, (bytes, bytearray)):
        return "bytes", bytes(item)
    if isinstance(item, uuid.UUID):
        return "uuid", str(item).encode()
    if isinstance(item, bool):
        return "boolean", str(item).lower().encode()
    if isinstance(item, (int, float)):
        return ("integer" if isinstance(item, int) else "float"), repr(item).encode()
    text = item if isinstance(item, str) else canonical_text(item) or ""
    try:
        return "text", text.encode()
    except UnicodeEncodeError:
        return "json", json.dumps(text).encode()


def _unpacked_all(arrays: Mapping[str, NDArray[Any]]) -> Iterable[Any]:
    offsets, kinds = arrays["offsets"].tolist(), arrays["kinds"].tolist()
    text = arrays["text"].tobytes()
    ends = [offsets[0], offsets[-1]]
    if len(offsets) != len(kinds) + 1 or ends != [0, len(text)] or offsets != sorted(offsets):
        raise ValueError("the catalogue's offsets do not fit its text")
    return (
        _unpacked(KINDS[kind], text[begin:end])
        for kind, begin, end in zip(kinds, offsets[:-1], offsets[1:], strict=True)
    )


def _unpacked(kind: str, octets: bytes) -> Any:
    return octets if kind == "bytes" else _READ[kind](octets.decode())
