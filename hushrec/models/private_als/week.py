"""A later week of private ALS: one small round of residuals against the last released model.

The server updates its Kalman filters (:mod:`hushrec.training.kalman`) with the noisy sums. Sensitivities are
those of the first training: docs/proofs/private-als.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hushrec.data.features import feature_scores
from hushrec.kernels.arrays import BiasedFactors
from hushrec.kernels.packed import unpacked
from hushrec.models.private_als.settings import ALSSettings
from hushrec.models.private_als.updates import (
    BIAS_SLOPE,
    RESIDUAL_BOUND,
    Biases,
    KnownFactors,
    Level,
    bias_sampling,
    canonical,
    or_infinite,
    packed_variance,
    residual_variance,
    users_uncertainty,
    weighted_slopes,
)
from hushrec.models.private_als.users import FittedUsers
from hushrec.serving.modelfile import Expected, needed_if
from hushrec.training.gate import Gate
from hushrec.training.kalman import (
    DRIFTS,
    SEEN,
    Tracked,
    counted_again,
    drift,
    learned,
    no_evidence,
)
from hushrec.training.posterior import (
    adaptive_weights,
    item_weights,
    left_after,
    ratio,
    standardised,
    visible_part,
    wiener_gain,
)
from hushrec.training.users import RIDGES
from hushrec.types import Array, ModelArrays

#: Number of items that the prior of new ones counts for.
_NEW_PRIOR = 10.0

#: Statistics whose drift is estimated.
_EVIDENCE = "item weights", "item biases", "item factors"


class Numbers(NamedTuple):
    """Numbers that a week continues; variances, except the first week's number of users and the spread."""

    n_users: float
    spread: float
    user_variance: float
    residual: float
    bias_prior: float


_OF_FACTORS = "item_factor_variance", "gramian", "gramian_variance"
_BY_ITEM = Expected("f", ("items",), 0.0)


def _packed(sizes: Mapping[str, int]) -> int:
    order = min(sizes["own rank"], sizes["rank"])  # columns of item features have no variance
    return order * (order + 1) // 2 + 1


EXPECTED = ModelArrays(
    serve=RIDGES,
    state=SEEN
    | {
        "numbers": Expected("f", (len(Numbers._fields),), 0.0),
        "item_weights": Expected("f", ("items",)),
        "item_weights_variance": _BY_ITEM,
        "item_bias_variance": _BY_ITEM,
        "evidence": Expected("f", (len(_EVIDENCE), len(DRIFTS))),
    }
    | needed_if(
        lambda names: any(name in names for name in _OF_FACTORS),
        {
            "item_factor_variance": Expected("f", ("items", "own rank"), 0.0),
            "gramian": Expected("f", (_packed,)),
            "gramian_variance": Expected("f", (_packed,), 0.0),
        },
    ),
)


class State(NamedTuple):
    """State of a season: released values and functions of them.

    Attributes
    ----------
    numbers : ndarray
        :class:`Numbers`.
    item_seen : ndarray of shape (n_items,)
        0 for items that are new this week.
    item_weights, item_weights_variance : ndarrays of shape (n_items,)
        As released.
    item_bias_variance : ndarray of shape (n_items,)
    evidence : ndarray
        Log likelihoods of the drifts of weights, biases and factors.
    factors : KnownFactors or None
    """

    numbers: Array
    item_seen: Array
    item_weights: Array
    item_weights_variance: Array
    item_bias_variance: Array
    evidence: Array
    factors: KnownFactors | None

    @classmethod
    def first(
        cls,
        level: Level,
        residual: float,
        weights: tuple[Array, float],
        biases: Biases,
        factors: KnownFactors | None,
    ) -> State:
        return cls(
            np.array(
                [level.n_users, level.spread, level.user_variance, residual, float(biases.prior.mean())]
            ),
            np.ones(len(biases.variance)),
            weights[0],
            np.full(len(biases.variance), weights[1] ** 2),
            biases.variance,
            np.array([no_evidence() for _ in _EVIDENCE]),
            factors,
        )

    @property
    def weights(self) -> Tracked:
        return Tracked(self.item_weights, self.item_weights_variance, self.evidence[0])

    def to_arrays(self) -> dict[str, Array]:
        arrays = {name: value for name, value in self._asdict().items() if name != "factors"}
        return arrays | dict(zip(_OF_FACTORS, self.factors, strict=True) if self.factors else ())

    @classmethod
    def of(cls, state: Mapping[str, Array]) -> State:
        """Inverse of `to_arrays`."""
        factors = KnownFactors(*(state[name] for name in _OF_FACTORS)) if "gramian" in state else None
        return cls(**{name: state[name] for name in cls._fields if name != "factors"}, factors=factors)


