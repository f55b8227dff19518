"""A store holds what the table holds when it is read into memory, and is written whole."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings, strategies as st
from pyarrow import fs as pa_fs

from hushrec import Domain, InputError, Ratings, Store, split_ratings
from hushrec.data import files, preparing, store, textfiles
from hushrec.data.times import NO_TIME
from tests.data.hostile_cells import LINES
from tests.power_cut import Disk

DOMAIN = Domain(("1", "2", "A7", "é", "5"), rating_range=(0.5, 5), max_ratings_per_user=3)


def assert_same(found: Store, wanted: Ratings) -> None:
    """The same rows of the same users, whose order alone is another."""
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


@pytest.fixture(params=[1, 2, 7, 64])
def partitions(request) -> int:
    return request.param


@pytest.mark.parametrize(
    "rows", [[], [(None, "1")], [("ann", "no such")]], ids=["none", "nobody's", "useless"]
)
@pytest.mark.parametrize("kind", ["parquet", "csv", "movielens-100k"])
def test_times_are_there_whether_or_not_anybody_has_a_row(tmp_path, kind, rows) -> None:
    """Killed: `retrain --since` on a store is refused where nobody has a rating, so its exit code tells."""
    path, columns = tmp_path / "ratings", {"time": True}
    if kind == "parquet":
        users, items = (pa.array([row[at] for row in rows], pa.string()) for at in (0, 1))
        numbers = [pa.array([4] * len(rows), pa.int64())] * 2
        pq.write_table(pa.table([users, items, *numbers], ["user", "item", "rating", "time"]), path)
    else:
        lines = [f"{user or ''}\t{item}\t4\t4\n" for user, item in rows]
        path.write_text("user\titem\trating\ttime\n" * (kind == "csv") + "".join(lines), encoding="utf-8")
    options = {"columns": columns, "format": kind}
    found = Ratings.prepare(path, tmp_path / "s", DOMAIN, partitions=2, **options)
    assert_same(found, Ratings.read(path, DOMAIN, **options))
    assert found.ratings().times is not None and found.splits == ()


# ---------------------------------------------------------------------- the rows of the in-memory door


@pytest.mark.parametrize("timed", [False, True])
def test_a_parquet_file(tmp_path, monkeypatch, partitions, timed) -> None:
    monkeypatch.setattr(files, "_BATCH_ROWS", 64)
    monkeypatch.setattr(store, "BLOCK_RATINGS", 16)
    pq.write_table(table(), tmp_path / "t.parquet")
    columns = {"time": True} if timed else None
    found = Ratings.prepare(
        tmp_path / "t.parquet", tmp_path / "s", DOMAIN, columns=columns, partitions=partitions
    )
    assert len(found.partitions()) == partitions and len(found.blocks()) >= partitions
    assert_same(found, Ratings.read(tmp_path / "t.parquet", DOMAIN, columns=columns))
    assert_same(Store(tmp_path / "s"), Ratings.read(tmp_path / "t.parquet", DOMAIN, columns=columns))


def test_a_store_is_its_manifest_its_catalogue_and_its_partitions(made) -> None:
    """No row lies in it twice, and nothing else of the work."""
    parts = [f"part-0000{number}.arrow" for number in range(4)]
    assert sorted(os.listdir(made.path)) == sorted([store.MANIFEST, store.CATALOGUE, *parts])
    assert os.listdir(made.path.parent) == [made.path.name]


def test_an_id_is_given_back_as_it_was_written_first(tmp_path) -> None:
    for number, users in enumerate(([" a", "b ", " c"], ["a ", " b", " a "], [" a ", "d "])):
        part = pa.table({"user": users, "item": ["1", "2", "5"][: len(users)], "rating": [4.0] * len(users)})
        pq.write_table(part, tmp_path / f"{number}.parquet")
    paths = [tmp_path / f"{number}.parquet" for number in range(3)]
    found = Ratings.prepare(paths, tmp_path / "s", DOMAIN, partitions=1).ratings()
    assert sorted(found.users.tolist()) == [" a", " c", "b ", "d "]
    assert sorted(found.user_texts.to_pylist()) == ["a", "b", "c", "d"]


def test_users_of_one_file_of_lines_are_their_numbers(tmp_path) -> None:
    path, domain = tmp_path / "jester-data-1.csv", Domain(range(1, 101), (-10, 10))
    lines = [["2", "3.5", "-9", *["99"] * 98], ["0", *["99"] * 100], ["1", *["99"] * 99, "8.25"]]
    path.write_text("\n".join(map(",".join, lines)))
    wanted = Ratings.read(path, domain)
    assert wanted.users.tolist() == [1, 3] and wanted.n_ratings == 3
    for number, source in enumerate((path, [path])):
        assert_same(Ratings.prepare(source, tmp_path / f"s{number}", domain, partitions=2), wanted)


def test_as_many_partitions_as_there_may_be_and_no_more(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(preparing, "_MOST_PARTITIONS", 3)
    assert len(Ratings.prepare(table(9), tmp_path / "s", DOMAIN, partitions=3).partitions()) == 3
    with pytest.raises(InputError, match="at most 3"):
        Ratings.prepare(table(9), tmp_path / "other", DOMAIN, partitions=4)
    with pytest.raises(InputError, match="filesystem is for paths"):
        Ratings.prepare(table(9), tmp_path / "other", DOMAIN, filesystem=pa_fs.LocalFileSystem())
    for name in ("jester-data-1.csv", "jester-data-2.csv"):
        (tmp_path / name).write_text(",".join(["1", "3", *["99"] * 99]) + "\n")
    with pytest.raises(InputError, match="row numbers, which each file has"):
        Ratings.prepare(
            [tmp_path / "jester-data-1.csv", tmp_path / "jester-data-2.csv"], tmp_path / "other", DOMAIN
        )
    assert not (tmp_path / "other").exists()


def test_likes_outside_of_the_range_are_refused_before_anything_is_read(tmp_path) -> None:
    with pytest.raises(InputError, match="range that holds 1"):
        Ratings.prepare(tmp_path / "nowhere.parquet", tmp_path / "s", Domain(["1"], (2, 5)), implicit=True)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kinds", [[int, str], [str, int], [int, str, int], [int, float, str]])
@pytest.mark.parametrize("held", [1, 1 << 24])
def test_parts_whose_ids_are_of_different_types(tmp_path, monkeypatch, kinds, held) -> None:
    """Each type is a run of its own in a partition; the last of a user's ratings of an item counts."""
    monkeypatch.setattr(preparing, "_HELD_ROWS", held)
    whole = []
    for number, kind in enumerate(kinds):
        part = table(60, seed=number)
        users = [kind(user) for user in part["user"].to_pylist()]
        part = part.set_column(0, "user", pa.array(users))
        pq.write_table(part, tmp_path / f"{number}.parquet")
        whole += part.to_pylist()
    paths = [tmp_path / f"{number}.parquet" for number in range(len(kinds))]
    found = Ratings.prepare(paths, tmp_path / "s", DOMAIN, partitions=1, columns={"time": True})
    latest: dict = {}
    for row in whole:
        cell = str(row["user"]).removesuffix(".0"), row["item"]
        usable = row["item"] != "no such" and 0.5 <= row["rating"] <= 5
        if usable and (cell not in latest or row["time"] >= latest[cell][1]):
            latest[cell] = row["rating"], row["time"]
    rows = found.ratings()
    lengths = {user: sum(cell[0] == user for cell in latest) for user, _ in latest}
    assert sorted(rows.user_texts.to_pylist()) == sorted(lengths)
    for row, user in enumerate(rows.user_texts.to_pylist()):
        at = slice(*rows.matrix.indptr[row : row + 2])
        items = [DOMAIN.items[place] for place in rows.matrix.indices[at]]
        assert len(items) == min(lengths[user], 3)
        cells = list(zip(rows.matrix.data[at], rows.times[at]))
        assert cells == [latest[user, item] for item in items]


