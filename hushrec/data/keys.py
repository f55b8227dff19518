"""Random choices as hashes of (seed, user id, item): no user changes another's.

They are reproducible and public, never a source of privacy noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from hushrec.checks import is_number, shown
from hushrec.errors import InputError

_PERSON = b"hushrec.user.v1"  # BLAKE2b's personalisation: a hash of ids made elsewhere gives other keys
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment, 2^64 over the golden ratio
_CELLS = 1 << 21  # cells sorted at a time: bounds the memory of a pass over all ratings


def text_keys(texts: Iterable[str]) -> np.ndarray:
    """Return eight bytes of BLAKE2b of each text (uint64), the same on every machine."""
    blake2b = hashlib.blake2b
    digests = b"".join([blake2b(text.encode(), digest_size=8, person=_PERSON).digest() for text in texts])
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def mix(values: np.ndarray) -> np.ndarray:
    """Mix all bits by SplitMix64's finaliser (Steele, Lea and Flood 2014), a bijection of uint64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def check_seed(seed: int) -> int:
    if not is_number(seed, (int, np.integer)) or not 0 <= seed < 1 << 64:
        raise InputError(f"seed={shown(seed)} is not an integer from 0 to 2**64 - 1.", parameter="seed")
    return int(seed)


def stream_base(user_keys: np.ndarray, seed: int, purpose: str) -> np.ndarray:
    """Return a uint64 per user to draw their choices from; purposes are independent."""
    salt = text_keys([f"{purpose}:{check_seed(seed)}"])
    return mix(user_keys ^ mix(salt))


def cell_keys(base: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Hash a user's base with each of their items, as uint64."""
    return mix(base + _GOLDEN * (items.astype(np.uint64) + np.uint64(1)))


def part_of(keys: np.ndarray, fractions: Sequence[float]) -> np.ndarray:
    ends = [min(int(end * 2.0**64), (1 << 64) - 1) for end in np.cumsum(fractions)[:-1].tolist()]
    return np.searchsorted(np.array(ends, dtype=np.uint64), keys, side="right")


def parts_of_cells(
    indptr: np.ndarray, indices: np.ndarray, base: np.ndarray, fractions: Sequence[float]
) -> np.ndarray:
    """Return the part of each entry of rows in CSR form."""
    rows = np.repeat(np.arange(len(base), dtype=np.int32), np.diff(indptr))
    parts = [part_of(cell_keys(base[rows[cells]], indices[cells]), fractions) for cells in slices(len(rows))]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def smallest_per_row(
    indptr: np.ndarray,
    indices: np.ndarray,
    base: np.ndarray,
    counts: np.ndarray,
    rank: np.ndarray | None = None,
) -> np.ndarray:
    """Mark the ``counts[row]`` entries of each row that come first in a keyed order of that row.

    Parameters
    ----------
    indptr, indices : ndarray
        Rows in CSR form, no item twice in a row.
    base : ndarray of uint64, shape (n_rows,)
        From `stream_base`. The order of a row depends on its base and items only.
    counts : ndarray of int64, shape (n_rows,)
    rank : ndarray of int64, shape (n_items,), optional
        Sort by this first, then by the hash.
    """
    indptr = indptr.astype(np.int64)
    lengths = np.diff(indptr)
    chosen = np.ones(len(indices), dtype=bool)
    long_rows = np.flatnonzero(lengths > counts)
    # Rows of like length are sorted together as a padded table; the padding sorts last.
    long_rows = long_rows[np.argsort(lengths[long_rows], kind="stable")]
    bits = 0 if rank is None else max(1, int(rank.max(initial=0)).bit_length())
    start = 0
    while start < len(long_rows):
        shortest = int(lengths[long_rows[start]])
        stop = start + max(1, _CELLS // (2 * shortest))
        stop = min(stop, int(np.searchsorted(lengths[long_rows], 2 * shortest, side="right")))
        rows = long_rows[start:stop]
        start = stop
        width = int(lengths[rows[-1]])
        valid = np.arange(width) < lengths[rows][:, None]
        position = np.where(valid, indptr[rows][:, None] + np.arange(width), 0)
        items = indices[position]
        key = cell_keys(base[rows][:, None], items)
        if rank is not None:
            key = (key >> np.uint64(bits)) | (rank[items].astype(np.uint64) << np.uint64(64 - bits))
        key[~valid] = np.uint64(0xFFFFFFFFFFFFFFFF)
        order = np.argsort(key, axis=1, kind="stable")
        taken = np.zeros(valid.shape, dtype=bool)
        np.put_along_axis(taken, order, np.arange(width) < counts[rows][:, None], axis=1)
        chosen[position[valid]] = taken[valid]
    return chosen


def slices(length: int, size: int = 1 << 20) -> list[slice]:
    """Cover a long array, to keep temporary arrays small."""
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]
