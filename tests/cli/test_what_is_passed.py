"""Options of the command line reach the functions that train, compare, tune and list."""

import csv
import json
import math
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hushrec
from hushrec import Accountant, Budget, Domain, Ratings
from hushrec.cli.predict import NEWCOMER, NO_ITEM
from hushrec.data.splits import split_ratings
from hushrec.serving.batch import PRIVATE_TABLE
from hushrec.training.named import train

PROMISE = ["--epsilon", "3", "--delta", "1e-5", "--relation", "replace", "--dataset", "shop"]


def same_rows(found, wanted):
    same = (found.matrix != wanted.matrix).nnz == 0 and found.user_texts.equals(wanted.user_texts)
    return same and found.domain.fingerprint == wanted.domain.fingerprint


def test_a_training_from_the_command_line_is_that_of_the_call(files, run):
    line = ["train", files.train, *files.domain, "--model", "als", "--set", "rank=3", "--set", "iterations=2"]
    line += ["--epsilon", "inf", "--delta", "1e-6", "--data-is-public", "--out"]
    rows = Ratings.from_any(files.train, Domain(files.items, (1, 5)))
    for seed in (0, 11):
        assert run(*line, f"{seed}.hush", "--seed", str(seed)).exit_code == 0
        public = Accountant(Budget(math.inf, 1e-6), data_is_public=True)
        wanted = train("als", rows, public, settings={"rank": 3, "iterations": 2}, seed=seed)
        with open(f"{seed}.hush", "rb") as file:
            assert file.read() == wanted.to_bytes()


def test_recommend(files, run):
    """To one user and to all, in every form, the lists of the library."""
    model, rows = hushrec.load(files.model), Ratings.from_any(files.train, Domain(files.items, (1, 5)))
    some, none = files.items[5:30], files.items[10:15]
    for name, listed in (("some", some), ("none", none)):
        for more in ([], ["newer than the model"]):
            Path(f"{name}{len(more)}.txt").write_text("\n".join([*listed, *more]))
    user = str(rows.users[3])
    for more, options in [
        ([], {}),
        (["--include-seen"], {"exclude_seen": False}),
        (["--items", "some0.txt", "--exclude-items", "none0.txt"], {"items": some, "exclude_items": none}),
        (["--items", "some1.txt", "--exclude-items", "none1.txt"], {"items": some, "exclude_items": none}),
    ]:
        line = ["recommend", files.model, files.train, "-n", "4", *more, "--force"]
        wanted = model.recommend_batch(rows, 4, **options)
        for out in ("lists.private.parquet", "lists.private.csv"):
            assert run(*line, "--all", "--out", out).exit_code == 0
        assert pq.read_table("lists.private.parquet").equals(wanted)
        with open("lists.private.csv", encoding="utf-8") as file:
            assert len(file.readlines()) == wanted.num_rows + 1
        hers = [row for row in wanted.to_pylist() if row["user"] == user]
        answer = run(*line[:-1], "--user", user, "--json")
        assert answer.stderr.count("skipped 1 of") == 2 * ("some1.txt" in more)
        shown = json.loads(answer.stdout)
        listed = next(value for value in shown.values() if isinstance(value, list))
        assert [(row["rank"], row["item"]) for row in listed] == [(row["rank"], row["item"]) for row in hers]
    for who in (user, "nobody"):
        said = " ".join(run(*line[:-1], "--user", who).stdout.split())
        assert ("This is the list for new users" in said) == (who == "nobody")
    assert run(*line, "--all", "--out-dir", "lists").exit_code == 0
    with open("lists/index.private.csv", encoding="utf-8", newline="") as file:
        index = list(csv.reader(file))[1:]
    assert [who for who, _ in index] == list(dict.fromkeys(wanted["user"].to_pylist()))
    for who, name in index:  # each user's file has that user's list
        with open(f"lists/{name}", encoding="utf-8", newline="") as file:
            found = [(row["rank"], row["item"]) for row in csv.DictReader(file)]
        own = [row for row in wanted.to_pylist() if row["user"] == who]
        assert found == [(str(row["rank"]), row["item"]) for row in own]


