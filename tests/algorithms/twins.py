"""What the slow twins share: small ratings, a run whose noise is known, the start both sides draw."""

import math

import numpy as np

from hushrec.algorithms import Estimator
from hushrec.data import Domain, Ratings
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import RecordingNoise, SeededNoise

BUDGET = Budget(20.0, 1e-5)


def small() -> Ratings:
    rng = np.random.default_rng(2)
    rows = [
        (f"u{u}", f"i{i}", float(rng.integers(1, 6))) for u in range(60) for i in rng.choice(12, 7, False)
    ]
    domain = Domain(items=[f"i{i}" for i in range(12)], rating_range=(1, 5))
    return Ratings.from_any((*map(list, zip(*rows)),), domain)


def run(estimator: Estimator, ratings: Ratings):
    """Train; return the model and the noise of each release by label (blocks of a stream joined)."""
    source = RecordingNoise(SeededNoise(3))
    accountant = Accountant(BUDGET, noise=source)
    model = estimator.fit(ratings, accountant, seed=4)
    noise: dict[str, np.ndarray] = {}
    for call in source.calls:
        added = call.output.astype(np.float64) - call.value
        noise[call.label] = added if call.label not in noise else np.concatenate([noise[call.label], added])
    return model, noise, {release.label: release.noise_sd for release in accountant.releases}


def full(packed: np.ndarray, width: int) -> np.ndarray:
    matrix = np.zeros((width, width))
    matrix[np.tril_indices(width)] = packed
    return np.tril(matrix) + np.tril(matrix, -1).T


def start(n_items: int, rank: int) -> np.ndarray:
    return np.random.default_rng(4).standard_normal((n_items, rank)) * 0.3 / np.sqrt(rank)


def shown(usual: float, noise_sd: float) -> float:
    """Part of a released deviation from a usual value that is taken for real."""
    return usual**2 / (usual**2 + noise_sd**2)


def surprise(values: np.ndarray, variances: np.ndarray) -> float:
    """Twice the negative log density of independent normal values, but for a constant."""
    return float(sum(math.log(v) + x**2 / v for x, v in zip(values, variances)))


def level(dense: np.ndarray, seen: list, noise: dict, noise_sd: dict) -> tuple[float, float, float, float]:
    """Center, number of users, spread and ridge on offsets of private ALS, on a range from 1 to 5."""
    half = 2.0
    deviations = sum(row[s].mean() - 3.0 for row, s in zip(dense, seen)) + noise["level"][0]
    n_users = len(dense) + noise["level"][1]
    center = 3.0 + deviations / n_users * shown(half / 2, half * noise_sd["level"] / n_users)
    spread = sum(row[s].var() for row, s in zip(dense, seen)) + noise["spreads"][0]
    offsets = noise["spreads"][1]
    for row, s in zip(dense, seen):
        offsets += (row[s].mean() - 3.0) ** 2 - row[s].var() / (len(s) - 1)
    spread, offsets = spread / n_users / half**2, offsets / n_users / half**2
    error = noise_sd["spreads"] / n_users
    spread = 0.25 + shown(0.25, error) * (spread - 0.25)
    offsets = 0.04 + shown(0.04, error) * (offsets - 0.04)
    return center, n_users, half * math.sqrt(spread), min(max(spread / max(offsets, 1e-9), 1.0), 300.0)
