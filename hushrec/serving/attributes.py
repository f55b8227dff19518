"""A public table of items, and conditions on its columns."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushrec.data import Domain
from hushrec.data.columns import those_there
from hushrec.data.features import named_item_table, read_item_table
from hushrec.errors import InputError
from hushrec.serving.conditions import Condition

#: Columns of titles; the first that exists counts.
_TITLES = ("title", "name")
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())


@dataclass(frozen=True, eq=False)
class Attributes:
    """A public table of items, in the order of a model's catalogue; null where a cell is missing.

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
    def read(
        cls, source: Any, domain: Domain, titles: Any = None, columns: Mapping[str, str] | None = None
    ) -> Attributes:
        """Read a public table of items.

        Parameters
        ----------
        source : data frame, Arrow table, mapping of columns, or path of a CSV or Parquet file; or None
            With a column of item ids (named item, item_id or the like). Items that the catalogue lacks are
            left out.
        titles : the same, optional
            Another table, with a column named title or name.
        columns : mapping, optional
            Names or positions of the columns ``"item"`` and ``"title"`` in files.
        """
        table: Attributes = source
        if not isinstance(source, Attributes):
            table = cls({} if source is None else _read(source, domain, "attributes", columns))
        if titles is None:
            return table
        named = cls(_read(titles, domain, "titles", columns))
        if named.title_column is None:
            asked = (columns or {}).get("title")
            raise InputError(
                "Titles need a column of texts named title or name (--columns title=NAME), next to the item"
                f" ids; {those_there(named.columns, asked)}."
            )
        return cls({**table.columns, _TITLES[0]: named.title_column})

    @property
    def title_column(self) -> pa.Array | None:
        held = [self.columns[name] for name in _TITLES if name in self.columns]
        return next((column for column in held if pa.types.is_large_string(column.type)), None)

    @property
    def titles(self) -> list[str | None] | None:
        """The titles as a list; None without a column of titles."""
        return None if self.title_column is None else self.title_column.to_pylist()

    def titles_json(self, domain: Domain) -> bytes | None:
        if self.titles is None:
            return None
        named = {
            text: title
            for text, title in zip(domain.text_list, self.titles, strict=True)
            if title is not None
        }
        return json.dumps(named, ensure_ascii=False).encode(errors="backslashreplace")

    def matching(self, condition: str | Condition) -> NDArray[np.bool_]:
        """Return which items meet a condition; null is not true, as in SQL."""
        condition = condition if isinstance(condition, Condition) else Condition(condition)
        truth = condition.evaluate(self.column)
        if isinstance(truth, pa.Scalar):
            return np.full(len(next(iter(self.columns.values()), ())), truth.as_py() is True)
        return pc.fill_null(truth, False).to_numpy(zero_copy_only=False)

    def codes(self, name: str) -> NDArray[np.int64]:
        """Return the number of each item's value of a column; -1 for a missing value."""
        return pc.fill_null(self.column(name).dictionary_encode().indices, -1).to_numpy().astype(np.int64)

    def column(self, name: str) -> pa.Array:
        if name not in self.columns:
            raise InputError(
                f"There is no column {name!r} in the attributes; {those_there(self.columns, name)}."
            )
        if pa.types.is_binary(self.columns[name].type):
            raise InputError(
                f"Column {name!r} of the attributes holds neither numbers, truth values, texts nor dates;"
                " rules compare nothing else."
            )
        return self.columns[name]


def page_with(page: bytes, data: Sequence[str]) -> bytes:
    """Return a file of the page that fetches these, as ``titles`` from titles.json."""
    for name in data:
        page = page.replace(f'data-{name}=""'.encode(), f'data-{name}="{name}.json"'.encode())
    return page


def _read(source: Any, domain: Domain, what: str, columns: Mapping[str, str] | None) -> dict[str, pa.Array]:
    if columns and isinstance(source, str | os.PathLike):
        source = named_item_table(os.fspath(source), columns, what)
    ids, table, places = read_item_table(source, domain.item_texts, what)
    if (places < 0).all():
        raise InputError(
            f"No item of the catalogue is in the {what}; check that the table uses the catalogue's ids."
        )
    order = np.full(domain.n_items, -1)
    order[places[places >= 0]] = np.flatnonzero(places >= 0)
    taken = pa.array(order, mask=order < 0)
    named = enumerate(table.column_names)
    return {name: _plain(table.column(at), taken) for at, name in named if at != ids}


def _plain(column: pa.ChunkedArray, places: pa.Array) -> pa.Array:
    """Return the cells at these places; the type binary marks a column of an unsupported type.

    If all cells are missing, the type is float64, whatever it is in the table.
    """
    try:
        cells = _cast(column).take(places).combine_chunks()
    except pa.ArrowException:  # no number or text, or one that Arrow cannot cast
        cells = pa.nulls(len(places), pa.binary())
        return cells if column.null_count < len(column) else cells.cast(pa.float64())
    return pa.nulls(len(cells), pa.float64()) if cells.null_count == len(cells) else cells


def _cast(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _cast(column.cast(pa.large_string() if kind.value_type in _TEXTS else kind.value_type))
    if pa.types.is_null(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.uint8()).cast(pa.float64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = pc.add(column.cast(pa.float64(), safe=False), 0.0)  # -0 is 0
        return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
    if not (pa.types.is_temporal(kind) or kind in _TEXTS):
        raise pa.ArrowInvalid("rules compare no such cells")
    texts = column.cast(pa.large_string())
    texts.validate(full=True)  # UTF-8
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.large_string()), texts)
