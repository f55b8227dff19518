"""B2: the one-run audit stays below the claim and catches a tenth of the noise."""

import numpy as np
import pytest

from hushrec.algorithms import GlobalMean, ItemBias, Popular, PrivateALS
from hushrec.audit.canaries import canaries
from hushrec.errors import InputError
from hushrec.privacy import Bounded, Budget, Laplace, Plan, Release, counted, mu_of_pure
from hushrec.users import Users
from tests.audit.test_distinguish import PUBLISHED, Scaled

ESTIMATORS = {"item-bias": ItemBias(), "private-als": PrivateALS(), "dpals": PUBLISHED.estimator}


def check(name, epsilon, n_canaries, record):
    result = canaries(ESTIMATORS[name], Budget(epsilon, 1e-5), n_canaries=n_canaries)
    record("audits", 1)
    record("largest bound over claim", result.epsilon_bound / epsilon)
    record("largest mu bound over claim", result.mu_bound / result.budget.mu)
    assert not result.violated, result.text()


def check_control(name, epsilon, n_canaries, record):
    result = canaries(ESTIMATORS[name], Budget(epsilon, 1e-5), n_canaries=n_canaries, noise=Scaled(0.1))
    assert result.violated, result.text()
    record("controls caught", 1)


@pytest.mark.parametrize("epsilon", [1, 5, 10])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_claim_stands(name, epsilon, record_property):
    check(name, epsilon, 1000, record_property)


@pytest.mark.parametrize("epsilon", [1, 5, 10])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_tenth_of_the_noise_is_caught(name, epsilon, record_property):
    check_control(name, epsilon, 1000, record_property)


def test_the_scores_are_those_of_the_claim():
    """The canaries' scores are N(+-mu^2/2, mu^2): nothing of the mechanism is missed. (One release.)"""
    budget = Budget(5.0, 1e-5)
    result = canaries(Popular(), budget, n_canaries=4000)
    apart = result.members.mean() - result.others.mean()  # mu^2
    assert result.others.var() == pytest.approx(budget.mu**2, rel=0.2)
    assert apart == pytest.approx(budget.mu**2, rel=0.2)


def test_a_pure_claim_is_that_of_its_releases():
    """One Laplace release: more mu than the Gaussian of (epsilon, delta), and epsilon itself holds."""

    class FirstUsers(Users):
        def first_items(self):
            matrix = self._ratings.matrix
            first = matrix.indices[matrix.indptr[:-1]]
            counts = np.bincount(first, minlength=self.domain.n_items).astype(np.float64)
            return Bounded(counts, counted(1.0), norm="l1")

    class FirstItems(Popular):
        def releases(self, budget, domain, fraction):
            return Plan(
                budget, (Release("first items", Laplace(1 / budget.epsilon), 1.0, "user", "add-remove"),)
            )

        def users(self, ratings):
            return FirstUsers(ratings)

        def train(self, users, gate, seed):
            return {"item_bias": gate.release("first items", users.first_items())}

    budget = Budget(1.0, 1e-5)
    result = canaries(FirstItems(), budget, n_canaries=4000)
    assert result.mu_bound > budget.mu  # what the other claim would call a violation
    assert not result.violated and "no violation" in result.text()
    assert f"mu <= {mu_of_pure(1.0):.4g}" in result.text()
    assert result.to_dict()["claimed_mu"] == pytest.approx(mu_of_pure(1.0))
    assert canaries(FirstItems(), budget, n_canaries=4000, noise=Scaled(0.5)).violated


@pytest.mark.full
@pytest.mark.parametrize("epsilon", [1, 5, 10])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_claim_stands_at_length(name, epsilon, record_property):
    check(name, epsilon, 10_000, record_property)


@pytest.mark.full
@pytest.mark.parametrize("epsilon", [1, 5, 10])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_tenth_of_the_noise_is_caught_at_length(name, epsilon, record_property):
    check_control(name, epsilon, 10_000, record_property)


def test_bad_calls():
    for wrong in (19, True, 100.0):
        with pytest.raises(InputError):
            canaries(ItemBias(), Budget(1.0, 1e-6), n_canaries=wrong)
    with pytest.raises(InputError, match="one canary alone"):
        canaries(GlobalMean(), Budget(1.0, 1e-6))
    with pytest.raises(InputError, match="users"):
        canaries(ItemBias(), Budget(1.0, 1e-6, unit="rating"))
