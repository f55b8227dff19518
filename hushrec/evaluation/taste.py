"""Personal taste as a model learned it, from released values.

A taste dimension is learned if it exceeds the noise of its release. Without any, all users get nearly the
same list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushrec.checks import plural
from hushrec.privacy import epsilon_of

if TYPE_CHECKING:
    from hushrec.privacy import Budget, LedgerSummary
    from hushrec.serving.recommend import Recommender


@dataclass(frozen=True)
class Taste:
    """Personal taste that a model learned.

    Attributes
    ----------
    directions : int or None
        Taste dimensions that exceed the noise, if known.
    words : str
        Empty if nothing is known.
    price : str
        Price of another training, if no dimension was learned; empty inside a season.
    """

    directions: int | None
    words: str = ""
    price: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"directions": self.directions}

    def text(self, advice: bool = True) -> str:
        price = self.price if advice else ""
        return f"Personal taste: {self.words} {price}".rstrip() if self.words else ""


def taste(model: Recommender, budget: Budget, ledger: LedgerSummary | None = None) -> Taste:
    """``ledger`` has all charges of the data set."""
    if not budget.private:
        return Taste(None)
    lister, count = model.lists or model, model.directions
    dimensions = plural(count or 0, "taste dimension")
    if lister.parts:
        named = [f"{part.name} {part.weight:.2f}" for part in lister.parts]
        return Taste(count, f"lists are the sum of these parts, with weights: {', '.join(named)}.")
    if lister.has_pairs:
        more = f" and {dimensions}" if count else ""
        return Taste(count, f"the model learned pairs of items{more}. Lists follow both.")
    if count:
        return Taste(count, f"the model learned {dimensions}. Lists follow them.")
    if count == 0 and lister.public is not None:
        return Taste(count, "no taste dimension exceeds the noise. Lists follow public data.")
    in_season = bool(getattr(model, "state", None))  # its budget is not that of one week
    price = "" if in_season else price_of_another(budget, ledger)
    words = "no taste dimension exceeds the noise, so all users get nearly the same list."
    if count is None:
        words = "lists follow each user's ratings, but learned taste cannot be distinguished from noise."
    elif weak := lister.arrays["item_factors"].shape[1]:
        words = f"lists follow {plural(weak, 'taste dimension')}, any of which may be noise."
    return Taste(count, words, price)


def price_of_another(budget: Budget, ledger: LedgerSummary | None = None) -> str:
    """Return the total cost after one more training; the squares of mu add up."""
    if budget.unit != "user" or budget.failure:
        return "Training again costs as much again."
    charged = 0.0 if ledger is None else math.sqrt(ledger.mu**2 + ledger.reserved)
    total = epsilon_of(math.hypot(max(charged, budget.mu), budget.mu), budget.delta)
    return f"Training again would bring the total cost to {budget.spell(total)}."
