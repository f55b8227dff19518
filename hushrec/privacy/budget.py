"""The privacy budget: a promise made before anything is read."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from scipy.special import log_ndtr, ndtr

from hushrec.checks import RELATIONS, UNITS, check_choice, check_numbers
from hushrec.errors import BudgetError, InputError
from hushrec.privacy.accounting import (
    ROUNDING,
    SMALLEST_DELTA,
    SMALLEST_MU,
    bisect,
    epsilon_of,
    mu_of,
    total_mu,
    valid_delta,
    valid_epsilon,
)
from hushrec.privacy.mechanisms import Gaussian

_SMALLEST_PART = 1e-6  # smallest epsilon for which a part is planned
#: Words for ranges of epsilon, by the largest of each.
RANGES = (
    (1.0, "strong"),
    (3.0, "moderate"),
    (10.0, "weak in the worst case"),
    (math.inf, "too weak to be called privacy"),
)


def belief(before: float, epsilon: float) -> float:
    """Return the most that a suspicion of probability `before` can become, but for rare outcomes."""
    return 1 / (1 + math.exp(-epsilon) * (1 - before) / before)


def exceeded(mu: float, epsilon: float) -> float:
    """Return the probability of an outcome after which a belief exceeds `belief`, of mu > 0.

    Delta bounds the increase in probability of such outcomes, not their probability. It follows from the
    point at which the trade-off curve has the slope of the odds.
    """
    most = epsilon / mu + mu + 40.0
    at, _ = bisect(lambda at: bool(log_ndtr(mu - at) - log_ndtr(-at) > epsilon), -40.0, most)
    return float(ndtr(mu - at))


def rounded_up(share: float) -> str:
    """Return a share as a percentage, rounded up but never to certainty."""
    if share > 0.999:
        return "> 99.9%"
    digits = 1 if share < 0.1 or share > 0.985 else 0
    return f"{math.ceil(share * 100 * 10**digits - 1e-9) / 10**digits:.{digits}f}%"


def meaning(epsilon: float, delta: float, unit: str, relation: str) -> str:
    """Return what a promise means to an attacker, in one sentence.

    Under add-remove it bounds guesses about presence only.
    """
    word = next(word for largest, word in RANGES if epsilon <= largest)
    most = rounded_up(belief(0.5, epsilon)).replace("> ", "over ")
    mu = mu_of(epsilon, delta)
    others = exceeded(mu, epsilon) if 0 < mu < math.inf else 0.0
    rarely = f" (more with a probability of at most {rounded_up(others)})" * (others > 0)
    about = {
        ("user", "add-remove"): "that a user's ratings are in the data",
        ("user", "replace"): "between two sets of ratings that a user may have",
        ("rating", "add-remove"): "that a rating is in the data",
        ("rating", "replace"): "between two values of a rating",
    }[unit, relation]
    all_of_them = "; q ratings of a user have q times epsilon, with Gaussian noise q times mu"
    all_of_them = "" if unit == "user" else all_of_them
    return f"an attacker's guess of 50% {about} can become {most}{rarely}: {word}{all_of_them}"


class Cost(Protocol):
    """A release, a row of the ledger, or another cost."""

    @property
    def mu(self) -> float:
        """Gaussian differential privacy."""

    @property
    def epsilon(self) -> float | None:
        """Pure epsilon, or None."""

    @property
    def failure(self) -> float:
        """Chance that mu and epsilon do not hold; 0 but for a selection."""


@dataclass(frozen=True)
class Charge:
    mu: float
    epsilon: float | None
    failure: float


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta) and its unit of protection: one `unit`, under one neighbouring `relation`.

    Parameters
    ----------
    epsilon : float
        Greater than 0, with mu at least 1e-8. ``math.inf`` is the explicit word for no privacy.
    delta : float
        In [1e-300, 1), well below one over the number of users.
    unit : {"user", "rating"}
        Neighbours differ in all ratings of one user, or in one rating.
    relation : {"add-remove", "replace"}
        The unit comes and goes, or is replaced by another.
    failure : float
        Part of delta for failures of selections; Gaussian noise is sized for the rest.

    Privacy
    -------
    The budget is the promise. Its reserve must not depend on released values (docs/proofs/accounting.md,
    section 4).

    Examples
    --------
    >>> budget = hushrec.Budget(epsilon=3, delta=1e-6)
    >>> print(budget)
    epsilon = 3 at delta = 1e-06 (unit: user, relation: add-remove)
    >>> round(budget.mu, 4)
    0.6477
    """

    epsilon: float
    delta: float
    unit: str = "user"
    relation: str = "add-remove"
    failure: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", valid_epsilon(self.epsilon))
        object.__setattr__(self, "delta", valid_delta(self.delta))
        check_choice(unit=(self.unit, UNITS), relation=(self.relation, RELATIONS))
        check_numbers(failure=(self.failure, float, f"[0, {self.delta!r}]"))
        object.__setattr__(self, "failure", float(self.failure))
        if 0 < self.mu < SMALLEST_MU:
            raise InputError(
                f"epsilon = {self.epsilon:g} at delta = {self.delta:g} allows a mu of {self.mu:.3g} only, "
                f"and the least useful one is {SMALLEST_MU:g}; declare a larger epsilon or delta.",
                parameter="epsilon",
            )

    @cached_property
    def mu(self) -> float:
        """Mu of the budget without the reserve, rounded down."""
        if not self.private:
            return math.inf
        left = math.nextafter(self.delta - self.failure, 0.0) if self.failure else self.delta
        return mu_of(self.epsilon, left) if left >= SMALLEST_DELTA else 0.0

    @property
    def private(self) -> bool:
        """False where epsilon is infinite."""
        return self.epsilon != math.inf

    @property
    def promise(self) -> dict[str, Any]:
        """Epsilon, delta, unit and relation."""
        return {name: getattr(self, name) for name in ("epsilon", "delta", "unit", "relation")}

    def part(self, fraction: float) -> "Budget":
        """Return the budget with that part of mu squared."""
        check_numbers(fraction=(fraction, float, "[0, 1]"))
        if not self.private:
            return self
        epsilon = epsilon_of(self.mu * math.sqrt(fraction), self.delta - self.failure)
        return replace(self, epsilon=max(epsilon, _SMALLEST_PART))

    def share(self, fraction: float) -> Gaussian:
        """Return the Gaussian mechanism that costs `fraction` of mu squared. A sum of 1 fits the budget."""
        check_numbers(fraction=(fraction, float, "(0, 1]"))
        if not self.mu:
            raise BudgetError(
                f"All of delta = {self.delta:g} is reserved for selections, so no Gaussian noise fits;"
                " declare a smaller failure."
            )
        mu = self.mu * math.sqrt(fraction)
        return Gaussian((1 + 1e-15) / mu)

    def allows(self, costs: Iterable[Cost]) -> bool:
        """Return whether costs fit: in mu^2, or in epsilon if all are pure, and failures in the reserve.

        Proof: docs/proofs/accounting.md, section 4.
        """
        costs = tuple(costs)
        if not self.private:
            return True
        if math.fsum(cost.failure for cost in costs) > self.failure:
            return False
        spent = total_mu(cost.mu for cost in costs)
        if spent * spent <= self.mu * self.mu * (1 + ROUNDING):
            return True
        pure = pure_epsilon(costs)
        return pure is not None and pure <= self.epsilon * (1 + ROUNDING)

    def check_reserve(self, costs: Iterable[Cost]) -> None:
        """Raise BudgetError if chances of failure exceed the reserve."""
        failure = math.fsum(cost.failure for cost in costs)
        if self.private and failure > self.failure:
            raise BudgetError(
                f"The probabilities of failure sum to {failure:g}, for which {self.spell(self.epsilon)} "
                f"reserves {self.failure:g} of delta; reserve it before the first release with Budget(..., "
                f"failure={failure:g}), or hushrec ledger open --failure {failure:g}."
            )

    def part_left(self, costs: Iterable[Cost]) -> float:
        """Return the part of mu squared that costs leave, from 0 to 1."""
        spent = total_mu(cost.mu for cost in costs)
        if not self.private or not spent:
            return 1.0
        return max(0.0, 1.0 - (spent / self.mu) ** 2) if self.mu else 0.0

    def spell_spent(self, costs: Iterable[Cost]) -> str:
        """Return spent and remaining budget in words."""
        costs = tuple(costs)
        spent = f"spent epsilon = {composed_epsilon(costs, self.delta):.6g} of {self}"
        return f"{spent}, {self.part_left(costs):.1%} of its mu squared left" if self.private else spent

    def left(self, costs: Iterable[Cost]) -> str:
        """Return what costs leave of the budget in words."""
        costs = tuple(costs)
        if not costs:
            return "nothing of it is spent"
        square = self.mu**2 - math.fsum(cost.mu**2 for cost in costs)
        epsilon = epsilon_of(math.sqrt(square), self.delta) if square > 0 else 0.0
        epsilon = math.floor(epsilon * 1000) / 1000
        return f"what is left of it is {self.spell(epsilon)}" if epsilon else "nothing is left of it"

    def spell(self, epsilon: float) -> str:
        """Return an epsilon in words."""
        return guarantee(epsilon, self.delta, self.unit, self.relation)

    def __str__(self) -> str:
        reserve = f", {self.failure:g} of delta reserved for failures" if self.failure else ""
        return self.spell(self.epsilon) + reserve


def pure_epsilon(costs: Iterable[Cost]) -> float | None:
    epsilons = [cost.epsilon for cost in costs]
    parts = [epsilon for epsilon in epsilons if epsilon is not None]
    return math.fsum(parts) if len(parts) == len(epsilons) else None


def composed_epsilon(costs: Iterable[Cost], delta: float) -> float:
    """Epsilon at `delta` of costs together: exact in mu^2, or the pure sum if smaller."""
    costs = tuple(costs)
    failure = math.fsum(cost.failure for cost in costs)
    pure = pure_epsilon(costs) if failure <= delta else None
    gaussian = math.inf
    if failure < delta:
        gaussian = epsilon_of(total_mu(cost.mu for cost in costs), delta - failure)
    return gaussian if pure is None else min(pure, gaussian)


def guarantee(epsilon: float, delta: float, unit: str, relation: str) -> str:
    return f"epsilon = {epsilon:.6g} at delta = {delta:g} (unit: {unit}, relation: {relation})"
