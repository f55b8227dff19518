"""Files of ratings: Parquet, delimited text, MovieLens, Jester; one, a folder or a pattern of names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from hushrec.data.columns import ROLES, Columns, columns_of, find_columns, marks_of
from hushrec.data.ids import TEXT, as_text, compact, encode_ids, join_ids, parse_rating, short_cells
from hushrec.data.sources import File, files_at
from hushrec.data.textfiles import MAX_LINE_BYTES, ByteStream, lines_of, read_fields, read_header
from hushrec.data.times import encode_times, join_times
from hushrec.errors import InputError

FORMATS = ("parquet", "csv", "tsv", "movielens-100k", "movielens-dat", "jester")
WITH_HEADER = ("csv", "tsv")
N_JOKES = 100  # of Jester's published matrix
_MISSING_JOKE = 99.0  # how Jester writes "not rated"
_BATCH_ROWS = 1 << 20  # of a Parquet file at a time: a few MB beside the columns that are kept
_FEW_ROWS = 1 << 12  # where their texts are too long to be numbered


def read_path(path: str, columns: Any, format: str | None, implicit: bool) -> Columns:
    """Columns of a file, or of those in a folder or of a pattern, one below another."""
    files = files_at(path)
    if len(files) == 1:
        return _read_file(files[0], columns, format, implicit)
    return _one_below_another([_encoded(_read_file(file, columns, format, implicit)) for file in files])


def read_chunks(file: File, columns: Any, format: str | None, implicit: bool) -> Iterator[Columns]:
    """The columns of a file, some rows at a time, in their order; each is read as if it were alone."""
    kind, empty = _checked_kind(file, columns, format), True
    for chunk in _chunks(file, kind, columns, implicit) if kind != "jester" else ():
        empty = False
        yield chunk
    if empty:  # its columns are there all the same; Jester's are read whole
        yield _read_file(file, columns, format, implicit)


def _chunks(file: File, kind: str, columns: Any, implicit: bool) -> Iterator[Columns]:
    with readable(file, kind):
        if kind == "parquet":
            yield from _parquet_chunks(file, columns, implicit)
        else:
            with file.stream() as stream:
                yield from _text_chunks(stream, file, kind, columns, implicit)


def _encoded(table: Columns) -> Columns:
    if "by_position" in table.marks:
        raise InputError("Users of these files are row numbers, which each file has; read one file only.")
    return table._replace(users=encode_ids(table.users), items=encode_ids(table.items, exact=True))


def _one_below_another(tables: list[Columns]) -> Columns:
    return Columns(
        join_ids([table.users for table in tables]),
        join_ids([table.items for table in tables]),
        np.concatenate([table.ratings for table in tables]),
        join_times([table.times for table in tables], [len(table.users) for table in tables]),
        tuple({mark for table in tables for mark in table.marks}),
    )


#: What is no table of rows, by the ending of a file's name.
_OTHER_KINDS = {
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".ods"), "a spreadsheet"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "JSON"),
    **dict.fromkeys((".sqlite", ".db"), "a database"),
    **dict.fromkeys((".pdf", ".doc", ".docx"), "a document"),
    **dict.fromkeys((".pkl", ".pickle", ".npy", ".npz", ".hush"), "a file of one program"),
}


def file_format(file: File, format: str | None) -> str:
    """The format that was asked for, or that the file's name and first bytes tell; its rows do not."""
    if format is None and file.suffix in _OTHER_KINDS:
        what = _OTHER_KINDS[file.suffix]
        raise InputError(f"{file.path!r} is {what} by its name; save it as CSV or Parquet, a row a rating.")
    magic = file.head(4)
    kind = _guess_format(file, magic) if format is None else format
    if kind not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, not {format!r}.", parameter="format")
    return kind


def _checked_kind(file: File, columns: Any, format: str | None) -> str:
    kind = file_format(file, format)
    unnamed = {"movielens-100k": ({"time": True},), "movielens-dat": ({"time": True},), "jester": ()}
    if kind in unnamed and columns is not None and columns not in unnamed[kind]:
        raise InputError(
            f"A file of format {kind} has no column names; leave columns out.", parameter="columns"
        )
    return kind


