"""Public tables of articles as words and numbers of each item of the catalogue.

They are public, so they are read as any table is; only ratings need the care of `hushrec.data.readers`.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hushrec.checks import plural, shown
from hushrec.data.arrays import typed_or_objects
from hushrec.data.columns import SYNONYMS, plain_name, those_there
from hushrec.data.files import read_parquet, readable
from hushrec.data.ids import encode_ids, parse_rating, positions_of
from hushrec.data.sources import File, refuse_other_content
from hushrec.data.textfiles import DELIMITERS, check_utf8, read_header
from hushrec.data.words import Neighbours, neighbours_by_words
from hushrec.errors import InputError

#: A column named id comes before those that may be another thing's, such as artist_id.
_ID_NAMES = ("item", "itemid", "iid", "movie", "movieid", "product", "productid", "id", *SYNONYMS["item"])
#: Most principal components of features, and items per component.
_MOST_DIMENSIONS, _ITEMS_A_DIMENSION = 64, 10
#: A number with a point or a comma before its decimals.
_NUMBER = re.compile(r"\s*[+-]?([0-9]+|[0-9]{1,3}(\.[0-9]{3})+)([.,][0-9]+)?\s*")
_DELIMITER = b"hushrec.delimiter"  # of a table's file, in its metadata
_STAND_IN = b"\x1f"  # for "::", since Arrow takes delimiters of one character
#: Most categories of a column, and most cells of them. Bounds the memory.
_MOST_CATEGORIES, _MOST_CELLS = 1000, 1 << 25
#: Most groups of features. Each group is a part of a list, with a weight.
_MOST_GROUPS = 6
#: A column of whole numbers with such a name holds categories: brand_id, groupCode, Supplier No.
_CODE = re.compile(r"(.*[\W_])?(?i:id|code|nr|no)\.?|.*[a-z](Id|ID|Code|Nr|No)")
#: Numbers from here are barcodes or times, and no features.
_FIRST_BARCODE = 1e9
_LISTS = pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType
_HOW = "pass a table with one row an item: a column of item ids, and columns of what is known of them"


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Features and words of a catalogue's items, from public tables.

    Parameters
    ----------
    texts : Arrow array of str
        Canonical ids of the catalogue.
    features : ndarray of float64, shape (n_items, n_features), or None
        NaN where a feature is missing. If there are only texts, None.
    names : tuple of tuple of str
    widths : tuple of int
        Names of the columns and number of the features of each group.
    words : Neighbours or None
        If no two items share a word, None.
    uses : tuple of (str, str)
        Each column's name, and "words", "features", "words and features" or "not used".
    """

    texts: pa.Array
    features: np.ndarray | None
    names: tuple[tuple[str, ...], ...]
    widths: tuple[int, ...]
    words: Neighbours | None
    uses: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the fields that a training uses, hexadecimal. A resumed training compares it."""
        arrays = [] if self.features is None else [self.features]
        arrays += [] if self.words is None else [self.words.items, self.words.similarity]
        octets = str([self.names, self.widths, *(array.shape for array in arrays)]).encode()
        octets += b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
        return hashlib.sha256(octets).hexdigest()


def read_item_features(source: Any, texts: pa.Array) -> ItemTable:
    """Read features and words of the catalogue's items.

    All numbers and truth values make one group of features. A column of vectors makes a group. So does a
    column of categories that most items share with others: texts, lists of them such as ``Comedy|Drama``, or
    whole numbers of a column named id or code. The 1,000 with most items stay, fewer with over 33,554 items.
    The sixth group holds all further columns. All texts are words. The name of a truth value is a word of the
    items where it is true. A column of one value, of times, of numbers from 10**9 (barcodes) or of another
    type is not used.

    Parameters
    ----------
    source : ndarray of shape (n_items, n_features), table or path, or list of these
        An array is in the order of the catalogue. A table (pandas, polars, Arrow, a mapping of columns, or
        the path of a CSV, TSV or Parquet file) has a column of item ids, named item, movieid or the like.
    texts : Arrow array of str
        Canonical ids of the catalogue.

    Raises
    ------
    InputError
        It is no such table, an id occurs twice, a number is infinite, or no item has a feature or a word.
    """
    sources = source if isinstance(source, list | tuple) and source else [source]
    columns = [_varying(column) for table in sources for column in _columns_of(table, texts)]
    groups = _groups(columns)
    words = [column.words for column in columns if column.words is not None]
    if not groups and not words:
        raise InputError(
            "No item of the catalogue has a feature or a word; pass titles, categories or numbers."
        )
    features = np.column_stack([group for _, group in groups]) if groups else None
    if features is not None:
        features.setflags(write=False)
    return ItemTable(
        texts,
        features,
        tuple(names for names, _ in groups),
        tuple(group.shape[1] for _, group in groups),
        neighbours_by_words(list(zip(*words, strict=True))) if words else None,
        tuple((column.name, column.use) for column in columns),
    )


class _Column(NamedTuple):
    """One column; a scalar joins the group of numbers."""

    name: str
    features: np.ndarray | None = None
    words: list[str] | None = None
    scalar: bool = False

    @property
    def use(self) -> str:
        uses = ["words"] * (self.words is not None) + ["features"] * (self.features is not None)
        return " and ".join(uses) or "not used"


def _groups(columns: list[_Column]) -> list[tuple[tuple[str, ...], np.ndarray]]:
    scalars = [(one.name, one.features) for one in columns if one.features is not None and one.scalar]
    others = [(one.name, one.features) for one in columns if one.features is not None and not one.scalar]
    groups = [scalars] * bool(scalars) + [[other] for other in others]
    last = _MOST_GROUPS - 1
    groups[last:] = [sum(groups[last:], [])] * (len(groups) > last)
    return [(tuple(name for name, _ in one if name), np.column_stack([x for _, x in one])) for one in groups]


def _columns_of(source: Any, texts: pa.Array) -> Iterator[_Column]:
    """Yield the columns of a table in the order of the catalogue."""
    if isinstance(source, np.ndarray):
        yield _Column("", _from_array(source, len(texts)))
        return
    ids, table, place = read_item_table(source, texts, "item features")
    if table.num_columns == 1:
        raise InputError("The item features hold ids only; add columns of titles, categories or numbers.")
    (known,) = np.nonzero(place >= 0)
    if not len(known):
        column, such = table.column_names[ids], shown(texts[0].as_py())
        raise InputError(
            f"No id in column {column!r} of the item features is in the catalogue, which has such as {such};"
            " write ids the same way, or name the column that holds them item (--columns id=NAME)."
        )
    for number, name in enumerate(table.column_names):
        if number != ids:
            yield _in_catalogue(_read(table.column(number), name, known), place[known], len(texts))


def _in_catalogue(column: _Column, place: np.ndarray, n_items: int) -> _Column:
    features, words = column.features, column.words
    if features is not None:
        features = np.full((n_items, features.shape[1]), np.nan)
        features[place] = column.features
    if column.words is not None:
        words = [""] * n_items
        for at, cell in zip(place.tolist(), column.words, strict=True):
            words[at] = cell
    return column._replace(features=features, words=words)


def _varying(column: _Column) -> _Column:
    """Return the column without constant features and words."""
    features = column.features
    if features is not None:
        if np.isinf(features).any():
            raise InputError("Item features must be finite; leave a missing one empty (NaN).")
        features = features[:, np.fmin.reduce(features) < np.fmax.reduce(features)]
        features = features if features.shape[1] else None
    return column._replace(
        features=features, words=column.words if len(set(column.words or ())) > 1 else None
    )


def feature_scores(features: np.ndarray | None, n_items: int) -> np.ndarray:
    """Return principal components of the standardised features, shape (n_items, n_components).

    One component for ten items, from 1 to 64. Mean squared norm 1 over the items that have features, zero for
    the others. A missing feature counts as its mean.
    """
    if features is None:
        return np.zeros((n_items, 0))
    known = ~np.isnan(features).all(axis=1)
    rows = features[known]
    counts = np.maximum((~np.isnan(rows)).sum(axis=0), 1)
    rows = rows / np.maximum(np.nanmax(np.abs(rows), axis=0, initial=1e-300), 1e-300)
    centred = np.nan_to_num(rows - np.nansum(rows, axis=0) / counts)
    spread = np.sqrt((centred**2).sum(axis=0) / counts)
    centred = centred[:, spread > 1e-9] / spread[spread > 1e-9]
    most = min(_MOST_DIMENSIONS, max(1, known.sum() // _ITEMS_A_DIMENSION), *centred.shape)
    if most == 0:
        return np.zeros((n_items, 0))
    variances, axes = np.linalg.eigh(centred.T @ centred)  # quicker than singular values of many items
    most = min(most, int((variances > 1e-12 * variances[-1]).sum()))
    scores = np.zeros((n_items, most))
    scores[known] = centred @ axes[:, : -most - 1 : -1]
    return scores * math.sqrt(known.sum() / variances[-most:].sum())


def _from_array(array: np.ndarray, n_items: int) -> np.ndarray:
    if array.ndim != 2 or len(array) != n_items or not array.shape[1]:
        raise InputError(
            f"An array of item features must have one row for each of the {n_items:,} catalogue items and at"
            f" least one column, but has shape {array.shape}."
        )
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError("An array of item features must hold numbers.") from None


def read_item_table(source: Any, texts: pa.Array, what: str) -> tuple[int, pa.Table, np.ndarray]:
    """Return the number of the id column, the table, and its rows' positions or -1."""
    table = _as_table(source, what)
    ids = _column_of_ids(table.column_names, what)
    encoded = encode_ids(table.column(ids))
    if np.bincount(encoded.codes[encoded.codes >= 0]).max(initial=0) > 1:
        raise InputError(f"The {what} hold an item id twice; give every item one row.")
    place = positions_of(encoded, texts)
    if lost := _rows_within(table, ids, texts, place):
        raise InputError(
            f"A text in column {lost[0]!r} of the {what} holds the row of item {lost[1]!r}, so a double quote"
            " is not closed. Close it, or put the whole text into quotes and double those within."
        )
    return ids, table, place


