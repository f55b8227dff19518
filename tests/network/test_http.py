"""What holds for HTTP whatever is served: certificates, names in paths, no logs, clients that stall."""

import datetime
import ipaddress
import logging
import socket
import threading
import time
from dataclasses import dataclass

import pytest

from hushrec.errors import HushrecError, InputError
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
    assert time.monotonic() - start < 10
    for thread in threads:
        thread.join(timeout=10)
    release.set()
    assert answers == ["soon", "left"]
