"""Likes and dislikes for whole users: private ALS with the logistic likelihood.

The one-bit paper protects single ratings. Here every round releases the clipped gradient of the logistic
likelihood in the item parameters. For half log-odds s and labels y of -1 and +1 a cell's gradient is
``y - tanh(s)``. So a round of private ALS on the responses ``s + y - tanh(s)`` is that release, with the same
clips and sensitivities (docs/proofs/one_bit.md, section 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import expit

from hushrec.data import Domain, Ratings
from hushrec.kernels.arrays import BiasedFactors
from hushrec.kernels.one_bit import regress_labels
from hushrec.kernels.residuals import predict_pairs
from hushrec.kernels.sparse_rows import used_columns, with_values
from hushrec.kernels.sweeps import CSR, SweepSettings, csr, with_ones
from hushrec.models.private_als import PrivateALS
from hushrec.models.private_als.updates import stored_ridge
from hushrec.models.private_als.users import FittedUsers
from hushrec.privacy import Budget, Plan
from hushrec.serving.scoring import UserState
from hushrec.training.gate import Gate
from hushrec.training.users import finite_or_zero, likes
from hushrec.types import Array, ModelArrays


@dataclass(frozen=True, kw_only=True)
class UserLevelOneBit(PrivateALS):
    """Log-odds of a like; protects whole users.

    Parameters
    ----------
    threshold : float or None
        Declared: ratings above it are likes, all others dislikes; None means the middle of the declared
        range.
    **others
        As in :class:`PrivateALS`, with labels of -1 and +1 in place of ratings: half the rating range is 1.

    Privacy
    -------
    Unit: user. Relation: the budget's. As private ALS: the releases are (epsilon, delta)-DP. A user's factors
    are computed from them and the user's own labels. The clips bound a user's contribution for any residuals,
    so the sensitivities are those of docs/proofs/private-als.md.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> estimator = hushrec.models.UserLevelOneBit(threshold=3.5)        # above it is a like
    >>> model = estimator.fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> len(model.recommend({ratings.domain.items[0]: 5}, n=3))
    3
    """

    name: ClassVar[str] = "one-bit-user"
    scores: ClassVar[str] = "log-odds"
    link: ClassVar[str] = "logistic"

    threshold: float | None = None

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return super().releases(budget, _label_domain(domain), fraction)

    def users(self, ratings: Ratings) -> FittedUsers:
        labels = likes(ratings, self.threshold)
        labels.data = (2 * labels.data - 1).astype(np.float32)
        return LabelUsers(replace(ratings, domain=_label_domain(ratings.domain), matrix=labels))

    def train(self, users: FittedUsers, gate: Gate, seed: int) -> ModelArrays:
        return _times(2.0, super().train(users, gate, seed))

    def week(self, users: FittedUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
        return _times(2.0, super().week(users, gate, _times(0.5, last)))

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        labels = csr(likes(history, self.threshold))
        labels, tables = used_columns(labels, arrays["item_factors"], arrays["item_bias"])
        items, center = BiasedFactors.joined(*tables).table / 2, float(arrays["center"]) / 2
        users = UserState.of(_regression(labels, center, items, stored_ridge(arrays)))
        return users._replace(offset=2 * users.offset)

    def score_parts(self, arrays: Mapping[str, Array], history: Ratings, column: int) -> Array:
        """Return the residual of each label after the regression, in the direction of the item."""
        places, state = history.matrix.indices, self.fold_in(arrays, history)
        table = np.column_stack([arrays["item_factors"], np.full(history.n_items, 2.0)]).astype(np.float64)
        solved = np.append(np.asarray(state.factors), state.offset / 2)
        score = table[places] @ solved + arrays["item_bias"][places] + float(arrays["center"])
        left = likes(history, self.threshold).data - expit(score)
        toward = table[column] / stored_ridge(arrays).ridge(table.shape[1] - 1, np.float64)
        return np.asarray(left * (table[places] @ toward), dtype=np.float64)


class LabelUsers(FittedUsers):
    """Users who fit themselves by logistic regression, and contribute the gradient of its likelihood."""

    def fit(self, items: Array, ridge: SweepSettings) -> None:
        self._ridge = ridge
        matrix = self._ratings.matrix
        labels = with_values(matrix, (matrix.data > 0).astype(np.float64))
        with np.errstate(all="ignore"):  # a warning would reveal rows
            self._fitted = finite_or_zero(_regression(csr(labels), self._center, items, ridge))

    def _residual_sums(self, items: Array, user_norm: float, clip: float) -> tuple[Array, Array]:
        matrix, labels = self._ratings.matrix, self._rows
        cells = np.repeat(np.arange(self._ratings.n_users), np.diff(matrix.indptr))
        fitted, model = BiasedFactors(self._fitted), BiasedFactors(items)
        score = predict_pairs(cells, matrix.indices, fitted.factors, model.factors) + self._center
        score += fitted.biases[cells] + model.biases[matrix.indices]
        response = with_values(matrix, score + matrix.data - np.tanh(score))
        self._rows = replace(labels, matrix=response)
        try:
            return super()._residual_sums(items, user_norm, clip)
        finally:
            self._rows = labels


def _regression(labels: CSR, center: float, items: Array, ridge: SweepSettings) -> Array:
    """Return every user's factors and offset, shape (n_users, width + 1), in half log-odds."""
    model = BiasedFactors(np.asarray(items, dtype=np.float64))
    penalty = ridge.ridge(model.rank, np.float64)
    factors, offset = 2 * with_ones(model.table), 2 * (model.biases + center)
    return regress_labels(*labels, factors, offset, penalty, "logistic")


def _times(factor: float, parts: ModelArrays) -> ModelArrays:
    return parts | {name: factor * parts.serve[name] for name in ("center", "item_bias", "item_factors")}


def _label_domain(domain: Domain) -> Domain:
    return replace(domain, rating_range=(-1.0, 1.0), likes=False)
