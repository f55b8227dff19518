"""Recommendation from likes, with and without privacy: Recall@20 and NDCG@20 (`make bench-implicit`).

Ratings of 4 or 5 of MovieLens-1M and -100K (from the folder ``HUSHREC_DATA``) are likes; a third catalogue,
generated, has pairs of items. Strong
generalisation: a tenth of the users is held out whole, folded in from 80% of their likes and judged on the
rest; the others train. User-level privacy, add/remove, delta 1e-5; every figure is the mean over noise draws.
The data sets are public: the runs are charged to no ledger.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import scipy.sparse as sp
from scipy import stats

from benchmarks.frontier.data import DATASETS, LIKED, available, folder
from benchmarks.never_loses import TABLES, there
from hushrec.checks import settings_of
from hushrec.data import Domain, Ratings, paired_likes, strong_generalization
from hushrec.data.splits import HeldOutUsers
from hushrec.evaluation import evaluate
from hushrec.evaluation.compare import LIKES_ALS
from hushrec.evaluation.metrics import rank_scores
from hushrec.kernels.fixed_point import FACTOR_BITS, spacing, truncated
from hushrec.kernels.packed import frobenius_scale, top_eigenpairs, unpacked
from hushrec.kernels.sparse_rows import clipped_rows
from hushrec.models import ALS, EASE, Estimator, Gate, Popular, PrivateEigenRec
from hushrec.models.likes_taste import NOTHING, Taste
from hushrec.models.liking_users import LikingUsers
from hushrec.papers.dpals import DPALS
from hushrec.privacy import Accountant, Bounded, Budget, Plan, positive
from hushrec.training.estimator import Round, plan_of

DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
ABLATION_EPSILONS = (1.0, 5.0, 20.0)
CATALOGUES = {"ml-1m": range(1, 3953), "ml-100k": range(1, 1683), "yahoo-r3": range(1000)}
_IMPLICIT = "ALS of the library implicit, rank 32, alpha 3, ridge 15"
#: Recall@20 and NDCG@20.
Figures = tuple[float, float]

#: What `--tune` draws Algorithm 1's settings from; a clip of 2 half ranges is the like itself.
GRID = {
    "rank": (1, 2, 4, 8, 16),
    "iterations": (2, 3),
    "item_fraction": (0.03, 0.1, 0.3, 1.0),
    "user_norm": (0.1, 0.2, 0.5, 1.0),
    "regularization": (3.0, 10.0, 40.0),
    "unobserved_weight": (0.05, 0.2, 0.5),
    "weights_share": (0.05, 0.15),
}
#: What 20 tries found on validation users of each data set, in the order of the grid.
_FOUND: dict[str, dict[float, tuple[float, ...]]] = {
    "ml-100k": {
        0.5: (16, 3, 0.03, 0.2, 10.0, 0.5, 0.15),
        1.0: (2, 3, 0.03, 0.1, 40.0, 0.5, 0.15),
        2.0: (4, 3, 0.1, 0.5, 40.0, 0.5, 0.05),
        5.0: (8, 2, 0.1, 0.2, 3.0, 0.5, 0.05),
        10.0: (8, 2, 0.1, 0.2, 3.0, 0.5, 0.05),
        20.0: (8, 2, 0.1, 0.2, 3.0, 0.5, 0.05),
    },
    "ml-1m": {
        0.5: (16, 2, 0.03, 0.2, 40.0, 0.05, 0.05),
        1.0: (8, 3, 0.1, 0.1, 10.0, 0.5, 0.05),
        2.0: (16, 3, 0.03, 0.2, 10.0, 0.5, 0.15),
        5.0: (16, 3, 0.1, 0.2, 10.0, 0.5, 0.15),
        10.0: (16, 3, 0.1, 0.2, 10.0, 0.5, 0.15),
        20.0: (16, 3, 0.1, 0.2, 10.0, 0.5, 0.15),
    },
}
PUBLISHED: dict[str, dict[float, dict[str, Any]]] = {
    name: {epsilon: dict(zip(GRID, values)) for epsilon, values in found.items()}
    for name, found in _FOUND.items()
}

#: Recall@20 that private EigenRec is to reach, and the splits of the users that it is the mean over.
TARGETS = {
    "ml-1m": (1, dict(zip(EPSILONS, (0.219, 0.245, 0.276, 0.303, 0.316, 0.332)))),
    "ml-100k": (5, dict(zip(EPSILONS, (0.185, 0.250, 0.295, 0.352, 0.364, 0.372)))),
}
#: What the constants of the planning rule were chosen from, on validation users (`--constants`).
CONSTANTS: dict[str, dict[str, Any]] = {
    "as planned": {},
    "two thirds of the rank": {"rank": 0.67},
    "half the items learned": {"learned_items": 0.5},
    "3/4 of the items learned": {"learned_items": 0.75},
    "1.4 times the items learned": {"learned_items": 1.4},
    "popularity at 0.5": {"popularity_gain": 0.5},
    "popularity at 1": {"popularity_gain": 1.0},
    "3 rounds": {"iterations": 3},
    "5 rounds": {"iterations": 5},
}
#: Generated likes on which private EigenRec must not lose to `popular`: users, items, likes a user, taste.
CORNERS = (
    (100, 50, 5, 1.0),
    (300, 300, 20, 1.0),
    (300, 5000, 30, 0.5),
    (1000, 400, 40, 0.0),
    (1800, 1500, 20, 0.0),
    (1800, 6000, 8, 1.0),
    (2700, 3000, 50, 0.7),
    (4000, 800, 12, 0.7),
    (6000, 10_000, 10, 0.5),
    (20_000, 2000, 3, 1.0),
    (20_000, 20_000, 15, 0.7),
)
#: What the rule that tells pairs from directions was chosen on: data sets, or users, items, likes a user,
#: share of items with companions and taste of generated ones.
PAIRS_OR_DIRECTIONS: tuple[str | tuple[int, int, int, float, float], ...] = (
    "yahoo-r3",
    "ml-1m",
    (15_000, 1000, 9, 0.0, 2.0),
    (15_000, 1000, 9, 0.1, 1.0),
    (15_000, 1000, 9, 0.3, 1.0),
    (8000, 2000, 20, 0.1, 1.5),
)
#: Real tables on which it must not, and from which rating up they tell likes.
LEAST_LIKED = {
    "coat": 4,
    "flixster": 4,
    "restaurant": 2,
    "ml-100k": 4,
    "yahoo-r3": 4,
    "jester": 5,
    "ml-1m": 4,
}
#: What it may lose of Recall@20.
MOST_LOST = 0.002
#: Each idea taken back, alone.
ABLATIONS: dict[str, dict[str, Any]] = {
    "as planned": {},
    "items not scaled by popularity": {"weight_exponent": 0.0},
    "directions not equalized": {"equalization": 0.0},
    "all rounds the same share": {"share_growth": 1.0},
    "4 rounds": {"iterations": 4},
    "12 rounds": {"iterations": 12},
    "half the rank": {"rank": 0.5},
    "twice the rank": {"rank": 2.0},
    "half as many items learned": {"learned_items": 0.5},
    "twice as many items learned": {"learned_items": 2.0},
    "popularity at its full weight": {"popularity_gain": 1.0},
    "half the share for item weights": {"weights_share": 0.5},
    "twice the share for item weights": {"weights_share": 2.0},
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=5, help="noise draws a figure (default 5)")
    parser.add_argument("--only", choices=[*TARGETS, "pairs"], help="one of the data sets")
    parser.add_argument("--targets", action="store_true", help="Recall@20 against what it is to reach")
    parser.add_argument("--never-loses", action="store_true", help="against `popular`, real and generated")
    parser.add_argument("--constants", action="store_true", help="the planning rule on validation users")
    parser.add_argument("--pairs", action="store_true", help="directions beside pairs, on validation users")
    parser.add_argument("--tune", type=int, metavar="N", help="choose Algorithm 1's settings, N tries each")
    options = parser.parse_args()
    if options.never_loses:
        real = LEAST_LIKED.items()
        done = [table_of_likes(name, least, options.draws) for name, least in real if there(name)]
        done += [corner(number, *shape, options.draws) for number, shape in enumerate(CORNERS)]
        raise SystemExit(not all(done))
    if options.pairs:
        for name in PAIRS_OR_DIRECTIONS:
            both_branches(name, options.draws)
        return
    if options.targets or options.constants:
        names = [name for name in TARGETS if options.only in (None, name) and available(name)]
        work = reached if options.targets else constants
        done = [work(name, options.draws) for name in names]
        raise SystemExit(not all(done))
    for name in [options.only] if options.only else [*TARGETS, "pairs"]:
        if name == "pairs":
            if not options.tune:
                pairs_table(options.draws)
        elif not available(name):
            print(f"{name} skipped: set HUSHREC_DATA to a folder that holds {name}.parquet.")
        elif options.tune:
            tune(name, options.tune)
        else:
            table(name, options.draws)


def table(name: str, draws: int) -> None:
    """Everything for one data set."""
    parts = test_users(name)
    print(f"## {name}: {parts.train.n_users} users train, {parts.target.n_users} are judged\n")
    print(f"Recall@20 / NDCG@20, mean of {draws} noise draws (spread of Recall: standard deviation)\n")
    print("| epsilon | most popular | DPALS (Algorithm 1) | noisy item x item matrix | private EigenRec |")
    print("|---|---|---|---|---|", flush=True)
    for epsilon in EPSILONS:
        budget = Budget(epsilon, DELTA)
        eigenrec = planned(budget, parts)
        once = settings_of(eigenrec) | {"matrix_share": 0.0}
        settings = PUBLISHED.get(name, {}).get(epsilon)
        models = {
            "popular": Popular(),
            "dpals": published(settings) if settings else None,
            "matrix": NoisyItemMatrix.of(once) if eigenrec.rank else None,
            "eigenrec": eigenrec,
        }
        cells = [spell(runs(model, budget, parts, draws)) if model else "–" for model in models.values()]
        print(f"| {epsilon:g} | {' | '.join(cells[:-1])} | **{cells[-1]}** |", flush=True)
    print("\n| without privacy | Recall@20 / NDCG@20 |\n|---|---|", flush=True)
    for label, figures in references(parts).items():
        print(f"| {label} | {spell([figures()])} |", flush=True)
    print("\nEach idea taken back, Recall@20\n")
    print("| | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in ABLATION_EPSILONS) + " |")
    print("|---" * (1 + len(ABLATION_EPSILONS)) + "|", flush=True)
    for label, changes in ABLATIONS.items():
        cells = []
        for epsilon in ABLATION_EPSILONS:
            budget = Budget(epsilon, DELTA)
            figures = runs(planned(budget, parts, changes), budget, parts, draws)
            cells.append(f"{np.mean(figures, axis=0)[0]:.4f}")
        print(f"| {label} | {' | '.join(cells)} |", flush=True)
    print()


# ---------------------------------------------------------------------- data


def likes(name: str) -> Ratings:
    """Ratings from LIKED up, as likes."""
    return likes_of(DATASETS[name].files[0], CATALOGUES[name], LIKED)


def likes_of(file: str, items: Iterable[int], least: float) -> Ratings:
    """The ratings of a file from ``least`` up, as likes."""
    table = pq.read_table(folder() / file, columns=["user", "item", "rating"])  # type: ignore[operator]
    domain = Domain(items=items, rating_range=(0, 1))
    return Ratings.from_any(table.filter(pc.greater_equal(table["rating"], least)), domain, implicit=True)


def test_users(name: str) -> HeldOutUsers:
    """The test's users, set aside first."""
    ratings = likes(name)
    return strong_generalization(ratings, 0.1, seed=0)


