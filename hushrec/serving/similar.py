"""Items that go together."""

from __future__ import annotations

import math
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
from hushrec.serving.scoring import UserState, best_columns, from_items
from hushrec.types import Array, Part

if TYPE_CHECKING:
    from hushrec.serving.model import Model

#: Items are ranked for a user who likes this many items that all resemble the given one.
_COPIES = 10
#: Names of parts as sources.
_SAID = {"item pairs": "pairs of items", "words": "similar articles"}


class Similar(NamedTuple):
    """An item that goes together with others.

    Attributes
    ----------
    item
    score : float
        The list is ranked by it. Compare scores of one list only.
    by : tuple of str
        The sources that know the given items: ``("5 taste dimensions", "category", "public likes")``.

    Examples
    --------
    >>> item, score, by = hushrec.serving.Similar("alien", 0.41, ("category and brand", "public likes"))
    >>> by
    ('category and brand', 'public likes')
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
    ranked = _resembling(lister.arrays, state, given.shape[1]) if "history_prior" in lister.arrays else state
    options: dict[str, Any] = {"first": lister.supported, "excluded": excluded, "rules": applied}
    for users, columns, scores, _ in best_columns(lister.arrays, ranked, count, **options):
        places = range(users.start, users.start + len(columns))
        by = [_sources(model, lister, state.at(slice(place, place + 1))) for place in places]
        yield slice(users.start, users.start + len(columns)), columns, scores, by


def _resembling(arrays: Mapping[str, Any], state: UserState, given: int) -> UserState:
    """Return the state of a user with ten times the given likes."""
    prior = float(arrays.get("history_prior", 0.0)) / given
    factors = state.factors * ((1 + prior) / (1 + prior / _COPIES))
    likes = None if state.likes is None else state.likes * math.sqrt(_COPIES)
    return state._replace(factors=factors, likes=likes)


def _sources(model: Model, lister: Recommender, state: UserState) -> tuple[str, ...]:
    public, judged = state.public, model.judged
    if public is None or judged is None:
        return _learned(model, lister, state)
    sources = _learned(model, lister, state) if judged["weight"] < 1 else ()
    if not np.any(public.state.factors):
        return sources
    donors, external = judged["donors"], judged["external"]
    sources += ("item features",) * judged["features"] + (plural(donors, "donor"),) * (donors > 0)
    return sources + ("ratings of another population",) * external


def _learned(model: Model, lister: Recommender, state: UserState) -> tuple[str, ...]:
    arrays, start, sources = lister.arrays, 0, []
    parts = lister.parts or (Part("tastes", 1.0, state.factors.shape[1]), Part("item pairs", 1.0))
    known = {name: np.any(scores) for name, (_, scores) in from_items(arrays, state.likes).items()}
    for part in parts:
        columns = state.factors[:, start : start + part.columns]
        start += part.columns
        if part.name == "tastes":
            count = int(arrays.get("directions", 0 if model.privacy.private else part.columns))
            sources += [plural(count, "taste dimension")] * bool(count and np.any(columns))
        elif np.any(columns) or known.get(part.name):
            sources.append(_SAID.get(part.name, part.name))
    return tuple(sources)


def _refuse(model: Model, items: list[Any]) -> NoReturn:
    lister = model.lists or model
    if lister.directions is None and model.privacy.private and lister.public is None:
        raise InputError(
            "This model cannot distinguish the tastes that it learned from noise, so items cannot be"
            " compared; train for lists, or for both."
        )
    if not (lister.directions or lister.parts or lister.has_pairs) and lister.public is None:
        raise InputError(
            "This model does not know which items go together: no taste dimension exceeds its noise. A table"
            " of articles and donors help a training of few users; another training adds to the privacy cost."
        )
    raise InputError(
        f"Nothing is known of item {items[0]!r}: too few users like it at this epsilon, and no public data "
        "describe it. Pass a more popular item, or train with a table of articles or donors."
    )
