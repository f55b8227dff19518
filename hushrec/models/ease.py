"""EASE without privacy: every item regressed on all others, the reference for likes (Steck 2019).

The weights ``B`` minimise ``|X - X B|^2 + regularization |B|^2`` with a diagonal of 0 and likes ``X``:
``B = -P / diag(P)`` off the diagonal, ``P`` the inverse of ``X'X + regularization I``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import get_lapack_funcs

from hushrec.checks import Positive
from hushrec.data import Domain, Ratings
from hushrec.kernels.packed import mirror
from hushrec.kernels.sparse_rows import from_threshold
from hushrec.kernels.sweeps import csr
from hushrec.privacy import Bound, Bounded, Budget, Plan
from hushrec.serving.modelfile import Expected
from hushrec.serving.scoring import UserState, at_norm_one, scores_of_items
from hushrec.serving.stored_arrays import SERVED
from hushrec.training.estimator import Estimator
from hushrec.training.gate import Gate
from hushrec.training.trainable import exact_plan
from hushrec.types import Array

#: As many items as a matrix of 8 bytes an entry has room for in a gibibyte.
MOST_ITEMS = 11_585
_ROWS_AT_A_TIME = 512
#: Ridge, as a multiple of the mean number of likes that an item has; tuned for no table.
_RIDGE = 5.0


@dataclass(frozen=True, kw_only=True)
class EASE(Estimator[Ratings]):
    """Lists from likes, without privacy.

    Ratings from a threshold up are likes, or every row is one. With more than 11,585 liked items, those with
    most likes are learned and the others are recommended last, so no matrix takes more than 1 GiB.

    Parameters
    ----------
    regularization : float or None
        Ridge on the weights of an item, in likes, > 0. None means 5 times the mean number of likes of a
        learned item, near the best on validation users of MovieLens-100K and -1M.
    like_threshold : float or None
        Ratings from here up are likes; None means every row is one. A training by name takes three quarters
        up the declared range, 4 on 1 to 5.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> no_privacy = hushrec.Accountant(hushrec.Budget(float("inf"), 1e-6), data_is_public=True)
    >>> model = hushrec.EASE(like_threshold=4).fit(ratings, no_privacy)
    >>> model.privacy.private, len(model.recommend({"i00001": 5}, n=3))
    (False, 3)
    """

    name: ClassVar[str] = "ease"
    expected: ClassVar[dict[str, Expected]] = {"pair_items": SERVED["pair_items"]._replace(needed=True)}
    scores: ClassVar[str] = "likes"

    regularization: Positive | None = None
    like_threshold: float | None = None

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return exact_plan(self.name, budget, "private-eigenrec")

    def users(self, ratings: Ratings) -> Ratings:
        return ratings.liked(self.like_threshold)

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        counts = np.diff(ratings.transposed.indptr).astype(np.float64)
        learned = most_liked(counts)
        likes = own_likes(ratings, learned)
        matrix = np.zeros((len(learned), len(learned)), order="F")
        for start in range(0, len(learned), _ROWS_AT_A_TIME):
            part = slice(start, start + _ROWS_AT_A_TIME)
            matrix[:, part] = (likes.T @ likes[:, part]).toarray()
        ridge = (
            _RIDGE * counts[learned].sum() / max(len(learned), 1)
            if self.regularization is None
            else self.regularization
        )
        matrix[np.diag_indices(len(learned))] += ridge
        weights = item_weights(matrix).astype(np.float32)
        return {
            "center": np.float64(0.0),
            # breaks ties, above all for users without likes
            "item_bias": 1e-6 * counts / max(counts.max(initial=0.0), 1.0),
            "item_factors": np.zeros((ratings.n_items, 0), np.float32),
            "pair_items": learned,
            "pair_weights": gate.release("exact model", Bounded(weights, Bound(math.inf, math.inf))),
            "supported": np.isin(np.arange(ratings.n_items), learned).astype(np.uint8),
        }

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        likes = at_norm_one(arrays, from_threshold(csr(history.matrix), self.like_threshold))
        return UserState(np.zeros(history.n_users), np.zeros((history.n_users, 0)), likes)

    def score_parts(self, arrays: Mapping[str, Array], history: Ratings, column: int) -> Array:
        liked = history.liked(self.like_threshold)
        return at_ratings(history, liked, scores_of_items(arrays, liked.matrix.indices, column))


def at_ratings(history: Ratings, liked: Ratings, values: Array) -> NDArray[np.float64]:
    """Return values of one user's likes at their ratings; 0 for other ratings."""
    full = np.zeros(history.n_ratings)
    full[np.searchsorted(history.matrix.indices, liked.matrix.indices)] = values
    return full


def own_likes(history: Ratings, learned: Array) -> sp.csr_array:
    """Return ones where a user likes a learned item, shape (n_users, number of learned items)."""
    matrix = history.matrix
    likes = sp.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    return likes[:, learned]


def most_liked(counts: Array) -> NDArray[np.int32]:
    best = np.argsort(-counts, kind="stable")[:MOST_ITEMS]
    return np.sort(best[counts[best] > 0]).astype(np.int32)


def item_weights(matrix: Array) -> Array:
    """Regress every item on all others, from their second moments with the ridge on them.

    ``matrix`` is symmetric and positive definite; in Fortran's order it is overwritten. Column j of the
    result, in C's order, holds the weights of the items for item j; 0 on the diagonal.
    """
    if not matrix.size:
        return matrix
    factorize, invert = get_lapack_funcs(("potrf", "potri"), (matrix,))
    factor, failed = factorize(matrix, lower=1, overwrite_a=1)
    inverse, singular = (factor, 0) if failed else invert(factor, lower=1, overwrite_c=1)
    if failed or singular:
        raise LinAlgError("the matrix is not positive definite")
    mirror(inverse)  # in place: a copy may not fit
    diagonal = inverse.diagonal().copy()
    np.fill_diagonal(inverse, 0.0)
    weights = inverse.T
    weights /= -diagonal
    return weights
