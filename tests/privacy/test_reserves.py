"""Reserves of seasons under four processes that open, train, run weeks, close and crash.

Oracle: the books once more, in fractions of mu squared and without a line of the library. It decides for
every step whether it is refused; the file holds the charges.
"""

import math
import os
import random
import signal
import sqlite3
import time
from dataclasses import dataclass, field
from fractions import Fraction
from multiprocessing import get_context
from types import SimpleNamespace

import pytest

from hushrec.data import realistic
from hushrec.errors import BudgetError, HushrecError, InputError
from hushrec.models import ItemBias
from hushrec.privacy import (
    Accountant,
    Budget,
    Gaussian,
    Ledger,
    Season,
    SeasonAccountant,
    Week,
    epsilon_of,
)
from hushrec.serving.model import load

FORK = get_context("fork")
DELTA = 2.0**-20
UNIT = 0.01  # of mu squared: the smallest thing that is spent is a part of it
RESERVE = 6  # of the data set, for failures
#: Charges are slightly smaller and budgets slightly larger than they count, so no rounding decides.
LESS, MORE = 1 - 1e-6, 1 + 1e-6


def budget_of(square, failure=0.0, more=MORE):
    """A budget of so many units of mu squared and a chance of failure in units of 2^-24."""
    reserve = failure * 2.0**-24
    return Budget(epsilon_of(math.sqrt(square * UNIT) * more, DELTA - reserve), DELTA, failure=reserve)


# the books once more


@dataclass
class Weeks:
    whole: Fraction
    first: Fraction
    decay: Fraction
    closed: bool = False
    runs: dict = field(default_factory=dict)  # to units of mu squared and number of charges

    @property
    def squares(self):
        """Squared weights of a user's trainings: weights are 32nds, rounded down."""
        squares, cost = [Fraction(1)], (1 - self.first) * (1 - self.decay) / self.first
        while root := math.isqrt(int(1024 * cost)):
            squares.append(Fraction(root, 32) ** 2)
            cost *= self.decay
        return squares

    @property
    def slice(self):
        return self.whole / sum(self.squares)

    @property
    def charged(self):
        return sum((spent for spent, _ in self.runs.values()), Fraction(0))

    @property
    def spent(self):
        """Cost of a user, at most, over all sets of weeks."""
        squares, dearest = self.squares, {0: Fraction(0)}
        for cost, _ in self.runs.values():
            for count, spent in sorted(dearest.items(), reverse=True):
                if count < len(squares):
                    more = spent + squares[count] * cost
                    dearest[count + 1] = max(more, dearest.get(count + 1, Fraction(0)))
        return max(dearest.values())


@dataclass
class Books:
    limit: Fraction
    failure: int
    spent: Fraction = Fraction(0)
    failed: int = 0
    seasons: dict = field(default_factory=dict)

    def committed(self):
        each = [season.spent if season.closed else season.whole for season in self.seasons.values()]
        return self.spent + sum(each), self.failed

    def fits(self, square, failure):
        spent, failed = self.committed()
        return spent + square <= self.limit and failed + failure <= self.failure

    def step(self, kind, *words):
        """Do a step if it is allowed; return whether it was."""
        allowed = getattr(self, f"may_{kind}")(*words)
        if allowed:
            getattr(self, kind)(*words)
        return allowed

    def may_open(self, name, whole, first, decay):
        return name not in self.seasons and self.fits(whole, 0)

    def open(self, name, whole, first, decay):
        self.seasons[name] = Weeks(whole, first, decay)

    def may_charge(self, run, square, failure):
        return self.fits(square, failure)

    def charge(self, run, square, failure):
        self.spent += square
        self.failed += failure

    def may_week(self, name, number, run, made, square, failure):
        season = self.seasons[name]
        spent, charges = season.runs.get(run, (Fraction(0), 0))
        return (
            not (season.closed or failure)
            and len(season.runs.keys() - {run}) == number
            and charges == made
            and spent + square <= season.slice
        )

    def week(self, name, number, run, made, square, failure):
        season = self.seasons[name]
        spent, charges = season.runs.get(run, (Fraction(0), 0))
        season.runs[run] = spent + square, charges + 1

    def may_close(self, name):
        return True

    def close(self, name):
        self.seasons[name].closed = True

    def may_lower(self, limit):
        spent, failed = self.committed()
        return limit <= self.limit and spent <= limit

    def lower(self, limit):
        self.limit = limit


# the same steps at the ledger


def season_of(name, season):
    return Season(budget_of(season.whole), float(season.first), float(season.decay), name)


def release_of(square, failure):
    """Gaussian noise, with a chance of failure in units of 2^-24."""
    noise = Gaussian(1 / math.sqrt(float(square) * UNIT * LESS))
    costs = {"mu": noise.mu, "epsilon": None, "failure": failure * 2.0**-24}
    protects = {"unit": "user", "relation": "add-remove"}
    return SimpleNamespace(label="sums", mechanism=noise, sensitivity=1.0, **costs, **protects)


