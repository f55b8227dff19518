"""What is written on the command line reaches what trains, compares, tunes and lists."""

import json
import math
import os
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hushrec
from hushrec import Accountant, Budget, Domain, InputError, Ratings, Season
from hushrec.batch import PRIVATE_TABLE
from hushrec.cli import show_model, show_plan
from hushrec.cli.predict import NEWCOMER, NO_ITEM
from hushrec.data.splits import split_ratings
from hushrec.evaluation import runs, tuning

PROMISE = ["--epsilon", "3", "--delta", "1e-5", "--relation", "replace", "--dataset", "shop"]


def same_rows(found, wanted):
    same = (found.matrix != wanted.matrix).nnz == 0 and found.user_texts.equals(wanted.user_texts)
    return same and found.domain.fingerprint == wanted.domain.fingerprint


@pytest.fixture
def call(run, monkeypatch):
    """The arguments with which a command calls a function of the library, which then stops."""

    def called(owner, name, *line):
        seen = SimpleNamespace()

        def stops(*args, **given):
            seen.args, seen.given = args, given
            raise InputError("that is enough")

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, stops)
            result = run(*line)
        assert result.exit_code == 2 and "that is enough" in result.stderr, result.stderr
        return seen

    return called


def test_train(call, files, run):
    line = ["train", files.train, *files.domain, "--max-ratings-per-user", "7", *PROMISE]
    line += ["--model", "private-als", "--rank", "3", "--users", "150", "--seed", "11", "--out", "m.hush"]
    seen = call(runs, "train", *line, "--resume")
    name, rows, accountant = seen.args
    keep = seen.given.pop("keep")
    assert name == "private-als" and seen.given == {
        "n_users": 150,
        "settings": {"rank": 3},
        "seed": 11,
        "progress": False,
        "engine": None,
        "stop_at_nobody": True,
    }
    domain = Domain(files.items, (1, 5), max_ratings_per_user=7)
    assert same_rows(rows, Ratings.read(files.train, domain))
    assert accountant.budget == Budget(3, 1e-5, relation="replace")
    assert (accountant.dataset, accountant._resume) == ("shop", True)
    assert os.path.samefile(accountant.ledger.path, run.ledger)
    keep(hushrec.load(files.model))
    with open(files.model, "rb") as wanted, open("m.hush", "rb") as found:
        assert found.read() == wanted.read()
    os.remove("m.hush")
    free = call(runs, "train", *line, "--data-is-public", "--ledger", "never.sqlite").args[2]
    assert free.ledger is None and not os.path.exists("never.sqlite")


def test_a_training_from_the_command_line_is_that_of_the_call(files, run):
    line = ["train", files.train, *files.domain, "--model", "als", "--rank", "3", "--iterations", "2"]
    line += ["--epsilon", "inf", "--delta", "1e-6", "--data-is-public", "--out"]
    rows = Ratings.read(files.train, Domain(files.items, (1, 5)))
    for seed in (0, 11):
        assert run(*line, f"{seed}.hush", "--seed", str(seed)).exit_code == 0
        public = Accountant(Budget(math.inf, 1e-6), data_is_public=True)
        wanted = runs.train("als", rows, public, settings={"rank": 3, "iterations": 2}, seed=seed)
        with open(f"{seed}.hush", "rb") as file:
            assert file.read() == wanted.to_bytes()


def test_compare(call, files, run):
    line = ["compare", files.ratings, *files.domain, "--delta", "1e-5", "--relation", "replace"]
    line += ["--models", "item-bias,private-als", "--epsilons", "2,5", "--out-dir", "c", "--holdout", "0.3"]
    line += ["--draws", "2", "-k", "7", "--relevant-from", "4", "--users", "300", "--seed", "5"]
    line += ["--private-als.rank", "3"]
    rows = Ratings.read(files.ratings, Domain(files.items, (1, 5)))
    wanted = {
        "delta": 1e-5,
        "relation": "replace",
        "n_users": 300,
        "settings": {"private-als": {"rank": 3}},
        "draws": 2,
        "k": 7,
        "relevant_from": 4.0,
        "seed": 5,
        "on_run": None,
    }
    seen = call(hushrec.evaluation, "compare", *line, "--dataset", "shop")
    ledger = seen.given.pop("ledger")
    assert os.path.samefile(ledger.path, run.ledger)
    assert seen.given == wanted | {"dataset": "shop", "data_is_public": False}
    parts = split_ratings(rows, (0.7, 0.3), seed=5)
    assert seen.args[2:] == (["item-bias", "private-als"], [2.0, 5.0])
    assert all(same_rows(found, part) for found, part in zip(seen.args, parts))
    folded = call(hushrec.evaluation, "cross_validate", *line, "--folds", "4", "--data-is-public")
    assert folded.given == wanted | {"folds": 4} and folded.args[1:] == seen.args[2:]
    assert same_rows(folded.args[0], rows)
    assert not os.path.exists("c")


