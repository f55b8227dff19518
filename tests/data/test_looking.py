"""The curator's look agrees with what is read, and says of each row what became of it."""

import bz2
import gzip
import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from hushrec.data import Domain, Ratings, looking, textfiles
from hushrec.errors import InputError

DOMAIN = Domain([f"i{k}" for k in range(6)], rating_range=(1, 5), max_ratings_per_user=3)
LINES = [
    "customer_id,product_id,stars",
    "a,i0,3",
    "a,i1",
    "a,i1,4,4",
    ",i1,4",
    "b,,4",
    "b,i9,4",
    'b,i1,"3,5"',
    "b,i1,",
    "b,i1,7",
    "b,i1,nan",
    "a,i0,5",
    '"a",i2,1',
    'c,"i3,2',
    "a,i3,2",
    "a,i4,2",
    "d,i5,2024-01-02",
    "d,i5,1e400",
]


def written(folder: Path, lines: list[str], name: str = "shop.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_every_line_is_accounted_for(tmp_path: Path) -> None:
    found = Ratings.check(written(tmp_path, LINES), DOMAIN)
    assert found.columns == {"user": "customer_id", "item": "product_id", "rating": "stars"}
    by_reason = {each.why: (each.count, each.first) for each in found.dropped}
    assert by_reason == {
        "the line has another number of fields than the first": (3, (3, 4, 14)),
        "no user id": (1, (5,)),
        "no item id": (1, (6,)),
        "the item is not in the catalogue": (1, (7,)),
        "the rating is missing or no number": (4, (8, 9, 11, 17)),
        "the rating is not from 1 to 5": (2, (10, 18)),
        "the user rated the item again": (1, (2,)),
        "beyond the cap": (1, ()),
    }
    assert found.rows == len(LINES) - 1
    assert found.usable + sum(each.count for each in found.dropped) == found.rows
    ratings = Ratings.read(written(tmp_path, LINES), DOMAIN)
    assert (found.usable, found.users) == (ratings.n_ratings, ratings.n_users)
    assert (found.users_over_cap, found.items_unseen) == (1, 2)
    assert [hint.split(";")[0] for hint in found.hints] == [
        "some ratings have a decimal comma",
        "some ratings look like dates",
    ]
    assert found.text().startswith("PRIVATE") and found.to_dict()["note"].startswith("PRIVATE")


@pytest.mark.parametrize("seed", range(30))
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
        found, read = Ratings.check(source, DOMAIN), Ratings.read(source, DOMAIN)
        assert (found.usable, found.users) == (read.n_ratings, read.n_users)
        assert found.usable + sum(each.count for each in found.dropped) == found.rows == 60
        for each in found.dropped:
            for number in each.first:
                assert not Ratings.read(frame.iloc[[number - 1 - (source is path)]], DOMAIN).n_ratings or (
                    each.why.startswith(("the line has", "the user rated"))
                )


def test_scales_and_histogram() -> None:
    def of(*values: float):
        return Ratings.check((["u"] * len(values), DOMAIN.items[: len(values)], list(values)), DOMAIN)

    assert of(1, 5).scales == ((1, 5), (0, 5), (1, 10), (0, 100))
    assert of(0, 1).scales == ((0, 1), (0, 5), (0, 100))
    assert of(-3, 4).scales == ()
    assert of(2, 2.5, 2, math.nan).histogram == ((2, 2, 2), (2.5, 2.5, 1))
    many = Domain(range(1000), rating_range=(0, 100))
    wide = Ratings.check((np.zeros(1000, int), np.arange(1000), np.linspace(0, 100, 1000)), many)
    assert [count for *_, count in wide.histogram] == [100] * 10


def test_bars_are_a_tenth_of_the_way_from_the_least_to_the_most() -> None:
    """A rating on a border counts above it, the most in the last bar; float32 adds no rounding of its own."""
    ratings = (0.1 + 0.7 * np.random.default_rng(0).random(300)).astype(np.float32)
    low, high = float(ratings.min()), float(ratings.max())
    bars = looking._histogram(ratings)
    edges = [low + (high - low) * n / 10 for n in range(11)]
    assert [edge for edge, *_ in bars] + [bars[-1][1]] == pytest.approx(edges, rel=1e-12)
    counts = [sum(one <= value < two for value in ratings.tolist()) for one, two in zip(edges, edges[1:])]
    assert [n for *_, n in bars] == [*counts[:-1], counts[-1] + 1]


def test_likes_have_no_histogram(tmp_path: Path) -> None:
    likes = Domain(DOMAIN.items, likes=True)
    found = Ratings.check(written(tmp_path, ["user,item", "a,i0", "a,i1"]), likes, implicit=True)
    assert found.usable == 2 and not found.histogram and "Ratings" not in found.text()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"PK\x03\x04rest", "Excel"),
        (b'{"user": 1, "item": "i0", "rating": 3}\n', "JSON lines"),
        ("user,item,rating\nJos\u00e9,i0,3\nb,i0,4\n".encode("latin-1"), "Latin-1"),
    ],
)
def test_other_kinds_of_files_are_told(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "shop.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        Ratings.check(path, DOMAIN)


def test_a_table_without_rows_is_told(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="error"):
        found = Ratings.check(written(tmp_path, LINES[:1]), DOMAIN)
    assert found.rows == 0 and "no rows" in found.hints[0]


def test_pipes_and_tables_for_a_catalogue(tmp_path: Path) -> None:
    piped = written(tmp_path, [line.replace(",", "|") for line in LINES[:2]])
    assert Ratings.check(piped, DOMAIN).usable == 1
    table = Domain(["i0,shoe", "i1,hat", "i2,sock"], rating_range=(1, 5))
    hints = Ratings.check(written(tmp_path, LINES), table).hints
    assert any("one a line, no table" in hint for hint in hints)
    assert any("written the same way" in hint for hint in hints)


@pytest.mark.parametrize(
    "users", [[2**62, 2**60 + 1, 5], [2.0**62, float("nan"), 5.0], ["1.1529e+18", "u", "v"]]
)
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_ids_that_may_have_been_rounded_are_told(users: list, frame: type) -> None:
    """An engineer with ids of 64 bits in pandas was told "no user id" and no more."""
    table = {"user": users, "item": ["i0", "i1", "i2"], "rating": [3, 4, 5]}
    exact = frame is pl.DataFrame and isinstance(users[0], int)
    hints = Ratings.check(frame(table), DOMAIN).hints
    assert any("16 digits" in hint for hint in hints) == (not exact)
    assert not Ratings.check(frame({**table, "user": ["u", None, "v"]}), DOMAIN).hints


def test_the_look_letter_by_letter() -> None:
    dropped = looking.Dropped("one", 1, (7,)), looking.Dropped("six", 1006, (1, 2, 3, 4, 5))
    dropped += (looking.Dropped("the cap", 2, ()), looking.Dropped("two", 2, (3, 9)))
    found = looking.Look(
        columns={"user": "who", "item": "what"}, format="csv", counted="line", rows=12345, usable=11334,
        dropped=dropped, users=1000, users_over_cap=1001, cap=1500, items_unseen=1002, n_items=4000,
        histogram=((1, 1, 1000), (2.5, 2.5, 4000), (3, 3.25, 49)), scales=((1, 5), (0, 5)),
        hints=("x.", "y."),
    )  # fmt: skip
    lines = found.text().split("\n")
    assert str(found) == found.text() and found.to_dict()["dropped"][0] == vars(dropped[0])
    assert lines == [
        "PRIVATE: computed from the ratings without noise, for the curator alone; nothing was charged.",
        "",
        "Format    csv",
        "Columns   user = 'who', item = 'what'",
        "Rows      12,345 read, 11,334 used, of 1,000 users",
        "           1 not used: one (line 7)",
        "       1,006 not used: six (lines 1, 2, 3, 4, 5, ...)",
        "           2 not used: the cap",
        "           2 not used: two (lines 3, 9)",
        "Cap       1,001 users have more than 1,500 ratings",
        "Items     1,002 of the 4,000 declared ones have no rating",
        "Ratings",
        "          1        1,000 ##########",
        "        2.5        4,000 ########################################",
        "  3 to 3.25           49",
        "Scales    1 to 5, 0 to 5 would hold all of them",
        "",
        "Hint: x.",
        "Hint: y.",
        "Do not declare from these counts, the histogram or the unseen items: they are your users'.",
        "Declare the scale that your form allows and the items that your shop sells.",
    ]
    bare = {"columns": {}, "format": None, "counted": "row", "dropped": (), "hints": (), "scales": ()}
    lines = looking.Look(**vars(found) | bare).text().split("\n")
    assert lines[2] == "Rows      12,345 read, 11,334 used, of 1,000 users" and lines[3].startswith("Cap ")
    assert lines[9:11] == ["Scales    none of the usual ones would hold all of them", ""]
    assert "Ratings" not in looking.Look(**vars(found) | {"histogram": ()}).text().split("\n")


@pytest.mark.parametrize("size", [20, 33, 1 << 20])
@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress])
def test_lines_are_numbered_over_all_blocks_of_a_file(tmp_path: Path, monkeypatch, size, compress) -> None:
    """Killed: numbers that begin anew, a file that only training could read for it was compressed."""
    wanted = Ratings.check(written(tmp_path, LINES), DOMAIN)
    monkeypatch.setattr(textfiles, "_BLOCK_BYTES", size)
    ending = {gzip.compress: ".gz", bz2.compress: ".bz2"}.get(compress, "")
    path = tmp_path / f"again.csv{ending}"
    path.write_bytes(compress((tmp_path / "shop.csv").read_bytes()))
    assert Ratings.check(path, DOMAIN) == wanted
    for each in wanted.dropped:
        assert each.first == tuple(sorted(each.first))