def _rows_within(table: pa.Table, ids: int, texts: pa.Array, place: np.ndarray) -> tuple[str, str] | None:
    """Return a column whose text holds the row of an item that has no other row, and the item."""
    n_marks = table.num_columns - 1
    delimiter = (table.schema.metadata or {}).get(_DELIMITER, b"").decode()
    marks = (delimiter,) if delimiter else ("::", *DELIMITERS) if n_marks > 1 else ()
    for at, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if not n_marks or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            continue
        cells = column.filter(pc.match_substring(column, "\n")).to_pylist()
        found = [
            line.split(mark)[ids].strip().strip('"')
            for mark in marks
            for cell in cells
            if mark in cell
            for line in f"{mark * at}{cell}{mark * (n_marks - at)}".split("\n")
            if line.count(mark) == n_marks
        ]
        known = positions_of(encode_ids(found), texts)
        lost = np.flatnonzero((known >= 0) & ~np.isin(known, place))
        if len(lost):
            return name, found[lost[0]]
    return None


def _column_of_ids(names: list[str], what: str, asked: str | None = None) -> int:
    if asked in names:
        return names.index(asked)
    words = [plain_name(name) for name in names]
    id_name = next((name for name in _ID_NAMES if name in words), _ID_NAMES[0])
    if words.count(id_name) != 1:
        raise InputError(
            f"{what.capitalize()} need exactly one column of item ids: name it item (--columns id=NAME);"
            f" {those_there(names, asked)}."
        )
    return words.index(id_name)


