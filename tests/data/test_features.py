"""Public item features: every kind of table to one array in the order of the catalogue."""

import dataclasses
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushrec.data import Domain, Ratings
from hushrec.data.features import feature_scores, named_item_table, read_item_features
from hushrec.errors import InputError
from hushrec.serving import Attributes

CATALOGUE = ("007", "b", "c", "d")
COLUMNS = {"movieId": ["c", "007", "x", "b"], "drama": [1, 0, 1, 1], "year": [1.5, None, 7.0, 2.5]}
EXPECTED = np.array([[0, np.nan], [1, 2.5], [1, 1.5], [np.nan, np.nan]])


def features_of(source, items=CATALOGUE) -> np.ndarray:
    return Domain(items, rating_range=(1, 5), item_features=source).item_features


def test_every_kind_of_table(tmp_path) -> None:
    table = pa.table(COLUMNS)
    pq.write_table(table, tmp_path / "features.parquet")
    (tmp_path / "features.csv").write_text("movieId,drama,year\nc,1,1.5\n007,0,\nx,1,7\nb,1,2.5\n")
    (tmp_path / "features.txt").write_bytes(
        b"\xef\xbb\xbfsep=\t\ndrama\tItem ID\tyear\n1\tc\t1.5\n0\t007\t\n1\tb\t2.5\n"
    )
    files = [tmp_path / "features.parquet", str(tmp_path / "features.csv"), tmp_path / "features.txt"]
    sources = [
        table,
        COLUMNS,
        pd.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS).lazy(),
        EXPECTED,
    ]
    for source in (*sources, *files):
        np.testing.assert_array_equal(features_of(source), EXPECTED)


def test_integer_ids_truth_values_and_vectors() -> None:
    vectors = [[1.0, 2.0], [3.0, 4.0], None]
    table = pa.table({"item": [2, 1, 3], "new": [True, False, None], "text": vectors})
    expected = [[0, 3, 4], [1, 1, 2], [np.nan] * 3]
    np.testing.assert_array_equal(features_of(table, (1, 2, 3)), expected)
    frame = pd.DataFrame({"item": ["2", "1"], "text": [np.array([1.0, 2.0]), np.array([3.0, 4.0])]})
    np.testing.assert_array_equal(features_of(frame, (1, 2)), [[3, 4], [1, 2]])


@pytest.mark.parametrize(
    "genres",
    [
        ["Crime|Drama", "Drama ", None, "Crime|Noir"],
        pa.array([["Drama", "Crime"], ["Drama"], None, ["Noir", "Crime"]]),
        pa.array(["Drama|Crime", "Drama", "", "Crime"]).dictionary_encode(),
    ],
)
def test_categories_become_columns_of_0_and_1(genres) -> None:
    table = pa.table({"item": [4, 3, 2, 1], "genres": genres})
    found = features_of(table, (1, 2, 3, 4))  # Crime, Drama; what one item has alone is left out
    np.testing.assert_array_equal(found, [[1, 0], [np.nan, np.nan], [0, 1], [1, 1]])


def test_of_many_categories_those_with_most_items_of_the_catalogue_stay() -> None:
    """Rows of items outside the catalogue count for nothing, however many there are."""
    authors = [f"author {number % 1100}" for number in range(2200)] + ["author 7"] * 3
    elsewhere = [f"author {number}" for number in (998, 999)] * 50
    table = {"item": range(2303), "author": [*authors, *elsewhere]}
    found = features_of(table, tuple(range(2203)))
    assert found.shape == (2203, 1000) and found[7].sum() == 1
    assert sorted(found.sum(axis=0)) == [2] * 999 + [5]
    assert not found[[998, 999]].any()  # of equally many items the first in the alphabet stay


REFUSED = [
    (np.zeros((3, 2)), "4 catalogue items"),
    (np.array([["a"]] * 4), "numbers"),
    (np.full((4, 1), np.inf), "finite"),
    (
        {"item": ["y", "z"], "drama": [1, 0]},
        "No id in column 'item' .* such as '007'; .*name the column .* item",
    ),
    ({"item": ["b", "b"], "drama": [1, 0]}, "an item id twice"),
    ({"item": ["b", "c"], "day": [date(2026, 1, 1), date(2026, 1, 2)]}, "a word; pass titles"),
    ({"item": ["b", "c"], "hash": [2**53 + 1, 0], "ean": [4006381333931, None]}, "a feature or a word"),
    ({"item": ["b", "c"], "text": [[1.0], [1.0, 2.0]]}, "one length"),
    ({"name": ["b", "c"], "drama": [1, 0]}, "column of item ids"),
    ("nowhere.csv", "cannot be read"),
]


@pytest.mark.parametrize(("source", "words"), REFUSED)
def test_what_is_no_table_of_features_is_refused_in_one_sentence(source, words) -> None:
    with pytest.raises(InputError, match=words) as error:
        features_of(source)
    assert "\n" not in str(error.value)


