"""The public model of likes. It starts from the released popularity and the item features.

It is a function of released values and public data, so it has no privacy cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from hushrec.data import Ratings
from hushrec.data.features import feature_scores
from hushrec.kernels.threads import one_blas_thread
from hushrec.models.ease import own_likes
from hushrec.models.private_eigenrec import PrivateEigenRec
from hushrec.models.private_eigenrec.parts import popularities
from hushrec.models.private_eigenrec.users import RATED
from hushrec.serving.recommend import Recommender
from hushrec.training.posterior import item_weights, posterior_means
from hushrec.types import Array

# Chosen on users that `benchmarks/public.py` does not judge. Recall changes little near these values.

#: Ridge of the regressions, in likes: at least the first; the second times the mean number of likes that the
#: item of a like has.
_LEAST_RIDGE, _RIDGE = 50.0, 1.5
#: Weights in users: of the released popularity, of a user of another population, and of the item features.
_POPULARITY, _EXTERNAL, _FEATURES = 300.0, 0.2, 2000.0
#: Most numbers in the table of item factors: 32 MiB in a model file.
_NUMBERS = 1 << 23
_TINY = float(np.finfo(np.float64).tiny)


class _Sums(NamedTuple):
    """Each item's ratings, likes, and weight as `LikingUsers.item_weights` sums it."""

    users: int
    rated: Array
    likes: Array
    weights: Array

    @classmethod
    def of(cls, ratings: Ratings, like_threshold: float | None) -> _Sums:
        rated, liked = ratings.matrix, ratings.liked(like_threshold).matrix
        n_rated, n_likes = np.diff(rated.indptr), np.diff(liked.indptr)
        unit = 1 / np.sqrt(np.maximum(n_likes + RATED**2 * (n_rated - n_likes), RATED**2))
        columns, size = (rated.indices, liked.indices), ratings.n_items
        number, likes = (np.bincount(items, minlength=size).astype(np.float64) for items in columns)
        cell_weights = np.repeat(RATED * unit, n_rated), np.repeat((1 - RATED) * unit, n_likes)
        weights = [
            np.bincount(items, weight, size) for items, weight in zip(columns, cell_weights, strict=True)
        ]
        return cls(int((n_rated > 0).sum()), number, likes, weights[0] + weights[1])

    def likes_per_weight(self) -> Array:
        """Return the expected number of likes per unit of each item's weight."""
        fractions = np.linspace(0, 1, 101)[1:-1]
        misses = self.rated - self.likes
        likelihood = self.likes[:, None] * np.log(fractions) + misses[:, None] * np.log1p(-fractions)
        liked, _ = posterior_means(fractions, likelihood)
        part = liked / (liked + RATED * (1 - liked))
        return np.asarray(part * (self.likes / part).sum() / max(float(self.weights.sum()), _TINY))


