"""Private SLIM: an estimator outside the package, in one file. Docs: CONTRIBUTING.md, "Add a model".

Run it with the words of a hushrec command: ``python private_slim.py train ... --model private-slim``.

A linear model with a closed form (EASE, Steck 2019) predicts items from other items. It needs only the items'
Gramian over the users, which is released once, with noise. Each user scales their likes to norm 1, and so
adds a positive semidefinite matrix of Frobenius norm 1 to the sum. The sensitivity is 1 under add-remove and
sqrt(2) under replace, as for the item weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.checks import Part, Positive
from hushrec.cli import main
from hushrec.data import Domain, Ratings
from hushrec.kernels.fixed_point import CLIP_MARGIN, FACTOR_BITS, spacing, truncated
from hushrec.kernels.packed import frobenius_scale, unpacked
from hushrec.privacy import Bounded, Budget, Plan, positive
from hushrec.registry import register
from hushrec.serving import UserState
from hushrec.training import Estimator, Gate, Round, Users, plan_of

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class PrivateSLIM(Estimator):
    """Likes predicted from other likes.

    Parameters
    ----------
    regularization : float
        Ridge, as a multiple of the noise's largest eigenvalue, > 0.
    weights_share : float
        Part of the budget (of mu squared) for the item weights, in (0, 1).

    Privacy
    -------
    Unit: user. Relation: the budget's. Two Gaussian releases, of sensitivity 1 (add-remove) or sqrt(2)
    (replace): sums of vectors, and of outer products of vectors, of norm at most 1 a user.
    """

    name: ClassVar[str] = "private-slim"
    scores: ClassVar[str] = "likes"

    regularization: Positive = 2.0
    weights_share: Part = 0.1

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        rounds = [
            Round("item weights", self.weights_share, positive(1.0)),
            Round("gramian", 1 - self.weights_share, positive(1.0)),
        ]
        return plan_of(rounds, budget, fraction)

    def users(self, ratings: Ratings) -> UnitUsers:
        return UnitUsers(ratings)

    def train(self, users: UnitUsers, gate: Gate, seed: int) -> dict[str, Any]:
        """Server side: the closed form, from the two noisy sums."""
        n_items = users.domain.n_items
        weights = gate.release("item weights", users.item_weights())
        gramian = unpacked(gate.release("gramian", users.gramian()))
        ridge = self.regularization * gate.noise_sd("gramian") * np.sqrt(2 * n_items)
        values, vectors = np.linalg.eigh(gramian)
        inverse = (vectors / (np.maximum(values, 0.0) + max(ridge, 1e-9))) @ vectors.T
        linear = -inverse / np.diag(inverse)
        np.fill_diagonal(linear, 0.0)
        return {
            "center": np.float64(0.0),
            "item_bias": 1e-3 * weights / max(float(np.abs(weights).max()), 1.0),  # ties: the popular first
            "item_factors": linear.T.astype(np.float32),
        }

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: a user's likes are their factors."""
        return UserState(np.zeros(history.n_users), _likes(history).toarray())


class UnitUsers(Users):
    """Users whose likes have norm 1."""

    def gramian(self) -> Bounded:
        """Return the packed sum of the outer products of the users' rows, exact in fixed point."""
        likes, step = _likes(self._ratings), spacing(1.0, FACTOR_BITS)
        counts = np.maximum(np.diff(likes.indptr), 1)
        likes.data = truncated(np.repeat(CLIP_MARGIN / np.sqrt(counts), np.diff(likes.indptr)), step)
        packed = (likes.T @ likes).toarray()[np.tril_indices(self.domain.n_items)]
        return Bounded(packed, positive(1.0), weight=frobenius_scale(self.domain.n_items), step=step**2)


def _likes(ratings: Ratings) -> sp.csr_array:
    matrix = ratings.matrix
    return sp.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)


if __name__ == "__main__":
    register(PrivateSLIM)
    main()
