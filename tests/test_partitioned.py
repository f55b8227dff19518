"""Users in partitions that are asked one question at a time give the model of the whole, byte for byte."""

import time

import numpy as np
import pytest

from hushrec import DPALS, Both, InputError, Popular, Ratings, Store, partitioned
from hushrec.data import store
from hushrec.evaluation import runs
from hushrec.kernels import threads
from hushrec.partitioned import Call, PartitionedUsers, Question, Streaming, answer_all
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise
from hushrec.users import Users
from tests.algorithms.cases import CASES, Case, hostile_data, ratings_of

# ---------------------------------------------------------------------- from a store


def model_of(case: Case, rows, **options) -> bytes:
    accountant = Accountant(case.budget("add-remove"), noise=SeededNoise(3))
    return case.estimator.fit(rows, accountant, seed=1, **options).to_bytes()


SHAPES = ((1, 1), (2, 2), (7, 8), (64, 2))  # partitions, threads
#: A case of each kind of private side in the short form, and one that does not stream.
SHORT = ("private-als", "private-eigenrec", "both", "item-bias", "popular", "one-bit-user", "dpals")


def a_store_gives_the_model_of_the_memory(tmp_path, case: Case, shapes) -> None:
    ratings = ratings_of(hostile_data(np.random.default_rng(5), 23))
    whole = model_of(case, ratings)
    for partitions, count in shapes:
        rows = Ratings.prepare(ratings, tmp_path / "s", ratings.domain, partitions=partitions, force=True)
        with threads.limit(count):
            assert model_of(case, rows) == whole


@pytest.mark.parametrize("name", SHORT)
def test_a_store_gives_the_model_of_the_memory(tmp_path, monkeypatch, name: str) -> None:
    monkeypatch.setattr(store, "BLOCK_RATINGS", 8)
    case = next(case for case in CASES if case.name == name)
    shapes = SHAPES if name in ("private-als", "popular") else SHAPES[2:3]
    a_store_gives_the_model_of_the_memory(tmp_path, case, shapes)


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_store_gives_the_model_of_the_memory_in_any_shape(tmp_path, monkeypatch, case: Case) -> None:
    if not isinstance(case.estimator.users(ratings_of({})), Users):
        pytest.skip("a training of rows by position")
    monkeypatch.setattr(store, "BLOCK_RATINGS", 8)
    a_store_gives_the_model_of_the_memory(tmp_path, case, SHAPES if case.estimator.streams else SHAPES[:1])


def test_what_is_wrong_with_a_store_is_said_before_anything_is_spent(tmp_path) -> None:
    ratings = ratings_of(hostile_data(np.random.default_rng(5), 23))
    rows = Ratings.prepare(ratings, tmp_path / "s", ratings.domain, partitions=3)
    rows.partitions()[1].path.write_bytes(b"")
    accountant = Accountant(Budget(1, 1e-6))
    with pytest.raises(InputError, match="part-00001.arrow"):
        Popular().fit(rows, accountant)
    assert not accountant.releases


def test_an_engine_needs_a_store_and_a_private_model_that_streams(tmp_path) -> None:
    ratings = ratings_of(hostile_data(np.random.default_rng(5), 23))
    rows = Ratings.prepare(ratings, tmp_path / "s", ratings.domain)
    for estimator, data, budget in (
        (Popular(), ratings, Budget(1, 1e-6)),
        (DPALS(), rows, Budget(1, 1e-6)),
        (Popular(), rows, Budget(np.inf, 1e-6)),
    ):
        accountant = Accountant(budget)
        with pytest.raises(InputError, match="engine"):
            estimator.fit(data, accountant, engine=Streaming())
        assert not accountant.releases


def test_what_is_wrong_is_said_before_the_number_of_users_is_paid_for(tmp_path) -> None:
    """As `hushrec train` runs it: an engine that cannot be used, and a damaged store."""
    ratings = ratings_of(hostile_data(np.random.default_rng(5), 23))
    rows = Ratings.prepare(ratings, tmp_path / "s", ratings.domain, partitions=2)
    accountant = Accountant(Budget(5, 1e-6))
    with pytest.raises(InputError, match="engine"):
        runs.train("private-frank-wolfe", rows, accountant, engine=Streaming())
    path = rows.partitions()[1].path
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(InputError, match="part-00001.arrow"):
        runs.train("private-als", Store(rows.path), accountant)
    assert not accountant.releases


def test_nobody(tmp_path) -> None:
    nobody = ratings_of({})
    rows = Ratings.prepare(nobody, tmp_path / "s", nobody.domain)
    found = [
        Popular().fit(each, Accountant(Budget(1, 1e-6), noise=SeededNoise(3))) for each in (nobody, rows)
    ]
    assert found[0].to_bytes() == found[1].to_bytes()


@pytest.mark.parametrize("count", [1, 4])
def test_a_failure_ends_the_others(count) -> None:
    ratings, begun = ratings_of(hostile_data(np.random.default_rng(5), 23)), []

    def read():
        begun.append(True)
        if len(begun) == 5:
            raise MemoryError
        return ratings

    question = Question((), Call("item_weights", (), {}))
    with threads.limit(count), pytest.raises(MemoryError):
        answer_all(Popular().users, [read] * 1000, question)
    assert len(begun) < 500


@pytest.mark.parametrize("room", [1, 1 << 30])
def test_threads_are_fewer_where_their_tables_have_no_room(tmp_path, monkeypatch, room) -> None:
    rows = ratings_of(hostile_data(np.random.default_rng(5), 23))
    store = Ratings.prepare(rows, tmp_path / "s", rows.domain, partitions=7)
    monkeypatch.setattr(partitioned, "TABLES_BYTES", room)
    at_once, most = [], []
    question = Question((), Call("item_weights", (), {}), 8 * rows.n_items)

    def counted(read):
        def reading():
            at_once.append(True)
            time.sleep(0.02)
            most.append(len(at_once))
            at_once.pop()
            return read()

        return reading

    with threads.limit(4):
        found = answer_all(Popular().users, [counted(block) for block in store.blocks()], question)
    assert found is not None and found[0].tobytes() == Popular().users(rows).item_weights()._take().tobytes()
    assert max(most) == 1 if room == 1 else max(most) > 1


def test_a_part_is_told_what_concerns_it() -> None:
    """Or both would find everybody's likes at every question about ratings."""
    rows = ratings_of(hostile_data(np.random.default_rng(5), 23))
    asked = []
    users = PartitionedUsers(Both().users, rows.domain, lambda question: asked.append(question) or [])
    users.lists.scale(np.ones(rows.n_items), np.ones(rows.n_items))
    users.ratings.weigh(3.0, np.ones(rows.n_items))
    for part in (users.ratings, users.lists):
        part.item_weights()
    assert [[call.name for call in each.told] for each in asked] == [["ratings.weigh"], ["lists.scale"]]
