"""Bounds on what an attacker can learn, by what was charged."""

from __future__ import annotations

import math
from typing import Any

from scipy.special import ndtr, ndtri

#: How sure somebody is before they look, and how often a test may accuse wrongly.
SUSPICIONS, FALSE_ALARMS = (0.5, 0.01), (0.01, 0.1)


def learned(of: str, epsilon: float, delta: float, failure: float, mu: float | None) -> dict[str, Any]:
    """Return a row of the dossier: a cost, and what follows from it for any attacker.

    Parameters
    ----------
    of : str
        What costs so much.
    epsilon, delta : float
    failure : float
        Part of delta with which `mu` need not hold.
    mu : float or None
        Where it is known, the trade-off curve of Gaussian differential privacy bounds tests too.
    """
    return {
        "of": of,
        "epsilon": epsilon,
        "delta": delta,
        "failure": failure,
        "mu": mu,
        "odds": math.exp(epsilon) if epsilon < 700 else None,
        "belief": [[before, belief(before, epsilon)] for before in SUSPICIONS],
        "found": [[alarms, found(alarms, epsilon, delta, failure, mu)] for alarms in FALSE_ALARMS],
    }


def belief(before: float, epsilon: float) -> float:
    """Return what a probability becomes after the most telling outcome, but for a chance of delta."""
    return 1 / (1 + math.exp(-epsilon) * (1 - before) / before)


def found(false_alarms: float, epsilon: float, delta: float, failure: float, mu: float | None) -> float:
    """Return the largest part that a test finds which accuses `false_alarms` of all others.

    By the curve of (epsilon, delta), and where it holds by the lower one of mu (Dong, Roth and Su 2022,
    equation 5 and definition 2.6).
    """
    by_epsilon = delta + math.exp(min(epsilon, 700)) * false_alarms
    by_epsilon = min(1.0, by_epsilon, 1 - math.exp(-epsilon) * (1 - delta - false_alarms))
    if mu is None or failure:
        return by_epsilon
    return min(by_epsilon, float(ndtr(ndtri(false_alarms) + mu)))


def times(odds: float | None) -> str:
    """Write how many times, for a reader."""
    return "more than 1e300" if odds is None else f"{odds:.3g}" if odds < 1e6 else f"{odds:.1e}"
