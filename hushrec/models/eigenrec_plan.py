"""Private EigenRec before and after its rounds: settings and plan, and the model that released values make.

Rule and study: docs/guides/implicit.md. Sensitivities: docs/proofs/private-eigenrec.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from hushrec.checks import Count, Part, Positive, Settings, Share
from hushrec.data import Domain
from hushrec.errors import InputError
from hushrec.kernels.packed import unpacked
from hushrec.models.ease import MOST_ITEMS
from hushrec.models.item_matrix import ItemMatrix
from hushrec.models.liked_features import VOTES, votes_share
from hushrec.models.likes_taste import Known, Taste, grid
from hushrec.models.liking_users import LikingUsers
from hushrec.privacy import Budget, Plan, counted, positive, signed
from hushrec.training.estimator import Estimator, Round, plan_of
from hushrec.training.posterior import item_weights
from hushrec.types import Array, ModelArrays

# Chosen as the settings of the tuning; shares of the item matrix on generated pairs too.

#: Planned rank: so much of the root of (mu times the number of users), less so much; the most, and the least
#: that is worth the budget it takes from the item weights.
_RANK_PER_ROOT, _RANK_LESS, _LARGEST_RANK, _LEAST_RANK = 0.52, 4.8, 100, 2
#: Share of the item weights, in parts of (rank + 1).
_WEIGHTS_SHARES = 2.0
#: Share of the number of users.
_COUNT_SHARE = 0.01
#: Planned number of learned items: so much of the root of (mu times the number of users); the most.
_LEARNED_PER_ROOT, _MOST_LEARNED = 9.0, 11_000
#: The item x item matrix is released first where (mu times the number of users) is within these.
_MATRIX_FROM, _MATRIX_TO = 4000.0, 250_000.0
#: Its share is such that (that times the root of the share) is this; the largest, the smallest.
_MATRIX_SIGNAL, _MATRIX_MOST, _MATRIX_LEAST = 1750.0, 0.12, 0.06
#: What the matrix has along popularity, a user.
_ALONG_POPULARITY = 0.1
#: Taste dimensions with less gain are not stored.
_NO_GAIN = 1e-3
#: Share of the products of the halves.
_HALVES_SHARE = 0.03


@dataclass(frozen=True, kw_only=True)
class PlannedEigenRec(Estimator[LikingUsers]):
    """The settings of :class:`~hushrec.models.PrivateEigenRec`, its plan, and what it serves."""

    @dataclass(frozen=True, kw_only=True)
    class Tuning(Settings):
        """Values that a study chose on validation users of MovieLens-1M and -100K.

        Recall is flat about it (measured once, at commit 1480e89), and
        ``--pairs`` what decides for the item matrix (docs/guides/implicit.md).

        Parameters
        ----------
        weight_exponent : float
            Items are scaled by their released weight to this power, in [-1, 0] (EigenRec's d - 1, halved).
        support : float
            Only items whose released weight is more than this many times its noise are learned; the others
            are recommended last. Above 0.
        learned_items : int
            At most so many are learned, those of largest released weight (but more than the rank); up to
            2^22.
        weights_share : float
            Part of the budget (of mu squared) for the item weights, in (0, 1); the rounds share the rest.
        share_growth : float
            A round's budget as a multiple of the one before, > 0.
        matrix_share : float
            Part of the rounds' budget for a release of the item x item matrix before them, in [0, 0.99]. The
            rounds begin with its directions; where it has more of pairs of items than of directions, they
            release the matrix again, and items recommend items.
        features_share : float
            Part of the budget for the users' vote on what is made of item features, in [0, 0.99]; 0: lists go
            by no features. Not beside a matrix_share.
        equalization : float
            Between rounds a direction is scaled by its singular value to minus this power, in [0, 1], so that
            the strong ones do not use up the users' norm.
        """

        weight_exponent: Annotated[float, "[-1, 0]"] = -0.3
        support: Positive = 0.5
        learned_items: Annotated[int, "[1, 4194304]"] = 1000
        weights_share: Part = 0.12
        share_growth: Positive = 1.2
        features_share: Annotated[float, "[0, 0.99]"] = 0.0
        matrix_share: Annotated[float, "[0, 0.99]"] = 0.0
        equalization: Share = 0.5

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.matrix_share and self.features_share:
                raise InputError(
                    "Where an item matrix is released there is no vote on item features; set matrix_share or"
                    " features_share to 0."
                )
            if self.matrix_share and self.learned_items > MOST_ITEMS:
                raise InputError(
                    f"An item matrix of {self.learned_items:,} items takes more than 1 GiB; set learned_items"
                    f" to at most {MOST_ITEMS:,}, or matrix_share to 0."
                )

    rank: Annotated[int, "[0, 900]"] = 16
    iterations: Count = 8
    tuning: Tuning = Tuning()
    like_threshold: float | None = None
    n_users: Count | None = None

    @classmethod
    def settings_for(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        """Choose rank and shares by the signal, mu times the users (docs/guides/implicit.md)."""
        signal = min(budget.mu * n_users, 1e9)
        root = math.sqrt(signal)
        affordable = _RANK_PER_ROOT * root - _RANK_LESS
        rank = min(round(affordable), _LARGEST_RANK)
        rank = rank if rank >= _LEAST_RANK else 0
        chosen = {
            "rank": rank,
            "learned_items": max(1, min(round(_LEARNED_PER_ROOT * root), _MOST_LEARNED)),
            "weights_share": min(0.5, _WEIGHTS_SHARES / (rank + 1)),
            "matrix_share": _matrix_share(signal) if changes.get("learned_items", 0) <= MOST_ITEMS else 0.0,
            "n_users": n_users,
        }
        if not (chosen["matrix_share"] or changes.get("matrix_share")) and signal < _MATRIX_FROM:
            chosen["features_share"] = votes_share(signal) if domain.item_features is not None else 0.0
        return cls.of(chosen, changes)

    # ------------------------------------------------------------------ plan

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        votes = self._votes(domain)
        asked = [Round(VOTES, votes, signed(1.0))] if votes else []
        if not self._rank(domain):
            return plan_of([Round("item weights", 1.0 - votes, positive(1.0)), *asked], budget, fraction)
        left = (1.0 if self.n_users is not None else 1 - _COUNT_SHARE) - votes
        rounds = [Round("item weights", left * self.tuning.weights_share, positive(1.0))]
        if self.n_users is None:
            rounds.insert(0, Round("number of users", _COUNT_SHARE, counted(1.0)))
        growth = [self.tuning.share_growth**step for step in range(self.iterations)]
        left *= 1 - self.tuning.weights_share
        if self.tuning.matrix_share:
            rounds.append(Round("item matrix", left * self.tuning.matrix_share, positive(1.0)))
        left *= 1 - self.tuning.matrix_share
        for step, part in enumerate(growth, 1):
            share = left * (1 - _HALVES_SHARE) * part / math.fsum(growth)
            rounds.append(Round(self._label(step), share, signed(1.0)))
        rounds.append(Round(self._label(), left * _HALVES_SHARE, positive(1.0)))
        return plan_of([*rounds, *asked], budget, fraction, whole=1.0)

    def _votes(self, domain: Domain) -> float:
        """Share of the users' vote on the item features; 0 where there are none."""
        told = domain.item_features is not None and self.n_users is not None
        return self.tuning.features_share if told else 0.0

    def _label(self, step: int = 0) -> str:
        """Return the label of a round, which says so where the round may release one of two things."""
        own = f"item sums {step}" if step else "halves of likes"
        return own + (", or the item matrix again" if self.tuning.matrix_share else "")

    def _rank(self, domain: Domain) -> int:
        return min(self.rank, domain.n_items - 1)

    # ------------------------------------------------------------------ from released values to a model

    def known(self, n_users: float, noisy: Array, noise_sd: float, rank: int) -> Known:
        """Return what follows from the released item weights."""
        learned = self._learned(noisy, noise_sd, rank)
        popularity = self.popularity(noisy, noise_sd)
        scale = np.where(learned, popularity**self.tuning.weight_exponent, 0.0)
        first = popularity * scale / np.linalg.norm(popularity * scale)
        first = np.floor(first / grid(first)) * grid(first)  # which leaves its grid as it is
        return Known(n_users, noisy, noise_sd, learned, popularity, scale, first)

    @staticmethod
    def popularity(noisy: Array, noise_sd: float) -> Array:
        """Return the items' likely weights, from released ones, over the largest."""
        weights = item_weights(noisy, noise_sd).mean
        return weights / weights.max()

    def _learned(self, noisy: Array, noise_sd: float, rank: int) -> NDArray[np.bool_]:
        """The items of largest released weight; more than the rank."""
        order = np.argsort(-noisy, kind="stable")
        count = int((noisy > self.tuning.support * noise_sd).sum())
        learned = np.zeros(len(noisy), dtype=bool)
        learned[order[: max(min(count, self.tuning.learned_items), rank + 1)]] = True
        return learned

    def served(
        self, known: Known, noisy: Array, noise_sd: float, taste: Taste, supported: NDArray[np.bool_]
    ) -> dict[str, Any]:
        """Return the arrays that users are served with, from the item weights and what is known of taste."""
        popularity = self.popularity(noisy, noise_sd)
        counts = taste.gains > _NO_GAIN
        # scores are popularity plus taste: the coefficient of popularity is divided out
        # (docs/guides/implicit.md)
        length = np.linalg.norm(known.popularity * known.scale)
        factors = np.zeros((len(noisy), int(counts.sum())), dtype=np.float32)
        if factors.size:
            vectors = (taste.vectors * np.sqrt(taste.gains))[:, counts]
            factors[known.learned] = length * vectors / known.scale[known.learned, None]
        lowest = noisy / max(float(noisy.max()), noise_sd, 1e-100)
        return {
            "center": np.float64(0.0),
            "item_bias": np.where(supported, popularity, lowest),
            "item_factors": factors,
            "history_weight": known.scale**2,
            "supported": supported.astype(np.uint8),
            "directions": np.int64(taste.learned),
        }

    def served_pairs(self, known: Known, matrix: Array, precision: float, rank: int) -> ModelArrays:
        """The model where items recommend items; 0 is a precision without noise."""
        parts = ItemMatrix.of(unpacked(matrix), math.sqrt(0.5 / precision) if precision else 0.0, rank)
        scale, along = known.scale[known.learned], known.first[known.learned]
        along = along / np.linalg.norm(along)
        weights = parts.weights(along, _ALONG_POPULARITY * known.n_users) * scale[:, None] / scale
        served = {
            "center": np.float64(0.0),
            "item_bias": 1e-6 * known.popularity,
            "item_factors": weights.T.astype(np.float32),
            "learned_items": np.flatnonzero(known.learned).astype(np.int32),
            "supported": known.learned.astype(np.uint8),
            "directions": np.int64(parts.certain),
        }
        state = {
            "pairs": matrix,
            "pairs_precision": np.float64(precision),
            "users": np.array([known.n_users, 0.0]),
            "item_weights": known.noisy,
            "item_weights_variance": np.full(len(known.noisy), known.noise_sd**2),
            "item_scale": known.scale,
            "item_first": known.first,
        }
        return ModelArrays(served, state)


def _matrix_share(signal: float) -> float:
    """Planned share of the item matrix: as much as it takes to see pairs of items in it."""
    if not _MATRIX_FROM <= signal <= _MATRIX_TO:
        return 0.0
    return float(np.clip((_MATRIX_SIGNAL / signal) ** 2, _MATRIX_LEAST, _MATRIX_MOST))
