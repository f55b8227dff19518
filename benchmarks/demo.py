"""The main job end to end with the command line: train, evaluate, compare, recommend (`make demo`).

Without a file the data are generated, like MovieLens in shape, and declared public. With one, a single model
is trained, judged and charged, to one data set of your account's ledger; nothing is compared, since every
model more would be charged too. The model is trained on four fifths of the ratings, chosen by a hash of user
and item, so that it keeps its promise to everybody in the file; the others judge it.
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
from hushrec.privacy import Budget, default_path

OUTPUT = Path("demo-output")
SHAPE = (12_000, 1_000, 1_000_000)


def main() -> None:
    """Run the demo."""
    options = parsed_arguments()
    start = time.perf_counter()
    OUTPUT.mkdir(exist_ok=True)
    public = options.ratings is None or options.data_is_public
    ledger = ["--dataset", options.dataset]
    if options.ratings is None:
        made = f"generated {datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"
        ledger = ["--ledger", OUTPUT / "ledger.sqlite", "--dataset", made]
        users, items, n_ratings = SHAPE
        print(f"Generating {n_ratings:,} ratings of {users:,} users for {items:,} items.")
        ratings = realistic(*SHAPE, rating_range=tuple(options.rating_range), seed=0)
    else:
        domain = Domain(Domain.read_catalogue(options.catalogue), rating_range=tuple(options.rating_range))
        columns = dict(part.split("=", 1) for part in options.columns.split(",")) if options.columns else None
        ratings = Ratings.read(options.ratings, domain, columns=columns)
        budget = Budget(options.epsilon, options.delta)
        print(
            "Nothing will be charged: the ratings are declared public."
            if public
            else f"One model will be charged: {budget}, to data set {options.dataset!r} in {default_path()}."
        )
    write_data(ratings)

    low, high = (f"{end:g}" for end in options.rating_range)
    declared = ["--rating-range", low, high, "--catalogue", OUTPUT / "items.txt"]
    delta = ["--delta", f"{options.delta:g}"]
    model, train, test = OUTPUT / "model.hush", OUTPUT / "train.parquet", OUTPUT / "test.parquet"
    newcomer = OUTPUT / "newcomer.parquet"
    run("plan", "--epsilon", f"{options.epsilon:g}", *delta, *declared, "--users", "10000")
    budget = ["--epsilon", f"{options.epsilon:g}", *delta]
    run("train", train, *budget, *declared, *ledger, "--out", model, "--force", quiet=True)
    # that nothing was held out is the curator's to know: a dash in the table, no error
    likes = ["--relevant-from", f"{ratings.domain.like_from:g}"]
    measured = run("evaluate", model, train, test, *likes, "--json", quiet=True, fails=True)
    mine = json.loads(measured or '{"rmse": null, "recall@20": null}')
    compared = compare(options, [*likes, *delta, *declared]) if public else None
    ten = run("recommend", model, newcomer, "--user", "user", "-n", "10", quiet=True)
    similar = run("similar", model, ratings.domain.items[0], "-n", "5", quiet=True, fails=True)
    statement = run("report", model, quiet=True)

    print("\n" + "=" * 80 + "\n" + statement)
    print(error_table(mine, compared, options.epsilon))
    print(f"\n{ten}\n{similar}", end="")
    if not public:
        run("ledger", "show", *ledger)
    shown = f"hushrec serve {shlex.quote(str(model))} --demo"
    print(f"\nA page that keeps what is rated in the browser: {shown}  (pip install 'hushrec[serve]')")
    if compared is not None:
        print(f"\nTable: {compared['files']['md']}\nPlot:  {Path(compared['files']['png']).absolute()}")
        print(f"All of it took {time.perf_counter() - start:.0f} s.")
    else:
        print(
            f"Private: the error above, and ratings, train and test.parquet in {OUTPUT}; keep or delete them."
        )


def compare(options: argparse.Namespace, declared: list[object]) -> dict:
    """The model and its baselines at some epsilons, on data that are public."""
    epsilons = ",".join(f"{epsilon:g}" for epsilon in sorted({1.0, options.epsilon, 10.0}))
    line = [
        "compare",
        OUTPUT / "ratings.parquet",
        "--models",
        "both,item-bias,popular",
        "--epsilons",
        epsilons,
    ]
    return json.loads(
        run(*line, *declared, "--data-is-public", "--out-dir", OUTPUT, "--force", "--json", quiet=True)
    )


def parsed_arguments() -> argparse.Namespace:
    """Command line of the demo."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--rating-range", type=float, nargs=2, default=(1.0, 5.0), metavar=("LOW", "HIGH"))
    parser.add_argument("--ratings", help="a file of your own; one model is charged")
    parser.add_argument("--catalogue", help="its items, one id a line")
    parser.add_argument("--columns", help="of your file, as in user=uid,item=movie,rating=stars")
    parser.add_argument("--dataset", default="my ratings", help="name of its users in the ledger, for good")
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


def run(*words: object, quiet: bool = False, fails: bool = False) -> str:
    """Run the hushrec command, showing the command line and, unless quiet, what it printed.

    Where it may fail, what it says of that is not shown and nothing is returned.
    """
    line = [str(word) for word in words]
    print(f"\n$ hushrec {shlex.join(line)}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "hushrec", *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if fails else None,
        text=True,
        check=False,
    )
    if done.returncode and not fails:
        sys.exit(done.returncode)
    if not quiet:
        print(done.stdout, end="", flush=True)
    return done.stdout


def error_table(mine: dict, compared: dict | None, epsilon: float) -> str:
    """The model's figures and, where nothing is charged, its baselines' and the non-private model's."""
    runs = compared["runs"] if compared else []
    at = {row["model"]: row for row in runs if row["epsilon"] in (epsilon, "inf")}
    rows = [(f"both, epsilon {epsilon:g} (the model)", mine["rmse"], mine["recall@20"])]
    for name in ("item-bias", "global-mean", "popular", "als"):
        if name in at:
            what = "no privacy" if name == "als" else f"epsilon {epsilon:g} (baseline)"
            rows.append((f"{name}, {what}", at[name]["rmse"], at[name]["recall@20"]))
    lines = [f"{'on held-out ratings (a private figure of the curator)':<56}{'RMSE':>8}{'Recall@20':>11}"]
    lines += [f"  {name:<54}{_figure(rmse)}   {_figure(recall)}" for name, rmse, recall in rows]
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
