"""Users in partitions that are asked one query at a time give the model of the whole, byte for byte."""

import contextvars
import pickle
import time

import numpy as np
import pytest

from hushrec import Both, HushrecError, InputError, Popular, Store
from hushrec.data import store_files
from hushrec.engines.two_servers.replay import _key
from hushrec.kernels import threads
from hushrec.models.private_eigenrec import stacking
from hushrec.papers import DPALS
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import RecordingNoise, ReplayNoise, SeededNoise
from hushrec.testing import hostile_users, ratings_of
from hushrec.training import named, partitioned, trainable
from hushrec.training.gate import LocalGate
from hushrec.training.partitioned import (
    Admitted,
    Call,
    PartitionedUsers,
    Query,
    Streaming,
    WeightedUsers,
    answer_all,
)
from hushrec.training.users import Users
from tests.models.cases import CASES, Case
from tests.opening import opened

# ---------------------------------------------------------------------- from a store


def model_of(case: Case, rows, **options) -> bytes:
    accountant = Accountant(case.budget("add-remove"), noise=SeededNoise(3))
    return case.estimator.fit(rows, accountant, seed=1, **options).to_bytes()


SHAPES = ((1, 1), (2, 2), (7, 8), (64, 2))  # partitions, threads
#: A case of each kind of users' side in the short form, and one that does not stream.
SHORT = (
    "private-als",
    "private-eigenrec",
    "private-eigenrec, parts",
    "both",
    "item-bias",
    "popular",
    "one-bit-user",
    "dpals",
)


def a_store_gives_the_model_of_the_memory(tmp_path, case: Case, shapes) -> None:
    ratings = ratings_of(hostile_users(np.random.default_rng(5), 23))
    whole = model_of(case, ratings)
    for partitions, count in shapes:
        rows = Store.prepare(ratings, tmp_path / "s", ratings.domain, partitions=partitions, force=True)
        with threads.limit(count):
            assert model_of(case, rows) == whole


@pytest.mark.parametrize("name", SHORT)
def test_a_store_gives_the_model_of_the_memory(tmp_path, monkeypatch, name: str) -> None:
    monkeypatch.setattr(store_files, "BLOCK_RATINGS", 8)
    case = next(case for case in CASES if case.name == name)
    shapes = SHAPES if name in ("private-als", "popular") else SHAPES[2:3]
    a_store_gives_the_model_of_the_memory(tmp_path, case, shapes)


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_store_gives_the_model_of_the_memory_in_any_shape(tmp_path, monkeypatch, case: Case) -> None:
    if not isinstance(case.estimator.users(ratings_of({})), Users):
        pytest.skip("a training of rows by position")
    monkeypatch.setattr(store_files, "BLOCK_RATINGS", 8)
    a_store_gives_the_model_of_the_memory(
        tmp_path, case, SHAPES if case.estimator.supports_partitions else SHAPES[:1]
    )


@pytest.mark.parametrize("name", [name for name in SHORT if name not in ("one-bit-user", "dpals")])
def test_users_are_asked_what_follows_from_releases(name: str, monkeypatch) -> None:
    """Other rows with the same releases: the same questions, where only some users answer the last one."""
    monkeypatch.setattr(stacking, "_MOST_USERS", 3)
    case, rng = next(case for case in CASES if case.name == name), np.random.default_rng(5)
    first, other = (ratings_of(hostile_users(rng, count)) for count in (23, 4))
    budget, questions = case.budget("add-remove"), []
    recorded = RecordingNoise(SeededNoise(3))
    for rows in (first, other):
        noise = ReplayNoise(recorded.calls) if recorded.calls else recorded
        asked: list[str] = []

        def ask(query: Query, rows=rows, asked=asked) -> list:
            asked.append(_key(query))
            return answer_all(case.estimator.users, [lambda: rows], query) or []

        users = PartitionedUsers(case.estimator.users, rows.domain, ask)
        gate = LocalGate(Accountant(budget, noise=noise), case.estimator.plan(budget, rows.domain))
        with threads.one_blas_thread():
            case.estimator.for_users(1).train(users, gate, 1)
        questions.append(asked)
    assert questions[0] == questions[1] and questions[0]


