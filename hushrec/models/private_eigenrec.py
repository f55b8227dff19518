"""Private EigenRec: items to recommend from likes, by private power iteration, for whole users.

EigenRec (Nikolakopoulos, Kalantzis, Gallopoulos and Garofalakis 2019), which is PureSVD (Cremonesi, Koren
and Turrin 2010) with items scaled by a power of their popularity, ranks the items for a user by the
projection of their own row on the leading item eigenvectors. It is matrix factorisation where all cells,
liked or not, weigh the same: then all items have one Gramian, which scales out, and the item step of
alternating least squares is one product of the users' rows and factors. That product is all that is
released; no Gramian is.

User side (local; :mod:`hushrec.models.liking_users`): their row without its part along popularity, at
norm 1, and their factors at norm 1, whose outer product is their contribution.
Server side (global): the left singular vectors of the noisy sum are the next item vectors. The first of all
vectors, popularity, is known from the released item weights.
Where a first release of the item x item matrix has more of pairs of items than of tastes, the matrix is
released again instead, and items recommend items (:mod:`hushrec.models.item_matrix`). Sensitivities:
docs/proofs/private-eigenrec.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hushrec.checks import plural
from hushrec.data import Domain, Ratings
from hushrec.kernels.packed import unpacked
from hushrec.kernels.sparse_rows import entries
from hushrec.kernels.sweeps import csr
from hushrec.models.ease import at_ratings, own_likes, weights_for
from hushrec.models.eigenrec_plan import PlannedEigenRec
from hushrec.models.item_matrix import ItemMatrix
from hushrec.models.liked_features import VOTES, weight_of, with_features
from hushrec.models.likes_taste import NOTHING, UNMEASURED, Halves, Known, Measured, Sums, Taste, apart
from hushrec.models.liking_users import LikingUsers, folded
from hushrec.models.weekly_eigenrec import EXPECTED, Kept, week, week_of_pairs, weekly_rounds
from hushrec.privacy import Bounded, Budget, Plan, positive, signed
from hushrec.training.estimator import UserState, plan_of
from hushrec.training.gate import Gate
from hushrec.training.posterior import item_weights
from hushrec.types import Array, ModelArrays

#: Most of the first two rounds that is for the item weights.
_MOST_OF_FIRST = 0.5
#: Rounds release item weights, too, while so much of the weight of the popular items is not known.
_DOUBTFUL = 0.05


@dataclass(frozen=True, kw_only=True)
class PrivateEigenRec(PlannedEigenRec):
    """Private lists from likes.

    Give ``rank`` or let :meth:`planned` choose it; nothing else needs tuning (docs/guides/implicit.md).

    Parameters
    ----------
    rank : int
        Item vectors beside popularity, from 0 to 900; at most one less than there are items.
    iterations : int
        Rounds of power iteration, >= 1.
    tuning : PrivateEigenRec.Tuning
        What studies chose.
    like_threshold : float or None
        Ratings from here up are likes; None: every row is one. A training by name takes three quarters up
        the declared range, 4 on 1 to 5.
    n_users : int or None
        Declared number of users; None releases it for 1% of the budget.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: what is released is (epsilon, delta)-DP; a user's factors are
    computed from it and their own likes. Gaussian releases, whose mu squared adds up to the budget's: the
    item weights, a vector of norm 1 a user (sensitivity 1 under add-remove, sqrt(2) under replace), and in
    every round the sum of the outer products of row, without popularity, and factors, each of norm 1
    (1 and 2). If planned, there is the item matrix before, the sum of that row times itself (1 and sqrt(2)).
    Where earlier releases show no taste, a round is for the item weights in part or whole, and where they
    show pairs of items for the item matrix, at the same sensitivity and charge. Where there are item
    features and few users, each votes on what is made of them, by 1, 0 or -1 (1 and 2). No clip is chosen:
    nearly every user is at the bound. Proof: docs/proofs/private-eigenrec.md.

    Examples
    --------
    >>> ratings = hushrec.realistic(2000, 50, 60_000, seed=0)
    >>> budget = hushrec.Budget(epsilon=5, delta=1e-6)
    >>> estimator = hushrec.PrivateEigenRec.planned(budget, ratings.domain, n_users=2000)
    >>> estimator.plan(budget, ratings.domain).check()           # nothing is spent by planning
    >>> model = estimator.fit(ratings, hushrec.Accountant(budget))
    >>> len(model.recommend({ratings.domain.items[0]: 5}, n=3))
    3
    """

    name: ClassVar[str] = "private-eigenrec"
    supports_partitions: ClassVar[bool] = True
    expected: ClassVar[ModelArrays] = EXPECTED
    scores: ClassVar[str] = "likes"

    def users(self, ratings: Ratings) -> LikingUsers:
        return LikingUsers(ratings, self.like_threshold)

    def train(self, users: LikingUsers, gate: Gate, seed: int) -> ModelArrays:
        """Weights, then rounds of power iteration, each ending in a release."""
        n_users = float(self.n_users or 1)
        if gate.planned("number of users"):
            n_users = max(float(gate.release("number of users", users.count())[0]), 1.0)
        noisy, noise_sd = gate.release("item weights", users.item_weights()), gate.noise_sd("item weights")
        rank = self._rank(users.domain)
        known = self.known(n_users, noisy, noise_sd, rank)
        supported, taste, measured = known.learned, NOTHING, UNMEASURED
        if rank:
            users.scale(known.scale, known.first)
            start = np.random.default_rng(seed).standard_normal((int(known.learned.sum()), rank))
            if self.tuning.matrix_share:
                matrix = gate.release("item matrix", users.item_matrix(known.learned, positive(1.0)))
                parts = ItemMatrix.of(unpacked(matrix), gate.noise_sd("item matrix") / math.sqrt(2), rank)
                if self._has_pairs(parts):
                    return self._of_pairs(users, known, matrix, rank, gate)
                start = parts.start()
            taste, measured, noisy, noise_sd = self._power_iteration(users, known, start, gate)
            supported = supported | self._learned(noisy, noise_sd, rank)
        counted_sd = gate.noise_sd("number of users") if gate.planned("number of users") else 0.0
        kept = Kept.first(known, counted_sd, (noisy, noise_sd), measured)
        found = ModelArrays(self.served(known, noisy, noise_sd, taste, supported), kept.to_arrays())
        if not gate.planned(VOTES):
            return found
        found = with_features(found, users.domain)
        votes = float(gate.release(VOTES, users.votes(dict(found.serve), dict(found.beside)))[0])
        return found.counting(weight_of(votes, gate.noise_sd(VOTES), n_users))

    def notes(self, budget: Budget, domain: Domain) -> tuple[str, ...]:
        if not self._votes(domain):
            return ()
        return (
            f"Assumed public too: {plural(domain.item_features.shape[1], 'item feature')}. What lists make of"
            " them follows from released values; whether they count is told by the released sum of the users'"
            " votes.",
        )

    def uses_features(self, budget: Budget, domain: Domain) -> bool:
        return bool(self._votes(domain))

    # the later weeks of a season: weekly_eigenrec.py

    def weekly_releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return plan_of(weekly_rounds(self._rank(domain), self.tuning.matrix_share > 0), budget, fraction)

    def week(self, users: LikingUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
        if "learned_items" in last.serve:
            return week_of_pairs(self, users, gate, last)
        parts, weight = week(self, users, gate, last), last.state.get("beside_weight")
        if weight is None:
            return parts
        return with_features(parts, users.domain, last.state["item_components"]).counting(float(weight))

    def _power_iteration(
        self, users: LikingUsers, known: Known, start: Array, gate: Gate
    ) -> tuple[Taste, Measured, Array, float]:
        """Return the taste that was found, and the item weights with their noise, which may be less by now.

        Where no taste shows yet and the heaviest items are not well known, a round releases the weights
        again, with its sums or instead of them.
        """
        first = known.first[known.learned]
        probe = apart(start, first)
        vectors = np.zeros((len(known.learned), start.shape[1]))
        rounds: list[Sums] = []
        weights, weights_sd = known.noisy, known.noise_sd

        def released(label: str, bounded: Bounded, part: float) -> tuple[Array, float]:
            """Release, and put the item weights with those before; return the rest with its noise."""
            nonlocal weights, weights_sd
            noisy, noise_sd = gate.release(label, bounded), gate.noise_sd(label)
            if part > 0:
                again, noisy = np.split(noisy, [len(weights)])
                variance = noise_sd**2 / part
                total = max(weights_sd**2 + variance, 1e-300)  # without noise both are 0
                weights = weights + (again - weights) * weights_sd**2 / total
                weights_sd *= math.sqrt(variance / total)
            return noisy, noise_sd / math.sqrt(1 - part) if part < 1 else 0.0

        for step in range(1, self.iterations + 1):
            part = self._part_of_weights(rounds, weights, weights_sd, known.n_users)
            vectors[known.learned] = probe
            noisy, noise_sd = released(
                self._label(step), users.contributions(vectors, known.learned, part), part
            )
            if part < 1:
                rounds.append(Sums(probe, apart(noisy.reshape(probe.shape), first), noise_sd))
                along, values = Sums.of_all(rounds, known.n_users).directions()
                probe = along * (values / values[0]) ** -self.tuning.equalization
        vectors[known.learned] = along
        part = self._part_of_weights(rounds, weights, weights_sd, known.n_users)
        noisy, noise_sd = released(self._label(), users.halves(vectors, known.learned, part), part)
        if part == 1:
            return NOTHING, UNMEASURED, weights, weights_sd
        halves = Measured(Sums.of_all(rounds, known.n_users), along, noisy, noise_sd)
        taste = Halves.of(noisy, noise_sd).taste(along, values, np.eye(along.shape[1]), known.n_users)
        return taste, halves, weights, weights_sd

    def _part_of_weights(self, rounds: list[Sums], noisy: Array, noise_sd: float, n_users: float) -> float:
        """The part of a round that is for the item weights: where no taste shows, and they are doubtful."""
        doubt = min((1 - item_weights(noisy, noise_sd).known) / _DOUBTFUL, 1.0)
        if len(rounds) < 2:
            return float(np.rint(100 * min(doubt, _MOST_OF_FIRST)) / 100)
        return float(np.rint(100 * doubt * (1 - Sums.of_all(rounds, n_users).shown())) / 100)

    def _has_pairs(self, parts: ItemMatrix) -> bool:
        """Choose what the rounds release, by the released matrix alone."""
        return parts.has_pairs()

    def _of_pairs(
        self, users: LikingUsers, known: Known, matrix: Array, rank: int, gate: Gate
    ) -> ModelArrays:
        """The matrix again in every round, then items that recommend items."""
        precision = _precision(gate.noise_sd("item matrix"))
        total = precision * matrix
        for step in (*range(1, self.iterations + 1), 0):
            bound = signed(1.0) if step else positive(1.0)
            again = gate.release(self._label(step), users.item_matrix(known.learned, bound))
            own = _precision(gate.noise_sd(self._label(step)))
            precision, total = precision + own, total + own * again
        return self.served_pairs(known, total / precision, precision if gate.private else 0.0, rank)

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        if "learned_items" in arrays:  # items recommend items
            likes = own_likes(history.liked(self.like_threshold), arrays["learned_items"])
            return UserState(np.zeros(history.n_users), likes)
        rows = csr(history.matrix)
        if self.like_threshold is not None:
            rows = entries(rows, rows[2] >= np.float32(self.like_threshold))
        return folded(arrays, rows)

    def score_parts(self, arrays: Mapping[str, Array], history: Ratings, column: int) -> Array:
        """Local: each liked item's part of the weighted sum."""
        liked = history.liked(self.like_threshold)
        if "learned_items" in arrays:
            return at_ratings(history, liked, weights_for(arrays, liked, column))
        own = liked.matrix.indices
        weight, factors = arrays["history_weight"][own], np.asarray(arrays["item_factors"], np.float64)
        total = float(arrays.get("history_total", arrays["item_bias"][own] @ weight))
        weight = weight / total if total > 0 else np.zeros(len(own))
        return at_ratings(history, liked, weight * (factors[own] @ factors[column]))


def _precision(noise_sd: float) -> float:
    """Return the weight of a release in a mean of several."""
    return noise_sd**-2.0 if noise_sd else 1.0
