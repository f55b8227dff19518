"""A store at scale: prepare, train and recommend, seconds and memory against the number of ratings.

    python -m benchmarks.bench_scale [--sizes 1e6,1e7,1e8] [--long] [--folder DIR [--keep]] [--steps ...]
    python -m benchmarks.bench_scale --table

Generates ratings (Zipf), a hundred rows a user, in any order, as Parquet; says what disk it needs and stops
without. A line a target, PASS or what falls short; exits 1 if any does. --long adds 1e9. Every step runs in a
process of its own, whose anonymous memory is sampled: mapped pages of a store do not count. Seconds mean
something on an idle machine only. Dask has targets of its own: benchmarks/bench_dask.py.

What a step took is appended to docs/data/scaling.jsonl, with the commit; --table prints the latest of each.
With --keep the folder's files stay, and steps can be run one by one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from benchmarks.memory import anonymous
from hushrec import (
    ALS,
    Accountant,
    Both,
    Budget,
    Domain,
    PrivateALS,
    PrivateEigenRec,
    Ratings,
    Store,
    write_lists,
)
from hushrec.data.ratings import joined
from hushrec.kernels import threads
from hushrec.kernels.sweeps import SweepSettings, csr, half_sweep
from hushrec.kernels.threads import one_blas_thread
from hushrec.privacy.testing import SeededNoise
from hushrec.training.partitioned import PartitionedUsers, Streaming
from hushrec.training.users import FittedUsers

BUDGET = Budget(5.0, 1e-6)
RANK = 12
#: What the ratings take while they are prepared: Parquet, spilled rows, store; octets a row.
DISK = 9 + 22 + 7
_ROWS_A_USER, _CHUNK = 100, 1 << 21
#: Users who get lists, where there are more.
_SERVED = 1_000_000
_MEMORY_GIB = {"prepare": 3.0, "ratings": 4.0, "lists": 4.0, "both": 4.0, "recommend": 4.0}
#: Seconds at 1e9 and at 1e8 ratings.
_SECONDS = {"prepare": 1500.0, "ratings": 2400.0, "sweep": 120.0, "recommend": 300.0}
_FILE_TO_MODEL = {"size": 1e8, "seconds": 60.0, "gib": 2.0}
_EXPONENT, _PRIVATE_OVER_PLAIN = 1.05, 1.2
#: What was measured, a line a step.
ROWS = Path(__file__).parents[1] / "docs" / "data" / "scaling.jsonl"


def domain_of(rows: int) -> Domain:
    """The catalogue: 100,000 items for 1e9 ratings, fewer for fewer."""
    return Domain(range(int(np.clip(rows // 1000, 1000, 100_000))), rating_range=(0.5, 5.0))


def generate(rows: int, out: Path) -> None:
    """Files of ratings by users and of items in any order, of 16 million rows at most."""
    out.mkdir()
    rng, n_items, n_users = np.random.default_rng(0), domain_of(rows).n_items, max(rows // _ROWS_A_USER, 10)
    popularity = np.cumsum(np.arange(1, n_items + 1) ** -0.7)
    quality = rng.standard_normal(n_items) * 0.4
    for number, start in enumerate(range(0, rows, _CHUNK)):
        size = min(_CHUNK, rows - start)
        items = np.searchsorted(popularity, rng.random(size) * popularity[-1]).astype(np.int32)
        users = rng.integers(0, n_users, size)
        ratings = 3.5 + quality[items] + 0.4 * np.sin(users) + 0.9 * rng.standard_normal(size)
        ratings = (np.clip(np.rint(2 * ratings), 1, 10) / 2).astype(np.float32)
        table = pa.table({"user": users, "item": items, "rating": ratings})
        pq.write_table(table, out / f"{number:05d}.parquet", use_dictionary=["rating"])


# ---------------------------------------------------------------------- steps, each in its own process


def prepare(rows: int, folder: Path) -> dict[str, float]:
    parts = max(32, rows >> 21)
    store = Store.prepare(
        str(folder / "rows"), folder / "store", domain_of(rows), partitions=parts, force=True
    )
    size = sum(part.path.stat().st_size for part in store.partitions())
    return {"octets": size / store.n_ratings, "kept": store.n_ratings}


def _trained(folder: Path, model: type[Any]) -> dict[str, float]:
    store = Store(folder / "store")
    estimator = model.planned(BUDGET, store.domain, store.n_users)
    estimator.fit(store, Accountant(BUDGET)).save(folder / f"{model.name}.hush")
    return {}


def ratings(rows: int, folder: Path) -> dict[str, float]:
    return _trained(folder, PrivateALS)


def lists(rows: int, folder: Path) -> dict[str, float]:
    return _trained(folder, PrivateEigenRec)


def both(rows: int, folder: Path) -> dict[str, float]:
    return _trained(folder, Both)


def sweep(rows: int, folder: Path) -> dict[str, float]:
    """One question: users fit themselves, and items' sums are added up."""
    store = Store(folder / "store")
    items = np.random.default_rng(0).standard_normal((store.domain.n_items, RANK + 1)) * 0.1
    weights = np.ones(store.domain.n_items)
    with Streaming().asking(FittedUsers, store) as ask, one_blas_thread():
        users = PartitionedUsers(FittedUsers, store.domain, ask)
        users.weigh(3.0, weights)
        users.fit(items, SweepSettings(regularization=10.0, bias_regularization=3.0))
        times = []
        for _ in range(2):  # the first compiles
            start = time.perf_counter()
            users.item_sums(items, weights, 1.0, 1.0, 1.0, 1.0)
            times.append(time.perf_counter() - start)
    return {"seconds": min(times)}


