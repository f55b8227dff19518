"""The arrays of a section of a model file: without rows of zeros, item factors optionally in one byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hushrec.errors import InputError
from hushrec.serving.item_rows import ItemRows
from hushrec.serving.modelfile import Arrays
from hushrec.types import Array

FACTORS, BYTES, SCALE = "item_factors", "item_factors_int8", "item_factors_scale"
#: Suffix of the name of the positions of an array's stored rows.
ROWS = "_rows"
#: Largest magnitude of a stored byte.
_LARGEST = 127
#: Bits of a scale's significand: its product with a byte is then exact in float32.
_SCALE_BITS = 17


def packed(factors: Array) -> dict[str, Array]:
    """Return a byte per factor and a float32 scale per row; packing them again gives the same bytes."""
    largest = np.abs(factors).max(axis=1, initial=0.0).astype(np.float64)
    if not (largest < np.finfo(np.float32).max).all():
        raise InputError("These item factors are not all finite in float32; save without int8.")
    mantissa, exponent = np.frexp(largest / _LARGEST)
    scale = np.ldexp(np.ceil(np.ldexp(mantissa, _SCALE_BITS)), exponent - _SCALE_BITS)
    scale[scale < np.finfo(np.float32).tiny] = 0.0  # the factors are 0 in float32
    rows = np.divide(factors, scale[:, None], out=np.zeros(factors.shape), where=scale[:, None] > 0)
    return {BYTES: np.rint(rows).astype(np.int8), SCALE: scale.astype(np.float32)}


def unpacked(stored: Mapping[str, Array]) -> Array:
    factors = stored[BYTES] * stored[SCALE][:, None]
    factors.setflags(write=False)
    return factors


def to_stored(arrays: Mapping[str, Any], int8: bool) -> dict[str, Array]:
    stored: dict[str, Array] = {}
    for name, array in arrays.items():
        rows = array.rows if isinstance(array, ItemRows) else array
        stored |= packed(rows) if int8 and name == FACTORS else {name: rows}
        if isinstance(array, ItemRows):
            stored[name + ROWS] = array.items
    return stored


class StoredArrays(Mapping[str, Any]):
    """The arrays of a section, each unpacked at its first use.

    Parameters
    ----------
    section : Arrays
    n_items : int
    whole : bool
        Return arrays with their rows of zeros.
    """

    def __init__(self, section: Arrays, n_items: int, *, whole: bool = False) -> None:
        if BYTES in section:
            if FACTORS in section:
                raise ValueError("there are factors of one byte and others")
            if (section.dtype(BYTES), section.dtype(SCALE)) != (np.dtype(np.int8), np.dtype(np.float32)):
                raise ValueError("factors of one byte, or their scales, are of another type")
        self._section, self._n_items, self._whole = section, n_items, whole
        self._unpacked: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._unpacked:
            return self._unpacked[name]
        in_bytes = name == FACTORS and BYTES in self._section
        rows = unpacked(self._section) if in_bytes else self._section[name]
        if name + ROWS not in self._section and not in_bytes:
            return rows
        array: Any = rows
        if name + ROWS in self._section:
            array = ItemRows(rows, self._section[name + ROWS], self._n_items)
            array = np.asarray(array) if self._whole else array
        self._unpacked[name] = array
        return array

    def __iter__(self) -> Iterator[str]:
        names = (FACTORS if name == BYTES else name for name in self._section)
        return (name for name in names if name != SCALE and not name.endswith(ROWS))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._section.shape(BYTES if name == FACTORS and BYTES in self._section else name)

    def positions(self, name: str) -> Array | None:
        """Return the positions of the stored rows; None if all are stored."""
        if name + ROWS not in self._section:
            return None
        positions = np.asarray(self._section[name + ROWS])
        if positions.ndim != 1 or positions.dtype.kind not in "iu":
            raise ValueError(f"the positions of the rows of {name!r} are of another type")
        if (np.diff(positions.astype(np.int64), prepend=-1, append=self._n_items) < 1).any():
            raise ValueError(f"the positions of the rows of {name!r} do not fit the catalogue")
        return positions
