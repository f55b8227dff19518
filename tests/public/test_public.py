"""Public ratings next to a private model: twins of the served values, and their only inputs."""

import itertools
import json
import os
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import hushrec
from hushrec import Accountant, Budget, InputError, PublicRatings, Ratings, Season, SeasonAccountant, Store
from hushrec.data import Domain, lifelike
from hushrec.data.features import feature_scores
from hushrec.models.private_eigenrec.parts import likely_popularity
from hushrec.models.private_eigenrec.public_likes import PublicLikes
from hushrec.models.private_eigenrec.users import LikingUsers
from hushrec.privacy.testing import SeededNoise
from hushrec.public import item_vectors
from hushrec.public.judging import bagged, judge
from hushrec.public.ratings_model import PublicItems, public_items, ratings_model
from hushrec.serving.recommend import PublicPart, Recommender
from hushrec.training import named
from hushrec.types import ModelArrays
from tests.command_line import invoke
from tests.opening import opened

FILMS = lifelike("films", n_users=500, n_items=120, seed=3)
DONORS = [str(user) for user in FILMS.users[::8]]
DECLARED = PublicRatings(donors=DONORS)
HISTORIES = {"short": {"i00004": 5, "i00007": 1, "i00011": 4}, "none": {}, "one": {"i00002": 5}}


def trained(name: str, public: PublicRatings | None = DECLARED, ratings=FILMS, epsilon=1.0, seed=1):
    accountant = Accountant(Budget(epsilon, 1e-6), noise=SeededNoise(seed))
    return named.train(name, ratings, accountant, n_users=500, public=public)


@pytest.fixture(scope="module")
def both():
    """A model of both jobs, with public likes and a public model of ratings."""
    model = trained("both")
    rows = DECLARED.read(model.estimator, FILMS).same
    return replace(model, public=PublicPart(ratings_model(rows, None, None, {}), 0.3))


def released_by(name: str, ratings=FILMS, epsilon=1.0, seed=1):
    """A model of a season's first week, which keeps what its training released."""
    accountant = SeasonAccountant(Season(Budget(epsilon, 1e-6)), noise=SeededNoise(seed))
    return named.train(name, ratings, accountant, n_users=ratings.n_users)


def added(public: PublicRatings, model, ratings):
    parts = ModelArrays(state=model.state, lists=model.lists and ModelArrays(state=model.lists.state))
    return public.read(model.estimator, ratings).beside(model, parts)


def alone(model):
    return replace(model, public=None)


@pytest.mark.parametrize("history", HISTORIES.values(), ids=list(HISTORIES))
def test_both_models_count_as_they_are_weighed(both, history) -> None:
    items, private = list(both.domain.items), alone(both)
    public = Ratings.of_user(history, both.domain)
    rows = private.fold_in(public)
    arrays = private.arrays
    own = arrays["center"] + rows.offset[0] + arrays["item_bias"] + arrays["item_factors"] @ rows.factors[0]
    theirs = both.public.model
    state = theirs.fold_in(public)
    other = theirs.arrays["center"] + state.offset[0] + theirs.arrays["item_bias"]
    other = other + theirs.arrays["item_factors"] @ state.factors[0]
    assert both.predict(history, items) == pytest.approx(np.clip(0.7 * own + 0.3 * other, 1, 5))

    rated = replace(both, lists=None, estimator=both.estimator.ratings)
    why = rated.explain(history, items[30])
    assert why.score == pytest.approx(0.7 * own[30] + 0.3 * other[30])
    assert why.base + sum(each.moved for each in why.because) == pytest.approx(why.score)
    with pytest.raises(InputError, match="no inner product"):
        rated.query(history)
    vectors, query = both.item_vectors(), both.query(history)
    best = [items[at] for at in np.argsort(-(vectors @ query), kind="stable")[:15]]
    assert best == [each.item for each in both.recommend(history, 15, exclude_seen=False)]


def test_lists_of_what_comes_next_are_means_over_spans_of_both_models(both) -> None:
    """Scores are linear in a state, so those of its mean are the mean of the scores of all spans."""
    rated = replace(both, lists=None, estimator=both.estimator.ratings)
    rated = replace(rated, arrays={key: rated.arrays[key] for key in rated.arrays if key != "supported"})
    history = [(item, 1.0 + place % 5) for place, item in enumerate(both.domain.items[:40:3])]
    spans = [history[-span:] for span in (1, 2, 4, 8, 16, 32)] + [history]
    options = {"n": both.domain.n_items, "exclude_seen": False}
    each = [{found.item: found.score for found in rated.recommend(part, **options)} for part in spans]
    for found in rated.recommend(history, next=True, **options):
        assert found.score == pytest.approx(np.mean([scores[found.item] for scores in each]))


