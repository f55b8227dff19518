"""Run the code of every Makefile target, and of commands that pages name, at toy size: ``make smoke``.

Real tables are replaced by generated ones of the same names and ranges. Targets that `.ci/run` runs in full
are left to it. ``--check`` runs nothing: it compares the Makefile, the pages and this file, as `make check`
does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import ROOT, TABLES

#: Parts of a target that are run one by one, by the variable that names them.
PARTS = {
    "bench": (
        "PART",
        "quality never_loses lists public features similar next last_item year two_servers generated",
    ),
    "reproduce": ("PAPER", "frank_wolfe homomorphic one_bit"),
    "speed": ("PART", "sweep first_use serve scale"),
}
#: Targets that run their code at toy size.
TOY = ("help", "demo", "frontier", "trust", "mutants", "dist", *PARTS)
#: What pages tell a reader to run with Python, besides the parts.
COMMANDS = (
    "-m benchmarks.constants",
    "-m benchmarks.errata",
    "-m benchmarks.lists --measured",
    "-m benchmarks.lists --pairs",
    "examples/movielens.py DATA",
    "examples/vector_index.py",
)
#: What tests, .ci/run and targets of another name run.
ELSEWHERE = ("dependencies", "epsilon_page", "lines", "ml20m", "mutate", "private_slim", "stored")
#: Targets that .ci/run runs in full, the one that runs this file, and one that has no code.
LEFT = ("check", "test", "test-web", "docs", "smoke", "clean")
SECONDS = 180.0


def toy_data(folder: Path) -> None:
    """Write a table of each name, with few users and a catalogue like its own."""
    rng = np.random.default_rng(0)
    extra = {"coat.test": ("small/coat.test", (1, 5)), "yahoo": ("yahoo-r3.random", (1, 5))}
    splits = {
        f"u{k}.{part}": (f"ml-100k-splits/u{k}.{part}", (1, 5))
        for k in range(1, 6)
        for part in ("base", "test")
    }
    for file, ends in {**TABLES, **extra, **splits}.values():
        path = folder / f"{file}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        users, items = np.divmod(rng.choice(80 * 50, 1600, replace=False), 50)
        low, high = ends or (0, 1)
        columns = {"user": users.astype(np.int32) + 1, "item": items.astype(np.int32) + 1}
        if ends is not None:
            columns["rating"] = (low + (high - low) / 4 * rng.integers(0, 5, 1600)).astype(np.float32)
        pq.write_table(pa.table(columns), path)
    facts = {"item": np.arange(1, 51), "title": [f"film {item}" for item in range(50)]}
    facts |= {"year": rng.integers(1950, 2000, 50), "drama": rng.random(50) < 0.5}
    (folder / "features").mkdir()
    pq.write_table(pa.table(facts), folder / "features" / "ml-1m-items.parquet")


def targets() -> list[str]:
    """Return the targets of the Makefile."""
    return re.findall(r"^([a-z][a-z-]*):.*##", (ROOT / "Makefile").read_text(), re.M)


def missing() -> list[str]:
    """Name targets without a smoke run, and named ones that do not exist."""
    known, wrong = set(targets()), []
    wrong += [f"make {name} has no smoke run: benchmarks/smoke.py" for name in known - {*TOY, *LEFT}]
    wrong += [
        f"make {name} is in benchmarks/smoke.py and not in the Makefile" for name in {*TOY, *LEFT} - known
    ]
    if len(known) > 15:
        wrong.append(f"the Makefile has {len(known)} targets, more than 15")
    run_here = {*re.findall(r"\w+", " ".join([*COMMANDS, *(parts for _, parts in PARTS.values())])), *TOY}
    run_here |= {*ELSEWHERE, *(f"reproduce_{paper}" for paper in PARTS["reproduce"][1].split())}
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("hushrec/**/*.py")]:
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"`make ([a-z-]+)[` ]|^make ([a-z-]+)", text, re.M)
        wrong += [f"{page.relative_to(ROOT)} names make {a or b}" for a, b in named if (a or b) not in known]
        named = re.findall(r"python (?:-m benchmarks\.|\S*examples/)(\w+)", text)
        wrong += [
            f"{page.relative_to(ROOT)} names {name}, which nothing runs: benchmarks/smoke.py"
            for name in named
            if name not in run_here
        ]
    return wrong


def run(words: list[str], data: str) -> tuple[list[str], int, str, float]:
    """Run a target as make does, or a command, in the virtual environment of this process."""
    bin_folder, start = Path(sys.prefix), time.monotonic()
    stamps = [
        word for name in ("run", "test", "bench", "release") for word in ("-o", f"{bin_folder}/.{name}")
    ]
    one_thread = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "NUMBA", "OPENBLAS")}
    line = ["make", "--no-print-directory", f"VENV={bin_folder}", "TOY=1", *stamps, *words]
    if words[0].endswith(".py") or words[0] == "-m":
        line = [sys.executable, *(data if word == "DATA" else word for word in words)]
    done = subprocess.run(
        line,
        cwd=ROOT,
        env={**os.environ, **one_thread, "HUSHREC_DATA": data, "TOY": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return words, done.returncode, done.stdout, time.monotonic() - start


def main() -> int:
    wrong = missing()
    print(*wrong, sep="\n", end="\n" if wrong else "")
    if "--check" in sys.argv:
        return int(bool(wrong))
    jobs = [[name] for name in TOY if name not in PARTS]
    for name, (variable, parts) in PARTS.items():
        jobs += [[name, f"{variable}={part}"] for part in parts.split()]
    jobs += [command.split() for command in COMMANDS]
    asked = [word for word in sys.argv[1:] if not word.startswith("-")]
    jobs = [job for job in jobs if not asked or set(asked) & {job[0], job[-1].partition("=")[2]}]
    begun, failed = time.monotonic(), []
    with tempfile.TemporaryDirectory() as data, ThreadPoolExecutor(os.cpu_count()) as pool:
        toy_data(Path(data))
        for words, code, output, seconds in pool.map(lambda job: run(job, data), jobs):
            print(
                f"{'PASS       ' if not code else 'FALLS SHORT'} {' '.join(words)}: {seconds:.0f} s",
                flush=True,
            )
            if code:
                failed.append(words)
                print(output[-3000:])
    print(f"{time.monotonic() - begun:.0f} s in all, at most {SECONDS:.0f} on two quiet cores.")
    return int(bool(failed or wrong))


if __name__ == "__main__":
    sys.exit(main())
