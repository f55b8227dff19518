"""A5: the accountant against independent hands: mpmath with 60 digits, dp-accounting's PLD, OpenDP."""

import math
from fractions import Fraction
from statistics import NormalDist

import mpmath
import numpy as np
import pytest

from hushrec.errors import InputError
from hushrec.privacy import delta_of, epsilon_of, mu_of, mu_of_pure, total_mu

# noise for one release of sensitivity 1, from the PLD accountant and the analytic formula
GOLDEN = {
    1e-5: {0.1: 30.7496, 1: 3.73063, 5: 0.89187, 10: 0.49989, 20: 0.29004},
    1e-6: {0.1: 36.3047, 1: 4.22468, 5: 0.98005, 10: 0.54109, 20: 0.30908},
}
HALF_OF_1E_12 = 1 + 5e-13  # the slack of the budget filter, in mu


@pytest.fixture(autouse=True)
def sixty_digits():
    with mpmath.workdps(60):
        yield


def exact_delta(mu, epsilon):
    mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
    x, y = mu / 2 - epsilon / mu, mu / 2 + epsilon / mu
    return mpmath.ncdf(x) - mpmath.exp(epsilon) * mpmath.ncdf(-y)


def random_pairs(count):
    """Log-uniform mu in [1e-6, 1e4], with epsilons for all delta in (1e-300, 1)."""
    generator = np.random.default_rng(0)
    mus = 10 ** generator.uniform(-6, 4, count)
    x = np.where(
        generator.random(count) < 0.5, generator.uniform(-37, 8, count), generator.normal(0, 2, count)
    )
    epsilons = np.maximum(mus * (mus / 2 - x), 0)  # delta(epsilon) is near Phi(x)
    return [(mu, epsilon) for mu, epsilon in zip(mus.tolist(), epsilons.tolist())]


@pytest.mark.parametrize("delta", GOLDEN)
def test_golden_table(delta, record_property):
    record_property("golden", len(GOLDEN[delta]))
    for epsilon, noise in GOLDEN[delta].items():
        assert 1 / mu_of(epsilon, delta) == pytest.approx(noise, rel=1e-4)


def test_delta_agrees_with_mpmath(record_property):
    """Killed: Phi(-mu/2 + epsilon/mu) (SmartNoise's sign), and plain ndtr differences."""
    corners = [(m, m * m / 2 + m * x) for m in (1e-6, 1e-3, 0.999, 1.0, 1e4) for x in (0, 1.414, 2, 20, 37)]
    corners += [(mu, epsilon) for mu in np.geomspace(0.01, 10, 15) for epsilon in np.geomspace(1e-3, 50, 15)]
    largest = 0.0
    for mu, epsilon in random_pairs(600) + corners:
        exact = exact_delta(mu, epsilon)
        if exact > 1e-300:
            error = abs(delta_of(mu, epsilon) / exact - 1)
            assert error < 1e-10, (mu, epsilon)
            largest = max(largest, float(error))
    record_property("largest relative error", largest)
    record_property("with mpmath", 600 + len(corners))


def test_mu_of_is_safe_and_close(record_property):
    """Killed: returning the other end of the bracket, and no safety margin."""
    generator = np.random.default_rng(1)
    epsilons = np.r_[10 ** generator.uniform(-4, 3, 300), 1e-9, 1e6]
    deltas = np.r_[
        10 ** generator.uniform(-12, 0, 150), 10 ** generator.uniform(-300, -1, 150), 1 - 1e-12, 1e-300
    ]
    for epsilon, delta in zip(epsilons.tolist(), deltas.tolist()):
        mu = mu_of(epsilon, delta)
        assert exact_delta(mu * HALF_OF_1E_12, epsilon) <= delta
        assert exact_delta(mu * (1 + 1e-9), epsilon) >= delta or delta > 0.999
    record_property("calibrations", len(epsilons))


def test_epsilon_of_is_safe_and_close():
    """Killed: rounding epsilon down."""
    for mu, epsilon in random_pairs(300):
        delta = delta_of(mu, epsilon)
        if 1e-300 < delta < 0.999:
            found = epsilon_of(mu, delta)
            assert exact_delta(mu, found) <= delta
            slack = 1e-9 * found + 1e-9 * mu
            assert found <= slack or exact_delta(mu, found - slack) >= delta


def test_the_margins_are_those_that_are_declared():
    """Margins are 1e-10 of delta, 2e-12 of mu, twice the slack of the budget filter, and 1e-12 of epsilon."""
    mu = mu_of(1.0, 0.3)
    assert 1 - 1.2e-10 < exact_delta(mu, 1.0) / 0.3 < 1 - 0.9e-10
    # so far out, delta moves a thousand times as fast as mu: its own margin is nothing
    mu = mu_of(1.0, 1e-300)
    assert exact_delta(mu * (1 + 1.5e-12), 1.0) <= 1e-300 <= exact_delta(mu * (1 + 2.5e-12), 1.0)
    epsilon = epsilon_of(0.03, 1e-300)
    assert exact_delta(0.03, epsilon * (1 - 0.8e-12)) <= 1e-300 <= exact_delta(0.03, epsilon * (1 - 1.5e-12))
    assert mu_of_pure(1.5e308) == pytest.approx(math.sqrt(8) * math.sqrt(1.5e308))
    for epsilon in (1e300, 1.5e308):  # finite, so no word for no privacy
        assert 1.5e-12 < 1 - mu_of(epsilon, 1e-6) / 1e4 < 2.5e-12
    at_zero = 2 * NormalDist().inv_cdf(0.5 + 0.25e-6)  # delta 0.5e-6 at epsilon 0
    assert epsilon_of(at_zero, 0.51e-6) == 0.0 < epsilon_of(at_zero, 0.49e-6)


