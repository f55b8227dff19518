"""Shares of an answer: a seed for one server, the rest for the other. Each alone is random bits."""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from hushrec.network.messages import check
from hushrec.privacy.noise import stream_cipher

#: The first server holds the rest of every answer, the second the seed.
ROLES = ("first", "second")
#: Bytes of a seed: a key of AES-256.
SEED_BYTES = 32
#: Words of a stream that stay in the processor's cache.
_PIECE = 1 << 15


def add_stream(words: NDArray[np.uint64], seed: bytes, *, negative: bool = False) -> None:
    """Add or subtract a seed's stream modulo 2^64, in place."""
    change, stream = np.subtract if negative else np.add, stream_cipher(seed)
    for start in range(0, len(words), _PIECE):
        part = words[start : start + _PIECE]
        change(part, stream(len(part)).view("<u8"), out=part)


def split(integers: NDArray[np.uint64]) -> tuple[bytes, bytes]:
    """Return the rest and the seed: the integers are the rest plus the seed's stream."""
    seed, rest = secrets.token_bytes(SEED_BYTES), integers.copy()
    add_stream(rest, seed, negative=True)
    return rest.astype("<u8").tobytes(), seed


def share_bytes(role: str, size: int) -> int:
    return SEED_BYTES if role == "second" else 8 * size


def check_length(length: int, role: str, size: int) -> None:
    expected = share_bytes(role, size)
    check(length == expected, f"A share of this round for the {role} server has {expected} bytes.")


def add_share(total: NDArray[np.uint64], share: bytes, role: str) -> None:
    if role == "second":
        add_stream(total, share)
    else:
        total += np.frombuffer(share, dtype="<u8")