TEXTS = st.sampled_from(
    [
        "a",
        " a",
        "a ",
        "7",
        "7.0",
        "07",
        "",
        "  ",
        "é",
        "\ufffdx41",
        "1e+20",
        "x" * 40,
        "nan",
        "a" * 9,
        "a" * 8,
        "\0",
    ]
)
CELLS = st.tuples(
    TEXTS,
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
        users, items, ratings, times = zip(*rows) if rows else ((), (), (), ())
        kinds = pa.string(), pa.string(), pa.float64(), pa.int64()
        arrays = [pa.array(cells, kind) for cells, kind in zip((users, items, ratings, times), kinds)]
        pq.write_table(pa.table(arrays, ["user", "item", "rating", "time"]), folder / f"in/{number}.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_BATCH_ROWS", 3)
        patch.setattr(preparing, "_FOLDED_ROWS", folded)
        found = Ratings.prepare(folder / "in", folder / "s", DOMAIN, columns={"time": True}, partitions=count)
    assert_same(found, Ratings.read(folder / "in", DOMAIN, columns={"time": True}))


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.sampled_from([line for line in LINES if len(line) < 70_000]), max_size=30), st.integers(1, 3)
)
def test_hostile_lines(tmp_path_factory, lines, count) -> None:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "t.csv").write_bytes(b"user,item,rating\nann,1,4\n" + b"\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textfiles, "_BLOCK_BYTES", 50)
        found = Ratings.prepare(folder / "t.csv", folder / "s", DOMAIN, partitions=count)
    assert_same(found, Ratings.read(folder / "t.csv", DOMAIN))


@pytest.mark.parametrize(
    "users",
    [
        pa.array([1, 2, None, 2**63 - 1, 1, 2]),
        pa.array([1, 2, None, 2**64 - 1, 1, 2], pa.uint64()),
        pa.array([1.0, 2.5, None, 1e300, 1.0, 2.5]),
        pa.array(["a", "b", None, "", " a", "b"]),
        pa.array([b"a", b"\xff", None, b"", b" a", b"\xff"]),
        pa.array(["a", "b", None, "", " a", "b"]).dictionary_encode(),
        pa.array([True, False, None, True, True, False]),
    ],
    ids=lambda array: str(array.type),
)
def test_ids_of_any_type(tmp_path, users) -> None:
    rows = table(6, user=users, item=["1", "2", "A7", "é", "2", "2"])
    pq.write_table(rows, tmp_path / "t.parquet")
    found, wanted = Ratings.prepare(tmp_path / "t.parquet", tmp_path / "s", DOMAIN, partitions=3), None
    wanted = Ratings.read(tmp_path / "t.parquet", DOMAIN)
    kept = pa.types.is_integer(users.type) or wanted.user_column.type in (pa.string(), pa.large_string())
    if not kept:  # said in the documentation: other ids are kept as text
        wanted = Ratings(DOMAIN, wanted.matrix, wanted.user_texts, wanted.user_texts)
    assert_same(found, wanted)
    if pa.types.is_integer(users.type):
        assert found.ratings().user_column.type == wanted.user_column.type


def test_files_whose_ids_are_of_different_types(tmp_path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(table(200), tmp_path / "in/a.parquet")
    rows = table(200, seed=1)
    texts = rows.set_column(0, "user", rows["user"].cast(pa.string()))
    pq.write_table(texts, tmp_path / "in/b.parquet")
    pq.write_table(table(200, seed=2), tmp_path / "in/c.parquet")
    found = Ratings.prepare(tmp_path / "in", tmp_path / "s", DOMAIN, columns={"time": True}, partitions=3)
    assert_same(found, Ratings.read(tmp_path / "in", DOMAIN, columns={"time": True}))


@pytest.mark.parametrize("kind", ["arrow", "pandas", "tuple", "ratings", "matrix", "nobody"])
def test_tables_in_memory(tmp_path, kind) -> None:
    import scipy.sparse as sp

    source = {
        "arrow": lambda: table(),
        "pandas": lambda: table().to_pandas(),
        "tuple": lambda: (["a", "b", 7, None], ["1", "2", 5, 1], [1, 2, 3, 4]),
        "ratings": lambda: Ratings.from_any(table(), DOMAIN, columns={"time": True}),
        "matrix": lambda: sp.csr_array(np.array([[1, 0, 5, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 2, 9]])),
        "nobody": lambda: ([], [], []),
    }[kind]()
    found = Ratings.prepare(source, tmp_path / "s", DOMAIN, partitions=2)
    assert_same(found, Ratings.from_any(source, DOMAIN))


def test_likes_take_four_octets(tmp_path) -> None:
    domain = Domain(range(50), likes=True)
    rng = np.random.default_rng(0)
    rows = pa.table({"user": rng.integers(0, 100, 20_000), "item": rng.integers(0, 50, 20_000)})
    pq.write_table(rows, tmp_path / "t.parquet")
    found = Ratings.prepare(tmp_path / "t.parquet", tmp_path / "s", domain, partitions=8)
    assert_same(found, Ratings.read(tmp_path / "t.parquet", domain))
    assert sum(part.path.stat().st_size for part in found.partitions()) < 5 * found.n_ratings + 8000


@pytest.mark.parametrize(
    ("ratings", "octets"), [(np.arange(40_000) % 10 / 2 + 0.5, 5), (np.linspace(0.5, 5, 40_000), 8)]
)
def test_a_rating_takes_five_to_eight_octets_and_its_time_four(tmp_path, ratings, octets) -> None:
    domain = Domain(range(40_000), (0.5, 5), max_ratings_per_user=40_000)
    users, items = np.zeros(40_000, int), np.arange(40_000)
    times = np.arange(40_000) + 10**9
    for columns, size in (((users, items, ratings), octets), ((users, items, ratings, times), octets + 4)):
        found = Ratings.prepare(columns, tmp_path / "s", domain, force=True, partitions=1)
        assert found.n_ratings == 40_000
        (part,) = found.partitions()
        assert size * 40_000 <= part.path.stat().st_size <= size * 40_000 + 5000


def test_times_too_far_apart_for_four_octets(tmp_path) -> None:
    source = (["a", "a", "b"], ["1", "2", "1"], [1, 2, 3], [-(10**12), None, 10**12])
    found = Ratings.prepare(source, tmp_path / "s", DOMAIN)
    assert_same(found, Ratings.from_any(source, DOMAIN))


def test_more_than_256_different_ratings_and_minus_zero(tmp_path) -> None:
    domain = Domain(range(300), (-1, 5), max_ratings_per_user=300)
    for values in (np.linspace(-1, 5, 300), np.where(np.arange(300) % 2, 0.0, -0.0)):
        source = (np.zeros(300, int), np.arange(300), values)
        found = Ratings.prepare(source, tmp_path / "s", domain, force=True)
        assert_same(found, Ratings.from_any(source, domain))


# ---------------------------------------------------------------------- where tables lie


def test_folders_patterns_lists_and_addresses(tmp_path) -> None:
    from pyarrow import fs

    folder = tmp_path / "in" / "deep"
    folder.mkdir(parents=True)
    for number in range(3):
        pq.write_table(table(100, seed=number), folder / f"{number}.parquet")
    wanted = Ratings.read(tmp_path / "in", DOMAIN)
    paths = [folder / f"{number}.parquet" for number in range(3)]
    sources = [tmp_path / "in", str(folder / "*.parquet"), paths, f"file://{tmp_path / 'in'}"]
    for source in sources:
        assert_same(Ratings.prepare(source, tmp_path / "s", DOMAIN, force=True), wanted)
    inside = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    found = Ratings.prepare("in", tmp_path / "s", DOMAIN, force=True, filesystem=inside)
    assert_same(found, wanted)
    assert_same(found, Ratings.read(f"file://{tmp_path / 'in'}", DOMAIN))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_hive_partitions(tmp_path, kind) -> None:
    rows = table(300)
    for day in (1, 2):
        folder = tmp_path / f"in/rating={day}.5/date=2024-06-0{day}"
        folder.mkdir(parents=True)
        part = rows.select(["user", "item"]).slice(100 * day, 100)
        if kind == "parquet":
            pq.write_table(part, folder / "p.parquet")
        else:
            part.to_pandas().to_csv(folder / "p.csv", index=False)
    columns = {"time": True}
    wanted = Ratings.read(tmp_path / "in", DOMAIN, columns=columns)
    assert set(wanted.matrix.data) == {1.5, 2.5} and set(wanted.times) == {1717200000, 1717286400}
    assert_same(Ratings.prepare(tmp_path / "in", tmp_path / "s", DOMAIN, columns=columns), wanted)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere.parquet", "cannot be read"),
        ("empty", "holds no Parquet"),
        ("no-such-*.csv", "No file matches"),
        ("nothing://at/all", "no address"),
        ("file:///no/such/place", "no such file"),
        ([], "no files"),
        ("bad.parquet", "not a readable parquet file"),
        (3, "cannot be read from int"),
    ],
)
def test_sources_that_are_none(tmp_path, monkeypatch, source, words) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=words):
        Ratings.prepare(source, "s", DOMAIN)
    assert sorted(os.listdir()) == ["bad.parquet", "empty"]


