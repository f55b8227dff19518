"""C1: what reaches the gate is the same to the last bit for any order of the users and any threads.

C2: there is room in it for as many users as are allowed, and no more are.

Planting ``spacing = lambda *_: 0.0`` (sums in floating point) fails nearly every case.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from hushrec import users as users_module
from hushrec.algorithms import GlobalMean
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.kernels import fixed_point, threads
from hushrec.papers.frank_wolfe import projected_gradient
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import RecordingNoise, ReplayNoise, SeededNoise
from tests.algorithms.cases import CASES, Case, hostile_data, ratings_of

USERS = 60
USER_CASES = [case for case in CASES if case.unit == "user"]


def values(case: Case, ratings: Ratings, calls: list) -> list[bytes]:
    """What every release was given, in a run fed with recorded noisy releases."""
    noise = RecordingNoise(ReplayNoise(calls))
    case.estimator.fit(ratings, Accountant(case.budget("add-remove"), noise=noise), seed=1)
    return [call.value.tobytes() for call in noise.calls]


def check(case: Case, orders: int, seed: int, monkeypatch: pytest.MonkeyPatch, record) -> None:
    """Users in another order, on 1, 2 or 8 threads, rows cut into larger or smaller pieces.

    Of threads, ranges and blocks 9 orders have every pair, and 27 have all three together.
    """
    monkeypatch.setattr(threads, "ROWS_TOGETHER", 1)
    rng = np.random.default_rng(seed)
    users = hostile_data(rng, USERS)
    ratings = ratings_of(users)
    noise = RecordingNoise(SeededNoise(seed))
    with threads.limit(1):
        case.estimator.fit(ratings, Accountant(case.budget("add-remove"), noise=noise), seed=1)
    expected = [call.value.tobytes() for call in noise.calls]
    for number in range(orders):
        monkeypatch.setattr(threads, "SMALLEST_RANGE", (8.0, 100.0, 1e9)[number % 3])
        monkeypatch.setattr(projected_gradient, "_BLOCK", (16, 100, 1 << 21)[number // 3 % 3])
        shuffled = {name: users[name] for name in rng.permutation(list(users))}
        with threads.limit((1, 2, 8)[(number + number // 3 + number // 9) % 3]):
            assert values(case, ratings_of(shuffled), noise.calls) == expected
    record("permutations", orders)


@pytest.mark.parametrize("case", USER_CASES, ids=lambda case: case.name)
def test_sums_do_not_depend_on_order_or_threads(case: Case, monkeypatch, record_property) -> None:
    check(case, 9, 5, monkeypatch, record_property)


@pytest.mark.full
@pytest.mark.parametrize("case", USER_CASES, ids=lambda case: case.name)
def test_sums_do_not_depend_on_order_or_threads_at_length(case: Case, monkeypatch, record_property) -> None:
    for seed in range(25):
        check(case, 27, seed, monkeypatch, record_property)


def additive(case: Case, seed: int) -> bool:
    """Whether each release of all users is that of all but one plus that of her alone, to the last bit."""
    users = hostile_data(np.random.default_rng(seed), USERS)
    noise = RecordingNoise(SeededNoise(seed))
    case.estimator.fit(ratings_of(users), Accountant(case.budget("add-remove"), noise=noise), seed=1)
    parts = []
    for names in (list(users), list(users)[:-1], list(users)[-1:]):
        again = RecordingNoise(ReplayNoise(noise.calls))
        ratings = ratings_of({name: users[name] for name in names})
        case.estimator.fit(ratings, Accountant(case.budget("add-remove"), noise=again), seed=1)
        parts.append([call.value for call in again.calls])
    return all((whole == rest + alone).all() for whole, rest, alone in zip(*parts))


@pytest.mark.parametrize("case", USER_CASES, ids=lambda case: case.name)
def test_a_user_moves_a_sum_by_her_contribution_exactly(case: Case) -> None:
    """The attack on rounded sums (Casacuberta et al. 2022) has nothing to work with."""
    assert all(additive(case, seed) for seed in range(3))


def test_without_fixed_point_rounding_moves_sums(plain_sums: None) -> None:
    """The control: in floating point what one user adds depends on the others."""
    failed = [case.name for case in USER_CASES if not all(additive(case, seed) for seed in range(3))]
    assert len(failed) > len(USER_CASES) / 2


def test_more_users_than_a_sum_has_room_for_are_refused(monkeypatch, record_property) -> None:
    """C2: an error before anything is spent, and never a wrapped sum."""
    monkeypatch.setattr("hushrec.estimator.LARGEST_COUNT", 2)
    ratings = Ratings.from_any((["a", "b", "c"], ["x"] * 3, [1.0, 2.0, 3.0]), Domain(["x"], (1, 5)))
    accountant = Accountant(Budget(1.0, 1e-6))
    with pytest.raises(InputError, match="users"):
        GlobalMean().fit(ratings, accountant)
    assert accountant.releases == ()
    record_property("overflow cases", 1)


@pytest.mark.parametrize("bound", [1e-300, 1e-9, 0.3, 0.5, 1.0, 1.5, 2.0, 4096.0, 1e12])
@pytest.mark.parametrize("bits", [fixed_point.ENTRY_BITS, fixed_point.FACTOR_BITS])
def test_a_full_sum_is_exact(bound: float, bits: int, record_property) -> None:
    """In integers: as many users as are allowed, each at the bound, stay below 2^53 steps."""
    step = fixed_point.spacing(bound, bits)
    mantissa, _ = np.frexp(step)
    assert mantissa == 0.5 and bound / step <= 2**bits < 4 * bound / step
    at_bound = int(fixed_point.truncated(np.array([bound]), step)[0] / step)
    power = 2 if bits == fixed_point.FACTOR_BITS else 1
    assert fixed_point.LARGEST_COUNT * at_bound**power <= 2**53
    record_property("overflow cases", 1)


@pytest.mark.parametrize("bound", [1e-290, 0.75, 1.0, 3.0, 1.2e308, math.inf])
def test_steps_are_powers_of_two_in_proportion_to_any_finite_bound(bound: float) -> None:
    step = fixed_point.spacing(bound, 14)
    if bound == math.inf:
        assert step == 0
    else:
        assert math.frexp(step)[0] == 0.5
        assert Fraction(bound) <= 2**14 * Fraction(step) <= 2 * Fraction(bound)


def test_truncation_makes_nothing_longer() -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal(1000) * 10.0 ** rng.integers(-12, 3, 1000)
    step = fixed_point.spacing(1.0)
    fixed = fixed_point.truncated(values, step)
    assert (np.abs(fixed) <= np.abs(values)).all() and (np.abs(fixed - values) < step).all()
    assert (fixed / step == np.round(fixed / step)).all()
    assert fixed_point.truncated(values, 0.0) is values


@pytest.mark.parametrize("bound", [1e-200, 0.3, 1.0, 1e12])
def test_a_clip_leaves_room_for_rounding(bound: float) -> None:
    """What it scales to is shorter than the bound by more than norms and weights are rounded."""
    norms = bound * 10.0 ** np.random.default_rng(2).uniform(-3, 3, 1000)
    for norm, factor in zip(norms, users_module.clip_factor(norms, bound)):
        assert Fraction(factor) * Fraction(norm) <= Fraction(bound) * (1 - Fraction(1, 1 << 23))