def test_users_of_all_blocks_have_the_public_model(both, monkeypatch) -> None:
    rated, rows = replace(both, lists=None, estimator=both.estimator.ratings), FILMS.rows(slice(0, 30))
    whole = rated.recommend_batch(rows, 5)
    monkeypatch.setattr("hushrec.serving.scoring._SCORES_PER_BLOCK", 7 * rated.domain.n_items)
    assert rated.recommend_batch(rows, 5) == whole


def test_a_file_keeps_both_models_and_what_donors_said(both, tmp_path) -> None:
    for int8 in (False, True):
        both.save(tmp_path / "m.hush", int8=int8)
        read = hushrec.load(tmp_path / "m.hush")
        assert read.judged == both.judged and read.to_bytes(int8=int8) == both.to_bytes(int8=int8)
        found = read.recommend(HISTORIES["short"], 20), both.recommend(HISTORIES["short"], 20)
        assert int8 or found[0] == found[1]
    table = read.recommend_batch(FILMS.rows(slice(0, 30)), 3)
    one = read.recommend(dict(list(zip(*FILMS.rows([0]).to_arrow().to_pydict().values()))[:0]) or {}, 3)
    assert table.num_rows == 90 and len(one) == 3
    with pytest.raises(hushrec.ModelFileError):
        broken = replace(both, public=PublicPart(both.public.model, 1.5))
        hushrec.Model.from_bytes(broken.to_bytes())


def test_a_forged_verdict_of_donors_is_refused_as_the_file_is_read(both) -> None:
    """Each field dropped, of another kind or out of its range; and a verdict where nothing was public."""
    said = both.judged
    forged = [[said], 5, "x", {}, {**said, "more": 1}]
    forged += [{key: value for key, value in said.items() if key != name} for name in said]
    forged += [{**said, "weight": each} for each in (-0.1, 1.5, None, "1", True)]
    forged += [{**said, "donors": each} for each in (-1, 2.5, None, True)]
    forged += [{**said, "external": 1}, {**said, "agreement": [1]}]
    forged += [{**said, "private": each} for each in (None, 3, {}, {"value": 1, "low": 1, "high": "\x1b[2J"})]
    for entry in forged:
        with pytest.raises(hushrec.ModelFileError):
            hushrec.Model.from_bytes(replace(both, judged=entry).to_bytes())
    private = trained("private-als", None)
    with pytest.raises(hushrec.ModelFileError):
        hushrec.Model.from_bytes(replace(private, judged=said).to_bytes())


def test_new_items_are_placed_in_both_models(both) -> None:
    features = np.random.default_rng(0).standard_normal((both.domain.n_items + 1, 2))
    domain = replace(both.domain, items=(*both.domain.items, "a new one"), item_features=features)
    grown = both.with_items(domain)
    listed = grown.recommend([(both.domain.items[0], both.domain.high)], n=domain.n_items)
    assert grown.judged == both.judged and "a new one" in [each.item for each in listed]
    assert hushrec.Model.from_bytes(grown.to_bytes()).recommend({}, n=9) == grown.recommend({}, n=9)


def released(n_items: int, generator: np.random.Generator) -> tuple[dict, dict]:
    """A private model of made-up values, and its state."""
    factors, numbers = generator.standard_normal((n_items, 2)), np.array([0, 1, 1, 0.8, 0.3])
    arrays = {"center": 3.2, "item_bias": generator.normal(0, 0.4, n_items), "item_factors": factors}
    state = {"numbers": numbers, "item_bias_variance": generator.uniform(0.02, 0.3, n_items)}
    return {**arrays, "regularization": 0.5, "bias_regularization": 2.0}, state


@pytest.mark.parametrize("spread", [0.1, 0.9])
def test_a_merged_bias_is_what_both_let_expect(spread: float) -> None:
    """Oracle: both posteriors, less the wider prior, as plain densities on a grid of biases."""
    generator, n_items = np.random.default_rng(4), 9
    arrays, state = released(n_items, generator)
    design = np.column_stack([np.ones(n_items), generator.standard_normal(n_items)])
    bias, unsure = generator.normal(0, 0.5, n_items), generator.uniform(0.01, 0.09, n_items)
    items = PublicItems(3, bias, unsure, design @ [0.1, 0.2], spread, np.eye(n_items)[:, :3], 0.7, 1, design)
    found = items.merged(arrays, state)
    fitted = design @ np.linalg.solve(design.T @ design, design.T @ arrays["item_bias"])
    grid = np.linspace(-6, 6, 20_001)
    for place in range(n_items):
        prior = (fitted[place], 0.3) if spread < 0.3 else (items.expected[place], spread)
        own = arrays["item_bias"][place], state["item_bias_variance"][place]
        log = [-((grid - mean) ** 2) / var / 2 for mean, var in (own, (bias[place], unsure[place]), prior)]
        density = np.exp(log[0] + log[1] - log[2] - (log[0] + log[1] - log[2]).max())
        assert found["item_bias"][place] == pytest.approx(grid @ density / density.sum(), abs=1e-6)
    wanted = (
        np.sqrt(0.5 / 0.7) * items.factors
    )  # a ridge of .5 on a column so long is one of .7 on the column
    assert found["item_factors"] == pytest.approx(np.column_stack([arrays["item_factors"], wanted]))


