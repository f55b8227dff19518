"""Integers as ids: looked up and dealt out as their canonical text would be."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hushrec.data.ids import encode_ids, positions_of
from hushrec.data.integers import Places, hashes_of, id_hashes


def numbers(kind):
    """Every number of digits, their ends, and others in between."""
    info, random = np.iinfo(kind), np.random.default_rng(0)
    tens = [10**power for power in range(20)]
    found = [sign * number + off for number in tens for sign in (1, -1) for off in (-1, 0, 1)]
    found += [int(x) for high in (99, 10**9, 10**15, 10**18) for x in random.integers(-high, high, 50)]
    return np.array([info.min, info.max, *(x for x in found if info.min <= x <= info.max)], kind)


@pytest.mark.parametrize("kind", ["i1", "i4", "i8", "u4", "u8"])
def test_hashes_are_those_of_the_text(kind):
    """Or a store would look for a user where they are not."""
    given = np.resize(numbers(kind), 1 << 15 | 7)  # more than are hashed together
    for part in (given, given[given >= 0], given[np.abs(given.astype(float)) < 1e7]):
        users, hashes = id_hashes(pa.chunked_array([pa.array(part)]))
        assert isinstance(users, np.ndarray) and (users == part).all()
        np.testing.assert_array_equal(hashes, hashes_of(pa.array(map(str, part.tolist()), pa.large_string())))


@pytest.mark.parametrize(
    "catalogue",
    [range(5, 300), [10, -3, 10**17, 7, 999999999999999999], ["007", "a", "-0", "8", "-3", "1e3"], ["a"]],
)
def test_places_are_those_of_the_text(catalogue):
    texts = pa.array([str(item) for item in catalogue], pa.large_string())
    places = Places(texts)
    columns = [pa.chunked_array([pa.array(numbers(kind))]) for kind in ("i4", "i8", "u8")]
    columns += [pa.chunked_array([pa.array([8, None, -3, 10**17])]), pa.chunked_array([["8", "007", "x"]])]
    columns += [pa.chunked_array([pa.array([8.0, float("nan"), -3.0])])]
    for column in columns:
        np.testing.assert_array_equal(places.of(column), positions_of(encode_ids(column), texts))
