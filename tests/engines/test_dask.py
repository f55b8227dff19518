"""A store trained on a Dask cluster: the bytes of one process, whoever dies, and nothing said of rows."""

import contextlib
import logging
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import numpy as np
import pytest

from hushrec import Both, ItemBias, PrivateALS, Ratings, evaluate
from hushrec.batch import write_lists
from hushrec.data import realistic, split_ratings
from hushrec.errors import HushrecError, InputError
from hushrec.evaluation.metrics import METRICS
from hushrec.gate import LocalGate
from hushrec.partitioned import Call, PartitionedUsers, Question
from hushrec.privacy import Accountant, Budget, Ledger
from hushrec.privacy.testing import SeededNoise
from hushrec.testing import hostile_users, ratings_of
from hushrec.users import Users
from tests.engines.mortal import FOLDER, WAYS, Mortal

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
engine = pytest.importorskip("hushrec.engines.dask")

BUDGET = Budget(3.0, 1e-6)
MODEL = PrivateALS(rank=2, bias_rounds=1, iterations=1, features=False)
#: A slow machine must not look like a lost worker, nor a lost worker like a broken task.
SETTINGS = {
    "distributed.scheduler.allowed-failures": 20,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.memory.pause": False,
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    ratings = ratings_of(hostile_users(np.random.default_rng(5), 23))
    return Ratings.prepare(ratings, tmp_path_factory.mktemp("store") / "s", ratings.domain, partitions=7)


@pytest.fixture(scope="module")
def client():
    """Two workers, threads of this process."""
    with local(2) as found:
        yield found


class local:
    """A cluster in this process, and its client."""

    def __init__(self, workers: int, **options) -> None:
        with dask.config.set(SETTINGS):
            self._cluster = distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=False, dashboard_address=":0", **options
            )
        self._client = distributed.Client(self._cluster, set_as_default=False)

    def __enter__(self):
        return self._client

    def __exit__(self, *_) -> None:
        self._client.close()
        self._cluster.close()


def trained(estimator, rows, client=None, **options) -> bytes:
    if client is not None:
        options["engine"] = engine.Dask(client, patience=120, silence=options.pop("silence", 60))
    return estimator.fit(rows, Accountant(BUDGET, noise=SeededNoise(3)), seed=1, **options).to_bytes()


@pytest.mark.parametrize("model", [MODEL, Both(ratings=MODEL, like_from=4.0)], ids=lambda model: model.name)
def test_the_bytes_are_those_of_one_process(store, client, model):
    assert trained(model, store, client) == trained(model, store)


@pytest.mark.parametrize("workers", [1, 4])
def test_the_number_of_workers_does_not_show(store, workers):
    with local(workers) as client:
        assert trained(MODEL, store, client) == trained(MODEL, store)


def test_a_cluster_on_which_nobody_has_a_rating(tmp_path, client):
    nobody = ratings_of({})
    rows = Ratings.prepare(nobody, tmp_path / "s", nobody.domain)
    assert trained(ItemBias(), rows, client) == trained(ItemBias(), nobody)


def test_noise_is_drawn_by_the_driver_alone(store, client, monkeypatch):
    threads, release = set(), LocalGate.release

    def watched(self, label, bounded):
        threads.add(threading.get_ident())
        return release(self, label, bounded)

    monkeypatch.setattr(LocalGate, "release", watched)
    trained(MODEL, store, client)
    assert threads == {threading.get_ident()}


def test_an_evaluation_has_the_figures_of_one_process(tmp_path, client):
    ratings = realistic(300, 40, 4000, seed=1)
    parts = split_ratings(ratings, (0.8, 0.2), seed=0)
    model = ItemBias().fit(parts[0], Accountant(BUDGET, noise=SeededNoise(3)))
    stores = [
        Ratings.prepare(part, tmp_path / str(n), part.domain, partitions=5) for n, part in enumerate(parts)
    ]
    options = {"k": 5, "metrics": METRICS, "resamples": 20}
    whole = evaluate(model, *parts, **options)
    found = evaluate(model, *stores, **options, engine=engine.Dask(client))
    assert (found.n_users, found.n_ratings) == (whole.n_users, whole.n_ratings)
    for name in whole.metrics:
        assert found[name].value == pytest.approx(whole[name].value, rel=1e-12)
    with pytest.raises(InputError, match="two stores"):
        evaluate(model, *parts, engine=engine.Dask(client))
    other = Ratings.prepare(parts[1], tmp_path / "other", parts[1].domain, partitions=4)
    with pytest.raises(InputError, match="number of partitions"):
        evaluate(model, stores[0], other, engine=engine.Dask(client))


