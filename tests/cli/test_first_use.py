"""First use: files are kept, answers fit a screen, hints name the place of a file."""

import json
import math
from pathlib import Path

import pytest

from hushrec.privacy import Ledger

BUDGET = ("--epsilon", "5", "--delta", "1e-6")


def parsed(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_training_tells_its_promise_on_one_screen_and_the_rest_when_asked(run, files):
    line = ["train", files.train, *BUDGET, *files.domain, "--out", "m.hush", "--force"]
    short = run(*line).stdout
    assert len(short.splitlines()) <= 22 and "PRIVACY STATEMENT" in short and "Ledger:" in short
    assert "ratings: item biases" not in short and "hushrec report m.hush" in short
    report = run("report", "m.hush").stdout
    assert len(report.splitlines()) <= 24 and all(len(row) <= 80 for row in report.splitlines())
    assert "ratings: item biases" not in report and "(unit: user, relation: add-remove)" in report
    told = run("report", "m.hush", "--releases", "--settings").stdout
    assert "like_threshold=4" in told and "ratings: item biases" in told and "Version:" in told
    assert "Public:     item catalogue; rating range;" in told and "(released with noise)" in told


@pytest.mark.parametrize(
    "line",
    [
        ["split", "RATINGS", "--test-share", "0.2", "DOMAIN", "--out-dir", "out"],
        ["recommend", "MODEL", "RATINGS", "--all", "--out", "out/lists.private.csv"],
        ["recommend", "MODEL", "RATINGS", "--all", "-n", "1", "--out-dir", "out"],
        ["compare", "RATINGS", "DOMAIN", "--models", "item-bias", "--epsilons", "1", "--delta", "1e-6",
         "--data-is-public", "--out-dir", "out", "--set", "als.iterations=1"],
    ],
    ids=["split", "recommend to a file", "recommend to a folder", "compare"],
)  # fmt: skip
def test_nothing_is_replaced_unless_that_is_asked_for(line, run, files):
    words = {"RATINGS": [files.ratings], "MODEL": [files.model], "DOMAIN": files.domain}
    line = [word for each in line for word in words.get(each, [each])]
    Path("out").mkdir()
    assert run(*line).exit_code == 0
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    refused = run(*line)
    assert refused.exit_code == 2 and "--force" in refused.stderr and refused.stdout == ""
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == before
    assert run(*line, "--force").exit_code == 0


@pytest.mark.true("D3")
def test_no_privacy_is_refused_where_privacy_was_promised_or_nothing_was_named(run, files):
    """Before anything is charged; a private run after one without privacy repeats this at its promise."""
    line = ["train", files.train, "--model", "item-bias", *files.domain, "--delta", "1e-6", "--force"]
    compared = ["compare", files.train, "--models", "item-bias", *files.domain, "--delta", "1e-6", "--force"]
    compared += ["--set", "als.iterations=1", "--out-dir", "out", "--epsilons", "1,inf"]
    for words in ([*line, "--epsilon", "inf", "--out", "m.hush"], compared):
        refused = run(*words)
        assert refused.exit_code == 2 and "--dataset with another name, or --data-is-public" in refused.stderr
    assert not run.ledger.exists()
    opened = ["ledger", "open", "--dataset", "opened", "--epsilon", "9", "--delta", "1e-6"]
    season = ["season", "open", "--dataset", "weekly", "--epsilon", "9", "--delta", "1e-6"]
    trained = [*line, "--dataset", "charged", "--epsilon", "1", "--out", "m.hush"]
    for words in (opened, season, trained):
        assert run(*words).exit_code == 0
        name = words[words.index("--dataset") + 1]
        before = run("ledger", "show", "--dataset", name, "--json").stdout
        for more in ([*line, "--epsilon", "inf", "--out", "n.hush"], compared):
            refused = run(*more, "--dataset", name)
            assert refused.exit_code == 1 and "break the promise to the users" in refused.stderr
        assert run("ledger", "show", "--dataset", name, "--json").stdout == before
    assert not Path("n.hush").exists() and not Path("out").exists()
    assert run(*compared, "--dataset", "try").exit_code == 0
    said = run(*line, "--dataset", "try", "--epsilon", "1", "--out", "m.hush")
    told = run("report", "m.hush")
    for text in (said.stdout, told.stdout):
        promise = " ".join(text.partition("Promise:")[2].partition("Ledger:")[0].split())
        assert promise.endswith(
            'for this run alone. NOT PRIVATE together with the other runs on data set "try", which were'
            " charged an infinite epsilon."
        )


def test_the_statement_adds_up_at_the_declared_delta(run, files):
    """The delta of the data set's budget; without one the run's, and more where choices have their own."""
    line = ["train", files.train, *files.domain, "--model", "item-bias", "--epsilon", "1", "--out"]
    ledger = ["--dataset", "shop"]
    assert run("ledger", "open", *ledger, "--epsilon", "9", "--delta", "1e-5").exit_code == 0
    found = parsed(run(*line, "a.hush", "--delta", "1e-7", *ledger, "--json"))["privacy"]["ledger"]
    assert found["delta"] == 1e-5 and found["epsilon"] < 1
    text = run(*line, "b.hush", "--delta", "1e-7").stdout
    assert "delta is that of this run" in " ".join(text.split())
    tuned = ["tune", files.train, *files.domain, "--model", "item-bias", "--try", "clip=0.3", *BUDGET]
    text = " ".join(run(*tuned, "--out", "c.hush").stdout.split())
    assert "the best of a random number of runs, 10 on average" in text and "mu = 0 " not in text
    found = parsed(run(*line, "d.hush", "--delta", "1e-7", "--json"))["privacy"]["ledger"]
    assert math.isfinite(float(found["epsilon"])) and found["delta"] == pytest.approx(1e-6 + 1e-7)
    assert Ledger(run.ledger).summary("default", 1e-3).delta == 1e-3


def test_the_curator_is_told_which_ratings_were_given_again(run, files):
    one, two = files.items[:2]
    rows = [
        f"a,{one},3,2024-01-03",
        f"a,{one},4,2024-01-01",
        f"b,{two},1,2024-01-01",
        f"a,{one},2,2024-01-02",
    ]
    Path("again.csv").write_text("\n".join(["user,item,rating,time", *rows, ""]))
    found = parsed(run("check", "again.csv", *files.domain, "--columns", "time=time", "--json"))
    (dropped,) = found["dropped"]
    assert dropped["count"] == 2 and tuple(dropped["first"]) == (3, 5) and found["usable"] == 2


def test_lists_of_what_comes_next_say_if_no_time_can_be_read(run, files):
    rows = [f"a,{item},5,{{}}12{{}}2025" for item in files.items[:3]]
    for first, mark, warned in (("24.", ".", 0), ("24/", "/", 1)):
        text = "\n".join(["user,item,rating,time", *(row.format(first, mark) for row in rows), ""])
        Path("dated.csv").write_text(text)
        done = run("recommend", files.model, "dated.csv", "--user", "a", "--next")
        assert done.exit_code == 0 and done.stderr.count("Warning: No time of this history can be") == warned


def test_the_answer_of_every_command_fits_a_screen(run, files):
    """24 lines of 80 letters; a command to copy may be longer."""
    season = ["--dataset", "weekly", *BUDGET]
    tables = [files.ratings, *files.domain]
    for line in (
        ["season", "open", *season, "--gap", "6d"],
        ["train", *tables, *season, "--season", "1", "--out", "w.hush"],
        ["season", "show", "--dataset", "weekly"],
        *[["train", *tables, "--model", "item-bias", *BUDGET, "--out", "m.hush", "--force"]] * 12,
        ["ledger", "show"],
        ["ledger", "show", "--dataset", "default"],
        ["report", "m.hush"],
        ["check", *tables],
        ["evaluate", "w.hush", files.train, files.test],
        ["recommend", "w.hush", files.train, "--user", "u000001"],
        ["similar", files.model, files.items[0]],
        ["settings"],
        ["settings", "both"],
        ["compare", *tables, "--models", "item-bias", "--epsilons", "1,5", "--delta", "1e-6",
         "--data-is-public", "--out-dir", "out", "--set", "als.iterations=1"],
        ["audit", "canaries", "--model", "item-bias", *BUDGET, "--canaries", "40"],
        ["split", *tables, "--test-share", "0.2", "--out-dir", "parts"],
        ["prepare", *tables, "--out", "rows.store"],
        ["export", "m.hush", "--int8", "--out", "small.hush"],
    ):  # fmt: skip
        done = run(*line)
        rows = done.stdout.splitlines()
        assert len(rows) <= (30 if "--season" in line else 24), (line, done.output)  # it says whom it leaves
        assert all(len(row) <= 80 or "hushrec " in row or "/" in row for row in rows), (line, done.stdout)
