"""Item features in lists: the users' vote against a twin, what it decides, and where the model goes."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import hushrec
from hushrec import (
    Accountant,
    Budget,
    Domain,
    PrivateEigenRec,
    PublicRatings,
    Ratings,
    Season,
    SeasonAccountant,
)
from hushrec.cli.output_model import about
from hushrec.data.keys import mix
from hushrec.models.liked_features import VOTES, weight_of
from hushrec.models.private_eigenrec.users import LikingUsers
from hushrec.privacy.testing import SeededNoise
from hushrec.training import named
from tests.opening import opened

N_USERS, N_ITEMS, KINDS = 300, 120, 6


def generated() -> tuple[Ratings, np.ndarray]:
    """Likes of users who keep to two of six kinds of items, and the kinds."""
    rng = np.random.default_rng(4)
    kinds = np.eye(KINDS)[rng.integers(0, KINDS, N_ITEMS)]
    popularity = 1 / (3 + np.arange(N_ITEMS))
    chance = popularity * np.exp(kinds @ rng.normal(0, 1.5, (KINDS, N_USERS))).T
    rows, columns = np.nonzero(rng.random(chance.shape) < 15 * chance / chance.sum(axis=1, keepdims=True))
    domain = Domain(range(N_ITEMS), likes=True)
    return Ratings.from_any(([f"u{row}" for row in rows], columns, np.ones(len(rows))), domain), kinds


LIKES, FEATURES = generated()
MEANINGLESS = FEATURES[np.random.default_rng(0).permutation(N_ITEMS)]


def with_features(features: np.ndarray) -> Ratings:
    return replace(LIKES, domain=replace(LIKES.domain, item_features=features))


def trained(features: np.ndarray, seed: int = 1, epsilon: float = 2.0, name: str = "private-eigenrec"):
    accountant = Accountant(Budget(epsilon, 1e-6), noise=SeededNoise(seed))
    return named.train(name, with_features(features), accountant, n_users=N_USERS)


def slow_vote(liked: list[int], own: dict, other: dict) -> int:
    """One user's, item by item."""
    dealt = sorted(liked, key=lambda item: int(mix(np.array([item], np.uint64))[0]))
    seen, held = dealt[::2], dealt[1::2]
    totals = []
    for arrays in (own, other):
        factors = np.asarray(arrays["item_factors"], float)
        weight, bias, supported = arrays["history_weight"], arrays["item_bias"], arrays["supported"]
        along = sum(weight[item] * bias[item] for item in seen)
        state = sum((weight[item] * factors[item] for item in seen), np.zeros(factors.shape[1]))
        scores = bias + factors @ (state / along if along > 0 else 0 * state)
        others = [item for item in range(len(bias)) if item not in seen]
        total = 0.0
        for item in held:
            key = supported[item], scores[item]
            above = sum((supported[each], scores[each]) > key for each in others)
            same = sum((supported[each], scores[each]) == key for each in others)
            total += 1 / (1 + ((above + (same - 1) / 2) / 20) ** 2)
        totals.append(total)
    return int(np.sign(round(totals[1] - totals[0], 9)))


def test_votes_are_those_of_a_slow_twin() -> None:
    model = trained(FEATURES)
    own, other = dict(model.arrays), dict(model.public.model.arrays)
    own["supported"] = (np.arange(N_ITEMS) % 5 > 0).astype(np.uint8)  # which stand below all others
    each = [LIKES.rows([row], keyed=True) for row in range(60)]
    found = [opened(LikingUsers(rows).votes(own, other))[0] for rows in each]
    expected = [slow_vote(rows.matrix.indices.tolist(), own, other) for rows in each]
    assert found == expected and {-1, 1} <= set(expected)
    together = LikingUsers(LIKES.rows(np.arange(60), keyed=True)).votes(own, other)
    assert opened(together)[0] == sum(expected)


def test_users_vote_for_features_that_mean_something_and_against_others() -> None:
    for seed in range(5):
        good, bad = trained(FEATURES, seed), trained(MEANINGLESS, seed)
        assert good.public is not None and good.public.weight == 1.0
        assert bad.public is None
    assert "votes" in " ".join(good.privacy.notes)


def test_features_count_where_votes_are_for_them_beyond_chance_and_noise() -> None:
    assert [weight_of(votes, 30.0, 300.0) for votes in (-200.0, 0.0, 17.0, 18.0, 200.0)] == [0, 0, 0, 1, 1]
    assert weight_of(9.0, 0.0, 300.0) == 1.0 and weight_of(8.0, 0.0, 300.0) == 0.0  # without noise


