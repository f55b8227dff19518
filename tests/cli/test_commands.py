"""What the commands do when all is well."""

import csv
import json
import math
import re
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hushrec
from hushrec.cli import show, show_plan
from hushrec.cli.files import file_names
from hushrec.cli.show import plain
from hushrec.cli.tune import value_of
from hushrec.evaluation.expected_loss import TYPICAL_SPREAD
from hushrec.privacy import Budget, Gaussian, Ledger, Plan, Release, epsilon_of


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


def test_train_json(run, files):
    plain = parsed(train(run, files, "--json", "--clip", "0.8", "--relation", "replace"))
    assert plain["file"] == "model.hush" and plain["model"] == "item-bias"
    assert plain["hyper_parameters"]["clip"] == 0.8
    assert plain["privacy"]["epsilon"] == 5 and plain["privacy"]["relation"] == "replace"
    assert plain["privacy"]["unit"] == "user" and plain["privacy"]["private"] is True


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


def test_the_documented_train_and_evaluate_forms(run, files):
    """private-als is the default; the number of users is released when it is not declared."""
    line = ["train", files.train, "--model", "private-als", "--epsilon", "5", "--delta", "1e-6"]
    result = run(*line, "--rating-range", "1", "5", "--catalogue", files.catalogue, "--out", "model.hush")
    assert result.exit_code == 0, result.stderr
    model = hushrec.load("model.hush")
    assert model.estimator.name == "private-als"
    assert model.privacy.spent_epsilon <= 5 * (1 + 1e-9)
    figures = parsed(run("evaluate", "model.hush", files.train, files.test, "--json"))
    assert figures["rmse"] > 0 and figures["mae"] > 0
    assert "number of users" in [release.label for release in model.privacy.releases]
    assert run(*line, *files.domain, "--users", "200", "--out", "declared.hush").exit_code == 0
    declared = hushrec.load("declared.hush").privacy.releases
    assert "number of users" not in [release.label for release in declared]


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
        assert resumed.exit_code == 2 and "no unfinished training" in resumed.stderr
    declared = run("train", "commas.csv", *line, "commas", "--users", "200")
    assert declared.exit_code == 0 and "hushrec check" in declared.stdout


def test_a_large_delta_is_told_of(run, files):
    """From what was declared or released alone; on fitting ratings nothing is said."""
    line = ["--epsilon", "5", "--delta", "1e-6", *files.domain, "--out", "model.hush", "--force"]
    assert run("train", files.train, *line).stderr == ""
    line[3] = "0.01"
    assert "delta = 0.01 is not below" in run("train", files.train, *line).stderr
    assert "delta = 0.01 is not below" in run("train", files.train, *line, "--users", "200").stderr


def test_lists_for_nobody(run, files):
    Path("nobody.csv").write_text("user,item,rating\n")
    result = run("recommend", files.model, "nobody.csv", "--all-users", "--out-dir", "lists")
    assert result.exit_code == 0 and not list(Path("lists").iterdir())


def test_no_privacy_has_its_word(run, files):
    line = ["train", files.train, "--model", "als", "--epsilon", "inf", *files.domain, "--out", "m.hush"]
    result = run(*line, "--data-is-public", "--rank", "4", "--iterations", "2")
    assert result.exit_code == 0 and "NOT PRIVATE" in result.stdout
    assert not run.ledger.exists()
    plain = parsed(run("report", "m.hush", "--json"))
    assert plain["privacy"]["epsilon"] == "inf" and plain["privacy"]["private"] is False


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


def test_recommend_among_some_items(run, files, tmp_path):
    (tmp_path / "some.txt").write_text("\n".join(files.items[:3]))
    line = ["recommend", files.model, files.train, "--user", "u000007", "--items", tmp_path / "some.txt"]
    plain = parsed(run(*line, "--include-seen", "--json"))
    assert {row["item"] for row in plain["items"]} == set(files.items[:3])


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


def test_file_names_are_safe_and_distinct():
    names = file_names(NASTY)
    assert len({name.casefold() for name in names}) == len(NASTY)
    for user, name in zip(NASTY, names, strict=True):
        stem = name.removesuffix(".csv")
        assert len(name.encode()) <= 255 and name.isascii() and name != ".csv" or user == ""
        assert not set(name) & set('/\\:*?"<>|\x00\n ') and not stem.startswith(".")
        assert stem.casefold() not in {"con", "nul"}
        if "~" not in stem:
            assert unquote(stem, errors="surrogatepass") == str(user)


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
    options = [
        "--model",
        "item-bias",
        "--epsilon",
        "2",
        "--delta",
        "1e-5",
        *files.domain,
        "--relation",
        relation,
    ]
    planned = parsed(run("plan", *options, "--json"))
    trained = parsed(run("train", files.train, *options, "--out", "m.hush", "--json"))
    releases = [{k: v for k, v in entry.items() if k != "share"} for entry in planned["releases"]]
    assert releases == trained["privacy"]["releases"]
    assert sum(entry["share"] for entry in planned["releases"]) == pytest.approx(1)
    text = run("plan", *options).stdout
    assert "sensitivity" in text and f"relation: {relation}" in text


