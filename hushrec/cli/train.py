"""``hushrec train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from hushrec.cli import output_model
from hushrec.cli.cluster import Scheduler, cluster
from hushrec.cli.donated import Donated
from hushrec.cli.files import output_file
from hushrec.cli.options import (
    Charging,
    File,
    Force,
    Job,
    Json,
    Model,
    NoProgress,
    Promise,
    Resume,
    Seed,
    Users,
    Verbose,
    model_for,
    progress_shown,
)
from hushrec.cli.tables import Declared, Reading
from hushrec.data import Domain
from hushrec.errors import HushrecError, InputError
from hushrec.privacy import Accountant, Budget, RepeatAndSelect, SeasonAccountant
from hushrec.serving.billboard import Billboard
from hushrec.training import named


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
    declared: Declared = Declared(),
    reading: Reading = Reading(),
    charging: Charging = Charging(),
    donated: Donated = Donated(),
    resume: Resume = False,
    scheduler: Scheduler | None = None,
    season: Annotated[str, Parameter(metavar="NAME")] | None = None,
    force: Force = False,
    no_progress: NoProgress = False,
    verbose: Verbose = False,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Train a model on private RATINGS (Parquet, CSV, TSV, MovieLens or Jester file).

    The budget, the item catalogue and the rating range are declared, never read from the ratings. Settings
    that are not given are chosen from epsilon, the catalogue, the range and the number of users. Nothing of
    the rows is looked at before budget is spent: see with hushrec check that they are read as you mean them.
    Where the released number of users cannot be told from 0, 1% is spent and the run stops. What the run
    spends is charged in the ledger before it is released, and stays charged if the run fails; --resume
    goes on with a run that was killed, at no further cost. A model for both jobs recommends from the ratings
    that are likes, those from --like-threshold up.

      hushrec train ratings.parquet --epsilon 5 --delta 1e-6 --rating-range 1 5 \\
                    --catalogue items.txt --out model.hush
      hushrec train STORE --epsilon 5 --delta 1e-6 --out model.hush
      hushrec train STORE --epsilon 5 --delta 1e-6 --out model.hush --scheduler tls://10.0.0.1:8786
      hushrec train STORE --epsilon 1 --delta 1e-6 --out model.hush --donors ids.txt
      hushrec train likes.csv --implicit --epsilon 1 --delta 1e-6 --catalogue items.txt --out likes.hush
      hushrec train ratings.parquet --model one-bit --mechanism input --threshold 3.5 --unit rating \\
                    --epsilon 4 --delta 1e-6 --rating-range 1 5 --catalogue items.txt --out likes.hush

    Parameters
    ----------
    ratings
        A table with columns of users, items and ratings, or a store that `hushrec prepare` made of some.
    out
        Where the model goes, as in --out model.hush.
    season
        The model is the first of a season that hushrec season open declared, with the --dataset, --epsilon
        and --delta of that: it spends week 0's part of the budget, and hushrec retrain goes on from it.
    """
    budget, domain = promise.budget(), declared.domain(reading.implicit, ratings)
    model = model_for(model, job, domain.likes, budget.private)
    estimator = named.check_run(model, budget, domain, n_users, settings)
    if declared.item_features is not None:
        check_features(estimator, budget, domain)
    inputs = (ratings, declared.catalogue, declared.item_features, charging.ledger, *donated.files())
    target = output_file(out, inputs, force)
    public = donated.read(ratings)
    rows = reading.open(ratings, domain)
    if public is not None:
        public.read(estimator, rows)  # refused before a ledger is opened
    with cluster(scheduler, ratings) as engine:
        billboard = named.train(
            model,
            rows,
            charged(season, budget, charging, resume),
            n_users=n_users,
            settings=settings,
            seed=seed,
            progress=progress_shown(no_progress),
            keep=lambda billboard: save(billboard, target),
            engine=engine,
            stop_at_nobody=season is None,
            public=public,
        )
    output_model.warn_of_the_number_of_users(billboard, n_users)
    output_model.trained(billboard, target, "Trained", verbose, as_json)


def charged(name: str | None, budget: Budget, charging: Charging, resume: bool) -> Accountant:
    """The accountant of a run, or of week 0 of a season, whose budget is the declared one."""
    if name is None:
        return Accountant(budget, **charging.arguments(budget.private), resume=resume)
    if resume:
        raise InputError("A week of a season that was cut short is not taken up; leave out --resume.")
    if charging.data_is_public:
        raise InputError("A season is charged to a ledger; leave out --data-is-public or --season.")
    book = charging.open()
    season = book.season(charging.dataset, name).season
    if season.budget != budget:
        raise InputError(
            f'Season "{name}" was opened for {season.budget}, not {budget}; declare the same.',
            parameter="epsilon",
        )
    return SeasonAccountant(
        season, ledger=book, dataset=charging.dataset, allow_composition=charging.allow_composition
    )


def check_features(algorithm: Any, budget: Budget, domain: Domain) -> None:
    """Refuse item features for a model that would not look at them."""
    if not algorithm.uses_features(budget, domain):
        raise InputError(
            f"{algorithm.name} makes no use of item features here, for so many users or at all; leave"
            " --item-features out."
        )


def save(billboard: Billboard, target: Path) -> None:
    """Write the model file; failing now is no matter of bad input, since the budget is spent."""
    try:
        billboard.save(target)
    except InputError as error:
        raise HushrecError(
            f"The model was trained and charged but could not be saved: {error}{_rescue(billboard)}"
        ) from None


def _rescue(billboard: Billboard) -> str:
    """Say what brings back a model that could not be saved."""
    privacy = billboard.privacy
    if privacy.week is not None:
        if privacy.week.number:
            return " Its week is used up: make room, then go on from the last week's model with --skip-week."
        return " Its week is used up: make room, close the season, and open another one, which adds up."
    chosen = any(isinstance(each.mechanism, RepeatAndSelect) for each in privacy.releases)
    if privacy.ledger is None or not privacy.budget.private or chosen:
        return ""
    return " Make room, then the same command with --resume writes it at no further cost."
