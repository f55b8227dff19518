"""Items and users as vectors whose inner products rank as lists do, for an index of vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import InputError
from hushrec.kernels.sweeps import csr
from hushrec.serving.item_rows import stored_rows, sums_of_rows


def item_vectors(arrays: Mapping[str, Any]) -> NDArray[np.float32]:
    """Return factors, bias and, where only some items exceed the noise, whether each does."""
    if "neighbours" in arrays:
        raise InputError(
            "This model's lists use words of a table of articles, and no vectors of moderate length rank as"
            " they do; train without texts for an index of vectors."
        )
    (factors, items), bias = stored_rows(arrays["item_factors"]), np.asarray(arrays["item_bias"], float)
    lifted, own, pairs = _lifted(arrays), factors.shape[1], arrays.get("pair_items", ())
    public = arrays.get("public_factors", np.zeros((len(bias), 0)))
    paired = own + len(pairs)
    rank = paired + public.shape[1]
    vectors = np.zeros((len(bias), rank + 1 + lifted), np.float32)
    vectors[slice(None) if items is None else items, :own] = factors
    if paired > own:
        vectors[pairs, own:paired] = arrays["pair_weights"].T
    vectors[:, paired:rank] = public
    vectors[:, rank] = bias - bias.mean()  # float32 is finer near 0
    if lifted:
        vectors[:, rank + 1] = np.asarray(arrays["supported"]) != 0
    return vectors


def reach(arrays: Mapping[str, Any]) -> tuple[float, float]:
    """Return the longest item's norm, and the range of the biases."""
    bias = np.ptp(arrays["item_bias"])
    factors = item_vectors({**arrays, "supported": np.ones(1)})[:, :-1]
    squares = np.einsum("ij,ij->i", factors, factors, dtype=np.float64)
    return float(np.sqrt(squares.max(initial=0.0))), float(bias)


def queries(
    arrays: Mapping[str, Any], factors: NDArray[np.float64], likes: Any, reached: tuple[float, float]
) -> NDArray[np.float32]:
    """Return users' factors, 1, and a number that lifts items that exceed the noise."""
    taste = factors
    if "pair_items" in arrays:
        taste = np.column_stack([taste, likes[:, arrays["pair_items"]].toarray()])
    if "public_factors" in arrays:
        taste = np.column_stack([taste, sums_of_rows(csr(likes), arrays["public_factors"])])
    vectors = np.ones((len(taste), taste.shape[1] + 1 + _lifted(arrays)), np.float32)
    vectors[:, : taste.shape[1]] = taste
    if _lifted(arrays):  # more than any two scores of a user differ, and room for rounding
        longest, biases = reached
        vectors[:, -1] = 1.01 * (2 * longest * np.linalg.norm(taste, axis=1) + biases)
    return vectors


def _lifted(arrays: Mapping[str, Any]) -> bool:
    return "supported" in arrays and len(np.unique(np.asarray(arrays["supported"]) != 0)) == 2
