"""The private rows: who rated what, and how."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from hushrec.data import readers
from hushrec.data.domain import Domain, check_domain, lookup, places, positions_of
from hushrec.data.ids import Encoded, encode_ids, given_ids
from hushrec.data.keys import smallest_per_row, stream_base, text_keys
from hushrec.errors import InputError

_WORD_BITS = 63  # an entry's user, item and position fit in one integer, or are sorted the longer way


@dataclass(frozen=True, eq=False, repr=False)
class Ratings:
    """Ratings of users for the items of a declared `Domain`: the private side of a data set.

    Build it with `read`, `from_any`, `from_triples`, `from_arrow`, `from_pandas`, `from_polars`, `from_scipy`
    or, for one user who is to be served, `of_user`.

    Attributes
    ----------
    domain : Domain
        Public.
    matrix : scipy.sparse.csr_array, shape (n_users, n_items), float32 data, int32 indices
        Private. Items ascend within a user and none occurs twice; a stored zero is a rating of zero.
    user_values, user_texts : arrays with one entry per user
        Private. The ids as given and in canonical form; `users` shows the former as a NumPy array.
    hand_picked : bool
        Public. Whether users or ratings were chosen by a rule that may look at several users at once
        (`where`, `rows`, `for_users`): then one user more can change what is there of the others, and a
        private training refuses.
    by_position : bool
        Public. Whether user ids are row numbers (Jester files, `from_scipy` without users). A user is then
        removed by emptying her row, which leaves all others their numbers, and the number of rows is public.

    Notes
    -----
    Rows that cannot be used are dealt with inside the user they belong to, silently, so that no user can
    change what happens to another, and no message tells what the rows hold:

    * a rating that is missing, no number, NaN, infinite or outside the declared range: the row is dropped;
    * an item that is missing or not in the catalogue: the row is dropped;
    * a missing user id: the row is dropped;
    * several ratings of one item by one user: the last one in the order of the input stays;
    * more than ``domain.max_ratings_per_user`` ratings: a sample stays that is drawn from the hash of the
      user's id and of each item, without regard to any other user;
    * a line of a text file with the wrong number of fields, or of more than 65,536 bytes: skipped.

    A user none of whose rows is left is no user: she adds nothing to any sum, nor to ``n_users``. Ids are
    compared by `hushrec.data.ids.canonical_text`. In NumPy and pandas an integer id of 2^53 or more is none,
    whatever the column's type: one missing id makes floats of the whole column, and pandas has rounded them
    before we see it; give such ids as text, or in an Arrow or polars column or a Parquet file. Users are
    numbered by first appearance, and no order, number or type here may be published: ``n_users``,
    ``n_ratings`` and every array are private.
    """

    domain: Domain
    matrix: sp.csr_array
    user_values: np.ndarray | pa.Array
    user_texts: pa.Array
    hand_picked: bool = False
    by_position: bool = False

    # ---- building

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        domain: Domain,
        *,
        columns: Mapping[str, Any] | None = None,
        format: str | None = None,
        implicit: bool = False,
    ) -> Ratings:
        """Read a file of ratings.

        Parameters
        ----------
        path : path of a Parquet, CSV or TSV file (text may be compressed), or of a MovieLens or Jester file
        domain : Domain
        columns : dict, optional
            Names of the columns, ``{"user": ..., "item": ..., "rating": ...}``. Usual names (user, userId,
            user_id, item, itemId, movieId, rating, score, ...) are found without it.
        format : str, optional
            "parquet", "csv", "tsv", "movielens-100k" (``u.data``: tabs, no header), "movielens-dat" (fields
            parted by ``::``), "jester" (a line per user, 100 ratings, 99 = not rated). Told from the file's
            name by default; the delimiter of a CSV file from its header line.
        implicit : bool
            Every row counts as a rating of 1; the rating column may be absent.

        Raises
        ------
        InputError
            The domain is missing, the file cannot be read as a table, or a column is missing.
        """
        check_domain(domain)
        return cls._build(readers.read_file(Path(path), columns, format, implicit), domain, implicit)

    @classmethod
    def from_any(
        cls,
        source: Any,
        domain: Domain,
        *,
        columns: Mapping[str, Any] | None = None,
        format: str | None = None,
        implicit: bool = False,
    ) -> Ratings:
        """Ratings from a path, a data frame, an Arrow table, a SciPy matrix, a mapping of columns or a tuple
        (users, items, ratings); Ratings over the same domain are given back."""
        check_domain(domain)
        if isinstance(source, Ratings):
            if source.domain.fingerprint != domain.fingerprint:
                raise InputError(
                    "These ratings were read over another domain; read them again over this one."
                )
            return source if source.domain is domain else replace(source, domain=domain)
        if sp.issparse(source):
            return cls.from_scipy(source, domain, implicit=implicit)
        return cls._build(readers.read_columns(source, columns, format, implicit), domain, implicit)

    @classmethod
    def from_triples(
        cls, users: Any, items: Any, ratings: Any, domain: Domain, *, implicit: bool = False
    ) -> Ratings:
        """Ratings from three sequences of the same length; ``ratings`` may be None with ``implicit``."""
        check_domain(domain)
        return cls._build(readers.from_triples(users, items, ratings, implicit), domain, implicit)

    @classmethod
    def from_arrow(
        cls, table: Any, domain: Domain, *, columns: Mapping[str, Any] | None = None, implicit: bool = False
    ) -> Ratings:
        """Ratings from an Arrow table, or anything that exports an Arrow stream (DuckDB, polars, ...)."""
        check_domain(domain)
        return cls._build(readers.from_arrow(table, columns, implicit), domain, implicit)

    @classmethod
    def from_pandas(
        cls, frame: Any, domain: Domain, *, columns: Mapping[str, Any] | None = None, implicit: bool = False
    ) -> Ratings:
        """Ratings from a pandas data frame; columns of mixed objects are read cell by cell."""
        check_domain(domain)
        return cls._build(readers.from_frame(frame, columns, implicit), domain, implicit)

    @classmethod
    def from_polars(
        cls, frame: Any, domain: Domain, *, columns: Mapping[str, Any] | None = None, implicit: bool = False
    ) -> Ratings:
        """Ratings from a polars data frame, eager or lazy."""
        check_domain(domain)
        frame = frame.collect() if hasattr(frame, "collect") else frame
        return cls._build(readers.from_frame(frame, columns, implicit), domain, implicit)

    @classmethod
    def from_scipy(cls, matrix: Any, domain: Domain, *, users: Any = None, implicit: bool = False) -> Ratings:
        """Ratings from a sparse matrix of users by items, its columns in the order of the catalogue.

        Parameters
        ----------
        matrix : SciPy sparse matrix or array, shape (n_rows, n_items)
            Stored entries are ratings, explicit zeros too; of an entry stored twice the last one counts.
        domain : Domain
        users : sequence of ids, optional
            The id of each row; by default its number. The number of rows is then public, and a user is left
            out by emptying her row: without it all after her would be taken for others.
        implicit : bool
            Every stored entry counts as 1.
        """
        check_domain(domain)
        if not sp.issparse(matrix) or matrix.ndim != 2:
            raise InputError(
                f"A SciPy sparse matrix of users by items is needed, not {type(matrix).__name__}."
            )
        readers.check_sparse(matrix)
        if matrix.shape[1] != domain.n_items:
            raise InputError(
                f"The matrix has {matrix.shape[1]} columns and the catalogue {domain.n_items} items; "
                "they must agree, in the same order."
            )
        ids = encode_ids(range(matrix.shape[0]) if users is None else users)
        if len(ids.codes) != matrix.shape[0]:
            raise InputError("users must hold one id for each row of the matrix.")
        if not implicit and _usable_as_is(matrix, domain) and len(ids.texts) == matrix.shape[0]:
            own = _csr(matrix.data.copy(), matrix.indices.copy(), matrix.indptr, domain.n_items)
            return cls(domain, own, ids.values, ids.texts, by_position=users is None)
        rows, items, ratings, _ = readers.read_columns(matrix, None, None, implicit)
        read = cls.assemble(domain, Encoded(ids.codes[rows], ids.values, ids.texts), items, ratings)
        return replace(read, by_position=users is None)

    @classmethod
    def of_user(cls, ratings: Any, domain: Domain, *, implicit: bool = False) -> Ratings:
        """The ratings of one user who is to be served: always one row, which may be empty.

        Parameters
        ----------
        ratings : mapping from item to rating, or sequence of (item, rating) pairs; item ids with ``implicit``
        domain : Domain
        """
        check_domain(domain)
        try:
            if implicit:
                items, values = list(ratings), None
            else:
                pairs = [(i, r) for i, r in (ratings.items() if isinstance(ratings, Mapping) else ratings)]
                items, values = [i for i, _ in pairs], [r for _, r in pairs]
        except (TypeError, ValueError):
            raise InputError(
                "A user's ratings must be a mapping from item to rating, or pairs of both."
            ) from None
        table = readers.from_triples(["user"] * len(items), items, values, implicit)
        return replace(cls._build(table, domain, implicit).for_users(["user"]), hand_picked=False)

    @classmethod
    def _build(cls, table: readers.Columns, domain: Domain, implicit: bool) -> Ratings:
        if implicit and not domain.low <= 1.0 <= domain.high:
            raise InputError("With implicit feedback every rating is 1; declare a rating range that holds 1.")
        users, items, ratings, marks = table
        del table
        pool = pa.default_memory_pool()  # Arrow keeps what it no longer needs until it is told to let go
        positions = positions_of(encode_ids(items), domain.item_texts)
        del items
        pool.release_unused()
        encoded = encode_ids(users)
        del users
        pool.release_unused()
        read = cls.assemble(domain, encoded, positions, ratings)
        found: dict[str, Any] = dict.fromkeys(marks, True)
        return replace(read, **found)

    @classmethod
    def assemble(cls, domain: Domain, users: Encoded, items: np.ndarray, ratings: np.ndarray) -> Ratings:
        """Apply the rules for bad rows and sort.

        ``items`` are positions in the catalogue, -1 = unknown; ``ratings`` may be overwritten.
        """
        values = within_range(ratings, domain)
        items, values, counts = _sorted_unique(users.codes, items, values, len(users.texts), domain.n_items)
        cap = domain.max_ratings_per_user
        if counts.max(initial=0) > cap:
            kept = _within_cap(counts, items, users.texts, cap)
            items, values, counts = items[kept], values[kept], np.minimum(counts, cap)
        present = np.flatnonzero(counts)
        matrix = _csr(values, items, _running_total(counts[present]), domain.n_items)
        return cls(domain, matrix, _take(users.values, present), users.texts.take(pa.array(present)))

    # ---- looking

    def __repr__(self) -> str:
        return f"Ratings(private rows over {self.domain!r})"

    @property
    def n_users(self) -> int:
        """Number of rows. Private under add/remove: release it or declare it before it is used in public."""
        return self.matrix.shape[0]

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue (public)."""
        return self.domain.n_items

    @property
    def n_ratings(self) -> int:
        """Number of ratings. Private."""
        return self.matrix.nnz

    @cached_property
    def users(self) -> np.ndarray:
        """The user ids as they were given, one per row. Private.

        Integers of an Arrow or polars column or a file come as an integer array, all else as objects; a
        number is an int or a float whatever the other cells have made of its column.
        """
        if isinstance(self.user_values, pa.Array) and pa.types.is_integer(self.user_values.type):
            return self.user_values.to_numpy(zero_copy_only=False)
        users = np.empty(self.n_users, dtype=object)
        for row, value in enumerate(given_ids(self.user_values)):
            users[row] = value
        return users

    @property
    def user_column(self) -> pa.Array:
        """The user ids as an Arrow array, in the type of an Arrow or polars column or a file, else as text.

        Private. A type chosen for the ids at hand would tell every user of one whose id is of another type.
        """
        return self.user_values if isinstance(self.user_values, pa.Array) else self.user_texts

    @cached_property
    def user_keys(self) -> np.ndarray:
        """One uint64 per user, a hash of her own id only; what is drawn at random for her starts from it."""
        return text_keys(self.user_texts.to_pylist())

    @cached_property
    def users_differ(self) -> bool:
        """Whether every row is another user's, as it must be for training."""
        return len(self.user_texts.unique()) == self.n_users

    @cached_property
    def transposed(self) -> sp.csr_array:
        """The matrix with items as rows, shape (n_items, n_users), in CSR form; computed once."""
        return self.matrix.T.tocsr()

    def user_index(self, ids: Any) -> np.ndarray:
        """The row of each user id, or of each user of other ratings: int64, -1 where she is not here."""
        if isinstance(ids, Ratings):
            return places(ids.user_texts, self.user_texts).astype(np.int64)
        return lookup(ids, self.user_texts)

    def to_arrow(self) -> pa.Table:
        """An Arrow table of user, item and rating, with the ids as given. Private.

        Its metadata keep ``hand_picked`` and ``by_position``, which `from_arrow` and `read` find there.
        """
        marks = " ".join(mark for mark in readers.MARKS if getattr(self, mark))
        rows = pa.array(np.repeat(np.arange(self.n_users), np.diff(self.matrix.indptr)))
        return pa.table(
            {
                "user": self.user_column.take(rows),
                "item": self.domain.item_column.take(pa.array(self.matrix.indices)),
                "rating": pa.array(self.matrix.data),
            },
            metadata={readers.MARKS_KEY: marks},
        )

    # ---- selecting

    def rows(self, selection: Any, *, keyed: bool = False) -> Ratings:
        """The chosen rows, in the order asked for.

        Parameters
        ----------
        selection : slice, mask of bool or row numbers
            Row numbers come from `user_index`; -1 is refused (see `for_users`).
        keyed : bool
            As in `where`.
        """
        chosen = np.arange(self.n_users)[selection] if isinstance(selection, slice) else np.asarray(selection)
        if chosen.dtype == bool:
            if chosen.shape != (self.n_users,):
                raise InputError("A mask of users must have one entry for each user.")
            chosen = np.flatnonzero(chosen)
        chosen = np.atleast_1d(chosen).astype(np.int64)
        if len(chosen) and (chosen.min() < 0 or chosen.max() >= self.n_users):
            raise InputError("A row number is out of range; rows are numbered from 0 to n_users - 1.")
        if np.bincount(chosen).max(initial=0) > 1:
            raise InputError("A row is asked for more than once; a user has one row, so name each once.")
        users = Encoded(chosen, _take(self.user_values, chosen), self.user_texts.take(pa.array(chosen)))
        return self._at(chosen, users, hand_picked=not keyed)

    def select_users(self, mask: np.ndarray, *, keyed: bool = False) -> Ratings:
        """The users for whom the mask (bool, shape (n_users,)) is true; ``keyed`` as in `where`."""
        return self.rows(np.asarray(mask, dtype=bool), keyed=keyed)

    def for_users(self, ids: Any) -> Ratings:
        """One row for each id, in that order; empty where she is not among the users.

        For serving and evaluation; the result is ``hand_picked``.
        """
        wanted = encode_ids(ids, exact=True)
        if len(wanted.codes) != len(wanted.texts) or (wanted.codes < 0).any():
            raise InputError("User ids must be given once each, none missing.")
        return self._at(places(wanted.texts, self.user_texts), wanted, hand_picked=True)

    def aligned_to(self, other: Ratings) -> Ratings:
        """This object's ratings of the other's users, row by row; empty for users who have none here."""
        users = Encoded(np.arange(other.n_users), other.user_values, other.user_texts)
        return _marked(self._at(places(other.user_texts, self.user_texts), users), self, other)

    def where(self, mask: np.ndarray, *, drop_empty: bool = True, keyed: bool = False) -> Ratings:
        """The ratings for which the mask (bool, shape (n_ratings,), in the order of ``matrix.data``) is true.

        Users left without a rating are dropped, unless ``drop_empty`` is False.

        Parameters
        ----------
        mask : ndarray of bool
        drop_empty : bool
        keyed : bool
            Declares that each user's part of the mask was made from her own rows, her id and public values
            only, as `split_ratings` does it; the result is ``hand_picked`` without it.
        """
        counts = np.diff(_running_total(mask)[self.matrix.indptr])
        present = np.flatnonzero(counts) if drop_empty else np.arange(self.n_users)
        indptr = _running_total(counts[present])
        return replace(
            self,
            matrix=_csr(self.matrix.data[mask], self.matrix.indices[mask], indptr, self.n_items),
            user_values=_take(self.user_values, present),
            user_texts=self.user_texts.take(pa.array(present)),
            hand_picked=self.hand_picked or not keyed,
        )

    def history(self, other: Ratings) -> Ratings:
        """The ratings of both, such as training and validation; where both hold a pair, the other's."""
        if other.domain.fingerprint != self.domain.fingerprint:
            raise InputError("Only ratings over the same domain can be put together.")
        known = places(other.user_texts, self.user_texts)
        added = np.flatnonzero(known < 0)
        place = known.copy()
        place[added] = self.n_users + np.arange(len(added))
        codes = np.concatenate([_row_of_each(self.matrix), place[_row_of_each(other.matrix)]]).astype(
            np.int32
        )
        texts = pa.concat_arrays([self.user_texts, other.user_texts.take(pa.array(added))])
        values = _joined(self.user_values, _take(other.user_values, added))
        items = np.concatenate([self.matrix.indices, other.matrix.indices])
        ratings = np.concatenate([self.matrix.data, other.matrix.data])
        both = Ratings.assemble(self.domain, Encoded(codes, values, texts), items, ratings)
        return _marked(both, self, other)

    def rated(self) -> Ratings:
        """The users who have a rating: a row without one is no user, and counts nowhere."""
        if np.diff(self.matrix.indptr).all():
            return self
        return self.where(np.ones(self.n_ratings, dtype=bool), keyed=True)

    def _at(self, positions: np.ndarray, users: Encoded, hand_picked: bool = False) -> Ratings:
        """Rows at positions (-1 = an empty row) under the ids given."""
        starts = np.append(self.matrix.indptr[:-1], 0).astype(np.int64)[positions]
        counts = np.append(np.diff(self.matrix.indptr), 0)[positions]
        indptr = _running_total(counts)
        entries = np.repeat(starts - indptr[:-1], counts) + np.arange(indptr[-1])
        return replace(
            self,
            matrix=_csr(self.matrix.data[entries], self.matrix.indices[entries], indptr, self.n_items),
            user_values=users.values,
            user_texts=users.texts,
            hand_picked=self.hand_picked or hand_picked,
        )


