"""Repeat the experiments of "Homomorphic Matrix Completion", and the attack on it.

200 x 200; ``--long`` takes 1,000 x 1,000. HUSHREC_DATA names the folder of the real ratings. Tables are
printed, pictures go to a folder. Everything is seeded but mask coefficients and privacy noise. Results:
docs/papers/homomorphic.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.harness import OUTPUT, TOY, folder
from hushrec.kernels.residuals import predict_pairs
from hushrec.papers.masked.completion import (
    Completion,
    alternating_minimization,
    nuclear_norm_minimization,
    nuclear_norm_steps,
)
from hushrec.papers.masked.masking import draw_coefficients, masked, public_key
from hushrec.papers.masked.reconstruction import reconstruct

SUCCESS = 1e-5
TRIALS = 1 if TOY else 10
#: Rows and columns of the short form.
SIZE = 40 if TOY else 200
MASK_RANK = 2 if TOY else 10
RANKS = (2, 5) if TOY else (2, 5, 10, 15, 20, 30, 40, 50)
FRACTIONS = tuple(round(0.05 + 0.1 * step, 2) for step in range(10))[:: 4 if TOY else 1]
LONG_GRID = (2, 5, 10, 20, 30, 50), (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3), 3
GRID_SWEEPS = 200
GRID_RULES = f"""A trial of NN ends with success as soon as a step has RSE <= 1e-5, and with failure as
soon as a step proves that some matrix with the same observed entries has a smaller nuclear norm than the
truth (the norm of the step plus a bound on that of its misfit). A trial of AM has {GRID_SWEEPS} sweeps.
"-": not run, since there are fewer observed entries than a matrix of the rank has free parameters, so that
nothing can succeed, or since no trial succeeded with more entries; the pictures show these with a cross.
"""


class Report:
    """A folder for tables and pictures."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def say(self, line: str = "") -> None:
        print(line, flush=True)

    def table(self, header: list[str], rows: list[list[Any]]) -> None:
        self.say("| " + " | ".join(header) + " |")
        self.say("|" + "---:|" * len(header))
        for row in rows:
            self.say("| " + " | ".join(str(cell) for cell in row) + " |")
        self.say()


# ---------------------------------------------------------------------- problems


class Problem:
    """A random matrix of some rank, which of its entries are seen, and the masked upload of every column."""

    def __init__(self, size: int, rank: int, fraction: float, mask_rank: int, seed: int) -> None:
        generator = np.random.default_rng([size, rank, mask_rank, seed])
        self.matrix = generator.standard_normal((size, rank)) @ generator.standard_normal((rank, size))
        self.cells = np.nonzero(generator.random(self.matrix.shape) < fraction)
        self.mask = np.zeros_like(self.matrix)
        if mask_rank:  # rows are nodes here
            noise_sd = np.sqrt(size * rank)  # masks as large as the columns that they hide
            key = public_key(size, mask_rank, seed)
            self.mask = np.stack([draw_coefficients(mask_rank, noise_sd) for _ in range(size)]) @ key.T
        self.rank = rank + mask_rank
        hidden = self.matrix + self.mask
        self.observed = sp.csr_array((hidden[self.cells], self.cells), shape=hidden.shape)

    def error(self, completed: np.ndarray) -> float:
        """RSE of the decrypted matrix."""
        found = completed - self.mask
        return float(np.linalg.norm(found - self.matrix) / np.linalg.norm(self.matrix))

    @property
    def hopeless(self) -> bool:
        """Fewer entries than a matrix of the rank has free parameters: no method can succeed."""
        size = len(self.matrix)
        return self.observed.nnz < self.rank * (2 * size - self.rank)


def solve(problem: Problem, solver: str) -> Completion:
    if solver == "am":
        return alternating_minimization(problem.observed, problem.rank, tolerance=1e-7, iterations=300)
    return nuclear_norm_minimization(problem.observed, tolerance=1e-7, iterations=300)


# ---------------------------------------------------------------------- sections