def test_an_engine_needs_a_store_and_a_private_model_that_streams(tmp_path) -> None:
    ratings = ratings_of(hostile_users(np.random.default_rng(5), 23))
    rows = Store.prepare(ratings, tmp_path / "s", ratings.domain)
    for estimator, data, budget in (
        (Popular(), ratings, Budget(1, 1e-6)),
        (DPALS(), rows, Budget(1, 1e-6)),
        (Popular(), rows, Budget(np.inf, 1e-6)),
    ):
        accountant = Accountant(budget)
        with pytest.raises(InputError, match="engine"):
            estimator.fit(data, accountant, engine=Streaming())
        assert not accountant.releases


@pytest.mark.parametrize("name", [case.name for case in CASES if case.estimator.supports_seasons])
def test_what_a_plan_allows_fits_exact_sums_of_weighted_users(name: str) -> None:
    """Their steps are finer, so less noise fits. A refusal after the first releases would cost budget."""
    case = next(case for case in CASES if case.name == name)
    ratings, budget = ratings_of(hostile_users(np.random.default_rng(5), 7)), case.budget()
    planned = case.estimator.plan(budget, ratings.domain).releases
    least = min(release.mu for release in planned if release.label != trainable.USER_COUNT)  # a count fits
    part = (1.01 * trainable._SMALLEST_MU / least) ** 2
    plan = case.estimator.releases(budget, ratings.domain, part)
    gate = LocalGate(Accountant(budget, noise=SeededNoise(0)), plan)
    with threads.one_blas_thread():
        case.estimator.for_users(1).train(WeightedUsers([(1.0, case.estimator.users(ratings))]), gate, 0)
    with pytest.raises(InputError, match="too little of the budget"):
        case.estimator.releases(budget, ratings.domain, part / 1.1)


def test_a_users_weight_is_of_no_other_store(tmp_path) -> None:
    """Masks go by the place of a user, where another store could have one of more trainings."""
    users = hostile_users(np.random.default_rng(5), 23)
    ratings = ratings_of(users)
    rows = Store.prepare(ratings, tmp_path / "s", ratings.domain, partitions=1)
    masks = [np.arange(rows.n_users) < 3]
    sent = pickle.dumps(Admitted(rows, masks))
    others = ratings_of(dict(zip(users, reversed(users.values()), strict=True)))
    other = Store.prepare(others, tmp_path / "s", others.domain, partitions=1, force=True)
    assert other.n_users == rows.n_users and Admitted(other, masks).ratings().n_users == 3
    for group in (Admitted(rows, masks), pickle.loads(sent)):
        with pytest.raises(InputError, match="another store took its place"):
            group.ratings()


def test_what_is_wrong_is_said_before_the_number_of_users_is_paid_for(tmp_path) -> None:
    """The engine cannot be used, or the store is damaged."""
    ratings = ratings_of(hostile_users(np.random.default_rng(5), 23))
    rows = Store.prepare(ratings, tmp_path / "s", ratings.domain, partitions=2)
    accountant = Accountant(Budget(5, 1e-6))
    with pytest.raises(InputError, match="engine"):
        named.train("private-frank-wolfe", rows, accountant, engine=Streaming())
    path = rows.partitions()[1].path
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    for name in ("private-als", "popular", "dpals"):  # the last one holds the store whole
        with pytest.raises(InputError, match="part-00001.arrow"):
            named.train(name, Store(rows.path), accountant)
    assert not accountant.releases


def test_nobody(tmp_path) -> None:
    nobody = ratings_of({})
    rows = Store.prepare(nobody, tmp_path / "s", nobody.domain)
    found = [
        Popular().fit(each, Accountant(Budget(1, 1e-6), noise=SeededNoise(3))) for each in (nobody, rows)
    ]
    assert found[0].to_bytes() == found[1].to_bytes()


@pytest.mark.parametrize("count", [1, 4])
def test_a_failure_ends_the_others(count) -> None:
    ratings, begun = ratings_of(hostile_users(np.random.default_rng(5), 23)), []

    def read():
        begun.append(True)
        if len(begun) == 5:
            raise MemoryError
        return ratings

    query = Query((), Call("item_weights", (), {}))
    with threads.limit(count), pytest.raises(MemoryError):
        answer_all(Popular().users, [read] * 1000, query)
    assert len(begun) < 500


