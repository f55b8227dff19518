"""Old and new figures side by side, where a change moved many of them.

    python -m benchmarks.frontier.before docs/data/frontier.parquet [--data docs/data/frontier.json]

The keyed splits: a rating's part is decided by a hash of its user and item instead of a random permutation of
all ratings, so every error is measured on other ratings than before; the methods did not change. Lists first:
private ALS and private EigenRec changed, on the same splits.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pyarrow.parquet as pq

from benchmarks.frontier.data import DATASETS
from benchmarks.frontier.tables import keep

#: Parts of the stored rows: of the earlier rule of splits, and of the models before lists came first.
KEYED, LISTS, NOW = "frontier before keyed splits", "frontier before lists", "frontier"
METHODS = ("private-als", "private-eigenrec", "dpals", "corrective", "item-bias", "popular")
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)

#: Mean error by data set, metric, method and epsilon (and settings, where they must agree).
Errors = dict[tuple[str, ...], float]


def errors(path: Path, part: str, settings: bool) -> Errors:
    """Mean errors of a part."""
    found = defaultdict(list)
    for row in pq.read_table(path).to_pylist():
        if row["part"] != part or row["method"] not in METHODS or row["patch"]:
            continue
        for metric in ("rmse", "recall@20"):
            if row[metric] is not None:
                given = {**json.loads(row["settings"]), "n_users": None} if settings else {}
                key = (row["data"], metric, row["method"], f"{row['epsilon']:g}", json.dumps(given))
                found[key].append(row[metric])
    return {key: fmean(values) for key, values in found.items()}


def table(before: Errors, after: Errors) -> str:
    """A row a data set and method, old and new at each epsilon."""
    both = {key[:4]: (before[key], after[key]) for key in after if key in before}
    lines = [
        "| data, metric | method | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " |",
        "|---|---|" + "---|" * len(EPSILONS),
    ]
    for name, known in DATASETS.items():
        metric = known.metrics[0]
        for method in METHODS:
            pairs = [both.get((name, metric, method, f"{epsilon:g}")) for epsilon in EPSILONS]
            if any(pairs):
                cells = [f"{pair[0]:.4f} → {pair[1]:.4f}" if pair else "" for pair in pairs]
                lines.append(f"| {name}, {metric} | {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables, and keep them in a file of data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    then = errors(options.results, NOW, True) | errors(options.results, LISTS, True)
    texts = {
        "before-lists": table(errors(options.results, LISTS, False), errors(options.results, NOW, False)),
        "before": table(errors(options.results, KEYED, True), then),
    }
    for name, text in texts.items():
        print(text, end="\n\n")
        if options.data:
            keep(options.data, name, text)


if __name__ == "__main__":
    main()
