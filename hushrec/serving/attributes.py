"""A public table of items, and conditions on its columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushrec.data import Domain
from hushrec.data.features import read_item_table
from hushrec.errors import InputError

#: A longer condition, or one with more parentheses in each other, is refused.
_LONGEST, _DEEPEST = 2000, 50
#: Columns that name an item for people, the first that there is.
_TITLES = ("title", "name")
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:(?P<number>-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"""
    r"""|(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")|`(?P<name>[^`]+)`|(?P<word>[A-Za-z_][A-Za-z_0-9]*)"""
    r"""|(?P<sign><=|>=|!=|<>|==|[=<>(),]))"""
)
_COMPARED = {
    "=": pc.equal, "==": pc.equal, "!=": pc.not_equal, "<>": pc.not_equal,
    "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_WORDS = ("and", "or", "not", "in", "is", "null", "true", "false")


@dataclass(frozen=True, eq=False)
class Attributes:
    """A public table of items, in the order of a model's catalogue; null where it says nothing of an item.

    Attributes
    ----------
    columns : mapping of str to Arrow array
        Numbers are float64, truth values 1 and 0, dates and times their ISO text.

    Examples
    --------
    >>> domain = hushrec.Domain(["matrix", "alien"], rating_range=(1, 5))
    >>> table = {"item": ["alien", "matrix"], "title": ["Alien", "The Matrix"], "price": [4.5, None]}
    >>> attributes = hushrec.serving.Attributes.read(table, domain)
    >>> attributes.titles
    ['The Matrix', 'Alien']
    >>> attributes.matching("price < 5").tolist()
    [False, True]
    """

    columns: Mapping[str, pa.Array]

    @classmethod
    def read(cls, source: Any, domain: Domain, titles: Any = None) -> Attributes:
        """Read a public table of items.

        Parameters
        ----------
        source : data frame, Arrow table, mapping of columns, or path of a CSV or Parquet file; or None
            One column holds item ids (named item, item_id, movieId, id or the like); items that the catalogue
            lacks are left out.
        domain : Domain
            The model's.
        titles : the same, optional
            Another table, whose column title or name is taken for the titles.

        Raises
        ------
        InputError
            One of them is no such table, an id occurs twice, or there is no title.
        """
        found = (
            source if isinstance(source, Attributes) else cls({} if source is None else _read(source, domain))
        )
        if titles is None:
            return found
        named = cls(_read(titles, domain, "titles"))
        if named.title_column is None:
            raise InputError("Titles need a column of texts named title or name, beside the item ids.")
        return cls({**found.columns, _TITLES[0]: named.title_column})

    @property
    def title_column(self) -> pa.Array | None:
        """Titles of the items, from the column title or name."""
        held = [self.columns[name] for name in _TITLES if name in self.columns]
        return next((each for each in held if pa.types.is_large_string(each.type)), None)

    @property
    def titles(self) -> list[str | None] | None:
        """The same as a list; None where there is none."""
        return None if self.title_column is None else self.title_column.to_pylist()

    def titles_json(self, domain: Domain) -> bytes | None:
        """Titles by item as the page reads them."""
        if self.titles is None:
            return None
        named = {text: title for text, title in zip(domain.text_list, self.titles) if title is not None}
        return json.dumps(named, ensure_ascii=False).encode(errors="backslashreplace")

    def matching(self, condition: str) -> NDArray[np.bool_]:
        """Return which items a condition is true of; one that says nothing is not, as in SQL."""
        found = _Condition(condition, self).read()
        rows = len(next(iter(self.columns.values()), ()))
        if isinstance(found, pa.Scalar):
            return np.full(rows, found.as_py() is True)
        return pc.fill_null(found, False).to_numpy(zero_copy_only=False)

    def column(self, name: str) -> pa.Array:
        """One column by its name; refused with the names that there are."""
        if name not in self.columns:
            known = ", ".join(self.columns) or "none"
            raise InputError(f"There is no column {name!r} in the attributes; there are: {known}.")
        found = self.columns[name]
        if not (pa.types.is_float64(found.type) or pa.types.is_large_string(found.type)):
            raise InputError(
                f"Column {name!r} of the attributes holds {found.type}; rules compare numbers, truth values,"
                " texts and dates."
            )
        return found


def titled_page(page: bytes) -> bytes:
    """The page's HTML, told that there are titles beside it."""
    return page.replace(b'data-titles=""', b'data-titles="titles.json"')


def _read(source: Any, domain: Domain, what: str = "attributes") -> dict[str, pa.Array]:
    """The columns of a table but for its ids, in the order of the catalogue."""
    ids, table, places = read_item_table(source, domain.item_texts, what)
    if (places < 0).all():
        raise InputError(
            f"No item of the catalogue is in the {what}; check that the table's ids are written as there."
        )
    order = np.full(domain.n_items, -1)
    order[places[places >= 0]] = np.flatnonzero(places >= 0)
    taken = pa.array(order, mask=order < 0)
    named = enumerate(table.column_names)
    return {name: _plain(table.column(at).take(taken)) for at, name in named if at != ids}


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """Numbers as float64 without NaN, texts and dates as texts; what is neither as it is."""
    kind, found = (
        column.type,
        pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type),
    )
    if pa.types.is_dictionary(kind):
        return _plain(pa.chunked_array([found.dictionary_decode()]))
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return found.cast(pa.uint8()).cast(pa.float64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = found.cast(pa.float64(), safe=False)
        return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
    if pa.types.is_temporal(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = found.cast(pa.large_string())  # an empty one says nothing
        return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.large_string()), texts)
    return found


