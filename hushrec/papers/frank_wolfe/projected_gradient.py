"""Projected gradient descent on the ball of the nuclear norm, plain and under joint differential privacy.

Jain, Thakkar and Thakurta 2018, Algorithm 5, with its sign, its index and its row clip corrected
(docs/papers/errata.md, P1 to P3).

User side (local): a clipped gradient step on the user's row, then its projection by the released map. Server
side (global): the right singular vectors and values of all rows, from the noisy sum of their outer products.
Sensitivities: docs/proofs/projected_gradient.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.checks import Clip, Count, Positive, Settings
from hushrec.data import Domain, Ratings
from hushrec.kernels.fixed_point import FACTOR_BITS, spacing, truncated
from hushrec.kernels.one_bit import soft_threshold_for
from hushrec.kernels.packed import frobenius_scale, unpacked
from hushrec.kernels.residuals import row_products
from hushrec.kernels.sparse_rows import clipped_rows
from hushrec.papers.frank_wolfe.centering import (
    CentredEstimator,
    CentredUsers,
    ExactEstimator,
    Released,
    exact_level,
)
from hushrec.privacy import Bound, Bounded, Budget, Plan, positive
from hushrec.serving.modelfile import Expected
from hushrec.serving.scoring import UserState
from hushrec.training.gate import Gate
from hushrec.training.trainable import PrivateSide, Round, plan_of
from hushrec.types import Array

#: Numbers of a block of full rows that is held at a time.
_BLOCK = 1 << 21


class ProjectionMap(NamedTuple):
    """Released: ``V diag(gains) V^T``, which multiplies every row.

    ``directions`` are V, of shape (n_items, rank); gains are thresholded over original singular values.
    """

    directions: Array
    gains: Array


class FullRows:
    """User side of Algorithm 5: every user's row, as coefficients of the last projection.

    ``targets`` are rows less their level. After its gradient step a full row is clipped to norm ``bound``.
    """

    def __init__(self, targets: sp.csr_array, bound: float, steps: _ProjectedGradient.Tuning) -> None:
        self._targets, self._bound, self._steps = targets, bound, steps
        self.coefficients = np.zeros((targets.shape[0], 0))
        self._directions = np.zeros((targets.shape[1], 0))
        self._step = 1

    def gram(self) -> NDArray[np.float64]:
        """Sum the stepped rows' outer products, in fixed point where they are clipped."""
        n_items = self._targets.shape[1]
        gram, step = np.zeros((n_items, n_items)), spacing(self._bound, FACTOR_BITS)
        for _, block in self.stepped():
            fixed = truncated(block, step)
            gram += fixed.T @ fixed  # exact: its terms are integers of that step
        return gram

    def project(self, projection: ProjectionMap) -> None:
        """U Z of the paper."""
        projected = np.empty((len(self.coefficients), len(projection.gains)))
        turn = projection.directions * projection.gains
        for part, full in self.stepped():
            projected[part] = row_products(full, turn)
        self.coefficients, self._directions = projected, projection.directions
        self._step += 1

    def stepped(self) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield full rows Y - eta P_Omega(Y - Y*), clipped, in blocks of users."""
        eta = self._steps.step_size * self._step**-self._steps.step_decay
        rows = self._targets
        n_users, n_items = rows.shape
        size = max(1, _BLOCK // n_items)
        for start in range(0, n_users, size):
            part = slice(start, min(start + size, n_users))
            full = row_products(self.coefficients[part], self._directions.T)
            cells = slice(rows.indptr[part.start], rows.indptr[part.stop])
            users = np.repeat(np.arange(len(full)), np.diff(rows.indptr[part.start : part.stop + 1]))
            full[users, rows.indices[cells]] -= eta * (full[users, rows.indices[cells]] - rows.data[cells])
            ends = np.arange(len(full) + 1) * n_items
            yield part, clipped_rows(ends, full.ravel(), self._bound).reshape(full.shape)


class FullRowUsers(CentredUsers):
    _settings: _ProjectedGradient[FullRowUsers]

    def begin(self, level: Mapping[str, Array]) -> None:
        self.centre(level)
        self._full = self._settings.full_rows(self._centred, self.domain)

    def gram(self) -> Bounded:
        """Packed sum of the outer products of stepped rows."""
        gram, bound = self._full.gram(), self._settings.full_row_bound(self.domain)
        packed, weight = gram[np.tril_indices(len(gram))], frobenius_scale(len(gram))
        return Bounded(packed, positive(bound**2), weight=weight, step=spacing(bound, FACTOR_BITS) ** 2)

    def project(self, projection: ProjectionMap) -> None:
        self._full.project(projection)


@dataclass(frozen=True, kw_only=True)
class _ProjectedGradient(CentredEstimator[PrivateSide]):
    expected: ClassVar[dict[str, Expected]] = CentredEstimator.expected | {
        "projections": Expected("f", ("steps", "items", "rank")),
        "gains": Expected("f", ("steps", "rank")),
    }

    @dataclass(frozen=True, kw_only=True)
    class Tuning(Settings):
        """The steps; ``python -m benchmarks.reproduce_frank_wolfe`` chose them on public data.

        Parameters
        ----------
        step_size, step_decay : float
            Step t is ``step_size * t ** -step_decay``; in (0, 10] and [0, 10].
        """

        step_size: Annotated[float, "(0, 10]"] = 0.5
        step_decay: Annotated[float, "[0, 10]"] = 0.0

    nuclear_norm: Positive
    iterations: Count = 10
    tuning: Tuning = Tuning()

    @classmethod
    def settings_for(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        return cls.of({"n_users": n_users, "nuclear_norm": math.sqrt(n_users * domain.n_items)}, changes)

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: replay the gradient steps between the released projections."""
        targets, offset = self.rows(arrays, history)
        rows = self.full_rows(targets, history.domain)
        for directions, gains in zip(arrays["projections"], arrays["gains"], strict=True):
            rank = np.count_nonzero(gains)
            rows.project(ProjectionMap(directions[:, :rank].astype(np.float64), gains[:rank]))
        factors = np.zeros((history.n_users, arrays["item_factors"].shape[1]))
        factors[:, : rows.coefficients.shape[1]] = rows.coefficients
        return UserState(offset, factors)

    def full_row_bound(self, domain: Domain) -> float:
        """In rating units."""
        return math.inf

    def full_rows(self, targets: sp.csr_array, domain: Domain) -> FullRows:
        return FullRows(targets, self.full_row_bound(domain), self.tuning)

    def _projection(self, gram: Array, domain: Domain) -> ProjectionMap:
        """Soft-threshold the singular values."""
        squares, vectors = np.linalg.eigh(gram)
        squares, vectors = squares[::-1], vectors[:, ::-1]
        singular = np.sqrt(squares[squares > 1e-12 * max(squares[0], 0.0)])
        radius = self.nuclear_norm * domain.half_width
        kept = np.maximum(singular - soft_threshold_for(singular, radius), 0.0)
        rank = np.count_nonzero(kept)
        return ProjectionMap(vectors[:, :rank], kept[:rank] / singular[:rank])


