"""Training and test parts, for evaluation only: a split is not part of a private training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hushrec.data.ids import is_number
from hushrec.data.keys import check_seed, smallest_per_row, stream_base
from hushrec.data.ratings import Ratings
from hushrec.errors import InputError


class HeldOutUsers(NamedTuple):
    """The parts of `strong_generalization`."""

    train: Ratings
    fold_in: Ratings
    target: Ratings


def split_ratings(
    ratings: Ratings, fractions: Sequence[float] = (0.8, 0.1, 0.1), *, seed: int
) -> tuple[Ratings, ...]:
    """Random parts of the ratings, whoever they belong to.

    Parameters
    ----------
    ratings : Ratings
    fractions : sequence of float
        Positive, adding up to 1; by default training, validation and test.
    seed : int
        The same file and seed give the same split.

    Returns
    -------
    tuple of Ratings
        One for each fraction. A user without a rating in a part is not in it; `Ratings.aligned_to` gives the
        rows of one part in the order of another's users.
    """
    if not all(is_number(f) and 0 < f <= 1 for f in fractions) or abs(sum(fractions) - 1) > 1e-9:
        raise InputError(f"fractions must be positive numbers that add up to 1, not {tuple(fractions)!r}.")
    n_ratings = ratings.n_ratings
    order = np.random.default_rng(check_seed(seed)).permutation(n_ratings)
    ends = np.round(np.cumsum(fractions) * n_ratings).astype(np.int64)
    part = np.empty(n_ratings, dtype=np.int8 if len(ends) < 128 else np.int32)
    part[order] = np.searchsorted(ends, np.arange(n_ratings), side="right")
    return tuple(ratings.where(part == number) for number in range(len(ends)))


def leave_k_out(ratings: Ratings, k: int = 1, *, seed: int) -> tuple[Ratings, Ratings]:
    """Set aside ``k`` random ratings of each user.

    A user with ``k`` ratings or fewer stays in the training part with all of them, and has none in the test
    part.

    Returns
    -------
    train, test : Ratings
    """
    if isinstance(k, (bool, np.bool_)) or not isinstance(k, (int, np.integer)) or k < 1:
        raise InputError(f"k must be a positive integer, not {k!r}.")
    lengths = np.diff(ratings.matrix.indptr)
    test = _keyed_choice(ratings, np.where(lengths > k, int(k), 0), seed, "leave-k-out")
    return ratings.where(~test), ratings.where(test)


def strong_generalization(
    ratings: Ratings, n_heldout: int, *, fold_in: float = 0.8, seed: int
) -> HeldOutUsers:
    """Hold out whole users, who are folded in from part of their ratings and judged on the rest.

    The protocol of Liang, Krishnan, Hoffman and Jebara 2018 (arXiv 1802.05814, section 4.2). Call it again on
    ``train`` for validation users.

    Parameters
    ----------
    ratings : Ratings
    n_heldout : int
        Number of held-out users, from 1 to n_users - 1.
    fold_in : float
        Share of a held-out user's ratings from which she is folded in, in (0, 1). The number of target
        ratings is rounded down, so a user with few ratings may have none and is then in ``fold_in`` only.
    seed : int

    Returns
    -------
    HeldOutUsers
        ``train`` (the other users), ``fold_in`` and ``target`` (of the held-out ones).
    """
    if isinstance(n_heldout, (bool, np.bool_)) or not isinstance(n_heldout, (int, np.integer)):
        raise InputError(f"n_heldout must be an integer, not {n_heldout!r}.")
    if not 1 <= n_heldout < ratings.n_users:
        raise InputError("n_heldout must be at least 1 and leave at least one user to train on.")
    if not is_number(fold_in) or not 0 < fold_in < 1:
        raise InputError(f"fold_in must be a share strictly between 0 and 1, not {fold_in!r}.")
    order = np.argsort(stream_base(ratings.user_keys, seed, "held-out users"), kind="stable")
    held = np.zeros(ratings.n_users, dtype=bool)
    held[order[:n_heldout]] = True
    heldout = ratings.select_users(held)
    lengths = np.diff(heldout.matrix.indptr)
    n_target = np.floor((1 - fold_in) * lengths + 1e-9).astype(np.int64)
    target = _keyed_choice(heldout, n_target, seed, "held-out ratings")
    return HeldOutUsers(ratings.select_users(~held), heldout.where(~target), heldout.where(target))


def _keyed_choice(ratings: Ratings, counts: np.ndarray, seed: int, purpose: str) -> np.ndarray:
    base = stream_base(ratings.user_keys, seed, purpose)
    matrix = ratings.matrix
    return smallest_per_row(matrix.indptr, matrix.indices, base, counts.astype(np.int64))
