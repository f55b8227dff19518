"""An estimator from outside the package on the frontier, with the stored runs of all methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.frontier.cells import Cell, Results, result
from benchmarks.frontier.data import DATASETS, available, split
from benchmarks.frontier.frontier import EPSILONS, Form, cells
from benchmarks.frontier.methods import Method, methods
from benchmarks.frontier.tables import markdown
from benchmarks.harness import DELTA, STORED, TOY
from hushrec.errors import InputError
from hushrec.models import Estimator
from hushrec.privacy import Budget


def beside(
    estimator: type[Estimator],
    data: str,
    epsilons: Sequence[float] = (1.0, 5.0),
    draws: int = 3,
    **settings: Any,
) -> str:
    """Return a table of the frontier with a row for your own estimator.

    Parameters
    ----------
    estimator : type
        A subclass of `hushrec.Estimator`. Its `planned` gets the budget, the domain and the number of users.
    data : str
        A data set of the frontier with files in the folder HUSHREC_DATA, or ``"synthetic"``.
    epsilons : sequence of float
        Epsilons of the frontier, at delta 1e-5 (unit: user, relation: add-remove).
    draws : int
        Runs at each epsilon.
    **settings
        Settings of the estimator.
    """
    if not (isinstance(estimator, type) and issubclass(estimator, Estimator)):
        raise InputError("estimator must be a subclass of hushrec.Estimator; pass the class.")
    if data not in DATASETS or not available(data):
        there = [name for name in DATASETS if available(name)]
        raise InputError(f"There is no data set {data!r} here; pass one of {', '.join(there)}.")
    if estimator.name in methods(data):
        raise InputError(f"{estimator.name!r} is a method of the frontier; give your class another name.")
    if wrong := [each for each in epsilons if each not in EPSILONS]:
        known = ", ".join(f"{each:g}" for each in EPSILONS)
        raise InputError(f"The frontier has no epsilon {wrong[0]:g}; pass some of {known}.")
    if (estimator.scores == "ratings") != (DATASETS[data].kind == "ratings"):
        raise InputError(f"{estimator.name} scores {estimator.scores}, which {data} does not compare.")
    parts, rows = split(data), []
    for epsilon in epsilons:
        budget = Budget(epsilon, DELTA)
        planned = estimator.planned(budget, parts.train.domain, parts.train.n_users, **settings)
        rows += [result(Cell("own", data, estimator.name, epsilon, draw, planned)) for draw in range(draws)]
    stored = [] if TOY else Results(STORED / "frontier.parquet").of(cells(data, Form(tuple(epsilons), 5)))
    method = Method(f"{estimator.name} (yours)", lambda *_: planned, "its own")
    return markdown(data, [*rows, *stored], DATASETS[data].metrics[0], {estimator.name: method})
