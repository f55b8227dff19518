"""Scores and ranked lists, from released arrays and what users computed: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[Any]

#: Users are served in blocks of about this many scores, so memory does not grow with the catalogue.
_SCORES_PER_BLOCK = 1 << 22


class UserState(NamedTuple):
    """What a user computes about herself from the billboard and her own rows; never released.

    Attributes
    ----------
    offset : ndarray of shape (n_users,)
        Her level: added to every score.
    factors : ndarray of shape (n_users, rank)
        Her taste, in the space of the billboard's item factors.
    """

    offset: NDArray[np.float64]
    factors: NDArray[np.float64]

    def at(self, rows: slice) -> UserState:
        """Some users only."""
        return UserState(self.offset[rows], self.factors[rows])

    def moved(self, position: Array) -> UserState:
        """The rows at ``position``; zero, which is the released values alone, where that is negative."""
        known = position >= 0
        offset = np.zeros(len(position))
        factors = np.zeros((len(position), self.factors.shape[1]))
        offset[known] = self.offset[position[known]]
        factors[known] = self.factors[position[known]]
        return UserState(offset, factors)


def all_scores(arrays: Mapping[str, Array], state: UserState) -> NDArray[np.float64]:
    """The score of every item for every user, shape (n_users, n_items)."""
    base = float(arrays["center"]) + arrays["item_bias"]
    return state.offset[:, None] + base + state.factors @ np.asarray(arrays["item_factors"], np.float64).T


def scores_at(
    arrays: Mapping[str, Array], state: UserState, rows: Array, columns: Array
) -> NDArray[np.float64]:
    """The scores of some cells only."""
    from hushrec.kernels.residuals import predict_pairs

    found = predict_pairs(rows, columns, state.factors, np.asarray(arrays["item_factors"], dtype=np.float64))
    return found + float(arrays["center"]) + state.offset[rows] + arrays["item_bias"][columns]


def best_columns(
    arrays: Mapping[str, Array],
    state: UserState,
    count: int,
    *,
    excluded: sp.csr_array | None = None,
    allowed: Array | None = None,
) -> Iterator[tuple[NDArray[np.int64], Array]]:
    """The best items of each user, a block of users at a time.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        The released arrays. Items whose ``supported`` is 0 come after all others.
    state : UserState
        The users.
    count : int
        How many items, at most the catalogue.
    excluded : csr_array of shape (n_users, n_items), optional
        Cells that must not be chosen.
    allowed : ndarray of int, optional
        Items that may be chosen; all by default.

    Yields
    ------
    (columns, scores)
        Shape (users in the block, count), best first; columns are -1 past the end of a list.
    """
    from hushrec.kernels.topk import top_k

    n_users, n_items = len(state.offset), len(arrays["item_bias"])
    supported = arrays.get("supported")
    first = None if supported is None else supported.astype(bool)
    block = max(1, _SCORES_PER_BLOCK // n_items)
    for start in range(0, n_users, block):
        rows = slice(start, min(start + block, n_users))
        found = all_scores(arrays, state.at(rows))
        if allowed is not None:
            kept = np.full(found.shape, -np.inf)
            kept[:, allowed] = found[:, allowed]
            found = kept
        if excluded is None:
            yield top_k(found, count, None, None, first)
        else:
            indptr = excluded.indptr[rows.start : rows.stop + 1]
            taken = excluded.indices[indptr[0] : indptr[-1]]
            yield top_k(found, count, indptr - indptr[0], taken, first)


def cosines_with(item_factors: Array, column: int) -> Array:
    """Cosines between one item's factors and those of all; -inf of itself and where there is no angle."""
    norms = np.linalg.norm(item_factors, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = item_factors @ item_factors[column] / (norms * norms[column])
    found = np.where(np.isfinite(found), found, -np.inf)
    found[column] = -np.inf
    return found
