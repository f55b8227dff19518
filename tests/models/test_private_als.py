"""Private ALS finds what made the ratings, as far as the noise allows; its options at work."""

import math

import numpy as np
import pyarrow as pa
import pytest

from hushrec.data import Domain, Ratings, realistic, split_ratings
from hushrec.errors import InputError
from hushrec.evaluation import baselines
from hushrec.models import GlobalMean, ItemBias, PrivateALS
from hushrec.models.private_als.week import Numbers
from hushrec.privacy import Accountant, Budget, Season, SeasonAccountant
from hushrec.privacy.testing import SeededNoise
from tests.models.twins import small

WIDE = Domain(range(40), rating_range=(-5, 11))
PLENTY, LITTLE, LEAST = 1e4, 5.0, 1.0


def world(n_users: int, per_user: int, seed: int = 0, taste_sd: float = 0.5, rest: float = 0.5):
    """Return ratings of 40 items with a bias and one taste each, and these; users' ratings have deviation
    ``rest`` about them."""
    rng = np.random.default_rng(seed)
    bias, taste = rng.normal(0, 0.4, 40), rng.normal(0, taste_sd, 40)
    users = np.repeat(np.arange(n_users), per_user)
    items = np.concatenate([rng.choice(40, per_user, False) for _ in range(n_users)])
    likes, offsets = rng.normal(0, 1, n_users), rng.normal(0, 0.4, n_users)
    found = 3 + bias[items] + likes[users] * taste[items] + offsets[users]
    rows = Ratings.from_any((users, items, found + rng.normal(0, rest, len(users))), WIDE)
    return rows, bias - bias.mean(), taste


def trained(rows: Ratings, epsilon: float, **settings):
    estimator = PrivateALS(features=False, n_users=rows.n_users, **settings)
    season = Season(Budget(epsilon, 1e-5))
    return estimator.fit(rows, SeasonAccountant(season, noise=SeededNoise(1)))


def test_biases_are_found_without_noise_and_less_of_them_the_more_noise_there_is() -> None:
    rows, bias, _ = world(4000, 20, taste_sd=0.0)
    errors = []
    for rounds, off in ((2, 0.1), (4, 0.02)):
        found = trained(rows, PLENTY, rank=0, bias_rounds=rounds).item_bias
        assert (found - found.mean()) @ bias / (bias @ bias) == pytest.approx(1.0, abs=off)
    few = rows.rows(range(400), keyed=True)
    for epsilon in (PLENTY, LITTLE, LEAST):
        found = trained(few, epsilon, rank=0, bias_rounds=4).item_bias
        errors.append(np.std(found - found.mean() - bias))
    assert errors == sorted(errors) and errors[-1] < np.std(bias)


@pytest.mark.parametrize("n_users", [40, 200])
def test_biases_of_few_users_are_calibrated(n_users: int) -> None:
    """The truth, regressed on a posterior mean, has slope 1."""
    slopes = []
    for seed in range(8):
        rows, bias, _ = world(n_users, 4, seed, taste_sd=0.0, rest=1.0)
        found = trained(rows, PLENTY, rank=0, bias_rounds=4).item_bias
        slopes.append((found - found.mean()) @ bias / np.sum((found - found.mean()) ** 2))
    assert 0.7 < np.mean(slopes) < 1.3


def test_a_taste_and_the_residual_variance_are_found_without_noise_and_less_with_it() -> None:
    rows, _, taste = world(3000, 25)
    model = trained(rows, PLENTY, rank=1, iterations=8)
    assert abs(np.corrcoef(model.item_factors[:, 0], taste)[0, 1]) > 0.999
    numbers = Numbers(*model.state["numbers"])
    assert numbers.residual == pytest.approx(0.25, rel=0.05) and numbers.n_users == 3000
    within = [np.var(rows.matrix.data[start : start + 25]) for start in rows.matrix.indptr[:-1]]
    assert numbers.spread == pytest.approx(math.sqrt(np.mean(within)), rel=0.03)
    alike = [
        abs(np.corrcoef(trained(rows, epsilon, rank=1, iterations=2).item_factors[:, 0], taste)[0, 1])
        for epsilon in (PLENTY, LITTLE, LEAST, 0.3)
    ]
    assert alike == sorted(alike, reverse=True) and alike[0] > 0.99


def test_a_model_does_not_depend_on_the_unit_of_the_ratings() -> None:
    rows, *_ = world(800, 20)
    tenfold = rows.to_arrow()
    tenfold = tenfold.set_column(2, "rating", pa.array(10 * np.asarray(tenfold["rating"])))
    tenfold = Ratings.from_any(tenfold, Domain(range(40), rating_range=(-50, 110)))
    one, ten = (trained(each, LITTLE, rank=2, iterations=3) for each in (rows, tenfold))
    assert ten.item_bias == pytest.approx(10 * one.item_bias, abs=1e-3)
    assert ten.item_factors == pytest.approx(one.item_factors, abs=1e-3)


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