def test_evaluate(files, run):
    """Oracle: the figures of the call."""
    domain = Domain(files.items, (1, 5))
    parts = [Ratings.from_any(path, domain) for path in (files.train, files.test)]
    line = ["evaluate", files.model, files.train, files.test, "--json"]
    more = ["-k", "7", "--relevant-from", "3.5", "--metrics", "rmse, recall,mrr", "--resamples", "30"]
    found = json.loads(run(*line, *more, "--seed", "5").stdout)
    options = {"k": 7, "relevant_from": 3.5, "metrics": ["rmse", "recall", "mrr"], "resamples": 30}
    wanted = hushrec.evaluate(hushrec.load(files.model), *parts, **options, seed=5).to_dict()
    assert found.pop("baselines").keys() == {"user means", "popularity", "popular"}
    assert found == {"model": "item-bias", **json.loads(json.dumps(wanted))}
    again = json.loads(run(*line, *more, "--seed", "5", "--include-seen").stdout)
    seen = hushrec.evaluate(hushrec.load(files.model), *parts, **options, seed=5, exclude_seen=False)
    assert again["recall@7"] == seen["recall@7"].value != found["recall@7"]
    trained = ["train", files.train, *files.domain, "--model", "ease", "--like-threshold", "5"]
    trained += ["--epsilon", "inf", "--data-is-public", "--out", "likes.hush"]
    assert run(*trained).exit_code == 0
    line = ["evaluate", "likes.hush", *line[2:], "--metrics", "recall", "--resamples", "0"]
    likes = json.loads(run(*line).stdout)["recall@20"]  # of the ratings that its lists call likes
    assert likes == json.loads(run(*line, "--relevant-from", "5").stdout)["recall@20"]
    assert likes != json.loads(run(*line, "--relevant-from", "1").stdout)["recall@20"]


def test_evaluate_says_which_figures_are_worse_than_a_baseline(files, run):
    line = ["train", files.train, *files.domain, "--model", "global-mean", "--data-is-public"]
    assert run(*line, *PROMISE, "--out", "level.hush").exit_code == 0
    said = []
    for model in ("level.hush", files.model):
        asked = ["evaluate", model, files.train, files.test, "--metrics", "rmse,mae,coverage"]
        found = json.loads(run(*asked, "--json").stdout)
        means = found["baselines"]["user means"]
        worse = [name for name in ("mae", "rmse") if means[name] < found[name]]
        sentence = f"Worse than each user's mean: {', '.join(worse)}."
        said.append(sentence in " ".join(run(*asked).stdout.split()))
        assert said[-1] == bool(worse)
    assert said[0]


