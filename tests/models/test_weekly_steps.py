"""A later week's server side alone: Gaussian conditioning on the releases, item by item."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hushrec.data import realistic
from hushrec.kernels.packed import unpacked
from hushrec.models import ItemBias, Popular, PrivateALS, PrivateEigenRec
from hushrec.models.private_als.server import (
    BIAS_SLOPE,
    RESIDUAL_BOUND,
    KnownFactors,
    Level,
    bias_sampling,
    canonical,
    packed_variance,
    residual_variance,
    users_uncertainty,
    weighted_slopes,
)
from hushrec.models.private_eigenrec.denoise import Halves, Sums
from hushrec.models.private_eigenrec.items import ItemStatistics, served
from hushrec.privacy import Budget, Season, SeasonAccountant, positive
from hushrec.privacy.testing import SeededNoise
from hushrec.training.kalman import Tracked, drift, learned, no_evidence
from hushrec.training.posterior import adaptive_weights, item_weights
from hushrec.training.run import moved
from tests.opening import opened

ITEMS, RANK = 14, 2
DATA = realistic(120, ITEMS, 1000, seed=4)
LABEL, HALVES = "item sums", "halves of likes"
SD = {
    "number of users": 7.0,
    "item weights": 0.9,
    "residual variance": 3.0,
    "item biases": 2.0,
    "gramian": 1.5,
    "item sums": 0.4,
    HALVES: 0.8,
    "item matrix": 0.4,
}


class Told:
    """A gate that returns the test's values, and users who record the questions."""

    private, domain = True, DATA.domain

    def __init__(self, values):
        self.values, self.asked = values, {}

    def release(self, label, bounded):
        return self.values[label].copy()

    def noise_sd(self, label):
        return SD[label]

    def __getattr__(self, name):
        def asked(*arguments):
            self.asked[name] = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
            return (None, None)

        return asked


def conditioned(measured, slope, variance, noise):
    """Mean and variance of N(0, variance) given ``slope * it + N(0, noise)``, number by number."""
    found = [1 / (1 / v + s * s / n) for v, s, n in np.broadcast(variance, slope, noise)]
    after = np.reshape(found, np.shape(measured))
    return after * slope / noise * measured, after


