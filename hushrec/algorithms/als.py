"""Alternating least squares without privacy: the reference that private models are judged against.

Explicit ratings: ``rating ~ center + user offset + item bias + user factors . item factors``, all of it
solved by alternating ridge regressions, offsets and biases being the coefficient of a constant column
(Koren, Bell and Volinsky 2009; Chien et al. 2021, equations 1 and 2). Likes: every observed cell is 1 and
every cell, observed or not, is pulled to 0 with ``unobserved_weight`` (Hu, Koren and Volinsky 2008, in the
form of Chien et al. 2021, section 5.2).

The two half sweeps below, :func:`solve_users` and :func:`item_statistics` with :func:`solve_items`, are
also those of DPALS, where the gate stands between the last two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hushrec.algorithms.base import Estimator, Gate, UserState
from hushrec.algorithms.checks import check_numbers
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.privacy import Budget, Gaussian, Plan, Release

#: Rows whose normal equations are in memory at a time.
ROWS_PER_BLOCK = 512

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ALS(Estimator):
    """Matrix factorisation by alternating least squares, with no privacy at all.

    Parameters
    ----------
    rank : int
        Number of factors, >= 0 (0 leaves offsets and biases).
    iterations : int
        Sweeps over users and items, >= 1.
    regularization : float
        Ridge on the factors of a user or an item, > 0.
    bias_regularization : float
        Ridge on user offsets and item biases, > 0.
    unobserved_weight : float
        Weight of every cell's pull towards 0. Above 0 the data are likes: no offsets, no biases, and
        scores are not clipped to the rating range.
    dtype : {"float32", "float64"}
        Arithmetic of the sweeps.
    """

    name: ClassVar[str] = "als"

    rank: int = 32
    iterations: int = 15
    regularization: float = 20.0
    bias_regularization: float = 5.0
    unobserved_weight: float = 0.0
    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_numbers(
            rank=(self.rank, int, 0, None),
            iterations=(self.iterations, int, 1, None),
            regularization=(self.regularization, float, 0, None),
            bias_regularization=(self.bias_regularization, float, 0, None),
            unobserved_weight=(self.unobserved_weight, float, 0, None),
        )
        if self.dtype not in ("float32", "float64"):
            raise InputError(f"dtype={self.dtype!r} is not known; pass 'float32' or 'float64'.")

    @property
    def implicit(self) -> bool:  # type: ignore[override]
        """True where the data are likes."""
        return self.unobserved_weight > 0

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        """One entry that says what it is: the whole model, unprotected."""
        if budget.private:
            raise InputError(
                "als has no privacy: pass epsilon=inf to say that you want none, or train dpals instead."
            )
        exact = Release("exact model", Gaussian(0.0), 1.0, budget.unit, budget.relation)
        return Plan(budget, (exact,))

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Array]:
        """Alternate the two half sweeps from a random start."""
        settings = self._settings()
        center = 0.0 if self.implicit else mean_of_user_means(user_means(ratings), ratings.domain)
        items = initial_items(ratings.domain.n_items, self.rank, seed, self.dtype)
        by_item = ratings.transposed
        for _ in range(self.iterations):
            users = solve_users(ratings, center, items, settings)
            base = gramian(users[:, : self.rank]) * self.unobserved_weight if self.implicit else None
            statistics = item_statistics(by_item, center, users, settings)
            items = solve_items(statistics, base, settings, ratings.domain.n_items)
        released = gate.release("exact model", items)
        return {
            "center": np.float64(center),
            "item_bias": released[:, self.rank].astype(np.float64),
            "item_factors": released[:, : self.rank],
        }

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Ridge regression of a user's own ratings on the item factors (equation 1)."""
        items = np.column_stack([arrays["item_factors"], arrays["item_bias"]]).astype(self.dtype)
        users = solve_users(history, float(arrays["center"]), items, self._settings()).astype(np.float64)
        return UserState(offset=users[:, self.rank], factors=users[:, : self.rank])

    def _settings(self) -> SweepSettings:
        return SweepSettings(
            regularization=self.regularization,
            bias_regularization=None if self.implicit else self.bias_regularization,
            unobserved_weight=self.unobserved_weight,
        )


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """Ridges of a sweep; ``bias_regularization=None`` leaves out offsets and biases."""

    regularization: float
    bias_regularization: float | None
    unobserved_weight: float = 0.0

    @property
    def constant(self) -> bool:
        """True where the other side's factors get a constant column."""
        return self.bias_regularization is not None

    def ridge(self, rank: int, dtype: Any) -> Array:
        """Diagonal of the ridge, shape (rank,) or (rank + 1,)."""
        tail = [self.bias_regularization] if self.bias_regularization is not None else []
        return np.array([self.regularization] * rank + tail, dtype=dtype)


def user_means(ratings: Ratings) -> NDArray[np.float64]:
    """Each user's mean rating, shape (n_users,); a function of her own rows only."""
    matrix = ratings.matrix
    counts = np.maximum(np.diff(matrix.indptr), 1)
    return np.asarray(matrix.sum(axis=1, dtype=np.float64)).ravel() / counts


def mean_of_user_means(means: NDArray[np.float64], domain: Domain) -> float:
    """Level of the ratings with one vote a user, or the middle of the range where nobody votes."""
    return float(domain.midpoint + (means - domain.midpoint).sum() / max(len(means), 1))


