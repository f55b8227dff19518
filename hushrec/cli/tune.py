"""``hushrec tune``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from hushrec.cli import output, output_model
from hushrec.cli.files import output_file
from hushrec.cli.options import (
    Charging,
    Count,
    Failure,
    File,
    Force,
    Json,
    Named,
    NoProgress,
    Promise,
    Seed,
    listed,
    pairs,
    progress_shown,
    value_of,
)
from hushrec.cli.tables import Declared, Reading, Table
from hushrec.cli.train import save
from hushrec.data import Domain, Ratings, realistic
from hushrec.errors import InputError
from hushrec.evaluation import tuning
from hushrec.evaluation.tuning import Trial, grid
from hushrec.privacy import Accountant, Budget


def tune(
    ratings: Table | None = None,
    /,
    *,
    model: Named = "private-als",
    tried: Annotated[tuple[str, ...], Parameter(name="--try", metavar="NAME=V1,V2,...")] = (),
    out: File | None = None,
    n_generated: Annotated[Count, Parameter(name="--generated", metavar="USERS")] | None = None,
    mean_runs: float = 10.0,
    failure: Failure | None = None,
    seed: Seed = 0,
    promise: Promise,
    declared: Declared = Declared(),
    reading: Reading = Reading(),
    charging: Charging = Charging(),
    force: Force = False,
    no_progress: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Choose settings. Generated ratings have no privacy cost and are usually enough.

    With --generated, or with --data-is-public and RATINGS, all combinations are tried and listed, best first.
    On private RATINGS a random number of combinations is tried, and only the best model is written. The whole
    cost is charged before the first run.

      hushrec tune --generated 6000 --model private-als --try rank=4,8 --try user_variance=0.2,0.4 \\
                   --epsilon 5 --delta 1e-6 --rating-range 1 5 --catalogue items.txt
      hushrec tune ratings.parquet --model item-bias --try clip=0.3,0.45,0.6 --epsilon 5 --delta 1e-6 \\
                   --rating-range 1 5 --catalogue items.txt --out model.hush

    Parameters
    ----------
    tried
        Values of a setting to try, as in --try rank=4,8; repeatable.
    out
        File for the best model (private choice only).
    n_generated
        Number of generated users to try on instead of RATINGS.
    mean_runs
        Expected number of runs.
    """
    budget, domain = promise.budget(), declared.domain(reading.implicit, ratings, reading.columns)
    if ratings is not None and n_generated is not None:
        raise InputError("Pass RATINGS or --generated USERS, not both.")
    if ratings is None and n_generated is None:
        raise InputError("Pass RATINGS, or --generated USERS to try on generated ratings.")
    shown = progress_shown(no_progress)
    public = n_generated is not None or charging.data_is_public
    if out is not None and public:
        raise InputError("--generated trains no model to keep; leave out --out.")
    if out is None and not public:
        raise InputError("--out is missing: pass a file for the best model, for example --out model.hush.")
    choices = pairs(tried, "--try", "rank=4,8")
    candidates = grid({name: [value_of(text) for text in listed(texts)] for name, texts in choices.items()})
    if n_generated is not None:
        made_up = _generated(n_generated, domain, seed)
        trials = tuning.try_all(made_up, model, candidates, budget, seed=seed, progress=shown)
        _list(trials, model, budget, "generated", as_json)
        return
    assert ratings is not None
    inputs = (ratings, declared.catalogue, *(declared.item_features or ()), charging.ledger)
    target = None if out is None else output_file(out, inputs, force)
    rows = reading.read(ratings, domain)
    if target is None:
        trials = tuning.try_all(rows, model, candidates, budget, seed=seed, progress=shown)
        _list(trials, model, budget, "public", as_json)
        return
    if shown:
        output.note("Training several times. The number is secret, so there is no progress bar.")
    reserved = replace(budget, failure=budget.delta if failure is None else failure)
    accountant = Accountant(reserved, **charging.arguments(budget.private))
    trained = tuning.tune(rows, model, candidates, accountant, mean_runs=mean_runs, seed=seed)
    save(trained, target)
    output_model.trained(trained, target, "Chose", as_json)


def _generated(n_users: int, domain: Domain, seed: int) -> Ratings:
    """About 100 ratings a user."""
    per_user = max(1, min(100, domain.n_items // 4, domain.max_ratings_per_user))
    ends = (domain.low, domain.high)
    ratings = realistic(n_users, domain.n_items, n_users * per_user, rating_range=ends, seed=seed)
    return Ratings.from_any(ratings.matrix, domain)


def _list(trials: list[Trial], model: str, budget: Budget, kind: str, as_json: bool) -> None:
    entries = [{"settings": dict(trial.settings), "rmse": trial.rmse} for trial in trials]
    words = [", ".join(f"{k}={v}" for k, v in trial.settings.items()) or "as planned" for trial in trials]
    output.result(
        as_json,
        {"model": model, "epsilon": budget.epsilon, "trials": entries},
        f"{model} on {kind} ratings, no budget spent, budget of each run: {budget}",
        "    RMSE  (best first)",
        *(f"{trial.rmse:8.4f}  {word}" for trial, word in zip(trials, words, strict=True)),
    )