@pytest.mark.true("E8")
@pytest.mark.parametrize(
    ("way", "split", "names"),
    [
        (["--test-share", "0.3"], lambda rows: split_ratings(rows, (0.7, 0.3), seed=5), ("train", "test")),
        (["--leave-out", "2"], lambda rows: hushrec.leave_k_out(rows, 2, seed=5), ("train", "test")),
        (
            ["--test-users", "0.25"],
            lambda rows: hushrec.strong_generalization(rows, 0.25, seed=5),
            ("train", "history", "test"),
        ),
        (["--leave-last"], hushrec.data.leave_last_out, ("train", "test")),
        (["--from", "1970-01-01T00:00:30"], lambda rows: hushrec.split_by_time(rows, 30), ("train", "test")),
    ],
    ids=["share", "leave out", "users", "last", "from"],
)
def test_split(way, split, names, files, run):
    """The parts of the call, marked as parts; other accounts may not read them."""
    table = pq.read_table(files.ratings)
    when = [number % 60 if number % 7 else None for number in range(table.num_rows)]
    timed = table.append_column("when", [when])
    pq.write_table(timed, "timed.parquet")
    domain = Domain(files.items, (1, 5))
    line = ["split", "timed.parquet", *files.domain, "--columns", "time=when", "--seed", "5", *way]
    told = run(*line, "--out-dir", "parts")
    assert told.exit_code == 0
    assert sorted(os.listdir("parts")) == sorted(f"{name}.parquet" for name in names)
    rows = Ratings.from_any("timed.parquet", domain, columns={"time": "when"})
    for name, part in zip(names, split(rows), strict=True):
        found = Ratings.from_any(f"parts/{name}.parquet", domain, columns={"time": True})
        assert same_rows(found, part) and part.n_ratings and (found.times == part.times).all()
        assert (found.splits, found.hand_picked) == (part.splits, part.hand_picked)
    lost = f"earlier than all others: {(rows.times < 0).sum()} of {rows.n_ratings:,} ratings."
    again = ["--test-share", "0.5", "--out-dir", "parts"]
    refused = run("split", "timed.parquet", *files.domain, *again)
    assert refused.exit_code == 2 and "--force" in refused.stderr
    assert run("split", "timed.parquet", *files.domain, *again, "--force").exit_code == 0
    assert sorted(os.listdir("parts")) == ["test.parquet", "train.parquet"]  # no part of the former split
    timed = way[0] in ("--from", "--leave-last")
    assert (lost in " ".join(told.stdout.split()) and "PRIVATE" in told.stdout) == timed


def test_likes_that_were_split_are_no_ratings_of_a_model(files, run) -> None:
    """The rating 1 of a range from 1 to 5 is no like."""
    likes = ["--implicit", "--catalogue", files.catalogue]
    assert run("split", files.ratings, *likes, "--test-share", "0.2", "--out-dir", "parts").exit_code == 0
    parts = "parts/train.parquet", "parts/test.parquet"
    for words, sentence in ([], "has no column for the ratings"), (["--implicit"], "is for a model of likes"):
        refused = run("evaluate", files.model, *parts, *words)
        assert refused.exit_code == 2 and sentence in refused.stderr
    cost = ["--epsilon", "5", "--delta", "1e-6"]
    assert run("train", parts[0], *likes, *cost, "--users", "200", "--out", "likes.hush").exit_code == 0
    assert run("evaluate", "likes.hush", *parts, "--resamples", "0").exit_code == 0


def test_predict(files, run):
    """Oracle: the prediction for each pair alone, in the order of the pairs."""
    model, rows = hushrec.load(files.model), Ratings.from_any(files.train, Domain(files.items, (1, 5)))
    user = str(rows.users[3])
    pairs = [(user, files.items[0]), ("nobody", files.items[0]), (user, "no such"), ("nobody", "no such")]
    pairs += [(user, files.items[39]), (None, files.items[1]), (str(rows.users[0]), files.items[2])]
    users, items = zip(*pairs)
    pq.write_table(pa.table({"user": pa.array(users), "item": pa.array(items)}), "pairs.parquet")
    line = ["predict", files.model, files.train, "pairs.parquet", "--out"]
    told = json.loads(run(*line, "p.private.parquet", "--json").stdout)
    assert told == {"path": "p.private.parquet", "note": PRIVATE_TABLE}
    assert pq.read_schema("p.private.parquet").metadata[b"hushrec"] == PRIVATE_TABLE.encode()
    found = pq.read_table("p.private.parquet").to_pylist()
    assert [(row["user"], row["item"]) for row in found] == pairs
    for row, (who, item) in zip(found, pairs):
        if item == "no such":
            assert row["prediction"] is None and row["note"] == NO_ITEM
            continue
        history = {}
        if known := who in map(str, rows.users):
            hers = rows.for_users([who])
            history = {
                files.items[at]: float(value) for at, value in zip(hers.matrix.indices, hers.matrix.data)
            }
        (wanted,) = model.predict(history, [item])
        assert row["prediction"] == pytest.approx(float(wanted))
        assert row["note"] == ("" if known else NEWCOMER)
