"""Bytes of a model file: a safetensors file with a digest for every array (docs/reference/format.md).

Loading executes no code. The last 32 bytes are the digest of the header, which holds the digest of every
array, so a mapped file is checked array by array. Anyone can compute a digest, so the header is checked too:
arrays share no byte, leave no hole and end where the file does.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from hushrec.disk import whole
from hushrec.errors import InputError, ModelFileError
from hushrec.types import Array

FORMAT = "hushrec"
VERSION = 1
#: Arrays begin at multiples of this many bytes, as computing in a mapped file requires.
ALIGNMENT = 64
#: Errors of a header that is valid JSON but not as expected.
BAD_HEADER = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
#: No training releases a number with a square that overflows.
LARGEST = 1e150
#: The file's last array: SHA-256 of the header.
DIGEST = "digest"

_MARK = b'{"__metadata__":{"format":"hushrec",'
_DIGEST_BYTES = 32
_DTYPES = {
    "U8": "|u1",
    "I8": "|i1",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}
_NAMES = {np.dtype(code).newbyteorder("="): name for name, code in _DTYPES.items()}


class Expected(NamedTuple):
    """The kind, shape and range of an array of a model; any other array is refused.

    Attributes
    ----------
    kind : {"f", "iu"}
    shape : tuple of int or str
        A word stands for a size that follows from the model: ``"items"``, ``"rank"``, ``"own rank"``
        (the rank without the columns of item features), ``"components"`` (of item features, in lists),
        ``"tables"`` of these.
    low, high : float
    """

    kind: str = "f"
    shape: tuple[int | str, ...] = ()
    low: float = -LARGEST
    high: float = LARGEST


class Arrays(Mapping[str, Array]):
    """Read-only arrays over the bytes of a file, each checked at its first use."""

    def __init__(self, entries: Mapping[str, _Entry], place: str) -> None:
        self._entries, self._place = entries, place

    def __getitem__(self, name: str) -> Array:
        entry = self._entries[name]
        if not entry.checked:
            if entry.digest not in (None, hashlib.sha256(entry.octets).hexdigest()):
                _damaged(self._place, f"wrong digest of array {entry.name!r}")
            self._check(entry)
            entry.checked = True
        return entry.array

    def expect(self, name: str, expected: Expected, sizes: Mapping[str, int]) -> None:
        """Refuse an array of another type or shape."""
        entry = self._entries[name]
        shape = tuple(sizes[size] if isinstance(size, str) else size for size in expected.shape)
        if entry.array.dtype.kind not in expected.kind:
            raise ValueError(f"array {entry.name!r} is of another type")
        if entry.array.shape != shape:
            raise ValueError(f"array {entry.name!r} does not fit the catalogue or the model")
        entry.low, entry.high = expected.low, expected.high
        if entry.checked:
            self._check(entry)

    def _check(self, entry: _Entry) -> None:
        if not entry.array.size:
            return
        least, largest = float(entry.array.min()), float(entry.array.max())
        if not (entry.low <= least and largest <= entry.high):
            raise ModelFileError(
                f"Model file {self._place!r} holds what no training releases (array {entry.name!r} has"
                f" numbers that are not finite, or not from {entry.low:g} to {entry.high:g}); it was edited"
                " or damaged, so copy or train it again."
            )

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].array.shape

    def dtype(self, name: str) -> np.dtype[Any]:
        return self._entries[name].array.dtype

    def section(self, name: str) -> Arrays:
        parts = ((*full.rpartition("/"), entry) for full, entry in self._entries.items())
        return Arrays({short: entry for section, _, short, entry in parts if section == name}, self._place)


@dataclass
class _Entry:
    """One array and its bytes. ``digest`` is None for the last array, which is one."""

    name: str
    array: Array
    octets: memoryview
    digest: str | None
    low: float = -LARGEST
    high: float = LARGEST
    checked: bool = False


@dataclass(frozen=True)
class ModelFile:
    """A model file; arrays are named ``section/array``."""

    header: dict[str, Any]
    arrays: Arrays
    digest: str


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


def read(path: str | Path | bytes, *, memory_map: bool = False) -> ModelFile:
    """Read a model file, or its content.

    With ``memory_map``, arrays stay in the file, and each is checked at its first use. Such a file may be
    replaced, as :func:`write_atomically` does, but never written into.
    """
    place = "in memory" if isinstance(path, bytes) else str(path)
    raw: Any = path if isinstance(path, bytes) else _content(Path(path), memory_map)
    try:
        content = _decode(memoryview(raw), place)
    except ModelFileError:
        raise
    except _LayoutError as error:
        _damaged(place, error)
    except BAD_HEADER as error:
        other_version(place, error)
    if not memory_map:
        for name in content.arrays:
            content.arrays[name]  # is checked
    return content


def _content(path: Path, memory_map: bool) -> bytes | mmap.mmap:
    try:
        with path.open("rb") as file:
            if not memory_map or not os.fstat(file.fileno()).st_size:
                return file.read()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelFileError(
            f"Model file {str(path)!r} cannot be read ({error.strerror}); check the path."
        ) from None


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
    last = places.pop(DIGEST)
    ordered = sorted(places.items(), key=lambda item: item[1]["data_offsets"])
    parts = [(name, entry["dtype"], entry["shape"], entry["data_offsets"]) for name, entry in ordered]
    parts.append((DIGEST, last["dtype"], last["shape"], last["data_offsets"]))
    return ModelFile(header, Arrays(_entries(parts, payload, digests), place), digest.hex())


def _entries(
    parts: list[tuple[str, str, Any, Any]], payload: memoryview, digests: Mapping[str, str]
) -> dict[str, _Entry]:
    """Return the arrays, which must follow each other and fill the payload."""
    entries: dict[str, _Entry] = {}
    end = 0
    for name, kind, shape, (begin, stop) in parts:
        dtype = np.dtype(_DTYPES[kind])
        if any(type(size) is not int or size < 0 for size in shape):
            raise _LayoutError(f"array {name!r} has no shape")
        size = math.prod(shape) * dtype.itemsize
        if name in entries or [begin, stop] != [end, end + size] or stop > len(payload):
            raise _LayoutError(f"array {name!r} occurs twice or is not where its entry says")
        if begin % ALIGNMENT and not name.startswith("padding/"):
            raise _LayoutError(f"array {name!r} does not begin at a multiple of {ALIGNMENT} bytes")
        octets = payload[begin:stop]
        digest = None if name == DIGEST else str(digests[name])
        entries[name] = _Entry(name, np.frombuffer(octets, dtype).reshape(shape), octets, digest)
        end = stop
    if end != len(payload):
        raise _LayoutError("bytes that belong to no array")
    return entries


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
