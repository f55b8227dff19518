"""Metrics against trec_eval and slow Python twins, written from their definitions."""

import json
import math

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings, strategies as st

from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.evaluation import evaluate
from hushrec.evaluation.intervals import Metric, estimates
from hushrec.evaluation.metrics import shown
from hushrec.evaluation.user_metrics import METRICS
from hushrec.models import ALS, Model
from hushrec.privacy import Accountant, Budget

N_ITEMS = 12


def domain(n_items=N_ITEMS):
    return Domain([f"i{j}" for j in range(n_items)], rating_range=(1, 5))


def trained(seed=0, rank=3, estimator=None, n_items=N_ITEMS):
    rng = np.random.default_rng(seed)
    arrays = {
        "center": np.float64(3.2),
        "item_bias": rng.normal(0, 0.5, n_items),
        "item_factors": rng.normal(0, 1, (n_items, rank)),
        "regularization": np.float64(20.0),
        "bias_regularization": np.float64(5.0),
    }
    statement = Accountant(Budget(math.inf, 1e-6)).statement()
    return Model(estimator or ALS(rank=rank, dtype="float64"), domain(n_items), arrays, statement)


def table(cells, n_items=N_ITEMS):
    """Ratings from {(user, item): rating}."""
    keys = list(cells)
    return Ratings.from_any(
        ([u for u, _ in keys], [i for _, i in keys], [cells[key] for key in keys]), domain(n_items)
    )


def random_cells(rng, n_users, n_items=N_ITEMS, density=0.5, first=0):
    return {
        (f"u{u + first}", f"i{j}"): float(rng.integers(1, 6))
        for u in range(n_users)
        for j in range(n_items)
        if rng.random() < density
    }


#: Our names, and those of the reference implementation of these metrics (trec_eval).
KEPT = {"recall": "recall", "precision": "P", "ndcg": "ndcg_cut", "map": "map_cut", "hit-rate": "success"}


def slow_twin(model, history, test, k, relevant_from=None, exclude_seen=True):
    """Lists one user at a time; metrics by trec_eval, and by their definitions where it has none."""
    items = list(model.domain.items)
    squared, absolute, capped, recommended, novelties, before = [], [], [], set(), [], []
    relevant, lists, exposed = {}, {}, dict.fromkeys(items, 0)
    raters = {item: len({u for u, i in history if i == item}) for item in items}
    head, above = set(), 0
    for item in sorted(items, key=lambda item: -raters[item]):  # half of the history's ratings
        if above < len(history) / 2:
            head.add(item)
        above += raters[item]
    slices = {"head": [], "tail": []}
    for user in dict.fromkeys(u for u, _ in test):
        own = {i: r for (u, i), r in history.items() if u == user}
        held = {i: r for (u, i), r in test.items() if u == user}
        raw = np.asarray(model.item_bias)
        scores = dict(zip(items, np.clip(3.2 + raw, 1, 5), strict=True))  # who is not known: released values
        if own:
            scores = dict(zip(items, model.predict(own, items), strict=True))
            state = model.fold_in(Ratings.of_user(own, model.domain))
            raw = raw + model.item_factors @ state.factors[0]
        squared += [(scores[item] - rating) ** 2 for item, rating in held.items()]
        absolute += [abs(scores[item] - rating) for item, rating in held.items()]
        order = sorted(range(len(items)), key=lambda j: (-raw[j], j))
        before.append(tuple(order[:k]))
        seen = own if exclude_seen else ()
        ranked = [items[j] for j in order if items[j] not in seen][:k]
        recommended |= set(ranked)
        liked = {
            i for i, r in held.items() if i not in seen and (relevant_from is None or r >= relevant_from)
        }
        if liked:
            relevant[user] = dict.fromkeys(liked, 1)
            lists[user] = {item: float(len(items) - place) for place, item in enumerate(ranked)}
            capped.append(len(liked & set(ranked)) / min(k, len(liked)))
        for name, some in (("head", liked & head), ("tail", liked - head)):
            slices[name] += [len(some & set(ranked)) / len(some)] if some else []
        for item in ranked:
            exposed[item] += 1
            novelties.append(-math.log2((raters[item] + 1) / (len({u for u, _ in history}) + 1)))
    asked = {f"{name}.{k}" for name in KEPT.values()} | {"recip_rank"}
    judged = pytrec_eval.RelevanceEvaluator(relevant, asked).evaluate(lists) if relevant else {}

    def mean(values):
        return sum(values) / len(values) if values else math.nan

    firsts = [order[0] for order in before]
    apart = sum(abs(one - other) for one in exposed.values() for other in exposed.values())
    whole = 2 * len(items) * sum(exposed.values())
    return {
        f"{ours}@{k}": mean([each[f"{kept}_{k}"] for each in judged.values()]) for ours, kept in KEPT.items()
    } | {
        f"mrr@{k}": mean([each["recip_rank"] for each in judged.values()]),
        "rmse": math.sqrt(mean(squared)),
        "mae": mean(absolute),
        f"capped-recall@{k}": mean(capped),
        f"coverage@{k}": len(recommended) / len(items),
        f"novelty@{k}": mean(novelties),
        f"gini@{k}": apart / whole if whole else math.nan,
        f"head-recall@{k}": mean(slices["head"]),
        f"tail-recall@{k}": mean(slices["tail"]),
        f"different-lists@{k}": len(set(before)),
        "commonest-first": max(map(firsts.count, firsts)) / len(firsts),
    }


