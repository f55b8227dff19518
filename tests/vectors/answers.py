"""Answers of a model, as the parity vectors record them: items are positions in the catalogue."""

from typing import Any

import numpy as np

from hushrec.data import Ratings
from hushrec.errors import InputError
from hushrec.models import Model
from hushrec.serving import Attributes

_DIGITS = 10
_LISTED = 20
_EXPLAINED = (0, 7, 29)


def answers(model: Model, pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    """Predictions of all items, all items ranked with their scores, and the list, for one history.

    Ratings that cannot be used are refused by the methods for one user, and the item that the sentence
    names is recorded; the other ratings decide the rest.
    """
    bought = hasattr((model.lists or model).estimator, "like_threshold")
    rows = Ratings.of_user(pairs, model.domain, purchases=bought)
    refused = None
    try:
        model.recommend(pairs)
    except InputError as error:
        refused = next(item for item, _ in pairs if repr(item) in str(error))
    ((ranked, scores, _),) = model.rank(rows, model.domain.n_items, exclude_seen=False)
    ((listed, _, _),) = model.rank(rows, _LISTED)
    cells = zip(rows.matrix.indices, rows.matrix.data)
    usable = {model.domain.items[at]: None if np.isnan(rating) else rating for at, rating in cells}
    return {
        "refused": refused,
        "predicted": [round(float(x), _DIGITS) for x in model.predict(rows, model.domain.items)[0]],
        "ranked": ranked[0].tolist(),
        "scores": [round(float(x), _DIGITS) for x in scores[0]],
        "list": [column for column in listed[0].tolist() if column >= 0],
        "explained": [explained(model, usable, column) for column in _EXPLAINED],
    }


def next_lists(model: Model) -> list[dict[str, Any]]:
    """Next lists of ordered histories: by place, by time, with invalid times."""
    items = [item for item in model.domain.items if is_json(item)][:12]
    high, low = model.domain.high, model.domain.low
    times = [5, "2026-01-05", None, 1e12, 7, 7, True, "2026-01-05T10:30:00", "soon", -3.5, 2**63, "12"]
    rated = [[item, low if place % 4 == 3 else high] for place, item in enumerate(items)]
    timed = [[*pair, time] for pair, time in zip(rated, times)]
    again = [*timed, [*timed[0][:2], 1e13], [items[1], high, 0]]
    histories = [rated, rated[::-1], timed, timed[::-1], again, [*rated[:5], *timed[5:]], rated[:3], []]
    found = []
    for history in histories:
        listed = model.recommend([tuple(entry) for entry in history], _LISTED, next=True)
        places = [model.domain.position(each.item) for each in listed]
        scores = [round(each.score, _DIGITS) for each in listed]
        found.append({"ratings": history, "list": places, "scores": scores})
    return found


def is_json(item: Any) -> bool:
    """Return whether an id is the same in JavaScript, where integers end at 2^53."""
    return isinstance(item, str) or (isinstance(item, int | float) and abs(item) < 1 << 53)


def explained(model: Model, ratings: dict[Any, float], column: int) -> list[Any]:
    """Position, score, base, and what each of a user's items moved, by position."""
    found = model.explain(ratings, model.domain.items[column])
    assert [-abs(each.moved) for each in found.because] == sorted(-abs(each.moved) for each in found.because)
    moved = {model.domain.position(each.item): round(each.moved, _DIGITS) for each in found.because}
    return [column, round(found.score, _DIGITS), round(found.base, _DIGITS), sorted(map(list, moved.items()))]


def similar_to(model: Model, column: int, *more: int) -> dict[str, Any]:
    """Items similar to one, or to several; or whether the model cannot compare any, or not this one."""
    items = model.domain.items
    try:
        found = model.similar_items([items[each] for each in (column, *more)], 5)
    except InputError as error:
        return {"item": column, "refused": "this one" if repr(items[column]) in str(error) else "all"}
    places = [next(i for i, other in enumerate(items) if other is each.item) for each in found]
    scores = [round(each.score, _DIGITS) for each in found]
    return {"item": column, "items": places, "scores": scores, "by": list(found[0].by)}


#: Conditions, each with a part of its refusal, or None; SQLite knows them too.
CONDITIONS = {
    **dict.fromkeys(
        (
            "price < 20", "price >= 3.5e0 and price<=12", "not price < 20", "in_stock", "not in_stock",
            "NOT (price < 20 OR brand = 'b1')", "in_stock = true and `on sale`", "price is null",
            "price IS NOT NULL", "brand in ('b1', 'é', 'none')", "brand not in ('b1', 'b2')",
            "price not in (1, 2, 3)", "brand != 'b1'", "brand <> 'b1' or price = 2", "20 > price",
            "price < list_price", "since >= '2026-01-20'", "note = 'it''s'", "note < 'é'", "note > '\uffff'",
            "price in (1, list_price)", "price not in (list_price)", "2 in (price, list_price, 7)",
            "unused", "not unused", "unused = 1", "unused = true", "unused = 'x'", "unused in (1, 'x')",
            "blank", "not blank", "blank = true", "blank = 'x'", "blank is null", "unused is null",
            "price > -1", "true", "1 < 2",
            "brand = 'b1' or brand = 'b2' and in_stock", "(brand = 'b1' or brand = 'b2') and in_stock",
            "not not in_stock", "false or in_stock", "price == .5 or price == 2.",
        )
    ),
    "price <": "with a column, a number or a text",
    "stock": "no column 'stock' in the attributes; there are: price, list_price, in_stock, on sale",
    "price < 'x'": "compares a number with a text",
    "brand": "a text or a number alone",
    "price = 5 or 6": "a text or a number alone",
    "(price < 5": "should go on with )",
    "1 < price < 5": "should go on with and, or, or end",
    "price < 5; drop": "neither name, number, text nor sign",
    "price = null": "with a column, a number or a text",
    "price not 5": "should go on with in",
    "price is 5": "should go on with null",
    "brand in ()": "with a column, a number or a text",
    "mixed = 1": "Column 'mixed' of the attributes holds",
    " ": "A condition is a text",
    "x" * 2001: "at most 2000 letters",
    "(" * 51 + "in_stock" + ")" * 51: "more than 50 parentheses",
    "brand = '\ud800'": "half a character",
}  # fmt: skip
#: Rules of a list.
RULES: list[dict[str, Any]] = [
    {"where": "in_stock and price < 25"},
    {"at_most": {"brand": 1}},
    {"at_most": {"brand": 2, "in_stock": 5}, "where": "price is not null"},
    {"boost": {"brand = 'b1'": 1.5, "in_stock": 0.5}},
    {"boost": {"in_stock": 40}, "at_most": {"brand": 3}},
    {"where": "false"},
]


def item_table(texts: list[str]) -> dict[str, list[Any]]:
    """Columns of every kind, in another order than the catalogue; the last items are not in it."""
    rows = list(range(len(texts) - 2))[::-1]
    return {
        "price": [None if row % 7 == 3 else row if row else 0.5 for row in rows],
        "list_price": [2 + row % 5 for row in rows],
        "in_stock": [None if row % 11 == 5 else row % 3 > 0 for row in rows],
        "on sale": [row % 2 for row in rows],
        "brand": [["b1", "b2", "", "\u00e9"][row % 4] for row in rows],
        "since": [f"2026-01-{row + 1:02}" for row in rows],
        "unused": [None for row in rows],
        "blank": ["" for row in rows],
        "note": [["it's", "e", "\U0001f600", "\ufffd"][row % 4] for row in rows],
        "mixed": [[row] for row in rows],
        "title": [f"The {row}" for row in rows],
        "item": [texts[row] for row in rows],
    }


def rules_of(model: Model, pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    """A table of items, which items conditions are true of, and the lists that rules make."""
    table = item_table(model.domain.text_list)
    attributes = Attributes.read(table, model.domain)
    matching = {
        condition: np.flatnonzero(attributes.matching(condition)).tolist()
        for condition, refused in CONDITIONS.items()
        if refused is None
    }
    lists = []
    for options in RULES:
        ((columns, scores, _),) = model.rank(
            Ratings.of_user(pairs, model.domain), _LISTED, attributes=attributes, **options
        )
        there = columns[0] >= 0
        listed = {
            "list": columns[0][there].tolist(),
            "scores": [round(float(x), _DIGITS) for x in scores[0][there]],
        }
        lists.append({"options": options, **listed})
    refused = {condition: words for condition, words in CONDITIONS.items() if words}
    found = {"table": table, "ratings": pairs, "matching": matching, "refused": refused, "lists": lists}
    return found | {"basket": similar_to(model, 0, 5)}