def test_tune(call, files, run):
    line = ["tune", *files.domain, "--model", "item-bias", "--try", "clip=0.2,0.4", "--seed", "5", *PROMISE]
    candidates = [{"clip": 0.2}, {"clip": 0.4}]
    rows = Ratings.read(files.ratings, Domain(files.items, (1, 5)))
    private = [*line, files.ratings, "--out", "m.hush", "--mean-runs", "4"]
    seen = call(tuning, "tune", *private)
    assert same_rows(seen.args[0], rows) and seen.args[1:3] == ("item-bias", candidates)
    assert seen.given == {"mean_runs": 4.0, "seed": 5}
    accountant = seen.args[3]
    assert accountant.budget == Budget(3, 1e-5, relation="replace", failure=1e-5)
    assert accountant.dataset == "shop" and os.path.samefile(accountant.ledger.path, run.ledger)
    some = call(tuning, "tune", *private, "--failure", "2e-6").args[3]
    assert some.budget == Budget(3, 1e-5, relation="replace", failure=2e-6)
    free = call(tuning, "try_all", *line, files.ratings, "--data-is-public")
    assert same_rows(free.args[0], rows) and free.given == {"seed": 5}
    assert free.args[1:] == ("item-bias", candidates, Budget(3, 1e-5, relation="replace"))
    made = call(tuning, "try_all", *line, "--generated", "50")
    assert made.args[0].domain.fingerprint == rows.domain.fingerprint and made.given == {"seed": 5}
    assert made.args[0].n_users == 50 and made.args[0].n_ratings == 50 * (len(files.items) // 4)
    assert made.args[1:] == free.args[1:]
    assert not os.path.exists("m.hush")


def test_recommend(files, run):
    """To one user and to all, in every form, the lists of the library."""
    model, rows = hushrec.load(files.model), Ratings.read(files.train, Domain(files.items, (1, 5)))
    some, none = files.items[5:30], files.items[10:15]
    with open("some.txt", "w") as file:
        file.write("\n".join(some))
    with open("none.txt", "w") as file:
        file.write("\n".join(none))
    user = str(rows.users[3])
    for more, options in [
        ([], {}),
        (["--include-seen"], {"exclude_seen": False}),
        (["--items", "some.txt", "--exclude-items", "none.txt"], {"items": some, "exclude_items": none}),
    ]:
        line = ["recommend", files.model, files.train, "-n", "4", *more, "--force"]
        wanted = model.recommend_batch(rows, 4, **options)
        for out in ("lists.private.parquet", "lists.private.csv"):
            assert run(*line, "--all-users", "--out", out).exit_code == 0
        assert pq.read_table("lists.private.parquet").equals(wanted)
        with open("lists.private.csv", encoding="utf-8") as file:
            assert len(file.readlines()) == wanted.num_rows + 1
        hers = [row for row in wanted.to_pylist() if row["user"] == user]
        shown = json.loads(run(*line[:-1], "--user", user, "--json").stdout)
        listed = next(value for value in shown.values() if isinstance(value, list))
        assert [(row["rank"], row["item"]) for row in listed] == [(row["rank"], row["item"]) for row in hers]


def test_lists_in_parts_say_where_they_are(files, run):
    line = ["recommend", files.model, files.train, "--all-users", "--out-parts"]
    told = json.loads(run(*line, "lists", "--json").stdout)
    assert told["path"] == "lists" and told["note"].startswith("PRIVATE") and os.path.isdir("lists")
    words = run(*line, "others").stdout
    assert "Wrote the lists of all users in the history to others" in words and told["note"] in words


def test_evaluate(files, run):
    """Oracle: the figures of the call."""
    domain = Domain(files.items, (1, 5))
    parts = [Ratings.read(path, domain) for path in (files.train, files.test)]
    line = ["evaluate", files.model, files.train, files.test, "--json"]
    more = ["-k", "7", "--relevant-from", "3.5", "--metrics", "rmse, recall,mrr", "--resamples", "30"]
    found = json.loads(run(*line, *more, "--seed", "5").stdout)
    options = {"k": 7, "relevant_from": 3.5, "metrics": ["rmse", "recall", "mrr"], "resamples": 30}
    wanted = hushrec.evaluate(hushrec.load(files.model), *parts, **options, seed=5).to_dict()
    assert found.pop("beside").keys() == {"user means", "popularity", "popular"}
    assert found == {"model": "item-bias", **json.loads(json.dumps(wanted))}


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
        (["--from", "1970-01-01T00:00:30"], lambda rows: hushrec.split_by_time(rows, 30), ("train", "test")),
    ],
    ids=["share", "leave out", "users", "from"],
)
def test_split(way, split, names, files, run):
    """The parts of the call, with what tells that they are parts; nobody else may read them."""
    table = pq.read_table(files.ratings)
    when = [number % 60 if number % 7 else None for number in range(table.num_rows)]
    timed = table.append_column("when", [when])
    pq.write_table(timed, "timed.parquet")
    domain = Domain(files.items, (1, 5))
    line = ["split", "timed.parquet", *files.domain, "--columns", "time=when", "--seed", "5", *way]
    told = run(*line, "--out-dir", "parts")
    assert told.exit_code == 0
    assert sorted(os.listdir("parts")) == sorted(f"{name}.parquet" for name in names)
    rows = Ratings.read("timed.parquet", domain, columns={"time": "when"})
    for name, part in zip(names, split(rows), strict=True):
        found = Ratings.read(f"parts/{name}.parquet", domain, columns={"time": True})
        assert same_rows(found, part) and part.n_ratings and (found.times == part.times).all()
        assert (found.splits, found.hand_picked) == (part.splits, part.hand_picked)
    lost = f"{(rows.times < 0).sum()} of {rows.n_ratings:,} ratings have no time that can be read"
    assert (lost in told.stdout and "PRIVATE" in told.stdout) == ("--from" in way)