@pytest.mark.true("E3")
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    k=st.integers(1, N_ITEMS + 3),
    relevant_from=st.sampled_from([None, 3.0, 5.0]),
    exclude_seen=st.booleans(),
)
def test_agrees_with_the_definitions(seed, k, relevant_from, exclude_seen):
    rng = np.random.default_rng(seed)
    history = random_cells(rng, 6)
    # two unknown users, and cells that are in the history as well
    test = random_cells(rng, 6, density=0.3, first=2) or {("u0", "i0"): 3.0}
    model = trained(seed)
    asked = {"k": k, "relevant_from": relevant_from, "exclude_seen": exclude_seen, "resamples": 20}
    result = evaluate(model, table(history), table(test), **asked, metrics=list(METRICS))
    expected = slow_twin(model, history, test, k, relevant_from, exclude_seen)
    assert expected.keys() == result.metrics.keys()  # a new metric needs its definition in `slow_twin`
    assert {name: metric.value for name, metric in result.metrics.items()} == pytest.approx(
        expected, rel=1e-12, abs=1e-12, nan_ok=True
    )
    ranges = {"rmse": 4, "mae": 4, f"novelty@{k}": math.inf, f"different-lists@{k}": result.n_users}
    for name, metric in result.metrics.items():
        assert math.isnan(metric.value) or 0 <= metric.low <= metric.value <= metric.high
        assert math.isnan(metric.value) or metric.high <= ranges.get(name, 1)
    alone = evaluate(model, table(history), table(test), **asked, metrics=["gini"])
    assert str(alone.metrics) == str({f"gini@{k}": result[f"gini@{k}"]})  # NaN is not equal to itself
    known = set(history) & set(test)
    assert result.n_known == result.to_dict()["n_known"] == len(known)
    said = (
        "In the history, too: {:,} of them" if exclude_seen else "{:,} of them repeat an item of the history"
    )
    assert (said.format(len(known)) in result.text()) == bool(known)


def test_items_with_exactly_half_of_the_history_are_the_head() -> None:
    """The most rated item has 2 of 4 ratings, so the next one is in the tail."""
    model, history = trained(), table({("a", "i0"): 3, ("b", "i0"): 3, ("a", "i1"): 3, ("b", "i2"): 3})
    found = evaluate(
        model, history, table({("c", "i1"): 5}), k=N_ITEMS, metrics=["head-recall", "tail-recall"]
    )
    head, tail = (metric.value for metric in found.metrics.values())
    assert math.isnan(head) and tail == 1


