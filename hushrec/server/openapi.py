"""The API of a server as an OpenAPI document."""

from __future__ import annotations

from typing import Any

from hushrec import __version__
from hushrec.server.request_schemas import BODIES

_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
_JSON, _BYTES = "application/json", "application/octet-stream"
_ERRORS = {
    "400": "The request cannot be used; the sentence says why.",
    "401": "The request needs a bearer token (--tokens).",
    "403": "Metrics from another machine need a token.",
    "404": "No such address, or no model of this name.",
    "405": "The address answers another method; Allow names it.",
    "411": "The request has no Content-Length and no chunks.",
    "413": "The request is too long.",
    "421": "The Host header names neither an address, localhost nor a --server-name.",
    "429": "Too many requests from this address; try again in a second.",
    "500": "The server failed.",
    "503": "The server is busy with other requests; try again in a second.",
}
#: Codes of all addresses, and more codes of requests with POST.
_ALWAYS, _CODES = ("405", "429", "500"), ("400", "401", "404", "411", "413", "421", "503")
_DIGEST = "3f5a…"
_HISTORY = {"matrix": 5, "titanic": 2}


def openapi() -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hushrec",
            "version": __version__,
            "description": "The server keeps nothing of a request.",
        },
        "paths": _posts() | _gets(),
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }


def _posts() -> dict[str, Any]:
    entry = _object("item", item=_TEXT, title=_TEXT, score=_NUMBER, rating=_NUMBER)
    items, sources = {"type": "array", "items": entry}, {"type": "array", "items": _TEXT}
    moved = {"type": "array", "items": _object("item", "moved", item=_TEXT, title=_TEXT, moved=_NUMBER)}
    skipped = {
        "type": "integer",
        "description": "Number of unknown items in ratings (skip_unknown) and only.",
    }
    best = {"item": "alien", "score": 0.41, "rating": 4.2}
    because = [{"item": "matrix", "moved": 0.34}, {"item": "titanic", "moved": -0.05}]
    described: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
        "/v1/recommend": (
            "The best items for one user, computed from the ratings in the request, which are not kept. A"
            " list is ranked by score. Each item has a rating if the model predicts ratings, and a title if"
            " the server has titles. next needs ratings in order, or with times. where, at_most and boost"
            " use the columns of the table of --attributes.",
            {"ratings": _HISTORY, "n": 10},
            {"items": items, "skipped": skipped},
            {"items": [best], "skipped": 0},
        ),
        "/v1/predict": (
            "Predicted ratings of some items for one user, in the order of the request; a model of likes"
            " gives scores.",
            {"ratings": _HISTORY, "items": ["alien"]},
            {"items": items, "skipped": skipped},
            {"items": [{"item": "alien", "rating": 4.2}], "skipped": 0},
        ),
        "/v1/similar": (
            "Items that go together with one item or several, and by, the sources of this. where, at_most"
            " and boost as for /v1/recommend; the server's own rules hold, too.",
            {"item": "matrix", "n": 10},
            {"items": items, "by": sources},
            {"items": [{"item": "alien", "score": 0.87}], "by": ["5 taste dimensions", "public likes"]},
        ),
        "/v1/explain": (
            "Which of a user's items moved the score of an item, and by how much: base and moved add up to"
            " the score. Lists lower scores that do not exceed the noise.",
            {"ratings": _HISTORY, "item": "alien"},
            {"item": _TEXT, "score": _NUMBER, "base": _NUMBER, "because": moved, "skipped": skipped},
            {"item": "alien", "score": 0.41, "base": 0.12, "because": because, "skipped": 0},
        ),
    }
    paths = {}
    for path, (summary, asked, reply, answer) in described.items():
        fields = BODIES[path]
        needed = [name for name, field in fields.items() if field.needed]
        body = _object(*needed, **{name: field.schema for name, field in fields.items()})
        body |= {"additionalProperties": False}
        schema = _object(*reply, "model", "digest", **reply, title=_TEXT, model=_TEXT, digest=_TEXT)
        example = answer | {"model": "films", "digest": _DIGEST}
        paths[path] = {
            "post": {
                "summary": summary,
                "requestBody": {"required": True, "content": {_JSON: {"schema": body, "example": asked}}},
                "responses": _responses(_JSON, schema, *_CODES, example=example),
                "security": [{}, {"bearer": []}],
            }
        }
    return paths


def _gets() -> dict[str, Any]:
    files = {"file": "/models/films.hush", "by_digest": f"/models/films/{_DIGEST}.hush"}
    listed = {"name": "films", "digest": _DIGEST, "bytes": 92768} | files
    model = _object(*listed, **(dict.fromkeys(listed, _TEXT) | {"bytes": {"type": "integer"}}))
    models = _object("models", models={"type": "array", "items": model})
    unchanged = {"304": {"description": "If-None-Match names this file's ETag."}}
    named = [
        {"name": "model", "in": "query", "schema": _TEXT, "description": "The server's first by default."}
    ]
    parts = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in ("name", "digest")]
    routes: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
        "/v1/privacy": (
            "The privacy statement of a model.",
            _responses(_JSON, {"type": "object"}, "404"),
            named,
        ),
        "/v1/models": (
            "The models, and the addresses of their files.",
            _responses(_JSON, models, example={"models": [listed]}),
            [],
        ),
        "/models/{name}.hush": (
            "A model file, always whole; cached by ETag.",
            _responses(_BYTES, _TEXT, "404") | unchanged,
            parts[:1],
        ),
        "/models/{name}/{digest}.hush": (
            "The same under its digest; it never changes and may be cached without limit.",
            _responses(_BYTES, _TEXT, "404") | unchanged,
            parts,
        ),
        "/healthz": (
            "Whether the server serves.",
            _responses(_JSON, _object("status", status=_TEXT), example={"status": "serving"}),
            [],
        ),
        "/metrics": (
            "Counts and times for Prometheus: on the server's own machine, or for a token.",
            _responses("text/plain", _TEXT, "401", "403", "421"),
            [],
        ),
        "/openapi.json": ("This description.", _responses(_JSON, {"type": "object"}), []),
    }
    return {
        path: {"get": {"summary": summary, "responses": replies} | ({"parameters": query} if query else {})}
        for path, (summary, replies, query) in routes.items()
    }


def _responses(media: str, schema: dict[str, Any], *codes: str, example: Any = None) -> dict[str, Any]:
    problem = {_JSON: {"schema": _object("error", error=_TEXT)}}
    content = {media: {"schema": schema} | ({} if example is None else {"example": example})}
    errors = {code: {"description": _ERRORS[code], "content": problem} for code in sorted((*codes, *_ALWAYS))}
    return {"200": {"description": "Done", "content": content}} | errors


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}
