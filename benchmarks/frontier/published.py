"""MovieLens-10M, MovieLens-20M and the Million Song Dataset, read as distributed and split as published.

The folder HUSHREC_DATA holds ``ml-10M100K/ratings.dat`` and ``ml-20m/ratings.csv`` of GroupLens, and
``train_triplets.txt`` of the Million Song Dataset.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.frontier.data import Split
from hushrec.data import Domain, Ratings

_COLUMNS = ["user", "item", "rating"]
#: Seeds of the published code.
_RATINGS_SEED, _LIKES_SEED = 1234, 98765


def movielens_10m(path: Path) -> Split:
    """Return the split of Chien et al. 2021: 80/10/10 of the ratings.

    Their reference code draws it by pandas' ``sample`` with seed 1234.
    """
    table = pd.read_csv(path, sep="::", engine="python", names=[*_COLUMNS, "time"], usecols=_COLUMNS)
    train = table.sample(frac=0.8, random_state=_RATINGS_SEED)
    rest = table.drop(train.index)
    valid = rest.sample(frac=0.5, random_state=_RATINGS_SEED)
    test = rest.drop(valid.index)
    domain = Domain(items=sorted(table["item"].unique().tolist()), rating_range=(0.5, 5))
    parts = [_ratings(each, domain) for each in (train, valid, test)]
    return Split(parts[0], parts[0].union(parts[1]), {"rmse": parts[2]}, (parts[0], parts[1]))


def movielens_20m(path: Path) -> Split:
    """Return the split of Liang et al. 2018: ratings from 4 up, users with 5, 10,000 users held out twice."""
    table = pd.read_csv(path).rename(columns={"userId": "user", "movieId": "item"})
    return _liang(table[table["rating"] > 3.5][_COLUMNS], 5, 0, 10_000)


def million_songs(path: Path) -> Split:
    """Return the split of Liang et al. 2018: songs with 200 users, users with 20, 50,000 held out twice."""
    table = pd.read_csv(path, sep="\t", names=_COLUMNS)
    return _liang(table, 20, 200, 50_000)


def _liang(table: pd.DataFrame, of_a_user: int, of_an_item: int, held_out: int) -> Split:
    """Return training users, and test users with 80% of their likes to fold in and 20% to judge."""
    counts = table.groupby("item").size()
    table = table[table["item"].isin(counts.index[counts >= of_an_item])]
    counts = table.groupby("user").size()
    table = table[table["user"].isin(counts.index[counts >= of_a_user])]
    users = np.unique(table["user"].to_numpy())
    order = users[np.random.RandomState(_LIKES_SEED).permutation(len(users))]
    held_out = min(held_out, len(users) // 4)  # less for a file of few users
    train = table[table["user"].isin(order[: len(users) - 2 * held_out])]
    items = train["item"].unique()
    domain = Domain(items=sorted(items.tolist()), rating_range=(0, 1))
    parts = []
    for chosen in (order[-2 * held_out : -held_out], order[-held_out:]):
        own = table[table["user"].isin(chosen) & table["item"].isin(items)]
        judged = _fifth_of_each_user(own)
        parts.append([_ratings(each, domain, likes=True) for each in (own[~judged], own[judged])])
    (valid, valid_target), (history, target) = parts
    return Split(_ratings(train, domain, likes=True), history, {"recall@20": target}, (valid, valid_target))


def _fifth_of_each_user(table: pd.DataFrame) -> pd.Series:
    """Return which rows are judged: 20% of each user's, rounded down, of users with 5 or more."""
    generator = np.random.RandomState(_LIKES_SEED)
    judged = pd.Series(False, index=table.index)
    for rows in table.groupby("user").indices.values():
        if len(rows) >= 5:
            chosen = generator.choice(len(rows), size=int(0.2 * len(rows)), replace=False)
            judged.iloc[rows[chosen]] = True
    return judged


def _ratings(table: pd.DataFrame, domain: Domain, likes: bool = False) -> Ratings:
    return Ratings.from_any(table.reset_index(drop=True), domain, implicit=likes)
