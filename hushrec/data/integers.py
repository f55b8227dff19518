"""Columns of integers, whose ids need not be written as text to be looked up or dealt out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hushrec.data.ids import Encoded, encode_ids, positions_of
from hushrec.data.keys import hash_of_words, text_hashes

_CANONICAL = r"^(0|-?[1-9][0-9]{0,17})$"  # of those that fit int64 whatever their digits are
_DENSE = 1 << 24  # numbers that have a table of their own
_DIGITS = np.uint64(10**8)  # of one word, eight octets
_TOGETHER = 1 << 15  # that are hashed at a time, in a near cache
_LARGEST = np.uint64(10**16)  # numbers below have two words at most

#: The four digits of each number below 10^4 as octets, the first one lowest.
_FOUR = np.array(
    [int.from_bytes(b"%04d" % number, "little") for number in range(10**4)], dtype=np.uint64
)  # fmt: skip


def plain_integers(column: Any) -> np.ndarray | None:
    """The numbers of an Arrow column of integers without a hole; None where it is another column."""
    if not isinstance(column, pa.ChunkedArray) or not pa.types.is_integer(column.type) or column.null_count:
        return None
    return column.to_numpy()


class Places:
    """The places of ids among canonical texts.

    Parameters
    ----------
    texts : Array
        Distinct.
    """

    def __init__(self, texts: pa.Array) -> None:
        self._texts = texts
        whole = pc.match_substring_regex(texts, _CANONICAL).to_numpy(zero_copy_only=False)
        self._places = np.flatnonzero(whole).astype(np.int32)
        self._numbers = texts.take(pa.array(self._places)).cast(pa.int64()).to_numpy()
        order = np.argsort(self._numbers, kind="stable")
        self._places, self._numbers = self._places[order], self._numbers[order]
        self._table: np.ndarray | None = None
        if len(order) and int(self._numbers[-1]) - int(self._numbers[0]) < _DENSE:
            self._table = np.full(int(self._numbers[-1]) - int(self._numbers[0]) + 1, -1, np.int32)
            self._table[self._numbers - self._numbers[0]] = self._places

    def of(self, column: Any) -> np.ndarray:
        """The position (int32) of each id of a column, -1 where it is not there."""
        numbers = plain_integers(column)
        if numbers is None or numbers.dtype == np.uint64:
            return positions_of(encode_ids(column), self._texts)
        found = np.full(len(numbers), -1, np.int32)
        if not len(self._numbers):
            return found
        inside = (numbers >= self._numbers[0]) & (numbers <= self._numbers[-1])
        numbers = (numbers if inside.all() else numbers[inside]).astype(np.int64)
        if self._table is not None:
            found[inside] = self._table[numbers - self._numbers[0]]
        else:
            at = np.searchsorted(self._numbers, numbers)
            found[inside] = np.where(self._numbers[at] == numbers, self._places[at], -1)
        return found


def id_hashes(column: Any) -> tuple[Encoded | np.ndarray, np.ndarray]:
    """The ids, as numbers where they are plain integers, and `text_hashes` of the canonical text of each row.

    A row without an id is told by its code.
    """
    numbers = plain_integers(column)
    if numbers is None:
        users = encode_ids(column)
        return users, np.append(text_hashes(users.texts), np.uint64(0))[users.codes]
    small = numbers >= 0
    if numbers.dtype.itemsize == 8:
        small &= numbers < numbers.dtype.type(_LARGEST)
    hashes = np.empty(len(numbers), np.uint64)
    for start in range(0, len(numbers), _TOGETHER):
        part = slice(start, start + _TOGETHER)
        hashes[part] = _hashes_of_small(np.where(small[part], numbers[part], 0).astype(np.uint64))
    hashes[~small] = text_hashes(pa.array(numbers[~small]).cast(pa.large_string()))
    return numbers, hashes


def _hashes_of_small(numbers: np.ndarray) -> np.ndarray:
    """`text_hashes` of numbers of at most 16 digits."""
    high, low = np.divmod(numbers, _DIGITS)
    long = high > 0
    words, lengths = _digits(np.where(long, high, low))
    lengths = lengths + np.where(long, 8, 0)
    seconds = None
    if long.any():
        padded, _ = _digits(low, padded=True)
        beyond = np.uint64(8) * np.minimum(lengths - 8, 8).astype(np.uint64)  # bits of the first digits
        whole = beyond >= 64
        shift = np.where(whole, 0, beyond).astype(np.uint64)
        first = np.where(whole, words, words | padded << shift)
        second = np.where(whole, padded, padded >> (np.uint64(64) - np.maximum(shift, 1)))
        words, seconds = np.where(long, first, words), second
    return hash_of_words(lengths, words, seconds, long)


def _digits(numbers: np.ndarray, padded: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Numbers below 10^8 written as octets, the first digit lowest, without zeros before it; how many."""
    high, low = np.divmod(numbers, np.uint64(10**4))
    words = _FOUR[high] | _FOUR[low] << np.uint64(32)
    if padded:
        return words, np.full(len(words), 8)
    lengths = np.ones(len(numbers), np.int64)
    for power in range(1, 8):
        lengths += numbers >= np.uint64(10**power)
    return words >> (np.uint64(8) * (8 - lengths).astype(np.uint64)), lengths