def validation_users(name: str) -> HeldOutUsers:
    """Other users, set aside among those who train."""
    train = test_users(name).train
    return strong_generalization(train, 1 / 9, seed=100)


# ---------------------------------------------------------------------- models


def planned(budget: Budget, parts: HeldOutUsers, changes: Mapping[str, Any] | None = None) -> PrivateEigenRec:
    """Private EigenRec by its planning rule; changed ranks, items and shares are multiples."""
    model = PrivateEigenRec.planned(budget, parts.train.domain, parts.train.n_users)
    given = dict(changes or {})
    for name in ("rank", "learned_items", "weights_share"):
        if name in given:
            changed = given[name] * settings_of(model)[name]
            given[name] = min(changed, 0.9) if name == "weights_share" else max(1, round(changed))
    return PrivateEigenRec.of(settings_of(model), given)


def published(settings: Mapping[str, Any]) -> DPALS:
    """Algorithm 1 for likes, with the tail of the users' items sampled (section 5.1)."""
    return DPALS.of(**{"clip": 2.0, "sampling": "tail", **settings})


@dataclass(frozen=True, kw_only=True)
class NoisyItemMatrix(PrivateEigenRec):
    """The same model from one noisy item x item matrix (a user's row times itself) instead of products."""

    name: ClassVar[str] = "noisy-item-matrix"

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        weights = super().releases(budget, domain, fraction).releases[0]
        matrix = plan_of(
            [Round("matrix", 1.0, positive(1.0))], budget, fraction * (1 - self.tuning.weights_share)
        )
        return Plan(budget, (weights, *matrix.releases))

    def _power_iteration(
        self, users: LikingUsers, known: Any, start: Any, gate: Gate
    ) -> tuple[Taste, Any, float]:
        rank = start.shape[1]
        learned, scales = known.learned, known.scale
        rows = sp.csr_array(users._ratings.matrix, dtype=np.float64, copy=True)
        rows.data = scales[rows.indices]
        rows.data = clipped_rows(rows.indptr, rows.data / max(scales[learned].min(), 1e-9), 1.0)
        rows.data = truncated(rows.data, spacing(1.0, FACTOR_BITS))
        rows = rows[:, np.flatnonzero(learned)]
        order = rows.shape[1]
        packed = (rows.T @ rows).toarray()[np.tril_indices(order)]
        matrix = unpacked(
            gate.release("matrix", Bounded(packed, positive(1.0), weight=frobenius_scale(order)))
        )
        first = known.first[learned] / np.linalg.norm(known.first)
        apart = np.eye(order) - np.outer(first, first)
        values, columns = top_eigenpairs(apart @ matrix @ apart, rank)
        noise = order * gate.noise_sd("matrix") ** 2 / 2
        above = np.maximum(1 - noise / np.maximum(values, 1e-300) ** 2, 0.0) * (values > 0)
        return (
            NOTHING._replace(vectors=columns, values=values, gains=above, certain=above),
            known.noisy,
            known.noise_sd,
        )


