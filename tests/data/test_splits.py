import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from data_oracle import as_dictionary, item_key, item_order, user_base
from test_sampling import some_ratings

from hushrec.data import (
    Domain,
    Ratings,
    k_folds,
    leave_k_out,
    split_by_time,
    split_ratings,
    strong_generalization,
)
from hushrec.data.keys import part_of
from hushrec.errors import InputError


def together(*parts):
    """All ratings of the parts, which must not share one."""
    whole = {}
    for part in parts:
        for user, own in as_dictionary(part).items():
            assert own, "a user without ratings"
            known = whole.setdefault(user, {})
            assert not known.keys() & own.keys()
            known |= own
    return whole


class TestKFolds:
    def test_a_hash_of_user_and_item_decides(self):
        """Every rating is in one test part, which is told by its own hash: whoever else is there."""
        ratings = some_ratings()
        folds = list(k_folds(ratings, 3, seed=7))
        assert together(*(test for _, test in folds)) == as_dictionary(ratings)
        for number, (train, test) in enumerate(folds):
            assert together(train, test) == as_dictionary(ratings)
            assert not train.hand_picked and not test.hand_picked
            for user, own in as_dictionary(test).items():
                assert all(int(3 * item_key(user, item, 7, "split") / 2**64) == number for item in own)
        other = list(k_folds(ratings, 3, seed=8))
        assert as_dictionary(other[0][1]) != as_dictionary(folds[0][1])

    @pytest.mark.parametrize("k", [0, 1, 2.5, True])
    def test_a_wrong_number_is_refused(self, k):
        with pytest.raises(InputError):
            next(k_folds(some_ratings(), k, seed=0))


class TestSplitRatings:
    def test_parts_are_the_whole(self):
        ratings = some_ratings()
        parts = split_ratings(ratings, seed=0)
        assert together(*parts) == as_dictionary(ratings)
        assert not any(part.hand_picked for part in parts)

    @pytest.mark.parametrize("cells", [1, 7, 64, 1 << 21])
    def test_a_hash_of_user_and_item_decides(self, cells, monkeypatch):
        monkeypatch.setattr("hushrec.data.keys._CELLS", cells)
        ratings = some_ratings()
        parts = [as_dictionary(part) for part in split_ratings(ratings, (0.5, 0.25, 0.25), seed=7)]
        for user, own in as_dictionary(ratings).items():
            for item in own:
                share = item_key(user, item, 7, "split") / 2**64
                assert item in parts[int(share >= 0.5) + int(share >= 0.75)][user]

    def test_fractions_hold_in_expectation(self):
        sizes = np.array([part.n_ratings for part in split_ratings(some_ratings(500), seed=0)])
        chances, n_ratings = np.array([0.8, 0.1, 0.1]), sizes.sum()
        deviation = (sizes - chances * n_ratings) / np.sqrt(n_ratings * chances * (1 - chances))
        assert 0 < np.abs(deviation).max() < 4

    def test_seeds(self):
        ratings = some_ratings()
        first, again, other = (split_ratings(ratings, (0.5, 0.5), seed=seed)[0] for seed in (0, 0, 1))
        assert as_dictionary(first) == as_dictionary(again) != as_dictionary(other)

    def test_it_is_random_by_rating(self):
        ratings = some_ratings(500)
        test = split_ratings(ratings, (0.7, 0.3), seed=0)[1].aligned_to(ratings)
        lengths, drawn = np.diff(ratings.matrix.indptr), np.diff(test.matrix.indptr)
        deviation = (drawn - 0.3 * lengths) / np.sqrt(0.21 * lengths)
        assert abs(deviation.mean()) < 4 / math.sqrt(500)
        assert 0.8 < deviation.std() < 1.2

    def test_a_hash_at_the_end_of_a_part_is_in_the_next(self):
        quarters = [number << 62 for number in range(4)]
        keys = np.array([key + step for key in quarters for step in (0, 1, (1 << 62) - 1)], np.uint64)
        assert part_of(keys, (0.25, 0.5, 0.25)).tolist() == [0] * 3 + [1] * 6 + [2] * 3
        assert part_of(keys[-1:], (1.0,)).tolist() == [0]
        assert part_of(keys, (1.0, 1e-30)).tolist() == [0] * 11 + [1]  # a part of nothing gets the last hash

    def test_more_parts_than_an_octet_counts(self):
        ratings = some_ratings()
        parts = split_ratings(ratings, [1 / 200] * 200, seed=0)
        assert together(*parts) == as_dictionary(ratings)
        for number in (0, 127, 128, 199):
            for user, own in as_dictionary(parts[number]).items():
                assert all(int(200 * item_key(user, item, 0, "split") / 2**64) == number for item in own)

    def test_many_parts(self):
        ratings = some_ratings()
        assert len(split_ratings(ratings, [0.05] * 20, seed=0)) == 20
        assert split_ratings(ratings, [1], seed=0)[0].n_ratings == ratings.n_ratings

    @pytest.mark.parametrize(
        "bad", [(0.8, 0.1), (1.2, -0.2), (0, 1), (math.nan, 1), ("a", "b"), (), (True,), (0.5, 0.6)]
    )
    def test_bad_fractions(self, bad):
        with pytest.raises(InputError, match="fractions"):
            split_ratings(some_ratings(3), bad, seed=0)

    def test_fractions_add_up_to_one_within_a_billionth(self):
        for off in (0.6e-9, -0.6e-9):
            assert len(split_ratings(some_ratings(3), (0.5, 0.5 + off), seed=0)) == 2
            with pytest.raises(InputError, match="add up to 1"):
                split_ratings(some_ratings(3), (0.5, 0.5 + 2.5 * off), seed=0)
        with pytest.raises(InputError, match="^fractions=0.8 is no list; pass one"):
            split_ratings(some_ratings(3), 0.8, seed=0)


