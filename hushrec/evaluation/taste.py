"""Personal taste as a model learned it, from released values.

A taste dimension is learned if it exceeds the known noise of its release. A model that learned none gives all
users nearly the same list.
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
    price : str
        Price of another training, if no dimension was learned; empty inside a season.
    pairs : bool
        Whether it learned pairs of items, too.
    unknown : bool
        Whether it has factors that it cannot distinguish from noise.
    public : bool
        Whether lists follow item features or donors, too.
    weak : int
        Taste dimensions that lists follow although they may be noise.
    """

    directions: int | None
    price: str = ""
    pairs: bool = False
    unknown: bool = False
    public: bool = False
    weak: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {"directions": self.directions}

    def text(self, advice: bool = True) -> str:
        price = self.price if advice else ""
        if self.pairs:
            more = f" and {plural(self.directions, 'taste dimension')}" if self.directions else ""
            return f"Personal taste: the model learned pairs of items{more}. Lists follow both."
        if self.unknown:
            what = "lists follow each user's ratings, but learned taste cannot be distinguished from noise."
        elif self.directions is None:
            return ""
        elif self.directions:
            what = f"the model learned {plural(self.directions, 'taste dimension')}. Lists follow them."
        elif self.public:
            return "Personal taste: no taste dimension exceeds this noise. Lists follow public data."
        elif self.weak:
            what = f"no taste dimension exceeds this noise. Lists follow {self.weak:,} that may be noise."
        else:
            what = "no taste dimension exceeds this noise, so all users get nearly the same list."
        return f"Personal taste: {what} {price}".rstrip()


def taste(model: Recommender, budget: Budget, ledger: LedgerSummary | None = None) -> Taste:
    """``ledger`` has all charges of the data set."""
    if not budget.private:
        return Taste(None)
    lister = model.lists or model
    if "learned_items" in lister.arrays:
        return Taste(model.directions, pairs=True)
    if model.directions:
        return Taste(model.directions)
    in_season = bool(getattr(model, "state", None))  # its budget is not that of one week
    price = "" if in_season else price_of_another(budget, ledger)
    unknown, weak = model.directions is None, lister.arrays["item_factors"].shape[1]
    return Taste(model.directions, price, unknown=unknown, public=lister.public is not None, weak=weak)


def price_of_another(budget: Budget, ledger: LedgerSummary | None = None) -> str:
    """Return the total cost after one more training; the squares of mu add up."""
    if budget.unit != "user" or budget.failure:
        return "Training again costs as much again."
    charged = 0.0 if ledger is None else math.sqrt(ledger.mu**2 + ledger.reserved)
    total = epsilon_of(math.hypot(max(charged, budget.mu), budget.mu), budget.delta)
    return f"Training again would bring the total cost to {budget.spell(total)}."
