"""Measure a store at scale: prepare, train, recommend; seconds and memory against the number of ratings.

    python -m benchmarks.scale [--sizes 1e6,1e7,1e8] [--folder DIR] [--steps ...]
    python -m benchmarks.scale --table

Generates ratings (Zipf), a hundred rows a user, in any order, as Parquet. Every step runs in a separate
process with sampled anonymous memory: mapped pages of a store do not count. On a busy machine only the
processor seconds mean something. The seconds and memory of a step are appended to docs/data/scaling.jsonl
with the commit; --table prints the latest of each.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import STORED, TOY, Targets
from benchmarks.sweep import anonymous
from hushrec import Accountant, Both, Budget, Domain, PrivateALS, PrivateEigenRec, Ratings, Store, write_lists
from hushrec.data.ratings import joined
from hushrec.kernels import threads
from hushrec.kernels.sweeps import SweepSettings, csr, half_sweep
from hushrec.kernels.threads import one_blas_thread
from hushrec.models.private_als.users import FittedUsers
from hushrec.privacy.testing import SeededNoise
from hushrec.training.partitioned import PartitionedUsers, Streaming

BUDGET = Budget(5.0, 1e-6)
RANK = 12
#: Disk space of the ratings during preparation: Parquet, DuckDB, spilled rows, two stores; octets a row.
DISK = 9 + 12 + 22 + 14
SHAPE_10M = 69_878, 10_677, 10**7
_ROWS_A_USER, _CHUNK = 100, 1 << 21
#: Users who get lists, where there are more.
_SERVED = 1_000_000
_MEMORY_GIB = {"prepare": 3.0, "ratings": 4.0, "lists": 4.0, "both": 4.0, "recommend": 4.0}
#: Seconds at 1e9 and at 1e8 ratings.
_SECONDS = {"prepare": 1500.0, "ratings": 2400.0, "sweep": 120.0, "recommend": 300.0}
_FILE_TO_MODEL = {"size": 1e8, "seconds": 60.0, "gib": 2.0}
_EXPONENT, _PRIVATE_OVER_PLAIN = 1.05, 1.2
#: A stream out of DuckDB against the same Parquet: times the seconds, and GiB more (1.2 GB).
_STREAM_OVER_FILES, _STREAM_GIB = 1.3, 1.2e9 / 2**30
#: Measurements, a line for each step.
ROWS = STORED / "scaling.jsonl"


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


def to_duckdb(folder: Path) -> None:
    """Copy the files of ratings to a DuckDB file."""
    import duckdb

    with duckdb.connect(folder / "rows.duckdb") as warehouse:
        warehouse.sql(f"CREATE TABLE ratings AS SELECT * FROM read_parquet('{folder}/rows/*.parquet')")


# ---------------------------------------------------------------------- steps, each in its own process


def prepare(rows: int, folder: Path) -> dict[str, float]:
    parts = max(32, rows >> 21)
    store = Store.prepare(
        str(folder / "rows"), folder / "store", domain_of(rows), partitions=parts, force=True
    )
    size = sum(part.path.stat().st_size for part in store.partitions())
    return {"octets": size / store.n_ratings, "kept": store.n_ratings}


def stream(rows: int, folder: Path) -> dict[str, float]:
    """Prepare the same rows out of a DuckDB file."""
    import duckdb

    with duckdb.connect(folder / "rows.duckdb", read_only=True) as warehouse:
        warehouse.sql("SET memory_limit='1GB'")
        source = warehouse.sql("SELECT * FROM ratings")
        store = Store.prepare(source, folder / "streamed", domain_of(rows), partitions=max(32, rows >> 21))
        return {"kept": store.n_ratings}


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
    each.__name__: each for each in (prepare, stream, ratings, sweep, lists, both, recommend)
}


def measured(step: str, rows: int, folder: Path) -> dict[str, float]:
    """Run a step in a process: its seconds and the most GiB of anonymous memory that it held; into ROWS."""
    command = [sys.executable, "-m", "benchmarks.scale", "--step", step, str(rows), str(folder)]
    load, start, most = os.getloadavg()[0], time.perf_counter(), 0.0
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output)
        while process.poll() is None:
            most = max(most, anonymous(process.pid))
            time.sleep(0.05)
        if process.returncode:
            raise SystemExit(f"{step} of {rows:,} rows failed.")
        output.seek(0)
        told = json.loads(output.read().splitlines()[-1])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {"seconds": time.perf_counter() - start, "gib": most, **told}
    found["cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    marks = {"commit": _commit(), "threads": threads.count(), "load": round(load, 1)}
    with (Path(os.devnull) if TOY else ROWS).open("a") as file:
        rounded = {name: round(value, 3) for name, value in found.items()}
        file.write(json.dumps({"rows": rows, "step": step, **rounded, **marks}) + "\n")
    return found


def _commit() -> str:
    words = ["git", "rev-parse", "--short", "HEAD"]
    ran = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    return ran.stdout.strip() or "unknown"


def stored() -> dict[int, dict[str, dict[str, Any]]]:
    """Return the last measurements, by rows and step."""
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


def powers(found: dict[int, dict[str, dict[str, Any]]]) -> dict[str, tuple[float, str]]:
    """Return the power of the ratings that fits the seconds of a step best, from 10^6 on, and as text."""
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
    seconds += f" s ({found['cpu']:.1f} CPU)" if "cpu" in found else " s"
    users = f", 10^{round(np.log10(found['users']))} users" if "users" in found else ""
    return f"{seconds}, {found['gib']:.2f} GiB{users}"


# ---------------------------------------------------------------------- targets


def same_bytes(targets: Targets, folder: Path) -> None:
    """Compare the model's bytes over threads, partitions, memory and store."""
    folder.mkdir()
    size = 10**4 if TOY else 10**5
    generate(size, folder / "rows")
    rows, model = Ratings.from_any(str(folder / "rows"), domain_of(size)), PrivateALS(rank=4)

    def bytes_of(data: Any, count: int) -> bytes:
        with threads.limit(count):
            return model.fit(data, Accountant(BUDGET, noise=SeededNoise(1))).to_bytes()

    whole = bytes_of(rows, 1)
    same = all(bytes_of(rows, count) == whole for count in (2, 8))
    for parts, count in ((1, 1), (2, 2), (7, 8), (64, 2)):
        store = Store.prepare(rows, folder / "small", rows.domain, partitions=parts, force=True)
        same &= bytes_of(store, count) == whole
    targets.line(same, "bytes are equal for 1, 2, 8 threads; 1, 2, 7, 64 partitions; memory and store")