def recommend(rows: int, folder: Path) -> dict[str, float]:
    from hushrec import load

    shutil.rmtree(folder / "lists", ignore_errors=True)
    store, blocks, users = Store(folder / "store"), [], 0
    history: Store | Ratings = store
    if store.n_users > _SERVED:
        for block in store.blocks():
            if users < _SERVED:
                blocks.append(block())
                users += blocks[-1].n_users
        history = joined(store.domain, blocks)
    start = time.perf_counter()
    write_lists(load(folder / "private-als.hush"), history, folder / "lists")
    return {"seconds": time.perf_counter() - start, "users": history.n_users}


STEPS: dict[str, Callable[[int, Path], dict[str, float]]] = {
    each.__name__: each for each in (prepare, ratings, sweep, lists, both, recommend)
}


def measured(step: str, rows: int, folder: Path) -> dict[str, float]:
    """Run a step in a process: its seconds and the most GiB of anonymous memory that it held; into ROWS."""
    command = [sys.executable, "-m", "benchmarks.bench_scale", "--step", step, str(rows), str(folder)]
    load, start, most = os.getloadavg()[0], time.perf_counter(), 0.0
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output)
        while process.poll() is None:
            most = max(most, anonymous(process.pid))
            time.sleep(0.05)
        if process.returncode:
            raise SystemExit(f"{step} of {rows:,} rows failed.")
        output.seek(0)
        told = json.loads(output.read().splitlines()[-1])
    found = {"seconds": time.perf_counter() - start, "gib": most, **told}
    marks = {"commit": _commit(), "threads": threads.count(), "load": round(load, 1)}
    with ROWS.open("a") as file:
        rounded = {name: round(value, 3) for name, value in found.items()}
        file.write(json.dumps({"rows": rows, "step": step, **rounded, **marks}) + "\n")
    return found


def _commit() -> str:
    words = ["git", "rev-parse", "--short", "HEAD"]
    ran = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    return ran.stdout.strip() or "unknown"


def stored() -> dict[int, dict[str, dict[str, Any]]]:
    """Return what was measured last, by rows and step."""
    found: dict[int, dict[str, dict[str, Any]]] = {}
    for line in ROWS.read_text().splitlines():
        each = json.loads(line)
        found.setdefault(each["rows"], {})[each["step"]] = each
    return dict(sorted(found.items()))