def _marked(ratings: Ratings, *sources: Ratings) -> Ratings:
    """Ratings with every mark of those that they were made of."""
    marks: dict[str, Any] = {mark: any(getattr(each, mark) for each in sources) for mark in readers.MARKS}
    return replace(ratings, **marks)


def _usable_as_is(matrix: Any, domain: Domain) -> bool:
    """Whether no rule for bad rows would change the matrix, so that a copy of its arrays will do."""
    if matrix.format != "csr" or matrix.data.dtype != np.float32 or matrix.indices.dtype != np.int32:
        return False
    counts, data = np.diff(matrix.indptr), matrix.data
    return bool(
        counts.min(initial=1) > 0
        and counts.max(initial=0) <= domain.max_ratings_per_user
        and _ascending(matrix)
        # as Python floats: NumPy would compare in float32, where 0.3 rounds up
        and (len(data) == 0 or (float(data.min()) >= domain.low and float(data.max()) <= domain.high))
    )


def _ascending(matrix: Any) -> bool:
    """Whether items ascend within every row, none of which is empty; what SciPy notes of it may be stale."""
    ascending = matrix.indices[1:] > matrix.indices[:-1]
    ascending[matrix.indptr[1:-1] - 1] = True
    return bool(ascending.all())


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
    users: np.ndarray, items: np.ndarray, values: np.ndarray, n_users: int, n_items: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Usable entries sorted by user and item, the last of each pair in input order: items, values, counts."""
    usable = (users >= 0) & (items >= 0) & ~np.isnan(values)
    if not usable.all():
        users, items, values = users[usable], items[usable], values[usable]
    del usable
    n_entries = len(values)
    bits = n_entries.bit_length()
    cell = users.astype(np.int64)
    cell *= n_items
    cell += items
    del users, items
    if max(1, n_users * n_items).bit_length() + bits <= _WORD_BITS:  # (user, item, position) in one integer
        cell <<= bits
        for part in _parts(n_entries):
            cell[part] |= np.arange(part.start, part.stop)
        cell.sort()
        ordered = np.empty_like(values)
        for part in _parts(n_entries):
            ordered[part] = values[cell[part] & ((1 << bits) - 1)]
        cell >>= bits
    else:
        order = np.argsort(cell, kind="stable")
        cell, ordered = cell[order], values[order]
    last = np.append(cell[1:] != cell[:-1], True)[:n_entries]
    if not last.all():
        cell, ordered = cell[last], ordered[last]
    columns = np.empty(len(cell), dtype=np.int32)
    counts = np.zeros(n_users, dtype=np.int64)
    for part in _parts(len(cell)):
        rows, columns[part] = np.divmod(cell[part], n_items)
        if len(rows):
            first = int(rows[0])
            counts[first : int(rows[-1]) + 1] += np.bincount(rows - first)
    return columns, ordered, counts


def _parts(length: int, size: int = 1 << 20) -> list[slice]:
    """Slices that cover a long array, so that temporary arrays stay small."""
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def _within_cap(counts: np.ndarray, items: np.ndarray, texts: pa.Array, cap: int) -> np.ndarray:
    """Mark at most ``cap`` entries of each user, in the keyed order of her own items."""
    long_users = np.flatnonzero(counts > cap)
    base = np.zeros(len(counts), dtype=np.uint64)
    keys = text_keys(texts.take(pa.array(long_users)).to_pylist())
    base[long_users] = stream_base(keys, 0, "cap")
    return smallest_per_row(_running_total(counts), items, base, np.full(len(counts), cap))


def _running_total(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_items: int) -> sp.csr_array:
    indptr = indptr.astype(np.int32 if len(data) < 1 << 31 else np.int64)
    matrix = sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_items), copy=False)
    matrix.has_sorted_indices = True
    matrix.has_canonical_format = True
    return matrix


def _row_of_each(matrix: sp.csr_array) -> np.ndarray:
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def _take(values: np.ndarray | pa.Array, positions: np.ndarray) -> np.ndarray | pa.Array:
    return values[positions] if isinstance(values, np.ndarray) else values.take(pa.array(positions))


def _joined(first: np.ndarray | pa.Array, second: np.ndarray | pa.Array) -> np.ndarray | pa.Array:
    if isinstance(first, pa.Array) and isinstance(second, pa.Array) and first.type == second.type:
        return pa.concat_arrays([first, second])
    joined = np.empty(len(first) + len(second), dtype=object)
    for position, value in enumerate(given_ids(first) + given_ids(second)):
        joined[position] = value
    return joined
