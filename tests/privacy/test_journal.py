"""The journal: a training that is killed anywhere goes on without a draw or a charge too many."""

import contextlib
import json
import math
import os
import random
import resource
import shutil
import signal
import sqlite3
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from hushrec.data import Domain
from hushrec.errors import BudgetError, InputError, LedgerError
from hushrec.models import ItemBias, PrivateALS
from hushrec.models.private_als.users import FittedUsers
from hushrec.papers.dpals import DPALS
from hushrec.privacy import (
    Accountant,
    Bounded,
    Budget,
    Gaussian,
    Ledger,
    Plan,
    Release,
    RepeatAndSelect,
    SystemNoise,
    counted,
    epsilon_of,
)
from hushrec.privacy.journal import Journal
from hushrec.testing import hostile_users, ratings_of
from hushrec.training.gate import LocalGate
from hushrec.training.named import train
from tests.power_cut import Disk
from tests.privacy.kills import Kill, Killed, noise_by_label

BUDGET = Budget(3.0, 1e-6)
NOTHING = Plan(BUDGET, ())
FORK = get_context("fork")
LABELS = ("first", "second", "third", "last")
OTHER_ROWS = ratings_of({}, Domain((1, 2), (1, 5)))
MODEL = PrivateALS(rank=2, bias_rounds=1, iterations=1, features=False)


@pytest.fixture(scope="module", autouse=True)
def kernels_are_loaded(tmp_path_factory):
    """A first training loads them on made-up rows, where a planted failure would end it early."""
    MODEL.fit(rows(), Accountant(BUDGET, ledger=Ledger(tmp_path_factory.mktemp("kernels") / "ledger.sqlite")))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


def plan_of(budget: Budget = BUDGET) -> Plan:
    share = budget.share(1 / len(LABELS))
    return Plan(budget, [Release(label, share, 1.0, "user", "add-remove") for label in LABELS])


def rows(seed: int = 5, users: int = 23):
    return ratings_of(hostile_users(np.random.default_rng(seed), users))


def toy(path, *, resume=False, rows=1.0, save_to=None, **binding) -> list[float]:
    """A training without a model: each release depends on the earlier ones."""
    plan = plan_of()
    accountant = Accountant(BUDGET, ledger=Ledger(path), resume=resume)
    accountant.check(plan)
    with accountant.training(plan, **binding) as saved:
        gate, found = LocalGate(accountant, plan), [rows]
        for label in LABELS:
            noisy = gate.release(label, Bounded(np.full(3, found[-1]), counted(1.0)))
            found.append(float(noisy.sum()))
        if save_to is not None:
            save_to.write_text(json.dumps(found))
            saved()
    assert accountant.releases == plan.releases
    return found


@pytest.mark.true("A8")
def test_no_file_ever_holds_an_exact_value(path, monkeypatch) -> None:
    """What a kill leaves on the disk around charge and draw is zeros, also where the value is large."""
    seen, plan = [], plan_of()
    for owner, name in ((Ledger, "charge"), (SystemNoise, "add_gaussian")):
        function = getattr(owner, name)

        def called(*given, function=function, **options):
            seen.extend(file.read_bytes() for file in files(path) if file.suffix == ".part")
            return function(*given, **options)

        monkeypatch.setattr(owner, name, called)
    accountant = Accountant(BUDGET, ledger=Ledger(path))
    with accountant.training(plan):
        for label in LABELS:
            LocalGate(accountant, plan).release(label, Bounded(np.full(5000, 1.0), counted(1.0)))
    assert (
        len(seen) == 2 * len(LABELS)
        and not any(map(any, seen))
        and all(len(octets) > 40_000 for octets in seen)
    )


def charges(path) -> Counter:
    with sqlite3.connect(path) as connection:
        found = Counter(row[0] for row in connection.execute("SELECT label FROM charges"))
    connection.close()
    return found


def check_books(path, drawn) -> int:
    """Every draw has a separate charge; return the number of charges that were not needed."""
    charged = charges(path)
    for label, number in Counter(drawn).items():
        assert number <= charged[label]
    return charged.total() - len(LABELS)


