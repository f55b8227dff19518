"""Bounds on what an attacker can learn, computed from the charges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from hushrec.privacy import Budget, PrivacyStatement, delta_of, mu_of, total_mu
from hushrec.privacy.budget import Charge, Cost, belief, composed_epsilon

#: Prior suspicions, and rates of false accusations of a test.
SUSPICIONS, FALSE_ALARMS = (0.5, 0.01), (0.01, 0.1)


def own(statement: PrivacyStatement) -> dict[str, Any]:
    """Return the row of a model, with the earlier weeks of its season."""
    return _row("model" if statement.week is None else "season", statement.releases, statement.budget.delta)


def together(book: dict[str, Any], delta: float) -> list[dict[str, Any]]:
    """Return the rows of all models so far and of everything promised, from a dossier's ledger part.

    Delta is that of the data set's budget, or else the given one. It is increased by the failure
    probabilities of selections if these leave nothing of it.
    """
    limit, still = book["budget"], [each for each in book["seasons"] if not each["closed"]]
    costs = {row[0]: Charge(*row[7:10]) for row in book["charges"]}
    if limit is not None:
        delta = limit["delta"]
    elif composed_epsilon(costs.values(), delta) == math.inf:
        delta += math.fsum(each.failure for each in costs.values())
    rows = [_row("so far", list(costs.values()), delta)]
    if book["closed"]:
        return rows
    if limit is not None:
        budget = _budget(book, **limit)
        # with a release that is not pure the budget is a limit on mu
        mu = budget.mu if any(each.epsilon is None for each in costs.values()) else None
        rows.append(learned("budget", budget.epsilon, budget.delta, budget.failure, mu))
    elif still:
        names = {each["name"] for each in still}
        outside = [costs[row[0]] for row in book["charges"] if row[12] not in names]
        whole = [_budget(book, *(each[key] for key in ("epsilon", "delta", "failure"))) for each in still]
        weeks = [Charge(each.mu, None, each.failure) for each in whole]
        rows.append(_row("weeks", [*outside, *weeks], delta))
    return rows


def _budget(book: dict[str, Any], epsilon: float, delta: float, failure: float) -> Budget:
    return Budget(epsilon, delta, book["unit"], book["relation"], failure)


def _row(of: str, costs: Sequence[Cost], delta: float) -> dict[str, Any]:
    failure, mu = math.fsum(each.failure for each in costs), total_mu(each.mu for each in costs)
    return learned(of, composed_epsilon(costs, delta), delta, failure, mu)


def learned(of: str, epsilon: float, delta: float, failure: float, mu: float | None) -> dict[str, Any]:
    """Return a row of the dossier: a privacy cost, and its bounds on any attacker.

    Parameters
    ----------
    of : {"model", "season", "so far", "budget", "weeks"}
        Name of the trainings that have this cost: this model, it and the earlier weeks of its season, all so
        far, all that the budget allows, or all so far and all weeks to come.
    epsilon, delta : float
    failure : float
        Part of delta: the probability that `mu` does not hold.
    mu : float or None
        If known, the trade-off curve of Gaussian differential privacy bounds tests too.
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


def exceeded(level: dict[str, Any]) -> float:
    """Return the probability of an outcome after which a belief exceeds `belief`.

    Delta bounds the increase in probability of such outcomes, not their probability. For mu, the probability
    follows from the point at which the trade-off curve has the slope of the odds. Pure releases have none.
    """
    epsilon, delta = level["epsilon"], level["delta"] - level["failure"]
    mu = mu_of(epsilon, delta) if level["mu"] is None else level["mu"]
    if not mu or delta_of(mu, epsilon) > delta:
        return float(level["failure"])
    at = brentq(lambda at: log_ndtr(mu - at) - log_ndtr(-at) - epsilon, -40.0, epsilon / mu + mu + 40.0)
    return float(level["failure"] + ndtr(mu - at))


def found(false_alarms: float, epsilon: float, delta: float, failure: float, mu: float | None) -> float:
    """Return the largest true-positive rate of a test with a false-positive rate of `false_alarms`.

    From the trade-off curve of (epsilon, delta), and from the tighter one of mu where it holds (Dong, Roth
    and Su 2022, equation 5 and definition 2.6).
    """
    by_epsilon = delta + math.exp(min(epsilon, 700)) * false_alarms
    by_epsilon = min(1.0, by_epsilon, 1 - math.exp(-epsilon) * (1 - delta - false_alarms))
    if mu is None or failure:
        return by_epsilon
    return min(by_epsilon, float(ndtr(ndtri(false_alarms) + mu)))
