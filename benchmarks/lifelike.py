"""Generated beside real tables: popularity, histories, and what models find of taste; no privacy anywhere.

    python -m benchmarks.lifelike --page docs/reference/generated-data.md --data docs/data/generated-data.json

Real tables come from the folder HUSHREC_DATA and are left out where it does not hold them. A minute.
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np

from benchmarks.frontier.tables import keep, write_part
from benchmarks.real import SETS, liked, read
from hushrec.data import Ratings, lifelike, realistic, strong_generalization
from hushrec.data.splits import HeldOutUsers
from hushrec.evaluation import evaluate
from hushrec.models import ALS, EASE, ItemBias, Popular
from hushrec.privacy import Accountant, Budget

#: What is measured: its heading, and its digits.
FIGURES = {
    "users": 0,
    "items": 0,
    "ratings a user": 0,
    "median of that, over the mean": 2,
    "part of the ratings on a tenth of the items": 2,
    "mean star, of the range": 2,
    "spread of stars": 3,
    "spread of users' means": 3,
    "spread of items' means": 3,
    "correlation of good and popular": 2,
    "RMSE of item means": 3,
    "RMSE of als": 3,
    "Recall@20 of the most popular": 3,
    "Recall@20 of EASE": 3,
    "correlation of an item with its nearest": 2,
    "correlation of chosen and liked": 2,
}
FILMS, OTHERS = ("ml-100k", "ml-1m"), ("flixster", "yahoo-r3", "coat")
#: How far a generated figure may lie outside of those of the real tables, as a part of the nearest.
NEAR = 0.15
#: Held-out ratings from which on the last figure is told.
ENOUGH = 1_500


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", type=Path, default=Path("bench-output/generated-data.md"))
    parser.add_argument("--data", type=Path, default=Path("bench-output/generated-data.json"))
    options = parser.parse_args()
    options.page.parent.mkdir(parents=True, exist_ok=True)
    generated = {setting: lifelike(setting, seed=0) for setting in ("films", "sparse", "shop")}
    generated["`realistic`"] = realistic(2_000, 2_000, 280_000, seed=0)
    found = {name: figures(ratings) for name, ratings in generated.items()}
    for name in SETS:
        if (ratings := read(name)) is not None:
            found[name] = figures(ratings)
    for heading, names in (("films", FILMS), ("sparse", OTHERS)):
        print(f"{heading}: {outside(found, heading, [each for each in names if each in found]) or 'PASS'}")
    text = table(found)
    write_part(options.page, "both side by side", text)
    keep(options.data, "both side by side", text)


def table(found: dict[str, dict[str, float]]) -> str:
    """A line a figure, a column a table."""
    lines = ["| | " + " | ".join(found) + " |", "|---|" + "---:|" * len(found)]
    for name, digits in FIGURES.items():
        cells = ["–" if math.isnan(of[name]) else f"{of[name]:,.{digits}f}" for of in found.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def outside(found: dict[str, dict[str, float]], ours: str, real: list[str]) -> str:
    """Figures of a setting that lie outside of those of the real tables."""
    wrong = []
    for name in list(FIGURES)[3:] if real else ():
        ends = sorted(found[each][name] for each in real if not math.isnan(found[each][name]))
        room = NEAR * max(abs(ends[0]), abs(ends[-1]))
        if not ends[0] - room <= found[ours][name] <= ends[-1] + room:
            wrong.append(f"{name} {found[ours][name]:.3f}, not {ends[0]:.3f} to {ends[-1]:.3f}")
    return "; ".join(wrong)


def figures(ratings: Ratings) -> dict[str, float]:
    """All of a table's figures; stars in parts of their range."""
    matrix, width = ratings.matrix, 2 * ratings.domain.half_width
    lengths, counts = np.diff(matrix.indptr), np.bincount(matrix.indices, minlength=ratings.n_items)
    stars, rows = (matrix.data - ratings.domain.low) / width, np.repeat(np.arange(ratings.n_users), lengths)
    means = np.bincount(rows, stars) / lengths
    left = stars - means[rows]
    biases = np.bincount(matrix.indices, left, ratings.n_items) / np.maximum(counts, 1)
    noise, usual = left.var(), counts >= 10
    of_users = means.var() - noise * np.mean(1 / lengths)
    of_items = (counts @ biases**2 - noise * (counts > 0).sum()) / counts.sum()
    top = np.sort(counts)[::-1][: max(1, len(counts) // 10)]
    values = [
        *(ratings.n_users, ratings.n_items, lengths.mean(), np.median(lengths) / lengths.mean()),
        *(top.sum() / counts.sum(), stars.mean(), stars.std()),
        *(math.sqrt(max(each, 0.0)) for each in (of_users, of_items)),
        np.corrcoef(biases[usual], np.log(counts[usual]))[0, 1],
        *judged(ratings),
    ]
    return dict(zip(FIGURES, map(float, values)))


def judged(ratings: Ratings) -> list[float]:
    """Return what models without privacy reach for others than those who trained, and what goes together."""
    accountant, part = (
        Accountant(Budget(math.inf, 1e-6), data_is_public=True),
        max(0.1, min(0.25, 1_500 / ratings.n_users)),
    )
    parts, likes = (strong_generalization(each, part, seed=0) for each in (ratings, liked(ratings)))
    found = []
    for model, of, metric in (
        (ItemBias(), parts, "rmse"),
        (ALS(), parts, "rmse"),
        (Popular(), likes, "capped-recall"),
        (EASE(), likes, "capped-recall"),
    ):
        fitted = model.fit(of.train, accountant, seed=0)
        value = next(
            iter(evaluate(fitted, of.fold_in, of.target, metrics=[metric], resamples=2).metrics.values())
        ).value
        found.append(value / (2 * ratings.domain.half_width) if metric == "rmse" else value)
    rows = parts.train.matrix.astype(bool).astype(np.float64)
    together, counts = (rows.T @ rows).toarray(), np.bincount(rows.indices, minlength=ratings.n_items)
    rates = counts / ratings.n_users
    spread = np.sqrt(np.maximum(counts * (1 - rates), 1))
    alike = (together - np.outer(counts, rates)) / np.outer(spread, spread)
    np.fill_diagonal(alike, -1)
    top = np.argsort(-counts)[:500]
    return [*found, alike[np.ix_(top, top)].max(axis=1).mean(), _chosen_and_liked(parts, together)]


def _chosen_and_liked(parts: HeldOutUsers, together: np.ndarray) -> float:
    """Correlation, over held-out ratings, of EASE's score of the choice with the star, both without means."""
    inverse = np.linalg.inv(together + 100 * np.eye(len(together)))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    history, target = parts.fold_in, parts.target
    place = history.user_index(target.users)
    seen = history.matrix[place].astype(bool).astype(np.float64)
    user = np.repeat(np.arange(target.n_users), np.diff(target.matrix.indptr))
    item = target.matrix.indices
    score, star = (seen @ weights)[user, item], target.matrix.data.astype(np.float64)
    for _ in range(10):
        for group in (item, user):
            count = np.maximum(np.bincount(group), 1)
            score, star = (x - (np.bincount(group, x) / count)[group] for x in (score, star))
    return float(np.corrcoef(score, star)[0, 1]) if len(star) >= ENOUGH else math.nan


if __name__ == "__main__":
    main()
