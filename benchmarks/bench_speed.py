"""Seconds and memory of one sweep (both sides) beside the peers', in one interleaved run.

    python -m benchmarks.bench_speed --peers

Every measurement is a process of its own, so that its memory is its own; the contestants take turns for
`--rounds` rounds and the fastest sweep of each counts, because other work on the machine only ever adds time.
The matrix is generated: MovieLens-10M or -20M shape, Zipf items, log-normal users, half stars.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse

SHAPES = {"10m": (69_878, 10_677, 9_000_000), "20m": (138_493, 26_744, 18_000_000)}
LINEARITY = (1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000)
SWEEPS = 4  # of each process; the first one of ours also compiles
ITEMS_TOGETHER = 2048  # whose noisy Gramians exist at a time
RATINGS_PER_USER = 144  # of the 20m shape: users grow with the ratings in the linearity table

OURS = {
    "hushrec ALS": "plain",
    "hushrec private, shared Gramian (kernels)": "shared",
    "hushrec private, per-item Gramians, no noise to speak of (kernels)": "per-item",
    "hushrec private, per-item Gramians, all need projection (kernels)": "per-item, all projected",
}
PEERS = {
    "implicit, exact": ("implicit", "exact"),
    "implicit, 3 CG steps": ("implicit", "cg"),
    "cmfrec, exact": ("cmfrec", "exact"),
    "cmfrec, 3 CG steps": ("cmfrec", "cg"),
}


def generate(n_users: int, n_items: int, n_ratings: int, seed: int = 0) -> scipy.sparse.csr_array:
    """A float32 matrix of half stars with about `n_ratings` entries.

    Users draw log-normal numbers of ratings, at least 20, of items with Zipf popularity in random order.
    """
    random = np.random.default_rng(seed)
    activity = random.lognormal(0.0, 1.1, n_users)
    counts = 20 + activity / activity.sum() * max(n_ratings - 20 * n_users, 0)
    counts = np.minimum(counts, n_items / 3)
    popularity = np.cumsum(1.0 / np.arange(1, n_items + 1) ** 0.9)
    popularity /= popularity[-1]
    draws = np.ceil(1.6 * counts).astype(np.int64)  # some items are drawn twice
    order = random.permutation(n_items).astype(np.int32)
    ranks = np.searchsorted(popularity, random.random(draws.sum())).clip(0, n_items - 1)
    columns, starts = order[ranks], np.concatenate([[0], np.cumsum(draws)])
    matrix = scipy.sparse.csr_array((np.ones(len(columns), np.float32), columns, starts), (n_users, n_items))
    matrix.sum_duplicates()
    users = np.repeat(np.arange(n_users, dtype=np.int32), np.diff(matrix.indptr))
    kept = random.random(matrix.nnz) < n_ratings / matrix.nnz
    values = (random.integers(1, 11, np.count_nonzero(kept)) / 2).astype(np.float32)
    starts = np.concatenate([[0], np.cumsum(np.bincount(users[kept], minlength=n_users))]).astype(np.int32)
    matrix = scipy.sparse.csr_array((values, matrix.indices[kept], starts), (n_users, n_items))
    matrix.indptr, matrix.indices = matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32)
    return matrix


def save(matrix: scipy.sparse.csr_array, folder: Path) -> None:
    for name in ("indptr", "indices", "data"):
        np.save(folder / f"{name}.npy", getattr(matrix, name))
    np.save(folder / "shape.npy", matrix.shape)


def read(folder: Path) -> scipy.sparse.csr_array:
    arrays = tuple(np.load(folder / f"{name}.npy") for name in ("data", "indices", "indptr"))
    return scipy.sparse.csr_array(arrays, tuple(np.load(folder / "shape.npy")))


class Clock:
    """Wall and CPU seconds of what runs inside, the fastest of all times so far."""

    def __init__(self) -> None:
        self.wall = self.cpu = np.inf

    @contextlib.contextmanager
    def measure(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.add(time.perf_counter() - wall, time.process_time() - cpu)

    def add(self, wall: float, cpu: float) -> None:
        self.wall, self.cpu = min(self.wall, wall), min(self.cpu, cpu)


def run_ours(matrix: scipy.sparse.csr_array, rank: int, kind: str, clock: Clock) -> None:
    """Sweeps of our kernels: ALS, or the linear algebra (and noise) that a private sweep adds."""
    from hushrec.kernels import least_squares, residuals

    users = (matrix.indptr, matrix.indices, matrix.data)
    transposed = matrix.T.tocsr()
    items = (transposed.indptr, transposed.indices, transposed.data)
    random = np.random.default_rng(0)
    item_factors = random.normal(size=(matrix.shape[1], rank)).astype(np.float32) / np.sqrt(rank)
    noise = np.float32(1e3 if kind == "per-item, all projected" else 1e-3)
    for _ in range(SWEEPS):
        with clock.measure():
            user_factors = least_squares.solve_rows(*users, item_factors.astype(np.float32), 5.0)
            if kind == "plain":
                item_factors = least_squares.solve_rows(*items, user_factors, 5.0)
            elif kind == "shared":
                norms = residuals.residual_norms(*users, user_factors, item_factors)
                weight = np.minimum(1.0, 10.0 / np.maximum(norms, 1e-9))
                steps = residuals.residual_sums(
                    *items, item_factors, user_factors, row_weight=None, col_weight=weight
                )
                steps += random.normal(size=steps.shape)
                gram = user_factors.T.astype(np.float64) @ user_factors + 5.0 * np.eye(rank)
                item_factors = (item_factors + np.linalg.solve(gram, steps.T).T).astype(np.float32)
            else:
                factors = user_factors.astype(np.float64)
                blocks = []
                for start in range(0, matrix.shape[1], ITEMS_TOGETHER):
                    stop = min(start + ITEMS_TOGETHER, matrix.shape[1])
                    gram, rhs = least_squares.normal_equations(*items, factors, start=start, stop=stop)
                    gram += random.standard_normal(size=gram.shape, dtype=np.float32) * noise
                    rhs += random.standard_normal(size=rhs.shape, dtype=np.float32) * noise
                    blocks.append(least_squares.ridge_solve(least_squares.project_psd(gram), rhs, 5.0))
                item_factors = np.concatenate(blocks)


def run_implicit(matrix: scipy.sparse.csr_array, rank: int, kind: str, clock: Clock) -> None:
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(
        factors=rank,
        regularization=5.0,
        use_cg=kind == "cg",
        iterations=2,
        num_threads=len(os.sched_getaffinity(0)),
        random_state=0,
    )
    marks = []
    done = lambda *_: marks.append((time.perf_counter(), time.process_time()))  # noqa: E731
    model.fit(scipy.sparse.csr_matrix(matrix), show_progress=False, callback=done)
    clock.add(marks[1][0] - marks[0][0], marks[1][1] - marks[0][1])


def run_cmfrec(matrix: scipy.sparse.csr_array, rank: int, kind: str, clock: Clock) -> None:
    from cmfrec import CMF

    times = []
    for iterations in (1, 4):
        once = Clock()
        model = CMF(
            k=rank,
            lambda_=5.0,
            niter=iterations,
            use_cg=kind == "cg",
            finalize_chol=False,
            use_float=True,
            verbose=False,
            nthreads=len(os.sched_getaffinity(0)),
        )
        with once.measure():
            model.fit(scipy.sparse.coo_matrix(matrix))
        times.append(once)
    clock.add((times[1].wall - times[0].wall) / 3, (times[1].cpu - times[0].cpu) / 3)


def peak_memory() -> float:
    """Peak resident memory of this process in MB, without what it inherited from its parent."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 ** (2 if sys.platform == "darwin" else 1)


