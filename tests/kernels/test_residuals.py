"""Residual sums and norms against dense NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from hushrec.kernels import residuals, threads
from tests.kernels.random_csr import random_csr


def slow_residuals(matrix, left, right, row_offset, col_offset):
    """Dense residuals, zero where the matrix has no entry."""
    indptr, indices, values = matrix
    dense = np.zeros((len(left), len(right)))
    for i in range(len(left)):
        for entry in range(indptr[i], indptr[i + 1]):
            j = indices[entry]
            prediction = row_offset[i] + col_offset[j] + left[i].astype(float) @ right[j].astype(float)
            dense[i, j] = values[entry] - prediction
    return dense


def test_rows_outside_the_factors_are_refused():
    factors = np.ones((3, 2))
    for rows in ([3], [-1]):
        with pytest.raises(ValueError):
            residuals.predict_pairs(np.array(rows), np.array([0]), factors, factors)
    for rows, other in (([0, 1], factors), ([0], factors[:, :1])):
        with pytest.raises(ValueError, match="differ in length or rank"):
            residuals.predict_pairs(np.array(rows), np.array([0]), factors, other)
    assert residuals.predict_pairs(np.array([], int), np.array([], int), factors, factors).shape == (0,)


@pytest.mark.parametrize("shape", [(9, 0, 5), (40, 3, 8), (33, 21, 70)])
def test_rows_of_a_product_do_not_depend_on_the_other_rows(shape):
    random = np.random.default_rng(shape[1])
    left, right = random.normal(size=shape[:2]), random.normal(size=shape[1:])
    product = residuals.row_products(left, right)
    np.testing.assert_allclose(product, left @ right, atol=1e-12)
    alone = np.concatenate([residuals.row_products(left[i : i + 1], right) for i in range(shape[0])])
    assert alone.tobytes() == product.tobytes()


def test_a_residual_is_the_same_bits_from_either_side():
    """A norm is taken user by user, a sum item by item: of the same numbers, or the clip would not hold."""
    random = np.random.default_rng(3)
    left, right = random.normal(size=(200, 19)), random.normal(size=(200, 19))
    offsets, others = random.normal(size=200), random.normal(size=200)
    values = random.normal(size=200)
    for k in range(0, 200, 3):
        cell = np.array([0, 1]), np.array([0], np.int32), values[k : k + 1]
        this, that = slice(k, k + 1), slice(199 - k, 200 - k)
        there = residuals.residual_norms(
            *cell, left[this], right[that], row_offset=offsets[this], col_offset=others[that]
        )
        back = residuals.residual_norms(
            *cell, right[that], left[this], row_offset=others[that], col_offset=offsets[this]
        )
        assert there.tobytes() == back.tobytes()


@pytest.mark.parametrize(
    ("rank", "kinds", "optional"), [(1, "dd", True), (7, "fd", False), (12, "df", True), (40, "ff", True)]
)
def test_sums_are_exact_in_any_order_and_on_any_threads(kinds, rank, optional, monkeypatch):
    """Against truncated terms in NumPy; the same bits with the rows in another order."""
    rng = np.random.default_rng(rank)
    matrix = sp.csr_array(random_csr(rng, 300, 40, 0.3)[::-1], shape=(300, 40))
    left, right = (rng.standard_normal((n, rank)).astype(kind) for n, kind in zip(matrix.shape, kinds))
    names = ("row_offset", "col_offset", "row_weight", "col_weight")
    given = {name: rng.standard_normal(n) for name, n in zip(names, (300, 40, 300, 40))}
    terms, step = given if optional else {}, 2.0**-20
    offsets, weights = ([given[n] * optional for n in names[:2]], [given[n] ** optional for n in names[2:]])
    dense = slow_residuals((matrix.indptr, matrix.indices, matrix.data), left, right, *offsets)
    weighted = dense * weights[0][:, None] * weights[1]
    steps = np.trunc(weighted[:, :, None] * left[:, None, :].astype(float) / step).sum(axis=0)
    order = rng.permutation(300)
    moved = {name: each[order] if name.startswith("row") else each for name, each in terms.items()}
    monkeypatch.setattr(threads, "SMALLEST_RANGE", 500.0)
    found = set()
    for count, room in ((1, 1 << 30), (2, 1 << 30), (8, 1 << 30), (8, 1)):
        monkeypatch.setattr(residuals, "TABLES_BYTES", room)
        for rows, factors, each in ((matrix, left, terms), (matrix[order], left[order], moved)):
            with threads.limit(count):
                entries = rows.indptr, rows.indices, rows.data
                sums, _ = residuals.added_residuals(*entries, factors, right, **each, step=step)
            assert (sums % step == 0).all() and sums.any()
            # the slow twin rounds elsewhere, so a term next to an integer can differ by a step
            np.testing.assert_allclose(sums / step, steps, rtol=0, atol=2)
            found.add(sums.tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_row_whose_norm_is_not_finite_counts_for_nothing(rank: int, wrong: float) -> None:
    """With and without a bound, a row adds the same with and without others."""
    indptr, indices = np.array([0, 2, 4]), np.array([0, 1, 0, 1])
    values, rows = np.array([1.0, wrong, 2.0, 3.0]), np.ones((2, rank))
    for bound in (1.5, np.inf):
        options, columns = {"bound": bound, "step": 2.0**-20}, np.zeros((2, rank))
        sums, shrink = residuals.added_residuals(indptr, indices, values, rows, columns, **options)
        last = indptr[:2], indices[2:], values[2:], rows[1:], columns
        alone, own = residuals.added_residuals(*last, **options)
        assert shrink[0] == 0 and shrink[1] == own[0] > 0
        assert np.array_equal(sums, alone)