@pytest.mark.parametrize("room", [1, 1 << 30])
def test_threads_are_fewer_where_their_tables_have_no_room(tmp_path, monkeypatch, room) -> None:
    rows = ratings_of(hostile_users(np.random.default_rng(5), 23))
    store = Store.prepare(rows, tmp_path / "s", rows.domain, partitions=7)
    monkeypatch.setattr(partitioned, "TABLES_BYTES", room)
    at_once, most = [], []
    query = Query((), Call("item_weights", (), {}), 8 * rows.n_items)

    def counted(read):
        def reading():
            at_once.append(True)
            time.sleep(0.02)
            most.append(len(at_once))
            at_once.pop()
            return read()

        return reading

    with threads.limit(4):
        found = answer_all(Popular().users, [counted(block) for block in store.blocks()], query)
    weights = Popular().users(rows).item_weights()
    assert found is not None and (found[0] * weights.step == opened(weights)).all()
    assert max(most) == 1 if room == 1 else max(most) > 1


def test_a_part_is_told_what_concerns_it() -> None:
    """Otherwise both models would compute all likes at every query about ratings."""
    rows = ratings_of(hostile_users(np.random.default_rng(5), 23))
    asked = []
    users = PartitionedUsers(Both().users, rows.domain, lambda query: asked.append(query) or [])
    users.lists.scale(np.ones(rows.n_items), np.ones(rows.n_items))
    users.ratings.weigh(3.0, np.ones(rows.n_items))
    for part in (users.ratings, users.lists):
        part.item_weights()
    assert [[call.name for call in each.updates] for each in asked] == [["ratings.weigh"], ["lists.scale"]]


def test_a_part_is_told_what_concerns_all_users_as_it_was_at_the_call() -> None:
    class Whole(Users):
        part = property(lambda self: Users(self._ratings))

        def tell(self, numbers: np.ndarray) -> None: ...

    rows, asked, numbers = ratings_of(hostile_users(np.random.default_rng(5), 9)), [], np.ones(2)
    users = PartitionedUsers(Whole, rows.domain, lambda query: asked.append(query) or [])
    users.tell(numbers)
    numbers += 1  # by a server's side that uses the array again
    users.part.count()
    assert [(call.name, call.positional[0].tolist()) for call in asked[0].updates] == [("tell", [1.0, 1.0])]


def test_users_are_told_things_in_the_order_of_the_last_calls() -> None:
    """A repeated update moves to the end, as in memory: a fit uses the updates before it."""

    class Told(Users):
        def first(self, number: int) -> None: ...
        def second(self, number: int) -> None: ...

    rows, asked = ratings_of(hostile_users(np.random.default_rng(5), 9)), []
    users = PartitionedUsers(Told, rows.domain, lambda query: asked.append(query) or [])
    for name, number in (("first", 1), ("second", 2), ("first", 3)):
        getattr(users, name)(number)
    users.count()
    assert [(call.name, call.positional) for call in asked[0].updates] == [("second", (2,)), ("first", (3,))]


@pytest.mark.parametrize("answer", [7.25, (np.ones(2),)])
def test_what_cannot_be_added_is_refused(answer) -> None:
    """A number without a bound, alone or among others."""

    class Answering(Users):
        def total(self):
            return answer

    users = PartitionedUsers(Answering, ratings_of({}).domain, lambda query: [])
    with pytest.raises(HushrecError, match="cannot be added exactly") as refused:
        users.total()
    assert "7.25" not in str(refused.value)


def test_all_stores_are_looked_at_before_any_is_worked_on(tmp_path) -> None:
    rows = ratings_of(hostile_users(np.random.default_rng(5), 9))
    stores = [Store.prepare(rows, tmp_path / name, rows.domain, partitions=2) for name in ("a", "b")]
    numbers = Streaming().each(lambda number, parts, public: (number, len(parts), public), stores, "p")
    assert numbers == [(0, 2, "p"), (1, 2, "p")]
    stores[1].partitions()[1].path.write_bytes(b"")
    with pytest.raises(InputError, match="part-00001.arrow"):
        Streaming().each(lambda *_: pytest.fail("worked on"), stores, None)


def test_a_thread_has_the_settings_of_whoever_trains() -> None:
    word = contextvars.ContextVar("word", default="none")
    word.set("hers")
    rows, seen = ratings_of(hostile_users(np.random.default_rng(5), 9)), []

    def make(some):
        seen.append(word.get())
        return Users(some)

    with threads.limit(3):
        answer_all(make, [lambda: rows] * 6, Query((), Call("count", (), {})))
    assert seen == ["hers"] * len(seen) and len(seen) > 1
