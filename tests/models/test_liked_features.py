"""Item features in lists: the users' vote against a twin, its effect, and files of the model."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
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
from hushrec.data.features import feature_scores
from hushrec.data.keys import mix
from hushrec.models.liked_features import VOTES, voted
from hushrec.models.private_eigenrec.users import LikingUsers
from hushrec.privacy.testing import SeededNoise
from hushrec.testing import check_sensitivity
from hushrec.training import named
from hushrec.types import ModelArrays
from tests.command_line import invoke
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


def with_features(features) -> Ratings:
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


class Voters:
    """Users with given votes, and a gate without noise that records the questions."""

    def __init__(self, domain: Domain, votes: dict[str, float], noise_sd: float = 30.0) -> None:
        self.domain, self._votes, self._noise_sd, self.asked = domain, votes, noise_sd, []

    def votes(self, own, other):
        return own["item_factors"].shape[1], other["item_factors"].shape[1]

    def release(self, label, widths):
        self.asked.append((label, widths))
        return np.array([self._votes[label]])

    def noise_sd(self, label):
        return self._noise_sd


def decided(votes: dict[str, float], widths: tuple[int, ...], noise_sd: float = 30.0):
    """The tables that lists use, and the questions with the widths of both models' tables of factors."""
    features = np.random.default_rng(0).standard_normal((N_ITEMS, sum(widths)))
    tables = np.split(features, np.cumsum(widths)[:-1], axis=1)
    voters = Voters(replace(LIKES.domain, item_features=tables), votes, noise_sd)
    serve = {"item_factors": np.zeros((N_ITEMS, 0)), "history_weight": np.zeros(N_ITEMS)}
    state = {"item_weights": np.ones(N_ITEMS), "item_weights_variance": np.ones(N_ITEMS)}
    parts = ModelArrays(serve, {**state, "users": np.array([300.0, 0.0])})
    found = voted(parts, voters, voters, 300.0)
    return found.weight, found.state["feature_tables"].tolist(), voters.asked


def test_tables_are_voted_on_alone_and_then_beside_the_accepted_ones() -> None:
    """The order of the first votes decides the later questions; both votes must be for a table."""
    two, three, step, next_step = (f"{VOTES}, {what}" for what in ("table 2", "table 3", "step 2", "step 3"))
    votes = {VOTES: 50.0, two: 200.0, three: -9.0, step: 90.0, next_step: 90.0}
    weight, tables, asked = decided(votes, (1, 2, 4))
    assert (weight, tables) == (1.0, [1, 1, 0])
    assert asked == [(VOTES, (0, 1)), (two, (0, 2)), (three, (0, 4)), (step, (2, 3)), (next_step, (3, 7))]
    assert decided({**votes, step: -90.0}, (1, 2, 4))[:2] == (1.0, [0, 1, 0])
    assert decided({**votes, VOTES: -50.0, two: -1.0}, (1, 2, 4))[0] == 0.0


@pytest.mark.true("P3")
def test_a_useless_table_stays_out_beside_a_good_one_and_in_later_weeks() -> None:
    """Lists use the good table's columns; a week with changed features uses the new ones."""
    random = np.random.default_rng(7).standard_normal((N_ITEMS, 12))
    domain = with_features([random, FEATURES]).domain
    rows = replace(LIKES, domain=domain)
    assert replace(domain, max_ratings_per_user=9).feature_widths == (12, KINDS)
    season = Season(Budget(6, 1e-6), weeks=3)
    accountant = SeasonAccountant(season, noise=SeededNoise(2))
    first = named.train("private-eigenrec", rows, accountant, n_users=N_USERS)
    labels = [each.label for each in first.privacy.releases if VOTES in each.label]
    assert len(labels) == 3 and first.public.weight == 1.0
    assert first.state["feature_tables"].tolist() == [0, 1]

    read = hushrec.Model.from_bytes(first.to_bytes())
    weeks = {}
    for name, features in {
        "the same": [random, FEATURES],
        "another random table": [random[::-1], FEATURES],
        "changed": [random, MEANINGLESS],
        "none": None,
    }.items():
        accountant = SeasonAccountant.following(first.privacy, noise=SeededNoise(3))
        weeks[name] = read.continue_training(with_features(features), accountant).public.model.item_factors
    assert np.array_equal(weeks["the same"], weeks["another random table"])
    assert weeks["none"].shape == weeks["the same"].shape
    scores = feature_scores(MEANINGLESS, N_ITEMS)
    for name, alike in {"the same": False, "changed": True}.items():
        columns = weeks[name][:, -scores.shape[1] :].astype(float)
        missed = columns - scores @ np.linalg.lstsq(scores, columns)[0]
        assert (np.linalg.norm(missed) < 0.5 * np.linalg.norm(columns)) == alike, name


