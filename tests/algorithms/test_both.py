"""One model for ratings and for lists: each job is done by the model that does it alone."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from hushrec.algorithms import ALS, EASE, Both, PrivateALS, PrivateEigenRec
from hushrec.algorithms.both import _joined, _Weights
from hushrec.billboard import Billboard
from hushrec.data import Domain, Ratings, realistic
from hushrec.errors import InputError
from hushrec.evaluation.runs import train
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise

RATINGS = realistic(300, 40, 6000, seed=0)
DOMAIN = RATINGS.domain
BUDGET = Budget(5.0, 1e-6)


def tasteful(n_users: int, n_items: int, seed: int) -> Ratings:
    """Users of five tastes who choose what they like, and rate it by taste."""
    rng = np.random.default_rng(seed)
    taste, offers = rng.standard_normal((n_users, 5)), rng.standard_normal((n_items, 5))
    scores = taste @ offers.T - 1.2 * np.log(np.arange(n_items) + 10.0)
    chosen = np.argsort(-scores - rng.gumbel(size=scores.shape), axis=1)[:, :30]
    users = np.repeat(np.arange(n_users), 30)
    noise = 0.7 * rng.standard_normal(len(users))
    values = 3.4 + 0.4 * np.einsum("ij,ij->i", taste[users], offers[chosen.ravel()]) + noise
    domain = Domain(tuple(range(n_items)), rating_range=(1, 5))
    return Ratings.from_any((users, chosen.ravel(), np.clip(np.rint(values), 1, 5)), domain)


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
    assert both.estimator.like_from == 4


def test_what_she_rated_low_is_not_recommended_either() -> None:
    both = train("both", RATINGS, Accountant(BUDGET), n_users=300)
    everything_but_one = dict.fromkeys(DOMAIN.items[1:], 1.0)
    assert [item for item, *_ in both.recommend(everything_but_one, 5)] == [DOMAIN.items[0]]
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
    with pytest.raises(InputError, match="lists_share=1.0 is out of range"):
        Both(lists_share=1.0)
    with pytest.raises(InputError, match="train for lists"):
        Both.planned(BUDGET, Domain(DOMAIN.items, likes=True), 300)
    with pytest.raises(InputError, match="must be an estimator"):
        Both(lists="private-eigenrec")  # type: ignore[arg-type]


def test_item_weights_are_joined_by_their_precision() -> None:
    """Two measurements are better than either, and one that is wrong is not believed."""
    rng = np.random.default_rng(0)
    truth = 100 * rng.pareto(2.0, 2000)
    released = truth + 30 * rng.standard_normal(2000)
    measured = 3 * (truth + 20 * rng.standard_normal(2000))
    joined, left = _joined(released, 30.0, measured, 60.0)
    # the oracle: weights by inverse variances, and what these leave
    best = (released / 30**2 + measured / 3 / 20**2) / (1 / 30**2 + 1 / 20**2)
    error = np.sqrt(np.mean((joined - truth) ** 2))
    assert error == pytest.approx(np.sqrt(np.mean((best - truth) ** 2)), rel=0.1)
    assert left == pytest.approx((1 / 30**2 + 1 / 20**2) ** -0.5, rel=0.1)
    misled, _ = _joined(released, 30.0, rng.permutation(measured), 60.0)
    assert np.sqrt(np.mean((misled - truth) ** 2)) < 1.25 * 30


def test_weights_of_both_tell_the_likes_better() -> None:
    """At a small epsilon the popularity of likes is nearer the truth than from the lists' own release."""
    ratings = realistic(2000, 300, 40_000, seed=3)
    budget = Budget(1.0, 1e-6)
    liked = ratings.liked(4.0).rated()
    counts = np.diff(liked.matrix.indptr)
    true = liked.matrix.T.astype(bool).astype(float) @ (1 / np.sqrt(counts))

    def errors(model: Both) -> np.ndarray:
        found = [
            model.fit(ratings, Accountant(budget, noise=SeededNoise(draw)), seed=draw) for draw in range(6)
        ]
        return np.array([1 - np.corrcoef(each.lists.arrays["item_bias"], true)[0, 1] for each in found])

    both = Both.planned(budget, ratings.domain, 2000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Both, "_expected_weights", lambda *_: None)
        alone = errors(both)
    # the noise is fixed: 0.74 +- 0.15 in a draw of thirty, the largest 0.99
    assert np.mean(errors(both) / alone) < 0.85


