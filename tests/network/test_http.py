"""Properties of HTTP for any service: certificates, names in paths, no logs, clients that stall."""

import contextlib
import datetime
import gzip
import ipaddress
import logging
import socket
import threading
import time
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from hushrec.errors import HushrecError, InputError
from hushrec.network.messages import Refusal
from hushrec.papers.masked.messages import Accepted

services = pytest.importorskip("hushrec.network.service", exc_type=ImportError)
transport = pytest.importorskip("hushrec.network.transport", exc_type=ImportError)
Connection, Limits, Service = transport.Connection, services.Limits, services.Service


@dataclass
class Files:
    """A certificate of the loopback address, its key, and who signed it."""

    certificate: str
    key: str
    ca: str


def make_files(folder, address="127.0.0.1"):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def sign(name, key, issuer, issuer_key, *extensions):
        name, issuer = (
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]) for text in (name, issuer)
        )
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(
            issuer, name, key.public_key(), x509.random_serial_number(),
            now - datetime.timedelta(hours=1), now + datetime.timedelta(hours=1),
        )  # fmt: skip
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    folder.mkdir(exist_ok=True)
    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    parts = {
        "ca": sign("authority", authority, "authority", authority, x509.BasicConstraints(True, None)),
        "certificate": sign("server", own, "authority", authority, alternative),
        "key": own.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    }
    for name, pem in parts.items():
        (folder / f"{name}.pem").write_bytes(pem)
    return Files(**{name: str(folder / f"{name}.pem") for name in parts})


def echo(method, path, token, body):
    return Accepted(" ".join([method, *path, token]))


def call(url, *path, **options):
    connection = Connection(url, patience=0.0, timeout=60, **options)
    try:
        return connection.get(Accepted, *path, token="t").digest
    finally:
        connection.close()


def test_https(tmp_path):
    files, others = make_files(tmp_path / "a"), make_files(tmp_path / "b")
    with Service(echo, certificate=files.certificate, key=files.key) as service:
        assert service.url.startswith("https://127.0.0.1:")
        assert call(service.url, "task", ca=files.ca) == "GET task t"
        for ca in (None, others.ca):
            with pytest.raises(HushrecError, match="not trusted"):
                call(service.url, "task", ca=ca)
        with pytest.raises(HushrecError, match="does not answer"):
            call(service.url.replace("https", "http"), "task")


def test_bad_certificates(tmp_path):
    files, others = make_files(tmp_path / "a"), make_files(tmp_path / "b")
    (tmp_path / "text").write_text("no certificate")
    for options in (
        {"key": files.key},
        {"certificate": files.certificate},
        {"certificate": files.certificate, "key": others.key},
        {"certificate": str(tmp_path / "missing"), "key": files.key},
        {"certificate": str(tmp_path / "text"), "key": files.key},
    ):
        with pytest.raises(InputError, match="certificate"):
            Service(echo, **options)
    for ca in (str(tmp_path / "missing"), str(tmp_path / "text")):
        with pytest.raises(InputError, match="authority"):
            Connection("https://127.0.0.1:1", ca=ca)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a%2Fb", "ä ü", "?x=1", "#"])
def test_any_name_is_a_part_of_a_path(name):
    with Service(echo) as service:
        assert call(service.url, "columns", name) == f"GET columns {name} t"


def test_who_is_asking_is_who_connects():
    """A header that names another address does not give another address's requests."""
    with Service(echo, limits=Limits(requests_per_second=0.5)) as service:
        address = ("127.0.0.1", int(service.url.rpartition(":")[2]))
        answers = []
        for number in range(8):
            with socket.create_connection(address, timeout=60) as connection:
                head = f"GET /a HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 10.0.0.{number}\r\n\r\n"
                connection.sendall(head.encode())
                answers.append(connection.recv(65536).split()[1])
    assert answers.count(b"200") == 5 and answers.count(b"429") == 3


