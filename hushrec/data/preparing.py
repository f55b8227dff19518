"""Tables of any size to a store: rows are dealt to partitions of users, then each partition is cleaned alone.

A user's rows are in one partition, in the order of the input, so the same rows stay as in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hushrec.checks import check_count
from hushrec.data import store_files
from hushrec.data.arrays import dictionary
from hushrec.data.columns import Columns, Several, one_below_another
from hushrec.data.domain import Domain, check_domain
from hushrec.data.files import all_found, file_format, read_files
from hushrec.data.ids import Encoded, encode_ids, take
from hushrec.data.integers import Places, id_hashes
from hushrec.data.ratings_builder import Rows, check_implicit, latest, rows_of, usable
from hushrec.data.readers import is_stream, piped, read_columns, stream_chunks
from hushrec.data.sources import File, files_at
from hushrec.disk import hold, is_held, sync_folder
from hushrec.errors import InputError
from hushrec.progress import progress_bar

_CLEANED_ROWS = 1 << 23  # about so many rows are cleaned at a time by all threads, in some 800 MB
_FOLDED_ROWS = 1 << 22  # of more rows in one partition only the latest of a pair are kept on the way
_HELD_ROWS = 1 << 24  # rows that wait for their partition's file, in some 300 MB: few large writes
#: Default number of partitions, for any rows, so a folder's shape reveals nothing.
PARTITIONS = 32
_MOST_PARTITIONS = 4096  # files of a folder
_ROW_BYTES = 12  # about, of a row in a text file
_LOCK = "lock"
_WORKERS = min(4, os.cpu_count() or 1)


def write_store(
    source: Any,
    out: str | os.PathLike[str],
    domain: Domain,
    *,
    columns: Any = None,
    format: str | None = None,
    implicit: bool = False,
    partitions: int | None = None,
    force: bool = False,
    progress: bool = False,
) -> Path:
    check_domain(domain)
    implicit = implicit or domain.likes
    if implicit:
        check_implicit(domain, columns)
    if partitions is not None and check_count("partitions", partitions) > _MOST_PARTITIONS:
        raise InputError(f"partitions must be at most {_MOST_PARTITIONS:,}.", parameter="partitions")
    target = Path(out).absolute()
    _check_target(target, force)
    chunks, rows = _chunks(source, domain, columns, format, implicit)
    bar = progress_bar(progress, rows, "preparing (private)")
    with _workspace(target) as folder, bar as advance:
        count = partitions or PARTITIONS
        marks, rows = _deal_out(chunks, domain, folder, count, advance)
        entries = _clean_all(domain, folder, count, rows // count, "unordered" not in marks)
        _finish(domain, folder, entries, marks)
        _check_target(target, force)  # another one may have been faster
        _put(folder, target)
    return target


# ---------------------------------------------------------------------- reading


def _chunks(
    source: Any, domain: Domain, columns: Any, format: str | None, implicit: bool
) -> tuple[Iterable[Columns], int]:
    """Return chunks, and about how many rows there are; 0 of a stream."""
    if isinstance(source, Columns):
        return [source], len(source.ratings)
    if isinstance(source, list) and len(source) == 1:
        source = source[0]
    if isinstance(source, (str, os.PathLike)):
        with contextlib.suppress(OSError):  # refused below
            source = piped(os.fspath(source)) if Path(source).is_fifo() else source
    if is_stream(source) and format is None:
        return stream_chunks(source, columns, implicit), 0
    paths = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(paths, list) or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        chunk = read_columns(source, columns, format, implicit, domain.item_texts)
        return [chunk], len(chunk.ratings)
    files = [file for path in paths for file in files_at(os.fspath(path))]
    if not files:
        raise InputError("There are no files to read; pass at least one path.")
    rows = sum(_rows_of(file, file_format(file, format, columns)) for file in files)
    asked = Several(columns) if len(paths) > 1 else columns
    return all_found(read_files(files, asked, format, implicit), asked), rows


def _rows_of(file: File, kind: str) -> int:
    if kind == "parquet":
        from pyarrow import parquet

        try:
            return parquet.read_metadata(file.seekable()).num_rows
        except (OSError, pa.ArrowException):
            return 0  # reported while reading
    return file.size() // _ROW_BYTES


# ---------------------------------------------------------------------- first pass: rows to partitions


def _deal_out(
    chunks: Iterable[Columns], domain: Domain, folder: Path, count: int, advance: Callable[[int], object]
) -> tuple[set[str], int]:
    """Append every row to its user's partition; return marks, also "times" and "unordered", and a count."""
    marks: set[str] = set()
    held: dict[int, list[pa.RecordBatch]] = {}
    rows, total, places = 0, 0, Places(domain.item_texts)
    with ThreadPoolExecutor(_WORKERS) as pool:
        for chunk, pieces in _ahead(pool, partial(_dealt, places=places, count=count), chunks):
            for number, piece in pieces:
                held.setdefault(number, []).append(piece)
            rows += len(chunk.ratings)
            total += len(chunk.ratings)
            if rows >= _HELD_ROWS:
                rows = _spill_all(pool, folder, held)
            marks |= {*chunk.marks, *(["times"] if chunk.times is not None else [])}
            marks |= set() if chunk.is_ordered else {"unordered"}
            advance(len(chunk.ratings))
        _spill_all(pool, folder, held)
    return marks, total


