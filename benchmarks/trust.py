"""Run the tests behind the guarantee and print one table, a row a property: ``make trust``, part one.

Tests record figures (pytest's ``record_property``); a row prints the largest, smallest or sum of what its
tests recorded. ``--full`` adds the long tests and a run on the newest releases; ``--write`` keeps the table
in docs/data/trust.json. ``--continue`` goes on from the reports of an interrupted ``--full``. The exit code
is 1 if a row failed.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import mutate
from benchmarks.dependencies import report_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "data" / "trust.json"
REPORTS = ROOT / "bench-output" / "trust"
LIBRARIES = ("numpy", "scipy", "numba", "pyarrow", "cryptography", "mpmath", "dp-accounting")

CONTRACT = "models/test_contract.py::"
SENSITIVITY = f"{CONTRACT}test_sensitivity"
PLAN = "models/test_plan.py::"
SUMS = "models/test_exact_sums.py::"
NOISE = "privacy/test_noise.py::"
LEDGER = "privacy/test_ledger.py::"
PARTS = "evaluation/test_parts.py::"
DAMAGES = ("test_trunc", "test_tamp", "test_an_older", "test_a_ledger", "test_locked", "test_a_clock",
           "test_read", "test_full", "test_files")  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One property: the tests that check it (by the beginning of their names), what fails it, its figure."""

    number: str
    what: str
    tests: tuple[str, ...]
    fails: str
    figure: str


