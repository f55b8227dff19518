"""Two servers and nodes as processes: one server is killed, and both end with the same model."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hushrec
from hushrec import dossier
from tests.command_line import invoke

pytest.importorskip("hushrec.engines.two_servers.server", exc_type=ImportError)
pytest.importorskip("hushrec.network.service", exc_type=ImportError)


def free_ports(count):
    """Unused ports; tests of another checkout may run at the same time."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


PORTS = dict(zip(("first", "second"), free_ports(2), strict=True))
URLS = {role: f"http://127.0.0.1:{port}" for role, port in PORTS.items()}


LINK = ["--first", "http://127.0.0.1:1", "--second", "http://127.0.0.1:1"]
LINK += ["--tokens", "peer.txt", "--folder", "x"]


def start(role, *more, names="names.txt", stderr=subprocess.DEVNULL):
    other = {"first": "second", "second": "first"}[role]
    words = f"servers run agreed.json --role {role} --nodes {names} --folder {role} --out {role}.hush --peer"
    words += f" {URLS[other]} --peer-token peer.txt --port {PORTS[role]} --ledger {role}.sqlite --linger 3"
    return subprocess.Popen([sys.executable, "-m", "hushrec", *words.split(), *more], stderr=stderr)


def node(number, tokens, *more):
    Path("tokens.txt").write_text("\n".join(tokens[role][f"node {number}"] for role in PORTS))
    link = ["--first", URLS["first"], "--second", URLS["second"], "--tokens", "tokens.txt"]
    link += ["--ledger", "d.sqlite"]
    words = ["servers", "join", f"{number}.csv", "agreed.json", "--name", f"node {number}", *link]
    return invoke(*words, "--dataset", f"d{number}", "--folder", f"of {number}", "--once", "--json", *more)


def test_processes_that_are_killed_train_one_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ratings = hushrec.realistic(3, 6, 12, seed=1)
    for number in range(3):
        row = ratings.rows(range(number, number + 1), keyed=True).to_arrow().to_pandas()
        row.to_csv(f"{number}.csv", index=False)
    Path("items.txt").write_text("\n".join(map(str, ratings.domain.items)))
    Path("names.txt").write_text("node 0\nnode 1\nnode 2")
    Path("peer.txt").write_text("p" * 32)
    declared = ["--rating-range", "1", "5", "--catalogue", "items.txt", "--epsilon", "5", "--delta", "1e-6"]
    settings = ["--model", "private-als", "--users", "3", "--set", "rank=0", "--set", "bias_rounds=1"]
    settings += ["--set", "features=false"]
    hushrec.realistic(5, 6, 20, seed=2).to_arrow().to_pandas().to_csv("published.csv", index=False)
    public = "--public-ratings", "published.csv=same"
    agreed = invoke("servers", "init", "agreed.json", *settings, *declared, *public)
    assert agreed.exit_code == 0 and "against everybody else epsilon = 3.38" in " ".join(
        agreed.stdout.split()
    )
    running = {role: start(role, *public) for role in PORTS}
    try:
        late = time.monotonic() + 120
        while not all(Path(role, "session").exists() for role in PORTS):
            assert time.monotonic() < late
            time.sleep(0.05)
        lines = {role: Path(role, "tokens.csv").read_text().splitlines() for role in PORTS}
        pairs = {role: [line.rpartition(",") for line in found] for role, found in lines.items()}
        tokens = {
            role: {json.loads(name): token for name, _, token in found} for role, found in pairs.items()
        }
        said = [node(0, tokens, *public)]
        running["first"].send_signal(signal.SIGKILL)
        running["first"].wait()
        running["first"] = start("first", *public)
        while any(each.poll() is None for each in running.values()) and time.monotonic() < late:
            said += [node(number, tokens, "--patience", "60", *public) for number in range(3)]
            if json.loads(said[-1].stdout)["over"]:
                break
        assert [each.wait(60) for each in running.values()] == [0, 0]
        running["first"] = start("first", *public)  # as if it had been killed while it lingered
        assert running["first"].wait(60) == 0
    finally:
        for each in running.values():
            each.kill()
    answered = sum(json.loads(each.stdout)["answered"] for each in said)
    assert answered in (3 * 2, 3 * 3)  # each node in each round once; noise decides whether there is a third
    first, second = (hushrec.load(f"{role}.hush") for role in PORTS)
    assert first.to_bytes() == second.to_bytes() and first.privacy.private
    assert first.judged["donors"] == 5 and first.privacy.public_ratings
    for role in PORTS:  # each is in its server's ledger
        book = hushrec.Ledger(f"{role}.sqlite")
        facts = dossier.certify(f"{role}.hush", book, controller="ACME", attacks=False)
        assert facts["promise"]["epsilon"] == 5
        assert len(facts["ledger"]["charges"]) == len(first.privacy.releases)
    for number in range(3):
        summary = hushrec.Ledger("d.sqlite").summary(f"d{number}", 1e-6)
        assert summary.charges == 1 and summary.epsilon == pytest.approx(5, rel=1e-6)
    words = ["servers", "run", "agreed.json", "--role", "first", "--nodes", "names.txt", "--folder", "x"]
    for token in ("short", 32 * "\N{LATIN SMALL LETTER E WITH ACUTE}"):
        Path("peer.txt").write_text(token, encoding="utf-8")
        wrong = invoke(
            *words, *public, "--out", "x.hush", "--peer", URLS["second"], "--peer-token", "peer.txt"
        )
        assert wrong.exit_code == 2 and "32 ASCII characters or more" in wrong.stderr


def test_processes_that_do_not_fit_both_say_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("items", "others"):
        Path(f"{name}.txt").write_text(f"{name} 1")
    Path("peer.txt").write_text("p" * 32)
    declared = "--model item-bias --rating-range 1 5 --catalogue items.txt --epsilon 5 --delta 1e-6"
    assert invoke("servers", "init", "agreed.json", *declared.split()).exit_code == 0
    changed = Path("agreed.json").read_text().replace('"epsilon": 5', '"epsilon": 6')
    for content, words in (
        (changed, "was changed"),
        ("[" * 10**5, "is not an agreement"),
        ("{}", "is not an agreement"),
    ):
        Path("changed.json").write_text(content)
        wrong = invoke("servers", "join", "items.txt", "changed.json", "--name", "a", *LINK)
        assert wrong.exit_code == 2 and words in wrong.stderr
    given = ("first", "items.txt"), ("second", "others.txt")
    running = [start(role, names=names, stderr=subprocess.PIPE) for role, names in given]
    try:
        for each in running:
            said = each.communicate(timeout=120)[1].decode()
            assert each.returncode == 2 and "other names of nodes" in " ".join(said.split())
    finally:
        for each in running:
            each.kill()
