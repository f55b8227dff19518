"""What error to expect of a private model before there are any data.

Interpolated from runs on generated ratings: ``python -m benchmarks.plan_curves`` makes the table beside this
file, docs/understand/how-many-users.md shows it and compares it with real data. Nothing here reads ratings.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hushrec.errors import InputError
from hushrec.evaluation.intervals import Estimate
from hushrec.privacy import Budget
from hushrec.types import Array

TABLE = Path(__file__).with_name("expected_loss.json")
#: Tastes of the generated users; the first is the expected one, all of them span the interval.
TASTES = ("films", "faint", "strong")
#: Bandwidths, in powers of ten: signal or users, ratings per user, items. No study chose them.
_WIDTHS = np.array([0.25, 0.35, 0.5])
#: Losses are stored as whole numbers of this part of the rating range.
UNIT = 1e-4
#: Columns of the table; the last two hold a loss for each of its ``mu``.
COLUMNS = (
    "taste",
    "users",
    "items",
    "ratings_per_user",
    "non_private",
    "user_mean",
    "private_als",
    "item_bias",
)
#: Standard deviation of real ratings, in units of the range, whose errors are those of the generated ones
#: (these have 0.27, but users differ less in their means): chosen on MovieLens-100K, Jester and Coat. And the
#: part of a figure by which data of one spread may differ: chosen on all data sets of
#: docs/understand/how-many-users.md.
TYPICAL_SPREAD, _UNLIKENESS = 0.283, 0.09
#: The least and the most that ratings have whose spread nobody told: those data sets have 0.23 to 0.40, and
#: wider scales may be used less.
USUAL_SPREADS = 0.15, 0.42
#: No ratings within a range have a larger one.
_LARGEST_SPREAD = 0.5
#: What the table's digits lose of a logarithm.
_ROUNDING = 1e-4
#: Numbers of users that are tried when one asks how many are needed: those that were simulated.
_USERS = np.logspace(3, 6, 61)


@dataclass(frozen=True)
class ExpectedLoss:
    """Expected test RMSE of models, in units of the rating range.

    The intervals are those that the tastes and seeds of the generated data span.

    Attributes
    ----------
    non_private : Estimate
        The better of private ALS and ALS, both without noise.
    private_als, item_bias : Estimate
        At the given budget.
    user_mean : Estimate
        Every user's own mean, which needs no model.
    cost : Estimate
        ``private_als`` less ``non_private``.
    kept : Estimate
        Part of the gain of a non-private model over the user mean that private ALS keeps, in [0, 1]; 0 where
        it is no better than the user mean.
    inside : bool
        False where the question lies outside of what was simulated; the answer is then that of the border.
    """

    non_private: Estimate
    private_als: Estimate
    item_bias: Estimate
    user_mean: Estimate
    cost: Estimate
    kept: Estimate
    inside: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def expected_loss(
    budget: Budget,
    n_users: int,
    n_items: int,
    ratings_per_user: float = 50,
    *,
    spread: float | None = None,
) -> ExpectedLoss:
    """Expected test error of planned models on data that look like ratings of films.

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
        knowledge: errors are in proportion to it. Without it they are those of films (0.28), and their
        intervals hold what other spreads would make of them.

    Raises
    ------
    InputError
        A size is not a positive number, the spread is not possible, or the budget protects single ratings.
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
    if budget.unit != "user":
        raise InputError("Expected losses are known for budgets of users only (unit 'user').")
    mu = budget.mu / (1 if budget.relation == "add-remove" else 2)
    sizes = np.log10([n_users, ratings_per_user, n_items])
    found = [_of_taste(taste, mu, sizes) for taste in TASTES]
    spreads = USUAL_SPREADS if spread is None else (spread, spread)
    figures = {name: _span([taste[name] for taste in found]) for name in found[0]}
    for name, figure in figures.items():
        if name != "kept":
            figures[name] = _spread_out(figure, spread or TYPICAL_SPREAD, *spreads)
    figures["cost"] = replace(figures["cost"], low=max(figures["cost"].low, 0.0))
    figures["kept"] = Estimate(*np.clip(list(asdict(figures["kept"]).values()), 0.0, 1.0).tolist())
    return ExpectedLoss(**figures, inside=_is_inside(mu, sizes))


def users_needed(
    budget: Budget, n_items: int, ratings_per_user: float = 50, *, kept: float = 0.5
) -> int | None:
    """Least number of users (two digits) at which private ALS is expected to keep that part of the gain.

    1,000 where so many or fewer do, None where a million do not.
    """
    for n_users in _USERS:
        if expected_loss(budget, int(n_users), n_items, ratings_per_user).kept.value >= kept:
            return int(float(f"{n_users:.1e}"))
    return None


