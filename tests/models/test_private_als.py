"""Private ALS against a slow twin that is given the noise of the run, and its options at work."""

import math

import numpy as np
import pyarrow as pa
import pytest

from hushrec.data import Domain, Ratings, realistic, split_ratings
from hushrec.errors import InputError
from hushrec.kernels.sweeps import SweepSettings
from hushrec.models import GlobalMean, ItemBias, PrivateALS
from hushrec.models.private_als import train
from hushrec.models.private_als.server import Ground, Level, packed_variance, residual_variance, spectrum
from hushrec.privacy import Accountant, Budget
from tests.models.twins import (
    full,
    level,
    likely_factor,
    likely_weights,
    run,
    shown,
    small,
    start,
)


def test_it_matches_a_slow_twin() -> None:
    ratings = small()
    estimator = PrivateALS.of(
        rank=2,
        features=False,
        iterations=1,
        bias_rounds=1,
        weight_exponent=-0.5,
        bias_clip=0.3,
        factor_clip=0.05,
        user_norm=0.2,
        user_variance=1.5,
    )
    model, noise, noise_sd = run(estimator, ratings)
    dense = ratings.matrix.toarray().astype(np.float64)
    seen = [np.flatnonzero(row) for row in dense]
    rank, n_items = 2, 12

    # level, spreads and weights; what noise may have made is drawn to usual values
    center, n_users, unit, damping = level(dense, seen, noise, noise_sd)
    weights = noise["item weights"].copy()
    for s in seen:
        weights[s] += 1 / math.sqrt(len(s))
    visible = min(max(1 - noise_sd["item weights"] ** 2 / np.var(weights), 0.0), 1.0)
    weights = likely_weights(weights, noise_sd["item weights"])
    relative = (weights / weights.max()) ** -0.5
    slopes = weights * relative / math.sqrt((weights * relative**2).sum() / weights.sum())
    cells = [relative[s] / math.sqrt((relative[s] ** 2).sum()) for s in seen]

    # one bias round
    sums = noise["item biases 1"][:, 0].copy()
    for row, s, cell in zip(dense, seen, cells):
        offset = (row[s] - center).sum() / (len(s) + damping)
        contribution = cell * (row[s] - center - offset)
        contribution *= min(1.0, 0.3 * unit / np.linalg.norm(contribution))
        sums[s] += contribution
    slope, prior = 0.5 * slopes, (0.65 * unit) ** 2
    popularity = np.log(weights) - np.average(np.log(weights), weights=weights)
    popularity /= math.sqrt(np.average(popularity**2, weights=weights))
    design = np.column_stack([np.ones(n_items), visible * popularity])
    error = (unit * noise_sd["item biases 1"]) ** 2
    error = error + unit**2 * slopes * n_users / slopes.sum()

    def regressed(prior):
        root = np.sqrt(slope**2 * prior + error)
        stacked = np.vstack([slope[:, None] * design / root[:, None], np.diag([2.0, 2.0]) / unit])
        return design @ np.linalg.lstsq(stacked, np.append(sums / root, [0, 0]), rcond=None)[0]

    rest = sums - slope * regressed(prior)
    prior *= likely_factor(rest, slope**2 * prior, error)
    common = regressed(prior)
    bias = common + prior * slope / (slope**2 * prior + error) * (sums - slope * common)

    # residual variance, one vote a user, sets the users' ridge
    votes = noise["residual variance 1"][0]
    for row, s in zip(dense, seen):
        target = row[s] - center - bias[s]
        rest = target - target.sum() / (len(s) + damping)
        votes += min((rest**2).sum() / (len(s) - len(s) / (len(s) + damping)), 2 * unit**2)
    usual = 0.75 * unit**2
    residual = usual + shown(usual, 2 * unit**2 * noise_sd["residual variance 1"] / n_users) * (
        votes / n_users - usual
    )
    spread_of_users = 1.5 * unit**2
    ridge = residual / spread_of_users

    # one iteration of factors, from a random start that the first update replaces
    items = start(n_items, rank)
    gram = full(noise["gramian 1"][:-1], rank)
    typical = np.linalg.eigvalsh(items.T @ np.diag(slopes / slopes.sum()) @ items)
    uncertainty = noise["gramian 1"][-1] + sum(np.mean(ridge / (ridge + len(s) * typical)) for s in seen)
    sums = noise["item sums 1"].copy()
    for row, s, cell in zip(dense, seen, cells):
        design = np.column_stack([items[s], np.ones(len(s))])
        target = row[s] - center - bias[s]
        user = np.linalg.solve(design.T @ design + np.diag([ridge, ridge, damping]), design.T @ target)
        rest = cell * (target - design @ user)
        factors = user[:2]
        length = np.linalg.norm(factors)
        bound = 0.05 * unit * math.sqrt(residual)
        shrink = min(1, (0.2 * unit / length) ** 2, bound / (length * np.linalg.norm(rest)))
        gram += shrink * np.outer(factors, factors)
        sums[s] += shrink * rest[:, None] * factors
    values, vectors = np.linalg.eigh(gram)
    gram = (vectors * np.maximum(values, unit**2 * noise_sd["gramian 1"])) @ vectors.T / n_users
    variance = spread_of_users * min(1.0, uncertainty / n_users)  # of what is known of a user
    gram = gram + variance * np.eye(rank)
    expected = np.zeros((n_items, rank))
    for item in range(n_items):
        measured = slopes[item] * gram
        noisy = sums[item] + measured @ items[item] - variance * slopes[item] * items[item]
        error = (unit * math.sqrt(residual) * noise_sd["item sums 1"]) ** 2 * np.eye(rank)
        error += residual * measured
        gain = 0.36 * measured @ np.linalg.inv(0.36 * measured @ measured + error)
        expected[item] = gain @ noisy
    np.testing.assert_allclose(model.item_bias, bias, atol=2e-3)  # weights are posterior means between bins
    np.testing.assert_allclose(model.item_factors, expected, rtol=0.05, atol=2e-3)


