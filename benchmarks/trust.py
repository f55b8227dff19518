"""Run the tests behind the guarantee and print one table, a row a property: ``make trust``.

Each row runs its tests in a process of its own and prints how many cases passed, failed or were skipped.
``--full`` adds the long ones. The exit code is 1 if a row failed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: Row, property, tests; without tests, the reason why it is not run.
ROWS: list[tuple[str, str, list[str] | str]] = [
    ("A1, A2", "sensitivity holds and is attained", ["tests/algorithms/test_sensitivity.py"]),
    ("A3", "noise law", ["tests/privacy/test_noise.py", "tests/algorithms/test_plan.py::"
     "test_the_noise_that_is_added_is_the_noise_that_is_charged"]),
    ("A4", "exactness of the sampler", ["tests/privacy/test_sampler.py"]),
    ("A5", "accounting", ["tests/privacy/test_accounting.py", "tests/privacy/test_selection.py"]),
    ("A6", "replay: nothing bypasses the noise", ["tests/algorithms/test_replay.py"]),
    ("A7", "ledger = releases = plan", ["tests/algorithms/test_plan.py", "tests/privacy/test_accountant.py"]),
    ("A8", "planted bugs are killed", ["tests/mutants"]),
    ("B1", "distinguishing test", ["tests/audit/test_bounds.py", "tests/audit/test_distinguish.py"]),
    ("B2", "one-run audit", ["tests/audit/test_canaries.py"]),
    ("B3", "finite mechanisms by enumeration", ["tests/algorithms/test_one_bit.py"]),
    ("B4", "membership inference", ["tests/audit/test_membership.py"]),
    ("C1", "order and threads", ["tests/kernels/test_threads.py", "tests/kernels/test_residuals.py"]),
    ("C2", "overflow guards", "sums are in floating point"),
    ("D1-D3", "ledger: kills, races, damage", ["tests/privacy/test_ledger.py"]),
    ("D4", "bad parameters", ["tests/privacy/test_budget.py"]),
    ("D5", "hostile ratings", ["tests/data"]),
    ("D6", "model files", ["tests/test_store.py"]),
    ("D7", "generator", ["tests/privacy/test_noise.py", "tests/privacy/test_accountant.py"]),
    ("D8", "newest dependencies", "needs the network: make test-newest"),
]  # fmt: skip


def outcome(tests: list[str], full: bool) -> tuple[int, int, int, float]:
    """Cases passed, failed and skipped, and seconds."""
    missing = [test for test in tests if not (ROOT / test.split("::")[0]).exists()]
    if missing:
        raise FileNotFoundError(missing[0])
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        marks = ["-m", "full or not full"] if full else []
        command = [sys.executable, "-m", "pytest", *tests, *marks, f"--junitxml={report}"]
        subprocess.run(command, cwd=ROOT, env=os.environ, stdout=subprocess.DEVNULL, check=False)
        suite = next(ElementTree.parse(report).iter("testsuite"))
    counts = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    failed = counts["failures"] + counts["errors"]
    return (
        counts["tests"] - failed - counts["skipped"],
        failed,
        counts["skipped"],
        time.perf_counter() - start,
    )


def main() -> int:
    """Print the table; 1 if a row failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    full = parser.parse_args().full
    print(f"{'row':7} {'property':36} {'result':8} {'passed':>6} {'failed':>6} {'skipped':>7} {'seconds':>8}")
    wrong = False
    for row, what, tests in ROWS:
        if isinstance(tests, str):
            print(f"{row:7} {what:36} NOT RUN  {tests}")
            continue
        passed, failed, skipped, seconds = outcome(tests, full)
        wrong |= failed > 0 or passed == 0
        verdict = "FAILED" if failed or not passed else "passed"
        print(
            f"{row:7} {what:36} {verdict:8} {passed:>6} {failed:>6} {skipped:>7} {seconds:>8.1f}", flush=True
        )
        if skipped:
            print(f"{'':7} {'':36} NOT RUN  {skipped} cases: their data are absent (HUSHREC_DATA)")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
