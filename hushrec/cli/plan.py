"""``hushrec plan``."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.checks import settings_of
from hushrec.cli import output, output_model, output_plan
from hushrec.cli.options import Count, Job, Json, Model, Promise, Users, model_for
from hushrec.cli.tables import Size
from hushrec.data import Domain
from hushrec.errors import InputError
from hushrec.models import Both
from hushrec.privacy import Season
from hushrec.training.named import choose, known, needs_user_count


def plan(
    *,
    job: Job | None = None,
    model: Model | None = None,
    n_users: Users | None = None,
    ratings_per_user: Annotated[float, Parameter(validator=Number(gte=1))] = 50.0,
    spread: float | None = None,
    season: Count | None = None,
    first_share: float = 0.5,
    promise: Promise,
    size: Size = Size(),
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Show the noise of a configuration, and what it may come to, without any data.

    mu is the cost of a release: the squares of all releases' mu add up to the square of the budget's, and
    share is a release's part of that sum. What it may come to are ranges, from weak to strong tastes: how
    much people's differ is not known before training (docs/understand/how-many-users.md).

      hushrec plan --users 50000 --items 2000 --epsilon 1 --delta 1e-6
      hushrec plan --epsilon 1 --delta 1e-6 --rating-range 1 5 --catalogue items.txt --users 6000
      hushrec plan --epsilon 1 --delta 1e-6 --rating-range 1 10 --items 9000 --users 6000 --spread 1.8
      hushrec plan --season 52 --users 6000 --items 4000 --epsilon 5 --delta 1e-6
      hushrec plan --model item-bias --epsilon 1 --delta 1e-6 --rating-range 1 5 --catalogue items.txt

    Parameters
    ----------
    ratings_per_user
        Mean number of ratings that a user has, for the ranges.
    spread
        Standard deviation of all ratings, from public knowledge such as a published data set of the same
        kind. It moves the error only; without it its range is wider.
    season
        Weekly trainings for which the budget is: the error week by week, while nothing changes.
    first_share
        Part of the budget for week 0 of a season.
    """
    budget = promise.budget()
    model = model_for(model, job, False, budget.private)
    domain, n_items = size.declared(likes=known(model).scores == "likes")
    jobs = () if settings or budget.unit != "user" or not budget.private else output_plan.JOBS.get(model, ())
    if n_users is None and (needs_user_count(model) or domain is None):
        raise InputError(
            f"{model} is tuned to the number of users: say for how many, for example --users 6000."
            if needs_user_count(model)
            else "What it may come to depends on the number of users: say for how many, for example --users"
            " 6000."
        )
    _check(domain is not None, bool(jobs), spread is not None and size.rating_range is None)
    if season is not None and "ratings" not in jobs:
        raise InputError("A season's errors are known for both and private-als with planned settings.")
    result: dict[str, Any] = {"model": model}
    text = [f"Model:      {model}", f"Budget:     {budget}, mu = {output.short(budget.mu)}"]
    if not budget.private:
        text[0] += "   NOT PRIVATE"
    placed = domain or Domain(tuple(range(n_items)), rating_range=(0, 1))
    estimator = choose(model, budget, placed, n_users=n_users, settings=settings)
    if domain is not None:
        planned = estimator.plan(budget, domain)
        result |= {"hyper_parameters": settings_of(estimator), **output_plan.planned_dict(planned)}
        text[1:1] = [output_model.settings_line(estimator)]
        text += ["", output_plan.plan_table(planned)]
    if jobs and n_users is not None:
        sizes, shares = (n_users, n_items, ratings_per_user), dict.fromkeys(jobs, 1.0)
        if isinstance(estimator, Both):
            shares = {"lists": estimator.lists_share, "ratings": 1 - estimator.lists_share}
            text += ["", f"Ratings have {shares['ratings']:.0%} of the budget, lists the rest."]
        budgets = {job: budget.part(share) for job, share in shares.items()}
        result["ranges"], lines = output_plan.ranges(budgets, sizes, domain, spread)
        text += lines
        if season is not None:
            weeks = Season(budget, season, first_share)
            result["season"], lines = output_plan.season_ranges(weeks, shares["ratings"], sizes)
            text += lines
    output.result(as_json, result, *text)


def _check(declared: bool, known: bool, spread_alone: bool) -> None:
    """Refuse a question that has no answer."""
    if not declared and not known:
        raise InputError(
            "What may come of it is known for both, private-als and private-eigenrec with planned settings"
            " and budgets of users; for what another configuration releases pass --rating-range too."
        )
    if spread_alone:
        raise InputError("--spread is in ratings: declare their range too, for example --rating-range 1 5.")
