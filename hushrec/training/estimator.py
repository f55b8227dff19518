"""The base of every algorithm."""

from __future__ import annotations

from dataclasses import dataclass

from hushrec.training import run
from hushrec.training.trainable import PrivateSide, Trainable


@dataclass(frozen=True, kw_only=True)
class Estimator(Trainable[PrivateSide]):
    """Frozen settings of one algorithm.

    A subclass writes ``name``, :meth:`releases`, :meth:`users`, :meth:`train` and :meth:`fold_in`. It may add
    :meth:`week` for seasons, and :meth:`settings_for` to choose settings by budget and number of users.

    Parameters
    ----------
    planned_for : Budget or None
        The budget that :meth:`planned` chose the settings for. Another one is refused, unless
        ``set_params(planned_for=None)`` allows it.

    Examples
    --------
    >>> estimator = hushrec.PrivateALS(rank=8, iterations=2)
    >>> estimator.get_params()["rank"]
    8
    >>> estimator.set_params(rank=16).rank, estimator.rank        # frozen: a new one
    (16, 8)
    >>> domain = hushrec.Domain(["alien", "matrix"], rating_range=(1, 5))
    >>> plan = hushrec.ItemBias().plan(hushrec.Budget(5, 1e-6), domain)
    >>> [release.label for release in plan.releases]
    ['item biases']
    """

    fit = run.fit
    #: Called by :meth:`Model.continue_training`.
    next_week = run.next_week
