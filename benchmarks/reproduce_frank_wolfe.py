"""The experiments of Jain, Thakkar and Thakurta 2018, every run at its true epsilon
(docs/papers/frank-wolfe.md).

    python -m benchmarks.reproduce_frank_wolfe [--long] [--only calibration synthetic ...] [--output FOLDER]

Minutes on two cores; ``--long`` takes the paper's sizes (500,000 users) and its 10 runs, hours. Real ratings
are read from the folder HUSHREC_DATA, whose parts are skipped where it does not exist. Everything printed is
evaluated on held-out ratings and is itself not private; settings were chosen on other splits of the same
data, and step sizes on a validation part, without charge.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse

from benchmarks.matrices import jtt18_matrix
from hushrec.data import Domain, Ratings, split_ratings
from hushrec.models import Estimator, GlobalMean, ItemBias, Popular
from hushrec.papers.frank_wolfe import (
    CorrectiveFrankWolfe,
    FrankWolfe,
    PrivateFrankWolfe,
    PrivateProjectedGradient,
    PrivateSVD,
    ProjectedGradient,
)
from hushrec.papers.frank_wolfe.eigensolvers import (
    CovarianceSolver,
    OjaSolver,
    PowerSolver,
    RowUsers,
    random_block,
)
from hushrec.papers.frank_wolfe.frank_wolfe import Iterates
from hushrec.papers.mcsherry_mironov import CleansedSVD
from hushrec.privacy import Accountant, Budget, epsilon_of, mu_of
from hushrec.training.gate import LocalGate

DELTA = 1e-6
CAP = 80  # ratings of a user, the paper's xi
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
        # the farthest point of the sphere whose diameter is the row: what a projection can reach
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


def figure(results: dict[tuple[str, float], Errors], epsilons: list[float], title: str, path: Path) -> None:
    """RMSE against epsilon, references dashed."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(8.5, 5.2), dpi=150, layout="constrained")
    axes = drawn.add_subplot()
    for name in dict.fromkeys(name for name, _ in results):
        if (name, math.inf) in results:
            axes.axhline(results[name, math.inf].rmse, label=name, color="black", linewidth=1, linestyle="--")
            continue
        values = [results[name, epsilon].rmse for epsilon in epsilons]
        trivial = name in ("zero", "global mean", "user mean + item bias")
        axes.plot(epsilons, values, marker="o", label=name, linestyle=":" if trivial else "-", markersize=4)
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.set_xlabel(f"true epsilon per user (add-remove, delta = {DELTA:g})")
    axes.set_ylabel("test RMSE")
    axes.set_title(title)
    axes.legend(fontsize=7.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
    drawn.savefig(path)
    print(f"\nFigure: {path.name}")


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
        "corrective FW, 1 step": lambda e: CorrectiveFrankWolfe.of(
            block=1, regularization=0.1, residual_clip=3.0, **middle
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
    n_users = 500_000 if options.long else 100_000
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
    figure(
        results, epsilons, f"Synthetic, {n_users:,} x {n_items}", options.output / f"synthetic-{n_items}.png"
    )


def users(long: bool) -> None:
    """Remarks 1 to 6: Frank-Wolfe improves with the number of users, the SVD has a floor."""
    sizes = [10_000, 30_000, 100_000, 200_000, 500_000] if long else [10_000, 30_000, 100_000]
    print("\n## RMSE against the number of users, epsilon 1, synthetic, 400 items\n")
    print("RMSE over that of the trivial solution.\n")
    chosen = (
        "private FW, k true, B = 3",
        "private FW, k declared, falling B",
        "corrective FW, 1 step",
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


def folder() -> Path | None:
    named = os.environ.get("HUSHREC_DATA")
    return Path(named) if named else None


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
    refits = {"max_ratings_per_user": cap}
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
            Budget(e, DELTA), domain, n_users, iterations=5, **refits
        ),
        "corrective FW, biases first": lambda e: CorrectiveFrankWolfe.planned(
            Budget(e, DELTA), domain, n_users, **refits
        ),
        "corrective FW with power iteration": lambda e: CorrectiveFrankWolfe.planned(
            Budget(e, DELTA), domain, n_users, **refits, eigenvector="power", inner_steps=3
        ),
        "private SVD, ridge (Algorithm 4)": lambda e: PrivateSVD.of(rank=3, row_clip=3.0, **refits),
        "private SVD, biases first": lambda e: PrivateSVD.of(rank=3, row_clip=3.0, center="biases", **refits),
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
    paired(results, "corrective FW, biases first", epsilons)
    figure(results, epsilons, name, options.output / f"{name.lower().replace(' ', '-')}.png")


def jester() -> Ratings:
    """The first part rates 100 jokes from -10 to 10; rescaled to 0 to 5 as in the paper."""
    return read(
        "jester-1.parquet", Domain(items=range(1, 101), rating_range=(0, 5)), lambda rating: (rating + 10) / 4
    )


def movielens(options: argparse.Namespace, count: int) -> None:
    ratings = read("ml-1m.parquet", Domain(items=range(1, 3953), rating_range=(1, 5)))
    spent = mu_of(LIST_EPSILON, DELTA)
    real(f"MovieLens-1M top {count}", most_rated(ratings, count), CAP, options, spent)


# ---------------------------------------------------------------------- speed and memory


def seconds(work: Callable[[], object]) -> float:
    """The fastest of three."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def seconds_of_product(dense: np.ndarray) -> float:
    return seconds(lambda: dense.T @ dense)


def iteration(rows: scipy.sparse.csr_array) -> float:
    """Seconds of one step of private Frank-Wolfe on these rows."""
    budget, solver = Budget(1.0, DELTA), CovarianceSolver(3.0)
    plan = solver.releases("step", budget, 1.0)
    users = Iterates(rows, 9.0)

    def step() -> None:
        residuals = users.residuals()
        start = random_block(rows.shape[1], 1, 0)
        found = solver.solve(RowUsers(residuals), start, LocalGate(Accountant(budget), plan), "step", 0.1)
        users.advance(residuals, found.vectors[:, 0], 0.1, 1.0)

    return seconds(step)


def speed(long: bool) -> None:
    n_users = 500_000 if long else 100_000
    rows = jtt18_matrix(n_users, 400, ratings_per_user=CAP, seed=0).ratings.matrix.astype(np.float64)
    print(f"\n## Speed, {n_users:,} x 400, {CAP} ratings a user\n")
    ours = iteration(rows)
    product = seconds_of_product(rows.toarray())
    print(
        "One iteration of private Frank-Wolfe (residuals, covariance, noise, eigenvector, update): "
        f"{ours:.2f} s. The float64 product of the dense matrix with itself: {product:.2f} s. "
        f"Ratio {ours / product:.2f}.\n"
    )
    parts = (n_users // 4, n_users // 2, n_users)
    by_users = "; ".join(f"{part:,}: {iteration(rows[:part]):.2f}" for part in parts)
    print(f"Seconds an iteration against users: {by_users}.\n", flush=True)
    command = [sys.executable, "-m", "benchmarks.reproduce_frank_wolfe", "--child"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    oja = json.loads(done.stdout.splitlines()[-1])
    print(
        "Oja, 100,000 users x 20,000 items, 50 ratings a user: peak memory of the process "
        f"{oja['peak']:.0f} MB ({oja['before']:.0f} before; the covariance alone would take 3,200). "
        f"A step: {oja['step'] * 1000:.0f} ms, SciPy's two products: {oja['products'] * 1000:.0f} ms, "
        f"ratio {oja['step'] / oja['products']:.2f}."
    )


def peak_memory() -> float:
    """Peak resident memory of this process in MB, without what it inherited from its parent."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 ** (2 if sys.platform == "darwin" else 1)


def oja_child() -> None:
    """Memory and time of Oja's products at 20,000 items; a process of its own."""
    rng = np.random.default_rng(0)
    n_users, n_items, count = 100_000, 20_000, 50
    columns = np.sort(
        rng.integers(0, n_items // count, (n_users, count)) + np.arange(count) * (n_items // count), axis=1
    )
    indptr = np.arange(0, n_users * count + 1, count, dtype=np.int32)
    rows = scipy.sparse.csr_array(
        (rng.uniform(-1, 1, n_users * count), columns.ravel().astype(np.int32), indptr),
        shape=(n_users, n_items),
    )
    before = peak_memory()
    steps = 20
    budget, solver = Budget(1.0, DELTA), OjaSolver(3.0, steps)
    plan = solver.releases("step", budget, 1.0)
    start, users = random_block(n_items, 1, 0), RowUsers(rows)
    ours = seconds(lambda: solver.solve(users, start, LocalGate(Accountant(budget), plan), "step", 0.1))
    products = seconds(lambda: rows.T @ (rows @ start[:, 0]))
    print(json.dumps({"step": ours / steps, "products": products, "before": before, "peak": peak_memory()}))


def eigensolvers(long: bool) -> None:
    """Covariance, Oja and block power iteration at equal budget: how much of the top eigenvalue they find."""
    n_users = 500_000 if long else 100_000
    full = jtt18_matrix(n_users, 400, ratings_per_user=CAP, seed=0).ratings
    rows = full.matrix.astype(np.float64)
    rows.has_sorted_indices = True
    dense = (rows.T @ rows).toarray()
    top = np.linalg.eigvalsh(dense)[-1]
    print(f"\n## One eigenvector at equal budget, {n_users:,} x 400, rows clipped to 3, mean of 5\n")
    print("Share of the top eigenvalue that the vector found has (v.Wv / largest), from a random start.\n")
    solvers = {
        "covariance": CovarianceSolver(3.0),
        "Oja, 4 products": OjaSolver(3.0, 4),
        "Oja, 10 products": OjaSolver(3.0, 10),
        "Oja, 100 products": OjaSolver(3.0, 100),
        "power, 4 products of 1": PowerSolver(3.0, 4, 1),
        "power, 2 products of 8": PowerSolver(3.0, 2, 8),
        "power, 4 products of 8": PowerSolver(3.0, 4, 8),
    }
    epsilons = [0.01, 0.03, 0.1, 1.0]
    print(
        "| method | "
        + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons)
        + " |\n|---|"
        + "---|" * len(epsilons)
    )
    for name, solver in solvers.items():
        cells = []
        for epsilon in epsilons:
            shares = []
            for run in range(5):
                budget = Budget(epsilon, DELTA)
                gate = LocalGate(Accountant(budget), solver.releases("pca", budget, 1.0))
                found = solver.solve(RowUsers(rows), random_block(400, solver.block, run), gate, "pca", 0.1)
                vector = found.vectors[:, 0]
                shares.append(vector @ dense @ vector / top)
            cells.append(f"{np.mean(shares):.4f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


# ---------------------------------------------------------------------- main

PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "calibration": lambda options: calibration(),
    "speed": lambda options: speed(options.long),
    "eigensolvers": lambda options: eigensolvers(options.long),
    "synthetic": lambda options: synthetic(options, 400),
    "synthetic-900": lambda options: synthetic(options, 900),
    "users": lambda options: users(options.long),
    "jester": lambda options: real("Jester part 1", jester(), 100, options),
    "movielens": lambda options: movielens(options, 400),
    "movielens-900": lambda options: movielens(options, 900),
}
REAL = {"jester", "movielens", "movielens-900"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--long", action="store_true", help="the paper's sizes and numbers of runs")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--epsilons", nargs="+", type=float, help="instead of 0.1 to 5")
    parser.add_argument("--runs", type=int, help="instead of 1 to 5, or 10 with --long")
    parser.add_argument("--methods", nargs="+", help="parts of names, for the synthetic and real parts")
    parser.add_argument("--output", type=Path, default=Path("bench-output"), help="folder of the figures")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        oja_child()
        return
    options.output.mkdir(exist_ok=True)
    started = time.perf_counter()
    for part in options.only:
        if part in REAL and folder() is None:
            print(f"\nHUSHREC_DATA is not set, so {part} is skipped.")
        else:
            PARTS[part](options)
    print(f"\nAll of it took {(time.perf_counter() - started) / 60:.0f} minutes.")


if __name__ == "__main__":
    main()
