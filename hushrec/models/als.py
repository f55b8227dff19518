"""Alternating least squares without privacy: the reference for private models.

Ratings: ``rating ~ center + user offset + item bias + user factors . item factors``, solved by alternating
ridge regressions (:mod:`hushrec.kernels.sweeps`). Likes: every observed cell is 1, and all cells are pulled
to 0 with ``unobserved_weight`` (Hu, Koren and Volinsky 2008; Chien et al. 2021, section 5.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.checks import Count, NotNegative, Positive, Share
from hushrec.data import Domain, Ratings
from hushrec.kernels.arrays import BiasedFactors
from hushrec.kernels.residuals import residual_norms
from hushrec.kernels.sparse_rows import row_squares, row_sums, used_columns, weight_sums
from hushrec.kernels.sweeps import CSR, SweepSettings, csr, half_sweep, initial_items
from hushrec.privacy import Bound, Bounded, Budget, Plan
from hushrec.serving.modelfile import Expected
from hushrec.serving.scoring import UserState
from hushrec.training.estimator import Estimator
from hushrec.training.gate import Gate
from hushrec.training.trainable import exact_plan
from hushrec.training.users import RIDGES, ridge_on_items, ridge_parts, user_means
from hushrec.types import Array

#: Part of the variance after biases that the ridge counts as noise, with very many ratings per user and item.
#: With fewer ratings, chance is larger than the noise. This and the exponent were chosen on validation
#: ratings of ML-1M, ML-100K, coat, Flixster and Yahoo! R3.
_NOISE_PART = 0.72
_RANK, _RIDGE = 32, 20.0
#: If from this round on factors leave less than this part of the deviation after biases, the ridge is
#: computed from what they leave. Ratings of low rank without noise are then fitted. Real tables leave .8.
_SETTLED, _MUCH_LESS = 4, 0.5
#: Largest ridge on offsets and biases, in ratings.
_LARGEST_RIDGE = 200.0


@dataclass(frozen=True, kw_only=True)
class ALS(Estimator[Ratings]):
    """Matrix factorisation without privacy.

    Parameters
    ----------
    rank : int or None
        Number of factors, >= 0 (0 leaves offsets and biases). None takes 32.
    iterations : int
        Sweeps over users and items, >= 1.
    regularization : float or None
        Ridge on the factors of a user or an item with the mean number of ratings, > 0. None takes 20 for
        likes. For ratings it takes 0.72 of the residual deviation after biases, times the sum of the roots of
        the mean number of ratings per user and per item (Candes and Plan 2010), times 1 + m^(-2/3), m the
        smaller of the two. If the factors leave less than half of that deviation, the remaining one is used.
    bias_regularization : float or None
        Ridge on user offsets and item biases, > 0. None estimates both: variance of a rating over that of the
        users' levels, and over that of the items'.
    ridge_exponent : float
        The ridge grows with the number of ratings of a user or an item to this power, in [0, 1], rounded to a
        power of two; not for likes.
    unobserved_weight : float
        Weight of every cell's pull towards 0. Above 0 the data are likes: no offsets, no biases, and
        scores are not clipped to the rating range.
    dtype : {"float32", "float64"}
        Arithmetic of the sweeps.

    Examples
    --------
    >>> import math
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> accountant = hushrec.Accountant(hushrec.Budget(math.inf, 1e-6), data_is_public=True)
    >>> model = hushrec.ALS(rank=4).fit(ratings, accountant)
    >>> model.privacy.private
    False
    """

    name: ClassVar[str] = "als"
    expected: ClassVar[dict[str, Expected]] = RIDGES

    rank: Annotated[int, "[0, inf)"] | None = None
    iterations: Count = 15
    regularization: Positive | None = None
    bias_regularization: Positive | None = None
    ridge_exponent: Share = 0.4
    unobserved_weight: NotNegative = 0.0
    dtype: Literal["float32", "float64"] = "float32"

    @property
    def scores(self) -> str:  # type: ignore[override]
        return "likes" if self.unobserved_weight > 0 else "ratings"

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return exact_plan(self.name, budget, "private-als")

    def users(self, ratings: Ratings) -> Ratings:
        return ratings

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        rank = _RANK if self.rank is None else self.rank
        if self.scores == "likes":
            items = initial_items(ratings.domain.n_items, rank, seed, self.dtype)
            center, ridge, offset_ridge = 0.0, self.regularization or _RIDGE, 0.0
            for _ in range(self.iterations):
                users = half_sweep(csr(ratings.matrix), center, items, self._of_likes(ridge))
                items = half_sweep(csr(ratings.transposed), center, users, self._of_likes(ridge))
        else:
            center, items, ridge, offset_ridge = self._of_ratings(ratings, rank, seed)
        released = BiasedFactors(gate.release("exact model", Bounded(items, Bound(math.inf, math.inf))))
        return {
            "center": np.float64(center),
            "item_bias": released.biases.astype(np.float64),
            "item_factors": released.factors.astype(np.float32),
            "regularization": np.float64(ridge),
            "bias_regularization": np.float64(offset_ridge),
        }

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        ridge = float(arrays["regularization"])
        if self.scores == "likes":
            return ridge_on_items(arrays, history.matrix, self._of_likes(ridge))
        rows, tables = used_columns(csr(history.matrix), arrays["item_factors"], arrays["item_bias"])
        items = BiasedFactors.joined(*tables).table
        side = _Side(rows, float(arrays["bias_regularization"]), self.ridge_exponent)
        return UserState.of(side.solve(float(arrays["center"]), items, ridge))

    def score_parts(self, arrays: Mapping[str, Array], history: Ratings, column: int) -> Array:
        ridge = float(arrays["regularization"])
        settings = self._of_likes(ridge)
        if self.scores != "likes":
            ridge *= 2.0 ** (self.ridge_exponent * round(math.log2(max(history.n_ratings, 1))))
            offset_ridge = float(arrays["bias_regularization"])
            settings = SweepSettings(regularization=ridge, bias_regularization=offset_ridge)
        return ridge_parts(arrays, history.matrix, settings, column)

    def _of_ratings(self, ratings: Ratings, rank: int, seed: int) -> tuple[float, Array, float, float]:
        """Return the level, the items, and the ridges of a user with one rating."""
        items = initial_items(ratings.domain.n_items, rank, seed, self.dtype)
        center = mean_of_user_means(user_means(ratings), ratings.domain)
        by_items = csr(ratings.matrix.T.tocsr())
        start = _biases_first(ratings, by_items, center, self.bias_regularization, self.iterations)
        BiasedFactors(items).biases[:] = start.biases
        by_user = _Side(csr(ratings.matrix), start.offset_ridge, self.ridge_exponent)
        by_item = _Side(by_items, start.bias_ridge, self.ridge_exponent)
        noise, falls = start.noise, self.regularization is None
        ridge = self._regularization(ratings, by_item.rated, _NOISE_PART * noise)
        for step in range(self.iterations):
            users = np.empty(0)  # frees the arrays of the last round
            users = by_user.solve(center, items, ridge * by_user.per_count)
            if falls and step >= _SETTLED:
                left = _left(ratings, center, users, items)
                falls = left < _MUCH_LESS * noise
                if falls:
                    noise, ridge = left, self._regularization(ratings, by_item.rated, _NOISE_PART * left)
            items = by_item.solve(center, users, ridge * by_item.per_count)
        return center, items, ridge * by_user.per_count, start.offset_ridge

    def _regularization(self, ratings: Ratings, rated: int, noise: float) -> float:
        if self.regularization is not None:
            return self.regularization
        if not ratings.n_ratings:
            return _RIDGE
        per_row = ratings.n_ratings / ratings.n_users, ratings.n_ratings / rated
        noise *= 1 + min(per_row) ** (-2 / 3)
        return max(noise, 1e-3 * ratings.domain.half_width) * sum(map(math.sqrt, per_row))

    def _of_likes(self, regularization: float) -> SweepSettings:
        return SweepSettings(
            regularization=regularization,
            bias_regularization=None,
            unobserved_weight=self.unobserved_weight,
        )


class _Side:
    """Users or items with their ratings."""

    def __init__(self, rows: CSR, bias_regularization: float, exponent: float) -> None:
        self._counts = np.diff(rows[0])
        self._growth = _powers(exponent)[np.rint(np.log2(np.maximum(self._counts, 1))).astype(np.uint8)]
        self._rows, self._bias_regularization, self._exponent = rows, bias_regularization, exponent

    @cached_property
    def rated(self) -> int:
        return int((self._counts > 0).sum())

    @property
    def per_count(self) -> float:
        """Ratio of the ridge for the mean number of ratings to that for one rating."""
        return float(max(self._counts.sum() / max(self.rated, 1), 1.0) ** -self._exponent)

    def solve(self, center: float, other: Array, ridge: float) -> Array:
        """Half sweep; ``ridge`` is that of a row with one rating."""
        settings = SweepSettings(regularization=ridge, bias_regularization=self._bias_regularization)
        return half_sweep(self._rows, center, other, settings, self._growth)


@cache
def _powers(exponent: float) -> Array:
    """Return powers of 2, one at a time: the bits of a power of an array may depend on its other entries."""
    return np.array([2.0 ** (exponent * size) for size in range(64)])


def _left(ratings: Ratings, center: float, users: Array, items: Array) -> float:
    """Return the root mean square of the residuals."""
    fitted, model = BiasedFactors(users), BiasedFactors(items)
    norms = residual_norms(
        *csr(ratings.matrix),
        fitted.factors,
        model.factors,
        row_offset=fitted.biases,
        col_offset=model.biases + center,
    )
    return math.sqrt(float((norms**2).sum()) / max(ratings.n_ratings, 1))


class _Biases(NamedTuple):
    """Item biases, the ridges on offsets and biases, and the deviation of a rating after biases."""

    biases: Array
    offset_ridge: float
    bias_ridge: float
    noise: float


def _biases_first(
    ratings: Ratings, by_items: CSR, center: float, ridge: float | None, rounds: int
) -> _Biases:
    """Alternate means, shrunk by the variances of ratings, users and items (method of moments)."""
    matrix, (starts, users, values) = ratings.matrix, by_items
    counts, raters, biases = np.diff(matrix.indptr), np.diff(starts), np.zeros(ratings.n_items)
    by_user = row_sums(matrix.indptr, matrix.data) - center * counts
    by_item = row_sums(starts, values) - center * raters
    rated, many = raters > 0, counts > 1
    means = by_user / np.maximum(counts, 1)
    squares = row_squares(matrix.indptr, matrix.data, means + center)
    within = float(squares.sum() / max((counts[many] - 1).sum(), 1))
    between = float((means[many] ** 2 - within / counts[many]).mean()) if many.any() else 0.0
    offset_ridge = _ratio(within, between) if ridge is None else ridge
    bias_ridge = offset_ridge
    for _ in range(rounds):
        offsets = (by_user - weight_sums(matrix.indptr, matrix.indices, biases)) / (counts + offset_ridge)
        sums = by_item - weight_sums(starts, users, offsets)
        if ridge is None and rated.any():
            spread = float((sums[rated] ** 2 / raters[rated]).sum() - rated.sum() * within) / raters.sum()
            bias_ridge = _ratio(within, spread)
        biases = sums / (raters + bias_ridge)
    noise = _left(ratings, center, offsets[:, None], biases[:, None])
    return _Biases(biases, offset_ridge, bias_ridge, noise)


def _ratio(noise: float, signal: float) -> float:
    """Return the ridge of a mean: variance of a rating over that of the mean."""
    return noise / max(signal, noise / _LARGEST_RIDGE) if noise else 1.0


def mean_of_user_means(means: NDArray[np.float64], domain: Domain) -> float:
    """Return the mean of the users' means, or the middle of the range without users."""
    return float(domain.midpoint + (means - domain.midpoint).sum() / max(len(means), 1))
