"""Generated data: the papers' matrices, and a realistic one of any size.

Nothing here is private. Each function draws from ``numpy.random.default_rng(seed)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from hushrec.data.building import build
from hushrec.data.domain import Domain
from hushrec.data.ids import Encoded, is_number
from hushrec.data.keys import check_seed
from hushrec.data.ratings import Ratings
from hushrec.errors import InputError

_CELLS = 1 << 22  # cells drawn at a time


class Generated(NamedTuple):
    """Observed ratings and the matrix behind them, ``user_factors @ item_factors.T``.

    Row i of ``user_factors`` belongs to user i of ``ratings``; ratings are what was observed of the matrix,
    after noise, rounding and the clamp to the declared range.
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
    _check_sizes(n_users, n_items)
    if not 1 <= ratings_per_user <= n_items:
        raise InputError(f"ratings_per_user must be from 1 to n_items, not {ratings_per_user}.")
    rng = np.random.default_rng(check_seed(seed))
    user_factors = rng.uniform(-1, 1, (n_users, 1))
    item_factors = rng.uniform(-1, 1, (n_items, 1))
    user_factors /= np.abs(user_factors).max()
    item_factors /= np.abs(item_factors).max()
    items = []
    for start in range(0, n_users, max(1, _CELLS // n_items)):
        block = rng.random((min(max(1, _CELLS // n_items), n_users - start), n_items), dtype=np.float32)
        items.append(
            np.argpartition(block, ratings_per_user - 1, axis=1)[:, :ratings_per_user].astype(np.int32)
        )
    columns = np.concatenate(items).ravel()
    rows = np.repeat(np.arange(n_users, dtype=np.int32), ratings_per_user)
    values = user_factors[rows, 0] * item_factors[columns, 0]
    return _generated(rows, columns, values, user_factors, item_factors, 1.0)


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
    _check_sizes(n_users, n_items, rank)
    probability = min(1.0, 20 * math.log(max(n_users, 2)) / n_items) if observed is None else observed
    if not 0 < probability <= 1:
        raise InputError(f"observed must be a probability in (0, 1], not {observed!r}.")
    rng = np.random.default_rng(check_seed(seed))
    user_factors = rng.standard_normal((n_users, rank))
    item_factors = rng.standard_normal((n_items, rank)) / math.sqrt(rank)
    rows, columns = _bernoulli_cells(n_users, n_items, probability, rng)
    values = _products(user_factors, item_factors, rows, columns)
    if noise:
        values += noise * rng.standard_normal(len(values))
    return _generated(rows, columns, values, user_factors, item_factors, rating_bound)


def one_bit_matrix(
    n_users: int = 100,
    n_items: int = 100,
    *,
    rank: int = 1,
    observed: float = 0.15,
    link: str = "probit",
    noise: float = 1.0,
    seed: int,
) -> Generated:
    """The synthetic data of one-bit completion (Davenport et al. 2014; Li et al. 2021, section 5).

    Factors are uniform on [-1/2, 1/2], their product is scaled to max |entry| 1; an observation is the sign
    of the entry plus Gaussian ("probit") or logistic ("logit") noise of scale ``noise``. Ratings are -1 and
    1.
    """
    _check_sizes(n_users, n_items, rank)
    if link not in ("probit", "logit"):
        raise InputError(f"link must be 'probit' or 'logit', not {link!r}.")
    if not 0 < observed <= 1:
        raise InputError(f"observed must be a probability in (0, 1], not {observed!r}.")
    rng = np.random.default_rng(check_seed(seed))
    user_factors = rng.uniform(-0.5, 0.5, (n_users, rank))
    item_factors = rng.uniform(-0.5, 0.5, (n_items, rank))
    largest = max(
        float(np.abs(user_factors[start : start + 1024] @ item_factors.T).max())
        for start in range(0, n_users, 1024)
    )
    user_factors /= largest
    rows, columns = _bernoulli_cells(n_users, n_items, observed, rng)
    values = _products(user_factors, item_factors, rows, columns)
    draw = rng.standard_normal if link == "probit" else rng.logistic
    values += noise * draw(size=len(values))
    return _generated(rows, columns, np.where(values >= 0, 1.0, -1.0), user_factors, item_factors, 1.0)


def realistic(
    n_users: int,
    n_items: int,
    n_ratings: int,
    *,
    rank: int = 8,
    rating_range: tuple[float, float] = (1.0, 5.0),
    step: float = 1.0,
    bias_spread: float = 0.45,
    taste_spread: float = 0.45,
    noise: float = 0.83,
    n_features: int = 0,
    explained: float = 0.5,
    seed: int,
) -> Ratings:
    """Ratings that look like MovieLens: Zipf items, log-normal users, biases and low rank, rounded.

    Users are called "u000001" and on, items "i00001" and on, by their number. On a 1 to 5 scale the mean is
    near 3.5 and the standard deviation near 1.1; biases alone predict to about 0.90 and a low-rank model to
    about 0.85, as on MovieLens-1M.

    Parameters
    ----------
    n_users, n_items, n_ratings : int
        Met exactly: every user has at least one rating and no pair occurs twice. MovieLens-10M has the shape
        (69_878, 10_677, 10_000_054), MovieLens-20M (138_493, 26_744, 20_000_263).
    rank : int
        Rank of the part of the ratings that biases do not explain.
    rating_range : (float, float)
    step : float
        Ratings are ``low``, ``low + step``, ... up to ``high``.
    bias_spread, taste_spread, noise : float
        Standard deviations of the item biases, of the low-rank part and of what nothing explains, in quarters
        of the range, >= 0.
    n_features : int
        Number of public features of the items, 0 or 1 like genres; they are ``domain.item_features``.
    explained : float
        Part of the variance of the item biases and factors that these features explain, in [0, 1].
    seed : int
    """
    _check_sizes(n_users, n_items, rank)
    for name, spread in (("bias_spread", bias_spread), ("taste_spread", taste_spread), ("noise", noise)):
        if not (is_number(spread) and 0 <= spread < math.inf):
            raise InputError(f"{name} must be a number >= 0, not {spread!r}.")
    features = _features(n_items, n_features, seed) if n_features else None
    if not (is_number(explained) and 0 <= explained <= 1):
        raise InputError(f"explained must be from 0 to 1, not {explained!r}.")
    domain = Domain(tuple(_names("i", n_items)), rating_range=rating_range, item_features=features)
    most = min(n_items, domain.max_ratings_per_user)
    if not n_users <= n_ratings <= n_users * most:
        raise InputError(f"n_ratings must be from {n_users:,} (n_users) to {n_users * most:,} here.")
    if not 0 < step <= domain.high - domain.low:
        raise InputError(
            f"step must be positive and no more than the width of the rating range, not {step!r}."
        )
    rng = np.random.default_rng(check_seed(seed))
    popularity = _zipf(n_items, rng)
    activity = _activity(n_users, most, n_ratings, rng)
    rows, columns = _distinct_items(activity, popularity, rng)
    taste = _Taste(bias_spread, taste_spread, noise, rank, features, explained, seed)
    scores = _scores(rows, columns, n_users, np.log(popularity * n_items), taste, rng)
    # one unit of score is a quarter of the range, so that 1 to 5 keeps its scale
    unit = (domain.high - domain.low) / 4
    top = domain.low + math.floor((domain.high - domain.low) / step + 1e-9) * step
    for start in range(0, n_ratings, _CELLS):
        part = scores[start : start + _CELLS]
        part *= unit
        part += domain.low + 2.66 * unit
        part -= domain.low
        part /= step
        np.rint(part, out=part)
        part *= step
        part += domain.low
        np.clip(part, domain.low, top, out=part)
    users = pa.array(_names("u", n_users), pa.large_string())
    return Ratings(domain, *build(domain, Encoded(rows, users, users), columns, scores))


def _generated(
    rows: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    user_factors: np.ndarray,
    item_factors: np.ndarray,
    bound: float,
) -> Generated:
    domain = Domain(tuple(_names("i", len(item_factors))), rating_range=(-bound, bound))
    users = pa.array(_names("u", len(user_factors)), pa.large_string())
    ratings = Ratings(
        domain, *build(domain, Encoded(rows, users, users), columns, np.clip(values, -bound, bound))
    )
    present = np.unique(rows)
    return Generated(ratings, user_factors[present], item_factors)


def _names(letter: str, count: int) -> list[str]:
    width = max(len(str(count)), 6 if letter == "u" else 5)
    return [f"{letter}{number:0{width}d}" for number in range(1, count + 1)]


def _check_sizes(*sizes: int) -> None:
    for size in sizes:
        if isinstance(size, (bool, np.bool_)) or not isinstance(size, (int, np.integer)) or size < 1:
            raise InputError(
                f"Numbers of users and items and the rank must be positive integers, not {size!r}."
            )


def _bernoulli_cells(
    n_users: int, n_items: int, probability: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each cell of the matrix that is kept with the given probability."""
    rows, columns = [], []
    block = max(1, _CELLS // n_items)
    for start in range(0, n_users, block):
        seen = rng.random((min(block, n_users - start), n_items), dtype=np.float32) < probability
        row, column = np.nonzero(seen)
        rows.append((row + start).astype(np.int32))
        columns.append(column.astype(np.int32))
    return np.concatenate(rows), np.concatenate(columns)


def _products(
    user_factors: np.ndarray, item_factors: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Inner products of the factors at the given cells, in blocks."""
    values = np.empty(len(rows), dtype=user_factors.dtype)
    for start in range(0, len(rows), _CELLS):
        part = slice(start, start + _CELLS)
        np.einsum("ij,ij->i", user_factors[rows[part]], item_factors[columns[part]], out=values[part])
    return values


def _zipf(n_items: int, rng: np.random.Generator) -> np.ndarray:
    """Popularity of each item (adds up to 1): Zipf's law, flat at the head and cut off in the tail."""
    place = np.arange(n_items) / n_items
    weight = np.exp(-3 * place) / (place + 0.01)
    return rng.permutation(weight / weight.sum())


def _activity(n_users: int, most: int, n_ratings: int, rng: np.random.Generator) -> np.ndarray:
    """Number of ratings of each user, adding up to n_ratings: a least number and a log-normal one on top."""
    least = max(1, min(20, n_ratings // (8 * n_users)))
    drawn = np.exp(1.1 * rng.standard_normal(n_users))
    low, high = 0.0, n_ratings / drawn.min()
    for _ in range(100):  # scale so that the clipped numbers add up
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
    """Items of each user, drawn one after the other without repetition, in proportion to popularity.

    To draw anew what came twice is the same law. Users who want much of the catalogue, or who would need many
    rounds, are drawn outright instead: the largest of popularity plus Gumbel noise.
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
    """Features of 0 and 1, some common and most rare, like genres; shape (n_items, n_features)."""
    _check_sizes(n_features)
    common = 0.4 * np.arange(1, n_features + 1) ** -0.7
    drawn = np.random.default_rng([1, check_seed(seed)]).random((n_items, n_features))
    return (drawn < common).astype(np.float64)


@dataclass(frozen=True, eq=False)
class _Taste:
    """What the scores of `realistic` are made of; see there."""

    bias_spread: float
    taste_spread: float
    noise: float
    rank: int
    features: np.ndarray | None
    explained: float
    seed: int

    def of_items(self, own: np.ndarray) -> np.ndarray:
        """Standard normal columns, a part of their variance explained by the features."""
        if self.features is None or not self.explained:
            return own
        rng = np.random.default_rng([2, self.seed, own.shape[1]])
        common = (self.features - self.features.mean(axis=0)) @ rng.standard_normal(
            (self.features.shape[1], own.shape[1])
        )
        common /= np.maximum(common.std(axis=0), 1e-12)
        return math.sqrt(self.explained) * common + math.sqrt(1 - self.explained) * own


def _scores(
    rows: np.ndarray,
    columns: np.ndarray,
    n_users: int,
    log_popularity: np.ndarray,
    taste: _Taste,
    rng: np.random.Generator,
) -> np.ndarray:
    """Biases, low rank and noise (float32), in units of a five-point scale and relative to its centre."""
    n_items, rank = len(log_popularity), taste.rank
    user_bias = (0.42 * rng.standard_normal(n_users)).astype(np.float32)
    item_bias = taste.of_items(rng.standard_normal((n_items, 1)))[:, 0]
    item_bias = taste.bias_spread * item_bias + 0.13 * (log_popularity - 2.0)
    # a falling spectrum, as in real data
    spectrum = 1.0 / np.sqrt(np.arange(1, rank + 1))
    spectrum *= taste.taste_spread / math.sqrt(float((spectrum**2).sum()))
    user_factors = rng.standard_normal((n_users, rank), dtype=np.float32)
    item_factors = (taste.of_items(rng.standard_normal((n_items, rank))) * spectrum).astype(np.float32)
    scores = _products(user_factors, item_factors, rows, columns)
    for start in range(0, len(rows), _CELLS):
        part = slice(start, start + _CELLS)
        scores[part] += user_bias[rows[part]]
        scores[part] += item_bias[columns[part]].astype(np.float32)
        scores[part] += taste.noise * rng.standard_normal(len(rows[part]), dtype=np.float32)
    return scores
