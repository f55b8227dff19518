"""Noise laws as frozen values: their noise and their cost."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hushrec.checks import check_numbers
from hushrec.privacy.accounting import mu_of_pure, valid_epsilon
from hushrec.privacy.noise import NoiseSource


@dataclass(frozen=True)
class _Additive:
    noise_multiplier: float
    failure: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check_numbers(noise_multiplier=(self.noise_multiplier, float, "[0, inf)"))
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))

    @property
    def _cost(self) -> float:
        return 1 / self.noise_multiplier if self.noise_multiplier else math.inf

    def amount(self, sensitivity: float, scale: Any) -> np.ndarray:
        """Standard deviation (for Laplace, scale) of each entry's noise."""
        with np.errstate(over="ignore"):
            return np.asarray(np.asarray(self.noise_multiplier * sensitivity) / scale)


@dataclass(frozen=True)
class Gaussian(_Additive):
    """Gaussian noise of sd `noise_multiplier` * (l2) sensitivity: exactly mu-GDP, mu = 1/noise_multiplier.

    The multiplier is finite and at least 0, which takes an infinite budget.

    Examples
    --------
    >>> noise = hushrec.Gaussian(noise_multiplier=2)              # sd is twice the sensitivity
    >>> noise.mu
    0.5
    >>> round(hushrec.privacy.epsilon_of(noise.mu, 1e-6), 2)
    2.25
    """

    norm: ClassVar[str] = "l2"

    @property
    def mu(self) -> float:
        """Cost in Gaussian differential privacy."""
        return self._cost

    @property
    def epsilon(self) -> float | None:
        """Always None."""
        return None

    def noise_sd(self, sensitivity: float) -> float:
        """Standard deviation of the noise on one entry (before its scale)."""
        return self.noise_multiplier * sensitivity

    @staticmethod
    def apply(noise: NoiseSource, value: np.ndarray, amount: np.ndarray, label: str) -> np.ndarray:
        """Add noise."""
        return noise.add_gaussian(value, amount, label)


@dataclass(frozen=True)
class Laplace(_Additive):
    """Laplace noise of scale `noise_multiplier` * (l1) sensitivity; (1/noise_multiplier)-DP with delta 0.

    The multiplier is finite and at least 0, which takes an infinite budget.

    Examples
    --------
    >>> noise = hushrec.privacy.Laplace(noise_multiplier=2)
    >>> noise.epsilon                                             # delta is 0
    0.5
    """

    norm: ClassVar[str] = "l1"

    @property
    def mu(self) -> float:
        """Cost in Gaussian differential privacy (the domination of docs/proofs/accounting.md)."""
        return mu_of_pure(self.epsilon)

    @property
    def epsilon(self) -> float:
        """Pure guarantee (delta 0)."""
        return self._cost

    def noise_sd(self, sensitivity: float) -> float:
        """Standard deviation of the noise on one entry."""
        return math.sqrt(2) * self.noise_multiplier * sensitivity

    @staticmethod
    def apply(noise: NoiseSource, value: np.ndarray, amount: np.ndarray, label: str) -> np.ndarray:
        """Add noise."""
        return noise.add_laplace(value, amount, label)


@dataclass(frozen=True)
class RandomizedResponse:
    """Each binary label is flipped with probability 1 / (1 + e^(epsilon/sensitivity)); epsilon-DP, delta 0.

    The labels of a unit (their number is the sensitivity) share `epsilon` equally. Source: Warner 1965.

    Parameters
    ----------
    epsilon : float
        Greater than 0; ``math.inf`` flips nothing and takes an infinite budget.

    Examples
    --------
    >>> noise = hushrec.privacy.RandomizedResponse(epsilon=1)
    >>> round(noise.flip_probability(1), 3)                       # 1 / (1 + e)
    0.269
    """

    epsilon: float
    norm: ClassVar[str] = "labels"
    failure: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", valid_epsilon(self.epsilon))

    @property
    def mu(self) -> float:
        """Cost in Gaussian differential privacy (the domination of docs/proofs/accounting.md)."""
        return mu_of_pure(self.epsilon)

    def flip_probability(self, sensitivity: float) -> float:
        """Probability to flip one label, rounded up."""
        odds = math.exp(-self.epsilon / sensitivity)
        return min(0.5, odds / (1 + odds) * (1 + 1e-15))

    def noise_sd(self, sensitivity: float) -> float:
        """Standard deviation of one flipped label (-1 or +1) about its mean."""
        probability = self.flip_probability(sensitivity)
        return 2 * math.sqrt(probability * (1 - probability))

    def amount(self, sensitivity: float, scale: Any) -> np.ndarray:
        """Probability of a flip."""
        return np.asarray(self.flip_probability(sensitivity))

    @staticmethod
    def apply(noise: NoiseSource, value: np.ndarray, amount: np.ndarray, label: str) -> np.ndarray:
        """Flip labels."""
        return noise.flip(value, float(amount), label)


Mechanism = Gaussian | Laplace | RandomizedResponse
"""One of the three noise laws.

Examples
--------
>>> isinstance(hushrec.Gaussian(1.0), hushrec.privacy.Mechanism)
True
"""