def child(library: str, kind: str, rank: int, folder: Path) -> None:
    matrix = read(folder)
    before = peak_memory()
    clock = Clock()
    {"hushrec": run_ours, "implicit": run_implicit, "cmfrec": run_cmfrec}[library](matrix, rank, kind, clock)
    print(json.dumps({"wall": clock.wall, "cpu": clock.cpu, "before": before, "peak": peak_memory()}))


def measure(library: str, kind: str, rank: int, folder: Path) -> dict[str, float]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.bench_speed",
        "--child",
        library,
        kind,
        str(rank),
        str(folder),
    ]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # as implicit asks for
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{library} {kind} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def best(results: list[dict[str, float]]) -> dict[str, float]:
    """The fastest time and the largest memory."""
    return {
        key: (max if key in ("before", "peak") else min)(result[key] for result in results)
        for key in results[0]
    }


def contest(shape: str, ranks: list[int], rounds: int, contestants: dict[str, tuple[str, str]]) -> None:
    n_users, n_items, n_ratings = SHAPES[shape]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        matrix = generate(n_users, n_items, n_ratings)
        print(f"\n## One sweep, {n_users:,} x {n_items:,}, {matrix.nnz:,} ratings, {cores()}\n")
        save(matrix, folder)
        del matrix
        reference = "implicit, exact" if "implicit, exact" in contestants else "hushrec ALS"
        for rank in ranks:
            runs: dict[str, list[dict[str, float]]] = {label: [] for label in contestants}
            for _ in range(rounds):
                for label, (library, kind) in contestants.items():
                    runs[label].append(measure(library, kind, rank, folder))
            results = {label: best(run) for label, run in runs.items()}
            ours, other = results["hushrec ALS"], results[reference]
            print(f"Rank {rank}, the fastest of {rounds} rounds:\n")
            print(
                "| | wall s | CPU s | peak MB (before) "
                f"| wall / {reference} | CPU / {reference} | memory / {reference} | wall / hushrec ALS |"
            )
            print("|---|---|---|---|---|---|---|---|")
            for label, result in results.items():
                print(
                    f"| {label} | {result['wall']:.2f} | {result['cpu']:.2f} "
                    f"| {result['peak']:.0f} ({result['before']:.0f}) "
                    f"| {result['wall'] / other['wall']:.2f} | {result['cpu'] / other['cpu']:.2f} "
                    f"| {result['peak'] / other['peak']:.2f} | {result['wall'] / ours['wall']:.2f} |",
                    flush=True,
                )
            print()


