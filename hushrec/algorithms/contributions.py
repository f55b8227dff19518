"""User side of the alternating least squares: what each user fits, and what she adds to a sum.

Everything here is privileged until the gate has released it. A user's contribution depends on her own rows
and on released values alone, and its norm is bounded by a declared clip: docs/proofs/private-als.md and
docs/proofs/dpals.md derive sensitivities from the bounds that each docstring states. What a cell weighs
follows from released item weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.algorithms.als import SweepSettings, csr, gramian, half_sweep, statistics, user_means
from hushrec.algorithms.baselines import clip_factor, weight_sums
from hushrec.data import Ratings
from hushrec.kernels.fixed_point import FACTOR_BITS, SAFE, spacing, truncated

Array = NDArray[Any]

#: Released item weights are not taken for smaller than this, nor than their noise.
_SMALLEST_WEIGHT = 1e-2
#: An item is recommended before others only if its released weight is this many times its noise.
_SUPPORT = 5.0


def usable_weights(released: Array, noise_sd: float) -> tuple[Array, NDArray[np.bool_]]:
    """Item weights > 0, and which items are supported, from released ones; public."""
    return np.maximum(released, max(noise_sd, _SMALLEST_WEIGHT)), released > _SUPPORT * noise_sd


def adaptive_weights(weights: Array, exponent: float) -> Array:
    """Adaptive weights ``w_j`` (Krichene et al. 2023): item weights to a power in [-1, 0]; public."""
    return np.asarray((weights / weights.max()) ** exponent)


def fitted_users(ratings: Ratings, center: float, items: Array, ridge: SweepSettings) -> Array:
    """Every user's factors and offset given the released items, shape (n_users, rank + 1).

    In float32: what leaves her is clipped in float64.
    """
    solved = half_sweep(csr(ratings.matrix), center, items.astype(np.float32), ridge).astype(items.dtype)
    return finite_or_zero(solved)


def finite_or_zero(users: Array) -> Array:
    """Users whose regression overflowed become zero, inside the user: no clip holds a NaN."""
    users[~np.isfinite(users).all(axis=1)] = 0.0
    return users


def bounded(factors: Array, bound: float) -> Array:
    """Factors scaled down to norm ``bound`` where they are longer."""
    if math.isinf(bound):
        return factors
    return factors * clip_factor(norms(factors), bound)[:, None]


def fixed_gramian(factors: Array, bound: float) -> Array:
    """Packed sum of outer products of rows of norm at most ``bound``, exact: the rows are in fixed point."""
    return gramian(truncated(factors, spacing(bound, FACTOR_BITS)))


def norms(factors: Array) -> Array:
    """Norm of every row, in float64."""
    return np.sqrt(np.einsum("ij,ij->i", factors, factors, dtype=np.float64))


def less_user_means(ratings: Ratings) -> Ratings:
    """Every user's ratings less their mean: local, hence free (Chien et al. 2021, section 5.2)."""
    matrix = ratings.matrix.copy()
    matrix.data[:] = matrix.data - np.repeat(user_means(ratings), np.diff(matrix.indptr))
    return replace(ratings, matrix=matrix)