def step_at(ledger, kind, *words):
    if kind == "open":
        ledger.open_season("default", season_of(words[0], Weeks(*words[1:])), allow_composition=True)
    elif kind == "charge":
        run, square, failure = words
        ledger.charge("default", run, release_of(square, failure))
    elif kind == "week":
        name, season, number, run, made, square, failure = words
        week = Week(season_of(name, season), number, "default", run)
        ledger.charge("default", run, release_of(square, failure), step=made, week=week)
    elif kind == "close":
        ledger.close_season("default", *words)
    else:
        ledger.open_dataset("default", budget_of(*words, RESERVE, more=1 + 1e-4))


def work(path, pipe):
    ledger = Ledger(path)
    while True:
        step = pipe.recv()
        try:
            step_at(ledger, *step)
            pipe.send(None)
        except (BudgetError, InputError) as error:
            pipe.send(str(error))


class Worker:
    """A process with its remaining steps of one training or one week."""

    def __init__(self, path, context):
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=work, args=(path, there), daemon=True)
        self.process.start()
        self.ahead = []

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.pipe.close()


def rows_of(path, table="charges", what="season, run, mu, failure"):
    with sqlite3.connect(path) as connection:
        found = connection.execute(f"SELECT {what} FROM {table} ORDER BY rowid").fetchall()
    connection.close()
    return found


def state_of(path):
    return rows_of(path), rows_of(path, "seasons", "*"), rows_of(path, "datasets", "*")


def plan_steps(dice, books, names):
    """Return the steps of the next action."""
    fresh, square = f"run {dice.getrandbits(60)}", Fraction(dice.randint(1, 8), 4)
    failure = dice.choice((0, 0, 1))
    kind = dice.choices(("train", "week", "open", "close", "lower"), (4, 8, 2, 1, 1))[0]
    if kind == "week" and books.seasons:
        name = dice.choice(list(books.seasons))
        season = books.seasons[name]
        number = max(0, len(season.runs) - (dice.random() < 0.1))  # now and then one that was run
        part = season.slice / 2 * dice.choice((1, 1, 1, Fraction(3, 2)))
        return [("week", name, number, fresh, made, part, failure) for made in (0, 1)]
    if kind == "close" and books.seasons:
        return [("close", dice.choice(list(books.seasons)))]
    if kind == "lower":
        return [("lower", books.limit - dice.choice((0, 1, 3)))]
    if kind == "open" and names:
        first = dice.choice((Fraction(1, 2), Fraction(5, 8)))
        return [("open", names.pop(), Fraction(dice.randint(2, 6)), first, Fraction(1, 2))]
    return [("charge", fresh, square, failure) for _ in range(dice.randint(1, 3))]


def interleave(path, seed, steps=40):
    """One interleaving; counts of steps that were done, refused and cut off."""
    dice, books = random.Random(seed), Books(Fraction(20), RESERVE)
    Ledger(path).open_dataset("default", budget_of(20, RESERVE, more=1 + 1e-4))
    workers = [Worker(path, FORK) for _ in range(4)]
    names, done = [str(number) for number in range(9)], [0, 0, 0]
    for _ in range(steps):
        place = dice.randrange(4)
        worker = workers[place]
        worker.ahead = worker.ahead or plan_steps(dice, books, names)
        step = worker.ahead.pop(0)
        sent = step
        if step[0] == "week":
            sent = ("week", step[1], books.seasons[step[1]], *step[2:])
        before = state_of(path)
        worker.pipe.send(sent)
        if dice.random() < 0.08:
            time.sleep(dice.uniform(0, 0.004))
            worker.kill()
            workers[place] = Worker(path, FORK)
            if state_of(path) != before:  # it came through before the kill
                assert books.step(*step), step
            done[2] += 1
            continue
        refused, expected = worker.pipe.recv(), books.step(*step)
        assert (refused is None) == expected, (seed, step, refused, books)
        done[refused is not None] += 1
        if refused is not None:
            worker.ahead = []
    for worker in workers:
        worker.kill()
    check_file(path, books)
    return done


def check_file(path, books):
    """Check that the books hold every charge, and no more than is promised."""
    rows = rows_of(path)
    total = sum(Fraction(mu) ** 2 for _, _, mu, _ in rows) / Fraction(UNIT)
    charged = books.spent + sum(season.charged for season in books.seasons.values())
    assert float(total) == pytest.approx(float(charged) * LESS)
    failed = sum(Fraction(failure) for *_, failure in rows) * 2**24
    assert failed == books.failed <= books.failure
    summary, shares = Ledger(path).summary("default"), Ledger(path).shares("default")
    spent = books.spent + sum(season.spent for season in books.seasons.values())
    assert summary.mu**2 / UNIT == pytest.approx(float(spent) * LESS) and spent <= books.limit
    reserved = sum(s.whole - s.spent for s in books.seasons.values() if not s.closed)
    assert summary.reserved / UNIT == pytest.approx(float(reserved), rel=1e-4, abs=1e-4)
    assert sum(each.spent for each in shares) == pytest.approx(summary.mu**2)


