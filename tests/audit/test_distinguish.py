"""B1: no pair of neighbours is told apart better than claimed, and the test would notice."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hushrec.algorithms import GlobalMean, ItemBias, Popular
from hushrec.audit.distinguish import distance, distinguish, worst_pair
from hushrec.errors import InputError
from hushrec.papers.dpals import DPALS
from hushrec.papers.one_bit import OneBitCompletion
from hushrec.privacy import (
    Bounded,
    Budget,
    Laplace,
    Plan,
    RandomizedResponse,
    Release,
    SystemNoise,
    counted,
    mu_of_pure,
)
from hushrec.privacy.testing import SeededNoise
from hushrec.testing import replay, transcript
from hushrec.users import Users
from tests.algorithms.cases import CASES, DOMAIN, Case

SINGLE = {case.name: case for case in CASES if case.name in ("global-mean", "item-bias", "popular")}
ADAPTIVE = [case for case in CASES if case.name not in SINGLE and case.unit == "user"]
PUBLISHED = next(case for case in CASES if case.name == "dpals")


class Scaled(SystemNoise):
    """Noise that is not what is charged."""

    def __init__(self, factor):
        self.factor = factor

    def add_gaussian(self, value, sd, label):
        return super().add_gaussian(value, np.asarray(sd) * self.factor, label)

    def add_laplace(self, value, scale, label):
        return super().add_laplace(value, np.asarray(scale) * self.factor, label)

    def flip(self, labels, probability, label):
        return super().flip(labels, probability * self.factor, label)


def audit(case: Case, budget: Budget, runs: int, noise=None):
    pair = worst_pair(case.estimator, case.estimator.plan(budget, DOMAIN), DOMAIN, 0)
    return distinguish(case.estimator, budget, runs=runs, pair=pair, noise=noise)


def note(result, record):
    """What ``make trust`` prints: all figures of the pair on which the test saw most of the claim."""
    figures = result.lower_bound / result.claimed_mu, result.claimed_mu, result.pair_mu, result.lower_bound
    record("largest audit", " ".join(f"{figure:.4f}" for figure in figures))
    record("runs", len(result.with_user) + len(result.without_user))
    record("pairs", 1)


@pytest.mark.parametrize("epsilon", [1, 5, 10])
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("name", SINGLE)
def test_one_release(name, relation, epsilon, record_property):
    """20,000 runs on either side of a pair: not above the claim, and not blind."""
    result = audit(SINGLE[name], Budget(epsilon, 1e-6, relation=relation), 40_000)
    note(result, record_property)
    assert not result.violated, result.text()
    if epsilon > 1:
        assert result.lower_bound > 0.75 * result.pair_mu


@pytest.mark.parametrize("case", ADAPTIVE, ids=lambda case: case.name)
def test_many_releases(case, record_property):
    result = audit(case, Budget(10.0, 1e-6), 20)
    note(result, record_property)
    assert not result.violated, result.text()
    assert result.pair_mu <= result.claimed_mu * (1 + 1e-9)


def test_many_releases_and_not_blind(record_property):
    """The bound falls short of the claim by what 1,500 runs leave open; six sigma below what is expected."""
    result = audit(PUBLISHED, Budget(20.0, 1e-6), 1500)
    note(result, record_property)
    assert result.pair_mu > 0.99 * result.claimed_mu
    assert 0.57 * result.claimed_mu < result.lower_bound <= result.claimed_mu, result.text()


@pytest.mark.full
@pytest.mark.parametrize("case", ADAPTIVE, ids=lambda case: case.name)
def test_many_releases_at_length(case, record_property):
    """Not blind on tight pairs, as far as 1,000 runs a side can show."""
    result = audit(case, Budget(10.0, 1e-6), 2000)
    note(result, record_property)
    assert not result.violated, result.text()
    if result.pair_mu > 0.99 * result.claimed_mu:
        assert result.lower_bound > 0.5 * result.pair_mu


@pytest.mark.full
@pytest.mark.parametrize("name", SINGLE)
def test_one_release_at_length(name, record_property):
    for number in range(50):
        budget = Budget((1, 2, 5, 10, 20)[number % 5], 1e-6, relation=("add-remove", "replace")[number % 2])
        plan = SINGLE[name].estimator.plan(budget, DOMAIN)
        pair = worst_pair(SINGLE[name].estimator, plan, DOMAIN, number)
        result = distinguish(SINGLE[name].estimator, budget, runs=200_000, pair=pair)
        note(result, record_property)
        assert not result.violated, result.text()
        assert result.lower_bound > 0.75 * result.pair_mu


@pytest.mark.parametrize("factor", [0.5, 0.7])
def test_too_little_noise_is_caught(factor, record_property):
    for case in SINGLE.values():
        result = audit(case, Budget(5.0, 1e-6), 20_000, noise=Scaled(factor))
        assert result.violated and "VIOLATED" in result.text()
        record_property("controls caught", 1)


def test_the_published_constant_is_caught(monkeypatch):
    """DPALS, Theorem 1, charges one of the two statistics: true mu is sqrt(2) times the claim."""
    monkeypatch.setattr(DPALS, "statistics_bound", property(lambda self: counted(math.sqrt(self._cells))))
    once = replace(PUBLISHED, estimator=replace(PUBLISHED.estimator, iterations=1))
    result = audit(once, Budget(10.0, 1e-6), 20_000)
    assert result.pair_mu == pytest.approx(math.sqrt(2) * result.claimed_mu, rel=1e-3)
    assert result.violated, result.text()


class Likes(Users):
    """Users whose single ratings are protected."""

    def labels(self):
        return Bounded(self._ratings.matrix.data > 3, counted(1.0), norm="labels", unit="rating")

    def number(self, norm):
        total = np.array([(self._ratings.matrix.data > 3).sum() * 1.0])
        return Bounded(total, counted(1.0), norm=norm, unit="rating")


def test_laplace_and_flips_are_scored_by_their_likelihood(monkeypatch):
    """One Laplace release, one of labels: the bound stays below mu of epsilon and comes near it."""

    class Pure(Popular):
        def releases(self, budget, domain, fraction):
            return Plan(budget, (Release("sum", Laplace(1.0), 1.0, "rating", "replace"),))

        def users(self, ratings):
            return Likes(ratings)

        def train(self, users, gate, seed):
            return {"item_bias": gate.release("sum", users.number("l1"))}

    class Flipped(Popular):
        def releases(self, budget, domain, fraction):
            return Plan(budget, (Release("labels", RandomizedResponse(1.0), 1.0, "rating", "replace"),))

        def users(self, ratings):
            return Likes(ratings)

        def train(self, users, gate, seed):
            return {"item_bias": gate.release("labels", users.labels())}

    budget = Budget(1.0, 1e-6, "rating", "replace")
    for estimator in (Pure(), Flipped()):
        plan = estimator.plan(budget, DOMAIN)
        pair = worst_pair(estimator, plan, DOMAIN, 0)
        result = distinguish(estimator, budget, runs=20_000, pair=pair)
        assert 0.6 * pair.mu < result.lower_bound <= pair.mu == pytest.approx(plan.releases[0].mu)


@pytest.mark.parametrize("mechanism", ["input", "objective"])
def test_a_pure_claim_is_that_of_its_releases(mechanism):
    """Epsilon with delta 0 is charged: more mu than the Gaussian of (epsilon, delta), and no more."""
    estimator, budget = OneBitCompletion(mechanism=mechanism), Budget(1.0, 1e-6, "rating", "replace")
    result = distinguish(estimator, budget, runs=4000)
    assert result.lower_bound > budget.mu  # what the other claim would call a violation
    assert not result.violated and "no violation" in result.text()
    assert result.claimed_mu == estimator.plan(budget, DOMAIN).mu
    assert "epsilon = 1 at delta = 1e-06 (unit: rating, relation: replace)" in result.text()
    assert distinguish(estimator, budget, runs=8000, noise=Scaled(0.5)).violated


def test_a_mixed_claim_adds_up_in_mu():
    """A Gaussian and a Laplace release: the claim is what both cost together, not what would be allowed."""

    class Mixed(Popular):
        def releases(self, budget, domain, fraction):
            releases = ("sum", budget.share(0.4)), ("again", Laplace(mu_of_pure(1.0) / (0.3 * budget.mu)))
            return Plan(budget, [Release(*release, 1.0, "rating", "replace") for release in releases])

        def users(self, ratings):
            return Likes(ratings)

        def train(self, users, gate, seed):
            both = gate.release("sum", users.number("l2")), gate.release("again", users.number("l1"))
            return {"item_bias": both[0] + both[1]}

    budget = Budget(10.0, 1e-6, "rating", "replace")
    plan = Mixed().plan(budget, DOMAIN)
    plan.check()
    assert 0.6 * budget.mu < plan.mu < 0.9 * budget.mu
    result = distinguish(Mixed(), budget, runs=1000)
    assert result.claimed_mu == plan.mu and not result.violated
    assert distinguish(Mixed(), budget, runs=2000, noise=Scaled(0.5)).violated


def test_the_worst_pair_is_as_far_apart_as_charged():
    for case, relation in ((SINGLE["popular"], "add-remove"), (SINGLE["global-mean"], "replace")):
        budget = Budget(5.0, 1e-6, relation=relation)
        plan = case.estimator.plan(budget, DOMAIN)
        pair = worst_pair(case.estimator, plan, DOMAIN, 0)
        calls = transcript(case.estimator, plan, pair.data, 0, SeededNoise(3))
        apart = distance(calls, replay(case.estimator, plan, pair.neighbour, 0, calls))
        assert apart == pytest.approx(pair.mu) == pytest.approx(plan.mu, rel=1e-6)


@pytest.mark.parametrize("wrong", [{"runs": 9}, {"runs": True}, {"runs": 10.0}])
def test_bad_calls(wrong):
    with pytest.raises(InputError):
        distinguish(ItemBias(), Budget(1.0, 1e-6), **wrong)
    with pytest.raises(InputError):
        distinguish(GlobalMean(), Budget(math.inf, 1e-6))


def test_what_is_printed_holds_no_scores():
    result = distinguish(ItemBias(), Budget(5.0, 1e-6), runs=100)
    assert "unit: user, relation: add-remove" in result.text()
    assert set(result.to_dict()) >= {"claimed_mu", "mu_lower_bound", "confidence"}
    assert all(isinstance(value, str | int | float | bool) for value in result.to_dict().values())