def initial_items(n_items: int, rank: int, seed: int, dtype: Any) -> Array:
    """Random start, shape (n_items, rank + 1): factors of norm about 0.3, biases 0."""
    items = np.zeros((n_items, rank + 1), dtype=dtype)
    if rank:
        items[:, :rank] = np.random.default_rng(seed).standard_normal((n_items, rank)) * 0.3 / np.sqrt(rank)
    return items


def solve_users(
    ratings: Ratings, center: float, items: Array, settings: SweepSettings
) -> Array:
    """User half sweep (equation 1): each user's factors and offset from her own ratings.

    Parameters
    ----------
    ratings : Ratings
        The users' rows.
    center : float
        Level subtracted from every rating.
    items : ndarray of shape (n_items, rank + 1)
        Item factors, then item biases.
    settings : SweepSettings
        Ridges.

    Returns
    -------
    ndarray of shape (n_users, rank + 1)
        User factors, then user offsets (zero without a constant column).
    """
    rank = items.shape[1] - 1
    base = gramian(items[:, :rank]) * settings.unobserved_weight if settings.unobserved_weight else None
    matrix = ratings.matrix
    blocks = _statistics(
        (matrix.indptr, matrix.indices, matrix.data),
        side_factors(items, settings),
        items[:, rank] + items.dtype.type(center),
    )
    return solve_items(blocks, base, settings, ratings.n_users)


def item_statistics(
    by_item: tuple[Array, Array, Array],
    center: float,
    users: Array,
    settings: SweepSettings,
    *,
    row_weight: Array | None = None,
    col_weight: Array | None = None,
) -> Iterator[tuple[Array, Array]]:
    """Item half sweep (equation 2), first part: normal equations of every item, block by block.

    Parameters
    ----------
    by_item : tuple of ndarray
        ``indptr, indices, data`` of the items x users matrix.
    center : float
        Level subtracted from every rating.
    users : ndarray of shape (n_users, rank + 1)
        User factors, then user offsets.
    settings : SweepSettings
        Ridges (only whether there is a constant column is used).
    row_weight, col_weight : ndarray, optional
        Weight of a cell is ``row_weight[item] * col_weight[user]``.

    Yields
    ------
    (gram, rhs)
        Packed lower triangles, shape (rows, d (d + 1) / 2), and right-hand sides, shape (rows, d).
    """
    rank = users.shape[1] - 1
    return _statistics(
        by_item,
        side_factors(users, settings),
        users[:, rank] + users.dtype.type(center),
        row_weight,
        col_weight,
    )


def solve_items(
    statistics: Iterator[tuple[Array, Array]], base: Array | None, settings: SweepSettings, n_rows: int
) -> Array:
    """Half sweep, second part: ridge solutions of all rows' normal equations.

    Parameters
    ----------
    statistics : iterator of (gram, rhs)
        As from :func:`item_statistics`.
    base : ndarray of shape (rank (rank + 1) / 2,), optional
        Packed matrix added to every row's, the pull of the unobserved cells.
    settings : SweepSettings
        Ridges.
    n_rows : int
        Rows in all.

    Returns
    -------
    ndarray of shape (n_rows, rank + 1)
        Factors, then offsets or biases.
    """
    from hushrec.kernels.least_squares import ridge_solve

    solved: Array | None = None
    start = 0
    for gram, rhs in statistics:
        if base is not None:
            gram = gram + base.astype(gram.dtype)
        width = rhs.shape[1]
        rank = width - 1 if settings.constant else width
        if solved is None:
            solved = np.zeros((n_rows, rank + 1), dtype=rhs.dtype)
        ridge = settings.ridge(rank, rhs.dtype)
        solved[start : start + len(rhs), :width] = ridge_solve(gram, rhs, ridge)
        start += len(rhs)
    assert solved is not None
    return solved


def side_factors(solved: Array, settings: SweepSettings) -> Array:
    """Factors of one side with the constant column where there is one, contiguous."""
    rank = solved.shape[1] - 1
    if not settings.constant:
        return np.ascontiguousarray(solved[:, :rank])
    factors = solved.copy()
    factors[:, rank] = 1
    return factors


def gramian(factors: Array) -> Array:
    """Packed lower triangle of the sum of outer products, shape (rank (rank + 1) / 2,)."""
    rows, columns = np.tril_indices(factors.shape[1])
    return (factors.T @ factors)[rows, columns]


def _statistics(
    matrix: tuple[Array, Array, Array],
    factors: Array,
    col_offset: Array,
    row_weight: Array | None = None,
    col_weight: Array | None = None,
) -> Iterator[tuple[Array, Array]]:
    from hushrec.kernels.least_squares import normal_equations

    indptr, indices, data = matrix
    n_rows = len(indptr) - 1
    for start in range(0, max(n_rows, 1), ROWS_PER_BLOCK):
        yield normal_equations(
            indptr,
            indices,
            data,
            factors,
            col_offset=np.ascontiguousarray(col_offset, dtype=factors.dtype),
            row_weight=row_weight,
            col_weight=col_weight,
            start=start,
            stop=min(start + ROWS_PER_BLOCK, n_rows),
        )
