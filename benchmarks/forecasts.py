"""Results of private models on real tables, whole and with fewer users: the figures behind ``hushrec plan``.

    python -m benchmarks.forecasts                      # the check, from the stored rows
    python -m benchmarks.forecasts --part sample        # and a few rows made anew
    python -m benchmarks.forecasts --part measure donors remedies check page

"measure" trains private-eigenrec and private-als on seven tables of the folder HUSHREC_DATA, on all users and
on 300, 1,000 and 3,000 of them, at epsilon 0.5 to 20 (delta 1e-6, user-level, add-remove), three draws each,
and judges them by users who took no part: their figures are kept in docs/data/forecast-rows.jsonl, and means
over draws beside hushrec/evaluation/forecast.py. Ten minutes; a run that was cut short goes on where it
stopped. "donors" trains with a twentieth of the users as donors, and sets what they add beside the same
releases; "remedies" follows what trained models advise: it trains again at the epsilon that they name.
"check" holds each table's figures against the ranges that the others give (both MovieLens leave together),
counts the remedies that worked, and exits 1 where anything falls short; "page" writes its lines and the
tables of users into the pages, and draws the picture of the first page.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np

from benchmarks.frontier.tables import write_part
from benchmarks.real import SETS, liked, read
from hushrec.data import Ratings, strong_generalization
from hushrec.evaluation import evaluate
from hushrec.evaluation.forecast import TABLE, WIDER, Forecast, Run, forecast
from hushrec.evaluation.taste import taste
from hushrec.models import Popular, PrivateALS, PrivateEigenRec
from hushrec.privacy import Accountant, Budget, epsilon_of
from hushrec.public import PublicRatings
from hushrec.serving.lists import Recommender

ROWS, DONORS, REMEDIES = (Path(f"docs/data/{name}-rows.jsonl") for name in ("forecast", "donor", "remedy"))
FIGURE = Path("docs/figures/users.svg")
PICTURED = {"ml-1m": "films (MovieLens-1M)", "yahoo-r3": "songs (Yahoo! R3)"}
DELTA = 1e-6
EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
SIZES = (300, 1_000, 3_000)
DRAWS = 3
#: How far a row that is made anew, with other noise, may be from the stored one.
ANEW = {"directions": 2, "recall": 0.05, "rmse": 0.01}
#: With donors: at these, for so many users at most.
DONOR_EPSILONS, FEW = (1.0, 2.0, 5.0, 10.0), 5_000
#: Part of a table's rows that should lie within the ranges of the others, in so many tables of the seven; a
#: range is to be no wider than this many times what the tables differ by.
COVERED, IN_TABLES = 0.8, 6
#: Where MovieLens gains more than all others, so that it lies without when it is left out.
SHORT = ("donors_recall", "donors_rmse")
FIGURES = ("directions", "lift", "recall", "rmse", "rmse, spread told", *SHORT)
#: The largest epsilon that is advised, and the part of the cases in which something is that could be.
MOST, GIVEN = 10.0, 0.5
#: Columns of the package's table after the name.
MEANS = ("users", "items", "ratings", "mu", "spread", "directions", "recall", "popular", "rmse")
USERS = (300, 1_000, 3_000, 10_000, 30_000, 100_000)

Row = dict[str, Any]
Parts = tuple[Ratings, Ratings, Ratings]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--part",
        nargs="+",
        choices=["measure", "donors", "remedies", "sample", "check", "page"],
        default=["check"],
    )
    options = parser.parse_args()
    if "measure" in options.part:
        measure()
    if "donors" in options.part:
        _each(DONORS, DONOR_EPSILONS, with_donors, draws=1)
    if {"measure", "donors"} & set(options.part):
        TABLE.write_text(table())
    if "remedies" in options.part:
        follow_remedies()
    lines, good = check()
    told, worked = remedies()
    print("\n".join([*lines, "", told]))
    if "page" in options.part:
        write_part(Path("docs/understand/how-many-users.md"), "left out", "\n".join(lines))
        write_part(Path("docs/understand/how-many-users.md"), "remedies", told)
        write_part(Path("docs/understand/how-many-users.md"), "ranges", users_table((500, 2_000, 10_000)))
        write_part(Path("docs/understand/which-model.md"), "ranges", users_table((2_000,)))
        draw()
    if "sample" in options.part:
        good &= sample()
    if not (good and worked):
        sys.exit(1)


def rows(path: Path = ROWS) -> list[Row]:
    """Return what was measured so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measure() -> None:
    """All trainings that the file does not hold yet."""
    _each(ROWS, EPSILONS, run)


