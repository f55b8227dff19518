"""The item x item matrix of private EigenRec: its release, its parts, and the regressions."""

import math

import numpy as np
import pytest

from hushrec.data import Ratings, realistic
from hushrec.kernels.packed import from_rectangle
from hushrec.models import PrivateEigenRec
from hushrec.models.private_eigenrec.items import ItemStatistics
from hushrec.models.private_eigenrec.pairs import denoise
from hushrec.models.private_eigenrec.users import LikingUsers
from hushrec.privacy import Accountant, Budget, Season, SeasonAccountant
from hushrec.privacy.testing import SeededNoise
from tests.models.test_private_eigenrec import likes_of_groups
from tests.models.twins import run
from tests.opening import opened


def rows_apart(likes: np.ndarray, scale: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Users' rows by the definition: at norm 1, less their part along popularity, and again at norm 1."""
    found = []
    for row in likes * scale:
        unit = row / max(np.linalg.norm(row), 1e-300)
        along = unit @ first / (first @ first)
        apart = unit - along * first
        found.append(apart / max(np.sqrt(1 - along**2 * (first @ first)), 0.5) if row.any() else 0 * row)
    return np.array(found)


def scaled(ratings: Ratings, seed: int = 0) -> tuple[LikingUsers, np.ndarray, np.ndarray]:
    """Users with scales and a popularity vector, two of the items not learned."""
    rng, n_items = np.random.default_rng(seed), ratings.n_items
    scale, first = rng.uniform(0.5, 2.0, n_items), np.rint(rng.uniform(1, 20, n_items)) / 64
    scale[[2, 7]] = first[[2, 7]] = 0.0
    users = LikingUsers(ratings)
    users.scale(scale, first)
    return users, scale, first


def test_the_matrix_is_that_of_the_users_rows() -> None:
    ratings = likes_of_groups(80, 16, 2, 3)
    users, scale, first = scaled(ratings)
    bounded = users.item_matrix()
    rows = rows_apart(ratings.matrix.toarray() > 0, scale, first)
    expected = (rows.T @ rows)[np.ix_(scale > 0, scale > 0)]
    found = from_rectangle(opened(bounded).ravel(), len(expected), np.float64)
    np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(expected).max())
    steps = opened(bounded) / float(bounded.step)
    assert (steps == np.rint(steps)).all() and math.frexp(float(bounded.step))[0] == 0.5


def with_noise(signal: np.ndarray, noise_sd: float, seed: int) -> np.ndarray:
    lower = np.tril(np.random.default_rng(seed).standard_normal(signal.shape)) * noise_sd
    return signal + lower + np.tril(lower, -1).T


def test_pairs_are_no_taste_dimensions() -> None:
    rng = np.random.default_rng(0)
    pairs, tastes = np.zeros((300, 300)), rng.standard_normal((300, 3))
    for number in range(0, 120, 2):
        pairs[number, number + 1] = pairs[number + 1, number] = rng.uniform(10, 20)
    taste = tastes @ tastes.T
    for signal, certain in ((pairs, 0), (0.5 * taste, 3), (pairs + taste, 3)):
        found = denoise(with_noise(signal, 2.0, 1), 2.0, 40)
        assert found.certain == certain
        assert not certain or certain <= found.standing <= certain + 1


def test_it_matches_a_slow_twin() -> None:
    ratings = likes_of_groups(400, 16, 4, 3)
    model, noise, sds = run(PrivateEigenRec.of(rank=2, pairs=True, weights_share=0.3, support=41.5), ratings)
    likes, sd = 1.0 * (ratings.matrix.toarray() > 0), sds["item matrix"] / math.sqrt(2)
    weights = (likes / np.sqrt(likes.sum(axis=1, keepdims=True))).sum(axis=0) + noise["item weights"]
    items = ItemStatistics.of(model.estimator.tuning, 400, weights, sds["item weights"], 2)
    learned = np.flatnonzero(weights > 41.5 * sds["item weights"])
    scale, first, edge = items.scale[learned], items.first[learned], 2 * sd * math.sqrt(len(learned))
    rows = rows_apart(likes[:, learned], scale, first)
    matrix = rows.T @ rows + from_rectangle(noise["item matrix"].ravel(), len(rows.T), np.float64)
    rest = matrix - np.diag(np.diag(matrix))
    values, columns = (part[..., -2:] for part in np.linalg.eigh(rest))
    low_rank = (columns * np.sqrt(np.maximum(values**2 - edge**2, 0) * (values > edge))) @ columns.T
    rest = np.sign(rest - low_rank) * np.maximum(np.abs(rest - low_rank) - 2.5 * sd, 0) + low_rank
    np.fill_diagonal(rest, np.maximum(np.diag(matrix), 0))
    rest += 0.1 * np.trace(matrix) * np.outer(first, first) / (first @ first)
    rest += np.eye(len(rest)) * (1.0 * np.trace(rest) / len(rest) - min(np.linalg.eigvalsh(rest)[0], 0))
    precision, expected = np.linalg.inv(rest), np.zeros(likes.shape)
    regressions = np.eye(len(rest)) - precision / np.diag(precision)
    at_norm_one = likes / np.linalg.norm(likes, axis=1, keepdims=True)
    expected[:, learned] = at_norm_one[:, learned] * scale @ regressions / scale
    scores = model.predict(ratings, ratings.domain.items)
    np.testing.assert_allclose(scores, expected, atol=0.03 * np.abs(expected).max())


@pytest.mark.parametrize("pairs", [False, True])
def test_without_noise_it_works_too(pairs: bool) -> None:
    ratings = likes_of_groups(200, 30, 3, 1)
    for given in (ratings, ratings.rows(np.zeros(200, dtype=bool), keyed=True)):
        estimator = PrivateEigenRec(rank=3, iterations=1, pairs=pairs, n_users=200)
        model = estimator.fit(given, Accountant(Budget(math.inf, 1e-6)))
        assert all(np.isfinite(array).all() for array in model.arrays.values())
        assert len(model.recommend({"i0": 1.0}, n=5)) == 5


def test_a_later_week_keeps_what_the_first_one_released() -> None:
    """The second week has about the weight of the first: both count."""
    ratings = realistic(3_000, 40, 60_000, seed=0)
    accountant = SeasonAccountant(Season(Budget(5, 1e-6), first=0.34, decay=0.5), noise=SeededNoise(0))
    first = PrivateEigenRec(rank=3, pairs=True, n_users=3_000).fit(ratings, accountant)
    following = SeasonAccountant.following(first.privacy, noise=SeededNoise(1))
    second = first.continue_training(ratings, following)
    assert np.corrcoef(first.state["pairs"], second.state["pairs"])[0, 1] > 0.9
    assert second.state["pairs_precision"] > 1.5 * first.state["pairs_precision"]