def files(path) -> list[Path]:
    folder = path.with_name("ledger.sqlite.trainings")
    return sorted(folder.iterdir()) if folder.exists() else []


# a training that is killed


def begun_as(path, number: int) -> bool:
    """Return whether a training with this binding can be taken up."""
    headers = [json.loads(each.read_text()) for each in files(path) if each.suffix in (".json", ".done")]
    return any(header["binding"]["number"] == number for header in headers)


@pytest.mark.true("A8")
@pytest.mark.parametrize("saving", [False, True])
@pytest.mark.parametrize("stride", [31, pytest.param(1, marks=pytest.mark.full)])
def test_a_kill_at_every_step(path, tmp_path_factory, stride, saving):
    """Killed: a charge after the draw, a value used before it is on the disk, values out of order, a training
    that is closed while its model is nowhere, values that stay for good. One had finished before it.
    """
    start, out = tmp_path_factory.mktemp("start"), path.with_name("saved") if saving else None
    with pytest.MonkeyPatch.context() as patch:
        noise_by_label(patch, [])
        toy(path, number=0)
        shutil.copytree(path.parent, start, dirs_exist_ok=True)
        counter = Kill(patch)
        whole = toy(path, number=1, save_to=out)
    assert begun_as(path, 1) != saving and counter.steps > 60
    lost = set()
    for at in range(1, counter.steps + 1, stride):
        shutil.rmtree(path.parent)
        shutil.copytree(start, path.parent)
        drawn: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            noise_by_label(patch, drawn)
            Kill(patch, at)
            with pytest.raises(Killed):
                toy(path, number=1, save_to=out)
        with pytest.MonkeyPatch.context() as patch:
            noise_by_label(patch, drawn)
            if saving and out.exists() and not begun_as(path, 1):
                assert json.loads(out.read_text()) == whole
                with pytest.raises(InputError, match="was saved is closed"):
                    toy(path, number=1, resume=True)
            else:
                assert toy(path, number=1, resume=begun_as(path, 1), save_to=out) == whole
            lost.add(check_books(path, drawn) - len(LABELS))
            toy(path, number=2)
        left = [each for each in files(path) if not each.name.endswith(".0.part")]  # a header's draft
        assert len(left) == 1 + len(LABELS) and begun_as(path, 2)
    assert lost == {0, 1} or (stride > 1 and lost < {0, 1})


@pytest.mark.parametrize("model", [MODEL, pytest.param(DPALS(rank=2, iterations=1), marks=pytest.mark.full)])
def test_the_bytes_are_those_of_a_run_that_was_not_killed(path, monkeypatch, model):
    drawn: list[str] = []
    noise_by_label(monkeypatch, drawn)
    whole = model.fit(rows(), Accountant(BUDGET, ledger=Ledger(path.with_name("whole.sqlite"))), seed=1)
    chance, resume, kills, content = random.Random(7), False, 0, None
    while content is None:
        with pytest.MonkeyPatch.context() as patch:
            Kill(patch, chance.randint(15, 40))
            try:
                accountant = Accountant(BUDGET, ledger=Ledger(path), resume=resume)
                content = model.fit(rows(), accountant, seed=1)
            except Killed:
                kills, resume = kills + 1, True
        assert kills < 40
    for name, array in whole.arrays.items():
        assert np.asarray(content.arrays[name]).tobytes() == np.asarray(array).tobytes()
    assert kills >= 2
    if Ledger(path).summary("default", 1e-6).charges == len(whole.privacy.releases):
        assert content.to_bytes() == whole.to_bytes()


