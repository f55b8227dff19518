"""D4: bad parameters are refused in a sentence; shares that fit; which costs a budget allows."""

import copy
import math
import pickle
import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as some
from scipy.optimize import brentq
from scipy.stats import norm

from benchmarks import epsilon_page
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
    budget,
    counted,
    delta_of,
    epsilon_of,
    signed,
    together,
)
from hushrec.privacy.budget import composed_epsilon

NOT_NUMBERS = [
    None, True, np.True_, "1", math.nan, np.float32("nan"), 1j, [1.0], {}, np.array(1.0), Decimal("1"),
    Fraction(1, 2), int, 10**400, -(10**5000),
]  # fmt: skip
NOT_POSITIVE = [-1, 0.0, -0.0, -math.inf, -5e-324, np.int64(0), np.float32(-1), -(10**30)]
NOT_A_DELTA = [*NOT_NUMBERS, *NOT_POSITIVE, 1, 2, 1e-301, 5e-324, math.inf, np.float64(1)]
NOT_A_SIZE = [*NOT_NUMBERS, *NOT_POSITIVE, math.inf]
NOT_WORDS = [None, 1, "", "users", "User", b"user", ["user"]]
NOT_LABELS = [None, "", "  ", 1, "a\nb", "x" * 201]
NOT_VALUES = [None, "1", ["a"], 1j, np.array(["2020"], dtype="M8[Y]"), object()]
NOT_BOUNDS = [1.0, counted(0), signed(-1.0), signed(math.nan), None, (1.0, 2.0)]
NOT_WEIGHTS = [0, math.nan, math.inf, [1.0, 0.0], "1", [[1.0], [1.0], [1.0]], [1.0, 2.0, 3.0]]
USER = ("user", "add-remove")


