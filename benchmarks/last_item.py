"""Compare with a public implementation of private lists in its own protocol: MovieLens-100K, leave two out.

Likes are ratings of 4 and 5, of the 942 users who gave three or more. Each user's last like is the target.
The one before it is left out too, as that implementation validates on it. All other likes train. A list ranks
the whole catalogue without the items that the user rated before the target. NDCG@10, unit user, add-remove,
delta 1e-5; ties of time are in random order. Ours are means of ten draws of noise, in one setting for all.

Theirs (github.com/Shuyanokoji7/CS-670, report of 3 October 2026, sections 6 and 7) are means of five seeds:
at each epsilon the best of its private models, on the same test likes. Its popularity has .048 to .050.
PASS: `private-eigenrec` is above theirs and above `popular` at each epsilon.
"""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow.parquet as pq

from benchmarks.frontier.tables import write_part
from benchmarks.harness import DELTA, ROOT, TOY, Targets, folder, there
from hushrec import Accountant, Budget, Domain, Model, Ratings
from hushrec.training.named import train

THEIRS = {8.0: 0.0523, 4.0: 0.0458, 2.0: 0.0408, 1.0: 0.0251}
DRAWS, LISTED = 1 if TOY else 10, 10
PAGE = ROOT / "docs" / "understand" / "frontier.md"


def split(name: str) -> tuple[Ratings, np.ndarray, np.ndarray]:
    """Return the likes to train on, each user's target, and which items a user rated before it."""
    table = pq.read_table(folder() / f"{name}.parquet")  # type: ignore[operator]
    if TOY:  # generated tables have no times
        table = table.append_column("timestamp", [np.arange(table.num_rows)])
    users, items, ratings, times = (
        table[name].to_numpy() for name in ("user", "item", "rating", "timestamp")
    )
    order = np.lexsort((np.random.default_rng(0).random(len(users)), times, users))
    users, times = users[order], times[order]
    known, items = np.unique(items[order], return_inverse=True)
    likes = np.flatnonzero(ratings[order] >= 4)
    ends = np.flatnonzero(np.diff(users[likes], append=-1))
    ends = ends[np.diff(ends, prepend=-1) >= 3]
    people, targets = users[likes[ends]], likes[ends]
    rest = np.setdiff1d(likes[np.isin(users[likes], people)], np.concatenate([targets, likes[ends - 1]]))
    columns = users[rest], items[rest], np.ones(len(rest)), times[rest]
    train = Ratings.from_any(columns, Domain(range(len(known)), likes=True)).for_users(people)
    row = np.searchsorted(people, users)
    asked = np.isin(users, people) & (np.arange(len(users)) < targets[np.minimum(row, len(people) - 1)])
    before = np.zeros((len(people), len(known)), bool)
    before[row[asked], items[asked]] = True
    before[np.arange(len(people)), items[targets]] = False
    return train, items[targets], before


def ndcg(model: Model, history: Ratings, targets: np.ndarray, before: np.ndarray, following: bool) -> float:
    """Return the mean over users of 1 / log2(rank + 1), where the rank is at most ten."""
    blocks = model.rank(history, history.n_items, next=following)
    gains = []
    for columns, rated, target in zip(np.concatenate([block.columns for block in blocks]), before, targets):
        columns = columns[columns >= 0]
        ranks = np.flatnonzero(columns[~rated[columns]][:LISTED] == target)
        gains.append(1 / np.log2(ranks[0] + 2) if len(ranks) else 0.0)
    return float(np.mean(gains))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table of docs/understand/frontier.md")
    options, targets, lines = parser.parse_args(), Targets(), []
    if not there("ml-100k"):
        return
    history, wanted, before = split("ml-100k")
    print(f"{history.n_users:,} users, {history.n_ratings:,} likes to train on")
    for epsilon, theirs in THEIRS.items():
        found = []
        for draw in range(DRAWS):
            given = {"n_users": history.n_users, "seed": draw}
            lists, popular = (
                train(name, history, Accountant(Budget(epsilon, DELTA), data_is_public=True), **given)
                for name in ("private-eigenrec", "popular")
            )
            kinds = ((lists, False), (lists, True), (popular, False))
            found.append([ndcg(model, history, wanted, before, following) for model, following in kinds])
        usual, following, popular = np.mean(found, axis=0)
        cells = (f"{figure:.3f}" for figure in (usual, following, popular, theirs))
        lines.append(f"| {epsilon:g} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
        targets.at_least(usual, max(theirs, popular), f"epsilon {epsilon:g}: NDCG@10 of private-eigenrec")
    if options.write:
        head = "| epsilon | `private-eigenrec` | its next list | `popular` | CS-670 |\n|---|---|---|---|---|"
        write_part(PAGE, "last-item", "\n".join([head, *lines]))
    targets.exit()


if __name__ == "__main__":
    main()
