"""From values to output: everything that the commands print."""

from __future__ import annotations

import json as _json
import math
import re
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushrec.billboard import Billboard
    from hushrec.data import Domain
    from hushrec.evaluation.taste import Taste
    from hushrec.privacy import Budget, Plan, Season, SeasonSummary
    from hushrec.privacy.ledger import RunSummary
    from hushrec.serving import Algorithm


def text(*parts: str) -> None:
    """Print for a reader, who may wait at the other end of a pipe."""
    print("\n".join(parts), flush=True)


def json(payload: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    print(_json.dumps(plain(payload), allow_nan=False, ensure_ascii=False))


def result(as_json: bool, payload: Mapping[str, Any], *parts: str) -> None:
    """Print what a command found, for a program or for a reader."""
    if as_json:
        json(payload)
    else:
        text(*parts)


def note(line: str) -> None:
    """Tell beside the output."""
    print(line, file=sys.stderr)


#: Of the release that tells whether anybody was found.
_COUNT = "number of users"


def first_use() -> None:
    """Say what takes seconds where no kernel was compiled before: rows decide nothing of it."""
    from hushrec.kernels.first_use import SAID, cold

    if cold():
        note(SAID)


def plain(value: Any) -> Any:
    """JSON values: infinity is the string "inf", NaN is null, NumPy scalars are numbers, ids are text."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def about(billboard: Billboard, brief: bool = False) -> str:
    """Settings, domain and privacy statement, for a reader; in brief without settings and single releases."""
    domain = billboard.domain
    rows = "likes" if domain.likes else f"ratings from {domain.low:g} to {domain.high:g}"
    return "\n".join(
        [
            f"Domain:     {domain.n_items:,} items, {rows}, at most {domain.max_ratings_per_user:,} per user",
            *paragraph(taste_of(billboard).text()),
            "",
            billboard.privacy.text(brief),
            *([] if brief else ["", settings_line(billboard.estimator)]),
        ]
    )


def trained(billboard: Billboard, target: Path, verb: str, verbose: bool, as_json: bool) -> None:
    """What a training made, and where the rest of it is told."""
    more = [] if verbose else [f"Settings and each release: hushrec report {target}"]
    if all(release.label != _COUNT for release in billboard.privacy.releases):
        more.append("Nothing here tells whether the rows were read as you mean them: hushrec check does.")
    found = {"file": str(target), **described(billboard)}
    first = f"{verb} {billboard.estimator.name} and wrote {target}"
    result(as_json, found, first, about(billboard, brief=not verbose), *more)


def summary(estimator: Algorithm) -> str:
    """What a model is, in the words of its class."""
    first = (getdoc(type(estimator)) or "").partition("\n\n")[0]
    return " ".join(re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", first).replace("``", "").split())


def taste_of(billboard: Billboard) -> Taste:
    """What a model learned of personal taste."""
    from hushrec.evaluation.taste import taste

    return taste(billboard, billboard.privacy.budget)


def paragraph(words: str) -> list[str]:
    """A paragraph, if there is anything in it."""
    return ["", textwrap.fill(words, 100)] if words else []


def settings_line(estimator: Algorithm) -> str:
    settings = ", ".join(
        f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in estimator.hyper_parameters().items()
    )
    return textwrap.fill(settings or "none", 100, initial_indent="Settings:   ", subsequent_indent=" " * 12)


def described(billboard: Billboard) -> dict[str, Any]:
    domain = billboard.domain
    return {
        "model": billboard.estimator.name,
        "hyper_parameters": billboard.estimator.hyper_parameters(),
        "n_items": domain.n_items,
        "rating_range": [domain.low, domain.high],
        "likes": domain.likes,
        "max_ratings_per_user": domain.max_ratings_per_user,
        "taste": taste_of(billboard).to_dict(),
        "privacy": billboard.privacy.to_dict(),
    }


def warn_of_publishing(billboard: Billboard, path: str) -> None:
    """Say of a model that nothing protects the ratings in it, before anybody may have its file."""
    from hushrec.privacy.statement import warning_of_publishing

    if warning := warning_of_publishing(billboard.privacy, path):
        note(warning)


def warn_of_the_number_of_users(billboard: Billboard, declared: int | None) -> None:
    """Say what the declared or released number of users tells of the run; nothing else is looked at."""
    from hushrec.evaluation.runs import told_from_nobody

    released = [each for each in billboard.privacy.releases if each.label == _COUNT]
    estimator = getattr(billboard.estimator, "ratings", billboard.estimator)
    number = declared if declared is not None else getattr(estimator, "n_users", None)
    if number is None:
        return
    if released and declared is None and not told_from_nobody(number, released[0].noise_sd):
        note(
            f"Warning: the released number of users, {number:,}, cannot be told from 0:"
            " `hushrec check` shows what became of the rows.",
        )
    delta = billboard.privacy.budget.delta
    if billboard.privacy.private and delta * number >= 1:
        note(
            f"Warning: delta = {delta:g} is not below one over the number of users, so the promise allows"
            " somebody's rows to be told outright; 1e-6 or less is usual.",
        )


def table(rows: Sequence[Sequence[str]], left: Collection[int]) -> str:
    """Columns of their own widths, under the first row; those in ``left`` begin at the left."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    sides = ["<" if at in left else ">" for at in range(len(widths))]
    cells = [[f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths)] for row in rows]
    return "\n".join("  ".join(row).rstrip() for row in cells)


