"""The arrays of a section of a model file: without rows of zeros, item factors optionally in one byte."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from hushrec.errors import InputError
from hushrec.serving.item_rows import ItemRows
from hushrec.serving.modelfile import Expected, ModelFile
from hushrec.types import Array, ModelArrays

FACTORS, BYTES, SCALE = "item_factors", "item_factors_int8", "item_factors_scale"
#: Suffix of the name of the positions of an array's stored rows.
ROWS = "_rows"
#: Arrays that serving uses; an estimator declares more.
SERVED = {
    "center": Expected(),
    "item_bias": Expected("f", ("items",)),
    FACTORS: Expected("f", ("items", "rank"), needed=lambda names: BYTES not in names),
    BYTES: Expected("i", ("items", "rank"), needed=False),
    SCALE: Expected(
        "f", ("items",), 0.0, float(np.finfo(np.float32).max) / 128, lambda names: BYTES in names
    ),
    "pair_items": Expected("iu", ("pairs",), 0, needed=lambda names: "pair_weights" in names),
    "pair_weights": Expected("f", ("pairs", "pairs"), needed=lambda names: "pair_items" in names),
    "neighbours": Expected("iu", ("items", "neighbours"), 0, needed=lambda names: "similarity" in names),
    "similarity": Expected("f", ("items", "neighbours"), 0.0, 1.0, lambda names: "neighbours" in names),
    "word_weight": Expected("f", (), needed=lambda names: "neighbours" in names),
    "public_factors": Expected("f", ("items", "public columns"), needed=False),
    "supported": Expected("iu", ("items",), 0, 1, needed=False),
    "directions": Expected("iu", (), 0, needed=False),
    "new": Expected("iu", ("items",), 0, 1, needed=False),
}
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
    reserved = {BYTES, SCALE, *(name + ROWS for name in arrays if name.startswith("item_"))}
    if taken := sorted(reserved & arrays.keys()):
        raise InputError(f"A model file has its own array {taken[0]!r}; give the estimator's another name.")
    stored: dict[str, Array] = {}
    for name, array in arrays.items():
        rows = array.rows if isinstance(array, ItemRows) else array
        stored |= packed(rows) if int8 and name == FACTORS else {name: rows}
        if isinstance(array, ItemRows):
            stored[name + ROWS] = array.items
    return stored


def from_stored(section: Mapping[str, Array], n_items: int, *, whole: bool = False) -> Mapping[str, Any]:
    """Return the arrays of a section, with rows of zeros if ``whole``."""
    own = {SCALE, *(name + ROWS for name in (*section, FACTORS) if name.startswith("item_"))}
    arrays: dict[str, Any] = {}
    for name, stored in section.items():
        if name in own:
            continue
        if name == BYTES:
            name, stored = FACTORS, unpacked(section)
        places = positions(section, name, n_items)
        if places is not None:
            rows = ItemRows(stored, places, n_items)
            arrays[name] = np.asarray(rows) if whole else rows
        else:
            arrays[name] = stored
    return MappingProxyType(arrays)


def positions(section: Mapping[str, Array], name: str, n_items: int) -> Array | None:
    """Return the positions of the stored rows of an array ``item_...``; None if all are stored."""
    if not name.startswith("item_") or name + ROWS not in section:
        return None
    places = section[name + ROWS]
    if places.ndim != 1 or places.dtype.kind not in "iu":
        raise ValueError(f"the positions of the rows of {name!r} are of another type")
    _check_ascending(places, n_items, f"positions of the rows of {name!r}")
    return places


def check_arrays(stored: ModelFile, section: str, state: str, declared: ModelArrays, n_items: int) -> None:
    """Refuse a section and its state if an array that serving or the estimator needs is missing or odd."""
    held = {place: stored.section(place) for place in (section, state)}
    names = {name for arrays in held.values() for name in arrays}
    sizes = {"items": n_items}
    if "pair_items" in held[section]:
        _check_ascending(held[section]["pair_items"], n_items, "items of pairs")
    if "neighbours" in held[section] and (held[section]["neighbours"] >= n_items).any():
        raise ValueError("the neighbours do not fit the catalogue")
    parts = (section, SERVED), (section, declared.serve), (state, declared.state)
    listed = [(place, name, what) for place, arrays in parts for name, what in arrays.items()]
    for place, name, what in sorted(listed, key=lambda entry: any(map(callable, entry[2].shape))):
        if name not in held[place]:
            if what.needed(names) if callable(what.needed) else what.needed:
                raise ValueError(f"array {f'{place}/{name}'!r} is missing")
            continue
        shape = held[place][name].shape
        places = positions(held[place], FACTORS if name in (BYTES, SCALE) else name, n_items)
        if places is not None:
            shape = (n_items if shape[:1] == places.shape else -1, *shape[1:])
        stored.expect(f"{place}/{name}", what, shape, sizes)


def _check_ascending(places: Array, n_items: int, what: str) -> None:
    if (np.diff(places.astype(np.int64), prepend=-1, append=n_items) < 1).any():
        raise ValueError(f"the {what} do not fit the catalogue")
