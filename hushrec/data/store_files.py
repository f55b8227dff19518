"""Files of a store: its manifest, its catalogue, and partitions of users, which are mapped into memory.

Arrow IPC files, and a manifest that is written last (docs/guides/scaling.md). A record batch is a block of
users with a list of ratings each.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hushrec.data.catalogue import pack, unpack
from hushrec.data.columns import fields_of
from hushrec.data.domain import Domain
from hushrec.data.ids import Encoded
from hushrec.data.ratings_builder import Rows, csr
from hushrec.data.times import NO_TIME
from hushrec.errors import InputError

VERSION = 1
MANIFEST, CATALOGUE = "manifest.json", "catalogue.arrow"
PRIVATE_STORE = "PRIVATE: the ratings of all users; nothing in this folder may be published"
_FORMAT = "hushrec.store"
#: Number of ratings in a block, unless one user has more: the unit of work of one thread.
BLOCK_RATINGS = 1 << 21
#: Number of partitions that stay mapped: far below the limit of open files.
_OPEN_FILES = 64
#: Stored value of a missing time, if times have 32 bits.
_UNKNOWN_TIME = (1 << 32) - 1


def is_store(path: Any) -> bool:
    return isinstance(path, (str, Path)) and (Path(path) / MANIFEST).is_file()


def opened(path: Path, domain: Domain | None = None) -> tuple[dict[str, Any], Domain]:
    manifest = _read_manifest(path)
    stored = _domain_of(str(path), manifest["checksum"])
    if domain is not None and domain.fingerprint != stored.fingerprint:
        raise InputError(
            f"The store {str(path)!r} was prepared with another catalogue, rating range or cap; leave"
            " them out, or prepare the ratings again with these."
        )
    return manifest, stored if domain is None else domain


def verify(path: Path, manifest: Mapping[str, Any]) -> None:
    with ThreadPoolExecutor() as pool:
        for _ in pool.map(lambda entry: check_file(path / entry["file"], entry), manifest["partitions"]):
            pass


def block_of(path: Path, manifest: Mapping[str, Any], partition: int, number: int, n_items: int) -> Rows:
    entry = manifest["partitions"][partition]
    file = _mapped(str(path / entry["file"]), entry["bytes"], manifest["checksum"])
    rows = file.rows(number, n_items, manifest["ids"])
    if rows.times is None and manifest["times"]:
        rows = rows._replace(times=np.full(rows.matrix.nnz, NO_TIME))
    return rows._replace(**fields_of(manifest["marks"]))


def verified_blocks(path: Path, domain: Domain) -> list[Rows]:
    manifest, domain = opened(path, domain)
    verify(path, manifest)
    blocks = [(at, k) for at, entry in enumerate(manifest["partitions"]) for k in range(entry["blocks"])]
    return [block_of(path, manifest, *block, domain.n_items) for block in blocks]


# ---------------------------------------------------------------------- the manifest


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    return json.dumps({**manifest, "checksum": _checksum(manifest)}, indent=1).encode()


def _checksum(manifest: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def new_manifest(domain: Domain, partitions: list[dict[str, Any]], **marks: Any) -> dict[str, Any]:
    declared, _ = pack(domain)
    return {
        "format": _FORMAT,
        "version": VERSION,
        "note": PRIVATE_STORE,
        "domain": declared,
        **marks,
        "partitions": partitions,
    }


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
    except OSError:
        raise InputError(
            f"There is no store at {str(path)!r}: no manifest; `hushrec prepare` makes one."
        ) from None
    except ValueError:
        raise InputError(f"The manifest of the store {str(path)!r} is damaged; prepare it again.") from None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise InputError(f"{str(path)!r} is not a hushrec store; `hushrec prepare` makes one.")
    if manifest.get("version") != VERSION:
        raise InputError(
            f"The store {str(path)!r} is of version {manifest.get('version')!r}, and this hushrec reads"
            f" version {VERSION}; prepare the ratings again."
        )
    if manifest.get("checksum") != _checksum(manifest):
        raise InputError(f"The manifest of the store {str(path)!r} is damaged; prepare it again.")
    return manifest


@lru_cache(maxsize=4)
def _domain_of(path: str, checksum: str) -> Domain:
    manifest = _read_manifest(Path(path))
    file = Path(path) / CATALOGUE
    check_file(file, manifest["catalogue"])
    table = pa.ipc.open_file(pa.py_buffer(file.read_bytes())).read_all()
    ids = table.column("id").combine_chunks()
    offsets = np.frombuffer(ids.buffers()[1], np.int64)[: len(ids) + 1]
    text = np.frombuffer(ids.buffers()[2] or b"", np.uint8)[: offsets[-1]]
    kinds = table.column("kind").to_numpy()
    return unpack(manifest["domain"], {"text": text, "offsets": offsets, "kinds": kinds})


def catalogue_bytes(domain: Domain) -> bytes:
    _, arrays = pack(domain)
    offsets, text = pa.py_buffer(arrays["offsets"].astype(np.int64)), pa.py_buffer(arrays["text"])
    ids = pa.Array.from_buffers(pa.large_binary(), domain.n_items, [None, offsets, text])
    return arrow_bytes([pa.record_batch({"id": ids, "kind": pa.array(arrays["kinds"])})])


def check_file(path: Path, entry: Mapping[str, Any]) -> None:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError as error:
        raise _lost(path, error.strerror or "it cannot be read") from None
    if digest.hexdigest() != entry["sha256"]:
        raise _lost(path, "it is not as it was written")


def _lost(path: Path, why: str) -> InputError:
    return InputError(
        f"{path.name!r} of the store {str(path.parent)!r} is missing or damaged ({why}); prepare it again."
    )


# ---------------------------------------------------------------------- a partition


def arrow_bytes(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def partition_batches(rows: Rows) -> list[pa.RecordBatch]:
    """Return at least one record batch, each a block of users."""
    matrix = rows.matrix
    metadata: dict[str, Any] = {}
    columns: dict[str, np.ndarray] = {"item": matrix.indices}
    bits = pa.array(matrix.data.view(np.int32)).dictionary_encode()  # -0 is another number than 0
    values = bits.dictionary.to_numpy().view(np.float32)
    if len(values) > 256:
        columns["rating"] = matrix.data
    else:
        metadata["values"] = [float(value) for value in values]
        if len(values) > 1:
            columns["rating"] = bits.indices.to_numpy().astype(np.uint8)
    if rows.times is not None:
        columns["time"], metadata["first_time"] = _packed_times(rows.times)
    fields = [pa.field(name, pa.from_numpy_dtype(array.dtype), False) for name, array in columns.items()]
    ids = id_columns(Encoded(np.zeros(0), rows.user_values, rows.user_texts))
    batches = []
    for start, stop in _block_ends(matrix.indptr):
        first, last = matrix.indptr[start], matrix.indptr[stop]
        parts = [pa.array(array[first:last]) for array in columns.values()]
        offsets = pa.array(matrix.indptr[start : stop + 1].astype(np.int64) - first)
        ratings = pa.LargeListArray.from_arrays(offsets, pa.StructArray.from_arrays(parts, fields=fields))
        users = {name: column.slice(start, stop - start) for name, column in ids.items()}
        batches.append(pa.record_batch({**users, "ratings": ratings}))
    marked = {b"hushrec": json.dumps(metadata).encode()}
    return [batch.replace_schema_metadata(marked) for batch in batches]


def _block_ends(indptr: np.ndarray) -> list[tuple[int, int]]:
    n_users, start = len(indptr) - 1, 0
    ends: list[tuple[int, int]] = []
    while start < n_users or not ends:
        stop = int(np.searchsorted(indptr, indptr[start] + BLOCK_RATINGS, side="right")) - 1
        stop = min(max(stop, start + 1), n_users)
        ends.append((start, stop))
        start = stop
    return ends


def id_columns(users: Encoded) -> dict[str, pa.Array]:
    """Return ids as given if they are integers or text, and canonical texts."""
    texts = users.texts
    values: Any = users.values
    if isinstance(values, pa.Array) and pa.types.is_integer(values.type):
        return {"user": values}
    columns = {"text": texts}
    is_text = isinstance(values, pa.Array) and values.type in (pa.string(), pa.large_string())
    if is_text and not values.cast(pa.large_string()).equals(texts):
        columns["user"] = values.cast(pa.large_string())
    return columns


def _packed_times(times: np.ndarray) -> tuple[np.ndarray, int]:
    known = times != NO_TIME
    first = int(times[known].min(initial=np.iinfo(np.int64).max)) if known.any() else 0
    last = int(times[known].max()) if known.any() else 0
    if last - first >= _UNKNOWN_TIME:
        return times, 0
    return np.where(known, np.where(known, times, first) - first, _UNKNOWN_TIME).astype(np.uint32), first


class _Mapped:
    """A partition's file, mapped into memory."""

    def __init__(self, path: str, size: int, checksum: str) -> None:
        try:
            with Path(path).open("rb") as file:
                # a private mapping counts as writable, for which numba has compiled; nothing writes to it
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            if len(self._map) != size:
                raise ValueError
            manifest = (Path(path).parent / MANIFEST).read_bytes()
            buffer = pa.py_buffer(self._map)
            self._start = buffer.address
            self._reader = pa.ipc.open_file(buffer)
            self._metadata = json.loads(self._reader.schema.metadata[b"hushrec"])
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            raise _lost(Path(path), "it cannot be mapped") from None
        if checksum.encode() not in manifest:  # read after the file: the digests were checked before
            raise _lost(Path(path), "another store took its place")
        self._lock = threading.Lock()

    @cached_property
    def _values(self) -> np.ndarray:
        return np.array(self._metadata["values"], np.float32)

    def rows(self, number: int, n_items: int, ids: str) -> Rows:
        with self._lock:
            batch = self._reader.get_batch(number)
        ratings = batch.column("ratings")
        fields = {field.name: ratings.values.field(field.name) for field in ratings.type.value_type}
        items = self._array(fields["item"])
        if "rating" not in fields:
            data = np.full(len(items), self._values[0] if len(self._values) else 0, np.float32)
        elif fields["rating"].type == pa.uint8():
            data = self._values[self._array(fields["rating"])]
        else:
            data = self._array(fields["rating"])
        times = self._array(fields["time"]) if "time" in fields else None
        if times is not None and times.dtype == np.uint32:
            times = np.where(times == _UNKNOWN_TIME, NO_TIME, times + np.int64(self._metadata["first_time"]))
        names = batch.schema.names
        values = batch.column("user" if "user" in names else "text")
        texts = batch.column("text") if "text" in names else values.cast(pa.large_string())
        matrix = csr(data, items, ratings.offsets.to_numpy(), n_items)
        kind = pa.type_for_alias(ids)
        ids_given = values if pa.types.is_integer(kind) == pa.types.is_integer(values.type) else texts
        return Rows(matrix, ids_given.cast(kind), texts, times)

    def _array(self, column: pa.Array) -> np.ndarray:
        data = column.buffers()[1]
        kind = np.dtype(column.type.to_pandas_dtype())
        if not len(column):
            return np.zeros(0, kind)
        return np.frombuffer(self._map, kind, len(column), data.address - self._start)


_mapped = lru_cache(maxsize=_OPEN_FILES)(_Mapped)
