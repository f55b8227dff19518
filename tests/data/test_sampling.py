import math

import numpy as np
import pyarrow as pa
import pytest
from data_oracle import as_dictionary, item_order

from hushrec.data import Domain, Ratings, sample_per_user
from hushrec.data.keys import mix, smallest_per_row, text_hashes, text_keys
from hushrec.errors import InputError


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
    monkeypatch.setattr("hushrec.data.keys._CELLS", cells)
    ratings = some_ratings()
    full = as_dictionary(ratings)
    found = as_dictionary(sample_per_user(ratings, count, seed=5))
    assert list(found) == list(full)
    for user, own in full.items():
        kept = set(item_order(user, own, 5, "sample")[:count])
        assert found[user] == {item: own[item] for item in own if item in kept}


def test_nobody_has_one_more():
    ratings = some_ratings()
    longest = int(np.diff(ratings.matrix.indptr).max())
    for count in (longest - 1, longest):
        found = np.diff(sample_per_user(ratings, count, seed=5).matrix.indptr)
        np.testing.assert_array_equal(found, np.minimum(np.diff(ratings.matrix.indptr), count))


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
    ratings = Ratings.from_any(
        (
            np.repeat(np.arange(n_users), n_items),
            np.tile(np.arange(n_items), n_users),
            np.ones(n_users * n_items),
        ),
        Domain(range(n_items), rating_range=(0, 1)),
    )
    sample = sample_per_user(ratings, count, seed=0).matrix
    assert (np.diff(sample.indptr) == count).all()
    drawn = np.bincount(sample.indices, minlength=n_items)
    chance = count / n_items
    deviation = (drawn - n_users * chance) / math.sqrt(n_users * chance * (1 - chance))
    assert np.abs(deviation).max() < 4.5
    # pairs too: a sample is not a window that slides
    table = sample.toarray() > 0
    together = (table.T.astype(float) @ table)[np.triu_indices(n_items, 1)]
    pair = count * (count - 1) / n_items / (n_items - 1)
    assert np.abs(together - n_users * pair).max() < 5 * math.sqrt(n_users * pair)


def test_seeds_differ_and_repeat():
    ratings = some_ratings()
    one, again, two = (sample_per_user(ratings, 5, seed=seed).matrix for seed in (1, 1, 2))
    assert (one != again).nnz == 0
    assert (one != two).nnz > 0


def test_order_of_rows_and_users_is_no_matter():
    ratings = some_ratings()
    shuffled = ratings.rows(np.random.default_rng(0).permutation(ratings.n_users))
    assert as_dictionary(sample_per_user(shuffled, 5, 3)) == as_dictionary(sample_per_user(ratings, 5, 3))


def test_the_input_is_not_touched_and_empty_rows_stay():
    ratings = some_ratings().for_users([3, "nobody", 5])
    before = ratings.matrix.copy()
    sample = sample_per_user(ratings, 2, seed=0)
    assert (ratings.matrix != before).nnz == 0
    assert np.diff(sample.matrix.indptr).tolist() == [min(2, n) for n in np.diff(before.indptr)]
    assert sample_per_user(ratings.rows([]), 2, seed=0).n_users == 0
    whole = some_ratings()
    assert not whole.hand_picked and not sample_per_user(whole, 2, seed=0).hand_picked
    with pytest.raises(InputError, match="one number for each of the 300 items"):
        sample_per_user(ratings, 2, seed=0, priority=np.append(np.nan, np.ones(299)))


@pytest.mark.parametrize("count", [0, -1, 1.5, "3", None, True, math.nan])
def test_bad_counts(count):
    with pytest.raises(InputError, match="count"):
        sample_per_user(some_ratings(3), count, seed=0)


@pytest.mark.parametrize("seed", [-1, 1.5, "3", None, True, 1 << 64])
def test_bad_seeds(seed):
    with pytest.raises(InputError, match="seed"):
        sample_per_user(some_ratings(3), 1, seed)


@pytest.mark.parametrize(
    "priority", [np.ones(3), np.full(300, math.nan), np.array(["a"] * 300), np.ones((300, 1)), 3]
)
def test_bad_priorities(priority):
    with pytest.raises(InputError, match="priority"):
        sample_per_user(some_ratings(3), 1, 0, priority)


@pytest.mark.parametrize("seed", [0, 1, (1 << 64) - 1, np.int64(7), np.uint64((1 << 64) - 1)])
def test_all_seeds_of_64_bits_are_taken(seed):
    ratings = some_ratings()
    order = {user: item_order(user, own, int(seed), "sample") for user, own in as_dictionary(ratings).items()}
    for user, own in as_dictionary(sample_per_user(ratings, 2, seed)).items():
        assert set(own) == set(order[user][:2])


def test_mix_is_splitmix64():
    """The reference sequence of SplitMix64 from state 1234567 (prng.di.unimi.it/splitmix64.c)."""
    states = np.uint64(1234567) + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, 6, dtype=np.uint64)
    known = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert mix(states).tolist() == known


def test_keys_never_change():
    """A user's sample must stay hers from version to version: these values are part of the format."""
    known = [6970937834605491160, 2217421714855480332, 16407773749430352567]
    assert text_keys(["", "7", "u000001"]).tolist() == known


def test_counts_for_each_row():
    indptr = np.array([0, 3, 3, 8])
    indices = np.array([0, 1, 2, 0, 2, 4, 6, 8])
    base = np.array([1, 2, 3], np.uint64)
    for counts in ([0, 0, 0], [1, 5, 2], [3, 0, 5], [9, 9, 9]):
        kept = smallest_per_row(indptr, indices, base, np.array(counts))
        assert np.add.reduceat(kept, [0, 3]).tolist() == [min(counts[0], 3), min(counts[2], 5)]


def test_hashes_of_some_texts_are_those_of_the_same_texts_among_others():
    texts = pa.array(
        ["", "a", "a\0", "eight or", "nine octe", "\u00e9" * 30, "a", "b" * 16, "b" * 17], pa.large_string()
    )
    whole = text_hashes(texts)
    assert len(set(whole.tolist())) == len(texts) - 1 and whole[1] == whole[6]
    for start in range(len(texts)):
        for length in (0, 1, 3):
            found = text_hashes(texts.slice(start, length))
            assert found.tolist() == whole[start : start + length].tolist()


def test_a_number_that_no_row_reaches_leaves_all():
    """Also one beyond all integers of the kernels."""
    ratings = some_ratings()
    for count in (300, 1 << 40, 10**30):
        assert sample_per_user(ratings, count, seed=5) is ratings
