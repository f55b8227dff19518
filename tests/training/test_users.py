"""Contributions of users, against loops over users, items and ratings that follow the docstrings."""

import math
import os
import subprocess
import sys
import tracemalloc
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from hushrec.data import Domain, Ratings
from hushrec.kernels.sweeps import SweepSettings
from hushrec.models.private_als.users import FittedUsers
from hushrec.privacy import Bounded
from hushrec.training.users import (
    Users,
    clip_factor,
    clipped_rows,
    finite_or_zero,
    fixed_gramian,
    less_user_means,
    likes,
    norms,
    outer_product_sum,
    ridge_on_items,
)
from tests.opening import opened

ROOT = Path(__file__).parents[2]
ITEMS, CENTER, RIDGE = 7, 3.2, SweepSettings(regularization=0.4, bias_regularization=2.5)
WEIGHTS = np.array([0.9, 0.2, 0.5, 1.0, 0.3, 0.7, 0.4])
SLOPES = np.array([3.0, 1.0, 2.0, 5.0, 0.5, 2.0, 1.0])
RNG = np.random.default_rng(4)
#: By user, one of them with a single rating and one with all.
ROWS = {
    f"u{number}": {int(j): float(RNG.integers(2, 11)) / 2 for j in RNG.choice(ITEMS, size, replace=False)}
    for number, size in enumerate((1, 2, 2, 3, 4, 5, 7, 3))
}
ROWS["u8"] = {0: 1.0, 1: 5.0}  # both ends of the range
MODEL = RNG.normal(0, 0.7, (ITEMS, 4))  # three factors, and the bias in the last column


def rows() -> Ratings:
    cells = [(user, f"i{item}", rating) for user, hers in ROWS.items() for item, rating in hers.items()]
    domain = Domain([f"i{j}" for j in range(ITEMS)], rating_range=(1, 5))
    return Ratings.from_any(tuple(map(list, zip(*cells))), domain)


def fitted(rank: int = 3, weights: np.ndarray | None = WEIGHTS) -> tuple[FittedUsers, np.ndarray]:
    """Users who know the items' last ``rank`` factors and biases, and the items."""
    users, items = FittedUsers(rows()), MODEL[:, 3 - rank :].copy()
    users.weigh(CENTER, weights)
    users.fit(items, RIDGE)
    return users, items


