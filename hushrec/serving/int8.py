"""Item factors of one byte, with a scale an item: a quarter of the size, and a free post-processing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from hushrec.errors import InputError
from hushrec.serving.modelfile import Arrays
from hushrec.types import Array

FACTORS, BYTES, SCALE = "item_factors", "item_factors_int8", "item_factors_scale"
#: Largest magnitude of a stored byte.
_LARGEST = 127
#: Bits of a scale's significand: its product with a byte is then exact in float32.
_SCALE_BITS = 17


def packed(factors: Array) -> dict[str, Array]:
    """Factors as bytes and a float32 scale for each row; factors are the products, to half a scale.

    What :func:`unpacked` gives is packed again as it was.
    """
    largest = np.abs(factors).max(axis=1, initial=0.0).astype(np.float64)
    if not (largest < np.finfo(np.float32).max).all():
        raise InputError("These item factors are not all finite in float32; save without int8.")
    mantissa, exponent = np.frexp(largest / _LARGEST)
    scale = np.ldexp(np.ceil(np.ldexp(mantissa, _SCALE_BITS)), exponent - _SCALE_BITS)
    scale[scale < np.finfo(np.float32).tiny] = 0.0  # such factors are nothing
    rows = np.divide(factors, scale[:, None], out=np.zeros(factors.shape), where=scale[:, None] > 0)
    return {BYTES: np.rint(rows).astype(np.int8), SCALE: scale.astype(np.float32)}


def unpacked(stored: Mapping[str, Array]) -> Array:
    """The float32 factors of :func:`packed`; read-only."""
    found = stored[BYTES] * stored[SCALE][:, None]
    found.setflags(write=False)
    return found


class Unpacked(Mapping[str, Array]):
    """Arrays of a file that holds factors of one byte, with ``item_factors`` in their place.

    They are unpacked when they are first used, and once.

    Raises
    ------
    ValueError
        If bytes or scales are of another type, or there are factors besides.
    """

    def __init__(self, stored: Arrays) -> None:
        if FACTORS in stored:
            raise ValueError("there are factors of one byte and others")
        if (stored.dtype(BYTES), stored.dtype(SCALE)) != (np.dtype(np.int8), np.dtype(np.float32)):
            raise ValueError("factors of one byte, or their scales, are of another type")
        self._stored = stored
        self._factors: Array | None = None

    def __getitem__(self, name: str) -> Array:
        if name != FACTORS:
            return self._stored[name]
        if self._factors is None:
            self._factors = unpacked(self._stored)
        return self._factors

    def __iter__(self) -> Iterator[str]:
        return iter([*(name for name in self._stored if name not in (BYTES, SCALE)), FACTORS])

    def __len__(self) -> int:
        return len(self._stored) - 1
