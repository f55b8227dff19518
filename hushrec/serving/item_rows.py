"""Arrays with a row for each item that store and multiply only rows that are not zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.kernels.sparse_rows import CSR, table_sums
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
        found = places(self.items, np.asarray(key))
        chosen[found >= 0] = self.rows[found[found >= 0]]
        return chosen

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


def sums_of_rows(rows: CSR, array: Any) -> NDArray[np.float64]:
    """Sum the array's rows at the columns of each row, times its values."""
    (table, items), (starts, columns, values) = stored_rows(array), rows
    return table_sums((starts, columns if items is None else places(items, columns), values), table)


def places(items: NDArray[np.integer], columns: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the columns' places among ascending items; -1 for others."""
    found = np.minimum(np.searchsorted(items, columns), max(len(items) - 1, 0))
    return np.where(items[found] == columns if len(items) else False, found, -1)
