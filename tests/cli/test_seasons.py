"""Seasons on the command line: four weeks of a shop, and every wrong turn."""

import json
import math
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushrec.cli.ledger_show import growth
from hushrec.data import realistic
from hushrec.privacy import Budget, Ledger, Release, epsilon_of
from hushrec.serving.model import load
from tests.command_line import invoke as call


@pytest.mark.parametrize("count", [3, 8, 12])
def test_the_last_runs_of_a_ledger_are_listed_by_their_numbers(tmp_path, count):
    book, budget = Ledger(tmp_path / "ledger.sqlite"), Budget(1, 1e-6)
    for number in range(1, 11):
        book.charge("shop", f"run {number}", Release("one", budget.share(0.01), 1.0, "user", "add-remove"))
    shown = growth(book.history("shop", 1e-6), count).split("\n")
    rows = [line.split() for line in shown if line.strip()[:1].isdigit() and "T" in line]
    assert [int(row[0]) for row in rows] == list(range(max(1, 11 - count), 11))
    for row in rows:
        assert float(row[-1]) == pytest.approx(
            epsilon_of(math.sqrt(0.01 * int(row[0])) * budget.mu, 1e-6), rel=1e-4
        )
    assert ("7 earlier runs: --runs" in shown) == (count == 3)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A folder with a table of ratings with their times, two catalogues, and a ledger."""
    monkeypatch.chdir(tmp_path)
    ratings = realistic(80, 20, 800, seed=4)
    table = ratings.to_arrow()
    times = pa.array([1_700_000_000 + 1000 * row for row in range(table.num_rows)])
    pq.write_table(table.append_column("time", times), "ratings.parquet")
    items = list(ratings.domain.items)
    (tmp_path / "items.txt").write_text("\n".join(items))
    (tmp_path / "grown.txt").write_text("\n".join([*items, "new"]))
    (tmp_path / "fewer.txt").write_text("\n".join(items[2:]))
    return SimpleNamespace(
        budget=["--epsilon", "5", "--delta", "1e-6"],
        ledger=["--ledger", "ledger.sqlite"],
        domain=["--rating-range", "1", "5", "--catalogue", "items.txt", "--users", "80"],
    )


def done(*words):
    found = call(*words)
    assert found.exit_code == 0, found.stderr
    return found.stdout


def test_an_attendance_counts_and_a_season_has_no_end(shop, tmp_path):
    """Weeks of users who weigh nothing print the same, and any week may begin a new model."""
    done("season", "open", *shop.budget, "--first", "0.9", "--decay", "0.1", *shop.ledger)
    train = ["train", "ratings.parquet", *shop.budget, *shop.domain, *shop.ledger, "--season", "1"]
    retrain = ["retrain", "ratings.parquet", *shop.ledger]
    counted = [word for word in train if word not in ("--users", "80")]  # as the guide has it
    assert "one of the inputs" in call(*counted, "--attendance", "people", "--out", "people").stderr
    done(*counted, "--attendance", "people", "--out", "0.hush")
    assert Path("people").stat().st_mode & 0o077 == 0
    told = []
    for number in range(1, 6):
        last, out = f"{number - 1}.hush", f"{number}.hush"
        given = ["--attendance", "people", "--out", out, "--json"]
        told.append(json.loads(done("retrain", last, *retrain[1:], *given)))
    assert load("5.hush").privacy.week.number == 5
    assert [each.keys() for each in told[1:]] == [told[0].keys()] * 4
    done(*train, "--attendance", "people", "--out", "new.hush")
    assert load("new.hush").privacy.week.number == 6
    summary = json.loads(done("season", "show", *shop.ledger, "--json"))["seasons"][0]
    assert summary["begun"] == 7 and summary["charged"]["epsilon"] == pytest.approx(5)
    shared = ["--attendance", "people", "--out", "people", "--force"]
    assert call(*train, *shared).exit_code == 2 and Path("people").read_bytes()[32:].startswith(b"{")
    one_run = ["train", "ratings.parquet", *shop.budget, *shop.domain, *shop.ledger, "--out", "no.hush"]
    assert "Only a season has an attendance" in call(*one_run, "--attendance", "people").stderr


def test_four_weeks_of_a_shop(shop, tmp_path):
    opened = json.loads(done("season", "open", *shop.budget, *shop.ledger, "--json"))
    assert [row["training"] for row in opened["plan"]] == [1, 2, 5, 14, 27]
    parts = [row["part"] for row in opened["plan"]]
    assert parts[0] > 1 / 3 and parts == sorted(parts, reverse=True)
    assert opened["promised_together"] is None
    first = ["train", "ratings.parquet", *shop.budget, *shop.domain, *shop.ledger]
    done(*first, "--season", "1", "--out", "0.hush")
    done("retrain", "0.hush", "ratings.parquet", *shop.ledger, "--out", "1.hush")
    grown = ["--catalogue", "grown.txt", "--since", "2023-11-15"]
    done("retrain", "1.hush", "ratings.parquet", *shop.ledger, *grown, "--out", "2.hush")
    fewer = ["--catalogue", "fewer.txt", "--drop-missing-items"]
    text = done("retrain", "2.hush", "ratings.parquet", *shop.ledger, *fewer, "--out", "3.hush")
    assert "week 3" in text
    model = load("3.hush")
    slice_of_mu = parts[0] * Budget(5, 1e-6).mu ** 2
    alone = epsilon_of(math.sqrt(slice_of_mu), 1e-6)
    assert model.privacy.spent_epsilon == pytest.approx(alone) and model.privacy.week.number == 3
    assert model.domain.n_items == 18 and model.recommend({model.domain.items[0]: 5}, n=2)
    shown = json.loads(done("season", "show", *shop.ledger, "--json"))
    assert shown["seasons"][0]["begun"] == 4 and shown["promised_together"] is None
    default = ["--dataset", "default"]
    for more in ([], ["--delta", "1e-4"]):  # the last run's line is what all cost
        charged = json.loads(done("ledger", "show", *shop.ledger, *default, "--json", *more))
        assert charged["history"][-1]["epsilon"] == pytest.approx(charged["epsilon"], rel=1e-9)
    text = done("season", "show", *shop.ledger)
    assert "4 weeks were run" in text and "After 52 trainings a user weighs nothing" in " ".join(text.split())


def test_wrong_turns_are_one_sentence_and_spend_nothing(shop, tmp_path):
    done("season", "open", *shop.budget, *shop.ledger)
    train = ["train", "ratings.parquet", *shop.domain, *shop.ledger, "--out", "x.hush"]
    retrain = ["ratings.parquet", *shop.ledger, "--out", "x.hush"]
    done("train", "ratings.parquet", *shop.budget, *shop.domain, "--out", "alone.hush", "--data-is-public")
    done(*train[:-1], "0.hush", *shop.budget, "--season", "1")
    before = json.loads(done("ledger", "show", *shop.ledger, "--json"))["datasets"][0]["charges"]
    wrong = [
        (["season", "open", *shop.budget, *shop.ledger], "pass --allow-composition"),
        (["season", "open", *shop.budget, *shop.ledger, "--decay", "1"], "--decay=1.0 is out of range"),
        (["season", "open", *shop.budget, *shop.ledger, "--first", "0.01"], "pass a larger first or decay"),
        ([*train, "--epsilon", "4", "--delta", "1e-6", "--season", "1"], "was opened for"),
        ([*train, *shop.budget, "--season", "7"], "has no season '7'"),
        ([*train, *shop.budget, "--season", "1", "--data-is-public"], "leave out --data-is-public"),
        ([*train, *shop.budget, "--season", "1", "--resume"], "leave out --resume"),
        (["retrain", "alone.hush", *retrain], "not trained in a season"),
        (["retrain", "0.hush", *retrain, "--catalogue", "fewer.txt"], "pass --drop-missing-items"),
        (["retrain", "0.hush", *retrain, "--since", "yesterday"], "is not a date"),
        (["retrain", "0.hush", *retrain, "--week", "-1"], "--week -1"),
        (
            ["retrain", "0.hush", "ratings.parquet", "--ledger", "other.sqlite", "--out", "x.hush"],
            "no ledger",
        ),
        (["season", "show", *shop.ledger, "--dataset", "other"], "has no season"),
    ]
    for words, sentence in wrong:
        found = call(*words)
        assert found.exit_code in (1, 2) and sentence in found.stderr, (words, found.stderr)
        assert found.stderr.count("Error:") == 1
    assert json.loads(done("ledger", "show", *shop.ledger, "--json"))["datasets"][0]["charges"] == before
    closed = done("season", "close", *shop.ledger)
    assert "is closed" in closed and "It frees " in closed
    assert "was closed" in call("retrain", "0.hush", *retrain).stderr
    assert not (tmp_path / "x.hush").exists()


@pytest.mark.true("D2")
def test_a_line_that_runs_twice_spends_one_week(shop, monkeypatch):
    """The declared gap or the number of the week prevents a second one; --early overrides the gap."""
    done("season", "open", *shop.budget, "--gap", "6d", *shop.ledger)
    week = [*shop.budget, *shop.domain, *shop.ledger, "--season", "1", "--model", "item-bias"]
    done("train", "ratings.parquet", *week, "--out", "0.hush")
    line = ["ratings.parquet", *shop.ledger, "--force", "--out"]
    soon = call("retrain", "0.hush", *line, "1.hush")
    assert soon.exit_code == 1 and "Week 1 of season '1' is too soon" in soon.stderr
    assert "a gap of 6 days" in soon.stderr and "--early" in soon.stderr
    with monkeypatch.context() as patch:
        patch.setattr("hushrec.privacy.ledger_rules.datetime", Later)
        done("retrain", "0.hush", *line, "1.hush")
    done("retrain", "1.hush", *line, "2.hush", "--early", "--week", "2")
    for number, words in ((2, "Week 2 of season '1' was run already"), (4, "which is week 3")):
        found = call("retrain", "2.hush", *line, "3.hush", "--early", "--week", str(number))
        assert found.exit_code in (1, 2) and words in found.stderr and "Nothing was charged" in found.stderr
    assert Ledger("ledger.sqlite").season("default", "1").begun == 3
    assert "pass days or hours" in call("season", "open", *shop.budget, "--gap", "6").stderr


class Later(datetime):
    """A clock that is six days ahead."""

    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) + timedelta(days=6)


@pytest.mark.true("D1")
def test_what_is_reserved_is_asked_for_and_shown(shop):
    """During a season a run is refused if the data set has a budget; otherwise it asks for
    --allow-composition."""
    train = ["train", "ratings.parquet", *shop.domain, *shop.ledger, "--model", "item-bias", "--force"]
    train += ["--out", "x.hush", "--epsilon", "4", "--delta", "1e-6"]
    for name, budget in (("with", ["6"]), ("without", [])):
        place = [*shop.ledger, "--dataset", name]
        if budget:
            done("ledger", "open", *place, "--epsilon", *budget, "--delta", "1e-6")
        done("season", "open", *shop.budget, *place)
        refused = call(*train, "--dataset", name)
        assert refused.exit_code == 1 and "season '1'" in refused.stderr
        more = call(*train, "--dataset", name, "--allow-composition")
        assert more.exit_code == bool(budget) and ("pass --allow-composition" in refused.stderr) != bool(
            budget
        )
    mu = math.hypot(Budget(5, 1e-6).mu, Budget(4, 1e-6).mu)
    both = f"epsilon = {epsilon_of(mu, 1e-6):.6g} at delta = 1e-06"
    assert both in refused.stderr and both in " ".join(more.stdout.split())
    listed = json.loads(done("ledger", "show", *shop.ledger, "--json"))["datasets"]
    assert [each["dataset"] for each in listed] == ["with", "without"]
    shares = {name: json.loads(done("season", "show", *shop.ledger, "--dataset", name, "--json")) for name in
              ("with", "without")}  # fmt: skip
    part = (Budget(5, 1e-6).mu / Budget(6, 1e-6).mu) ** 2
    assert shares["with"]["shares"] == pytest.approx({"spent": 0.0, "reserved": part, "free": 1 - part})
    part = (Budget(4, 1e-6).mu / mu) ** 2
    assert [each["spent"] for each in shares["without"]["models"]] == [0.0, pytest.approx(part * mu**2)]
    assert "no budget is set" in done("ledger", "show", *shop.ledger, "--dataset", "without")
    low = call("ledger", "open", *shop.ledger, "--dataset", "with", "--epsilon", "4", "--delta", "1e-6")
    assert low.exit_code == 1 and "with what season '1' reserves until closed" in low.stderr
    done("season", "close", *shop.ledger, "--dataset", "with")
    done(*train, "--dataset", "with")


@pytest.mark.true("D2")
def test_what_goes_wrong_with_a_file_names_what_mends_it(shop, tmp_path, monkeypatch):
    """A disk that is full before or after the charge, a model cut in half: the named repair works."""
    done("season", "open", *shop.budget, *shop.ledger)
    train = ["train", "ratings.parquet", *shop.domain, *shop.ledger, *shop.budget, "--model", "item-bias"]
    done(*train, "--season", "1", "--out", "0.hush")
    Path("half.hush").write_bytes(Path("0.hush").read_bytes()[:900])
    retrain = ["retrain", "0.hush", "ratings.parquet", *shop.ledger, "--out"]
    half = call("retrain", "half.hush", *retrain[2:], "1.hush")
    assert "Nothing was charged. Pass a copy of the last" in half.stderr

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("hushrec.cli.files.os.posix_fallocate", full)
        early = call(*retrain, "1.hush")
    assert early.exit_code == 2 and "There is no room for '1.hush'" in early.stderr
    assert Ledger("ledger.sqlite").season("default", "1").begun == 1
    alone = [*train, "--dataset", "alone", "--out", "x.hush"]
    done("season", "open", *shop.budget, *shop.ledger, "--dataset", "first")
    first = [*train, "--dataset", "first", "--season", "1", "--out", "x.hush"]
    with monkeypatch.context() as patch:
        patch.setattr("hushrec.serving.modelfile.whole", full)
        for line, mends in (
            (alone, "--resume"),
            ([*retrain, "1.hush"], "--skip-week"),
            (first, "train a new one"),
        ):
            late = call(*line)
            assert late.exit_code == 1 and "but not saved" in late.stderr and mends in late.stderr
    assert not list(tmp_path.glob("*.part"))
    done(*alone, "--resume")
    assert load("x.hush").privacy.ledger.runs == 1
    done(*retrain, "1.hush", "--skip-week")
    assert load("1.hush").privacy.week.number == 2


def test_a_model_that_cannot_go_on_spends_nothing_of_a_season(shop):
    """Killed: the number of users is released before the model is refused, and week 0 is lost."""
    done("season", "open", *shop.budget, *shop.ledger)
    train = ["train", "ratings.parquet", *shop.domain[:-2], *shop.ledger, *shop.budget, "--season", "1"]
    found = call(*train, "--model", "private-frank-wolfe", "--out", "x.hush")
    assert found.exit_code == 2 and "does not support seasons" in found.stderr
    assert Ledger("ledger.sqlite").season("default", "1").charges == 0


def test_several_open_seasons_are_closed_by_name(run):
    for more in ([], ["--allow-composition"]):
        line = ["season", "open", "--dataset", "shop", "--epsilon", "1", "--delta", "1e-6", *more]
        assert run(*line).exit_code == 0
    close = ["season", "close", "--dataset", "shop", "--json"]
    refused = run(*close)
    assert refused.exit_code == 2 and "has several open seasons; pass --name" in refused.stderr
    for more, name in (["--name", "2"], "2"), ([], "1"):
        told = json.loads(run(*close, *more).stdout)
        assert told["name"] == name and told["closed"]
        assert told["freed"] == pytest.approx(Budget(1, 1e-6).mu ** 2)  # nothing was trained
