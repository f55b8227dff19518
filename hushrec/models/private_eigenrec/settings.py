"""Settings of private EigenRec, their planning, and its releases.

EigenRec (Nikolakopoulos, Kalantzis, Gallopoulos and Garofalakis 2019) is PureSVD (Cremonesi, Koren and Turrin
2010) with items scaled by a power of their popularity. All cells weigh the same, so all items share one
Gramian, which cancels: only a product of rows and factors is released.

Rule and study: docs/guides/implicit.md. Sensitivities: docs/proofs/private-eigenrec.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

from hushrec.checks import Count, Part, Positive, Settings, Share
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.kernels.sparse_rows import from_threshold
from hushrec.kernels.sweeps import csr
from hushrec.models.ease import at_ratings
from hushrec.models.private_eigenrec.denoise import Sums
from hushrec.models.private_eigenrec.pairs import memory_for
from hushrec.models.private_eigenrec.parts import folded, moved_by
from hushrec.models.private_eigenrec.public_likes import PublicLikes
from hushrec.models.private_eigenrec.stacking import WEIGHTS
from hushrec.models.private_eigenrec.train import Better, train_first
from hushrec.models.private_eigenrec.users import LikingUsers
from hushrec.models.private_eigenrec.week import EXPECTED, train_next_week, weekly_rounds
from hushrec.privacy import Budget, Plan, positive, signed
from hushrec.serving.scoring import UserState
from hushrec.training.estimator import Estimator
from hushrec.training.gate import Gate
from hushrec.training.trainable import Round, plan_of
from hushrec.types import Array, ModelArrays

# Tuned once on validation users of MovieLens-1M and -100K (docs/guides/implicit.md).

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
#: Values of (mu times users), in all and per item, from which items recommend items.
#: `python -m benchmarks.lists --pairs`.
_MANY, _PAIRS_FROM = 4000.0, 2.0


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
    memory : float
        GiB that a training with item pairs may take, > 0. Rounds are planned where pairs need more.
    tuning : PrivateEigenRec.Tuning
        Values that studies chose.
    like_threshold : float or None
        Ratings from here up are likes; None means every row is one. A training by name takes three quarters
        up the declared range, 4 on 1 to 5.
    n_users : int or None
        Declared number of users; None releases it for 1% of the budget.
    public : PublicLikes or None
        Set by a training with public ratings; no setting.

    Notes
    -----
    With w the released item weights, a user's row is ``y_i``: ``w_j ** weight_exponent`` at liked items, at
    norm 1. Its part along popularity is removed and the rest has norm 1 again, ``x_i``. A round with item
    vectors V releases

        ``S = sum_i x_i u_i' + noise``,    ``u_i = V' y_i / |V' y_i|``,

    one step of power iteration: the left singular vectors of all rounds' S are the next V. With popularity q
    and ``h_l = w_l ** (2 weight_exponent)``, a user with n likes L gets the scores

        ``score_j = q_j + v_j f``,    ``f = n / (n + 2) (sum of h_l v_l over L) / (sum of h_l q_l over L)``,

    where a column of V is scaled by how well one half of users' likes predicts the other. With ``pairs``,
    EASE's weights of ``sum_i x_i x_i' + noise`` add to the scores.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: the releases are (epsilon, delta)-DP. A user's factors are
    computed from them and the user's own likes. Gaussian releases. Their mu squared adds up to the budget's.
    The item weights are a vector of norm 1 per user (sensitivity 1 under add-remove, sqrt(2) under replace).
    Every round releases the sum of the outer products of row, without popularity, and factors, each of norm 1
    (1 and 2). With ``pairs`` the item matrix replaces the rounds: the sum of that row times itself (1
    and sqrt(2)). While item weights are uncertain and no taste shows, a round releases the item weights in
    part or whole, at the same sensitivity and charge. With a table of articles or public
    ratings, one release learns the weights of the parts of a list: a user's gradient and Hessian, clipped
    together to norm 1 (1 and 2). No other clip is chosen: nearly every user is at the bound.
    Proofs: docs/proofs/private-eigenrec.md and docs/proofs/stacking.md.

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
        parts_share : float
            Fraction of the budget for the weights of the parts, in (0, 1), if there is a table of articles or
            there are public ratings.
        equalization : float
            Between rounds a dimension is scaled by its singular value to minus this power, in [0, 1], so
            strong ones do not use up the users' norm.
        """

        weight_exponent: Annotated[float, "[-1, 0]"] = -0.3
        support: Positive = 0.5
        learned_items: Annotated[int, "[1, 4194304]"] = 1000
        weights_share: Part = 0.12
        share_growth: Positive = 1.2
        parts_share: Part = 0.03
        equalization: Share = 0.5

    name: ClassVar[str] = "private-eigenrec"
    supports_partitions: ClassVar[bool] = True
    expected: ClassVar[ModelArrays] = EXPECTED
    scores: ClassVar[str] = "likes"

    rank: Annotated[int, "[0, 900]"] = 16
    iterations: Count = 8
    pairs: bool = False
    memory: Positive = 2.0
    tuning: Tuning = Tuning()
    like_threshold: float | None = None
    n_users: Count | None = None
    public: PublicLikes | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        learned = self.tuning.learned_items
        if self.pairs and memory_for(learned) > self.memory:
            raise InputError(
                f"An item matrix of {learned:,} items takes {memory_for(learned):.2g} GiB; set memory to more"
                f" than that, learned_items to less than {learned:,}, or pairs to False."
            )

    @classmethod
    def settings_for(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        """Choose by the signal, mu times the users (docs/guides/implicit.md)."""
        signal = min(budget.mu * n_users, 1e9)
        root = math.sqrt(signal)
        rank = min(round(_RANK_PER_ROOT * root - _RANK_LESS), _LARGEST_RANK)
        rank = rank if rank >= _LEAST_RANK else 0
        learned = max(1, min(round(_LEARNED_PER_ROOT * root), _MOST_LEARNED))
        needed = memory_for(changes.get("learned_items", learned))
        fits = needed <= changes.get("memory", cls.memory) and domain.n_items > 1
        chosen = {
            "rank": rank,
            "learned_items": learned,
            "weights_share": min(0.5, _WEIGHTS_SHARES / (rank + 1)),
            "pairs": fits and signal >= max(_MANY, _PAIRS_FROM * domain.n_items),
            "n_users": n_users,
        }
        return cls.of(chosen, changes)

    # ------------------------------------------------------------------ plan

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        for_parts = self._for_parts(domain)
        weighing = [Round(WEIGHTS, for_parts, signed(1.0))] if for_parts else []
        if not self.rank_in(domain):
            rounds = [Round("item weights", 1.0 - for_parts, positive(1.0)), *weighing]
            return plan_of(rounds, budget, fraction)
        left = 1.0 - for_parts
        rounds = [Round("item weights", left * self.tuning.weights_share, positive(1.0))]
        left *= 1 - self.tuning.weights_share
        if self.pairs:
            rounds.append(Round("item matrix", left, positive(1.0)))
        else:
            growth = [self.tuning.share_growth**step for step in range(self.iterations)]
            for step, part in enumerate(growth, 1):
                share = left * (1 - _SMALL_SHARE) * part / math.fsum(growth)
                rounds.append(Round(f"item sums {step}", share, signed(1.0)))
            rounds.append(Round("halves of likes", left * _SMALL_SHARE, positive(1.0)))
        return plan_of([*rounds, *weighing], budget, fraction, whole=1.0)

    def _for_parts(self, domain: Domain) -> float:
        learned = self._has_table(domain) or self.public is not None
        return self.tuning.parts_share if learned else 0.0

    @staticmethod
    def _has_table(domain: Domain) -> bool:
        return domain.item_features is not None or domain.item_words is not None

    def with_public(self, same: Ratings, external: Ratings | None) -> Self:
        return replace(self, public=PublicLikes.of(same, external, self.like_threshold))

    def rank_in(self, domain: Domain) -> int:
        """Return the rank, below the number of items."""
        return min(self.rank, domain.n_items - 1)

    def weekly_releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        rounds = weekly_rounds(self.rank_in(domain), self.pairs, self._for_parts(domain))
        return plan_of(rounds, budget, fraction)

    def notes(self, budget: Budget, domain: Domain) -> tuple[str, ...]:
        if not self.uses_features(budget, domain):
            return ()
        return (
            "Assumed public too: the table of articles. Its weight in lists follows from the released"
            f" {WEIGHTS}.",
        )

    def uses_features(self, budget: Budget, domain: Domain) -> bool:
        return self._has_table(domain)

    # ------------------------------------------------------------------ training

    def users(self, ratings: Ratings) -> LikingUsers:
        return LikingUsers(ratings, self.like_threshold)

    def train(self, users: LikingUsers, gate: Gate, seed: int, better: Better | None = None) -> ModelArrays:
        return train_first(self, users, gate, seed, better)

    def check_week(self, domain: Domain, last: ModelArrays) -> None:
        if self.pairs and self.rank_in(domain) and "pair_items" not in last.serve:
            raise InputError(
                "This season of item pairs began with one item, so its model has no pairs; keep that"
                " catalogue, or close the season and open another one. Nothing was charged."
            )
        if "part_weights" in last.state and not self._for_parts(domain):
            raise InputError(
                "This season's lists use a table of articles or public ratings; pass one of them again with"
                " --item-features (Domain(item_features=...)), --donors or --public-ratings (public=...)."
                " Nothing was charged."
            )

    def week(self, users: LikingUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
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
        return folded(arrays, from_threshold(csr(history.matrix), self.like_threshold))

    def score_parts(self, arrays: Mapping[str, Array], history: Ratings, column: int) -> Array:
        liked = history.liked(self.like_threshold)
        return at_ratings(history, liked, moved_by(arrays, liked.matrix.indices, column))
