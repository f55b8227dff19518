"""A plan as JSON and as text: its privacy cost, and results on public tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hushrec.cli import output
from hushrec.evaluation.measured import Measured
from hushrec.privacy import Plan


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
            for release, share in zip(planned.releases, _shares(planned), strict=True)
        ],
    }


def plan_table(planned: Plan) -> str:
    """The squares of mu add up to the budget's."""
    rows = [
        (
            release.label,
            type(release.mechanism).__name__,
            *map(output.short, (release.sensitivity, release.noise_sd, release.mu)),
            "-" if math.isnan(share) else f"{share:.1%}",
        )
        for release, share in zip(planned.releases, _shares(planned), strict=True)
    ]
    header = ("release", "mechanism", "sensitivity", "noise sd", "mu", "of mu^2")
    return output.table([header, *rows], left={0, 1})


def measured_table(rows: Sequence[Measured]) -> list[str]:
    ranges = [
        "likes" if row.rating_range is None else "{:g} to {:g}".format(*row.rating_range) for row in rows
    ]
    lines = [
        ["", *(row.table for row in rows)],
        ["users", *(f"{row.n_users:,}" for row in rows)],
        ["items", *(f"{row.n_items:,}" for row in rows)],
        ["ratings per user", *(f"{row.ratings_per_user:.0f}" for row in rows)],
        ["rating range", *ranges],
        ["epsilon", *(f"{row.epsilon:g}" for row in rows)],
        ["Recall@20 of lists", *(f"{row.recall:.3f}" for row in rows)],
        ["  most popular items", *(f"{row.recall_popular:.3f}" for row in rows)],
        ["  with 5% donors", *(f"{row.recall_donors:.3f}" for row in rows)],
        ["RMSE of predictions", *(_error(row.rmse) for row in rows)],
        ["  item means", *(_error(row.rmse_means) for row in rows)],
        ["  with 5% donors", *(_error(row.rmse_donors) for row in rows)],
    ]
    return output.table(lines, left={0}).splitlines()


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
