"""A later week's public side by itself: given what is released, item by item by Gaussian conditioning."""

import math

import numpy as np
import pytest

from hushrec.algorithms import PrivateALS
from hushrec.algorithms.als_rounds import (
    FACTOR_SAMPLING,
    KnownFactors,
    Level,
    bias_sampling,
    canonical,
    packed_variance,
    residual_variance,
    users_uncertainty,
    weighted_slopes,
)
from hushrec.continuing import _moved
from hushrec.data import realistic
from hushrec.kalman import Tracked, drift, learned, no_evidence
from hushrec.kernels.packed import unpacked
from hushrec.posterior import adaptive_weights, item_weights
from hushrec.privacy import Budget, Season, SeasonAccountant
from hushrec.privacy.testing import SeededNoise

ITEMS, RANK = 14, 2
DATA = realistic(120, ITEMS, 1000, seed=4)
SD = {
    "number of users": 7.0,
    "item weights": 0.9,
    "residual variance": 3.0,
    "item biases": 2.0,
    "gramian": 1.5,
    "item sums": 0.4,
}


class Told:
    """A gate that says what the test says, and the users behind it, who keep what they are asked."""

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
    model = PrivateALS(
        rank=RANK, features=False, iterations=3, bias_rounds=1, n_users=users, factor_clip_decay=0.9
    )
    accountant = SeasonAccountant(Season(Budget(20.0, 1e-6), 4, 0.5), noise=SeededNoise(1))
    first = model.fit(DATA, accountant)
    last, rng = _moved(first, DATA.domain, False), np.random.default_rng(2)
    n, n_variance, spread, user_variance, residual, usual = last["state/numbers"]
    values = {
        "number of users": np.array([n + 9]),
        "item weights": last["state/item_weights"] * 1.1 + rng.normal(size=ITEMS),
        "residual variance": np.array([1.3 * residual * n / (4 * residual)]),
        "item biases": rng.normal(size=ITEMS),
        "gramian": n * np.append(rng.uniform(0.5, 1.5, 3) * last["state/gramian"][:-1], 0.4),
        "item sums": rng.normal(size=(ITEMS, RANK)),
    }
    gate = Told(values)
    found = model.go_on(gate, gate, last)

    counts = Tracked(np.array([n]), np.array([n_variance]), no_evidence())
    counts = counts.measured(values["number of users"], 49.0, grows=True)
    before = Tracked(
        last["state/item_weights"], last["state/item_weights_variance"], last["state/evidence"][0]
    )
    tracked = before.measured(values["item weights"], 0.81, grows=True)
    weights, supported = item_weights(tracked.mean, math.sqrt(tracked.variance.mean()))
    relative = adaptive_weights(weights, model.weight_exponent)
    slopes = weighted_slopes(weights, relative)
    n_users = float(counts.mean[0])
    level = Level(float(last["center"]), n_users, spread, float(last["bias_regularization"]), user_variance)
    known = KnownFactors(
        last["state/item_factor_variance"], last["state/gramian"], last["state/gramian_variance"]
    )
    factors, known = canonical(last["item_factors"].astype(np.float64), known, slopes, level, residual)
    items = np.column_stack([factors, last["item_bias"].astype(np.float64)])

    # what users are asked
    center, told = gate.asked["weigh"]
    assert center == level.center and np.array_equal(told, relative)
    told, ridge = gate.asked["fit"]
    assert told == pytest.approx(items) and ridge == level.ridge(residual)
    told, used, most = gate.asked["residual_variance"]
    assert told == pytest.approx(items) and np.array_equal(used, slopes) and most == 4 * residual
    told, clip, unit = gate.asked["item_residuals"]
    assert told == pytest.approx(items) and (clip, unit) == (0.7, math.sqrt(residual))
    told, used, *bounds = gate.asked["item_sums"]
    assert told == pytest.approx(items) and np.array_equal(used, slopes)
    clip = 0.85 * model.factor_clip * 0.9**2
    assert bounds == pytest.approx([model.user_norm, clip, spread, spread * math.sqrt(residual)])

    # biases
    slope, drawn, evidence = 0.55 * slopes, residual * 4.0, last["state/evidence"]
    variance = last["state/item_bias_variance"]
    biases = learned(evidence[1], values["item biases"], slope, variance, np.full(ITEMS, drawn), usual)
    variance = np.minimum(variance + drift(biases) * usual, usual)
    noise = drawn + bias_sampling(slopes, n_users, math.sqrt(residual))
    change, variance = conditioned(values["item biases"], slope, variance, noise)
    assert found["item_bias"] == pytest.approx(items[:, -1] + change)
    assert found["state/item_bias_variance"] == pytest.approx(variance)

    # the Gramian, then the factors along its directions
    prior = known.gramian_variance + (0.02 * np.abs(known.gramian).mean()) ** 2
    noise = packed_variance(1.5 / n_users, RANK, model.user_norm, spread)
    precision = 1 / prior + 1 / noise
    gram = (known.gramian / prior + values["gramian"] / n_users / noise) / precision
    assert found["state/gramian"] == pytest.approx(gram)
    assert found["state/gramian_variance"] == pytest.approx(1 / precision)
    unsure = users_uncertainty(factors, slopes, gram[-1], level, residual)
    values_of = np.maximum(np.diag(unpacked(gram[:-1]) + unsure), 1e-2 * user_variance)
    sums = values["item sums"] - np.array([s * f @ unsure for s, f in zip(slopes, factors)])
    slope, drawn = np.outer(slopes, values_of), spread**2 * residual * 0.16
    size = (factors**2 + known.variance).mean(axis=0) + 1e-9 * model.factor_prior**2
    tastes = learned(evidence[2], sums, slope, known.variance, np.full(slope.shape, drawn), size)
    variance = np.clip(known.variance + drift(tastes) * size, 1e-9 * size, size)
    change, variance = conditioned(sums, slope, variance, drawn + FACTOR_SAMPLING * residual * slope)
    assert found["item_factors"] == pytest.approx(factors + change, rel=1e-5, abs=1e-6)
    assert found["state/item_factor_variance"] == pytest.approx(variance)

    # what is kept, and what users are served with
    now = residual_variance(values["residual variance"], residual, 4 * residual, n_users, 3.0)
    numbers = [n_users, float(counts.variance[0]), spread, user_variance, now, usual]
    assert found["state/numbers"] == pytest.approx(numbers)
    assert found["state/evidence"] == pytest.approx(np.array([tracked.evidence, biases, tastes]))
    assert found["state/item_weights"] == pytest.approx(tracked.mean)
    assert found["state/item_weights_variance"] == pytest.approx(tracked.variance)
    assert found["state/item_seen"].tolist() == [1.0] * ITEMS
    assert found["supported"].tolist() == supported.tolist() and found["center"] == level.center
    assert found["regularization"] == level.ridge(now).regularization
    assert found["bias_regularization"] == level.bias_regularization and "directions" not in found
