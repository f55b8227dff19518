"""The regressions of a public model of likes."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from hushrec.data import Domain, Ratings
from hushrec.kernels.threads import one_blas_thread
from hushrec.models.ease import EASE, item_weights, own_likes
from hushrec.serving.recommend import Recommender
from hushrec.types import Array

# Chosen on users that `benchmarks/public.py` does not judge: halves of MovieLens-1M, Jester, Yahoo! R3, and
# generated likes of a shop; 15 to 240 donors. Recall changes little near these values.

#: Items that the regressions learn, those of most likes.
MOST_ITEMS = 2000
#: Ridge in likes: so many at least, and this times the mean number of likes of a learned item.
_LEAST_RIDGE, _RIDGE = 80.0, 5.0


def likes_of(likes: Ratings, learned: Array) -> sp.csr_array:
    """Return 1 where a user likes a learned item, with a last column of ones."""
    return sp.csr_array(sp.hstack([own_likes(likes, learned), np.ones((likes.n_users, 1))]))


def regressions(
    rows: sp.csr_array,
    learned: Array,
    counts: Array,
    otherwise: Array,
    domain: Domain,
    like_threshold: float | None,
) -> Recommender:
    """Return the model in which each item is regressed on all others and on 1.

    Parameters
    ----------
    rows : csr_array of shape (n_rows, n_learned + 1)
        The last column is that of the intercept.
    learned : ndarray of int, shape (n_learned,)
        Positions of the items, ascending.
    counts : ndarray of shape (n_items,)
        Number of likes of each item, for the ridge.
    otherwise : ndarray of shape (n_items,)
        Small scores of the items that were not learned.
    domain, like_threshold
        Of the private model.
    """
    size = len(learned)
    ridge = max(_LEAST_RIDGE, _RIDGE * counts[learned].sum() / max(size, 1))
    with one_blas_thread():
        weights = _weights(rows, ridge)
    bias = otherwise.copy()
    bias[learned] += weights[size, :size]
    arrays = {
        "center": np.float64(0.0),
        "item_bias": bias,
        "item_factors": np.ascontiguousarray(weights[:size, :size].T, dtype=np.float32),
        "learned_items": learned,
        "supported": np.isin(np.arange(len(counts)), learned).astype(np.uint8),
    }
    return Recommender(EASE(like_threshold=like_threshold), domain, arrays)


def _weights(rows: sp.csr_array, ridge: float) -> Array:
    """Return the weights of every column's ridge regression on all others, in its column.

    With fewer rows than columns, Woodbury's identity gives the inverse from the Gramian of the rows.
    """
    n_rows, n_columns = rows.shape
    if n_rows >= n_columns:
        moments = np.asfortranarray((rows.T @ rows).toarray())
        moments[np.diag_indices(n_columns)] += ridge
        return item_weights(moments)
    dense = rows.toarray()
    gramian = dense @ dense.T
    gramian[np.diag_indices(n_rows)] += ridge
    inverse = -dense.T @ np.linalg.solve(gramian, dense)  # times the ridge, as is what follows
    inverse[np.diag_indices(n_columns)] += 1.0
    diagonal = inverse.diagonal().copy()
    np.fill_diagonal(inverse, 0.0)
    return inverse / -diagonal
