"""Which figures on pages were made with other settings than today's code has.

Rows of the frontier name the settings of their model. Other stored figures name the commit that measured
them.
"""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq

from benchmarks.frontier.frontier import EPSILONS, chosen
from benchmarks.frontier.methods import methods
from benchmarks.frontier.tables import write_part
from benchmarks.harness import DELTA, ROOT, STORED, settings
from hushrec.data import Domain
from hushrec.privacy import Budget

PAGE = ROOT / "docs" / "understand" / "frontier.md"
#: Users who train, items and rating range of the data sets of the frontier.
SHAPES: dict[str, tuple[int, int, tuple[float, float]]] = {
    "ml-100k": (943, 1682, (1, 5)),
    "ml-1m": (6040, 3952, (1, 5)),
    "jester": (24_983, 100, (0, 5)),
    "yahoo-r3": (15_400, 1000, (1, 5)),
    "coat": (290, 300, (1, 5)),
    "flixster": (2266, 2956, (0.5, 5)),
    "restaurant": (138, 130, (0, 2)),
    "synthetic": (20_000, 1000, (-8, 8)),
    "ml-100k-likes": (845, 1682, (0, 1)),
    "ml-1m-likes": (5451, 3952, (0, 1)),
}
#: Page that quotes a file, and the commit that measured it, where its rows do not name their settings.
MEASURED = {
    "frank-wolfe.txt": ("docs/papers/frank-wolfe.md", "b6abc4a"),
    "homomorphic.txt": ("docs/papers/homomorphic.md", "974ab24"),
    "next.jsonl": ("docs/guides/next.md", "844616d"),
    "nobody.json": ("docs/guides/two-servers.md", "f4d168e"),
    "one-bit.txt": ("docs/papers/one-bit.md", "589a7e0"),
    "public.jsonl": ("docs/guides/public.md", "8d35ea6"),
    "scaling.jsonl": ("docs/guides/scaling.md", "56fa4f7"),
    "seasons.txt": ("docs/guides/seasons.md", "6e76f2c"),
}
#: Files of the frontier, and those that `make trust` and `make mutants` write.
CHECKED = {"frontier.json", "frontier.parquet", "mutants.csv", "trust.json"}


def older() -> dict[str, list[str]]:
    """Return the methods of each data set that lack rows of today's settings at some epsilon."""
    columns = ["part", "data", "method", "epsilon", "settings"]
    rows = pq.read_table(STORED / "frontier.parquet", columns=columns).to_pylist()
    names = ("data", "method", "epsilon", "settings")
    known = {tuple(row[name] for name in names) for row in rows if row["part"] == "frontier"}
    made = {key[:3] for key in known}
    found: dict[str, list[str]] = {}
    for data, (n_users, n_items, rating_range) in SHAPES.items():
        domain = Domain(range(1, n_items + 1), rating_range=rating_range)
        parts: Any = SimpleNamespace(train=SimpleNamespace(domain=domain, n_users=n_users, n_items=n_items))
        for name, method in methods(data).items():
            for epsilon in (*EPSILONS, math.inf):
                if (data, name, epsilon) in made:
                    today = method.make(
                        Budget(epsilon, DELTA), data, parts, chosen(data, name, epsilon) or {}
                    )
                    if (data, name, epsilon, settings(today)) not in known:
                        found.setdefault(data, []).append(name)
                        break
    return found


def sentence() -> str:
    """Name the rows of the frontier made with earlier settings."""
    cells = [f"{data}: {', '.join(f'`{name}`' for name in names)}" for data, names in older().items()]
    if not cells:
        return "All rows were made with the settings of today's code."
    head = "Rows of these methods were made with earlier settings than today's code has:"
    return "\n".join([head, *(f"- {cell}" for cell in cells)])


def unnamed() -> list[str]:
    """Name stored files without a page that gives their commit."""
    wrong = []
    for name in sorted(path.name for path in STORED.iterdir()):
        page, commit = MEASURED.get(name, ("", ""))
        if not page and name not in CHECKED:
            wrong.append(f"docs/data/{name} is in no table of benchmarks/stored.py")
        elif page and f"commit {commit}" not in (ROOT / page).read_text(encoding="utf-8"):
            wrong.append(f"{page} does not say that docs/data/{name} was measured at commit {commit}")
    return wrong


def main() -> int:
    """Write the sentence on the page; 1 if a page does not name its commit."""
    write_part(PAGE, "older", sentence())
    wrong = unnamed()
    print(sentence(), *wrong, sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
