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
    NoProgress,
    Whole,
    progress_shown,
)
from hushrec.cli.tables import Reading
from hushrec.cli.train import save
from hushrec.data import Domain
from hushrec.errors import InputError, ModelFileError
from hushrec.privacy import SeasonAccountant
from hushrec.serving.billboard import Billboard, load


def retrain(
    last: Annotated[str, Parameter(metavar="LAST.hush")],
    ratings: str,
    /,
    *,
    out: File,
    ledger: Annotated[File, Parameter(show_default="one ledger for this account")] | None = None,
    catalogue: Catalogue | None = None,
    retire: bool = False,
    since: Annotated[str, Parameter(metavar="DATE")] | None = None,
    item_features: File | None = None,
    week: Annotated[Whole, Parameter(metavar="N", show_default="the next", validator=Number(gte=0))]
    | None = None,
    skip_week: bool = False,
    early: bool = False,
    reading: Reading = Reading(),
    donated: Donated = Donated(),
    force: Force = False,
    no_progress: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Train the next week of a season: go on from the last week's model LAST.hush with the RATINGS of today.

    It spends this week's slice of the season's budget, whatever is new in the ratings. Season, data set and
    settings are the model's; the ledger must be the one that it was charged to.

      hushrec retrain week-0.hush ratings.parquet --out week-1.hush
      hushrec retrain week-1.hush ratings.parquet --catalogue items.txt --retire --out week-2.hush

    Parameters
    ----------
    last
        The model of the last week.
    ratings
        All ratings of all users who are there today: a table with columns of users, items and ratings, or
        a store that `hushrec prepare` made of some.
    out
        Where the next model goes, as in --out next.hush.
    ledger
        Where the season was opened.
    catalogue
        Declared items, if they are no longer the model's: new ones begin at what is usual.
    retire
        Items that the catalogue lacks are dropped.
    since
        Only ratings given since this date count, as in --since 2026-01-01; needs a column of times. It
        follows what changes, and gives no budget back. Declare it: never take it from the ratings.
    item_features
        Public facts of the items, from which a new item's start is told.
    week
        The week that is meant, from 0: refused where it was run already, so that a line that is run twice
        spends nothing the second time.
    skip_week
        The week after LAST.hush was cut short and has no model: what it charged stays charged, the rest of
        its slice is spent by nobody, and the week after it is trained.
    early
        Train now, although the season's gap (hushrec season open --gap) is not over.
    """
    board = _loaded(last)
    if board.privacy.week is None:
        raise InputError(
            f"{last} was not trained in a season: open one with hushrec season open, and train its first"
            " model with hushrec train --season."
        )
    domain = board.domain
    if catalogue is not None or item_features is not None:
        items = domain.items if catalogue is None else tuple(Domain.read_catalogue(catalogue))
        domain = replace(domain, items=items, item_features=item_features, declared=True)
    inputs = (last, ratings, catalogue, item_features, ledger, *donated.files())
    target = output_file(out, inputs, force)
    public = donated.read(ratings)
    words: dict[str, Any] = {"skip": skip_week, "week": week, "early": early}
    accountant = SeasonAccountant.following(board.privacy, ledger=Account(ledger=ledger).open(), **words)
    accountant.check_model(board)  # before anything is read with what it declares
    check_room(target, Path(last).stat().st_size)
    rows = reading.open(ratings, domain) if since is None else reading.read(ratings, domain, times=True)
    options: dict[str, Any] = {"since": since, "retire": retire, "public": public}
    following = board.continue_training(rows, accountant, progress=progress_shown(no_progress), **options)
    save(following, target)
    output_model.trained(following, target, f"Trained week {accountant.week.number} of", as_json)


def _loaded(last: str) -> Billboard:
    """The last week's model; what to do where its file is none any more."""
    try:
        return load(last)
    except ModelFileError as error:
        raise ModelFileError(
            f"{error} Nothing was charged. A season goes on from a copy of its last week's model; where there"
            " is none, close it with hushrec season close, and open another one with hushrec season open"
            " --allow-composition."
        ) from None