def own(user: str, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A user's factors and offset, by the normal equations, and their residuals at all items."""
    hers = sorted(ROWS[user])
    ratings = np.array([ROWS[user][j] for j in hers]) - CENTER - items[hers, -1]
    design = np.column_stack([items[hers, :-1], np.ones(len(hers))])
    ridge = np.diag([RIDGE.regularization] * (items.shape[1] - 1) + [RIDGE.bias_regularization])
    found = np.linalg.solve(design.T @ design + ridge, design.T @ ratings)
    residuals = np.zeros(ITEMS)
    residuals[hers] = ratings - design @ found
    return found, residuals


def weighted(user: str, residuals: np.ndarray, weights: np.ndarray | None = WEIGHTS) -> np.ndarray:
    """Residuals times the items' weights with squares that add up to 1 over the ratings, or unweighted."""
    if weights is None:
        return residuals
    return residuals * weights / math.sqrt(sum(weights[j] ** 2 for j in ROWS[user]))


def shortened(row: np.ndarray, bound: float) -> np.ndarray:
    return row * min(1.0, bound / max(np.linalg.norm(row), 1e-300))


def near(expected, bound: float = 1.0):
    """Fits are in float32, clips leave 2^-22 of a bound."""
    return pytest.approx(expected, rel=3e-5, abs=3e-5 * min(bound, 1.0))


def on_its_grid(bounded: Bounded) -> bool:
    """All numbers are multiples of the declared step, and not of twice that."""
    steps = opened(bounded) / np.where(bounded.step > 0, bounded.step, 1.0)
    return bool((steps == np.rint(steps)).all() and (steps % 2).any())


def steps_of(bound: float, bits: int = 28) -> float:
    """The power of two of which the bound is more than half of so many, and at most all."""
    return 2.0 ** (math.floor(math.log2(bound)) + 1 - bits)


@pytest.mark.parametrize("size", [1.0, 1.19, 1.42, 1.68])
def test_sums_are_on_the_grid_that_they_declare(size: float) -> None:
    """Bounds from one power of two to the next: a step that follows from another bound shows at one."""
    users, items = fitted()
    first, second = users.item_sums(items, SLOPES, 0.3 * size, 0.1 * size, 1.7, 1.3)
    deviations, weights = users.item_deviations(0.2 * size)
    biases = fitted(0)[0].item_biases(fitted(0)[1], 0.4 * size, 1.3)
    residuals = users.item_residuals(items, 0.4 * size, 1.3)
    votes = [users.residual_variance(items, SLOPES, most * size) for most in (0.5, 0.6, 0.7, 0.8)]
    expected = [
        (first, steps_of(0.13 * size)), (biases, steps_of(0.52 * size)), (residuals, steps_of(0.52 * size)),
        (second, [*[steps_of(0.51 * size, 14) ** 2] * 6, steps_of(1.0)]), (users.spreads(3.0), steps_of(1.0)),
        (weights, steps_of(1.0)), (deviations, steps_of(0.4 * size)),
    ]  # fmt: skip
    for each, step in expected:
        assert (each.step == step).all() and on_its_grid(each)
    for each, most in zip(votes, (0.5, 0.6, 0.7, 0.8)):
        assert each.step == steps_of(most * size)
    assert any(on_its_grid(each) for each in votes)


@pytest.mark.parametrize("weights", [WEIGHTS, None], ids=["adaptive weights", "none"])
@pytest.mark.parametrize("clip", [0.05, 0.4, 50.0, math.inf])
def test_residuals_by_item(clip: float, weights: np.ndarray | None) -> None:
    users, items = fitted(0, weights)
    expected = sum(shortened(weighted(user, own(user, items)[1], weights), 1.3 * clip) for user in ROWS)
    biases = users.item_biases(items, clip, 1.3)
    assert opened(biases)[:, 0] == near(expected, clip)
    assert biases.sensitivity("add-remove") == near(clip) and biases.sensitivity("replace") == near(2 * clip)
    users, items = fitted(3, weights)
    expected = sum(shortened(weighted(user, own(user, items)[1], weights), 1.3 * clip) for user in ROWS)
    residuals = users.item_residuals(items, clip, 1.3)
    assert opened(residuals) == near(expected, clip) and residuals.sensitivity("replace") == near(2 * clip)


@pytest.mark.parametrize("norm", [0.02, 0.3, 2.0, math.inf])
@pytest.mark.parametrize("clip", [0.003, 0.1, 9.0, math.inf])
def test_residuals_times_factors(norm: float, clip: float) -> None:
    """The part of a user's factors in both sums is less where they are long, and where the product is."""
    users, items = fitted()
    spread, unit, sums, gram, unsure = 1.7, 1.3, np.zeros((ITEMS, 3)), np.zeros((3, 3)), 0.0
    typical = np.linalg.eigvalsh((items[:, :3].T * SLOPES / SLOPES.sum()) @ items[:, :3])
    for user in ROWS:
        found, residuals = own(user, items)
        factors, row = found[:3], weighted(user, residuals)
        length, size = np.linalg.norm(factors), np.linalg.norm(row)
        shrink = min(1.0, (norm * spread / length) ** 2, clip * unit / (length * size))
        sums += shrink * np.outer(row, factors)
        gram += shrink * np.outer(factors, factors)
        unsure += np.mean(0.4 / (0.4 + len(ROWS[user]) * typical))
    first, second = users.item_sums(items, SLOPES, norm, clip, spread, unit)
    assert opened(first) == near(sums, clip) and first.sensitivity("add-remove") == near(clip)
    packed = opened(second)
    assert packed[:-1] == pytest.approx(gram[np.tril_indices(3)], rel=1e-3, abs=2e-3 * min(norm, 2))
    assert packed[-1] == near(unsure)
    assert second.sensitivity("add-remove") == pytest.approx(math.sqrt(2) * norm**2)
    assert second.entry_scale[-1] == pytest.approx(norm**2 if math.isfinite(norm) else 1.0)


def mean_squares(items: np.ndarray, most: float) -> tuple[float, bool]:
    """The sum of the users' mean squared residuals, and whether a quarter of some user's ratings is left."""
    typical = np.linalg.eigvalsh((items[:, :-1].T * SLOPES / SLOPES.sum()) @ items[:, :-1])
    total, bound = 0.0, False
    for user, hers in ROWS.items():
        used = sum(1 - 0.4 / (0.4 + len(hers) * value) for value in typical) + len(hers) / (len(hers) + 2.5)
        left = max(len(hers) - used, len(hers) / 4, 1)
        bound |= left == len(hers) / 4 > 1
        total += min((own(user, items)[1] ** 2).sum() / left, most)
    return total, bound


@pytest.mark.parametrize("most", [0.05, 0.6, 40.0])
@pytest.mark.parametrize("rank", [0, 3])
def test_mean_squared_residuals(most: float, rank: int) -> None:
    users, items = fitted(rank)
    votes = users.residual_variance(items, SLOPES, most)
    assert opened(votes) == near([mean_squares(items, most)[0]], most)
    assert votes.sensitivity("replace") == pytest.approx(1.0)


def test_a_fit_uses_up_three_quarters_of_her_ratings_at_most() -> None:
    """Six factors and an offset of seven ratings leave a half of one; a quarter of them is taken for left."""
    users, items = FittedUsers(rows()), 5 * np.random.default_rng(9).normal(size=(ITEMS, 7))
    users.weigh(CENTER, WEIGHTS)
    users.fit(items, RIDGE)
    expected, bound = mean_squares(items, 100.0)
    assert bound and opened(users.residual_variance(items, SLOPES, 100.0)) == near([expected])


@pytest.mark.parametrize("clip", [0.03, 0.2, 30.0])
def test_deviations_and_weights_by_item(clip: float) -> None:
    """Deviations are from a user's own mean, on a range of half width 2; one factor shortens both."""
    deviations, weights = np.zeros(ITEMS), np.zeros(ITEMS)
    for hers in ROWS.values():
        mean, each = np.mean(list(hers.values())), 1 / math.sqrt(len(hers))
        size = math.sqrt(sum((each * (rating - mean)) ** 2 for rating in hers.values()))
        shrink = min(1.0, 2 * clip / size) if size else 1.0
        for item, rating in hers.items():
            deviations[item] += shrink * each * (rating - mean)
            weights[item] += shrink * each
    first, second = Users(rows()).item_deviations(clip)
    assert opened(first) == near(deviations, clip) and opened(second) == near(weights)
    assert first.sensitivity("replace") == 2.0 and second.sensitivity("add-remove") == 1.0


def test_numbers_of_users_and_their_means() -> None:
    users = Users(rows())
    means = [np.mean(list(hers.values())) for hers in ROWS.values()]
    assert opened(users.count()).tolist() == [len(ROWS)] and users.count().sensitivity("replace") == 1.0
    assert opened(users.mean_sum()) == near([sum(mean - 3 for mean in means)])
    assert opened(users.level()) == near([sum(mean - 3 for mean in means), len(ROWS)])
    spreads = np.zeros(3)
    for mean, hers in zip(means, ROWS.values()):
        many, within = len(hers), np.var(list(hers.values())) / 4
        between = (1 - 1 / many) * (mean - 2.6) ** 2 / 4 - within / many
        spreads += within, min(between, 1 - within), (1 - 1 / many) / 2
    assert opened(users.spreads(2.6)) == near(spreads)
    counts = np.zeros(ITEMS)
    for hers in ROWS.values():
        counts[list(hers)] += 1 / math.sqrt(len(hers))
    assert opened(users.item_weights()) == near(counts)


def test_one_user_moves_the_spreads_by_at_most_their_bound() -> None:
    """Every user with up to four ratings of 1, 3 and 5, and with 60 of one value; the bounds are reached."""
    domain = Domain(range(60), rating_range=(1, 5))
    sets = [each for n in range(1, 5) for each in combinations_with_replacement((1, 3, 5), n)]
    sets += [(value,) * 60 for value in (1, 3, 5)]
    alone = [Ratings.from_any(([0] * len(each), [*range(len(each))], [*each]), domain) for each in sets]
    longest, farthest, bound = 0.0, 0.0, Users(alone[0]).spreads(3.0)
    for center in (1.0, 3.0, 5.0):
        moved = np.array([opened(Users(ratings).spreads(center)) for ratings in alone])
        longest = max(longest, np.linalg.norm(moved, axis=1).max())
        farthest = max(farthest, np.linalg.norm(moved[:, None] - moved, axis=2).max())
    assert 0.999 < longest / bound.sensitivity("add-remove") <= 1
    assert 0.99 < farthest / bound.sensitivity("replace") <= 1


@pytest.mark.parametrize(("level", "of"), [(1.5e4, "center"), (1e6, "center"), (1.5e4, "items")])
def test_levels_far_from_zero_are_fitted_in_float64(level: float, of: str) -> None:
    """Beyond 10,000 float32 would lose the third digit of a residual, in the level or in the items."""
    domain = Domain([f"i{j}" for j in range(ITEMS)], rating_range=(level, level + 4))
    cells = [(user, f"i{j}", level - 1 + rating) for user, hers in ROWS.items() for j, rating in hers.items()]
    users = FittedUsers(Ratings.from_any(tuple(map(list, zip(*cells))), domain))
    moved = MODEL.copy()
    moved[:, -1] += level - 1 if of == "items" else 0
    users.weigh(CENTER if of == "items" else level - 1 + CENTER, WEIGHTS)
    users.fit(moved, RIDGE)
    rows_of_all = [weighted(user, own(user, MODEL)[1]) for user in ROWS]
    expected = sum(shortened(row, 0.4 * 1.3) for row in rows_of_all)
    assert opened(users.item_residuals(moved, 0.4, 1.3)) == pytest.approx(expected, abs=1e-6)


def test_norms_are_taken_in_float64() -> None:
    """Fits may be in float32; the norm for a clip may not, for any number of users."""
    rows_of_all = np.random.default_rng(1).normal(size=(20_000, 3))
    found = norms(rows_of_all)
    assert found == pytest.approx(np.sqrt((rows_of_all**2).sum(axis=1)), rel=1e-14)
    assert norms(rows_of_all.astype(np.float32)).dtype == np.float64
    small = (0.001 * rows_of_all).astype(np.float32)
    assert norms(small) == pytest.approx(np.sqrt((small.astype(np.float64) ** 2).sum(axis=1)), rel=1e-14)


def test_numbers_that_overflow_count_for_nothing_and_take_no_other_user_along() -> None:
    rows = np.array([[1.0, 2.0], [np.inf, 0.0], [3.0, np.nan], [4.0, 5.0]])
    alone = [[1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [4.0, 5.0]]
    np.testing.assert_array_equal(finite_or_zero(rows.copy()), alone)
    np.testing.assert_allclose(
        clip_factor(np.array([0.0, 2.0, np.inf, np.nan]), 1.0), [1.0, 0.5, 0.0, 0.0], 1e-6
    )
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(clipped_rows(rows, 100.0), alone)


def test_sums_of_outer_products_are_exact_and_of_all_users() -> None:
    """Oracle: integers, in units of the square of a step; of rows that take several blocks."""
    rng = np.random.default_rng(3)
    factors = rng.normal(size=(20_000, 3))
    factors *= 1.7 * rng.uniform(0, 1, (20_000, 1)) / np.linalg.norm(factors, axis=1, keepdims=True)
    scale, step = rng.uniform(0, 1, 20_000), steps_of(1.7, 14)
    for weights in (None, scale):
        rows = factors if weights is None else factors * weights[:, None]
        integers = np.trunc(rows / step).astype(np.int64)
        exact = (integers.T @ integers)[np.tril_indices(3)]
        found = fixed_gramian(factors, 1.7, weights)
        assert found.dtype == np.float64 and (found / step**2 == exact).all()
    exact = (factors.T @ factors)[np.tril_indices(3)]
    assert fixed_gramian(factors, math.inf) == pytest.approx(exact, rel=1e-12)
    assert fixed_gramian(factors.astype(np.float32), math.inf).dtype == np.float32
    assert fixed_gramian(factors.astype(np.float32), math.inf, scale).dtype == np.float64


@pytest.mark.parametrize("unobserved", [0.0, 0.3])
def test_a_user_is_served_by_her_own_regression(unobserved: float) -> None:
    """Oracle: normal equations in float64; unrated cells count if they are dislikes."""
    rng = np.random.default_rng(12)
    factors = rng.normal(size=(ITEMS, 3)).astype(np.float32)
    biases = np.zeros(ITEMS) if unobserved else rng.normal(size=ITEMS)
    arrays = {
        "center": np.float64(0.0 if unobserved else CENTER),
        "item_factors": factors,
        "item_bias": biases,
    }
    ridge = SweepSettings(
        regularization=0.4, bias_regularization=None if unobserved else 2.5, unobserved_weight=unobserved
    )
    given = rows().rows(np.isin(rows().users, ["u0", "u3"]), keyed=True)
    state = ridge_on_items(arrays, given.matrix, ridge)
    for number, user in enumerate(("u0", "u3")):
        hers = sorted(ROWS[user])
        target = np.array([ROWS[user][j] for j in hers]) - arrays["center"] - biases[hers]
        design = factors[hers].astype(np.float64)
        left = unobserved * factors.astype(np.float64).T @ factors + 0.4 * np.eye(3)
        if not unobserved:
            design = np.column_stack([design, np.ones(len(hers))])
            left = np.diag([0.4] * 3 + [2.5])
        wanted = np.linalg.solve(design.T @ design + left, design.T @ target)
        assert state.factors[number] == pytest.approx(wanted[:3], rel=1e-10, abs=1e-12)
        assert state.offset[number] == pytest.approx(0.0 if unobserved else wanted[3], rel=1e-10)


def test_ratings_less_their_users_means() -> None:
    given = rows()
    found = less_user_means(given)
    assert given.matrix.data.min() >= 1  # are as they were
    for user, hers in ROWS.items():
        row = found.matrix[[list(found.users).index(user)]].toarray()[0]
        mean = np.mean(list(hers.values()))
        assert row[sorted(hers)] == pytest.approx([hers[j] - mean for j in sorted(hers)], abs=1e-6)
    assert found.domain == given.domain and list(found.users) == list(given.users)


def test_who_has_no_rating_adds_to_no_sum() -> None:
    """Users without remaining ratings add nothing."""
    given = rows()
    cells = given.matrix.tocoo()
    more = Ratings.from_any(
        ([0, 99, *(10 + cells.row)], [f"i{j}" for j in (2, 5, *cells.col)], [5.0, 4.0, *cells.data]),
        given.domain,
    )
    mask = ~np.isin(np.repeat(more.users, np.diff(more.matrix.indptr)).astype(int), [0, 99])
    more, alike = more.where(mask, drop_empty=False, keyed=True), []
    assert more.n_users == len(ROWS) + 2 and not np.diff(more.matrix.indptr).all()
    for ratings in (given, more):
        alike.append([])
        for weights in (WEIGHTS, None):
            users, items = FittedUsers(ratings), MODEL.copy()
            users.weigh(CENTER, weights)
            users.fit(items, RIDGE)
            alike[-1] += [
                users.item_weights(),
                *users.item_deviations(0.2),
                users.item_residuals(items, 0.4, 1.3),
                *users.item_sums(items, SLOPES, 0.3, 0.1, 1.7, 1.3),
                users.residual_variance(items, SLOPES, 0.6),
            ]
    for without, with_them in zip(*alike, strict=True):
        assert opened(without).tobytes() == opened(with_them).tobytes()
    within = [opened(FittedUsers(ratings).spreads(3.0)) for ratings in (given, more)]
    assert within[0].tolist() == within[1].tolist()


def test_likes_are_ones_among_zeros_in_float64() -> None:
    """Above the threshold alone, in the places of all ratings: their releases keep the type."""
    for threshold, least in ((2.5, 2.5), (None, 3.0), (4.0, 4.0)):
        found = likes(rows(), threshold)
        assert found.data.dtype == np.float64
        wanted = [float(hers[item] > least) for hers in ROWS.values() for item in sorted(hers)]
        assert found.data.tolist() == wanted


def sweep_in_tables() -> list[float]:
    """Return the most memory of each question of a sweep, in tables of all users' factors in float32."""
    n_users, rank, items = 30_000, 64, 20
    columns = np.arange(2 * n_users) % items
    source = np.repeat(np.arange(n_users), 2), columns, 1 + 4.0 * (np.arange(2 * n_users) % 3 > 0)
    users = FittedUsers(Ratings.from_any(source, Domain(range(items), (1, 5))))
    model, table = RNG.normal(0, 0.1, (items, rank + 1)), 4 * n_users * (rank + 1)
    users.weigh(3.0, np.ones(items))
    users.fit(model, RIDGE)  # leaves a table that the next one replaces
    most = []
    for ask in (
        lambda: users.fit(model, RIDGE),
        lambda: users.residual_variance(model, np.ones(items), 1.0),
        lambda: users.item_sums(model, np.ones(items), 1.0, 1.0, 1.0, 1.0),
    ):
        ask()  # compiles
        tracemalloc.start()
        ask()
        most.append(tracemalloc.get_traced_memory()[1] / table)
        tracemalloc.stop()
    return most


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_sweep_holds_one_table_of_its_users(threads: str) -> None:
    """Killed: a copy of all users' factors, in float32 or in float64, in a fit or in their contributions.

    In a separate process, without the memory that other tests left.
    """
    words = "from tests.training.test_users import sweep_in_tables; print(*sweep_in_tables())"
    told = subprocess.run(
        [sys.executable, "-c", words],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads},
    )
    assert max(map(float, told.stdout.split())) < 1.5  # two where there is a copy


def test_bounds_of_levels_are_attained() -> None:
    """By adding a user, and by replacing one; in units of half the range."""
    domain = Domain(["a", "b"], rating_range=(1, 5))
    high, low, none = (
        Users(Ratings.from_any((["u"] * len(ratings), list("ab")[: len(ratings)], ratings), domain))
        for ratings in ([5.0, 5.0], [1.0], [])
    )
    for other, relation in ((none, "add-remove"), (low, "replace")):
        mine, theirs = high.level(), other.level()
        moved = np.linalg.norm((opened(mine) - opened(theirs)) * np.asarray(mine.entry_scale))
        assert moved == pytest.approx(mine.sensitivity(relation)) and moved <= mine.sensitivity(relation)


@pytest.mark.parametrize("bound", [0.9, 1.0, 1.7])
def test_outer_products_of_rows_are_integers_of_the_step_that_they_declare(bound: float) -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(40, 6)) * (rng.random((40, 6)) < 0.6)
    rows *= bound * rng.uniform(0, 1, (40, 1)) / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    found, step = outer_product_sum(sp.csr_array(rows), bound), steps_of(bound, 14)
    integers = np.trunc(rows / step).astype(np.int64)
    assert found.step == step**2
    assert (opened(found) / step**2 == (integers.T @ integers)[np.tril_indices(6)]).all()
    assert found.sensitivity("add-remove") == pytest.approx(bound**2)
    assert found.sensitivity("replace") == pytest.approx(math.sqrt(2) * bound**2)
    assert found.weight.tolist() == [1.0 if a == b else math.sqrt(2) for a in range(6) for b in range(a + 1)]
