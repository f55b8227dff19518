"""Damaged and forged files against a reader of docs/reference/format.md that shares nothing with the library.

A file that loads must be valid by that page: no wrong load, and no memory out of
proportion to the file.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tracemalloc

import numpy as np
import pytest

import hushrec
from hushrec.errors import HushrecError, ModelFileError
from tests.serving.test_modelfile import MARK, model, signed, taken_apart

TYPES = {"U8": "<u1", "I8": "<i1", "U32": "<u4", "I32": "<i4", "U64": "<u8", "I64": "<i8"}
HOSTILE_NUMBERS = [*b"-1 0 1e999 NaN 1.5 null [] {} true 1000000000000".split(), b"9" * 400]
TYPES |= {"F32": "<f4", "F64": "<f8"}


def once(pairs):
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def arrays_of(content: bytes) -> dict[str, np.ndarray]:
    """Every array of a file, by docs/reference/format.md; AssertionError or similar for an invalid file."""
    length = int.from_bytes(content[:8], "little")
    head, payload = content[: 8 + length], content[8 + length :]
    assert len(head) == 8 + length and len(head) % 64 == 0 and head[8:].startswith(MARK)
    assert payload[-32:] == hashlib.sha256(head).digest()
    entries = json.loads(head[8:], object_pairs_hook=once)
    stored = entries.pop("__metadata__")
    assert stored["version"] == "1"
    digests, found, end = json.loads(stored["digests"]), {}, 0
    for name, entry in sorted(
        entries.items(), key=lambda item: (item[1]["data_offsets"], item[0] == "digest")
    ):
        (begin, stop), dtype = entry["data_offsets"], np.dtype(TYPES[entry["dtype"]])
        assert all(type(size) is int and size >= 0 for size in entry["shape"])
        assert begin == end and stop - begin == math.prod(entry["shape"]) * dtype.itemsize
        assert begin % 64 == 0 or name.startswith("padding/")
        octets, end = payload[begin:stop], stop
        if name != "digest":
            assert hashlib.sha256(octets).hexdigest() == digests[name]
        found[name] = np.frombuffer(octets, dtype).reshape(entry["shape"])
    assert name == "digest" and end == len(payload)
    n_items = len(found["catalogue/offsets"]) - 1
    for section in json.loads(stored["sections"]):
        if section not in ("serve", "lists"):
            continue
        if f"{section}/item_factors_int8" in found:
            assert f"{section}/item_factors" not in found
            octets, scale = (found[f"{section}/item_factors_{kind}"] for kind in ("int8", "scale"))
            assert octets.dtype == np.int8 and scale.dtype == np.float32
            with np.errstate(all="ignore"):
                found[f"{section}/item_factors"] = octets.astype(np.float32) * scale[:, None]
        assert found[f"{section}/center"].shape == () and found[f"{section}/item_bias"].shape == (n_items,)
        assert found[f"{section}/item_factors"].shape[:-1] == (n_items,)
    assert "serve" in json.loads(stored["sections"])
    return found


def forgeries(content: bytes, rng: np.random.Generator, count: int):
    """Files that differ in a few bytes, most with a recomputed digest of the header."""
    header, payload = taken_apart(content)
    numbers = [match.span() for match in re.finditer(rb"(?<![0-9a-f])\d+(?![0-9a-f])", header)]
    kinds = [match.span() for match in re.finditer(rb'(?<="dtype":")\w+', header)]
    names = [match.span() for match in re.finditer(rb'(?<=")(serve|catalogue)/\w+(?=")', header)]
    for number in range(count):
        bad, rows, way = bytearray(header), bytearray(payload), number % 6
        if way == 0:  # damage
            whole = bytearray(content)
            whole[int(rng.integers(len(whole)))] ^= int(rng.integers(1, 256))
            yield bytes(whole)
            continue
        if way == 1:
            begin, end = numbers[int(rng.integers(len(numbers)))]
            bad[begin:end] = HOSTILE_NUMBERS[int(rng.integers(len(HOSTILE_NUMBERS)))]
        elif way == 2:
            begin, end = kinds[int(rng.integers(len(kinds)))]
            bad[begin:end] = list(TYPES)[int(rng.integers(len(TYPES)))].encode()
        elif way == 3:
            (begin, end), (other, last) = (names[int(rng.integers(len(names)))] for _ in range(2))
            bad[begin:end] = bytes(bad[other:last])
        elif way == 4:
            bad[int(rng.integers(len(bad)))] = int(rng.integers(32, 127))
        else:  # an array's bytes, with its digest made anew
            entries = json.loads(header)
            name = sorted(json.loads(entries["__metadata__"]["digests"]))[number % 7]
            begin, end = entries[name]["data_offsets"]
            before = hashlib.sha256(rows[begin:end]).hexdigest().encode()
            rows[int(rng.integers(begin, end))] = int(rng.integers(256))
            bad = bad.replace(before, hashlib.sha256(rows[begin:end]).hexdigest().encode())
        yield signed(bytes(bad), bytes(rows))


@pytest.mark.parametrize("count", [120, pytest.param(5000, marks=pytest.mark.full)])
@pytest.mark.parametrize("int8", [False, True])
def test_what_loads_is_a_file_of_the_format(int8: bool, count: int, record_property, tmp_path) -> None:
    trained = model(rank=8, iterations=1)
    content, path = trained.to_bytes(int8=int8), tmp_path / "model.hush"
    arrays_of(content)
    loaded, largest, item = 0, 0, trained.domain.items[0]
    for bad in forgeries(content, np.random.default_rng(int(int8)), count):
        path.write_bytes(bad)
        tracemalloc.start()
        try:
            with np.errstate(all="ignore"):
                found = hushrec.load(path)
                held = {name: np.array(array) for name, array in found.arrays.items()}
        except ModelFileError as error:
            assert "\n" not in str(error)
            continue
        finally:
            largest = max(largest, tracemalloc.get_traced_memory()[1] - 8 * len(bad))
            tracemalloc.stop()
        loaded += 1
        there = arrays_of(bad)
        for name, array in held.items():
            assert array.tobytes() == there[f"serve/{name}"].tobytes()
        try:
            with np.errstate(all="ignore"):
                found.recommend({item: 3.0}, 3)
        except (HushrecError, ValueError, ZeroDivisionError, LookupError):
            pass  # numbers that were forged within a whole file make no list
    record_property("forged", count)
    record_property("loaded, and rightly", loaded)
    assert 0 < loaded < count and largest < 1 << 17  # what the objects of a small header take
