"""Worth of public item features: private ALS on generated data with, without and with worthless ones.

    python -m benchmarks.bench_item_features [--seeds 5]

``realistic`` data with 20 features of 0 and 1 that explain half of the variance of item biases and factors;
the worthless ones are the same rows in another order. User-level, add-remove, delta 1e-6. Every figure is a
mean over data sets; the three models of a data set share split, start and noise draws (a seeded source, for
a comparison that noise does not blur). A few minutes on one core.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace

import numpy as np

from hushrec.algorithms import PrivateALS
from hushrec.data import Ratings, realistic, split_ratings
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise

DELTA = 1e-6
EPSILONS = (0.5, 1.0, 5.0)
#: Users, items and ratings per user.
SHAPES = ((1_000, 500, 60), (2_000, 1_000, 50), (5_000, 3_000, 80), (10_000, 1_000, 50), (30_000, 1_000, 50))
N_FEATURES, EXPLAINED = 20, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="data sets of each shape (default 5)")
    options = parser.parse_args()
    print("| users | items | ratings a user | epsilon | test RMSE | with features | with worthless ones |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for shape in SHAPES:
        for epsilon in EPSILONS:
            errors = np.array([run(*shape, epsilon, seed) for seed in range(options.seeds)])
            plain = errors[:, 0].mean()
            with_features, worthless = (spell(errors[:, k] - errors[:, 0]) for k in (1, 2))
            print(
                f"| {shape[0]:,} | {shape[1]:,} | {shape[2]} | {epsilon:g} | {plain:.4f} |"
                f" {with_features} | {worthless} |",
                flush=True,
            )


def run(n_users: int, n_items: int, each: int, epsilon: float, seed: int) -> list[float]:
    """Test RMSE without features, with them, and with those of other items."""
    ratings = realistic(
        n_users, n_items, n_users * each, n_features=N_FEATURES, explained=EXPLAINED, seed=seed
    )
    train, test = split_ratings(ratings, (0.9, 0.1), seed=seed)
    features = ratings.domain.item_features
    mixed = np.random.default_rng(seed).permutation(features)
    budget = Budget(epsilon, DELTA)
    errors = []
    for given in (None, features, mixed):
        private = with_features(train, given)
        model = PrivateALS.planned(budget, private.domain, n_users)
        billboard = model.fit(private, Accountant(budget, noise=SeededNoise(seed)), seed=seed)
        error = billboard.predict_pairs(train, test) - test.matrix.data
        errors.append(math.sqrt(float(np.mean(error**2))))
    return errors


def with_features(ratings: Ratings, features: np.ndarray | None) -> Ratings:
    return replace(ratings, domain=replace(ratings.domain, item_features=features))


def spell(changes: np.ndarray) -> str:
    """Mean change and the standard error of that mean."""
    return f"{changes.mean():+.4f} ± {changes.std(ddof=1) / math.sqrt(len(changes)):.4f}"


if __name__ == "__main__":
    main()
