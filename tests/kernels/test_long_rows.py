"""Rows longer than every unrolled loop, block and part: 257, 1,000 and 10,000 entries, the last all columns.

Each family of kernels against slow sums in float64, row by row; fixed point to the last bit. In the last row
two columns occur hundreds of times: each entry counts separately, and together they exceed a clip.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp

from hushrec.kernels import least_squares, residuals, sparse_rows, symmetric, threads
from hushrec.kernels.packed import unpacked

COLUMNS = 10_000
LENGTHS = (10_000, 0, 1, 3, 4, 8, 9, 257, 1000, 10_000)
CASES = [(1, np.float64), (8, np.float32), (21, np.float64), (33, np.float32)]


def long_rows(rng, columns=COLUMNS, lengths=LENGTHS, again=(600, 3, 500)):
    rows = [np.sort(rng.choice(columns, length, replace=False)) for length in lengths]
    rows += [np.repeat([5, 6, columns - 1], again)] if again else []
    indptr = np.cumsum([0, *map(len, rows)])
    return (
        indptr,
        np.concatenate(rows).astype(np.int32),
        rng.integers(1, 11, indptr[-1]).astype(np.float32) / 2,
    )


def each_row(matrix):
    """Number, columns and values of each row."""
    for row, (start, stop) in enumerate(zip(matrix[0], matrix[0][1:])):
        yield row, matrix[1][start:stop], matrix[2][start:stop].astype(float)


@pytest.mark.parametrize("rank", [1, 8, 21])
def test_least_squares(rank):
    """On integers a sum is exact in any order, and so is a clip before it; solutions in float32."""
    rng = np.random.default_rng(rank)
    matrix, factors = long_rows(rng), rng.normal(size=(COLUMNS, rank))
    offset, by_col, steps, clip = (
        rng.normal(size=COLUMNS),
        rng.uniform(0, 2, COLUMNS),
        (2.0**-12, 2.0**-22),
        0.4,
    )
    given = {"col_offset": offset, "col_weight": by_col, "clip": clip}
    gram, rhs = least_squares.normal_equations(
        *matrix, factors, **given, factor_step=steps[0], rhs_step=steps[1]
    )
    solved, level = least_squares.solve_rows(*matrix, factors.astype(np.float32), 0.5), 0.5 * np.eye(rank)
    root = np.sqrt(by_col)
    table = np.trunc(root[:, None] * factors / steps[0])
    for row, columns, values in each_row(matrix):
        design, whole = factors[columns], table[columns].astype(np.int64)
        ridge = np.linalg.solve(design.T @ design + level, design.T @ values)
        np.testing.assert_allclose(solved[row], ridge, atol=2e5 * np.finfo(np.float32).eps)
        assert (gram[row] / steps[0] ** 2 == (whole.T @ whole)[np.tril_indices(rank)]).all()
        targets = np.clip(values - offset[columns], -clip, clip) * root[columns] / steps[1]
        assert (
            rhs[row] / steps[1] == np.trunc(targets[:, None] * (table[columns] * steps[0])).sum(axis=0)
        ).all()


@pytest.mark.parametrize(("rank", "dtype"), CASES)
@pytest.mark.parametrize("bound", [4.0, np.inf])
def test_residuals(rank, dtype, bound):
    rng = np.random.default_rng(rank)
    matrix, step = long_rows(rng), 2.0**-30
    left = rng.normal(size=(11, rank)).astype(np.float32 if rank in (1, 33) else np.float64) / 4
    right = rng.normal(size=(COLUMNS, rank)).astype(dtype) / 4
    reach, most = rng.uniform(0.5, 2, 11), rng.uniform(0.6, 1, 11)
    terms = {"row_offset": rng.normal(size=11), "col_offset": rng.normal(size=COLUMNS)}
    terms |= {"row_weight": rng.uniform(0.5, 2, 11), "col_weight": rng.uniform(0, 2, COLUMNS)}
    clip = {"row_reach": reach, "row_shrink": most, "bound": bound, "step": step}
    sums, shrink = residuals.added_residuals(*matrix, left, right, **terms, **clip)
    by_row = terms.pop("row_weight")
    norms = residuals.residual_norms(*matrix, left, right, **terms)
    wanted, pairs = np.zeros((COLUMNS, rank)), []
    for row, columns, values in each_row(matrix):
        predicted = right[columns].astype(float) @ left[row].astype(float)
        residual = values - terms["row_offset"][row] - terms["col_offset"][columns] - predicted
        weighted = residual * terms["col_weight"][columns]
        length = np.linalg.norm(weighted)
        assert norms[row] == pytest.approx(length, rel=1e-12, abs=0)
        own = min(most[row], bound / (reach[row] * by_row[row] * length)) if length else most[row]
        assert shrink[row] == pytest.approx(own, rel=1e-12, abs=0)
        np.add.at(wanted, columns, (own * by_row[row] * weighted)[:, None] * left[row].astype(float))
        pairs.append(residuals.predict_pairs(np.full(len(columns), row), columns, left, right) - predicted)
    assert np.abs(np.concatenate(pairs)).max() < 1e-12
    assert (sums % step == 0).all()
    assert set(shrink == most) == ({True} if bound == np.inf else {True, False})
    np.testing.assert_allclose(sums, wanted, rtol=0, atol=1200 * step)  # truncated, 1,100 times in one column
    counts = residuals.added_weights(*matrix[:2], np.trunc(by_row * 2.0**28), COLUMNS)
    exact = np.zeros(COLUMNS)
    np.add.at(exact, matrix[1], np.repeat(np.trunc(by_row * 2.0**28), np.diff(matrix[0])))
    assert (counts == exact).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_summed_and_clipped(dtype):
    rng = np.random.default_rng(1)
    matrix = long_rows(rng)
    values, center = rng.normal(1, 1, matrix[0][-1]).astype(dtype), rng.normal(size=11)
    weights = rng.integers(1, 2**28, COLUMNS) * 2.0**-28  # float32 has no room for them
    sums = sparse_rows.row_sums(matrix[0], values)
    squares = sparse_rows.row_squares(matrix[0], values, center)
    counted = sparse_rows.weight_sums(*matrix[:2], weights)
    clipped = sparse_rows.clipped_rows(matrix[0], values, 7.0)
    for row, columns, own in each_row((matrix[0], matrix[1], values)):
        assert sums[row] == pytest.approx(math.fsum(own), rel=1e-12)
        assert squares[row] == pytest.approx(math.fsum((own - center[row]) ** 2), rel=1e-11)
        assert counted[row] == math.fsum(weights[columns])
        short, scale = clipped[matrix[0][row] : matrix[0][row + 1]], 7.0 / max(7.0, np.linalg.norm(own))
        np.testing.assert_allclose(short, own * scale, rtol=1e-6)
        assert math.fsum(short**2) <= 49.0


def test_gramians_of_long_rows():
    rng = np.random.default_rng(2)
    matrix = long_rows(rng, 1000, (0, 1, 8, 257, 1000, 999), ())
    dense = sp.csr_array((matrix[2], matrix[1], matrix[0]), shape=(6, 1000)).toarray().astype(float)
    for count in (1, 3):
        with threads.limit(count):
            assert (unpacked(symmetric.outer_sums(*matrix, 1000)) == dense.T @ dense).all()
