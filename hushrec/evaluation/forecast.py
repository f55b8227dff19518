"""Forecasts of a planned training, before there are any data: ranges of what it was on real tables.

Seven public tables, whole and with fewer users, were trained on at many epsilons: ``python -m
benchmarks.forecasts`` makes the file of figures beside this module, and judges the ranges on tables that are
left out (docs/understand/how-many-users.md). Nothing here reads ratings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hushrec.errors import InputError
from hushrec.privacy import Budget
from hushrec.types import Array

TABLE = Path(__file__).with_name("forecast.json")
#: A range reaches as far as the tables differ, times this, about their middle.
WIDER = 1.5
#: Width, in powers of ten of the signal or of the rows, within which a table's runs are averaged. This and
#: what follows were chosen on the tables.
_NEAR = 0.15
#: Recall of 20 items falls with the number of items to this power.
_ITEMS_POWER = 0.35
#: Errors, in units of the ratings' spread, are larger by this for each factor e of ratings a user where the
#: signal is small, and by half of it at this one.
_OWN_MEANS, _HALFWAY = 0.03, 10.0
#: Directions may be none where they were on a table with so much less (a factor).
_NONE_WITHIN = 3.0
#: No ratings within a range have a larger spread, in units of the range.
_LARGEST_SPREAD = 0.5
#: Recall is not taken for smaller.
_LEAST_RECALL = 0.003

_Columns = dict[str, Array]


class Run(NamedTuple):
    """A training on a public table: what was declared, and means over draws of what it came to.

    Attributes
    ----------
    table : str
    n_users, n_items, ratings_per_user, mu : float
    spread : float
        Standard deviation of the ratings, in units of the range, as ``rmse`` is.
    directions, recall, popular, rmse : float
        Of private-eigenrec (directions and Recall@20), of the most popular items, and of private-als; for
        users who took no part in the training.
    donors_recall, donors_rmse : float
        Recall and error with a twentieth of the users as donors, in parts of those without.
    """

    table: str
    n_users: float
    n_items: float
    ratings_per_user: float
    mu: float
    spread: float
    directions: float = math.nan
    recall: float = math.nan
    popular: float = math.nan
    rmse: float = math.nan
    donors_recall: float = math.nan
    donors_rmse: float = math.nan


class Range(NamedTuple):
    """A range from the weak to the strong tastes of the public tables."""

    low: float
    high: float


@dataclass(frozen=True)
class Forecast:
    """The outcome that a planned training may have.

    Attributes
    ----------
    directions : Range
        Directions of taste that stand out of the noise.
    recall, lift : Range
        Recall@20 of private-eigenrec, and in parts of that of the most popular items for the same budget.
    rmse : Range
        Of private-als, in units of the rating range.
    donors_recall, donors_rmse : Range
        Recall and error with a twentieth of the users as donors, in parts of those without.
    inside : bool
        False where no table came near to this signal; then the ranges are those of the nearest.
    """

    directions: Range
    recall: Range
    lift: Range
    rmse: Range
    donors_recall: Range
    donors_rmse: Range
    inside: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {name: each._asdict() if name != "inside" else each for name, each in vars(self).items()}


def forecast(
    budget: Budget,
    n_users: int,
    n_items: int,
    ratings_per_user: float = 50,
    *,
    spread: float | None = None,
    runs: Sequence[Run] | None = None,
) -> Forecast:
    """Tell what planned models reached on public tables at such a signal, half as wide again as these differ.

    Parameters
    ----------
    budget : Budget
        Of users. Its ``mu`` counts, halved under replace, where sensitivities are up to twice as large.
    n_users, n_items : int
        Users in training and items in the catalogue.
    ratings_per_user : float
        Mean number of ratings.
    spread : float, optional
        Standard deviation of all ratings, in units of the rating range, above 0 and at most 0.5, from public
        knowledge: errors are in proportion to it. Without it they span the tables' own.
    runs : sequence of Run, optional
        To judge by other runs than those of the seven tables.

    Raises
    ------
    InputError
        A size is not a positive number, the spread is not possible, or the budget is without privacy or
        protects single ratings.
    """
    for name, size in (
        ("n_users", n_users),
        ("n_items", n_items),
        ("ratings_per_user", ratings_per_user),
    ):
        if not 0 < size < math.inf:
            raise InputError(f"{name} must be a positive number, not {size!r}.")
    if spread is not None and not 0 < spread <= _LARGEST_SPREAD:
        raise InputError(
            "spread must be above 0 and at most half of the rating range: no ratings within it vary more.",
            parameter="spread",
        )
    if budget.unit != "user" or not budget.private:
        raise InputError("What may come of it is known for private budgets of users only (unit 'user').")
    mu = budget.mu / (1 if budget.relation == "add-remove" else 2)
    here = _columns([Run("", n_users, n_items, ratings_per_user, mu, 1.0 if spread is None else spread)])
    tables = _by_table(tuple(runs) if runs is not None else _measured())
    if spread is None:
        error = _spanned(_signal, here, tables, lambda of: of["rmse"])
    else:
        beyond = _spanned(_signal, here, tables, lambda of: of["rmse"] / of["spread"] - _own_means(of))
        error = Range(*(spread * (end + float(_own_means(here)[0])) for end in beyond))
    recall = _spanned(_signal, here, tables, lambda of: _log(of, "recall") + _of_items(of))
    lift = _spanned(_rows, here, tables, lambda of: _log(of, "recall") - _log(of, "popular"))
    judged = [{name: each[np.isfinite(of["donors_rmse"])] for name, each in of.items()} for of in tables]
    judged = [of for of in judged if len(of["mu"])]
    more = _spanned(_donated, here, judged, lambda of: np.log(of["donors_recall"]))
    less = _spanned(_donated, here, judged, lambda of: np.log(of["donors_rmse"]))
    nearest = min(float(np.abs(_signal(of) - _signal(here)).min()) for of in tables)
    return Forecast(
        _directions(here, tables),
        Range(*(min(1.0, math.exp(end - float(_of_items(here)[0]))) for end in recall)),
        Range(*map(math.exp, lift)),
        error,
        Range(*map(math.exp, more)),
        Range(*map(math.exp, less)),
        nearest <= 2 * _NEAR,
    )


def error_of_part(budget: Budget, part: float, n_users: int, n_items: int) -> Range:
    """Tell what the error with a part of a budget, of mu squared, is in parts of that with all of it.

    At least 1; on each of the public tables, and half as much again as these differ.
    """
    of = [budget.mu, budget.part(part).mu]
    whole, less = (_columns([Run("", n_users, n_items, 1, mu, 1)]) for mu in of)
    logs = [
        _at(_signal, here, _by_table(_measured()), lambda of: np.log(of["rmse"])) for here in (less, whole)
    ]
    return Range(*(max(1.0, math.exp(end)) for end in _wider(logs[0] - logs[1])))


def _spanned(
    by: Callable[[_Columns], Array], here: _Columns, tables: list[_Columns], of: Callable[[_Columns], Array]
) -> Range:
    """Return the span of what each table has at the same place, and half as much again."""
    return _wider(_at(by, here, tables, of))


def _at(
    by: Callable[[_Columns], Array], here: _Columns, tables: list[_Columns], of: Callable[[_Columns], Array]
) -> Array:
    """Each table's mean about a place, or at the end of the table that is nearest to it."""
    means = []
    for table in tables:
        away = np.linalg.norm(np.atleast_2d(by(table) - by(here)), axis=0) / _NEAR
        weight = np.exp(-0.5 * (away**2 - away.min() ** 2))
        means.append(weight @ of(table) / weight.sum())
    return np.array(means)


