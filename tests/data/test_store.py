"""A store holds the same rows as the table read into memory, and is written completely or not at all."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings, strategies as st

from hushrec import Domain, InputError, Ratings, Store, split_ratings
from hushrec.data import store_files
from tests.data.pieces import in_pieces
from tests.power_cut import Disk

DOMAIN = Domain(("1", "2", "A7", "é", "5"), rating_range=(0.5, 5), max_ratings_per_user=3)
TIMED = {"columns": {"time": True}}


def assert_same(found: Store, wanted: Ratings) -> None:
    """The same rows of the same users, in another order."""
    rows = found.ratings()
    assert (found.n_users, found.n_ratings) == (wanted.n_users, wanted.n_ratings)
    assert sorted(rows.user_texts.to_pylist()) == sorted(wanted.user_texts.to_pylist())
    places = rows.user_index(wanted)
    assert rows.user_column.take(pa.array(places)).to_pylist() == wanted.user_column.to_pylist()
    again = rows.aligned_to(wanted)
    for name in ("indptr", "indices", "data"):
        assert getattr(again.matrix, name).tobytes() == getattr(wanted.matrix, name).tobytes()
    assert again.matrix.dtype == wanted.matrix.dtype and again.matrix.indices.dtype == np.int32
    assert (rows.times is None) == (wanted.times is None)
    if wanted.times is not None:
        assert (again.times == wanted.times).all()
    assert (rows.by_position, rows.hand_picked) == (wanted.by_position, wanted.hand_picked)
    found.verify()


def table(n: int = 1000, seed: int = 0, **changes) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = {
        "user": rng.integers(0, 60, n),
        "item": pa.array(rng.choice(["1", "2", "A7", "é", "5", "no such"], n)),
        "rating": rng.integers(0, 12, n) / 2,
        "time": rng.integers(10**9, 10**9 + 50, n),
    }
    return pa.table(columns | changes)


@pytest.fixture
def made(tmp_path) -> Store:
    return Store.prepare(table(), tmp_path / "s", DOMAIN, partitions=4)


def test_each_user_is_found_alone_with_all_their_rows(made) -> None:
    whole = Ratings.from_any(table(), DOMAIN)
    for user in whole.users:
        for spelled in (int(user), str(user)):
            found, wanted = (each.for_users([spelled, "nobody"]) for each in (made, whole))
            assert wanted.n_ratings and (found.matrix != wanted.matrix).nnz == 0
    assert made.for_users(["nobody"]).n_ratings == 0


# ---------------------------------------------------------------------- the rows of the in-memory door


@pytest.mark.parametrize("rows", ["", "\t1\t4\t4\n", "ann\tno such\t4\t4\n"])
def test_times_are_there_whether_or_not_anybody_has_a_row(tmp_path, rows) -> None:
    """Killed: `retrain --since` refuses a store without ratings, and its exit code reveals that."""
    path = tmp_path / "ratings.tsv"
    path.write_text("user\titem\trating\ttime\n" + rows)
    found = Store.prepare(path, tmp_path / "s", DOMAIN, partitions=2, **TIMED)
    assert_same(found, Ratings.from_any(path, DOMAIN, **TIMED))
    assert found.ratings().times is not None


@pytest.mark.parametrize(("partitions", "options"), [(1, {}), (7, TIMED), (64, TIMED)])
def test_a_parquet_file_in_pieces(tmp_path, monkeypatch, partitions, options) -> None:
    """Only the manifest, the catalogue and the partitions are left: no row is there twice."""
    in_pieces(monkeypatch, batch=64)
    monkeypatch.setattr(store_files, "BLOCK_RATINGS", 16)
    pq.write_table(table(), tmp_path / "t.parquet")
    found = Store.prepare(tmp_path / "t.parquet", tmp_path / "s", DOMAIN, partitions=partitions, **options)
    assert len(found.partitions()) == partitions and len(found.blocks()) >= partitions
    for each in (found, Store(tmp_path / "s")):
        assert_same(each, Ratings.from_any(tmp_path / "t.parquet", DOMAIN, **options))
    parts = [part.path.name for part in found.partitions()]
    assert sorted(os.listdir(found.path)) == sorted([store_files.MANIFEST, store_files.CATALOGUE, *parts])
    assert sorted(os.listdir(tmp_path)) == ["s", "t.parquet"]


@pytest.mark.parametrize("kinds", [[int, str, int], [float, int, str]])
@pytest.mark.parametrize("held", [1, 1 << 24])
def test_files_whose_ids_are_of_different_types(tmp_path, monkeypatch, kinds, held) -> None:
    """Each type is a separate run in a partition; the last of a user's ratings of an item counts."""
    in_pieces(monkeypatch, held=held)
    (tmp_path / "in").mkdir()
    for number, kind in enumerate(kinds):
        part = table(200, seed=number)
        users = pa.array([kind(user) for user in part["user"].to_pylist()])
        pq.write_table(part.set_column(0, "user", users), tmp_path / f"in/{number}.parquet")
    found = Store.prepare(tmp_path / "in", tmp_path / "s", DOMAIN, partitions=3, **TIMED)
    wanted = Ratings.from_any(tmp_path / "in", DOMAIN, **TIMED)
    if float in kinds:  # whose text "7.0" is the id "7"
        wanted = Ratings(DOMAIN, wanted.matrix, wanted.user_texts, wanted.user_texts, wanted.times)
    assert_same(found, wanted)


