"""Labels flipped at random: their cost, and a client's code."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from hushrec.errors import InputError
from hushrec.privacy import Accountant, Bounded, Budget, RandomizedResponse, counted
from hushrec.types import Array


def randomize_labels(labels: Array, accountant: Accountant) -> NDArray[np.bool_]:
    """Flip a client's own labels before they send them: local differential privacy.

    The server trains on the result with ``OneBitCompletion(mechanism="none", flips=...)`` and a separate
    infinite budget. Pass the public flip probabilities: (p, p) with p = 1 / (1 + e^epsilon).

    Parameters
    ----------
    labels : ndarray of bool
        True for a like.
    accountant : Accountant
        The client's own, with a budget for unit "rating" and relation "replace"; epsilon is that of a label.

    Privacy
    -------
    Randomized response (Warner 1965): epsilon-DP for every label with delta 0, for every recipient of the
    result (docs/proofs/one_bit.md).
    """
    budget = accountant.budget
    epsilon = pure_epsilon_share(budget, accountant.part())
    bounded = Bounded(np.asarray(labels, dtype=bool), counted(1.0), norm="labels", unit=budget.unit)
    return np.asarray(accountant.release(bounded, RandomizedResponse(epsilon), "labels"))


def flips_epsilon(to_dislike: float, to_like: float) -> float:
    """Return the largest of four log-ratios.

    The paper's condition (Theorem 1) bounds two of them and lets (0, e^-epsilon) pass, which costs infinity.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log([1 - to_dislike, to_dislike]) - np.log([to_like, 1 - to_like])
    return float(np.nan_to_num(np.abs(ratios), posinf=np.inf).max())  # two zeros are equal


def check_flips(flips: tuple[float, float]) -> None:
    """Refuse flips that would reverse the labels."""
    good = isinstance(flips, tuple) and len(flips) == 2 and all(0 <= flip <= 1 for flip in flips)
    if not good or sum(flips) >= 1:
        raise InputError(f"flips={flips!r} must be two probabilities that add up to less than 1.")


def check_cost(flips: tuple[float, float] | None, epsilon: float) -> None:
    if flips is None:
        return
    check_flips(flips)
    if flips_epsilon(*flips) > epsilon * (1 + 1e-12):
        raise InputError(
            f"flips={flips} cost epsilon = {flips_epsilon(*flips):.6g} a label, more than {epsilon:.6g};"
            " flip more often, or leave flips out."
        )


def garbled(
    seen: Array, flip: float, flips: tuple[float, float], generator: np.random.Generator
) -> NDArray[np.float64]:
    """Flip flipped labels once more: post-processing, which needs no secret randomness."""
    first, second = flips
    again_like = ((1 - flip) * (first - flip) + flip * (second - flip)) / (1 - 2 * flip)
    again_dislike = ((1 - flip) * (second - flip) + flip * (first - flip)) / (1 - 2 * flip)
    chance = np.where(seen > 0.5, again_like, again_dislike)
    return np.logical_xor(seen > 0.5, generator.random(len(seen)) < chance).astype(np.float64)


def pure_epsilon_share(budget: Budget, fraction: float) -> float:
    """Return the pure epsilon of this fraction of the budget's mu squared."""
    if fraction >= 1 or not budget.private:
        return budget.epsilon
    half = budget.mu * math.sqrt(fraction) / 2
    return float(log_ndtr(half) - log_ndtr(-half)) * (1 - 1e-12)
