"""A server's answers are those of the library, and it keeps nothing of the requests."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import http.client
import itertools
import json
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from starlette.requests import Request

import hushrec
from hushrec.errors import InputError
from hushrec.network.messages import Refusal
from hushrec.network.service import Limits
from hushrec.server.answers import Answers
from hushrec.server.metrics import SIZE, Metrics
from hushrec.server.models import Models, OwnRules
from hushrec.server.request_schemas import BODIES, body_of
from tests.server.conftest import ITEMS, serving, trained

HERS = {ITEMS[0]: 5.0, ITEMS[3]: 1.0, ITEMS[7]: 4.0}
NAMES = ["als", "both", "private-eigenrec", "item-bias", "small"]


def entries(response) -> list[dict]:
    assert response.status_code == 200, response.text
    assert response.headers["cache-control"] == "no-store"
    return response.json()["items"]


def check_lists(server, name: str, model, history: dict[str, float]) -> None:
    """All answers to one user are those of the library."""

    def said(found) -> list[dict]:
        entries = [each._asdict() for each in found]
        return [entry | {"item": str(entry["item"])} for entry in entries]

    def asked(path: str, **body) -> list[dict]:
        got = entries(server.post(path, ratings=history, model=name, **body))
        return got if predicts else [each | {"rating": None} for each in got]

    predicts, only = model.scores == "ratings", ITEMS[:6]
    for n in (1, 10, 1000):
        assert asked("/v1/recommend", n=n) == said(model.recommend(history, n))
    among = asked("/v1/recommend", only=only, exclude_seen=False)
    assert among == said(model.recommend(history, items=only, exclude_seen=False))
    for known, listed in ((only, among), ([], [])):
        for skip in (True, False):
            body = {"only": ["newer", *known, 77], "exclude_seen": False, "skip_unknown": skip}
            assert asked("/v1/recommend", **body) == listed
            assert server.post("/v1/recommend", ratings=history, model=name, **body).json()["skipped"] == 2
    assert asked("/v1/recommend", only=[]) == []
    for n in (2, 1000):
        ranked = [each["score"] for each in asked("/v1/recommend", n=n)]
        assert ranked == sorted(ranked, reverse=True)
    why = server.post("/v1/explain", ratings=history, item=ITEMS[4], model=name)
    explained = model.explain(history, ITEMS[4]) if predicts or model.scores == "likes" else None
    if explained is not None:
        (listed,) = model.recommend(history, items=[model.domain.items[4]], exclude_seen=False)
        assert explained.score == pytest.approx(listed.score)  # it explains the list
        because = [{"item": str(item), "moved": moved} for item, moved in explained.because]
        told = explained._asdict() | {"item": str(explained.item), "because": because}
        assert {key: value for key, value in why.json().items() if key in told} == told
    what = "rating" if predicts else "score"
    found = entries(server.post("/v1/predict", ratings=history, items=only, model=name))
    assert found == [{"item": item, what: value} for item, value in zip(only, model.predict(history, only))]


@pytest.mark.parametrize("name", NAMES)
def test_lists_are_those_of_the_library(name: str, server, files) -> None:
    model = hushrec.load(files[name])
    check_lists(server, name, model, HERS)
    check_lists(server, name, model, {})
    whole = server.post("/v1/recommend", ratings=HERS, model=name)
    as_pairs = [[item, rating] for item, rating in HERS.items()]
    assert server.post("/v1/recommend", ratings=as_pairs, model=name).content == whole.content
    assert [each["item"] for each in whole.json()["items"]] == [each.item for each in model.recommend(HERS)]
    timed = [[item, rating, -place] for place, (item, rating) in enumerate(HERS.items())]
    found = entries(server.post("/v1/recommend", ratings=timed, next=True, model=name))
    wanted = model.recommend([tuple(each) for each in timed], next=True)
    assert [(each["item"], each["score"]) for each in found] == [each[:2] for each in wanted]
    if model.scores == "likes":
        liked = entries(server.post("/v1/recommend", ratings=list(HERS), model=name))
        assert [each["score"] for each in liked] == [each.score for each in model.recommend(list(HERS))]
    assert whole.json()["digest"] == server.models.served[name].digest
    if name in ("als", "both"):
        for options in ({"n": 4}, {}):
            found = entries(server.post("/v1/similar", item=ITEMS[2], model=name, **options))
            similar = model.similar_items(ITEMS[2], *options.values())
            assert [(each["item"], each["score"]) for each in found] == [each[:2] for each in similar]


def test_lists_keep_to_the_rules_of_a_request(files, tmp_path) -> None:
    """The table is exchanged while the server runs; a damaged one is refused and the old one goes on."""
    table, model = tmp_path / "items.csv", hushrec.load(files["both"])
    rules = {"where": "in_stock", "at_most": {"brand": 2}, "boost": {"brand = 'b1'": 3}}

    def write(stock: int) -> None:
        rows = [f"{item},{place % stock > 0},b{place % 3},The {item}" for place, item in enumerate(ITEMS)]
        table.write_text("\n".join(["id,in_stock,brand,title", *rows]))

    write(2)
    with serving({"both": files["both"]}, tables={"both": (table, None)}) as server:
        for stock in (2, 5, None):
            if stock is None:
                table.write_text("")
            else:
                write(stock)
                attributes = hushrec.serving.Attributes.read(table, model.domain)
            server.models.look()
            told = entries(server.post("/v1/recommend", ratings=HERS, **rules))
            listed = model.recommend(HERS, attributes=attributes, **rules)
            assert told == [
                {**each._asdict(), "item": str(each.item), "title": f"The {each.item}"} for each in listed
            ]
        assert server.models.refused == 1 and len(told) == 6
        similar = entries(server.post("/v1/similar", item=ITEMS[2], n=2))
        assert [each["title"] for each in similar] == [f"The {each['item']}" for each in similar]
        for body, words in (
            (
                {"where": "stock"},
                "There is no column 'stock' in the attributes; there are: in_stock, brand, title"
                " (nearest: in_stock).",
            ),
            ({"at_most": {"brand": "2"}}, "at_most='2' is out of range; pass an integer >= 1."),
            ({"boost": ["new"]}, "The field boost is an object from condition to factor."),
            ({"where": 5}, "The field where is a condition such as"),
        ):
            refused = server.post("/v1/recommend", ratings=HERS, **body)
            assert refused.status_code == 400 and words in refused.json()["error"]


ASKED = [
    {},
    {"where": "not in_stock"},
    {"where": "true) or (true"},
    {"where": "true or true"},
    {"where": "brand = 'b1'"},
    {"at_most": {"brand": 1000}},
    {"at_most": {"brand": 1}},
    {"at_most": {"brand": True}},
    {"at_most": {"brand": -1}},
    {"at_most": {"title": 1}},
    {"boost": {"not in_stock": 1e6}},
]


def test_a_request_narrows_the_rules_of_a_server_and_never_widens_them(files, tmp_path) -> None:
    """The page's rules are the same; a table that they do not fit is not taken."""
    table, own = tmp_path / "items.csv", OwnRules("in_stock", {"brand": 2})
    stock, brand = (
        {item: value(place) for place, item in enumerate(ITEMS)}
        for value in (lambda at: at % 4 > 0, lambda at: at % 3)
    )
    rows = [f"{item},{stock[item]},b{brand[item]},The {item}" for item in ITEMS]
    table.write_text("\n".join(["id,in_stock,brand,title", *rows]))
    tables, page = {"both": (table, None)}, Path(hushrec.__file__).parent / "web"
    with serving({"both": files["both"]}, tables=tables, rules=own, page=page) as server:
        for path, question in (
            ("/v1/recommend", {"ratings": HERS, "exclude_seen": False}),
            ("/v1/similar", {"item": ITEMS[2]}),
        ):
            whole = [each["item"] for each in entries(server.post(path, n=1000, **question))]
            for asked in ASKED:
                answer = server.post(path, n=1000, **question, **asked)
                if answer.status_code != 200:
                    assert "true) or" in str(asked) or asked["at_most"]["brand"] in (True, -1)
                    continue
                listed = [each["item"] for each in entries(answer)]
                assert all(stock[item] for item in listed)
                counts = Counter(brand[item] for item in listed)
                assert all(count <= 2 for count in counts.values())
                if asked == {"where": "brand = 'b1'"}:
                    assert listed == [item for item in whole if brand[item] == 1]
                if asked == {"at_most": {"brand": 1}}:
                    assert list(counts.values()) == [1, 1, 1]
                if asked == {"where": "not in_stock"}:
                    assert not listed
            assert len(whole) == 6
        assert b'data-rules="rules.json"' in server.client.get("/").content
        found = server.client.get("/rules.json").json()
        columns, (limit,) = found["attributes"], found["atMost"]
        assert (columns["item"], found["where"], found["atMost"][limit]) == (ITEMS, "allowed", 2)
        assert columns["allowed"] == [stock[item] for item in ITEMS]
        pairs = set(zip(columns[limit], brand.values(), strict=True))
        assert len(pairs) == len({code for code, _ in pairs}) == 3
        table.write_text("\n".join(["id,brand,title", *(f"{item},b1,The {item}" for item in ITEMS)]))
        server.models.look()
        assert server.models.refused == 1
        assert [each["item"] for each in entries(server.post(path, n=1000, **question))] == whole
    with (
        pytest.raises(InputError, match="no column 'in_stock'"),
        serving({"both": files["both"]}, tables=tables, rules=own),
    ):
        pass
    with pytest.raises(InputError, match="need a table"), serving({"both": files["both"]}, rules=own):
        pass


