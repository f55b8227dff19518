"""Private EigenRec: items to recommend from likes, by private power iteration, for whole users.

EigenRec (Nikolakopoulos, Kalantzis, Gallopoulos and Garofalakis 2019), which is PureSVD (Cremonesi, Koren
and Turrin 2010) with items scaled by a power of their popularity, ranks the items for a user by the
projection of their own row on the leading item eigenvectors. It is matrix factorisation where all cells,
liked or not, weigh the same: then all items have one Gramian, which scales out, and the item step of
alternating least squares is one product of the users' rows and factors. That product is all that is
released; no Gramian is.

User side (local): their row without its part along popularity, at norm 1, and their factors at norm 1, whose
outer product is their contribution.
Server side (global): the left singular vectors of the noisy sum are the next item vectors. The first of all
vectors, popularity, is known from the released item weights.
Where a first release of the item x item matrix has more of pairs of items than of tastes, the matrix is
released again instead, and items recommend items (:mod:`hushrec.algorithms.item_matrix`). Sensitivities:
docs/proofs/private-eigenrec.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.algorithms.ease import MOST_ITEMS, at_ratings, own_likes, weights_for
from hushrec.algorithms.item_matrix import ItemMatrix
from hushrec.algorithms.likes_taste import (
    NOTHING,
    SMALLEST_WEIGHT,
    Known,
    Sums,
    Taste,
    apart,
    grid,
    relative_weights,
)
from hushrec.algorithms.weekly_eigenrec import EXPECTED, Kept, week, week_of_pairs, weekly_rounds
from hushrec.checks import Count, Part, Positive, Settings, Share, check_numbers
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.kernels.fixed_point import CLIP_MARGIN, FACTOR_BITS, spacing, truncated
from hushrec.kernels.packed import frobenius_scale, unpacked
from hushrec.kernels.residuals import added_residuals
from hushrec.kernels.sparse_rows import at_columns, entries, used_columns, weight_sums, with_values
from hushrec.kernels.sweeps import csr
from hushrec.kernels.symmetric import outer_sums
from hushrec.privacy import Bound, Bounded, Budget, Plan, counted, positive, signed, together
from hushrec.training.estimator import Estimator, Round, UserState, check_planned, plan_of
from hushrec.training.gate import Gate
from hushrec.training.users import Users, finite_or_zero, norms
from hushrec.types import Array, Parts

# Where they were chosen: rank, items and the gain of popularity on validation users of MovieLens-1M and -100K
# (`python -m benchmarks.bench_implicit --constants`: Recall is flat about them); shares of the item matrix
# on validation users and generated pairs; those of certainty and of chance on generated likes.

#: Planned rank: so much of the root of (mu times the number of users), less so much; the most, and the least
#: that is worth the budget it takes from the item weights.
_RANK_PER_ROOT, _RANK_LESS, _LARGEST_RANK, _LEAST_RANK = 0.52, 4.8, 100, 2
#: Share of the item weights, in parts of (rank + 1).
_WEIGHTS_SHARES = 1.5
#: Share of the number of users.
_COUNT_SHARE = 0.01
#: Planned number of learned items: so much of the root of (mu times the number of users); the most.
_LEARNED_PER_ROOT, _MOST_LEARNED = 9.0, 11_000
#: A user's row less its popularity is brought to norm 1, but no entry made longer than by this factor.
_LONGEST = 4.0
#: The item x item matrix is released first where (mu times the number of users) is within these.
_MATRIX_FROM, _MATRIX_TO = 4000.0, 250_000.0
#: Its share is such that (that times the root of the share) is this; the largest, the smallest.
_MATRIX_SIGNAL, _MATRIX_MOST, _MATRIX_LEAST = 1750.0, 0.12, 0.06
#: Users whose scales have a sum of squares below this, or above one over it, count for nothing: no training
#: releases such scales.
_SMALLEST_SQUARE = 1e-200
#: For that matrix a user's row less its popularity is made longer by less than this factor.
_LONGEST_IN_MATRIX = 2.0
#: What the matrix has along popularity, a user.
_ALONG_POPULARITY = 0.1
#: A direction stands out where so much of it is beyond doubt.
_STANDS_OUT = 0.5
#: Where likes are few, rounds are for the item weights, but for a hundredth of the first two.
_MOST_OF_FIRST = 0.99
#: Taste counts for less where a history is long: by (likes over the usual number) to minus this power, half
#: of it with so many directions. Chosen on validation users of both MovieLens.
_LENGTH_POWER, _USUAL_LIKES, _MANY_DIRECTIONS = 0.3, 60.0, 8
#: What of all directions together must be beyond doubt for half of a round to go on looking.
_SOME = 0.1
#: Items of a list, and noise of their mean weight (as a part of it) from which on weights are doubtful.
_LISTED, _DOUBTFUL = 30, 5.0


@dataclass(frozen=True, kw_only=True)
class PrivateEigenRec(Estimator["LikingUsers"]):
    """Recommendation from likes: ratings from a threshold up, or rows that are likes whatever their value.

    Give ``rank`` or let :meth:`planned` choose it; nothing else needs tuning (docs/guides/implicit.md).

    Parameters
    ----------
    rank : int
        Item vectors beside popularity, from 0 to 900; at most one less than there are items.
    iterations : int
        Rounds of power iteration, >= 1.
    tuning : PrivateEigenRec.Tuning
        What studies chose.
    like_from : float or None
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
    show pairs of items for the item matrix, at the same sensitivity and charge. No clip is chosen: nearly
    every
    user is at the bound. Proof: docs/proofs/private-eigenrec.md.

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
    streams: ClassVar[bool] = True
    expected: ClassVar[Parts] = EXPECTED
    scores: ClassVar[str] = "likes"

    @dataclass(frozen=True, kw_only=True)
    class Tuning(Settings):
        """What studies chose on validation users of MovieLens-1M and -100K.

        ``python -m benchmarks.bench_implicit --constants`` prints that Recall is flat about it, and
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
        popularity_gain : float
            What popularity counts in the score beside taste, in [0.01, 100].
        weights_share : float
            Part of the budget (of mu squared) for the item weights, in (0, 1); the rounds share the rest.
        share_growth : float
            A round's budget as a multiple of the one before, > 0.
        matrix_share : float
            Part of the rounds' budget for a release of the item x item matrix before them, in [0, 0.99]. The
            rounds begin with its directions; where it has more of pairs of items than of directions, they
            release the matrix again, and items recommend items.
        equalization : float
            Between rounds a direction is scaled by its singular value to minus this power, in [0, 1], so that
            the strong ones do not use up the users' norm.
        """

        weight_exponent: Annotated[float, "[-1, 0]"] = -0.3
        support: Positive = 0.5
        learned_items: Annotated[int, "[1, 4194304]"] = 1000
        popularity_gain: Annotated[float, "[0.01, 100]"] = 0.7
        weights_share: Part = 0.12
        share_growth: Positive = 1.2
        matrix_share: Annotated[float, "[0, 0.99]"] = 0.0
        equalization: Share = 0.5

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.matrix_share and self.learned_items > MOST_ITEMS:
                raise InputError(
                    f"An item matrix of {self.learned_items:,} items takes more than 1 GiB; set learned_items"
                    f" to at most {MOST_ITEMS:,}, or matrix_share to 0."
                )

    rank: Annotated[int, "[0, 900]"] = 16
    iterations: Count = 8
    tuning: Tuning = Tuning()
    like_from: float | None = None
    n_users: Count | None = None

    @classmethod
    def planned(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        """Rank and shares chosen from public quantities alone (docs/guides/implicit.md).

        Parameters
        ----------
        budget : Budget
            The run's budget.
        domain : Domain
            The declared catalogue.
        n_users : int
            Declared, or released by :func:`hushrec.training.release_user_count`.
        **changes
            Settings to choose otherwise, those of the tuning too.
        """
        check_planned(budget, domain)
        check_numbers(n_users=(n_users, int, "[1, inf)"))
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
        return cls.of(chosen, changes)

    # ------------------------------------------------------------------ plan

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        if not self._rank(domain):
            return plan_of([Round("item weights", 1.0, positive(1.0))], budget, fraction)
        left = 1.0 if self.n_users is not None else 1 - _COUNT_SHARE
        rounds = [Round("item weights", left * self.tuning.weights_share, positive(1.0))]
        if self.n_users is None:
            rounds.insert(0, Round("number of users", _COUNT_SHARE, counted(1.0)))
        growth = [self.tuning.share_growth**step for step in range(self.iterations)]
        left *= 1 - self.tuning.weights_share
        if self.tuning.matrix_share:
            rounds.append(Round("item matrix", left * self.tuning.matrix_share, positive(1.0)))
        for step, part in enumerate(growth, 1):
            share = left * (1 - self.tuning.matrix_share) * part / math.fsum(growth)
            rounds.append(Round(self._label(step), share, signed(1.0)))
        return plan_of(rounds, budget, fraction, whole=1.0)

    def _label(self, step: int) -> str:
        """Of a round; where what it releases is chosen by then, the label says so."""
        return f"item sums {step}" + (", or the item matrix again" if self.tuning.matrix_share else "")

    def _rank(self, domain: Domain) -> int:
        return min(self.rank, domain.n_items - 1)

    # ------------------------------------------------------------------ training

    def users(self, ratings: Ratings) -> LikingUsers:
        return LikingUsers(ratings.liked(self.like_from).rated())

    def train(self, users: LikingUsers, gate: Gate, seed: int) -> Parts:
        """Weights, then rounds of power iteration, each ending in a release."""
        n_users = float(self.n_users or 1)
        if gate.planned("number of users"):
            n_users = max(float(gate.release("number of users", users.count())[0]), 1.0)
        noisy, noise_sd = gate.release("item weights", users.item_weights()), gate.noise_sd("item weights")
        rank = self._rank(users.domain)
        known = self.known(n_users, noisy, noise_sd, rank)
        supported, taste = known.learned, NOTHING
        if rank:
            users.scale(known.scale, known.first)
            start = np.random.default_rng(seed).standard_normal((int(known.learned.sum()), rank))
            if self.tuning.matrix_share:
                matrix = gate.release("item matrix", users.item_matrix(known.learned, positive(1.0)))
                parts = ItemMatrix.of(unpacked(matrix), gate.noise_sd("item matrix") / math.sqrt(2), rank)
                if self._has_pairs(parts):
                    return self._of_pairs(users, known, matrix, rank, gate)
                start = parts.start()
            taste, noisy, noise_sd = self._power_iteration(users, known, start, gate)
            supported = supported | self._learned(noisy, noise_sd, rank)
        counted_sd = gate.noise_sd("number of users") if gate.planned("number of users") else 0.0
        kept = Kept.first(known, counted_sd, noisy, noise_sd, taste)
        return Parts(self.served(known, noisy, noise_sd, taste, supported), kept.to_arrays())

    def served(
        self, known: Known, noisy: Array, noise_sd: float, taste: Taste, supported: NDArray[np.bool_]
    ) -> dict[str, Any]:
        """What a model file serves users with, from the item weights and what is known of taste."""
        popularity = relative_weights(noisy, noise_sd)
        rank = taste.vectors.shape[1]
        # scores are popularity plus taste: the coefficient of popularity is divided out
        # (docs/guides/implicit.md)
        length = np.linalg.norm(known.popularity * known.scale) / math.sqrt(self.tuning.popularity_gain)
        factors = np.zeros((len(noisy), rank), dtype=np.float32)
        if rank:
            vectors = taste.vectors * np.sqrt(taste.gains)
            factors[known.learned] = length * vectors / known.scale[known.learned, None]
        directions = int((taste.certain > _STANDS_OUT).sum())
        power = _LENGTH_POWER * directions**2 / (directions**2 + _MANY_DIRECTIONS**2)
        return {
            "center": np.float64(0.0),
            "item_bias": np.where(supported, popularity, noisy / max(noisy.max(), noise_sd, SMALLEST_WEIGHT)),
            "item_factors": np.float32(_USUAL_LIKES ** (power / 2)) * factors,  # which their factors hold too
            "history_weight": known.scale**2,
            "history_power": np.float64(power),
            "supported": supported.astype(np.uint8),
            "directions": np.int64(directions),
        }

    # the later weeks of a season: weekly_eigenrec.py

    def weekly_releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return plan_of(weekly_rounds(self._rank(domain)), budget, fraction)

    def week(self, users: LikingUsers, gate: Gate, last: Parts) -> Parts:
        if "learned_items" in last.serve:
            return week_of_pairs(self, users, gate, last)
        return week(self, users, gate, last)

    def known(self, n_users: float, noisy: Array, noise_sd: float, rank: int) -> Known:
        """What follows from the released item weights."""
        learned = self._learned(noisy, noise_sd, rank)
        popularity = relative_weights(noisy, noise_sd)
        scale = np.where(learned, popularity**self.tuning.weight_exponent, 0.0)
        first = popularity * scale / np.linalg.norm(popularity * scale)
        first = np.floor(first / grid(first)) * grid(first)  # which leaves its grid as it is
        return Known(n_users, noisy, noise_sd, learned, popularity, scale, first)

    def _learned(self, noisy: Array, noise_sd: float, rank: int) -> NDArray[np.bool_]:
        """The items of largest released weight; more than the rank."""
        order = np.argsort(-noisy, kind="stable")
        count = int((noisy > self.tuning.support * noise_sd).sum())
        learned = np.zeros(len(noisy), dtype=bool)
        learned[order[: max(min(count, self.tuning.learned_items), rank + 1)]] = True
        return learned

    def _power_iteration(
        self, users: LikingUsers, known: Known, start: Array, gate: Gate
    ) -> tuple[Taste, Array, float]:
        """What was found of taste, and the item weights with their noise, which may be less by now.

        Where nothing stands out yet and the heaviest items are not well known, a round releases the weights
        again, beside its sums or instead of them.
        """
        first = known.first[known.learned]
        probe = apart(start, first)
        vectors, taste = np.zeros((len(known.learned), start.shape[1])), NOTHING
        rounds: list[Sums] = []
        weights, weights_sd, part = known.noisy, known.noise_sd, min(_MOST_OF_FIRST, 1 - known.told)
        for step in range(1, self.iterations + 1):
            label = self._label(step)
            vectors[known.learned] = probe
            noisy = gate.release(label, users.contributions(vectors, known.learned, part))
            noise_sd = gate.noise_sd(label)
            if part > 0:
                again, noisy = np.split(noisy, [len(weights)])
                variance = noise_sd**2 / part
                total = max(weights_sd**2 + variance, 1e-300)  # without noise both are 0
                weights = weights + (again - weights) * weights_sd**2 / total
                weights_sd *= math.sqrt(variance / total)
            if part < 1:
                sums = apart(noisy.reshape(probe.shape), first)
                rounds.append(Sums(probe, sums, noise_sd / math.sqrt(1 - part)))
                as_one = known.told == 1  # else rounds have chance in common
                taste = known.taste(Sums.of_all(rounds, known.n_users) if as_one else rounds[-1])
                probe = taste.vectors * (taste.values / taste.values.max()) ** -self.tuning.equalization
            if step > 1:
                part = max(1 - known.told, self._part_of_weights(taste, weights, weights_sd))
        return taste, weights, weights_sd

    @staticmethod
    def _part_of_weights(taste: Taste, noisy: Array, noise_sd: float) -> float:
        """The part of a round that is for the item weights: where taste is doubtful, and they are too.

        Or where what stands out is no taste, so that lists go by popularity alone.
        """
        heavy, certain = float(np.sort(noisy)[-_LISTED:].mean()), float(taste.certain.sum())
        doubtful = min(1.0, _DOUBTFUL * noise_sd / max(heavy, noise_sd, 1e-100))
        none = taste.flat / (taste.flat + certain + _SOME)
        part = max(doubtful, none) / (1 + (certain / _SOME) ** 2)
        return float(np.rint(100 * part) / 100)

    def _has_pairs(self, parts: ItemMatrix) -> bool:
        """What the rounds release: decided by the released matrix alone."""
        return parts.has_pairs()

    def _of_pairs(self, users: LikingUsers, known: Known, matrix: Array, rank: int, gate: Gate) -> Parts:
        """The matrix again in every round, then items that recommend items."""
        precision = _precision(gate.noise_sd("item matrix"))
        total = precision * matrix
        for step in range(1, self.iterations + 1):
            again = gate.release(self._label(step), users.item_matrix(known.learned, signed(1.0)))
            own = _precision(gate.noise_sd(self._label(step)))
            precision, total = precision + own, total + own * again
        return self.served_pairs(known, total / precision, precision if gate.private else 0.0, rank)

    def served_pairs(self, known: Known, matrix: Array, precision: float, rank: int) -> Parts:
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
            "item_scale": known.scale,
            "item_first": known.first,
        }
        return Parts(served, state)

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: weighted sum of their items' factors, over that of their popularity.

        Where many directions are known it is divided by a power of the number of their likes, too. A user
        without a learned item has no factors, and gets the popular items.
        """
        if "learned_items" in arrays:  # items recommend items
            likes = own_likes(history.liked(self.like_from), arrays["learned_items"])
            return UserState(np.zeros(history.n_users), likes)
        rows = csr(history.matrix)
        if self.like_from is not None:
            rows = entries(rows, rows[2] >= np.float32(self.like_from))
        tables = (arrays[name] for name in ("item_factors", "history_weight", "item_bias"))
        (starts, places, _), (items, weight, popularity) = used_columns(rows, *tables)
        ones = np.ones(len(places), np.float32)
        likes = sp.csr_array((ones, places, starts), shape=(history.n_users, len(items)))
        sums = likes @ (items.astype(np.float64) * weight[:, None])
        popularity = weight_sums(starts, places, popularity * weight)
        popularity *= np.diff(starts) ** float(arrays.get("history_power", 0.0))
        factors = np.divide(sums, popularity[:, None], out=np.zeros_like(sums), where=popularity[:, None] > 0)
        return UserState(np.zeros(history.n_users), factors)

    def score_parts(self, arrays: Mapping[str, Array], history: Ratings, column: int) -> Array:
        """Local: each liked item's part of the weighted sum."""
        liked = history.liked(self.like_from)
        if "learned_items" in arrays:
            return at_ratings(history, liked, weights_for(arrays, liked, column))
        own = liked.matrix.indices
        weight, factors = arrays["history_weight"][own], np.asarray(arrays["item_factors"], np.float64)
        popularity = float(arrays["item_bias"][own] @ weight)
        popularity *= len(own) ** float(arrays.get("history_power", 0.0))
        weight = weight / popularity if popularity > 0 else np.zeros(len(own))
        return at_ratings(history, liked, weight * (factors[own] @ factors[column]))