class Last(NamedTuple):
    """The last week's model, in this week's directions.

    Attributes
    ----------
    items : ndarray of shape (n_items, rank + 1)
        Biases last.
    level : Level
        With this week's number of users.
    slopes : ndarray of shape (n_items,)
        Slopes of this week's sums in the items.
    state : State
    """

    items: Array
    level: Level
    slopes: Array
    state: State

    @property
    def numbers(self) -> Numbers:
        return Numbers(*self.state.numbers.tolist())


def train_week(model: ALSSettings, users: FittedUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
    domain = users.domain
    scores = feature_scores(domain.item_features, domain.n_items)
    arrays, columns = _divided(model, last, scores)
    items, state = _with_new_items(model, ModelArrays(arrays, last.state), scores)
    n_users, spread, user_variance, residual, _ = state.numbers.tolist()
    part, tracked = counted_again(users, gate, n_users, state.weights)
    level = Level(
        float(last.serve["center"]),
        max(part * n_users, 1.0),
        spread,
        float(last.serve["bias_regularization"]),
        user_variance,
    )
    weights_sd = math.sqrt(float(tracked.variance.mean()))
    weights, supported, _ = item_weights(tracked.mean, weights_sd)
    relative = adaptive_weights(weights, model.tuning.weight_exponent)
    slopes = part * weighted_slopes(weights, relative)
    if model.bias_rounds:
        state = _with_bias_prior(items, state, np.log(weights))
    bias_prior = state.numbers[-1]
    if state.factors is not None:
        tastes = BiasedFactors(items).factors
        tastes[:], turned = canonical(tastes, state.factors, slopes, level, residual)
        state = state._replace(factors=turned)
    users.weigh(level.center, relative)
    users.fit(items, level.ridge(residual))

    most, before = RESIDUAL_BOUND * residual, Last(items.copy(), level, slopes, state)
    votes = gate.release("residual variance", users.residual_variance(before.items, slopes, most))
    label = "residual variance"
    now = residual_variance(votes, residual, most, level.n_users, gate.noise_sd(label))
    bias_variance, evidence = state.item_bias_variance, [tracked.evidence, *state.evidence[1:]]
    if model.bias_rounds:
        change, bias_variance, evidence[1] = _bias_change(model, users, gate, before)
        BiasedFactors(items).biases[:] += change
    factors = state.factors
    if factors is not None:
        change, factors, evidence[2] = _factor_change(model, users, gate, before, factors)
        BiasedFactors(items).factors[:] += change
    elif model.features:
        visible = visible_part(tracked.mean, weights_sd)
        items[:, 0] = (1 - bias_variance / bias_prior) * standardised(BiasedFactors(items).biases, weights)
        items[:, 1] = standardised(np.log(weights), weights) * visible
    numbers = [n_users, spread, user_variance, now, bias_prior]
    following = State(
        np.array(numbers),
        np.ones(len(items)),
        tracked.mean,
        tracked.variance,
        bias_variance,
        np.array(evidence),
        factors,
    )
    arrays = served(level, now, items, supported, factors is not None)
    return ModelArrays(with_slopes(arrays, columns, private=gate.private), following.to_arrays())


def served(level: Level, residual: float, items: Array, supported: Array, iterates: bool) -> dict[str, Any]:
    ridge, model = level.ridge(residual), BiasedFactors(items)
    return {
        "center": np.float64(level.center),
        "item_bias": model.biases.astype(np.float64),
        "item_factors": model.factors.astype(np.float32),
        "supported": supported.astype(np.uint8),
        "regularization": np.float64(ridge.regularization),
        "bias_regularization": np.float64(level.bias_regularization),
        **({} if iterates else {"directions": np.int64(0)}),  # features alone are no one's taste
    }


def with_slopes(serve: Mapping[str, Array], columns: Array, *, private: bool) -> dict[str, Any]:
    """Return the served arrays with columns of public features, on which users fit slopes."""
    if not columns.size:
        return dict(serve)
    factors = serve["item_factors"]
    arrays = {name: array for name, array in serve.items() if name != "directions"}
    arrays["item_factors"] = np.column_stack([factors, columns.astype(np.float32)])
    if not private:  # items are compared by learned factors only
        arrays["directions"] = serve.get("directions", np.asarray(factors.shape[1]))
    return arrays


def _divided(model: ALSSettings, last: ModelArrays, scores: Array) -> tuple[dict[str, Any], Array]:
    """Return the served arrays without columns of features, and these columns with rows of new items.

    A grown catalogue may turn the components; the items that were there show how.
    """
    rank = last.state["item_factor_variance"].shape[1] if "gramian" in last.state else 2 * model.features
    factors = last.serve["item_factors"]
    columns = factors[:, rank:].astype(np.float64)
    known = columns.any(axis=1)
    if scores.size and known.any():
        design, new = np.column_stack([np.ones(len(scores)), scores]), ~known & scores.any(axis=1)
        columns[new] = design[new] @ np.linalg.lstsq(design[known], columns[known])[0]
    return {**last.serve, "item_factors": factors[:, :rank]}, columns


def _with_bias_prior(items: Array, state: State, popularity: Array) -> State:
    """Return the state with the prior variance of item biases after an EM step; update the biases in place.

    The first week's estimate is mostly noise where that week has a small part of the budget.
    """
    biases, before, variance = BiasedFactors(items).biases, state.numbers[-1], state.item_bias_variance
    design = np.column_stack([np.ones(len(items)), popularity])
    weighted = (1 - ratio(variance, before))[:, None] * design
    expected = design @ np.linalg.lstsq(weighted.T @ design, weighted.T @ biases)[0]
    prior = float(((biases - expected) ** 2 + variance).mean())
    part = ratio(before * prior, prior * (before - variance) + before * variance)
    biases[:] = expected + part * (biases - expected)
    numbers = np.append(state.numbers[:-1], prior)
    return state._replace(numbers=numbers, item_bias_variance=part * variance)


def _bias_change(
    model: ALSSettings, users: FittedUsers, gate: Gate, last: Last
) -> tuple[Array, Array, Array]:
    """Return the change of the biases, their variance, and the evidence of their drift."""
    items, level, slopes, state = last
    residual, usual = last.numbers.residual, last.numbers.bias_prior
    variance, evidence = state.item_bias_variance, state.evidence[1]
    unit, slope = math.sqrt(residual), BIAS_SLOPE * slopes
    noisy = gate.release(
        "item biases", users.item_residuals(items, or_infinite(model.tuning.bias_clip), unit)
    )
    drawn = np.full(len(items), (unit * gate.noise_sd("item biases")) ** 2)
    # most rows are those of last week, so sampling error is no news and shows no drift
    evidence = learned(evidence, noisy, slope, variance, drawn, usual)
    noise = drawn + bias_sampling(slopes, level.n_users, unit)
    variance = np.minimum(variance + drift(evidence) * usual, usual)
    gain = wiener_gain(slope, variance, noise)
    return gain * noisy, left_after(gain, slope, variance), evidence


def _factor_change(
    model: ALSSettings, users: FittedUsers, gate: Gate, last: Last, known: KnownFactors
) -> tuple[Array, KnownFactors, Array]:
    """Return the change of the factors, their precision, and the evidence of their drift."""
    items, level, slopes, state = last
    residual, evidence = last.numbers.residual, state.evidence[2]
    unit, norm = level.spread * math.sqrt(residual), or_infinite(model.tuning.user_norm)
    n_users = level.n_users
    sums, gramian = users.item_sums(
        items, slopes, norm, or_infinite(model.tuning.factor_clip), level.spread, unit
    )
    gram = gate.release("gramian", gramian) / n_users
    noisy = gate.release("item sums", sums)
    noise = packed_variance(gate.noise_sd("gramian") / n_users, model.rank, norm, level.spread)
    prior = known.gramian_variance
    gain = ratio(prior, prior + noise)
    gram, gram_variance = known.gramian + gain * (gram - known.gramian), (1 - gain) * prior
    factors = BiasedFactors(items).factors
    unsure = users_uncertainty(factors, slopes, gram[-1], level, residual)
    values = np.maximum(np.diag(unpacked(gram[:-1]) + unsure), 0.0)
    noisy = noisy - slopes[:, None] * (factors @ unsure)
    slope, drawn = slopes[:, None] * values, (unit * gate.noise_sd("item sums")) ** 2
    usual = (factors**2 + known.variance).mean(axis=0)
    evidence = learned(evidence, noisy, slope, known.variance, np.full_like(slope, drawn), usual)
    variance = np.minimum(known.variance + drift(evidence) * usual, usual)
    gain = wiener_gain(slope, variance, drawn + residual * slope)
    known = KnownFactors(left_after(gain, slope, variance), gram, gram_variance)
    return gain * noisy, known, evidence


def _with_new_items(model: ALSSettings, last: ModelArrays, scores: Array) -> tuple[Array, State]:
    """Return the last week's items and state, with new items at their prior, given their features."""
    items = BiasedFactors.joined(last.serve["item_factors"], last.serve["item_bias"]).table
    state = State.of(last.state)
    seen = state.item_seen > 0
    if seen.all() or not seen.any():
        return items, state
    design = np.column_stack([np.ones(len(items)), scores])
    ridge = _NEW_PRIOR * np.diag([0.0, *np.ones(scores.shape[1])])
    known = design[seen]
    usual = np.linalg.solve(known.T @ known + ridge, known.T @ items[seen])
    items[~seen] = design[~seen] @ usual
    weights = state.weights.with_new(seen)
    bias_variance = np.where(seen, state.item_bias_variance, Numbers(*state.numbers).bias_prior)
    factors = state.factors
    if factors is not None:
        spread = np.where(seen[:, None], factors.variance, model.tuning.factor_prior**2)
        factors = factors._replace(variance=spread)
    return items, state._replace(
        item_weights=weights.mean,
        item_weights_variance=weights.variance,
        item_bias_variance=bias_variance,
        factors=factors,
    )