@dataclass(frozen=True, kw_only=True)
class ProjectedGradient(ExactEstimator, _ProjectedGradient[Ratings]):
    """Projected gradient descent without privacy: the reference of :class:`PrivateProjectedGradient`.

    Parameters
    ----------
    nuclear_norm : float
        Bound k on the nuclear norm of the completed matrix, in units of half the rating range, > 0.
    iterations : int
        Steps T, >= 1.
    tuning : ProjectedGradient.Tuning
    max_ratings_per_user, center, bias_clip, bias_share
        As in :class:`~hushrec.papers.frank_wolfe.centering.CentredEstimator`.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> estimator = hushrec.papers.ProjectedGradient(nuclear_norm=20, iterations=5)
    >>> model = estimator.fit(ratings, hushrec.Accountant(hushrec.Budget(float("inf"), 1e-6)))
    >>> len(model.recommend({ratings.domain.items[0]: 5}, n=3))
    3
    """

    name: ClassVar[str] = "projected-gradient"

    iterations: Count = 50

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        arrays, maps = exact_level(ratings, self.center, seed), []
        rows = self.full_rows(self.rows(arrays, ratings)[0], ratings.domain)
        for _ in range(self.iterations):
            maps.append(self._projection(rows.gram(), ratings.domain))
            rows.project(maps[-1])
        model = _model(maps)
        exact = Bounded(model["item_factors"], Bound(math.inf, math.inf))
        return arrays | model | {"item_factors": gate.release("exact model", exact)}


@dataclass(frozen=True, kw_only=True)
class PrivateProjectedGradient(_ProjectedGradient[FullRowUsers]):
    """Private projected gradient descent (Algorithm 5).

    Parameters
    ----------
    nuclear_norm : float
        Bound k on the nuclear norm of the completed matrix, in units of half the rating range, > 0.
    iterations : int
        Steps T, >= 1.
    tuning : PrivateProjectedGradient.Tuning
    row_clip : float or None
        Bound B on the norm of a user's full row, in units of half the rating range, > 0. By default the
        square root of ``max_ratings_per_user``.
    max_ratings_per_user, center, bias_clip, bias_share
        As in :class:`~hushrec.papers.frank_wolfe.centering.CentredEstimator`.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: the projections are (epsilon, delta)-DP, a user's row is
    replayed from them and their own ratings. T Gaussian releases of the sum of the rows' outer products, with
    sensitivity B^2 under add-remove, sqrt(2) B^2 under replace. The clip is enforced on whole rows.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> estimator = hushrec.papers.PrivateProjectedGradient(nuclear_norm=20, iterations=3)
    >>> model = estimator.fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> len(model.recommend({ratings.domain.items[0]: 5}, n=3))
    3
    """

    name: ClassVar[str] = "private-projected-gradient"

    row_clip: Clip | None = None
    center: Released = "user"

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        planned, left = self._level_releases(budget, domain, fraction)
        bound = positive(self.full_row_bound(domain) ** 2)
        rounds = [Round(f"step {step}", 1.0, bound) for step in range(1, self.iterations + 1)]
        return Plan(budget, (*planned, *plan_of(rounds, budget, left).releases))

    def users(self, ratings: Ratings) -> FullRowUsers:
        return FullRowUsers(ratings, self)

    def train(self, users: FullRowUsers, gate: Gate, seed: int) -> dict[str, Any]:
        arrays, maps = self._level(users, gate, seed), []
        users.begin(arrays)
        for step in range(1, self.iterations + 1):
            gram = unpacked(gate.release(f"step {step}", users.gram()))
            maps.append(self._projection(gram, users.domain))
            users.project(maps[-1])
        return arrays | _model(maps)

    def full_row_bound(self, domain: Domain) -> float:
        return self._row_bound(self.row_clip, domain)


def _model(maps: list[ProjectionMap]) -> dict[str, Array]:
    n_items, width = len(maps[-1].directions), max(len(projection.gains) for projection in maps)
    directions, gains = np.zeros((len(maps), n_items, width)), np.zeros((len(maps), width))
    for step, projection in enumerate(maps):
        directions[step, :, : len(projection.gains)] = projection.directions
        gains[step, : len(projection.gains)] = projection.gains
    return {"item_factors": directions[-1], "projections": directions, "gains": gains}
