"""The attendance: a user weighs no more than their trainings allow, after losses, copies, kills, races."""

import contextlib
import hashlib
import json
import math
import random
import signal
import time
import warnings
from collections import Counter
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from hushrec import PublicRatings
from hushrec.data import Ratings, Store, realistic
from hushrec.disk import hold
from hushrec.errors import BudgetError, HushrecError, InputError
from hushrec.models import Both, ItemBias, Popular, PrivateALS, PrivateEigenRec
from hushrec.privacy import (
    Accountant,
    Attendance,
    Bounded,
    Budget,
    Ledger,
    PrivacyStatement,
    Season,
    SeasonAccountant,
    SystemNoise,
    counted,
    epsilon_of,
)
from hushrec.testing import hostile_users, ratings_of
from hushrec.training import run
from hushrec.training.run import release_user_count
from tests.privacy.kills import Kill
from tests.privacy.test_seasons import Clock

FORK = get_context("fork")
BUDGET = Budget(3.0, 1e-6)
#: Some users have used up all trainings in a test.
SEASON = Season(BUDGET, 0.5, 0.5)
K = len(SEASON.weights)
ALS = PrivateALS(rank=2, bias_rounds=1, iterations=1, features=False, n_users=12)
LISTS = PrivateEigenRec(rank=2, iterations=2, n_users=12)
MODELS = [ItemBias(), Both(ratings=ALS, lists=LISTS, like_threshold=4.0)]
USERS = hostile_users(np.random.default_rng(5), 12)


class Scripted:
    """Noise that keeps each release's value and scale, and checks properties of a label."""

    def __init__(self, monkeypatch):
        self.seen = []
        monkeypatch.setattr(SystemNoise, "add_gaussian", lambda _, *given: self.add(*given))

    def add(self, value, sd, label):
        sd = np.broadcast_to(np.asarray(sd, float), np.shape(value))
        self.seen.append((label, np.array(value, float), sd))
        return np.random.default_rng([*label.encode(), value.size]).normal(size=value.shape) * sd


class Shop:
    """A season in a folder, and the model of its last week."""

    def __init__(self, folder, season=SEASON, estimator=MODELS[0]):
        self.folder, self.season, self.estimator = Path(folder), season, estimator
        self.folder.mkdir(exist_ok=True)
        self.ledger, self.model = Ledger(self.folder / "ledger.sqlite"), None
        self.people = Attendance(self.folder / "people")
        self.ledger.open_season("default", season)

    def week(self, **options):
        given = {"ledger": self.ledger, "attendance": self.people} | options
        if self.model is None:
            return SeasonAccountant(self.season, **given)
        return SeasonAccountant.following(self.model.privacy, **given)

    def train(self, users, **options):
        week, rows = self.week(**options), ratings_of(users)
        if self.model is None:
            self.model = self.estimator.fit(rows, week)
        else:
            self.model = self.model.continue_training(rows, week)
        return self.model


def test_a_user_shares_no_count_with_another(tmp_path):
    """Each has a hash of 128 bits or more: the bytes that one user adds to the file."""
    sizes = []
    for count in (1, 2):
        shop = Shop(tmp_path / str(count))
        shop.train({f"u{user}": [(f"u{user}", "i0", 5.0)] for user in range(count)})
        sizes.append(shop.people.path.stat().st_size)
    assert sizes[1] - sizes[0] >= 16 + 1


def test_the_file_tells_no_one_without_it_who_was_there(tmp_path):
    """Ids are hashed under a random key of 256 bits, so no list of ids can be tried on the hashes alone."""
    hashes, keys = [], []
    for name in ("one", "other"):
        shop = Shop(tmp_path / name)
        shop.train({f"u{user}": [(f"u{user}", "i0", 5.0)] for user in range(5)})
        head, _, rows = shop.people.path.read_bytes()[32:].partition(b"\n")
        keys.append(bytes.fromhex(json.loads(head)["key"]))
        hashes += [rows[at : at + 16] for at in range(0, len(rows), 20)]
        assert shop.people.path.stat().st_mode & 0o077 == 0
    assert len(set(hashes)) == 10 and len(set(keys)) == 2 and {len(set(key)) > 9 for key in keys} == {True}


