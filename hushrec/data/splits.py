"""Training and test parts. Each user's part depends on hashes of that user's id and items.

Adding or removing a user changes no other user's part, so a part may be trained on privately.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hushrec.checks import check_count, check_numbers, is_number
from hushrec.data.columns import SPLIT
from hushrec.data.keys import check_seed, part_of, parts_of_cells, smallest_per_row, stream_base
from hushrec.data.ratings import Ratings
from hushrec.data.times import HOW_TO_WRITE, NO_TIME, parse_time, unit_of
from hushrec.errors import InputError


class HeldOutUsers(NamedTuple):
    """The parts of `strong_generalization`."""

    train: Ratings
    fold_in: Ratings
    target: Ratings


def split_ratings(
    ratings: Ratings, fractions: Sequence[float] = (0.8, 0.1, 0.1), *, seed: int
) -> tuple[Ratings, ...]:
    """Split ratings at random, by a hash of (seed, user, item).

    Parameters
    ----------
    ratings : Ratings
    fractions : sequence of float
        Positive, adding up to 1; they hold in expectation.
    seed : int

    Returns
    -------
    tuple of Ratings
        One for each fraction, of the users with a rating in it; see `Ratings.aligned_to`.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> train, validation, test = hushrec.split_ratings(ratings, (0.8, 0.1, 0.1), seed=0)
    >>> train.n_ratings + validation.n_ratings + test.n_ratings == ratings.n_ratings
    True
    """
    mark = _check(ratings, "ratings", seed)
    if not isinstance(fractions, Iterable):
        raise InputError(f"fractions={fractions!r} is not a list; pass one, for example (0.8, 0.2).")
    if not all(is_number(f) and 0 < f <= 1 for f in fractions) or abs(sum(fractions) - 1) > 1e-9:
        raise InputError(f"fractions must be positive numbers that add up to 1, not {tuple(fractions)!r}.")
    base = stream_base(ratings.user_keys, seed, "split")
    part = parts_of_cells(ratings.matrix.indptr, ratings.matrix.indices, base, fractions)
    return tuple(_part(ratings, part == number, mark) for number in range(len(fractions)))


def k_folds(ratings: Ratings, k: int = 5, *, seed: int) -> Iterator[tuple[Ratings, Ratings]]:
    """Yield all but one of ``k`` random parts, and this one, in turn.

    Yields
    ------
    train, test : Ratings

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> parts = [test.n_ratings for train, test in hushrec.data.k_folds(ratings, 3, seed=0)]
    >>> len(parts), sum(parts) == ratings.n_ratings
    (3, True)
    """
    mark = _check(ratings, "ratings", seed)
    if check_count("k", k) < 2:
        raise InputError(
            "One fold leaves nothing to train on; pass 2 or more, for example 5.", parameter="folds"
        )
    base = stream_base(ratings.user_keys, seed, "split")
    part = parts_of_cells(ratings.matrix.indptr, ratings.matrix.indices, base, [1 / k] * k)
    for number in range(k):
        yield _part(ratings, part != number, mark), _part(ratings, part == number, mark)


def leave_k_out(ratings: Ratings, k: int = 1, *, seed: int) -> tuple[Ratings, Ratings]:
    """Set aside ``k`` random ratings of each user who has more.

    Returns
    -------
    train, test : Ratings

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> rest, held_out = hushrec.leave_k_out(ratings, 2, seed=0)
    >>> held_out.n_ratings <= 2 * ratings.n_users
    True
    """
    _check(ratings)
    k = check_count("k", k)
    lengths = np.diff(ratings.matrix.indptr)
    test = _keyed_choice(ratings, np.where(lengths > k, k, 0), seed, "leave-k-out")
    return ratings.where(~test, keyed=True), ratings.where(test, keyed=True)


def leave_last_out(ratings: Ratings) -> tuple[Ratings, Ratings]:
    """Set aside the last rating of each user who has two or more, of equal times the last in the catalogue.

    Parameters
    ----------
    ratings : Ratings
        Read with their times (docs/guides/time.md).

    Returns
    -------
    train, test : Ratings

    Examples
    --------
    >>> domain = hushrec.Domain(["matrix", "alien"], rating_range=(1, 5))
    >>> table = {"user": ["ann", "ann"], "item": ["alien", "matrix"], "rating": [4, 2], "time": [1, 2]}
    >>> ratings = hushrec.Ratings.from_any(table, domain, columns={"time": True})
    >>> train, last = hushrec.data.leave_last_out(ratings)
    >>> last.to_arrow()["item"].to_pylist()
    ['matrix']
    """
    _check(ratings)
    latest, ends = np.flatnonzero(ratings.age() == 0), ratings.matrix.indptr[1:]
    last = np.zeros(ratings.n_ratings, dtype=bool)
    last[latest[np.searchsorted(latest, ends[np.diff(ratings.matrix.indptr) > 1]) - 1]] = True
    return ratings.where(~last, keyed=True), ratings.where(last, keyed=True)


def split_by_time(ratings: Ratings, date: Any) -> tuple[Ratings, Ratings]:
    """Split into ratings given before a declared date, and those from it on.

    Parameters
    ----------
    ratings : Ratings
        Read with their times (docs/guides/time.md); one without a time is before all others.
    date : date, datetime, ISO 8601 text or number
        Declared, never the time of some rating, which would decide the parts of all users.

    Returns
    -------
    before, after : Ratings

    Raises
    ------
    InputError
        The ratings were read without times, or the date is invalid.

    Examples
    --------
    >>> domain = hushrec.Domain(["matrix", "alien"], rating_range=(1, 5))
    >>> table = {"user": ["ann", "bob"], "item": ["alien", "alien"], "rating": [4, 2]}
    >>> table["time"] = ["2026-01-05", "2026-03-01"]
    >>> ratings = hushrec.Ratings.from_any(table, domain, columns={"time": True})
    >>> before, after = hushrec.split_by_time(ratings, "2026-02-01")
    >>> before.users.tolist(), after.users.tolist()
    (['ann'], ['bob'])
    """
    _check(ratings)
    if ratings.times is None:
        raise InputError(
            'Ratings have no times; read them with columns={"time": True} or the column\'s name.'
        )
    moment = parse_time(date)
    if moment == NO_TIME:
        raise InputError(f"date {date!r} is not a date; pass for example 2024-06-30.", parameter="date")
    after = ratings.times >= moment
    return ratings.where(~after, keyed=True), ratings.where(after, keyed=True)


def check_times(ratings: Ratings, date: Any = None) -> None:
    """Refuse unreadable times, or a date with all ratings on one side or in another unit; private."""
    if ratings.times is None or not len(ratings.times):
        return
    begin = "PRIVATE, for the curator alone:"
    if not ratings.any_time:
        raise InputError(
            f"{begin} no time of these ratings can be read, and nothing was written; {HOW_TO_WRITE}."
        )
    moment = parse_time(date)
    if moment == NO_TIME:
        return
    unit, expected = unit_of(ratings.times), unit_of(np.array([moment]))
    n_after = int((ratings.times >= moment).sum())
    if unit == expected and 0 < n_after < len(ratings.times):
        return
    which = "all" if n_after in (0, len(ratings.times)) else "most"
    what = f"{which} ratings are {'after' if n_after else 'before'} {date}"
    if unit != expected:
        how = f"the times look like {unit} and the date counts in {expected}; convert the times."
    else:
        how = "pass another date, which does not depend on the ratings."
    raise InputError(f"{begin} {what}, and nothing was written; {how}")


def strong_generalization(
    ratings: Ratings, heldout: float = 0.1, *, fold_in: float = 0.8, seed: int
) -> HeldOutUsers:
    """Hold out whole users, who are folded in from part of their ratings and judged on the rest.

    The protocol of Liang, Krishnan, Hoffman and Jebara 2018 (arXiv 1802.05814, section 4.2).

    Parameters
    ----------
    ratings : Ratings
    heldout : float
        Fraction of the users that is held out, in (0, 1), in expectation.
    fold_in : float
        Fraction of their ratings to fold in, in (0, 1). The number of target ratings is rounded down.
    seed : int

    Returns
    -------
    HeldOutUsers
        ``train`` (the other users), ``fold_in`` and ``target`` (of the held-out ones).

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> parts = hushrec.strong_generalization(ratings, heldout=0.1, seed=0)
    >>> parts.fold_in.n_users <= ratings.n_users - parts.train.n_users
    True
    """
    mark = _check(ratings, "users", seed)
    check_numbers(heldout=(heldout, float, "(0, 1)"), fold_in=(fold_in, float, "(0, 1)"))
    keys = stream_base(ratings.user_keys, seed, "held-out users")
    held = part_of(keys, (heldout, 1 - heldout)) == 0
    judged = ratings.rows(held, keyed=True)
    lengths = np.diff(judged.matrix.indptr)
    n_target = np.floor((1 - fold_in) * lengths + 1e-9).astype(np.int64)
    target = _keyed_choice(judged, n_target, seed, "held-out ratings")
    return HeldOutUsers(
        replace(ratings.rows(~held, keyed=True), splits=(*ratings.splits, mark)),
        judged.where(~target, keyed=True),
        judged.where(target, keyed=True),
    )


def _keyed_choice(ratings: Ratings, counts: np.ndarray, seed: int, purpose: str) -> np.ndarray:
    base = stream_base(ratings.user_keys, seed, purpose)
    matrix = ratings.matrix
    return smallest_per_row(matrix.indptr, matrix.indices, base, counts.astype(np.int64))


def _part(ratings: Ratings, mask: np.ndarray, mark: str) -> Ratings:
    return replace(ratings.where(mask, keyed=True), splits=(*ratings.splits, mark))


def _check(ratings: Ratings, of: str = "", seed: int = 0) -> str:
    if not isinstance(ratings, Ratings):
        raise InputError(
            f"ratings must be Ratings, not {type(ratings).__name__}; load them with Ratings.from_any(table,"
            " domain)."
        )
    mark = f"{SPLIT}{of}:{check_seed(seed)}"
    if mark in ratings.splits:
        raise InputError(
            f"These ratings are a part that seed {seed} chose, which would choose by the same hashes again",
            parameter="seed",
            value=seed + 1,
        )
    return mark
