"""Residual sums and norms against dense NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from hushrec.kernels import arrays, residuals, threads
from tests.kernels.random_csr import random_csr


def problem(seed, rank, dtype, n_rows=31, n_cols=90, density=0.9):
    random = np.random.default_rng(seed)
    matrix = random_csr(random, n_rows, n_cols, density)
    left = random.normal(size=(n_rows, rank)).astype(dtype)
    right = random.normal(size=(n_cols, rank)).astype(dtype)
    extras = {
        "row_offset": random.normal(size=n_rows),
        "col_offset": random.normal(size=n_cols),
        "row_weight": random.uniform(0, 2, n_rows),
        "col_weight": random.uniform(0, 2, n_cols),
    }
    return matrix, left, right, extras


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


@pytest.mark.parametrize(("rank", "types"), [(1, "ff"), (8, "fd"), (9, "df"), (17, "dd")])
def test_nothing_beyond_the_tables_is_read(rank, types, monkeypatch):
    """Memory around the factors is NaN, which even a weight of zero would pass on."""

    def among_nans(factors):
        table = arrays.padded(factors)
        memory = np.full(table.size + 64, np.nan, table.dtype)
        skip = -memory.ctypes.data % 64 // table.itemsize
        copy = memory[skip : skip + table.size].reshape(table.shape)
        copy[:] = table
        return copy

    monkeypatch.setattr(residuals, "padded", among_nans)
    matrix, left, right, extras = problem(rank, rank, np.float64, n_rows=30)
    left, right = left.astype(types[0]), right.astype(types[1])
    assert matrix[0][-2] < matrix[0][-1], "the last row is read"
    sums, shrink = residuals.added_residuals(*matrix, left, right, **extras, step=2.0**-20)
    assert np.isfinite(sums).all() and shrink.all(), "a norm that is not finite counts for nothing"
    del extras["row_weight"]
    assert np.isfinite(residuals.residual_norms(*matrix, left, right, **extras)).all()
    rows, columns = np.array([0, 29]), np.array([89, 0])
    assert np.isfinite(residuals.predict_pairs(rows, columns, left, right)).all()


def test_threads_do_not_change_a_bit(monkeypatch):
    monkeypatch.setattr(threads, "SMALLEST_RANGE", 1.0)
    matrix, left, right, extras = problem(1, 21, np.float32, n_rows=150)
    results = set()
    for n_threads in (1, 2, 4):
        with threads.limit(n_threads):
            sums, _ = residuals.added_residuals(*matrix, left, right, **extras, step=2.0**-20)
            norms = residuals.residual_norms(*matrix, left, right, col_weight=extras["col_weight"])
            results.add(sums.tobytes() + norms.tobytes())
    assert len(results) == 1


def test_rows_outside_the_factors_are_refused():
    factors = np.ones((3, 2))
    for rows in ([3], [-1]):
        with pytest.raises(ValueError):
            residuals.predict_pairs(np.array(rows), np.array([0]), factors, factors)
        with pytest.raises(ValueError, match="not among the 3 factor rows"):
            residuals.predict_pairs(np.array([0]), np.array(rows), factors, factors)
    for rows, other in (([0, 1], factors), ([0], factors[:, :1])):
        with pytest.raises(ValueError, match="differ in length or rank"):
            residuals.predict_pairs(np.array(rows), np.array([0]), factors, other)
    assert residuals.predict_pairs(np.array([], int), np.array([], int), factors, factors).shape == (0,)
    for column, rows in ((3, factors[:1]), (2, factors), (2, factors[:1, :1])):
        with pytest.raises(ValueError):
            entry = np.array([0, 1]), np.array([column]), np.ones(1, np.float32)
            residuals.added_residuals(*entry, rows, factors, step=1.0)


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
            # the slow twin rounds elsewhere, so that a term can be a step off where it is next to an integer
            np.testing.assert_allclose(sums / step, steps, rtol=0, atol=2)
            found.add(sums.tobytes())
    assert len(found) == 1


def test_rows_without_factors_add_their_residuals():
    matrix, left, right, extras = problem(0, 1, np.float64)
    nothing, ones = (left[:, :0], right[:, :0]), (np.ones_like(left), np.zeros_like(right))
    for bound in (0.5, np.inf):
        found = residuals.added_residuals(*matrix, *nothing, **extras, bound=bound, step=2.0**-20)
        wanted = residuals.added_residuals(*matrix, *ones, **extras, bound=bound, step=2.0**-20)
        assert [each.tobytes() for each in found] == [each.tobytes() for each in wanted]


def test_a_row_whose_residuals_overflow_counts_for_nothing():
    matrix, left, right, extras = problem(0, 3, np.float64)
    extras["row_offset"][1] = 1e300
    with_her, shrink = residuals.added_residuals(*matrix, left, right, **extras, bound=1.0, step=2.0**-20)
    extras["row_weight"][1] = 0.0
    extras["row_offset"][1] = 0.0
    without, _ = residuals.added_residuals(*matrix, left, right, **extras, bound=1.0, step=2.0**-20)
    assert shrink[1] == 0 and with_her.tobytes() == without.tobytes() and without.any()


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_row_whose_norm_is_not_finite_counts_for_nothing(rank: int, wrong: float) -> None:
    """With a bound and without one: what another row adds is what it adds alone."""
    indptr, indices = np.array([0, 2, 4]), np.array([0, 1, 0, 1])
    values, rows = np.array([1.0, wrong, 2.0, 3.0]), np.ones((2, rank))
    for bound in (1.5, np.inf):
        options, columns = {"bound": bound, "step": 2.0**-20}, np.zeros((2, rank))
        sums, shrink = residuals.added_residuals(indptr, indices, values, rows, columns, **options)
        last = indptr[:2], indices[2:], values[2:], rows[1:], columns
        alone, own = residuals.added_residuals(*last, **options)
        assert shrink[0] == 0 and shrink[1] == own[0] > 0
        assert np.array_equal(sums, alone)


def test_parts_hold_few_rows_and_entries_unless_one_row_has_more(monkeypatch):
    """And the same bits come of any parts; norms need no second pass, which would write to a table."""
    matrix, left, right, extras = problem(2, 9, np.float64, n_rows=30, density=0.1)
    given = {**extras, "bound": 1.0, "step": 2.0**-20}
    whole, shrink = residuals.added_residuals(*matrix, left, right, **given)
    del extras["row_weight"]
    norms = residuals.residual_norms(*matrix, left, right, **extras)
    parts, own = [], residuals._clipped_range

    def watched(*arguments):
        starts, stop, table, kept = (arguments[at] for at in (0, 12, 13, 17))
        parts.append((stop, starts[stop] - starts[0], len(table)))
        assert 0 < stop <= 4 and (starts[stop] - starts[0] <= 25 or stop == 1)
        assert starts[stop] - starts[0] <= len(kept) and arguments[11] == 0
        own(*arguments)

    monkeypatch.setattr(residuals, "_clipped_range", watched)
    monkeypatch.setattr(residuals, "PART_ROWS", 4)
    monkeypatch.setattr(residuals, "ENTRIES", 25)
    again, other = residuals.added_residuals(*matrix, left, right, **given)
    assert again.tobytes() == whole.tobytes() and other.tobytes() == shrink.tobytes()
    assert {rows for rows, *_ in parts} == {1, 2, 3, 4} and max(count for _, count, _ in parts) == 90
    assert {size for *_, size in parts} == {90}
    parts.clear()
    assert residuals.residual_norms(*matrix, left, right, **extras).tobytes() == norms.tobytes()
    assert {size for *_, size in parts} == {0}


@pytest.mark.parametrize("n_rows", [0, 3])
def test_where_there_is_no_entry_nothing_is_added(n_rows):
    matrix = np.zeros(n_rows + 1, int), np.zeros(0, np.int32), np.zeros(0, np.float32)
    for n_threads in (1, 2):
        with threads.limit(n_threads):
            sums, shrink = residuals.added_residuals(*matrix, np.ones((n_rows, 2)), np.ones((4, 2)), step=1.0)
            assert sums.tolist() == [[0.0] * 2] * 4 and shrink.tolist() == [1.0] * n_rows
            weights = residuals.added_weights(*matrix[:2], np.ones(n_rows), 3)
            assert weights.tolist() == [0.0] * 3
