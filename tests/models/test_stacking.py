"""The weights of a list's parts: what a user adds against a slow likelihood, its bound, and the posterior."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import hushrec
from hushrec import Accountant, Budget, Domain, PrivateEigenRec, Ratings, Season, SeasonAccountant, Store
from hushrec.data import realistic
from hushrec.data.words import Neighbours
from hushrec.models.private_eigenrec import stacking
from hushrec.models.private_eigenrec.parts import Parts, likely_popularity
from hushrec.models.private_eigenrec.public_likes import PublicLikes
from hushrec.models.private_eigenrec.stacking import (
    WEIGHTS,
    Learned,
    asked_part,
    contributions,
    learned,
    prior,
)
from hushrec.models.private_eigenrec.users import LikingUsers
from hushrec.privacy import signed
from hushrec.privacy.testing import RecordingNoise, SeededNoise
from hushrec.serving.scoring import all_scores
from tests.models.twins import full, run
from tests.opening import opened

SCALE = 2.0**-27
CLIP = 0.05
#: Names of all parts, in their order. `parts_of` and `part_scores` know each.
NAMES = "popularity", "tastes", "kind", "item pairs", "words", "public likes"
COUNT = len(NAMES)
AT_FIRST = np.array([1.0, *[0.5] * (COUNT - 1)])


def parts_of(n_items: int, seed: int = 0, size: float = 1.0) -> Parts:
    """Parts of every kind with random arrays, for which no user was asked."""
    rng = np.random.default_rng(seed)
    learned_items = np.sort(rng.choice(n_items, min(n_items // 2, 200), replace=False)).astype(np.int32)
    tables = tuple(size * rng.standard_normal((n_items, width)) for width in (2, 3))
    pairs = learned_items, size * rng.standard_normal((len(learned_items),) * 2)
    words = rng.integers(0, n_items, (n_items, 3)).astype(np.int32), rng.random((n_items, 3)).astype("f4")
    public = size * rng.standard_normal((n_items, 4)), np.zeros(0, np.uint64)
    popularity, weight = np.sort(rng.uniform(0.01, 1, n_items))[::-1], rng.uniform(0.5, 2, n_items)
    scales = rng.uniform(0.5, 2, COUNT)
    return Parts(NAMES, popularity, weight, tables, pairs, words, public, scales)


def likes_of(rows: list, n_items: int) -> sp.csr_array:
    starts = np.cumsum([0, *map(len, rows)])
    items = np.concatenate([np.zeros(0, np.int32), *map(np.sort, rows)]).astype(np.int32)
    return sp.csr_array((np.ones(len(items), np.float32), items, starts), (len(rows), n_items))


def random_rows(count: int, n_items: int, seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.choice(n_items, int(rng.integers(1, min(12, n_items))), replace=False) for _ in range(count)]


def part_scores(parts: Parts, seen: list[int], item: int) -> list[float]:
    """One item's scores for one user, part by part, as docs/reference/fold-in.md adds them up."""
    found, n = [math.log(parts.popularity[item])], len(seen)
    total = sum(parts.history_weight[own] * parts.popularity[own] for own in seen) * (1 + 2 / n)
    for table in parts.factors:
        taste = sum(parts.history_weight[own] * table[own] for own in seen) / total if total else 0 * table[0]
        found.append(float(taste @ table[item]))
    (learned_items, weights), (near, similarity) = parts.pairs, parts.words
    place = {int(each): number for number, each in enumerate(learned_items)}
    both = [weights[place[own], place[item]] for own in seen if own in place and item in place]
    found.append(sum(map(float, both)) / math.sqrt(n))
    alike = [float(similarity[own, k]) ** 1.5 for own in seen for k in range(3) if near[own, k] == item]
    found.append(sum(alike) / math.sqrt(n))
    found.append(sum(float(parts.public[0][own] @ parts.public[0][item]) for own in seen) / math.sqrt(n))
    return [score * scale for score, scale in zip(found, parts.scales, strict=True)]


MASK = (1 << 64) - 1