def test_what_public_rows_tell_is_found_one_user_and_one_item_at_a_time() -> None:
    """A twin in loops, with features and with users of another population."""
    same, other = (lifelike("films", n_users=n, n_items=25, seed=seed) for n, seed in ((9, 1), (7, 2)))
    features = np.random.default_rng(0).standard_normal((25, 3))
    domain = replace(same.domain, item_features=features)
    same, other = replace(same, domain=domain), replace(other, domain=domain)
    found, twin = public_items(same, other), in_loops(same, other)
    for name, value in zip(("bias", "bias_variance", "expected", "factors", "noise"), twin):
        assert getattr(found, name) == pytest.approx(value, rel=1e-6, abs=1e-9), name


def in_loops(same: Ratings, other: Ratings) -> tuple:
    rows = np.vstack([same.matrix.toarray(), other.matrix.toarray()])
    elsewhere, (n_users, n_items), rank = np.arange(len(rows)) >= same.n_users, rows.shape, 6
    seen = rows > 0
    rows = np.where(seen, rows - rows[seen].mean(), 0)
    square = (rows[seen] ** 2).mean()
    scores = feature_scores(same.domain.item_features, n_items)
    design = np.column_stack([np.ones(n_items), scores * np.sqrt(scores.shape[1])])
    users, items = np.random.default_rng(0).standard_normal((n_users, rank)), np.zeros((n_items, rank + 2))
    offset, unsure_users = np.zeros(n_users), np.zeros((n_users, rank + 1, rank + 1))
    unsure_items, mean = np.zeros((n_items, rank + 2, rank + 2)), np.zeros((n_items, rank + 2))
    spread = np.array([*[square / 4 / rank] * rank, square / 4, 0.01 * same.domain.half_width**2])
    noise = offsets = square / 4
    rated = seen.any(axis=0)
    for _ in range(12):
        for item in range(n_items):
            precision, right = np.diag(1 / spread), mean[item] / spread
            for user in np.flatnonzero(seen[:, item]):
                own = np.array([*users[user], 1, elsewhere[user]])
                second = np.outer(own, own)
                second[:rank, :rank] += unsure_users[user][:rank, :rank]
                with_offset = own * offset[user]
                with_offset[:rank] += unsure_users[user][:rank, rank]
                precision = precision + second / noise
                right = right + (rows[user, item] * own - with_offset) / noise
            unsure_items[item] = np.linalg.inv(precision)
            items[item] = unsure_items[item] @ right
        known = design[rated]
        ridge = np.diag([1e-9, *[30] * scores.shape[1]])
        for column in range(rank + 1):
            beta = np.linalg.solve(known.T @ known + ridge, known.T @ items[rated, column])
            mean[:, column] = design @ beta
            squares = (items[:, column] - mean[:, column]) ** 2 + unsure_items[:, column, column]
            spread[column] = max(squares[rated].mean(), 1e-4 * square)
        left = 0.0
        for user in range(n_users):
            precision, right = np.diag([*[1] * rank, 1 / offsets]), np.zeros(rank + 1)
            meant = np.array([*[0] * rank, 1, elsewhere[user]])
            met = []
            for item in np.flatnonzero(seen[user]):
                own = np.array([*items[item, :rank], 1])
                second = np.outer(own, own)
                second[:rank, :rank] += unsure_items[item][:rank, :rank]
                bias, cross = (
                    items[item] @ meant,
                    np.append(unsure_items[item] @ meant, 0)[[*range(rank), -1]],
                )
                precision = precision + second / noise
                right = right + (rows[user, item] * own - bias * own - cross) / noise
                met.append((item, own, second, bias, cross, meant @ unsure_items[item] @ meant))
            unsure_users[user] = np.linalg.inv(precision)
            own_user = unsure_users[user] @ right
            users[user], offset[user] = own_user[:rank], own_user[rank]
            outer = np.outer(own_user, own_user) + unsure_users[user]
            for item, own, second, bias, cross, variance in met:
                rating = rows[user, item]
                left += (second * outer).sum() + 2 * own_user @ (own * bias + cross) + bias**2 + variance
                left += rating**2 - 2 * rating * (own @ own_user + bias)
        offsets = max((offset**2 + unsure_users[:, rank, rank]).mean(), 1e-4 * square)
        noise = max(left / seen.sum(), 1e-4 * square)
        squares = (users**2 + unsure_users[:, range(rank), range(rank)]).mean(axis=0)
        root = np.sqrt(squares)
        users, items[:, :rank], mean[:, :rank] = users / root, items[:, :rank] * root, mean[:, :rank] * root
        both = np.append(1 / root, 1)
        unsure_users *= both[:, None] * both
        both = np.append(root, [1, 1])
        unsure_items *= both[:, None] * both
        spread[:rank] *= squares
    return items[:, rank], unsure_items[:, rank, rank], mean[:, rank], items[:, :rank], noise


