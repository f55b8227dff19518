"""Columns of users, items, ratings and times in a table."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hushrec.data.ids import Encoded, encode_quantities, encode_ratings, join_ids
from hushrec.data.times import NO_TIME, encode_times, join_filled
from hushrec.errors import InputError

#: Names of columns, without case, blanks, dots, dashes and underscores. The first name here wins.
SYNONYMS = {
    role: tuple(words.split())
    for role, words in {
        "user": "user userid uid username customer customerid client clientid member memberid buyer buyerid"
        " account accountid reviewer reviewerid visitor visitorid shopper shopperid",
        "item": "item itemid iid movie movieid product productid sku productsku asin isbn bookid filmid"
        " trackid songid artistid albumid articleid gameid recipeid businessid parentasin stockcode skuid"
        " goodsid articlenumber ean gtin videoid newsid placeid animeid",
        "rating": "rating score value stars starrating ratingvalue userrating bookrating reviewrating"
        " reviewscore overall",
        "time": "timestamp time datetime date createdat ratedat unixreviewtime reviewtime reviewdate"
        " orderdate purchasedate invoicedate transactiondate ts eventtime eventtimestamp",
        "quantity": "quantity qty count amount units purchases purchased",
    }.items()
}
ROLES = tuple(SYNONYMS)
_PLURALS = {role: f"{role}s" for role in ROLES} | {"quantity": "quantities"}
#: Names of columns with a number for each like, of which 0 or less is none. The first name here wins.
_LIKES = (
    *SYNONYMS["rating"],
    *SYNONYMS["quantity"],
    *("label", "target", "feedback", "like", "liked", "click", "clicks", "clicked", "interaction", "weight"),
    *("plays", "playcount", "views"),
)
#: Columns that are read only where they are asked for.
_ON_REQUEST = ("time", "quantity")

#: Names of columns in an error, at most.
_LISTED = 20

#: Facts of `Ratings` that its tables keep.
MARKS = ("hand_picked", "by_position", "purchases")
#: Prefix of the key of a split; also a mark.
SPLIT = "split:"
MARKS_KEY = b"hushrec.ratings"


class Columns(NamedTuple):
    """Rows of a table: ids as read, later encoded users and positions of items (-1 = unknown).

    Ratings are float32, NaN where there is no number; quantities are those of `encode_quantities`.
    ``is_ordered``: the source fixes the order of the rows, so it may break ties of time. ``lines``: which
    lines of a text file became rows.
    """

    users: Any
    items: Any
    ratings: np.ndarray
    times: np.ndarray | None = None
    quantities: np.ndarray | None = None
    marks: tuple[str, ...] = ()
    is_ordered: bool = True
    lines: np.ndarray | None = None

    def where(self, kept: np.ndarray) -> Columns:
        users = replace(self.users, codes=self.users.codes[kept])
        times, quantities = (None if column is None else column[kept] for column in self[3:5])
        return Columns(users, self.items[kept], self.ratings[kept], times, quantities, *self[5:])


def one_below_another(parts: Sequence[Columns]) -> Columns:
    """Join rows with encoded users, and items that are all encoded or all positions."""
    if len(parts) == 1:
        return parts[0]
    users, items, ratings, times, quantities, marks, is_ordered, lines = zip(*parts, strict=True)
    lengths = list(map(len, ratings))
    return Columns(
        join_ids(users),
        join_ids(items) if isinstance(items[0], Encoded) else np.concatenate(items),
        np.concatenate(ratings),
        join_filled(times, lengths, NO_TIME),
        join_filled(quantities, lengths, 0),
        joined_marks(marks),
        all(is_ordered),
        None if any(line is None for line in lines) else np.concatenate(lines),
    )


def joined_marks(marks: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(marks)))


def fields_of(marks: Collection[str]) -> dict[str, Any]:
    splits = tuple(mark for mark in marks if mark.startswith(SPLIT))
    return {"splits": splits, **{mark: mark in marks for mark in MARKS}}


def columns_of(
    user: Any, item: Any, rating: Any = None, time: Any = None, quantity: Any = None, *, implicit: bool
) -> Columns:
    """There may be no ratings with ``implicit``; of those that are there, 0 or less is no like."""
    users, items = _sized(user), _sized(item)
    quantities = None if quantity is None else encode_quantities(quantity)
    if implicit:
        ratings = np.full(len(users), 1 if quantities is None else np.nan, dtype=np.float32)
        with contextlib.suppress(InputError):  # a column of a type without numbers
            is_like = True if rating is None else ~(encode_ratings(rating) <= 0)
            ratings = np.where(is_like, ratings, np.float32(np.nan))
    elif rating is None and quantities is not None:
        ratings = np.full(len(users), np.nan, dtype=np.float32)
    elif rating is None:
        raise InputError(
            "Ratings are missing; where only users and items are known, say that every row is a like",
            parameter="implicit",
            value=True,
        )
    else:
        ratings = encode_ratings(rating)
    times = None if time is None else encode_times(_sized(time))
    if len({len(column) for column in (users, items, ratings, times, quantities) if column is not None}) > 1:
        raise InputError("The columns of a table must have the same number of rows.")
    marks = () if quantities is None else ("purchases",)
    return Columns(users, items, ratings, times, quantities, marks)


class Several(dict[str, Any]):
    """Columns asked for in several tables. Each has users, items, and ratings or quantities.

    A name that a table lacks is another table's. ``found`` are the columns of the tables that were read.
    """

    def __init__(self, columns: Any, found: set[str] | None = None) -> None:
        super().__init__(_asked_columns(columns))
        self.found = set() if found is None else found

    def of(self, names: Sequence[Any], implicit: bool) -> dict[str, Any]:
        there = {*map(str, names)}
        self.found |= there
        asked = {role: name for role, name in self.items() if not _is_name(name) or str(name) in there}
        if "time" in self:
            asked.setdefault("time", True)
        words = {*map(plain_name, names)}
        has_ratings, has_quantities = (
            _is_name(asked.get(role)) or not words.isdisjoint(SYNONYMS[role])
            for role in ("rating", "quantity")
        )
        if not has_quantities:
            asked.pop("quantity", None)
        elif not has_ratings and not implicit:
            asked = {"quantity": True} | asked | {"rating": False}
        return asked

    def check(self) -> None:
        """Refuse a name that no table had."""
        for role, name in self.items():
            if _is_name(name) and str(name) not in self.found:
                raise InputError(
                    f"No table has a column named {name!r}; hushrec check lists the columns",
                    parameter="columns",
                    value={role: "NAME"},
                )


def find_columns(
    names: Sequence[Any], columns: Any, implicit: bool, private_look: bool = False
) -> dict[str, Any]:
    """Return the column of each role; only in a private look an error lists the names, which may be a row."""
    if not names:
        raise InputError("The table has no columns, which a text file names in its first line.")
    asked = columns.of(names, implicit) if isinstance(columns, Several) else _asked_columns(columns)
    chosen: dict[str, Any] = {}
    shown = names if private_look else ()
    words = {name: plain_name(name) for name in names}
    for role in ROLES:
        if asked.get(role, role not in _ON_REQUEST) in (None, False):
            continue
        if role == "rating" and implicit and isinstance(asked.get(role), bool | None):
            if not asked.get("quantity"):
                chosen |= _column_of_likes(words, asked.values())
            continue
        if role in asked and asked[role] is not True:
            matches = [name for name in names if name == asked[role] or name == str(asked[role])]
        else:
            word = next((word for word in SYNONYMS[role] if word in words.values()), None)
            matches = [name for name in names if words[name] == word]
        if len(matches) > 1 and len(set(map(str, matches))) == 1:
            raise InputError(f"The table has several columns named {str(matches[0])!r}; rename all but one.")
        if len(matches) > 1:
            raise _of_columns(f"has several columns for the {_PLURALS[role]}", role, shown)
        if not matches:
            raise _missing_column(role, asked, shown)
        if matches[0] in chosen.values():
            raise _of_columns(f"has one column for the {_PLURALS[role]} and for another role", role, shown)
        chosen[role] = matches[0]
    return chosen


def _column_of_likes(words: Mapping[Any, str], others: Collection[Any]) -> dict[str, Any]:
    names_of = {word: [name for name in words if words[name] == word] for word in _LIKES}
    names = next((names for names in names_of.values() if len(names) == 1), [])
    return {"rating": names[0]} if names and names[0] not in others else {}


def last_position(columns: Any) -> int:
    """Return the largest position asked for, from 1; 0 where columns have names."""
    asked = list(filter(_is_name, _asked_columns(columns).values()))
    if not asked or not all(str(name).isdecimal() for name in asked):
        return 0
    if min(map(int, asked)) < 1:
        raise InputError("Positions of columns count from 1.", parameter="columns")
    return max(map(int, asked))


def with_times(names: Sequence[Any], columns: Any) -> Any:
    """Ask for times too if one column has a usual name of them."""
    asked, words = _asked_columns(columns), [plain_name(name) for name in names]
    if (
        isinstance(columns, Several)
        or "time" in asked
        or sum(word in SYNONYMS["time"] for word in words) != 1
    ):
        return columns
    return asked | {"time": True}


def plain_name(name: Any) -> str:
    """Return a name as in `SYNONYMS`, without RecBole's type (``user_id:token``)."""
    return re.sub(r":(token|float)(_seq)?$|[\s_.-]", "", str(name).strip()).lower()


