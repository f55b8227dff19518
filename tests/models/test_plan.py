"""A7 and A3: releases equal the plan, spending equals the budget, noise equals the charge."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hushrec.data import Domain, Ratings
from hushrec.errors import BudgetError, InputError
from hushrec.models import (
    ALS,
    EASE,
    ESTIMATORS,
    Both,
    ItemBias,
    PrivateALS,
    PrivateEigenRec,
)
from hushrec.papers.frank_wolfe import FrankWolfe, ProjectedGradient
from hushrec.privacy import Accountant, Budget, Ledger, SystemNoise
from hushrec.privacy.testing import RecordingNoise
from hushrec.testing import DOMAIN, hostile_users, ratings_of
from hushrec.training.gate import LocalGate
from hushrec.training.run import release_user_count
from tests.models.cases import CASES, Case
from tests.privacy.laws import check_law

LARGEST_CATALOGUE, MOST_FITS = 30_000, 40
RATINGS = ratings_of(hostile_users(np.random.default_rng(5), 20))


def test_a_user_count_released_before_comes_out_of_the_same_budget() -> None:
    budget = Budget(2.0, 1e-6)
    accountant = Accountant(budget)
    n_users = release_user_count(RATINGS, accountant)
    model = PrivateALS.planned(budget, DOMAIN, n_users).fit(RATINGS, accountant)
    assert model.privacy.releases[0].label == "number of users"
    assert accountant.spent_mu <= budget.mu * (1 + 1e-12)
    with pytest.raises(BudgetError):
        release_user_count(RATINGS, accountant)


@pytest.mark.parametrize(
    "model", [PrivateALS(rank=2, iterations=1), PrivateEigenRec(rank=2)], ids=lambda model: model.name
)
def test_a_training_without_the_number_of_users_is_refused_first(model) -> None:
    """It would read the level and the noise of the sums as those of one user."""
    budget = Budget(2.0, 1e-6)
    accountant = Accountant(budget)
    gate = LocalGate(accountant, model.plan(budget, DOMAIN))
    with pytest.raises(InputError, match=f"^{model.name} needs the number of users; declare n_users"):
        model.train(model.users(RATINGS), gate, 0)
    assert accountant.releases == ()
    model.for_users(20).train(model.users(RATINGS), gate, 0)
    assert model.for_users(20).for_users(7).n_users == 20  # a declared number stays


def test_a_plan_that_does_not_fit_the_ledger_is_refused_before_anything_is_spent(tmp_path) -> None:
    budget = Budget(2.0, 1e-6)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("people", Budget(1.0, 1e-6))
    accountant = Accountant(budget, ledger=ledger, dataset="people")
    with pytest.raises(BudgetError):
        PrivateALS().fit(RATINGS, accountant)
    assert accountant.releases == ()
    assert ledger.summary("people", 1e-6).mu == 0


def residuals_of(case: Case, least: int) -> np.ndarray:
    """Noise in units of its declared sd, release after release, on a catalogue large enough to yield many.

    The catalogue grows while a fit yields little.
    """
    rng, n_items, found = np.random.default_rng(0), 7, 0
    while True:
        users, items = np.repeat(np.arange(30), 6), rng.integers(0, n_items, 180)
        domain = Domain(range(n_items), rating_range=(1, 5), max_ratings_per_user=6)
        ratings = Ratings.from_any((users, items, rng.integers(1, 6, 180)), domain)
        noise = RecordingNoise(SystemNoise())
        case.estimator.fit(ratings, Accountant(case.budget("add-remove"), noise=noise))
        found = sum(call.residual.size for call in noise.calls)
        if 4 * found >= least or n_items >= LARGEST_CATALOGUE or found < 7:
            break
        # entries of a release grow with the items or with their square
        n_items = min(LARGEST_CATALOGUE, math.ceil(n_items * min(4.0, math.sqrt(least / found))))
    residuals = [call.residual for call in noise.calls]
    for _ in range(MOST_FITS):
        if sum(len(part) for part in residuals) >= least:
            break
        noise.calls.clear()
        case.estimator.fit(ratings, Accountant(case.budget("add-remove"), noise=noise))
        residuals += [call.residual for call in noise.calls]
    return np.concatenate(residuals)


@pytest.mark.parametrize("name", ["item-bias", "private-als", "dpals"])
def test_the_noise_that_is_added_is_the_noise_that_is_charged(name: str, record_property) -> None:
    """Residuals over the declared sd are standard normal: of vectors, packed matrices and streams.

    The alarm is at six sigma.
    """
    case = next(case for case in CASES if case.name == name)
    check_law(residuals_of(case, 100_000), stats.norm, record_property)


def test_infinite_epsilon_is_stamped_and_refused_by_a_ledger_with_a_budget(tmp_path) -> None:
    accountant = Accountant(Budget(math.inf, 1e-6))
    model = PrivateALS().fit(RATINGS, accountant)
    assert not model.privacy.private
    assert "NOT PRIVATE" in model.privacy.text()
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("people", Budget(10.0, 1e-6))
    with pytest.raises(BudgetError):
        PrivateALS().fit(RATINGS, Accountant(Budget(math.inf, 1e-6), ledger=ledger, dataset="people"))


@pytest.mark.parametrize(
    "estimator",
    [
        ALS(rank=2, regularization=5.0, iterations=1),
        EASE(),
        FrankWolfe(nuclear_norm=5.0),
        ProjectedGradient(nuclear_norm=5.0, iterations=2),
    ],
    ids=lambda each: each.name,
)
def test_an_exact_model_goes_through_the_gate_as_one(estimator) -> None:
    """Killed: exact values that no accountant saw, behind a statement that lists nothing."""
    accountant = Accountant(Budget(math.inf, 1e-6))
    model = estimator.fit(RATINGS, accountant)
    assert [release.label for release in accountant.releases] == ["exact model"]
    assert [release.label for release in model.privacy.releases] == ["exact model"]
    assert "NOT PRIVATE" in model.privacy.text()


@pytest.mark.parametrize("n_users", [0, -1, 2.5, math.nan, True, "5", None])
@pytest.mark.parametrize("name", [name for name, cls in ESTIMATORS.items() if cls.uses_user_count])
def test_a_number_of_users_that_is_none_is_refused_by_its_name(name, n_users) -> None:
    cls = ESTIMATORS[name]
    budget = Budget(1.0, 1e-6, unit=cls.units[0], relation="replace")
    with pytest.raises(InputError, match="n_users=.* is out of range; pass an integer >= 1"):
        cls.planned(budget, DOMAIN, n_users)


#: Settings, and by label of a release the part of mu squared (up to a common factor) and the sensitivity.
SHARED_OUT: list[tuple[Any, dict[str, tuple[float, float]]]] = [
    (
        PrivateALS.of(
            rank=4, iterations=2, bias_rounds=2, features=False, level_share=0.03,
            n_users=None, weights_share=0.2, bias_share=0.3, factor_share=0.25,
            gramian_share=0.1, bias_clip=0.6, factor_clip=0.3, user_norm=0.5,
        ),
        {
            "number of users": (0.818 / 99, 1.0), "level": (0.03, 1.0),
            "spreads": (0.03, math.sqrt(21) / 4), "item weights": (0.2, 1.0),
            "item biases 1": (0.15, 0.6), "item biases 2": (0.15, 0.6),
            "residual variance 1": (0.004, 1.0),
            "gramian 1": (0.0125, math.sqrt(2) / 4), "item sums 1": (0.1125, 0.3),
            "residual variance 2": (0.004, 1.0),
            "gramian 2": (0.0125, math.sqrt(2) / 4), "item sums 2": (0.1125, 0.3),
        },
    ),
    (
        PrivateALS.of(
            n_users=50, bias_rounds=1, level_share=0.02, weights_share=0.3, bias_share=0.5, bias_clip=0.7
        ),
        {"level": (0.02, 1.0), "spreads": (0.02, math.sqrt(21) / 4), "item weights": (0.3, 1.0),
         "item biases 1": (0.5, 0.7)},
    ),
    (
        PrivateEigenRec.of(rank=2, pairs=True, weights_share=0.3),
        {"number of users": (0.01, 1.0), "item weights": (0.99 * 0.3, 1.0), "item matrix": (0.99 * 0.7, 1.0)},
    ),
    (
        PrivateEigenRec.of(rank=2, iterations=2, weights_share=0.4, share_growth=1.0, n_users=50),
        {"item weights": (0.4, 1.0), "item sums 1": (0.297, 1.0), "item sums 2": (0.297, 1.0),
         "halves of likes": (0.006, 1.0)},
    ),
    (
        Both(ratings=ItemBias(), lists=PrivateEigenRec(rank=0, n_users=50), lists_share=0.3),
        {"ratings: item biases": (0.7, math.sqrt(1.51)), "lists: item weights": (0.3, 1.0)},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("model", "wanted"), SHARED_OUT, ids=lambda each: getattr(each, "name", ""))
def test_each_release_gets_its_part_and_has_the_sensitivity_of_its_clip(model, wanted) -> None:
    """Written out by hand from the parameters' descriptions, for add-remove."""
    budget = Budget(2.0, 1e-6)
    plan, whole = model.plan(budget, DOMAIN), math.fsum(part for part, _ in wanted.values())
    assert [release.label for release in plan.releases] == list(wanted)
    for release, (part, sensitivity) in zip(plan.releases, wanted.values()):
        assert release.mu**2 / budget.mu**2 == pytest.approx(part / whole), release.label
        assert release.sensitivity == pytest.approx(sensitivity), release.label
