"""``hushrec season show``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from hushrec.cli import output
from hushrec.cli.ledger_show import shares, summary_of
from hushrec.cli.options import Account, Json
from hushrec.errors import InputError
from hushrec.privacy import Season, SeasonSummary
from hushrec.privacy.season import epsilon_together


def season_show(*, account: Account = Account(), as_json: Json = False) -> None:
    """Print a data set's seasons: plans, trained weeks, total cost and free budget.

    hushrec season show --dataset shop
    """
    book, dataset = account.open(), account.dataset
    seasons = book.seasons(dataset)
    if not seasons:
        raise InputError(f'Data set "{dataset}" has no season in the ledger {book.path}.')
    both, text = seasons_together(seasons)
    result: dict[str, Any] = {"ledger": str(book.path), "seasons": [summary.to_dict() for summary in seasons]}
    lines: list[str] = []
    for summary in seasons:
        lines += [f"{summary}.", *planned(summary.season), ""]
    shared = shares(book, dataset)
    result |= {"promised_together": both, **shared[0]}
    together = output.paragraph(f"{summary_of(book, dataset)}.")
    next_line = f"Fractions of each season: hushrec ledger show --dataset {shlex.quote(dataset)}"
    output.result(as_json, result, *lines, *text, *together[1:], f"Ledger: {book.path}", next_line)


def planned(season: Season) -> list[str]:
    lines = ["", f"{'training of a user':<20}{'weight':>10}{'part of mu^2':>16}{'alone':>16}"]
    for row in season.plan():
        part, alone = f"{row['part']:.3%}", f"epsilon {row['epsilon_alone']:.3g}"
        lines.append(f"{row['training']:<20}{row['weight']:>10.4g}{part:>16}{alone:>16}")
    words = (
        f"After {len(season.weights)} trainings a user weighs nothing, and gets lists as before. --attendance"
        " FILE of train and retrain counts each user's trainings; else all users have the week's number."
    )
    if season.gap:
        words += f" A week begins {season.gap:g} days after the last one began, or later (--early: sooner)."
    return [*lines, *output.paragraph(words)]


def seasons_together(seasons: Sequence[SeasonSummary]) -> tuple[dict[str, Any] | None, list[str]]:
    if len(seasons) < 2:
        return None, []
    budget = seasons[-1].season.budget
    epsilon = epsilon_together([summary.season.budget for summary in seasons], budget.delta)
    text = f"All {len(seasons)} seasons together, for a user who is in all of them: {budget.spell(epsilon)}."
    return {"epsilon": epsilon, "delta": budget.delta}, output.paragraph(text)
