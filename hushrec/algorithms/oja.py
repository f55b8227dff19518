"""Top eigenvectors of a covariance from noisy products with it: Oja's algorithm and block power iteration.

Oja: Jain, Thakkar and Thakurta 2018, Algorithm 2, with its constants corrected (docs/errata.md, O1 to O3).
Block power iteration multiplies several orthonormal vectors at once, which costs no more than one under
add-remove, and gets its eigenvalues from the last product for free. Either takes the place of the whole
matrix in Frank-Wolfe, in memory and time linear in items and ratings; :func:`private_pca` uses them alone.
Sensitivities: docs/proofs/oja.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.algorithms.centering import clipped, with_values
from hushrec.algorithms.private_svd import Covariance, symmetric_sensitivity
from hushrec.checks import CLIPS, check_choice, check_numbers, check_within
from hushrec.data.readers import check_sparse
from hushrec.errors import InputError
from hushrec.gate import Gate, LocalGate
from hushrec.kernels.fixed_point import LARGEST_COUNT, spacing, truncated
from hushrec.kernels.packed import top_eigenpairs
from hushrec.privacy import Accountant, Budget, Plan, Release

Array = NDArray[Any]


class Eigenpairs(NamedTuple):
    """What an eigensolver returns, all of it released.

    Attributes
    ----------
    vectors : ndarray of shape (n_items, block)
        Orthonormal, best first; where the solver starts the next time.
    values : ndarray of shape (block,)
        Their noisy eigenvalues.
    noise : float
        Bound on the noise of the largest that holds with the probability asked for.
    """

    vectors: Array
    values: Array
    noise: float


@dataclass(frozen=True)
class CovarianceSolver:
    """Algorithm 1: release the whole matrix, decompose it.

    Without its diagonal if so wanted, where the noise of the single ratings adds up.
    """

    bound: float
    block: int = 1
    diagonal: bool = True

    def releases(self, label: str, budget: Budget, fraction: float) -> tuple[Release, ...]:
        """The matrix."""
        return Covariance(self.bound).releases(label, budget, fraction)

    def solve(self, rows: sp.csr_array, start: Array, gate: Gate, label: str, failure: float) -> Eigenpairs:
        """Top eigenpairs; the noise of their values is the norm of the symmetrised noise matrix."""
        matrix = Covariance(self.bound).matrix(rows, gate, label)
        if not self.diagonal:
            np.fill_diagonal(matrix, 0.0)
        values, vectors = top_eigenpairs(matrix, self.block)
        return Eigenpairs(vectors, values, _norm_of_noise(gate.noise_sd(label), len(matrix), failure))


@dataclass(frozen=True)
class OjaSolver:
    """Algorithm 2: ``steps`` noisy products ``v <- v + eta (A^T A v + g)``, then the eigenvalue ``|A v|^2``.

    ``eta = 1 / (steps * s * sqrt(n))`` as printed, s being the noise of a product. A product with a unit
    vector moves by at most ``bound ** 2`` under both relations, and so does the eigenvalue.
    """

    bound: float
    steps: int
    value_share: float = 0.1

    block = 1

    def releases(self, label: str, budget: Budget, fraction: float) -> tuple[Release, ...]:
        """``steps`` products and one eigenvalue."""
        sensitivity = symmetric_sensitivity(self.bound, "add-remove")
        parts = {f"{label}, product {step}": (1 - self.value_share) / self.steps for step in self._steps}
        parts[f"{label}, eigenvalue"] = self.value_share
        return tuple(
            Release(name, budget.share(fraction * part), sensitivity, budget.unit, budget.relation)
            for name, part in parts.items()
        )

    @property
    def _steps(self) -> range:
        return range(1, self.steps + 1)

    def solve(self, rows: sp.csr_array, start: Array, gate: Gate, label: str, failure: float) -> Eigenpairs:
        """Start from a unit vector that is public or released."""
        from scipy.special import ndtri

        rows, vector = _clipped(rows, self.bound), start[:, 0]
        for number in self._steps:
            name = f"{label}, product {number}"
            product = gate.release(name, _products(rows, vector[:, None], self.bound)[:, 0])
            inverse_eta = self.steps * gate.noise_sd(name) * math.sqrt(len(vector))
            vector = unit(inverse_eta * vector + product)
        name = f"{label}, eigenvalue"
        square = np.array([truncated(np.square(rows @ vector), spacing(self.bound**2)).sum()])
        value = gate.release(name, square)
        return Eigenpairs(vector[:, None], value, gate.noise_sd(name) * float(ndtri(1 - failure)))


@dataclass(frozen=True)
class PowerSolver:
    """Block power iteration: ``steps`` noisy products with ``block`` orthonormal vectors at once.

    The last product gives the Ritz vectors and values, and one more power step, for free.
    """

    bound: float
    steps: int
    block: int

    def releases(self, label: str, budget: Budget, fraction: float) -> tuple[Release, ...]:
        """``steps`` products; the block has the sensitivity of one vector under add-remove."""
        relation = budget.relation if self.block > 1 else "add-remove"
        sensitivity = symmetric_sensitivity(self.bound, relation)
        share = budget.share(fraction / self.steps)
        return tuple(
            Release(f"{label}, product {step}", share, sensitivity, budget.unit, budget.relation)
            for step in range(1, self.steps + 1)
        )

    def solve(self, rows: sp.csr_array, start: Array, gate: Gate, label: str, failure: float) -> Eigenpairs:
        """Start from an orthonormal block that is public or released."""
        rows, basis = _clipped(rows, self.bound), start
        for number in range(1, self.steps + 1):
            name = f"{label}, product {number}"
            product = gate.release(name, _products(rows, basis, self.bound))
            ritz = basis.T @ product
            values, turn = np.linalg.eigh((ritz + ritz.T) / 2)
            basis = orthonormal(product @ turn[:, ::-1])
        return Eigenpairs(basis, values[::-1], _norm_of_noise(gate.noise_sd(name), basis.shape[1], failure))


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
    """Top eigenvectors of ``A^T A`` under differential privacy, without ever forming it.

    Parameters
    ----------
    rows : sparse or dense array of shape (n_rows, n_columns)
        Private; one row for each unit. Entries that are not finite count as zero.
    accountant : Accountant
        All that is left of its budget is spent.
    row_clip : float
        Rows longer than this are scaled down to it, > 0.
    method : {"power", "oja"}
        Block power iteration, or Oja's algorithm, which finds one component.
    components : int
        Number of eigenvectors, from 1 to n_columns.
    steps : int
        Products with the matrix, >= 1.
    seed : int
        Of the start; does not depend on the rows.

    Returns
    -------
    values : ndarray of shape (components,)
        Noisy eigenvalues.
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
        components=(components, int, 1, matrix.shape[1]),
        steps=(steps, int, 1, None),
    )
    check_within(row_clip=(row_clip, *CLIPS))
    check_choice(method=(method, ("power", "oja")))
    if method == "oja" and components > 1:
        raise InputError("method='oja' finds one component; pass method='power' or components=1.")
    solver: Solver = (
        OjaSolver(row_clip, steps) if method == "oja" else PowerSolver(row_clip, steps, components)
    )
    if matrix.shape[0] > LARGEST_COUNT:
        raise InputError(f"Sums are exact for up to {LARGEST_COUNT:,} rows; pass a part of them.")
    plan = Plan(accountant.budget, solver.releases("pca", accountant.budget, part))
    accountant.check(plan)
    start = random_block(matrix.shape[1], components, seed)
    found = solver.solve(matrix, start, LocalGate(accountant, plan), "pca", 0.1)
    return found.values, found.vectors


