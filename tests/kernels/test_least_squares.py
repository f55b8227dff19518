"""Least squares against dense float64 NumPy, one row at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from hushrec.kernels import least_squares, threads
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
    close(solution, np.linalg.solve(full, rhs.astype(np.float64)[..., None])[..., 0], dtype, slack=50)
    empty = np.diff(matrix[0]) == 0
    assert empty.any() and not gram[empty].any() and not rhs[empty].any() and not solution[empty].any()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rank=st.integers(1, 70),
    n_rows=st.integers(0, 40),
    dtype=st.sampled_from([np.float32, np.float64]),
    n_threads=st.integers(1, 3),
)
def test_solve_rows_is_the_two_steps_bit_for_bit(seed, rank, n_rows, dtype, n_threads):
    matrix, factors, extras = problem(seed, rank, dtype, n_rows=n_rows)
    gram, rhs = least_squares.normal_equations(*matrix, factors, col_offset=extras["col_offset"])
    apart = least_squares.ridge_solve(gram, rhs, 0.1)
    with threads.limit(n_threads):
        together = least_squares.solve_rows(*matrix, factors, 0.1, col_offset=extras["col_offset"])
    assert together.tobytes() == apart.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_several_kinds_have_their_own_ridges(dtype):
    """As if those of each kind were solved without the others, bit for bit."""
    matrix, factors, _ = problem(4, 19, dtype, n_rows=101)
    random = np.random.default_rng(0)
    kinds, ridges = random.integers(0, 256, 101), random.uniform(0.1, 2.0, (256, 19))
    kinds[:2] = 0, 255
    solution = least_squares.solve_rows(*matrix, factors, ridges, kinds=kinds)
    for row, kind in enumerate(kinds):
        alone = least_squares.solve_rows(matrix[0][row : row + 2], *matrix[1:], factors, ridges[kind])
        assert solution[row].tobytes() == alone.tobytes()


def test_kinds_that_do_not_fit_are_refused():
    matrix, factors, _ = problem(4, 4, np.float64, n_rows=3)
    shapes = [(2, 4), (2, 4), (2, 4), (2, 5), (257, 4)]
    for shape, kinds in zip(shapes, ([0, 1], [0, 1, 2], [0, 1, -1], [0, 1, 0], [0, 1, 256])):
        with pytest.raises(ValueError):
            least_squares.solve_rows(*matrix, factors, np.ones(shape), kinds=np.array(kinds))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_and_neighbours_do_not_change_a_bit(dtype, monkeypatch):
    monkeypatch.setattr(threads, "SMALLEST_RANGE", 1.0)
    matrix, factors, extras = problem(3, 19, dtype, n_rows=201)
    results = []
    for n_threads in (1, 2, 5):
        with threads.limit(n_threads):
            gram, rhs = least_squares.normal_equations(*matrix, factors, **extras)
            solution = least_squares.ridge_solve(gram, rhs, 0.3)
            alone = np.concatenate(
                [least_squares.ridge_solve(gram[i : i + 1], rhs[i : i + 1], 0.3) for i in range(len(gram))]
            )
            results += [gram.tobytes() + rhs.tobytes() + solution.tobytes(), gram.tobytes() + rhs.tobytes()]
            results[-1] += alone.tobytes()
    assert len(set(results)) == 1


def test_singular_rows_without_ridge_solve_to_something_finite():
    random = np.random.default_rng(6)
    matrix = random_csr(random, 30, 40, 0.1)  # fewer entries than factors
    factors = random.normal(size=(40, 21))
    solution = least_squares.solve_rows(*matrix, factors, 0.0)
    assert np.isfinite(solution).all()


def test_arrays_that_do_not_fit_are_refused():
    arguments = {
        "indptr": np.array([0, 2]),
        "indices": np.array([0, 8], np.int32),
        "values": np.ones(2, np.float32),
        "factors": np.ones((9, 2)),
    }
    least_squares.normal_equations(**arguments)
    starts = [np.array(wrong, int) for wrong in ([0, 3], [2, 0], [-1, 2], [0, 2, 1], [])]
    places = [np.array(wrong, np.int32) for wrong in ([0, 9], [0, -1], [0])]
    others = {
        "values": np.ones(3, np.float32),
        "factors": np.ones((9, 2), np.int64),
        "col_offset": np.ones(2),
    }
    others |= {"row_weight": np.ones(2), "col_weight": np.ones((9, 1))}
    changes = [("indptr", wrong) for wrong in starts] + [("indices", wrong) for wrong in places]
    for name, wrong in [*changes, *others.items()]:
        with pytest.raises(ValueError):
            least_squares.normal_equations(**{**arguments, name: wrong})


@pytest.mark.parametrize(
    "steps", [{"factor_step": 0.5}, {"rhs_step": 0.25}, {"factor_step": 0.5, "rhs_step": 0.25}]
)
def test_exact_sums_need_float64_and_weights_that_are_powers_of_two(steps):
    """Others would be rounded, so that a user moved a sum by more than she contributed."""
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


def test_entries_outside_of_the_rows_are_not_looked_at():
    """Rows may be part of a larger matrix."""
    matrix, factors, _ = problem(9, 5, np.float64)
    indptr, indices, values = matrix
    strange = np.concatenate([[99], indices, [-5]]).astype(np.int32), np.concatenate([[1e9], values, [1e9]])
    wanted = least_squares.normal_equations(indptr, indices, values.astype(float), factors)
    found = least_squares.normal_equations(indptr + 1, *strange, factors)
    assert all(one.tobytes() == other.tobytes() for one, other in zip(wanted, found))


def test_systems_that_do_not_fit_are_refused():
    for gram, rhs, ridge in (
        (np.ones((2, 5)), np.ones((2, 3)), 1.0),
        (np.ones((1, 6)), np.ones((2, 3)), 1.0),
        (np.ones((2, 6)), np.ones((2, 3)), np.ones(2)),
        (np.ones((2, 6), int), np.ones((2, 3)), 1.0),
    ):
        with pytest.raises(ValueError):
            least_squares.ridge_solve(gram, rhs, ridge)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_stands_for_the_last_column(dtype):
    matrix, factors, extras = problem(10, 7, dtype)
    ones, offset = np.column_stack([factors[:, :-1], np.ones(len(factors), dtype)]), extras["col_offset"]
    wanted = least_squares.solve_rows(*matrix, ones, 0.3, col_offset=offset)
    before = factors.copy()
    found = least_squares.solve_rows(*matrix, factors, 0.3, col_offset=offset, constant=True)
    assert found.tobytes() == wanted.tobytes() and (factors == before).all()
