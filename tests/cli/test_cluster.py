"""Commands on a Dask cluster: --scheduler."""

import json

import pytest

from hushrec.data import Domain, Store
from hushrec.privacy import Ledger

distributed = pytest.importorskip("distributed")


@pytest.fixture
def scheduler():
    """Address of a scheduler of this process, with one worker."""
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(protocol="tcp://", host="127.0.0.1", **options) as cluster:
        yield cluster.scheduler_address


def test_train_and_evaluate_on_a_cluster(run, files, scheduler):
    domain = Domain(tuple(files.items), (1, 5))
    for name, path in (("history", files.train), ("test", files.test)):
        Store.prepare(path, run.folder / name, domain, partitions=3)
    budget = ["--epsilon", "5", "--delta", "1e-6", "--model", "item-bias"]
    trained = run("train", "history", *budget, "--out", "m.hush", "--scheduler", scheduler)
    assert (trained.exit_code, trained.stderr) == (0, "")
    assert Ledger(run.ledger).summary("default", 1e-6).runs == 1
    ask = ["evaluate", "m.hush", "history", "test", "--resamples", "0", "--json"]
    alone, found = run(*ask), run(*ask, "--scheduler", scheduler)
    assert found.exit_code == 0
    assert json.loads(found.stdout)["rmse"] == pytest.approx(json.loads(alone.stdout)["rmse"])
    ask = ["recommend", "m.hush", "history", "--all", "--scheduler", scheduler]
    assert run(*ask, "--out-parts", "lists").exit_code == 0
    assert len(list((run.folder / "lists").iterdir())) == 3
    refused = run(*ask, "--out", "lists.parquet")
    assert refused.exit_code == 2 and "--out-parts" in refused.stderr


def test_what_a_cluster_cannot_do_is_refused_before_anything_is_spent(run, files, monkeypatch):
    budget = ["--epsilon", "5", "--delta", "1e-6", "--model", "item-bias", "--out", "m.hush"]
    ask = ["train", files.train, *budget, *files.domain, "--scheduler", "tcp://127.0.0.1:9"]
    found = run(*ask)
    assert found.exit_code == 2 and "make one with hushrec prepare" in found.stderr
    Store.prepare(files.train, run.folder / "s", Domain(tuple(files.items), (1, 5)))
    from hushrec.engines.dask import Dask

    usual = Dask.__init__.__kwdefaults__
    monkeypatch.setattr(Dask.__init__, "__kwdefaults__", {**usual, "patience": 0.5})
    for address, warned in (("tcp://127.0.0.1:9", False), ("192.0.2.1:9", True)):
        found = run("train", "s", *budget, "--scheduler", address)
        *warnings, sentence = found.stderr.strip().splitlines()
        assert found.exit_code == 1 and sentence.startswith("Error: ") and address in sentence
        assert bool(warnings) == warned and ("unencrypted" in found.stderr) == warned
    assert not run.ledger.exists()
