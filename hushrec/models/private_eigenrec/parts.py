"""The parts of a list: popularity, tastes, groups of item features, item pairs, words and public likes.

The score of an item is the sum of the parts' scores, each times a weight that all users learn together
(`hushrec.models.private_eigenrec.stacking`). Parts are functions of released values, public tables and
public likes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hushrec.data import Domain
from hushrec.data.features import feature_scores
from hushrec.kernels.sparse_rows import CSR, weight_sums
from hushrec.kernels.sweeps import csr
from hushrec.kernels.threads import one_blas_thread
from hushrec.models.private_eigenrec.items import HALF_TRUSTED
from hushrec.models.private_eigenrec.public_likes import PublicLikes
from hushrec.serving.item_rows import sums_of_rows
from hushrec.serving.scoring import UserState, at_norm_one, own_scores, scores_of_items
from hushrec.training.posterior import posterior_means, ratio
from hushrec.types import Array, Part

# Chosen on 600 users of MovieLens-1M with genres and decades (docs/guides/article-table.md).

#: Factors of item features: strength relative to popularity, power of an item's popularity as their weight,
#: and ridge, in parts of the strongest component's variance.
_STRENGTH, _POWER, _RIDGE = 0.2, 0.6, 0.1
#: Smallest popularity of an item of a history.
_LEAST = 0.02
#: Candidates of an item's popularity over the mean one.
_POPULARITIES = np.geomspace(1e-3, 300, 70)
#: Smallest squared number of likes per user.
_FEWEST = 1.5
#: Name of the part of public likes.
PUBLIC = "public likes"
#: A part's typical best score is the mean of this many best ones, at most a tenth of the items, for histories
#: of one of this many popular items.
_BEST, _ITEMS = 20, 50


class Parts(NamedTuple):
    """Released values and public data from which users score items, one score a part.

    Attributes
    ----------
    names : tuple of str
    popularity : ndarray of shape (n_items,)
        Likely popularity over the largest, above 0.
    history_weight : ndarray of shape (n_items,)
        Weight of an item in a user's mean taste.
    factors : tuple of ndarray, shape (n_items, n_columns)
        Item factors of the tastes and of each group of item features.
    pairs : tuple of ndarray
        Learned items, and their weights for each other; empty without item pairs.
    words : tuple of ndarray, shape (n_items, n_neighbours)
        Neighbours of each item and their similarities; empty without words.
    public : tuple of ndarray
        Item factors of the public likes, shape (n_items, n_columns), and the keys of their rows; empty
        without public likes.
    scales : ndarray of shape (n_parts,)
        One over the typical best score of each part; 0 for a part that says nothing.
    """

    names: tuple[str, ...]
    popularity: Array
    history_weight: Array
    factors: tuple[Array, ...]
    pairs: tuple[Array, ...]
    words: tuple[Array, ...]
    public: tuple[Array, ...]
    scales: Array

    @classmethod
    def of(
        cls,
        served: Mapping[str, Any],
        weights: tuple[Array, float],
        n_users: float,
        domain: Domain,
        likes: PublicLikes | None,
    ) -> Parts:
        """Build the parts from a training's arrays, its released item weights with their noise, and public
        data."""
        popularity = likely_popularity(*weights, n_users, likes)
        usual, tastes = np.asarray(served["history_weight"], np.float64), np.asarray(served["item_factors"])
        tables = [("tastes", tastes.astype(np.float64))] if tastes.shape[1] else []
        for names, features in domain.feature_tables:
            components = popularity[:, None] ** _POWER * _components(features, popularity)
            tables.append((" and ".join(names) or "item features", components))
        pairs = tuple(np.asarray(served[name]) for name in ("pair_items", "pair_weights") if name in served)
        near = domain.item_words
        words = () if near is None else (near.items, near.similarity)
        public = () if likes is None else (likes.factors(popularity), likes.keys)
        others = [name for name, _ in tables] + ["item pairs"] * bool(pairs) + ["words"] * bool(words)
        others += [PUBLIC] * bool(public)
        parts = cls(
            ("popularity", *others),
            popularity,
            np.where(usual > 0, usual, np.maximum(popularity, _LEAST) ** -_POWER),
            tuple(factors for _, factors in tables),
            pairs,
            words,
            public,
            np.ones(1 + len(others)),
        )
        return parts._replace(scales=parts._scales())

    def _scales(self) -> Array:
        if len(self.popularity) < 2:  # nothing to rank
            return np.zeros(len(self.names))
        popular = np.argsort(-self.popularity, kind="stable")[:_ITEMS]
        count = min(_BEST, max(1, len(self.popularity) // 10))
        likes = sp.csr_array(
            (np.ones(len(popular)), popular, np.arange(len(popular) + 1)),
            (len(popular), len(self.popularity)),
        )
        typical = np.zeros(len(self.names))
        for scores, item in zip(self.scores(likes, prior=0.0), popular, strict=True):
            others = np.delete(scores, item, axis=0)
            best = -np.sort(-others, axis=0)[:count] - others.mean(axis=0)
            typical += self.popularity[item] * best.mean(axis=0)
        typical /= self.popularity[popular].sum()
        return np.divide(1.0, typical, out=np.zeros(len(typical)), where=typical > 1e-9)

    def scores(self, likes: sp.csr_array, prior: float = HALF_TRUSTED) -> Array:
        """Return users' scores of all items by each part, shape (n_users, n_items, n_parts).

        A user's scores do not depend on other users, to the bit.
        """
        columns = []
        for arrays in self._each(self.scales):
            state = folded(arrays | {"history_prior": prior}, csr(likes))
            columns.append(own_scores(arrays, state))
        return np.nan_to_num(np.stack(columns, axis=2), nan=0.0, posinf=0.0, neginf=0.0)

    def _each(self, weights: Array) -> list[dict[str, Any]]:
        """Return the arrays that serve each part alone, times a weight.

        Factors have its root, because a score is a product of two.
        """
        n_items = len(self.popularity)
        nothing = {
            "center": np.float64(0.0),
            "item_bias": np.zeros(n_items),
            "item_factors": np.zeros((n_items, 0)),
            "history_weight": self.history_weight,
            "history_popularity": self.popularity,
            "history_prior": np.float64(HALF_TRUSTED),
        }
        left = iter(weights)
        each = [nothing | {"item_bias": next(left) * np.log(self.popularity)}]
        each += [nothing | {"item_factors": math.sqrt(next(left)) * block} for block in self.factors]
        if self.pairs:
            items, table = self.pairs
            each.append(nothing | {"pair_items": items, "pair_weights": next(left) * table})
        if self.words:
            neighbours, similarity = self.words
            words = {
                "neighbours": neighbours,
                "similarity": similarity,
                "word_weight": np.float64(next(left)),
            }
            each.append(nothing | words)
        if self.public:
            each.append(nothing | {"public_factors": math.sqrt(next(left)) * self.public[0]})
        return each

    def served(self, weights: Array) -> dict[str, Any]:
        """Return the arrays of the sum of the parts."""
        each = self._each(weights * self.scales)
        joined: dict[str, Any] = {name: array for arrays in each for name, array in arrays.items()}
        joined["item_bias"] = np.sum([arrays["item_bias"] for arrays in each], axis=0)
        joined["item_factors"] = np.hstack([arrays["item_factors"] for arrays in each]).astype(np.float32)
        for name in joined.keys() & {"pair_weights", "public_factors"}:
            joined[name] = joined[name].astype(np.float32)
        return joined

    def described(self, weights: Array) -> tuple[Part, ...]:
        """Return the parts with their weights and their numbers of columns among the item factors."""
        columns = [0, *(block.shape[1] for block in self.factors)]
        columns += [0] * (len(self.names) - len(columns))
        return tuple(map(Part, self.names, weights.tolist(), columns))


def folded(arrays: Mapping[str, Any], rows: CSR) -> UserState:
    """Return users' mean tastes, and their rows of likes at norm 1 where items recommend items.

    A mean taste is the weighted sum of the factors of a user's items, over that of their popularity. It
    counts by n / (n + ``history_prior``) with n likes. A user without an item that has factors gets none.
    """
    starts, items, _ = rows
    weight = np.asarray(arrays["history_weight"])[items]
    sums = sums_of_rows((starts, items, weight), arrays["item_factors"])
    popularity = np.asarray(arrays.get("history_popularity", arrays["item_bias"]))[items]
    total = weight_sums(starts, np.arange(len(items)), popularity * weight)
    if prior := float(arrays.get("history_prior", 0.0)):
        total *= 1 + prior / np.maximum(np.diff(starts), 1)
    factors = sums / np.where(total > 0, total, np.inf)[:, None]
    return UserState(np.zeros(len(factors)), factors, at_norm_one(arrays, rows))


def moved_by(arrays: Mapping[str, Any], items: Array, column: int) -> Array:
    """Return what each of one user's liked items adds to the score of another item."""
    weight, factors = arrays["history_weight"][items], np.asarray(arrays["item_factors"], np.float64)
    total = float(arrays.get("history_popularity", arrays["item_bias"])[items] @ weight)
    total *= 1 + float(arrays.get("history_prior", 0.0)) / max(len(items), 1)
    weight = weight / total if total > 0 else np.zeros(len(items))
    return weight * (factors[items] @ factors[column]) + scores_of_items(arrays, items, column)


