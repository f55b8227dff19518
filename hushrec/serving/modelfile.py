"""Bytes of a model file: a safetensors file with a digest for every array (docs/reference/format.md).

Loading executes no code. The last 32 bytes are the digest of the header, which holds the digest of every
array. Anyone can compute a digest, so the header is checked too: arrays share no byte, leave no hole and end
where the file does.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Container, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from hushrec.disk import content_of, whole
from hushrec.errors import InputError, ModelFileError
from hushrec.types import Array

FORMAT = "hushrec"
VERSION = 1
#: Arrays begin at multiples of this many bytes.
ALIGNMENT = 64
#: Errors of a header that is valid JSON but not as expected.
BAD_HEADER = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
#: No training releases a number with a square that overflows.
LARGEST = 1e150
#: The file's last array: SHA-256 of the header.
DIGEST = "digest"

_MARK = b'{"__metadata__":{"format":"hushrec",'
_DIGEST_BYTES = 32
#: Safetensors' names of number types: a letter, and the size in bits.
_DTYPES = {
    f"{code[0].upper()}{8 * int(code[1])}": f"<{code}"
    for code in ("u1", "i1", "u4", "i4", "u8", "i8", "f4", "f8")
}
_NAMES = {np.dtype(code).newbyteorder("="): name for name, code in _DTYPES.items()}


Size = int | str | Callable[[Mapping[str, int]], int]


class Expected(NamedTuple):
    """The kind, shape and range of an array that an estimator declares; another array is refused on reading.

    Attributes
    ----------
    kind : {"f", "i", "iu"}
    shape : tuple of int, str or function
        A name has one value in all arrays of a model and its state. Every model has ``"items"``, and of
        ``item_factors`` the ``"learned"`` rows and the ``"rank"``; an estimator adds its own names. A
        function of these sizes is checked after them.
    low, high : float
    needed : bool or function
        Whether the array must be there; a function decides it by the names of the arrays that are.
    """

    kind: str = "f"
    shape: tuple[Size, ...] = ()
    low: float = -LARGEST
    high: float = LARGEST
    needed: bool | Callable[[Container[str]], bool] = True


def needed_if(
    condition: Callable[[Container[str]], bool], arrays: Mapping[str, Expected]
) -> dict[str, Expected]:
    return {name: expected._replace(needed=condition) for name, expected in arrays.items()}


@dataclass(frozen=True)
class ModelFile:
    """A model file; arrays are named ``section/array``."""

    header: dict[str, Any]
    arrays: dict[str, Array]
    digest: str
    place: str

    def section(self, name: str) -> dict[str, Array]:
        """Return the arrays of a section, without those of sections within it."""
        parts = ((*full.rpartition("/"), array) for full, array in self.arrays.items())
        return {short: array for section, _, short, array in parts if section == name}

    def expect(
        self, name: str, expected: Expected, shape: tuple[int, ...], sizes: MutableMapping[str, int]
    ) -> None:
        """Refuse an array of another type, shape or range; a size without a value gets the array's."""
        if self.arrays[name].dtype.kind not in expected.kind:
            raise ValueError(f"array {name!r} is of another type")
        fits = len(shape) == len(expected.shape)
        for declared, size in zip(expected.shape, shape, strict=True) if fits else ():
            if callable(declared):
                fits &= size == declared(sizes)
            else:
                fits &= size == (sizes.setdefault(declared, size) if isinstance(declared, str) else declared)
        if not fits:
            raise ValueError(f"array {name!r} does not fit the catalogue or the model")
        self.check_range(name, expected.low, expected.high)

    def check_range(self, name: str, low: float = -LARGEST, high: float = LARGEST) -> None:
        array = self.arrays[name]
        if array.size and not (low <= float(array.min()) and float(array.max()) <= high):
            raise ModelFileError(
                f"Model file {self.place!r} holds what no training releases (array {name!r} has numbers that"
                f" are not finite, or not from {low:g} to {high:g}); it was edited or damaged, so copy or"
                " train it again."
            )


def encode(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[bytes | memoryview]:
    """Return the content of a model file, in parts."""
    payload: list[bytes | memoryview] = []
    places: dict[str, Any] = {}
    digests: dict[str, str] = {}
    end = 0

    def add(name: str, dtype: str, shape: tuple[int, ...], octets: bytes | memoryview) -> None:
        nonlocal end
        places[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + len(octets)]}
        payload.append(octets)
        digests[name] = hashlib.sha256(octets).hexdigest()
        end += len(octets)
        if padding := -end % ALIGNMENT:
            add(f"padding/{len(places)}", "U8", (padding,), bytes(padding))

    for name, value in arrays.items():
        kind = _NAMES.get(value.dtype.newbyteorder("="))
        if kind is None:
            raise InputError(f"Array {name!r} holds {value.dtype}; a model file holds integers and floats.")
        flat = np.ascontiguousarray(value, dtype=_DTYPES[kind]).reshape(-1)
        add(name, kind, value.shape, flat.view(np.uint8).data)
    places[DIGEST] = {"dtype": "U8", "shape": [_DIGEST_BYTES], "data_offsets": [end, end + _DIGEST_BYTES]}
    stored = {"format": FORMAT, "version": str(VERSION)}
    stored |= {key: _json(value) for key, value in (*header.items(), ("digests", digests))}
    text = _json({"__metadata__": stored} | places).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    head = len(text).to_bytes(8, "little") + text
    return [head, *payload, hashlib.sha256(head).digest()]


