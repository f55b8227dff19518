"""Choosing and training a model by name."""

import importlib
import math

import numpy as np
import pytest

from hushrec.algorithms import ESTIMATORS, ItemBias
from hushrec.data import Domain, Ratings, realistic
from hushrec.errors import BudgetError, HushrecError, InputError
from hushrec.evaluation.tuning import tune
from hushrec.papers.frank_wolfe.eigensolvers import private_pca
from hushrec.papers.one_bit import randomize_labels
from hushrec.privacy import Accountant, Bounded, Budget, Ledger, SystemNoise, counted
from hushrec.privacy.testing import SeededNoise
from hushrec.training import check_run, choose, release_user_count, train
from tests.cli.test_store import change_one_rating

BUDGET = Budget(2.0, 1e-6)

#: Models that run under an infinite budget only.
NOT_PRIVATE = ("als", "ease", "frank-wolfe", "projected-gradient")


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("magic", {}, "not known"),
        ("item-bias", {"depth": 1}, "no setting"),
        ("item-bias", {"clip": -1}, "clip"),
    ],
)
def test_wrong_names_and_values(name, settings, says):
    with pytest.raises(InputError, match=says):
        check_run(name, BUDGET, Domain(["a"], rating_range=(1, 5)), None, settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"start": "spectral", "rank": 4},
        {"start": "random"},
        {"rank": 4},
        {"iterations": 3},
        {"weight_exponent": 0.0},
    ],
)
def test_what_can_be_tried_with_no_number_of_users_can_be_planned_with_each(settings):
    """Killed: a start without a part of the budget where users are not many, found after 1% was charged."""
    budget, domain = Budget(20.0, 1e-6, relation="replace"), Domain(range(9), rating_range=(1, 5))
    check_run("private-als", budget, domain, None, settings)
    for n_users in np.unique(np.geomspace(1, 1e6, 100).astype(int)):
        choose("private-als", budget, domain, n_users=int(n_users), settings=settings).plan(budget, domain)


def test_what_many_users_could_not_be_planned_with_is_refused_before_they_are_counted():
    """One user has no factors to start, many have: their number is not released first."""
    accountant = Accountant(Budget(20.0, 1e-6))
    with pytest.raises(InputError, match="'start' gets no part of the budget"):
        settings = {"start": "spectral", "rank": 4, "start_share": 0.0}
        train("private-als", realistic(300, 9, 1500, seed=1), accountant, settings=settings)
    assert accountant.releases == ()


@pytest.mark.parametrize(
    "name", [n for n, cls in ESTIMATORS.items() if n not in NOT_PRIVATE and "user" in cls.units]
)
def test_a_run_spends_its_budget_and_no_more(name):
    ratings = realistic(150, 30, 1500, seed=0)
    accountant = Accountant(BUDGET)
    train(name, ratings, accountant)
    assert 0.99 * BUDGET.mu <= accountant.spent_mu <= BUDGET.mu * (1 + 1e-9)
    labels = [release.label for release in accountant.releases]
    assert len(set(labels)) == len(labels)


def test_a_declared_number_of_users_is_not_released():
    ratings = realistic(150, 30, 1500, seed=0)
    declared, released = Accountant(BUDGET), Accountant(BUDGET)
    rounds = {"rank": 4, "iterations": 2}  # the plan's depend on the number, which noise moves
    train("private-als", ratings, declared, n_users=150, settings=rounds)
    train("private-als", ratings, released, settings=rounds)
    assert len(released.releases) == len(declared.releases) + 1


def test_als_is_trained_under_an_infinite_budget_only():
    ratings = realistic(60, 20, 500, seed=0)
    with pytest.raises(InputError, match="no privacy"):
        train("als", ratings, Accountant(BUDGET), settings={"rank": 2})
    model = train("als", ratings, Accountant(Budget(math.inf, 1e-6)), settings={"rank": 2, "iterations": 2})
    assert not model.privacy.private


def test_an_accountant_that_has_spent_a_part_trains_on_the_rest():
    """The check before the number of users is released is of what is left, not of the whole budget."""
    ratings = realistic(200, 40, 2000, seed=0)
    budget = Budget(4.0, 1e-6)
    accountant = Accountant(budget, noise=SeededNoise(0))
    ItemBias().fit(ratings, accountant, share=0.5)
    model = train("private-als", ratings, accountant)
    assert "number of users" in [release.label for release in accountant.releases]
    assert model.privacy.spent_mu == pytest.approx(budget.mu)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("call", ["train", "fit", "planned", "components", "labels", "tune"])
