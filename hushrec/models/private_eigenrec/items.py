"""Item statistics from released weights, and the arrays that serve users."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.models.private_eigenrec.denoise import Taste
from hushrec.training.posterior import item_weights, ratio
from hushrec.types import Array

if TYPE_CHECKING:
    from hushrec.models.private_eigenrec.settings import PrivateEigenRec

#: Steps in the largest entry of the popularity vector, as a power of two.
_POPULARITY_BITS = 5
#: Number of likes from which a user's mean taste counts by half. Chosen on Jester, Yahoo! R3 and MovieLens.
HALF_TRUSTED = 2.0


class ItemStatistics(NamedTuple):
    """Estimates about the items before the rounds.

    Attributes
    ----------
    n_users : float
    noisy : ndarray of shape (n_items,)
        Released item weights, with noise ``noise_sd``.
    learned : ndarray of bool
        Items with learned vectors.
    popularity : ndarray
        Likely weights over the largest.
    scale : ndarray
        Entry of an item in a user's row; 0 where it is not learned.
    first : ndarray
        The first item vector, popularity, in multiples of a power of two.
    """

    n_users: float
    noisy: Array
    noise_sd: float
    learned: NDArray[np.bool_]
    popularity: Array
    scale: Array
    first: Array

    @classmethod
    def of(
        cls, tuning: PrivateEigenRec.Tuning, n_users: float, noisy: Array, noise_sd: float, rank: int
    ) -> ItemStatistics:
        learned = most_popular(tuning, noisy, noise_sd, rank)
        popularity = popularity_of(noisy, noise_sd)
        scale = np.where(learned, popularity**tuning.weight_exponent, 0.0)
        first = popularity * scale / np.linalg.norm(popularity * scale)
        first = np.floor(first / grid(first)) * grid(first)  # which keeps its grid
        return cls(n_users, noisy, noise_sd, learned, popularity, scale, first)


def popularity_of(noisy: Array, noise_sd: float) -> Array:
    weights = item_weights(noisy, noise_sd).mean
    return weights / weights.max()


def most_popular(
    tuning: PrivateEigenRec.Tuning, noisy: Array, noise_sd: float, rank: int
) -> NDArray[np.bool_]:
    """Return the items of largest released weight; more than the rank."""
    order = np.argsort(-noisy, kind="stable")
    count = int((noisy > tuning.support * noise_sd).sum())
    learned = np.zeros(len(noisy), dtype=bool)
    learned[order[: max(min(count, tuning.learned_items), rank + 1)]] = True
    return learned


def served(
    items: ItemStatistics, noisy: Array, noise_sd: float, taste: Taste, supported: NDArray[np.bool_]
) -> dict[str, Any]:
    popularity = popularity_of(noisy, noise_sd)
    counts = taste.gains > 0.0
    # scores are popularity plus taste: the coefficient of popularity is divided out (docs/guides/implicit.md)
    length = np.linalg.norm(items.popularity * items.scale)
    factors = np.zeros((len(noisy), int(counts.sum())), dtype=np.float32)
    if factors.size:
        vectors = (taste.vectors * np.sqrt(taste.gains))[:, counts]
        factors[items.learned] = length * vectors / items.scale[items.learned, None]
    lowest = ratio(noisy, max(float(noisy.max()), noise_sd))
    return {
        "center": np.float64(0.0),
        "item_bias": np.where(supported, popularity, lowest),
        "item_factors": factors,
        "history_weight": items.scale**2,
        "history_prior": np.float64(HALF_TRUSTED),
        "supported": supported.astype(np.uint8),
        "directions": np.int64(taste.learned),
    }


def grid(first: Array) -> float:
    """Return the step, a power of two, of a popularity vector's entries."""
    return 2.0 ** (math.ceil(math.log2(first.max())) - _POPULARITY_BITS)
