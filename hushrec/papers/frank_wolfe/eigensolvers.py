"""Top eigenvectors of a covariance from noisy products with it: Oja's algorithm and block power iteration.

Oja: Jain, Thakkar and Thakurta 2018, Algorithm 2, with its constants corrected (docs/papers/errata.md, O1 to
O3). Block power iteration multiplies several orthonormal vectors at once, which under add-remove costs no
more than one. Memory and time are linear in items and ratings. Sensitivities: docs/proofs/oja.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import ndtri

from hushrec.checks import CLIPS, check_choice, check_numbers
from hushrec.data.sparse import check_sparse
from hushrec.errors import InputError
from hushrec.kernels.fixed_point import spacing, truncated
from hushrec.kernels.packed import top_eigenpairs, unpacked
from hushrec.kernels.sparse_rows import clipped_rows, with_values
from hushrec.privacy import Accountant, Bound, Bounded, Budget, Plan, counted, positive
from hushrec.training.gate import Gate, LocalGate
from hushrec.training.trainable import Round, plan_of
from hushrec.training.users import outer_product_sum
from hushrec.types import Array

#: Probability that the bound on the noise of an eigenvalue fails. No study chose it.
_FAILURE = 0.1


class RowUsers:
    """Users with one private row each, clipped wherever it is contributed."""

    def __init__(self, rows: sp.csr_array) -> None:
        self._contributed = rows

    def covariance(self, bound: float) -> Bounded:
        """Packed sum of the outer products of clipped rows."""
        return outer_product_sum(clipped(self._contributed, bound), bound)

    def clip(self, bound: float) -> None:
        """Clip rows to norm ``bound``, less what truncation adds to the difference of two."""
        shorter = bound * (1 - math.sqrt(self._contributed.shape[1]) * 2.0**-27)
        self._clipped, self._bound = clipped(self._contributed, shorter), bound

    def product(self, basis: Array) -> Bounded:
        """``A^T A V`` as the exact sum of ``a_i (a_i^T V)``, each of norm at most that bound squared.

        ``V`` is orthonormal, and public or released.
        """
        rows, step = self._clipped, spacing(self._bound**2)
        counts, ones = np.diff(rows.indptr), np.ones(rows.shape[0])
        columns = []
        for vector in basis.T:
            values = rows.data * np.repeat(rows @ vector, counts)
            columns.append(with_values(rows, truncated(values, step)).T @ ones)
        return Bounded(np.column_stack(columns), product_bound(self._bound, basis.shape[1]), step=step)

    def square(self, vector: Array) -> Bounded:
        """``|A v|^2`` for a unit vector, shape (1,): each user adds at most that bound squared."""
        most = self._bound**2
        step = spacing(most)
        total = truncated(np.square(self._clipped @ vector), step).sum()
        return Bounded(np.array([total]), counted(most), step=step)


def clipped(rows: sp.csr_array, bound: float) -> sp.csr_array:
    return with_values(rows, clipped_rows(rows.indptr, rows.data, bound))


def product_bound(bound: float, block: int) -> Bound:
    """Bound ``a (a^T V)``: of one vector, replaced rows move it no more than added ones."""
    return positive(bound**2) if block > 1 else counted(bound**2)


class Eigenpairs(NamedTuple):
    """The released result of an eigensolver.

    Attributes
    ----------
    vectors : ndarray of shape (n_items, block)
        Orthonormal, best first.
    values : ndarray of shape (block,)
    noise : float
        Bound on the noise of the largest value; it fails with probability 0.1.
    """

    vectors: Array
    values: Array
    noise: float


@dataclass(frozen=True)
class CovarianceSolver:
    """Algorithm 1: release the whole matrix."""

    bound: float

    block = 1

    def releases(self, label: str, budget: Budget, fraction: float) -> Plan:
        return plan_of([Round(label, 1.0, positive(self.bound**2))], budget, fraction)

    def solve(self, users: RowUsers, start: Array, gate: Gate, label: str) -> Eigenpairs:
        matrix = unpacked(gate.release(label, users.covariance(self.bound)))
        values, vectors = top_eigenpairs(matrix, self.block)
        return Eigenpairs(vectors, values, _norm_of_noise(gate.noise_sd(label), len(matrix)))


@dataclass(frozen=True)
class OjaSolver:
    """Algorithm 2: ``steps`` noisy products ``v <- v + eta (A^T A v + g)``, then the eigenvalue ``|A v|^2``.

    ``eta = 1 / (steps * s * sqrt(n))`` as printed, s being the noise of a product.
    """

    bound: float
    steps: int
    value_share: float = 0.1

    block = 1

    def releases(self, label: str, budget: Budget, fraction: float) -> Plan:
        share = (1 - self.value_share) / self.steps
        rounds = [Round(name, share, product_bound(self.bound, 1)) for name in _products(label, self.steps)]
        rounds.append(Round(f"{label}, eigenvalue", self.value_share, counted(self.bound**2)))
        return plan_of(rounds, budget, fraction, 1.0)

    def solve(self, users: RowUsers, start: Array, gate: Gate, label: str) -> Eigenpairs:
        users.clip(self.bound)
        vector = start[:, 0]
        for name in _products(label, self.steps):
            product = gate.release(name, users.product(vector[:, None]))[:, 0]
            inverse_eta = self.steps * gate.noise_sd(name) * math.sqrt(len(vector))
            vector = unit(inverse_eta * vector + product)
        name = f"{label}, eigenvalue"
        value = gate.release(name, users.square(vector))
        return Eigenpairs(vector[:, None], value, gate.noise_sd(name) * float(ndtri(1 - _FAILURE)))


@dataclass(frozen=True)
class PowerSolver:
    """Block power iteration: ``steps`` noisy products with ``block`` orthonormal vectors at once.

    The last product gives Ritz vectors and values without privacy cost.
    """

    bound: float
    steps: int
    block: int

    def releases(self, label: str, budget: Budget, fraction: float) -> Plan:
        bound = product_bound(self.bound, self.block)
        rounds = [Round(name, 1.0, bound) for name in _products(label, self.steps)]
        return plan_of(rounds, budget, fraction)

    def solve(self, users: RowUsers, start: Array, gate: Gate, label: str) -> Eigenpairs:
        users.clip(self.bound)
        basis = start
        for name in _products(label, self.steps):
            product = gate.release(name, users.product(basis))
            ritz = basis.T @ product
            values, turn = np.linalg.eigh((ritz + ritz.T) / 2)
            basis = orthonormal(product @ turn[:, ::-1])
        return Eigenpairs(basis, values[::-1], _norm_of_noise(gate.noise_sd(name), basis.shape[1]))


Solver = CovarianceSolver | OjaSolver | PowerSolver


def private_pca(
    rows: sp.sparray | Array,
    accountant: Accountant,
    *,
    row_clip: float,
    method: str = "power",
    components: int = 1,
    steps: int = 4,
    seed: int = 0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return top eigenvectors of ``A^T A`` under differential privacy, without forming it.

    Parameters
    ----------
    rows : sparse or dense array of shape (n_rows, n_columns)
        Private; one row for each unit, at most 33,554,432, which is assumed to be public. Entries that are
        not finite count as zero.
    accountant : Accountant
        All that is left of its budget is spent.
    row_clip : float
        Longer rows are scaled down to this norm, > 0.
    method : {"power", "oja"}
        Block power iteration, or Oja's algorithm, which finds one component.
    components : int
        From 1 to n_columns.
    steps : int
        Products with the matrix, >= 1.
    seed : int
        Seed of the start.

    Returns
    -------
    values : ndarray of shape (components,)
    vectors : ndarray of shape (n_columns, components)
        Orthonormal, best first.

    Privacy
    -------
    Unit: the budget's, one row each. ``steps`` Gaussian releases of products, sensitivity ``row_clip ** 2``
    (times sqrt(2) for a block under replace), and with Oja one of the eigenvalue, ``row_clip ** 2``.
    """
    part = accountant.part()
    if sp.issparse(rows):
        check_sparse(rows)
    matrix = sp.csr_array(rows, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.data[~np.isfinite(matrix.data)] = 0.0
    check_numbers(
        components=(components, int, f"[1, {matrix.shape[1]}]"),
        steps=(steps, int, "[1, inf)"),
        row_clip=(row_clip, float, CLIPS),
    )
    check_choice(method=(method, ("power", "oja")))
    if method == "oja" and components > 1:
        raise InputError("method='oja' finds one component; pass method='power' or components=1.")
    solver: Solver = (
        OjaSolver(row_clip, steps) if method == "oja" else PowerSolver(row_clip, steps, components)
    )
    plan = solver.releases("pca", accountant.budget, part)
    accountant.check(plan)
    start = random_block(matrix.shape[1], components, seed)
    pairs = solver.solve(RowUsers(matrix), start, LocalGate(accountant, plan), "pca")
    return pairs.values, pairs.vectors


def random_block(n_items: int, block: int, seed: int) -> NDArray[np.float64]:
    return orthonormal(np.random.default_rng(seed).standard_normal((n_items, block)))


def orthonormal(block: Array) -> NDArray[np.float64]:
    return np.asarray(np.linalg.qr(block)[0])


def unit(vector: Array) -> NDArray[np.float64]:
    """Scale to norm 1; the first axis where the vector is zero."""
    norm = float(np.linalg.norm(vector))
    return vector / norm if norm > 0 else np.eye(1, len(vector))[0]


def _products(label: str, steps: int) -> list[str]:
    return [f"{label}, product {step}" for step in range(1, steps + 1)]


def _norm_of_noise(noise_sd: float, order: int) -> float:
    """Bound the top eigenvalue of symmetrised noise, by Gaussian concentration."""
    return noise_sd * (math.sqrt(2.0 * order) + math.sqrt(2.0 * math.log(2.0 / _FAILURE)))
