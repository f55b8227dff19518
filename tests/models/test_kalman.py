"""The filter of a statistic that is released every week, against the regression of all weeks at once."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

from hushrec.training import kalman
from hushrec.training.kalman import DRIFTS, Tracked, counted_again, drift, learned, no_evidence

TRUTH = np.random.default_rng(5).normal(3.0, 1.0, 40)


def weeks(drift_sd: float, noise: list[float]) -> list[np.ndarray]:
    """Return the releases of a random walk of every entry, with noise."""
    rng = np.random.default_rng(6)
    path = TRUTH + np.cumsum(rng.normal(0, drift_sd, (len(noise), 40)), axis=0)
    return [each + rng.normal(0, sd, 40) for each, sd in zip(path, noise)]


def test_it_is_the_best_linear_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: Gaussian conditioning on all weeks' numbers, with the drifts that the filter took.

    Of the later weeks' users a part is there, so a week says less.
    """
    noise, parts, gained = [1.0, 0.5, 2.0, 0.7], [1.0, 0.8, 0.3, 0.5], list[float]()
    released = [part * each for part, each in zip(parts, weeks(0.3, noise), strict=True)]

    def seen(evidence: np.ndarray) -> float:
        gained.append(drift(evidence))
        return gained[-1]

    monkeypatch.setattr(kalman, "drift", seen)
    found, usual = Tracked.first(released[0], noise[0] ** 2), []
    for each, sd, part in zip(released[1:], noise[1:], parts[1:], strict=True):
        usual.append(float((found.mean**2).mean()))
        found = found.measured(each, (part * sd) ** 2, part)
    assert min(gained) > 0
    steps = [gain * square for gain, square in zip(gained, usual, strict=True)]
    # seen from the last week backwards: a week's value differs by the later drifts
    since = [math.fsum(steps[week:]) for week in range(4)]
    covariance = np.array([[since[max(a, b)] for b in range(4)] for a in range(4)]) + np.diag(noise) ** 2
    precision = np.linalg.inv(covariance)
    assert found.variance == pytest.approx(np.full(40, 1 / precision.sum()))
    assert found.mean == pytest.approx(
        precision.sum(axis=0) @ (np.array(released) / np.array(parts)[:, None]) / precision.sum()
    )


@pytest.mark.parametrize("true", [1.1, 0.5, 0.03])
def test_the_part_of_the_users_that_is_there_is_found(true: float) -> None:
    """Also where the statistic is as uncertain as it is large, which draws a regression towards 0."""
    rng, found = np.random.default_rng(8), []
    for _ in range(100):
        statistic = rng.normal(3.0, 1.0, 4000)
        known = Tracked(statistic + rng.normal(0, 3.0, 4000), np.full(4000, 9.0), no_evidence())
        found.append(known.part(true * statistic + rng.normal(0, 0.5, 4000), 0.25))
    assert np.mean(found) == pytest.approx(true, abs=0.01)
    nothing = Tracked(np.zeros(3), np.ones(3), no_evidence())
    assert nothing.part(np.ones(3), 1.0, center=0.7) == pytest.approx(0.7)
    assert nothing.part(np.ones(3), 1.0, center=-0.7) > 0


def test_a_noisy_number_of_users_counts_by_its_noise() -> None:
    """Oracle: least squares of the number of users, in first weeks, and of weights that are known exactly."""

    class Week:
        released = {
            "number of users": (np.array([900.0]), 30.0),
            "item weights": (np.array([38.0, 24.0]), 3.0),
        }

        def release(self, label: str, bounded: None) -> np.ndarray:
            return self.released[label][0]

        def noise_sd(self, label: str) -> float:
            return self.released[label][1]

    users = SimpleNamespace(count=lambda: None, item_weights=lambda: None)
    known = Tracked(np.array([40.0, 30.0]), np.zeros(2), no_evidence())
    part, weights = counted_again(users, Week(), 1000.0, known)
    unsure = math.hypot(30 / 1000, 0.05)  # a declared number is 5% off
    slopes, numbers = np.array([1 / unsure, 40 / 3, 10]), np.array([0.9 / unsure, 38 / 3, 8])
    assert part == pytest.approx(np.linalg.lstsq(slopes[:, None], numbers)[0][0])
    assert weights.mean == pytest.approx(known.measured(np.array([38.0, 24.0]), 9.0, part).mean)


def test_likelihoods_of_drifts_are_those_of_what_was_measured() -> None:
    """The normal log likelihood, up to a term that all drifts share."""
    rng = np.random.default_rng(9)
    variance, noise, slope = rng.uniform(50, 60, (3, 30))  # known so badly that no drift would settle there
    surprise, usual = rng.normal(0, 9, 30), 7.0
    found = learned(np.zeros(len(DRIFTS)), surprise, slope, variance, noise, usual)
    expected = [
        norm.logpdf(surprise, scale=np.sqrt(slope**2 * (variance + part * usual) + noise)).sum()
        for part in DRIFTS
    ]
    assert found - found[0] == pytest.approx(np.array(expected) - expected[0])


def test_new_entries_are_usual_and_unknown() -> None:
    seen = np.array([True, True, True, False])
    found = Tracked(np.array([1.0, 2.0, 6.0, 0.0]), np.zeros(4), no_evidence()).with_new(seen)
    assert found.mean.tolist() == [1.0, 2.0, 6.0, 2.0]
    assert found.variance == pytest.approx([0.0, 0.0, 0.0, 41 / 3])
    for all_alike in (np.ones(4, bool), np.zeros(4, bool)):
        assert found.with_new(all_alike) is found


def test_a_statistic_that_hardly_moves_is_known_as_well_as_with_its_drift_given() -> None:
    """Oracle: the error variance of the best linear estimate, which knows the drift, after 100 weeks."""
    excess, later = [], np.arange(99, -1, -1)
    for seed, drift_sd in enumerate([0.0, 0.01] * 10):
        rng = np.random.default_rng(seed)
        path = TRUTH + np.cumsum(rng.normal(0, drift_sd, (100, 40)), axis=0)
        released = path + rng.normal(0, 3.0, path.shape)
        found = Tracked.first(released[0], 9.0)
        for each in released[1:]:
            found = found.measured(each, 9.0)
        covariance = drift_sd**2 * np.minimum.outer(later, later) + 9.0 * np.eye(100)
        best = 1 / np.linalg.inv(covariance).sum()
        excess.append(((found.mean - path[-1]) ** 2).mean() / best)
    assert np.mean(excess) < 1.05
