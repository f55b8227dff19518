"""Rules of lists against SQLite, and against a twin that walks down the list."""

import itertools
import sqlite3

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hushrec import Domain, InputError
from hushrec.serving import Attributes
from tests.serving.test_serving import HISTORIES, ITEMS, ROWS, score, served, with_arrays
from tests.vectors.answers import CONDITIONS, item_table

DOMAIN = Domain([f"i{place}" for place in range(40)], rating_range=(1, 5))
TABLE = item_table(list(DOMAIN.items))
ATTRIBUTES = Attributes.read(TABLE, DOMAIN)


@pytest.fixture(scope="module")
def sql():
    """Items of the catalogue of which a condition is true."""
    names = [name for name in TABLE if name != "mixed"]
    base = sqlite3.connect(":memory:")
    texts = ("brand", "since", "note", "title", "item")
    kinds = ("REAL", "TEXT")
    base.execute(f"CREATE TABLE t ({', '.join(f'`{each}` {kinds[each in texts]}' for each in names)})")
    rows = zip(*[[None if cell == "" else cell for cell in TABLE[name]] for name in names])
    base.executemany(f"INSERT INTO t VALUES ({','.join('?' * len(names))})", rows)
    base.executemany("INSERT INTO t (item) VALUES (?)", [(item,) for item in DOMAIN.items[38:]])
    return lambda condition: {item for (item,) in base.execute(f"SELECT item FROM t WHERE {condition}")}


def matching(condition: str) -> set[str]:
    return {DOMAIN.items[place] for place in np.flatnonzero(ATTRIBUTES.matching(condition))}


@pytest.mark.true("S2")
def test_conditions_are_true_of_what_sql_says(sql) -> None:
    """Conditions of every kind, alone and joined at random; a missing value fulfils none."""
    plain = [condition for condition, refused in CONDITIONS.items() if refused is None]
    rng, joined = np.random.default_rng(0), []
    for _ in range(300):
        parts = [("not " if rng.random() < 0.4 else "") + f"({part})" for part in rng.choice(plain, 4)]
        joined.append(f"{parts[0]} or {parts[1]} and not ({parts[2]} or {parts[3]})")
    for condition in [*plain, *joined]:
        assert matching(condition) == sql(condition), condition
    for condition, words in CONDITIONS.items():
        if words is not None:
            with pytest.raises(InputError, match="^(The condition|There is|Column|A condition)") as error:
                ATTRIBUTES.matching(condition)
            assert words in str(error.value)


