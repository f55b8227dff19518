"""What a model says that it learned: from released values, and what it advises is what the rule then does."""

import importlib
import math
from types import SimpleNamespace

import numpy as np
import pytest

from hushrec.algorithms import Both, ItemBias, PrivateALS, PrivateEigenRec
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.evaluation.runs import train
from hushrec.evaluation.taste import Taste, expected_taste, taste
from hushrec.evaluation.tuning import tune
from hushrec.privacy import Accountant, Budget

module = importlib.import_module("hushrec.evaluation.taste")
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


PEOPLE = "in which people's tastes differ"
FEW = "There are too few users for it at this epsilon: everybody gets nearly the same list. The cheapest ways"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Taste(None, {}), ""),
        (Taste(1, {}), f"the model learned 1 way {PEOPLE}; a user's list follows her own."),
        (Taste(3, {}), f"the model learned 3 ways {PEOPLE}; a user's list follows her own."),
        (Taste(1, {}, about=True), f"the model is expected to learn about 1 way {PEOPLE}; a user's list"
         " follows her own."),
        (Taste(0, {}), "none was learned; everybody gets nearly the same list."),
        (Taste(0, {"users": 12000, "epsilon": 2.3456, "for": "lists"}), f"none was learned. {FEW} to change"
         " that: about 12,000 users at this epsilon, or epsilon 2.35 with these users, or --for lists, which"
         " has the whole budget."),
        (Taste(0, {"users": 900}, about=True), f"none is to be expected. {FEW} to change that: about 900"
         " users at this epsilon."),
        (Taste(None, {}, pairs=True), "the model learned which items go together; lists follow both."),
        (Taste(4, {}, pairs=True), "the model learned which items go together, and at least 4 ways"
         f" {PEOPLE}; lists follow both."),
        (Taste(None, {}, unknown=True), "this model follows each user's ratings, but cannot tell what it"
         " learned of tastes from noise; one that is trained for lists or for both can."),
    ],
)  # fmt: skip
def test_what_is_told_letter_by_letter(found: Taste, text: str) -> None:
    assert found.text() == (f"Personal taste: {text}" if text else "")
    assert found.to_dict() == {"directions": found.directions, "ways_to_more": found.ways}


def board(directions, n_users=None, lists=None, **arrays) -> SimpleNamespace:
    """As much of a model as is asked."""
    estimator = SimpleNamespace() if n_users is None else SimpleNamespace(n_users=n_users)
    return SimpleNamespace(
        estimator=estimator, lists=lists, arrays=arrays, directions=directions, domain=DOMAIN
    )


def test_what_a_model_learned_is_read_from_what_it_released(monkeypatch) -> None:
    monkeypatch.setattr(module, "_ways", lambda *given: {"users": given[2].n_items})
    budget, ways = Budget(1.0, 1e-6), {"users": 200}
    assert taste(board(3, 50), Budget(math.inf, 1e-6)) == Taste(None, {})
    assert taste(board(0, 50), budget) == Taste(0, ways)
    assert taste(board(0), budget) == Taste(0, {})
    assert taste(board(1, 50), budget) == Taste(1, {})
    assert taste(board(None, 50), budget) == Taste(None, {}, unknown=True)
    assert taste(board(2, 50, learned_items=[1]), budget) == Taste(2, {}, pairs=True)
    assert taste(board(0, 50, learned_items=[1]), budget) == Taste(0, {}, pairs=True)
    inner = board(2, learned_items=[1])
    assert taste(board(2, 50, lists=inner), budget) == Taste(2, {}, pairs=True)
    assert taste(board(2, 50, lists=board(2), learned_items=[1]), budget) == Taste(2, {})
    of_both = board(0)
    of_both.estimator = SimpleNamespace(lists=SimpleNamespace(n_users=3), n_users=3)
    assert taste(of_both, budget) == Taste(0, ways)


@pytest.mark.parametrize("share", [1.0, 0.4])
@pytest.mark.parametrize("kind", ["likes", "ratings"])
@pytest.mark.parametrize("looks_from", [900.0, 2e4])
@pytest.mark.parametrize("rank", [0, 1, 9])
def test_the_ways_to_taste_are_those_of_the_rule(share, kind, looks_from, rank, monkeypatch) -> None:
    """A slow twin; 1.3 times what is looked for, twice what there was, up to two digits and epsilon 50."""
    asked = []
    monkeypatch.setattr(module, "_looks_from", lambda cls, *given: asked.append(cls) or looks_from)
    for n_users in (None, 40, 3000, 10**6):
        for epsilon in (1e-3, 0.5, 3.0):
            model = PrivateEigenRec(rank=rank, n_users=n_users) if kind == "likes" else None
            model = model or SimpleNamespace(rank=rank, iterations=2, n_users=n_users, scores="ratings")
            estimator = model if share == 1 else SimpleNamespace(lists=model, lists_share=share)
            budget, wanted = Budget(epsilon, 1e-6), 1.3 * looks_from
            found = module._ways(estimator, budget, DOMAIN)
            learns = round(0.3 * rank - 0.5) > 0 if kind == "likes" else rank > 0
            mu = budget.mu * math.sqrt(share)
            if n_users is not None and learns:
                wanted = max(wanted, 2 * mu * n_users)
            keys = ["users"] * (wanted / mu <= 10**9)
            if keys:
                users, digits = wanted / mu, str(found["users"])
                assert users <= found["users"] <= users * 1.1 + 1 and set(digits[2:]) <= {"0"}
                assert found["users"] - 10 ** max(len(digits) - 2, 0) < users
            if n_users is not None and wanted / n_users / math.sqrt(share) <= Budget(50, 1e-6).mu:
                keys.append("epsilon")
                there = Budget(found["epsilon"], 1e-6).mu * math.sqrt(share) * n_users
                assert there == pytest.approx(wanted, rel=1e-6)
            other = share < 1 or kind == "ratings"
            if n_users is not None and other and budget.mu * n_users >= 1.3 * looks_from:
                keys.append("for")
                assert found["for"] == "lists"
            assert list(found) == keys
    assert asked[0] is type(model)
    assert module._ways(model, SimpleNamespace(mu=0.0), DOMAIN) == {}


