"""The public model of likes, which starts from the released popularity and the item features.

It is a function of released values, of ratings that their owners have published, and of public item features,
so it has no privacy cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from hushrec.data import Ratings
from hushrec.data.features import feature_scores
from hushrec.models.ease import own_likes
from hushrec.public.models import MOST_ITEMS, likes_of, regressions
from hushrec.serving.recommend import Recommender
from hushrec.types import Array

# Chosen on users that `benchmarks/public.py` does not judge: halves of MovieLens-1M, Jester, Yahoo! R3, and
# generated likes of a sparse catalogue and a shop; 3 to 120 donors, epsilon 1 and 5. Recall changes little
# near these values.

#: What the released popularity counts beside public rows, in users.
_POPULARITY = 300.0
#: What a row of another population counts, and what the features do.
_EXTERNAL, _FEATURES = 0.2, 2000.0
#: Candidates of an item's popularity over the mean one, and steps to how usual each is.
_POPULARITIES = np.exp(np.linspace(np.log(1e-3), np.log(300), 70))
_STEPS = 30
#: Largest factor by which a row without its popularity is lengthened, as in the training.
_LONGEST = 4.0


class _Sums(NamedTuple):
    """For each item, its number of likes and the sum of 1 / sqrt(likes of the user) over users."""

    users: int
    likes: Array
    weights: Array

    @classmethod
    def of(cls, rows: Ratings) -> _Sums:
        counts = np.diff(rows.matrix.indptr)
        each, n_items = 1 / np.sqrt(np.repeat(counts, counts)), rows.n_items
        likes = np.bincount(rows.matrix.indices, minlength=n_items).astype(np.float64)
        return cls(int((counts > 0).sum()), likes, np.bincount(rows.matrix.indices, each, n_items))


@dataclass(frozen=True, eq=False)
class Released:
    """A private model of likes, and the public users among its users.

    Attributes
    ----------
    private : Recommender
    known : Ratings
        Likes of all public users.
    trained : Ratings
        Likes of the public users who are among the private ones.
    noise : (float, float), optional
        The number of users trained on, and the standard deviation of the noise on each item weight.
    """

    private: Recommender
    known: Ratings
    trained: Ratings
    noise: tuple[float, float] | None

    @cached_property
    def _sums(self) -> tuple[_Sums, _Sums]:
        return _Sums.of(self.known), _Sums.of(self.trained)

    @cached_property
    def _scale(self) -> float:
        """The released weight of the heaviest item; a model holds weights relative to it.

        The inner product of the public users' weights with the released ones estimates it: users have on
        average as much in common with public users as those have among themselves.
        """
        assert self.noise is not None
        n_users, noise_sd = self.noise
        public, trained = self._sums
        pairs = float(public.weights @ public.weights - public.users) / max(public.users - 1, 1)
        common = trained.weights @ public.weights + (n_users - trained.users) * max(pairs, 0.0)
        found = common / max(float(self._popularity @ public.weights), 1e-12)
        # the heaviest of many items weighs at least the expected maximum of their noise
        least = np.sqrt(2 * np.log(max(len(self._popularity), 2))) * noise_sd
        return float(np.clip(found, max(least, 1e-9), max(n_users, 1.0)))

    @cached_property
    def _popularity(self) -> Array:
        popularity = np.asarray(self.private.arrays["item_bias"], np.float64)
        return popularity / max(popularity.max(), 1e-300)

    def rates(self, rows: Ratings) -> Array:
        """Return the posterior mean of the fraction of users who like each item.

        The prior is the maximum-likelihood mixture over all items (non-parametric, by EM). A released weight
        without the public users' part is normal; the number of likes in the public rows is Poisson.

        Parameters
        ----------
        rows : Ratings
            Of the public users.
        """
        public, trained = self._sums
        own = _Sums.of(rows)
        likes_a_weight = public.likes.sum() / max(public.weights.sum(), 1e-12)
        mean = float(public.weights.sum()) / max(public.users, 1) / rows.n_items
        weight: Array = max(mean, 1e-12) * _POPULARITIES
        expected: Array = max(own.users, 1) * weight * likes_a_weight
        fit = own.likes[:, None] * np.log(expected) - expected
        if self.noise is not None:
            n_users = max(self.noise[0] - trained.users, 1.0)
            variance = self.noise[1] ** 2 + n_users * weight / likes_a_weight
            rest = self._scale * self._popularity - trained.weights
            fit -= (rest[:, None] - n_users * weight) ** 2 / (2 * variance) + np.log(variance) / 2
        likelihood = np.exp(fit - fit.max(axis=1, keepdims=True))
        usual = np.full(len(weight), 1 / len(weight))
        for _ in range(_STEPS):
            each = likelihood * usual / (likelihood @ usual)[:, None]
            usual = each.mean(axis=0)
        return np.minimum(each @ weight * likes_a_weight, 1.0)

    def model(self, rows: Ratings, external: Ratings | None, features: bool) -> Recommender:
        """Return the public model of some public rows.

        Each item is regressed on all others and on 1 (EASE with an intercept). Artificial users are added to
        the public ones: some like every item in proportion to its popularity, and one for each component of
        the item features likes in proportion to it, so similar items go together.

        Parameters
        ----------
        rows : Ratings
            Of public users.
        external : Ratings, optional
            Of another population.
        features : bool
            Whether to use the item features.
        """
        rates = self.rates(rows)
        learned = np.sort(np.argsort(-rates, kind="stable")[:MOST_ITEMS]).astype(np.int32)
        rate = rates[learned]
        tables = [likes_of(rows, learned), np.sqrt(_POPULARITY) * np.append(rate, 1.0)[None]]
        if external is not None:
            tables.append(np.sqrt(_EXTERNAL) * likes_of(external, learned))
        if features:
            scores = feature_scores(rows.domain.item_features, rows.n_items)[learned]
            liking = np.sqrt(_FEATURES * rate.mean() * rate)[:, None] * scores
            tables.append(np.column_stack([liking.T, np.zeros(liking.shape[1])]))
        counts = _Sums.of(rows).likes
        like_threshold = getattr(self.private.estimator, "like_threshold", None)
        return regressions(
            sp.csr_array(sp.vstack(tables)), learned, counts, 1e-3 * rates, rows.domain, like_threshold
        )

    def without(self, gone: Ratings) -> Recommender:
        """Return the private model approximately as if some public users had not been trained on.

        Judges of a model that was trained on their held-out likes would overrate it. The method subtracts
        their contributions to the popularity and to the taste dimensions. The strength of a dimension, as
        measured on the public users, gives the size of its change.
        """
        arrays = dict(self.private.arrays)
        if self.noise is None or "learned_items" in arrays or not self.trained.n_users:
            return self.private
        gone = gone.rows(self.trained.user_index(gone) >= 0, keyed=True)
        arrays["item_bias"] = self._popularity - _Sums.of(gone).weights / self._scale
        scale = np.sqrt(np.asarray(arrays["history_weight"], np.float64))
        (learned,) = np.nonzero(scale)
        vectors = np.asarray(arrays["item_factors"], np.float64)[learned] * scale[learned, None]
        lengths = np.linalg.norm(vectors, axis=0)
        present = lengths > 1e-9
        if present.any():
            unit = vectors[:, present] / lengths[present]
            rows, factors = self._contributions(self.trained, scale, learned, unit)
            strengths = self.noise[0] * ((rows @ unit) * factors).mean(axis=0)
            rows, factors = self._contributions(gone, scale, learned, unit)
            unit -= (rows.T @ factors) / np.maximum(strengths, 1e-9)
            moved = np.zeros(arrays["item_factors"].shape, np.float32)
            moved[np.ix_(learned, present)] = unit * lengths[present] / scale[learned, None]
            arrays["item_factors"] = moved
        return Recommender(self.private.estimator, self.private.domain, arrays)

    def voted(self, model: Recommender, gone: Ratings) -> Recommender:
        """Return the model that users voted for, changed as :meth:`without` changes the private one.

        It has the private model's taste dimensions and columns of item features.
        """
        columns = self.without(gone).arrays["item_factors"], model.item_factors
        factors = np.column_stack([columns[0], columns[1][:, columns[0].shape[1] :]])
        return Recommender(model.estimator, model.domain, {**model.arrays, "item_factors": factors})

    def _contributions(
        self, rows: Ratings, scale: Array, learned: Array, directions: Array
    ) -> tuple[Array, Array]:
        """Return users' rows without popularity, and their factors, approximately as in the training."""
        scale = scale[learned]
        first = np.maximum(self._popularity[learned], 0.0) * scale
        first /= max(float(np.linalg.norm(first)), 1e-300)
        own = own_likes(rows, learned).toarray() * scale
        own /= np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-9)
        own -= np.outer(own @ first, first)
        own /= np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1 / _LONGEST)
        factors = own @ directions
        return own, factors / np.maximum(np.linalg.norm(factors, axis=1, keepdims=True), 1e-9)