def test_nothing_is_drawn_or_charged_again_and_other_rows_cost_the_same(path, monkeypatch):
    drawn: list[str] = []
    noise_by_label(monkeypatch, drawn)
    ledger = Ledger(path)
    ledger.open_dataset("default", BUDGET)
    whole = MODEL.fit(rows(), Accountant(BUDGET, ledger=Ledger(path.with_name("whole.sqlite"))))
    drawn.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FittedUsers, "item_biases", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            MODEL.fit(rows(), Accountant(BUDGET, ledger=ledger))
    before = list(drawn)
    accountant = Accountant(BUDGET, ledger=ledger, resume=True)
    model = MODEL.fit(rows(6, 40), accountant)
    assert Counter(drawn) == Counter(release.label for release in accountant.releases)
    assert before == drawn[: len(before)] and len(before) >= 2
    assert accountant.releases == model.privacy.releases == whole.privacy.releases
    assert ledger.summary("default").charges == len(drawn) and ledger.summary("default").runs == 1


# what cannot be resumed


#: Of the last release: nothing is charged; its value is drawn, but on no disk; it is there, but in no ledger.
STOPS = {
    "before": (Accountant, "release", 3, "last"),
    "lost": (Journal, "keep", 2, "last"),
    "kept": (Ledger, "keep", 3, 3),
}


def killed(path, stop="before", **binding) -> None:
    """A toy training, killed in its last release."""
    with pytest.MonkeyPatch.context() as patch:
        owner, name, place, last = STOPS[stop]
        go_on = getattr(owner, name)

        def stopping(*arguments, **options):
            if arguments[place] == last:
                raise Killed
            return go_on(*arguments, **options)

        patch.setattr(owner, name, stopping)
        with pytest.raises(Killed):
            toy(path, **binding)


def test_a_lost_draw_is_charged_again_where_there_is_room(path, monkeypatch):
    noise_by_label(monkeypatch, drawn := [])
    for name, epsilon, stop in (("tight", 3.0, "lost"), ("wide", 6.0, "lost"), ("kept", 3.0, "kept")):
        place = path.with_name(f"{name}.sqlite")
        Ledger(place).open_dataset("default", Budget(epsilon, 1e-6))
        killed(place, stop)
        drawn.clear()
        if name == "tight":
            with pytest.raises(BudgetError, match=r"charged again.* past its budget .*left"):
                toy(place, resume=True)
            assert not drawn and charges(place).total() == len(LABELS)
        else:
            toy(place, resume=True)
            again = ["last"] * (stop == "lost")
            assert drawn == again and charges(place) == Counter(LABELS) + Counter(again)


