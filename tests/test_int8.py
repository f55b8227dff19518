"""Factors of one byte: what docs/reference/format.md says of them, by nothing of the library, and what they
lose."""

import json
import math

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays_of

import hushrec
from hushrec.algorithms import ESTIMATORS, Billboard
from hushrec.data import realistic
from hushrec.errors import InputError, ModelFileError
from hushrec.int8 import packed, unpacked
from hushrec.privacy import Accountant, Budget
from tests.test_modelfile import RATINGS, forged, model

SMALL = st.floats(-(2.0**100), 2.0**100, width=32)


def fitted(name: str) -> Billboard:
    return ESTIMATORS[name]().fit(RATINGS, Accountant(Budget(math.inf, 1e-6)))


@pytest.mark.parametrize("name", ["private-als", "als", "ease", "private-eigenrec", "item-bias", "both"])
@pytest.mark.parametrize("memory_map", [False, True])
def test_a_foreign_reader_finds_the_factors_that_serve(name: str, memory_map: bool, tmp_path) -> None:
    """Bytes times scales are the model's factors, in every section; all else is stored as without int8."""
    saved, path = fitted(name), tmp_path / "model.hush"
    saved.save(path, int8=True)
    loaded, found = hushrec.load(path, memory_map=memory_map), safetensors.numpy.load_file(path)
    for section, before, after in (("serve", saved, loaded), ("lists", saved.lists, loaded.lists)):
        if before is None:
            continue
        assert f"{section}/item_factors" not in found
        octets, scale = (found[f"{section}/item_factors_{kind}"] for kind in ("int8", "scale"))
        assert (octets.dtype, scale.dtype) == (np.int8, np.float32)
        factors = octets.astype(np.float64) * scale[:, None].astype(np.float64)
        np.testing.assert_array_equal(factors, after.arrays["item_factors"])
        lost = np.abs(factors - before.arrays["item_factors"])
        assert (lost <= 0.5001 * scale[:, None]).all()
        assert np.abs(octets.astype(int)).max(initial=0) <= 127
        assert set(after.arrays) == set(before.arrays) and len(after.arrays) == len(before.arrays)
        for key in set(before.arrays) - {"item_factors"}:
            assert found[f"{section}/{key}"].tobytes() == before.arrays[key].tobytes()
    assert loaded.to_bytes(int8=True) == path.read_bytes()
    assert Billboard.from_bytes(loaded.to_bytes()).to_bytes(int8=True) == path.read_bytes()


@given(arrays_of.arrays(np.float32, st.tuples(st.integers(0, 4), st.integers(0, 4)), elements=SMALL))
def test_products_are_exact_and_packing_is_idempotent(factors) -> None:
    stored = packed(factors)
    octets, scale = stored["item_factors_int8"], stored["item_factors_scale"]
    again = unpacked(stored)
    np.testing.assert_array_equal(again, octets.astype(np.float64) * scale.astype(np.float64)[:, None])
    assert (np.abs(again.astype(np.float64) - factors) <= np.maximum(0.5001 * scale, 2e-36)[:, None]).all()
    for name, array in packed(again).items():
        np.testing.assert_array_equal(array, stored[name])


def test_it_is_a_quarter_of_the_size_and_ranks_nearly_alike(tmp_path) -> None:
    rows = realistic(400, 2000, 20_000, seed=1)
    saved = ESTIMATORS["als"](rank=64, iterations=2).fit(rows, Accountant(Budget(math.inf, 1e-6)))
    saved.save(tmp_path / "whole")
    saved.save(tmp_path / "int8", int8=True)
    factors = saved.item_factors.nbytes
    less = (tmp_path / "whole").stat().st_size - (tmp_path / "int8").stat().st_size
    assert 0.7 * factors < less < 0.75 * factors
    small = hushrec.load(tmp_path / "int8")
    history = dict.fromkeys(rows.domain.items[:20], 4.0)
    whole, found = (np.array(each.predict(history, rows.domain.items)) for each in (saved, small))
    assert np.abs(whole - found).max() < 0.02 * np.ptp(whole)


def test_factors_without_a_scale_are_refused() -> None:
    for value in (np.nan, np.inf, 1e300):
        with pytest.raises(InputError, match="int8"):
            packed(np.array([[value, 1.0]]))


def as_int8(arrays: dict, stored: dict, **changes) -> None:
    """Says of the first bytes of the factors that they are int8, with the bias of the items as scales."""
    entry, begin = arrays.pop("serve/item_factors"), stored["digests"].pop("serve/item_factors")
    arrays["serve/item_factors_int8"] = entry | {"dtype": "I8", "shape": [30, 800]} | changes
    stored["digests"]["serve/item_factors_int8"] = begin


def with_scale(arrays: dict, stored: dict, **changes) -> None:
    as_int8(arrays, stored)
    arrays["serve/item_factors_scale"] = arrays.pop("serve/supported")
    stored["digests"]["serve/item_factors_scale"] = stored["digests"].pop("serve/supported")
    arrays["serve/item_factors_scale"].update(changes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (as_int8, "item_factors_scale"),
        (with_scale, "another type"),
        (lambda arrays, stored: with_scale(arrays, stored, shape=[15, 2]), "item_factors_scale"),
        (lambda arrays, stored: arrays["serve/item_factors"].update(dtype="I32"), "another type"),
        (lambda arrays, stored: arrays["serve/item_bias"].update(dtype="I64"), "another type"),
        (lambda arrays, stored: arrays["serve/center"].update(dtype="U64"), "another type"),
        (lambda arrays, stored: arrays["serve/item_factors"].update(shape=[30, 100, 2]), "fit the catalogue"),
    ],
)
@pytest.mark.parametrize("memory_map", [False, True])
def test_forged_factors_are_refused(change, words: str, memory_map: bool, tmp_path) -> None:
    path = tmp_path / "model.hush"
    forged(lambda arrays, stored: None, path)
    Billboard.load(path)
    forged(change, path)
    with pytest.raises(ModelFileError, match=words) as error:
        Billboard.load(path, memory_map=memory_map)
    assert "\n" not in str(error.value)


def test_both_forms_at_once_are_refused(tmp_path) -> None:
    """Which of them counts would be anybody's guess."""
    from hushrec.modelfile import encode, read

    model().save(tmp_path / "m", int8=True)
    found = read(tmp_path / "m")
    arrays = dict(found.arrays) | {"serve/item_factors": np.zeros((30, 2), np.float32)}
    arrays = {name: array for name, array in arrays.items() if "/" in name and "padding" not in name}
    with pytest.raises(ModelFileError, match="factors of one byte and others"):
        Billboard.from_bytes(b"".join(encode(found.header, arrays)))
    with safetensors.safe_open(tmp_path / "m", "np") as file:
        assert json.loads(file.metadata()["sections"])["serve"]["model"] == "private-als"


def test_factors_too_small_for_a_scale_are_nothing() -> None:
    """A scale is 0 or no smaller than what float32 holds in full."""
    tiny = np.finfo(np.float32).tiny
    factors = np.array(
        [[1.0, -0.5], [1e-40, 0], [0, 0], [tiny, -tiny], [126 * tiny, tiny], [128 * tiny, tiny]]
    )
    stored = packed(factors.astype(np.float32))
    scale, octets = stored["item_factors_scale"], stored["item_factors_int8"]
    assert (scale > 0).tolist() == [True, False, False, False, False, True]
    assert (scale[scale > 0] >= tiny).all() and not octets[scale == 0].any()
    assert octets[0].tolist() == [127, -63] and octets[5].tolist() == [127, 1]
