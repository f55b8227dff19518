"""The best of a random number of private runs costs little more than one of them.

Papernot and Steinke 2022, "Hyperparameter tuning with Renyi differential privacy", Theorem 2. The number of
runs is drawn from a truncated negative binomial law. Each run draws its configuration and scores itself
privately. Only the best run is released, never the number of runs. The charge is proved in
docs/proofs/selection.md.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from hushrec.checks import check_numbers
from hushrec.errors import BudgetError, InputError
from hushrec.privacy.accounting import mu_of, mu_of_pure, valid_delta, valid_epsilon
from hushrec.privacy.budget import Budget
from hushrec.privacy.run_count import draw_number_of_runs, log_mean, success_rate

#: Renyi orders of which the best counts; any is valid (docs/proofs/selection.md).
_ORDERS = 1 + np.geomspace(1e-3, 1e5, 4000)
_SAFETY = 1e-9  # relative: more than the rounding of `selection_epsilon`
#: A mean of 1 is no choice, and a million runs take too long.
_MEANS = "[1.00001, 1e6]"
#: Beyond 100 the number of runs is nearly Poisson's.
_SHAPES = "[0, 100]"
#: Below this float64 has not enough digits of it; 0 has the same law.
_LEAST_SHAPE = 1e-300
_SLACK = 1e-12  # of log_mean


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
    shape : float
        Shape of the truncated negative binomial law of their number, from 0 (logarithmic: cheapest, most
        uneven) over 1 (geometric) to 100; nothing between 0 and 1e-300.

    Examples
    --------
    >>> best = hushrec.privacy.RepeatAndSelect(run_epsilon=1, delta=1e-6, mean_runs=10)
    >>> best.epsilon > 1                                          # the best of ten costs more than one
    True
    """

    run_epsilon: float
    delta: float
    mean_runs: float
    shape: float = 1.0
    norm: ClassVar[str] = "selection"

    def __post_init__(self) -> None:
        object.__setattr__(self, "run_epsilon", valid_epsilon(self.run_epsilon))
        object.__setattr__(self, "delta", valid_delta(self.delta))
        check_numbers(mean_runs=(self.mean_runs, float, _MEANS), shape=(self.shape, float, _SHAPES))
        if 0 < self.shape < _LEAST_SHAPE:
            raise InputError(f"shape must be 0, or from {_LEAST_SHAPE:g} to 100, not {self.shape:g}.")
        object.__setattr__(self, "mean_runs", float(self.mean_runs))
        object.__setattr__(self, "shape", float(self.shape))

    @classmethod
    def within(cls, budget: Budget, mean_runs: float, shape: float = 1.0) -> "RepeatAndSelect":
        """The largest runs whose selection fits a budget and takes the whole reserve."""
        if not budget.private:
            return cls(math.inf, budget.delta, mean_runs, shape)
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
            if middle > 0 and cls(middle, delta, mean_runs, shape).epsilon <= budget.epsilon:
                low = middle
            else:
                high = middle
        if low == 0:
            raise InputError(
                f"Choosing among {mean_runs:g} expected runs does not fit epsilon = {budget.epsilon:g} at"
                f" delta = {delta:g}; tune on generated or public data, or expect fewer runs."
            )
        return cls(low, delta, mean_runs, shape)

    @cached_property
    def run_mu(self) -> float:
        """Budget of one run in Gaussian differential privacy."""
        return mu_of(self.run_epsilon, self.delta)

    @cached_property
    def epsilon(self) -> float:
        """Cost of the whole at `delta`, rounded up."""
        return selection_epsilon(self.run_mu, self.delta, self.mean_runs, self.shape)

    @property
    def failure(self) -> float:
        """Chance up to which `epsilon` and `mu` hold: it is taken from the budget's delta."""
        return self.delta

    @cached_property
    def mu(self) -> float:
        """Cost in Gaussian differential privacy, but for a chance of `failure`."""
        return mu_of_pure(self.epsilon)

    def noise_sd(self, sensitivity: float) -> float:
        return sensitivity / self.run_mu if math.isfinite(self.run_mu) else 0.0

    def draw_number_of_runs(self) -> int:
        """Draw how many runs to make, from the operating system's generator. Do not show it to anyone."""
        return draw_number_of_runs(self.mean_runs, self.shape)


def selection_epsilon(run_mu: float, delta: float, mean_runs: float, shape: float) -> float:
    """Epsilon at `delta` of the best of a random number of mu-GDP runs (Theorem 2 and Canonne et al. 2020).

    A mu-GDP run is (order, order mu^2/2)-Renyi-DP for every order. The second order of the theorem enters as
    (1 + shape) ((order - 1) mu^2/2 + log(1/gamma)/order), which is least at sqrt(2 log(1/gamma)) / mu.
    """
    if run_mu == math.inf:
        return math.inf
    log_gamma = -math.log(success_rate(mean_runs, shape))
    # the mean of the drawn law: its gamma is a float64, and its logarithm is rounded
    logarithm = max(math.log(mean_runs), log_mean(-log_gamma, shape)) + _SLACK
    second = max(1.0, math.sqrt(2 * log_gamma) / run_mu)
    constant = (1 + shape) * ((second - 1) * run_mu**2 / 2 + log_gamma / second)
    renyi = _ORDERS * run_mu**2 / 2 + constant + logarithm / (_ORDERS - 1)
    epsilons = renyi + np.log1p(-1 / _ORDERS) - (math.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1)
    return max(0.0, float(epsilons.min())) * (1 + _SAFETY)
