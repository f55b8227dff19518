"""The domain in a model file is read as it was declared, or refused."""

import json
import uuid
from decimal import Decimal

import numpy as np
import pytest

from hushrec.data import Domain
from hushrec.data.catalogue import pack, unpack

RANGE = (-1.5, 2)


@pytest.mark.parametrize(
    "items",
    [
        (1, 2, -3, 10**40),
        ("a", "é", "\ud800", " x "),
        (uuid.UUID(int=5), b"\x00\xff", "x", 3, 2.5, True),
        (np.int64(4), np.str_("s"), np.float32(0.1), np.bool_(False)),
    ],
)
def test_round_trip(items):
    domain = Domain(items, rating_range=RANGE, max_ratings_per_user=7)
    declared, arrays = pack(domain)
    again = unpack(json.loads(json.dumps(declared)), arrays)
    assert again.items == items
    assert again == domain
    assert again.fingerprint == domain.fingerprint


def test_ids_of_other_types_come_back_as_their_text():
    domain = Domain((Decimal("2.50"), Decimal("1E+2")), rating_range=RANGE)
    again = unpack(*pack(domain))
    assert again.items == tuple(domain.item_texts.to_pylist())
    assert again.fingerprint == domain.fingerprint


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rating_range": [5, 1]}, "increase"),
        ({"offsets": np.array([0, 1, 3])}, "offsets"),
        ({"offsets": np.array([1, 1, 2])}, "offsets"),
        ({"offsets": np.array([0, 3, 2])}, "offsets"),
        ({"offsets": np.array([0, 2])}, "offsets"),
        ({"kinds": np.array([0, 9])}, "range"),
        ({"kinds": np.array([0, 1])}, "int"),
        ({"kinds": np.array([0, 4])}, "UUID"),
        ({"text": np.array([97, 255], np.uint8)}, "utf-8"),
        ({"text": np.array([97, 97], np.uint8)}, "twice"),
    ],
)
def test_what_does_not_fit_together(change, words):
    declared, arrays = pack(Domain(("a", "b"), rating_range=RANGE))
    with pytest.raises((KeyError, ValueError, IndexError), match=words):
        unpack({**declared, **change}, {**arrays, **change})
