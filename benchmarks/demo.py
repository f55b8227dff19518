"""The main job end to end with the command line: train, evaluate, compare, recommend (`make demo`).

Without a file the data are generated, like MovieLens in shape, and declared public; with one, every run is
charged in demo-output/ledger.sqlite. The model is trained on four fifths of the ratings, chosen by a hash of
user and item, so that it keeps its promise to everybody in the file; the others judge it.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq

from hushrec.data import Domain, Ratings, realistic, split_ratings
from hushrec.errors import InputError

OUTPUT = Path("demo-output")
SHAPE = (12_000, 1_000, 1_000_000)


def main() -> None:
    """Run the demo."""
    options = parsed_arguments()
    start = time.perf_counter()
    OUTPUT.mkdir(exist_ok=True)
    public = options.ratings is None or options.data_is_public
    dataset = "my ratings"
    if options.ratings is None:
        dataset = f"generated {datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"
        users, items, n_ratings = SHAPE
        print(f"Generating {n_ratings:,} ratings of {users:,} users for {items:,} items.")
        ratings = realistic(*SHAPE, rating_range=tuple(options.rating_range), seed=0)
    else:
        items = Domain.read_catalogue(options.catalogue)
        ratings = Ratings.read(options.ratings, Domain(items, rating_range=tuple(options.rating_range)))
    write_data(ratings)

    low, high = (f"{end:g}" for end in options.rating_range)
    domain = ["--rating-range", low, high, "--catalogue", OUTPUT / "items.txt"]
    ledger = ["--ledger", OUTPUT / "ledger.sqlite", "--dataset", dataset]
    delta = ["--delta", f"{options.delta:g}"]
    model, train, test = OUTPUT / "model.hush", OUTPUT / "train.parquet", OUTPUT / "test.parquet"
    newcomer = OUTPUT / "newcomer.parquet"
    run("plan", "--epsilon", f"{options.epsilon:g}", *delta, *domain, "--users", "10000")
    budget = ["--epsilon", f"{options.epsilon:g}", *delta]
    run("train", train, "--model", "private-als", *budget, *domain, *ledger, "--out", model, quiet=True)
    mine = json.loads(run("evaluate", model, train, test, "--json", quiet=True))
    epsilons = sorted({1.0, options.epsilon, 10.0})
    grid = [
        "--models",
        "private-als,item-bias",
        "--epsilons",
        ",".join(f"{epsilon:g}" for epsilon in epsilons),
    ]
    charge = ["--data-is-public"] if public else ledger
    line = ["compare", OUTPUT / "ratings.parquet", *grid, *delta, *domain, *charge]
    compared = json.loads(run(*line, "--out-dir", OUTPUT, "--json", quiet=True))
    ten = run("recommend", model, newcomer, "--user", "user", "-n", "10", quiet=True)
    statement = run("report", model, quiet=True)

    print("\n" + "=" * 80 + "\n" + statement)
    print(error_table(mine, compared, options.epsilon, public))
    print(f"\n{ten}", end="")
    if not public:
        run("ledger", "show", *ledger)
    print(f"\nTable: {compared['files']['md']}\nPlot:  {Path(compared['files']['png']).absolute()}")
    if public:
        print(f"All of it took {time.perf_counter() - start:.0f} s.")
    else:
        print(
            f"Private: the errors above, the comparison, and ratings, train and test.parquet in {OUTPUT};"
            " keep or delete them."
        )


def parsed_arguments() -> argparse.Namespace:
    """Command line of the demo."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--rating-range", type=float, nargs=2, default=(1.0, 5.0), metavar=("LOW", "HIGH"))
    parser.add_argument("--ratings", help="a file of your own; everything is charged")
    parser.add_argument("--catalogue", help="its items, one id a line")
    parser.add_argument("--data-is-public", action="store_true", help="nobody's ratings in it are private")
    options = parser.parse_args()
    if options.ratings and not options.catalogue:
        parser.error('declare the items too: make demo RATINGS=path CATALOGUE=path RANGE="1 5"')
    return options


def write_data(ratings: Ratings) -> None:
    """Write catalogue, all ratings, an 80/20 split by keys, and a newcomer who likes the first two items."""
    train, test = split_ratings(ratings, (0.8, 0.2), seed=0)
    for name, part in (("ratings", ratings), ("train", train), ("test", test)):
        pq.write_table(part.to_arrow(), OUTPUT / f"{name}.parquet")
    items = ratings.domain.items
    (OUTPUT / "items.txt").write_text("".join(f"{item}\n" for item in items), encoding="utf-8")
    liked = [(item, ratings.domain.high) for item in items[:2]]
    pq.write_table(Ratings.of_user(liked, ratings.domain).to_arrow(), OUTPUT / "newcomer.parquet")


def run(*words: object, quiet: bool = False) -> str:
    """Run the hushrec command, showing the command line and, unless quiet, what it printed."""
    line = [str(word) for word in words]
    print(f"\n$ hushrec {shlex.join(line)}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "hushrec", *line], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.returncode)
    if not quiet:
        print(done.stdout, end="", flush=True)
    return done.stdout


def error_table(mine: dict, compared: dict, epsilon: float, public: bool) -> str:
    """The model's error beside both baselines' and, where it was trained, the non-private model's."""
    at = {row["model"]: row for row in compared["runs"] if row["epsilon"] in (epsilon, "inf")}
    rows = [(f"private-als, epsilon {epsilon:g} (the model)", mine["rmse"], mine["mae"])]
    for name in ("item-bias", "global-mean"):
        rows.append((f"{name}, epsilon {epsilon:g} (baseline)", at[name]["rmse"], at[name]["mae"]))
    if "als" in at:
        rows.append(("als, no privacy", at["als"]["rmse"], at["als"]["mae"]))
    lines = [f"{'on held-out ratings (a private figure of the curator)':<56}{'RMSE':>8}{'MAE':>8}"]
    lines += [f"  {name:<54}{_figure(rmse)}{_figure(mae)}" for name, rmse, mae in rows]
    if not public:
        lines.append(
            "  als, no privacy: only trained with --data-is-public, since nothing protects its users"
        )
    return "\n".join(lines)


def _figure(error: float | None) -> str:
    """An error, or a dash where there was nothing to measure."""
    return f"{'–' if error is None else format(error, '.4f'):>8}"


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        os._exit(1)
