"""Files of ratings: Parquet, delimited text, MovieLens, Jester; one, a folder or a pattern of names."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hushrec.data.ids import as_text, compact, encode_ids, join_ids, parse_rating
from hushrec.data.readers import ROLES, Columns, columns_of, find_columns, marks_of
from hushrec.data.textfiles import MAX_LINE_BYTES, ByteStream, lines_of, read_fields, read_header
from hushrec.data.times import encode_times, join_times
from hushrec.errors import InputError

FORMATS = ("parquet", "csv", "tsv", "movielens-100k", "movielens-dat", "jester")
WITH_HEADER = ("csv", "tsv")
N_JOKES = 100  # of Jester's published matrix
_MISSING_JOKE = 99.0  # how Jester writes "not rated"
_BATCH_ROWS = 1 << 20  # of a Parquet file at a time: a few MB beside the columns that are kept
_COMPRESSED = (".gz", ".bz2", ".zst")
_TABLES = (".parquet", ".pq", ".csv", ".tsv")


def read_path(path: str, columns: Any, format: str | None, implicit: bool) -> Columns:
    """Columns of a file, or of those in a folder or of a pattern, one below another."""
    files = files_at(path)
    if len(files) == 1:
        return _read_file(files[0], columns, format, implicit)
    return _one_below_another([_encoded(_read_file(file, columns, format, implicit)) for file in files])


def files_at(path: str) -> list[Path]:
    """In the order of their names, which is the order of their rows."""
    if Path(path).is_dir():
        inside = (file for file in sorted(Path(path).rglob("*")) if not file.name.startswith((".", "_")))
        found = [file for file in inside if _suffix(file) in _TABLES]
        if not found:
            raise InputError(f"The folder {path!r} holds no Parquet, CSV or TSV file of ratings.")
        return found
    if glob.has_magic(path) and not Path(path).exists():
        found = [Path(name) for name in sorted(glob.glob(path, recursive=True))]  # noqa: PTH207
        if not found:
            raise InputError(f"No file matches {path!r}.")
        return found
    return [Path(path)]


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


def file_format(path: Path, format: str | None) -> str:
    """The format that was asked for, or that the file's name and first bytes tell; its rows do not."""
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    kind = _guess_format(path, magic) if format is None else format
    if kind not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, not {format!r}.", parameter="format")
    return kind


def _read_file(path: Path, columns: Any, format: str | None, implicit: bool) -> Columns:
    kind = file_format(path, format)
    unnamed = {"movielens-100k": ({"time": True},), "movielens-dat": ({"time": True},), "jester": ()}
    if kind in unnamed and columns is not None and columns not in unnamed[kind]:
        raise InputError(
            f"A file of format {kind} has no column names; leave columns out.", parameter="columns"
        )
    try:
        if kind == "parquet":
            return _read_parquet(path, columns, implicit)
        with pa.input_stream(str(path), compression="detect") as stream:
            if kind == "jester":
                return _read_jester(stream, implicit)
            return _read_text(stream, kind, columns, implicit)
    except InputError:
        raise
    except (OSError, EOFError, UnicodeDecodeError, pa.ArrowException):
        raise InputError(
            f"{str(path)!r} is not a readable {kind} file; it may be damaged or cut short."
        ) from None


def open_text(stream: ByteStream, kind: str) -> tuple[list[str], str, Iterator[bytes]]:
    """Column names, delimiter and the blocks of lines after any header."""
    if kind in WITH_HEADER:
        return read_header(stream, "\t" if kind == "tsv" else None)
    return list(ROLES), "\t" if kind == "movielens-100k" else "::", lines_of(stream)


def _read_text(stream: Any, kind: str, columns: Any, implicit: bool) -> Columns:
    names, delimiter, blocks = open_text(stream, kind)
    chosen = find_columns(names, columns, implicit)
    wanted = [names.index(name) for name in chosen.values()]
    quoted = kind in WITH_HEADER and delimiter != "::"
    cells = dict(zip(chosen, read_fields(blocks, len(names), wanted, delimiter, quoted)))
    users, items = as_text(cells["user"]), as_text(cells["item"])
    return columns_of(users, items, cells.get("rating"), cells.get("time"), implicit=implicit)


def _read_parquet(path: Path, columns: Any, implicit: bool) -> Columns:
    from pyarrow import parquet

    schema = parquet.read_schema(path)
    chosen = find_columns(schema.names, columns, implicit)
    kinds = {role: schema.field(name).type for role, name in chosen.items()}
    text = [chosen[r] for r, kind in kinds.items() if pa.types.is_string(kind) or pa.types.is_binary(kind)]
    parts: dict[str, list[Any]] = {role: [] for role in chosen}
    with parquet.ParquetFile(path, read_dictionary=text) as file:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=list(chosen.values())):
            for role, name in chosen.items():
                column = batch.column(name)
                parts[role].append(encode_times(column) if role == "time" else compact(column))
            del batch, column
            pa.default_memory_pool().release_unused()  # Arrow would keep it until the process ends
    times = np.concatenate([np.zeros(0, np.int64), *parts.pop("time")]) if "time" in chosen else None
    found = [pa.chunked_array(part or [], None if part else kinds[role]) for role, part in parts.items()]
    table = columns_of(*found, *[None] * implicit, implicit=implicit)
    return table._replace(times=times, marks=marks_of(schema))


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
    return columns_of(who, what, values, implicit=implicit)._replace(marks=("by_position",))


def _guess_format(path: Path, magic: bytes) -> str:
    """The format by the file's name, else by Parquet's magic bytes in a header's place; never by its rows."""
    suffix = _suffix(path)
    if suffix in (".parquet", ".pq"):
        return "parquet"
    if path.name.lower().startswith("jester-data"):
        return "jester"
    if suffix in (".data", ".base", ".test"):
        return "movielens-100k"
    if suffix == ".dat":
        return "movielens-dat"
    if magic == b"PAR1":
        return "parquet"
    return "tsv" if suffix == ".tsv" else "csv"


def _suffix(path: Path) -> str:
    name = path.name.lower()
    for compression in _COMPRESSED:
        name = name.removesuffix(compression)
    return Path(name).suffix
