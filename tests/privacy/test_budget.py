"""D4: the grid of bad parameters; shares that fit; which costs a budget allows."""

import math
import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hushrec.errors import BudgetError, InputError
from hushrec.privacy import (
    Bound,
    Bounded,
    Budget,
    Gaussian,
    Laplace,
    Plan,
    RandomizedResponse,
    Release,
    RepeatAndSelect,
    counted,
    delta_of,
    epsilon_of,
    signed,
    together,
)
from hushrec.privacy._validate import shown
from hushrec.privacy.budget import composed_epsilon

NOT_NUMBERS = [
    None, True, False, np.True_, "1", "", b"1", math.nan, np.float64("nan"), np.float32("nan"), 1j, [1.0],
    (1.0,), {1.0}, {}, np.array(1.0), np.array([1.0]), Decimal("1"), Fraction(1, 2), object(), int,
    10**400, -(10**400), 10**5000, lambda: 1.0,
]  # fmt: skip
NOT_POSITIVE = [
    -1,
    -1.0,
    0,
    0.0,
    -0.0,
    float("1e-400"),
    -math.inf,
    -5e-324,
    np.int64(0),
    np.float32(-1),
    -(10**30),
]
NOT_A_DELTA = [1, 1.0, 2, 1e-301, 5e-324, math.inf, np.float64(1), 1e300]
NOT_WORDS = [None, True, 1, "", "users", "User", "add_remove", b"user", ["user"], math.nan]