# ---------------------------------------------------------------------- whole or not at all


@pytest.fixture
def made(tmp_path) -> Store:
    return Ratings.prepare(table(), tmp_path / "s", DOMAIN, partitions=4)


def test_a_damaged_partition_is_found_and_named(made) -> None:
    path = made.partitions()[2].path
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        octets = bytearray(whole)
        octets[at] ^= 1
        path.write_bytes(octets)
        with pytest.raises(InputError, match="'part-00002.arrow' of the store .* damaged"):
            made.verify()
    path.write_bytes(whole)
    made.verify()
    path.write_bytes(whole[:-8])
    with pytest.raises(InputError, match="part-00002.arrow"):
        made.verify()
    with pytest.raises(InputError, match="part-00002.arrow"):
        Store(made.path).ratings()
    path.write_bytes(made.partitions()[1].path.read_bytes())  # a good file, but another one
    with pytest.raises(
        InputError, match=r"part-00002.arrow.*damaged \(it cannot be mapped\); prepare it again"
    ):
        made.partitions()[2].block(0)
    with pytest.raises(InputError, match=r"part-00002.arrow.*damaged \(it is not as it was written\)"):
        made.verify()
    path.unlink()
    with pytest.raises(InputError, match=r"part-00002.arrow.*damaged \(No such file or directory\)"):
        made.verify()


