"""Columns become the rows of `Ratings`: the rules for what cannot be used, and the order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from hushrec.data.columns import SPLIT
from hushrec.data.domain import Domain
from hushrec.data.ids import Encoded, encode_ids, positions_of, take
from hushrec.data.keys import smallest_per_row, stream_base, text_keys
from hushrec.data.readers import read_columns
from hushrec.data.times import join_times
from hushrec.errors import InputError


class Rows(NamedTuple):
    """The fields of `Ratings` after its domain, in their order."""

    matrix: sp.csr_array
    user_values: np.ndarray | pa.Array
    user_texts: pa.Array
    times: np.ndarray | None = None
    hand_picked: bool = False
    by_position: bool = False
    splits: tuple[str, ...] = ()

    @property
    def user_column(self) -> pa.Array:
        """The user ids as an Arrow array, as of `Ratings`."""
        return self.user_values if isinstance(self.user_values, pa.Array) else self.user_texts


class _Entries(NamedTuple):
    """Usable ratings by user and item, one for each pair; how many each user has."""

    items: np.ndarray
    values: np.ndarray
    times: np.ndarray | None
    counts: np.ndarray


def read_rows(source: Any, domain: Domain, columns: Any, format: str | None, implicit: bool) -> Rows:
    """Rows of any source; see `hushrec.data.Ratings.from_any`."""
    if implicit:
        check_implicit(domain)
    users, items, ratings, times, marks = read_columns(source, columns, format, implicit, domain.item_texts)
    del source
    pool = pa.default_memory_pool()  # Arrow keeps what it no longer needs until it is told to let go
    positions = positions_of(encode_ids(items), domain.item_texts)
    del items
    pool.release_unused()
    encoded = encode_ids(users)
    del users
    pool.release_unused()
    rows = build(domain, encoded, positions, ratings, times)
    splits = tuple(mark for mark in marks if mark.startswith(SPLIT))
    return rows._replace(
        hand_picked="hand_picked" in marks, by_position="by_position" in marks, splits=splits
    )


def check_implicit(domain: Domain) -> None:
    """Refuse likes where a rating of 1 would be dropped."""
    if not domain.low <= 1.0 <= domain.high:
        raise InputError("With implicit feedback every rating is 1; declare a rating range that holds 1.")


def build(
    domain: Domain, users: Encoded, items: np.ndarray, ratings: np.ndarray, times: np.ndarray | None = None
) -> Rows:
    """Apply the rules for bad rows and sort.

    ``items`` are positions in the catalogue, -1 = unknown; ``ratings`` may be overwritten.
    """
    values = within_range(ratings, domain)
    found = _sorted_unique(users.codes, items, values, times, len(users.texts), domain.n_items)
    cap = domain.max_ratings_per_user
    if found.counts.max(initial=0) > cap:
        kept = _within_cap(found.counts, found.items, users.texts, cap)
        items, values, times, counts = found
        found = _Entries(items[kept], values[kept], _at(times, kept), np.minimum(counts, cap))
    present = np.flatnonzero(found.counts)
    matrix = csr(found.values, found.items, running_total(found.counts[present]), domain.n_items)
    return Rows(matrix, take(users.values, present), take(users.texts, present), found.times)


def one_row(domain: Domain, items: np.ndarray, ratings: np.ndarray) -> sp.csr_array:
    """The matrix of one user within the cap, who has a row also without a usable rating; see `build`."""
    values = within_range(ratings, domain)
    usable = np.flatnonzero((items >= 0) & ~np.isnan(values))
    order = usable[np.argsort(items[usable], kind="stable")]
    found = items[order]
    last = order[np.append(found[1:] != found[:-1], True)[: len(found)]]
    return csr(values[last], items[last], np.array([0, len(last)]), domain.n_items)


def latest(
    domain: Domain, users: Encoded, items: np.ndarray, ratings: np.ndarray, times: np.ndarray | None
) -> tuple[Encoded, np.ndarray, np.ndarray, np.ndarray | None]:
    """The entries that `build` would look at again, if others followed: users, items, ratings, times."""
    values = within_range(ratings, domain)
    found = _sorted_unique(users.codes, items, values, times, len(users.texts), domain.n_items)
    codes = np.repeat(np.arange(len(found.counts), dtype=np.int32), found.counts)
    return Encoded(codes, users.values, users.texts), found.items, found.values, found.times


def within_range(ratings: np.ndarray, domain: Domain) -> np.ndarray:
    """Ratings as float32 that lie within the declared range, NaN for all others.

    Compared after rounding to float32 (so that 4.1 is within (0.1, 4.1) whatever its type was), and never
    stored above ``domain.high`` or below ``domain.low``, not even by that rounding. A float32 array is
    changed in place.
    """
    low, high = np.float32(domain.low), np.float32(domain.high)
    with np.errstate(all="ignore"):  # a signalling NaN would warn
        values = np.asarray(ratings, dtype=np.float32)
        values[~((values >= low) & (values <= high))] = np.nan
    lowest = low if float(low) >= domain.low else np.nextafter(low, np.float32(np.inf))
    highest = high if float(high) <= domain.high else np.nextafter(high, np.float32(-np.inf))
    return np.clip(values, lowest, highest, out=values)


def _sorted_unique(
    users: np.ndarray,
    items: np.ndarray,
    values: np.ndarray,
    times: np.ndarray | None,
    n_users: int,
    n_items: int,
) -> _Entries:
    """Usable entries sorted by user and item; of a pair the latest, the last in the input where times tie."""
    usable = (users >= 0) & (items >= 0) & ~np.isnan(values)
    if not usable.all():
        users, items, values, times = users[usable], items[usable], values[usable], _at(times, usable)
    del usable
    if not _sorted_already(users, items):
        if times is not None:
            times = _by_cell(users, items, times, n_users, n_items).data
        found = _by_cell(users, items, values, n_users, n_items)
        counts, items, values = np.diff(found.indptr), found.indices.astype(np.int32, copy=False), found.data
        del found
    else:
        counts = np.diff(np.searchsorted(users, np.arange(n_users + 1, dtype=users.dtype)))
    del users
    ends = np.append(items[1:] != items[:-1], True)[: len(items)]
    ends[np.cumsum(counts)[counts > 0] - 1] = True
    if not ends.all():
        kept = ends if times is None else _latest(times, ends)
        counts = np.diff(running_total(ends)[running_total(counts)])
        items, values, times = items[kept], values[kept], _at(times, kept)
    return _Entries(items, values, times, counts)


def _sorted_already(users: np.ndarray, items: np.ndarray) -> bool:
    """Tell whether users follow one another, and the items of each in the order of the catalogue."""
    for part in slices(len(users) - 1):
        one, next_one = slice(part.start, part.stop), slice(part.start + 1, part.stop + 1)
        same = users[one] == users[next_one]
        if not ((users[one] < users[next_one]) | (same & (items[one] <= items[next_one]))).all():
            return False
    return True


def _by_cell(
    users: np.ndarray, items: np.ndarray, values: np.ndarray, n_users: int, n_items: int
) -> sp.csc_array:
    """Values in the order of users, their items, and the input: two conversions of SciPy, which count."""
    cells = sp.coo_array((values, (items, users)), shape=(n_items, n_users))
    cells.has_canonical_format = True  # else those of one cell would be added up
    return cells.tocsr().tocsc()


def _latest(times: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Mark the latest entry of each group of neighbours, the last one of a tie; ``ends`` marks their ends."""
    doubles = np.flatnonzero(~ends | ~np.append(True, ends[:-1]))  # entries of groups of more than one
    last = ends[doubles]
    order = np.lexsort((times[doubles], np.cumsum(last) - last))  # by group, then by time, then as they are
    latest = ends.copy()
    latest[doubles] = False
    latest[doubles[order[last]]] = True
    return latest


