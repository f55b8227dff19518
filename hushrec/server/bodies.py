"""What may be asked of a server, as JSON: the same table reads a request and describes it in OpenAPI."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hushrec import __version__
from hushrec.errors import InputError

#: Items that one request may ask for.
MOST_LISTED = 1000


@dataclass(frozen=True)
class Field:
    """One field of a request: what it may be, in words and in JSON Schema."""

    fits: Callable[[Any], bool]
    words: str
    schema: dict[str, Any]
    default: Any = None
    needed: bool = False


def _is_id(value: Any) -> bool:
    return type(value) in (str, int, float, bool)


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_id, value))


def _are_ratings(value: Any) -> bool:
    if isinstance(value, dict):
        return True
    return isinstance(value, list) and all(
        _is_id(entry) or (isinstance(entry, list) and len(entry) == 2 and _is_id(entry[0])) for entry in value
    )


_ID = {"type": ["string", "number", "boolean"]}
_IDS = {"type": "array", "items": _ID}
_PAIR = {"type": "array", "prefixItems": [_ID, {"type": "number"}], "minItems": 2, "maxItems": 2}

_RATINGS = Field(
    _are_ratings,
    "an object from item to rating, a list of [item, rating], or of liked items where the model is of likes",
    {
        "oneOf": [
            {"type": "object", "additionalProperties": {"type": "number"}},
            {"type": "array", "items": {"oneOf": [_ID, _PAIR]}},
        ],
        "description": "One user's ratings: an object from item to rating, pairs, or the ids of liked items.",
    },
    needed=True,
)
_N = Field(
    lambda value: type(value) is int and 1 <= value <= MOST_LISTED,
    f"an integer from 1 to {MOST_LISTED}",
    {"type": "integer", "minimum": 1, "maximum": MOST_LISTED, "default": 10},
    default=10,
)
_MODEL = Field(
    lambda value: isinstance(value, str),
    "the name of a model",
    {"type": "string", "description": "The name of a model; the server's first by default."},
)
_SEEN = Field(
    lambda value: isinstance(value, bool),
    "true or false",
    {"type": "boolean", "default": True, "description": "Leave out the items that are rated in the request."},
    default=True,
)
_ONLY = Field(
    _are_ids, "a list of item ids", _IDS | {"description": "Recommend among these only; all by default."}
)

#: Fields of every request by path.
BODIES: dict[str, dict[str, Field]] = {
    "/v1/recommend": {"ratings": _RATINGS, "n": _N, "exclude_seen": _SEEN, "only": _ONLY, "model": _MODEL},
    "/v1/predict": {
        "ratings": _RATINGS,
        "items": Field(_are_ids, "a list of item ids", _IDS, needed=True),
        "model": _MODEL,
    },
    "/v1/similar": {"item": Field(_is_id, "an item id", _ID, needed=True), "n": _N, "model": _MODEL},
}


def body_of(path: str, raw: bytes) -> dict[str, Any]:
    """The fields of a request, or a refusal that says what is wrong; None where one is left out."""
    fields = BODIES[path]
    try:
        given = json.loads(raw)
    except (ValueError, RecursionError):
        raise InputError("The body of this request is no JSON; send an object.") from None
    if not isinstance(given, dict):
        raise InputError(f"The body of this request is an object with the fields {', '.join(fields)}.")
    if unknown := [name for name in given if name not in fields]:
        raise InputError(f"There is no field {unknown[0][:50]!r} here; there are {', '.join(fields)}.")
    found = {}
    for name, wanted in fields.items():
        if name not in given and wanted.needed:
            raise InputError(f"The field {name} is missing; it is {wanted.words}.")
        value = given.get(name, wanted.default)
        if name in given and not wanted.fits(value):
            raise InputError(f"The field {name} is {wanted.words}.")
        found[name] = value
    return found


def openapi() -> dict[str, Any]:
    """The OpenAPI document of the server."""
    text = {"type": "string"}
    scored = _object(items=_array(_object(item=text, score={"type": "number"})), model=text, digest=text)
    answers = {
        "/v1/recommend": (
            "The best items for one user, from the ratings in the request, which are not kept",
            scored,
        ),
        "/v1/predict": ("Predicted scores of some items for one user", scored),
        "/v1/similar": ("Items that the same people like", scored),
    }
    paths: dict[str, Any] = {}
    for path, (summary, schema) in answers.items():
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
                "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
                "responses": _responses(schema, "400", "401", "404", "411", "413", "429"),
                "security": [{}, {"bearer": []}],
            }
        }
    named = [{"name": "model", "in": "query", "schema": text}]
    privacy = _responses({"type": "object"}, "404", "429")
    paths["/v1/privacy"] = {
        "get": {"summary": "The privacy statement of a model", "parameters": named, "responses": privacy}
    }
    model = _object(name=text, digest=text, bytes={"type": "integer"}, file=text, by_digest=text)
    for path, summary, schema in (
        ("/v1/models", "The models, and where their files are", _object(models=_array(model))),
        ("/healthz", "Whether the server serves", _object(status=text)),
    ):
        paths[path] = {"get": {"summary": summary, "responses": _responses(schema, "429")}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "hushrec", "version": __version__, "description": "Nothing of a request is kept."},
        "paths": paths,
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }


def _responses(schema: dict[str, Any], *codes: str) -> dict[str, Any]:
    problem = {"application/json": {"schema": _object(error={"type": "string"})}}
    found: dict[str, Any] = {code: {"description": "Refused", "content": problem} for code in codes}
    return {"200": {"description": "Done", "content": {"application/json": {"schema": schema}}}} | found


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}
