"""A training reserves its whole plan: with real processes that begin together, die, and are killed."""

import errno
import fcntl
import math
import os
import signal
import sqlite3
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from hushrec.errors import BudgetError, HushrecError, LedgerError
from hushrec.evaluation import compare
from hushrec.models import ItemBias, PrivateALS
from hushrec.privacy import (
    Accountant,
    Bounded,
    Budget,
    Laplace,
    Ledger,
    Plan,
    Release,
    RepeatAndSelect,
    Season,
    counted,
    epsilon_of,
)
from hushrec.privacy.schema import Book
from hushrec.testing import hostile_users, ratings_of
from hushrec.training.gate import LocalGate

FORK = get_context("fork")
BUDGET = Budget(2.0, 1e-6)
NOTHING = Plan(BUDGET, ())
ROWS = ratings_of(hostile_users(np.random.default_rng(5), 23))
MODEL = PrivateALS(rank=2, bias_rounds=2, iterations=2, features=False)
LABELS = ("first", "second", "third", "last")


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("default", BUDGET)
    return ledger


def times(number: float) -> Budget:
    """The budget of so many trainings."""
    return Budget(epsilon_of(math.sqrt(number) * BUDGET.mu * (1 + 1e-6), 1e-6), 1e-6)


def plan_of(fraction: float = 1.0) -> Plan:
    share = BUDGET.share(fraction / len(LABELS))
    return Plan(BUDGET, [Release(label, share, 1.0, "user", "add-remove") for label in LABELS])


def spent(ledger: Ledger) -> float:
    """Part of the budget's mu squared that was charged."""
    return ledger.summary("default", 1e-6).mu ** 2 / BUDGET.mu**2


def fits(ledger: Ledger, fraction: float) -> bool:
    try:
        ledger.check("default", plan_of(fraction).releases)
    except BudgetError:
        return False
    return True


def release(accountant: Accountant, plan: Plan, labels) -> None:
    gate = LocalGate(accountant, plan)
    for label in labels:
        gate.release(label, Bounded(np.zeros(2), counted(1.0)))


# trainings that begin together


def toy(ledger) -> None:
    """A training without a model or compiled code, which a forked process could not use."""
    accountant, plan = Accountant(BUDGET, ledger=ledger), plan_of()
    accountant.check(plan)
    time.sleep(0.05)  # as for reading files
    with accountant.training(plan):
        for label in LABELS:
            release(accountant, plan, [label])
            time.sleep(0.02)