def table() -> list[str]:
    """The latest measurements as the page has them: seconds, GiB, and the commits they are of."""
    lines = ["| rows | " + " | ".join(STEPS) + " | commit |", "|---" * (len(STEPS) + 2) + "|"]
    for rows, steps in stored().items():
        cells = [_cell(steps.get(step)) for step in STEPS]
        commits = ", ".join(dict.fromkeys(each["commit"] for each in steps.values()))
        lines.append(f"| 10^{round(np.log10(rows))} | " + " | ".join(cells) + f" | {commits} |")
    return lines


def powers() -> list[str]:
    """Say by which power of the ratings cost grows."""
    return [f"{step}: {words}" for step, (_, words) in _powers(stored()).items()]


def _powers(found: dict[int, dict[str, dict[str, Any]]]) -> dict[str, tuple[float, str]]:
    """The power of the ratings that fits the seconds of a step best, from 10^6 on; and in words."""
    powers = {}
    for step in ("prepare", "ratings", "sweep"):
        sizes = [rows for rows in sorted(found) if step in found[rows] and rows >= 10**6]
        if len(sizes) < 2:
            continue
        seconds = [found[rows][step]["seconds"] for rows in sizes]
        power = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        steps = np.diff(np.log(seconds)) / np.diff(np.log(sizes))
        at, words = int(steps.argmax()), f"power {power:.2f} from {sizes[0]:.0e} to {sizes[-1]:.0e} ratings"
        words += f", at most {steps[at]:.2f} between neighbours ({sizes[at]:.0e} and {sizes[at + 1]:.0e})"
        powers[step] = float(power), words
    return powers


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return "not run"
    seconds = f"{found['seconds']:#.2g}" if found["seconds"] < 10 else f"{found['seconds']:.0f}"
    users = f", 10^{round(np.log10(found['users']))} users" if "users" in found else ""
    return f"{seconds} s, {found['gib']:.2f} GiB{users}"


# ---------------------------------------------------------------------- targets


def verdict(good: bool, words: str) -> bool:
    """Print a line."""
    print(f"{'PASS       ' if good else 'FALLS SHORT'} {words}", flush=True)
    return good


def same_bytes(folder: Path) -> bool:
    """The billboard's bytes for threads, partitions, memory and store."""
    folder.mkdir()
    generate(10**5, folder / "rows")
    rows, model = Ratings.read(str(folder / "rows"), domain_of(10**5)), PrivateALS(rank=4)

    def bytes_of(data: Any, count: int) -> bytes:
        with threads.limit(count):
            return model.fit(data, Accountant(BUDGET, noise=SeededNoise(1))).to_bytes()

    whole, same = bytes_of(rows, 1), True
    same &= all(bytes_of(rows, count) == whole for count in (2, 8))
    for parts, count in ((1, 1), (2, 2), (7, 8), (64, 2)):
        store = Store.prepare(rows, folder / "small", rows.domain, partitions=parts, force=True)
        same &= bytes_of(store, count) == whole
    return verdict(same, "bytes are equal for 1, 2, 8 threads; 1, 2, 7, 64 partitions; memory and store")