def test_a_server_remembers_nobody_between_requests(files) -> None:
    """The same items with other ratings, another user, the same again: as of a server that was just begun."""
    users = [HERS, dict(zip(HERS, (1.0, 5.0, 2.0))), {}, dict.fromkeys(ITEMS[5:15], 4.0)]
    paths = {"/v1/recommend": {"n": 20}, "/v1/predict": {"items": ITEMS[:9]}}

    def told(server, user: int) -> list[bytes]:
        return [server.post(path, ratings=users[user], **rest).content for path, rest in paths.items()]

    alone = []
    for user in range(len(users)):
        with serving({"both": files["both"]}) as fresh:
            alone.append(told(fresh, user))
    with serving({"both": files["both"]}) as server:
        for user in (0, 1, 0, 2, 3, 0, 1, 1, 3, 2):
            assert told(server, user) == alone[user]


def test_files_are_cached_by_their_digest_and_sent_whole(server, files) -> None:
    """A range, or a piece, would reveal the items of a request."""
    (listed,) = [each for each in server.client.get("/v1/models").json()["models"] if each["name"] == "both"]
    content = files["both"].read_bytes()
    assert listed["digest"] == content[-32:].hex() and listed["bytes"] == len(content)
    by_name, by_digest = server.client.get(listed["file"]), server.client.get(listed["by_digest"])
    assert by_name.content == by_digest.content == content
    assert by_name.headers["cache-control"] == "no-cache"
    assert by_digest.headers["cache-control"] == "public, max-age=31536000, immutable"
    tag = by_name.headers["etag"]
    assert tag == by_digest.headers["etag"] == f'"{listed["digest"]}"'
    for given_tag in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        again = server.client.get(listed["file"], headers={"If-None-Match": given_tag})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    ranged = server.client.get(listed["file"], headers={"Range": "bytes=0-9"})
    assert ranged.status_code == 200 and ranged.content == content
    other = listed["by_digest"].replace(listed["digest"], "0" * 64)
    assert server.client.get(other).status_code == 404


