"""The lines of pages that no build runs do run, on made-up files.

Other tests run those of dossiers, of warehouses, of LensKit and of masked uploads.
"""

import csv
import re
import shlex
import subprocess
from glob import glob
from pathlib import Path

import pytest
from pyarrow import csv as tables, parquet

import hushrec
from docs._ext import execute
from hushrec import Accountant, Both, Budget, Domain, ItemBias, Ratings
from tests.command_line import invoke

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "guides/both",
    "guides/device",
    "guides/implicit",
    "guides/mlflow",
    "guides/next",
    "guides/own-model",
    "guides/public",
    "guides/rules",
    "guides/scaling",
    "guides/seasons",
    "guides/serve",
    "guides/shop",
    "guides/tables",
    "guides/tuning",
    "papers/one-bit",
    "reference/generated-data",
    "understand/how-many-users",
    "understand/which-model",
}
#: Pages that take a model for given.
TRAINED = {
    "guides/device",
    "guides/next",
    "guides/rules",
    "guides/serve",
    "guides/shop",
}
#: Beginnings of lines that need what a test has not: a server, a container, an environment, hours.
ELSEWHERE = ("curl ", "hushrec serve ", "podman ", "python3 -m venv", "python -m benchmarks", "install -d")


def given(page, catalogue, frame):
    """Write the files that the lines of a page take for given, and return the names."""
    ids = [str(number) for number in range(0, 6000, 20)]
    Path("ids.txt").write_text("\n".join(ids))
    frame = frame.append_column("time", frame["rating"])
    tables.write_csv(frame, "ratings.csv")
    tables.write_csv(frame.slice(0, 20_000), "elsewhere.csv")
    parquet.write_table(frame, "history.parquet")
    rows = [
        [item, item.title(), place % 7, place, place % 4 > 0, place > 50]
        for place, item in enumerate(catalogue)
    ]
    for name in ("items.csv", "titles.csv"):
        write(name, ["item", "title", "brand", "price", "in_stock", "new"], rows)
    domain = Domain(catalogue, rating_range=(1, 5))
    ratings = Ratings.from_any(frame, domain, columns={"time": "time"})
    if page == "guides/implicit":
        for name in ("likes", "history", "heldout"):
            tables.write_csv(frame.select(["user", "item"]), f"{name}.csv")
    if page == "guides/scaling":
        Path("ratings").mkdir()
        parquet.write_table(frame, "ratings/part.parquet")
    budget = Budget(20, 1e-6)
    estimator = (Both if page in TRAINED else ItemBias).planned(budget, domain, n_users=6000)
    if page in TRAINED:
        model = estimator.fit(ratings, Accountant(budget))
        model.save("model.hush")
    if page == "guides/shop":
        model.save("shop.hush")
    if page == "guides/tables":
        shop()
    accountant, ratings_now = Accountant(budget), ratings
    return {"hushrec": hushrec, "PrivateALS": hushrec.PrivateALS} | locals()


def shop():
    """Write the tables of a German shop."""
    pairs = [(f"K{user}", f"{1 + user * place % 30:04}") for user in range(300) for place in range(1, 8)]
    bought = [
        ["Müller 3", "0007", 2, "4,5"],
        ["Müller 3", "0007", -2, ""],
        *([*pair, 1, 4] for pair in pairs),
    ]
    write("kauf.csv", ["Kunde", "Artikel", "Menge", "Sterne"], bought, ";")
    write("orders.csv", ["Kunde", "Artikel", "Menge"], [row[:3] for row in bought], ";")
    write("reviews.csv", ["Kunde", "Artikel", "Sterne"], [[*row[:2], row[3]] for row in bought], ";")
    items = [f"{number:04}" for number in range(1, 31)]
    table = [[item, f"Käse {item}", f"Milch {item[-1]}", "12,50"] for item in items]
    write("artikel.csv", ["ArtNr", "Name", "Gruppe", "Preis"], table, ";")
    Path("items.txt").write_text("\n".join(items))


def write(name, head, rows, delimiter=","):
    with open(name, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([head, *rows])


def run_lines(block):
    """Run a block: hushrec's lines in this process, others in a shell."""
    variables = dict(re.findall(r"^(\w+)=(\S+)$", block, re.M))
    for line in re.sub(r"\\\n\s*", " ", block).splitlines():
        words = [variables.get(word.removeprefix("$"), word) for word in shlex.split(line, comments=True)]
        if not words or line.startswith(ELSEWHERE) or words[0].partition("=")[0] in variables:
            continue
        words = [path for word in words for path in (sorted(glob(word)) if "*" in word else [word])]
        if words[0] == "hushrec":
            done = invoke(*words[1:])
            assert done.exit_code == 0, f"{line}\n{done.stderr}"
        else:
            subprocess.run(line, shell=True, check=True)
    return ""


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_line_runs(page, monkeypatch):
    if page == "guides/shop":
        pytest.importorskip("fastapi")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:runs")
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8").replace("```sh", "```bash").replace("/srv/", "")
    text = text.replace("gap=6", "gap=0")  # the next week is trained at once
    begin = "from tests.site.test_guides import given\nglobals().update(given({!r}, catalogue, frame))"
    page = f"```python\n{begin.format(page)}\n```\n{text}"
    assert len(execute.run_page(page, yours=True, bash=run_lines)) > 1