def test_a_public_model_of_likes_is_a_regression_of_one_item_after_the_other() -> None:
    """Oracle: ridge regressions by lstsq on the rows of users and of the popularity, and a column of ones.

    Few users and more users than items, and some of another population. A partial correlation is the mean, in
    logarithms, of both items' weights for each other.
    """
    rng, popularity = np.random.default_rng(4), np.linspace(0.1, 1, 12)
    for n_users in (4, 400):
        same, other = (rng.random((n, 12)) < popularity / 2 for n in (n_users, 3))
        same[0, 0] = True
        rows = (sp.csr_array(each.astype(float)) for each in (same, other))
        factors = PublicLikes(*rows).factors(popularity)
        rate = popularity * (same.sum() + other.sum()) / (n_users + 3) / popularity.sum()
        table = np.vstack([same, np.sqrt(0.2) * other, np.sqrt(300) * rate])
        ones = np.array([*[1] * n_users, *[np.sqrt(0.2)] * 3, np.sqrt(300)])
        table = np.column_stack([table, ones])
        counts = same.sum(axis=0) + 0.2 * other.sum(axis=0)
        ridge = max(50, 1.5 * (counts**2).sum() / counts.sum())
        weights = np.zeros((13, 12))
        for item in range(12):
            others = np.delete(np.arange(13), item)
            left = np.vstack([table[:, others], np.sqrt(ridge) * np.eye(12)])
            weights[others, item] = np.linalg.lstsq(left, np.append(table[:, item], np.zeros(12)))[0]
        weights = weights[:12]
        found = factors @ factors.T
        np.fill_diagonal(found, 0)
        np.testing.assert_allclose(found, np.sign(weights) * np.sqrt(weights * weights.T), atol=1e-7)


@pytest.mark.true("P1")
@pytest.mark.parametrize(("epsilon", "most"), [(0.5, 0.9), (2.0, 0.9)])
def test_popularity_is_nearer_to_the_truth_than_each_source_alone(epsilon: float, most: float) -> None:
    """Donors' weights, and the release; rows of other items do not harm it."""
    rows, errors = FILMS.liked(4.0).rated(), []
    truth = opened(LikingUsers(FILMS, 4.0).item_weights())
    for seed in range(10):
        state = released_by("private-eigenrec", epsilon=epsilon, seed=seed).state
        known = state["item_weights"], float(np.sqrt(state["item_weights_variance"].mean())), 500.0
        own = rows.rows(slice(40 * seed, 40 * seed + 40), keyed=True)
        other = replace(own, matrix=sp.csr_array(own.matrix[:, ::-1]))
        estimates = [likely_popularity(*known, PublicLikes.of(each, None, None)) for each in (own, other)]
        nothing = np.zeros(120), 1e6, 500.0
        estimates += [likely_popularity(*known), likely_popularity(*nothing, PublicLikes.of(own, None, None))]
        errors.append([1 - np.corrcoef(each, truth)[0, 1] for each in estimates])
    together, misled, released, donors = np.mean(errors, axis=0)
    assert together < most * min(released, donors) and misled < released + 0.05


def test_the_private_model_of_ratings_is_todays_byte_for_byte() -> None:
    with_donors, without = trained("private-als"), trained("private-als", None)
    assert with_donors.privacy.releases == without.privacy.releases
    assert with_donors.privacy.spent_mu == without.privacy.spent_mu
    for array in with_donors.arrays:
        assert with_donors.arrays[array].tobytes() == without.arrays[array].tobytes()
    assert alone(with_donors).recommend(HISTORIES["short"]) == without.recommend(HISTORIES["short"])


@pytest.mark.parametrize("name", ["both", "private-eigenrec"])
def test_lists_cost_the_same_with_public_likes(name: str) -> None:
    """The plan has one release more, and spends the same; public rows say nothing of a model's settings."""
    with_donors, without = trained(name), trained(name, None)
    assert with_donors.privacy.spent_mu == pytest.approx(without.privacy.spent_mu)
    labels = [{each.label for each in model.privacy.releases} for model in (with_donors, without)]
    assert {label.removeprefix("lists: ") for label in labels[0] - labels[1]} == {"weights of the parts"}
    assert with_donors.estimator == without.estimator
    assert "public likes" in [part.name for part in (with_donors.lists or with_donors).parts]


