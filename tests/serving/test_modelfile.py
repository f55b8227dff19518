"""D6: a model file is whole or refused, with one kind of error, and holds no executable content.

Files are read and written here after docs/reference/format.md, without the library.
"""

import hashlib
import json
import math
import os
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import hushrec
from hushrec.data import realistic
from hushrec.errors import InputError, ModelFileError
from hushrec.models import ALS, EASE, Model, PrivateALS
from hushrec.papers.frank_wolfe import FrankWolfe
from hushrec.privacy import Accountant, Budget, Season, SeasonAccountant
from hushrec.privacy.testing import SeededNoise
from hushrec.serving.item_rows import ItemRows
from hushrec.serving.modelfile import encode, read
from hushrec.testing import labelled_users, ratings_of
from tests.models.cases import CASES
from tests.power_cut import Disk

RATINGS = realistic(80, 30, 900, seed=0)


def model(**settings) -> Model:
    return PrivateALS.of(**{"rank": 2} | settings).fit(RATINGS, Accountant(Budget(2.0, 1e-6)))


def one_sentence(error: Exception) -> bool:
    """Return whether a message is one short line without an object's address."""
    return "\n" not in str(error) and "<memory at" not in str(error) and len(str(error)) < 600


@pytest.mark.parametrize("mutants", [2000, pytest.param(10_000, marks=pytest.mark.full)])
def test_every_damaged_file_is_refused(mutants: int, tmp_path, record_property) -> None:
    """Files with one changed, missing or added piece; none loads, none raises anything else."""
    path = tmp_path / "model.hush"
    model(rank=200, iterations=1).save(path)
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
            hushrec.load(path)
        largest = max(largest, tracemalloc.get_traced_memory()[1] / len(good))
        tracemalloc.stop()
        assert one_sentence(error.value)
    assert largest < 4
    record_property("damaged files", mutants)
    record_property("largest memory over file", largest)


def taken_apart(content: bytes) -> tuple[bytes, bytes]:
    """The header, without its padding, and the bytes of all arrays but the digest."""
    length = int.from_bytes(content[:8], "little")
    return content[8 : 8 + length].rstrip(), content[8 + length : -32]


def signed(header: bytes, payload: bytes = b"") -> bytes:
    """A file of version 2 with the right digest."""
    header += b" " * (-(8 + len(header)) % 64)
    head = len(header).to_bytes(8, "little") + header
    return head + payload + hashlib.sha256(head).digest()


MARK = b'{"__metadata__":{"format":"hushrec",'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04 something else",
        safetensors.numpy.save({"x": np.zeros(3)}),
        safetensors.numpy.save({"x": np.zeros(3)}, {"format": "pt"}),
        signed(b""),
        signed(b"{}"),
        signed(MARK),
        signed(MARK + b'"version":"1"}}'),
        signed(MARK + b'"version":"2"}}'),
        signed(MARK + b"[" * 100_000),
        (2**62).to_bytes(8, "little") + MARK + b"\0" * 32,
    ],
)
def test_other_files_are_refused(content: bytes, tmp_path) -> None:
    path = tmp_path / "model.hush"
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as error:
        hushrec.load(path)
    assert one_sentence(error.value)


def forged(change, path, added: bytes = b"") -> None:
    """A model file of 30 kB with another header, and digests that fit."""
    model(rank=200, iterations=1).save(path)
    text, payload = taken_apart(path.read_bytes())
    header = json.loads(text)
    stored = {key: json.loads(text) for key, text in header["__metadata__"].items() if key != "format"}
    del header["__metadata__"]
    change(header, stored)
    stored["version"] = str(stored["version"])
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in stored.items()}
    whole = {"__metadata__": {"format": "hushrec"} | texts} | header
    path.write_bytes(signed(json.dumps(whole, separators=(",", ":")).encode(), payload + added))


def nothing(arrays: dict, stored: dict) -> None:
    """The unchanged file."""


def sharing(arrays: dict, stored: dict) -> None:
    """400 more arrays over the bytes of the first two."""
    size = arrays["digest"]["data_offsets"][0]
    for number in range(400):
        arrays[str(number)] = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}


def test_memory_is_in_proportion_to_the_file(tmp_path) -> None:
    path = tmp_path / "model.hush"
    forged(sharing, path)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            hushrec.load(path)
        assert tracemalloc.get_traced_memory()[1] < 10 * path.stat().st_size
    finally:
        tracemalloc.stop()


