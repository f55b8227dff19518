"""A plan: its cost, and the public tables most similar to the declared data."""

import json
import re

import numpy as np
import pytest

from hushrec.errors import InputError
from hushrec.evaluation.measured import TABLE, nearest

SIZES = ["--users", "1000", "--items", "2000", "--epsilon", "1", "--delta", "1e-6"]
RANGE = ["--rating-range", "1", "5"]


@pytest.mark.parametrize("model", ["both", "private-als", "private-eigenrec", "item-bias"])
@pytest.mark.parametrize("ranged", [True, False])
def test_a_plan_in_words_is_that_in_numbers(model, ranged, run):
    line = ["plan", *SIZES, "--model", model, *(RANGE if ranged else [])]
    text, found = run(*line).stdout, json.loads(run(*line, "--json").stdout)
    lines = text.splitlines()
    assert lines[0] == f"Model:      {model}"
    assert lines[1] == "Budget:     epsilon = 1 at delta = 1e-06 (unit: user, relation: add-remove)"
    assert len(lines) <= 24 and all(len(row) <= 80 for row in lines)
    planned = ranged or model == "private-eigenrec"  # likes need no range
    assert ("releases" in found) == planned == (run(*line, "--releases").exit_code == 0)
    assert len(found["measured"]) == 3
    for row in found["measured"]:
        assert (
            row["table"] in text and f"{row['recall']:.3f}" in text and f"{row['recall_donors']:.3f}" in text
        )
    if planned:
        more = run(*line, "--releases", "--settings").stdout
        share = found["settings"].get("lists_share")
        assert ("Lists get" in text) == (share is not None)
        assert share is None or f"Lists get {100 * share:.0f}% of the budget" in text
        assert all(release["label"] in more for release in found["releases"]) and "Settings:" in more
        assert found["planned_epsilon"] <= 1 + 1e-9
        squares = [(release["sensitivity"] / release["noise_sd"]) ** 2 for release in found["releases"]]
        shares = [release["share"] for release in found["releases"]]
        assert shares == pytest.approx([square / sum(squares) for square in squares])
        assert re.findall(r"([0-9.]+)%$", more, re.MULTILINE) == [f"{100 * share:.1f}" for share in shares]


def test_the_tables_are_those_that_are_most_like_the_plan() -> None:
    """Each is nearer than any other in one of its figures: users, items, epsilon and ratings of a user."""
    first = nearest(6000, 3700, 1.0)[0]
    assert (first.table, first.n_users, first.epsilon) == ("MovieLens-1M", 6040, 1.0)
    assert nearest(6000, 3700, 12.0)[0].epsilon > nearest(6000, 3700, 1.0)[0].epsilon
    shop = [row.table for row in nearest(3000, 9000, 1.0, 20)]
    assert shop[0] == "RetailRocket (shop)" and "MovieLens-1M" not in shop
    assert len(set(shop)) == 3
    rng, rows = np.random.default_rng(0), json.loads(TABLE.read_text(encoding="utf-8"))
    names = ["n_users", "n_items", "epsilon", "ratings_per_user"]
    known = np.log([[row[name] for name in names] for row in rows])
    for declared in np.exp(rng.uniform(known.min(axis=0), known.max(axis=0), (50, 4))):
        order = np.argsort(np.linalg.norm(known - np.log(declared), axis=1), kind="stable")
        tables = list(dict.fromkeys(rows[place]["table"] for place in order))
        assert [row.table for row in nearest(*declared)] == tables[:3]
    for wrong in ((0, 10, 1.0), (10, 10, float("nan")), (10, 10, 1.0, -1)):
        with pytest.raises(InputError):
            nearest(*wrong)


@pytest.mark.true("P2")
def test_where_public_data_decide_plan_and_train_say_so(run, tmp_path, monkeypatch) -> None:
    """On a shop's long tail more budget does little: by declared sizes, and where no taste was learned.

    Jokes' lists are nearly perfect already: donors add less than a hundredth there, as more budget does.
    """
    said = "public data decide, not more budget"
    line = ["--epsilon", "1", "--delta", "1e-6"]
    for items, users, decides in ((9000, 1000, True), (1500, 1000, False), (100, 25_000, False)):
        plan = run("plan", *line, "--items", str(items), "--users", str(users)).stdout
        assert (said in plan) == decides and len(plan.splitlines()) <= 24
    assert "Jester" in plan
    line += ["--users", "1000"]
    assert said not in run("plan", *line, "--items", "9000", "--model", "item-bias").stdout
    monkeypatch.chdir(tmp_path)
    items = [f"i{number}" for number in range(9000)]
    (tmp_path / "items.txt").write_text("\n".join(items))
    rows = [f"u{number % 100},{items[number**2 % 9000]}" for number in range(500)]
    (tmp_path / "likes.csv").write_text("\n".join(["user,item", *rows]))
    line += ["--implicit", "--catalogue", "items.txt", "--ledger", "ledger", "--out", "m.hush"]
    trained = " ".join(run("train", "likes.csv", *line).stdout.split())
    assert said in trained and "RetailRocket" in trained


def test_a_delta_that_promises_nothing_is_warned_of_in_plan_and_train(run, files):
    line = ["--epsilon", "1", *RANGE, "--users", "200", "--model", "item-bias"]
    for delta, warned in (("0.005", True), ("0.0049", False)):
        done = run("plan", "--items", "40", *line, "--delta", delta)
        assert done.exit_code == 0 and ("at least 1 / 200 users" in done.stderr) == warned
    train = ["train", files.train, *line, "--catalogue", files.catalogue, "--delta", "0.01"]
    assert "at least 1 / 200 users" in run(*train, "--out", "m.hush").stderr


def test_a_plan_without_privacy_says_so_in_its_first_line(run):
    done = run("plan", *SIZES[:4], "--epsilon", "inf", *RANGE, "--model", "als")
    assert done.stdout.splitlines()[0].endswith("NOT PRIVATE") and "Measured" not in done.stdout
