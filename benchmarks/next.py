"""Compare next lists: private ones, and others without privacy.

Each user's history is cut at three places, and the row right after is held out. hit@20 and MRR@100 of users
who were not trained on: three splits of users and ten draws of noise. `private-eigenrec`, every row a like,
delta 1e-6, add-remove. Of rows of equal time the last in the catalogue is held out, in a second run a random
one. In a third run the whole order is random: recent rows then predict no more than others. Rows are kept in
docs/data/next.jsonl; those of today's settings are not made again.
PASS: the gains in hit@20 that were asked for, and of MovieLens small one in MRR.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp

from benchmarks.features import ARTICLES, shop
from benchmarks.frontier.tables import write_part
from benchmarks.harness import ROOT, TABLES, TOY, Rows, Targets, folder, settings, there
from hushrec import EASE, Accountant, Budget, Domain, Model, PrivateEigenRec, Ratings

JUDGED, CUTS, LISTED, RANKED = 20 if TOY else 700, (0.4, 0.7, 1.0), 20, 100
SPLITS, DRAWS = (1, 1) if TOY else (3, 10)
SHOP = "online-retail"
#: Table, epsilon, and the gains of `next` that are asked for in hit@20 and in MRR.
CELLS = (
    ("ml-100k", 5.0, 0.05, None),
    ("ml-100k", 2.0, None, None),
    ("drift", 5.0, 0.0, None),
    ("drift", 2.0, 0.0, None),
    ("ml-1m", 5.0, 0.04, None),
    ("ml-1m", 2.0, None, None),
    ("ml-1m", 1.0, 0.015, None),
    ("ml-latest-small", 5.0, None, 0.006),
    ("ml-latest-small", 2.0, None, None),
    (SHOP, 20.0, 0.0, None),
    (SHOP, 5.0, None, None),
)
ORDERS = ("catalogue", "random ties", "random order")
#: Order and metric of each column of the page's table.
SHOWN = ((0, 0), (0, 1), (1, 0), (2, 0))
#: Settings of the sequential peer, SASRec of cornac; the others are its defaults.
PEER = {"embedding_dim": 64, "max_len": 20, "n_epochs": 4, "learning_rate": 0.003}
PAGE = ROOT / "docs" / "guides" / "next.md"
Table = tuple[np.ndarray, np.ndarray, np.ndarray, int]
#: What names a stored row, and what measures it.
Run = tuple[dict[str, Any], Callable[[], list[Any]]]


class Split(NamedTuple):
    """Rows to train on, oldest first, and for each order the other users' histories and their next rows."""

    users: np.ndarray
    items: np.ndarray
    train: Ratings
    judged: list[tuple[Ratings, np.ndarray]]


def present(name: str) -> bool:
    """Check that a table is generated or exists."""
    home = folder()
    if name == SHOP:
        return home is not None and (home / ARTICLES[name][0]).exists()
    return name == "drift" or there(name)


@cache
def table(name: str) -> Table:
    """Users, positions of items and times, of users with times in all rows; the number of items."""
    if name == "drift":
        return drift()
    if name == SHOP:
        rows = shop()[0]
        people = np.repeat(np.arange(rows.n_users), np.diff(rows.matrix.indptr))
        return people, rows.matrix.indices, rows.times, rows.n_items  # type: ignore[return-value]
    table = pq.read_table(folder() / f"{TABLES[name][0]}.parquet")  # type: ignore[operator]
    if TOY:  # generated tables have no times
        table = table.append_column("timestamp", [np.arange(table.num_rows)])
    users, items, times = (table[name].to_numpy() for name in ("user", "item", "timestamp"))
    kept = ~np.isin(users, users[np.isnan(times.astype(float))])
    known, places = np.unique(items, return_inverse=True)
    return users[kept], places[kept], times[kept].astype(np.int64), len(known)


def drift(n_users: int = 60 if TOY else 3000, n_items: int = 50 if TOY else 600) -> Table:
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