def test_a_damaged_manifest_or_catalogue(made) -> None:
    catalogue = made.path / store.CATALOGUE
    whole = catalogue.read_bytes()
    for at in range(0, len(whole), 97):  # an id that became another one would still be read
        store._domain_of.cache_clear()
        catalogue.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(InputError, match="'catalogue.arrow' of the store .* damaged"):
            Store(made.path)
    catalogue.write_bytes(whole)
    manifest = made.path / store.MANIFEST
    whole = manifest.read_text()
    for text in (whole.replace('"users": ', '"users": 1'), whole[:-9], "[]", "{}"):
        manifest.write_text(text)
        with pytest.raises(InputError, match="damaged|no store"):
            Store(made.path)
    manifest.write_text(json.dumps(dict(reversed(json.loads(whole).items()))))
    assert Store(made.path).n_users == made.n_users, "the order of what it says is no part of it"
    found = {**json.loads(whole), "version": 99}
    manifest.write_text(json.dumps(found))
    with pytest.raises(InputError, match="version 99"):
        Store(made.path)
    manifest.unlink()
    with pytest.raises(InputError, match="no store"):
        Store(made.path)


def test_another_domain_is_refused(made) -> None:
    for other in (Domain(("1", "2"), (0.5, 5)), Domain(DOMAIN.items, (1, 5), max_ratings_per_user=3)):
        with pytest.raises(InputError, match="another catalogue"):
            Store(made.path, other)
    assert Store(made.path).domain.fingerprint == DOMAIN.fingerprint
    assert Store(made.path, DOMAIN).domain is DOMAIN


