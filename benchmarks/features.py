"""Measure what item features are worth for films that no user has rated.

A tenth of MovieLens-1M's films is hidden from the training, then added by genre and decade, and judged on 600
users who were not trained on: `private-eigenrec` by Recall@20 of their likes (ratings from 4 up) when new
films are ranked alone, `private-als` by the RMSE of their ratings of new films. User-level, add-remove, delta
1e-6. PASS: both are better than what needs no model, by more than the 95% interval.

Then lists with a table of articles as it is, compared with lists without one: a shop's titles, films with
titles and genres, books with authors. Four fifths of each user's likes train, the others are held out; on
MovieLens-1M other users are judged. Recall@20 divides by at most 20. PASS: the target beside the figure.

Last, predictions with features, and with those of other films, compared with predictions without any. PASS:
features lower the RMSE, and those of other films raise it by at most .002.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from benchmarks.harness import TOY, Targets, folder, rmse, table, there
from hushrec.data import Domain, Ratings, k_folds, split_ratings
from hushrec.models import Model, PrivateALS, PrivateEigenRec
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise
from hushrec.serving.scoring import all_scores
from hushrec.training.named import train

BUDGET = Budget(5.0, 1e-6)
JUDGED, HIDDEN, LISTED = 20 if TOY else 600, 0.1, 20
#: File of articles, and Recall@20 to reach at each epsilon.
ARTICLES = {
    "online-retail": ("shop/online-retail.csv", {1.0: 0.25, 5.0: 0.26}),
    "ml-latest-small": ("wide/ml-latest-small-items.parquet", {1.0: 0.16, 5.0: 0.24}),
    "book-crossing": ("wide/book-crossing-items.parquet", {1.0: 0.025, 5.0: 0.042}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--draws", type=int, default=1 if TOY else 3, help="choices of films, users and noise"
    )
    options, targets = parser.parse_args(), Targets()
    if not there("ml-1m"):
        return
    for algorithm in (PrivateEigenRec, PrivateALS):
        found = np.concatenate([run(algorithm, seed) for seed in range(options.draws)])
        lists = algorithm is PrivateEigenRec
        names = ["in random order", "newest first"] if lists else ["all placed in the middle"]
        names = ["placed by features", *names, "trained on their ratings"]
        figures = found.mean(axis=0) if lists else np.sqrt(found.mean(axis=0))
        metric = f"Recall@{LISTED}" if lists else "RMSE"
        shown = ", ".join(f"{figure:.3f} {name}" for figure, name in zip(figures, names))
        print(f"{algorithm.name}: {metric} of new films {shown}")
        for at in range(1, len(names) - 1):
            gain = (found[:, 0] - found[:, at]) * (1 if lists else -1)
            half = 1.96 * gain.std(ddof=1) / np.sqrt(len(gain))
            what = f"{algorithm.name}: better than {names[at]} by {gain.mean():.3f} ± {half:.3f}"
            targets.line(gain.mean() > half, f"{what} ({'Recall' if lists else 'squared error'})")
    with_articles(targets, options.draws)
    predictions(targets, options.draws)
    targets.exit()


def films() -> tuple[list[int], pa.Table, pa.Table]:
    """Return the rated films, the ratings, and genres and decades."""
    home = folder()
    table = pq.read_table(home / "ml-1m.parquet").select(["user", "item", "rating"])
    facts = pq.read_table(home / "features" / "ml-1m-items.parquet")
    decade = pc.cast(pc.divide(facts["year"], 10), "string")
    features = facts.drop_columns(["title", "year"]).append_column("decade", decade)
    return np.unique(table["item"].to_numpy()).tolist(), table, features


def with_articles(targets: Targets, draws: int) -> None:
    """Print Recall@20 of lists with a table of articles, compared with lists without one."""
    for name in ("online-retail", "ml-latest-small", "book-crossing"):
        if not (folder() / ARTICLES[name][0]).exists():  # type: ignore[operator]
            print(f"{name} skipped: HUSHREC_DATA names no folder that holds it.")
            continue
        likes, articles = shop() if name == "online-retail" else rated(name)
        for epsilon, wanted in ARTICLES[name][1].items():
            found = [of_draw(likes, articles, epsilon, seed) for seed in range(draws)]
            mean = np.mean(found, axis=0)
            what = f"{name}, epsilon {epsilon:g}: Recall@{LISTED} {mean[1]:.3f} with the table"
            targets.line(mean[1] >= wanted, f"{what}, {mean[0]:.3f} without (target {wanted:g})")
    items, table, _ = films()
    articles = pq.read_table(folder() / "features" / "ml-1m-items.parquet")
    everybody = Ratings.from_any(table, Domain(items, (1, 5)))
    for n_users, least in ((300, 0.147), (600, 0.211), (1200, 0.233))[: 1 if TOY else 3]:
        found = []
        for seed in range(draws):
            order = np.random.default_rng(seed).permutation(everybody.n_users)
            rows, judged = (
                everybody.rows(np.sort(each), keyed=True) for each in (order[:n_users], order[-JUDGED:])
            )
            history, held = next(iter(k_folds(judged.liked(4.0).rated(), 5, seed=seed)))
            found.append(both_ways(rows, articles, 1.0, (history.aligned_to(held), held)))
        mean = np.mean(found, axis=0)
        what = f"{n_users:,} users of MovieLens-1M, epsilon 1: Recall@{LISTED} {mean[1]:.3f} with the table"
        targets.line(mean[1] >= least, f"{what}, {mean[0]:.3f} without (target {least:g})")


def predictions(targets: Targets, draws: int) -> None:
    """Print what the features of films, and those of other films, change in the RMSE of other users."""
    items, table, features = films()
    everybody = Ratings.from_any(table, Domain(items, (1, 5)))
    for n_users, epsilon in ((300, 1.0), (300, 5.0), (2500, 5.0)):
        found = []
        for seed in range(draws):
            rng = np.random.default_rng(seed)
            order = rng.permutation(everybody.n_users)
            history, held = next(iter(k_folds(everybody.rows(order[-JUDGED:], keyed=True), 5, seed=seed)))
            other = features.set_column(0, "item", [rng.permutation(features["item"].to_numpy())])
            rows, errors = everybody.rows(order[:n_users], keyed=True), []
            for facts in (None, features, other):
                known = replace(rows, domain=replace(everybody.domain, item_features=facts))
                accountant = Accountant(Budget(epsilon, 1e-6), noise=SeededNoise(seed))
                model = train("private-als", known, accountant, n_users=rows.n_users, seed=seed)
                errors.append(rmse(model, history.aligned_to(held), held))
            found.append(errors)
        change = np.subtract(found, np.array(found)[:, :1])
        error = change[:, 1].std() / np.sqrt(max(draws - 1, 1))
        (without, *_), (_, right, wrong) = np.mean(found, axis=0), change.mean(axis=0)
        what = f"{n_users:,} users, epsilon {epsilon:g}: RMSE {without:.4f}, with features {right:+.4f}"
        what += f" ± {error:.4f}, with those of other films {wrong:+.4f}"
        targets.line(right < 0 and wrong <= 0.002, what)


def shop() -> tuple[Ratings, pa.Table]:
    """Return the purchases of customers with at least five products, and the products' titles."""
    orders = csv.read_csv(folder() / ARTICLES["online-retail"][0])  # type: ignore[operator]
    titled = orders.filter(pc.is_valid(orders["Description"])).group_by("StockCode", use_threads=False)
    titles = titled.aggregate([("Description", "first")]).rename_columns(["item", "title"])
    bought = orders.filter(pc.and_(pc.greater(orders["Quantity"], 0), pc.is_valid(orders["CustomerID"])))
    domain = Domain(sorted(pc.unique(bought["StockCode"]).to_pylist()), likes=True)
    rows = {"user": bought["CustomerID"].cast(pa.int64()), "item": bought["StockCode"]}
    likes = Ratings.from_any(rows | {"time": bought["InvoiceDate"]}, domain, columns={"time": True})
    return likes.rows(np.diff(likes.matrix.indptr) >= 5, keyed=True), titles


