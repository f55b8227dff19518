"""A page names figures that were made with earlier settings."""

from __future__ import annotations

import json

from benchmarks import stored
from benchmarks.harness import Rows, settings
from hushrec.data import Domain
from hushrec.models import PrivateALS
from hushrec.privacy import Budget


def test_the_frontier_says_which_rows_have_earlier_settings():
    page = stored.PAGE.read_text(encoding="utf-8")
    assert stored.sentence() in page, "write it: python -m benchmarks.stored"


def test_pages_name_the_commit_of_figures_without_settings():
    assert stored.unnamed() == []


def test_a_changed_setting_makes_stored_rows_earlier_ones(monkeypatch):
    before = stored.older()
    monkeypatch.setattr(stored, "settings", lambda estimator: settings(estimator) + " changed")
    after = stored.older()
    assert all(set(models) <= set(after[data]) for data, models in before.items())
    assert sum(map(len, after.values())) > sum(map(len, before.values()))


def test_a_row_of_other_settings_is_not_the_row_of_a_cell(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.harness.STORED", tmp_path)
    domain = Domain(range(9), rating_range=(1, 5))
    one, other = (PrivateALS.planned(Budget(epsilon, 1e-5), domain, 90) for epsilon in (1.0, 8.0))
    cell = {"data": "coat", "draw": 0, "settings": settings(one)}
    Rows("rows.jsonl").add(cell | {"rmse": 1.0})
    assert json.loads(cell["settings"])["algorithm"] == "private-als"
    assert Rows("rows.jsonl").find(cell) is not None
    assert Rows("rows.jsonl").find(cell | {"settings": settings(other)}) is None
