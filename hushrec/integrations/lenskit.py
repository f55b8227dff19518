"""hushrec as a scorer of LensKit: ``pip install "hushrec[lenskit]"``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from hushrec.data import Domain, Ratings
from hushrec.errors import InputError, MissingPackageError
from hushrec.privacy import Accountant, Budget, Ledger
from hushrec.registry import best
from hushrec.serving.model import Model
from hushrec.training.named import train

try:
    from lenskit.data import Dataset, ItemList, QueryInput, RecQuery
    from lenskit.pipeline import Component
    from lenskit.training import Trainable, TrainingOptions
    from pydantic import BaseModel
except ImportError:
    raise MissingPackageError("The LensKit component", "lenskit") from None


_ONCE = TrainingOptions()


class HushrecConfig(BaseModel):
    """Settings of a `HushrecScorer`; epsilon, delta, catalogue and range have no default.

    Attributes
    ----------
    epsilon, delta, relation
        As in `hushrec.Budget`; the unit is a user.
    catalogue : list of item ids
        Declared: the items of a LensKit data set are those that its users rated, which is private.
    rating_range : (float, float), optional
        Declared, or None for likes only.
    n_users : int, optional
        Number of users, if it is public; else it is released for a small part of the budget.
    model : str, optional
        A name; the best for the budget by default.
    score : {"lists", "ratings"}
        Scores that rank lists, or predicted ratings.
    ledger : path, optional
        Each ``train`` is charged to ``dataset`` in it.
    """

    epsilon: float | None = None
    delta: float | None = None
    relation: Literal["add-remove", "replace"] = "add-remove"
    catalogue: list[Any] | None = None
    rating_range: tuple[float, float] | None = None
    n_users: int | None = None
    model: str | None = None
    settings: dict[str, Any] = {}
    score: Literal["lists", "ratings"] = "lists"
    ledger: Path | None = None
    dataset: str = "default"


class HushrecScorer(Component[ItemList], Trainable):
    """Scores items by a private model; users are served from the history in the query.

    Attributes
    ----------
    model_ : Model
    """

    config: HushrecConfig
    model_: Model

    def train(self, data: Dataset, options: TrainingOptions = _ONCE) -> None:
        """Train on a data set and charge the declared budget."""
        if hasattr(self, "model_") and not options.retrain:
            return
        config = self.config
        if config.epsilon is None or config.delta is None or config.catalogue is None:
            raise InputError(
                "HushrecScorer needs epsilon, delta and the catalogue of items; pass them, as in"
                " HushrecScorer(epsilon=5, delta=1e-6, catalogue=items, rating_range=(1, 5))."
            )
        budget = Budget(config.epsilon, config.delta, relation=config.relation)
        likes = config.rating_range is None
        domain = Domain(config.catalogue, config.rating_range, likes=likes)
        ratings = Ratings.from_any(data.interactions().pandas(ids=True), domain)
        job = "lists" if likes or config.score == "lists" else "ratings"
        name = config.model or best(job, budget.epsilon < np.inf)
        ledger = None if config.ledger is None else Ledger(config.ledger, create=True)
        accountant = Accountant(budget, ledger=ledger, dataset=config.dataset)
        self.model_ = train(name, ratings, accountant, n_users=config.n_users, settings=config.settings)
        self.vectors_ = self.model_.item_vectors()

    def __call__(self, query: QueryInput, items: ItemList) -> ItemList:
        """Score some items for the user of a query; NaN where an item is not in the catalogue."""
        domain, asked = self.model_.domain, RecQuery.create(query).history_items
        history = _rows(asked, domain)
        places = domain.index(items.ids())
        known, scores = places >= 0, np.full(len(items), np.nan)
        if self.config.score == "ratings" and self.model_.scores == "ratings":
            scores[known] = self.model_.predict(history, items.ids()[known])[0]
        else:
            scores[known] = self.vectors_[places[known]] @ self.model_.query(history)[0]
        return ItemList(items, scores=scores)


def _rows(asked: ItemList | None, domain: Domain) -> Ratings:
    if asked is None or not len(asked):
        return Ratings.of_user([], domain)
    values = None if domain.likes else asked.field("rating")
    stars = np.ones(len(asked)) if values is None else np.asarray(values, float)
    return Ratings.of_user(list(zip(asked.ids().tolist(), stars.tolist(), strict=True)), domain)
