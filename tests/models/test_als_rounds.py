"""The server's steps of private ALS alone, against their definitions."""

import numpy as np
import pytest

from hushrec.models.private_als.updates import (
    FactorSums,
    KnownFactors,
    Level,
    canonical,
    factor_update,
    residual_variance,
    spectrum,
    users_uncertainty,
    weighted_slopes,
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


def test_factors_are_exact_without_noise_and_move_less_with_more() -> None:
    rng = np.random.default_rng(6)
    slopes, values, usual = rng.uniform(0.5, 3, 6), np.array([0.2, 1.0, 3.0]), np.ones((6, 3))
    vectors, wanted = np.linalg.qr(rng.normal(size=(3, 3)))[0], rng.normal(size=(6, 3))
    sums = slopes[:, None] * (wanted @ vectors * values) @ vectors.T
    lengths = []
    for noise_sd, residual in ((1e-9, 0.0), (0.3, 0.0), (0.3, 0.5), (3.0, 0.5), (1e9, 0.5)):
        released = FactorSums(sums, values, vectors, noise_sd, residual)
        change, variance = factor_update(slopes, usual, np.zeros((6, 0)), released)
        lengths.append(np.linalg.norm(change))
        assert (variance <= 1).all()
    assert lengths == sorted(lengths, reverse=True) and lengths[-1] == pytest.approx(0.0, abs=1e-6)
    assert lengths[0] == pytest.approx(np.linalg.norm(wanted))


def test_a_residual_variance_is_exact_without_noise_and_the_last_one_with_much() -> None:
    found = [residual_variance(np.array([300.0]), 0.8, 1.6, 1000.0, sd) for sd in (0.0, 200.0, 600.0)]
    assert found[0] == pytest.approx(0.3) and found == sorted(found) and found[-1] >= 0.6
    for sd in (1.0, 50.0, 1e4):  # never below the error of its release
        assert residual_variance(np.array([-5000.0]), 0.8, 1.6, 1000.0, sd) >= 1.6 * sd / 1000


def test_second_moments_are_those_of_users_and_of_what_is_not_known_of_them() -> None:
    rng = np.random.default_rng(7)
    users = rng.normal(size=(1000, 3)) * [0.3, 0.2, 0.1]
    gram = users.T @ users
    released = np.append(gram[np.tril_indices(3)], 400.0)
    values, vectors, unknown = spectrum(released, 0.0, 1000.0, LEVEL)
    assert unknown == pytest.approx(0.4 * LEVEL.user_variance)
    assert (vectors * values) @ vectors.T == pytest.approx(gram / 1000 + unknown * np.eye(3))
    assert (spectrum(released - 1e4, 5.0, 1000.0, LEVEL)[0] >= LEVEL.spread**2 * 5.0 / 1000).all()


def test_slopes_are_item_weights_if_all_cells_weigh_alike() -> None:
    weights = np.array([1.0, 4.0, 9.0])
    assert weighted_slopes(weights, np.full(3, 0.2)) == pytest.approx(weights)
    users = np.sqrt(np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]) / 2)  # two users, each of norm 1
    assert weighted_slopes(users.sum(axis=0), np.ones(3)) == pytest.approx(users.sum(axis=0))
