"""Generated ratings of any size, to try and to tune on; nothing in them is private."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from hushrec.checks import check_count
from hushrec.data.columns import Columns
from hushrec.data.domain import Domain
from hushrec.data.ids import Encoded
from hushrec.data.keys import check_seed, slices
from hushrec.data.ratings import Ratings
from hushrec.data.ratings_builder import build
from hushrec.errors import InputError

_CELLS = 1 << 22  # cells drawn at a time
_RANK = 8  # of users' tastes


def realistic(
    n_users: int,
    n_items: int,
    n_ratings: int,
    *,
    rating_range: tuple[float, float] = (1.0, 5.0),
    spreads: tuple[float, float, float] = (0.45, 0.45, 0.83),
    n_features: int = 0,
    seed: int,
) -> Ratings:
    """Generate ratings that look like MovieLens: Zipf items, log-normal users, biases and low rank.

    On a 1 to 5 scale the mean is near 3.5 and the standard deviation near 1.1. Biases alone predict to about
    0.90 and a low-rank model to about 0.85, as on MovieLens-1M.

    Parameters
    ----------
    n_users, n_items, n_ratings : int
        Met exactly: every user has at least one rating and no pair occurs twice.
    rating_range : (float, float)
        Ratings are ``low``, ``low + 1``, ... up to ``high``.
    spreads : (float, float, float)
        Standard deviations of item biases, of the low-rank part and of the rest, in quarters of the range.
    n_features : int
        Number of ``domain.item_features``, 0 or 1 like genres.
    seed : int

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> ratings.n_items, ratings.domain.rating_range
    (30, (1.0, 5.0))
    """
    for name, size in (("n_users", n_users), ("n_items", n_items)):
        check_count(name, size)
    biases, tastes, rest = spreads
    if min(spreads) < 0:
        raise InputError(f"spreads must be three numbers >= 0, not {spreads!r}.")
    features = _features(n_items, n_features, seed) if n_features else None
    domain = Domain(names("i", n_items, 5), rating_range=rating_range, item_features=features)
    most = min(n_items, domain.max_ratings_per_user)
    if not n_users <= n_ratings <= n_users * most:
        raise InputError(f"n_ratings must be from {n_users:,} (n_users) to {n_users * most:,} here.")
    if domain.high - domain.low < 1:
        raise InputError("The rating range must be at least 1 wide here; ratings are whole steps.")
    rng = np.random.default_rng(check_seed(seed))
    popularity = _zipf(n_items, rng)
    activity = _activity(n_users, most, n_ratings, rng)
    rows, columns = _distinct_items(activity, popularity, rng)
    user_bias = (0.42 * rng.standard_normal(n_users)).astype(np.float32)
    item_bias = _explained(rng.standard_normal((n_items, 1)), features, seed)[:, 0]
    item_bias = biases * item_bias + 0.13 * (np.log(popularity * n_items) - 2.0)
    spectrum = 1.0 / np.sqrt(np.arange(1, _RANK + 1))  # falling, as in real data
    spectrum *= tastes / math.sqrt(float((spectrum**2).sum()))
    user_factors = rng.standard_normal((n_users, _RANK), dtype=np.float32)
    item_factors = _explained(rng.standard_normal((n_items, _RANK)), features, seed) * spectrum
    item_factors = item_factors.astype(np.float32)
    # one unit of score is a quarter of the range, so 1 to 5 keeps its scale
    unit = (domain.high - domain.low) / 4
    top = domain.low + math.floor(domain.high - domain.low + 1e-9)
    scores = np.empty(n_ratings, np.float32)
    for part in slices(n_ratings, _CELLS):
        score = np.einsum("ij,ij->i", user_factors[rows[part]], item_factors[columns[part]])
        score += user_bias[rows[part]]
        score += item_bias[columns[part]].astype(np.float32)
        score += rest * rng.standard_normal(len(score), dtype=np.float32)
        score *= unit
        score += domain.low + 2.66 * unit
        np.clip(np.rint(score - domain.low) + domain.low, domain.low, top, out=scores[part])
    users = pa.array(names("u", n_users, 6), pa.large_string())
    return Ratings(domain, *build(domain, Columns(Encoded(rows, users, users), columns, scores)))


def names(letter: str, count: int, digits: int) -> tuple[str, ...]:
    width = max(len(str(count)), digits)
    return tuple(f"{letter}{number:0{width}d}" for number in range(1, count + 1))


def _zipf(n_items: int, rng: np.random.Generator) -> np.ndarray:
    place = np.arange(n_items) / n_items
    weight = np.exp(-3 * place) / (place + 0.01)
    return rng.permutation(weight / weight.sum())


def _activity(n_users: int, most: int, n_ratings: int, rng: np.random.Generator) -> np.ndarray:
    least = max(1, min(20, n_ratings // (8 * n_users)))
    drawn = np.exp(1.1 * rng.standard_normal(n_users))
    low, high = 0.0, n_ratings / drawn.min()
    for _ in range(100):  # scale, because the clipped numbers must add up
        scale = (low + high) / 2
        counts = np.clip(np.rint(least + scale * drawn), least, most)
        low, high = (scale, high) if counts.sum() < n_ratings else (low, scale)
    counts = counts.astype(np.int64)
    while missing := n_ratings - int(counts.sum()):
        movable = np.flatnonzero(counts < most if missing > 0 else counts > 1)
        counts[rng.permutation(movable)[: abs(missing)]] += np.sign(missing)
    return counts


def _distinct_items(
    activity: np.ndarray, popularity: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw distinct items of each user in proportion to popularity.

    Users who want much of the catalogue get the largest of popularity plus Gumbel noise, the same law.
    """
    n_users, n_items = len(activity), len(popularity)
    edges = np.cumsum(popularity)
    edges[-1] = 1.0
    missing = np.where(activity > n_items // 8, 0, activity)
    cells = np.zeros(0, dtype=np.int64)
    for _ in range(8):
        wanted = np.repeat(np.arange(n_users) * n_items, missing)
        wanted += np.searchsorted(edges, rng.random(len(wanted)), side="right")
        wanted.sort()
        fresh = np.append(True, wanted[1:] != wanted[:-1])[: len(wanted)]
        if len(cells):
            place = np.minimum(np.searchsorted(cells, wanted), len(cells) - 1)
            fresh &= cells[place] != wanted
        wanted = wanted[fresh]
        missing = missing - np.bincount(wanted // n_items, minlength=n_users)
        cells = np.concatenate([cells, wanted])
        cells.sort(kind="stable")  # two sorted runs
        if not missing.any():
            break
    outright = (missing > 0) | (activity > n_items // 8)
    parts = [cells[~outright[cells // n_items]] if missing.any() else cells]
    for user in np.flatnonzero(outright):
        keys = np.log(popularity) + rng.gumbel(size=n_items)
        parts.append(user * n_items + np.argpartition(-keys, activity[user] - 1)[: activity[user]])
    cells = np.concatenate(parts)
    cells.sort(kind="stable")
    rows, columns = np.divmod(cells, n_items)
    return rows.astype(np.int32), columns.astype(np.int32)


def _features(n_items: int, n_features: int, seed: int) -> np.ndarray:
    common = 0.4 * np.arange(1, check_count("n_features", n_features) + 1) ** -0.7
    drawn = np.random.default_rng([1, check_seed(seed)]).random((n_items, n_features))
    return (drawn < common).astype(np.float64)


def _explained(noise: np.ndarray, features: np.ndarray | None, seed: int) -> np.ndarray:
    if features is None:
        return noise
    rng = np.random.default_rng([2, seed, noise.shape[1]])
    common = (features - features.mean(axis=0)) @ rng.standard_normal((features.shape[1], noise.shape[1]))
    return math.sqrt(0.5) * (common / np.maximum(common.std(axis=0), 1e-12) + noise)
