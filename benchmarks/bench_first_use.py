"""Time from a cold kernel cache to the first model and list: ``hushrec train`` on 100,000 ratings.

Prints seconds, PASS or what falls short, and ends with 1 if anything does. On a busy machine the processor's
seconds are judged, which are no fewer than the wall's on a quiet one.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hushrec.data import realistic

USERS, ITEMS, RATINGS = 943, 1682, 100_000
MOST = 6.0  # seconds
SAYS = "Compiling kernels, once after installation"


def timed(words: list[str], folder: Path) -> tuple[float, str]:
    """Wall's or processor's seconds of a command, the fewer, and what it said beside its output."""
    usual = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "hushrec", *words],
        cwd=folder,
        env={**usual, "NUMBA_CACHE_DIR": str(folder / "kernels")},
        capture_output=True,
        text=True,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"hushrec {words[0]} failed: {done.stderr}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{words[0]:<12} {wall:6.2f} s, processor {used:6.2f} s")
    return min(wall, used), done.stderr


def main() -> None:
    """Train and recommend twice, with an empty cache and a full one."""
    short = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ratings = realistic(USERS, ITEMS, RATINGS, seed=0)
        matrix = ratings.matrix.tocoo()
        lines = [f"{u},{i},{v:g}" for u, i, v in zip(matrix.row, matrix.col, matrix.data)]
        (folder / "ratings.csv").write_text("\n".join(["user,item,rating", *lines]) + "\n")
        (folder / "items.txt").write_text("".join(f"{item}\n" for item in range(ITEMS)))
        train = ["train", "ratings.csv", "--catalogue", "items.txt", "--rating-range", "1", "5"]
        train += ["--epsilon", "5", "--delta", "1e-6", "--dataset", "bench", "--ledger", "ledger.db"]
        recommend = ["recommend", "model.hush", "ratings.csv", "--user", "7"]
        print("the first time")
        first, said = timed([*train, "--out", "model.hush"], folder)
        if SAYS not in said:
            short.append("train does not say that it compiles")
        if first > MOST:
            short.append(f"the first model takes {first:.1f} s, not {MOST:g}")
        timed(recommend, folder)
        print("the second time")
        _, said = timed([*train, "--out", "second.hush"], folder)
        if SAYS in said:
            short.append("train says that it compiles when it does not")
        timed(recommend, folder)
    print("PASS" if not short else "SHORT: " + "; ".join(short))
    sys.exit(bool(short))


if __name__ == "__main__":
    main()
