"""Files of ratings: Parquet, delimited text, MovieLens; one, a folder or a pattern of names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import Any

import numpy as np
import pyarrow as pa

from hushrec.data.arrays import TEXT, as_text, dictionary
from hushrec.data.columns import (
    ROLES,
    Columns,
    Several,
    columns_of,
    find_columns,
    last_position,
    marks_of,
    one_below_another,
    with_purchases,
)
from hushrec.data.ids import encode_ids
from hushrec.data.sources import File, files_at, refuse_other_content, words_of
from hushrec.data.textfiles import DELIMITERS, ByteStream, lines_of, read_fields, read_header
from hushrec.errors import InputError

FORMATS = ("parquet", "csv", "tsv", "movielens-100k", "movielens-dat")
#: Formats of text with a header; a delimiter is the name of one.
WITH_HEADER = ("csv", "tsv", *DELIMITERS, "::", " ")
#: Begins an error about a table, in which a file's name replaces it.
_TABLE = "The table"
_BY_ROW = (
    "These tables number their users by row, so users of two tables cannot be matched; read one table only."
)
_BATCH_ROWS = 1 << 20  # of a Parquet file at a time: a few MB in addition to the kept columns
_FEW_ROWS = 1 << 12  # where their texts are too long to be numbered


def read_path(path: str, columns: Any, format: str | None, implicit: bool) -> Columns:
    return one_by_one(read_files(files_at(path), columns, format, implicit))


def one_by_one(chunks: Iterable[Columns]) -> Columns:
    """Join chunks, which have each distinct id once."""
    tables: list[Columns] = []
    for chunk in chunks:
        tables.append(chunk)
        if len(tables) > 1:
            tables = [
                table._replace(users=encode_ids(table.users), items=encode_ids(table.items, exact=True))
                for table in tables
            ]
    return one_below_another(tables)


def all_found(chunks: Iterable[Columns], columns: Any) -> Iterator[Columns]:
    """Yield the chunks of several tables, and refuse a name that no table has."""
    for chunk in chunks:
        if isinstance(columns, Several) and "by_position" in chunk.marks:
            raise InputError(_BY_ROW)
        yield chunk
    if isinstance(columns, Several):
        columns.check()


def read_files(files: list[File], columns: Any, format: str | None, implicit: bool) -> Iterator[Columns]:
    for file in files:
        for chunk in read_chunks(file, columns, format, implicit):
            if len(files) > 1 and "by_position" in chunk.marks:
                raise InputError(_BY_ROW)
            yield chunk


def read_chunks(file: File, columns: Any, format: str | None, implicit: bool) -> Iterator[Columns]:
    """Read at least one chunk, perhaps without rows, each as if it were alone."""
    kind = file_format(file, format, columns)
    if kind in FORMATS[3:] and not last_position(columns) and columns not in (None, {"time": True}):
        raise InputError(
            f"A file of format {kind} has no column names; leave columns out, or pass positions such as"
            " user=1,item=2.",
            parameter="columns",
        )
    with readable(file, f"{kind} file"):
        if kind == "parquet":
            yield from _parquet_chunks(file, columns, implicit)
            return
        with file.stream() as stream:
            yield from _text_chunks(stream, file, kind, columns, implicit)


#: Endings of files, without that of compression -> their format.
_ENDINGS = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".data", ".base", ".test"), "movielens-100k"),
    ".dat": "movielens-dat",
}
#: Endings of files that are not tables of rows -> their kind.
_OTHER_KINDS = {
    **dict.fromkeys((".zip", ".tar", ".tgz", ".7z", ".rar", ".xz"), "an archive"),
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".ods"), "a spreadsheet"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "JSON"),
    **dict.fromkeys((".sqlite", ".db"), "a database"),
    **dict.fromkeys((".pdf", ".doc", ".docx"), "a document"),
    **dict.fromkeys((".pkl", ".pickle", ".npy", ".npz", ".hush"), "a file of one program"),
}


def file_format(file: File, format: str | None, columns: Any = None) -> str:
    """Return the given format, or that of the name and first bytes."""
    if format is None and file.suffix in _OTHER_KINDS:
        what = _OTHER_KINDS[file.suffix]
        how = "unpack it" if what == "an archive" else "save it as CSV or Parquet, one row per rating"
        raise InputError(f"{file.path!r} is {what} by its name; {how}.")
    magic = file.head(4)
    by_content = "parquet" if magic == b"PAR1" else "tsv" if file.suffix == ".tsv" else "csv"
    kind = format or _ENDINGS.get(file.suffix, by_content)
    if kind not in FORMATS + WITH_HEADER:
        raise InputError(
            f"format must be one of {', '.join(FORMATS)}, or the delimiter of the columns, not {format!r}.",
            parameter="format",
        )
    if kind == "parquet" and magic != b"PAR1":
        refuse_other_content(file)
        raise InputError(
            f"{file.path!r} is no Parquet file by its first bytes; "
            + ("leave the format out." if format else "end its name in .csv if it is text."),
            parameter="format" if format else None,
        )
    if kind in WITH_HEADER and not last_position(columns):  # elsewhere the first bytes may be a user's
        with readable(file, f"{kind} file"):
            refuse_other_content(file)
    return kind


@contextlib.contextmanager
def readable(file: File, kind: str, *, rows: bool = True) -> Iterator[None]:
    """Refuse what cannot be read, in the library's own words if no row can be in them."""
    try:
        yield
    except InputError as error:
        if not error.message.startswith(_TABLE):
            raise
        message = f"{file.path!r}{error.message.removeprefix(_TABLE)}"
        raise InputError(message, parameter=error.parameter, value=error.value) from None
    except (OSError, EOFError, UnicodeDecodeError, pa.ArrowException) as error:
        why = words_of(error, may_hold_a_cell=rows)
        if isinstance(error, pa.ArrowNotImplementedError):
            raise InputError(
                f"pyarrow {pa.__version__} cannot read the {kind} {file.path!r}: {why}. Install a newer one,"
                " or save the file in another format."
            ) from None
        raise InputError(
            f"{file.path!r} is not a readable {kind} ({why}); it may be damaged or cut short."
        ) from None


