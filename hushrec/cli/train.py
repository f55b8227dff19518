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
    Json,
    ModelName,
    NoProgress,
    Promise,
    Resume,
    Seed,
    Settings,
    Users,
    model_for,
    progress_shown,
    settings_given,
)
from hushrec.cli.tables import Declared, Reading, tables_of
from hushrec.data import Domain
from hushrec.errors import HushrecError, InputError
from hushrec.privacy import Accountant, Attendance, Budget, RepeatAndSelect, SeasonAccountant
from hushrec.serving.model import Model
from hushrec.training import named, run


def train(
    *ratings: Annotated[str, Parameter(metavar="RATINGS")],
    out: File,
    promise: Promise,
    declared: Declared = Declared(),
    reading: Reading = Reading(),
    model: ModelName | None = None,
    charging: Charging = Charging(),
    n_users: Users | None = None,
    settings: Settings = (),
    like_threshold: float | None = None,
    season: Annotated[str, Parameter(metavar="NAME")] | None = None,
    attendance: File | None = None,
    resume: Resume = False,
    force: Force = False,
    donated: Donated = Donated(),
    scheduler: Scheduler | None = None,
    seed: Seed = 0,
    no_progress: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Train a model on private RATINGS. The privacy cost is recorded in the ledger.

    Training never inspects the ratings first: hushrec check shows which rows will be used.

      hushrec train ratings.csv --epsilon 1 --delta 1e-6 --rating-range 1 5 \\
                    --catalogue items.txt --out model.hush
      hushrec train likes.csv --implicit --epsilon 1 --delta 1e-6 \\
                    --catalogue items.txt --out likes.hush
      hushrec train orders.csv reviews.csv --epsilon 1 --delta 1e-6 --rating-range 1 5 \\
                    --catalogue items.txt --out model.hush

    Parameters
    ----------
    ratings
        A table (Parquet, CSV, TSV, MovieLens) or store; or several tables, such as orders and reviews.
    out
        File for the model.
    like_threshold
        Ratings from here up are likes; by default 4 on a scale from 1 to 5.
    season
        Train a new model in the next week of an open season.
    attendance
        PRIVATE file that counts each user's trainings in the season.
    """
    tables = tables_of(ratings)
    budget, domain = promise.budget(), declared.domain(reading.implicit, tables, reading.columns)
    model, changes = model_for(model, domain.likes, budget.private), settings_given(settings)
    if like_threshold is not None:
        changes["like_threshold"] = like_threshold
    choice = named.check_run(model, budget, domain, n_users, changes)
    if declared.item_features is not None:
        check_features(choice.estimators[0], budget, domain)
    inputs = (*ratings, declared.catalogue, *(declared.item_features or ()), *donated.files())
    inputs += (charging.ledger, attendance)
    target = output_file(out, inputs, force)
    public = donated.read(*ratings)
    rows = reading.open(tables, domain)
    public_rows = run.read_public(public, choice.estimators[0], rows)  # refused before a ledger is opened
    with cluster(scheduler, *ratings) as engine:
        trained = run.train(
            choice,
            rows,
            charged(season, budget, charging, resume, attendance),
            seed=seed,
            progress=progress_shown(no_progress),
            keep=lambda trained: save(trained, target),
            engine=engine,
            stop_at_nobody=season is None,
            public=public_rows,
        )
    output_model.warn_of_the_number_of_users(trained)
    output_model.trained(trained, target, "Trained", as_json)


def charged(
    name: str | None, budget: Budget, charging: Charging, resume: bool, attendance: str | None = None
) -> Accountant:
    if name is None:
        if attendance is not None:
            raise InputError("Only a season has an attendance; pass --season, or leave it out.")
        return Accountant(budget, **charging.arguments(budget.private), resume=resume)
    if resume:
        raise InputError("An interrupted week of a season cannot be resumed; leave out --resume.")
    if charging.data_is_public:
        raise InputError("A season needs a ledger; leave out --data-is-public or --season.")
    book = charging.open()
    season = book.season(charging.dataset, name).season
    if season.budget != budget:
        raise InputError(
            f'Season "{name}" was opened for {season.budget}, not {budget}; pass the same values.',
            parameter="epsilon",
        )
    people = None if attendance is None else Attendance(attendance)
    words: dict[str, Any] = {"attendance": people, "dataset": charging.dataset}
    return SeasonAccountant(season, ledger=book, skip=True, **words)  # any week may begin a new model


def check_features(algorithm: Any, budget: Budget, domain: Domain) -> None:
    if not algorithm.uses_features(budget, domain):
        raise InputError(
            f"{algorithm.name} uses no item features with these declarations; leave out --item-features."
        )


def save(trained: Model, target: Path) -> None:
    """A failure is not bad input here, because the budget is spent."""
    try:
        trained.save(target)
    except InputError as error:
        raise HushrecError(
            f"The model was trained and charged, but not saved: {error}{_rescue(trained)}"
        ) from None


def _rescue(trained: Model) -> str:
    privacy = trained.privacy
    if privacy.week is not None:
        return (
            " Its week is used up. Free disk space, then retrain the last week's model with --skip-week, or"
            " train a new one."
        )
    chosen = any(isinstance(release.mechanism, RepeatAndSelect) for release in privacy.releases)
    if privacy.ledger is None or not privacy.budget.private or chosen:
        return ""
    return " Free disk space, then run the same command with --resume, which has no further cost."
