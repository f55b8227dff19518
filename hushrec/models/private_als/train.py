"""The first training of private ALS.

It starts from DPALS (Chien et al. 2021, Algorithm 1; :mod:`hushrec.papers.dpals`) and the adaptive weights of
Krichene et al. 2023. Item biases are released first, one clip bounds a user's whole contribution, and all
items share one Gramian. So factors are updated by residuals.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hushrec.data.features import feature_scores
from hushrec.kernels.arrays import BiasedFactors
from hushrec.kernels.sweeps import START, initial_items
from hushrec.models.private_als.features import expected_from_features, slope_columns
from hushrec.models.private_als.settings import ALSSettings
from hushrec.models.private_als.updates import (
    BIAS_PRIOR,
    BIAS_SLOPE,
    RESIDUAL_BOUND,
    Biases,
    FactorSums,
    Ground,
    KnownFactors,
    Level,
    bias_sampling,
    factor_update,
    or_infinite,
    packed_variance,
    residual_variance,
    spectrum,
    weighted_slopes,
)
from hushrec.models.private_als.users import FittedUsers
from hushrec.models.private_als.week import State, served, with_slopes
from hushrec.training.gate import Gate
from hushrec.training.posterior import (
    adaptive_weights,
    item_weights,
    left_after,
    level,
    likely_scale,
    likely_variance,
    ratio,
    regression,
    shrinkage,
    standardised,
    visible_part,
    wiener_gain,
)
from hushrec.training.users import USUAL_SPREAD
from hushrec.types import Array, ModelArrays

# Tuned with `python -m benchmarks.never_loses` (docs/guides/planning.md, "How far to trust the plan").

#: Prior variance of the users' means, in squared half rating ranges.
_USUAL_OFFSETS = 0.1
#: Prior deviation of the users' mean weight in the spreads from 1.
_USUAL_WEIGHT = 0.5
#: Prior deviation of the level from the middle of the range, in half rating ranges.
_USUAL_LEVEL = 1.0
#: Prior deviation of the items' mean from the level, and of a slope on the log weight, in units of the
#: spread.
_COMMON_PRIOR = 0.5
#: Variance of sampling in an item's bias, over that of cells that no clip shortens.
_SAMPLING = 2.0
#: Slope of the released biases in the part that item features explain, per released weight.
_FEATURE_SLOPE = 0.8


def train_first(model: ALSSettings, users: FittedUsers, gate: Gate, seed: int) -> ModelArrays:
    domain = users.domain
    level = _level(model, users, gate)
    noisy, weights_sd = gate.release("item weights", users.item_weights()), gate.noise_sd("item weights")
    weights, supported, _ = item_weights(noisy, weights_sd)
    relative = adaptive_weights(weights, model.tuning.weight_exponent)
    slopes = weighted_slopes(weights, relative)
    users.weigh(level.center, relative)

    dtype = np.float64 if gate.private else np.float32  # released sums are in float64
    ground = Ground(level, slopes, feature_scores(domain.item_features, domain.n_items))
    popularity = standardised(np.log(weights), weights) * visible_part(noisy, weights_sd)
    biases = _learn_biases(model, users, gate, ground, popularity, dtype)
    items = biases.items
    if model.features:
        columns = [biases.reliability * standardised(items[:, 0], weights), popularity, items[:, 0]]
        items = np.column_stack(columns).astype(dtype)
    public = ground.scores[:, : model.learned_factors if biases.useful > 0.5 else 0]
    items, residual, factors = _learn_factors(model, users, gate, ground, items, public, seed)
    state = State.first(level, residual, (noisy, weights_sd), biases, factors)
    serve = served(level, residual, items, supported, model.factor_rounds > 0)
    if model.scores == "ratings" and ground.scores.size:
        slopes_on = slope_columns(ground.scores, residual / level.user_variance, biases.useful)
        serve = with_slopes(serve, slopes_on, private=gate.private)
    return ModelArrays(serve, state.to_arrays())


def _level(model: ALSSettings, users: FittedUsers, gate: Gate) -> Level:
    """Return the level (0 for likes), number of users and spreads, shrunk by their noise."""
    domain, n_users, center, unsure = users.domain, model.known_users, 0.0, 0.0
    half = domain.half_width
    if gate.planned("level"):
        center, _ = level(np.append(gate.release("level", users.mean_sum()), n_users), domain)
        known = float(shrinkage(_USUAL_LEVEL, gate.noise_sd("level") / n_users))
        center = known * (center - domain.midpoint) / half
        unsure = (1 - known) * _USUAL_LEVEL**2
    center = domain.midpoint + half * center if model.scores == "ratings" else 0.0
    squares, between, halves = gate.release("spreads", users.spreads(center)).tolist()
    noise_sd = gate.noise_sd("spreads")
    known = float(shrinkage(_USUAL_WEIGHT, 2 * noise_sd / n_users))
    weight = max(known * 2 * halves + (1 - known) * n_users, noise_sd)
    within = min(likely_variance(squares / weight, noise_sd / weight, USUAL_SPREAD), 1.0)
    offsets = likely_variance(between / weight, noise_sd / weight, _USUAL_OFFSETS) + unsure
    variance = model.tuning.user_variance * half**2 * within
    return Level(center, n_users, half * math.sqrt(within), within / offsets, variance)


def _learn_biases(
    model: ALSSettings, users: FittedUsers, gate: Gate, ground: Ground, popularity: Array, dtype: Any
) -> Biases:
    level, slopes, scores = ground
    items = np.zeros((len(slopes), 1), dtype=dtype)
    slope, unit, useful = BIAS_SLOPE * slopes, level.spread, 0.0
    prior = np.full(len(items), (BIAS_PRIOR * unit) ** 2)
    # `best` fits the ratings: the true biases and an error of sampling, which all rounds share
    sampling = _SAMPLING * bias_sampling(slopes, level.n_users, unit) / slopes**2
    mean, best, variance = np.zeros(len(items)), np.zeros(len(items)), prior + sampling
    design = np.column_stack([np.ones(len(items)), popularity])
    precision = np.eye(2) / (_COMMON_PRIOR * unit) ** 2
    ridge = level.ridge(unit**2)
    clip, part = or_infinite(model.tuning.bias_clip), prior / (prior + sampling)
    for step in range(1, model.bias_rounds + 1):
        label = f"item biases {step}"
        users.fit(items, ridge)
        noisy = gate.release(label, users.item_biases(items, clip, unit))[:, 0]
        noisy = noisy - slope * (best - items[:, 0])
        noise_variance = np.full(len(items), (unit * gate.noise_sd(label)) ** 2)
        common, total = regression(noisy, slope, design, variance, noise_variance, precision)
        if step == 1:  # how far biases spread shows in the sums themselves
            rest = noisy - slope * (design @ common)
            prior = prior * likely_scale(rest, slope**2 * prior, noise_variance + slope**2 * sampling)
            variance = prior + sampling
            common, total = regression(noisy, slope, design, variance, noise_variance, precision)
        precision, change = total, design @ common
        noisy = noisy - slope * change
        shared, true = _FEATURE_SLOPE * slopes, prior / (prior + sampling) * variance
        others = noise_variance + slope**2 * (variance - true)
        explained, left, probability = expected_from_features(
            scores, noisy[:, None], shared[:, None], true, others[:, None]
        )
        useful = max(useful, probability)
        prior, variance = prior * (1 - ratio(true - left, true)), variance - true + left
        gain = wiener_gain(slope, variance, noise_variance)
        change += explained[:, 0]
        mean += change
        best += change + gain * (noisy - shared * explained[:, 0])
        variance = left_after(gain, slope, variance)
        part = prior / (prior + sampling)
        items = (mean + part * (best - mean))[:, None].astype(items.dtype)
    return Biases(items, prior, (1 - part) * prior + part**2 * variance, useful)


def _start(model: ALSSettings, items: Array, public: Array, seed: int) -> Array:
    """Return first learned factors, between features and biases: public or random."""
    learned = BiasedFactors(initial_items(len(items), model.learned_factors, seed, items.dtype)).factors
    # item features separate tastes better than a random start
    usual = START / math.sqrt(max(model.learned_factors, 1))
    learned[:, : public.shape[1]] = usual * public / _rms(public)
    known = BiasedFactors(items)
    return np.column_stack([known.factors, learned, known.biases]).astype(items.dtype)


def _learn_factors(
    model: ALSSettings, users: FittedUsers, gate: Gate, ground: Ground, items: Array, public: Array, seed: int
) -> tuple[Array, float, KnownFactors | None]:
    """Return items, residual variance, and the precision of the factors after all iterations."""
    level, slopes, scores = ground
    square, n_users = level.spread**2, level.n_users
    residual, known = square, None
    prior = np.full((len(items), model.rank), model.tuning.factor_prior**2)
    clip, norm = or_infinite(model.tuning.factor_clip), or_infinite(model.tuning.user_norm)
    for step in range(1, model.factor_rounds + 1):
        votes, gramian, sums = (f"{name} {step}" for name in ("residual variance", "gramian", "item sums"))
        users.fit(items, level.ridge(residual))
        if gate.planned(votes):
            most = RESIDUAL_BOUND * residual
            released = gate.release(votes, users.residual_variance(items, slopes, most))
            residual = residual_variance(released, residual, most, n_users, gate.noise_sd(votes))
        if step == 1:  # later sums are of the fit that the residual variance was released of
            items = _start(model, items, public, seed)
            users.fit(items, level.ridge(residual))
        unit = level.spread * math.sqrt(residual)
        contributions = users.item_sums(items, slopes, norm, clip, level.spread, unit)
        gram = gate.release(gramian, contributions[1])
        noisy = gate.release(sums, contributions[0])
        values, vectors, variance = spectrum(gram, gate.noise_sd(gramian), n_users, level)
        factors = BiasedFactors(items).factors
        noisy = noisy - variance * slopes[:, None] * factors
        if step == 1:  # learned columns were a guess: solve outright
            guess = factors * (np.arange(model.rank) >= 2 * model.features)
            noisy = noisy + slopes[:, None] * ((guess @ vectors) * values) @ vectors.T
            factors -= guess
        released_sums = FactorSums(noisy, values, vectors, unit * gate.noise_sd(sums), residual)
        change, left = factor_update(slopes, prior, scores, released_sums)
        factors += change
        gram_sd = gate.noise_sd(gramian) / n_users
        gram_variance = packed_variance(gram_sd, model.rank, model.tuning.user_norm or 1.0, level.spread)
        known = KnownFactors(left @ vectors.T**2, gram / n_users, gram_variance)
        del contributions, noisy, released_sums, change, left  # each as large as the model
    return items, residual, known


def _rms(columns: Array) -> Array:
    return np.sqrt((columns**2).mean(axis=0))
