"""The commands with correct input."""

import csv
import itertools
import json
import math
import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.cells import cell_len

import hushrec
from hushrec.cli.files import file_names
from hushrec.privacy import Ledger


def parsed(result):
    """stdout as exactly one JSON object, without the words that JSON does not have."""
    assert result.exit_code == 0, result.output
    assert result.stderr == ""

    def refuse(word):
        raise AssertionError(word)

    return json.loads(result.stdout, parse_constant=refuse)


def train(run, files, *more, model="item-bias", epsilon="5", out="model.hush"):
    line = ["train", files.train, "--model", model, "--epsilon", epsilon, "--delta", "1e-6", *files.domain]
    return run(*line, "--out", out, "--force", *more)


def test_a_run_that_found_nobody_stops_at_one_percent(run, files):
    """A function of the released number of users; a declared number reveals nothing."""
    rows = [
        f"u{user};{item};{rating}"
        for user in range(200)
        for item, rating in zip(files.items, ("3,5*", "4,0*"))
    ]
    Path("commas.csv").write_text("\n".join(["user;item;rating", *rows]))
    Path("dates.csv").write_text("user,item,rating\n" + f"a,{files.items[0]},2024-01-03\n" * 50)
    line = ["--epsilon", "5", "--delta", "1e-6", *files.domain, "--out", "model.hush", "--dataset"]
    for name in ("commas", "dates"):
        result = run("train", f"{name}.csv", *line, name)
        assert result.exit_code == 1 and "Error: The released number of users" in result.stderr
        assert "hushrec check" in result.stderr and "--users" in result.stderr and result.stdout == ""
        charged = parsed(run("ledger", "show", "--dataset", name, "--json"))
        assert charged["mu"] == pytest.approx(0.1 * 1.02036, rel=1e-4)
        assert not Path("model.hush").exists()
        resumed = run("train", f"{name}.csv", *line, name, "--resume")
        assert resumed.exit_code == 1 and resumed.stderr.endswith(result.stderr.splitlines()[-1] + "\n")
        assert parsed(run("ledger", "show", "--dataset", name, "--json")) == charged
    declared = run("train", "commas.csv", *line, "commas", "--users", "200")
    assert declared.exit_code == 0 and "hushrec check" in declared.stdout


def test_no_privacy_has_its_word(run, files):
    line = ["train", files.train, "--model", "als", "--epsilon", "inf", *files.domain, "--out", "m.hush"]
    result = run(*line, "--data-is-public", "--set", "rank=4", "--set", "iterations=2")
    assert result.exit_code == 0 and "NOT PRIVATE" in result.stdout
    assert not run.ledger.exists()
    plain = parsed(run("report", "m.hush", "--json"))
    assert plain["privacy"]["epsilon"] == "inf" and plain["privacy"]["private"] is False


@pytest.mark.true("E2")
def test_recommend_explains_one_users_list(run, files):
    line = ["recommend", files.model, files.train, "--user", "u000007", "-n", "3", "--explain"]
    model, own = hushrec.load(files.model), pq.read_table(files.train).to_pylist()
    own = {row["item"]: row["rating"] for row in own if row["user"] == "u000007"}
    items = parsed(run(*line, "--json"))["items"]
    for each in items:
        why = model.explain(own, each["item"])
        assert each["base"] == why.base
        assert each["because"] == [{"item": item, "moved": moved} for item, moved in why.because]
        assert each["rating"] == model.predict(own, [each["item"]])[0]
    printed, first = run(*line).stdout, items[0]["because"][0]
    assert f"{first['item']} {first['moved']:+.3f}" in printed
    refused = run("recommend", files.model, files.train, "--all", "--out-dir", "lists", "--explain")
    assert refused.exit_code == 2 and "--explain is for one user" in refused.stderr


