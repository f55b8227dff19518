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

from hushrec.data import Domain, Ratings, textfiles
from hushrec.errors import InputError
from tests.data.pieces import in_pieces

DOMAIN = Domain(range(1, 9), rating_range=(1, 5))
EXPECTED = {"u": {1: 1.0, 2: 4.0}, "v": {0: 5.0}}


def read(path, content, **options):
    path.write_bytes(content)
    return as_dictionary(Ratings.from_any(path, DOMAIN, **options))


CSV_FORMS = {
    "plain": b"user,item,rating\nu,3,4\nv,1,5\nu,2,1\n",
    "no last line break": b"user,item,rating\nu,3,4\nv,1,5\nu,2,1",
    "movielens ratings.csv": b"userId,movieId,rating,timestamp\r\nu,3,4.0,9\r\nv,1,5.0,8\r\nu,2,1.0,7\r\n",
    "other order": b"rating,movie_id,x,USER\n4,3,,u\n5,1,,v\n1,2,,u\n",
    "byte-order mark": b"\xef\xbb\xbfuser,item,rating\nu,3,4\nv,1,5\nu,2,1\n",
    "quoted": b'"user","item","rating"\n"u","3","4"\n"v","1","5"\n"u","2","1"\n',
    "partly quoted": b'user,item,rating,title\nu,3,4,"a, ""b"""\nv,1,5,c\nu,2,1,"d"\n',
    "typed": b"user_id:token\titem_id:token\trating:float\nu\t3\t4\nv\t1\t5\nu\t2\t1\n",
    "semicolons": b"user;item;rating\nu;3;4\nv;1;5\nu;2;1\n",
    "tabs": b"user\titem\trating\nu\t3\t4\nv\t1\t5\nu\t2\t1\n",
    "Excel's first line": b"sep=;\r\nuser;item;rating\r\nu;3;4\r\nv;1;5\r\nu;2;1\r\n",
    "another, quoted": b'\xef\xbb\xbf"SEP=|"\nuser|item|rating\nu|3|4\nv|1|5\nu|2|1\n',
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
    assert read(tmp_path / "ratings.csv.gz", gzip.compress(content)) == EXPECTED


HEADERS = [
    "customer_id,product_id,stars,created_at",
    "Customer ID,SKU,Score,Order Date",
    "reviewerID,asin,overall,unixReviewTime",
    "buyer.id,book_id,value,rated at",
]


@pytest.mark.parametrize("header", HEADERS)
def test_usual_names_are_found_in_the_header_alone(tmp_path, header):
    """For any rows: here only numbers that could be any of the four."""
    path = tmp_path / "orders.csv"
    path.write_text(f"note,{header}\n1,2,3,4,5\n")
    ratings = Ratings.from_any(path, DOMAIN, columns={"time": True})
    assert as_dictionary(ratings) == {"2": {2: 4.0}}
    assert ratings.times.tolist() == [5]


def test_movielens(tmp_path):
    content = b"u\t3\t4\t881250949\nv\t1\t5\t891717742\nu\t2\t1\t878887116\n"
    for name in ("u.data", "u1.base", "ua.test"):
        assert read(tmp_path / name, content) == EXPECTED
    assert read(tmp_path / "other", content, format="movielens-100k") == EXPECTED
    assert read(tmp_path / "u.data", b"\xef\xbb\xbf" + content) == EXPECTED
    colons = content.replace(b"\t", b"::") + b"bad::1::3\nbad::1::\x1f3::4\n"
    assert read(tmp_path / "ratings.dat", colons) == EXPECTED


class TestParquet:
    table = pa.table(
        {"user": ["u", "v", "u"], "item": [3, 1, 2], "rating": [4.0, 5.0, 1.0], "extra": [[1], [2], [3]]}
    )

    def test_categories_and_many_batches(self, tmp_path, monkeypatch):
        in_pieces(monkeypatch, batch=7)
        rng = np.random.default_rng(0)
        users, items = rng.integers(0, 40, 500), rng.integers(1, 9, 500)
        values = rng.integers(1, 6, 500)
        expected = as_dictionary(Ratings.from_any((users, items, values), DOMAIN))
        coded = pa.array(items).cast(pa.string()).dictionary_encode()
        for user, item in ((pa.array(users), pa.array(items)), (pa.array(users).cast(pa.string()), coded)):
            path = tmp_path / "r.parquet"
            pq.write_table(pa.table({"user": user, "item": item, "rating": values}), path, row_group_size=50)
            found = as_dictionary(Ratings.from_any(path, DOMAIN))
            assert found == expected and list(found) == list(expected)

    def test_text_that_is_not_utf8(self, tmp_path):
        path = tmp_path / "r.parquet"
        octets = pa.array([b"\xff\xfe", b"v", b"\xff"], pa.binary())
        broken = pa.Array.from_buffers(pa.string(), 3, octets.buffers())
        pq.write_table(self.table.set_column(0, "user", broken).set_column(1, "item", broken), path)
        assert Ratings.from_any(path, DOMAIN).n_users == 0
        pq.write_table(self.table.set_column(0, "user", broken), path)
        ratings = Ratings.from_any(path, DOMAIN)
        assert ratings.users.tolist() == ["\ufffdxfffe", "v", "\ufffdxff"]
        assert ratings.to_arrow()["user"].to_pylist() == ["\ufffdxfffe", "v", "\ufffdxff"]

    def test_damaged(self, tmp_path):
        """A flipped byte is found or is not, but it never brings anything but an InputError."""
        path = tmp_path / "r.parquet"
        pq.write_table(self.table, path)
        whole = path.read_bytes()
        dice, refused = random.Random(0), 0
        for _ in range(300):
            broken = bytearray(whole)
            for _ in range(dice.choice([1, 1, 5])):
                broken[dice.randrange(4, len(whole))] = dice.randrange(256)
            path.write_bytes(broken)
            try:
                Ratings.from_any(path, DOMAIN)
            except InputError as error:
                refused += 1
                assert "\n" not in str(error)
        assert 0 < refused < 300


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
        expected, found = Ratings.from_any(whole, DOMAIN), Ratings.from_any(tmp_path / "r", DOMAIN)
        assert as_dictionary(found) == as_dictionary(expected)
        assert found.user_texts.to_pylist() == expected.user_texts.to_pylist() == ["u", "v", "w"]
        assert [type(user) for user in found.users] == [str, str, bytes]

    def test_row_numbers_of_several_files_are_refused(self, tmp_path):
        rows = Ratings.from_any(sp.eye_array(4, format="csr"), Domain(range(4), rating_range=(0, 1)))
        for number in (1, 2):
            pq.write_table(rows.to_arrow(), tmp_path / f"{number}.parquet")
        with pytest.raises(InputError, match="one table only"):
            Ratings.from_any(tmp_path, rows.domain)


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


@pytest.mark.parametrize(("block", "quoted"), [(16, True), (61, False), (1 << 20, True)])
def test_fields_against_the_csv_module(monkeypatch, block, quoted):
    in_pieces(monkeypatch, octets=block)
    monkeypatch.setattr(textfiles, "MAX_LINE_BYTES", 40)
    dice = random.Random(block)
    pieces = ['"', '"', ",", ",", ",", "a", "b1", "\n", "\n", "\r", "\r\n", ";", " ", "\x00", "\x1f", "\xff"]
    pieces += ['""', '"c"', "x" * 45]
    for _ in range(600):
        plain = dice.random() < 0.3
        chosen = dice.choices(pieces[2:16] if plain else pieces, k=dice.randrange(60))
        data = "".join(chosen).encode("latin-1")
        columns = fields_of(data, 3, [0, 2], ",", quoted)
        found = list(zip(*[column.to_pylist() for column in columns], strict=True))
        assert found == [(row[0], row[2]) for row in reference_fields(data, 3, ",", quoted)], data


def fields_of(data, n_fields, wanted, *options):
    blocks = [b"", *textfiles.lines_of(io.BytesIO(data))]
    fields = [textfiles.read_fields(block, n_fields, wanted, *options)[0] for block in blocks]
    return [pa.chunked_array(column) for column in zip(*fields, strict=True)]


def rows_of(data, n_fields=3, delimiter=",", quoted=True):
    columns = fields_of(data, n_fields, list(range(n_fields)), delimiter, quoted)
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
        in_pieces(monkeypatch, octets=1 << 20)
        alone = [row for line in lines for row in rows_of(line, 3, delimiter, quoted)]
        in_pieces(monkeypatch, octets=dice.choice([1, 2, 3, 7, 40, 1 << 20]))
        ending = dice.choice([b"\n", b"\r\n", b"\r"])
        assert rows_of(ending.join(lines) + dice.choice([b"", ending]), 3, delimiter, quoted) == alone, lines


def test_a_line_alone_and_among_others_is_the_same_row(monkeypatch, record_property):
    check_lines_alone_and_among_others(monkeypatch, 500, 0)
    record_property("fuzzed", 500)


@pytest.mark.parametrize("others", [b"", b"x,y,z\n", b'"x","y","z"\n', b'"x"y,y,z\n'])
def test_what_a_line_is_does_not_depend_on_the_others(others):
    """A byte-order mark before any line is dropped; a line may have any length."""
    assert (b"u", b"a", b"5") in rows_of(b"\xef\xbb\xbfu,a,5\n" + others)
    assert (b"u", b"a", b"5") in rows_of(others + b"\xef\xbb\xbfu,a,5\n")
    assert (b"\xef\xbb\xbfu", b"a", b"5") in rows_of(b"\xef\xbb\xbf\xef\xbb\xbfu,a,5\n" + others)
    for length, kept in ((1 << 16, 1), ((1 << 16) + 1, 0)):
        line = b'"' + b"u" * (length - 6) + b'",a,5'
        assert len(line) == length
        assert len(rows_of(line + b"\n" + others)) == kept + bool(others)


@pytest.mark.parametrize(
    ("name", "what"),
    [("r.xlsx", "a spreadsheet"), ("R.JSON.gz", "JSON"), ("r.db", "a database"), ("r.pdf", "a document"),
     ("r.npz", "a file of one program"), ("r.zip", "an archive"), ("r.tar.gz", "an archive")],
)  # fmt: skip
def test_what_is_no_table_by_its_name_is_told_unless_a_format_is_given(tmp_path, name, what):
    content = CSV_FORMS["plain"]
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(InputError, match=f"is {what} by its name; (save it as CSV or Parquet|unpack it)"):
        Ratings.from_any(tmp_path / name, DOMAIN)
    assert as_dictionary(Ratings.from_any(tmp_path / name, DOMAIN, format="csv")) == EXPECTED


@pytest.mark.parametrize("kind", ["movielens-100k", "movielens-dat"])
@pytest.mark.parametrize("columns", [{"user": "u"}, {"time": "when"}, {"time": False}, {}])
def test_a_file_without_names_of_columns_takes_none(tmp_path, kind, columns):
    (tmp_path / "r").write_text("u\t3\t4\t5\n")
    with pytest.raises(InputError, match=f"A file of format {kind} has no column names") as refused:
        Ratings.from_any(tmp_path / "r", DOMAIN, format=kind, columns=columns)
    assert refused.value.parameter == "columns"


def test_a_column_of_a_file_goes_before_its_folders_name(tmp_path):
    """A folder's name may hold users or items, but not both."""
    folder = tmp_path / "item=8" / "user=zoe"
    folder.mkdir(parents=True)
    (folder / "part.csv").write_bytes(CSV_FORMS["plain"])
    assert as_dictionary(Ratings.from_any(tmp_path, DOMAIN)) == EXPECTED
    (folder / "part.csv").write_text("item,rating\n3,4\n")
    assert as_dictionary(Ratings.from_any(tmp_path, DOMAIN)) == {"zoe": {2: 4.0}}
    (folder / "part.csv").write_text("rating\n3.0\n")
    with pytest.raises(InputError, match="neither a column of users nor one of items"):
        Ratings.from_any(tmp_path, DOMAIN)


@pytest.mark.parametrize(
    ("name", "format", "delimiter"),
    [("r.csv", None, ","), ("r.tsv", None, "\t"), ("r.dat", None, "::"), ("u.data", None, "\t")]
    + [("r.txt", mark, mark) for mark in (";", "|", "::", "\t", ",")],
)
def test_a_table_without_a_header_is_read_by_positions(tmp_path, name, format, delimiter) -> None:
    rows = [("a", "x", "1", "4"), ("b", "y", "2", "4,5"), ("c", "z", "1", "3.5")]
    rows = rows if delimiter != "," else [(*row[:3], row[3].replace(",", ".")) for row in rows]
    path, columns = tmp_path / name, {"user": 1, "item": 3, "rating": "4"}
    path.write_text("".join(delimiter.join(row) + "\n" for row in rows))
    expected = {"a": [("1", 4.0)], "b": [("2", 4.5)], "c": [("1", 3.5)]}
    domain = Domain(["1", "2"], rating_range=(1, 5))
    for asked in (columns, {role: str(place) for role, place in columns.items()}):
        assert by_user(Ratings.from_any(path, domain, columns=asked, format=format)) == expected
    found = Ratings.check(path, domain, columns=columns, format=format)
    assert (found.usable, found.rows, found.dropped) == (3, 3, ())
    hostile = ["mallory", "", '"', "{", "[1]", "\0", "mallory;1", '"a";b', "\ufeff"]
    hostile += [delimiter * 99, "x" * 70_000]
    hostile += [
        delimiter.join(["m", "x", "1", "4", "5"]),
        f'"m{delimiter}x"{delimiter}y{delimiter}1{delimiter}4',
    ]
    for line in hostile:
        for text in ([line, *map(delimiter.join, rows)], [*map(delimiter.join, rows), line]):
            path.write_text("\n".join(text) + "\n")
            read = by_user(Ratings.from_any(path, domain, columns=columns, format=format))
            assert {user: read[user] for user in expected} == expected
            assert set(read) - set(expected) <= {"m", f"m{delimiter}x", f'"m{delimiter}x"', '"m'}


def by_user(ratings: Ratings) -> dict[str, list[tuple[str, float]]]:
    ends = ratings.matrix.indptr
    cells = list(
        zip(np.array(ratings.domain.items)[ratings.matrix.indices], ratings.matrix.data, strict=True)
    )
    return {
        user: [(str(i), float(r)) for i, r in cells[a:b]]
        for user, a, b in zip(ratings.users, ends, ends[1:], strict=False)
    }


def test_positions_count_from_one_and_a_format_may_be_a_delimiter(tmp_path) -> None:
    (tmp_path / "r.csv").write_text("user|item|rating\na|1|4\n")
    domain = Domain(["1"], rating_range=(1, 5))
    assert Ratings.from_any(tmp_path / "r.csv", domain, format="|").n_ratings == 1
    (tmp_path / "r.txt").write_text("\tuser  item rating \n a\t1  4\n\nb   1 3  \nc 1\n")
    assert Ratings.from_any(tmp_path / "r.txt", domain, format=" ").users.tolist() == ["a", "b"]
    (tmp_path / "r.txt").write_text("a  1 4 x\n\n  b 1\t 3\n")
    places = {"user": 1, "item": 2, "rating": 3}
    assert Ratings.from_any(tmp_path / "r.txt", domain, format=" ", columns=places).n_users == 2
    with pytest.raises(InputError, match="count from 1"):
        Ratings.from_any(tmp_path / "r.csv", domain, columns={"user": 0, "item": 1, "rating": 2})
    with pytest.raises(InputError, match="or the delimiter of the columns"):
        Ratings.from_any(tmp_path / "r.csv", domain, format="#")


CELL = "mallory's cell"


@pytest.mark.parametrize(
    "error, said",
    [
        (
            pa.ArrowNotImplementedError("No reader of such dictionaries"),
            ["pyarrow ", "No reader of such dict"],
        ),
        (OSError("inflate failed: bad header"), ["inflate failed: bad header", "damaged or cut short"]),
        (pa.ArrowInvalid(f"CSV parse error in {CELL}"), ["ArrowInvalid", "damaged or cut short"]),
        (pa.ArrowTypeError(f"Expected a number, got {CELL}"), ["ArrowTypeError"]),
    ],
)
def test_a_refusal_keeps_the_words_of_the_library_but_never_a_cell(tmp_path, monkeypatch, error, said):
    def fail(*_, **__):
        raise error

    path = tmp_path / "r.csv"
    path.write_text("user,item,rating\na,1,4\n")
    monkeypatch.setattr("pyarrow.csv.read_csv", fail)
    with pytest.raises(InputError) as refusal:
        Ratings.from_any(path, DOMAIN)
    assert all(words in str(refusal.value) for words in said) and CELL not in str(refusal.value)


def test_a_parquet_file_that_cannot_be_opened_is_refused_in_the_words_of_the_library(tmp_path):
    path = tmp_path / "r.parquet"
    pq.write_table(pa.table({"user": ["a"], "item": [1], "rating": [4]}), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="magic bytes not found"):
        Ratings.from_any(path, DOMAIN)
