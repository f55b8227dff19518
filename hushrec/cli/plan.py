"""``hushrec plan``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.checks import plural, settings_of
from hushrec.cli import output, output_model, output_plan
from hushrec.cli.options import Json, ModelName, Promise, Settings, Users, model_for, settings_given
from hushrec.cli.tables import Size
from hushrec.data import Domain
from hushrec.errors import InputError
from hushrec.evaluation.measured import nearest, public_decides
from hushrec.models import Both, PrivateEigenRec
from hushrec.training.named import choose, known


def plan(
    *,
    promise: Promise,
    n_users: Users | None = None,
    size: Size = Size(),
    ratings_per_user: Annotated[float, Parameter(validator=Number(gte=1))] | None = None,
    implicit: bool = False,
    model: Annotated[ModelName, Parameter(show_default="both; lists with --implicit")] | None = None,
    settings: Settings = (),
    releases: Annotated[bool, Parameter(help="List the noise of each release.")] = False,
    settings_used: Annotated[bool, Parameter(name="--settings", help="List the planned settings.")] = False,
    as_json: Json = False,
) -> None:
    """Show the privacy cost of a training, and results on public tables of a similar size.

    It reads no ratings and spends nothing.

      hushrec plan --users 50000 --items 2000 --epsilon 1 --delta 1e-6
      hushrec plan --users 6000 --catalogue items.txt --rating-range 1 5 \\
                   --epsilon 1 --delta 1e-6 --releases

    Parameters
    ----------
    implicit
        Every row is a like.
    ratings_per_user
        Mean number of ratings per user, to find more similar tables.
    """
    budget = promise.budget()
    model = model_for(model, implicit, budget.private)
    domain, n_items = size.declared(likes=known(model).scores == "likes")
    if n_users is None and (known(model).uses_user_count or domain is None):
        raise InputError("--users is missing: pass the number of users, for example --users 6000.")
    if domain is None and (releases or settings_used):
        raise InputError(
            "--rating-range is missing: the releases depend on it, for example --rating-range 1 5."
        )
    output_model.warn_of_delta(budget, n_users)
    estimator = choose(
        model,
        budget,
        domain or Domain(tuple(range(n_items)), rating_range=(0, 1)),
        n_users=n_users,
        settings=settings_given(settings),
    )
    payload: dict[str, Any] = {"model": model, **budget.promise, "mu": budget.mu}
    text = [f"Model:      {model}" + ("" if budget.private else "   NOT PRIVATE"), f"Budget:     {budget}"]
    if domain is not None:
        planned = estimator.plan(budget, domain)
        payload |= {"settings": settings_of(estimator), **output_plan.planned_dict(planned)}
        text.append(f"It makes {plural(len(planned.releases), 'release')}, which together cost this epsilon.")
        if releases:
            text += ["", output_plan.plan_table(planned)]
        if settings_used:
            text += ["", output_model.settings_line(estimator)]
    if isinstance(estimator, Both):
        text.append(f"Lists get {estimator.lists_share:.0%} of the budget, ratings the rest.")
    if n_users is not None and budget.private and budget.unit == "user":
        rows = nearest(n_users, n_items, budget.epsilon, ratings_per_user)
        payload["measured"] = [asdict(row) for row in rows]
        text += ["", "Measured on the public tables that are most like yours (delta 1e-6):", ""]
        text += output_plan.measured_table(rows)
        lists = isinstance(getattr(estimator, "lists", estimator), PrivateEigenRec)
        decides = public_decides(n_users, n_items, budget.epsilon) if lists else ""
        decides = decides or "Your data may differ. Donors agreed to publish their ratings (--donors)."
        text += output.paragraph(decides)
    if not releases:
        text.append("--releases lists the noise. Next: hushrec check, then hushrec train.")
    output.result(as_json, payload, *text)