def agreement(report: Report) -> None:
    """Decrypted masked completion against plain completion of the same entries."""
    report.say("## Masked completion returns the plain result\n")
    rows = []
    for rank, fraction in ((5, 0.5), (5, 0.7), (10, 0.6), (20, 0.8))[: 1 if TOY else 4]:
        plain, hidden = (Problem(SIZE, rank, fraction, mask_rank, 1) for mask_rank in (0, MASK_RANK))
        row: list[Any] = [rank, f"{fraction:.0%}"]
        for solver, tolerance in (("am", 1e-9), ("nn", 1e-8)):
            solve_one = alternating_minimization if solver == "am" else nuclear_norm_minimization
            plain.observed = sp.csr_array(
                (plain.matrix[hidden.cells], hidden.cells), shape=plain.matrix.shape
            )
            hidden.matrix, whole = plain.matrix, plain.matrix + hidden.mask
            hidden.observed = sp.csr_array((whole[hidden.cells], hidden.cells), shape=whole.shape)
            arguments = ((plain.rank,), (hidden.rank,)) if solver == "am" else ((), ())
            one = solve_one(plain.observed, *arguments[0], tolerance=tolerance).matrix
            two = solve_one(hidden.observed, *arguments[1], tolerance=tolerance).matrix - hidden.mask
            row.append(f"{np.linalg.norm(one - two) / np.linalg.norm(one):.1e}")
        rows.append(row)
    report.table(["rank", "observed", "relative difference, AM", "relative difference, NN"], rows)


def samples(report: Report) -> None:
    """Least fraction at which half of the trials succeed, against what Theorem 3 predicts."""
    report.say("## Fraction that alternating minimisation needs, 200 x 200\n")
    report.say("Predicted: plain fraction times (rank + mask rank) / rank.\n")
    rows = []
    for rank, mask_rank in (
        itertools.product(RANKS[:2], (0, MASK_RANK))
        if TOY
        else itertools.product((2, 5, 10, 20), (0, 10, 20))
    ):
        needed = least_fraction(rank, mask_rank)
        if mask_rank == 0:
            plain = needed
        predicted = masked_fraction(plain, rank, mask_rank)
        rows.append([rank, mask_rank, f"{needed:.3f}", f"{needed / plain:.2f}", f"{predicted / plain:.2f}"])
    report.table(["rank", "mask rank", "fraction", "ratio", "(rank + mask rank) / rank"], rows)
    sums, needs = np.array([[row[0] + row[1], float(row[2])] for row in rows]).T
    slope, start = np.polyfit(sums, needs, 1)
    off = np.abs(start + slope * sums - needs).max()
    report.say(f"fraction = {start:.3f} + {slope:.4f} (rank + mask rank), {off:.3f} off at most.\n")


def coherence(basis: np.ndarray) -> float:
    """Definition 5: ``n / r`` times the largest squared row norm of an orthonormal basis; 1 is best."""
    n_rows, rank = basis.shape
    return float(n_rows / rank * (basis**2).sum(axis=1).max())


def masked_coherence(rank: int, mask_rank: int, n_users: int, plain_coherence: float = 1.0) -> float:
    """Lemma 4 with its constant taken as 1: a bound on the coherence under a random mask."""
    total = rank + mask_rank
    return (rank * plain_coherence + max(mask_rank, math.log(n_users))) / total


def masked_fraction(
    plain_fraction: float, rank: int, mask_rank: int, *, coherence_ratio: float = 1.0
) -> float:
    """Observed fraction that masked completion needs where plain completion needs ``plain_fraction``.

    Theorem 3 asks for a fraction in proportion to coherence times rank, so the mask multiplies it by
    ``coherence_ratio * (rank + mask_rank) / rank``; above 1 it cannot be met.
    """
    return plain_fraction * coherence_ratio * (rank + mask_rank) / rank