@contextlib.contextmanager
def readable(file: File, kind: str) -> Iterator[None]:
    """Say in one sentence what goes wrong while a file is read."""
    try:
        yield
    except InputError:
        raise
    except (OSError, EOFError, UnicodeDecodeError, pa.ArrowException):
        raise InputError(
            f"{file.path!r} is not a readable {kind} file; it may be damaged or cut short."
        ) from None


def _read_file(file: File, columns: Any, format: str | None, implicit: bool) -> Columns:
    kind = _checked_kind(file, columns, format)
    with readable(file, kind):
        if kind == "parquet":
            return _read_parquet(file, columns, implicit)
        with file.stream() as stream:
            if kind == "jester":
                return _read_jester(stream, implicit)
            names, chosen, delimiter, blocks = _text_header(stream, file, kind, columns, implicit)
            return _text_columns(blocks, names, chosen, delimiter, file, kind, implicit)


def open_text(stream: ByteStream, kind: str) -> tuple[list[str], str, Iterator[bytes]]:
    """Column names, delimiter and the blocks of lines after any header."""
    if kind in WITH_HEADER:
        return read_header(stream, "\t" if kind == "tsv" else None)
    return list(ROLES), "\t" if kind == "movielens-100k" else "::", lines_of(stream)


def _text_header(
    stream: Any, file: File, kind: str, columns: Any, implicit: bool
) -> tuple[list[str], dict[str, Any], str, Iterator[bytes]]:
    names, delimiter, blocks = open_text(stream, kind)
    return names, find_columns(with_keys(names, file), columns, implicit), delimiter, blocks


def _text_chunks(stream: Any, file: File, kind: str, columns: Any, implicit: bool) -> Iterator[Columns]:
    names, chosen, delimiter, blocks = _text_header(stream, file, kind, columns, implicit)
    for block in blocks:
        yield _text_columns([block], names, chosen, delimiter, file, kind, implicit)


def _text_columns(
    blocks: Iterable[bytes],
    names: list[str],
    chosen: dict[str, Any],
    delimiter: str,
    file: File,
    kind: str,
    implicit: bool,
) -> Columns:
    inside = [role for role, name in chosen.items() if name in names]
    wanted = [names.index(chosen[role]) for role in inside]
    quoted = kind in WITH_HEADER and delimiter != "::"
    cells = dict(zip(inside, read_fields(blocks, len(names), wanted, delimiter, quoted)))
    if "user" not in cells and "item" not in cells:
        raise InputError(f"{file.path!r} has neither a column of users nor one of items.")
    length = len(next(iter(cells.values())))
    cells |= {role: _repeated(file, chosen[role], length) for role in chosen if role not in cells}
    users, items = (as_text(cells[r]) if r in inside else cells[r] for r in ("user", "item"))
    return columns_of(users, items, cells.get("rating"), cells.get("time"), implicit=implicit)


def with_keys(names: list[str], file: File) -> list[str]:
    """The names of a file's columns, then those of the keys that its folders' names hold."""
    return names + [name for name in file.keys if name not in names]


def _repeated(file: File, name: str, length: int) -> pa.ChunkedArray:
    """A column of the value that a folder's name holds."""
    values = pa.array([file.keys[name]], pa.string())
    return pa.chunked_array([pa.DictionaryArray.from_arrays(np.zeros(length, np.int32), values)])


def _read_parquet(file: File, columns: Any, implicit: bool) -> Columns:
    parts: dict[str, list[Any]] = {}
    opened = _Parquet(file, columns, implicit)
    for part in opened.parts():
        for role, column in part.items():
            parts.setdefault(role, []).append(column)
    times = None
    if "time" in opened.chosen:
        times = np.concatenate([np.zeros(0, np.int64), *parts.pop("time", [])])
    found = [opened.column(role, parts.get(role, [])) for role in opened.chosen if role != "time"]
    table = columns_of(*found, *[None] * implicit, implicit=implicit)
    return table._replace(times=times, marks=opened.marks)


