"""Partitions of the users give the model of the whole, byte for byte."""

import math
import threading
import time
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


def test_a_partition_is_made_three_times_and_the_first_failure_is_told() -> None:
    budget, made = Budget(1, 1e-6), []
    plan = Plan(budget, [Release("sums", budget.share(1.0), 1.0, "user", "add-remove")])
    meeting = parts.Meeting(LocalGate(Accountant(budget), plan), 2)

    def make() -> dict:
        made.append(True)
        raise MemoryError("user 'alice' has 17 ratings")

    assert parts._persistently(meeting, make) == {} and len(made) == 3
    failure = meeting.failure
    assert isinstance(failure, HushrecError) and "could not be made again; its cause is private" in str(
        failure
    )
    meeting.give_up(HushrecError("later"))
    assert meeting.failure is failure
    assert parts._persistently(meeting, lambda: {"a": 1}) == {"a": 1}


def test_the_start_is_that_of_one_piece() -> None:
    """Drawn with the seed 0 where none is given."""
    ratings, model = ratings_of(hostile_data(np.random.default_rng(5), 9)), PrivateALS(rank=3, iterations=1)
    found = [
        fit(Accountant(Budget(1, 1e-6), noise=SeededNoise(3))).to_bytes()
        for fit in (
            lambda accountant: model.fit(ratings, accountant),
            lambda accountant: model.fit(ratings, accountant, seed=0),
            lambda accountant: parts.fit(model, ratings, accountant, partitions=2),
        )
    ]
    assert found[0] == found[1] == found[2]


def test_who_waits_is_woken_when_there_will_be_no_release() -> None:
    budget = Budget(1, 1e-6)
    plan = Plan(budget, [Release("sums", budget.share(1.0), 1.0, "user", "add-remove")])
    meeting, given_up = parts.Meeting(LocalGate(Accountant(budget), plan), 2), threading.Event()

    def wait() -> None:
        with pytest.raises(parts._GivenUp):
            meeting.exchange(0, 0, parts.Step("sums", None, {}, np.zeros(1)))
        given_up.set()

    threading.Thread(target=wait, daemon=True).start()
    while not meeting._given:
        time.sleep(0.001)
    meeting.give_up(HushrecError("no more"))
    assert given_up.wait(10)


@pytest.mark.parametrize("blocks", [0, 1, 4])
def test_a_stream_is_added_block_by_block(blocks: int) -> None:
    """Without noise: sums of both partitions, each block at its place, and then the next release."""
    budget, given = Budget(math.inf, 1e-6), {}
    labels = ("blocks", "sums")
    releases = [Release(label, budget.share(0.5), 1.0, "user", "add-remove") for label in labels]
    plan = Plan(budget, releases)
    meeting = parts.Meeting(LocalGate(Accountant(budget), plan), 2)

    def make(part: int) -> dict:
        gate = parts.PartGate(plan, partial(meeting.exchange, part))
        values = (np.full(2, 10.0 * number + part) for number in range(blocks))
        given[part] = [each.tolist() for each in gate.release_blocks("blocks", Bounded(values, counted(1.0)))]
        return {"sums": gate.release("sums", Bounded(np.full(1, part + 1.0), counted(1.0)))}

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda part: parts._persistently(meeting, partial(make, part)), range(2)))
    assert given[0] == given[1] == [[20.0 * number + 1] * 2 for number in range(blocks)]
    assert [each["sums"].tolist() for each in found] == [[3.0], [3.0]] and meeting.failure is None


def test_a_process_that_dies_is_not_waited_for(monkeypatch) -> None:
    """Its end of the pipe is closed on our side, or nobody would hear that it is gone."""
    done = []

    class End:
        def __init__(self, name, *messages) -> None:
            self.name, self.messages = name, list(messages)

        def close(self) -> None:
            done.append(f"close {self.name}")

        def send(self, message) -> None:
            done.append(f"send {message}")

        def recv(self):
            done.append("recv")
            if not self.messages:
                raise EOFError
            return self.messages.pop(0)

    class Spawn:
        def __init__(self, *messages) -> None:
            self.messages = messages

        def Pipe(self):
            return End("ours", *self.messages), End("theirs")

        def Process(self, target, args, daemon):
            assert target is parts._serve and args[0].name == "theirs" and args[1:] == (1, 2, 3, 4)
            assert daemon is True
            return self

        def start(self) -> None:
            done.append("start")

        def join(self, timeout) -> None:
            done.append("join")

        def kill(self) -> None:
            done.append("kill")

    monkeypatch.setattr(parts, "get_context", lambda kind: Spawn((0, "a"), {"b": 1}))
    assert parts._in_process(1, 2, 3, 4, lambda *step: f"for {step}") == {"b": 1}
    end = ["close ours", "join", "kill"]
    assert done == ["start", "close theirs", "recv", "send for (0, 'a')", "recv", *end]
    done.clear()
    monkeypatch.setattr(parts, "get_context", lambda kind: Spawn())
    with pytest.raises(EOFError):
        parts._in_process(1, 2, 3, 4, lambda *step: None)
    assert done == ["start", "close theirs", "recv", *end]