def linearity(rank: int, rounds: int) -> None:
    n_items = SHAPES["20m"][1]
    print(f"\n## Cost against ratings, rank {rank}, {n_items:,} items, {cores()}\n")
    print("| ratings | users | wall s | CPU s | CPU s per million ratings | peak MB |")
    print("|---|---|---|---|---|---|")
    for n_ratings in LINEARITY:
        n_users = n_ratings // RATINGS_PER_USER
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            matrix = generate(n_users, n_items, n_ratings)
            save(matrix, folder)
            count = matrix.nnz
            del matrix
            result = best([measure("hushrec", "plain", rank, folder) for _ in range(rounds)])
        print(
            f"| {count:,} | {n_users:,} | {result['wall']:.3f} | {result['cpu']:.3f} "
            f"| {result['cpu'] / count * 1e6:.4f} | {result['peak']:.0f} |",
            flush=True,
        )


def cores() -> str:
    return f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="10m")
    parser.add_argument("--ranks", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--peers", action="store_true", help="also time implicit and cmfrec, if installed")
    parser.add_argument("--no-linearity", action="store_true", help="skip the table from 1M to 20M ratings")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        library, kind, rank, folder = arguments.child
        child(library, kind, int(rank), Path(folder))
        return
    contestants = {label: ("hushrec", kind) for label, kind in OURS.items()}
    if arguments.peers:
        missing = sorted({name for name, _ in PEERS.values() if importlib.util.find_spec(name) is None})
        contestants |= {label: peer for label, peer in PEERS.items() if peer[0] not in missing}
        if missing:
            print(f"Not installed, so not measured: {', '.join(missing)}.")
    contest(arguments.shape, arguments.ranks, arguments.rounds, contestants)
    if not arguments.no_linearity:
        linearity(32, arguments.rounds)


if __name__ == "__main__":
    main()