def test_lists_are_those_of_one_process(tmp_path, store, client):
    model = MODEL.fit(store, Accountant(BUDGET, noise=SeededNoise(3)))
    alone = write_lists(model, store, tmp_path / "alone", 3)
    found = write_lists(model, store, tmp_path / "dask", 3, engine=engine.Dask(client))
    assert [each.read_bytes() for each in found] == [each.read_bytes() for each in alone]
    assert sorted((tmp_path / "dask").iterdir()) == found
    with pytest.raises(InputError, match="works on a store"):
        write_lists(model, ratings_of({}), tmp_path / "other", engine=engine.Dask(client))
    assert not (tmp_path / "other").exists()


# what goes wrong


@pytest.mark.parametrize(
    "error, words",
    [
        (ValueError("user 'alice' has 17 ratings"), "A worker failed; why is private"),
        (MemoryError("17 ratings of alice"), "ran out of memory"),
        (InputError("alice"), "could not read its partitions"),
    ],
)
def test_an_exception_of_a_worker_is_one_fixed_sentence(store, client, monkeypatch, error, words):
    """Killed: a worker's exception that reaches the driver."""

    def fails(*_):
        raise error

    monkeypatch.setattr(engine, "answer_all", fails)
    with pytest.raises(HushrecError, match=words) as caught:
        trained(ItemBias(), store, client)
    assert "alice" not in str(caught.value) and "17" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_a_worker_computes_with_no_value_that_is_not_finite(store, client):
    """Wherever it is in what a scheduler passed on; the driver asks with none such, nor tells it."""
    items = {"factors": [np.zeros(3), np.array([1.0, np.nan])]}
    question = Question((Call("weigh", (2.0, items), {}),), Call("item_weights", (), {}))
    sent = pytest.raises(HushrecError, match="sent released values that are not finite")
    with sent, engine.Dask(client).asking(ItemBias().users, store) as ask:
        ask(question)
    users = PartitionedUsers(ItemBias().users, store.domain, lambda question: pytest.fail("asked"))
    with pytest.raises(HushrecError, match="users compute with none such"):
        users.item_deviations(np.array([np.inf]))


def test_a_task_that_failed_once_is_asked_again(store, client, monkeypatch):
    failed, answer_all = [], engine.answer_all

    def once(*words):
        if not failed:
            failed.append(True)
            raise MemoryError
        return answer_all(*words)

    monkeypatch.setattr(engine, "answer_all", once)
    assert trained(ItemBias(), store, client) == trained(ItemBias(), store) and failed


def test_a_damaged_partition_is_named_before_anything_is_asked(tmp_path, client):
    ratings = ratings_of(hostile_users(np.random.default_rng(5), 23))
    store = Ratings.prepare(ratings, tmp_path / "s", ratings.domain, partitions=3)
    content = bytearray((tmp_path / "s" / "part-00001.arrow").read_bytes())
    content[-20] ^= 1
    (tmp_path / "s" / "part-00001.arrow").write_bytes(content)
    accountant = Accountant(BUDGET)
    with pytest.raises(InputError, match="part-00001"):
        MODEL.fit(store, accountant, engine=engine.Dask(client))
    assert not accountant.releases


def test_workers_of_another_version_are_refused(store, client, monkeypatch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "run", lambda *_, **__: {"tcp://other": "0.0.1"})
        with pytest.raises(InputError, match="another version of hushrec"):
            engine.Dask(client)
    main = threading.main_thread()
    monkeypatch.setattr(engine, "library_version", lambda: "1" if threading.current_thread() is main else "2")
    with pytest.raises(HushrecError, match="another version of hushrec"):
        trained(ItemBias(), store, client)


def test_a_scheduler_that_cannot_be_reached_is_one_sentence(capfd):
    with pytest.raises(HushrecError, match="tcp://127.0.0.1:9 cannot be reached") as caught:
        engine.Dask("tcp://127.0.0.1:9", patience=0.5)
    assert caught.value.__cause__ is None and not capfd.readouterr().err
    for wrong in (None, 8786):
        with pytest.raises(InputError, match="client must be"):
            engine.Dask(wrong)


def test_what_is_in_memory_is_refused(client):
    accountant = Accountant(BUDGET)
    with pytest.raises(InputError, match="store"):
        MODEL.fit(ratings_of({}), accountant, engine=engine.Dask(client))
    assert not accountant.releases


