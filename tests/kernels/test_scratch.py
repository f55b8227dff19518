"""Kernels write nothing beyond the scratch memory that they are given."""

from __future__ import annotations

import numpy as np
import pytest

from hushrec.kernels import arrays, least_squares, residuals, threads
from tests.kernels.test_least_squares import problem

GUARD, CANARY = 512, 12345.0


@pytest.mark.parametrize(
    ("rank", "dtype"), [(1, np.float32), (8, np.float64), (15, np.float32), (17, np.float64)]
)
def test_what_lies_beside_scratch_memory_stays(rank, dtype, monkeypatch):
    given, aligned = [], arrays.aligned

    def guarded(dtype, *counts):
        """Each array in a larger one; the guards are of whole cache lines."""
        memories = [aligned(dtype, count + 2 * GUARD)[0] for count in counts]
        for memory in memories:
            memory[:GUARD] = memory[len(memory) - GUARD :] = CANARY
        given.extend(memories)
        return [memory[GUARD : len(memory) - GUARD] for memory in memories]

    for module in (arrays, residuals):
        monkeypatch.setattr(module, "aligned", guarded)
    (indptr, indices, values), factors, extras = problem(rank, rank, dtype)
    matrix, n_rows = (indptr, indices, values), len(indptr) - 1
    with threads.limit(1):
        gram, rhs = least_squares.normal_equations(*matrix, factors, **extras)
        least_squares.ridge_solve(gram, rhs, 0.5)
        least_squares.solve_rows(*matrix, factors, 0.5)
        residuals.added_residuals(*matrix, np.ones((n_rows, rank), dtype), factors, bound=1.0, step=2.0**-20)
        residuals.residual_norms(*matrix, np.ones((n_rows, rank), dtype), factors)
        residuals.row_products(factors, factors.T)
    assert len(given) > 20
    for memory in given:
        assert (memory[:GUARD] == CANARY).all() and (memory[len(memory) - GUARD :] == CANARY).all()
