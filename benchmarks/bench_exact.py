"""Cost of exact sums and exact noise: a training with them beside the same in plain floating point.

    python -m benchmarks.bench_exact

Both run in turn, in one process, for `--rounds` rounds; the fastest of each counts. "Plain" sums what users
contribute as it is and adds the normals of numpy in float64: not private against one who reads the low bits.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

from hushrec.data import Domain, Ratings, realistic
from hushrec.models import Estimator, PrivateALS
from hushrec.papers.dpals import DPALS
from hushrec.privacy import Accountant, Budget


class FloatNoise:
    """Normals of numpy, added in floating point."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng()

    def add_gaussian(self, value: np.ndarray, sd: np.ndarray | float, label: str) -> np.ndarray:
        return value + np.asarray(sd) * self._generator.standard_normal(value.shape)

    def add_laplace(self, value: np.ndarray, scale: np.ndarray | float, label: str) -> np.ndarray:
        raise NotImplementedError

    def flip(self, labels: np.ndarray, probability: float, label: str) -> np.ndarray:
        raise NotImplementedError


def seconds(estimator: Estimator, ratings: Ratings, plain: bool) -> float:
    """CPU seconds of one training."""
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith("hushrec.")
        and not name.startswith("hushrec.kernels")
        and hasattr(module, "spacing")
    ]
    spacings = [module.spacing for module in modules]  # type: ignore[attr-defined]
    if plain:
        for module in modules:
            module.spacing = lambda *_: 0.0  # type: ignore[attr-defined]
    noise = FloatNoise() if plain else None
    start = time.process_time()
    try:
        estimator.fit(ratings, Accountant(Budget(5.0, 1e-6), noise=noise, data_is_public=True))
    finally:
        for module, spacing in zip(modules, spacings):
            module.spacing = spacing  # type: ignore[attr-defined]
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    path = Path(os.environ.get("HUSHREC_DATA", "")) / "ml-1m.parquet"
    if path.exists():
        name, ratings = "ML-1M", Ratings.read(path, Domain(range(1, 3953), rating_range=(1, 5)))
    else:
        name, ratings = "generated", realistic(6_040, 3_706, 1_000_000, seed=0)
    dpals = {"max_ratings_per_user": 100, "user_norm": 0.1, "clip": 1.0, "regularization": 20.0}
    models = {
        "private-als, shared Gramian": PrivateALS(rank=32, iterations=4),
        "dpals, one Gramian an item": DPALS.of(rank=32, iterations=4, **dpals),
    }
    print(f"Training on {name}, rank 32, 4 iterations; CPU seconds, fastest of {rounds}\n")
    print("| model | plain | exact | ratio |\n|---|---|---|---|")
    for label, estimator in models.items():
        for plain in (True, False):
            seconds(estimator, ratings, plain)  # compiles
        times = [
            (seconds(estimator, ratings, True), seconds(estimator, ratings, False)) for _ in range(rounds)
        ]
        plain_best, exact_best = np.min(times, axis=0)
        print(
            f"| {label} | {plain_best:.2f} | {exact_best:.2f} | {exact_best / plain_best:.2f} |", flush=True
        )


if __name__ == "__main__":
    main()
