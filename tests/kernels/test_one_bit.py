"""One-bit kernels against finite differences and SciPy."""

import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit, ndtr

from hushrec.kernels import one_bit
from hushrec.kernels.one_bit import CURVATURE, likelihood


@pytest.mark.parametrize("flips", [(0.0, 0.0), (0.1, 0.3), (0.0, 0.2)])
@pytest.mark.parametrize("link", CURVATURE)
def test_loss_and_slope(link, flips):
    x = np.linspace(-4, 4, 41)
    h = expit(x) if link == "logistic" else ndtr(x)
    seen = h * (1 - flips[0]) + (1 - h) * flips[1]
    for target in (0.0, 1.0, 0.3):
        loss, slope = likelihood(x, np.full(41, target), link, flips)
        assert loss == pytest.approx(-target * np.log(seen) - (1 - target) * np.log(1 - seen), rel=1e-9)
        step = 1e-6
        change = [likelihood(x + s, np.full(41, target), link, flips)[0] for s in (step, -step)]
        assert slope == pytest.approx((change[0] - change[1]) / (2 * step), rel=1e-6, abs=1e-7)


def test_a_radius_lost_to_rounding_leaves_nothing():
    values = np.array([1e30, 1e29, 1.0])
    assert np.maximum(values - one_bit.soft_threshold_for(values, 1e-3), 0).sum() == 0


@pytest.mark.parametrize("link", CURVATURE)
def test_a_users_own_regression(link):
    rng = np.random.default_rng(0)
    factors, offset, ridge = rng.standard_normal((12, 3)), rng.standard_normal(12), np.array([1.0, 2.0, 0.5])
    indptr, indices = np.array([0, 5, 5, 12]), np.array([0, 2, 3, 7, 9, 1, 2, 4, 5, 8, 10, 11])
    target = (rng.random(12) < 0.5).astype(float)
    solved = one_bit.regress_labels(indptr, indices, target, factors, offset, ridge, link, iterations=300)
    for row in range(3):
        mine = slice(indptr[row], indptr[row + 1])
        columns = indices[mine]

        def value(x, columns=columns, mine=mine):
            loss = likelihood(offset[columns] + factors[columns] @ x, target[mine], link)[0].sum()
            return loss + 0.5 * x @ (ridge * x)

        expected = optimize.minimize(value, np.zeros(3), method="BFGS", options={"gtol": 1e-8}).x
        assert solved[row] == pytest.approx(expected, abs=1e-5)


def test_the_radius_is_what_is_left_above_the_threshold():
    """Against bisection; where the sum is no more than the radius, nothing is taken off."""
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 40):
        values = rng.exponential(size=size)
        for radius in (0.01, 0.3 * values.sum(), 0.9 * values.sum()):
            found = one_bit.soft_threshold_for(values, radius)
            solved = optimize.brentq(lambda t, v=values, r=radius: np.maximum(v - t, 0).sum() - r, 0, 99)
            assert found == pytest.approx(solved, abs=1e-9) and isinstance(found, float)
        for radius in (values.sum(), 2 * values.sum()):
            assert one_bit.soft_threshold_for(values, radius) == 0.0
