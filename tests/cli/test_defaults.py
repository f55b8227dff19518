"""What a command takes where the command line is silent: flags are off, numbers are as written down here."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from typing import Any, get_args, get_type_hints

import pytest

from hushrec.cli.app import _COMMANDS, place
from hushrec.evaluation.metrics import DEFAULT_METRICS

NOTHING = inspect.Parameter.empty
LISTS, DATASET = {"k": 20}, {"dataset": "default"}
NUMBERS: dict[str, dict[str, Any]] = {
    "split": {"seed": 0},
    "train": {"seed": 0, "unit": "user", **DATASET},
    "evaluate": {"seed": 0, "resamples": 1000, "metrics": ",".join(DEFAULT_METRICS), **LISTS},
    "recommend": {"n": 10},
    "similar": {"n": 10},
    "plan": {"ratings_per_user": 50.0, "first_share": 0.5, "unit": "user", "max_ratings_per_user": 10_000},
    "compare": {"seed": 0, "holdout": 0.2, "draws": 1, **LISTS, **DATASET},
    "tune": {"seed": 0, "mean_runs": 10.0, "unit": "user", "model": "private-als", **DATASET},
    "serve": {"workers": 1, "host": "127.0.0.1", "port": 8000, "requests_per_second": 100.0}
    | {"body_bytes": 1_048_576, "connections": 2000},
    "papers serve-completion": {"wait": 5.0, "mask_rank": 10, "noise_sd": 100.0, "solver": "am", "rounds": 1}
    | {"host": "127.0.0.1", "port": 8765, "database": "completion.sqlite", "seed": 0},
    "season open": {"first_share": 0.5, "unit": "user", "gap": 0.0, **DATASET},
    "ledger open": {"unit": "user", **DATASET},
    "ledger show": {"dataset": None},
    **dict.fromkeys(("ledger close", "season show", "season close"), DATASET),
    **dict.fromkeys(("papers node submit", "papers node fetch"), {"patience": 30.0}),
    "papers audit-masked": {"step": 1.0},
    "audit distinguish": {"model": "private-als", "runs": 2000, "seed": 0, "unit": "user"},
    "audit canaries": {"model": "private-als", "n_canaries": 1000, "seed": 0, "unit": "user"},
    "audit membership": {"model": "private-als", "n_planted": 400, "draws": 1, "seed": 0},
}


def defaults(words: str) -> dict[str, Any]:
    """Of the command's own options, and of those that it shares with others."""
    module, name = place(words)
    command = getattr(import_module(module), name)
    hints, found = get_type_hints(command, include_extras=True), {}
    for option, parameter in inspect.signature(command).parameters.items():
        kind = next((each for each in (hints[option], *get_args(hints[option])) if is_dataclass(each)), None)
        if kind is None:
            found[option] = parameter.default
            continue
        given = None if parameter.default is NOTHING else parameter.default
        for field in fields(kind):
            found[field.name] = getattr(given, field.name) if given else field.default
    return {option: value for option, value in found.items() if value not in (NOTHING, MISSING)}


@pytest.mark.parametrize("words", _COMMANDS)
def test_what_a_command_takes_where_nothing_is_said(words: str) -> None:
    wanted, found = NUMBERS.get(words, {}), defaults(words)
    assert {option: found[option] for option in wanted} == wanted
    rest = [value for option, value in found.items() if option not in wanted]
    assert all(value is None or value is False or value == () for value in rest), found