def against_plain() -> list[bool]:
    """A private sweep in memory against a plain one, in processor seconds, in MovieLens-10M's shape."""
    rng, n_users, n_items, size = np.random.default_rng(0), 69_878, 10_677, 10**7
    popularity = np.cumsum(np.arange(1, n_items + 1) ** -0.8)
    columns = np.searchsorted(popularity, rng.random(size) * popularity[-1])
    source = (rng.integers(0, n_users, size), columns, rng.integers(1, 11, size) / 2)
    rows = Ratings.from_any(source, Domain(range(n_items), (0.5, 5.0)))
    by_item, good = rows.transposed, []
    ridge = SweepSettings(regularization=10.0, bias_regularization=3.0)
    for rank in (12, 32, 64):
        items, weights = rng.standard_normal((n_items, rank + 1)) * 0.1, np.ones(n_items)
        users = FittedUsers(rows)
        users.weigh(3.0, weights)
        seconds = []
        with one_blas_thread():
            for _ in range(3):
                clock = [time.process_time()]
                fitted = half_sweep(csr(rows.matrix), 3.0, items.astype(np.float32), ridge)
                half_sweep(csr(by_item), 3.0, fitted, ridge)
                clock.append(time.process_time())
                users.fit(items, ridge)
                users.item_sums(items, weights, 1.0, 1.0, 1.0, 1.0)
                seconds.append(np.diff([*clock, time.process_time()]))
        plain, private = np.min(seconds, axis=0)
        words = f"10M shape, rank {rank}: a private sweep takes {private:.2f} processor seconds,"
        words += f" {private / plain:.2f} times a plain one (asked <= {_PRIVATE_OVER_PLAIN})"
        good.append(verdict(private <= _PRIVATE_OVER_PLAIN * plain, words))
    return good


def beside_peers(folder: Path) -> None:
    """Ten items for every user in MovieLens-10M's shape, by a plain model of rank 32; no target."""
    rng, n_users, n_items = np.random.default_rng(0), 69_878, 10_677
    popularity = np.cumsum(np.arange(1, n_items + 1) ** -0.8)
    columns = np.searchsorted(popularity, rng.random(10**7) * popularity[-1])
    source = (rng.integers(0, n_users, 10**7), columns, rng.integers(1, 11, 10**7) / 2)
    rows = Ratings.from_any(source, Domain(range(n_items), (0.5, 5.0)))
    model = ALS(rank=32, iterations=1).fit(rows, Accountant(Budget(np.inf, 1e-6)))
    seconds = {}
    write_lists(model, rows.rows(slice(0, 100)), folder / "few")  # compiles
    start = time.perf_counter()
    write_lists(model, rows, folder / "ours")
    seconds["hushrec, written to Parquet"] = time.perf_counter() - start
    try:
        from implicit.cpu.als import AlternatingLeastSquares
    except ImportError:
        print("            implicit is not installed: its recommend is not timed")
    else:
        peer = AlternatingLeastSquares(factors=32, iterations=1, num_threads=threads.count())
        matrix = sp.csr_matrix(rows.matrix)
        peer.fit(matrix, show_progress=False)
        start = time.perf_counter()
        peer.recommend(np.arange(rows.n_users), matrix, N=10)
        seconds["implicit, in memory"] = time.perf_counter() - start
    words = "; ".join(f"{name}: {each:.1f} s" for name, each in seconds.items())
    print(f"            10M shape, lists for {rows.n_users:,} users: {words}", flush=True)


def judged(rows: int, found: dict[str, dict[str, float]]) -> list[bool]:
    """The targets at a size; seconds are asked for from 1e8 rows on, in proportion to 1e9."""
    good = []
    for step, each in found.items():
        words = f"{rows:.0e} rows, {step}: {each['seconds']:.1f} s, {each['gib']:.2f} GiB"
        within = each["gib"] <= _MEMORY_GIB.get(step, 4.0)
        words += f" (asked <= {_MEMORY_GIB.get(step, 4.0):g} GiB"
        if step in _SECONDS and rows >= 1e8:
            share = each["users"] / 1e6 if step == "recommend" else rows / 1e9
            within &= each["seconds"] <= _SECONDS[step] * share
            words += f", {_SECONDS[step] * share:.0f} s"
        good.append(verdict(within, words + ")"))
    if "prepare" in found:
        octets = found["prepare"]["octets"]
        good.append(
            verdict(5 <= octets <= 8, f"{rows:.0e} rows: {octets:.2f} octets a rating (asked 5 to 8)")
        )
    if rows == _FILE_TO_MODEL["size"] and {"prepare", "ratings"} <= set(found):
        seconds = found["prepare"]["seconds"] + found["ratings"]["seconds"]
        gib = max(found["prepare"]["gib"], found["ratings"]["gib"])
        words = f"{rows:.0e} rows, file to model: {seconds:.1f} s, {gib:.2f} GiB (asked <= 60 s, 2 GiB)"
        good.append(verdict(seconds <= _FILE_TO_MODEL["seconds"] and gib <= _FILE_TO_MODEL["gib"], words))
    return good


