"""Items that go together: their sources, their names, and unknown items."""

import json
import math
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import hushrec
from hushrec import Accountant, Budget, Domain, PublicRatings, Ratings
from hushrec.errors import InputError
from hushrec.privacy.testing import SeededNoise
from hushrec.training import named

N_USERS, N_ITEMS, KINDS = 300, 120, 6


def generated() -> tuple[Ratings, np.ndarray]:
    """Likes of users who keep to two of six kinds of items, and the kinds."""
    rng = np.random.default_rng(4)
    kinds = np.eye(KINDS)[rng.integers(0, KINDS, N_ITEMS)]
    popularity = 1 / (3 + np.arange(N_ITEMS))
    chance = popularity * np.exp(kinds @ rng.normal(0, 1.5, (KINDS, N_USERS))).T
    rows, columns = np.nonzero(rng.random(chance.shape) < 15 * chance / chance.sum(axis=1, keepdims=True))
    domain = Domain(range(N_ITEMS), likes=True)
    return Ratings.from_any(([f"u{row}" for row in rows], columns, np.ones(len(rows))), domain), kinds


LIKES = generated()[0]


def shop(described: bool = True) -> Ratings:
    """Likes of users who keep to two of six categories, which a table may hold."""
    rows, kinds = generated()
    if not described:
        return rows
    category = [f"kind {place}" for place in kinds.argmax(axis=1)]
    table = {"item": list(rows.domain.items), "category": category}
    return replace(rows, domain=replace(rows.domain, item_features=table))


def trained(rows: Ratings, epsilon: float = 2.0, donors: int = 0, seed: int = 1) -> hushrec.models.Model:
    accountant = Accountant(Budget(epsilon, 1e-6), noise=SeededNoise(seed))
    public = PublicRatings(donors=[f"u{number}" for number in range(donors)]) if donors else None
    model = named.train("private-eigenrec", rows, accountant, n_users=N_USERS, public=public)
    return replace(model, privacy=replace(model.privacy, reasons=()))  # as of noise that is no test's


#: A public table of the items.
TABLE = {
    "item": list(LIKES.domain.items),
    "title": [f"The {item}" for item in LIKES.domain.items],
    "odd": [place % 2 for place in range(LIKES.n_items)],
    "kind": [f"k{place % 5}" for place in range(LIKES.n_items)],
}


def kinds_of(items: list[int]) -> list[int]:
    return generated()[1].argmax(axis=1)[items].tolist()


MODELS = {
    "features": trained(shop()),
    "donors": trained(shop(False), donors=60),
    "both": trained(shop(), donors=60),
    "taste": trained(shop(False), epsilon=50.0),
    "pairs": trained(shop(False), epsilon=1000.0),
    "nothing": trained(shop(False), epsilon=0.1),
}


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("features", "category|similar articles"),
        ("donors", "public likes"),
        ("both", "category|similar articles|public likes"),
        ("taste", f"{MODELS['taste'].directions} taste dimensions"),
        ("pairs", "pairs of items"),
    ],
)
def test_each_answer_names_what_it_follows_and_follows_it(name: str, by: str) -> None:
    """Items of a user's category come first, by every source."""
    same = []
    for item in range(20):
        found = MODELS[name].similar_items(item, 5)
        assert {"|".join(each.by) for each in found} == {by}
        same += [kind == kinds_of([item])[0] for kind in kinds_of([each.item for each in found])]
    assert np.mean(same) > 0.25  # 1 in 6 of the popular items


@pytest.mark.parametrize("name", ["taste", "pairs"])
@pytest.mark.parametrize("basket", [[0], [3, 40], [5, 5, 7]])
def test_ranks_are_those_of_a_list_for_these_items(name: str, basket: list) -> None:
    """Every item with its score, as the list of a user who likes ten of each."""
    model, count = MODELS[name], LIKES.n_items
    prior = model.arrays.get("history_prior", 0.0) / 10
    liker = replace(model, arrays={**model.arrays, "history_prior": prior})

    def same(found: list, wanted: list) -> bool:
        items, scores = zip(*(each[:2] for each in wanted), strict=True)
        listed = [each.item for each in found] == list(items)
        return listed and [each.score for each in found] == pytest.approx(scores, rel=1e-12)

    wanted = liker.recommend(basket, count)
    asked = basket if len(basket) > 1 else basket[0]
    assert same(model.similar_items(asked, count), wanted)
    assert same(model.similar_items(asked, 7), wanted[:7])
    for rules in (
        {"where": "odd"},
        {"at_most": {"kind": 2}},
        {"where": ["odd", "kind = 'k1'"]},
        {"boost": {"odd": 3}},
    ):
        wanted = liker.recommend(basket, 9, attributes=TABLE, **rules)
        assert wanted and same(model.similar_items(asked, 9, attributes=TABLE, **rules), wanted)