def test_the_page_has_the_first_model_beside_it(server, files) -> None:
    page = server.client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert server.client.get("/model.hush").content == files["als"].read_bytes()
    # no other site learns of the visit, embeds the page or keeps its window
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["content-security-policy"] == "frame-ancestors 'none'"
    assert page.headers["cross-origin-opener-policy"] == "same-origin"
    for path in (Path(hushrec.__file__).parent / "web").iterdir():
        assert server.client.get(f"/{path.name}").content == path.read_bytes()
    for path in ("/../pyproject.toml", "/%2e%2e/server/answers.py", "/web", "/index.htm", "/models/als"):
        assert server.client.get(path).status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/recommend", b"[" * 30_000, "is not JSON"),
        ("/v1/recommend", b'{"ratings":{"a":' + b"9" * 5000 + b"}}", "is not JSON"),
        ("/v1/recommend", b'{"ratings":{},"n":0}', "n is an integer from 1"),
        ("/v1/recommend", b'{"ratings":{},"n":true}', "n is an integer from 1"),
        ("/v1/recommend", b'{"ratings":{},"n":null}', "n is an integer from 1"),
        ("/v1/recommend", b'{"ratings":{},"exclude_seen":null}', "exclude_seen is true or false"),
        ("/v1/recommend", json.dumps({"ratings": [[ITEMS[0], True]]}).encode(), "to rating, a number"),
        ("/v1/recommend", b'{"ratings":{},"exclude_seen":1}', "exclude_seen is true or false"),
        ("/v1/recommend", b'{"ratings":{},"only":"needle"}', "only is a list"),
        ("/v1/recommend", b'{"ratings":{},"limit":3}', "no field 'limit'"),
        ("/v1/recommend", b'{"ratings":{},"model":"other"}', "no model of this name"),
        ("/v1/recommend", b'{"ratings":{"unknown":3}}', "not in the model's catalogue"),
        ("/v1/recommend", json.dumps({"ratings": {ITEMS[0]: 99}}).encode(), "from 1 to 5"),
        ("/v1/recommend", json.dumps({"ratings": [[ITEMS[0], float("nan")]]}).encode(), "from 1 to 5"),
        ("/v1/recommend", json.dumps({"ratings": [ITEMS[0]]}).encode(), "pairs of both"),
        ("/v1/recommend", json.dumps({"ratings": {ITEMS[0]: True}}).encode(), "to rating, a number"),
        ("/v1/recommend", json.dumps({"ratings": [[ITEMS[0], "5"]]}).encode(), "to rating, a number"),
        ("/v1/recommend", json.dumps({"ratings": [[ITEMS[0], 5, True]]}).encode(), "[item, rating, time]"),
        ("/v1/recommend", json.dumps({"ratings": [[ITEMS[0], 5, [1]]]}).encode(), "[item, rating, time]"),
        ("/v1/recommend", json.dumps({"ratings": {ITEMS[0]: None}}).encode(), "from 1 to 5"),
        ("/v1/recommend", b'{"ratings":{"a":1},"ratings":{}}', "names 'ratings' twice"),
        ("/v1/recommend", b'{"ratings":{"a":1,"a":2}}', "names 'a' twice"),
        ("/v1/recommend", b'{"ratings":{"' + b"x" * 60_000 + b'":2}}', "; leave it out."),
        ("/v1/recommend", b'{"ratings":{"\\u001b[31m\\n":2}}', "\\x1b[31m\\n"),
        (
            "/v1/recommend",
            json.dumps({"ratings": {ITEMS[0]: 3}, "next": True}).encode(),
            "next needs an order",
        ),
        ("/v1/recommend", b'{"ratings":[],"next":1}', "next is true or false"),
        ("/v1/recommend", json.dumps({"ratings": [[ITEMS[0], 99, "needle"]]}).encode(), "from 1 to 5"),
        ("/v1/recommend", json.dumps({"ratings": [["x", 3, "needle"]], "next": True}).encode(), "Item 'x'"),
        ("/v1/predict", b'{"ratings":{},"items":[[1]]}', "items is a list"),
    ],
)
def test_a_bad_body_has_a_clear_answer(path: str, body: bytes, words: str, server) -> None:
    answer = server.client.post(path, content=body)
    assert answer.status_code in (400, 404) and answer.headers["cache-control"] == "no-store"
    sentence = answer.json()["error"]
    assert words in sentence and sentence.isprintable() and "needle" not in sentence and len(sentence) < 600