def refused(call, *arguments, **named):
    """One sentence, with a period at its end and nowhere else but inside numbers."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **named)
    message = str(caught.value)
    assert message.endswith(".") and ". " not in message and "\n" not in message and len(message) < 250
    return message


#: The use of a parameter, values that it refuses, and the name in the sentence.
REFUSED = [
    (lambda bad: Budget(bad, 1e-6), NOT_NUMBERS + NOT_POSITIVE, "epsilon"),
    (RandomizedResponse, NOT_NUMBERS + NOT_POSITIVE, "epsilon"),
    (lambda bad: Budget(1.0, bad), NOT_A_DELTA, "delta"),
    (lambda bad: Budget(math.inf, bad), NOT_A_DELTA, "delta"),
    (lambda bad: Budget(bad, bad, "rating", "replace"), NOT_NUMBERS + NOT_POSITIVE, "epsilon"),
    (lambda bad: Budget(1, 1e-6, bad), NOT_WORDS, "unit"),
    (lambda bad: Budget(1, 1e-6, "user", bad), NOT_WORDS, "relation"),
    (lambda bad: Budget(1, 1e-6, failure=bad), [1.1e-6, -1e-9, *NOT_NUMBERS], "failure"),
    (lambda bad: Release("a", Gaussian(1), 1, bad, "replace"), NOT_WORDS, "unit"),
    (lambda bad: Release("a", Gaussian(1), bad, *USER), NOT_A_SIZE, "sensitivity"),
    (lambda bad: Release("a", bad, 1, *USER), [None, "gaussian", 1.0, Gaussian], "mechanism"),
    (lambda bad: Release(bad, Gaussian(1), 1, *USER), NOT_LABELS, "label"),
    (lambda bad: Bounded([1.0], counted(1), unit=bad), NOT_WORDS, "unit"),
    (lambda bad: Bounded([1.0], counted(1), scale=bad), NOT_A_SIZE, "scale"),
    (lambda bad: Bounded([1.0, 2.0], counted(1), weight=bad), NOT_WEIGHTS, ""),
    (lambda bad: Bounded([1.0], bad), NOT_BOUNDS, "bound"),
    (lambda bad: Bounded([1.0], counted(1), norm=bad), ["linf"], "norm"),
    (lambda bad: Bounded(bad, counted(1)), NOT_VALUES, "value"),
    (Budget(1, 1e-6).share, [*NOT_A_SIZE, 1.0000001], "fraction"),
    (Gaussian, [*NOT_NUMBERS, -1, math.inf, -5e-324], "noise_multiplier"),
    (Laplace, [*NOT_NUMBERS, -1, math.inf, -5e-324], "noise_multiplier"),
]


@pytest.mark.parametrize("make, values, word", REFUSED)
def test_bad_parameters_are_refused_by_name(make, values, word, record_property):
    """Killed: epsilon=nan accepted (diffprivlib), bool taken for a number."""
    for value in values:
        assert word in refused(make, value)
    record_property("refused", len(values))


def test_the_smallest_budgets_and_noise_of_no_float():
    """Killed: trainings that end in OverflowError, an sd that underflows to 0 under a finite charge."""
    for epsilon in (1e-7, 3e-7, 1e-39, 1e-300):
        assert "larger epsilon" in refused(Budget, epsilon, 1e-300)
    assert Budget(1e-300, 1e-6).mu > 1e-6  # delta alone allows it
    assert 1e-8 < Budget(5.5e-7, 1e-300).mu < 2e-8
    assert Budget(1e-7, 1e-300, failure=1e-300).mu == 0  # all of it is for selections
    for mechanism, sensitivity in (
        (Gaussian(1e-10), 1e-300), (RandomizedResponse(800.0), 1.0), (Gaussian(6e-309), 1.0),
        (Gaussian(10.0), 0.9e-291), (Gaussian(10.0), 1e308),
    ):  # fmt: skip
        assert "a float cannot draw" in refused(Release, "a", mechanism, sensitivity, *USER)
    for sensitivity in (1e-291, 1e308):  # a release without noise is what it says
        assert Release("a", Gaussian(0.0), sensitivity, *USER).noise_sd == 0.0
    Release("a", Gaussian(1.0), 1.5e-290, *USER)


def test_the_slack_of_the_filter_is_what_rounding_needs():
    """1e-12 of mu squared, and of epsilon where all releases are pure."""
    budget = Budget(3.0, 1e-6)
    assert budget.allows([Gaussian(1 / (budget.mu * (1 + 0.4e-12)))])
    assert not budget.allows([Gaussian(1 / (budget.mu * (1 + 0.6e-12)))])
    assert budget.allows([RandomizedResponse(3.0 * (1 + 0.8e-12))])
    assert not budget.allows([RandomizedResponse(3.0 * (1 + 1.2e-12))])


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


@settings(max_examples=60, deadline=None)
@given(
    some.sampled_from([(1, 1e-6), (0.1, 1e-9), (20, 1e-5), (1e-3, 0.3)]),
    some.lists(some.floats(1e-3, 1), min_size=1, max_size=60),
)
def test_shares_that_add_up_to_one_fit(declared, parts):
    """Killed: a noise multiplier rounded to nearest, compared without slack."""
    budget = Budget(*declared)
    shares = [budget.share(part / math.fsum(parts)) for part in parts]
    assert budget.allows(shares)
    assert delta_of(math.sqrt(math.fsum(share.mu**2 for share in shares)), budget.epsilon) <= budget.delta
    assert not budget.allows([*shares, budget.share(1e-9)])
    assert Budget(math.inf, budget.delta).share(0.3) == Gaussian(0.0)


def test_share_takes_its_part_of_mu_squared():
    budget = Budget(2, 1e-6)
    assert budget.share(0.25).mu == pytest.approx(budget.mu / 2, rel=1e-14)
    for part in np.random.default_rng(0).uniform(1e-9, 1, 300).tolist():
        assert Fraction(budget.share(part).mu) ** 2 <= Fraction(part) * Fraction(budget.mu) ** 2


def test_pure_releases_may_add_up_in_epsilon():
    """One release with epsilon 1 fits a budget of epsilon 1, though its mu is five times the budget's."""
    budget = Budget(1.0, 1e-6)
    for costs in ([Laplace(1.0)], [Laplace(3.0)] * 3, [RandomizedResponse(0.5), Laplace(2.0)]):
        assert budget.allows(costs)
    for costs in ([Laplace(0.999)], [Laplace(1.0), Gaussian(1e6)], [Laplace(1.0), Laplace(1e6)]):
        assert not budget.allows(costs)
    assert Budget(1.0, 1e-2).allows([Laplace(400.0)] * 1000)  # pure: 2.5; mu^2: fits at a generous delta


