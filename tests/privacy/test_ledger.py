"""The ledger: its refusals, its recovery, and that it fails closed (trust tests D1, D2, D3)."""

import contextlib
import hashlib
import json
import math
import os
import resource
import shutil
import signal
import sqlite3
import sys
import time
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from hushrec import disk
from hushrec.engines.two_servers.book import Book as TwoServersBook
from hushrec.errors import BudgetError, HushrecError, InputError, LedgerError
from hushrec.papers.masked.client import PrivateKey
from hushrec.privacy import (
    Accountant,
    Attendance,
    Bounded,
    Budget,
    Gaussian,
    Ledger,
    Release,
    RepeatAndSelect,
    Season,
    SystemNoise,
    counted,
    default_path,
    epsilon_of,
    schema,
)
from hushrec.privacy.budget import guarantee
from hushrec.privacy.ledger_records import LedgerSummary
from hushrec.privacy.schema import Book
from hushrec.privacy.season import Week
from hushrec.serving.modelfile import write_atomically

BUDGET = Budget(1.0, 1e-6)
FORK = get_context("fork")


@pytest.fixture
def path(tmp_path):
    (tmp_path / "state").mkdir()
    return tmp_path / "state" / "ledger.sqlite"


@pytest.fixture
def no_noise(monkeypatch):
    """Fail the test if noise is drawn: nothing may be released."""

    def drawn(*_):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(SystemNoise, "add_gaussian", drawn)


def share(fraction, label="a", unit="user", relation="add-remove"):
    return Release(label, BUDGET.share(fraction), 1.0, unit, relation)


def release_once(ledger, fraction=0.1, dataset="default", budget=BUDGET):
    bounded = Bounded(np.zeros(2), counted(1), unit=budget.unit)
    return Accountant(budget, ledger=ledger, dataset=dataset).release(bounded, BUDGET.share(fraction), "a")


def change(path, statement, *values):
    with sqlite3.connect(path) as connection:
        connection.execute(statement, values)
    connection.close()


# budgets, data sets, units


def test_a_budget_is_shared_by_all_runs(path, no_noise):
    """Killed: the check after the charge, the comparison per run."""
    ledger = Ledger(path)
    ledger.open_dataset("default", BUDGET)
    ledger.charge("default", "earlier", share(0.95))
    with pytest.raises(BudgetError, match="over all its runs"):
        release_once(ledger)
    summary = ledger.summary("default")
    assert (summary.charges, summary.delta, summary.budget) == (1, 1e-6, BUDGET)
    ledger.charge("default", "later", share(0.05))
    ledger.charge("another", "later", share(1.0))


def test_a_budget_can_only_be_lowered(path):
    ledger = Ledger(path)
    ledger.open_dataset("d", Budget(2.0, 1e-6))
    ledger.open_dataset("d", Budget(2.0, 1e-6))
    cheaper_as_gaussian = Budget(3.0, 1e-60), Budget(0.1, 0.05)
    for larger in (Budget(2.1, 1e-6), Budget(2.0, 1.1e-6), *cheaper_as_gaussian):
        with pytest.raises(BudgetError, match="neither its epsilon nor its delta can be raised"):
            ledger.open_dataset("d", larger)
    ledger.open_dataset("d", BUDGET)
    ledger.charge("d", "run", share(0.5))
    spent = BUDGET.spell(epsilon_of(math.sqrt(0.5) * BUDGET.mu, 1e-6))
    with pytest.raises(BudgetError) as caught:
        ledger.open_dataset("d", Budget(0.5, 1e-6))
    assert f"has been charged {spent} already, past a budget of epsilon = 0.5" in str(caught.value)
    assert Ledger(path).summary("d").budget == BUDGET
    for wrong in (Budget(math.inf, 1e-6), None, 1.0):
        with pytest.raises(InputError):
            ledger.open_dataset("d", wrong)


