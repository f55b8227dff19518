import math

import numpy as np
import pytest
import scipy.sparse.linalg

from hushrec.algorithms import EASE
from hushrec.data import Domain, Ratings, paired_likes, realistic, strong_generalization
from hushrec.errors import InputError
from hushrec.evaluation import evaluate
from hushrec.evaluation.metrics import rank_scores
from hushrec.privacy import Accountant, Budget


def cells(matrix):
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)), matrix.indices


class TestRealistic:
    @pytest.mark.parametrize(
        "shape",
        [(1, 1, 1), (5, 1, 5), (1, 9, 9), (30, 20, 600), (30, 20, 30), (200, 40, 2500), (943, 1682, 100_000)],
    )
    def test_any_size_is_met_exactly(self, shape):
        ratings = realistic(*shape, seed=0)
        assert (ratings.n_users, ratings.n_items, ratings.n_ratings) == shape
        assert ratings.matrix.has_canonical_format
        assert (np.diff(ratings.matrix.indptr) >= 1).all()
        assert set(np.unique(ratings.matrix.data)) <= {1, 2, 3, 4, 5}

    def test_names(self):
        ratings = realistic(20, 10, 100, seed=0)
        assert ratings.users[0] == "u000001"
        assert ratings.domain.items[9] == "i00010"
        assert ratings.domain == Domain([f"i{k:05d}" for k in range(1, 11)], rating_range=(1, 5))

    def test_it_looks_like_movielens(self):
        ratings = realistic(3000, 1500, 300_000, seed=0)
        matrix = ratings.matrix
        assert 3.4 < matrix.data.mean() < 3.7
        assert 1.0 < matrix.data.std() < 1.15
        per_user, per_item = np.diff(matrix.indptr), np.diff(ratings.transposed.indptr)
        assert per_user.min() >= 10
        assert 1.3 < per_user.mean() / np.median(per_user) < 2.2
        assert per_item.mean() / np.median(per_item) > 2
        assert np.sort(per_item)[-150:].sum() / per_item.sum() > 0.35  # a tenth of the items has most ratings

    def test_biases_and_low_rank(self):
        """Items and users explain about a fifth of the variance each, and the rest has structure."""
        matrix = realistic(3000, 400, 300_000, seed=1).matrix
        rows, columns = cells(matrix)
        residual = matrix.data - matrix.data.mean()
        before = residual.std()
        for _ in range(10):
            for index, size in ((columns, 400), (rows, 3000)):
                residual = (
                    residual
                    - (np.bincount(index, residual, size) / (np.bincount(index, minlength=size) + 3))[index]
                )
        assert 0.8 < residual.std() / before < 0.9
        dense = np.zeros(matrix.shape)
        dense[rows, columns] = residual
        shuffled = np.zeros(matrix.shape)
        shuffled[rows, columns] = np.random.default_rng(0).permutation(residual)
        values = np.linalg.svd(dense, compute_uv=False)
        noise = np.linalg.svd(shuffled, compute_uv=False)
        assert values[0] > 1.3 * noise[0]

    def test_seeds(self):
        one, again, two = (realistic(100, 50, 1000, seed=seed).matrix for seed in (0, 0, 1))
        assert (one != again).nnz == 0
        assert (one != two).nnz > 0

    def test_half_stars_and_other_scales(self):
        half = realistic(300, 100, 9000, rating_range=(0.5, 5), step=0.5, seed=0)
        assert set(np.unique(half.matrix.data)) == {k / 2 for k in range(1, 11)}
        wide = realistic(300, 100, 9000, rating_range=(-10, 10), step=0.25, seed=0)
        assert wide.matrix.data.min() == -10
        assert wide.matrix.data.max() == 10
        odd = realistic(300, 100, 9000, rating_range=(1, 5), step=3, seed=0)
        assert set(np.unique(odd.matrix.data)) == {1, 4}

    def test_popular_items_are_drawn_in_proportion(self):
        """Against NumPy's own draw without replacement, user by user."""
        from hushrec.data.generators import _distinct_items

        popularity = np.array([0.5, 0.2, 0.1, 0.1, 0.05, 0.05])
        n_users = 20_000
        rng = np.random.default_rng(0)
        for count in (1, 3):  # 3 of 6 is drawn outright, 1 of 6 too
            _, columns = _distinct_items(np.full(n_users, count), popularity, np.random.default_rng(1))
            mine = np.bincount(columns, minlength=6) / n_users
            keys = -rng.exponential(size=(n_users, 6)) / popularity
            theirs = np.bincount(np.argsort(-keys, axis=1)[:, :count].ravel(), minlength=6) / n_users
            assert np.abs(mine - theirs).max() < 0.025
        tall = np.repeat(popularity / 50, 50)
        _, columns = _distinct_items(np.full(4000, 30), tall, np.random.default_rng(1))
        mine = np.bincount(columns // 50, minlength=6) / 4000
        keys = -rng.exponential(size=(4000, 300)) / tall
        theirs = np.bincount(np.argsort(-keys, axis=1)[:, :30].ravel() // 50, minlength=6) / 4000
        np.testing.assert_allclose(mine, theirs, rtol=0.05)

    @pytest.mark.parametrize(
        "shape",
        [(0, 1, 1), (1, 0, 1), (10, 10, 9), (10, 10, 101), (1, 20_000, 10_001), (1.5, 2, 3), (True, 2, 2)],
    )
    def test_impossible_sizes(self, shape):
        with pytest.raises(InputError):
            realistic(*shape, seed=0)

    @pytest.mark.parametrize(
        "wrong", [{"step": 0}, {"step": 5}, {"step": -1}, {"rating_range": (5, 1)}, {"rank": 0}]
    )
    def test_bad_parameters(self, wrong):
        with pytest.raises(InputError):
            realistic(10, 10, 50, **{"seed": 0, **wrong})


def test_they_are_ratings_like_any_other():
    ratings = realistic(50, 20, 400, seed=0)
    again = Ratings.from_any(ratings.to_arrow(), ratings.domain)
    assert (again.matrix != ratings.matrix).nnz == 0
    assert again.users.tolist() == ratings.users.tolist()


class TestPairedLikes:
    @pytest.mark.parametrize("shape", [(1, 1, 1), (5, 1, 5), (1, 9, 9), (30, 20, 600), (200, 41, 2500)])
    def test_any_size_is_met_exactly(self, shape):
        ratings = paired_likes(*shape, seed=0)
        assert (ratings.n_users, ratings.n_items, ratings.n_ratings) == shape
        assert ratings.domain.likes and (ratings.matrix.data == 1).all()
        assert (np.diff(ratings.matrix.indptr) >= 1).all()

    def test_companions_are_taken_along(self):
        """Who likes an item of middling popularity nearly always likes a certain other, if it has one."""
        share = {}
        for paired in (0.0, 1.0):
            matrix = paired_likes(
                3000, 300, 60_000, paired=paired, together=0.8, taste_spread=0.0, seed=1
            ).matrix
            counts = np.diff(matrix.tocsc().indptr)
            usual = (counts > 40) & (counts < 400)
            both = (matrix.T @ matrix).toarray()[usual][:, usual]
            np.fill_diagonal(both, 0)
            best = both.argmax(axis=1)
            share[paired] = (both.max(axis=1) / counts[usual]).mean()
            if paired:  # the two of a pair name each other
                assert (best[best] == np.arange(len(best))).mean() > 0.9
        assert share[1.0] > 0.8 > 0.65 > share[0.0]

    @pytest.mark.parametrize(
        ("sizes", "better"),
        [
            ((2100, 3600, 155_000), 1.2),
            pytest.param((4200, 7200, 310_000), 1.25, marks=pytest.mark.full),
        ],
    )
    def test_ease_beats_a_factorization_of_rank_100_by_far(self, sizes, better):
        parts = strong_generalization(paired_likes(*sizes, seed=3), 0.1, seed=0)
        known = parts.fold_in.matrix.toarray()
        hidden = parts.target.aligned_to(parts.fold_in).matrix.toarray()
        train = parts.train.matrix.astype(np.float64)
        directions = scipy.sparse.linalg.svds(train, 100, random_state=0)[2]
        scores = known @ directions.T @ directions
        best = np.argsort(-np.where(known > 0, -np.inf, scores), axis=1)[:, :20]
        hits = np.take_along_axis(hidden, best, axis=1) > 0
        factorized = rank_scores(hits, (hidden > 0).sum(axis=1))["capped-recall"]
        model = EASE().fit(parts.train, Accountant(Budget(math.inf, 1e-6)))
        ease = evaluate(model, parts.fold_in, parts.target, k=20, resamples=0)["capped-recall@20"].value
        assert ease > better * np.nanmean(factorized) > 0.2

    def test_bad_parameters(self):
        for wrong in (
            {"n_likes": 5},
            {"n_likes": 101},
            {"paired": 1.1},
            {"together": -0.1},
            {"taste_spread": math.nan},
            {"rank": 0},
            {"seed": -1},
        ):
            with pytest.raises(InputError):
                paired_likes(**{"n_users": 10, "n_items": 10, "n_likes": 50, "seed": 0, **wrong})
