"""What a model learned of personal taste, from released values, and what it would take to learn some.

A direction of taste is learned where it stands out of the known noise of its release; a model that learned
none gives everybody nearly the same list. What is said of numbers of users and of epsilon follows the
planning rule of private-eigenrec: a function of public quantities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushrec.privacy import epsilon_of
from hushrec.registry import ESTIMATORS, best

if TYPE_CHECKING:
    from hushrec.data import Domain
    from hushrec.estimator import Estimator
    from hushrec.privacy import Budget
    from hushrec.serving import Recommender

#: Directions that are expected: so much of the planned rank, less so much (docs/both.md).
_LEARNED, _LESS = 0.3, 0.5
#: What it takes to learn a direction, in multiples of what it takes to expect one, and at least of what there
#: was where nothing was learned.
_SURELY, _MORE = 1.3, 2.0
#: No more users and no larger epsilon are advised.
_MOST_USERS, _MOST_EPSILON = 10**9, 50.0


@dataclass(frozen=True)
class Taste:
    """What a model learned of personal taste, or is expected to learn.

    Attributes
    ----------
    directions : int or None
        Directions of taste that stand out of the noise; None where the model does not know.
    ways : dict
        Where there are none: about how many ``users`` it takes at this epsilon, which ``epsilon`` with these
        users, or ``for`` what to train instead; those of them that would do.
    about : bool
        Whether it is expected from public quantities only.
    pairs : bool
        Whether it learned pairs of items, beside the directions.
    unknown : bool
        Whether it has factors of which it cannot tell what is noise.
    """

    directions: int | None
    ways: dict[str, Any]
    about: bool = False
    pairs: bool = False
    unknown: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"directions": self.directions, "ways_to_more": self.ways}

    def text(self) -> str:
        """For a reader; empty where the model does not know."""
        if self.pairs:
            more = (
                f", and at least {self.directions} ways in which people's tastes differ"
                if self.directions
                else ""
            )
            return f"Personal taste: the model learned which items go together{more}; lists follow both."
        if self.unknown:
            return (
                "Personal taste: this model follows each user's ratings, but cannot tell what it learned of"
                " tastes from noise; one that is trained for lists or for both can."
            )
        if self.directions is None:
            return ""
        if self.directions:
            number = f"{'about ' * self.about}{self.directions} way{'s' * (self.directions > 1)}"
            learns = "is expected to learn" if self.about else "learned"
            return (
                f"Personal taste: the model {learns} {number} in which people's tastes differ; a user's list"
                " follows her own."
            )
        if not self.ways:
            return "Personal taste: none was learned; everybody gets nearly the same list."
        spelled = {"users": "about {:,} users at this epsilon", "epsilon": "epsilon {:.3g} with these users"}
        spelled["for"] = "--for {}, which has the whole budget"
        ways = [spelled[name].format(value) for name, value in self.ways.items()]
        return (
            f"Personal taste: none {'is to be expected' if self.about else 'was learned'}. There are too few"
            " users for it at this epsilon: everybody gets nearly the same list. The cheapest ways to change"
            f" that: {', or '.join(ways)}."
        )


def taste(model: Recommender, budget: Budget) -> Taste:
    """What a trained model learned, from its released arrays and its settings, which are public.

    Parameters
    ----------
    model : Recommender
    budget : Budget
        What it was trained under.
    """
    estimator: Any = model.estimator
    planned = hasattr(getattr(estimator, "lists", estimator), "n_users")
    if not budget.private:
        return Taste(None, {})
    if "learned_items" in (model.lists or model).arrays:
        return Taste(model.directions, {}, pairs=True)
    if model.directions == 0 and planned:
        return Taste(0, _ways(estimator, budget, model.domain))
    return Taste(model.directions, {}, unknown=model.directions is None)


def expected_taste(estimator: Estimator[Any], budget: Budget, domain: Domain) -> Taste:
    """What a training with these settings may be expected to learn."""
    model: Any = getattr(estimator, "lists", estimator)
    if not budget.private or model.name not in (best("lists", True), best("ratings", True)):
        return Taste(None, {})
    directions = _expected(model, domain)
    if not directions:
        return Taste(0, _ways(estimator, budget, domain), about=True)
    return Taste(directions if model.scores == "likes" else None, {}, about=True)


def _ways(estimator: Any, budget: Budget, domain: Domain) -> dict[str, Any]:
    """The cheapest ways to some taste; none after a selection, whose statement knows no budget of one run."""
    if not budget.mu:
        return {}
    model, share = getattr(estimator, "lists", estimator), getattr(estimator, "lists_share", 1.0)
    found: dict[str, Any] = {}
    mu = budget.mu * math.sqrt(share)
    wanted = _SURELY * _looks_from(type(model), budget, domain)
    if model.n_users is not None and _expected(model, domain):
        wanted = max(wanted, _MORE * mu * model.n_users)
    if wanted / mu <= _MOST_USERS:
        found["users"] = _rounded(wanted / mu)
    if model.n_users is not None:
        epsilon = epsilon_of(wanted / model.n_users / math.sqrt(share), budget.delta)
        found |= {"epsilon": epsilon} if epsilon <= _MOST_EPSILON else {}
        lists = ESTIMATORS[best("lists", True)]
        other = share < 1 or not isinstance(model, lists)
        if other and budget.mu * model.n_users >= _SURELY * _looks_from(lists, budget, domain):
            found["for"] = "lists"
    return found


def _expected(model: Any, domain: Domain) -> int:
    """Directions that settings let expect; of a model of ratings, one if it looks for any."""
    if model.scores != "likes":
        return int(model.rank > 0 and model.iterations > 0)
    return round(_LEARNED * min(model.rank, domain.n_items - 1) - _LESS)


def _looks_from(cls: type[Estimator[Any]], budget: Budget, domain: Domain) -> float:
    """mu times the number of users from which on a direction of taste is expected."""
    low, high = 0, _MOST_USERS
    while high - low > 1 + low // 100:
        middle = (low + high) // 2
        found = _expected(cls.planned(budget, domain, middle), domain)
        low, high = (low, middle) if found else (middle, high)
    return high * budget.mu


def _rounded(number: float) -> int:
    """Up, to two digits."""
    size = 10 ** max(math.floor(math.log10(number)) - 1, 0)
    return math.ceil(number / size) * size