def rated(name: str) -> tuple[Ratings, pa.Table]:
    """Return the ratings of a set and its articles."""
    articles = pq.read_table(folder() / ARTICLES[name][0])  # type: ignore[operator]
    return table(name), articles.select(["item", "title", "author" if name == "book-crossing" else "genres"])


def of_draw(likes: Ratings, articles: pa.Table, epsilon: float, seed: int) -> tuple[float, float]:
    history, held = split_ratings(likes, (0.8, 0.2), seed=seed)
    held = held.liked(likes.domain.like_threshold).rated()
    return both_ways(history, articles, epsilon, (history.aligned_to(held), held))


def both_ways(
    rows: Ratings, articles: pa.Table, epsilon: float, judged: tuple[Ratings, Ratings]
) -> tuple[float, float]:
    """Return Recall without and with the table."""
    (history, held), budget, found = judged, Budget(epsilon, 1e-6), []
    wanted = held.matrix.toarray() > 0
    for features in (None, articles):
        domain = replace(rows.domain, item_features=features)
        threshold = domain.like_threshold
        estimator = PrivateEigenRec.planned(budget, domain, rows.n_users, like_threshold=threshold)
        model = estimator.fit(replace(rows, domain=domain), Accountant(budget))
        listed = np.concatenate([each for each, *_ in model.rank(history, LISTED, predict=False)])
        hits = np.take_along_axis(wanted, listed, 1).sum(axis=1)
        found.append(float((hits / np.minimum(wanted.sum(axis=1), LISTED)).mean()))
    return found[0], found[1]


