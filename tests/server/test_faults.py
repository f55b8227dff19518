"""Models are exchanged under load, damaged ones are not, workers are restarted, and no answer is lost."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest

import hushrec
from hushrec.models import ESTIMATORS
from hushrec.network.service import Limits
from hushrec.privacy import Accountant, Budget
from hushrec.server import process
from hushrec.serving.modelfile import encode, read
from tests.command_line import invoke
from tests.server.conftest import ITEMS, RATINGS, serving, trained

HERS = {ITEMS[0]: 5.0, ITEMS[3]: 1.0}


def replace(path: Path, content: bytes) -> None:
    fresh = path.with_name("fresh")
    fresh.write_bytes(content)
    fresh.replace(path)


@pytest.mark.parametrize("count", [6, pytest.param(100, marks=pytest.mark.full)])
def test_models_are_exchanged_without_a_lost_request(tmp_path, count: int) -> None:
    """Every answer, also one on its way, is the list of the model with the digest that it names."""
    contents = [trained("als", rank=rank).to_bytes() for rank in (2, 3, 4)]
    lists = {content[-32:].hex(): hushrec.Model.from_bytes(content).recommend(HERS) for content in contents}
    path = tmp_path / "m.hush"
    path.write_bytes(contents[0])
    answers: list[tuple[int, str, list]] = []
    stop = threading.Event()
    with serving({"m": path}) as server:

        def ask() -> None:
            with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
                while not stop.is_set():
                    answer = client.post("/v1/recommend", json={"ratings": HERS})
                    found = answer.json()
                    items = [tuple(each.values()) for each in found["items"]]
                    answers.append((answer.status_code, found["digest"], items))
                    model = client.get("/models/m.hush")
                    assert model.content in contents

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(count):
            replace(path, contents[(number + 1) % 3])
            server.models.look()
            asked = len(answers)
            while len(answers) < asked + 4 and all(thread.is_alive() for thread in threads):
                time.sleep(0.001)
        stop.set()
        for thread in threads:
            thread.join()
        assert server.models.exchanged == count and server.models.refused == 0
    assert {code for code, _, _ in answers} == {200}
    assert {digest for _, digest, _ in answers} == set(lists)
    assert all(items == lists[digest] for _, digest, items in answers)


def forged(content: bytes, name: str, change=None) -> bytes:
    """A whole file without one of its arrays, or with another in its place; its digest is right."""
    found = read(content)
    arrays = {key: found.arrays[key] for key in found.arrays if key != name and "/" in key}
    arrays |= {} if change is None else {name: change(np.array(found.arrays[name]))}
    return b"".join(encode(found.header, {k: v for k, v in arrays.items() if not k.startswith("padding")}))


def test_a_new_model_without_privacy_is_told_of_in_a_log_that_acts_on_no_terminal(tmp_path, caplog) -> None:
    """The warning quotes the name of the model's file, which holds an escape sequence."""
    path = tmp_path / "\x1b[31mred\x9b.hush"
    private = ESTIMATORS["item-bias"]().fit(RATINGS, Accountant(Budget(5, 1e-6)))
    path.write_bytes(private.to_bytes())
    with serving({"m": path}) as server:
        assert not caplog.records
        path.write_bytes(trained("als").to_bytes())
        server.models.look()
        assert server.models.exchanged == 1
    said = [record.getMessage() for record in caplog.records]
    assert all(map(str.isprintable, said)) and "\\x1b[31mred\\x9b.hush is NOT PRIVATE" in said[-1]


