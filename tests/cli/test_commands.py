"""What the commands do when all is well."""

import csv
import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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


def test_train_writes_a_model_and_charges(run, files):
    result = train(run, files)
    assert result.exit_code == 0 and result.stderr == ""
    assert "PRIVACY STATEMENT" in result.stdout and "epsilon = 5" in result.stdout
    model = hushrec.load("model.hush")
    assert model.domain.n_items == 40 and model.privacy.private
    summary = Ledger(run.ledger).summary("default", 1e-6)
    assert summary.runs == 1 and summary.epsilon == pytest.approx(5, rel=1e-6)
    assert [path.name for path in run.folder.iterdir()] == ["model.hush"]


def test_train_with_item_features(run, files):
    rows = [f"{item},{number % 2},{number % 3}" for number, item in enumerate(files.items)]
    (run.folder / "genres.csv").write_text("\n".join(["item,drama,crime", *rows]) + "\n")
    plain = parsed(train(run, files, "--users", "200", "--json", model="private-als"))
    line = ["--users", "200", "--item-features", "genres.csv", "--json"]
    result = train(run, files, *line, model="private-als")
    assert parsed(result)["privacy"]["releases"] == plain["privacy"]["releases"]
    assert "2 item features" in run("report", "model.hush").stdout
    refused = train(run, files, "--item-features", "genres.csv")
    assert refused.exit_code == 2 and "item-bias makes no use of item features" in refused.stderr
    over = train(run, files, "--item-features", "genres.csv", model="private-als", out="genres.csv")
    assert over.exit_code == 2 and "one of the inputs" in over.stderr


def test_a_link_is_written_through(run, files):
    Path("real.hush").write_bytes(b"before")
    Path("link.hush").symlink_to("real.hush")
    line = ["train", files.train, "--model", "item-bias", "--epsilon", "5", "--delta", "1e-6", *files.domain]
    assert run(*line, "--out", "link.hush", "--force").exit_code == 0
    assert Path("link.hush").is_symlink() and hushrec.load("real.hush").estimator.name == "item-bias"