def test_the_reserve_is_chosen_before_the_first_charge(path):
    """Killed: a reserve that depends on the releases, a budget read back without it."""
    ledger = Ledger(path)
    best = Release("best", RepeatAndSelect(0.01, 5e-7, 2.0), 1.0, "user", "add-remove")
    plain, reserved = Budget(5.0, 1e-6), Budget(5.0, 1e-6, failure=5e-7)
    ledger.open_dataset("d", plain)
    with pytest.raises(BudgetError, match="ledger open --failure 5e-07"):
        ledger.charge("d", "run", best)
    ledger.open_dataset("d", reserved)
    ledger.charge("d", "run", best)
    assert Ledger(path).summary("d").budget == reserved
    assert LedgerSummary.from_dict(ledger.summary("d").to_dict()) == ledger.summary("d")
    with pytest.raises(BudgetError, match="past its budget"):
        ledger.charge("d", "run", Release("sums", Budget(4.9, 1e-6).share(1.0), 1.0, "user", "add-remove"))
    with pytest.raises(BudgetError, match="reserves 5e-07"):
        ledger.charge("d", "run", best)
    ledger.open_dataset("later", reserved)
    ledger.charge("later", "run", share(0.1))
    ledger.open_dataset("later", reserved)  # nothing is raised
    for other in (plain, Budget(5.0, 1e-6, failure=6e-7), Budget(5.0, 1e-6, failure=4e-7)):
        with pytest.raises(BudgetError, match="before the first charge only"):
            ledger.open_dataset("later", other)
    ledger.open_dataset("later", Budget(4.0, 9e-7, failure=4e-7))
    ledger.charge("sum", "run", best)
    with pytest.raises(BudgetError, match="reserves 0"):
        ledger.open_dataset("sum", plain)
    ledger.open_dataset("sum", reserved)


def test_epsilon_of_selections_that_leave_no_delta_is_told_at_more_of_it(path):
    """Without a budget; and never at a delta of 1."""
    ledger = Ledger(path)
    for dataset, delta in (("small", 1e-6), ("middle", 0.45), ("large", 0.6)):
        chosen = Release("a", RepeatAndSelect(0.1, delta, 2.0), 1.0, "user", "add-remove")
        ledger.charge(dataset, "r", chosen)
        ledger.charge(dataset, "r", share(0.1))
    assert ledger.summary("small", 1e-6).delta == 2e-6 and ledger.summary("small", 1e-6).epsilon < math.inf
    assert ledger.summary("small", 1e-5).delta == 1e-5 and ledger.summary("middle", 0.45).delta == 0.9
    assert ledger.summary("large", 0.6).delta == 0.6 and ledger.summary("large", 0.6).epsilon == math.inf
    assert ledger.summary("large", 0.6).runs == 1 and ledger.summary("large", 0.6).charges == 2


@pytest.mark.true("D3")
def test_a_release_without_noise_is_recorded_for_good_or_refused(path):
    ledger = Ledger(path)
    exact = Release("exact", Gaussian(0.0), 1.0, "user", "add-remove")
    ledger.open_dataset("with budget", BUDGET)
    ledger.charge("with charges", "run", share(0.1))
    ledger.open_season("with season", Season(BUDGET))
    for promised in ("with budget", "with charges", "with season"):
        with pytest.raises(BudgetError, match="would break the promise.*pass another --dataset"):
            ledger.charge(promised, "run", exact)
    for release in (exact, share(0.1), exact):
        ledger.charge("without", "run", release)
    summary = Ledger(path).summary("without", 1e-6)
    assert summary.epsilon == summary.mu == math.inf
    assert str(summary).startswith("NOT PRIVATE")
    with pytest.raises(BudgetError):
        ledger.open_dataset("without", Budget(100.0, 1e-6))


# fail closed (D3)


def test_truncated_anywhere(path, tmp_path, no_noise, record_property):
    """After any cut, opening or charging fails; nothing is released."""
    ledger = Ledger(path)
    for run in range(40):
        ledger.charge("default", f"run {run}", share(0.01, label=f"label {run} " + "x" * 150))
    size = path.stat().st_size
    assert size > 4 * 4096
    for kept in [0, 1, 100, 4095, *range(4096, size, 4096), size - 1]:
        cut = tmp_path / f"cut {kept}"
        shutil.copy(path, cut)
        os.truncate(cut, kept)
        with pytest.raises(LedgerError):
            release_once(Ledger(cut))
        record_property("failures", 1)
    os.truncate(path, 4096)
    with pytest.raises(LedgerError):
        release_once(ledger)


