"""Likes and dislikes for whole users: private ALS with the logistic likelihood, beyond the one-bit paper.

The paper protects single ratings; users of a recommender expect to be protected whole. Here every round
releases the gradient of the logistic likelihood in the item parameters, each user's contribution clipped as
private ALS clips it. With scores s, half the log-odds, a cell's gradient is ``y - tanh(s)`` for labels y of
-1 and +1, so that a round of private ALS on the working responses ``s + y - tanh(s)`` is that release, and
its clips, sensitivities, shares and updates hold as they are (docs/proofs/one_bit.md, section 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.algorithms.als import SweepSettings
from hushrec.algorithms.contributions import Contributions, finite_or_zero
from hushrec.algorithms.one_bit import check_optional_threshold, likes
from hushrec.algorithms.private_als import PrivateALS, stored_ridge
from hushrec.data import Domain, Ratings
from hushrec.estimator import UserState
from hushrec.gate import Gate
from hushrec.privacy import Budget, Plan

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class UserLevelOneBit(PrivateALS):
    """Private logistic matrix factorisation of likes and dislikes; scores are log-odds of a like.

    Parameters
    ----------
    threshold : float or None
        Declared: ratings above it are likes, all others dislikes; None: the middle of the declared range.
    **others
        As in :class:`PrivateALS`, with labels of -1 and +1 in place of ratings: half the rating range is 1.

    Privacy
    -------
    Unit: user. Relation: the budget's. As private ALS: what is released is (epsilon, delta)-DP, a user's own
    factors are computed from it and her own labels. The clips bound a user's contribution whatever its
    residuals are, so the sensitivities are those of docs/proofs/private-als.md.
    """

    name: ClassVar[str] = "one-bit-user"
    scores: ClassVar[str] = "log-odds"
    link: ClassVar[str] = "logistic"

    threshold: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_optional_threshold(self.threshold)

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return super().releases(budget, _label_domain(domain), fraction)

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        """Rounds of private ALS on labels of -1 and +1."""
        labels = likes(ratings, self.threshold)
        labels.data = (2 * labels.data - 1).astype(np.float32)
        rows = replace(ratings, domain=_label_domain(ratings.domain), matrix=labels)
        arrays = super().train(rows, gate, seed)
        return arrays | {name: 2 * arrays[name] for name in ("center", "item_bias", "item_factors")}

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: a user's logistic regression of her own labels on the released item factors."""
        items = np.column_stack([arrays["item_factors"], arrays["item_bias"]]) / 2
        labels, center = likes(history, self.threshold), float(arrays["center"]) / 2
        users = self._regression(labels, center, items, stored_ridge(arrays))
        return UserState(offset=2 * users[:, -1], factors=users[:, :-1])

    def _users(self, local: Contributions, items: Array, ridge: SweepSettings) -> Array:
        matrix = local.rows.matrix
        labels = _with_values(matrix, (matrix.data > 0).astype(np.float64))
        with np.errstate(all="ignore"):  # a warning would tell of somebody's rows
            return finite_or_zero(self._regression(labels, local.center, items, ridge))

    def _item_sums(
        self, local: Contributions, items: Array, users: Array, user_norm: float, clip: float
    ) -> tuple[Array, Array]:
        """Local: the bounded sums of a round, the logistic gradient in the place of the residual."""
        from hushrec.kernels.residuals import predict_pairs

        matrix = local.rows.matrix
        cells = np.repeat(np.arange(local.rows.n_users), np.diff(matrix.indptr))
        score = predict_pairs(cells, matrix.indices, users[:, :-1], items[:, :-1]) + local.center
        score += users[cells, -1] + items[matrix.indices, -1]
        response = _with_values(matrix, score + matrix.data - np.tanh(score))
        rows = replace(local.rows, matrix=response)
        return replace(local, rows=rows).item_sums(items, users, user_norm, clip)

    def _regression(self, labels: Any, center: float, items: Array, ridge: SweepSettings) -> Array:
        """Every user's factors and offset, shape (n_users, width + 1), in half log-odds."""
        from hushrec.kernels.one_bit import solve_rows, with_ones

        items = np.asarray(items, dtype=np.float64)
        penalty = ridge.ridge(items.shape[1] - 1, np.float64)
        factors, offset = 2 * with_ones(items), 2 * (items[:, -1] + center)
        return solve_rows(labels.indptr, labels.indices, labels.data, factors, offset, penalty, "logistic")


def _with_values(matrix: sp.csr_array, values: Array) -> sp.csr_array:
    return sp.csr_array((values, matrix.indices, matrix.indptr), matrix.shape)


def _label_domain(domain: Domain) -> Domain:
    return replace(domain, rating_range=(-1.0, 1.0))
