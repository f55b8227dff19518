"""Columns of integers, looked up without writing them as text."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hushrec.data.ids import Encoded, encode_ids, positions_of
from hushrec.data.keys import mix

_CANONICAL = r"^(0|-?[1-9][0-9]{0,17})$"  # of those that fit int64 with any digits
_LARGEST = 10**18  # from here on integers have more digits
_DENSE = 1 << 24  # numbers that have a separate table


def plain_integers(column: Any) -> np.ndarray | None:
    """Return the numbers of an Arrow column of integers without a hole, else None."""
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
        self._least, most = (
            int(end) for end in (self._numbers.min(initial=_LARGEST), self._numbers.max(initial=0))
        )
        self._table: np.ndarray | None = None
        if most - self._least < _DENSE:
            self._table = np.full(max(0, most - self._least + 1), -1, np.int32)
            self._table[self._numbers - self._least] = self._places

    def of(self, column: Any) -> np.ndarray:
        """Return the position (int32) of each id of a column, -1 where it is not there."""
        numbers = plain_integers(column)
        if numbers is None or numbers.dtype == np.uint64:
            return positions_of(encode_ids(column), self._texts)
        if self._table is None:
            at = pc.index_in(pa.array(numbers.astype(np.int64)), value_set=pa.array(self._numbers))
            return np.append(self._places, np.int32(-1))[at.fill_null(-1).to_numpy()]
        positions = np.full(len(numbers), -1, np.int32)
        inside = (numbers >= self._least) & (numbers < self._least + len(self._table))
        numbers = (numbers if inside.all() else numbers[inside]).astype(np.int64)
        positions[inside] = self._table[numbers - self._least]
        return positions


def id_hashes(column: Any) -> tuple[Encoded | np.ndarray, np.ndarray]:
    """Return ids, as numbers where they are plain integers, and each row's hash."""
    numbers = plain_integers(column)
    if numbers is None:
        users = encode_ids(column)
        return users, np.append(hashes_of(users.texts), np.uint64(0))[users.codes]
    hashes = mix(numbers.astype(np.uint64))
    if numbers.dtype.itemsize == 8:
        large = numbers >= numbers.dtype.type(_LARGEST)
        large |= numbers <= -_LARGEST if numbers.dtype.kind == "i" else False
        hashes[large] = _text_hashes(pa.array(numbers[large]).cast(pa.large_string()))
    return numbers, hashes


def hashes_of(texts: pa.Array) -> np.ndarray:
    """Return a uint64 per canonical id, to deal users out; of an integer, of the number."""
    is_whole = pc.match_substring_regex(texts, _CANONICAL)
    hashes, whole = np.empty(len(texts), np.uint64), is_whole.to_numpy(zero_copy_only=False)
    hashes[whole] = mix(texts.filter(is_whole).cast(pa.int64()).to_numpy().astype(np.uint64))
    hashes[~whole] = _text_hashes(texts.filter(pc.invert(is_whole)))
    return hashes


def _text_hashes(texts: pa.Array) -> np.ndarray:
    """Return a checksum of each text, which is faster than `hushrec.data.keys.text_keys`."""
    return mix(np.fromiter(map(zlib.crc32, texts.cast(pa.large_binary()).to_pylist()), np.uint64, len(texts)))
