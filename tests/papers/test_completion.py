"""Completion against generic optimisation, exact factorisations and the truth."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

from hushrec.papers.masked.completion import (
    alternating_minimization,
    estimate_rank,
    nuclear_norm_minimization,
)


def problem(n_rows, n_columns, rank, fraction, seed, mask_rank=0, noise_sd=15.0):
    """A random matrix of the rank (plus a mask) and its observed entries."""
    generator = np.random.default_rng(seed)
    matrix = generator.standard_normal((n_rows, rank)) @ generator.standard_normal((rank, n_columns))
    if mask_rank:
        basis = np.linalg.qr(generator.standard_normal((n_rows, mask_rank)))[0]
        matrix = matrix + basis @ generator.normal(0, noise_sd, (mask_rank, n_columns))
    cells = np.nonzero(generator.random(matrix.shape) < fraction)
    return matrix, sp.csr_array((matrix[cells], cells), shape=matrix.shape)


def relative_error(completed, matrix):
    return np.linalg.norm(completed.matrix - matrix) / np.linalg.norm(matrix)


@pytest.mark.parametrize(("shape", "mask_rank"), [((80, 120), 0), ((60, 40), 6)])
def test_both_recover_a_low_rank_matrix(shape, mask_rank):
    matrix, observed = problem(*shape, 3, 0.7, seed=1, mask_rank=mask_rank)
    exact = alternating_minimization(observed, 3 + mask_rank)
    assert relative_error(exact, matrix) < 1e-8 and exact.residual <= 1e-9
    least = nuclear_norm_minimization(observed)
    assert relative_error(least, matrix) < 1e-6
    assert least.left.shape[1] == 3 + mask_rank


@pytest.mark.parametrize(("rank", "fraction", "seed"), [(2, 0.6, 0)])
def test_nuclear_norm_is_the_least(rank, fraction, seed):
    """Oracle: L-BFGS over the unobserved entries of a smoothed nuclear norm, which bounds it."""
    matrix, observed = problem(12, 9, rank, fraction, seed)
    seen = observed.toarray() != 0
    smoothing = 1e-4

    def smoothed(entries):
        full = observed.toarray()
        full[~seen] = entries
        left, values, right = np.linalg.svd(full, full_matrices=False)
        soft = np.sqrt(values**2 + smoothing**2)
        return soft.sum(), ((left * (values / soft)) @ right)[~seen]

    found = scipy.optimize.minimize(
        smoothed, np.zeros((~seen).sum()), jac=True, method="L-BFGS-B", options={"maxiter": 5000}
    )
    least = nuclear_norm_minimization(observed)
    norm = np.linalg.svd(least.matrix, compute_uv=False).sum()
    assert least.residual <= 1e-8
    # the smoothed optimum is at least the true one and at most 9 * smoothing above it
    assert found.fun - 9 * smoothing - 1e-6 <= norm <= found.fun * (1 + 2e-3)


def test_the_fit_is_least_squares_in_each_factor():
    """If entries are not exactly of the rank, each factor solves lstsq for the other, row by row."""
    _, observed = problem(30, 20, 3, 0.6, seed=4)
    observed.data += np.random.default_rng(0).normal(0, 0.1, observed.nnz)
    completed = alternating_minimization(observed, 2)
    dense, seen = observed.toarray(), observed.toarray() != 0
    left, right = completed.left, completed.right
    best = np.vstack([np.linalg.lstsq(left[s], d[s], rcond=None)[0] for d, s in zip(dense.T, seen.T)])
    np.testing.assert_allclose(right, best, rtol=1e-8, atol=1e-10)
    best = np.vstack([np.linalg.lstsq(right[s], d[s], rcond=None)[0] for d, s in zip(dense, seen)])
    np.testing.assert_allclose(left, best, atol=2e-2)
    misfit = np.linalg.norm((completed.matrix - dense)[seen]) / np.linalg.norm(dense)
    assert completed.residual == pytest.approx(misfit, rel=1e-10)


def test_a_large_mask_over_few_columns():
    """Seeds 5 and 9 end far from the truth without the first, ridged sweeps."""
    for seed in (5, 9):
        matrix, observed = problem(8, 60, 1, 0.83, seed, mask_rank=1, noise_sd=50.0)
        assert relative_error(alternating_minimization(observed, 2), matrix) < 1e-6


@pytest.mark.parametrize(("rank", "mask_rank", "noise_sd"), [(4, 0, 0.0), (3, 5, 15.0), (2, 3, 700.0)])
def test_rank_is_found(rank, mask_rank, noise_sd):
    _, observed = problem(100, 90, rank, 0.6, seed=3, mask_rank=mask_rank, noise_sd=noise_sd)
    assert estimate_rank(observed, 15) == rank + mask_rank


def test_rank_of_noisy_entries_does_not_grow_to_the_largest():
    matrix, observed = problem(100, 90, 3, 0.6, seed=5)
    observed.data += np.random.default_rng(0).normal(0, 0.3, observed.nnz)
    assert estimate_rank(observed, 10) == 3