def growth(found: dict[int, dict[str, dict[str, float]]]) -> list[bool]:
    """Say how cost grows over all sizes; the largest step between two is told, and has no target."""
    return [
        verdict(power <= _EXPONENT, f"{step} grows with ratings to the {words} (asked <= {_EXPONENT})")
        for step, (power, words) in _powers(found).items()
    ]


def plot(found: dict[int, dict[str, dict[str, float]]], path: str) -> None:
    """Seconds against ratings, and a line of the power 1."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for step in STEPS:
        points = [(rows, steps[step]["seconds"]) for rows, steps in found.items() if step in steps]
        axes.loglog(*zip(*points), "o-", label=step)
    sizes = np.array([min(found), max(found)], dtype=float)
    axes.loglog(sizes, sizes / 1e7, "k:", label="in proportion to ratings")
    axes.set(xlabel="ratings", ylabel="seconds, two cores")
    axes.legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print a line a target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", default="1e6,1e7,1e8")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", action="store_true", help="the folder's files stay, and are used again")
    parser.add_argument("--table", action="store_true", help="print what was measured, and no more")
    parser.add_argument("--figure", help="with --table: draw it, too")
    parser.add_argument("--steps", default=",".join(STEPS), help="some of them, in this order")
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        step, rows, folder = options.step
        print(json.dumps(STEPS[step](int(rows), Path(folder))))
        return
    if options.table:
        print(*table(), "", *powers(), sep="\n")
        if options.figure:
            plot(stored(), options.figure)
        return
    sizes = [int(float(size)) for size in options.sizes.split(",")] + [10**9] * options.long
    with _place(options.folder, options.keep) as folder:
        needed, free = max(sizes) * DISK / 1e9, shutil.disk_usage(folder).free / 1e9
        print(
            f"{max(sizes):.0e} rows take {needed:.1f} GB of disk at {folder}, which has {free:.0f} GB free."
        )
        if needed > free and not (folder / str(max(sizes))).exists():
            sys.exit("That is not enough; pass --folder on a larger disk, or smaller --sizes.")
        print(f"{os.cpu_count()} cores, {threads.count()} threads, load {os.getloadavg()[0]:.1f}", flush=True)
        steps = options.steps.split(",")
        good = [] if options.keep else [*against_plain(), same_bytes(folder / "bytes")]
        if not options.keep:
            beside_peers(folder)
        found = {}
        for rows in sizes:
            found[rows] = _size(rows, folder / str(rows), steps)
            good += judged(rows, found[rows])
            if not options.keep:
                shutil.rmtree(folder / str(rows))
        good += growth(found)
    sys.exit(not all(good))


def _size(rows: int, folder: Path, steps: list[str]) -> dict[str, dict[str, float]]:
    """The steps at a size, on files that are generated if they are not there."""
    folder.mkdir(exist_ok=True)
    if not (folder / "rows").exists():
        generate(rows, folder / "drawn")
        (folder / "drawn").rename(folder / "rows")
    return {step: measured(step, rows, folder) for step in steps}


@contextlib.contextmanager
def _place(folder: Path | None, keep: bool) -> Iterator[Path]:
    """Yield the folder where files are written: one that goes at the end, or one that stays."""
    if keep:
        if folder is None:
            sys.exit("--keep needs the --folder whose files stay.")
        folder.mkdir(exist_ok=True)
        yield folder
    else:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            yield Path(name)


if __name__ == "__main__":
    main()