def rmse(model, history: Ratings, test: Ratings) -> float:
    return math.sqrt(np.mean((model.predict_pairs(history, test) - test.matrix.data) ** 2))


def test_the_planned_model_beats_both_baselines_on_realistic_data() -> None:
    train, test = split_ratings(realistic(4000, 800, 300_000, seed=2), (0.9, 0.1), seed=0)
    budget = Budget(5.0, 1e-6)
    models = [PrivateALS.planned(budget, train.domain, 4000), ItemBias(), GlobalMean()]
    errors = [rmse(model.fit(train, Accountant(budget)), train, test) for model in models]
    assert errors == sorted(errors)


@pytest.mark.parametrize("name", ["bias_clip", "factor_clip", "user_norm"])
def test_no_clip_is_refused_in_a_private_run(name: str) -> None:
    accountant = Accountant(Budget(1.0, 1e-6))
    with pytest.raises(InputError, match=name):
        PrivateALS.of(iterations=1, **{name: None}).fit(small(), accountant)
    assert accountant.releases == ()


def test_a_domain_read_from_the_ratings_is_refused_in_a_private_run() -> None:
    base = small()
    users, items = base.matrix.nonzero()
    table = {"user": users, "item": items, "rating": base.matrix.data}
    domain = Domain.observed(pa.table(table))
    ratings = Ratings.from_any(pa.table(table), domain)
    accountant = Accountant(Budget(1.0, 1e-6))
    with pytest.raises(InputError, match="declare"):
        PrivateALS().fit(ratings, accountant)
    assert accountant.releases == ()
    PrivateALS().fit(ratings, Accountant(Budget(math.inf, 1e-6)))


class Told:
    """A gate that returns the test's values, and users who record the questions."""

    private = True

    def __init__(self, values, sd) -> None:
        self.values, self.sd, self.asked = values, sd, []

    def release(self, label, bounded):
        self.asked.append((label, bounded))
        return self.values[label].copy()

    def noise_sd(self, label) -> float:
        return self.sd[label.rstrip(" 123")]

    def planned(self, label) -> bool:
        return label in self.values

    def __getattr__(self, name):
        def asked(*given):
            given = [each.copy() if isinstance(each, np.ndarray) else each for each in given]
            self.asked.append((name, given))
            return "sums of it", "its gramian"

        return asked


