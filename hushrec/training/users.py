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
from hushrec.errors import InputError
from hushrec.kernels import sparse_rows
from hushrec.kernels.arrays import BiasedFactors
from hushrec.kernels.fixed_point import CLIP_MARGIN, FACTOR_BITS, spacing, truncated
from hushrec.kernels.least_squares import ridge_solve
from hushrec.kernels.packed import frobenius_scale
from hushrec.kernels.residuals import added_residuals, added_weights, predict_pairs, residual_norms
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
#: Levels and item factors beyond this are fitted in float64: float32 has 7 digits, and squares overflow it.
_FAR = 1e4


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


class FittedUsers(Users):
    """Users who fit themselves to released item factors, and contribute by their residuals.

    A cell weighs ``a_i w_j``: ``w_j`` from released item weights, and ``a_i`` such that the squares of a
    user's weights add up to 1 (adaptive weights, Krichene et al. 2023). Without ``w_j`` it weighs 1.
    """

    # of the last :meth:`weigh` and :meth:`fit`
    _center: float
    _item_weight: Array | None
    _user_weight: Array
    _fitted: Array
    _ridge: SweepSettings

    def __init__(self, ratings: Ratings) -> None:
        super().__init__(ratings)
        self._rows = ratings

    def weigh(self, center: float, item_weight: Array | None) -> None:
        """Subtract a level, and weigh cells by released item weights ``w_j`` > 0."""
        if not math.isfinite(center):
            raise InputError("The level that ratings are taken from must be finite; train the model again.")
        self._center, self._item_weight = center, item_weight
        matrix = self._rows.matrix
        present = np.diff(matrix.indptr) > 0
        weight = present.astype(np.float64)
        if item_weight is not None:
            squares = sparse_rows.weight_sums(matrix.indptr, matrix.indices, item_weight**2)
            weight[present] = CLIP_MARGIN / np.sqrt(squares[present])
        self._user_weight = weight

    def fit(self, items: Array, ridge: SweepSettings) -> None:
        """Fit every user's factors and offset to released items, of shape (n_items, rank + 1)."""
        self._ridge = ridge
        far = max(abs(self._center), float(np.abs(items).max(initial=0.0))) > _FAR
        precise = items.astype(np.float64 if far else np.float32)
        self._fitted = np.zeros((0, 1))  # frees memory
        solved = half_sweep(csr(self._ratings.matrix), self._center, precise, ridge)
        self._fitted = finite_or_zero(solved.astype(items.dtype) if solved.dtype > items.dtype else solved)

    def item_biases(self, items: Array, clip: float, unit: float) -> Bounded:
        """Sum weighted residuals by item, shape (n_items, 1): norm <= ``clip * unit`` a user."""
        sums, _ = self._residual_sums(items, math.inf, unit * clip)
        return Bounded(sums, signed(unit * clip), scale=1 / unit, step=spacing(unit * clip))

    def item_residuals(self, items: Array, clip: float, unit: float) -> Bounded:
        """Return :meth:`item_biases` of users with factors; shape (n_items,)."""
        bound = unit * clip
        matrix = self._clipped_residuals(items, bound, spacing(bound))
        sums = np.bincount(matrix.indices, matrix.data, minlength=len(items))
        sums = sums.astype(np.float64)  # for no user NumPy makes integers
        return Bounded(sums, signed(bound), scale=1 / unit, step=spacing(bound))

    def item_sums(
        self, items: Array, weights: Array, user_norm: float, clip: float, spread: float, unit: float
    ) -> tuple[Bounded, Bounded]:
        """Sum weighted residuals times user factors by item, and the shared Gramian.

        A user adds norm at most ``clip * unit`` to the first. To the second they add a packed matrix of
        Frobenius norm at most ``(user_norm * spread)^2``, and to its last entry at most 1.
        """
        bound, rank = spread * user_norm, BiasedFactors(items).rank
        sums, gram = self._residual_sums(items, bound, unit * clip)
        shares = self._uncertainty(items, weights, self._ridge.regularization)
        gram_step = spacing(bound, FACTOR_BITS) ** 2
        square = 1.0 if math.isinf(bound) else user_norm**2
        uncertain = Bounded(
            np.array([truncated(shares, spacing(1.0)).sum()]), counted(1.0), scale=square, step=spacing(1.0)
        )
        packed = Bounded(
            gram, positive(bound**2), scale=1 / spread**2, weight=frobenius_scale(rank), step=gram_step
        )
        contributions = Bounded(sums, signed(unit * clip), scale=1 / unit, step=spacing(unit * clip))
        return contributions, together([packed, uncertain])

    def residual_variance(self, items: Array, weights: Array, most: float) -> Bounded:
        """Sum the users' mean squared residuals, shape (1,); each counts for at most ``most``.

        The mean is over the number of ratings less the degrees of freedom of the fit, at least a quarter.
        """
        matrix, ridge, counts = self._rows.matrix, self._ridge, np.diff(self._rows.matrix.indptr)
        users, model = BiasedFactors(self._fitted), BiasedFactors(items)
        pair, used = (users.factors, model.factors), np.zeros(len(counts))
        if model.rank == 0:
            pair = np.zeros_like(users.table), np.zeros_like(items)
        else:
            used = model.rank * (1 - self._uncertainty(items, weights, ridge.regularization))
        if ridge.bias_regularization is not None:
            used = used + counts / (counts + ridge.bias_regularization)
        level = model.biases + self._center
        lengths = residual_norms(*csr(matrix), *pair, row_offset=users.biases, col_offset=level)
        votes = lengths**2 / np.maximum(np.maximum(counts - used, counts / 4), 1)
        step = spacing(most)
        total = truncated(np.minimum(votes, CLIP_MARGIN * most), step).sum()
        return Bounded(np.array([total]), counted(most), scale=1 / most, step=step)

    # ------------------------------------------------------------------ inside a user

    def _residual_sums(self, items: Array, user_norm: float, clip: float) -> tuple[Array, Array]:
        """Sum weighted residuals times factors (1 without any), and the factors' outer products.

        Without a clip, sums are not exact.
        """
        model, users = BiasedFactors(items), BiasedFactors(self._fitted)
        factors = users.factors
        ones = np.ones((len(factors), 1))
        lengths = norms(factors if users.rank else ones)
        shrink = ones[:, 0] if math.isinf(user_norm) else clip_factor(lengths, user_norm) ** 2
        if math.isinf(clip):
            weighted = self._clipped_residuals(items, math.inf, 0.0)
            sums = weighted.T @ (shrink[:, None] * (factors if users.rank else ones))
        else:
            sums, shrink = added_residuals(
                *csr(self._rows.matrix),
                factors,
                model.factors,
                row_offset=users.biases,
                col_offset=model.biases + self._center,
                row_weight=self._user_weight,
                col_weight=self._item_weight,
                row_reach=lengths,
                row_shrink=shrink,
                bound=clip * CLIP_MARGIN,
                step=spacing(clip),
            )
        present = np.sqrt(shrink * (self._user_weight > 0))
        return sums, fixed_gramian(factors, user_norm, present)

    def _uncertainty(self, items: Array, weights: Array, regularization: float) -> Array:
        """Every user's posterior over prior variance, mean over the factors; in [0, 1], shape (n_users,).

        It is a usual user's with as many ratings: exact ones would cost a sweep.
        """
        factors = BiasedFactors(items).factors.astype(np.float64)
        typical = np.linalg.eigvalsh((factors * (weights / weights.sum())[:, None]).T @ factors)
        counts, places = np.unique(np.diff(self._rows.matrix.indptr), return_inverse=True)
        ridge = regularization + counts[:, None] * np.maximum(typical, 0.0)
        shares = np.clip((regularization / ridge).mean(axis=1), 0.0, 1.0)  # also of a ridge below 0
        return np.where(counts > 0, shares, 0.0)[places]

    def _clipped_residuals(self, items: Array, bound: float, step: float) -> sp.csr_array:
        """Weighted residuals by user, of norm at most ``bound``, as multiples of a step; 0 on overflow."""
        matrix = self._rows.matrix
        cells = np.repeat(np.arange(self._rows.n_users), np.diff(matrix.indptr))
        with np.errstate(all="ignore"):
            residual = self._residuals(items, cells)
            if self._item_weight is not None:
                residual *= self._item_weight[matrix.indices]
            residual *= self._user_weight[cells]
            if math.isfinite(bound):
                squares = np.bincount(cells, residual**2, minlength=self._rows.n_users)
                shrink = np.where(np.isfinite(squares), clip_factor(np.sqrt(squares), bound), 0.0)[cells]
                residual = np.where(shrink > 0, residual * shrink, 0.0)
            residual = truncated(residual, step)
        return sp.csr_array((residual, matrix.indices, matrix.indptr), shape=matrix.shape)

    def _residuals(self, items: Array, cells: Array) -> Array:
        matrix, users, model = self._rows.matrix, BiasedFactors(self._fitted), BiasedFactors(items)
        residual: Array = matrix.data.astype(np.float64) - self._center - model.biases[matrix.indices]
        residual -= users.biases[cells]
        if model.rank:
            factors = users.factors.astype(model.factors.dtype, copy=False)
            residual -= predict_pairs(cells, matrix.indices, factors, model.factors)
        return residual


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
    items = BiasedFactors.joined(*tables).table.astype(np.float64)
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
