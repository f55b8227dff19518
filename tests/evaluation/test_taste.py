"""What a model says that it learned: from released values, and what it advises is what the rule then does."""

import math

import numpy as np
import pytest

from hushrec.algorithms import Both, ItemBias, PrivateALS, PrivateEigenRec
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.evaluation.runs import train
from hushrec.evaluation.taste import expected_taste, taste
from hushrec.evaluation.tuning import tune
from hushrec.privacy import Accountant, Budget

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
    """Four groups are three directions beside popularity, for many users; for a few they are none."""
    domain = LIKES if name == "private-eigenrec" else DOMAIN
    model, found = trained(with_tastes(2000, domain), 5.0, name)
    assert model.directions == found.directions == 3 and not found.ways
    assert found.text().startswith(
        "Personal taste: the model learned 3 ways in which people's tastes differ;"
    )
    model, found = trained(with_tastes(40, domain), 1.0, name)
    assert model.directions == found.directions == 0
    assert "everybody gets nearly the same list" in found.text() and set(found.ways) >= {"users"}


@pytest.mark.parametrize("name", ["private-eigenrec", "both"])
@pytest.mark.parametrize("n_users", [80, 150])
def test_what_is_advised_is_enough_for_the_rule(name: str, n_users: int) -> None:
    """With so many users, or at that epsilon, a direction is looked for and expected."""
    domain = LIKES if name == "private-eigenrec" else DOMAIN
    _, found = trained(with_tastes(n_users, domain), 1.0, name)
    cls = {"private-eigenrec": PrivateEigenRec, "both": Both}[name]

    def expected(budget: Budget, users: int, model=cls) -> int:
        return expected_taste(model.planned(budget, domain, users), budget, domain).directions

    budget = Budget(1.0, 1e-6)
    assert expected(budget, n_users) == 0
    assert expected(budget, found.ways["users"]) >= 1
    assert expected(budget, found.ways["users"] // 3) == 0
    assert expected(Budget(found.ways["epsilon"], 1e-6), n_users) >= 1
    assert f"{found.ways['users']:,} users" in found.text()


def test_lists_alone_are_advised_where_they_would_do() -> None:
    budget, domain = Budget(1.0, 1e-6), Domain(tuple(range(5000)), rating_range=(1, 5))
    ways = [
        expected_taste(Both.planned(budget, domain, users), budget, domain).ways
        for users in (100, 1500, 4000)
    ]
    assert [each.get("for") for each in ways] == [None, "lists", None]


def test_a_model_of_ratings_that_stops_after_the_biases_knows_no_taste() -> None:
    """Its two factors are bias and popularity, by which unrelated items are alike; it says what it takes."""
    model, found = trained(with_tastes(60, DOMAIN), 1.0, "private-als")
    assert model.estimator.iterations == 0 and found.directions == 0
    with pytest.raises(InputError, match="learned nothing of people's tastes"):
        model.similar_items(0)
    budget = Budget(1.0, 1e-6)
    assert PrivateALS.planned(budget, DOMAIN, found.ways["users"]).iterations > 0
    assert PrivateALS.planned(Budget(found.ways["epsilon"], 1e-6), DOMAIN, 60).iterations > 0
    assert expected_taste(PrivateALS.planned(budget, DOMAIN, 60), budget, DOMAIN).ways == found.ways


def test_models_that_look_for_no_taste_say_so_and_others_nothing() -> None:
    ratings = with_tastes(100, DOMAIN)
    budget = Budget(1.0, 1e-6)
    assert "nearly the same list" in taste(ItemBias().fit(ratings, Accountant(budget)), budget).text()
    open_budget = Budget(math.inf, 1e-6)
    model = train("als", ratings, Accountant(open_budget))
    assert taste(model, open_budget).text() == "" and taste(model, open_budget).directions is None


def test_a_private_model_that_cannot_tell_says_that() -> None:
    budget = Budget(5.0, 1e-6)
    model = PrivateALS(rank=3, iterations=1, n_users=100).fit(with_tastes(100, DOMAIN), Accountant(budget))
    found = taste(model, budget)
    assert found.directions is None and "cannot tell what it learned of tastes" in found.text()


@pytest.mark.parametrize("name", ["private-als", "both"])
def test_what_a_selection_chose_is_told_without_ways_to_taste(name: str) -> None:
    """All of delta is reserved for the choice, so that nothing can be told of the budget of one run."""
    domain = Domain(range(20), rating_range=(1, 5))
    ratings = Ratings.from_any((np.arange(200) % 40, np.arange(200) % 20, np.full(200, 4.0)), domain)
    accountant = Accountant(Budget(1.0, 1e-6, failure=1e-6), data_is_public=True)
    model = tune(ratings, name, [{}], accountant)
    found = taste(model, model.privacy.budget)
    assert found.directions in (0, None) and found.ways == {}
    assert "cheapest" not in found.text() and found.text().startswith("Personal taste: ")
