"""What the slow twins share: small ratings, a run whose noise is known, the start both sides draw."""

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
    return Ratings.from_triples(*map(list, zip(*rows)), domain)


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
