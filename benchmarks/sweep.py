"""Compare the seconds and memory of one sweep (both sides) with implicit's, in turns.

Every measurement is a separate process that imports one library; its anonymous memory is sampled; "beyond
imports" is without the memory of the libraries. pandas, which pyarrow imports wherever it is
installed and hushrec does not need, is hidden from hushrec. The contestants take turns for `--rounds` rounds
and the fastest sweep of each counts, because other work on the machine only ever adds time. The ratings are
generated, of MovieLens-10M or -20M shape. DPALS takes 100 ratings of a user into its item-wise statistics, as
its published settings do. A library that is not installed is skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse

#: As in `benchmarks.harness`, which would load hushrec.
TOY = os.environ.get("TOY") == "1"
SHAPES = {"toy": (300, 60, 6000), "10m": (69_878, 10_677, 9_000_000), "20m": (138_493, 26_744, 18_000_000)}

OURS = {
    "hushrec als": "plain",
    "hushrec private-als": "shared",
    "hushrec dpals": "item-wise",
}
PEERS = {
    "implicit, exact": ("implicit", "exact"),
    "implicit, 3 CG steps": ("implicit", "cg"),
}


def generated(n_users: int, n_items: int, n_ratings: int, folder: Path) -> int:
    """Ratings in a folder, and how many there are."""
    from hushrec.data import realistic

    matrix = realistic(n_users, n_items, n_ratings, seed=0).matrix
    save(matrix, folder)
    return matrix.nnz


def save(matrix: scipy.sparse.csr_array, folder: Path) -> None:
    for name in ("indptr", "indices", "data"):
        np.save(folder / f"{name}.npy", getattr(matrix, name))
    np.save(folder / "shape.npy", matrix.shape)


def read(folder: Path) -> scipy.sparse.csr_array:
    arrays = tuple(np.load(folder / f"{name}.npy") for name in ("data", "indices", "indptr"))
    return scipy.sparse.csr_array(arrays, tuple(np.load(folder / "shape.npy")))


def anonymous(pid: int | str = "self") -> float:
    """GiB of anonymous memory of a process, 0 where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / (1 << 20)


class Clock:
    """Wall and CPU seconds of what runs inside, the fastest of all times so far."""

    def __init__(self) -> None:
        self.wall = self.cpu = np.inf
        self.imports = 0.0

    def imported(self) -> None:
        """Libraries were imported, and nothing was read yet: MB of memory that they take."""
        self.imports = 1024 * anonymous()

    @contextlib.contextmanager
    def measure(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.add(time.perf_counter() - wall, time.process_time() - cpu)

    def add(self, wall: float, cpu: float) -> None:
        self.wall, self.cpu = min(self.wall, wall), min(self.cpu, cpu)


def run_ours(folder: Path, rank: int, kind: str, clock: Clock) -> None:
    """Sweeps of our estimators: the difference between fits of one and of three sweeps, noise included."""
    sys.modules["pandas"] = None  # type: ignore[assignment]
    from hushrec.data import Domain, Ratings
    from hushrec.models import ALS, Estimator, PrivateALS
    from hushrec.papers.dpals import DPALS
    from hushrec.privacy import Accountant, Budget

    clock.imported()
    items = range(np.load(folder / "shape.npy")[1])
    ratings = Ratings.from_any(read(folder), Domain(items, rating_range=(1, 5)))
    budget = Budget(np.inf if kind == "plain" else 5.0, 1e-6)

    def sweeps(count: int) -> Estimator:
        if kind == "plain":
            return ALS(rank=rank, iterations=count)
        if kind == "shared":
            return PrivateALS(rank=rank, iterations=count)
        return DPALS(
            rank=rank,
            iterations=count,
            max_ratings_per_user=100,
            user_norm=0.1,
            clip=1.0,
            regularization=20.0,
        )

    sweeps(1).fit(ratings, Accountant(budget))  # compiles
    times: dict[int, Clock] = {1: Clock(), 3: Clock()}
    for count, once in 2 * list(times.items()):
        with once.measure():
            sweeps(count).fit(ratings, Accountant(budget))
    clock.add((times[3].wall - times[1].wall) / 2, (times[3].cpu - times[1].cpu) / 2)


def run_implicit(folder: Path, rank: int, kind: str, clock: Clock) -> None:
    from implicit.cpu.als import AlternatingLeastSquares

    clock.imported()
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
    model.fit(scipy.sparse.csr_matrix(read(folder)), show_progress=False, callback=done)
    clock.add(marks[1][0] - marks[0][0], marks[1][1] - marks[0][1])


def child(library: str, kind: str, rank: int, folder: Path) -> None:
    clock = Clock()
    {"hushrec": run_ours, "implicit": run_implicit}[library](folder, rank, kind, clock)
    print(json.dumps({"wall": clock.wall, "cpu": clock.cpu, "imports": clock.imports}))


def measure(library: str, kind: str, rank: int, folder: Path) -> dict[str, float]:
    """Run a contestant in a separate process and sample its anonymous memory in MB."""
    words = ["--child", library, kind, str(rank), str(folder)]
    command = [sys.executable, "-m", "benchmarks.sweep", *words]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # as implicit asks for
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process, most = subprocess.Popen(command, env=environment, **pipes), 0.0
    while process.poll() is None:
        most = max(most, anonymous(process.pid))
        time.sleep(0.005)
    output, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"{library} {kind} failed:\n{errors}")
    told = json.loads(output.splitlines()[-1])
    return told | {"peak": 1024 * most, "beyond": 1024 * most - told["imports"]}


