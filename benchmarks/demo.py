"""The main job end to end with the command line: train, evaluate, recommend (`make demo`).

Without a file the data are generated, with tastes like those of MovieLens, and declared public; the model is
compared with others. With a file, a single model is trained, judged and charged, to one data set of your
account's ledger; it is compared with baselines from its own released values, without privacy cost. It is
trained on four fifths of the ratings, chosen by a hash of user and item, which keeps the guarantee for all
users of the file; the others evaluate it.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq

from hushrec.cli.options import pairs
from hushrec.cli.output_model import said_by_donors
from hushrec.data import Domain, Ratings, lifelike, split_ratings
from hushrec.errors import InputError
from hushrec.privacy import Budget, default_path

TOY = os.environ.get("TOY") == "1"
OUTPUT = Path("build/toy-demo" if TOY else "demo-output")
SHAPE = (600, 80) if TOY else (8_000, 800)  # users and items
#: Users of a shop with few, and how many of them have published their ratings.
FEW = (200, 20) if TOY else (600, 60)
NAMES = "user=Kunde,item=Artikel,rating=Sterne"
NOT_SIMILAR = "This model cannot tell which items are alike: too little was learned of them.\n"
#: Columns of the table: what evaluate calls them.
FIGURES = {
    "RMSE": "rmse",
    "Recall@20": "recall@20",
    "coverage": "coverage@20",
    "same 1st": "commonest-first",
}


def main() -> None:
    """Run the demo; what is wrong with its words or its file is one sentence."""
    try:
        demonstrate(parsed_arguments())
    except InputError as error:
        of_make = f"{error.message}; name them as in COLUMNS={NAMES}"
        print(f"Error: {of_make if error.parameter == 'columns' else error}", file=sys.stderr)
        sys.exit(2)


def demonstrate(options: argparse.Namespace) -> None:
    """Train, judge and use a model."""
    start = time.perf_counter()
    public = options.ratings is None or options.data_is_public
    ratings, ledger = generated(options) if options.ratings is None else own(options, public)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    write_data(ratings)
    print("\nTo follow by hand, type first: . .venv/bin/activate")

    low, high = (f"{end:g}" for end in options.rating_range)
    declared = ["--rating-range", low, high, "--catalogue", OUTPUT / "items.txt"]
    delta = ["--delta", f"{options.delta:g}"]
    budget = ["--epsilon", f"{options.epsilon:g}", *delta]
    model, train, test = OUTPUT / "model.hush", OUTPUT / "train.parquet", OUTPUT / "test.parquet"
    newcomer = OUTPUT / "newcomer.parquet"
    if options.ratings is None:
        run("plan", *budget, *declared, "--users", SHAPE[0])
    run("train", train, *budget, *declared, *ledger, "--out", model, "--force", quiet=True)
    # that nothing was held out is the curator's to know: a dash in the table, no error
    likes = ["--relevant-from", f"{ratings.domain.like_threshold:g}"]
    measured = run("evaluate", model, train, test, *likes, "--json", quiet=True, fails=True)
    compared = compare(options, [*likes, *delta, *declared]) if public else None
    ten = run("recommend", model, newcomer, "--user", "user", "-n", "10", quiet=True)
    similar = run("similar", model, ratings.domain.items[0], "-n", "5", quiet=True, fails=True)
    statement = run("report", model, quiet=True)

    print("\n" + "=" * 80 + "\n" + statement)
    print(error_table(json.loads(measured or "{}"), compared, options.epsilon))
    print(f"\n{ten}\n{similar or NOT_SIMILAR}", end="")
    if options.ratings is None:
        print(donors(ratings, declared, options.delta))
    if not public:
        run("ledger", "show", *ledger)
    shown = f"hushrec serve {shlex.quote(str(model))} --demo"
    print("\nA page that keeps what is rated in the browser:\n  python -m pip install -e '.[serve]'")
    print(f"  {shown}")
    if compared is not None:
        print(f"\nTable: {compared['files']['md']}\nPlot:  {Path(compared['files']['png']).absolute()}")
        print(f"All of it took {time.perf_counter() - start:.0f} s.")
    else:
        print(
            f"\nPrivate: the figures above, and ratings, train and test.parquet in {OUTPUT};"
            " keep or delete them."
        )


def generated(options: argparse.Namespace) -> tuple[Ratings, list[object]]:
    """Ratings of nobody, and a ledger that `make clean` deletes."""
    users, items = SHAPE
    options.rating_range = (1.0, 5.0)
    ratings = lifelike("films", n_users=users, n_items=items, seed=0)
    print(f"Generated {ratings.n_ratings:,} ratings of {users:,} users for {items:,} items.")
    made = f"generated {datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"
    return ratings, ["--ledger", OUTPUT / "ledger.sqlite", "--dataset", made]


def own(options: argparse.Namespace, public: bool) -> tuple[Ratings, list[object]]:
    """Ratings of a file, and where its model is charged."""
    if not options.catalogue:
        raise InputError('Declare the items, too: make demo RATINGS=path CATALOGUE=path RANGE="1 5".')
    ends = tuple(options.rating_range)
    domain = Domain(Domain.read_catalogue(options.catalogue), rating_range=ends)
    columns = pairs(options.columns.split(","), "COLUMNS", NAMES) if options.columns else None
    ratings = Ratings.from_any(options.ratings, domain, columns=columns)
    given = [
        "check",
        options.ratings,
        "--catalogue",
        options.catalogue,
        "--rating-range",
        *map("{:g}".format, ends),
    ]
    given += ["--columns", options.columns] if options.columns else []
    print(f"What becomes of each row, for your eyes only:\n  hushrec {shlex.join(given)}")
    if public:
        print("Nothing will be charged: the ratings are declared public.")
        return ratings, ["--data-is-public"]
    print(
        f"One model will be charged: {Budget(options.epsilon, options.delta)},\nto data set"
        f" {options.dataset!r} in {default_path()}. Each run of this demo is charged again."
    )
    return ratings, ["--dataset", options.dataset]


def donors(ratings: Ratings, declared: list[object], delta: float) -> str:
    """Compare a small shop's lists with and without a few donors."""
    few = ratings.rows(slice(0, FEW[0]), keyed=True)
    pq.write_table(few.to_arrow(), OUTPUT / "few.parquet")
    ids = "".join(f"{user}\n" for user in few.users[: FEW[1]])
    (OUTPUT / "donors.txt").write_text(ids, encoding="utf-8")
    words = ["--epsilon", 1, "--delta", f"{delta:g}", "--users", FEW[0], *declared, "--force"]
    words += ["--donors", OUTPUT / "donors.txt", "--data-is-public", "--out", OUTPUT / "few.hush"]
    found = json.loads(run("train", OUTPUT / "few.parquet", *words, "--json", quiet=True))
    said = "\n\n".join(textwrap.fill(said_by_donors(each), 80) for each in found["public_ratings"])
    return f"\nWith {FEW[0]} users at epsilon 1, of whom {FEW[1]} have published their ratings:\n{said}"


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
    if options.columns and options.columns.isdigit():  # a terminal's width, which some shells call so, too
        options.columns = None
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

    With ``fails``, its errors are not shown and nothing is returned.
    """
    line = [str(word) for word in words]
    print(f"\n$ hushrec {shlex.join(line)}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "hushrec", *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if fails else None,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": str(shutil.get_terminal_size((100, 24)).columns)},
    )
    if done.returncode and not fails:
        sys.exit(done.returncode)
    if not quiet:
        print(done.stdout, end="", flush=True)
    return done.stdout


def error_table(mine: dict, compared: dict | None, epsilon: float) -> str:
    """Format the model's figures, the free references and the compared models."""
    rows = [(f"both, epsilon {epsilon:g} (the model)", mine)]
    beside = mine.get("beside", {})
    rows += [(f"{name}, released by it", beside.get(name) or {}) for name in ("user means", "popularity")]
    if compared is None:
        rows.append((f"popular, epsilon {epsilon:g}, by plan", beside.get("popular") or {}))
    at = (
        {row["model"]: row for row in compared["runs"] if row["epsilon"] in (epsilon, "inf")}
        if compared
        else {}
    )
    for name in ("item-bias", "global-mean", "popular", "als"):
        if name in at:
            rows.append((f"{name}, {'no privacy' if name == 'als' else f'epsilon {epsilon:g}'}", at[name]))
    lines = [
        "On held-out ratings; each is a private figure of the curator:",
        f"{'':33}{'RMSE':>8}{'Recall@20':>11}{'coverage':>10}{'same 1st':>10}{'lists':>8}",
    ]
    for name, figures in rows:
        cells = [_figure(figures.get(FIGURES[heading])) for heading in FIGURES]
        number = figures.get("different-lists@20")
        lists = "–" if number is None else f"{number:,.0f}"
        lines.append(f"  {name:31}{cells[0]:>8}{cells[1]:>11}{cells[2]:>10}{cells[3]:>10}{lists:>8}")
    return "\n".join(
        [
            *lines,
            "coverage: part of the catalogue in anybody's list. Before what users have is",
            "left out, same 1st: share of users with the commonest first item; lists: how",
            "many different ones.",
        ]
    )


def _figure(figure: float | None) -> str:
    """A figure, or a dash where there was nothing to measure."""
    return "–" if figure is None else format(figure, ".4f")


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        os._exit(1)
