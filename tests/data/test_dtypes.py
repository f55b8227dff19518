"""Every type of column in every role is read, or refused in one sentence by its type: never a raw error."""

import datetime
import decimal
import gzip
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushrec.data import Domain, Ratings, Store
from hushrec.data.catalogue import pack
from hushrec.errors import InputError
from hushrec.models import Popular
from hushrec.privacy import Accountant, Budget
from hushrec.serving import Attributes
from hushrec.serving.model import load

DOMAIN = Domain(["1", "x", 3], rating_range=(0, 5))
DAY, TIME, SPAN = datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), datetime.timedelta(1)
UUID = uuid.UUID(int=1).bytes


class Own(pa.ExtensionType):
    """An extension type of the caller's own, which has no hash."""

    def __init__(self):
        super().__init__(pa.string_view(), "own")

    def __arrow_ext_serialize__(self):
        return b""


#: Arrow type -> a cell of it; each column holds it twice, with a null between.
CELLS = {
    **dict.fromkeys([pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()], 1),
    **dict.fromkeys([pa.string(), pa.large_string(), pa.string_view()], "1"),
    **dict.fromkeys([pa.binary(), pa.large_binary(), pa.binary_view()], b"\xff"),
    **dict.fromkeys([pa.decimal128(20, 2), pa.decimal256(60, 2)], decimal.Decimal("1.50")),
    **dict.fromkeys([pa.date32(), pa.date64()], DAY),
    **dict.fromkeys([pa.timestamp("ns"), pa.timestamp("us", "UTC")], TIME),
    **dict.fromkeys([pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_view(pa.int64())], [1, 2]),
    **dict.fromkeys([pa.large_list_view(pa.int64()), pa.list_(pa.int64(), 2)], [1, 2]),
    **dict.fromkeys([pa.list_(pa.string()), pa.large_list(pa.large_string())], ["a", "a"]),
    pa.bool_(): True,
    pa.null(): None,
    pa.float16(): np.float16(1),
    pa.binary(16): UUID,
    pa.uuid(): UUID,
    pa.duration("us"): SPAN,
    pa.time64("us"): datetime.time(1),
    pa.list_(pa.list_(pa.int64())): [[1]],
    pa.struct([("a", pa.int64())]): {"a": 1},
    pa.map_(pa.string(), pa.int64()): [("a", 1)],
    pa.month_day_nano_interval(): pa.MonthDayNano([1, 2, 3]),
}
ARROW = {str(kind): pa.array([cell, None, cell], kind) for kind, cell in CELLS.items()}
ARROW |= {f"dictionary of {name}": ARROW[name].dictionary_encode() for name in ("int64", "string", "binary")}
ENDS, INDICES = pa.array([1, 3], pa.int32()), pa.array([0, None, 1])
ARROW |= {
    "dictionary of views": pa.DictionaryArray.from_arrays(INDICES, pa.array(["1", "x"], pa.string_view())),
    "dictionary of lists": pa.DictionaryArray.from_arrays(INDICES, pa.array([[1], [2]])),
    "run ends": pa.RunEndEncodedArray.from_arrays(ENDS, pa.array(["1", "2"])),
    "union": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array([*"abc"])]
    ),
    "own": pa.ExtensionArray.from_storage(Own(), pa.array(["1", None, "x"], pa.string_view())),
    "far days": pa.Array.from_buffers(pa.date64(), 3, [None, pa.py_buffer(np.array([2**62, -(2**62), 0]))]),
    "no UTF-8": pa.Array.from_buffers(pa.string(), 3, pa.array([b"\xff", None, b"1"], pa.binary()).buffers()),
}
if hasattr(pa, "json_"):  # from pyarrow 19 on
    ARROW["json"] = pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(["1", None, "{}"]))
