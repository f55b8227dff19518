"""Partitions of the users give the model of the whole, byte for byte."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from hushrec.algorithms import ItemBias, Popular, PrivateALS
from hushrec.engines import parts
from hushrec.errors import BudgetError, HushrecError, InputError
from hushrec.gate import LocalGate
from hushrec.privacy import Accountant, Bounded, Budget, Plan, Release, counted
from hushrec.privacy.testing import SeededNoise
from hushrec.users import Users
from tests.algorithms.cases import CASES, Case, hostile_data, ratings_of

USER_CASES = [case for case in CASES if isinstance(case.estimator.users(ratings_of({})), Users)]


def trained(case: Case, relation: str, partitions: int | None, **options) -> bytes:
    ratings = ratings_of(hostile_data(np.random.default_rng(5), 23))
    accountant = Accountant(case.budget(relation), noise=SeededNoise(3))
    if partitions is None:
        return case.estimator.fit(ratings, accountant, seed=1).to_bytes()
    model = parts.fit(case.estimator, ratings, accountant, partitions=partitions, seed=1, **options)
    return model.to_bytes()


@pytest.mark.parametrize("case", USER_CASES, ids=lambda case: case.name)
def test_the_same_bytes_for_any_number_of_partitions(case: Case) -> None:
    for relation in ("add-remove", "replace"):
        whole = trained(case, relation, None)
        for partitions in (1, 2, 4, 7):
            assert trained(case, relation, partitions) == whole


def test_processes() -> None:
    case = next(case for case in CASES if case.name == "dpals")
    assert trained(case, "add-remove", 2, processes=True) == trained(case, "add-remove", None)


def test_a_lost_partition_is_made_again_and_noise_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in CASES if case.name == "private-als")
    whole = trained(case, "add-remove", None)
    lost, lock = [], threading.Lock()
    spreads = Users.spreads

    def once(self: Users):
        with lock:
            if not lost:
                lost.append(True)
                raise MemoryError("user 'alice' has 17 ratings")
        return spreads(self)

    monkeypatch.setattr(Users, "spreads", once)
    assert trained(case, "add-remove", 3) == whole
    assert lost


def test_a_partition_that_is_always_lost_says_nothing_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def always(self: Users):
        raise MemoryError("user 'alice' has 17 ratings")

    monkeypatch.setattr(Users, "item_weights", always)
    ratings = ratings_of(hostile_data(np.random.default_rng(5), 9))
    with pytest.raises(HushrecError) as error:
        parts.fit(Popular(), ratings, Accountant(Budget(1, 1e-6)), partitions=2)
    assert "alice" not in str(error.value) and error.value.__cause__ is None


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_draw_that_fails_within_a_stream_ends_the_training(partitions) -> None:
    """Killed: a partition that is made again gets the rest of the stream without noise."""
    budget, seen = Budget(3, 1e-6), []
    plan = Plan(budget, [Release("blocks", budget.share(1.0), 1.0, "user", "add-remove")])

    class Failing(SeededNoise):
        def add_gaussian(self, *call):
            if seen:
                raise MemoryError("user 'alice' has 17 ratings")
            return super().add_gaussian(*call)

    meeting = parts.Meeting(LocalGate(Accountant(budget, noise=Failing(0)), plan), partitions)

    def make(part: int) -> dict:
        blocks = Bounded(iter([np.full(2, 7.0), np.full(2, 8.0), np.full(2, 9.0)]), counted(1.0))
        for block in parts.PartGate(plan, partial(meeting.exchange, part)).release_blocks("blocks", blocks):
            seen.append(block)
        return {}

    work = [
        threading.Thread(target=parts._persistently, args=(meeting, partial(make, part)), daemon=True)
        for part in range(partitions)
    ]
    for each in work:
        each.start()
    for each in work:
        each.join(60)
        assert not each.is_alive()
    assert isinstance(meeting.failure, HushrecError) and "alice" not in str(meeting.failure)
    assert len(seen) == partitions and not any((block == 7.0 * partitions).any() for block in seen)


class Inexact(ItemBias):
    exact_arithmetic = False


@pytest.mark.parametrize(
    "estimator, budget",
    [(ItemBias(), Budget(math.inf, 1e-6)), (Inexact(), Budget(1, 1e-6))],
)
def test_sums_that_are_not_exact_are_refused(estimator, budget) -> None:
    accountant = Accountant(budget)
    with pytest.raises(InputError, match="not exact here; train it in one piece"):
        parts.fit(estimator, ratings_of(hostile_data(np.random.default_rng(5), 9)), accountant, partitions=2)
    assert not accountant.releases


@pytest.mark.parametrize("labels", [("sums", "other"), ("other", "sums")])
def test_partitions_that_come_to_different_releases_release_nothing(labels) -> None:
    budget = Budget(3, 1e-6)
    releases = [Release(label, budget.share(0.5), 1.0, "user", "add-remove") for label in sorted(labels)]
    plan = Plan(budget, releases)
    accountant = Accountant(budget, noise=SeededNoise(1))
    meeting = parts.Meeting(LocalGate(accountant, plan), 2)

    def make(part: int) -> dict:
        gate = parts.PartGate(plan, partial(meeting.exchange, part))
        return {"sum": gate.release(labels[part], Bounded(np.ones(2), counted(1.0)))}

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda part: parts._persistently(meeting, partial(make, part)), range(2)))
    assert found == [{}, {}] and "came to different releases" in str(meeting.failure)
    assert not accountant.releases


def test_a_partition_hands_over_nothing_that_was_not_planned() -> None:
    budget, handed = Budget(3, 1e-6), []
    plan = Plan(budget, [Release("sums", budget.share(1.0), 1.0, "user", "add-remove")])
    gate = parts.PartGate(plan, lambda number, step: handed.append(step) or step.value)
    for release in (gate.release, gate.release_blocks):
        with pytest.raises(InputError, match="planned with sensitivity 1 "):
            release("sums", Bounded(np.ones(2), counted(2.0)))
    assert not handed


def test_releases_are_charged_once() -> None:
    budget, estimator = Budget(1, 1e-6), PrivateALS()
    ratings = ratings_of(hostile_data(np.random.default_rng(5), 9))
    accountant = Accountant(budget)
    parts.fit(estimator, ratings, accountant, partitions=3)
    assert accountant.releases == estimator.plan(budget, ratings.domain).releases
    with pytest.raises(BudgetError):
        parts.fit(estimator, ratings, accountant, partitions=3)


@pytest.mark.parametrize("partitions", [0, 1.5, True])
def test_a_wrong_number_of_partitions_is_refused(partitions) -> None:
    ratings = ratings_of({})
    with pytest.raises(InputError, match="partitions"):
        parts.fit(ItemBias(), ratings, Accountant(Budget(1, 1e-6)), partitions=partitions)
