"""Factors of one byte: read after docs/reference/format.md without the library, and their loss."""

import math

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays_of

import hushrec
from hushrec.models import ESTIMATORS, Model
from hushrec.privacy import Accountant, Budget
from hushrec.serving.stored_arrays import packed, unpacked
from tests.serving.test_modelfile import RATINGS

SMALL = st.floats(-(2.0**100), 2.0**100, width=32)


def fitted(name: str) -> Model:
    return ESTIMATORS[name]().fit(RATINGS, Accountant(Budget(math.inf, 1e-6)))


@pytest.mark.parametrize("name", ["private-als", "als", "ease", "private-eigenrec", "item-bias", "both"])
def test_a_foreign_reader_finds_the_factors_that_serve(name: str, tmp_path) -> None:
    """Bytes times scales are the model's factors, in every section; all else is stored as without int8."""
    saved, path = fitted(name), tmp_path / "model.hush"
    saved.save(path, int8=True)
    loaded, found = hushrec.load(path), safetensors.numpy.load_file(path)
    for section, before, after in (("serve", saved, loaded), ("lists", saved.lists, loaded.lists)):
        if before is None:
            continue
        assert f"{section}/item_factors" not in found
        octets, scale = (found[f"{section}/item_factors_{kind}"] for kind in ("int8", "scale"))
        assert (octets.dtype, scale.dtype) == (np.int8, np.float32)
        factors = octets.astype(np.float64) * scale[:, None].astype(np.float64)
        rows = found.get(f"{section}/item_factors_rows", slice(None))
        np.testing.assert_array_equal(factors, np.asarray(after.arrays["item_factors"])[rows])
        lost = np.abs(factors - np.asarray(before.arrays["item_factors"])[rows])
        assert (lost <= 0.5001 * scale[:, None]).all()
        assert np.abs(octets.astype(int)).max(initial=0) <= 127
        assert set(after.arrays) == set(before.arrays) and len(after.arrays) == len(before.arrays)
        for key in set(before.arrays) - {"item_factors"}:
            assert found[f"{section}/{key}"].tobytes() == before.arrays[key].tobytes()
    assert loaded.to_bytes(int8=True) == path.read_bytes()
    assert Model.from_bytes(loaded.to_bytes()).to_bytes(int8=True) == path.read_bytes()


@given(arrays_of.arrays(np.float32, st.tuples(st.integers(0, 4), st.integers(0, 4)), elements=SMALL))
def test_products_are_exact_and_packing_is_idempotent(factors) -> None:
    stored = packed(factors)
    octets, scale = stored["item_factors_int8"], stored["item_factors_scale"]
    again = unpacked(stored)
    np.testing.assert_array_equal(again, octets.astype(np.float64) * scale.astype(np.float64)[:, None])
    assert (np.abs(again.astype(np.float64) - factors) <= np.maximum(0.5001 * scale, 2e-36)[:, None]).all()
    for name, array in packed(again).items():
        np.testing.assert_array_equal(array, stored[name])