def _clipped(rows: sp.csr_array, bound: float) -> sp.csr_array:
    """Rows of norm at most ``bound``, less what truncation can add to the difference of two products."""
    return clipped(rows, bound * (1 - math.sqrt(rows.shape[1]) * 2.0**-27))


def _products(rows: sp.csr_array, basis: Array, bound: float) -> NDArray[np.float64]:
    """``A^T A V`` as the exact sum of the users' fixed-point ``a_i (a_i^T V)``, each of norm <= bound^2."""
    counts, ones = np.diff(rows.indptr), np.ones(rows.shape[0])
    columns = []
    for vector in basis.T:
        values = rows.data * np.repeat(rows @ vector, counts)
        columns.append(with_values(rows, truncated(values, spacing(bound**2))).T @ ones)
    return np.column_stack(columns)


def random_block(n_items: int, block: int, seed: int) -> NDArray[np.float64]:
    """Orthonormal start that does not depend on any rating, shape (n_items, block)."""
    return orthonormal(np.random.default_rng(seed).standard_normal((n_items, block)))


def orthonormal(block: Array) -> NDArray[np.float64]:
    """Orthonormal columns with the span of the given ones, first column first."""
    return np.asarray(np.linalg.qr(block)[0])


def unit(vector: Array) -> NDArray[np.float64]:
    """The vector at norm 1; the first axis where it is zero."""
    norm = float(np.linalg.norm(vector))
    return vector / norm if norm > 0 else np.eye(1, len(vector))[0]


def _norm_of_noise(noise_sd: float, order: int, failure: float) -> float:
    """Bound on the top eigenvalue of symmetrised noise: its mean, and Gaussian concentration about it."""
    return noise_sd * (math.sqrt(2.0 * order) + math.sqrt(2.0 * math.log(2.0 / failure)))