FIVE = ["a::i0::3::9", "a::i1::7::9", "b::i0", "b::i0::4::8", 'c::"i1"::2::8']


def test_files_without_a_header_count_from_their_first_line(tmp_path: Path) -> None:
    """Names of no columns are told, and a quotation mark is a letter; the first line may be a bad one."""
    lines = ["x::i0", *FIVE]
    forms = {"r.dat": lines, "u.data": [line.replace("::", "\t") for line in lines]}
    for name, lines in forms.items():
        found = Ratings.check(written(tmp_path, lines, name), DOMAIN, columns={"time": True})
        reasons = {each.why: each.first for each in found.dropped}
        assert (found.counted, found.columns, found.rows, found.usable) == ("line", {}, 6, 2)
        assert reasons == {
            "the line has another number of fields than the first": (1, 4),
            "the item is not in the catalogue": (6,),
            "the rating is not from 1 to 5": (3,),
        }
    found = Ratings.check(written(tmp_path, ["user,item,rating", "a,i0", "a,i1,3"]), DOMAIN)
    assert [(each.count, each.first) for each in found.dropped] == [(1, (2,))]


def test_sources_that_are_no_one_file_of_text_count_rows(tmp_path: Path) -> None:
    """A folder of several files, folders whose names hold a column, a matrix, and tables with names."""
    for name in "ab":
        written(tmp_path, ["user,item,rating", f"{name},i0,3", f"{name},i1,9"], f"{name}.csv")
    bad = "the rating is not from 1 to 5"
    for format in (None, "csv"):
        found = Ratings.check(tmp_path, DOMAIN, format=format)
        assert (found.counted, found.format, found.columns, found.rows) == ("row", format, {}, 4)
        assert [(each.why, each.first) for each in found.dropped] == [(bad, (2, 4))]
    table = pd.DataFrame({"who": ["a", "b"], "item": ["i0", "i1"], "rating": [3, 9]})
    columns = {"user": "who"}
    hive = tmp_path / "hive" / "who=a"
    hive.mkdir(parents=True)
    written(hive, ["item,rating", "i0,3", "i1,9"], "part.csv")
    for source, kind in ((table, None), (pl.DataFrame(table), None), (hive.parent, "csv")):
        found = Ratings.check(source, DOMAIN, columns=columns)
        assert (found.counted, found.format, found.usable) == ("row", kind, 1)
        assert found.columns == ({} if kind else {"user": "who", "item": "item", "rating": "rating"})
        assert [(each.why, each.count, each.first) for each in found.dropped] == [(bad, 1, (2,))]
    (hive / "part.csv").unlink()
    table[["item", "rating"]].to_parquet(hive / "part.parquet")
    found = Ratings.check(hive.parent, DOMAIN, columns=columns)
    assert found.columns["user"] == "who" and (found.format, found.usable) == ("parquet", 1)
    matrix = sp.csr_array(np.array([[3, 0, 0, 0, 0, 9.0], [0, 0, 7, 2, 0, 0]]))
    found = Ratings.check(matrix, DOMAIN)
    assert (found.usable, found.columns, found.dropped[0].first) == (2, {}, (2, 3))


