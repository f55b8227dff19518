"""Refusals of a training before any charge, each in one sentence, and its plan."""

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from inspect import signature
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from hushrec.checks import settings_of
from hushrec.data import Domain, Ratings, Store, realistic
from hushrec.data.ratings import made_up
from hushrec.engines.two_servers.agreement import Agreement
from hushrec.errors import InputError
from hushrec.evaluation import compare
from hushrec.models import ALS, Both, GlobalMean, ItemBias, PrivateALS, PrivateEigenRec
from hushrec.privacy import Accountant, Bound, Budget, Ledger, Season, SeasonAccountant, counted, signed
from hushrec.privacy.testing import RecordingNoise, SeededNoise
from hushrec.testing import check_estimator
from hushrec.training import named, run
from hushrec.training.partitioned import Streaming
from hushrec.training.run import public_inputs, release_user_count
from hushrec.training.trainable import Round, plan_of

RATINGS = realistic(60, 12, 500, seed=1)
BUDGET = Budget(3.0, 1e-6)
ROWS = [("alice", "i1", 5.0)]
WEEKS = SeasonAccountant(Season(BUDGET))


def fit(model=None, ratings=RATINGS, accountant=None, **options):
    return (model or ItemBias()).fit(ratings, accountant or Accountant(BUDGET), **options)


REFUSED = {
    "no ratings": (lambda: fit(ratings=ROWS), "which takes files and data frames."),
    "no accountant": (lambda: fit(accountant=BUDGET), "not Budget; pass Accountant(budget)."),
    "another unit": (
        lambda: fit(accountant=Accountant(Budget(3.0, 1e-6, unit="rating"))),
        "but the budget's unit is 'rating'; pass unit='user'.",
    ),
    "chosen rows": (
        lambda: fit(ratings=RATINGS.where(RATINGS.matrix.data > 2)),
        "or declare public data (data_is_public=True).",
    ),
    "an engine": (
        lambda: fit(engine=Streaming()),
        "for a private model whose sums are exact; item-bias here is trained without one.",
    ),
    "a season": (
        lambda: fit(GlobalMean(), accountant=WEEKS),
        "global-mean does not support seasons; train both, or one of its parts.",
    ),
    "privacy of an exact model": (lambda: fit(ALS()), "or say that you want none; pass epsilon=inf."),
    "a model of both": (lambda: Both(ratings=ROWS), "ratings must be an estimator, not list."),
    "the other of both": (lambda: Both(lists=ROWS), "lists must be an estimator, not list."),
    "likes": (
        lambda: Both.planned(BUDGET, Domain(range(9), likes=True), 50),
        "Likes have no ratings to predict; train private-eigenrec.",
    ),
    "a setting": (
        lambda: ItemBias().set_params(clips=ROWS),
        "item-bias has no setting 'clips'; it has clip, prior_sd, user_regularization.",
    ),
    "a setting of one of both": (
        lambda: named.choose("both", BUDGET, RATINGS.domain, n_users=9, settings={"lists.like": 3.0}),
        "parts_share, equalization, like_threshold, n_users.",
    ),
    "a setting of no part": (
        lambda: named.choose("popular", BUDGET, RATINGS.domain, settings={"lists.rank": 3}),
        "popular has no setting 'lists.rank'; it has none.",
    ),
    "a tuning": (
        lambda: PrivateALS(tuning={"bias_clip": 1.0}),
        "tuning must be Tuning, not dict; pass PrivateALS.Tuning(...).",
    ),
    "no share": (
        lambda: plan_of([Round("a", 0.0, counted(1.0))], BUDGET, 1.0),
        "Release 'a' gets no part of the budget; raise its budget fraction.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_says_what_is_wrong_and_nothing_of_rows(case) -> None:
    call, end = REFUSED[case]
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value).endswith(end) and "alice" not in str(error.value)


def test_a_window_is_of_ratings_in_memory(tmp_path) -> None:
    """A store has no times to choose by."""
    store = Store.prepare(RATINGS, tmp_path / "s", RATINGS.domain)
    first = fit(accountant=SeasonAccountant(Season(BUDGET)))
    accountant = SeasonAccountant.following(first.privacy)
    with pytest.raises(InputError, match="with their times; pass Ratings, not a store[.]$"):
        first.continue_training(store, accountant, since="2024-01-01")
    for given, end in (
        (BUDGET, "must be SeasonAccountant, not Budget; pass SeasonAccountant[.]following.*"),
        (WEEKS, "make it from the model's statement[.]$"),
    ):
        with pytest.raises(InputError, match=end):
            first.continue_training(store, given)
    with pytest.raises(InputError, match="train it again, or train both[.]$"):
        fit(GlobalMean()).continue_training(store, accountant)
    assert not accountant.releases
    # nothing is retired without the option
    smaller = Ratings.from_any(
        ([1], [RATINGS.domain.items[0]], [3.0]), Domain(RATINGS.domain.items[:5], (1, 5))
    )
    with pytest.raises(InputError, match="lacks 7 of the model's 12 items"):
        first.continue_training(smaller, accountant)


def test_each_release_gets_its_share_of_the_fraction() -> None:
    rounds = [Round("a", 1.0, signed(2.0)), Round("b", 3.0, counted(5.0))]
    for relation, sensitivity in (("add-remove", 2.0), ("replace", 4.0)):
        budget = Budget(3.0, 1e-6, relation=relation)
        for whole, parts_of in ((None, (0.125, 0.375)), (8.0, (0.0625, 0.1875))):
            plan = plan_of(rounds, budget, 0.5, whole)
            assert [each.label for each in plan.releases] == ["a", "b"]
            assert [each.sensitivity for each in plan.releases] == [sensitivity, 5.0]
            assert [each.mu**2 / budget.mu**2 for each in plan.releases] == pytest.approx(parts_of)
            assert {each.relation for each in plan.releases} == {relation}


def test_a_release_of_too_little_budget_is_refused_by_the_plan() -> None:
    """Its noise does not fit an exact sum, which would else be seen after releases before it were charged."""
    rounds = [Round("large", 1.0, signed(1.0)), Round("small", 1e-19, signed(1.0))]
    with pytest.raises(InputError, match=r"'small' gets too little of the budget.*larger epsilon[.]$"):
        plan_of(rounds, Budget(1.0, 1e-6), 1.0)


@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.01, 1e-6])
@pytest.mark.parametrize("n_users", [1, 20, 500])
def test_a_small_budget_trains_any_number_of_users(epsilon: float, n_users: int) -> None:
    budget = Budget(epsilon, 1e-6)
    for cls in (Both, PrivateALS, PrivateEigenRec):
        cls.planned(budget, RATINGS.domain, n_users).fit(RATINGS, Accountant(budget, noise=SeededNoise(0)))


