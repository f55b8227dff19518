"""``hushrec.train``: what ``hushrec train`` does, as one call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hushrec.checks import check_flags, check_kind
from hushrec.data import Domain, Ratings, Store
from hushrec.data.store_files import is_store
from hushrec.errors import InputError
from hushrec.privacy import Accountant, Budget, Ledger, default_path
from hushrec.registry import JOBS, best
from hushrec.serving.model import Model
from hushrec.training import named, run


def train(
    ratings: Any,
    *,
    items: Sequence[Any] | str | os.PathLike[str],
    epsilon: float,
    delta: float,
    rating_range: tuple[float, float] | None = None,
    likes: bool = False,
    dataset: str = "default",
    model: str | None = None,
    n_users: int | None = None,
    settings: Mapping[str, Any] | None = None,
    ledger: str | os.PathLike[str] | None = None,
    data_is_public: bool = False,
    public: run.Public | None = None,
    columns: Mapping[str, Any] | None = None,
    relation: str = "add-remove",
    seed: int = 0,
    progress: bool = False,
) -> Model:
    """Train a model on private ratings and record its privacy cost, as ``hushrec train`` does.

    Parameters
    ----------
    ratings : data frame, table, path or Store
        A source of :meth:`Ratings.from_any`, or a store.
    items : sequence of ids, or path
        The declared catalogue, or a text file of it.
    epsilon, delta : float
        The budget. ``math.inf`` trains without privacy.
    rating_range : (low, high), optional
        The declared range. Pass it or ``likes=True``.
    likes : bool
        Every row is a like.
    dataset : str
        Name of these users in the ledger, for all runs on them.
    model : str, optional
        ``"lists"``, ``"ratings"``, ``"both"``, or a name in ``hushrec.registry.ESTIMATORS``. By default both,
        and lists where there are likes.
    n_users : int, optional
        Number of users, if it is public. Otherwise it is released for 1% of the budget.
    settings : mapping of str to value, optional
        As ``{"ratings.rank": 8}``; planned by default.
    ledger : path, optional
        By default ``hushrec.privacy.default_path()``.
    data_is_public : bool
        Charge nothing, and stamp the model NOT PRIVATE.
    columns : mapping, optional
        As in :meth:`Ratings.from_any`.
    relation : {"add-remove", "replace"}
    seed : int
        Seeds initialisation and sampling; privacy noise has no seed.

    Raises
    ------
    InputError
        A declaration is missing or wrong; nothing is charged.
    BudgetError
        The cost does not fit the data set's budget; nothing is charged.

    Privacy
    -------
    Unit: user. Relation: ``relation``. The model's statement lists each release with its sensitivity. The
    whole budget is spent, and the ledger is charged before noise is drawn.

    Examples
    --------
    >>> table = {"user": ["ann", "ann", "bob"], "item": ["matrix", "alien", "alien"], "rating": [5, 4, 2]}
    >>> model = hushrec.train(table, items=["matrix", "alien"], rating_range=(1, 5), epsilon=5, delta=1e-6,
    ...                       n_users=2, ledger="ledger.sqlite")
    >>> len(model.recommend({"matrix": 5}))
    1
    """
    check_flags(data_is_public=data_is_public, progress=progress)
    budget = Budget(epsilon, delta, relation=relation)
    catalogue = Domain.read_catalogue(items) if isinstance(items, str | os.PathLike) else items
    domain = Domain(catalogue, rating_range, likes=likes)
    job = model or ("lists" if likes else "both")
    name = best(job, budget.private) if job in JOBS else job
    choice = named.check_run(name, budget, domain, n_users, settings)
    if not (budget.private or data_is_public or dataset != "default"):
        raise InputError(
            "Without privacy the data set 'default' would be charged an infinite epsilon permanently; pass"
            " dataset with another name, or data_is_public=True."
        )
    if public is not None:
        check_kind(public, run.Public, "public", "pass hushrec.PublicRatings(donors=[...])")
        public.apart_from(ratings)
    if isinstance(ratings, str | Path) and is_store(str(ratings)):
        rows: Ratings | Store = Store(str(ratings), domain)
    elif isinstance(ratings, Store):
        rows = Store(ratings.path, domain)
    else:
        rows = Ratings.from_any(ratings, domain, columns=columns, implicit=likes)
    public_rows = run.read_public(public, choice.estimators[0], rows)
    book = None if data_is_public else Ledger(ledger or default_path())
    accountant = Accountant(budget, ledger=book, dataset=dataset, data_is_public=data_is_public)
    options: dict[str, Any] = {"seed": seed, "progress": progress, "stop_at_nobody": True}
    return run.train(choice, rows, accountant, public=public_rows, **options)