def test_neighbours_are_those_without_privacy() -> None:
    """Ten nearest of the hundred most liked items, with noise and without: far better than chance."""
    ratings = tasteful(4000, 300, seed=5)
    popular = np.argsort(-np.diff(ratings.transposed.indptr))[:100]
    items = [ratings.domain.items[item] for item in popular]

    def neighbours(epsilon: float) -> list[set]:
        model = train("both", ratings, Accountant(Budget(epsilon, 1e-6)), n_users=4000)
        return [
            {each for each, _ in [pair for pair in model.similar_items(item, 300) if pair[0] in items][:10]}
            for item in items
        ]

    exact, noisy = neighbours(math.inf), neighbours(20.0)
    found = np.mean([len(one & other) for one, other in zip(exact, noisy)])
    assert found > 4 * 10 * 10 / 99, "chance finds about one of ten"


@pytest.mark.parametrize("failure", [0.0, 9e-7])
def test_a_part_of_the_budget_has_its_part_of_mu(failure: float) -> None:
    """Settings are chosen with it; where so little is left that its epsilon is 0 they still are."""
    budget = Budget(5.0, 1e-6, failure=failure)
    for share in (0.2, 0.7):
        model = Both(lists_share=share)
        for job, part in (("lists", share), ("ratings", 1 - share)):
            found = model.part(budget, job)
            assert found.mu == pytest.approx(budget.mu * math.sqrt(part), rel=1e-6)
            assert (found.delta, found.failure) == (1e-6, failure)
            assert model.part(OPEN, job) == OPEN
    least = Both().part(Budget(1e-5, 0.5), "lists")
    assert 0 < least.epsilon <= 1e-5
    assert Both.planned(Budget(1e-5, 0.5), DOMAIN, 300).lists.like_from == DOMAIN.like_from


def test_expected_weights_are_those_of_all_ratings_times_the_chance_of_a_like() -> None:
    """By the model's item biases, on a scale of a quarter of the range; and so is their noise."""
    bias = np.linspace(-1, 1, 40)
    arrays = {"center": np.float64(3.2), "item_bias": bias}

    class Told:
        weights = np.linspace(10, 50, 40)

        @staticmethod
        def noise_sd(label):
            assert label == "item weights"
            return 2.0

    for like_from in (4.0, None):
        chance = np.ones(40)
        if like_from is not None:
            chance = np.array([NormalDist().cdf(3.2 + each - like_from) for each in bias])
        found, noise_sd = Both(like_from=like_from)._expected_weights(Told, arrays, DOMAIN)
        assert found == pytest.approx(Told.weights * chance)
        assert noise_sd == pytest.approx(2 * math.sqrt(sum(chance**2) / 40))


@pytest.mark.parametrize("private", [True, False])
def test_only_the_released_item_weights_are_drawn_to_what_is_expected(private: bool) -> None:
    """By their precision, and not where they have no noise; all else is as the gate has it."""
    rng, asked = np.random.default_rng(2), []
    released, expected = rng.uniform(5, 9, 30), rng.uniform(50, 90, 30)

    class Told:
        @staticmethod
        def release(label, bounded):
            asked.append((label, bounded))
            return released.copy()

        @staticmethod
        def noise_sd(label):
            return 2.0 if label.endswith("item weights") else 7.0

    Told.private = private
    gate = _Weights(Told, "lists: ", (expected, 3.0))
    assert gate.noise_sd("item weights") == 2.0 and gate.weights is None
    assert np.array_equal(gate.release("item sums", "sums"), released) and gate.weights is None
    found = gate.release("item weights", "weights")
    assert asked == [("lists: item sums", "sums"), ("lists: item weights", "weights")]
    joined, left = _joined(released, 2.0, expected, 3.0) if private else (released, 2.0)
    assert np.array_equal(found, joined) and np.array_equal(gate.weights, joined)
    assert gate.noise_sd("item weights") == left and gate.noise_sd("item sums") == 7.0
    assert (left < 2) == private
    plain = _Weights(Told, "ratings: ")
    assert np.array_equal(plain.release("item weights", "weights"), released)
    assert plain.noise_sd("item weights") == 2.0 and np.array_equal(plain.weights, released)
