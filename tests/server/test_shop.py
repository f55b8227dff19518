"""The page that sets up a shop: its nginx, systemd and container files as written, its lists in a browser."""

from __future__ import annotations

import contextlib
import functools
import html
import http.server
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

import hushrec
from hushrec.network.service import Limits
from tests.command_line import invoke
from tests.server.conftest import FREE, ITEMS, serving

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "shop.md").read_text()
SHOP = "https://shop.example"
HERS = {ITEMS[0]: 5.0, ITEMS[3]: 1.0}
CORS = ("access-control-allow-origin", "access-control-allow-methods", "access-control-allow-headers")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.S)
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def asks(client: httpx.Client, path: str, origin: str, method: str = "POST", headers: str = "content-type"):
    asking = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}
    return client.options(path, headers={"Origin": origin, **asking})


def shared_with(reply: httpx.Response) -> str | None:
    assert "access-control-allow-credentials" not in reply.headers
    return reply.headers.get("access-control-allow-origin")


@pytest.mark.true("S4")
def test_pages_of_listed_origins_read_answers_and_refusals_and_no_others(files) -> None:
    with serving({"als": files["als"]}, origins=[SHOP, "http://localhost:3000"]) as server:
        for origin in (SHOP, "http://localhost:3000"):
            before = asks(server.client, "/v1/recommend", origin)
            assert before.status_code == 200 and shared_with(before) == origin
            named = {"Origin": origin}
            for body, status in (({"ratings": HERS}, 200), ({"ratings": 5}, 400)):
                reply = server.client.post("/v1/recommend", json=body, headers=named)
                assert (reply.status_code, shared_with(reply)) == (status, origin)
                assert reply.headers["vary"] == "Origin"
            assert shared_with(server.client.get("/v1/models", headers=named)) == origin
            assert shared_with(server.client.get("/nothing", headers=named)) == origin
            # without tokens no header of theirs is let in; metrics are the operator's
            assert asks(server.client, "/v1/recommend", origin, headers="authorization").status_code == 400
            assert asks(server.client, "/metrics", origin, "GET").status_code == 405
            for path in ("/metrics", "/%6detrics"):
                assert shared_with(server.client.get(path, headers=named)) is None
        for origin in (
            "https://evil.example",
            "http://shop.example",
            f"{SHOP}:8443",
            f"{SHOP}.evil",
            "null",
            "*",
        ):
            assert asks(server.client, "/v1/recommend", origin).status_code == 400
            reply = server.client.post("/v1/recommend", json={"ratings": HERS}, headers={"Origin": origin})
            assert reply.status_code == 200 and shared_with(reply) is None
    with serving({"als": files["als"]}, origins=[SHOP], tokens=["t" * 32]) as server:
        assert asks(server.client, "/v1/recommend", SHOP, headers="authorization").status_code == 200
        reply = server.client.post("/v1/recommend", json={"ratings": HERS}, headers={"Origin": SHOP})
        assert reply.status_code == 401 and shared_with(reply) == SHOP
    with serving({"als": files["als"]}, Limits(requests_per_second=0.1), origins=[SHOP]) as server:
        codes = [server.client.get("/healthz", headers={"Origin": SHOP}) for _ in range(2)]
        assert [(reply.status_code, shared_with(reply)) for reply in codes] == [(200, SHOP), (429, SHOP)]


def test_by_default_no_other_site_reads_an_answer(server) -> None:
    assert asks(server.client, "/v1/recommend", SHOP).status_code == 405
    for path in ("/v1/models", "/healthz", "/model.hush", "/metrics", "/nothing"):
        reply = server.client.get(path, headers={"Origin": SHOP})
        assert not [name for name in CORS if name in reply.headers]


@pytest.mark.parametrize(
    "origin",
    ["*", "null", "shop.example", f"{SHOP}/", f"{SHOP}:443", "http://shop.example:80", "https://Shop.example",
     "https://*.shop.example", "https://u@shop.example", "ftp://shop.example", "https://bücher.example"],
)  # fmt: skip
def test_an_origin_that_no_browser_sends_is_refused(origin: str, files) -> None:
    refused = invoke("serve", str(files["als"]), "--origin", origin, "--port", "0")
    assert refused.exit_code == 2 and refused.output.count("\n") == 1
    assert f"{origin!r} is not an origin" in refused.output


