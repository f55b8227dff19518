"""The one-run audit: plant canary users by the toss of a coin each, train once, and guess the coins.

Canaries rate separate items, so their entries of a release are separate, and the attacker scores them by the
entries' likelihood ratio. More right guesses than (epsilon, delta) allows refute the claim (Steinke, Nasr and
Jagielski 2023). The distinguishing test is sharper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hushrec.audit.bounds import epsilon_lower_bound
from hushrec.audit.distinguish import Audit, bound_of_scores, log_ratios
from hushrec.checks import check_numbers
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.models import Estimator
from hushrec.privacy import Budget, SystemNoise
from hushrec.privacy.noise import NoiseSource
from hushrec.privacy.testing import NoiseCall
from hushrec.testing import replay, transcript
from hushrec.types import Array

#: Chance of a false alarm.
ALPHA = 1e-3
#: Items of a canary.
_ITEMS_EACH = 4


def canaries(
    estimator: Estimator,
    budget: Budget,
    *,
    n_canaries: int = 1000,
    seed: int = 0,
    alpha: float = ALPHA,
    noise: NoiseSource | None = None,
) -> Audit:
    """Train once on canaries that are in or out by a coin, and guess the coins from the releases.

    Parameters
    ----------
    estimator : Estimator
        Its releases are per item; a single mean cannot distinguish canaries.
    budget : Budget
        The claim under test, with finite epsilon, for users.
    n_canaries : int
        >= 20. An epsilon of 1 needs about 1,000, one of 10 more than 10,000.
    seed : int
        Seeds the coins and the training.
    alpha, noise
        As in `hushrec.audit.distinguish.distinguish`.

    Examples
    --------
    >>> from hushrec.audit.canaries import canaries
    >>> found = canaries(hushrec.ItemBias(), hushrec.Budget(1, 1e-5), n_canaries=100)
    >>> found.violated
    False
    """
    check_numbers(n_canaries=(n_canaries, int, "[20, inf)"))
    if not budget.private or budget.unit != "user":
        raise InputError("The canaries are users: pass a budget for users with a finite epsilon.")
    everybody = _canaries(n_canaries)
    plan = estimator.plan(budget, everybody.domain)
    inside = np.random.default_rng(seed).random(n_canaries) < 0.5
    calls = transcript(
        estimator, plan, everybody.rows(inside), seed, SystemNoise() if noise is None else noise
    )

    def values(users: Array) -> list[Array]:
        again = replay(estimator, plan, everybody.rows(users), seed, calls)
        return [call.value.astype(np.float64) for call in again]

    owners, alone = _owners(values, n_canaries)
    scores = _scores(calls, alone, owners, n_canaries)
    order = np.argsort(scores, kind="stable")
    half = n_canaries // 10  # a fifth of the coins is guessed, fixed beforehand
    correct = int(inside[order[-half:]].sum() + (~inside[order[:half]]).sum())
    members, others = scores[inside], scores[~inside]
    counts = {"canaries": n_canaries, "guesses": 2 * half, "correct": correct}
    # canaries' entries are disjoint, so their scores are independent
    mu_bound = bound_of_scores(members, others, plan.mu, alpha)
    epsilon_bound = epsilon_lower_bound(n_canaries, 2 * half, correct, budget.delta, alpha)
    return Audit(
        name="canaries",
        model=estimator.name,
        budget=budget,
        claimed_mu=plan.mu,
        mu_bound=mu_bound,
        alpha=alpha,
        inside=members,
        outside=others,
        figures=counts | {"epsilon_lower_bound": epsilon_bound},
        headline=f"One-run audit of {estimator.name}: {n_canaries:,} canaries, {correct:,} of {2 * half:,}"
        " guesses right",
        measured=f"epsilon >= {epsilon_bound:.4g} and mu >= {mu_bound:.4g}, each wrong with chance {alpha:g}",
    )


def _canaries(n_canaries: int) -> Ratings:
    n_items = n_canaries * _ITEMS_EACH
    domain = Domain(tuple(range(n_items)), rating_range=(1, 5))
    users = np.repeat(np.arange(n_canaries), _ITEMS_EACH)
    ends = np.tile([1.0, 5.0], n_items)[:n_items]
    places = np.arange(n_items)
    return Ratings.from_any((users, places, ends, places), domain)  # in time order, for models that need it


def _owners(values: Any, n_canaries: int) -> tuple[list[Array], list[Array]]:
    """Find which canary alone moves each entry of the releases (-1: none or several), and how far.

    Runs on the canaries with a bit in their number give that bit.
    """
    numbers = np.arange(n_canaries) + 1
    everybody = values(np.ones(n_canaries, dtype=bool))
    owners = [np.zeros(value.shape, dtype=np.int64) for value in everybody]
    sole = [value != 0 for value in everybody]
    for bit in range(int(n_canaries).bit_length()):
        for call, part in enumerate(values((numbers >> bit) & 1 == 1)):
            owners[call] += (part != 0).astype(np.int64) << bit
            sole[call] &= (part == 0) | (part == everybody[call])
    owners = [
        np.where(mine & (owner <= n_canaries), owner, 0) - 1 for mine, owner in zip(sole, owners, strict=True)
    ]
    if not any((owner >= 0).any() for owner in owners):
        raise InputError("No release has entries that one canary alone moves; use the distinguishing test.")
    return owners, everybody


def _scores(
    calls: Sequence[NoiseCall], alone: Sequence[Array], owners: Sequence[Array], n_canaries: int
) -> Array:
    """Return each canary's log-likelihood ratio of in against out."""
    scores = np.zeros(n_canaries)
    for call, value, owner in zip(calls, alone, owners, strict=True):
        if call.kind == "flip":
            raise InputError("The canaries are for numbers with noise, not for flipped labels.")
        cells, mine = log_ratios(call, value, 0.0), owner >= 0
        scores += np.bincount(owner[mine], weights=cells[mine], minlength=n_canaries)
    return scores
