"""Repeat the experiments of Jain, Thakkar and Thakurta 2018, every run at its true epsilon.

Minutes on two cores; ``--long`` takes the paper's sizes (500,000 users) and its 10 runs, hours. Real
ratings are read from the folder HUSHREC_DATA; without it these parts are skipped. All figures are
evaluated on held-out ratings and are not private themselves; settings were chosen on other splits of the
same data, and step sizes on a validation part, without charge. Results: docs/papers/frank-wolfe.md.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from benchmarks.harness import TOY, folder
from benchmarks.matrices import jtt18_matrix
from hushrec.data import Domain, Ratings, split_ratings
from hushrec.models import Estimator, GlobalMean, ItemBias, Popular
from hushrec.papers.frank_wolfe import (
    FrankWolfe,
    PrivateFrankWolfe,
    PrivateProjectedGradient,
    PrivateSVD,
    ProjectedGradient,
)
from hushrec.papers.mcsherry_mironov import CleansedSVD
from hushrec.privacy import Accountant, Budget, epsilon_of, mu_of

DELTA = 1e-6
CAP = 20 if TOY else 80  # ratings of a user, the paper's xi
LIST_EPSILON = 0.2  # of the released list of most rated films
SCHEDULES = {
    "t^-1/2": (1.0, 0.5),
    "1/t": (1.0, 1.0),
    ".05": (0.05, 0.0),
    ".1": (0.1, 0.0),
    ".2": (0.2, 0.0),
    ".5": (0.5, 0.0),
}

Method = Callable[[float], Estimator]


# ---------------------------------------------------------------------- what printed constants cost


def calibration() -> None:
    """Epsilon that the noise printed in the paper really gives (errata E1, O2, S1, P2)."""
    print("\n## What the printed constants give, delta = 1e-6\n")
    print("Entries are true epsilons (exact Gaussian accounting) of the noise printed for the nominal one.\n")
    columns = (
        "nominal",
        "Algorithm 1, add-remove",
        "Algorithm 1, replace (E1)",
        "Oja, 100 products, T = 1 / 10 / 50 (O2)",
        "SVD, add-remove (S1)",
        "PGD, step 1, T = 10 / 50 (P2)",
        "PGD, step 0.5, T = 50",
    )
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for nominal in (0.1, 0.5, 1.0, 2.0, 5.0):
        walk = printed_mu(nominal)
        oja = [true_epsilon(printed_oja_mu(nominal, 100, steps)) for steps in (1, 10, 50)]
        pgd = [
            true_epsilon(printed_gradient_mu(nominal, eta, steps))
            for eta, steps in ((1, 10), (1, 50), (0.5, 50))
        ]
        print(
            f"| {nominal:g} | {true_epsilon(walk):.3f} | {true_epsilon(walk * math.sqrt(2)):.3f} "
            f"| {oja[0]:.3f} / {oja[1]:.3f} / {oja[2]:.3f} | {true_epsilon(walk / 4):.3f} "
            f"| {pgd[0]:.3f} / {pgd[1]:.3f} | {pgd[2]:.3f} |"
        )


def true_epsilon(mu: float) -> float:
    return epsilon_of(mu, DELTA)


def printed_mu(nominal: float) -> float:
    """mu of T releases of sensitivity 4 L^2 with sd L^2 sqrt(64 T ln(1/delta)) / epsilon."""
    return 4 * nominal / math.sqrt(64 * math.log(1 / DELTA))


def printed_oja_mu(nominal: float, products: int, steps: int) -> float:
    """mu of ``steps * (products + 1)`` releases of sensitivity 4 L^2 at Algorithm 2's sd."""
    sd = math.sqrt(256 * products * math.log(2 / DELTA)) / nominal
    return 4 * math.sqrt(steps * (products + 1)) / sd


def gradient_row_norms(eta: float, steps: int) -> list[float]:
    """Largest norms of a row, in units of L, that Algorithm 5 can hand to the server, step by step.

    The gradient step refills the observed part; a projection can move half of the row elsewhere.
    """
    norms, seen, unseen = [], 0.0, 0.0
    for _ in range(steps):
        seen = (1 - eta) * seen + eta
        norms.append(math.hypot(seen, unseen))
        # the farthest point of the sphere with the row as diameter, which a projection can reach
        seen, unseen = seen / 2, unseen / 2 + norms[-1] / 2
    return norms