def least_fraction(rank: int, mask_rank: int, size: int = SIZE, trials: int = 1 if TOY else 3) -> float:
    """Return the least fraction that is completed, by bisection to 4%."""
    low, high = 0.01, 1.0
    while high / low > 1.04:
        middle = float(np.sqrt(low * high))
        won = 0
        for seed in range(trials):
            problem = Problem(size, rank, middle, mask_rank, seed)
            won += not problem.hopeless and problem.error(solve(problem, "am").matrix) <= SUCCESS
        low, high = (low, middle) if 2 * won >= trials else (middle, high)
    return high


def attack(report: Report) -> None:
    """Ratings recovered from one upload."""
    report.say(
        "## Share of ratings that the server recovers from one upload, 10 uploads each, noise sd 240\n"
    )
    uploads, ranks = ((4, 20), (2,)) if TOY else ((4, 6, 8, 11, 15, 20, 40, 100, 300), (2, 5, 10, 20, 30))
    shares = np.zeros((len(ranks), len(uploads)))
    slowest = 0.0
    for (a, mask_rank), (b, count) in itertools.product(enumerate(ranks), enumerate(uploads)):
        for seed in range(TRIALS):
            generator = np.random.default_rng([mask_rank, count, seed])
            items = np.sort(generator.choice(1682, count, replace=False))
            ratings = generator.integers(1, 6, count).astype(float)
            key = public_key(1682, mask_rank, seed)
            sent = masked(ratings, items, [key], [draw_coefficients(mask_rank, 240.0)])
            start = time.perf_counter()
            found = reconstruct(sent, key[items], rating_range=(1, 5))
            slowest = max(slowest, time.perf_counter() - start)
            shares[a, b] += 0.0 if found.ratings is None else (found.ratings == ratings).mean() / TRIALS
    report.table(
        ["mask rank", *(f"{count} ratings" for count in uploads)],
        [[rank, *(f"{share:.0%}" for share in row)] for rank, row in zip(ranks, shares)],
    )
    report.say(f"Slowest: {slowest:.2f} s.\n")
    picture(
        report.folder / "homomorphic-attack.png",
        {"share of ratings recovered": shares},
        [str(rank) for rank in ranks],
        [str(count) for count in uploads],
        ("ratings uploaded", "mask rank"),
        key=("none", "half", "all of them"),
    )


def grids(report: Report, size: int) -> None:
    """Phase transitions of both solvers, plain and masked."""
    ranks, fractions, nn_trials = (RANKS, FRACTIONS, TRIALS) if size == SIZE else LONG_GRID
    report.say(f"## Successes (RSE <= 1e-5), {size} x {size}, mask rank {MASK_RANK}\n")
    report.say(GRID_RULES)
    names = {
        "AM": ("am", 0, TRIALS),
        "AM, masked": ("am", MASK_RANK, TRIALS),
        "NN": ("nn", 0, nn_trials),
        "NN, masked": ("nn", MASK_RANK, nn_trials),
    }
    pictures = {}
    for name, (solver, mask_rank, trials) in names.items():
        start = time.process_time()
        won = np.full((len(ranks), len(fractions)), np.nan)
        for a, rank in enumerate(ranks):
            for b in reversed(range(len(fractions))):
                won[a, b] = successes(size, rank, fractions[b], mask_rank, solver, trials)
                if not won[a, b] > 0:
                    break
        pictures[name] = won
        rule = f"{trials} trials a cell" + (f", {TRIALS} where these differ" if trials < TRIALS else "")
        report.say(f"### {name}, {rule} ({time.process_time() - start:.0f} CPU seconds)\n")
        report.table(
            ["rank", *(f"{100 * fraction:g}%" for fraction in fractions), "fraction for half"],
            [
                [
                    rank,
                    *("-" if np.isnan(share) else f"{share:.0%}" for share in row),
                    half(row, fractions),
                ]
                for rank, row in zip(ranks, won)
            ],
        )
        picture(
            report.folder / f"homomorphic-grids-{size}.png",
            pictures,
            [str(rank) for rank in ranks],
            [f"{100 * fraction:g}%" for fraction in fractions],
            ("observed", "rank"),
        )


