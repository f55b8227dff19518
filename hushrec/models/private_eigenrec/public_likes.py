"""Public likes as a part of a list: an item-to-item regression (EASE with an intercept) in item factors.

It is a function of public rows and released values, so it has no privacy cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from hushrec.data import Ratings
from hushrec.data.keys import mix
from hushrec.kernels.threads import one_blas_thread
from hushrec.training.posterior import posterior_means
from hushrec.types import Array

# Chosen on users that `benchmarks/public.py` does not judge. Recall changes little near these values.

#: Ridge of the regressions, in likes: at least the first; the second times the mean number of likes that the
#: item of a like has.
_LEAST_RIDGE, _RIDGE = 50.0, 1.5
#: Weights in users: of the released popularity, and of a user of another population.
_POPULARITY, _EXTERNAL = 300.0, 0.2
#: Most numbers in the table of item factors: 32 MiB in a model file.
_NUMBERS = 1 << 23
#: Candidates of the part of the public likes that counts as evidence of the users' popularity.
_TRUSTS = 0.0, 0.1, 0.3, 1.0
#: Logarithm of the prior odds that all of it counts.
_TRUSTED = 2.0
_TINY = float(np.finfo(np.float64).tiny)


def row_key(items: Array) -> NDArray[np.uint64]:
    """Return a hash of a set of items, shape (1,)."""
    with np.errstate(over="ignore"):
        return mix(mix(items.astype(np.uint64)).sum(keepdims=True))


@dataclass(frozen=True, eq=False)
class PublicLikes:
    """Rows of public likes over the catalogue, of ones.

    Attributes
    ----------
    same, external : csr_array of shape (n_users, n_items)
        Of the same, and of another population.
    """

    same: sp.csr_array
    external: sp.csr_array

    @classmethod
    def of(cls, same: Ratings, external: Ratings | None, like_threshold: float | None) -> Self:
        others = same.rows([]) if external is None else external
        liked = (rows.liked(like_threshold).rated().matrix for rows in (same, others))
        return cls(*(sp.csr_array((np.ones(m.nnz), m.indices, m.indptr), shape=m.shape) for m in liked))

    @property
    def keys(self) -> NDArray[np.uint64]:
        """The hash of each row of the same population."""
        keys = [row_key(items) for items in np.split(self.same.indices, self.same.indptr[1:-1])]
        return np.unique(np.concatenate([np.zeros(0, np.uint64), *keys]))

    def factors(self, popularity: Array) -> Array:
        """Return item factors whose products are the items' weights for each other.

        Each item is regressed on all others and on 1, with one artificial user who likes every item in
        proportion to its popularity. Items q and j have the partial correlation ``-P_qj / sqrt(P_qq P_jj)``
        as their weight, with the inverse ``P`` of the second moments and the ridge.
        """
        n_rows = max(self.same.shape[0] + self.external.shape[0], 1)
        count = max(_NUMBERS // n_rows, math.isqrt(_NUMBERS))
        learned = np.sort(np.argsort(-popularity, kind="stable")[:count])
        rate = popularity * ((self.same.nnz + self.external.nnz) / n_rows / popularity.sum())
        rows = [np.sqrt(_POPULARITY) * np.append(rate[learned], 1.0)[None]]
        for likes, weight in ((self.same, 1.0), (self.external, _EXTERNAL)):
            ones = np.ones(likes.shape[0])
            rows.append(np.sqrt(weight) * np.column_stack([likes[:, learned].toarray(), ones]))
        counts = self.same.sum(axis=0) + _EXTERNAL * self.external.sum(axis=0)
        ridge = max(_LEAST_RIDGE, _RIDGE * float(counts @ counts) / max(float(counts.sum()), 1.0))
        with one_blas_thread():
            found = _factors(np.vstack(rows), ridge)[:-1]
        factors = np.zeros((len(popularity), found.shape[1]))
        factors[learned] = found / np.sqrt(1 - (found**2).sum(axis=1))[:, None]
        return factors

    def evidence(self, candidates: Array, likes: float, likelihood: Array) -> Array:
        """Return the log-likelihood of candidates of the items' weights per user.

        The sum of an item's weights in the public rows is Poisson in units of a like. It counts by the part
        at which it predicts the released weights, of that ``likelihood``, best.

        Parameters
        ----------
        candidates : ndarray of shape (n_candidates,)
        likes : float
            Likes per unit of weight.
        likelihood : ndarray of shape (n_items, n_candidates)
        """
        lengths = np.diff(self.same.indptr)
        weights = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths)
        weights = np.bincount(self.same.indices, weights, len(likelihood))
        mean = len(lengths) * candidates * likes
        own = (likes * weights)[:, None] * np.log(mean) - mean if len(lengths) else 0 * likelihood

        def predicted(trust: float) -> float:
            both = likelihood + trust * own
            masses = posterior_means(candidates, both)[1]
            return _TRUSTED * trust + float((_log_sum(both, masses) - _log_sum(trust * own, masses)).sum())

        return max(_TRUSTS, key=predicted) * own


def _log_sum(logarithms: Array, masses: Array) -> Array:
    largest = logarithms.max(axis=1)
    return largest + np.log(np.maximum(np.exp(logarithms - largest[:, None]) @ masses, _TINY))


def _factors(rows: Array, ridge: float) -> Array:
    """Return a factor ``F``, one row a column, of the ridge regression of rows on themselves, ``F F'``."""
    if len(rows) > rows.shape[1]:  # as many rows as columns have the same second moments
        values, vectors = np.linalg.eigh(rows.T @ rows)
        rows = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    gramian = rows @ rows.T
    gramian[np.diag_indices(len(rows))] += ridge
    return np.asarray(solve_triangular(cholesky(gramian, lower=True), rows, lower=True).T)