TEXTS = ["a", " a", "a ", "7", "7.0", "07", "", "  ", "é", "\ufffdx41", "1e+20", "x" * 40, "nan", "a" * 9]
CELLS = st.tuples(
    st.sampled_from([*TEXTS, "a" * 8, "\0"]),
    st.sampled_from(["1", "2", "1.0", " A7", "é", "", "6"]),
    st.sampled_from([0.5, 1.0, 4.5, 5.0, 5.5, -0.0, float("nan"), float("inf")]),
    st.integers(0, 3),
)


@example([[], [(" a", "1", 0.5, 0)]], 1, 1)
@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(CELLS, max_size=12), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 9))
def test_hostile_cells_in_any_pieces(tmp_path_factory, parts, count, folded) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "in").mkdir()
    for number, rows in enumerate(parts):
        columns = zip(*rows) if rows else ((), (), (), ())
        kinds = pa.string(), pa.string(), pa.float64(), pa.int64()
        arrays = [pa.array(cells, kind) for cells, kind in zip(columns, kinds)]
        pq.write_table(pa.table(arrays, ["user", "item", "rating", "time"]), folder / f"in/{number}.parquet")
    with pytest.MonkeyPatch.context() as patch:
        in_pieces(patch, batch=3, folded=folded)
        found = Store.prepare(folder / "in", folder / "s", DOMAIN, partitions=count, **TIMED)
    assert_same(found, Ratings.from_any(folder / "in", DOMAIN, **TIMED))


IDS = [
    pa.array([1, 2, None, 2**63 - 1, 1, 2]),
    pa.array([1, 2, None, 2**64 - 1, 1, 2], pa.uint64()),
    pa.array([1.0, 2.5, None, 1e300, 1.0, 2.5]),
    pa.array([b"a", b"\xff", None, b"", b" a", b"\xff"]),
    pa.array([True, False, None, True, True, False]),
]


@pytest.mark.parametrize("users", IDS, ids=lambda array: str(array.type))
def test_ids_of_any_type(tmp_path, users) -> None:
    rows = table(6, user=users, item=["1", "2", "A7", "é", "2", "2"])
    pq.write_table(rows, tmp_path / "t.parquet")
    found = Store.prepare(tmp_path / "t.parquet", tmp_path / "s", DOMAIN, partitions=3)
    wanted = Ratings.from_any(tmp_path / "t.parquet", DOMAIN)
    if pa.types.is_integer(users.type):
        assert found.ratings().user_column.type == wanted.user_column.type
    elif wanted.user_column.type not in (pa.string(), pa.large_string()):
        wanted = Ratings(DOMAIN, wanted.matrix, wanted.user_texts, wanted.user_texts)  # kept as text
    assert_same(found, wanted)