@pytest.mark.parametrize("rules", [{}, {"where": "odd", "at_most": {"kind": 1}}])
@pytest.mark.parametrize("name", ["features", "donors", "both", "taste", "pairs"])
def test_the_lists_of_all_items_are_those_of_each(name: str, rules: dict, monkeypatch) -> None:
    """In blocks of 7 items. Items that the model knows nothing of have no list."""
    model, wanted = MODELS[name], []
    rules = rules and {"attributes": TABLE} | rules
    for item in model.domain.items:
        with suppress(InputError):
            listed = model.similar_items(item, 4, **rules)
            wanted += [(item, *each[:2], "; ".join(each.by), rank) for rank, each in enumerate(listed, 1)]
    monkeypatch.setattr("hushrec.serving.scoring._SCORES_PER_BLOCK", 7 * model.domain.n_items)
    table = model.similar_batch(4, **rules)
    columns = [table[name].to_pylist() for name in ("item", "similar", "score", "by", "rank")]
    found = list(zip(*columns, strict=True))
    assert [row[:2] + row[3:] for row in found] == [row[:2] + row[3:] for row in wanted]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in wanted], rel=1e-12)
    assert ("title" in table.column_names) == bool(rules) and len({row[0] for row in wanted}) > 60
    if rules:
        assert table["title"].to_pylist() == [f"The {item}" for item in table["similar"].to_pylist()]


@pytest.mark.true("E5")
def test_a_process_without_the_ratings_gives_the_same_answers(tmp_path) -> None:
    """Byte for byte, from the file alone, of every source."""
    code = (
        "import sys, json, hushrec\n"
        "for m in map(hushrec.load, sys.argv[1:]):\n"
        "    print(json.dumps([m.similar_items(item, 9) for item in m.domain.items[:40]]))"
    )
    names = ("features", "both", "taste")
    for name in names:
        MODELS[name].save(tmp_path / name)
    here = [json.dumps([MODELS[name].similar_items(i, 9) for i in LIKES.domain.items[:40]]) for name in names]
    line = [sys.executable, "-c", code, *(tmp_path / name for name in names)]
    there = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert there.splitlines() == here


def test_it_is_refused_where_nothing_is_known_and_says_what_helps() -> None:
    with pytest.raises(InputError, match="no taste dimension exceeds its noise.*donors help"):
        MODELS["nothing"].similar_items(0)
    known = list(range(119))
    table = {"item": known, "category": [f"kind {place}" for place in kinds_of(known)]}
    model = trained(replace(LIKES, domain=replace(LIKES.domain, item_features=table)))
    with pytest.raises(
        InputError, match="Nothing is known of item 119: .*with a table of articles or donors"
    ):
        model.similar_items(119)
    assert model.similar_items([119, 0], 3)[0].by == ("category", "similar articles")
    for wrong, words in (
        ([], "list of items is empty"),
        ("nowhere", "'nowhere' is not in the model's catalogue"),
    ):
        with pytest.raises(InputError, match=words):
            model.similar_items(wrong)
    for n in (0, -1, True, 2.0, "3", None):
        with pytest.raises(InputError, match="n=.* is out of range; pass an integer >= 1"):
            model.similar_items(0, n)
    ratings = hushrec.realistic(300, 30, 4000, seed=0)
    private = hushrec.PrivateALS(rank=2, iterations=1, n_users=300).fit(
        ratings, Accountant(Budget(5.0, 1e-6))
    )
    for ask in (lambda: private.similar_items(ratings.domain.items[0]), private.similar_batch):
        with pytest.raises(InputError, match="train for lists, or for both"):
            ask()
    with pytest.raises(InputError, match="pass attributes"):
        model.similar_items(0, where="odd")
    open_ = hushrec.ALS(rank=3).fit(ratings, Accountant(Budget(math.inf, 1e-6)))
    assert open_.similar_items(ratings.domain.items[0], 1)[0].by == ("3 taste dimensions",)
