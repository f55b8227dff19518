"""Seasons: the cost of a week and of a user; which week it is; no crash or rerun spends more."""

import itertools
import math
import shutil
import sqlite3
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest

from hushrec.errors import BudgetError, InputError, LedgerError
from hushrec.privacy import (
    Accountant,
    Bounded,
    Budget,
    Gaussian,
    Laplace,
    Ledger,
    Plan,
    PrivacyStatement,
    Release,
    RepeatAndSelect,
    Season,
    SeasonAccountant,
    Week,
    counted,
    epsilon_of,
)
from hushrec.privacy.schema import Book
from hushrec.privacy.season import OF_A_SEASON, epsilon_together
from hushrec.privacy.testing import SeededNoise

BUDGET = Budget(2.0, 1e-6)
SEASON = Season(BUDGET)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def ledger(path):
    book = Ledger(path)
    book.open_season("default", SEASON)
    return book


def spend(accountant, share=1.0, label="sums"):
    if not accountant._admits:
        accountant.rows = ExitStack()  # the context of the training stays open
        accountant.rows.enter_context(accountant.admit())
    law = accountant.budget.share(accountant.part(share))
    return accountant.release(Bounded(np.zeros(2), counted(1.0)), law, label)


def week(ledger, after=None, share=1.0, **options):
    """Run a week and return its statement."""
    accountant = SeasonAccountant(SEASON, after, ledger=ledger, **options)
    spend(accountant, share, f"sums, week {accountant.week.number}")
    return accountant.statement()


def charges(path):
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT label, mu, season, step, run FROM charges ORDER BY id").fetchall()


def plan_of(season):
    law = season.budget.share(season.fraction)
    return Plan(season.budget, [Release("sums", law, 1.0, "user", "add-remove")])


def delta_at(mu, epsilon):
    """The analytic Gaussian formula (Balle and Wang 2018)."""
    normal = NormalDist().cdf
    return normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal(-mu / 2 - epsilon / mu)


# the cost of a user


def test_weeks_cost_alike_and_a_user_less_and_less(ledger, path):
    """Oracle: mu squared of the charges and weights by hand. Killed: a week not charged to its season."""
    statement = None
    costs = [1 / 3, *((2 / 3) * 0.1 * 0.9**k for k in range(60))]
    weights = [math.floor(32 * math.sqrt(cost / costs[0])) / 32 for cost in costs]
    slice_of_mu = BUDGET.mu**2 / math.fsum(weight**2 for weight in weights)
    for number in range(4):
        statement = week(ledger, statement)
        assert statement.week.number == number and len(statement.releases) == 1
        assert charges(path)[-1][1] ** 2 == pytest.approx(slice_of_mu)
        assert statement.budget == BUDGET and statement.private and OF_A_SEASON in statement.notes
        spent = slice_of_mu * math.fsum(weight**2 for weight in weights[: number + 1])
        assert ledger.season("default", "1").mu ** 2 == pytest.approx(spent)
        assert ledger.summary("default", 1e-6).mu ** 2 == pytest.approx(spent)
    assert {row[2] for row in charges(path)} == {"1"}
    assert [row[4][:17] for row in charges(path)] == [f"season 1, week {n}, "[:17] for n in range(4)]
    assert PrivacyStatement.from_dict(statement.to_dict()) == statement
    (_, last), _ = ledger.chain("default")
    assert statement.week == Week(SEASON, 3, "default", charges(path)[-1][4], last)
    assert SEASON.weight([0, 1, 51, 52, 500]).tolist() == [1.0, weights[1], weights[51], 0.0, 0.0]


@pytest.mark.parametrize("seed", range(5))
def test_a_user_is_counted_in_the_dearest_set_of_weeks(seed):
    """Oracle: all sets of weeks. Killed: the weeks in order, the dearest weeks by the first weights."""
    rng = np.random.default_rng(seed)
    season, weeks = Season(BUDGET, 0.5, 0.55), rng.exponential(size=10) * rng.integers(0, 2, 10)
    dearest = max(
        sum(weight**2 * weeks[place] for weight, place in zip(season.weights, places, strict=False))
        for count in range(11)
        for places in itertools.combinations(range(10), count)
    )
    assert season.cost_of_a_user(weeks) == pytest.approx(dearest)
    assert season.cost_of_a_user([]) == 0.0


