"""Rounds of sums put together, against what the sums are of: a matrix of users' rows times the probes."""

import numpy as np
import pytest

from hushrec.algorithms.likes_taste import Sums

N_USERS, ITEMS, RANK = 500.0, 30, 3
RNG = np.random.default_rng(7)
ROWS = RNG.normal(size=(80, ITEMS))
MATRIX = ROWS.T @ ROWS
PROBES = RNG.normal(size=(3, ITEMS, RANK)) * np.array([1.0, 2.0, 0.5])[:, None, None]


def exact(probe: np.ndarray, noise_sd: float) -> Sums:
    """What a round would release without noise: the matrix times its probe, over the mean length."""
    length = np.sqrt(np.trace(probe.T @ MATRIX @ probe) / N_USERS)
    return Sums(probe, MATRIX @ probe / length, noise_sd)


def test_all_rounds_say_what_each_says() -> None:
    """The probe is in the span of the last one; where rounds agree, the sums are the matrix times it."""
    found = Sums.of_all([exact(probe, sd) for probe, sd in zip(PROBES, (0.1, 0.2, 0.05))], N_USERS)
    span = np.linalg.qr(PROBES[2])[0]
    assert found.probe == pytest.approx(span @ (span.T @ found.probe), abs=1e-9)
    same = Sums.of_all([exact(PROBES[2] * size, 0.1) for size in (1.0, 3.0, 0.2)], N_USERS)
    assert MATRIX @ same.probe == pytest.approx(same.sums * same.lengths / N_USERS, rel=1e-9)


def test_rounds_count_by_their_precision() -> None:
    """A round's noise, per unit of what it measures: two alike have half the variance, a better one more."""
    one = exact(PROBES[0], 0.1)

    def precision(sums: Sums) -> float:
        return float((sums.sums**2).sum() / sums.noise_sd**2)

    assert precision(Sums.of_all([one], N_USERS)) == pytest.approx(precision(one))
    assert precision(Sums.of_all([one, one], N_USERS)) == pytest.approx(2 * precision(one))
    better = one._replace(noise_sd=0.05)
    assert precision(Sums.of_all([one, better], N_USERS)) == pytest.approx(5 * precision(one))
    # two rounds that differ by noise meet where their precisions say
    moved = one._replace(sums=1.1 * one.sums), better
    between = Sums.of_all(list(moved), N_USERS)
    ratio = np.linalg.norm(between.sums) * between.lengths / np.linalg.norm(MATRIX @ between.probe) / N_USERS
    assert 1.0 < ratio < 1.06


def test_what_tells_nothing_does_not_count() -> None:
    rounds = [exact(probe, 0.1) for probe in PROBES]
    silent = [Sums(probe, sign * 1e-3 * np.abs(probe), 1.0) for probe in PROBES for sign in (1, -1)]
    without = Sums.of_all(rounds, N_USERS)
    for place in range(3):
        found = Sums.of_all([*rounds[:place], *silent, *rounds[place:]], N_USERS)
        assert found.sums == pytest.approx(without.sums) and found.noise_sd == pytest.approx(without.noise_sd)
    # 3 deviations of the sum of lengths are the edge
    lengths = 3 * 0.1 * np.linalg.norm(PROBES[0])
    edge = Sums(PROBES[0], PROBES[0] * lengths / (PROBES[0] ** 2).sum(), 0.1)
    assert not edge._replace(sums=0.999 * edge.sums).clear() and edge._replace(sums=1.001 * edge.sums).clear()


def test_a_last_round_that_tells_nothing_or_has_no_noise_stands_alone() -> None:
    rounds = [exact(probe, 0.1) for probe in PROBES]
    for last in (rounds[2]._replace(noise_sd=0.0), rounds[2]._replace(noise_sd=1e6)):
        found = Sums.of_all([*rounds[:2], last], N_USERS)
        assert found.sums is last.sums and found.probe is last.probe and found.noise_sd == last.noise_sd
