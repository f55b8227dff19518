"""Train, evaluate and use a private model with the command line (`make demo`).

Without a file the ratings are generated, with tastes like those of MovieLens, and declared public. With a
file, one model is trained on 80% of the ratings and charged to your account's ledger; the others evaluate it.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hushrec.cli.options import pairs
from hushrec.data import Domain, Ratings, lifelike, split_ratings
from hushrec.errors import InputError
from hushrec.privacy import Budget, default_path

TOY = os.environ.get("TOY") == "1"
OUTPUT = Path("build/toy-demo" if TOY else "demo-output")
SHAPE = (600, 80) if TOY else (8_000, 800)  # users and items
NAMES = "user=Kunde,item=Artikel,rating=Sterne"
#: Titles of the generated films: each of the first with each of the second.
FIRST = ("Silent", "Golden", "Broken", "Distant", "Hidden", "Burning", "Frozen", "Crimson", "Lonely", "Wild")
SECOND = ("River", "Garden", "Empire", "Summer", "Letter", "Harbour", "Mirror", "Winter", "Tower", "Forest")
#: Items that the two invented users like, by their places in the catalogue.
LIKED = {"ann": (0, 1, 2), "ben": (5, 6, 7)}
LENGTH = 8  # items of a list


def main() -> None:
    """Run the demo; print a wrong option or file as one sentence."""
    try:
        demonstrate(parsed_arguments())
    except InputError as error:
        of_make = f"{error.message}; name them as in COLUMNS={NAMES}"
        print(f"Error: {of_make if error.parameter == 'columns' else error}", file=sys.stderr)
        sys.exit(2)


def demonstrate(options: argparse.Namespace) -> None:
    """Train, evaluate and use a model; then show the result."""
    start = time.perf_counter()
    public = options.ratings is None or options.data_is_public
    ratings, ledger = generated(options) if options.ratings is None else own(options, public)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    write_data(ratings, titled=options.ratings is None)
    low, high = (f"{end:g}" for end in options.rating_range)
    declared = ["--rating-range", low, high, "--catalogue", OUTPUT / "items.txt"]
    delta = ["--delta", f"{options.delta:g}"]
    model, train, test = OUTPUT / "model.hush", OUTPUT / "train.parquet", OUTPUT / "test.parquet"
    likes = ["--relevant-from", f"{ratings.domain.like_threshold:g}"]

    run(
        "train",
        train,
        "--epsilon",
        f"{options.epsilon:g}",
        *delta,
        *declared,
        *ledger,
        "--out",
        model,
        "--force",
    )
    # that no rating was held out is the curator's to know: a dash in the table, no error
    measured = run("evaluate", model, train, test, *likes, "--json", fails=True)
    compared = compare(options, [*likes, *delta, *declared]) if public else None
    titles = ["--titles", OUTPUT / "titles.csv"] if options.ratings is None else []
    show = ["recommend", model, OUTPUT / "newcomers.parquet", "-n", LENGTH, *titles, "--json"]
    lists = {user: json.loads(run(*show, "--user", user))["items"] for user in LIKED}
    statement = run("report", model)

    print("\n" + statement[statement.index("PRIVACY STATEMENT") :].partition("\n\n")[0])
    print("\n" + quality(json.loads(measured or "{}"), compared, options.epsilon))
    names = titles_of(ratings) if titles else ratings.domain.items
    print("\nTwo invented users and their lists:\n" + side_by_side(lists, names))
    print(f"\nCommands: {OUTPUT / 'commands.txt'}. Each release: hushrec report {model} --releases")
    print("Try it in a browser: python -m pip install -e '.[serve]'")
    print(f"                     hushrec serve {shlex.quote(str(model))} --demo")
    if compared is not None:
        print(f"Comparison: {compared['files']['md']}, {compared['files']['png']}")
        print(f"It took {time.perf_counter() - start:.0f} s.")
    else:
        print(
            f"Private: the figures above, and ratings, train and test.parquet in {OUTPUT};"
            " keep or delete them."
        )


def generated(options: argparse.Namespace) -> tuple[Ratings, list[object]]:
    """Return generated ratings, and a ledger that `make clean` deletes."""
    users, items = SHAPE
    options.rating_range = (1.0, 5.0)
    ratings = lifelike("films", n_users=users, n_items=items, seed=0)
    print(f"Training on 80% of {ratings.n_ratings:,} generated ratings: {users:,} users, {items:,} films.")
    print("Then it is compared with a model without privacy. This takes about a minute.")
    made = f"generated {datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"
    return ratings, ["--ledger", OUTPUT / "ledger.sqlite", "--dataset", made]


def own(options: argparse.Namespace, public: bool) -> tuple[Ratings, list[object]]:
    """Return the ratings of a file, and where its model is charged."""
    if not options.catalogue:
        raise InputError('Declare the items, too: make demo RATINGS=path CATALOGUE=path RANGE="1 5".')
    ends = tuple(options.rating_range)
    domain = Domain(Domain.read_catalogue(options.catalogue), rating_range=ends)
    columns = pairs(options.columns.split(","), "COLUMNS", NAMES) if options.columns else None
    ratings = Ratings.from_any(options.ratings, domain, columns=columns)
    if public:
        print("Nothing will be charged: the ratings are declared public.")
        return ratings, ["--data-is-public"]
    print(
        f"One model will be charged: {Budget(options.epsilon, options.delta)},\nto data set"
        f" {options.dataset!r} in {default_path()}. Each run of this demo adds another charge."
    )
    return ratings, ["--dataset", options.dataset]


def compare(options: argparse.Namespace, declared: list[object]) -> dict:
    """Train the model and its baselines at some epsilons, on data that are public."""
    epsilons = ",".join(f"{epsilon:g}" for epsilon in sorted({1.0, options.epsilon}))
    line = ["compare", OUTPUT / "ratings.parquet", "--models", "both", "--epsilons", f"{epsilons},inf"]
    return json.loads(run(*line, *declared, "--data-is-public", "--out-dir", OUTPUT, "--force", "--json"))


def parsed_arguments() -> argparse.Namespace:
    """Command line of the demo."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--rating-range", type=float, nargs=2, default=(1.0, 5.0), metavar=("LOW", "HIGH"))
    parser.add_argument("--ratings", help="a file of your own; one model is charged")
    parser.add_argument("--catalogue", help="its items, one id a line")
    parser.add_argument("--columns", help="of your file, as in user=uid,item=movie,rating=stars")
    parser.add_argument("--dataset", default="my ratings", help="name of its users in the ledger")
    parser.add_argument("--data-is-public", action="store_true", help="no rating in it is private")
    options = parser.parse_args()
    if options.columns and options.columns.isdigit():  # a terminal's width, which some shells call so, too
        options.columns = None
    return options


