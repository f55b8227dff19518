"""Compare `both` and `--for lists` with `popular` at the same budget, on dense and wide tables.

Ratings are split 80/20 by row. Recall@20 (capped) over held-out likes; unit user, add-remove, delta 1e-5.
Every draw has its own split and noise; all models of a draw share the split. The number of users is declared.
 PASS: neither model is below `popular` by more than 0.002, and `both` has at least 0.93 of `lists`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.frontier.data import folder
from hushrec.data import Domain, Ratings, split_ratings
from hushrec.evaluation import evaluate
from hushrec.privacy import Accountant, Budget
from hushrec.training.run import train

#: File, and the lowest and highest rating; None: likes without ratings.
TABLES: dict[str, tuple[str, tuple[float, float] | None]] = {
    "book-crossing": ("wide/book-crossing", (1, 10)),
    "ml-latest-small": ("wide/ml-latest-small", (0.5, 5)),
    "filmtrust": ("wide/filmtrust-part", (0.5, 4)),
    "retailrocket": ("wide/retailrocket-views", None),
    "coat": ("small/coat.train", (1, 5)),
    "flixster": ("small/flixster", (0.5, 5)),
    "restaurant": ("restaurant", (0, 2)),
    "ml-100k": ("ml-100k", (1, 5)),
    "yahoo-r3": ("yahoo-r3.train", (1, 5)),
    "jester": ("jester-1", (-10, 10)),
    "ml-1m": ("ml-1m", (1, 5)),
}
EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
DELTA = 1e-5
MOST_LOST, LEAST_OF_LISTS = 0.002, 0.93


@cache
def table(name: str) -> Ratings:
    """A table whose catalogue is the items of its file."""
    file, rating_range = TABLES[name]
    path = folder() / f"{file}.parquet"  # type: ignore[operator]
    items = np.unique(pq.read_table(path, columns=["item"])["item"].to_numpy()).tolist()
    domain = (
        Domain(items=items, rating_range=rating_range) if rating_range else Domain(items=items, likes=True)
    )
    return Ratings.read(path, domain)


@cache
def parts(name: str, draw: int) -> tuple[Ratings, Ratings, float | None]:
    """Training and held-out ratings, and from which rating up they are likes."""
    first, second = split_ratings(table(name), (0.8, 0.2), seed=draw)
    return first, second, None if first.domain.likes else first.domain.like_threshold


def recall(
    model: str, name: str, epsilon: float, draw: int, settings: Mapping[str, Any] | None = None
) -> float:
    """Capped Recall@20 of one training."""
    rows, held, least = parts(name, draw)
    learned = rows.liked(least).rated() if model == "popular" and least is not None else rows
    accountant = Accountant(Budget(epsilon, DELTA), data_is_public=True)
    board = train(model, learned, accountant, n_users=learned.n_users, settings=settings or {}, seed=draw)
    metric = "capped-recall"
    found = evaluate(board, rows, held, relevant_from=least, metrics=[metric], resamples=0)
    return found[f"{metric}@20"].value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--draws", type=int, default=10)
    options = parser.parse_args()
    print("| table | epsilon | popular | lists | both | lists - popular | both - popular | |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    short = 0
    for name in options.data:
        models = ["popular", "private-eigenrec"] + ["both"] * (TABLES[name][1] is not None)
        for epsilon in options.epsilons:
            found = np.array(
                [[recall(model, name, epsilon, draw) for model in models] for draw in range(options.draws)]
            )
            means, errors = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(options.draws)
            less = found - found[:, :1]
            spread = less.std(axis=0, ddof=1) / np.sqrt(options.draws) if options.draws > 1 else errors
            good = bool((less.mean(axis=0) >= -MOST_LOST).all() and means[-1] >= LEAST_OF_LISTS * means[1])
            short += not good
            cells = [f"{mean:.4f}" for mean in means] + ["–"] * (3 - len(models))
            cells += [f"{mean:+.4f} ± {error:.4f}" for mean, error in zip(less.mean(axis=0)[1:], spread[1:])]
            cells += ["–"] * (3 - len(models))
            print(
                f"| {name} | {epsilon:g} | {' | '.join(cells)} | {'PASS' if good else 'short'} |", flush=True
            )
    sys.exit(short > 0)


if __name__ == "__main__":
    main()
