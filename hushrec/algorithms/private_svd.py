"""Private SVD: one noisy item x item matrix, its top eigenvectors, and a local fit on them.

Jain, Thakkar and Thakurta 2018, Algorithm 4, with its constants corrected (docs/errata.md, S1 to S4). The
release of a covariance, here and in Frank-Wolfe, is :class:`Covariance`. Sensitivities:
docs/proofs/private_svd.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.algorithms.centering import CentredEstimator, clipped, with_values
from hushrec.checks import check_choice, check_clips, check_numbers
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.estimator import UserState
from hushrec.gate import Gate
from hushrec.kernels.fixed_point import FACTOR_BITS, spacing, truncated
from hushrec.kernels.packed import frobenius_scale, top_eigenpairs, unpacked
from hushrec.kernels.sweeps import SweepSettings, csr, half_sweep
from hushrec.privacy import Budget, Plan, Release

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class PrivateSVD(CentredEstimator):
    """Complete every user's row from the private top eigenvectors of the users' covariance.

    Parameters
    ----------
    rank : int
        Number of eigenvectors, >= 1.
    row_clip : float or None
        Bound L on the norm of a user's row, in units of half the rating range, > 0. None is the square root
        of ``max_ratings_per_user``, which no row exceeds.
    scale : {"local", "paid", "ridge"}
        What stands for the paper's exact mn/|Omega|, which is not private: n over the number of the user's
        own ratings; n times the released ratio of users to ratings; or no scale, but a ridge regression of
        her own ratings on the eigenvectors.
    regularization : float
        Ridge of that regression, in ratings, > 0.
    scale_share : float
        Part of the budget for the ratio, in (0, 1).
    max_ratings_per_user, center, bias_clip, bias_share
        As in :class:`~hushrec.algorithms.centering.CentredEstimator`.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: the eigenvectors are (epsilon, delta)-DP, a user's factors are
    computed from them and her own rows. One Gaussian release of the sum of the outer products of rows of
    norm <= L: sensitivity L^2 under add-remove and sqrt(2) L^2 under replace (the paper's noise is four
    times as much). ``scale="paid"`` also releases the number of users and of their ratings over xi, of
    sensitivity sqrt(2).
    """

    name: ClassVar[str] = "private-svd"

    rank: int = 8
    row_clip: float | None = None
    scale: str = "ridge"
    regularization: float = 10.0
    scale_share: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(
            rank=(self.rank, int, 1, None),
            regularization=(self.regularization, float, 0, None),
            scale_share=(self.scale_share, float, 0, 1),
        )
        check_clips(row_clip=self.row_clip)
        check_choice(scale=(self.scale, ("local", "paid", "ridge")))

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        planned, left = self._level_releases(budget, domain, fraction)
        if self.scale == "paid":
            sizes = Release(
                "sizes", budget.share(left * self.scale_share), math.sqrt(2.0), budget.unit, budget.relation
            )
            planned, left = (*planned, sizes), left * (1 - self.scale_share)
        covariance = Covariance(self._row_bound(self.row_clip, domain)).releases("covariance", budget, left)
        return Plan(budget, (*planned, *covariance))

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        arrays = self._level(ratings, gate, seed)
        rows = self._rows(arrays, ratings).matrix
        if self.scale == "paid":
            sizes = np.array([ratings.n_users, rows.nnz], dtype=np.float64)
            scale = np.array([1.0, 1 / self.max_ratings_per_user])
            n_users, n_ratings = np.maximum(gate.release("sizes", sizes, scale=scale), 1 / scale)
            ratio = min(n_users / n_ratings, 1.0)
            arrays["scale"] = np.float64(ratings.n_items * ratio)
        matrix = Covariance(self._row_bound(self.row_clip, ratings.domain)).matrix(rows, gate, "covariance")
        vectors = top_eigenpairs(matrix, min(self.rank, ratings.n_items))[1]
        return arrays | {"item_factors": vectors}

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: Y_i = scale * row V V^T, or the ridge regression of the row on V."""
        rows, offset = self._rows(arrays, history)
        vectors = arrays["item_factors"].astype(np.float64)
        if self.scale == "ridge":
            # a direction has norm 1, not root mean square 1
            return UserState(offset, ridge_fit(rows, vectors, self.regularization / history.n_items))
        counts = np.maximum(np.diff(rows.indptr), 1)
        scale = arrays["scale"] if self.scale == "paid" else history.n_items / counts[:, None]
        return UserState(
            offset, scale * (clipped(rows, self._row_bound(self.row_clip, history.domain)) @ vectors)
        )


@dataclass(frozen=True)
class Covariance:
    """Sum of the outer products of rows of norm at most ``bound``, with symmetrised noise.

    One user moves it by at most ``bound ** 2`` (add-remove) or sqrt(2) times that (replace), in the
    Frobenius norm (docs/proofs/private_svd.md).
    """

    bound: float

    def releases(self, label: str, budget: Budget, fraction: float) -> tuple[Release, ...]:
        """The one release that it is."""
        if budget.private and not math.isfinite(self.bound):
            raise InputError("Rows without a clip are not private; pass a bound.")
        sensitivity = symmetric_sensitivity(self.bound, budget.relation)
        return (Release(label, budget.share(fraction), sensitivity, budget.unit, budget.relation),)

    def matrix(self, rows: sp.csr_array, gate: Gate, label: str) -> NDArray[np.float64]:
        """Clip, sum, release; the noisy symmetric matrix."""
        from hushrec.kernels.symmetric import outer_sums

        packed = outer_sums(*csr(contributed(rows, self.bound)), rows.shape[1])
        return unpacked(gate.release(label, packed, scale=frobenius_scale(rows.shape[1])))


def contributed(rows: sp.csr_array, bound: float) -> sp.csr_array:
    """Rows of norm at most ``bound`` in fixed point: sums of products of two of their entries are exact."""
    rows = clipped(rows, bound)
    return with_values(rows, truncated(rows.data, spacing(bound, FACTOR_BITS)))


def symmetric_sensitivity(bound: float, relation: str) -> float:
    """How far one outer product of a vector of norm <= ``bound`` moves a symmetric sum, in Frobenius norm."""
    if not math.isfinite(bound):
        return 1.0  # no clip, and no noise either: the budget is infinite
    return bound**2 * (math.sqrt(2.0) if relation == "replace" else 1.0)


def ridge_fit(rows: sp.csr_array, factors: Array, ridge: float) -> NDArray[np.float64]:
    """Local: ridge regression of every row's entries on its items' factors, shape (n_users, rank)."""
    settings = SweepSettings(regularization=ridge, bias_regularization=None)
    padded = np.column_stack([factors, np.zeros(len(factors))])
    return half_sweep(csr(rows), 0.0, padded, settings)[:, :-1]
