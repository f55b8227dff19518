"""Tables of any kind to three columns (users, items, ratings), without looking across rows."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from hushrec.data.ids import as_text, check_lengths, compact, encode_ratings, parse_rating
from hushrec.data.textfiles import MAX_LINE_BYTES, lines_of, read_fields, read_header
from hushrec.errors import InputError

ROLES = ("user", "item", "rating")
SYNONYMS = {
    "user": ("user", "userid", "uid"),
    "item": ("item", "itemid", "iid", "movie", "movieid", "product", "productid"),
    "rating": ("rating", "score", "value", "stars"),
}
FORMATS = ("parquet", "csv", "tsv", "movielens-100k", "movielens-dat", "jester")
N_JOKES = 100
_MISSING_JOKE = 99.0
_BATCH_ROWS = 1 << 20

#: What `Ratings` knows of itself beside its rows, kept in the tables that it writes.
MARKS = ("hand_picked", "by_position")
MARKS_KEY = b"hushrec.ratings"


class Columns(NamedTuple):
    """User ids, item ids, ratings (float32, NaN = no number), and the marks of the ratings they will be."""

    users: Any
    items: Any
    ratings: np.ndarray
    marks: tuple[str, ...] = ()


def read_columns(source: Any, columns: Any, format: str | None, implicit: bool) -> Columns:
    """Columns of any source."""
    if isinstance(source, (str, os.PathLike)):
        return read_file(Path(source), columns, format, implicit)
    if format is not None:
        raise InputError("format is for files; leave it out for a table in memory.")
    if sp.issparse(source):
        check_sparse(source)
        entries = source.tocoo()
        ratings = np.ones(entries.nnz, np.float32) if implicit else encode_ratings(entries.data)
        return Columns(entries.row, entries.col, ratings)
    module = type(source).__module__.partition(".")[0]
    if module == "polars":
        return from_frame(source.collect() if hasattr(source, "collect") else source, columns, implicit)
    if module == "pandas":
        return from_frame(source, columns, implicit)
    if isinstance(source, Mapping):
        return _pick(list(source), source.__getitem__, columns, implicit)
    if isinstance(source, (pa.Table, pa.RecordBatch)) or hasattr(source, "__arrow_c_stream__"):
        return from_arrow(source, columns, implicit)
    if isinstance(source, tuple) and len(source) == 3:
        return from_triples(*source, implicit)
    raise InputError(
        f"Ratings cannot be read from {type(source).__name__}; pass the path of a Parquet or CSV file, a "
        "data frame, an Arrow table, a SciPy sparse matrix, or a tuple (users, items, ratings)."
    )


def check_sparse(matrix: Any) -> None:
    """Refuse a sparse matrix whose arrays do not fit together: compiled code would read past their ends."""
    try:
        fits = _arrays_fit(matrix)
    except (TypeError, ValueError, IndexError, AttributeError):
        fits = False
    if not fits:
        raise InputError(
            f"The arrays of the sparse matrix ({matrix.format}) do not fit together: a position in them is"
            " outside of the matrix, or their lengths differ; build it anew from rows, columns and values."
        )


def _arrays_fit(matrix: Any) -> bool:
    if matrix.format in ("csr", "csc", "bsr"):
        shape = matrix.shape[::-1] if matrix.format == "csc" else matrix.shape
        blocks = matrix.blocksize if matrix.format == "bsr" else (1, 1)
        starts, positions = matrix.indptr, matrix.indices
        return (
            starts.shape == (shape[0] // blocks[0] + 1,)
            and starts[0] == 0
            and bool((starts[1:] >= starts[:-1]).all())
            and starts[-1] == len(positions) == len(matrix.data)
            and _inside(positions, shape[1] // blocks[1])
        )
    if matrix.format == "lil" and [len(row) for row in matrix.rows] != [len(row) for row in matrix.data]:
        return False
    entries = matrix.tocoo()
    places = zip((entries.row, entries.col), matrix.shape)
    return all(len(each) == len(entries.data) and _inside(each, size) for each, size in places)


def _inside(positions: np.ndarray, size: int) -> bool:
    return positions.dtype.kind in "iu" and (
        len(positions) == 0 or 0 <= int(positions.min()) <= int(positions.max()) < size
    )


def from_arrow(table: Any, columns: Any, implicit: bool) -> Columns:
    """Columns of an Arrow table, record batch or anything that exports an Arrow stream."""
    try:
        table = table if isinstance(table, pa.Table) else pa.table(table)
    except (TypeError, ValueError, pa.ArrowException):
        raise InputError(f"An Arrow table is needed, not {type(table).__name__}.") from None
    picked = _pick(table.column_names, table.column, columns, implicit)
    return picked._replace(marks=_marks(table.schema))


def from_frame(frame: Any, columns: Any, implicit: bool) -> Columns:
    """Columns of a pandas or polars data frame."""
    if not hasattr(frame, "columns"):
        raise InputError(f"A data frame is needed, not {type(frame).__name__}.")
    return _pick(list(frame.columns), frame.__getitem__, columns, implicit)


def from_triples(users: Any, items: Any, ratings: Any, implicit: bool) -> Columns:
    """Three sequences of the same length; ``ratings`` may be None with ``implicit``."""
    users, items = _sized(users), _sized(items)
    if implicit:
        check_lengths(users, items)
        return Columns(users, items, np.ones(len(users), dtype=np.float32))
    if ratings is None:
        raise InputError(
            "Ratings are missing; where only users and items are known, say that every row is a like",
            parameter="implicit",
            value=True,
        )
    ratings = encode_ratings(ratings)
    check_lengths(users, items, ratings)
    return Columns(users, items, ratings)


def read_file(path: Path, columns: Any, format: str | None, implicit: bool) -> Columns:
    """Columns of a file of ratings; see `hushrec.data.Ratings.read`."""
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder; pass the path of one file of ratings.")
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    kind = _guess_format(path, magic) if format is None else format
    if kind not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, not {format!r}.", parameter="format")
    if kind in ("movielens-100k", "movielens-dat", "jester") and columns is not None:
        raise InputError(
            f"A file of format {kind} has no column names; leave columns out.", parameter="columns"
        )
    try:
        if kind == "parquet":
            return _read_parquet(path, columns, implicit)
        with pa.input_stream(str(path), compression="detect") as stream:
            if kind == "jester":
                return _read_jester(stream, implicit)
            if kind in ("movielens-100k", "movielens-dat"):
                delimiter = "\t" if kind == "movielens-100k" else "::"
                fields = read_fields(stream, 4, [0, 1, 2], delimiter, quoted=False)
                return from_triples(as_text(fields[0]), fields[1], fields[2], implicit)
            names, delimiter, rest = read_header(stream, "\t" if kind == "tsv" else None)
            chosen = find_columns(names, columns, implicit)
            wanted = [names.index(name) for name in chosen]
            fields = read_fields(rest, len(names), wanted, delimiter, quoted=delimiter != "::")
            return from_triples(as_text(fields[0]), fields[1], None if implicit else fields[2], implicit)
    except InputError:
        raise
    except (OSError, EOFError, UnicodeDecodeError, pa.ArrowException):
        raise InputError(
            f"{str(path)!r} is not a readable {kind} file; it may be damaged or cut short."
        ) from None


def find_columns(names: Sequence[Any], columns: Any, implicit: bool) -> list[Any]:
    """The names of the user, item and (unless implicit) rating columns among the names of a table."""
    roles = ROLES[:2] if implicit else ROLES
    asked = _asked_columns(columns)
    chosen = []
    for role in roles:
        if role in asked:
            matches = [name for name in names if name == asked[role]]
        else:
            words = {name: re.sub(r"[\s_.-]", "", str(name)).lower() for name in names}
            matches = next(
                ([n for n in names if words[n] == s] for s in SYNONYMS[role] if s in words.values()), []
            )
        if len(matches) > 1:
            raise InputError(
                f"Several columns could hold the {role}s", parameter="columns", value={role: "NAME"}
            )
        if not names:
            raise InputError("The table is empty: it has no columns; pass one with users, items and ratings.")
        if not matches:  # the names that are there are not shown: they may be a row
            wanted = f"named {asked[role]!r}" if role in asked else f"for the {role}s"
            what = f"The table has no column {wanted}; the first line of a text file holds the columns' names"
            if role == "rating":
                what += "; name it in columns, or let every row be a like"
                raise InputError(what, parameter="implicit", value=True)
            raise InputError(what, parameter="columns", value={role: "NAME"})
        if matches[0] in chosen:
            raise InputError("One column would have two roles", parameter="columns", value={role: "NAME"})
        chosen.append(matches[0])
    return chosen


def _pick(names: list[Any], column: Any, columns: Any, implicit: bool) -> Columns:
    chosen = [column(name) for name in find_columns(names, columns, implicit)]
    return from_triples(chosen[0], chosen[1], None if implicit else chosen[2], implicit)


def _sized(column: Any) -> Any:
    return column if hasattr(column, "__len__") else list(column) if hasattr(column, "__iter__") else [column]


def _asked_columns(columns: Any) -> dict[str, Any]:
    if columns is None:
        return {}
    if isinstance(columns, Mapping) and set(columns) <= set(ROLES):
        return dict(columns)
    if isinstance(columns, (list, tuple)) and 2 <= len(columns) <= 3:
        return dict(zip(ROLES, columns, strict=False))
    raise InputError("columns must be a dictionary such as {'user': NAME, 'item': NAME, 'rating': NAME}.")


def _guess_format(path: Path, magic: bytes) -> str:
    """The format by the file's name, else by Parquet's magic bytes in a header's place; never by its rows."""
    name = path.name.lower()
    for compression in (".gz", ".bz2", ".zst"):
        name = name.removesuffix(compression)
    suffix = Path(name).suffix
    if suffix in (".parquet", ".pq"):
        return "parquet"
    if name.startswith("jester-data"):
        return "jester"
    if suffix in (".data", ".base", ".test"):
        return "movielens-100k"
    if suffix == ".dat":
        return "movielens-dat"
    if magic == b"PAR1":
        return "parquet"
    return "tsv" if suffix == ".tsv" else "csv"