def refused(call, *arguments, **named):
    """One sentence, with a period at its end and nowhere else but inside numbers."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **named)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 250
    assert ". " not in message
    return message


@pytest.mark.parametrize("delta", [1e-6, 0.5])
@pytest.mark.parametrize("epsilon", NOT_NUMBERS + NOT_POSITIVE, ids=lambda value: type(value).__name__)
def test_bad_epsilon(epsilon, delta):
    """Killed: epsilon=nan accepted (diffprivlib), bool taken for a number."""
    assert "epsilon" in refused(Budget, epsilon, delta)
    assert "epsilon" in refused(RandomizedResponse, epsilon)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize(
    "delta", NOT_NUMBERS + NOT_POSITIVE + NOT_A_DELTA, ids=lambda value: type(value).__name__
)
def test_bad_delta(epsilon, delta):
    assert "delta" in refused(Budget, epsilon, delta)


def test_the_full_grid(record_property):
    """Every pair of a bad epsilon and a bad delta, under every unit and relation."""
    count = 0
    for epsilon in NOT_NUMBERS + NOT_POSITIVE:
        for delta in NOT_NUMBERS + NOT_POSITIVE + NOT_A_DELTA:
            for unit, relation in (("user", "add-remove"), ("rating", "replace")):
                with pytest.raises(InputError):
                    Budget(epsilon, delta, unit, relation)
                count += 1
    assert count >= 500
    record_property("refused", count)


@pytest.mark.parametrize("epsilon", [1e-39, 1e-160, 1e-200, 1e-300])
def test_a_budget_that_noise_would_drown(epsilon):
    """Killed: trainings that end in OverflowError or LinAlgError, since the square of mu is no number."""
    assert "larger epsilon" in refused(Budget, epsilon, 1e-300)
    assert Budget(epsilon, 1e-6).mu > 1e-6  # delta alone allows it
    assert Budget(1e-37, 1e-300).mu > 1e-40
    assert Budget(1e-39, 1e-300, failure=1e-300).mu == 0  # all of it is for selections


def test_the_smallest_budget():
    assert 1e-40 < Budget(5.5e-39, 1e-300).mu < 2e-40
    assert "larger epsilon" in refused(Budget, 3e-39, 1e-300)


def test_the_slack_of_the_filter_is_what_rounding_needs():
    """1e-12 of mu squared, and of epsilon where all releases are pure."""
    budget = Budget(3.0, 1e-6)
    assert budget.allows([Gaussian(1 / (budget.mu * (1 + 0.4e-12)))])
    assert not budget.allows([Gaussian(1 / (budget.mu * (1 + 0.6e-12)))])
    assert budget.allows([RandomizedResponse(3.0 * (1 + 0.8e-12))])
    assert not budget.allows([RandomizedResponse(3.0 * (1 + 1.2e-12))])


@pytest.mark.parametrize("word", NOT_WORDS, ids=repr)
def test_bad_unit_and_relation(word):
    assert "unit" in refused(Budget, 1, 1e-6, word)
    assert "relation" in refused(Budget, 1, 1e-6, "user", word)
    assert "unit" in refused(Release, "a", Gaussian(1), 1, word, "replace")
    assert "unit" in refused(Bounded, [1.0], counted(1), unit=word)


@pytest.mark.parametrize(
    "bad", NOT_NUMBERS + NOT_POSITIVE + [math.inf], ids=lambda value: type(value).__name__
)
def test_bad_sensitivity_and_fraction(bad):
    assert "sensitivity" in refused(Release, "a", Gaussian(1), bad, "user", "replace")
    assert "scale" in refused(Bounded, [1.0], counted(1), scale=bad)
    assert "fraction" in refused(Budget(1, 1e-6).share, bad)


@pytest.mark.parametrize("mechanism", [Gaussian, Laplace])
def test_bad_noise_multiplier(mechanism):
    for bad in NOT_NUMBERS + [-1, -math.inf, math.inf, -5e-324]:
        assert "noise_multiplier" in refused(mechanism, bad)
    assert mechanism(0).mu == math.inf


def test_bad_labels_mechanisms_scales_and_values():
    for label in (None, "", 1, "a\nb", "x" * 201):
        refused(Release, label, Gaussian(1), 1, "user", "replace")
    for mechanism in (None, "gaussian", 1.0, Gaussian):
        refused(Release, "a", mechanism, 1, "user", "replace")
    for scale in (0, -1, math.nan, math.inf, [1.0, 0.0], "1", [[1.0], [1.0], [1.0]], [1.0, 2.0, 3.0]):
        refused(Bounded, [1.0, 2.0], counted(1), weight=scale)
    for value in (None, "1", ["a"], [None], 1j, np.array(["2020"], dtype="M8[Y]"), object()):
        refused(Bounded, value, counted(1))
    refused(Bounded, [1], counted(1), norm="linf")
    for bound in (1.0, counted(0), signed(-1.0), signed(math.nan), None, (1.0, 2.0)):
        refused(Bounded, [1], bound)


def test_a_refused_value_is_named_briefly():
    for value, said in (
        (None, "None"), (True, "True"), (np.False_, "False"), (1.5, "1.5"), (np.float32(0.5), "0.5"),
        (2**63 - 1, str(2**63 - 1)), (2**63, "an integer too large for a float"), ("a" * 40, repr("a" * 40)),
        ("a" * 41, repr("a" * 40 + "...")), ([1.0], "a list"), (np.zeros(3), "a ndarray"),
    ):  # fmt: skip
        assert shown(value) == said
    for length in (1, 200):
        assert Release("x" * length, Gaussian(1), 1, "user", "replace").label == "x" * length


def test_numbers_of_any_type_are_kept_as_floats():
    for one in (1, 1.0, np.int32(1), np.float32(1), np.longdouble(1)):
        budget = Budget(one, np.float32(0.25), failure=np.float32(0.125))
        assert {type(number) for number in (budget.epsilon, budget.delta, budget.failure)} == {float}
        assert budget == Budget(1.0, 0.25, failure=0.125)
        chosen = RepeatAndSelect(one, np.float32(0.25), np.float32(2), one)
        found = [chosen.run_epsilon, chosen.delta, chosen.mean_runs, chosen.shape]
        found += [
            Gaussian(one).noise_multiplier,
            Laplace(one).noise_multiplier,
            RandomizedResponse(one).epsilon,
        ]
        found += [Release("a", Gaussian(1.0), one, "user", "replace").sensitivity]
        assert {type(number) for number in found} == {float} and set(found) == {1.0, 0.25, 2.0}
    assert Budget(math.inf, 1e-6).mu == math.inf


def test_labels_are_flipped_as_often_as_is_said():
    """1 / (1 + e^(epsilon/labels)) in 50 digits, rounded up, and never more than half of them."""
    excess = []
    with mpmath.workdps(50):
        for epsilon in np.geomspace(1e-3, 30, 200).tolist():
            found = RandomizedResponse(epsilon).flip_probability(2.0)
            exact = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon) / 2))
            excess.append(float(found / exact - 1))
            sd = 2 * mpmath.sqrt(exact * (1 - exact))
            assert RandomizedResponse(epsilon).noise_sd(2.0) == pytest.approx(float(sd), rel=1e-12)
    assert min(excess[40:]) >= 0 and 0.7e-15 < np.mean(excess[40:]) < 1.3e-15
    assert RandomizedResponse(1e-20).flip_probability(1.0) == 0.5


@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-6), (0.1, 1e-9), (20, 1e-5), (1e-3, 0.3)])
def test_shares_that_add_up_to_one_fit(epsilon, delta):
    """Killed: a noise multiplier rounded to nearest, compared without slack."""
    budget = Budget(epsilon, delta)
    generator = np.random.default_rng(0)
    splits = [[1.0], [0.5, 0.5], [1 / 3] * 3, [0.1] * 10, [1 / 49] * 49, [1 / 997] * 997, [0.1, 0.2, 0.7]]
    splits += [generator.dirichlet(np.ones(size)).tolist() for size in range(2, 60)]
    for split in splits:
        shares = [budget.share(fraction) for fraction in split]
        assert budget.allows(shares)
        assert delta_of(math.sqrt(math.fsum(share.mu**2 for share in shares)), epsilon) <= delta
        assert not budget.allows([*shares, budget.share(1e-9)])
    assert Budget(math.inf, delta).share(0.3) == Gaussian(0.0)


def test_share_takes_its_part_of_mu_squared():
    budget = Budget(2, 1e-6)
    assert budget.share(0.25).mu == pytest.approx(budget.mu / 2, rel=1e-14)
    with pytest.raises(InputError):
        budget.share(1.0000001)
    for part in np.random.default_rng(0).uniform(1e-9, 1, 300).tolist():
        assert Fraction(budget.share(part).mu) ** 2 <= Fraction(part) * Fraction(budget.mu) ** 2


def test_pure_releases_may_add_up_in_epsilon():
    """One release with epsilon 1 fits a budget of epsilon 1, though its mu is five times the budget's."""
    budget = Budget(1.0, 1e-6)
    assert budget.allows([Laplace(1.0)])
    assert budget.allows([Laplace(3.0)] * 3)
    assert budget.allows([RandomizedResponse(0.5), Laplace(2.0)])
    assert not budget.allows([Laplace(0.999)])
    assert not budget.allows([Laplace(1.0), Gaussian(1e6)])  # not pure any more
    assert not budget.allows([Laplace(1.0), Laplace(1e6)])
    many = [Laplace(400.0)] * 1000  # pure: 2.5; mu^2: fits epsilon 1 at a generous delta
    assert Budget(1.0, 1e-2).allows(many)


