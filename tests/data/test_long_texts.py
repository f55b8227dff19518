"""One user's long texts are no ids, ratings or times, and stop no run, however long they are."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushrec.data import Domain, Ratings, Store
from hushrec.errors import InputError

DOMAIN = Domain(["1", "y" * 1024], rating_range=(1, 5))
#: Ids, ratings and times of 1,024 bytes are read, those of one more are not; a row without a time stays.
CELLS = {
    "user": ["u", "x" * 1024, "x" * 1025, "é" * 513, " " * 1024 + "u", "w", "w", "w", "w"],
    "item": ["1", "1", "1", "1", "1", "y" * 1024, "y" * 1024 + " ", "1", "1"],
    "rating": ["3", "4", "4", "4", "4", "0" * 1023 + "5", "2", "0" * 1024 + "5", "2"],
    "time": ["7", "7", "7", "7", "7", " " * 1023 + "7", "7", "7", " " * 1024 + "7"],
}
TABLE = pa.table(CELLS)
AS_TYPE = {
    "arrow": pa.string(),
    "view": pa.string_view(),
    "binary": pa.binary(),
    "dictionary": pa.dictionary(pa.int16(), pa.string()),
}


def _typed(kind):
    return pa.table({name: pa.array(cells).cast(AS_TYPE[kind]) for name, cells in CELLS.items()})


@pytest.mark.true("A2")
@pytest.mark.parametrize("form", [*AS_TYPE, "arrow.parquet", "binary.parquet", "t.csv", "lists", "polars"])
def test_the_longest_texts_of_every_form(form, tmp_path):
    name, _, ending = form.partition(".")
    source = path = str(tmp_path / form)
    if ending == "parquet":
        pq.write_table(_typed(name), path, use_dictionary=name != "arrow")
    elif ending:
        TABLE.to_pandas().to_csv(path, index=False)
    else:
        source = {"lists": CELLS, "polars": pl.DataFrame(CELLS)}.get(form)
        source = _typed(form) if source is None else source
    read = Ratings.from_any(source, DOMAIN, columns={"time": True})
    stored = Store.prepare(source, tmp_path / "store", DOMAIN, columns={"time": True}).ratings()
    for found in (read, stored.for_users(read.user_texts)):
        rows = found.matrix.toarray().tolist()
        assert dict(zip(found.user_texts.to_pylist(), rows)) == {"u": [3, 0], "x" * 1024: [4, 0], "w": [2, 5]}
        times = dict(zip(found.user_texts.to_pylist(), np.split(found.times, found.matrix.indptr[1:-1])))
        assert times["u"] == [7] and times["w"][0] < 0 and times["w"][1] == 7
    assert Ratings.check(source, DOMAIN, columns={"time": True}).usable == 4
    with pytest.raises(InputError, match="1,024"):
        Domain(["1", "x" * 1025], rating_range=(1, 5))


def _two_gib_of_texts(length=720 << 20):
    """Three texts in the same memory pages, which need no writing."""
    pages = pa.py_buffer(np.zeros(length + 3, np.uint8))
    ends = pa.py_buffer(np.array([0, length], np.int32))
    long = [pa.Array.from_buffers(pa.string(), 1, [None, ends, pages.slice(k)]) for k in range(3)]
    return [pa.array(["1"]), *long, pa.array(["1"])]


FULL = [pytest.param(kind, marks=pytest.mark.full) for kind in ("plain.parquet", "dict.parquet")]


@pytest.mark.true("A2")
@pytest.mark.parametrize("form", ["string", "dictionary", *FULL])
@pytest.mark.parametrize("role", ["user", "item", "rating"])
def test_texts_of_more_than_two_gib_of_one_user(form, role, tmp_path):
    """Each of which Arrow holds, but not all in one array."""
    columns = {name: [pa.array(["1"])] * 5 for name in ("user", "item", "rating")}
    columns["user"] = [pa.array([name]) for name in "ummmv"]
    columns[role] = _two_gib_of_texts()
    if form == "dictionary":
        zero = pa.array([0], pa.int32())
        columns[role] = [pa.DictionaryArray.from_arrays(zero, each) for each in columns[role]]
    source = pa.table({name: pa.chunked_array(chunks) for name, chunks in columns.items()})
    if form.endswith("parquet"):
        table, source = source, str(tmp_path / form)
        few = {"write_batch_size": 1, "write_statistics": False}  # a page a text
        pq.write_table(table, source, compression="zstd", use_dictionary="dict" in form, **few)
    domain = Domain(["1"], rating_range=(1, 5))
    users = ["1"] if role == "user" else ["u", "v"]
    assert Ratings.from_any(source, domain).users.tolist() == users
    stored = Store.prepare(source, tmp_path / "store", domain, partitions=1)
    assert sorted(stored.ratings().users.tolist()) == users
    assert Ratings.check(source, domain).usable == len(users)
