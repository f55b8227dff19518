"""Columns become the rows of `Ratings`: the rules for what cannot be used, and the order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from hushrec.data.columns import Columns, fields_of
from hushrec.data.domain import Domain
from hushrec.data.ids import Encoded, encode_ids, positions_of, take
from hushrec.data.keys import slices, smallest_per_row, stream_base, text_keys
from hushrec.data.readers import read_columns
from hushrec.errors import InputError


class Rows(NamedTuple):
    """The fields of `Ratings` after its domain."""

    matrix: sp.csr_array
    user_values: np.ndarray | pa.Array
    user_texts: pa.Array
    times: np.ndarray | None = None
    hand_picked: bool = False
    by_position: bool = False
    purchases: bool = False
    splits: tuple[str, ...] = ()


def read_rows(source: Any, domain: Domain, columns: Any, format: str | None, implicit: bool) -> Rows:
    if implicit:
        check_implicit(domain, columns)
    entries = read_columns(source, columns, format, implicit, domain.item_texts)
    del source
    pool = pa.default_memory_pool()  # Arrow keeps unused memory until it is asked to release it
    entries = entries._replace(items=positions_of(encode_ids(entries.items), domain.item_texts), lines=None)
    pool.release_unused()
    entries = entries._replace(users=encode_ids(entries.users))
    pool.release_unused()
    return build(domain, entries)


def check_implicit(domain: Domain, columns: Any = None) -> None:
    if not domain.low <= 1.0 <= domain.high:
        raise InputError("With implicit feedback every rating is 1; declare a rating range that holds 1.")
    if isinstance(columns, Mapping) and columns.get("quantity") and not domain.likes:
        raise InputError("Likes by quantity need a domain of likes; declare Domain(items, likes=True).")


def build(domain: Domain, columns: Columns) -> Rows:
    """Apply the rules for bad rows and sort; ``columns.ratings`` may be overwritten."""
    return rows_of(domain, latest(usable(domain, columns), domain.n_items))


def usable(domain: Domain, columns: Columns) -> Columns:
    """Keep rows with a user, an item, and a rating in the range or a quantity."""
    columns = columns._replace(ratings=within_range(columns.ratings, domain))
    kept = (columns.users.codes >= 0) & (columns.items >= 0) & has_value(columns)
    return columns if kept.all() else columns.where(kept)


def rows_of(domain: Domain, entries: Columns) -> Rows:
    """Return the rows of columns from `latest`; a pair that was only bought is NaN, or 1 of likes."""
    if entries.quantities is not None:
        is_unrated = np.isnan(entries.ratings)
        entries = entries.where(~is_unrated | (entries.quantities > 0))
        if domain.likes:
            entries.ratings[:] = 1
    users, items, values, times, _, marks, *_ = entries
    ends = np.arange(len(users.texts) + 1, dtype=users.codes.dtype)
    starts = np.searchsorted(users.codes, ends)  # bincount would copy the codes
    counts, cap = np.diff(starts), domain.max_ratings_per_user
    if counts.max(initial=0) > cap:
        kept = _within_cap(counts, items, users.texts, cap)
        items, values, counts = items[kept], values[kept], np.minimum(counts, cap)
        times = None if times is None else times[kept]
    present = np.flatnonzero(counts)
    matrix = csr(values, items, running_total(counts[present]), domain.n_items)
    return Rows(matrix, take(users.values, present), take(users.texts, present), times, **fields_of(marks))


def one_row(domain: Domain, items: list[int], ratings: np.ndarray) -> sp.csr_array:
    """Return the row of one user within the cap."""
    values = within_range(ratings, domain).tolist()
    last = {item: value for item, value in zip(items, values, strict=True) if item >= 0 and value == value}
    columns = sorted(last)
    ratings = np.array([last[column] for column in columns], np.float32)
    return row_of(ratings, np.array(columns, np.int32), domain.n_items)


def row_of(values: np.ndarray, items: np.ndarray, n_items: int) -> sp.csr_array:
    """Return a matrix of one row; SciPy checks new arrays for longer than a list takes."""
    matrix = sp.csr_array.__new__(sp.csr_array)
    vars(matrix).update(vars(_row_of_nothing(n_items)))
    matrix.data, matrix.indices, matrix.indptr = values, items, np.array([0, len(items)], np.int32)
    return matrix


@cache
def _row_of_nothing(n_items: int) -> sp.csr_array:
    return csr(np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(2, np.int32), n_items)


def latest(columns: Columns, n_items: int) -> Columns:
    """Sort by user and item; keep of a pair the latest rating, and the sum of its quantities.

    Of equal times the last row of the input stays if ``is_ordered``. Otherwise the largest rating stays, and
    users are sorted by their text.
    """
    if not columns.is_ordered:
        columns = columns._replace(users=_sorted_by_text(columns.users), ratings=columns.ratings + 0.0)
    ordered = _by_pair(columns, n_items)
    codes, items, values, quantities = ordered.users.codes, ordered.items, ordered.ratings, ordered.quantities
    ends = np.append((items[1:] != items[:-1]) | (codes[1:] != codes[:-1]), True)[: len(items)]
    if ends.all():
        return ordered
    keys = [key for key in (None if ordered.is_ordered else values, ordered.times) if key is not None]
    if quantities is not None:
        keys.append(~np.isnan(values))  # a rating comes before a purchase without one, at any time
        quantities = np.add.reduceat(quantities, np.flatnonzero(np.append(True, ends[:-1])))
    kept = _latest(keys, ends) if keys else ends
    return ordered._replace(quantities=None).where(kept)._replace(quantities=quantities)


def has_value(columns: Columns) -> np.ndarray:
    """Mark the rows with a rating in the range, or with a quantity."""
    is_rated = ~np.isnan(columns.ratings)
    return is_rated if columns.quantities is None else is_rated | (columns.quantities != 0)


def within_range(ratings: np.ndarray, domain: Domain) -> np.ndarray:
    """Return float32 within the declared range, not even rounded out of it, NaN for others; float32 in place.

    Compared in float32, in which 4.1 is within (0.1, 4.1).
    """
    low, high, lowest, highest = _bounds(domain.low, domain.high)
    with np.errstate(all="ignore"):  # a signalling NaN would warn
        values = np.asarray(ratings, dtype=np.float32)
        values[~((values >= low) & (values <= high))] = np.nan
    return np.minimum(np.maximum(values, lowest, out=values), highest, out=values)


@cache
def _bounds(low: float, high: float) -> tuple[np.float32, np.float32, np.float32, np.float32]:
    """Return the range in float32, and the first float32 within it from either side."""
    least, most = np.float32(low), np.float32(high)
    lowest = least if float(least) >= low else np.nextafter(least, np.float32(np.inf))
    highest = most if float(most) <= high else np.nextafter(most, np.float32(-np.inf))
    return least, most, lowest, highest


def _sorted_by_text(users: Encoded) -> Encoded:
    """The order of first appearance may be private."""
    order = pc.sort_indices(users.texts).to_numpy()
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return Encoded(place[users.codes], take(users.values, order), take(users.texts, order))


def _by_pair(columns: Columns, n_items: int) -> Columns:
    users, items = columns.users, columns.items
    if _sorted_already(users.codes, items):
        return columns
    shape = len(users.texts), n_items
    sort = partial(_by_cell, users.codes, items, shape=shape)
    times, quantities = (None if column is None else sort(column).data for column in columns[3:5])
    by_pair = sort(columns.ratings)
    codes = np.repeat(np.arange(shape[0], dtype=np.int32), np.diff(by_pair.indptr))
    places = by_pair.indices.astype(np.int32, copy=False)
    return Columns(replace(users, codes=codes), places, by_pair.data, times, quantities, *columns[5:])


def _sorted_already(users: np.ndarray, items: np.ndarray) -> bool:
    for part in slices(len(users) - 1):
        one, next_one = slice(part.start, part.stop), slice(part.start + 1, part.stop + 1)
        same = users[one] == users[next_one]
        if not ((users[one] < users[next_one]) | (same & (items[one] <= items[next_one]))).all():
            return False
    return True


def _by_cell(
    users: np.ndarray, items: np.ndarray, values: np.ndarray, shape: tuple[int, int]
) -> sp.csc_array:
    """Sort by user, item and input order: two conversions of SciPy, which count."""
    cells = sp.coo_array((values, (items, users)), shape=shape[::-1])
    cells.has_canonical_format = True  # else those of one cell would be added up
    return cells.tocsr().tocsc()


def _latest(keys: Sequence[np.ndarray], ends: np.ndarray) -> np.ndarray:
    """Mark each group's entry with the largest keys, the last key first; of a tie the last."""
    doubles = np.flatnonzero(~ends | ~np.append(True, ends[:-1]))  # entries of groups of more than one
    last = ends[doubles]
    order = np.lexsort((*(key[doubles] for key in keys), np.cumsum(last) - last))
    latest = ends.copy()
    latest[doubles] = False
    latest[doubles[order[last]]] = True
    return latest


def _within_cap(counts: np.ndarray, items: np.ndarray, texts: pa.Array, cap: int) -> np.ndarray:
    long_users = np.flatnonzero(counts > cap)
    base = np.zeros(len(counts), dtype=np.uint64)
    keys = text_keys(texts.take(pa.array(long_users)).to_pylist())
    base[long_users] = stream_base(keys, 0, "cap")
    return smallest_per_row(running_total(counts), items, base, np.full(len(counts), cap))


def running_total(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_items: int) -> sp.csr_array:
    indptr = indptr.astype(np.int32 if len(data) < 1 << 31 else np.int64)
    matrix = sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_items), copy=False)
    matrix.has_sorted_indices = True
    matrix.has_canonical_format = True
    return matrix
