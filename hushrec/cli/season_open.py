"""``hushrec season open``."""

import shlex
from typing import Annotated

from cyclopts import Parameter

from hushrec.cli import show
from hushrec.cli.options import Account, Count, Json, Promise
from hushrec.cli.season_show import planned, seasons_together
from hushrec.errors import InputError
from hushrec.privacy import Season
from hushrec.privacy.season import renamed


def season_open(
    *,
    account: Account = Account(),
    promise: Promise,
    weeks: Count,
    first_share: float = 0.5,
    name: Annotated[str, Parameter(show_default="the next number")] | None = None,
    add_up: bool = False,
    as_json: Json = False,
) -> None:
    """Give a data set one budget for many trainings, the first by hushrec train, the others by retrain.

    What a user is promised holds for all of them together, and for all that she rates over the season. A week
    is any period: the ledger counts trainings and reads no clock.

      hushrec season open --dataset shop --epsilon 5 --delta 1e-6 --weeks 52

    Parameters
    ----------
    weeks
        Number of trainings, 2 or more.
    first_share
        Part of the budget (of mu squared) that week 0 gets; the others share the rest evenly.
    name
        Tells seasons of one data set apart.
    add_up
        The data set has had a season before, and what both cost together is understood.
    """
    season = Season(promise.budget(), weeks, first_share, name or "1")
    if promise.unit != "user":
        raise InputError("A season protects users, not single ratings; leave --unit out.")
    book, dataset = account.open(create=True), account.dataset
    if name is None:
        season = renamed(season, book.seasons(dataset))
    book.open_season(dataset, season, add_up=add_up)
    others = book.seasons(dataset)
    found = {"ledger": str(book.path), **book.season(dataset, season.name).to_dict()}
    found |= {"plan": season.plan(), "promised_together": seasons_together(others)[0]}
    text = [f'Season "{season.name}" of data set "{dataset}" is open: {season.budget}.', *planned(season)]
    names = f"--season {shlex.quote(season.name)} --dataset {shlex.quote(dataset)}"
    budget = f"--epsilon {season.budget.epsilon:.15g} --delta {season.budget.delta:.15g}"
    text += [f"\nIts first week: hushrec train RATINGS {names} {budget} ... --out week-0.hush"]
    show.result(as_json, found, *text, *seasons_together(others)[1], f"Ledger: {book.path}")
