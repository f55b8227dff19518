"""The form of a dossier: an in-toto statement in a DSSE envelope, and its sentences in two languages.

The formats: https://github.com/in-toto/attestation and https://github.com/secure-systems-lab/dsse.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://github.com/hushrec/hushrec/dossier/v1"
#: Files of words, one a language.
LANGUAGES = ("en", "de")


def canonical(envelope: dict[str, Any]) -> bytes:
    """Return JSON in its signed form: keys sorted, ASCII, floats as Python writes them."""
    text = json.dumps(envelope, sort_keys=True, indent=1, allow_nan=False)
    return text.encode("ascii") + b"\n"


def payload_of(facts: dict[str, Any]) -> bytes:
    model = facts["model"]
    subject = {"name": f"{model['name']}.hush", "digest": {"sha256": model["sha256"]}}
    return canonical(
        {
            "_type": STATEMENT_TYPE,
            "subject": [subject],
            "predicateType": PREDICATE_TYPE,
            "predicate": facts,
        }
    )


def signed_part(payload: bytes) -> bytes:
    """Return the bytes that are signed: the pre-authentication encoding of DSSE."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def decoded(text: str) -> bytes:
    """Return the bytes of a base64 text; ValueError for another spelling of them."""
    octets = base64.b64decode(text, validate=True)
    if encoded(octets) != text:
        raise ValueError("base64 that is written in another way")
    return octets


def encoded(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def facts_of(envelope: dict[str, Any]) -> dict[str, Any]:
    """Return the facts in an envelope; ValueError or KeyError where it holds no dossier."""
    payload = decoded(envelope["payload"])
    facts: dict[str, Any] = json.loads(payload)["predicate"]
    if payload_of(facts) != payload:
        raise ValueError("its payload is not written as certify writes it")
    return facts


def parsed(content: bytes) -> dict[str, Any]:
    """Return a file's envelope; ValueError for any other bytes."""
    envelope = json.loads(content)
    if not isinstance(envelope, dict) or canonical(envelope) != content:
        raise ValueError("it is not written as certify writes it")
    if set(envelope) != {"payload", "payloadType", "signatures"} or envelope["payloadType"] != PAYLOAD_TYPE:
        raise ValueError("it is another envelope")
    if len(envelope["signatures"]) != 1 or set(envelope["signatures"][0]) != {"keyid", "sig"}:
        raise ValueError("it has not one signature")
    return envelope


@cache
def file(name: str) -> str:
    return files("hushrec.dossier").joinpath(name).read_text("utf-8")


@cache
def words(language: str = "en") -> dict[str, Any]:
    if language not in LANGUAGES:
        raise ValueError("another language")
    loaded: dict[str, Any] = json.loads(file(f"words.{language}.json"))
    return loaded


def filled(texts: Iterable[str], gaps: dict[str, Any]) -> list[str]:
    return [text.format(**gaps) for text in texts]
