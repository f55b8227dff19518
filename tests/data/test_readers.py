import csv
import gzip
import io
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from data_oracle import as_dictionary, lines

from hushrec.data import Domain, Ratings, files, readers, textfiles
from hushrec.errors import InputError

DOMAIN = Domain(range(1, 9), rating_range=(1, 5))
EXPECTED = {"u": {1: 1.0, 2: 4.0}, "v": {0: 5.0}}


def read(path, content, **options):
    path.write_bytes(content)
    return as_dictionary(Ratings.read(path, DOMAIN, **options))


CSV_FORMS = {
    "plain": b"user,item,rating\nu,3,4\nv,1,5\nu,2,1\n",
    "no last line break": b"user,item,rating\nu,3,4\nv,1,5\nu,2,1",
    "movielens ratings.csv": b"userId,movieId,rating,timestamp\r\nu,3,4.0,9\r\nv,1,5.0,8\r\nu,2,1.0,7\r\n",
    "other order": b"rating,movie_id,x,USER\n4,3,,u\n5,1,,v\n1,2,,u\n",
    "byte-order mark": b"\xef\xbb\xbfuser,item,rating\nu,3,4\nv,1,5\nu,2,1\n",
    "quoted": b'"user","item","rating"\n"u","3","4"\n"v","1","5"\n"u","2","1"\n',
    "partly quoted": b'user,item,rating,title\nu,3,4,"a, ""b"""\nv,1,5,c\nu,2,1,"d"\n',
    "semicolons": b"user;item;rating\nu;3;4\nv;1;5\nu;2;1\n",
    "tabs": b"user\titem\trating\nu\t3\t4\nv\t1\t5\nu\t2\t1\n",
    "bars": b"user|item|rating\nu|3|4\nv|1|5\nu|2|1\n",
    "old Mac line breaks": b"user,item,rating\ru,3,4\rv,1,5\ru,2,1\r",
    "blank lines": b"user,item,rating\n\nu,3,4\n\n\nv,1,5\nu,2,1\n\n",
    "spaces": b" user , item , rating \n u , 3 , 4 \nv, 1, 5\nu ,2 ,1\n",
    "integers with a hole": b"user,item,rating\nu,3.0,4.0\nv,1.0,5\n,2.0,3\nu,2.0,1\n",
    "bad lines": b"user,item,rating\nu,3,4\nu,2\nv,1,5\nv,1,2,2\nu,A7,3\nu,2,n/a\nu,2,1\nv\n",
    "double colons": b"user::item::rating\nu::3::4\nv::1::5\nu::2::1\n",
}


@pytest.mark.parametrize("content", [pytest.param(c, id=name) for name, c in CSV_FORMS.items()])
def test_csv_forms(tmp_path, content):
    assert read(tmp_path / "ratings.csv", content) == EXPECTED
    assert read(tmp_path / "ratings", content) == EXPECTED
    with gzip.open(tmp_path / "ratings.csv.gz", "wb") as file:
        file.write(content)
    assert as_dictionary(Ratings.read(tmp_path / "ratings.csv.gz", DOMAIN)) == EXPECTED


@pytest.mark.parametrize(
    "header",
    [
        "customer_id,product_id,stars,created_at",
        "Customer ID,SKU,Score,Order Date",
        "customer,product,rating,date",
        "client_id,product_sku,review_score,reviewDate",
        "member,ISBN,Book-Rating,timestamp",
        "reviewerID,asin,overall,unixReviewTime",
        "user_id,business_id,stars,date",
        "buyer.id,book_id,value,rated at",
        "account,track_id,user_rating,datetime",
    ],
)
def test_usual_names_are_found_in_the_header_alone(tmp_path, header):
    """Whatever the rows hold: here nothing but numbers that could be any of the four."""
    path = tmp_path / "orders.csv"
    path.write_text(f"note,{header}\n1,2,3,4,5\n")
    ratings = Ratings.read(path, DOMAIN, columns={"time": True})
    assert as_dictionary(ratings) == {"2": {2: 4.0}}
    assert ratings.times.tolist() == [5]


def test_the_most_usual_of_several_names_counts(tmp_path):
    """What was found before there were further names is still found."""
    content = b"sku,customer_id,item,user,overall,rating\n9,9,3,u,9,4\n9,9,1,v,9,5\n9,9,2,u,9,1\n"
    assert read(tmp_path / "r.csv", content) == EXPECTED