def test_what_is_not_clipped_is_planned_without_noise_alone() -> None:
    """The plan shows sensitivity 1 for a release without noise."""
    unbounded = [Round("a", 1.0, Bound(math.inf, math.inf)), Round("b", 1.0, counted(3.0))]
    plan = plan_of(unbounded, Budget(math.inf, 1e-6), 1.0)
    assert [(each.sensitivity, each.noise_sd) for each in plan.releases] == [(1.0, 0.0), (3.0, 0.0)]
    [exact] = ALS().plan(Budget(math.inf, 1e-6), RATINGS.domain).releases
    assert (exact.label, exact.sensitivity, exact.noise_sd) == ("exact model", 1.0, 0.0)
    with pytest.raises(InputError):
        plan_of(unbounded, BUDGET, 1.0)


TITLES = [{"item": range(3), "title": titles} for titles in (["a", "a b", "b"], ["a", "c b", "b"])]


def test_what_a_training_is_bound_to() -> None:
    """Other items, another range, other features or other words are another training."""
    plain = Domain(range(3), rating_range=(1, 5))
    seen = [public_inputs(plain)]
    assert public_inputs(Domain(range(3), rating_range=(1, 5))) == seen[0]
    features = np.arange(6.0).reshape(3, 2)
    seen += [
        public_inputs(domain)
        for domain in (
            Domain(range(4), rating_range=(1, 5)),
            Domain(range(3), rating_range=(1, 6)),
            Domain(range(3), rating_range=(1, 5), item_features=features),
            Domain(range(3), rating_range=(1, 5), item_features=2 * features),
            *(Domain(range(3), rating_range=(1, 5), item_features=titles) for titles in TITLES),
        )
    ]
    assert len({tuple(each.items()) for each in seen}) == 7


