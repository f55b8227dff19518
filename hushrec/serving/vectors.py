"""Items and users as vectors whose inner products rank as lists do, for an index of vectors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.types import Array


def item_vectors(arrays: Mapping[str, Array]) -> NDArray[np.float32]:
    """Return an item's factors, its bias and whether it stands out of the noise, where not all items do.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        The released arrays.
    """
    factors, bias, lifted = arrays["item_factors"], np.asarray(arrays["item_bias"], float), _lifted(arrays)
    rank = factors.shape[1]
    found = np.zeros((len(bias), rank + 1 + lifted), np.float32)
    found[arrays.get("learned_items", slice(None)), :rank] = factors
    found[:, rank] = bias - bias.mean()  # one number less for all
    if lifted:
        found[:, rank + 1] = arrays["supported"] != 0
    return found


def reach(arrays: Mapping[str, Array]) -> tuple[float, float]:
    """Return the norm of the longest item's factors, and by how much biases differ."""
    squares = np.einsum("ij,ij->i", arrays["item_factors"], arrays["item_factors"], dtype=np.float64)
    return float(np.sqrt(squares.max(initial=0.0))), float(np.ptp(arrays["item_bias"]))


def queries(
    arrays: Mapping[str, Array], factors: NDArray[np.float64] | sp.csr_array, reached: tuple[float, float]
) -> NDArray[np.float32]:
    """Return the users' factors, and what lifts items that stand out of the noise above all others."""
    taste = factors.toarray() if isinstance(factors, sp.csr_array) else np.asarray(factors)
    found = np.ones((len(taste), taste.shape[1] + 1 + _lifted(arrays)), np.float32)
    found[:, : taste.shape[1]] = taste
    if _lifted(arrays):  # more than any two scores of theirs differ, and room for rounding
        longest, biases = reached
        found[:, -1] = 1.01 * (2 * longest * np.linalg.norm(taste, axis=1) + biases)
    return found


def _lifted(arrays: Mapping[str, Array]) -> bool:
    return "supported" in arrays and len(np.unique(arrays["supported"] != 0)) == 2
