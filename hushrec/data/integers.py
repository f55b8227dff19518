"""Columns of integers, whose ids can be looked up without writing them as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hushrec.data.ids import Encoded, encode_ids, positions_of
from hushrec.data.keys import mix, text_hashes

_CANONICAL = r"^(0|-?[1-9][0-9]{0,17})$"  # of those that fit int64 with any digits
_LARGEST = 10**18  # from here on integers have more digits
_DENSE = 1 << 24  # numbers that have a separate table


def plain_integers(column: Any) -> np.ndarray | None:
    """Return the numbers of an Arrow column of integers without a hole; None for another column."""
    if not isinstance(column, pa.ChunkedArray) or not pa.types.is_integer(column.type) or column.null_count:
        return None
    return column.to_numpy()


class Places:
    """Look up ids among distinct canonical texts."""

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
        """Return the position (int32) of each id of a column, -1 where it is not there."""
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
    """Return the ids, as numbers where they are plain integers, and `hashes_of` the ids of each row.

    A row without an id has its own code.
    """
    numbers = plain_integers(column)
    if numbers is None:
        users = encode_ids(column)
        return users, np.append(hashes_of(users.texts), np.uint64(0))[users.codes]
    hashes = mix(numbers.astype(np.uint64))
    if numbers.dtype.itemsize == 8:
        large = numbers >= numbers.dtype.type(_LARGEST)
        large |= numbers <= -_LARGEST if numbers.dtype.kind == "i" else False
        hashes[large] = text_hashes(pa.array(numbers[large]).cast(pa.large_string()))
    return numbers, hashes


def hashes_of(texts: pa.Array) -> np.ndarray:
    """Return a hash (uint64) of each canonical id, to deal users out; of an integer, of the number."""
    is_whole = pc.match_substring_regex(texts, _CANONICAL)
    hashes, whole = np.empty(len(texts), np.uint64), is_whole.to_numpy(zero_copy_only=False)
    hashes[whole] = mix(texts.filter(is_whole).cast(pa.int64()).to_numpy().astype(np.uint64))
    hashes[~whole] = text_hashes(texts.filter(pc.invert(is_whole)))
    return hashes