def test_numbers_of_a_plan_are_those_of_its_releases():
    """Oracle: sd, mu and shares by hand, of two releases that cost 0.3 and 0.4 together 0.5."""
    budget = Budget(epsilon_of(0.5, 1e-5), 1e-5, relation="replace")
    releases = [
        Release("first", Gaussian(1 / 0.3), 2.0, "user", "replace"),
        Release("second", Gaussian(1 / 0.4), 0.5, "user", "replace"),
    ]
    found = show_plan.planned_dict(Plan(budget, releases))
    assert (found["epsilon"], found["delta"], found["relation"]) == (budget.epsilon, 1e-5, "replace")
    assert found["mu"] == budget.mu and found["planned_mu"] == pytest.approx(0.5)
    assert found["planned_epsilon"] == pytest.approx(budget.epsilon, rel=1e-6)
    assert [each["share"] for each in found["releases"]] == pytest.approx([0.36, 0.64])
    lines = [line.split() for line in show_plan.plan_table(Plan(budget, releases)).splitlines()]
    assert ["first", "Gaussian", "2", "6.667", "0.3", "36.0%"] in lines
    assert ["second", "Gaussian", "0.5", "1.25", "0.4", "64.0%"] in lines
    assert f"epsilon = {show.short(found['planned_epsilon'])} at delta = 1e-05" in " ".join(lines[-1])


def test_plan_by_sizes_alone_tells_the_expected_error(run):
    line = ["plan", "--users", "50000", "--items", "2000", "--epsilon", "1", "--delta", "1e-6"]
    expected = parsed(run(*line, "--json"))["expected"]
    losses = expected["rmse_in_rating_ranges"]
    assert 0.15 < losses["non_private"]["value"] < losses["private_als"]["value"] < 0.3
    assert expected["users_to_keep_half_of_the_gain"] < expected["users_to_keep_nine_tenths"]
    text = run(*line).stdout
    assert "unit: user, relation: add-remove" in text and "on 1 to 5" not in text
    assert f"{losses['private_als']['value']:.1%}" in text
    assert "item weights" not in text  # the noise is in rating units: it takes a range
    both = run(*line, "--rating-range", "1", "5", "--ratings-per-user", "300").stdout
    assert "item weights" in both and f"{4 * losses['private_als']['value']:.3f}" not in both
    assert "on 1 to 5" in both
    few = run(*line[:2], "1000", *line[3:]).stdout
    assert "--model item-bias" in few
    assert "Nothing of this size" in run(*line[:2], "10", *line[3:]).stdout


def test_the_spread_of_ratings_moves_the_expected_error_and_no_setting(run):
    line = ["plan", "--users", "5000", "--items", "200", "--epsilon", "1", "--delta", "1e-6"]
    line += ["--rating-range", "1", "10"]
    plain, told = (parsed(run(*line, *more, "--json")) for more in ([], ["--spread", "1.6"]))
    wide, narrow = (each.pop("expected")["rmse_in_rating_ranges"]["private_als"] for each in (plain, told))
    assert narrow["value"] == pytest.approx(wide["value"] * (1.6 / 9) / TYPICAL_SPREAD)
    assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]
    assert plain == told


def test_plan_of_the_default_needs_no_data(run, files):
    line = ["plan", "--epsilon", "5", "--delta", "1e-6", *files.domain, "--users", "1000"]
    planned = parsed(run(*line, "--json"))
    assert planned["planned_epsilon"] <= 5 * (1 + 1e-9) and planned["unit"] == "user"
    assert not run.ledger.exists()


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
    line = [
        "compare",
        files.ratings,
        "--models",
        "item-bias",
        "--epsilons",
        "1,5",
        "--delta",
        "1e-6",
        *files.domain,
    ]
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


def test_a_run_that_does_not_fit_releases_not_even_the_number_of_users(run, files):
    assert run("ledger", "open", "--epsilon", "3", "--delta", "1e-6").exit_code == 0
    line = ["--epsilon", "4", "--delta", "1e-6", *files.domain, "--out", "model.hush"]
    result = run("train", files.train, *line)
    assert result.exit_code == 1 and "nothing of it is spent" in result.stderr
    assert Ledger(run.ledger).summary("default").charges == 0 and not any(run.folder.iterdir())


def test_ledger_show_creates_nothing(run):
    assert run("ledger", "show").exit_code == 1
    assert not run.ledger.exists()


@pytest.mark.parametrize("model", ["popular", "private-eigenrec"])
def test_likes(run, files, tmp_path, model):
    table = pq.read_table(files.train).select(["user", "item"])
    pq.write_table(table, tmp_path / "likes.parquet")
    line = [
        "train",
        tmp_path / "likes.parquet",
        "--implicit",
        "--model",
        model,
        "--epsilon",
        "2",
        "--delta",
        "1e-6",
    ]
    line += ["--rating-range", "0", "1", "--catalogue", files.catalogue, "--out", "p.hush"]
    assert run(*line).exit_code == 0
    figures = parsed(
        run("evaluate", "p.hush", tmp_path / "likes.parquet", files.test, "--implicit", "--json")
    )
    assert figures["rmse"] is None and 0 < figures["recall@20"] <= 1


