"""New items in a trained model, placed by their public features."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

import numpy as np

from hushrec.checks import plural, shown
from hushrec.data import Domain
from hushrec.data.features import feature_scores
from hushrec.data.words import Neighbours
from hushrec.errors import InputError
from hushrec.serving.modelfile import Expected
from hushrec.serving.recommend import Recommender
from hushrec.serving.stored_arrays import SERVED
from hushrec.types import Array, ModelArrays

#: Candidate ridges, in units of the features' largest squared singular value; the last leaves only a mean.
_RIDGES = np.append(np.exp2(np.arange(-16.0, 5.0)), np.inf)


def grown(model: Recommender, domain: Domain) -> Recommender:
    """Return a model over a larger catalogue, in which new items get what their features or words predict.

    Biases and factors of the learned items are regressed on the features, with the ridge of smallest error on
    items left out one at a time. Items without features get the mean of their neighbours by words. The state
    of a season is left out.
    """
    position = model.domain.index(domain.items)
    fresh, kept = position < 0, np.flatnonzero(position >= 0)
    arrays = dict(moved(model, position).serve)
    scores = feature_scores(domain.item_features, domain.n_items)
    known = scores[kept].any(axis=1)
    if "supported" in arrays:
        known &= arrays["supported"][kept] != 0
        arrays["supported"] = np.where(fresh, 1, arrays["supported"]).astype(arrays["supported"].dtype)
    near = domain.item_words
    for name in ("item_bias", "item_factors", "history_popularity", "public_factors"):
        if name not in arrays or not arrays[name].size:
            continue
        if near is not None:
            values = np.asarray(arrays[name], np.float64)
            arrays[name] = np.array(arrays[name])
            arrays[name][fresh] = _by_words(near, values, fresh)
        if known.any():
            placed = fresh & scores.any(axis=1)
            target = arrays[name][kept[known]].astype(np.float64).reshape(int(known.sum()), -1)
            expected = _expected(scores[kept[known]], target, scores[placed])
            expected = np.clip(expected, target.min(axis=0), target.max(axis=0))
            arrays[name][placed] = expected.reshape(arrays[name][placed].shape)
    if "neighbours" in arrays and near is not None:
        arrays |= {"neighbours": near.items, "similarity": near.similarity}
    arrays["new"] = np.where(fresh, 1, arrays.get("new", 0)).astype(np.uint8)
    lists = model.lists and grown(model.lists, domain)
    public = model.public and replace(model.public, model=grown(model.public.model, domain))
    return Recommender(model.estimator, domain, arrays, lists=lists, public=public, parts=model.parts)


def _expected(scores: Array, target: Array, others: Array) -> Array:
    middle, mean = scores.mean(axis=0), target.mean(axis=0)
    left, values, right = np.linalg.svd(scores - middle, full_matrices=False)
    along, best = left.T @ (target - mean), np.full(len(mean), np.inf)
    predicted = np.tile(mean, (len(others), 1))
    for ridge in _RIDGES * max(float(values.max(initial=0.0)) ** 2, 1e-300):
        kept = values**2 / (values**2 + ridge)
        leverage = left**2 @ kept + 1 / len(scores)
        rest = (target - mean - (left * kept) @ along) / np.maximum(1 - leverage, 1e-9)[:, None]
        error = (rest**2).sum(axis=0)
        better = error <= best
        weights = (right.T * (kept / np.maximum(values, 1e-150))) @ along
        predicted = np.where(better, mean + (others - middle) @ weights, predicted)
        best = np.minimum(error, best)
    return predicted


def check_larger(last: Domain, domain: Domain) -> None:
    if domain.rating_range != last.rating_range or domain.likes != last.likes:
        raise InputError(
            "The new domain has another rating range than the model's; declare the same range, or likes."
        )
    if (domain.index(last.items) < 0).any():
        raise InputError("The new catalogue lacks items of the model's; keep all of them and add new ones.")
    if domain.n_items == last.n_items:
        raise InputError("The new catalogue has no item that the model's lacks; there is nothing to add.")
    if domain.item_features is None and domain.item_words is None:
        raise InputError(
            "New items are placed by their table of articles; pass item_features with a row for the old items"
            " and the new ones."
        )
    new = np.delete(np.arange(domain.n_items), domain.index(last.items))
    lost = new[~_described(domain)[new]]
    if len(lost):
        raise InputError(
            f"{len(lost):,} of {plural(len(new), 'new item')} have no feature and no word of another item,"
            f" such as {shown(domain.items[lost[0]])}; give each a row, or leave it out of the catalogue."
        )


def _described(domain: Domain) -> Array:
    """Return whether each item has a feature or neighbours by words."""
    known = np.zeros(domain.n_items, bool)
    if domain.item_features is not None:
        known |= ~np.isnan(domain.item_features).all(axis=1)
    if domain.item_words is not None:
        known |= domain.item_words.similarity.any(axis=1)
    return known


def _by_words(near: Neighbours, values: Array, fresh: Array) -> Array:
    """Return the mean of the old neighbours of new items by words; the mean of all old items without any."""
    weight = np.where(fresh[near.items], 0.0, near.similarity)[fresh]
    total = weight.sum(axis=1).reshape(-1, *[1] * (values.ndim - 1))
    sums = np.einsum("ij,ij...->i...", weight, values[near.items[fresh]])
    return np.where(total > 0, sums / np.where(total > 0, total, 1.0), values[~fresh].mean(axis=0))


def moved(model: Recommender, position: Array) -> ModelArrays:
    """Return a model's released values over another catalogue, whose items were at ``position``.

    A negative position is a new item. If items recommend items, the learned items stay the same.
    """
    learned = _learned(model, position)
    serve = {name: learned.get(name, array) for name, array in model.arrays.items()}
    lists = None if model.lists is None else moved(model.lists, position)
    declared = ModelArrays.of(model.estimator.expected)
    state = rows_moved(model.state, position, declared.state)
    return ModelArrays(rows_moved(serve, position, {**SERVED, **declared.serve}, learned), state, lists)


def _learned(model: Recommender, position: Array) -> dict[str, Array]:
    if "pair_items" not in model.arrays:
        return {}
    place = np.full(model.domain.n_items, -1)
    place[position[position >= 0]] = np.flatnonzero(position >= 0)
    learned = place[model.arrays["pair_items"]]
    if (learned < 0).any():
        raise InputError(
            "A model of item pairs cannot drop a learned item within a season; keep it in the catalogue."
        )
    if (np.diff(learned) < 0).any():
        raise InputError("The new catalogue must keep the order of the model's items.")
    return {"pair_items": learned.astype(np.int32)}


def rows_moved(
    arrays: Mapping[str, Array],
    position: Array,
    declared: Mapping[str, Expected],
    fixed: Container[str] = (),
) -> dict[str, Array]:
    """Move arrays with a row an item to another catalogue, except the fixed ones."""

    def by_item(name: str) -> bool:
        shape = declared[name].shape if name in declared else ()
        return name.startswith("item_") or shape[:1] == ("items",)

    return {
        name: at(array, position) if by_item(name) and name not in fixed else array
        for name, array in arrays.items()
    }


def at(rows: Array, position: Array) -> Array:
    """Return rows by position; zeros for a negative one."""
    moved_rows = rows[np.maximum(position, 0)].copy()
    moved_rows[position < 0] = 0
    return moved_rows