def test_text_ids_stay_text(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("user,item,rating\n7,3,4\n08,1,5\n")
    assert Ratings.read(path, DOMAIN).users.tolist() == ["7", "08"]
    path.write_bytes(b"user,item,rating\n\xff ,3,4\n")
    assert Ratings.read(path, DOMAIN).users.tolist() == ["\ufffdxff"]


def test_movielens_100k(tmp_path):
    content = b"u\t3\t4\t881250949\nv\t1\t5\t891717742\nu\t2\t1\t878887116\n"
    for name in ("u.data", "u1.base", "ua.test"):
        assert read(tmp_path / name, content) == EXPECTED
    assert read(tmp_path / "other", content, format="movielens-100k") == EXPECTED
    assert read(tmp_path / "u.data", b"\xef\xbb\xbf" + content) == EXPECTED


def test_movielens_dat(tmp_path):
    content = b"u::3::4::978300760\nv::1::5::978302109\nu::2::1::978301968\nbad::1::3\nbad::1::\x1f3::4\n"
    assert read(tmp_path / "ratings.dat", content) == EXPECTED


def test_a_headerless_first_line_is_a_row(tmp_path):
    path = tmp_path / "u.data"
    path.write_bytes(b"u\t3\t4\t1\n")
    assert Ratings.read(path, DOMAIN).n_ratings == 1


class TestJester:
    domain = Domain(range(1, 101), rating_range=(-10, 10))

    def line(self, ratings):
        row = ["99"] * 100
        for joke, rating in ratings.items():
            row[joke - 1] = str(rating)
        return ",".join([str(len(ratings)), *row])

    def test_published_form(self, tmp_path):
        path = tmp_path / "jester-data-1.csv"
        path.write_text("\n".join([self.line({1: -7.82, 100: 8.79}), self.line({}), self.line({5: 0.0})]))
        ratings = Ratings.read(path, self.domain)
        assert as_dictionary(ratings) == {"1": {0: np.float32(-7.82), 99: np.float32(8.79)}, "3": {4: 0.0}}
        assert ratings.users.tolist() == [1, 3]

    def test_bad_lines_are_users_without_ratings(self, tmp_path):
        path = tmp_path / "jokes.txt"
        good = self.line({1: 5})
        path.write_text(
            "\n".join(["", "nonsense", good, good + ",99", self.line({2: "n/a", 3: "1e999", 4: 11}), good])
        )
        assert list(as_dictionary(Ratings.read(path, self.domain, format="jester"))) == ["3", "6"]

    def test_no_rating_is_none_in_a_range_that_holds_its_mark_too(self, tmp_path):
        path = tmp_path / "jester-data-5.csv"
        path.write_text("\n".join([self.line({1: 98.5, 2: -99, 3: 100}), self.line({})]))
        wide = Domain(range(1, 101), rating_range=(-100, 200))
        assert as_dictionary(Ratings.read(path, wide)) == {"1": {0: 98.5, 1: -99.0, 2: 100.0}}

    def test_semicolons_and_a_mark(self, tmp_path):
        path = tmp_path / "jester-data-2.csv"
        path.write_bytes(b"\xef\xbb\xbf" + self.line({7: 1}).replace(",", ";").encode())
        assert as_dictionary(Ratings.read(path, self.domain)) == {"1": {6: 1.0}}

    @pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
    def test_a_line_break_across_blocks_is_one_line_break(self, tmp_path, monkeypatch, ending):
        """Numbers of users do not move with the length of what others wrote."""
        path = tmp_path / "jester-data-4.csv"
        lines = [self.line({1: 1}), "", self.line({2: 2}), "x", self.line({3: 3})]
        path.write_bytes(("\ufeff" + ending.join(lines) + ending).encode())
        for block in range(1, 40):
            monkeypatch.setattr(textfiles, "_BLOCK_BYTES", block)
            assert as_dictionary(Ratings.read(path, self.domain)) == {"1": {0: 1}, "3": {1: 2}, "5": {2: 3}}

    def test_nobody(self, tmp_path):
        path = tmp_path / "jester-data-3.csv"
        path.write_bytes(b"")
        assert Ratings.read(path, self.domain).n_users == 0


class TestParquet:
    table = pa.table(
        {"user": ["u", "v", "u"], "item": [3, 1, 2], "rating": [4.0, 5.0, 1.0], "extra": [[1], [2], [3]]}
    )

    @pytest.mark.parametrize(
        "kind", [pa.int8(), pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.decimal128(21, 1)]
    )
    @pytest.mark.parametrize("group", [1, 100])
    def test_types(self, tmp_path, kind, group):
        path = tmp_path / "r.parquet"
        items = self.table["item"].cast(pa.string() if kind == pa.binary() else kind).cast(kind)
        pq.write_table(self.table.set_column(1, "item", items), path, row_group_size=group)
        assert as_dictionary(Ratings.read(path, DOMAIN)) == EXPECTED
        path.rename(tmp_path / "named-otherwise.csv")
        assert as_dictionary(Ratings.read(tmp_path / "named-otherwise.csv", DOMAIN)) == EXPECTED

    def test_categories_and_many_batches(self, tmp_path, monkeypatch):
        monkeypatch.setattr("hushrec.data.files._BATCH_ROWS", 7)
        rng = np.random.default_rng(0)
        users, items = rng.integers(0, 40, 500), rng.integers(1, 9, 500)
        values = rng.integers(1, 6, 500)
        expected = as_dictionary(Ratings.from_any((users, items, values), DOMAIN))
        for user, item in (
            (pa.array(users), pa.array(items)),
            (pa.array(users).cast(pa.string()), pa.array(items).cast(pa.string()).dictionary_encode()),
            (pa.array([None, *users[1:]]), pa.array(items, pa.float32())),
        ):
            path = tmp_path / "r.parquet"
            pq.write_table(pa.table({"user": user, "item": item, "rating": values}), path, row_group_size=50)
            found = as_dictionary(Ratings.read(path, DOMAIN))
            if not user.null_count:
                assert found == expected
                assert list(found) == list(expected)

    def test_no_rows(self, tmp_path):
        path = tmp_path / "r.parquet"
        pq.write_table(self.table.slice(0, 0), path)
        assert Ratings.read(path, DOMAIN).n_users == 0

    def test_text_that_is_not_utf8(self, tmp_path):
        path = tmp_path / "r.parquet"
        broken = pa.Array.from_buffers(
            pa.string(), 3, pa.array([b"\xff\xfe", b"v", b"\xff"], pa.binary()).buffers()
        )
        pq.write_table(self.table.set_column(0, "user", broken).set_column(1, "item", broken), path)
        assert Ratings.read(path, DOMAIN).n_users == 0
        pq.write_table(self.table.set_column(0, "user", broken), path)
        ratings = Ratings.read(path, DOMAIN)
        assert ratings.users.tolist() == ["\ufffdxfffe", "v", "\ufffdxff"]
        assert ratings.to_arrow()["user"].to_pylist() == ["\ufffdxfffe", "v", "\ufffdxff"]
        assert len(ratings.user_keys) == 3

    @pytest.mark.parametrize("keep", [0, 3, 4, 8, 0.3, 0.7, -1, -4, -8])
    def test_cut_short(self, tmp_path, keep):
        path = tmp_path / "r.parquet"
        pq.write_table(self.table, path)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(keep * len(whole)) if 0 < keep < 1 else keep])
        with pytest.raises(InputError, match="parquet") as caught:
            Ratings.read(path, DOMAIN)
        assert "\n" not in str(caught.value)

    def test_damaged(self, tmp_path):
        """A flipped byte is found or is not, but it never brings anything but an InputError."""
        path = tmp_path / "r.parquet"
        pq.write_table(self.table, path)
        whole = path.read_bytes()
        dice = random.Random(0)
        for _ in range(300):
            broken = bytearray(whole)
            for _ in range(dice.choice([1, 1, 5])):
                broken[dice.randrange(4, len(whole))] = dice.randrange(256)
            path.write_bytes(broken)
            try:
                Ratings.read(path, DOMAIN)
            except InputError as error:
                assert "\n" not in str(error)


