"""A7 (charges = releases = noise drawn) and the rules of the gate."""

import contextlib
import itertools
import math
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from statistics import NormalDist

import numpy as np
import pytest

from hushrec.errors import BudgetError, InputError
from hushrec.privacy import (
    Accountant,
    Bounded,
    Budget,
    Gaussian,
    Laplace,
    Ledger,
    Plan,
    RandomizedResponse,
    Release,
    RepeatAndSelect,
    SystemNoise,
    counted,
    signed,
)
from hushrec.privacy.schema import Book
from hushrec.privacy.testing import RecordingNoise, ReplayNoise, SeededNoise

BUDGET = Budget(1.0, 1e-6)
NOTHING = Plan(BUDGET, ())


def in_order(ledger) -> list[str]:
    """Labels of all charges that are on the disk."""
    with sqlite3.connect(ledger.path) as connection:
        found = [row[0] for row in connection.execute("SELECT label FROM charges ORDER BY id")]
    connection.close()
    return found


def user(value, sensitivity=1.0, **others):
    return Bounded(value, counted(sensitivity), **others)


def test_every_release_is_charged_once_and_drawn_once():
    """A7, over 60 random runs: the calls of the noise source, from their sd, add up to the charges.

    Killed: a release that is not appended, noise divided by the sensitivity, a stream charged per block.
    """
    generator = np.random.default_rng(0)
    for _ in range(60):
        budget = Budget(float(generator.uniform(0.1, 20)), 1e-6)
        noise = RecordingNoise(SeededNoise(0))
        accountant = Accountant(budget, noise=noise)
        fractions = generator.dirichlet(np.ones(generator.integers(1, 12))).tolist()
        spent = []
        for number, fraction in enumerate(fractions):
            sensitivity = float(10 ** generator.uniform(-3, 3))
            scale = generator.uniform(0.5, 2, 3)
            noisy = accountant.release(
                user(np.zeros((2, 3)), sensitivity, weight=scale), budget.share(fraction), f"release {number}"
            )
            assert noisy.shape == (2, 3) and noise.calls[-1].label == f"release {number}"
            spent.append(np.mean(sensitivity / (noise.calls[-1].amount * scale)) ** 2)
        charged = math.fsum(release.mu**2 for release in accountant.releases)
        assert charged == pytest.approx(math.fsum(spent), rel=1e-13)
        assert accountant.spent_mu == pytest.approx(math.sqrt(charged), rel=1e-15)
        assert len(accountant.releases) == len(fractions)
        with pytest.raises(BudgetError):
            accountant.release(user(0.0), budget.share(1e-6), "one more")


