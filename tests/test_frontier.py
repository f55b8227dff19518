"""The comparison's own machinery: intervals, labels, tables in a page, and results by which a run goes on."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

from benchmarks.frontier import cells, tables
from benchmarks.frontier.cells import Cell, Results, interval
from benchmarks.frontier.data import by_ratings
from benchmarks.frontier.methods import UserMean
from hushrec.algorithms import ItemBias
from hushrec.data import realistic
from hushrec.privacy import Accountant, Budget


@pytest.mark.parametrize("count", [3, 5, 10])
def test_intervals_are_students(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    mean, half = interval(list(values))
    low, high = stats.t.interval(0.95, count - 1, loc=values.mean(), scale=stats.sem(values))
    assert (mean - half, mean + half) == pytest.approx((low, high), abs=1e-3)
    assert math.isnan(interval([1.0])[1]) and math.isnan(interval([1.0, 2.0])[1])


def test_labels_move_as_little_as_they_must() -> None:
    places, gap = [0.1, 0.12, 0.13, 0.5, 0.52, 0.9], 0.05
    found = np.array(tables.spread(places, gap))
    apart = [{"type": "ineq", "fun": lambda x, i=i: x[i + 1] - x[i] - gap} for i in range(5)]
    best = optimize.minimize(lambda x: ((x - places) ** 2).sum(), places, constraints=apart).x
    np.testing.assert_allclose(found, best, atol=1e-4)


def test_a_part_of_a_page_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n<!-- one: written by the command -->\nold\n<!-- end of one -->\n\nAfter.\n")
    tables.write_part(page, "one", "new")
    tables.write_part(page, "two", "more")
    text = page.read_text()
    assert "old" not in text
    assert text.index("# Title") < text.index("new") < text.index("After.") < text.index("more")


def test_a_part_of_the_data_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    data = tmp_path / "data.json"
    for name, text in (("one", "old"), ("two", "words"), ("one", "| a | b |\n|---|---|\n| 1 | 2 |\n\nNote.")):
        tables.keep(data, name, text)
    assert json.loads(data.read_text()) == {"one": [["a", "b"], ["1", "2"], "Note."], "two": ["words"]}


def test_only_runs_without_a_result_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = by_ratings(realistic(60, 20, 600, seed=0))
    monkeypatch.setattr(cells, "split", lambda name: parts)
    wanted = [Cell("frontier", "generated", "item-bias", 5.0, draw, ItemBias()) for draw in range(2)]
    cells.run(wanted[:1], Results(tmp_path / "results.parquet"), jobs=1)
    made: list[Cell] = []
    result = cells.result
    monkeypatch.setattr(cells, "result", lambda cell: made.append(cell) or result(cell))
    again = Results(tmp_path / "results.parquet")
    cells.run(wanted, again, jobs=1)
    assert made == wanted[1:]
    other = Cell("frontier", "generated", "item-bias", 5.0, 0, ItemBias(clip=0.5))
    assert again.of([*wanted, other]) == again.of(wanted)  # other settings are another run
    assert len(again.of(wanted)) == 2


def test_commands_that_write_at_once_keep_each_others_rows(tmp_path: Path) -> None:
    first, second = Results(tmp_path / "results.parquet"), Results(tmp_path / "results.parquet")
    row = {"part": "frontier", "data": "generated", "epsilon": 1.0, "draw": 0, "settings": "", "patch": ""}
    for results, method in ((first, "one"), (second, "two"), (first, "three")):
        results.add(row | {"method": method})
        results.write()
    assert {row["method"] for row in Results(first.path).rows.values()} == {"one", "two", "three"}


def test_the_user_mean_releases_nothing() -> None:
    parts = by_ratings(realistic(60, 20, 600, seed=1))
    accountant = Accountant(Budget(1.0, 1e-6))
    model = UserMean().fit(parts.train, accountant)
    assert accountant.releases == ()
    target = parts.targets["rmse"]
    predicted = model.predict_pairs(parts.history, target)
    means = {user: row.data.mean() for user, row in zip(parts.history.users, parts.history.matrix) if row.nnz}
    owners = np.repeat(target.users, np.diff(target.matrix.indptr))
    expected = [means.get(user, parts.train.domain.midpoint) for user in owners]
    np.testing.assert_allclose(predicted, expected, atol=1e-6)