# the cost of one user


@pytest.mark.true("L3")
@pytest.mark.parametrize("estimator", MODELS, ids=lambda each: each.name)
def test_one_user_moves_all_trainings_together_by_the_budget_at_most(estimator, tmp_path, monkeypatch):
    """A user comes late, pauses, returns and stays. Oracle: the values before noise, with and without them.

    Killed: a count that is not kept or that a pause resets, a group with the weight of another.
    """
    trainings, total = 30 if estimator is MODELS[0] else 16, 0.0
    there = [*range(2, 5), 6, *range(9, trainings)]
    worlds = [Shop(tmp_path / name, estimator=estimator) for name in ("with", "without")]
    moved = []
    for number in range(trainings):
        others = {user: rows for place, (user, rows) in enumerate(USERS.items()) if (place + number) % 4}
        hers = {"she": [("she", item, 5.0) for item in ratings_of(USERS).domain.items[:3]]}
        runs = []
        for world, users in zip(worlds, (hers | others if number in there else others, others), strict=True):
            noise = Scripted(monkeypatch)
            world.train(users)
            runs.append(noise.seen)
        assert [(label, value.shape) for label, value, _ in runs[0]] == [
            (label, value.shape) for label, value, _ in runs[1]
        ]
        squares = [
            float((((one - other) / sd) ** 2).sum())
            for (_, one, sd), (_, other, _) in zip(*runs, strict=True)
        ]
        moved.append(sum(squares))
        total += sum(squares)
    for place, number in enumerate(there):
        weight = SEASON.weights[place] if place < K else 0.0
        assert moved[number] <= (weight * SEASON.mu) ** 2 * (1 + 1e-9)
        assert (moved[number] > 0.05 * (weight * SEASON.mu) ** 2) or not weight
    assert not any(moved[number] for number in range(trainings) if number not in there)
    assert 0.05 * BUDGET.mu**2 < total <= BUDGET.mu**2 * (1 + 1e-9)
    assert worlds[0].ledger.summary("default", 1e-6).epsilon <= BUDGET.epsilon * (1 + 1e-9)


@pytest.mark.true("L3")
@pytest.mark.parametrize("stored", [False, True])
def test_each_user_has_the_weight_of_their_own_trainings(stored, tmp_path):
    """In any order of the ids, of rows in memory and of blocks of a store."""
    shop, seen, several = Shop(tmp_path / "shop"), Counter(), 0
    for number in range(5):
        users = {user: rows for place, (user, rows) in enumerate(USERS.items()) if (7 * place + number) % 4}
        rows = ratings_of(users)
        if stored:
            rows = Store.prepare(rows, tmp_path / str(number), rows.domain, partitions=3)
        with run.admitted(rows, week := shop.week(skip=True)) as weighted:
            groups = [(weight, group.ratings() if stored else group) for weight, group in weighted.groups]
            week.release(Bounded(np.zeros(2), counted(1.0)), BUDGET.share(week.part()), f"sums {number}")
        found = {user: weight for weight, group in groups for user in group.users.tolist()}
        assert found == {user: SEASON.weights[seen[user]] for user in found}
        assert sum(len(group.users) for _, group in groups) == len(found) > 0
        several += len(set(found.values())) > 1
        seen.update(list(found))
    assert several > 1


# faults of the files


NAMES = [f"user {number}" for number in range(8)]


def toy(folder, dice=None):
    """One training of some users, without a model; writes down each user's weight under its run."""
    users = [name for name in NAMES if dice is None or dice.random() < 0.7]
    given = {"ledger": Ledger(folder / "ledger.sqlite"), "attendance": Attendance(folder / "people")}
    week = SeasonAccountant(SEASON, skip=True, **given)
    with week.admit(users) as weights:
        with (folder / "weights").open("a") as log:
            log.write(json.dumps([week.run, dict(zip(users, weights.tolist(), strict=True))]) + "\n")
        week.release(Bounded(np.zeros(2), counted(1.0)), BUDGET.share(week.part()), "sums")


