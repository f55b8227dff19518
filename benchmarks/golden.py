"""Scaffolding of the redesign: the same bytes before and after.

    python -m benchmarks.golden BASE

checks BASE out beside this tree, runs both in one go on every configuration of ``tests/algorithms/cases.py``
under seeded test noise, both relations, and compares what passes the gate, the billboards and the JSON of
command line calls. Prints a line a configuration, PASS or what differs; exits 1 if anything does. It goes
when the redesign is done.
"""

from __future__ import annotations

import json
import os
import pickle  # noqa: TID251 - a temporary file of our own two runs
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: Configurations whose difference is meant, with the reason.
EXPECTED: dict[str, str] = {}
#: Command line calls whose JSON is compared; LIKES and RATINGS stand for small files.
COMMANDS = [
    *(
        ["plan", "--model", model, "--epsilon", "3", "--delta", "1e-6", "--rating-range", "1", "5", "--json"]
        + ["--catalogue", "ITEMS", "--users", "300"]
        for model in ("private-als", "dpals", "item-bias", "popular", "private-eigenrec", "private-svd")
    ),
    ["evaluate", "MODEL", "RATINGS", "RATINGS", "--json"],
    ["report", "MODEL", "--json"],
]


def dump(target: Path) -> None:
    """Run every configuration of the tree that is imported, and keep what can be compared."""
    import numpy as np

    from hushrec.privacy import Accountant
    from hushrec.privacy.testing import RecordingNoise, SeededNoise
    from tests.algorithms.cases import CASES, hostile_data, ratings_of

    kept: dict[str, Any] = {}
    for case in CASES:
        for relation in ("add-remove", "replace"):
            for seed in range(3):
                ratings = ratings_of(hostile_data(np.random.default_rng(seed), 20))
                noise = RecordingNoise(SeededNoise(seed))
                model = case.estimator.fit(ratings, Accountant(case.budget(relation), noise=noise), seed=1)
                kept[f"{case.name}, {relation}, {seed}"] = {
                    "gate": [
                        (call.label, call.value.tobytes(), call.output.tobytes()) for call in noise.calls
                    ],
                    "model": {name: (str(a.dtype), a.shape, a.tobytes()) for name, a in model.arrays.items()},
                    "statement": json.dumps(model.privacy.to_dict(), sort_keys=True),
                }
    kept |= _commands(target.parent)
    target.write_bytes(pickle.dumps(kept))


def _commands(folder: Path) -> dict[str, Any]:
    """JSON of the command line, on a model that the tree under test trains with seeded noise."""
    import numpy as np

    from hushrec import Budget, Domain, PrivateALS, Ratings
    from hushrec.privacy import Accountant
    from hushrec.privacy.testing import SeededNoise

    rng = np.random.default_rng(0)
    items = [f"i{n}" for n in range(30)]
    cells = [(user, item) for user in range(60) for item in rng.permutation(30)[:9]]
    rows = [(f"u{user}", items[item], float(rng.integers(1, 6))) for user, item in cells]
    (folder / "items.txt").write_text("\n".join(items) + "\n")
    (folder / "ratings.csv").write_text(
        "user,item,rating\n" + "\n".join(",".join(map(str, row)) for row in rows)
    )
    domain = Domain(items, (1, 5))
    ratings = Ratings.read(folder / "ratings.csv", domain)
    accountant = Accountant(Budget(3, 1e-6), noise=SeededNoise(1))
    PrivateALS(rank=3, iterations=1).fit(ratings, accountant).save(folder / "model.hush")
    places = {"ITEMS": "items.txt", "RATINGS": "ratings.csv", "MODEL": "model.hush"}
    found = {}
    for command in COMMANDS:
        words = [str(folder / places[word]) if word in places else word for word in command]
        ran = subprocess.run([sys.executable, "-m", "hushrec", *words], capture_output=True, text=True)
        text = ran.stdout.replace(str(folder), "FOLDER")
        found["hushrec " + " ".join(command)] = {"code": ran.returncode, "json": text}
    return found


def _run(tree: Path, target: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "NUMBA_CPU_NAME": "generic", "OMP_NUM_THREADS": "1"}
    environment["NUMBA_CACHE_DIR"] = str(target.parent / "cache")
    command = [sys.executable, str(Path(__file__).resolve()), "--dump", str(target)]
    subprocess.run(command, cwd=tree, env=environment, check=True)
    found: dict[str, Any] = pickle.loads(target.read_bytes())
    return found


def compare(base: dict[str, Any], new: dict[str, Any]) -> int:
    """Print a line a configuration; the number of those that differ without a reason."""
    failed = 0
    for name in sorted(base.keys() | new.keys()):
        one, other = base.get(name), new.get(name)
        parts = (
            ["missing"]
            if one is None or other is None
            else [part for part in one if one[part] != other[part]]
        )
        reason = next((text for start, text in EXPECTED.items() if name.startswith(start)), None)
        if parts and reason is None:
            failed += 1
        verdict = "PASS" if not parts else f"differs in {', '.join(parts)}"
        print(f"{name}: {verdict}{f' (expected: {reason})' if parts and reason else ''}")
    return failed


def main() -> None:
    """Compare this tree with a commit."""
    if sys.argv[1] == "--dump":
        sys.path.insert(0, str(Path.cwd()))
        dump(Path(sys.argv[2]))
        return
    here = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), sys.argv[1]], cwd=here, check=True)
        try:
            (Path(folder) / "one").mkdir()
            (Path(folder) / "two").mkdir()
            failed = compare(
                _run(tree, Path(folder) / "one" / "kept"), _run(here, Path(folder) / "two" / "kept")
            )
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=here, check=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