def _spill_all(pool: ThreadPoolExecutor, folder: Path, held: dict[int, list[pa.RecordBatch]]) -> int:
    def spill(number: int) -> None:
        with (folder / _spill(number)).open("ab") as file:
            for schema, group in groupby(held[number], attrgetter("schema")):
                table = pa.Table.from_batches(list(group)).combine_chunks()
                with pa.ipc.new_stream(file, schema) as out:
                    out.write_table(table)

    list(pool.map(spill, held))
    held.clear()
    return 0


def _ahead(pool: ThreadPoolExecutor, function: Callable[[Any], Any], inputs: Iterable[Any]) -> Iterator[Any]:
    waiting: deque[tuple[Any, Future[Any]]] = deque()
    for chunk in inputs:
        waiting.append((chunk, pool.submit(function, chunk)))
        if len(waiting) > _WORKERS:
            chunk, future = waiting.popleft()
            yield chunk, future.result()
    while waiting:
        chunk, future = waiting.popleft()
        yield chunk, future.result()


def _dealt(chunk: Columns, places: Places, count: int) -> list[tuple[int, pa.RecordBatch]]:
    items = places.of(chunk.items)
    users, hashes = id_hashes(chunk.users)
    part = (hashes % np.uint64(count)).astype(np.int16)  # which holds `_MOST_PARTITIONS`
    if isinstance(users, Encoded):
        part[users.codes < 0] = -1
    order = np.argsort(part, kind="stable")
    ends = np.searchsorted(part[order], np.arange(count + 1))
    order = order[ends[0] :]
    if isinstance(users, Encoded):
        codes = pa.array(users.codes[order])
        table = {name: column.take(codes) for name, column in store_files.id_columns(users).items()}
        if not chunk.is_ordered and "text" in table:
            table.pop("user", None)  # of ids that read the same, one would be the first
    else:
        table = {"user": pa.array(users[order])}
    table |= {"item": pa.array(items[order]), "rating": pa.array(chunk.ratings[order])}
    if chunk.times is not None:
        table["time"] = pa.array(chunk.times[order])
    if chunk.quantities is not None:
        table["quantity"] = pa.array(chunk.quantities[order])
    batch, starts = pa.record_batch(table), ends - ends[0]
    sizes = np.diff(starts)
    return [(int(k), batch.slice(starts[k], sizes[k])) for k in np.flatnonzero(sizes)]


# ---------------------------------------------------------------------- second pass: each partition