class _Condition:
    """Reads a condition and computes it as it goes: true, false or null of each item."""

    def __init__(self, text: str, attributes: Attributes) -> None:
        if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
            raise InputError(
                f'A condition is a text of at most {_LONGEST} letters, such as "in_stock and price < 50".'
            )
        self._text, self._attributes, self._depth, self._began, end = text, attributes, 0, 0, 0
        self._tokens: list[tuple[str, str, int]] = []
        while text[end:].strip(" \t\r\n"):
            found = _TOKEN.match(text, end)
            if found is None or found.lastgroup is None:
                self._refuse(end, "has something that is neither name, number, text nor sign")
            kind = found.lastgroup
            self._tokens.append((kind, found[kind], found.start(kind)))
            end = found.end()
        self._tokens.append(("end", "", len(text)))

    def read(self) -> Any:
        """The whole condition."""
        found = self._any_of()
        if self._tokens[0][0] != "end":
            self._refuse(self._tokens[0][2], "should go on with and, or, or end")
        return found

    def _any_of(self) -> Any:
        found = self._all_of()
        while self._take("or"):
            found = pc.or_kleene(found, self._all_of())
        return found

    def _all_of(self) -> Any:
        found = self._one()
        while self._take("and"):
            found = pc.and_kleene(found, self._one())
        return found

    def _one(self) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(self._tokens[0][2], f"has more than {_DEEPEST} parentheses in each other")
        if self._take("not"):
            found = pc.invert(self._one())
        elif self._take("("):
            found = self._any_of()
            self._need(")")
        else:
            found = self._compared()
        self._depth -= 1
        return found

    def _compared(self) -> Any:
        kind, _, self._began = self._tokens[0]
        left = self._operand()
        if self._take("is"):
            wanted = not self._take("not")
            self._need("null")
            return pc.equal(pc.is_null(left), wanted)
        within = not self._take("not")
        if self._take("in"):
            self._need("(")
            listed = [pc.equal(*self._alike(left, self._operand()))]
            while self._take(","):
                listed.append(pc.equal(*self._alike(left, self._operand())))
            self._need(")")
            found = listed[0]
            for each in listed[1:]:
                found = pc.or_kleene(found, each)
            return found if within else pc.invert(found)
        if not within:
            self._refuse(self._tokens[0][2], "should go on with in")
        for sign, compare in _COMPARED.items():
            if self._take(sign):
                return compare(*self._alike(left, self._operand()))
        if kind not in ("name", "word") or not pa.types.is_float64(left.type):
            self._refuse(
                self._began, "has a text or a number alone, which should be compared, as in brand = 'x'"
            )
        return pc.not_equal(left, 0.0)

    def _operand(self) -> Any:
        kind, text, at = self._tokens.pop(0)
        if kind == "number":
            return pa.scalar(float(text))
        if kind == "text":
            return pa.scalar(text[1:-1].replace(text[0] * 2, text[0]), pa.large_string())
        if kind == "word" and text.lower() in ("true", "false"):
            return pa.scalar(float(text.lower() == "true"))
        if kind == "name" or (kind == "word" and text.lower() not in _WORDS):
            return self._attributes.column(text)
        self._refuse(at, "should go on with a column, a number or a text")

    def _alike(self, left: Any, right: Any) -> tuple[Any, Any]:
        if left.type == right.type:
            return left, right
        empty = [side.null_count == len(side) for side in (left, right) if isinstance(side, pa.Array)]
        if any(empty):
            return left, pa.scalar(None, left.type)
        self._refuse(self._began, "compares a number with a text")

    def _take(self, word: str) -> bool:
        kind, text, _ = self._tokens[0]
        if kind in ("word", "sign") and text.lower() == word:
            self._tokens.pop(0)
            return True
        return False

    def _need(self, word: str) -> None:
        if not self._take(word):
            self._refuse(self._tokens[0][2], f"should go on with {word}")

    def _refuse(self, at: int, what: str) -> NoReturn:
        rest = self._text[at : at + 30]
        where = f"at {rest!r}" if rest else "at its end"
        raise InputError(f"The condition {self._text[:100]!r} {what}, {where}.")