def test_the_charge_is_durable_before_noise_is_drawn(tmp_path, monkeypatch):
    """Killed: noise drawn before `ledger.charge`."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    seen = []

    def spy(self, value, sd, label):
        seen.append((label, Ledger(tmp_path / "ledger.sqlite").summary("default", 1e-6).charges))
        return value

    monkeypatch.setattr(SystemNoise, "add_gaussian", spy)
    accountant = Accountant(BUDGET, ledger=ledger)
    accountant.release(user([1.0]), BUDGET.share(0.1), "a")
    accountant.release(user(np.ones(2)), BUDGET.share(0.1), "b")
    assert seen == [("a", 1), ("b", 2)]


def test_randomized_response():
    budget = Budget(2.0, 1e-6, "rating", "replace")
    labels = np.ones(200_000)
    one = Bounded(labels, counted(2), unit="rating", norm="labels")
    noisy = Accountant(budget).release(one, RandomizedResponse(2.0), "labels")
    assert np.mean(noisy == -1) == pytest.approx(1 / (1 + math.e), rel=0.03)


def test_a_plan_is_checked_before_anything_is_spent(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("default", BUDGET)
    half = Release("half", BUDGET.share(0.5), 1.0, "user", "add-remove")
    accountant = Accountant(Budget(2.0, 1e-6), ledger=ledger)
    accountant.check(Plan(accountant.budget, [half, half]))
    with pytest.raises(BudgetError, match="^This would bring data set"):  # the ledger's, and nothing was lost
        accountant.check(Plan(accountant.budget, [half, half, half]))
    with pytest.raises(BudgetError):
        Accountant(BUDGET).check(Plan(BUDGET, [half, half, half]))
    with pytest.raises(BudgetError):
        Plan(BUDGET, [half, half, half]).check()
    assert accountant.releases == ()


@pytest.mark.parametrize("kept", ["nowhere", "in a ledger", "in a journal"])
def test_threads_cannot_pass_the_budget(tmp_path, monkeypatch, kept):
    """Eight threads race for ten shares while each charge takes its time to the disk.

    Killed: the check, or the ledger, outside of the lock; a draw before its charge; two orders.
    """
    ledger = None if kept == "nowhere" else Ledger(tmp_path / "ledger.sqlite")
    append, draw = Book.append, SystemNoise.add_gaussian
    drawn, unpaid, share = [], [], BUDGET.share(0.1)

    def slowly(book, row):
        time.sleep(0.01)  # others come as far as the lock lets them
        head = append(book, row)
        time.sleep(0.01)
        return head

    def drawing(self, value, sd, label):
        unpaid.extend([] if ledger is None or label in in_order(ledger) else [label])
        drawn.append(label)
        return draw(self, value, sd, label)

    monkeypatch.setattr(Book, "append", slowly)
    monkeypatch.setattr(SystemNoise, "add_gaussian", drawing)
    accountant, won, numbers = Accountant(BUDGET, ledger=ledger), [], itertools.count()

    def race(thread):
        with contextlib.suppress(BudgetError):
            while True:
                won.append(accountant.release(user(np.zeros(2)), share, f"{next(numbers)} of {thread}"))

    journaled = accountant.training(NOTHING) if kept == "in a journal" else contextlib.nullcontext()
    with journaled, ThreadPoolExecutor(8) as pool:
        list(pool.map(race, range(8)))
    charged = [release.label for release in accountant.releases]
    assert len(won) == len(charged) == 10 and sorted(drawn) == sorted(charged) and not unpaid
    assert np.unique(won).size == 20
    assert ledger is None or in_order(ledger) == charged


def test_a_budget_refuses_what_does_not_fit():
    """Killed: >= for >, a refused release that is recorded anyway. The formula of Balle and Wang 2018."""
    accountant = Accountant(BUDGET)
    accountant.release(user(0.0), BUDGET.share(0.5), "a")
    with pytest.raises(BudgetError, match=r"delta = 1e-06 \(unit: user, relation: add-remove\)") as refused:
        accountant.release(user(0.0), BUDGET.share(0.51), "b")
    epsilon, mu = float(str(refused.value).split("epsilon = ")[1].split()[0]), BUDGET.mu * math.sqrt(1.01)
    normal = NormalDist().cdf
    delta = normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-6, rel=1e-4)
    for mechanism in (Gaussian(0.0), Gaussian(1e-320)):
        with pytest.raises(BudgetError):
            accountant.release(user(0.0), mechanism, "c")
    assert [release.label for release in accountant.releases] == ["a"]
    accountant.release(user(0.0), BUDGET.share(0.5), "d")


def test_what_is_left_of_a_budget_and_parts_of_it():
    """Killed: a share of the whole budget, and noise for what rounding leaves of one."""
    accountant = Accountant(BUDGET)
    assert (accountant.remaining_fraction, accountant.part(), accountant.part(0.5)) == (1.0, 1.0, 0.5)
    for share in (-0.1, 1.1, math.nan):
        with pytest.raises(InputError, match="share"):
            accountant.part(share)
    accountant.release(user(0.0), BUDGET.share(0.3), "a")
    assert accountant.remaining_fraction == pytest.approx(0.7, rel=1e-12)
    assert accountant.part(0.5) == pytest.approx(0.35, rel=1e-12)
    for rest, used_up in ((1.2e-9, False), (0.8e-9, True), (0.0, True), (-4e-13, True)):
        other = Accountant(BUDGET)
        other.release(user(0.0), Gaussian(1 / (BUDGET.mu * math.sqrt(1 - rest))), "a")
        assert other.remaining_fraction == pytest.approx(max(rest, 0.0), rel=1e-3, abs=1e-15)
        if used_up:
            with pytest.raises(BudgetError, match="This accountant is used up"):
                other.part(0.5)
        else:
            assert other.part(0.5) == pytest.approx(rest / 2, rel=1e-3)
    reserved = Budget(3.0, 1e-6, failure=1e-6)
    accountant = Accountant(reserved, noise=SeededNoise(0))
    assert accountant.remaining_fraction == 1.0
    accountant.select(RepeatAndSelect.within(reserved, 5), "best", lambda inner: (None, 0.0))
    assert accountant.remaining_fraction == 0.0


def test_without_privacy_every_bit_is_left_and_nothing_is_used_up():
    """Epsilon = inf: the same bits in a new array, also scaled, of any sensitivity, and NOT PRIVATE."""
    budget = Budget(math.inf, 1e-6)
    value, accountant = np.array([[1 / 3, -0.0, 5e-324]]), Accountant(budget)
    for scale in (None, [1, math.sqrt(2), 3]):
        out = accountant.release(user(value, weight=scale), budget.share(0.2), "a", sensitivity=5.0)
        assert out.tobytes() == value.tobytes() and not np.shares_memory(out, value)
    assert not accountant.statement().private and accountant.remaining_fraction == 1.0


def test_unit_relation_and_norm_must_match():
    """Killed: a user-level aggregate charged to a rating-level budget, also in a run of a selection."""
    for unit, relation in (("rating", "add-remove"), ("user", "replace"), ("rating", "replace")):
        with pytest.raises(InputError, match="for unit"):
            Plan(BUDGET, [Release("a", Gaussian(9), 1, unit, relation)]).check()
    for wrong, mechanism in (
        (user([1.0], unit="rating"), BUDGET.share(0.1)), (user([1.0]), Laplace(100)),
        (user([1.0], norm="l1"), Gaussian(100)), (user([1.0], norm="labels"), RandomizedResponse(0.1)),
        (user([1.0, 1.0], weight=[1.0, 1e300]), BUDGET.share(0.1)),  # noise that vanishes
        (user([1.0, 1.0], weight=[1.0, 1e-320]), BUDGET.share(0.1)),
        (np.array([12345.5]), BUDGET.share(0.1)), ([12345.5], BUDGET.share(0.1)), (None, BUDGET.share(0.1)),
    ):  # fmt: skip
        accountant = Accountant(BUDGET)
        with pytest.raises(InputError) as caught:
            accountant.release(wrong, mechanism, "a")
        assert "12345" not in str(caught.value) and accountant.releases == ()
    with pytest.raises(InputError, match="for unit 'rating'"):
        Accountant(Budget(3.0, 1e-6, failure=5e-7)).select(
            RepeatAndSelect(1.0, 5e-7, 2),
            "best",
            lambda inner: (inner.release(user(0.0, unit="rating"), Gaussian(1000.0), "a"), 0.0),
        )


def test_a_bound_is_that_of_the_relation_and_must_be_the_planned_one():
    """Killed: bounds of add-remove under replace; a scale that the plan does not know."""
    value, scaled = Bounded(np.zeros(1), signed(1.0)), Bounded(np.zeros(1), signed(1.0), scale=1e9)
    for relation, sensitivity in (("add-remove", 1.0), ("replace", 2.0)):
        budget = Budget(1.0, 1e-6, relation=relation)
        accountant = Accountant(budget)
        accountant.release(value, budget.share(0.1), "a")
        accountant.release(value, budget.share(0.1), "a", sensitivity=sensitivity * (1 + 0.8e-9))
        for wrong, planned in (
            (value, 3 - sensitivity), (scaled, sensitivity), (value, sensitivity * (1 + 1.2e-9)),
            (value, sensitivity * (1 - 1.2e-9)),
        ):  # fmt: skip
            with pytest.raises(InputError, match="bound times scale"):
                accountant.release(wrong, budget.share(0.1), "a", sensitivity=planned)
        assert [each.sensitivity for each in accountant.releases] == [sensitivity, sensitivity * (1 + 0.8e-9)]


def test_a_fork_cannot_spend_the_same_budget_again():
    """Nothing is charged or drawn in a child, by any door."""
    noise = RecordingNoise(SeededNoise(0))
    accountant, context = Accountant(BUDGET, noise=noise), get_context("fork")
    results = context.SimpleQueue()

    def spend():
        for door in (
            lambda: accountant.release(user(0.0), BUDGET.share(0.1), "b"),
            lambda: accountant.select(RepeatAndSelect(0.1, 1e-9, 2.0), "d", lambda inner: (0, 1.0)),
        ):
            try:
                door()
                results.put("released")
            except BudgetError as error:
                results.put(str(error))
        results.put(len(accountant.releases) + len(noise.calls))

    child = context.Process(target=spend)
    child.start()
    child.join()
    assert "fork" in results.get() and "fork" in results.get() and results.get() == 0


def test_injected_noise_is_stamped_and_refused_by_a_ledger(tmp_path):
    """D7. Killed: the source's own word (an attribute `secure = True`) taken for it."""

    class Liar(SystemNoise):
        secure = True

    ledger = Ledger(tmp_path / "ledger.sqlite")
    for noise in (SeededNoise(1), RecordingNoise(SystemNoise()), Liar()):
        statement = Accountant(BUDGET, noise=noise).statement()
        assert not statement.private and not statement.secure_noise and "NOT PRIVATE" in statement.text()
        with pytest.raises(InputError, match="private runs only"):
            Accountant(BUDGET, noise=noise, ledger=ledger)
    for wrong in (
        {"data_is_public": True, "ledger": ledger},
        {"ledger": "ledger.sqlite"},
        {"dataset": "a\nb"},
    ):
        with pytest.raises(InputError):
            Accountant(BUDGET, **wrong)
    with pytest.raises(InputError):
        Accountant((1.0, 1e-6))
    assert Accountant(BUDGET, ledger=ledger).statement().ledger is None  # of nothing


def test_replay_returns_what_was_recorded_and_notices_what_depends_on_the_data():
    """The tool of the replay test: other data, the same releases, the same bits."""
    noise = RecordingNoise(SeededNoise(5))

    def run(value, calls, share=0.3, labels=("first", "second")):
        source = noise if calls is None else ReplayNoise(calls)
        accountant = Accountant(BUDGET, noise=source)
        noisy = [
            accountant.release(user(n * value), BUDGET.share(share), label) for n, label in enumerate(labels)
        ]
        assert calls is None or source.finished
        return np.concatenate(noisy).tobytes()

    recorded = run(np.zeros(3), None)
    assert run(np.full(3, 9.0), noise.calls) == recorded
    assert max(np.abs(call.residual).max() for call in noise.calls) < 5
    for other in (
        {"value": np.zeros(4)}, {"share": 0.2}, {"labels": ("second", "first")}, {"calls": noise.calls[:1]}
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            run(**{"value": np.zeros(3), "calls": noise.calls} | other)
