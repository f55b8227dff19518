"""The users' side of private EigenRec: rows at norm 1, with and without popularity, and their sums.

Sensitivities: docs/proofs/private-eigenrec.md.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.data import Ratings
from hushrec.data.keys import mix
from hushrec.errors import InputError
from hushrec.kernels.fixed_point import CLIP_MARGIN, FACTOR_BITS, spacing, truncated
from hushrec.kernels.packed import frobenius_scale, rectangle
from hushrec.kernels.residuals import added_residuals, added_weights
from hushrec.kernels.sparse_rows import at_columns, weight_sums, with_values
from hushrec.kernels.sweeps import csr
from hushrec.kernels.symmetric import outer_sums
from hushrec.models.private_eigenrec.items import grid
from hushrec.models.private_eigenrec.parts import Parts
from hushrec.models.private_eigenrec.stacking import contributions
from hushrec.privacy import Bound, Bounded, positive, signed, together
from hushrec.training.users import Users, finite_or_zero, fixed_gramian, norms
from hushrec.types import Array

#: Part of a like that another item counts which a user rated.
RATED = 0.4
#: Largest factor by which a user's row without popularity is lengthened to norm 1.
_LONGEST = 2.0
#: Users with a sum of squares below this, or above its inverse, count for nothing. No training does this.
_SMALLEST_SQUARE = 1e-200


class LikingUsers(Users):
    """Users with rows of norm 1 (the scales of their liked items), and again without popularity."""

    def __init__(self, ratings: Ratings, like_threshold: float | None = None) -> None:
        self._everything, self._liked = ratings, ratings.liked(like_threshold)
        super().__init__(self._liked.rated())

    # of the last :meth:`scale`
    _scale: Array
    _learned: NDArray[np.bool_]
    _learned_likes: sp.csr_array
    _first: Array
    _unit: Array
    _user_weight: Array
    _along: Array

    def item_weights(self) -> Bounded:
        """Sum over users of 1 at items they like and `RATED` at others they rated, at norm 1 a user."""
        rated, liked, step = self._everything.matrix, self._liked.matrix, spacing(1.0)
        likes = np.diff(liked.indptr)
        squares = likes + RATED**2 * (np.diff(rated.indptr) - likes)
        weight = CLIP_MARGIN / np.sqrt(np.maximum(squares, RATED**2))
        sums = np.zeros(rated.shape[1])
        for matrix, part in ((rated, RATED), (liked, 1 - RATED)):
            sums += added_weights(matrix.indptr, matrix.indices, truncated(part * weight, step), len(sums))
        return Bounded(sums, positive(1.0), step=step)

    def scale(self, scale: Array, first: Array) -> None:
        """Take item scales >= 0 (0: the item does not count), and a popularity vector in fixed point.

        Both are functions of released weights. A user with numbers that are not finite counts for nothing.
        """
        if not (scale.min() >= 0 and scale.max() < math.inf and first.min() >= 0 and 0 < first.max() <= 1):
            raise InputError(
                "Item scales and popularity must be finite and not negative; train the model again."
            )
        matrix, square = self._ratings.matrix, float((first**2).sum())
        with np.errstate(all="ignore"):  # a warning would reveal rows
            squares = weight_sums(matrix.indptr, matrix.indices, scale**2)
            present = (squares > _SMALLEST_SQUARE) & (squares < 1 / _SMALLEST_SQUARE)
            unit = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=present)
            along = unit * weight_sums(matrix.indptr, matrix.indices, scale * first)
            apart = np.sqrt(np.maximum(1 - along**2 / square, _LONGEST**-2.0))
            per_user = np.column_stack([unit / apart, along / (apart * square)])
        self._scale, self._first, self._unit, self._learned = scale, first, unit, scale > 0
        self._learned_likes = at_columns(_likes(self._ratings), self._learned)
        self._user_weight, self._along = finite_or_zero(per_user).T.copy()

    def item_sums(self, vectors: Array) -> Bounded:
        """Sum over users of (row without popularity, at norm 1) x (factors, at norm 1): norm <= 1.

        Shape (number of learned items) x rank, row by row; learned items have a scale above 0. It combines
        two sums of integers: of rows, and of their parts along popularity.
        """
        learned, likes = self._learned, self._learned_likes
        step, first, scale = spacing(_LONGEST), self._first[learned], self._scale[learned]
        along_step = step / grid(self._first)
        factors = self._factors(likes, vectors[learned] * scale[:, None])
        room = self._room(factors.shape[1], step, along_step)
        nothing, weight = np.zeros((likes.shape[1], 0)), room * self._user_weight
        sums, _ = added_residuals(
            *csr(likes), factors, nothing, row_weight=weight, col_weight=scale, step=step
        )
        along = truncated((room * self._along)[:, None] * factors, along_step).sum(axis=0)
        return Bounded((sums - np.outer(first, along)).ravel(), signed(1.0), step=step)

    def contributions(self, vectors: Array, part: float) -> Bounded:
        """A round's release: :meth:`item_sums` and, for ``part`` of it, the item weights before.

        A vector; counting for the roots of (1 - part) and part, they have norm 1 a user together.
        """
        return self._beside_weights(self.item_sums(vectors), part, signed(1.0))

    def halves(self, basis: Array, part: float) -> Bounded:
        """Return the products of the two halves of a user's likes, and for ``part`` of it item weights.

        Likes of learned items are dealt into two halves by the items' numbers. Let p and q be the halves'
        factors in the basis, at norm 1. Users add the outer squares of (p + q) / 2 and of (p - q) / 2, two
        packed triangles with norms whose sum is 1. Users who cannot fill both halves add nothing. The basis
        has orthonormal columns, 0 where an item is not learned.
        """
        likes, learned = self._learned_likes, self._learned
        vectors, first_half = basis[learned] * self._scale[learned, None], _dealt(likes)
        ones = [with_values(likes, half.astype(np.float32)) for half in (first_half, ~first_half)]
        one, two = (self._factors(half, vectors) for half in ones)
        both = np.any(one, axis=1, keepdims=True) & np.any(two, axis=1, keepdims=True)
        sums = [fixed_gramian(both * (one + sign * two) / 2, 1.0) for sign in (1, -1)]
        rank = basis.shape[1]
        step, weight = spacing(1.0, FACTOR_BITS) ** 2, frobenius_scale(rank)
        parts = [Bounded(half, positive(1.0), weight=weight, step=step) for half in sums]
        return self._beside_weights(together(parts, positive(1.0)), part, positive(1.0))

    def _beside_weights(self, sums: Bounded, part: float, bound: Bound) -> Bounded:
        """Return item weights and sums as one vector, counting for the roots of part and 1 - part."""
        parts = [self.item_weights().times(math.sqrt(part))] if part > 0 else []
        parts += [sums.times(math.sqrt(1 - part))] if part < 1 else []
        return together(parts, bound)

    def item_matrix(self) -> Bounded:
        """Sum over users of (row without popularity, at norm 1) x the same: norm <= 1.

        The diagonal, then the packed rows below it, as a rectangle (`packed.rectangle`). Rows are rounded to
        integers first; all later steps are exact.
        """
        matrix, step = self._ratings.matrix, spacing(_LONGEST * CLIP_MARGIN, FACTOR_BITS)
        along_step = step / grid(self._first)
        room = self._room(1, step / 2, along_step / 2)
        cells = np.repeat(room * self._user_weight, np.diff(matrix.indptr)) * self._scale[matrix.indices]
        rows = at_columns(with_values(matrix, truncated(cells + step / 2, step)), self._learned)
        first = self._first[self._learned]
        along = truncated(room * self._along + along_step / 2, along_step)
        sums = outer_sums(rows.indptr, rows.indices, rows.data, len(first))
        both, square, diagonal = rows.T @ along, float(along @ along), np.zeros(len(first))
        for item in reversed(range(len(first) if rows.nnz else 0)):  # memory that is zero stays untouched
            row = sums[item * (item + 1) // 2 :][: item + 1]
            row -= first[item] * both[: item + 1]
            row -= (both[item] - first[item] * square) * first[: item + 1]
            diagonal[item] = row[item]
            sums[len(first) + item * (item - 1) // 2 :][:item] = row[:item]
        sums[: len(first)] = diagonal
        shape, weight = rectangle(len(first))
        return Bounded(sums.reshape(shape), positive(1.0), weight=weight, step=step**2)

    def part_weights(self, parts: Parts, weights: Array, part: float) -> Bounded:
        """Return gradient and Hessian of the weights of a list's parts (`stacking.contributions`)."""
        with np.errstate(all="ignore"):  # as where they are scaled
            return contributions(_likes(self._ratings), parts, weights, part)

    def _room(self, rank: int, step: float, along_step: float) -> Array:
        """Return each user's norm before truncation, which can lengthen the contribution here."""
        counts = np.diff(self._ratings.matrix.indptr)
        lost = step * np.sqrt(counts) + along_step * math.sqrt(float((self._first**2).sum()))
        return CLIP_MARGIN * np.maximum(1 - math.sqrt(rank) * lost, 0.0)

    @staticmethod
    def _factors(likes: sp.csr_array, vectors: Array) -> Array:
        """Return every user's factors at norm 1, the products of their row with the vectors; shape (n_users,
        rank)."""
        with np.errstate(all="ignore"):  # as where they are scaled
            products = finite_or_zero(likes @ vectors)
        largest = np.abs(products).max(axis=1, initial=0.0, keepdims=True)
        products = np.divide(products, largest, out=np.zeros_like(products), where=largest > 0)
        return products * (CLIP_MARGIN / np.maximum(norms(products), 1.0))[:, None]


def _dealt(likes: sp.csr_array) -> NDArray[np.bool_]:
    """Mark the entries in the first half of their row, dealt in the order of a hash of the columns."""
    hashed = np.argsort(mix(np.arange(likes.shape[1], dtype=np.uint64)), kind="stable")
    order = with_values(likes, np.arange(likes.nnz)).tocsc()[:, hashed].tocsr().data  # no sort of the entries
    first = np.empty(likes.nnz, dtype=bool)
    first[order] = (np.arange(likes.nnz) - np.repeat(likes.indptr[:-1], np.diff(likes.indptr))) % 2 == 0
    return first


def _likes(ratings: Ratings) -> sp.csr_array:
    matrix = ratings.matrix
    return sp.csr_array((np.ones(matrix.nnz, np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)
