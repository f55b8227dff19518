"""The users' side of private ALS: each user's own fit, and their contribution by its residuals.

Proof: docs/proofs/private-als.md.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp

from hushrec.data import Ratings
from hushrec.errors import InputError
from hushrec.kernels import sparse_rows
from hushrec.kernels.arrays import BiasedFactors
from hushrec.kernels.fixed_point import CLIP_MARGIN, FACTOR_BITS, spacing, truncated
from hushrec.kernels.packed import frobenius_scale
from hushrec.kernels.residuals import added_residuals, predict_pairs, residual_norms
from hushrec.kernels.sweeps import SweepSettings, csr, half_sweep
from hushrec.privacy import Bounded, counted, positive, signed, together
from hushrec.training.users import Users, clip_factor, finite_or_zero, fixed_gramian, norms
from hushrec.types import Array

#: Levels and item factors beyond this are fitted in float64: float32 has 7 digits, and squares overflow it.
_FAR = 1e4


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