def test_predict(files, run):
    """Oracle: the prediction for each pair alone, in the order of the pairs."""
    model, rows = hushrec.load(files.model), Ratings.read(files.train, Domain(files.items, (1, 5)))
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


def test_whoever_waits_for_kernels_is_told(call, files, run):
    """Before any of the work, by every command that takes long the first time."""
    promise = [*PROMISE[:4], *files.domain, "--model", "item-bias"]
    assert run("season", "open", *PROMISE[:4], "--weeks", "3").exit_code == 0
    assert run("train", files.train, *promise, "--season", "1", "--out", "../0.hush").exit_code == 0
    for line in (
        ["train", files.train, *promise, "--out", "m.hush"],
        ["tune", files.train, *promise, "--try", "clip=0.3,0.5", "--out", "m.hush"],
        ["retrain", "../0.hush", files.train, "--out", "m.hush"],
        ["evaluate", files.model, files.train, files.test],
        ["recommend", files.model, files.train, "--all-users", "--out", "lists.private.csv"],
        ["compare", files.ratings, *files.domain, "--delta", "1e-6", "--epsilons", "2", "--out-dir", "c"],
    ):
        call(show_model, "first_use", *line)
    assert not os.listdir(".")


def test_no_ratings_are_predicted_by_a_model_of_likes(files, run):
    rows = Ratings.read(files.train, Domain(files.items, (1, 5)))
    hushrec.Popular().fit(rows, Accountant(Budget(5, 1e-6))).save("likes.hush")
    (run.folder / "pairs.csv").write_text("user,item\nu,i\n")
    line = ["predict", "likes.hush", files.train, "pairs.csv", "--out", "p.private.csv"]
    refused = run(*line)
    assert refused.exit_code == 2 and "popular ranks items and predicts no ratings" in refused.stderr
    for name in (files.model, files.train, "pairs.csv"):
        refused = run("predict", files.model, files.train, "pairs.csv", "--out", name, "--force")
        assert refused.exit_code == 2 and not os.path.exists("p.private.csv")
    assert run("predict", files.model, files.train, "pairs.csv", "--out", "p.csv").stderr.startswith("Note: ")
    refused = run("predict", files.model, files.train, "pairs.csv", "--out", "p.csv")
    assert refused.exit_code == 2 and "--force" in refused.stderr


