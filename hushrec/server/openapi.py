"""The API of a server, as an OpenAPI document and as a page at ``/docs``."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from hushrec import __version__
from hushrec.server.request_schemas import BODIES

_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
_ERRORS = {
    "400": "The request cannot be used; the sentence says why.",
    "401": "The request needs a bearer token (--tokens).",
    "403": "Metrics from another machine need a token.",
    "404": "No such address, or no model of this name.",
    "411": "The request has no Content-Length.",
    "413": "The request is too long.",
    "421": "The Host header names neither an address, localhost nor a --server-name.",
    "429": "Too many requests from this address; try again in a second.",
}
#: Codes of requests with POST.
_CODES = ("400", "401", "404", "411", "413", "421", "429")
_DIGEST = "3f5a…"
_HISTORY = {"matrix": 5, "titanic": 2}


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of the server."""
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
    def scored(optional: bool, *names: str, **example: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        entry = _object(item=_TEXT, title=_TEXT, **dict.fromkeys(names, _NUMBER))
        entry["required"] = ["item"] if optional else ["item", *names]
        schema = _object(items=_array(entry), model=_TEXT, digest=_TEXT)
        return schema, {"items": [example], "model": "films", "digest": _DIGEST}

    described = {
        "/v1/recommend": (
            "The best items for one user, from the ratings in the request, which are not kept. A list is"
            " ranked by score. Models that predict ratings add a rating to each item, and servers that know"
            " titles a title. next needs a list in order, or with times. where, at_most and boost use the"
            " columns of the table of --attributes.",
            {"ratings": _HISTORY, "n": 10},
            scored(True, "score", "rating", item="alien", score=0.41, rating=4.2),
        ),
        "/v1/predict": (
            "Predicted ratings of some items for one user, in the order of the request; scores of a model of"
            " likes.",
            {"ratings": _HISTORY, "items": ["alien"]},
            scored(True, "score", "rating", item="alien", rating=4.2),
        ),
        "/v1/similar": (
            "Items that go together with one or several, and what says so.",
            {"item": "matrix", "n": 10},
            _similar(*scored(False, "score", item="alien", score=0.87)),
        ),
        "/v1/explain": (
            "Which of a user's items moved the score of an item, and by how much: base and moved add up to"
            " the score. Lists lower scores that do not exceed the noise.",
            {"ratings": _HISTORY, "item": "alien"},
            _because(),
        ),
    }
    paths = {}
    for path, (summary, example, (schema, reply)) in described.items():
        fields = BODIES[path]
        body = {
            "type": "object",
            "properties": {name: field.schema for name, field in fields.items()},
            "required": [name for name, field in fields.items() if field.needed],
            "additionalProperties": False,
        }
        paths[path] = {
            "post": {
                "summary": summary,
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": body, "example": example}},
                },
                "responses": _responses("application/json", schema, *_CODES, example=reply),
                "security": [{}, {"bearer": []}],
            }
        }
    return paths


def _similar(schema: dict[str, Any], reply: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    by = schema | {"properties": schema["properties"] | {"by": _array(_TEXT)}}
    return by | {"required": [*schema["required"], "by"]}, reply | {"by": ["5 taste dimensions", "40 donors"]}


def _because() -> tuple[dict[str, Any], dict[str, Any]]:
    because = _array(_object(item=_TEXT, moved=_NUMBER))  # titles too, where the server knows them
    schema = _object(item=_TEXT, score=_NUMBER, base=_NUMBER, because=because, model=_TEXT, digest=_TEXT)
    moved = [{"item": "matrix", "moved": 0.34}, {"item": "titanic", "moved": -0.05}]
    example = {"item": "alien", "score": 0.41, "base": 0.12, "because": moved}
    return schema, example | {"model": "films", "digest": _DIGEST}


def _gets() -> dict[str, Any]:
    model = _object(name=_TEXT, digest=_TEXT, bytes={"type": "integer"}, file=_TEXT, by_digest=_TEXT)
    files = "/models/films.hush", f"/models/films/{_DIGEST}.hush"
    listed = {"name": "films", "digest": _DIGEST, "bytes": 92768, "file": files[0], "by_digest": files[1]}
    named = [
        {"name": "model", "in": "query", "schema": _TEXT, "description": "The server's first by default."}
    ]
    parts = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in ("name", "digest")]
    json_, octets = "application/json", "application/octet-stream"
    routes: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
        "/v1/privacy": (
            "The privacy statement of a model.",
            _responses(json_, {"type": "object"}, "404", "429"),
            named,
        ),
        "/v1/models": (
            "The models, and the addresses of their files.",
            _responses(json_, _object(models=_array(model)), "429", example={"models": [listed]}),
            [],
        ),
        "/models/{name}.hush": (
            "A model file, always whole; cached by ETag.",
            _responses(octets, _TEXT, "404", "429"),
            parts[:1],
        ),
        "/models/{name}/{digest}.hush": (
            "The same under its digest; it never changes and may be cached without limit.",
            _responses(octets, _TEXT, "404", "429"),
            parts,
        ),
        "/healthz": (
            "Whether the server serves.",
            _responses(json_, _object(status=_TEXT), "429", example={"status": "serving"}),
            [],
        ),
        "/metrics": (
            "Counts and times for Prometheus: on the server's own machine, or for a token.",
            _responses("text/plain", _TEXT, "401", "403", "421", "429"),
            [],
        ),
        "/openapi.json": ("This description for programs.", _responses(json_, {"type": "object"}, "429"), []),
        "/docs": ("This page.", _responses("text/html", _TEXT, "429"), []),
    }
    return {
        path: {"get": {"summary": summary, "responses": replies} | ({"parameters": query} if query else {})}
        for path, (summary, replies, query) in routes.items()
    }