def check_books(folder):
    """Return each user's cost in charged trainings, at most the budget, by the ledger and `toy`'s notes."""
    charged = {row[2] for row in Ledger(folder / "ledger.sqlite").chain("default")[1]}
    notes = [json.loads(line) for line in (folder / "weights").read_text().splitlines()]
    assert charged <= {each for each, _ in notes}
    costs = Counter()
    for each, weights in notes:
        for name, weight in weights.items():
            costs[name] += (weight * SEASON.mu) ** 2 * (each in charged)
    assert max(costs.values(), default=0) <= BUDGET.mu**2 * (1 + 1e-9)
    return costs


def in_process(action, *given):
    child = FORK.Process(target=action, args=given)
    child.start()
    return child


@pytest.mark.true("L3")
def test_a_kill_at_every_step_lets_no_user_take_part_too_often(tmp_path):
    """Killed: a count that is written after the charge, a lost count that is accepted."""

    def dying(folder, at):
        Kill(pytest.MonkeyPatch(), at, process=True)
        toy(folder)

    at, alive = 0, False
    while not alive:
        at += 1
        shop = Shop(tmp_path / str(at))
        for step in (at, 0, at, 0, 0, 0, 0):
            child = in_process(dying if step else toy, shop.folder, *([step] if step else []))
            child.join(60)
            assert step or not child.exitcode
            alive |= step > 0 and child.exitcode == 0
            assert child.exitcode in (0, -signal.SIGKILL)
        spent = check_books(shop.folder)  # a kill wastes trainings
        assert min(spent.values()) >= BUDGET.mu**2 * (1 - SEASON.fraction) / 2
    assert at > 12


@pytest.mark.true("L3")
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(40), marks=pytest.mark.full)])
def test_processes_that_race_and_are_killed_let_no_user_take_part_too_often(tmp_path, seeds):
    def live(folder, seed):
        dice = random.Random(seed)
        while True:
            with contextlib.suppress(HushrecError):
                toy(folder, dice)

    for seed in seeds:
        shop, dice = Shop(tmp_path / str(seed)), random.Random(seed)
        children = [in_process(live, shop.folder, dice.random()) for _ in range(4)]
        for _ in range(15):
            time.sleep(dice.uniform(0.02, 0.1))
            place = dice.randrange(4)
            children[place].kill()
            children[place].join()
            children[place] = in_process(live, shop.folder, dice.random())
        for child in children:
            child.kill()
            child.join()
        assert any(check_books(shop.folder).values())
        toy(shop.folder)  # and no file is stuck
        check_books(shop.folder)


@pytest.mark.true("L3")
def test_a_lost_old_edited_or_foreign_file_is_refused_in_one_sentence(tmp_path):
    shop, other = (
        Shop(tmp_path / "shop"),
        Shop(tmp_path / "other", replace(SEASON, name="2")),
    )
    people, ledger = shop.people.path, shop.ledger.path
    toy(shop.folder)
    old = people.read_bytes(), ledger.read_bytes()
    toy(shop.folder)
    now, before = people.read_bytes(), shop.ledger.summary("default", 1e-6).charges
    assert people.stat().st_mode & 0o077 == 0 and not any(name.encode() in now for name in NAMES)
    flipped = bytearray(now)
    flipped[-1] ^= 1
    with other.week().admit(NAMES):
        pass
    same_name = Shop(tmp_path / "elsewhere")
    toy(same_name.folder)
    wrong = {
        "is lost": None,
        "old copy": old[0],
        "damaged or edited": bytes(flipped),
        "is not an attendance, or is damaged": now[:20],
        "is not an attendance": hashlib.sha256(b"{}\n").digest() + b"{}\n",  # whole, of another program
        "is of season '2'": other.people.path.read_bytes(),
        "or of another season of that name": same_name.people.path.read_bytes(),
    }
    for words, content in wrong.items():
        people.unlink() if content is None else people.write_bytes(content)
        with pytest.raises(InputError, match=words) as caught:
            toy(shop.folder)
        assert "\n" not in str(caught.value) and "Nothing was charged" in str(caught.value)
        assert not any(name in str(caught.value) for name in NAMES)
        assert shop.ledger.summary("default", 1e-6).charges == before
    people.write_bytes(now)
    for path in ledger.parent.glob("ledger.sqlite*"):
        path.is_file() and path.unlink()
    ledger.write_bytes(old[1])
    toy(shop.folder)  # the file is ahead of an older ledger, which then counts more than it must
    table = tmp_path / "ratings.csv"
    table.write_text("user,item,rating\nann,a,3\n")
    with pytest.raises(InputError, match="is not an attendance"):
        Attendance(table).admit(None, None, NAMES)
    assert not table.with_name("ratings.csv.lock").exists()