def printed_gradient_mu(nominal: float, eta: float, steps: int) -> float:
    """mu at Algorithm 5's sd for the rows that it really hands over."""
    sd = math.sqrt(64 * steps * math.log(1 / DELTA)) / nominal
    return math.sqrt(sum(norm**4 for norm in gradient_row_norms(eta, steps))) / sd


# ---------------------------------------------------------------------- running


@dataclass
class Errors:
    """Squared errors of one method at one epsilon, a sum for each user, over all runs."""

    squares: np.ndarray
    counts: np.ndarray
    seconds: float = 0.0
    runs: int = 0

    @property
    def rmse(self) -> float:
        return math.sqrt(self.squares.sum() / self.counts.sum())


def measure(
    split: Callable[[int], tuple[Ratings, Ratings]],
    everybody: Ratings,
    methods: dict[str, Method],
    epsilons: list[float],
    runs: int,
    spent_mu: float = 0.0,
) -> dict[tuple[str, float], Errors]:
    """Train and test every method at every epsilon, ``runs`` times; references (epsilon inf) once a run."""
    results: dict[tuple[str, float], Errors] = {}
    for run in range(runs):
        train, test = split(run)
        owner = np.repeat(everybody.user_index(test.users), np.diff(test.matrix.indptr))
        counts = np.bincount(owner, minlength=everybody.n_users)
        for name, method in methods.items():
            reference = name.startswith("non-private")
            for epsilon in [math.inf] if reference else epsilons:
                left = (
                    epsilon
                    if reference
                    else true_epsilon(math.sqrt(mu_of(epsilon, DELTA) ** 2 - spent_mu**2))
                )
                started = time.perf_counter()
                model = method(left).fit(train, Accountant(Budget(left, DELTA)), seed=run)
                predicted = model.predict_pairs(train, test)
                took = time.perf_counter() - started
                squares = np.bincount(owner, (predicted - test.matrix.data) ** 2, minlength=everybody.n_users)
                cell = results.setdefault(
                    (name, epsilon), Errors(np.zeros(everybody.n_users), np.zeros(everybody.n_users))
                )
                cell.squares += squares
                cell.counts += counts
                cell.seconds += took
                cell.runs += 1
        print(f"run {run + 1} of {runs} done", file=sys.stderr)
    return results


def wanted(methods: dict[str, Method], options: argparse.Namespace) -> dict[str, Method]:
    """The methods whose names contain one of the words asked for; all by default."""
    words = options.methods or [""]
    return {name: method for name, method in methods.items() if any(word in name for word in words)}


