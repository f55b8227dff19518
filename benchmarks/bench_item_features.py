"""Worth of public item features: models with, without and with misleading ones.

    HUSHREC_DATA=FOLDER python -m benchmarks.bench_item_features [--draws 6] [--only generated|films|lists]

Films: users of MovieLens-1M, drawn anew for each draw, with 18 genres and the decades of the films (from the
folder ``HUSHREC_DATA``; left out where it does not hold them). Generated: ``realistic`` data with 20 features
of 0 and 1 that explain half of the variance of item biases and factors. Misleading features are the same rows
in another order, or 20 noisy copies of the items' log numbers of ratings. User-level, add-remove, delta 1e-6;
a tenth of the ratings is held out. Every figure is a mean over draws of users; the models of a draw share
split, start and noise (a seeded source, for a comparison that noise does not blur). Four minutes on one core.

Lists: 600 users of MovieLens-1M are judged, who chose no constant and do not train, on a fifth of their
likes, by Recall@20 (hits over min(20, held-out likes)). Misleading features are of other films, 20 noisy
copies of the films' log numbers of ratings, a random column, and 64 of them.
"""

from __future__ import annotations

import argparse
import hashlib
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq

from benchmarks.frontier.data import available, folder
from hushrec.data import Domain, Ratings, k_folds, realistic, split_ratings
from hushrec.models import PrivateALS
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise
from hushrec.serving.lists import Recommender
from hushrec.training.named import train as run_by_name

