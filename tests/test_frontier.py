"""The comparison's own machinery: intervals, labels, tables in a page, and results by which a run goes on."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.frontier import cells
from benchmarks.frontier.cells import Cell, Results
from benchmarks.frontier.data import by_ratings
from benchmarks.frontier.methods import UserMean
from hushrec.algorithms import ItemBias
from hushrec.data import realistic
from hushrec.privacy import Accountant, Budget


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
