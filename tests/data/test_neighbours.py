"""One user more or less, however hostile their rows, leaves every other user byte for byte as they were.

A failure here is a leak, not a nuisance: each rule for bad rows must look at one user only, for any type,
order or damage of the cells.
"""

import itertools
import random

import numpy as np
import pytest
from hostile_cells import ITEMS, LINES, RATINGS, USERS

from hushrec.data import Domain, Ratings, leave_k_out, sample_per_user, split_ratings, strong_generalization

N_ITEMS = 12
DOMAIN = Domain(range(1, N_ITEMS + 1), rating_range=(1, 5), max_ratings_per_user=9)
PRIORITY = np.random.default_rng(3).integers(0, 4, N_ITEMS)
HONEST = [
    (user, item, float(rating))
    for user, item, rating in zip(
        *np.random.default_rng(0).integers([[1], [1], [1]], [[8], [N_ITEMS + 1], [6]], (3, 90)).tolist(),
        strict=True,
    )
]


def state(ratings):
    """All that is known of each user, as bytes, by their key; and the order of the users."""
    samples = [
        ratings,
        sample_per_user(ratings, 4, seed=1),
        sample_per_user(ratings, 4, seed=1, priority=PRIORITY),
        *leave_k_out(ratings, 2, seed=1),
        *split_ratings(ratings, (0.5, 0.3, 0.2), seed=1),
        *strong_generalization(ratings, 0.4, seed=1),
    ]
    rows = {}
    for number, part in enumerate(samples):
        matrix = part.matrix
        for row, key in enumerate(part.user_keys.tolist()):
            one = slice(matrix.indptr[row], matrix.indptr[row + 1])
            shown = (matrix.indices[one].tobytes(), matrix.data[one].tobytes(), part.users[row])
            rows.setdefault(key, {})[number] = shown
    order = ratings.user_keys.tolist()
    return {key: rows[key] for key in order}, order


def interleaved(rows, added, seed):
    """The rows with others put in at random places, both kept in order."""
    dice = random.Random(seed)
    places = sorted(dice.randrange(len(rows) + 1) for _ in added)
    merged = list(rows)
    for place, row in zip(reversed(places), reversed(added), strict=True):
        merged.insert(place, row)
    return merged


def columns_of(rows):
    return [list(column) for column in zip(*rows, strict=True)]


def build(rows):
    return Ratings.from_any((*columns_of(rows),), DOMAIN)


BASE, ORDER = state(build(HONEST))


def check(ratings):
    """Other users may be there; the honest ones are unchanged, in the same order."""
    rows, order = state(ratings)
    assert [key for key in order if key in BASE] == ORDER
    assert {key: rows[key] for key in ORDER} == BASE


@pytest.mark.parametrize("position", range(len(USERS)))
def test_hostile_users(position, record_property):
    record_property("fixtures", 3)
    user = USERS[position]
    cells = [[(user, 1, 4)], [(user, item, 4) for item in ITEMS], [(user, 2, r) for r in RATINGS]]
    for seed, added in enumerate(cells):
        check(build(interleaved(HONEST, added, seed)))


@pytest.mark.parametrize("place", range(len(ITEMS) + len(RATINGS)))
def test_hostile_items_and_ratings(place, record_property):
    """The same user's good ratings stay."""
    record_property("fixtures", 1)
    bad = ("mallory", *[*((cell, 9) for cell in ITEMS), *((4, cell) for cell in RATINGS)][place])
    ratings = build(interleaved(HONEST, [("mallory", 1, 2), bad, ("mallory", 2, 3)], place))
    check(ratings)
    row = ratings.for_users(["mallory"]).matrix.toarray()[0]
    assert row[:2].tolist() == [2, 3] and row[3] in (0, 1, 4)


def test_a_user_with_a_million_rows(record_property):
    record_property("fixtures", 1)
    n_rows = 1_000_000
    users = np.array([7_000_000] * n_rows + [user for user, _, _ in HONEST])
    items = np.concatenate([np.arange(n_rows) % 20, [item for _, item, _ in HONEST]])
    values = np.concatenate([np.full(n_rows, 3.0), [rating for _, _, rating in HONEST]])
    ratings = Ratings.from_any((users, items, values), DOMAIN)
    assert np.diff(ratings.matrix.indptr).max() == 9
    check(ratings)


class TestTextFiles:
    honest = tuple(f"{user},{item},{rating}".encode() for user, item, rating in HONEST)

    def read(self, path, lines, ending=b"\n", header=b"user,item,rating"):
        path.write_bytes(ending.join([header, *lines]) + ending)
        return Ratings.from_any(path, DOMAIN)

    def expected(self, path):
        return state(self.read(path, self.honest))

    @pytest.mark.parametrize("position", range(len(LINES)))
    def test_hostile_lines(self, tmp_path, position, record_property):
        record_property("fixtures", 4)
        expected, order = self.expected(tmp_path / "base.csv")
        for copies, ending in itertools.product((1, 5), (b"\n", b"\r\n")):
            lines = interleaved(list(self.honest), [LINES[position]] * copies, position)
            rows, found = state(self.read(tmp_path / "more.csv", lines, ending))
            assert [key for key in found if key in expected] == order
            assert {key: rows[key] for key in order} == expected