def test_donors_and_released_values_decide_and_nothing_else(tmp_path) -> None:
    """Users who are no donors come, go and change; rows are in another order, or in a store."""
    model = released_by("both")
    wanted, digest = added(DECLARED, model, FILMS), DECLARED.read(model.estimator, FILMS).digest
    assert wanted.judged["donors"] == 63
    donor = FILMS.user_index(DONORS)
    others = np.setdiff1d(np.arange(FILMS.n_users), donor)
    changed = FILMS.where(~np.isin(FILMS.matrix.indices, [1, 5]) | np.isin(rows_of(FILMS), donor))
    stored = Store.prepare(FILMS, tmp_path / "store", FILMS.domain, partitions=3)
    neighbours = {
        "a user less": FILMS.rows(np.append(donor, others[1:])),
        "donors alone": FILMS.rows(donor),
        "others' ratings": changed,
        "another order": FILMS.rows(np.random.default_rng(0).permutation(FILMS.n_users)),
        "a store": stored,
    }
    for what, rows in neighbours.items():
        public = PublicRatings(donors=[*DONORS[::-1], DONORS[0]])
        read = public.read(model.estimator, rows)
        assert read.digest == digest and read.notes == DECLARED.read(model.estimator, FILMS).notes, what
        if rows is stored:
            assert added(public, model, rows).to_bytes() == wanted.to_bytes()
    reversed_stars = FILMS.matrix.copy()
    reversed_stars.data[:] = 6 - reversed_stars.data
    other = DECLARED.read(model.estimator, replace(FILMS, matrix=reversed_stars))
    assert (
        other.digest != digest
        and (other.same.matrix.indices == DECLARED.read(model.estimator, FILMS).same.matrix.indices).all()
    )
    fewer = PublicRatings(donors=DONORS[1:])
    assert fewer.read(model.estimator, FILMS).digest != digest
    assert added(fewer, model, FILMS).to_bytes() != wanted.to_bytes()


def rows_of(ratings: Ratings) -> np.ndarray:
    return np.repeat(np.arange(ratings.n_users), np.diff(ratings.matrix.indptr))


def test_few_donors_judge_the_public_model_and_all_train_it(monkeypatch) -> None:
    """Twin: the model of every donor's rows, where 5 of them judge."""
    monkeypatch.setattr("hushrec.public.judging._MOST_JUDGES", 5)
    model = released_by("private-als")
    rows = DECLARED.read(model.estimator, FILMS).same
    found = added(DECLARED, model, FILMS)
    assert found.judged["donors"] == rows.n_users == 63 and found.public is not None
    twin = ratings_model(rows, None, model, model.state).arrays
    for name, array in found.public.model.arrays.items():
        np.testing.assert_array_equal(array, twin[name])


def test_no_donor_judges_a_model_of_their_own_ratings(monkeypatch) -> None:
    fitted, judged = [], []

    class Watched(Recommender):
        def fold_in(self, history: Ratings):
            judged.append((fitted[-1], set(history.users)))
            return super().fold_in(history)

    def watched(donors: Ratings, external, private, state) -> Recommender:
        fitted.append(set(donors.users))
        model = ratings_model(donors, external, private, state)
        return Watched(model.estimator, model.domain, model.arrays)

    monkeypatch.setattr("hushrec.public.judging.ratings_model", watched)
    model = released_by("private-als")
    rows = DECLARED.read(model.estimator, FILMS).same
    judge(model, rows, None, model.state)
    assert set().union(*(users for _, users in judged)) == set(rows.users)
    assert not any(known & users for known, users in judged)


@pytest.mark.parametrize("n_donors", [3, 9])
@pytest.mark.parametrize("kind", ["none", "odd", "same"])
def test_the_weight_shrinks_with_few_donors_and_with_their_agreement(n_donors: int, kind: str) -> None:
    """Every donor finds the public model best. Oracle of the agreement: all orders of the items."""
    domain = Domain([f"i{place}" for place in range(6)], rating_range=(1, 5))
    stars = np.array([1.0, 5.0] * 3)
    users, items = np.divmod(np.arange(6 * n_donors), 6)
    donors = Ratings.from_any((users, np.array(domain.items)[items], stars[items]), domain)
    biases = {"none": np.zeros(6), "odd": np.array([-4.0, 4, 4, -4, -4, 4]), "same": (stars - 3) / 2}
    bias = biases[kind]
    arrays = {"center": np.float64(3), "item_bias": bias, "item_factors": np.zeros((6, 0))}
    _, found = judge(Recommender(hushrec.ItemBias(), domain, arrays), donors, None, {})
    agreement = 1.0
    if kind != "none":
        rated, known = n_donors * (stars - stars.mean()), bias - bias.mean()
        chance = np.std([rated @ known[list(order)] for order in itertools.permutations(range(6))])
        expected = n_donors * (known @ known) / chance
        agreement = min(max(rated @ known / chance + 1, 0), expected) / expected
    assert found.agreement == pytest.approx(agreement)
    assert found.weight == pytest.approx(round(10 * agreement**2 * n_donors / (n_donors + 1)) / 10)
    assert (kind == "odd") == (0 < found.agreement < 0.9)
    assert found.public["value"] < found.private["value"]


def test_one_judge_decides_nothing() -> None:
    assert [bagged(np.tile(np.arange(11.0)[::-1], (judges, 1))) for judges in (1, 2)] == [0, 1]