@pytest.mark.parametrize(("first", "decay"), [(1 / 3, 0.9), (0.01, 0.99), (0.9, 0.2), (0.02, 0.995)])
def test_no_schedule_spends_more_than_the_season(first, decay):
    """Killed: weights rounded up, a slice of the declared costs."""
    season = Season(BUDGET, first, decay)
    squares = np.square(season.weights)
    assert season.mu**2 * squares.sum() == pytest.approx(BUDGET.mu**2, rel=1e-9)
    assert (np.diff(squares) <= 0).all() and squares[0] == 1 and squares[-1] > 0
    assert ((np.array(season.weights) * 32) % 1 == 0).all()
    assert season.fraction == pytest.approx(first, rel=0.25)


# which week it is


@pytest.mark.true("A7")
def test_a_week_that_was_cut_short_is_passed_over_in_words_only(ledger, path):
    first = week(ledger)
    spend(SeasonAccountant(SEASON, first, ledger=ledger), 0.1)  # and no model
    with pytest.raises(BudgetError, match="--skip-week"):
        SeasonAccountant(SEASON, first, ledger=ledger).check(plan_of(SEASON))
    statement = week(ledger, first, skip=True)
    assert statement.week.number == 2 and [each.label for each in statement.releases] == ["sums, week 2"]
    assert week(ledger, statement).week.number == 3
    total = math.fsum(row[1] ** 2 for row in charges(path))
    assert total == pytest.approx(3.1 * SEASON.mu**2)


def test_a_model_goes_on_in_the_ledger_that_it_was_charged_to(tmp_path, path, ledger):
    """The state copied to two machines: found out where the ledger is shared, or differs by then."""
    first = week(ledger)
    shutil.copy(path, tmp_path / "copy.sqlite")
    here, there = week(ledger, first), week(Ledger(tmp_path / "copy.sqlite"), first)  # cannot be found out
    with pytest.raises(InputError, match="is not in the ledger"):
        SeasonAccountant(SEASON, there, ledger=ledger).check(plan_of(SEASON))
    other = Ledger(tmp_path / "other.sqlite")
    other.open_season("default", SEASON)
    with pytest.raises(InputError, match="is not in the ledger"):
        SeasonAccountant(SEASON, here, ledger=other).check(plan_of(SEASON))
    changed = replace(first, week=replace(first.week, charge="0" * 64))  # the same run, another way
    with pytest.raises(InputError, match="is not in the ledger"):
        SeasonAccountant(SEASON, changed, ledger=ledger).check(plan_of(SEASON))
    for ask in (other.wrote, other.check_model):
        with pytest.raises(InputError, match="week 1 of season '1' is not in the ledger"):
            ask(here.week, "0" * 64)
    half = SeasonAccountant(SEASON, here, ledger=ledger)
    spend(half, 0.5)
    early = half.statement()
    spend(half)
    with pytest.raises(InputError, match="is not in the ledger"):  # a model of its first release alone
        SeasonAccountant(SEASON, early, ledger=ledger).check(plan_of(SEASON))
    other.open_season("shop", Season(BUDGET, decay=0.8), allow_composition=False)
    with pytest.raises(InputError, match="another one in the ledger"):
        SeasonAccountant(SEASON, ledger=other, dataset="shop").check(plan_of(SEASON))


def test_a_changed_digest_of_a_weeks_model_is_found(path, ledger):
    first = SeasonAccountant(SEASON, ledger=ledger)
    spend(first)
    first.wrote(SimpleNamespace(digest="0" * 64))
    with sqlite3.connect(path) as connection:
        assert connection.execute("UPDATE models SET digest = ?", ("1" * 64,)).rowcount == 1
    connection.close()
    with pytest.raises(LedgerError, match="changed or damaged"):
        Ledger(path)


def test_a_closed_data_set_is_charged_no_week(ledger, path):
    begun = SeasonAccountant(SEASON, ledger=ledger)
    spend(begun, 0.5)
    ledger.close_dataset("default")
    for charge in (
        lambda: spend(begun),
        lambda: SeasonAccountant(SEASON, ledger=ledger).check(plan_of(SEASON)),
    ):
        with pytest.raises(BudgetError, match="was closed"):
            charge()
    assert len(charges(path)) == 1


# reserves of a season


def outside(mu2, failure=0.0, label="other"):
    """A release of another run, given its part of mu squared."""
    if failure:
        return Release(label, RepeatAndSelect(0.05, failure, 2.0), 1.0, "user", "add-remove")
    return Release(label, Gaussian(1 / math.sqrt(mu2)), 1.0, "user", "add-remove")