def test_without_workers_it_stops_in_a_sentence_and_can_be_resumed(store, tmp_path):
    """Killed: a charge for what was released before the workers were lost."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with local(0) as client, pytest.raises(HushrecError, match="No worker is left"):
        MODEL.fit(store, Accountant(BUDGET, ledger=ledger), engine=engine.Dask(client, patience=0.3))
    with local(1) as client, pytest.MonkeyPatch.context() as patch:
        release, made = LocalGate.release, []

        def leaving(self, label, bounded):
            made.append(label)
            if len(made) == 2:
                for left in list(client.cluster.workers.values()):
                    client.cluster.sync(left.close)  # Dask may refuse to retire the last one
            return release(self, label, bounded)

        patch.setattr(LocalGate, "release", leaving)
        patch.setattr(engine, "_PAUSE", 0.1)
        with pytest.raises(HushrecError, match="No worker is left.*resumed"):
            MODEL.fit(store, Accountant(BUDGET, ledger=ledger), engine=engine.Dask(client, patience=0.3))
    assert ledger.summary("default", 1e-6).charges == 2
    accountant = Accountant(BUDGET, ledger=ledger, resume=True)
    model = MODEL.fit(store, accountant)
    assert ledger.summary("default", 1e-6).charges == len(model.privacy.releases) == len(accountant.releases)


def test_a_worker_that_is_silent_is_given_up():
    """Killed: what only one version of Dask calls it by."""
    with local(1) as client:
        assert client.run_on_scheduler(engine._give_up, silence=60) == 0 and len(client.nthreads()) == 1
        assert client.run_on_scheduler(engine._give_up, silence=-1) == 1 and not client.nthreads()


class Scripted(engine.Dask):
    """A cluster that answers with prepared words or sums, and counts how often it was asked."""

    def __init__(self, answers):
        self.answers, self.asked = iter(answers), 0

    @contextlib.contextmanager
    def _tasks(self, public):
        self.asked += 1
        yield (lambda *_, **__: None), [public]

    def _found(self, submitted, wait=True):
        return next(self.answers) if wait else None


TRIES = [
    (["failed", "lost", "memory", "store", "sum"], None, 5, [4.0]),
    (["silent"] * 20 + ["sum"], None, 21, []),  # who was silent was given up, others do the work
    (["lost", "silent", "lost", "sum"], None, 4, [2.0, 4.0]),
    (["failed"] * 5 + ["sum"], "A worker failed", 5, []),
    (["lost"] * 5 + ["sum"], "lost again and again", 5, [2.0, 4.0, 8.0, 16.0, 16.0]),
    (["version", "sum"], "another version", 1, []),
    (["failed", "nobody", "sum"], "No worker is left", 2, []),
]


@pytest.mark.parametrize("answers, words, asked, pauses", TRIES)
@pytest.mark.parametrize("question", ["sum", "each"])
def test_what_is_asked_again_and_how_often(answers, words, asked, pauses, question, store, monkeypatch):
    """Killed: a final word that is asked again, a silent worker that counts as a failed task."""
    waited, total = [], [np.ones(3)]
    monkeypatch.setattr(engine.time, "sleep", waited.append)
    cluster = Scripted(total if word == "sum" else word for word in answers)
    one = type("", (), {"partitions": lambda self: [None]})()

    def ask():
        if question == "sum":
            return cluster.added(None, store, Question((), None, 24))
        return cluster.each(None, (one,), None)

    if words is None:
        found = ask()
        assert found is total if question == "sum" else found == total
    else:
        with pytest.raises(HushrecError, match=words) as error:
            ask()
        assert ("can be resumed" in str(error.value)) == (question == "sum")
    assert cluster.asked == asked and waited == pauses


def test_partitions_that_are_done_are_not_asked_for_again(store):
    """Of three partitions the second is lost once: it alone is asked for again, and the order is kept."""
    cluster = Scripted([["a"], "failed", ["c"], ["b"]])
    three = type("", (), {"partitions": lambda self: [None] * 3})()
    assert cluster.each(None, (three,), None) == ["a", "b", "c"] and cluster.asked == 2


# workers as processes, with Dask's TLS


class worker:
    """A worker started by hand."""

    def __init__(self, scheduler: str, certificates: list[str], deaths: Path) -> None:
        words = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler]
        name = uuid.uuid4().hex
        root = Path(__file__).parents[2]
        environment = os.environ | {
            "PYTHONPATH": str(root), FOLDER: str(deaths), f"{FOLDER}_WORKER": name, "OMP_NUM_THREADS": "1"
        }  # fmt: skip
        self.process = subprocess.Popen(
            [
                *words,
                "--no-nanny",
                "--no-dashboard",
                "--preload",
                "tests.engines.mortal",
                "--nthreads",
                "1",
                "--memory-limit",
                "0",
                "--name",
                name,
                *certificates,
            ],
            cwd=root,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def certificates_of(security, folder: Path) -> list[str]:
    """Options of a worker by which it and the scheduler trust each other."""
    options = []
    for name, option in (("tls_ca_file", "ca-file"), ("tls_worker_cert", "cert"), ("tls_worker_key", "key")):
        (folder / option).write_text(getattr(security, name))
        options += [f"--tls-{option}", str(folder / option)]
    return options


def check_deaths(folder: Path, store, ways: tuple[str, ...], workers: int) -> None:
    """Workers of their own process that die in the middle of a task, one after the other."""
    whole, deaths, over = trained(ItemBias(), store), folder / "deaths", threading.Event()
    deaths.mkdir()
    security = distributed.Security.temporary()
    with local(0, security=security, protocol="tls://", host="127.0.0.1") as client:
        certificates = certificates_of(security, folder)
        scheduler = client.scheduler.address
        assert scheduler.startswith("tls://")
        started = [worker(scheduler, certificates, deaths) for _ in range(workers)]
        watch = threading.Thread(target=hear_nothing, args=(client, folder, over))
        watch.start()
        try:
            client.wait_for_workers(workers, timeout=120)
            for number, way in enumerate(ways):
                (deaths / f"{way}.{number}").touch()
                assert trained(Mortal(), store, client) == whole
                assert not any(deaths.iterdir())  # somebody died
                if len(ways) >= workers:
                    started.append(worker(scheduler, certificates, deaths))
        finally:
            over.set()
            watch.join()
            for each in started:
                each.process.kill()
                each.process.wait()


def hear_nothing(client, folder: Path, over: threading.Event) -> None:
    """Who is stopped is an hour silent for the scheduler, and nobody waits for it."""
    while not over.wait(0.1):
        stopped = {path.name.rpartition("-")[2] for path in folder.glob("taken-SIGSTOP*")}
        for each in list(client.cluster.scheduler.workers.values()) if stopped else ():
            if str(each.name) in stopped:
                each.last_seen -= 3600


def test_workers_that_die_change_nothing(tmp_path, store):
    check_deaths(tmp_path, store, WAYS, 4)


@pytest.mark.full
def test_workers_that_die_again_and_again_change_nothing(tmp_path, store):
    check_deaths(tmp_path, store, WAYS * 6 + WAYS[:2], 2)


@pytest.mark.parametrize("refusal", [OSError, TypeError])
def test_a_system_without_glibc_works_too(refusal, monkeypatch):
    """Windows has no library of the process to be asked for."""

    def refuse(name):
        raise refusal

    monkeypatch.setattr(engine.ctypes, "CDLL", refuse)
    engine._keep_memory.__wrapped__()


def test_why_a_task_failed_is_told_to_its_workers_log_alone(monkeypatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(logging.getLogger("distributed.worker"), "exception", said.append)
    monkeypatch.setattr(engine, "_keep_memory", lambda: None)

    def fails(error: type[Exception]) -> list:
        raise error("somebody's rows")

    for error, word in ((ValueError, "failed"), (InputError, "store"), (MemoryError, "memory")):
        assert engine._guarded(lambda error=error: fails(error), engine.library_version()) == word
    assert len(said) == 2 and "what follows is private" in said[0]
    assert engine._guarded(list, "another") == "version" and len(said) == 2


class Told(distributed.Client):
    """A client of no cluster, which says what it is told to say."""

    status = "running"

    def __init__(self, **answers) -> None:
        self.closed, self.asked, self.answers = [], [], answers

    def __del__(self) -> None:
        pass

    def close(self, timeout=None) -> None:
        self.closed.append(timeout)

    def run(self, *asked, **options):
        self.asked.append((asked, options))
        return self._of("run", {})

    def nthreads(self):
        return self._of("nthreads", {"a": 1})

    def run_on_scheduler(self, function, silence):
        assert function is engine._give_up and silence == 0.02
        return self._of("silent", 0)

    def submit(self, function, *arguments, pure, **options):
        assert pure is False  # what is asked again is worked on again
        self.asked.append((function, arguments, options))
        return Future(self)

    def _of(self, name, usual):
        found = self.answers.get(name, usual)
        if isinstance(found, BaseException):
            raise found
        return found


class Future:
    """What is submitted to it: done after a while, or never."""

    def __init__(self, client: Told) -> None:
        self.client = client

    def add_done_callback(self, tell) -> None:
        if "result" in self.client.answers:
            tell(self)

    def result(self, timeout):
        assert timeout == 0.05
        return self.client._of("result", None)

    def release(self) -> None:
        self.client.closed.append("future")


def of(**answers):
    client = Told(**answers)
    return engine.Dask(client, patience=0.05, silence=0.02), client


def test_a_cluster_is_left_by_whoever_joined_it_by_its_address(monkeypatch) -> None:
    """Also where its workers have another version; a client that was given is its owner's."""
    dask_engine, client = of()
    assert client.asked == [((engine.importlib.metadata.version, "hushrec"), {"on_error": "return"})]
    with dask_engine as entered:
        assert entered is dask_engine
    assert not client.closed
    monkeypatch.setattr(engine, "_connected", lambda address, patience: client)
    with engine.Dask("tcp://somewhere", patience=0.05):
        assert not client.closed
    assert client.closed == [2]
    client.answers["run"] = {"tcp://a": engine.importlib.metadata.version("hushrec"), "tcp://b": "0.0.1"}
    with pytest.raises(InputError, match="another version"):
        engine.Dask("tcp://somewhere")
    assert client.closed == [2, 2]
    client.answers["run"] = OSError("somewhere")
    with pytest.raises(HushrecError, match="does not answer") as error:
        engine.Dask(client)
    assert error.value.__cause__ is None and client.closed == [2, 2]