class LikingUsers(Users):
    """Users whose rows, the scales of the items they like, have norm 1, and again without popularity."""

    # of the last :meth:`scale`
    _scale: Array
    _first: Array
    _user_weight: Array
    _along: Array
    _longer: Array

    def scale(self, scale: Array, first: Array) -> None:
        """Take item scales >= 0, and a popularity vector, in fixed point; functions of released weights.

        The scale is 0 where an item does not count. Whose numbers are not finite counts for nothing.
        """
        if not (scale.min() >= 0 and scale.max() < math.inf and first.min() >= 0 and 0 < first.max() <= 1):
            raise InputError(
                "Item scales and popularity must be finite and not negative; train the model anew."
            )
        matrix, square = self._ratings.matrix, float((first**2).sum())
        with np.errstate(all="ignore"):  # a warning would tell of somebody's rows
            squares = weight_sums(matrix.indptr, matrix.indices, scale**2)
            present = (squares > _SMALLEST_SQUARE) & (squares < 1 / _SMALLEST_SQUARE)
            unit = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=present)
            along = unit * weight_sums(matrix.indptr, matrix.indices, scale * first)
            apart = np.sqrt(np.maximum(1 - along**2 / square, _LONGEST**-2.0))
            own = np.column_stack([1 / apart, unit / apart, along / (apart * square)])
        self._scale, self._first = scale, first
        longer, self._user_weight, self._along = finite_or_zero(own).T.copy()
        self._longer = np.maximum(longer, 1.0)

    def item_sums(self, vectors: Array, learned: NDArray[np.bool_]) -> Bounded:
        """Sum over users of (row less its popularity, at norm 1) x (factors, at norm 1): norm <= 1.

        At the learned items, (number of learned items) x rank, row by row. Two sums of integers, of their row
        and of its part along popularity, and an integer combination of them.
        """
        step, first, scale = spacing(_LONGEST), self._first[learned], self._scale[learned]
        likes, along_step = at_columns(_likes(self._ratings), learned), step / grid(self._first)
        users = self._factors(likes, vectors[learned] * scale[:, None])
        room = self._room(users.shape[1], step, along_step)
        nothing, weight = np.zeros((likes.shape[1], 0)), room * self._user_weight
        sums, _ = added_residuals(*csr(likes), users, nothing, row_weight=weight, col_weight=scale, step=step)
        along = truncated((room * self._along)[:, None] * users, along_step).sum(axis=0)
        return Bounded((sums - np.outer(first, along)).ravel(), signed(1.0), step=step)

    def contributions(self, vectors: Array, learned: NDArray[np.bool_], part: float) -> Bounded:
        """A round's release: the sums of :meth:`item_sums` and, for ``part`` of it, the item weights before.

        A vector; counting for the roots of (1 - part) and part, they have norm 1 a user together.
        """
        weights, sums = self.item_weights(), self.item_sums(vectors, learned)
        parts = [weights.times(math.sqrt(part))] if part > 0 else []
        parts += [sums.times(math.sqrt(1 - part))] if part < 1 else []
        return together(parts, signed(1.0))

    def item_matrix(self, learned: NDArray[np.bool_], bound: Bound) -> Bounded:
        """Sum over users of (their row less its popularity, at norm 1) x the same: norm <= 1.

        Between the learned items, a packed triangle. Rows are rounded to integers in units of a step, and all
        that is computed from them is exact.
        """
        matrix, step = self._ratings.matrix, spacing(_LONGEST_IN_MATRIX * CLIP_MARGIN, FACTOR_BITS)
        along_step = step / grid(self._first)
        room = self._room(1, step / 2, along_step / 2) * np.minimum(1, _LONGEST_IN_MATRIX / self._longer)
        cells = np.repeat(room * self._user_weight, np.diff(matrix.indptr)) * self._scale[matrix.indices]
        rows = at_columns(with_values(matrix, truncated(cells + step / 2, step)), learned)
        first = self._first[learned]
        along = truncated(room * self._along + along_step / 2, along_step)
        sums = outer_sums(rows.indptr, rows.indices, rows.data, len(first))
        both, square = rows.T @ along, float(along @ along)
        for item in range(len(first)):
            row = sums[item * (item + 1) // 2 :][: item + 1]
            row -= first[item] * both[: item + 1]
            row -= (both[item] - first[item] * square) * first[: item + 1]
        return Bounded(sums, bound, weight=frobenius_scale(len(first)), step=step**2)

    def _room(self, rank: int, step: float, along_step: float) -> Array:
        """The norm that each user's contribution may have before truncation, which can lengthen it here."""
        counts = np.diff(self._ratings.matrix.indptr)
        lost = step * np.sqrt(counts) + along_step * math.sqrt(float((self._first**2).sum()))
        return CLIP_MARGIN * np.maximum(1 - math.sqrt(rank) * lost, 0.0)

    @staticmethod
    def _factors(likes: sp.csr_array, vectors: Array) -> Array:
        """Every user's factors, at norm 1: their row's products with the vectors; shape (n_users, rank)."""
        with np.errstate(all="ignore"):  # as where they are scaled
            products = finite_or_zero(likes @ vectors)
        largest = np.abs(products).max(axis=1, initial=0.0, keepdims=True)
        products = np.divide(products, largest, out=np.zeros_like(products), where=largest > 0)
        return products * (CLIP_MARGIN / np.maximum(norms(products), 1.0))[:, None]


def _likes(ratings: Ratings) -> sp.csr_array:
    """Ones where there is a rating."""
    matrix = ratings.matrix
    return sp.csr_array((np.ones(matrix.nnz, np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)


def _matrix_share(signal: float) -> float:
    """Planned share of the item matrix: as much as it takes to see pairs of items in it."""
    if not _MATRIX_FROM <= signal <= _MATRIX_TO:
        return 0.0
    return float(np.clip((_MATRIX_SIGNAL / signal) ** 2, _MATRIX_LEAST, _MATRIX_MOST))


def _precision(noise_sd: float) -> float:
    """What a release counts for in a mean of several."""
    return noise_sd**-2.0 if noise_sd else 1.0
