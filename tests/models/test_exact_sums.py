"""C2: sums are exact for any number of users, which nothing reveals, and nothing is rounded up."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from hushrec.data import realistic
from hushrec.errors import HushrecError, InputError
from hushrec.kernels import fixed_point
from hushrec.models import Popular, PrivateALS
from hushrec.papers.dpals import DPALS
from hushrec.privacy import Accountant, Bounded, Budget, Gaussian, signed, together
from hushrec.privacy.testing import SeededNoise
from hushrec.training import partitioned, users as users_module
from hushrec.training.partitioned import Call, Query, WeightedUsers, answer_all


@pytest.mark.parametrize("estimator", [PrivateALS(iterations=1), Popular(), DPALS()])
def test_more_users_than_float64_has_room_for_train_the_same_model(estimator, monkeypatch) -> None:
    """C2: no refusal, which would reveal their number, and the same sums in blocks."""
    ratings = realistic(30, 6, 90, seed=0)

    def trained() -> bytes:
        accountant = Accountant(Budget(1.0, 1e-6), noise=SeededNoise(0))
        return estimator.fit(ratings, accountant).to_bytes()

    in_one_sum = trained()
    monkeypatch.setattr("hushrec.training.run.LARGEST_COUNT", 7)
    assert trained() == in_one_sum


@pytest.mark.parametrize("exponent", [-30, -1, 0, 1, 30, 100])
def test_no_number_up_to_a_bound_has_more_steps_than_there_is_room_for(exponent: int) -> None:
    """Also next to a power of two, where a logarithm is rounded to a whole number."""
    power = 2.0**exponent
    for bound in (power, np.nextafter(power, 0), np.nextafter(power, np.inf), 1.5 * power):
        step = fixed_point.spacing(float(bound))
        assert math.frexp(step)[0] == 0.5 and 2**26 < Fraction(float(bound)) / Fraction(step) <= 2**28


#: Numbers of steps below and above what float64 holds, up to 2^62.
SIZES = [0, 1, -7, 2**51 - 1, 2**51, -(2**51) - 1, 2**53 + 1, -(2**53) - 3, 2**60 + 12345, -(2**62) + 1]


def exactly(steps: list[int], step: float = 2.0**-28) -> Bounded:
    return Bounded.of_steps(np.array(steps), bound=signed(1.0), step=step)


@pytest.mark.parametrize("noise_multiplier", [1.1e-4, 0.01, 1.0, 1e9])
def test_noise_is_added_to_sums_beyond_float64_exactly(noise_multiplier: float, record_property) -> None:
    """C2: the same noise on a small sum, in rational arithmetic, gives the same released number."""

    def released(steps: list[int]) -> np.ndarray:
        accountant = Accountant(Budget(1e12, 1e-6), noise=SeededNoise(4))
        return accountant.release(exactly(steps), Gaussian(noise_multiplier), "sums")

    small = [size % 2**40 for size in SIZES]
    for size, low, far, near in zip(SIZES, small, released(SIZES), released(small), strict=True):
        assert far == float(Fraction(float(near)) + Fraction(size - low, 2**28))
    record_property("overflow cases", len(SIZES))


def test_blocks_weights_and_joint_releases_keep_sums_beyond_float64(record_property, monkeypatch) -> None:
    """C2: sums of blocks, weighted groups, and parts of one release are exact integers."""
    monkeypatch.setattr(partitioned, "_MOST_TOGETHER", 0)  # one thread would join small blocks

    class Told:
        def __init__(self, steps: list[int]) -> None:
            self.total = lambda: exactly(steps)

    def answer(steps: list[int]) -> list[np.ndarray]:
        blocks = [partial(realistic, 3, 3, 6, seed=0)] * 5
        return answer_all(lambda rows: Told(steps), blocks, Query((), Call("total", (), {}), 0))

    steps = [2**53 - 1, -(2**53) + 1, 3]
    assert answer(steps)[0].tolist() == [5 * size for size in steps]
    groups = [(31 / 32, Told(SIZES[:8])), (1 / 32, Told(SIZES[:8])), (1.0, Told(SIZES[:8]))]
    weighted = WeightedUsers(groups).total()
    assert weighted._steps().tolist() == [64 * size for size in SIZES[:8]]
    assert (weighted.step == 2.0**-33).all()
    joint = together([weighted.times(3.0), exactly(SIZES)])
    assert joint._steps().tolist() == [64 * size for size in SIZES[:8]] + SIZES
    record_property("overflow cases", len(SIZES))


def test_noise_that_would_show_the_large_part_of_a_sum_is_refused() -> None:
    """Its grid would not divide what is added after the noise."""
    accountant = Accountant(Budget(1.0, 1e-6))
    with pytest.raises(InputError, match="overflow"):
        accountant.release(exactly([1]), Gaussian(2.0**37), "sums")
    assert accountant.releases == ()


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


def test_sums_without_a_step_are_not_added_over_groups() -> None:
    """They are not exact; the refusal follows from the declared step, not from the values."""

    class Inexact:
        def total(self) -> Bounded:
            return Bounded([1.5, 0.0], signed(1.0))

    with pytest.raises(HushrecError, match="exactly over groups"):
        WeightedUsers([(1.0, Inexact())]).total()
