"""Count the numeric constants of models, public data, training and evaluation.

Every number other than -1, 0, 1/2, 1 and 2 counts, wherever it is written (`python -m benchmarks.constants`).
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOMS = "models", "public", "training", "evaluation"


def count(folder: Path) -> int:
    """Return the number of such literals in the Python files of a folder."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py"))
    found = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return sum(type(value) in (int, float) and value not in (0, 0.5, 1, 2) for value in found)


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "hushrec")
    counts = {room: count(root / room) for room in ROOMS if (root / room).exists()}
    print(*(f"{room} {number}" for room, number in counts.items()), f"all {sum(counts.values())}", sep="\n")


if __name__ == "__main__":
    main()
