"""The one form in which a dossier is written, and its sentences, which lie beside the code."""

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any


def canonical(dossier: dict[str, Any]) -> bytes:
    """Return a dossier as it is signed and written: keys sorted, ASCII, floats as Python writes them."""
    text = json.dumps(dossier, sort_keys=True, indent=1, allow_nan=False)
    return text.encode("ascii") + b"\n"


def parsed(content: bytes) -> dict[str, Any]:
    """Inverse of `canonical`; ValueError for any other bytes, though they mean the same."""
    dossier = json.loads(content)
    if not isinstance(dossier, dict) or canonical(dossier) != content:
        raise ValueError("it is not written as certify writes it")
    return dossier


@cache
def file(name: str) -> str:
    """The text of a file of this room."""
    return files("hushrec.dossier").joinpath(name).read_text("utf-8")


def words() -> dict[str, Any]:
    """The sentences, with gaps for what differs."""
    found: dict[str, Any] = json.loads(file("words.json"))
    return found


def filled(texts: Iterable[str], gaps: dict[str, Any]) -> list[str]:
    """Sentences with their gaps filled."""
    return [text.format(**gaps) for text in texts]
