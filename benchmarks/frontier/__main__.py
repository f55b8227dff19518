"""The frontier: every private method of the library at its true epsilon, side by side.

Real ratings come from the folder HUSHREC_DATA; a data set that is not there is skipped. The data are public:
nothing is charged, the errors are measured on held-out ratings and are not themselves private.

By default: every target against the stored rows (docs/data/frontier.parquet) that have the settings of this
code, and a seeded sample of 20 runs made again. --long makes missing rows first: all epsilons and methods,
five draws; that takes hours and can be interrupted. Then --page writes the tables and figures of the page.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from benchmarks.frontier import targets as checks
from benchmarks.frontier.cells import Cell, Results, Row, result, run
from benchmarks.frontier.data import DATASETS, available
from benchmarks.frontier.frontier import EPSILONS, Form, cells
from benchmarks.frontier.methods import methods
from benchmarks.frontier.tables import figure, footnote, keep, markdown, summary, write_part
from benchmarks.harness import OUTPUT, ROOT, STORED, TOY, Targets, single_thread

ROWS = OUTPUT / "frontier.parquet" if TOY else STORED / "frontier.parquet"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--long", action="store_true", help="make missing rows")
    parser.add_argument("--page", action="store_true", help="write docs/data/frontier.json and docs/figures")
    parser.add_argument("--only", nargs="+", choices=DATASETS, default=list(DATASETS), help="data sets")
    parser.add_argument("--jobs", type=int, default=1 if TOY else 2, help="processes of one thread each")
    parser.add_argument("--again", type=int, default=1 if TOY else 20, help="runs made again")
    options, targets, results = parser.parse_args(), Targets(), Results(ROWS)
    single_thread()
    for name in options.only:
        if not available(name):
            print(f"{name} is skipped: HUSHREC_DATA names no folder with {', '.join(DATASETS[name].files)}.")
    names = [name for name in options.only if available(name)]
    names = [name for name in names if name in ("coat", "ml-100k-likes")] if TOY else names
    form = Form((1.0,), 1) if TOY else Form(EPSILONS, 5)
    wanted = [cell for name in names for cell in cells(name, form)]
    more = list(checks.more_cells(names))
    if options.long or TOY:
        run(wanted if TOY else [*wanted, *more], results, options.jobs)
    for name in names:
        page(name, results.of([cell for cell in wanted if cell.data == name]), options.page)
    if options.page and not TOY:
        kept = STORED / "frontier.json"
        write_part(ROOT / "docs" / "understand" / "frontier.md", "summary", summary(kept))
    for good, text in checks.checks(results.of([*wanted, *more]), names):
        targets.line(good, text)
    again(targets, wanted, results, options.again)
    targets.exit()


def page(name: str, rows: list[Row], write: bool) -> None:
    """Print the tables of a data set; write them and the figures."""
    if not rows:
        return
    known, texts = DATASETS[name], []
    folder = ROOT / "docs" / "figures" if write else OUTPUT
    folder.mkdir(parents=True, exist_ok=True)
    for metric in known.metrics:
        suffix = metric.removeprefix(known.metrics[0]).replace(" ", "-")
        if metric != "ndcg@20":
            figure(name, rows, metric, folder / f"frontier-{name}{suffix}.svg")
        texts.append(markdown(name, rows, metric))
    text = "\n\n".join([*texts, footnote(name, rows)])
    print(f"\n## {known.title}\n\n{text}\n", flush=True)
    if write:
        keep(STORED / "frontier.json", name, text)


def again(targets: Targets, wanted: list[Cell], results: Results, count: int) -> None:
    """Make a sample of the stored runs again: other starts, and new noise."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    stored = [cell for cell in wanted if cell.key in results.rows and methods(cell.data)[cell.method].short]
    for cell in stored:
        group = (cell.data, cell.method, f"{cell.epsilon}", cell.settings)
        groups.setdefault(group, []).append(results.rows[cell.key])
    for cell in checks.sample(stored, count, 2026):
        draws = groups[cell.data, cell.method, f"{cell.epsilon}", cell.settings]
        targets.line(*checks.as_stored(cell, result(replace(cell, draw=1000 + cell.draw)), draws))


if __name__ == "__main__":
    main()
