"""Frank-Wolfe against dense twins of Algorithms 1 and 3, its calibration, and the user's replay."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import hushrec
from hushrec.data import Domain, Ratings
from hushrec.kernels.packed import unpacked
from hushrec.papers.frank_wolfe import FrankWolfe, PrivateFrankWolfe, frank_wolfe
from hushrec.privacy import Accountant, Budget
from hushrec.training.named import train
from tests.papers.completion import N_ITEMS, completed, exact, recorded, rows_of, small


def clip(row: np.ndarray, bound: float) -> np.ndarray:
    norm = np.linalg.norm(row)
    return row * min(1.0, bound / norm) if norm else row


def slow_private_twin(ratings, center: str, matrices, noise_sd: float, k: float, bound: float) -> np.ndarray:
    """Algorithm 1, dense, T releases for T updates: what every user holds after the last one."""
    targets, seen, levels = [], [], []
    for items, values, level in rows_of(ratings, center):
        targets.append(np.zeros(N_ITEMS))
        targets[-1][items] = clip(values, bound)
        seen.append(np.isin(np.arange(N_ITEMS), items))
        levels.append(level)
    iterate = np.zeros((len(targets), N_ITEMS))
    steps = len(matrices)
    norm_of_noise = noise_sd * (math.sqrt(2 * N_ITEMS) + math.sqrt(2 * math.log(2 / 0.1)))
    for matrix in matrices:
        values, vectors = np.linalg.eigh(matrix)
        vector, value = vectors[:, -1], math.sqrt(max(values[-1], 0) + norm_of_noise)
        for i, (target, mine) in enumerate(zip(targets, seen)):
            residual = np.where(mine, iterate[i] - target, 0)
            moved = (1 - 1 / steps) * iterate[i] - k / steps * (residual @ vector) / value * vector
            iterate[i] = moved * min(1.0, bound / max(np.linalg.norm(moved[mine]), 1e-300))
    return iterate + np.array(levels)[:, None]


@pytest.mark.usefixtures("plain_sums")
@pytest.mark.parametrize("center", ["user", "middle"])
def test_private_steps_match_a_dense_twin_of_algorithm_1(center: str) -> None:
    ratings = small()
    estimator = PrivateFrankWolfe(nuclear_norm=40.0, iterations=5, row_clip=1.5, center=center)
    model, calls = recorded(estimator, ratings)
    matrices = [unpacked(call.output) for call in calls]
    sd = estimator.plan(Budget(50.0, 1e-6), ratings.domain).releases[0].noise_sd
    np.testing.assert_allclose(
        completed(model, ratings),
        slow_private_twin(ratings, center, matrices, sd, 40.0, 1.5),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("eigenvector", ["covariance", "oja", "power"])
@pytest.mark.parametrize("center", ["user", "biases", "middle"])
def test_the_replay_of_every_training_user_is_what_training_computed(
    eigenvector: str, center: str, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    kept = []

    class Kept(frank_wolfe.Iterates):
        def __init__(self, *arguments) -> None:
            super().__init__(*arguments)
            kept.append(self)

    monkeypatch.setattr(frank_wolfe, "Iterates", Kept)
    ratings = small(4)
    estimator = PrivateFrankWolfe.of(
        nuclear_norm=40.0, iterations=4, eigenvector=eigenvector, center=center, max_ratings_per_user=5
    )
    model, _ = recorded(estimator, ratings)
    model.save(tmp_path / "model")
    replayed = hushrec.load(tmp_path / "model").fold_in(ratings)
    assert replayed.factors.tobytes() == kept[0].coefficients.tobytes()
    assert np.abs(replayed.factors).max() > 0.1
    one = model.fold_in(ratings.rows([7])).factors[0]  # they alone, without anybody else's rows
    assert one.tobytes() == kept[0].coefficients[7].tobytes()


def test_plain_frank_wolfe_matches_a_dense_twin_of_algorithm_3() -> None:
    ratings = small()
    model = exact(FrankWolfe(nuclear_norm=25.0, iterations=6, center="middle"), ratings)
    target, seen = ratings.matrix.toarray().astype(np.float64), ratings.matrix.toarray() != 0
    iterate = np.zeros_like(target)
    for _ in range(6):
        left, _, right = np.linalg.svd(np.where(seen, iterate - target, 0))
        iterate = (1 - 1 / 6) * iterate - 25.0 / 6 * np.outer(left[:, 0], right[0])
    np.testing.assert_allclose(completed(model, ratings), iterate, rtol=1e-5, atol=1e-6)


def test_the_line_search_matches_a_dense_twin() -> None:
    """Steps that are best among all, towards a matrix of that nuclear norm in rating units."""
    ratings = small()
    estimator = FrankWolfe(nuclear_norm=12.0, iterations=5, line_search=True, center="middle")
    target, seen = ratings.matrix.toarray().astype(np.float64), ratings.matrix.toarray() != 0
    iterate, k = np.zeros_like(target), 12.0 * ratings.domain.half_width
    for _ in range(5):
        residuals = np.where(seen, iterate - target, 0)
        left, _, right = np.linalg.svd(residuals)
        toward = -k * np.outer(left[:, 0], right[0]) - iterate
        step = -(residuals * toward).sum() / np.square(toward[seen]).sum()
        assert 0 < step < 1
        iterate += step * toward
    np.testing.assert_allclose(completed(exact(estimator, ratings), ratings), iterate, rtol=1e-5, atol=1e-6)


def test_a_residual_can_come_near_2_l() -> None:
    """Two large steps along chosen vectors turn a row round: without a clip 4 L^2 cannot be lowered."""
    angle = lambda degrees: np.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), 0.0])  # noqa: E731
    row = sp.csr_array((angle(0), np.arange(3), np.array([0, 3])), shape=(1, 3))
    users = frank_wolfe.Iterates(row, 1.0)
    for vector in (angle(40), angle(25)):
        users.advance(users.residuals(), vector, 0.5, 1e9)
    norm = np.linalg.norm(users.residuals().toarray())
    assert 1.9 < norm <= 2.0


def test_noise_of_a_matrix_is_symmetrised() -> None:
    """Half the variance off the diagonal, and a symmetric matrix to decompose (E2)."""
    estimator = PrivateFrankWolfe(nuclear_norm=9.0, iterations=1)
    _, (call,) = recorded(estimator, small(), 1.0)
    sd = estimator.plan(Budget(1.0, 1e-6), small().domain).releases[0].noise_sd
    amounts = unpacked(call.amount)
    np.testing.assert_allclose(np.diag(amounts), sd)
    np.testing.assert_allclose(amounts[~np.eye(N_ITEMS, dtype=bool)], sd / math.sqrt(2))


@pytest.mark.parametrize("model", ["private-frank-wolfe", "private-svd", "private-projected-gradient"])
@pytest.mark.parametrize("declared", [True, False])
def test_a_level_is_read_in_units_of_the_number_of_users(model: str, declared: bool) -> None:
    """Ratings of 4 and 5 alone: with enough budget the released level is near their mean, not the middle."""
    rng = np.random.default_rng(0)
    users, items = np.divmod(rng.choice(3000 * 20, 30_000, replace=False), 20)
    rows = (users, items, rng.integers(4, 6, 30_000))
    ratings = Ratings.from_any(rows, Domain(range(20), rating_range=(1, 5)))
    budget, n_users = Budget(20.0, 1e-6), 3000 if declared else None
    settings = {"center": "biases", "row_clip": 2.0}
    settings |= {"nuclear_norm": 300.0} if model != "private-svd" else {"rank": 3}
    settings |= {} if model == "private-svd" else {"iterations": 2}
    trained = train(model, ratings, Accountant(budget), n_users=n_users, settings=settings)
    assert trained.arrays["center"] == pytest.approx(4.5, abs=0.1)
    fitted = replace(trained.estimator, planned_for=None, n_users=n_users).fit(ratings, Accountant(budget))
    assert fitted.arrays["center"] == pytest.approx(4.5, abs=0.1)
    counted = ["number of users" in release.label for release in fitted.privacy.releases]
    assert sum(counted) == (0 if declared else 1)
