"""Selection (Papernot and Steinke 2022): its price against dp-accounting, its law, and its gate."""

import itertools
import math
import os
import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from hushrec.errors import BudgetError, InputError
from hushrec.privacy import (
    Accountant,
    Bounded,
    Budget,
    Gaussian,
    Ledger,
    Plan,
    RandomizedResponse,
    Release,
    RepeatAndSelect,
    SystemNoise,
    counted,
)
from hushrec.privacy.accounting import mu_of, mu_of_pure
from hushrec.privacy.selection import selection_epsilon

BUDGET = Budget(3.0, 1e-6, failure=1e-6)
MEANS = [10.0, 100.0, 1.1]


@pytest.mark.parametrize("mean_runs", MEANS)
@pytest.mark.parametrize("mu", [0.05, 1.0, 2.5])
def test_the_price_is_that_of_dp_accounting(mean_runs, mu):
    """Killed: the factor 2 left out, log(mean)/order, the wrong end of the second order."""
    from dp_accounting import dp_event as de
    from dp_accounting.rdp import RdpAccountant

    event = de.RepeatAndSelectDpEvent(de.GaussianDpEvent(1 / mu), mean_runs, 1.0)
    orders = 1 + np.geomspace(1e-3, 1e4, 400)
    accountant = RdpAccountant(orders).compose(event)
    for delta in (1e-9, 1e-6, 1e-3):
        theirs = accountant.get_epsilon(delta)
        assert theirs * 0.98 <= selection_epsilon(mu, delta, mean_runs) <= theirs * 1.0001


@pytest.mark.parametrize("mean_runs", [*MEANS, 1.00001, 2.5, 1e6])
def test_the_number_of_runs_is_drawn_exactly(mean_runs, monkeypatch):
    """A run is the last one for exactly one of `mean_runs` random integers. Killed: a law in float64."""
    drawn = []
    monkeypatch.setattr(
        "hushrec.privacy.selection.secrets.randbelow", lambda below: drawn.append(below) or answers.pop(0)
    )
    answers = [0]
    assert RepeatAndSelect(1.0, 1e-6, mean_runs).draw_number_of_runs() == 1
    (below,) = drawn
    last = Fraction(below) / Fraction(mean_runs)
    assert last.denominator == 1  # so as many integers below `below` end the runs
    answers = [below - 1, int(last), int(last) - 1]
    assert RepeatAndSelect(1.0, 1e-6, mean_runs).draw_number_of_runs() == 3


def hockey_stick(mu, epsilon):
    """Delta of a mu-GDP release at an epsilon of any sign."""
    return stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)


def adaptive_delta(budget, first, selection):
    """Delta, at the budget's epsilon, of an adversary who sees a Gaussian release and then takes the worst
    mechanism.

    That is either the rest of mu or the worst mechanism that costs what the selection does: everything is
    revealed with the chance of its failure, otherwise randomized response of its epsilon.
    """
    mu, rest = first.mu, math.sqrt(budget.mu**2 - first.mu**2) * (1 - 1e-9)
    assert budget.allows([first, Gaussian(1 / rest)])
    loss = mu**2 / 2 + mu * np.linspace(-9, 9, 4001)
    weight = stats.norm.pdf(loss, mu**2 / 2, mu)
    left = budget.epsilon - loss
    truth = stats.logistic.cdf(selection.epsilon)
    told = [-np.expm1(np.minimum(left - sign * selection.epsilon, 0)) for sign in (1, -1)]
    chosen = selection.failure + (1 - selection.failure) * (truth * told[0] + (1 - truth) * told[1])
    return float((weight * np.maximum(hockey_stick(rest, left), chosen)).sum() / weight.sum())


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (3.0, 1e-6), (8.0, 1e-5)])
def test_an_adaptive_choice_between_noise_and_a_selection_keeps_delta(epsilon, delta):
    """Killed: the failure taken from delta when a selection is charged (nearly twice delta)."""
    accepted = 0
    for part, fraction, run in itertools.product(
        (0.3, 0.5, 0.7, 0.9, 0.97), (0.05, 0.1, 0.2, 0.4, 0.6, 0.8), (1e-6, 1e-3, 1e-2)
    ):
        selection = RepeatAndSelect(run, delta * part, 1.01)
        for declared in ({}, {"failure": delta * part}):
            budget = Budget(epsilon, delta, **declared)
            first = budget.share(fraction)
            if budget.allows([first, selection]):
                assert adaptive_delta(budget, first, selection) <= delta
                accepted += 1
    assert accepted > 20


