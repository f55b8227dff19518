import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from data_oracle import as_dictionary, item_key, item_order, user_base
from test_sampling import some_ratings

from hushrec.data import (
    Domain,
    Ratings,
    Store,
    k_folds,
    leave_k_out,
    realistic,
    split_by_time,
    split_ratings,
    strong_generalization,
)
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
        """Every rating is in one test part, which its own hash decides; other users do not matter."""
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


class TestSplitRatings:
    def test_a_hash_of_user_and_item_decides(self):
        ratings = some_ratings()
        parts = [as_dictionary(part) for part in split_ratings(ratings, (0.5, 0.25, 0.25), seed=7)]
        for user, own in as_dictionary(ratings).items():
            for item in own:
                share = item_key(user, item, 7, "split") / 2**64
                assert item in parts[int(share >= 0.5) + int(share >= 0.75)][user]


class TestLeaveKOut:
    @pytest.mark.parametrize("k", [1, 3, None])
    def test_each_user(self, k):
        """A user who has no more than k ratings keeps them."""
        ratings = some_ratings()
        k = k or int(np.diff(ratings.matrix.indptr).min())
        train, test = leave_k_out(ratings, k, seed=4)
        full, held = as_dictionary(ratings), as_dictionary(test)
        assert together(train, test) == full
        assert list(as_dictionary(train)) == list(full)
        assert not train.hand_picked and not test.hand_picked
        for user, own in full.items():
            chosen = item_order(user, own, 4, "leave-k-out")[:k] if len(own) > k else []
            assert set(held.get(user, {})) == set(chosen)


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


@pytest.mark.parametrize("share", [0, 1, -0.1, math.nan, math.inf, "0.5", None, True])
def test_a_share_that_is_none_is_refused(share):
    for call in (
        lambda: split_ratings(some_ratings(), (share, 0.5), seed=1),
        lambda: strong_generalization(some_ratings(), share, seed=1),
        lambda: strong_generalization(some_ratings(), fold_in=share, seed=1),
    ):
        with pytest.raises(InputError, match="is out of range|fractions must be positive"):
            call()


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True, None, "1"])
def test_a_seed_that_is_none_is_refused(seed):
    for call in (
        lambda: split_ratings(some_ratings(), seed=seed),
        lambda: list(k_folds(some_ratings(), 3, seed=seed)),
        lambda: leave_k_out(some_ratings(), 1, seed=seed),
        lambda: realistic(20, 10, 50, seed=seed),
    ):
        with pytest.raises(InputError, match="is not an integer from 0 to") as caught:
            call()
        assert caught.value.parameter == "seed"


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
        read = Ratings.from_any(tmp_path / "part.parquet", part.domain)
        both = part.union(first(some_ratings()))
        for again in (part, read, both, part.rows(np.arange(part.n_users), keyed=True)):
            with pytest.raises(InputError, match=r"a part that seed 3 chose.*pass seed=4\.") as caught:
                then(again, 3)
            assert caught.value.parameter == "seed"
            assert then(again, 4)


def test_marks_of_several_files_are_those_of_all(tmp_path):
    """The same holds in a store that is prepared from them."""
    plain = some_ratings()
    picked = plain.where(np.arange(plain.n_ratings) % 2 == 0)
    for number, part in enumerate((plain, picked)):
        pq.write_table(part.to_arrow(), tmp_path / f"{number}.parquet")
    for name, marked in (("0.parquet", False), ("1.parquet", True), ("*.parquet", True)):
        assert Ratings.from_any(str(tmp_path / name), plain.domain).hand_picked == marked
        store = Store.prepare(str(tmp_path / name), tmp_path / "s", plain.domain, partitions=2, force=True)
        assert store.hand_picked == marked and store.ratings().hand_picked == marked
