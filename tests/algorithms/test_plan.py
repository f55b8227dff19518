"""A7 and A3: the plan is what happens, the budget is what is spent, the noise is what is charged."""

import math

import numpy as np
import pytest
from scipy import stats

from hushrec.algorithms import DPALS, PrivateALS
from hushrec.algorithms.baselines import release_user_count
from hushrec.errors import BudgetError, InputError
from hushrec.privacy import Accountant, Budget, Ledger, SystemNoise
from hushrec.privacy.testing import RecordingNoise
from tests.algorithms.cases import CASES, DOMAIN, Case, hostile_data, ratings_of

RATINGS = ratings_of(hostile_data(np.random.default_rng(5), 20))


def check_run(estimator, budget: Budget) -> None:
    noise = RecordingNoise(SystemNoise())
    accountant = Accountant(budget, noise=noise)
    plan = estimator.plan(budget, DOMAIN)
    model = estimator.fit(RATINGS, accountant)
    assert accountant.releases == plan.releases == model.privacy.releases
    # calls to the noise source, in order, streamed blocks together: one a release, with its sd
    calls = list(dict.fromkeys(call.label for call in noise.calls))
    assert calls == [release.label for release in plan.releases]
    for release in plan.releases:
        amounts = [call.amount for call in noise.calls if call.label == release.label]
        least = min(float(np.min(amount)) for amount in amounts)
        assert least > 0
        assert release.noise_sd == pytest.approx(release.mechanism.noise_multiplier * release.sensitivity)
    spent = math.fsum(release.mu**2 for release in plan.releases)
    assert spent <= budget.mu**2 * (1 + 1e-12)
    assert spent >= budget.mu**2 * (1 - 1e-9), "part of the budget is not used"


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ledger_equals_plan(case: Case, relation: str) -> None:
    check_run(case.estimator, case.budget(relation))


def test_ledger_equals_plan_over_a_grid_of_options() -> None:
    rng = np.random.default_rng(0)
    done = 0
    while done < 200:
        if rng.integers(2):
            estimator_class, choices = (
                PrivateALS,
                {
                    "rank": (0, 1, 2, 3),
                    "iterations": (0, 1, 2, 3),
                    "bias_rounds": (0, 1, 2),
                    "features": (False, True),
                    "user_variance": (0.0, 0.005),
                    "start": ("random", "spectral"),
                    "n_users": (None, 20),
                },
            )
        else:
            estimator_class, choices = (
                DPALS,
                {
                    "rank": (1, 2, 3),
                    "iterations": (1, 2, 3),
                    "clipping": ("rating", "user"),
                    "sampling": ("uniform", "tail", "weights"),
                    "weight_exponent": (-0.25, 0.0),
                    "center": ("middle", "level", "user"),
                    "item_fraction": (1.0, 0.5),
                    "orthonormalize": (False, True),
                    "unobserved_weight": (0.0, 0.1),
                },
            )
        try:
            settings = {name: values[rng.integers(len(values))] for name, values in choices.items()}
            estimator = estimator_class(**settings)
        except InputError:
            continue
        budget = Budget(
            float(rng.choice([0.1, 1, 10])), 1e-6, relation=str(rng.choice(["add-remove", "replace"]))
        )
        check_run(estimator, budget)
        done += 1


def test_a_user_count_released_before_comes_out_of_the_same_budget() -> None:
    budget = Budget(2.0, 1e-6)
    accountant = Accountant(budget)
    n_users = release_user_count(RATINGS, accountant)
    model = PrivateALS.planned(budget, DOMAIN, n_users).fit(RATINGS, accountant)
    assert model.privacy.releases[0].label == "number of users"
    assert accountant.spent_mu <= budget.mu * (1 + 1e-12)
    with pytest.raises(BudgetError):
        release_user_count(RATINGS, accountant)


def test_a_plan_that_does_not_fit_the_ledger_is_refused_before_anything_is_spent(tmp_path) -> None:
    budget = Budget(2.0, 1e-6)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("people", Budget(1.0, 1e-6))
    accountant = Accountant(budget, ledger=ledger, dataset="people")
    with pytest.raises(BudgetError):
        PrivateALS().fit(RATINGS, accountant)
    assert accountant.releases == ()
    assert ledger.summary("people", 1e-6).mu == 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_noise_that_is_added_is_the_noise_that_is_charged(case: Case) -> None:
    """Pooled residuals over the declared sd are standard normal (spec A3: 6 sigma on the variance)."""
    noise = RecordingNoise(SystemNoise())
    while sum(call.residual.size for call in noise.calls) < 500:
        case.estimator.fit(RATINGS, Accountant(case.budget("add-remove"), noise=noise))
    residuals = np.concatenate([call.residual for call in noise.calls])
    assert abs(residuals.var() - 1) < 6 * math.sqrt(2 / residuals.size)
    assert stats.kstest(residuals, "norm").pvalue > 1e-9


def test_infinite_epsilon_is_stamped_and_refused_by_a_ledger_with_a_budget(tmp_path) -> None:
    accountant = Accountant(Budget(math.inf, 1e-6))
    model = PrivateALS().fit(RATINGS, accountant)
    assert not model.privacy.private
    assert "NOT PRIVATE" in model.privacy.text()
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("people", Budget(10.0, 1e-6))
    with pytest.raises(BudgetError):
        PrivateALS().fit(RATINGS, Accountant(Budget(math.inf, 1e-6), ledger=ledger, dataset="people"))
