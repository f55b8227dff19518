"""The curator's look agrees with what is read, and says of each row what became of it."""

import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

from hushrec.data import Domain, Ratings
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