class Directions(PrivateEigenRec):
    """Whatever the item matrix holds, directions."""

    def _has_pairs(self, parts: Any) -> bool:
        return False


class Pairs(PrivateEigenRec):
    """Whatever the item matrix holds, pairs; keeps the part that they are."""

    parts: ClassVar[list[float]] = []

    def _has_pairs(self, parts: Any) -> bool:
        self.parts.append(parts.pairs_part())
        return True


def references(parts: HeldOutUsers) -> dict[str, Callable[[], Figures]]:
    """Models without privacy."""
    open_budget = Budget(math.inf, DELTA)

    def ours(model: Estimator) -> Callable[[], Figures]:
        return lambda: runs(model, open_budget, parts, 1)[0]

    return {
        "private EigenRec at epsilon inf": ours(planned(open_budget, parts)),
        "ALS (`als`), as in `compare`": ours(ALS(**LIKES_ALS)),
        "EASE (`ease`)": ours(EASE()),
    } | ({_IMPLICIT: lambda: implicit_als(parts)} if find_spec("implicit") else {})


def implicit_als(parts: HeldOutUsers) -> Figures:
    """Confidence 1 + 3 for a like is a pull of 1/3 of a like's weight by every other cell."""
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(factors=32, regularization=15.0, alpha=3.0, iterations=15, random_state=0)
    model.fit(sp.csr_matrix(parts.train.matrix), show_progress=False)
    history = sp.csr_matrix(parts.fold_in.matrix)
    users = model.recalculate_user(np.arange(history.shape[0]), history)
    return judged(parts, users @ model.item_factors.T)


