"""Compare `both` and `--for lists` with `popular` at the same budget, on dense and wide tables.

Ratings are split 80/20 by row. Recall@20 (capped) over held-out likes; unit user, add-remove, delta 1e-5.
Every draw has its own split and noise, and the models of a draw share the split. The number of users is
declared. PASS: neither model is below `popular` by more than 0.002, and `both` has at least 0.93 of `lists`.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.harness import DELTA, TABLES, TOY, Targets, table, there
from hushrec.data import split_ratings
from hushrec.evaluation import evaluate
from hushrec.privacy import Accountant, Budget
from hushrec.training.named import train

EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
MOST_LOST, LEAST_OF_LISTS = 0.002, 0.93


def recall(model: str, name: str, epsilon: float, draw: int) -> float:
    """Capped Recall@20 of one training."""
    rows, held = split_ratings(table(name), (0.8, 0.2), seed=draw)
    least = None if rows.domain.likes else rows.domain.like_threshold
    learned = rows.liked(least).rated() if model == "popular" and least is not None else rows
    accountant = Accountant(Budget(epsilon, DELTA), data_is_public=True)
    board = train(model, learned, accountant, n_users=learned.n_users, seed=draw)
    found = evaluate(board, rows, held, relevant_from=least, metrics=["capped-recall"], resamples=0)
    return found["capped-recall@20"].value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS[:1] if TOY else EPSILONS)
    parser.add_argument("--draws", type=int, default=1 if TOY else 10)
    options, targets = parser.parse_args(), Targets()
    for name in filter(there, options.data):
        models = ["popular", "private-eigenrec"] + ["both"] * (TABLES[name][1] is not None)
        for epsilon in options.epsilons:
            draws = range(options.draws)
            found = np.array([[recall(model, name, epsilon, draw) for model in models] for draw in draws])
            means, gains = found.mean(axis=0), found - found[:, :1]
            spread = gains.std(axis=0, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0 * means
            good = (gains.mean(axis=0) >= -MOST_LOST).all() and means[-1] >= LEAST_OF_LISTS * means[1]
            cells = [f"popular {means[0]:.4f}"]
            cells += [
                f"{model} {mean:.4f} ({mean - means[0]:+.4f} ± {error:.4f})"
                for model, mean, error in zip(models[1:], means[1:], spread[1:])
            ]
            targets.line(good, f"{name}, epsilon {epsilon:g}, Recall@20: {', '.join(cells)}")
    targets.exit()


if __name__ == "__main__":
    main()