@pytest.mark.parametrize("kind", ["pandas", "tuple", "ratings", "matrix", "nobody", "far times"])
def test_any_other_source(tmp_path, kind) -> None:
    source = {
        "pandas": lambda: table().to_pandas(),
        "tuple": lambda: (["a", "b", 7, None], ["1", "2", 5, 1], [1, 2, 3, 4]),
        "ratings": lambda: Ratings.from_any(table(), DOMAIN, **TIMED),
        "matrix": lambda: sp.csr_array(np.array([[1, 0, 5, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 2, 9]])),
        "nobody": lambda: ([], [], []),
        "far times": lambda: (["a", "a", "b"], ["1", "2", "1"], [1, 2, 3], [-(10**12), None, 10**12]),
    }[kind]()
    assert_same(Store.prepare(source, tmp_path / "s", DOMAIN, partitions=2), Ratings.from_any(source, DOMAIN))


@pytest.mark.parametrize("count", [1, 256, 257])
def test_any_number_of_different_ratings_comes_back(tmp_path, count) -> None:
    """An octet distinguishes 256 values; -0 differs from 0."""
    domain = Domain(range(600), (-1, 600))
    values = [-0.0, 0.0, *range(1, 600)][:count]
    rows = Ratings.from_any((["u"] * count + ["v"], [*range(count), 7], [*values, values[-1]]), domain)
    assert_same(Store.prepare(rows, tmp_path / "s", domain, partitions=1), rows)


