"""``hushrec audit canaries``."""

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.audit.canaries import canaries
from hushrec.cli import output
from hushrec.cli.options import Json, Named, Promise, Seed, Settings, Whole, settings_given
from hushrec.data import Domain
from hushrec.training.named import choose


def audit_canaries(
    *,
    model: Named = "private-als",
    promise: Promise,
    n_canaries: Annotated[Whole, Parameter(name="--canaries", validator=Number(gte=20))] = 1000,
    settings: Settings = (),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Train once with a random half of planted users, and guess from the releases which ones took part.

      hushrec audit canaries --model private-als --epsilon 1 --delta 1e-5 --canaries 10000

    Parameters
    ----------
    n_canaries
        Number of planted users; each takes part with probability one half.
    """
    budget = promise.budget()
    domain = Domain((1, 2), rating_range=(1, 5))
    estimator = choose(model, budget, domain, n_users=n_canaries // 2, settings=settings_given(settings))
    audit = canaries(estimator, budget, n_canaries=n_canaries, seed=seed)
    output.result(as_json, audit.to_dict(), audit.text())
