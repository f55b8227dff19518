"""A store trained on a Dask cluster: the bytes of one process, with any worker lost, and no message about
rows."""

import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hushrec import Both, ItemBias, PrivateALS, PrivateEigenRec, Store, evaluate
from hushrec.data import Domain, Ratings, realistic, split_ratings
from hushrec.errors import HushrecError, InputError
from hushrec.evaluation.user_metrics import METRICS
from hushrec.privacy import Accountant, Attendance, Budget, Ledger, Season, SeasonAccountant, SystemNoise
from hushrec.privacy.testing import SeededNoise
from hushrec.serving.batch import write_lists
from hushrec.testing import hostile_users, ratings_of
from hushrec.training import named
from hushrec.training.gate import LocalGate
from hushrec.training.partitioned import PartitionedUsers
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
    return Store.prepare(ratings, tmp_path_factory.mktemp("store") / "s", ratings.domain, partitions=7)


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


@pytest.mark.parametrize(
    "model",
    [MODEL, Both(ratings=MODEL, like_threshold=4.0), PrivateEigenRec(rank=2, iterations=2)],
    ids=lambda model: model.name,
)
def test_the_bytes_are_those_of_one_process(store, client, model):
    assert trained(model, store, client) == trained(model, store)


@pytest.mark.parametrize("workers", [1, 4])
def test_the_number_of_workers_does_not_show(store, workers):
    with local(workers) as client:
        assert trained(MODEL, store, client) == trained(MODEL, store)


@pytest.mark.true("L3")
def test_a_season_weighs_the_users_as_in_memory(client, tmp_path, monkeypatch):
    """Users come at random, so their weights differ; the user count is the sum of the weights.

    In the last week nobody is new: that no user weighs 1 shows in no message.
    """
    monkeypatch.setattr(SystemNoise, "add_gaussian", lambda _, *given: SeededNoise(0).add_gaussian(*given))
    users, dice = hostile_users(np.random.default_rng(5), 23), np.random.default_rng(6)
    season = Season(Budget(1000, 1e-6), 0.5, 0.5)
    places = {"memory": None, "store": None, "dask": engine.Dask(client)}
    books = {place: Ledger(tmp_path / f"{place}.sqlite") for place in places}
    for book in books.values():
        book.open_season("default", season)
    for week in range(5):
        if week < 4:
            rows = ratings_of({name: users[name] for name in users if dice.random() < 0.6})
        store = Store.prepare(rows, tmp_path / f"week {week}", rows.domain, partitions=3)
        counts, arrays = [], []
        for place, where in places.items():
            people = Attendance(tmp_path / f"{place}.people")
            accountant = SeasonAccountant(season, skip=True, ledger=books[place], attendance=people)
            given = rows if place == "memory" else store
            model = named.train("private-als", given, accountant, settings={"rank": 2}, engine=where)
            counts.append(model.estimator.n_users)
            arrays.append({name: array.tobytes() for name, array in model.arrays.items()})
        assert counts[0] == counts[1] == counts[2] and arrays[0] == arrays[1] == arrays[2]
    assert 0 < counts[0] < len(rows.user_texts)


def test_noise_is_drawn_by_the_driver_alone(store, client, monkeypatch):
    threads, release = set(), LocalGate.release

    def watched(self, label, bounded):
        threads.add(threading.get_ident())
        return release(self, label, bounded)

    monkeypatch.setattr(LocalGate, "release", watched)
    trained(MODEL, store, client)
    assert threads == {threading.get_ident()}


def test_purchases_and_returns_give_the_model_of_memory(tmp_path, client):
    table = realistic(300, 40, 4000, seed=1).to_arrow()
    number = np.arange(len(table))
    stars = pa.array(table["rating"].to_numpy(), mask=number % 3 == 0)
    table = table.set_column(2, "rating", stars).append_column("pieces", [np.where(number % 6, 1, -1)])
    domain, columns = Domain([f"i{k:05d}" for k in range(1, 41)], rating_range=(1, 5)), {"quantity": "pieces"}
    store = Store.prepare(table, tmp_path / "s", domain, columns=columns, partitions=5)
    models = [
        Both.planned(BUDGET, domain, n_users=300).fit(
            rows, Accountant(BUDGET, noise=SeededNoise(3)), engine=where
        )
        for rows, where in (
            (Ratings.from_any(table, domain, columns=columns), None),
            (store, engine.Dask(client)),
        )
    ]
    assert models[0].to_bytes() == models[1].to_bytes() and np.isnan(store.ratings().matrix.data).any()