def test_tuned_settings_have_a_class_of_their_own_and_stand_beside_the_others_in_files() -> None:
    tuned = PrivateALS(rank=3, tuning=PrivateALS.Tuning(bias_clip=0.3))
    assert PrivateALS.of(settings_of(tuned)) == tuned == PrivateALS(rank=3).set_params(tuning__bias_clip=0.3)
    longer = tuned.set_params(tuning__user_norm=0.9)
    assert (longer.tuning.user_norm, longer.tuning.bias_clip, tuned.tuning.user_norm) == (0.9, 0.3, 0.7)
    assert [*signature(PrivateALS).parameters][-2:] == ["tuning", "n_users"]
    planned = PrivateALS.planned(BUDGET, RATINGS.domain, 60, rank=3, tuning=tuned.tuning)
    assert planned.tuning == tuned.tuning and planned.n_users == 60
    parts = Both.planned(BUDGET, RATINGS.domain, 60, **{"ratings.bias_clip": 0.3, "lists.weights_share": 0.5})
    assert (parts.ratings.tuning.bias_clip, parts.lists.tuning.weights_share) == (0.3, 0.5)


def test_nothing_is_shown_unless_that_was_asked_for(capfd) -> None:
    """If it was, the number of releases made is shown."""
    first = fit(accountant=SeasonAccountant(Season(BUDGET)))
    first.continue_training(RATINGS, SeasonAccountant.following(first.privacy))
    assert capfd.readouterr() == ("", "")
    first.continue_training(RATINGS, SeasonAccountant.following(first.privacy), progress=True)
    fit(progress=True)
    shown = capfd.readouterr()
    assert not shown.out and "1/1" in shown.err and "release" in shown.err


def test_a_training_is_drawn_with_seed_0_and_spends_what_is_left() -> None:
    model = PrivateALS(rank=3, iterations=1)
    models = [
        fit(model, accountant=Accountant(BUDGET, noise=SeededNoise(4)), **options)
        for options in ({}, {"seed": 0}, {"seed": 1}, {"budget_fraction": 1.0})
    ]
    assert models[0].to_bytes() == models[1].to_bytes() == models[3].to_bytes() != models[2].to_bytes()
    accountant = Accountant(BUDGET)
    fit(accountant=accountant, budget_fraction=0.25)
    assert accountant.spent_mu == pytest.approx(BUDGET.mu / 2)
    fit(accountant=accountant)
    assert accountant.spent_mu == pytest.approx(BUDGET.mu)


@pytest.mark.parametrize("cls", [ItemBias, PrivateALS, PrivateEigenRec, Both], ids=lambda cls: cls.name)
def test_budget_and_domain_are_not_swapped(cls) -> None:
    for call in (cls().plan, lambda *both: cls.planned(*both, 50).plan(*both)):
        with pytest.raises(InputError, match="^budget must be Budget, not Domain; pass Budget"):
            call(RATINGS.domain, BUDGET)
        with pytest.raises(InputError, match="^domain must be Domain, not list; pass Domain"):
            call(BUDGET, ["i1"])
        assert call(BUDGET, RATINGS.domain).releases


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_the_number_of_users_costs_a_hundredth_and_is_one_at_least(relation) -> None:
    budget = Budget(3.0, 1e-6, relation=relation)
    noise = RecordingNoise(SeededNoise(1))
    accountant = Accountant(budget, noise=noise)
    number = release_user_count(RATINGS, accountant)
    [release], [call] = accountant.releases, noise.calls
    assert call.value.tolist() == [60.0] and number == round(float(call.output[0]))
    assert (release.label, release.sensitivity) == ("number of users", 1.0)
    assert accountant.spent_mu == pytest.approx(budget.mu / 10)
    drawn = [
        release_user_count(RATINGS, Accountant(Budget(0.05, 1e-6), noise=SeededNoise(seed)))
        for seed in range(12)
    ]
    assert min(drawn) == 1 < max(drawn) and all(isinstance(each, int) for each in drawn)
    nobody = RATINGS.rows(np.zeros(RATINGS.n_users, dtype=bool), keyed=True)
    free = Budget(math.inf, 1e-6)
    assert [release_user_count(each, Accountant(free)) for each in (RATINGS, nobody)] == [60, 1]