def test_attributes_are_read_from_any_table(tmp_path) -> None:
    frame = pd.DataFrame({key: TABLE[key] for key in TABLE if key not in ("mixed", "unused")})
    frame["day"] = pd.Timestamp("2026-01-05")
    frame["kind"] = pd.Categorical(frame["brand"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    sources = [
        frame,
        pl.from_pandas(frame),
        pa.Table.from_pandas(frame),
        tmp_path / "t.csv",
        tmp_path / "t.parquet",
    ]
    for source in sources:
        read = Attributes.read(source, DOMAIN)
        for condition in ("in_stock and price < 9", "day > '2026-01-04' and kind = 'b1'", "not `on sale`"):
            expected = condition.replace("day > '2026-01-04' and kind", "brand")
            assert (read.matching(condition) == ATTRIBUTES.matching(expected)).all()
        assert read.titles == [f"The {place}" for place in range(38)] + [None, None]
    titled = Attributes.read(TABLE, DOMAIN, {"id": ["i0"], "name": ["Nought"]})
    assert titled.titles[:2] == ["Nought", None] and titled.matching("price = .5").sum() == 1
    both = Attributes.read({"item": ["i0"], "name": ["sku-0"], "title": ["Nought"]}, DOMAIN)
    assert both.titles[0] == "Nought"
    for source, words in (
        ({"item": ["i1", "i1"], "a": [1, 2]}, "hold an item id twice"),
        ({"a": [1]}, "exactly one column of item ids"),
        ({"item": ["x1"], "a": [1]}, "No item of the catalogue is in the attributes; check"),
        (tmp_path / "no.csv", "cannot be read: No such file"),
        (5, "Attributes cannot be read from int"),
    ):
        with pytest.raises(InputError, match=words):
            Attributes.read(source, DOMAIN)
    with pytest.raises(InputError, match="a column of texts named title or name"):
        Attributes.read(TABLE, DOMAIN, {"id": ["i0"], "label": ["Nought"]})


@pytest.mark.parametrize("kind", ["dense", "learned"])
def test_lists_keep_to_the_rules(kind: str) -> None:
    """The twin boosts, sorts and walks down; items that do not exceed their noise stay last."""
    colours = {item: ["red", "blue", "", "red", "green"][place % 5] for place, item in enumerate(ITEMS)}
    table = {
        "item": ITEMS,
        "colour": list(colours.values()),
        "odd": [place % 2 for place in range(len(ITEMS))],
    }
    first = np.array([place % 4 > 0 for place in range(len(ITEMS))], np.uint8)
    for arrays in ({}, {"supported": first}):
        model = with_arrays(served(kind, "likes"), **arrays)
        ways = (1, 2, 13), (0.5, 1.0, 7.0), HISTORIES.values(), (None, "odd", "not odd")
        for limit, factor, history, where in itertools.product(*ways):
            raw = {item: score(model, history, item) for item in ITEMS}
            least = min(raw.values())
            value = {
                i: least + (factor if table["odd"][at] else 1) * (raw[i] - least)
                for at, i in enumerate(ITEMS)
            }
            assert factor < 1 or all(value[item] >= raw[item] - 1e-12 for item in ITEMS)
            leads = dict(zip(ITEMS, arrays.get("supported", [1] * len(ITEMS))))
            listed, held = [], {}
            for item in sorted(ITEMS, key=lambda item: (not leads[item], -value[item])):
                held[colours[item]] = held.get(colours[item], 0)
                allowed = where is None or table["odd"][ITEMS.index(item)] == (where == "odd")
                if allowed and item not in history and (not colours[item] or held[colours[item]] < limit):
                    listed.append(item)
                    held[colours[item]] += 1
            rules = {"attributes": table, "at_most": {"colour": limit}, "boost": {"odd": factor}}
            found = model.recommend(history, 6, where=where, **rules)
            assert [each.item for each in found] == listed[:6]
            assert [-each.score for each in found] == sorted(-each.score for each in found)
            if not arrays:
                assert [each.score for each in found] == pytest.approx([value[item] for item in listed[:6]])
    for history in HISTORIES.values():  # of two boosts an item has the product
        twice, once = {"odd": 3, "odd or not odd": 2}, {"odd": 6, "not odd": 2}
        lists = [model.recommend(history, 9, attributes=table, boost=boost) for boost in (twice, once)]
        assert [each[:1] for each in lists[0]] == [each[:1] for each in lists[1]]
        np.testing.assert_allclose(*([each.score for each in found] for found in lists))
    batch = model.recommend_batch(ROWS, 3, attributes=table, where="colour = 'red'").to_pydict()
    assert batch["item"] and {colours[item] for item in batch["item"]} == {"red"} and "title" not in batch
    table["title"] = [item.upper() for item in ITEMS]
    batch = model.recommend_batch(ROWS, 3, attributes=table, items=ITEMS[:3], where="not odd").to_pydict()
    assert set(batch["item"]) <= {"i0", "i2"} and batch["title"] == [item.upper() for item in batch["item"]]


def test_zero_has_no_sign() -> None:
    read = Attributes.read({"item": ["i0", "i1", "i2"], "price": [0.0, -0.0, 1.0]}, DOMAIN)
    for condition in ("price = 0", "price in (0, 9)", "price in (-0, 9)"):
        assert np.flatnonzero(read.matching(condition)).tolist() == [0, 1]
    first, second, third = read.codes("price")[:3]
    assert first == second != third


def test_rules_that_make_no_sense_are_refused() -> None:
    model, table = served(), {"item": ITEMS, "new": [1] * len(ITEMS)}
    for options, words in (
        ({"where": "new"}, "need a table of the items: pass attributes, or"),
        ({"attributes": table, "at_most": {"new": 0}}, "at_most=0 is out of range; pass an integer >= 1."),
        ({"attributes": table, "at_most": {"old": 1}}, "no column 'old' in the attributes; there are: new"),
        ({"attributes": table, "at_most": 3}, "at_most and boost are dictionaries"),
        (
            {"attributes": table, "boost": {"new": -1}},
            "boost=-1 is out of range; pass a number > 0 and <= 1e",
        ),
        ({"attributes": table, "boost": {"new": "2"}}, "boost='2' is out of range"),
        ({"attributes": table, "boost": {"new": 1e7}}, "boost=10000000.0 is out of range"),
        ({"attributes": table, "at_most": dict.fromkeys(map(str, range(21)), 1)}, "at_most has 21 entries"),
        ({"attributes": table, "boost": {f"new > {k}": 2 for k in range(21)}}, "boost has 21 entries"),
    ):
        with pytest.raises(InputError, match=words.replace("(", "[(]")):
            model.recommend({}, **options)
