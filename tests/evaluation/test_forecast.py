"""Ranges of a plan: the rule that makes them, in plain Python, and a world that they were not made from."""

import json
import math

import pytest

from hushrec.data import lifelike, strong_generalization
from hushrec.evaluation import evaluate
from hushrec.evaluation.forecast import TABLE, Run, forecast
from hushrec.models import PrivateALS, PrivateEigenRec
from hushrec.privacy import Accountant, Budget

DONORS = "donors_recall", "donors_rmse"
RUNS = [Run(*row) for row in json.loads(TABLE.read_text())["runs"]]


@pytest.mark.parametrize("epsilon, setting, n_users", [(5.0, "sparse", 1200), (2.0, "films", 900)])
def test_a_world_that_was_not_measured_lies_within(epsilon, setting, n_users) -> None:
    parts = strong_generalization(lifelike(setting, n_users=n_users, n_items=600, seed=3), 0.3, seed=0)
    budget, train = Budget(epsilon, 1e-6), parts.train
    of = forecast(budget, train.n_users, 600, train.n_ratings / train.n_users)
    lists = PrivateEigenRec.planned(budget, train.domain, train.n_users, like_threshold=4.0)
    stars = PrivateALS.planned(budget, train.domain, train.n_users)
    for model, name, expected, unit in ((lists, "recall", of.recall, 1), (stars, "rmse", of.rmse, 4)):
        found = model.fit(train, Accountant(budget))
        held = evaluate(found, parts.fold_in, parts.target, metrics=[name], relevant_from=4.0, resamples=2)
        value = next(iter(held.metrics.values())).value / unit
        assert expected.low <= value <= expected.high
        if name == "recall":
            assert of.directions.low <= found.directions <= of.directions.high


@pytest.mark.parametrize("each, spread", [(20, None), (150, 0.3)])
def test_a_range_is_half_as_wide_again_as_the_tables_differ(each, spread) -> None:
    """Each table's mean about the same signal, each run by its distance; out to a hundredth, by hand."""
    users, items, budget = 2000, 1500, Budget(1.0, 1e-6, relation="replace")
    mu, found = budget.mu / 2, forecast(budget, users, items, each, spread=spread)

    def own(r):
        return (
            0.03
            * math.log(r.ratings_per_user)
            / (1 + math.sqrt(r.mu * r.n_users / math.sqrt(r.n_items) / 10))
        )

    def signal(r):
        return (math.log10(r.mu * r.n_users / math.sqrt(r.n_items)),)

    def rows(r):
        return (math.log10(r.mu * r.n_users * r.ratings_per_user),)

    def donated(r):
        return (*rows(r), math.log10(r.n_users * r.ratings_per_user))

    here = Run("", users, items, each, mu, spread or 1.0)
    cases = {
        "rmse": (signal, lambda r: r.rmse / r.spread - own(r) if spread else r.rmse),
        "recall": (signal, lambda r: math.log(max(r.recall, 0.003)) + 0.35 * math.log(r.n_items)),
        "lift": (rows, lambda r: math.log(max(r.recall, 0.003) / max(r.popular, 0.003))),
    }
    cases |= {name: (donated, lambda r, n=name: math.log(getattr(r, n))) for name in DONORS}
    back = dict.fromkeys(DONORS, math.exp) | {
        "rmse": lambda end: spread * (end + own(here)) if spread else end,
        "recall": lambda end: min(1.0, math.exp(end - 0.35 * math.log(items))),
        "lift": math.exp,
    }
    for name, (by, value) in cases.items():
        means = []
        measured = [r for r in RUNS if name not in DONORS or r.donors_rmse]
        for table in {run.table for run in measured}:
            own_runs = [r for r in measured if r.table == table]
            weighed = [(math.exp(-(math.dist(by(r), by(here)) ** 2) / 0.045), value(r)) for r in own_runs]
            means.append(sum(w * v for w, v in weighed) / sum(w for w, _ in weighed))
        middle, half = (max(means) + min(means)) / 2, 0.75 * (max(means) - min(means))
        ends = [back[name](end) for end in (middle - half, middle + half)]
        assert list(getattr(found, name)) == pytest.approx(ends, rel=1e-6), name
    most = max(r.directions / math.sqrt(r.mu * r.n_users * r.ratings_per_user) for r in RUNS)
    assert found.directions.high == round(1.5 * most * math.sqrt(mu * users * each))


def test_what_is_beyond_the_tables_is_said_and_more_rows_find_more() -> None:
    few, many, most = (forecast(Budget(1.0, 1e-6), n, 1000, 50) for n in (100, 30_000, 10**8))
    assert few.directions == (0, round(few.directions.high)) and many.directions.low == 1
    assert few.directions.high < many.directions.high < most.directions.high <= 999
    assert few.inside and many.inside and not most.inside