def _read_parquet(path: Path, columns: Any, implicit: bool) -> Columns:
    from pyarrow import parquet

    schema = parquet.read_schema(path)
    chosen = find_columns(schema.names, columns, implicit)
    kinds = [schema.field(name).type for name in chosen]
    text = [name for name, kind in zip(chosen, kinds) if pa.types.is_string(kind) or pa.types.is_binary(kind)]
    parts: list[list[pa.Array]] = [[] for _ in chosen]
    with parquet.ParquetFile(path, read_dictionary=text) as file:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=chosen):
            for part, name in zip(parts, chosen):
                part.append(compact(batch.column(name)))
            del batch
            pa.default_memory_pool().release_unused()  # Arrow would keep it until the process ends
    columns = [pa.chunked_array(p) if p else pa.chunked_array([], k) for p, k in zip(parts, kinds)]
    table = from_triples(columns[0], columns[1], None if implicit else columns[2], implicit)
    return table._replace(marks=_marks(schema))


def _marks(schema: pa.Schema) -> tuple[str, ...]:
    words = (schema.metadata or {}).get(MARKS_KEY, b"").split()
    return tuple(mark for mark in MARKS if mark.encode() in words)


def _read_jester(stream: Any, implicit: bool) -> Columns:
    """Jester's published matrix: a line per user, her number of ratings, then 100 ratings, 99 = not rated.

    The lines carry no user id, so the line number (from 1) is the id, and the number of lines is public. A
    line that is malformed or blank keeps its number: so a user is left out. Items are the jokes' numbers.
    """
    users: list[np.ndarray] = []
    items: list[np.ndarray] = []
    ratings: list[np.ndarray] = []
    number = 0
    for block in lines_of(stream):
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            fields = re.split(rb"[,;\t]", line) if len(line) <= MAX_LINE_BYTES else []
            if len(fields) != N_JOKES + 1:
                continue
            row = np.array([parse_rating(field) for field in fields[1:]])
            rated = np.flatnonzero(row != _MISSING_JOKE)
            users.append(np.full(len(rated), number))
            items.append(rated + 1)
            ratings.append(row[rated])
    none = [np.zeros(0, np.int64)]
    who, what, values = (np.concatenate(none + part) for part in (users, items, ratings))
    return from_triples(who, what, values, implicit)._replace(marks=("by_position",))
