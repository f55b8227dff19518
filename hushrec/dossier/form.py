"""The form of a dossier: an in-toto statement in a DSSE envelope, and its sentences in two languages.

The formats: https://github.com/in-toto/attestation and https://github.com/secure-systems-lab/dsse.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://github.com/hushrec/hushrec/dossier/v1"
#: Files of words, one a language.
LANGUAGES = ("en", "de")
_TO_SIGN = b"DSSEv1 "
#: SHA-256, in hexadecimal.
HASH = re.compile("[0-9a-f]{64}")


class Wrong(ValueError):
    """A dossier that is not as certify writes it, in a sentence for its reader."""


class Either(NamedTuple):
    """Shapes of which a value has one."""

    shapes: tuple[Any, ...]


def _or_none(shape: Any) -> Either:
    return Either((shape, None))


_BUDGET = {"epsilon": float, "delta": float, "failure": float}
_PROMISE = {**_BUDGET, "unit": str, "relation": str}
_TEXT_OR_NONE, _NUMBER_OR_NONE = _or_none(str), _or_none(float)
_SEASON = {
    "epsilon": float, "delta": float, "unit": str, "relation": str,
    "name": str, "first": float, "decay": float, "gap": float,
    "begun": int, "closed": bool, "training_mu_squared": float,
}  # fmt: skip
_CHARGE = (
    *(int, str, str, str, str, str, float, float, _NUMBER_OR_NONE, float),
    *(str, str, _TEXT_OR_NONE, _or_none(int), HASH, HASH),
)
_MODEL = {
    "name": str, "settings": dict, "sha256": HASH, "bytes": int, "items": int, "likes": bool,
    "rating_range": (float, float), "ratings_per_user": int, "trained_by": str, "public": [str],
    "notes": [str], "public_ratings": bool, "item_features": bool, "exact_noise": bool,
    "exact_arithmetic": bool, "epsilon_of_both_servers": _NUMBER_OR_NONE,
    "week": _or_none((str, int)),
}  # fmt: skip
_BOOK = {
    "dataset": str, "unit": str, "relation": str, "closed": bool, "charges": [_CHARGE], "runs": [str],
    "head": {"count": int, "hash": HASH}, "budget": _or_none(_BUDGET), "seasons": [_SEASON],
}  # fmt: skip
_LEVEL = {
    **_BUDGET,
    "of": str, "mu": _NUMBER_OR_NONE, "odds": _NUMBER_OR_NONE,
    **dict.fromkeys(("belief", "found"), ((float, float), (float, float))),
}  # fmt: skip
_ATTACK = {"attack": str, "users": int, "measure": str, "reached": float, "claim": float}
_ATTACKS = (
    {"attack": str, "not_run": str},
    {**_ATTACK, "mu_reached": float, "mu_claim": float, "wrong_with_chance": float},
    {**_ATTACK, "margin": float, "without_privacy": float},
)
#: Types of all parts of a dossier: a dictionary has these keys, a tuple is a list of this length.
SHAPE = {
    "language": Either(LANGUAGES), "made": str, "model": _MODEL, "promise": _PROMISE, "ledger": _BOOK,
    "declared": {
        "controller": str,
        **dict.fromkeys(("purpose", "period", "contact", "review"), _TEXT_OR_NONE),
    },
    "consent": _or_none({"text": HASH, "list": HASH}),
    "learned": [_LEVEL],
    "attacks": [Either(_ATTACKS)],
    "code": {"version": str, "sha256": HASH},
    "page": HASH,
    "not_covered": [str], "criteria": [(str, str, str)], "deletion": [str], "law": [(str, str)],
}  # fmt: skip


def misfit(value: Any, shape: Any, at: str) -> str | None:
    """Return the place of the first value of another type than `shape` says, or None."""
    if isinstance(shape, Either):
        return None if any(misfit(value, each, at) is None for each in shape.shapes) else at
    if isinstance(shape, dict):
        if type(value) is not dict or value.keys() != shape.keys():
            return at
        pairs = [(value[key], shape[key], f"{at}, {key}") for key in shape]
    elif isinstance(shape, list | tuple):
        if type(value) is not list or (isinstance(shape, tuple) and len(value) != len(shape)):
            return at
        shapes = shape if isinstance(shape, tuple) else shape * len(value)
        pairs = [
            (one, each, f"{at}, {n}") for n, (one, each) in enumerate(zip(value, shapes, strict=True), 1)
        ]
    elif isinstance(shape, re.Pattern):
        return None if type(value) is str and shape.fullmatch(value) else at
    else:
        return None if (type(value) is shape if isinstance(shape, type) else value == shape) else at
    return next((place for each in pairs if (place := misfit(*each))), None)


def canonical(envelope: dict[str, Any]) -> bytes:
    """Return JSON in its signed form: keys sorted, ASCII, floats as Python writes them."""
    text = json.dumps(envelope, sort_keys=True, indent=1, allow_nan=False)
    return text.encode("ascii") + b"\n"


def payload_of(facts: dict[str, Any]) -> bytes:
    digests = {f"{facts['model']['name']}.hush": facts["model"]["sha256"], "dossier.html": facts["page"]}
    return canonical(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()],
            "predicateType": PREDICATE_TYPE,
            "predicate": facts,
        }
    )


def signed_part(payload: bytes) -> bytes:
    """Return the bytes that are signed: the pre-authentication encoding of DSSE."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def decoded(text: str) -> bytes:
    """Return the bytes of a base64 text; Wrong for another spelling of them."""
    octets = base64.b64decode(text, validate=True)
    if encoded(octets) != text:
        raise Wrong("base64 that is written in another way")
    return octets


def encoded(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def facts_of(envelope: dict[str, Any]) -> dict[str, Any]:
    """Return the facts in an envelope; Wrong or KeyError where it holds no dossier."""
    payload = decoded(envelope["payload"])
    facts: dict[str, Any] = json.loads(payload)["predicate"]
    if payload_of(facts) != payload:
        raise Wrong("its payload is not written as certify writes it")
    return facts


def parsed(content: bytes) -> dict[str, Any]:
    """Return the envelope of a signed file, or of the bytes to sign; Wrong for any other bytes."""
    if content.startswith(_TO_SIGN):
        payload = content[content.find(b"{") :]
        if signed_part(payload) != content:
            raise Wrong("it is not written as certify writes it")
        return {"payload": encoded(payload), "payloadType": PAYLOAD_TYPE, "signatures": []}
    envelope = json.loads(content)
    if not isinstance(envelope, dict) or canonical(envelope) != content:
        raise Wrong("it is not written as certify writes it")
    if set(envelope) != {"payload", "payloadType", "signatures"} or envelope["payloadType"] != PAYLOAD_TYPE:
        raise Wrong("it is another envelope")
    if misfit(envelope["signatures"], ({"keyid": HASH, "sig": str},), "") is not None:
        raise Wrong("it has not one signature by an Ed25519 key")
    return envelope


@cache
def file(name: str) -> str:
    return files("hushrec.dossier").joinpath(name).read_text("utf-8")


@cache
def words(language: str = "en") -> dict[str, Any]:
    if language not in LANGUAGES:
        raise Wrong("another language")
    loaded: dict[str, Any] = json.loads(file(f"words.{language}.json"))
    return loaded


def filled(texts: Iterable[str], gaps: dict[str, Any]) -> list[str]:
    return [text.format(**gaps) for text in texts]