def successes(size: int, rank: int, fraction: float, mask_rank: int, solver: str, trials: int) -> float:
    """Part of a cell's trials that succeed, of more trials where the first differ; NaN if none can."""
    won: list[bool] = []
    hopeless = True
    for count in (trials, TRIALS):
        for seed in range(len(won), count):
            problem = Problem(size, rank, fraction, mask_rank, seed)
            hopeless &= problem.hopeless
            won.append(not problem.hopeless and succeeds(problem, solver))
        if all(won) or not any(won):
            break
    return float("nan") if hopeless else sum(won) / len(won)


def succeeds(problem: Problem, solver: str) -> bool:
    """One trial of a grid; see GRID_RULES."""
    if solver == "am":
        found = alternating_minimization(
            problem.observed, problem.rank, tolerance=1e-7, iterations=GRID_SWEEPS
        )
        return problem.error(found.matrix) <= SUCCESS
    hidden = problem.matrix + problem.mask
    norm, room = np.linalg.norm(hidden, "nuc"), np.sqrt(len(hidden)) * np.linalg.norm(problem.observed.data)
    for step in nuclear_norm_steps(problem.observed):
        if problem.error(step.matrix) <= SUCCESS:
            return True
        least = (np.linalg.norm(step.left, axis=0) * np.linalg.norm(step.right, axis=0)).sum()
        if least + room * step.residual < norm or step.residual <= 1e-7:
            return False
    raise AssertionError


def half(shares: np.ndarray, fractions: tuple[float, ...]) -> str:
    """Least fraction from which on at least half of the trials succeed, interpolated."""
    good = np.nan_to_num(shares) >= 0.5
    first = len(good) - int(np.argmin(good[::-1])) if not good.all() else 0
    if first == len(good):
        return "-"
    if first == 0:
        return f"<= {fractions[0]:.3f}"
    below, above = np.nan_to_num(shares[first - 1]), shares[first]
    part = (0.5 - below) / (above - below)
    return f"{fractions[first - 1] + part * (fractions[first] - fractions[first - 1]):.3f}"


def movielens(report: Report, path: str) -> None:
    """Held-out RSE on the 400 most rated films of MovieLens-1M."""
    from hushrec.data import Domain, Ratings, split_ratings
    from hushrec.privacy import Accountant, Budget
    from hushrec.training.named import train

    ratings = Ratings.from_any(path, most_rated(path, Domain))
    report.say(f"## Held-out RSE, MovieLens-1M, {ratings.n_items} films, {ratings.n_users} users\n")
    known, test = split_ratings(ratings, (0.9, 0.1), seed=0)
    targets = test.aligned_to(known)
    rows_of_test = np.repeat(np.arange(targets.n_users), np.diff(targets.matrix.indptr))
    truth = targets.matrix.data.astype(float)
    masked_rows, private_rows = [], []
    for fraction in (0.6,) if TOY else (0.2, 0.4, 0.6, 0.8, 1.0):
        part = known.where(np.random.default_rng(1).random(known.n_ratings) < fraction, drop_empty=False)
        row: list[Any] = [f"{fraction:.0%}"]
        for noise_sd in (0.0, 10.0, 240.0):
            for solver in ("am", "nn"):
                row.append(f"{real_error(part, targets, rows_of_test, solver, noise_sd):.3f}")
        row.append(f"{np.linalg.norm(part.domain.midpoint - truth) / np.linalg.norm(truth):.3f}")
        masked_rows.append(row)
        for epsilon in (1.0, 5.0, 27.6):
            model = train(
                "private-frank-wolfe", part, Accountant(Budget(epsilon, 1e-6), data_is_public=True), seed=0
            )
            found = model.predict_pairs(part, targets)
            error = np.linalg.norm(found - truth) / np.linalg.norm(truth)
            private_rows.append([f"{fraction:.0%}", f"{epsilon:g}", f"{error:.3f}"])
    report.say("Plain and masked completion (AM of rank 4). Not private from the server: epsilon None.\n")
    masks = [f"{solver}, mask sd {sd:g}" if sd else solver for sd in (0, 10, 240) for solver in ("AM", "NN")]
    report.table(["observed", *masks, "always 3"], masked_rows)
    report.say("Private Frank-Wolfe on the same ratings.\n")
    report.table(["observed", "epsilon (unit user, add-remove, delta 1e-6)", "RSE"], private_rows)


