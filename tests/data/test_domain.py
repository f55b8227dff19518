import math
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from hushrec.data import Domain, Ratings
from hushrec.data.catalogue import pack, unpack
from hushrec.data.domain import DEFAULT_MAX_RATINGS_PER_USER, HOW_TO_DECLARE, _check_catalogue, _no_list
from hushrec.errors import InputError

RANGE = (1.0, 5.0)


def test_what_is_declared_is_what_is_there():
    domain = Domain(["a", "b"], rating_range=(1, 4))
    assert domain.items == ("a", "b")
    assert (domain.n_items, domain.low, domain.high) == (2, 1.0, 4.0)
    assert (domain.midpoint, domain.half_width) == (2.5, 1.5)
    assert domain.max_ratings_per_user == DEFAULT_MAX_RATINGS_PER_USER == 10_000
    assert domain.declared


def test_it_is_frozen_and_hashable():
    domain = Domain(["a"], rating_range=RANGE)
    with pytest.raises(AttributeError):
        domain.declared = False
    assert hash(domain) == hash(Domain(["a"], rating_range=RANGE))
    assert domain == Domain(("a",), rating_range=[1, 5])
    assert domain != Domain(["a"], rating_range=RANGE, declared=False)


@pytest.mark.parametrize(
    "same",
    [
        7,
        np.int64(7),
        np.uint8(7),
        "7",
        7.0,
        np.float32(7),
        "7.0",
        b"7",
        " 7 ",
        "7\n",
        __import__("decimal").Decimal("7.00"),
    ],
)
def test_one_id_however_it_is_stored(same):
    domain = Domain([3, 7, 70, "x"], rating_range=RANGE)
    assert domain.index([same]).tolist() == [1]
    assert Domain([same], rating_range=RANGE).index([7, "7"]).tolist() == [0, 0]


@pytest.mark.parametrize(
    "other", ["07", "7.00", "7.5", 7.5, "+7", "7a", "Seven", -7, None, math.nan, [], "", "7e0"]
)
def test_other_ids_are_other_ids(other):
    assert Domain([7], rating_range=RANGE).index([other]).tolist() == [-1]


@pytest.mark.parametrize(
    "ids",
    [
        [10, 30, 20],
        np.array([10, 30, 20], np.int32),
        np.array([10.0, 30.0, 20.0]),
        np.array(["10", "30", "20"]),
        np.array([10, "30", 20.0], object),
        pa.array([10, 30, 20]),
        pa.chunked_array([[10], [30, 20]]),
        pa.array(["10", "30", "20"]).dictionary_encode(),
        pa.array(["10", "30", "20"], pa.string_view()),
        pa.array([b"10", b"30", b"20"]),
        pd.Series([10, 30, 20]),
        pd.Series(["10", "30", "20"]),
        pd.Series(["10", "30", "20"], dtype="category"),
        pd.Series([10, 30, 20], dtype="Int64"),
        (10, "30", 20),
    ],
)
def test_index_takes_any_column(ids):
    found = Domain(range(10, 30, 10), rating_range=RANGE).index(ids)
    assert found.dtype == np.int64
    assert found.tolist() == [0, -1, 1]


def test_index_of_one_id_and_of_none():
    domain = Domain(["a", "b"], rating_range=RANGE)
    assert domain.index("b").tolist() == [1]
    assert domain.index([]).tolist() == []


def test_ids_of_many_types_come_back_as_declared():
    items = (1, "b", uuid.UUID(int=9), b"z", 2.5)
    domain = Domain(items, rating_range=RANGE)
    assert domain.items == items
    assert domain.index([str(uuid.UUID(int=9)), "z", "2.5"]).tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([], "empty"),
        (None, "missing"),
        ("abc", "sequence"),
        (7, "sequence"),
        (["a", "a"], "twice"),
        ([7, "7"], "twice"),
        ([7, 7.0], "twice"),
        (["a", " a"], "twice"),
        (["a", ""], "Item 2"),
        ([None], "Item 1"),
        ([1, math.nan], "Item 2"),
        ([[1]], "Item 1"),
    ],
)
def test_a_catalogue_that_cannot_number_items_is_refused(items, words):
    with pytest.raises(InputError, match=words) as caught:
        Domain(items, rating_range=RANGE)
    assert str(caught.value).count(". ") == 0


@pytest.mark.parametrize(
    "bad",
    [None, 5, "15", (1,), (1, 2, 3), (5, 1), (1, 1), (math.nan, 5), (1, math.nan), (-math.inf, 5),
     (1, math.inf),
     ("1", "5"), (True, 5), (None, 5), (1, 10**400), (-1e308, 1e308), (1.0, 1.0 + 1e-12), (1j, 5),
     (0, 1.01e30), (-3e38, 3e38), (-1.01e30, 0)],
)  # fmt: skip
def test_a_range_that_bounds_nothing_is_refused(bad):
    with pytest.raises(InputError, match="rating.range") as caught:
        Domain(["a"], rating_range=bad)
    assert str(caught.value).count(". ") == 0