class TestSeveralFiles:
    """One below another in the order of their names, as if they were one file."""

    rows = ("u,3,4", "v,1,5", "u,2,2", "u,2,1", ",3,4", "v,9,1", "w,1,3")

    def write(self, folder):
        """The rows in three files of different types."""
        folder.mkdir()
        (folder / "a.csv").write_text("\n".join(["user,item,rating", *self.rows[:2], ""]))
        with gzip.open(folder / "b.tsv.gz", "wt") as file:
            file.write("\n".join(["movieId\tuserId\tscore", *("2\tu\t2", "2\tu\t1", "3\t\t4")]))
        table = pa.table({"user": [b"v", b"w"], "item": ["9", "1"], "rating": [1.0, 3.0]})
        (folder / "c").mkdir()
        pq.write_table(table, folder / "c" / "d.parquet")
        (folder / "_SUCCESS.csv").write_text("no table")
        (folder / "readme.txt").write_text("no table")

    def test_a_folder(self, tmp_path):
        self.write(tmp_path / "r")
        whole = tmp_path / "r.csv"
        whole.write_text("\n".join(["user,item,rating", *self.rows]))
        expected, found = Ratings.read(whole, DOMAIN), Ratings.read(tmp_path / "r", DOMAIN)
        assert as_dictionary(found) == as_dictionary(expected)
        assert found.user_texts.to_pylist() == expected.user_texts.to_pylist() == ["u", "v", "w"]
        assert [type(user) for user in found.users] == [str, str, bytes]
        assert Domain.observed(whole).items == ("1", "2", "3", "9")

    def test_a_pattern(self, tmp_path):
        self.write(tmp_path / "r")
        found = Ratings.read(tmp_path / "r" / "[ab].*", DOMAIN)
        assert as_dictionary(found) == {"u": {2: 4.0, 1: 1.0}, "v": {0: 5.0}}
        assert Ratings.from_any(str(tmp_path / "**" / "*.parquet"), DOMAIN).users.tolist() == [b"w"]
        with pytest.raises(InputError, match="No file matches"):
            Ratings.read(tmp_path / "*.pq", DOMAIN)

    def test_a_name_that_looks_like_a_pattern(self, tmp_path):
        path = tmp_path / "r[1].csv"
        path.write_bytes(CSV_FORMS["plain"])
        assert as_dictionary(Ratings.read(path, DOMAIN)) == EXPECTED

    def test_many_parts_of_one_type(self, tmp_path):
        rng = np.random.default_rng(0)
        columns = {
            "user": rng.integers(0, 2**60, 40)[rng.integers(0, 40, 900)],
            "item": rng.integers(1, 9, 900),
        }
        table = pa.table({**columns, "rating": rng.integers(1, 6, 900), "time": rng.integers(0, 50, 900)})
        for part in range(9):
            pq.write_table(table.slice(part * 100, 100), tmp_path / f"part-{part}.parquet")
        for options in ({}, {"columns": {"time": True}}):
            found, whole = (Ratings.from_any(each, DOMAIN, **options) for each in (tmp_path, table))
            assert as_dictionary(found) == as_dictionary(whole)
            assert found.users.dtype == np.int64
            assert found.to_arrow().equals(whole.to_arrow())

    def test_row_numbers_of_several_files_are_refused(self, tmp_path):
        for number in (1, 2):
            (tmp_path / f"jester-data-{number}.csv").write_text(",".join(["0"] + ["99"] * 100))
        with pytest.raises(InputError, match="one file only"):
            Ratings.read(tmp_path, Domain(range(1, 101), rating_range=(-10, 10)))

    def test_one_that_is_damaged(self, tmp_path):
        self.write(tmp_path / "r")
        (tmp_path / "r" / "e.parquet").write_bytes(b"PAR1")
        with pytest.raises(InputError, match="e.parquet"):
            Ratings.read(tmp_path / "r", DOMAIN)


