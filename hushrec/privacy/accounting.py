"""Exact accounting for Gaussian differential privacy.

A release with sd = noise_multiplier * sensitivity is mu-GDP with mu = 1 / noise_multiplier. Adaptive releases
compose exactly in mu^2 (Dong, Roth and Su 2022, "Gaussian differential privacy", Theorem 4 and Corollary 2).
One conversion at the end, the analytic Gaussian formula (Balle and Wang 2018, Theorem 8),

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu),

gives the (epsilon, delta) pairs. ``mu_of`` rounds down and ``epsilon_of`` rounds up, so the promise holds for
real numbers. Proofs: docs/proofs/accounting.md.
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np
from scipy.special import erfcx, erfinv, ndtri_exp

from hushrec.checks import number
from hushrec.errors import InputError

LARGEST_MU = 1e4  # beyond it the formula loses digits
SMALLEST_DELTA = 1e-300  # the formula's error is bounded down to it
SMALLEST_MU = 1e-8  # of a budget: noise of 2^36 bounds does not fit exact sums (docs/proofs/exact-sums.md)
ROUNDING = 1e-12  # relative slack of the budget filter in mu^2; mu_of leaves room for it

_SAFETY = 1e-10  # relative: more than the error of delta_of anywhere in its range
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)  # docs/proofs/accounting.md bounds their error


def delta_of(mu: float, epsilon: float) -> float:
    """Smallest delta at which a mu-GDP mechanism is (epsilon, delta)-differentially private.

    Parameters
    ----------
    mu : float
        At least 0. For 1e-6 <= mu <= 1e4 the relative error of results above 1e-300 is below 1e-10.
    epsilon : float
        At least 0.

    Examples
    --------
    >>> round(hushrec.privacy.delta_of(mu=1.0, epsilon=3.0), 6)
    0.001537
    """
    mu = _at_least_zero("mu", mu)
    epsilon = _at_least_zero("epsilon", epsilon)
    return _delta(mu, epsilon)


def epsilon_of(mu: float, delta: float) -> float:
    """Smallest epsilon of a mu-GDP mechanism at `delta`, rounded up.

    Parameters
    ----------
    mu : float
        At least 0; ``math.inf`` gives ``math.inf``.
    delta : float
        In [1e-300, 1).

    Examples
    --------
    >>> round(hushrec.privacy.epsilon_of(mu=1.0, delta=1e-6), 2)
    4.89
    """
    return _epsilon_of(_at_least_zero("mu", mu), valid_delta(delta))


@lru_cache(maxsize=1024)  # budgets and their parts are converted again at every release
def _epsilon_of(mu: float, delta: float) -> float:
    if mu == math.inf:
        return math.inf
    target = delta * (1 - _SAFETY)
    if _delta(mu, 0.0) <= target:
        return 0.0
    # Phi(-x) <= exp(-x^2/2): an upper bound, and the answer where mu is out of the formula's range
    bound = mu * (mu / 2 + math.sqrt(-2 * math.log(target))) * (1 + ROUNDING)
    if mu > LARGEST_MU:
        return bound
    _, above = bisect(lambda epsilon: _delta(mu, epsilon) <= target, 0.0, bound)
    return above * (1 + ROUNDING)


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu, at most 1e4, for which mu-GDP implies (epsilon, delta)-DP; rounded down.

    The noise of one release is then ``sd = sensitivity / mu``.

    Parameters
    ----------
    epsilon : float
        Greater than 0; ``math.inf`` gives ``math.inf``.
    delta : float
        In [1e-300, 1).

    Examples
    --------
    >>> round(hushrec.privacy.mu_of(epsilon=3, delta=1e-6), 4)
    0.6477
    """
    return _mu_of(valid_epsilon(epsilon), valid_delta(delta))


@lru_cache(maxsize=1024)
def _mu_of(epsilon: float, delta: float) -> float:
    if epsilon == math.inf:
        return math.inf
    target = delta * (1 - _SAFETY)
    if _delta(LARGEST_MU, epsilon) <= target:
        return LARGEST_MU * (1 - 2 * ROUNDING)
    below, _ = bisect(lambda log_mu: _delta(math.exp(log_mu), epsilon) > target, -700.0, math.log(LARGEST_MU))
    return math.exp(below) * (1 - 2 * ROUNDING)


def mu_of_pure(epsilon: float) -> float:
    """Smallest mu such that every epsilon-DP mechanism (delta 0) is mu-GDP, rounded up.

    mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)); proof in docs/proofs/accounting.md, section 2.

    Examples
    --------
    >>> round(hushrec.privacy.mu_of_pure(1.0), 3)
    1.232
    """
    epsilon = _at_least_zero("epsilon", epsilon)
    if epsilon == math.inf:
        return math.inf
    if epsilon < 1:
        mu = math.sqrt(8) * float(erfinv(math.tanh(epsilon / 2)))
    else:
        mu = -2 * float(ndtri_exp(-epsilon - math.log1p(math.exp(-epsilon))))
    return mu * (1 + ROUNDING)


def total_mu(mus: Iterable[float]) -> float:
    """Exact composition: the square root of the sum of mu^2.

    Examples
    --------
    >>> hushrec.privacy.total_mu([0.3, 0.4])
    0.5
    """
    return math.sqrt(math.fsum(mu * mu for mu in mus))


def valid_epsilon(epsilon: float | None) -> float:
    advice = "pass a number greater than 0, for example 1.0, or inf as the explicit word for no privacy"
    result = number("epsilon", epsilon, advice)
    if result <= 0:
        raise InputError(f"epsilon must be greater than 0, not {result:g}; {advice}.", parameter="epsilon")
    return result


def valid_delta(delta: float | None) -> float:
    advice = "pass a number between 0 and 1, well below one over the number of users, for example 1e-6"
    result = number("delta", delta, advice)
    if not SMALLEST_DELTA <= result < 1:
        raise InputError(
            f"delta must be at least 1e-300 and less than 1, not {result:g}; {advice}.", parameter="delta"
        )
    return result


def _at_least_zero(name: str, value: float) -> float:
    result = number(name, value, "pass a number that is at least 0")
    if result < 0:
        raise InputError(f"{name} must be at least 0, not {result:g}.", parameter=name)
    return result


def _delta(mu: float, epsilon: float) -> float:
    """The analytic Gaussian formula without cancellation.

    With a, b = (epsilon/mu -+ mu/2) / sqrt(2) it is exp(-a^2) (erfcx(a) - erfcx(b)) / 2. For small mu the
    difference is the integral of -erfcx' > 0 over [a, b], by a Gauss-Legendre rule.
    """
    if mu == 0 or epsilon == math.inf:
        return 0.0
    if mu == math.inf:
        return 1.0
    centre, half_width = epsilon / mu / math.sqrt(2), mu / math.sqrt(8)
    a, b = centre - half_width, centre + half_width
    if a > 38:  # exp(-38^2) underflows
        return 0.0
    if a < -1:
        return 1 - math.erfc(-a) / 2 - math.exp(-a * a) * float(erfcx(b)) / 2
    if mu >= 1:
        difference = float(erfcx(a)) - float(erfcx(b))
    else:
        nodes = centre + half_width * _NODES
        slope = 2 / math.sqrt(math.pi) - 2 * nodes * erfcx(nodes)
        difference = half_width * math.fsum(_WEIGHTS * slope)
    return math.exp(-a * a) * difference / 2


def bisect(is_above: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Narrow [low, high] around the point where `is_above` turns true."""
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return low, high
        if is_above(middle):
            high = middle
        else:
            low = middle