def test_a_season_reserves_its_budget(path):
    """On a data set with twice a season's mu squared: any request beyond the other half is refused, in a
    sentence that names season and remainder, by every door; each week fits; closing frees the rest.
    """
    room, ledger = BUDGET.mu**2, Ledger(path)
    budget = Budget(epsilon_of(math.sqrt(2) * BUDGET.mu, 1e-6) + 1e-6, 1e-6)
    ledger.open_dataset("default", budget)
    ledger.open_season("default", SEASON)
    first = week(ledger)
    ledger.charge("default", "fits", outside(0.7 * room))
    rest = budget.spell(math.floor(epsilon_of(math.sqrt(budget.mu**2 - 1.7 * room), 1e-6) * 1000) / 1000)
    large = outside(0.4 * room)
    whole = Budget(epsilon_of(math.sqrt(0.41 * room), 1e-6), 1e-6)
    doors = [
        lambda: ledger.charge("default", "more", large),
        lambda: ledger.check("default", [large]),
        lambda: Accountant(whole, ledger=ledger).check(Plan(whole, [large])),
        lambda: ledger.open_season("default", Season(whole, name="2"), allow_composition=True),
    ]
    for door in doors:
        with pytest.raises(BudgetError) as caught:
            door()
        assert "what season '1' reserves until closed" in str(caught.value) and rest in str(caught.value)
    with pytest.raises(BudgetError, match="what season '1' reserves until closed.*declare at least that"):
        ledger.open_dataset("default", Budget(epsilon_of(math.sqrt(1.6 * room), 1e-6), 1e-6))
    summary = ledger.summary("default")
    of = budget.mu**2 / room
    used = SEASON.fraction
    assert summary.shares == pytest.approx(
        {"spent": (0.7 + used) / of, "reserved": (1 - used) / of, "free": 1 - 1.7 / of}
    )
    shares = [(each.spent / room, each.reserved / room) for each in ledger.shares("default")]
    assert shares == [pytest.approx((used, 1 - used)), pytest.approx((0.7, 0.0))]
    ledger.charge("default", "the rest", outside(0.3 * room))
    second, free = week(ledger, first), 1 - used * (1 + SEASON.weights[1] ** 2)
    both = budget.spell(epsilon_of(math.sqrt(2 * room), 1e-6))
    assert both in " ".join(second.text().split()) and second.ledger.reserved == pytest.approx(free * room)
    assert PrivacyStatement.from_dict(second.to_dict()) == second
    with pytest.raises(BudgetError, match="what season '1' reserves"):
        ledger.charge("default", "more", outside(0.1 * room))
    ledger.close_season("default", "1")
    ledger.charge("default", "freed", outside((free - 0.01) * room))
    with pytest.raises(BudgetError):
        ledger.charge("default", "more", outside(0.02 * room))
    ledger.close_dataset("default")
    with pytest.raises(BudgetError, match="was closed in the ledger"):
        ledger.charge("default", "more", outside(1e-9))


@pytest.mark.true("D1")
def test_beside_a_season_without_a_budget_a_run_asks_for_add_up(ledger):
    """It names the cost of both; a run that had begun before the season was opened goes on."""
    budget = Budget(1.0, 1e-6)
    both = epsilon_of(math.hypot(BUDGET.mu, budget.mu), 1e-6)
    asks = Accountant(budget, ledger=ledger)
    with pytest.raises(BudgetError, match="train in the season, or pass --allow-composition") as caught:
        asks.release(Bounded(np.zeros(2), counted(1.0)), budget.share(1.0), "sums")
    assert BUDGET.spell(both) in str(caught.value) and "season '1'" in str(caught.value)
    assert ledger.summary("default", 1e-6).charges == 0
    fit = Accountant(budget, ledger=ledger, allow_composition=True)
    fit.release(Bounded(np.zeros(2), counted(1.0)), budget.share(0.5), "sums")
    ledger.charge("default", fit.run, Release("more", budget.share(0.5), 1.0, "user", "add-remove"))
    said = " ".join(week(ledger).text().split())
    assert f"with the rest of open seasons, {BUDGET.spell(both)};" in said
    assert ledger.summary("default", 1e-6).shares["free"] is None
    ledger.close_season("default", "1")
    asks.release(Bounded(np.zeros(2), counted(1.0)), budget.share(1.0), "sums")
    ledger.charge("shop", "earlier", Release("sums", budget.share(1.0), 1.0, "user", "add-remove"))
    with pytest.raises(BudgetError, match="has had 1 run, and this one adds to it") as caught:
        ledger.open_season("shop", SEASON)
    assert BUDGET.spell(both) in str(caught.value) and not ledger.seasons("shop")
    ledger.open_season("shop", SEASON, allow_composition=True)


