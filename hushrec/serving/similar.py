"""Items that go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hushrec.checks import check_count, plural
from hushrec.data import Ratings
from hushrec.errors import InputError
from hushrec.serving.recommend import Recommender
from hushrec.serving.score_mixing import lowered
from hushrec.serving.scoring import UserState, all_scores
from hushrec.types import Array

if TYPE_CHECKING:
    from hushrec.serving.model import Model

#: More names of item features are counted, not listed.
_MOST_NAMED = 2


class Similar(NamedTuple):
    """An item that goes together with others.

    Attributes
    ----------
    item
    score : float
        The list is ranked by it. Compare scores of one list only.
    by : tuple of str
        The sources that know the given items: ``("5 taste dimensions", "category and brand", "40 donors")``.

    Examples
    --------
    >>> item, score, by = hushrec.serving.Similar("alien", 0.41, ("category and brand", "40 donors"))
    >>> by
    ('category and brand', '40 donors')
    """

    item: Any
    score: float
    by: tuple[str, ...]


def similar_items(model: Model, item: Any, n: int) -> list[Similar]:
    items = list(item) if isinstance(item, list | tuple | set | frozenset) else [item]
    if not items:
        raise InputError("The list of items is empty; pass one item or more.")
    columns, count, lister = model.columns_of(items), check_count("n", n), model.lists or model
    pairs = [(model.domain.items[column], model.domain.high) for column in columns]
    state = lister.fold_in(Ratings.of_user(pairs, model.domain))
    by = _sources(model, lister, state)
    if not by:
        _refuse(model, lister, items)
    supported = None if state.public and state.public.ranks else lister.arrays.get("supported")
    scores = np.array(lowered(all_scores(lister.arrays, state), supported)[0])
    scores[columns] = -np.inf
    best = np.argsort(-scores, kind="stable")[: min(count, len(scores) - len(set(columns.tolist())))]
    return [Similar(model.domain.items[column], float(scores[column]), by) for column in best]


def _sources(model: Model, lister: Recommender, state: UserState) -> tuple[str, ...]:
    public, job = state.public, "ratings" if lister.scores == "ratings" else "lists"
    judged = next((entry for entry in model.judged if entry["job"] == job and entry["weight"]), None)
    if public is None or judged is None:  # a public part that no donors judged has the users' votes
        return _learned(model, *((lister.arrays, state) if public is None else (public.arrays, public.state)))
    sources = _learned(model, lister.arrays, state) if judged["weight"] < 1 else ()
    if not _known(public.state.factors):
        return sources
    features = judged["features"] and _features(model) not in sources
    donors, external = judged["donors"], judged["external"]
    sources += (_features(model),) * features + (plural(donors, "donor"),) * (donors > 0)
    return sources + ("ratings of another population",) * external


def _learned(model: Model, arrays: Mapping[str, Any], state: UserState) -> tuple[str, ...]:
    described = int(arrays.get("feature_columns", 0))
    if isinstance(state.factors, sp.csr_array):
        sources = ("pairs of items", *(_features(model),) * (described > 0))
        return sources if _known(state.factors) else ()
    rank = state.factors.shape[1] - described
    count = int(arrays.get("directions", 0 if model.privacy.private else rank))
    taste = (plural(count, "taste dimension"),) * (count > 0 and _known(state.factors[:, :rank]))
    return taste + (_features(model),) * _known(state.factors[:, rank:])


def _known(factors: Array | sp.csr_array) -> bool:
    return bool(factors.nnz if isinstance(factors, sp.csr_array) else np.any(factors))


def _features(model: Model) -> str:
    names = sum(model.domain.feature_names, ())
    if not names:
        return "item features"
    return " and ".join(names) if len(names) <= _MOST_NAMED else plural(len(names), "item feature")


def _refuse(model: Model, lister: Recommender, items: list[Any]) -> None:
    if lister.directions is None and model.privacy.private and lister.public is None:
        raise InputError(
            "This model cannot distinguish the tastes that it learned from noise, so items cannot be"
            " compared; train for lists, or for both."
        )
    if not lister.directions and "learned_items" not in lister.arrays and lister.public is None:
        raise InputError(
            "This model does not know which items go together: no taste dimension exceeds its noise. Item"
            " features and donors help a training of few users; another training adds to the privacy cost."
        )
    raise InputError(
        f"Nothing is known of item {items[0]!r}: too few users like it at this epsilon, and no public data "
        "describe it. Pass a more popular item, or train with item features or donors."
    )
