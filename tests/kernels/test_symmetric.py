"""Packed symmetric matrices against dense NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from hushrec.kernels import packed


def sparse(seed: int, n_rows: int = 40, n_cols: int = 13, density: float = 0.3) -> sp.csr_array:
    matrix = sp.random_array((n_rows, n_cols), density=density, format="csr", rng=np.random.default_rng(seed))
    matrix.data -= 0.5
    matrix.sort_indices()
    return matrix


def test_scaled_triangle_has_the_frobenius_norm() -> None:
    rng = np.random.default_rng(3)
    half = rng.standard_normal((9, 9))
    full = half + half.T
    triangle = full[np.tril_indices(9)]
    np.testing.assert_array_equal(packed.unpacked(triangle), full)
    assert np.linalg.norm(triangle * packed.frobenius_scale(9)) == pytest.approx(np.linalg.norm(full))


@pytest.mark.parametrize("order", [1, 2, 9, 300])
def test_a_rectangle_has_the_frobenius_norm(order: int) -> None:
    rng = np.random.default_rng(order)
    half = rng.standard_normal((order, order))
    full = half + half.T
    values = np.concatenate([full.diagonal(), full[np.tril_indices(order, -1)]])
    shape, scale = packed.rectangle(order)
    assert np.linalg.norm(values.reshape(shape) * scale) == pytest.approx(np.linalg.norm(full))
    np.testing.assert_array_equal(packed.from_rectangle(values, order, np.float64), full)


@pytest.mark.parametrize("order", [6, 1300])
def test_ritz_pairs_are_both_ends_of_a_spectrum(order: int) -> None:
    rng = np.random.default_rng(order)
    basis = np.linalg.qr(rng.standard_normal((order, 4)))[0]
    noise = rng.standard_normal((order, order))
    matrix = (basis * [90.0, 70.0, -120.0, 30.0]) @ basis.T + (noise + noise.T) / (8 * order**0.5)
    values, vectors = packed.ritz_pairs(matrix.astype(np.float32), 7)
    exact, directions = np.linalg.eigh(matrix)
    ends = [0, -3, -2, -1]
    np.testing.assert_allclose(values[ends], exact[ends], rtol=1e-4)
    np.testing.assert_allclose(np.abs((directions[:, ends] * vectors[:, ends]).sum(axis=0)), 1, atol=1e-4)


@pytest.mark.parametrize("order", [6, 1300])
def test_top_eigenpairs(order: int) -> None:
    rng = np.random.default_rng(order)
    basis = np.linalg.qr(rng.standard_normal((order, 4)))[0]
    matrix = (basis * [9.0, 7.0, -12.0, 3.0]) @ basis.T
    values, vectors = packed.top_eigenpairs(matrix, 3)
    np.testing.assert_allclose(values, [9, 7, 3], rtol=1e-8)
    np.testing.assert_allclose(np.abs(basis[:, [0, 1, 3]].T @ vectors), np.eye(3), atol=1e-6)
