"""One training run by the name of its model: settings chosen from public figures only, then fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from hushrec.algorithms.baselines import release_user_count
from hushrec.errors import HushrecError, InputError
from hushrec.estimator import public_inputs
from hushrec.registry import ESTIMATORS

if TYPE_CHECKING:
    from hushrec.algorithms import Billboard, Estimator
    from hushrec.data import Domain, Ratings, Store
    from hushrec.partitioned import Engine
    from hushrec.privacy import Accountant, Budget

#: Stand in for a number of users that is yet to be released, where settings are checked before that.
_PROBE_USER_COUNTS = tuple(8**power for power in range(10))


def choose(
    name: str,
    budget: Budget,
    domain: Domain,
    *,
    n_users: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Estimator:
    """An estimator by name, its hyper-parameters chosen from the budget, the domain and a number of users.

    Parameters
    ----------
    name : str
        A key of ``hushrec.algorithms.ESTIMATORS``.
    budget : Budget
        The whole budget of the run.
    domain : Domain
        The declared catalogue and range.
    n_users : int, optional
        Declared or released number of users; needed by models that are tuned to it (private-als).
    settings : mapping of str to value, optional
        Hyper-parameters that override the choice.

    Raises
    ------
    InputError
        For a model or a setting that does not exist, or a value out of range.
    """
    cls = known(name)
    given = dict(settings or {})
    names = [field.name for field in fields(cls)]
    for setting in given:
        if setting not in names:
            raise InputError(
                f"{name} has no setting {setting!r}; it has {', '.join(names) if names else 'none'}."
            )
    if n_users is not None and "n_users" in names:
        given.setdefault("n_users", n_users)
    if "like_from" in names:
        given.setdefault("like_from", domain.like_from)
    if not cls.uses_user_count:
        return cls(**given)
    n_users = given.pop("n_users", n_users)
    if n_users is None:
        what = f"{name} is tuned to the number of users; declare it or release it."
        raise InputError(what, parameter="n_users")
    return cls.planned(budget, domain, n_users, **given)


def known(name: str) -> type[Estimator]:
    """The class of a model; refused where there is none of that name."""
    if name not in ESTIMATORS:
        raise InputError(
            f"model {name!r} is not known; pass one of {', '.join(ESTIMATORS)}.", parameter="model"
        )
    return ESTIMATORS[name]


def needs_user_count(name: str) -> bool:
    """Whether a model's settings are chosen from the number of users."""
    return name in ESTIMATORS and ESTIMATORS[name].uses_user_count


def check_run(
    name: str, budget: Budget, domain: Domain, n_users: int | None, settings: Mapping[str, Any] | None
) -> None:
    """Refuse a run that could not be completed, before anything is spent on it."""
    unknown = n_users is None and needs_user_count(name)
    for count in _PROBE_USER_COUNTS if unknown else (n_users,):
        choose(name, budget, domain, n_users=count, settings=settings).plan(budget, domain)


def told_from_nobody(n_users: int, noise_sd: float) -> bool:
    """Whether a released number of users can be told from 0."""
    return n_users > 4 * noise_sd


def train(
    name: str,
    ratings: Ratings | Store,
    accountant: Accountant,
    *,
    n_users: int | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    progress: bool = False,
    share: float = 1.0,
    keep: Callable[[Billboard], None] | None = None,
    engine: Engine | None = None,
    stop_at_nobody: bool = False,
) -> Billboard:
    """Train a model by name, as ``hushrec train`` does.

    Parameters
    ----------
    name, settings
        As in :func:`choose`.
    ratings : Ratings or Store
        The private rows.
    accountant : Accountant
        Its budget is spent.
    n_users : int, optional
        Declared number of users. Without it, a model that is tuned to the number of users first releases
        that number, for the share of the budget that ``hushrec.algorithms.baselines`` documents.
    seed, progress, share, engine
        As in :meth:`hushrec.algorithms.Estimator.fit`.
    keep : callable
        Puts the model away. A training that is killed before that is done can be resumed.
    stop_at_nobody : bool
        Stop with a `HushrecError` where the number of users was released and cannot be told from 0: that is
        a function of the release, and no more is charged.
    """
    budget, domain, part, found = accountant.budget, ratings.domain, accountant.part(share), True
    check_run(name, budget, domain, n_users, settings)
    anyone = choose(name, budget, domain, n_users=n_users or 1, settings=settings)
    anyone.check_season(accountant)
    anyone.check_engine(ratings, accountant, engine)
    given = {"budget": repr(budget), "model": name, "settings": dict(settings or {}), "share": share}
    billboard = None
    with accountant.training(None, **given, users=n_users, seed=seed, **public_inputs(domain)) as saved:
        if n_users is None and needs_user_count(name):
            anyone.check_store(ratings, engine)
            # any number of users costs all that is left: what does not fit is refused before a charge
            accountant.check(anyone.releases(budget, domain, part))
            n_users = release_user_count(ratings, accountant)
            found = told_from_nobody(n_users, accountant.releases[-1].noise_sd)
        if found or not stop_at_nobody:
            estimator = choose(name, budget, domain, n_users=n_users, settings=settings)
            billboard = estimator.fit(
                ratings, accountant, seed=seed, progress=progress, share=share, engine=engine
            )
            if keep is not None:
                keep(billboard)
                saved()
    if billboard is None:
        raise HushrecError(
            f"The released number of users, {n_users:,}, cannot be told from 0. Training stopped there: 1% of"
            " the budget is charged, and no more. See what became of the rows with hushrec check; if there"
            " are so few users, declare their number with --users."
        )
    return billboard