def test_a_list_counts_the_users_items_that_the_model_lacks(run, files):
    """As the HTTP server does with skip_unknown; twice the same item is one, and no id is none."""
    known, other = files.items[:2]
    rows = [
        "user,item,rating",
        f"a,{known},3",
        "a,new,4",
        "a,new,5",
        "a,newer,2",
        "a,,1",
        f"b,{other},3",
        ",x,3",
    ]
    Path("history.csv").write_text("\n".join(rows))
    for user, skipped in (("a", 2), ("b", 0), ("c", 0)):
        line = ["recommend", files.model, "history.csv", "--user", user]
        assert parsed(run(*line, "--json"))["skipped"] == skipped
        assert ("Skipped 2 items of this user" in run(*line).stdout) == (skipped > 0)


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_statement_is_wrapped_once(run, files, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run("report", files.model).stdout.splitlines()
    assert any(line.startswith("Meaning: ") for line in lines)
    for line, below in zip(lines, lines[1:]):
        assert len(line) <= columns
        if below.startswith(" " * 12):  # goes on: its first word did not fit
            assert len(line) + 1 + len(below.split()[0]) > columns


def test_long_and_wide_titles_leave_the_table_of_a_list_readable(run, files):
    titles = [
        "description " * 90_000,
        "红色的茶壶 🎁",
        "مصباح\u200f أحمر",
        "Ka\u0308nnchen",
        "<b>Lamp</b>\nred",
    ]
    rows = [(item, titles[at % len(titles)]) for at, item in enumerate(files.items)]
    with Path("long.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("item", "title"), *rows])
    public = [*files.domain, "--epsilon", "inf", "--data-is-public", "--out", "pairs.hush"]
    assert not run("train", files.train, "--model", "ease", *public).exit_code
    for words in (
        ["recommend", files.model, files.train, "--user", "nobody"],
        ["similar", "pairs.hush", files.items[0]],
    ):
        shown = run(*words, "-n", "20", "--titles", "long.csv")
        lines = [line for line in shown.stdout.splitlines() if line.lstrip()[:1].isdigit()]
        assert not shown.exit_code and len(lines) == 20 and max(map(len, shown.stdout.splitlines())) <= 80
        assert len(set(map(cell_len, lines))) == 1
        whole = json.loads(run(*words, "--titles", "long.csv", "--json").stdout)["items"]
        assert {entry["title"] for entry in whole} <= set(titles)
    assert len(run("report", files.model, "--titles", "long.csv").stdout) < 5000


def test_lists_keep_to_rules_and_show_titles(run, files):
    rows = [f"{item},{place % 3},The {item}" for place, item in enumerate(files.items)]
    Path("items.csv").write_text("\n".join(["item,brand,title", *rows]))
    table = {"item": files.items, "brand": [place % 3 for place in range(len(files.items))]}
    model, line = hushrec.load(files.model), ["recommend", files.model, files.train]
    rules = ["--where", "brand > 0", "--at-most", "brand=2", "--boost", "brand = 1=3.5"]
    found = parsed(run(*line, "--user", "nobody", "--attributes", "items.csv", *rules, "--json"))["items"]
    passed = {"where": "brand > 0", "at_most": {"brand": 2}, "boost": {"brand = 1": 3.5}}
    listed = model.recommend([], attributes=table, **passed)
    assert [each["item"] for each in found] == [each.item for each in listed] and len(found) == 4
    empty = run(*line, "--user", "nobody", "--attributes", "items.csv", "--where", "brand > 5")
    assert empty.exit_code == 0 and "No item is left for this list." in empty.stdout
    titles = ["--titles", "items.csv"]
    run(*line, "--all", "--out", "lists.private.csv", *titles)
    told = pd.read_csv("lists.private.csv")
    assert (told["title"] == "The " + told["item"].astype(str)).all()
    newcomer = ", ".join(f"The {each.item}" for each in model.recommend([], 5))
    assert newcomer in " ".join(run("report", files.model, *titles).stdout.split())
    assert run("export", files.model, "--web", "site", *titles).exit_code == 0
    assert json.loads(Path("site/titles.json").read_text()) == {item: f"The {item}" for item in files.items}
    assert 'data-titles="titles.json"' in Path("site/index.html").read_text()
    for wrong, words in (
        (rules, "--where, --at-most and --boost are about a table of the items; pass --attributes FILE."),
        (["--attributes", "items.csv", "--where", "stock"], "there are: brand, title."),
        (["--attributes", "items.csv", "--at-most", "brand"], "--at-most 'brand' does not end in a number"),
        (["--attributes", files.train], "The attributes hold an item id twice"),
        (["--titles", "nowhere.csv"], "'nowhere.csv' cannot be read"),
    ):
        refused = run(*line, "--user", "nobody", *wrong)
        assert refused.exit_code == 2 and words in refused.stderr and refused.stderr.count("\n") == 1


def test_recommend_one_file_marked_private(run, files):
    result = run("recommend", files.model, files.train, "--all", "--out", "lists.parquet", "-n", "3")
    assert result.exit_code == 0 and "lists.private.parquet" in result.stderr
    table = pq.read_table("lists.parquet")
    assert table.schema.metadata[b"hushrec"].startswith(b"PRIVATE")
    assert table.column_names == ["user", "item", "rank", "score", "rating"]
    assert run("recommend", files.model, files.train, "--all", "--out", "a.private.parquet").stderr == ""


NASTY = [
    "plain", "a/b", "../../etc/passwd", "..", ".", "", " ", "a b", "ä", "日本", "a\x00b", "x" * 400, "x" * 399 + "z",  # noqa: E501
    "Case", "case", "CON", "nul", "a~b", "a%b", "a\nb", "🎬" * 100, -3, "\ud800", "C:\\x", "*?<>|\"",
]  # fmt: skip


def test_file_names_reach_the_disk(run, files, tmp_path):
    users = [user for user in NASTY if isinstance(user, str) and user.strip() and user != "\ud800"]
    table = pa.table({"user": users, "item": files.items[:1] * len(users), "rating": [4.0] * len(users)})
    pq.write_table(table, tmp_path / "nasty.parquet")
    lists = run.folder / "lists"
    lists.mkdir(mode=0o755)
    line = ["recommend", files.model, tmp_path / "nasty.parquet", "--all", "--out-dir", "lists"]
    for more in ([], ["--force"]):
        result = run(*line, *more)
        assert result.exit_code == 0, result.stderr
        with (lists / "index.private.csv").open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        assert header == ["id", "file"] and dict(rows).keys() == set(users) and len(rows) == len(users)
        names = [path.name for path in lists.iterdir()]
        assert sorted(names) == sorted(["index.private.csv", *dict(rows).values()])
        assert len({name.casefold() for name in names}) == len(names)
        assert {path.parent for path in run.folder.rglob("*.csv")} == {lists}
    if os.name == "posix":
        assert {path.stat().st_mode & 0o777 for path in lists.iterdir()} == {0o600}
        assert lists.stat().st_mode & 0o777 == 0o700


def test_no_two_users_share_a_file_on_any_system():
    """Ids that differ in case only or late, or are another's file or the index, and names of devices; 143
    characters fit an encrypted disk."""
    alike = ["".join(letters) for letters in itertools.product(*zip("ABCDEFGH", "abcdefgh"))]
    late = [f"{'x' * 300}{number}" for number in range(200)]
    devices = ["con", "CON", "prn", "aux", "nul", "com0", "com9", "lpt1"]
    taken = [Path(name).stem for name in file_names([*alike, *late]) + ["index.private.csv"]]
    names = file_names(list({*alike, *late, *devices, *taken}))
    assert len({name.casefold() for name in [*names, "index.private.csv"]}) == len(names) + 1 == 921
    assert max(map(len, names)) <= 143 and not {name.partition(".")[0] for name in names} & set(devices)


@pytest.mark.true("E8")
def test_lists_of_users_who_are_gone_are_removed(run, files):
    """Also after a run that was killed; a file that hushrec did not write stays."""
    lists, line = run.folder / "lists", ["recommend", files.model]
    for users in (["anna", "ben", "cleo"], ["ben"], ["dora"]):
        table = pa.table({"user": users, "item": files.items[:1] * len(users), "rating": [4.0] * len(users)})
        pq.write_table(table, "history.parquet")
        assert run(*line, "history.parquet", "--all", "--out-dir", lists, "--force").exit_code == 0
        there = {path.name for path in lists.iterdir()}
        assert there == {f"{user}.csv" for user in users} | {"index.private.csv"} | {"mine.csv"} & there
        if users == ["ben"]:  # killed in the next run, before its index was complete
            (lists / "index.private.csv").rename(lists / "index.private.csv.unfinished")
            (lists / "mine.csv").touch()
    assert "mine.csv" in there and (lists / "dora.csv").read_text().startswith("rank,item")


def test_an_index_names_no_file_outside_its_folder(run, files):
    lists = run.folder / "lists"
    lists.mkdir()
    kept = [run.folder / "mine.csv", lists / "notes.txt"]
    for path in kept:
        path.touch()
    names = ["../mine.csv", str(kept[0]), "notes.txt", ".."]
    (lists / "index.private.csv").write_text("id,file\n" + "".join(f"x,{name}\n" for name in names))
    line = ["recommend", files.model, files.train, "--all", "--out-dir", lists, "--force"]
    assert run(*line).exit_code == 0
    assert all(path.exists() for path in kept)


def test_plan_is_what_train_charges(run, files):
    relation = "replace"
    options = ["--model", "item-bias", "--epsilon", "2", "--delta", "1e-5", *files.domain]
    options += ["--relation", relation]
    planned = parsed(run("plan", *options, "--json"))
    trained = parsed(run("train", files.train, *options, "--out", "m.hush", "--json"))
    releases = [{k: v for k, v in entry.items() if k != "share"} for entry in planned["releases"]]
    assert releases == trained["privacy"]["releases"]
    assert sum(entry["share"] for entry in planned["releases"]) == pytest.approx(1)
    text = run("plan", *options, "--releases").stdout
    assert "sensitivity" in text and f"relation: {relation}" in text


def test_compare_charges_every_run(run, files):
    line = ["compare", files.ratings, "--models", "item-bias", "--epsilons", "1,5", *files.domain]
    line += ["--delta", "1e-6"]
    plain = json.loads(run(*line, "--out-dir", "out", "--draws", "2", "--json").stdout)
    assert len(plain["runs"]) == 8  # two models, two epsilons, two draws; no reference without inf
    summary = Ledger(run.ledger).summary("default", 1e-6)
    assert summary.runs == 8 and summary.epsilon == pytest.approx(plain["total_epsilon"])
    mu = [hushrec.Budget(epsilon, 1e-6).mu for epsilon in (1, 5)]
    assert summary.mu == pytest.approx(math.sqrt(4 * sum(m**2 for m in mu)))
    told = run(*line, "--out-dir", "more")
    assert (
        "| item-bias | 1 |" in Path("more/comparison.md").read_text()
        and "All runs together: epsilon =" in told.stdout
    )
    four = hushrec.privacy.epsilon_of(math.sqrt(2 * sum(m**2 for m in mu)), 1e-6)
    price = f"together they cost epsilon = {four:.6g} at delta = 1e-06 (unit: user, relation: add-remove).\n"
    assert told.stderr == f"4 trainings will be charged to data set 'default'; {price}"


@pytest.mark.true("C2")
@pytest.mark.parametrize(("said", "goes_on"), [("y", True), ("", False)])
def test_compare_asks_on_a_terminal(said, goes_on, run, files):
    """Without a word, or with another than yes, nothing is charged and nothing is written."""
    words = ["compare", files.ratings, "--models", "item-bias", "--epsilons", "1", "--delta", "1e-6"]
    words += [*files.domain, "--out-dir", "out", "--no-progress"]
    found = run(*words, typed=f"{said}\n")
    assert "2 trainings will be charged" in found.stderr and "Go on? [y/N]" in found.stderr
    assert (found.exit_code, any(run.folder.iterdir())) == (1 - goes_on, goes_on)
    assert goes_on or found.stderr.endswith("Not started; nothing was charged.\n")
    assert run.ledger.exists() == goes_on
    assert not goes_on or Ledger(run.ledger).summary("default", 1e-6).charges == 2
    assert "Go on?" not in run(*words, "--yes", "--force", typed="").stderr


@pytest.mark.true("D4")
def test_ledger(run, files):
    opened = parsed(run("ledger", "open", "--dataset", "shop", "--epsilon", "3", "--delta", "1e-6", "--json"))
    assert opened["budget"] == {"epsilon": 3, "delta": 1e-6, "failure": 0} and opened["charges"] == 0
    assert train(run, files, "--dataset", "shop", epsilon="1").exit_code == 0
    shown = parsed(run("ledger", "show", "--dataset", "shop", "--json"))
    assert shown["epsilon"] == pytest.approx(1) and shown["runs"] == 1
    text = run("ledger", "show", "--dataset", "shop").stdout
    assert "epsilon = 1 at delta = 1e-06" in text and str(run.ledger) in text
    assert "what is left of it is epsilon = " in text
    assert run("ledger", "open", "--dataset", "shop", "--epsilon", "9", "--delta", "1e-6").exit_code == 1
    at = parsed(run("ledger", "show", "--dataset", "shop", "--delta", "1e-4", "--json"))
    assert at["delta"] == 1e-4 and at["epsilon"] < 1
    for delta in ("2", "0"):
        wrong = run("ledger", "show", "--dataset", "shop", "--delta", delta)
        assert wrong.exit_code == 2 and "delta" in wrong.stderr and wrong.stdout == ""
    assert train(run, files, "--dataset", "none").exit_code == 0
    assert (
        "1 run on" in (text := run("ledger", "show", "--dataset", "none").stdout)
        and "delta is the default" in text
    )
    run("season", "open", "--dataset", "year", "--epsilon", "3", "--delta", "1e-4")
    assert parsed(run("ledger", "show", "--dataset", "year", "--json"))["delta"] == 1e-4
    missing = run("ledger", "show", "--dataset", "other")
    assert missing.exit_code == 2 and "'none', 'shop'" in missing.stderr
    closed = run("ledger", "close", "--dataset", "shop")
    assert closed.exit_code == 0 and "shop" in closed.stdout and f"Ledger: {run.ledger}" in closed.stdout
    text = run("ledger", "show", "--dataset", "shop").stdout
    assert "closed" in text and "what is left" not in text