def _clean_all(domain: Domain, folder: Path, count: int, rows: int, is_ordered: bool) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(min(_WORKERS, _CLEANED_ROWS // max(rows, 1)) or 1) as pool:
        return list(pool.map(partial(_clean, domain, folder, is_ordered), range(count)))


def _clean(domain: Domain, folder: Path, is_ordered: bool, number: int) -> dict[str, Any]:
    spilled, name = folder / _spill(number), f"part-{number:05d}.arrow"
    rows = _rows_of_spill(domain, spilled, is_ordered)
    batches = store_files.partition_batches(rows)
    kind = getattr(rows.user_values, "type", None)
    entry = _write(folder / name, store_files.arrow_bytes(batches))
    spilled.unlink(missing_ok=True)
    return entry | {
        "users": rows.matrix.shape[0],
        "ratings": int(rows.matrix.nnz),
        "blocks": len(batches),
        "ids": str(kind if kind is not None and pa.types.is_integer(kind) else pa.large_string()),
    }


def _rows_of_spill(domain: Domain, path: Path, is_ordered: bool) -> Rows:
    held: list[Columns] = []
    for run in _runs(path):
        held.append(usable(domain, _columns_of(run, is_ordered)))
        if sum(len(columns.items) for columns in held) > _FOLDED_ROWS:
            held = [latest(one_below_another(held), domain.n_items)]
    if not held:
        none, ids = np.zeros(0, np.int32), pa.array([], pa.large_string())
        held = [Columns(Encoded(none, ids, ids), none, np.zeros(0, np.float32))]
    return rows_of(domain, latest(one_below_another(held), domain.n_items))


def _runs(path: Path) -> Iterator[pa.Table]:
    """Yield the rows of a partition in input order, those of one type together."""
    if not path.exists():
        return
    run: list[pa.RecordBatch] = []
    with path.open("rb") as file:
        end = path.stat().st_size
        while file.tell() < end:
            batch = pa.ipc.open_stream(file).read_all().combine_chunks().to_batches()[0]
            if run and (batch.schema != run[0].schema or sum(b.num_rows for b in run) > _FOLDED_ROWS):
                yield pa.Table.from_batches(run)
                run = []
            run.append(batch)
    if run:
        yield pa.Table.from_batches(run)


def _columns_of(table: pa.Table, is_ordered: bool) -> Columns:
    names = table.column_names
    if "text" in names:
        codes, texts = dictionary(table.column("text"))
        values = texts
        if "user" in names:
            first = np.full(len(texts), len(codes))
            np.minimum.at(first, codes, np.arange(len(codes)))
            values = take(table.column("user").combine_chunks(), first)
        users = Encoded(codes, values, texts)
    else:
        users = encode_ids(table.column("user"))
    ratings = np.array(table.column("rating").to_numpy())
    times, quantities = (
        table.column(name).to_numpy() if name in names else None for name in ("time", "quantity")
    )
    return Columns(users, table.column("item").to_numpy(), ratings, times, quantities, is_ordered=is_ordered)


# ---------------------------------------------------------------------- the folder


def _check_target(target: Path, force: bool) -> None:
    if target.exists():
        if not store_files.is_store(target) and not (target.is_dir() and not any(target.iterdir())):
            raise InputError(f"{str(target)!r} exists and is not a store; pass another name.")
        if store_files.is_store(target) and not force:
            raise InputError(f"{str(target)!r} exists and would be replaced", parameter="force", value=True)
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise InputError(
            f"Cannot write to {str(target.parent)!r}; pass a path in a folder that exists and is writable."
        )


@contextlib.contextmanager
def _workspace(target: Path) -> Iterator[Path]:
    """Yield a temporary folder; the next preparation removes that of a killed process."""
    for old in target.parent.glob(f".{target.name}.*.preparing"):
        if (old / _LOCK).exists() and not is_held(old / _LOCK):
            shutil.rmtree(old, ignore_errors=True)
    try:
        folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".preparing"))
        (folder / _LOCK).touch()
        held = None
        with contextlib.suppress(OSError):  # a file system without locks
            held = hold(folder / _LOCK)
        with contextlib.nullcontext() if held is None else held:
            yield folder
    except OSError as error:
        raise InputError(
            f"Cannot write {str(target)!r} ({error.strerror or error}); free space or pass another path."
        ) from None
    finally:
        with contextlib.suppress(NameError, OSError):
            shutil.rmtree(folder, ignore_errors=True)


def _finish(domain: Domain, folder: Path, entries: list[dict[str, Any]], marks: set[str]) -> None:
    kinds = {kind for entry in entries if (kind := entry.pop("ids")) and entry["users"]}
    manifest = store_files.new_manifest(
        domain,
        entries,
        catalogue=_write(folder / store_files.CATALOGUE, store_files.catalogue_bytes(domain)),
        ids=kinds.pop() if len(kinds) == 1 else "large_string",
        times="times" in marks,  # even without any row
        marks=sorted(marks),
    )
    _write(folder / store_files.MANIFEST, store_files.manifest_bytes(manifest))
    sync_folder(folder)


def _put(folder: Path, target: Path) -> None:
    if store_files.is_store(target):
        old = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".preparing"))
        (old / _LOCK).touch()
        target.replace(old / "old")
        folder.replace(target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        folder.replace(target)
    (target / _LOCK).unlink(missing_ok=True)
    sync_folder(target.parent)


def _write(path: Path, content: Any) -> dict[str, Any]:
    octets = memoryview(content)
    with path.open("wb") as file:
        file.write(octets)
        file.flush()
        os.fsync(file.fileno())
    return {"file": path.name, "bytes": len(octets), "sha256": hashlib.sha256(octets).hexdigest()}


def _spill(number: int) -> str:
    return f"rows-{number:05d}.spill"
