"""Private ALS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from hushrec.data import Ratings
from hushrec.models.private_als.settings import ALSSettings
from hushrec.models.private_als.train import train_first
from hushrec.models.private_als.updates import stored_ridge
from hushrec.models.private_als.users import FittedUsers
from hushrec.models.private_als.week import EXPECTED, train_week
from hushrec.serving.scoring import UserState
from hushrec.training.gate import Gate
from hushrec.training.users import ridge_on_items, ridge_parts
from hushrec.types import Array, ModelArrays


@dataclass(frozen=True, kw_only=True)
class PrivateALS(ALSSettings):
    """Private alternating least squares, for ratings.

    Use :meth:`planned`, which chooses everything from public values, or pass ``rank`` and ``iterations``.
    ``PrivateALS()`` alone trains item biases only. With ``item_features`` in the domain, the prior mean of
    item biases and factors is a regression on them (:mod:`hushrec.models.private_als.features`).

    Parameters
    ----------
    rank : int
        Number of item factors, from 0 to 900.
    features : bool
        Start the first two factors from released values, without privacy cost: the item's standardised bias
        and log weight. Needs ``rank >= 2`` and at least one bias round.
    iterations : int
        Releases of the item factors, >= 0.
    bias_rounds : int
        Releases of the item biases before the first factors, >= 0.
    tuning : PrivateALS.Tuning
        Values that studies chose.
    n_users : int or None
        Declared number of users; None releases it for 1% of the budget.

    Notes
    -----
    A rating is ``r_ij = c + b_i + b_j + u_i v_j + e_ij``, of user i and item j. The user solves one ridge
    regression of their ratings on ``[v_j, 1]``. With weights ``c_ij`` of norm 1 a user and factors ``u_i``,
    each iteration releases the users' second moments and the item sums

        ``G = sum_i u_i u_i' + noise``,    ``S_j = sum_i c_ij e_ij u_i + noise``,

    each user's part clipped. Let ``d`` be the error of ``v_j`` along an eigenvector of G, with prior variance
    p, s the part of ``S_j`` along it, and x the eigenvalue times the item's released weight. Then s is x d
    plus noise of variance ``noise^2 + residual x``, and the server adds the posterior mean

        ``E[d] = p x s / (p x^2 + noise^2 + residual x)``.

    Clips are multiples of the spread, the released standard deviation of a user's ratings about their own
    mean, and of the residual variance, which the first six iterations release. As the model improves, clips
    and noise shrink.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: the releases are (epsilon, delta)-DP. A user's factors are
    computed from them and the user's own ratings. Every release is Gaussian and mu squared adds up to the
    budget's; :meth:`plan` lists them with their sensitivities, docs/proofs/private-als.md proves these.

    Examples
    --------
    >>> ratings = hushrec.realistic(2000, 50, 60_000, seed=0)
    >>> budget = hushrec.Budget(epsilon=5, delta=1e-6)
    >>> estimator = hushrec.PrivateALS.planned(budget, ratings.domain, n_users=2000)
    >>> model = estimator.fit(ratings, hushrec.Accountant(budget))
    >>> len(model.recommend({ratings.domain.items[0]: 5}, n=3))
    3
    """

    name: ClassVar[str] = "private-als"
    supports_partitions: ClassVar[bool] = True
    expected: ClassVar[ModelArrays] = EXPECTED

    def users(self, ratings: Ratings) -> FittedUsers:
        return FittedUsers(ratings)

    def train(self, users: FittedUsers, gate: Gate, seed: int) -> ModelArrays:
        return train_first(self, users, gate, seed)

    def week(self, users: FittedUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
        return train_week(self, users, gate, last)

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        return ridge_on_items(arrays, history.matrix, stored_ridge(arrays))

    def score_parts(self, arrays: Mapping[str, Array], history: Ratings, column: int) -> Array:
        return ridge_parts(arrays, history.matrix, stored_ridge(arrays), column)
