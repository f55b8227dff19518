"""Plans from public numbers: docs/guides/planning.md, docs/guides/implicit.md, docs/guides/both.md."""

import math

import numpy as np
import pytest

from hushrec.data import Domain, realistic, split_ratings
from hushrec.errors import InputError
from hushrec.models import Both, PrivateALS, PrivateEigenRec
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise

BUDGETS = [Budget(epsilon, 1e-6) for epsilon in (0.02, 1.0, 4.0, 90.0, math.inf)]
DOMAINS = [Domain(range(n_items), rating_range=(1, 5)) for n_items in (1, 7, 8, 15, 17, 100, 4000, 4001)]


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: f"epsilon {budget.epsilon}")
def test_private_als_learns_more_with_more_users(budget: Budget) -> None:
    """Few users get biases alone, and every plan spends the budget."""
    for domain in DOMAINS:
        plans = [PrivateALS.planned(budget, domain, 8**power) for power in range(10)]
        assert all(plan.n_users == 8**power for power, plan in enumerate(plans))
        assert (plans[-1].factor_rounds > 0) == (domain.n_items >= 8)
        for few, many in zip(plans, plans[1:]):
            assert many.rank >= few.rank and (many.factor_rounds > 0) >= (few.factor_rounds > 0)
        if budget.private:
            for plan in plans:
                assert plan.plan(budget, domain).mu == pytest.approx(budget.mu)


def test_few_users_of_few_items_get_no_factors_that_noise_hides() -> None:
    """The planned model is more accurate than one with factors, although users are many per item."""
    budget, losses = Budget(1.3, 1e-5), []
    larger = {"rank": 3, "iterations": 8, "factor_clip": 0.17}
    for seed in range(4):
        rows, held = split_ratings(realistic(300, 100, 9000, seed=seed), (0.8, 0.2), seed=seed)
        plans = [PrivateALS.planned(budget, rows.domain, 300, **changes) for changes in ({}, larger)]
        models = [plan.fit(rows, Accountant(budget, noise=SeededNoise(seed)), seed=seed) for plan in plans]
        losses.append(
            [np.mean((model.predict_pairs(rows, held) - held.matrix.data) ** 2) for model in models]
        )
    planned, larger = np.mean(losses, axis=0)
    assert planned < larger - 0.002


def test_private_eigenrec_learns_more_with_more_users_and_budget() -> None:
    """Few users get popularity alone; many users for each item get item pairs."""
    for domain in (Domain(range(50), likes=True), Domain(range(20_000), likes=True)):
        plans = [PrivateEigenRec.planned(Budget(2.0, 1e-6), domain, 4**power) for power in range(1, 14)]
        assert plans[0].rank == 0 and not plans[0].pairs and plans[-1].rank == 100
        for few, many in zip(plans, plans[1:]):
            assert many.rank >= few.rank and many.pairs >= few.pairs
            assert many.tuning.learned_items >= few.tuning.learned_items
        assert plans[-1].pairs
        assert not PrivateEigenRec.planned(Budget(2.0, 1e-6), domain, 4**13, memory=1.5).pairs
    with pytest.raises(InputError, match=r"11,000 items takes 1\.9 GiB; set memory"):
        PrivateEigenRec.planned(Budget(2.0, 1e-6), domain, 4**13, memory=1.5, pairs=True)


def test_ratings_get_half_of_the_budget_where_it_teaches_them_something() -> None:
    budget, domain = Budget(1.0, 1e-6), Domain(range(2000), rating_range=(1, 5))
    shares = [Both.planned(budget, domain, 8**power).lists_share for power in range(9)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.95 and shares[-1] == pytest.approx(0.5, abs=0.001)


def test_both_plans_either_model_for_its_share() -> None:
    for n_users in (5, 100, 3000, 10**6):
        budget, domain = Budget(1.0, 1e-6), Domain(range(80), rating_range=(1, 6))
        both = Both.planned(budget, domain, n_users)
        part = Budget(1.0, 1e-6).part(1 - both.lists_share)
        assert both.ratings == PrivateALS.planned(part, domain, n_users)
        assert both.like_threshold == both.lists.like_threshold == 4.75
        alone = PrivateEigenRec.planned(budget.part(both.lists_share), domain, n_users, like_threshold=4.75)
        assert both.lists == alone
