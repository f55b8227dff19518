"""Error of private ALS by number of users, catalogue, ratings per user and privacy, on generated data.

    python -m benchmarks.plan_curves                # the grid, then the table in hushrec/evaluation
    python -m benchmarks.plan_curves --part page --page docs/understand/how-many-users.md
    python -m benchmarks.plan_curves --part real --data docs/data/how-many-users.json

The runs behind ``hushrec plan`` (docs/understand/how-many-users.md): ``realistic`` data of three tastes,
random 90/10 split of the ratings, private ALS and item biases at each epsilon (user-level, add-remove, delta
1e-6), both references without privacy. Half an hour on one core; a run that was cut short goes on where it
stopped.
The part "real" measures the same on real ratings of the folder HUSHREC_DATA (three noise draws, delta 1e-5)
and keeps the table; the part "page" writes a table and a figure of the grid.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.frontier.data import available, folder, read as read_ratings, split
from benchmarks.frontier.tables import keep, write_part
from hushrec.algorithms import ALS, Estimator, ItemBias, PrivateALS
from hushrec.data import Domain, Ratings, realistic, split_ratings
from hushrec.evaluation.expected_loss import COLUMNS, TABLE, UNIT, expected_loss, users_needed
from hushrec.evaluation.intervals import Estimate
from hushrec.privacy import Accountant, Budget

DELTA = 1e-6
EPSILONS = (0.1, 0.3, 1.0, 3.0, 8.0, 20.0)
ITEMS = (100, 1_000, 10_000)
RATINGS_PER_USER = (10, 30, 100, 300)
USERS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
#: Spread of item biases, of taste and of noise: MovieLens-like, little to learn, much to learn.
TASTES = {
    "films": (0.45, 0.45, 0.83),
    "faint": (0.30, 0.30, 0.95),
    "strong": (0.45, 0.75, 0.70),
}
#: Most ratings of a run, of the first taste and of the others, and of the one run with a million users.
LARGEST = {"films": 3_000_000, "faint": 1_000_000, "strong": 1_000_000}
MILLION = (1_000_000, 1_000, 10)

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plan_curves",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--part", nargs="+", choices=["grid", "real", "page"], default=["grid"])
    parser.add_argument("--results", type=Path, default=Path("bench-output/plan-curves.jsonl"))
    parser.add_argument("--page", type=Path, default=Path("bench-output/how-many-users.md"))
    parser.add_argument("--data", type=Path, default=Path("bench-output/how-many-users.json"))
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    if "grid" in options.part:
        run_grid(options.results)
        TABLE.write_text(table(read(options.results)))
    if "real" in options.part:
        run_real(options.results)
        keep(options.data, "real data", real_table(read(options.results)))
    if "page" in options.part:
        write_part(options.page, "users needed", users_table())
        draw(options.figures / "how-many-users.svg")
    if "real" in options.part and not check_real(read(options.results)):
        sys.exit(1)


def run_grid(path: Path) -> None:
    """All runs that the file does not hold yet, small ones first."""
    done = {tuple(row["shape"]) for row in read(path)}
    for shape in sorted(set(shapes()), key=lambda shape: (shape[1] * shape[3], shape)):
        if shape not in done:
            rows = run(*shape)
            with path.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            print(*shape, flush=True)


def read(path: Path) -> list[Row]:
    """The runs that a file holds."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(rows: list[Row]) -> str:
    """The runs as JSON, means over seeds, losses as whole numbers of 1/10,000 of the rating range."""
    losses: dict[tuple[Any, ...], dict[tuple[str, float], list[float]]] = {}
    for row in rows:
        models = losses.setdefault(tuple(row["shape"][:4]), {})
        models.setdefault((row["model"], row["mu"] or 0.0), []).append(row["loss"])
    runs = []
    for (taste, n_users, n_items, each), models in sorted(losses.items()):
        if taste not in TASTES:
            continue
        means = {key: round(float(np.mean(values)) / UNIT) for key, values in sorted(models.items())}
        curves = [
            [loss for (model, _), loss in means.items() if model == name]
            for name in ("private-als", "item-bias")
        ]
        free = [means["non-private", 0.0], means["user-mean", 0.0]]
        runs.append(json.dumps([taste, n_users, n_items, each, *free, *curves], separators=(",", ":")))
    mu = json.dumps([round(Budget(epsilon, DELTA).mu, 6) for epsilon in EPSILONS])
    about = json.dumps("python -m benchmarks.plan_curves; losses in 1/10000 of the rating range")
    columns = json.dumps(COLUMNS)
    return f'{{"about":{about},\n"columns":{columns},\n"mu":{mu},\n"runs":[\n' + ",\n".join(runs) + "\n]}\n"


