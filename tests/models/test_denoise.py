"""Combined rounds of sums, against a matrix of users' rows times the probes."""

import numpy as np
import pytest

from hushrec.models.private_eigenrec.denoise import Halves, Sums, Taste

N_USERS, ITEMS, RANK = 500.0, 30, 3
RNG = np.random.default_rng(7)
ROWS = RNG.normal(size=(80, ITEMS))
MATRIX = ROWS.T @ ROWS
PROBES = RNG.normal(size=(3, ITEMS, RANK)) * np.array([1.0, 2.0, 0.5])[:, None, None]


def exact(probe: np.ndarray, noise_sd: float) -> Sums:
    """Return a round's release without noise: the matrix times its probe, over the mean length."""
    length = np.sqrt(np.trace(probe.T @ MATRIX @ probe) / N_USERS)
    return Sums(probe, MATRIX @ probe / length, noise_sd)


def test_all_rounds_say_what_each_says() -> None:
    """The probe is in the span of the last one; where rounds agree, the sums are the matrix times it."""
    found = Sums.of_all([exact(probe, sd) for probe, sd in zip(PROBES, (0.1, 0.2, 0.05))], N_USERS)
    span = np.linalg.qr(PROBES[2])[0]
    assert found.probe == pytest.approx(span @ (span.T @ found.probe), abs=1e-9)
    same = Sums.of_all([exact(PROBES[2] * size, 0.1) for size in (1.0, 3.0, 0.2)], N_USERS)
    assert MATRIX @ same.probe == pytest.approx(same.sums * same.lengths / N_USERS, rel=1e-9)


def halves(n_users: int, strengths: np.ndarray, noise_sd: float, rng: np.random.Generator) -> Halves:
    """Products of halves with tastes of these strengths, and chance of strength 1."""
    own = rng.standard_normal((n_users, len(strengths))) * strengths
    one, two = (own + rng.standard_normal(own.shape) for _ in range(2))
    one, two = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (one, two))
    sums = [
        each.T @ each / 4 + noise_sd * rng.standard_normal((len(strengths),) * 2)
        for each in (one + two, one - two)
    ]
    return Halves.of(np.concatenate([each[np.tril_indices(len(each))] for each in sums]), noise_sd)


def taste(found: Halves, n_users: int) -> Taste:
    rank, strong = (
        len(found.products),
        np.full(len(found.products), 1e9),
    )  # nothing is owed to a user's own row
    return found.taste(np.eye(rank), strong, np.eye(rank), n_users)


@pytest.mark.parametrize("noise_sd", [0.0, 3.0, 20.0])
def test_a_gain_is_the_root_of_the_reliability_of_the_whole_history(noise_sd: float) -> None:
    """One half explains s^2 / (s^2 + 1) of the other; twice as many likes have that by Spearman and Brown."""
    strengths = np.array([2.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    found = taste(halves(20_000, strengths, noise_sd, np.random.default_rng(1)), 20_000)
    half = strengths**2 / (strengths**2 + 1)
    assert found.gains[:2] == pytest.approx(np.sqrt(2 * half / (1 + half))[:2], abs=0.05)
    assert (found.gains[2:] < 0.25).all()
    assert found.learned == 2 and np.array_equal(np.abs(found.vectors[:, :2]), np.eye(6)[:, :2])


def test_noise_and_chance_are_no_taste() -> None:
    """If halves have nothing in common, few dimensions are learned, with small gains."""
    rng, learned, gains = np.random.default_rng(2), 0, []
    for _ in range(100):
        found = taste(halves(400, np.zeros(8), 5.0, rng), 400)
        learned, gains = learned + found.learned, [*gains, *found.gains]
    assert learned <= 5 and np.mean(gains) < 0.03


def test_what_a_dimension_owes_to_a_users_own_row_is_taken_off() -> None:
    """The leading vectors of rows without taste fit these rows; most of that is not counted."""
    rng, n_users, items, rank = np.random.default_rng(3), 300, 200, 8
    one, two = (rng.standard_normal((n_users, items)) for _ in range(2))
    rows = (one + two) / np.linalg.norm(one + two, axis=1, keepdims=True)
    vectors = np.linalg.svd(rows, full_matrices=False)[2][:rank].T
    factors = rows @ vectors
    sums = rows.T @ (factors / np.linalg.norm(factors, axis=1, keepdims=True))
    vectors, values = Sums(vectors, sums, 0.0).directions()
    ones = [each @ vectors for each in (one, two)]
    ones = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in ones]
    packed = [(ones[0] + sign * ones[1]) / 2 for sign in (1, -1)]
    packed = [(each.T @ each)[np.tril_indices(rank)] for each in packed]
    measured = Halves.of(np.concatenate(packed), 0.0)
    naive = measured.taste(np.eye(rank), np.full(rank, 1e9), np.eye(rank), n_users)
    found = measured.taste(vectors, values, np.eye(rank), n_users)
    assert (naive.gains**2).mean() > 0.6 and (found.gains**2).mean() < 0.3
