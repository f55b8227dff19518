"""Shares of an answer: a seed for one server, the rest for the other; each alone is random bits."""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from hushrec.engines.secure.masks import add_stream
from hushrec.network.messages import check

#: The two servers, by what they hold: the rest of every answer, and the seed.
ROLES = ("first", "second")
#: Bytes of a seed: a key of AES-256.
SEED_BYTES = 32


def split(integers: NDArray[np.uint64]) -> tuple[bytes, bytes]:
    """The rest, and the seed: the integers are the rest plus the seed's stream, modulo 2^64."""
    seed, rest = secrets.token_bytes(SEED_BYTES), integers.copy()
    add_stream(rest, seed, negative=True)
    return rest.astype("<u8").tobytes(), seed


def share_bytes(role: str, size: int) -> int:
    """Bytes of a server's share of an answer of so many integers."""
    return SEED_BYTES if role == "second" else 8 * size


def check_share(share: bytes, role: str, size: int) -> None:
    """Refuse what is no share of an answer of so many integers."""
    expected = share_bytes(role, size)
    check(len(share) == expected, f"A share of this round for the {role} server has {expected} bytes.")


def add_share(total: NDArray[np.uint64], share: bytes, role: str) -> None:
    """Add a share, in place."""
    if role == "second":
        add_stream(total, share)
    else:
        total += np.frombuffer(share, dtype="<u8")
