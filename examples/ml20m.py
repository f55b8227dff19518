"""Print the quality of private lists on MovieLens-20M, one user protected, beside published figures.

    python examples/ml20m.py FOLDER

FOLDER holds ``ratings.csv`` of GroupLens. Likes are ratings from 4 up, of users with 5 likes or more. As in
Liang et al. 2018 (arXiv 1802.05814), 10,000 users are held out for validation and 10,000 for the test. A test
user folds in 80% of their likes, and the rest is to be found: hits / min(k, their number), and NDCG of
relevant or not. EASE's figures are those of Steck 2019 (arXiv 1905.03375). The split is of public data,
so its catalogue is that of the training users and no ledger is charged.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import hushrec
from hushrec import Accountant, Budget, Domain, Ratings
from hushrec.evaluation import evaluate

SEED = 98765  # of the published code
MEASURES = {"Recall@20": ("capped-recall", 20), "Recall@50": ("capped-recall", 50), "NDCG@100": ("ndcg", 100)}
EASE = {"Recall@20": 0.391, "Recall@50": 0.521, "NDCG@100": 0.420}


def likes_of(ratings: pd.DataFrame) -> pd.DataFrame:
    """User and item of ratings from 4 up, in a table as GroupLens distributes it."""
    columns = {"userId": "user", "movieId": "item"}
    return ratings.loc[ratings["rating"] > 3.5, list(columns)].rename(columns=columns)


def liang(likes: pd.DataFrame, of_a_user: int, of_an_item: int, held_out: int) -> list[Ratings]:
    """Likes of training users, then those to fold in and those to find of validation and of test users."""
    for column, least in (("item", of_an_item), ("user", of_a_user)):
        likes = likes[likes.groupby(column)[column].transform("size") >= least]
    users = np.unique(likes["user"].to_numpy())
    order = users[np.random.RandomState(SEED).permutation(len(users))]
    held_out = min(held_out, len(users) // 4)  # less for a file of few users
    train = likes[likes["user"].isin(order[: len(users) - 2 * held_out])]
    domain = Domain(sorted(train["item"].unique().tolist()), likes=True)
    parts = [train]
    for chosen in (order[-2 * held_out : -held_out], order[-held_out:]):
        own = likes[likes["user"].isin(chosen) & likes["item"].isin(train["item"].unique())]
        found = fifth_of_each_user(own)
        parts += [own[~found], own[found]]
    return [Ratings.from_any(part.reset_index(drop=True), domain, implicit=True) for part in parts]


def fifth_of_each_user(likes: pd.DataFrame) -> pd.Series:
    """Mark 20% of each user's rows, rounded down, of users with 5 or more."""
    generator, marked = np.random.RandomState(SEED), pd.Series(False, index=likes.index)
    for rows in likes.groupby("user").indices.values():
        if len(rows) >= 5:
            marked.iloc[rows[generator.choice(len(rows), size=int(0.2 * len(rows)), replace=False)]] = True
    return marked


def main(folder: Path) -> None:
    train, _, _, history, test = liang(likes_of(pd.read_csv(folder / "ratings.csv")), 5, 0, 10_000)
    print(f"{train.n_users:,} users to train on, {history.n_users:,} to test, {train.n_items:,} films")

    def measure(estimator: hushrec.Estimator, budget: Budget) -> dict[str, float]:
        model = estimator.fit(train, Accountant(budget, data_is_public=True))
        found = {}
        for name, (metric, k) in MEASURES.items():
            figures = evaluate(model, history, test, metrics=(metric,), k=k, resamples=0)
            found[name] = figures[f"{metric}@{k}"].value
        return found

    columns = {}
    for epsilon in (1, 5, 20):
        budget = Budget(epsilon, 1e-6)
        lists = hushrec.PrivateEigenRec.planned(budget, train.domain, n_users=train.n_users)
        columns[f"epsilon {epsilon}"] = measure(lists, budget)
    columns["popularity"] = measure(hushrec.Popular(), Budget(float("inf"), 1e-6))
    columns["EASE, published"] = EASE
    print(f"| MovieLens-20M, delta 1e-6 | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for name in MEASURES:
        print(f"| {name} | " + " | ".join(f"{column[name]:.3f}" for column in columns.values()) + " |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