TOY = os.environ.get("TOY") == "1"
ROWS = [
    Row(
        "A1",
        "sensitivity of every release",
        (SENSITIVITY,),
        "a move exceeds its sensitivity by one unit of the integers that are summed",
        "largest move {largest move:.9f} of the sensitivity; {releases:,.0f} releases, {comparisons:,.0f}"
        " comparisons",
    ),
    Row(
        "A2",
        "the sensitivity is attained",
        (SENSITIVITY,),
        "less than 0.9 of it is attained, but where a reason is written beside the case",
        "smallest attained {smallest attained:.6f} of the claim; {attained:.0f} releases ({loose:.0f} more"
        " are loose, with the reason)",
    ),
    Row(
        "A3",
        "noise law",
        (f"{NOISE}test_gaussian", f"{NOISE}test_flips",
         f"{NOISE}test_the_test", f"{PLAN}test_the_noise"),
        "a p-value below 1e-9 (six sigma)",
        "smallest p-value {smallest p-value:.2g} in {draws:,.0f} draws",
    ),
    Row(
        "A4",
        "exactness of the sampler",
        ("privacy/test_sampler.py::",),
        "a table entry is not mpmath's, a draw is not the exact one, a p-value below 1e-9",
        "{table entries:,.0f} table entries, {draws compared:,.0f} draws bit for bit, {draws:,.0f} against"
        " mpmath's law; smallest p-value {smallest p-value:.2g}; 0 mismatches",
    ),
    Row(
        "A5",
        "accounting",
        ("privacy/test_accounting.py::", "privacy/test_selection.py::"),
        "delta off by 1e-10 of itself, epsilon outside PLD's bounds by 1e-6, a calibrated sd too small",
        "largest relative error of delta {largest relative error:.1g} in {with mpmath:,.0f} cases;"
        " {golden:.0f} golden, {calibrations:.0f} calibrated, {with PLD:.0f} with PLD,"
        " {with OpenDP:.0f} with OpenDP",
    ),
    Row(
        "A6",
        "replay: nothing bypasses the noise",
        (f"{CONTRACT}test_the_model",),
        "a byte of the model file differs, or anything is printed",
        "{pairs:,.0f} pairs over {cases} estimators and sizes; 0 bytes differ",
    ),
    Row(
        "A7",
        "ledger = releases = plan",
        (f"{CONTRACT}test_ledger", f"{CONTRACT}test_every", f"{PLAN}test_a_", "privacy/test_accountant.py::"),
        "a release that is not the plan's, or without its charge",
        "{option grids:,.0f} combinations of options",
    ),
    Row(
        "A8",
        "planted bugs",
        ("mutants/",),
        "one survives",
        "{killed:.0f} of {planted:.0f} killed",
    ),
    Row(
        "A9",
        "sampled bugs",
        ("mutants/test_mutants.py::test_mutants_compile",),
        "more than one of six survives: one may change nothing that a test can see",
        "{cases} test of what samples them",
    ),
    Row(
        "B1",
        "distinguishing test",
        ("audit/test_bounds.py::", "audit/test_distinguish.py::"),
        "the lower bound on mu exceeds the claim, or 0.75 of a tight pair's mu is not reached (0.5 by the"
        " 2,000 runs of many releases)",
        "claimed mu {largest audit[1]:.4f}, the pair's true mu {largest audit[2]:.4f}, lower bound"
        " {largest audit[3]:.4f} (the closest of {pairs:.0f} pairs); {runs:,.0f} runs, {controls caught:.0f}"
        " controls caught",
    ),
    Row(
        "B2",
        "one-run audit",
        ("audit/test_canaries.py::",),
        "a lower bound exceeds its claim, or a tenth of the noise is not caught",
        "epsilon's bound at most {largest bound over claim:.2f} of the claim, mu's"
        " {largest mu bound over claim:.2f}, in {audits:.0f} audits; {controls caught:.0f} controls caught",
    ),
    Row(
        "B3",
        "finite mechanisms, enumerated",
        ("papers/test_enumeration.py::", "papers/test_one_bit.py::"),
        "a log-ratio exceeds epsilon at all",
        "largest log-ratio is epsilon {largest excess:+.1e}; all inputs up to size 6",
    ),
    Row(
        "B4",
        "membership inference",
        ("audit/test_membership.py::",),
        "AUC of the control below 0.7, or at epsilon 1 above 0.55 by more than three standard errors",
        "AUC: control {smallest control AUC:.3f} or more, epsilon 1 {largest AUC at epsilon 1:.3f}, epsilon 5"
        " {largest AUC at epsilon 5:.3f} or less; {trainings:.0f} trainings",
    ),
    Row(
        "B5",
        "B end to end: from the file to everything that leaves the process",
        ("endtoend/",),
        "a byte of model, tables, screen, logs, warnings, exit code or written files differs, or what is the"
        " curator's own does not say so",
        "{pairs:,.0f} pairs of options, {cases} tests; 0 bytes differ",
    ),
    Row(
        "C1",
        "order and threads",
        (f"{CONTRACT}test_sums", f"{CONTRACT}test_without", "kernels/test_threads.py::",
         "kernels/test_residuals.py::"),
        "a bit of a private sum differs",
        "{cases} tests of orders, parts and threads; 0 bits differ",
    ),
    Row(
        "C2",
        "overflow guards",
        (f"{SUMS}test_more", f"{SUMS}test_a_full", f"{SUMS}test_a_clip", f"{SUMS}test_trunc",
         "data/test_overflow.py::"),
        "a number wraps around instead of being exact or refused",
        "{overflow cases:.0f} cases",
    ),
    Row(
        "D1",
        "kills",
        (f"{LEDGER}test_kills", "privacy/test_accountant.py::test_the_charge"),
        "a release without a charge on disk, a ledger that does not open, half a model",
        "{kills:,.0f} kills, {charges:,.0f} charges, {releases:,.0f} releases, 0 violations",
    ),
    Row(
        "D2",
        "races for a budget",
        (f"{LEDGER}test_processes", "privacy/test_accountant.py::test_threads"),
        "more is spent than there is",
        "{spent:,.0f} of {shares:,.0f} shares spent by 8 processes in {races:.0f} races",
    ),
    Row(
        "D3",
        "ledger fails closed",
        tuple(LEDGER + name for name in DAMAGES),
        "a release happens",
        "{failures:.0f} damages, locks, full disks and clock jumps; 0 releases",
    ),
    Row(
        "D4",
        "bad parameters",
        ("privacy/test_budget.py::", "models/test_bad_settings.py::"),
        "one is accepted, or refused with another error",
        "{refused:,.0f} refused in one sentence",
    ),
    Row(
        "D5",
        "hostile ratings",
        ("data/test_neighbours.py::", "data/test_ratings.py::", "data/test_readers.py::",
         "data/test_purchases.py::"),  # fmt: skip
        "an error, or another user's rows change",
        "{fixtures:,.0f} fixtures, {fuzzed:,.0f} fuzzed tables; no other user changed",
    ),
    Row(
        "D6",
        "model files",
        ("serving/test_modelfile.py::", "serving/test_fuzz_modelfile.py::"),
        "an error but ModelFileError, other values, more than four times the file's memory",
        "{damaged files:,.0f} damaged, {forged:,.0f} forged;"
        " a damaged file takes {largest memory over file:.2f} times its size of memory",
    ),
    Row(
        "D7",
        "generator",
        (f"{NOISE}test_no_two", f"{NOISE}test_numpy", f"{NOISE}test_the_ciph",
         "privacy/test_accountant.py::test_injected"),
        "two streams are equal, a seed reaches the noise, injected noise passes for the system's",
        "{streams:.0f} streams over calls, copies, threads, forks and spawns; none equal",
    ),
    Row(
        "D8",
        "dependencies",
        ("site/test_dependencies.py::",),
        "one cannot be imported, or lacks a bound; a test fails on the newest releases",
        "{imported:.0f} imported, {within bounds:.0f} within the bounds",
    ),
    Row(
        "D9",
        "dossiers",
        ("dossier/test_dossier.py::",),
        "a verifier accepts one that is forged or refuses one that is true, or one holds a path",
        "{forgeries refused:,.0f} forgeries, each refused or shown as not checked by two verifiers",
    ),
    Row(
        "F1",
        "parts of a split are keyed",
        (f"{PARTS}test_the_part", f"{PARTS}test_a_part", f"{PARTS}test_what_the_command",
         f"{PARTS}test_a_choice", "data/test_splits.py::"),
        "one user more changes another's part, or a part drawn otherwise is trained on",
        "{cases} attacks on demo, compare, splits and chosen rows; 0 succeed",
    ),
    Row(
        "F2",
        "rows without ids",
        (f"{PARTS}test_an_emptied", f"{PARTS}test_the_statement", f"{PARTS}test_a_row_without"),
        "an emptied row changes another's, or the statement does not say that rows are counted",
        "{cases} sources and estimators",
    ),
    Row("F3", "no user twice", (f"{PARTS}test_a_row_taken", f"{PARTS}test_users_who"),
        "a row is taken twice, or users who are not all different are trained on", "{cases} refusals"),
    Row("F4", "adaptive choice with a reserve",
        ("privacy/test_selection.py::test_an_adaptive", "privacy/test_selection.py::test_a_selection_takes",
         f"{LEDGER}test_the_reserve"),
        "an adaptive history that a budget allows exceeds its delta", "{cases} adversaries and refusals"),
    Row("F5", "edges of the range",
        ("models/test_als.py::test_user_means",
         "kernels/test_sparse_rows.py::test_rows_are", "data/test_domain.py::", f"{CONTRACT}test_edges"),
        "a release moves by more than declared, or holds no number", "{cases} ranges, sizes and estimators"),
    Row("F6", "ids and cells by themselves", ("data/test_rows_alone.py::",),
        "two ids are one, or a cell decides, raises or warns for another user", "{cases} tests of all doors"),
    Row("F7", "no cell in a message",
        ("data/test_rows_alone.py::test_no_cell",),
        "a cell of a file is in a message", "{cases} files"),
    Row("F8", "what delta pays for",
        ("privacy/test_sampler.py::test_the_tail", "privacy/test_sampler.py::test_thresholds"),
        "a chance of failure is in no delta", "{cases} tests"),
    Row("F9", "held-out users and matrices from outside",
        (f"{PARTS}test_held", f"{PARTS}test_an_item_stored", "data/test_ratings.py::test_a_malformed",
         "data/test_ratings.py::test_what_the_caller"),
        "one user more moves another, or a malformed matrix is read", "{cases} tests"),
    Row("F10", "number of runs drawn exactly",
        ("privacy/test_selection.py::test_the_number", "privacy/test_selection.py::test_runs_are"),
        "a draw is not that of exact arithmetic, or a run that fails tells of itself", "{cases} laws"),
    Row("F11", "items that are all noise come last",
        ("models/test_base.py::test_unsupported", "kernels/test_topk.py::"),
        "one is recommended before a supported item", "{cases} widths and shapes"),
    Row("F12", "an accountant that is used up says so", ("evaluation/test_runs.py::test_an_accountant",),
        "anything is computed with nothing left", "{cases} calls"),
    Row("L10", "strangers, slow clients and lying servers",
        ("network/test_http.py::", "network/test_messages.py::"),
        "a body is read before its token, or a peer takes more time or memory than it was given",
        "{cases} tests"),
    Row("L9", "two servers, one of which may lie", ("engines/test_two_servers.py::",),
        "a server is killed, replays or lies, and what leaves the other is not one charged and noisy sum",
        "{cases} tests"),
    Row("L7", "what a season reserves",
        ("privacy/test_reserves.py::", "privacy/test_seasons.py::test_a_season_res",
         "privacy/test_seasons.py::test_beside"),
        "four processes overspend a budget, or a reserved week is refused that was not closed or cut short",
        "{cases} tests, {interleavings:,.0f} interleavings of {steps:,.0f} steps against books of their own,"
        " {seasons with trainings:,.0f} with trainings that race and crash"),
    Row("L8", "the model that a week goes on from",
        ("models/test_continuing.py::test_a_week_goes_on",
         "privacy/test_seasons.py::test_a_week_that_was"),
        "a week goes on from an edited file, or its statement lists less than was charged", "{cases} files"),
    Row("G1", "numbers from a file or a server",
        ("models/test_continuing.py::test_one_user_moves", "models/test_continuing.py::test_a_file",
         "models/test_contract.py::test_what_a", "models/test_continuing.py::test_a_week_goes"),
        "a forged number moves a release past its bound; an edited model is gone on from", "{cases} tests"),
    Row("G2", "long texts of one user", ("data/test_long_texts.py::",),
        "they end everybody's reading, or ways of reading differ", "{cases} formats"),
    Row("G5", "the server's counts and its memory",
        ("server/test_answers.py::test_metrics", "server/test_answers.py::test_a_server_rem"),
        "a stranger learns of single requests, or a reply depends on an earlier one", "{cases} tests"),
    Row("G6", "a catalogue that shrinks", ("models/test_continuing.py::test_a_catalogue_as",),
        "a week ends in an error after its charges", "{cases} models"),
    Row("G8", "modes of what is written", ("cli/test_file_modes.py::",),
        "another account can read what is private", "{cases} commands and calls"),
    Row("G10", "the second of everything, long rows, and configurations in no list",
        ("privacy/test_second_of_everything.py::", "kernels/test_long_rows.py::",
         "models/test_contract.py::test_every", "privacy/test_accountant.py::test_threads"),
        "week 2, season 2 or row 257 is treated otherwise, or a configuration has no case", "{cases} tests"),
    Row("G11", "a season's trainings",
        ("privacy/test_attendance.py::", "engines/test_two_servers.py::test_no_lie",
         "dossier/test_dossier.py::test_no_verifier_accepts_another"),
        "a user costs more than was declared, after kills, races, old copies and lies of servers; the count"
        " is shown; or a dossier promises something else",
        "{cases} tests"),
]  # fmt: skip


