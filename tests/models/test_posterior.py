"""Posterior estimates against loops and least squares, including odd values from noise."""

import math

import numpy as np
import pytest

from hushrec.data import Domain
from hushrec.training import posterior
from tests.models.twins import likely, likely_factor, likely_weights

RNG = np.random.default_rng(11)


@pytest.mark.parametrize(
    ("noisy", "center", "n_users"),
    [
        ((30.0, 60.0), 4.0, 60.0),
        ((30.0, 5.0), 6.0, 5.0),
        ((90.0, 60.0), 5.0, 60.0),
        ((100.0, 20.0), 6.0, 20.0),
        ((-100.0, 20.0), 1.0, 20.0),
        ((0.5, 0.2), 4.0, 1.0),
        ((-1.25, 0.0), 2.25, 1.0),
        ((2.0, -40.0), 5.5, 1.0),
    ],
)
def test_a_level_stays_within_the_range_and_is_of_one_user_at_least(noisy, center, n_users) -> None:
    """The middle is 3.5, and the sum is over users: what noise made of their number cannot turn it round."""
    domain = Domain(["a"], rating_range=(1, 6))
    assert posterior.level(np.array(noisy), domain) == pytest.approx((center, n_users))


def test_weights_below_their_noise_are_taken_for_it() -> None:
    released = np.array([-7.0, 0.0, 1.9, 2.1, 9.9, 10.1])
    weights, supported = posterior.usable_weights(released, 2.0)
    assert weights.tolist() == [2.0, 2.0, 2.0, 2.1, 9.9, 10.1]
    assert supported.tolist() == [False] * 5 + [True]
    weights, supported = posterior.usable_weights(np.array([-1.0, 0.0, 0.004, 0.02]), 0.001)
    assert weights.tolist() == [0.01, 0.01, 0.01, 0.02] and supported.tolist() == [False, False, False, True]


@pytest.mark.parametrize(("noise_sd", "n_items"), [(0.02, 3), (0.3, 1), (4.0, 6), (60.0, 2)])
def test_likely_weights_are_those_of_a_slow_twin(noise_sd: float, n_items: int) -> None:
    """Weights may all be below zero, and there may be just one."""
    weights = RNG.lognormal(1.0, 1.5, n_items)
    for released in (weights + noise_sd * RNG.standard_normal(n_items), -weights):
        found, supported, _ = posterior.item_weights(released, noise_sd)
        assert supported.tolist() == [each > 5 * noise_sd for each in released]
        if released.max() > 0.02:
            assert found == pytest.approx(likely_weights(released, noise_sd), rel=0.02)  # bins
        else:  # nothing is likely but what is smallest, and its noise
            assert found == pytest.approx(np.hypot(0.01, 0.5 * noise_sd), rel=0.5)


def test_weights_with_hardly_any_noise_are_as_they_were_released() -> None:
    released = np.array([-3.0, 0.004, 0.03, 0.06, 7.0])
    found, supported, _ = posterior.item_weights(released, 0.0099)
    assert found.tolist() == [0.01, 0.01, 0.03, 0.06, 7.0] and supported.tolist() == [False] * 3 + [True] * 2
    assert posterior.item_weights(released, 0.01)[0][4] != 7.0


def test_adaptive_weights_are_powers_of_what_is_beside_the_largest() -> None:
    found = posterior.adaptive_weights(np.array([4.0, 1.0, 16.0]), -0.5)
    assert found == pytest.approx([2.0, 4.0, 1.0])


def test_shrinkage_and_gains_are_those_of_conditioning() -> None:
    """Oracle: conditioning of jointly normal numbers by the inverse of their covariance."""
    for slope, variance, noise in RNG.uniform(0.1, 3, (5, 3)):
        covariance = np.array([[variance, slope * variance], [slope * variance, slope**2 * variance + noise]])
        gain = covariance[0, 1] / covariance[1, 1]
        found = posterior.wiener_gain(np.array([slope]), variance, np.array([noise]))
        assert found == pytest.approx([gain])
        part = posterior.shrinkage(math.sqrt(variance), math.sqrt(noise))
        assert part == pytest.approx(variance / (variance + noise))
    assert posterior.shrinkage(np.array([0.0, 1.0]), 0.0).tolist() == [0.0, 1.0]
    assert posterior.wiener_gain(np.array([0.0, 2.0]), 0.0, np.zeros(2)).tolist() == [0.0, 0.0]
    assert posterior.wiener_gain(np.array([2.0]), 3.0, np.zeros(1)).tolist() == [0.5]


