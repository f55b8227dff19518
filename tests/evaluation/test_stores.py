"""Metrics of a model do not depend on the place of the ratings."""

import pytest

from hushrec import Accountant, Budget, ItemBias, Store, evaluate, realistic, split_ratings
from hushrec.evaluation.user_metrics import METRICS

ROWS = realistic(200, 40, 3000, seed=0)
TRAIN, TEST = split_ratings(ROWS, (0.7, 0.3), seed=0)


@pytest.mark.parametrize(("left", "right"), [(3, 3), (3, 2), (None, 3), (3, None)])
def test_stores_are_measured_as_ratings_are(tmp_path, left, right) -> None:
    model = ItemBias().fit(TRAIN, Accountant(Budget(5, 1e-6)))
    every = {"metrics": list(METRICS)}
    wanted = evaluate(model, TRAIN, TEST, **every)
    stored = [
        rows if count is None else Store.prepare(rows, tmp_path / name, rows.domain, partitions=count)
        for name, rows, count in (("train", TRAIN, left), ("test", TEST, right))
    ]
    found = evaluate(model, *stored, **every)
    assert (found.n_users, found.n_ratings, found.n_known) == (wanted.n_users, wanted.n_ratings, 0)
    for name, estimate in wanted.metrics.items():
        assert found.metrics[name].value == pytest.approx(estimate.value), name


def test_what_the_history_has_too_is_counted_in_stores(tmp_path) -> None:
    model = ItemBias().fit(TRAIN, Accountant(Budget(5, 1e-6)))
    stored = [
        Store.prepare(rows, tmp_path / name, rows.domain, partitions=3)
        for name, rows in zip("ab", (ROWS, TEST))
    ]
    assert evaluate(model, *stored).n_known == TEST.n_ratings
