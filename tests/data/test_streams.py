"""Arrow streams: what their blocks hold decides, and not how they are cut, ordered or encoded."""

import hashlib
import os
import threading
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from docs._ext.execute import run_page
from hushrec.data import Domain, Ratings, Store
from hushrec.errors import InputError
from tests.cli.conftest import files, run  # noqa: F401

DOMAIN = Domain([f"i{k}" for k in range(30)], rating_range=(1, 5))
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "warehouse.md"


def table(seed: int = 0, n_rows: int = 20_000) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({
        "user_id": pa.array(rng.integers(0, 900, n_rows), mask=rng.random(n_rows) < 0.01),
        "item": [f"i{k}" for k in rng.integers(0, 33, n_rows)],
        "rating": rng.choice([1.0, 2.5, 5.0, 9.0, np.nan, -0.0], n_rows),
        "qty": rng.choice([1.0, -1.0, 0.1, 0.0], n_rows),
        "ts": rng.integers(0, 5, n_rows),
    })  # fmt: skip


def octets(store: Store) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in store.path.iterdir()}


@pytest.mark.parametrize("columns", [{"time": True}, {"time": True, "quantity": True}, None])
def test_cuts_order_dictionaries_and_threads_change_no_byte(tmp_path, monkeypatch, columns) -> None:
    rows = table()
    encoded = rows.set_column(1, "item", rows["item"].dictionary_encode())
    encoded = encoded.set_column(0, "user_id", rows["user_id"].dictionary_encode())
    database = duckdb.connect()
    database.register("rows", rows)
    query = "SELECT * FROM rows ORDER BY hash(user_id, item, ts, rating)"
    shuffled = [rows.take(np.random.default_rng(seed).permutation(len(rows))) for seed in (1, 2)]
    streams = [
        lambda: rows.to_reader(137), lambda: rows.to_reader(5000), rows.to_reader, encoded.to_reader,
        *(each.to_reader for each in shuffled), lambda: database.sql(query),
        lambda: database.sql("SELECT * FROM rows").to_arrow_reader(3000),
    ]  # fmt: skip
    stores = set()
    for number, stream in enumerate(streams):
        monkeypatch.setattr("hushrec.data.preparing._WORKERS", 1 + number % 3)
        monkeypatch.setattr("hushrec.data.preparing._FOLDED_ROWS", (50, 1 << 22)[number % 2])
        monkeypatch.setattr("hushrec.data.readers._TOGETHER", (1000, 1 << 20)[number % 2])
        store = Store.prepare(stream(), tmp_path / "store", DOMAIN, columns=columns, partitions=5, force=True)
        stores.add(tuple(sorted(octets(store).items())))
        read, kept = Ratings.from_any(stream(), DOMAIN, columns=columns), store.ratings()
        place = read.user_index(kept.users)
        assert read.n_users == kept.n_users
        np.testing.assert_array_equal(read.matrix[place].toarray(), kept.matrix.toarray())
    assert len(stores) == 1


def test_of_a_pair_the_latest_rating_stays_and_of_equal_times_the_largest() -> None:
    rows = table().select(["user_id", "item", "rating", "ts"])
    for columns in (None, {"time": True}):
        best: dict[tuple[str, str], tuple[int, float]] = {}
        for user, item, rating, time in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            if user is not None and item in DOMAIN.items and 1 <= rating <= 5:
                entry = (time if columns else 0), rating
                best[str(user), item] = max(best.get((str(user), item), entry), entry)
        read = Ratings.from_any(rows.to_reader(500), DOMAIN, columns=columns).to_arrow().to_pylist()
        found = {(str(row["user"]), row["item"]): row["rating"] for row in read}
        assert found == {pair: rating for pair, (_, rating) in best.items()}


