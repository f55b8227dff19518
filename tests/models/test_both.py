"""One model for ratings and for lists: each job is done by the model that does it alone."""

import math
from statistics import NormalDist

import numpy as np
import pytest

import hushrec
from hushrec.data import Domain, Ratings, realistic
from hushrec.errors import InputError
from hushrec.models import ALS, EASE, Both, PrivateEigenRec
from hushrec.models.both import combined
from hushrec.privacy import Accountant, Budget, Ledger
from hushrec.training.named import train
from hushrec.types import ModelArrays

RATINGS = realistic(300, 40, 6000, seed=0)
DOMAIN = RATINGS.domain
BUDGET = Budget(5.0, 1e-6)


OPEN = Budget(math.inf, 1e-6)


def test_without_privacy_it_is_the_two_models() -> None:
    """Ratings as ALS predicts them; lists as EASE makes them from the ratings of 4 and more."""
    both = train("both", RATINGS, Accountant(OPEN))
    alone = ALS().fit(RATINGS, Accountant(OPEN))
    liked = RATINGS.where(RATINGS.matrix.data >= 4, keyed=True)
    lists = EASE().fit(liked, Accountant(OPEN))
    hers = {item: 5.0 - number % 4 for number, item in enumerate(DOMAIN.items[:12])}
    assert np.array_equal(both.predict(hers, DOMAIN.items), alone.predict(hers, DOMAIN.items))
    likes = {item: rating for item, rating in hers.items() if rating >= 4}
    unseen = [item for item in DOMAIN.items if item not in hers]
    listed = both.recommend(hers, 7)
    assert [each[:2] for each in listed] == [each[:2] for each in lists.recommend(likes, 7, items=unseen)]
    assert [each.rating for each in listed] == alone.predict(hers, [each.item for each in listed])
    assert both.similar_items(DOMAIN.items[0]) == lists.similar_items(DOMAIN.items[0])
    assert both.estimator.like_threshold == 4


def test_what_she_rated_low_is_not_recommended_either() -> None:
    both = train("both", RATINGS, Accountant(BUDGET), n_users=300)
    everything_but_one = dict.fromkeys(DOMAIN.items[1:], 1.0)
    assert [item for item, *_ in both.recommend(everything_but_one, 5)] == [DOMAIN.items[0]]
    assert len(both.recommend(everything_but_one, 5, exclude_seen=False)) == 5


def test_the_number_of_users_is_released_once() -> None:
    accountant = Accountant(BUDGET)
    train("both", RATINGS, accountant)
    assert [each.label for each in accountant.releases if "number" in each.label] == ["number of users"]
    assert accountant.spent_mu == pytest.approx(BUDGET.mu, rel=1e-6)


def test_the_file_holds_both(tmp_path) -> None:
    both = train("both", RATINGS, Accountant(BUDGET), n_users=300, settings={"like_threshold": 3.0})
    both.save(tmp_path / "both.hush")
    hers = {DOMAIN.items[0]: 5.0, DOMAIN.items[1]: 1.0}
    again = hushrec.load(tmp_path / "both.hush")
    assert again.estimator == both.estimator and again.to_bytes() == both.to_bytes()
    assert again.recommend(hers, 5) == both.recommend(hers, 5)
    assert np.array_equal(again.predict(hers, DOMAIN.items), both.predict(hers, DOMAIN.items))


@pytest.mark.parametrize("threshold", [2.0, 3.5, 4.1])
def test_likes_are_the_ratings_from_the_threshold_up(threshold: float) -> None:
    """Float32 may have no such number; each user's rows decide, and nothing is picked by hand."""
    domain = Domain(DOMAIN.items, (1, 5))
    rows = [
        ("u", DOMAIN.items[0], threshold),
        ("u", DOMAIN.items[1], threshold - 0.1),
        ("v", DOMAIN.items[0], 1),
    ]
    ratings = Ratings.from_any(tuple(map(list, zip(*rows))), domain)
    assert ratings.liked(threshold).matrix.toarray()[:, :2].astype(bool).tolist() == [
        [True, False],
        [False] * 2,
    ]
    assert not ratings.liked(threshold).hand_picked
    model = PrivateEigenRec(rank=2, iterations=1, like_threshold=threshold)
    users = model.users(ratings)
    assert users.domain is domain
    arrays = model.fit(ratings, Accountant(OPEN)).arrays
    dislikes = model.fold_in(arrays, ratings.rows([1]))
    assert not dislikes.factors.any()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="lists_share=1.0 is out of range"):
        Both(lists_share=1.0)
    with pytest.raises(InputError, match="train private-eigenrec"):
        Both.planned(BUDGET, Domain(DOMAIN.items, likes=True), 300)
    with pytest.raises(InputError, match="must be an estimator"):
        Both(lists="private-eigenrec")  # type: ignore[arg-type]


