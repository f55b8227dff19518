"""``hushrec audit membership``."""

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.audit.membership import membership
from hushrec.cli.options import (
    Catalogue,
    Count,
    Force,
    Json,
    Named,
    Plot,
    Promises,
    Range,
    Seed,
    Settings,
    Whole,
)
from hushrec.cli.plots import audit, plot_file
from hushrec.data import Domain, Ratings, realistic
from hushrec.errors import InputError


def audit_membership(
    ratings: str | None = None,
    /,
    *,
    model: Named = "private-als",
    promises: Promises,
    rating_range: Range | None = None,
    catalogue: Catalogue | None = None,
    n_planted: Annotated[Whole, Parameter(name="--planted", validator=Number(gte=20))] = 400,
    draws: Count = 1,
    settings: Settings = Settings(),
    seed: Seed = 0,
    plot: Plot | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Plant random users, and try to detect from the model which of them were in the training data.

    A model without privacy is the control. Without RATINGS the other users are generated; with RATINGS the
    figures are the curator's own, to be kept.

      hushrec audit membership --epsilons 1,5,20 --delta 1e-6 --plot membership.png
      hushrec audit membership ratings.parquet --epsilons 1,5 --delta 1e-6 --rating-range 1 5 \\
                               --catalogue items.txt

    Parameters
    ----------
    ratings
        The other users' ratings.
    rating_range
        Lowest and highest rating, declared with RATINGS.
    n_planted
        Random users, half of whom are trained on.
    draws
        Trainings of each model.
    """
    target, levels = plot_file(plot, force), promises.levels()
    budget = promises.budget_of(min(levels))
    if ratings is None:
        others = realistic(1500, 1000, 90_000, seed=seed)
    elif rating_range is None or catalogue is None:
        raise InputError("With RATINGS, declare --rating-range LOW HIGH and --catalogue FILE.")
    else:
        others = Ratings.from_any(ratings, Domain(tuple(Domain.read_catalogue(catalogue)), rating_range))
    result = membership(
        others,
        model,
        levels,
        delta=budget.delta,
        relation=budget.relation,
        n_planted=n_planted,
        draws=draws,
        settings=settings.given(),
        seed=seed,
        data_is_public=ratings is None,
    )
    audit(result, target, as_json)