def mixed(x: int) -> int:
    """SplitMix64's finaliser, in whole numbers."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def slow_user(parts: Parts, liked: list[int], weights: np.ndarray) -> np.ndarray:
    """What one user adds, by finite differences of the log-likelihood of the held-out likes."""
    n_items, count = len(parts.popularity), len(weights)
    nothing = np.zeros(count + count * (count + 1) // 2)
    if len(liked) < 3:
        return nothing
    base = mixed(sum(mixed(item) for item in liked) & MASK)
    dealt = sorted(liked, key=lambda item: mixed(base + 0x9E3779B97F4A7C15 * (item + 1) & MASK))
    held = dealt[: max(1, round(len(liked) / 4))]
    seen = sorted(set(liked) - set(held))
    others = [item for item in range(n_items) if item not in seen]
    scores = {item: np.array(part_scores(parts, seen, item)) for item in others}
    best = {item for p in range(count) for item in sorted(others, key=lambda j: -scores[j][p])[:100]}

    def likelihood(w: np.ndarray) -> float:
        whole = np.logaddexp.reduce([scores[item] @ w for item in best])
        return sum(scores[item] @ w - whole for item in held if item in best) / len(held)

    def at(*steps: tuple[int, float]) -> float:
        moved = weights.copy()
        for axis, step in steps:
            moved[axis] += step
        return likelihood(moved)

    d, mine = 1e-4, []
    for p in range(count):
        mine.append((at((p, d)) - at((p, -d))) / (2 * d))
    for p, q in itertools.combinations_with_replacement(range(count), 2):
        corners = (s * t * at((p, s * d), (q, t * d)) for s in (1, -1) for t in (1, -1))
        mine.append(-sum(corners) / (4 * d * d))
    hessian = np.zeros((count, count))
    hessian[np.triu_indices(count)] = mine[count:]
    hessian += np.triu(hessian, 1).T
    length = math.hypot(np.linalg.norm(mine[:count]), np.linalg.norm(hessian))
    return np.array([*mine[:count], *hessian[np.tril_indices(count)]]) / max(CLIP, length)


@pytest.mark.parametrize("n_items", [12, 150])
def test_what_a_user_adds_are_derivatives_of_a_slow_likelihood(n_items: int) -> None:
    """In a small catalogue all items compete; in a larger one the best of each part."""
    parts, weights = parts_of(n_items), np.resize([1.0, 0.5, 0.2, 0.0, 0.8, 0.4], COUNT)
    rows = random_rows(6 if n_items > 100 else 25, n_items)
    for row in rows:
        found = opened(contributions(likes_of([row], n_items), parts, weights, 1.0))
        np.testing.assert_allclose(found, slow_user(parts, row.tolist(), weights), atol=3e-6)
    together = opened(contributions(likes_of(rows, n_items), parts, weights, 1.0))
    each = [opened(contributions(likes_of([row], n_items), parts, weights, 1.0)) for row in rows]
    assert np.array_equal(together, sum(each)) and np.abs(together).max() > 1


def test_the_unit_of_a_part_is_its_typical_best_score() -> None:
    """Of histories of one popular item: the mean of the best tenth of the others, above their mean."""
    parts = parts_of(60)._replace(scales=np.ones(COUNT))
    trust = np.array([1.0, *[3.0] * len(parts.factors), *[1.0] * (COUNT - 1 - len(parts.factors))])
    typical, popular = np.zeros(COUNT), range(50)  # parts_of sorts items by popularity
    for item in popular:
        table = trust * [part_scores(parts, [item], other) for other in range(60) if other != item]
        best = np.sort(table, axis=0)[-6:].mean(axis=0) - table.mean(axis=0)
        typical += parts.popularity[item] / parts.popularity[popular].sum() * best
    np.testing.assert_allclose(parts._scales(), 1 / typical)


def test_rare_items_of_a_history_weigh_more_unless_they_are_learned() -> None:
    """Half as popular weighs 2 ** 0.6 as much, as of learned items; below a fiftieth all weigh the same."""
    learned_weight = np.r_[np.zeros(28), 3.0, 5.0]
    served = {"history_weight": learned_weight, "item_factors": np.zeros((30, 0))}
    weights = np.geomspace(2000, 0.5, 30), 1.0
    parts = Parts.of(served, weights, 1000.0, Domain(range(30), likes=True), None)
    found, doublings = parts.history_weight[:28], -np.log2(np.maximum(parts.popularity[:28], 1 / 50))
    np.testing.assert_allclose(np.log2(found / found[0]), 0.6 * (doublings - doublings[0]), atol=1e-9)
    assert found[20] > found[0] and parts.history_weight[28:].tolist() == [3.0, 5.0]


@pytest.mark.parametrize("n_users", [1, 9999, 20_000, 3_000_000])
@pytest.mark.parametrize("n_items", [1, 5000, 1_000_000])
def test_as_many_users_are_asked_as_there_is_time_for(n_users: int, n_items: int) -> None:
    asked = asked_part(n_users, n_items) * n_users
    assert asked == pytest.approx(min(n_users, 10_000, 200_000_000 / n_items))


def hostile_parts(n_items: int) -> list[Parts]:
    """Ordinary parts, large and tiny ones, and parts that overflow or hold what is no number."""
    ordinary = parts_of(n_items)
    odd = parts_of(n_items, 1)
    odd.factors[0][::7], odd.factors[1][::5], odd.pairs[1][::3] = np.nan, np.inf, -np.inf
    sizes = [parts_of(n_items, 2, size) for size in (30.0, 1e-6, 1e12, 1e200)]
    return [ordinary, *sizes, odd, parts_of(n_items, 3)._replace(scales=np.zeros(COUNT))]


@pytest.mark.filterwarnings("error")
def test_no_row_of_1_to_5000_likes_adds_more_than_norm_1() -> None:
    n_items, rng, norms = 5000, np.random.default_rng(3), []
    chosen = [np.arange(length) for length in (1, 2, 3, 4, 7, 40, 200, 5000)]  # the most popular
    chosen += [rng.choice(n_items, length, replace=False) for length in (3, 600)]
    domain = Domain(range(n_items), likes=True)
    rows = [Ratings.from_any((np.zeros(len(each)), each, np.ones(len(each))), domain) for each in chosen]
    off = np.concatenate([np.ones(COUNT), *([math.sqrt(2)] * p + [1.0] for p in range(COUNT))])
    for parts in hostile_parts(n_items):
        for start in (AT_FIRST, np.full(COUNT, 1e9)):
            for row in rows:
                bounded = LikingUsers(row).part_weights(parts, start, 1.0)
                own = opened(bounded)
                norms.append(float(np.linalg.norm(own * off)))
                assert norms[-1] <= 1 and (own / SCALE == np.rint(own / SCALE)).all()
                assert row.n_ratings > 2 or not own.any()
    assert bounded.bound == signed(1.0) and bounded.step == SCALE
    np.testing.assert_allclose(bounded.weight, off)
    assert np.mean(np.array(norms) > 0.9999) > 0.3


def test_two_users_can_differ_by_nearly_2() -> None:
    """One likes what the other does not: the sensitivity of replace is no smaller than 2."""
    n_items, rng, found = 100, np.random.default_rng(0), []
    factors = np.where(np.arange(n_items) % 2, 1.0, -1.0)[:, None] * 0.77
    ones = np.ones(n_items)
    parts = Parts(("", "tastes"), ones, ones, (factors,), (), (), (), np.ones(2))
    for _ in range(60):
        row = np.array([*(2 * rng.choice(50, 2, replace=False) + 1), 2 * rng.integers(50) + rng.integers(2)])
        bounded = contributions(likes_of([np.unique(row)], n_items), parts, np.zeros(2), 1.0)
        found.append(opened(bounded))
    most = max(np.linalg.norm(a - b) for a, b in itertools.combinations(found, 2))
    assert 1.9 < most <= bounded.bound.under("replace")


def test_what_a_user_adds_depends_on_their_likes_alone(monkeypatch) -> None:
    """Other users, their number and order, ids, and the blocks of users change no bit."""
    n_items, weights = 60, AT_FIRST
    parts, rows = parts_of(n_items), random_rows(40, n_items, 7)
    alone = [opened(contributions(likes_of([row], n_items), parts, weights, 1.0)) for row in rows]
    rng = np.random.default_rng(0)
    for block in (1, 3000, 1 << 21):
        monkeypatch.setattr(stacking, "_AT_ONCE", block)
        for _ in range(4):
            chosen = rng.permutation(len(rows))[: int(rng.integers(1, len(rows)))]
            some = opened(contributions(likes_of([rows[at] for at in chosen], n_items), parts, weights, 1.0))
            assert np.array_equal(some, sum(alone[at] for at in chosen))
    domain = Domain(range(n_items), likes=True)
    for names in (["a", "b"], ["b", "a"], ["z", "y"]):
        cells = [(name, item) for name, row in zip(names, rows) for item in rng.permutation(row)]
        users = LikingUsers(Ratings.from_any(tuple(map(list, zip(*cells))), domain))
        assert np.array_equal(opened(users.part_weights(parts, weights, 1.0)), alone[0] + alone[1])


def test_a_sample_of_users_is_drawn_by_their_own_likes() -> None:
    n_items, weights, parts = 60, AT_FIRST, parts_of(60)
    rows = [row for row in random_rows(400, n_items, 5) if len(row) > 2]

    def sums(rows: list, part: float) -> np.ndarray:
        return opened(contributions(likes_of(rows, n_items), parts, weights, part))

    own = {part: [bool(sums([row], part).any()) for row in rows] for part in (0.0, 0.3, 0.7, 1.0)}
    assert not any(own[0.0]) and all(own[1.0])
    for part in (0.3, 0.7):
        assert abs(np.mean(own[part]) - part) < 4 * math.sqrt(part * (1 - part) / len(rows))
        taken = [row for row, mine in zip(rows, own[part]) if mine]
        assert np.array_equal(sums(rows, part), sums(taken, 1.0))
    assert all(more or not less for less, more in zip(own[0.3], own[0.7]))


def test_a_user_with_the_likes_of_a_public_row_adds_nothing() -> None:
    """All others add what they add without public rows, with any other rows beside them."""
    n_items, weights, rows = 60, np.full(COUNT, 0.5), random_rows(30, 60, 9)
    parts = parts_of(n_items)
    factors, _ = parts.public
    own = [opened(contributions(likes_of([row], n_items), parts, weights, 1.0)) for row in rows]
    keys = PublicLikes(likes_of(rows[:10], n_items), likes_of([], n_items)).keys
    parts = parts._replace(public=(factors, keys))
    found = [opened(contributions(likes_of([row], n_items), parts, weights, 1.0)) for row in rows]
    sets = [set(row.tolist()) for row in rows]
    for row, before, now in zip(sets, own, found, strict=True):
        assert np.array_equal(now, 0 * before if row in sets[:10] else before)
    assert np.array_equal(opened(contributions(likes_of(rows, n_items), parts, weights, 1.0)), sum(found))


@pytest.mark.parametrize("seed", range(6))
def test_the_weights_are_the_posterior_of_a_linear_gaussian_model(seed: int) -> None:
    """Dense formula for the mean; every set of weights that may be 0 for the best point without negative
    ones."""
    rng = np.random.default_rng(seed)
    count, noise_sd = 4, 10.0 ** rng.uniform(-1, 2)
    root = rng.standard_normal((6, count)) * rng.uniform(1, 20)
    hessian, gradient = root.T @ root, 60 * rng.standard_normal(count)
    spread = rng.standard_normal((count, count))
    before = Learned(rng.uniform(0, 2, count), np.eye(count) + spread @ spread.T)
    released = np.concatenate([gradient, hessian[np.tril_indices(count)]]) / CLIP
    found = learned(released, noise_sd, before)
    covariance = (CLIP * noise_sd) ** 2 * np.eye(count) + hessian  # of H w + noise, measured at H w_0 + g
    inverse = np.linalg.inv(covariance)
    precision = before.precision + hessian @ inverse @ hessian
    measured = before.precision @ before.weights + hessian @ inverse @ (hessian @ before.weights + gradient)
    mean, best = np.linalg.solve(precision, measured), (math.inf, None)
    for free in itertools.product([False, True], repeat=count):
        kept, point = np.array(free), np.zeros(count)
        if kept.any():
            point[kept] = np.linalg.solve(precision[np.ix_(kept, kept)], (precision @ mean)[kept])
        loss = (point - mean) @ precision @ (point - mean)
        if (point >= 0).all() and loss < best[0]:
            best = loss, point
    np.testing.assert_allclose(found.precision, precision, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.weights, best[1], rtol=1e-6, atol=1e-9)


def test_sums_that_say_nothing_leave_the_prior_and_noise_gives_finite_weights() -> None:
    before = prior(3)
    np.testing.assert_allclose(learned(np.zeros(9), 5.0, before).weights, [1, 0.5, 0.5])
    np.testing.assert_allclose(learned(np.zeros(9), 0.0, before).weights, [1, 0.5, 0.5])
    for seed in range(20):
        released = np.random.default_rng(seed).standard_normal(9) * 100
        found = learned(released, 100.0, before)
        assert (found.weights >= 0).all() and np.isfinite(found.weights).all()
        assert (np.linalg.eigvalsh(found.precision) >= 1 - 1e-9).all()


def generated(n_users: int, seed: int = 0, n_items: int = 120) -> Ratings:
    """Likes of users who keep to one of six kinds, and a table with the kind and with a random colour."""
    rng = np.random.default_rng(seed)
    kinds, popular = rng.integers(0, 6, n_items), 1 / (3 + np.arange(n_items))
    chance = popular * np.where(kinds == np.arange(n_users)[:, None] % 6, 8.0, 1.0)
    cells = np.nonzero(rng.random(chance.shape) < 12 * chance / chance.sum(axis=1, keepdims=True))
    table = {"item": list(range(n_items)), "kind": [f"kind {k}" for k in kinds]}
    table["colour"] = [f"colour {k}" for k in rng.permutation(kinds)]
    domain = Domain(range(n_items), likes=True, item_features=table)
    return Ratings.from_any((*cells, np.ones(len(cells[0]))), domain)


@pytest.mark.true("P3")
def test_a_good_table_gets_weight_and_a_random_one_less() -> None:
    ratings = generated(1500)
    found = []
    for seed in range(3):
        accountant = Accountant(Budget(5.0, 1e-6), noise=SeededNoise(seed))
        model = PrivateEigenRec.planned(Budget(5.0, 1e-6), ratings.domain, 1500).fit(ratings, accountant)
        found.append({part.name: part.weight for part in model.parts})
    mean = {name: np.mean([each[name] for each in found]) for name in found[0]}
    assert mean["kind"] > 10 * mean["colour"] and mean["popularity"] > 0.1
    assert [part.columns for part in model.parts][0] == 0


@pytest.mark.parametrize("pairs", [False, True])
def test_lists_are_the_sum_of_parts_by_the_released_weights(pairs: bool) -> None:
    """Oracle: the exact sums and the recorded noise, then the scores of each part alone."""
    ratings = generated(200)
    rank = {"rank": 3, "iterations": 2, "n_users": 200, "parts_share": 0.2}
    estimator = PrivateEigenRec.of(**rank, pairs=pairs)
    seen = []

    class Watching(LikingUsers):
        def part_weights(self, parts, weights, part):
            seen.append((parts, weights, part, super().part_weights(parts, weights, part)))
            return seen[-1][-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateEigenRec, "users", lambda self, rows: Watching(rows, self.like_threshold))
        model, noise, sds = run(estimator, ratings)
    ((parts, start, part, exact),) = seen
    assert part == 1.0 and start.tolist() == [1.0, *[0.5] * (len(parts.names) - 1)]
    released = opened(exact) + noise[WEIGHTS]
    gradient, hessian = np.split(CLIP * released, [len(start)])
    values, axes = np.linalg.eigh(full(hessian, len(start)))
    fisher = axes @ np.diag(np.maximum(values, 0)) @ axes.T
    inverse = np.linalg.inv((CLIP * sds[WEIGHTS]) ** 2 * np.eye(len(start)) + fisher)
    precision = np.eye(len(start)) + fisher @ inverse @ fisher
    mean = start + np.linalg.solve(precision, fisher @ inverse @ gradient)
    if pairs:  # the item weights are released once
        noisy = opened(LikingUsers(ratings, estimator.like_threshold).item_weights()) + noise["item weights"]
        np.testing.assert_allclose(parts.popularity, likely_popularity(noisy, sds["item weights"], 200.0))
    weights = np.array([each.weight for each in model.parts])
    assert not np.allclose(weights, start, atol=0.05)
    slope = precision @ (weights - mean)  # of the loss: 0 at positive weights, and not negative at 0
    assert np.abs(slope[weights > 0]).max() < 1e-5 * np.abs(precision).max() and (slope > -1e-6).all()
    rows = ratings.rows(np.arange(8), keyed=True)
    expected = parts.scores(rows.matrix) @ weights
    np.testing.assert_allclose(all_scores(model.arrays, model.fold_in(rows)), expected, atol=1e-5)
    for column in range(0, ratings.n_items, 17):  # what no like moves is the popularity
        liked = dict.fromkeys(ratings.domain.items[3:40:6], ratings.domain.high)
        why = model.explain(liked, ratings.domain.items[column])
        assert why.base == pytest.approx(float(model.item_bias[column]), abs=1e-5)
        assert any(each.moved for each in why.because)
    again = hushrec.Model.from_bytes(model.to_bytes())
    assert again.parts == model.parts and [each.name for each in again.parts] == list(parts.names)


def test_a_part_scores_as_the_fold_in_says() -> None:
    n_items, parts = 30, parts_of(30)
    rows = [row for row in random_rows(12, n_items) if len(row)]
    found = parts.scores(likes_of(rows, n_items))
    for scores, row in zip(found, rows, strict=True):
        expected = [part_scores(parts, sorted(row.tolist()), item) for item in range(n_items)]
        np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-9)


def test_a_season_learns_from_last_weeks_weights() -> None:
    """The next week starts from the weights and the precision of the last one, not from the prior."""
    ratings = generated(400)
    season, noise = Season(Budget(8, 1e-6)), SeededNoise(4)
    estimator = PrivateEigenRec.of(rank=2, iterations=2, n_users=400)
    first = estimator.fit(ratings, SeasonAccountant(season, noise=noise))
    started = []
    with pytest.MonkeyPatch.context() as patch:
        inner = LikingUsers.part_weights

        def watched(self, parts, weights, part):
            started.append(weights)
            return inner(self, parts, weights, part)

        patch.setattr(LikingUsers, "part_weights", watched)
        recording = RecordingNoise(SeededNoise(5))
        second = first.continue_training(ratings, SeasonAccountant.following(first.privacy, noise=recording))
    np.testing.assert_array_equal(started[0], [part.weight for part in first.parts])
    gain = second.state["part_precision"] - first.state["part_precision"]
    assert (np.linalg.eigvalsh(gain) > -1e-9).all() and np.trace(gain) > 0
    none = replace(ratings, domain=Domain(ratings.domain.items, likes=True))
    with pytest.raises(hushrec.InputError, match="table of articles"):
        first.continue_training(none, SeasonAccountant.following(first.privacy, noise=SeededNoise(6)))


def test_memory_and_stores_of_any_partition_give_the_same_bytes(tmp_path) -> None:
    ratings = generated(150)
    estimator = PrivateEigenRec.of(rank=2, iterations=2, n_users=150, parts_share=0.2)
    budget, files = Budget(5, 1e-6), []
    for count in (0, 1, 7):
        rows = ratings
        if count:
            rows = Store.prepare(ratings, tmp_path / str(count), ratings.domain, partitions=count)
        files.append(estimator.fit(rows, Accountant(budget, noise=SeededNoise(2))).to_bytes())
    assert len(set(files)) == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_items", [2, 3, 5])
def test_tiny_catalogues_with_a_table(n_items: int) -> None:
    rows = [(user, item) for user in range(9) for item in range(n_items)]
    table = {"item": list(range(n_items)), "kind": [f"a word{item % 2} of it" for item in range(n_items)]}
    domain = Domain(range(n_items), likes=True, item_features=table)
    ratings = Ratings.from_any((*map(list, zip(*rows)), np.ones(len(rows))), domain)
    model = PrivateEigenRec.of(rank=2, iterations=1).fit(ratings, Accountant(Budget(2.0, 1e-6)))
    assert all(np.isfinite(array).all() for array in model.arrays.values())


def test_words_alone_are_a_part_too() -> None:
    domain = realistic(2, 30, 4, seed=0).domain
    titles = [f"tea pot number {item // 2}" for item in range(30)]
    domain = replace(domain, item_features={"item": list(domain.items), "title": titles})
    assert isinstance(domain.item_words, Neighbours)
    ratings = replace(realistic(60, 30, 700, seed=1), domain=domain)
    estimator = PrivateEigenRec.of(rank=0, parts_share=0.4, like_threshold=4.0)
    model = estimator.fit(ratings, Accountant(Budget(5.0, 1e-6), noise=SeededNoise(0)))
    assert {"popularity", "words"} <= {part.name for part in model.parts}
