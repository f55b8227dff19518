"""Repeat the experiments of "One-Bit Matrix Completion with Differential Privacy".

Every mechanism at its true cost; "output, as printed" is Algorithm 4 with the epsilon that the paper
prints; the true cost is that times the number of released entries. Real data come from the folder
``HUSHREC_DATA``
and are public: nothing is charged to a ledger. The output is the results section of docs/papers/one-bit.md;
figures go to ``--figures``. Noise is the system's, so figures differ from run to run by their error.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: threads slow small matrices down

import argparse
import itertools
import math
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from benchmarks.harness import OUTPUT, TOY, folder
from hushrec.checks import settings_of
from hushrec.data import Domain, Ratings, split_ratings
from hushrec.evaluation.one_bit import (
    auc,
    log_loss,
    sign_accuracy,
)
from hushrec.models import UserLevelOneBit
from hushrec.papers.one_bit import OneBitCompletion, completion_scores
from hushrec.privacy import Accountant, Budget

DELTA = 1e-6
EPSILONS = (1.0, 10.0) if TOY else (1.0, 2.0, 4.0, 10.0)
LINKS = ("logistic", "probit")
PUBLISHED = "output, as printed"
RADII = {1.0: "nuclear norm 100, as printed", 1 / 3: "nuclear norm 33, that of the truth"}
RATES = "user rate plus item rate, no privacy"
MECHANISMS = ("input", "objective", "gradient", "output", PUBLISHED)

Table = dict[tuple[str, float], list[float]]


def gathered(draw: Callable[[int], Table], count: int, jobs: int) -> Table:
    """The tables of some draws as one, in the order of the draws."""
    if jobs == 1:
        tables = list(map(draw, range(count)))
    else:
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
            tables = list(pool.map(draw, range(count)))
    keys = dict.fromkeys(key for table in tables for key in table)
    return {key: [value for table in tables for value in table.get(key, [])] for key in keys}


# ---------------------------------------------------------------------- running a mechanism


def completion(mechanism: str, epsilon: float, ratings: Ratings, seed: int, **settings: Any) -> Any:
    """One run; epsilon is that of a label, or of an entry for Algorithm 4 as printed."""
    if mechanism == "gradient":
        settings |= {"nuclear_norm": None}
    if mechanism == PUBLISHED:
        mechanism = "output-published"
        settings |= {"entry_epsilon": epsilon, "n_users": ratings.n_users, "acknowledge_cost": True}
        epsilon *= ratings.n_users * ratings.n_items
    estimator = OneBitCompletion.of(mechanism=mechanism, **settings)
    budget = Budget(epsilon, DELTA, unit="rating", relation="replace")
    return estimator.complete(ratings, Accountant(budget, data_is_public=True), seed=seed)


def runs(link: str, epsilons: tuple[float, ...]) -> Iterator[tuple[str, float]]:
    yield "none", math.inf
    for mechanism in MECHANISMS:
        if not (mechanism == "objective" and link == "probit"):  # no proof, refused
            yield from ((mechanism, epsilon) for epsilon in epsilons)


def show(
    title: str, words: str, table: Table, entries: int, options: argparse.Namespace, measure: str
) -> None:
    """Print a table of means and the standard error of each, and draw it.

    Algorithm 4 as printed is listed at the epsilon of an entry, with its number of entries; it is not drawn.
    """
    epsilons = sorted({epsilon for _, epsilon in table if math.isfinite(epsilon)})
    names = list(dict.fromkeys(name for name, _ in table))
    print(f"\n### {title}: {measure}\n{words}\n")
    print("| mechanism | no noise | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " |")
    print("|---|---|" + "---|" * len(epsilons))
    for name in names:
        cells = [table.get((name, epsilon), []) for epsilon in (math.inf, *epsilons)]
        print(f"| {label(name, entries)} | " + " | ".join(summary(values) for values in cells) + " |")
    if options.figures is not None:
        stem = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -")
        path = options.figures / f"one-bit-{'-'.join(stem.split())}.svg"
        draw(title, table, epsilons, [name for name in names if name != PUBLISHED], path, measure)
        print(f"\n![{title}: {measure}](figures/{path.name})")
    sys.stdout.flush()


def label(name: str, entries: int) -> str:
    if name == PUBLISHED:
        return f"{name} (costs {entries:,} times that)"
    return "no privacy" if name == "none" else name


def summary(values: list[float]) -> str:
    """Mean and its standard error."""
    if not values:
        return ""
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{np.mean(values):.3f} ({error:.3f})"


def draw(title: str, table: Table, epsilons: list[float], names: list[str], path: Path, measure: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    for style, name in zip(("--", ":"), (name for name in names if (name, math.inf) in table)):
        level = float(np.mean(table[name, math.inf]))
        axes.axhline(level, color="black", linestyle=style, linewidth=1, label=label(name, 0))
    for marker, name in zip("osD^v", (name for name in names if (name, math.inf) not in table)):
        values = np.array([table[name, epsilon] for epsilon in epsilons])
        means, errors = values.mean(1), values.std(1, ddof=1) / math.sqrt(values.shape[1])
        axes.errorbar(epsilons, means, errors, marker=marker, markersize=4, label=name)
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.set_xlabel("epsilon (unit rating, relation replace)")
    axes.set_ylabel(measure)
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


# ---------------------------------------------------------------------- section 5.1: synthetic data


def signs(
    seed: int, link: str, observed: float, size: int = 20 if TOY else 100
) -> tuple[Ratings, np.ndarray]:
    """Signs of a rank-one matrix with largest entry 1 in absolute value, and the matrix."""
    rng = np.random.default_rng(seed)
    truth = np.outer(rng.uniform(-0.5, 0.5, size), rng.uniform(-0.5, 0.5, size))
    truth /= np.abs(truth).max()
    cells = rng.choice(size * size, round(observed * size * size), replace=False)
    rows, columns = cells // size, cells % size
    chance = (expit if link == "logistic" else ndtr)(truth[rows, columns])
    labels = (rng.random(len(cells)) < chance).astype(np.float64)
    ratings = Ratings.from_any((rows, columns, labels), Domain(range(size), rating_range=(0, 1)))
    return ratings, truth[np.asarray(ratings.users, dtype=np.int64)]


def synthetic_draw(
    link: str, observed: float, radius: float, epsilons: tuple[float, ...], number: int
) -> Table:
    """Relative error of every mechanism on one draw."""
    ratings, truth = signs(number, link, observed)
    published = OneBitCompletion.as_published(link=link, nuclear_norm=radius)
    names = ("solver", "offsets", "weighting", "bound", "tolerance")
    settings = {name: settings_of(published)[name] for name in names}
    table: Table = {}
    for run in runs(link, epsilons):
        done = completion(*run, ratings, number, link=link, nuclear_norm=radius, **settings)
        table[run] = [((done.matrix() - truth) ** 2).sum() / (truth**2).sum()]
    return table


def synthetic(options: argparse.Namespace) -> None:
    """100 x 100, rank 1, alpha 1, 15% observed."""
    for link, (radius, which) in itertools.product(LINKS, RADII.items()):
        table = gathered(partial(synthetic_draw, link, 0.15, radius, EPSILONS), options.draws, options.jobs)
        words = (
            f"Rank 1, alpha 1, 15% observed, {options.draws} draws; mean, standard error in brackets."
            " Gradient: nuclear norm 10."
        )
        show(f"Synthetic 100 x 100, {link}, {which}", words, table, 10_000, options, "relative error")


def ratios(options: argparse.Namespace) -> None:
    """20% to 80% observed, at one epsilon."""
    draws, parts = max(1, options.draws // 4), (0.2, 0.4, 0.6, 0.8)
    print("\n### Observation ratios, epsilon 4: relative error")
    print(f"{RADII[1 / 3].capitalize()}, {draws} draws; mean, standard error in brackets.\n")
    print("| mechanism | " + " | ".join(f"{part:.0%}" for part in parts) + " |\n|---|---|---|---|---|")
    for link in LINKS:
        runners = [partial(synthetic_draw, link, part, 1 / 3, (4.0,)) for part in parts]
        tables = [gathered(runner, draws, options.jobs) for runner in runners]
        print(f"| *{link}* | | | | |")
        for run in tables[0]:
            row = " | ".join(summary(table[run]) for table in tables)
            print(f"| {label(run[0], 10_000)} | {row} |", flush=True)


# ---------------------------------------------------------------------- what Algorithm 4 costs


def cost(options: argparse.Namespace) -> None:
    """Exact enumeration: all labels on the observed cells of a small matrix, all neighbours."""
    print("\n### What the published output perturbation costs")
    print("L1 change of the optimum by one label, over 2 alpha: the actual over the printed epsilon.\n")
    print("| matrix | observed | inputs | actual epsilon for a printed epsilon of 1 | bound |")
    print("|---|---|---|---|---|")
    for size in (2, 3) if TOY else (2, 3, 4):
        cells = [(i, (i + shift) % size) for i in range(size) for shift in range(2)]
        rows, columns = zip(*cells)
        domain = Domain(range(size), rating_range=(0, 1))
        fit = OneBitCompletion.as_published(mechanism="none", tolerance=1e-9, iterations=500)
        optima = {}
        for labels in itertools.product((0.0, 1.0), repeat=len(rows)):
            ratings = Ratings.from_any((rows, columns, labels), domain)
            budget = Budget(math.inf, DELTA, unit="rating", relation="replace")
            optima[labels] = fit.complete(ratings, Accountant(budget)).matrix()
        worst = max(
            np.abs(one - optima[(*labels[:place], 1 - labels[place], *labels[place + 1 :])]).sum()
            for labels, one in optima.items()
            for place in range(len(labels))
        )
        print(f"| {size} x {size} | {len(rows)} | {len(optima)} | {worst / 2:.2f} | {size * size} |")
    moves = []
    for seed in range(1 if TOY else 5):
        ratings, _ = signs(seed, "logistic", 0.15, 10 if TOY else 40)
        fit = OneBitCompletion.as_published(mechanism="none", tolerance=1e-8, iterations=500)
        budget = Budget(math.inf, DELTA, unit="rating", relation="replace")
        before = fit.complete(ratings, Accountant(budget)).matrix()
        ratings.matrix.data[seed] = 1 - ratings.matrix.data[seed]
        after = fit.complete(ratings, Accountant(budget)).matrix()
        moves.append(np.abs(before - after).sum() / 2)
    listed = ", ".join(f"{move:.1f}" for move in moves)
    print(f"| 40 x 40 | 240 | 5 single flips | {listed} | 1600 |", flush=True)


# ---------------------------------------------------------------------- real data


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


def real_draw(splits: list[tuple[Ratings, Ratings]], link: str, threshold: float, number: int) -> Table:
    """Sign accuracy of the baseline and of every mechanism on one split."""
    train, test = splits[number % len(splits)]
    liked = test.matrix.data > threshold
    table: Table = {(RATES, math.inf): [sign_accuracy(rates(train, test, threshold), liked)]}
    for run in runs(link, EPSILONS):
        done = completion(*run, train, number, link=link, threshold=threshold)
        scores = completion_scores(done, train, test)
        table[run] = [sign_accuracy(scores, liked)]
        if run[0] == "none":
            losses = [log_loss(scores, liked, link)], [auc(scores, liked)]
            table["log loss", 0.0], table["AUC", 0.0] = losses
    return table


def real(title: str, words: str, splits: Any, threshold: float, options: argparse.Namespace) -> None:
    """Ten runs on some splits, both links."""
    entries = splits[0][0].n_users * splits[0][0].n_items
    for link in LINKS:
        table = gathered(partial(real_draw, splits, link, threshold), 1 if TOY else 10, options.jobs)
        losses, areas = (summary(table.pop(key)) for key in [k for k in table if not k[1]])
        extra = f" Without privacy: log loss {losses}, AUC {areas}."
        show(f"{title}, {link}", words + extra, table, entries, options, "sign accuracy")


def movielens(options: argparse.Namespace) -> None:
    """ML-100K, published splits u1 to u5, threshold 3.5."""
    names = [f"ml-100k-splits/u{k}.{part}.parquet" for k in range(1, 6) for part in ("base", "test")]
    paths = data(*names)
    if paths is None:
        return
    parts = [Ratings.from_any(path, Domain(range(1, 1683), rating_range=(1, 5))) for path in paths]
    words = "Threshold 3.5; 2 noise draws on each published split; mean, standard error in brackets."
    real("ML-100K, u1 to u5", words, list(zip(parts[::2], parts[1::2])), 3.5, options)


def restaurant(options: argparse.Namespace) -> None:
    """RC: 8:2 splits, 10 of them; 2 stars against 0 and 1."""
    paths = data("restaurant.parquet")
    if paths is None:
        return
    import pyarrow.parquet as pq

    items = np.unique(pq.read_table(paths[0], columns=["item"])["item"].to_numpy())  # public data
    ratings = Ratings.from_any(paths[0], Domain(items.tolist(), rating_range=(0, 2)))
    splits = [split_ratings(ratings, (0.8, 0.2), seed=seed) for seed in range(10)]
    words = "2 against 0 and 1; 10 random splits; mean, standard error in brackets."
    real("RC, 8 to 2", words, splits, 1.5, options)


def user_level(options: argparse.Namespace) -> None:
    """Beyond the paper: whole users protected, ML-1M, 9:1, epsilon per user."""
    paths = data("ml-1m.parquet")
    if paths is None:
        return
    domain = Domain(range(1, 3953), rating_range=(1, 5))
    train, test = split_ratings(Ratings.from_any(paths[0], domain), (0.9, 0.1), seed=0)
    liked = test.matrix.data > 3.5
    print("\n### Beyond the paper: whole users protected, ML-1M, 9 to 1")
    print("Unit user, add-remove, delta 1e-6; mean of 3 noise draws.\n")
    print("| model | epsilon per user | sign accuracy | log loss | AUC |\n|---|---|---|---|---|")
    majority = {"rank": 0, "features": False, "iterations": 0, "bias_rounds": 0}
    one_release = majority | {"bias_rounds": 1}
    models = [("user majority", majority), ("user majority plus private item log-odds", one_release)]
    for epsilon in (5.0,) if TOY else (1.0, 5.0, 10.0):
        budget = Budget(epsilon, DELTA)
        for name, settings in [*models, ("`one-bit-user`", {})]:
            estimator = UserLevelOneBit.planned(budget, domain, 6040, threshold=3.5, **settings)
            figures = []
            for seed in range(3):
                model = estimator.fit(train, Accountant(budget, data_is_public=True), seed=seed)
                scores = model.predict_pairs(train, test)
                figures.append((sign_accuracy(scores, liked), log_loss(scores, liked), auc(scores, liked)))
            row = " | ".join(f"{value:.4f}" for value in np.mean(figures, axis=0))
            print(f"| {name} | {epsilon:g} | {row} |", flush=True)
    scores = completion_scores(completion("none", math.inf, train, 0, threshold=3.5), train, test)
    row = f"{sign_accuracy(scores, liked):.4f} | {log_loss(scores, liked):.4f} | {auc(scores, liked):.4f}"
    print(f"| `one-bit` without privacy | inf | {row} |")
    baseline = sign_accuracy(rates(train, test, 3.5), liked)
    print(f"| {RATES} | inf | {baseline:.4f} | | |", flush=True)


def data(*names: str) -> list[Path] | None:
    home = folder()
    if home is None or not all((home / name).exists() for name in names):
        print(f"\n{names[0]} skipped: set HUSHREC_DATA to a folder that holds it.")
        return None
    return [home / name for name in names]


PARTS = (movielens, restaurant, synthetic, ratios, cost, user_level)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = [part.__name__ for part in PARTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--draws", type=int, default=1 if TOY else 40, help="draws of the synthetic data")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the draws")
    parser.add_argument("--figures", type=Path, default=OUTPUT, help="folder of the figures")
    options = parser.parse_args()
    options.figures.mkdir(exist_ok=True)
    for part in PARTS:
        if part.__name__ in options.only:
            part(options)


if __name__ == "__main__":
    main()
