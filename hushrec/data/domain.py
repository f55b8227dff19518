"""The public side of a data set, declared before a private row is read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from hushrec.checks import check_count, check_flags, number, plural, shown
from hushrec.data.features import ItemTable, read_item_features
from hushrec.data.id_list import read_id_list
from hushrec.data.ids import NO_TEXT, canonical_text, lookup, why_no_id
from hushrec.data.words import Neighbours
from hushrec.errors import InputError

#: More than the most active user of MovieLens 100K, 1M, 10M and 20M has rated (9,254).
DEFAULT_MAX_RATINGS_PER_USER = 10_000

#: Squares of ratings and sums of them stay within float64, differences within float32.
_LARGEST_RATING = 1e30

_INTEGERS = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))

#: The range of likes, which are 1.
_LIKES = (0.0, 1.0)

HOW_TO_DECLARE = (
    "declare the public catalogue and rating range with Domain(items, rating_range=(low, high)), "
    "or on the command line with --catalogue FILE --rating-range LOW HIGH"
)


@dataclass(frozen=True, kw_only=False)
class Domain:
    """The declared, public side of a data set: which items exist, and how ratings are bounded.

    It must not come from the ratings: the set of rated items and the largest rating are private.

    Parameters
    ----------
    items : iterable of ids
        The catalogue, in the order that numbers the items: text, integers, UUIDs, bytes. Two ids that read
        the same (7 and "7", see `hushrec.data.ids.canonical_text`) are a duplicate.
    rating_range : (float, float)
        The lowest and the highest rating; a rating outside is dropped. None with ``likes``.
    max_ratings_per_user : int
        Cap on the ratings of a user; of more, a random sample counts.
    item_features : array of shape (n_items, n_features), table or path, or list of these, optional
        Public facts on the items, see `hushrec.data.features.read_item_features`; then an array, NaN where
        missing, or None if there are only texts. No model file holds them.
    likes : bool
        Every row of a user is a like and counts as 1, but for rows with a value of 0 or less.
    item_type : str
        Type of integer ids in tables of lists, such as "int32"; taken from ``items`` if that has a type.

    Raises
    ------
    InputError
        The catalogue is empty, or holds a duplicate or an empty id; range, cap or features are invalid.

    Examples
    --------
    >>> domain = hushrec.Domain(["matrix", "alien", "titanic"], rating_range=(1, 5))
    >>> domain.n_items, domain.midpoint, domain.like_threshold
    (3, 3.0, 4.0)
    >>> hushrec.Domain(["matrix", "alien"], likes=True).rating_range
    (0.0, 1.0)
    """

    items: Sequence[Any]
    rating_range: tuple[float, float] | None = None
    max_ratings_per_user: int = DEFAULT_MAX_RATINGS_PER_USER
    item_features: Any = field(default=None, repr=False, compare=False)
    likes: bool = False
    _item_table: ItemTable | None = field(default=None, repr=False, compare=False)
    item_type: str = field(default="", repr=False, compare=False)
    _texts: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_flags(likes=self.likes)
        items = _as_tuple(self.items)
        if not isinstance(self.items, tuple):
            object.__setattr__(self, "item_type", _integer_type(self.items))
        object.__setattr__(self, "items", items)
        object.__setattr__(self, "rating_range", _check_range(self.rating_range, self.likes))
        cap = check_count("max_ratings_per_user", self.max_ratings_per_user)
        object.__setattr__(self, "max_ratings_per_user", cap)
        object.__setattr__(self, "_texts", _check_catalogue(items))
        self._read_features()

    def _read_features(self) -> None:
        """Read the item features, unless a replaced domain had them already."""
        table = self._item_table
        if table and table.features is self.item_features and table.texts.equals(self._texts):
            return
        table = None if self.item_features is None else read_item_features(self.item_features, self._texts)
        object.__setattr__(self, "_item_table", table)
        if table is not None:
            object.__setattr__(self, "item_features", table.features)

    @property
    def feature_tables(self) -> list[tuple[tuple[str, ...], np.ndarray]]:
        """Names of the columns and features of each group."""
        if self._item_table is None or self.item_features is None:
            return []
        ends = np.cumsum(self._item_table.widths)[:-1]
        return list(zip(self._item_table.names, np.split(self.item_features, ends, axis=1), strict=True))

    @property
    def item_words(self) -> Neighbours | None:
        """The nearest items of each item by the words of the item features; None without words."""
        return self._item_table.words if self._item_table else None

    @property
    def item_table_digest(self) -> str:
        """SHA-256 (hexadecimal) of the item features and words; empty without any."""
        return self._item_table.digest if self._item_table else ""

    @property
    def column_uses(self) -> tuple[tuple[str, str], ...]:
        """Names of the columns of the item features, with their use."""
        return self._item_table.uses if self._item_table else ()

    def __repr__(self) -> str:
        what = "likes" if self.likes else f"rating_range=({self.low:g}, {self.high:g})"
        return f"Domain({plural(self.n_items, 'item')}, {what})"

    def first(self, count: int) -> Domain:
        """Return the domain of the first items."""
        table = self._item_table
        if count >= self.n_items or table is None:
            return replace(self, items=self.items[:count])
        features = None if table.features is None else table.features[:count]
        words = table.words and table.words.first(count)
        table = replace(table, texts=table.texts[:count], features=features, words=words)
        return replace(self, items=self.items[:count], item_features=features, _item_table=table)

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue."""
        return len(self.items)

    @property
    def low(self) -> float:
        """Lowest rating."""
        return self.rating_range[0]  # type: ignore[index]

    @property
    def high(self) -> float:
        """Highest rating."""
        return self.rating_range[1]  # type: ignore[index]

    @property
    def midpoint(self) -> float:
        """The middle of the rating range."""
        return self.low + (self.high - self.low) / 2

    @property
    def half_width(self) -> float:
        """Half the width of the rating range."""
        return (self.high - self.low) / 2

    @property
    def like_threshold(self) -> float | None:
        """Three quarters up the range, 4 on 1 to 5; None for likes."""
        return None if self.likes else self.low + 0.75 * (self.high - self.low)

    @property
    def item_texts(self) -> pa.Array:
        """The canonical text of each item id (an Arrow array)."""
        return self._texts

    @cached_property
    def text_list(self) -> list[str]:
        """As a list."""
        return self._texts.to_pylist()

    @cached_property
    def item_column(self) -> pa.Array:
        """Return the ids as an Arrow array of their type, or as text for several types."""
        try:
            column = pa.array(list(self.items))
            is_narrow = self.item_type in _INTEGERS and column.type == pa.int64()
            return column.cast(self.item_type) if is_narrow else column
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return self._texts

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) of catalogue, range and cap."""
        public = [self._texts.to_pylist(), self.low, self.high, self.max_ratings_per_user]
        public += ["likes"] if self.likes else []
        return hashlib.sha256(json.dumps(public).encode()).hexdigest()

    def index(self, ids: Any) -> np.ndarray:
        """Return positions (int64) of item ids; -1 for an id that is not there."""
        return lookup(ids, self._texts)

    def position(self, item: Any) -> int:
        """Return the position of one item id, or -1, faster than `index`."""
        if type(item) is int and item.bit_length() < 64:
            return self._places.get(str(item), -1)
        if type(item) is str and item[:1] != NO_TEXT:  # most are canonical already
            place = self._places.get(item)
            if place is not None:
                return place
        return self._places.get(canonical_text(item), -1)

    @cached_property
    def _places(self) -> dict[str | None, int]:
        return {text: place for place, text in enumerate(self.text_list)}

    @classmethod
    def read_catalogue(cls, path: str | os.PathLike[str]) -> list[str]:
        """Read the item ids of a UTF-8 text file, one a line, in double quotes if they hold a delimiter.

        Raises
        ------
        InputError
            The file cannot be read, holds no id, is a table, or has a header line.
        """
        return read_id_list(path)


def check_domain(domain: Any) -> Domain:
    if not isinstance(domain, Domain):
        raise InputError(f"A domain is missing; {HOW_TO_DECLARE}.")
    return domain


def _as_tuple(items: Any) -> tuple[Any, ...]:
    if items is None:
        raise InputError(f"The item catalogue is missing; {HOW_TO_DECLARE}.")
    if isinstance(items, Mapping) or hasattr(items, "columns"):
        raise InputError(
            f"The item catalogue must be a sequence of ids, not a {type(items).__name__}; pass the column"
            " that holds them, as in table['item']."
        )
    if isinstance(items, (str, bytes)) or not (
        isinstance(items, Iterable) or hasattr(items, "__arrow_c_array__")
    ):
        raise InputError(
            "The item catalogue must be a sequence of ids; read a file with Domain.read_catalogue."
        )
    if isinstance(items, tuple):
        return items
    try:
        if isinstance(items, (pa.Array, pa.ChunkedArray)):
            return tuple(items.to_pylist())
        return tuple(items.tolist() if hasattr(items, "tolist") else items)
    except (TypeError, ValueError, OverflowError):  # also Unicode errors
        raise InputError(
            "The item catalogue holds values that cannot be read as ids; pass one column of UTF-8 text or"
            " integers."
        ) from None


def _integer_type(items: Any) -> str:
    """Return the name of a column's integer type; empty for other columns and sequences."""
    kind = str(getattr(items, "dtype", getattr(items, "type", ""))).partition("[")[0].lower()
    return kind if kind in _INTEGERS else ""