def test_items_that_the_model_lacks_are_ignored_on_request(server) -> None:
    for name, new in (
        ("als", HERS | {"new": 4}),
        ("als", [*HERS.items(), ("new", 4)]),
        ("private-eigenrec", ["new", *HERS]),
    ):
        known = list(HERS) if name != "als" else HERS
        for path, more in (
            ("recommend", {}),
            ("predict", {"items": ITEMS[:3]}),
            ("explain", {"item": ITEMS[5]}),
        ):
            if name != "als" and path == "predict":
                continue
            refused = server.post(f"/v1/{path}", ratings=new, model=name, **more)
            assert refused.status_code == 400 and "'new'" in refused.json()["error"]
            skipped = server.post(f"/v1/{path}", ratings=new, model=name, skip_unknown=True, **more).json()
            whole = server.post(f"/v1/{path}", ratings=known, model=name, **more).json()
            assert whole["skipped"] == 0 and skipped == whole | {"skipped": 1}


@contextlib.contextmanager
def nginx(folder: Path, api: int):
    """Nginx with the page's file; ports and the paths of the certificate are this test's. Its address."""
    if (program := shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")) is None:
        pytest.skip("nginx is not installed")
    port, key, certificate = free_port(), folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-keyout", key, "-out", certificate, "-subj", "/CN=lists.shop.example"],
        check=True, capture_output=True,
    )  # fmt: skip
    written = block("nginx")
    for old, new in (
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("/etc/ssl/lists.pem", str(certificate)),
        ("/etc/ssl/lists.key", str(key)),
        ("http://127.0.0.1:8000;", f"http://127.0.0.1:{api};"),
    ):
        assert written.count(old) == 1
        written = written.replace(old, new)
    temporary = "".join(
        f"{name}_temp_path {folder}/tmp/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "tmp").mkdir()
    (folder / "nginx.conf").write_text(
        f"pid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\nhttp {{\n{temporary}{written}}}\n"
    )
    line = [program, "-p", str(folder), "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"]
    subprocess.run([*line, "-t"], check=True, capture_output=True)
    with subprocess.Popen([*line, "-g", "daemon off;"]) as process:
        try:
            until = time.monotonic() + 30
            while time.monotonic() < until:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
            yield f"https://127.0.0.1:{port}"
        finally:
            process.terminate()


def test_nginx_passes_the_lists_on_and_nothing_else(files, tmp_path) -> None:
    """A folder of lists below the very root of nginx stays unread; so do metrics and files."""
    tmp_path.chmod(0o755)
    lists = tmp_path / "html" / "lists"
    lists.mkdir(parents=True)
    (tmp_path / "history.csv").write_text(f"user,item,rating\n0042,{ITEMS[0]},5\n")
    history, told = str(tmp_path / "history.csv"), str(lists)
    assert invoke("recommend", str(files["als"]), history, "--all", "--out-dir", told).exit_code == 0
    assert (lists / "0042.csv").exists()
    lists.chmod(0o755)
    for path in lists.iterdir():
        path.chmod(0o644)
    with (
        serving({"als": files["als"]}, FREE, origins=[SHOP], page=ROOT / "hushrec" / "web") as server,
        nginx(tmp_path, server.address[1]) as url,
        httpx.Client(base_url=url, verify=False, trust_env=False, timeout=30) as client,
    ):
        asked = {"json": {"ratings": HERS}, "headers": {"Origin": SHOP, "Host": "lists.shop.example"}}
        reply = client.post("/v1/recommend", **asked)
        assert (
            reply.content == server.post("/v1/recommend", ratings=HERS).content and shared_with(reply) == SHOP
        )
        assert asks(client, "/v1/similar", SHOP).status_code == 200
        assert client.post("/v1/similar", json={"item": ITEMS[2]}).status_code == 200
        assert client.post("/v1/recommend", json={"ratings": {"x": 1}}).json()["error"]
        for path in (
            "/lists/0042.csv", "/lists/index.private.csv", "/lists/", "/html/lists/0042.csv",
            "/v1/../lists/0042.csv", "/v1/recommend/../../lists/0042.csv", "/x/%2e%2e/lists/0042.csv",
            "/metrics", "/v1/recommend/../metrics", "/%6detrics", "/models/als.hush", "/model.hush", "/",
        ):  # fmt: skip
            exact = httpx.URL(url).copy_with(raw_path=path.encode())  # not normalised by the client
            assert client.get(exact).status_code == 404, path
        large = client.post("/v1/recommend", json={"ratings": {}, "only": [ITEMS[0]] * 5000, "n": 1000})
        assert large.status_code == 200
        codes = {client.post("/v1/similar", json={"item": ITEMS[2]}).status_code for _ in range(120)}
        assert codes == {200, 429}
    left = [path for path in (tmp_path / "tmp").rglob("*") if path.is_file()]
    assert not left and not any(item in (tmp_path / "error.log").read_text() for item in ITEMS)


def of_systemd() -> str:
    return re.findall(r"^ExecStart=/opt/hushrec/bin/hushrec (.*)$", block("ini"), flags=re.M)[0]


def container() -> list[tuple[str, str]]:
    """Return the instructions of the last stage of the container file."""
    text = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
    found = re.findall(r"^([A-Z]+) (.*)$", text, flags=re.M)
    bases = [words.split()[0] for name, words in found if name == "FROM"]
    assert all(re.fullmatch(r"docker\.io/library/python:3\.\d+\.\d+-slim-[a-z]+", base) for base in bases)
    return found[max(number for number, (name, _) in enumerate(found) if name == "FROM") :]


def test_the_container_is_pinned_and_runs_as_no_root() -> None:
    names, words = zip(*container())
    assert words[names.index("USER")] not in ("root", "0")
    assert not {"RUN", "COPY", "ADD", "VOLUME"} & set(names[names.index("USER") :])


def of_the_container() -> str:
    entry = json.loads(dict(container())["ENTRYPOINT"])
    (words,) = re.findall(r" hushrec-serve \\\n((?:.*\\\n)*.*)\n", PAGE)
    return f"{shlex.join(entry[1:])} {words}".replace("\\\n", " ")


@pytest.mark.parametrize("command", [of_systemd, of_the_container])
def test_what_systemd_and_the_container_start_serves_and_ends(command, files, tmp_path) -> None:
    """With this test's files in place of the page's, and a free port."""
    (tmp_path / "titles.csv").write_text("item,title\n" + "".join(f"{item},The {item}\n" for item in ITEMS))
    shutil.copy(files["als"], tmp_path / "shop.hush")
    words = shlex.split(command().replace("/srv/hushrec/", f"{tmp_path}/"))
    line = [sys.executable, "-m", "hushrec", *words, "--port", "0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().split()[-1].replace("0.0.0.0", "127.0.0.1")
            with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
                found = client.post("/v1/recommend", json={"ratings": HERS}, headers={"Origin": SHOP})
            assert found.json()["items"][0]["title"].startswith("The ") and shared_with(found) == SHOP
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_systemd_reads_the_unit(tmp_path) -> None:
    if (program := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / "hushrec.service"
    unit.write_text(block("ini").replace("/opt/hushrec/bin/hushrec", sys.executable))
    done = subprocess.run([program, "verify", "--man=no", unit], capture_output=True, text=True)
    assert unit.name not in done.stdout + done.stderr


def in_browser(address: str) -> str:
    """The page's HTML after its scripts ran in headless Chromium."""
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, filter(None, names))), None)
    if program is None:
        pytest.skip("Chromium is not installed")
    line = [
        program,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=20000",
        "--dump-dom",
        address,
    ]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=True).stdout