def test_more_than_six_groups_of_features_are_six_and_none_is_lost() -> None:
    columns = {f"kind {at}": [f"{at}-{(place >> at % 2) % 2}" for place in range(4)] for at in range(8)}
    table = read_item_features({"item": CATALOGUE, **columns}, pa.array(CATALOGUE, pa.large_string()))
    assert table.names == (*((name,) for name in list(columns)[:5]), tuple(list(columns)[5:]))
    assert table.widths == (2, 2, 2, 2, 2, 6) and table.features.shape == (4, 16)


def test_tables_that_differ_in_anything_that_a_training_uses_have_other_digests() -> None:
    columns = {
        "title": ["red hat", "hat", "red", "blue"],
        "kind": ["a|x", "a|b", "b", "x"],
        "size": [1, 2, 3, 5],
    }
    table = read_item_features({"item": CATALOGUE, **columns}, pa.array(CATALOGUE, pa.large_string()))
    assert len(table.widths) == 2 and table.words is not None
    words = dataclasses.replace(table.words, similarity=table.words.similarity / 2)
    others = [
        {"features": table.features + 1},
        {"names": table.names[::-1]},
        {"widths": table.widths[::-1]},
        {"words": words},
        {"words": dataclasses.replace(table.words, items=(table.words.items + 1) % 4)},
        {"words": None},
    ]
    digests = {dataclasses.replace(table, **other).digest for other in [{}, *others]}
    assert len(digests) == 1 + len(others)


def test_features_travel_with_the_domain_but_are_no_part_of_its_identity() -> None:
    plain = Domain(CATALOGUE, rating_range=(1, 5))
    rich = dataclasses.replace(plain, item_features=EXPECTED)
    assert rich == plain
    assert rich.fingerprint == plain.fingerprint
    assert not rich.item_features.flags.writeable
    ratings = Ratings.from_any((["u"], ["b"], [3.0]), plain)
    assert Ratings.from_any(ratings, rich).domain.item_features is rich.item_features
    assert Ratings.from_any(ratings, plain) is ratings


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", "::"])
@pytest.mark.parametrize("has_header", [False, True])
def test_a_table_of_items_takes_any_delimiter_decimal_commas_and_names_or_positions(
    tmp_path, delimiter, has_header
) -> None:
    rows = [("007", "Käse", "1.234,50", "3"), ("1,5", "Öl", "12,25", "4"), ("8", "Wein", "", "5")]
    quoted = [[f'"{cell}"' if delimiter == "," and "," in cell else cell for cell in row] for row in rows]
    header = [["ArtNr", "Name", "Preis", "Note"]] if has_header else []
    path = tmp_path / "artikel.csv"
    path.write_text("".join(delimiter.join(row) + "\n" for row in header + quoted), encoding="utf-8")
    asked = {"item": "ArtNr", "title": "Name"} if has_header else {"item": "1", "title": "2"}
    table = named_item_table(str(path), asked, "item features")
    assert table["item"].to_pylist() == ["007", "1,5", "8"] and table["title"].to_pylist() == [
        "Käse",
        "Öl",
        "Wein",
    ]
    domain = Domain(["8", "1,5", "007"], rating_range=(1, 5), item_features=table.drop_columns(["title"]))
    np.testing.assert_array_equal(domain.item_features, [[np.nan, 5], [12.25, 4], [1234.5, 3]])


@pytest.mark.parametrize(
    ("rows", "titles"),
    [
        ('a,12" vinyl\nb,"B\nx"\nc,"say ""hi"""\n', ['12" vinyl', "B\nx", 'say "hi"']),
        ('a,"Open\nb,B\nc,C\n', None),
        ('a,A\nb,"Open\nc,C', None),
    ],
)
def test_a_quote_that_never_ends_is_refused_before_it_takes_all_titles(rows, titles, tmp_path) -> None:
    path = tmp_path / "titles.csv"
    path.write_text(f"id,title\n{rows}", encoding="utf-8")
    if titles is None:
        with pytest.raises(InputError, match="never closed"):
            named_item_table(str(path), {}, "titles")
    else:
        assert named_item_table(str(path), {}, "titles")["title"].to_pylist() == titles


@pytest.mark.parametrize("header", ["id;title;group", "title;id;group", "title;group;id"])
@pytest.mark.parametrize("closed_at", [3, 4, 7])
@pytest.mark.parametrize("ends", ['red"', '"red"', '5"'])
def test_a_quote_that_a_later_row_closes_takes_no_row_of_the_catalogue(header, closed_at, ends, tmp_path):
    path, names = tmp_path / "titles.csv", header.split(";")

    def row(item: int) -> str:
        title = '"red' if item == 2 else ends if item == closed_at else "red\tblue, 5"
        return ";".join({"id": str(item), "title": title, "group": "a"}[name] for name in names)

    path.write_text("\n".join([header, *map(row, range(10))]) + "\n")
    with pytest.raises(InputError, match="double quote"):
        Domain(range(10), rating_range=(1, 5), item_features=path)
    if (
        ends == '5"'
    ):  # which some CSV readers take as a closed quote, so that the table has its header's cells
        assert len(named_item_table(str(path), {}, "titles")) < 10
    with pytest.raises(InputError, match="double quote"):
        Attributes.read(path, Domain(range(10), rating_range=(1, 5)))