def against_plain(targets: Targets) -> None:
    """Compare a private sweep in memory with a plain one, in processor seconds, in MovieLens-10M's shape."""
    rng, (n_users, n_items, size) = np.random.default_rng(0), (700, 100, 10**4) if TOY else SHAPE_10M
    popularity = np.cumsum(np.arange(1, n_items + 1) ** -0.8)
    columns = np.searchsorted(popularity, rng.random(size) * popularity[-1])
    source = (rng.integers(0, n_users, size), columns, rng.integers(1, 11, size) / 2)
    rows = Ratings.from_any(source, Domain(range(n_items), (0.5, 5.0)))
    by_item = rows.transposed
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
        what = f"10M shape, rank {rank}: a private sweep of {private:.2f} processor seconds over a plain one"
        targets.at_most(private / plain, _PRIVATE_OVER_PLAIN, what)


def judge(targets: Targets, rows: int, found: dict[str, dict[str, float]]) -> None:
    """Print the targets at a size; seconds are limited from 1e8 rows on, in proportion to 1e9."""
    for step, each in found.items():
        targets.at_most(each["gib"], _MEMORY_GIB.get(step, 4.0), f"{rows:.0e} rows, {step}: GiB")
        if step in _SECONDS and rows >= 1e8:
            share = each["users"] / 1e6 if step == "recommend" else rows / 1e9
            targets.at_most(each["seconds"], _SECONDS[step] * share, f"{rows:.0e} rows, {step}: seconds")
        if step == "prepare":
            octets = each["octets"]
            targets.line(5 <= octets <= 8, f"{rows:.0e} rows: {octets:.2f} octets a rating (5 to 8)")
    if {"prepare", "stream"} <= set(found):
        files, stream = found["prepare"], found["stream"]
        for unit, what in (("seconds", "seconds"), ("cpu", "processor seconds")):
            words = f"{rows:.0e} rows, DuckDB over Parquet: {what}"
            targets.at_most(stream[unit] / files[unit], _STREAM_OVER_FILES, words)
        targets.at_most(stream["gib"] - files["gib"], _STREAM_GIB, f"{rows:.0e} rows, DuckDB: GiB more")
    if rows == _FILE_TO_MODEL["size"] and {"prepare", "ratings"} <= set(found):
        seconds = found["prepare"]["seconds"] + found["ratings"]["seconds"]
        targets.at_most(seconds, _FILE_TO_MODEL["seconds"], f"{rows:.0e} rows, file to model: seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", default="1e4,3e4" if TOY else "1e6,1e7,1e8")
    parser.add_argument("--long", action="store_true", help="1e9 rows too: hours, and 40 GB of disk")
    parser.add_argument("--folder", type=Path, help="on a disk with room")
    parser.add_argument("--table", action="store_true", help="print the stored rows, and no more")
    parser.add_argument("--steps", default=",".join(STEPS), help="some of them, in this order")
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    options, targets = parser.parse_args(), Targets()
    if options.step:
        step, rows, place = options.step
        print(json.dumps(STEPS[step](int(rows), Path(place))))
        return
    if options.table:
        print(*table(), *(words for _, words in powers(stored()).values()), sep="\n")
        return
    sizes = [int(float(size)) for size in options.sizes.split(",")] + [10**9] * options.long
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder, needed = Path(name), max(sizes) * DISK / 1e9
        if needed > shutil.disk_usage(folder).free / 1e9:
            sys.exit(
                f"{needed:.1f} GB of disk are needed; pass --folder on a larger disk, or smaller --sizes."
            )
        print(f"{os.cpu_count()} cores, {threads.count()} threads, load {os.getloadavg()[0]:.1f}", flush=True)
        against_plain(targets)
        same_bytes(targets, folder / "bytes")
        found = {}
        for rows in sizes:
            place = folder / str(rows)
            place.mkdir()
            generate(rows, place / "rows")
            if "stream" in options.steps.split(","):
                to_duckdb(place)
            found[rows] = {step: measured(step, rows, place) for step in options.steps.split(",")}
            judge(targets, rows, found[rows])
            shutil.rmtree(place)
        for step, (power, words) in powers(found).items():
            targets.at_most(power, _EXPONENT, f"{step} grows with the ratings to the {words}")
    targets.exit()


if __name__ == "__main__":
    main()