def test_one_user_moves_each_vote_by_at_most_one() -> None:
    features = [np.random.default_rng(seed).standard_normal((12, 2)) for seed in (0, 1)]
    domain = Domain(range(12), rating_range=(1, 5), item_features=features)
    estimator = PrivateEigenRec.of(rank=2, iterations=2, features_share=0.3, n_users=20, like_threshold=4.0)
    check_sensitivity(estimator, Budget(3, 1e-5), domain=domain, pairs=30)


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
    again = hushrec.Model.from_bytes(model.to_bytes())
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
    forgetful = hushrec.Model.from_bytes(first.to_bytes())  # as of a command that is given no features
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
    many, useless = (
        named.train("private-eigenrec", with_features(table), Accountant(Budget(20, 1e-6)), n_users=100_000)
        for table in (FEATURES, MEANINGLESS)
    )
    assert refused.judged[0]["weight"] == 0
    said = [" ".join(about(each).split()) for each in (model, refused, many, useless)]
    assert ["Item features: used for lists" in each for each in said] == [True, True, True, False]
    assert "not used for lists" in said[3]


def test_donors_stand_beside_what_users_voted_for() -> None:
    """Donors judge against the model that users voted for, and their ratings extend that model."""
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


def test_the_command_line_takes_several_tables(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    LIKES.to_arrow().to_pandas().to_csv("likes.csv", index=False)
    (tmp_path / "items.txt").write_text("\n".join(LIKES.domain.text_list))
    kinds = FEATURES.argmax(axis=1)
    for name, values in {"kind": kinds, "noise": np.random.default_rng(1).permutation(kinds)}.items():
        rows = [f"{item},k{value}" for item, value in zip(LIKES.domain.items, values)]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"item,{name}", *rows]))
    words = "train", "likes.csv", "--implicit", "--epsilon", 2, "--delta", 1e-6, "--catalogue", "items.txt"
    words = *words, "--users", N_USERS, "--ledger", "ledger", "--item-features", "noise.csv"
    words = *words, "--item-features", "kind.csv", "--out"
    refused = invoke(*words, "kind.csv", "--force")
    assert refused.exit_code == 2 and "is one of the inputs" in refused.stderr
    result = invoke(*words, "m.hush")
    assert result.exit_code == 0, result.output
    labels = [each.label for each in hushrec.load("m.hush").privacy.releases]
    assert sum(VOTES in label for label in labels) == 3


def test_similar_items_name_the_columns_of_the_tables_that_users_voted_for() -> None:
    """A list that names random columns would claim to use them."""
    draws, kinds = np.random.default_rng(7), np.arange(200) % 4
    items, rows = [f"i{place}" for place in range(200)], []
    for user in range(600):
        chance = np.where(kinds == user % 4, 6.0, 1.0)
        for place in draws.choice(200, 20, replace=False, p=chance / chance.sum()):
            rows.append((f"u{user}", items[place], 5 if kinds[place] == user % 4 else 2))
    kind = {"item": items, "kind": [f"k{number}" for number in kinds]}
    random = {"item": items, **{f"w{column}": draws.standard_normal(200) for column in range(12)}}
    budget = hushrec.Budget(3, 1e-6)
    for tables in ([kind], [kind, random], [random, kind]):
        features = [pa.table(table) for table in tables]
        domain = hushrec.Domain(items, rating_range=(1, 5), item_features=features)
        estimator = hushrec.PrivateEigenRec.planned(budget, domain, 600, like_threshold=4.0)
        accountant = hushrec.Accountant(budget, noise=SeededNoise(0))
        model = estimator.fit(hushrec.Ratings.from_any(tuple(zip(*rows)), domain), accountant)
        read = hushrec.Model.from_bytes(model.to_bytes())
        assert {found.by for found in read.similar_items("i0", 5)} == {("kind",)}
