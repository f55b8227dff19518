"""Oja's algorithm and block power iteration against eigh, their releases, their cost in memory."""

import math
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.matrices import jtt18_matrix
from hushrec.data import Domain, split_ratings
from hushrec.errors import InputError
from hushrec.papers.frank_wolfe import PrivateFrankWolfe, private_pca
from hushrec.papers.frank_wolfe.eigensolvers import PowerSolver, orthonormal, random_block
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import RecordingNoise, SeededNoise
from tests.algorithms.completion import small

METHODS = {"oja": {"method": "oja", "steps": 12}, "power": {"method": "power", "components": 3, "steps": 6}}


def low_rank(n_rows: int = 3000, n_columns: int = 20) -> np.ndarray:
    rng = np.random.default_rng(1)
    basis = orthonormal(rng.standard_normal((n_columns, 3)))
    return (rng.standard_normal((n_rows, 3)) * [3.0, 1.5, 0.8]) @ basis.T


@pytest.mark.usefixtures("plain_sums")
@pytest.mark.parametrize("method", METHODS)
def test_without_noise_it_is_the_top_eigenvector(method: str) -> None:
    rows = low_rank()
    values, vectors = private_pca(rows, Accountant(Budget(math.inf, 1e-6)), row_clip=1e9, **METHODS[method])
    expected, basis = np.linalg.eigh(rows.T @ rows)
    count = vectors.shape[1]
    np.testing.assert_allclose(values, expected[::-1][:count], rtol=1e-4)
    assert abs(vectors[:, 0] @ basis[:, -1]) > 1 - 1e-5
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(count), atol=1e-12)


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("method", METHODS)
def test_private_pca_is_close_and_spends_its_budget(method: str, relation: str) -> None:
    rows = low_rank()
    accountant = Accountant(Budget(2.0, 1e-6, relation=relation))
    _, vectors = private_pca(sp.csr_array(rows), accountant, row_clip=4.0, **METHODS[method])
    assert abs(vectors[:, 0] @ np.linalg.eigh(rows.T @ rows)[1][:, -1]) > 0.99
    assert math.fsum(release.mu**2 for release in accountant.releases) == pytest.approx(
        accountant.budget.mu**2
    )
    assert len(accountant.releases) == {"oja": 13, "power": 6}[method]


