"""Seasons on the command line: four weeks of a shop, and every wrong turn."""

import json
import math
import shlex
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushrec.billboard import Billboard, load
from hushrec.data import Store, realistic
from hushrec.errors import InputError
from hushrec.privacy import Bounded, Budget, Gaussian, Ledger, Season, counted, epsilon_of
from tests.command_line import invoke as call


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


def test_four_weeks_of_a_shop(shop, tmp_path):
    opened = json.loads(done("season", "open", *shop.budget, "--weeks", "4", *shop.ledger, "--json"))
    assert [row["part"] for row in opened["plan"]] == [0.5, pytest.approx(1 / 6)]
    assert opened["promised_together"] is None
    done(
        "train",
        "ratings.parquet",
        *shop.budget,
        *shop.domain,
        *shop.ledger,
        "--season",
        "1",
        "--out",
        "0.hush",
    )
    done("retrain", "0.hush", "ratings.parquet", *shop.ledger, "--out", "1.hush")
    grown = ["--catalogue", "grown.txt", "--since", "2023-11-15"]
    done("retrain", "1.hush", "ratings.parquet", *shop.ledger, *grown, "--out", "2.hush")
    fewer = ["--catalogue", "fewer.txt", "--retire"]
    text = done("retrain", "2.hush", "ratings.parquet", *shop.ledger, *fewer, "--out", "3.hush")
    assert "week 3" in text
    model = load("3.hush")
    assert model.privacy.spent_epsilon == pytest.approx(5.0) and model.privacy.week.number == 3
    assert model.domain.n_items == 18 and model.recommend({model.domain.items[0]: 5}, n=2)
    shown = json.loads(done("season", "show", *shop.ledger, "--json"))
    assert shown["seasons"][0]["begun"] == 4 and shown["promised_together"] is None
    default = ["--dataset", "default"]
    for more in ([], ["--delta", "1e-4"]):  # the last run's line is what all cost
        charged = json.loads(done("ledger", "show", *shop.ledger, *default, "--json", *more))
        assert charged["history"][-1]["epsilon"] == pytest.approx(charged["epsilon"], rel=1e-9)
    assert "is spent" in call("retrain", "3.hush", "ratings.parquet", *shop.ledger, "--out", "4.hush").stderr


def test_a_week_of_a_store_is_streamed(shop, monkeypatch):
    done("season", "open", *shop.budget, "--weeks", "4", *shop.ledger)
    first = ["train", "ratings.parquet", *shop.budget, *shop.domain, *shop.ledger, "--season", "1"]
    done(*first, "--out", "0.hush")
    done("prepare", "ratings.parquet", *shop.domain[:5], "--out", "shop.store")

    def whole(store):
        raise AssertionError("a store was read into memory")

    monkeypatch.setattr(Store, "ratings", whole)
    done("retrain", "0.hush", "shop.store", *shop.ledger, "--out", "1.hush")
    assert load("1.hush").privacy.week.number == 1


def test_the_first_week_is_the_line_that_is_printed(shop):
    opened = done("season", "open", *shop.budget, "--dataset", "my shop", "--weeks", "4", *shop.ledger)
    line = next(each for each in opened.splitlines() if "hushrec train" in each)
    words = shlex.split(line.partition("hushrec ")[2].replace("RATINGS", "ratings.parquet"))
    dots = words.index("...")
    words[dots : dots + 1] = [*shop.domain, *shop.ledger, "--model", "item-bias"]
    assert "week 0 of season '1'" in done(*words)


