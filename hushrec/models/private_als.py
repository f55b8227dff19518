"""Private ALS: alternating least squares with released biases and one shared Gramian, for whole users.

It starts from DPALS (Chien et al. 2021, Algorithm 1; :mod:`hushrec.papers.dpals`) and the adaptive
weights of Krichene et al. 2023. Item biases are released first, one clip bounds a user's whole contribution,
and all items share one Gramian, so that their factors are updated by residuals.

User side (local): :class:`~hushrec.training.users.FittedUsers`, a ridge regression of their own ratings on
the released item factors, and their bounded contribution to the item sums. Server side (global), below: the
update of the item factors from the noisy sums. Sensitivities: docs/proofs/private-als.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hushrec.data import Domain, Ratings
from hushrec.data.features import feature_scores
from hushrec.kernels.arrays import BiasedFactors
from hushrec.kernels.packed import top_eigenpairs, unpacked
from hushrec.kernels.sweeps import SweepSettings, initial_items
from hushrec.models import weekly_als
from hushrec.models.als_plan import PlannedALS, or_infinite
from hushrec.models.als_rounds import (
    BIAS_SLOPE,
    Biases,
    FactorPrior,
    FactorSums,
    Ground,
    KnownFactors,
    Level,
    bias_sampling,
    factor_update,
    packed_variance,
    residual_variance,
    spectrum,
    weighted_slopes,
)
from hushrec.models.item_features import expected_from_features, slope_columns
from hushrec.privacy import Budget, Plan
from hushrec.training.estimator import UserState, plan_of
from hushrec.training.gate import Gate
from hushrec.training.posterior import (
    adaptive_weights,
    item_weights,
    level,
    likely_scale,
    likely_variance,
    regression,
    shrinkage,
    standardised,
    visible_part,
    wiener_gain,
)
from hushrec.training.users import USUAL_SPREAD, FittedUsers, ridge_on_items, ridge_parts
from hushrec.types import Array, Parts

# Shares, decays, priors and bounds were chosen in one study (docs/guides/planning.md, "How far to trust it");
# limits of size and of floating point are no choice of a study.

#: Usual values, in units of half the rating range, and by how much their logarithm differs from one data set
#: to the next: squared spread of a user's ratings about their mean, and of the users' means. Chosen on coat,
#: ML-100K and `realistic` data (seeds 0 to 3), epsilon 0.05 to 20: the benchmark never_loses.
_USUAL_SPREAD, _USUAL_OFFSETS = (USUAL_SPREAD, 0.6), (0.08, 0.8)
#: Deviation of the level from the middle of the range, before it is released. Same study: a wide one, so that
#: users who must do without a level are not drawn to the middle.
_USUAL_LEVEL = 1.0
#: What biases usually leave of the squared spread.
_USUAL_RESIDUAL = 0.75
#: Server's model of an item's bias, in units of the spread: deviation from its regression on the log weight
#: before the first round tells. Same study, and the validation ratings of ML-1M.
_BIAS_PRIOR = 0.65
#: Deviation of what is common to all items: their mean from the level, and a slope on the log weight.
_COMMON_PRIOR = 0.5, 0.3
#: The slope of the part of the biases that item features explain, which no Wiener gain damps.
_FEATURE_SLOPE = 0.8
#: Users' factors vary less in the model than declared where a user's root of their number of ratings is below
#: this in the mean: what few ratings show of taste is mostly noise. Same study, epsilon 5 to 20.
_MANY_RATINGS = 8.0
#: Part of an item factor's prior variance that returns from one iteration to the next, since users move too.
_DRIFT = 0.5
#: A user's squared residual counts for at most this many times the last released one; of the squared spread
#: at first.
_RESIDUAL_BOUND, _FIRST_RESIDUAL_BOUND = 4.0, 2.0
#: Smallest and largest ridge on a user's offset, in ratings, and smallest squared spread.
_OFFSET_RIDGES, _SMALLEST_SPREAD = (0.2, 300.0), 1 / 400


@dataclass(frozen=True, kw_only=True)
class PrivateALS(PlannedALS):
    """Private alternating least squares: biases first, then factors.

    Let :meth:`planned` choose everything from public quantities, or give ``rank`` and ``iterations``: as it
    stands it stops after the biases, with the two factors that these give for free. Where
    the domain has ``item_features``, the prior mean of item biases and factors is a regression on them
    (:mod:`hushrec.models.item_features`), fitted to what is released anyway.

    Parameters
    ----------
    rank : int
        Number of item factors, from 0 to 900.
    features : bool
        Start the first two factors from what is released already, at no cost: the item's standardised bias
        and log weight. Every user fits their own slopes; the iterations refine both like any factor. Needs
        ``rank >= 2`` and at least one bias round.
    iterations : int
        Releases of the item factors, >= 0.
    bias_rounds : int
        Releases of the item biases before the first factors, >= 0.
    tuning : PrivateALS.Tuning
        What studies chose.
    n_users : int or None
        Declared number of users; None releases it together with the level.

    Notes
    -----
    The spread is the released standard deviation of a user's ratings about their own mean. Clips are declared
    in units of it and of the residual variance, which is released anew before each iteration: bounds follow
    what the model leaves of the ratings, and with them the noise.

    Privacy
    -------
    Unit: user. Relation: the budget's. Joint: what is released is (epsilon, delta)-DP; a user's factors
    are computed from it and their own ratings. Every release is Gaussian and mu squared adds up to the
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
    streams: ClassVar[bool] = True
    expected: ClassVar[Parts] = weekly_als.EXPECTED

    def uses_features(self, budget: Budget, domain: Domain) -> bool:
        return domain.item_features is not None

    def notes(self, budget: Budget, domain: Domain) -> tuple[str, ...]:
        if domain.item_features is None:
            return ()
        count = domain.item_features.shape[1]
        return (
            f"Assumed public too: {count} item features. They cost nothing: only released values, and users"
            " on their own devices, met them.",
        )

    # ------------------------------------------------------------------ training

    def users(self, ratings: Ratings) -> FittedUsers:
        return FittedUsers(ratings)

    def train(self, users: FittedUsers, gate: Gate, seed: int) -> Parts:
        """Bias rounds, then iterations, each ending in a release."""
        domain = users.domain
        level = self._level(users, gate)
        noisy, weights_sd = gate.release("item weights", users.item_weights()), gate.noise_sd("item weights")
        weights, supported = item_weights(noisy, weights_sd)
        relative = adaptive_weights(weights, self.tuning.weight_exponent)
        slopes = weighted_slopes(weights, relative)
        users.weigh(level.center, relative)
        root = weights.sum() / level.n_users  # of a user's number of ratings
        level = level._replace(user_variance=min(1.0, root / _MANY_RATINGS) * level.user_variance)

        dtype = np.float64 if gate.private else np.float32  # what is released is summed in float64
        ground = Ground(level, slopes, feature_scores(domain.item_features, domain.n_items))
        popularity = standardised(np.log(weights), weights) * visible_part(noisy, weights_sd)
        biases = self._learn_biases(users, gate, ground, popularity, dtype)
        items = biases.items
        if self.features:
            columns = [biases.reliability * standardised(items[:, 0], weights), popularity, items[:, 0]]
            items = np.column_stack(columns).astype(dtype)
        public = ground.scores[:, : self._learned if biases.informative else 0]
        items, residual, factors = self._learn_factors(users, gate, ground, items, public, seed)
        counted_sd = gate.noise_sd("level") if gate.planned("level") and self.n_users is None else 0.0
        state = weekly_als.State.first(level, residual, counted_sd, (noisy, weights_sd), biases, factors)
        served = weekly_als.served(level, residual, items, supported, self._iterates)
        if self.scores == "ratings" and ground.scores.size:
            slopes_on = slope_columns(ground.scores, residual / level.user_variance, biases.informative)
            served = weekly_als.with_slopes(served, slopes_on, private=gate.private)
        return Parts(served, state.to_arrays())

    # the later weeks of a season: weekly_als.py

    def weekly_releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return plan_of(weekly_als.rounds(self), budget, fraction)

    def week(self, users: FittedUsers, gate: Gate, last: Parts) -> Parts:
        return weekly_als.week(self, users, gate, last)

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: ridge regression of a user's own ratings on the released item factors."""
        return ridge_on_items(arrays, history.matrix, stored_ridge(arrays))

    def score_parts(self, arrays: Mapping[str, Array], history: Ratings, column: int) -> Array:
        return ridge_parts(arrays, history.matrix, stored_ridge(arrays), column)

    # ------------------------------------------------------------------ server's steps

    def _level(self, users: FittedUsers, gate: Gate) -> Level:
        """Level (0 for likes), number of users and spreads, as far as they show above the noise."""
        domain, n_users, center, unsure = users.domain, float(self.n_users or 1), 0.0, 0.0
        half = domain.half_width
        if gate.planned("level"):
            if self.n_users is None:
                noisy = gate.release("level", users.level())
            else:
                noisy = np.append(gate.release("level", users.mean_sum()), n_users)
            center, n_users = level(noisy, domain)
            known = float(shrinkage(_USUAL_LEVEL, gate.noise_sd("level") / n_users))
            center = known * (center - domain.midpoint) / half
            unsure = (1 - known) * _USUAL_LEVEL**2
        squares = gate.release("spreads", users.spreads()) / (n_users * half**2)
        noise_sd = gate.noise_sd("spreads") / n_users
        within = likely_variance(squares[0], noise_sd, *_USUAL_SPREAD)
        within = min(max(within, _SMALLEST_SPREAD), 1.0)
        offsets = likely_variance(squares[1] - center**2, noise_sd, *_USUAL_OFFSETS) + unsure
        ridge = float(np.clip(within / offsets, *_OFFSET_RIDGES))
        center = domain.midpoint + half * center if self.scores == "ratings" else 0.0
        variance = self.tuning.user_variance * half**2 * within
        return Level(center, n_users, half * math.sqrt(within), ridge, variance)

    def _learn_biases(
        self, users: FittedUsers, gate: Gate, ground: Ground, popularity: Array, dtype: Any
    ) -> Biases:
        """Rounds of rank 0: a user's only factor is the constant."""
        level, slopes, scores = ground
        items = np.zeros((len(slopes), 1), dtype=dtype)
        slope, unit, informative = BIAS_SLOPE * slopes, level.spread, False
        prior = np.full(len(items), (_BIAS_PRIOR * unit) ** 2)
        variance = prior
        design = np.column_stack([np.ones(len(items)), popularity])
        precision = np.diag((np.array(_COMMON_PRIOR) * unit) ** -2.0)
        ridge = level.ridge(unit**2)
        sampling = bias_sampling(slopes, level.n_users, unit)
        for step, (label, _, clip) in enumerate(self._bias_rounds()):
            users.fit(items, ridge)
            noisy = gate.release(label, users.item_biases(items, clip, unit))[:, 0]
            noise_variance = (unit * gate.noise_sd(label)) ** 2 + sampling
            common, total = regression(noisy, slope, design, variance, noise_variance, precision)
            if step == 0:  # how far biases spread shows in the sums themselves
                rest = noisy - slope * (design @ common)
                prior = prior * likely_scale(rest, slope**2 * variance, noise_variance)
                variance = prior
                common, total = regression(noisy, slope, design, variance, noise_variance, precision)
            precision, change = total, design @ common
            noisy = noisy - slope * change
            shared = _FEATURE_SLOPE * slopes
            explained, variance = expected_from_features(
                scores, noisy[:, None], shared[:, None], variance, noise_variance[:, None]
            )
            informative |= bool(explained.any())
            gain = wiener_gain(slope, variance, noise_variance)
            change += explained[:, 0] + gain * (noisy - shared * explained[:, 0])
            items = items + change[:, None].astype(items.dtype)
            variance = variance * (1 - gain * slope)
        return Biases(items, variance, 1 - variance / prior, informative)

    def _start(
        self, users: FittedUsers, gate: Gate, level: Level, items: Array, public: Array, seed: int
    ) -> Array:
        """First learned factors, between features and biases: public, random, or spectral (Remark 2)."""
        n_items = len(items)
        if self._starts_spectral:
            released = gate.release(
                "start", users.outer_products(items, or_infinite(self.tuning.start_clip), level.spread)
            )
            matrix = unpacked(released)
            np.fill_diagonal(matrix, 0.0)  # a diagonal entry is a sum of squares, noise included
            vectors = top_eigenpairs(matrix, min(self._learned, n_items))[1]
            vectors = np.pad(vectors, ((0, 0), (0, self._learned - vectors.shape[1])))
            learned = vectors * math.sqrt(n_items) * self.tuning.factor_prior
        else:
            learned = BiasedFactors(initial_items(n_items, self._learned, seed, items.dtype)).factors
            # what items are said to be tells tastes apart better than a random start
            learned[:, : public.shape[1]] = 0.3 / math.sqrt(max(self._learned, 1)) * public / _rms(public)
        known = BiasedFactors(items)
        return np.column_stack([known.factors, learned, known.biases]).astype(items.dtype)

    def _learn_factors(
        self, users: FittedUsers, gate: Gate, ground: Ground, items: Array, public: Array, seed: int
    ) -> tuple[Array, float, KnownFactors | None]:
        """Iterations with one Gramian for all items and updates by residuals.

        Items, residual variance, and what is known of the factors.
        """
        level, slopes, scores = ground
        square, n_users = level.spread**2, level.n_users
        residual, most = _USUAL_RESIDUAL * square, _FIRST_RESIDUAL_BOUND * square
        usual, known = self.tuning.factor_prior**2, None
        prior = np.full((len(items), self.rank), usual)
        for step, (votes, _, gramian, sums, clip) in enumerate(self._factor_rounds()):
            users.fit(items, level.ridge(residual))
            released = gate.release(votes.label, users.residual_variance(items, slopes, most))
            residual = residual_variance(released, residual, most, n_users, gate.noise_sd(votes.label))
            most = _RESIDUAL_BOUND * residual
            if step == 0:  # later sums are of the fit that the residual variance was released of
                items = self._start(users, gate, level, items, public, seed)
                users.fit(items, level.ridge(residual))
            unit = level.spread * math.sqrt(residual)
            contributions = users.item_sums(
                items, slopes, or_infinite(self.tuning.user_norm), clip, level.spread, unit
            )
            gram = gate.release(gramian.label, contributions[1])
            noisy = gate.release(sums.label, contributions[0])
            values, vectors, variance = spectrum(gram, gate.noise_sd(gramian.label), n_users, level)
            factors = BiasedFactors(items).factors
            noisy = noisy - variance * slopes[:, None] * factors
            if step == 0 and self.tuning.start == "random":  # learned columns were a guess: solve outright
                guess = factors * (np.arange(self.rank) >= 2 * self.features)
                noisy = noisy + slopes[:, None] * ((guess @ vectors) * values) @ vectors.T
                factors -= guess
            sums_sd = unit * gate.noise_sd(sums.label)
            found = FactorSums(noisy, values, vectors, sums_sd, residual)
            change, left = factor_update(slopes, FactorPrior(prior, scores), found)
            factors += change
            prior = np.minimum(left + _DRIFT * usual, usual)
            gram_sd, norm = gate.noise_sd(gramian.label) / n_users, self.tuning.user_norm or 1.0
            gram_variance = packed_variance(gram_sd, self.rank, norm, level.spread)
            known = KnownFactors(left @ vectors.T**2, gram / n_users, gram_variance)
            del contributions, noisy, found, change, left  # each as large as the model
        return items, residual, known


def stored_ridge(arrays: Mapping[str, Array]) -> SweepSettings:
    """Users' ridge as the billboard has it."""
    return SweepSettings(
        regularization=float(arrays["regularization"]),
        bias_regularization=float(arrays["bias_regularization"]),
    )


def _rms(columns: Array) -> Array:
    """Root of each column's mean square."""
    return np.sqrt((columns**2).mean(axis=0))
