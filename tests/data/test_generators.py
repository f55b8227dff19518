import math

import numpy as np
import pytest

from hushrec.data import Domain, Ratings, dpals_matrix, jtt18_matrix, one_bit_matrix, realistic
from hushrec.errors import InputError


def cells(matrix):
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)), matrix.indices


def truth_at(generated):
    rows, columns = cells(generated.ratings.matrix)
    return (generated.user_factors @ generated.item_factors.T)[rows, columns]


class TestDpals:
    def test_protocol(self):
        generated = dpals_matrix(3000, 200, seed=0)
        ratings = generated.ratings
        assert generated.user_factors.shape == (ratings.n_users, 5)
        assert generated.item_factors.shape == (200, 5)
        probability = 20 * math.log(3000) / 200
        n_cells = 3000 * 200
        assert abs(ratings.n_ratings - probability * n_cells) < 5 * math.sqrt(n_cells * probability)
        truth = generated.user_factors @ generated.item_factors.T
        assert np.linalg.matrix_rank(truth) == 5
        assert abs(truth.std() - 1) < 0.1
        np.testing.assert_allclose(ratings.matrix.data, truth_at(generated), rtol=1e-6, atol=1e-7)

    def test_the_bound_is_declared_and_enforced(self):
        generated = dpals_matrix(2000, 100, rating_bound=1.5, seed=0)
        ratings, truth = generated.ratings, truth_at(generated)
        assert (ratings.domain.low, ratings.domain.high) == (-1.5, 1.5)
        assert np.abs(truth).max() > 3
        np.testing.assert_allclose(ratings.matrix.data, np.clip(truth, -1.5, 1.5), rtol=1e-6, atol=1e-7)

    def test_users_without_ratings_have_no_row(self):
        generated = dpals_matrix(2000, 10, observed=0.05, seed=0)
        assert len(generated.user_factors) == generated.ratings.n_users < 2000
        np.testing.assert_allclose(generated.ratings.matrix.data, truth_at(generated), rtol=1e-6, atol=1e-7)

    def test_noise(self):
        generated = dpals_matrix(2000, 100, noise=0.3, seed=0)
        residual = generated.ratings.matrix.data - truth_at(generated)
        assert abs(residual.std() - 0.3) < 0.01

    def test_bad_parameters(self):
        for wrong in (
            {"observed": 0},
            {"observed": 2},
            {"rating_bound": 0},
            {"seed": -1},
            {"rank": 0},
            {"n_users": 2.5},
        ):
            with pytest.raises(InputError):
                dpals_matrix(**{"seed": 0, **wrong})


def test_jtt18():
    generated = jtt18_matrix(2000, 150, ratings_per_user=40, seed=0)
    truth = generated.user_factors @ generated.item_factors.T
    assert np.linalg.matrix_rank(truth) == 1
    assert np.abs(truth).max() == 1
    assert (np.diff(generated.ratings.matrix.indptr) == 40).all()
    np.testing.assert_allclose(generated.ratings.matrix.data, truth_at(generated), rtol=1e-6, atol=1e-7)
    assert (generated.ratings.domain.low, generated.ratings.domain.high) == (-1, 1)
    assert np.bincount(generated.ratings.matrix.indices).std() < 1.5 * math.sqrt(2000 * 40 / 150)
    with pytest.raises(InputError, match="ratings_per_user"):
        jtt18_matrix(10, 20, ratings_per_user=21, seed=0)


@pytest.mark.parametrize(("link", "scale"), [("probit", 1.0), ("logit", 0.5)])
def test_one_bit(link, scale):
    from scipy.stats import logistic, norm

    generated = one_bit_matrix(600, 400, observed=0.5, link=link, noise=scale, seed=0)
    truth = generated.user_factors @ generated.item_factors.T
    assert math.isclose(np.abs(truth).max(), 1, rel_tol=1e-12)
    labels = generated.ratings.matrix.data
    assert set(labels.tolist()) == {-1.0, 1.0}
    assert abs(generated.ratings.n_ratings / 240_000 - 0.5) < 0.01
    law = norm if link == "probit" else logistic
    expected = law.cdf(truth_at(generated) / scale)
    for low in np.arange(0, 1, 0.1):  # calibrated: the share of +1 is what the link says
        inside = (expected >= low) & (expected < low + 0.1)
        if inside.sum() > 200:
            error = (labels[inside] > 0).mean() - expected[inside].mean()
            assert abs(error) < 4.5 * 0.5 / math.sqrt(inside.sum())
    with pytest.raises(InputError, match="link"):
        one_bit_matrix(link="cauchit", seed=0)


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