def test_a_statement_lists_what_its_promise_takes_as_public() -> None:
    def public(ratings, budget=BUDGET):
        privacy = run.statement(ItemBias(), ratings, Accountant(budget))
        assert privacy.exact_arithmetic == budget.private
        return [text for text in privacy.public if "rating" in text or "cells" in text or "rows" in text]

    cap, rating = "cap on ratings per user", Budget(3.0, 1e-6, "rating")
    likes = Ratings.from_any({"user": [1], "item": [1]}, Domain((1, 2), likes=True))
    assert public(RATINGS) == public(RATINGS, Budget(math.inf, 1e-6)) == ["rating range", cap]
    assert public(likes) == [cap]
    assert public(RATINGS, rating) == ["rating range", cap, "which cells are observed"]
    by_position = Ratings.from_any(RATINGS.matrix, RATINGS.domain)
    assert public(by_position)[2].startswith("number of rows (user ids are row numbers")


def test_users_chosen_by_hand_are_refused_where_they_are_private_alone() -> None:
    chosen = RATINGS.rows(slice(0, 5))
    run.check_users(chosen, Accountant(BUDGET, data_is_public=True))
    run.check_users(chosen, Accountant(Budget(math.inf, 1e-6)))
    with pytest.raises(InputError, match="were chosen by where, rows or for_users"):
        run.check_users(chosen, Accountant(BUDGET))


def test_a_fraction_of_a_budget_pays_for_the_number_of_users_too() -> None:
    accountant = Accountant(BUDGET, noise=SeededNoise(1))
    named.train("private-als", RATINGS, accountant, budget_fraction=0.5)
    parts = [(release.mu / BUDGET.mu) ** 2 for release in accountant.releases]
    assert accountant.releases[0].label == "number of users" and parts[0] == pytest.approx(0.005)
    assert math.fsum(parts) == pytest.approx(0.5)


@pytest.mark.parametrize("option", ["budget_fraction", "seed"])
@pytest.mark.parametrize("value", ["x", -0.1, 1.5, math.nan, None, True])
def test_a_fraction_and_a_seed_are_numbers_in_range(option, value) -> None:
    accountant = Accountant(BUDGET)
    with pytest.raises(InputError, match=option):
        fit(accountant=accountant, **{option: value})
    assert not accountant.releases and fit(seed=np.int64(0)).privacy.private


#: Doors at which an estimator meets a budget.
DOORS = {
    "fit": lambda planned, budget, rows: planned.fit(rows, Accountant(budget)),
    "season": lambda planned, budget, rows: planned.fit(rows, SeasonAccountant(Season(budget))),
    "plan": lambda planned, budget, rows: planned.plan(budget, rows.domain),
    "compare": lambda planned, budget, rows: compare(rows, rows, [planned], [budget.epsilon], delta=1e-6),
    "contract": lambda planned, budget, rows: check_estimator(planned, budget),
    "servers": lambda planned, budget, rows: Agreement(estimator=planned, budget=budget, domain=rows.domain),
}


@pytest.mark.true("D6")
@pytest.mark.parametrize("cls", [PrivateALS, PrivateEigenRec, Both], ids=lambda cls: cls.name)
def test_settings_planned_for_another_budget_are_refused_before_a_charge(cls, tmp_path) -> None:
    rows, one, five = realistic(60, 9, 400, seed=0), Budget(1, 1e-6), Budget(5, 1e-6)
    planned = cls.planned(one, rows.domain, 60)
    for door in DOORS.values():
        with pytest.raises(InputError, match="was planned for epsilon = 1 "):
            door(planned, five, rows)
    change = {"lists_share": 0.4} if cls is Both else {"rank": 2}
    with pytest.raises(InputError, match="was planned for"):  # a changed plan is still a plan
        planned.set_params(**change).fit(rows, Accountant(five))
    for budget in (Budget(1, 1e-5), Budget(1, 1e-6, failure=1e-7), Budget(math.inf, 1e-6)):
        ledger = Ledger(tmp_path / "l.sqlite")
        with pytest.raises(InputError, match="was planned for epsilon = 1 "):
            planned.fit(rows, Accountant(budget, ledger=ledger, dataset="shop"))
        assert not ledger.datasets()
    assert planned.plan(replace(one, relation="replace"), rows.domain)  # the noise is the same
    kept = planned.set_params(planned_for=None)
    assert kept.fit(rows, Accountant(five)).privacy.budget == five and kept == planned
    assert settings_of(kept) == settings_of(planned) and "planned_for" not in settings_of(planned)