def named_item_table(path: str, columns: Mapping[str, str], what: str) -> pa.Table:
    """Read a file of items and call its columns item and title.

    A name or position in ``columns`` that the table lacks is ignored.
    """
    table = _from_file(File(path), what, columns)
    names = list(table.column_names)
    for role, asked in columns.items():
        if asked in names:
            place = names.index(asked)
            names = [f"{name} (other)" if plain_name(name) == role else name for name in names]
            names[place] = role
    return table.rename_columns(names).replace_schema_metadata(table.schema.metadata)  # it drops them


def _as_table(source: Any, what: str) -> pa.Table:
    if isinstance(source, (str, os.PathLike)):
        return _from_file(File(os.fspath(source)), what)
    module = type(source).__module__.partition(".")[0]
    try:
        if module == "polars":
            frame = source.collect() if hasattr(source, "collect") else source
            source = {name: frame[name] for name in frame.columns}
        if module == "pandas":
            table = pa.Table.from_pandas(source, preserve_index=False)
        elif isinstance(source, Mapping):
            table = pa.table({str(name): _column(values) for name, values in source.items()})
        elif isinstance(source, pa.RecordBatch) or hasattr(source, "__arrow_c_stream__"):
            table = source if isinstance(source, pa.Table) else pa.table(source)
        else:
            raise InputError(f"{what.capitalize()} cannot be read from {type(source).__name__}; {_HOW}.")
        table.validate(full=True)
    except pa.ArrowInvalid:
        raise InputError(
            f"The {what} hold values that do not fit their type or are not UTF-8 text."
        ) from None
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, KeyError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"The {what} cannot be read as a table; {_HOW}.") from None
    return table


