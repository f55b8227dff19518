"""The best of a random number of private runs costs little more than one of them.

Papernot and Steinke 2022, "Hyperparameter tuning with Renyi differential privacy", Theorem 2, for a geometric
number of runs, which is secret. Each run scores itself privately. Proof: docs/proofs/selection.md.
"""

import math
import secrets
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from hushrec.checks import check_numbers
from hushrec.errors import BudgetError, InputError
from hushrec.privacy.accounting import mu_of, mu_of_pure, valid_delta, valid_epsilon
from hushrec.privacy.budget import Budget

#: Renyi orders, of which any is valid.
_ORDERS = 1 + np.geomspace(1e-3, 1e5, 4000)
_SAFETY = 1e-9  # relative: more than the rounding of `selection_epsilon`
_MEANS = "[1.00001, 1e6]"


@dataclass(frozen=True)
class RepeatAndSelect:
    """The best of a random number of runs, each as private as one Gaussian release of (run_epsilon, delta).

    Parameters
    ----------
    run_epsilon : float
        Budget of one run at `delta`, greater than 0.
    delta : float
        In [1e-300, 1).
    mean_runs : float
        Expected number of runs, from 1.00001 to 1e6.

    Examples
    --------
    >>> best = hushrec.privacy.RepeatAndSelect(run_epsilon=1, delta=1e-6, mean_runs=10)
    >>> best.epsilon > 1                                          # the best of ten costs more than one
    True
    """

    run_epsilon: float
    delta: float
    mean_runs: float
    norm: ClassVar[str] = "selection"

    def __post_init__(self) -> None:
        object.__setattr__(self, "run_epsilon", valid_epsilon(self.run_epsilon))
        object.__setattr__(self, "delta", valid_delta(self.delta))
        check_numbers(mean_runs=(self.mean_runs, float, _MEANS))
        object.__setattr__(self, "mean_runs", float(self.mean_runs))

    @classmethod
    def within(cls, budget: Budget, mean_runs: float) -> "RepeatAndSelect":
        """Return the selection of the largest runs that fit a budget; it takes the whole reserve."""
        if not budget.private:
            return cls(math.inf, budget.delta, mean_runs)
        if not budget.failure:
            raise BudgetError(
                "A selection can fail with a small probability, and this budget reserves no part of delta "
                f"for it; declare Budget(..., failure={budget.delta:g}), or less if Gaussian releases "
                "follow."
            )
        delta = budget.failure
        low, high = 0.0, budget.epsilon
        for _ in range(60):
            middle = (low + high) / 2
            if middle > 0 and cls(middle, delta, mean_runs).epsilon <= budget.epsilon:
                low = middle
            else:
                high = middle
        if low == 0:
            raise InputError(
                f"Choosing among {mean_runs:g} expected runs does not fit epsilon = {budget.epsilon:g} at"
                f" delta = {delta:g}; tune on generated or public data, or expect fewer runs."
            )
        return cls(low, delta, mean_runs)

    @cached_property
    def run_mu(self) -> float:
        """Budget of one run in Gaussian differential privacy."""
        return mu_of(self.run_epsilon, self.delta)

    @cached_property
    def epsilon(self) -> float:
        """Cost of the whole at `delta`, rounded up."""
        return selection_epsilon(self.run_mu, self.delta, self.mean_runs)

    @property
    def failure(self) -> float:
        """Chance of failure, taken from the budget's delta."""
        return self.delta

    @cached_property
    def mu(self) -> float:
        """Cost in Gaussian differential privacy."""
        return mu_of_pure(self.epsilon)

    def noise_sd(self, sensitivity: float) -> float:
        return sensitivity / self.run_mu if math.isfinite(self.run_mu) else 0.0

    def draw_number_of_runs(self) -> int:
        """Draw the number of runs from the operating system's generator. It is secret."""
        expected, runs = Fraction(self.mean_runs), 1
        while secrets.randbelow(expected.numerator) >= expected.denominator:  # with chance 1 - 1 / expected
            runs += 1
        return runs


def selection_epsilon(run_mu: float, delta: float, mean_runs: float) -> float:
    """Epsilon at `delta` of the best of a random number of mu-GDP runs.

    Papernot and Steinke 2022, Theorem 2; converted to epsilon by Canonne et al. 2020. A mu-GDP run is
    (order, order mu^2/2)-Renyi-DP. The theorem's second order adds 2 ((order - 1) mu^2/2 + log(mean)/order),
    which is least at sqrt(2 log(mean)) / mu.
    """
    if run_mu == math.inf:
        return math.inf
    logarithm = math.log(mean_runs)
    second = max(1.0, math.sqrt(2 * logarithm) / run_mu)
    constant = 2 * ((second - 1) * run_mu**2 / 2 + logarithm / second)
    renyi = _ORDERS * run_mu**2 / 2 + constant + logarithm / (_ORDERS - 1)
    epsilons = renyi + np.log1p(-1 / _ORDERS) - (math.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1)
    return max(0.0, float(epsilons.min())) * (1 + _SAFETY)