def test_nothing_is_logged(caplog, capfd):
    """Killed: the access log, the client's log of paths, and a failure's own words."""

    def answer(method, path, token, body):
        if path == ["fail", "a-node"]:
            raise RuntimeError("somebody's data")
        return echo(method, path, token, body)

    caplog.set_level(logging.DEBUG)
    with Service(answer) as service:
        connection = Connection(service.url, patience=0.0)
        connection.post(Accepted("somebody's data"), Accepted, "columns", "a-node", token="a-token")
        with pytest.raises(HushrecError, match=r"The server failed \(RuntimeError\)"):
            connection.post(Accepted("x"), Accepted, "fail", "a-node", token="a-token")
        with socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2]))) as broken:
            broken.sendall(b"somebody's data\r\n\r\n")
            assert b" 400 " in broken.recv(65536)
    written = "\n".join([record.getMessage() for record in caplog.records] + list(capfd.readouterr()))
    assert not any(word in written for word in ("somebody", "a-node", "a-token"))
    assert not [record for record in caplog.records if record.name.startswith(("uvicorn", "httpx"))]


def test_a_refusal_is_kept_by_no_cache():
    def answer(*_):
        raise Refusal(403, "Not for you.")

    with Service(answer) as service, opened(service.url, "GET /x HTTP/1.1") as connection:
        head = b"".join(iter(lambda: connection.recv(65536), b"")).lower()
    assert b" 403 " in head and b"cache-control: no-store" in head and b"connection: close" in head


@pytest.mark.parametrize("status", [425, 429, 503])
def test_a_server_that_is_busy_says_when_to_ask_again(status):
    def answer(*_):
        raise Refusal(status, "Later.")

    with Service(answer) as service, opened(service.url, "GET /x HTTP/1.1") as connection:
        head = b"".join(iter(lambda: connection.recv(65536), b"")).lower()
    assert f" {status} ".encode() in head and b"retry-after: 1\r\n" in head


def test_no_proxy_of_the_environment_sees_a_message(monkeypatch):
    with socket.socket() as nobody, Service(echo) as service:
        nobody.bind(("127.0.0.1", 0))
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{nobody.getsockname()[1]}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert call(service.url, "x") == "GET x t"


def test_patience_is_for_all_attempts_together(monkeypatch):
    """Oracle: a clock that only sleeping moves."""
    now, asked = [0.0], []
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda pause: now.__setitem__(0, now[0] + pause))
    monkeypatch.setattr(transport, "time", clock)
    connection = Connection("http://127.0.0.1:1", patience=10.0)

    def busy(*_):
        asked.append(now[0])
        assert len(asked) < 100
        return 503, b"{}"

    monkeypatch.setattr(connection, "_exchange", busy)
    with pytest.raises(transport.TransportError):
        connection.get(Accepted, "x")
    assert len(asked) > 5 and 7.0 < asked[-1] <= 10.0
    connection.close()


def test_a_service_ends_while_nodes_wait():
    """A request that takes half a second is answered first; one that would take a minute is cut off."""
    release, answers = threading.Event(), []

    def answer(method, path, token, body):
        release.wait(0.5 if path == ["soon"] else 60)
        return Accepted(path[0])

    def ask(path):
        try:
            answers.append(Connection(service.url, patience=0.0).get(Accepted, path).digest)
        except HushrecError:
            answers.append("left")

    threads = [threading.Thread(target=ask, args=(path,)) for path in ("soon", "late")]
    with Service(answer) as service:
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        start = time.monotonic()
    assert time.monotonic() - start < 60
    for thread in threads:
        thread.join(timeout=60)
    release.set()
    assert answers == ["soon", "left"]


def opened(url, head):
    """A connection on which a request's head was sent."""
    connection = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60)
    connection.sendall(head.encode() + b"\r\nHost: h\r\n\r\n")
    return connection


def code(connection):
    return int(connection.recv(65536).split()[1])


@pytest.mark.true("T3")
def test_a_request_is_refused_before_its_body_is_read():
    """By who sends it, by its length, and by what other requests take already."""
    came, asked = threading.Semaphore(0), []

    def admit(method, path, token, length):
        asked.append((method, path, token, length))
        came.release()
        if path == ["stranger"]:
            raise Refusal(403, "A stranger.")

    limits = Limits(body_bytes=1000, waiting_bytes=1000, request_seconds=1.0, idle_seconds=0.8)
    with Service(echo, admit=admit, limits=limits) as service:
        post = "POST /{} HTTP/1.1\r\nContent-Length: {}".format
        with opened(service.url, post("stranger", 900)) as stranger:
            assert code(stranger) == 403 and stranger.recv(1) == b""  # and hangs up
        with opened(service.url, post("friend", 1001)) as long:
            assert code(long) == 413
        with opened(service.url, "GET /friend HTTP/1.1\r\nContent-Length: 1") as odd:
            assert code(odd) == 413
        with opened(service.url, "POST /friend HTTP/1.1\r\nTransfer-Encoding: chunked") as chunks:
            assert code(chunks) == 411  # of a length that nobody knows
        assert asked == [("POST", ["stranger"], "", 900)]
        came.acquire()
        with opened(service.url, post("friend", 900)) as first:
            came.acquire()
            with opened(service.url, post("friend", 101)) as second:
                assert code(second) == 503
            first.sendall(b"x" * 900)
            assert code(first) == 200
        with opened(service.url, post("friend", 900)):
            pass  # gone before its body
        with opened(service.url, post("friend", 101)) as third:
            third.sendall(b"x" * 101)
            assert code(third) == 200


