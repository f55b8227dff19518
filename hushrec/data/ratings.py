"""The private rows: who rated what, and how."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from hushrec.data.columns import MARKS, MARKS_KEY, Columns, fields_of, joined_marks, one_below_another
from hushrec.data.domain import Domain, check_domain
from hushrec.data.ids import UNIT, Encoded, encode_ids, encode_ratings, given_ids, lookup, places, take
from hushrec.data.keys import text_keys
from hushrec.data.ratings_builder import build, csr, one_row, read_rows, running_total
from hushrec.data.store_files import is_store, verified_blocks
from hushrec.data.times import NO_TIME, join_filled
from hushrec.errors import InputError

if TYPE_CHECKING:
    from hushrec.data.preview import Preview


OTHER_DOMAIN = "These ratings were read over another domain; read them again over this one."
#: The ids, given and canonical, of a user who is alone.
_ONE_USER = np.array(["user"], dtype=object), pa.array(["user"], pa.large_string())


@dataclass(frozen=True, eq=False, repr=False)
class Ratings:
    """Ratings of users for the items of a declared `Domain`: private.

    Build it with `from_any` or, for one user who is to be served, with `of_user`.

    Attributes
    ----------
    domain : Domain
        Public.
    matrix : scipy.sparse.csr_array, shape (n_users, n_items), float32 data, int32 indices
        Private. Items ascend within a user and none occurs twice; a stored zero is a rating of zero.
    user_values, user_texts : arrays with one entry per user
        Private. The ids as given and in canonical form.
    times : ndarray of int64, or None
        Private, in the order of ``matrix.data``; `hushrec.data.times.NO_TIME` without a usable time
        (docs/guides/time.md).
    hand_picked : bool
        Public. Whether a rule that may look at several users chose users or ratings (`where`, `rows`,
        `for_users`). A private training then refuses (docs/understand/sharp-edges.md).
    by_position : bool
        Public. Whether user ids are row numbers (SciPy matrices without ids). A user is then removed by
        emptying their row; the number of rows is public.
    purchases : bool
        Public. Whether quantities were read. A rating of NaN is then a purchase without a rating.
    splits : tuple of str
        Public. Purpose and seed of the splits that made this part.

    Notes
    -----
    Unusable rows are dropped silently, so no message reveals them:

    * a rating that is no number, NaN, infinite or outside the declared range, a missing item or user id, and
      an item that is not in the catalogue: the row is dropped;
    * an id, a rating or a time of more than 1,024 bytes is missing;
    * several ratings of one item by one user: the latest stays, and the last of the input where times are
      equal or missing (the largest rating in a stream of Arrow blocks, which has no order); a row without a
      time is before all others;
    * quantities are added up for each user and item; an item without a rating stays if the sum is above 0;
    * more than ``domain.max_ratings_per_user`` ratings: a sample stays, by hashes of the user's id and items;
    * a line of a text file with the wrong number of fields, or of more than 65,536 bytes: skipped.

    A user without any usable row does not exist. Ids are compared by `hushrec.data.ids.canonical_text`. An
    integer of 2^53 or more in NumPy, or in pandas with a NumPy type, is not an id, since one missing id
    makes rounded floats of the column. Read such ids as text (``astype("string")``), as pandas' ``Int64`` or
    ``int64[pyarrow]``, or from Arrow, polars or Parquet.

    Examples
    --------
    >>> domain = hushrec.Domain(["matrix", "alien"], rating_range=(1, 5))
    >>> table = {"user": ["ann", "ann", "bob"], "item": ["matrix", "alien", "alien"], "rating": [5, 4, 2]}
    >>> ratings = hushrec.Ratings.from_any(table, domain)
    >>> ratings.n_users, ratings.n_ratings                       # private: the curator's own
    (2, 3)
    """

    domain: Domain
    matrix: sp.csr_array
    user_values: np.ndarray | pa.Array
    user_texts: pa.Array
    times: np.ndarray | None = None
    hand_picked: bool = False
    by_position: bool = False
    purchases: bool = False
    splits: tuple[str, ...] = ()

    # ---- building

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
        """Read ratings from any supported source.

        Parameters
        ----------
        source : path, table, tuple or matrix
            * a Parquet, CSV or TSV file (text may be compressed), a file of MovieLens; a folder of
              tables or a pattern such as ``"2024-*.parquet"``, read in the order of the names;
            * a pandas or polars data frame, an Arrow table, a mapping from names to columns;
            * a stream of Arrow blocks: a record batch reader, or the result of a query in DuckDB or ADBC;
            * a tuple ``(users, items, ratings)`` or ``(users, items, ratings, times)`` of columns;
            * a SciPy sparse matrix of users by items in the order of the catalogue, or ``(users, matrix)``
              with an id for each row. A stored zero is a rating of zero, and no like;
            * a list of these: tables of one data set. Each has a column of users, one of items, and one of
              ratings or of quantities (orders and reviews, for example);
            * a `Store` or its path, or `Ratings`, over the same domain.
        domain : Domain
        columns : dict, optional
            Names of the columns of "user", "item", "rating", "time" and "quantity". Usual names (userId,
            customer_id, movieId, SKU, stars, ...) are found without it. Times and quantities are read only if
            asked for: ``{"time": True}`` finds timestamp, date and the like. Positions from 1 read a text
            file without a header.
        format : str, optional
            "parquet", "csv", "tsv", "movielens-100k" (``u.data``: tabs, no header), "movielens-dat" (fields
            separated by ``::``), or the delimiter of a table. By default it follows from the file's name, and
            the delimiter of a CSV file from its header.
        implicit : bool
            Every row is a like, a rating of 1; a domain of likes implies it. A row, or an entry of a matrix,
            with a value of 0 or less is no like. The column of values is named in ``columns`` or has a usual
            name (rating, quantity, label, clicks, ...).

        Raises
        ------
        InputError
            The domain is missing, the source cannot be read as a table, or a column is missing.
        """
        check_domain(domain)
        if isinstance(source, Ratings):
            if source.domain.fingerprint != domain.fingerprint:
                raise InputError(OTHER_DOMAIN)
            return source if source.domain is domain else replace(source, domain=domain)
        folder = getattr(source, "path", source)  # of a store
        if is_store(folder):
            if columns is not None or format is not None:
                raise InputError("columns and format are for tables; a store knows its own, leave them out.")
            blocks = verified_blocks(Path(folder).absolute(), domain)
            return joined(domain, [cls(domain, *rows) for rows in blocks])
        return cls(domain, *read_rows(source, domain, columns, format, implicit or domain.likes))

    @staticmethod
    def check(
        source: Any,
        domain: Domain,
        *,
        columns: Mapping[str, Any] | None = None,
        format: str | None = None,
        implicit: bool = False,
    ) -> Preview:
        """Preview what becomes of each row of a source, with the parameters of `from_any`. Private."""
        from hushrec.data.preview import preview

        return preview(source, check_domain(domain), columns, format, implicit)

    @classmethod
    def of_user(cls, ratings: Any, domain: Domain, *, purchases: bool = False) -> Ratings:
        """Read the ratings of one user who is to be served: always one row, which may be empty.

        Parameters
        ----------
        ratings : mapping from item to rating, or sequence of (item, rating) pairs; item ids for likes
        domain : Domain
        """
        check_domain(domain)
        try:
            pairs = list(ratings.items() if isinstance(ratings, Mapping) else ratings)
            if domain.likes:
                pairs = [pair[:2] if isinstance(pair, tuple) else (pair, 1.0) for pair in pairs]
            items, values = [item for item, _ in pairs], [rating for _, rating in pairs]
        except (TypeError, ValueError):
            raise InputError(
                "A user's ratings must be a mapping from item to rating, or pairs of both."
            ) from None
        cells, places = encode_ratings(values), [domain.position(item) for item in items]
        if domain.likes:
            cells = np.where(cells <= 0, np.float32(np.nan), np.float32(1))
        is_bought = purchases and any(value is None for value in values)
        if is_bought or len(items) > domain.max_ratings_per_user:  # perhaps a sample of them
            users = Encoded(np.zeros(len(items), np.int32), *_ONE_USER)
            quantities = UNIT * np.array([value is None for value in values]) if is_bought else None
            marks = ("purchases",) * is_bought
            columns = Columns(users, np.array(places, np.int32), cells, None, quantities, marks)
            rows = build(domain, columns)
            if rows.matrix.shape[0]:
                return cls(domain, *rows)
        return cls(domain, one_row(domain, places, cells), *_ONE_USER)

    # ---- looking

    def __repr__(self) -> str:
        return f"Ratings(private rows over {self.domain!r})"

    @property
    def n_users(self) -> int:
        """Number of rows. Private."""
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
        """The user ids as given: an integer array, or objects. Private."""
        if isinstance(self.user_values, pa.Array) and pa.types.is_integer(self.user_values.type):
            return self.user_values.to_numpy(zero_copy_only=False)
        return np.fromiter(given_ids(self.user_values), object)

    @property
    def user_column(self) -> pa.Array:
        """The user ids in the type of their column, or as text if each cell has a type. Private."""
        return self.user_values if isinstance(self.user_values, pa.Array) else self.user_texts

    @cached_property
    def user_keys(self) -> np.ndarray:
        """A hash (uint64) of each user's id, for random draws."""
        return text_keys(self.user_texts.to_pylist())

    @property
    def marks(self) -> tuple[str, ...]:
        """The names of the fields above that are true, and the splits. Public."""
        return (*(mark for mark in MARKS if getattr(self, mark)), *self.splits)

    @property
    def timed(self) -> bool:
        """Whether they were read with times. Public."""
        return self.times is not None

    @cached_property
    def any_time(self) -> bool:
        """Whether a rating has a time that could be read. Private."""
        return self.times is not None and bool((self.times != NO_TIME).any())

    @cached_property
    def users_differ(self) -> bool:
        """Whether every row is another user's, as training needs."""
        return len(self.user_texts.unique()) == self.n_users

    @cached_property
    def transposed(self) -> sp.csr_array:
        """The matrix with items as rows, in CSR form; computed once."""
        return self.matrix.T.tocsr()

    def user_index(self, ids: Any) -> np.ndarray:
        """Return the row (int64) of each user id, or of each user of other ratings; -1 if absent."""
        if isinstance(ids, Ratings):
            return places(ids.user_texts, self.user_texts).astype(np.int64)
        return lookup(ids, self.user_texts)

    def to_arrow(self) -> pa.Table:
        """Return a table for `from_any` of user, item, rating and, if known, time. Private.

        Likes have no column of ratings, so no model of ratings reads them as the rating 1. The metadata keep
        the marks; pandas, polars and CSV lose them.
        """
        table = {
            "user": self.user_column.take(pa.array(_row_of_each(self.matrix))),
            "item": self.domain.item_column.take(pa.array(self.matrix.indices)),
        }
        is_unrated = np.isnan(self.matrix.data)
        if not self.domain.likes:
            table["rating"] = pa.array(self.matrix.data, mask=is_unrated)
        if self.purchases:
            table["quantity"] = pa.array(np.where(is_unrated | self.domain.likes, np.float32(1), 0))
        if self.times is not None:
            table["time"] = pa.array(self.times, mask=self.times == NO_TIME)
        return pa.table(table, metadata={MARKS_KEY: " ".join(self.marks)})

    # ---- selecting

    def rows(self, selection: Any, *, keyed: bool = False) -> Ratings:
        """Return the chosen rows, in the order asked for.

        Parameters
        ----------
        selection : slice, mask of bool or row numbers
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
            raise InputError("A row number occurs twice; pass each row once.")
        users = Encoded(chosen, take(self.user_values, chosen), take(self.user_texts, chosen))
        return self._at(chosen, users, hand_picked=not keyed)

    def for_users(self, ids: Any) -> Ratings:
        """Return one row for each id, in that order; the result is ``hand_picked``.

        The row of a user who is absent is empty. A warning says if all are absent.
        """
        wanted = encode_ids(ids, exact=True)
        if len(wanted.codes) != len(wanted.texts) or (wanted.codes < 0).any():
            raise InputError("User ids must be unique and not missing; pass each id once.")
        positions = places(wanted.texts, self.user_texts)
        if len(positions) and (positions < 0).all():
            warnings.warn(
                "None of these users has a rating here, so all their rows are empty; pass ids as they are"
                " written in the ratings.",
                stacklevel=2,
            )
        return self._at(positions, wanted, hand_picked=True)

    def aligned_to(self, other: Ratings) -> Ratings:
        """Return the rows of the other's users; empty for users who are not here."""
        users = Encoded(np.arange(other.n_users), other.user_values, other.user_texts)
        return marked(self._at(places(other.user_texts, self.user_texts), users), self, other)

    def where(self, mask: np.ndarray, *, drop_empty: bool = True, keyed: bool = False) -> Ratings:
        """Return the ratings for which the mask is true.

        Parameters
        ----------
        mask : ndarray of bool, in the order of ``matrix.data``
        drop_empty : bool
            Drop users who are left without a rating.
        keyed : bool
            Each user's part of the mask was computed from that user's rows, the id and public values only.
            Without it the result is ``hand_picked``.
        """
        counts = np.diff(running_total(mask)[self.matrix.indptr])
        users = Encoded(np.arange(self.n_users), self.user_values, self.user_texts)
        if drop_empty:
            present = np.flatnonzero(counts)
            users = Encoded(present, take(self.user_values, present), take(self.user_texts, present))
            counts = counts[present]
        return self._with(mask, counts, users, not keyed)

    def age(self) -> np.ndarray:
        """Return the number of later ratings of the same user, in the order of ``matrix.data``. Private.

        Ratings of one time have one age.
        """
        if self.times is None and self.n_ratings:
            raise InputError(
                "The order of these ratings is not known: read them with their times, as in"
                " Ratings.from_any(table, domain, columns={'time': True}); prepare a store with times=True"
                " (--times)."
            )
        users, age = _row_of_each(self.matrix), np.empty(self.n_ratings, np.int64)
        times = np.zeros(0) if self.times is None else self.times
        order = np.lexsort((times, users))[::-1]  # the latest first
        users, times = users[order], times[order]
        is_new = (np.diff(users, prepend=-1) != 0) | (np.diff(times, prepend=0) != 0)
        place = np.maximum.accumulate(is_new * np.arange(self.n_ratings))
        age[order] = place - (self.n_ratings - self.matrix.indptr[users + 1])
        return age

    def liked(self, threshold: float | None) -> Ratings:
        """Return purchases and ratings from a threshold up (None: all), with a row for each user."""
        if threshold is None:
            return self
        is_liked = ~(self.matrix.data < np.float32(threshold))  # NaN is not below
        return self.where(is_liked, drop_empty=False, keyed=True)

    def starred(self) -> Ratings:
        """Return the ratings without purchases that have none; a row for each user."""
        if not self.purchases:
            return self
        return self.where(~np.isnan(self.matrix.data), drop_empty=False, keyed=True)

    def union(self, other: Ratings) -> Ratings:
        """Return the ratings of both, as if the other's had been read last."""
        if other.domain.fingerprint != self.domain.fingerprint:
            raise InputError("Only ratings over the same domain can be combined; read both with one domain.")
        return Ratings(self.domain, *build(self.domain, one_below_another([self.columns(), other.columns()])))

    def columns(self) -> Columns:
        """Return the rows to be read again; a purchase without a rating gets a quantity."""
        users = Encoded(_row_of_each(self.matrix), self.user_values, self.user_texts)
        data = self.matrix.data.copy()
        quantities = UNIT * np.isnan(data).astype(np.int64) if self.purchases else None
        return Columns(users, self.matrix.indices, data, self.times, quantities, self.marks)

    def rated(self) -> Ratings:
        """Return the users who have a rating."""
        if np.diff(self.matrix.indptr).all():
            return self
        return self.where(np.ones(self.n_ratings, dtype=bool), keyed=True)

    def _at(self, positions: np.ndarray, users: Encoded, hand_picked: bool = False) -> Ratings:
        starts = np.append(self.matrix.indptr[:-1], 0).astype(np.int64)[positions]
        counts = np.append(np.diff(self.matrix.indptr), 0)[positions]
        ends = running_total(counts)
        entries = np.repeat(starts - ends[:-1], counts) + np.arange(ends[-1])
        return self._with(entries, counts, users, hand_picked)

    def _with(self, entries: np.ndarray, counts: np.ndarray, users: Encoded, hand_picked: bool) -> Ratings:
        data, indices = self.matrix.data[entries], self.matrix.indices[entries]
        return replace(
            self,
            matrix=csr(data, indices, running_total(counts), self.n_items),
            user_values=users.values,
            user_texts=users.texts,
            times=None if self.times is None else self.times[entries],
            hand_picked=self.hand_picked or hand_picked,
        )


