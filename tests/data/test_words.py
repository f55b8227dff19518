"""Nearest items by words, against dense TF-IDF rows, and article tables as shops have them."""

import dataclasses
import math
import time

import numpy as np
import pyarrow as pa
import pytest

from hushrec.data import Domain
from hushrec.data.words import Neighbours, neighbours_by_words, words_of
from hushrec.errors import InputError

SCRIPTS = {
    "<b>Tom &amp; Jerry&#39;s</b><br/>School": "tom jerry s school",
    "Straße STRASSE ﬁne ＡＢＣ e\u0301cole": "strasse strasse fine abc école",
    "手机保护壳 iPhone15手": "手机 机保 保护 护壳 iphone15 手",
    "ﾃﾚﾋﾞ テレビ": "テレ レビ テレ レビ",
    "ไอโฟน เคส": "ไอโ อโฟ โฟน เคส",
    "हिन्दी किताब": "हिन्दी किताब",
    "محفظة جلد / תיק עוֹר": "محفظة جلد תיק עוֹר",
    "가방 가죽 👜🧑\u200d🚀": "가방 가죽",
    "3 < 5 & <<< &;": "3 5",
    "a &lt;b&gt; c": "a b c",
    "\u210cut": "hut",  # a letter that has another case after NFKC only
    "\u0390\u03b1": "\u0390\u03b1",  # one that case folding takes apart
}


@pytest.mark.parametrize("text", SCRIPTS)
def test_words_of_any_alphabet_and_of_html(text: str) -> None:
    assert list(words_of(text)) == SCRIPTS[text].split()


def dense(cells: list[list[str]]) -> np.ndarray:
    """All cosines of TF-IDF rows, by the words between blanks."""
    words = sorted({word for texts in cells for text in texts for word in text.split()})
    there = np.zeros((len(cells), len(words)))
    for row, texts in zip(there, cells):
        for text in texts:
            found = np.array([word in text.split() for word in words])
            row += found / max(1, math.sqrt(found.sum() / 8))
    count, n_items = (there > 0).sum(axis=0), len(cells)
    rows = there * np.where(count < n_items, np.log((1 + n_items) / (1 + count)) + 1, 0)
    own = np.log((1 + n_items) / 2) + 1
    rows /= np.sqrt((rows**2).sum(axis=1, keepdims=True) + own**2)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, 0)
    return cosines


def test_neighbours_are_the_items_of_largest_cosine() -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{int(w)}" for w in rng.zipf(1.3, rng.integers(0, 20)) % 300) for _ in range(800)]
    cells = list(zip(texts[:400], texts[400:]))
    found, cosines = neighbours_by_words(cells), dense(cells)
    assert found.items.shape == found.similarity.shape == (400, 20)
    assert found.items.dtype == np.int32 and found.similarity.dtype == np.float32
    np.testing.assert_allclose(found.similarity, -np.sort(-cosines, axis=1)[:, :20], atol=1e-6)
    shown = np.take_along_axis(cosines, found.items, axis=1)
    np.testing.assert_allclose(found.similarity, shown, atol=1e-6)
    alone = found.similarity == 0
    assert alone.any() and (found.items == np.arange(400)[:, None])[alone].all()
    assert all(len(set(row[near])) == near.sum() for row, near in zip(found.items, ~alone))


def test_of_equal_items_none_is_a_neighbour_of_all() -> None:
    found = neighbours_by_words([["red shirt"]] * 50 + [["blue hat"]] * 3)
    assert np.bincount(found.items[:50].ravel()).tolist() == [20] * 50
    assert set(found.items[50]) == {50, 51, 52} and (found.similarity[50] > 0).sum() == 2


ARTICLES = {
    "sku": [f"{number:03d}" for number in range(40)],
    "title": [f"<b>Lamp</b> {('Oslo', 'Rome')[number % 2]} {number}" for number in range(40)],
    "brand": ["Acme", "Zeta", None, "Acme"] * 10,
    "tags": ["light|home", "home", "light", "garden"] * 10,
    "group_id": [number % 5 for number in range(40)],
    "price": [number + 0.5 for number in range(40)],
    "Sale": [True, False] * 20,
    "ean": [4_006_381_333_931 + number for number in range(40)],
    "currency": ["EUR"] * 40,
    "empty": [None] * 40,
    "since": pa.array(range(40), pa.timestamp("s")),
}
ITEMS = ARTICLES["sku"]


def names_of(domain: Domain) -> list[tuple[str, ...]]:
    return [names for names, _ in domain.feature_tables]


def widths_of(domain: Domain) -> list[int]:
    return [table.shape[1] for _, table in domain.feature_tables]


def test_an_article_table_is_taken_as_it_is() -> None:
    domain = Domain(ITEMS, likes=True, item_features=ARTICLES)
    assert dict(domain.column_uses) == {
        "title": "words",
        **dict.fromkeys(("brand", "tags", "group_id", "Sale"), "words and features"),
        "price": "features",
        **dict.fromkeys(("ean", "currency", "empty", "since"), "not used"),
    }
    assert names_of(domain) == [("price", "Sale"), ("brand",), ("tags",), ("group_id",)]
    assert widths_of(domain) == [2, 2, 3, 5]
    assert domain.item_features.shape == (40, 12)
    sold = Domain(ITEMS, likes=True, item_features={"sku": ITEMS, "flag": ["Sale", ""] * 20})
    named = Domain(ITEMS, likes=True, item_features={"sku": ITEMS, "Sale": [1, 0] * 20})
    assert same(named.item_words, sold.item_words)