def follow_remedies() -> None:
    """The same for trainings whose advice is followed."""
    _each(REMEDIES, tuple(epsilon for epsilon in EPSILONS if epsilon < MOST), followed)


def _each(
    path: Path,
    epsilons: tuple[float, ...],
    run: Callable[[Parts, float, int], Row | None],
    draws: int = DRAWS,
) -> None:
    done = {(row["table"], row["size"], row["draw"], row["epsilon"]) for row in rows(path)}
    for name in SETS:
        ratings = read(name)
        if ratings is None:
            print(f"{name} skipped: HUSHREC_DATA names no folder that holds it.")
            continue
        for draw in range(draws):
            for size, parts in subsets(ratings, draw):
                for epsilon in epsilons:
                    if (name, size, draw, epsilon) in done:
                        continue
                    if (found := run(parts, epsilon, draw)) is not None:
                        row = {"table": name, "size": size, "draw": draw, "epsilon": epsilon, **found}
                        with path.open("a") as file:
                            file.write(json.dumps(row) + "\n")


def subsets(ratings: Ratings, seed: int) -> Iterator[tuple[int | str, Parts]]:
    """Training users of each size and all of them; with others' history and held-out ratings."""
    part = min(0.25, max(0.1 if ratings.n_users < 6_000 else 0.0, 600 / ratings.n_users))
    parts = strong_generalization(ratings, part, seed=seed)
    order = np.random.default_rng(seed).permutation(parts.train.n_users)
    for size in (*(size for size in SIZES if size < 0.95 * len(order)), "all"):
        chosen = order if size == "all" else order[:size]
        train = parts.train.rows(np.isin(np.arange(len(order)), chosen))
        yield size, (train, parts.fold_in, parts.target)


def run(parts: Parts, epsilon: float, seed: int) -> Row:
    """Figures of one training; lists are judged on likes, folded in from likes."""
    train, history, target = parts
    of_likes, budget = [liked(each) for each in parts], Budget(epsilon, DELTA)
    width = 2 * train.domain.half_width

    def trained(model: Any, on: Ratings) -> Any:
        return model.fit(on, Accountant(budget, data_is_public=True), seed=seed)

    lists = PrivateEigenRec.planned(
        budget, train.domain, train.n_users, like_threshold=train.domain.like_threshold
    )
    stars = PrivateALS.planned(budget, train.domain, train.n_users)
    listed = trained(lists, train)
    return {
        "users": train.n_users,
        "items": train.n_items,
        "ratings": round(train.n_ratings / train.n_users, 2),
        "mu": round(budget.mu, 5),
        "spread": round(float(train.matrix.data.std(dtype=np.float64)) / width, 4),
        "directions": listed.directions,
        "recall": judged(listed, *of_likes[1:], "recall"),
        "popular": judged(trained(Popular(), of_likes[0]), *of_likes[1:], "recall"),
        "rmse": round(judged(trained(stars, train), history, target, "rmse") / width, 5),
    }


def sample(seed: int = 0, count: int = 4) -> bool:
    """Make a few of the stored rows anew, with other noise, and hold them beside the stored ones."""
    small = [row for row in rows() if row["size"] in SIZES[:2] and read(row["table"]) is not None]
    good = True
    for i in np.random.default_rng(seed).permutation(len(small))[:count]:
        row = small[i]
        parts = dict(subsets(read(row["table"]), row["draw"]))[row["size"]]
        again = run(parts, row["epsilon"], row["draw"])
        near = all(abs(again[name] - row[name]) <= room for name, room in ANEW.items())
        good &= near
        figures = ", ".join(f"{name} {row[name]:g} and {again[name]:g}" for name in ANEW)
        words = "PASS" if near else "MISS"
        print(f"{words}  {row['table']}, {row['users']} users, epsilon {row['epsilon']:g}: {figures}")
    return good


def with_donors(parts: Parts, epsilon: float, seed: int) -> Row | None:
    """Figures of one training with a twentieth of the users as donors; None where users are many."""
    train, history, target = parts
    if train.n_users > FEW:
        return None
    of_likes, budget = [liked(each) for each in parts], Budget(epsilon, DELTA)
    public = PublicRatings(donors=list(train.users[: max(1, round(train.n_users / 20))]))
    lists = PrivateEigenRec.planned(
        budget, train.domain, train.n_users, like_threshold=train.domain.like_threshold
    )
    stars = PrivateALS.planned(budget, train.domain, train.n_users)
    listed, rated = (
        model.fit(train, Accountant(budget, data_is_public=True), seed=seed, public=public)
        for model in (lists, stars)
    )
    alone, private = (replace(model, public=None) for model in (listed, rated))  # as they were released
    return {
        "recall": judged(listed, *of_likes[1:], "recall"),
        "recall_without": judged(alone, *of_likes[1:], "recall"),
        "rmse": judged(rated, history, target, "rmse"),
        "rmse_without": judged(private, history, target, "rmse"),
    }