# ---------------------------------------------------------------------- figures


def reached(name: str, draws: int) -> bool:
    """Recall@20 beside its target at every epsilon; True where none falls short."""
    splits, targets = TARGETS[name]
    whole, short = likes(name), 0
    parts = [strong_generalization(whole, 0.1, seed=seed) for seed in range(splits)]
    print(f"{name}: Recall@20, {splits} splits x {draws} draws (spread over all of them)")
    for epsilon, target in targets.items():
        budget = Budget(epsilon, DELTA)
        recall = [found[0] for part in parts for found in runs(planned(budget, part), budget, part, draws)]
        mean, falls = np.mean(recall), np.mean(recall) < target
        short += falls
        verdict = f"short by {target - mean:.4f}" if falls else "PASS"
        spread = np.std(recall, ddof=1)
        print(
            f"epsilon {epsilon:4g}: {mean:.4f} (± {spread:.4f}), target {target:.3f}: {verdict}", flush=True
        )
    return not short


def constants(name: str, draws: int) -> bool:
    """Recall@20 on validation users of the planned settings and of others around them."""
    parts = validation_users(name)
    for label, changes in CONSTANTS.items():
        found = []
        for epsilon in ABLATION_EPSILONS:
            budget = Budget(epsilon, DELTA)
            found.append(np.mean(runs(planned(budget, parts, changes), budget, parts, draws), axis=0)[0])
        print(f"{name}, {label}: " + " ".join(f"{recall:.4f}" for recall in found), flush=True)
    return True


