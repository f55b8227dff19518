"""A public table of item features (genres, text vectors) as one row of numbers for every catalogue item.

Features are public, so they are read as any table is; only ratings need the care of `hushrec.data.readers`.
"""

from __future__ import annotations

import io
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from hushrec.checks import plural
from hushrec.data.arrays import typed_or_objects
from hushrec.data.columns import SYNONYMS, plain_name
from hushrec.data.files import read_parquet, readable
from hushrec.data.ids import encode_ids, parse_rating, positions_of
from hushrec.data.sources import File, refuse_other_content
from hushrec.data.textfiles import check_utf8, read_header
from hushrec.errors import InputError

#: A column named id comes before those that may be another thing's, such as artist_id.
_ID_NAMES = ("item", "itemid", "iid", "movie", "movieid", "product", "productid", "id", *SYNONYMS["item"])
#: Most principal components of features, and items per component.
_MOST_DIMENSIONS, _ITEMS_A_DIMENSION = 64, 10
#: A number with a point or a comma before its decimals.
_NUMBER = re.compile(r"\s*[+-]?([0-9]+|[0-9]{1,3}(\.[0-9]{3})+)([.,][0-9]+)?\s*")
_STAND_IN = b"\x1f"  # for "::", since Arrow takes delimiters of one character
#: Most categories of a column. Bounds the memory.
_MOST_CATEGORIES = 1000
_LISTS = pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType
_HOW = "pass a table with one row an item: a column of item ids, and columns of what is known of them"


def read_item_features(
    source: Any, texts: pa.Array
) -> tuple[np.ndarray, tuple[tuple[str, ...], ...], tuple[int, ...]]:
    """Return features of the catalogue's items, the names of their columns, and the tables' widths.

    Parameters
    ----------
    source : ndarray of shape (n_items, n_features), table or path, or list of these
        An array is in the order of the catalogue. A table (pandas, polars, Arrow, a mapping of columns, or
        the path of a CSV, TSV or Parquet file) has a column of item ids, named item, movieid or the like. Its
        other columns are numbers, truth values, vectors of one length, or categories: texts, or lists of them
        such as ``Comedy|Drama``; the 1,000 with most items stay.
    texts : Arrow array of str
        Canonical ids of the catalogue.

    Returns
    -------
    features : ndarray of float64, shape (n_items, n_features)
        NaN where a feature is missing.
    names : tuple of tuple of str
    widths : tuple of int

    Raises
    ------
    InputError
        It is no such table, an id occurs twice, a number is infinite, or no item has a feature.
    """
    sources = source if isinstance(source, list | tuple) and source else [source]
    tables, names = zip(*(_features_of(table, texts) for table in sources))
    features = np.column_stack(tables)
    features.setflags(write=False)
    return features, names, tuple(table.shape[1] for table in tables)


def _features_of(source: Any, texts: pa.Array) -> tuple[np.ndarray, tuple[str, ...]]:
    names: tuple[str, ...] = ()
    if isinstance(source, np.ndarray):
        features = _from_array(source, len(texts))
    else:
        ids, table, place = read_item_table(source, texts, "item features")
        features = _from_table(len(texts), ids, table, place)
        names = tuple(name for at, name in enumerate(table.column_names) if at != ids)
    if np.isinf(features).any():
        raise InputError("Item features must be finite; leave a missing one empty (NaN).")
    if np.isnan(features).all():
        raise InputError(
            "No item of the catalogue has a feature; check that the table uses the catalogue's ids."
        )
    return features, names


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
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    most = min(most, int((values > 1e-9 * values[0]).sum()))
    scores = np.zeros((n_items, most))
    scores[known] = left[:, :most] * values[:most]
    return scores * math.sqrt(known.sum() / (values[:most] ** 2).sum())


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
    return ids, table, positions_of(encoded, texts)


def _from_table(n_items: int, ids: int, table: pa.Table, place: np.ndarray) -> np.ndarray:
    if table.num_columns == 1:
        raise InputError("The item features hold ids only; add columns of numbers.")
    (known,) = np.nonzero(place >= 0)
    if not len(known):
        return np.full((n_items, 1), np.nan)
    columns = [
        _numbers(table.column(k), name, known) for k, name in enumerate(table.column_names) if k != ids
    ]
    features = np.full((n_items, sum(values.shape[1] for values in columns)), np.nan)
    features[place[known]] = np.hstack(columns)
    return features