@pytest.mark.parametrize("span", [1, 2**32 - 2, 2**32 - 1, 2**32, 2**40])
def test_times_however_far_apart_come_back(tmp_path, span) -> None:
    """Four octets distinguish 2^32 times; one value means none."""
    for first in (0, -(10**9)):
        times = [first, first + span, None, first + span // 2]
        rows = Ratings.from_any((["u"] * 3 + ["v"], ["1", "2", "5", "1"], [4.0] * 4, times), DOMAIN)
        assert_same(Store.prepare(rows, tmp_path / "s", DOMAIN, partitions=1, force=True), rows)


@pytest.mark.parametrize(("held", "workers"), [(1, 4), (30, 1), (1 << 24, 4)])
def test_the_last_of_many_rows_stays_however_they_are_dealt_out(tmp_path, monkeypatch, held, workers) -> None:
    """Without times the order of the input decides, which is that of files, batches and rows."""
    in_pieces(monkeypatch, held=held, batch=40)
    monkeypatch.setattr(os, "cpu_count", lambda: workers)
    rng = np.random.default_rng(held)
    columns = {"user": rng.choice([*"abcde", None], 900), "item": rng.choice(["1", "2", "5"], 900)}
    rows = pa.table({**columns, "rating": rng.choice([1.0, 2.0, 3.0, 4.0, 5.0, 9.0], 900)})
    for number in range(3):
        pq.write_table(rows.slice(300 * number, 300), tmp_path / f"{number}.parquet")
    found = Store.prepare(str(tmp_path / "*.parquet"), tmp_path / "s", DOMAIN, partitions=3)
    assert_same(found, Ratings.from_any(rows, DOMAIN))


@pytest.mark.parametrize("rows", [0, 1, 30_000])
def test_the_number_of_partitions_tells_nothing_of_the_rows(rows, tmp_path) -> None:
    columns = np.arange(rows), np.zeros(rows, int), np.full(rows, 3.0)
    assert len(Store.prepare(columns, tmp_path / "s", DOMAIN).partitions()) == 32


# ---------------------------------------------------------------------- places of tables


def test_folders_patterns_lists_and_addresses(tmp_path) -> None:
    folder = tmp_path / "in" / "deep"
    folder.mkdir(parents=True)
    for number in range(3):
        pq.write_table(table(100, seed=number), folder / f"{number}.parquet")
    wanted = Ratings.from_any(tmp_path / "in", DOMAIN)
    paths = [folder / f"{number}.parquet" for number in range(3)]
    for source in (tmp_path / "in", str(folder / "*.parquet"), paths, f"file://{tmp_path / 'in'}"):
        assert_same(Store.prepare(source, tmp_path / "s", DOMAIN, force=True), wanted)


def test_hive_partitions(tmp_path) -> None:
    for day in (1, 2):
        folder = tmp_path / f"in/rating={day}.5/date=2024-06-0{day}"
        folder.mkdir(parents=True)
        part = table(300).select(["user", "item"]).slice(100 * day, 100)
        part.to_pandas().to_csv(folder / "p.csv", index=False)
        pq.write_table(part.slice(50), folder / "p.parquet")
    wanted = Ratings.from_any(tmp_path / "in", DOMAIN, **TIMED)
    assert set(wanted.matrix.data) == {1.5, 2.5} and set(wanted.times) == {1717200000, 1717286400}
    assert_same(Store.prepare(tmp_path / "in", tmp_path / "s", DOMAIN, **TIMED), wanted)


REFUSED = [
    ("nowhere.parquet", {}, "cannot be read"),
    ("empty", {}, "holds no Parquet"),
    ("no-such-*.csv", {}, "No file matches"),
    ("nothing://at/all", {}, "not an address"),
    ([], {}, "no files"),
    ("bad.parquet", {}, "not a readable parquet file"),
    (3, {}, "cannot be read from int"),
    (table(9), {"partitions": 5000}, "at most 4,096"),
    (["numbered-1.parquet", "numbered-2.parquet"], {}, "number their users by row"),
    ("nowhere.parquet", {"domain": Domain(["1"], (2, 5)), "implicit": True}, "range that holds 1"),
    (table(9), {"domain": (1, 5)}, "declare the public catalogue"),
    (Ratings.from_any(table(9), DOMAIN), {"domain": Domain([1], (1, 5))}, "read over another domain"),
    ("nowhere.parquet", {"out": "bad.parquet", "force": True}, "exists and is not a store"),
    ("nowhere.parquet", {"out": "mine", "force": True}, "exists and is not a store"),
    ("nowhere.parquet", {"out": "no/s"}, "Cannot write to .*a folder that exists and is writable"),
    ("nowhere.parquet", {"out": "there"}, "exists and would be replaced; pass force=True"),
]


@pytest.mark.parametrize(("source", "options", "words"), REFUSED, ids=[words for *_, words in REFUSED])
def test_what_is_refused_leaves_all_as_it_was(tmp_path, monkeypatch, source, options, words) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "mine/deep"):
        Path(name).mkdir(parents=True)
    Path("bad.parquet").write_bytes(b"PAR1 and no more")
    numbered = Ratings.from_any(sp.csr_array(np.eye(5)), DOMAIN).to_arrow()
    for name in ("numbered-1.parquet", "numbered-2.parquet"):
        pq.write_table(numbered, name)
    Store.prepare(table(9), "there", DOMAIN)
    before = sorted(Path().rglob("*"))
    with pytest.raises(InputError, match=words):
        Store.prepare(source, **{"out": "s", "domain": DOMAIN, **options})
    assert sorted(Path().rglob("*")) == before
    Store("there", DOMAIN).verify()


# ---------------------------------------------------------------------- whole or not at all


def flipped(octets: bytes, at: int) -> bytes:
    return octets[:at] + bytes([octets[at] ^ 1]) + octets[at + 1 :]


