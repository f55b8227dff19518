"""Worth of public item features: private ALS with, without and with misleading ones.

    HUSHREC_DATA=FOLDER python -m benchmarks.bench_item_features [--draws 6] [--only generated|films]

Films: users of MovieLens-1M, drawn anew for each draw, with 18 genres and the decades of the films (from the
folder ``HUSHREC_DATA``; left out where it does not hold them). Generated: ``realistic`` data with 20 features
of 0 and 1 that explain half of the variance of item biases and factors. Misleading features are the same rows
in another order, or 20 noisy copies of the items' log numbers of ratings. User-level, add-remove, delta 1e-6;
a tenth of the ratings is held out. Every figure is a mean over draws of users; the models of a draw share
split, start and noise (a seeded source, for a comparison that noise does not blur). Four minutes on one core.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq

from benchmarks.frontier.data import available, folder
from hushrec.algorithms import PrivateALS
from hushrec.data import Domain, Ratings, realistic, split_ratings
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise

DELTA = 1e-6
EPSILONS = (0.5, 1.0, 5.0)
USERS = (300, 600, 1_200, 2_500)
#: Items and ratings a user of generated data.
SHAPES = ((500, 60), (2_000, 20))
N_FEATURES, EXPLAINED = 20, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=6, help="draws of users of each line (default 6)")
    parser.add_argument("--only", choices=("generated", "films"), help="one half")
    options = parser.parse_args()
    print("| data | users | epsilon | test RMSE | with features | of other items | copies of popularity |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, n_users, drawn in tables(options.draws, options.only):
        for epsilon in EPSILONS:
            errors = np.array([run(each, n_users, epsilon, seed) for seed, each in enumerate(drawn)])
            changes = " | ".join(spell(errors[:, k] - errors[:, 0]) for k in (1, 2, 3))
            plain = errors[:, 0].mean()
            print(f"| {name} | {n_users:,} | {epsilon:g} | {plain:.4f} | {changes} |", flush=True)


def tables(draws: int, only: str | None) -> Iterator[tuple[str, int, list[Ratings]]]:
    """Each line's name, number of users, and ratings with features, one a draw."""
    if only != "generated":
        if available("ml-1m"):
            every = films()
            for n_users in USERS:
                chosen = (np.random.default_rng(draw).permutation(every.n_users) for draw in range(draws))
                yield "ML-1M", n_users, [every.rows(order[:n_users], keyed=True) for order in chosen]
        else:
            print("MovieLens-1M skipped: set HUSHREC_DATA to a folder that holds it and its features.")
    for n_items, each in SHAPES if only != "films" else ():
        for n_users in USERS:
            given = {"n_features": N_FEATURES, "explained": EXPLAINED}
            drawn = [realistic(n_users, n_items, n_users * each, seed=seed, **given) for seed in range(draws)]
            yield f"generated, {n_items:,} items, {each} ratings a user", n_users, drawn


def films() -> Ratings:
    """MovieLens-1M with genres and decades."""
    public = pq.read_table(folder() / "features" / "ml-1m-items.parquet").to_pandas()  # type: ignore[operator]
    decades = public["year"].to_numpy() // 10
    genres = public.drop(columns=["item", "title", "year"]).to_numpy(float)
    features = np.column_stack([genres, decades[:, None] == np.unique(decades)])
    domain = Domain(items=public["item"].tolist(), rating_range=(1, 5), item_features=features)
    return Ratings.read(folder() / "ml-1m.parquet", domain)  # type: ignore[operator]


def run(ratings: Ratings, n_users: int, epsilon: float, seed: int) -> list[float]:
    """Test RMSE without features, with them, with those of other items, and with copies of popularity."""
    train, test = split_ratings(ratings, (0.9, 0.1), seed=seed)
    features, rng = ratings.domain.item_features, np.random.default_rng(seed)
    mixed = rng.permutation(features)
    counts = np.log1p(np.bincount(ratings.matrix.indices, minlength=ratings.n_items))
    copies = counts[:, None] + 0.5 * rng.standard_normal((ratings.n_items, N_FEATURES))
    budget = Budget(epsilon, DELTA)
    errors = []
    for given in (None, features, mixed, copies):
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
