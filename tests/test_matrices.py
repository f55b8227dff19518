import math

import numpy as np

from benchmarks.matrices import dpals_matrix, jtt18_matrix


def truth_at(generated):
    rows, columns = generated.ratings.matrix.tocoo().coords
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


def test_jtt18():
    generated = jtt18_matrix(2000, 150, ratings_per_user=40, seed=0)
    truth = generated.user_factors @ generated.item_factors.T
    assert np.linalg.matrix_rank(truth) == 1
    assert np.abs(truth).max() == 1
    assert (np.diff(generated.ratings.matrix.indptr) == 40).all()
    np.testing.assert_allclose(generated.ratings.matrix.data, truth_at(generated), rtol=1e-6, atol=1e-7)
    assert (generated.ratings.domain.low, generated.ratings.domain.high) == (-1, 1)
    assert np.bincount(generated.ratings.matrix.indices).std() < 1.5 * math.sqrt(2000 * 40 / 150)