def test_ends_and_bad_parameters():
    assert mu_of(math.inf, 1e-6) == math.inf == epsilon_of(math.inf, 1e-6)
    assert epsilon_of(0.0, 1e-6) == 0.0 == delta_of(0.0, 0.5) == delta_of(1.0, math.inf) == total_mu([])
    assert delta_of(math.inf, 1.0) == 1.0 and total_mu([0.1] * 100) == pytest.approx(1.0, rel=1e-15)
    for call, valid in ((delta_of, 1.0), (epsilon_of, 0.5), (mu_of, 0.5)):
        for bad in (None, True, "1", math.nan, -1.0, 10**400, [1.0]):
            for parameters in ((bad, valid), (valid, bad)):
                with pytest.raises(InputError):
                    call(*parameters)


def test_beyond_the_range_of_the_formula_is_its_bound():
    """mu (mu/2 + sqrt(2 log(1/delta))), rounded up; at the end of the range it is the formula still."""
    for mu, delta in ((1.01e4, 1e-6), (2e4, 0.3), (1e9, 1e-300)):
        bound = mpmath.mpf(mu) * (mpmath.mpf(mu) / 2 + mpmath.sqrt(-2 * mpmath.log(delta)))
        assert 5e-13 < epsilon_of(mu, delta) / bound - 1 < 1.5e-12
    assert 0.99e-6 < exact_delta(1e4, epsilon_of(1e4, 1e-6)) <= 1e-6


def test_agrees_with_pld(record_property):
    """The exact figure is between the PLD accountant's lower and upper bounds, give or take 1e-6."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    generator = np.random.default_rng(2)
    for _ in range(60):
        noise, delta = float(generator.uniform(0.4, 12)), float(10 ** generator.uniform(-9, -2))
        below, above = (
            pld.from_gaussian_mechanism(noise, value_discretization_interval=1e-3, pessimistic_estimate=more)
            for more in (False, True)
        )
        found = epsilon_of(1 / noise, delta)
        assert found - below.get_epsilon_for_delta(delta) >= -1e-6
        assert found - above.get_epsilon_for_delta(delta) <= 1e-6
    record_property("with PLD", 60)


def test_opendp_has_no_smaller_epsilon_for_any_number_of_releases(record_property):
    """It adds rho up and converts it, which costs at most a quarter more, and little where epsilon is 0."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    for noise in np.geomspace(0.3, 100, 10):
        for releases in (1, 7):
            composed = dp.c.make_composition([dp.m.make_gaussian(*space, scale=noise)] * releases)
            curve = dp.c.make_zCDP_to_approxDP(composed).map(1.0)
            mu = total_mu([1 / noise] * releases)
            for delta in 10.0 ** -np.arange(1, 11):
                ours = epsilon_of(mu, delta)
                assert ours <= curve.epsilon(delta) <= 1.25 * ours + mu / 2
    record_property("with OpenDP", 200)


def test_the_sum_of_squares_is_that_of_fractions():
    """The ledger's sum, whatever the order and the sizes, to the last bits of float64."""
    generator = np.random.default_rng(4)
    for count in (1, 2, 50, 10_000):
        mus = (10 ** generator.uniform(-12, 3, count)).tolist()
        exact, found = sum(Fraction(mu) ** 2 for mu in mus), Fraction(total_mu(mus))
        assert abs(found**2 / exact - 1) <= Fraction(1, 2**50)
        assert total_mu(mus) == total_mu(sorted(mus)) == total_mu(mus[::-1])


def test_mixtures_are_dominated():
    """Gaussian, Laplace and randomized response together, by PLD, never cost more than their mu^2.

    Killed: the zCDP-like mu = epsilon for a pure release (too small by a factor of up to 1.25).
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    generator, grid = np.random.default_rng(3), {"value_discretization_interval": 1e-3}
    for _ in range(10):
        noise, scale, flips = generator.uniform((1, 0.7, 0.1), (6, 6, 3)).tolist()
        together = pld.from_gaussian_mechanism(noise, **grid)
        together = together.compose(pld.from_laplace_mechanism(scale, **grid))
        together = together.compose(pld.from_randomized_response(2 / (1 + math.exp(flips)), 2, **grid))
        mu = total_mu([1 / noise, mu_of_pure(1 / scale), mu_of_pure(flips)])
        for epsilon in (0.5, 1, 2, 4):
            # the PLD is rounded up to its grid, three times 1e-3 at most
            assert together.get_delta_for_epsilon(epsilon) <= delta_of(mu, epsilon - 3e-3) + 1e-12


def test_pure_mu_touches_the_kink():
    """mu_of_pure is the smallest mu with a trade-off curve below that of epsilon-DP."""
    for epsilon in np.r_[10 ** np.linspace(-9, 2.8, 60), 0.999, 1.001].tolist():
        mu = mpmath.mpf(mu_of_pure(epsilon))
        kink = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        # G_mu(kink) <= kink, by the symmetry of G_mu just when Phi(-mu/2) <= kink
        assert mpmath.ncdf(-mu / 2) <= kink
        assert mpmath.ncdf(-mu * (1 - mpmath.mpf("1e-11")) / 2) >= kink


def test_pure_mu_dominates_the_whole_curve():
    for epsilon in (0.01, 0.3, 1.0, 4.0, 12.0):
        mu = mpmath.mpf(mu_of_pure(epsilon))
        for a in np.linspace(1e-6, 1 - 1e-6, 41).tolist():
            gaussian = mpmath.ncdf(-mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(a) - 1) - mu)
            pure = max(0, 1 - mpmath.exp(epsilon) * a, mpmath.exp(-epsilon) * (1 - mpmath.mpf(a)))
            assert gaussian <= pure
