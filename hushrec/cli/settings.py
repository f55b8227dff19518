"""``hushrec settings``."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING
from typing import Any

from docstring_parser import DocstringStyle, parse

from hushrec.checks import Settings, parts_of, setting_fields, settings_of
from hushrec.cli import output
from hushrec.cli.options import Json
from hushrec.cli.output_model import plain, summary
from hushrec.data import Domain
from hushrec.privacy import Budget
from hushrec.progress import width
from hushrec.registry import ESTIMATORS, best
from hushrec.training.named import known

#: Numbers of users to plan a model for, to find the settings that depend on them.
_TRIED = (1, 100, 10_000, 1_000_000)


def settings(model: str | None = None, /, *, tuning: bool = False, as_json: Json = False) -> None:
    """List all models, or the settings of MODEL: --set NAME=VALUE changes one in a training.

      hushrec settings
      hushrec settings both
      hushrec train ratings.csv ... --model both --set ratings.rank=8

    Parameters
    ----------
    model
        A model's name.
    tuning
        Also list the settings that benchmarks chose.
    """
    if model is None:
        models = {name: summary(cls) for name, cls in ESTIMATORS.items()}
        listing: dict[bool, list[str]] = {False: [], True: []}
        for name, cls in ESTIMATORS.items():
            of_paper = cls.__module__.startswith("hushrec.papers.")
            listing[of_paper].append(f"{name:<27} {_brief(models[name], 52)}")
        papers = "", "Models of papers, to compare with:", *listing[True]
        told = *listing[False], *papers, "", "Settings of one: hushrec settings MODEL"
        output.result(as_json, {"models": models}, *told)
        return
    listed = list(_listed(known(model), "", tuning))
    lines = []
    for setting in listed:
        first = f"{setting['name']:<22}  {setting['default']:<8}  "
        about = setting["about"] if tuning else _brief(setting["about"], 85)
        lines += textwrap.wrap(about, width(), initial_indent=first, subsequent_indent=" " * 34) or [first]
    more = "" if tuning else " --tuning also lists tuned settings, with full texts."
    example = listed[0]["name"] if listed else "NAME"
    output.result(
        as_json,
        {"model": model, "settings": listed},
        f"{model}: {summary(known(model))}",
        "",
        *lines,
        *output.paragraph(f"Change one in a training: --set {example}=VALUE.{more}"),
    )


def _listed(cls: Any, root: str, tuning: bool) -> Iterator[dict[str, Any]]:
    planned, layer = _planned(cls), getattr(cls, "tuning", None)
    layers: list[tuple[Any, Any]] = [(cls, None)]
    if tuning and isinstance(layer, Settings):
        layers.append((type(layer), layer))
    for owner, values in layers:
        texts = _texts(owner)
        for field in setting_fields(owner):
            if field.name in ("n_users", "tuning") or field.default_factory is not MISSING:
                continue
            value = field.default if values is None else getattr(values, field.name)
            default = (
                "planned" if field.name in planned else "required" if value is MISSING else str(value).lower()
            )
            yield {"name": root + field.name, "default": default, "about": texts.get(field.name, "")}
    names = {field.name for field in setting_fields(cls)}
    for part in parts_of(cls):
        inner = _listed(known(best(part, True)), f"{root}{part}.", tuning)
        yield from (setting for setting in inner if setting["name"].rpartition(".")[2] not in names)


def _texts(cls: type[Any]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for layer in cls.__mro__:
        for entry in parse(layer.__doc__ or "", DocstringStyle.NUMPYDOC).params:
            if not (entry.description or "As in").startswith("As in"):
                for name in entry.arg_name.split(","):
                    texts.setdefault(name.strip(), plain(entry.description or ""))
    return texts


def _planned(cls: Any) -> set[str]:
    if not cls.uses_user_count:
        return set()
    budget, domain = Budget(1.0, 1e-6), Domain(tuple(range(1000)), rating_range=(1, 5))
    plans = [settings_of(cls.planned(budget, domain, n_users)) for n_users in _TRIED]
    layers = (cls, getattr(cls, "tuning", cls))
    usual = {field.name: field.default for layer in layers for field in setting_fields(layer)}
    return {name for name, value in usual.items() if any(plan.get(name, value) != value for plan in plans)}


def _brief(text: str, width: int) -> str:
    """Cut a text at the end of a sentence."""
    if len(text) <= width:
        return text.rstrip(".")
    ends = [match.start() for match in re.finditer(r"[:;] |\. (?=[A-Z])", text) if match.start() <= width]
    return text[: ends[-1]] if ends else textwrap.shorten(text, width, placeholder="...")
