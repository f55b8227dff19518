"""Items that go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from hushrec.checks import check_count, plural
from hushrec.data import Ratings
from hushrec.errors import InputError
from hushrec.serving.attributes import Attributes
from hushrec.serving.recommend import Recommender
from hushrec.serving.rules import Rules
from hushrec.serving.scoring import UserState, best_columns
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


def similar_items(model: Model, item: Any, n: int, rules: Mapping[str, Any]) -> list[Similar]:
    items = list(item) if isinstance(item, list | tuple | set | frozenset) else [item]
    if not items:
        raise InputError("The list of items is empty; pass one item or more.")
    columns = np.unique(model.columns_of(items))
    rows = Ratings.of_user([(model.domain.items[at], model.domain.high) for at in columns], model.domain)
    for _, best, scores, by in _lists(model, rows, columns[None], n, rules):
        if by[0]:
            listed = zip(best[0].tolist(), scores[0].tolist(), strict=True)
            return [Similar(model.domain.items[at], score, by[0]) for at, score in listed if at >= 0]
    return _refuse(model, items)


def similar_batch(model: Model, n: int, rules: Mapping[str, Any]) -> pa.Table:
    """Return the lists of all items that the model knows, item by item."""
    domain, every = model.domain, np.arange(model.domain.n_items)
    ones = np.full(len(every), domain.high, np.float32), every.astype(np.int32)
    matrix = sp.csr_array((*ones, np.arange(len(every) + 1, dtype=np.int32)), shape=(len(every), len(every)))
    rows = Ratings(domain, matrix, np.array(domain.items, dtype=object), domain.item_texts)
    parts: dict[str, list[Any]] = {name: [] for name in ("item", "similar", "rank", "score", "by")}
    for users, best, scores, by in _lists(model, rows, every[:, None], n, rules):
        known = np.array([bool(sources) for sources in by])
        at, ranks = np.nonzero((best >= 0) & known[:, None])
        found = every[users][at], best[at, ranks], (ranks + 1).astype(np.int32), scores[at, ranks]
        for name, cells in zip(parts, (*found, ["; ".join(by[place]) for place in at]), strict=True):
            parts[name].append(cells)
    if not any(map(len, parts["item"])):
        _refuse(model, list(domain.items[:1]))
    joined = {name: np.concatenate(cells) for name, cells in parts.items()}
    table = {
        name: domain.item_column.take(pa.array(cells)) if name in ("item", "similar") else pa.array(cells)
        for name, cells in joined.items()
    }
    titles = Attributes.read(rules.get("attributes"), domain).title_column
    if titles is not None:
        table["title"] = titles.take(pa.array(joined["similar"]))
    return pa.table(table)


def _lists(
    model: Model, rows: Ratings, given: Array, n: int, rules: Mapping[str, Any]
) -> Iterator[tuple[slice, Array, Array, list[tuple[str, ...]]]]:
    """Yield blocks of rows: places, best columns, scores, and the sources of each row.

    ``given`` has the columns that each row's list leaves out.
    """
    domain, lister = model.domain, model.lists or model
    count, applied = min(check_count("n", n), domain.n_items), Rules.of(domain, **rules)
    state = lister.fold_in(rows)
    ends = np.arange(0, given.size + 1, given.shape[1])
    excluded = sp.csr_array((np.ones(given.size), given.ravel(), ends), shape=rows.matrix.shape)
    options: dict[str, Any] = {"first": lister.supported, "excluded": excluded, "rules": applied}
    for users, columns, scores in best_columns(lister.arrays, state, count, **options):
        places = range(users.start, users.start + len(columns))
        by = [_sources(model, lister, state.at(slice(place, place + 1))) for place in places]
        yield slice(users.start, users.start + len(columns)), columns, scores, by


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


def _refuse(model: Model, items: list[Any]) -> NoReturn:
    lister = model.lists or model
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