@pytest.mark.true("T3")
@pytest.mark.parametrize("part", ["head", "body", "answer"])
def test_a_client_that_trickles_is_left(part):
    """Something moves on its connection all the time. Killed: limits on the time between two bytes only."""
    limits, size = Limits(idle_seconds=1.0, request_seconds=1.0), 1 << (24 if part == "answer" else 4)
    with Service(lambda *_: Accepted("x" * size), limits=limits) as service:
        head = {"head": "GET /a HTTP/1.1", "body": "POST /a HTTP/1.1\r\nContent-Length: 999"}
        address = ("127.0.0.1", int(service.url.rpartition(":")[2]))
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(address)
            connection.sendall(head.get(part, head["head"]).encode())
            connection.sendall(b"\r\nHost: h\r\n" + b"\r\n" * (part != "head"))
            connection.settimeout(0.2)
            start = time.monotonic()
            with contextlib.suppress(ConnectionError):
                while time.monotonic() - start < 60:
                    if part != "answer":
                        connection.sendall(b"x" if part == "body" else b"A: b\r\n")
                    with contextlib.suppress(TimeoutError):
                        if connection.recv(1024) == b"":
                            break
                    time.sleep(0.05)
            assert 0.8 < time.monotonic() - start < 30
        assert part == "answer" or call(service.url, "a")


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n"


BOMB = gzip.compress(b"0" * (40 << 20))


def trickle(first, piece, pause=0.05):
    """An answer that never ends."""
    yield first
    while True:
        time.sleep(pause)
        yield piece


LIES = {
    "more than was asked for": (lambda: [HEAD % (1 << 30) + b"\r\n", *[b"0" * (1 << 16)] * 4096], "refused"),
    "no length": (lambda: trickle(b"HTTP/1.1 200 OK\r\n\r\n", b"0" * (1 << 16), 0), "refused"),
    "compressed": (lambda: [HEAD % len(BOMB) + b"Content-Encoding: gzip\r\n\r\n", BOMB], "not JSON"),
    "a head that never ends": (lambda: trickle(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"), "does not answer"),
    "a body that never ends": (lambda: trickle(HEAD % 60_000 + b"\r\n", b"0"), "does not answer"),
    "go on": (lambda: trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "does not answer"),
    "accepted, for ever": (lambda: [b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"], "without saying"),
    "elsewhere": (lambda: [b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"], "without"),
    "a terminal's colours": (
        lambda: [b'HTTP/1.1 400 No\r\nContent-Length: 21\r\n\r\n{"error": "\\u001b[31m"}'],
        "without saying why",
    ),
}


@pytest.mark.true("T3")
@pytest.mark.parametrize("lie", LIES)
def test_a_lying_server_takes_little_of_a_client(lie):
    """A second of it, and hardly more bytes than were asked for."""
    answer, words = LIES[lie]
    taken, asked = 0, 0

    def serve():
        nonlocal taken, asked
        with contextlib.suppress(OSError):
            while True:
                connection = listening.accept()[0]
                with connection, contextlib.suppress(OSError):
                    connection.recv(65536)
                    asked += 1
                    for piece in answer():
                        connection.sendall(piece)
                        taken += len(piece)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        client = Connection(
            f"http://127.0.0.1:{listening.getsockname()[1]}",
            patience=0.0,
            timeout=60,
            deadline=1.0 if words == "does not answer" else 60,  # else a busy machine would be late
        )
        start = time.monotonic()
        with pytest.raises(HushrecError, match=words):
            client.get(Accepted, "task")
        assert time.monotonic() - start < 30 and asked == 1
        client.close()
    assert taken < 20 << 20  # what sockets hold
