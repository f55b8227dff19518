"""Masked completion over a real connection on the loopback address: real processes, crashes, bad requests."""

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hushrec.errors import InputError
from hushrec.network.messages import Refusal
from hushrec.network.service import Limits, Service
from hushrec.network.transport import Connection, TransportError
from hushrec.papers.masked import client
from hushrec.papers.masked.messages import Accepted, Column, Task, Upload
from hushrec.papers.masked.server import CompletionServer, Settings, Store
from tests.command_line import invoke
from tests.papers.node_process import take_part

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parents[1])}
N_ITEMS, N_NODES, RANK, MASK_RANK = 60, 10, 1, 1
SETTINGS = {
    "catalogue": "catalogue",
    "n_items": N_ITEMS,
    "n_nodes": N_NODES,
    "enough": N_NODES,
    "rank": RANK,
    "mask_rank": MASK_RANK,
    "noise_sd": 50.0,
}


def matrix_and_cells(seed=0):
    generator = np.random.default_rng(seed)
    matrix = generator.standard_normal((N_NODES, RANK)) @ generator.standard_normal((RANK, N_ITEMS))
    seen = [np.sort(generator.choice(N_ITEMS, 50, replace=False)) for _ in range(N_NODES)]
    return matrix, seen


@contextlib.contextmanager
def server_process(database, port=0, **changes):
    line = [sys.executable, HERE / "server_process.py", database, str(port)]
    process = subprocess.Popen(
        [*map(str, line), json.dumps({**SETTINGS, **changes})], stdout=subprocess.PIPE, env=ENVIRONMENT
    )
    try:
        yield process, process.stdout.readline().decode().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def start_node(url, folder, node, rounds, *crash):
    line = [sys.executable, HERE / "node_process.py", url, folder, node, rounds, *crash]
    return subprocess.Popen([str(word) for word in line], env=ENVIRONMENT)


@contextlib.contextmanager
def serving(tmp_path, limits=None, **changes):
    settings = Settings(**{**SETTINGS, **changes})
    server = CompletionServer(settings, Store(tmp_path / "store.sqlite", settings))
    with Service(server.answer, limits=limits, admit=server.admit) as service:
        yield service


def submit_all(url, tmp_path, names, matrix, seen):
    keys = []
    for row, name in enumerate(names):
        key = client.PrivateKey.create(tmp_path / f"{name}.key", name, "catalogue")
        client.submit(Connection(url), key, seen[row], matrix[row, seen[row]])
        keys.append(key)
    return keys