def test_a_damaged_partition_is_found_and_named(made) -> None:
    path = made.partitions()[2].path
    whole = path.read_bytes()
    good_but_another = made.partitions()[1].path.read_bytes()
    damaged = [flipped(whole, at) for at in range(0, len(whole), 97)]
    for octets in (*damaged, whole[:-8], good_but_another):
        path.write_bytes(octets)
        for reading in (made.verify, lambda: Ratings.from_any(str(made.path), DOMAIN)):
            with pytest.raises(
                InputError, match=r"part-00002.arrow.*damaged \(it is not as it was written\)"
            ):
                reading()
    with pytest.raises(InputError, match=r"part-00002.arrow.*cannot be mapped\); prepare it again"):
        Store(made.path).ratings()
    path.unlink()
    with pytest.raises(InputError, match=r"part-00002.arrow.*damaged \(No such file or directory\)"):
        made.verify()


def test_a_store_that_takes_the_place_of_an_opened_one_is_refused(made) -> None:
    """Of equal sizes too: the digests of its files are not those that were checked."""
    first = [partition.path.stat().st_size for partition in made.partitions()]
    made.verify()
    sent = pickle.dumps(made)  # to a worker
    other = Store.prepare(
        table(rating=5.5 - np.array(table()["rating"])), made.path, DOMAIN, partitions=4, force=True
    )
    assert [partition.path.stat().st_size for partition in other.partitions()] == first
    for opened in (made, pickle.loads(sent), pickle.loads(pickle.dumps(pickle.loads(sent)))):
        with pytest.raises(InputError, match="another store took its place"):
            opened.ratings()
    assert other.ratings().n_ratings == made.n_ratings


def test_a_damaged_manifest_or_catalogue(made, tmp_path) -> None:
    def copy_with(name: str, content: bytes) -> Path:
        copy = tmp_path / "copies" / str(len(os.listdir(tmp_path / "copies")))
        shutil.copytree(made.path, copy)
        (copy / name).write_bytes(content)
        return copy

    (tmp_path / "copies").mkdir()
    whole = (made.path / store_files.CATALOGUE).read_bytes()
    for at in range(0, len(whole), 97):  # an id that became another one would still be read
        with pytest.raises(InputError, match="'catalogue.arrow' of the store .* damaged"):
            Store(copy_with(store_files.CATALOGUE, flipped(whole, at)))
    whole = (made.path / store_files.MANIFEST).read_bytes()
    newer = json.dumps(json.loads(whole) | {"version": 99}).encode()
    older = whole.replace(b"hushrec.store", b"hushrec store")
    other = whole.replace(b'"users": ', b'"users": 1')
    bad = [
        (other, "damaged"),
        (whole[:-9], "damaged"),
        (b"[]", "not a hushrec store"),
        (newer, "version 99"),
        (older, "not a hushrec store"),
    ]
    for content, words in bad:
        with pytest.raises(InputError, match=words):
            Store(copy_with(store_files.MANIFEST, content))
    moved = json.dumps(dict(reversed(json.loads(whole).items()))).encode()
    assert Store(copy_with(store_files.MANIFEST, moved)).n_users == made.n_users
    (made.path / store_files.MANIFEST).unlink()
    with pytest.raises(InputError, match="no store"):
        Store(made.path)


def test_another_domain_is_refused(made) -> None:
    for other in (Domain(("1", "2"), (0.5, 5)), Domain(DOMAIN.items, (1, 5), max_ratings_per_user=3)):
        with pytest.raises(InputError, match="another catalogue"):
            Store(made.path, other)
    assert Store(made.path).domain.fingerprint == DOMAIN.fingerprint
    for options in (TIMED, {"format": "parquet"}):
        with pytest.raises(InputError, match="columns and format are for tables; a store knows its own"):
            Ratings.from_any(made, DOMAIN, **options)


