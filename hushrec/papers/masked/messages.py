"""Messages between nodes and the server of masked completion."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from hushrec.network.messages import Floats, Message, Name, array_of, check
from hushrec.types import Array

Positions = Annotated[Array, array_of("<i4")]
_matrix = array_of("<f8", 2)
Matrix = Annotated[Array, _matrix]
#: Products of orthonormal columns are 0 or 1 but for rounding.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Task(Message):
    """The task that a completion server publishes (Algorithm 1, line 1).

    Attributes
    ----------
    catalogue : str
        SHA-256 of the item ids in order.
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
            _matrix(key)
            check(len(key) == len(self.keys[0]), "A task's keys have one row per item.")
            check(_orthonormal(key), "A task's keys have orthonormal columns, one at least.")


def _orthonormal(key: Array) -> bool:
    small = key.size > 0 and bool((np.abs(key) <= 1.0 + _ROUNDING).all())
    return small and bool(np.allclose(key.T @ key, np.eye(key.shape[1]), rtol=0, atol=_ROUNDING))


@dataclass(frozen=True)
class Upload(Message):
    """A node's masked column of one round (Algorithm 2, line 4); the items are in clear."""

    node: Name
    round: int
    items: Positions
    values: Floats

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.round in (1, 2), "An upload is of round 1 or 2.")
        check(len(self.values) == len(self.items) > 0, "An upload holds a value for each item, at least one.")
        check(
            bool(self.items[0] >= 0 and (self.items[1:] > self.items[:-1]).all()),
            "Upload.items are positions in the catalogue, ascending, none twice.",
        )


@dataclass(frozen=True)
class Record(Message):
    """An upload as an eavesdropper keeps it, with the public key of all rounds at the uploaded items."""

    values: Floats
    public_rows: Matrix

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            len(self.values) == len(self.public_rows),
            "A record holds one row of the public key for each masked value.",
        )


@dataclass(frozen=True)
class Accepted(Message):
    """The server has stored the upload of this digest for good."""

    digest: str


@dataclass(frozen=True)
class Column(Message):
    """A node's completed column, still masked, shape (n_items,)."""

    values: Floats


def fingerprint(items: Iterable[object]) -> str:
    """Return SHA-256 of the item ids in order."""
    return hashlib.sha256(json.dumps([str(item) for item in items]).encode()).hexdigest()
