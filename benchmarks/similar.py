"""Compare the items that `similar` names with a yardstick that learns nothing of pairs.

The yardstick takes the 50 items nearest in features, and of these the 10 of highest released popularity. Both
are judged on users who were not trained on: for up to five of a user's likes, Recall@10 of the user's other
likes. MovieLens-1M with genres and decades, Book-Crossing with authors, and a generated shop with categories
and brands; `private-eigenrec`, delta 1e-6, add-remove. A draw has its own users and noise. Where nothing is
known of an item `similar` refuses; both are judged on what it answers, and its share is printed.
PASS: not below the yardstick by more than 0.003; above it by 0.01 where the model reports taste dimensions.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.harness import TOY, Targets, folder, table, there
from hushrec import Accountant, Budget, Domain, InputError, PublicRatings, Ratings
from hushrec.data.features import feature_scores
from hushrec.models import Model
from hushrec.training import named

NEAREST, LISTED, QUERIES, JUDGED = 50, 10, 5, 20 if TOY else 200
#: Table, users, epsilon, share of donors, draws.
CELLS = (
    ("ml-1m", 300, 1.0, 0.0, 10),
    ("ml-1m", 300, 1.0, 0.1, 5),
    ("ml-1m", 1200, 1.0, 0.0, 10),
    ("ml-1m", 5800, 1.0, 0.0, 5),
    ("ml-1m", 5800, 5.0, 0.0, 3),
    ("book-crossing", 1000, 1.0, 0.0, 3),
    ("book-crossing", 1000, 1.0, 0.1, 3),
    ("shop", 600, 1.0, 0.0, 10),
    ("shop", 5000, 5.0, 0.0, 10),
)
LOST, GAINED = 0.003, 0.01


@cache
def ratings(name: str) -> Ratings:
    """The ratings of a table, with item features in their domain."""
    if name == "shop":
        return shop()
    rows, home = table(name), folder()
    if TOY:
        facts = pa.table(
            {"item": list(rows.domain.items), "kind": [str(at % 5) for at in range(rows.n_items)]}
        )
    elif name == "ml-1m":
        facts = pq.read_table(home / "features" / "ml-1m-items.parquet")
        decade = pc.cast(pc.divide(facts["year"], 10), "string")
        facts = facts.drop_columns(["title", "year"]).append_column("decade", decade)
    else:
        books = pq.read_table(home / "wide" / "book-crossing-items.parquet")
        facts = pa.table({"item": books["item"], "author": pc.utf8_lower(books["author"])})
    return replace(rows, domain=replace(rows.domain, item_features=facts))


def shop() -> Ratings:
    """Purchases of a generated shop with customers who keep to some categories and brands."""
    rng = np.random.default_rng(3)
    n_users, n_items, shape = 60 if TOY else 6000, 50 if TOY else 400, (20, 30)
    kinds = [rng.integers(0, size, n_items) for size in shape]
    chance = -np.log(5 + np.arange(n_items)) + rng.gumbel(size=(n_users, n_items))
    chance += sum(rng.normal(0, 2, (n_users, size))[:, kind] for size, kind in zip(shape, kinds))
    lengths = np.minimum(2 + rng.geometric(0.15, n_users), n_items // 2)
    order = np.argsort(-chance, axis=1)
    users, places = np.nonzero(np.arange(n_items) < lengths[:, None])
    facts = {name: [f"{name} {at}" for at in kind] for name, kind in zip(("category", "brand"), kinds)}
    domain = Domain(range(n_items), likes=True, item_features={"item": range(n_items), **facts})
    return Ratings.from_any((users, order[users, places]), domain)


def trained(rows: Ratings, n_users: int, epsilon: float, donors: float, draw: int) -> tuple[Model, Ratings]:
    """A model, and the likes of users who were not trained on."""
    order = np.random.default_rng(draw).permutation(rows.n_users)
    held, chosen = order[:JUDGED], order[JUDGED : JUDGED + n_users]
    public = PublicRatings(donors=list(rows.users[chosen[: round(donors * len(chosen))]])) if donors else None
    accountant = Accountant(Budget(epsilon, 1e-6), data_is_public=True)
    train = rows.rows(np.sort(chosen), keyed=True)
    model = named.train("private-eigenrec", train, accountant, n_users=len(chosen), seed=draw, public=public)
    return model, rows.rows(np.sort(held), keyed=True).liked(rows.domain.like_threshold).rated()


def queries(likes: Ratings, draw: int) -> Iterator[tuple[int, set[int]]]:
    """An item that a user likes, and all others of theirs."""
    rng, matrix = np.random.default_rng(draw), likes.matrix
    for start, end in zip(matrix.indptr, matrix.indptr[1:]):
        own = matrix.indices[start:end].tolist()
        if len(own) > 1:
            for item in rng.choice(own, min(QUERIES, len(own)), replace=False).tolist():
                yield item, set(own) - {item}


def recalls(model: Model, likes: Ratings, draw: int) -> np.ndarray:
    """Mean Recall of `similar` and of the yardstick where the first answers, and how often it does."""
    items, scores = model.domain.items, feature_scores(likes.domain.item_features, likes.n_items)
    units = scores / np.maximum(np.linalg.norm(scores, axis=1, keepdims=True), 1e-12)
    popularity = np.asarray(model.arrays["item_bias"])

    @cache
    def lists(item: int) -> tuple[list[int], list[int]]:
        near = np.round(units @ units[item], 9)
        near[item] = -np.inf
        nearest = np.argsort(-near, kind="stable")[:NEAREST]
        try:
            mine = [model.domain.position(each.item) for each in model.similar_items(items[item], LISTED)]
        except InputError:
            mine = []
        return mine, nearest[np.argsort(-popularity[nearest], kind="stable")[:LISTED]].tolist()

    def row(item: int, others: set[int]) -> list[float]:
        mine, theirs = lists(item)
        hits = [len(others.intersection(each)) / min(LISTED, len(others)) for each in (mine, theirs)]
        return [*hits, float(bool(mine))]

    found = np.array([row(*query) for query in queries(likes, draw)])
    answered = found[found[:, 2] > 0] if found[:, 2].any() else np.full((1, 3), np.nan)
    return np.append(answered[:, :2].mean(axis=0), found[:, 2].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--draws", type=int, help="draws of users and noise in each cell")
    options, targets = parser.parse_args(), Targets()
    for name, n_users, epsilon, donors, draws in CELLS:
        if name != "shop" and not there(name):
            continue
        found, taste = [], 0
        for draw in range(1 if TOY else options.draws or draws):
            model, likes = trained(ratings(name), n_users, epsilon, donors, draw)
            taste += bool(model.directions)
            found.append(recalls(model, likes, draw))
        told = np.array([each for each in found if each[2]]).reshape(-1, 3)
        answered = np.mean([each[2] for each in found])
        what = f"{name}, {n_users:,} users, epsilon {epsilon:g}, {donors:.0%} donors, {len(found)} draws"
        if not len(told):
            print(f"{what}: nothing is known, so every item is refused", flush=True)
            continue
        gains = told[:, 0] - told[:, 1]
        error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
        needed = GAINED if taste == len(found) else -LOST
        figures = f"Recall@10 {told[:, 0].mean():.4f}, yardstick {told[:, 1].mean():.4f}"
        figures += f", paired {gains.mean():+.4f} ± {error:.4f} (at least {needed:+g})"
        targets.line(
            gains.mean() >= needed, f"{what}: {figures}; {answered:.0%} answered; taste in {taste} draws"
        )
    targets.exit()


if __name__ == "__main__":
    main()