def test_a_run_that_found_nobody_stops_at_one_percent(run, files):
    """A function of the released number of users; where that is declared, nobody can tell."""
    rows = [
        f"u{user};{item};{rating}" for user in range(200) for item, rating in zip(files.items, ("3,5", "4,0"))
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
        assert (resumed.exit_code, resumed.stderr) == (1, result.stderr)
        assert parsed(run("ledger", "show", "--dataset", name, "--json")) == charged
    declared = run("train", "commas.csv", *line, "commas", "--users", "200")
    assert declared.exit_code == 0 and "hushrec check" in declared.stdout


def test_a_large_delta_is_told_of(run, files):
    """From what was declared or released alone; on fitting ratings nothing is said."""
    line = ["--epsilon", "5", "--delta", "1e-6", *files.domain, "--out", "model.hush", "--force"]
    assert run("train", files.train, *line).stderr == ""
    line[3] = "0.01"
    assert "delta = 0.01 is not below" in run("train", files.train, *line).stderr
    assert "delta = 0.01 is not below" in run("train", files.train, *line, "--users", "200").stderr


def test_no_privacy_has_its_word(run, files):
    line = ["train", files.train, "--model", "als", "--epsilon", "inf", *files.domain, "--out", "m.hush"]
    result = run(*line, "--data-is-public", "--rank", "4", "--iterations", "2")
    assert result.exit_code == 0 and "NOT PRIVATE" in result.stdout
    assert not run.ledger.exists()
    plain = parsed(run("report", "m.hush", "--json"))
    assert plain["privacy"]["epsilon"] == "inf" and plain["privacy"]["private"] is False


@pytest.mark.true("C2")
def test_the_report_has_no_held_out_figure_but_both_noises(run, files):
    line = ["train", files.train, "--for", "lists", "--epsilon", "3", "--delta", "1e-6", "--users", "200"]
    assert run(*line, *files.domain, "--out", "m.hush").exit_code == 0
    told = json.loads(run("report", "m.hush", "--json").stdout)["held_against"]
    assert (told["user_means"], told["popularity"]) == ("not released", "released")
    assert told["popular_noise_sd"] == pytest.approx(1 / hushrec.Budget(3, 1e-6).mu)
    assert told["popularity_noise_sd"] == hushrec.load("m.hush").privacy.releases[0].noise_sd
    assert f"noise of sd {told['popular_noise_sd']:.3g}, by its plan" in " ".join(
        run("report", "m.hush").stdout.split()
    )
    shown = run("evaluate", "m.hush", files.train, files.test).stdout
    assert "released (1)" in shown and "popular (2)" in shown and "not released" not in shown
    beside = json.loads(run("evaluate", "m.hush", files.train, files.test, "--json").stdout)["beside"]
    assert beside["user means"] is None and 0 < beside["popular"]["recall@20"] < 1
    of_ratings = run("evaluate", files.model, files.train, files.test).stdout
    assert of_ratings.count("not released") == 6


def test_evaluate(run, files):
    plain = parsed(run("evaluate", files.model, files.train, files.test, "--json", "-k", "5"))
    for name in ("rmse", "mae", "recall@5", "ndcg@5", "coverage@5"):
        low, high = plain["intervals"][name]
        assert low <= plain[name] <= high
    n_ratings = pq.read_metadata(files.test).num_rows
    assert plain["n_ratings"] == n_ratings and "private figure of the curator" in plain["note"]
    text = run("evaluate", files.model, files.train, files.test).stdout
    assert "rmse" in text and "private figure of the curator" in text


def test_recommend_one_user(run, files):
    plain = parsed(run("recommend", files.model, files.train, "--user", "u000007", "-n", "4", "--json"))
    assert plain["known"] is True
    assert [row["rank"] for row in plain["items"]] == [1, 2, 3, 4]
    scores = [row["score"] for row in plain["items"]]
    assert scores == sorted(scores, reverse=True)
    table = pq.read_table(files.train).to_pylist()
    seen = {row["item"] for row in table if row["user"] == "u000007"}
    assert not seen & {row["item"] for row in plain["items"]}
    every = parsed(
        run(
            "recommend", files.model, files.train, "--user", "u000007", "-n", "99", "--include-seen", "--json"
        )
    )
    assert seen <= {row["item"] for row in every["items"]} and len(every["items"]) == 40
    assert "For user u000007 alone" in run("recommend", files.model, files.train, "--user", "u000007").stdout


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
    refused = run("recommend", files.model, files.train, "--all-users", "--out-dir", "lists", "--explain")
    assert refused.exit_code == 2 and "--explain is for one user" in refused.stderr


def test_recommend_to_a_newcomer(run, files):
    result = run("recommend", files.model, files.train, "--user", "nobody", "--json")
    plain = parsed(result)
    model = hushrec.load(files.model)
    assert plain["known"] is False
    assert [row["item"] for row in plain["items"]] == [item for item, *_ in model.recommend({})]
    assert "newcomers" in run("recommend", files.model, files.train, "--user", "nobody").stdout


def test_recommend_one_file_per_user(run, files):
    assert parsed(
        run("recommend", files.model, files.train, "--all-users", "--out-dir", "lists", "-n", "3", "--json")
    )
    paths = sorted((run.folder / "lists").iterdir())
    users = sorted(set(pq.read_table(files.train)["user"].to_pylist()))
    assert [path.name for path in paths] == [f"{user}.csv" for user in users]
    rows = list(csv.DictReader(paths[0].open()))
    model = hushrec.load(files.model)
    own = {
        row["item"]: row["rating"]
        for row in pq.read_table(files.train).to_pylist()
        if row["user"] == users[0]
    }
    assert [row["item"] for row in rows] == [item for item, *_ in model.recommend(own, n=3)]


def test_recommend_one_file_marked_private(run, files):
    result = run("recommend", files.model, files.train, "--all-users", "--out", "lists.parquet", "-n", "3")
    assert result.exit_code == 0 and "lists.private.parquet" in result.stderr
    table = pq.read_table("lists.parquet")
    assert table.schema.metadata[b"hushrec"].startswith(b"PRIVATE")
    assert table.column_names == ["user", "item", "rank", "score", "rating"]
    assert (
        run("recommend", files.model, files.train, "--all-users", "--out", "a.private.parquet").stderr == ""
    )


NASTY = [
    "plain", "a/b", "../../etc/passwd", "..", ".", "", " ", "a b", "ä", "日本", "a\x00b", "x" * 400, "x" * 399 + "z",  # noqa: E501
    "Case", "case", "CON", "nul", "a~b", "a%b", "a\nb", "🎬" * 100, -3, "\ud800", "C:\\x", "*?<>|\"",
]  # fmt: skip


def test_no_id_can_take_the_name_of_another():
    hashed = file_names(["x" * 400])[0]
    assert len(set(file_names(["x" * 400, hashed.removesuffix(".csv")]))) == 2


def test_file_names_reach_the_disk(run, files, tmp_path):
    users = [user for user in NASTY if isinstance(user, str) and user.strip() and user != "\ud800"]
    table = pa.table({"user": users, "item": files.items[:1] * len(users), "rating": [4.0] * len(users)})
    pq.write_table(table, tmp_path / "nasty.parquet")
    result = run("recommend", files.model, tmp_path / "nasty.parquet", "--all-users", "--out-dir", "lists")
    assert result.exit_code == 0, result.stderr
    assert len(list((run.folder / "lists").iterdir())) == len(users)
    assert {path.parent for path in run.folder.rglob("*.csv")} == {run.folder / "lists"}


def test_report_reads_only_the_model(run, files):
    text = run("report", files.model).stdout
    what = "User mean (free, each user computes her own) plus a private bias per item."
    assert text.splitlines()[0] == f"Model:      item-bias: {what}"
    assert "PRIVACY STATEMENT" in text and "40 items, ratings from 1 to 5, at most" in text
    plain = parsed(run("report", files.model, "--json"))
    assert plain["n_items"] == 40 and plain["rating_range"] == [1, 5]
    assert plain["privacy"]["releases"][0]["label"] == "item biases"


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_plan_is_what_train_charges(run, files, relation):
    options = ["--model", "item-bias", "--epsilon", "2", "--delta", "1e-5", *files.domain]
    options += ["--relation", relation]
    planned = parsed(run("plan", *options, "--json"))
    trained = parsed(run("train", files.train, *options, "--out", "m.hush", "--json"))
    releases = [{k: v for k, v in entry.items() if k != "share"} for entry in planned["releases"]]
    assert releases == trained["privacy"]["releases"]
    assert sum(entry["share"] for entry in planned["releases"]) == pytest.approx(1)
    text = run("plan", *options).stdout
    assert "sensitivity" in text and f"relation: {relation}" in text


def test_compare_public(run, files):
    line = ["compare", files.ratings, "--models", "item-bias", "--epsilons", "1,5", "--delta", "1e-6"]
    plain = parsed(run(*line, *files.domain, "--data-is-public", "--out-dir", "out", "--json"))
    assert plain["total_epsilon"] == 0 and "NOT PRIVATE" in plain["note"]
    cells = [(row["model"], row["epsilon"]) for row in plain["runs"]]
    assert cells == [
        ("item-bias", 1),
        ("item-bias", 5),
        ("global-mean", 1),
        ("global-mean", 5),
        ("als", "inf"),
    ]
    assert sorted(path.name for path in (run.folder / "out").iterdir()) == [
        f"comparison.{kind}" for kind in ("md", "parquet", "png", "svg")
    ]
    assert not run.ledger.exists()
    table = pq.read_table("out/comparison.parquet")
    assert b"NOT PRIVATE" in table.schema.metadata[b"hushrec"] and set(table["unit"].to_pylist()) == {"user"}
    assert "NOT PRIVATE" in (run.folder / "out/comparison.md").read_text()
    assert "NOT PRIVATE" in (run.folder / "out/comparison.svg").read_text()


def test_compare_likes(run, files):
    """No rating range is asked for, and no rating error is shown."""
    line = ["compare", files.ratings, "--implicit", "--epsilons", "1,inf", "--delta", "1e-6"]
    line += ["--catalogue", files.catalogue, "--data-is-public", "--ease.regularization", "3"]
    plain = parsed(run(*line, "--out-dir", "out", "--json"))
    assert [row["model"] for row in plain["runs"]] == ["private-eigenrec", "popular", "als", "ease"]
    assert plain["main_metric"] == "recall@20" and not any("rmse" in row for row in plain["runs"])
    assert "Recall@20 (higher is better)" in (run.folder / "out/comparison.svg").read_text()
    refused = run(*line[:-2], "--models", "private-als", "--out-dir", "new")
    assert refused.exit_code == 2 and "private-als predicts ratings, and likes have none" in refused.stderr


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
    assert "| item-bias | 1 |" in told.stdout and "All runs together: epsilon =" in told.stdout
    four = hushrec.privacy.epsilon_of(math.sqrt(2 * sum(m**2 for m in mu)), 1e-6)
    price = f"together they cost epsilon = {four:.6g} at delta = 1e-06 (unit: user, relation: add-remove).\n"
    assert told.stderr == f"4 trainings will be charged to data set 'default'; {price}"


@pytest.mark.true("C2")
@pytest.mark.parametrize(("said", "goes_on"), [("y", True), ("YES", True), ("", False), ("no", False)])
def test_compare_asks_on_a_terminal(said, goes_on, run, files):
    """Without a word, or with another than yes, nothing is charged and nothing is written."""
    words = ["compare", files.ratings, "--models", "item-bias", "--epsilons", "1", "--delta", "1e-6"]
    words += [*files.domain, "--out-dir", "out", "--no-progress"]
    found = run(*words, typed=f"{said}\n")
    assert "2 trainings will be charged" in found.stderr and "Go on? [y/N]" in found.stderr
    assert (found.exit_code, any(run.folder.iterdir())) == (1 - goes_on, goes_on)
    assert goes_on or found.stderr.endswith("Not started; nothing was charged.\n")
    charged = {name: Ledger(run.ledger).summary(name, 1e-6).charges for name in Ledger(run.ledger).datasets()}
    assert sum(charged.values()) == 2 * goes_on
    assert "Go on?" not in run(*words, "--yes", "--force", typed="").stderr


def test_compare_is_all_or_nothing(run, files):
    assert run("ledger", "open", "--epsilon", "2", "--delta", "1e-6").exit_code == 0
    line = ["compare", files.ratings, "--models", "item-bias", "--epsilons", "1,1.5", "--delta", "1e-6"]
    result = run(*line, *files.domain, "--out-dir", "out")
    assert result.exit_code == 1 and "budget" in result.stderr
    assert Ledger(run.ledger).summary("default").charges == 0
    assert not any(run.folder.iterdir())


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
    missing = run("ledger", "show", "--dataset", "other")
    assert missing.exit_code == 2 and "it has 'shop'." in missing.stderr
    closed = run("ledger", "close", "--dataset", "shop")
    assert closed.exit_code == 0 and "shop" in closed.stdout and f"Ledger: {run.ledger}" in closed.stdout
    text = run("ledger", "show", "--dataset", "shop").stdout
    assert "closed" in text and "what is left" not in text


def test_ledger_show_creates_nothing(run):
    assert run("ledger", "show").exit_code == 1
    assert not run.ledger.exists()


def test_version_and_bare_command(run):
    assert run("--version").stdout == f"hushrec {hushrec.__version__}\n"
    bare = run()
    assert bare.exit_code == 0 and "Train and judge:" in bare.stdout


def test_check_is_private_and_spends_nothing(run, files):
    found = run("check", files.train, *files.domain)
    assert found.exit_code == 0 and found.stdout.startswith("PRIVATE") and not run.ledger.exists()
    told = parsed(run("check", files.train, *files.domain, "--json"))
    assert told["usable"] > 0 and told["note"].startswith("PRIVATE") and told["columns"]["user"] == "user"
    assert not run.ledger.exists()


def test_split_wants_one_way(run, files, tmp_path):
    for how in ((), ("--test-share", "0.2", "--leave-out", "1")):
        refused = run("split", files.ratings, *files.domain, "--out-dir", tmp_path / "parts", *how)
        assert refused.exit_code == 2 and "only one of --test-share" in refused.stderr
        assert refused.stderr.endswith(" --from.\n")
    timed = run(
        "split", files.ratings, *files.domain, "--out-dir", tmp_path / "parts", "--from", "2024-01-01"
    )
    assert timed.exit_code == 2 and "time" in timed.stderr
    assert not (tmp_path / "parts").exists()


def test_evaluate_of_nothing_fails(run, files, tmp_path):
    model = tmp_path / "bias.hush"
    budget = ("--epsilon", "5", "--delta", "1e-6")
    run("train", files.train, *files.domain, *budget, "--model", "item-bias", "--out", model)
    nobody = tmp_path / "nobody.csv"
    nobody.write_text("user,item,rating\nu,none,3\n")
    refused = run("evaluate", model, files.train, nobody)
    assert refused.exit_code == 2 and "no usable rating" in refused.stderr
    assert run("evaluate", model, files.train, files.test, "--metrics", "rmse,f1").exit_code == 2


def test_a_model_is_replaced_only_where_that_is_asked_for(run, files):
    line = ["train", files.train, *files.domain, "--epsilon", "5", "--delta", "1e-6", "--model", "item-bias"]
    assert run(*line, "--out", "once.hush").exit_code == 0
    before = run.ledger.read_bytes()
    again = run(*line, "--out", "once.hush")
    assert again.exit_code == 2 and "--force" in again.stderr and run.ledger.read_bytes() == before
    assert run(*line, "--out", "once.hush", "--force").exit_code == 0


def test_a_weak_promise_is_warned_of(run, files):
    def said(epsilon):
        return run("plan", *files.domain, "--users", "50", "--epsilon", epsilon, "--delta", "1e-6").stderr

    assert "epsilon = 1000 promises next to nothing" in said("1000")
    assert said("20") == said("inf") == ""