@dataclass(frozen=True, eq=False)
class Released:
    """A private model of likes, and the public users among its users.

    Attributes
    ----------
    private : Recommender
    known, trained : Ratings
        Likes of all public users, and of those who are among the private ones.
    state : mapping of str to ndarray
        State of the private training. Without released item weights, popularity is that of the public users.
    """

    private: Recommender
    known: Ratings
    trained: Ratings
    state: Mapping[str, Any]

    @cached_property
    def like_threshold(self) -> float | None:
        return getattr(self.private.estimator, "like_threshold", None)

    @cached_property
    def weights(self) -> tuple[float, Array, float] | None:
        """The number of users, the released item weights and their noise."""
        if not {"users", "item_weights", "item_weights_variance"} <= set(self.state):
            return None
        noise_sd = float(np.sqrt(np.mean(self.state["item_weights_variance"])))
        return max(float(self.state["users"][0]), 1.0), self.state["item_weights"], noise_sd

    @cached_property
    def _sums(self) -> tuple[_Sums, _Sums]:
        return _Sums.of(self.known, self.like_threshold), _Sums.of(self.trained, self.like_threshold)

    def rates(self, likes: Ratings) -> Array:
        """Return the posterior mean of the fraction of users who like each item.

        The prior is the maximum-likelihood mixture over all items. The number of likes of the public users is
        binomial. The released weight, without the part of the public users in it, is normal.
        """
        public, trained = self._sums
        rate = popularities(max(float(public.likes.sum()), 1.0) / likes.n_items / max(public.users, 1))
        rate = rate[rate < 1]
        likers = np.bincount(likes.matrix.indices, minlength=likes.n_items)[:, None]
        likelihood: Array = likers * np.log(rate) + (likes.n_users - likers) * np.log1p(-rate)
        if self.weights is not None:
            n_users, released, noise_sd = self.weights
            likes_per_weight = public.likes_per_weight()[:, None]
            mean = max(n_users - trained.users, 1.0) * rate / likes_per_weight
            variance = noise_sd**2 + mean / likes_per_weight
            error = (released - trained.weights)[:, None] - mean
            likelihood -= error**2 / (2 * variance) + np.log(variance) / 2
        return posterior_means(rate, likelihood)[0]

    def model(self, likes: Ratings, external: Ratings | None, features: bool) -> Recommender:
        """Return the public model of some public likes.

        Each item is regressed on all others and on 1 (EASE with an intercept). Artificial rows are added to
        those of users: one likes every item in proportion to its popularity, and one for each component of
        the item features likes in proportion to it. The regressions are products of item factors with an
        entry for each row. ``external`` are likes of another population.
        """
        rates, n_items = self.rates(likes), likes.n_items
        n_rows = likes.n_users + (0 if external is None else external.n_users)
        count = max(_NUMBERS // max(n_rows, 1), math.isqrt(_NUMBERS))
        learned = np.sort(np.argsort(-rates, kind="stable")[:count])
        rate = rates[learned]
        rows = [_with_one(likes, learned), np.sqrt(_POPULARITY) * np.append(rate, 1.0)[None]]
        if external is not None:
            rows.append(np.sqrt(_EXTERNAL) * _with_one(external, learned))
        if features:
            scores = feature_scores(likes.domain.item_features, n_items)[learned]
            liking = np.sqrt(_FEATURES * rate.mean() * rate)[:, None] * scores
            rows.append(np.vstack([liking, np.zeros(liking.shape[1])]).T)
        counts = np.bincount(likes.matrix.indices, minlength=n_items)
        ridge = max(_LEAST_RIDGE, _RIDGE * float(counts @ counts) / max(likes.n_ratings, 1))
        with one_blas_thread():
            factors = _factors(np.vstack(rows), ridge)
        factors, intercept = factors[:-1], factors[-1]
        left = 1 - (factors**2).sum(axis=1)  # an item's regression leaves itself out
        factors /= left[:, None]
        bias = factors @ intercept
        arrays = {
            "center": np.float64(0.0),
            "item_bias": rates * bias.sum() / rate.sum(),
            "item_factors": np.zeros((n_items, factors.shape[1]), np.float32),
            "history_weight": np.zeros(n_items),
            "history_total": np.float64(1.0),
            "supported": np.ones(n_items, np.uint8),
            "directions": np.int64(factors.shape[1]),
        }
        for name, values in (("item_bias", bias), ("item_factors", factors), ("history_weight", left)):
            arrays[name][learned] = values
        estimator = PrivateEigenRec(like_threshold=self.like_threshold)
        return Recommender(estimator, likes.domain, arrays)

    def without(self, gone: Ratings) -> Recommender:
        """Return the private model approximately as if some public users had not been trained on.

        Their contributions are subtracted from the popularity and from the taste dimensions.
        """
        arrays = dict(self.private.arrays)
        if self.weights is None or self.private.parts or "pair_items" in arrays or not self.trained.n_users:
            return self.private
        n_users, released, noise_sd = self.weights
        places = self.trained.user_index(gone)
        rated = self.trained.rows(places[places >= 0], keyed=True)
        heaviest = item_weights(released, noise_sd).mean.max()  # whose bias is 1
        removed = _Sums.of(rated, self.like_threshold).weights
        arrays["item_bias"] = np.asarray(arrays["item_bias"]) - removed / heaviest
        scale = np.sqrt(np.asarray(arrays["history_weight"], np.float64))
        (learned,) = np.nonzero(scale)
        vectors = np.asarray(arrays["item_factors"], np.float64)[learned] * scale[learned, None]
        lengths = np.linalg.norm(vectors, axis=0)
        present = lengths > 0
        if present.any():
            unit = vectors[:, present] / lengths[present]
            rows, factors = self._contributions(self.trained, scale, learned, unit)
            strengths = n_users * ((rows @ unit) * factors).mean(axis=0)
            rows, factors = self._contributions(rated, scale, learned, unit)
            unit -= (rows.T @ factors) / np.maximum(strengths, 1.0)
            moved = np.zeros(arrays["item_factors"].shape, np.float32)
            moved[np.ix_(learned, present)] = unit * lengths[present] / scale[learned, None]
            arrays["item_factors"] = moved
        return Recommender(self.private.estimator, self.private.domain, arrays)

    def _contributions(
        self, rated: Ratings, scale: Array, learned: Array, directions: Array
    ) -> tuple[Array, Array]:
        """Return users' rows without popularity, and their factors, approximately as in the training."""
        scale = scale[learned]
        first = np.maximum(np.asarray(self.private.arrays["item_bias"])[learned], 0.0) * scale
        first /= max(float(np.linalg.norm(first)), _TINY)
        rows = own_likes(rated.liked(self.like_threshold).rated(), learned).toarray() * scale
        rows = _unit_rows(rows)
        rows = _unit_rows(rows - np.outer(rows @ first, first))
        return rows, _unit_rows(rows @ directions)


def _unit_rows(rows: Array) -> Array:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _TINY))


def _with_one(likes: Ratings, learned: Array) -> Array:
    return np.column_stack([own_likes(likes, learned).toarray(), np.ones(likes.n_users)])


def _factors(rows: Array, ridge: float) -> Array:
    """Return a factor ``F``, one row a column, of the ridge regression of rows on themselves, ``F F'``."""
    if len(rows) > rows.shape[1]:  # as many rows as columns have the same second moments
        values, vectors = np.linalg.eigh(rows.T @ rows)
        rows = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    gramian = rows @ rows.T
    gramian[np.diag_indices(len(rows))] += ridge
    return np.asarray(solve_triangular(cholesky(gramian, lower=True), rows, lower=True).T)
