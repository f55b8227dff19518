"""The server's steps of private ALS alone, against their definitions."""

import numpy as np
import pytest

from hushrec.models.private_als.updates import (
    FactorSums,
    KnownFactors,
    Level,
    canonical,
    factor_update,
    users_uncertainty,
)

LEVEL = Level(3.5, 1000.0, 1.0, 5.0, 0.02)
RESIDUAL = 0.8


def known_of(second, share, n_items=200):
    """Return the state after a fit of users with these second moments."""
    rank = len(second)
    gram = np.append(second[np.tril_indices(rank)], share)
    return KnownFactors(np.full((n_items, rank), 0.01), gram, np.full(len(gram), 1e-8))


def test_users_uncertainty_is_that_of_users_with_one_number_of_ratings():
    """Oracle: ridge regression of 30 ratings, its covariance by hand."""
    rng = np.random.default_rng(0)
    factors, weights = rng.normal(size=(500, 3)) * [1.0, 0.5, 0.1], rng.uniform(1, 9, 500)
    typical = (factors.T * weights / weights.sum()) @ factors
    ridge = LEVEL.ridge(RESIDUAL).regularization
    expected = LEVEL.user_variance * np.linalg.inv(np.eye(3) + 30 * typical / ridge)
    share = np.trace(expected) / 3 / LEVEL.user_variance
    assert users_uncertainty(factors, weights, share, LEVEL, RESIDUAL) == pytest.approx(expected, abs=2e-4)
    for noisy in (-0.5, 0.0, 1.0, 1.7):  # as released
        found = np.linalg.eigvalsh(users_uncertainty(factors, weights, noisy, LEVEL, RESIDUAL))
        assert (found >= 0).all() and (found <= LEVEL.user_variance * 1.001).all()


def test_a_turned_model_is_the_same_model():
    """Oracle: the covariance of all scores, of which only the parts that items and users have are changed."""
    rng = np.random.default_rng(3)
    factors, weights = rng.normal(size=(200, 3)) * [1.0, 0.6, 0.3], rng.uniform(1, 5, 200)
    unsure = users_uncertainty(factors, weights, 0.3, LEVEL, RESIDUAL)
    half = rng.normal(size=(3, 3))
    second = LEVEL.user_variance * (np.diag([0.4, 1.0, 2.0]) + 0.1 * (half + half.T)) + unsure
    before = known_of(second - unsure, 0.3)._replace(variance=rng.uniform(0.01, 0.1, (200, 3)))
    turned, known = canonical(factors, before, weights, LEVEL, RESIDUAL)
    after = np.zeros((3, 3))
    after[np.tril_indices(3)] = known.gramian[:-1]
    after += np.tril(after, -1).T
    after += users_uncertainty(turned, weights, 0.3, LEVEL, RESIDUAL)
    assert turned @ after @ turned.T == pytest.approx(factors @ second @ factors.T, rel=1e-8)
    assert not np.allclose(turned @ turned.T, factors @ factors.T, rtol=0.05)
    moments = (turned.T * weights) @ turned
    assert moments == pytest.approx(np.diag(np.diag(moments)), abs=1e-9 * moments.max())
    # variances of entries change by the same map as the factors
    there = np.linalg.lstsq(factors, turned)[0]
    assert known.variance == pytest.approx(before.variance @ there**2)
    back, drawn = np.linalg.inv(there), rng.normal(size=(4000, 3, 3))
    spread = ((back @ drawn @ back.T) ** 2).mean()
    assert known.gramian_variance[:-1] == pytest.approx(before.gramian_variance[:-1] * spread, rel=0.1)
    assert known.gramian_variance[-1] == before.gramian_variance[-1]


def test_factors_change_as_a_normal_vector_does_that_was_measured():
    """Item by item, from the joint covariance; the noise is that of the sums and of sampling."""
    rng = np.random.default_rng(5)
    slopes, values, usual = rng.uniform(0.5, 3, 6), np.array([0.2, 1.0, 3.0]), rng.uniform(0.1, 1, (6, 3))
    vectors = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    sums = rng.normal(size=(6, 3))
    found = FactorSums(sums, values, vectors, 0.6, 0.8)
    change, variance = factor_update(slopes, usual, np.zeros((6, 0)), found)
    for item in range(6):
        measured = slopes[item] * np.diag(values)
        noise = np.diag(0.36 + 0.8 * slopes[item] * values)
        prior = np.diag(usual[item])
        gain = prior @ measured @ np.linalg.inv(measured @ prior @ measured + noise)
        assert change[item] == pytest.approx(vectors @ gain @ vectors.T @ sums[item])
        assert variance[item] == pytest.approx(np.diag(prior - gain @ measured @ prior))