def test_an_accountant_that_is_used_up_says_so_before_anything_is_done(call, parts, monkeypatch):
    """Killed: a training on what rounding leaves (noise sd 2.6e7), "fraction must be greater than 0"."""
    ratings, unit = realistic(150, 30, 1500, seed=0), "rating" if call == "labels" else "user"
    budget = Budget(2.0, 1e-6, unit, "replace" if call == "labels" else "add-remove")
    accountant = Accountant(budget)
    for part in range(parts):
        spent = Bounded(0.0, counted(1.0), unit=budget.unit)
        accountant.release(spent, budget.share(1 / parts), f"part {part}")
    calls = {
        "train": lambda: train("item-bias", ratings, accountant),
        "planned": lambda: train("private-als", ratings, accountant),
        "fit": lambda: ItemBias().fit(ratings, accountant),
        "components": lambda: private_pca(np.eye(3), accountant, row_clip=1.0),
        "labels": lambda: randomize_labels(np.ones(3), accountant),
        "tune": lambda: tune(ratings, "item-bias", [{}], accountant),
    }
    monkeypatch.setattr(SystemNoise, "_stream", lambda _: pytest.fail("noise was drawn"))
    with pytest.raises(BudgetError, match="This accountant is used up"):
        calls[call]()
    assert len(accountant.releases) == parts


@pytest.mark.parametrize("likes_from", [None, 9.0])
def test_what_counts_as_a_like_is_declared_by_the_range(likes_from):
    """Three quarters up the range, where nothing else is said; never read from the ratings."""
    domain = Domain(range(20), (0, 10))
    settings = {} if likes_from is None else {"like_from": likes_from}
    for name in ("both", "private-eigenrec", "ease"):
        model = choose(name, Budget(5, 1e-6), domain, n_users=1000, settings=settings)
        assert model.like_from == (likes_from or 7.5)
    likes = choose("private-eigenrec", Budget(5, 1e-6), Domain(range(20), likes=True), n_users=1000)
    assert likes.like_from is None


@pytest.mark.parametrize("found", [True, False])
@pytest.mark.parametrize("stops", [True, False])
def test_a_run_that_found_nobody_stops_only_where_it_is_told_to(found, stops, monkeypatch):
    """And then nothing but the number of users is charged, and nothing is kept."""
    runs, asked, kept = importlib.import_module("hushrec.training"), [], []
    monkeypatch.setattr(runs, "told_from_nobody", lambda *given: asked.append(given) or found)
    accountant = Accountant(Budget(5, 1e-6))
    rows = realistic(60, 20, 600, seed=0)
    given = {"settings": {"rank": 2, "iterations": 1}, "stop_at_nobody": stops, "keep": kept.append}
    if found or not stops:
        model = runs.train("private-als", rows, accountant, **given)
        assert kept == [model] and len(accountant.releases) > 1
        assert accountant.budget.mu * (1 - 1e-9) < accountant.spent_mu <= accountant.budget.mu * (1 + 1e-12)
    else:
        with pytest.raises(HushrecError, match="cannot be told from 0") as refused:
            runs.train("private-als", rows, accountant, **given)
        assert f"{asked[0][0]:,}, cannot" in str(refused.value)
        assert kept == [] and [release.label for release in accountant.releases] == ["number of users"]
    ((number, noise_sd),) = asked
    assert isinstance(number, int) and noise_sd == accountant.releases[0].noise_sd > 0


@pytest.mark.parametrize("name", ["private-als", "private-projected-gradient"])
def test_a_changed_store_or_an_idle_engine_is_refused_before_the_number_of_users_is_asked(name, tmp_path):
    rows = realistic(60, 20, 600, seed=0)
    store = Ratings.prepare(rows, tmp_path / "s", rows.domain, partitions=2)
    change_one_rating(str(store.partitions()[1].path))
    for source, engine, words in ((rows, object(), "An engine works"), (store, None, "part-00001.arrow")):
        accountant = Accountant(Budget(5, 1e-6))
        with pytest.raises(InputError, match=words):
            train(name, source, accountant, engine=engine)
        assert accountant.releases == ()


def test_a_number_of_four_standard_deviations_can_be_told_from_0():
    """Noise alone passes them about once in 30,000 times."""
    runs = importlib.import_module("hushrec.training")
    for noise_sd in (0.5, 10.0, 25.0):
        most = int(4 * noise_sd)
        assert [runs.told_from_nobody(n, noise_sd) for n in (-most, 0, most, most + 1)] == [False] * 3 + [
            True
        ]


def test_where_the_number_of_users_is_declared_nothing_stops_a_training():
    rows, kept = realistic(60, 20, 600, seed=0), []
    settings = {"rank": 2, "iterations": 1}
    given = {"n_users": 60, "settings": settings, "stop_at_nobody": True, "keep": kept.append}
    assert kept == [] and train("private-als", rows, Accountant(BUDGET), **given) is kept[0]


def test_a_training_that_does_not_fit_is_refused_before_users_are_counted(tmp_path):
    """Their number alone, for 1% of the budget, would fit."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("default", Budget(1.0, 1e-6))
    with pytest.raises(BudgetError):
        train("private-als", realistic(60, 20, 600, seed=0), Accountant(BUDGET, ledger=ledger))
    assert ledger.summary("default").charges == 0
    release_user_count(realistic(60, 20, 600, seed=0), Accountant(BUDGET, ledger=ledger))
    assert ledger.summary("default").charges == 1
