"""Bounds on what an attacker can learn, computed from the charges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from scipy.special import ndtr, ndtri

from hushrec.privacy import Budget, PrivacyStatement, delta_of, epsilon_of, mu_of, total_mu
from hushrec.privacy.budget import Charge, Cost, belief, composed_epsilon, exceeded
from hushrec.privacy.ledger_records import Row
from hushrec.privacy.season import Season, of_one_user

#: Prior suspicions, and rates of false accusations of a test.
SUSPICIONS, FALSE_ALARMS = (0.5, 0.01), (0.01, 0.1)


def of_model(statement: PrivacyStatement) -> dict[str, Any]:
    """Return the row of a model, or of all models of its season."""
    budget = statement.budget
    if statement.week is not None:
        return learned("season", budget.epsilon, budget.delta, 0.0, budget.mu)
    return _row("model", statement.releases, budget.delta)


def of_a_user(book: dict[str, Any], charges: Iterable[Sequence[Any]]) -> list[Cost]:
    """Return the costs of the charges that one user can be in."""
    return of_one_user((Row(*row) for row in charges), map(season_of, book["seasons"]))


def season_of(entry: dict[str, Any]) -> Season:
    budget = Budget(*(entry[key] for key in ("epsilon", "delta", "unit", "relation")))
    return Season(budget, *(entry[key] for key in ("first", "decay", "name", "gap")))


def together(book: dict[str, Any], delta: float) -> list[dict[str, Any]]:
    """Return the rows of all models so far and of everything promised, from a dossier's ledger part.

    Delta is that of the data set's budget, or else the given one, increased by the failure probabilities of
    selections if these use it up.
    """
    limit, still = book["budget"], [season for season in book["seasons"] if not season["closed"]]
    costs = of_a_user(book, book["charges"])
    if limit is not None:
        delta = limit["delta"]
    elif composed_epsilon(costs, delta) == math.inf:
        delta += math.fsum(cost.failure for cost in costs)
    rows = [_row("so far", costs, delta)]
    if book["closed"]:
        return rows
    if limit is not None:
        budget = _budget(book, **limit)
        # with a release that is not pure the budget is a limit on mu
        mu = budget.mu if any(cost.epsilon is None for cost in costs) else None
        rows.append(learned("budget", budget.epsilon, budget.delta, budget.failure, mu))
    elif still:
        names = {season["name"] for season in still}
        outside = of_a_user(book, (row for row in book["charges"] if row[12] not in names))
        weeks = [Charge(season_of(season).budget.mu, None, 0.0) for season in still]
        rows.append(_row("weeks", [*outside, *weeks], delta))
    return rows


def _budget(book: dict[str, Any], epsilon: float, delta: float, failure: float) -> Budget:
    return Budget(epsilon, delta, book["unit"], book["relation"], failure)


def _row(of: str, costs: Sequence[Cost], delta: float) -> dict[str, Any]:
    failure, mu = math.fsum(cost.failure for cost in costs), total_mu(cost.mu for cost in costs)
    return learned(of, composed_epsilon(costs, delta), delta, failure, mu)


def learned(of: str, epsilon: float, delta: float, failure: float, mu: float | None) -> dict[str, Any]:
    """Return a row of the dossier: a privacy cost, and its bounds on any attacker.

    Parameters
    ----------
    of : {"model", "season", "so far", "budget", "weeks"}
        The trainings of this cost: this model, its season, all so far, all that the budget allows, or all so
        far and all weeks to come.
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
        "found": [[alarms, detection_rate(alarms, epsilon, delta, failure, mu)] for alarms in FALSE_ALARMS],
    }


def valued(level: dict[str, Any], relation: str) -> dict[str, Any] | None:
    """Return the row of a level where an attacker knows who is in the data and guesses a rating.

    Removing one value and adding the other are two steps of add-remove, so mu and epsilon double (Dong, Roth
    and Su 2022, theorem 2.14). Under replace there is no such row: its other rows already say this.
    """
    if relation != "add-remove":
        return None
    epsilon, delta, failure, mu = (level[key] for key in ("epsilon", "delta", "failure", "mu"))
    if mu is not None and not failure:
        return learned("value", epsilon_of(2 * mu, delta), delta, 0.0, 2 * mu)
    return learned("value", 2 * epsilon, min(1.0, delta * (1 + math.exp(min(epsilon, 700)))), 0.0, None)


def exception(level: dict[str, Any]) -> float:
    """Return the probability of an outcome after which a belief exceeds `belief`; pure releases have none."""
    epsilon, delta = level["epsilon"], level["delta"] - level["failure"]
    mu = mu_of(epsilon, delta) if level["mu"] is None else level["mu"]
    if not mu or delta_of(mu, epsilon) > delta:
        return float(level["failure"])
    return float(level["failure"]) + exceeded(mu, epsilon)


def detection_rate(
    false_alarms: float, epsilon: float, delta: float, failure: float, mu: float | None
) -> float:
    """Return the largest true-positive rate of a test with a false-positive rate of `false_alarms`.

    By the trade-off curves of (epsilon, delta) and mu (Dong, Roth and Su 2022, equation 5, definition 2.6).
    """
    by_epsilon = delta + math.exp(min(epsilon, 700)) * false_alarms
    by_epsilon = min(1.0, by_epsilon, 1 - math.exp(-epsilon) * (1 - delta - false_alarms))
    if mu is None or failure:
        return by_epsilon
    return min(by_epsilon, float(ndtr(ndtri(false_alarms) + mu)))
