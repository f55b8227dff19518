"""A plan: its cost and what it may come to, for a program and for a reader."""

from __future__ import annotations

import math
from typing import Any

from hushrec.checks import plural
from hushrec.cli import output
from hushrec.data import Domain
from hushrec.evaluation.forecast import Forecast, Range, error_of_part, forecast
from hushrec.privacy import Budget, Plan, Season

#: Up to so many users something is told of donors.
_FEW = 5_000
#: Jobs that ranges are known for, by their model.
JOBS = {"both": ("lists", "ratings"), "private-eigenrec": ("lists",), "private-als": ("ratings",)}


def ranges(
    budgets: dict[str, Budget],
    sizes: tuple[int, int, float],
    domain: Domain | None,
    spread: float | None,
) -> tuple[dict[str, Any], list[str]]:
    """Return what a configuration may come to, for a program and for a reader; each job with its budget."""
    n_users, n_items, each = sizes
    part, inside = _part(spread, domain), True
    lines: list[tuple[str, str]] = []
    found: dict[str, Any] = {}
    for job, budget in budgets.items():
        of = forecast(budget, n_users, n_items, each, spread=part)
        inside = inside and of.inside
        if job == "lists":
            lines += [
                ("ways in which tastes differ, of those a list can follow", _range(of.directions, "{:.0f}")),
                ("Recall@20 of lists over that of the most popular items", _range(of.lift, "{:.1f}")),
                ("Recall@20 of lists", _range(of.recall, "{:.2f}")),
            ]
            found |= {name: getattr(of, name)._asdict() for name in ("directions", "lift", "recall")}
        else:
            lines.append(("RMSE", _error(of, domain)))
            found["rmse_in_rating_ranges"] = of.rmse._asdict()
        if n_users <= _FEW:
            name = "donors_recall" if job == "lists" else "donors_rmse"
            found[name] = getattr(of, name)._asdict()
            with_donors = _range(getattr(of, name), "{:.2f}")
            lines.append(("  with a twentieth of the users as donors, times", with_donors))
    about = dict(zip(("n_users", "n_items", "ratings_per_user"), sizes))
    said = [
        "",
        f"What it may come to with {plural(n_users, 'user')}, {plural(n_items, 'item')}"
        f" and {each:g} ratings a user:",
        "",
        *(f"{name:<58}{ends}" for name, ends in lines),
        "",
        *output.folded(
            "From weak to strong tastes: what seven public tables came to at such a signal, and half as much"
            " again as these differ. Of tables that were left out six in seven lay within, with donors five;"
            " yours may not (docs/understand/how-many-users.md)."
        ),
    ]
    if spread is None and "ratings" in budgets:
        said += output.folded(
            "How widely people rate is not known here: --spread, the standard deviation of all ratings,"
            " narrows the range of the RMSE."
        )
    if n_users <= _FEW:
        said += output.folded(
            "Donors publish their ratings (docs/guides/public.md). With so few users item features help as"
            " much (--item-features at the training, docs/guides/item-features.md); these ranges are without."
        )
    if not inside:
        said += output.folded("No table had such a signal; these are the ranges of the nearest.")
    return {**about, "spread": spread, "inside": inside, **found}, said


def _part(spread: float | None, domain: Domain | None) -> float | None:
    """A spread in parts of the range."""
    return None if spread is None or domain is None else spread / (2 * domain.half_width)


def _range(ends: Range, form: str) -> str:
    low, high = map(form.format, ends)
    return low if low == high else f"{low} to {high}"


def _error(of: Forecast, domain: Domain | None) -> str:
    """An error in ratings, or in percent of a range that is not declared."""
    if domain is None:
        return _range(of.rmse, "{:.1%}") + " of the rating range"
    unit = 2 * domain.half_width
    return _range(Range(unit * of.rmse.low, unit * of.rmse.high), "{:.2f}")


def _shares(planned: Plan) -> list[float]:
    total = planned.mu**2
    return [release.mu**2 / total if math.isfinite(total) else math.nan for release in planned.releases]


def planned_dict(planned: Plan) -> dict[str, Any]:
    budget = planned.budget
    return {
        **budget.promise,
        "mu": budget.mu,
        "planned_epsilon": planned.epsilon,
        "planned_mu": planned.mu,
        "releases": [
            {**release.to_dict(), "share": share}
            for release, share in zip(planned.releases, _shares(planned))
        ],
    }


def plan_table(planned: Plan) -> str:
    """Every release with its noise, and what all cost together."""
    rows = [
        (
            release.label,
            type(release.mechanism).__name__,
            *map(output.short, (release.sensitivity, release.noise_sd, release.mu)),
            "-" if math.isnan(share) else f"{share:.1%}",
        )
        for release, share in zip(planned.releases, _shares(planned))
    ]
    header = ("release", "mechanism", "sensitivity", "noise sd", "mu", "share")
    budget = planned.budget
    return (
        f"{output.table([header, *rows], left={0, 1})}\n\nTogether: epsilon ="
        f" {output.short(planned.epsilon)} at delta = {budget.delta:g}"
        f" (unit: {budget.unit}, relation: {budget.relation})"
    )


def season_ranges(
    season: Season, share: float, sizes: tuple[int, int, float]
) -> tuple[dict[str, Any], list[str]]:
    """Errors week by week while nothing changes, for a program and for a reader.

    In a world that stands still a week's model is about as good as one that is trained once with all that the
    season has spent by then (`make bench PART=year`).
    """
    last, budget = season.weeks - 1, season.budget.part(share)
    weeks = sorted({round(last * step / 4) for step in range(5)})
    spent = {f"week {week}": season.first_share + week * season.fraction(1) for week in weeks}
    spent |= {"from scratch every week": 1 / season.weeks}
    found = {name: error_of_part(budget, part, *sizes[:2]) for name, part in spent.items()}
    lines = [
        "",
        f"RMSE over {season.weeks} weeks for one budget, over that of one training with all of it, while"
        " nothing changes",
        *(f"  {name:<56}{_range(of, '{:.3f}')}" for name, of in found.items()),
    ]
    return {name: of._asdict() for name, of in found.items()}, lines
