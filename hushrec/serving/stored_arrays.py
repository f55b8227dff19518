"""The arrays of a section of a model file: without rows of zeros, item factors optionally in one byte."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from hushrec.errors import InputError
from hushrec.serving.item_rows import ItemRows
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
    if FACTORS in stored:
        raise ValueError("there are factors of one byte and others")
    if (stored[BYTES].dtype, stored[SCALE].dtype) != (np.dtype(np.int8), np.dtype(np.float32)):
        raise ValueError("factors of one byte, or their scales, are of another type")
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


def from_stored(section: Mapping[str, Array], n_items: int, *, whole: bool = False) -> Mapping[str, Any]:
    """Return the arrays of a section, with rows of zeros if ``whole``."""
    arrays: dict[str, Any] = {}
    for name, stored in section.items():
        if name == SCALE or name.endswith(ROWS):
            continue
        if name == BYTES:
            name, stored = FACTORS, unpacked(section)
        if name + ROWS in section:
            rows = ItemRows(stored, section[name + ROWS], n_items)
            arrays[name] = np.asarray(rows) if whole else rows
        else:
            arrays[name] = stored
    return MappingProxyType(arrays)


def positions(section: Mapping[str, Array], name: str, n_items: int) -> Array | None:
    """Return the positions of an array's stored rows; None if all are stored."""
    if name + ROWS not in section:
        return None
    places = section[name + ROWS]
    if places.ndim != 1 or places.dtype.kind not in "iu":
        raise ValueError(f"the positions of the rows of {name!r} are of another type")
    if (np.diff(places.astype(np.int64), prepend=-1, append=n_items) < 1).any():
        raise ValueError(f"the positions of the rows of {name!r} do not fit the catalogue")
    return places