def corner(seed: int, n_users: int, n_items: int, each: int, taste: float, draws: int) -> bool:
    """Generated likes beside `popular`."""
    chosen = {"paired": 0.0, "taste_spread": taste, "seed": 100 + seed}
    ratings = paired_likes(2 * n_users, n_items, 2 * n_users * each, **chosen)
    label = f"{n_users:,} users x {n_items:,} items, {each} likes a user, taste {taste}"
    return never_loses(label, strong_generalization(ratings, 0.5, seed=seed), ABLATION_EPSILONS, draws)


def table_of_likes(name: str, least: float, draws: int) -> bool:
    """The high ratings of a real table beside `popular`; its catalogue is the items of the file."""
    file = f"{TABLES[name][0]}.parquet"
    items = np.unique(pq.read_table(folder() / file, columns=["item"])["item"].to_numpy())  # type: ignore[operator]
    ratings = likes_of(file, items.tolist(), least)
    parts = strong_generalization(ratings, 0.2, seed=0)
    return never_loses(name, parts, (0.1, 0.5, *ABLATION_EPSILONS), draws)


def never_loses(label: str, parts: HeldOutUsers, epsilons: Iterable[float], draws: int) -> bool:
    """Recall@20 less that of `popular`; falls short where the 95% interval's end says so.

    Who falls short is judged once more, on eight times as many draws: with few of them one in twenty does by
    chance.
    """
    passed = True
    for epsilon in epsilons:
        budget = Budget(epsilon, DELTA)
        for count in (draws, 8 * draws):
            ours, popular = (
                np.array(runs(model, budget, parts, count))[:, 0]
                for model in (planned(budget, parts), Popular())
            )
            lost, error = (popular - ours).mean(), (popular - ours).std(ddof=1) / math.sqrt(count)
            good = lost - (student(count) * error if error > 0.0007 else 0.0) <= MOST_LOST
            if good:
                break
        passed = passed and good
        print(
            f"{label}, epsilon {epsilon:g}:"
            f" popular {popular.mean():.4f}, gain {-lost:+.4f} (± {error:.4f}, {count} draws)"
            f" {'PASS' if good else 'falls short'}",
            flush=True,
        )
    return passed


def both_branches(name: str | tuple[int, int, int, float, float], draws: int) -> None:
    """Recall@20 of directions and of pairs from the same plan, and what the rule chooses between them."""
    if isinstance(name, str):
        if not available(name):
            print(f"{name} skipped: set HUSHREC_DATA to a folder that holds it.")
            return
        parts = validation_users(name)
    else:
        n_users, n_items, each, paired, taste = name
        chosen = {"paired": paired, "taste_spread": taste, "seed": 77}
        parts = strong_generalization(paired_likes(n_users, n_items, n_users * each, **chosen), 0.2, seed=5)
    for epsilon in (5.0, 10.0, 20.0):
        budget, recall = Budget(epsilon, DELTA), {}
        for label, kind in (("directions", Directions), ("pairs", Pairs), ("the rule's", PrivateEigenRec)):
            model = kind.of(settings_of(planned(budget, parts)))
            recall[label] = np.mean(runs(model, budget, parts, draws), axis=0)[0]
        figures = ", ".join(f"{label} {value:.4f}" for label, value in recall.items())
        least, most = min(Pairs.parts), max(Pairs.parts)
        Pairs.parts.clear()
        print(f"{name}, epsilon {epsilon:g}: {figures}; pairs are {least:.3f} to {most:.3f}", flush=True)