def test_a_chance_of_failure_is_taken_off_delta_first():
    """The rest of delta is for the others; if none is left, only pure costs are reported."""
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
    with pytest.raises(BudgetError, match="probabilities of failure sum to 1e-06"):
        Budget(1.0, 1e-6, failure=0.9e-6).check_reserve([chosen])
    Budget(1.0, 1e-6, failure=1e-6).check_reserve([chosen])
    with pytest.raises(BudgetError, match="no Gaussian noise fits"):
        Budget(1.0, 1e-6, failure=1e-6).share(0.5)
    assert str(Budget(1.0, 1e-6, failure=1e-7)).endswith("add-remove), 1e-07 of delta reserved for failures")


def test_a_bounded_value_keeps_what_is_declared():
    weight = np.array([1.0, 1 / 3])
    bounded = Bounded([1.0, 2.0], signed(1.0), scale=3.0, weight=weight, step=2.0**-200)
    weight[0] = 5.0
    assert list(bounded.weight) == [1.0, 1 / 3] and list(bounded.entry_scale) == [3.0, 1.0]
    assert bounded.step == 2.0**-200  # where a float32 would be 0
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
    for parts in ([rating, alone], [alone, rating], []):
        with pytest.raises(InputError, match="need one unit"):
            together(parts)
    assert together([rating, rating.times(2.0)]).unit == "rating"  # what was refused is not used up


def test_a_bounded_value_shows_nothing():
    bounded = Bounded([123.0, 456.0], counted(1))
    assert "123" not in repr(bounded) + str(bounded) and not hasattr(bounded, "__dict__")
    for store in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(InputError):
            store(bounded)


def test_what_is_left_fits():
    budget = Budget(2.0, 1e-6)
    spent = [Release("a", Budget(1.5, 1e-6).share(1.0), 1.0, *USER)]
    words = r"what is left of it is epsilon = (.*) at delta = 1e-06 \(unit: user, relation: add-remove\)"
    left = float(re.fullmatch(words, budget.left(spent))[1])
    rest, more = (Release("b", Budget(left + extra, 1e-6).share(1.0), 1.0, *USER) for extra in (0, 0.001))
    assert budget.allows([*spent, rest]) and not budget.allows([*spent, more])
    assert budget.left([*spent, rest, rest]) == "nothing is left of it"


@pytest.mark.parametrize("failure", [0.0, 4e-7])
@pytest.mark.parametrize("fraction", [0.01, 1.0])
def test_a_part_has_that_part_of_mu_squared(fraction, failure):
    whole = Budget(3.0, 1e-6, relation="replace", failure=failure)
    part = whole.part(fraction)
    assert part.mu == pytest.approx(math.sqrt(fraction) * whole.mu, rel=1e-6)
    assert delta_of(part.mu, part.epsilon) == pytest.approx(1e-6 - failure, rel=1e-5)
    assert (part.delta, part.relation, part.failure) == (1e-6, "replace", failure)
    spent = [Release("a", whole.share(part), 1.0, "user", "replace") for part in (0.09, 0.16)]
    assert whole.part_left(spent) == pytest.approx(0.75) and whole.part_left([]) == 1.0
    assert whole.part_left(5 * spent) == 0.0
    assert Budget(math.inf, 1e-6).part(fraction).epsilon == math.inf
    assert Budget(1e-6, 1e-6).part(fraction).epsilon == 1e-6, "what cannot be planned for is not asked for"