@pytest.mark.true("L3")
def test_a_clock_that_goes_back_neither_gives_nor_takes_a_training(tmp_path, monkeypatch):
    """Killed: a training that is counted before its gap refuses it, a count by dates."""
    monkeypatch.setattr("hushrec.privacy.ledger_rules.datetime", Clock)
    shop = Shop(tmp_path, replace(SEASON, gap=7.0))
    for number in range(K + 2):
        Clock.days = -400.0 * number
        if number:
            before = shop.people.path.read_bytes()
            with pytest.raises(BudgetError, match="too soon"):
                shop.train(USERS)
            assert shop.people.path.read_bytes() == before
        noise = Scripted(monkeypatch)
        shop.train(USERS, early=True)
        assert any(value.any() for _, value, _ in noise.seen) == (number < K)


def test_a_week_in_which_all_users_weigh_nothing_is_like_any_other(tmp_path, caplog, capfd):
    """Words, shapes, charges and warnings reveal nothing; a model holds nothing of the counts."""
    shop = Shop(tmp_path, estimator=ALS)
    caplog.clear()
    with warnings.catch_warnings(action="error"):
        weeks = [shop.train(USERS) for _ in range(K + 2)]
    full, nobody = weeks[K - 1].privacy, weeks[K + 1].privacy
    assert "weighs less in each further training" in " ".join(nobody.text().split())
    alike = [[(each.label.split(",")[0], each.mu) for each in one.releases] for one in (full, nobody)]
    assert alike[0] == alike[1] and full.notes == nobody.notes and full.public == nobody.public
    assert weeks[K - 1].arrays.keys() == weeks[K + 1].arrays.keys()
    assert (
        b"attendance" not in weeks[-1].to_bytes()
        and shop.people.path.name.encode() not in weeks[-1].to_bytes()
    )
    assert not caplog.records or all("charged for" in each.message for each in caplog.records)
    assert capfd.readouterr() == ("", "")
    assert PrivacyStatement.from_dict(json.loads(json.dumps(nobody.to_dict()))) == nobody
    summary = shop.ledger.season("default", "1")
    assert summary.begun == K + 2 and summary.mu**2 == pytest.approx(BUDGET.mu**2) and summary.reserved < 1e-9
    assert (
        len(weeks[-1].recommend({ratings_of(USERS).domain.items[0]: 5.0}, n=3)) == 3
    )  # without a training left


def test_a_season_counts_next_to_all_else(tmp_path):
    """Open or closed, it counts what one user can cost; a further training is refused or added."""
    shop, limit = Shop(tmp_path), Budget(epsilon_of(math.sqrt(1.5) * BUDGET.mu * (1 + 1e-9), 1e-6), 1e-6)
    with pytest.raises(BudgetError, match="--allow-composition"):
        ItemBias().fit(ratings_of(USERS), Accountant(BUDGET.part(0.1), ledger=shop.ledger))
    with pytest.raises(BudgetError, match="--allow-composition"):
        shop.ledger.open_season("default", Season(BUDGET, name="2"))
    shop.ledger.open_dataset("default", limit)
    for _ in range(2 * K):
        toy(shop.folder)
    assert sum(check_books(shop.folder).values()) == pytest.approx(len(NAMES) * BUDGET.mu**2)
    ItemBias().fit(ratings_of(USERS), Accountant(BUDGET.part(0.25), ledger=shop.ledger))
    assert shop.ledger.summary("default").mu ** 2 == pytest.approx(1.25 * BUDGET.mu**2, rel=1e-6)
    epsilons = [run.epsilon for run in shop.ledger.history("default", 1e-6)]
    assert epsilons[K - 1] == pytest.approx(epsilons[2 * K - 1]) == pytest.approx(BUDGET.epsilon)
    shop.ledger.close_season("default", "1")
    for part, fits in ((0.26, False), (0.25, True)):
        with contextlib.nullcontext() if fits else pytest.raises(BudgetError, match="past its budget"):
            ItemBias().fit(ratings_of(USERS), Accountant(BUDGET.part(part), ledger=shop.ledger))
    with pytest.raises(BudgetError, match="closed"):
        toy(shop.folder)


