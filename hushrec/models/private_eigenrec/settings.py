"""Settings of private EigenRec, their planning, and its releases.

EigenRec (Nikolakopoulos, Kalantzis, Gallopoulos and Garofalakis 2019) is PureSVD (Cremonesi, Koren and Turrin
2010) with items scaled by a power of their popularity. All cells weigh the same, so all items share one
Gramian, which cancels: only a product of rows and factors is released.

Rule and study: docs/guides/implicit.md. Sensitivities: docs/proofs/private-eigenrec.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from hushrec.checks import Count, Part, Positive, Settings, Share, plural
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.kernels.sweeps import csr
from hushrec.models.ease import MOST_ITEMS, at_ratings, own_likes, weights_for
from hushrec.models.liked_features import questions, votes_share
from hushrec.models.private_eigenrec.denoise import Sums
from hushrec.models.private_eigenrec.pairs import train_next_week_of_pairs
from hushrec.models.private_eigenrec.train import train_first
from hushrec.models.private_eigenrec.users import LikingUsers, folded
from hushrec.models.private_eigenrec.week import EXPECTED, train_next_week, weekly_rounds
from hushrec.privacy import Budget, Plan, counted, positive, signed
from hushrec.training.estimator import Estimator, Round, UserState, plan_of
from hushrec.training.gate import Gate
from hushrec.types import Array, ModelArrays

# Tuned on validation users of MovieLens-1M and -100K, once, at commit 1480e89 (docs/guides/implicit.md).

#: Planned rank: slope and intercept in the root of (mu times users), largest and smallest.
_RANK_PER_ROOT, _RANK_LESS, _LARGEST_RANK, _LEAST_RANK = 0.52, 4.8, 100, 2
#: Budget fraction of the item weights, times (rank + 1).
_WEIGHTS_SHARES = 2.0
#: Largest part of the first two rounds that releases the item weights again.
_MOST_OF_FIRST = 0.5
#: Rounds release item weights too while this fraction of the weight of the popular items is unknown.
#: `make bench PART=lists`, generated films.
_DOUBTFUL = 0.05
#: Budget fraction of the number of users, and of the halves relative to the rounds.
_SMALL_SHARE = 0.01
#: Planned number of learned items: slope in the root of (mu times users), largest.
_LEARNED_PER_ROOT, _MOST_LEARNED = 9.0, 11_000
#: Values of (mu times users) from which users do not vote on item features, and, per item, from which items
#: recommend items. `make bench PART=lists`.
_MANY, _PAIRS_FROM = 4000.0, 8.0


@dataclass(frozen=True, kw_only=True)
class PrivateEigenRec(Estimator[LikingUsers]):
    """Private lists from likes.

    Give ``rank`` or let :meth:`planned` choose it; nothing else needs tuning (docs/guides/implicit.md).

    Parameters
    ----------
    rank : int
        Number of taste dimensions next to popularity, from 0 to 900; at most one less than there are items.
    iterations : int
        Rounds of power iteration, >= 1.
    pairs : bool
        Release the item x item matrix instead of the rounds: items recommend items, as in EASE. Planned where
        there are many users for each item.
    window : int
        Pair each like only with likes at most this many places away in the user's order, from 0 to 100; 0:
        with all. Needs times; not with ``pairs``; never planned.
    tuning : PrivateEigenRec.Tuning
        Values that studies chose.
    like_threshold : float or None
        Ratings from here up are likes; None means every row is one. A training by name takes three quarters
        up the declared range, 4 on 1 to 5.
    n_users : int or None
        Declared number of users; None releases it for 1% of the budget.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: the releases are (epsilon, delta)-DP. A user's factors are
    computed from them and the user's own likes. Gaussian releases. Their mu squared adds up to the budget's.
    The item weights are a vector of norm 1 per user (sensitivity 1 under add-remove, sqrt(2) under replace).
    Every round releases the sum of the outer products of row, without popularity, and factors, each of norm 1
    (1 and 2); with a ``window`` each like has the factors of the likes near it, and the whole is clipped to
    norm 1 (1 and 2). With ``pairs`` the item matrix replaces the rounds: the sum of that row times itself (1
    and sqrt(2)). While item weights are uncertain and no taste shows, a round releases the item weights in
    part or whole, at the same sensitivity and charge. With item features and few users, each user votes on
    every table of them, by 1, 0 or -1 (1 and 2). No clip is chosen: nearly every user is at the bound.
    Proof: docs/proofs/private-eigenrec.md.

    Examples
    --------
    >>> ratings = hushrec.realistic(2000, 500, 60_000, seed=0)
    >>> budget = hushrec.Budget(epsilon=5, delta=1e-6)
    >>> estimator = hushrec.PrivateEigenRec.planned(budget, ratings.domain, n_users=2000)
    >>> estimator.plan(budget, ratings.domain).check()           # nothing is spent by planning
    >>> model = estimator.fit(ratings, hushrec.Accountant(budget))
    >>> len(model.recommend({ratings.domain.items[0]: 5}, n=3))
    3
    """

    @dataclass(frozen=True, kw_only=True)
    class Tuning(Settings):
        """Values that a study chose on validation users of MovieLens-1M and -100K (docs/guides/implicit.md).

        Parameters
        ----------
        weight_exponent : float
            Items are scaled by their released weight to this power, in [-1, 0] (EigenRec's d - 1, halved).
        support : float
            Released weight of a learned item, in units of its noise, > 0. Others are recommended last.
        learned_items : int
            Largest number of learned items, up to 2^22; at least one more than the rank.
        weights_share : float
            Fraction of the budget (of mu squared) for the item weights, in (0, 1); the rounds share the rest.
        share_growth : float
            A round's budget as a multiple of the one before, > 0.
        features_share : float
            Fraction of the budget for the users' vote on item features, in [0, 0.99]. Not with pairs.
        equalization : float
            Between rounds a dimension is scaled by its singular value to minus this power, in [0, 1], so
            strong ones do not use up the users' norm.
        """

        weight_exponent: Annotated[float, "[-1, 0]"] = -0.3
        support: Positive = 0.5
        learned_items: Annotated[int, "[1, 4194304]"] = 1000
        weights_share: Part = 0.12
        share_growth: Positive = 1.2
        features_share: Annotated[float, "[0, 0.99]"] = 0.0
        equalization: Share = 0.5

    name: ClassVar[str] = "private-eigenrec"
    supports_partitions: ClassVar[bool] = True
    expected: ClassVar[ModelArrays] = EXPECTED
    scores: ClassVar[str] = "likes"

    rank: Annotated[int, "[0, 900]"] = 16
    iterations: Count = 8
    pairs: bool = False
    window: Annotated[int, "[0, 100]"] = 0
    tuning: Tuning = Tuning()
    like_threshold: float | None = None
    n_users: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pairs and self.tuning.features_share:
            raise InputError(
                "A model of item pairs has no vote on item features; set pairs to False or features_share "
                "to 0."
            )
        if self.pairs and self.window:
            raise InputError(
                "Where items recommend items there is no window; set pairs to False or window to 0."
            )
        if self.pairs and self.tuning.learned_items > MOST_ITEMS:
            raise InputError(
                f"An item matrix of {self.tuning.learned_items:,} items takes more than 1 GiB; set"
                f" learned_items to at most {MOST_ITEMS:,}, or pairs to False."
            )
        object.__setattr__(self, "uses_times", bool(self.window))

    @classmethod
    def settings_for(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        """Choose by the signal, mu times the users (docs/guides/implicit.md)."""
        signal = min(budget.mu * n_users, 1e9)
        root = math.sqrt(signal)
        rank = min(round(_RANK_PER_ROOT * root - _RANK_LESS), _LARGEST_RANK)
        rank = rank if rank >= _LEAST_RANK else 0
        fits = changes.get("learned_items", 0) <= MOST_ITEMS and domain.n_items > 1
        fits = fits and not changes.get("features_share") and not changes.get("window")
        chosen = {
            "rank": rank,
            "learned_items": max(1, min(round(_LEARNED_PER_ROOT * root), _MOST_LEARNED)),
            "weights_share": min(0.5, _WEIGHTS_SHARES / (rank + 1)),
            "pairs": fits and signal >= max(_MANY, _PAIRS_FROM * domain.n_items),
            "n_users": n_users,
        }
        if signal < _MANY and not changes.get("pairs"):
            chosen["features_share"] = votes_share(signal, len(questions(domain)))
        return cls.of(chosen, changes)

    # ------------------------------------------------------------------ plan

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        votes = self._votes(domain)
        labels = questions(domain) if votes else []
        voting = [Round(label, votes / len(labels), signed(1.0)) for label in labels]
        if not self.rank_in(domain):
            return plan_of([Round("item weights", 1.0 - votes, positive(1.0)), *voting], budget, fraction)
        left = (1.0 if self.n_users is not None else 1 - _SMALL_SHARE) - votes
        rounds = [Round("item weights", left * self.tuning.weights_share, positive(1.0))]
        if self.n_users is None:
            rounds.insert(0, Round("number of users", _SMALL_SHARE, counted(1.0)))
        left *= 1 - self.tuning.weights_share
        if self.pairs:
            rounds.append(Round("item matrix", left, positive(1.0)))
        else:
            growth = [self.tuning.share_growth**step for step in range(self.iterations)]
            for step, part in enumerate(growth, 1):
                share = left * (1 - _SMALL_SHARE) * part / math.fsum(growth)
                rounds.append(Round(f"item sums {step}", share, signed(1.0)))
            rounds.append(Round("halves of likes", left * _SMALL_SHARE, positive(1.0)))
        return plan_of([*rounds, *voting], budget, fraction, whole=1.0)

    def _votes(self, domain: Domain) -> float:
        possible = domain.item_features is not None and self.n_users is not None
        return self.tuning.features_share if possible else 0.0

    def rank_in(self, domain: Domain) -> int:
        """Return the rank, below the number of items."""
        return min(self.rank, domain.n_items - 1)

    def weekly_releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return plan_of(weekly_rounds(self.rank_in(domain), self.pairs), budget, fraction)

    def notes(self, budget: Budget, domain: Domain) -> tuple[str, ...]:
        window = (
            f"Likes at most {plural(self.window, 'place')} apart in a user's own order go together. The times"
            " are private: they enter the item sums alone."
        )
        notes = (window,) if self.window else ()
        if not self.uses_features(budget, domain):
            return notes
        chooser = "the released item matrix" if self.pairs else "the released sum of the users' votes"
        return (
            *notes,
            f"Assumed public too: {plural(domain.item_features.shape[1], 'item feature')}. What lists make of"
            f" them follows from released values. Whether they count depends on {chooser}.",
        )

    def uses_features(self, budget: Budget, domain: Domain) -> bool:
        of_pairs = self.pairs and domain.item_features is not None and self.rank_in(domain) > 0
        return of_pairs or bool(self._votes(domain))

    # ------------------------------------------------------------------ training

    def users(self, ratings: Ratings) -> LikingUsers:
        return LikingUsers(ratings, self.like_threshold, self.window)

    def train(self, users: LikingUsers, gate: Gate, seed: int) -> ModelArrays:
        return train_first(self, users, gate, seed)

    def check_week(self, domain: Domain, last: ModelArrays) -> None:
        if self.pairs and self.rank_in(domain) and "learned_items" not in last.serve:
            raise InputError(
                "This season of item pairs began with one item, so its model has no pairs; keep that"
                " catalogue, or close the season and open another one. Nothing was charged."
            )

    def week(self, users: LikingUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
        if "learned_items" in last.serve:
            return train_next_week_of_pairs(users, gate, last)
        return train_next_week(self, users, gate, last)

    def weights_part(self, rounds: int, sums: Sums | None, known: float) -> float:
        """Return the fraction of the next round for item weights: large if taste does not show yet.

        ``known`` is the part of the popular items' weight that is known, 0 to 1.
        """
        doubt = min((1 - known) / _DOUBTFUL, 1.0)
        if sums is None or rounds < 2:
            return round(min(doubt, _MOST_OF_FIRST), 2)
        return round(doubt * (1 - sums.shown()), 2)

    # ------------------------------------------------------------------ serving

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        liked = history.liked(self.like_threshold)
        if "learned_items" in arrays:  # items recommend items
            return UserState(np.zeros(history.n_users), own_likes(liked, arrays["learned_items"]))
        return folded(arrays, csr(liked.matrix))

    def score_parts(self, arrays: Mapping[str, Array], history: Ratings, column: int) -> Array:
        liked = history.liked(self.like_threshold)
        if "learned_items" in arrays:
            return at_ratings(history, liked, weights_for(arrays, liked, column))
        items = liked.matrix.indices
        weight, factors = arrays["history_weight"][items], np.asarray(arrays["item_factors"], np.float64)
        total = float(arrays.get("history_total", arrays["item_bias"][items] @ weight))
        weight = weight / total if total > 0 else np.zeros(len(items))
        return at_ratings(history, liked, weight * (factors[items] @ factors[column]))
