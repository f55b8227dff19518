"""Lower bounds on mu and epsilon from an attacker's guesses, at a stated confidence."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import bdtrc, betaincinv, gammaln, ndtri
from scipy.stats import rankdata

from hushrec.types import Array


def mu_lower_bound(with_user: Array, without_user: Array, thresholds: Array, alpha: float) -> float:
    """Return the largest mu that two samples of independent scores refute; at least 0.

    Under mu-GDP Phi^-1(1 - false positives) - Phi^-1(false negatives) <= mu for every test (Dong, Roth and Su
    2022, definition 2.6). Both rates are replaced by their exact upper ends (Clopper and Pearson 1934). The
    thresholds, which share alpha, must not have been chosen from these scores. ``alpha`` is the chance of a
    bound that is too high.
    """
    chance = alpha / (2 * len(thresholds))
    best = 0.0
    for threshold in thresholds:
        missed = _upper_end(int((with_user <= threshold).sum()), len(with_user), chance)
        false_alarms = _upper_end(int((without_user > threshold).sum()), len(without_user), chance)
        best = max(best, float(-ndtri(false_alarms) - ndtri(missed)))  # a rate of 1 refutes nothing: -inf
    return best


def epsilon_lower_bound(n_canaries: int, guesses: int, correct: int, delta: float, alpha: float) -> float:
    """Largest epsilon that one run refutes (Steinke, Nasr and Jagielski 2023, theorem 5.2 and appendix D).

    Canaries were in or out by a fair coin each; the number of guesses must be fixed beforehand.
    """
    low, high = 0.0, 32.0  # no wrong guess, so no number of right guesses refutes it
    for _ in range(60):
        middle = (low + high) / 2
        if one_run_p_value(n_canaries, guesses, correct, middle, delta) <= alpha:
            low = middle
        else:
            high = middle
    return low


def one_run_p_value(n_canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Bound on the chance of so many right guesses under (epsilon, delta)-DP (same paper, appendix D)."""
    right = 1 / (1 + math.exp(-epsilon))
    if correct == 0:
        return 1.0
    beta = float(bdtrc(correct - 1, guesses, right))
    below = np.arange(correct - 1, -1, -1)
    log_mass = (
        gammaln(guesses + 1) - gammaln(below + 1) - gammaln(guesses - below + 1)
        + below * math.log(right) + (guesses - below) * math.log1p(-right)
    )  # fmt: skip
    per_step = np.cumsum(np.exp(log_mass)) / np.arange(1, correct + 1)
    return min(1.0, beta + float(per_step.max()) * delta * 2 * n_canaries)


def area_under_curve(members: Array, others: Array) -> float:
    """Chance that a member's score is above another's, ties counting half."""
    ranks = rankdata(np.concatenate([members, others]))[: len(members)]
    return float((ranks.sum() - len(members) * (len(members) + 1) / 2) / (len(members) * len(others)))


def _upper_end(hits: int, trials: int, alpha: float) -> float:
    return 1.0 if hits == trials else float(betaincinv(hits + 1, trials - hits, 1 - alpha))
