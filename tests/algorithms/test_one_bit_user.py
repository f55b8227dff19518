"""User-level one-bit model: the logistic gradient against slow loops. Its releases: the shared suite."""

import math

import numpy as np
import pytest
from scipy import optimize

from hushrec.algorithms import PrivateALS, UserLevelOneBit
from hushrec.algorithms.one_bit_user import LabelUsers
from hushrec.data import Domain, Ratings, realistic
from hushrec.errors import InputError
from hushrec.kernels.sweeps import SweepSettings
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise


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


def test_what_a_user_adds_is_clipped_whatever_her_factors_are():
    """Of the Gramian a Frobenius norm of (spread times user_norm)^2, by NumPy; of the item sums the clip."""
    ratings, rng = labelled(n_users=1), np.random.default_rng(3)
    items, weights = rng.standard_normal((6, 3)), np.ones(6)
    local = LabelUsers(ratings)
    local.weigh(0.0, weights)
    local.fit(100 * items, SweepSettings(regularization=1e-9, bias_regularization=1.0))
    local._fitted = 1e3 * rng.standard_normal(local._fitted.shape)
    sums, shared = local.item_sums(items, weights, user_norm=0.5, clip=0.7, spread=0.8, unit=2.0)
    gram = shared._take()[:3]
    norm = math.sqrt(gram[0] ** 2 + 2 * gram[1] ** 2 + gram[2] ** 2)
    assert norm == pytest.approx((0.8 * 0.5) ** 2, rel=1e-3)
    assert 0 < np.linalg.norm(sums._take()) <= 0.7 * 2.0


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


def test_a_user_whose_regression_overflows_contributes_finite_numbers():
    """However large the released factors: a NaN would pass every clip and show in the sums."""
    users = LabelUsers(labelled())
    users.weigh(0.0, np.ones(6))
    for size in (1e25, 1e300):
        users.fit(np.full((6, 3), size), SweepSettings(regularization=30.0, bias_regularization=8.0))
        assert np.isfinite(users._fitted).all()


def test_more_rounds_beat_one_release_of_item_log_odds():
    ratings = realistic(2000, 50, 40_000, seed=1)
    liked = ratings.matrix.data > 3.5
    accuracy = {}
    for name, settings in {
        "majority": {"bias_rounds": 0},
        "one": {"bias_rounds": 1},
        "full": {"bias_rounds": 4},
    }.items():
        budget = Budget(1.0, 1e-6)
        fit = UserLevelOneBit(threshold=3.5, rank=0, features=False, iterations=0, n_users=2000, **settings)
        board = fit.fit(ratings, Accountant(budget, noise=SeededNoise(0)))
        accuracy[name] = np.mean((board.predict_pairs(ratings, ratings) > 0) == liked)
    assert accuracy["full"] > accuracy["majority"] + 0.01
    assert accuracy["full"] > accuracy["one"] - 0.002


def test_refused_settings():
    with pytest.raises(InputError, match="threshold"):
        UserLevelOneBit(threshold="high")


def test_labels_are_fitted_as_ratings_from_minus_one_to_one_and_scores_are_log_odds(monkeypatch) -> None:
    """The model of half the log-odds is released, and twice that is served."""
    ratings = Ratings.from_any(([0, 0, 1], ["a", "b", "b"], [3.0, 2.0, 4.5]), Domain(["a", "b"], (1, 5)))
    model = UserLevelOneBit(threshold=3.0, rank=2, iterations=1, features=False)
    users = model.users(ratings)
    assert users._ratings.matrix.toarray().tolist() == [[-1.0, -1.0], [0.0, 1.0]]
    assert users._ratings.matrix.data.dtype == np.float32
    assert (users.domain.low, users.domain.high, users.domain.likes) == (-1.0, 1.0, False)
    budget = Budget(2.0, 1e-6)
    wide = PrivateALS(**{key: value for key, value in model.get_params().items() if key != "threshold"})
    assert model.plan(budget, ratings.domain).releases == wide.plan(budget, users.domain).releases
    arrays = {"center": np.float64(0.5), "item_bias": np.ones(2), "item_factors": np.full((2, 1), 3.0)}
    monkeypatch.setattr(PrivateALS, "train", lambda self, *asked: arrays | {"regularization": 7.0})
    found = model.train(users, None, 0)
    assert (found["center"], found["regularization"]) == (1.0, 7.0)
    assert found["item_bias"].tolist() == [2.0, 2.0] and found["item_factors"].tolist() == [[6.0]] * 2
