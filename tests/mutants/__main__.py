"""Print docs/mutants.md: ``python -m tests.mutants > docs/mutants.md``; what the driver wrote last stays."""

import subprocess

from tests.mutants.driver import MARK
from tests.mutants.mutants import MUTANTS

INTRODUCTION = """# Planted privacy bugs and the tests that kill them
Each bug is planted alone, and the test named beside it must then fail; without the bug it must pass.
`python -m pytest tests/mutants` does both. This table is printed by `python -m tests.mutants`.
"""


def table() -> str:
    """The document, from the list of mutants."""
    lines = [INTRODUCTION, "| | planted bug | killed by |", "|---|---|---|"]
    lines += [f"| {n} | {mutant.name} | `{mutant.killer.name}` |" for n, mutant in enumerate(MUTANTS, 1)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    show = ["git", "show", "HEAD:docs/mutants.md"]  # the file itself is being written
    committed = subprocess.run(show, check=True, capture_output=True, text=True).stdout
    print(table() + "".join(committed.partition(MARK)[1:]), end="")