# several seasons


def test_seasons_add_up_in_words(ledger):
    """Oracle: the mu of both, by hand."""
    week(ledger)
    other = Season(Budget(1.0, 1e-6), name="next")
    ledger.open_season("default", other, allow_composition=True)
    both = epsilon_of(math.hypot(BUDGET.mu, other.budget.mu), 1e-6)
    assert epsilon_together([BUDGET, other.budget], 1e-6) == pytest.approx(both)
    accountant = SeasonAccountant(other, ledger=ledger)
    spend(accountant)
    assert f"epsilon = {both:.6g}" in " ".join(accountant.statement().text().split())


# statement, damage, crashes


def test_what_cannot_be_weighed_is_refused():
    """Rows that no training has weighed, single ratings, and releases whose cost a weight does not scale."""
    accountant, value = SeasonAccountant(SEASON), Bounded(np.zeros(2), counted(1.0))
    with pytest.raises(BudgetError, match="rows that were not weighed"):
        accountant.release(value, Gaussian(100.0), "sums")
    with accountant.admit():
        with pytest.raises(InputError, match="for unit 'rating'"):
            accountant.release(Bounded(np.zeros(2), counted(1.0), unit="rating"), Gaussian(100.0), "sums")
        with pytest.raises(InputError, match="needs Gaussian noise"):
            accountant.select(RepeatAndSelect(1e-3, 2e-8, 2.0), "best", lambda inner: (None, 0.0))
        with pytest.raises(InputError, match="needs Gaussian noise"):
            accountant.release(Bounded(np.zeros(2), counted(1.0), norm="l1"), Laplace(1e4), "sums")
    with pytest.raises(BudgetError, match="train it once"), accountant.admit():
        pass
    assert accountant.releases == ()


@pytest.mark.parametrize("with_ledger", [True, False])
def test_a_week_spends_no_more_than_its_slice(ledger, with_ledger):
    """Killed: a check of the season's total only, under which week 0 could take everything."""
    accountant = SeasonAccountant(SEASON, ledger=ledger if with_ledger else None)
    value = Bounded(np.zeros(2), counted(1.0))
    slice_of_mu = SEASON.fraction
    with pytest.raises(BudgetError, match="past the"):
        accountant.check(Plan(BUDGET, [outside(1.01 * slice_of_mu * BUDGET.mu**2)]))
    with accountant.admit():
        for part, fits in ((1.01, False), (0.7, True), (0.31, False), (0.3, True), (0.01, False)):
            with nullcontext() if fits else pytest.raises(BudgetError, match="past the"):
                accountant.release(value, BUDGET.share(part * slice_of_mu), f"sums {part}")
    with pytest.raises(BudgetError, match="used up"):
        accountant.part()
    assert len(accountant.releases) == 2
    if with_ledger:  # which itself looks too
        more = outside(0.01 * BUDGET.mu**2)
        with pytest.raises(BudgetError, match="past the"):
            ledger.charge("default", accountant.run, more, step=2, week=accountant.week)


def test_seasons_and_weeks_that_are_none():
    for wrong in (
        {"first": 0}, {"first": 1}, {"first": 0.04}, {"first": 0.5, "decay": 0.999},
        {"decay": 0}, {"decay": 1}, {"name": ""}, {"budget": 1},
        {"budget": replace(BUDGET, relation="replace")}, {"budget": replace(BUDGET, failure=1e-7)},
        {"budget": replace(BUDGET, unit="rating", relation="replace")},
        {"budget": Budget(math.inf, 1e-6)}, {"gap": -1}, {"gap": math.inf}, {"gap": "6d"}, {"gap": 400},
    ):  # fmt: skip
        with pytest.raises(InputError, match="budget|first|decay|name|gap"):
            replace(SEASON, **wrong)
    numpys = Season(BUDGET, np.float64(0.4), np.float64(0.8), gap=np.float32(0.5))
    assert {type(each) for each in (numpys.first, numpys.decay, numpys.gap)} == {float}
    entry = Week(SEASON, 1, "shop", "run", "hash").to_dict()
    assert Week.from_dict(entry, BUDGET) == Week(SEASON, 1, "shop", "run", "hash")
    for wrong in ({"week": -1}, {"week": True}, {"dataset": "a\nb"}, {"run": 1}, {"charge": b""}):
        with pytest.raises((TypeError, InputError)):
            Week.from_dict(entry | wrong, BUDGET)
    for wrong in (None, BUDGET):
        with pytest.raises(InputError, match="season must be Season"):
            SeasonAccountant(wrong)