def test_plan():
    budget = Budget(1.0, 1e-6)
    one = Release("counts", budget.share(0.5), 2.0, "user", "add-remove")
    assert one.noise_sd == pytest.approx(2 / budget.mu * math.sqrt(2))
    plan = Plan(budget, [one, one])
    plan.check()
    assert plan.mu == pytest.approx(budget.mu, rel=1e-12)
    assert plan.epsilon == pytest.approx(1.0, rel=1e-9)
    assert Plan(budget, []).epsilon == 0.0
    assert Plan(budget, [Release("a", Laplace(10), 1, "user", "add-remove")]).epsilon == 0.1


def test_a_chance_of_failure_is_taken_off_delta_first():
    """What is left of delta is for the others; where nothing is, only pure costs are told."""
    chosen, noise = RepeatAndSelect(0.1, 1e-6, 2.0), Gaussian(5.0)
    assert composed_epsilon([chosen], 1e-6) == chosen.epsilon
    assert composed_epsilon([chosen], 0.99e-6) == math.inf == composed_epsilon([chosen, noise], 1e-6)
    mu = math.hypot(chosen.mu, noise.mu)
    assert composed_epsilon([chosen, noise], 1.5e-6) == pytest.approx(epsilon_of(mu, 0.5e-6), rel=1e-9)
    thrice = min(3 * chosen.epsilon, epsilon_of(math.sqrt(3) * chosen.mu, 1e-2 - 3e-6))
    assert composed_epsilon([chosen] * 3, 1e-2) == pytest.approx(thrice, rel=1e-9)
    endless = Budget(math.inf, 1e-6)
    endless.check_reserve([chosen])
    assert endless.allows([chosen, Gaussian(0.0)])
    with pytest.raises(BudgetError, match="Chances of failure come to 1e-06"):
        Budget(1.0, 1e-6, failure=0.9e-6).check_reserve([chosen])
    Budget(1.0, 1e-6, failure=1e-6).check_reserve([chosen])
    with pytest.raises(BudgetError, match="no Gaussian noise fits"):
        Budget(1.0, 1e-6, failure=1e-6).share(0.5)
    assert str(Budget(1.0, 1e-6, failure=1e-7)).endswith("add-remove), 1e-07 of delta reserved for failures")
    assert str(Budget(1.0, 1e-6)) == "epsilon = 1 at delta = 1e-06 (unit: user, relation: add-remove)"
    for wrong in (1.1e-6, -1e-9, math.nan, None, "1e-7"):
        assert "failure" in refused(Budget, 1.0, 1e-6, failure=wrong)


