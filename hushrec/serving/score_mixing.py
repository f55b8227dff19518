"""Mix the scores of two models."""

from __future__ import annotations

import numpy as np

from hushrec.types import Array

#: Length of the lists by which two models are compared.
LISTED = 20


def lowered(scores: Array, supported: Array | None) -> Array:
    """Lower the scores of items that do not exceed the noise to below all others.

    All of them are lowered by one number for each user: the best comes just below the least supported item.
    Scores have shape (n_users, n_items).
    """
    first = None if supported is None else np.asarray(supported).astype(bool)
    if first is None or first.all() or not first.any():
        return scores
    least = scores.min(axis=1, where=first, initial=np.inf, keepdims=True)
    most = scores.max(axis=1, where=~first, initial=-np.inf, keepdims=True)
    below = np.minimum(scores - np.maximum(most - least, 0.0), np.nextafter(least, -np.inf))
    return np.where(first, scores, below)


def standard(scores: Array) -> tuple[Array, Array]:
    """Return scores with mean 0 and deviation 1 over a user's items, and the deviations."""
    spread = scores.std(axis=1)
    spread = np.where(spread > 1e-12 * np.abs(scores).max(axis=1, initial=1e-300), spread, 1.0)
    return (scores - scores.mean(axis=1, keepdims=True)) / spread[:, None], spread


def mixed(private: Array, public: Array, weight: float) -> Array:
    return (1.0 - weight) * private + weight * public


def ranks(scores: Array, seen: Array, held: Array) -> Array:
    """Return a user's held-out items' ranks among items not seen; ties get the middle rank."""
    order = np.sort(np.delete(scores, seen))
    below, up_to = (np.searchsorted(order, scores[held], side) for side in ("left", "right"))
    return np.asarray(len(order) - (below + up_to + 1) / 2)


def worth(rank: Array) -> Array:
    """Return 1 / (1 + (r / 20)^2) of ranks r: like Recall@20, with less chance in it."""
    return np.asarray(1 / (1 + (rank / LISTED) ** 2))