def test_what_an_attendance_refuses(tmp_path):
    shop, rows = Shop(tmp_path), ratings_of(USERS)
    with pytest.raises(InputError, match="the path of a file"):
        Attendance(5)
    with pytest.raises(InputError, match="An attendance is kept with a ledger"):
        shop.week(ledger=None)
    week = shop.week()
    without_ids = Ratings.from_any(sp.csr_array(np.full((4, rows.n_items), 3.0)), rows.domain)
    with pytest.raises(InputError, match="these rows have none"):
        ItemBias().fit(without_ids, week)
    assert shop.ledger.summary("default", 1e-6).charges == 0 and not shop.people.path.exists()
    ItemBias().fit(rows, week, budget_fraction=0.5)
    with pytest.raises(BudgetError, match="train it once"):
        ItemBias().fit(rows, week)
    # part of the budget is left, and these rows hold users who were not weighed
    with pytest.raises(BudgetError, match="not weighed"):
        release_user_count(rows, week)
    stale, before = shop.week(), shop.people.path.read_bytes()
    with pytest.raises(BudgetError, match="was run already"), stale.admit(NAMES):
        pass
    assert shop.people.path.read_bytes() == before


def test_two_trainings_at_once_do_not_both_read_a_count(tmp_path):
    shop = Shop(tmp_path)
    shop.train(USERS)
    before, week = shop.people.path.read_bytes(), shop.week()
    lock = hold(shop.people.path.with_name("people.lock"))
    assert lock is not None
    with lock, pytest.raises(InputError, match="Another training uses the attendance"), week.admit(NAMES):
        pass
    assert shop.people.path.read_bytes() == before
    assert shop.ledger.season("default", SEASON.name).begun == 1
    shop.train(USERS)


def test_without_an_attendance_all_users_have_the_weeks_number(tmp_path, monkeypatch):
    """Oracle: one release of the same rows in each week, divided by that of the first."""
    shop, values = Shop(tmp_path, estimator=Popular()), []
    for _ in range(4):
        noise = Scripted(monkeypatch)
        shop.train(USERS, attendance=None)
        values.append(noise.seen[-1][1])
    for value, weight in zip(values, SEASON.weights, strict=False):
        assert value == pytest.approx(weight * values[0])
    with pytest.raises(InputError, match="is lost"):  # of the earlier weeks it counts nothing
        shop.train(USERS)


def test_a_donor_who_weighs_nothing_still_lends_public_ratings(tmp_path):
    """Each user's later trainings weigh 0, and so do a donor's."""
    ratings = realistic(200, 30, 3000, seed=0)
    donors, shop = list(ratings.users[:20]), Shop(tmp_path, estimator=LISTS)
    for _ in range(K + 1):
        week = SeasonAccountant(SEASON, ledger=shop.ledger, attendance=shop.people, skip=True)
        model = LISTS.fit(ratings, week, public=PublicRatings(donors=donors))
    assert model.privacy.week.number == K and model.privacy.public_ratings


def test_the_number_of_users_costs_a_part_of_the_trainings_slice_and_counts_weights(tmp_path, monkeypatch):
    """1% of the whole budget would exceed the slice of a small first training."""
    season, rows = Season(BUDGET, 0.005, 0.995), ratings_of(USERS)
    shop = Shop(tmp_path, season)
    for weight in season.weights[:2]:
        week, noise = shop.week(skip=True), Scripted(monkeypatch)
        with run.admitted(rows, week) as admitted:
            release_user_count(admitted, week)
        assert week.releases[0].mu ** 2 == pytest.approx(0.01 * season.mu**2)
        assert noise.seen[0][1] == pytest.approx(weight * rows.rated().n_users)