def test_a_client_of_an_address_is_nobodys_default(monkeypatch) -> None:
    seen, quiet = [], logging.getLogger("distributed")
    before = quiet.level
    monkeypatch.setattr(
        distributed, "Client", lambda *asked, **options: seen.append((asked, options, quiet.level))
    )
    engine._connected("tcp://somewhere", 7.0)
    options = {"timeout": 7.0, "set_as_default": False}
    assert seen == [(("tcp://somewhere",), options, logging.CRITICAL)] and quiet.level == before
    for error, why in ((TimeoutError, "not in time"), (OSError, "OSError")):

        def fails(*_, error=error, **__):
            raise error

        monkeypatch.setattr(distributed, "Client", fails)
        with pytest.raises(HushrecError, match=f"somewhere cannot be reached \\({why}\\)"):
            engine._connected("tcp://somewhere", 7.0)
        assert quiet.level == before


def test_threads_of_a_host_are_together_and_a_lost_cluster_has_none() -> None:
    dask_engine, client = of(nthreads={"tcp://b": 1, "tcp://a": 2})
    assert dask_engine._workers() == ["tcp://a", "tcp://a", "tcp://b"]
    client.answers["nthreads"] = OSError()
    assert dask_engine._workers() == [] and not dask_engine._somebody()
    client.answers["nthreads"] = {"a": 1}
    assert dask_engine._somebody()
    client.status = "closed"
    assert dask_engine._workers() == []


