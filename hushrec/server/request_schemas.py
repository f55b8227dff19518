"""The fields of each request: one table checks requests and describes them in OpenAPI."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hushrec.errors import InputError

#: Most items of a list or prediction, ratings of a user, ids to choose among, and items of a basket.
MOST_LISTED, MOST_RATINGS, MOST_IDS, MOST_IN_BASKET = 1000, 10_000, 100_000, 100


@dataclass(frozen=True)
class Field:
    """A field of a request; its allowed values as text and as JSON Schema."""

    fits: Callable[[Any], bool]
    words: str
    schema: dict[str, Any]
    needed: bool = False

    @property
    def default(self) -> Any:
        return self.schema.get("default")


def _is_id(value: Any) -> bool:
    return type(value) in (str, int, float, bool)


def _are_ids(value: Any, most: int = MOST_IDS, least: int = 0) -> bool:
    return isinstance(value, list) and least <= len(value) <= most and all(map(_is_id, value))


def _are_ratings(value: Any) -> bool:
    """Whether these are ratings; NaN and lists are refused later, with the item's name."""
    if not isinstance(value, dict | list) or len(value) > MOST_RATINGS:
        return False
    if isinstance(value, dict):
        return not any(isinstance(rating, bool | str) for rating in value.values())
    return all(map(_is_rating, value))


def _is_rating(entry: Any) -> bool:
    if not isinstance(entry, list):
        return _is_id(entry)
    if len(entry) not in (2, 3) or not _is_id(entry[0]) or isinstance(entry[1], bool | str):
        return False
    return len(entry) == 2 or entry[2] is None or type(entry[2]) in (str, int, float)


_ID = {"type": ["string", "number", "boolean"]}


def _ids(most: int, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": _ID, "maxItems": most} | more


_RATING = {"type": ["number", "null"]}
_PAIR = {"type": "array", "prefixItems": [_ID, _RATING], "minItems": 2, "maxItems": 2}
_TIMED = {
    "type": "array",
    "prefixItems": [_ID, _RATING, {"type": ["number", "string", "null"]}],
    "minItems": 3,
    "maxItems": 3,
}

_RATINGS = Field(
    _are_ratings,
    "an object from item to rating, a number or null (a purchase without stars); a list of [item, rating] or"
    f" [item, rating, time]; or a list of liked items where the model is of likes; {MOST_RATINGS:,} at most",
    {
        "oneOf": [
            {"type": "object", "additionalProperties": _RATING, "maxProperties": MOST_RATINGS},
            {"type": "array", "items": {"oneOf": [_ID, _PAIR, _TIMED]}, "maxItems": MOST_RATINGS},
        ],
        "description": "Ratings of one user, all usable. A rating of null is a purchase without stars.",
    },
    needed=True,
)
_N = Field(
    lambda value: type(value) is int and 1 <= value <= MOST_LISTED,
    f"an integer from 1 to {MOST_LISTED}",
    {"type": "integer", "minimum": 1, "maximum": MOST_LISTED, "default": 10},
)


def _of_type(kind: type, words: str, description: str, **schema: Any) -> Field:
    names = {str: "string", bool: "boolean", dict: "object"}
    schema = {"type": names[kind], "description": description} | schema
    return Field(lambda value: isinstance(value, kind), words, schema)


_MODEL = _of_type(str, "the name of a model", "The server's first by default.")
_SEEN = _of_type(bool, "true or false", "Leave out the items that are rated in the request.", default=True)
_SKIP = _of_type(
    bool,
    "true or false",
    "Ignore ratings of items that the catalogue lacks, such as new ones; else they are refused.",
    default=False,
)
_NEXT = _of_type(bool, "true or false", "Later ratings of a list count more.", default=False)
_ONLY = Field(
    _are_ids,
    f"a list of item ids, {MOST_IDS:,} at most",
    _ids(
        MOST_IDS,
        description="Recommend only these items. Ids that the catalogue lacks are skipped.",
    ),
)
RULES = {
    "where": _of_type(
        str,
        'a condition such as "in_stock and price < 50"',
        "Recommend only items for which it is true (--attributes).",
    ),
    "at_most": _of_type(
        dict,
        "an object from column to number",
        "Largest number of items that share a value of the column.",
        additionalProperties={"type": "integer", "minimum": 1},
    ),
    "boost": _of_type(
        dict,
        "an object from condition to factor",
        "Items of which the condition is true count for more.",
        additionalProperties={"type": "number", "exclusiveMinimum": 0},
    ),
}
_ITEM = Field(_is_id, "an item id", _ID, needed=True)

BODIES: dict[str, dict[str, Field]] = {
    "/v1/recommend": {
        "ratings": _RATINGS,
        "skip_unknown": _SKIP,
        "n": _N,
        "next": _NEXT,
        "exclude_seen": _SEEN,
        "only": _ONLY,
        **RULES,
        "model": _MODEL,
    },
    "/v1/predict": {
        "ratings": _RATINGS,
        "skip_unknown": _SKIP,
        "items": Field(
            lambda value: _are_ids(value, MOST_LISTED),
            f"a list of item ids, {MOST_LISTED:,} at most",
            _ids(MOST_LISTED),
            needed=True,
        ),
        "model": _MODEL,
    },
    "/v1/similar": {
        "item": Field(
            lambda value: _is_id(value) or _are_ids(value, MOST_IN_BASKET, 1),
            f"an item id, or a list of them, {MOST_IN_BASKET} at most",
            {
                "oneOf": [_ID, _ids(MOST_IN_BASKET, minItems=1)],
                "description": "Items are ranked as for a user who likes only these.",
            },
            needed=True,
        ),
        "n": _N,
        **RULES,
        "model": _MODEL,
    },
    "/v1/explain": {"ratings": _RATINGS, "skip_unknown": _SKIP, "item": _ITEM, "model": _MODEL},
}


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise InputError(
            f"The body of this request names {twice[:50]!r} twice; name each field and item once."
        )
    return fields


_DECODER = json.JSONDecoder(object_pairs_hook=_named_once)


def body_of(path: str, raw: bytes) -> dict[str, Any]:
    """Return the fields of a request; None for a missing one."""
    fields = BODIES[path]
    try:
        body = _DECODER.decode(raw.decode(json.detect_encoding(raw), "surrogatepass"))
    except InputError:
        raise
    except (ValueError, RecursionError):
        raise InputError("The body of this request is not JSON; send an object.") from None
    if not isinstance(body, dict):
        raise InputError(f"The body of this request is an object with the fields {', '.join(fields)}.")
    if unknown := [name for name in body if name not in fields]:
        raise InputError(f"There is no field {unknown[0][:50]!r} here; there are {', '.join(fields)}.")
    checked = {}
    for name, field in fields.items():
        if name not in body and field.needed:
            raise InputError(f"The field {name} is missing; it is {field.words}.")
        value = body.get(name, field.default)
        if name in body and not field.fits(value):
            raise InputError(f"The field {name} is {field.words}.")
        checked[name] = value
    return checked