def test_a_week_is_run_once(ledger, path):
    """Killed: weeks counted by the model alone: two weeks could continue from an old one."""
    first = week(ledger, share=0.5)
    one, other = (SeasonAccountant(SEASON, first, ledger=ledger) for _ in range(2))
    assert one.part() == pytest.approx(SEASON.fraction)  # what a week leaves is not the next one's
    ledger.check_week(one.week, plan_of(SEASON).releases)
    with pytest.raises(BudgetError, match="was run already"):  # in a copy of this ledger
        ledger.check_week(one.week, plan_of(SEASON).releases, made=1)
    spend(one, 0.5)
    with pytest.raises(BudgetError, match="was run already"):
        ledger.check_week(one.week, plan_of(SEASON).releases)
    ledger.check_week(one.week, [outside(1e-6)], made=1)
    other.run, other.week = one.run, one.week  # another process of the same run
    for stale in (
        other,
        SeasonAccountant(SEASON, ledger=ledger),
        SeasonAccountant(SEASON, first, ledger=ledger),
    ):
        with pytest.raises(BudgetError, match="was run already"):
            spend(stale, 0.5)
    spend(one, 1.0)
    assert len(charges(path)) == 3
    week(ledger, one.statement())


def test_a_week_whose_disk_fills_is_not_told_to_resume(ledger, monkeypatch):
    """Killed: --resume, which a season refuses, as the way on after a full disk."""
    accountant = SeasonAccountant(SEASON, week(ledger), ledger=ledger)
    monkeypatch.setattr(Book, "append", lambda *_: (_ for _ in ()).throw(sqlite3.OperationalError("full")))
    with pytest.raises(LedgerError, match=r"nothing more was released.*--skip-week") as caught:
        spend(accountant, 0.5)
    assert "--resume" not in str(caught.value)


class Clock(datetime):
    """The ledger's clock, moved by days."""

    days = 0.0

    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) + timedelta(cls.days)


def test_a_gap_is_days_from_the_last_week_that_wrote_a_model(path, monkeypatch):
    """Killed: another unit of the gap. A week that was cut short may be repeated at once."""
    monkeypatch.setattr("hushrec.privacy.ledger_rules.datetime", Clock)
    ledger, season, model = Ledger(path), replace(SEASON, gap=6.0), SimpleNamespace(digest="0" * 64)
    ledger.open_season("default", season)
    first = SeasonAccountant(season, ledger=ledger)
    spend(first, 0.5)
    second = SeasonAccountant(season, first.statement(), skip=True, ledger=ledger)
    spend(second, 0.5)
    second.wrote(model)
    third = SeasonAccountant.following(second.statement(), ledger=ledger)
    for Clock.days in (0.0, 5.99, -400.0):  # a clock that went back delays a week
        for ask in (lambda: third.check(plan_of(season)), lambda: spend(third)):
            with pytest.raises(BudgetError, match="Week 2 of season '1' is too soon.*--early"):
                ask()
    Clock.days = 6.01
    third.check(plan_of(season))
    Clock.days = -400.0
    spend(SeasonAccountant.following(second.statement(), ledger=ledger, early=True))
    assert len(charges(path)) == 3
    with pytest.raises(InputError, match="there it is season '1'.*0.9 times the one before, 6 days apart"):
        spend(SeasonAccountant(SEASON, ledger=ledger))


def test_a_gap_begins_with_the_first_charge_of_a_week(path, monkeypatch):
    """A long training delays no other."""
    for module in ("ledger", "ledger_rules"):
        monkeypatch.setattr(f"hushrec.privacy.{module}.datetime", Clock)
    monkeypatch.setattr(Clock, "days", 0.0)
    ledger, season = Ledger(path), replace(SEASON, gap=6.0)
    ledger.open_season("default", season)
    first = SeasonAccountant(season, ledger=ledger)
    spend(first, 0.5)
    Clock.days = 5.0
    spend(first)
    first.wrote(SimpleNamespace(digest="0" * 64))
    second = SeasonAccountant.following(first.statement(), ledger=ledger)
    with pytest.raises(BudgetError, match="is too soon"):
        second.check(plan_of(season))
    Clock.days = 6.01
    second.check(plan_of(season))


