"""What becomes of a user's rows depends on their rows alone, and no two ids are one.

The containers here infer a column's type, as pandas and NumPy do: one hostile or missing cell
makes floats, complex numbers or objects of all others.
"""

import contextlib
import datetime
import decimal
import math
import sys
import uuid
import warnings
from unittest import mock

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from hushrec.data import Domain, Ratings, Store
from hushrec.data.ids import canonical_text
from hushrec.errors import InputError
from hushrec.models import Popular
from hushrec.privacy import Accountant, Budget
from tests.data.hostile_cells import ITEMS, RATINGS, USERS

LARGE = [2**60 + 1, 2**60 + 2, 2**53, 2**53 + 1, -(2**53) - 1]
DOMAIN = Domain([1, 2, 3, "A7", str(LARGE[0])], rating_range=(1, 5))
SIGNALLING = np.array([0x7FF0000000000001], np.uint64).view(np.float64)[0]


MODEL = Popular().fit(Ratings.from_any((["u"], [1], [3]), DOMAIN), Accountant(Budget(1, 1e-6)))


def shown(form, ratings):
    """Return all rows of each user by canonical id, and the order of the users.

    A column of NumPy or pandas keeps its type, which the container chose, so its ids are compared as text.
    """
    as_shown = canonical_text if form in ("numpy", "pandas", "pandas category") else lambda user: user
    served = [
        row | {"user": as_shown(row["user"])} for row in MODEL.recommend_batch(ratings, n=2).to_pylist()
    ]
    table = [(as_shown(user), *row) for user, *row in zip(*ratings.to_arrow().to_pydict().values())]
    users = {}
    place = 0
    for row, text in enumerate(ratings.user_texts.to_pylist()):
        count = int(np.diff(ratings.matrix.indptr)[row])
        user = as_shown(ratings.users[row])
        one = [entry["user"] for entry in served if entry["user"] == table[place][0]][:1]
        users[text] = (type(user), user, table[place : place + count], one)
        place += count
    return users


def watched(build, *arguments):
    """The result, with every warning and every floating-point flag an error."""
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        return build(*arguments)


def check_others(form, honest, added):
    """The honest rows read the same with the added ones in front, behind, or away."""
    base_columns = columns_of(form, honest)
    if base_columns is None:
        return
    base = shown(form, watched(Ratings.from_any, tuple(base_columns), DOMAIN))
    for rows in (added + honest, honest + added):
        columns = columns_of(form, rows)
        if columns is None or (form in DECLARED and types(columns) != types(base_columns)):
            continue  # the container refuses such cells, or these are columns of another declared type
        found = shown(form, watched(Ratings.from_any, tuple(columns), DOMAIN))
        assert [text for text in found if text in base] == list(base)
        assert {text: found[text] for text in base} == base


def columns_of(form, rows):
    # pytest cannot print what polars raises where nothing catches it, of integers of over 4,300 digits
    unseen = mock.patch.object(sys, "unraisablehook", lambda _: None)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"), unseen:
            warnings.simplefilter("ignore")
            return [FORMS[form](list(column)) for column in zip(*rows, strict=True)]
    except BaseException as error:  # polars panics
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return None


def types(columns):
    return [column.type if isinstance(column, pa.Array) else column.dtype for column in columns]


def of_numpy(column):
    array = np.array(column)
    if array.ndim != 1 or array.dtype.kind in "US":
        raise ValueError("NumPy has made text or a table of the cells")
    return array


def of_nullable(column):
    is_huge = any(isinstance(cell, decimal.Decimal) and abs(cell.adjusted()) > 99 for cell in column)
    for kind in ("Int64", "Float64")[is_huge:]:  # such a decimal is no int64: pandas needs a minute to say so
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return pd.Series(column, dtype=kind)
    return pd.Series(column, dtype="string")


DECLARED = ("arrow", "polars", "pandas nullable")
FORMS = {
    "lists": list,
    "numpy": of_numpy,
    "pandas": pd.Series,
    "pandas objects": lambda column: pd.Series(column, dtype=object),
    "pandas category": lambda column: pd.Series(column).astype("category"),
    "pandas nullable": of_nullable,
    "arrow": pa.array,
    "polars": pl.Series,
}


