"""The data sets of the comparison, each split once; real ones come from the folder HUSHREC_DATA."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.harness import TOY, folder
from benchmarks.matrices import dpals_matrix
from hushrec.data import Domain, Ratings, realistic, split_ratings, strong_generalization

#: Ratings from here up are likes.
LIKED = 4.0


@dataclass(frozen=True, eq=False)
class Split:
    """Ratings that a method is trained on, and those that it is judged by.

    Attributes
    ----------
    train : Ratings
        The private rows of the training.
    history : Ratings
        Ratings that users are folded in from for the test.
    targets : mapping of metric name to Ratings
        Held-out ratings; the first is the main one.
    validation : (history, target)
        To choose settings by.
    """

    train: Ratings
    history: Ratings
    targets: Mapping[str, Ratings]
    validation: tuple[Ratings, Ratings]


@dataclass(frozen=True)
class DataSet:
    """A data set by its name.

    Attributes
    ----------
    title : str
        In tables and figures.
    files : tuple of str
        In HUSHREC_DATA.
    load : callable
        Reads and splits it, by a seed.
    kind : {"ratings", "items"}
        Judged by RMSE, or by Recall@20 and NDCG@20.
    about : str
        Protocol, in a sentence.
    cap : int
        Ratings of a user that Frank-Wolfe and the like use (the paper's xi).
    metrics : tuple of str
        The main one first.
    low_rank : bool
        Generated without biases or noise.
    draws : int
        Times as many draws of our models and the baselines: with few users, noise differs more.
    """

    title: str
    load: Callable[[int], Split]
    files: tuple[str, ...] = ()
    kind: str = "ratings"
    about: str = ""
    cap: int = 80
    metrics: tuple[str, ...] = ("rmse",)
    low_rank: bool = False
    draws: int = 1


def available(name: str) -> bool:
    """Return whether all files of a data set are there."""
    files = DATASETS[name].files
    return not files or (folder() is not None and all((folder() / file).exists() for file in files))


@lru_cache(maxsize=2)
def split(name: str) -> Split:
    """A data set's split, by its name, ``name@part of the users``, ``name/seed of the split``,
    ``shape:users:items:ratings`` or ``low-rank:users:items``."""
    if name in DATASETS:
        return DATASETS[name].load(0)
    if "/" in name:
        whole, seed = name.split("/")
        return DATASETS[whole].load(int(seed))
    if "@" in name:
        whole, part = name.split("@")
        parts = split(whole)
        kept = np.random.default_rng(0).random(parts.train.n_users) < float(part)
        return replace(parts, train=parts.train.rows(kept))
    kind, *sizes = name.split(":")
    numbers = [int(size) for size in sizes]
    generated = realistic(*numbers, seed=0) if kind == "shape" else dpals_matrix(*numbers, seed=0).ratings
    return by_ratings(generated)


def by_ratings(ratings: Ratings, seed: int = 0) -> Split:
    """80/10/10 of the ratings by their hashes; the test's history is training and validation part."""
    train, valid, test = split_ratings(ratings, (0.8, 0.1, 0.1), seed=seed)
    return Split(train, train.union(valid), {"rmse": test}, (train, valid))


def read(
    file: str, domain: Domain, rescale: Callable[[np.ndarray], np.ndarray] = lambda ratings: ratings
) -> Ratings:
    """Ratings of one file."""
    table = pq.read_table(folder() / file, columns=["user", "item", "rating"])  # type: ignore[operator]
    users, items, values = (table[each].to_numpy() for each in table.column_names)
    return Ratings.from_any((users, items, rescale(values.astype(np.float64))), domain)


def _movielens(file: str, n_items: int, seed: int) -> Split:
    return by_ratings(read(file, Domain(items=range(1, n_items + 1), rating_range=(1, 5))), seed)


def _jester(seed: int) -> Split:
    domain = Domain(items=range(1, 101), rating_range=(0, 5))
    return by_ratings(read("jester-1.parquet", domain, lambda rating: (rating + 10) / 4), seed)


def _yahoo(seed: int) -> Split:
    domain = Domain(items=range(1, 1001), rating_range=(1, 5))
    parts = by_ratings(read("yahoo-r3.train.parquet", domain), seed)
    random = read("yahoo-r3.random.parquet", domain)
    return Split(parts.train, parts.history, {**parts.targets, "rmse random": random}, parts.validation)


def _of_file(file: str, rating_range: tuple[float, float], seed: int) -> Split:
    """A catalogue of the file's own items: the data are public."""
    items = pc.unique(pq.read_table(folder() / file, columns=["item"])["item"])  # type: ignore[operator]
    domain = Domain(items=sorted(items.to_pylist()), rating_range=rating_range)
    return by_ratings(read(file, domain), seed)


def _synthetic(seed: int) -> Split:
    sizes = (300, 60) if TOY else (20_000, 1_000)
    return by_ratings(dpals_matrix(*sizes, seed=0).ratings, seed)


def kind_of(name: str) -> str:
    """Judged by what: see `DataSet`."""
    known = DATASETS.get(name.partition("/")[0])
    return known.kind if known else "ratings"


def _likes(file: str, n_items: int, seed: int) -> Split:
    """Strong generalisation: a tenth of the users is held out, and folded in from 80% of their likes."""
    table = pq.read_table(folder() / file, columns=["user", "item", "rating"])  # type: ignore[operator]
    likes = table.filter(pc.greater_equal(table["rating"], LIKED))
    domain = Domain(items=range(1, n_items + 1), rating_range=(0, 1))
    ratings = Ratings.from_any(likes, domain, implicit=True)
    test = strong_generalization(ratings, 0.1, seed=seed)
    valid = strong_generalization(test.train, 1 / 9, seed=100)
    return Split(test.train, test.fold_in, {"recall@20": test.target}, (valid.fold_in, valid.target))


def _published(loader: str, file: str) -> Split:
    """A table that is read as distributed, over the published split, for any seed."""
    from benchmarks.frontier import published

    split_of: Callable[[Path], Split] = getattr(published, loader)
    return split_of(folder() / file)  # type: ignore[operator]


_RATINGS = (
    "80/10/10 by a hash of user and item (seed 0); users are folded in from training and validation part."
)
_ITEMS = (
    "Likes: ratings of 4 or 5. A tenth of the users is held out, folded in from 80% of their likes, and"
    " judged on the rest; the others train."
)

_GENERALIZED = "Likes; test users fold in 80% of theirs. Split as published by Liang et al. 2018, seed 98765."

DATASETS: dict[str, DataSet] = {
    "ml-100k": DataSet(
        "MovieLens-100K (943 users, 1,682 items)",
        lambda seed: _movielens("ml-100k.parquet", 1682, seed),
        ("ml-100k.parquet",),
        about=_RATINGS,
        draws=4,
    ),
    "ml-1m": DataSet(
        "MovieLens-1M (6,040 users, catalogue of 3,952)",
        lambda seed: _movielens("ml-1m.parquet", 3952, seed),
        ("ml-1m.parquet",),
        about=_RATINGS,
    ),
    "ml-10m": DataSet(
        "MovieLens-10M (69,878 users, 10,677 items)",
        lambda seed: _published("movielens_10m", "ml-10M100K/ratings.dat"),
        ("ml-10M100K/ratings.dat",),
        about="80/10/10 of the ratings: the published split of Chien et al. 2021, seed 1234.",
    ),
    "jester": DataSet(
        "Jester part 1 (24,983 users, 100 items, rescaled to 0–5)",
        _jester,
        ("jester-1.parquet",),
        about=_RATINGS,
        cap=100,
    ),
    "yahoo-r3": DataSet(
        "Yahoo! R3 (15,400 users, 1,000 items)",
        _yahoo,
        ("yahoo-r3.train.parquet", "yahoo-r3.random.parquet"),
        about=_RATINGS
        + " Trained on self-selected ratings; judged on held-out ones and on those of random songs.",
        metrics=("rmse", "rmse random"),
    ),
    "coat": DataSet(
        "Coat (290 users, 300 items)",
        lambda seed: _of_file("small/coat.train.parquet", (1, 5), seed),
        ("small/coat.train.parquet",),
        about=_RATINGS,
        draws=4,
    ),
    "flixster": DataSet(
        "Flixster, a part",
        lambda seed: _of_file("small/flixster.parquet", (0.5, 5), seed),
        ("small/flixster.parquet",),
        about=_RATINGS,
        draws=4,
    ),
    "restaurant": DataSet(
        "Restaurants (0 to 2)",
        lambda seed: _of_file("restaurant.parquet", (0, 2), seed),
        ("restaurant.parquet",),
        about=_RATINGS,
        draws=4,
    ),
    "synthetic": DataSet(
        "Synthetic (20,000 users, 1,000 items, rank 5, unit variance)",
        _synthetic,
        about="DPALS's protocol: 20 ln(n)/m of the cells observed, declared range −8 to 8. " + _RATINGS,
        cap=200,
        low_rank=True,
    ),
    "ml-100k-likes": DataSet(
        "Likes of MovieLens-100K",
        lambda seed: _likes("ml-100k.parquet", 1682, seed),
        ("ml-100k.parquet",),
        "items",
        _ITEMS,
        metrics=("recall@20", "ndcg@20"),
    ),
    "ml-1m-likes": DataSet(
        "Likes of MovieLens-1M",
        lambda seed: _likes("ml-1m.parquet", 3952, seed),
        ("ml-1m.parquet",),
        "items",
        _ITEMS,
        metrics=("recall@20", "ndcg@20"),
    ),
    "ml-20m-likes": DataSet(
        "Likes of MovieLens-20M",
        lambda seed: _published("movielens_20m", "ml-20m/ratings.csv"),
        ("ml-20m/ratings.csv",),
        "items",
        _GENERALIZED,
        metrics=("recall@20", "ndcg@20"),
    ),
    "msd-likes": DataSet(
        "Plays of the Million Song Dataset",
        lambda seed: _published("million_songs", "train_triplets.txt"),
        ("train_triplets.txt",),
        "items",
        _GENERALIZED,
        metrics=("recall@20", "ndcg@20"),
    ),
}


def size(parts: Split) -> float:
    """Root of users times items: what nuclear norms are measured by."""
    return math.sqrt(parts.train.n_users * parts.train.n_items)
