"""Item features in lists: a second model of likes that uses them, and users' votes on it.

Each component of the features is a further item factor. Meaningless features do harm, and released values do
not show whether features help. So users vote: in a list made of one half of their likes, which of two models
ranks the other half higher? The sum of the votes is released (docs/proofs/private-eigenrec.md).

Users vote on each table of features alone, and then on each further table next to the accepted ones, in the
order of the first votes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hushrec.data import Domain
from hushrec.data.features import feature_scores
from hushrec.kernels.threads import one_blas_thread
from hushrec.training.gate import Gate
from hushrec.training.posterior import posterior_means, ratio
from hushrec.types import Array, ModelArrays

if TYPE_CHECKING:
    from hushrec.models.private_eigenrec.users import LikingUsers

#: Label of the first release; those of others begin with it.
VOTES = "votes on the item features"
#: Planned noise of the mean vote; the largest budget fraction for it; the vote from which features are used,
#: in deviations of chance and noise.
_NOISE, _MOST_SHARE, _SURE = 0.1, 0.05, 0.5

# Tuned on 600 users of MovieLens-1M, with genres and decades (docs/guides/article-table.md).

#: Factors of the features: strength relative to popularity, power of an item's popularity as their weight,
#: and ridge, in parts of the strongest component's variance.
_STRENGTH, _POWER, _RIDGE = 0.2, 0.6, 0.1
#: Smallest popularity of an item of a history.
_LEAST = 0.02
#: Candidates of an item's popularity over the mean one.
_POPULARITIES = np.geomspace(1e-3, 300, 70)
#: Smallest squared number of likes per user.
_FEWEST = 1.5


def questions(domain: Domain) -> list[str]:
    count = 0 if domain.item_features is None else len(domain.feature_widths)
    further = [f"{VOTES}, table {number}" for number in range(2, count + 1)]
    return [VOTES, *further, *(f"{VOTES}, step {number}" for number in range(2, count + 1))] if count else []


def votes_share(signal: float, count: int) -> float:
    return min(_MOST_SHARE, count * (_NOISE * max(signal, 1.0)) ** -2)


# ---------------------------------------------------------------------- popularity


def popularities(mean: float) -> Array:
    return mean * _POPULARITIES


def _popularity(noisy: Array, noise_sd: float, n_users: float) -> Array:
    """Return each item's mean popularity over the largest, from the released item weights."""
    likes = math.sqrt(max((float(noisy.sum()) / n_users) ** 2, _FEWEST))  # a weight's, on average
    candidates = popularities(max(float(noisy.sum()), noise_sd, 1.0) / n_users / len(noisy))
    variance = noise_sd**2 + n_users * candidates / likes
    misfit = (noisy[:, None] - n_users * candidates) ** 2 / variance + np.log(variance)
    popularity = posterior_means(candidates, -misfit / 2)[0]
    return popularity / popularity.max()


# ---------------------------------------------------------------------- the model


def voted(parts: ModelArrays, users: LikingUsers, gate: Gate, n_users: float) -> ModelArrays:
    """Return the parts with a second model that uses the tables of item features with enough votes."""
    domain, labels = users.domain, questions(users.domain)
    tables = np.split(domain.item_features, np.cumsum(domain.feature_widths)[:-1], axis=1)

    def gain(label: str, before: Mapping[str, Array], after: ModelArrays) -> float:
        """Return the votes for a model over another, above chance and noise."""
        votes = float(gate.release(label, users.votes(dict(before), dict(after.beside)))[0])
        return votes - _SURE * math.hypot(gate.noise_sd(label), math.sqrt(n_users))

    alone = [with_features(parts, table) for table in tables]
    gains = [
        gain(label, parts.serve, model) for label, model in zip(labels[: len(alone)], alone, strict=True)
    ]
    first, *others = np.argsort(-np.array(gains), kind="stable").tolist()
    chosen, model = [first], alone[first]
    for label, table in zip(labels[len(tables) :], others, strict=True):
        wider = with_features(parts, np.column_stack([tables[number] for number in sorted([*chosen, table])]))
        if gain(label, model.beside, wider) > 0 and gains[table] > 0:
            chosen, model = [*chosen, table], wider
    accepted = np.isin(np.arange(len(tables)), chosen).astype(np.uint8)
    model = replace(model, state={**model.state, "feature_tables": accepted})
    return model.counting(float(gains[first] > 0))


def next_week(parts: ModelArrays, domain: Domain, state: Mapping[str, Array]) -> ModelArrays:
    """Return a later week's parts, with the tables that users voted for."""
    accepted, features = state["feature_tables"], domain.item_features
    if features is not None and len(domain.feature_widths) == len(accepted):
        model = with_features(parts, features[:, np.repeat(accepted > 0, domain.feature_widths)])
    else:
        model = with_features(parts, None, state["item_components"])
    return replace(model, state={**model.state, "feature_tables": accepted})


def with_features(parts: ModelArrays, features: Array | None, kept: Array | None = None) -> ModelArrays:
    """Return the parts with a second model of likes that uses item features, with a weight of 0 so far.

    ``kept`` replaces the features by the last week's components.
    """
    serve, state = parts.serve, parts.state
    noise_sd = math.sqrt(float(np.mean(state["item_weights_variance"])))
    popularity = _popularity(state["item_weights"], noise_sd, max(float(state["users"][0]), 1.0))
    along = _components(features, popularity) if kept is None else kept
    usual = serve["history_weight"]
    columns = np.asarray(serve["item_factors"]), popularity[:, None] ** _POWER * along
    served = {
        **serve,
        "item_bias": popularity,
        "item_factors": np.column_stack(columns).astype(np.float32),
        "history_weight": np.where(usual > 0, usual, np.maximum(popularity, _LEAST) ** -_POWER),
        "supported": np.ones(len(popularity), np.uint8),
        "feature_columns": np.int64(along.shape[1]),
    }
    return replace(parts, state={**state, "item_components": along}, beside=served)


def _components(features: Array | None, popularity: Array) -> Array:
    """Return components of the features, of nearly one strength; 0 for items without features."""
    scores = feature_scores(features, len(popularity))
    described = np.asarray(scores.any(axis=1))
    weight = ratio(popularity * described, popularity @ described)
    scores = np.where(described[:, None], scores - weight @ scores, 0.0)
    with one_blas_thread():
        variance, axes = np.linalg.eigh((scores * weight[:, None]).T @ scores)
        least = _RIDGE * float(variance.max(initial=0.0))
        return np.asarray(scores @ (axes * np.sqrt(ratio(_STRENGTH, np.maximum(variance, 0.0) + least))))