def student(draws: int) -> float:
    """The one-sided 95% quantile for a mean of so many draws."""
    return float(stats.t.ppf(0.95, draws - 1))


def pairs_table(draws: int) -> None:
    """A generated catalogue with pairs of items: with and without the item matrix."""
    parts = strong_generalization(paired_likes(4200, 7200, 310_000, seed=11), 0.1, seed=0)
    print(f"## pairs: {parts.train.n_users} users train, {parts.target.n_users} are judged\n")
    print(f"Recall@20 / NDCG@20, mean of {draws} noise draws (spread of Recall: standard deviation)\n")
    print("| epsilon | most popular | directions alone | private EigenRec |\n|---|---|---|---|", flush=True)
    for epsilon in EPSILONS:
        budget = Budget(epsilon, DELTA)
        chosen = planned(budget, parts)
        models = Popular(), PrivateEigenRec.of(settings_of(chosen), matrix_share=0.0), chosen
        cells = [spell(runs(model, budget, parts, draws)) for model in models]
        print(f"| {epsilon:g} | {cells[0]} | {cells[1]} | **{cells[2]}** |", flush=True)
    print("\n| without privacy | Recall@20 / NDCG@20 |\n|---|---|", flush=True)
    for label, figures in references(parts).items():
        print(f"| {label} | {spell([figures()])} |", flush=True)
    print()


def runs(model: Estimator, budget: Budget, parts: HeldOutUsers, draws: int) -> list[Figures]:
    """Figures of several noise draws, each with its own start."""
    found = []
    for draw in range(draws):
        billboard = model.fit(parts.train, Accountant(budget, data_is_public=True), seed=draw)
        wanted = ["capped-recall", "ndcg"]
        figures = evaluate(billboard, parts.fold_in, parts.target, k=20, metrics=wanted, resamples=0)
        found.append((figures["capped-recall@20"].value, figures["ndcg@20"].value))
    return found


def judged(parts: HeldOutUsers, scores: Any) -> Figures:
    """Figures of a model that is no billboard, from the scores of the held-out users."""
    history, target = parts.fold_in, parts.target.aligned_to(parts.fold_in)
    relevant = target.matrix.toarray() > 0
    best = np.argsort(-np.where(history.matrix.toarray() > 0, -np.inf, scores), axis=1)[:, :20]
    found = rank_scores(np.take_along_axis(relevant, best, axis=1), relevant.sum(axis=1))
    return float(np.nanmean(found["capped-recall"])), float(np.nanmean(found["ndcg"]))


def spell(figures: Iterable[Figures]) -> str:
    found = np.array(list(figures))
    recall, ndcg = found.mean(axis=0)
    spread = f" (± {found[:, 0].std(ddof=1):.4f})" if len(found) > 1 else ""
    return f"{recall:.4f} / {ndcg:.4f}{spread}"


def tune(name: str, tries: int) -> None:
    """Algorithm 1's best settings on validation users, from random points of the grid, without charge."""
    parts = validation_users(name)
    points = [dict(zip(GRID, values)) for values in itertools.product(*GRID.values())]
    for epsilon in EPSILONS:
        chosen = np.random.default_rng(0).choice(len(points), tries, replace=False)
        budget = Budget(epsilon, DELTA)
        found = [(runs(published(points[each]), budget, parts, 1)[0][0], points[each]) for each in chosen]
        recall, settings = max(found, key=lambda pair: pair[0])
        print(f"{name} {epsilon:g}: {recall:.4f} {settings}", flush=True)


if __name__ == "__main__":
    main()
