"""The canonical form of a dossier, and its sentences from words.json."""

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
    """Return the inverse of `canonical`; ValueError for any other bytes."""
    dossier = json.loads(content)
    if not isinstance(dossier, dict) or canonical(dossier) != content:
        raise ValueError("it is not written as certify writes it")
    return dossier


@cache
def file(name: str) -> str:
    """Return the text of a file of this package."""
    return files("hushrec.dossier").joinpath(name).read_text("utf-8")


def words() -> dict[str, Any]:
    """Return the sentences, with gaps."""
    found: dict[str, Any] = json.loads(file("words.json"))
    return found


def filled(texts: Iterable[str], gaps: dict[str, Any]) -> list[str]:
    """Return sentences with their gaps filled."""
    return [text.format(**gaps) for text in texts]
