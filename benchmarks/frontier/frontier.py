"""The comparison itself: which runs it takes, and its choice of settings."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.frontier.cells import Cell
from benchmarks.frontier.data import DATASETS, split
from benchmarks.frontier.methods import VALIDATION, methods
from benchmarks.harness import DELTA
from hushrec.privacy import Budget

EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
#: Settings chosen on validation ratings, by data set, method and epsilon.
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
