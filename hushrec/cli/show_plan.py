"""What a plan costs, and its errors on generated ratings, for a program and for a reader."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hushrec.cli import show
from hushrec.data import Domain
from hushrec.evaluation.expected_loss import expected_loss, users_needed
from hushrec.evaluation.season_loss import draw, season_loss
from hushrec.privacy import Budget, Plan, Season


def expected(
    budget: Budget,
    n_users: int,
    n_items: int,
    ratings_per_user: float,
    domain: Domain | None,
    spread: float | None = None,
    model: str = "private-als",
) -> tuple[dict[str, Any], str]:
    """Errors of a configuration on generated ratings, for a program and for a reader."""
    part = None if spread is None or domain is None else spread / (2 * domain.half_width)
    loss = expected_loss(budget, n_users, n_items, ratings_per_user, spread=part)
    half, most = (users_needed(budget, n_items, ratings_per_user, kept=kept) for kept in (0.5, 0.9))
    found = {
        "n_users": n_users,
        "n_items": n_items,
        "ratings_per_user": ratings_per_user,
        "spread": spread,
        "rmse_in_rating_ranges": loss.to_dict(),
        "users_to_keep_half_of_the_gain": half,
        "users_to_keep_nine_tenths": most,
    }
    rows = [
        ("no privacy", loss.non_private),
        (model, loss.private_als),
        ("item-bias", loss.item_bias),
        ("each user's own mean, no model", loss.user_mean),
    ]
    on = "" if domain is None else f"   on {domain.low:g} to {domain.high:g}"
    lines = [
        f"Error on generated ratings of {n_users:,} users, {n_items:,} items, {ratings_per_user:g} ratings"
        " a user (yours may differ):",
        "",
        f"{'RMSE':30}  {'% of the rating range':>23}{on}",
    ]
    for name, each in rows:
        of_range = f"{each.value:.1%} ({each.low:.1%} to {each.high:.1%})"
        units = "" if domain is None else f"   {2 * domain.half_width * each.value:.3f}"
        lines.append(f"{name:30}  {of_range:>23}{units}")
    kept = f"keeps {loss.kept.value:.0%} ({loss.kept.low:.0%} to {loss.kept.high:.0%})"
    relative = loss.private_als.value / loss.non_private.value - 1
    lines += [
        "",
        *show.folded(
            f"There privacy costs {loss.cost.value:.1%} of the range ({loss.cost.low:.1%} to"
            f" {loss.cost.high:.1%}), that is {relative:.0%} of the error without privacy; of what a model"
            f" gains over the users' own means {model} {kept}. Half of the gain was kept from {_count(half)}"
            f" users on, nine tenths from {_count(most)}."
        ),
    ]
    if loss.item_bias.value < loss.private_als.value:
        lines.append("There item-bias had the smaller error (--model item-bias).")
    lines += show.folded(
        "In brackets: the range from weaker to stronger tastes of the users, with what chance adds"
        " (docs/understand/how-many-users.md)."
    )
    for limit in _limits(spread is None, loss.inside):
        lines += show.folded(limit)
    return found, "\n".join(lines)


def _limits(spread_unknown: bool, inside: bool) -> list[str]:
    """What such an error does not know."""
    lines = []
    if spread_unknown:
        lines.append(
            "How widely people rate is not known here: --spread, the standard deviation of all ratings,"
            " narrows the brackets."
        )
    if not inside:
        lines.append(
            "Nothing of this size was simulated: the figures are those of the nearest size that was."
        )
    return lines


def _count(number: int | None) -> str:
    if number is None:
        return "more than 1,000,000"
    return "no more than 1,000" if number <= 1000 else f"about {number:,}"


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
            *map(show.short, (release.sensitivity, release.noise_sd, release.mu)),
            "-" if math.isnan(share) else f"{share:.1%}",
        )
        for release, share in zip(planned.releases, _shares(planned))
    ]
    header = ("release", "mechanism", "sensitivity", "noise sd", "mu", "share")
    budget = planned.budget
    return (
        f"{show.table([header, *rows], left={0, 1})}\n\nTogether: epsilon ="
        f" {show.short(planned.epsilon)} at delta = {budget.delta:g}"
        f" (unit: {budget.unit}, relation: {budget.relation})"
    )


def season_expected(
    season: Season,
    sizes: tuple[int, int, float],
    share: float,
    domain: Domain | None,
    spread: float | None,
    plot: Path | None,
) -> tuple[dict[str, Any], list[str]]:
    """Errors on generated ratings week by week, for a program and for a reader."""
    unit = 1.0 if domain is None else 2 * domain.half_width
    part = None if spread is None else spread / unit
    loss = season_loss(season, *sizes, share=share, spread=part)
    heading = "RMSE in rating ranges" if domain is None else "RMSE"
    lines = [
        "",
        f"{heading} on generated ratings over {season.weeks} weeks for one budget, while nothing changes",
    ]
    rows = [(f"week {week}", each) for week, each in zip(loss.weeks, loss.ours)]
    rows += [("from scratch every week", loss.scratch), ("once in week 0, never again", loss.never)]
    lines += [
        f"  {name:<30}{unit * each.value:>8.3f}   ({unit * each.low:.3f} to {unit * each.high:.3f})"
        for name, each in rows
    ]
    if plot is not None:
        draw(season_loss(season, *sizes, share=share, spread=part, every=True), plot, unit, heading)
        lines += ["", f"Plot: {plot}"]
    return loss.to_dict(), lines
