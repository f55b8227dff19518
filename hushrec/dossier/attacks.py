"""Attacks on a configuration, on generated data and within a time limit."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from scipy.special import ndtr

from hushrec.audit.canaries import canaries
from hushrec.audit.membership import control, membership
from hushrec.checks import settings_of
from hushrec.data import realistic
from hushrec.errors import HushrecError
from hushrec.privacy import Budget
from hushrec.registry import ESTIMATORS

#: Seconds that one attack may take.
LIMIT = 60.0
_CANARIES, _PLANTED = 600, 1000
#: Users, items and ratings among whom users are planted.
_GENERATED = (600, 300, 20_000)


def run(estimator: Any, budget: Budget, limit: float = LIMIT) -> list[dict[str, Any]]:
    """Attack a training of this configuration and budget, the claim, on generated data.

    Returns each attack's result and the largest one that the claim allows, or why it was not run: ``"unit"``,
    ``"model"``, ``"time"`` or the error's text. ``limit`` is in seconds.
    """
    outcomes = []
    for name, attack in (("canaries", _canaries), ("membership", _membership)):
        if budget.unit != "user":
            outcome: dict[str, Any] = {"not_run": "unit"}
        elif ESTIMATORS[estimator.name] is not type(estimator):
            outcome = {"not_run": "model"}
        else:
            outcome = _within(limit, attack, estimator, budget)
        outcomes.append({"attack": name, **outcome})
    return outcomes


def _within(limit: float, attack: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Run an attack in another process, until the time limit."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")  # the caller's script is not run there again
    try:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return dict(pool.apply_async(attack, arguments).get(limit))
    except multiprocessing.TimeoutError:
        return {"not_run": "time"}
    except HushrecError as error:
        return {"not_run": str(error)}
    finally:
        sys.modules["__main__"] = main


def _canaries(estimator: Any, budget: Budget) -> dict[str, Any]:
    audit = canaries(estimator, budget, n_canaries=_CANARIES)
    return {
        "users": _CANARIES,
        "measure": "epsilon",
        "reached": audit.figures["epsilon_lower_bound"],
        "claim": budget.epsilon,
        "mu_reached": audit.mu_bound,
        "mu_claim": audit.claimed_mu,
        "wrong_with_chance": audit.alpha,
    }


def _membership(estimator: Any, budget: Budget) -> dict[str, Any]:
    chosen = settings_of(estimator).items()
    settings = {name: value for name, value in chosen if name.rpartition(".")[2] != "model"}
    if settings.get("n_users", 0) is None:  # released by the training then
        del settings["n_users"]
    spent = Budget(budget.epsilon, budget.delta, relation=budget.relation)
    others = realistic(*_GENERATED, seed=0)
    return {
        "users": _PLANTED,
        "measure": "area under the curve",
        "reached": membership(others, estimator.name, spent, n_planted=_PLANTED, settings=settings),
        "claim": float(ndtr(spent.mu / 2**0.5)),
        "margin": 3.1 * 0.5 / (_PLANTED / 2) ** 0.5,  # wrong with a chance of 0.001
        "without_privacy": control(others, budget.delta, n_planted=_PLANTED),
    }