@dataclass
class Outcome:
    """Outcome of a row's tests: counts, seconds, and the figures that they recorded."""

    passed: int = 0
    failed: int = 0
    skipped: set[str] = field(default_factory=set)
    seconds: float = 0.0
    figures: dict[str, list[tuple[float, ...]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, case: ElementTree.Element) -> None:
        """Take one test into account."""
        self.seconds += float(case.get("time", 0))
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            self.failed += 1
        elif skip is not None:
            self.skipped.add(skip.get("message", "").split(", so ")[0])
        else:
            self.passed += 1
        for entry in case.iter("property"):
            numbers = tuple(float(number) for number in entry.get("value", "").split())
            self.figures[entry.get("name", "")].append(numbers)

    def figure(self, template: str) -> str:
        """The row's figure: the largest or smallest of what begins so, else the sum."""
        values: dict[str, object] = {"cases": self.passed}
        for name, found in self.figures.items():
            if name.startswith(("largest", "smallest")):
                best = max(found) if name.startswith("largest") else min(found)
                values[name] = best if len(best) > 1 else best[0]
            else:
                values[name] = sum(number for (number,) in found)
        try:
            return template.format(**values)
        except KeyError:
            return "no figure: a test that records it did not pass"


def run_files(files: list[str], report: Path, full: bool) -> None:
    """Run files of tests in a process for each core; the report appears when all have run."""
    unfinished = report.with_suffix(".part")
    command = [sys.executable, "-m", "pytest", *(f"tests/{file}" for file in files)]
    command += ["-m", "full or not full"] if full else []
    command += ["--numprocesses=logical", "--maxprocesses=4"]
    command += ["--junit-xml", str(unfinished), "-o", "junit_family=xunit1"]
    subprocess.run(command, cwd=ROOT, env=os.environ, stdout=subprocess.DEVNULL, check=False)
    unfinished.replace(report)


def run_tests(rows: list[Row], full: bool, again: bool) -> list[Outcome]:
    """All tests of the table; one outcome a row.

    At length they take hours, so each file of tests has a report, which ``again`` takes as it is.
    """
    files = sorted({test.split("::")[0] for row in rows for test in row.tests} - {"mutants/test_mutants.py"})
    cases: list[ElementTree.Element] = []
    if full:
        REPORTS.mkdir(parents=True, exist_ok=True)
        for file in files:
            report = REPORTS / f"{file.strip('/').replace('/', '-')}.xml"
            if not (again and report.exists()):
                run_files([file], report, full=True)
            cases += ElementTree.parse(report).iter("testcase")
    else:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            for some in filter(
                None, [[f for f in files if f != "mutants/"], [f for f in files if f == "mutants/"]]
            ):
                run_files(some, report, full=some == ["mutants/"])  # tests that plant bugs are long ones
                cases += ElementTree.parse(report).iter("testcase")
    outcomes = []
    for row in rows:
        outcomes.append(Outcome())
        for case in cases:
            path, _, group = case.get("classname", "").removeprefix("tests.").partition(".Test")
            name = f"{path.replace('.', '/')}.py::{case.get('name')}"
            if name.startswith(row.tests):
                outcomes[-1].add(case)
    return outcomes


def newest(full: bool, again: bool) -> tuple[str, bool]:
    """Return what came of the last runs on the newest and the oldest releases, and whether one failed."""
    if full and not (again and report_of("newest").exists()):
        subprocess.run([sys.executable, "-m", "benchmarks.dependencies", "newest"], cwd=ROOT, check=False)
    lines, failed = [], False
    for which in ("newest", "oldest"):
        if not report_of(which).exists():
            lines.append(f"{which} releases NOT RUN: make test DEPENDENCIES={which}")
            continue
        report = json.loads(report_of(which).read_text(encoding="utf-8"))
        failed |= report["failed"] > 0
        lines.append(
            f"{which} releases ({report['date']}, numpy {report['versions']['numpy']}):"
            f" {report['failed']} of {report['tests']:,} tests failed"
        )
    return "; ".join(lines), failed


def sampled() -> tuple[str, bool]:
    """Test six sampled mutants of budgets and bounds; return whether more than one survived."""
    tests = [f"tests/privacy/test_{name}.py" for name in ("budget", "accountant", "statement", "selection")]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "mutants.jsonl"
        chosen = mutate.sample(["privacy/budget", "privacy/bounded"], 6, 6)
        count = mutate.run_all(chosen, tests, report)
    return ", ".join(f"{number} {kind}" for kind, number in count.items()), count["killed"] < 5


def where() -> str:
    """Date, version and libraries, for the document."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, hushrec {importlib.metadata.version('hushrec')}, Python"
        f" {platform.python_version()} on {platform.machine()}, {versions}."
    )


def main() -> int:
    """Print the table; 1 if a row failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--continue", dest="again", action="store_true", help="where --full was cut off")
    parser.add_argument("--write", action="store_true", help="keep the table in docs/data/trust.json")
    arguments = parser.parse_args()
    rows_run = [row for row in ROWS if row.number == "F4"] if TOY else ROWS
    start, wrong, hours = time.perf_counter(), False, 0.0
    rows = []
    for row, outcome in zip(rows_run, run_tests(rows_run, arguments.full, arguments.again), strict=True):
        failed = outcome.failed > 0 or outcome.passed == 0
        figure = outcome.figure(row.figure)
        if row.number == "D8":
            text, newest_failed = newest(arguments.full, arguments.again)
            figure, failed = f"{figure}; {text}", failed or newest_failed
        if row.number == "A9":
            text, lived = sampled()
            figure, failed = f"{figure}; {text}", failed or lived
        for reason in sorted(outcome.skipped):
            figure += f". NOT RUN: {reason}"
        wrong, hours = wrong or failed, hours + outcome.seconds / 3600
        verdict = "FAILED" if failed else "passed"
        print(f"{row.number}  {verdict}  {row.what}, {outcome.passed} tests, {outcome.seconds:.0f} s")
        print(f"    {figure}")
        found = {"row": row.number, "property": row.what, "verdict": verdict, "figure": figure}
        rows.append(found | {"fails when": row.fails})
    minutes = (time.perf_counter() - start) / 60
    print(f"{'FAILED' if wrong else 'All rows passed'} in {minutes:.1f} minutes. {where()}")
    if arguments.write:
        spent = (
            f"{minutes:.0f} minutes."
            if not arguments.full
            else f"The tests' seconds sum to {hours:.1f} hours."
        )
        write("full" if arguments.full else "commit", rows, f"{where()} {spent}")
    return int(wrong)


def write(part: str, rows: list[dict[str, str]], note: str) -> None:
    """Keep the table of a part, "commit" or "full", and where it was made."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) | {part: {"where": note, "rows": rows}}
    RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
