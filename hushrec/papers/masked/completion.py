"""Completion of a low-rank matrix from some of its entries: alternating minimisation and the nuclear norm.

Both take the stored entries of a CSR matrix as observed (also zeros), in float64, plain or masked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import svds

from hushrec.kernels.least_squares import solve_rows
from hushrec.kernels.residuals import predict_pairs, residual_norms
from hushrec.types import Array

_STALLED = 1e-6  # a sweep that lowers the residual by less than this part is the last
_FIRST_RIDGES = np.geomspace(1.0, 1e-4, 12)  # in units of the least of the leading singular values
_PREDICTED = 1e-6  # relative error of held-out entries at which no higher rank is tried
_HELD_OUT = 20  # one observed entry in so many judges a rank
_FIRST_THRESHOLD = 0.8  # of singular values, in units of the largest
_PENALTY_GROWTH = 1.1  # of the constraint's penalty, a step: thresholds fall by as much


class Completion(NamedTuple):
    """A completed matrix ``left @ right.T``, with the sweeps made and the relative misfit.

    ``left`` and ``right`` have shape (n_rows, rank) and (n_columns, rank).
    """

    left: Array
    right: Array
    iterations: int
    residual: float

    @property
    def matrix(self) -> Array:
        return self.left @ self.right.T


def alternating_minimization(
    observed: sp.csr_array, rank: int, *, tolerance: float = 1e-9, iterations: int = 1000
) -> Completion:
    """Alternate least squares between rows and columns, from the leading singular vectors.

    Source: Jain, Netrapalli and Sanghavi 2013, Algorithm 1, without its splitting of the entries. The first
    sweeps have a falling ridge on both factors, a nuclear-norm penalty: without it a large mask over small
    ratings can end far from the truth. Then one side is orthonormal in every half sweep. ``rank`` is from 1
    to min(n_rows, n_columns) - 1.
    """
    transposed = observed.T.tocsr()
    _, values, leading = svds(observed, k=rank, v0=np.ones(min(observed.shape)))
    fraction = observed.nnz / np.prod(observed.shape)
    right = leading.T * np.sqrt(values / fraction)
    for ridge in values.min() * _FIRST_RIDGES:
        left = _half_sweep(observed, right, ridge)
        right = _half_sweep(transposed, left, ridge)
    return _sweeps(observed, transposed, right, tolerance, iterations)


def estimate_rank(observed: sp.csr_array, largest: int) -> int:
    """Return the rank that predicts held-out entries best: one in twenty, and the rank grows from 1.

    The next rank starts from the last fit and the leading singular vector of its residuals.
    """
    held_out = np.zeros(observed.nnz, dtype=bool)
    held_out[_HELD_OUT // 2 :: _HELD_OUT] = True
    rows = _rows(observed)
    kept, test = ~held_out, held_out
    fit_part = sp.csr_array((observed.data[kept], (rows[kept], observed.indices[kept])), shape=observed.shape)
    transposed = fit_part.T.tocsr()
    size = float(np.linalg.norm(observed.data[test]))
    best, least = 1, float("inf")
    residual, right = fit_part, np.zeros((observed.shape[1], 0))
    for rank in range(1, largest + 1):
        _, _, leading = svds(residual, k=1, v0=np.ones(min(observed.shape)))
        fit = _sweeps(fit_part, transposed, np.hstack([right, leading.T]), _PREDICTED / 10, 100)
        right = fit.right
        wrong = _at(fit, rows[test], observed.indices[test]) - observed.data[test]
        error = float(np.linalg.norm(wrong)) / size
        if error < least:
            best, least = rank, error
        if error <= _PREDICTED:
            break
        left_over = fit_part.data - _at(fit, rows[kept], fit_part.indices)
        residual = sp.csr_array((left_over, fit_part.indices, fit_part.indptr), shape=observed.shape)
    return best


def nuclear_norm_minimization(
    observed: sp.csr_array, *, tolerance: float = 1e-8, iterations: int = 1000
) -> Completion:
    """Return the matrix of least nuclear norm that agrees with the observed entries.

    Augmented Lagrangian with singular value thresholding (Lin, Chen and Ma 2010, Algorithm 6). Singular
    values come from the Gramian of the shorter side, and only those above the threshold are computed. A
    minimum of low rank is found; the norm of others is met to about one part in a thousand. It stops when the
    constraint holds to ``tolerance``, relative to the norm of the observed entries.
    """
    if observed.shape[0] > observed.shape[1]:
        flipped = nuclear_norm_minimization(observed.T.tocsr(), tolerance=tolerance, iterations=iterations)
        return flipped._replace(left=flipped.right, right=flipped.left)
    for estimate in nuclear_norm_steps(observed):
        if estimate.residual <= tolerance or estimate.iterations >= iterations:
            break
    return estimate


def nuclear_norm_steps(observed: sp.csr_array) -> Iterator[Completion]:
    """Yield the steps of :func:`nuclear_norm_minimization`, without end, for not more rows than columns.

    Columns of ``left`` are orthogonal, and so are those of ``right``.
    """
    cells = _rows(observed), observed.indices
    size = max(float(np.linalg.norm(observed.data)), np.finfo(float).tiny)
    threshold = float(svds(observed, k=1, v0=np.ones(observed.shape[0]), return_singular_vectors=False)[0])
    threshold *= _FIRST_THRESHOLD
    dual = np.zeros(observed.nnz)  # of "agrees with the observed entries", in units of the threshold
    estimate = np.zeros(observed.shape)
    for step in itertools.count(1):
        estimate[cells] = observed.data + dual
        left, right = _thresholded(estimate, threshold)
        np.matmul(left, right.T, out=estimate)
        misfit = observed.data - estimate[cells]
        yield Completion(left, right, step, float(np.linalg.norm(misfit)) / size)
        threshold /= _PENALTY_GROWTH
        dual = (dual + misfit) / _PENALTY_GROWTH


def _sweeps(
    by_row: sp.csr_array, by_column: sp.csr_array, right: Array, tolerance: float, iterations: int
) -> Completion:
    size = max(float(np.linalg.norm(by_row.data)), np.finfo(float).tiny)
    residual = np.inf
    for sweep in range(1, iterations + 1):  # noqa: B007
        left = np.linalg.qr(_half_sweep(by_row, np.linalg.qr(right)[0]))[0]
        right = _half_sweep(by_column, left)
        misfit = residual_norms(by_row.indptr, by_row.indices, by_row.data, left, right)
        last, residual = residual, float(np.linalg.norm(misfit)) / size
        if residual <= tolerance or last - residual <= _STALLED * residual:
            break
    return Completion(left, right, sweep, residual)


def _half_sweep(matrix: sp.csr_array, factors: Array, ridge: float = 0.0) -> Array:
    return solve_rows(matrix.indptr, matrix.indices, matrix.data, factors, ridge)


def _thresholded(matrix: Array, threshold: float) -> tuple[Array, Array]:
    """Return factors with singular values lowered by the threshold, those below it dropped."""
    values, vectors = scipy.linalg.eigh(
        matrix @ matrix.T, subset_by_value=(threshold**2, np.inf), check_finite=False, overwrite_a=True
    )
    return vectors * (1.0 - threshold / np.sqrt(values)), matrix.T @ vectors


def _rows(matrix: sp.csr_array) -> NDArray[np.integer]:
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def _at(fit: Completion, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> Array:
    return predict_pairs(rows, columns, fit.left, fit.right)
