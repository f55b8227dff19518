"""Lists for all users, in parts; memory is bounded."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa

from hushrec.checks import check_options
from hushrec.data import Ratings, Store
from hushrec.data.ratings import of_nobody
from hushrec.data.store import Partition
from hushrec.errors import InputError
from hushrec.kernels import threads
from hushrec.kernels.threads import one_blas_thread
from hushrec.progress import progress_bar
from hushrec.serving.attributes import Attributes
from hushrec.serving.item_lists import known_lists
from hushrec.serving.recommend import LIST_OPTIONS, ListOptions, Recommender

#: Metadata of every file of lists.
PRIVATE_TABLE = "PRIVATE: each user's rows are for that user alone; publish none of them together"
#: Users of one file of lists: about 100 MB at 20 items each.
_USERS_PER_PART = 1 << 17


def write_lists(
    model: Recommender,
    history: Ratings | Store,
    folder: str | os.PathLike[str],
    n: int = 10,
    *,
    progress: bool = False,
    engine: Any = None,
    **options: Unpack[ListOptions],
) -> list[Path]:
    """Write the best items for every user to a folder of Parquet files; memory is bounded.

    Parameters
    ----------
    model : Model
    history : Ratings or Store
    folder : path
        New or empty. It appears when all files are written.
    progress : bool
        Show the fraction of users served, and the time: private.
    engine : Dask, optional
        Its workers serve the partitions of a store and write into the folder.
    n, **options
        As in :meth:`Model.recommend`.

    Returns
    -------
    list of path
        With the columns of :meth:`Model.recommend_batch`, marked private inside.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> model = hushrec.Popular().fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> [path.suffix for path in hushrec.write_lists(model, ratings, "lists", n=3)]       # private
    ['.parquet']
    """
    check_options("write_lists", options, LIST_OPTIONS)
    target = Path(folder).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{str(folder)!r} exists and is not empty; pass the name of a new folder.")
    if engine is not None and not isinstance(history, Store):
        raise InputError("An engine works on a store; make one with Store.prepare or hushrec prepare.")
    parts, *public = _planned(model, history, {**options, "n": n})
    bar = progress_bar(progress, history.n_users, "lists (private)")
    with _made(target) as made, bar as advance, one_blas_thread():
        if engine is not None:
            names = engine.each(_write_there, (history,), (model, made, *public))
            for stray in made.glob("*.tmp"):  # of workers that failed
                stray.unlink(missing_ok=True)
            return [target / name for name in names]
        write = partial(_write, advance, (model, made, *public))
        with ThreadPoolExecutor(threads.count()) as pool:
            names = list(pool.map(write, range(len(parts)), parts))
    return [target / name for name in names]


def stream_lists(
    model: Recommender, history: Ratings | Store, n: int = 10, **options: Unpack[ListOptions]
) -> pa.RecordBatchReader:
    """Return the best items for every user as a stream of Arrow record batches; memory is bounded.

    Parameters and columns as in `write_lists`. PRIVATE: each user's rows are for that user alone.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> model = hushrec.Popular().fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> hushrec.serving.stream_lists(model, ratings, n=3).read_all().column_names         # private
    ['user', 'item', 'rank', 'score']
    """
    check_options("stream_lists", options, LIST_OPTIONS)
    parts, schema, chosen = _planned(model, history, {**options, "n": n})
    blocks = (read() for part in parts for read in part)
    tables = (_lists(model, rows, schema, chosen) for rows in blocks)
    return pa.RecordBatchReader.from_batches(
        schema, (batch for table in tables for batch in table.to_batches())
    )


def _planned(
    model: Recommender, history: Ratings | Store, options: dict[str, Any]
) -> tuple[list[list[Callable[[], Ratings]]], pa.Schema, dict[str, Any]]:
    if options.get("attributes") is not None:
        options |= {"attributes": Attributes.read(options["attributes"], model.domain)}
    names = "items", "exclude_items"
    known = known_lists(model.domain, *(options.get(name) for name in names))
    for name, columns in zip(names, known, strict=True):
        options[name] = None if columns is None else [model.domain.items[place] for place in columns]
    schema = model.recommend_batch(of_nobody(model.domain), **options).schema  # refuses wrong options
    parts = _parts(history)
    users = schema.field("user").with_type(parts[0][0]().user_column.type)
    return parts, schema.set(0, users).with_metadata({"hushrec": PRIVATE_TABLE}), options


def _lists(model: Recommender, rows: Ratings, schema: pa.Schema, options: dict[str, Any]) -> pa.Table:
    return model.recommend_batch(rows, **options).cast(schema).replace_schema_metadata(schema.metadata)


def _parts(history: Ratings | Store) -> list[list[Callable[[], Ratings]]]:
    if isinstance(history, Store):
        history.verify()
        return [list(part.blocks()) for part in history.partitions()]
    starts = range(0, max(history.n_users, 1), _USERS_PER_PART)
    return [[partial(history.rows, slice(start, start + _USERS_PER_PART))] for start in starts]


def _write(
    advance: Callable[[int], object],
    public: tuple[Any, ...],
    number: int,
    blocks: Iterable[Callable[[], Ratings]],
) -> str:
    model, folder, schema, options = public
    from pyarrow import parquet

    name = f"part-{number:05d}.parquet"
    draft = folder / f"{name}.{os.urandom(4).hex()}.tmp"  # another worker may write the same part
    with threads.limit(1), parquet.ParquetWriter(draft, schema) as writer:
        for read in blocks:
            rows = read()
            writer.write_table(_lists(model, rows, schema, options))
            advance(rows.n_users)
    draft.replace(folder / name)
    return name


def _write_there(number: int, partitions: Sequence[Partition], public: tuple[Any, ...]) -> str:
    return _write(lambda count: None, public, number, partitions[0].blocks())


@contextlib.contextmanager
def _made(target: Path) -> Iterator[Path]:
    folder = None
    try:
        folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
        yield folder
        folder.replace(target)
    except OSError as error:
        raise InputError(
            f"Cannot write {str(target)!r} ({error.strerror or error}); free space or pass another folder."
        ) from None
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