class TestLeaveKOut:
    @pytest.mark.parametrize("k", [1, 3])
    def test_each_user(self, k):
        ratings = some_ratings()
        train, test = leave_k_out(ratings, k, seed=4)
        full, held = as_dictionary(ratings), as_dictionary(test)
        assert together(train, test) == full
        assert list(as_dictionary(train)) == list(full)
        assert not train.hand_picked and not test.hand_picked
        for user, own in full.items():
            chosen = item_order(user, own, 4, "leave-k-out")[:k] if len(own) > k else []
            assert set(held.get(user, {})) == set(chosen)

    def test_who_has_just_as_many_keeps_them(self):
        domain = Domain(range(9), rating_range=(1, 5))
        ratings = Ratings.from_any(([7, 7, 8, 8, 8], [0, 1, 2, 3, 4], [5.0] * 5), domain)
        train, test = leave_k_out(ratings, 2, seed=4)
        assert [len(own) for own in as_dictionary(train).values()] == [2, 1]
        assert train.n_ratings + test.n_ratings == 5 and list(as_dictionary(test)) == ["8"]

    @pytest.mark.parametrize("bad", [0, -1, 1.5, None, True])
    def test_bad_k(self, bad):
        with pytest.raises(InputError, match="k must"):
            leave_k_out(some_ratings(3), bad, seed=0)


class TestStrongGeneralization:
    def test_protocol(self):
        ratings = some_ratings()
        parts = strong_generalization(ratings, 1 / 3, fold_in=0.8, seed=2)
        train, fold_in, target = map(as_dictionary, parts)
        assert together(*parts) == as_dictionary(ratings)
        for user in as_dictionary(ratings):
            assert (user in fold_in) == (user_base(user, 2, "held-out users") / 2**64 < 1 / 3)
        assert 10 <= len(fold_in) <= 30
        assert not train.keys() & fold_in.keys()
        assert target.keys() <= fold_in.keys()
        assert not any(part.hand_picked for part in parts)
        for user, own in fold_in.items():
            n_all = len(own) + len(target.get(user, {}))
            assert len(target.get(user, {})) == n_all // 5  # rounded down, as in Liang et al.'s code

    def test_twice_for_validation_users(self):
        test = strong_generalization(some_ratings(2000), 0.2, seed=0)
        validation = strong_generalization(test.train, 0.25, seed=1)
        assert abs(validation.fold_in.n_users - 400) < 4 * math.sqrt(2000 * 0.2 * 0.8)
        assert together(*validation) == as_dictionary(test.train)

    @pytest.mark.parametrize("bad", [0, 1, 5, -0.5, 1.5, math.nan, "0.8", None, True])
    def test_bad_shares(self, bad):
        with pytest.raises(InputError, match="fold_in"):
            strong_generalization(some_ratings(), 0.1, fold_in=bad, seed=0)
        with pytest.raises(InputError, match="heldout"):
            strong_generalization(some_ratings(), bad, seed=0)


