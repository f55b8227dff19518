"""What holds for HTTP whatever is served: certificates, names in paths, no logs, clients that stall."""

import contextlib
import datetime
import ipaddress
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest

from hushrec.errors import HushrecError, InputError
from hushrec.papers.masked.messages import Accepted, Column
from tests.command_line import invoke

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
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    }
    for name, pem in parts.items():
        (folder / f"{name}.pem").write_bytes(pem)
    return Files(**{name: str(folder / f"{name}.pem") for name in parts})


def echo(method, path, token, body):
    return Accepted(" ".join([method, *path, token]))


def call(url, *path, **options):
    connection = Connection(url, patience=0.0, timeout=10, **options)
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


def test_an_address_of_version_6_is_in_brackets():
    if not socket.has_ipv6:
        pytest.skip("this system has no IPv6")
    try:
        with Service(echo, host="::1") as service:
            assert service.url.startswith("http://[::1]:") and call(service.url, "task") == "GET task t"
    except InputError:
        pytest.skip("this machine has no IPv6 address")


def test_a_certificate_is_of_its_host_alone(tmp_path):
    files = make_files(tmp_path / "a", address="127.0.0.2")
    with (
        Service(echo, certificate=files.certificate, key=files.key) as service,
        pytest.raises(HushrecError, match="not trusted"),
    ):
        call(service.url, "task", ca=files.ca)


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


@pytest.mark.parametrize("url", ["", "127.0.0.1:8765", "ftp://a", "http://", "http://a:99999", "http://a:b"])
def test_bad_addresses(url):
    with pytest.raises(InputError, match="no server's address"):
        Connection(url)


def test_commands_over_https(tmp_path):
    files = make_files(tmp_path)
    (tmp_path / "items.txt").write_text("\n".join(f"item {number}" for number in range(9)))
    (tmp_path / "mine.csv").write_text("user,item,rating\na,item 1,3\na,item 4,5\n")
    line = [sys.executable, "-m", "hushrec", "papers", "serve-completion", "--catalogue", "items.txt"]
    line += ["--nodes", "4", "--mask-rank", "1", "--port", "0"]
    line += ["--certificate", files.certificate, "--certificate-key", files.key]
    with subprocess.Popen(line, stdout=subprocess.PIPE, cwd=tmp_path, text=True) as process:
        try:
            url = next(row for row in process.stdout if row.startswith("Serving on")).split()[-1]
            submit = ["papers", "node", "submit", str(tmp_path / "mine.csv"), "--server", url]
            submit += ["--rating-range", "1", "5"]
            submit += ["--catalogue", str(tmp_path / "items.txt"), "--key", str(tmp_path / "a.key")]
            assert "Uploaded 2" in invoke(*submit, "--ca", files.ca).output
            assert "not trusted" in invoke(*submit).output
        finally:
            process.kill()


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
            with socket.create_connection(address, timeout=10) as connection:
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


def test_a_client_that_does_not_take_its_answer_is_left():
    """And one whose answer takes longer than a connection may be silent is not."""
    column = Column(np.zeros(3_000_000))

    def answer(method, path, token, body):
        time.sleep(1.5)
        return column

    with (
        Service(answer, limits=Limits(idle_seconds=0.5)) as service,
        socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2]))) as stalled,
    ):
        stalled.sendall(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n")
        assert len(Connection(service.url).get(Column, "a").values) == 3_000_000
        time.sleep(3)
        taken = 0
        with contextlib.suppress(ConnectionError):
            while part := stalled.recv(1 << 20):
                taken += len(part)
    assert 0 < taken < 24_000_000


def test_a_service_ends_while_nodes_wait():
    """What is asked of it is answered first, if that takes seconds; whoever waits longer is left."""
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
    assert time.monotonic() - start < 10
    for thread in threads:
        thread.join(timeout=10)
    release.set()
    assert answers == ["soon", "left"]


@pytest.mark.parametrize("package", ["uvicorn", "starlette", "httpx"])
def test_without_the_extra_one_sentence_says_so(package, tmp_path):
    (tmp_path / "items.txt").write_text("a\nb\nc\nd\n")
    (tmp_path / "mine.csv").write_text("user,item,rating\nx,a,3\n")
    line = ["papers", "serve-completion", "--catalogue", "items.txt", "--nodes", "4", "--mask-rank", "1"]
    if package == "httpx":
        line = ["papers", "node", "submit", "mine.csv", "--server", "http://127.0.0.1:1"]
        line += ["--rating-range", "1", "5", "--catalogue", "items.txt", "--key", "x.key"]
    code = f"import sys; sys.modules[{package!r}] = None; sys.argv[1:] = {line!r}\n"
    code += "from hushrec.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    extra = "outsourcing" if package == "httpx" else "serve"
    assert f"pip install 'hushrec[{extra}]'" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items.txt", "mine.csv"]
