import decimal
import math
import uuid

import numpy as np
import pandas as pd
import pytest

from hushrec.data import Domain, Ratings
from hushrec.data.catalogue import pack, unpack
from hushrec.errors import InputError

RANGE = (1.0, 5.0)


SAME = [7, np.int64(7), "7", 7.0, np.float32(7), "7.0", b"7", " 7 ", "7\n", decimal.Decimal("7.00")]
OTHERS = ["07", "7.00", "7.5", 7.5, "+7", "7a", "Seven", -7, None, math.nan, [], "", "7e0"]


def test_one_id_however_it_is_stored():
    for same in SAME:
        assert Domain([3, 7, 70, "x"], rating_range=RANGE).index([same]).tolist() == [1]
        assert Domain([same], rating_range=RANGE).index([7, "7"]).tolist() == [0, 0]
    assert Domain([7], rating_range=RANGE).index(OTHERS).tolist() == [-1] * len(OTHERS)
    items = (1, "b", uuid.UUID(int=9), b"z", 2.5)
    assert Domain(items, rating_range=RANGE).items == items


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([], "empty"), (None, "missing; .*declare"), ("abc", "read a file with Domain"), (7, "sequence"),
        ({"a": 1}, "not a dict; pass the column"), (pd.DataFrame({"item": ["a"]}), "not a DataFrame"),
        ([7, "8", 7.0], r"the id 7.0 twice \(items 1 and 3\)"), (["a", " a"], "' a' twice"),
        (["a", ""], "Item 2 of the catalogue, '', is no id"), ([1, math.nan], "Item 2"), ([[1]], "Item 1"),
        (["a", "9.78E+12"], "Item 2 .* '9.78E\\+12', is a number whose last digits"), ([1e17], "last digits"),
        (["9,78E+12", "b"], "last digits"), ([b"1e+17"], "last digits"), ([pd.Timestamp(0)], "a date"),
    ],
)  # fmt: skip
def test_a_catalogue_that_cannot_number_items_is_refused(items, words):
    with pytest.raises(InputError, match=words) as caught:
        Domain(items, rating_range=RANGE)
    assert str(caught.value).count(". ") == 0


@pytest.mark.parametrize(
    "bad",
    [None, 5, "15", (1,), (1, 2, 3), (5, 1), (1, 1), (math.nan, 5), (1, math.nan), (-math.inf, 5),
     (1, math.inf), ("1", "5"), (True, 5), (1, 10**400), (-1e308, 1e308), (1.0, 1.0 + 1e-12), (1j, 5),
     (0, 1.01e30), (-3e38, 3e38), (-1.01e30, 0)],
)  # fmt: skip
def test_a_range_that_bounds_nothing_is_refused(bad):
    with pytest.raises(InputError, match="rating.range") as caught:
        Domain(["a"], rating_range=bad)
    assert str(caught.value).count(". ") == 0


@pytest.mark.parametrize("cap", [0, -1, 1.5, "9", None, True, math.nan])
def test_a_cap_that_is_no_count_is_refused(cap):
    with pytest.raises(InputError, match="max_ratings_per_user"):
        Domain(["a"], rating_range=RANGE, max_ratings_per_user=cap)