def test_a_statement_says_what_was_lost(path, monkeypatch):
    noise_by_label(monkeypatch, [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "keep", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            ItemBias().fit(rows(), Accountant(BUDGET, ledger=Ledger(path)))
    model = ItemBias().fit(rows(), Accountant(BUDGET, ledger=Ledger(path), resume=True))
    assert any("lost 1 noisy values" in note for note in model.privacy.notes)


def begun(path, labels=("first", "second", "third"), size=3) -> None:
    """A training without announced releases, killed after some releases."""
    accountant = Accountant(BUDGET, ledger=Ledger(path))
    with pytest.raises(Killed), accountant.training(NOTHING):
        for label in labels:
            accountant.release(Bounded(np.zeros(size), counted(1.0)), BUDGET.share(0.25), label)
        raise Killed


def test_another_release_of_the_same_name_is_not_taken_from_the_journal(path):
    begun(path)
    for size, bound, part, words in (
        (3, 1.0, 0.2, "or with other noise"), (3, 2.0, 0.25, "or with other noise"),
        ((3, 1), 1.0, 0.25, "another shape in the journal"),
    ):  # fmt: skip
        resumed = Accountant(BUDGET, ledger=Ledger(path), resume=True)
        with pytest.raises(InputError, match=words), resumed.training(NOTHING):
            resumed.release(Bounded(np.zeros(size), counted(bound)), BUDGET.share(part), "first")
        assert resumed.releases == () and charges(path).total() == 3


def test_a_kept_value_counts_in_the_budget_and_for_one_process(path, monkeypatch):
    begun(path)
    for budget, child, words in ((Budget(0.5, 1e-6), False, "bring the total"), (BUDGET, True, "fork")):
        resumed = Accountant(budget, ledger=Ledger(path), resume=True)
        with pytest.raises(BudgetError, match=words), resumed.training(NOTHING):
            if child:
                monkeypatch.setattr(os, "getpid", lambda: -1)
            resumed.release(Bounded(np.zeros(3), counted(1.0)), BUDGET.share(0.25), "first")
        monkeypatch.undo()
        assert resumed.releases == () and charges(path).total() == 3


def test_what_is_yet_to_be_charged_is_looked_at_from_where_the_training_is(path):
    """Two of three kept releases are left, and then one that does not fit the data set's budget any more."""
    begun(path)
    ledger = Ledger(path)
    ledger.open_dataset("default", Budget(epsilon_of(BUDGET.mu * math.sqrt(0.8), 1e-6), 1e-6))
    resumed = Accountant(BUDGET, ledger=ledger, resume=True)
    with resumed.training(NOTHING):
        resumed.release(Bounded(np.zeros(3), counted(1.0)), BUDGET.share(0.25), "first")
        coming = plan_of().releases[1:]
        resumed.check(Plan(BUDGET, coming[:2]))
        with pytest.raises(BudgetError, match="past its budget"):
            resumed.check(Plan(BUDGET, coming))
    assert charges(path).total() == 3


@pytest.mark.parametrize(
    "other, word",
    [
        ({"seed": 1}, "seed"),
        ({"model": PrivateALS(rank=3, bias_rounds=1, iterations=1, features=False)}, "plan|settings"),
        ({"rows": OTHER_ROWS}, "catalogue and range"),
        ({"budget": Budget(2.0, 1e-6)}, "plan"),
        ({"dataset": "another"}, "no unfinished training"),
        ({"model": ItemBias()}, "model"),
    ],
)
def test_another_training_is_refused(path, monkeypatch, other, word):
    noise_by_label(monkeypatch, drawn := [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FittedUsers, "item_biases", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            MODEL.fit(rows(), Accountant(BUDGET, ledger=Ledger(path)))
    given = {"model": MODEL, "rows": rows(), "budget": BUDGET, "dataset": "default", "seed": 0} | other
    drawn.clear()
    accountant = Accountant(given["budget"], ledger=Ledger(path), dataset=given["dataset"], resume=True)
    with pytest.raises(InputError, match=word):
        given["model"].fit(given["rows"], accountant, seed=given["seed"])
    assert not drawn


@pytest.mark.true("A8")
def test_a_finished_training_is_made_again_until_it_is_saved_or_another_begins(path):
    """A model that was lost on its way to the disk costs nothing."""
    trained = [
        ItemBias().fit(rows(), Accountant(BUDGET, ledger=Ledger(path), resume=resume)).to_bytes()
        for resume in (False, True)
    ]
    assert trained[0] == trained[1] and charges(path).total() == 1
    ItemBias().fit(rows(), Accountant(BUDGET, ledger=Ledger(path)), seed=1)
    assert len(files(path)) == 2
    with pytest.raises(InputError, match="seed"):
        ItemBias().fit(rows(), Accountant(BUDGET, ledger=Ledger(path), resume=True))
    train("item-bias", rows(), Accountant(BUDGET, ledger=Ledger(path)), keep=lambda model: None)
    assert not files(path)
    with pytest.raises(InputError, match="was saved is closed"):
        train("item-bias", rows(), Accountant(BUDGET, ledger=Ledger(path), resume=True))


def test_without_noise_or_ledger_nothing_is_kept_or_resumed(path):
    for options in ({}, {"data_is_public": True}):
        with pytest.raises(InputError, match="keeps a journal"):
            Accountant(BUDGET, resume=True, **options)
    with pytest.raises(InputError, match="keeps a journal"):
        Accountant(Budget(float("inf"), 1e-6), ledger=Ledger(path), resume=True)


def test_runs_of_a_selection_keep_nothing_and_leave_the_same_whatever_their_number(path, monkeypatch):
    """Their values and their number are secret: no file is there while they run, or after."""
    mechanism, left = RepeatAndSelect(1.0, 1e-7, 5.0), []
    for number in (1, 4):
        ledger, seen = Ledger(path.with_name(f"{number}.sqlite")), []

        def run(inner, ledger=ledger, seen=seen):
            model = ItemBias().fit(rows(), inner)  # as `tune` does it
            seen.append(sorted(each.name for each in ledger.path.parent.glob(f"{ledger.path.name}*")))
            return model, 0.0

        monkeypatch.setattr(RepeatAndSelect, "draw_number_of_runs", lambda self, number=number: number)
        accountant = Accountant(Budget(30.0, 1e-6, failure=1e-7), ledger=ledger)
        accountant.select(mechanism, "choice", run)
        assert seen == number * [[f"{number}.sqlite"]]
        with sqlite3.connect(ledger.path) as connection:
            what = "SELECT label, mechanism, mu, failure, step FROM charges"
            left.append(connection.execute(what).fetchall())
            assert not connection.execute("SELECT * FROM journal").fetchall()
        connection.close()
    assert left[0] == left[1] and len(left[0]) == 1


@pytest.mark.parametrize("clock", ["goes on", "goes back"])
def test_of_several_unfinished_trainings_the_last_goes_on(path, monkeypatch, clock):
    """The order of charges decides, not a clock or a random name; values without a header are removed."""

    class Clock(datetime):
        calls = 0

        @classmethod
        def now(cls, tz=None):
            cls.calls += 1
            return datetime.now(tz) - timedelta(days=cls.calls if clock == "goes back" else 0)

    for module in ("journal", "ledger"):
        monkeypatch.setattr(f"hushrec.privacy.{module}.datetime", Clock, raising=False)
    for run in ("a" * 32, "f" * 32, "0" * 32, "8" * 32):
        accountant = Accountant(BUDGET, ledger=Ledger(path), dataset="other" if "a" in run else "default")
        accountant.run = run
        with pytest.raises(KeyError), accountant.training(NOTHING, model="same"):
            accountant.release(Bounded(np.zeros(1), counted(1.0)), Gaussian(1000.0), "sums")
            raise KeyError
        path.with_name("ledger.sqlite.trainings").joinpath(f"{'a' * 32}.0.json").unlink(missing_ok=True)
    (gone,) = Ledger(path).numbered("other", "a" * 32).values()  # forgotten by trainings on another data set
    assert gone.file is None and not [file for file in files(path) if file.name.startswith("a")]
    again = Accountant(BUDGET, ledger=Ledger(path), resume=True)
    with again.training(NOTHING, model="same"):
        assert again.run == "8" * 32


@pytest.mark.true("A8")
def test_threads_keep_each_its_own_value(path, monkeypatch):
    """All are charged before the first value is drawn. Killed: one place for the value that is under way."""
    noise_by_label(monkeypatch, [])
    draw, all_charged, told = SystemNoise.add_gaussian, threading.Barrier(8), {}

    def drawing(*arguments):
        all_charged.wait(30)
        return draw(*arguments)

    monkeypatch.setattr(SystemNoise, "add_gaussian", drawing)
    accountant = Accountant(BUDGET, ledger=Ledger(path))

    def release(label):
        value = Bounded(np.full(3, float(label)), counted(1.0))
        told[label] = accountant.release(value, BUDGET.share(0.1), label)

    with pytest.raises(Killed), accountant.training(NOTHING):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(release, "01234567"))
        raise Killed
    rows = Ledger(path).numbered("default", accountant.run).values()
    kept = {row.label: row.file for row in rows}
    assert kept.keys() == told.keys() == set("01234567")
    for label, file in kept.items():
        np.testing.assert_array_equal(np.load(files(path)[0].with_name(file)), told[label])


def test_a_training_that_still_runs_is_left_alone(path, monkeypatch):
    noise_by_label(monkeypatch, [])
    plan = plan_of()
    accountant = Accountant(BUDGET, ledger=Ledger(path))
    with accountant.training(plan):
        accountant.release(Bounded(np.zeros(3), counted(1.0)), plan.releases[0].mechanism, "first")
        with pytest.raises(InputError, match="still running"):
            toy(path, resume=True)


def test_a_charge_that_is_refused_leaves_no_part_of_a_value(path, monkeypatch):
    plan, accountant = plan_of(), Accountant(BUDGET, ledger=Ledger(path))
    monkeypatch.setattr(Ledger, "charge", lambda *_, **__: (_ for _ in ()).throw(LedgerError("full")))
    with pytest.raises(LedgerError, match="full"), accountant.training(plan):
        accountant.release(Bounded(np.ones(3), counted(1.0)), plan.releases[0].mechanism, "first")
    assert [each.suffix for each in Ledger(path).trainings.iterdir()] == [".json"]


@pytest.mark.skipif(os.name != "posix", reason="folders cannot be synced")
def test_a_power_cut_loses_nothing_that_was_used(path, monkeypatch):
    """The header is on the disk before the first charge, each value before the ledger names it."""
    disk = Disk(monkeypatch)
    disk.tell(monkeypatch, Ledger, "charge")
    disk.tell(monkeypatch, Ledger, "keep")
    toy(path)
    assert disk.named_in_vain() == []
    kinds = [kind for kind, _ in disk.events]
    assert kinds[:3] == ["named", "safe", "charge"]
    kept = ["named", "safe", "keep"]
    assert kinds[3:] == [*kept, "charge"] * (len(LABELS) - 1) + kept + ["named", "safe"]


def test_a_changed_value_is_found(path):
    killed(path)
    value = next(each for each in files(path) if each.name.endswith(".1.npy"))
    content = bytearray(value.read_bytes())
    content[-1] ^= 1
    value.write_bytes(content)
    with pytest.raises(LedgerError, match="changed or damaged"):
        toy(path, resume=True)
    value.unlink()
    with pytest.raises(LedgerError, match="No such file"):
        toy(path, resume=True)


def test_values_are_their_owners_alone_and_nothing_of_rows_is_kept(path):
    killed(path, rows=12345.678, model="toy")
    found = files(path)
    assert {each.stat().st_mode & 0o077 for each in found} == {0} and found[
        0
    ].parent.stat().st_mode & 0o077 == 0
    header = json.loads(next(each for each in found if each.suffix == ".json").read_text())
    assert set(header) == {"dataset", "run", "first", "binding"}
    assert set(header["binding"]) == {"model", "plan"}


def test_each_training_of_an_accountant_goes_on_with_its_own_values(path):
    """After any trainings before and after it: none lost a release."""

    def release(accountant):
        value = Bounded(np.zeros(2), counted(1.0))
        return accountant.release(value, Gaussian(1000.0), "a").tolist()

    accountant, told, unfinished = Accountant(BUDGET, ledger=Ledger(path)), {}, (0, 1, 4)
    for number in range(6):
        with contextlib.suppress(KeyError), accountant.training(NOTHING, model=number):
            told[number] = release(accountant)
            if number in unfinished:
                raise KeyError
    for number in unfinished:
        again = Accountant(BUDGET, ledger=Ledger(path), resume=True)
        with again.training(NOTHING, model=number):
            assert release(again) == told[number] and again.statement().notes == ()
    assert charges(path) == {"a": 6}


def test_a_full_disk_is_one_sentence(path):
    """A value has its room on the disk before it is charged."""
    Ledger(path)
    queue = FORK.Queue()

    def release():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, 4_000_000))
        accountant = Accountant(BUDGET, ledger=Ledger(path))
        try:
            with accountant.training(NOTHING):
                accountant.release(Bounded(np.zeros(2_000_000), counted(1.0)), BUDGET.share(0.1), "first")
        except BaseException as error:
            queue.put((type(error).__name__, str(error)))

    process = FORK.Process(target=release)
    process.start()
    kind, sentence = queue.get(timeout=60)
    process.join()
    assert kind == "LedgerError" and "\n" not in sentence and "File too large" in sentence
    assert "nothing was charged" in sentence and charges(path).total() == 0
    assert [each.suffix for each in files(path)] == [".json"]