@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize(("start_of", "norm"), [("random", 0.5), ("spectral", 0.5), ("random", None)])
def test_rounds_of_factors_go_on_from_what_is_known_of_them(features, start_of, norm) -> None:
    """Oracle: Gaussian conditioning, item by item along a round's directions; a random start is a guess."""
    n, rank, rng = 9, 4 if features else 2, np.random.default_rng(6)
    model = PrivateALS.of(
        rank=rank, features=features, iterations=3, start=start_of, user_norm=norm, factor_clip=0.2,
        factor_prior=0.7,
    )  # fmt: skip
    level, slopes = Level(3.2, 90.0, 1.3, 5.0, 0.02), rng.uniform(1, 9, n)
    sd = {"residual variance": 4.0, "gramian": 2.0, "item sums": 0.3}
    half = rng.normal(size=(3, rank, rank))
    values = {"start": np.diag(np.arange(1.0, n + 1))[np.tril_indices(n)] + 0.1}
    for step in (1, 2, 3):
        gram = (half[step - 1] @ half[step - 1].T)[np.tril_indices(rank)]
        values[f"residual variance {step}"] = np.array([90 * 0.4 / step])
        values[f"gramian {step}"] = np.append(2 * gram, 30.0)
        values[f"item sums {step}"] = rng.normal(size=(n, rank))
    gate, items = Told(values, sd), rng.normal(size=(n, 3 if features else 1))
    given = items.copy()
    ground = Ground(level, slopes, np.zeros((n, 1)))
    found, last, known = train._learn_factors(model, gate, gate, ground, items, np.zeros((n, 0)), 7)

    residual, most, prior, asked = 1.3**2, 2 * 1.3**2, np.full((n, rank), 0.49), []
    current, told = given, iter([each for name, each in gate.asked if name == "item_sums"])
    for step in (1, 2, 3):
        asked.append(("fit", current, level.ridge(residual)))
        asked.append(("residual_variance", current, slopes, most))
        votes = values[f"residual variance {step}"]
        residual = residual_variance(votes, residual, most, 90.0, 4.0)
        most = 2 * residual
        sums_asked = next(told)
        if step == 1:
            current = sums_asked[0]
            assert np.array_equal(current[:, : given.shape[1] - 1], given[:, :-1])
            assert np.array_equal(current[:, -1], given[:, -1]) and current.shape == (n, rank + 1)
            if start_of == "random":
                drawn = np.random.default_rng(7).standard_normal((n, 2)) * 0.3 / math.sqrt(2)
                assert current[:, -3:-1] == pytest.approx(drawn)
            else:
                assert (current[:, -3:-1] ** 2).sum(axis=0) == pytest.approx([n * 0.49] * 2)
            asked.append(("fit", current, level.ridge(residual)))
        unit = 1.3 * math.sqrt(residual)
        asked.append(("item_sums", current, slopes, norm or math.inf, 0.2, 1.3, unit))
        along, vectors, variance = spectrum(values[f"gramian {step}"], 2.0, 90.0, level)
        factors = current[:, :-1].copy()
        noisy = values[f"item sums {step}"] - variance * slopes[:, None] * factors
        if step == 1 and start_of == "random":
            guess = factors.copy()
            guess[:, : 2 * features] = 0.0
            noisy += slopes[:, None] * (guess @ (vectors * along) @ vectors.T)
            factors -= guess
        left = np.zeros((n, rank))
        for item in range(n):
            for k in range(rank):
                slope = slopes[item] * along[k]
                noise = (unit * 0.3) ** 2 + residual * slope
                left[item, k] = 1 / (1 / prior[item, k] + slope**2 / noise)
                factors[item] += left[item, k] * slope / noise * (noisy[item] @ vectors[:, k]) * vectors[:, k]
        current = np.column_stack([factors, current[:, -1]])
    assert found == pytest.approx(current) and last == pytest.approx(residual)
    assert known.variance == pytest.approx(left @ vectors.T**2)
    assert known.gramian == pytest.approx(values["gramian 3"] / 90)
    assert known.gramian_variance == pytest.approx(packed_variance(2.0 / 90, rank, norm or 1.0, 1.3))
    methods = [
        (name, *each) for name, each in gate.asked if name in ("fit", "residual_variance", "item_sums")
    ]
    assert [each[0] for each in methods] == [each[0] for each in asked]
    for one, other in zip(methods, asked):
        assert one[1] == pytest.approx(other[1]), one[0]
        for mine, wanted in zip(one[2:], other[2:], strict=True):
            assert mine == (wanted if isinstance(wanted, SweepSettings) else pytest.approx(wanted)), one[0]
    released = [(label, each) for label, each in gate.asked if label[-1] in "123" and "var" not in label]
    assert released == [
        each for k in "123" for each in ((f"gramian {k}", "its gramian"), (f"item sums {k}", "sums of it"))
    ]