def likely_popularity(
    noisy: Array, noise_sd: float, n_users: float, public: PublicLikes | None = None
) -> Array:
    """Return each item's mean popularity over the largest, from released item weights and public likes."""
    likes = np.sqrt(max((float(noisy.sum()) / n_users) ** 2, _FEWEST))  # a weight's, on average
    candidates = popularities(max(float(noisy.sum()), noise_sd, 1.0) / n_users / len(noisy))
    variance = noise_sd**2 + n_users * candidates / likes
    misfit = (noisy[:, None] - n_users * candidates) ** 2 / variance + np.log(variance)
    likelihood = -misfit / 2
    if public is not None:
        likelihood += public.evidence(candidates, float(likes), likelihood)
    popularity = posterior_means(candidates, likelihood)[0]
    return popularity / popularity.max()


def popularities(mean: float) -> Array:
    return mean * _POPULARITIES


def _components(features: Array, popularity: Array) -> Array:
    """Return components of the features, of nearly one strength; 0 for items without features."""
    scores = feature_scores(features, len(popularity))
    described = np.asarray(scores.any(axis=1))
    weight = ratio(popularity * described, popularity @ described)
    scores = np.where(described[:, None], scores - weight @ scores, 0.0)
    with one_blas_thread():
        variance, axes = np.linalg.eigh((scores * weight[:, None]).T @ scores)
        least = _RIDGE * float(variance.max(initial=0.0))
        return np.asarray(scores @ (axes * np.sqrt(ratio(_STRENGTH, np.maximum(variance, 0.0) + least))))
