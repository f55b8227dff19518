"""Private SVD: one noisy item x item matrix, its top eigenvectors, and a local fit on them.

Jain, Thakkar and Thakurta 2018, Algorithm 4, with its constants corrected (docs/papers/errata.md, S1 to S4).
Sensitivities: docs/proofs/private_svd.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from hushrec.checks import Clip, Count, Positive
from hushrec.data import Domain, Ratings
from hushrec.kernels.packed import top_eigenpairs, unpacked
from hushrec.kernels.sweeps import ridge_fit
from hushrec.papers.frank_wolfe.centering import CentredEstimator, CentredUsers, Released
from hushrec.papers.frank_wolfe.eigensolvers import clipped
from hushrec.privacy import Budget, Plan, positive
from hushrec.serving.scoring import UserState
from hushrec.training.gate import Gate
from hushrec.training.trainable import Round, plan_of
from hushrec.types import Array


@dataclass(frozen=True, kw_only=True)
class PrivateSVD(CentredEstimator[CentredUsers]):
    """Private eigenvectors of the users' covariance.

    Parameters
    ----------
    rank : int
        Number of eigenvectors, >= 1.
    row_clip : float or None
        Bound L on the norm of a user's row, in units of half the rating range, > 0. By default the
        square root of ``max_ratings_per_user``, which no row exceeds.
    scale : {"local", "ridge"}
        The paper's scale, mn over the number of observed ratings, is not private. "local": n over the number
        of the user's ratings. "ridge": a ridge regression of them on the eigenvectors, without a scale.
    regularization : float
        Ridge of that regression, in ratings, > 0; ``python -m benchmarks.reproduce_frank_wolfe`` chose it.
    max_ratings_per_user, center, bias_clip, bias_share
        As in :class:`~hushrec.papers.frank_wolfe.centering.CentredEstimator`.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: the eigenvectors are (epsilon, delta)-DP, a user's factors are
    computed from them and their own rows. One Gaussian release of the sum of the outer products of rows of
    norm <= L, with sensitivity L^2 under add-remove and sqrt(2) L^2 under replace.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> estimator = hushrec.papers.PrivateSVD(rank=3)
    >>> model = estimator.fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> len(model.recommend({ratings.domain.items[0]: 5}, n=3))
    3
    """

    name: ClassVar[str] = "private-svd"

    rank: Count = 8
    row_clip: Clip | None = None
    scale: Literal["local", "ridge"] = "ridge"
    regularization: Positive = 10.0
    center: Released = "user"

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        planned, left = self._level_releases(budget, domain, fraction)
        covariance = positive(self._row_bound(self.row_clip, domain) ** 2)
        release = plan_of([Round("covariance", 1.0, covariance)], budget, left, 1.0)
        return Plan(budget, (*planned, *release.releases))

    def users(self, ratings: Ratings) -> CentredUsers:
        return CentredUsers(ratings, self)

    def train(self, users: CentredUsers, gate: Gate, seed: int) -> dict[str, Any]:
        domain = users.domain
        arrays = self._level(users, gate, seed)
        users.centre(arrays)
        bound = self._row_bound(self.row_clip, domain)
        matrix = unpacked(gate.release("covariance", users.covariance(bound)))
        vectors = top_eigenpairs(matrix, min(self.rank, domain.n_items))[1]
        return arrays | {"item_factors": vectors}

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: Y_i = scale * row V V^T, or the ridge regression of the row on V."""
        rows, offset = self.rows(arrays, history)
        vectors = arrays["item_factors"].astype(np.float64)
        if self.scale == "ridge":
            # a direction has norm 1, not root mean square 1
            return UserState(offset, ridge_fit(rows, vectors, self.regularization / history.n_items))
        counts = np.maximum(np.diff(rows.indptr), 1)
        bound = self._row_bound(self.row_clip, history.domain)
        return UserState(offset, history.n_items / counts[:, None] * (clipped(rows, bound) @ vectors))
