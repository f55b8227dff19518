"""Fully corrective private Frank-Wolfe: every user refits all their coefficients after every step.

The steps of Jain, Thakkar and Thakurta 2018, Algorithm 1, with two additions. Users do not take a common step
along the new direction. They refit all directions so far by ridge regression (fully corrective Frank-Wolfe,
Jaggi 2013), which has no privacy cost under joint privacy. And a step may take several eigenvectors of one
release (block Frank-Wolfe, Allen-Zhu, Hazan, Hu and Li 2017), which is free as well. Sensitivities:
docs/proofs/frank_wolfe.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hushrec.checks import Count, Positive
from hushrec.data import Domain, Ratings
from hushrec.kernels.residuals import predict_pairs
from hushrec.kernels.sparse_rows import with_values
from hushrec.kernels.sweeps import ridge_fit
from hushrec.papers.frank_wolfe.centering import CentredUsers, Released
from hushrec.papers.frank_wolfe.eigensolvers import CovarianceSolver, Eigenpairs, Solver, random_block
from hushrec.papers.frank_wolfe.frank_wolfe import PrivateSteps
from hushrec.privacy import Budget
from hushrec.training.estimator import UserState
from hushrec.training.gate import Gate
from hushrec.types import Array


@dataclass(frozen=True, kw_only=True)
class CorrectiveFrankWolfe(PrivateSteps["RefittedUsers"]):
    """Private Frank-Wolfe with local refits.

    A direction enters with the strength of its eigenvalue above the noise, relative to the strongest,
    which shrinks weak ones and omits possible noise.

    Parameters
    ----------
    regularization : float
        Ridge on a user's coefficients of the strongest direction, in ratings, > 0.
    iterations, tuning
        As in :class:`~hushrec.papers.frank_wolfe.frank_wolfe.PrivateSteps`.
    max_ratings_per_user, center, bias_clip, bias_share
        As in :class:`~hushrec.papers.frank_wolfe.centering.CentredEstimator`.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: the directions are (epsilon, delta)-DP, a user's coefficients
    are computed from them and their own ratings. Releases and sensitivities are those of
    :class:`~hushrec.papers.frank_wolfe.PrivateFrankWolfe`.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> estimator = hushrec.papers.CorrectiveFrankWolfe(iterations=2)
    >>> model = estimator.fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> len(model.recommend({ratings.domain.items[0]: 5}, n=3))
    3
    """

    name: ClassVar[str] = "corrective-frank-wolfe"

    regularization: Positive = 10.0
    iterations: Count = 1
    tuning: PrivateSteps.Tuning = PrivateSteps.Tuning(residual_clip=2.0, block=10)
    center: Released = "biases"

    @classmethod
    def settings_for(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        """Spend more on the biases or take a second step, by the number of users and the budget."""
        signal = budget.mu * n_users / domain.n_items
        settings: dict[str, Any] = {
            "iterations": 1 if signal < 30 else 2,
            "bias_share": 0.8 if signal < 10 else 0.5,
        }
        return cls.of(settings, changes)

    def users(self, ratings: Ratings) -> RefittedUsers:
        return RefittedUsers(ratings, self)

    def train(self, users: RefittedUsers, gate: Gate, seed: int) -> dict[str, Any]:
        """Residuals, release, refit; T times."""
        domain = users.domain
        arrays = self._level(users, gate, seed)
        users.centre(arrays)
        directions, strongest = np.zeros((domain.n_items, 0)), 0.0
        for step in range(1, self.iterations + 1):
            if step > 1:
                users.refit(directions, self._ridge(domain.n_items))
            solver = self._solver(domain, step)
            start = random_block(domain.n_items, solver.block, seed + step)
            found = solver.solve(users, start, gate, f"step {step}", self.tuning.failure_probability)
            strengths = _strengths(found)
            strongest = max(strongest, float(strengths[0]), 1e-300)
            columns = found.vectors * np.sqrt(np.minimum(strengths / strongest, 1.0))
            directions = np.column_stack([directions, columns])
        return arrays | {"item_factors": directions}

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: the user's last refit."""
        rows, offset = self.rows(arrays, history)
        directions = arrays["item_factors"].astype(np.float64)
        return UserState(offset, ridge_fit(rows, directions, self._ridge(len(directions))))

    def _ridge(self, n_items: int) -> float:
        """Return the ridge in units of directions of norm 1, not of root mean square 1."""
        return self.regularization / n_items

    def _solver(self, domain: Domain, step: int) -> Solver:
        solver = super()._solver(domain, step)
        if isinstance(solver, CovarianceSolver):
            return CovarianceSolver(solver.bound, min(self.tuning.block, domain.n_items), diagonal=False)
        return solver


class RefittedUsers(CentredUsers):
    """Users who contribute the residuals of their rows after a regression on all directions so far."""

    def refit(self, directions: Array, ridge: float) -> None:
        """Coefficients of the released directions, and residuals from them."""
        rows = self._centred
        users = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        fitted = predict_pairs(users, rows.indices, ridge_fit(rows, directions, ridge), directions)
        self._contributed = with_values(rows, rows.data - fitted)


def _strengths(found: Eigenpairs) -> NDArray[np.float64]:
    """Server side: eigenvalues less what noise adds, times the squared cosines that noise leaves.

    For a noisy symmetric matrix whose noise has norm e, a largest eigenvalue w > e makes both together equal
    to sqrt(w^2 - e^2). An eigenvalue up to e shows no signal (Benaych-Georges and Nadakuditi 2011).
    """
    excess = np.maximum(found.values, 0.0) ** 2 - found.noise**2
    return np.sqrt(np.maximum(excess, 0.0))
