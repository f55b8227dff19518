"""What a stranger met on first use: files that stay, short screens, hints that say where something lives."""

import json
import math
import re
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
    assert len(short.splitlines()) <= 20 and "PRIVACY STATEMENT" in short and "Ledger:" in short
    assert "ratings: item biases" not in short and "hushrec report m.hush" in short
    told = run(*line, "--verbose").stdout
    assert "Settings:   like_from=4" in told and "ratings: item biases" in told and "Version:" in told
    report = run("report", "m.hush").stdout
    assert "ratings: item biases" in report and "Public:     item catalogue; rating range;" in report


@pytest.mark.parametrize(
    "line",
    [
        ["split", "RATINGS", "--test-share", "0.2", "DOMAIN", "--out-dir", "out"],
        ["recommend", "MODEL", "RATINGS", "--all-users", "--out", "out/lists.private.csv"],
        ["recommend", "MODEL", "RATINGS", "--all-users", "-n", "1", "--out-dir", "out"],
        ["compare", "RATINGS", "DOMAIN", "--models", "item-bias", "--epsilons", "1", "--delta", "1e-6",
         "--data-is-public", "--out-dir", "out", "--als.iterations", "1"],
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
    """Before anything is charged; a private run beside one without says so where it makes its promise."""
    line = ["train", files.train, "--model", "item-bias", *files.domain, "--delta", "1e-6", "--force"]
    compared = ["compare", files.train, "--models", "item-bias", *files.domain, "--delta", "1e-6", "--force"]
    compared += ["--als.iterations", "1", "--out-dir", "out", "--epsilons", "1,inf"]
    for words in ([*line, "--epsilon", "inf", "--out", "m.hush"], compared):
        refused = run(*words)
        assert (
            refused.exit_code == 2
            and "--dataset with a name of its own, or --data-is-public" in refused.stderr
        )
    assert not run.ledger.exists()
    opened = ["ledger", "open", "--dataset", "opened", "--epsilon", "9", "--delta", "1e-6"]
    season = ["season", "open", "--dataset", "weekly", "--epsilon", "9", "--delta", "1e-6", "--weeks", "3"]
    trained = [*line, "--dataset", "charged", "--epsilon", "1", "--out", "m.hush"]
    for words in (opened, season, trained):
        assert run(*words).exit_code == 0
        name = words[words.index("--dataset") + 1]
        before = run("ledger", "show", "--dataset", name, "--json").stdout
        for more in ([*line, "--epsilon", "inf", "--out", "n.hush"], compared):
            refused = run(*more, "--dataset", name)
            assert refused.exit_code == 1 and "were promised: pass --dataset" in refused.stderr
        assert run("ledger", "show", "--dataset", name, "--json").stdout == before
    assert not Path("n.hush").exists() and not Path("out").exists()
    assert run(*compared, "--dataset", "try").exit_code == 0
    said = run(*line, "--dataset", "try", "--epsilon", "1", "--out", "m.hush")
    told = run("report", "m.hush")
    for text in (said.stdout, told.stdout):
        promise = " ".join(text.partition("Promise:")[2].partition("Charged:")[0].split())
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
    assert "this is at the delta of this run" in " ".join(text.split())
    tuned = ["tune", files.train, *files.domain, "--model", "item-bias", "--try", "clip=0.3", *BUDGET]
    text = " ".join(run(*tuned, "--out", "c.hush").stdout.split())
    assert "the best of a random number of runs, 10 on average" in text and "mu = 0 " not in text
    found = parsed(run(*line, "d.hush", "--delta", "1e-7", "--json"))["privacy"]["ledger"]
    assert math.isfinite(float(found["epsilon"])) and found["delta"] == pytest.approx(1e-6 + 1e-7)
    assert Ledger(run.ledger).summary("default", 1e-3).delta == 1e-3


def test_likes_take_no_range_for_public(run, files):
    line = ["train", files.train, "--implicit", "--catalogue", files.catalogue, *BUDGET, "--model", "popular"]
    public = parsed(run(*line, "--out", "m.hush", "--json"))["privacy"]["public"]
    assert "rating range" not in public and "item catalogue" in public


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            ["train", "--rank", "8"],
            "a setting of private-als, private-eigenrec, als, ...: choose one with --model",
        ),
        (
            ["plan", "--bias-clip=1"],
            "a setting of private-als, frank-wolfe, private-frank-wolfe, ...: choose",
        ),
        (["compare", "--rank", "8"], "name one in --models and write --private-als.rank"),
        (["plan", "--implicit"], "a model of likes is planned with --for lists"),
        (["evaluate", "--rank", "8"], "hushrec evaluate has no option --rank;"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_an_option_of_another_model_says_where_it_lives(line, says, run, files):
    words = {
        "train": ["train", files.train, *BUDGET, *files.domain, "--out", "m.hush"],
        "plan": ["plan", *BUDGET, "--items", "50", "--users", "100"],
        "compare": [
            "compare",
            files.train,
            *["--epsilons", "1", "--delta", "1e-6", "--out-dir", "o"],
            *files.domain,
        ],
        "evaluate": ["evaluate", files.model, files.train, files.test],
    }[line[0]]
    refused = run(*words, *line[1:])
    assert refused.exit_code == 2 and says in refused.stderr, refused.stderr


def test_a_missing_column_is_told_by_the_names_that_are_looked_for(run, files):
    Path("shop.csv").write_text("Kunde,Artikel,Sterne\nanna,vase,5\n")
    refused = run("train", "shop.csv", *BUDGET, *files.domain, "--out", "m.hush")
    assert refused.exit_code == 2 and "looked for under names such as user, userid, uid" in refused.stderr
    assert "--columns user=NAME" in refused.stderr
    assert not re.search("Kunde|Artikel|Sterne|anna|vase", refused.stderr)  # the first line may be a row


def test_the_plan_names_the_model_that_it_plans(run):
    line = ["plan", *BUDGET, "--users", "20000", "--items", "500"]
    both, alone = (run(*line, *more).stdout for more in ([], ["--for", "ratings"]))
    assert re.search(r"^both {26}", both, re.M) and "own means both keeps" in both
    assert re.search(r"^private-als {19}", alone, re.M) and "own means private-als keeps" in alone


@pytest.mark.parametrize(("more", "lines"), [([], (2, 3)), (["--columns", "time=time"], (3, 5))])
def test_the_curator_is_told_which_ratings_were_given_again(more, lines, run, files):
    one, two = files.items[:2]
    rows = [
        f"a,{one},3,2024-01-03",
        f"a,{one},4,2024-01-01",
        f"b,{two},1,2024-01-01",
        f"a,{one},2,2024-01-02",
    ]
    Path("again.csv").write_text("\n".join(["user,item,rating,time", *rows, ""]))
    found = parsed(run("check", "again.csv", *files.domain, *more, "--json"))
    (dropped,) = found["dropped"]
    assert dropped["count"] == 2 and tuple(dropped["first"]) == lines and found["usable"] == 2


@pytest.mark.parametrize("audit", ["canaries", "distinguish", "membership"])
def test_a_plot_replaces_nothing_unless_that_is_asked_for(audit, run):
    """Refused before anything is computed."""
    Path("plot.svg").write_bytes(b"mine")
    epsilon = "--epsilons" if audit == "membership" else "--epsilon"
    refused = run("audit", audit, epsilon, "1", "--delta", "1e-6", "--plot", "plot.svg")
    assert refused.exit_code == 2 and "--force" in refused.stderr and refused.stdout == ""
    assert Path("plot.svg").read_bytes() == b"mine"


def test_a_plot_is_replaced_where_that_is_asked_for(run):
    Path("plot.svg").write_bytes(b"mine")
    line = [
        "audit",
        "canaries",
        "--model",
        "item-bias",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--canaries",
        "20",
    ]
    assert run(*line, "--plot", "plot.svg", "--force").exit_code == 0
    assert b"<svg" in Path("plot.svg").read_bytes()
