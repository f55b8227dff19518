"""``hushrec season open``."""

import shlex
from typing import Annotated

from cyclopts import Parameter

from hushrec.cli import output
from hushrec.cli.ledger_show import shares, summary_of
from hushrec.cli.options import Account, Days, Json, Promise
from hushrec.cli.season_show import planned, seasons_together
from hushrec.privacy import Season
from hushrec.privacy.season import renamed


def season_open(
    *,
    account: Account = Account(),
    promise: Promise,
    first: float = 1 / 3,
    decay: float = 0.9,
    name: Annotated[str, Parameter(show_default="the next number")] | None = None,
    gap: Days = 0.0,
    allow_composition: bool = False,
    as_json: Json = False,
) -> None:
    """Give a data set one budget for all trainings, the first by hushrec train, the others by retrain.

    The promise covers all of them together, past and future, for each user id: a user weighs less in each
    further training. A season has no end, and a week is any period. A data set's budget reserves the
    season's until you close it.

      hushrec season open --dataset shop --epsilon 5 --delta 1e-6
      hushrec season open --dataset shop --epsilon 5 --delta 1e-6 --gap 6d

    Parameters
    ----------
    first
        Part of the budget (of mu squared) of a user's first training.
    decay
        Cost of a user's training relative to the one before, from the third on.
    name
        Unique among the seasons of a data set.
    gap
        Shortest time between the starts of two weeks, as in --gap 6d for a weekly job.
    allow_composition
        Allow this season to add to the cost of earlier seasons and runs.
    """
    season = Season(promise.budget(), first, decay, "1" if name is None else name, gap)
    book, dataset = account.open(create=True), account.dataset
    if name is None:
        season = renamed(season, book.seasons(dataset))
    book.open_season(dataset, season, allow_composition=allow_composition)
    others = book.seasons(dataset)
    result = {"ledger": str(book.path), **book.season(dataset, season.name).to_dict()}
    result |= {"plan": season.plan(), "promised_together": seasons_together(others)[0]}
    text = [f'Season "{season.name}" of data set "{dataset}" is open: {season.budget}.', *planned(season)]
    names = f"--season {shlex.quote(season.name)} --dataset {shlex.quote(dataset)}"
    budget = f"--epsilon {season.budget.epsilon:.15g} --delta {season.budget.delta:.15g}"
    text += [f"\nFirst week: hushrec train RATINGS {names} {budget} ... --out week-0.hush"]
    shared = shares(book, dataset)
    together = output.paragraph(f"{summary_of(book, dataset)}.")
    text += [*seasons_together(others)[1], *together, f"Ledger: {book.path}"]
    output.done(as_json, result | shared[0], *text)