class TestByTime:
    def test_a_declared_date_decides_row_by_row(self):
        domain = Domain(["x", "y", "z"], rating_range=(1, 5))
        times = ["2024-05-31T23:59:59", "2024-06-01", None, "2030-01-01"]
        rows = (["a", "a", "b", "b"], ["x", "y", "x", "z"], [1, 2, 3, 4], times)
        ratings = Ratings.from_any(rows, domain)
        before, after = split_by_time(ratings, "2024-06-01")
        assert as_dictionary(before) == {"a": {0: 1.0}, "b": {0: 3.0}}
        assert as_dictionary(after) == {"a": {1: 2.0}, "b": {2: 4.0}}
        assert not before.hand_picked and not after.hand_picked

    def test_without_times_or_a_date_it_refuses(self):
        ratings = some_ratings()
        with pytest.raises(InputError, match="no times"):
            split_by_time(ratings, "2024-06-01")
        domain = Domain(["x"], rating_range=(1, 5))
        with pytest.raises(InputError, match="is no date"):
            split_by_time(Ratings.from_any((["a"], ["x"], [1], [5]), domain), "tomorrow")


class TestASplitOfAPart:
    """The seed that chose a part would choose by the same hashes, and leave nothing to test on."""

    @pytest.mark.parametrize(
        ("first", "then"),
        [
            (lambda r: split_ratings(r, (0.8, 0.2), seed=3)[0], lambda r, s: split_ratings(r, seed=s)),
            (lambda r: split_ratings(r, (0.8, 0.2), seed=3)[1], lambda r, s: list(k_folds(r, 3, seed=s))),
            (lambda r: next(k_folds(r, 3, seed=3))[0], lambda r, s: split_ratings(r, seed=s)),
            (
                lambda r: strong_generalization(r, 0.2, seed=3).train,
                lambda r, s: strong_generalization(r, 0.2, seed=s),
            ),
        ],
    )
    def test_the_same_seed_is_refused(self, first, then, tmp_path):
        part = first(some_ratings())
        pq.write_table(part.to_arrow(), tmp_path / "part.parquet")
        read = Ratings.read(tmp_path / "part.parquet", part.domain)
        both = part.union(first(some_ratings()))
        for again in (part, read, both, part.rows(np.arange(part.n_users), keyed=True)):
            with pytest.raises(InputError, match=r"a part that seed 3 chose.*pass seed=4\.") as caught:
                then(again, 3)
            assert caught.value.parameter == "seed"
            assert then(again, 4)

    def test_other_splits_go_on(self):
        part = split_ratings(some_ratings(), (0.8, 0.2), seed=3)[0]
        assert strong_generalization(part, 0.2, seed=3).target.n_ratings
        assert leave_k_out(leave_k_out(part, 1, seed=3)[0], 1, seed=3)[1].n_ratings


def test_a_part_of_a_part_knows_both_and_is_split_by_neither_again():
    once = split_ratings(some_ratings(), (0.5, 0.5), seed=1)[0]
    twice = split_ratings(once, (0.5, 0.5), seed=2)[0]
    assert len(twice.splits) == 2 and twice.splits[:1] == once.splits
    users = strong_generalization(twice, 0.3, seed=1).train
    assert users.splits[:2] == twice.splits and len(users.splits) == 3
    for part, seeds in ((once, (1,)), (twice, (1, 2)), (users, (1, 2))):
        for seed in seeds:
            with pytest.raises(InputError, match="same hashes again"):
                split_ratings(part, (0.5, 0.5), seed=seed)


def test_marks_of_several_files_are_those_of_all(tmp_path):
    """Also in a store that is prepared of them."""
    plain = some_ratings()
    picked = plain.where(np.arange(plain.n_ratings) % 2 == 0)
    for number, part in enumerate((plain, picked)):
        pq.write_table(part.to_arrow(), tmp_path / f"{number}.parquet")
    for name, marked in (("0.parquet", False), ("1.parquet", True), ("*.parquet", True)):
        assert Ratings.read(str(tmp_path / name), plain.domain).hand_picked == marked
        store = Ratings.prepare(str(tmp_path / name), tmp_path / "s", plain.domain, partitions=2, force=True)
        assert store.hand_picked == marked and store.ratings().hand_picked == marked


@pytest.mark.parametrize(
    "split",
    [
        lambda table: split_ratings(table, seed=0),
        lambda table: next(k_folds(table, 3, seed=0)),
        lambda table: leave_k_out(table, seed=0),
        lambda table: split_by_time(table, "2024-06-01"),
        lambda table: strong_generalization(table, seed=0),
    ],
)
def test_what_is_no_ratings_is_refused_by_its_kind(split):
    for table, kind in ((["secret"], "list"), ({"user": ["secret"]}, "dict"), (None, "NoneType")):
        with pytest.raises(InputError) as refused:
            split(table)
        wanted = f"ratings must be Ratings, not {kind}; load them with Ratings.read(table, domain)."
        assert str(refused.value) == wanted