def test_what_is_waited_for_and_for_how_long() -> None:
    """Until it is done, until somebody is silent, or until nobody is there."""
    dask_engine, client = of(result="found")
    assert dask_engine._found(lambda: Future(client)) == "found"
    future = Future(client)
    assert dask_engine._found(lambda: future, False) is future
    assert dask_engine._found(lambda: "version") == "version"
    for gone in (OSError("alice"), engine.CancelledError()):
        client.answers["result"] = gone
        assert dask_engine._found(lambda: Future(client)) == "lost"
        client.status = "closed"
        assert dask_engine._found(lambda: future, False) is future
        assert dask_engine._found(lambda: Future(client)) == "nobody"
        client.status = "running"
    del client.answers["result"]
    client.answers["silent"] = 1
    assert dask_engine._found(lambda: Future(client)) == "silent"
    client.answers |= {"silent": 0, "nthreads": {}}
    assert dask_engine._patiently(Future(client)) == dask_engine._found(lambda: Future(client)) == "nobody"


def test_what_was_submitted_is_forgotten_at_the_end() -> None:
    dask_engine, client = of()
    del client.asked[:]
    with dask_engine._tasks("public") as (submit, shipped):
        assert isinstance(shipped, Future)
        submit(len, "abc", workers=["a"])
        assert not client.closed
    assert client.asked == [(engine._itself, ("public",), {}), (len, ("abc",), {"workers": ["a"]})]
    assert client.closed == ["future"] * 2