class TestWhatCannotBeRead:
    def test_nothing_there(self, tmp_path):
        with pytest.raises(InputError, match="No such file"):
            Ratings.read(tmp_path / "none.parquet", DOMAIN)

    def test_a_folder(self, tmp_path):
        with pytest.raises(InputError, match="folder"):
            Ratings.read(tmp_path, DOMAIN)

    @pytest.mark.parametrize(
        "content", [b"", b"\n", b"\xff\xfe\x00", b"\x00" * 100, b"x" * 1_000_000, b"<html></html>"]
    )
    @pytest.mark.parametrize("name", ["r.csv", "r.parquet", "r.tsv", "r.csv.gz"])
    def test_no_table(self, tmp_path, content, name):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            Ratings.read(path, DOMAIN)
        assert len(str(caught.value)) < 1000
        assert "\n" not in str(caught.value)

    def test_gzip_cut_short(self, tmp_path):
        path = tmp_path / "r.csv.gz"
        body = gzip.compress(b"user,item,rating\n" + b"".join(b"u%d,1,4\n" % k for k in range(10_000)))
        path.write_bytes(body[: len(body) // 2])
        with pytest.raises(InputError, match="cut short"):
            Ratings.read(path, DOMAIN)

    def test_missing_columns(self, tmp_path):
        path = tmp_path / "r.csv"
        path.write_bytes(b"user,film,rating\nu,1,4\n")
        with pytest.raises(InputError, match="no column for the items"):
            Ratings.read(path, DOMAIN)
        assert Ratings.read(path, DOMAIN, columns={"item": "film"}).n_users == 1
        assert (
            Ratings.read(
                path, Domain([1], rating_range=(0, 1)), columns={"item": "film"}, implicit=True
            ).n_users
            == 1
        )

    def test_a_first_line_that_is_a_row_is_not_shown(self, tmp_path):
        path = tmp_path / "r.csv"
        path.write_bytes(b"alice@example.org,1193,5\nbob,1,4\n")
        with pytest.raises(InputError) as caught:
            Ratings.read(path, DOMAIN)
        assert "alice" not in str(caught.value)

    def test_wrong_format(self, tmp_path):
        path = tmp_path / "r.csv"
        path.write_bytes(CSV_FORMS["plain"])
        for wrong in ("xlsx", 3, "", "CSV"):
            with pytest.raises(InputError, match="format"):
                Ratings.read(path, DOMAIN, format=wrong)
        with pytest.raises(InputError, match="parquet"):
            Ratings.read(path, DOMAIN, format="parquet")
        with pytest.raises(InputError, match="column names"):
            Ratings.read(path, DOMAIN, format="jester", columns={"user": "u"})
        with pytest.raises(InputError, match="format"):
            Ratings.from_any(pa.table({}), DOMAIN, format="csv")


def reference_fields(data, n_fields, delimiter, quoted):
    """Fields of each line by the csv module, one reader a line."""
    rows = []
    for line in lines(data):
        if len(line) > textfiles.MAX_LINE_BYTES:
            continue
        text = line.decode("latin-1")
        if quoted and '"' in text:
            fields = next(csv.reader([text], delimiter=delimiter))
        else:
            fields = text.split(delimiter)
        if len(fields) == n_fields:
            rows.append([field.encode("latin-1") for field in fields])
    return rows


@pytest.mark.parametrize("block", [16, 61, 1 << 20])
@pytest.mark.parametrize("quoted", [True, False])
def test_fields_against_the_csv_module(monkeypatch, block, quoted):
    monkeypatch.setattr(textfiles, "_BLOCK_BYTES", block)
    monkeypatch.setattr(textfiles, "MAX_LINE_BYTES", 40)
    dice = random.Random(block)
    pieces = [
        '"',
        '"',
        ",",
        ",",
        ",",
        "a",
        "b1",
        "\n",
        "\n",
        "\r",
        "\r\n",
        ";",
        " ",
        "\x00",
        "\x1f",
        "\xff",
        '""',
        '"c"',
        "x" * 45,
    ]
    for _ in range(600):
        plain = dice.random() < 0.3
        data = "".join(
            dice.choice(pieces[2:16] if plain else pieces) for _ in range(dice.randrange(60))
        ).encode("latin-1")
        columns = textfiles.read_fields(textfiles.lines_of(io.BytesIO(data)), 3, [0, 2], ",", quoted)
        found = list(zip(*[column.to_pylist() for column in columns], strict=True))
        assert found == [(row[0], row[2]) for row in reference_fields(data, 3, ",", quoted)], data


def test_a_line_that_the_csv_module_refuses_is_skipped_and_no_other_row_taken_twice():
    before = csv.field_size_limit(4)
    try:
        assert rows_of(b'"a",b,c"\nd,"longer",f"\ng,"h",i"\n') == [(b"a", b"b", b'c"'), (b"g", b"h", b'i"')]
    finally:
        csv.field_size_limit(before)


def test_a_line_without_end_is_skipped(tmp_path):
    path = tmp_path / "r.csv"
    with path.open("wb") as file:
        file.write(b"user,item,rating\nu,3,4\n")
        for _ in range(48):
            file.write(b'"' + b"x" * (1 << 20))
        file.write(b"\nv,1,5\nu,2,1\n")
    assert as_dictionary(Ratings.read(path, DOMAIN)) == EXPECTED


def rows_of(data, n_fields=3, delimiter=",", quoted=True):
    columns = textfiles.read_fields(
        textfiles.lines_of(io.BytesIO(data)), n_fields, list(range(n_fields)), delimiter, quoted
    )
    return list(zip(*[column.to_pylist() for column in columns], strict=True))


def check_lines_alone_and_among_others(monkeypatch, cases, seed):
    monkeypatch.setattr(textfiles, "MAX_LINE_BYTES", 24)
    dice = random.Random(seed)
    cells = [b"a", b"b1", b"", b'"c"', b'"d,e"', b'"f""g"', b'"h', b'i"', b'"j"k', b"\xff", b"\x1f", b"\x00"]
    cells += [b"\xef\xbb\xbf", b"\xef\xbb\xbfl", b'\xef\xbb\xbf"m"', b"\xef\xbb\xbf" * 2, b"\xef", b"n" * 18]
    for _ in range(cases):
        delimiter, quoted = dice.choice([(",", True), (",", False), ("\t", False), ("::", False)])
        width = [3] * 9 + [1, 2, 4, 9]
        lines = [
            delimiter.encode().join(dice.choices(cells, k=dice.choice(width)))
            for _ in range(dice.randrange(1, 8))
        ]
        monkeypatch.setattr(textfiles, "_BLOCK_BYTES", 1 << 20)
        alone = [row for line in lines for row in rows_of(line, 3, delimiter, quoted)]
        monkeypatch.setattr(textfiles, "_BLOCK_BYTES", dice.choice([1, 2, 3, 7, 40, 1 << 20]))
        ending = dice.choice([b"\n", b"\r\n", b"\r"])
        assert rows_of(ending.join(lines) + dice.choice([b"", ending]), 3, delimiter, quoted) == alone, lines


def test_a_line_alone_and_among_others_is_the_same_row(monkeypatch, record_property):
    check_lines_alone_and_among_others(monkeypatch, 500, 0)
    record_property("fuzzed", 500)


@pytest.mark.full
def test_a_line_alone_and_among_others_is_the_same_row_at_length(monkeypatch, record_property):
    check_lines_alone_and_among_others(monkeypatch, 10_000, 1)
    record_property("fuzzed", 10_000)


@pytest.mark.parametrize("others", [b"", b"x,y,z\n", b'"x","y","z"\n', b'"x"y,y,z\n'])
def test_what_a_line_is_does_not_depend_on_the_others(others):
    """A byte-order mark before a line is dropped wherever it stands; a line is as long as it is written."""
    assert (b"u", b"a", b"5") in rows_of(b"\xef\xbb\xbfu,a,5\n" + others)
    assert (b"u", b"a", b"5") in rows_of(others + b"\xef\xbb\xbfu,a,5\n")
    assert (b"\xef\xbb\xbfu", b"a", b"5") in rows_of(b"\xef\xbb\xbf\xef\xbb\xbfu,a,5\n" + others)
    for length, kept in ((1 << 16, 1), ((1 << 16) + 1, 0)):
        line = b'"' + b"u" * (length - 6) + b'",a,5'
        assert len(line) == length
        assert len(rows_of(line + b"\n" + others)) == kept + bool(others)


@pytest.mark.parametrize("inside", ["user", "item"])
def test_folders_of_text_files_may_name_users_or_items_but_not_both(inside, tmp_path):
    """Either column is in the files, the other one in the folders' names."""
    other = {"user": "item", "item": "user"}[inside]
    for key, rows in (("1", "2,3.0\n1,4.0\n"), ("2", "1,5.0\n")):
        folder = tmp_path / "one" / f"{other}={key}"
        folder.mkdir(parents=True)
        (folder / "part.csv").write_text(f"{inside},rating\n{rows}")
    found = Ratings.read(tmp_path / "one", Domain(["1", "2"], (1, 5)))
    cells = {("2", "1"): 3.0, ("1", "1"): 4.0, ("1", "2"): 5.0}
    wanted = cells if inside == "user" else {(item, user): rating for (user, item), rating in cells.items()}
    table = found.to_arrow().to_pydict()
    assert dict(zip(zip(map(str, table["user"]), map(str, table["item"])), table["rating"])) == wanted
    both = tmp_path / "both" / "user=1" / "item=2"
    both.mkdir(parents=True)
    (both / "part.csv").write_text("rating\n3.0\n")
    with pytest.raises(InputError, match="neither a column of users nor one of items"):
        Ratings.read(tmp_path / "both", Domain(["1", "2"], (1, 5)))


@pytest.mark.parametrize(
    ("name", "what"),
    [("r.xlsx", "a spreadsheet"), ("R.JSON.gz", "JSON"), ("r.db", "a database"), ("r.pdf", "a document"),
     ("r.npz", "a file of one program")],
)  # fmt: skip
def test_what_is_no_table_by_its_name_is_told_unless_a_format_is_given(tmp_path, name, what):
    content = CSV_FORMS["plain"]
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(InputError, match=f"is {what} by its name; save it as CSV or Parquet, a row a rating"):
        Ratings.read(tmp_path / name, DOMAIN)
    assert as_dictionary(Ratings.read(tmp_path / name, DOMAIN, format="csv")) == EXPECTED


@pytest.mark.parametrize("kind", ["movielens-100k", "movielens-dat", "jester"])
@pytest.mark.parametrize("columns", [{"user": "u"}, {"time": "when"}, {"time": False}, ("a", "b"), {}])
def test_a_file_without_names_of_columns_takes_none(tmp_path, kind, columns):
    (tmp_path / "r").write_text("u\t3\t4\t5\n")
    with pytest.raises(InputError, match=f"A file of format {kind} has no column names") as refused:
        Ratings.read(tmp_path / "r", DOMAIN, format=kind, columns=columns)
    assert refused.value.parameter == "columns"


def test_a_line_of_jester_is_as_long_as_any(tmp_path, monkeypatch):
    path, domain = tmp_path / "jester-data-1.csv", Domain(range(1, 101), rating_range=(-10, 10))
    line = ",".join(["2", "1.5", *["99"] * 98, "-2.5"])
    path.write_text(f"{line}\n{line} \n{line}\n")
    for most, users in ((len(line) - 1, []), (len(line), ["1", "3"]), (len(line) + 1, ["1", "2", "3"])):
        monkeypatch.setattr(files, "MAX_LINE_BYTES", most)
        assert list(as_dictionary(Ratings.read(path, domain))) == users


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_of_a_file_goes_before_its_folders_name(tmp_path, kind):
    folder = tmp_path / "item=8" / "user=zoe"
    folder.mkdir(parents=True)
    if kind == "csv":
        (folder / "part.csv").write_bytes(CSV_FORMS["plain"])
    else:
        pq.write_table(
            pa.table({"user": ["u", "v", "u"], "item": [3, 1, 2], "rating": [4, 5, 1]}), folder / "p.pq"
        )
    assert as_dictionary(Ratings.read(tmp_path, DOMAIN)) == EXPECTED


@pytest.mark.parametrize("together", [1, 3, 1 << 20])
@pytest.mark.parametrize("ids", [None, ["a", "b", "c", "d"]])
def test_entries_of_a_matrix_belong_to_their_rows(monkeypatch, together, ids):
    """However many of them are looked at together."""
    monkeypatch.setattr(readers, "_TOGETHER", together)
    dense = np.array([[3, 0, 4, 1], [0, 0, 0, 0], [5, 2, 0, 0], [0, 0, 0, 2.5]])
    found = Ratings.from_any((ids, sp.coo_array(dense)), Domain(list("wxyz"), (1, 5)))
    wanted = {(ids or "0123")[row]: {i: v for i, v in enumerate(line) if v} for row, line in enumerate(dense)}
    assert as_dictionary(found) == {user: own for user, own in wanted.items() if own}
    assert found.by_position == (ids is None)
