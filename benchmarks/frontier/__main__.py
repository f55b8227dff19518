"""The frontier: every private method of the library at its true epsilon, side by side.

    python -m benchmarks.frontier [--long] [--part frontier studies ...] [--only ml-1m ...] [--jobs 2]

Real ratings come from the folder HUSHREC_DATA; a data set that is not there is skipped. The data are public:
nothing is charged, the errors are measured on held-out ratings and are not themselves private.

as it is    every target against the stored rows (docs/data/frontier.parquet) that have the settings of this
            code, and a seeded sample of 20 runs made anew; a line each, exit code 1 if one falls short
--long      makes what is missing in the file ``--results``: all epsilons and methods, five draws (hours; a
            run that was cut short goes on), then the targets against it; ``--data`` keeps the tables
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.frontier import ablation, studies, targets
from benchmarks.frontier.cells import Cell, Results, Row, result, run, single_thread
from benchmarks.frontier.data import DATASETS, available
from benchmarks.frontier.frontier import EPSILONS, Form, cells, choose, tuning_cells
from benchmarks.frontier.methods import methods
from benchmarks.frontier.tables import figure, footnote, keep, markdown

#: The rows behind docs/understand/frontier.md.
STORED = Path("docs/data/frontier.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.frontier",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--long", action="store_true", help="all epsilons, methods and five draws")
    parser.add_argument("--part", nargs="+", choices=PARTS, help="all that the form asks for by default")
    parser.add_argument("--only", nargs="+", choices=DATASETS, default=list(DATASETS), help="data sets")
    parser.add_argument("--jobs", type=int, default=2, help="processes of one thread each (default 2)")
    parser.add_argument("--draws", type=int, help="noise draws of each figure (default 5)")
    parser.add_argument("--again", type=int, default=20, help="runs made anew (default 20)")
    parser.add_argument("--seed", type=int, default=2026, help="of their choice")
    parser.add_argument("--methods", nargs="+", help="names of methods to run; all by default")
    parser.add_argument("--stored", action="store_true", help="run nothing: tables of what is stored")
    parser.add_argument("--epsilons", nargs="+", type=float, help="instead of those of the form")
    parser.add_argument("--results", type=Path, help="Parquet of the results")
    parser.add_argument("--figures", type=Path, default=Path("bench-output"), help="folder of the figures")
    parser.add_argument("--data", type=Path, help="file in which the tables are kept, as JSON")
    options = parser.parse_args()
    single_thread()
    options.figures.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        if not available(name):
            print(f"{name} is skipped: HUSHREC_DATA names no folder with {', '.join(DATASETS[name].files)}.")
    options.only = [name for name in options.only if available(name)]
    options.form = Form(tuple(options.epsilons or EPSILONS), options.draws or 5)
    parts = options.part or (["frontier", "checks"] if options.long else ["checks", "again"])
    path = options.results or (Path("bench-output/frontier.parquet") if options.long else STORED)
    started, holds = time.perf_counter(), True
    for part in parts:
        holds = PARTS[part](options, Results(path)) is not False and holds
    print(f"All of it took {(time.perf_counter() - started) / 60:.0f} minutes.", file=sys.stderr)
    sys.exit(not holds)


def show(options: argparse.Namespace, name: str, title: str, text: str) -> None:
    """Print a part, and keep it in the file of data if there is one."""
    print(f"\n## {title}\n\n{text}\n", flush=True)
    if options.data:
        keep(options.data, name, text)


def make(options: argparse.Namespace, wanted: list[Cell], results: Results) -> None:
    """Make the runs that are missing, if any are to be made."""
    if not options.stored:
        run(wanted, results, options.jobs)


def frontier(options: argparse.Namespace, results: Results) -> None:
    for name in options.only:
        wanted = cells(name, options.form)
        chosen = [cell for cell in wanted if not options.methods or cell.method in options.methods]
        make(options, chosen, results)
        rows = results.of(wanted)
        if not rows:
            continue
        known, texts = DATASETS[name], []
        for metric in known.metrics:
            file = (
                options.figures
                / f"frontier-{name}{metric.removeprefix(known.metrics[0]).replace(' ', '-')}.svg"
            )
            if metric != "ndcg@20":
                figure(name, rows, metric, file)
            texts.append(markdown(name, rows, metric))
        show(options, name, known.title, "\n\n".join([*texts, footnote(name, rows)]))


def tune(options: argparse.Namespace, results: Results) -> None:
    for name in options.only:
        for _ in range(2):  # single changes, then the best together
            run(tuning_cells(name, options.form, results), results, options.jobs)
    choose(options.only, options.form, results)


def check(options: argparse.Namespace, results: Results) -> bool:
    more = list(targets.more_cells(options.only))
    if options.long:
        make(options, more, results)
    wanted = [cell for name in options.only for cell in cells(name, options.form)]
    found = targets.checks(results.of([*wanted, *more]), options.only)
    return told(options, "checks", "Targets", found)


def again(options: argparse.Namespace, results: Results) -> bool:
    """Runs of the sample: other starts, and noise of their own."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    wanted = [cell for name in options.only for cell in cells(name, options.form)]
    stored = [cell for cell in wanted if cell.key in results.rows and methods(cell.data)[cell.method].short]
    for cell in stored:
        group = (cell.data, cell.method, f"{cell.epsilon}", cell.settings)
        groups.setdefault(group, []).append(results.rows[cell.key])
    found = []
    for cell in targets.sample(stored, options.again, options.seed):
        draws = groups[cell.data, cell.method, f"{cell.epsilon}", cell.settings]
        found.append(targets.as_stored(cell, result(replace(cell, draw=1000 + cell.draw)), draws))
    return told(options, "again", "A sample made anew", found)


def told(options: argparse.Namespace, name: str, title: str, found: list[targets.Check]) -> bool:
    """A line a target; True where all hold."""
    lines = [f"- {'PASS' if holds else '**FALLS SHORT**'} {text}" for holds, text in found]
    lines.append(f"\n{sum(holds for holds, _ in found)} of {len(found)} hold.")
    show(options, name, title, "\n".join(lines))
    return all(holds for holds, _ in found)


def study(options: argparse.Namespace, results: Results) -> None:
    draws = options.draws or (3 if options.long else 2)
    if available("ml-1m"):
        show(options, "study-skew", "Popularity skew", studies.skew(options.figures))
    for name, each in studies.STUDIES.items():
        if name.startswith(("users-low", "users-real")) or available("ml-1m"):
            wanted = studies.cells(name, draws, options.long)
            make(options, wanted, results)
            show(
                options,
                f"study-{name}",
                each.title,
                studies.report(name, results.of(wanted), options.figures),
            )


def ablate(options: argparse.Namespace, results: Results) -> None:
    draws = options.draws or (5 if options.long else 2)
    places = tuple(place for place in ablation.PLACES if place[0] in options.only)
    wanted = ablation.cells(draws, places)
    make(options, wanted, results)
    show(
        options, "ablation", "Each idea of private ALS on and off", ablation.table(results.of(wanted), draws)
    )


PARTS = {
    "frontier": frontier,
    "studies": study,
    "ablation": ablate,
    "tune": tune,
    "checks": check,
    "again": again,
}


if __name__ == "__main__":
    main()