def test_what_numbers_have_in_common_is_their_generalised_least_squares() -> None:
    """Prior knowledge of the coefficients counts as further measurements."""
    n_items, prior = 30, np.array([2.0, 0.5])
    slope, variance = RNG.uniform(0.2, 2, n_items), RNG.uniform(0, 1, n_items)
    noise, design = RNG.uniform(0.1, 2, n_items), RNG.normal(size=(n_items, 2))
    released = RNG.normal(size=n_items)
    found, total = posterior.regression(released, slope, design, variance, noise, np.diag(prior**-2.0))
    root = np.sqrt(noise + slope**2 * variance)
    stacked = np.vstack([slope[:, None] * design / root[:, None], np.diag(1 / prior)])
    wanted = np.linalg.lstsq(stacked, np.append(released / root, [0.0, 0.0]), rcond=None)[0]
    assert found == pytest.approx(wanted) and total == pytest.approx(stacked.T @ stacked)
    unsure = np.zeros(n_items)
    found, total = posterior.regression(unsure, unsure, design, unsure, unsure, np.eye(2))
    assert not found.any() and total.tolist() == np.eye(2).tolist()


@pytest.mark.parametrize("usual", [0.25, 0.08])
@pytest.mark.parametrize(
    "measured, noise_sd", [(0.3, 0.05), (0.1, 0.1), (-0.4, 0.2), (2.0, 0.3), (0.0, 5.0), (1.0, 0.021)]
)
def test_a_likely_variance_is_its_posterior_geometric_mean(
    measured: float, noise_sd: float, usual: float
) -> None:
    found = posterior.likely_variance(measured, noise_sd, usual)
    assert found == pytest.approx(likely(measured, noise_sd, usual), rel=0.02)
    mean = posterior.expected_variance(measured, noise_sd, usual)
    assert (
        mean == pytest.approx(likely(measured, noise_sd, usual, geometric=False), rel=0.02) and mean >= found
    )


def test_a_variance_with_hardly_any_noise_is_as_it_was_measured() -> None:
    assert posterior.likely_variance(0.37, 0.0, 0.25) == pytest.approx(0.37, rel=0.01)
    assert 0 < posterior.likely_variance(-1.0, 0.0, 0.25) < 0.01  # without noise, and below 0


@pytest.mark.parametrize("scale", [1e-3, 0.1, 0.4, 5.0, 300.0])
def test_a_likely_scale_is_its_posterior_geometric_mean(scale: float) -> None:
    """A scale beyond the grid is taken to be at its end."""
    for count in (1, 60):
        variance, noise = RNG.uniform(0.5, 2, count), RNG.uniform(0.1, 0.5, count)
        released = np.sqrt(scale * variance + noise) * RNG.standard_normal(count)
        found = posterior.likely_scale(released, variance, noise)
        assert found == pytest.approx(likely_factor(released, variance, noise), rel=2e-3)


def test_what_of_a_variance_is_not_that_of_noise() -> None:
    noisy = np.array([1.0, 3.0, 5.0])  # variance 8/3
    assert posterior.visible_part(noisy, 1.0) == pytest.approx(1 - 3 / 8)
    assert posterior.visible_part(noisy, 2.0) == 0.0 and posterior.visible_part(noisy, 0.0) == 1.0
    assert posterior.visible_part(np.ones(4), 1.0) == 0.0


def test_standardised_numbers_have_mean_0_and_variance_1() -> None:
    values, weights = RNG.normal(3, 2, 50), RNG.uniform(0.1, 2, 50)
    found = posterior.standardised(values, weights)
    assert (weights * found).sum() == pytest.approx(0.0, abs=1e-9)
    assert (weights * found**2).sum() / weights.sum() == pytest.approx(1.0)
    assert np.corrcoef(found, values)[0, 1] == pytest.approx(1.0)
    assert not posterior.standardised(np.full(5, 0.1), RNG.uniform(0.1, 2, 5)).any()  # no rounding error
