"""Helpers of the slow twins: small ratings, a run with known noise, the start that both sides draw."""

import math
from collections.abc import Callable

import numpy as np
from scipy.integrate import quad

from hushrec.data import Domain, Ratings
from hushrec.models import Estimator
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


def surprise(values: np.ndarray, variances: np.ndarray) -> float:
    """Twice the negative log density of independent normal values, but for a constant."""
    return float(sum(math.log(v) + x**2 / v for x, v in zip(values, variances)))


def likely(measured: float, error: float, usual: float, geometric: bool = True) -> float:
    """Posterior mean, usually the geometric one, of a log-normal number that was measured with normal noise,
    by integration."""

    def integral(function: Callable[[float], float]) -> float:
        def density(x: float) -> float:
            misfit = (usual * math.exp(x) - measured) / error
            return function(x) * math.exp(-(misfit**2 + x**2) / 2)

        return quad(density, -8, 8, points=[math.log(max(measured, 1e-3) / usual)], limit=500)[0]

    whole = integral(lambda x: 1.0)
    if geometric:
        return usual * math.exp(integral(lambda x: x) / whole)
    return usual * integral(math.exp) / whole


def likely_weights(released: np.ndarray, noise_sd: float) -> np.ndarray:
    """Posterior means of weights under the mixture of 100 rounds of EM, and a part of the noise."""
    step = max(noise_sd / 5, (released.max() - released.min()) / 4000)
    grid = 0.01 * (released.max() / 0.01) ** (np.arange(200) / 199)
    variance = noise_sd**2 + (np.gradient(grid) / 2) ** 2
    masses = np.full(200, 1 / 200)
    for _ in range(101):
        shares = []
        for value in released:
            misfit = (step * round(value / step) - grid) ** 2 / variance
            likely = masses * np.exp(-misfit / 2) / np.sqrt(variance)
            shares.append(likely / likely.sum())
        masses = np.mean(shares, axis=0)
    return np.sqrt((np.array(shares) @ grid) ** 2 + (0.5 * noise_sd) ** 2)


def likely_factor(values: np.ndarray, variance: np.ndarray, error: np.ndarray) -> float:
    """Posterior geometric mean of a variance's factor with a log-normal prior about 1/2."""
    factors = [0.5 * math.exp(-8 + 0.01 * step) for step in range(1601)]
    surprises = [surprise(values, f * variance + error) + math.log(f / 0.5) ** 2 for f in factors]
    chances = [math.exp((min(surprises) - each) / 2) for each in surprises]
    return math.exp(sum(map(math.prod, zip(map(math.log, factors), chances))) / sum(chances))