def test_vectors_rank_as_lists_that_go_by_features_do() -> None:
    model = trained(FEATURES)
    table, items = model.item_vectors(), model.domain.items
    for row in range(20):
        history = {items[column]: 1 for column in LIKES.matrix[[row]].indices}
        scores = table @ model.query((item, like) for item, like in history.items())  # which is read once
        ranked = [items[place] for place in np.argsort(-scores, kind="stable") if items[place] not in history]
        assert ranked[:10] == [item for item, *_ in model.recommend(history, 10)]


def test_without_features_nothing_is_voted_on_and_with_many_users_neither() -> None:
    budget, domain = Budget(2, 1e-6), with_features(FEATURES).domain
    few = PrivateEigenRec.planned(budget, domain, 300)
    assert VOTES in [each.label for each in few.plan(budget, domain).releases]
    assert few.plan(budget, domain).mu == pytest.approx(budget.mu)
    assert VOTES not in [each.label for each in few.plan(budget, LIKES.domain).releases]
    many = PrivateEigenRec.planned(budget, domain, 100_000)
    assert VOTES not in [each.label for each in many.plan(budget, domain).releases]
    with pytest.raises(hushrec.InputError, match="no vote"):
        PrivateEigenRec.of(pairs=True, features_share=0.1)


def test_it_is_kept_in_files_weeks_and_models_of_both_jobs() -> None:
    model = trained(FEATURES)
    again = hushrec.Billboard.from_bytes(model.to_bytes())
    history = {0: 1, 5: 1}
    assert (
        again.recommend(history) == model.recommend(history) != replace(model, public=None).recommend(history)
    )
    rated = Ratings.from_any(
        (["a", "b"], [0, 1], [4.0, 2.0]), Domain(range(N_ITEMS), rating_range=(1, 5), item_features=FEATURES)
    )
    both = named.train("both", rated, Accountant(Budget(1, 1e-6), noise=SeededNoise(0)), n_users=300)
    assert f"lists: {VOTES}" in [each.label for each in both.privacy.releases]

    season = Season(Budget(4, 1e-6), weeks=3)
    rows = with_features(FEATURES)
    first = named.train(
        "private-eigenrec", rows, SeasonAccountant(season, noise=SeededNoise(2)), n_users=N_USERS
    )
    accountant = SeasonAccountant.following(first.privacy, noise=SeededNoise(3))
    second = first.continue_training(rows, accountant)
    assert second.public is not None and second.public.weight == first.public.weight
    labels = [each.label for each in second.privacy.releases]
    assert sum(label.startswith(VOTES) for label in labels) == 1  # of the first week
    assert not np.array_equal(second.public.model.item_bias, first.public.model.item_bias)
    forgetful = hushrec.Billboard.from_bytes(first.to_bytes())  # as of a command that is given no features
    third = forgetful.continue_training(
        LIKES, SeasonAccountant.following(first.privacy, noise=SeededNoise(3))
    )
    assert third.public.model.item_factors.shape == second.public.model.item_factors.shape
    said = [each.privacy for each in (first, second, third, trained(FEATURES, name="popular"))]
    told = [("item features" in each.public, "those of an earlier week" in str(each.notes)) for each in said]
    assert told == [(True, False), (True, False), (True, True), (False, False)]


def test_what_is_printed_says_which_features_lists_go_by() -> None:
    model, rows = trained(FEATURES), with_features(FEATURES)
    order = np.random.default_rng(0).permutation(N_ITEMS)
    some = LIKES.rows(slice(0, 40), keyed=True)
    unlike = replace(some, matrix=sp.csr_array(some.matrix[:, order]))
    accountant = Accountant(Budget(2, 1e-6), noise=SeededNoise(1))
    public = hushrec.PublicRatings(same=unlike)
    refused = named.train("private-eigenrec", rows, accountant, n_users=N_USERS, public=public)
    many = named.train("private-eigenrec", rows, Accountant(Budget(2, 1e-6)), n_users=100_000)
    assert refused.judged[0]["weight"] == 0
    said = [" ".join(about(each).split()) for each in (model, refused, many)]
    assert ["Item features: used for lists" in each for each in said] == [True, True, False]
    assert "not used for lists" in said[2] and said[2].count("features") == 1


def test_donors_stand_beside_what_users_voted_for() -> None:
    """What users voted for is what donors judge against, and what their ratings stand beside."""
    rows, budget = with_features(FEATURES), Budget(2.0, 1e-6)
    voted = trained(FEATURES).public.model.arrays
    for count in (3, 60):
        accountant = Accountant(budget, noise=SeededNoise(1))
        public = PublicRatings(donors=[f"u{number}" for number in range(count)])
        model = named.train("private-eigenrec", rows, accountant, n_users=N_USERS, public=public)
        served = model.public.model.arrays if model.judged[0]["weight"] == 0 else model.arrays
        for name, array in voted.items():
            assert np.array_equal(served[name], array), name
    assert model.judged[0]["weight"] > 0