def write_data(ratings: Ratings, titled: bool = False) -> None:
    """Write catalogue, ratings, an 80/20 split by keys, two invented users, and titles of generated items."""
    train, test = split_ratings(ratings, (0.8, 0.2), seed=0)
    for name, part in (("ratings", ratings), ("train", train), ("test", test)):
        pq.write_table(part.to_arrow(), OUTPUT / f"{name}.parquet")
    items, high = ratings.domain.items, ratings.domain.high
    (OUTPUT / "items.txt").write_text("".join(f"{item}\n" for item in items), encoding="utf-8")
    rows = [(user, items[at % len(items)], high) for user, places in LIKED.items() for at in places]
    columns = dict(zip(("user", "item", "rating"), map(list, zip(*rows))))
    pq.write_table(pa.table(columns), OUTPUT / "newcomers.parquet")
    (OUTPUT / "commands.txt").write_text("")
    if titled:
        lines = [f"{item},{title}\n" for item, title in zip(items, titles_of(ratings))]
        (OUTPUT / "titles.csv").write_text("item,title\n" + "".join(lines), encoding="utf-8")


def titles_of(ratings: Ratings) -> list[str]:
    """Return an invented title for each item; later parts of a series have a number."""
    parts, titles = ("", " II", " III", " IV"), [f"{one} {other}" for other in SECOND for one in FIRST]
    count = len(titles)
    return [
        titles[at % count] + (parts[at // count] if at // count < len(parts) else f" {at // count + 1}")
        for at in range(ratings.domain.n_items)
    ]


def run(*words: object, fails: bool = False) -> str:
    """Run the hushrec command and return its output; with ``fails``, its errors are not shown."""
    line = [str(word) for word in words]
    with (OUTPUT / "commands.txt").open("a", encoding="utf-8") as file:
        file.write(f"hushrec {shlex.join(line)}\n")
    done = subprocess.run(
        [sys.executable, "-m", "hushrec", *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if fails else None,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )
    if done.returncode and not fails:
        sys.exit(done.returncode)
    return done.stdout


def quality(mine: dict, compared: dict | None, epsilon: float) -> str:
    """Return the table of held-out RMSE and Recall@20, next to baselines and to models without privacy."""
    references = mine.get("baselines", {})
    rows = [(f"this model, epsilon {epsilon:g}", mine.get("rmse"), mine.get("recall@20"))]
    at = {(row["model"], row["epsilon"]): row for row in compared["runs"]} if compared else {}
    if (row := at.get(("both", 1.0))) and epsilon != 1:
        rows.append(("the same model, epsilon 1", row["rmse"], row["recall@20"]))
    error, recall = references.get("user means") or {}, references.get("popularity") or {}
    rows.append(("users' means; most popular items", error.get("rmse"), recall.get("recall@20")))
    if ("als", "inf") in at:
        rows.append(("no privacy (als; ease)", at["als", "inf"]["rmse"], at["ease", "inf"]["recall@20"]))
    lines = [f"{'Held-out ratings (a private figure of the curator)':52}{'RMSE':>8}{'Recall@20':>11}"]
    lines += [f"  {name:50}{_figure(rmse):>8}{_figure(recall):>11}" for name, rmse, recall in rows]
    return "\n".join([*lines, "RMSE: lower is better. Recall@20: higher is better."])


def side_by_side(lists: dict[str, list[dict]], names: list | tuple) -> str:
    """Return the lists of two users in two columns, below their likes."""
    columns = []
    for user, items in lists.items():
        liked = [str(names[at % len(names)]) for at in LIKED[user]]
        top = [f"{at:2} {each.get('title') or each['item']}" for at, each in enumerate(items, 1)]
        columns.append([f"{user.title()} likes", *(f"   {name}" for name in liked), "and gets", *top])
    return "\n".join(f"  {one:36}{other}".rstrip() for one, other in zip_longest(*columns, fillvalue=""))


def _figure(figure: float | None) -> str:
    """Return a figure, or a dash where there was nothing to measure."""
    return "–" if figure is None else format(figure, ".3f")


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        os._exit(1)