def test_an_evaluation_has_the_figures_of_one_process(tmp_path, client):
    ratings = realistic(300, 40, 4000, seed=1)
    parts = split_ratings(ratings, (0.8, 0.2), seed=0)
    model = ItemBias().fit(parts[0], Accountant(BUDGET, noise=SeededNoise(3)))
    stores = [
        Store.prepare(part, tmp_path / str(n), part.domain, partitions=5) for n, part in enumerate(parts)
    ]
    options = {"k": 5, "metrics": list(METRICS), "resamples": 20}
    whole = evaluate(model, *parts, **options)
    found = evaluate(model, *stores, **options, engine=engine.Dask(client))
    assert (found.n_users, found.n_ratings) == (whole.n_users, whole.n_ratings)
    for name in whole.metrics:
        assert found[name].value == pytest.approx(whole[name].value, rel=1e-12)
    with pytest.raises(InputError, match="two stores"):
        evaluate(model, *parts, engine=engine.Dask(client))
    other = Store.prepare(parts[1], tmp_path / "other", parts[1].domain, partitions=4)
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
        (InputError("17 ratings of alice"), "could not read its partitions"),
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


def test_no_worker_is_sent_a_value_that_is_not_finite(store):
    users = PartitionedUsers(ItemBias().users, store.domain, lambda query: pytest.fail("asked"))
    for bad in (np.array([np.inf]), {"factors": [np.zeros(3), np.array([1.0, np.nan])]}):
        with pytest.raises(HushrecError, match="so users cannot use it"):
            users.item_deviations(bad)


def test_a_damaged_partition_is_named_before_anything_is_asked(tmp_path, client):
    ratings = ratings_of(hostile_users(np.random.default_rng(5), 23))
    store = Store.prepare(ratings, tmp_path / "s", ratings.domain, partitions=3)
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
    """Killed: a charge for releases from before the workers were lost."""
    MODEL.fit(store, Accountant(BUDGET, ledger=Ledger(tmp_path / "kernels.sqlite")))  # which loads them
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
        with pytest.raises(HushrecError, match="No worker is left.*resumed"):
            MODEL.fit(store, Accountant(BUDGET, ledger=ledger), engine=engine.Dask(client, patience=0.3))
    assert ledger.summary("default", 1e-6).charges == 2
    accountant = Accountant(BUDGET, ledger=ledger, resume=True)
    model = MODEL.fit(store, accountant)
    assert ledger.summary("default", 1e-6).charges == len(model.privacy.releases) == len(accountant.releases)


# workers as processes, with Dask's TLS


class worker:
    """A worker started by hand."""

    def __init__(self, scheduler: str, certificates: list[str], deaths: Path) -> None:
        name = uuid.uuid4().hex
        line = f"-m distributed.cli.dask_worker {scheduler} --no-nanny --no-dashboard --nthreads 1"
        line += f" --preload tests.engines.mortal --memory-limit 0 --name {name}"
        root = Path(__file__).parents[2]
        environment = os.environ | {
            "PYTHONPATH": str(root), FOLDER: str(deaths), f"{FOLDER}_WORKER": name, "OMP_NUM_THREADS": "1"
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, *line.split(), *certificates],
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
    """Worker processes that die in the middle of a task, one after the other."""
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
    """Let the scheduler wait an hour for a stopped worker."""
    while not over.wait(0.1):
        stopped = {path.name.rpartition("-")[2] for path in folder.glob("taken-SIGSTOP*")}
        for each in list(client.cluster.scheduler.workers.values()) if stopped else ():
            if str(each.name) in stopped:
                each.last_seen -= 3600


@pytest.mark.parametrize(
    ("ways", "workers"),
    [(WAYS, 4), pytest.param(WAYS * 6 + WAYS[:2], 2, marks=pytest.mark.full)],
    ids=["once", "often"],
)
def test_workers_that_die_change_nothing(tmp_path, store, ways, workers):
    check_deaths(tmp_path, store, ways, workers)