def most_rated(path: str, domain: Any) -> Any:
    """The 400 most rated items, taken for public as in the paper."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    column = next(name for name in table.column_names if "item" in name.lower() or "movie" in name.lower())
    items, counts = np.unique(table[column].to_numpy(), return_counts=True)
    return domain(tuple(items[np.argsort(-counts, kind="stable")[:400]].tolist()), rating_range=(1, 5))


def real_error(part: Any, targets: Any, rows: np.ndarray, solver: str, noise_sd: float) -> float:
    """Held-out RSE of plain (noise_sd = 0) or masked completion of real ratings, rank 4 for AM."""
    matrix = part.matrix.astype(np.float64)
    mask_left = mask_right = np.zeros((1, 0))
    rank = 4
    if noise_sd:
        mask_right = public_key(part.n_items, MASK_RANK, 0)
        mask_left = np.stack([draw_coefficients(MASK_RANK, noise_sd) for _ in range(part.n_users)])
        cells = np.repeat(np.arange(part.n_users), np.diff(matrix.indptr))
        matrix.data = matrix.data + predict_pairs(cells, matrix.indices, mask_left, mask_right)
        rank += MASK_RANK
    if solver == "am":
        completed = alternating_minimization(matrix, rank, tolerance=1e-4, iterations=60)
    else:
        completed = nuclear_norm_minimization(matrix, tolerance=1e-4, iterations=200)
    columns = targets.matrix.indices
    found = predict_pairs(rows, columns, completed.left, completed.right)
    if noise_sd:
        found -= predict_pairs(rows, columns, mask_left, mask_right)
    truth = targets.matrix.data.astype(float)
    return float(np.linalg.norm(np.clip(found, 1, 5) - truth) / np.linalg.norm(truth))


def picture(
    path: Path,
    grids: dict[str, np.ndarray],
    rows: list[str],
    columns: list[str],
    axes: tuple[str, str],
    key: tuple[str, str, str] = ("no success", "half", "all succeed"),
) -> None:
    """Grey grids side by side: white is success."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.6 + 3.2 * len(grids), 3.2), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(grids), squeeze=False)[0]
    for panel, (name, grid) in zip(panels, grids.items()):
        shown = panel.imshow(np.nan_to_num(grid), cmap="gray", vmin=0, vmax=1, origin="lower", aspect="auto")
        down, across = np.nonzero(np.isnan(grid))
        panel.plot(across, down, "x", color="0.5", markersize=4)
        panel.set_title(name, fontsize=10)
        panel.set_xticks(range(len(columns)), columns, fontsize=7, rotation=60)
        panel.set_yticks(range(len(rows)), rows, fontsize=7)
        panel.set_xlabel(axes[0], fontsize=8)
    panels[0].set_ylabel(axes[1], fontsize=8)
    bar = figure.colorbar(shown, ax=list(panels), ticks=[0, 0.5, 1], shrink=0.6)
    bar.ax.set_yticklabels(key, fontsize=7)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--long", action="store_true", help="grids at 1,000 x 1,000")
    parser.add_argument("--out", type=Path, default=OUTPUT, help="folder of the pictures")
    options = parser.parse_args()
    report = Report(options.out)
    agreement(report)
    samples(report)
    attack(report)
    grids(report, 1000 if options.long else SIZE)
    home = folder()
    if home is not None and (home / "ml-1m.parquet").exists():
        movielens(report, str(home / "ml-1m.parquet"))


if __name__ == "__main__":
    main()