def _missing_column(role: str, asked: Mapping[str, Any], names: Collection[Any]) -> InputError:
    wanted = f"named {asked.get(role)!r}"
    if asked.get(role, True) is True:
        few = ", ".join(SYNONYMS[role][:6])
        wanted = f"for the {_PLURALS[role]}, which is looked for under names such as {few}"
    rest = "; where all rows are likes, say implicit=True (--implicit), or else name the column"
    return _of_columns(f"has no column {wanted}", role, names, asked.get(role), rest * (role == "rating"))


def _of_columns(
    what: str, role: str, names: Collection[Any], asked: Any = None, rest: str = ""
) -> InputError:
    there = those_there(names, asked) if names else "hushrec check lists its columns"
    return InputError(f"The table {what}; {there}{rest}", parameter="columns", value={role: "NAME"})


def those_there(names: Collection[Any], asked: Any = None) -> str:
    """Return the end of a sentence with the columns of a table, and the nearest to the name asked for."""
    known = {plain_name(name): str(name) for name in names}
    near = get_close_matches(plain_name(asked), known, 1) if isinstance(asked, str) else []
    listed = ", ".join([str(name) or "''" for name in names][:_LISTED]) + ", ..." * (len(names) > _LISTED)
    return f"there are: {listed or 'none'}" + "".join(f" (nearest: {known[name]})" for name in near)


