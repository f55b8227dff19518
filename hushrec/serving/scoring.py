"""Scores of items for users, from released arrays and the users' own state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.data.ratings_builder import row_of
from hushrec.kernels import residuals, topk
from hushrec.kernels.sparse_rows import scattered_sums, table_sums, used_columns
from hushrec.kernels.sweeps import CSR, csr
from hushrec.serving.item_rows import places, stored_rows, sums_of_rows
from hushrec.serving.rules import Rules, boosted, limited
from hushrec.serving.score_mixing import lowered, mixed
from hushrec.types import Array

#: Scores of a block of users, 16 MB: bounds the memory, which is used again for the next block.
_SCORES_PER_BLOCK = 1 << 21
#: Power of a cosine in the score of words. Chosen on two weeks of a shop.
_COSINE_POWER = 1.5


class UserState(NamedTuple):
    """Values that users compute from released arrays and their own ratings; never released.

    Attributes
    ----------
    offset : ndarray of shape (n_users,)
        Added to every score of a user.
    factors : ndarray of shape (n_users, rank)
        The users' taste, in the space of the item factors.
    likes : csr_array of shape (n_users, n_items), optional
        Rows of likes at norm 1, where items recommend items.
    public : PublicScores, optional

    Examples
    --------
    >>> state = hushrec.serving.UserState(offset=np.zeros(1), factors=np.ones((1, 2)))      # of one user
    >>> state.factors.shape
    (1, 2)
    """

    offset: NDArray[np.float64]
    factors: NDArray[np.float64]
    likes: sp.csr_array | None = None
    public: PublicScores | None = None

    @classmethod
    def of(cls, table: NDArray[np.float64]) -> UserState:
        """Split a table whose last column is the offset."""
        return cls(offset=table[:, -1], factors=table[:, :-1])

    def at(self, rows: slice) -> UserState:
        if rows.start == 0 and rows.stop >= len(self.offset):
            return self
        likes = None if self.likes is None else self.likes[rows]
        return UserState(self.offset[rows], self.factors[rows], likes, self.public and self.public.at(rows))

    @classmethod
    def mean(cls, states: Sequence[UserState]) -> UserState:
        """Return the mean of several states of the same users."""
        public = states[0].public
        if public is not None:
            theirs = cls.mean([state.public.state for state in states if state.public])
            public = public._replace(state=theirs)
        offset = np.mean([state.offset for state in states], axis=0)
        factors = np.mean([state.factors for state in states], axis=0)
        likes = [state.likes for state in states if state.likes is not None]
        return cls(offset, factors, sum(likes[1:], likes[0]) / len(likes) if likes else None, public)

    def moved(self, position: Array) -> UserState:
        """Return the rows at ``position``, zeros for a negative one."""
        known = position >= 0
        start = np.concatenate([[0], np.cumsum(known)])
        chosen = sp.csr_array(
            (np.ones(start[-1]), position[known], start), shape=(len(position), len(self.offset))
        )
        public = self.public and self.public._replace(state=self.public.state.moved(position))
        likes = None if self.likes is None else chosen @ self.likes
        return UserState(chosen @ self.offset, chosen @ self.factors, likes, public)


def at_norm_one(arrays: Mapping[str, Any], rows: CSR) -> sp.csr_array | None:
    """Return rows of likes at norm 1 if items recommend items, else None."""
    if not {"pair_items", "neighbours", "public_factors"} & arrays.keys():
        return None
    starts, items, _ = rows
    counts, n_items = np.diff(starts), len(arrays["item_bias"])
    values = np.repeat(1 / np.sqrt(np.maximum(counts, 1)), counts)
    if len(counts) == 1:
        return row_of(values, items, n_items)
    return sp.csr_array((values, items, starts), (len(counts), n_items))


def from_items(arrays: Mapping[str, Any], likes: sp.csr_array | None) -> dict[str, tuple[Any, Array]]:
    """Return columns and scores of the parts in which items recommend items, by their names.

    A row's scores do not depend on other rows, to the bit.
    """
    found: dict[str, tuple[Any, Array]] = {}
    if likes is not None and "pair_items" in arrays:
        (starts, items, values), learned = csr(likes), arrays["pair_items"]
        rows = starts, places(learned, items), values
        found["item pairs"] = learned, table_sums(rows, arrays["pair_weights"])
    if likes is not None and "neighbours" in arrays:
        rows, (near, similarity) = used_columns(csr(likes), arrays["neighbours"], arrays["similarity"])
        words = scattered_sums(rows, near, _of_cosines(arrays, similarity), likes.shape[1])
        found["words"] = slice(None), words
    if likes is not None and "public_factors" in arrays:
        factors, users = arrays["public_factors"], sums_of_rows(csr(likes), arrays["public_factors"])
        public = topk.row_scores(users, factors, np.zeros(len(users)), np.zeros(len(factors)))
        found["public likes"] = slice(None), public
    return found


def scores_of_items(arrays: Mapping[str, Any], items: Array, column: int) -> NDArray[np.float64]:
    """Return what each of one user's liked items adds to another's score by pairs, words and public likes."""
    moved = np.zeros(len(items))
    if "pair_items" in arrays:
        found = places(arrays["pair_items"], np.append(items, column))
        known = (found[:-1] >= 0) & (found[-1] >= 0)
        moved[known] += arrays["pair_weights"][found[:-1][known], found[-1]]
    if "neighbours" in arrays:
        weights = _of_cosines(arrays, arrays["similarity"][items])
        moved += np.where(arrays["neighbours"][items] == column, weights, 0.0).sum(axis=1)
    if "public_factors" in arrays:
        factors = arrays["public_factors"]
        moved += factors[items].astype(np.float64) @ factors[column].astype(np.float64)
    return moved / math.sqrt(max(len(items), 1))


def _of_cosines(arrays: Mapping[str, Any], similarity: Array) -> NDArray[np.float64]:
    return float(arrays["word_weight"]) * np.asarray(similarity, np.float64) ** _COSINE_POWER


class PublicScores(NamedTuple):
    """A public model's part of some users' scores.

    Attributes
    ----------
    arrays : mapping of str to ndarray
    state : UserState
    weight : float
        In (0, 1]; the private model has the rest.
    """

    arrays: Mapping[str, Array]
    state: UserState
    weight: float

    def at(self, rows: slice) -> PublicScores:
        return self._replace(state=self.state.at(rows))


def all_scores(arrays: Mapping[str, Any], state: UserState) -> NDArray[np.float64]:
    """Return scores of shape (n_users, n_items)."""
    scores, public = own_scores(arrays, state), state.public
    if public is None:
        return scores
    return mixed(scores, own_scores(public.arrays, public.state), public.weight)


def own_scores(arrays: Mapping[str, Any], state: UserState) -> NDArray[np.float64]:
    """Return the scores of one model alone, of the same shape."""
    level, bias = float(arrays["center"]) + state.offset, np.asarray(arrays["item_bias"])
    factors, items = stored_rows(arrays["item_factors"])
    if items is None:
        scores = topk.row_scores(state.factors, factors, level, bias)
    else:
        scores = level[:, None] + bias
        if len(items):
            scores[:, items] = topk.row_scores(state.factors, factors, level, bias[items])
    for columns, others in from_items(arrays, state.likes).values():
        scores[:, columns] += others
    return scores


def scores_at(
    arrays: Mapping[str, Any], state: UserState, rows: Array, columns: Array
) -> NDArray[np.float64]:
    public = state.public
    if state.likes is not None:  # which need all scores
        scores, order = np.empty(len(rows)), np.argsort(rows, kind="stable")
        for users in _blocks(arrays, state):
            first, last = np.searchsorted(rows[order], (users.start, users.stop))
            cells = order[first:last]
            scores[cells] = all_scores(arrays, state.at(users))[rows[cells] - users.start, columns[cells]]
        return scores
    factors, at = arrays["item_factors"], columns
    if len(columns) < len(factors):  # only the rows that are needed
        factors, at = factors[columns], np.arange(len(columns))
    scores = residuals.predict_pairs(rows, at, state.factors, np.asarray(factors, dtype=np.float64))
    scores += float(arrays["center"]) + state.offset[rows] + arrays["item_bias"][columns]
    if public is None:
        return scores
    return mixed(scores, scores_at(public.arrays, public.state, rows, columns), public.weight)


def best_columns(
    arrays: Mapping[str, Any],
    state: UserState,
    count: int,
    *,
    first: NDArray[np.bool_] | None,
    excluded: sp.csr_array | None = None,
    rules: Rules = Rules(),
) -> Iterator[tuple[slice, NDArray[np.int64], Array, Array]]:
    """Yield users, columns, scores and plain scores, best first, a block of users at a time.

    Arrays have shape (n_users, count). Columns are -1 past the end of a list. Items that are not in ``first``
    come after all others, with scores below theirs. Cells of ``excluded``, of shape (n_users, n_items), are
    not chosen. Plain scores have neither a boost nor that order.
    """
    for users in _blocks(arrays, state):
        every = plain = all_scores(arrays, state.at(users))
        if rules.factors is not None:
            every = boosted(every, rules.factors)
        allowed = every
        if rules.allowed is not None:
            allowed = every.copy()
            allowed[:, ~rules.allowed] = -np.inf
        cells = np.zeros(0, np.int64)
        if excluded is not None:
            starts = excluded.indptr[users.start : users.stop + 1]
            cells = np.repeat(np.arange(0, every.size, every.shape[1]), starts[1:] - starts[:-1])
            cells += excluded.indices[starts[0] : starts[-1]]
        kept = every.reshape(-1)[cells]
        allowed.reshape(-1)[cells] = -np.inf
        columns, scores = topk.top_k(allowed, count, first)
        if rules.limits:
            columns, scores = limited(rules.limits, allowed, columns, first)
        every.reshape(-1)[cells] = kept  # which a copy of all scores would cost more
        own = scores if plain is every else np.take_along_axis(plain, np.maximum(columns, 0), axis=1)
        yield users, columns, scores if first is None else _below(every, first, columns, scores), own


def _below(every: Array, first: NDArray[np.bool_], columns: Array, scores: Array) -> Array:
    other = ~first[columns] & (columns >= 0)
    (users,) = np.nonzero(other.any(axis=1))
    if not len(users):  # the usual case in short lists
        return scores
    every = every if len(users) == len(every) else every[users]
    low = np.take_along_axis(lowered(every, first), np.maximum(columns[users], 0), axis=1)
    scores = scores.copy()
    scores[users] = np.where(other[users], low, scores[users])
    return scores


def _blocks(arrays: Mapping[str, Any], state: UserState) -> Iterator[slice]:
    block = max(1, _SCORES_PER_BLOCK // len(arrays["item_bias"]))
    for start in range(0, max(len(state.offset), 1), block):  # one at least, which may be empty
        yield slice(start, start + block)
