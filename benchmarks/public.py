"""Compare a private model with donors' public ratings and without them.

    python -m benchmarks.public                    # judge the stored rows; make a sample of them again
    python -m benchmarks.public --measure 20       # make missing rows, for so many minutes

A row is a data set, a number of users, an epsilon, a fraction of donors, their kind, and a draw of users and
noise. The private model has today's plan for these users. 500 others are judged, on a fifth of their rows:
Recall@20 for likes, RMSE in ratings of 1 to 5 (others are scaled to it). `today` is the model of a training
without donors, `alone` the public model of ratings or the lists of the same training with full weight on
public likes alone, `together` the model of a training with donors. Donors are `honest`; `permuted`: their
items are exchanged; `heavy` and `light`: the quarter of the donors with most and fewest likes.

Constants were chosen on halves of MovieLens-1M, Jester and Yahoo! R3, by a hash of the users, and on likes
of a shop from another generator. Here the other halves are judged, and flixster, coat, MovieLens-100K and
generated shops, which took no part.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import TOY, Rows, Targets, folder, settings, single_thread, table as real_table, there
from hushrec import Accountant, Budget, Domain, PublicRatings, Ratings
from hushrec.data import k_folds, lifelike
from hushrec.privacy.testing import SeededNoise
from hushrec.public.ratings_model import ratings_model
from hushrec.serving.model import Model
from hushrec.serving.recommend import Recommender
from hushrec.training import named

#: Real tables, and whether half of their users chose constants.
HALVED = {"ml-1m": True, "jester": True, "yahoo-r3": True, "flixster": False, "coat": False, "ml-100k": False}
HALVED |= {"retailrocket": False}
DOMAINS = {"ml-1m": "films", "ml-100k": "films", "jester": "jokes", "shop": "shop"}
JUDGED, LISTED = 500, 20
#: Largest allowed losses: on average over a domain and a number of users, and in a cell.
MEAN_LOSS = {"lists": 0.003, "ratings": 0.002}
CELL_LOSS = {"lists": 0.01, "ratings": 0.006}


class Case(NamedTuple):
    """One row before it is measured."""

    data: str
    job: str
    n: int
    epsilon: float
    share: float
    donors: str
    draw: int

    @property
    def domain(self) -> str:
        """The kind of data that it is."""
        return DOMAINS.get(self.data, "sparse")


def cases() -> Iterator[Case]:
    """All rows; after nine of a shop's views, 800 are ten draws of the main ones."""
    sizes = {"ml-1m": (300, 1200), "jester": (600,), "yahoo-r3": (600,), "coat": (200,), "ml-100k": (300,)}
    main = ("honest", 0.05, 1.0), ("honest", 0.1, 5.0), ("permuted", 0.05, 1.0), ("honest", 0.01, 5.0)
    more = ("honest", 0.1, 1.0), ("honest", 0.05, 5.0), ("honest", 0.05, 0.1), ("permuted", 0.1, 5.0)
    rest = ("honest", 0.05, 20.0), ("heavy", 0.05, 1.0), ("light", 0.05, 1.0)
    for draw, share in product(range(3), (0.05, 0.1, 0.3)):  # a long tail of likes
        yield Case("retailrocket", "lists", 2900, 1.0, share, "honest", draw)
    for kinds in (main, more, rest):
        for draw in range(10):
            for donors, share, epsilon in kinds:
                for data in ("flixster", "coat", "jester", "yahoo-r3", "ml-100k", "shop", "ml-1m"):
                    for n in sizes.get(data, (300, 1200)):
                        for job in ("lists", "ratings"):
                            yield Case(data, job, n, epsilon, share, donors, draw)