NO_SIZES = (-1, 1.0, True, "1", None)


def exchange(arrays: dict, stored: dict) -> None:
    bias, factors = arrays["serve/item_bias"], arrays["serve/item_factors"]
    bias["data_offsets"], factors["data_offsets"] = factors["data_offsets"], bias["data_offsets"]


def widen(arrays: dict, stored: dict) -> None:
    arrays["serve/item_bias"]["shape"] = [15, 2]


def drop_last(arrays: dict, stored: dict) -> None:
    arrays.pop(max(arrays, key=lambda name: arrays[name]["data_offsets"]))


def drop_all(arrays: dict, stored: dict) -> None:
    digest = arrays["digest"]
    arrays.clear()
    arrays["digest"] = digest


def digest_elsewhere(arrays: dict, stored: dict) -> None:
    digest = arrays["digest"]["data_offsets"]
    digest[:] = [0, 32]


def shift(arrays: dict, stored: dict) -> None:
    """The padding of the first array is a part of it, and of the second."""
    center = arrays["serve/center"]
    padding = next(entry for name, entry in arrays.items() if name.startswith("padding/"))
    assert center["data_offsets"] == [0, 8] and padding["data_offsets"] == [8, 64]
    padding["shape"], padding["data_offsets"] = [0], [8, 8]
    arrays["more"] = {"dtype": "U8", "shape": [56], "data_offsets": [8, 64]}
    stored["digests"]["more"] = hashlib.sha256(bytes(56)).hexdigest()


def other_digest(arrays: dict, stored: dict) -> None:
    stored["digests"]["serve/item_factors"] = "0" * 64


def drop_items(arrays: dict, stored: dict) -> None:
    arrays["catalogue/kinds"]["shape"] = [29]
    arrays["catalogue/kinds"]["data_offsets"][1] -= 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (exchange, "wrong digest|not where"),
        (widen, "fit the catalogue"),
        (drop_last, "digest"),
        (drop_all, "not where"),
        (digest_elsewhere, "not where"),
        (drop_items, "not where"),
        (shift, "multiple of 64"),
        (other_digest, "wrong digest of array 'serve/item_factors'"),
        (lambda arrays, stored: stored["digests"].pop("serve/center"), "serve/center"),
        (lambda arrays, stored: stored["sections"].clear(), "serve"),
        (lambda arrays, stored: stored["sections"]["serve"].update(scores="likes"), "scores"),
        (lambda arrays, stored: stored["sections"]["serve"].update(model="magic"), "magic"),
        (lambda arrays, stored: stored["sections"]["serve"]["settings"].update(rank=-1), "rank"),
        (lambda arrays, stored: stored.update(version=2), "version 2"),
        *(
            (lambda arrays, stored, n=n: arrays["serve/center"].update(shape=[n]), "no shape")
            for n in NO_SIZES
        ),
        (lambda arrays, stored: stored["domain"].update(rating_range=[5, 1]), "range"),
    ],
)
def test_files_that_do_not_fit_together_are_refused(change, words, tmp_path) -> None:
    path = tmp_path / "model.hush"
    forged(nothing, path)
    hushrec.load(path)
    forged(change, path)
    with pytest.raises(ModelFileError, match=words) as error:
        hushrec.load(path)
    assert one_sentence(error.value)


@pytest.mark.parametrize("places", [[0, 30], [-1, 3], [3, 3], [5, 2], [3, 2**31 - 1]])
def test_rows_of_items_outside_the_catalogue_are_refused(places) -> None:
    stored = ItemRows(np.ones((2, 2), np.float32), np.array(places, np.int32), 30)
    for name in ("item_factors", "learned_items"):
        made = model() if name == "item_factors" else EASE().fit(RATINGS, Accountant(Budget(math.inf, 1e-6)))
        arrays = made.arrays | {name: stored if name == "item_factors" else np.array(places, np.int32)}
        if name == "learned_items":
            arrays["item_factors"] = np.ones((2, 2), np.float32)
        with pytest.raises(ModelFileError, match="fit the catalogue"):
            Model.from_bytes(replace(made, arrays=arrays).to_bytes())


