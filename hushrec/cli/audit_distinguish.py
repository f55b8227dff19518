"""``hushrec audit distinguish``."""

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.audit.distinguish import distinguish
from hushrec.cli import output
from hushrec.cli.options import Json, Named, Promise, Seed, Settings, Whole, settings_given
from hushrec.data import Domain
from hushrec.training.named import choose

#: Number of users that a model is tuned to where its releases are audited on a handful of them.
_TUNED_TO = 1000


def audit_distinguish(
    *,
    model: Named = "private-als",
    promise: Promise,
    runs: Annotated[Whole, Parameter(validator=Number(gte=10))] = 2000,
    settings: Settings = (),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Run a model many times on two generated neighbours and bound its mu from below.

    No data are read. The bound exceeds the claim only if a sensitivity, a noise scale or the accounting is
    wrong, but for a chance of 1e-6.

      hushrec audit distinguish --model item-bias --epsilon 5 --delta 1e-6 --runs 20000

    Parameters
    ----------
    runs
        Trainings on each of the two.
    """
    budget = promise.budget()
    domain = Domain(tuple("abcdefgh"), rating_range=(1, 5))
    estimator = choose(model, budget, domain, n_users=_TUNED_TO, settings=settings_given(settings))
    audit = distinguish(estimator, budget, runs=runs, domain=domain, seed=seed)
    output.result(as_json, audit.to_dict(), audit.text())
