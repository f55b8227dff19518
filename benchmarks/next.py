"""Compare lists of what comes next with the usual ones, on users who were not trained on.

Each user's history is cut at three places, and the row right after is held out. hit@20 and MRR@100, paired
over draws of users and noise; `private-eigenrec`, every row a like, delta 1e-6, add-remove. The last lists
are of a model that was trained with a window, too. Rows of equal time are in the order of the catalogue, and
in a second run in a random one. In a third run the whole order is random: recent rows then say no more than
others.
PASS: the gains in hit@20 that were asked for, and of MovieLens small one in MRR.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache

import numpy as np
import pyarrow.parquet as pq

from benchmarks.frontier.tables import write_part
from benchmarks.harness import ROOT, TABLES, TOY, Targets, folder, there
from hushrec import Accountant, Budget, Domain, Ratings
from hushrec.models import Model
from hushrec.training import named

JUDGED, CUTS, LISTED, RANKED = 20 if TOY else 700, (0.4, 0.7, 1.0), 20, 100
#: Places within which likes go together, for the second model.
WINDOW = 20
#: Table, epsilon, and the gains that are asked for: of `next` in hit@20 and in MRR, of a window in hit@20.
CELLS = (
    ("ml-100k", 5.0, 0.05, None, -0.003),
    ("ml-100k", 2.0, None, None, -0.003),
    ("drift", 5.0, 0.0, None, -0.003),
    ("drift", 2.0, 0.0, None, -0.003),
    ("ml-1m", 5.0, 0.04, None, 0.02),
    ("ml-1m", 2.0, None, None, 0.01),
    ("ml-1m", 1.0, 0.015, None, -0.003),
    ("ml-latest-small", 5.0, None, 0.006, -0.003),
)
ORDERS = ("catalogue", "random ties", "random order")
PAGE = ROOT / "docs" / "guides" / "next.md"
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, int]


@cache
def rows(name: str) -> Rows:
    """Users, positions of items and times, of users whose rows all have a time; the number of items."""
    if name == "drift":
        return drift()
    table = pq.read_table(folder() / f"{TABLES[name][0]}.parquet")  # type: ignore[operator]
    if TOY:  # generated tables have no times
        table = table.append_column("timestamp", [np.arange(table.num_rows)])
    users, items, times = (table[name].to_numpy() for name in ("user", "item", "timestamp"))
    kept = ~np.isin(users, users[np.isnan(times.astype(float))])
    known, places = np.unique(items, return_inverse=True)
    return users[kept], places[kept], times[kept].astype(np.int64), len(known)


def drift(n_users: int = 60 if TOY else 1500, n_items: int = 50 if TOY else 600) -> Rows:
    """Users who choose by popularity and by a taste that walks: half of it is new after ten choices."""
    rng, length, rank = np.random.default_rng(5), 20 if TOY else 50, 6
    popular, factors = -np.log(10.0 + np.arange(n_items)), rng.standard_normal((n_items, rank))
    taste, keep = rng.standard_normal((n_users, rank)), 0.5**0.1
    free, chosen = np.zeros((n_users, n_items)), []
    for _ in range(length):
        scores = popular + 1.2 * taste @ factors.T + rng.gumbel(size=free.shape) + free
        chosen.append(scores.argmax(axis=1))
        free[np.arange(n_users), chosen[-1]] = -np.inf
        taste = keep * taste + np.sqrt(1 - keep**2) * rng.standard_normal(taste.shape)
    users = np.repeat(np.arange(n_users), length)
    return users, np.column_stack(chosen).ravel(), np.tile(np.arange(length), n_users), n_items


def measure(name: str, epsilon: float, draw: int) -> np.ndarray:
    """hit@20 and MRR of the usual lists, of what comes next, and the same with a window: (orders, 3, 2)."""
    users, items, times, n_items = rows(name)
    rng, domain = np.random.default_rng(draw), Domain(range(n_items), likes=True)
    everyone = rng.permutation(np.unique(users))
    count = min(JUDGED, len(everyone) // 4)
    held = np.isin(users, everyone[:count])
    columns = users[~held], items[~held], np.ones((~held).sum()), times[~held]
    train, n_users = Ratings.from_any(columns, domain), len(everyone) - count
    models = []
    for settings in ({}, {"window": WINDOW}):
        accountant = Accountant(Budget(epsilon, 1e-6), data_is_public=True)
        options = {"n_users": n_users, "settings": settings, "seed": draw}
        models.append(named.train("private-eigenrec", train, accountant, **options))
    users, items, times = users[held], items[held], times[held]
    keys: dict[str, Callable[[], tuple[np.ndarray, ...]]] = {
        "catalogue": lambda: (items, times, users),
        "random ties": lambda: (rng.random(len(users)), times, users),
        "random order": lambda: (rng.random(len(users)), users),
    }
    return np.array([figures(models, users, items, np.lexsort(keys[order]())) for order in ORDERS])


def figures(models: list[Model], users: np.ndarray, items: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The same of one order of the rows."""
    users, items = users[order], items[order]
    starts = np.flatnonzero(np.diff(users, prepend=-1))
    cells, targets = [], []
    for start, end in zip(starts, [*starts[1:], len(users)]):
        for cut in CUTS:
            last = start + int(cut * (end - start)) - 1
            if last > start:
                cells += [(len(targets), place, items[place]) for place in range(start, last)]
                targets.append(items[last])
    asked, places, rated = np.array(cells).T
    ones = np.ones(len(asked))
    history = Ratings.from_any((asked, rated, ones, places), models[0].domain).for_users(range(len(targets)))
    found = []
    for model, following in zip((*models[:1], *models), (False, True, True)):
        columns = np.concatenate([block.columns for block in model.rank(history, RANKED, next=following)])
        hits = columns == np.array(targets)[:, None]
        ranks = np.arange(1, hits.shape[1] + 1)
        found.append((hits[:, :LISTED].any(axis=1).mean(), (hits / ranks).sum(axis=1).mean()))
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--draws", type=int, default=1 if TOY else 10)
    parser.add_argument("--write", action="store_true", help="write the table of docs/guides/next.md")
    options, targets, lines = parser.parse_args(), Targets(), []
    for name, epsilon, hit, rank, windowed in CELLS:
        if name != "drift" and not there(name):
            continue
        found = np.array([measure(name, epsilon, draw) for draw in range(options.draws)])
        means, gains = found.mean(axis=0), np.diff(found, axis=2)
        error = gains.std(axis=0, ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0 * gains[0]
        for at, order in enumerate(ORDERS):
            shown = "; ".join(
                f"{metric} {' -> '.join(f'{mean:.4f}' for mean in means[at, :, k])} ("
                + ", ".join(
                    f"{gains[:, at, step, k].mean():+.4f} ± {error[at, step, k]:.4f}" for step in (0, 1)
                )
                + ")"
                for k, metric in enumerate(("hit@20", "MRR"))
            )
            print(f"{name}, epsilon {epsilon:g}, {order}: {shown}", flush=True)
        asked = (
            ("next", "hit@20", hit, 0, 0),
            ("next", "MRR", rank, 0, 1),
            ("a window", "hit@20", windowed, 1, 0),
        )
        for what, metric, least, step, k in asked:
            if least is not None:
                gain = float(gains[:, 0, step, k].mean())
                targets.at_least(gain, least, f"{name}, epsilon {epsilon:g}: gain of {what} in {metric}")
        cells = [" → ".join(f"{mean:.3f}" for mean in means[at, :, 0]) for at in range(len(ORDERS))]
        cells.insert(1, " → ".join(f"{mean:.3f}" for mean in means[0, :, 1]))
        lines.append(f"| {name} | {epsilon:g} | {' | '.join(cells)} |")
    if options.write:
        head = "| users | epsilon | hit@20 | MRR | hit@20, random ties | hit@20, random hold-out |"
        write_part(PAGE, "next", "\n".join([head, "|---|---|---|---|---|---|", *lines]))
    targets.exit()


if __name__ == "__main__":
    main()