def _within_cap(counts: np.ndarray, items: np.ndarray, texts: pa.Array, cap: int) -> np.ndarray:
    """Mark at most ``cap`` entries of each user, in the keyed order of their own items."""
    long_users = np.flatnonzero(counts > cap)
    base = np.zeros(len(counts), dtype=np.uint64)
    keys = text_keys(texts.take(pa.array(long_users)).to_pylist())
    base[long_users] = stream_base(keys, 0, "cap")
    return smallest_per_row(running_total(counts), items, base, np.full(len(counts), cap))


def join_rows(parts: Sequence[Any], n_items: int) -> Rows:
    """Put the rows of different users together, each `Rows` or `Ratings`, with every mark of any of them."""
    if len(parts) == 1:
        return Rows(*(getattr(parts[0], name) for name in Rows._fields))
    matrix = csr(
        np.concatenate([each.matrix.data for each in parts]),
        np.concatenate([each.matrix.indices for each in parts]),
        running_total(np.concatenate([np.diff(each.matrix.indptr) for each in parts])),
        n_items,
    )
    return Rows(
        matrix,
        pa.concat_arrays([each.user_column for each in parts]),
        pa.concat_arrays([each.user_texts for each in parts]),
        join_times([each.times for each in parts], [each.matrix.nnz for each in parts]),
        any(each.hand_picked for each in parts),
        any(each.by_position for each in parts),
        tuple(dict.fromkeys(split for each in parts for split in each.splits)),
    )


def running_total(counts: np.ndarray) -> np.ndarray:
    """The number before each entry, and the total."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_items: int) -> sp.csr_array:
    """A matrix of sorted rows, its arrays as they are."""
    indptr = indptr.astype(np.int32 if len(data) < 1 << 31 else np.int64)
    matrix = sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_items), copy=False)
    matrix.has_sorted_indices = True
    matrix.has_canonical_format = True
    return matrix


def _at(values: np.ndarray | None, positions: np.ndarray) -> Any:
    return None if values is None else values[positions]


def slices(length: int, size: int = 1 << 20) -> list[slice]:
    """Slices that cover a long array, so that temporary arrays stay small."""
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]