def test_an_interval_is_that_of_the_normal_law() -> None:
    values = np.random.default_rng(0).normal(3, 1, 900)
    metric = Metric("mean", lambda weights: float(np.average(values, weights=weights)), high=9.0)
    found = estimates([metric], lambda weights: weights, len(values), 4000, 0)["mean"]
    half = 1.96 * values.std() / 30
    assert (found.low, found.high) == pytest.approx(
        (values.mean() - half, values.mean() + half), abs=half / 20
    )


def test_nothing_to_measure_is_nan_and_null():
    result = evaluate(trained(), table({("a", "i1"): 3.0}), table({}), resamples=10)
    assert all(math.isnan(result[name].value) for name in ("rmse", "mae", "recall@20", "ndcg@20"))
    one = table({("a", "i1"): 3.0})
    assert math.isnan(evaluate(trained(), one, one, resamples=0)["rmse"].low)
    assert "nan" not in result._repr_html_() and "nan" not in result.text()
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["rmse"] is None and plain["intervals"]["rmse"] == [None, None]


def test_coverage_interval_is_centred_on_the_figure():
    # plain percentiles would be below the figure: a resample holds 63% of the users
    rng = np.random.default_rng(3)
    n_items = 300
    history = random_cells(rng, 25, n_items, density=0.3)
    test = random_cells(rng, 25, n_items, density=0.05)
    result = evaluate(trained(1, n_items=n_items), table(history, n_items), table(test, n_items), k=5)
    metric = result["coverage@5"]
    assert metric.low < metric.value < metric.high <= 1


def test_another_domain_is_refused():
    as_many = Domain([f"j{j}" for j in range(N_ITEMS)], rating_range=(1, 5))
    for domain in (Domain(["i1"], rating_range=(1, 5)), as_many):
        other = Ratings.from_any((["a"], [domain.items[0]], [3.0]), domain)
        with pytest.raises(InputError, match="another catalogue"):
            evaluate(trained(), table({}), other)


def test_lists_of_what_comes_next_are_those_of_recommend() -> None:
    """Hits, and lists before the history is left out, against lists of one user at a time."""
    cells, model = random_cells(np.random.default_rng(5), 30), trained(5)
    (users, items), times = zip(*cells), np.random.default_rng(6).permutation(len(cells))
    columns = {"user": users, "item": items, "rating": list(cells.values()), "time": times}
    history = Ratings.from_any(columns, model.domain, columns={"time": True})
    next_lists, usual, others = [], [], {True: [], False: []}
    for user in history.users:
        own = sorted((row for row in zip(*columns.values()) if row[0] == user), key=lambda row: row[3])
        timed = [row[1:] for row in own]
        next_lists.append([each.item for each in model.recommend(timed, 2, next=True)])
        usual.append([each.item for each in model.recommend(timed, 2)])
        for next, lists in others.items():
            lists.append(
                tuple(each.item for each in model.recommend(timed, 2, next=next, exclude_seen=False))
            )
    assert list(map(set, next_lists)) != list(map(set, usual))
    held = {(user, item): 5.0 for user, listed in zip(history.users, next_lists) for item in listed}
    asked = ["recall", "different-lists", "commonest-first"]
    result = evaluate(model, history, table(held), k=2, metrics=asked, next=True, resamples=0)
    found = [metric.value for metric in result.metrics.values()]
    figures = {}
    for next, lists in others.items():
        firsts = [listed[0] for listed in lists]
        figures[next] = [len(set(lists)), max(map(firsts.count, firsts)) / len(firsts)]
    assert found == pytest.approx([1, *figures[True]]) and figures[True] != figures[False]
    assert shown("different-lists@3", 1234.0) == "1,234"
