"""Private ALS against a slow twin that is given the noise of the run, and its options at work."""

import math

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.matrices import dpals_matrix
from hushrec.algorithms import GlobalMean, ItemBias, PrivateALS
from hushrec.algorithms.als_rounds import Level
from hushrec.data import Domain, Ratings, realistic, split_ratings
from hushrec.errors import InputError
from hushrec.kernels.sweeps import SweepSettings
from hushrec.posterior import item_weights
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise
from hushrec.users import FittedUsers
from tests.algorithms.twins import (
    full,
    level,
    likely_factor,
    likely_weights,
    run,
    shown,
    small,
    start,
)


def test_it_matches_a_slow_twin() -> None:
    ratings = small()
    estimator = PrivateALS(
        rank=2,
        features=False,
        iterations=1,
        bias_rounds=1,
        weight_exponent=-0.5,
        bias_clip=0.3,
        factor_clip=0.05,
        user_norm=0.2,
        user_variance=1.5,
    )
    model, noise, noise_sd = run(estimator, ratings)
    dense = ratings.matrix.toarray().astype(np.float64)
    seen = [np.flatnonzero(row) for row in dense]
    rank, n_items = 2, 12

    # level, spreads and weights; what noise may have made is drawn to usual values
    center, n_users, unit, damping = level(dense, seen, noise, noise_sd)
    weights = noise["item weights"].copy()
    for s in seen:
        weights[s] += 1 / math.sqrt(len(s))
    visible = min(max(1 - noise_sd["item weights"] ** 2 / np.var(weights), 0.0), 1.0)
    weights = likely_weights(weights, noise_sd["item weights"])
    relative = (weights / weights.max()) ** -0.5
    slopes = weights * relative / math.sqrt((weights * relative**2).sum() / weights.sum())
    cells = [relative[s] / math.sqrt((relative[s] ** 2).sum()) for s in seen]

    # one bias round
    sums = noise["item biases 1"][:, 0].copy()
    for row, s, cell in zip(dense, seen, cells):
        offset = (row[s] - center).sum() / (len(s) + damping)
        contribution = cell * (row[s] - center - offset)
        contribution *= min(1.0, 0.3 * unit / np.linalg.norm(contribution))
        sums[s] += contribution
    slope, prior = 0.45 * slopes, (0.65 * unit) ** 2
    popularity = np.log(weights) - np.average(np.log(weights), weights=weights)
    popularity /= math.sqrt(np.average(popularity**2, weights=weights))
    design = np.column_stack([np.ones(n_items), visible * np.clip(popularity, -4, 4)])
    error = (unit * noise_sd["item biases 1"]) ** 2
    error = error + unit**2 * (0.2 * slope + 0.6 * slopes * n_users / slopes.sum())

    def regressed(prior):
        root = np.sqrt(slope**2 * prior + error)
        stacked = np.vstack([slope[:, None] * design / root[:, None], np.diag([1 / 0.5, 1 / 0.3]) / unit])
        return design @ np.linalg.lstsq(stacked, np.append(sums / root, [0, 0]), rcond=None)[0]

    rest = sums - slope * regressed(prior)
    prior *= likely_factor(rest, slope**2 * prior, error)
    common = regressed(prior)
    bias = common + prior * slope / (slope**2 * prior + error) * (sums - slope * common)

    # residual variance, one vote a user, sets the users' ridge
    votes = noise["residual variance 1"][0]
    for row, s in zip(dense, seen):
        target = row[s] - center - bias[s]
        rest = target - target.sum() / (len(s) + damping)
        votes += min((rest**2).sum() / (len(s) - len(s) / (len(s) + damping)), 2 * unit**2)
    usual = 0.75 * unit**2
    residual = usual + shown(usual, 2 * unit**2 * noise_sd["residual variance 1"] / n_users) * (
        votes / n_users - usual
    )
    spread_of_users = 1.5 * unit**2 * min(1.0, weights.sum() / n_users / 8)
    ridge = 0.8 * residual / spread_of_users

    # one iteration of factors, from a random start that the first update replaces
    items = start(n_items, rank)
    gram = full(noise["gramian 1"][:-1], rank)
    typical = np.linalg.eigvalsh(items.T @ np.diag(slopes / slopes.sum()) @ items)
    uncertainty = noise["gramian 1"][-1] + sum(np.mean(ridge / (ridge + len(s) * typical)) for s in seen)
    sums = noise["item sums 1"].copy()
    for row, s, cell in zip(dense, seen, cells):
        design = np.column_stack([items[s], np.ones(len(s))])
        target = row[s] - center - bias[s]
        user = np.linalg.solve(design.T @ design + np.diag([ridge, ridge, damping]), design.T @ target)
        rest = cell * (target - design @ user)
        factors = user[:2]
        length = np.linalg.norm(factors)
        bound = 0.05 * unit * math.sqrt(residual)
        shrink = min(1, (0.2 * unit / length) ** 2, bound / (length * np.linalg.norm(rest)))
        gram += shrink * np.outer(factors, factors)
        sums[s] += shrink * rest[:, None] * factors
    values, vectors = np.linalg.eigh(gram)
    gram = (vectors * np.maximum(values, unit**2 * noise_sd["gramian 1"])) @ vectors.T / n_users
    variance = spread_of_users * min(1.0, uncertainty / n_users)  # of what is known of a user
    gram = gram + variance * np.eye(rank)
    expected = np.zeros((n_items, rank))
    for item in range(n_items):
        measured = slopes[item] * gram
        noisy = sums[item] + measured @ items[item] - variance * slopes[item] * items[item]
        error = (unit * math.sqrt(residual) * noise_sd["item sums 1"]) ** 2 * np.eye(rank)
        error += 0.3 * residual * measured
        gain = 0.36 * measured @ np.linalg.inv(0.36 * measured @ measured + error)
        expected[item] = gain @ noisy
    np.testing.assert_allclose(model.item_bias, bias, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.item_factors, expected, rtol=1e-3, atol=1e-4)