@pytest.mark.parametrize("users", [None, 120])
def test_a_week_of_private_als(users: int | None) -> None:
    model = PrivateALS.of(rank=RANK, features=False, iterations=3, bias_rounds=1, n_users=users)
    accountant = SeasonAccountant(Season(Budget(20.0, 1e-6), 4, 0.5), noise=SeededNoise(1))
    first = model.fit(DATA, accountant)
    last, rng = moved(first, np.arange(ITEMS)), np.random.default_rng(2)
    n, n_variance, spread, user_variance, residual, usual = last.state["numbers"]
    for name in ("item_bias_variance", "item_factor_variance"):  # one of which nothing is known
        last.state[name][:1] = 5.0
    values = {
        "number of users": np.array([n + 9]),
        "item weights": last.state["item_weights"] * 1.1 + rng.normal(size=ITEMS),
        "residual variance": np.array([1.3 * residual * n / (4 * residual)]),
        "item biases": rng.normal(size=ITEMS),
        "gramian": n * np.append(rng.uniform(0.5, 1.5, 3) * last.state["gramian"][:-1], 0.4),
        "item sums": rng.normal(size=(ITEMS, RANK)),
    }
    gate = Told(values)
    found = model.week(gate, gate, last)

    counts = Tracked(np.array([n]), np.array([n_variance]), no_evidence())
    counts = counts.measured(values["number of users"], 49.0, grows=True)
    before = Tracked(
        last.state["item_weights"], last.state["item_weights_variance"], last.state["evidence"][0]
    )
    tracked = before.measured(values["item weights"], 0.81, grows=True)
    weights, supported, _ = item_weights(tracked.mean, math.sqrt(tracked.variance.mean()))
    relative = adaptive_weights(weights, model.tuning.weight_exponent)
    slopes = weighted_slopes(weights, relative)
    n_users = float(counts.mean[0])
    level = Level(
        float(last.serve["center"]), n_users, spread, float(last.serve["bias_regularization"]), user_variance
    )
    known = KnownFactors(
        last.state["item_factor_variance"], last.state["gramian"], last.state["gramian_variance"]
    )
    factors, known = canonical(last.serve["item_factors"].astype(np.float64), known, slopes, level, residual)
    items = np.column_stack([factors, last.serve["item_bias"].astype(np.float64)])

    # what users are asked
    center, told = gate.asked["weigh"]
    assert center == level.center and np.array_equal(told, relative)
    told, ridge = gate.asked["fit"]
    assert told == pytest.approx(items) and ridge == level.ridge(residual)
    told, used, most = gate.asked["residual_variance"]
    assert told == pytest.approx(items) and np.array_equal(used, slopes) and most == RESIDUAL_BOUND * residual
    told, clip, unit = gate.asked["item_residuals"]
    assert told == pytest.approx(items) and (clip, unit) == (model.tuning.bias_clip, math.sqrt(residual))
    told, used, *bounds = gate.asked["item_sums"]
    assert told == pytest.approx(items) and np.array_equal(used, slopes)
    clip = model.tuning.factor_clip
    assert bounds == pytest.approx([model.tuning.user_norm, clip, spread, spread * math.sqrt(residual)])

    # biases
    slope, drawn, evidence = BIAS_SLOPE * slopes, residual * 4.0, last.state["evidence"]
    variance = last.state["item_bias_variance"]
    biases = learned(evidence[1], values["item biases"], slope, variance, np.full(ITEMS, drawn), usual)
    variance = np.minimum(variance + drift(biases) * usual, usual)
    noise = drawn + bias_sampling(slopes, n_users, math.sqrt(residual))
    change, variance = conditioned(values["item biases"], slope, variance, noise)
    assert found.serve["item_bias"] == pytest.approx(items[:, -1] + change)
    assert found.state["item_bias_variance"] == pytest.approx(variance)

    # the Gramian, then the factors along its directions
    prior = known.gramian_variance
    noise = packed_variance(1.5 / n_users, RANK, model.tuning.user_norm, spread)
    precision = 1 / prior + 1 / noise
    gram = (known.gramian / prior + values["gramian"] / n_users / noise) / precision
    assert found.state["gramian"] == pytest.approx(gram)
    assert found.state["gramian_variance"] == pytest.approx(1 / precision)
    unsure = users_uncertainty(factors, slopes, gram[-1], level, residual)
    values_of = np.maximum(np.diag(unpacked(gram[:-1]) + unsure), 0.0)
    sums = values["item sums"] - np.array([s * f @ unsure for s, f in zip(slopes, factors)])
    slope, drawn = np.outer(slopes, values_of), spread**2 * residual * 0.16
    size = (factors**2 + known.variance).mean(axis=0)
    tastes = learned(evidence[2], sums, slope, known.variance, np.full(slope.shape, drawn), size)
    variance = np.minimum(known.variance + drift(tastes) * size, size)
    change, variance = conditioned(sums, slope, variance, drawn + residual * slope)
    assert found.serve["item_factors"] == pytest.approx(factors + change, rel=1e-5, abs=1e-6)
    assert found.state["item_factor_variance"] == pytest.approx(variance)

    # what is kept, and what users are served with
    now = residual_variance(values["residual variance"], residual, RESIDUAL_BOUND * residual, n_users, 3.0)
    numbers = [n_users, float(counts.variance[0]), spread, user_variance, now, usual]
    assert found.state["numbers"] == pytest.approx(numbers)
    assert found.state["evidence"] == pytest.approx(np.array([tracked.evidence, biases, tastes]))
    assert found.state["item_weights"] == pytest.approx(tracked.mean)
    assert found.state["item_weights_variance"] == pytest.approx(tracked.variance)
    assert found.state["item_seen"].tolist() == [1.0] * ITEMS
    assert found.serve["supported"].tolist() == supported.tolist() and found.serve["center"] == level.center
    assert found.serve["regularization"] == level.ridge(now).regularization
    assert found.serve["bias_regularization"] == level.bias_regularization and "directions" not in found.serve


