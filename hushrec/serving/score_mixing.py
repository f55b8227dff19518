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


def mixed(private: Array, public: Array, weight: float) -> Array:
    return (1.0 - weight) * private + weight * public