def table(results: dict[tuple[str, float], Errors], epsilons: list[float], unit: float = 1.0) -> None:
    """One line a method, a column an epsilon; RMSE over ``unit``."""
    names = list(dict.fromkeys(name for name, _ in results))
    print("| method | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " | seconds a run |")
    print("|---|" + "---|" * (len(epsilons) + 1))
    for name in names:
        cells = [results.get((name, epsilon), results.get((name, math.inf))) for epsilon in epsilons]
        seconds = np.mean([cell.seconds / cell.runs for cell in cells])
        figures = " | ".join(f"{cell.rmse / unit:.4f}" for cell in cells)
        print(f"| {name} | {figures} | {seconds:.1f} |", flush=True)


def paired(results: dict[tuple[str, float], Errors], best: str, epsilons: list[float]) -> None:
    """Difference in RMSE of every method from ``best``, by a bootstrap over users."""
    print(f"\nRMSE less that of {best}, 95% paired bootstrap interval over users:\n")
    print("| method | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " |")
    print("|---|" + "---|" * len(epsilons))
    rng = np.random.default_rng(0)
    n_users = len(next(iter(results.values())).squares)
    weights = [rng.multinomial(n_users, np.full(n_users, 1 / n_users)) for _ in range(300)]
    for name in dict.fromkeys(name for name, _ in results):
        if name == best or name.startswith("non-private"):
            continue
        cells = []
        for epsilon in epsilons:
            one, other = results[name, epsilon], results[best, epsilon]
            draws = [
                math.sqrt(w @ one.squares / (w @ one.counts))
                - math.sqrt(w @ other.squares / (w @ other.counts))
                for w in weights
            ]
            low, high = np.quantile(draws, [0.025, 0.975])
            cells.append(f"{one.rmse - other.rmse:+.4f} ({low:+.4f} to {high:+.4f})")
        print(f"| {name} | " + " | ".join(cells) + " |")


# ---------------------------------------------------------------------- synthetic matrix


def synthetic_methods(k: float, quick_gradient: bool) -> dict[str, Method]:
    """Every method on rank-one data around zero; ``k`` is the true nuclear norm."""
    middle = {"center": "middle"}
    clipped = {**middle, "residual_clip": 3.0, "residual_clip_decay": 0.8, "step_damping": 1.0}
    generous = {"nuclear_norm": 8 * k, "iterations": 15, **clipped}
    methods: dict[str, Method] = {
        "non-private FW, line search, 50 steps": lambda e: FrankWolfe(
            nuclear_norm=k, iterations=50, line_search=True, **middle
        ),
        "non-private FW, steps 1/T, T = 10": lambda e: FrankWolfe(nuclear_norm=k, iterations=10, **middle),
        "private FW, k true, B = 2L (Algorithm 1)": lambda e: PrivateFrankWolfe.of(
            nuclear_norm=k, iterations=10, **middle
        ),
        "private FW, k true, B = 3": lambda e: PrivateFrankWolfe.of(
            nuclear_norm=k, iterations=10, residual_clip=3.0, **middle
        ),
        "private FW, k declared, falling B": lambda e: PrivateFrankWolfe.of(**generous),
        "same with Oja, 10 products": lambda e: PrivateFrankWolfe.of(
            **generous, eigenvector="oja", inner_steps=10
        ),
        "same with power iteration, 4 products": lambda e: PrivateFrankWolfe.of(
            **generous, eigenvector="power"
        ),
        "private SVD, local scale (Algorithm 4)": lambda e: PrivateSVD.of(rank=1, scale="local", **middle),
        "private SVD, ridge": lambda e: PrivateSVD.of(rank=1, regularization=0.1, **middle),
        "cleansed SVD": lambda e: CleansedSVD(rank=1, prediction="neighbours"),
    }
    if quick_gradient:
        methods["private PGD, step 0.5, T = 5 (Algorithm 5)"] = lambda e: PrivateProjectedGradient.of(
            nuclear_norm=k, iterations=5, step_size=0.5, row_clip=9.0, **middle
        )
    return methods


def synthetic(options: argparse.Namespace, n_items: int) -> None:
    n_users = 500_000 if options.long else 300 if TOY else 100_000
    full = jtt18_matrix(n_users, n_items, ratings_per_user=CAP, seed=0)
    k = float(np.linalg.norm(full.user_factors) * np.linalg.norm(full.item_factors))
    epsilons = options.epsilons or ([0.1, 0.5, 1.0, 2.0, 5.0] if options.long or n_items == 400 else [1.0])
    trivial = math.sqrt(float(np.mean(full.ratings.matrix.data.astype(np.float64) ** 2)))
    print(f"\n## Synthetic rank-one matrix, {n_users:,} x {n_items}, {CAP} ratings a user\n")
    print(
        f"RMSE over that of the trivial solution 0 ({trivial:.4f}); true nuclear norm {k:.0f}.\n", flush=True
    )
    every = synthetic_methods(k, quick_gradient=n_items <= 400)
    methods = wanted(every, options)
    runs = options.runs or (10 if options.long else 1)
    results = measure(
        lambda run: split_ratings(full.ratings, (0.99, 0.01), seed=run), full.ratings, methods, epsilons, runs
    )
    results["zero", math.inf] = Errors(np.array([trivial**2]), np.ones(1), runs=1)
    table(results, epsilons, trivial)
    name = "private FW, k true, B = 2L (Algorithm 1)"
    at = true_epsilon(printed_mu(1.0))
    printed = measure(
        lambda run: split_ratings(full.ratings, (0.99, 0.01), seed=run),
        full.ratings,
        {name: every[name]},
        [at],
        runs,
    )
    print(
        f"\nWith the noise printed for epsilon 1, which is that of epsilon {at:.3f}, Algorithm 1 has "
        f"{printed[name, at].rmse / trivial:.4f}."
    )


def users(long: bool) -> None:
    """Remarks 1 to 6: Frank-Wolfe improves with the number of users, the SVD has a floor."""
    sizes = [10_000, 30_000, 100_000, 200_000, 500_000] if long else [10_000, 30_000, 100_000]
    sizes = [200, 400] if TOY else sizes
    print("\n## RMSE against the number of users, epsilon 1, synthetic, 400 items\n")
    print("RMSE over that of the trivial solution.\n")
    chosen = (
        "private FW, k true, B = 3",
        "private FW, k declared, falling B",
        "private SVD, local scale (Algorithm 4)",
        "private SVD, ridge",
    )
    print("| users | " + " | ".join(chosen) + " |\n|---|" + "---|" * len(chosen))
    for n_users in sizes:
        full = jtt18_matrix(n_users, 400, ratings_per_user=CAP, seed=1)
        k = float(np.linalg.norm(full.user_factors) * np.linalg.norm(full.item_factors))
        methods = {name: method for name, method in synthetic_methods(k, False).items() if name in chosen}
        split = split_ratings(full.ratings, (0.99, 0.01), seed=0)
        results = measure(lambda run, split=split: split, full.ratings, methods, [1.0], 3 if long else 1)
        trivial = math.sqrt(float(np.mean(split[1].matrix.data.astype(np.float64) ** 2)))
        figures = " | ".join(f"{results[name, 1.0].rmse / trivial:.4f}" for name in chosen)
        print(f"| {n_users:,} | {figures} |", flush=True)


# ---------------------------------------------------------------------- real ratings


def read(name: str, domain: Domain, rescale: Callable[[np.ndarray], np.ndarray] = lambda x: x) -> Ratings:
    columns = pq.read_table(folder() / name, columns=["user", "item", "rating"])  # type: ignore[operator]
    arrays = [columns[each].to_numpy() for each in ("user", "item", "rating")]
    return Ratings.from_any((arrays[0], arrays[1], rescale(arrays[2].astype(np.float64))), domain)


def most_rated(ratings: Ratings, count: int) -> Ratings:
    """The ratings of the most rated items, by a list that was released for LIST_EPSILON."""
    weights = Popular().fit(ratings, Accountant(Budget(LIST_EPSILON, DELTA))).item_bias
    chosen = np.sort(np.argsort(-weights)[:count])
    items = [ratings.domain.items[column] for column in chosen]
    domain = Domain(items=items, rating_range=(ratings.domain.low, ratings.domain.high))
    rows = ratings.to_arrow()
    return Ratings.from_any(rows, domain)


def real_methods(
    ratings: Ratings, gradient: dict[str, float] | None, cap: int, long: bool
) -> dict[str, Method]:
    size = math.sqrt(ratings.n_users * ratings.n_items)
    n_users, domain = ratings.n_users, ratings.domain
    capped = {"max_ratings_per_user": cap}
    methods: dict[str, Method] = {
        "global mean": lambda e: GlobalMean(),
        "user mean + item bias": lambda e: ItemBias(),
        "non-private FW": lambda e: FrankWolfe(
            nuclear_norm=0.6 * size, iterations=400 if long else 100, line_search=True
        ),
        "private FW (Algorithm 1)": lambda e: PrivateFrankWolfe(
            nuclear_norm=size, iterations=5, max_ratings_per_user=cap
        ),
        "private FW, biases first, B = 2": lambda e: PrivateFrankWolfe.planned(
            Budget(e, DELTA), domain, n_users, iterations=5, **capped
        ),
        "private SVD, ridge (Algorithm 4)": lambda e: PrivateSVD.of(rank=3, row_clip=3.0, **capped),
        "private SVD, biases first": lambda e: PrivateSVD.of(rank=3, row_clip=3.0, center="biases", **capped),
        "cleansed SVD": lambda e: CleansedSVD(max_ratings_per_user=cap),
        "cleansed SVD, neighbours": lambda e: CleansedSVD(prediction="neighbours", max_ratings_per_user=cap),
    }
    if gradient:
        methods["non-private PGD"] = lambda e: ProjectedGradient.of(
            nuclear_norm=0.6 * size, iterations=20, step_size=1.0
        )
        methods["private PGD (Algorithm 5)"] = lambda e: PrivateProjectedGradient.of(
            nuclear_norm=size, row_clip=2.0, max_ratings_per_user=cap, **gradient
        )
        methods["private PGD, biases first"] = lambda e: PrivateProjectedGradient.of(
            nuclear_norm=size, row_clip=2.0, max_ratings_per_user=cap, center="biases", **gradient
        )
    return methods


def best_gradient_settings(ratings: Ratings, cap: int, long: bool) -> dict[str, float]:
    """Steps of private PGD, the best of the paper's at epsilon 1 on a validation part; not charged."""
    train, validation = split_ratings(ratings, (0.95, 0.05), seed=99)
    size = math.sqrt(ratings.n_users * ratings.n_items)
    tried = []
    for iterations in (5, 10, 20) if long else (5,):
        for eta, decay in SCHEDULES.values():
            steps = {"iterations": iterations, "step_size": eta, "step_decay": decay}
            estimator = PrivateProjectedGradient.of(
                nuclear_norm=size, row_clip=2.0, max_ratings_per_user=cap, **steps
            )
            model = estimator.fit(train, Accountant(Budget(1.0, DELTA)))
            errors = model.predict_pairs(train, validation) - validation.matrix.data
            tried.append((float(np.mean(errors**2)), steps))
    return min(tried, key=lambda pair: pair[0])[1]


def real(name: str, ratings: Ratings, cap: int, options: argparse.Namespace, spent_mu: float = 0.0) -> None:
    with_gradient = ratings.n_items <= 400
    epsilons = options.epsilons or [0.1, 0.5, 1.0, 2.0, 5.0][spent_mu > 0 :]
    runs = options.runs or (10 if options.long else 5 if with_gradient else 2)
    gradient = best_gradient_settings(ratings, cap, options.long) if with_gradient else None
    print(f"\n## {name}: {ratings.n_users:,} users, {ratings.n_items} items, {ratings.n_ratings:,} ratings\n")
    print(f"1% of the ratings for testing, {runs} runs, RMSE over all.", end=" ")
    if gradient:
        print(f"PGD with {gradient}, the best on a validation part.", end=" ")
    if spent_mu:
        print(f"Each epsilon includes the list of items, released once for epsilon {LIST_EPSILON:g}.", end="")
    print("\n", flush=True)
    methods = wanted(real_methods(ratings, gradient, cap, options.long), options)
    results = measure(
        lambda run: split_ratings(ratings, (0.99, 0.01), seed=run), ratings, methods, epsilons, runs, spent_mu
    )
    table(results, epsilons)
    paired(results, "user mean + item bias", epsilons)


def jester() -> Ratings:
    """The first part rates 100 jokes from -10 to 10; rescaled to 0 to 5 as in the paper."""
    return read(
        "jester-1.parquet", Domain(items=range(1, 101), rating_range=(0, 5)), lambda rating: (rating + 10) / 4
    )


def movielens(options: argparse.Namespace, count: int) -> None:
    ratings = read("ml-1m.parquet", Domain(items=range(1, 3953), rating_range=(1, 5)))
    spent = mu_of(LIST_EPSILON, DELTA)
    real(f"MovieLens-1M top {count}", most_rated(ratings, count), CAP, options, spent)


# ---------------------------------------------------------------------- main


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "calibration": lambda options: calibration(),
    "synthetic": lambda options: synthetic(options, 40 if TOY else 400),
    "synthetic-900": lambda options: synthetic(options, 90 if TOY else 900),
    "users": lambda options: users(options.long),
    "jester": lambda options: real("Jester part 1", jester(), 100, options),
    "movielens": lambda options: movielens(options, 40 if TOY else 400),
    "movielens-900": lambda options: movielens(options, 900),
}
REAL = {"jester", "movielens", "movielens-900"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--long", action="store_true", help="the paper's sizes and numbers of runs")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS)[:: 2 if TOY else 1])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0] if TOY else None)
    parser.add_argument("--runs", type=int, default=1 if TOY else None, help="instead of 1 to 5, or 10")
    parser.add_argument("--methods", nargs="+", help="parts of names, for the synthetic and real parts")
    options = parser.parse_args()
    for part in options.only:
        if part in REAL and folder() is None:
            print(f"\nHUSHREC_DATA is not set, so {part} is skipped.")
        else:
            PARTS[part](options)


if __name__ == "__main__":
    main()