def test_a_file_that_is_cut_short_is_told(tmp_path: Path) -> None:
    path = tmp_path / "shop.csv.gz"
    path.write_bytes(gzip.compress("\n".join([*LINES, *map(str, range(9999))]).encode())[:-900])
    with pytest.raises(InputError, match="cut short"):
        Ratings.check(path, DOMAIN)


def test_the_latest_rating_counts_and_the_others_are_named() -> None:
    """By times where there are any, whose order is not that of the rows; by rows without."""
    rows = (["a", "a", "b", "a", "b"], ["i0"] * 5, [1, 2, 3, 4, 5])
    for times, first in ((None, (1, 2, 3)), ([9, 7, 1, 8, 0], (2, 4, 5)), ([1, 1, 1, 0, 1], (1, 3, 4))):
        source = rows if times is None else (*rows, times)
        (found,) = Ratings.check(source, DOMAIN).dropped
        assert (found.why, found.count, found.first) == ("the user rated the item again", 3, first)
    domain = Domain(range(9), rating_range=(1, 5), max_ratings_per_user=2)
    found = Ratings.check((["a"] * 2 + ["b"] * 5, [0, 1, *range(5)], [3.0] * 7), domain)
    assert [(each.why, each.count) for each in found.dropped] == [("beyond the cap", 3)]
    assert (found.users_over_cap, found.cap, found.items_unseen, found.n_items) == (1, 2, 4, 9)