def test_what_is_there_is_replaced_only_if_asked(tmp_path, made) -> None:
    before = (made.path / store.MANIFEST).read_bytes()
    with pytest.raises(InputError, match="there already"):
        Ratings.prepare(table(10), made.path, DOMAIN)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_text("mine")
    for name in ("file", "folder"):
        with pytest.raises(InputError, match="no store"):
            Ratings.prepare(table(10), tmp_path / name, DOMAIN, force=True)
    assert (made.path / store.MANIFEST).read_bytes() == before
    found = Ratings.prepare(table(10), made.path, DOMAIN, force=True)
    assert_same(found, Ratings.from_any(table(10), DOMAIN))
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "s"]


@pytest.mark.parametrize("where", ["_deal_out", "_clean", "_finish"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(tmp_path, monkeypatch, made, where, error) -> None:
    own = getattr(preparing, where)

    def fails(*arguments):
        own(*arguments[:-1], arguments[-1]) if where == "_deal_out" else None
        raise error

    before = sorted(os.listdir(made.path))
    monkeypatch.setattr(preparing, where, fails)
    words = "No space left on device.*free space" if isinstance(error, OSError) else None
    for out in (tmp_path / "new", made.path):
        with pytest.raises((InputError, KeyboardInterrupt), match=words):
            Ratings.prepare(table(), out, DOMAIN, force=True)
    assert os.listdir(tmp_path) == ["s"] and sorted(os.listdir(made.path)) == before
    made.verify()
    monkeypatch.undo()
    assert_same(Ratings.prepare(table(), tmp_path / "new", DOMAIN), Ratings.from_any(table(), DOMAIN))


KILLED = textwrap.dedent("""
    import os, signal, sys
    from hushrec.data import preparing, Domain, Ratings
    where, calls = sys.argv[3], []
    own = getattr(preparing, where) if where != "rmtree" else preparing.shutil.rmtree
    def killed(*given, **more):
        calls.append(given)
        if where != "_clean" or len(calls) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return own(*given, **more)
    setattr(preparing.shutil if where == "rmtree" else preparing, where, killed)
    Ratings.prepare(sys.argv[1], sys.argv[2], Domain(("1", "2"), (0.5, 5)), partitions=4, force=True)
""")


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("where", ["_clean", "_put", "rmtree"])
def test_a_killed_prepare_leaves_no_store_and_the_next_one_clears_up(tmp_path, where) -> None:
    """Also one that was killed while it gave the folder its name, or removed the store of before."""
    if where == "rmtree":
        Ratings.prepare(table(9), tmp_path / "s", DOMAIN)
    pq.write_table(table(), tmp_path / "t.parquet")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "t.parquet"), str(tmp_path / "s"), where]
    assert subprocess.run(command, capture_output=True).returncode == -9
    left = [name for name in os.listdir(tmp_path) if name.startswith(".s.")]
    assert len(left) == 1 and left[0].endswith(".preparing")
    assert where == "_put" or not store.is_store(tmp_path / left[0])
    assert (where == "rmtree") == store.is_store(tmp_path / "s")
    found = Ratings.prepare(tmp_path / "t.parquet", tmp_path / "s", DOMAIN, force=True)
    assert_same(found, Ratings.read(tmp_path / "t.parquet", DOMAIN))
    assert sorted(os.listdir(tmp_path)) == ["s", "t.parquet"]


