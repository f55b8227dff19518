"""Item features as the mean of a prior, against dense Gaussian posteriors, and at work."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import hushrec
from hushrec.data import Ratings, realistic
from hushrec.data.features import feature_scores
from hushrec.models import Model, PrivateALS
from hushrec.models.private_als import features as item_features
from hushrec.models.private_als.features import expected_from_features
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise

GRID = 2.0 ** np.arange(-6, 9)


def dense_fit(scores, released, slope, variance, noise_variance, evidence):
    """Best pair of variances by the density of the sums, and the posterior mean of ``v`` under it."""
    known = np.flatnonzero(scores.any(axis=1))
    common, unit = scores[known] @ scores[known].T, variance[known].mean()

    def log_density(explained, rest):
        total = 0.0
        for y, a, n in zip(released[known].T, slope[known].T, noise_variance[known].T):
            covariance = np.diag(a) @ (explained * common + rest * np.eye(len(known))) @ np.diag(a) + np.diag(
                n
            )
            total += multivariate_normal(cov=covariance).logpdf(y)
        return total

    alone = max((log_density(0, t * unit), t) for t in GRID)
    together = max((log_density(s * unit, t * unit), s, t) for s in GRID for t in GRID)
    useful = 1 / (1 + math.exp(evidence + alone[0] - together[0]))  # odds: the densities and the prior ones
    _, s, t = together
    mean = np.zeros_like(released)
    for column, (y, a, n) in enumerate(zip(released[known].T, slope[known].T, noise_variance[known].T)):
        shared = s * unit * common
        covariance = np.diag(a) @ (shared + t * unit * np.eye(len(known))) @ np.diag(a) + np.diag(n)
        mean[known, column] = useful * shared @ (a * np.linalg.solve(covariance, y))
    after = variance.copy()
    after[known] *= useful * min(1.0, t / alone[1]) + 1 - useful
    return mean, after, useful


def problem(seed: int, strength: float):
    rng = np.random.default_rng(seed)
    n_items, width = 24, 2
    features = rng.standard_normal((n_items, 3))
    features[5] = np.nan
    scores = feature_scores(np.where(rng.random(features.shape) < 0.1, np.nan, features), n_items)
    truth = scores @ rng.standard_normal((scores.shape[1], width)) * strength
    truth += rng.standard_normal((n_items, width)) * 0.3
    slope = rng.uniform(0.2, 3, (n_items, width))
    noise_variance = rng.uniform(0.05, 0.3, (n_items, width))
    released = slope * truth + np.sqrt(noise_variance) * rng.standard_normal((n_items, width))
    return scores, released, slope, rng.uniform(0.2, 0.6, n_items), noise_variance


@pytest.mark.parametrize(("seed", "strength"), [(0, 1.0), (1, 1.0), (2, 0.5), (3, 0.0)])
def test_it_is_the_posterior_of_a_dense_model(seed: int, strength: float) -> None:
    given = problem(seed, strength)
    mean, variance, useful = expected_from_features(*given)
    expected_mean, expected_variance, expected_useful = dense_fit(*given, evidence=3.0)
    assert useful == pytest.approx(expected_useful, rel=1e-8)
    assert useful > 0.99 if strength > 0 else useful < 0.1
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(variance, expected_variance, rtol=1e-12)
    assert not mean[5].any()  # no features: the plain prior
    assert variance[5] == given[3][5]


def test_scores_are_principal_components_of_the_standardised_features() -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((100, 4)) @ rng.standard_normal((4, 6)) * [1, 1e150, 3, 1e-6, 5, 1]
    features = np.column_stack([features, np.full(100, 7.0)])  # a constant says nothing
    features[[3, 8]] = np.nan
    kept = np.delete(features[:, :6], [3, 8], axis=0)
    standard = (kept - kept.mean(axis=0)) / np.std(kept / np.abs(kept).max(0), axis=0) / np.abs(kept).max(0)
    scores = feature_scores(features, 100)
    assert scores.shape == (100, 4)  # the rank of what was given
    assert not scores[[3, 8]].any()
    gram = np.delete(scores, [3, 8], axis=0)
    gram = gram @ gram.T
    assert np.trace(gram) / 98 == pytest.approx(1)
    np.testing.assert_allclose(gram, standard @ standard.T / 6, atol=1e-8)
    assert feature_scores(rng.standard_normal((100, 50)), 100).shape == (100, 10)
    assert feature_scores(np.ones((100, 2)), 100).shape == (100, 0)
    assert feature_scores(None, 100).shape == (100, 0)


def with_features(ratings: Ratings, features) -> Ratings:
    domain = dataclasses.replace(ratings.domain, item_features=features)
    return dataclasses.replace(ratings, domain=domain)


def trained(ratings: Ratings, epsilon: float, seed: int) -> Model:
    budget = Budget(epsilon, 1e-6)
    estimator = PrivateALS.planned(budget, ratings.domain, ratings.n_users)
    return estimator.fit(ratings, Accountant(budget, noise=SeededNoise(seed)), seed=seed)


def rmse(model: Model, history: Ratings, test: Ratings) -> float:
    return math.sqrt(np.mean((model.predict_pairs(history, test) - test.matrix.data) ** 2))


@pytest.mark.parametrize("share, odds", [(0.07, -math.inf), (0.015, math.inf)], ids=["useful", "of no use"])
@pytest.mark.parametrize("rank", [2, 6])
def test_users_fit_slopes_of_their_own_as_a_dense_ridge_does(rank, share, odds, monkeypatch) -> None:
    """Slopes on scores of norm 1, which explain that fraction of the model's residuals."""
    monkeypatch.setattr(item_features, "_EVIDENCE", odds)
    ratings = realistic(1500, 200, 60_000, n_features=8, seed=3)
    features = ratings.domain.item_features
    estimator = PrivateALS(rank=rank, iterations=2 * (rank > 2))
    model = estimator.fit(ratings, Accountant(Budget(5.0, 1e-6), noise=SeededNoise(1)), seed=1)
    scores, learned = feature_scores(features, 200), model.arrays["item_factors"][:, :rank]
    assert model.directions is None
    seen = {ratings.domain.items[j]: 1.0 + j % 5 for j in range(0, 60, 3)}
    own, others = np.arange(0, 60, 3), np.arange(60, 90)
    bias = float(model.arrays["center"]) + model.arrays["item_bias"]
    design = np.column_stack([learned, scores, np.ones(200)]).astype(np.float64)
    ridge = [float(model.arrays["regularization"])] * rank + [1 / share] * scores.shape[1]
    ridge = np.diag([*ridge, float(model.arrays["bias_regularization"])])
    toward = design[own].T @ (np.array(list(seen.values())) - bias[own])
    fitted = np.linalg.solve(design[own].T @ design[own] + ridge, toward)
    expected = np.clip(bias[others] + design[others] @ fitted, 1, 5)
    found = model.predict(seen, [ratings.domain.items[j] for j in others])
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_items_are_compared_by_what_was_learned_alone() -> None:
    """Without privacy, where items can be compared: features are no user's taste."""
    ratings = realistic(300, 60, 9000, n_features=5, seed=0)
    for rank in (2, 4):
        accountant = Accountant(Budget(math.inf, 1e-6))
        model = PrivateALS(rank=rank, iterations=rank - 2).fit(ratings, accountant)
        assert model.directions == (4 if rank == 4 else 0) and model.arrays["item_factors"].shape[1] > rank


def test_the_model_file_needs_no_features(tmp_path) -> None:
    ratings = realistic(200, 60, 3000, n_features=5, seed=0)
    model = trained(ratings, 5.0, 0)
    model.save(tmp_path / "model.hush")
    again = hushrec.load(tmp_path / "model.hush")
    assert again.domain.item_features is None
    assert again.predict({"i00001": 5.0}, ["i00002"]) == model.predict({"i00001": 5.0}, ["i00002"])
    assert "5 item features" in model.privacy.text()
    assert model.privacy.releases == trained(with_features(ratings, None), 5.0, 0).privacy.releases