#: Text of a catalogue file -> its ids.
LISTS = {
    "\ufeff10\r\n\r\n  20 \nfilm \u00e9, 2\n\n": ["10", "20", "film \u00e9, 2"],
    "Matrix, The\nHeat\nAlien\n": ["Matrix, The", "Heat", "Alien"],
    '"Kubrick, Stanley"\n"Lynch, David"\n': ["Kubrick, Stanley", "Lynch, David"],
    '"7"\n"8"\n"""Hi"", she said"\n': ["7", "8", '"Hi", she said'],
    '"std::map"\n"std::set"': ["std::map", "std::set"],
    'a b\nc d\n"Crocodile" Dundee\n': ["a b", "c d", '"Crocodile" Dundee'],
    "sep=;\r\n7\r\n8\r\n": ["7", "8"],
    "[REC]\nmovie\n": ["[REC]", "movie"],
    "<unknown>\nnot found\n2 rows\n": ["<unknown>", "not found", "2 rows"],
    "0 A.D.\n7 Wonders\n2048\n": ["0 A.D.", "7 Wonders", "2048"],
    "500 Days of Summer\n": ["500 Days of Summer"],
}
#: Text of a file that is no catalogue -> words of the error.
TABLES = {
    **{
        mark.join(("1", "A red house", "Drama")) + "\n" + mark.join(("2", "Heat", "")) + "\n": "3 columns"
        for mark in ("\t", "::", "|", ",", ";")
    },
    "item_id:token\ttitle:token_seq\n1\tHeat\n": "2 columns",
    'isbn;title\n"1";"Heat; or not"\n"2";"a long\n\nstory\nof more lines"\n': "2 columns",
    '1,"Heat, Part 2"\n2,Alien\nend of file\n': "2 columns",
    "a,b,c,d\n": "4 columns",
    **{f"{name}\n1\n2\n": "header" for name in ("item_id", "movieId", '"sku"', "items", "x:token", "Title")},
    '["1", "2"]\n': "JSON",
    '[\n"1",\n"2"\n]\n': "JSON",
    '{"id": 1}\n{"id": 2}\n': "JSON",
    "\n \n": "no id",
    "a\0\n": "not text",
    "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n": "a pointer to a file",
    "/annex/objects/MD5E-s123--abc.txt\n": "a pointer to a file",
    "\n<!DOCTYPE html>\n<html>\n<body>gone</body></html>\n": "a web page",
    "<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>": "a web page or XML",
    "404: Not Found": "a server's refusal",
    "HTTP/1.1 403 Forbidden\n": "a server's refusal",
    "['a' 'b']": "a printed list",
    "array(['a', 'b'],\n      dtype='<U1')": "a printed list",
    str(pd.Series(["i1", "i2"], name="item")): "a printed table",
    str(pd.Series(map(str, range(70)))): "a printed table",
    str(pd.DataFrame({"item": ["i1", "i2"]})): "a printed table",
    str(pd.DataFrame({"item": range(70), "price": range(70)})): "a printed table",
    "┌──────┐\n│ item │\n╞══════╡\n│ a    │\n└──────┘\n": "a printed table",
    " item \n------\n a\n b\n(2 rows)\n": "a printed table",
    "+------+\n| item |\n+------+\n| a    |\n+------+\n": "a printed table",
}


@pytest.mark.true("I1")
def test_a_catalogue_file_is_a_list_of_ids_or_refused(tmp_path):
    path = tmp_path / "items.txt"
    for text, items in LISTS.items():
        path.write_text(text, newline="")
        assert Domain.read_catalogue(path) == items
    for text, words in TABLES.items():
        path.write_text(text, newline="")
        with pytest.raises(InputError, match=words) as caught:
            Domain.read_catalogue(path)
        assert str(caught.value).count(". ") == 0, text
    path.write_bytes("k\u00f6ln\n".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        Domain.read_catalogue(path)
    with pytest.raises(InputError, match="cannot be read"):
        Domain.read_catalogue(tmp_path)


def test_likes_have_no_range_and_no_values():
    """A domain of likes takes every row for a like of 1, and the model file remembers it."""
    domain = Domain(["a", "b"], likes=True)
    assert domain.rating_range == (0.0, 1.0) and "likes" in repr(domain)
    assert Domain(["a", "b"], rating_range=(0, 1), likes=True) == domain
    assert Domain(["a", "b"], rating_range=(0, 1)).fingerprint != domain.fingerprint
    with pytest.raises(InputError, match="no rating range"):
        Domain(["a"], rating_range=(1, 5), likes=True)
    with pytest.raises(InputError, match="likes=True"):
        Domain(["a"])
    rows = {"user": ["u", "u"], "item": ["a", "b"], "rating": [4.5, None]}
    assert Ratings.from_any(rows, domain).matrix.toarray().tolist() == [[1, 1]]
    del rows["rating"]
    assert Ratings.from_any(rows, domain).matrix.toarray().tolist() == [[1, 1]]
    for hers in (["b"], {"b": 3}, [("b", 3)]):
        assert Ratings.of_user(hers, domain).matrix.toarray().tolist() == [[0, 1]]
    declared, catalogue = pack(domain)
    assert unpack(declared, catalogue) == domain
    assert "likes" not in pack(Domain(["a"], rating_range=(0, 1)))[0]


def test_what_counts_as_a_like_and_what_a_domain_is_told_by() -> None:
    for low, high, wanted in [(1, 5, 4.0), (0, 10, 7.5), (-10, 10, 5.0)]:
        assert Domain(["a"], (low, high)).like_threshold == wanted
    domains = [Domain(["a"], (0, 1)), Domain(["a"], likes=True), Domain(["b"], (0, 1)), Domain(["a"], (0, 2))]
    domains += [Domain(["a", "b"], (0, 1)), Domain(["b", "a"], (0, 1)), Domain(["ab"], (0, 1))]
    domains += [Domain(["a"], (-1, 1)), Domain(["a"], (0, 1), max_ratings_per_user=9)]
    assert domains[1].like_threshold is None
    assert len({domain.fingerprint for domain in domains}) == len(domains)
    features = Domain(("a", "b"), [0.0, 1.0], item_features=np.eye(2))
    assert domains[4].fingerprint == features.fingerprint and domains[4] == features
    assert repr(Domain(range(1200), (0.5, 5))) == "Domain(1,200 items, rating_range=(0.5, 5))"
