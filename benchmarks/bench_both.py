"""Cost of the model for both jobs to either of them on MovieLens-1M (`make bench-both`).

RMSE on the 80/10/10 split by hashes; Recall@20 under strong generalisation, where a tenth of the users is
held out whole, folded in from 80% of their likes, ratings of 4 and 5, and judged on the rest. The model of
ratings alone and the model of lists alone are trained in the same run, with the whole budget. User level,
add/remove, delta 1e-5; means over noise draws. ``--validation`` judges on the validation ratings and on other
users, among those who train: the planned share was chosen there. Exit code 1 if a line falls short.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.bench_quality import DELTA, rmse
from benchmarks.frontier.data import LIKED, available, folder
from hushrec.data import Domain, Ratings, split_ratings, strong_generalization
from hushrec.evaluation import evaluate
from hushrec.models import Billboard
from hushrec.privacy import Accountant, Budget
from hushrec.registry import best
from hushrec.training.named import train

#: Where directions are counted.
SAMPLED = (0.25, 1.0, 5.0, 20.0)
#: By epsilon: RMSE at most so many times that of the model alone, Recall at least.
TARGETS = {1.0: (1.015, 0.94), 5.0: (1.01, 0.96), 20.0: (1.01, 0.96)}


class Task(NamedTuple):
    """Whom to train on, and how a model is judged."""

    train: Ratings
    figure: Callable[[Billboard], float]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=3, help="noise draws a figure (default 3)")
    parser.add_argument("--epsilon", type=float, choices=TARGETS, help="one of them")
    parser.add_argument("--share", type=float, action="append", help="part for lists; planned by default")
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--directions", action="store_true", help="how many lists learn, by users; no more")
    options = parser.parse_args()
    if not available("ml-1m"):
        print("MovieLens-1M skipped: set HUSHREC_DATA to a folder that holds ml-1m.parquet.")
        return
    domain = Domain(items=range(1, 3953), rating_range=(1, 5))
    ratings = Ratings.read(folder() / "ml-1m.parquet", domain)  # type: ignore[operator]
    if options.directions:
        directions(ratings)
        return
    tasks = {
        "ratings": of_errors(ratings, options.validation),
        "lists": of_lists(ratings, options.validation),
    }
    print("| epsilon | share for lists | RMSE | alone | ratio | Recall@20 | alone | ratio | |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    short = False
    for epsilon in [options.epsilon] if options.epsilon else TARGETS:
        alone = {job: mean(best(job, True), epsilon, task, options.draws) for job, task in tasks.items()}
        for share in options.share or [None]:
            settings = {} if share is None else {"lists_share": share}
            both = {job: mean("both", epsilon, task, options.draws, settings) for job, task in tasks.items()}
            ratios = [both[job] / alone[job] for job in tasks]
            most, least = TARGETS[epsilon]
            good = ratios[0] <= most and ratios[1] >= least
            short |= not good
            print(
                f"| {epsilon:g} | {'planned' if share is None else share} | {both['ratings']:.4f}"
                f" | {alone['ratings']:.4f} | {ratios[0]:.4f} (≤ {most:g}) | {both['lists']:.4f}"
                f" | {alone['lists']:.4f} | {ratios[1]:.4f} (≥ {least:g}) | {'PASS' if good else 'short'} |",
                flush=True,
            )
    sys.exit(short)


def directions(ratings: Ratings) -> None:
    """Directions of taste that the model of lists learns, of those that it looks for."""
    print("| users | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in SAMPLED) + " |")
    print("|---" * (1 + len(SAMPLED)) + "|", flush=True)
    for n_users in (100, 300, 900, 2500, 6000):
        chosen = np.random.default_rng(0).choice(ratings.n_users, n_users, replace=False)
        part, cells = ratings.rows(chosen, keyed=True), []
        for epsilon in SAMPLED:
            accountant = Accountant(Budget(epsilon, DELTA), data_is_public=True)
            model = train(best("lists", True), part, accountant, n_users=n_users)
            cells.append(f"{model.directions} of {model.estimator.get_params()['rank']}")
        print(f"| {n_users:,} | {' | '.join(cells)} |", flush=True)


def of_errors(ratings: Ratings, validation: bool) -> Task:
    """RMSE of users folded in from the other ratings."""
    part, valid, test = split_ratings(ratings, (0.8, 0.1, 0.1), seed=0)
    history, target = (part, valid) if validation else (part.union(valid), test)
    return Task(part, lambda model: rmse(model, history, target))


def of_lists(ratings: Ratings, validation: bool) -> Task:
    """Recall of users who did not train; all train with all their ratings."""
    others, liked = strong_generalization(ratings, 0.1, seed=0).train, ratings.liked(LIKED).rated()
    parts = strong_generalization(liked, 0.1, seed=0)
    if validation:
        others = strong_generalization(others, 1 / 9, seed=100).train
        parts = strong_generalization(parts.train, 1 / 9, seed=100)

    def recall(model: Billboard) -> float:
        found = evaluate(model, parts.fold_in, parts.target, metrics=["capped-recall"], resamples=0)
        return found["capped-recall@20"].value

    return Task(others, recall)


def mean(
    name: str, epsilon: float, task: Task, draws: int, settings: dict[str, float] | None = None
) -> float:
    """A figure, mean over noise draws; the number of users is declared."""
    found = []
    for draw in range(draws):
        accountant = Accountant(Budget(epsilon, DELTA), data_is_public=True)
        model = train(name, task.train, accountant, n_users=task.train.n_users, settings=settings, seed=draw)
        found.append(task.figure(model))
    return float(np.mean(found))


if __name__ == "__main__":
    main()