def at_sync(monkeypatch, number: int, call) -> None:
    """Call a function before the disk is asked so often to keep a file."""
    fsync, calls = os.fsync, []

    def synced(handle: int) -> None:
        calls.append(handle)
        if len(calls) == number:
            call()
        fsync(handle)

    monkeypatch.setattr(os, "fsync", synced)


@pytest.mark.parametrize("number", [1, 3, 34])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(tmp_path, monkeypatch, made, number, error) -> None:
    """It fails at the first partition, another, or the manifest."""

    def fail() -> None:
        raise error

    words = "No space left on device.*free space" if isinstance(error, OSError) else None
    before = {path: path.read_bytes() for path in made.path.iterdir()}
    for out in (tmp_path / "new", made.path):
        at_sync(monkeypatch, number, fail)
        with pytest.raises((InputError, KeyboardInterrupt), match=words):
            Store.prepare(table(), out, DOMAIN, force=True)
        monkeypatch.undo()
        assert os.listdir(tmp_path) == ["s"]
        assert {path: path.read_bytes() for path in made.path.iterdir()} == before
    found = Store.prepare(table(10), made.path, DOMAIN, force=True)
    assert_same(found, Ratings.from_any(table(10), DOMAIN))
    assert os.listdir(tmp_path) == ["s"]


KILLED = textwrap.dedent("""
    import os, pathlib, shutil, signal, sys
    from hushrec.data import Domain, Store
    where, calls = sys.argv[3], []
    owner = {"fsync": os, "replace": pathlib.Path, "rmtree": shutil}[where]
    own = getattr(owner, where)
    def killed(*given, **more):
        calls.append(given)
        if where != "fsync" or len(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return own(*given, **more)
    setattr(owner, where, killed)
    Store.prepare(sys.argv[1], sys.argv[2], Domain(("1", "2"), (0.5, 5)), partitions=4, force=True)
""")


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("where", ["fsync", "replace", "rmtree"])
def test_a_killed_prepare_leaves_no_store_and_the_next_one_clears_up(tmp_path, where) -> None:
    """It may be killed while it names the folder, or while it removes the earlier store."""
    if where == "rmtree":
        Store.prepare(table(9), tmp_path / "s", DOMAIN)
    pq.write_table(table(), tmp_path / "t.parquet")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "t.parquet"), str(tmp_path / "s"), where]
    assert subprocess.run(command, capture_output=True).returncode == -9
    left = [name for name in os.listdir(tmp_path) if name.startswith(".s.")]
    assert len(left) == 1 and left[0].endswith(".preparing")
    assert where == "replace" or not store_files.is_store(tmp_path / left[0])
    assert (where == "rmtree") == store_files.is_store(tmp_path / "s")
    found = Store.prepare(tmp_path / "t.parquet", tmp_path / "s", DOMAIN, force=True)
    assert_same(found, Ratings.from_any(tmp_path / "t.parquet", DOMAIN))
    assert sorted(os.listdir(tmp_path)) == ["s", "t.parquet"]


def test_of_two_at_once_neither_harms_the_other(tmp_path, monkeypatch) -> None:
    at_sync(monkeypatch, 1, lambda: Store.prepare(table(10), tmp_path / "s", DOMAIN))
    with pytest.raises(InputError, match="exists"):
        Store.prepare(table(), tmp_path / "s", DOMAIN, partitions=1)
    assert os.listdir(tmp_path) == ["s"]
    assert_same(Store(tmp_path / "s"), Ratings.from_any(table(10), DOMAIN))


@pytest.mark.skipif(os.name != "posix", reason="folders cannot be synced")
def test_a_power_cut_leaves_no_store_or_a_whole_one(tmp_path, monkeypatch) -> None:
    """All files are on the disk before the manifest is, and it before the folder has its name."""
    disk, written = Disk(monkeypatch), []
    fsync = os.fsync

    def writing(handle: int) -> None:
        fsync(handle)
        for folder in tmp_path.glob(".s.*.preparing"):
            if (folder / store_files.MANIFEST).exists():
                files = [
                    store_files.MANIFEST,
                    store_files.CATALOGUE,
                    *(f"part-0000{number}.arrow" for number in range(3)),
                ]
                assert all(disk.on_disk(folder / name) for name in files)
                written.append(folder)

    monkeypatch.setattr(os, "fsync", writing)
    for _ in range(2):
        Store.prepare(table(), tmp_path / "s", DOMAIN, partitions=3, force=True)
    assert len(set(written)) == 2
    assert disk.events[:2] == [("named", "s"), ("safe", "s")] and disk.events[-1] == ("safe", "s")