def test_a_plan_in_words():
    budget = Budget(1.0, 1e-6)
    one = Release("<counts>", budget.share(0.5), 2.0, "user", "add-remove")
    plan = Plan(budget, [one, replace(one, label="sums")])
    assert repr(plan) == f"Plan(2 releases: {budget.spell(plan.epsilon)})"
    html = plan._repr_html_()
    assert html.count("<tr>") == 3 and "<td>&lt;counts&gt;</td><td>Gaussian</td><td>2</td>" in html
    assert html.startswith("<p>Plan(2 releases: ") and "<td>release</td><td>mechanism</td>" in html
    again = plan.labelled(suffix=" again").releases
    assert [each.label for each in again] == ["<counts> again", "sums again"]
    for releases, words in (([one] * 3, "A plan of 3 releases would"), ([one], "Release '<counts>' would")):
        with pytest.raises(BudgetError, match=words):
            Plan(Budget(0.1, 1e-6), releases).check()
    for other in (replace(one, unit="rating"), replace(one, relation="replace")):
        with pytest.raises(InputError, match="compute the sensitivity for the budget's"):
            Plan(budget, [one, other]).check()


def test_a_bounded_value_keeps_what_is_declared():
    weight = np.array([1.0, 1 / 3])
    bounded = Bounded([1.0, 2.0], signed(1.0), scale=3.0, weight=weight)
    weight[0] = 5.0
    assert list(bounded.weight) == [1.0, 1 / 3] and list(bounded.entry_scale) == [3.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        bounded.weight[0] = 5.0
    assert (bounded.sensitivity("add-remove"), bounded.sensitivity("replace")) == (3.0, 6.0)
    alone = together([bounded])
    assert list(alone.entry_scale) == [3.0, 1.0] and alone.unit == "user"
    assert alone.bound == Bound(3.0, 6.0) and alone.scale == 1.0
    rating = Bounded([1.0], counted(2.0), unit="rating").times(2.0)
    both = together([rating, Bounded([1.0, 1.0], signed(1.5), unit="rating", step=0.25)])
    assert both.unit == "rating" and both.bound == Bound(math.hypot(4.0, 1.5), 5.0)
    assert list(both.entry_scale) == [2.0, 1.0, 1.0] and list(both.step) == [0.0, 0.25, 0.25]
    assert together([rating], signed(0.5)).bound == signed(0.5)
    user = Bounded([1.0], counted(1.0))
    for parts in ([rating, user], [user, rating], []):
        with pytest.raises(InputError, match="need one unit"):
            together(parts)
    assert together([rating, rating.times(2.0)]).unit == "rating"  # what was refused is not used up


def test_noise_too_small_for_a_float_is_refused():
    """Killed: sd underflows to 0 while a finite mu is charged."""
    with pytest.raises(InputError):
        Release("a", Gaussian(1e-10), 1e-300, "user", "replace")
    with pytest.raises(InputError):
        Release("a", RandomizedResponse(800.0), 1, "rating", "replace")
    with pytest.raises(InputError, match="a float cannot draw"):  # 1 / 6e-309 is nearly the largest float
        Release("a", Gaussian(6e-309), 1.0, "user", "add-remove")


def test_a_bounded_value_shows_nothing():
    import copy
    import pickle

    bounded = Bounded([123.0, 456.0], counted(1))
    assert "123" not in repr(bounded)
    assert "123" not in str(bounded)
    assert not hasattr(bounded, "__dict__")
    for store in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(InputError):
            store(bounded)


def test_what_is_left_fits():
    budget = Budget(2.0, 1e-6)
    spent = [Release("a", Budget(1.5, 1e-6).share(1.0), 1.0, "user", "add-remove")]
    words = r"what is left of it is epsilon = (.*) at delta = 1e-06 \(unit: user, relation: add-remove\)"
    left = float(re.fullmatch(words, budget.left(spent))[1])
    rest = Release("b", Budget(left, 1e-6).share(1.0), 1.0, "user", "add-remove")
    more = Release("b", Budget(left + 0.001, 1e-6).share(1.0), 1.0, "user", "add-remove")
    assert budget.allows([*spent, rest]) and not budget.allows([*spent, more])
    assert budget.left([*spent, rest, rest]) == "nothing is left of it"


@pytest.mark.parametrize("failure", [0.0, 4e-7])
@pytest.mark.parametrize("fraction", [0.01, 0.48, 1.0])
def test_a_part_has_that_part_of_mu_squared(fraction: float, failure: float) -> None:
    whole = Budget(3.0, 1e-6, relation="replace", failure=failure)
    part = whole.part(fraction)
    left = 1e-6 - failure
    assert part.mu == pytest.approx(math.sqrt(fraction) * whole.mu, rel=1e-6)
    assert delta_of(part.mu, part.epsilon) == pytest.approx(left, rel=1e-5)
    assert (part.delta, part.relation, part.failure) == (1e-6, "replace", failure)
    assert Budget(math.inf, 1e-6).part(fraction).epsilon == math.inf
    assert Budget(1e-6, 1e-6).part(fraction).epsilon == 1e-6, "what cannot be planned for is not asked for"
