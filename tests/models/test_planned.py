"""What is planned from public numbers: the rules of docs/guides/planning.md, docs/guides/implicit.md and
docs/guides/both.md."""

import math

import pytest

from hushrec.checks import settings_of
from hushrec.data import Domain
from hushrec.errors import InputError
from hushrec.models import Both, PrivateALS, PrivateEigenRec
from hushrec.papers.frank_wolfe import (
    CorrectiveFrankWolfe,
    FrankWolfe,
    PrivateFrankWolfe,
    PrivateProjectedGradient,
    ProjectedGradient,
)
from hushrec.privacy import Budget

BUDGETS = [Budget(epsilon, 1e-6) for epsilon in (0.02, 1.0, 4.0, 90.0, math.inf)]
DOMAINS = [Domain(range(n_items), rating_range=(1, 5)) for n_items in (1, 7, 8, 15, 17, 100, 4000, 4001)]


def around(marks, unit: float) -> list[int]:
    """Numbers of users just below, at and above those at which ``users * unit`` is one of the marks."""
    near = {math.ceil(mark / unit) + step for mark in marks for step in (-1, 0, 1)}
    return sorted(users for users in near if users >= 1)


def als(mu: float, n_users: int, n_items: int) -> dict[str, object]:
    """The table of docs/guides/planning.md, with the shares before they are scaled to the whole."""
    q = min(mu, 8.0) * n_users / n_items
    few = (400 / (min(mu, 8.0) * n_users)) ** 2
    rule: dict[str, object] = {
        "n_users": n_users, "level_share": 0.01 if few < 1 else 0.06 if few > 6 else few / 100,
        "weight_exponent": -0.25 * q / (q + 0.1), "bias_share": 0.73, "weights_share": 0.26, "rank": 2,
        "iterations": 0, "bias_rounds": 4, "start": "random", "factor_clip_decay": 0.9,
    }  # fmt: skip
    if q < 0.1:
        rule |= {"bias_rounds": 2, "weights_share": 0.4}
    if q < 1 or n_items < 8:
        return rule
    spectral = q >= 10 and n_items <= 4000
    rank = 12 if q >= 10 else 8 if q >= 6 else 2 + math.floor(q)
    rank = min(rank, n_items // 8) if n_items >= 16 else 2
    factors, start = (0.55 if q >= 5 else 0.3 + 0.05 * q), (0.1 if spectral else 0.0)
    clip = 0.1 if q <= 30 else 0.15 if q >= 45 else q / 300
    return rule | {
        "rank": rank, "iterations": 4 if q < 2.5 or q >= 10 else 8 if q < 5 else 12,
        "factor_clip_decay": 0.9 if q >= 10 else 1.0, "weights_share": 0.15, "factor_share": factors,
        "start_share": start, "bias_share": 0.835 - factors - start, "factor_clip": clip * math.sqrt(rank),
        "start": "spectral" if spectral else "random",
    }  # fmt: skip


def check(found: object, rule: dict[str, object]) -> None:
    for name, wanted in rule.items():
        value = settings_of(found)[name]
        assert value == (pytest.approx(wanted, rel=1e-12) if isinstance(wanted, float) else wanted), name


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: f"epsilon {budget.epsilon}")
def test_private_als(budget: Budget) -> None:
    mu, seen = min(budget.mu, 8.0), set()
    for domain in DOMAINS:
        n_items = domain.n_items
        marks = [mark * n_items for mark in (0.1, 1, 2, 2.5, 3, 5, 6, 10, 30, 38, 45)]
        for n_users in around([*marks, 400, 400 / math.sqrt(3), 400 / math.sqrt(6)], mu):
            rule = als(budget.mu, n_users, n_items)
            check(PrivateALS.planned(budget, domain, n_users), rule)
            seen.add((rule["rank"], rule["iterations"], rule["start"], rule["bias_rounds"]))
    assert len(seen) > 9
    assert (budget.mu > 8) == (budget.epsilon >= 90)  # else the most that counts were not reached