def read(path: str | Path | bytes) -> ModelFile:
    """Read a model file, or its content."""
    place = "in memory" if isinstance(path, bytes) else str(path)
    content = path if isinstance(path, bytes) else content_of(path, "Model file", ModelFileError)
    try:
        return _decode(memoryview(content), place)
    except ModelFileError:
        raise
    except _LayoutError as error:
        _damaged(place, error)
    except BAD_HEADER as error:
        other_version(place, error)


def other_version(place: str, error: Exception) -> NoReturn:
    raise ModelFileError(
        f"Model file {place!r} was written by another version of hushrec ({error});"
        " read it with the version that wrote it."
    ) from None


def write_atomically(target: Path, parts: list[Any]) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    draft = target.parent / f".{target.name}.{os.urandom(4).hex()}.part"
    try:
        with whole(draft, target) as file:
            for part in parts:
                file.write(part)
    except OSError as error:
        raise InputError(
            f"Cannot write {str(target)!r} ({error.strerror}); pass a path in a folder that exists and is"
            " writable, or free space."
        ) from None


class _LayoutError(ValueError): ...


def _damaged(place: str, why: object) -> NoReturn:
    raise ModelFileError(
        f"Model file {place!r} is damaged or cut short ({why}); copy or train it again."
    ) from None


def _decode(raw: memoryview, place: str) -> ModelFile:
    length = int.from_bytes(raw[:8], "little")
    if raw[8 : 8 + len(_MARK)] != _MARK:
        raise ModelFileError(f"{place!r} is not a hushrec model file; pass one that `hushrec train` wrote.")
    head, payload = raw[: 8 + length], raw[8 + length :]
    if len(head) % ALIGNMENT:
        _damaged(place, f"its arrays do not begin at a multiple of {ALIGNMENT} bytes")
    digest = hashlib.sha256(head).digest()
    if len(payload) < _DIGEST_BYTES or payload[-_DIGEST_BYTES:] != digest:
        _damaged(place, "wrong digest")
    places = json.loads(bytes(head[8:]), object_pairs_hook=_once)
    stored = places.pop("__metadata__")
    if stored["version"] != str(VERSION):
        raise ValueError(f"format version {stored['version']}")
    header = {key: json.loads(text) for key, text in stored.items() if key not in ("format", "version")}
    digests = header.pop("digests")
    file = ModelFile(header, _arrays(places, payload), digest.hex(), place)
    for name in file.arrays:
        octets = payload[slice(*places[name]["data_offsets"])]
        if name != DIGEST and hashlib.sha256(octets).hexdigest() != digests[name]:
            raise _LayoutError(f"wrong digest of array {name!r}")
        file.check_range(name)
    return file


def _arrays(places: dict[str, Any], payload: memoryview) -> dict[str, Array]:
    """Return the arrays, which must follow each other and fill the payload; the digest is the last."""
    arrays: dict[str, Array] = {}
    end = 0
    parts = sorted(places.items(), key=lambda part: part[1]["data_offsets"])
    if not parts or parts[-1][0] != DIGEST:
        raise _LayoutError("its digest is not where the file ends")
    for name, entry in parts:
        dtype, shape, (begin, stop) = np.dtype(_DTYPES[entry["dtype"]]), entry["shape"], entry["data_offsets"]
        if any(type(size) is not int or size < 0 for size in shape):
            raise _LayoutError(f"array {name!r} has no shape")
        if [begin, stop] != [end, end + math.prod(shape) * dtype.itemsize] or stop > len(payload):
            raise _LayoutError(f"array {name!r} is not where its entry says")
        if begin % ALIGNMENT and not name.startswith("padding/"):
            raise _LayoutError(f"array {name!r} does not begin at a multiple of {ALIGNMENT} bytes")
        arrays[name] = np.frombuffer(payload[begin:stop], dtype).reshape(shape)
        end = stop
    if end != len(payload):
        raise _LayoutError("bytes that belong to no array")
    return arrays


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise _LayoutError("a name occurs twice")
    return content


def _json(value: Any) -> str:
    return json.dumps(value, default=_plain, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored in a model file")
