"""Projected gradient descent on the ball of the nuclear norm, plain and under joint differential privacy.

Jain, Thakkar and Thakurta 2018, Algorithm 5, with its sign, its index and its row clip mended
(docs/errata.md, P1 to P3).

User side (local): a gradient step on her own row, clipped; and, once the server has published it, the
map that projects the step. Server side (global): the right singular vectors and values of all rows, from
the noisy sum of their outer products. Sensitivities: docs/proofs/projected_gradient.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.algorithms.centering import CentredEstimator, exact_release
from hushrec.algorithms.private_svd import symmetric_sensitivity
from hushrec.checks import check_clips, check_numbers, check_within
from hushrec.data import Domain, Ratings
from hushrec.estimator import UserState
from hushrec.gate import Gate
from hushrec.kernels.fixed_point import FACTOR_BITS, spacing, truncated
from hushrec.kernels.packed import frobenius_scale, unpacked
from hushrec.privacy import Budget, Plan, Release

Array = NDArray[Any]

#: Numbers of a block of full rows that is held at a time.
_BLOCK = 1 << 21


class ProjectionMap(NamedTuple):
    """Global, released: what multiplies every row, ``V diag(gain) V^T``; padded with zero columns.

    Attributes
    ----------
    directions : ndarray of shape (n_items, rank)
    gains : ndarray of shape (rank,)
        Thresholded over original singular value.
    """

    directions: Array
    gains: Array


@dataclass(frozen=True, kw_only=True)
class _ProjectedGradient(CentredEstimator):
    """What the plain and the private algorithm share: the steps, local and global, without the gate."""

    nuclear_norm: float
    iterations: int = 10
    step_size: float = 0.5
    step_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(
            nuclear_norm=(self.nuclear_norm, float, 0, None),
            iterations=(self.iterations, int, 1, None),
            step_size=(self.step_size, float, 0, 10),
        )
        check_within(step_decay=(self.step_decay, 0, 10))

    @classmethod
    def planned(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        """A nuclear norm in proportion to the size of the matrix, the rest as given."""
        check_numbers(n_users=(n_users, int, 1, None))
        return cls(**({"nuclear_norm": math.sqrt(n_users * domain.n_items)} | changes))

    def _full_row_bound(self, domain: Domain) -> float:
        """B in rating units."""
        return math.inf

    def _released_gram(self, gate: Gate, step: int, gram: Array) -> NDArray[np.float64]:
        """The sum of the rows' outer products as the server gets to see it."""
        return gram

    def _descend(self, ratings: Ratings, gate: Gate, arrays: dict[str, Any]) -> dict[str, Any]:
        """T times: gradient step of every row, its Gramian to the server, the server's projection."""
        rows, bound = self._rows(arrays, ratings).matrix, self._full_row_bound(ratings.domain)
        n_users, n_items = rows.shape
        radius = self.nuclear_norm * ratings.domain.half_width
        coefficients, last = np.zeros((n_users, 0)), ProjectionMap(np.zeros((n_items, 0)), np.zeros(0))
        maps = []
        for step in range(1, self.iterations + 1):
            gram = np.zeros((n_items, n_items))
            for _, block in self._stepped(rows, coefficients, last, step, bound):
                fixed = truncated(block, spacing(bound, FACTOR_BITS))
                gram += fixed.T @ fixed  # exact: its terms are integers of that step
            projection = _projection(self._released_gram(gate, step, gram), radius)
            coefficients = self._projected(rows, coefficients, last, projection, step, bound)
            maps.append(projection)
            last = projection
        width = max(len(each.gains) for each in maps)
        return arrays | {
            "item_factors": last.directions,
            "directions": np.stack([_padded(each.directions, width) for each in maps]),
            "gains": np.stack([_padded(each.gains[None], width)[0] for each in maps]),
        }

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: replay the user's own gradient steps between the released projections."""
        rows, offset = self._rows(arrays, history)
        bound = self._full_row_bound(history.domain)
        coefficients = np.zeros((history.n_users, 0))
        last = ProjectionMap(np.zeros((history.n_items, 0)), np.zeros(0))
        for step, (directions, gains) in enumerate(zip(arrays["directions"], arrays["gains"]), 1):
            rank = np.count_nonzero(gains)
            projection = ProjectionMap(directions[:, :rank].astype(np.float64), gains[:rank])
            coefficients = self._projected(rows, coefficients, last, projection, step, bound)
            last = projection
        return UserState(offset, coefficients)

    def _stepped(
        self, rows: sp.csr_array, coefficients: Array, last: ProjectionMap, step: int, bound: float
    ) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Local: full rows Y - eta P_Omega(Y - Y*), clipped to norm ``bound``, some users at a time."""
        from hushrec.kernels.residuals import row_products
        from hushrec.kernels.sparse_rows import clipped_rows

        eta = self.step_size * step**-self.step_decay
        n_users, n_items = rows.shape
        size = max(1, _BLOCK // n_items)
        for start in range(0, n_users, size):
            part = slice(start, min(start + size, n_users))
            full = row_products(coefficients[part], last.directions.T)
            cells = slice(rows.indptr[part.start], rows.indptr[part.stop])
            users = np.repeat(np.arange(len(full)), np.diff(rows.indptr[part.start : part.stop + 1]))
            full[users, rows.indices[cells]] -= eta * (full[users, rows.indices[cells]] - rows.data[cells])
            ends = np.arange(len(full) + 1) * n_items
            yield part, clipped_rows(ends, full.ravel(), bound).reshape(full.shape)

    def _projected(
        self,
        rows: sp.csr_array,
        coefficients: Array,
        last: ProjectionMap,
        projection: ProjectionMap,
        step: int,
        bound: float,
    ) -> NDArray[np.float64]:
        """Local: coefficients of the projected rows, U Z of the paper."""
        from hushrec.kernels.residuals import row_products

        projected = np.empty((rows.shape[0], len(projection.gains)))
        turn = projection.directions * projection.gains
        for part, full in self._stepped(rows, coefficients, last, step, bound):
            projected[part] = row_products(full, turn)
        return projected


@dataclass(frozen=True, kw_only=True)
class ProjectedGradient(_ProjectedGradient):
    """Projected gradient descent without privacy: the reference of :class:`PrivateProjectedGradient`.

    Parameters
    ----------
    nuclear_norm : float
        Bound k on the nuclear norm of the completed matrix, in units of half the rating range, > 0.
    iterations : int
        Steps T, >= 1.
    step_size, step_decay : float
        Step t is ``step_size * t ** -step_decay`` (up to 10, and from 0).
    max_ratings_per_user, center, bias_clip, bias_share
        As in :class:`~hushrec.algorithms.centering.CentredEstimator`.
    """

    name: ClassVar[str] = "projected-gradient"
    uses_user_count: ClassVar[bool] = True

    iterations: int = 50
    max_ratings_per_user: int = 10_000
    center: str = "averages"

    _CENTERS: ClassVar[tuple[str, ...]] = ("user", "averages", "middle")

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        """One entry that says what it is: the whole model, unprotected."""
        return Plan(budget, (exact_release(self.name, budget),))

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        arrays = self._descend(ratings, gate, self._level(ratings, gate, seed))
        return arrays | {"item_factors": gate.release("exact model", arrays["item_factors"])}


@dataclass(frozen=True, kw_only=True)
class PrivateProjectedGradient(_ProjectedGradient):
    """Private projected gradient descent (Algorithm 5), every full row clipped before its outer product.

    Parameters
    ----------
    nuclear_norm : float
        Bound k on the nuclear norm of the completed matrix, in units of half the rating range, > 0.
    iterations : int
        Steps T, >= 1.
    step_size, step_decay : float
        Step t is ``step_size * t ** -step_decay`` (up to 10, and from 0).
    row_clip : float or None
        Bound B on the norm of a user's full row, in units of half the rating range, > 0. None is the square
        root of ``max_ratings_per_user``.
    max_ratings_per_user, center, bias_clip, bias_share
        As in :class:`~hushrec.algorithms.centering.CentredEstimator`.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: the projections are (epsilon, delta)-DP, a user's row is
    replayed from them and her own ratings. T Gaussian releases of the sum of the rows' outer products:
    sensitivity B^2 under add-remove, sqrt(2) B^2 under replace. The clip is enforced on whole rows; the paper
    assumes a bound that its rows can exceed.
    """

    name: ClassVar[str] = "private-projected-gradient"
    uses_user_count: ClassVar[bool] = True

    row_clip: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clips(row_clip=self.row_clip)

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        planned, left = self._level_releases(budget, domain, fraction)
        sensitivity = symmetric_sensitivity(self._full_row_bound(domain), budget.relation)
        share = budget.share(left / self.iterations)
        for step in range(1, self.iterations + 1):
            planned += (Release(f"step {step}", share, sensitivity, budget.unit, budget.relation),)
        return Plan(budget, planned)

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        return self._descend(ratings, gate, self._level(ratings, gate, seed))

    def _full_row_bound(self, domain: Domain) -> float:
        return self._row_bound(self.row_clip, domain)

    def _released_gram(self, gate: Gate, step: int, gram: Array) -> NDArray[np.float64]:
        packed = gram[np.tril_indices(len(gram))]
        return unpacked(gate.release(f"step {step}", packed, scale=frobenius_scale(len(gram))))


def _projection(gram: Array, radius: float) -> ProjectionMap:
    """Global: soft threshold of the singular values whose squares are ``gram``'s positive eigenvalues."""
    from hushrec.kernels.one_bit import soft_threshold_for

    squares, vectors = np.linalg.eigh(gram)
    squares, vectors = squares[::-1], vectors[:, ::-1]
    singular = np.sqrt(squares[squares > 1e-12 * max(squares[0], 0.0)])
    kept = np.maximum(singular - soft_threshold_for(singular, radius), 0.0)
    rank = np.count_nonzero(kept)
    return ProjectionMap(vectors[:, :rank], kept[:rank] / singular[:rank])


def _padded(columns: Array, width: int) -> Array:
    return np.pad(columns, ((0, 0), (0, width - columns.shape[1])))
