"""Frank-Wolfe for matrix completion, plain and under user-level joint differential privacy.

Jain, Thakkar and Thakurta 2018, Algorithms 1 and 3, with the constants of Algorithm 1 corrected
(docs/papers/errata.md, E1 to E9). Each step adds a rank-one matrix ``u v^T``, in the ball of a nuclear norm.

User side (local): the user's row of the iterate, replayed from the released sequence of (v, lambda), and the
clipped residual row. Server side (global): the top eigenpair of the sum of the residual rows' outer products,
from noisy releases. Sensitivities: docs/proofs/frank_wolfe.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from hushrec.checks import Clip, Count, NotNegative, Positive, Settings
from hushrec.data import Domain, Ratings
from hushrec.kernels.packed import LARGEST_DIRECT, top_eigenpairs, unpacked
from hushrec.kernels.sparse_rows import shrunk, with_values
from hushrec.kernels.symmetric import outer_sums
from hushrec.papers.frank_wolfe.centering import (
    CentredEstimator,
    CentredUsers,
    ExactEstimator,
    Released,
    exact_level,
)
from hushrec.papers.frank_wolfe.eigensolvers import (
    CovarianceSolver,
    Eigenpairs,
    OjaSolver,
    PowerSolver,
    Solver,
    clipped,
    random_block,
)
from hushrec.privacy import Bound, Bounded, Budget, Plan
from hushrec.serving.modelfile import Expected
from hushrec.serving.scoring import UserState
from hushrec.training.gate import Gate
from hushrec.types import Array

#: A singular value is not divided by if it is smaller (without noise the residual may vanish).
_SMALLEST = 1e-12


_EXPECTED = CentredEstimator.expected | {
    "singular_values": Expected("f", ("rank",)),
    "steps": Expected("f", ("rank",)),
}


@dataclass(frozen=True, kw_only=True)
class FrankWolfe(ExactEstimator):
    """Frank-Wolfe without privacy (Algorithm 3): the reference of :class:`PrivateFrankWolfe`.

    Parameters
    ----------
    nuclear_norm : float
        Bound k on the nuclear norm of the completed matrix, in units of half the rating range, > 0.
    iterations : int
        Steps T, >= 1.
    line_search : bool
        Take the best step instead of 1/T.
    max_ratings_per_user, center, bias_clip, bias_share
        As in :class:`~hushrec.papers.frank_wolfe.centering.CentredEstimator`.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> estimator = hushrec.papers.FrankWolfe(nuclear_norm=20, iterations=20)
    >>> model = estimator.fit(ratings, hushrec.Accountant(hushrec.Budget(float("inf"), 1e-6)))
    >>> len(model.recommend({ratings.domain.items[0]: 5}, n=3))
    3
    """

    name: ClassVar[str] = "frank-wolfe"
    expected: ClassVar[dict[str, Expected]] = _EXPECTED

    nuclear_norm: Positive
    iterations: Count = 400
    line_search: bool = False

    @classmethod
    def settings_for(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        return cls.of({"nuclear_norm": typical_nuclear_norm(domain, n_users)}, changes)

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        """Algorithm 3."""
        arrays = exact_level(ratings, self.center, seed)
        users = Iterates(self.rows(arrays, ratings)[0], math.inf)
        nuclear_norm = self.nuclear_norm * ratings.domain.half_width
        vectors, values, steps = [], [], []
        for _ in range(self.iterations):
            residuals = users.residuals()
            value, vector = top_right_singular(residuals)
            value = max(value, _SMALLEST)
            step = 1 / self.iterations
            if self.line_search:
                step = users.best_step(residuals, vector, nuclear_norm / value)
            users.advance(residuals, vector, step, nuclear_norm / value)
            vectors.append(vector)
            values.append(value)
            steps.append(step)
        model = Bounded(np.column_stack(vectors), Bound(math.inf, math.inf))
        released = gate.release("exact model", model)
        return arrays | {
            "item_factors": released,
            "singular_values": np.array(values),
            "steps": np.array(steps),
        }

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        rows, offset = self.rows(arrays, history)
        nuclear_norm = self.nuclear_norm * history.domain.half_width
        return UserState(offset, replay(rows, arrays, math.inf, nuclear_norm))


@dataclass(frozen=True, kw_only=True)
class PrivateFrankWolfe(CentredEstimator["IteratingUsers"]):
    """Private Frank-Wolfe (Algorithm 1).

    Parameters
    ----------
    nuclear_norm : float
        Bound k on the nuclear norm of the completed matrix, in units of half the rating range, > 0.
    row_clip : float or None
        Bound L on the norm of a user's row, of ratings and in the current estimate, in units of half the
        rating range, > 0. By default the square root of ``max_ratings_per_user``, which no centred row
        exceeds.
    step_damping : float
        >= 0. The published step does not depend on the residual's size, and overshoots with a generous k.
        From 1 on, a user with ratings along v moves by at most their residual.
    iterations : int
        Steps T, >= 1.
    tuning : PrivateFrankWolfe.Tuning
    max_ratings_per_user, center, bias_clip, bias_share
        As in :class:`~hushrec.papers.frank_wolfe.centering.CentredEstimator`.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: the sequence of (v, lambda) is (epsilon, delta)-DP, a user's
    row is replayed from it and their own ratings. Gaussian releases. Their mu squared adds up to the
    budget's. Sensitivity of a covariance: B^2 under add-remove, sqrt(2) B^2 under replace; of a product with
    one vector, and of Oja's eigenvalue: B^2 under both.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> estimator = hushrec.papers.PrivateFrankWolfe(nuclear_norm=20, iterations=3)
    >>> model = estimator.fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> len(model.recommend({ratings.domain.items[0]: 5}, n=3))
    3
    """

    name: ClassVar[str] = "private-frank-wolfe"
    expected: ClassVar[dict[str, Expected]] = _EXPECTED

    @dataclass(frozen=True, kw_only=True)
    class Tuning(Settings):
        """Settings of a step; ``python -m benchmarks.reproduce_frank_wolfe`` chose them on public data.

        Parameters
        ----------
        residual_clip : float or None
            Bound B on the norm of a user's residual row at the first step, in units of half the rating range,
            > 0. By default twice the bound of a row, which no residual exceeds: the paper's calibration.
        residual_clip_decay : float
            Factor of that bound from one step to the next, in (0, 1].
        eigenvector : {"covariance", "oja", "power"}
            Release the items x items matrix (Algorithm 1), or products with it (Algorithm 2, or block power
            iteration), in memory linear in the items.
        inner_steps : int
            Products a step (Gamma) of "oja" and "power", >= 1.
        block : int
            Vectors that "power" iterates, >= 1.
        """

        residual_clip: Clip | None = None
        residual_clip_decay: Annotated[float, "(0, 1]"] = 1.0
        eigenvector: Literal["covariance", "oja", "power"] = "covariance"
        inner_steps: Count = 4
        block: Count = 1

    nuclear_norm: Positive
    row_clip: Clip | None = None
    step_damping: NotNegative = 0.0
    iterations: Count = 10
    tuning: Tuning = Tuning()
    center: Released = "user"

    @classmethod
    def settings_for(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        settings: dict[str, Any] = {"residual_clip": 2.0, "center": "biases", "step_damping": 1.0}
        settings |= {"n_users": n_users, "nuclear_norm": typical_nuclear_norm(domain, n_users)}
        return cls.of(settings, changes)

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        planned, left = self._level_releases(budget, domain, fraction)
        for step in range(1, self.iterations + 1):
            share = left * (1 / self.iterations)
            planned += self._solver(domain, step).releases(f"step {step}", budget, share).releases
        return Plan(budget, planned)

    def _solver(self, domain: Domain, step: int) -> Solver:
        bound = self._residual_bound(domain) * self.tuning.residual_clip_decay ** (step - 1)
        if self.tuning.eigenvector == "oja":
            return OjaSolver(bound, self.tuning.inner_steps)
        if self.tuning.eigenvector == "power":
            return PowerSolver(bound, self.tuning.inner_steps, min(self.tuning.block, domain.n_items))
        return CovarianceSolver(bound)

    def users(self, ratings: Ratings) -> IteratingUsers:
        return IteratingUsers(ratings, self)

    def train(self, users: IteratingUsers, gate: Gate, seed: int) -> dict[str, Any]:
        """Algorithm 1."""
        domain = users.domain
        arrays = self._level(users, gate, seed)
        users.begin(arrays, self._row_bound(self.row_clip, domain))
        start = random_block(domain.n_items, self._solver(domain, 1).block, seed)
        vectors, values = [], []
        for step in range(1, self.iterations + 1):
            solver = self._solver(domain, step)
            pairs = solver.solve(users, start, gate, f"step {step}")
            vector, start = pairs.vectors[:, 0], pairs.vectors
            value = self._singular_value(pairs, domain)
            users.advance(vector, 1 / self.iterations, self._k(domain) / value)
            vectors.append(vector)
            values.append(value)
        return arrays | {
            "item_factors": np.column_stack(vectors),
            "singular_values": np.array(values),
            "steps": np.full(self.iterations, 1 / self.iterations),
        }

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        rows, offset = self.rows(arrays, history)
        bound = self._row_bound(self.row_clip, history.domain)
        return UserState(offset, replay(rows, arrays, bound, self._k(history.domain)))

    def _k(self, domain: Domain) -> float:
        return self.nuclear_norm * domain.half_width

    def _residual_bound(self, domain: Domain) -> float:
        if self.tuning.residual_clip is None:
            return 2 * self._row_bound(self.row_clip, domain)
        return self.tuning.residual_clip * domain.half_width

    def _singular_value(self, pairs: Eigenpairs, domain: Domain) -> float:
        """The paper's lambda', damped: an upper bound along v."""
        observed = min(self.max_ratings_per_user / domain.n_items, 1.0)
        longest = self._k(domain) / self.iterations * observed
        square = max(float(pairs.values[0]), 0.0) + pairs.noise + self.step_damping * longest**2
        return max(math.sqrt(square), _SMALLEST)


class IteratingUsers(CentredUsers):
    def begin(self, level: Mapping[str, Array], row_bound: float) -> None:
        self.centre(level)
        self._iterates = Iterates(self._centred, row_bound)
        self._contributed = self._iterates.residuals()

    def advance(self, vector: Array, step: float, ratio: float) -> None:
        self._iterates.advance(self._contributed, vector, step, ratio)
        self._contributed = self._iterates.residuals()


class Iterates:
    """User side of Algorithms 1 and 3: every user's row of the iterate; private.

    It holds the users' own entries, and coefficients of the directions.
    """

    def __init__(self, rows: sp.csr_array, row_bound: float) -> None:
        self.rows, self.row_bound = clipped(rows, row_bound), row_bound
        self.iterate = np.zeros(rows.nnz)
        self.coefficients = np.zeros((rows.shape[0], 0))

    def residuals(self) -> sp.csr_array:
        """A = P_Omega(Y - Y*)."""
        return with_values(self.rows, self.iterate - self.rows.data)

    def advance(self, residuals: sp.csr_array, vector: Array, step: float, ratio: float) -> None:
        """Y <- Pi((1 - step) Y - step k u v^T), u = A v / lambda, ``ratio`` being k / lambda."""
        rows, along = self.rows, vector[self.rows.indices]
        with np.errstate(all="ignore"):  # a warning would reveal rows
            users = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
            added = -(step * ratio) * np.bincount(users, residuals.data * along, minlength=rows.shape[0])
            moved = (1 - step) * self.iterate + added[users] * along
        self.iterate, factor = shrunk(rows.indptr, moved, self.row_bound)
        kept = self.coefficients * ((1 - step) * factor)[:, None]
        self.coefficients = np.column_stack([kept, added * factor])

    def best_step(self, residuals: sp.csr_array, vector: Array, ratio: float) -> float:
        """Return the step in [0, 1] of least squared residuals; a sum over all users."""
        rows = self.rows
        counts = np.diff(rows.indptr)
        toward = -ratio * np.repeat(residuals @ vector, counts) * vector[rows.indices] - self.iterate
        square = float(toward @ toward)
        return float(np.clip(-(residuals.data @ toward) / square, 0.0, 1.0)) if square > 0 else 0.0


def replay(
    rows: sp.csr_array, arrays: Mapping[str, Array], row_bound: float, nuclear_norm: float
) -> NDArray[np.float64]:
    users = Iterates(rows, row_bound)
    vectors = arrays["item_factors"].astype(np.float64).T
    for vector, value, step in zip(vectors, arrays["singular_values"], arrays["steps"], strict=True):
        users.advance(users.residuals(), vector, float(step), nuclear_norm / float(value))
    return users.coefficients


def top_right_singular(matrix: Any) -> tuple[float, NDArray[np.float64]]:
    order = matrix.shape[1]
    if order <= LARGEST_DIRECT:
        square = unpacked(outer_sums(matrix.indptr, matrix.indices, matrix.data, order))
        values, vectors = top_eigenpairs(square, 1)
    else:
        operator = LinearOperator((order, order), matvec=lambda v: matrix.T @ (matrix @ v), dtype=np.float64)
        values, vectors = eigsh(operator, 1, which="LA", v0=np.ones(order))
    return math.sqrt(max(values[0], 0.0)), vectors[:, 0]


def typical_nuclear_norm(domain: Domain, n_users: int) -> float:
    """Return the norm of a matrix of rank about ten with entries of half the range or less."""
    return 3.0 * math.sqrt(n_users * domain.n_items)
