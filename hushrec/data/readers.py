"""Any source to columns of users, items, ratings and times, without looking across rows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from hushrec.data.columns import Columns, Several, columns_of, marks_of, pick, with_purchases
from hushrec.data.files import all_found, one_by_one, read_path
from hushrec.data.ids import Encoded, encode_ids, encode_ratings
from hushrec.data.sources import words_of
from hushrec.data.sparse import check_sparse
from hushrec.errors import InputError

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"  # of Arrow's IPC format
_TOGETHER = 1 << 20  # entries of a matrix, or rows of a stream


def read_columns(
    source: Any, columns: Any, format: str | None, implicit: bool, items: pa.Array | None = None
) -> Columns:
    """The columns of a matrix are the items of the given texts. A list holds tables of other columns."""
    if isinstance(source, list) and source and not any(isinstance(table, list) for table in source):
        asked = Several(columns) if len(source) > 1 else columns
        chunks = (read_columns(table, asked, format, implicit, items) for table in source)
        return one_by_one(all_found(chunks, asked))
    if isinstance(source, (str, os.PathLike)):
        return read_path(os.fspath(source), columns, format, implicit)
    if format is not None:
        raise InputError("format is for files; leave it out for a table in memory.")
    users, matrix = source if isinstance(source, tuple) and len(source) == 2 else (None, source)
    if sp.issparse(matrix):
        return _of_matrix(users, matrix, items, implicit)
    if type(source).__module__.partition(".")[0] in ("pandas", "polars"):
        frame = source.collect() if hasattr(source, "collect") else source
        if hasattr(frame, "columns"):
            return pick(list(frame.columns), frame.__getitem__, columns, implicit)
    elif isinstance(source, Mapping):
        return pick(list(source), source.__getitem__, columns, implicit)
    elif isinstance(source, pa.RecordBatch) or hasattr(source, "__arrow_c_stream__"):
        return _of_table(_arrow_table(in_memory(source)), columns, implicit, not is_stream(source))
    elif isinstance(source, tuple) and 2 <= len(source) <= 4 and getattr(source[1], "ndim", 1) == 1:
        return columns_of(*source, implicit=implicit)
    raise InputError(
        f"Ratings cannot be read from {type(source).__name__}; pass the path of a Parquet or CSV file, a data"
        " frame, an Arrow table, a tuple (users, items, ratings), a SciPy sparse matrix or (users, matrix)."
    )


def in_memory(source: Any) -> Any:
    if hasattr(source, "collect"):
        return source.collect()
    return pa.Table.from_batches(*batches(source)) if is_stream(source) else source


def is_stream(source: Any) -> bool:
    is_table = isinstance(source, (pa.Table, pa.RecordBatch, pa.ChunkedArray)) or hasattr(source, "iloc")
    is_frame = is_table or type(source).__module__.startswith("polars")
    return hasattr(source, "__arrow_c_stream__") and not is_frame


def batches(source: Any) -> tuple[Iterator[pa.RecordBatch], pa.Schema]:
    """Return the blocks of a stream and its schema."""
    with _unbroken():
        reader = pa.RecordBatchReader.from_stream(source)

    def read() -> Iterator[pa.RecordBatch]:
        with _unbroken():
            yield from reader

    return read(), reader.schema


def piped(path: str) -> pa.RecordBatchReader:
    """Read an Arrow IPC stream from a pipe, which must end with the format's end mark."""
    pipe = _Pipe(path)

    def read() -> Iterator[pa.RecordBatch]:
        yield from reader
        if pipe.tail != _END_OF_STREAM:
            raise EOFError

    try:
        reader = pa.ipc.open_stream(pa.PythonFile(pipe, "r"))
    except (OSError, pa.ArrowException) as error:
        why = words_of(error, may_hold_a_cell=True)
        raise InputError(
            f"{path!r} is a pipe without an Arrow stream (IPC; {why}); a table of another format is read"
            " twice, so save it as a file first."
        ) from None
    return pa.RecordBatchReader.from_batches(reader.schema, read())


class _Pipe:
    """A pipe that keeps its last bytes, which a killed writer does not write."""

    closed = False

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("rb")  # noqa: SIM115 - open for as long as it is read
        self.tail = b""

    def read(self, size: int) -> bytes:
        chunk = self._file.read(size)
        self.tail = (self.tail + chunk)[-len(_END_OF_STREAM) :]
        return chunk


@contextlib.contextmanager
def _unbroken() -> Iterator[None]:
    try:
        yield
    except (GeneratorExit, InputError):
        raise
    except Exception as error:  # of the database; its text may hold a cell
        raise InputError(
            f"The stream of ratings ended early ({type(error).__name__}), so nothing was stored; run the "
            "query again."
        ) from None


def stream_chunks(source: Any, columns: Any, implicit: bool) -> Iterator[Columns]:
    """Read some blocks at a time; at least once."""
    record_batches, schema = batches(source)
    held: list[pa.RecordBatch] = []
    for batch in chain(record_batches, [None]):
        if batch is not None:
            held.append(batch)
        if batch is None or sum(block.num_rows for block in held) >= _TOGETHER:
            yield _of_table(pa.Table.from_batches(held, schema), columns, implicit, is_ordered=False)
            held = []


def _of_table(table: pa.Table, columns: Any, implicit: bool, is_ordered: bool = True) -> Columns:
    picked = pick(table.column_names, table.column, with_purchases(table.schema, columns), implicit)
    return picked._replace(marks=(*picked.marks, *marks_of(table.schema)), is_ordered=is_ordered)


def _arrow_table(source: Any) -> pa.Table:
    try:
        return source if isinstance(source, pa.Table) else pa.table(source)
    except (TypeError, ValueError, pa.ArrowException):
        raise InputError(f"An Arrow table is needed, not {type(source).__name__}.") from None


def _of_matrix(users: Any, matrix: Any, texts: pa.Array | None, implicit: bool) -> Columns:
    """Read stored entries as ratings, explicit zeros too; as likes those above 0."""
    check_sparse(matrix)
    if matrix.ndim != 2 or (texts is not None and matrix.shape[1] != len(texts)):
        raise InputError(
            "The matrix needs a row for each user and a column for each item of the catalogue, in the same"
            f" order; it has {matrix.shape[-1]} columns."
        )
    rows = encode_ids(range(matrix.shape[0]) if users is None else users)
    if len(rows) != matrix.shape[0]:
        raise InputError("There must be one user id for each row of the matrix.")
    entries = matrix.tocoo(copy=False)  # read, and copied below
    ratings = encode_ratings(entries.data)  # first, while the others take no memory
    codes, items = np.empty(entries.nnz, rows.codes.dtype), entries.col
    for start in range(0, len(codes), _TOGETHER):  # NumPy makes places of 8 octets of them
        codes[start : start + _TOGETHER] = rows.codes[entries.row[start : start + _TOGETHER]]
    del entries
    if texts is not None:
        items = Encoded(items.astype(np.int32), texts, texts)
    if implicit:  # a stored zero is no like
        ratings = np.where(ratings > 0, np.float32(1), np.float32(np.nan))
    ids = Encoded(codes, rows.values, rows.texts)
    return Columns(ids, items, ratings, marks=("by_position",) if users is None else ())
