"""A training that goes on: the next week of a season, from the last week's model and this week's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from hushrec.billboard import Billboard
from hushrec.data import Domain, Ratings, Store, split_by_time
from hushrec.errors import InputError
from hushrec.gate import LabelledGate, LocalGate
from hushrec.kernels.threads import one_blas_thread
from hushrec.privacy import Plan, SeasonAccountant
from hushrec.types import Array


def go_on(
    board: Billboard,
    ratings: Ratings | Store,
    accountant: SeasonAccountant,
    asked: Callable[..., AbstractContextManager[Any]],
    *,
    engine: Any = None,
    since: Any = None,
    retire: bool = False,
    progress: bool = False,
) -> Billboard:
    """As :meth:`Billboard.continue_training`; `asked` makes the private side of the rows."""
    estimator: Any = board.estimator
    notes: tuple[str, ...] = ()
    if since is not None:
        if isinstance(ratings, Store):
            raise InputError("A window is taken from ratings with their times; pass those, not a store.")
        ratings = split_by_time(ratings, since)[1]
        notes = (f"Of this week only ratings given since {since}, which was declared, count.",)
    last, plan = check(board, ratings, accountant, retire=retire)
    suffix = week_suffix(accountant)
    gate = LocalGate(accountant, plan, progress)
    with asked(ratings, accountant, engine) as users, gate, one_blas_thread():
        arrays = estimator.go_on(users, LabelledGate(gate, suffix=suffix), last)
    privacy = estimator.statement(ratings, accountant, notes)
    following = Billboard(estimator=estimator, domain=ratings.domain, arrays=arrays, privacy=privacy)
    accountant.wrote(following)
    return following


def check(
    board: Billboard, ratings: Ratings | Store, accountant: SeasonAccountant, *, retire: bool = False
) -> tuple[dict[str, Array], Plan]:
    """The last week's values over this week's catalogue, and the plan; refuse what can be before a charge."""
    estimator: Any = board.estimator
    if not isinstance(accountant, SeasonAccountant):
        raise InputError(
            "accountant must be a SeasonAccountant, as SeasonAccountant.following(model.privacy, ledger=...)"
            f" makes it, not {type(accountant).__name__}."
        )
    if not estimator.goes_on:
        raise InputError(f"{estimator.name} cannot go on from week to week; train it anew, or train both.")
    if accountant.after != board.privacy.week or board.privacy.week is None:
        raise InputError(
            "accountant is not of the week after this model; make it from the model's statement."
        )
    if not board.state:
        raise InputError("This model holds no state to go on from; train the season's first model anew.")
    accountant.check_model(board)
    estimator.check_rows(ratings, accountant)
    part = accountant.part()
    last = _moved(board, ratings.domain, retire)
    planned = estimator.weekly_releases(accountant.budget, ratings.domain, part)
    plan = planned.labelled(suffix=week_suffix(accountant))
    accountant.check(plan)
    return last, plan


def week_suffix(accountant: SeasonAccountant) -> str:
    """What follows the labels of a week's releases, so that they differ from all others."""
    return f", week {accountant.week.number}"


def _moved(board: Billboard, domain: Domain, retire: bool) -> dict[str, Array]:
    """All released values of a model over another catalogue; rows of new items are zero."""
    old = board.domain
    if (old.rating_range, old.likes) != (domain.rating_range, domain.likes):
        raise InputError(
            f"This model's ratings are from {old.low:g} to {old.high:g} and these are from {domain.low:g} to"
            f" {domain.high:g}; a season keeps its range."
        )
    same = old.items == domain.items
    position = np.arange(old.n_items) if same else old.index(domain.items)
    missing = old.n_items - int((position >= 0).sum())
    if missing and not retire:
        raise InputError(
            f"The catalogue lacks {missing} of the model's {old.n_items} items; pass --retire (retire=True)"
            " to drop them, or a catalogue that has them."
        )
    lists = (
        {} if board.lists is None else {f"lists/{name}": each for name, each in board.lists.arrays.items()}
    )
    arrays = dict(board.arrays) | lists | {f"state/{name}": each for name, each in board.state.items()}
    estimator: Any = board.estimator
    return dict(estimator.moved(arrays, position))


def rows_moved(arrays: Mapping[str, Array], position: Array) -> dict[str, Array]:
    """Arrays whose rows are items (`item_...`, `supported`, `history_weight`), over another catalogue."""
    return {name: at(each, position) if _by_item(name) else each for name, each in arrays.items()}


def at(rows: Array, position: Array) -> Array:
    """The rows at these positions, and zeros where a position is negative."""
    found = rows[np.maximum(position, 0)].copy()
    found[position < 0] = 0
    return found


def _by_item(name: str) -> bool:
    stem = name.rpartition("/")[2]
    return stem.startswith("item_") or stem in ("supported", "history_weight")