def _check_range(rating_range: Any, likes: bool) -> tuple[float, float]:
    if likes:
        if rating_range is not None and _check_range(rating_range, False) != _LIKES:
            raise InputError("Likes have no rating range; leave it out.", parameter="rating_range")
        return _LIKES
    if rating_range is None:
        raise InputError(f"The rating range is missing; {HOW_TO_DECLARE}; likes have none: likes=True.")
    try:
        low, high = rating_range
    except (TypeError, ValueError):
        raise InputError(
            f"rating_range must be two numbers (low, high), not {shown(rating_range)}.",
            parameter="rating_range",
        ) from None
    low, high = (number("rating_range", end, "pass two numbers (low, high)") for end in (low, high))
    if not (abs(low) <= _LARGEST_RATING and abs(high) <= _LARGEST_RATING):  # nor NaN
        raise InputError(
            f"rating_range must be two numbers between -{_LARGEST_RATING:g} and {_LARGEST_RATING:g}, not "
            f"({low:g}, {high:g}); pass larger ratings in a larger unit.",
            parameter="rating_range",
        )
    if not np.float32(low) < np.float32(high):
        raise InputError(
            f"rating_range must increase from low to high, not ({low:g}, {high:g}).", parameter="rating_range"
        )
    return low, high


def _check_catalogue(items: tuple[Any, ...]) -> pa.Array:
    if not items:
        raise InputError("The item catalogue is empty; declare at least one item id.")
    if len(items) >= 1 << 31:
        raise InputError("The item catalogue must hold fewer than 2**31 ids.")
    texts = [canonical_text(item) for item in items]
    seen: dict[str, int] = {}
    for position, text in enumerate(texts):
        item = shown(items[position])
        if text is None:
            raise InputError(f"Item {position + 1} of the catalogue, {item}, {why_no_id(items[position])}.")
        if (first := seen.setdefault(text, position)) != position:
            which = f"items {first + 1} and {position + 1}"
            raise InputError(f"The catalogue holds the id {item} twice ({which}); list every item once.")
    return pa.array(texts, pa.large_string())