@contextlib.contextmanager
def shop(folder: Path, port: int):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_): ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("allowed", [True, False])
def test_the_shops_page_shows_lists_with_titles_in_a_browser(allowed: bool, files, tmp_path) -> None:
    """Another origin than the server's; without --origin the browser keeps the answers from the page."""
    snippet = block("html")
    assert snippet.count("\n") <= 31 and snippet.count("https://lists.shop.example") == 1
    titles = tmp_path / "titles.csv"
    titles.write_text("item,title\n" + "".join(f"{item},<b>{item} & Söhne</b>\n" for item in ITEMS[:25]))
    port, model = free_port(), hushrec.load(files["als"])
    origins = [f"http://127.0.0.1:{port}"] if allowed else ["http://127.0.0.1:1"]
    with serving({"als": files["als"]}, FREE, origins=origins, tables={"als": (None, titles)}) as server:
        before = (
            f"<script>localStorage.setItem('history', {json.dumps(json.dumps(HERS | {'new': 4}))})</script>"
        )
        page = before + snippet.replace("https://lists.shop.example", server.url)
        (tmp_path / "index.html").write_text(f"<!doctype html><meta charset=utf-8>{page}", "utf-8")
        with shop(tmp_path, port):
            shown = in_browser(f"http://127.0.0.1:{port}/?product={ITEMS[2]}")
    if not allowed:
        assert "<li>" not in shown and shown.count('hidden=""') == 4
        return
    lists = dict(re.findall(r'<ol id="([\w-]+)"[^>]*>(.*?)</ol>', shown, flags=re.S))
    wanted = {
        "for-you": [str(each.item) for each in model.recommend(HERS, 5)],
        "also-bought": [str(each.item) for each in model.similar_items(ITEMS[2], 5)],
    }
    for name, items in wanted.items():
        links = re.findall(r'<a href="\?product=([^"]*)">(.*?)</a>', lists[name])
        assert [item for item, _ in links] == items and len(items) == 5
        for item, text in links:
            assert html.unescape(text) == (f"<b>{item} & Söhne</b>" if item in ITEMS[:25] else item)