def _wider(means: Array) -> Range:
    middle, half = (means.max() + means.min()) / 2, WIDER * np.ptp(means) / 2
    return Range(float(middle - half), float(middle + half))


def _directions(here: _Columns, tables: list[_Columns]) -> Range:
    """Return a range from none, or one, to as many as any table found, by the root of its rows."""
    rows = 10 ** float(_rows(here)[0])
    most = max(float((of["directions"] / 10 ** (_rows(of) / 2)).max()) for of in tables)
    none = max(float((10 ** _rows(of))[of["directions"] < 0.5].max(initial=0.0)) for of in tables)
    high = float(min(round(WIDER * most * math.sqrt(rows)), here["n_items"][0] - 1))
    return Range(min(float(rows > _NONE_WITHIN * none), high), high)


def _rows(of: _Columns) -> Array:
    """Log10 of mu times all ratings."""
    return np.log10(of["mu"] * of["n_users"] * of["ratings_per_user"])


def _signal(of: _Columns) -> Array:
    """Log10 of mu times the number of users, over the root of the number of items."""
    return np.log10(of["mu"] * of["n_users"] / np.sqrt(of["n_items"]))


def _donated(of: _Columns) -> Array:
    """The signal of the rows, and of those of donors, who need no mu."""
    return np.stack([_rows(of), np.log10(of["n_users"] * of["ratings_per_user"])])


def _own_means(of: _Columns) -> Array:
    """Return what errors owe to histories whose means tell less of a user."""
    return _OWN_MEANS * np.log(of["ratings_per_user"]) / (1 + np.sqrt(10 ** _signal(of) / _HALFWAY))


def _of_items(of: _Columns) -> Array:
    """Return what Recall owes to the number of items, in logarithms."""
    return _ITEMS_POWER * np.log(of["n_items"])


def _log(of: _Columns, name: str) -> Array:
    return np.log(np.maximum(of[name], _LEAST_RECALL))


def _columns(runs: Sequence[Run]) -> _Columns:
    return {name: np.array([getattr(run, name) for run in runs], dtype=float) for name in Run._fields[1:]}


def _by_table(runs: tuple[Run, ...]) -> list[_Columns]:
    names = dict.fromkeys(run.table for run in runs)
    return [_columns([run for run in runs if run.table == name]) for name in names]


@lru_cache
def _measured() -> tuple[Run, ...]:
    return tuple(Run(*row) for row in json.loads(TABLE.read_text())["runs"])
