"""Choosing and training a model by name."""

import numpy as np
import pytest

from hushrec.data import Domain, Store, realistic
from hushrec.errors import BudgetError, InputError
from hushrec.evaluation.tuning import tune
from hushrec.models import ESTIMATORS, ItemBias
from hushrec.papers.frank_wolfe.eigensolvers import private_pca
from hushrec.papers.one_bit import randomize_labels
from hushrec.privacy import Accountant, Bounded, Budget, SystemNoise, counted
from hushrec.privacy.testing import SeededNoise
from hushrec.training.named import check_run, choose, train
from tests.cli.test_store import change_one_rating

BUDGET = Budget(2.0, 1e-6)

#: Models that run under an infinite budget only.
NOT_PRIVATE = ("als", "ease", "frank-wolfe", "projected-gradient")


@pytest.mark.parametrize("settings", [{"rank": 4}, {"iterations": 3}, {"weight_exponent": 0.0}])
def test_what_can_be_tried_with_no_number_of_users_can_be_planned_with_each(settings):
    """Killed: a start without a part of the budget where users are not many, found after 1% was charged."""
    budget, domain = Budget(20.0, 1e-6, relation="replace"), Domain(range(9), rating_range=(1, 5))
    check_run("private-als", budget, domain, None, settings)
    for n_users in np.unique(np.geomspace(1, 1e6, 100).astype(int)):
        choose("private-als", budget, domain, n_users=int(n_users), settings=settings).plan(budget, domain)


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


def test_an_accountant_that_has_spent_a_part_trains_on_the_rest():
    """The check before the release of the user count uses the remaining budget, not the whole."""
    ratings = realistic(200, 40, 2000, seed=0)
    budget = Budget(4.0, 1e-6)
    accountant = Accountant(budget, noise=SeededNoise(0))
    ItemBias().fit(ratings, accountant, budget_fraction=0.5)
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
    for name in ("add_gaussian", "add_laplace", "flip"):
        monkeypatch.setattr(SystemNoise, name, lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises(BudgetError, match="This accountant is used up"):
        calls[call]()
    assert len(accountant.releases) == parts


@pytest.mark.parametrize("likes_from", [None, 9.0])
def test_what_counts_as_a_like_is_declared_by_the_range(likes_from):
    """Three quarters of the range by default; never read from the ratings."""
    domain = Domain(range(20), (0, 10))
    settings = {} if likes_from is None else {"like_threshold": likes_from}
    for name in ("both", "private-eigenrec", "ease"):
        model = choose(name, Budget(5, 1e-6), domain, n_users=1000, settings=settings)
        assert model.like_threshold == (likes_from or 7.5)
    likes = choose("private-eigenrec", Budget(5, 1e-6), Domain(range(20), likes=True), n_users=1000)
    assert likes.like_threshold is None


@pytest.mark.parametrize("name", ["private-als", "private-projected-gradient"])
def test_a_changed_store_or_an_idle_engine_is_refused_before_the_number_of_users_is_asked(name, tmp_path):
    rows = realistic(60, 20, 600, seed=0)
    store = Store.prepare(rows, tmp_path / "s", rows.domain, partitions=2)
    change_one_rating(str(store.partitions()[1].path))
    for source, engine, words in ((rows, object(), "An engine works"), (store, None, "part-00001.arrow")):
        accountant = Accountant(Budget(5, 1e-6))
        with pytest.raises(InputError, match=words):
            train(name, source, accountant, engine=engine)
        assert accountant.releases == ()
