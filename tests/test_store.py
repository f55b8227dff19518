"""D6: a model file is whole or refused, with one kind of error, and holds no executable content."""

import json
import math
import os
import re
import tracemalloc

import numpy as np
import pytest

from hushrec.algorithms import ESTIMATORS, Billboard, PrivateALS
from hushrec.data import realistic
from hushrec.errors import InputError, ModelFileError
from hushrec.privacy import Accountant, Budget

RATINGS = realistic(80, 30, 900, seed=0)


def model() -> Billboard:
    return PrivateALS(rank=2).fit(RATINGS, Accountant(Budget(2.0, 1e-6)))


def test_round_trip(tmp_path) -> None:
    saved = model()
    path = tmp_path / "model.hush"
    saved.save(path)
    loaded = Billboard.load(path)
    assert loaded.estimator == saved.estimator
    assert loaded.domain == saved.domain
    assert loaded.privacy == saved.privacy
    assert loaded.privacy.text() == saved.privacy.text()
    for name, array in saved.arrays.items():
        assert loaded.arrays[name].dtype == array.dtype
        assert loaded.arrays[name].tobytes() == array.tobytes()
    history = {RATINGS.domain.items[0]: 4.0, RATINGS.domain.items[3]: 1.0}
    assert loaded.recommend(history, 5) == saved.recommend(history, 5)
    assert os.listdir(tmp_path) == ["model.hush"]


@pytest.mark.parametrize("name", ["als", "item-bias", "global-mean", "popular", "private-als", "dpals"])
def test_every_estimator_can_be_saved_also_without_privacy(name: str, tmp_path) -> None:
    trained = ESTIMATORS[name]().fit(RATINGS, Accountant(Budget(math.inf, 1e-6)))
    trained.save(tmp_path / "m")
    assert "NOT PRIVATE" in Billboard.load(tmp_path / "m").privacy.text()


def check_damaged_files(tmp_path, mutants: int, record) -> None:
    path = tmp_path / "model.hush"
    model().save(path)
    good = path.read_bytes()
    rng, largest = np.random.default_rng(1), 0.0
    for number in range(mutants):
        bad = bytearray(good)
        where = int(rng.integers(len(bad)))
        kind = number % 4
        if kind == 0:
            bad[where] ^= int(rng.integers(1, 256))
        elif kind == 1:
            del bad[where:]
        elif kind == 2:
            del bad[where : where + int(rng.integers(1, 100))]
        else:
            bad[where:where] = rng.bytes(int(rng.integers(1, 100)))
        path.write_bytes(bytes(bad))
        tracemalloc.start()
        with pytest.raises(ModelFileError) as error:
            Billboard.load(path)
        largest = max(largest, tracemalloc.get_traced_memory()[1] / len(good))
        tracemalloc.stop()
        assert "\n" not in str(error.value)
    assert largest < 4
    record("damaged files", mutants)
    record("largest memory over file", largest)


def test_every_damaged_file_is_refused(tmp_path, record_property) -> None:
    """Files with one changed, missing or added piece; none loads, none raises anything else."""
    check_damaged_files(tmp_path, 2000, record_property)


@pytest.mark.full
def test_every_damaged_file_is_refused_at_length(tmp_path, record_property) -> None:
    check_damaged_files(tmp_path, 10_000, record_property)


def check_hostile_files(tmp_path, mutants: int, record) -> None:
    path = tmp_path / "model.hush"
    model().save(path)
    good = path.read_bytes()
    start = len(b"HUSHREC1") + 8
    length = int.from_bytes(good[start - 8 : start], "little")
    header, payload = good[start : start + length], good[start + length : -32]
    rng, largest, loaded = np.random.default_rng(2), 0.0, 0
    numbers = [match.span() for match in re.finditer(rb"\d+", header)]
    for number in range(mutants):
        bad = bytearray(header)
        if number % 2:
            begin, end = numbers[int(rng.integers(len(numbers)))]
            bad[begin:end] = HOSTILE_NUMBERS[int(rng.integers(len(HOSTILE_NUMBERS)))]
        else:
            bad[int(rng.integers(len(bad)))] = int(rng.integers(32, 127))
        content = signed(bytes(bad), payload)
        path.write_bytes(content)
        tracemalloc.start()
        try:
            Billboard.load(path)
            loaded += 1
        except ModelFileError as error:
            assert "\n" not in str(error)
        largest = max(largest, tracemalloc.get_traced_memory()[1] - 4 * len(content))
        tracemalloc.stop()
    record("forged files", mutants)
    record("forged and loaded", loaded)
    assert largest < 1 << 16  # what the objects of a small header take


HOSTILE_NUMBERS = [*b"-1 0 1e999 NaN 1.5 null [] {} true 1000000000000".split(), b"9" * 400]


def test_forged_files_are_refused_or_load(tmp_path, record_property) -> None:
    """Headers changed and signed anew: one kind of error, and no memory that only the header speaks of."""
    check_hostile_files(tmp_path, 300, record_property)