@pytest.mark.parametrize(
    ("path", "field", "least", "most"),
    [
        ("/v1/recommend", "ratings", 0, 10_000),
        ("/v1/recommend", "only", 0, 100_000),
        ("/v1/predict", "items", 0, 1000),
        ("/v1/similar", "item", 1, 100),
    ],
)
def test_lists_of_a_request_have_the_lengths_of_the_document(path, field, least, most, server) -> None:
    """Both ends are accepted, and one more or less is refused."""
    needed = {"ratings": {}, "items": [], "item": "a"}
    others = {name: needed[name] for name, each in BODIES[path].items() if each.needed and name != field}

    def fits(value) -> bool:
        with contextlib.suppress(InputError):
            return body_of(path, json.dumps(others | {field: value}).encode())[field] == value
        return False

    ids = [f"i{place}" for place in range(most + 1)]
    assert fits(ids[:least]) and fits(ids[:most]) and not fits(ids)
    assert least == 0 or not fits([])
    if field == "ratings":
        rated = dict.fromkeys(ids, 3)
        assert not fits(rated) and rated.popitem() and fits(rated)
    body = server.client.get("/openapi.json").json()["paths"][path]["post"]["requestBody"]
    schema = body["content"]["application/json"]["schema"]["properties"][field]
    (listed,) = [each for each in schema.get("oneOf", [schema]) if each.get("type") == "array"]
    assert (listed.get("minItems", 0), listed["maxItems"]) == (least, most)


def test_what_changes_is_asked_for_again(server, files) -> None:
    """A cache keeps neither an answer nor a state; it asks whether a document is still the same."""
    for path, kept in (
        ("/healthz", "no-store"),
        ("/metrics", "no-store"),
        ("/v1/models", "no-cache"),
        ("/v1/privacy", "no-cache"),
        ("/openapi.json", "no-cache"),
        ("/", "no-cache"),
    ):
        told = server.client.get(path).headers
        assert (told["cache-control"], told["x-content-type-options"]) == (kept, "nosniff"), path
    for name in ("item-bias", "als"):
        told = server.client.get("/v1/privacy", params={"model": name}).json()
        assert told == json.loads(json.dumps(hushrec.load(files[name]).privacy.to_dict()))
    first = server.client.get("/v1/privacy").json()
    assert first == server.client.get("/v1/privacy", params={"model": "als"}).json()