POLARS = [pl.Int128, pl.UInt128, pl.Float32, pl.Boolean, pl.String, pl.Binary, pl.Categorical, pl.Null]
POLARS += [pl.List(pl.Int128), pl.Struct({"a": pl.Int128}), pl.Enum(["1", "x"]), pl.Decimal(20, 2), pl.Object]
POLARS += [pl.Date, pl.Datetime, pl.Duration, pl.Time, pl.List(pl.Int64), pl.Array(pl.Int64, 2)]
NUMPY = ["i1", "u8", ">i8", "f2", "g", "F", "G", "?", "S3", "U3", "M8[ns]", "M8[Y]", "m8[s]", "V3", "O"]
PANDAS = ["Int8", "UInt64", "Float32", "boolean", "string", "category", "Sparse[int]", "datetime64[ns, UTC]"]
PANDAS += ["period[D]", "timedelta64[ns]", "int64[pyarrow]", "string[pyarrow]", "float[pyarrow]"]
OTHERS = {
    "bytes": b"abc", "bytearray": bytearray(b"abc"), "one text": "abc", "one number": 5, "nothing": None,
    "no dimension": np.array(5), "a table": np.zeros((3, 2)), "a frame": pd.DataFrame({"a": [1, 2, 3]}),
    "records": np.zeros(3, [("a", int)]), "large": [2**70, 1, -(2**70)], "larger": [10**400, 1, 2],
    "surrogates": ["\ud800", "a", "b"], "objects": [object(), {}, np.zeros(2)], "range": range(3),
    "categories": pd.Categorical([*"aba"]), "index": pd.CategoricalIndex([*"aba"]),
    "moments": pd.Series(pd.date_range("2020", periods=3)).astype("category"),
    "pairs": pd.MultiIndex.from_tuples([(1, 2), (1, 3), (2, 3)]), "spans": pd.Series(pd.interval_range(0, 3)),
    "masked": np.ma.array([1, 2, 3], mask=[0, 1, 0]), "mapping": {1: 1, 2: 2, 3: 3}, "set": {1, 2, 3},
}  # fmt: skip


def columns():
    yield from ARROW.items()
    for kind in POLARS:
        cells = {pl.Object: [object(), None, 1], pl.Null: [None] * 3}.get(kind)
        series = pl.Series(
            ["1", None, "1"] if cells is None else cells, dtype=None if cells is None else kind
        )
        try:
            yield f"polars {kind}", series if cells else series.cast(kind)
        except pl.exceptions.PolarsError:
            yield f"polars {kind}", pl.Series([None] * 3, dtype=kind)
    yield from ((f"NumPy {kind}", np.array([1, 2, 1]).astype(kind)) for kind in NUMPY)
    for kind in PANDAS:
        yield (
            f"pandas {kind}",
            pd.Series(["2020", "2021", "2020"] if "d" in kind[:6] else [1, 0, 1]).astype(kind),
        )
    yield from OTHERS.items()


def frames(table):
    """The same table in other containers that take its columns."""
    yield table
    for make in (pa.table, pd.DataFrame, pl.DataFrame):
        try:
            yield make(table)
        except BaseException as error:  # polars panics
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise


def one_sentence(read, *arguments, **options):
    """The result, or None where it is refused in one sentence."""
    try:
        return read(*arguments, **options)
    except InputError as error:
        assert "\n" not in str(error) and str(error).count(". ") == 0 and len(str(error)) < 400
        return None


COLUMNS = dict(columns())


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.true("I3")
def test_no_type_of_column_raises_a_raw_error(name, tmp_path):
    good = {"user": [*"abc"], "item": ["1", "x", "3"], "rating": [1, 2, 3], "time": [1, 2, 3]}
    times = {"columns": {"time": True}}
    for role in good:
        for table in frames({**good, role: COLUMNS[name]}):
            found = one_sentence(Ratings.from_any, table, DOMAIN, **times)
            looked = one_sentence(Ratings.check, table, DOMAIN, **times)
            assert (found is None) == (looked is None)
            if found is not None:
                assert (looked.users, looked.usable) == (found.n_users, found.n_ratings)
                assert len(found.to_arrow()) == found.n_ratings and len(found.users) == found.n_users
        one_sentence(Ratings.from_any, tuple({**good, role: COLUMNS[name]}.values()), DOMAIN, implicit=True)
        try:
            pq.write_table(pa.table({**good, role: COLUMNS[name]}), tmp_path / "r.parquet")
        except (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError):
            continue
        found = one_sentence(Ratings.from_any, tmp_path / "r.parquet", DOMAIN, **times)
        store = one_sentence(
            Store.prepare, tmp_path / "r.parquet", tmp_path / "s", DOMAIN, partitions=2, force=True, **times
        )
        assert (found is None) == (store is None)
        assert store is None or (store.n_users, store.n_ratings) == (found.n_users, found.n_ratings)