@pytest.mark.skipif(os.name != "posix", reason="locks")
def test_what_killed_processes_left_is_cleared_and_what_living_ones_hold_is_not(tmp_path) -> None:
    import fcntl

    for name in ("one", "two", "alive"):
        folder = tmp_path / f".s.{name}.preparing"
        folder.mkdir()
        (folder / "lock").write_bytes(b"")
    with (tmp_path / ".s.alive.preparing" / "lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        Store.prepare(table(9), tmp_path / "s", DOMAIN)
        assert sorted(os.listdir(tmp_path)) == [".s.alive.preparing", "s"]
    Store.prepare(table(9), tmp_path / "s", DOMAIN, force=True)
    assert os.listdir(tmp_path) == ["s"]


# ---------------------------------------------------------------------- marks, and some users


def test_what_was_prepared_of_marked_ratings_has_their_marks(tmp_path) -> None:
    """Rows by position, rows picked by hand, which a private training refuses, and parts of a split.

    Killed: a store of a training part that the same seed splits again: its test part would be empty.
    """
    whole = Ratings.from_any(table(), DOMAIN)
    picked = whole.where(np.arange(whole.n_ratings) % 2 == 0)
    part = split_ratings(whole, (0.8, 0.2), seed=3)[0]
    pq.write_table(part.to_arrow(), tmp_path / "part.parquet")
    by_position = Ratings.from_any(whole.matrix, DOMAIN)
    assert picked.hand_picked and by_position.by_position and part.splits == ("split:ratings:3",)
    read = Ratings.from_any(tmp_path / "part.parquet", DOMAIN)
    cases = [(rows, rows) for rows in (whole, picked, by_position, part)] + [
        (tmp_path / "part.parquet", read)
    ]
    for source, rows in cases:
        made = Store.prepare(source, tmp_path / "s", DOMAIN, partitions=3, force=True)
        for found in (
            made,
            made.blocks()[0](),
            Ratings.from_any(made, DOMAIN),
            made.partitions()[1].ratings(),
        ):
            for mark in ("by_position", "hand_picked", "splits"):
                assert getattr(found, mark) == getattr(rows, mark)
        assert made.for_users(rows.users[:2]).hand_picked
    with pytest.raises(InputError, match=r"a part that seed 3 chose.*pass seed=4\."):
        split_ratings(made.ratings(), (0.8, 0.2), seed=3)


def test_some_users_are_looked_up_in_their_partitions(made) -> None:
    """Other partitions may be damaged; another process finds the same."""
    whole = Ratings.from_any(table(), DOMAIN)
    ids = [*whole.users[:5].tolist(), "nobody"]
    again = pickle.loads(pickle.dumps(made))
    found, wanted = again.for_users(ids), whole.for_users(ids)
    assert (found.matrix != wanted.matrix).nnz == 0 and found.user_texts.equals(wanted.user_texts)
    assert repr(again) == f"Store(private rows over {DOMAIN!r})"
    nobody = made.for_users([])
    assert (nobody.n_users, nobody.n_ratings, nobody.domain) == (0, 0, DOMAIN)
    mine = [part for part in made.partitions() if ids[0] in part.ratings().users]
    for part in made.partitions():
        if part.number != mine[0].number:
            part.path.unlink()
    assert Store(made.path).for_users(ids[:1]).users.tolist() == ids[:1] and len(mine) == 1
