"""The users' side of a training: each user's computation, and their contribution to a sum.

A contribution depends on the user's rows and on released values only, and a declared clip bounds its norm.
Proofs: docs/proofs/private-als.md and docs/proofs/baselines.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.data import Ratings
from hushrec.kernels import sparse_rows
from hushrec.kernels.arrays import BiasedFactors
from hushrec.kernels.fixed_point import CLIP_MARGIN, FACTOR_BITS, spacing, truncated
from hushrec.kernels.least_squares import ridge_solve
from hushrec.kernels.packed import frobenius_scale
from hushrec.kernels.residuals import added_residuals, added_weights
from hushrec.kernels.sweeps import SweepSettings, blocks_of_rows, csr, gramian, half_sweep
from hushrec.kernels.symmetric import outer_sums
from hushrec.privacy import Bound, Bounded, counted, positive, signed, together
from hushrec.serving.modelfile import Expected
from hushrec.serving.scoring import UserState
from hushrec.types import Array

#: Ridges on a user's factors and offset, in ratings, of a model whose users fit themselves.
RIDGES = {"regularization": Expected("f", (), 0.0), "bias_regularization": Expected("f", (), 0.0)}
#: Sensitivity of `Users.level`, in units of half the range and of 1. Under replace either both data sets hold
#: a user's ratings, or the mean goes too.
LEVEL_BOUND = Bound(math.sqrt(2.0), 2.0)
#: The same of `Users.spreads`.
SPREADS_BOUND = Bound(math.sqrt(21) / 4, math.sqrt(53) / 4)
#: Usual variance of a user's ratings, in units of the square of half the range.
USUAL_SPREAD = 0.25


class Users:
    """The users of one training."""

    def __init__(self, ratings: Ratings) -> None:
        self._ratings = ratings
        self.domain = ratings.domain

    def count(self) -> Bounded:
        """Number of users, shape (1,)."""
        return Bounded(np.array([float(self._ratings.n_users)]), counted(1.0), step=1.0)

    def level(self) -> Bounded:
        """Sum over users of their mean rating less the middle of the range, and number of users; shape (2,).

        A user moves the sum by at most half the range.
        """
        return together([self.mean_sum(), self.count()], LEVEL_BOUND)

    def mean_sum(self) -> Bounded:
        """The sum of :meth:`level`, shape (1,)."""
        domain, step = self.domain, spacing(self.domain.half_width)
        deviations = np.clip(
            user_means(self._ratings) - domain.midpoint, -domain.half_width, domain.half_width
        )
        total = np.array([truncated(deviations, step).sum()])
        return Bounded(total, signed(domain.half_width), scale=1 / domain.half_width, step=step)

    def item_weights(self) -> Bounded:
        """Sum over users of 1 / sqrt(number of their ratings) at each rated item: norm 1 a user."""
        return _item_weights(self._ratings, unit_weights(self._ratings))

    def item_deviations(self, clip: float) -> tuple[Bounded, Bounded]:
        """Sums over users of their ratings less their mean, and of their weights; shape (n_items,) each.

        A cell weighs 1 / sqrt(number of the user's ratings). A user's cells have a norm of at most ``clip``
        times half the range.
        """
        ratings, bound = self._ratings, clip * self.domain.half_width
        means, weight, step = user_means(ratings), unit_weights(ratings), spacing(bound)
        constant = np.zeros((ratings.n_users, 0)), np.zeros((ratings.n_items, 0))
        sums, shrink = added_residuals(
            *csr(ratings.matrix),
            *constant,
            row_offset=means,
            row_weight=weight,
            bound=bound * CLIP_MARGIN,
            step=step,
        )
        deviations = Bounded(sums[:, 0], signed(bound), scale=1 / bound, step=step)
        return deviations, _item_weights(ratings, weight * shrink)

    def spreads(self, center: float) -> Bounded:
        """Sums over users of their variance, their squared distance from ``center``, and half their weight.

        Shape (3,), in units of the square of half the range and of 1. A user with ``n`` ratings weighs
        ``1 - 1 / n``: one rating shows no variance. The distance is of the user's mean, minus the variance of
        sampling, and at most 1 minus the variance.
        """
        matrix, half = self._ratings.matrix, self.domain.half_width
        counts, means = np.maximum(np.diff(matrix.indptr), 1), user_means(self._ratings)
        squares = sparse_rows.row_squares(matrix.indptr, matrix.data, means) / half**2
        weight, within = 1 - 1 / counts, np.minimum(squares / counts, 1.0)
        between = np.minimum(weight * ((means - center) / half) ** 2 - within / counts, 1 - within)
        step = spacing(1.0)
        sums = [truncated(CLIP_MARGIN * values, step).sum() for values in (within, between, weight / 2)]
        return Bounded(np.array(sums), SPREADS_BOUND, step=step)


# ---------------------------------------------------------------------- a user's own computation


def user_means(ratings: Ratings) -> NDArray[np.float64]:
    matrix = ratings.matrix
    sums = sparse_rows.row_sums(matrix.indptr, matrix.data)
    means: NDArray[np.float64] = sums / np.maximum(np.diff(matrix.indptr), 1)
    return means


def ridge_on_items(arrays: Mapping[str, Array], rows: sp.csr_array, ridge: SweepSettings) -> UserState:
    """Return each user's ridge regression on the released items."""
    entries, tables = csr(rows), [arrays["item_factors"], arrays["item_bias"]]
    if not ridge.unobserved_weight:  # items without ratings here do not matter
        entries, tables = sparse_rows.used_columns(entries, *tables)
    items = BiasedFactors.joined(*tables).table
    return UserState.of(half_sweep(entries, float(arrays["center"]), items, ridge))


def ridge_parts(
    arrays: Mapping[str, Array], row: sp.csr_array, ridge: SweepSettings, column: int
) -> NDArray[np.float64]:
    """Return what each rating of one user adds to an item's score, shape (row.nnz,)."""
    every_factor = np.asarray(arrays["item_factors"])
    ones = np.ones((row.nnz + 1, int(ridge.constant)))
    table = np.hstack([every_factor[[*row.indices, column]].astype(np.float64), ones])
    rated, toward = table[:-1], table[-1]
    matrix = rated.T @ rated
    if ridge.unobserved_weight:
        table_of_all = every_factor.astype(np.float64)
        matrix += ridge.unobserved_weight * table_of_all.T @ table_of_all
    targets = row.data - (arrays["item_bias"][row.indices] + float(arrays["center"]))
    penalty = ridge.ridge(every_factor.shape[1], np.float64)
    solved = ridge_solve(matrix[None, *np.tril_indices(len(toward))], toward[None], penalty)[0]
    return np.asarray(targets * (rated @ solved), dtype=np.float64)


def less_user_means(ratings: Ratings) -> Ratings:
    """Every user's ratings less their mean (Chien et al. 2021, section 5.2)."""
    matrix = ratings.matrix.copy()
    matrix.data[:] = matrix.data - np.repeat(user_means(ratings), np.diff(matrix.indptr))
    return replace(ratings, matrix=matrix)


def likes(ratings: Ratings, threshold: float | None) -> sp.csr_array:
    matrix = ratings.matrix
    threshold = ratings.domain.midpoint if threshold is None else threshold
    return sparse_rows.with_values(matrix, (matrix.data > threshold).astype(np.float64))


def unit_weights(ratings: Ratings) -> Array:
    weights: Array = CLIP_MARGIN / np.sqrt(np.maximum(np.diff(ratings.matrix.indptr), 1))
    return weights


def clip_factor(norms: Array, bound: float) -> Array:
    """Return the factor <= 1 that brings each norm to at most ``bound`` > 0; 0 of NaN."""
    factor = bound * CLIP_MARGIN / np.maximum(norms, bound * CLIP_MARGIN)
    return np.where(np.isnan(factor), 0.0, factor)


def clipped_rows(rows: Array, bound: float) -> Array:
    """Return rows of norm at most ``bound``; zero where they are not finite."""
    return rows if math.isinf(bound) else finite_or_zero(rows * clip_factor(norms(rows), bound)[:, None])


def norms(rows: Array) -> Array:
    squares = np.empty(len(rows))
    for block in blocks_of_rows(len(rows)):
        part = rows[block].astype(np.float64)
        np.einsum("ij,ij->i", part, part, out=squares[block])
    return np.sqrt(squares, out=squares)


def finite_or_zero(users: Array) -> Array:
    """Set overflowed users to zero: no clip stops a NaN."""
    users[~np.isfinite(users).all(axis=1)] = 0.0
    return users


def fixed_gramian(factors: Array, bound: float, scale: Array | None = None) -> Array:
    """Sum outer products of rows times ``scale`` <= 1, of norm at most ``bound``: packed, exact."""
    step, rank = spacing(bound, FACTOR_BITS), factors.shape[1]
    total = np.zeros(rank * (rank + 1) // 2, np.float64 if step or scale is not None else factors.dtype)
    for block in blocks_of_rows(len(factors)):
        part = factors[block] if scale is None else factors[block] * scale[block, None]
        total += gramian(truncated(part, step))
    return total


def outer_product_sum(rows: sp.csr_array, bound: float) -> Bounded:
    """Sum outer products of rows of norm at most ``bound``: packed, exact."""
    step, n_items = spacing(bound, FACTOR_BITS), rows.shape[1]
    fixed = sparse_rows.with_values(rows, truncated(rows.data, step))
    packed = outer_sums(*csr(fixed), n_items)
    return Bounded(packed, positive(bound**2), weight=frobenius_scale(n_items), step=step**2)


def _item_weights(ratings: Ratings, user_weight: Array) -> Bounded:
    matrix, step = ratings.matrix, spacing(1.0)
    weights = truncated(user_weight, step)
    sums = added_weights(matrix.indptr, matrix.indices, weights, ratings.n_items)
    return Bounded(sums, positive(1.0), step=step)
