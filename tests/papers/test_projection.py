"""The projection of noisy Gramians."""

import numpy as np

from hushrec.papers.dpals.dpals import project_psd


def test_project_psd_sees_a_negative_eigenvalue_behind_a_zero_diagonal():
    """Values that are negative only by rounding are returned unchanged."""
    packed = np.array([[0.0, 1.0, 0.0], [1.0, 1.0, 1.0 - 1e-16], [-1.0, 0.0, 2.0]])
    before = packed.copy()
    projected = project_psd(packed)
    np.testing.assert_allclose(projected[[0, 2]], [[0.5, 0.5, 0.5], [0.0, 0.0, 2.0]], atol=1e-12)
    assert (projected[1] == packed[1]).all() and (packed == before).all()