def test_the_widest_range():
    assert Domain(["a"], rating_range=(-1e30, 1e30)).half_width == 1e30


@pytest.mark.parametrize("cap", [0, -1, 1.5, "9", None, True, math.nan, math.inf])
def test_a_cap_that_is_no_count_is_refused(cap):
    with pytest.raises(InputError, match="max_ratings_per_user"):
        Domain(["a"], rating_range=RANGE, max_ratings_per_user=cap)


def test_catalogue_file(tmp_path):
    path = tmp_path / "items.txt"
    path.write_bytes(b"\xef\xbb\xbf10\r\n\r\n  20 \nfilm \xc3\xa9\n\n")
    assert Domain.read_catalogue(path) == ["10", "20", "film é"]
    assert Domain(Domain.read_catalogue(path), rating_range=RANGE).index([20]).tolist() == [1]


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff\xfea\x00", None])
def test_catalogue_that_cannot_be_read(tmp_path, content):
    path = tmp_path / "items.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match="catalogue"):
        Domain.read_catalogue(path)
    with pytest.raises(InputError, match="catalogue"):
        Domain.read_catalogue(tmp_path)


def test_fingerprint_tells_what_is_public_apart():
    base = Domain(["a", "b"], rating_range=RANGE)
    assert base.fingerprint == Domain(("a", "b"), rating_range=(1.0, 5)).fingerprint
    assert Domain([1], rating_range=RANGE).fingerprint == Domain(["1"], rating_range=RANGE).fingerprint
    others = [
        Domain(["b", "a"], rating_range=RANGE),
        Domain(["ab"], rating_range=RANGE),
        Domain(["a", "b"], rating_range=(1, 4)),
        Domain(["a", "b"], rating_range=RANGE, max_ratings_per_user=9),
    ]
    assert len({base.fingerprint, *[other.fingerprint for other in others]}) == 5
    assert len(base.fingerprint) == 64


def test_observed_reads_what_occurs_and_says_so():
    domain = Domain.observed((["u", "u", "v"], [10, 9, 100], [0.1, 4.5, math.nan]))
    assert domain.items == (9, 10, 100)
    assert (domain.low, domain.high) == (0.1, 4.5)
    assert not domain.declared
    assert "declared=False" in repr(domain)


def test_observed_with_one_rating_value():
    assert Domain.observed((["u"], ["i"], [5])).rating_range == (0.0, 5.0)
    assert Domain.observed((["u"], ["i"], [0])).rating_range == (0.0, 1.0)
    assert Domain.observed((["u"], ["i"], [-2])).rating_range == (-2.0, 0.0)
    assert Domain.observed({"user": ["u"], "item": ["i"]}, implicit=True).rating_range == (0.0, 1.0)


def test_observed_of_nothing():
    with pytest.raises(InputError, match="declare"):
        Domain.observed(([], [], []))


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


@pytest.mark.parametrize("implicit", [False, True])
def test_what_is_observed_is_public_and_in_the_order_of_people(implicit) -> None:
    """Whole numbers of fewer than 20 digits by their size, then all else by its text."""
    numbers = ["007", "9", "10", "1" * 19, "9" * 19]
    words = ["0" * 19 + "8", "3.5", "9 lives", "x10", "x2", "\u00b2"]
    items = [*reversed(words), *reversed(numbers)]
    table = (["a"] * len(items), items, np.linspace(0.1, 4.1, len(items)))
    found = Domain.observed(table, implicit=implicit, max_ratings_per_user=7)
    assert list(found.items) == numbers + words
    assert not found.declared and found.likes == implicit and found.max_ratings_per_user == 7
    assert (found.low, found.high) == ((0.0, 1.0) if implicit else (0.1, 4.1))
    with pytest.raises(InputError, match="no usable rating"):
        Domain.observed((["a"], ["b"], ["n/a"]))


def test_what_is_no_number_is_not_observed() -> None:
    strange = Domain.observed((["a"] * 4, ["b", "c", "d", "e"], [math.inf, 2.0, math.nan, 5.0]))
    assert strange.rating_range == (2.0, 5.0) and strange.n_items == 4