def test_all_t_times_gamma_plus_one_releases_are_charged() -> None:
    """O2: the paper composes over the products of one step only."""
    budget = Budget(1.0, 1e-6)
    estimator = PrivateFrankWolfe(
        nuclear_norm=1.0, iterations=5, eigenvector="oja", inner_steps=6, residual_clip=2.0
    )
    releases = estimator.plan(budget, small().domain).releases
    assert len(releases) == 5 * (6 + 1)
    assert math.fsum(release.mu**2 for release in releases) == pytest.approx(budget.mu**2)
    assert {release.sensitivity for release in releases} == {4.0}


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("block", [1, 3])
def test_sensitivity_of_a_product_is_attained(relation: str, block: int) -> None:
    """One row a moves W V by |a| |V^T a|; two orthogonal ones in the span of V by sqrt(2) times that."""
    start = random_block(8, block, 0)
    bound = 1.7
    solver = PowerSolver(bound, 1, block)
    declared = solver.releases("x", Budget(1.0, 1e-6, relation=relation), 1.0).releases[0].sensitivity

    def product(vector: np.ndarray) -> np.ndarray:
        return np.outer(vector, vector) @ start * bound**2

    rng = np.random.default_rng(0)
    moves = []
    for _ in range(2000):
        one, other = (vector / np.linalg.norm(vector) for vector in rng.standard_normal((2, 8)))
        moves.append(np.linalg.norm(product(one) - (product(other) if relation == "replace" else 0)))
    best = [product(start[:, 0])]
    if relation == "replace" and block > 1:
        best.append(product(start[:, 1]))
    moves.append(np.linalg.norm(best[0] - (best[1] if len(best) > 1 else 0)))
    assert max(moves) == pytest.approx(declared, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_no_product_of_one_row_exceeds_its_sensitivity(method: str) -> None:
    """O1: an unnormalised start vector (norm sqrt(n) or s sqrt(n)) would break the first product's bound."""
    row = np.full((1, 400), 3.0)
    noise = RecordingNoise(SeededNoise(0))
    for seed in range(20):
        private_pca(
            row,
            Accountant(Budget(1.0, 1e-6), noise=noise),
            row_clip=1.5,
            seed=seed,
            **METHODS[method],
        )
    assert max(np.linalg.norm(call.value) for call in noise.calls) <= 1.5**2 * (1 + 1e-12)


def test_hostile_rows_stay_within_the_clip() -> None:
    """Entries stored twice, NaN, infinity and overflow; the caller's matrix is left as it is."""
    values = np.array([1.0, 1.0, np.nan, np.inf, 1e308, 1e308])
    hostile = sp.csr_array((values, np.array([2, 2, 0, 1, 0, 1]), np.array([0, 4, 6])), shape=(2, 5))
    noise = RecordingNoise(SeededNoise(0))
    for seed in range(10):
        private_pca(hostile, Accountant(Budget(1.0, 1e-6), noise=noise), row_clip=1.0, steps=2, seed=seed)
    assert all(np.linalg.norm(call.value) <= 2 * (1 + 1e-12) for call in noise.calls)
    assert hostile.nnz == 6
    assert np.isnan(hostile.data[2])


def test_oja_is_a_drop_in_for_the_covariance() -> None:
    full = jtt18_matrix(20_000, 100, ratings_per_user=30, seed=0)
    train, test = split_ratings(full.ratings, (0.97, 0.03), seed=0)
    k = float(np.linalg.norm(full.user_factors) * np.linalg.norm(full.item_factors))
    errors = {}
    for eigenvector in ("covariance", "oja", "power"):
        estimator = PrivateFrankWolfe(
            nuclear_norm=8 * k,
            iterations=8,
            residual_clip=2.0,
            residual_clip_decay=0.9,
            step_damping=1.0,
            max_ratings_per_user=30,
            center="middle",
            eigenvector=eigenvector,
        )
        model = estimator.fit(train, Accountant(Budget(20.0, 1e-6)))
        errors[eigenvector] = np.sqrt(np.mean((model.predict_pairs(train, test) - test.matrix.data) ** 2))
    assert errors["oja"] < 1.1 * errors["covariance"]
    assert errors["power"] < 1.1 * errors["covariance"]


def test_memory_is_linear_in_the_items() -> None:
    """20,000 items: the covariance would take 3.2 GB."""
    rng = np.random.default_rng(0)
    rows = sp.random_array((2000, 20_000), density=50 / 20_000, format="csr", rng=rng)
    tracemalloc.start()
    private_pca(rows, Accountant(Budget(1.0, 1e-6)), row_clip=1.0, method="oja", steps=5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


@pytest.mark.parametrize("settings", [{"row_clip": 0.0}, {"steps": 0}, {"components": 9}, {"method": "qr"}])
def test_bad_settings_are_refused_before_anything_is_spent(settings: dict) -> None:
    accountant = Accountant(Budget(1.0, 1e-6))
    with pytest.raises(InputError):
        private_pca(np.ones((3, 4)), accountant, **({"row_clip": 1.0} | settings))
    with pytest.raises(InputError):
        private_pca(np.ones((3, 4)), accountant, row_clip=1.0, method="oja", components=2)
    assert accountant.releases == ()


def test_one_item() -> None:
    domain = Domain(items=["only"], rating_range=(1, 5))
    from hushrec.data import Ratings

    ratings = Ratings.from_any((["a", "b"], ["only", "only"], [1.0, 4.0]), domain)
    for eigenvector in ("covariance", "oja", "power"):
        estimator = PrivateFrankWolfe(nuclear_norm=2.0, iterations=2, eigenvector=eigenvector, block=3)
        model = estimator.fit(ratings, Accountant(Budget(1.0, 1e-6)))
        assert model.item_factors.shape == (1, 2)