@pytest.mark.parametrize("fresh", [False, True], ids=["the same items", "two new items"])
def test_a_week_of_private_eigenrec(fresh: bool) -> None:
    """Sums of the last week are measured again, in units of this week's scales of the items."""
    model = PrivateEigenRec(rank=3, n_users=120)
    accountant = SeasonAccountant(Season(Budget(20.0, 1e-6), 4, 0.5), noise=SeededNoise(1))
    first = model.fit(DATA, accountant)
    last = moved(first, np.r_[-1, -1, np.arange(2, ITEMS)] if fresh else np.arange(ITEMS))
    rng = np.random.default_rng(2)
    probe = last.state["item_probe"]
    values = {
        "number of users": last.state["users"][:1] * 1.2,
        "item weights": last.state["item_weights"] * 1.2 + rng.normal(size=ITEMS) + (4.0 if fresh else 0.0),
    }

    # this week's items
    count = Tracked(last.state["users"][:1], last.state["users"][1:], no_evidence())
    count = count.measured(values["number of users"], 49.0, grows=True)
    weights = Tracked.of(last.state, "item_weights").with_new(last.state["item_seen"] > 0)
    weights = weights.measured(values["item weights"], 0.81, grows=True)
    weights_sd = math.sqrt(weights.variance.mean())
    n_users = max(float(count.mean[0]), 1.0)
    known = ItemStatistics.of(model.tuning, n_users, weights.mean, weights_sd, probe.shape[1])
    places = np.flatnonzero(known.learned)
    rank = probe.shape[1]
    values[LABEL] = rng.normal(size=(len(places), rank))
    values[HALVES] = last.state["halves"] + rng.normal(size=rank * (rank + 1))
    gate = Told(values)
    found = model.week(gate, gate, last)

    # of each what is expected, without the part along the popular direction
    expected, variance, direction = np.zeros((len(places), probe.shape[1])), [], known.first[places]
    old = last.state["item_sums_variance"]
    seen = [bool(last.serve["history_weight"][j] > 0 and old[j] > 0) for j in places]
    for place, j in enumerate(places):
        if seen[place]:
            ratio = known.scale[j] / math.sqrt(last.serve["history_weight"][j])
            expected[place] = last.state["item_sums"][j] * ratio
        variance.append(old[j] * ratio**2 if seen[place] else None)
    usual = float((expected[seen] ** 2).mean())
    variance = np.array([usual if each is None else each for each in variance])

    def less(block):
        return block - np.outer(direction, block.T @ direction) / (direction @ direction)

    asked, told = gate.asked["item_sums"]
    assert np.array_equal(told, known.learned) and not asked[~known.learned].any()
    assert asked[places] == pytest.approx(less(probe[places]), abs=1e-9)
    scale, along = gate.asked["scale"]
    assert np.array_equal(scale, known.scale) and np.array_equal(along, known.first)
    before = Tracked(less(expected), np.tile(variance[:, None], probe.shape[1]), last.state["sums_drifts"])
    now = before.measured(less(values[LABEL]), 0.16, grows=True)
    assert found.state["item_sums"][places] == pytest.approx(now.mean, abs=1e-9)
    assert found.state["item_sums_variance"][places] == pytest.approx(now.variance.mean(axis=1))
    assert found.state["item_probe"][places] == pytest.approx(less(probe[places]), abs=1e-9)
    for name in ("sums", "sums_variance", "probe"):
        assert not found.state[f"item_{name}"][~known.learned].any()
    assert found.state["sums_drifts"] == pytest.approx(now.evidence)
    assert found.state["users"] == pytest.approx([count.mean[0], count.variance[0]])
    assert found.state["item_weights"] == pytest.approx(weights.mean)
    assert found.state["item_weights_variance"] == pytest.approx(weights.variance)
    assert found.state["item_seen"].tolist() == [1.0] * ITEMS
    asked, told, part = gate.asked["halves"]
    assert np.array_equal(asked, last.state["item_basis"]) and (told == known.learned).all() and part == 0
    halves = Tracked.of(last.state, "halves").measured(values[HALVES], 0.64, grows=True)
    assert found.state["halves"] == pytest.approx(halves.mean)
    vectors, strengths = Sums(less(probe[places]), now.mean, 1.0).directions()
    along = last.state["item_basis"][places].T @ vectors
    measured = Halves.of(halves.mean, math.sqrt(halves.variance.mean()))
    taste = measured.taste(vectors, strengths, along, max(float(count.mean[0]), 1.0))
    arrays = served(known, weights.mean, weights_sd, taste, known.learned)
    assert arrays.keys() == found.serve.keys()
    for name, array in arrays.items():
        assert found.serve[name] == pytest.approx(array, abs=1e-7)


