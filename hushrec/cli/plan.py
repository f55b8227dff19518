"""``hushrec plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.algorithms import Both, Estimator
from hushrec.checks import settings_of
from hushrec.cli import show, show_model, show_plan
from hushrec.cli.options import Count, Force, Job, Json, Model, Plot, Promise, Users, model_for
from hushrec.cli.plots import plot_file
from hushrec.cli.tables import Size
from hushrec.data import Domain
from hushrec.errors import InputError
from hushrec.evaluation.taste import NOT_FORETOLD
from hushrec.privacy import Season
from hushrec.registry import best
from hushrec.training.run import choose, known, needs_user_count


def plan(
    *,
    job: Job | None = None,
    model: Model | None = None,
    n_users: Users | None = None,
    ratings_per_user: Annotated[float, Parameter(validator=Number(gte=1))] = 50.0,
    spread: float | None = None,
    season: Count | None = None,
    first_share: float = 0.5,
    plot: Plot | None = None,
    force: Force = False,
    promise: Promise,
    size: Size = Size(),
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Show the noise of a configuration, and its error on generated ratings, without any data.

    mu is the cost of a release: the squares of all releases' mu add up to the square of the budget's, and
    share is a release's part of that sum. Your own error may differ: docs/understand/how-many-users.md sets
    generated beside real ratings. Of personal lists nothing can be said before training.

      hushrec plan --users 50000 --items 2000 --epsilon 1 --delta 1e-6
      hushrec plan --epsilon 1 --delta 1e-6 --rating-range 1 5 --catalogue items.txt --users 6000
      hushrec plan --epsilon 1 --delta 1e-6 --rating-range 1 10 --items 9000 --users 6000 --spread 1.8
      hushrec plan --season 52 --users 6000 --items 4000 --epsilon 5 --delta 1e-6 --plot season.png
      hushrec plan --model item-bias --epsilon 1 --delta 1e-6 --rating-range 1 5 --catalogue items.txt

    Parameters
    ----------
    ratings_per_user
        Mean number of ratings that a user has, for the error.
    spread
        Standard deviation of all ratings, from public knowledge such as a published data set of the same
        kind. It moves the error only; without it the intervals are wider.
    season
        Weekly trainings for which the budget is: the error week by week, while nothing changes.
    first_share
        Part of the budget for week 0 of a season.
    """
    budget = promise.budget()
    model = model_for(model, job, False, budget.private)
    domain, n_items = size.declared(likes=known(model).scores == "likes")
    simulated = model in ("both", "private-als", "item-bias") and budget.unit == "user" and not settings
    if n_users is None and (needs_user_count(model) or domain is None):
        raise InputError(
            f"{model} is tuned to the number of users: say for how many, for example --users 6000."
            if needs_user_count(model)
            else "The error depends on the number of users: say for how many, for example --users 6000."
        )
    _check(domain is not None, simulated, spread is not None and size.rating_range is None)
    if plot is not None and season is None:
        raise InputError("--plot draws a season; pass --season too, for example --season 52.")
    target = plot_file(plot, force)
    result: dict[str, Any] = {"model": model}
    text = [f"Model:      {model}", f"Budget:     {budget}, mu = {show.short(budget.mu)}"]
    if not budget.private:
        text[0] += "   NOT PRIVATE"
    placed = domain or Domain(tuple(range(n_items)), rating_range=(0, 1))
    estimator = choose(model, budget, placed, n_users=n_users, settings=settings)
    if domain is not None:
        planned = estimator.plan(budget, domain)
        result |= {"hyper_parameters": settings_of(estimator), **show_plan.planned_dict(planned)}
        text[1:1] = [show_model.settings_line(estimator)]
        text += ["", show_plan.plan_table(planned)]
    if budget.private and model in (best("both", True), best("lists", True)):
        text += show.paragraph(NOT_FORETOLD)
    if simulated and n_users is not None:
        part, named = budget, "private-als"
        if isinstance(estimator, Both):
            part, named = estimator.part(budget, "ratings"), "both"
            text += ["", f"Ratings have {1 - estimator.lists_share:.0%} of the budget, lists the rest."]
        result["expected"], expected = show_plan.expected(
            part, n_users, n_items, ratings_per_user, domain, spread, named
        )
        text += ["", expected]
    if season is not None:
        sizes = None if n_users is None or not simulated else (n_users, n_items, ratings_per_user)
        lines = _season(Season(budget, season, first_share), estimator, sizes, domain, spread, target)
        result["season"], text = lines[0], text + lines[1]
    show.result(as_json, result, *text)


def _season(
    season: Season,
    estimator: Estimator,
    sizes: tuple[int, int, float] | None,
    domain: Domain | None,
    spread: float | None,
    plot: Path | None,
) -> tuple[dict[str, Any], list[str]]:
    """The errors of a season, for a program and for a reader."""
    if sizes is None:
        raise InputError("A season's errors are known where those of one training are; pass --users too.")
    share = 1 - getattr(estimator, "lists_share", 0.0)
    return show_plan.season_expected(season, sizes, share, domain, spread, plot)


def _check(declared: bool, simulated: bool, spread_alone: bool) -> None:
    """Refuse a question that has no answer."""
    if not declared and not simulated:
        raise InputError(
            "Errors on generated ratings are known for both, private-als and item-bias with planned settings"
            " and budgets of users; for what another configuration releases pass --rating-range too."
        )
    if spread_alone:
        raise InputError("--spread is in ratings: declare their range too, for example --rating-range 1 5.")