def _column(values: Any) -> Any:
    if type(values).__module__.startswith("polars"):
        return typed_or_objects(values)
    return list(values) if isinstance(values, np.ndarray) and values.ndim > 1 else values


def _from_file(file: File, what: str, columns: Mapping[str, str] | None = None) -> pa.Table:
    from pyarrow import csv

    with readable(file, f"table of {what}"):
        if file.head(4) == b"PAR1":
            return read_parquet(file)
        refuse_other_content(file)
        with file.stream() as stream:
            content = stream.read()
        check_utf8(content, file.path)
        names, delimiter, _, n_lines = read_header(io.BytesIO(content), None)
        asked = columns or {}
        is_row = any(map(str.isdecimal, asked.values())) and not set(map(plain_name, names)) & set(_ID_NAMES)
        names = [str(number + 1) for number in range(len(names))] if is_row else names
        ids = _column_of_ids(names, what, asked.get("item"))
        if len(delimiter) > 1:
            content, delimiter = content.replace(delimiter.encode(), _STAND_IN), _STAND_IN.decode()
        wrong: list[Any] = []

        def skip(row: Any) -> str:
            wrong.append(row)
            return "skip"

        table = csv.read_csv(
            pa.BufferReader(content),
            # Arrow would leave blanks around the names. All is one block: a text may have several lines.
            read_options=csv.ReadOptions(
                column_names=names,
                skip_rows=n_lines - is_row,
                use_threads=False,
                block_size=min(max(len(content), 1), (1 << 31) - 1),
            ),
            parse_options=csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip
            ),
            convert_options=csv.ConvertOptions(column_types={names[ids]: pa.string()}),  # 007 stays 007
        )
        if wrong:
            raise InputError(
                f"Row {wrong[0].number} of {file.path!r} has {plural(wrong[0].actual_columns, 'cell')}, but"
                f" the first one has {len(names)}; close each double quote, and put a text that holds the"
                " delimiter into double quotes."
            )
        last = table.column(len(names) - 1)[-1].as_py() if len(table) else None
        if isinstance(last, str) and "\n" in last and not content.rstrip().endswith(b'"'):
            raise InputError(
                f"A text in {file.path!r} begins with a double quote that is never closed; close it, or put"
                " the whole text into quotes and double those within."
            )
        cells = [column if at == ids else _without_commas(column) for at, column in enumerate(table.columns)]
        return pa.Table.from_arrays(cells, names, metadata={_DELIMITER: delimiter})


