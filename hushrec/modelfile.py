"""Billboard <-> file: arrays plus JSON under one digest, no pickle (the layout is in docs/format.md).

A model file is ``magic (8 bytes) | header length (8 bytes, little-endian) | header (JSON, UTF-8) | arrays |
SHA-256 of everything before (32 bytes)``. Reading checks the digest before it looks at anything else, so a
damaged file is refused, never half understood. Anyone can compute a digest, so what the header says of the
arrays is checked too: they share no byte, fill the file and fit the catalogue. The digest is of released
values: it tells nothing about the ratings.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from hushrec.billboard import Billboard
from hushrec.data import Domain
from hushrec.errors import InputError, ModelFileError
from hushrec.privacy import PrivacyStatement
from hushrec.registry import ESTIMATORS

MAGIC = b"HUSHREC1"
_DIGEST_BYTES = 32
_DTYPES = {"float32": "<f4", "float64": "<f8", "int64": "<i8", "int32": "<i4", "uint8": "|u1"}


def save(billboard: Billboard, path: str | Path) -> None:
    """Write a model file atomically: the path holds the whole new file or what it held before.

    Parameters
    ----------
    billboard : Billboard
        The model.
    path : str or Path
        Where; the folder must exist.

    Raises
    ------
    InputError
        If the folder does not exist or cannot be written to.
    """
    write_atomically(Path(path), to_bytes(billboard))


def to_bytes(billboard: Billboard) -> list[bytes]:
    """The content of a model file, in parts."""
    arrays, payload, offset = [], [], 0
    for name, value in billboard.arrays.items():
        raw = np.ascontiguousarray(value).astype(_DTYPES[value.dtype.name], copy=False).tobytes()
        arrays.append(
            {
                "name": name,
                "dtype": value.dtype.name,
                "shape": list(value.shape),
                "offset": offset,
                "bytes": len(raw),
            }
        )
        payload.append(raw)
        offset += len(raw)
    header = json.dumps(
        {
            "format": "hushrec billboard",
            "version": 1,
            "model": billboard.estimator.name,
            "hyper_parameters": billboard.estimator.hyper_parameters(),
            "domain": billboard.domain.to_dict(),
            "privacy": billboard.privacy.to_dict(),
            "arrays": arrays,
        },
        default=_plain,
        allow_nan=False,
    ).encode()
    parts = [MAGIC, len(header).to_bytes(8, "little"), header, *payload]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return [*parts, digest.digest()]


def load(path: str | Path) -> Billboard:
    """Read a model file.

    Parameters
    ----------
    path : str or Path
        A file that :func:`save` wrote.

    Returns
    -------
    Billboard
        Equal to the one that was saved.

    Raises
    ------
    ModelFileError
        If the file is missing, is no model file, is damaged, or was written by a newer version.
    """
    source = Path(path)
    try:
        raw = source.read_bytes()
    except OSError as error:
        raise ModelFileError(
            f"Model file {str(source)!r} cannot be read ({error.strerror}); check the path."
        ) from None
    if raw[: len(MAGIC)] != MAGIC:
        raise ModelFileError(
            f"{str(source)!r} is not a hushrec model file; pass one that `hushrec train` wrote."
        )
    body = memoryview(raw)[:-_DIGEST_BYTES]
    if len(raw) < len(MAGIC) + 8 + _DIGEST_BYTES or hashlib.sha256(body).digest() != raw[-_DIGEST_BYTES:]:
        raise ModelFileError(
            f"Model file {str(source)!r} is damaged or cut short (wrong digest); copy or train it again."
        )
    try:
        return _decode(body)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ModelFileError(
            f"Model file {str(source)!r} was written by another version of hushrec ({error});"
            " read it with the version that wrote it."
        ) from None


def write_atomically(target: Path, parts: list[bytes]) -> None:
    """Write bytes to a temporary file beside ``target``, sync, and rename over it."""
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    except OSError as error:
        raise InputError(
            f"Cannot write to {str(target.parent)!r} ({error.strerror}); pass a path in a folder that exists"
            " and is writable."
        ) from None
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise InputError(
            f"Cannot write {str(target)!r} ({error.strerror}); free space or pass another path."
        ) from None
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def _decode(body: memoryview) -> Billboard:
    start = len(MAGIC) + 8
    length = int.from_bytes(body[len(MAGIC) : start], "little")
    header = json.loads(bytes(body[start : start + length]))
    if header["version"] != 1:
        raise ValueError(f"format version {header['version']}")
    domain = Domain.from_dict(header["domain"])
    arrays = _arrays(header["arrays"], body[start + length :])
    shapes = [arrays["center"].shape, arrays["item_bias"].shape, arrays["item_factors"].shape[:-1]]
    if shapes != [(), (domain.n_items,), (domain.n_items,)]:
        raise ValueError("the arrays do not fit the catalogue")
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in header["hyper_parameters"].items()}
    return Billboard(
        estimator=ESTIMATORS[header["model"]](**settings),
        domain=domain,
        arrays=arrays,
        privacy=PrivacyStatement.from_dict(header["privacy"]),
    )


def _arrays(entries: list[dict[str, Any]], payload: memoryview) -> dict[str, Any]:
    """Arrays that lie one after the other and fill the payload, so that no byte of it is read twice."""
    arrays: dict[str, Any] = {}
    end = 0
    for entry in entries:
        shape = tuple(int(size) for size in entry["shape"])
        array: Any = np.ndarray(shape, _DTYPES[entry["dtype"]], buffer=payload, offset=end)
        if entry["name"] in arrays or entry["offset"] != end or entry["bytes"] != array.nbytes:
            raise ValueError(f"array {entry['name']!r} occurs twice or is not where its entry says")
        arrays[entry["name"]] = array
        end += array.nbytes
    if end != len(payload):
        raise ValueError("bytes that belong to no array")
    return arrays


def _plain(value: Any) -> Any:
    """NumPy scalars as Python numbers."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored in a model file")