def test_ratings_alone_judge_predictions_within_the_range_also_those_of_a_split() -> None:
    """All ratings are 5, and so is each clipped prediction."""
    domain = Domain(range(6), rating_range=(1, 5))
    users, items = np.divmod(np.arange(18), 6)
    table = {"user": users, "item": items, "rating": [None, *[5.0] * 17], "pieces": np.ones(18)}
    donors = Ratings.from_any(table, domain, columns={"quantity": "pieces"})
    donors, _ = next(iter(hushrec.data.k_folds(donors, 9, seed=0)))
    assert np.isnan(donors.matrix.data).any()
    arrays = {"center": np.float64(3), "item_bias": np.full(6, 100.0), "item_factors": np.zeros((6, 0))}
    for external in (None, donors):
        _, found = judge(Recommender(hushrec.ItemBias(), domain, arrays), donors, external, {})
        assert found.private["value"] == 0


def test_donors_help_lists_and_misleading_ones_hardly_count() -> None:
    """Weights are learned by all users; permuted rows agree only with themselves."""
    rows = lifelike("films", n_users=1500, n_items=300, seed=2)
    likes = Ratings.from_any(rows.to_arrow(), Domain(rows.domain.items, likes=True))
    trained_on, judged = (likes.rows(slice(*ends), keyed=True) for ends in ((0, 1200), (1200, 1500)))
    donors = trained_on.rows(slice(0, 120), keyed=True)
    order = np.random.default_rng(0).permutation(300)
    permuted = replace(donors, matrix=sp.csr_array(donors.matrix[:, order]))
    history, held = next(iter(hushrec.data.k_folds(judged, 5, seed=0)))
    found = {}
    declared = {"none": None, "honest": PublicRatings(donors=list(donors.users))}
    for name, public in (declared | {"permuted": PublicRatings(same=permuted)}).items():
        accountant = Accountant(Budget(2.0, 1e-6), noise=SeededNoise(3))
        model = named.train("private-eigenrec", trained_on, accountant, n_users=1200, public=public)
        recall = hushrec.evaluate(model, history, held, metrics=["recall"], resamples=0)["recall@20"].value
        found[name] = recall, {part.name: part.weight for part in model.parts}.get("public likes", 0.0)
    assert found["honest"][0] > found["none"][0] + 0.01 > found["permuted"][0] > found["none"][0] - 0.02
    assert found["honest"][1] > 2 * found["permuted"][1]


def test_ids_of_another_population_are_nobodys() -> None:
    """The same ids there change nothing; who is a donor and in a file of the same population counts once."""
    model = released_by("private-als")
    foreign = lifelike("films", n_users=80, n_items=120, seed=9)
    renamed = foreign.to_arrow().set_column(
        0, "user", [[f"other {u}" for u in foreign.to_arrow()["user"].to_pylist()]]
    )
    one, other = (
        added(PublicRatings(donors=DONORS, external=source), model, FILMS) for source in (foreign, renamed)
    )
    assert one.to_bytes() == other.to_bytes()
    again = FILMS.rows(FILMS.user_index(DONORS[:9]))
    again = replace(again, matrix=sp.csr_array(again.matrix[:, ::-1]))  # which do not count
    twice = added(PublicRatings(donors=DONORS, same=again), model, FILMS)
    assert twice.to_bytes() == added(PublicRatings(donors=DONORS), model, FILMS).to_bytes()
    assert (
        "63 users are public"
        in PublicRatings(donors=DONORS, same=[again]).read(model.estimator, FILMS).notes[0]
    )