@pytest.mark.parametrize(
    "arrays",
    [
        {"supported": np.full(30, 2, np.uint8)},
        {"new": np.full(30, 2, np.uint8)},
        {"directions": np.int64(-1)},
        *(
            {
                "neighbours": np.full((30, 1), place, np.int32),
                "similarity": np.ones((30, 1), np.float32),
                "word_weight": np.float64(1),
            }
            for place in (-1, 30)
        ),
    ],
    ids=["supported", "new", "directions", "before the first item", "after the last item"],
)
def test_an_integer_next_to_its_range_is_refused(arrays: dict) -> None:
    made = model()
    with pytest.raises(ModelFileError, match="no training releases|fit the catalogue"):
        Model.from_bytes(replace(made, arrays={**made.arrays, **arrays}).to_bytes())
    fitting = {name: np.minimum(np.maximum(array, 0), 1) for name, array in arrays.items()}
    Model.from_bytes(replace(made, arrays={**made.arrays, **fitting}).to_bytes())


def test_a_name_that_occurs_twice_is_refused(tmp_path) -> None:
    path = tmp_path / "model.hush"
    model().save(path)
    header, payload = taken_apart(path.read_bytes())
    path.write_bytes(signed(header.replace(b'"serve/item_bias":', b'"serve/center":', 1), payload))
    with pytest.raises(ModelFileError, match="a name occurs twice"):
        hushrec.load(path)


# ---------------------------------------------------------------------- the layout


@pytest.mark.parametrize("iterations", [0, 1])  # 0 makes arrays without an element
def test_a_foreign_safetensors_reader_loads_it(iterations: int, tmp_path) -> None:
    """Every array under its name, and the header as JSON; arrays begin at multiples of 64 bytes."""
    saved = model(iterations=iterations)
    saved.save(tmp_path / "model.hush")
    found = safetensors.numpy.load_file(tmp_path / "model.hush")
    for name, array in saved.arrays.items():
        assert found[f"serve/{name}"].tobytes() == array.tobytes()
        assert found[f"serve/{name}"].shape == array.shape
    offsets, text = found["catalogue/offsets"], found["catalogue/text"].tobytes()
    items = [text[begin:end].decode() for begin, end in zip(offsets, offsets[1:])]
    assert items == [str(item) for item in RATINGS.domain.items]
    with safetensors.safe_open(tmp_path / "model.hush", "np") as file:
        stored = file.metadata()
    assert (stored["format"], stored["version"]) == ("hushrec", "1")
    serve = json.loads(stored["sections"])["serve"]
    assert serve["model"] == "private-als" and serve["scores"] == "ratings"
    assert serve["settings"]["rank"] == 2
    assert json.loads(stored["privacy"])["epsilon"] == 2.0
    content = (tmp_path / "model.hush").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, digests = json.loads(content[8 : 8 + length]), json.loads(stored["digests"])
    del header["__metadata__"]
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        assert begin % 64 == 0 or name.startswith("padding/")
        if name == "digest":
            assert content[begin:end] == hashlib.sha256(content[: 8 + length]).digest()
        else:
            assert digests[name] == hashlib.sha256(content[begin:end]).hexdigest()
    assert set(digests) | {"digest"} == set(header) and len(content) == end


def test_unknown_sections_are_ignored(tmp_path) -> None:
    """A file with sections of a later version is read for what this one knows."""

    def add(arrays: dict, stored: dict) -> None:
        stored["sections"]["dreams"] = {"of": "later"}
        stored["weather"] = {"fine": True}
        begin = arrays["digest"]["data_offsets"][0]
        arrays["digest"]["data_offsets"] = [begin + 64, begin + 96]
        arrays["dreams/x"] = {"dtype": "U8", "shape": [64], "data_offsets": [begin, begin + 64]}
        stored["digests"]["dreams/x"] = hashlib.sha256(bytes(64)).hexdigest()

    path = tmp_path / "model.hush"
    forged(add, path, added=bytes(64))
    assert set(hushrec.load(path).arrays) >= {"center", "item_bias", "item_factors"}
    assert not any("dreams" in name for name in hushrec.load(path).arrays)


def test_arrays_of_a_file_are_read_only(tmp_path) -> None:
    model().save(tmp_path / "model.hush")
    loaded = hushrec.load(tmp_path / "model.hush")
    with pytest.raises(ValueError):
        loaded.item_factors[0] = 1.0
    with pytest.raises(TypeError):
        loaded.arrays["item_bias"] = np.zeros(3)


