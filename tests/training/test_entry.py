"""hushrec.train: the model, charges and refusals of the command line, as one call."""

import math
import warnings

import numpy as np
import pytest

import hushrec
from hushrec.errors import BudgetError, HushrecError, InputError
from hushrec.privacy import Ledger
from hushrec.training import named, run
from tests.command_line import invoke

ITEMS = [f"i{number}" for number in range(30)]
ROWS = hushrec.realistic(120, 30, 1500, seed=3)
FRAME = {
    "user": np.repeat(ROWS.user_texts.to_pylist(), np.diff(ROWS.matrix.indptr)),
    "item": [ITEMS[column] for column in ROWS.matrix.indices],
    "rating": ROWS.matrix.data,
}


def test_a_setting_goes_before_the_declared_number_of_users() -> None:
    budget, chosen = hushrec.Budget(5, 1e-6), {"settings": {"n_users": 70}}
    for name in ("private-als", "private-eigenrec"):
        estimator = named.choose(name, budget, ROWS.domain, n_users=120, **chosen)
        assert estimator.n_users == 70


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HUSHREC_LEDGER", str(tmp_path / "own.sqlite"))
    (tmp_path / "items.txt").write_text("\n".join(ITEMS))


def trained(ratings=FRAME, **changes):
    declared = {"items": ITEMS, "rating_range": (1, 5), "epsilon": 5, "delta": 1e-6, "n_users": 120}
    return hushrec.train(ratings, **declared | changes)


def test_it_charges_the_ledger_of_the_command_line() -> None:
    model = trained(dataset="shop")
    assert model.estimator.name == "both" and model.privacy.private
    assert Ledger("own.sqlite").summary("shop", 1e-6).epsilon == pytest.approx(5, rel=1e-3)
    assert "epsilon = 5" in invoke("ledger", "show", "--dataset", "shop").stdout
    assert trained(FRAME, dataset="shop", model="lists").estimator.name == "private-eigenrec"
    assert Ledger("own.sqlite").summary("shop", 1e-6).epsilon > 7
    assert trained(likes=True, rating_range=None, ledger="l.sqlite").estimator.name == "private-eigenrec"
    assert Ledger("l.sqlite").datasets() == ["default"]


def test_a_frame_a_file_and_a_store_give_the_model_of_the_command_line() -> None:
    """Without privacy, to compare the arrays."""
    ratings = hushrec.Ratings.from_any(FRAME, hushrec.Domain(ITEMS, (1, 5)))
    ratings.to_arrow().to_pandas().to_csv("rows.csv", index=False)
    line = ["rows.csv", "--catalogue", "items.txt", "--rating-range", "1", "5"]
    assert invoke("prepare", *line, "--out", "rows.store").exit_code == 0
    line += [
        "--epsilon",
        "inf",
        "--delta",
        "1e-6",
        "--data-is-public",
        "--users",
        "120",
        "--model",
        "item-bias",
    ]
    assert invoke("train", *line, "--set", "clip=2", "--out", "m.hush").exit_code == 0
    wanted = hushrec.load("m.hush")
    options = {"epsilon": math.inf, "data_is_public": True, "model": "item-bias", "settings": {"clip": 2}}
    for source in (FRAME, "rows.csv", "rows.store"):
        found = trained(source, items="items.txt", **options)
        assert found.estimator == wanted.estimator and found.arrays.keys() == wanted.arrays.keys()
        for name, array in wanted.arrays.items():
            np.testing.assert_allclose(found.arrays[name], array, rtol=1e-4, atol=1e-5)


def test_nothing_is_assumed_and_what_is_wrong_costs_nothing() -> None:
    Ledger("own.sqlite").open_dataset("shop", hushrec.Budget(1, 1e-6))
    with pytest.raises(TypeError, match="items"):
        hushrec.train(FRAME, rating_range=(1, 5), epsilon=5, delta=1e-6)
    with pytest.raises(TypeError, match="epsilon"):
        hushrec.train(FRAME, items=ITEMS, rating_range=(1, 5), delta=1e-6)
    for error, words, changes in (
        (InputError, "rating range is missing", {"rating_range": None}),
        (InputError, "Likes have no rating range", {"likes": True}),
        (InputError, "has no setting", {"settings": {"foo.rank": 3}}),
        (InputError, "is out of range", {"settings": {"like_threshold": 9.0}}),
        (InputError, "infinite epsilon", {"epsilon": math.inf}),
        (InputError, "is not known", {"model": "svd"}),
        (BudgetError, "past its budget", {"dataset": "shop"}),
    ):
        with pytest.raises(error, match=words):
            trained(**changes)
    assert Ledger("own.sqlite").summary("shop").epsilon == 0


def test_the_relation_is_that_of_the_promise_and_of_the_noise() -> None:
    """Oracle: item weights of norm 1 differ by at most the root of 2 between two users."""
    noise = {}
    for relation in ("add-remove", "replace"):
        words = {"model": "popular", "n_users": 120, "relation": relation, "ledger": f"{relation}.sqlite"}
        privacy = trained(FRAME, **words).privacy
        summary = Ledger(f"{relation}.sqlite").summary("default", 1e-6)
        assert privacy.budget.relation == summary.relation == relation
        noise[relation] = privacy.releases[0].noise_sd
    assert noise["replace"] == pytest.approx(math.sqrt(2) * noise["add-remove"])


def test_ratings_of_nobody_stop_after_the_number_of_users() -> None:
    """A hundredth of mu squared was charged."""
    nobody = {"user": [], "item": [], "rating": []}
    with pytest.raises(HushrecError, match="indistinguishable from 0, so training stopped after 1%"):
        hushrec.train(nobody, items=ITEMS, rating_range=(1, 5), epsilon=5, delta=1e-6, ledger="n.sqlite")
    summary = Ledger("n.sqlite").summary("default", 1e-6)
    assert summary.charges == 1 and summary.mu == pytest.approx(hushrec.Budget(5, 1e-6).mu / 10)


@pytest.mark.true("D6")
def test_a_delta_above_one_over_the_users_is_warned_of_by_the_declared_or_the_released_number(
    monkeypatch,
) -> None:
    with pytest.warns(UserWarning, match="at least 1 / 120 users.* well below that"):
        trained(delta=0.01)
    with pytest.warns(UserWarning, match="at least 1 / 1[12][0-9] users"):
        trained(delta=0.01, n_users=None, epsilon=50, dataset="noisy")
    with warnings.catch_warnings(action="error"):
        trained(dataset="small")
        trained(delta=1e-3, n_users=None, dataset="small, counted")
    count = run.release_user_count
    monkeypatch.setattr(run, "release_user_count", lambda *given: count(*given) + 5000)  # much noise
    with pytest.warns(UserWarning, match="at least 1 / 5,1[12][0-9] users"):
        trained(delta=1e-3, n_users=None, epsilon=50, dataset="small, noisy")
