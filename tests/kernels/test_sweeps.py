"""Half sweeps against dense normal equations, whatever the blocks that they are made in."""

import numpy as np
import pytest
import scipy.sparse as sp

from hushrec.kernels import sweeps
from hushrec.kernels.sweeps import (
    Growth,
    SweepSettings,
    csr,
    gramian,
    half_sweep,
    initial_items,
    ridge_fit,
    solve_statistics,
    statistics,
)

RNG = np.random.default_rng(11)
DENSE = RNG.normal(3, 1, (9, 14)) * (RNG.random((9, 14)) < 0.5)
DENSE[4] = 0  # somebody without ratings
MATRIX = csr(sp.csr_array(DENSE))
OTHER = RNG.normal(size=(14, 4))  # three factors, and offsets


def packed(matrix: np.ndarray) -> np.ndarray:
    return matrix[np.tril_indices(len(matrix))]


@pytest.mark.parametrize("rows", [1, 7, 1 << 13])
def test_outer_products_of_all_rows_are_added(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed: the first block of users alone, and its weights for all."""
    monkeypatch.setattr(sweeps, "_ROWS_AT_A_TIME", rows)
    factors, weight = RNG.normal(size=(30, 3)), RNG.uniform(0, 2, 30)
    assert gramian(factors) == pytest.approx(packed(factors.T @ factors))
    assert gramian(factors, weight) == pytest.approx(packed(factors.T @ np.diag(weight) @ factors))
    assert gramian(factors[:0]).tolist() == [0.0] * 6


@pytest.mark.parametrize("room", [1, 1 << 22])
@pytest.mark.parametrize(("bias", "unobserved"), [(None, 0.0), (2.5, 0.0), (None, 0.3)])
def test_every_row_is_a_ridge_regression(bias, unobserved, room, monkeypatch) -> None:
    """Of its ratings less level and offsets, on factors and perhaps a constant; the unobserved count as 0."""
    monkeypatch.setattr(sweeps, "_BLOCK_BYTES", room)
    settings = SweepSettings(regularization=0.7, bias_regularization=bias, unobserved_weight=unobserved)
    found = half_sweep(MATRIX, 3.0, OTHER, settings)
    for row, ratings in zip(found, DENSE):
        seen = ratings != 0
        design = OTHER[:, :3] if bias is None else np.column_stack([OTHER[:, :3], np.ones(14)])
        ridge = np.diag([0.7] * 3 + ([] if bias is None else [bias]))
        every = unobserved * design.T @ design if unobserved else 0.0
        target = (ratings - 3.0 - OTHER[:, 3])[seen]
        solved = np.linalg.solve(design[seen].T @ design[seen] + ridge + every, design[seen].T @ target)
        assert row == pytest.approx(np.append(solved, 0.0)[:4], abs=1e-9)
    if bias is None and not unobserved:
        plain = np.column_stack([OTHER[:, :3], np.zeros(14)])
        fitted = ridge_fit(sp.csr_array(DENSE), plain[:, :3], 0.7)
        assert fitted == pytest.approx(half_sweep(MATRIX, 0.0, plain, settings)[:, :3], abs=1e-9)
        assert ridge_fit(sp.csr_array(DENSE), plain[:, :0], 0.7).shape == (9, 0)


@pytest.mark.parametrize("room", [1, 200, 1 << 22])
def test_normal_equations_are_weighted_clipped_and_in_fixed_point(room: int, monkeypatch) -> None:
    """A block after the other, each with the weights of its own rows."""
    monkeypatch.setattr(sweeps, "_BLOCK_BYTES", room)
    settings = SweepSettings(regularization=1.0, bias_regularization=None)
    row_weight, col_weight = 2.0 ** RNG.integers(-3, 2, 9), RNG.uniform(0.1, 1, 14)
    steps = 2.0**-20, 2.0**-24
    blocks = list(
        statistics(
            MATRIX, 3.0, OTHER, settings, row_weight=row_weight, col_weight=col_weight, clip=0.8,
            factor_step=steps[0], rhs_step=steps[1],
        )
    )  # fmt: skip
    assert len(blocks) == (9 if room == 1 else 3 if room == 200 else 1)
    grams, sums = (np.concatenate(each) for each in zip(*blocks))
    for i, ratings in enumerate(DENSE):
        seen = np.flatnonzero(ratings)
        weight, target = row_weight[i] * col_weight[seen], (ratings - 3.0 - OTHER[:, 3])[seen]
        design, cut = OTHER[seen, :3], np.minimum(np.maximum(target, -0.8), 0.8)
        assert grams[i] == pytest.approx(packed(design.T @ np.diag(weight) @ design), abs=1e-4)
        assert sums[i] == pytest.approx(design.T @ (weight * cut), abs=1e-5)
    for found, step in ((sums, steps[1]), (grams, steps[0] ** 2)):  # a row's weight is put on at last
        whole = found / (step * row_weight[:, None])
        assert (whole == np.rint(whole)).all() and (whole % 2).any()


@pytest.mark.parametrize("bias", [None, 2.5])
def test_kinds_of_rows_have_multiples_of_the_ridge_on_factors_alone(bias) -> None:
    settings, by = SweepSettings(regularization=0.7, bias_regularization=bias), (1.0, 4.0, 0.25)
    kinds = np.array([0, 1, 2, 2, 1, 0, 0, 1, 2], np.uint8)
    found = half_sweep(MATRIX, 3.0, OTHER, settings, Growth(by, kinds))
    for row, ratings, kind in zip(found, DENSE, kinds):
        seen = ratings != 0
        design = OTHER[:, :3] if bias is None else np.column_stack([OTHER[:, :3], np.ones(14)])
        ridge = np.diag([0.7 * by[kind]] * 3 + ([] if bias is None else [bias]))
        target = design[seen].T @ (ratings - 3.0 - OTHER[:, 3])[seen]
        solved = np.linalg.solve(design[seen].T @ design[seen] + ridge, target)
        assert row == pytest.approx(np.append(solved, 0.0)[:4], abs=1e-9)


def test_without_factors_there_are_offsets_or_nothing() -> None:
    """The mean deviation of a row's ratings, drawn to 0 by the ridge; and zeros without offsets."""
    level = OTHER[:, 3:]
    found = half_sweep(MATRIX, 3.0, level, SweepSettings(regularization=1.0, bias_regularization=2.5))
    for row, ratings in zip(found, DENSE, strict=True):
        seen = ratings != 0
        assert row == pytest.approx([(ratings - 3.0 - OTHER[:, 3])[seen].sum() / (seen.sum() + 2.5)])
    settings = SweepSettings(regularization=1.0, bias_regularization=None)
    assert half_sweep(MATRIX, 3.0, level, settings).tolist() == [[0.0]] * 9
    for gram, rhs in statistics(MATRIX, 3.0, level, settings):
        assert (gram.shape, rhs.shape) == ((9, 0), (9, 0))


def test_no_rows_have_no_solutions() -> None:
    settings = SweepSettings(regularization=1.0, bias_regularization=2.5)
    nobody = csr(sp.csr_array((0, 14)))
    assert solve_statistics(statistics(nobody, 3.0, OTHER, settings), settings, 3).shape == (0, 4)
    assert half_sweep(nobody, 3.0, OTHER, settings).shape == (0, 4)


@pytest.mark.parametrize("rank", [0, 1, 8])
def test_items_start_with_factors_of_norm_about_three_tenths(rank: int) -> None:
    start = initial_items(4000, rank, 3, np.float32)
    assert start.shape == (4000, rank + 1) and start.dtype == np.float32 and not start[:, rank].any()
    if rank:
        assert (start[:, :rank] ** 2).sum(axis=1).mean() == pytest.approx(0.09, rel=0.1)
        assert abs(start[:, :rank].mean()) < 0.01
        assert (initial_items(4000, rank, 4, np.float32) != start).any()