def best(results: list[dict[str, float]]) -> dict[str, float]:
    """The fastest time and the largest memory."""
    largest = {"peak", "beyond"}
    return {key: (max if key in largest else min)(result[key] for result in results) for key in results[0]}


def contest(shape: str, ranks: list[int], rounds: int, contestants: dict[str, tuple[str, str]]) -> None:
    n_users, n_items, n_ratings = SHAPES[shape]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count = generated(n_users, n_items, n_ratings, folder)
        print(f"\n## One sweep, {n_users:,} x {n_items:,}, {count:,} ratings, {cores()}\n")
        reference = "implicit, exact" if "implicit, exact" in contestants else "hushrec als"
        for rank in ranks:
            runs: dict[str, list[dict[str, float]]] = {label: [] for label in contestants}
            for _ in range(rounds):
                for label, (library, kind) in contestants.items():
                    runs[label].append(measure(library, kind, rank, folder))
            results = {label: best(run) for label, run in runs.items()}
            other, units = results[reference], {"wall": "s", "cpu": "s", "peak": "MB", "beyond": "MB"}
            heads = [f"{key}, {unit}" for key, unit in units.items()]
            heads += [f"{key} / {reference}" for key in units]
            print(f"Rank {rank}, the fastest of {rounds} rounds; beyond: memory without imports\n")
            print(f"| | {' | '.join(heads)} |\n|{'---|' * (1 + len(heads))}")
            for label, result in results.items():
                cells = [f"{result[key]:.3g}" for key in units]
                cells += [f"{result[key] / other[key]:.2f}" for key in units]
                print(f"| {label} | {' | '.join(cells)} |", flush=True)


def cores() -> str:
    return f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="toy" if TOY else "10m")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8] if TOY else [32, 64])
    parser.add_argument("--rounds", type=int, default=1 if TOY else 2)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        library, kind, rank, folder = arguments.child
        child(library, kind, int(rank), Path(folder))
        return
    contestants = {label: ("hushrec", kind) for label, kind in OURS.items()}
    missing = sorted({name for name, _ in PEERS.values() if importlib.util.find_spec(name) is None})
    contestants |= {label: peer for label, peer in PEERS.items() if peer[0] not in missing}
    if missing:
        print(f"Not installed, so not measured: {', '.join(missing)}.")
    contest(arguments.shape, arguments.ranks, arguments.rounds, contestants)


if __name__ == "__main__":
    main()
