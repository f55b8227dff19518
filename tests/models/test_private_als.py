"""Private ALS against a slow twin that is given the noise of the run, and its options at work."""

import math

import numpy as np
import pytest

from hushrec.data import Domain, Ratings, realistic, split_ratings
from hushrec.errors import InputError
from hushrec.evaluation import baselines
from hushrec.models import GlobalMean, ItemBias, PrivateALS
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise
from hushrec.training.posterior import item_weights
from tests.models.twins import (
    full,
    level,
    likely_factor,
    run,
    shown,
    small,
    start,
)


def test_it_matches_a_slow_twin() -> None:
    ratings = small()
    estimator = PrivateALS.of(
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
    weights = item_weights(weights, noise_sd["item weights"]).mean  # tests/models/test_posterior.py judges it
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
    slope, prior = 0.5 * slopes, (0.65 * unit) ** 2
    popularity = np.log(weights) - np.average(np.log(weights), weights=weights)
    popularity /= math.sqrt(np.average(popularity**2, weights=weights))
    design = np.column_stack([np.ones(n_items), visible * popularity])
    sampling = 2 * unit**2 * n_users / slopes.sum() / slopes  # of a bias
    error = (unit * noise_sd["item biases 1"]) ** 2 + slope**2 * sampling

    def regressed(prior):
        root = np.sqrt(slope**2 * prior + error)
        stacked = np.vstack([slope[:, None] * design / root[:, None], np.diag([2.0, 2.0]) / unit])
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
    spread_of_users = 1.5 * unit**2
    ridge = residual / spread_of_users

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
        error += residual * measured
        gain = 0.36 * measured @ np.linalg.inv(0.36 * measured @ measured + error)
        expected[item] = gain @ noisy
    np.testing.assert_allclose(model.item_bias, bias, atol=2e-3)  # weights are posterior means between bins
    np.testing.assert_allclose(model.item_factors, expected, rtol=0.05, atol=2e-3)


def rmse(model, history: Ratings, test: Ratings) -> float:
    return math.sqrt(np.mean((model.predict_pairs(history, test) - test.matrix.data) ** 2))


def test_the_planned_model_beats_both_baselines_on_realistic_data() -> None:
    train, test = split_ratings(realistic(4000, 800, 300_000, seed=2), (0.9, 0.1), seed=0)
    budget = Budget(5.0, 1e-6)
    models = [PrivateALS.planned(budget, train.domain, 4000), ItemBias(), GlobalMean()]
    errors = [rmse(model.fit(train, Accountant(budget)), train, test) for model in models]
    assert errors == sorted(errors)


def test_more_epsilon_is_no_worse_where_most_users_have_one_rating() -> None:
    """Nor is it worse than the users' own means; ratings of 1,500 users, one to 200 each."""
    rng = np.random.default_rng(0)
    counts = np.clip(2 * rng.pareto(1.1, 1500), 1, 200).astype(int)
    users = np.repeat(np.arange(1500), counts)
    items = np.concatenate([rng.choice(3000, size, replace=False) for size in counts])
    ratings = (
        rng.normal(7.6, 1, 1500)[users] + rng.normal(0, 0.5, 3000)[items] + rng.normal(0, 1.4, len(items))
    )
    domain = Domain(range(3000), rating_range=(1, 10))
    rows = Ratings.from_any((users, items, np.clip(np.round(ratings), 1, 10)), domain)
    history, test = split_ratings(rows, (0.8, 0.2), seed=0)
    found = []
    for epsilon in (1.0, 20.0):
        budget = Budget(epsilon, 1e-6)
        accountant = Accountant(budget, noise=SeededNoise(1))
        model = PrivateALS.planned(budget, domain, 1500).fit(history, accountant)
        found.append(rmse(model, history, test))
    means = rmse(baselines(model)["user means"], history, test)
    assert found[1] < found[0] < means + 0.01 and found[1] < means


@pytest.mark.parametrize("name", ["bias_clip", "factor_clip", "user_norm"])
def test_no_clip_is_refused_in_a_private_run(name: str) -> None:
    accountant = Accountant(Budget(1.0, 1e-6))
    with pytest.raises(InputError, match=name):
        PrivateALS.of(iterations=1, **{name: None}).fit(small(), accountant)
    assert accountant.releases == ()