TAMPERING = [
    "UPDATE charges SET mu = mu / 2 WHERE id = 2",
    "UPDATE charges SET dataset = 'other' WHERE id = 2",
    "UPDATE charges SET label = 'b' WHERE id = 3",
    "DELETE FROM charges WHERE id = 1",
    "DELETE FROM charges WHERE id = 3",
    "DELETE FROM charges",
    "INSERT INTO charges SELECT 4, dataset, run, time, label, mechanism, sensitivity, mu, epsilon, failure, "
    "unit, relation, season, step, hash, hash FROM charges WHERE id = 3",
    "UPDATE head SET count = 2, hash = (SELECT hash FROM charges WHERE id = 2)",
    "DELETE FROM head",
    "UPDATE datasets SET epsilon = 100",
    "UPDATE datasets SET closed = 1",
    "UPDATE datasets SET epsilon = NULL, delta = NULL",
    "DELETE FROM datasets",
    "DELETE FROM datasets WHERE name = 'without charges'",
    "INSERT OR REPLACE INTO datasets VALUES ('lowered', 'user', 'add-remove', 1.0, 1e-6, 0, 0)",
    "UPDATE datasets SET failure = delta",
    "INSERT INTO seasons VALUES ('default', '2026', 0.5, 0.5, 1.0, 1e-6, 0, 0)",
    "INSERT INTO journal VALUES (1, 'file', 'digest')",
    "UPDATE charges SET step = 1 WHERE id = 2",
    "UPDATE charges SET hash = '0' WHERE id = 3",
    "DROP TABLE charges",
    "PRAGMA user_version = 99",
]  # fmt: skip


@pytest.mark.parametrize("tampering", TAMPERING)
def test_tampering_is_found(path, tmp_path, tampering, no_noise, record_property):
    """A new process finds it, and one that has the file open. Killed: no check of head, of data sets."""
    ledger = Ledger(path)
    ledger.open_dataset("default", BUDGET)
    ledger.open_dataset("without charges", BUDGET)
    ledger.open_dataset("lowered", Budget(0.5, 1e-6))
    for run in range(3):
        ledger.charge("default", f"run {run}", share(0.1))
    change(path, tampering)
    if not tampering.startswith("UPDATE charges") or "hash" in tampering:
        with pytest.raises(LedgerError):  # other rows that were verified are verified again by who opens it
            release_once(ledger)
    with pytest.raises(LedgerError):
        release_once(Ledger(path))
    record_property("failures", 2)


def test_a_charge_that_was_changed_with_its_hash_breaks_the_chain(path, no_noise):
    """The next charge holds the hash that it had. Oracle: SHA-256 of the row in JSON."""
    ledger = Ledger(path)
    for run in range(3):
        ledger.charge("default", f"run {run}", share(0.1))
    change(path, "UPDATE charges SET mu = mu / 2 WHERE id = 2")
    with sqlite3.connect(path) as connection:
        (row,) = connection.execute("SELECT * FROM charges WHERE id = 2")
    connection.close()
    change(
        path,
        "UPDATE charges SET hash = ? WHERE id = 2",
        hashlib.sha256(json.dumps(row[:-1]).encode()).hexdigest(),
    )
    with pytest.raises(LedgerError, match="hash chain"):
        Ledger(path)


def test_an_older_copy_put_back_is_found_by_whoever_has_it_open(path, tmp_path, no_noise, record_property):
    ledger = Ledger(path)
    ledger.charge("default", "run", share(0.1))
    shutil.copy(path, tmp_path / "old")
    ledger.charge("default", "run", share(0.9))
    shutil.copy(tmp_path / "old", path)
    with pytest.raises(LedgerError):
        release_once(ledger)
    record_property("failures", 1)


def test_a_ledger_that_disappears(path, no_noise, record_property):
    ledger = Ledger(path)
    ledger.open_dataset("default", BUDGET)
    path.unlink()
    with pytest.raises(LedgerError):
        release_once(ledger)
    Path(f"{path}-wal").write_bytes(b"left by a killed process")
    with pytest.raises(LedgerError, match="its log ledger.sqlite-wal exists"):
        Ledger(path)
    record_property("failures", 2)


def test_locked_by_another_process(path, monkeypatch, no_noise, record_property):
    ledger = Ledger(path)
    ledger.open_dataset("default", BUDGET)
    monkeypatch.setattr(Ledger, "busy_timeout", 0.1)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="locked"):
        release_once(ledger)
    holder.close()
    ledger.charge("default", "run", share(0.1))
    assert ledger.summary("default", 1e-6).charges == 1
    record_property("failures", 1)


@pytest.mark.parametrize("year", [1, 9999])
def test_a_clock_that_jumps_moves_no_charge(path, monkeypatch, year, record_property):
    """Order and sums are those of the rows, the time is a note. Killed: charges sorted or filtered by it."""
    ledger = Ledger(path)
    ledger.open_dataset("default", BUDGET)
    ledger.charge("default", "before", share(0.6))

    class Clock:
        @staticmethod
        def now(zone):
            return datetime(year, 1, 1, tzinfo=zone)

    monkeypatch.setattr("hushrec.privacy.ledger.datetime", Clock)
    with pytest.raises(BudgetError):
        release_once(Ledger(path), 0.5)
    ledger.charge("default", "after", share(0.4))
    assert [row.run for row in Ledger(path).history("default", 1e-6)] == ["before", "after"]
    record_property("failures", 1)


