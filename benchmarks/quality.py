"""RMSE with and without privacy on MovieLens-1M and on DPALS's synthetic data, and `both` against either
job.

Unit user, add-remove, delta 1e-5; means over noise draws, largest in brackets. The data sets are public: no
run is charged to a ledger. HUSHREC_DATA names the folder of the real ratings.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from benchmarks.harness import DELTA, TOY, Targets, figures, folder, of_errors, of_lists, rmse
from benchmarks.matrices import dpals_matrix
from hushrec.data import Domain, Ratings, split_ratings
from hushrec.models import ALS, Estimator, GlobalMean, ItemBias, PrivateALS
from hushrec.papers.dpals import DPALS
from hushrec.privacy import Accountant, Budget

EPSILONS = (1.0, 5.0, 10.0, 20.0)
#: Google's reference on the same data and split rule, which adds too little noise for its claim.
REFERENCE = {1.0: 1.074, 5.0: 0.957, 10.0: 0.923, 20.0: 0.903}
MOVIELENS = {1.0: 0.915, 5.0: 0.884, 10.0: 0.876, 20.0: 0.866}
SYNTHETIC = {1.0: 0.20, 5.0: 0.06, 10.0: 0.05, 20.0: 0.045}
#: `both` at each epsilon: RMSE at most so many times that of the model alone, Recall at least.
BOTH = {1.0: (1.015, 0.94), 5.0: (1.01, 0.96), 20.0: (1.01, 0.96)}
#: DPALS: the best of 36 settings at each epsilon on the validation part.
PUBLISHED = {
    1.0: {"rank": 1, "iterations": 3, "user_norm": 0.05, "clip": 0.6},
    5.0: {"rank": 2, "iterations": 3, "user_norm": 0.1, "clip": 0.6},
    10.0: {"rank": 2, "iterations": 3, "user_norm": 0.2, "clip": 0.6},
    20.0: {"rank": 2, "iterations": 3, "user_norm": 0.2, "clip": 0.9},
}
_PAPER = {"max_ratings_per_user": 50, "regularization": 20.0, "center": "user", "sampling": "tail"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--draws", type=int, default=1 if TOY else 5, help="noise draws a figure")
    options, targets = parser.parse_args(), Targets()
    home = folder()
    if home is None or not (home / "ml-1m.parquet").exists():
        print("MovieLens-1M skipped: set HUSHREC_DATA to a folder that holds ml-1m.parquet.")
    else:
        ratings = Ratings.from_any(home / "ml-1m.parquet", Domain(items=range(1, 3953), rating_range=(1, 5)))
        without_privacy(targets, ratings)
        movielens(targets, ratings, options.draws)
        both(targets, ratings, min(options.draws, 3))
    synthetic(targets, options.draws)
    targets.exit()


def without_privacy(targets: Targets, ratings: Ratings) -> None:
    train, test = split_ratings(ratings, (0.9, 0.1), seed=0)
    models = [ALS().fit(train, Accountant(Budget(math.inf, DELTA)), seed=seed) for seed in range(3)]
    error = float(np.mean([rmse(model, train, test) for model in models]))
    targets.at_most(error, 0.855, "RMSE without privacy, random 90/10, ALS of rank 32 (peers 0.852 to 0.857)")


def movielens(targets: Targets, ratings: Ratings, draws: int) -> None:
    print("\n## MovieLens-1M, 80/10/10 by hashes, catalogue 1 to 3952\n")
    print("| epsilon | private ALS | DPALS | mean + bias | global mean | reference* |\n" + 6 * "|---" + "|")
    found = {}
    for epsilon in EPSILONS:
        models = [
            PrivateALS.planned(Budget(epsilon, DELTA), ratings.domain, of_errors(ratings).train.n_users),
            DPALS.of(**_PAPER, **PUBLISHED[epsilon]),
            ItemBias(),
            GlobalMean(),
        ]
        table = [errors(model, epsilon, ratings, draws) for model in models]
        found[epsilon] = float(np.mean(table[0]))
        print(f"| {epsilon:g} | {' | '.join(map(spell, table))} | {REFERENCE[epsilon]:.3f} |", flush=True)
    print("\n*Google's reference code, measured earlier on this split rule; its epsilon is not true.\n")
    for epsilon, value in found.items():
        targets.at_most(value, MOVIELENS[epsilon], f"MovieLens-1M, epsilon {epsilon:g}, RMSE of private ALS")


def synthetic(targets: Targets, draws: int) -> None:
    print("\n## Synthetic: 20,000 users x 1,000 items, rank 5, unit variance, range -8 to 8\n")
    ratings = dpals_matrix(*((400, 100) if TOY else (20_000, 1_000)), seed=0).ratings
    for epsilon in EPSILONS:
        planned = PrivateALS.planned(Budget(epsilon, DELTA), ratings.domain, of_errors(ratings).train.n_users)
        value = float(np.mean(errors(planned, epsilon, ratings, draws)))
        targets.at_most(value, SYNTHETIC[epsilon], f"synthetic, epsilon {epsilon:g}, RMSE of private ALS")


def both(targets: Targets, ratings: Ratings, draws: int) -> None:
    """Compare one model for both jobs with a model for each, every one with the whole budget."""
    for epsilon, (most, least) in BOTH.items():
        for job, alone in (("RMSE", "private-als"), ("Recall@20", "private-eigenrec")):
            task = of_errors(ratings) if job == "RMSE" else of_lists(ratings)
            ours, theirs = (np.mean(figures(name, epsilon, task, draws)) for name in ("both", alone))
            what = f"{job} of both {ours:.4f} over that of {alone} {theirs:.4f}, epsilon {epsilon:g}"
            if job == "RMSE":
                targets.at_most(float(ours / theirs), most, what)
            else:
                targets.at_least(float(ours / theirs), least, what)


def errors(model: Estimator, epsilon: float, ratings: Ratings, draws: int) -> list[float]:
    """Test RMSE of several noise draws, each with its own start."""
    train, figure = of_errors(ratings)
    return [figure(model.fit(train, Accountant(Budget(epsilon, DELTA)), seed=draw)) for draw in range(draws)]


def spell(values: list[float]) -> str:
    return f"{np.mean(values):.4f} ({max(values):.4f})"


if __name__ == "__main__":
    main()