def test_a_model_with_data_for_each_item_of_a_wide_catalogue_trains_with_a_ledger(tmp_path) -> None:
    """The rehearsal before the charge takes fewer items, where the model can do with them."""
    domain = Domain(range(1200), rating_range=(1, 5))

    class Priced(ItemBias):
        name = "priced"

        def train(self, users, gate, seed):
            parts = super().train(users, gate, seed)
            return parts | {"item_bias": parts.serve["item_bias"] - np.linspace(0.0, 0.1, 1200)}

    ratings = Ratings.from_any((["a", "b"], [0, 1199], [1.0, 5.0]), domain)
    ledger = Ledger(tmp_path / "ledger.sqlite", create=True)
    ledger.open_dataset("shop", BUDGET)
    model = Priced().fit(ratings, Accountant(BUDGET, ledger=ledger, dataset="shop"))
    assert len(model.predict({0: 1}, [0, 1199])) == 2


class Faulty(ItemBias):
    name = "faulty"
    seen: ClassVar[list[int]] = []

    def train(self, users, gate, seed):
        self.seen.append(seed)
        raise ZeroDivisionError("a fault")


def test_a_fault_of_a_model_shows_once_and_before_a_charge(tmp_path) -> None:
    ratings = realistic(20, 10, 100, seed=0)
    ledger = Ledger(tmp_path / "ledger.sqlite", create=True)
    ledger.open_dataset("shop", BUDGET)
    with pytest.raises(ZeroDivisionError):
        Faulty().fit(ratings, Accountant(BUDGET, ledger=ledger, dataset="shop"))
    assert Faulty.seen == [0] and not ledger.summary("shop").runs


def test_a_week_is_rehearsed_on_few_items(tmp_path, monkeypatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(run, "_loaded", [])
    monkeypatch.setattr(run, "made_up", lambda domain: sizes.append(domain.n_items) or made_up(domain))
    ledger, rows = Ledger(tmp_path / "ledger.sqlite", create=True), realistic(200, 1200, 6000, seed=0)
    ledger.open_season("default", season := Season(BUDGET))
    first = Both().fit(rows, SeasonAccountant(season, ledger=ledger))
    first.continue_training(rows, SeasonAccountant.following(first.privacy, ledger=ledger))
    assert sizes == [1000] * 3  # a first training, and a week after another one


def test_donors_are_rehearsed_after_the_same_releases_without_them(tmp_path, monkeypatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(run, "_loaded", [])
    monkeypatch.setattr(run, "ask", lambda *given, **_: asked.append(given[0]))
    accountant = Accountant(BUDGET, ledger=Ledger(tmp_path / "ledger.sqlite", create=True))
    table = {"item": list("abcd"), "kind": list("xyxy")}
    domain, donors = Domain(list("abcd"), (1, 5), item_features=table), SimpleNamespace(external=None)
    for public in (None, donors, donors, None):
        model = PrivateEigenRec.of(rank=2, n_users=20, parts_share=0.2)
        run.rehearse(model, domain, accountant, public, run._first(accountant, 1.0))
    assert len(asked) == 2


def test_threads_rehearse_at_once(tmp_path, monkeypatch) -> None:
    """A server may train several models: one looks at what is loaded while another one adds to it."""
    monkeypatch.setattr(run, "_loaded", [])
    monkeypatch.setattr(run, "ask", lambda *_, **__: None)
    accountant = Accountant(BUDGET, ledger=Ledger(tmp_path / "ledger.sqlite", create=True))
    domain = Domain(["a", "b"], (1, 5))

    def rehearse(thread: str) -> None:
        for number in range(150):
            label = thread * (number + 1)
            plan = plan_of([Round(label, 1.0, signed(1.0))], BUDGET, 1.0)
            run.rehearse(ItemBias(), domain, accountant, None, lambda *_, plan=plan: (plan, None))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(rehearse, "abcd"))
    finally:
        sys.setswitchinterval(interval)
    assert len(run._loaded) == 600
