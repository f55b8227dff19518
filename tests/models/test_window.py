"""Likes that go together within a window of a user's own order: contributions, order and refusals."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from hushrec import Accountant, Both, Budget, Domain, PrivateALS, PrivateEigenRec, Ratings, Store
from hushrec.errors import InputError
from hushrec.models.private_eigenrec import users as users_side
from hushrec.privacy import Season, SeasonAccountant
from hushrec.training import named
from tests.opening import opened

N_ITEMS, BUDGET = 20, Budget(3, 1e-6)
DOMAIN = Domain([f"i{number}" for number in range(N_ITEMS)], likes=True)
LEARNED = np.arange(N_ITEMS) % 6 > 0
#: Times of one user's rows: of every kind, all equal, none, in milliseconds, in the future.
KINDS = {
    "mixed": [5, None, 1_700_000_000, 5, 2_000_000_000_000, 4_000_000_000],
    "equal": [7],
    "none": [None],
    "milliseconds": [1_700_000_000_000 + step * 977 % 5000 for step in range(N_ITEMS)],
    "future": [9_000_000_000 - step for step in range(N_ITEMS)],
}


def rows_of(user: str, kind: str, n: int, seed: int) -> list[tuple]:
    items, times = np.random.default_rng(seed).permutation(N_ITEMS)[:n], KINDS[kind]
    return [(user, f"i{item}", 1.0, times[place % len(times)]) for place, item in enumerate(items)]


def ratings_of(*users: list[tuple]) -> Ratings:
    return Ratings.from_any(tuple(map(list, zip(*sum(users, [])))), DOMAIN)


def scaled(ratings: Ratings, window: int):
    """The users' side with scales, and item vectors that were released."""
    rng = np.random.default_rng(3)
    users = PrivateEigenRec(rank=3, window=window).users(ratings)
    first = np.where(LEARNED, rng.integers(1, 33, N_ITEMS) / 32, 0.0)
    first[1] = 1.0
    users.scale(np.where(LEARNED, rng.uniform(0.5, 2, N_ITEMS), 0.0), first)
    return users, rng.standard_normal((N_ITEMS, 3)) * LEARNED[:, None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [1, 3, 100])
def test_what_one_user_adds_is_what_the_definition_says(kind: str, window: int) -> None:
    """Oracle: a dense matrix of one user's pairs, from rows sorted by time, missing times first."""
    for n in (1, 2, 9, N_ITEMS):
        rows = rows_of("u", kind, n, seed=n)
        users, vectors = scaled(ratings_of(rows), window)
        column = {item: place for place, item in enumerate(DOMAIN.items)}
        in_order = sorted(rows, key=lambda row: (row[3] is not None, row[3] or 0, column[row[1]]))
        order = [column[row[1]] for row in in_order]
        scale, first = users._scale, users._first
        wanted = np.zeros((N_ITEMS, 3))
        for place, item in enumerate(order):
            near = order[max(place - window, 0) : place + window + 1]
            factors = scale[near] @ vectors[near]
            if factors.any():
                wanted[item] = scale[item] * factors / np.linalg.norm(factors)
        wanted /= max(np.linalg.norm(scale[order]), 1e-300)
        wanted -= np.outer(first, first @ wanted) / (first @ first)
        wanted /= max(np.linalg.norm(wanted), 1 / 2)
        found = opened(users.item_sums(vectors))
        np.testing.assert_allclose(found.reshape(-1, 3), wanted[LEARNED], atol=1e-5)
        assert np.linalg.norm(found) <= 1


def test_a_window_of_all_likes_is_no_window() -> None:
    ratings = ratings_of(*(rows_of(f"u{seed}", "mixed", 3 + seed, seed) for seed in range(8)))
    (whole, vectors), (windowed, _) = scaled(ratings, 0), scaled(ratings, 100)
    sums = [opened(users.item_sums(vectors)) for users in (whole, windowed)]
    np.testing.assert_allclose(*sums, atol=1e-5)


@pytest.mark.parametrize("at_once", [1, 1 << 20])
def test_one_users_times_change_their_own_contribution_alone(at_once: int, monkeypatch) -> None:
    """To the last bit, wherever blocks of users end: the sum of all is that of the user and of the others."""
    monkeypatch.setattr(users_side, "_NEAR_AT_ONCE", at_once)
    others = [rows_of(f"u{seed}", kind, 4 + 3 * seed, seed) for seed, kind in enumerate(KINDS)]

    def sums(*users: list[tuple]) -> np.ndarray:
        side, vectors = scaled(ratings_of(*users), 2)
        return opened(side.item_sums(vectors))

    without, found = sums(*others), []
    for kind in KINDS:
        comer = rows_of("comer", kind, 12, seed=9)
        found.append(sums(comer))
        assert (sums(comer, *others) == found[-1] + without).all()
    assert (found[1] == found[2]).all(), "equal times are no order, as none are"
    assert len({value.tobytes() for value in found}) > 2


@pytest.mark.parametrize("size", [0.0, 5e-324, 1e-160, 1e160, 8e307, np.inf, np.nan])
def test_a_user_stays_within_the_bound_whatever_a_server_sends(size: float) -> None:
    """Item vectors with cells of any size; other users' contributions do not change."""
    others = [rows_of(f"u{seed}", "mixed", 5 + seed, seed) for seed in range(3)]

    def sums(*users: list[tuple]) -> np.ndarray:
        side, vectors = scaled(ratings_of(*users), 2)
        vectors[[2, 7, 9]] = np.copysign(size, vectors[[2, 7, 9]])
        return opened(side.item_sums(vectors))

    for kind in KINDS:
        comer = rows_of("comer", kind, N_ITEMS, seed=1)
        found = sums(comer)
        assert np.linalg.norm(found) <= 1
        assert (sums(comer, *others) == found + sums(*others)).all()


@pytest.mark.true("D8")
def test_ratings_read_without_times_are_refused_before_a_charge(tmp_path) -> None:
    """In a first training, in one by name that would release the user count, and in a season's next week."""
    timed = ratings_of(*(rows_of(f"u{seed}", "none", 6, seed) for seed in range(30)))
    lists = PrivateEigenRec(rank=2, iterations=1, window=3, n_users=30)
    both = Both(ratings=PrivateALS(rank=0, n_users=30, features=False), lists=lists)
    plain = replace(timed, times=None)
    store = Store.prepare(plain, tmp_path / "plain", DOMAIN)
    first = lists.fit(timed, SeasonAccountant(Season(BUDGET, 3)))
    for rows in (plain, store):
        for train, accountant in (
            (lists.fit, Accountant(BUDGET)),
            (both.fit, Accountant(BUDGET)),
            (partial(named.train, "private-eigenrec", settings={"window": 3}), Accountant(BUDGET)),
            (first.continue_training, SeasonAccountant.following(first.privacy)),
        ):
            before = accountant.releases  # of the weeks so far
            with pytest.raises(InputError, match="read without times; read them with columns="):
                train(rows, accountant)
            assert accountant.releases == before
    for ratings in (timed, Store.prepare(timed, tmp_path / "timed", DOMAIN)):
        assert lists.fit(ratings, Accountant(BUDGET)).estimator.window == 3
    with pytest.raises(InputError, match="Where items recommend items there is no window"):
        PrivateEigenRec(pairs=True, window=1)