def first_of(outcomes, monkeypatch):
    """Return the choice among runs with these outcomes: (result, score), or an exception to raise."""
    monkeypatch.setattr(RepeatAndSelect, "draw_number_of_runs", lambda self: len(outcomes))
    made = iter(outcomes)

    def run(inner):
        outcome = next(made)
        if isinstance(outcome, Exception):
            warnings.warn("a run that failed", stacklevel=1)
            raise outcome
        return outcome

    try:
        return Accountant(BUDGET).select(RepeatAndSelect(0.01, 1e-6, 5.0), "best", run)
    finally:
        assert next(made, None) is None, "a run was left out"


@pytest.mark.filterwarnings("error")
def test_runs_are_ranked_whatever_their_order(monkeypatch):
    """NaN and exceptions come last, and no run is left out because another failed.

    Killed: NaN that stays the best because it came first, an exception that ends the choice.
    """
    outcomes = [("nan", math.nan), ("worse", 2.0), ("best", 1.0), ("inf", math.inf), ValueError("a run")]
    for order in itertools.permutations(outcomes):
        assert first_of(order, monkeypatch) == "best"
        bad = [outcome for outcome in order if outcome not in outcomes[1:3]]
        usable = [outcome for outcome in bad if not isinstance(outcome, Exception)]
        assert first_of(bad, monkeypatch) == usable[0][0]
    with pytest.raises(ValueError, match="first"):
        first_of([ValueError("first"), TypeError("second")], monkeypatch)
    assert first_of([("one", 1.0), ("two", 1.0), ("one more", 1.0)], monkeypatch) == "one"


RATING = ("rating", "replace")


def flipped(epsilon):
    """A run that releases one label by randomized response."""

    def run(accountant):
        one = Bounded(np.ones(1), counted(1.0), unit=RATING[0], norm="labels")
        noisy = accountant.release(one, RandomizedResponse(epsilon), "label")
        return noisy, -float(noisy[0])

    return run


def chosen(run):
    return Accountant(Budget(50.0, 1e-5, *RATING, failure=1e-6)).select(
        RepeatAndSelect(5.0, 1e-6, 10.0), "best", run
    )


def test_a_run_must_be_gaussian_dp(monkeypatch):
    """Killed: the filter of a whole budget, which takes pure releases by the sum of their epsilons."""
    mechanism = RepeatAndSelect(5.0, 1e-6, 10.0)
    allowed = brentq(lambda epsilon: mu_of_pure(epsilon) - mechanism.run_mu, 0.01, 5.0) * (1 - 1e-9)
    assert chosen(flipped(allowed))[0] in (-1, 1)
    monkeypatch.setattr(SystemNoise, "flip", lambda *_: pytest.fail("noise was drawn"))
    for epsilon in (allowed * 1.001, 5.0):
        with pytest.raises(BudgetError, match="pure epsilons do not count"):
            chosen(flipped(epsilon))
    plan = Plan(Budget(5.0, 1e-6, *RATING), [Release("label", RandomizedResponse(5.0), 1.0, *RATING)])
    with pytest.raises(BudgetError, match="pure epsilons do not count"):
        chosen(lambda inner: inner.check(plan))
    with pytest.raises(BudgetError, match="cannot make a selection itself"):
        chosen(lambda inner: inner.select(RepeatAndSelect(0.01, 1e-9, 2.0), "again", flipped(0.001)))


def test_the_number_of_runs_has_its_law():
    """Oracle: the paper's definition for shape 1, by SciPy's geometric law. Killed: runs counted from 0."""
    drawn = [RepeatAndSelect(1.0, 1e-6, 3.0).draw_number_of_runs() for _ in range(3000)]
    mass = stats.geom(1 / 3.0).pmf(np.arange(1, 6))
    observed = np.bincount(np.minimum(drawn, 6), minlength=7)[1:]
    assert stats.chisquare(observed, np.append(mass, 1 - mass.sum()) * 3000).pvalue > 1e-9


def test_bad_parameters():
    for wrong in (
        (0.0, 1e-6, 10), (1.0, 2.0, 10), (1.0, 1e-6, 1.000009), (1.0, 1e-6, 1.01e6), (1.0, 1e-6, math.inf),
        (1.0, 1e-6, "10"), (1.0, 1e-6, math.nan), (1.0, 1e-6, None),
    ):  # fmt: skip
        with pytest.raises(InputError):
            RepeatAndSelect(*wrong)
    with pytest.raises(InputError):
        Accountant(BUDGET).select(Gaussian(1.0), "best", flipped(1.0))


