"""Scores of two models as one."""

from __future__ import annotations

import numpy as np

from hushrec.types import Array

#: Length of the lists that two models are compared by.
LISTED = 20


def lowered(scores: Array, supported: Array | None) -> Array:
    """Scores of which those of items that do not stand out of the noise are below all others.

    A user's are all lowered by one number, so that the best of them comes to just below the least of the
    supported items.

    Parameters
    ----------
    scores : ndarray of shape (n_users, n_items)
    supported : ndarray of shape (n_items,), optional
        Whether an item stands out; all do by default.
    """
    first = None if supported is None else np.asarray(supported).astype(bool)
    if first is None or first.all() or not first.any():
        return scores
    least = scores.min(axis=1, where=first, initial=np.inf, keepdims=True)
    most = scores.max(axis=1, where=~first, initial=-np.inf, keepdims=True)
    below = np.minimum(scores - np.maximum(most - least, 0.0), np.nextafter(least, -np.inf))
    return np.where(first, scores, below)


def standard(scores: Array) -> tuple[Array, Array]:
    """Scores of mean 0 and deviation 1 over a user's items, and the deviations that they had.

    Scores that are all one are 0, and their deviation counts as 1.
    """
    spread = scores.std(axis=1)
    spread = np.where(spread > 1e-12 * np.abs(scores).max(axis=1, initial=1e-300), spread, 1.0)
    return (scores - scores.mean(axis=1, keepdims=True)) / spread[:, None], spread


def mixed(private: Array, public: Array, weight: float) -> Array:
    """Return both scores, each counting its part."""
    return (1.0 - weight) * private + weight * public


def ranks(scores: Array, seen: Array, held: Array) -> Array:
    """Return where a user's held-out items stand in a list of what they have not seen; ties in the middle.

    Parameters
    ----------
    scores : ndarray of shape (n_items,)
    seen, held : ndarrays of int
        Columns.
    """
    order = np.sort(np.delete(scores, seen))
    below, up_to = (np.searchsorted(order, scores[held], side) for side in ("left", "right"))
    return np.asarray(len(order) - (below + up_to + 1) / 2)


def worth(rank: Array) -> Array:
    """Return 1 / (1 + (r / 20)^2) of ranks: it rises where Recall@20 does, and chance moves it less."""
    return np.asarray(1 / (1 + (rank / LISTED) ** 2))
