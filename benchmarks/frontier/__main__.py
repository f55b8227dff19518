"""The frontier: every private method of the library at its true epsilon, side by side.

    python -m benchmarks.frontier [--long] [--part frontier studies ...] [--only ml-1m ...] [--jobs 2]

Real ratings come from the folder HUSHREC_DATA; a data set that is not there is skipped. The data are public:
nothing is charged, the errors are measured on held-out ratings and are not themselves private. Results go to
one Parquet file, by which a run that was cut short goes on; ``--page`` has tables written into a page.

short form  epsilon 0.1, 1, 5, 20 and no privacy, 2 draws, without what is slow; under 15 minutes on 2 cores
long form   epsilon 0.1, 0.5, 1, 2, 5, 10, 20 and no privacy, 5 draws, every method; hours
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmarks.frontier import ablation, studies
from benchmarks.frontier.cells import Cell, Results, run, single_thread
from benchmarks.frontier.data import DATASETS, available
from benchmarks.frontier.frontier import EPSILONS, SHORT_EPSILONS, Form, cells, checks, choose, tuning_cells
from benchmarks.frontier.tables import figure, footnote, markdown, write_part

_SUFFIX = {"rmse random": "-random"}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.frontier",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--long", action="store_true", help="all epsilons, methods and five draws")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=["frontier", "checks"])
    parser.add_argument("--only", nargs="+", choices=DATASETS, default=list(DATASETS), help="data sets")
    parser.add_argument("--jobs", type=int, default=2, help="processes of one thread each (default 2)")
    parser.add_argument("--draws", type=int, help="noise draws of each figure (default 2, or 5 with --long)")
    parser.add_argument("--methods", nargs="+", help="names of methods to run; all by default")
    parser.add_argument("--stored", action="store_true", help="run nothing: tables of what is stored")
    parser.add_argument("--epsilons", nargs="+", type=float, help="instead of those of the form")
    parser.add_argument(
        "--results", type=Path, default=Path("bench-output/frontier.parquet"), help="Parquet of the results"
    )
    parser.add_argument("--figures", type=Path, default=Path("bench-output"), help="folder of the figures")
    parser.add_argument("--page", type=Path, help="Markdown page into which the tables are written")
    options = parser.parse_args()
    single_thread()
    options.figures.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        if not available(name):
            print(f"{name} is skipped: HUSHREC_DATA names no folder with {', '.join(DATASETS[name].files)}.")
    options.only = [name for name in options.only if available(name)]
    epsilons, draws = (EPSILONS, 5) if options.long else (SHORT_EPSILONS, 2)
    epsilons = tuple(options.epsilons or epsilons)
    options.form = Form(epsilons, options.draws or draws, options.long)
    started = time.perf_counter()
    for part in options.part:
        PARTS[part](options, Results(options.results))
    print(f"All of it took {(time.perf_counter() - started) / 60:.0f} minutes.", file=sys.stderr)


def show(options: argparse.Namespace, name: str, title: str, text: str) -> None:
    """Print a part, and write it into the page if there is one."""
    print(f"\n## {title}\n\n{text}\n", flush=True)
    if options.page:
        write_part(options.page, name, text)


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


def check(options: argparse.Namespace, results: Results) -> None:
    rows = [row for name in options.only for row in results.of(cells(name, options.form))]
    found = checks(rows)
    lines = [f"- {'PASS' if holds else '**FAIL**'} {text}" for holds, text in found]
    lines.append(f"\n{sum(holds for holds, _ in found)} of {len(found)} hold.")
    show(options, "checks", "Targets", "\n".join(lines))


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


PARTS = {"frontier": frontier, "studies": study, "ablation": ablate, "tune": tune, "checks": check}


if __name__ == "__main__":
    main()
