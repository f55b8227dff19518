"""Frank-Wolfe against dense twins of Algorithms 1 and 3, its calibration, and the user's replay."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.matrices import jtt18_matrix
from hushrec.algorithms import Billboard
from hushrec.data import Domain, Ratings, split_ratings
from hushrec.errors import InputError
from hushrec.kernels.packed import unpacked
from hushrec.papers.frank_wolfe import (
    CorrectiveFrankWolfe,
    FrankWolfe,
    PrivateFrankWolfe,
    PrivateSVD,
    ProjectedGradient,
    eigensolvers,
    frank_wolfe,
)
from hushrec.papers.mcsherry_mironov import CleansedSVD
from hushrec.privacy import Accountant, Budget
from tests.algorithms.completion import N_ITEMS, completed, exact, recorded, rows_of, small


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


@pytest.mark.usefixtures("plain_sums")
def test_the_first_matrix_is_that_of_the_clipped_rows() -> None:
    """E4: releases start at Y = 0, so that no update uses a zero vector and no release is wasted."""
    ratings = small()
    _, calls = recorded(PrivateFrankWolfe(nuclear_norm=40.0, iterations=3, residual_clip=0.8), ratings)
    expected = np.zeros((N_ITEMS, N_ITEMS))
    for items, values, _ in rows_of(ratings, "user"):
        expected[np.ix_(items, items)] += np.outer(clip(values, 0.8), clip(values, 0.8))
    np.testing.assert_allclose(unpacked(calls[0].value), expected, rtol=1e-5, atol=1e-7)


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
    estimator = PrivateFrankWolfe(
        nuclear_norm=40.0, iterations=4, eigenvector=eigenvector, center=center, max_ratings_per_user=5
    )
    model, _ = recorded(estimator, ratings)
    model.save(tmp_path / "model")
    replayed = Billboard.load(tmp_path / "model").fold_in(ratings)
    assert replayed.factors.tobytes() == kept[0].coefficients.tobytes()
    assert np.abs(replayed.factors).max() > 0.1
    one = model.fold_in(ratings.rows([7])).factors[0]  # she alone, without anybody else's rows
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


def test_line_search_never_gets_worse_and_keeps_the_nuclear_norm() -> None:
    ratings = small()
    target, seen = ratings.matrix.toarray(), ratings.matrix.toarray() != 0
    losses = []
    for iterations in range(1, 8):
        estimator = FrankWolfe(nuclear_norm=12.0, iterations=iterations, line_search=True, center="middle")
        matrix = completed(exact(estimator, ratings), ratings)
        losses.append(np.square(np.where(seen, matrix - target, 0)).sum())
        assert np.linalg.norm(matrix, "nuc") <= 12.0 * (1 + 1e-9)
    assert np.all(np.diff(losses) < 0)


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


@pytest.mark.parametrize("iterations", [5, 20])
def test_the_floor_of_fixed_steps_at_the_true_nuclear_norm(iterations: int) -> None:
    """The iterate is the target times 1 - (1 - 1/T)^T, on a rank-one matrix seen whole."""
    full = jtt18_matrix(200, 10, ratings_per_user=10, seed=0)
    k = float(np.linalg.norm(full.user_factors) * np.linalg.norm(full.item_factors))
    model = exact(FrankWolfe(nuclear_norm=k, iterations=iterations, center="middle"), full.ratings)
    expected = (1 - (1 - 1 / iterations) ** iterations) * full.ratings.matrix.toarray()
    np.testing.assert_allclose(completed(model, full.ratings), expected, atol=1e-5)


def test_sensitivities_of_the_errata() -> None:
    """E1: 4 L^2 is the add-remove value; replace, which the paper defines, needs sqrt(2) more."""
    domain = small().domain
    for relation, factor in (("add-remove", 1.0), ("replace", math.sqrt(2))):
        budget = Budget(1.0, 1e-6, relation=relation)
        published = PrivateFrankWolfe(nuclear_norm=9.0, iterations=7, row_clip=3.0).plan(budget, domain)
        assert [release.sensitivity for release in published.releases] == pytest.approx([36 * factor] * 7)
        assert math.fsum(release.mu**2 for release in published.releases) == pytest.approx(budget.mu**2)
        clipped = PrivateFrankWolfe(
            nuclear_norm=9.0, iterations=3, residual_clip=2.0, residual_clip_decay=0.5
        ).plan(budget, domain)
        sensitivities = [release.sensitivity for release in clipped.releases]
        assert sensitivities == pytest.approx([4 * factor, 1 * factor, 0.25 * factor])


def test_a_residual_can_come_near_2_l() -> None:
    """So 4 L^2 cannot be lowered without a clip: two large steps along chosen vectors turn a row round."""
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


@pytest.mark.parametrize(
    "schedule, power, expected",
    [
        ("uniform", 1.0, [0.25] * 4),
        ("polynomial", 1.0, [0.1, 0.2, 0.3, 0.4]),
        ("polynomial", -1.0, [12 / 25, 6 / 25, 4 / 25, 3 / 25]),
        ("open-ended", 1.0, [6 / math.pi**2 / t**2 for t in (1, 2, 3, 4)]),
    ],
)
def test_schedules(schedule: str, power: float, expected: list[float]) -> None:
    budget = Budget(1.0, 1e-6)
    estimator = PrivateFrankWolfe(nuclear_norm=1.0, iterations=4, schedule=schedule, schedule_power=power)
    releases = estimator.plan(budget, small().domain).releases
    assert [release.mu**2 / budget.mu**2 for release in releases] == pytest.approx(expected)


def test_the_bound_on_the_noise_of_an_eigenvalue_holds() -> None:
    """E5: the norm of symmetrised noise is below its bound about as often as promised, and not far below."""
    from hushrec.papers.frank_wolfe.eigensolvers import _norm_of_noise

    rng = np.random.default_rng(0)
    order, fails, norms = 60, 0, []
    for _ in range(300):
        noise = rng.standard_normal((order, order))
        norms.append(np.linalg.eigvalsh((noise + noise.T) / 2)[-1])
        fails += norms[-1] > _norm_of_noise(1.0, order, 0.1)
    assert fails <= 30
    assert _norm_of_noise(1.0, order, 0.1) < 1.4 * np.mean(norms)


def test_private_frank_wolfe_completes_the_synthetic_matrix() -> None:
    full = jtt18_matrix(20_000, 60, ratings_per_user=20, seed=0)
    train, test = split_ratings(full.ratings, (0.95, 0.05), seed=0)
    k = float(np.linalg.norm(full.user_factors) * np.linalg.norm(full.item_factors))
    trivial = np.sqrt(np.mean(test.matrix.data**2))

    def error(estimator, epsilon: float = 5.0) -> float:
        model = estimator.fit(train, Accountant(Budget(epsilon, 1e-6)))
        return np.sqrt(np.mean((model.predict_pairs(train, test) - test.matrix.data) ** 2)) / trivial

    steps = {"iterations": 10, "center": "middle", "residual_clip": 2.0, "max_ratings_per_user": 20}
    damped = PrivateFrankWolfe(nuclear_norm=8 * k, residual_clip_decay=0.8, step_damping=1.0, **steps)
    assert error(damped) < 0.25
    assert 0.33 < error(PrivateFrankWolfe(nuclear_norm=k, **steps)) < 0.55  # the floor of fixed steps
    refits = CorrectiveFrankWolfe(iterations=1, block=1, regularization=0.01, center="middle")
    assert error(refits) < 0.1


def test_a_finite_budget_is_refused_by_the_plain_algorithm() -> None:
    with pytest.raises(InputError, match="epsilon=inf"):
        FrankWolfe(nuclear_norm=1.0).fit(small(), Accountant(Budget(1.0, 1e-6)))


@pytest.mark.parametrize(
    "settings",
    [
        {"nuclear_norm": 0.0},
        {"nuclear_norm": 1.0, "iterations": 0},
        {"nuclear_norm": 1.0, "residual_clip": -1.0},
        {"nuclear_norm": 1.0, "residual_clip_decay": 1.5},
        {"nuclear_norm": 1.0, "eigenvector": "svd"},
        {"nuclear_norm": 1.0, "schedule": "harmonic"},
        {"nuclear_norm": 1.0, "center": "averages"},
        {"nuclear_norm": 1.0, "bias_share": 1.0},
    ],
)
def test_bad_settings_are_refused(settings: dict) -> None:
    with pytest.raises(InputError):
        PrivateFrankWolfe(**settings)


@pytest.mark.parametrize(
    ("value", "noise", "damping"), [(30.0, 2.0, 0.5), (-7.0, 2.0, 0.0), (-7.0, 0.0, 0.0)]
)
def test_a_singular_value_is_damped_by_its_noise_and_by_the_step(value, noise, damping) -> None:
    """The root of the released square, of 0 where noise made it negative, and of what may be added to it."""
    domain, (most, iterations) = small().domain, (3, 4)
    model = PrivateFrankWolfe(
        nuclear_norm=9.0, iterations=iterations, max_ratings_per_user=most, step_damping=damping
    )
    found = eigensolvers.Eigenpairs(np.zeros((N_ITEMS, 1)), np.array([value]), noise)
    longest = 9.0 * domain.half_width / iterations * most / N_ITEMS
    square = max(value, 0.0) + noise + damping * longest**2
    wanted = math.sqrt(square) if square else 1e-12
    assert model._singular_value(found, domain) == pytest.approx(wanted, rel=1e-9)
    many = PrivateFrankWolfe(nuclear_norm=9.0, iterations=iterations, max_ratings_per_user=9 * N_ITEMS,
                             step_damping=damping)  # fmt: skip
    square += damping * (9.0 * domain.half_width / iterations) ** 2 * (1 - (most / N_ITEMS) ** 2)
    wanted = math.sqrt(square) if square else 1e-12
    assert many._singular_value(found, domain) == pytest.approx(wanted, rel=1e-9)


def test_a_step_of_the_line_search_is_none_or_the_whole_way_at_the_ends() -> None:
    """Where the best one would be back, or beyond; within, it is that of least squares."""
    rng = np.random.default_rng(3)
    users = frank_wolfe.Iterates(sp.csr_array(rng.normal(size=(6, 4))), math.inf)
    residuals, vector = users.residuals(), np.array([0.5, -0.5, 0.5, 0.5])
    toward = np.outer(residuals.toarray() @ vector, vector)  # a step of 1 goes to -ratio times this
    best = (residuals.toarray() * toward).sum() / (toward**2).sum()
    for ratio, wanted in ((0.1 * best, 1.0), (4 * best, 0.25), (-best, 0.0)):
        assert users.best_step(residuals, vector, ratio) == pytest.approx(wanted)
    assert users.best_step(residuals, 0 * vector, 1.0) == 0.0


def test_ratings_without_residuals_leave_a_model() -> None:
    """Nothing is divided by a singular value of 0."""
    ratings = Ratings.from_any(([0, 0, 1], ["a", "b", "a"], [3.0] * 3), Domain(["a", "b"], (1, 5)))
    model = exact(FrankWolfe(nuclear_norm=5.0, iterations=2, center="middle"), ratings)
    assert completed(model, ratings) == pytest.approx(np.full((2, 2), 3.0))


def test_averages_of_items_that_nobody_rated_are_nothing() -> None:
    """And of the others they are means of what users' ratings are beside their own means."""
    cells = ([0, 0, 1, 1, 1], ["a", "b", "a", "b", "d"], [5.0, 2.0, 4.0, 3.0, 2.0])
    ratings = Ratings.from_any(cells, Domain(list("abcd"), (1, 5)))
    model = exact(FrankWolfe(nuclear_norm=1e-9, iterations=1), ratings)
    averages = [(1.5 + 1.0) / 2, (-1.5 + 0.0) / 2, 0.0, -1.0]
    assert model.item_bias == pytest.approx(averages)
    assert np.isfinite(model.predict({"a": 5.0}, list("abcd"))).all()