def pick(names: list[Any], column: Callable[[Any], Any], columns: Any, implicit: bool) -> Columns:
    chosen = find_columns(names, columns, implicit)
    return columns_of(**{role: column(name) for role, name in chosen.items()}, implicit=implicit)


def with_purchases(schema: pa.Schema, columns: Any) -> Any:
    if "purchases" not in marks_of(schema):
        return columns
    asked = {"quantity": True} | _asked_columns(columns)
    return Several(asked, columns.found) if isinstance(columns, Several) else asked


def marks_of(schema: pa.Schema) -> tuple[str, ...]:
    words = (schema.metadata or {}).get(MARKS_KEY, b"").decode(errors="replace").split()
    return tuple(word for word in words if word in MARKS or word.startswith(SPLIT))


def _asked_columns(columns: Any) -> dict[str, Any]:
    if columns is None:
        return {}
    if isinstance(columns, Mapping) and set(columns) <= set(ROLES):
        return {role: name for role, name in columns.items() if name is not None}
    raise InputError("columns must be a dictionary such as {'user': NAME, 'item': NAME, 'rating': NAME}.")


def _is_name(name: Any) -> bool:
    return name is not None and type(name) is not bool


def _sized(column: Any) -> Any:
    if getattr(column, "ndim", 1) != 1:
        raise InputError(f"A column must have one dimension, not {column.ndim}.")
    return column if hasattr(column, "__len__") else list(column) if hasattr(column, "__iter__") else [column]