def test_requests_that_are_none(server) -> None:
    long = server.client.post("/v1/recommend", content=b"x" * (1 << 17))
    assert long.status_code == 413 and "65,536 bytes" in long.json()["error"]
    assert server.client.get("/v1/recommend").status_code == 405
    assert server.client.post("/v1/models", content=b"").headers["allow"] == "GET, HEAD"
    other = server.client.delete("/v1/models")
    assert other.status_code == 405 and other.headers["allow"] == "GET, HEAD"
    for path in ("/healthz", "/models/als.hush"):
        told, asked = (getattr(server.client, verb)(path) for verb in ("get", "head"))
        same = ("etag", "content-length", "content-type", "cache-control")
        assert asked.status_code == 200 and asked.content == b"" and told.content
        assert [asked.headers.get(name) for name in same] == [told.headers.get(name) for name in same]
    post = b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\n"
    for raw, status in (
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00", 400),  # TLS
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * 200_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000, 431),
        (post + b"\r\n", 411),
        (post + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (post + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 411),
        (post + b"Transfer-Encoding: chunked\r\n\r\n10001\r\n" + b" " * 65_537, 413),
        (b"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (post + b"Content-Length: -1\r\n\r\n", 411),
        (post + b"Content-Length: \xb2\r\n\r\n{}", 411),
        (post + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ", 400),
        (post + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (post + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 413),
        (post + b"Content-Length: 99999999\r\n\r\n", 413),
        (b"PUT /v1/recommend HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}", 413),
    ):
        with socket.create_connection(server.address, timeout=30) as connection:
            connection.sendall(raw)
            with http.client.HTTPResponse(connection) as answer:  # which may come in several pieces
                answer.begin()
                body = answer.read()
        # httptools before 0.7 reads an address of any length
        assert answer.status in (status, 404 if b"aaa HTTP" in raw else status), (raw[:60], answer.status)
        sentence = json.loads(body)["error"]
        assert sentence.endswith(".") and sentence.isprintable() and len(sentence) < 120
    endless = b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 1000
    with (
        socket.create_connection(server.address, timeout=30) as connection,
        pytest.raises(ConnectionError),
    ):
        for _ in range(1000):
            connection.sendall(endless)
    assert server.client.get("/healthz").status_code == 200


def test_a_request_in_chunks_is_read_up_to_the_limit(server) -> None:
    body = json.dumps({"ratings": HERS, "n": 3}).encode()
    wanted = server.client.post("/v1/recommend", content=body)
    for size in (1, 7, 1000):
        pieces = [body[start : start + size] for start in range(0, len(body), size)]
        found = server.client.post("/v1/recommend", content=iter(pieces))
        assert found.request.headers["transfer-encoding"] == "chunked"
        assert (found.status_code, found.content) == (200, wanted.content)
    whole = (body[:-1] + b" " * ((1 << 16) - len(body)) + b"}", body[:-1] + b" " * (1 << 16) + b"}")
    for content, status in zip(whole, (200, 413), strict=True):
        assert server.client.post("/v1/recommend", content=iter([content])).status_code == status
    assert server.client.post("/v1/recommend", content=body).content == wanted.content


def test_replies_are_counted_in_the_first_bucket_that_holds_their_time() -> None:
    metrics, times = Metrics(bytearray(8 * SIZE)), [0.0004, 0.001, 0.003, 0.2, 1.0, 7.5]
    for place, seconds in enumerate(times):
        metrics.note("/healthz", (200, 304, 404, 503)[place % 4], seconds)
    rows = dict(
        re.findall(r'^(hushrec_request\S*route="/healthz"\S*) (\S+)$', metrics.text([]), re.MULTILINE)
    )
    found = {key.partition('le="')[2].partition('"')[0]: int(rows[key]) for key in rows if "_bucket" in key}
    assert found.pop("+Inf") == len(times) == int(rows['hushrec_request_seconds_count{route="/healthz"}'])
    assert len(found) > 5
    assert found == {bound: sum(each <= float(bound) for each in times) for bound in found}
    codes = {key[-5:-2]: int(count) for key, count in rows.items() if "code" in key}
    assert codes == {"2xx": 2, "3xx": 2, "4xx": 1, "5xx": 1}
    assert float(rows['hushrec_request_seconds_sum{route="/healthz"}']) == pytest.approx(sum(times))


def test_metrics_are_those_of_all_workers() -> None:
    """Each sees the requests and model files of the others; a worker reports its totals again and again."""
    shared = bytearray(2 * 8 * SIZE)
    workers = [Metrics(shared, number) for number in range(2)]
    for number, worker in enumerate(workers):
        for _ in range(2 + number):
            worker.note("/v1/predict", 200, 0.01)
        for total in (1, 3):
            worker.models(total, number)
    for worker in workers:
        lines = worker.text([]).splitlines()
        assert 'hushrec_requests_total{route="/v1/predict",code="2xx"} 5' in lines
        assert "hushrec_models_exchanged_total 6" in lines and "hushrec_models_refused_total 1" in lines


def test_tokens(files) -> None:
    token = "t" * 32
    with serving({"als": files["als"]}, tokens=["u" * 32, token]) as closed:
        for headers in ({}, {"Authorization": f"Bearer {token}x"}, {"Authorization": f"Basic {token}"}):
            for path in ("/v1/recommend", "/v1/predict", "/v1/similar", "/v1/explain"):
                refused = closed.client.post(path, content=b"{}", headers=headers)
                assert refused.status_code == 401 and "bearer token" in refused.json()["error"]
            assert closed.client.get("/metrics", headers=headers).status_code == 401
        named = {"Authorization": f"Bearer {token}"}
        assert closed.client.post("/v1/recommend", json={"ratings": {}}, headers=named).status_code == 200
        assert closed.client.get("/models/als.hush").status_code == 200  # it is public
        begins = hashlib.sha256(token.encode()).digest()[:2]  # the hash of another token begins alike
        alike = (f"{number:032}" for number in itertools.count())
        other = next(each for each in alike if hashlib.sha256(each.encode()).digest()[:2] == begins)
        refused = closed.client.get("/metrics", headers={"Authorization": f"Bearer {other}"})
        assert refused.status_code == 401


def test_a_table_of_the_same_length_replaces_another(files, tmp_path) -> None:
    table = tmp_path / "titles.csv"
    table.write_text(f"id,title\n{ITEMS[1]},Alien\n")
    page, tags = Path(hushrec.__file__).parent / "web", [""]
    with serving({"als": files["als"]}, tables={"als": (None, table)}, page=page) as server:
        for title in ("Alien", "Brazi"):
            draft = tmp_path / "draft"
            draft.write_text(f"id,title\n{ITEMS[1]},{title}\n")
            draft.replace(table)
            server.models.look()
            told = entries(server.post("/v1/predict", ratings={}, items=ITEMS[1:2]))
            assert [each["title"] for each in told] == [title]
            fetched = server.client.get("/titles.json", headers={"If-None-Match": tags[-1]})
            assert fetched.status_code == 200 and fetched.json() == {ITEMS[1]: title}
            tags.append(fetched.headers["etag"])
        told = entries(server.post("/v1/predict", ratings={}, items=ITEMS[2:3]))
        assert "title" not in told[0]  # which the table lacks


def test_no_body_is_read_before_its_token(files) -> None:
    async def receive():
        raise AssertionError("a stranger's body is read")

    answers = Answers(Models({"als": files["als"]}), Metrics(bytearray(8 * SIZE)), tokens=["u" * 32])
    for path in BODIES:
        scope = {"type": "http", "method": "POST", "path": path, "headers": []}
        with pytest.raises(Refusal, match="bearer token"):
            asyncio.run(answers(Request(scope, receive)))


def answered(files, path: str, host: str, client=("127.0.0.1", 1), headers=(), **options) -> int:
    """The status of an answer; a POST asks for the list of no ratings."""

    async def receive():
        return {"type": "http.request", "body": b'{"ratings": {}}'}

    answers = Answers(Models({"als": files["als"]}), Metrics(bytearray(8 * SIZE)), **options)
    scope = {"type": "http", "method": "POST" if "/v1/" in path else "GET", "path": path, "query_string": b""}
    scope |= {"client": client, "headers": [(b"host", host.encode()), *headers]}
    try:
        return asyncio.run(answers(Request(scope, receive))).status
    except Refusal as refused:
        return refused.status


#: Headers by which proxies of other makers name their client.
OF_CLIENTS = ("x-client-ip", "true-client-ip", "cf-connecting-ip")


def test_metrics_are_for_this_machine_or_a_token(files):
    """Killed: an address of another machine, or one that a proxy on this machine passes on."""

    def status(tokens, client, headers=()):
        return answered(files, "/metrics", "127.0.0.1:8000", client, headers, tokens=tokens)

    named = (b"authorization", b"Bearer " + b"t" * 32)
    for host in ("127.0.0.1", "::1"):
        assert status((), (host, 1)) == 200
        for header in ("forwarded", "via", "x-forwarded-for", "x-forwarded-proto", "x-real-ip", *OF_CLIENTS):
            assert status((), (host, 1), [(header.encode(), b"192.0.2.7")]) == 403
        assert status(["t" * 32], (host, 1)) == 401
    for client in (("192.0.2.7", 1), ("10.0.0.1", 1), ("2001:db8::1", 1), None):
        assert status((), client) == status((), client, [named]) == 403
        assert status(["t" * 32], client, [named]) == 200


@pytest.mark.true("S3")
@pytest.mark.parametrize("path", ["/v1/recommend", "/metrics"])
def test_a_web_page_cannot_ask_under_a_name_of_its_own(path: str, files) -> None:
    """DNS rebinding: the browser sends the page's name as Host. A token, or a declared name, allows any."""
    for host in ("127.0.0.1", "127.0.0.1:8000", "[::1]:8000", "192.0.2.7:80", "localhost", "LocalHost:8000"):
        assert answered(files, path, host) == 200
    for host in (
        "evil.example",
        "127.0.0.1.evil.example:8000",
        "localhost.evil.example",
        "",
        "[::1",
        "x:y:z",
        "evil.example@localhost",
        "localhost/.evil.example",
        "localhost#.evil.example",
        "localhost:",
        "localhost localhost",
    ):
        assert answered(files, path, host) == 421
    assert answered(files, path, "localhost", headers=[(b"host", b"evil.example")]) == 421
    names = {"names": ["Shop.example"]}
    assert answered(files, path, "shop.example:443", **names) == 200
    assert answered(files, path, "other.shop.example", **names) == 421
    token = (b"authorization", b"Bearer " + b"t" * 32)
    assert answered(files, path, "evil.example", headers=[token], tokens=["t" * 32]) == 200
    assert answered(files, path, "evil.example", tokens=["t" * 32]) == 401
    assert answered(files, "/healthz", "evil.example") == 200


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A server of 50,000 items with a table, which reads bodies of 1 MiB as the command does."""
    folder, items = tmp_path_factory.mktemp("large"), [f"i{place}" for place in range(50_000)]
    small = trained("als", rank=2)
    arrays = {"item_bias": np.linspace(0, 1, 50_000), "item_factors": np.ones((50_000, 32), np.float32)}
    arrays = {**small.arrays, **arrays, "directions": np.int64(32)}
    domain = hushrec.Domain(items, rating_range=(1, 5))
    model = hushrec.Model(small.estimator.of({"rank": 32}), domain, arrays, small.privacy)
    model.save(folder / "large.hush")
    table = "".join(f"{item},{place},b{place // 3},T{place}\n" for place, item in enumerate(items))
    (folder / "items.csv").write_text("item,price,brand,title\n" + table)
    limits = Limits(body_bytes=1 << 20, requests_per_second=1e9)
    tables = {"large": (folder / "items.csv", None)}
    with serving({"large": folder / "large.hush"}, limits, tables=tables) as found:
        yield found


def conditions(count: int, each: str) -> dict[str, float]:
    return {f"{each} or price < {place}": 2.0 for place in range(count)}


@pytest.mark.true("S1")
@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("recommend", {"ratings": {}, "boost": conditions(500, f"price in ({'1,' * 900}2)")}, "at most 20"),
        ("recommend", {"ratings": {}, "boost": conditions(20, f"price in ({'1,' * 900}2)")}, ""),
        (
            "recommend",
            {"ratings": {}, "boost": conditions(20, " or ".join(["brand<brand"] * 100))},
            "too much work",
        ),
        ("recommend", {"ratings": {}, "boost": conditions(20, " or ".join(["brand<brand"] * 8))}, ""),
        ("recommend", {"ratings": {}, "at_most": {f"c{place}": 1 for place in range(21)}}, "at most 20"),
        ("recommend", {"ratings": {}, "n": 1000, "at_most": {"brand": 1, "title": 1}}, ""),
        ("recommend", {"ratings": [["i7", 3.5]] * 60_000}, "10,000 at most"),
        ("recommend", {"ratings": [["i7", 3.5]] * 10_000}, ""),
        ("recommend", {"ratings": [["i7", 3.5], *[["x", 1]] * 9999]}, "not in the model's catalogue"),
        ("recommend", {"ratings": {}, "only": ["i7"] * 100_000}, ""),
        (
            "recommend",
            b'{"ratings":{%s"0":1}}' % b"".join(b'"%x":1,' % k for k in range(90_000)),
            "names '0' twice",
        ),
        ("recommend", {"ratings": {}, "only": ["i7"] * 100_001}, "100,000 at most"),
        ("predict", {"ratings": {}, "items": ["i7"] * 1001}, "1,000 at most"),
        ("similar", {"item": ["i7", "i8"] * 50, "n": 1000}, ""),
        ("similar", {"item": ["i7"] * 101}, "100 at most"),
        ("explain", {"ratings": [[f"i{place}", 3.5] for place in range(10_000)], "item": "i7"}, ""),
    ],
)
def test_no_request_is_much_work(path: str, body, words: str, large) -> None:
    """Answered or refused in little time, in which others are served; at first each took seconds."""
    answers: list = []
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    asking = threading.Thread(
        target=lambda: answers.append(large.client.post(f"/v1/{path}", content=content))
    )
    start, waits = time.process_time(), []  # other processes do not count
    asking.start()
    with httpx.Client(base_url=large.url, trust_env=False, timeout=30) as other:
        while asking.is_alive() or not waits:
            began = time.monotonic()
            assert other.get("/healthz").status_code == 200
            waits.append(time.monotonic() - began)
            time.sleep(0.02)
    asking.join()
    assert answers[0].status_code == (400 if words else 200), answers[0].text
    assert words in answers[0].text and time.process_time() - start < 4 and max(waits) < 20


# ---------------------------------------------------------------------- promises of the document


def conforms(value, schema: dict) -> bool:
    kinds = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int}
    if not isinstance(value, kinds[schema["type"]]):
        return False
    if schema["type"] == "object" and "properties" in schema:
        known = schema["properties"]
        return set(schema["required"]) <= set(value) and all(conforms(v, known[k]) for k, v in value.items())
    return schema["type"] != "array" or all(conforms(each, schema["items"]) for each in value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("path", ["/v1/recommend", "/v1/predict", "/v1/similar", "/v1/explain"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_answer_is_one_of_the_document(path: str, data, server) -> None:
    document = server.client.get("/openapi.json").json()
    asked = document["paths"][path]["post"]
    content = asked["requestBody"]["content"]["application/json"]
    fields = st.sampled_from(sorted(content["schema"]["properties"]))
    words = json.dumps(content["example"]).replace("matrix", ITEMS[0]).replace("titanic", ITEMS[1])
    body = json.loads(words.replace("alien", ITEMS[2])) | data.draw(st.dictionaries(fields, JSON))
    answer = server.client.post(path, content=json.dumps(body).encode())
    described = asked["responses"].get(str(answer.status_code))
    assert described is not None, (body, answer.text)
    assert conforms(answer.json(), described["content"]["application/json"]["schema"]), answer.text


@pytest.mark.true("E4")
@pytest.mark.parametrize("path", ["/v1/recommend", "/v1/predict", "/v1/similar", "/v1/explain"])
def test_the_examples_of_the_document_are_answered_as_it_shows(path: str, server) -> None:
    asked = server.client.get("/openapi.json").json()["paths"][path]["post"]
    text = json.dumps(asked["requestBody"]["content"]["application/json"]["example"])
    for name, item in zip(("matrix", "titanic", "alien"), ITEMS):
        text = text.replace(name, item)
    answer = server.client.post(path, content=text)
    shown = asked["responses"]["200"]["content"]["application/json"]["example"]
    assert answer.status_code == 200 and answer.json().keys() == shown.keys()


def test_other_methods_and_cached_files_are_answered_as_the_document_says(server) -> None:
    listed = server.client.get("/v1/models").json()["models"][0]
    for path, methods in server.client.get("/openapi.json").json()["paths"].items():
        here = path.replace("{name}", listed["name"]).replace("{digest}", listed["digest"])
        for described in methods.values():
            refused = server.client.request("PUT", here)
            problem = described["responses"][str(refused.status_code)]["content"]["application/json"][
                "schema"
            ]
            assert refused.status_code == 405 and conforms(refused.json(), problem)
        if "get" in methods:
            known = server.client.get(here, headers={"If-None-Match": "*"}).status_code
            assert str(known) in methods["get"]["responses"] and (known == 304) == ("{name}" in path)


def test_a_busy_server_answers_as_the_document_says(files) -> None:
    full = Limits(body_bytes=1 << 16, waiting_bytes=1 << 16, requests_per_second=1e9)
    with serving({"als": files["als"]}, full) as server:
        asked = server.client.get("/openapi.json").json()["paths"]["/v1/recommend"]["post"]
        for wait in (0.05, 0.2, 1, 5):  # of two requests at once, either may be the one too many
            with socket.create_connection(server.address) as other:
                other.sendall(
                    b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65536\r\n\r\n"
                )
                time.sleep(wait)
                answer = server.post("/v1/recommend", ratings={})
            if answer.status_code == 503:
                break
    described = asked["responses"][str(answer.status_code)]
    assert answer.status_code == 503
    assert conforms(answer.json(), described["content"]["application/json"]["schema"])


# ---------------------------------------------------------------------- nothing is kept

NEEDLE = re.compile(rb"needle-[0-9a-f]{32}|3\.01234567(89012345)")
#: No other test has this number; as the one float32 of an array by a chance far below 1e-6.
RATING = float("3." + str(123456789012345).zfill(16))
ASKING = """
import http.client, json, secrets, sys
host, items = sys.argv[1], json.loads(sys.argv[2])
needle = "needle-" + secrets.token_hex(16)
kept = http.client.HTTPConnection(host, timeout=30)
for path, body in [
    ("/v1/recommend", {"ratings": {items[0]: 5, needle: 3}}),
    ("/v1/recommend", {"ratings": [[needle, 3]]}),
    ("/v1/recommend", {"ratings": [[items[0], 9, needle]], "next": True}),
    ("/v1/recommend", {"ratings": {items[0]: 5}, "only": [needle]}),
    ("/v1/recommend", {"ratings": {items[0]: 5}, needle: 1}),
    ("/v1/predict", {"ratings": {items[0]: 5}, "items": [needle]}),
    ("/v1/similar", {"item": needle}),
    ("/v1/explain", {"ratings": {items[0]: 5}, "item": needle}),
    ("/v1/recommend", {"ratings": {items[1]: 5}, "model": needle}),
    ("/" + needle, {}),
]:
    kept.request("POST", path, json.dumps(body))
    answer = kept.getresponse()
    text = answer.read().decode()
    assert answer.status in (400, 404) or '{"items":[],"skipped":1' in text, text
kept.request("POST", "/v1/recommend", '{"ratings": {"%s": 3.01234567%s}}' % (items[0], "89012345"))
assert kept.getresponse().read().startswith(b'{"items"')
print("asked", flush=True)
sys.stdin.readline()
"""


@np.errstate(all="ignore")  # there are numbers of other tests that are none
def held(pattern: re.Pattern[bytes]) -> list:
    """Live texts and bytes in which the pattern occurs, and the rating: in objects, and in running frames."""
    gc.collect()
    waiting = gc.get_objects()
    for frame in sys._current_frames().values():
        while frame is not None:
            waiting += frame.f_locals.values()
            frame = frame.f_back
    found, seen = [], set()
    while waiting:
        one = waiting.pop()
        if type(one) in weakref.ProxyTypes:
            continue  # it holds nothing, and what it stood for may be gone
        keys = list(dict.keys(one)) if isinstance(one, dict) else ()  # which the collector does not visit
        for each in (one, *keys, *gc.get_referents(one)):
            if type(each) in weakref.ProxyTypes:
                continue
            if isinstance(each, str | bytes | bytearray | memoryview):
                if len(each) > 31 and id(each) not in seen:
                    seen.add(id(each))
                    octets = each.encode("utf-8", "replace") if isinstance(each, str) else bytes(each)
                    found += [each] if pattern.search(octets) else []
            elif isinstance(each, float):
                found += [each] if each == RATING and each is not RATING else []
            elif isinstance(each, np.ndarray) and each.dtype == np.float32 and each.size == 1:
                found += [each] if each.flat[0] == np.float32(RATING) else []
            elif each is not one and not gc.is_tracked(each) and isinstance(each, tuple | dict):
                waiting.append(each)
    return found


def test_nothing_of_a_request_is_kept(files, caplog, capfd, tmp_path, monkeypatch) -> None:
    """While the connection is open: no live object, log, metric or file holds content of the body."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    caplog.set_level(logging.DEBUG)
    with serving({"als": files["als"]}) as asked:
        line = [sys.executable, "-c", ASKING, asked.url.removeprefix("http://"), json.dumps(ITEMS)]
        with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"asked\n"
            planted = {"needle-" + os.urandom(16).hex(): 1.0}  # the search finds what is there,
            assert held(NEEDLE) == [*planted]  # and nothing else
            measured = asked.client.get("/metrics").text
            process.communicate(b"\n")
        assert process.returncode == 0
    assert not NEEDLE.search(measured.encode())
    assert 'hushrec_requests_total{route="/v1/recommend",code="4xx"} 5' in measured
    assert 'hushrec_requests_total{route="/v1/recommend",code="2xx"} 2' in measured
    written = "\n".join([record.getMessage() for record in caplog.records] + list(capfd.readouterr()))
    assert not NEEDLE.search(written.encode())
    assert not [record for record in caplog.records if record.name.startswith(("uvicorn", "hushrec"))]
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.true("A5")
def test_metrics_know_nobody(server) -> None:
    """The metrics of two histories of different sizes differ in times only."""
    server.post("/v1/recommend", ratings={ITEMS[4]: 2.0})
    before = server.client.get("/metrics").text
    server.post("/v1/recommend", ratings=dict.fromkeys(ITEMS, 3.0))
    after = server.client.get("/metrics").text
    assert not any(item in after for item in ITEMS)
    changed = {
        new.partition(" ")[0] for old, new in zip(before.splitlines(), after.splitlines()) if old != new
    }
    routes = ("/v1/recommend", "/metrics")
    assert changed and all(any(f'route="{route}"' in name for route in routes) for name in changed)
    for sort in ("recommend", "predict"):
        assert f'hushrec_request_seconds_count{{route="/v1/{sort}"}}' in after
    assert f'hushrec_model_info{{model="both",digest="{server.models.served["both"].digest}"}} 1' in after
    server.client.get("/page.js")
    server.client.get("/of-a-client's-making")
    assert "making" not in server.client.get("/metrics").text
