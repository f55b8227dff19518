"""Expected losses: the table they come from, sense, and the runs they stand for."""

import json
import math

import numpy as np
import pytest

from hushrec.algorithms import ItemBias, PrivateALS
from hushrec.data import realistic, split_ratings
from hushrec.evaluation.expected_loss import (
    TABLE,
    expected_loss,
    users_needed,
)
from hushrec.privacy import Accountant, Budget


def test_it_foretells_a_run() -> None:
    """A shape and an epsilon that are not in the table, in units of the rating range."""
    budget, ratings = Budget(2.0, 1e-6), realistic(6000, 500, 300_000, seed=77)
    train, test = split_ratings(ratings, (0.9, 0.1), seed=0)
    loss = expected_loss(budget, 6000, 500, 50)
    for model, expected in (
        (PrivateALS.planned(budget, train.domain, 6000), loss.private_als),
        (ItemBias(), loss.item_bias),
    ):
        error = model.fit(train, Accountant(budget)).predict_pairs(train, test) - test.matrix.data
        assert math.sqrt(np.mean(error**2)) / 4 == pytest.approx(expected.value, abs=0.006)
        assert expected.low < expected.value < expected.high


def test_users_needed_are_the_least_that_keep_so_much() -> None:
    """To two digits, of those that are tried; by trying all."""
    for epsilon, items in ((1.0, 1000), (2.0, 3000), (0.5, 300)):
        budget = Budget(epsilon, 1e-6)
        enough = (n for n in np.logspace(3, 6, 61) if expected_loss(budget, int(n), items).kept.value >= 0.5)
        least = next(enough)
        found = users_needed(budget, items)
        assert found == int(float(f"{least:.1e}"))
    far = Budget(0.05, 1e-6)
    assert expected_loss(far, 10**6, 10_000).kept.value < 0.9 < expected_loss(far, 10**7, 10_000).kept.value
    assert users_needed(far, 10_000, kept=0.9) is None, "a million is the most that was simulated"
    assert users_needed(Budget(20.0, 1e-6), 100) == 1000


def fitted(at, runs, values):
    """A plane through the runs near a point, by least squares: a run counts by its distance, in widths of a
    quarter, 0.35 and half a power of ten from the nearest; slopes are drawn to 0. And what it leaves."""
    away = [[(a - b) / width for a, b, width in zip(run, at, (0.25, 0.35, 0.5))] for run in runs]
    nearest = min(sum(x * x for x in each) for each in away)
    weights = [math.exp((nearest - sum(x * x for x in each)) / 2) for each in away]
    rows = [[math.sqrt(w), *(math.sqrt(w) * x for x in each)] for w, each in zip(weights, away)]
    target = [math.sqrt(w) * value for w, value in zip(weights, values)]
    ridge = math.sqrt(0.01 * sum(weights))
    stacked = np.vstack([rows, np.diag([0.0, ridge, ridge, ridge])])
    plane = np.linalg.lstsq(stacked, np.append(target, [0.0] * 4), rcond=None)[0]
    left = sum(w * (v - plane[0] - plane[1:] @ x) ** 2 for w, v, x in zip(weights, values, away))
    return plane[0], math.sqrt(left / sum(weights))


@pytest.mark.parametrize(
    "epsilon, users, items, each",
    [(1.0, 6000, 500, 50), (0.3, 40_000, 20_000, 12), (20.0, 900, 5, 400), (0.01, 10**7, 90, 3), (math.inf,
     2000, 3000, 70)],
)  # fmt: skip
def test_what_is_expected_is_interpolated_from_the_runs(epsilon, users, items, each) -> None:
    """A slow twin, taste by taste; beyond the runs at their border, and what one cannot know in the span."""
    table, budget = json.loads(TABLE.read_text()), Budget(epsilon, 1e-6)
    found, spans = expected_loss(budget, users, items, each), []
    for taste in ("films", "faint", "strong"):
        runs = [run[1:] for run in table["runs"] if run[0] == taste]
        sizes = [[math.log10(u), math.log10(e), math.log10(i)] for u, i, e, *_ in runs]
        ends = [(min(column), max(column)) for column in zip(*sizes)]
        at = [min(max(math.log10(x), low), high) for x, (low, high) in zip((users, each, items), ends)]
        free, free_sd = fitted(at, sizes, [1e-4 * run[3] for run in runs])
        mean, mean_sd = fitted(at, sizes, [1e-4 * run[4] for run in runs])
        places, ours, biases = [], [], []
        for (u, e, i), run in zip(sizes, runs):
            for mu, private, bias in zip(table["mu"], run[5], run[6]):
                places.append([math.log10(mu) + u - i, e, i])
                ours.append(1e-4 * (private - run[3]))
                biases.append(1e-4 * (bias - run[3]))
        signal = min(budget.mu, 1e300) * users / items
        signals = [place[0] for place in places]
        near = [min(max(math.log10(signal), min(signals)), max(signals)), *at[1:]]
        cost, cost_sd = fitted(near, places, ours)
        cost, cost_sd = (0.0, 0.0) if math.isinf(epsilon) else (max(cost, 0.0), cost_sd)
        bias, bias_sd = fitted(near, places, biases)
        gain = max(mean - free, 1e-4)
        spans.append({
            "non_private": (free, free_sd), "private_als": (free + cost, math.hypot(free_sd, cost_sd)),
            "item_bias": (free + bias, math.hypot(free_sd, bias_sd)), "user_mean": (mean, mean_sd),
            "cost": (cost, cost_sd), "kept": (1 - cost / gain, cost_sd / gain),
        })  # fmt: skip
    for name in spans[0]:
        low, high = (
            f(v + s * e for v, e in (each[name] for each in spans)) for f, s in ((min, -1), (max, 1))
        )
        value, figure = spans[0][name][0], getattr(found, name)
        if name == "kept":
            value, low, high = (min(max(x, 0.0), 1.0) for x in (value, low, high))
        else:  # ratings of an unknown spread: 0.15 to 0.42 of the range, where those runs have 0.283, and 9%
            low, high = low * 0.15 * 0.91 / 0.283, high * 0.42 * 1.09 / 0.283
        low = max(low, 0.0) if name == "cost" else low
        assert (figure.value, figure.low, figure.high) == pytest.approx((value, low, high), rel=1e-6), name
