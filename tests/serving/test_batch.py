"""Lists of all users in parts: those of a batch, written whole, marked private."""

import os
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushrec import Accountant, Budget, InputError, PrivateALS, Store, realistic, write_lists
from hushrec.data import store_files
from hushrec.kernels import threads
from hushrec.serving import batch, stream_lists

ROWS = realistic(300, 40, 4000, seed=0)
MODEL = PrivateALS(rank=3).fit(ROWS, Accountant(Budget(5, 1e-6)))


def rows_of(table: pa.Table) -> list:
    found = zip(table["user"].to_pylist(), table["rank"].to_pylist(), table["item"].to_pylist())
    return sorted((str(user), rank, item) for user, rank, item in found)


@pytest.mark.parametrize("kind", ["ratings", "store"])
def test_parts_hold_what_a_batch_holds(tmp_path, monkeypatch, kind) -> None:
    monkeypatch.setattr(batch, "_USERS_PER_PART", 70)
    monkeypatch.setattr(store_files, "BLOCK_RATINGS", 200)  # several blocks a partition
    history = ROWS if kind == "ratings" else Store.prepare(ROWS, tmp_path / "s", ROWS.domain, partitions=5)
    some, not_these = list(ROWS.domain.items[:20]), list(ROWS.domain.items[3:9])
    for number, options in enumerate(
        ({}, {"n": 3, "exclude_seen": False}, {"items": some}, {"items": some, "exclude_items": not_these})
    ):
        with threads.limit(1 + number % 2):
            files = write_lists(MODEL, history, tmp_path / f"lists{number}", **options)
        assert len(files) == 5 and all(file.is_file() for file in files)
        wanted = MODEL.recommend_batch(ROWS, **options)
        assert rows_of(pa.concat_tables([pq.read_table(file) for file in files])) == rows_of(wanted)
        assert all(b"PRIVATE" in pq.read_schema(file).metadata[b"hushrec"] for file in files)
        stream = stream_lists(MODEL, history, **options)
        assert stream.schema.equals(pq.read_schema(files[0]), check_metadata=True)
        batches = list(stream)
        assert rows_of(pa.Table.from_batches(batches)) == rows_of(wanted) and len(batches) >= 5
    items = set(pq.read_table(tmp_path / "lists3")["item"].to_pylist())
    assert items <= set(some) - set(not_these) and items


def test_a_failure_leaves_nothing(tmp_path, monkeypatch) -> None:
    def fails(*arguments):
        raise OSError(28, "No space left on device")

    for start in (partial(write_lists, folder=tmp_path / "lists"), stream_lists):  # before any list is made
        with pytest.raises(InputError, match="catalogue"):
            start(MODEL, ROWS, items=["nothing of ours"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        write_lists(MODEL, ROWS, tmp_path / "full")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is no empty folder|not empty|is a file"):
        write_lists(MODEL, ROWS, tmp_path / "file")
    with pytest.raises(InputError, match="Cannot write"):
        write_lists(MODEL, ROWS, tmp_path / "no/where")
    monkeypatch.setattr(batch, "_write", fails)
    with pytest.raises(InputError, match="No space left.*free space"):
        write_lists(MODEL, ROWS, tmp_path / "lists")
    assert sorted(os.listdir(tmp_path)) == ["file", "full"] and (tmp_path / "file").read_text() == "mine"


def test_nobody(tmp_path) -> None:
    nobody = ROWS.rows(np.zeros(0, int), keyed=True)
    (file,) = write_lists(MODEL, nobody, tmp_path / "lists")
    assert pq.read_table(file).num_rows == 0


class Engine:
    """A cluster in this process that gave up one worker with a half-written draft."""

    def __init__(self) -> None:
        self.asked = 0

    def each(self, function, stores, public) -> list:
        self.asked += 1
        folder = public[1]
        for name in ("part-00001.parquet.0badf00d.tmp", "part-00002.parquet.0badf00d.tmp"):
            (folder / name).write_bytes(b"PAR1")
        (store,) = stores
        return [function(n, [part], public) for n, part in enumerate(store.partitions())]


def test_an_engine_writes_the_lists_and_leaves_no_draft(tmp_path, monkeypatch) -> None:
    store = Store.prepare(ROWS, tmp_path / "s", ROWS.domain, partitions=3)
    engine = Engine()
    files = write_lists(MODEL, store, tmp_path / "lists", 4, engine=engine)
    names = [f"part-0000{number}.parquet" for number in range(3)]
    assert engine.asked == 1 and files == [tmp_path / "lists" / name for name in names]
    assert sorted(os.listdir(tmp_path / "lists")) == names
    wanted = MODEL.recommend_batch(ROWS, 4)
    assert rows_of(pa.concat_tables([pq.read_table(file) for file in files])) == rows_of(wanted)
    remove = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda self, **more: (os.remove(self), remove(self, **more)))
    assert write_lists(MODEL, store, tmp_path / "again", 4, engine=engine)  # the workers remove theirs, too
    assert sorted(os.listdir(tmp_path / "again")) == names
    monkeypatch.undo()
    with pytest.raises(InputError, match="An engine works on a store"):
        write_lists(MODEL, ROWS, tmp_path / "other", engine=engine)
    assert engine.asked == 2 and not (tmp_path / "other").exists()


@pytest.mark.parametrize("engine", [None, Engine()])
def test_a_damaged_store_is_refused_before_a_list_is_written(tmp_path, engine) -> None:
    """Each octet is compared with the written one: a flipped rating makes no list."""
    store = Store.prepare(ROWS, tmp_path / "s", ROWS.domain, partitions=3)
    path = store.partitions()[2].path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not as it was written"):
        write_lists(MODEL, store, tmp_path / "lists", engine=engine)
    assert not (tmp_path / "lists").exists()


def test_how_far_it_is_is_shown_to_whoever_asks(tmp_path, capfd) -> None:
    """The number of users is private and only printed on request."""
    write_lists(MODEL, ROWS, tmp_path / "silent")
    assert "".join(capfd.readouterr()) == ""
    write_lists(MODEL, ROWS, tmp_path / "told", progress=True)
    shown = capfd.readouterr().err
    assert "lists (private): 100%" in shown and "300" not in shown