def parquet_schema(file: File) -> pa.Schema:
    with readable(file, "parquet file", rows=False):
        return _open_parquet(file, _metadata_without_schema(file)).schema_arrow


def _open_parquet(file: File, metadata: Any, **options: Any) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(file.seekable(), metadata=metadata, **options)


def read_parquet(file: File) -> pa.Table:
    metadata = _metadata_without_schema(file)
    table = _open_parquet(file, metadata).read()
    if metadata is None:
        return table
    return pa.table({name: of_128_bits(table.column(name)) for name in table.column_names})


def _metadata_without_schema(file: File) -> Any:
    """Return the metadata without an Arrow schema that Arrow cannot read, else None.

    polars writes integers of 128 bits, 16 bytes each without the schema.
    """
    from pyarrow import parquet

    try:
        parquet.read_schema(file.seekable())
    except pa.ArrowNotImplementedError:
        with file.seekable() as opened:
            opened.seek(-8, 2)
            length = int.from_bytes(opened.read(4), "little")
            opened.seek(-8 - length, 2)
            footer = opened.read().replace(b"ARROW:schema", b"ARROW_schema")
        return parquet.read_metadata(pa.BufferReader(b"PAR1" + footer))
    return None


def of_128_bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.type != pa.binary(16):
        return column
    codes, octets = dictionary(column)
    numbers = [str(int.from_bytes(number, "little", signed=True)) for number in octets.to_pylist()]
    indices = pa.array(codes, mask=codes < 0)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(indices, pa.array(numbers, pa.large_string()))])


