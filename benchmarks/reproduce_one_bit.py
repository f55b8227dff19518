"""The experiments of "One-Bit Matrix Completion with Differential Privacy" again (`make reproduce-one-bit`).

Every mechanism at what it costs; "output, as printed" is Algorithm 4 with the epsilon that the paper prints,
whose true cost is that times the number of entries released. Real data come from the folder ``HUSHREC_DATA``
and are public: nothing is charged to a ledger. Tables go to the terminal, figures to ``--figures``.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from hushrec.algorithms import OneBitCompletion, UserLevelOneBit
from hushrec.data import Domain, Ratings, split_ratings
from hushrec.evaluation.one_bit import (
    auc,
    average_relative_error,
    completion_scores,
    log_loss,
    sign_accuracy,
)
from hushrec.privacy import Accountant, Budget

DELTA = 1e-6
EPSILONS = (1.0, 2.0, 4.0, 8.0)
LINKS = ("logistic", "probit")
PUBLISHED = "output, as printed"
MECHANISMS = ("input", "objective", "gradient", "output", PUBLISHED)

Table = dict[tuple[str, float], list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts: dict[str, Callable[[argparse.Namespace], None]] = {
        "cost": cost,
        "synthetic": synthetic,
        "ratios": ratios,
        "restaurant": restaurant,
        "movielens": movielens,
        "user": user_level,
    }
    parser.add_argument("--only", choices=list(parts), help="one part")
    parser.add_argument("--draws", type=int, default=40, help="draws of the synthetic data (default 40)")
    parser.add_argument("--figures", type=Path, help="folder for SVG figures")
    options = parser.parse_args()
    for name, part in parts.items():
        if options.only in (None, name):
            part(options)


# ---------------------------------------------------------------------- running a mechanism


def completion(mechanism: str, epsilon: float, ratings: Ratings, seed: int, **settings: Any) -> Any:
    """One run; epsilon is that of a label, or of an entry for Algorithm 4 as printed."""
    if mechanism == "gradient":
        settings |= {"nuclear_norm": None}
    if mechanism == PUBLISHED:
        mechanism = "output-published"
        settings |= {"entry_epsilon": epsilon, "n_users": ratings.n_users, "acknowledge_cost": True}
        epsilon *= ratings.n_users * ratings.n_items
    estimator = OneBitCompletion(mechanism=mechanism, **settings)
    budget = Budget(epsilon, DELTA, unit="rating", relation="replace")
    return estimator.complete(ratings, Accountant(budget, data_is_public=True), seed=seed)


def runs(link: str, epsilons: tuple[float, ...]) -> Iterator[tuple[str, float]]:
    yield "none", math.inf
    for mechanism in MECHANISMS:
        if not (mechanism == "objective" and link == "probit"):  # no proof, refused
            yield from ((mechanism, epsilon) for epsilon in epsilons)


def show(title: str, table: Table, figures: Path | None, measure: str) -> None:
    """Print a table of means and the standard error of each, and draw it."""
    epsilons = sorted({epsilon for _, epsilon in table if math.isfinite(epsilon)})
    names = list(dict.fromkeys(name for name, _ in table))
    print(f"\n**{title}** ({measure}; mean, standard error in brackets)\n")
    print("| mechanism | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " |")
    print("|---|" + "---|" * len(epsilons))
    for name in names:
        cells = [table.get((name, epsilon)) or table.get((name, math.inf)) or [] for epsilon in epsilons]
        print(f"| {name} | " + " | ".join(summary(values) for values in cells) + " |", flush=True)
    if figures is not None:
        draw(title, table, epsilons, names, figures, measure)


def summary(values: list[float]) -> str:
    if not values:
        return ""
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{np.mean(values):.3f} ({error:.3f})"


def draw(
    title: str, table: Table, epsilons: list[float], names: list[str], folder: Path, measure: str
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    for name in names:
        if (name, math.inf) in table:
            axes.axhline(float(np.mean(table[name, math.inf])), color="black", linestyle="--", linewidth=1)
            axes.annotate(name, (epsilons[-1], float(np.mean(table[name, math.inf]))), fontsize=8)
            continue
        means = [float(np.mean(table[name, epsilon])) for epsilon in epsilons]
        axes.plot(epsilons, means, marker="o", label=name)
    if measure == "relative error":
        axes.set_yscale("log")
    axes.set_xlabel("epsilon per rating (replace); Algorithm 4 as printed: per entry")
    axes.set_ylabel(measure)
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    name = "".join(letter if letter.isalnum() else "-" for letter in title.lower())
    figure.savefig(folder / f"one-bit-{name}.svg", metadata={"Date": None})


# ---------------------------------------------------------------------- section 5.1: synthetic data


def signs(seed: int, link: str, observed: float, size: int = 100) -> tuple[Ratings, np.ndarray]:
    """Signs of a rank-one matrix with largest entry 1 in absolute value, and the matrix."""
    rng = np.random.default_rng(seed)
    truth = np.outer(rng.uniform(-0.5, 0.5, size), rng.uniform(-0.5, 0.5, size))
    truth /= np.abs(truth).max()
    cells = rng.choice(size * size, round(observed * size * size), replace=False)
    rows, columns = cells // size, cells % size
    chance = (expit if link == "logistic" else ndtr)(truth[rows, columns])
    labels = (rng.random(len(cells)) < chance).astype(np.float64)
    ratings = Ratings.from_triples(rows, columns, labels, Domain(range(size), rating_range=(0, 1)))
    return ratings, truth[np.asarray(ratings.users, dtype=np.int64)]


def synthetic_table(
    link: str, observed: float, radius: float, draws: int, epsilons: tuple[float, ...]
) -> Table:
    table: Table = {}
    for draw_number in range(draws):
        ratings, truth = signs(draw_number, link, observed)
        published = {"solver": "dense", "offsets": False, "weighting": 0.0, "bound": 1.0, "tolerance": 1e-3}
        for run in runs(link, epsilons):
            done = completion(*run, ratings, draw_number, link=link, nuclear_norm=radius, **published)
            table.setdefault(run, []).append(average_relative_error(done.matrix(), truth))
    return table


def synthetic(options: argparse.Namespace) -> None:
    """100 x 100, rank 1, alpha 1, 15% observed."""
    for link, radius in itertools.product(LINKS, (1.0, 1 / 3)):
        which = "nuclear norm 100, as printed" if radius == 1 else "nuclear norm 33, that of the truth"
        table = synthetic_table(link, 0.15, radius, options.draws, EPSILONS)
        show(f"Synthetic 100 x 100, {link}, {which}", table, options.figures, "relative error")


def ratios(options: argparse.Namespace) -> None:
    """20% to 80% observed, at one epsilon."""
    draws = max(1, options.draws // 4)
    for link in LINKS:
        tables = {part: synthetic_table(link, part, 1 / 3, draws, (4.0,)) for part in (0.2, 0.4, 0.6, 0.8)}
        print(
            f"\n**Observation ratios, {link}, epsilon 4, nuclear norm 33** (relative error, {draws} draws)\n"
        )
        print("| mechanism | " + " | ".join(f"{part:.0%}" for part in tables) + " |\n|---|---|---|---|---|")
        for run in runs(link, (4.0,)):
            print(f"| {run[0]} | " + " | ".join(summary(table[run]) for table in tables.values()) + " |")


# ---------------------------------------------------------------------- what Algorithm 4 costs


def cost(options: argparse.Namespace) -> None:
    """Exact enumeration: all labels on the observed cells of a small matrix, all neighbours."""
    print("\n**What the published output perturbation costs** (largest change of the optimum by one label)\n")
    print("| matrix | observed | inputs | L1 change / 2 alpha = true epsilon for each printed one | bound |")
    print("|---|---|---|---|---|")
    for size in (2, 3, 4):
        cells = [(i, (i + shift) % size) for i in range(size) for shift in range(2)]
        rows, columns = zip(*cells)
        domain = Domain(range(size), rating_range=(0, 1))
        fit = OneBitCompletion.as_published(mechanism="none", tolerance=1e-9, iterations=500)
        optima = {}
        for labels in itertools.product((0.0, 1.0), repeat=len(rows)):
            ratings = Ratings.from_triples(rows, columns, labels, domain)
            budget = Budget(math.inf, DELTA, unit="rating", relation="replace")
            optima[labels] = fit.complete(ratings, Accountant(budget)).matrix()
        worst = max(
            np.abs(one - optima[(*labels[:place], 1 - labels[place], *labels[place + 1 :])]).sum()
            for labels, one in optima.items()
            for place in range(len(labels))
        )
        print(f"| {size} x {size} | {len(rows)} | {len(optima)} | {worst / 2:.2f} | {size * size} |")
    moves = []
    for seed in range(5):
        ratings, _ = signs(seed, "logistic", 0.15, 40)
        fit = OneBitCompletion.as_published(mechanism="none", tolerance=1e-8, iterations=500)
        budget = Budget(math.inf, DELTA, unit="rating", relation="replace")
        before = fit.complete(ratings, Accountant(budget)).matrix()
        ratings.matrix.data[seed] = 1 - ratings.matrix.data[seed]
        after = fit.complete(ratings, Accountant(budget)).matrix()
        moves.append(np.abs(before - after).sum() / 2)
    listed = ", ".join(f"{move:.1f}" for move in moves)
    print(f"| 40 x 40 | 240 | 5 single flips | {listed} | 1600 |", flush=True)


# ---------------------------------------------------------------------- real data


def data(*names: str) -> list[Path] | None:
    folder = Path(os.environ.get("HUSHREC_DATA", ""))
    paths = [folder / name for name in names]
    if not os.environ.get("HUSHREC_DATA") or not all(path.exists() for path in paths):
        print(f"\n{names[0]} skipped: set HUSHREC_DATA to a folder that holds it.")
        return None
    return paths


def rates(train: Ratings, test: Ratings, threshold: float) -> np.ndarray:
    """Baseline: a user's rate of likes plus an item's, each shrunk to the overall one, less that."""
    matrix = train.matrix
    rows = np.repeat(np.arange(train.n_users), np.diff(matrix.indptr))
    liked = (matrix.data > threshold).astype(np.float64)
    overall, prior = liked.mean(), 5.0

    def rate(groups: np.ndarray, count: int) -> np.ndarray:
        seen = np.bincount(groups, minlength=count)
        return (np.bincount(groups, liked, minlength=count) + prior * overall) / (seen + prior)

    users = np.repeat(train.user_index(test.users), np.diff(test.matrix.indptr))
    mine = np.where(users >= 0, rate(rows, train.n_users)[np.maximum(users, 0)], overall)
    return mine + rate(matrix.indices, train.n_items)[test.matrix.indices] - overall - 0.5


def real_table(splits: list[tuple[Ratings, Ratings]], link: str, threshold: float, **settings: Any) -> Table:
    table: Table = {}
    for number, (train, test) in enumerate(splits):
        liked = test.matrix.data > threshold
        baseline = sign_accuracy(rates(train, test, threshold), liked)
        table.setdefault(("user rate plus item rate", math.inf), []).append(baseline)
        for run in runs(link, EPSILONS):
            done = completion(*run, train, number, link=link, threshold=threshold, **settings)
            scores = completion_scores(done, train, test)
            table.setdefault(run, []).append(sign_accuracy(scores, liked))
    return table


def movielens(options: argparse.Namespace) -> None:
    """ML-100K, published splits u1 to u5, threshold 3.5."""
    names = [f"ml-100k-splits/u{k}.{part}.parquet" for k in range(1, 6) for part in ("base", "test")]
    paths = data(*names)
    if paths is None:
        return
    domain = Domain(range(1, 1683), rating_range=(1, 5))
    parts = [Ratings.read(path, domain) for path in paths]
    splits = list(zip(parts[::2], parts[1::2]))
    for link in LINKS:
        start = time.perf_counter()
        table = real_table(splits, link, 3.5)
        show(f"ML-100K, u1 to u5, {link}", table, options.figures, "sign accuracy")
        print(f"\n{time.perf_counter() - start:.0f} s")
    losses, areas = [], []
    for number, (train, test) in enumerate(splits):
        done = completion("none", math.inf, train, number, threshold=3.5)
        scores, liked = completion_scores(done, train, test), test.matrix.data > 3.5
        losses.append(log_loss(scores, liked))
        areas.append(auc(scores, liked))
    print(f"\nWithout privacy, logistic: log loss {summary(losses)}, AUC {summary(areas)}")


def restaurant(options: argparse.Namespace) -> None:
    """RC: 8:2 splits, 10 of them; 2 stars against 0 and 1."""
    paths = data("restaurant.parquet")
    if paths is None:
        return
    import pyarrow.parquet as pq

    items = np.unique(pq.read_table(paths[0], columns=["item"])["item"].to_numpy())  # public data
    ratings = Ratings.read(paths[0], Domain(items.tolist(), rating_range=(0, 2)))
    splits = [split_ratings(ratings, (0.8, 0.2), seed=seed) for seed in range(10)]
    for link in LINKS:
        table = real_table(splits, link, 1.5)
        show(f"RC, 8 to 2, {link}", table, options.figures, "sign accuracy")


def user_level(options: argparse.Namespace) -> None:
    """Beyond the paper: whole users protected, ML-1M, 9:1, epsilon per user."""
    paths = data("ml-1m.parquet")
    if paths is None:
        return
    domain = Domain(range(1, 3953), rating_range=(1, 5))
    train, test = split_ratings(Ratings.read(paths[0], domain), (0.9, 0.1), seed=0)
    liked = test.matrix.data > 3.5
    print("\n**User-level privacy, ML-1M, 9:1** (add-remove, delta 1e-6; 3 noise draws)\n")
    print(
        "| model | epsilon per user | sign accuracy | log loss | AUC | seconds |\n|---|---|---|---|---|---|"
    )
    majority = {"rank": 0, "features": False, "iterations": 0, "bias_rounds": 0}
    one_release = majority | {"bias_rounds": 1}
    models = [("user majority", majority), ("user majority plus private item log-odds", one_release)]
    for epsilon in (1.0, 5.0, 10.0):
        budget = Budget(epsilon, DELTA)
        for name, settings in [*models, ("user-level one-bit", {})]:
            estimator = UserLevelOneBit.planned(budget, domain, 6040, threshold=3.5, **settings)
            figures, start = [], time.perf_counter()
            for seed in range(3):
                board = estimator.fit(train, Accountant(budget, data_is_public=True), seed=seed)
                scores = board.predict_pairs(train, test)
                figures.append((sign_accuracy(scores, liked), log_loss(scores, liked), auc(scores, liked)))
            seconds = (time.perf_counter() - start) / 3
            row = " | ".join(f"{value:.4f}" for value in np.mean(figures, axis=0))
            print(f"| {name} | {epsilon:g} | {row} | {seconds:.0f} |", flush=True)
    start = time.perf_counter()
    scores = completion_scores(completion("none", math.inf, train, 0, threshold=3.5), train, test)
    row = f"{sign_accuracy(scores, liked):.4f} | {log_loss(scores, liked):.4f} | {auc(scores, liked):.4f}"
    print(f"| one-bit, no privacy | inf | {row} | {time.perf_counter() - start:.0f} |")
    baseline = sign_accuracy(rates(train, test, 3.5), liked)
    print(f"| user rate plus item rate, no privacy | inf | {baseline:.4f} | | | |", flush=True)


if __name__ == "__main__":
    main()
