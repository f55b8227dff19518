"""C2: there is room in a sum for as many users as are allowed, no more are, and nothing is rounded up."""

import math
from fractions import Fraction

import numpy as np
import pytest

from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.kernels import fixed_point
from hushrec.models import GlobalMean
from hushrec.privacy import Accountant, Budget
from hushrec.training import users as users_module


def test_more_users_than_a_sum_has_room_for_are_refused(monkeypatch, record_property) -> None:
    """C2: an error before anything is spent, and never a wrapped sum."""
    monkeypatch.setattr("hushrec.training.run.LARGEST_COUNT", 2)
    ratings = Ratings.from_any((["a", "b", "c"], ["x"] * 3, [1.0, 2.0, 3.0]), Domain(["x"], (1, 5)))
    accountant = Accountant(Budget(1.0, 1e-6))
    with pytest.raises(InputError, match="users"):
        GlobalMean().fit(ratings, accountant)
    assert accountant.releases == ()
    record_property("overflow cases", 1)


@pytest.mark.parametrize("bound", [1e-300, 1e-9, 0.3, 0.5, 1.0, 1.5, 2.0, 4096.0, 1e12])
@pytest.mark.parametrize("bits", [fixed_point.ENTRY_BITS, fixed_point.FACTOR_BITS])
def test_a_full_sum_is_exact(bound: float, bits: int, record_property) -> None:
    """As many users as are allowed, each at the bound, stay below 2^53 steps."""
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
    """A clipped row is shorter than the bound by more than norms and weights are rounded."""
    norms = bound * 10.0 ** np.random.default_rng(2).uniform(-3, 3, 1000)
    for norm, factor in zip(norms, users_module.clip_factor(norms, bound)):
        assert Fraction(factor) * Fraction(norm) <= Fraction(bound) * (1 - Fraction(1, 1 << 23))
