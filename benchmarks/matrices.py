"""The papers' synthetic matrices, as ratings over a declared domain; nothing in them is private."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from hushrec.data import Domain, Ratings

_CELLS = 1 << 22  # drawn at a time, so that a block stays below 20 MB


class Generated(NamedTuple):
    """Observed ratings and the matrix behind them, ``user_factors @ item_factors.T``.

    Row i of ``user_factors`` belongs to user i of ``ratings``; ratings are the observed entries after noise
    and the clamp to the declared range.
    """

    ratings: Ratings
    user_factors: np.ndarray
    item_factors: np.ndarray


def jtt18_matrix(
    n_users: int = 500_000, n_items: int = 400, *, ratings_per_user: int = 80, seed: int
) -> Generated:
    """The synthetic data of Jain, Thakkar and Thakurta 2018 (section 4): random, rank one, max |entry| 1.

    Factors are uniform on [-1, 1], each scaled to maximum 1; each user rates ``ratings_per_user`` random
    items (the paper's cap of 80).
    """
    rng = np.random.default_rng(seed)
    user_factors = rng.uniform(-1, 1, (n_users, 1))
    item_factors = rng.uniform(-1, 1, (n_items, 1))
    user_factors /= np.abs(user_factors).max()
    item_factors /= np.abs(item_factors).max()
    items = []
    for part in _blocks(n_users, _CELLS // n_items):
        block = rng.random((part.stop - part.start, n_items), dtype=np.float32)
        items.append(np.argpartition(block, ratings_per_user - 1, axis=1)[:, :ratings_per_user])
    columns = np.concatenate(items).ravel().astype(np.int32)
    rows = np.repeat(np.arange(n_users, dtype=np.int32), ratings_per_user)
    return _generated(rows, columns, user_factors, item_factors, 1.0)


def dpals_matrix(
    n_users: int = 20_000,
    n_items: int = 1_000,
    *,
    rank: int = 5,
    noise: float = 0.0,
    observed: float | None = None,
    rating_bound: float = 8.0,
    seed: int,
) -> Generated:
    """The synthetic data of DPALS (Chien et al. 2021, section 6.1): low rank, unit variance, seen at random.

    Entries of the factors are Gaussian (nearly orthogonal columns), those of their product have standard
    deviation 1; each is observed with probability 20 ln(n_users) / n_items.

    Parameters
    ----------
    n_users, n_items, rank : int
    noise : float
        Standard deviation of Gaussian noise on each observation.
    observed : float, optional
        Probability that an entry is observed, instead of the paper's.
    rating_bound : float
        The declared range is (-rating_bound, rating_bound), and observations beyond it are clamped to it
        here: with the default about one in ten million is.
    seed : int
    """
    probability = min(1.0, 20 * math.log(max(n_users, 2)) / n_items) if observed is None else observed
    rng = np.random.default_rng(seed)
    user_factors = rng.standard_normal((n_users, rank))
    item_factors = rng.standard_normal((n_items, rank)) / math.sqrt(rank)
    places = []
    for part in _blocks(n_users, _CELLS // n_items):
        seen = rng.random((part.stop - part.start, n_items), dtype=np.float32) < probability
        places.append(np.argwhere(seen).astype(np.int32) + np.int32([part.start, 0]))
    rows, columns = np.concatenate(places).T
    errors = noise * rng.standard_normal(len(rows))
    return _generated(rows, columns, user_factors, item_factors, rating_bound, errors)


def _generated(
    rows: np.ndarray,
    columns: np.ndarray,
    user_factors: np.ndarray,
    item_factors: np.ndarray,
    bound: float,
    errors: np.ndarray | float = 0.0,
) -> Generated:
    values = np.empty(len(rows))
    for part in _blocks(len(rows), _CELLS):
        np.einsum("ij,ij->i", user_factors[rows[part]], item_factors[columns[part]], out=values[part])
    values += errors
    domain = Domain(_names("i", len(item_factors), 5), rating_range=(-bound, bound))
    users, items = (
        pa.DictionaryArray.from_arrays(pa.array(codes), ids)
        for codes, ids in ((rows, _names("u", len(user_factors), 6)), (columns, domain.items))
    )
    ratings = Ratings.from_any((users, items, np.clip(values, -bound, bound)), domain)
    return Generated(ratings, user_factors[np.unique(rows)], item_factors)


def _names(letter: str, count: int, digits: int) -> list[str]:
    width = max(len(str(count)), digits)
    return [f"{letter}{number:0{width}d}" for number in range(1, count + 1)]


def _blocks(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, max(1, size))]