@pytest.mark.parametrize("threads", [1, 3, 40])
@pytest.mark.parametrize(("tables", "tasks"), [(0.0, 8), (1 / 3.5, 3), (5.0, 1)])
def test_every_block_is_asked_once_and_a_thread_for_the_same_ones(threads, tables, tasks) -> None:
    """In so many tasks a thread as its tables have room for, whose sums are added there first."""
    dask_engine, _ = of(nthreads={f"w{number:02}": 1 for number in range(threads)})
    blocks, asked, added = type("", (), {"blocks": lambda self: [None] * 37})(), [], []
    public = object()
    assert dask_engine._tree(None, "work", blocks, "lost", 1) == "lost"  # nothing can be shipped

    def submit(function, *arguments, **options):
        if function is engine._work:
            work, rows, numbers, shipped, version = arguments
            assert (work, rows, shipped, version) == ("work", blocks, public, engine.library_version())
            asked.append((options["workers"], numbers))
            assert options["allow_other_workers"] is True
            return [np.array([float(sum(numbers)), len(numbers)])]
        assert function is engine._added
        added.append((len(arguments[0]), options))
        return engine._added(arguments[0])

    size = int(tables * engine.TABLES_BYTES)
    [total] = dask_engine._tree(submit, "work", blocks, public, size)
    assert total.tolist() == [sum(range(37)), 37]
    assert [number for _, numbers in asked for number in numbers] == list(range(37))
    busy = min(threads, 37)
    own = [sum(workers == [f"w{number:02}"] for workers, _ in asked) for number in range(threads)]
    assert own[:busy] == [min(tasks, len(part)) for part in np.array_split(np.arange(37), threads)][:busy]
    assert not any(own[busy:])
    first = [options["workers"] for _, options in added if options]
    assert first == [[f"w{number:02}"] for number in range(busy)]
    assert max(count for count, options in added if not options) <= 8 if busy > 1 else len(added) == 1


def test_partial_sums_are_added_and_words_are_passed_on() -> None:
    one, other = [np.ones(2), np.ones(1)], [np.full(2, 3.0), np.zeros(1)]
    found = engine._added([one, [], other, one])
    assert [each.tolist() for each in found] == [[5.0, 5.0], [2.0]] and one[0].tolist() == [1.0, 1.0]
    assert engine._added([one, "memory", "lost"]) == "memory" and engine._added([[], []]) == []
    rows = type("", (), {"blocks": lambda self: "abc", "partitions": lambda self: "xyz"})()
    version = engine.library_version()
    assert engine._work(lambda blocks, asked: [*blocks, asked], rows, [2, 0], "q", version) == ["c", "a", "q"]
    assert engine._work(lambda blocks, asked: None, rows, [0], "q", version) == []
    assert engine._one(lambda *given: given, (rows, rows), 1, "p", version) == [(1, ["y", "y"], "p")]
    assert engine._answered(Users, [], Question((), Call("any", (), {}))) is None


def test_freed_memory_is_kept_for_the_next_block(monkeypatch) -> None:
    """Of glibc: M_TRIM_THRESHOLD is -1 and M_MMAP_THRESHOLD is -3."""
    said = []
    library = type("", (), {"mallopt": lambda self, *given: said.append(given)})()
    monkeypatch.setattr(engine.ctypes, "CDLL", lambda name: library)
    engine._keep_memory.__wrapped__()
    assert said == [(-1, 2**28), (-3, 2**25)]


@pytest.mark.parametrize(("comes", "waited"), [(3, 2), (30, 9)])
def test_workers_are_waited_for_while_there_is_patience(comes, waited, monkeypatch) -> None:
    """A tenth of a second at a time, by a clock that cannot be set."""
    dask_engine, _ = of()
    dask_engine._patience, now, asked = 0.85, [50.0], []
    monkeypatch.setattr(
        dask_engine, "_workers", lambda: asked.append(now[0]) or ["a"] * (len(asked) >= comes)
    )
    monkeypatch.setattr(engine.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(engine.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    assert dask_engine._somebody() == (comes == 3)
    assert now[0] == pytest.approx(50 + 0.1 * waited)


def test_rows_that_workers_could_not_reach_are_refused_by_their_kind() -> None:
    dask_engine, _ = of()
    with pytest.raises(InputError, match="or hushrec prepare[.]$"), dask_engine.asking(Users, ["alice"]):
        pytest.fail("asked of rows in memory")
