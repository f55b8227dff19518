"""The numbers of docs/papers/errata.md for the Frank-Wolfe paper, against dp-accounting and a search."""

import math

import numpy as np
import pytest
from dp_accounting import gaussian_mechanism

from benchmarks.reproduce_frank_wolfe import gradient_row_norms, printed_mu, true_epsilon


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