@pytest.mark.parametrize("name", ["brand_id", "Brand ID", "brandCode", "Supplier No."])
@pytest.mark.parametrize("missing", [None, math.nan])
def test_whole_numbers_of_a_column_named_as_codes_are_categories(name: str, missing: float | None) -> None:
    cells = [missing, *(float(number % 3) for number in range(39))]
    domain = Domain(ITEMS, likes=True, item_features={"sku": ITEMS, name: cells})
    assert domain.column_uses == ((name, "words and features"),) and widths_of(domain) == [3]
    for other in ("paid", "casino", "decode"):
        assert widths_of(Domain(ITEMS, likes=True, item_features={"sku": ITEMS, other: cells})) == [1]
    halves = [number % 3 / 2 for number in range(40)]
    assert widths_of(Domain(ITEMS, likes=True, item_features={"sku": ITEMS, name: halves})) == [1]


def test_several_tables_mean_the_same_as_one() -> None:
    whole = Domain(ITEMS, likes=True, item_features=ARTICLES)
    names = [name for name in ARTICLES if name != "sku"]
    tables = [{"sku": ITEMS, name: ARTICLES[name]} for name in names]
    parts = Domain(ITEMS, likes=True, item_features=tables)
    np.testing.assert_array_equal(parts.item_features, whole.item_features)
    assert (names_of(parts), widths_of(parts)) == (names_of(whole), widths_of(whole))
    assert same(parts.item_words, whole.item_words)


def test_of_more_than_six_groups_the_last_holds_all_further_columns() -> None:
    columns = {f"kind {number}": [f"k{(at >> number) % 2}" for at in range(40)] for number in range(5)}
    columns |= {f"vector {number}": [[at, number * at] for at in range(40)] for number in range(3)}
    domain = Domain(ITEMS, likes=True, item_features={"sku": ITEMS, "price": range(40), **columns})
    assert names_of(domain)[:2] == [("price",), ("kind 0",)]
    assert names_of(domain)[5] == ("kind 4", "vector 0", "vector 1", "vector 2")
    assert widths_of(domain) == [1, 2, 2, 2, 2, 7]


def same(one: Neighbours, other: Neighbours) -> bool:
    return np.array_equal(one.items, other.items) and np.array_equal(one.similarity, other.similarity)


def test_the_first_items_keep_their_features_and_neighbours() -> None:
    table = {"item": list(range(30)), "title": [f"a{n % 3} b{n % 4}" for n in range(30)], "price": range(30)}
    whole = Domain(range(30), rating_range=(1, 5), item_features=table)
    first, (words, every) = whole.first(7), (whole.first(7).item_words, whole.item_words)
    assert first.items == whole.items[:7] and words and every
    assert np.array_equal(first.item_features, whole.item_features[:7])
    for item in range(7):
        near = {(int(n), s) for n, s in zip(every.items[item], every.similarity[item]) if n < 7 and s > 0}
        assert {(int(n), s) for n, s in zip(words.items[item], words.similarity[item]) if s > 0} == near
    assert words.items.max() < 7
    assert Domain(range(9), likes=True).first(3).items == (0, 1, 2)


def test_words_stay_with_the_domain_until_its_items_or_its_table_change() -> None:
    titles = {"sku": ITEMS, "title": ARTICLES["title"]}
    for table in (ARTICLES, titles):
        domain = Domain(ITEMS, likes=True, item_features=table)
        kept = dataclasses.replace(domain, max_ratings_per_user=9)
        assert kept.item_words is domain.item_words and kept.item_features is domain.item_features
        assert widths_of(kept) == widths_of(domain)
    assert domain.item_features is None and domain.feature_tables == []
    assert dataclasses.replace(domain, items=ITEMS[::-1]).item_words is None
    numbers = dataclasses.replace(domain, item_features=np.eye(40))
    assert numbers.item_words is None and widths_of(numbers) == [40]
    turned = dataclasses.replace(domain, items=ITEMS[::-1], item_features=titles)
    np.testing.assert_array_equal(turned.item_words.similarity, domain.item_words.similarity[::-1])


@pytest.mark.parametrize(
    "cells", [[None] * 40, ["same"] * 40, ["👜"] * 39 + ["👜👜"]], ids=["empty", "one word", "emoji"]
)
def test_a_column_that_says_nothing_changes_nothing(cells: list) -> None:
    titles = {"sku": ITEMS, "title": ARTICLES["title"]}
    domain = Domain(ITEMS, likes=True, item_features=titles)
    assert same(
        Domain(ITEMS, likes=True, item_features=titles | {"more": cells}).item_words, domain.item_words
    )


def test_long_texts_and_many_words_cost_little_time() -> None:
    megabytes = ["long " * 200_000, "<" * 1_000_000, "手" * 1_000_000, "&#" * 500_000] * 10
    many = [" ".join(f"w{(number * at) % 100_003}" for at in range(2500)) for number in range(1, 41)]
    began = time.process_time()
    domain = Domain(ITEMS, likes=True, item_features=ARTICLES | {"long": megabytes, "many": many})
    assert domain.item_words.items.shape == (40, 20)
    assert time.process_time() - began < 5


def test_words_of_other_items_are_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match="No id .* is in the catalogue, which has such as 'x'") as error:
        Domain(["x", "y"], likes=True, item_features=ARTICLES)
    assert str(error.value).count(". ") == 0


def test_weights_of_words_follow_the_catalogue_alone() -> None:
    """Rows of a table for items that are not declared count for nothing."""
    wider = {name: list(cells) for name, cells in ARTICLES.items() if name in ("sku", "title")}
    wider["sku"] += ["x", "y"]
    wider["title"] += ["Oslo 7 9 11"] * 2
    domain = Domain(ITEMS, likes=True, item_features={"sku": ITEMS, "title": ARTICLES["title"]})
    assert same(Domain(ITEMS, likes=True, item_features=wider).item_words, domain.item_words)