def growth(history: list[RunSummary]) -> str:
    """A line a run: what all runs so far cost together."""
    if not history:
        return ""
    rows = [
        (str(number), str(run.time), str(run.charges), f"{run.mu:.4g}", f"{run.epsilon:.6g}")
        for number, run in enumerate(history, 1)
    ]
    return "\n\n" + table([(" run", "time (UTC)", "charges", "mu so far", "epsilon so far"), *rows], left={1})


def expected(
    budget: Budget,
    n_users: int,
    n_items: int,
    ratings_per_user: float,
    domain: Domain | None,
    spread: float | None = None,
    model: str = "private-als",
) -> tuple[dict[str, Any], str]:
    """Expected errors of a configuration, for a program and for a reader."""
    from hushrec.evaluation.expected_loss import expected_loss, users_needed

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
        f"Expected test error with {n_users:,} users, {n_items:,} items,"
        f" {ratings_per_user:g} ratings a user:",
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
        f"Privacy costs {loss.cost.value:.1%} of the range ({loss.cost.low:.1%} to {loss.cost.high:.1%}),"
        f" that is {relative:.0%} of the error without privacy; of what a",
        f"model gains over the users' own means {model} {kept}. For half of the gain it",
        f"takes {_count(half)} users, for nine tenths {_count(most)}.",
    ]
    if loss.item_bias.value < loss.private_als.value:
        lines.append("item-bias is expected to be the better model here: pass --model item-bias.")
    lines += [
        "In brackets: the range from weaker to stronger tastes of the users, with what chance adds"
        " (docs/how-many-users.md).",
    ]
    lines += _limits(spread is None, loss.inside)
    return found, "\n".join(lines)


def _limits(spread_unknown: bool, inside: bool) -> list[str]:
    """What an expected error does not know."""
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
            for release, share in zip(planned.releases, _shares(planned), strict=True)
        ],
    }


def plan_table(planned: Plan) -> str:
    """Every release with its noise, and what all cost together."""
    rows = [
        (
            release.label,
            type(release.mechanism).__name__,
            *map(short, (release.sensitivity, release.noise_sd, release.mu)),
            "-" if math.isnan(share) else f"{share:.1%}",
        )
        for release, share in zip(planned.releases, _shares(planned), strict=True)
    ]
    header = ("release", "mechanism", "sensitivity", "noise sd", "mu", "share")
    budget = planned.budget
    return (
        f"{table([header, *rows], left={0, 1})}\n\nTogether: epsilon = {short(planned.epsilon)} at delta ="
        f" {budget.delta:g} (unit: {budget.unit}, relation: {budget.relation})"
    )


def short(number: float | None) -> str:
    return "-" if number is None else f"{number:.4g}"


def recommendations(
    user: str, known: bool, rows: list[dict[str, Any]], billboard: Billboard, as_json: bool
) -> None:
    """One user's list, and what the model learned of taste."""
    domain, taste = billboard.domain, taste_of(billboard)
    which = "likes" if domain.likes else f"ratings from {domain.low:g} to {domain.high:g}"
    items = [{key: row[key] for key in ("rank", "item", "score")} for row in rows]
    what = (
        ""
        if known
        else f", who has no {which} of items in the catalogue in the history: the list for newcomers"
    )
    cells = [(str(each["rank"]), str(each["item"]), f"{each['score']:.3f}") for each in items]
    listed = table([("rank", "item", "score"), *cells], left={1})
    found = {"user": user, "known": known, "items": items, "taste": taste.to_dict()}
    about = "The higher the score, the better the match. The list is computed from this user's own ratings."
    result(as_json, found, f"For user {user} alone{what}", listed, about, *paragraph(taste.text()))


def audit(found: Any, plot: Path | None, as_json: bool) -> None:
    """What an audit found, with its plot where one is asked for."""
    if plot is not None:
        from hushrec.audit.plots import save_plot

        save_plot(found, plot)
    result(as_json, found.to_dict(), found.text(), *([f"Plot: {plot}"] if plot else []))


def seasons_together(seasons: Sequence[SeasonSummary]) -> tuple[dict[str, Any] | None, list[str]]:
    """What several seasons of a data set promise together; nothing where there is one."""
    from hushrec.privacy.season import epsilon_together

    if len(seasons) < 2:
        return None, []
    budget = seasons[-1].season.budget
    epsilon = epsilon_together([each.season.budget for each in seasons], budget.delta)
    text = f"All {len(seasons)} seasons together, for whoever is in all of them: {budget.spell(epsilon)}."
    return {"epsilon": epsilon, "delta": budget.delta}, paragraph(text)


def season_expected(
    season: Season,
    sizes: tuple[int, int, float],
    share: float,
    domain: Domain | None,
    spread: float | None,
    plot: Path | None,
) -> tuple[dict[str, Any], list[str]]:
    """Expected errors week by week, for a program and for a reader."""
    from hushrec.evaluation.season_loss import draw, season_loss

    unit = 1.0 if domain is None else 2 * domain.half_width
    part = None if spread is None else spread / unit
    loss = season_loss(season, *sizes, share=share, spread=part)
    heading = "RMSE in rating ranges" if domain is None else "RMSE"
    lines = ["", f"Expected {heading} over {season.weeks} weeks for one budget, while nothing changes"]
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