def test_of_two_at_once_neither_harms_the_other(tmp_path, monkeypatch) -> None:
    clean = preparing._clean

    def meanwhile(domain, folder, number):
        monkeypatch.setattr(preparing, "_clean", clean)
        Ratings.prepare(table(10), tmp_path / "s", DOMAIN)
        return clean(domain, folder, number)

    monkeypatch.setattr(preparing, "_clean", meanwhile)
    with pytest.raises(InputError, match="there already"):
        Ratings.prepare(table(), tmp_path / "s", DOMAIN, partitions=1)
    assert os.listdir(tmp_path) == ["s"]
    assert_same(Store(tmp_path / "s"), Ratings.from_any(table(10), DOMAIN))


@pytest.mark.skipif(os.name != "posix", reason="folders cannot be synced")
def test_a_power_cut_leaves_no_store_or_a_whole_one(tmp_path, monkeypatch) -> None:
    """All files are on the disk before the manifest is, and it before the folder has its name."""
    disk, written = Disk(monkeypatch), []
    write = preparing._write

    def writing(path, content):
        found = write(path, content)
        written.append(path.name)
        others = path.parent.glob("part-*") if path.name == store.MANIFEST else ()
        assert all(map(disk.on_disk, [path, *others]))
        return found

    monkeypatch.setattr(preparing, "_write", writing)
    for _ in range(2):
        Ratings.prepare(table(), tmp_path / "s", DOMAIN, partitions=3, force=True)
    assert written[3] == store.CATALOGUE and written[4] == store.MANIFEST and len(written) == 10
    assert disk.events[:2] == [("named", "s"), ("safe", "s")] and disk.events[-1] == ("safe", "s")


def test_what_was_prepared_of_marked_ratings_has_their_marks(tmp_path) -> None:
    """Rows by position, and rows that were picked by hand, which a private training refuses."""
    whole = Ratings.from_any(table(), DOMAIN)
    picked = whole.where(np.arange(whole.n_ratings) % 2 == 0)
    by_position = Ratings.from_any(whole.matrix, DOMAIN)
    assert picked.hand_picked and by_position.by_position
    for rows in (whole, picked, by_position):
        made = Ratings.prepare(rows, tmp_path / "s", DOMAIN, partitions=3, force=True)
        marks = rows.by_position, rows.hand_picked
        assert (made.by_position, made.hand_picked) == marks
        several = made.blocks()
        assert len(several) >= 3 and made.splits == ()
        for found in (
            several[0](),
            made.ratings(),
            made.for_users(rows.users[:2]),
            made.partitions()[1].ratings(),
        ):
            assert (found.by_position, found.hand_picked or not rows.hand_picked) == (marks[0], True)
        parts = store.joined(DOMAIN, [replace(several[0](), hand_picked=False), several[1]()])
        assert parts.hand_picked == rows.hand_picked
        parts = store.joined(DOMAIN, [replace(several[0](), by_position=False), several[1]()])
        assert parts.by_position == rows.by_position


