import math

import numpy as np
import pytest
from data_oracle import as_dictionary, item_order

from hushrec.data import Domain, Ratings, sample_per_user
from tests.data.pieces import in_pieces


def some_ratings(n_users=60, n_items=300, seed=0):
    rng = np.random.default_rng(seed)
    lengths = np.minimum(np.exp(rng.normal(3, 1.2, n_users)).astype(int) + 1, n_items)
    users = np.repeat(np.arange(n_users), lengths)
    items = np.concatenate([rng.choice(n_items, length, replace=False) for length in lengths])
    return Ratings.from_any(
        (users, items, rng.random(len(users))), Domain(range(n_items), rating_range=(0, 1))
    )


@pytest.mark.parametrize("count", [1, 2, 10, 37, 1000])
@pytest.mark.parametrize("cells", [1, 64, 1 << 21])
def test_against_a_sort_of_each_user(count, cells, monkeypatch):
    in_pieces(monkeypatch, cells=cells)
    ratings = some_ratings()
    full = as_dictionary(ratings)
    found = as_dictionary(sample_per_user(ratings, count, seed=5))
    assert list(found) == list(full)
    for user, own in full.items():
        kept = set(item_order(user, own, 5, "sample")[:count])
        assert found[user] == {item: own[item] for item in own if item in kept}


@pytest.mark.parametrize("count", [1, 10, 37])
@pytest.mark.parametrize("kind", [int, float, bool])
def test_priority_against_a_sort_of_each_user(count, kind):
    ratings = some_ratings()
    priority = np.random.default_rng(1).integers(-3, 4, ratings.n_items).astype(kind)
    if kind is float:
        priority[:3] = -math.inf
        priority[3:5] = math.inf
    full = as_dictionary(ratings)
    found = as_dictionary(sample_per_user(ratings, count, seed=5, priority=priority))
    for user, own in full.items():
        order = sorted(item_order(user, own, 5, "sample"), key=lambda item: priority[item])
        assert set(found[user]) == set(order[:count])


def test_it_is_uniform():
    n_users, n_items, count = 4000, 20, 5
    users, items = np.repeat(np.arange(n_users), n_items), np.tile(np.arange(n_items), n_users)
    cells = users, items, np.ones(len(users))
    ratings = Ratings.from_any(cells, Domain(range(n_items), rating_range=(0, 1)))
    sample = sample_per_user(ratings, count, seed=0).matrix
    assert (np.diff(sample.indptr) == count).all()
    chance = count / n_items
    deviation = np.bincount(sample.indices) - n_users * chance
    assert np.abs(deviation).max() < 4.5 * math.sqrt(n_users * chance * (1 - chance))
    # pairs too: a sample is not a window that slides
    table = sample.toarray() > 0
    together = (table.T.astype(float) @ table)[np.triu_indices(n_items, 1)]
    pair = count * (count - 1) / n_items / (n_items - 1)
    assert np.abs(together - n_users * pair).max() < 5 * math.sqrt(n_users * pair)
