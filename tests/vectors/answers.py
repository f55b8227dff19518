"""What a model answers, as the parity vectors record it: items are positions in the catalogue."""

from typing import Any

from hushrec.algorithms import Billboard
from hushrec.data import Ratings
from hushrec.errors import InputError

_DIGITS = 10
_LISTED = 20
_EXPLAINED = (0, 7, 29)


def answers(model: Billboard, pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    """Predictions of all items, all items ranked with their scores, and the list, for one history.

    Ratings that cannot be used are refused by the methods for one user, and which item the sentence names is
    recorded; the rest is what the other ratings give.
    """
    rows = Ratings.of_user(pairs, model.domain)
    refused = None
    try:
        model.recommend(pairs)
    except InputError as error:
        refused = next(item for item, _ in pairs if repr(item) in str(error))
    ((ranked, scores),) = model.top_columns(rows, model.domain.n_items, exclude_seen=False)
    ((listed, _),) = model.top_columns(rows, _LISTED)
    usable = {model.domain.items[at]: rating for at, rating in zip(rows.matrix.indices, rows.matrix.data)}
    return {
        "refused": refused,
        "predicted": [round(float(x), _DIGITS) for x in model.predict(rows, model.domain.items)[0]],
        "ranked": ranked[0].tolist(),
        "scores": [round(float(x), _DIGITS) for x in scores[0]],
        "list": [column for column in listed[0].tolist() if column >= 0],
        "explained": [explained(model, usable, column) for column in _EXPLAINED],
    }


def explained(model: Billboard, ratings: dict[Any, float], column: int) -> list[Any]:
    """Position, score, base, and what each of a user's items moved, by position."""
    found = model.explain(ratings, model.domain.items[column])
    assert [-abs(each.moved) for each in found.because] == sorted(-abs(each.moved) for each in found.because)
    moved = {model.domain.position(each.item): round(each.moved, _DIGITS) for each in found.because}
    return [column, round(found.score, _DIGITS), round(found.base, _DIGITS), sorted(map(list, moved.items()))]


def similar_to(model: Billboard, column: int) -> dict[str, Any]:
    """Items similar to one; or whether the model cannot compare any, or not this one."""
    items = model.domain.items
    try:
        found = model.similar_items(items[column], 5)
    except InputError as error:
        return {"item": column, "refused": "this one" if repr(items[column]) in str(error) else "all"}
    places = [next(i for i, other in enumerate(items) if other is item) for item, _ in found]
    return {"item": column, "items": places, "cosines": [round(float(x), _DIGITS) for _, x in found]}
