"""The order of a history, for lists of what a user may choose next."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from hushrec.data import Domain, Ratings
from hushrec.data.ids import encode_ratings
from hushrec.data.times import HOW_TO_WRITE, NO_TIME, parse_time
from hushrec.errors import InputError

#: Numbers of a user's latest ratings from which a list of what comes next is computed, next to all of them.
#: An item's weight then falls like one over its age in ratings.
_SPANS = 1, 2, 4, 8, 16, 32


def spans(history: Ratings) -> list[Ratings]:
    """Return each user's latest ratings for every span, and the whole history.

    A span has the ratings with fewer later ones: all of one time, or none.
    """
    if history.n_ratings and history.timed and not history.any_time:
        warnings.warn(
            "No time of this history can be read, so lists of what comes next do not know its order;"
            f" {HOW_TO_WRITE}.",
            stacklevel=4,
        )
    age = history.age()
    return [*(history.where(age < span, drop_empty=False, keyed=True) for span in _SPANS), history]


def in_order(history: Any, pairs: list[Any], domain: Domain) -> tuple[list[Any], dict[int, int]]:
    """Return one user's pairs of item and rating, oldest first, and the last time of each item's position.

    Without times these are places in the list.
    """
    if isinstance(history, Mapping):
        raise InputError(
            "next needs an order, and a mapping has none: pass a list of [item, rating, time], or of pairs"
            " or items with the latest last."
        )
    times = list(range(len(pairs)))
    if any(len(entry) == 3 for entry in pairs):
        times = [parse_time(entry[2]) if len(entry) == 3 else NO_TIME for entry in pairs]
    order = sorted(range(len(pairs)), key=times.__getitem__)
    no_like = (encode_ratings([entry[1] for entry in pairs]) <= 0) & domain.likes
    last = {domain.position(pairs[at][0]): times[at] for at in order if not no_like[at]}
    return [tuple(pairs[at][:2]) for at in order], last