@pytest.mark.parametrize("name", ["svd", "svd, ridge", "corrective", "projected", "cleansed"])
def test_users_are_served_in_float64(name: str) -> None:
    """To the last digits, by dense algebra: what is released is not rounded on its way to a user."""
    rng, ratings = np.random.default_rng(9), small(2)
    basis = np.linalg.qr(rng.normal(size=(N_ITEMS, 2)))[0]
    arrays = {
        "sampling_seed": np.int64(0), "center": np.float64(0.1), "item_bias": rng.normal(size=N_ITEMS) / 3,
        "item_factors": basis, "directions": basis[None], "gains": np.array([[0.7, 0.3]]),
    }  # fmt: skip
    model = {
        "svd": PrivateSVD(scale="local", center="middle", row_clip=100.0),
        "svd, ridge": PrivateSVD(center="middle", regularization=0.6),
        "corrective": CorrectiveFrankWolfe(center="middle", regularization=0.6),
        "projected": ProjectedGradient(nuclear_norm=3.0, center="middle", step_size=0.5),
        "cleansed": CleansedSVD(residual_clamp=0.3, user_shrinkage=2.0),
    }[name]
    found = model.fold_in(arrays, ratings)
    for user, (items, values, _) in enumerate(rows_of(ratings, "middle")):
        row = np.zeros(N_ITEMS)
        row[items] = values - 0.1 - arrays["item_bias"][items]
        own = basis[items]
        if name == "svd":
            expected = N_ITEMS / max(len(items), 1) * row @ basis
        elif name == "projected":
            expected = 0.5 * row @ (basis * [0.7, 0.3])
        elif name == "cleansed":
            offset = row.sum() / (len(items) + 2.0)
            left = np.clip(row[items] - offset, -0.3, 0.3)
            expected = left @ np.linalg.pinv(basis).T[items]
            assert found.offset[user] == pytest.approx(offset, rel=1e-12, abs=1e-15)
        else:
            expected = np.linalg.solve(own.T @ own + 0.6 / N_ITEMS * np.eye(2), own.T @ row[items])
        assert found.factors[user] == pytest.approx(expected, rel=1e-11, abs=1e-13)
