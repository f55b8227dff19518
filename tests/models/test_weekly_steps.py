"""A later week: its server's side alone, and learning over a season."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from hushrec.data import realistic, split_ratings
from hushrec.evaluation import evaluate
from hushrec.models import ItemBias, Popular, PrivateALS, PrivateEigenRec
from hushrec.models.private_eigenrec.week import SeasonState, _carried, _measured
from hushrec.privacy import Budget, Season, SeasonAccountant
from hushrec.privacy.testing import SeededNoise
from hushrec.training.kalman import Tracked, no_evidence
from hushrec.training.run import moved
from tests.opening import opened

ITEMS = 14
DATA = realistic(120, ITEMS, 1000, seed=4)


class Told:
    """A gate that returns the test's values, and users who record the questions."""

    private, domain = True, DATA.domain

    def __init__(self, values):
        self.values, self.asked = values, {}

    def release(self, label, bounded):
        return self.values[label].copy()

    def planned(self, label):
        return label in self.values

    def noise_sd(self, label):
        return 0.4

    def __getattr__(self, name):
        def asked(*arguments):
            self.asked[name] = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
            return (None, None)

        return asked


def test_a_week_of_item_pairs_asks_in_the_units_of_the_first() -> None:
    """New releases are added to earlier ones: of the same items, in the same scales, clipped alike."""
    model = PrivateEigenRec(rank=3, pairs=True, n_users=120)
    accountant = SeasonAccountant(Season(Budget(20.0, 1e-6)), noise=SeededNoise(1))
    last = moved(model.fit(DATA, accountant), np.arange(ITEMS))
    pairs = last.state["pairs"]
    values = {"item matrix": np.full_like(pairs, 2.0)}
    gate = Told(values)
    found = model.week(gate, gate, last)
    scale, first = gate.asked["scale"]
    assert np.array_equal(scale, last.state["item_scale"]) and np.array_equal(first, last.state["item_first"])
    assert np.flatnonzero(scale).tolist() == sorted(last.serve["pair_items"])
    before, own = float(last.state["pairs_precision"]), 1 / 0.16
    known = Tracked(pairs, np.full(len(pairs), 1 / before), no_evidence())
    part = known.part(values["item matrix"], 0.16)
    total = before + part**2 * own
    assert found.state["pairs"] == pytest.approx((before * pairs + part * own * 2.0) / total)
    assert found.state["pairs_precision"] == pytest.approx(total)
    # without noise a week's matrix is all that counts
    gate = Told(values)
    gate.private = False
    found = model.week(gate, gate, replace(last, state=last.state | {"pairs_precision": np.float64(0.0)}))
    assert (found.state["pairs"] == 2.0).all() and found.state["pairs_precision"] == 0.0


@pytest.mark.parametrize("model", [ItemBias(clip=0.5, prior_sd=0.3), Popular()], ids=lambda model: model.name)
def test_a_week_of_one_release_is_what_filters_make_of_it(model) -> None:
    """Two new items begin with usual values; each part is measured with the noise of its unit."""
    accountant = SeasonAccountant(Season(Budget(20.0, 1e-6)), noise=SeededNoise(1))
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
    before, place = Tracked.of(last.state, "item_weights"), names.index("item_weights")
    there = {}
    if model.name == "item-bias":
        counted = last.state["level"][1]
        there = {"center": 130.0 / counted, "sd": noise * units[2][1] / counted}
    release = parts[place], (noise * units[place]) ** 2
    part_there = before.with_new(last.state["item_seen"] > 0).part(*release, **there)
    for name, part, unit in zip(names, parts, units):
        before = Tracked.of(last.state, name)
        before = before.with_new(last.state["item_seen"] > 0) if name != "level" else before
        now = before.measured(part, (noise * unit) ** 2, part_there)
        wanted = now.to_arrays(name)
        for key, array in wanted.items():
            assert found.state[key] == pytest.approx(array), key
        if model.name == "popular":
            assert found.serve["item_bias"] == pytest.approx(now.mean) and found.serve["center"] == 0
    assert found.state["item_seen"].tolist() == [1.0] * ITEMS
    assert found.serve["item_factors"].shape == (ITEMS, 0)


