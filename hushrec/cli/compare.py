"""``hushrec compare``."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import Parameter

from hushrec import evaluation
from hushrec.cli import output
from hushrec.cli.files import output_folder
from hushrec.cli.options import (
    Charging,
    Count,
    Force,
    Json,
    Lists,
    NoProgress,
    Promises,
    Seed,
    Settings,
    Users,
    listed,
    progress_shown,
    settings_given,
)
from hushrec.cli.tables import Declared, Reading, Table
from hushrec.data.splits import split_ratings
from hushrec.errors import HushrecError, InputError
from hushrec.evaluation.compare import FILES, REFERENCES, USUAL
from hushrec.evaluation.plots import needs_matplotlib
from hushrec.privacy import Budget
from hushrec.privacy.budget import guarantee

_USUAL = "both,private-als,item-bias; with --implicit private-eigenrec,popular"


def compare(
    ratings: Table,
    /,
    *,
    models: Annotated[str, Parameter(show_default=_USUAL)] | None = None,
    out_dir: Annotated[str, Parameter(metavar="DIR")],
    draws: Count = 1,
    lists: Lists = Lists(),
    n_users: Users | None = None,
    settings: Settings = (),
    seed: Seed = 0,
    promises: Promises,
    declared: Declared = Declared(),
    reading: Reading = Reading(),
    charging: Charging = Charging(),
    yes: Annotated[bool, Parameter(help="Do not ask before the charge.")] = False,
    force: Force = False,
    no_progress: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Train several models over several epsilons on RATINGS; write a table and the privacy-utility plot.

    A fifth of the ratings is held out for testing. The command first prints what all runs cost together, and
    asks on a terminal. If they do not fit the budget, no run is made. The epsilon inf adds the references
    without privacy: als, and ease for lists. hushrec evaluate compares one model without privacy cost.

      hushrec compare ratings.parquet --models both,item-bias --epsilons 1,5,10 --delta 1e-6 \\
                      --rating-range 1 5 --catalogue items.txt --out-dir comparison
      hushrec compare likes.csv --implicit --epsilons 1,5,10,inf --delta 1e-6 --catalogue items.txt \\
                      --data-is-public --out-dir comparison

    Parameters
    ----------
    models
        Models, separated by commas. Settings name theirs, as in --set both.ratings.rank=8.
    out_dir
        Folder for the table and the plot.
    draws
        Trainings of each model at each epsilon.
    """
    levels, domain = promises.levels(), declared.domain(reading.implicit, ratings, reading.columns)
    budget = promises.budget_of(min(levels))
    folder = output_folder(out_dir, force, FILES)
    needs_matplotlib()
    rows = reading.read(ratings, domain)
    chosen = USUAL[domain.likes] if models is None else listed(models)
    options: dict[str, Any] = {
        "delta": budget.delta,
        "relation": budget.relation,
        "n_users": n_users,
        "settings": _by_model(settings_given(settings), chosen),
        "draws": draws,
        **asdict(lists),
        "seed": seed,
        "progress": progress_shown(no_progress),
    }
    train_part, test_part = split_ratings(rows, (0.8, 0.2), seed=seed)
    charged = charging.arguments(private=max(levels) < math.inf or min(levels) == math.inf)
    options["on_price"] = _ask(budget, charging.dataset, yes)
    comparison = evaluation.compare(train_part, test_part, chosen, levels, **options, **charged)
    folder.mkdir(mode=0o700, exist_ok=True)
    paths = comparison.write(folder)
    output.done(
        as_json,
        {**comparison.to_dict(), "files": {kind: str(path) for kind, path in paths.items()}},
        output.table(comparison.brief(), left={0}),
        "",
        comparison.stamp,
        f"All metrics: {paths['md']}, {paths['parquet']}. Plots: {paths['png']}, {paths['svg']}.",
    )


def _by_model(settings: dict[str, Any], models: Sequence[str]) -> dict[str, dict[str, Any]]:
    by_model: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        model, _, setting = name.partition(".")
        model = model.replace("_", "-")
        if model not in (*models, *REFERENCES[True]) or not setting:
            raise InputError(f"--set {name} names no model; write for example --set {models[0]}.{name}=...")
        by_model.setdefault(model, {})[setting] = value
    return by_model


def _ask(budget: Budget, dataset: str, yes: bool) -> Callable[[int, float], None]:
    def ask(runs: int, epsilon: float) -> None:
        cost = guarantee(epsilon, budget.delta, budget.unit, budget.relation)
        output.note(f"{runs} trainings will be charged to data set {dataset!r}; together they cost {cost}.")
        if not yes and sys.stdin.isatty() and sys.stderr.isatty():
            output.note("Go on? [y/N] ", end="")
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                raise HushrecError("Not started; nothing was charged.")

    return ask
