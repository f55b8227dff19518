"""The curator's look agrees with the reader and reports the use of each row."""

import bz2
import datetime
import gzip
import lzma
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from hushrec.checks import shown
from hushrec.data import Domain, Ratings
from hushrec.data.splits import check_times
from hushrec.errors import InputError
from tests.data.pieces import in_pieces

DOMAIN = Domain([f"i{k}" for k in range(6)], rating_range=(1, 5), max_ratings_per_user=3)
LINES = [
    "customer_id,product_id,stars", "a,i0,3", "a,i1", "a,i1,4,4", ",i1,4", "b,,4", "b,i9,4", 'b,i1,"3,5"',
    "b,i1,", "b,i1,7", "b,i1,nan", "a,i0,5", '"a",i2,1', 'c,"i3,2', "a,i3,2", "a,i4,2", "d,i5,2024-01-02",
    "d,i5,1e400",
]  # fmt: skip


def written(folder: Path, lines: list[str], name: str = "shop.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_every_line_is_accounted_for(tmp_path: Path) -> None:
    found = Ratings.check(written(tmp_path, LINES), DOMAIN)
    assert found.columns == {"user": "customer_id", "item": "product_id", "rating": "stars"}
    by_reason = {each.why: (each.count, each.first) for each in found.dropped}
    assert by_reason == {
        "the line has another number of fields than the header": (3, (3, 4, 14)),
        "no user id, or one of over 1,024 bytes": (1, (5,)),
        "no item id, or one of over 1,024 bytes": (1, (6,)),
        "the item is not in the catalogue": (1, (7,)),
        "the rating is missing or no number": (3, (9, 11, 17)),
        "the rating is not from 1 to 5": (2, (10, 18)),
        "the user rated the item again": (1, (2,)),
        "beyond the cap": (1, ()),
    }
    assert found.rows == len(LINES) - 1
    assert found.usable + sum(each.count for each in found.dropped) == found.rows
    ratings = Ratings.from_any(written(tmp_path, LINES), DOMAIN)
    assert (found.usable, found.users) == (ratings.n_ratings, ratings.n_users)
    assert (found.users_over_cap, found.items_unseen) == (1, 1)
    assert [hint.split(";")[0] for hint in found.hints] == ["some ratings look like dates"]
    assert "the item is not in the catalogue, such as 'i9' (line 7)" in found.text()
    assert found.text().startswith("PRIVATE") and found.to_dict()["note"].startswith("PRIVATE")


@pytest.mark.parametrize("seed", range(5))
def test_it_counts_what_is_read_of_any_table(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    users = rng.choice(["a", "b", "", "c "], 60)
    items = rng.choice([*DOMAIN.items, "i77", ""], 60)
    ratings = rng.choice(["1", "5", "4.5", "x", "", "9", "nan"], 60)
    frame = pd.DataFrame({"user": users, "item": items, "rating": ratings})
    lines = ["user,item,rating", *(",".join(row) for row in frame.itertuples(index=False))]
    lines[7] = lines[7] + ",more"
    path = written(tmp_path, lines)
    parquet = tmp_path / "shop.parquet"
    frame.to_parquet(parquet)
    for source in (path, frame, parquet, pq.read_table(parquet)):
        found, read = Ratings.check(source, DOMAIN), Ratings.from_any(source, DOMAIN)
        assert (found.usable, found.users) == (read.n_ratings, read.n_users)
        assert found.usable + sum(each.count for each in found.dropped) == found.rows == 60
        for each in found.dropped:
            for number in each.first:
                alone = Ratings.from_any(frame.iloc[[number - 1 - (source is path)]], DOMAIN)
                assert not alone.n_ratings or each.why.startswith(("the line has", "the user rated"))


FILES = [
    (b"PK\x03\x04rest", "a zip archive or an Excel workbook .*; unpack it"),
    (b'{"user": 1, "item": "i0", "rating": 3}\n', "JSON"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a Git LFS pointer .* git lfs pull"),
    (b"<!doctype html>\n<html></html>\n", "a web page or XML"),
    (b'[\n{"user": [1]\n}\n', "JSON"),
    (b"PAR1 cut short", "not a readable parquet file"),
    (gzip.compress(b"user,item,rating\n", mtime=0), "is compressed; end its name in .gz"),
    (bz2.compress(b"user,item,rating\n"), "is compressed; end its name in .bz2"),
    (lzma.compress(b"user,item,rating\n"), "compressed by xz .*; unpack it"),
    (pa.compress(b"user,item,rating\n", "zstd", asbytes=True), "is compressed; end its name in .zst"),
    ("user,item,rating\na,i0,3\n".encode("utf-16"), "UTF-16"),
    ("user,item,rating\na,i0,3\n".encode("utf-16-le"), "not UTF-8 text"),
]


@pytest.mark.parametrize(("content", "says"), FILES)
def test_other_kinds_of_files_are_refused_with_a_way_out(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "shop.csv").write_bytes(content)
    for read in (Ratings.check, Ratings.from_any):
        with pytest.raises(InputError, match=says):
            read(tmp_path / "shop.csv", DOMAIN)


def test_text_of_another_encoding_is_reported_wherever_it_is(tmp_path: Path) -> None:
    """Killed: only the first 4,096 bytes were looked at."""
    for before in (0, 5000):
        path = tmp_path / "shop.csv"
        path.write_bytes(
            b"user,item,rating\n" + b"a,i0,3\n" * before + b"\xe9,i\xe9,3\nb,i0,4\n" + b"a,i0,3\n"
        )
        hints = Ratings.check(path, DOMAIN).hints
        assert [hint.split(",")[0] for hint in hints if "UTF-8" in hint] == [
            f"the {role} id is not UTF-8 text in 1 row" for role in ("user", "item")
        ]


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.true("I2")
def test_a_row_of_likes_with_a_value_of_zero_or_less_is_left_out_and_counted(
    tmp_path: Path, implicit: bool
) -> None:
    """The header or an option finds the column, never a cell; a value that is no number leaves a like."""
    domain = Domain(DOMAIN.items, likes=True) if implicit else Domain(DOMAIN.items, rating_range=(0, 1))
    labels = [1, 0, 0, -2.5, 3, None]
    rows = {"user": [*"abcdea"], "item": ["i0", "i1", "i9", "i1", "i2", "i3"]}
    for name in ("rating", "click", "Quantity", "is_liked"):
        table = pa.table({**rows, name: labels})
        pq.write_table(table, tmp_path / "r.parquet")
        table.to_pandas().to_csv(tmp_path / "r.csv", index=False)
        asked = {"rating": name} if name == "is_liked" else None
        sources = [tmp_path / "r.parquet", tmp_path / "r.csv", table, table.to_pandas(), table.to_pydict()]
        for source in [*sources, pl.from_arrow(table).lazy(), (*rows.values(), labels)]:
            options = {"columns": None if isinstance(source, tuple) else asked, "implicit": True}
            found = Ratings.check(source, domain, **options)
            dropped = {each.why: each.count for each in found.dropped}
            assert dropped == {"the item is not in the catalogue": 1, "the entry is not above 0": 2}
            read = Ratings.from_any(source, domain, **options)
            assert read.users.tolist() == ["a", "e"] and set(read.matrix.data.tolist()) == {1.0}
            assert found.usable == read.n_ratings == 3
    (tmp_path / "r.csv").write_text("user,item,label\na,i0,True\nb,i0,FALSE\n")
    assert Ratings.from_any(tmp_path / "r.csv", domain, implicit=True).users.tolist() == ["a"]
    two = pa.table({**rows, "label": [0] * 6, "Label ": [0] * 6})
    for whole in (table.drop_columns(["is_liked"]), pa.table({**rows, "views": [[0]] * 6}), two, table):
        assert Ratings.from_any(whole, domain, implicit=True).n_ratings == 5


#: Text of a file with several ratings a line -> its layout, and the likes in it.
LAYOUTS = {
    "user,i1,i2,i3\nu1,1,0,1\nu2,0,0,1\n": ("wide table", "u1,i1 u1,i3 u2,i3"),
    '"i1"\t"who"\t"i3"\r\n1\t"u1"\t0\r\n0\t"u2"\t2.5\r\n': ("wide table", "u1,i1 u2,i3"),
    "i1;i2;i3\n1;0;\n0;0;1\n": ("wide table", "1,i1 2,i3"),
    "u1 i1 i2\nu2 i3\nu3 i1 i2 i3\n": ("one list a line", "u1,i1 u1,i2 u2,i3 u3,i1 u3,i2 u3,i3"),
    "user,items\nu1,i1 i2\nu2,i3\nu3,[i1;i3;i4]\n": (
        "one list a line",
        "u1,i1 u1,i2 u2,i3 u3,i1 u3,i3 u3,i4",
    ),
    "i1,i2\ni3\n": ("one list a line", "1,i1 1,i2 2,i3"),
}


@pytest.mark.parametrize("text", LAYOUTS)
def test_the_command_of_another_layout_makes_a_table(tmp_path: Path, monkeypatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    what, likes = LAYOUTS[text]
    Path("my file.csv").write_text(text, newline="")
    domain = Domain([f"i{k}" for k in range(6)], likes=True)
    with pytest.raises(InputError, match=f"{what}.*`awk .*`$") as refusal:
        Ratings.check("my file.csv", domain)
    subprocess.run(str(refusal.value).split("`")[1], shell=True, check=True)
    rows = [line.split(",")[:2] for line in Path("rows.csv").read_text().split("\n")[1:-1]]
    assert rows == [like.split(",") for like in likes.split()]
    assert Ratings.from_any("rows.csv", domain).n_ratings == len(rows)
    with pytest.raises(InputError, match="no column"):
        Ratings.from_any("my file.csv", domain)


def test_lists_that_are_read_by_position_give_a_hint_and_tables_do_not(tmp_path: Path) -> None:
    lists = written(tmp_path, ["u1 i1 i2", "u2 i3", "u3 i1 i2 i3"], "l.txt")
    found = Ratings.check(lists, DOMAIN, columns={"user": 1, "item": 2}, format=" ", implicit=True)
    assert "one list a line" in found.hints[0] and "\n  awk -F'[,;|\\t ]+'" in str(found)
    domain = Domain(range(9), rating_range=(1, 5))
    lines = ["user,item,rating", *(f"{k},{k % 9},{k % 5 + 1}" for k in range(20)), "1,2", "1,2,3,4"]
    assert not any("awk" in hint for hint in Ratings.check(written(tmp_path, lines), domain).hints)


FIELDS = [
    ("shop.csv", None, "user,item,rating\na,i0,3,\nb,i0,4,\n", "4 fields and the header has 3"),
    ("shop.csv", None, "user,item,rating,day\na,i0,3\nb,i0,4\n\n", "3 fields and the header has 4"),
    ("u.data", None, "a\ti0\t3\nb\ti0\t4\n", "3 fields where movielens-100k has 4"),
    ("r.dat", None, "a::i0::3\nb::i0::4\n", "3 fields where movielens-dat has 4"),
    ("shop.csv", None, "user,item,rating\n", "no rows below its header"),
]


@pytest.mark.parametrize(("name", "format", "text", "says"), FIELDS)
@pytest.mark.true("I2")
def test_lines_of_another_number_of_fields_are_explained(tmp_path: Path, name, format, text, says) -> None:
    (tmp_path / name).write_text(text)
    (hint,) = Ratings.check(tmp_path / name, DOMAIN, format=format).hints
    assert says in hint


@pytest.mark.parametrize("factor", [1, 10**3, 10**6, 10**9])
@pytest.mark.true("I2")
def test_times_in_another_unit_than_seconds_are_reported(tmp_path: Path, factor: int) -> None:
    times = [1_480_000_000 * factor, 1_620_000_000 * factor, None]
    table = pa.table({"user": [*"abc"], "item": ["i0"] * 3, "rating": [3, 4, 5], "timestamp": times})
    hints = Ratings.check(table, DOMAIN).hints
    unit = {10**3: "milliseconds", 10**6: "microseconds", 10**9: "nanoseconds"}.get(factor, "seconds")
    assert [hint.split(",")[0] for hint in hints] == [f"the times look like {unit}"] * (factor > 1)
    rows = Ratings.from_any(table, DOMAIN, columns={"time": True})
    for date in ("2020-01-01", datetime.date(2020, 1, 1)):
        if factor == 1:
            check_times(rows, date)
        else:
            with pytest.raises(InputError, match=f"PRIVATE.* look like {unit}"):
                check_times(rows, date)
    check_times(rows, 1_600_000_000 * factor)  # a number in the unit of the times
    known = rows.where(rows.times > 0, keyed=True)
    for date, side in (("2030-01-01", "before" if factor == 1 else "after"), ("2010-01-01", "after")):
        with pytest.raises(InputError, match=f"PRIVATE.* all ratings are {side}"):
            check_times(known, date)


def test_ids_that_floats_have_rounded_are_counted() -> None:
    """Killed: "no user id" and no more, where NumPy or pandas hold ids of 64 bits."""
    table = {"item": ["i0", "i1", "i2"], "rating": [3, 4, 5]}
    for users, n_rows in (
        ([2**62, 2**60 + 1, 5], 2),
        ([2.0**62, None, 5.0], 1),
        (["1.1529e+18", "1,15E+18", "v"], 2),
    ):
        for frame in (pd.DataFrame, pl.DataFrame):
            exact = frame is pl.DataFrame and isinstance(users[0], int)
            hints = Ratings.check(frame({"user": users, **table}), DOMAIN).hints
            assert len(hints) == (not exact)
            for hint in hints:
                assert (
                    f"{shown(users[0])}, in {n_rows} row" in hint and 'frame["user"].astype("string")' in hint
                )
    assert not Ratings.check(pd.DataFrame({"user": ["u", None, "v"], **table}), DOMAIN).hints
    matrix = sp.csr_array([[3.0, 0], [0, 4.0]])
    domain = Domain(["i0", "i1"], rating_range=(1, 5))
    hints = Ratings.check((np.array([76561198000000001, 7]), matrix), domain).hints
    assert len(hints) == 1 and "in 1 row;" in hints[0]


@pytest.mark.parametrize(("size", "compress"), [(20, bytes), (33, gzip.compress), (1 << 20, bz2.compress)])
def test_lines_are_numbered_over_all_blocks_of_a_file(tmp_path: Path, monkeypatch, size, compress) -> None:
    """Killed: numbers that begin again, a file that only training could read for it was compressed."""
    wanted = Ratings.check(written(tmp_path, LINES), DOMAIN)
    excel = Ratings.check(written(tmp_path, ["sep=,", *LINES], "excel.csv"), DOMAIN)
    moved = [(each.why, each.count, tuple(at + 1 for at in each.first)) for each in wanted.dropped]
    assert [(each.why, each.count, each.first) for each in excel.dropped] == moved
    in_pieces(monkeypatch, octets=size)
    ending = {gzip.compress: ".gz", bz2.compress: ".bz2"}.get(compress, "")
    path = tmp_path / f"again.csv{ending}"
    path.write_bytes(compress((tmp_path / "shop.csv").read_bytes()))
    assert Ratings.check(path, DOMAIN) == wanted


def test_files_without_a_header_count_from_their_first_line(tmp_path: Path) -> None:
    """Errors name columns that do not exist; a quotation mark is a letter; the first line may be a bad
    one."""
    lines = ["x::i0", "a::i0::3::9", "a::i1::7::9", "b::i0", "b::i0::4::8", 'c::"i1"::2::8']
    for name, mark in (("r.dat", "::"), ("u.data", "\t")):
        path = written(tmp_path, [line.replace("::", mark) for line in lines], name)
        found = Ratings.check(path, DOMAIN, columns={"time": True})
        assert (found.counted, found.columns, found.rows, found.usable) == ("line", {}, 6, 2)
        assert [each.first for each in found.dropped] == [(1, 4), (6,), (3,)]


def test_sources_that_are_no_one_file_of_text_count_rows(tmp_path: Path) -> None:
    """A folder of several files, folders with a column in their names, a matrix, and tables with names."""
    for name in "ab":
        written(tmp_path, ["user,item,rating", f"{name},i0,3", f"{name},i1,9"], f"{name}.csv")
    hive = tmp_path / "hive" / "who=a"
    hive.mkdir(parents=True)
    written(hive, ["item,rating", "i0,3", "i1,9"], "part.csv")
    table = pd.DataFrame({"who": ["a", "b"], "item": ["i0", "i1"], "rating": [3, 9]})
    matrix = sp.csr_array(np.array([[3, 9.0, 0, 0, 0, 0]]))
    named, who = {"user": "who", "item": "item", "rating": "rating"}, {"user": "who"}
    cases = [(tmp_path / "[ab].csv", None, {}, (2, 4)), (table, who, named, (2,)), (matrix, None, {}, (2,))]
    for source, asked, columns, first in [*cases, (hive.parent, who, {}, (2,))]:
        found = Ratings.check(source, DOMAIN, columns=asked)
        assert (found.counted, found.columns, found.usable) == ("row", columns, len(first))
        assert [(each.why, each.first) for each in found.dropped] == [
            ("the rating is not from 1 to 5", first)
        ]


def test_the_latest_rating_counts_and_the_others_are_named() -> None:
    """Times decide if there are any, and are not in the order of rows; else rows decide."""
    rows = (["a", "a", "b", "a", "b"], ["i0"] * 5, [1, 2, 3, 4, 5])
    for times, first in ((None, (1, 2, 3)), ([9, 7, 1, 8, 0], (2, 4, 5)), ([1, 1, 1, 0, 1], (1, 3, 4))):
        source = rows if times is None else (*rows, times)
        (found,) = Ratings.check(source, DOMAIN).dropped
        assert (found.why, found.count, found.first) == ("the user rated the item again", 3, first)
    names = ("user", "item", "rating", "when", "rated_at")
    table = pd.DataFrame(dict(zip(names, (*rows, [0] * 5, ["2024-01-02", "soon", 8, "", None]))))
    found = Ratings.check(table, DOMAIN)  # found by their name they are counted, and order nothing
    assert (found.without_time, found.dropped[0].first, found.columns["time"]) == (3, (1, 2, 3), "rated_at")
    assert found.not_read == ("when",) and "Not read  'when'; --columns quantity=NAME" in str(found)
    domain = Domain(range(9), rating_range=(1, 5), max_ratings_per_user=2)
    found = Ratings.check((["a"] * 2 + ["b"] * 5, [0, 1, *range(5)], [3.0] * 7), domain)
    assert [(each.why, each.count) for each in found.dropped] == [("beyond the cap", 3)]
    assert (found.users_over_cap, found.cap, found.items_unseen, found.n_items) == (1, 2, 4, 9)