@cache
def split(name: str, seed: int) -> Split:
    """Hold out users, at most a quarter."""
    users, items, times, n_items = table(name)
    rng, domain = np.random.default_rng(seed), Domain(range(n_items), likes=True)
    everyone = rng.permutation(np.unique(users))
    held = np.isin(users, everyone[: min(JUDGED, len(everyone) // 4)])
    order = np.lexsort((items, times, users))
    order = order[~held[order]]
    columns = users[order], items[order], np.ones(len(order)), times[order]
    train = Ratings.from_any(columns, domain)
    users, items, times = users[held], items[held], times[held]
    keys: dict[str, Callable[[], tuple[np.ndarray, ...]]] = {
        "catalogue": lambda: (items, times, users),
        "random ties": lambda: (rng.random(len(users)), times, users),
        "random order": lambda: (rng.random(len(users)), users),
    }
    judged = []
    for kind in ORDERS:
        order = np.lexsort(keys[kind]())
        moments = np.arange(len(order)) if kind == "random order" else times[order]
        judged.append(cut(users[order], items[order], moments, domain))
    return Split(*columns[:2], train, judged)


def cut(
    users: np.ndarray, items: np.ndarray, times: np.ndarray, domain: Domain
) -> tuple[Ratings, np.ndarray]:
    """Return the histories up to the cuts, and the items that follow."""
    starts = np.flatnonzero(np.diff(users, prepend=-1))
    cells: list[tuple[int, int, int]] = []
    targets: list[int] = []
    for start, end in zip(starts, [*starts[1:], len(users)]):
        for part in CUTS:
            last = start + int(part * (end - start)) - 1
            if last > start:
                cells += [(len(targets), times[place], items[place]) for place in range(start, last)]
                targets.append(items[last])
    asked, moments, rated = np.array(cells).T
    history = Ratings.from_any((asked, rated, np.ones(len(asked)), moments), domain)
    return history.for_users(range(len(targets))), np.array(targets)


def quality(columns: np.ndarray, targets: np.ndarray) -> list[float]:
    """Return hit@20 and MRR@100 of ranked lists."""
    hits = columns == targets[:, None]
    ranks = np.arange(1, hits.shape[1] + 1)
    return [
        round(float(hits[:, :LISTED].any(axis=1).mean()), 5),
        round(float((hits / ranks).sum(1).mean()), 5),
    ]


def of_model(model: Model, history: Ratings, targets: np.ndarray) -> list[list[float]]:
    """Return the quality of the usual list, and of the next list."""
    lists = [model.rank(history, RANKED, next=following) for following in (False, True)]
    return [quality(np.concatenate([block.columns for block in blocks]), targets) for blocks in lists]


def of_scores(scores: np.ndarray, history: Ratings, targets: np.ndarray) -> list[float]:
    """Return the quality of the lists by scores, without the items of the history."""
    scores[history.matrix.nonzero()] = -np.inf
    return quality(np.argsort(-scores, axis=1, kind="stable")[:, :RANKED], targets)


def popularity(part: Split) -> list[float]:
    history, targets = part.judged[0]
    counts = np.bincount(part.items, minlength=history.n_items)
    return of_scores(np.tile(counts.astype(float), (len(targets), 1)), history, targets)


def ease(part: Split) -> list[float]:
    """EASE on whole rows, with the better of its two lists."""
    accountant = Accountant(Budget(float("inf"), 1e-6), data_is_public=True)
    return max(of_model(EASE().fit(part.train, accountant), *part.judged[0]))


def co_occurrence(part: Split) -> list[float]:
    """Items that follow within ten places, by 1 / distance; likes by 1 / age. Powers of another split."""
    history, targets = part.judged[0]
    n_items = history.n_items
    follows = sp.csr_array((n_items, n_items))
    for step in range(1, 11):
        pair = part.users[step:] == part.users[:-step]
        places = part.items[:-step][pair], part.items[step:][pair]
        follows += sp.csr_array((np.full(pair.sum(), 1 / step), places), shape=follows.shape)
    counts = np.maximum(np.bincount(part.items, minlength=n_items), 1.0)
    weights = counts[history.matrix.indices] ** -0.5 / (1.0 + history.age())
    likes = sp.csr_array((weights, history.matrix.indices, history.matrix.indptr), shape=history.matrix.shape)
    return of_scores((likes @ follows).toarray() * counts**-0.25, history, targets)


def sasrec(part: Split) -> list[float]:
    """SASRec, a sequential model of the optional package cornac (with PyTorch)."""
    from cornac.data import SequentialDataset
    from cornac.models import SASRec

    history, targets = part.judged[0]
    rows = [
        (str(user), str(user), str(item), at) for at, (user, item) in enumerate(zip(part.users, part.items))
    ]
    data = SequentialDataset.build(rows, fmt="USIT", seed=0)
    model = SASRec(**PEER, seed=0).fit(data)
    known = np.full(history.n_items, -1)
    known[[int(item) for item in data.iid_map]] = list(data.iid_map.values())
    scores = np.full((len(targets), history.n_items), -np.inf)
    matrix, age = history.matrix, history.age()
    for row, (start, stop) in enumerate(zip(matrix.indptr, matrix.indptr[1:])):
        oldest_first = matrix.indices[start:stop][np.argsort(-age[start:stop], kind="stable")]
        latest = [place for place in known[oldest_first].tolist() if place >= 0]
        scores[row, known >= 0] = np.asarray(model.score(0, latest)).ravel()[known[known >= 0]]
    return of_scores(scores, history, targets)


#: Lists without privacy, by the settings of their rows.
REFERENCES: dict[str, Callable[[Split], list[float]]] = {
    "popular": popularity,
    "EASE": ease,
    "co-occurrence": co_occurrence,
    f"SASRec of cornac 3.0.1 with torch 2.14.1 {PEER}": sasrec,
}


def references(name: str, reference: str) -> Iterator[Run]:
    """Yield what names each row of lists without privacy, and what measures it."""
    for seed in range(1 if reference.startswith("SASRec") else SPLITS):
        cell = {"data": name, "split": seed, "settings": reference}
        yield cell, partial(REFERENCES[reference], split(name, seed))


def trainings(name: str, epsilon: float) -> Iterator[Run]:
    """Yield what names each row of a private model, and what measures it."""
    for seed, draw in product(range(SPLITS), range(DRAWS)):
        part, budget = split(name, seed), Budget(epsilon, 1e-6)
        model = PrivateEigenRec.planned(budget, part.train.domain, part.train.n_users)
        cell = {"data": name, "split": seed, "epsilon": epsilon, "draw": draw, "settings": settings(model)}
        yield cell, partial(of_training, model, budget, part, draw)


def of_training(model: PrivateEigenRec, budget: Budget, part: Split, draw: int) -> list[list[list[float]]]:
    """Return the quality of both lists in each order."""
    trained = model.fit(part.train, Accountant(budget, data_is_public=True), seed=draw)
    return [of_model(trained, *judged) for judged in part.judged]


def figures(rows: Rows, runs: Iterator[Run], ends: float) -> np.ndarray:
    """Return the figures of the runs; those without a row are measured, until the time is over."""
    found = []
    for cell, measured in runs:
        row = rows.find(cell)
        possible = not cell["settings"].startswith("SASRec") or find_spec("cornac")
        if row is None and possible and time.monotonic() < ends:
            row = cell | {"quality": measured()}
            (rows.all.append if TOY else rows.add)(row)
        if row is not None:
            found.append(row["quality"])
    return np.array(found)


def spelled(values: np.ndarray) -> str:
    """Return the mean over runs with its standard error, and the smallest mean of a split."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{values.mean():+.3f} ± {error:.3f} ({min(values.reshape(SPLITS, -1).mean(axis=1)):+.3f})"


def private_lists(rows: Rows, ends: float, targets: Targets) -> list[str]:
    """Print and judge the gains; return a line of the page for each table and epsilon."""
    lines = []
    for name, epsilon, *asked in CELLS:
        if not present(name):
            continue
        found = figures(
            rows, trainings(name, epsilon), ends
        )  # (runs, orders, the usual list and `next`, metrics)
        if len(found) < SPLITS * DRAWS:
            continue
        means, gains = found.mean(axis=0), found[:, :, 1] - found[:, :, 0]
        for order, k in np.ndindex(3, 2):
            what = f"{('hit@20', 'MRR')[k]} of next, {ORDERS[order]}"
            print(f"{name}, epsilon {epsilon:g}: {what} {spelled(gains[:, order, k])}", flush=True)
        for k, least in enumerate(asked):
            if least is not None:
                text = f"{name}, epsilon {epsilon:g}: gain of next in {('hit@20', 'MRR')[k]}"
                targets.at_least(float(gains[:, 0, k].mean()), least, text)
        cells = [" → ".join(f"{mean:.3f}" for mean in means[order, :, k]) for order, k in SHOWN]
        lines.append(f"| {name} | {epsilon:g} | {' | '.join([*cells, spelled(gains[:, 0, 0])])} |")
    return lines


def without_privacy(rows: Rows, ends: float) -> list[str]:
    """Return a line of the page for each table."""
    lines = []
    for name in dict.fromkeys(cell[0] for cell in CELLS if present(cell[0])):
        values = (figures(rows, references(name, reference), ends) for reference in REFERENCES)
        cells = [f"{found[:, 0].mean():.3f}" if len(found) else "" for found in values]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    print(*lines, sep="\n")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=math.inf, help="measure no new row after this time")
    parser.add_argument("--write", action="store_true", help="write the tables of docs/guides/next.md")
    options, targets = parser.parse_args(), Targets()
    rows, ends = Rows("toy.jsonl" if TOY else "next.jsonl"), time.monotonic() + options.seconds
    private, exact = private_lists(rows, ends, targets), without_privacy(rows, ends)
    if options.write:
        head = "| users | epsilon | hit@20 | MRR | random ties | random hold-out | gain in hit@20 |"
        write_part(PAGE, "next", "\n".join([head, "|---|---|---|---|---|---|---|", *private]))
        head = f"| users | {' | '.join(name.split()[0] for name in REFERENCES)} |"
        write_part(PAGE, "next-compared", "\n".join([head, "|---|---|---|---|---|", *exact]))
    targets.exit()


if __name__ == "__main__":
    main()