def test_the_best_within_a_budget_fits_it_and_not_by_much():
    for budget, mean_runs in itertools.product((BUDGET, Budget(1.0, 1e-5, failure=9e-6)), MEANS):
        mechanism = RepeatAndSelect.within(budget, mean_runs)
        assert budget.epsilon * 0.999 < mechanism.epsilon <= budget.epsilon
        assert budget.allows([mechanism]) and mechanism.delta == budget.failure
        assert not budget.allows([mechanism, Gaussian(1e6)])
    endless = RepeatAndSelect.within(Budget(math.inf, 1e-6), 10)
    assert (endless.epsilon, endless.mu, endless.run_mu, endless.noise_sd(3.0)) == (*[math.inf] * 3, 0.0)
    for epsilon in (1e3, 1e300):  # where every run is as good as one without privacy, too
        assert RepeatAndSelect.within(Budget(epsilon, 1e-6, failure=1e-7), 10).run_epsilon <= epsilon
    with pytest.raises(InputError, match="generated or public"):
        RepeatAndSelect.within(Budget(1e-4, 1e-6, failure=1e-6), 1e6)
    with pytest.raises(BudgetError, match="failure=1e-06"):
        RepeatAndSelect.within(Budget(30.0, 1e-6), 10.0)


def test_a_selection_takes_its_failure_from_the_reserve():
    """Killed: failure left out of the sum, of the composed epsilon; Gaussian noise for all of delta."""
    one, wide = RepeatAndSelect(0.05, 1e-9, 2.0), Budget(30.0, 1e-6, failure=1e-9)
    assert wide.allows([one, Gaussian(2.0)])
    assert wide.mu == pytest.approx(mu_of(30.0, 1e-6 - 1e-9), rel=1e-14) and wide.mu < Budget(30.0, 1e-6).mu
    assert not Budget(30.0, 1e-9, failure=1e-9).allows([one, Gaussian(2.0)])
    assert not wide.allows([one, one]) and Budget(30.0, 1e-6, failure=2e-9).allows([one, one])
    assert not Budget(30.0, 1e-6).allows([one])
    release = Release("best", one, 1.0, "user", "add-remove")
    for refuse in (Budget(30.0, 1e-6).check_reserve, lambda costs: Plan(Budget(30.0, 1e-6), costs).check()):
        with pytest.raises(BudgetError, match="failure=1e-09"):
            refuse([release])
    assert Release.from_dict(release.to_dict()) == release


def test_select_charges_the_whole_once_and_before_the_first_run(tmp_path, monkeypatch):
    """It returns the lowest score, and only that. Killed: the last run, the highest score."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("default", BUDGET)
    accountant, mechanism = Accountant(BUDGET, ledger=ledger), RepeatAndSelect.within(BUDGET, 5.0)
    seen, results = [], []

    def run(inner):
        seen.append(ledger.summary("default").charges)
        assert inner.ledger is None and inner.budget.epsilon == mechanism.run_epsilon < BUDGET.epsilon
        results.append(float(inner.release(Bounded(0.0, counted(1.0)), inner.budget.share(1.0), "score")))
        return results[-1], results[-1]

    monkeypatch.setattr(RepeatAndSelect, "draw_number_of_runs", lambda self: 20)
    assert accountant.select(mechanism, "best of several", run) == min(results) and len(set(results)) == 20
    assert seen == [1] * 20
    assert accountant.releases == (Release("best of several", mechanism, 1.0, "user", "add-remove"),)
    assert ledger.summary("default").epsilon == mechanism.epsilon
    statement = accountant.statement()
    assert statement.private and statement.spent_epsilon == mechanism.epsilon
    assert statement.pure_epsilon is None and "best of several" in statement.text()
    assert type(statement).from_dict(statement.to_dict()) == statement
    with pytest.raises(BudgetError):
        accountant.select(mechanism, "again", run)
    with pytest.raises(BudgetError):
        Accountant(BUDGET, ledger=ledger).release(Bounded(0.0, counted(1)), BUDGET.share(0.01), "more")


@pytest.mark.parametrize("number", [1, 2])
def test_a_fork_makes_no_runs_of_its_own(number, monkeypatch):
    """Killed: a run that returns in both processes, after which each goes on to run, or to choose."""
    made, real = [], os.getpid
    monkeypatch.setattr(RepeatAndSelect, "draw_number_of_runs", lambda self: number)
    monkeypatch.setattr(os, "getpid", lambda: -1 if made else real())  # as in a child, after the first
    with pytest.raises(BudgetError, match="fork"):
        chosen(lambda inner: (made.append(inner), 0.0))
    assert len(made) == 1