def test_item_weights_are_combined_by_inverse_variance() -> None:
    """Two measurements are better than either, and one that is wrong is not believed."""
    rng = np.random.default_rng(0)
    truth = 100 * rng.pareto(2.0, 2000)
    released = truth + 30 * rng.standard_normal(2000)
    measured = (truth + 20 * rng.standard_normal(2000)) / 1.5
    joined, left = combined(released, 30.0, measured, np.full(2000, 20 / 1.5))
    # the oracle: weights by inverse variances, and what these leave
    best = (released / 30**2 + 1.5 * measured / 20**2) / (1 / 30**2 + 1 / 20**2)
    error = np.sqrt(np.mean((joined - truth) ** 2))
    assert error == pytest.approx(np.sqrt(np.mean((best - truth) ** 2)), rel=0.15)
    assert left == pytest.approx((1 / 30**2 + 1 / 20**2) ** -0.5, rel=0.1)
    misled, _ = combined(released, 30.0, measured * rng.lognormal(0, 0.5, 2000), np.full(2000, 20 / 1.5))
    assert np.sqrt(np.mean((misled - truth) ** 2)) < 30


@pytest.mark.true("A9")
@pytest.mark.parametrize("name", ["both", "private-eigenrec"])
def test_a_wide_catalogue_is_not_ranked_by_noise(name: str) -> None:
    """Thousands of items that few users rated: lists hold about what popularity holds, at the same budget."""
    rng = np.random.default_rng(5)
    n_users, n_items = 800, 8000
    chance = 1 / (10 + np.arange(n_items)) ** 1.1
    rows = [rng.choice(n_items, 20, replace=False, p=chance / chance.sum()) for _ in range(n_users)]
    users, items = np.repeat(np.arange(n_users), 20), np.concatenate(rows)
    domain = Domain(range(n_items), (1, 5))
    given = Ratings.from_any((users, items, rng.choice([2.0, 4.0, 5.0], len(items))), domain)
    best = np.argsort(-np.bincount(items, minlength=n_items))[:20]
    budget, held = Budget(2.0, 1e-6), {"popular": [], name: []}
    for draw in range(4):
        for each in held:
            model = train(each, given, Accountant(budget), n_users=n_users, seed=draw)
            listed = [item for item, *_ in model.recommend({}, n=20)]
            held[each].append(len(set(listed) & set(best)) / 20)
    assert np.mean(held[name]) > np.mean(held["popular"]) - 0.1 > 0.1


def test_expected_weights_are_those_of_all_ratings_times_the_chance_of_a_like() -> None:
    """A rating that is no like counts 0.4; the chance of a like follows from the released item biases."""
    bias = np.linspace(-1, 1, 40)
    weights = np.linspace(10, 50, 40)
    ratings = ModelArrays({"center": np.float64(3.2), "item_bias": bias}, {"item_weights": weights})
    for like_threshold in (4.0, None):
        chance = np.ones(40)
        if like_threshold is not None:
            chance = np.array([NormalDist().cdf(3.2 + each - like_threshold) for each in bias])
        found, noise_sd = Both(like_threshold=like_threshold)._expected_weights(ratings, 2.0, DOMAIN)
        part = 0.4 + 0.6 * chance
        assert found == pytest.approx(weights * part) and noise_sd == pytest.approx(2 * part)


@pytest.mark.parametrize("job", ["ratings", "lists"])
def test_a_model_within_is_planned_for_its_part_of_the_budget(job: str, tmp_path) -> None:
    """Refused before a charge if it was planned for the whole budget or for another part of it."""
    planned = Both.planned(BUDGET, DOMAIN, 300)
    model = getattr(planned, job)
    whole = type(model).planned(BUDGET, DOMAIN, 300)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    for wrong in (
        Both(**{job: whole}),
        planned.set_params(**{job: whole}),
        planned.set_params(lists_share=0.3),
        Both(**{job: model}, lists_share=0.3),
    ):
        with pytest.raises(InputError, match="was planned for .* and its part of the budget is"):
            wrong.plan(BUDGET, DOMAIN)
        with pytest.raises(InputError, match="was planned for .* and its part of the budget is"):
            wrong.fit(RATINGS, Accountant(BUDGET, ledger=ledger, dataset="shop"))
    assert not ledger.datasets()
    kept = planned.set_params(planned_for=None)
    same = Both(**{job: model}, lists_share=planned.lists_share)
    for good in (planned, same, kept.set_params(lists_share=0.3)):
        good.plan(BUDGET, DOMAIN)
    kept.plan(Budget(1.0, 1e-6), DOMAIN)


def test_a_budget_that_teaches_nothing_of_ratings_leaves_them_a_share() -> None:
    """The share of lists was rounded to 1 and refused, although no caller had passed it."""
    budget, wide = Budget(1e-6, 1e-6), Domain(range(100_000), (1, 5))
    planned = Both.planned(budget, wide, 1)
    assert planned.lists_share < 1
    planned.plan(budget, wide)