def run(algorithm: type[PrivateALS | PrivateEigenRec], seed: int) -> np.ndarray:
    """Recall, or mean squared error, of each judged user, one column an order of the new films."""
    rng = np.random.default_rng(seed)
    known, table, features = films()
    items = np.array(known)
    hidden = np.sort(rng.choice(items, int(HIDDEN * len(items)), replace=False))
    old = np.setdiff1d(items, hidden)
    judged = rng.choice(np.unique(table["user"].to_numpy()), JUDGED, replace=False)
    whole = Domain([*old.tolist(), *hidden.tolist()], (1, 5), item_features=features)
    is_judged, is_old = (
        pc.is_in(table[c], pa.array(v, table[c].type)) for c, v in (("user", judged), ("item", old))
    )
    training = table.filter(pc.invert(is_judged))
    n_users = pc.count_distinct(training["user"]).as_py()

    def trained(domain: Domain) -> Model:
        estimator = algorithm.planned(BUDGET, domain, n_users=n_users)
        return estimator.fit(Ratings.from_any(training, domain), Accountant(BUDGET), seed=seed)

    grown = trained(Domain(old.tolist(), (1, 5))).with_items(whole)
    rated = trained(whole)
    history = Ratings.from_any(table.filter(pc.and_(is_judged, is_old)), whole)
    wanted = Ratings.from_any(table.filter(pc.and_(is_judged, pc.invert(is_old))), whole)
    fresh = np.arange(len(old), len(items))
    rows = history.user_index(wanted)
    if algorithm is PrivateALS:
        middle = {name: np.array(array) for name, array in grown.arrays.items()}
        for name in ("item_bias", "item_factors"):
            middle[name][fresh] = middle[name][: len(old)].mean(axis=0)
        models = grown, replace(grown, arrays=middle), rated
        error = np.column_stack([each.predict_pairs(history, wanted) for each in models])
        errors = (error - wanted.matrix.data[:, None]) ** 2
        starts = wanted.matrix.indptr
        return np.array([errors[a:b].mean(axis=0) for a, b in zip(starts, starts[1:]) if b > a])
    facts = pq.read_table(folder() / "features" / "ml-1m-items.parquet")
    years = dict(zip(facts["item"].to_pylist(), facts["year"].to_pylist()))
    age = np.array([years[item] for item in hidden]) + rng.random(len(hidden))
    orders = [
        all_scores(grown.arrays, grown.fold_in(history))[:, fresh],
        rng.random((history.n_users, len(hidden))),
        np.tile(age, (history.n_users, 1)),
        all_scores(rated.arrays, rated.fold_in(history))[:, fresh],
    ]
    liked = wanted.liked(4.0).matrix[:, fresh].toarray() > 0
    kept = (rows >= 0) & liked.any(axis=1)
    return np.column_stack([recall(scores[rows[kept]], liked[kept]) for scores in orders])


def recall(scores: np.ndarray, liked: np.ndarray) -> np.ndarray:
    top = np.argsort(-scores, axis=1, kind="stable")[:, :LISTED]
    return np.take_along_axis(liked, top, axis=1).sum(axis=1) / np.minimum(liked.sum(axis=1), LISTED)


if __name__ == "__main__":
    main()