def marked(ratings: Ratings, *sources: Ratings) -> Ratings:
    """Return ratings with every mark of any source."""
    return replace(ratings, **fields_of(joined_marks(source.marks for source in sources)))


def of_nobody(domain: Domain) -> Ratings:
    matrix = sp.csr_array((0, domain.n_items), dtype=np.float32)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return Ratings(domain, matrix, np.array([], dtype=object), pa.array([], pa.large_string()))


def made_up(domain: Domain) -> Ratings:
    """Return ratings of 64 users of two tastes, the same on every machine."""
    users = np.repeat(np.arange(64), 40)
    drawn = np.random.default_rng(0).integers(0, domain.n_items, (users.size, 3))
    places = drawn.min(axis=1)  # low places are popular
    agrees = (places + users) % 2 == 0
    if domain.likes:
        users, places, agrees = users[agrees], places[agrees], agrees[agrees]
    ratings = np.where(agrees, domain.high, domain.low)
    items = [domain.items[place] for place in places]
    return Ratings.from_any((users, items, ratings, np.arange(len(items))), domain)


def joined(domain: Domain, parts: Sequence[Ratings]) -> Ratings:
    """Join the ratings of different users over one domain."""
    if not parts:
        return of_nobody(domain)
    if len(parts) == 1:
        return parts[0]
    lengths = np.concatenate([np.diff(part.matrix.indptr) for part in parts])
    data = np.concatenate([part.matrix.data for part in parts])
    indices = np.concatenate([part.matrix.indices for part in parts])
    users = pa.concat_arrays([part.user_column for part in parts])
    texts = pa.concat_arrays([part.user_texts for part in parts])
    times = join_filled([part.times for part in parts], [part.n_ratings for part in parts], NO_TIME)
    matrix = csr(data, indices, running_total(lengths), domain.n_items)
    return marked(Ratings(domain, matrix, users, texts, times), *parts)


def _row_of_each(matrix: sp.csr_array) -> np.ndarray:
    return np.repeat(np.arange(matrix.shape[0], dtype=np.int32), np.diff(matrix.indptr))