def test_wrong_turns_are_one_sentence_and_spend_nothing(shop, tmp_path):
    done("season", "open", *shop.budget, "--weeks", "4", *shop.ledger)
    train = ["train", "ratings.parquet", *shop.domain, *shop.ledger, "--out", "x.hush"]
    retrain = ["ratings.parquet", *shop.ledger, "--out", "x.hush"]
    done("train", "ratings.parquet", *shop.budget, *shop.domain, "--out", "alone.hush", "--data-is-public")
    done(*train[:-1], "0.hush", *shop.budget, "--season", "1")
    before = json.loads(done("ledger", "show", *shop.ledger, "--json"))["datasets"][0]["charges"]
    wrong = [
        (["season", "open", *shop.budget, "--weeks", "4", *shop.ledger], "pass --add-up"),
        (["season", "open", *shop.budget, "--weeks", "1", *shop.ledger, "--add-up"], "2 or more"),
        ([*train, "--epsilon", "4", "--delta", "1e-6", "--season", "1"], "was opened for"),
        ([*train, *shop.budget, "--season", "7"], "has no season '7'"),
        ([*train, *shop.budget, "--season", "1"], "was run already"),
        ([*train, *shop.budget, "--season", "1", "--data-is-public"], "leave out --data-is-public"),
        ([*train, *shop.budget, "--season", "1", "--resume"], "leave out --resume"),
        (["retrain", "alone.hush", *retrain], "not trained in a season"),
        (["retrain", "0.hush", *retrain, "--catalogue", "fewer.txt"], "pass --retire"),
        (["retrain", "0.hush", *retrain, "--since", "yesterday"], "is no date"),
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
    assert "is closed" in done("season", "close", *shop.ledger)
    assert "was closed" in call("retrain", "0.hush", *retrain).stderr
    assert not (tmp_path / "x.hush").exists()


@pytest.mark.true("D2")
def test_a_line_that_runs_twice_spends_one_week(shop, monkeypatch):
    """By the gap that was declared, or by the number of the week; --early overrides the first."""
    done("season", "open", *shop.budget, "--weeks", "9", "--gap", "6d", *shop.ledger)
    week = [*shop.budget, *shop.domain, *shop.ledger, "--season", "1", "--model", "item-bias"]
    done("train", "ratings.parquet", *week, "--out", "0.hush")
    line = ["ratings.parquet", *shop.ledger, "--force", "--out"]
    soon = call("retrain", "0.hush", *line, "1.hush")
    assert soon.exit_code == 1 and "Week 1 of season '1' is too soon" in soon.stderr
    assert "a gap of 6 days" in soon.stderr and "--early" in soon.stderr
    with monkeypatch.context() as patch:
        patch.setattr("hushrec.privacy.season_book.datetime", Later)
        done("retrain", "0.hush", *line, "1.hush")
    done("retrain", "1.hush", *line, "2.hush", "--early", "--week", "2")
    for number, words in ((2, "Week 2 of season '1' was run already"), (4, "which is week 3")):
        found = call("retrain", "2.hush", *line, "3.hush", "--early", "--week", str(number))
        assert found.exit_code in (1, 2) and words in found.stderr and "Nothing was charged" in found.stderr
    assert Ledger("ledger.sqlite").season("default", "1").begun == 3
    assert "pass days or hours" in call("season", "open", *shop.budget, "--weeks", "9", "--gap", "6").stderr


class Later(datetime):
    """It is six days later."""

    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) + timedelta(days=6)