def _column_of_ids(names: list[str], what: str) -> int:
    words = [plain_name(name) for name in names]
    id_name = next((name for name in _ID_NAMES if name in words), _ID_NAMES[0])
    if words.count(id_name) != 1:
        raise InputError(
            f"{what.capitalize()} need exactly one column of item ids: name it item (--columns id=NAME)."
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
    return table.rename_columns(names)


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
        ids = names.index(asked["item"]) if asked.get("item") in names else _column_of_ids(names, what)
        if len(delimiter) > 1:
            content, delimiter = content.replace(delimiter.encode(), _STAND_IN), _STAND_IN.decode()
        table = csv.read_csv(
            pa.BufferReader(content),
            # Arrow would leave blanks around the names
            read_options=csv.ReadOptions(
                column_names=names, skip_rows=n_lines - is_row, use_threads=len(content) > 1 << 20
            ),
            parse_options=csv.ParseOptions(delimiter=delimiter),
            convert_options=csv.ConvertOptions(column_types={names[ids]: pa.string()}),  # 007 stays 007
        )
        cells = [column if at == ids else _without_commas(column) for at, column in enumerate(table.columns)]
        return pa.Table.from_arrays(cells, names)


def _without_commas(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_string(column.type):
        return column
    cells = column.to_pylist()
    numbers = {cell for cell in cells if cell and cell.strip()}
    if not numbers or not all(map(_NUMBER.fullmatch, numbers)):
        return column
    return pa.chunked_array([pa.array([parse_rating(cell) if cell in numbers else None for cell in cells])])


def _numbers(column: pa.ChunkedArray, name: str, rows: np.ndarray) -> np.ndarray:
    """Return the features of some rows; Arrow cannot take rows of every type."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    kind = column.type
    try:
        if pa.types.is_dictionary(kind):
            column, kind = pa.chunked_array([c.dictionary_decode() for c in column.chunks]), kind.value_type
        is_list = isinstance(kind, _LISTS)
        words = kind.value_type if is_list else kind
        if pa.types.is_string(words) or pa.types.is_large_string(words) or pa.types.is_string_view(words):
            cells = column.to_pylist()
            return _categories([cells[row] for row in rows], name)
        if is_list and _is_numeric(words):
            cells = column.to_pylist()
            lengths = {len(cell) for cell in cells if cell is not None}
            if len(lengths) != 1 or not max(lengths):
                raise InputError(f"The vectors of item feature {name!r} must all have one length.")
            missing = [None] * lengths.pop()
            return np.array([cells[row] or missing for row in rows], dtype=np.float64)
        if _is_numeric(kind):
            return column.cast(pa.float64()).to_numpy()[rows, None]
    except pa.ArrowInvalid:  # an integer of more than 53 bits
        raise InputError(
            f"Item feature {name!r} holds integers that float64 cannot hold exactly; pass them as floats, "
            "or leave out a column of ids."
        ) from None
    except pa.ArrowNotImplementedError:
        pass  # a dictionary of an unusual type
    raise InputError(
        f"Item feature {name!r} holds {kind}, but features are numbers, categories or vectors of numbers;"
        " leave the column out."
    )


def _categories(cells: list[Any], name: str) -> np.ndarray:
    """Return 0 and 1 for each category of texts, or of lists such as ``Comedy|Drama``."""
    lists = [cell.split("|") if isinstance(cell, str) else cell for cell in cells]
    words_of = [{word.strip() for word in words or () if word} - {""} for words in lists]
    counts = Counter(word for words in words_of for word in words)
    kept = sorted((word for word in counts if counts[word] > 1), key=lambda word: (-counts[word], word))
    shared = sum(any(counts[word] > 1 for word in words) for words in words_of)
    if 2 * shared < sum(map(bool, words_of)) or not kept:
        raise InputError(
            f"Item feature {name!r} is text with {plural(len(counts), 'different value')}, which makes no"
            " categories: leave the column out, or give it values that most items share with others."
        )
    place = {word: at for at, word in enumerate(kept[:_MOST_CATEGORIES])}
    indicators = np.zeros((len(words_of), len(place)))
    for row, words in enumerate(words_of):
        if not words:
            indicators[row] = np.nan
        else:
            indicators[row, [place[word] for word in words if word in place]] = 1.0
    return indicators


def _is_numeric(kind: pa.DataType) -> bool:
    types = pa.types
    is_plain = types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind)
    return is_plain or types.is_floating(kind) or types.is_decimal(kind)
