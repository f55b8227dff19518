"""Time from an empty kernel cache to the first model and list, and the later ones, on 100,000 ratings.

On a busy machine the processor's seconds are judged, which are no fewer than the wall's on a quiet one.
"""

from __future__ import annotations

import compileall
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import hushrec
from benchmarks.harness import TOY, Targets
from hushrec.data import realistic

SIZES = (300, 50, 3000) if TOY else (943, 1682, 100_000)
#: Seconds of the first and of a later command.
MOST = {"train": (4.0, 1.2), "recommend": (1.5, 0.7)}
SAYS = "Compiling kernels, once after installation"


def timed(words: str, folder: Path) -> tuple[float, str]:
    """Return the wall's or the processor's seconds of a command, the fewer, and its messages."""
    usual = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "hushrec", *words.split()],
        cwd=folder,
        env={**usual, "NUMBA_CACHE_DIR": str(folder / "kernels")},
        capture_output=True,
        text=True,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"hushrec {words} failed: {done.stderr}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{words.split()[0]:<12} {wall:6.2f} s, processor {used:6.2f} s")
    return min(wall, used), done.stderr


def main() -> None:
    """Train and recommend twice, with an empty cache and a full one."""
    targets = Targets()
    compileall.compile_dir(hushrec.__path__[0], quiet=1)  # as pip does
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        matrix = realistic(*SIZES, seed=0).matrix.tocoo()
        lines = [f"{u},{i},{v:g}" for u, i, v in zip(matrix.row, matrix.col, matrix.data)]
        (folder / "ratings.csv").write_text("\n".join(["user,item,rating", *lines]) + "\n")
        (folder / "items.txt").write_text("".join(f"{item}\n" for item in range(SIZES[1])))
        train = "train ratings.csv --catalogue items.txt --rating-range 1 5 --epsilon 5 --delta 1e-6"
        train += " --ledger ledger.db --force --out model.hush"
        recommend = "recommend model.hush ratings.csv --user 7"
        for again, words in ((0, train), (0, recommend), (1, train), (1, recommend)):
            seconds, said = timed(f"{words} --dataset {again}" if words == train else words, folder)
            command, when = words.split()[0], ("first", "later")[again]
            targets.at_most(seconds, MOST[command][again], f"seconds of the {when} {command}")
            compiles = words == train and not again
            targets.line((SAYS in said) == compiles, f"{command} says that it compiles: {SAYS in said}")
    targets.exit()


if __name__ == "__main__":
    main()