def followed(parts: Parts, epsilon: float, seed: int) -> Row:
    """Return what a model advises, and what comes of it."""

    def trained(epsilon: float) -> Any:
        budget = Budget(epsilon, DELTA)
        lists = PrivateEigenRec.planned(
            budget, train.domain, train.n_users, like_threshold=train.domain.like_threshold
        )
        model = lists.fit(train, Accountant(budget, data_is_public=True), seed=seed)
        return model, taste(model, budget)

    train = parts[0]
    _, first = trained(epsilon)
    row = {"users": train.n_users, "directions": first.directions, "pairs": first.pairs}
    row |= {"advised": first.epsilon and round(first.epsilon, 3), "times": first.times, "learned": None}
    if first.epsilon:
        _, second = trained(first.epsilon)
        row["learned"] = second.pairs or second.directions > first.directions
    return row


def remedies() -> tuple[str, bool]:
    """A sentence on how often something is advised, and how often it works."""
    more: dict[tuple[Any, ...], list[int]] = {}
    for row in rows():
        more.setdefault((row["table"], row["size"], row["epsilon"]), []).append(row["directions"])
    cases = [row for row in rows(REMEDIES) if not row["pairs"]]
    there = [row for row in cases if _exists(row, more)]
    advised = [row for row in cases if row["advised"]]
    given = sum(row["advised"] is not None for row in there)
    worked = sum(row["learned"] for row in advised)
    at_size = [found for row in advised if (found := _with_more_users(row, more)) is not None]
    text = (
        f"Of {len(cases)} models, {len(there)} could have learned one more direction by epsilon {MOST:g} (in"
        f" most draws); {given} of them advised a training ({given / len(there):.0%}). Of all {len(advised)}"
        f" that were advised, {worked} learned one more ({worked / len(advised):.0%}); with so many more"
        f" users at the same epsilon, {sum(at_size)} of {len(at_size)}."
    )
    return text, given >= GIVEN * len(there) and worked >= COVERED * len(advised)


def _exists(row: Row, more: dict[tuple[Any, ...], list[int]]) -> bool:
    """Tell whether most draws learned more at a larger epsilon, up to the largest that is advised."""
    larger = [each for each in EPSILONS if row["epsilon"] < each <= MOST]
    return any(
        sum(found > row["directions"] for found in more[row["table"], row["size"], epsilon]) > DRAWS / 2
        for epsilon in larger
    )


def _with_more_users(row: Row, more: dict[tuple[Any, ...], list[int]]) -> bool | None:
    """Tell whether the least measured size with so many users learned more; None where there is none."""
    for size in SIZES:
        found = more.get((row["table"], size, row["epsilon"]))
        if found and size >= row["times"] * row["users"]:
            return found[row["draw"]] > row["directions"]
    return None


def judged(model: Recommender, history: Ratings, target: Ratings, metric: str) -> float:
    found = evaluate(model, history, target, metrics=[metric], resamples=2)
    return round(next(iter(found.metrics.values())).value, 5)


def table() -> str:
    """Means over draws, as the package has them."""
    lines = []
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows():
        groups.setdefault((row["table"], row["size"], row["epsilon"]), []).append(row)
    with_donors = {(row["table"], row["size"], row["epsilon"]): row for row in rows(DONORS)}
    for place, group in groups.items():
        means = [round(float(np.mean([row[figure] for row in group])), 4) for figure in MEANS]
        parts: list[float | None] = [None, None]
        if place in with_donors:
            row = with_donors[place]
            pairs = [(row[name], row[f"{name}_without"]) for name in ("recall", "rmse")]
            parts = [round(max(one, 0.003) / max(other, 0.003), 4) for one, other in pairs]
        lines.append(json.dumps([place[0], *means, *parts], separators=(",", ":")))
    return '{"runs":[\n' + ",\n".join(lines) + "\n]}\n"


