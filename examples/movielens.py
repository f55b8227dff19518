"""Print the README's table of quality: MovieLens-1M, one user protected, delta 1e-5.

    python examples/movielens.py FOLDER [SEED]

FOLDER holds ``ml-1m.parquet`` and ``features/ml-1m-items.parquet``. The split is 80% training, 10%
validation, 10% test, by a hash of user and item under SEED (default 0). The catalogue is items 1 to 3952.
Test users are folded in from their training and validation ratings. RMSE is over all test ratings. Recall@20
is over test ratings of 4 and 5: hits / min(20, their number). Private figures are means of three noise
draws. Public data are genres and years of the films, and a tenth of the users as donors.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import hushrec
from hushrec import Accountant, Budget, Domain, PublicRatings, Ratings
from hushrec.evaluation import evaluate

folder, seed = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
genres = pq.read_table(folder / "features" / "ml-1m-items.parquet").drop_columns(["title"])


def parts(**features: object) -> list[Ratings]:
    """Training, validation and test ratings."""
    domain = Domain(items=range(1, 3953), rating_range=(1, 5), **features)
    return hushrec.split_ratings(
        Ratings.from_any(folder / "ml-1m.parquet", domain), (0.8, 0.1, 0.1), seed=seed
    )


plain, described = parts(), parts(item_features=genres)


def measure(split: list[Ratings], fit: Callable[[Ratings], hushrec.Model], draws: int = 1) -> list[float]:
    """RMSE and Recall@20 of a model, mean over its draws."""
    train, validation, test = split
    history, names = train.union(validation), ("rmse", "capped-recall")
    found = [
        evaluate(fit(train), history, test, relevant_from=4, metrics=names, resamples=0) for _ in range(draws)
    ]
    return [
        float(np.mean([figures[name].value for figures in found])) for name in ("rmse", "capped-recall@20")
    ]


def private(epsilon: float, split: list[Ratings], public: PublicRatings | None = None) -> list[float]:
    """The default model, with what is public."""
    budget = Budget(epsilon, 1e-5)
    model = hushrec.Both.planned(budget, split[0].domain, n_users=6040)
    return measure(split, lambda train: model.fit(train, Accountant(budget), public=public), draws=3)


def reference(estimator: hushrec.Estimator, epsilon: float = float("inf")) -> list[float]:
    """A model without privacy, or a baseline at epsilon 5."""
    return measure(plain, lambda train: estimator.fit(train, Accountant(Budget(epsilon, 1e-5))))


donors = PublicRatings(donors=list(plain[0].users[::10]))
columns = [
    private(1, plain),
    private(1, described, donors),
    private(5, plain),
    private(5, described, donors),
    [reference(hushrec.ALS())[0], reference(hushrec.EASE())[1]],
    [reference(hushrec.ItemBias(), 5)[0], reference(hushrec.Popular(), 5)[1]],
]
baseline = "baseline: user mean + item bias / popular items"
print(f"| | epsilon 1 | with public data | epsilon 5 | with public data | no privacy | {baseline} |")
print("|---|---|---|---|---|---|---|")
for name, values in zip(("RMSE", "Recall@20"), zip(*columns, strict=True), strict=True):
    print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in values) + " |")