@pytest.mark.full
def test_forged_files_are_refused_or_load_at_length(tmp_path, record_property) -> None:
    check_hostile_files(tmp_path, 10_000, record_property)


def signed(header: bytes, payload: bytes = b"") -> bytes:
    import hashlib

    body = b"HUSHREC1" + len(header).to_bytes(8, "little") + header + payload
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"HUSHREC1",
        b"PK\x03\x04 something else",
        signed(b""),
        signed(b"[]"),
        signed(b"{}"),
        signed(b'{"version": 1}'),
        signed(b'{"version": 2}'),
        signed(b"[" * 100_000),
        b"HUSHREC1" + (2**62).to_bytes(8, "little") + b"{}" + b"\0" * 32,
        signed(
            b'{"version": 1, "arrays": [{"name": "x", "dtype": "float64", "shape": [1000000000000],'
            b' "offset": 0, "bytes": 8000000000000}]}'
        ),
        signed(
            b'{"version": 1, "arrays": [{"name": "x", "dtype": "float64", "shape": [-1],'
            b' "offset": 0, "bytes": -8}]}'
        ),
    ],
)
def test_other_files_are_refused(content: bytes, tmp_path) -> None:
    path = tmp_path / "model.hush"
    path.write_bytes(content)
    with pytest.raises(ModelFileError):
        Billboard.load(path)


def forged(change, path, added: bytes = b"") -> None:
    """A model file of 60 kB with another header, and a digest that fits."""
    PrivateALS(rank=200).fit(RATINGS, Accountant(Budget(2.0, 1e-6))).save(path)
    good = path.read_bytes()
    length = int.from_bytes(good[8:16], "little")
    header = json.loads(good[16 : 16 + length])
    change(header)
    path.write_bytes(signed(json.dumps(header).encode(), good[16 + length : -32] + added))


def sharing(header: dict) -> None:
    """400 more arrays over the bytes of the first two."""
    size = sum(entry["bytes"] for entry in header["arrays"])
    entry = {"dtype": "uint8", "shape": [size], "offset": 0, "bytes": size}
    header["arrays"] += [{"name": str(number), **entry} for number in range(400)]


def there_and_back(header: dict) -> None:
    """Arrays of negative size, each of which takes back the bytes of the one before."""
    size = sum(entry["bytes"] for entry in header["arrays"])
    for number in range(400):
        taken, at = (-size, size) if number % 2 == 0 else (size, 0)
        entry = {"name": str(number), "dtype": "uint8", "shape": [taken], "offset": at, "bytes": taken}
        header["arrays"].append(entry)


@pytest.mark.parametrize("change", [sharing, there_and_back])
def test_memory_is_in_proportion_to_the_file(change, tmp_path) -> None:
    path = tmp_path / "model.hush"
    forged(change, path)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            Billboard.load(path)
        assert tracemalloc.get_traced_memory()[1] < 10 * path.stat().st_size
    finally:
        tracemalloc.stop()


def rename(header: dict) -> None:
    header["arrays"][1]["name"] = header["arrays"][0]["name"]


def exchange(header: dict) -> None:
    header["arrays"][:2] = header["arrays"][1::-1]


def widen(header: dict) -> None:
    next(entry for entry in header["arrays"] if entry["name"] == "item_bias")["shape"] = [15, 2]


def drop_last(header: dict) -> None:
    header["arrays"].pop()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rename, "occurs twice"),
        (exchange, "not where"),
        (widen, "fit the catalogue"),
        (drop_last, "belong to no array"),
        (lambda header: header.update(arrays=[]), "belong to no array"),
        (lambda header: header["domain"].update(items=header["domain"]["items"][:20]), "fit the catalogue"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, words, tmp_path) -> None:
    path = tmp_path / "model.hush"
    forged(lambda header: None, path)
    Billboard.load(path)
    forged(change, path)
    with pytest.raises(ModelFileError, match=words) as error:
        Billboard.load(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["center", "item_bias", "item_factors"])
def test_a_file_without_a_needed_array_is_refused(name: str, tmp_path) -> None:
    def hide(header: dict) -> None:
        next(entry for entry in header["arrays"] if entry["name"] == name)["name"] = "other"

    forged(hide, tmp_path / "model.hush")
    with pytest.raises(ModelFileError, match=name):
        Billboard.load(tmp_path / "model.hush")


def test_bytes_behind_the_arrays_are_refused(tmp_path) -> None:
    path = tmp_path / "model.hush"
    forged(lambda header: None, path, added=b"\0")
    with pytest.raises(ModelFileError, match="belong to no array"):
        Billboard.load(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path) -> None:
    for path in (tmp_path / "none.hush", tmp_path):
        with pytest.raises(ModelFileError):
            Billboard.load(path)


def test_nothing_half_written_is_left(tmp_path, monkeypatch) -> None:
    trained = model()
    with pytest.raises(InputError, match="folder"):
        trained.save(tmp_path / "no" / "model.hush")
    path = tmp_path / "model.hush"
    path.write_bytes(b"old")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match="No space left"):
        trained.save(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.hush"]