KINDS = {
    "integers": [4, 5, 6],
    "large": [*LARGE, 5],
    "floats": [0.5, 7.25, 4.0, 2.0**60, float(2**53 - 1)],
    "text": ["u", "7", "\\xff", "é", "1e5"],
    "bytes": [b"u", b"\xff", b"\xfe"],
    "times": [pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01", tz="UTC"), datetime.date(2020, 1, 1)],
    "decimals": [decimal.Decimal(number) for number in ("0.5", "1" * 38, "1" * 37 + "2")],
    "mixed": [4, "v", 0.5, LARGE[0], decimal.Decimal(LARGE[0]), uuid.UUID(int=8)],
}
CELLS = [None, math.nan, SIGNALLING, 0.25, -0.0, 3j, 2**63, -(2**63), 2.0**60, pd.NaT, pd.Interval(0, 1)]
CELLS += [np.timedelta64(5, "ns"), np.longdouble(1) / 3, np.clongdouble(3j), "mallory", pd.Period("2020-01")]


def rows_of(users, items, ratings, most):
    return st.lists(st.tuples(*map(st.sampled_from, (users, items, ratings))), min_size=1, max_size=most)


honest_rows = st.sampled_from(sorted(KINDS)).flatmap(
    lambda kind: rows_of(KINDS[kind], [1, 2, 3], [1, 2.5, 4, 5], 8)
)
hostile_rows = rows_of([*USERS, *CELLS], [*ITEMS, *CELLS, 2], [*RATINGS, *CELLS, 3.0], 3)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(honest_rows, hostile_rows)
def test_fuzz(form, honest, added):
    mine = {canonical_text(user) for user, _, _ in added} | {None}
    if form == "pandas category" and any(user is True for user, _, _ in added):
        return  # pandas takes True and 1 for one category
    check_others(form, [row for row in honest if canonical_text(row[0]) not in mine] or [(99, 1, 2)], added)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("column", ["user", "item"])
def test_large_integers_whatever_a_cell_makes_of_the_column(form, column):
    """A missing id turns int64 into float64, which holds every second, fourth, ... integer from 2^53 on."""
    for extra in (None, math.nan, 0.5, 3j, "mallory", 10**30, pd.NaT, decimal.Decimal(1)):
        if column == "user":
            honest, added = [(user, 1, 3) for user in (*LARGE, 7)], [(extra, 2, 4)]
        else:
            honest, added = [(1, LARGE[0], 3), (1, 2, 3), (2, LARGE[1], 4), (3, 3, 5)], [(4, extra, 4)]
        check_others(form, honest, added)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(LARGE), pl.Series(LARGE), LARGE, [str(number) for number in LARGE],
        pd.Series(LARGE, dtype="Int64"), pd.Series(LARGE, dtype="int64[pyarrow]"),
        pl.Series(LARGE, dtype=pl.Int128), pd.Series(LARGE).astype("string"),
        pd.Series([str(number) for number in LARGE]), np.array([str(number) for number in LARGE]),
        pa.array([decimal.Decimal(number) for number in LARGE]),
    ],
)  # fmt: skip
def test_large_integers_are_ids_where_no_other_cell_can_change_them(column):
    ratings = Ratings.from_any((column, [1] * len(LARGE), [3] * len(LARGE)), DOMAIN)
    assert ratings.user_texts.to_pylist() == [str(number) for number in LARGE]
    assert ratings.user_index(LARGE).tolist() == list(range(len(LARGE)))


@pytest.mark.parametrize("id_", [None, 2**64 + 1, -(2**63) - 1, 2**100])
@pytest.mark.true("I3")
def test_one_row_with_no_id_or_a_huge_one_changes_nobody_else(tmp_path, id_):
    """An id beyond 64 bits makes Int128 of the column, and Parquet of it is read like any other."""
    rows = [(user, item, 3) for user, item in zip((*LARGE, 7), (1, 2, 3, 1, 2, 3))]
    found = []
    for table in (rows, [*rows, (id_, 2, 4)]):
        kind = pl.Int128 if any((user or 0) not in range(-(2**63), 2**63) for user, *_ in table) else pl.Int64
        frame = pl.DataFrame(table, {"user": kind, "item": pl.Int64, "rating": pl.Int64}, orient="row")
        frame.write_csv(tmp_path / "r.csv")
        frame.write_parquet(tmp_path / "r.parquet")
        sources = [frame, frame.lazy(), tmp_path / "r.csv", tmp_path / "r.parquet"]
        found.append([Ratings.from_any(source, DOMAIN) for source in sources])
        store = Store.prepare(tmp_path / "r.parquet", tmp_path / "store", DOMAIN, partitions=3, force=True)
        found[-1].append(store.ratings().for_users(found[-1][0].user_texts))
    for without, with_it in zip(*found):
        assert without.user_texts.to_pylist() == [str(user) for user in (*LARGE, 7)]
        assert with_it.user_texts.to_pylist()[:6] == without.user_texts.to_pylist()
        assert with_it.n_users == 6 + (id_ is not None)
        assert (with_it.matrix[:6] != without.matrix).nnz == 0


DIGITS = "12345678901234567890123456789012345678"
APART = [
    (decimal.Decimal(DIGITS), decimal.Decimal(DIGITS[:-1] + "9")),
    (decimal.Decimal("0." + DIGITS), decimal.Decimal("0." + DIGITS[:-1] + "9")),
    (b"\xff", "\\xff"),
    (b"\xff", "\udcff"),
    (b"\xed\xa0\x80", "\ud800"),
    ("\ud800", "\\ud800"),
    (b"\xff", "\ufffdxff"),
    ("\ud800", canonical_text("\ud800")),
    ("\ufffd", "\ufffd\ufffd"),
    ("007.0", "007"),
    ("--7.0", "--7"),
    (np.longdouble(1) / 3, 1 / 3),
]