def at_once(number, train):
    """Run in processes that begin together; the names of their errors."""

    def body(results, start):
        start.wait()
        try:
            train()
        except HushrecError as error:
            results.put((type(error).__name__, str(error)))
        else:
            results.put(("", ""))

    results, start = FORK.SimpleQueue(), FORK.Barrier(number)
    children = [FORK.Process(target=body, args=(results, start)) for _ in range(number)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * number
    return sorted(results.get() for _ in children)


@pytest.mark.true("L2")
@pytest.mark.parametrize("room, number", [(1, 2), (2, 4), (0.99, 3)])
def test_trainings_that_begin_together_are_made_or_charge_nothing(tmp_path, room, number):
    """Killed: a plan that is checked and not reserved: all stop halfway without a model."""
    for attempt in range(3):
        ledger = Ledger(tmp_path / f"{attempt}.sqlite")
        ledger.open_dataset("default", times(room))
        came = at_once(number, lambda ledger=ledger: toy(ledger))
        assert [name for name, _ in came] == [""] * int(room) + ["BudgetError"] * (number - int(room))
        assert all("\n" not in words for _, words in came)
        history = ledger.history("default", 1e-6)
        assert len(history) == int(room) and spent(ledger) == pytest.approx(int(room))
        assert ledger.summary("default").running == 0


@pytest.mark.parametrize("shared", [False, True])
def test_threads_that_begin_together_are_made_or_charge_nothing(ledger, shared):
    """With an accountant each, and with one of which the second thread finds nothing left."""
    one, start = Accountant(BUDGET, ledger=ledger), threading.Barrier(3)

    def train(_):
        start.wait(30)
        MODEL.fit(ROWS, one if shared else Accountant(BUDGET, ledger=ledger))

    with ThreadPoolExecutor(3) as pool:
        came = [future.exception() for future in [pool.submit(train, number) for number in range(3)]]
    assert sorted(type(error).__name__ for error in came) == ["BudgetError", "BudgetError", "NoneType"]
    assert spent(ledger) == pytest.approx(1.0) and ledger.summary("default").running == 0


# how a training ends


def begin(ledger, end):
    """A training in a separate process that stops after its first release, until the test ends it."""

    def body(told, tell):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        accountant, plan = Accountant(BUDGET, ledger=ledger), plan_of()
        with accountant.training(plan):
            release(accountant, plan, LABELS[:1])
            if end == "orphan" and os.fork() == 0:  # it outlives the training
                time.sleep(2)
                os._exit(0)
            tell.put(os.getpid())
            told.wait(60)
            if end == "exception":
                raise ValueError
            if end == "exit":
                os._exit(3)

    told, tell = FORK.Event(), FORK.SimpleQueue()
    process = FORK.Process(target=body, args=(told, tell))
    process.start()
    assert tell.get() == process.pid
    return process, told


@pytest.mark.true("L2")
@pytest.mark.parametrize("end", ["early stop", "exception", "exit", "SIGKILL", "SIGINT", "orphan"])
def test_the_rest_is_free_when_a_training_has_ended_however(ledger, end, tmp_path):
    """While it runs, requests for its reserve are refused and all views of the remainder count it."""
    process, told = begin(ledger, end)
    try:
        with pytest.raises(BudgetError, match=r"what 1 running training reserves.*wait until the running"):
            MODEL.fit(ROWS, Accountant(BUDGET.part(0.5), ledger=ledger))
        with pytest.raises(BudgetError, match="1 running training reserves"):
            ledger.open_season("default", Season(BUDGET.part(0.2)))
        with pytest.raises(BudgetError, match="1 running training reserves"):
            ledger.open_dataset("default", BUDGET.part(0.5))
        assert spent(ledger) == pytest.approx(0.25)
        summary = ledger.summary("default")
        assert summary.shares == pytest.approx({"spent": 0.25, "reserved": 0.75, "free": 0.0}, abs=1e-6)
        assert "nothing is left of it, next to what 1 running training reserves" in ledger.left("default")
        running, others = ledger.shares("default")
        assert f"process {process.pid} on " in running.what and others.reserved == 0
        assert (running.reserved, others.spent) == pytest.approx((0.75 * BUDGET.mu**2, 0.25 * BUDGET.mu**2))
        assert "running" not in summary.to_dict() and not fits(ledger, 0.01)
    finally:
        if end.startswith("SIG") or end == "orphan":
            os.kill(process.pid, signal.SIGINT if end == "SIGINT" else signal.SIGKILL)
        else:
            told.set()
        process.join(30)
    assert fits(ledger, 0.74) and not fits(ledger, 0.76)
    with Accountant(BUDGET.part(0.74), ledger=ledger).training(NOTHING):
        pass
    model = ItemBias().fit(ROWS, Accountant(BUDGET.part(0.74), ledger=ledger))
    assert spent(ledger) == pytest.approx(0.99) and model.privacy.ledger.running == 0
    assert ledger.summary("default").running == 0 and not list(tmp_path.glob("*.trainings/*.lock"))


def test_a_training_that_is_resumed_reserves_what_it_has_not_charged(ledger):
    process, told = begin(ledger, "SIGKILL")
    resumed = Accountant(BUDGET, ledger=ledger, resume=True)
    with pytest.raises(HushrecError, match="still running"), resumed.training(plan_of()):
        pass
    process.kill()
    process.join()
    resumed = Accountant(BUDGET, ledger=ledger, resume=True)
    with resumed.training(plan_of()):
        assert ledger.summary("default").running == pytest.approx(0.75 * BUDGET.mu**2)
        release(resumed, plan_of(), LABELS)
    assert spent(ledger) == pytest.approx(1.0)


@pytest.mark.parametrize("edit", ["DELETE FROM reservations", "UPDATE reservations SET mu = 1000"])
def test_no_promise_depends_on_a_reservation(ledger, edit):
    """After an edit of the table at most one total is charged."""
    accountant, plan = Accountant(BUDGET, ledger=ledger), plan_of()
    with pytest.raises(BudgetError), accountant.training(plan):
        with sqlite3.connect(ledger.path) as connection:
            connection.execute(edit)
        connection.close()
        if "DELETE" in edit:
            MODEL.fit(ROWS, Accountant(BUDGET.part(0.9), ledger=ledger))
        release(accountant, plan, LABELS)
    assert spent(ledger) <= 1 + 1e-9


def test_a_reservation_pays_for_pure_releases(tmp_path):
    """Each takes its epsilon from the reservation: the two fit the budget, and a third never does."""
    ledger, pure = (
        Ledger(tmp_path / "ledger.sqlite"),
        Release("pure", Laplace(1.0), 1.0, "user", "add-remove"),
    )
    ledger.open_dataset("default", BUDGET)  # epsilon 2, in which mu of two is far beyond the budget's
    reservation = ledger.reserve("default", [pure, pure])
    for step in (0, 1):
        with pytest.raises(BudgetError, match="past its budget"):
            ledger.charge("default", "another", pure)
        ledger.charge("default", "run", pure, step=step, reservation=reservation)
    reservation.close()
    assert ledger.summary("default").epsilon == pytest.approx(2.0)
    with pytest.raises(BudgetError, match="past its budget"):
        ledger.charge("default", "another", pure)


def test_a_reservation_keeps_the_failures_of_choices_to_come(tmp_path):
    ledger, choice = Ledger(tmp_path / "ledger.sqlite"), RepeatAndSelect(0.1, 4e-7, 2.0)
    ledger.open_dataset("default", Budget(50.0, 1e-6, failure=8e-7))
    release = Release("choice", choice, 1.0, "user", "add-remove")
    reservation = ledger.reserve("default", [release, release])
    for step in (0, 1):
        with pytest.raises(BudgetError, match="probabilities of failure"):
            ledger.charge("default", "another", release)
        ledger.charge("default", "run", release, step=step, reservation=reservation)
    reservation.close()


def test_a_reservation_that_cannot_be_written_leaves_no_file_and_closes_no_other(ledger, monkeypatch):
    plan, locks = plan_of(0.1), lambda: list(ledger.trainings.glob("*.lock"))
    held = ledger.reserve("default", plan.releases)
    with monkeypatch.context() as full:
        full.setattr(Book, "put_reservation", lambda *_: (_ for _ in ()).throw(OSError(28, "No space")))
        for reservation in (None, held):
            with pytest.raises(LedgerError):
                ledger.reserve("default", plan.releases, reservation=reservation)
            assert len(locks()) == 1
    assert ledger.summary("default").running == pytest.approx(0.1 * BUDGET.mu**2)
    held.close()
    assert not locks() and ledger.summary("default").running == 0


def test_a_comparison_reserves_all_its_runs(ledger, monkeypatch):
    """Killed: runs that are checked together and then trained while others take the budget."""
    seen, module = [], sys.modules["hushrec.evaluation.compare"]
    train = module.train

    def meanwhile(*words, **options):
        assert fits(ledger, 0.99 - 0.1 * sum(seen)) and not fits(ledger, 1.01 - 0.1 * sum(seen))
        if len(seen) == 2:
            raise KeyboardInterrupt
        return train(*words, **options)

    monkeypatch.setattr(module, "train", meanwhile)
    grid = {"models": ["item-bias"], "epsilons": [BUDGET.part(0.1).epsilon], "delta": 1e-6}
    options = {"ledger": ledger, "on_price": lambda number, epsilon: seen.append(number)}
    compare(ROWS, ROWS, **grid, **options)
    assert spent(ledger) == pytest.approx(0.1 * seen[0])
    with pytest.raises(KeyboardInterrupt):
        compare(ROWS, ROWS, **grid, **options)
    assert len(seen) == 2 and fits(ledger, 0.99 - 0.1 * seen[0]) and ledger.summary("default").running == 0


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_file_locks_nothing_is_trained(ledger, monkeypatch, code, tmp_path):
    """As on some network file systems: one sentence, and nothing is charged."""

    def no_locks(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(LedgerError, match="has no file locks.*keep the ledger on a local disk") as caught:
        MODEL.fit(ROWS, Accountant(BUDGET, ledger=ledger))
    assert "\n" not in str(caught.value) and spent(ledger) == 0
    assert ledger.summary("default").running == 0 and not list(tmp_path.glob("*.trainings/*"))