@pytest.mark.parametrize("name", COLUMNS)
def test_no_type_of_public_column_raises_a_raw_error(name):
    """Catalogues, item features and attributes."""
    domain = one_sentence(Domain, COLUMNS[name], rating_range=(1, 5))
    if domain is not None:
        assert len(domain.item_column) == domain.n_items == len(pack(domain)[1]["kinds"])
    three = Domain([1, 2, 3], rating_range=(1, 5))
    one_sentence(three.index, COLUMNS[name])
    for table in frames({"item": [1, 2, 3], "f": COLUMNS[name]}):
        one_sentence(Domain, three.items, rating_range=(1, 5), item_features=table)
        one_sentence(Attributes.read, table, three)
    one_sentence(
        Domain, three.items, rating_range=(1, 5), item_features={"item": COLUMNS[name], "f": [1, 2, 3]}
    )


#: Columns of integers -> the type in which their ids come back in tables of lists.
INTEGERS = {
    "NumPy int64": (np.array([1, 2, 3]), pa.int64()),
    "NumPy uint8": (np.array([1, 2, 3], np.uint8), pa.uint8()),
    "pandas int32": (pd.Series([1, 2, 3], dtype="int32"), pa.int32()),
    "pandas Int16": (pd.Series([1, 2, 3], dtype="Int16"), pa.int16()),
    "pandas int32[pyarrow]": (pd.Series([1, 2, 3], dtype="int32[pyarrow]"), pa.int32()),
    "polars UInt32": (pl.Series([1, 2, 3], dtype=pl.UInt32), pa.uint32()),
    "Arrow int32": (pa.array([1, 2, 3], pa.int32()), pa.int32()),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_ids_come_back_in_the_type_of_their_column(tmp_path, name):
    column, kind = INTEGERS[name]
    domain = Domain(column, rating_range=(1, 5))
    rows = Ratings.from_any((column, column, [1, 2, 3]), domain)
    Popular().fit(rows, Accountant(Budget(1, 1e-6))).save(tmp_path / "m.hush")
    model = load(tmp_path / "m.hush")
    lists = model.recommend_batch(rows, 1)
    assert (lists["user"].type, lists["item"].type) == (kind, kind)
    assert model.recommend_batch(rows.rows([1]), 1)["user"].to_pylist() == [2]
    store = Store.prepare((column, column, [1, 2, 3]), tmp_path / "s", model.domain)
    assert model.recommend_batch(store.ratings(), 1).schema == lists.schema


@pytest.mark.parametrize("column", [[1, 2], np.array([1, 2.0]), np.array([1, 2], object), ["1", "2"]])
def test_ids_without_an_integer_type_come_back_as_text(column):
    rows = Ratings.from_any((column, ["1", "x"], [1, 2]), DOMAIN)
    assert rows.user_column.to_pylist() == ["1", "2"]


LATE = b"item,genre\n" + b"1,a\n" * 3000
FILES = {
    LATE + b"2,\xe9\n3,a\n": "not UTF-8 text in line 3002, perhaps Latin-1",
    "item,genre\n1,a\n".encode("utf-16"): "UTF-16",
    gzip.compress(LATE): "is compressed; end its name in .gz",
    b"PK\x03\x04": "zip archive or an Excel workbook",
    b'[{"item": 1}]': "JSON",
}


@pytest.mark.parametrize("content", FILES, ids=range(len(FILES)))
def test_public_files_of_another_kind_are_named(tmp_path, content):
    path = tmp_path / "items.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=FILES[content]):
        Domain([1, 2, 3], rating_range=(1, 5), item_features=path)
    with pytest.raises(InputError, match=FILES[content]):
        Attributes.read(path, Domain([1, 2, 3], rating_range=(1, 5)))
