"""A model's report of what it learned, from released values, without a promise."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from hushrec.data import Domain, Ratings, realistic
from hushrec.errors import InputError
from hushrec.evaluation.taste import Taste, taste
from hushrec.models import ItemBias, PrivateALS, PrivateEigenRec
from hushrec.privacy import Accountant, Budget, Ledger, Season, SeasonAccountant
from hushrec.privacy.testing import SeededNoise
from hushrec.training.named import train

DOMAIN = Domain(tuple(range(200)), rating_range=(1, 5))
LIKES = Domain(tuple(range(200)), likes=True)


def with_tastes(n_users: int, domain: Domain = LIKES, groups: int = 4) -> Ratings:
    """Users of a few groups, each of which likes its own part of the catalogue and rates it 5."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(n_users), 30)
    own = (users % groups) * (200 // groups) + rng.integers(0, 200 // groups, len(users))
    items = np.where(rng.random(len(users)) < 0.8, own, rng.integers(0, 200, len(users)))
    ratings = np.where(items // (200 // groups) == users % groups, 5, rng.integers(1, 4, len(users)))
    return Ratings.from_any((users, items, ratings), domain)


def trained(ratings: Ratings, epsilon: float, name: str, **settings):
    budget = Budget(epsilon, 1e-6)
    model = train(name, ratings, Accountant(budget), n_users=ratings.n_users, settings=settings)
    return model, taste(model, budget)


@pytest.mark.parametrize("name", ["private-eigenrec", "both"])
def test_groups_of_taste_are_counted(name: str) -> None:
    """Four groups are three directions in addition to popularity with many users, and zero with few."""
    domain = LIKES if name == "private-eigenrec" else DOMAIN
    model, found = trained(with_tastes(2000, domain), 5.0, name)
    assert model.directions == found.directions == 3
    model, found = trained(with_tastes(40, domain), 1.0, name)
    assert model.directions == found.directions == 0


@pytest.mark.parametrize(
    ("relation", "before", "season"),
    [("add-remove", 0, 0.0), ("replace", 0, 0.0), ("add-remove", 3, 0.0), ("add-remove", 1, 1.5)],
)
def test_another_attempt_has_its_price(relation: str, before: int, season: float, tmp_path) -> None:
    """Oracle: the Gaussian law (Balle and Wang 2018, theorem 8), in which mu squared adds up."""

    def delta(epsilon, mu):
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)

    budget = Budget(2.0, 1e-5, relation=relation)
    ledger = Ledger(tmp_path / "ledger") if before else None
    if season:  # whose weeks to come cost as much as all of it
        ledger.open_season("default", Season(Budget(season, 1e-5)))
    for _ in range(before + 1):
        accountant = Accountant(budget, ledger=ledger, allow_composition=True)
        model = ItemBias().fit(with_tastes(50, DOMAIN), accountant)
    told = taste(model, budget, model.privacy.ledger).text()
    mu = brentq(lambda mu: delta(2.0, mu) - 1e-5, 0.01, 5)
    weeks = brentq(lambda mu: delta(season, mu) - 1e-5, 0.01, 5) if season else 0.0
    total = math.hypot(math.sqrt(2 + before) * mu, weeks)
    both = brentq(lambda epsilon: delta(epsilon, total) - 1e-5, 1, 9)
    said = float(told.partition("total cost to epsilon = ")[2].partition(" ")[0])
    assert said == pytest.approx(both, rel=1e-5)
    assert told.endswith(f"at delta = 1e-05 (unit: user, relation: {relation}).")


def test_what_is_said_of_models_without_directions() -> None:
    ratings, budget = with_tastes(100, DOMAIN), Budget(5.0, 1e-6)
    model, found = trained(with_tastes(60, DOMAIN), 1.0, "private-als")
    assert model.estimator.iterations == 0 and found.directions == 0
    with pytest.raises(InputError, match="does not know which items go together"):
        model.similar_items(0)
    of_ratings = PrivateALS(rank=3, iterations=1, n_users=100).fit(ratings, Accountant(budget))
    told = taste(of_ratings, budget)
    assert told.directions is None and "learned taste cannot be distinguished from noise" in told.text()
    free = Budget(math.inf, 1e-6)
    assert taste(train("als", ratings, Accountant(free)), free) == Taste(None)


def test_inside_a_season_no_other_training_is_priced() -> None:
    """The budget is the season's, and a week's training adds nothing to it."""
    season = Season(Budget(1.0, 1e-6))
    estimator = PrivateEigenRec(rank=2, iterations=2, n_users=60)
    model = estimator.fit(with_tastes(60), SeasonAccountant(season))
    told = taste(model, model.privacy.budget).text()
    assert (
        told == "Personal taste: no taste dimension exceeds the noise, so all users get nearly the same list."
    )


def test_dimensions_that_may_be_noise_are_reported_where_lists_follow_them() -> None:
    ratings, budget = realistic(1500, 300, 60_000, seed=0), Budget(0.5, 1e-6)
    texts = {}
    for rank in (0, 40):
        accountant = Accountant(budget, noise=SeededNoise(1))
        model = PrivateEigenRec(rank=rank, n_users=1500).fit(ratings, accountant)
        assert model.directions == 0
        texts[model.item_factors.shape[1]] = taste(model, budget).text()
    none, some = sorted(texts)
    assert none == 0 and "all users get nearly the same list" in texts[0]
    assert some > 0 and f"lists follow {some} taste dimensions, any of which may be noise." in texts[some]