DELTA = 1e-6
EPSILONS = (0.5, 1.0, 5.0)
USERS = (300, 600, 1_200, 2_500)
#: Items and ratings a user of generated data.
SHAPES = ((500, 60), (2_000, 20))
N_FEATURES, EXPLAINED = 20, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=6, help="draws of users of each line (default 6)")
    parser.add_argument("--only", choices=("generated", "films", "lists"), help="one part")
    options = parser.parse_args()
    if options.only in (None, "lists") and available("ml-1m"):
        lists(options.draws)
    if options.only == "lists":
        return
    print("| data | users | epsilon | test RMSE | with features | of other items | copies of popularity |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, n_users, drawn in tables(options.draws, options.only):
        for epsilon in EPSILONS:
            errors = np.array([run(each, n_users, epsilon, seed) for seed, each in enumerate(drawn)])
            changes = " | ".join(spell(errors[:, k] - errors[:, 0]) for k in (1, 2, 3))
            plain = errors[:, 0].mean()
            print(f"| {name} | {n_users:,} | {epsilon:g} | {plain:.4f} | {changes} |", flush=True)


def tables(draws: int, only: str | None) -> Iterator[tuple[str, int, list[Ratings]]]:
    """Each line's name, number of users, and ratings with features, one a draw."""
    if only != "generated":
        if available("ml-1m"):
            every = films()
            for n_users in USERS:
                chosen = (np.random.default_rng(draw).permutation(every.n_users) for draw in range(draws))
                yield "ML-1M", n_users, [every.rows(order[:n_users], keyed=True) for order in chosen]
        else:
            print("MovieLens-1M skipped: set HUSHREC_DATA to a folder that holds it and its features.")
    for n_items, each in SHAPES if only != "films" else ():
        for n_users in USERS:
            given = {"n_features": N_FEATURES, "explained": EXPLAINED}
            drawn = [realistic(n_users, n_items, n_users * each, seed=seed, **given) for seed in range(draws)]
            yield f"generated, {n_items:,} items, {each} ratings a user", n_users, drawn


def lists(draws: int) -> None:
    """Print Recall@20 of lists without features, with them, and with each kind of misleading ones."""
    every = films()
    order = sorted(range(every.n_users), key=lambda row: hashed(f"judge/{every.users[row]}"))
    judged, others = np.sort(order[600:1200]), order[1200:]  # the first 600 chose constants
    rng, counts = np.random.default_rng(5), np.log1p(np.bincount(every.matrix.indices))
    features = every.domain.item_features
    kinds = {
        "films": features,
        "other films": rng.permutation(features),
        "copies of popularity": counts[:, None] + 0.5 * rng.standard_normal((every.n_items, 20)),
        "one random column": (rng.random((every.n_items, 1)) < 0.3).astype(float),
        "64 random": rng.standard_normal((every.n_items, 64)),
    }
    print(f"| users | epsilon | without | {' | '.join(kinds)} |\n|---:|---:|---:|{'---:|' * len(kinds)}")
    for n_users in USERS:
        for epsilon in (0.1, *EPSILONS):
            found = []
            for draw in range(draws):
                chosen = sorted(others, key=lambda row, draw=draw: hashed(f"draw{draw}/{every.users[row]}"))[
                    :n_users
                ]
                rows = [every.rows(np.sort(which), keyed=True) for which in (chosen, judged)]
                found.append([recall(*rows, given, epsilon, draw) for given in (None, *kinds.values())])
            table = np.array(found)
            changes = " | ".join(spell(table[:, k] - table[:, 0]) for k in range(1, table.shape[1]))
            print(f"| {n_users:,} | {epsilon:g} | {table[:, 0].mean():.4f} | {changes} |", flush=True)


def recall(rows: Ratings, others: Ratings, features: np.ndarray | None, epsilon: float, seed: int) -> float:
    """Capped Recall@20 on other users' held-out likes."""
    accountant = Accountant(
        Budget(epsilon, DELTA), noise=SeededNoise(hashed(f"{rows.n_users} {epsilon} {seed}"))
    )
    model = run_by_name(
        "private-eigenrec", with_features(rows, features), accountant, n_users=rows.n_users, seed=seed
    )
    history, held = next(iter(k_folds(with_features(others, features).liked(4.0).rated(), 5, seed=seed)))
    return capped_recall(model, history.aligned_to(held), held)


def capped_recall(model: Recommender, history: Ratings, held: Ratings) -> float:
    """Hits over min(20, held-out likes), the mean over users."""
    listed = np.concatenate([columns for columns, _ in model.top_columns(history, 20)])
    wanted = held.matrix.toarray() > 0
    hits = np.take_along_axis(wanted, np.maximum(listed, 0), 1) & (listed >= 0)
    return float((hits.sum(axis=1) / np.minimum(wanted.sum(axis=1), 20)).mean())


def hashed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def films() -> Ratings:
    """MovieLens-1M with genres and decades."""
    public = pq.read_table(folder() / "features" / "ml-1m-items.parquet").to_pandas()  # type: ignore[operator]
    decades = public["year"].to_numpy() // 10
    genres = public.drop(columns=["item", "title", "year"]).to_numpy(float)
    features = np.column_stack([genres, decades[:, None] == np.unique(decades)])
    domain = Domain(items=public["item"].tolist(), rating_range=(1, 5), item_features=features)
    return Ratings.read(folder() / "ml-1m.parquet", domain)  # type: ignore[operator]


def run(ratings: Ratings, n_users: int, epsilon: float, seed: int) -> list[float]:
    """Test RMSE without features, with them, with those of other items, and with copies of popularity."""
    train, test = split_ratings(ratings, (0.9, 0.1), seed=seed)
    features, rng = ratings.domain.item_features, np.random.default_rng(seed)
    mixed = rng.permutation(features)
    counts = np.log1p(np.bincount(ratings.matrix.indices, minlength=ratings.n_items))
    copies = counts[:, None] + 0.5 * rng.standard_normal((ratings.n_items, N_FEATURES))
    budget = Budget(epsilon, DELTA)
    errors = []
    for given in (None, features, mixed, copies):
        private = with_features(train, given)
        model = PrivateALS.planned(budget, private.domain, n_users)
        billboard = model.fit(private, Accountant(budget, noise=SeededNoise(seed)), seed=seed)
        error = billboard.predict_pairs(train, test) - test.matrix.data
        errors.append(math.sqrt(float(np.mean(error**2))))
    return errors


def with_features(ratings: Ratings, features: np.ndarray | None) -> Ratings:
    return replace(ratings, domain=replace(ratings.domain, item_features=features))


def spell(changes: np.ndarray) -> str:
    """Mean change and the standard error of that mean."""
    return f"{changes.mean():+.4f} ± {changes.std(ddof=1) / math.sqrt(len(changes)):.4f}"


if __name__ == "__main__":
    main()