def test_a_spectral_start_that_is_asked_for_is_paid() -> None:
    """It is paid from the share of the biases, even if the plan would not choose it."""
    for n_users, n_items, iterations in ((1000, 200, 4), (10**7, 5000, 4), (5, 200, 0)):
        domain = Domain(range(n_items), rating_range=(1, 5))
        found = PrivateALS.planned(Budget(1.0, 1e-6), domain, n_users, start="spectral", rank=3)
        plain = PrivateALS.planned(Budget(1.0, 1e-6), domain, n_users)
        assert plain.tuning.start == "random" and (found.tuning.start, found.rank) == ("spectral", 3)
        assert found.tuning.start_share == 0.1 and found.iterations == iterations
        paid = 0.1 if iterations else 0.0
        assert found.tuning.bias_share == pytest.approx(plain.tuning.bias_share - paid)
        assert plain.tuning.start_share == (0.0 if iterations else 0.1)


def test_private_eigenrec_learns_more_with_more_users_and_budget() -> None:
    """Nothing but public numbers decides; few users get popularity alone, many for each item pairs."""
    for domain in (Domain(range(50), likes=True), Domain(range(20_000), likes=True)):
        plans = [PrivateEigenRec.planned(Budget(2.0, 1e-6), domain, 4**power) for power in range(1, 14)]
        assert plans[0].rank == 0 and not plans[0].pairs and plans[-1].rank == 100
        for few, many in zip(plans, plans[1:]):
            assert many.rank >= few.rank and many.pairs >= few.pairs
            assert many.tuning.learned_items >= few.tuning.learned_items
        assert plans[-1].pairs


def test_both_plans_either_model_for_its_share() -> None:
    for n_users in (5, 100, 3000, 10**6):
        budget, domain = Budget(1.0, 1e-6), Domain(range(80), rating_range=(1, 6))
        both = Both.planned(budget, domain, n_users)
        part = Budget(1.0, 1e-6).part(1 - both.lists_share)
        assert both.ratings == PrivateALS.planned(part, domain, n_users)
        assert both.like_threshold == both.lists.like_threshold == 4.75
        alone = PrivateEigenRec.planned(budget.part(both.lists_share), domain, n_users, like_threshold=4.75)
        assert both.lists == alone


@pytest.mark.parametrize(("n_users", "n_items"), [(1, 1), (50, 200), (3000, 17)])
def test_models_of_the_papers(n_users: int, n_items: int) -> None:
    """Nuclear norms in proportion to the size of the matrix; the second as published, the third clipped."""
    domain, size = Domain(range(n_items), rating_range=(1, 5)), math.sqrt(n_users * n_items)
    asked = Budget(1.0, 1e-6), domain, n_users
    assert ProjectedGradient.planned(*asked, iterations=2).nuclear_norm == pytest.approx(size)
    assert PrivateProjectedGradient.planned(*asked).nuclear_norm == pytest.approx(size)
    assert FrankWolfe.planned(*asked) == FrankWolfe(nuclear_norm=3 * size)
    steps = {"residual_clip": 2.0, "center": "biases", "step_damping": 1.0}
    assert PrivateFrankWolfe.planned(*asked) == PrivateFrankWolfe.of(nuclear_norm=3 * size, **steps)
    assert FrankWolfe.planned(*asked, nuclear_norm=7.0).nuclear_norm == 7.0
    for model in (ProjectedGradient, FrankWolfe, PrivateFrankWolfe, CorrectiveFrankWolfe):
        with pytest.raises(InputError, match="n_users=0"):
            model.planned(Budget(1.0, 1e-6), domain, 0)


def test_corrective_frank_wolfe() -> None:
    """A second step from 30 on, more for the biases below 10."""
    budget, seen = Budget(1.0, 1e-6), set()
    for n_users in around([10 * 80, 30 * 80], budget.mu):
        signal = budget.mu * n_users / 80
        rule = {"iterations": 1 + (signal >= 30), "bias_share": 0.5 if signal >= 10 else 0.8}
        check(CorrectiveFrankWolfe.planned(budget, Domain(range(80), rating_range=(1, 5)), n_users), rule)
        seen.add(tuple(rule.values()))
    assert seen == {(1, 0.8), (1, 0.5), (2, 0.5)}