@pytest.mark.true("D1")
@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(1000), marks=pytest.mark.full)])
def test_whatever_comes_between_a_season_has_what_it_reserved(seeds, tmp_path, record_property):
    """Killed: a reserve that one of the doors does not look at, that a close keeps, or that a week takes."""
    done = [interleave(tmp_path / f"{seed}.sqlite", seed) for seed in seeds]
    came = [sum(each) for each in zip(*done)]
    assert min(came) > len(seeds)  # done, refused and cut off, all of them
    record_property("interleavings", len(seeds))
    record_property("steps", sum(came))


# with real trainings


RATINGS = realistic(40, 12, 300, seed=5)
MODEL = ItemBias()


def live(folder, seed):
    """A process that acts step by step and records refusals."""
    dice, ledger = random.Random(seed), Ledger(folder / "ledger.sqlite")
    with open(folder / "refusals", "a", buffering=1) as out:
        while True:
            kind = dice.choices(("train", "week", "open", "close"), (3, 8, 1, 0.3))[0]
            seasons = [each.season for each in ledger.seasons("default")]
            try:
                if kind == "open":
                    season = Season(budget_of(dice.randint(2, 4)), name=f"{seed}-{time.time_ns()}")
                    ledger.open_season("default", season, allow_composition=True)
                elif kind == "train":
                    MODEL.fit(RATINGS, Accountant(budget_of(dice.randint(1, 8) / 8), ledger=ledger))
                elif kind == "close" and seasons:
                    ledger.close_season("default", dice.choice(seasons).name)
                elif seasons:
                    season = dice.choice(seasons)
                    file = folder / f"{season.name}.hush"
                    if file.exists():
                        model = load(file)
                        week = SeasonAccountant.following(
                            model.privacy, ledger=ledger, skip=dice.random() < 0.3
                        )
                        model = model.continue_training(RATINGS, week)
                    else:
                        model = MODEL.fit(RATINGS, SeasonAccountant(season, ledger=ledger))
                    model.save(file)
            except HushrecError as error:
                out.write(f"{kind}: {' '.join(str(error).split())}\n")


def begin(folder, seed):
    process = FORK.Process(target=live, args=(folder, seed), daemon=True)
    process.start()
    return process


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(30), marks=pytest.mark.full)])
def test_real_trainings_that_race_and_crash(seeds, tmp_path, record_property):
    """All charges add up to the promise; a week is refused only for one of these reasons."""
    record_property("seasons with trainings", len(seeds))
    ledger, season = Ledger(tmp_path / "first.sqlite"), Season(budget_of(2))  # kernels are loaded here
    ledger.open_season("default", season)
    first = MODEL.fit(RATINGS, SeasonAccountant(season, ledger=ledger))
    first.continue_training(RATINGS, SeasonAccountant.following(first.privacy, ledger=ledger))
    reasons = ("was closed", "was run already", "is not in the ledger", "not the one that week")
    reasons += ("cannot be next", "is used up")
    for seed in seeds:
        folder, dice = tmp_path / str(seed), random.Random(seed)
        folder.mkdir()
        path, limit = folder / "ledger.sqlite", budget_of(20, more=1 + 1e-4)
        Ledger(path).open_dataset("default", limit)
        people = [begin(folder, dice.random()) for _ in range(4)]
        for _ in range(12):
            time.sleep(dice.uniform(0.02, 0.25))
            place = dice.randrange(4)
            os.kill(people[place].pid, signal.SIGKILL)
            people[place].join()
            people[place] = begin(folder, dice.random())
        for each in people:
            os.kill(each.pid, signal.SIGKILL)
            each.join()
        rows = rows_of(path)
        assert Ledger(path).summary("default").mu <= limit.mu
        slices = {each.season.name: each.season for each in Ledger(path).seasons("default")}
        weeks: dict = {}
        for name, run, mu, _ in rows:
            if name is not None:
                weeks.setdefault(name, {}).setdefault(run, []).append(Fraction(mu) ** 2)
        for name, runs in weeks.items():
            for squares in runs.values():
                assert sum(squares) <= Fraction(slices[name].mu) ** 2 * Fraction(MORE)
        said = (folder / "refusals").read_text().splitlines()
        assert rows and weeks
        for line in said:
            assert not line.startswith("week:") or any(each in line for each in reasons), line