def test_a_plan_says_what_a_users_trainings_cost_alone():
    """Oracle: the analytic Gaussian formula."""
    numbers = [row["training"] for row in SEASON.plan()]
    assert numbers[0] == 1 and numbers[-1] <= len(SEASON.weights)
    for row in SEASON.plan():
        mu = SEASON.mu * SEASON.weights[row["training"] - 1]
        assert row["part"] == pytest.approx((mu / BUDGET.mu) ** 2)
        assert delta_at(mu, row["epsilon_alone"]) == pytest.approx(1e-6, rel=1e-3)


def test_a_season_says_from_which_training_on_the_decay_holds():
    """Killed: "each 0.9 times the one before", where the second costs a fifth of the first."""
    costs = np.square(SEASON.weights)
    assert costs[1] < 0.25 * costs[0]
    assert np.mean(costs[2:12] / costs[1:11]) == pytest.approx(SEASON.decay, abs=0.05)
    assert "first training spends 0.365 of mu squared, later ones less, from the third on" in str(SEASON)


def test_weeks_of_public_data_follow_each_other_and_no_private_one():
    for options in ({"data_is_public": True}, {"noise": SeededNoise(1)}):
        first = SeasonAccountant(SEASON, **options)
        spend(first)
        second = SeasonAccountant.following(first.statement(), **options)
        assert second.week.number == 1 and second.part() == SEASON.fraction == second.remaining_fraction
        assert second.releases == ()
        with pytest.raises(InputError, match="NOT PRIVATE"):
            SeasonAccountant.following(first.statement())


def test_models_of_another_season_or_data_set_are_refused(path):
    """A season is refused if a data set's budget has no room for it, or if its name is taken."""
    ledger, second = Ledger(path), Season(BUDGET, name="2")
    ledger.open_season("default", SEASON)
    first = week(ledger)
    ledger.open_dataset("shop", Budget(1.9, 1e-6))
    for error, words, call in (
        (BudgetError, "adds to it", lambda: ledger.open_season("default", second)),
        (BudgetError, "This model is of season", lambda: SeasonAccountant(second, first)),
        (BudgetError, "This model is of season", lambda: SeasonAccountant(SEASON, first, dataset="other")),
        (BudgetError, "as it was opened", lambda: SeasonAccountant(replace(SEASON, decay=0.8), first)),
        (InputError, "not trained in", lambda: SeasonAccountant.following(Accountant(BUDGET).statement())),
        (InputError, "not trained in", lambda: SeasonAccountant(SEASON, Accountant(BUDGET).statement())),
        (InputError, "has no season", lambda: SeasonAccountant(second, ledger=ledger)),
        (InputError, "another name", lambda: ledger.open_season("default", SEASON, allow_composition=True)),
        (
            BudgetError,
            "past its budget",
            lambda: ledger.open_season("shop", Season(BUDGET), allow_composition=True),
        ),
    ):
        with pytest.raises(error, match=words):
            call()


def test_what_a_ledger_says_of_a_season_is_what_was_charged(path):
    """Text and JSON hold mu of the charges, and epsilon by the analytic formula."""
    ledger, season = Ledger(path), SEASON
    ledger.open_season("shop", season)
    first = SeasonAccountant(season, ledger=ledger, dataset="shop")
    spend(first)
    second = SeasonAccountant.following(first.statement(), ledger=ledger)
    assert (second.dataset, second.week.number) == ("shop", 1)
    spend(second, 0.5)
    found, mu = ledger.season("shop", "1"), season.mu * math.sqrt(1 + season.weights[1] ** 2 / 2)
    assert found.run == second.run != first.run
    said = found.to_dict()
    assert (said["name"], said["first"], said["decay"], said["begun"]) == ("1", 1 / 3, 0.9, 2)
    assert said["charged"]["charges"] == 2 and said["charged"]["mu"] == pytest.approx(mu)
    epsilon = said["charged"]["epsilon"]
    assert delta_at(mu, epsilon) == pytest.approx(1e-6, rel=1e-3)
    assert "is open: 2 weeks were run and charged at most " + BUDGET.spell(epsilon) in str(found)