@pytest.mark.parametrize("name", ["center", "item_bias", "item_factors", "regularization"])
def test_numbers_that_are_not_finite_are_refused_in_every_kind_of_file(name: str, tmp_path) -> None:
    good = model()
    array = np.array(good.arrays[name])
    array.reshape(-1)[-1] = math.nan
    bad = replace(good, arrays={**good.arrays, name: array})
    files = [bad.to_bytes()]
    if name != "item_factors":
        files.append(bad.to_bytes(int8=True))
    else:
        stored = read(good.to_bytes(int8=True))
        arrays = {
            key: stored.arrays[key] for key in stored.arrays if not key.startswith(("padding", "digest"))
        }
        scales = np.array(arrays["serve/item_factors_scale"])
        for scale in (math.inf, -1.0, 3e38):
            scales[-1] = scale
            files.append(b"".join(encode(stored.header, arrays | {"serve/item_factors_scale": scales})))
    for content in files:
        with pytest.raises(ModelFileError, match=f"holds what no training releases .array 'serve/{name}"):
            Model.from_bytes(content)


TRAINED = {case.name: (case.estimator, case.budget()) for case in CASES}
TRAINED |= {
    estimator.name: (estimator, Budget(math.inf, 1e-6))
    for estimator in (ALS(rank=2), EASE(), FrankWolfe(nuclear_norm=30.0))
}


def odd(array: np.ndarray) -> list[np.ndarray]:
    """Arrays of other shapes and another type, and positions past the catalogue."""
    shapes = (
        [array[..., None]] if not array.ndim else [array[:0], array[:-1], array[..., :0], array[..., None]]
    )
    moved = [array + np.int64(1 << 40), array.astype(np.int64) - 8] * (array.dtype.kind in "iu")
    return [array.astype(np.int64 if array.dtype.kind == "f" else np.float32), *shapes, *moved]


def served(model: Model) -> None:
    """Everything that a model is asked for; refusals in words are fine."""
    first, second = model.domain.items[:2]
    history = {first: model.domain.high}
    calls = [lambda: model.recommend(history, 3), lambda: model.predict(history, [second])]
    calls += [lambda: model.explain(history, second), lambda: model.similar_items(first)]
    if model.privacy.week is not None:
        rows = ratings_of(labelled_users(np.random.default_rng(1)))
        accountant = SeasonAccountant.following(model.privacy, noise=SeededNoise(1))
        calls.append(lambda: model.continue_training(rows, accountant))
    for call in calls:
        with suppress(InputError), np.errstate(all="ignore"):
            call()


@pytest.mark.parametrize("name", TRAINED)
def test_a_missing_or_odd_array_is_refused_on_reading_or_was_not_needed(name: str, record_property) -> None:
    estimator, budget = TRAINED[name]
    rows, noise = ratings_of(labelled_users(np.random.default_rng(0), 8)), SeededNoise(0)
    if estimator.supports_seasons:
        accountant = SeasonAccountant(Season(budget), noise=noise)
    else:
        accountant = Accountant(budget, noise=noise if budget.private else None)
    trained = estimator.fit(rows, accountant)
    file = read(trained.to_bytes())
    held = {name: array for name, array in file.arrays.items() if not name.startswith(("padding/", "digest"))}
    refused = 0
    for changed, array in held.items():
        others = {name: other for name, other in held.items() if name != changed}
        for bad in [others, *(others | {changed: other} for other in odd(array))]:
            try:
                model = Model.from_bytes(b"".join(encode(file.header, bad)))
            except ModelFileError as error:
                assert one_sentence(error)
                refused += 1
                continue
            served(model)
    record_property("refused", refused)
    assert refused > 5 * len(trained.arrays)


# ---------------------------------------------------------------------- files


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

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        trained.save(path)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["model.hush"]


def test_a_power_cut_leaves_the_old_model_or_the_new_one(tmp_path, monkeypatch) -> None:
    """The octets are on the disk before they have the name, and the name before anything else is done."""
    disk, path = Disk(monkeypatch), tmp_path / "model.hush"
    path.write_bytes(b"old")
    replace = Path.replace

    def named(source: Path, target: Path) -> Path:
        assert disk.on_disk(source)
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", named)
    model().save(path)
    assert disk.events == [("named", "model.hush"), ("safe", "model.hush")]
    assert os.name != "posix" or path.stat().st_mode & 0o077 == 0
    assert os.listdir(tmp_path) == ["model.hush"]