def shapes() -> Iterator[tuple[str, int, int, int, int]]:
    """Taste, users, items, ratings per user and seed of each data set."""
    for taste, largest in LARGEST.items():
        for n_users in USERS:
            for n_items in ITEMS:
                for each in RATINGS_PER_USER:
                    each = min(each, n_items // 4)
                    if n_users * each <= largest or (
                        taste == "films" and (n_users, n_items, each) == MILLION
                    ):
                        for seed in range(max(1, 4_000 // n_users + (n_users <= 10_000))):
                            yield taste, n_users, n_items, each, seed


def run(taste: str, n_users: int, n_items: int, each: int, seed: int) -> list[Row]:
    """Test RMSE, in units of the rating range, of every model on one data set."""
    bias_spread, taste_spread, noise = TASTES[taste]
    ratings = realistic(
        n_users,
        n_items,
        n_users * each,
        bias_spread=bias_spread,
        taste_spread=taste_spread,
        noise=noise,
        seed=seed,
    )
    train, test = split_ratings(ratings, (0.9, 0.1), seed=seed)
    return measure([taste, n_users, n_items, each, seed], train, test, EPSILONS, DELTA, seed)


def measure(
    shape: list[Any], train: Ratings, test: Ratings, epsilons: tuple[float, ...], delta: float, seed: int
) -> list[Row]:
    """Rows of one data set: what needs no budget, then each epsilon."""
    free = Budget(math.inf, delta)
    exact = [PrivateALS.planned(free, train.domain, train.n_users), ALS()]
    rows = [
        {"shape": shape, "model": "non-private", "mu": None}
        | {"loss": min(loss(model, free, train, test, seed) for model in exact)},
        {"shape": shape, "model": "user-mean", "mu": None, "loss": loss_of_user_means(train, test)},
    ]
    for epsilon in epsilons:
        budget = Budget(epsilon, delta)
        planned = PrivateALS.planned(budget, train.domain, train.n_users)
        for name, model in (("private-als", planned), ("item-bias", ItemBias())):
            error = loss(model, budget, train, test, seed)
            rows.append({"shape": shape, "model": name, "mu": budget.mu, "loss": error})
    return [{**row, "loss": round(row["loss"], 6)} for row in rows]


def loss(model: Estimator, budget: Budget, train: Ratings, test: Ratings, seed: int) -> float:
    """RMSE on held-out ratings, in units of the rating range."""
    predicted = model.fit(train, Accountant(budget), seed=seed).predict_pairs(train, test)
    return scaled(predicted, test)


def loss_of_user_means(train: Ratings, test: Ratings) -> float:
    """The same for every user's own mean, the middle of the range for a user without ratings."""
    counts = np.diff(train.matrix.indptr)
    sums = np.add.reduceat(np.append(train.matrix.data, 0.0), train.matrix.indptr[:-1]) * (counts > 0)
    known = np.where(counts > 0, sums / np.maximum(counts, 1), train.domain.midpoint)
    place = train.user_index(test.users)
    means = np.where(place >= 0, known[place], train.domain.midpoint)
    return scaled(np.repeat(means, np.diff(test.matrix.indptr)), test)


# ---------------------------------------------------------------------- real ratings

REAL = ("ml-100k", "ml-1m", "jester", "yahoo-r3", "coat", "flixster", "restaurant")
#: File and range of those that the frontier does not hold.
SMALL = {
    "coat": ("small/coat.train.parquet", (1.0, 5.0)),
    "flixster": ("small/flixster.parquet", (0.5, 5.0)),
    "restaurant": ("restaurant.parquet", (0.0, 2.0)),
}
#: Part of the outcomes that should lie within the intervals.
COVERED = 0.9
REAL_EPSILONS = (0.5, 1.0, 5.0, 20.0)
REAL_DELTA = 1e-5


def run_real(path: Path) -> None:
    """The same on real ratings, where they are there and not yet in the file."""
    done = {tuple(row["shape"]) for row in read(path)}
    for name in REAL:
        ratings = real(name)
        if ratings is None:
            print(f"{name} skipped: HUSHREC_DATA names no folder that holds it.")
            continue
        each = round(ratings.n_ratings / ratings.n_users)
        spread = float(ratings.matrix.data.std(dtype=np.float64)) / (2 * ratings.domain.half_width)
        for seed in range(3):
            shape = [name, ratings.n_users, ratings.n_items, each, seed]
            if tuple(shape) not in done:
                train, test = split_ratings(ratings, (0.9, 0.1), seed=seed)
                rows = measure(shape, train, test, REAL_EPSILONS, REAL_DELTA, seed)
                with path.open("a") as file:
                    file.writelines(json.dumps({**row, "spread": round(spread, 4)}) + "\n" for row in rows)
                print(*shape, flush=True)


def real(name: str) -> Ratings | None:
    """All ratings of a data set; None where it is not there."""
    if name not in SMALL:
        if not available(name):
            return None
        parts = split(name)
        return replace(parts.history.union(parts.targets["rmse"]), splits=())  # all parts together
    file, (low, high) = SMALL[name]
    if (home := folder()) is None or not (home / file).exists():
        return None
    items = pc.unique(pq.read_table(home / file, columns=["item"])["item"]).to_pylist()
    return read_ratings(file, Domain(sorted(items), rating_range=(low, high)))


#: What is foretold of a data set, in the order of the table.
_FORETOLD = ("non_private", "private_als", "cost", "item_bias")


def outcomes(rows: list[Row], told: bool) -> Iterator[tuple[str, float, list[tuple[float, Estimate]]]]:
    """Data set, epsilon, and each measured figure (mean over seeds) with what was expected of it."""
    for name in REAL:
        found = [row for row in rows if row["shape"][0] == name]
        if not found:
            continue
        _, n_users, n_items, each, _ = found[0]["shape"]
        free = float(np.mean([row["loss"] for row in found if row["model"] == "non-private"]))
        for epsilon in REAL_EPSILONS:
            budget = Budget(epsilon, REAL_DELTA)
            als, bias = (
                float(np.mean([row["loss"] for row in found if is_run(row, model, budget.mu)]))
                for model in ("private-als", "item-bias")
            )
            spread = found[0]["spread"] if told else None
            guess = expected_loss(budget, n_users, n_items, each, spread=spread)
            figures = (free, als, als - free, bias)
            yield name, epsilon, [(x, getattr(guess, label)) for x, label in zip(figures, _FORETOLD)]


def real_table(rows: list[Row]) -> str:
    """Measured against expected with the spread told, in percent of the rating range."""
    lines = [
        "| data | spread | epsilon | no privacy | expected | private ALS | expected | cost of privacy"
        " | expected | item bias | expected |",
        "|---|---:|---:|" + "---:|" * 8,
    ]
    spreads = {row["shape"][0]: row["spread"] for row in rows if row["shape"][0] in REAL}
    for name, epsilon, cells in outcomes(rows, told=True):
        measured = " | ".join(f"**{100 * value:.1f}** | {percent(expected)}" for value, expected in cells)
        lines.append(f"| {name} | {100 * spreads[name]:.1f} | {epsilon:g} | {measured} |")
    return "\n".join(lines)


def check_real(rows: list[Row]) -> bool:
    """Whether nine tenths of what was measured lies within the intervals, with the spread and without."""
    good = True
    for told in (True, False):
        cells = [cell for *_, cells in outcomes(rows, told) for cell in cells]
        inside = float(np.mean([each.low <= value <= each.high for value, each in cells]))
        good &= inside >= COVERED
        words = "PASS" if inside >= COVERED else f"SHORT of {COVERED:.0%}"
        how = "with" if told else "without"
        print(f"{words}  {inside:.0%} of {len(cells)} real outcomes within the interval, {how} --spread")
    return good


def is_run(row: Row, model: str, mu: float) -> bool:
    return row["model"] == model and math.isclose(row["mu"], mu, rel_tol=1e-9)


def percent(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f} ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"


# ---------------------------------------------------------------------- the page

PAGE_EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
PAGE_ITEMS = (100, 500, 2_000, 10_000)
PAGE_RATINGS = 50


def users_table() -> str:
    """Users that private ALS needs to keep half and nine tenths of the gain."""
    lines = [
        "| items | part of the gain | "
        + " | ".join(f"epsilon {epsilon:g}" for epsilon in PAGE_EPSILONS)
        + " |",
        "|---:|---|" + "---:|" * len(PAGE_EPSILONS),
    ]
    for n_items in PAGE_ITEMS:
        for kept, words in ((0.5, "half"), (0.9, "nine tenths")):
            cells = [
                users_needed(Budget(epsilon, DELTA), n_items, PAGE_RATINGS, kept=kept)
                for epsilon in PAGE_EPSILONS
            ]
            lines.append(f"| {n_items:,} | {words} | {' | '.join(map(spell, cells))} |")
    return "\n".join(lines)


def spell(n_users: int | None) -> str:
    if n_users is None:
        return "> 1,000,000"
    return "≤ 1,000" if n_users <= 1000 else f"{n_users:,}"


def draw(path: Path) -> None:
    """Part of the gain that is kept against the number of users, a panel a catalogue; made for print."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    styles = {0.1: (0, (1, 1.2)), 1.0: (0, (4, 1.5, 1, 1.5)), 5.0: (0, (5, 2)), 20.0: "-"}
    users = np.logspace(3, 6, 61)
    with mpl.rc_context({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "hushrec"}):
        figure = Figure(figsize=(7.4, 3.4), layout="constrained")
        panels = figure.subplots(1, 3, sharey=True)
        for axes, n_items in zip(panels, (100, 1_000, 10_000)):
            for epsilon, dashes in styles.items():
                losses = [expected_loss(Budget(epsilon, DELTA), int(n), n_items, PAGE_RATINGS) for n in users]
                kept = [loss.kept.value for loss in losses]
                axes.plot(
                    users, kept, color="black", linestyle=dashes, linewidth=1.3, label=f"epsilon {epsilon:g}"
                )
                if epsilon == 1.0:
                    low, high = [loss.kept.low for loss in losses], [loss.kept.high for loss in losses]
                    axes.fill_between(users, low, high, color="#d9d9d9", linewidth=0, zorder=0)
            axes.set(xscale="log", xlim=(1e3, 1e6), ylim=(0, 1), title=f"{n_items:,} items", xlabel="users")
            axes.grid(color="#e6e6e6", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        panels[0].set_ylabel("gain over the users' own means\nthat private ALS keeps")
        panels[0].legend(loc="lower right", frameon=False, handlelength=2.8)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def scaled(predicted: np.ndarray, test: Ratings) -> float:
    error = np.asarray(predicted, np.float64) - test.matrix.data
    return math.sqrt(float(np.mean(error**2))) / (test.domain.high - test.domain.low)


if __name__ == "__main__":
    main()
