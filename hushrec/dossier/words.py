"""The sentences of dossiers, which lie beside the code."""

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any


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