@dataclass(frozen=True, eq=False)
class Contributions:
    """Bounded contributions of the users, summed over them.

    A cell weighs ``a_i w_j``: ``w_j`` from released item weights and ``a_i`` such that the squares of a
    user's weights add up to 1 (adaptive weights, Krichene et al. 2023); or 1, where ``item_weight`` is None
    and her rows are at most k sampled ones.

    Attributes
    ----------
    rows : Ratings
        The rows that enter the sums.
    center : float
        Level that ratings are taken from.
    item_weight : ndarray of shape (n_items,) or None
        The ``w_j``, > 0.
    user_weight : ndarray of shape (n_users,)
        The ``a_i``; 0 for a user without rows.
    """

    rows: Ratings
    center: float
    item_weight: Array | None
    user_weight: Array = field(init=False)

    def __post_init__(self) -> None:
        present = np.diff(self.rows.matrix.indptr) > 0
        weight = present.astype(np.float64)
        if self.item_weight is not None:
            squares = weight_sums(self.rows.matrix, self.item_weight**2)
            weight[present] = SAFE / np.sqrt(squares[present])
        object.__setattr__(self, "user_weight", weight)

    def item_sums(self, items: Array, users: Array, user_norm: float, clip: float) -> tuple[Array, Array]:
        """Every item's sum of weighted residuals times user factors, and the packed shared Gramian.

        A user's contribution to the first, one vector over all items, has norm at most ``clip``, and she
        adds a matrix of Frobenius norm at most ``user_norm ** 2`` to the second.
        """
        from hushrec.kernels.residuals import residual_norms, residual_sums

        factors, offsets = users[:, :-1].astype(np.float64), users[:, -1]
        level, lengths = items[:, -1] + self.center, norms(factors)
        within = np.ones(len(users)) if math.isinf(user_norm) else clip_factor(lengths, user_norm)
        shrink = within**2
        if math.isfinite(clip):
            residuals = self.user_weight * residual_norms(
                *csr(self.rows.matrix),
                factors,
                items[:, :-1],
                row_offset=offsets,
                col_offset=level,
                col_weight=self.item_weight,
            )
            shrink = np.minimum(shrink, clip_factor(residuals * lengths, clip))
        sums = residual_sums(
            *csr(self.rows.transposed),
            items[:, :-1],
            factors,
            row_offset=level,
            col_offset=offsets,
            row_weight=self.item_weight,
            col_weight=self.user_weight * shrink,
            step=spacing(clip),
        )
        present = np.sqrt(shrink * (self.user_weight > 0))
        return sums, fixed_gramian(factors * present[:, None], user_norm)

    def item_statistics(
        self,
        users: Array,
        settings: SweepSettings,
        *,
        rating_clip: float = math.inf,
        user_clip: float = math.inf,
        user_norm: float = math.inf,
    ) -> Iterator[tuple[Array, Array]]:
        """Normal equations of every item, block by block (Chien et al. 2021, Algorithm 1, lines 10 and 11).

        With ``rating_clip`` no rating less its level counts for more than that. With ``user_clip`` a user
        whose factors have norm at most ``user_norm`` adds to the right-hand sides, one vector over all
        items, at most that norm.
        """
        from hushrec.kernels.residuals import residual_norms

        shrink = np.ones(self.rows.n_users)
        if math.isfinite(user_clip):
            no_factors = np.zeros((len(users), 1)), np.zeros((self.rows.domain.n_items, 1))
            lengths = residual_norms(
                *csr(self.rows.matrix),
                *no_factors,
                row_offset=users[:, -1] + self.center,
                col_weight=self.item_weight,
            )
            shrink = clip_factor(self.user_weight * lengths * user_norm, user_clip)
        weighted = self.item_weight is not None or math.isfinite(user_clip)
        return statistics(
            csr(self.rows.transposed),
            self.center,
            users,
            settings,
            row_weight=self.item_weight,
            col_weight=self.user_weight * shrink if weighted else None,
            clip=rating_clip,
            factor_step=spacing(user_norm, FACTOR_BITS),
            rhs_step=spacing(min(user_clip, rating_clip * user_norm)),
        )

    def outer_products(self, items: Array, users: Array, clip: float) -> Array:
        """Packed item x item sum of outer products of the users' weighted residual rows, of norm <= clip."""
        matrix = self.rows.matrix
        cells, residual = self._residuals(items, users)
        if self.item_weight is not None:
            residual = residual * self.item_weight[matrix.indices]
        residual = residual * self.user_weight[cells]
        if math.isfinite(clip):
            squares = np.bincount(cells, residual**2, minlength=self.rows.n_users)
            residual *= clip_factor(np.sqrt(squares), clip)[cells]
        residual = truncated(residual, spacing(clip, FACTOR_BITS))
        clipped = sp.csr_array((residual, matrix.indices, matrix.indptr), shape=matrix.shape)
        return (clipped.T @ clipped).toarray()[np.tril_indices(len(items))]

    def residual_variances(self, items: Array, users: Array, weights: Array, ridge: SweepSettings) -> Array:
        """Every user's mean squared residual, shape (n_users,).

        The mean is over her ratings less what her own fit uses up of them (as :meth:`uncertainty` has it), at
        least a quarter of them.
        """
        from hushrec.kernels.residuals import residual_norms

        matrix = self.rows.matrix
        counts = np.diff(matrix.indptr)
        pair, used = (users[:, :-1], items[:, :-1]), np.zeros(len(users))
        if items.shape[1] == 1:
            pair = np.zeros_like(users), np.zeros_like(items)
        else:
            rank = items.shape[1] - 1
            used = rank * (1 - self.uncertainty(items, weights, ridge.regularization))
        if ridge.bias_regularization is not None:
            used = used + counts / (counts + ridge.bias_regularization)
        level = items[:, -1] + self.center
        lengths = residual_norms(*csr(matrix), *pair, row_offset=users[:, -1], col_offset=level)
        return lengths**2 / np.maximum(np.maximum(counts - used, counts / 4), 1)

    def uncertainty(self, items: Array, weights: Array, regularization: float) -> Array:
        """Every user's posterior over prior variance, mean over the factors; in [0, 1], shape (n_users,).

        That of a user with as many ratings as she has, of items as they are rated by all: her own normal
        equations would say it more exactly, and cost as much as a sweep.
        """
        factors = items[:, :-1].astype(np.float64)
        typical = np.linalg.eigvalsh((factors * (weights / weights.sum())[:, None]).T @ factors)
        counts, places = np.unique(np.diff(self.rows.matrix.indptr), return_inverse=True)
        ridge = regularization + counts[:, None] * np.maximum(typical, 0.0)
        return np.where(counts > 0, (regularization / ridge).mean(axis=1), 0.0)[places]

    def _residuals(self, items: Array, users: Array) -> tuple[Array, Array]:
        """User of each cell, and what the model leaves of its rating."""
        from hushrec.kernels.residuals import predict_pairs

        matrix = self.rows.matrix
        cells = np.repeat(np.arange(self.rows.n_users), np.diff(matrix.indptr))
        residual = matrix.data.astype(np.float64) - self.center - items[matrix.indices, -1] - users[cells, -1]
        if items.shape[1] > 1:
            residual = residual - predict_pairs(cells, matrix.indices, users[:, :-1], items[:, :-1])
        return cells, residual
