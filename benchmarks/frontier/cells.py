"""Runs and their results: one row each in a Parquet file, by which an interrupted command goes on."""

from __future__ import annotations

import fcntl
import math
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import t as student

from benchmarks.frontier.data import Split, kind_of, split
from benchmarks.harness import DELTA, OUTPUT, rmse, settings as described
from hushrec.evaluation import evaluate
from hushrec.models import Estimator
from hushrec.privacy import Accountant, Budget

#: Seconds between two writes of the results.
_WRITE_EVERY = 20.0

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes
    ----------
    part : str
        Part of the command that wants it.
    data : str
        Name of the data set.
    method : str
        Row of a table.
    epsilon : float
        At delta 1e-5, unit user, relation add-remove.
    draw : int
        Number of the noise draw, and seed of start and sample.
    estimator : Estimator
        With all its settings.
    """

    part: str
    data: str
    method: str
    epsilon: float
    draw: int
    estimator: Estimator

    @property
    def key(self) -> tuple[Any, ...]:
        """Return the key by which a stored result replaces this run."""
        return (self.part, self.data, self.method, self.epsilon, self.draw, self.settings)

    @property
    def settings(self) -> str:
        """Class and hyper-parameters."""
        return described(self.estimator)


class Results:
    """The rows of the results file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[tuple[Any, ...], Row] = {}
        self._read()

    def _read(self) -> None:
        if self.path.exists():
            for row in pq.read_table(self.path).to_pylist():
                self.rows.setdefault(_key(row), row)

    def add(self, row: Row) -> None:
        """Keep a row."""
        self.rows[_key(row)] = row

    def write(self) -> None:
        """Replace the file as a whole, with the rows that other commands have written since."""
        OUTPUT.mkdir(exist_ok=True)
        with (OUTPUT / "frontier.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._read()
            about = {"about": "held-out errors of public data sets; unit user, add-remove, delta 1e-5"}
            table = pa.Table.from_pylist(list(self.rows.values())).replace_schema_metadata(about)
            unfinished = self.path.with_suffix(".new")
            pq.write_table(table, unfinished)
            unfinished.replace(self.path)

    def of(self, cells: Iterable[Cell]) -> list[Row]:
        """Rows of these runs, of those that were made."""
        return [self.rows[cell.key] for cell in cells if cell.key in self.rows]


def _key(row: Row) -> tuple[Any, ...]:
    names = ("part", "data", "method", "epsilon", "draw", "settings")
    return tuple(row[name] for name in names)


def run(cells: Sequence[Cell], results: Results, jobs: int) -> None:
    """Make the runs that have no result yet, ``jobs`` at a time, one thread each."""
    wanted = [cell for cell in cells if cell.key not in results.rows]
    if not wanted:
        return
    started = written = time.monotonic()
    print(f"{len(wanted)} runs, {len(cells) - len(wanted)} were there already", file=sys.stderr, flush=True)
    for number, row in enumerate(_rows(wanted, jobs), 1):
        results.add(row)
        now = time.monotonic()
        if now - written > _WRITE_EVERY or number == len(wanted):
            results.write()
            written = now
            print(f"  {number} of {len(wanted)}, {now - started:.0f} s", file=sys.stderr, flush=True)


def _rows(cells: Sequence[Cell], jobs: int) -> Iterable[Row]:
    if jobs == 1:
        yield from map(result, cells)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(result, cell) for cell in cells]):
            yield done.result()


def result(cell: Cell) -> Row:
    """Train and judge once."""
    parts, started = split(cell.data), time.perf_counter()
    budget = Budget(cell.epsilon, DELTA)
    accountant = Accountant(budget, data_is_public=True)
    model = cell.estimator.fit(parts.train, accountant, seed=cell.draw)
    seconds = time.perf_counter() - started
    metrics = judge(model, cell.data, parts)
    return {
        "part": cell.part,
        "data": cell.data,
        "method": cell.method,
        "epsilon": cell.epsilon,
        "draw": cell.draw,
        "settings": cell.settings,
        "rmse": metrics.get("rmse", math.nan),
        "rmse random": metrics.get("rmse random", math.nan),
        "recall@20": metrics.get("recall@20", math.nan),
        "ndcg@20": metrics.get("ndcg@20", math.nan),
        "seconds": seconds,
    }


def judge(model: Any, data: str, parts: Split) -> dict[str, float]:
    """Errors on the test part."""
    if kind_of(data) == "items":
        target = next(iter(parts.targets.values()))
        found = evaluate(model, parts.history, target, metrics=["capped-recall", "ndcg"], resamples=0)
        return {"recall@20": found["capped-recall@20"].value, "ndcg@20": found["ndcg@20"].value}
    return {name: rmse(model, parts.history, target) for name, target in parts.targets.items()}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of Student's 95% interval over noise draws (NaN for fewer than three)."""
    mean = float(np.mean(values))
    if len(values) < 3:  # two draws tell next to nothing of the spread
        return mean, math.nan
    freedom = len(values) - 1
    quantile = float(student.ppf(0.975, freedom))
    return mean, quantile * float(np.std(values, ddof=1)) / math.sqrt(len(values))
