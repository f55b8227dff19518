"""Small data and runs for the tests of the Frank-Wolfe paper's algorithms."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hushrec.data import Domain, Ratings
from hushrec.models import Estimator, Model
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import NoiseCall, RecordingNoise, SeededNoise

N_ITEMS = 12


def small(seed: int = 0, n_users: int = 30, rank: int = 2) -> Ratings:
    """Ratings in (-1, 1) of a low-rank matrix, from 0 to 9 for each user."""
    rng = np.random.default_rng(seed)
    matrix = np.tanh(rng.standard_normal((n_users, rank)) @ rng.standard_normal((rank, N_ITEMS)))
    cells = [
        (user, item)
        for user in range(n_users)
        for item in rng.choice(N_ITEMS, int(rng.integers(0, 10)), replace=False)
    ]
    users, items = zip(*cells)
    domain = Domain(items=range(N_ITEMS), rating_range=(-1, 1))
    return Ratings.from_any((users, items, [matrix[cell] for cell in cells]), domain)


def exact(estimator: Estimator, ratings: Ratings, seed: int = 0) -> Model:
    """Trained without privacy."""
    return estimator.fit(ratings, Accountant(Budget(math.inf, 1e-6)), seed=seed)


def recorded(
    estimator: Estimator, ratings: Ratings, epsilon: float = 50.0, relation: str = "add-remove"
) -> tuple[Model, list[NoiseCall]]:
    """Trained with noise, and every release of it."""
    noise = RecordingNoise(SeededNoise(7))
    accountant = Accountant(Budget(epsilon, 1e-6, relation=relation), noise=noise)
    return estimator.fit(ratings, accountant, seed=3), noise.calls


def rows_of(ratings: Ratings, center: str) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """Yield every user's items, ratings less their level, and level: a slow twin of the centring."""
    matrix = ratings.matrix
    for user in range(ratings.n_users):
        own = slice(matrix.indptr[user], matrix.indptr[user + 1])
        values = matrix.data[own].astype(np.float64)
        level = values.mean() if center == "user" and len(values) else 0.0
        yield matrix.indices[own], values - level, level


def completed(model: Model, ratings: Ratings) -> np.ndarray:
    """The unclipped completed matrix, with the users' levels."""
    state = model.fold_in(ratings)
    scores = state.offset[:, None] + state.factors @ model.item_factors.T
    return scores + float(model.arrays["center"]) + model.item_bias