def test_what_was_prepared_of_a_part_knows_which_seed_chose_it(tmp_path) -> None:
    """Killed: a store of a training part that the same seed splits again, whose test part is then empty."""
    part = split_ratings(Ratings.from_any(table(), DOMAIN), (0.8, 0.2), seed=3)[0]
    pq.write_table(part.to_arrow(), tmp_path / "part.parquet")
    for source in (part, str(tmp_path / "part.parquet")):
        made = Ratings.prepare(source, tmp_path / "s", DOMAIN, partitions=3, force=True)
        assert made.splits == part.splits == ("split:ratings:3",)
        whole = Ratings.from_any(made, DOMAIN)
        for found in (whole, made.blocks()[0](), made.partitions()[1].ratings()):
            with pytest.raises(InputError, match=r"a part that seed 3 chose.*pass seed=4\."):
                split_ratings(found, (0.8, 0.2), seed=3)
        assert split_ratings(whole, (0.8, 0.2), seed=4)[1].n_ratings


def test_an_older_manifest_without_splits_is_read(tmp_path) -> None:
    path = Ratings.prepare(table(), tmp_path / "s", DOMAIN).path / store.MANIFEST
    manifest = json.loads(path.read_bytes())
    assert manifest.pop("splits") == []
    path.write_bytes(store.manifest_bytes({k: v for k, v in manifest.items() if k != "checksum"}))
    assert Store(tmp_path / "s").ratings().splits == ()


def test_preparing_again_gives_the_same_octets(tmp_path) -> None:
    stores = [Ratings.prepare(table(), tmp_path / name, DOMAIN, partitions=3).path for name in "ab"]
    for file in sorted(os.listdir(stores[0])):
        assert (stores[0] / file).read_bytes() == (stores[1] / file).read_bytes()


# ---------------------------------------------------------------------- reading


def test_some_users_are_looked_up_in_their_partitions(made, monkeypatch) -> None:
    whole = Ratings.from_any(table(), DOMAIN)
    ids = [*whole.users[:5].tolist(), "nobody"]
    found, wanted = made.for_users(ids), whole.for_users(ids)
    assert (found.matrix != wanted.matrix).nnz == 0 and found.user_texts.equals(wanted.user_texts)
    read = []
    monkeypatch.setattr(store.Partition, "block", lambda self, number: read.append(self.number))
    with pytest.raises(AttributeError):
        made.for_users(ids[:1])
    assert len(set(read)) == 1


def test_items_are_not_copied(made) -> None:
    rows = made.partitions()[0].block(0)
    owner = rows.matrix.indices
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    assert type(owner).__name__ in ("mmap", "memoryview") and rows.matrix.indices.flags.writeable


def test_it_can_be_sent_to_another_process(made) -> None:
    part = pickle.loads(pickle.dumps(made.partitions()[1]))
    assert part.ratings().user_texts.equals(made.partitions()[1].ratings().user_texts)
    assert repr(made) == f"Store(private rows over {DOMAIN!r})"


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 258])
def test_any_number_of_different_ratings_comes_back(tmp_path, count) -> None:
    """An octet tells 256 of them apart."""
    domain = Domain(range(600), (0, 600))
    values = [0.5 + number for number in range(count)]
    rows = Ratings.from_any((["u"] * count + ["v"], [*range(count), 7], [*values, values[-1]]), domain)
    found = Ratings.prepare(rows, tmp_path / "s", domain, partitions=1).ratings().aligned_to(rows)
    assert found.matrix.data.tolist() == [*values, values[-1]]


