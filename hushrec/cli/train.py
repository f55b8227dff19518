"""``hushrec train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushrec.cli import show
from hushrec.cli.files import output_file
from hushrec.cli.options import (
    Charging,
    Declared,
    File,
    Force,
    Job,
    Json,
    Model,
    NoProgress,
    Promise,
    Reading,
    Resume,
    Seed,
    Users,
    Verbose,
    model_for,
    progress_shown,
)
from hushrec.errors import HushrecError, InputError

if TYPE_CHECKING:
    from hushrec.billboard import Billboard


def train(
    ratings: str,
    /,
    *,
    job: Job | None = None,
    model: Model | None = None,
    out: File,
    n_users: Users | None = None,
    seed: Seed = 0,
    promise: Promise,
    declared: Declared,
    reading: Reading = Reading(),
    charging: Charging = Charging(),
    resume: Resume = False,
    force: Force = False,
    no_progress: NoProgress = False,
    verbose: Verbose = False,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Train a model on private RATINGS (Parquet, CSV, TSV, MovieLens or Jester file).

    The budget, the item catalogue and the rating range are declared, never read from the ratings. Settings
    that are not given are chosen from epsilon, the catalogue, the range and the number of users. What the
    run spends is charged in the ledger before it is released, and stays charged if the run fails; --resume
    goes on with a run that was killed, at no further cost. A model for both jobs recommends from the ratings
    that are likes, those from --like-from up.

      hushrec train ratings.parquet --epsilon 5 --delta 1e-6 --rating-range 1 5 \\
                    --catalogue items.txt --out model.hush
      hushrec train likes.csv --implicit --epsilon 1 --delta 1e-6 --catalogue items.txt --out likes.hush
      hushrec train ratings.parquet --model one-bit --mechanism input --threshold 3.5 --unit rating \\
                    --epsilon 4 --delta 1e-6 --rating-range 1 5 --catalogue items.txt --out likes.hush

    Parameters
    ----------
    ratings
        A table with columns of users, items and ratings.
    out
        Where the model goes, as in --out model.hush.
    """
    from hushrec.evaluation.runs import check_run, train as run
    from hushrec.privacy import Accountant

    budget, domain = promise.budget(), declared.domain(reading.implicit)
    model = model_for(model, job, domain.likes, budget.private)
    check_run(model, budget, domain, n_users, settings)
    check_features(model, declared)
    inputs = (ratings, declared.catalogue, declared.item_features, charging.ledger)
    target = output_file(out, inputs, force)
    rows = reading.read(ratings, domain)
    accountant = Accountant(budget, **charging.arguments(budget.private), resume=resume)
    billboard = run(
        model,
        rows,
        accountant,
        n_users=n_users,
        settings=settings,
        seed=seed,
        progress=progress_shown(no_progress),
        keep=lambda billboard: save(billboard, target),
    )
    show.warn_of_the_number_of_users(billboard, n_users)
    show.trained(billboard, target, "Trained", verbose, as_json)


def check_features(model: str, declared: Declared) -> None:
    """Refuse item features for a model that would not look at them."""
    from hushrec.registry import ESTIMATORS

    if declared.item_features is not None and not ESTIMATORS[model].uses_item_features:
        raise InputError(f"{model} makes no use of item features; leave --item-features out.")


def save(billboard: Billboard, target: Path) -> None:
    """Write the model file; failing now is no matter of bad input, since the budget is spent."""
    try:
        billboard.save(target)
    except InputError as error:
        raise HushrecError(f"The model was trained and charged but could not be saved: {error}") from None