def test_a_user_whose_regression_overflows_contributes_finite_numbers() -> None:
    """However large the released factors: a NaN would pass every clip and show in the sums."""
    users = FittedUsers(small())
    users.weigh(3.0, np.ones(12))
    users.fit(np.full((12, 3), 1e25), SweepSettings(regularization=30.0, bias_regularization=8.0))
    assert users._fitted.shape == (60, 3)
    assert np.isfinite(users._fitted).all()


@pytest.mark.parametrize("hers", [1e160, -1e308])
@pytest.mark.parametrize("method", ["item_residuals", "outer_products"])
def test_a_user_whose_residuals_overflow_counts_for_nothing(method, hers) -> None:
    """Oracle: the same without her; nothing warns. Squares overflow, or residuals, in both directions."""
    ratings, sums = small(), []
    items = np.column_stack([np.full(12, 1e5), np.linspace(-1e5, 1e5, 12), np.full(12, 3.0)])
    for first in (0, 1):
        users = FittedUsers(ratings.rows(slice(first, None), keyed=True))
        users.weigh(0.0, np.linspace(0.5, 1.0, 12))
        users._fitted = np.zeros((60 - first, 3))
        users._fitted[: 1 - first] = hers
        sums.append(getattr(users, method)(items, 0.3, 1.0)._take())
    assert np.isfinite(sums[0]).all() and np.array_equal(*sums)


def rmse(model, history: Ratings, test: Ratings) -> float:
    return math.sqrt(np.mean((model.predict_pairs(history, test) - test.matrix.data) ** 2))


def test_the_planned_model_beats_both_baselines_on_realistic_data() -> None:
    train, test = split_ratings(realistic(4000, 800, 300_000, seed=2), (0.9, 0.1), seed=0)
    budget = Budget(5.0, 1e-6)
    models = [PrivateALS.planned(budget, train.domain, 4000), ItemBias(), GlobalMean()]
    errors = [rmse(model.fit(train, Accountant(budget)), train, test) for model in models]
    assert errors == sorted(errors)


def test_synthetic_low_rank_data_are_completed() -> None:
    """DPALS's own protocol in small: unit variance, rank 5; predicting zero gives 1."""
    ratings = dpals_matrix(6000, 300, seed=1).ratings
    train, test = split_ratings(ratings, (0.9, 0.1), seed=0)
    budget = Budget(5.0, 1e-5)
    estimator = PrivateALS.planned(budget, train.domain, train.n_users)
    assert rmse(estimator.fit(train, Accountant(budget)), train, test) < 0.1


def test_noise_alone_changes_no_prediction_by_much() -> None:
    """Where a handful of users tells nothing, the model is little else than a user's own mean."""
    train, test = split_ratings(realistic(300, 200, 9_000, seed=3), (0.8, 0.2), seed=0)
    budget = Budget(0.05, 1e-6)
    model = PrivateALS.planned(budget, train.domain, train.n_users)
    accountants = [Accountant(budget, noise=SeededNoise(seed)) for seed in range(9)]
    errors = [rmse(model.fit(train, accountant), train, test) for accountant in accountants]
    means = train.matrix.sum(axis=1) / np.diff(train.matrix.indptr)
    own = means[train.user_index(test.users)][np.repeat(np.arange(test.n_users), np.diff(test.matrix.indptr))]
    assert np.median(errors) < 1.03 * math.sqrt(np.mean((own - test.matrix.data) ** 2))


