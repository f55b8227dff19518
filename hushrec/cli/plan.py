"""``hushrec plan``."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.cli import show
from hushrec.cli.options import Json, Model, Promise, Size, Users
from hushrec.errors import InputError


def plan(
    *,
    model: Model = "private-als",
    n_users: Users | None = None,
    ratings_per_user: Annotated[float, Parameter(validator=Number(gte=1))] = 50.0,
    spread: float | None = None,
    promise: Promise,
    size: Size = Size(),
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Show the noise and the error of a configuration, and how many users it needs, without any data.

    mu is the cost of a release: the squares of all releases' mu add up to the square of the budget's, and
    share is a release's part of that sum. The error is that of generated ratings (docs/how-many-users.md).

      hushrec plan --users 50000 --items 2000 --epsilon 1 --delta 1e-6
      hushrec plan --epsilon 1 --delta 1e-6 --rating-range 1 5 --catalogue items.txt --users 6000
      hushrec plan --epsilon 1 --delta 1e-6 --rating-range 1 10 --items 9000 --users 6000 --spread 1.8
      hushrec plan --model item-bias --epsilon 1 --delta 1e-6 --rating-range 1 5 --catalogue items.txt

    Parameters
    ----------
    ratings_per_user
        Mean number of ratings that a user has, for the expected error.
    spread
        Standard deviation of all ratings, from public knowledge such as a published data set of the same
        kind. It moves the expected error only; without it the intervals are wider.
    """
    from hushrec.evaluation.runs import choose, needs_user_count

    budget, (domain, n_items) = promise.budget(), size.declared()
    simulated = model in ("private-als", "item-bias") and budget.unit == "user" and not settings
    if n_users is None and (needs_user_count(model) or domain is None):
        raise InputError(
            f"{model} is tuned to the number of users: say for how many, for example --users 6000."
            if needs_user_count(model)
            else "The error depends on the number of users: say for how many, for example --users 6000."
        )
    if domain is None and not simulated:
        raise InputError(
            "Expected errors are known for private-als and item-bias with planned settings and budgets of"
            " users; for what another configuration releases pass --rating-range too."
        )
    if spread is not None and size.rating_range is None:
        raise InputError("--spread is in ratings: declare their range too, for example --rating-range 1 5.")
    result: dict[str, Any] = {"model": model}
    text = [f"Model:      {model}", f"Budget:     {budget}, mu = {show.short(budget.mu)}"]
    if not budget.private:
        text[0] += "   NOT PRIVATE"
    if domain is not None:
        estimator = choose(model, budget, domain, n_users=n_users, settings=settings)
        planned = estimator.plan(budget, domain)
        result |= {"hyper_parameters": estimator.hyper_parameters(), **show.planned_dict(planned)}
        text[1:1] = [show.settings_line(estimator)]
        text += ["", show.plan_table(planned)]
    if simulated and n_users is not None:
        result["expected"], expected = show.expected(
            budget, n_users, n_items, ratings_per_user, domain, spread
        )
        text += ["", expected]
    show.result(as_json, result, *text)
