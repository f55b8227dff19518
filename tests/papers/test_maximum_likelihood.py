"""One-bit maximum likelihood against plain Dykstra, SciPy, and a conic solver."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import optimize
from scipy.sparse.linalg import svds
from scipy.special import expit

from hushrec.kernels.one_bit import CURVATURE, likelihood, soft_threshold_for
from hushrec.papers.one_bit import maximum_likelihood
from hushrec.papers.one_bit.maximum_likelihood import Projection, project_nuclear

#: (seed, nuclear radius, bound): optimum of the 20 x 20 problem of `problem`, by CVXPY 1.9 with Clarabel
#: (normNuc(X) <= radius, abs(X) <= bound, exponential cones).
CONIC = {
    (1, 20.0, 1.0): 95.3491718621624,
    (1, 40.0, 3.0): 65.82476112657957,
    (2, 20.0, 0.5): 98.72764903257149,
    (3, 10.0, 1.0): 113.58037708620174,
}


def problem(seed: int, n_rows: int = 20, n_columns: int = 20):
    """Half the signs of a rank-one matrix with entries up to 1, as in section 5.1 of the paper."""
    rng = np.random.default_rng(seed)
    truth = np.outer(rng.uniform(-0.5, 0.5, n_rows), rng.uniform(-0.5, 0.5, n_columns))
    truth /= np.abs(truth).max()
    cells = rng.choice(n_rows * n_columns, n_rows * n_columns // 2, replace=False)
    rows, columns = cells // n_columns, cells % n_columns
    target = (rng.random(len(cells)) < expit(truth[rows, columns])).astype(float)
    return (rows, columns, target), (n_rows, n_columns)


def nuclear_gap(cells, slope, x, shape, radius):
    """Duality gap: how far a feasible matrix can be above the optimum over the nuclear ball."""
    gradient = sp.csr_array((slope, cells[:2]), shape=shape)
    top = svds(gradient, 1, v0=np.ones(min(shape)), return_singular_vectors=False)[0]
    return float(radius * top + np.vdot(slope, x))


@pytest.mark.parametrize(("link", "bound", "known"), [("probit", 1, 1.813), ("probit", 2, 2.429)])
def test_what_one_label_changes(link, bound, known):
    x = np.linspace(-bound, bound, 2001)
    dislike = likelihood(x, np.zeros(2001), link)[1] - likelihood(x, np.ones(2001), link)[1]
    assert maximum_likelihood.label_sensitivity(link, bound) == pytest.approx(dislike.max(), rel=1e-12)
    assert dislike.max() == pytest.approx(known, abs=1e-3)
    assert maximum_likelihood.label_sensitivity("logistic", bound) == 1


@pytest.mark.parametrize("shape", [(7, 11), (11, 7), (6, 6)])
def test_nuclear_projection(shape):
    matrix = np.random.default_rng(0).standard_normal(shape)
    left, singular, right = np.linalg.svd(matrix, full_matrices=False)
    for radius in (0.5, 3.0, 8.0):
        excess = lambda t, radius=radius: np.maximum(singular - t, 0).sum() - radius  # noqa: E731
        threshold = optimize.brentq(excess, 0, singular[0])
        expected = (left * np.maximum(singular - threshold, 0)) @ right
        assert project_nuclear(matrix, radius) == pytest.approx(expected, abs=1e-9)
    assert np.array_equal(project_nuclear(matrix, 1e3), matrix)


def plain_dykstra(matrix, radius, bound, rounds=20_000):
    point, nuclear, box = matrix, np.zeros_like(matrix), np.zeros_like(matrix)
    for _ in range(rounds):
        left, singular, right = np.linalg.svd(point + nuclear, full_matrices=False)
        threshold = soft_threshold_for(singular, radius)
        inside = (left * np.maximum(singular - threshold, 0)) @ right
        nuclear = point + nuclear - inside
        point = np.clip(inside + box, -bound, bound)
        box = inside + box - point
    return point


@pytest.mark.parametrize("radius", [4.0, 8.0])
def test_projection_onto_both_sets(radius):
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((8, 10)) + np.outer(rng.standard_normal(8), rng.standard_normal(10))
    project = Projection(radius, 0.6, tolerance=1e-10, rounds=5000)
    first = project(matrix)
    assert first == pytest.approx(plain_dykstra(matrix, radius, 0.6, 5000), abs=1e-6)
    assert np.abs(first).max() <= 0.6
    assert np.linalg.svd(first, compute_uv=False).sum() <= radius * (1 + 1e-6)
    other = matrix + 0.1 * rng.standard_normal(matrix.shape)
    warm, cold = project(other), Projection(radius, 0.6, tolerance=1e-10, rounds=5000)(other)
    assert warm == pytest.approx(cold, abs=1e-6)
    longer = matrix + 2 * (other - matrix)
    assert project(longer, 2.0) == pytest.approx(plain_dykstra(longer, radius, 0.6, 5000), abs=1e-6)


@pytest.mark.parametrize("key", CONIC)
def test_dense_solver_agrees_with_a_conic_solver(key):
    seed, radius, bound = key
    cells, shape = problem(seed)
    solution = maximum_likelihood.solve_dense(cells, shape, radius, bound, "logistic", tolerance=1e-8)
    assert solution.value == pytest.approx(CONIC[key], abs=1e-4)
    assert np.abs(solution.point).max() <= bound
    assert np.linalg.svd(solution.point, compute_uv=False).sum() <= radius * (1 + 1e-5)


@pytest.mark.parametrize("link", CURVATURE)
def test_factored_solver_agrees_with_the_dense_one_where_no_entry_is_at_the_bound(link):
    cells, shape = problem(4, 15, 25)
    radius = 6.0
    dense = maximum_likelihood.solve_dense(cells, shape, radius, 50.0, link, tolerance=1e-10)
    start = 0.1 * np.random.default_rng(0).standard_normal((40, 16))
    factored = maximum_likelihood.solve_factored(
        cells, shape, radius, start, link, tolerance=1e-10, iterations=2000
    )
    assert factored.value == pytest.approx(dense.value, abs=1e-4)
    assert not factored.point[:, -1].any()
    matrix = factored.point[:15] @ factored.point[15:].T
    assert matrix == pytest.approx(dense.point, abs=0.02)
    x = matrix[cells[0], cells[1]]
    gap = nuclear_gap(cells, likelihood(x, cells[2], link)[1], x, shape, radius)
    assert -1e-9 < gap < 1e-2


def test_factored_solver_with_offsets_and_weights_is_at_a_stationary_point():
    cells, shape = problem(5)
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.5, 2.0, (40, 4))
    start = 0.1 * rng.standard_normal((40, 4))
    point = maximum_likelihood.solve_factored(
        cells, shape, 12.0, start, "logistic", scale=scale, tolerance=1e-12, iterations=5000
    ).point
    assert 0.5 * ((point / scale) ** 2).sum() == pytest.approx(12.0)

    def value(scaled):
        scaled = scaled.reshape(40, 4) * np.sqrt(12.0 / (0.5 * (scaled**2).sum())) * scale
        matrix = scaled[:20, :3] @ scaled[20:, :3].T + scaled[:20, 3:] + scaled[20:, 3]
        return likelihood(matrix[cells[0], cells[1]], cells[2], "logistic")[0].sum()

    gradient = optimize.approx_fprime((point / scale).ravel(), value, 1e-6)
    assert np.abs(gradient).max() < 2e-3