def test_what_counts_as_a_like_and_what_a_domain_is_told_by() -> None:
    for low, high, wanted in [(1, 5, 4.0), (0, 10, 7.5), (-10, 10, 5.0)]:
        assert Domain(["a"], (low, high)).like_from == wanted
    domains = [
        Domain(["a"], (0, 1)),
        Domain(["a"], likes=True),
        Domain(["b"], (0, 1)),
        Domain(["a"], (0, 2)),
        Domain(["a"], (-1, 1)),
        Domain(["a"], (0, 1), max_ratings_per_user=9),
    ]
    assert domains[1].like_from is None
    assert len({domain.fingerprint for domain in domains}) == len(domains)
    assert domains[0].fingerprint == Domain(("a",), [0.0, 1.0]).fingerprint


def test_what_is_shown_and_compared_of_a_domain() -> None:
    """Its items by their number; features are no part of what a domain is."""
    items = range(1200)
    assert repr(Domain(items, (0.5, 5))) == "Domain(1,200 items, rating_range=(0.5, 5))"
    assert repr(Domain(items, likes=True)) == "Domain(1,200 items, likes)"
    observed = Domain(["a"], (0, 1), declared=False)
    assert repr(observed) == "Domain(1 items, rating_range=(0, 1), declared=False)"
    plain, one, two = (
        Domain(["a", "b"], RANGE, item_features=features)
        for features in (None, np.ones((2, 3)), np.array([[0.0], [2.0]]))
    )
    assert plain == one == two and hash(plain) == hash(one) == hash(two)
    assert plain.fingerprint == one.fingerprint and two.item_features.tolist() == [[0.0], [2.0]]
    assert plain.item_features is None


def test_items_have_a_column_of_their_own_type_where_they_have_one() -> None:
    for items, wanted in (([3, 1], pa.array([3, 1])), (["a", "b"], pa.array(["a", "b"]))):
        assert Domain(items, RANGE).item_column.equals(wanted)
    for items in ([3, "b"], [b"a", 2], [uuid.UUID(int=1), 2**70]):
        domain = Domain(items, RANGE)
        assert (
            domain.item_column.equals(domain.item_texts) and domain.text_list == domain.item_texts.to_pylist()
        )
    for given in (
        np.array([3, 1], np.int16),
        pa.array([3, 1]),
        pa.chunked_array([[3], [1]]),
        pd.Series([3, 1]),
    ):
        found = Domain(given, RANGE).items
        assert found == (3, 1) and {type(item) for item in found} == {int}


@pytest.mark.parametrize(
    ("items", "says"),
    [
        (None, f"The item catalogue is missing; {HOW_TO_DECLARE}."),
        ({"a": 1}, "The item catalogue must be a sequence of ids, not a dict; pass the column that holds"),
        (
            pd.DataFrame({"item": ["a"]}),
            "The item catalogue must be a sequence of ids, not a DataFrame; pass",
        ),
        (b"items.txt", "The item catalogue must be a sequence of ids (a file is read by Domain.read_cat"),
        ([], "The item catalogue is empty; declare at least one item id."),
        (["a", "b", None], "Item 3 of the catalogue has no id; an id has at most 1,024 bytes."),
        (["a", "b", "c", " b"], "The catalogue holds an id twice (items 2 and 4); list every item once."),
    ],
)
def test_a_catalogue_is_refused_by_number_and_never_by_an_id(items, says) -> None:
    with pytest.raises(InputError) as refused:
        Domain(items, RANGE)
    assert str(refused.value).startswith(says)


def test_more_items_than_there_are_numbers_of_columns_are_refused() -> None:
    class Many(tuple):
        def __len__(self) -> int:
            return number

    number = 2**31 - 1
    assert len(_check_catalogue(Many("ab"))) == 2
    number = 2**31
    with pytest.raises(InputError, match=r"must hold fewer than 2\*\*31 ids"):
        _check_catalogue(Many("ab"))


def test_large_numbers_of_items_are_observed_as_they_are() -> None:
    domain = Domain.observed((np.array([1, 2]), np.array([2**60 + 1, 2**60 + 2]), np.array([1.0, 2.0])))
    assert domain.items == (2**60 + 1, 2**60 + 2)


def test_what_is_no_list_of_ids_is_told_from_one() -> None:
    for mark in ",;\t|":
        head = mark.join(["Item ID", "x", "y"])
        assert _no_list([head, mark * 2, "a" + mark * 3]) == "a table of 3 columns, not a list"
        assert _no_list([head, mark * 2, "a" + mark]) == "" == _no_list([f"a{mark}b", f"c{mark}d"])
        assert _no_list([f"a{mark}title", mark]) == "a table of 2 columns, not a list"
    assert _no_list(["title"]) == "" == _no_list(["item", "a,b"])
    lines = ["a"] * 100 + ["b\0"]
    assert _no_list(lines) == "" and _no_list(lines[1:]) == "no text" == _no_list(["\0"])
