"""The audits' statistics against slow twins and simulations."""

import math

import numpy as np
import pytest
from scipy import stats

from hushrec.audit.bounds import area_under_curve, epsilon_lower_bound, mu_lower_bound, one_run_p_value


def slow_p_value(m, r, v, epsilon, delta):
    """The algorithm of Steinke, Nasr and Jagielski 2023 (appendix D), word by word."""
    right = 1 / (1 + math.exp(-epsilon))
    beta = stats.binom.sf(v - 1, r, right)
    alpha = total = 0.0
    for i in range(1, v + 1):
        total += stats.binom.pmf(v - i, r, right)
        alpha = max(alpha, total / i)
    return min(1.0, beta + alpha * delta * 2 * m)


def test_one_run_p_value():
    generator = np.random.default_rng(0)
    for _ in range(200):
        guesses = int(generator.integers(1, 300))
        correct = int(generator.integers(0, guesses + 1))
        epsilon, delta = float(generator.uniform(0, 6)), float(10 ** generator.uniform(-8, -2))
        ours = one_run_p_value(1000, guesses, correct, epsilon, delta)
        assert ours == pytest.approx(slow_p_value(1000, guesses, correct, epsilon, delta), rel=1e-9)


def test_one_run_bound():
    """A published figure: 1,000 of 1,000 right at 95 % gives 5.81. Killed: one canary too many, no delta."""
    assert epsilon_lower_bound(1000, 1000, 1000, 0.0, 0.05) == pytest.approx(5.81, abs=0.005)
    assert epsilon_lower_bound(1000, 200, 100, 1e-5, 0.001) == 0.0
    bound = epsilon_lower_bound(1000, 200, 160, 1e-5, 0.001)
    assert (
        slow_p_value(1000, 200, 160, bound - 1e-6, 1e-5)
        <= 0.001
        < slow_p_value(1000, 200, 160, bound + 1e-6, 1e-5)
    )


def test_mu_bound_is_safe_and_close():
    """Samples are of N(0, 1) and N(mu, 1); the rates' upper ends are SciPy's. Killed: alpha not divided."""
    generator = np.random.default_rng(1)
    passed = 0
    for _ in range(400):
        mu = float(generator.uniform(0, 2))
        first, second = mu + generator.standard_normal(500), generator.standard_normal(500)
        thresholds = mu / 2 + np.array([-0.5, 0.0, 0.5])
        bound = mu_lower_bound(first, second, thresholds, 0.2)
        passed += bound > mu
        each = 0.2 / 6
        by_hand = 0.0
        for threshold in thresholds:
            ends = [
                stats.binomtest(int(hits), 500, alternative="less").proportion_ci(1 - each, "exact").high
                for hits in ((first <= threshold).sum(), (second > threshold).sum())
            ]
            by_hand = max(by_hand, -stats.norm.ppf(ends[0]) - stats.norm.ppf(ends[1]))
        assert bound == pytest.approx(by_hand, abs=1e-9)
    assert passed <= 80  # one in five at most, by the bound; in fact it is far less
    far = mu_lower_bound(np.full(1000, 9.0), np.zeros(1000), np.array([1.0]), 1e-6)
    assert 4 < far < 6
    assert mu_lower_bound(np.zeros(10), np.zeros(10), np.array([1.0]), 1e-6) == 0.0


def test_area_under_curve():
    members, others = np.array([1.0, 2, 3, 3]), np.array([0.0, 2, 3])
    wins = sum((a > b) + (a == b) / 2 for a in members for b in others)
    assert area_under_curve(members, others) == wins / 12
