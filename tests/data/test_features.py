"""Public item features: every kind of table to one array in the order of the catalogue."""

import dataclasses

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushrec.data import Domain, Ratings, realistic
from hushrec.errors import InputError

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
        b"\xef\xbb\xbfdrama\tItem ID\tyear\n1\tc\t1.5\n0\t007\t\n1\tb\t2.5\n"
    )
    sources = [
        table,
        COLUMNS,
        pd.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS).lazy(),
        tmp_path / "features.parquet",
        str(tmp_path / "features.csv"),
        tmp_path / "features.txt",
        EXPECTED,
    ]
    for source in sources:
        np.testing.assert_array_equal(features_of(source), EXPECTED)


@pytest.mark.parametrize(
    "header", [b"item,genre", b" item ,genre", b'\xef\xbb\xbf"item"\t genre', b'"Item ID ";x']
)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_ids_of_a_text_file_are_text_however_the_header_is_written(tmp_path, header, ending) -> None:
    delimiter = b"\t" if b"\t" in header else b";" if b";" in header else b","
    rows = [header, b"007,1".replace(b",", delimiter), b"008,2".replace(b",", delimiter)]
    (tmp_path / "features.csv").write_bytes(ending.join(rows))
    np.testing.assert_array_equal(
        features_of(tmp_path / "features.csv", ("008", "007", "7")), [[2], [1], [np.nan]]
    )


def test_ids_are_the_items_own_and_not_another_things(tmp_path) -> None:
    """Another id may be a feature, and a number."""
    (tmp_path / "features.csv").write_text("artist_id,id,asin_rank\n1.5,b,2\n3,a,4\n")
    np.testing.assert_array_equal(features_of(tmp_path / "features.csv", ("a", "b")), [[3, 4], [1.5, 2]])
    (tmp_path / "shop.csv").write_text("SKU,price\n007,2\n")
    np.testing.assert_array_equal(features_of(tmp_path / "shop.csv", ("007", "b")), [[2], [np.nan]])


def test_integer_ids_truth_values_and_vectors() -> None:
    vectors = [[1.0, 2.0], [3.0, 4.0], None]
    table = pa.table({"item": [2, 1, 3], "new": [True, False, None], "text": vectors})
    expected = [[0, 3, 4], [1, 1, 2], [np.nan] * 3]
    np.testing.assert_array_equal(features_of(table, (1, 2, 3)), expected)
    frame = pd.DataFrame({"item": ["2", "1"], "text": [np.array([1.0, 2.0]), np.array([3.0, 4.0])]})
    np.testing.assert_array_equal(features_of(frame, (1, 2)), [[3, 4], [1, 2]])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (np.zeros((3, 2)), "4 catalogue items"),
        (np.zeros(4), "4 catalogue items"),
        (np.zeros((4, 0)), "at least one column"),
        (np.array([["a"]] * 4), "numbers"),
        (np.full((4, 1), np.nan), "ids are written"),
        (np.full((4, 1), np.inf), "finite"),
        ({"item": ["y", "z"], "drama": [1, 0]}, "ids are written"),
        ({"item": ["b", "b"], "drama": [1, 0]}, "an item id twice"),
        ({"item": ["b", "c"], "genres": ["Drama", "Crime|Drama"]}, "'genres' holds string.*0 and 1"),
        ({"item": ["b", "c"], "text": [[1.0], [1.0, 2.0]]}, "one length"),
        ({"item": ["b", "c"]}, "ids only"),
        ({"name": ["b", "c"], "drama": [1, 0]}, "column of item ids"),
        ({"item": ["b"], "drama": [1, 0]}, "cannot be read as a table"),
        ({"item": ["b", "c"], "hash": [2**53 + 1, 0]}, "'hash' holds integers"),
        ("nowhere.csv", "cannot be read"),
        (7, "int"),
    ],
)
def test_what_is_no_table_of_features_is_refused_in_one_sentence(source, words) -> None:
    with pytest.raises(InputError, match=words) as error:
        features_of(source)
    assert "\n" not in str(error.value)


def test_a_damaged_file_is_refused(tmp_path) -> None:
    (tmp_path / "features.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="not a readable"):
        features_of(tmp_path / "features.parquet")


def test_features_travel_with_the_domain_but_are_no_part_of_its_identity() -> None:
    plain = Domain(CATALOGUE, rating_range=(1, 5))
    rich = dataclasses.replace(plain, item_features=EXPECTED)
    assert rich == plain
    assert rich.fingerprint == plain.fingerprint
    assert not rich.item_features.flags.writeable
    ratings = Ratings.from_any((["u"], ["b"], [3.0]), plain)
    assert Ratings.from_any(ratings, rich).domain.item_features is rich.item_features
    assert Ratings.from_any(ratings, plain) is ratings


def test_generated_features_explain_a_part_of_the_items() -> None:
    """Item means regressed on the features: R squared is what was asked for, and 0 where nothing was."""
    for explained in (0.0, 0.5, 1.0):
        ratings = realistic(
            3000, 400, 200_000, n_features=10, explained=explained, taste_spread=0.0, noise=0.3, seed=1
        )
        counts = np.diff(ratings.transposed.indptr)
        means = np.add.reduceat(ratings.transposed.data, ratings.transposed.indptr[:-1]) / counts
        popularity = np.column_stack([np.ones(400), np.log(counts)])
        design = np.hstack([popularity, ratings.domain.item_features])
        left = [means - x @ np.linalg.lstsq(x, means, rcond=None)[0] for x in (popularity, design)]
        r_squared = 1 - left[1].var() / left[0].var()
        assert abs(r_squared - (explained + (1 - explained) * 10 / 400)) < 0.12
    with pytest.raises(InputError, match="explained"):
        realistic(10, 10, 50, explained=1.5, seed=0)
    with pytest.raises(InputError, match="noise"):
        realistic(10, 10, 50, noise=-1.0, seed=0)
