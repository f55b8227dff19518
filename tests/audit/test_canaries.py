"""B2: the one-run audit stays below the claim and catches a tenth of the noise."""

import math

import numpy as np
import pytest

from hushrec.audit.bounds import epsilon_lower_bound, mu_lower_bound
from hushrec.audit.canaries import canaries
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.models import ItemBias, Popular, PrivateALS
from hushrec.privacy import Budget, mu_of_pure
from hushrec.privacy.testing import RecordingNoise, SeededNoise
from hushrec.testing import replay
from tests.audit.test_distinguish import LAWS, PUBLISHED, Scaled, Sums

ESTIMATORS = {"item-bias": ItemBias(), "private-als": PrivateALS(), "dpals": PUBLISHED.estimator}


@pytest.mark.parametrize("epsilon", [1, 5, 10])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_claim_stands(name, epsilon, record_property):
    result = canaries(ESTIMATORS[name], Budget(epsilon, 1e-5), n_canaries=1000)
    record_property("audits", 1)
    record_property("largest bound over claim", result.figures["epsilon_lower_bound"] / epsilon)
    record_property("largest mu bound over claim", result.mu_bound / result.budget.mu)
    assert not result.violated, result.text()


@pytest.mark.parametrize("epsilon", [1, 10])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_tenth_of_the_noise_is_caught(name, epsilon, record_property):
    result = canaries(ESTIMATORS[name], Budget(epsilon, 1e-5), n_canaries=1000, noise=Scaled(0.1))
    assert result.violated, result.text()
    record_property("controls caught", 1)


@pytest.mark.parametrize("budget", [Budget(1.0, 1e-5, "rating", "replace"), Budget(math.inf, 1e-5)])
def test_canaries_are_users_of_a_finite_claim(budget):
    with pytest.raises(InputError, match="canaries are users: pass a budget for users with a finite"):
        canaries(Popular(), budget)


def test_the_scores_are_those_of_the_claim():
    """The canaries' scores are N(+-mu^2/2, mu^2): nothing of the mechanism is missed. (One release.)"""
    budget = Budget(5.0, 1e-5)
    result = canaries(Popular(), budget, n_canaries=4000)
    apart = result.inside.mean() - result.outside.mean()  # mu^2
    assert result.outside.var() == pytest.approx(budget.mu**2, rel=0.2)
    assert apart == pytest.approx(budget.mu**2, rel=0.2)


def test_the_audit_by_replaying_each_canary_alone():
    """Return owners of entries, scores, guesses and both bounds; one release sums over all canaries."""
    n, seed, alpha, budget = 31, 5, 0.2, Budget(12.0, 1e-3)
    estimator = Sums("total", "items", "laplace")
    noise = RecordingNoise(SeededNoise(2))
    found = canaries(estimator, budget, n_canaries=n, seed=seed, alpha=alpha, noise=noise)
    inside = np.random.default_rng(seed).random(n) < 0.5
    domain = Domain(tuple(range(4 * n)), rating_range=(1, 5))
    dense = np.kron(np.eye(n), [1.0, 5.0, 1.0, 5.0])
    users, items = dense.nonzero()
    everybody = Ratings.from_any((users, items, dense[users, items]), domain)
    assert estimator.domains == [domain] and set(estimator.seeds) == {seed}
    assert np.array_equal(noise.calls[1].value, dense[inside].sum(axis=0) / 3)
    plan = estimator.plan(budget, domain)
    alone = [replay(estimator, plan, everybody.rows([canary]), seed, noise.calls) for canary in range(n)]
    scores = np.zeros(n)
    for number, call in enumerate(noise.calls):
        moved, law = np.array([run[number].value != 0 for run in alone]), LAWS[call.kind]
        for canary, run in enumerate(alone):
            change = law.logpdf(call.output, run[number].value, call.amount)
            change = change - law.logpdf(call.output, 0.0, call.amount)
            scores[canary] += change[moved[canary] & (moved.sum(axis=0) == 1)].sum()
    np.testing.assert_allclose(found.inside, scores[inside], rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(found.outside, scores[~inside], rtol=1e-11, atol=1e-11)
    ranked = sorted(range(n), key=lambda canary: scores[canary])
    correct = sum(not inside[canary] for canary in ranked[:3]) + sum(inside[canary] for canary in ranked[-3:])
    bound = epsilon_lower_bound(n, 6, correct, 1e-3, alpha)
    counts = {"canaries": n, "guesses": 6, "correct": correct}
    assert found.figures == counts | {"epsilon_lower_bound": bound} and bound > 0
    thresholds = np.array([-2, -1, 0, 1, 2]) / 2 * (plan.mu**2 / 2 + plan.mu)
    assert found.mu_bound == mu_lower_bound(found.inside, found.outside, thresholds, alpha) > 0
    assert found.claimed_mu == pytest.approx(math.hypot(1 / 0.9, 1 / 1.1, mu_of_pure(1 / 0.7)), rel=1e-12)
