"""Private EigenRec: items to recommend from likes, by private power iteration, for whole users.

EigenRec (Nikolakopoulos, Kalantzis, Gallopoulos and Garofalakis 2019), which is PureSVD (Cremonesi, Koren
and Turrin 2010) with items scaled by a power of their popularity, ranks the items for a user by the
projection of her own row on the leading item eigenvectors. It is matrix factorisation where all cells,
liked or not, weigh the same: then all items have one Gramian, which scales out, and the item step of
alternating least squares is one product of the users' rows and factors. That product is all that is
released; no Gramian is.

User side (local): her row without its part along popularity, at norm 1, and her factors at norm 1, whose
outer product is her contribution.
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
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import svd

from hushrec.algorithms.ease import MOST_ITEMS, own_likes
from hushrec.algorithms.item_matrix import ItemMatrix
from hushrec.checks import check_numbers, check_threshold, check_within
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.estimator import Estimator, Round, UserState, plan_of
from hushrec.gate import Gate
from hushrec.kernels.fixed_point import CLIP_MARGIN, FACTOR_BITS, spacing, truncated
from hushrec.kernels.packed import frobenius_scale, unpacked
from hushrec.kernels.residuals import residual_sums
from hushrec.kernels.sparse_rows import used_columns, weight_sums
from hushrec.kernels.symmetric import outer_sums
from hushrec.privacy import Bound, Bounded, Budget, Plan, counted, positive, signed, together
from hushrec.users import Users, norms

Array = NDArray[Any]

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
#: Singular values are not taken for smaller than this part of the largest.
_SMALLEST_VALUE = 1e-3
#: Planned number of learned items: so much of the root of (mu times the number of users); the most.
_LEARNED_PER_ROOT, _MOST_LEARNED = 9.0, 11_000
#: A user's row less its popularity is brought to norm 1, but no entry made longer than by this factor.
_LONGEST = 4.0
#: Steps in the largest entry of the popularity vector, as a power of two.
_POPULARITY_BITS = 5
#: The item x item matrix is released first where (mu times the number of users) is within these.
_MATRIX_FROM, _MATRIX_TO = 4000.0, 250_000.0
#: Its share is such that (that times the root of the share) is this; the largest, the smallest.
_MATRIX_SIGNAL, _MATRIX_MOST, _MATRIX_LEAST = 1750.0, 0.12, 0.06
#: For that matrix a user's row less its popularity is made longer by less than this factor.
_LONGEST_IN_MATRIX = 2.0
#: What the matrix has along popularity, a user.
_ALONG_POPULARITY = 0.1
#: A direction stands out where so much of it is beyond doubt.
_STANDS_OUT = 0.5
#: With so many certain directions, what chance could show of a further one is half taken for taste.
_MANY = 5.0
#: Dimensions a row are not taken for fewer than this: rows are not quite as the theory has them.
_LEAST_RATIO = 0.1
#: Learned likes a user up to which no direction counts, and from which all count in full.
_FEWEST = 2.0, 6.0
#: Where likes are few, rounds are for the item weights, but for a hundredth of the first two.
_MOST_OF_FIRST = 0.99
#: What of all directions together must be beyond doubt for half of a round to go on looking.
_SOME = 0.1
#: Items of a list, and noise of their mean weight (as a part of it) from which on weights are doubtful.
_LISTED, _DOUBTFUL = 30, 5.0
#: Released item weights are not taken for smaller than this, nor than their noise.
_SMALLEST_WEIGHT = 1e-2


@dataclass(frozen=True, kw_only=True)
class PrivateEigenRec(Estimator["LikingUsers"]):
    """Recommendation from likes: ratings from a threshold up, or rows that are likes whatever their value.

    Give ``rank`` or let :meth:`planned` choose it; nothing else needs tuning (docs/implicit.md).

    Parameters
    ----------
    rank : int
        Item vectors beside popularity, from 0 to 900; at most one less than there are items.
    iterations : int
        Rounds of power iteration, >= 1.
    weight_exponent : float
        Items are scaled by their released weight to this power, in [-1, 0] (EigenRec's d - 1, halved).
    support : float
        Only items whose released weight is more than this many times its noise are learned; the others are
        recommended last. Above 0.
    learned_items : int
        At most so many are learned, those of largest released weight (but more than the rank); up to 2^22.
    popularity_gain : float
        What popularity counts in the score beside taste, in [0.01, 100].
    weights_share : float
        Part of the budget (of mu squared) for the item weights, in (0, 1); the rounds share the rest.
    share_growth : float
        A round's budget as a multiple of the one before, > 0.
    matrix_share : float
        Part of the rounds' budget for a release of the item x item matrix before them, in [0, 0.99]. The
        rounds begin with its directions; where it has more of pairs of items than of directions, they release
        the matrix again, and items recommend items.
    equalization : float
        Between rounds a direction is scaled by its singular value to minus this power, in [0, 1], so that the
        strong ones do not use up the users' norm.
    like_from : float or None
        Ratings from here up are likes; None: every row is one. A training by name takes three quarters up
        the declared range, 4 on 1 to 5.
    n_users : int or None
        Declared number of users; None releases it for 1% of the budget.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: what is released is (epsilon, delta)-DP; a user's factors are
    computed from it and her own likes. Gaussian releases, whose mu squared adds up to the budget's: the item
    weights, a vector of norm 1 a user (sensitivity 1 under add-remove, sqrt(2) under replace), and in every
    round the sum of the outer products of her row, without popularity, and her factors, each of norm 1 (1 and
    2). If planned, there is the item matrix before, the sum of that row times itself (1 and sqrt(2)). Where
    earlier releases show no taste, a round is for the item weights in part or whole, and where they show
    pairs of items for the item matrix, at the same sensitivity and charge. No clip is chosen: nearly every
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
    uses_user_count: ClassVar[bool] = True
    scores: ClassVar[str] = "likes"

    rank: int = 16
    iterations: int = 4
    weight_exponent: float = -0.3
    support: float = 0.5
    learned_items: int = 1000
    popularity_gain: float = 0.7
    weights_share: float = 0.12
    share_growth: float = 2.0
    matrix_share: float = 0.0
    equalization: float = 0.5
    like_from: float | None = None
    n_users: int | None = None

    def __post_init__(self) -> None:
        check_numbers(
            rank=(self.rank, int, 0, 900),
            iterations=(self.iterations, int, 1, None),
            support=(self.support, float, 0, None),
            learned_items=(self.learned_items, int, 1, 1 << 22),
            weights_share=(self.weights_share, float, 0, 1),
            share_growth=(self.share_growth, float, 0, None),
        )
        check_within(weight_exponent=(self.weight_exponent, -1, 0), matrix_share=(self.matrix_share, 0, 0.99))
        check_within(
            equalization=(self.equalization, 0, 1), popularity_gain=(self.popularity_gain, 0.01, 100)
        )
        check_threshold(self.like_from, "like_from")
        if self.matrix_share and self.learned_items > MOST_ITEMS:
            raise InputError(
                f"An item matrix of {self.learned_items:,} items takes more than 1 GiB; set learned_items to"
                f" at most {MOST_ITEMS:,}, or matrix_share to 0."
            )
        if self.n_users is not None:
            check_numbers(n_users=(self.n_users, int, 1, None))

    @classmethod
    def planned(cls, budget: Budget, domain: Domain, n_users: int, **changes: Any) -> Self:
        """Rank and shares chosen from public quantities alone (docs/implicit.md).

        Parameters
        ----------
        budget : Budget
            The run's budget.
        domain : Domain
            The declared catalogue.
        n_users : int
            Declared, or released by :func:`hushrec.algorithms.baselines.release_user_count`.
        **changes
            Fields to set otherwise.
        """
        check_numbers(n_users=(n_users, int, 1, None))
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
        return cls(**(chosen | changes))

    # ------------------------------------------------------------------ plan

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        if not self._rank(domain):
            return plan_of([Round("item weights", 1.0, positive(1.0))], budget, fraction)
        left = 1.0 if self.n_users is not None else 1 - _COUNT_SHARE
        rounds = [Round("item weights", left * self.weights_share, positive(1.0))]
        if self.n_users is None:
            rounds.insert(0, Round("number of users", _COUNT_SHARE, counted(1.0)))
        growth = [self.share_growth**step for step in range(self.iterations)]
        left *= 1 - self.weights_share
        if self.matrix_share:
            rounds.append(Round("item matrix", left * self.matrix_share, positive(1.0)))
        for step, part in enumerate(growth, 1):
            share = left * (1 - self.matrix_share) * part / math.fsum(growth)
            rounds.append(Round(self._label(step), share, signed(1.0)))
        return plan_of(rounds, budget, fraction, whole=1.0)

    def _label(self, step: int) -> str:
        """Of a round; where what it releases is chosen by then, the label says so."""
        return f"item sums {step}" + (", or the item matrix again" if self.matrix_share else "")

    def _rank(self, domain: Domain) -> int:
        return min(self.rank, domain.n_items - 1)

    # ------------------------------------------------------------------ training

    def users(self, ratings: Ratings) -> LikingUsers:
        return LikingUsers(ratings.liked(self.like_from).rated())

    def train(self, users: LikingUsers, gate: Gate, seed: int) -> dict[str, Any]:
        """Weights, then rounds of power iteration, each ending in a release."""
        n_users, n_items = float(self.n_users or 1), users.domain.n_items
        if gate.is_planned("number of users"):
            n_users = max(float(gate.release("number of users", users.count())[0]), 1.0)
        noisy, noise_sd = gate.release("item weights", users.item_weights()), gate.noise_sd("item weights")
        rank = self._rank(users.domain)
        known = self._known(n_users, noisy, noise_sd, rank)
        supported, taste = known.learned, _NOTHING
        if rank:
            users.scale(known.scale, known.first)
            start = np.random.default_rng(seed).standard_normal((int(known.learned.sum()), rank))
            if self.matrix_share:
                matrix = gate.release("item matrix", users.item_matrix(known.learned, positive(1.0)))
                parts = ItemMatrix.of(unpacked(matrix), gate.noise_sd("item matrix") / math.sqrt(2), rank)
                if self._has_pairs(parts):
                    return self._of_pairs(users, known, matrix, rank, gate)
                start = parts.start()
            taste, noisy, noise_sd = self._power_iteration(users, known, start, gate)
            supported = supported | self._learned(noisy, noise_sd, rank)
        popularity = _popularity(noisy, noise_sd)
        # scores are popularity plus taste: the coefficient of popularity is divided out (docs/implicit.md)
        length = np.linalg.norm(known.popularity * known.scale) / math.sqrt(self.popularity_gain)
        factors = np.zeros((n_items, rank), dtype=np.float32)
        if rank:
            vectors = taste.vectors * np.sqrt(taste.gains)
            factors[known.learned] = length * vectors / known.scale[known.learned, None]
        return {
            "center": np.float64(0.0),
            "item_bias": np.where(
                supported, popularity, noisy / max(noisy.max(), noise_sd, _SMALLEST_WEIGHT)
            ),
            "item_factors": factors,
            "history_weight": known.scale**2,
            "supported": supported.astype(np.uint8),
            "directions": np.int64((taste.certain > _STANDS_OUT).sum()),
        }

    def _known(self, n_users: float, noisy: Array, noise_sd: float, rank: int) -> _Known:
        learned = self._learned(noisy, noise_sd, rank)
        popularity = _popularity(noisy, noise_sd)
        scale = np.where(learned, popularity**self.weight_exponent, 0.0)
        first = popularity * scale / np.linalg.norm(popularity * scale)
        first = np.floor(first / _grid(first)) * _grid(first)  # which leaves its grid as it is
        return _Known(n_users, noisy, noise_sd, learned, popularity, scale, first)

    def _learned(self, noisy: Array, noise_sd: float, rank: int) -> NDArray[np.bool_]:
        """The items of largest released weight; more than the rank."""
        order = np.argsort(-noisy, kind="stable")
        count = int((noisy > self.support * noise_sd).sum())
        learned = np.zeros(len(noisy), dtype=bool)
        learned[order[: max(min(count, self.learned_items), rank + 1)]] = True
        return learned

    def _power_iteration(
        self, users: LikingUsers, known: _Known, start: Array, gate: Gate
    ) -> tuple[_Taste, Array, float]:
        """What was found of taste, and the item weights with their noise, which may be less by now.

        Where nothing stands out yet and the heaviest items are not well known, a round releases the weights
        again, beside its sums or instead of them.
        """
        first = known.first[known.learned]
        probe = _apart(start, first)
        vectors, taste = np.zeros((len(known.learned), start.shape[1])), _NOTHING
        weights, weights_sd, part = known.noisy, known.noise_sd, min(_MOST_OF_FIRST, 1 - known.told)
        for step in range(1, self.iterations + 1):
            label = self._label(step)
            vectors[known.learned] = probe
            noisy = gate.release(label, users.contributions(vectors, known.learned, part))
            noise_sd = gate.noise_sd(label)
            if part > 0:
                again, noisy = np.split(noisy, [len(weights)])
                variance = noise_sd**2 / part
                weights = weights + (again - weights) * weights_sd**2 / (weights_sd**2 + variance)
                weights_sd *= math.sqrt(variance / (weights_sd**2 + variance))
            if part < 1:
                sums = _apart(noisy.reshape(probe.shape), first)
                taste = known.taste(probe, sums, noise_sd / math.sqrt(1 - part))
                probe = taste.vectors * (taste.values / taste.values.max()) ** -self.equalization
            if step > 1:
                part = max(1 - known.told, self._part_of_weights(taste.certain.sum(), weights, weights_sd))
        return taste, weights, weights_sd

    @staticmethod
    def _part_of_weights(certain: float, noisy: Array, noise_sd: float) -> float:
        """The part of a round that is for the item weights: where taste is doubtful, and they are too."""
        heavy = float(np.sort(noisy)[-_LISTED:].mean())
        part = min(1.0, _DOUBTFUL * noise_sd / max(heavy, noise_sd, 1e-100)) / (1 + (certain / _SOME) ** 2)
        return float(np.rint(100 * part) / 100)

    def _has_pairs(self, parts: ItemMatrix) -> bool:
        """What the rounds release: decided by the released matrix alone."""
        return parts.has_pairs()

    def _of_pairs(
        self, users: LikingUsers, known: _Known, matrix: Array, rank: int, gate: Gate
    ) -> dict[str, Any]:
        """The matrix again in every round, then items that recommend items."""
        precision = _precision(gate.noise_sd("item matrix"))
        total = precision * matrix
        for step in range(1, self.iterations + 1):
            again = gate.release(self._label(step), users.item_matrix(known.learned, signed(1.0)))
            own = _precision(gate.noise_sd(self._label(step)))
            precision, total = precision + own, total + own * again
        noise_sd = math.sqrt(0.5 / precision) if gate.private else 0.0
        parts = ItemMatrix.of(unpacked(total / precision), noise_sd, rank)
        scale, along = known.scale[known.learned], known.first[known.learned]
        along = along / np.linalg.norm(along)
        weights = parts.weights(along, _ALONG_POPULARITY * known.n_users) * scale[:, None] / scale
        return {
            "center": np.float64(0.0),
            "item_bias": 1e-6 * known.popularity,
            "item_factors": weights.T.astype(np.float32),
            "learned_items": np.flatnonzero(known.learned).astype(np.int32),
            "supported": known.learned.astype(np.uint8),
            "directions": np.int64(parts.certain),
        }

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: weighted sum of her items' factors, over that of their popularity.

        A user without a learned item has no factors, and gets the popular items.
        """
        history = history.liked(self.like_from)
        if "learned_items" in arrays:  # items recommend items
            return UserState(np.zeros(history.n_users), own_likes(history, arrays["learned_items"]))
        tables = (arrays[name] for name in ("item_factors", "history_weight", "item_bias"))
        likes, (items, weight, popularity) = used_columns(_likes(history), *tables)
        sums = likes @ (items.astype(np.float64) * weight[:, None])
        popularity = weight_sums(likes.indptr, likes.indices, popularity * weight)
        factors = np.divide(sums, popularity[:, None], out=np.zeros_like(sums), where=popularity[:, None] > 0)
        return UserState(np.zeros(history.n_users), factors)


class LikingUsers(Users):
    """Users whose rows, the scales of the items they like, have norm 1, and again without popularity."""

    def __init__(self, ratings: Ratings) -> None:
        super().__init__(ratings)
        self._scale = np.ones(ratings.n_items)
        self._first = np.zeros(ratings.n_items)
        self._user_weight = self._along = self._longer = np.zeros(ratings.n_users)

    def scale(self, scale: Array, first: Array) -> None:
        """Take item scales >= 0, and a popularity vector, in fixed point; functions of released weights.

        The scale is 0 where an item does not count.
        """
        matrix = self._ratings.matrix
        squares = weight_sums(matrix.indptr, matrix.indices, scale**2)
        unit = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
        square = float((first**2).sum())
        along = unit * weight_sums(matrix.indptr, matrix.indices, scale * first)
        apart = np.sqrt(np.maximum(1 - along**2 / square, _LONGEST**-2.0))
        self._scale, self._first = scale, first
        self._longer = 1 / apart
        self._user_weight, self._along = unit / apart, along / (apart * square)

    def item_sums(self, vectors: Array, learned: NDArray[np.bool_]) -> Bounded:
        """Sum over users of (her row less its popularity, at norm 1) x (her factors, at norm 1): norm <= 1.

        At the learned items, (number of learned items) x rank, row by row. Two sums of integers, of her row
        and of its part along popularity, and an integer combination of them.
        """
        users, likes, step = self._factors(vectors), self._ratings.transposed, spacing(_LONGEST)
        along_step = step / _grid(self._first)
        room = self._room(users.shape[1], step, along_step)
        sums = residual_sums(
            likes.indptr,
            likes.indices,
            np.ones(likes.nnz, dtype=np.float32),
            np.zeros((likes.shape[0], users.shape[1])),
            users,
            row_weight=self._scale,
            col_weight=room * self._user_weight,
            step=step,
        )
        along = truncated((room * self._along)[:, None] * users, along_step).sum(axis=0)
        return Bounded((sums - np.outer(self._first, along))[learned].ravel(), signed(1.0), step=step)

    def contributions(self, vectors: Array, learned: NDArray[np.bool_], part: float) -> Bounded:
        """A round's release: the sums of :meth:`item_sums` and, for ``part`` of it, the item weights before.

        A vector; counting for the roots of (1 - part) and part, they have norm 1 a user together.
        """
        weights, sums = self.item_weights(), self.item_sums(vectors, learned)
        parts = [weights.times(math.sqrt(part))] if part > 0 else []
        parts += [sums.times(math.sqrt(1 - part))] if part < 1 else []
        return together(parts, signed(1.0))

    def item_matrix(self, learned: NDArray[np.bool_], bound: Bound) -> Bounded:
        """Sum over users of (her row less its popularity, at norm 1) x the same: norm <= 1.

        Between the learned items, a packed triangle. Rows are rounded to integers in units of a step, and all
        that is computed from them is exact.
        """
        matrix, step = self._ratings.matrix, spacing(_LONGEST_IN_MATRIX * CLIP_MARGIN, FACTOR_BITS)
        along_step = step / _grid(self._first)
        room = self._room(1, step / 2, along_step / 2) * np.minimum(1, _LONGEST_IN_MATRIX / self._longer)
        rows = sp.csr_array(matrix, dtype=np.float64, copy=True)
        rows.data = np.repeat(room * self._user_weight, np.diff(rows.indptr)) * self._scale[rows.indices]
        rows.data = truncated(rows.data + step / 2, step)
        rows, first = rows[:, np.flatnonzero(learned)], self._first[learned]
        along = truncated(room * self._along + along_step / 2, along_step)
        sums = outer_sums(rows.indptr, rows.indices, rows.data, len(first))
        both, square = rows.T @ along, float(along @ along)
        left, right = np.tril_indices(len(first))
        sums -= first[left] * both[right]
        sums -= (both - first * square)[left] * first[right]
        return Bounded(sums, bound, weight=frobenius_scale(len(first)), step=step**2)

    def _room(self, rank: int, step: float, along_step: float) -> Array:
        """The norm that each user's contribution may have before truncation, which can lengthen it here."""
        counts = np.diff(self._ratings.matrix.indptr)
        lost = step * np.sqrt(counts) + along_step * math.sqrt(float((self._first**2).sum()))
        return CLIP_MARGIN * np.maximum(1 - math.sqrt(rank) * lost, 0.0)

    def _factors(self, vectors: Array) -> Array:
        """Every user's factors, at norm 1: her row's products with the vectors; shape (n_users, rank)."""
        products = _likes(self._ratings) @ (vectors * self._scale[:, None])
        largest = np.abs(products).max(axis=1, initial=0.0, keepdims=True)
        products = np.divide(products, largest, out=np.zeros_like(products), where=largest > 0)
        return products * (CLIP_MARGIN / np.maximum(norms(products), 1.0))[:, None]


class _Taste(NamedTuple):
    """Directions of taste, and what of each is taken for real.

    Attributes
    ----------
    vectors : ndarray of shape (number of learned items, rank)
        Orthonormal, in the order of `certain`.
    values : ndarray of shape (rank,)
        Their singular values.
    gains, certain : ndarrays of shape (rank,)
        From 0 to 1: what a direction counts in the scores, and what of it is beyond doubt.
    """

    vectors: Array
    values: Array
    gains: Array
    certain: Array


class _Known(NamedTuple):
    """What was released of the items before the rounds: their weights and what follows from them."""

    n_users: float
    noisy: Array
    noise_sd: float
    learned: NDArray[np.bool_]
    popularity: Array
    scale: Array
    first: Array

    @property
    def told(self) -> float:
        """What so few likes a user tell of taste, 0 to 1."""
        likes = (self.noisy[self.learned].sum() / self.n_users) ** 2  # a user, about
        return float(np.rint(100 * np.clip((likes - _FEWEST[0]) / (_FEWEST[1] - _FEWEST[0]), 0, 1)) / 100)

    def taste(self, probe: Array, sums: Array, noise_sd: float) -> _Taste:
        """What the sums of a round say of taste, given the vectors they were taken with (docs/implicit.md).

        A direction is held against three things that are no taste: the noise; what items owe to themselves,
        as a user's row meets itself; and what so many users would show by chance.
        """
        (height, rank), n_users = sums.shape, self.n_users
        left, values, right = svd(sums, full_matrices=False, lapack_driver="gesvd")
        values = np.maximum(values, max(_SMALLEST_VALUE * values[0], 1e-100))
        spread = (self.popularity * self.scale**2)[self.learned]
        lengths = max(float((probe * sums).sum()), 1e-9)  # sum of the users' norms of factors
        own = np.einsum("jk,j,jk->k", left, spread / spread.sum(), probe @ right.T) * n_users**2 / lengths
        own = np.maximum(own, 1e-9 * values)
        ratio = np.einsum("jk,jk->k", left, probe @ right.T) * n_users / lengths / own  # users a dimension
        ratio = np.clip(ratio, _LEAST_RATIO, height)
        above = np.maximum(1 - height * (noise_sd / values) ** 2, 0.0)
        clear = np.maximum(1 - ((math.sqrt(height) + math.sqrt(rank)) * noise_sd / values) ** 2, 0.0)
        taste = _beyond_chance(values * clear / own, ratio)
        certain = clear * taste
        # what is mostly chance is worth less than its part, unless there is more that is certain
        trust = (certain * taste).sum() ** 2
        trust, rich = trust / (1 + trust), trust / (_MANY**2 + trust)
        lenient = above * _beyond_chance(values / own, (1 - rich) * ratio)
        gains = trust * lenient + (1 - trust) * certain * taste
        gains *= self.told
        order = np.argsort(-certain, kind="stable")
        return _Taste(left[:, order], values[order], gains[order], certain[order])


_NOTHING = _Taste(np.zeros((0, 0)), np.zeros(0), np.zeros(0), np.zeros(0))


def _beyond_chance(size: Array, ratio: Array) -> Array:
    """Part of an eigenvector's share that is no chance, 0 to 1, from its eigenvalue in units of the noise.

    Of a covariance matrix that is the identity but for some spikes, from a sample of 1 / ``ratio`` rows a
    dimension: the square of the cosine between the sample's vector and the true one (Donoho, Gavish and
    Johnstone 2018, table 2), times the spike's share of the true eigenvalue. 0 up to the edge of what there
    is without spikes.
    """
    shifted = size + 1 - ratio
    spike = np.maximum((shifted + np.sqrt(np.maximum(shifted**2 - 4 * size, 0.0))) / 2, 1 + 1e-9)
    cosine = np.maximum(1 - ratio / (spike - 1) ** 2, 0.0) / (1 + ratio / (spike - 1))
    return np.where(size > (1 + np.sqrt(ratio)) ** 2, cosine * (1 - 1 / spike), 0.0)


def _popularity(noisy: Array, noise_sd: float) -> Array:
    """Item weights over the largest, none smaller than its noise."""
    weights = np.maximum(noisy, max(noise_sd, _SMALLEST_WEIGHT))
    return weights / weights.max()


def _likes(ratings: Ratings) -> sp.csr_array:
    """Ones where there is a rating."""
    matrix = ratings.matrix
    return sp.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)


def _grid(first: Array) -> float:
    """The step, a power of two, of which a popularity vector's entries are made multiples."""
    return 2.0 ** (math.ceil(math.log2(first.max())) - _POPULARITY_BITS)


def _matrix_share(signal: float) -> float:
    """Planned share of the item matrix: as much as it takes to see pairs of items in it."""
    if not _MATRIX_FROM <= signal <= _MATRIX_TO:
        return 0.0
    return float(np.clip((_MATRIX_SIGNAL / signal) ** 2, _MATRIX_LEAST, _MATRIX_MOST))


def _precision(noise_sd: float) -> float:
    """What a release counts for in a mean of several."""
    return noise_sd**-2.0 if noise_sd else 1.0


def _apart(block: Array, direction: Array) -> Array:
    """Columns less their part along a vector."""
    return block - np.outer(direction, direction @ block / (direction @ direction))