@pytest.mark.true("D1")
def test_what_is_reserved_is_asked_for_and_shown(shop):
    """With a budget a colleague's run is refused beside a season, without one it asks for --add-up."""
    train = ["train", "ratings.parquet", *shop.domain, *shop.ledger, "--model", "item-bias", "--force"]
    train += ["--out", "x.hush", "--epsilon", "4", "--delta", "1e-6"]
    for name, budget in (("with", ["6"]), ("without", [])):
        place = [*shop.ledger, "--dataset", name]
        if budget:
            done("ledger", "open", *place, "--epsilon", *budget, "--delta", "1e-6")
        done("season", "open", *shop.budget, "--weeks", "4", *place)
        refused = call(*train, "--dataset", name)
        assert refused.exit_code == 1 and "what season '1' reserves until closed" in refused.stderr
        more = call(*train, "--dataset", name, "--add-up")
        assert more.exit_code == bool(budget) and ("pass --add-up" in refused.stderr) != bool(budget)
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
    """A disk that is full before or after the charge, a model cut in half: what is named works."""
    done("season", "open", *shop.budget, "--weeks", "9", *shop.ledger)
    train = ["train", "ratings.parquet", *shop.domain, *shop.ledger, *shop.budget, "--model", "item-bias"]
    done(*train, "--season", "1", "--out", "0.hush")
    Path("half.hush").write_bytes(Path("0.hush").read_bytes()[:900])
    retrain = ["retrain", "0.hush", "ratings.parquet", *shop.ledger, "--out"]
    half = call("retrain", "half.hush", *retrain[2:], "1.hush")
    assert "Nothing was charged. A season goes on from a copy" in half.stderr

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("hushrec.cli.files.os.posix_fallocate", full)
        early = call(*retrain, "1.hush")
    assert early.exit_code == 2 and "There is no room for '1.hush'" in early.stderr
    assert Ledger("ledger.sqlite").season("default", "1").begun == 1
    alone = [*train, "--dataset", "alone", "--out", "x.hush"]
    done("season", "open", *shop.budget, "--weeks", "9", *shop.ledger, "--dataset", "first")
    first = [*train, "--dataset", "first", "--season", "1", "--out", "x.hush"]
    with monkeypatch.context() as patch:
        patch.setattr("hushrec.modelfile.tempfile.mkstemp", full)
        for line, mends in (
            (alone, "--resume"),
            ([*retrain, "1.hush"], "--skip-week"),
            (first, "close the season"),
        ):
            late = call(*line)
            assert late.exit_code == 1 and "could not be saved" in late.stderr and mends in late.stderr
    assert not list(tmp_path.glob("*.part"))
    done(*alone, "--resume")
    assert load("x.hush").privacy.ledger.runs == 1
    done(*retrain, "1.hush", "--skip-week")
    assert load("1.hush").privacy.week.number == 2


def test_what_is_told_reaches_the_next_week(shop, tmp_path, monkeypatch):
    """The ledger that is named, the domain and options of the line; the last model is not written over."""
    done("season", "open", *shop.budget, "--weeks", "4", *shop.ledger)
    week = [*shop.budget, *shop.domain, *shop.ledger, "--season", "1", "--model", "private-als"]
    done("train", "ratings.parquet", *week, "--out", "0.hush")
    items = (tmp_path / "grown.txt").read_text().split()
    (tmp_path / "genres.csv").write_text("\n".join(["item,drama", *(f"{item},1" for item in items)]) + "\n")
    line = ["retrain", "0.hush", "ratings.parquet", *shop.ledger]
    for force in ([], ["--force"]):
        over = call(*line, "--out", "0.hush", *force)
        assert over.exit_code == 2 and "0.hush" in over.stderr
    told = []

    def stops(self, rows, accountant, **options):
        told.append((self, rows, accountant, options))
        accountant.release(Bounded(np.zeros(1), counted(1.0)), Gaussian(1000.0), "cut short")
        raise InputError("that is enough")

    monkeypatch.setattr(Billboard, "continue_training", stops)
    more = ["--catalogue", "grown.txt", "--retire", "--since", "2023-11-15", "--item-features", "genres.csv"]
    for options in ([], [*more, "--skip-week"]):
        assert "that is enough" in call(*line, "--out", "1.hush", *options).stderr
    (last, rows, week, plain), (_, grown, skipped, full) = told
    assert last.to_bytes() == load("0.hush").to_bytes() and rows.domain is last.domain
    assert plain == {"since": None, "retire": False, "progress": False}
    assert full == {"since": "2023-11-15", "retire": True, "progress": False}
    assert list(grown.domain.items) == items and grown.domain.item_features.tolist() == [[1.0]] * 21
    assert grown.domain.declared and grown.n_ratings == rows.n_ratings == 800
    assert rows.times is None and grown.times is not None
    assert (week.week.number, skipped.week.number) == (1, 2)
    assert week.ledger.path == tmp_path / "ledger.sqlite" and week.after.number == 0


