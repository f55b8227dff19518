"""The numbers of docs/papers/errata.md for the Frank-Wolfe paper, against dp-accounting and a search."""

import math

import numpy as np
import pytest
from dp_accounting import gaussian_mechanism

from benchmarks.reproduce_frank_wolfe import (
    gradient_row_norms,
    printed_gradient_mu,
    printed_mu,
    printed_oja_mu,
    true_epsilon,
)


def oracle(mu: float) -> float:
    return gaussian_mechanism.get_epsilon_gaussian(1 / mu, 1e-6)


@pytest.mark.parametrize(
    "nominal, add_remove, replace",
    [(0.1, 0.046, 0.067), (1, 0.545, 0.790), (2, 1.148, 1.672), (5, 3.128, 4.617)],
)
def test_e1(nominal: float, add_remove: float, replace: float) -> None:
    """T releases of 4 L^2 (times sqrt(2)) at sd L^2 sqrt(64 T ln(1/delta)) / epsilon."""
    for relation, expected in ((1.0, add_remove), (math.sqrt(2), replace)):
        mu = math.sqrt(17 * (relation * 4 / (math.sqrt(64 * 17 * math.log(1e6)) / nominal)) ** 2)
        assert printed_mu(nominal) * relation == pytest.approx(mu)
        assert true_epsilon(mu) == pytest.approx(oracle(mu), rel=1e-6)
        assert true_epsilon(mu) == pytest.approx(expected, abs=6e-4)


def test_e1_is_more_than_nominal_at_the_end_that_the_paper_allows() -> None:
    end = 2 * math.log(1e6)
    assert true_epsilon(printed_mu(end) * math.sqrt(2)) > 38 > end


@pytest.mark.parametrize(
    "nominal, steps, expected", [(1, 1, 0.254), (1, 10, 0.873), (1, 50, 2.089), (5, 50, 13.26)]
)
def test_o2(nominal: float, steps: int, expected: float) -> None:
    assert oracle(printed_oja_mu(nominal, 100, steps)) == pytest.approx(expected, rel=2e-3)


def test_s1() -> None:
    assert oracle(printed_mu(1.0) / 4) == pytest.approx(0.124, abs=5e-4)


def test_p2() -> None:
    """Rows of Algorithm 5 outgrow 2 L, the bound that its noise assumes."""
    norms = gradient_row_norms(1.0, 50)
    assert [norms[steps - 1] for steps in (5, 10, 20, 50)] == pytest.approx(
        [1.60, 2.22, 3.14, 4.97], abs=0.006
    )
    assert max(gradient_row_norms(0.1, 50)) < 1.0
    assert oracle(printed_gradient_mu(1.0, 1.0, 50)) == pytest.approx(2.188, abs=2e-3)


def test_p2_no_projection_does_worse_in_a_search() -> None:
    """The recursion is the greedy worst case: random contractions stay below it, its own ones attain it."""
    rng = np.random.default_rng(0)
    bound, largest = gradient_row_norms(1.0, 6), 0.0
    for _ in range(2000):
        row = np.zeros(2)  # observed, unobserved
        for step in range(6):
            row[0] = 1.0  # a whole gradient step to the target
            assert np.linalg.norm(row) <= bound[step] * (1 + 1e-12)
            largest = max(largest, np.linalg.norm(row) / bound[step])
            angle = rng.uniform(0, math.pi)
            direction = np.array([math.cos(angle), math.sin(angle)])
            row = (row @ direction) * direction
    assert largest > 0.9