def test_at_most_five_numbers_are_named_and_21_bars_drawn() -> None:
    domain = Domain(range(30), rating_range=(0, 30))
    found = Ratings.check((["u"] * 14, [*range(8), *range(6)], [*[99] * 8, *range(6)]), domain)
    assert [(each.count, each.first) for each in found.dropped] == [(8, (1, 2, 3, 4, 5))]
    for count, bars in ((21, 21), (22, 10)):
        histogram = Ratings.check((["u"] * count, range(count), [*range(count)]), domain).histogram
        assert len(histogram) == bars and sum(n for *_, n in histogram) == count
    assert histogram[0] == (0.0, 2.1, 3) and histogram[-1] == pytest.approx((18.9, 21.0, 3), rel=1e-12)
    tenth = Ratings.check((["u", "v", "w"], [0, 1, 2], [0.1, math.inf, 3]), domain)
    assert tenth.histogram == ((0.1, 0.1, 1), (3, 3, 1)) and tenth.scales == ((0, 5), (0, 100))


@pytest.mark.parametrize("likes", [True, False])
def test_where_every_row_is_a_like_there_are_no_ratings_to_show(likes: bool) -> None:
    """Because the domain is of likes, or because it was said."""
    domain = Domain(DOMAIN.items, likes=True) if likes else DOMAIN
    table = {"user": ["a", "b"], "item": ["i0", "i1"]}
    found = Ratings.check(table, domain, implicit=not likes)
    assert found.usable == 2 and found.histogram == ()
    if not likes:
        with pytest.raises(InputError, match="every row be a like"):
            Ratings.check(table, DOMAIN)


def test_hints_of_a_catalogue_need_a_majority() -> None:
    def hints(ids, items=("i0",)):
        rows = (["u"] * len(items), list(items), [3] * len(items))
        return [hint.split(":")[0] for hint in Ratings.check(rows, Domain(ids, (1, 5))).hints]

    for mark in ",;\t|":
        table = f"most ids of the catalogue hold {mark!r}"
        assert hints([f"x{mark}y", "i0"]) == [] and hints(["i0", f"x{mark}y", f"z{mark}y"]) == [table]
    assert hints(["x;y"], ["x;y"]) == ["most ids of the catalogue hold ';'"]
    assert hints(["i0", "i1"], ["i0", "i9"]) == [] == hints(["i0", "i1", "i2"])
    unknown = ["most items are not in the catalogue"]
    assert hints(["i0"], ["i9"]) == hints(["i0"], ["i0", "i8", "i9"]) == unknown


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xd0\xcf\x11\xe0rest", "Excel"),
        (b" \n{\n" + b'"user": [1]\n}\n', "looks like JSON;"),
        (b'\n{"user": 1}', "looks like JSON lines;"),
        (b"user,item,rating\n" + b"a,i0,3\n" * 100 + b"\xe9,i0,3\nb,i0,4\n", "Latin-1"),
    ],
)
def test_further_kinds_of_files_are_told(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "shop.csv").write_bytes(content)
    with pytest.raises(InputError, match=says):
        Ratings.check(tmp_path / "shop.csv", DOMAIN)


@pytest.mark.parametrize("shift", range(10))
def test_a_letter_at_the_end_of_what_is_looked_at_is_no_latin(tmp_path: Path, shift: int) -> None:
    lines = ["user,item,rating", "x" * shift + ",i0,3", *["\U0001f600,i1,4"] * 900]
    assert Ratings.check(written(tmp_path, lines), DOMAIN).rows == 901


def test_words_of_ratings_that_are_hinted_at(tmp_path: Path) -> None:
    """In one cell among others, with blanks and signs; a number that has neither form is no hint."""
    for word, hint in (("-3;5", []), (" -3,5 ", ["comma"]), ("3/5/2024 10:00", ["dates"]), ("3.5", [])):
        lines = ["user;item;rating", "a;i0;3", f"b;i0;{word}"]
        hints = Ratings.check(written(tmp_path, lines), DOMAIN).hints
        assert len(hints) == len(hint) and all(word in found for word, found in zip(hint, hints))