def _responses(media: str, schema: dict[str, Any], *codes: str, example: Any = None) -> dict[str, Any]:
    problem = {"application/json": {"schema": _object(error=_TEXT)}}
    content = {media: {"schema": schema} | ({} if example is None else {"example": example})}
    errors: dict[str, Any] = {code: {"description": _ERRORS[code], "content": problem} for code in codes}
    return {"200": {"description": "Done", "content": content}} | errors


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


# ---------------------------------------------------------------------- for people

_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8">
<title>hushrec: the API of this server</title><meta name="viewport" content="width=device-width"><style>
body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem}
h2{font:600 1.1rem ui-monospace,monospace;border-top:1px solid #8885;padding-top:1rem}
table{border-collapse:collapse}td,th{text-align:left;vertical-align:top;padding:.2rem 1rem .2rem 0}
pre{background:#8881;padding:.6rem;overflow-x:auto}:root{color-scheme:light dark}</style>
"""


def page(document: dict[str, Any]) -> str:
    """Return the document as one HTML page."""
    info = document["info"]
    parts = [
        _HEAD,
        f"<h1>The API of this server</h1><p>hushrec {escape(info['version'])}. "
        f"{escape(info['description'])}"
        " A request is JSON with the fields below and no others; an error is"
        ' <code>{"error": "one sentence"}</code> with one of the codes. Where the server was started with'
        " <code>--tokens</code>, lists need the header <code>Authorization: Bearer TOKEN</code>.</p>",
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts += [f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(operation['summary'])}</p>"]
            parts += [
                _fields(path, operation),
                _example(path, method, operation),
                _replies(operation["responses"]),
            ]
    return "".join(parts)


def _fields(path: str, operation: dict[str, Any]) -> str:
    rows = [
        [field["name"], field["in"], field.get("description", "")]
        for field in operation.get("parameters", ())
    ]
    if "requestBody" in operation:
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        for name, schema in body["properties"].items():
            default = f"; {json.dumps(schema['default'])} by default" if "default" in schema else ""
            needed = "needed" if name in body["required"] else "optional"
            words = BODIES[path][name].words
            rows.append(
                [name, needed + default, f"{words[0].upper()}{words[1:]}. {schema.get('description', '')}"]
            )
    return _table(["field", "", "what it is"], rows)


def _example(path: str, method: str, operation: dict[str, Any]) -> str:
    reply = next(iter(operation["responses"]["200"]["content"].values())).get("example")
    lines = [f"curl HOST{path}"]
    if method == "post":
        body = operation["requestBody"]["content"]["application/json"]["example"]
        lines[0] += f" -d '{json.dumps(body)}'"
    lines += [] if reply is None else [json.dumps(reply, ensure_ascii=False)]
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def _replies(responses: dict[str, Any]) -> str:
    media = ", ".join(responses["200"]["content"])
    rows = [[code, media if code == "200" else each["description"]] for code, each in responses.items()]
    return _table(["code", "what it means"], rows)


def _table(head: list[str], rows: list[list[str]]) -> str:
    cells = ["".join(f"<td>{escape(cell)}" for cell in row) for row in rows]
    return f"<table><tr><th>{'<th>'.join(head)}<tr>{'<tr>'.join(cells)}</table>" if rows else ""