@pytest.mark.parametrize("span", [1, 2**32 - 2, 2**32 - 1, 2**32, 2**40])
def test_times_however_far_apart_come_back(tmp_path, span) -> None:
    """Four octets tell 2^32 times apart, one of which stands for none."""
    for first in (0, -(10**9), 5):
        times = [first, first + span, None, first + span // 2]
        rows = Ratings.from_any((["u"] * 3 + ["v"], ["1", "2", "5", "1"], [4.0] * 4, times), DOMAIN)
        made = Ratings.prepare(rows, tmp_path / "s", DOMAIN, partitions=1, force=True)
        assert made.ratings().aligned_to(rows).times.tolist() == rows.times.tolist()
        known = [time for time in rows.times.tolist() if time != NO_TIME]
        assert sorted(known) == sorted(time for time in times if time is not None)


def test_nobody_is_asked_for_and_all_have_rated(made) -> None:
    assert made.rated() is made
    nobody = made.for_users([])
    assert (nobody.n_users, nobody.n_ratings, nobody.domain) == (0, 0, DOMAIN)
    assert store.joined(DOMAIN, []).n_users == 0


# ---------------------------------------------------------------------- rows dealt out


@pytest.mark.parametrize("held", [1, 30, 1 << 24])
@pytest.mark.parametrize("workers", [1, 4])
def test_the_last_of_many_rows_stays_however_they_are_dealt_out(tmp_path, monkeypatch, held, workers) -> None:
    """Without times the order of the input decides, which is that of files, batches and rows."""
    monkeypatch.setattr(preparing, "_HELD_ROWS", held)
    monkeypatch.setattr(preparing, "_workers", lambda: workers)
    monkeypatch.setattr(files, "_BATCH_ROWS", 40)
    rng = np.random.default_rng(held)
    columns = {"user": rng.choice([*"abcde", None], 900), "item": rng.choice(["1", "2", "5"], 900)}
    rows = pa.table({**columns, "rating": rng.choice([1.0, 2.0, 3.0, 4.0, 5.0, 9.0], 900)})
    for number in range(3):
        pq.write_table(rows.slice(300 * number, 300), tmp_path / f"{number}.parquet")
    found = Ratings.prepare(str(tmp_path / "*.parquet"), tmp_path / "s", DOMAIN, partitions=3)
    assert_same(found, Ratings.from_any(rows, DOMAIN))


@pytest.mark.parametrize("rows", [0, 1, 300_000])
def test_the_number_of_partitions_tells_nothing_of_the_rows(rows, tmp_path) -> None:
    columns = np.arange(rows), np.zeros(rows, int), np.full(rows, 3.0)
    assert len(Ratings.prepare(columns, tmp_path / "s", DOMAIN).partitions()) == 32


def test_where_a_store_may_be_written_is_asked_before_anything_is_read(tmp_path, made, monkeypatch) -> None:
    nowhere = tmp_path / "nowhere.parquet"
    with pytest.raises(InputError, match="there already and would be replaced; pass force=True"):
        Ratings.prepare(nowhere, made.path, DOMAIN)
    with pytest.raises(InputError, match="Cannot write to .*a folder that exists and is writable"):
        Ratings.prepare(nowhere, tmp_path / "no" / "s", DOMAIN)
    (tmp_path / "empty").mkdir()
    found = Ratings.prepare(table(9), tmp_path / "empty", DOMAIN)
    assert_same(found, Ratings.from_any(table(9), DOMAIN))
    monkeypatch.setattr(preparing.os, "access", lambda *_: False)
    with pytest.raises(InputError, match="Cannot write to"):
        Ratings.prepare(nowhere, tmp_path / "new", DOMAIN)
    with pytest.raises(InputError, match="declare the public catalogue"):
        Ratings.prepare(table(9), tmp_path / "new", (1, 5))


@pytest.mark.skipif(os.name != "posix", reason="locks")
def test_what_killed_processes_left_is_cleared_and_what_living_ones_hold_is_not(tmp_path) -> None:
    import fcntl

    for name in ("one", "two", "alive"):
        folder = tmp_path / f".s.{name}.preparing"
        folder.mkdir()
        (folder / "lock").write_bytes(b"")
    with (tmp_path / ".s.alive.preparing" / "lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        Ratings.prepare(table(9), tmp_path / "s", DOMAIN)
        assert sorted(os.listdir(tmp_path)) == [".s.alive.preparing", "s"]
    Ratings.prepare(table(9), tmp_path / "s", DOMAIN, force=True)
    assert os.listdir(tmp_path) == ["s"]


def test_a_store_is_read_whole_and_verified_or_not_at_all(made) -> None:
    for source in (made, str(made.path)):
        assert_same(made, Ratings.from_any(source, DOMAIN))
        for options in ({"columns": {"time": True}}, {"format": "parquet"}):
            with pytest.raises(InputError, match="columns and format are for tables; a store knows its own"):
                Ratings.from_any(source, DOMAIN, **options)
    same = Domain(DOMAIN.items, DOMAIN.rating_range, max_ratings_per_user=3)
    rows = Ratings.from_any(made, same)
    assert rows.domain is same and Ratings.from_any(rows, same) is rows
    assert Ratings.from_any(rows, DOMAIN).domain is DOMAIN
    path = made.partitions()[3].path
    whole = bytearray(path.read_bytes())
    at = whole.find(rows.matrix.indices.dtype.type(2).tobytes())  # some item's position
    path.write_bytes(whole[:at] + b"\1" + whole[at + 1 :])
    for source in (made, str(made.path)):
        with pytest.raises(InputError, match=r"part-00003.arrow.*not as it was written"):
            Ratings.from_any(source, DOMAIN)