def test_a_damaged_model_is_not_taken(tmp_path, caplog) -> None:
    """Cut short, forged, missing, written into the very file: an error is logged, once each."""
    good = trained("als").to_bytes()
    path = tmp_path / "m.hush"
    path.write_bytes(good)
    with serving({"m": path}) as server:
        before = server.post("/v1/recommend", ratings=HERS).content
        faults = 0
        for change in (
            lambda: replace(path, good[:-100]),
            lambda: replace(path, good[:500] + b"x" + good[501:]),
            lambda: replace(path, b""),
            lambda: replace(path, forged(good, "serve/item_bias")),
            lambda: replace(path, forged(good, "serve/regularization")),
            lambda: replace(path, forged(good, "serve/item_bias", lambda old: old * np.nan)),
            lambda: replace(path, forged(good, "serve/item_factors", lambda old: old + np.inf)),
            lambda: path.write_bytes(good[: len(good) // 2]),  # a copy that a full disk cut short
            lambda: path.write_bytes(b"x" * len(good)),
            path.unlink,
            path.mkdir,
        ):
            change()
            for _ in range(3):
                server.models.look()
            faults += 1
            assert (server.models.refused, server.models.exchanged) == (faults, 0)
            assert server.post("/v1/recommend", ratings=HERS).content == before
            assert server.client.get("/models/m.hush").content == good
        said = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        assert len(said) == faults and all(
            "Still serving the old model" in each and "\n" not in each for each in said
        )
        path.rmdir()
        path.write_bytes(trained("als", rank=3).to_bytes())
        server.models.look()
        assert server.models.exchanged == 1
        assert server.post("/v1/recommend", ratings=HERS).content != before
        assert server.post("/v1/recommend", ratings=HERS).status_code == 200


@pytest.mark.parametrize("count", [60, pytest.param(400, marks=pytest.mark.full)])
def test_slow_clients(files, count: int) -> None:
    """Clients that send a byte at a time, or take none, delay no other client and are disconnected in the
    end."""
    rates = {"requests_per_second": 1e9, "idle_seconds": 1.0, "request_seconds": 1.0}
    limits = Limits(connections=2 * count + 50, **rates)
    head = b"POST /v1/recommend HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n"
    with serving({"als": files["als"]}, limits) as server, contextlib.ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(server.address, timeout=30)) for _ in range(count)
        ]
        for number, connection in enumerate(slow):
            connection.sendall(head[: 1 + number % len(head)])
        start, answered = time.monotonic(), 0
        while time.monotonic() - start < 2:
            assert server.post("/v1/recommend", ratings=HERS).status_code == 200
            answered += 1
            for connection in slow[:: max(1, count // 20)]:
                with contextlib.suppress(OSError):
                    connection.sendall(b" ")
        assert answered > 1
        ended, waiting = 0, selectors.DefaultSelector()
        for connection in slow:
            waiting.register(connection, selectors.EVENT_READ)
        deadline = time.monotonic() + 30
        while ended < count and time.monotonic() < deadline:
            for key, _ in waiting.select(1):
                with contextlib.suppress(OSError):
                    key.fileobj.recv(1 << 16)
                waiting.unregister(key.fileobj)
                ended += 1
        assert ended == count
        assert server.post("/v1/recommend", ratings=HERS).status_code == 200


@contextlib.contextmanager
def command(*words: str):
    """Run ``hushrec serve`` in a process; yield its address and the process."""
    line = [sys.executable, "-m", "hushrec", "serve", *words, "--port", "0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            row = process.stdout.readline()
            assert row.startswith("Serving"), process.stderr.read()
            yield row.split()[-1], process
        finally:
            if process.poll() is None:
                process.kill()


def children(process: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == process:
                line = (folder / "cmdline").read_bytes()
                found += [int(folder.name)] if b"spawn_main" in line else []
    return found


def processes(first: int, wanted: set[int], count: int) -> set[int]:
    """Wait until a server has so many workers, all others than those that are not wanted."""
    until = time.monotonic() + 60
    while len(found := set(children(first))) != count or found & wanted:
        assert time.monotonic() < until, found
        time.sleep(0.05)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are counted in /proc")
def test_workers_come_back_take_new_models_and_end_with_the_first(files, tmp_path) -> None:
    """One that is killed is started again; each takes the new model; counts are summed; no orphan is left."""
    path, fresh = tmp_path / "films.hush", trained("als", rank=2).to_bytes()
    shutil.copy(files["als"], path)

    def answered(url: str, times: int, digest: str = "") -> None:
        """Ask on new connections, which either worker takes, until the digest came so often in a row."""
        until, row = time.monotonic() + 60, 0
        while row < times:
            assert time.monotonic() < until
            with httpx.Client(trust_env=False, timeout=30) as client:
                answer = client.post(f"{url}/v1/recommend", json={"ratings": HERS})
            assert answer.status_code == 200
            row = row + 1 if digest in ("", answer.json()["digest"]) else 0

    with command(f"films={path}", str(files["both"]), "--workers", "2", "--demo") as (url, first):
        workers = processes(first.pid, set(), 2)
        answered(url, 12)
        told = httpx.get(f"{url}/metrics", trust_env=False).text
        assert 'requests_total{route="/v1/recommend",code="2xx"} 12' in told
        replace(path, fresh)
        answered(url, 12, fresh[-32:].hex())
        told = httpx.get(f"{url}/metrics", trust_env=False).text
        assert "hushrec_models_exchanged_total 2" in told and "hushrec_models_refused_total 0" in told
        killed = min(workers)
        os.kill(killed, signal.SIGKILL)
        assert workers - {killed} < processes(first.pid, {killed}, 2)
        answered(url, 12, fresh[-32:].hex())
        workers = processes(first.pid, {killed}, 2)
        first.kill()
        until = time.monotonic() + 30
        while any(map(running, workers)):
            assert time.monotonic() < until, "a worker outlives the first process"
            time.sleep(0.1)
        assert "code -9) and is started again" in first.stderr.read()


def running(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_the_command_serves_and_ends_in_order(files) -> None:
    """Ctrl-C ends it with code 0 after open requests are answered; it warns about its model."""
    words = ("--demo", "--workers", "2", "--server-name", "shop.example")
    with command(str(files["als"]), *words) as (url, process):
        assert "Ratings stay in the browser." in process.stdout.readline()
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
            assert client.get("/").status_code == 200
            for host, status in (("shop.example", 200), ("evil.example", 421)):
                asked = {"json": {"ratings": HERS}, "headers": {"Host": host}}
                assert client.post("/v1/recommend", **asked).status_code == status
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0 and not children(process.pid)
        warned = process.stderr.read()
        assert warned.startswith("Warning: ") and "is NOT PRIVATE (the budget is infinite)" in warned
        assert warned.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "MODEL is missing"),
        (("missing.hush",), "cannot be read"),
        (("{als}", "{als}"), "Two models are named als"),
        (("{als}", "--tokens", "missing"), "cannot be read"),
        (("{als}", "--tokens", "{short}"), "32 ASCII characters"),
        (("{als}", "--tokens", "{umlauts}"), "32 ASCII characters"),
        (("{als}", "{short}"), "not a hushrec model file"),
        (("{als}", "--port", "-1"), "--port"),
        (("{als}", "--server-name", "https://shop.example:80"), "is not a host name"),
        (("{als}", "--requests-per-second", "0"), "--requests-per-second"),
        (("{als}", "--certificate-key", "{short}", "--port", "0"), "needs its certificate"),
    ],
)
def test_wrong_words_have_one_sentence(words, sentence: str, files, tmp_path, monkeypatch) -> None:
    if "0" not in words[-1:] or "--port" not in words:
        monkeypatch.setattr(process, "serve", lambda *_: None)  # what is not refused ends all the same
    texts = {"short": "secret\n", "umlauts": f"{'ü' * 40}\n"}
    names = {"als": str(files["als"])} | {name: str(tmp_path / name) for name in texts}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "utf-8")
    found = invoke("serve", *(word.format(**names) for word in words))
    assert found.exit_code == 2 and sentence in found.output and found.output.count("\n") == 1


def test_a_site_for_any_host_of_files(files, tmp_path) -> None:
    site = tmp_path / "site"
    done = invoke("export", str(files["both"]), "--web", str(site), "--json")
    assert done.exit_code == 0
    sizes = {str(path): path.stat().st_size for path in site.iterdir()}
    assert json.loads(done.stdout)["files"] == sizes
    assert os.name != "posix" or {path.stat().st_mode & 0o777 for path in site.iterdir()} == {0o644}
    page = Path(hushrec.__file__).parent / "web"
    for path in page.iterdir():
        assert (site / path.name).read_bytes() == path.read_bytes()
    assert (site / "model.hush").read_bytes() == files["both"].read_bytes()
    assert invoke("export", str(files["both"]), "--web", str(site)).exit_code == 2  # it is there already
    again = invoke("export", str(files["als"]), "--web", str(site), "--int8", "--force")
    assert again.exit_code == 0 and (site / "model.hush").stat().st_size < files["als"].stat().st_size
    size = (site / "model.hush").stat().st_size
    assert f"  {size:>9,} bytes  {site / 'model.hush'}\n" in again.stdout
    assert hushrec.load(site / "model.hush").recommend(HERS)


def test_an_exported_small_file_and_vectors_are_those_of_the_library(files, tmp_path) -> None:
    model, small, table = hushrec.load(files["both"]), tmp_path / "small.hush", tmp_path / "v.parquet"
    assert invoke("export", str(files["both"]), "--int8", "--out", str(small)).exit_code == 0
    assert small.read_bytes() == model.to_bytes(int8=True) != model.to_bytes()
    assert invoke("export", str(files["both"]), "--vectors", str(table)).exit_code == 0
    found = pq.read_table(table)
    assert [str(item) for item in found["item"].to_pylist()] == ITEMS
    np.testing.assert_array_equal(np.float32(found["vector"].to_pylist()), model.item_vectors())


@pytest.mark.parametrize(
    "epsilon, options, warned", [(5.0, {}, 0), (math.inf, {}, 1), (math.inf, {"data_is_public": True}, 0)]
)
def test_a_model_that_nothing_protects_is_published_with_a_warning(
    epsilon, options, warned, tmp_path
) -> None:
    """Unless its ratings were declared public."""
    path, rows = tmp_path / "model.hush", str(tmp_path / "rows.parquet")
    accountant = Accountant(Budget(epsilon, 1e-6), **options)
    ESTIMATORS["item-bias"]().fit(RATINGS, accountant).save(path)
    pq.write_table(RATINGS.to_arrow(), rows)
    forms = ("--web", "site"), ("--out", "copy.hush"), ("--vectors", "items.parquet")
    commands = [("export", str(path), form, str(tmp_path / name)) for form, name in forms]
    for words in (*commands, ("evaluate", str(path), rows, rows)):
        found = invoke(*words)
        assert found.exit_code == 0 and found.output.count("NOT PRIVATE") == warned, words
