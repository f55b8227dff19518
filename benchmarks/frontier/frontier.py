"""The comparison itself: which runs it takes, and its choice of settings."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_implicit import PUBLISHED
from benchmarks.frontier.cells import DELTA, Cell, Results
from benchmarks.frontier.data import DATASETS, split
from benchmarks.frontier.methods import VALIDATION, methods
from hushrec.errors import InputError
from hushrec.evaluation.tuning import grid
from hushrec.privacy import Budget

EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
#: Settings that the part "tune" chose, by data set, method and epsilon.
CHOSEN = Path(__file__).with_name("chosen.json")


@dataclass(frozen=True)
class Form:
    """Extent of a run: epsilons and draws."""

    epsilons: tuple[float, ...]
    draws: int


def cells(name: str, form: Form) -> list[Cell]:
    """All runs of a data set; tuned methods only where the tuning was done."""
    parts, planned = split(name), []
    for method_name, method in methods(name).items():
        if parts.train.n_items > method.largest:
            continue
        epsilons = (math.inf,) if method.role == "reference" else (*form.epsilons, math.inf)
        for epsilon in epsilons:
            settings = chosen(name, method_name, epsilon)
            if method.role == "tuned" and f"{epsilon:g}" not in tuned_at(name):
                continue
            if method.settings == VALIDATION and settings is None:
                continue
            estimator = method.make(Budget(epsilon, DELTA), name, parts, settings or {})
            estimator.plan(Budget(epsilon, DELTA), parts.train.domain)
            draws = form.draws * (DATASETS[name].draws if method.role in ("ours", "baseline") else 1)
            draws = draws if math.isfinite(epsilon) and method_name != "user-mean" else 1
            planned += [
                Cell("frontier", name, method_name, epsilon, draw, estimator) for draw in range(draws)
            ]
    return planned


# ---------------------------------------------------------------------- settings chosen on validation

#: Settings of Algorithm 1 that are tried, for ratings and for likes.
_PUBLISHED = grid({"rank": [1, 2, 4], "user_norm": [0.05, 0.1, 0.2], "clip": [0.4, 0.6, 0.9]}) + grid(
    {"rank": [5], "iterations": [3, 6], "user_norm": [0.1, 0.2, 0.35], "clip": [0.6]}
)
_PUBLISHED_SYNTHETIC = grid(
    {
        "rank": [5],
        "user_norm": [0.0625, 0.125],
        "clip": [0.25, 0.375],
        "max_ratings_per_user": [50, 150],
        "regularization": [10.0, 40.0],
    }
)
#: What `python -m benchmarks.bench_implicit --tune 20` found, for all data sets and epsilons.
_PUBLISHED_ITEMS = [settings for found in PUBLISHED.values() for settings in found.values()]
_ALS = [{}, *grid({"rank": [8, 32], "regularization": [3.0, 10.0, 30.0, 100.0]})]
_ALS_ITEMS = grid(
    {"rank": [16, 32, 64], "regularization": [5.0, 20.0, 60.0], "unobserved_weight": [0.05, 0.2]}
)
#: What is tried around the planned settings: factors of a setting, or its values.
_AROUND: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("bias_clip", "*", (0.7, 1.4)),
    ("factor_clip", "*", (0.5, 2.0)),
    ("factor_clip_decay", "=", (0.7, 1.0)),
    ("factor_prior", "*", (0.6, 1.6)),
    ("user_variance", "*", (0.5, 2.0)),
    ("user_norm", "*", (0.7, 1.4)),
    ("weights_share", "*", (0.5, 2.0)),
    ("bias_share", "*", (0.5, 2.0)),
    ("weight_exponent", "=", (0.0, -0.5)),
    ("iterations", "=", (0, 2, 4, 6)),
    ("bias_rounds", "=", (2, 6)),
    ("rank", "=", (2, 4, 6, 8, 12, 16)),
    ("start", "=", ("random", "spectral")),
)


def tuned_methods(name: str) -> tuple[str, ...]:
    """Methods whose settings are chosen on validation."""
    both = ("dpals", "als")
    return (*both, "private-als-tuned") if DATASETS[name].kind == "ratings" else both


def tuning_cells(name: str, form: Form, results: Results) -> list[Cell]:
    """Runs on the validation part: every candidate, and after them the best changes together."""
    parts, planned = split(name), []
    for method_name in tuned_methods(name):
        method = methods(name)[method_name]
        epsilons = (math.inf,) if method.role == "reference" else (*form.epsilons, math.inf)
        for epsilon in epsilons:
            budget = Budget(epsilon, DELTA)
            base = method.make(budget, name, parts, {})
            tried = candidates(name, method_name, base)
            if method.role == "tuned":
                tried += _together(_scores(name, method_name, epsilon, results))
            for settings in tried:
                try:
                    estimator = method.make(budget, name, parts, settings)
                    estimator.plan(budget, parts.train.domain)
                except InputError:  # a rank without the features it needs, and the like
                    continue
                part = f"tune {json.dumps(settings)}"
                planned.append(Cell(part, name, method_name, epsilon, 0, estimator, validation=True))
    return planned


def _together(scores: dict[str, float]) -> list[dict[str, Any]]:
    """The best two, three, ... changes of different settings that each help, in one."""
    if "{}" not in scores:
        return []
    helpful = [key for key in sorted(scores, key=lambda key: scores[key]) if scores[key] < scores["{}"]]
    merged: dict[str, Any] = {}
    combinations = []
    for key in helpful:
        change = json.loads(key)
        if len(change) == 1 and not set(change) & set(merged):
            merged = {**merged, **change}
            if 2 <= len(merged) <= 6:
                combinations.append(merged)
    return combinations


def candidates(name: str, method_name: str, base: Any) -> list[dict[str, Any]]:
    """Settings that are tried."""
    if method_name == "als":
        return _ALS if DATASETS[name].kind == "ratings" else _ALS_ITEMS
    if DATASETS[name].kind == "items":
        return _PUBLISHED_ITEMS
    if method_name == "dpals":
        return _PUBLISHED_SYNTHETIC if name == "synthetic" else _PUBLISHED
    around: list[dict[str, Any]] = [{}]
    for setting, kind, values in _AROUND:
        now = getattr(base, setting)
        tried = [now * value if kind == "*" else value for value in values]
        around += [{setting: value} for value in tried if value != now]
    return around


def _scores(name: str, method_name: str, epsilon: float, results: Results) -> dict[str, float]:
    """Validation figure of every candidate that was run, the smaller the better."""
    metric = DATASETS[name].metrics[0]
    sign = 1.0 if metric.startswith("rmse") else -1.0
    found: dict[str, list[float]] = {}
    for row in results.rows.values():
        here = (row["data"], row["method"], row["epsilon"]) == (name, method_name, epsilon)
        if here and row["part"].startswith("tune "):
            found.setdefault(row["part"][5:], []).append(sign * row[metric])
    return {settings: float(np.mean(values)) for settings, values in found.items()}


def choose(names: Sequence[str], form: Form, results: Results) -> None:
    """Write the settings with the best validation figure to ``CHOSEN``."""
    kept = json.loads(CHOSEN.read_text()) if CHOSEN.exists() else {}
    for name in names:
        for method_name in tuned_methods(name):
            for epsilon in (*form.epsilons, math.inf):
                scores = _scores(name, method_name, epsilon, results)
                if scores:
                    best = min(scores, key=lambda settings: scores[settings])
                    kept.setdefault(name, {}).setdefault(method_name, {})[f"{epsilon:g}"] = json.loads(best)
    CHOSEN.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def tuned_at(name: str) -> list[str]:
    """Epsilons at which private ALS was tuned on a data set."""
    kept = json.loads(CHOSEN.read_text()) if CHOSEN.exists() else {}
    return list(kept.get(name, {}).get("private-als-tuned", {}))


def chosen(name: str, method_name: str, epsilon: float) -> dict[str, Any] | None:
    """Settings that the tuning chose at the nearest epsilon, if it was done."""
    kept = json.loads(CHOSEN.read_text()) if CHOSEN.exists() else {}
    known: dict[str, dict[str, Any]] = kept.get(name, {}).get(method_name, {})
    if not known:
        return None
    return known[min(known, key=lambda each: _apart(float(each), epsilon))]


def _apart(one: float, other: float) -> float:
    """Distance of two epsilons on a logarithmic axis, that without privacy being far off."""
    return abs(math.log(min(one, 1e6)) - math.log(min(other, 1e6)))
