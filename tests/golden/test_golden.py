"""Files of every format since version 1 are read and answered as on the day when they were written."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hushrec
from hushrec.cli.servers_init import read_agreement
from hushrec.errors import InputError
from hushrec.privacy import Attendance
from tests.golden.__main__ import counts

FOLDERS = sorted(path for path in Path(__file__).parent.iterdir() if (path / "answers.json").exists())
pytestmark = pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name, indirect=True)


@pytest.fixture
def folder(request, tmp_path):
    return shutil.copytree(request.param, tmp_path / "golden")


def answers(folder: Path, of: str):
    return json.loads((folder / "answers.json").read_text(encoding="utf-8"))[of]


def test_a_model_predicts_and_lists_as_before(folder):
    model, wanted = hushrec.load(folder / "model.hush"), answers(folder, "model")
    history = [tuple(pair) for pair in wanted["history"]]
    assert model.digest == wanted["digest"]
    predicted = model.predict(history, model.domain.items)
    np.testing.assert_allclose(predicted, wanted["predicted"], atol=1e-6)
    assert [each.item for each in model.recommend(history, len(wanted["list"]))] == wanted["list"]
    assert [part.name for part in model.lists.parts] == wanted["parts"]


def test_a_ledger_adds_up_to_the_same_epsilon_and_takes_a_charge(folder):
    ledger, wanted = hushrec.Ledger(folder / "ledger.sqlite", create=False), answers(folder, "ledger")
    assert ledger.datasets() == sorted(wanted["epsilon"])
    for name, epsilon in wanted["epsilon"].items():
        summary = ledger.summary(name, delta=1e-6)
        assert summary.epsilon == pytest.approx(epsilon, rel=1e-6)
        assert summary.mu**2 == pytest.approx(wanted["mu squared"][name])
        head, charges = ledger.chain(name)
        assert head[1] == wanted["last"] and [row[4] for row in charges] == wanted["labels"][name]
    seasons = [
        [each.dataset, each.season.name, each.season.budget.epsilon, each.season.budget.delta]
        + [each.season.first, each.season.decay]
        for each in ledger.seasons("shop")
    ]
    assert seasons == wanted["seasons"]
    survey = hushrec.Accountant(hushrec.Budget(0.5, 1e-6), ledger=ledger, dataset="survey")
    hushrec.ItemBias().fit(hushrec.Store(folder / "store"), survey)
    assert ledger.summary("survey", delta=1e-6).runs == 2


def test_a_store_holds_the_same_ratings(folder):
    store, wanted = hushrec.Store(folder / "store"), answers(folder, "store")
    store.verify()
    assert (store.n_users, store.n_ratings) == (wanted["users"], wanted["ratings"])
    sums = store.ratings().matrix.sum(axis=0)
    assert dict(zip(store.domain.items, np.ravel(sums).tolist(), strict=True)) == wanted["sums"]


def test_a_season_continues_from_model_ledger_attendance_and_store(folder):
    before = answers(folder, "attendance")
    assert set(before.values()) == {0, 1}
    ledger, people = hushrec.Ledger(folder / "ledger.sqlite"), Attendance(folder / "shop.attendance")
    assert counts(people.path) == before
    model = hushrec.load(folder / "model.hush")
    week = hushrec.SeasonAccountant.following(model.privacy, ledger=ledger, attendance=people)
    domain = replace(model.domain, item_features=answers(folder, "model")["item features"])
    later = model.continue_training(hushrec.Store(folder / "store", domain), week)
    assert later.privacy.week.number == 1
    assert counts(people.path) == {user: count + 1 for user, count in before.items()}


def test_an_agreement_is_read_by_its_version_alone(folder, monkeypatch):
    path, wanted = str(folder / "agreement.json"), answers(folder, "agreement")
    monkeypatch.setattr("hushrec.training.run.library_version", lambda: answers(folder, "version"))
    agreed = read_agreement(path)
    assert agreed.fingerprint == wanted["fingerprint"]
    assert (agreed.estimator.name, agreed.seed) == (wanted["model"], wanted["seed"])
    assert (agreed.users_per_node, agreed.budget.epsilon) == (wanted["users_per_node"], wanted["epsilon"])
    promised = float(agreed.promises[1].split("epsilon = ")[1].split()[0])
    assert promised == pytest.approx(wanted["epsilon against all others"], rel=1e-5)
    monkeypatch.setattr("hushrec.training.run.library_version", lambda: "another")
    with pytest.raises(InputError, match="another version"):
        read_agreement(path)