@pytest.mark.parametrize(
    ("sizes", "epsilon"), [((290, 300, 7000), 0.5), ((290, 300, 7000), 1.0), ((3000, 40_000, 99_000), 5.0)]
)
def test_few_users_and_large_catalogues_do_not_lose_to_item_bias(sizes: tuple, epsilon: float) -> None:
    """Weights that noise hides made every later round a bad one: it lost by 0.008 to 0.024."""
    train, test = split_ratings(realistic(*sizes, seed=5), (0.8, 0.2), seed=0)
    budget = Budget(epsilon, 1e-5)
    models = [PrivateALS.planned(budget, train.domain, train.n_users), ItemBias()]
    ours, biases = (
        np.mean([rmse(m.fit(train, Accountant(budget, noise=SeededNoise(k))), train, test) for k in range(8)])
        for m in models
    )
    assert ours < biases + 0.002


def test_weights_that_noise_hides_come_out_as_their_mean_and_others_as_they_were_released() -> None:
    rng = np.random.default_rng(0)
    weights = rng.lognormal(2.0, 1.0, 2000)
    for noise_sd in (0.1, 300.0):
        likely, supported = item_weights(weights + noise_sd * rng.standard_normal(2000), noise_sd)
        own_noise = 0.3 * noise_sd
        expected = weights if noise_sd < 1 else np.full(2000, math.hypot(weights.mean(), own_noise))
        assert np.abs(np.log(likely / expected)).mean() < (0.05 if noise_sd < 1 else 0.2)
        assert supported.mean() == pytest.approx(1.0 if noise_sd < 1 else 0.0, abs=0.01)


@pytest.mark.parametrize(
    "settings",
    [
        {"rank": -1},
        {"rank": 2.5},
        {"rank": True},
        {"iterations": -1},
        {"user_variance": 0.0},
        {"user_variance": float("nan")},
        {"bias_clip": -1.0},
        {"start": "zero"},
        {"weight_exponent": 0.5},
        {"n_users": 0},
        {"features": True, "bias_rounds": 0},
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(settings: dict) -> None:
    with pytest.raises(InputError) as error:
        PrivateALS(**settings)
    assert next(iter(settings)) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["bias_clip", "factor_clip", "user_norm"])
def test_no_clip_is_refused_in_a_private_run(name: str) -> None:
    accountant = Accountant(Budget(1.0, 1e-6))
    with pytest.raises(InputError, match=name):
        PrivateALS(iterations=1, **{name: None}).fit(small(), accountant)
    assert accountant.releases == ()


def test_a_domain_read_from_the_ratings_is_refused_in_a_private_run() -> None:
    base = small()
    users, items = base.matrix.nonzero()
    table = {"user": users, "item": items, "rating": base.matrix.data}
    domain = Domain.observed(pa.table(table))
    ratings = Ratings.from_any(pa.table(table), domain)
    accountant = Accountant(Budget(1.0, 1e-6))
    with pytest.raises(InputError, match="declare"):
        PrivateALS().fit(ratings, accountant)
    assert accountant.releases == ()
    PrivateALS().fit(ratings, Accountant(Budget(math.inf, 1e-6)))


def test_a_spectral_start_takes_no_notice_of_sums_of_squares() -> None:
    """Oracle: eigenvectors of the released matrix less its diagonal, which holds the users' noise too."""
    rng, n_items, rank = np.random.default_rng(3), 12, 3
    half = rng.normal(size=(n_items, rank)) * [3.0, 2.0, 1.0]
    matrix = half @ half.T + np.diag(100 * rng.random(n_items))
    model = PrivateALS(rank=rank, iterations=1, start="spectral", features=False)

    class Told:
        @staticmethod
        def release(label, bounded):
            assert label == "start"
            return matrix[np.tril_indices(n_items)]

    class Asked:
        @staticmethod
        def outer_products(items, clip, spread):
            return clip, spread

    items = np.column_stack([rng.normal(size=n_items)])
    found = model._start(Asked, items, Level(3.0, 10.0, 1.0, 1.0, 1.0), np.zeros((n_items, 0)), Told, 0)
    values, vectors = np.linalg.eigh(matrix - np.diag(np.diag(matrix)))
    expected = vectors[:, ::-1][:, :rank] * math.sqrt(n_items) * model.factor_prior
    assert found[:, -1].tolist() == items[:, 0].tolist()
    assert np.abs((found[:, :rank] * expected).sum(axis=0)) == pytest.approx((expected**2).sum(axis=0))
