"""B1: no pair of neighbours is distinguished better than claimed, and the test would notice."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from hushrec.audit.bounds import mu_lower_bound
from hushrec.audit.distinguish import Pair, distance, distinguish, worst_pair
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.models import Popular
from hushrec.papers.dpals import DPALS
from hushrec.papers.one_bit import OneBitCompletion
from hushrec.privacy import (
    Bounded,
    Budget,
    Gaussian,
    Laplace,
    Plan,
    Release,
    SystemNoise,
    counted,
    mu_of_pure,
)
from hushrec.privacy.testing import RecordingNoise, SeededNoise
from hushrec.testing import DOMAIN, replay, transcript
from hushrec.training.users import Users
from tests.models.cases import CASES, Case

SINGLE = {case.name: case for case in CASES if case.name in ("global-mean", "item-bias", "popular")}
#: One case of a model in short runs; `check_sensitivity` tries the same pairs on all of them.
FIRST = {case.estimator.name: case for case in reversed(CASES)}.values()
ADAPTIVE = [
    pytest.param(case, id=case.name, marks=[] if case in FIRST else [pytest.mark.full])
    for case in CASES
    if case.name not in SINGLE and case.unit == "user"
]
PUBLISHED = next(case for case in CASES if case.name == "dpals")


class Scaled(SystemNoise):
    """Noise smaller than the charge says."""

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
    """Record the figures of the pair on which the test saw most of the claim, for ``make trust``."""
    figures = (
        result.mu_bound / result.claimed_mu,
        result.claimed_mu,
        result.figures["pair_mu"],
        result.mu_bound,
    )
    record("largest audit", " ".join(f"{figure:.4f}" for figure in figures))
    record("runs", len(result.inside) + len(result.outside))
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
        assert result.mu_bound > 0.75 * result.figures["pair_mu"]


@pytest.mark.parametrize("case", ADAPTIVE)
def test_many_releases(case, record_property):
    result = audit(case, Budget(10.0, 1e-6), 10)
    note(result, record_property)
    assert not result.violated, result.text()
    assert result.figures["pair_mu"] <= result.claimed_mu * (1 + 1e-9)


def test_many_releases_and_not_blind(record_property):
    """The bound is below the claim by the uncertainty of 1,500 runs: six sigma below its expectation."""
    quick = next(case for case in CASES if case.name == "cleansed-svd")
    result = audit(quick, Budget(20.0, 1e-6), 1500)
    note(result, record_property)
    assert result.figures["pair_mu"] > 0.99 * result.claimed_mu
    assert 0.57 * result.claimed_mu < result.mu_bound <= result.claimed_mu, result.text()


@pytest.mark.parametrize("factor", [0.5, 0.7])
def test_too_little_noise_is_caught(factor, record_property):
    for case in SINGLE.values():
        result = audit(case, Budget(5.0, 1e-6), 20_000, noise=Scaled(factor))
        assert result.violated and "VIOLATED" in result.text()
        record_property("controls caught", 1)


def test_the_published_constant_is_caught(monkeypatch):
    """DPALS, Theorem 1, charges one of the two statistics: true mu is sqrt(2) times the claim."""
    monkeypatch.setattr(
        DPALS, "statistics_bound", property(lambda self: counted(math.sqrt(self.max_ratings_per_user)))
    )
    once = replace(PUBLISHED, estimator=replace(PUBLISHED.estimator, iterations=1))
    result = audit(once, Budget(10.0, 1e-6), 20_000)
    assert result.figures["pair_mu"] == pytest.approx(math.sqrt(2) * result.claimed_mu, rel=1e-3)
    assert result.violated, result.text()


@pytest.mark.parametrize("mechanism", ["input", "objective"])
def test_a_pure_claim_is_that_of_its_releases(mechanism):
    """Epsilon with delta 0 is charged: more mu than the Gaussian of (epsilon, delta), and no more."""
    estimator, budget = OneBitCompletion(mechanism=mechanism), Budget(1.0, 1e-6, "rating", "replace")
    result = distinguish(estimator, budget, runs=4000)
    assert result.mu_bound > budget.mu  # what the other claim would call a violation
    assert not result.violated and "no violation" in result.text()
    assert result.claimed_mu == estimator.plan(budget, DOMAIN).mu
    assert "epsilon = 1 at delta = 1e-06 (unit: rating, relation: replace)" in result.text()
    assert distinguish(estimator, budget, runs=8000, noise=Scaled(0.5)).violated


def test_an_infinite_claim_is_not_tested():
    with pytest.raises(InputError, match="An infinite epsilon claims nothing"):
        distinguish(SINGLE["popular"].estimator, Budget(math.inf, 1e-5), runs=10)


def test_a_refuted_epsilon_or_mu_alone_refutes_a_claim():
    found = distinguish(SINGLE["popular"].estimator, Budget(1.0, 1e-5), runs=10)
    for mu, epsilon, violated in ((0.1, 0.9, False), (0.1, 1.1, True), (found.claimed_mu + 0.1, 0.9, True)):
        one = replace(found, mu_bound=mu, figures={"epsilon_lower_bound": epsilon})
        assert (one.violated, one.to_dict()["violated"]) == (violated, violated)
        assert ("VIOLATED: the claim is refuted" in one.text()) == violated


def test_the_worst_pair_is_as_far_apart_as_charged():
    for case, relation in ((SINGLE["popular"], "add-remove"), (SINGLE["global-mean"], "replace")):
        budget = Budget(5.0, 1e-6, relation=relation)
        plan = case.estimator.plan(budget, DOMAIN)
        pair = worst_pair(case.estimator, plan, DOMAIN, 0)
        calls = transcript(case.estimator, plan, pair.data, 0, SeededNoise(3))
        apart = distance(calls, replay(case.estimator, plan, pair.neighbour, 0, calls))
        assert apart == pytest.approx(pair.mu) == pytest.approx(plan.mu, rel=1e-6)


LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}


class Thirds(Users):
    """Users who add a third of their ratings, item by item, or a seventh of all of them."""

    def __init__(self, ratings):
        super().__init__(ratings)
        self.rows = ratings

    def items(self, norm):
        sums = np.asarray(self.rows.matrix.astype(np.float64).sum(axis=0)).ravel() / 3
        weight = 1.0 + np.arange(self.domain.n_items) % 2 if norm == "l2" else None
        return Bounded(sums, counted(1.0), norm=norm, weight=weight)

    def total(self):
        return Bounded(np.full(2, float(self.rows.matrix.data.sum()) / 7), counted(1.0))


class Sums(Popular):
    """Releases sums of users who are not clipped; keeps its arguments."""

    def __init__(self, *labels):
        self.labels, self.domains, self.seeds = labels, [], []

    def releases(self, budget, domain, fraction):
        self.domains.append(domain)
        laws = {"total": Gaussian(0.9), "items": Gaussian(1.1), "laplace": Laplace(0.7)}
        return Plan(budget, [Release(name, laws[name], 1.0, "user", budget.relation) for name in self.labels])

    def users(self, ratings):
        return Thirds(ratings)

    def train(self, users, gate, seed):
        self.seeds.append(seed)
        asked = {
            "total": users.total,
            "items": lambda: users.items("l2"),
            "laplace": lambda: users.items("l1"),
        }
        return {name: gate.release(name, asked[name]()) for name in self.labels}


def likelihood(label, output, dense):
    """Logarithm of the density of an output of `Sums` at the users of a dense matrix, summed over entries."""
    sums = np.full(2, dense.sum() / 7) if label == "total" else dense.sum(axis=0) / 3
    sd = {"total": 0.9, "laplace": 0.7, "items": 1.1 / (1 + np.arange(sums.size) % 2)}[label]
    law = stats.laplace if label == "laplace" else stats.norm
    return law.logpdf(output, sums, sd).sum(axis=-1)


def small_pair(mu):
    domain = Domain(tuple("vwxyz"), rating_range=(2, 6))
    rows = [("a", "v", 2.0), ("a", "x", 6.0), ("b", "v", 5.0), ("b", "z", 3.0), ("b", "y", 6.0)]
    names = "vwxyz"

    def ratings(rows):
        dense = np.zeros((len({user for user, _, _ in rows}), 5))
        for user, item, rating in rows:
            dense["ab".index(user), names.index(item)] = rating
        return Ratings.from_any(tuple(list(column) for column in zip(*rows)), domain), dense

    data, first = ratings(rows)
    neighbour, second = ratings(rows[:2])
    return Pair(data, neighbour, mu), first, second


@pytest.mark.parametrize("label", ["total", "items", "laplace"])
def test_runs_of_one_release_by_their_densities(label):
    """The score of a run is the difference of two log densities of the releases, on both sides."""
    pair, first, second = small_pair(1.25)
    noise, estimator = RecordingNoise(SeededNoise(4)), Sums(label)
    budget = Budget(8.0, 1e-3)
    found = distinguish(estimator, budget, runs=4501, pair=pair, seed=3, alpha=0.01, noise=noise)
    starts = [number for number, call in enumerate(noise.calls) if call.value.ndim == 1]
    assert len(starts) == 2
    sides = (noise.calls[1 : starts[1]], first), (noise.calls[starts[1] + 1 :], second)
    for (calls, dense), scores, runs in zip(sides, (found.inside, found.outside), (2250, 2251)):
        output = np.concatenate([call.output for call in calls])
        exact = np.full(2, dense.sum() / 7) if label == "total" else dense.sum(axis=0) / 3
        assert all(np.array_equal(call.value, np.broadcast_to(exact, call.value.shape)) for call in calls)
        by_hand = likelihood(label, output, first) - likelihood(label, output, second)
        assert scores.shape == by_hand.shape == (runs,)
        np.testing.assert_allclose(scores, by_hand, rtol=1e-11, atol=1e-11)
    thresholds = np.array([-2, -1, 0, 1, 2]) / 2 * (1.25**2 / 2 + 1.25)
    assert found.alpha == 0.01
    assert found.mu_bound == mu_lower_bound(found.inside, found.outside, thresholds, 0.01)
    claim = {"total": 1 / 0.9, "items": 1 / 1.1, "laplace": mu_of_pure(1 / 0.7)}[label]
    assert found.claimed_mu == pytest.approx(claim, rel=1e-12)
    assert found.mu_bound > 0 and found.figures["pair_mu"] == 1.25 and found.budget == budget
    assert estimator.domains == [pair.data.domain] and set(estimator.seeds) == {3}
