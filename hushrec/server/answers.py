"""Replies to requests. A history is held only while its reply is computed."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from starlette.requests import Request

from hushrec.network.messages import Refusal
from hushrec.network.service import Reply, bearer
from hushrec.server.metrics import Metrics
from hushrec.server.models import Models, OwnRules, Served
from hushrec.server.openapi import openapi
from hushrec.server.request_schemas import BODIES, body_of
from hushrec.serving.attributes import page_with

_NO_STORE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_NO_CACHE = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
_IMMUTABLE = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
_PAGE = {
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page sets the rest
}
_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
#: Prefixes of the headers by which proxies mark a request.
_PROXY_HEADERS = (
    "forwarded",
    "via",
    "x-forwarded-",
    "x-real-ip",
    "x-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
)
#: A name or an IPv4 address, or an IPv6 address, and a port.
_HOST = re.compile(r"(?:([a-z0-9_.-]+)|\[([0-9a-f:.]+)\])(?::[0-9]{1,5})?", re.IGNORECASE)
_MODEL_FILE = "application/octet-stream"
#: Threads of a worker that compute lists, so that a long list delays neither others nor the event loop.
_AT_ONCE = 4


class Answers:
    """The answers of a server: a coroutine function of a request.

    Parameters
    ----------
    tokens : sequence of str
        Bearer tokens. If there are any, a request for a list or for metrics needs one.
    names : sequence of str
        Names of the server in addition to its addresses and localhost.
    page : Path, optional
        Folder of a page that is served at ``/``, with the first model.
    """

    def __init__(
        self,
        models: Models,
        metrics: Metrics,
        *,
        tokens: Sequence[str] = (),
        names: Sequence[str] = (),
        page: Path | None = None,
    ) -> None:
        self._models, self._metrics = models, metrics
        self._tokens = [hashlib.sha256(token.encode()).digest() for token in tokens]
        self._names = {"localhost", *(name.lower() for name in names)}
        self._threads = ThreadPoolExecutor(_AT_ONCE)
        first = models.served[models.default]
        data = ["titles"] * (first.titles is not None) + ["rules"] * (first.rules != OwnRules())
        self._page = {} if page is None else _files(page, data)
        description = _json(openapi())
        self._lists: dict[str, Callable[[Served, dict[str, Any]], dict[str, Any]]] = {
            "/v1/recommend": _recommended,
            "/v1/predict": _predicted,
            "/v1/similar": _similar,
            "/v1/explain": _explained,
        }
        self._documents: dict[str, Callable[[Request], Reply]] = {
            "/v1/privacy": lambda request: Reply(
                _json(self._model(request.query_params.get("model")).model.privacy.to_dict()),
                headers=_NO_CACHE,
            ),
            "/v1/models": lambda request: Reply(_json(self._listed()), headers=_NO_CACHE),
            "/openapi.json": lambda request: Reply(description, headers=_NO_CACHE),
            "/healthz": lambda request: Reply(b'{"status":"serving"}', headers=_NO_STORE),
            "/metrics": self._measured,
        }

    async def __call__(self, request: Request) -> Reply:
        path = request.scope["path"]
        if path in BODIES:
            if request.method != "POST":
                return _other_method("POST")
            self._let_in(request)
            body = await request.body()
            loop = asyncio.get_running_loop()  # anyio hands work to a thread at twice the cost
            return await loop.run_in_executor(self._threads, self._computed, path, body)
        known = self._documents.get(path) or self._static(path)
        if known is None:
            raise Refusal(404, "There is nothing at this address; see /openapi.json.")
        return known(request) if request.method in ("GET", "HEAD") else _other_method("GET, HEAD")

    def _computed(self, path: str, body: bytes) -> Reply:
        fields = body_of(path, body)
        served = self._model(fields["model"])
        answer = self._lists[path](served, fields) | {"model": served.name, "digest": served.digest}
        return Reply(_json(answer), headers=_NO_STORE)

    def _let_in(self, request: Request) -> None:
        """Refuse a request without a needed token, or else one for another host name.

        A web page can let its own name resolve to this server (DNS rebinding) and read answers in the browser
        of a person who can reach it. It has no token and cannot change ``Host``.
        """
        if self._tokens:
            digest = hashlib.sha256(bearer(request).encode()).digest()
            if not any(hmac.compare_digest(digest, token) for token in self._tokens):
                raise Refusal(401, "This request needs a bearer token of the server.")
        elif not self._is_named(request.headers.getlist("Host")):
            raise Refusal(
                421,
                "The Host header does not name this server: ask by its address, or start the server with"
                " --server-name NAME.",
            )

    def _is_named(self, hosts: list[str]) -> bool:
        match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        name = "" if match is None else (match[1] or match[2]).lower()
        try:
            return name in self._names or bool(ip_address(name))
        except ValueError:
            return False

    def _model(self, name: str | None) -> Served:
        name = self._models.default if name is None else name
        if name not in self._models.served:
            raise Refusal(404, "There is no model of this name; /v1/models lists them.")
        return self._models.served[name]

    def _listed(self) -> dict[str, Any]:
        listed = [
            {
                "name": model.name,
                "digest": model.digest,
                "bytes": len(model.content),
                "file": f"/models/{model.name}.hush",
                "by_digest": f"/models/{model.name}/{model.digest}.hush",
            }
            for model in self._models.served.values()
        ]
        return {"models": listed}

    def _measured(self, request: Request) -> Reply:
        """Reply to the operator only: counts show the outcome and time of single requests."""
        self._let_in(request)
        if not self._tokens and not _from_here(request):
            raise Refusal(403, "Metrics are given on the server's own machine, or for a token.")
        text = self._metrics.text([(model.name, model.digest) for model in self._models.served.values()])
        return Reply(text.encode(), "text/plain; version=0.0.4; charset=utf-8", headers=_NO_STORE)

    def _static(self, path: str) -> Callable[[Request], Reply] | None:
        for model in self._models.served.values():
            if path == f"/models/{model.name}/{model.digest}.hush":
                return _file(model.content, _MODEL_FILE, model.digest, _IMMUTABLE)
            here = self._page and model.name == self._models.default and path == "/model.hush"
            if here or path == f"/models/{model.name}.hush":
                return _file(model.content, _MODEL_FILE, model.digest, _NO_CACHE)
        if self._page and path == "/titles.json" and (titles := self._model(None).titles):
            return _file(titles[0], _MEDIA[".json"], titles[1], _NO_CACHE)
        if self._page and path == "/rules.json" and self._model(None).rules != OwnRules():
            content, digest = self._model(None).page_rules
            return _file(content, _MEDIA[".json"], digest, _NO_CACHE)
        page_file = self._page.get("index.html" if path == "/" else path.removeprefix("/"))
        return page_file and _file(*page_file, _NO_CACHE | _PAGE)


def _from_here(request: Request) -> bool:
    client = request.client
    passed_on = any(name.startswith(_PROXY_HEADERS) for name in request.headers)
    return client is not None and not passed_on and ip_address(client.host).is_loopback


def _recommended(served: Served, fields: dict[str, Any]) -> dict[str, Any]:
    options = {name: fields[name] for name in ("n", "next", "exclude_seen")} | _rules(served, fields)
    only, position = fields["only"], served.model.domain.position
    known = [item for item in only or [] if position(item) >= 0]
    options["items"] = known or None
    history, skipped = _history(served, fields)
    listed = served.model.recommend(history, **options)
    if only is not None and not known:
        listed = []
    entries = [_entry(served, item, score=score, rating=rating) for item, score, rating in listed]
    return {"items": entries, "skipped": skipped + len(only or []) - len(known)}


def _rules(served: Served, fields: dict[str, Any]) -> dict[str, Any]:
    return {"attributes": served.attributes, **served.rules.narrowed(fields)}


def _predicted(served: Served, fields: dict[str, Any]) -> dict[str, Any]:
    model, items = served.model, fields["items"]
    what = "rating" if model.scores == "ratings" else "score"
    history, skipped = _history(served, fields)
    pairs = zip(items, model.predict(history, items), strict=True)
    return {"items": [_entry(served, item, **{what: value}) for item, value in pairs], "skipped": skipped}


def _similar(served: Served, fields: dict[str, Any]) -> dict[str, Any]:
    similar = served.model.similar_items(fields["item"], fields["n"], **_rules(served, fields))
    entries = [_entry(served, other.item, score=other.score) for other in similar]
    return {"items": entries, "by": list(similar[0].by) if similar else []}


def _explained(served: Served, fields: dict[str, Any]) -> dict[str, Any]:
    history, skipped = _history(served, fields)
    why = served.model.explain(history, fields["item"])
    because = [_entry(served, item, moved=moved) for item, moved in why.because]
    explained = _entry(served, why.item, score=why.score, base=why.base)
    return explained | {"because": because, "skipped": skipped}


def _entry(served: Served, item: Any, **values: float | None) -> dict[str, Any]:
    domain = served.model.domain
    place = domain.position(item)
    entry: dict[str, Any] = {"item": domain.text_list[place]}
    for name, value in values.items():
        if value is not None:
            entry[name] = value
    if served.attributes is not None and (titles := served.attributes.title_column) is not None:
        entry |= {"title": titles[place].as_py()} if titles[place].is_valid else {}
    return entry


def _history(served: Served, fields: dict[str, Any]) -> tuple[Any, int]:
    """Return the ratings, and how many were skipped."""
    ratings = fields["ratings"]
    if isinstance(ratings, list):
        ratings = [tuple(entry) if isinstance(entry, list) else entry for entry in ratings]
    if not fields["skip_unknown"]:
        return ratings, 0
    position = served.model.domain.position
    known: Any
    if isinstance(ratings, dict):
        known = {item: rating for item, rating in ratings.items() if position(item) >= 0}
    else:
        known = [entry for entry in ratings if position(entry[0] if isinstance(entry, tuple) else entry) >= 0]
    return known, len(ratings) - len(known)


def _file(content: bytes, media: str, digest: str, headers: dict[str, str]) -> Callable[[Request], Reply]:
    """Reply with a whole file under its digest: a range would show which items are read."""
    tag = f'"{digest}"'

    def reply(request: Request) -> Reply:
        known = request.headers.get("If-None-Match", "")
        if known == "*" or tag in (given_tag.strip().removeprefix("W/") for given_tag in known.split(",")):
            return Reply(b"", media, 304, headers | {"ETag": tag})
        return Reply(content, media, 200, headers | {"ETag": tag})

    return reply


def _files(folder: Path, data: Sequence[str]) -> dict[str, tuple[bytes, str, str]]:
    files = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in _MEDIA:
            content = page_with(path.read_bytes(), data)
            files[path.name] = content, _MEDIA[path.suffix], hashlib.sha256(content).hexdigest()
    return files


def _other_method(right: str) -> Reply:
    sentence = {"error": f"This address answers {right} only."}
    return Reply(_json(sentence), status=405, headers={"Allow": right})


_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def _json(value: Any) -> bytes:
    return _encoder.encode(value).encode()
