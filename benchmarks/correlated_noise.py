"""Study: is noise that is correlated from week to week worth its secrets?

``python -m benchmarks.correlated_noise``. A statistic that only adds up, one number, walks at random over 52
weeks; every user is present every week and adds at most 1 to it each week, with any sign. A season releases
C x + noise for a lower triangular Toeplitz C, with all weeks together at mu = 1. The identity is independent
noise; the others are the banded square root of the matrix of ones, and its inverse. Whoever reads it
estimates each week's number from all releases so far, by the best linear estimate. Printed is the root of
the mean error variance over the weeks, in units of that of independent noise; below 1 the correlated noise
wins. All of it is exact linear algebra: no noise is drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
WEEKS = 52
BANDS = (2, 4, 8, WEEKS)
#: Drift variance of a week in units of the noise variance of a week under independent noise.
DRIFTS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def toeplitz(power: float, band: int) -> Array:
    """The first ``band`` coefficients of (1 - z)^power, as a lower triangular matrix."""
    coefficients = [1.0]
    for k in range(1, band):
        coefficients.append(coefficients[-1] * (k - 1 - power) / k)
    rows = np.subtract.outer(np.arange(WEEKS), np.arange(WEEKS))
    padded = np.append(coefficients, np.zeros(WEEKS))
    return np.where(rows >= 0, padded[np.clip(rows, 0, len(padded) - 1)], 0.0)


def error(strategy: Array, drift: float) -> float:
    """Root of the mean over weeks of the error variance, at mu = 1 for all weeks."""
    sensitivity = np.linalg.norm(np.abs(strategy).sum(axis=1))  # a user in all weeks, with any signs
    noise_variance = sensitivity**2
    walk = np.minimum.outer(np.arange(1, WEEKS + 1), np.arange(1, WEEKS + 1)).astype(float)
    prior = 1e4 * WEEKS + WEEKS * drift * walk  # the start is not known
    total = []
    for week in range(1, WEEKS + 1):
        seen = strategy[:week, :week]
        cover = seen @ prior[:week, :week] @ seen.T + noise_variance * np.eye(week)
        with_last = seen @ prior[:week, week - 1]
        total.append(prior[week - 1, week - 1] - with_last @ np.linalg.solve(cover, with_last))
    return float(np.sqrt(np.mean(total)))


def main() -> None:
    print("| drift a week | " + " | ".join(f"square root, band {band}" for band in BANDS), end="")
    print(" | " + " | ".join(f"inverse, band {band}" for band in BANDS) + " |")
    print("|---" * (1 + 2 * len(BANDS)) + "|")
    for drift in DRIFTS:
        alone = error(np.eye(WEEKS), drift)
        cells = [
            f"{error(toeplitz(power, band), drift) / alone:.3f}" for power in (-0.5, 0.5) for band in BANDS
        ]
        print(f"| {drift:g} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
