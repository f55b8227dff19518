"""Oja's algorithm and block power iteration against eigh, their releases, their cost in memory."""

import math
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from hushrec.errors import BudgetError, InputError
from hushrec.papers.frank_wolfe import private_pca
from hushrec.papers.frank_wolfe.eigensolvers import RowUsers, orthonormal
from hushrec.privacy import Accountant, Budget, Ledger
from hushrec.privacy.testing import RecordingNoise, SeededNoise
from tests.opening import opened

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


@pytest.mark.parametrize("method", METHODS)
def test_no_product_of_one_row_exceeds_its_sensitivity(method: str) -> None:
    """O1: an unnormalised start vector (norm sqrt(n) or s sqrt(n)) would break the first product's bound."""
    row = np.full((1, 400), 3.0)
    noise = RecordingNoise(SeededNoise(0))
    for seed in range(20):
        accountant = Accountant(Budget(1.0, 1e-6), noise=noise)
        private_pca(row, accountant, row_clip=1.5, seed=seed, **METHODS[method])
    assert max(np.linalg.norm(call.value) for call in noise.calls) <= 1.5**2 * (1 + 1e-12)


def test_hostile_rows_stay_within_the_clip() -> None:
    """Entries stored twice, NaN, infinity and overflow; the caller's matrix is unchanged."""
    values = np.array([1.0, 1.0, np.nan, np.inf, 1e308, 1e308])
    hostile = sp.csr_array((values, np.array([2, 2, 0, 1, 0, 1]), np.array([0, 4, 6])), shape=(2, 5))
    noise = RecordingNoise(SeededNoise(0))
    for seed in range(10):
        private_pca(hostile, Accountant(Budget(1.0, 1e-6), noise=noise), row_clip=1.0, steps=2, seed=seed)
    assert all(np.linalg.norm(call.value) <= 2 * (1 + 1e-12) for call in noise.calls)
    assert hostile.nnz == 6
    assert np.isnan(hostile.data[2])


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


def test_what_rows_add_to_products_and_squares() -> None:
    """Row by row; those that are too long leave room for what truncation adds, in units of a fixed step."""
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(30, 9)) * rng.uniform(0.1, 3, (30, 1))
    rows[3] = 0.0
    users, bound = RowUsers(sp.csr_array(rows)), 1.7
    users.clip(bound)
    most = bound * (1 - math.sqrt(9) * 2.0**-27) * (1 - 2.0**-22)
    clipped = rows * np.minimum(1, most / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))
    basis, step = orthonormal(rng.normal(size=(9, 2))), 2.0 ** (2 - 28)  # the bound's square is 2.89
    found = users.product(basis)
    assert opened(found) == pytest.approx(clipped.T @ clipped @ basis, abs=30 * step)
    square = users.square(basis[:, 0])
    assert opened(square) == pytest.approx([((clipped @ basis[:, 0]) ** 2).sum()], abs=30 * step)
    for each in (found, square):
        assert each.step == step and (opened(each) / step == np.rint(opened(each) / step)).all()
    assert (opened(found) / step % 2).any()  # and of no larger step
    assert square.sensitivity("replace") == pytest.approx(bound**2)


def test_a_sparse_matrix_whose_arrays_do_not_fit_is_refused() -> None:
    rows = sp.csr_array(np.ones((3, 4)))
    rows.indices[2] = 9
    accountant = Accountant(Budget(1.0, 1e-6))
    with pytest.raises(InputError, match="do not fit together"):
        private_pca(rows, accountant, row_clip=1.0)
    assert not accountant.releases


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("method", METHODS)
def test_what_is_charged_is_the_clip_squared(method: str, relation: str) -> None:
    """Power iteration multiplies several vectors at once: a root of 2 more where a row is replaced."""
    accountant = Accountant(Budget(1.0, 1e-6, relation=relation))
    private_pca(np.ones((3, 5)), accountant, row_clip=1.5, **METHODS[method])
    more = math.sqrt(2) if (method, relation) == ("power", "replace") else 1.0
    assert [each.sensitivity for each in accountant.releases] == pytest.approx(
        [2.25 * more] * len(accountant.releases)
    )


@pytest.mark.parametrize("method", METHODS)
def test_components_that_a_ledger_has_no_room_for_cost_nothing(method: str, tmp_path) -> None:
    """Nothing is charged, not even the first products, which would fit."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("d", Budget(0.9, 1e-6))
    accountant = Accountant(Budget(1.0, 1e-6), ledger=ledger, dataset="d")
    with pytest.raises(BudgetError):
        private_pca(np.ones((3, 5)), accountant, row_clip=1.0, **METHODS[method])
    assert not accountant.releases and ledger.summary("d").charges == 0
