"""The public model of ratings: posterior means and variances of item biases and factors, from public ratings.

A rating is ``level + offset of the user + bias of the item + user . item + noise``, all normal (Lim and Teh
2007). The fit alternates between users and items, each with its posterior covariance. The prior mean of
biases and factors is a regression on the item features (Agarwal and Chen 2009).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hushrec.data import Domain, Ratings
from hushrec.data.features import feature_scores
from hushrec.kernels.sparse_rows import with_values
from hushrec.kernels.threads import one_blas_thread
from hushrec.models.als import ALS
from hushrec.models.private_als.week import Numbers
from hushrec.serving.recommend import Recommender
from hushrec.types import Array

# Chosen on users that `benchmarks/public.py` does not judge: of MovieLens-1M, with 15 to 150 donors,
# MovieLens-100K as another population, with features and without, and of Jester, Yahoo! R3 and a generated
# shop, with 15 and 60 donors. 10 to 40 rounds, ridges of 1 to 100 and 3 to 8 factors differ by .002 in RMSE.

#: Factors, rounds, and the ridge on the coefficients of the features, in items.
_RANK, _ROUNDS, _RIDGE = 6, 12, 30.0
#: Variance of the difference of an item's bias in another population, in squared half rating ranges.
_ELSEWHERE = 0.01
#: Initial variance of all factors, of biases, offsets and noise, each as a fraction of the ratings' variance.
_START = 0.25
#: Smallest variance, in the same units.
_LEAST = 1e-4


class PublicItems(NamedTuple):
    """The items as estimated from public ratings.

    Attributes
    ----------
    level : float
        Mean rating.
    bias, bias_variance : ndarrays of shape (n_items,)
        Posterior mean and variance.
    expected : ndarray of shape (n_items,)
        Prior mean of the biases.
    spread : float
        Prior variance of the biases.
    factors : ndarray of shape (n_items, rank)
        Posterior means; the users' factors have variance 1.
    noise, offset_variance : float
        Variances of a rating's noise and of the users' levels.
    design : ndarray of shape (n_items, n_columns)
        A column of ones, and the scores of the item features.
    """

    level: float
    bias: Array
    bias_variance: Array
    expected: Array
    spread: float
    factors: Array
    noise: float
    offset_variance: float
    design: Array

    def alone(self) -> dict[str, Any]:
        return {
            "center": np.float64(self.level),
            "item_bias": self.bias,
            "item_factors": self.factors.astype(np.float32),
            "regularization": np.float64(self.noise),
            "bias_regularization": np.float64(self.noise / self.offset_variance),
        }

    def merged(self, private: Mapping[str, Any], state: Mapping[str, Array]) -> dict[str, Any]:
        """Return the arrays of a private model, with its state, merged with this one.

        An item's bias combines both posteriors by inverse variance and removes the wider of the two priors,
        which would count twice. Users fit the private and the public factors together.
        """
        bias, prior = np.asarray(private["item_bias"]), Numbers(*state["numbers"].tolist()).bias_prior
        variance = np.maximum(state["item_bias_variance"], _LEAST * prior)
        unknown = self.design @ np.linalg.lstsq(self.design, bias)[0]  # an item of which nothing was released
        wider, middle = (prior, unknown) if prior > self.spread else (self.spread, self.expected)
        precision = 1 / variance + 1 / self.bias_variance - 1 / wider
        total = bias / variance + self.bias / self.bias_variance - middle / wider
        ridge = float(private["regularization"])
        columns = np.asarray(private["item_factors"]), np.sqrt(ridge / self.noise) * self.factors
        return {
            **{name: private[name] for name in ("center", "regularization", "bias_regularization")},
            "item_bias": total / precision,
            "item_factors": np.column_stack(columns).astype(np.float32),
        }


def ratings_model(
    donors: Ratings, external: Ratings | None, private: Recommender | None, state: Mapping[str, Array]
) -> Recommender:
    """Return the public model of ratings, merged with a private one if its state is known."""
    with one_blas_thread():
        items = public_items(donors, external)
        known = private is not None and "item_bias_variance" in state
        arrays = items.merged(private.arrays, state) if private is not None and known else items.alone()
    estimator = ALS(rank=arrays["item_factors"].shape[1], ridge_exponent=0.0)
    return Recommender(estimator, donors.domain, arrays)


def public_items(donors: Ratings, external: Ratings | None) -> PublicItems:
    """Fit the items to public ratings and to the item features of their domain.

    Users of another population share the factors. An item's bias there differs by a small normal term.
    """
    domain, rows = donors.domain, donors.matrix
    if external is not None:
        rows = sp.csr_array(sp.vstack([rows, external.matrix], format="csr"))
    level, half = float(rows.data.mean()), domain.half_width**2
    rows = with_values(rows, rows.data - level)
    square = max(float((rows.data**2).mean()), _LEAST * half)
    users = _Side(rows, [*range(_RANK + 1)])
    items = _Side(sp.csr_array(rows.T), [*range(_RANK), _RANK + 1, _RANK + 2])
    users.table[:, :_RANK] = np.random.default_rng(0).standard_normal((len(users.table), _RANK))
    users.table[:, _RANK + 1], items.table[:, _RANK] = 1.0, 1.0  # factors of biases and offsets
    users.table[donors.n_users :, _RANK + 2] = 1.0
    users.moments[:] = users.table[:, :, None] * users.table[:, None, :]
    noise, offsets = _START * square, _START * square
    variances = np.array([*[_START * square / _RANK] * _RANK, _START * square, _ELSEWHERE * half])
    prior = _Regression(domain, items.rated)
    for _ in range(_ROUNDS):
        items.solve(users, prior.mean, variances, noise)
        variances[:-1] = np.maximum(prior.fit(*items.known), _LEAST * square)
        summed = users.solve(items, 0.0, np.array([*[1.0] * _RANK, offsets]), noise)
        squares = users.moments[users.rated].mean(axis=0).diagonal()
        offsets = max(float(squares[_RANK]), _LEAST * square)
        left = float((rows.data**2).sum() - 2 * ((rows @ items.table) * users.table).sum())
        noise = max((left + float((summed * users.moments).sum())) / rows.nnz, _LEAST * square)
        scale = np.array([*np.sqrt(squares[:_RANK]), 1.0, 1.0, 1.0])  # that users' variances stay 1
        users.stretch(1 / scale)
        items.stretch(scale)
        variances[:_RANK] *= squares[:_RANK]
        prior.mean[:, :_RANK] *= scale[:_RANK]
    (means, unsure), biases = items.known, prior.mean[:, _RANK]
    known = means[:, _RANK], unsure[:, _RANK], biases, float(variances[_RANK])
    return PublicItems(level, *known, means[:, :_RANK], noise, offsets, prior.design)


class _Side:
    """Users or items, each a normal vector with some fixed entries.

    ``table`` holds the means (n, width), ``moments`` the expected outer products (n, width, width).
    """

    def __init__(self, rows: sp.csr_array, free: list[int]) -> None:
        n_rows, width = rows.shape[0], _RANK + 3
        self._rows, self._cells = rows, with_values(rows, np.ones(rows.nnz))
        self._free, self._fixed = free, [place for place in range(width) if place not in free]
        self.rated = np.diff(rows.indptr) > 0
        self.table, self.moments = np.zeros((n_rows, width)), np.zeros((n_rows, width, width))

    @property
    def known(self) -> tuple[Array, Array]:
        means = self.table[:, self._free]
        return means, self.moments[:, self._free, self._free] - means**2

    def solve(self, other: _Side, mean: Array | float, variances: Array, noise: float) -> Array:
        """Return the sums of the other side's moments."""
        free, fixed = self._free, self._fixed
        width = self.table.shape[1]
        sums = (self._cells @ other.moments.reshape(-1, width**2)).reshape(-1, width, width)
        explained = np.einsum("iab,ib->ia", sums[:, free][:, :, fixed], self.table[:, fixed])
        precision = sums[:, free][:, :, free] / noise + np.diag(1 / variances)
        right = ((self._rows @ other.table)[:, free] - explained) / noise + mean / variances
        covariance = np.linalg.inv(precision)
        self.table[:, free] = np.einsum("iab,ib->ia", covariance, right)
        self.moments[:] = self.table[:, :, None] * self.table[:, None, :]
        self.moments[np.ix_(range(len(sums)), free, free)] += covariance
        return sums

    def stretch(self, scale: Array) -> None:
        self.table *= scale
        self.moments *= scale[:, None] * scale


class _Regression:
    """The prior mean of the items: a ridge regression on their features."""

    def __init__(self, domain: Domain, rated: Array) -> None:
        scores = feature_scores(domain.item_features, domain.n_items)
        self.design = np.column_stack([np.ones(len(scores)), scores * np.sqrt(scores.shape[1])])
        self.mean, self._rated = np.zeros((len(scores), _RANK + 2)), rated
        ridge = np.diag([0.0, *[_RIDGE] * scores.shape[1]])
        known = self.design[rated]
        self._to_coefficients = np.linalg.solve(known.T @ known + ridge, known.T)

    def fit(self, means: Array, variances: Array) -> Array:
        """Return the mean squares of the rest."""
        self.mean[:, :-1] = self.design @ (self._to_coefficients @ means[self._rated, :-1])
        squares = (means - self.mean) ** 2 + variances
        return np.asarray(squares[self._rated, :-1].mean(axis=0))