@lru_cache(maxsize=8)
def table(data: str) -> Ratings:
    """The ratings that are judged, scaled to 1 to 5."""
    if data == "shop":
        return lifelike("shop", n_users=300 if TOY else 4000, seed=11)
    ratings = real_table(data)
    rows, (low, high) = ratings.to_arrow(), ratings.domain.rating_range
    users, items = (np.asarray(rows[name]) for name in ("user", "item"))
    values = np.ones(len(rows)) if ratings.domain.likes else np.asarray(rows["rating"])
    if data == "jester":  # a third is plenty
        kept = users % 3 == 0
        users, items, values = users[kept], items[kept], values[kept]
    if HALVED[data]:  # the other half chose
        known = np.unique(users)
        kept = np.isin(users, known[[_hash(f"half/{user}") % 2 == 1 for user in known]])
        users, items, values = users[kept], items[kept], values[kept]
    domain = Domain([int(item) for item in np.unique(items)], rating_range=(1, 5))
    return Ratings.from_any((users, items, 1 + 4 * (values - low) / (high - low)), domain)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def measured(case: Case) -> dict[str, Any]:
    """Train, and judge all three."""
    everybody = table(case.data)
    order = np.argsort([_hash(f"draw{case.draw}/{user}") for user in everybody.users])
    n = min(case.n, max(len(order) - 60, len(order) // 2))
    trained, judged = order[:n], order[n : n + JUDGED]
    count = max(round(case.share * n), 2)
    candidates = order[: 4 * count] if case.donors in ("heavy", "light") else order[:count]
    longest = np.argsort(np.diff(everybody.matrix.indptr)[candidates], kind="stable")
    donors = {"heavy": candidates[longest[-count:]], "light": candidates[longest[:count]]}.get(
        case.donors, candidates
    )
    private = everybody.rows(np.sort(trained), keyed=True)
    public = _public(everybody, donors, case)
    name = {"lists": "private-eigenrec", "ratings": "private-als"}[case.job]

    def train(public: PublicRatings | None) -> Model:
        accountant = Accountant(Budget(case.epsilon, 1e-6), noise=SeededNoise(_hash(repr(case))))
        return named.train(name, private, accountant, n_users=n, seed=case.draw, public=public)

    model = train(public)
    ((history, held),) = list(_halves(everybody.rows(np.sort(judged), keyed=True), case.job))
    if case.job == "lists":
        today, alone = train(None), Recommender(model.estimator, model.domain, _of_public_likes(model))
        weight = {part.name: part.weight for part in model.parts}["public likes"]
    else:
        rows = public.read(model.estimator, private).same
        today, alone = replace(model, public=None), ratings_model(rows, None, None, {})
        weight = model.judged["weight"]
    models = {"today": today, "alone": alone, "together": model}
    figures = {name: round(_figure(each, history, held, case.job), 5) for name, each in models.items()}
    return {**case._asdict(), **figures, "settings": settings(model.estimator), "weight": weight}


def _of_public_likes(model: Model) -> dict[str, Any]:
    """Return the arrays of a list of public likes alone."""
    return {**model.arrays, "item_bias": 0 * model.item_bias, "item_factors": 0 * model.item_factors}


def _public(everybody: Ratings, donors: Any, case: Case) -> PublicRatings:
    """Return what these donors are declared as."""
    if case.donors != "permuted":
        return PublicRatings(donors=[everybody.users[row] for row in donors])
    rows = everybody.rows(np.sort(donors), keyed=True).to_arrow().to_pydict()
    items = np.array(everybody.domain.items)
    other = dict(zip(items.tolist(), np.random.default_rng(case.draw).permutation(items).tolist()))
    columns = rows["user"], [other[item] for item in rows["item"]], rows["rating"]
    return PublicRatings(same=Ratings.from_any(columns, everybody.domain))


def _halves(rows: Ratings, job: str) -> Iterator[tuple[Ratings, Ratings]]:
    """Four fifths of what each judged user has, and the rest."""
    rows = rows.liked(4.0).rated() if job == "lists" else rows
    history, held = next(iter(k_folds(rows, 5, seed=1)))
    yield history.aligned_to(held), held


def _figure(model: Recommender, history: Ratings, held: Ratings, job: str) -> float:
    """Recall@20, or RMSE."""
    if job == "ratings":
        return float(np.sqrt(np.mean((model.predict_pairs(history, held) - held.matrix.data) ** 2)))
    listed = np.concatenate([columns for columns, *_ in model.rank(history, LISTED, predict=False)])
    wanted = held.matrix.toarray() > 0
    hits = np.take_along_axis(wanted, np.maximum(listed, 0), 1) & (listed >= 0)
    return float((hits.sum(axis=1) / wanted.sum(axis=1)).mean())


# ---------------------------------------------------------------------- results of the rows


def losses(rows: list[dict[str, Any]], floor: bool) -> dict[tuple[Any, ...], list[float]]:
    """Losses by cell, against today, or against the public model where that is the better one."""
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        sign = 1 if row["job"] == "lists" else -1
        if floor and row["donors"] == "permuted":
            continue
        against = row["alone"] if floor else row["today"]
        cell = tuple(row[name] for name in ("job", "data", "n", "epsilon", "share", "donors"))
        found[cell].append(sign * (against - row["together"]))
    return found


def judge(targets: Targets, rows: list[dict[str, Any]]) -> None:
    """Print a line for each target."""
    for floor, against in ((False, "today's model"), (True, "the public model alone")):
        cells = losses(rows, floor)
        for job in ("lists", "ratings"):
            groups: dict[tuple[str, int], list[float]] = defaultdict(list)
            worst = []
            for (of, data, n, *rest), each in cells.items():
                if of != job:
                    continue
                groups[DOMAINS.get(data, "sparse"), n] += each
                error = np.std(each, ddof=1) / np.sqrt(len(each)) if len(each) > 1 else np.inf
                if np.mean(each) - 1.96 * error > CELL_LOSS[job]:
                    worst.append(f"{data} {n} {rest} loses {np.mean(each):.4f}")
            most = max((float(np.mean(each)) for each in groups.values()), default=0.0)
            targets.at_most(
                most, MEAN_LOSS[job], f"{job}: largest mean loss of a domain and n against {against}"
            )
            what = f"{job}: cells surely more than {CELL_LOSS[job]} below {against}: {len(worst)}"
            targets.line(not worst, f"{what} {'; '.join(worst[:5])}")


def shown(rows: list[dict[str, Any]]) -> None:
    """Print the means of all cells."""
    print("job      data       users  epsilon  donors          today  alone  together  weight  draws")
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        count = max(round(row["share"] * row["n"]), 2)
        key = tuple(row[name] for name in ("job", "data", "n", "epsilon", "donors"))
        found[*key, count].append(row)
    for (job, data, n, epsilon, donors, count), each in sorted(found.items()):
        today, alone, together, weight = (
            np.mean([row[name] for row in each]) for name in ("today", "alone", "together", "weight")
        )
        who = f"{count} {donors}"
        print(
            f"{job:8} {data:9} {n:6,} {epsilon:8g}  {who:14} {today:6.3f} {alone:6.3f} {together:9.3f}"
            f" {weight:7.2f} {len(each):6}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--measure", type=float, metavar="MINUTES")
    parser.add_argument("--table", action="store_true", help="print the means of all cells")
    parser.add_argument("--sample", type=int, default=6, help="rows that are made again")
    options, targets, stored = parser.parse_args(), Targets(), Rows("public.jsonl")
    single_thread()
    if TOY:
        measured(next(cases()))
    if options.measure:
        stop = time.monotonic() + 60 * options.measure
        for case in cases():
            if time.monotonic() < stop and stored.find(case._asdict()) is None:
                stored.add(measured(case))
    if options.table:
        shown(stored.all)
    judge(targets, stored.all)
    for row in stored.sample(options.sample):
        case = Case(*(row[name] for name in Case._fields))
        if case.data == "shop" or (folder() is not None and there(case.data)):
            again = measured(case)
            same = all(abs(again[name] - row[name]) < 0.005 for name in ("today", "alone", "together"))
            targets.line(same, f"made again: {' '.join(map(str, case))}")
    targets.exit()


if __name__ == "__main__":
    main()