def test_ids_that_read_the_same_do_not_show_which_row_came_first(tmp_path) -> None:
    """A stream has no order: a store of one holds the canonical text of an id, never its first spelling."""
    spelled = ["ann", " ann", "ann ", "bob ", "bob"]
    rows = pa.table(
        {"user": spelled, "item": ["i1", "i2", "i3", "i4", "i5"], "rating": [1.0, 2.0, 3.0, 4.0, 5.0]}
    )
    stores = []
    for number, order in enumerate(([0, 1, 2, 3, 4], [1, 2, 0, 3, 4], [4, 3, 2, 1, 0])):
        store = Store.prepare(rows.take(order).to_reader(2), tmp_path / str(number), DOMAIN, partitions=2)
        stores.append(octets(store))
        assert sorted(store.ratings().users) == ["ann", "bob"]
    assert stores[0] == stores[1] == stores[2]


@pytest.mark.parametrize("rows_before", [0, 500, 19_999])
def test_a_stream_that_breaks_off_leaves_no_store_and_shows_no_cell(tmp_path, rows_before) -> None:
    def blocks():
        yield from table().slice(0, rows_before).to_batches()
        raise ValueError("cell 4711")

    stream = pa.RecordBatchReader.from_batches(table().schema, blocks())
    with pytest.raises(InputError, match="ended early") as refused:
        Store.prepare(stream, tmp_path / "store", DOMAIN)
    assert "4711" not in str(refused.value) and not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes")
@pytest.mark.parametrize("cut", [0, 8, 300])
def test_the_command_reads_a_pipe_and_refuses_one_that_was_cut(run, tmp_path, cut) -> None:  # noqa: F811
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table().schema) as writer:
        writer.write_table(table(), 1000)
    content = sink.getvalue().to_pybytes()
    os.mkfifo("pipe")
    thread = threading.Thread(target=lambda: Path("pipe").write_bytes(content[: len(content) - cut]))
    thread.start()
    Path("items.txt").write_text("\n".join(DOMAIN.items) + "\n")
    found = run(
        "prepare", "pipe", "--catalogue", "items.txt", "--rating-range", "1", "5", "--out", "shop.store"
    )
    thread.join()
    assert (found.exit_code, Path("shop.store").exists()) == ((2, False) if cut else (0, True))
    if not cut:
        assert octets(Store("shop.store")) == octets(Store.prepare(table().to_reader(), "again", DOMAIN))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes")
def test_a_pipe_of_text_is_refused_in_one_sentence(tmp_path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    thread = threading.Thread(target=lambda: pipe.write_bytes(b"user,item,rating\na,i1,3\n"))
    thread.start()
    with pytest.raises(InputError, match="a pipe without an Arrow stream"):
        Store.prepare(pipe, tmp_path / "store", DOMAIN)
    thread.join()


def test_the_page_on_warehouses_runs_on_a_real_duckdb(tmp_path) -> None:
    set_up = """```python
import duckdb
with duckdb.connect("shop.duckdb") as shop:
    shop.sql("CREATE TABLE articles AS SELECT 'sku' || i AS sku FROM range(40) t(i)")
    shop.sql('''CREATE TABLE orders AS SELECT hash(i) % 1000 AS customer_id, 'sku' || hash(i + 1) % 40 AS sku,
        CASE WHEN i % 2 = 0 THEN 1 + hash(i) % 5 END AS stars, 1 - 2 * (i % 9 = 0)::INT AS pieces,
        TIMESTAMP '2026-01-01' + INTERVAL (i) SECOND AS ordered_at,
        false AS is_test FROM range(20000) t(i)''')
```
"""
    check = """```python
print(lists.height, warehouse.sql("SELECT count(*) FROM lists").fetchall()[0][0])
print(lists.columns)
```
"""
    printed = [shown for _, shown in run_page(set_up + PAGE.read_text(encoding="utf-8") + check)]
    rows, expected = printed[-1].split("\n")[0].split()
    assert int(rows) == int(expected) > 15_000
    assert "'user', 'item', 'rank', 'score', 'rating'" in printed[-1]


def test_of_equal_ratings_no_order_of_a_stream_decides_the_sign_of_zero() -> None:
    domain, zeros = Domain(["i"], rating_range=(-1, 1)), pa.array([0.0, -0.0])
    for order in ([0, 1], [1, 0]):
        rows = pa.table({"user": ["u", "u"], "item": ["i", "i"], "rating": zeros.take(pa.array(order))})
        assert not np.signbit(Ratings.from_any(rows.to_reader(), domain).matrix.data[0])
