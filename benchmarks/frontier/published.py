"""MovieLens-10M, MovieLens-20M and the Million Song Dataset, read as distributed and split as published.

The folder HUSHREC_DATA holds ``ml-10M100K/ratings.dat`` and ``ml-20m/ratings.csv`` of GroupLens, and
``train_triplets.txt`` of the Million Song Dataset.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.frontier.data import Split
from examples.ml20m import liang, likes_of
from hushrec.data import Domain, Ratings

_COLUMNS = ["user", "item", "rating"]
_SEED = 1234  # of the published code


def movielens_10m(path: Path) -> Split:
    """Return the split of Chien et al. 2021: 80/10/10 of the ratings.

    Their reference code draws it by pandas' ``sample`` with seed 1234.
    """
    table = pd.read_csv(path, sep="::", engine="python", names=[*_COLUMNS, "time"], usecols=_COLUMNS)
    train = table.sample(frac=0.8, random_state=_SEED)
    rest = table.drop(train.index)
    valid = rest.sample(frac=0.5, random_state=_SEED)
    test = rest.drop(valid.index)
    domain = Domain(items=sorted(table["item"].unique().tolist()), rating_range=(0.5, 5))
    parts = [_ratings(each, domain) for each in (train, valid, test)]
    return Split(parts[0], parts[0].union(parts[1]), {"rmse": parts[2]}, (parts[0], parts[1]))


def movielens_20m(path: Path) -> Split:
    """Return the split of Liang et al. 2018: ratings from 4 up, users with 5, 10,000 users held out twice."""
    return _likes(liang(likes_of(pd.read_csv(path)), 5, 0, 10_000))


def million_songs(path: Path) -> Split:
    """Return the split of Liang et al. 2018: songs with 200 users, users with 20, 50,000 held out twice."""
    return _likes(liang(pd.read_csv(path, sep="\t", names=_COLUMNS), 20, 200, 50_000))


def _likes(parts: list[Ratings]) -> Split:
    train, fold_in, valid, history, target = parts
    return Split(train, history, {"recall@20": target}, (fold_in, valid))


def _ratings(table: pd.DataFrame, domain: Domain) -> Ratings:
    return Ratings.from_any(table.reset_index(drop=True), domain)
