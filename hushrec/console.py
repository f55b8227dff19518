"""What the commands of all rooms share: NAME=VALUE arguments in, JSON out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import click

from hushrec.errors import InputError

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")


def settings(overrides: Iterable[str]) -> dict[str, Any]:
    """Hyper-parameters from ``--set NAME=VALUE``."""
    return {name: value_of(text) for name, text in pairs(overrides, "--set", "rank=16").items()}


def pairs(texts: Iterable[str], option: str, example: str) -> dict[str, str]:
    """NAME=VALUE texts as a dictionary of texts."""
    found = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise InputError(f"{option} {text!r} is not NAME=VALUE; write for example {option} {example}.")
        if name in found:
            raise InputError(f"{option} gives {name} twice; give it once.")
        found[name] = value
    return found


def print_json(payload: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    click.echo(json.dumps(plain(payload), allow_nan=False, ensure_ascii=False))


def value_of(text: str) -> Any:
    """A hyper-parameter as written: none, true, false, an integer, a number, else a word."""
    words: dict[str, Any] = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def plain(value: Any) -> Any:
    """JSON values: infinity is the string "inf", NaN is null, NumPy scalars are numbers, ids are text."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