def _without_commas(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_string(column.type):
        return column
    cells = column.to_pylist()
    numbers = {cell for cell in cells if cell and cell.strip()}
    if not numbers or not all(map(_NUMBER.fullmatch, numbers)):
        return column
    return pa.chunked_array([pa.array([parse_rating(cell) if cell in numbers else None for cell in cells])])


def _read(column: pa.ChunkedArray, name: str, rows: np.ndarray) -> _Column:
    """Return some rows of a column; Arrow cannot take rows of every type."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    kind = column.type
    try:
        if pa.types.is_dictionary(kind):
            column, kind = pa.chunked_array([c.dictionary_decode() for c in column.chunks]), kind.value_type
        is_list = isinstance(kind, _LISTS)
        inner = kind.value_type if is_list else kind
        if pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner):
            cells = column.to_pylist()
            return _of_texts([cells[row] for row in rows], name)
        if is_list and _is_numeric(inner):
            cells = column.to_pylist()
            lengths = {len(cell) for cell in cells if cell is not None}
            if len(lengths) != 1 or not max(lengths):
                raise InputError(f"The vectors of item feature {name!r} must all have one length.")
            missing = [None] * lengths.pop()
            return _Column(name, np.array([cells[row] or missing for row in rows], dtype=np.float64))
        if _is_numeric(kind):
            return _of_numbers(column.cast(pa.float64()).to_numpy()[rows], name)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass  # an integer of more than 53 bits, or a dictionary of an unusual type
    return _Column(name)


def _of_numbers(values: np.ndarray, name: str) -> _Column:
    present = values[~np.isnan(values)]
    if _CODE.fullmatch(name) and np.isfinite(present).all() and not (present % 1).any():
        return _of_texts(
            ["" if np.isnan(value) else f"{plain_name(name)}{value:.0f}" for value in values], name
        )
    if np.isfinite(present).all() and np.abs(present).max(initial=0) >= _FIRST_BARCODE:
        return _Column(name)
    words = [name if value == 1 else "" for value in values] if np.isin(present, (0, 1)).all() else None
    return _Column(name, values[:, None], words, scalar=True)


def _of_texts(cells: list[Any], name: str) -> _Column:
    """Return words, and 0 and 1 for each category if most items share theirs with others."""
    texts = [cell if isinstance(cell, str) else " ".join(filter(None, cell or ())) for cell in cells]
    lists = [cell.split("|") if isinstance(cell, str) else cell for cell in cells]
    of_each = [{word.strip() for word in words or () if word} - {""} for words in lists]
    counts = Counter(word for words in of_each for word in words)
    kept = sorted((word for word in counts if counts[word] > 1), key=lambda word: (-counts[word], word))
    shared = sum(any(counts[word] > 1 for word in words) for words in of_each)
    if 2 * shared < sum(map(bool, of_each)) or not kept:
        return _Column(name, None, texts)
    most = min(_MOST_CATEGORIES, _MOST_CELLS // len(of_each))
    place = {word: at for at, word in enumerate(kept[:most])}
    indicators = np.zeros((len(of_each), len(place)))
    for row, words in enumerate(of_each):
        if not words:
            indicators[row] = np.nan
        else:
            indicators[row, [place[word] for word in words if word in place]] = 1.0
    return _Column(name, indicators, texts)


def _is_numeric(kind: pa.DataType) -> bool:
    types = pa.types
    is_plain = types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind)
    return is_plain or types.is_floating(kind) or types.is_decimal(kind)
