"""Old and new figures side by side, where a change moved all of them: the keyed splits.

    python -m benchmarks.frontier.before docs/frontier.parquet [--page docs/frontier.md]

A rating's part is now decided by a hash of its user and item instead of a random permutation of all ratings,
so every error is measured on other ratings than before. The methods did not change: rows are compared that
have the same settings (but for the number of users, of whom a share is held out now).
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pyarrow.parquet as pq

from benchmarks.frontier.data import DATASETS
from benchmarks.frontier.tables import write_part

#: Part of the stored rows of the earlier rule.
BEFORE = "frontier before keyed splits"
METHODS = ("private-als", "private-eigenrec", "dpals", "corrective", "item-bias", "popular")
EPSILONS = (0.1, 1.0, 5.0, 20.0)


def errors(path: Path, part: str) -> dict[tuple[str, str, str, float, str], list[float]]:
    """Errors by data set, metric, method, epsilon and settings."""
    found = defaultdict(list)
    for row in pq.read_table(path).to_pylist():
        if row["part"] != part or row["method"] not in METHODS or row["patch"]:
            continue
        for metric in ("rmse", "recall@20"):
            if row[metric] is not None:
                settings = json.loads(row["settings"])
                settings.pop("n_users", None)
                key = (row["data"], metric, row["method"], row["epsilon"], json.dumps(settings))
                found[key].append(row[metric])
    return found


def table(path: Path) -> str:
    """A row a data set and method, old and new at each epsilon."""
    before, after = errors(path, BEFORE), errors(path, "frontier")
    both = {key[:4]: (fmean(before[key]), fmean(after[key])) for key in after if key in before}
    lines = [
        "| data, metric | method | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " |",
        "|---|---|" + "---|" * len(EPSILONS),
    ]
    for name, known in DATASETS.items():
        metric = known.metrics[0]
        for method in METHODS:
            pairs = [both.get((name, metric, method, epsilon)) for epsilon in EPSILONS]
            if any(pairs):
                cells = [f"{pair[0]:.4f} → {pair[1]:.4f}" if pair else "" for pair in pairs]
                lines.append(f"| {name}, {metric} | {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table, or write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    text = table(options.results)
    print(text)
    if options.page:
        write_part(options.page, "before", text)


if __name__ == "__main__":
    main()
