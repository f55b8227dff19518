"""Arrays with a row for each item that store and multiply only rows that are not zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.types import Array


class ItemRows:
    """An array of shape (n_items, n_columns) that is zero except in the rows of some items.

    NumPy takes it as the whole array. ``items`` are the positions of ``rows`` in the catalogue, ascending.
    """

    ndim = 2

    def __init__(self, rows: Array, items: NDArray[np.integer], n_items: int) -> None:
        self.rows, self.items, self.shape = rows, items, (n_items, rows.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.rows.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        whole = np.zeros(self.shape, dtype or self.dtype)
        whole[self.items] = self.rows
        return whole

    def __getitem__(self, key: Any) -> Array:
        if isinstance(key, tuple | slice) or np.ndim(key) != 1 or np.asarray(key).dtype == bool:
            return np.asarray(self)[key]
        chosen = np.zeros((len(key), self.shape[1]), self.dtype)
        places, stored = self.places(np.asarray(key))
        chosen[stored] = self.rows[places[stored]]
        return chosen

    def places(self, columns: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return items' places among the stored rows, and whether each is stored."""
        places = np.minimum(np.searchsorted(self.items, columns), max(len(self.items) - 1, 0))
        return places, (self.items[places] == columns if len(self.items) else np.zeros(len(columns), bool))

    def astype(self, dtype: Any) -> Array:
        return np.asarray(self, dtype)


def stored_rows(array: Any) -> tuple[Array, NDArray[np.integer] | None]:
    """Return the stored rows and their positions; None if all are stored."""
    return (array.rows, array.items) if isinstance(array, ItemRows) else (np.asarray(array), None)


def compact(array: Any) -> Any:
    """Return an array without rows of zeros, where these are half or more."""
    if isinstance(array, ItemRows) or array.ndim != 2 or not array.size:
        return array
    present = array.any(axis=1)
    if 2 * np.count_nonzero(present) > len(array):
        return array
    return ItemRows(array[present], np.flatnonzero(present).astype(np.int32), len(array))


def without_rows_of_zeros(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Make a model's item factors :func:`compact`."""
    if "item_factors" not in arrays:
        return dict(arrays)
    return {**arrays, "item_factors": compact(arrays["item_factors"])}


def weighted_sums(likes: sp.csr_array, factors: Any, weight: Array) -> NDArray[np.float64]:
    """Sum the weighted factors of each user's items, shape (n_users, rank)."""
    rows, items = stored_rows(factors)
    if items is not None:
        likes, weight = likes[:, items], weight[items]
    return np.asarray(likes @ (rows.astype(np.float64) * weight[:, None]))
