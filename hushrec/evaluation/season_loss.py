"""What error to expect week by week of a season, and of the other ways to spend its budget.

In a world that stands still, a week's model is about as good as one that is trained once with all that the
season has spent by then: that is what `make bench-year` finds, and what this interpolates
(:mod:`hushrec.evaluation.expected_loss`). Nothing here reads ratings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from hushrec.errors import InputError
from hushrec.evaluation.expected_loss import expected_loss
from hushrec.evaluation.intervals import Estimate
from hushrec.privacy import Season


class SeasonLoss(NamedTuple):
    """Expected RMSE of the weeks that are told, in units of the rating range.

    Attributes
    ----------
    weeks : tuple of int
    ours : tuple of Estimate
        Of the season's models.
    scratch : Estimate
        Of a model from scratch every week, each for a part of the same budget.
    never : Estimate
        Of one model with the whole budget in week 0, while nothing changes.
    """

    weeks: tuple[int, ...]
    ours: tuple[Estimate, ...]
    scratch: Estimate
    never: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        weeks = [{"week": week, **vars(each)} for week, each in zip(self.weeks, self.ours)]
        return {"weeks": weeks, "from_scratch": vars(self.scratch), "never_again": vars(self.never)}


def season_loss(
    season: Season,
    n_users: int,
    n_items: int,
    ratings_per_user: float = 50,
    *,
    share: float = 1.0,
    spread: float | None = None,
    every: bool = False,
) -> SeasonLoss:
    """Expected errors of planned models of ratings.

    Parameters
    ----------
    season : Season
    n_users, n_items, ratings_per_user, spread
        As of :func:`expected_loss`.
    share : float
        Part of mu squared that the model of ratings has.
    every : bool
        All weeks, not nine of them.
    """

    def at(part: float) -> Estimate:
        budget = season.budget.part(part * share)
        return expected_loss(budget, n_users, n_items, ratings_per_user, spread=spread).private_als

    last = season.weeks - 1
    weeks = tuple(range(last + 1)) if every else tuple(sorted({round(last * step / 8) for step in range(9)}))
    spent = [season.first_share + week * season.fraction(1) for week in weeks]
    return SeasonLoss(weeks, tuple(at(part) for part in spent), at(1 / season.weeks), at(1.0))


def draw(loss: SeasonLoss, path: Path, unit: float, label: str) -> None:
    """The picture of it: ours with its interval, and the other ways."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.4), dpi=120, layout="tight")
    axis = figure.subplots()
    middle = [unit * each.value for each in loss.ours]
    low, high = ([unit * getattr(each, end) for each in loss.ours] for end in ("low", "high"))
    axis.fill_between(loss.weeks, low, high, color="#0072B2", alpha=0.15)
    axis.plot(loss.weeks, middle, color="#0072B2", linewidth=2.4, label="this season")
    for way, each, colour in (
        ("from scratch every week", loss.scratch, "#D55E00"),
        ("once, if nothing changes", loss.never, "#009E73"),
    ):
        axis.axhline(unit * each.value, color=colour, label=way)
    axis.set_xlabel("week")
    axis.set_ylabel(label)
    axis.legend()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"The plot {path!r} cannot be written ({error}); pass FILE.png or FILE.svg."
        ) from None
