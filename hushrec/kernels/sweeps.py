"""Half sweeps of alternating least squares: ridge regressions of all rows on the other side's factors.

``rating ~ center + offsets of the row and the column + factors . factors``, offsets being the coefficient of
a constant column (Koren, Bell and Volinsky 2009; Chien et al. 2021, equations 1 and 2). Private ones release
noise between the two parts of a half sweep, :func:`statistics` and :func:`solve_statistics`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushrec.kernels.arrays import BiasedFactors
from hushrec.kernels.least_squares import normal_equations, ridge_solve, solve_rows
from hushrec.types import Array

#: Rows of a Gramian that are weighted at once: a few MB for any number of users.
_ROWS_AT_A_TIME = 1 << 13
#: Memory of the normal equations that are held at a time: 4 MB, which a second-level cache nearly holds.
_BLOCK_BYTES = 1 << 22

#: ``indptr, indices, data`` of a sparse matrix.
CSR = tuple[Array, Array, Array]


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """Ridges of a sweep; ``bias_regularization=None`` leaves out offsets and biases."""

    regularization: float
    bias_regularization: float | None
    unobserved_weight: float = 0.0

    @property
    def constant(self) -> bool:
        return self.bias_regularization is not None

    def ridge(self, rank: int, dtype: Any) -> Array:
        """Diagonal of the ridge, shape (rank,) or (rank + 1,)."""
        tail = [self.bias_regularization] if self.bias_regularization is not None else []
        return np.array([self.regularization] * rank + tail, dtype=dtype)


def csr(matrix: Any) -> CSR:
    return matrix.indptr, matrix.indices, matrix.data


#: Norm of an item's first factors.
START = 0.3


def initial_items(n_items: int, rank: int, seed: int, dtype: Any) -> Array:
    """Random start, shape (n_items, rank + 1): factors of norm about `START`, biases 0."""
    items = np.zeros((n_items, rank + 1), dtype=dtype)
    if rank:
        start = np.random.default_rng(seed).standard_normal((n_items, rank))
        BiasedFactors(items).factors[:] = start * START / np.sqrt(rank)
    return items


def half_sweep(
    matrix: CSR, center: float, other: Array, settings: SweepSettings, growth: Array | float = 1.0
) -> Array:
    """Run one half sweep (equation 1 or 2).

    Parameters
    ----------
    other : ndarray of shape (n_columns, rank + 1)
        Factors of the other side, then its offsets (or biases).
    growth : ndarray of shape (n_rows,), optional
        Multiple of each row's ridge on factors; not with ``unobserved_weight``.

    Returns
    -------
    ndarray of shape (n_rows, rank + 1)
        Factors, then offsets (zero without a constant column).
    """
    rank = BiasedFactors(other).rank
    if settings.unobserved_weight:
        unobserved = settings.unobserved_weight * gramian(BiasedFactors(other).factors)
        return solve_statistics(statistics(matrix, center, other, settings), settings, rank, unobserved)
    factors = other if settings.constant else BiasedFactors(other).factors
    if not factors.shape[1]:
        return np.zeros((len(matrix[0]) - 1, 1), dtype=other.dtype)
    ridge, level = settings.ridge(rank, other.dtype), _col_offset(other, center)
    solved = solve_rows(*matrix, factors, ridge, growth=growth, col_offset=level, constant=settings.constant)
    return with_constant(solved, rank)


def ridge_fit(rows: Any, factors: Array, ridge: float) -> Array:
    """Regress the entries of every row of a CSR matrix on their columns' factors; shape (n_rows, rank)."""
    if not factors.shape[1]:
        return np.zeros((rows.shape[0], 0))
    return solve_rows(*csr(rows), factors.astype(np.float64), ridge)


def statistics(
    matrix: CSR,
    center: float,
    other: Array,
    settings: SweepSettings,
    *,
    row_weight: Array | None = None,
    **terms: Any,
) -> Iterator[tuple[Array, Array]]:
    """Yield the normal equations of a half sweep, block by block.

    ``terms`` are ``col_weight``, ``clip``, ``factor_step`` and ``rhs_step`` of
    `hushrec.kernels.least_squares.normal_equations`.
    """
    factors = with_ones(other) if settings.constant else BiasedFactors(other).factors
    level = _col_offset(other, center)
    n_rows, width = len(matrix[0]) - 1, factors.shape[1]
    rows_per_block = max(1, _BLOCK_BYTES // (factors.dtype.itemsize * max(1, width * (width + 1) // 2)))
    for start in range(0, n_rows, rows_per_block):
        rows = slice(start, min(start + rows_per_block, n_rows))
        first, last = matrix[0][rows.start], matrix[0][rows.stop]
        yield normal_equations(
            matrix[0][rows.start : rows.stop + 1] - first,
            matrix[1][first:last],
            matrix[2][first:last],
            factors,
            col_offset=level,
            row_weight=None if row_weight is None else row_weight[rows],
            **terms,
        )


def solve_statistics(
    blocks: Iterable[tuple[Array, Array]], settings: SweepSettings, rank: int, unobserved: Array | None = None
) -> Array:
    """Solve normal equations from :func:`statistics`.

    ``unobserved``, a packed matrix, is added to every row's: the weighted Gramian of the unobserved cells.
    Returns factors, then offsets (zero without a constant column), shape (n_rows, rank + 1).
    """
    solved = []
    for gram, rhs in blocks:
        ridge = settings.ridge(rank, rhs.dtype)
        solved.append(ridge_solve(gram if unobserved is None else gram + unobserved, rhs, ridge))
    if not solved:
        return np.zeros((0, rank + 1))
    return with_constant(np.concatenate(solved), rank)


def with_constant(solved: Array, rank: int) -> Array:
    missing = rank + 1 - solved.shape[1]
    return np.pad(solved, ((0, 0), (0, missing))) if missing else solved


def with_ones(solved: Array) -> Array:
    copy = solved.copy()
    BiasedFactors(copy).biases[:] = 1
    return copy


def blocks_of_rows(n_rows: int) -> Iterator[slice]:
    return (slice(start, start + _ROWS_AT_A_TIME) for start in range(0, n_rows, _ROWS_AT_A_TIME))


def gramian(factors: Array) -> Array:
    """Packed lower triangle of the sum of outer products, shape (rank (rank + 1) / 2,)."""
    rows, columns = np.tril_indices(factors.shape[1])
    total = np.zeros((factors.shape[1],) * 2, dtype=factors.dtype)
    for block in blocks_of_rows(len(factors)):
        total += factors[block].T @ factors[block]
    return total[rows, columns]


def _col_offset(other: Array, center: float) -> Array:
    return np.ascontiguousarray(BiasedFactors(other).biases + other.dtype.type(center))