@pytest.mark.parametrize(
    ("rounds", "alone"),
    [(2, 2), *(pytest.param(rounds, N_NODES, marks=pytest.mark.full) for rounds in (1, 2))],
)
def test_ten_nodes_a_crash_and_a_killed_server(tmp_path, rounds, alone):
    """Some nodes are processes; the others share one, a thread each."""
    matrix, seen = matrix_and_cells()
    names = [f"n{row}" for row in range(N_NODES)]
    for row, name in enumerate(names):
        np.savez(tmp_path / f"{name}.npz", items=seen[row], values=matrix[row, seen[row]])
    nodes = []
    try:
        with server_process(tmp_path / "store.sqlite", rounds=rounds) as (process, url):
            crashed = start_node(url, tmp_path, names[0], rounds, "crash")
            nodes = [start_node(url, tmp_path, name, rounds) for name in names[1 : alone // 2]]
            assert crashed.wait(timeout=90) == 9
            assert (tmp_path / "n0.key").exists()
            watcher = Connection(url)
            assert watcher.get(Task, "task").open
            process.kill()  # SIGKILL, while nodes wait for their columns
            process.wait()
        port = int(url.rpartition(":")[2])
        with server_process(tmp_path / "store.sqlite", port, rounds=rounds) as (process, url):
            last = N_NODES - alone // 2
            nodes += [start_node(url, tmp_path, name, rounds) for name in [names[0], *names[last:]]]
            with ThreadPoolExecutor(N_NODES) as pool:
                list(pool.map(lambda name: take_part(url, tmp_path, name, rounds), names[alone // 2 : last]))
            assert [node.wait(timeout=180) for node in nodes] == [0] * alone
    finally:
        for node in nodes:
            node.kill()
            node.wait()
    for row, name in enumerate(names):
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), matrix[row], atol=1e-5)


def test_duplicates_and_strangers(tmp_path):
    matrix, seen = matrix_and_cells()
    with serving(tmp_path) as service:
        connection = Connection(service.url, patience=0.2)
        names = [f"n{row}" for row in range(N_NODES)]
        keys = submit_all(service.url, tmp_path, names[:-1], matrix, seen)
        key = keys[0]
        again = client.submit(connection, client.PrivateKey.load(key.path), seen[0], matrix[0, seen[0]])
        assert again[1].node == "n0"  # the same upload is acknowledged again
        with pytest.raises(TransportError, match="not complete yet"):
            client.fetch(connection, key)
        other = Upload("n0", 1, np.arange(3, dtype=np.int32), np.ones(3))
        with pytest.raises(Refusal) as refused:
            connection.post(other, Accepted, "columns", token=key.token)
        assert refused.value.status == 409
        with pytest.raises(Refusal) as refused:
            connection.post(other, Accepted, "columns", token="x" * 40)
        assert refused.value.status == 403
        with pytest.raises(InputError, match="a second upload"):
            client.submit(connection, client.PrivateKey.load(key.path), seen[0], matrix[1, seen[0]])
        keys += submit_all(service.url, tmp_path, names[-1:], matrix[-1:], seen[-1:])
        late = client.PrivateKey.create(tmp_path / "late.key", "late", "catalogue")
        with pytest.raises(Refusal) as refused:
            client.submit(connection, late, seen[0], matrix[0, seen[0]])
        assert refused.value.status == 409
        patient = Connection(service.url)
        np.testing.assert_allclose(client.fetch(patient, key), matrix[0], atol=1e-5)
        for node, token in (("n1", key.token), ("n1", ""), ("nobody", key.token), ("n0", keys[1].token)):
            with pytest.raises(Refusal) as refused:
                connection.get(Column, "columns", node, token=token)
            assert refused.value.status == 403


def raw(url, request):
    """Send bytes, return the whole answer."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


def test_malformed_requests(tmp_path):
    bearer = b"Authorization: Bearer " + b"t" * 40 + b"\r\n"
    limits = Limits(body_bytes=2000, idle_seconds=0.5)

    def post(body, *, length=None, headers=bearer, path=b"/columns"):
        length = str(len(body)).encode() if length is None else length
        return (
            b"POST "
            + path
            + b" HTTP/1.1\r\nHost: h\r\n"
            + headers
            + b"Content-Length: "
            + length
            + b"\r\n\r\n"
            + body
        )

    good = Upload("a", 1, np.array([3], dtype=np.int32), np.ones(1)).to_json()
    far = Upload("a", 1, np.array([N_ITEMS], dtype=np.int32), np.ones(1)).to_json()
    early = Upload("a", 2, np.array([3], dtype=np.int32), np.ones(1)).to_json()
    with serving(tmp_path, limits, rounds=2) as service:
        for request, status in (
            (post(b"not json"), 400),
            (post(good[:-9]), 400),
            (post(far), 400),
            (post(early), 409),
            (post(good, headers=b""), 401),
            (post(good, headers=b"Authorization: Bearer short\r\n"), 401),
            (post(good, path=b"/elsewhere"), 404),
            (post(b"x" * 2001), 413),
            (post(b"", headers=b"", length=b"1999"), 401),  # without waiting for what follows
            (post(b"", length=b"99999999999999999999"), 413),
            (post(b"", length=b"9" * 5000), 413),
            (post(good.replace(b'"<i4"', b"[]")), 400),
            (post(b"", length=b"-1"), 411),
            (post(b"", length=b"many"), 411),
            (post(b"", length="²".encode("latin-1")), 411),
            (post(b"", headers=bearer + b"Transfer-Encoding: chunked\r\n", length=b"5"), 411),
            (b"GET /task HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
            (b"GET /../../etc/passwd HTTP/1.1\r\nHost: h\r\n\r\n", 404),
            (b"DELETE /task HTTP/1.1\r\nHost: h\r\n\r\n", 404),
            (b"GET /task HTTP/1.1\r\n\r\n", 400),
        ):
            answer = raw(service.url, request)
            assert answer.split()[1] == str(status).encode(), (request, answer)
            assert b"Traceback" not in answer
        assert b"400" in raw(service.url, b"\x00\xff\xfe\r\n\r\n")
        with contextlib.suppress(ConnectionError):  # an endless head is not waited for
            assert b" 400 " in raw(service.url, b"GET /task HTTP/1.1\r\nA: " + b"a" * 1_000_000)
        for silent in (b"", b"GET /task", post(good[:9], length=b"500")):
            assert raw(service.url, silent) == b""  # hung up after idle_seconds
        assert Connection(service.url).get(Task, "task").open  # and serves on


def test_enough_columns_complete_without_the_others(tmp_path):
    matrix, seen = matrix_and_cells()
    with serving(tmp_path, enough=N_NODES - 2, wait=0.3) as service:
        keys = submit_all(service.url, tmp_path, [f"n{row}" for row in range(N_NODES - 2)], matrix, seen)
        np.testing.assert_allclose(client.fetch(Connection(service.url), keys[5]), matrix[5], atol=1e-5)


@pytest.mark.parametrize("method", ["count", "uploads", "add_completion"])
def test_a_full_disk_is_told_to_the_nodes(tmp_path, method):
    """For any failure of the store after all columns arrived."""
    settings = Settings(**SETTINGS)
    store = Store(tmp_path / "store.sqlite", settings)
    server = CompletionServer(settings, store)
    real = getattr(store, method)

    def full(*arguments):
        if method == "count" and real(*arguments) < N_NODES:
            return real(*arguments)
        raise sqlite3.OperationalError("database or disk is full")

    setattr(store, method, full)
    matrix, seen = matrix_and_cells()
    with Service(server.answer) as service:
        keys = submit_all(service.url, tmp_path, [f"n{row}" for row in range(N_NODES)], matrix, seen)
        with pytest.raises(Refusal, match=r"could not be completed \(OperationalError\)"):
            client.fetch(Connection(service.url, patience=5), keys[0])


def test_the_store_is_its_owners_alone(tmp_path):
    old = os.umask(0)
    try:
        with serving(tmp_path):
            modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    finally:
        os.umask(old)
    assert set(modes) >= {"store.sqlite", "store.sqlite-wal"}
    assert set(modes.values()) == {0o600}


def test_a_store_of_other_settings_is_refused(tmp_path):
    settings = Settings(**SETTINGS)
    Store(tmp_path / "store.sqlite", settings)
    Store(tmp_path / "store.sqlite", settings)
    with pytest.raises(InputError, match="other settings"):
        Store(tmp_path / "store.sqlite", Settings(**{**SETTINGS, "seed": 1}))
    (tmp_path / "text").write_text("no database, but a text that is long enough to be looked at" * 20)
    with pytest.raises(InputError):
        Store(tmp_path / "text", settings)


@pytest.mark.parametrize(
    "changes",
    [{"enough": 1}, {"enough": 11}, {"mask_rank": 0}, {"mask_rank": 10}, {"rank": 9}, {"rounds": 3},
     {"solver": "x"}, {"noise_sd": 0.0}, {"wait": -1.0}],
)  # fmt: skip
def test_bad_settings(changes):
    with pytest.raises(InputError):
        Settings(**{**SETTINGS, **changes})


def test_key_files_are_private(tmp_path):
    key = client.PrivateKey.create(tmp_path / "a.key", "a", "catalogue")
    old = os.umask(0)
    try:
        key.save()
    finally:
        os.umask(old)
    assert (tmp_path / "a.key").stat().st_mode & 0o777 == 0o600
    assert client.PrivateKey.load(key.path).token == key.token
    (tmp_path / "a.key").chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        client.PrivateKey.load(key.path)
    (tmp_path / "b.key").write_text("[]")
    with pytest.raises(InputError, match="not a key file"):
        client.PrivateKey.load(tmp_path / "b.key")


def test_commands_and_the_attack(tmp_path, monkeypatch):
    """submit, record, fetch and the audit of the record, through the command line."""
    pytest.importorskip("flint")
    monkeypatch.chdir(tmp_path)
    matrix, seen = matrix_and_cells()
    items = [f"item {number}" for number in range(N_ITEMS)]
    Path("items.txt").write_text("\n".join(items))
    generator = np.random.default_rng(2)
    ratings = generator.integers(1, 6, (N_NODES, N_ITEMS))
    from hushrec.papers.masked.messages import fingerprint

    with serving(tmp_path, catalogue=fingerprint(items)) as service:
        shared = ["--server", service.url, "--catalogue", "items.txt"]
        for row in range(N_NODES):
            lines = [f"u{row},{items[item]},{ratings[row, item]}" for item in seen[row]]
            Path("mine.csv").write_text("user,item,rating\n" + "\n".join(lines))
            line = ["papers", "node", "submit", "mine.csv", *shared, "--key", f"{row}.key"]
            line += ["--rating-range", "1", "5"]
            done = invoke(*line, "--record", f"{row}.json")
            assert "Epsilon: None" in done.output and "masked ratings as node" in done.output
        line = ["papers", "node", "fetch", *shared, "--key", "3.key", "--out", "3.csv"]
        assert invoke(*line).exit_code == 0
        written = np.genfromtxt("3.csv", delimiter=",", skip_header=1, usecols=1)
        assert written.shape == (N_ITEMS,) and np.isfinite(written).all()
        assert Path("3.csv").stat().st_mode & 0o777 == 0o600
        done = invoke("papers", "audit-masked", "3.json", "--rating-range", "1", "5", "--json")
        assert json.loads(done.output)["ratings"] == ratings[3, seen[3]].tolist()
        Path("other.txt").write_text("\n".join(items[::-1]))
        line = ["papers", "node", "fetch", "--server", service.url, "--key", "3.key"]
        line += ["--catalogue", "other.txt"]
        assert invoke(*line, "--out", "x.csv").exit_code != 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("serve")]


def test_a_node_computes_with_no_key_or_column_that_does_not_fit(tmp_path):
    """The fault is the server's or in the node's file: there is one sentence and nothing is sent."""
    told = {Task: Task("catalogue", (np.eye(3),), 50.0, 1, True), Column: Column(np.zeros(4))}
    asked = SimpleNamespace(get=lambda kind, *_, **__: told[kind], post=lambda *_, **__: pytest.fail("sent"))
    key = client.PrivateKey.create(tmp_path / "a.key", "a", "catalogue")
    with pytest.raises(InputError, match="fewer rows than the catalogue"):
        client.submit(asked, key, np.array([0, 3]), np.ones(2))
    key.coefficients = [np.ones(3)]
    with pytest.raises(InputError, match="do not go together"):
        client.fetch(asked, key)
    key.coefficients = [np.array([1.0, np.nan, 1.0])]
    key.save()
    with pytest.raises(InputError, match="not a key file"):
        client.PrivateKey.load(key.path)
