"""Training by name: the settings of a model are chosen from public quantities."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hushrec.checks import check_names, names_of, settings_by_name
from hushrec.data import Domain, Ratings, Store
from hushrec.errors import InputError
from hushrec.privacy import Accountant, Budget
from hushrec.registry import ESTIMATORS
from hushrec.serving.model import Model
from hushrec.training import run
from hushrec.training.estimator import Estimator

#: Numbers of users for which settings are checked while the number is not known.
_PROBE_USER_COUNTS = tuple(8**power for power in range(10))


def choose(
    name: str,
    budget: Budget,
    domain: Domain,
    *,
    n_users: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Estimator[Any]:
    """Return an estimator by name, with settings chosen from public quantities.

    `budget` is of the whole run, `n_users` declared or released. `settings` override the choice.
    """
    cls = known(name)
    chosen = settings_by_name(settings, '{"rank": 8}, for example')
    names = names_of(cls)
    check_names(cls, chosen)
    if n_users is not None and "n_users" in names:
        chosen.setdefault("n_users", n_users)
    if "like_threshold" in names:
        chosen.setdefault("like_threshold", domain.like_threshold)
    if not cls.uses_user_count:
        return cls.of(chosen)
    n_users = chosen.pop("n_users", n_users)
    if n_users is None:
        what = f"{name} is tuned to the number of users; declare it or release it."
        raise InputError(what, parameter="n_users")
    return cls.planned(budget, domain, n_users, **chosen)


def known(name: str) -> type[Estimator[Any]]:
    if not isinstance(name, str) or name not in ESTIMATORS:
        raise InputError(
            f"model {name!r} is not known; pass one of {', '.join(ESTIMATORS)}; your own is made known by"
            " hushrec.registry.register.",
            parameter="model",
        )
    return ESTIMATORS[name]


def check_run(
    name: str, budget: Budget, domain: Domain, n_users: int | None, settings: Mapping[str, Any] | None
) -> run.Choice:
    """Return the choice of a run; refuse a run that cannot end."""
    counting = n_users is None and known(name).uses_user_count
    chosen = partial(choose, name, budget, domain, settings=settings)
    estimators = tuple(chosen(n_users=n) for n in (_PROBE_USER_COUNTS if counting else (n_users,)))
    for_users = (lambda n: chosen(n_users=n)) if counting else None
    if estimators[0].counts_users:  # a setting asks for the number, as `center` of `private-svd` may
        for_users = estimators[0].for_users
        estimators = (for_users(1),)
    for estimator in estimators:
        estimator.plan(budget, domain)
    binding = {"model": name, "settings": dict(settings or {}), "users": n_users, "budget": repr(budget)}
    return run.Choice(estimators, binding, n_users, for_users)


def train(
    name: str,
    ratings: Ratings | Store,
    accountant: Accountant,
    *,
    n_users: int | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> Model:
    """Train a model by name, with `options` of :func:`hushrec.training.run.train`.

    Without a declared `n_users`, a model that is tuned to it first releases it, for 1% of the budget.
    """
    choice = check_run(name, accountant.budget, ratings.domain, n_users, settings)
    return run.train(choice, ratings, accountant, **options)
