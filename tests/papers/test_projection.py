"""The projection of noisy Gramians against dense NumPy."""

import numpy as np
import pytest

from hushrec.papers.dpals.dpals import project_psd
from tests.kernels.test_least_squares import close, triangle, unpack


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [1, 4, 13, 33])
def test_project_psd_clamps_only_what_fails(rank, dtype):
    random = np.random.default_rng(rank)
    factors = random.normal(size=(40, rank, 3 * rank))
    gram = factors @ factors.transpose(0, 2, 1) / rank
    gram[::2] -= np.eye(rank) * random.uniform(0, 8, 20)[:, None, None]
    gram[4], gram[6] = 0.0, -np.eye(rank)
    gram[8] = np.outer(factors[0, :, 0], factors[0, :, 0])  # singular, not negative
    packed = gram[:, *triangle(rank)].astype(dtype)
    before = packed.copy()
    projected = project_psd(packed)
    assert (packed == before).all()
    eigenvalues, vectors = np.linalg.eigh(unpack(packed, rank))
    expected = (vectors * np.maximum(eigenvalues, 0)[:, None]) @ vectors.transpose(0, 2, 1)
    close(projected, expected[:, *triangle(rank)], dtype, slack=5)
    fine = eigenvalues[:, 0] > -np.finfo(dtype).eps * np.abs(packed).max(axis=1)
    assert fine.sum() >= 21 and (projected[fine] == packed[fine]).all()
    assert (eigenvalues[:, 0] < -0.1).any()


def test_project_psd_sees_a_negative_eigenvalue_behind_a_zero_diagonal():
    packed = np.array([[0.0, 1.0, 0.0]])
    np.testing.assert_allclose(project_psd(packed), [[0.5, 0.5, 0.5]], atol=1e-12)
