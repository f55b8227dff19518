"""Top-k against a full stable sort."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from hushrec.kernels import threads
from hushrec.kernels.loops import in_numpy
from hushrec.kernels.topk import row_scores, top_k


def slow_top_k(scores, count, first):
    items = np.full((len(scores), count), -1)
    best = np.full((len(scores), count), -np.inf)
    for row, line in enumerate(scores):
        order = [item for item in np.lexsort((-line, ~first)) if line[item] > -np.inf][:count]
        items[row, : len(order)], best[row, : len(order)] = order, line[order]
    return items, best


@pytest.mark.parametrize("kernels", [nullcontext, in_numpy])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("count", "part"), [(0, 0.1), (1, 0.0), (7, 0.6), (45, 0.1), (7, 1.0)])
def test_equals_a_full_sort_with_ties(count, dtype, part, kernels):
    random = np.random.default_rng(count)
    scores = random.integers(0, 12, size=(36, 40)).astype(dtype)  # many ties
    scores[3], scores[7, ::2], scores[8, ::3] = -np.inf, -np.inf, np.nan
    first = random.random(40) < part
    for n_threads in (1, 2):
        with threads.limit(n_threads), kernels():
            items, best = top_k(scores, count, first)
        expected_items, expected_best = slow_top_k(scores, count, first)
        assert best.dtype == dtype and items.dtype == np.int64
        np.testing.assert_array_equal(items, expected_items)
        np.testing.assert_array_equal(best, expected_best)
    if first.all():
        with kernels():
            items, best = top_k(scores, count)
        np.testing.assert_array_equal(items, expected_items)


def test_a_table_that_changes_is_laid_out_again() -> None:
    items, users, nothing = np.ones((20, 3), np.float32), np.ones((1, 3)), np.zeros(20)
    for value in (1.0, 2.0):
        items[:] = value
        assert (row_scores(users, items, np.zeros(1), nothing) == 3 * value).all()


def test_no_score_is_too_large_for_the_first_items():
    scores = np.array([[1e308, -1e308, np.nan, 3.0, -np.inf]])
    items, best = top_k(scores, 4, first=np.array([False, True, True, False, True]))
    assert items.tolist() == [[1, 0, 3, -1]]
    assert best.tolist() == [[-1e308, 1e308, 3.0, -np.inf]]


def test_bad_arguments_are_refused():
    one = np.ones((2, 3))
    for arguments in ((one, -1), (one.astype(int), 1), (one, 1, np.ones(2, np.bool_))):
        with pytest.raises(ValueError):
            top_k(*arguments)


@pytest.mark.parametrize(("width", "dtype"), [(0, np.float32), (7, np.float64), (37, np.float32)])
def test_scores_of_one_row_are_those_of_the_product(width: int, dtype) -> None:
    rng = np.random.default_rng(width)
    items = rng.standard_normal((301, width)).astype(dtype)
    users, offset, level = rng.standard_normal((5, width)), rng.standard_normal(5), rng.standard_normal(301)
    items.setflags(write=False)
    for these in (items, items[::-1]):
        found = row_scores(users, these, offset, level)
        expected = offset[:, None] + level + users @ these.astype(float).T
        np.testing.assert_allclose(found, expected, atol=1e-13)
        for row in range(5):
            alone = row_scores(users[row : row + 1], these, offset[row : row + 1], level)
            np.testing.assert_array_equal(alone[0], found[row])
    bad = (users[:, :0], items[:, :1], offset, level) if width else (users[0], items, offset, level)
    for wrong in ((users, items, offset[:-1], level), (users, items, offset, level[1:]), bad):
        with pytest.raises(ValueError, match="shape"):
            row_scores(*wrong)