def test_a_plan():
    budget = Budget(np.float32(1), 1e-6)
    one = Release("<counts>", budget.share(0.5), np.longdouble(2.0), *USER)
    assert {type(each) for each in (budget.epsilon, one.sensitivity, Gaussian(1).noise_multiplier)} == {float}
    assert one.noise_sd == pytest.approx(2 / budget.mu * math.sqrt(2))
    plan = Plan(budget, [one, replace(one, label="sums")])
    plan.check()
    assert (plan.mu, plan.epsilon) == pytest.approx((budget.mu, 1.0), rel=1e-9)
    assert Plan(budget, [Release("a", Laplace(10), 1, *USER)]).epsilon == 0.1
    assert "<td>&lt;counts&gt;</td><td>Gaussian</td><td>2</td>" in plan._repr_html_()
    for releases, words in (([one] * 3, "A plan of 3 releases would"), ([one], "Release '<counts>' would")):
        with pytest.raises(BudgetError, match=words):
            Plan(Budget(0.1, 1e-6), releases).check()


@pytest.mark.true("E7")
def test_the_meaning_of_an_epsilon_is_bayes_rule_and_the_pages_word() -> None:
    """Against a coin flipped with probability 1 / (1 + e^epsilon), the most telling mechanism."""
    page = epsilon_page.PAGE.read_text(encoding="utf-8")
    for epsilon, word in (
        (0.3, "strong"),
        (1, "strong"),
        (3, "moderate"),
        (5, "weak in the worst case"),
        (11, "too weak"),
    ):
        flip = 1 / (1 + mpmath.exp(epsilon))
        for prior in (0.01, 0.5):
            seen = prior * (1 - flip) / (prior * (1 - flip) + (1 - prior) * flip)
            assert budget.belief(prior, epsilon) == pytest.approx(float(seen), rel=1e-12)
        said = budget.meaning(epsilon, 1e-6, "user", "add-remove")
        over, most = re.search(r"become (over )?([\d.]+)%", said).groups()
        assert over or 0 <= float(most) - 100 * budget.belief(0.5, epsilon) < 1
        assert word in said and "at most 0.1%" in said
    assert epsilon_page.words() in page and epsilon_page.table() in page
    assert "q times epsilon" in budget.meaning(1, 1e-6, "rating", "replace")
    assert budget.meaning(math.inf, 1e-6, "user", "add-remove")
    sd = 1 / budget.mu_of(1, 0.1)  # an outcome as often as 1 in 3, where delta is a tenth
    at = brentq(lambda at: norm.logsf(at, 1, sd) - norm.logsf(at, 0, sd) - 1, -9, 9)
    rare = re.search(r"of at most (\d+)%", budget.meaning(1, 0.1, "user", "add-remove"))[1]
    assert 0 <= int(rare) / 100 - norm.sf(at, 1, sd) < 0.01


def test_a_guess_about_a_value_is_bounded_under_replace_alone() -> None:
    """A user with five stars replaces one with one star: under add-remove a removal and an addition."""
    assert "are in the data" in budget.meaning(1, 1e-6, "user", "add-remove")
    assert "in the data" not in budget.meaning(1, 1e-6, "user", "replace")
    page = epsilon_page.PAGE.read_text(encoding="utf-8")
    for epsilon, text in ((1, "1 counts as 2.2"), (3, "3 as 6.6"), (5, "5 as 11.3")):
        doubled = budget.epsilon_of(2 * budget.mu_of(epsilon, 1e-6), 1e-6)
        assert text in page and text.endswith(f"{math.ceil(10 * doubled) / 10}")