@pytest.mark.parametrize(("part", "told"), [(0.7, ["users"]), (1.4, [])])
@pytest.mark.parametrize("epsilon", [0.1, 20.0])
def test_no_more_than_a_billion_users_are_advised(epsilon: float, part: float, told, monkeypatch) -> None:
    budget = Budget(epsilon, 1e-6)
    monkeypatch.setattr(module, "_looks_from", lambda *_: part * 1e9 * budget.mu / 1.3)
    assert list(module._ways(PrivateEigenRec(rank=0), budget, LIKES)) == told


def test_what_is_just_enough_is_advised(monkeypatch) -> None:
    """A billion users and epsilon 50 are the most that is; lists do from 1.3 times what they look for."""
    model = SimpleNamespace(rank=0, iterations=0, n_users=13, scores="ratings")
    for mu, looks_from, epsilon, told in (
        (1.0, 10.0, 50.0, {"users": 13, "epsilon": 50.0, "for": "lists"}),
        (1.0, 10.001, 50.001, {"users": 14}),
        (1.0, 2.5, 50.001, {"users": 4, "for": "lists"}),
        (1.3e-8, 10.0, 50.001, {"users": 10**9}),
    ):
        monkeypatch.setattr(module, "_looks_from", lambda *_, found=looks_from: found)
        monkeypatch.setattr(module, "epsilon_of", lambda *_, found=epsilon: found)
        assert module._ways(model, SimpleNamespace(mu=mu, delta=1e-6), DOMAIN) == told


def test_directions_that_are_expected() -> None:
    """Three tenths of the rank, which is below the number of items, less a half; of ratings, one if any."""
    three, many = Domain(range(3), likes=True), Domain(range(900), likes=True)

    def of(rank, domain, scores="likes", iterations=1):
        return module._expected(SimpleNamespace(rank=rank, scores=scores, iterations=iterations), domain)

    assert [of(rank, many) for rank in (0, 1, 3, 4, 10, 20)] == [0, 0, 0, 1, 2, 6]
    assert [of(rank, three) for rank in (1, 2, 50)] == [0, 0, 0] and of(
        50, Domain(range(11), likes=True)
    ) == 2
    of_ratings = [of(rank, many, "ratings", rounds) for rank, rounds in ((0, 1), (1, 0), (1, 1), (9, 3))]
    assert of_ratings == [0, 0, 1, 1]


@pytest.mark.parametrize("cls", [PrivateEigenRec, PrivateALS])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_what_is_looked_for_is_the_least_that_is_expected(cls, epsilon: float) -> None:
    """Within a hundredth: mu times the number of users."""
    budget, domain = Budget(epsilon, 1e-6), LIKES if cls is PrivateEigenRec else DOMAIN
    found = module._looks_from(cls, budget, domain) / budget.mu
    assert found == pytest.approx(round(found), rel=1e-9)
    enough = [
        bool(module._expected(cls.planned(budget, domain, int(found * part)), domain))
        for part in (0.5, 0.97, 1.0 + 1e-9, 1.05, 3.0)
    ]
    assert enough == [False, False, True, True, True]


def test_only_models_of_the_planning_rule_are_foretold() -> None:
    budget = Budget(1.0, 1e-6)
    assert expected_taste(ItemBias(), budget, DOMAIN) == Taste(None, {})
    many = PrivateEigenRec.planned(budget, LIKES, 10**6)
    assert expected_taste(many, Budget(math.inf, 1e-6), LIKES) == Taste(None, {})
    found = expected_taste(many, budget, LIKES)
    assert found.about and found.ways == {} and found.directions == round(0.3 * many.rank - 0.5) > 0
    of_ratings = PrivateALS.planned(budget, DOMAIN, 10**6)
    assert expected_taste(of_ratings, budget, DOMAIN) == Taste(None, {}, about=True)
    nobody = expected_taste(PrivateALS.planned(budget, DOMAIN, 9), budget, DOMAIN)
    assert (nobody.directions, nobody.about) == (0, True) and nobody.ways