def test_a_week_of_item_pairs_asks_in_the_units_of_the_first() -> None:
    """New releases are added to earlier ones: of the same items, in the same scales, clipped alike."""
    model = PrivateEigenRec(rank=3, pairs=True, n_users=120)
    accountant = SeasonAccountant(Season(Budget(20.0, 1e-6), 4, 0.5), noise=SeededNoise(1))
    last = moved(model.fit(DATA, accountant), np.arange(ITEMS))
    pairs = last.state["pairs"]
    values = {"item matrix": np.full_like(pairs, 2.0)}
    gate = Told(values)
    found = model.week(gate, gate, last)
    scale, first = gate.asked["scale"]
    assert np.array_equal(scale, last.state["item_scale"]) and np.array_equal(first, last.state["item_first"])
    learned_items, bound = gate.asked["item_matrix"]
    assert np.flatnonzero(learned_items).tolist() == sorted(last.serve["learned_items"])
    assert bound == positive(1.0)
    before, own = float(last.state["pairs_precision"]), 1 / 0.16
    assert found.state["pairs"] == pytest.approx((before * pairs + own * 2.0) / (before + own))
    assert found.state["pairs_precision"] == pytest.approx(before + own)
    # without noise a week's matrix is all that counts
    gate = Told(values)
    gate.private = False
    found = model.week(gate, gate, replace(last, state=last.state | {"pairs_precision": np.float64(0.0)}))
    assert (found.state["pairs"] == 2.0).all() and found.state["pairs_precision"] == 0.0


@pytest.mark.parametrize("model", [ItemBias(clip=0.5, prior_sd=0.3), Popular()], ids=lambda model: model.name)
def test_a_week_of_one_release_is_what_filters_make_of_it(model) -> None:
    """Two new items begin with usual values; each part is measured with the noise of its unit."""
    accountant = SeasonAccountant(Season(Budget(20.0, 1e-6), 4, 0.5), noise=SeededNoise(1))
    first = model.fit(DATA, accountant)
    position = np.r_[-1, -1, np.arange(2, ITEMS)]
    last, rng = moved(first, position), np.random.default_rng(3)
    assert last.state["item_seen"].tolist() == [0.0] * 2 + [1.0] * (ITEMS - 2)
    half, names = DATA.domain.half_width, ["item_weights"]
    sd = {"item biases": 0.8, "item weights": 0.6}
    parts, units = [rng.uniform(1, 9, ITEMS)], [np.ones(ITEMS)]
    if model.name == "item-bias":
        names = ["item_sums", "item_weights", "level"]
        parts = [rng.normal(size=ITEMS), *parts, np.array([4.0, 130.0])]
        units = [np.full(ITEMS, 0.5 * half), np.full(ITEMS, 1 / 0.7), np.array([half / 0.1, 1 / 0.1])]

    class Gate(Told):
        def release(self, label, bounded):
            assert bounded.entry_scale is not None and len(opened(bounded)) == sum(map(len, parts))
            return np.concatenate(parts)

        def noise_sd(self, label):
            return sd[label]

    found, noise = model.week(model.users(DATA), Gate({}), last), 0.8 if len(parts) > 1 else 0.6
    for name, part, unit in zip(names, parts, units):
        before = Tracked.of(last.state, name)
        before = before.with_new(last.state["item_seen"] > 0) if name != "level" else before
        now = before.measured(part, (noise * unit) ** 2, grows=True)
        wanted = now.to_arrays(name)
        for key, array in wanted.items():
            assert found.state[key] == pytest.approx(array), key
        if model.name == "popular":
            assert found.serve["item_bias"] == pytest.approx(now.mean) and found.serve["center"] == 0
    assert found.state["item_seen"].tolist() == [1.0] * ITEMS
    assert found.serve["item_factors"].shape == (ITEMS, 0)