def in_children(number, action, *arguments):
    """Run `action` in forked processes at once; return what each returned, or the exception's name."""

    def body(results):
        start.wait()
        try:
            results.put(action(*arguments))
        except Exception as error:
            results.put(type(error).__name__)

    results, start = FORK.SimpleQueue(), FORK.Event()
    children = [FORK.Process(target=body, args=(results,)) for _ in range(number)]
    for child in children:
        child.start()
    start.set()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * number
    return [results.get() for _ in children]


def test_read_only(path, no_noise, record_property):
    Ledger(path).charge("default", "run", share(0.1))

    def without_rights(file):
        path.parent.parent.chmod(0o755)
        path.parent.chmod(0o555)
        path.chmod(0o444)
        if os.getuid() == 0:
            os.setuid(65534)
        release_once(Ledger(file))

    for file in (path, path.with_name("new.sqlite")):
        assert in_children(1, without_rights, file) == ["LedgerError"]
    record_property("failures", 2)


def test_full_disk(path, no_noise, record_property):
    Ledger(path).charge("default", "run", share(0.1))

    def charge():
        ledger = Ledger(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        release_once(ledger)

    assert in_children(1, charge) == ["LedgerError"]
    assert Ledger(path).summary("default", 1e-6).charges == 1
    record_property("failures", 1)


def test_a_ledger_that_fails_says_so_in_one_sentence(path, monkeypatch):
    """Killed: a training that stopped in the middle is reported as one without releases."""
    ledger = Ledger(path)
    ledger.charge("default", "run", share(0.1))
    for error, reason in (
        (OSError(), "OSError"),
        (ValueError("one\ntwo"), "one"),
        (sqlite3.Error("full"), "full"),
    ):
        with monkeypatch.context() as patch, pytest.raises(LedgerError) as caught:
            patch.setattr(Book, "append", lambda *_, error=error: (_ for _ in ()).throw(error))
            ledger.charge("default", "run", share(0.1))
        said = str(caught.value)
        assert f"could not be used ({reason}), so nothing more was released" in said and "--resume" in said
        assert "\n" not in said
    assert ledger.summary("default", 1e-6).charges == 1


# many processes (D2) and kills (D1)


@pytest.mark.parametrize("races", [1, pytest.param(50, marks=pytest.mark.full)])
def test_processes_race_for_the_last_of_a_budget(tmp_path, races, record_property):
    """Eight processes, 40 shares of 2.5 %. Killed: the check in a separate transaction."""

    def race(path):
        ledger, won = Ledger(path), 0
        with contextlib.suppress(BudgetError):
            while True:
                release_once(ledger, 0.025)
                won += 1
        return won

    for number in range(races):
        path = tmp_path / f"{number}.sqlite"
        Ledger(path).open_dataset("default", BUDGET)
        won = sum(in_children(8, race, path))
        assert won == 40 == Ledger(path).summary("default").charges
        record_property("races", 1)
        record_property("shares", 40)
        record_property("spent", won)


def test_a_ledger_that_another_process_creates_meanwhile_is_not_gone(path, monkeypatch):
    Ledger(path).open_dataset("default", BUDGET)
    seen, exists = [], Path.exists
    monkeypatch.setattr(Path, "exists", lambda each: exists(each) if each in seen else seen.append(each))
    with contextlib.closing(sqlite3.connect(path)) as other:  # its log is there as long as it is open
        other.execute("BEGIN IMMEDIATE").execute("UPDATE head SET tables = tables")
        other.commit()
        seen.extend({Path(f"{path}-wal"), path.parent})
        assert Ledger(path).datasets() == ["default"]


def release_for_ever(path, released, model):
    """Charge, release, report, and save a model every fifth time, as a training does."""
    ledger, number = Ledger(path), 0
    while True:
        release_once(ledger, 1e-6)
        os.write(released, b".")
        number += 1
        if number % 5 == 0:
            write_atomically(model, [bytes([number % 256]) * 4000] * 5)


@pytest.mark.parametrize("kills", [10, pytest.param(1000, marks=pytest.mark.full)])
def test_kills_never_lose_a_charge(path, tmp_path, kills, record_property):
    """SIGKILL at random times: at least as many charges as releases, the ledger opens, the model is whole.

    Killed: the charge committed after the release.
    """
    log, model = tmp_path / "released", tmp_path / "model.hush"
    release_once(Ledger(tmp_path / "before.sqlite"))  # compiled code is loaded once, not by each child
    generator = np.random.default_rng(0)
    for _ in range(kills):
        released = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        child = FORK.Process(target=release_for_ever, args=(path, released, model))
        child.start()
        enough = log.stat().st_size + int(generator.integers(1, 6))
        while log.stat().st_size < enough:
            assert child.is_alive()
            time.sleep(1e-4)
        time.sleep(float(generator.exponential(0.003)))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        os.close(released)
        charges, releases = Ledger(path).summary("default", 1e-6).charges, log.stat().st_size
        assert charges >= releases
        if model.exists():
            content = model.read_bytes()
            assert len(content) == 20_000 and len(set(content)) == 1
    record_property("kills", kills)
    record_property("charges", charges)
    record_property("releases", releases)


def test_who_creates_a_ledger_second_finds_the_first_ones_charges(path, monkeypatch):
    """Killed: an empty ledger that takes the place of one that another process created meanwhile."""
    create, first = schema.create, []

    def slowly(*given):
        if not first:
            first.append(path)
            release_once(Ledger(path))  # another process is quicker
        create(*given)

    monkeypatch.setattr(schema, "create", slowly)
    assert Ledger(path).summary("default", 1e-6).charges == 1
    assert [each.name for each in path.parent.iterdir() if each.name.startswith(".")] == []


def test_a_ledger_of_another_schema_is_refused_and_not_kept_open(path):
    """A process that has it open refuses it too; on Windows an open file cannot be restored from a copy."""
    ledger, caught = Ledger(path), []
    ledger.open_dataset("d", BUDGET)
    for version in (0, 4, 99):
        change(path, f"PRAGMA user_version = {version}")
        for use in (lambda: ledger.charge("d", "run", share(0.1)), lambda: Ledger(path)):
            with pytest.raises(LedgerError, match=f"has schema {version}") as refused:
                use()
            caught.append(refused)  # whose frames would have kept it
    if sys.platform.startswith("linux"):
        assert path.resolve() not in {
            Path(f"/proc/self/fd/{n}").resolve() for n in os.listdir("/proc/self/fd")
        }


def contents(folder):
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


@pytest.mark.true("L1")
@pytest.mark.parametrize("log", ["wal", "delete"])
def test_a_file_that_is_no_ledger_is_left_byte_for_byte(tmp_path, log):
    """Its log too, which SQLite would apply and remove. Killed: a file that is opened before it is known."""
    made, left = tmp_path / "made", tmp_path / "left"
    made.mkdir()
    with contextlib.closing(sqlite3.connect(made / "ledger.sqlite", isolation_level=None)) as writer:
        writer.execute(f"PRAGMA journal_mode = {log}")
        writer.execute("PRAGMA application_id = 0x68757368")  # as before the first release
        writer.execute("PRAGMA user_version = 5")
        writer.execute("CREATE TABLE charges (x)")
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # one that was closed once
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("BEGIN IMMEDIATE")
        writer.executemany("INSERT INTO charges VALUES (?)", [("x" * 3000,)] * 100)
        if log == "wal":
            writer.execute("COMMIT")
        shutil.copytree(made, left)  # as a kill leaves them
        writer.rollback()
    (left / "ledger.sqlite-shm").unlink(missing_ok=True)
    before = contents(left)
    assert len(before) == 2
    other = left / "text"
    for create in (True, False):
        with pytest.raises(LedgerError, match="is not a ledger; check the path") as caught:
            Ledger(left / "ledger.sqlite", create=create)
        assert "\n" not in str(caught.value) and contents(left) == before
    for content in (b"", b"notes", b"SQLite format 3\0", os.urandom(5000)):
        other.write_bytes(content)
        with pytest.raises(LedgerError, match="is not a ledger"):
            Ledger(other)
        assert contents(left) == before | {"text": content}
    for name in before.keys() - {"ledger.sqlite"}:  # a new ledger would take in what is there
        (left / "ledger.sqlite").unlink(missing_ok=True)
        with pytest.raises(LedgerError, match=f"its log {name} exists"):
            Ledger(left / "ledger.sqlite")
        assert contents(left) == {name: before[name], "text": content}


def test_a_history_adds_up_run_by_run(path):
    """Runs are in the order of their first charges. Oracle: squares, by hand."""
    ledger, mu = Ledger(path), BUDGET.mu
    for run, part in (("r", 0.1), ("s", 0.2), ("r", 0.3), ("t", 0.4)):
        ledger.charge("d", run, share(part))
        ledger.charge("other", "r", share(1.0))
    summary, rows = Ledger(path).summary("d", 1e-5), Ledger(path).history("d", 1e-5)
    assert (summary.charges, summary.runs, summary.epsilon) == (4, 3, rows[-1].epsilon)
    assert [(each.run, each.charges) for each in rows] == [("r", 2), ("s", 1), ("t", 1)]
    for each, total in zip(rows, (0.4, 0.6, 1.0)):
        assert each.mu == pytest.approx(math.sqrt(total) * mu)
        assert each.epsilon == pytest.approx(epsilon_of(math.sqrt(total) * mu, 1e-5))
        assert abs((datetime.fromisoformat(each.time) - datetime.now(UTC)).total_seconds()) < 100


def test_a_numbered_release_is_charged_once(path):
    """Killed: a step that is not looked for, in another run, another data set."""
    ledger = Ledger(path)
    for dataset, run, step in (("d", "run", 3), ("d", "run", 4), ("d", "again", 3), ("e", "run", 3)):
        ledger.charge(dataset, run, share(0.1), step=step)
        ledger.charge(dataset, run, share(0.1))
    with pytest.raises(BudgetError, match="charged already"):
        Ledger(path).charge("d", "run", share(0.1), step=3)
    assert list(ledger.numbered("d", "run")) == [3, 4]


def test_one_unit_and_relation_per_data_set(path):
    """Killed: a rating-level charge added to user-level ones."""
    ledger = Ledger(path)
    ledger.charge("d", "run", share(0.1))
    for protects in (("rating", "add-remove"), ("user", "replace")):
        other = share(0.1, "a", *protects)
        for call in (
            lambda other=other: ledger.charge("d", "run", other),
            lambda other=other: ledger.check("d", [other]),
            lambda protects=protects: ledger.open_dataset("d", Budget(1.0, 1e-6, *protects)),
        ):
            with pytest.raises(InputError, match="another data-set name"):
                call()
    ledger.charge("e", "run", share(0.1, unit="rating"))
    assert ledger.summary("d", 1e-6).charges == 1


def test_a_closed_data_set_is_charged_no_more(path, no_noise):
    """Killed: a budget opened again, a data set without budget left open."""
    ledger = Ledger(path)
    for dataset in ("default", "without budget"):
        ledger.charge(dataset, "run", share(0.1))
        if dataset == "default":
            ledger.open_dataset("default", BUDGET)
        ledger.close_dataset(dataset)
        for call in (
            lambda dataset=dataset: release_once(Ledger(path), dataset=dataset),
            lambda dataset=dataset: ledger.open_dataset(dataset, BUDGET),
        ):
            with pytest.raises(BudgetError, match="closed"):
                call()
        assert ledger.summary(dataset, 1e-6).closed and ledger.summary(dataset, 1e-6).charges == 1


def test_files_that_are_no_ledger(path, tmp_path):
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger(path, create=False)
    assert not path.exists()
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("not a database, but long enough to be read as one\n" * 100)
    change(tmp_path / "other.sqlite", "CREATE TABLE t (x)")
    os.mkfifo(tmp_path / "pipe")
    for wrong in ("empty", "text", "other.sqlite", ".", "pipe", "empty/below", "nul\0byte"):
        with pytest.raises(LedgerError, match="is not a ledger|could not be used|no ledger") as caught:
            Ledger(tmp_path / wrong)
        assert "--resume" not in str(caught.value)
    with pytest.raises(InputError):
        Ledger(None)


def test_how_a_file_is_made_and_where(path, monkeypatch, caplog):
    """For its owner alone, in a folder that exists or is its own, with a write-ahead log, and on the disk.

    A power cut after the first charge must not lose its name; SQLite syncs only its content.
    """
    synced = []
    monkeypatch.setattr(
        "hushrec.privacy.ledger.sync_folder", lambda folder: synced.append((folder, path.exists()))
    )
    with pytest.raises(LedgerError, match="no folder .*/typo' .*check the path"):
        Ledger(path.parent / "typo" / "ledger.sqlite")
    monkeypatch.setenv("XDG_STATE_HOME", str(path.parent / "a"))
    path = path.parent / "a" / "hushrec" / "ledger.sqlite"
    with contextlib.closing(Ledger(path)._connect()) as connection:
        names = ("journal_mode", "fullfsync", "synchronous")
        found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
    assert found == ["wal", 1, 2] and synced == [(path.parent, True)]
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert list(path.parent.iterdir()) == [path]
    Ledger(path)
    assert caplog.messages == [f"Created a new ledger at {path}; charges in other ledgers are not counted."]
    monkeypatch.delenv("HUSHREC_LEDGER", raising=False)
    for platform, variable in (("linux", "XDG_STATE_HOME"), ("win32", "LOCALAPPDATA")):
        monkeypatch.setattr(sys, "platform", platform)
        monkeypatch.setenv(variable, "/state")
        assert default_path() == Path("/state/hushrec/ledger.sqlite")
    monkeypatch.setenv("HUSHREC_LEDGER", "/mine")
    assert default_path() == Path("/mine")


def test_a_training_that_was_killed_while_it_created_the_ledger_leaves_one_name(path):
    Ledger(path).charge("d", "run", share(0.1))
    os.link(path, path.with_name(f".{path.name}.0123456789abcdef"))
    assert Ledger(path).summary("d", 1e-6).charges == 1 and path.stat().st_nlink == 1


def keeps_ledger(path):
    Ledger(path).charge("d", os.urandom(4).hex(), share(0.1))


def keeps_attendance(path):
    Attendance(path).admit(Week(Season(BUDGET), 0, "d", "run"), None, ["ann"])


def keeps_a_server(path):
    book = TwoServersBook(path.parent)
    if (kept := book.get(path.name)) is None:
        book.put(path.name, b"answer")
    assert kept in (None, b"answer")


def keeps_a_key(path):
    PrivateKey.create(path, "node", "catalogue").save()


@pytest.mark.parametrize("keeps", [keeps_ledger, keeps_attendance, keeps_a_server, keeps_a_key])
def test_a_file_that_keeps_a_promise_has_one_name(path, tmp_path, monkeypatch, keeps):
    """A second name has logs and locks of its own, and a new version of the file is under one name only."""
    keeps(path)
    second = path.with_name("second")
    os.link(path, second)
    before = path.read_bytes()
    for name in (path, second):
        with pytest.raises(HushrecError, match=f"{name.name}' has a second name .a hard link.*remove the"):
            keeps(name)
    second.unlink()
    mounts = tmp_path / "mountinfo"
    escaped = str(path).replace("/state", "/st\\141te")
    mounts.write_text(f"1 2 0:3 / / rw - x x rw\n4 1 0:3 /a {escaped} rw - x x rw\n")
    monkeypatch.setattr(disk, "_MOUNTS", mounts)
    with pytest.raises(HushrecError, match="mounted apart from its folder .*mount the whole folder"):
        keeps(path)
    for beside in ("-wal", "-shm", ".trainings") if keeps is keeps_ledger else ():
        mounts.write_text(f"4 1 0:3 /a {escaped}{beside} rw - x x rw\n")
        (there := path.with_name(path.name + beside)).mkdir()
        with pytest.raises(LedgerError, match="mounted apart from its folder"):
            keeps(path)
        there.rmdir()
    mounts.write_text(f"4 1 0:3 /a {path.parent} rw - x x rw\n")
    assert path.read_bytes() == before
    (tmp_path / "link").symlink_to(path.parent)
    (tmp_path / "to-file").symlink_to(path)
    keeps(tmp_path / "link" / path.name)
    if keeps is not keeps_a_server:
        keeps(tmp_path / "to-file")
    assert (tmp_path / "to-file").is_symlink() and not list(tmp_path.glob("to-file*.*"))


ALIKE = [
    "Caf\u00e9",
    "Cafe\u0301",
    "CAF\u00c9",
    "Caf\u00e9 ",
    "\uff23afe\u0301",
    "C\ufe0faf\u00e9",
    "Caf\u3164\u00e9",
]


def test_names_that_look_alike_are_one_data_set_and_one_season(path, monkeypatch, no_noise):
    ledger, first = Ledger(path), ALIKE[0]
    ledger.open_dataset(first, BUDGET)
    ledger.open_season(first, Season(BUDGET, name=first))
    for name in ALIKE[1:]:
        for use in (
            lambda name=name: ledger.charge(name, "run", share(0.1)),
            lambda name=name: ledger.open_dataset(name, BUDGET),
            lambda name=name: ledger.open_season(name, Season(BUDGET)),
            lambda name=name: release_once(ledger, 1.0, name),
        ):
            with pytest.raises(InputError, match=r"has a data set 'Caf\\xe9', and .* looks the same"):
                use()
        with pytest.raises(InputError, match=r"has a season 'Caf\\xe9' already"):
            ledger.open_season(first, Season(BUDGET, name=name), allow_composition=True)
    assert ledger.datasets() == [first]
    for other in ("Cafe", "Caf\u00e8", "Caf \u00e9"):
        ledger.charge(other, "run", share(1.0))


def test_a_ledger_with_two_spellings_counts_them_together(path, monkeypatch):
    ledger = Ledger(path)
    with monkeypatch.context() as before:
        before.setattr(schema, "looks", str)
        for name, part in zip(ALIKE[:3], (0.5, 0.2, 0.2), strict=True):
            ledger.charge(name, "run", share(part))
        for name, budget in zip(ALIKE, (Budget(50.0, 1e-6), BUDGET), strict=False):
            ledger.open_dataset(name, budget)
    reservation = ledger.reserve(ALIKE[0], [share(0.04)])
    assert all(ledger.summary(name).running == pytest.approx(0.04 * BUDGET.mu**2) for name in ALIKE[:3])
    reservation.close()
    for name in ALIKE[:3]:
        summary = ledger.summary(name)
        assert summary.charges == 3 and summary.mu**2 == pytest.approx(0.9 * BUDGET.mu**2)
    with pytest.raises(BudgetError, match="over all its runs"):
        ledger.charge(ALIKE[0], "run", share(0.2))
    with pytest.raises(InputError, match="looks the same"):
        ledger.charge(ALIKE[1], "run", share(0.05))
    ledger.charge(ALIKE[0], "another", share(0.05))
    ledger.close_dataset(ALIKE[2])
    with pytest.raises(BudgetError, match="was closed"):
        ledger.charge(ALIKE[0], "third", share(0.01))


def test_a_season_under_another_spelling_keeps_what_it_reserved(path, monkeypatch):
    ledger = Ledger(path)
    with monkeypatch.context() as before:
        before.setattr(schema, "looks", str)
        ledger.charge(ALIKE[0], "run", share(0.1))
        ledger.open_dataset(ALIKE[0], BUDGET)
        ledger.open_season(ALIKE[1], Season(Budget(epsilon_of(BUDGET.mu * math.sqrt(0.5), 1e-6), 1e-6)))
    assert ledger.summary(ALIKE[0]).reserved == pytest.approx(0.5 * BUDGET.mu**2)
    ledger.charge(ALIKE[0], "run", share(0.35))
    with pytest.raises(BudgetError, match="over all its runs"):
        ledger.charge(ALIKE[0], "run", share(0.1))


def test_a_summary_in_words_and_in_json(path):
    ledger = Ledger(path)
    with pytest.raises(InputError, match='no data set "d", and no other'):
        ledger.summary("d", 1e-6)
    ledger.charge("d", "r", share(0.25))
    with pytest.raises(InputError, match="delta"):
        ledger.summary("d")
    for view in (ledger.close_dataset, ledger.summary, ledger.left, ledger.shares, ledger.chain):
        with pytest.raises(InputError, match="no data set \"e\"; it has 'd'"):
            view("e")  # a name with a mistake looks like nothing spent
    with pytest.raises(InputError, match="no data set \"e\"; it has 'd'"):
        ledger.history("e", 1e-6)
    promise = guarantee(epsilon_of(0.5 * BUDGET.mu, 1e-6), 1e-6, "user", "add-remove")
    said = str(ledger.summary("d", 1e-6))
    assert said == f'1 run on data set "d" charged {promise} together; no budget is set'
    assert ledger.left("d") is None
    ledger.open_dataset("d", BUDGET)
    left = math.floor(epsilon_of(math.sqrt(0.75) * BUDGET.mu, BUDGET.delta) * 1000) / 1000
    assert f"what is left of it is epsilon = {left:g}" in ledger.left("d")
    would = BUDGET.spell(epsilon_of(math.sqrt(0.25 + 0.9) * BUDGET.mu, BUDGET.delta))
    with pytest.raises(BudgetError) as caught:
        ledger.charge("d", "run", share(0.9))
    assert f'This would bring data set "d" to {would} over all its runs' in str(caught.value)
    assert ledger.left("d") in str(caught.value) and str(path) in str(caught.value)
    summary = ledger.summary("d")
    assert f"its budget is {BUDGET}" in str(summary)
    entry = json.loads(json.dumps(summary.to_dict()))
    assert LedgerSummary.from_dict(entry) == summary