def check() -> tuple[list[str], bool]:
    """A table of the part of each table's rows that the others' ranges hold, and how wide these are."""
    runs = [Run(*row) for row in json.loads(TABLE.read_text())["runs"]]
    names = list(dict.fromkeys(run.table for run in runs))
    lines = ["| rows within, and width | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    good = True
    for figure in FIGURES:
        cells = [left_out(figure, name, runs) for name in names]
        enough = sum(covered >= COVERED for covered, _ in cells) >= IN_TABLES
        good &= enough or figure in SHORT
        lines.append(f"| {figure} | {' | '.join(f'{covered:.0%}, {wide:.1f}' for covered, wide in cells)} |")
    return lines, good


def left_out(figure: str, name: str, runs: list[Run]) -> tuple[float, float]:
    """Part of a table's rows within the ranges that the others give; these over what all tables differ by."""
    others = [run for run in runs if run.table[:3] != name[:3]]  # both MovieLens leave together
    inside, widths = [], []
    for run in (each for each in runs if each.table == name):
        if figure.startswith("donors") and run.donors_rmse is None:
            continue
        low, high = ends(figure, run, others)
        own = {**run._asdict(), "lift": run.recall / max(run.popular, 0.003)}
        value = own[figure.split(",")[0]]
        inside.append(low <= value <= high)
        least, most = ends(figure, run, runs)
        widths.append(WIDER * (high - low) / (most - least) if most > least else 1.0)
    return float(np.mean(inside)), float(np.mean(widths))


def ends(figure: str, run: Run, runs: list[Run]) -> tuple[float, float]:
    """The range of a figure where a run was; directions are whole numbers, means of them are not."""
    budget = Budget(epsilon_of(run.mu, DELTA), DELTA)
    sizes = round(run.n_users), round(run.n_items), run.ratings_per_user
    found: Forecast = forecast(budget, *sizes, spread=run.spread if "told" in figure else None, runs=runs)
    low, high = getattr(found, figure.split(",")[0])
    return (low - 0.5, high + 0.5) if figure == "directions" else (low, high)


def users_table(catalogues: tuple[int, ...]) -> str:
    """Ranges by users, items and epsilon: directions, and Recall over that of the most popular items."""
    epsilons = (1.0, 2.0, 5.0)
    lines = ["| items | users | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " |"]
    lines.append("|---:|---:|" + "---|" * len(epsilons))
    for n_items in catalogues:
        for n_users in USERS:
            cells = []
            for epsilon in epsilons:
                of = forecast(Budget(epsilon, DELTA), n_users, n_items, 50, spread=0.28)
                stars = f"{4 * of.rmse.low:.2f} to {4 * of.rmse.high:.2f}"
                ways, lift = ((f"{x:.0f}" for x in of.directions), (f"{x:.1f}" for x in of.lift))
                cells.append(f"{' to '.join(ways)}; {' to '.join(lift)}; {stars}")
            lines.append(f"| {n_items:,} | {n_users:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw() -> None:
    """What epsilon buys at a number of users: Recall@20 on two of the tables, means over draws."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.rcParams |= {"svg.hashsalt": "hushrec", "font.size": 10}
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained", sharey=True)
    colors = {1.0: "#5b9bd9", 5.0: "#1f5a94", 20.0: "#0b2a4a"}
    for ax, (name, title) in zip(axes, PICTURED.items()):
        of = [row for row in rows() if row["table"] == name]
        sizes = list(dict.fromkeys(row["size"] for row in of))
        curves = [
            ("recall", epsilon, f"epsilon {epsilon:g}", color, "-") for epsilon, color in colors.items()
        ]
        for key, epsilon, label, color, style in [("popular", 5.0, "most popular", "#6a747e", "--"), *curves]:
            groups = [
                [row for row in of if (row["size"], row["epsilon"]) == (size, epsilon)] for size in sizes
            ]
            x, y = (
                [float(np.mean([row[each] for row in group])) for group in groups] for each in ("users", key)
            )
            ax.plot(x, y, color=color, linestyle=style, linewidth=2, marker="o", markersize=3, clip_on=False)
            ax.annotate(label, (x[-1], y[-1]), (7, -3), textcoords="offset points", color=color)
        ax.set_xscale("log")
        ax.set_xticks(ticks := [300, 1_000, 3_000, 10_000], [f"{tick:,}" for tick in ticks])
        ax.minorticks_off()
        ax.set_xlim(270, x[-1])
        ax.set_title(title, loc="left", fontsize=10)
        ax.set_xlabel("users")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylim(0)
    axes[0].set_ylabel("Recall@20 of lists")
    figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