def test_a_season_takes_donors_each_week(tmp_path) -> None:
    ledger = hushrec.Ledger(tmp_path / "ledger", create=True)
    season = Season(Budget(8, 1e-6))
    ledger.open_season("films", season)
    accountant = SeasonAccountant(season, ledger=ledger, dataset="films")
    model = named.train("both", FILMS, accountant, n_users=500, public=DECLARED)
    later = SeasonAccountant.following(model.privacy, ledger=ledger)
    second = model.continue_training(FILMS, later, public=PublicRatings(donors=DONORS[:-3]))
    assert second.judged["donors"] == 60
    assert hushrec.Model.from_bytes(second.to_bytes()).judged == second.judged
    last = SeasonAccountant.following(second.privacy, ledger=ledger)
    with pytest.raises(InputError, match="public ratings; pass one of them again"):
        second.continue_training(FILMS, last)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({}, "Nothing is declared public"),
        ({"external": FILMS}, "as private and as public"),
        ({"donors": 7}, "donors must be ids"),
        ({"donors": ["a", None]}, "has no id"),
        ({"donors": "nowhere.txt"}, "cannot be read"),
        ({"donors": ["nobody", "none"]}, "None of the donors .* one id a line"),
        ({"same": FILMS}, "as private and as public"),
        (
            {"donors": DONORS, "external": {"user": ["a"], "item": ["?"], "rating": [3]}},
            "no row that can be used",
        ),
        ({"same": {"user": ["a"], "item": ["?"], "rating": [3]}}, "check how ids are written, and"),
        ({"same": "nowhere.csv"}, "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused_before_a_charge(declared, words) -> None:
    accountant = Accountant(Budget(1, 1e-6))
    with pytest.raises(InputError, match=words):
        named.train("both", FILMS, accountant, public=PublicRatings(**declared))
    assert not accountant.releases
    with pytest.raises(InputError, match="cannot use public ratings"):
        hushrec.models.UserLevelOneBit().fit(FILMS, accountant, public=DECLARED)


def test_a_donor_with_public_ratings_too_has_those_of_the_training() -> None:
    table = {"user": [DONORS[0], "public"], "item": FILMS.domain.items[:2], "rating": [1.0, 1.0]}
    found = PublicRatings(donors=DONORS[:2], same=table).read(hushrec.PrivateALS(), FILMS).same
    assert set(found.users) == {*DONORS[:2], "public"}
    own, read = (rows.for_users([DONORS[0]]).matrix for rows in (FILMS, found))
    assert (own != read).nnz == 0


def test_a_statement_counts_the_donors_without_a_rating_among_other_public_users() -> None:
    others = lifelike("films", n_users=3, n_items=120, seed=9).to_arrow()
    others = {
        "user": [f"public {user}" for user in others["user"].to_pylist()],
        **{name: others[name] for name in ("item", "rating")},
    }
    declared = PublicRatings(donors=[*DONORS[:5], "nobody", "none"], same=others)
    (note,) = declared.read(hushrec.PrivateALS(), FILMS).notes
    assert note.startswith("Ratings of 8 users are public and have no privacy here; declared: 7 donors, 2 of")


@pytest.mark.parametrize("kind", ["same", "external"])
def test_the_private_file_under_another_name_is_not_public(kind, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rated.csv").write_text("user,item,rating\nann,i0,5\nbob,i1,2\n")
    (tmp_path / "items.txt").write_text("i0\ni1\n")
    (tmp_path / "hard.csv").hardlink_to("rated.csv")
    (tmp_path / "soft.csv").symlink_to("rated.csv")
    given = {"rating_range": (1, 5), "epsilon": 1, "delta": 1e-6, "ledger": "ledger.sqlite"}
    words = "train rated.csv --rating-range 1 5 --epsilon 1 --delta 1e-6 --catalogue items.txt --out m.hush"
    for name in ("rated.csv", "hard.csv", "soft.csv", "r*.csv"):
        public = PublicRatings(**{kind: name})
        with pytest.raises(InputError, match="as private and as public"):
            hushrec.train("rated.csv", items=["i0", "i1"], public=public, **given)
        asked = invoke(*words.split(), "--public-ratings", f"{name}={kind}", "--ledger", "ledger.sqlite")
        assert "as private and as public" in asked.stderr
    assert not (tmp_path / "ledger.sqlite").exists()
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "part.csv").hardlink_to("rated.csv")
    for private, public in (("tables", "tables/part.csv"), ("rated.csv", "tables")):
        with pytest.raises(InputError, match="as private and as public"):
            PublicRatings(**{kind: public}).apart_from(private)


def test_a_donors_file_is_a_list_of_ids_or_refused(tmp_path) -> None:
    path, ids = tmp_path / "donors.txt", [str(donor) for donor in DONORS[:3]]
    for before in ("", "\ufeff", "sep=;\n", "\n"):
        path.write_text(before + "\r\n".join(ids), newline="")
        assert PublicRatings(donors=path).read(hushrec.PrivateALS(), FILMS).same.n_users == 3
    headed, table = "customer_id\nu1\nu2", "user,item\nu1,x\nu2,x"
    for text, words in ((headed, "begins with a header"), (table, "table of 2 columns"), ("", "holds no id")):
        path.write_text(text)
        with pytest.raises(InputError, match=f"The donors' file .*{words}"):
            PublicRatings(donors=path).read(hushrec.PrivateALS(), FILMS)


def test_ratings_of_others_count_where_released_biases_bear_them_out() -> None:
    """Alone they serve predictions; those of other items do not."""
    parts = np.split(np.arange(500), (250, 400))
    here, there, judged = (FILMS.rows(rows, keyed=True) for rows in parts)
    table = there.to_arrow()
    other = dict(zip(FILMS.domain.items, np.random.default_rng(1).permutation(FILMS.domain.items)))
    renamed = {"user": table["user"], "item": [other[item] for item in table["item"].to_pylist()]}
    models = [
        trained("both", public, here, epsilon=5.0)
        for public in (
            None,
            PublicRatings(external=there),
            PublicRatings(external=renamed | {"rating": table["rating"]}),
        )
    ]
    today, good, bad = models
    assert good.judged["weight"] >= 0.5 and good.judged["donors"] == 0
    assert bad.judged["weight"] <= 0.2
    assert alone(good).arrays["item_bias"].tobytes() == today.arrays["item_bias"].tobytes()
    assert good.lists.parts[-1].name == "public likes"
    history, held = next(iter(hushrec.data.k_folds(judged, 5, seed=0)))
    errors = [
        float(np.mean((model.predict_pairs(history.aligned_to(held), held) - held.matrix.data) ** 2))
        for model in models
    ]
    assert errors[1] < errors[0] and errors[2] < errors[0] + 0.02
    assert "another population: 1 source" in " ".join(good.privacy.notes)


def test_the_command_line_takes_donors(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    FILMS.to_arrow().to_pandas().to_csv("r.csv", index=False)
    os.link("r.csv", "same.csv")
    lifelike("films", n_users=60, n_items=120, seed=9).to_arrow().to_pandas().to_csv("far.csv", index=False)
    (tmp_path / "items.txt").write_text("\n".join(FILMS.domain.items))
    (tmp_path / "ids.txt").write_text("\n".join([*DONORS, "nobody"]))
    words = "train", "r.csv", "--epsilon", 1, "--delta", 1e-6, "--rating-range", 1, 5, "--users", 500
    words = *words, "--catalogue", "items.txt", "--ledger", "ledger"
    refused = {
        ("--public-ratings", "same.csv=same"): "as private and as public",
        ("--public-ratings", "far.csv"): "names no population",
    }
    for more, said in refused.items():
        result = invoke(*words, "--out", "m.hush", *more)
        assert result.exit_code == 2 and said in result.stderr, more
    result = invoke(*words, "--out", "ids.txt", "--donors", "ids.txt")
    assert result.exit_code == 2 and "is one of the inputs" in result.stderr
    assert not (tmp_path / "ledger").exists()
    result = invoke(*words, "--out", "m.hush", "--donors", "ids.txt", "--public-ratings", "far.csv=external")
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "of 63 donors" in said and "Donors: not protected" in said
    shown = json.loads(invoke("report", "m.hush", "--json").stdout)
    assert shown["public_ratings"]["donors"] == 63


def test_ratings_of_others_are_item_features() -> None:
    """Items that they do not rate have none; directions of likes are those of a dense decomposition."""
    part = FILMS.domain.items[:100]
    rows = hushrec.data.lifelike("films", n_users=300, n_items=100, seed=8)
    known = Ratings.from_any(
        (rows.to_arrow()["user"], rows.to_arrow()["item"], rows.to_arrow()["rating"]), FILMS.domain
    )
    domain = replace(FILMS.domain, item_features=[np.eye(120)[:, :3], item_vectors(known)])
    features = domain.item_features
    assert set(part) >= {item for item, row in zip(domain.items, features) if not np.isnan(row).any()}
    assert np.isnan(features[100:, 3:]).all() and not np.isnan(features[:, :3]).any()

    likes = known.liked(FILMS.domain.like_threshold).rated().matrix.toarray() > 0
    weight = (
        1 / np.sqrt(np.maximum(likes.sum(axis=1), 1))[:, None] / np.sqrt(np.maximum(likes.sum(axis=0), 3))
    )
    values, axes = np.linalg.eigh((likes * weight).T @ (likes * weight))
    seen = np.flatnonzero(known.matrix.sum(axis=0))
    for place in (1, 2, 5):  # after popularity
        expected = axes[:, -1 - place] * np.sqrt(values[-1 - place])
        found = features[:, 3 + 8 + place - 1]
        assert abs(found[seen] @ expected[seen]) == pytest.approx(values[-1 - place], rel=1e-6)


def test_vectors_are_those_of_the_rated_items_and_begin_with_the_log_of_their_ratings() -> None:
    rows = Ratings.from_any(
        (["u", "v", "u"], ["b", "b", "d"], [4, 5, 1]), Domain(list("abcd"), rating_range=(1, 5))
    )
    table = item_vectors(rows)
    assert table["item"].to_pylist() == ["b", "d"]
    assert [vector[0] for vector in table["vector"].to_pylist()] == pytest.approx(np.log([3, 2]))


def test_few_public_rows_make_vectors_or_one_sentence() -> None:
    domain = hushrec.Domain(range(30), rating_range=(1, 5))
    for users, stars in (("a", 5.0), ("ab", 1.0), ("a" * 9, 4.0)):
        rows = Ratings.from_any((list(users), range(len(users)), [stars] * len(users)), domain)
        for each in (rows, rows.liked(4.0)) if stars > 1 else (rows,):
            found = np.array(item_vectors(each)["vector"].to_pylist())
            assert len(found) == len(users) and np.isfinite(found).all()
    for nothing in (Ratings.from_any(([], [], []), domain), "elsewhere.csv"):
        with pytest.raises(InputError, match="no row|must be Ratings"):
            item_vectors(nothing)