def open_text(
    stream: ByteStream, kind: str, columns: Any
) -> tuple[list[str], str, Iterator[bytes], int, dict[str, Any]]:
    """Return what `read_header` does, and options of `read_fields`.

    Without a header no row decides the delimiter, nor how many fields a line has.
    """
    delimiters = {"csv": ",", "tsv": "\t", "movielens-100k": "\t", "movielens-dat": "::"}
    delimiter, quoted = delimiters.get(kind, kind), {"quoted": kind in WITH_HEADER}
    if n_columns := last_position(columns):
        names = [str(number) for number in range(1, n_columns + 1)]
        return names, delimiter, lines_of(stream), 0, {**quoted, "at_least": True}
    if kind in WITH_HEADER:
        return *read_header(stream, None if kind == "csv" else delimiter), quoted
    return list(ROLES[:4]), delimiter, lines_of(stream), 0, quoted


def _text_chunks(stream: Any, file: File, kind: str, columns: Any, implicit: bool) -> Iterator[Columns]:
    names, delimiter, blocks, _, options = open_text(stream, kind, columns)
    chosen = find_columns(with_keys(names, file), columns, implicit)
    inside = [role for role, name in chosen.items() if name in names]
    if "user" not in inside and "item" not in inside:
        raise InputError(f"{file.path!r} has neither a column of users nor one of items.")
    wanted = [names.index(chosen[role]) for role in inside]
    for block in chain([b""], blocks):
        fields, lines = read_fields(block, len(names), wanted, delimiter, **options)
        cells = {
            role: as_text(field) if role in ("user", "item") else field
            for role, field in zip(inside, fields, strict=True)
        }
        length = len(fields[0])
        cells |= {role: _repeated(file, chosen[role], length) for role in chosen if role not in cells}
        yield columns_of(**cells, implicit=implicit)._replace(lines=lines)


def with_keys(names: list[str], file: File) -> list[str]:
    return names + [name for name in file.keys if name not in names]


def _repeated(file: File, name: str, length: int) -> pa.DictionaryArray:
    values = pa.array([file.keys[name]], pa.string())
    return pa.DictionaryArray.from_arrays(np.zeros(length, np.int32), values)


def _parquet_chunks(file: File, columns: Any, implicit: bool) -> Iterator[Columns]:
    schema, metadata = parquet_schema(file), _metadata_without_schema(file)
    chosen = find_columns(with_keys(schema.names, file), with_purchases(schema, columns), implicit)
    inside = [name for name in chosen.values() if name in schema.names]
    for table in _parquet_tables(file, schema, metadata, inside):
        cells = {
            role: table.column(name) if name in inside else _repeated(file, name, len(table))
            for role, name in chosen.items()
        }
        if metadata is not None:
            cells = {role: of_128_bits(column) for role, column in cells.items()}
        chunk = columns_of(**cells, implicit=implicit)
        del table, cells
        yield chunk._replace(marks=(*chunk.marks, *marks_of(schema)))
        del chunk
        pa.default_memory_pool().release_unused()  # Arrow would keep it until the process ends


def _parquet_tables(file: File, schema: pa.Schema, metadata: Any, inside: list[str]) -> Iterator[pa.Table]:
    """Read texts as dictionaries, or few rows at a time if they are too long."""
    done = 0
    texts = [name for name in inside if schema.field(name).type in TEXT]
    try:
        with _open_parquet(file, metadata, read_dictionary=texts) as opened:
            groups = range(opened.metadata.num_row_groups)
            ends = np.cumsum([opened.metadata.row_group(k).num_rows for k in groups]).tolist()
            for _, together in groupby(groups, lambda k: ends[k] // _BATCH_ROWS):
                for batch in opened.iter_batches(_BATCH_ROWS, list(together), inside):
                    yield pa.Table.from_batches([batch])
                    done += batch.num_rows
    except pa.ArrowException:  # or the file is damaged, which the second reading reports again
        with _open_parquet(file, metadata) as again:
            for batch in again.iter_batches(_FEW_ROWS, columns=inside):
                if batch.num_rows > done:
                    yield pa.Table.from_batches([batch.slice(done)])
                done -= min(done, batch.num_rows)
    else:
        if not done:
            yield schema.empty_table()