@pytest.mark.parametrize(("one", "other"), APART)
def test_two_ids_are_two_users(tmp_path, one, other):
    found = Ratings.from_any(([one, other], [1, 2], [3, 4]), DOMAIN)
    assert found.n_users == 2 - (canonical_text(one) is None)
    if isinstance(one, bytes):
        path, cells = tmp_path / "r.csv", (one, other.encode("utf-8", "surrogatepass"))
        path.write_bytes(b"user,item,rating\n" + b"".join(b"%s,1,3\n" % cell for cell in cells))
        assert Ratings.from_any(path, DOMAIN).n_users == len(set(cells))
    elif isinstance(one, decimal.Decimal):
        assert Ratings.from_any((pa.array([one, other]), [1, 2], [3, 4]), DOMAIN).n_users == 2


KINDS_OF_TIME = [pa.timestamp("s"), pa.timestamp("us", "UTC"), pa.date32(), pa.date64(), pa.duration("s")]
KINDS_OF_TIME += [pa.duration("us"), pa.time32("s"), pa.time64("ns"), pa.month_day_nano_interval()]


@pytest.mark.parametrize("kind", KINDS_OF_TIME, ids=str)
def test_columns_of_time_are_refused_by_their_type(kind):
    """The type decides, before a cell that Python cannot hold is looked at."""
    largest = pa.py_buffer(b"\xff" * 7 + b"\x7f" + b"\x00" * 8 + b"\xff" * 7 + b"\x7f" + b"\x00" * 8)
    for length in (0, 1, 2):
        ids = pa.Array.from_buffers(kind, length, [None, largest])
        for column in (ids, ids.dictionary_encode() if kind != KINDS_OF_TIME[-1] else ids):
            for columns in ((column, [1] * length, [2] * length), ([1] * length, [1] * length, column)):
                with pytest.raises(InputError, match="plain"):
                    Ratings.from_any((*columns,), DOMAIN)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_signalling_nan_is_a_nan(tmp_path, kind):
    bits = [0x40400000, 0x7F800001] if kind == "float32" else [0x4008000000000000, 0x7FF0000000000001]
    values = np.array(bits, kind.replace("float", "uint")).view(kind)
    path = tmp_path / "r.parquet"
    pq.write_table(pa.table({"user": ["a", "b"], "item": [1, 2], "rating": values}), path)
    for build in (
        lambda: Ratings.from_any(path, DOMAIN),
        lambda: Ratings.from_any((["a", "b"], [1, 2], values.copy()), DOMAIN),
        lambda: Ratings.from_any((["a", "b"], [1, 2], list(values)), DOMAIN),
        lambda: Ratings.from_any((values.copy(), [1, 2], [3, 3]), DOMAIN),
        lambda: Ratings.from_any(
            (pa.array(values), pa.array(values), [3, 3]), Domain([3], rating_range=(1, 5))
        ),
    ):
        assert watched(build).n_users == 1


SECRETS = ["alice@example.org", "i-secret", "s3cret!"]


def bad_readings(path, tmp_path):
    frame, table = pd.read_csv(path), tmp_path / "r.parquet"
    frame.to_parquet(table)
    named = pd.DataFrame({"user": SECRETS, "item": SECRETS, "rating": SECRETS})
    yield lambda: Ratings.from_any(path, DOMAIN)
    yield lambda: Ratings.from_any(path, DOMAIN, implicit=True)
    yield lambda: Ratings.from_any(path, DOMAIN, columns={"user": "user"})
    yield lambda: Ratings.from_any(path, DOMAIN, columns={"user": "user", "item": "user"})
    for source in (
        frame,
        pl.read_csv(path),
        pa.table(frame),
        table,
        named[["user", "item"]],
        named.user,
        [SECRETS],
    ):
        yield lambda source=source: Ratings.from_any(source, DOMAIN)
    yield lambda: Domain(Domain.read_catalogue(path), rating_range=(1, 5))
    yield lambda: Popular().fit(named, Accountant(Budget(1, 1e-6)))
    yield lambda: Ratings.from_any(named, DOMAIN).for_users([*SECRETS, *SECRETS])


FIRST = [mark.join(SECRETS) for mark in (",", ";", "::", "\t")] + [",".join(SECRETS[:2])]
FIRST += [name + ",".join(SECRETS) for name in ("user,", "user,user_id,", "item,", "rating,", "\ufffd,")]


@pytest.mark.parametrize("first", FIRST)
def test_no_cell_is_shown(tmp_path, first):
    path = tmp_path / "r.csv"
    path.write_text("\n".join([first, first, first.replace("user", "bob"), ""]))
    messages = []
    for reading in bad_readings(path, tmp_path):
        try:
            reading()
        except InputError as error:
            messages.append(str(error))
    assert len(messages) > 9
    for message in messages:
        assert not any(secret in message or repr(secret)[1:8] in message for secret in SECRETS)
        assert len(message.splitlines()) == 1
