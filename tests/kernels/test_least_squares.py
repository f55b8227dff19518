"""Least squares against dense float64 NumPy, one row at a time."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from hushrec.kernels import least_squares, threads
from hushrec.kernels.loops import in_numpy
from tests.kernels.random_csr import random_csr


def triangle(rank):
    return np.tril_indices(rank)


def unpack(gram, rank):
    full = np.zeros((len(gram), rank, rank))
    full[:, *triangle(rank)] = gram
    return full + np.tril(full, -1).transpose(0, 2, 1)


def slow_normal_equations(matrix, factors, col_offset, row_weight, col_weight):
    """The sums as written, entry by entry, in float64."""
    indptr, indices, values = matrix
    n_rows, rank = len(indptr) - 1, factors.shape[1]
    gram, rhs = np.zeros((n_rows, rank, rank)), np.zeros((n_rows, rank))
    for i in range(n_rows):
        for entry in range(indptr[i], indptr[i + 1]):
            j = indices[entry]
            factor = factors[j].astype(np.float64)
            weight = row_weight[i] * col_weight[j]
            gram[i] += weight * np.outer(factor, factor)
            rhs[i] += weight * (float(values[entry]) - col_offset[j]) * factor
    return gram, rhs


def problem(seed, rank, dtype, n_rows=23, n_cols=37, density=0.4):
    random = np.random.default_rng(seed)
    matrix = random_csr(random, n_rows, n_cols, density)
    factors = random.normal(size=(n_cols, rank)).astype(dtype)
    extras = {
        "col_offset": random.normal(size=n_cols),
        "row_weight": random.uniform(0, 2, n_rows),
        "col_weight": random.uniform(0, 2, n_cols),
    }
    return matrix, factors, extras


def close(actual, expected, dtype, slack=1.0):
    epsilon = np.finfo(dtype).eps
    scale = max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=200 * epsilon * scale * slack)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 70), st.sampled_from([np.float32, np.float64]))
@example(1, 8, np.float64)
@example(2, 17, np.float32)
@example(3, 65, np.float32)
def test_normal_equations_and_their_solutions_equal_the_slow_ones(seed, rank, dtype):
    matrix, factors, extras = problem(seed, rank, dtype)
    gram, rhs = least_squares.normal_equations(*matrix, factors, **extras)
    slow_gram, slow_rhs = slow_normal_equations(matrix, factors, **extras)
    assert gram.dtype == rhs.dtype == dtype
    close(gram, slow_gram[:, *triangle(rank)], dtype)
    close(rhs, slow_rhs, dtype)
    ridge = np.random.default_rng(seed).uniform(0.5, 1.5, rank)
    solution = least_squares.ridge_solve(gram, rhs, ridge)
    full = unpack(gram, rank) + np.diag(ridge)
    assert solution.dtype == dtype
    together = least_squares.solve_rows(*matrix, factors, 0.1, col_offset=extras["col_offset"])
    plain = least_squares.normal_equations(*matrix, factors, col_offset=extras["col_offset"])
    assert together.tobytes() == least_squares.ridge_solve(*plain, 0.1).tobytes()
    close(solution, np.linalg.solve(full, rhs.astype(np.float64)[..., None])[..., 0], dtype, slack=50)
    empty = np.diff(matrix[0]) == 0
    assert empty.any() and not gram[empty].any() and not rhs[empty].any() and not solution[empty].any()


@pytest.mark.parametrize("constant", [False, True])
def test_a_ridge_grows_by_row_except_of_a_constant_column(constant: bool):
    """A row is solved as if the others were not there, bit for bit."""
    matrix, factors, _ = problem(4, 19, np.float32, n_rows=101)
    random = np.random.default_rng(0)
    ridge, growth = random.uniform(0.1, 2.0, 19).astype("f"), random.uniform(0.5, 8.0, 101).astype("f")
    solution = least_squares.solve_rows(*matrix, factors, ridge, growth=growth, constant=constant)
    for row in range(101):
        grown = ridge * np.append(np.repeat(growth[row], 18), 1 if constant else growth[row]).astype("f")
        one = matrix[0][row : row + 2], *matrix[1:], factors
        alone = least_squares.solve_rows(*one, grown, constant=constant)
        assert solution[row].tobytes() == alone.tobytes()


def test_threads_and_neighbours_do_not_change_a_bit(monkeypatch):
    monkeypatch.setattr(threads, "SMALLEST_RANGE", 1.0)
    matrix, factors, extras = problem(3, 19, np.float32, n_rows=201)
    results = set()
    for n_threads in (1, 2, 5):
        with threads.limit(n_threads):
            gram, rhs = least_squares.normal_equations(*matrix, factors, **extras)
            solution = least_squares.ridge_solve(gram, rhs, 0.3)
            rows = [(gram[i : i + 1], rhs[i : i + 1]) for i in range(len(gram))]
            alone = [least_squares.ridge_solve(*row, 0.3) for row in rows]
            assert np.concatenate(alone).tobytes() == solution.tobytes()
            results.add(gram.tobytes() + rhs.tobytes() + solution.tobytes())
    assert len(results) == 1


@pytest.mark.parametrize("kernels", [nullcontext, in_numpy])
def test_of_columns_that_are_multiples_the_first_has_all(kernels):
    """Rounding can leave the other a pivot that is not zero; dividing by it would give any number."""
    for seed in range(50):
        columns = np.random.default_rng(seed).normal(size=(40, 2)) @ [[1.0, -0.5, 0], [0, 0, 1]]
        gram, rhs = columns.T @ columns, columns.T @ (columns[:, 0] * 2 - columns[:, 2])
        with kernels():
            found = least_squares.ridge_solve(gram[None, *np.tril_indices(3)], rhs[None], 0.0)[0]
        np.testing.assert_allclose(found, [2, 0, -1], atol=1e-9)


def test_arrays_that_do_not_fit_are_refused():
    fit = {"indptr": np.array([0, 2]), "indices": np.array([0, 8], np.int32)}
    fit |= {"values": np.ones(2, np.float32), "factors": np.ones((9, 2))}
    least_squares.normal_equations(**fit)
    wrong = [("indptr", np.array(starts)) for starts in ([0, 3], [2, 0], [-1, 2], [0, 2, 1])]
    wrong += [("indices", np.array(places, np.int32)) for places in ([0, 9], [0, -1], [0])]
    wrong += [("values", np.ones(3, np.float32)), ("factors", np.ones((9, 2), np.int64))]
    wrong += [(f"{name}_weight", np.ones((size, size))) for name, size in (("row", 2), ("col", 9))]
    wrong += [("col_offset", np.ones(2)), ("row_weight", np.ones(2))]
    for name, array in wrong:
        with pytest.raises(ValueError):
            least_squares.normal_equations(**{**fit, name: array})


@pytest.mark.parametrize(
    "steps", [{"factor_step": 0.5}, {"rhs_step": 0.25}, {"factor_step": 0.5, "rhs_step": 0.25}]
)
def test_exact_sums_need_float64_and_weights_that_are_powers_of_two(steps):
    """Others would be rounded, and a user would move a sum by more than they contributed."""
    matrix, factors, extras = problem(6, 5, np.float64)
    rows = len(matrix[0]) - 1
    with pytest.raises(ValueError, match="^exact sums need float64 factors, not float32"):
        least_squares.normal_equations(*matrix, factors.astype(np.float32), **steps)
    for wrong in (3.0, 0.0, np.nan):
        weights = np.append(np.ones(rows - 1), wrong)
        with pytest.raises(ValueError, match="^exact sums need powers of two as row_weight"):
            least_squares.normal_equations(*matrix, factors, row_weight=weights, **steps)
        least_squares.normal_equations(*matrix, factors, row_weight=weights)
    weights = 2.0 ** np.arange(-3, rows - 3)
    given = {**steps, "col_offset": extras["col_offset"]}
    plain = least_squares.normal_equations(*matrix, factors, **given)
    found = least_squares.normal_equations(*matrix, factors, row_weight=weights, **given)
    for one, other in zip(plain, found):
        assert (other == one * weights[:, None]).all()
    whole = ("factor_step" in steps, "rhs_step" in steps)
    assert ((plain[0] % 0.25 == 0).all(), (plain[1] % 0.25 == 0).all()) == whole


def test_a_constant_stands_for_the_last_column():
    matrix, factors, extras = problem(10, 7, np.float64)
    ones, offset = np.column_stack([factors[:, :-1], np.ones(len(factors))]), extras["col_offset"]
    wanted = least_squares.solve_rows(*matrix, ones, 0.3, col_offset=offset)
    before = factors.copy()
    found = least_squares.solve_rows(*matrix, factors, 0.3, col_offset=offset, constant=True)
    assert found.tobytes() == wanted.tobytes() and (factors == before).all()