def _parquet_chunks(file: File, columns: Any, implicit: bool) -> Iterator[Columns]:
    opened = _Parquet(file, columns, implicit, whole=False)
    for part in opened.parts():
        times = part.pop("time", None)
        found = [opened.column(role, [column]) for role, column in part.items()]
        table = columns_of(*found, *[None] * implicit, implicit=implicit)
        yield table._replace(times=times, marks=opened.marks)


class _Parquet:
    """The columns of a Parquet file by their roles."""

    def __init__(self, file: File, columns: Any, implicit: bool, whole: bool = True) -> None:
        from pyarrow import parquet

        self._whole = whole
        self._file, self._parquet = file, parquet
        schema = parquet.read_schema(file.seekable())
        self.chosen = find_columns(with_keys(schema.names, file), columns, implicit)
        self.marks = marks_of(schema)
        self._inside = [name for name in self.chosen.values() if name in schema.names]
        self._kinds = {name: schema.field(name).type for name in self._inside}

    def parts(self) -> Iterator[dict[str, Any]]:
        """Some rows at a time, times as numbers."""
        for batch in self._batches():
            part: dict[str, Any] = {}
            for role, name in self.chosen.items():
                if name not in self._kinds:
                    repeated = _repeated(self._file, name, batch.num_rows)
                    part[role] = encode_times(repeated) if role == "time" else repeated.chunk(0)
                else:
                    column = batch.column(name)
                    part[role] = encode_times(column) if role == "time" else self._held(column)
                    del column
            del batch
            yield part
            del part
            pa.default_memory_pool().release_unused()  # Arrow would keep it until the process ends

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Texts numbered as they are read; where they pass what Arrow numbers, few rows at a time instead."""
        texts = [name for name, kind in self._kinds.items() if kind in TEXT]
        with self._parquet.ParquetFile(self._file.seekable(), read_dictionary=texts) as file:
            for group in _row_groups(file.metadata):
                done = 0
                try:
                    for batch in file.iter_batches(_BATCH_ROWS, group, self._inside):
                        yield batch
                        done += batch.num_rows
                    continue
                except pa.ArrowException:  # or the file is damaged, which the second reading says again
                    pass
                with self._parquet.ParquetFile(self._file.seekable(), metadata=file.metadata) as again:
                    for batch in again.iter_batches(_FEW_ROWS, group, self._inside):
                        if batch.num_rows > done:
                            yield batch.slice(done)
                        done = max(0, done - batch.num_rows)

    def _held(self, column: pa.Array) -> pa.Array:
        """A column as it is kept: numbers as they are, where not all of the file is."""
        kind = column.type
        numbers = pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
        return column if numbers and not self._whole else compact(short_cells(column))

    def column(self, role: str, parts: list[Any]) -> pa.ChunkedArray:
        """Parts of a column one below another."""
        return pa.chunked_array(parts, None if parts else self._kinds.get(self.chosen[role], pa.string()))


def _row_groups(metadata: Any) -> Iterator[list[int]]:
    """Row groups that follow one another, with a batch's rows together or one alone."""
    together: list[int] = []
    rows = 0
    for number in range(metadata.num_row_groups):
        more = metadata.row_group(number).num_rows
        if together and rows + more > _BATCH_ROWS:
            yield together
            together, rows = [], 0
        together.append(number)
        rows += more
    if together:
        yield together


def _read_jester(stream: Any, implicit: bool) -> Columns:
    """Jester's published matrix: a line per user, their number of ratings, then 100 ratings, 99 = not rated.

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
    return columns_of(who, what, values, implicit=implicit)._replace(marks=("by_position",))


def _guess_format(file: File, magic: bytes) -> str:
    """The format by the file's name, else by Parquet's magic bytes in a header's place; never by its rows."""
    suffix = file.suffix
    if suffix in (".parquet", ".pq"):
        return "parquet"
    if file.name.lower().startswith("jester-data"):
        return "jester"
    if suffix in (".data", ".base", ".test"):
        return "movielens-100k"
    if suffix == ".dat":
        return "movielens-dat"
    if magic == b"PAR1":
        return "parquet"
    return "tsv" if suffix == ".tsv" else "csv"
