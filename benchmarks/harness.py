"""Shared by benchmarks: toy sizes, real tables, stored rows with their settings, and a line for each target.

TOY=1 in the environment, as `make smoke` sets it, makes every benchmark run its own code at toy size.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hushrec.checks import settings_of
from hushrec.data import Domain, Ratings, split_ratings, strong_generalization
from hushrec.evaluation import evaluate
from hushrec.privacy import Accountant, Budget
from hushrec.serving.model import Model
from hushrec.training.named import train

ROOT = Path(__file__).parents[1]
STORED = ROOT / "docs" / "data"
OUTPUT = ROOT / "bench-output"
TOY = os.environ.get("TOY") == "1"
DELTA = 1e-5
#: File and rating range of each real table; None where all rows are likes.
TABLES: dict[str, tuple[str, tuple[float, float] | None]] = {
    "coat": ("small/coat.train", (1, 5)),
    "flixster": ("small/flixster", (0.5, 5)),
    "restaurant": ("restaurant", (0, 2)),
    "ml-100k": ("ml-100k", (1, 5)),
    "yahoo-r3": ("yahoo-r3.train", (1, 5)),
    "jester": ("jester-1", (-10, 10)),
    "ml-1m": ("ml-1m", (1, 5)),
    "ml-latest-small": ("wide/ml-latest-small", (0.5, 5)),
    "book-crossing": ("wide/book-crossing", (1, 10)),
    "filmtrust": ("wide/filmtrust-part", (0.5, 4)),
    "retailrocket": ("wide/retailrocket-views", None),
}


def single_thread() -> None:
    """Use one thread in this process; call it before anything is computed."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def folder() -> Path | None:
    """Return the folder of the real ratings, which HUSHREC_DATA names."""
    named = os.environ.get("HUSHREC_DATA")
    return Path(named) if named else None


def there(name: str) -> bool:
    """Check that a real table exists; print if it does not."""
    found = folder() is not None and (folder() / f"{TABLES[name][0]}.parquet").exists()  # type: ignore[operator]
    if not found:
        print(f"{name} skipped: HUSHREC_DATA names no folder that holds it.")
    return found


@cache
def table(name: str) -> Ratings:
    """Read a real table over the items in its file."""
    file, rating_range = TABLES[name]
    path = folder() / f"{file}.parquet"  # type: ignore[operator]
    items = sorted(pc.unique(pq.read_table(path, columns=["item"])["item"]).to_pylist())
    domain = Domain(items, likes=True) if rating_range is None else Domain(items, rating_range=rating_range)
    return Ratings.from_any(path, domain)


def rmse(model: Any, history: Ratings, target: Ratings) -> float:
    """Return the root mean squared error over all ratings of a part."""
    return float(np.sqrt(np.mean((model.predict_pairs(history, target) - target.matrix.data) ** 2)))


class Task(NamedTuple):
    """Rows to train on, and a figure of a model."""

    train: Ratings
    figure: Callable[[Model], float]


def of_errors(ratings: Ratings) -> Task:
    """RMSE on the 80/10/10 split by hashes, users folded in from all other ratings."""
    part, valid, test = split_ratings(ratings, (0.8, 0.1, 0.1), seed=0)
    return Task(part, lambda model: rmse(model, part.union(valid), test))


def of_lists(ratings: Ratings) -> Task:
    """Recall@20 of a tenth of the users, who do not train: folded in from 80% of their ratings of 4 and 5."""
    others, liked = strong_generalization(ratings, 0.1, seed=0).train, ratings.liked(4.0).rated()
    parts = strong_generalization(liked, 0.1, seed=0)

    def recall(model: Model) -> float:
        found = evaluate(model, parts.fold_in, parts.target, metrics=["capped-recall"], resamples=0)
        return found["capped-recall@20"].value

    return Task(others, recall)


def figures(name: str, epsilon: float, task: Task, draws: int) -> list[float]:
    """Train a model by its name, once for each draw of noise; the number of users is declared."""
    n_users = task.train.n_users
    found = []
    for draw in range(draws):
        accountant = Accountant(Budget(epsilon, DELTA), data_is_public=True)
        found.append(task.figure(train(name, task.train, accountant, n_users=n_users, seed=draw)))
    return found


class Rows:
    """Stored rows of a benchmark: JSON lines, a row for each cell and settings it was made with.

    A cell is a mapping that names the measurement, and ``settings``, the estimator with all its settings.
    """

    def __init__(self, name: str) -> None:
        self.path = STORED / name
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.all = [json.loads(line) for line in lines]

    def find(self, cell: dict[str, Any]) -> dict[str, Any] | None:
        """Return the row of a cell, if there is one with these settings."""
        return next((row for row in self.all if all(row.get(key) == cell[key] for key in cell)), None)

    def add(self, row: dict[str, Any]) -> None:
        """Append a row, here and in the file."""
        self.all.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def sample(self, count: int, seed: int = 2026) -> list[dict[str, Any]]:
        """Choose stored rows to make again."""
        count = min(1 if TOY else count, len(self.all))
        return [
            self.all[at] for at in np.random.default_rng(seed).choice(len(self.all), count, replace=False)
        ]


def settings(estimator: Any) -> str:
    """Describe an estimator with all its settings, as stored rows do."""
    described = getattr(estimator, "described", None) or settings_of(estimator)
    return json.dumps({"algorithm": estimator.name, **described}, sort_keys=True)


class Targets:
    """A line for each target: PASS, or FALLS SHORT; the exit code."""

    def __init__(self) -> None:
        self.good: list[bool] = []

    def line(self, good: bool, text: str) -> None:
        """Print a target."""
        self.good.append(bool(good))
        print(f"{'PASS       ' if good else 'FALLS SHORT'} {text}", flush=True)

    def at_most(self, value: float, most: float, what: str) -> None:
        """Print a target that a value must not exceed."""
        self.line(value <= most, f"{what}: {value:.4f} (at most {most:.4f})")

    def at_least(self, value: float, least: float, what: str) -> None:
        """Print a target that a value must reach."""
        self.line(value >= least, f"{what}: {value:.4f} (at least {least:.4f})")

    def exit(self) -> None:
        """End with 1 if any target falls short; toy sizes have no targets."""
        print(f"{sum(self.good)} of {len(self.good)} targets hold.")
        sys.exit(not all(self.good) and not TOY)


def means(rows: Iterable[Iterable[float]]) -> np.ndarray:
    """Return the mean of each column."""
    return np.mean(list(map(list, rows)), axis=0)
