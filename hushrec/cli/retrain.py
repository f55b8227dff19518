"""``hushrec retrain``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.cli import output_model
from hushrec.cli.donated import Donated
from hushrec.cli.files import check_room, output_file
from hushrec.cli.options import (
    Account,
    Catalogue,
    File,
    Force,
    Json,
    LedgerFile,
    NoProgress,
    Whole,
    progress_shown,
)
from hushrec.cli.tables import Reading, item_tables
from hushrec.cli.train import save
from hushrec.data import Domain
from hushrec.errors import InputError, ModelFileError
from hushrec.privacy import Attendance, SeasonAccountant
from hushrec.serving.model import Model, load


def retrain(
    last: Annotated[str, Parameter(metavar="LAST.hush")],
    ratings: str,
    /,
    *,
    out: File,
    ledger: LedgerFile | None = None,
    catalogue: Catalogue | None = None,
    drop_missing_items: bool = False,
    since: Annotated[str, Parameter(metavar="DATE")] | None = None,
    item_features: Annotated[list[File], Parameter(negative=())] | None = None,
    week: Annotated[Whole, Parameter(metavar="N", show_default="the next", validator=Number(gte=0))]
    | None = None,
    skip_week: bool = False,
    early: bool = False,
    attendance: File | None = None,
    reading: Reading = Reading(),
    donated: Donated = Donated(),
    force: Force = False,
    no_progress: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Train the next week of a season, from the last week's model LAST.hush and the RATINGS of today.

    It spends this week's part of the season's budget. The ledger must be the one in which the season was
    opened.

      hushrec retrain week-0.hush ratings.parquet --out week-1.hush
      hushrec retrain week-1.hush ratings.parquet --catalogue items.txt --drop-missing-items \\
                      --out week-2.hush

    Parameters
    ----------
    last
        The model of the last week.
    ratings
        All current ratings of all current users: a table or a store.
    out
        File for the next model.
    catalogue
        Text file of all item ids, if they changed.
    drop_missing_items
        Drop the model's items that the catalogue lacks.
    since
        Use only ratings since this declared date, as 2026-01-01.
    item_features
        Public table of items, used for new items too; repeatable, in the order of the first week.
    week
        Number of the week, from 0; refused if it was trained before.
    skip_week
        Skip a week that was interrupted. Its charge stays.
    early
        Train before the season's gap (season open --gap) is over.
    attendance
        PRIVATE file that counts each user's trainings in the season.
    """
    model = _loaded(last)
    if model.privacy.week is None:
        raise InputError(
            f"{last} was not trained in a season; open one with hushrec season open, then train its first"
            " week with hushrec train --season."
        )
    domain = model.domain
    if catalogue is not None or item_features is not None:
        items = domain.items if catalogue is None else tuple(Domain.read_catalogue(catalogue))
        features = item_tables(item_features, reading.columns)
        domain = replace(domain, items=items, item_features=features)
    inputs = (last, ratings, catalogue, *(item_features or ()), ledger, attendance, *donated.files())
    target = output_file(out, inputs, force)
    public = donated.read(ratings)
    people = None if attendance is None else Attendance(attendance)
    words: dict[str, Any] = {"skip": skip_week, "week": week, "early": early, "attendance": people}
    accountant = SeasonAccountant.following(model.privacy, ledger=Account(ledger=ledger).open(), **words)
    accountant.check_model(model)  # before any file is read with the model's declarations
    check_room(target, Path(last).stat().st_size)
    rows = reading.open(ratings, domain) if since is None else reading.read(ratings, domain, times=True)
    options: dict[str, Any] = {"since": since, "drop_missing_items": drop_missing_items, "public": public}
    following = model.continue_training(rows, accountant, progress=progress_shown(no_progress), **options)
    save(following, target)
    output_model.trained(following, target, f"Trained week {accountant.week.number} of", as_json)


def _loaded(last: str) -> Model:
    try:
        return load(last)
    except ModelFileError as error:
        raise ModelFileError(
            f"{error} Nothing was charged. Pass a copy of the last week's model. If there is none, begin a"
            " new model with hushrec train --season."
        ) from None