def test_a_table_of_two_named_columns_is_looked_at_too(tmp_path) -> None:
    path = tmp_path / "titles.csv"
    path.write_text('ArtNr;Name\n1;"red\n2;blue 5"\n3;x\n')
    with pytest.raises(InputError, match="column 'title' .* row of item '2'"):
        asked = {"item": "ArtNr", "title": "Name"}
        Attributes.read(path, Domain([1, 2, 3], rating_range=(1, 5)), columns=asked)


def test_lines_of_a_description_that_look_like_rows_of_present_or_unknown_items_are_text(tmp_path) -> None:
    path = tmp_path / "items.csv"
    path.write_text('id,text\n1,"sizes\n2,5 cm\n99,9 cm"\n2,"two\n1,x"\n')
    domain = Domain([1, 2, 3], rating_range=(1, 5), item_features=path)
    semicolons = tmp_path / "semicolons.csv"
    semicolons.write_text('id;text\n1;"sizes\n3,5 cm"\n2;two\n')
    frame = pd.read_csv(semicolons, sep=";")
    for table in (semicolons, frame):
        assert Domain([1, 2, 3], rating_range=(1, 5), item_features=table).item_words is None
    assert dict(domain.column_uses)["text"] == "words"


def test_a_table_of_items_with_a_usual_header_needs_no_names(tmp_path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("sku,title,weight\n1,Title,2\n2,Other,3\n")
    for asked in ({"item": "Artikel"}, {"item": "2"}, {"title": "Name"}):  # of the ratings
        features = named_item_table(str(path), asked, "features").drop_columns("title")
        domain = Domain([1, 2], rating_range=(1, 5), item_features=features)
        assert domain.item_features.tolist() == [[2], [3]]
    path.write_text("Nr,weight\n1,2\n")
    with pytest.raises(InputError, match="--columns id=NAME"):
        named_item_table(str(path), {"item": "Artikel"}, "titles")


def test_texts_of_several_lines_are_cells_and_a_row_of_other_length_is_named(tmp_path) -> None:
    """However long the file is: Arrow reads a text across the end of its block only if it is told to."""
    path, long = tmp_path / "articles.csv", "\n".join(["<p>soft, warm</p>"] * 9000)
    rows = [f'{number},"Lamp ""{number % 2}""","{long}\r\n{number % 3}",{number}' for number in range(30)]
    path.write_text("\n".join(["sku,title,description,price", *rows]), newline="")
    domain = Domain(range(30), rating_range=(1, 5), item_features=path)
    assert dict(domain.column_uses)["description"].startswith("words") and domain.feature_tables[0][0] == (
        "price",
    )
    for row, words in (
        ("30,Lamp, red,soft,2", "Row 32 .* has 5 cells"),
        ("30,Lamp", "Row 32 .* has 2 cells"),
    ):
        path.write_text("\n".join(["sku,title,description,price", *rows, row]), newline="")
        with pytest.raises(InputError, match=words):
            Domain(range(30), rating_range=(1, 5), item_features=path)


def test_ids_of_128_bits_are_read_exactly_from_a_table_of_items(tmp_path) -> None:
    ids = [12345678901234567890123, 2**64, 3]
    frame = pl.DataFrame({"item": pl.Series(ids, dtype=pl.Int128), "weight": [1, 2, 3]})
    frame.write_parquet(tmp_path / "items.parquet")
    for source in (frame, tmp_path / "items.parquet"):
        assert Domain(ids[::-1], rating_range=(1, 5), item_features=source).item_features.tolist() == [
            [3],
            [2],
            [1],
        ]


def test_scores_are_components_of_the_known_features() -> None:
    """A missing feature counts as its mean over the items that have it, an item without any as nothing."""
    features = np.random.default_rng(0).standard_normal((40, 3))
    features[19:], features[:4, 0] = np.nan, np.nan
    known, found = features[:19], feature_scores(features, 40)
    standardised = np.nan_to_num((known - np.nanmean(known, axis=0)) / np.nanstd(known, axis=0))
    wanted = np.sqrt(19) * np.linalg.svd(standardised)[0][:, 0]
    assert found.shape == (40, 1) and not found[19:].any()
    assert np.abs(found[:19, 0]) == pytest.approx(np.abs(wanted))


def test_numbers_of_two_codes_are_two_words() -> None:
    table = {"item": ["a", "b", "c", "d"], "brand_id": [7, 7, 1, 2], "group_id": [3, 4, 7, 7]}
    near = Domain(list("abcd"), rating_range=(1, 5), item_features=table).item_words
    assert (near.similarity > 0).sum(axis=1).tolist() == [1, 1, 1, 1]
    assert near.items[:, 0].tolist() == [1, 0, 3, 2]
