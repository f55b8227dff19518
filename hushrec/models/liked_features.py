"""Item features in lists: a model that goes by what is publicly known of the items, too, and a vote on it.

Items whose features are alike are taken to be liked together: each component of the features is a further
item factor, as strong as the others, beside what was released. It is a function of released values and of
public features, so it costs nothing. Whether it helps does not show in it, and features that mean nothing
do harm. So users vote, each on their own rows: in a list made of one half of their likes, by which of the two
models does the other half stand higher? The sum of the votes is released (docs/proofs/private-eigenrec.md).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hushrec.data import Domain
from hushrec.data.features import feature_scores
from hushrec.kernels.threads import one_blas_thread
from hushrec.training.posterior import posterior_means
from hushrec.types import Array, ModelArrays

#: Label of the release.
VOTES = "votes on the item features"
#: Planned noise of the mean vote, and the largest share of the budget for it; and the votes from which on
#: features count, in deviations of chance and noise: where that hides much, bad ones do little harm.
_NOISE, _MOST_SHARE, _SURE = 0.1, 0.05, 0.5

# Chosen on 600 users of MovieLens-1M, with genres and decades; others are judged in
# docs/guides/item-features.md.

#: Factors of the features: their strength beside popularity, the power of an item's popularity that they are
#: multiplied with, and the ridge, in parts of the strongest component's variance.
_STRENGTH, _POWER, _RIDGE = 0.2, 0.6, 0.1
#: In a history an item counts as one of at least this popularity.
_LEAST = 0.02
#: Candidates of an item's popularity over the mean one.
_POPULARITIES = np.geomspace(1e-3, 300, 70)
#: Likes a user are not taken for fewer.
_FEWEST = 1.5


def votes_share(signal: float) -> float:
    """Planned part of the budget, with which a mean vote has little noise, given mu times the users."""
    return min(_MOST_SHARE, (_NOISE * max(signal, 1.0)) ** -2)


# ---------------------------------------------------------------------- popularity


def popularities(mean: float) -> Array:
    """Candidates of an item's popularity, given the mean one."""
    return max(mean, 1e-12) * _POPULARITIES


def _popularity(noisy: Array, noise_sd: float, n_users: float) -> Array:
    """Each item's mean popularity over the largest, from the released item weights."""
    likes = math.sqrt(max((float(noisy.sum()) / n_users) ** 2, _FEWEST))  # a weight's, on average
    candidates = popularities(max(float(noisy.sum()), noise_sd) / n_users / len(noisy))
    variance = noise_sd**2 + n_users * candidates / likes
    misfit = (noisy[:, None] - n_users * candidates) ** 2 / variance + np.log(variance)
    found = posterior_means(candidates, -misfit / 2)[0]
    return found / found.max()


# ---------------------------------------------------------------------- the model


def with_features(parts: ModelArrays, domain: Domain, kept: Array | None = None) -> ModelArrays:
    """Return the parts with a model of likes beside that goes by item features, too, and counts nothing yet.

    Parameters
    ----------
    parts : ModelArrays
        Of a trained `PrivateEigenRec`.
    domain : Domain
    kept : ndarray of shape (n_items, n_components), optional
        Components of the last week, for a domain without item features.
    """
    serve, state = parts.serve, parts.state
    noise_sd = math.sqrt(float(np.mean(state["item_weights_variance"])))
    popularity = _popularity(state["item_weights"], noise_sd, max(float(state["users"][0]), 1.0))
    along = _components(domain, popularity) if kept is None or domain.item_features is not None else kept
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


def _components(domain: Domain, popularity: Array) -> Array:
    """Components of the features, of one strength but for weak ones; items without features have none."""
    scores = feature_scores(domain.item_features, domain.n_items)
    told = np.asarray(scores.any(axis=1))
    weight = popularity * told / max(float(popularity @ told), 1e-300)
    scores = np.where(told[:, None], scores - weight @ scores, 0.0)
    with one_blas_thread():
        variance, axes = np.linalg.eigh((scores * weight[:, None]).T @ scores)
        least = _RIDGE * max(float(variance.max(initial=0.0)), 1e-300)
        return np.asarray(scores @ (axes * np.sqrt(_STRENGTH / (np.maximum(variance, 0.0) + least))))


def weight_of(votes: float, noise_sd: float, n_users: float) -> float:
    """Return what the model with features counts: 1 where votes are for it beyond chance, else 0.

    Parameters
    ----------
    votes, noise_sd : float
        Their released sum, and its noise.
    n_users : float
    """
    return float(votes > _SURE * math.hypot(noise_sd, math.sqrt(n_users)))