def test_a_model_that_cannot_go_on_spends_nothing_of_a_season(shop):
    """Killed: the number of users is released before the model is refused, and week 0 is lost."""
    done("season", "open", *shop.budget, "--weeks", "4", *shop.ledger)
    train = ["train", "ratings.parquet", *shop.domain[:-2], *shop.ledger, *shop.budget, "--season", "1"]
    found = call(*train, "--model", "private-frank-wolfe", "--out", "x.hush")
    assert found.exit_code == 2 and "cannot go on from week to week" in found.stderr
    assert Ledger("ledger.sqlite").season("default", "1").charges == 0


def test_a_season_is_planned_without_data(tmp_path, monkeypatch):
    """Later weeks are expected to be better, the last as good as the whole budget at once."""
    monkeypatch.chdir(tmp_path)
    sizes = ["--users", "6000", "--items", "2000", "--epsilon", "5", "--delta", "1e-6"]
    found = json.loads(done("plan", *sizes, "--season", "52", "--json"))["season"]
    values = [week["value"] for week in found["weeks"]]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(found["never_again"]["value"])
    assert found["from_scratch"]["value"] > values[0]
    assert "pass --season" in call("plan", *sizes, "--plot", "x.png").stderr
    before = mpl.get_backend()
    assert "Plot: x.png" in done("plan", *sizes, "--season", "52", "--plot", "x.png")
    assert Path("x.png").read_bytes()[:4] == b"\x89PNG" and mpl.get_backend() == before


def test_seasons_together_are_promised_at_the_last_ones_delta(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    budgets = [Budget(2.0, 1e-6), Budget(1.0, 1e-7), Budget(1.0, 1e-5)]
    ledger = Ledger("ledger.sqlite")
    for number, budget in enumerate(budgets[:2]):
        ledger.open_season("shop", Season(budget, 4, name=str(number + 1)), add_up=True)
    last = ["--epsilon", "1", "--delta", "1e-5", "--weeks", "4", "--add-up", "--json"]
    opened = json.loads(done("season", "open", "--ledger", "ledger.sqlite", "--dataset", "shop", *last))
    found = json.loads(done("season", "show", "--ledger", "ledger.sqlite", "--dataset", "shop", "--json"))
    mu = math.sqrt(sum(budget.mu**2 for budget in budgets))
    for told in (opened, found):
        assert told["promised_together"] == pytest.approx({"epsilon": epsilon_of(mu, 1e-5), "delta": 1e-5})
    text = done("season", "show", "--ledger", "ledger.sqlite", "--dataset", "shop")
    assert text.count("part of mu^2") == 3 and "All 3 seasons together" in text


def test_a_season_is_closed_by_name_where_several_are_open(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shop = ("--ledger", "ledger.sqlite", "--dataset", "shop")
    promise = ("--epsilon", "1", "--delta", "1e-6", "--weeks", "2", "--add-up")
    of_ratings = call("season", "open", *shop, *promise, "--unit", "rating")
    assert of_ratings.exit_code == 2 and "leave --unit out" in of_ratings.stderr
    for number in range(3):
        opened = json.loads(done("season", "open", *shop, *promise, "--json"))
        assert (opened["name"], opened["closed"]) == (str(number + 1), False)
    for still, words in ((3, ["--name", "2"]), (2, ["--name", "3"]), (1, []), (0, None)):
        if still != 1:
            refused = call("season", "close", *shop)
            said = f'Data set "shop" has {still} open seasons; pass --name.'
            assert refused.exit_code == 2 and said in " ".join(refused.stderr.split())
        if words is not None:
            closed = json.loads(done("season", "close", *shop, *words, "--json"))
            assert closed["closed"] and closed["name"] == (words or ["1"])[-1]
            assert Path(closed["ledger"]).name == "ledger.sqlite"


def test_a_closed_data_set_has_nothing_left_to_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shop = ("--ledger", "ledger.sqlite", "--dataset", "shop")
    done("ledger", "open", *shop, "--epsilon", "1", "--delta", "1e-6")
    assert "; nothing of it is spent." in " ".join(done("ledger", "show", *shop).split())
    done("ledger", "close", *shop)
    said = " ".join(done("ledger", "show", *shop).split())
    assert "and it is closed" in said and "nothing of it is spent" not in said