def test_a_split_is_the_same_each_time_and_replaces_nothing_unasked(files, run):
    """Of seed 0 where none is given."""
    domain = Domain(files.items, (1, 5))
    line = ["split", files.ratings, *files.domain, "--out-dir", "parts", "--test-share", "0.2"]
    told = json.loads(run(*line, "--json").stdout)
    paths = [os.path.join("parts", f"{name}.parquet") for name in ("train", "test")]
    assert told == {"files": paths}
    for path, part in zip(paths, split_ratings(Ratings.read(files.ratings, domain), (0.8, 0.2), seed=0)):
        assert same_rows(Ratings.read(path, domain), part)
    refused = run(*line)
    assert refused.exit_code == 2 and "is there already" in refused.stderr
    words = run(*line, "--force").stdout
    assert f"Wrote {paths[0]}, {paths[1]}; they are private, like {files.ratings}." in " ".join(words.split())
    for way in (["--test-share", "0"], ["--test-share", "1"], ["--test-users", "1"], ["--leave-out", "0"]):
        refused = run(*line[:-4], "--out-dir", "others", *way)
        assert refused.exit_code == 2 and way[0] in refused.stderr and "fraction" not in refused.stderr
    assert not os.path.exists("others")


@pytest.mark.parametrize("implicit", [True, False])
def test_prepare(implicit, call, files):
    line = ["prepare", files.train, files.test, "--out", "s", "--catalogue", files.catalogue]
    line += ["--max-ratings-per-user", "7", "--columns", "user=uid,item=film", "--format", "csv"]
    line += ["--partitions", "3", "--times", "--force"]
    line += ["--implicit"] if implicit else ["--rating-range", "1", "5"]
    seen = call(Ratings, "prepare", *line)
    paths, out, domain = seen.args
    wanted = {"likes": True} if implicit else {"rating_range": (1, 5)}
    assert (list(paths), str(out)) == ([files.train, files.test], "s")
    assert domain.fingerprint == Domain(files.items, max_ratings_per_user=7, **wanted).fingerprint
    assert seen.given == {
        "partitions": 3,
        "force": True,
        "progress": False,
        "columns": {"time": True, "user": "uid", "item": "film"},
        "format": "csv",
        "implicit": implicit,
    }
    plain = call(Ratings, "prepare", "prepare", files.train, "--out", "s", *files.domain)
    assert plain.given == {
        "partitions": None,
        "force": False,
        "progress": False,
        "columns": None,
        "format": None,
        "implicit": False,
    }


@pytest.mark.parametrize("model", ["private-als", "both"])
def test_what_is_planned(model, call):
    """The expected errors are those of the sizes, the spread and the part of the budget that ratings get."""
    line = ["plan", "--model", model, *PROMISE[:6], "--users", "6000", "--items", "400", "--spread", "0.7"]
    line += ["--rating-range", "1", "5", "--ratings-per-user", "31"]
    budget, domain = Budget(3.0, 1e-5, relation="replace"), Domain(range(400), (1, 5))
    estimator, share = runs.choose(model, budget, domain, n_users=6000, settings={}), 1.0
    part = budget
    if model == "both":
        part, share = estimator.part(budget, "ratings"), 1 - estimator.lists_share
        assert 0.1 < share < 0.9 and part.mu < budget.mu
    found = call(show_plan, "expected", *line).args
    assert found[:4] == (part, 6000, 400, 31.0) and found[5:] == (0.7, model)
    season, *found = call(show_plan, "season_expected", *line, "--season", "9", "--first-share", "0.3").args
    assert season == Season(budget, 9, 0.3)
    assert found[:2] == [(6000, 400, 31.0), share] and found[3:] == [0.7, None]


def test_no_error_is_expected_of_budgets_for_ratings(run):
    line = ["plan", "--model", "item-bias", "--unit", "rating", "--epsilon", "1", "--delta", "1e-6"]
    found = run(*line, "--rating-range", "1", "5", "--items", "40", "--users", "1000", "--json")
    assert found.exit_code == 0, found.stderr
    assert "expected" not in json.loads(found.stdout)


def test_a_budget_in_the_ledger_is_the_one_that_was_declared(run):
    line = ["ledger", "open", "--dataset", "shop", "--epsilon", "5", "--delta", "1e-6"]
    assert run(*line, "--failure", "1e-7", "--relation", "replace").exit_code == 0
    budget = Budget(5, 1e-6, relation="replace", failure=1e-7)
    book = hushrec.Ledger(run.ledger)
    Accountant(budget, ledger=book, dataset="shop").part()
    with pytest.raises(InputError, match="dataset|data set"):
        book.summary("default")
    assert book.summary("shop").charges == 0
    found = json.loads(run("ledger", "show", "--dataset", "shop", "--json").stdout)
    assert (found["charges"], found["delta"], found["history"]) == (0, 1e-6, [])
    told = run("ledger", "open", "--dataset", "other", "--epsilon", "2", "--delta", "1e-5").stdout
    assert f'Data set "other" has the budget {Budget(2, 1e-5)}.' in told and str(run.ledger) in told