@pytest.mark.parametrize(
    "command", [[], ["train"], ["evaluate"], ["recommend"], ["report"], ["plan"], ["compare"], ["ledger"],
                ["ledger", "show"], ["ledger", "open"]], ids=lambda words: " ".join(words) or "hushrec"
)  # fmt: skip
def test_help_explains_and_shows_an_example(run, command):
    result = run(*command, "--help")
    assert result.exit_code == 0 and result.stderr == ""
    assert "Usage:" in result.stdout
    assert " ".join(["  hushrec", *command]) in result.stdout
    assert all(len(line) <= 100 for line in result.stdout.splitlines())


@pytest.mark.parametrize("words", ["serve", "tune", "train", "prepare", "papers node submit"])
def test_usage_names_the_arguments(run, words):
    usage, _, about = run(*words.split(), "--help").stdout.partition("\n\n")
    called = usage.split()
    assert called[: 2 + len(words.split())] == ["Usage:", "hushrec", *words.split()]
    arguments = about.partition("Arguments:\n")[2].partition("\n\n")[0]
    names = re.findall(r"^  ([A-Z]+) ", arguments, re.MULTILINE)
    assert names and [re.sub(r"\W", "", word) for word in called[-len(names) :]] == names


def test_version_and_bare_command(run):
    assert run("--version").stdout == f"hushrec {hushrec.__version__}\n"
    bare = run()
    assert bare.exit_code == 0 and "Train and judge:" in bare.stdout


def test_json_values():
    assert plain({"a": [math.inf, -math.inf, math.nan, True, None, 3]}) == {
        "a": ["inf", "-inf", None, True, None, 3]
    }
    values = [value_of(text) for text in ("3", "0.5", "none", "True", "user")]
    assert values == [3, 0.5, None, True, "user"] and [type(v) for v in values[:2]] == [int, float]


def test_an_integer_that_may_be_none_takes_the_word(run, files):
    result = train(run, files, "--rank", "none", model="cleansed-svd")
    assert result.exit_code == 0, result.output
    assert hushrec.load("model.hush").estimator.rank is None


def test_check_is_private_and_spends_nothing(run, files):
    found = run("check", files.train, *files.domain)
    assert found.exit_code == 0 and found.stdout.startswith("PRIVATE") and not run.ledger.exists()
    told = parsed(run("check", files.train, *files.domain, "--json"))
    assert told["usable"] > 0 and told["note"].startswith("PRIVATE") and told["columns"]["user"] == "user"
    assert not run.ledger.exists()


@pytest.mark.parametrize(
    ("how", "names"),
    [
        (("--test-share", "0.2"), ("train", "test")),
        (("--leave-out", "2"), ("train", "test")),
        (("--test-users", "0.3"), ("train", "history", "test")),
    ],
)
def test_split_writes_parts_that_train_and_evaluate_take(run, files, tmp_path, how, names):
    out = tmp_path / "parts"
    done = run("split", files.ratings, *files.domain, "--out-dir", out, *how)
    assert done.exit_code == 0 and "private" in done.stdout and not run.ledger.exists()
    assert sorted(path.stem for path in out.iterdir()) == sorted(names)
    rows = [len(pq.read_table(out / f"{name}.parquet")) for name in names]
    assert all(rows)
    budget = ("--epsilon", "5", "--delta", "1e-6")
    train = run(
        "train", out / "train.parquet", *files.domain, *budget, "--model", "item-bias", "--out", "m.hush"
    )
    assert train.exit_code == 0, train.stderr
    history = out / f"{names[-2]}.parquet"
    told = parsed(run("evaluate", "m.hush", history, out / "test.parquet", "--metrics", "map,rmse", "--json"))
    assert 0 <= told["map@20"] <= 1 and "ndcg@20" not in told


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


def test_what_is_expected_is_printed_line_by_line(run):
    """Error of each model in percent of the range and on the scale: the numbers of the JSON answer."""
    line = ["plan", "--epsilon", "5", "--delta", "1e-6", "--users", "3000", "--items", "300"]
    line += ["--rating-range", "1", "5"]
    expected = json.loads(run(*line, "--json").stdout)["expected"]["rmse_in_rating_ranges"]
    printed = run(*line).stdout.splitlines()
    names = ("no privacy", "both", "item-bias", "each user's own mean, no model")
    for name, label in zip(names, ("non_private", "private_als", "item_bias", "user_mean")):
        value, low, high = (expected[label][end] for end in ("value", "low", "high"))
        words = [f"{100 * value:.1f}%", f"({100 * low:.1f}%", "to", f"{100 * high:.1f}%)", f"{4 * value:.3f}"]
        assert [row for row in printed if row.startswith(f"{name} ") and row.split()[-5:] == words]