def test_last_weeks_sums_are_in_the_scale_of_this_weeks_rows() -> None:
    """An item's row entries are its scale times the likes, so are its sums; oracle: draws of last week's."""
    rng, learned = np.random.default_rng(2), np.array([True, True, True, True, False])
    before, now = np.array([0.5, 2.0, 1.0, 0.0, 0.7]), np.array([1.5, 1.0, 0.8, 1.2, 0.9])
    sums, first = rng.normal(0, 3, (5, 2)), np.array([1.0, 0, 0, 0, 0])
    zeros, halves = np.zeros((5, 2)), Tracked.first(np.zeros(6), 1.0)
    variance = np.array([0.4, 0.9, 0.2, 0.0, 0.0])
    state = SeasonState(
        np.ones(1), halves, rng.normal(size=(5, 2)), sums, variance, no_evidence(), zeros, halves
    )
    _, found = _carried(state, before, SimpleNamespace(learned=learned, scale=now, first=first))
    draws = rng.normal(sums[:3], np.sqrt(variance[:3, None]), (100_000, 3, 2))
    draws *= (now[:3] / before[:3])[:, None]
    assert found.mean[1:] == pytest.approx(np.r_[draws.mean(axis=0)[1:], np.zeros((1, 2))], abs=0.02)
    assert not found.mean[0].any()  # along the popularity, which is projected out
    assert found.variance[:3] == pytest.approx(draws.var(axis=0), rel=0.03)
    usual = ((now[:3] / before[:3])[:, None] * sums[:3]) ** 2
    assert found.variance[3] == pytest.approx(usual.mean())  # of a new item nothing is known


def test_a_first_measurement_is_in_units_of_the_first_week() -> None:
    """Released values are a part of the users times the statistic, with noise."""
    rng, statistic = np.random.default_rng(3), np.array([4.0, -1.0])
    found = [_measured(None, 0.25 * statistic + rng.normal(0, 0.5, 2), 0.5, 0.25) for _ in range(20_000)]
    assert np.mean([each.mean for each in found], axis=0) == pytest.approx(statistic, abs=0.05)
    assert np.var([each.mean for each in found], axis=0) == pytest.approx(found[0].variance, rel=0.05)


@pytest.mark.parametrize("cls", [PrivateALS, PrivateEigenRec], ids=lambda cls: cls.name)
def test_a_season_learns_from_week_to_week(cls) -> None:
    """Seven weeks with the noise of a slice each improve the first model."""
    ratings, budget = realistic(3000, 150, 110_000, seed=3), Budget(5.0, 1e-6)
    rows, held = split_ratings(ratings, (0.8, 0.2), seed=0)
    metric, sign = ("rmse", -1) if cls is PrivateALS else ("recall", 1)
    gains = []
    for seed in (1, 2, 3):
        accountant = SeasonAccountant(Season(budget, 0.1, 0.95), noise=SeededNoise(seed))
        model = cls.planned(budget, rows.domain, rows.n_users).fit(rows, accountant)
        values = []
        for week in range(8):
            if week:
                noise = SeededNoise(10 * seed + week)
                model = model.continue_training(rows, SeasonAccountant.following(model.privacy, noise=noise))
            if week in (0, 7):
                found = evaluate(model, rows, held, relevant_from=4.0, metrics=[metric], resamples=0)
                values.append(next(iter(found.metrics.values())).value)
        gains.append(sign * (values[-1] - values[0]))
    assert np.mean(gains) > 0.001


def test_how_far_biases_spread_is_learned_from_all_weeks() -> None:
    """Also where the first week's is far too small. Oracle: the spread of item means about log counts."""
    rows = realistic(3000, 200, 120_000, spreads=(0.9, 0.1, 0.5), seed=2)
    matrix = rows.matrix.tocsc()
    counts = np.diff(matrix.indptr)
    means = matrix.sum(axis=0) / counts
    design = np.column_stack([np.ones(200), np.log(counts)])
    rest = means - design @ np.linalg.lstsq(design, means)[0]
    model, season = PrivateALS(n_users=3000), Season(Budget(20.0, 1e-6), 0.1, 0.95)
    trained = model.fit(rows, SeasonAccountant(season, noise=SeededNoise(3)))
    numbers = np.append(trained.state["numbers"][:-1], 0.25 * np.var(rest))
    trained = replace(trained, state=trained.state | {"numbers": numbers})
    for week in range(1, 8):
        following = SeasonAccountant.following(trained.privacy, noise=SeededNoise(3 + week))
        trained = trained.continue_training(rows, following)
    assert float(trained.state["numbers"][-1]) == pytest.approx(np.var(rest), rel=0.05)
