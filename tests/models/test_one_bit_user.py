"""User-level one-bit model: the logistic gradient against slow loops. Its releases: the shared suite."""

import math

import numpy as np
import pytest
from scipy import optimize

from hushrec.data import Domain, Ratings, realistic
from hushrec.models import Model, PrivateALS, UserLevelOneBit
from hushrec.models.one_bit_user import LabelUsers
from hushrec.privacy import Accountant, Budget, Season, SeasonAccountant
from hushrec.privacy.testing import SeededNoise
from hushrec.training.users import Users
from hushrec.types import ModelArrays
from tests.opening import opened


def labelled(seed: int = 0, n_users: int = 9, n_items: int = 6) -> Ratings:
    rng = np.random.default_rng(seed)
    users, items = np.nonzero(rng.random((n_users, n_items)) < 0.6)
    labels = rng.choice([-1.0, 1.0], len(users))
    return Ratings.from_any((users, items, labels), Domain(range(n_items), rating_range=(-1, 1)))


def test_what_is_summed_is_the_logistic_gradient():
    """sum_i a_i w_j (y_ij - tanh(s_ij)) u_i: half the log-odds' gradient, as loops over users and items."""
    ratings, rng = labelled(), np.random.default_rng(1)
    weight = rng.uniform(0.5, 1.0, 6)
    users, items = rng.standard_normal((ratings.n_users, 3)), rng.standard_normal((6, 3))
    local = LabelUsers(ratings)
    local.weigh(0.2, weight)
    local._fitted = users
    sums, _ = local._residual_sums(items, math.inf, math.inf)
    expected = np.zeros((6, 2))
    for i in range(ratings.n_users):
        row = ratings.matrix[[i]].tocoo()
        norm = math.sqrt((weight[row.col] ** 2).sum())
        for j, label in zip(row.col, row.data):
            score = 0.2 + users[i, 2] + items[j, 2] + users[i, :2] @ items[j, :2]
            expected[j] += weight[j] / norm * (label - math.tanh(score)) * users[i, :2]
    assert sums == pytest.approx(expected, abs=1e-5)


def test_a_user_is_fitted_by_her_own_logistic_regression():
    ratings = labelled(2)
    fit = UserLevelOneBit(threshold=0.0, rank=2, iterations=0)
    rng = np.random.default_rng(0)
    arrays = {
        "item_factors": rng.standard_normal((6, 2)),
        "item_bias": rng.standard_normal(6),
        "center": np.float64(0.3),
        "regularization": np.float64(2.0),
        "bias_regularization": np.float64(1.5),
    }
    state = fit.fold_in(arrays, ratings)
    for i in range(ratings.n_users):
        row = ratings.matrix[[i]].tocoo()

        def value(x, row=row):
            score = 0.3 + 2 * x[2] + arrays["item_bias"][row.col] + arrays["item_factors"][row.col] @ x[:2]
            return np.logaddexp(0, -row.data * score).sum() + (x[:2] @ x[:2]) + 0.75 * x[2] ** 2

        best = optimize.minimize(value, np.zeros(3), method="BFGS", options={"gtol": 1e-8}).x
        assert state.factors[i] == pytest.approx(best[:2], abs=1e-3)
        assert state.offset[i] == pytest.approx(2 * best[2], abs=1e-3)


def test_labels_are_fitted_as_ratings_from_minus_one_to_one_and_scores_are_log_odds(monkeypatch) -> None:
    """The model of half the log-odds is released, and twice that is served."""
    ratings = Ratings.from_any(([0, 0, 1], ["a", "b", "b"], [3.0, 2.0, 4.5]), Domain(["a", "b"], (1, 5)))
    model = UserLevelOneBit(threshold=3.0, rank=2, iterations=1, features=False)
    users = model.users(ratings)
    labels = Ratings.from_any(([0, 0, 1], ["a", "b", "b"], [-1.0, -1.0, 1.0]), Domain(["a", "b"], (-1, 1)))
    wanted = Users(labels)
    for sums, told in zip(users.item_deviations(1.0), wanted.item_deviations(1.0)):
        assert opened(sums).tolist() == opened(told).tolist()
    assert opened(users.level()).tolist() == opened(wanted.level()).tolist()
    assert (users.domain.low, users.domain.high, users.domain.likes) == (-1.0, 1.0, False)
    budget = Budget(2.0, 1e-6)
    wide = PrivateALS.of(rank=2, iterations=1, features=False)
    plans = model.plan(budget, ratings.domain), wide.plan(budget, users.domain)
    found, told = ([(each.label, each.sensitivity) for each in plan.releases] for plan in plans)
    assert found == [each for each in told if each[0] != "level"]  # labels have none
    arrays = {"center": np.float64(0.5), "item_bias": np.ones(2), "item_factors": np.full((2, 1), 3.0)}
    monkeypatch.setattr(
        PrivateALS, "train", lambda self, *asked: ModelArrays(arrays | {"regularization": 7.0})
    )
    found = model.train(users, None, 0).serve
    assert (found["center"], found["regularization"]) == (1.0, 7.0)
    assert found["item_bias"].tolist() == [2.0, 2.0] and found["item_factors"].tolist() == [[6.0]] * 2


def test_a_week_on_the_same_rows_leaves_log_odds_about_as_they_were() -> None:
    """Killed: log-odds used as half log-odds: biases shrink to half over weeks."""
    rows, season = realistic(300, 20, 4000, seed=4), Season(Budget(40.0, 1e-6))
    model = UserLevelOneBit(rank=2, iterations=1, threshold=3.5)
    first = model.fit(rows, SeasonAccountant(season, noise=SeededNoise(1)))
    accountant = SeasonAccountant.following(first.privacy, noise=SeededNoise(2))
    second = first.continue_training(rows, accountant)
    assert second.arrays["center"] == pytest.approx(first.arrays["center"])
    assert np.abs(second.item_bias).mean() == pytest.approx(np.abs(first.item_bias).mean(), rel=0.15)


def test_an_explanation_adds_up_to_the_log_odds() -> None:
    """At the optimum a user's factors and offset are the sum of what each of their labels moves."""
    domain, rng = Domain(list(range(6)), rating_range=(1, 5)), np.random.default_rng(0)
    arrays = {
        "item_factors": rng.standard_normal((6, 2)), "item_bias": rng.standard_normal(6),
        "center": np.float64(0.3), "regularization": np.float64(2.0), "bias_regularization": np.float64(1.5),
    }  # fmt: skip
    model = Model(
        UserLevelOneBit(threshold=3.0), domain, arrays, Accountant(Budget(math.inf, 1e-6)).statement()
    )
    why = model.explain({0: 5.0, 2: 1.0, 3: 4.0}, 4)
    assert why.base == pytest.approx(0.3 + arrays["item_bias"][4])
    assert why.base + sum(each.moved for each in why.because) == pytest.approx(why.score, abs=1e-3)
