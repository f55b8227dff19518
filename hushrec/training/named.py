"""Training by name, as ``hushrec train`` does: choose settings, release the user count, train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hushrec.checks import check_names, names_of, settings_by_name
from hushrec.data import Domain, Ratings, Store
from hushrec.errors import HushrecError, InputError
from hushrec.privacy import Accountant, Budget, Plan, Release, counted
from hushrec.registry import ESTIMATORS
from hushrec.serving.model import Model
from hushrec.training import run
from hushrec.training.estimator import Estimator
from hushrec.training.gate import LocalGate
from hushrec.training.partitioned import Engine

#: Numbers of users for which settings are checked while the number is not known.
_PROBE_USER_COUNTS = tuple(8**power for power in range(10))
#: Those for which kernels are loaded while the number is not known: more users take more memory.
_LIKELY_USER_COUNTS = _PROBE_USER_COUNTS[2:5]


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
    if name not in ESTIMATORS:
        raise InputError(
            f"model {name!r} is not known; pass one of {', '.join(ESTIMATORS)}; your own is made known by"
            " hushrec.registry.register.",
            parameter="model",
        )
    return ESTIMATORS[name]


def needs_user_count(name: str) -> bool:
    return name in ESTIMATORS and ESTIMATORS[name].uses_user_count


def check_run(
    name: str, budget: Budget, domain: Domain, n_users: int | None, settings: Mapping[str, Any] | None
) -> Estimator[Any]:
    """Return the estimator of a run, without a number of users for one user; refuse a run that cannot end."""
    counts = _PROBE_USER_COUNTS if n_users is None and needs_user_count(name) else (n_users,)
    first, *others = [choose(name, budget, domain, n_users=n, settings=settings) for n in counts]
    for estimator in (first, *others):
        estimator.plan(budget, domain)
    return first


def exceeds_noise(n_users: int, noise_sd: float) -> bool:
    """Return whether a released number of users differs from 0 by more than noise."""
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
    budget_fraction: float = 1.0,
    keep: Callable[[Model], None] | None = None,
    engine: Engine | None = None,
    stop_at_nobody: bool = False,
    public: run.Public | None = None,
) -> Model:
    """Train a model by name, as ``hushrec train`` does.

    Without a declared `n_users`, a model that is tuned to it first releases it, for 1% of the budget. `keep`
    saves the model; until it returns, a killed training can be resumed. With `stop_at_nobody` a released
    number that does not exceed its noise raises `HushrecError`.
    """
    budget, domain = accountant.budget, ratings.domain
    estimator = check_run(name, budget, domain, n_users, settings)
    counted_first = n_users is None and needs_user_count(name)
    run.check(estimator, ratings, accountant, seed, budget_fraction, engine)
    public_rows = run.read_public(public, estimator, ratings)
    # with any number of users the plan costs all that is left, so the journal refuses one that does not fit
    whole = run.with_public(estimator, public_rows)
    plan = whole.releases(budget, domain, accountant.part(budget_fraction))
    binding = {"model": name, "settings": dict(settings or {}), "users": n_users, "budget": repr(budget)}
    binding |= run.public_binding(public_rows)
    for count in _LIKELY_USER_COUNTS if counted_first else (n_users,):
        likely = choose(name, budget, domain, n_users=count, settings=settings)
        likely = run.with_public(likely, public_rows)
        likely_plan = likely.releases(budget, domain, accountant.part(budget_fraction))
        run.load_kernels(likely, domain, accountant, likely_plan, partial(likely.train, seed=int(seed)))
    writing = run.journal(accountant, domain, plan, seed, fraction=budget_fraction, **binding)
    with writing as saved, run.admitted(ratings, accountant) as rows:
        somebody = True
        if counted_first:
            n_users = release_user_count(rows, accountant)
            somebody = not stop_at_nobody or exceeds_noise(n_users, accountant.releases[-1].noise_sd)
            estimator = choose(name, budget, domain, n_users=n_users, settings=settings)
            whole = run.with_public(estimator, public_rows)
            if somebody:
                plan = whole.releases(budget, domain, accountant.part(budget_fraction))
                accountant.check(plan)
        if somebody:
            work = partial(whole.train, seed=int(seed))
            run.load_kernels(estimator, domain, accountant, plan, work)
            parts = run.ask(estimator, rows, accountant, plan, work, progress, engine)
            trained = run.state(estimator, ratings, accountant, parts, public_rows=public_rows)
            if keep is not None:
                keep(trained)
                saved()
            return trained
    raise HushrecError(
        f"The released number of users, {n_users:,}, is indistinguishable from 0, so training stopped after"
        " 1% of the budget was charged; run hushrec check to see which rows are used, or declare the number"
        " of users with --users if it is that small."
    )


def release_user_count(ratings: run.Rows, accountant: Accountant) -> int:
    """Release the number of users, at least 1, to plan with.

    Privacy
    -------
    One Gaussian release for 1% of the remaining mu squared. Unit: user. Sensitivity 1, under replace too,
    since a user's rows may be replaced by rows that cannot be used.
    """
    if not isinstance(ratings, run.Weighted):
        run.check_users(ratings, accountant)
    budget = accountant.budget
    sensitivity = counted(1.0).under(budget.relation)
    planned = Release(
        "number of users", budget.share(accountant.part(0.01)), sensitivity, budget.unit, budget.relation
    )
    count = run.counted_users(ratings)
    noisy = LocalGate(accountant, Plan(budget, (planned,))).release(planned.label, count)
    return max(1, round(float(noisy[0])))
