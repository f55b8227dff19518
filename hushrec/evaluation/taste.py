"""Personal taste as a model learned it, and the budget that would teach more, from released values.

A direction of taste is learned where it stands out of the known noise of its release; a model that learned
none gives everybody nearly the same list. One that shows but does not stand out yet would do so with less
noise: with how much less follows from what was released. Where none shows, nothing is advised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushrec.privacy import epsilon_of, mu_of

if TYPE_CHECKING:
    from hushrec.privacy import Budget, LedgerSummary
    from hushrec.serving.recommend import Recommender

#: Said where none was learned, and none shows.
NO_SIGN = "There is no sign of taste in these data: more budget would be a guess."
#: No larger epsilon is advised, and no less than so many times mu, unless that is larger.
_LARGEST, _WORTH_IT = 10.0, 2.0


@dataclass(frozen=True)
class Taste:
    """Personal taste as a model learned it.

    Attributes
    ----------
    directions : int or None
        Directions of taste that stand out of the noise; None where the model does not know.
    price : str
        Price of another attempt, where this one learned nothing that stands out, or of the one advised.
    pairs : bool
        Whether it learned pairs of items, beside the directions.
    unknown : bool
        Whether it has factors of which it cannot tell what is noise.
    epsilon, times : float or None
        One more direction would stand out at that epsilon, or with so many times as many users; None where
        none shows, or not up to epsilon 10.
    public : bool
        Whether lists go by what is public, too: item features or donors.
    """

    directions: int | None
    price: str = ""
    pairs: bool = False
    unknown: bool = False
    epsilon: float | None = None
    times: float | None = None
    public: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"directions": self.directions, "one_more": {"epsilon": self.epsilon, "users": self.times}}

    def text(self, advice: bool = True) -> str:
        """Return a paragraph for a reader, with what would teach it more; empty where it does not know."""
        if self.pairs:
            more = f", and at least {_ways(self.directions)}" if self.directions else ""
            return f"Personal taste: the model learned which items go together{more}; lists follow both."
        if self.unknown:
            return (
                "Personal taste: this model follows each user's ratings, but cannot tell what it learned of"
                f" tastes from noise. {self.price}"
            ).rstrip()
        if self.directions is None:
            return ""
        alone = "lists follow what is public." if self.public else "everybody gets nearly the same list."
        learned = f"none was learned; {alone}"
        if self.directions:
            learned = f"the model learned {_ways(self.directions)}; a user's list follows their own ratings."
        return f"Personal taste: {learned} {self._more() if advice else ''}".rstrip()

    def _more(self) -> str:
        """Say what it would take to learn one more, and its price."""
        if self.epsilon is None:
            return "" if self.directions else f"{NO_SIGN} {self.price}"
        return (
            f"One more way shows: a training at epsilon = {self.epsilon:.2g}, or on {self.times:.2g} times as"
            " many users, would likely learn it; on public tables more than four in five such trainings did."
            f" {self.price}"
        )


def taste(model: Recommender, budget: Budget, ledger: LedgerSummary | None = None) -> Taste:
    """Tell what a trained model learned, from its released arrays.

    Parameters
    ----------
    model : Recommender
    budget : Budget
        What it was trained under.
    ledger : LedgerSummary, optional
        All that its data set was charged; this training alone by default.
    """
    if not budget.private:
        return Taste(None)
    if "learned_items" in (model.lists or model).arrays:
        return Taste(model.directions, pairs=True)
    public = (model.lists or model).public is not None
    times = float((model.lists or model).arrays.get("next_direction", 0.0))
    if times and not getattr(model, "state", None) and _adds_up(budget):  # a season's budget is not a week's
        enough = epsilon_of(times * budget.mu, budget.delta)
        if enough <= _LARGEST:
            epsilon = max(enough, min(_LARGEST, epsilon_of(_WORTH_IT * budget.mu, budget.delta)))
            times = mu_of(epsilon, budget.delta) / budget.mu
            price = price_of_another(budget, ledger, times)
            return Taste(model.directions, price, epsilon=epsilon, times=times, public=public)
    if model.directions:
        return Taste(model.directions)
    price = price_of_another(budget, ledger)
    return Taste(model.directions, price, unknown=model.directions is None, public=public)


def _adds_up(budget: Budget) -> bool:
    """Tell whether squares of mu are what adds up."""
    return budget.unit == "user" and not budget.failure


def price_of_another(budget: Budget, ledger: LedgerSummary | None = None, times: float = 1.0) -> str:
    """Say what one more training with a budget, or with so many times its mu, would bring the total to.

    The releases' squared mu add up.
    """
    if not _adds_up(budget):
        return "Another attempt is charged as much again."
    charged = 0.0 if ledger is None else math.sqrt(ledger.mu**2 + ledger.reserved)
    what = "both cost"
    if charged > budget.mu * 1.001:
        what = "with all that its data set was charged or reserves that makes"
    total = epsilon_of(math.hypot(max(charged, budget.mu), times * budget.mu), budget.delta)
    subject = "Another attempt" if times == 1 else "On the same users it"
    return (
        f"{subject} is charged on top; {what} epsilon = {total:.3g} at delta = {budget.delta:g}"
        f" (unit: {budget.unit}, relation: {budget.relation})."
    )


def _ways(number: int | None) -> str:
    return f"{number} way{'s' * (number != 1)} in which people's tastes differ"
