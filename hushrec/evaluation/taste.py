"""Personal taste as a model learned it, from released values.

A direction of taste is learned where it stands out of the known noise of its release; a model that learned
none gives everybody nearly the same list. Nothing is said before a training: it depends on how much tastes
differ, which nobody knows then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushrec.privacy import epsilon_of

if TYPE_CHECKING:
    from hushrec.privacy import Budget, LedgerSummary
    from hushrec.serving.lists import Recommender

#: Said where lists are not personal, or nobody knows yet.
NOT_FORETOLD = (
    "Whether lists become personal depends on how much tastes differ; nothing says so before training."
)


@dataclass(frozen=True)
class Taste:
    """Personal taste as a model learned it.

    Attributes
    ----------
    directions : int or None
        Directions of taste that stand out of the noise; None where the model does not know.
    price : str
        Price of another attempt, where this one learned nothing that stands out.
    pairs : bool
        Whether it learned pairs of items, beside the directions.
    unknown : bool
        Whether it has factors of which it cannot tell what is noise.
    """

    directions: int | None
    price: str = ""
    pairs: bool = False
    unknown: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"directions": self.directions}

    def text(self) -> str:
        """Return a paragraph for a reader; empty where the model does not know."""
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
        if self.directions:
            return (
                f"Personal taste: the model learned {_ways(self.directions)}; a user's list follows their"
                " own ratings."
            )
        return (
            "Personal taste: none was learned; everybody gets nearly the same list."
            f" {NOT_FORETOLD} {self.price}"
        ).rstrip()


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
    if model.directions:
        return Taste(model.directions)
    return Taste(model.directions, price_of_another(budget, ledger), unknown=model.directions is None)


def price_of_another(budget: Budget, ledger: LedgerSummary | None = None) -> str:
    """Say what one more training with a budget would bring the total to; the releases' squared mu add up."""
    if budget.unit != "user" or budget.failure:  # what is not Gaussian adds up otherwise
        return "Another attempt is charged as much again."
    charged = 0.0 if ledger is None else math.sqrt(ledger.mu**2 + ledger.reserved)
    what = "both cost"
    if charged > budget.mu * 1.001:
        what = "with all that its data set was charged or reserves that makes"
    total = epsilon_of(math.hypot(max(charged, budget.mu), budget.mu), budget.delta)
    return (
        f"Another attempt is charged on top; {what} epsilon = {total:.3g} at delta = {budget.delta:g}"
        f" (unit: {budget.unit}, relation: {budget.relation})."
    )


def _ways(number: int | None) -> str:
    return f"{number} way{'s' * (number != 1)} in which people's tastes differ"