# ---------------------------------------------------------------------- from the table


@dataclass(frozen=True, eq=False)
class _Curves:
    """Runs of one taste: sizes (log10 of users, ratings per user, items) and losses."""

    sizes: Array  # (n_shapes, 3)
    levels: Array  # (n_shapes, 2): non-private, user mean
    signal: Array  # (n_shapes * n_mu, 3): log10 of mu * users / items, ratings per user, items
    excess: Array  # (n_shapes * n_mu, 2): private ALS and item bias, less non-private


@lru_cache
def _curves(taste: str) -> _Curves:
    table = json.loads(TABLE.read_text())
    rows = [row for run in table["runs"] if (row := dict(zip(COLUMNS, run)))["taste"] == taste]
    sizes = np.log10([[row["users"], row["ratings_per_user"], row["items"]] for row in rows])
    levels = UNIT * np.array([[row["non_private"], row["user_mean"]] for row in rows])
    signal, excess = [], []
    for row, (users, each, items), level in zip(rows, sizes, levels):
        for place, mu in enumerate(table["mu"]):
            signal.append([math.log10(mu) + users - items, each, items])
            excess.append([UNIT * row[name][place] - level[0] for name in ("private_als", "item_bias")])
    return _Curves(sizes, levels, np.array(signal), np.array(excess))


def _of_taste(taste: str, mu: float, sizes: Array) -> dict[str, tuple[float, float]]:
    """Each figure and its standard error, for one taste."""
    curves = _curves(taste)
    users, each, items = np.clip(sizes, curves.sizes.min(axis=0), curves.sizes.max(axis=0))
    (free, mean), (free_error, mean_error) = _smooth(
        np.array([users, each, items]), curves.sizes, curves.levels
    )
    signal = np.clip(
        math.log10(mu) + sizes[0] - sizes[2], curves.signal[:, 0].min(), curves.signal[:, 0].max()
    )
    (private, bias), (private_error, bias_error) = _smooth(
        np.array([signal, each, items]), curves.signal, curves.excess
    )
    private = max(private, 0.0)
    if math.isinf(mu):
        private = private_error = 0.0
    gain = mean - free
    return {
        "non_private": (free, free_error),
        "private_als": (free + private, math.hypot(free_error, private_error)),
        "item_bias": (free + bias, math.hypot(free_error, bias_error)),
        "user_mean": (mean, mean_error),
        "cost": (private, private_error),
        "kept": (1 - private / gain, private_error / gain),
    }


def _smooth(at: Array, places: Array, values: Array) -> tuple[Array, Array]:
    """Local linear regression (a Gaussian kernel), and the spread of the runs around it."""
    away = (places - at) / _WIDTHS
    squares = (away**2).sum(axis=1)
    weight = np.exp(-0.5 * (squares - squares.min()))
    design = np.column_stack([np.ones(len(away)), away])
    weighted = design * weight[:, None]
    ridge = np.diag([0.0, 1.0, 1.0, 1.0]) * 0.01 * weight.sum()
    fitted = np.linalg.solve(design.T @ weighted + ridge, weighted.T @ values)
    spread = np.sqrt(weight @ (values - design @ fitted) ** 2 / weight.sum())
    return fitted[0], spread


def _span(estimates: list[tuple[float, float]]) -> Estimate:
    """The first figure, and the least and the largest of all, each with its error."""
    low = min(value - error for value, error in estimates)
    high = max(value + error for value, error in estimates)
    return Estimate(float(estimates[0][0]), float(low), float(high))


def _spread_out(figure: Estimate, value: float, low: float, high: float) -> Estimate:
    """The figure of generated ratings, at another spread of ratings, and at all between two."""
    least, most = low * (1 - _UNLIKENESS), high * (1 + _UNLIKENESS)
    return Estimate(
        *(np.array([figure.value * value, figure.low * least, figure.high * most]) / TYPICAL_SPREAD).tolist()
    )


def _is_inside(mu: float, sizes: Array) -> bool:
    curves = _curves(TASTES[0])
    within = (sizes >= curves.sizes.min(axis=0) - _ROUNDING) & (sizes <= curves.sizes.max(axis=0) + _ROUNDING)
    signal = math.log10(mu) + sizes[0] - sizes[2]
    least, most = curves.signal[:, 0].min() - _ROUNDING, curves.signal[:, 0].max() + _ROUNDING
    return bool(within.all() and signal >= least and (signal <= most or math.isinf(mu)))
