"""One model for ratings and for lists: each job is done by the model that does it alone."""

import math

import numpy as np
import pytest

from hushrec.algorithms import ALS, EASE, Both, PrivateALS, PrivateEigenRec
from hushrec.billboard import Billboard
from hushrec.data import Domain, Ratings, realistic
from hushrec.errors import InputError
from hushrec.evaluation.runs import train
from hushrec.privacy import Accountant, Budget

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
    assert both.recommend(hers, 7) == lists.recommend(likes, 7, items=unseen)
    assert both.similar_items(DOMAIN.items[0]) == lists.similar_items(DOMAIN.items[0])
    assert both.estimator.like_from == 4


def test_what_she_rated_low_is_not_recommended_either() -> None:
    both = train("both", RATINGS, Accountant(BUDGET), n_users=300)
    everything_but_one = dict.fromkeys(DOMAIN.items[1:], 1.0)
    assert [item for item, _ in both.recommend(everything_but_one, 5)] == [DOMAIN.items[0]]
    assert len(both.recommend(everything_but_one, 5, exclude_seen=False)) == 5


def test_the_shares_add_up_to_the_budget() -> None:
    model = Both.planned(BUDGET, DOMAIN, 300, lists_share=0.3)
    releases = model.plan(BUDGET, DOMAIN).releases
    lists = sum(each.mu**2 for each in releases if each.label.startswith("lists: "))
    whole = sum(each.mu**2 for each in releases)
    assert whole == pytest.approx(BUDGET.mu**2, rel=1e-9) and lists == pytest.approx(0.3 * whole, rel=1e-9)
    alone = PrivateALS.planned(Budget(BUDGET.epsilon, 1e-6), DOMAIN, 300)
    assert {f"ratings: {each.label}" for each in alone.plan(BUDGET, DOMAIN).releases} <= {
        each.label for each in releases
    }


def test_the_number_of_users_is_released_once() -> None:
    accountant = Accountant(BUDGET)
    train("both", RATINGS, accountant)
    assert [each.label for each in accountant.releases if "number" in each.label] == ["number of users"]
    assert accountant.spent_mu == pytest.approx(BUDGET.mu, rel=1e-6)


def test_the_file_holds_both(tmp_path) -> None:
    both = train("both", RATINGS, Accountant(BUDGET), n_users=300, settings={"like_from": 3.0})
    both.save(tmp_path / "both.hush")
    hers = {DOMAIN.items[0]: 5.0, DOMAIN.items[1]: 1.0}
    for memory_map in (False, True):
        again = Billboard.load(tmp_path / "both.hush", memory_map=memory_map)
        assert again.estimator == both.estimator and again.to_bytes() == both.to_bytes()
        assert again.recommend(hers, 5) == both.recommend(hers, 5)
        assert np.array_equal(again.predict(hers, DOMAIN.items), both.predict(hers, DOMAIN.items))


@pytest.mark.parametrize("threshold", [2.0, 3.5, 4.1])
def test_likes_are_the_ratings_from_the_threshold_up(threshold: float) -> None:
    """Also where float32 has no such number; and hers are chosen from her own rows."""
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
    model = PrivateEigenRec(rank=2, iterations=1, like_from=threshold)
    users = model.users(ratings)
    assert users.domain is domain
    arrays = model.fit(ratings, Accountant(OPEN)).arrays
    dislikes = model.fold_in(arrays, ratings.rows([1]))
    assert not dislikes.factors.any()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="lists_share=1 leaves"):
        Both(lists_share=1.0)
    with pytest.raises(InputError, match="train for lists"):
        Both.planned(BUDGET, Domain(DOMAIN.items, likes=True), 300)
    with pytest.raises(InputError, match="must be an estimator"):
        Both(lists="private-eigenrec")  # type: ignore[arg-type]
