"""Jobs of a model: lists, ratings or both; likes end to end; similar items; the learned taste dimensions."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hushrec


@pytest.fixture
def shop(run):
    """Four groups of users, each with a separate part of the catalogue; with ratings and without."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(1200), 20)
    own = (users % 4) * 25 + rng.integers(0, 25, len(users))
    items = np.where(rng.random(len(users)) < 0.8, own, rng.integers(0, 100, len(users)))
    ratings = np.where(items // 25 == users % 4, 5.0, 2.0)
    columns = {"user": [f"u{user}" for user in users], "item": [f"sku-{item}" for item in items]}
    pq.write_table(pa.table(columns), "likes.parquet")
    pq.write_table(pa.table(columns | {"rating": ratings}), "ratings.parquet")
    (run.folder / "items.txt").write_text("".join(f"sku-{item}\n" for item in range(100)))
    return ["--delta", "1e-6", "--catalogue", "items.txt", "--users", "1200"]


RANGE = ["--rating-range", "1", "5"]


def trained(run, shop, *words, table="ratings.parquet", epsilon="5"):
    done = run("train", table, "--epsilon", epsilon, *shop, *words, "--out", "m.hush", "--force", "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ([], "both"),
        (["--model", "both"], "both"),
        (["--model", "lists"], "private-eigenrec"),
        (["--model", "ratings"], "private-als"),
        (["--model", "item-bias"], "item-bias"),
    ],
)
def test_a_job_chooses_the_model(run, shop, words, name):
    assert trained(run, shop, *RANGE, *words)["model"] == name
    assert hushrec.load("m.hush").estimator.name == name


@pytest.mark.true("C1")
def test_the_default_has_personal_lists_and_says_so(run, shop):
    found = trained(run, shop, *RANGE)
    assert found["taste"]["directions"] == 3
    lists = set()
    for user in range(4):
        done = run("recommend", "m.hush", "ratings.parquet", "--user", f"u{user}")
        assert "Personal taste: the model learned 3 taste dimensions" in done.stdout
        shown = json.loads(
            run("recommend", "m.hush", "ratings.parquet", "--user", f"u{user}", "--json").stdout
        )
        assert shown["taste"] == found["taste"]
        best = [int(row["item"].removeprefix("sku-")) // 25 for row in shown["items"][:5]]
        assert best.count(user) >= 4
        lists.add(tuple(row["item"] for row in shown["items"]))
    assert len(lists) == 4
    assert "3 taste dimensions" in run("report", "m.hush").stdout
    done = run("recommend", "m.hush", "ratings.parquet", "--all", "--out-dir", "lists")
    assert "3 taste dimensions" in done.stdout


def test_likes_need_no_range_and_the_file_knows_them(run, shop):
    found = trained(run, shop, "--implicit", table="likes.parquet")
    assert found["model"] == "private-eigenrec" and found["likes"] is True
    assert "likes" in run("report", "m.hush").stdout.split("Domain:")[1].splitlines()[0]
    done = run("recommend", "m.hush", "likes.parquet", "--user", "u1", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["known"] is True
    figures = json.loads(run("evaluate", "m.hush", "likes.parquet", "ratings.parquet", "--json").stdout)
    assert figures["rmse"] is None
    assert "rmse" not in run("evaluate", "m.hush", "likes.parquet", "ratings.parquet").stdout
    unknown = run("recommend", "m.hush", "likes.parquet", "--user", "nobody").stdout
    assert "who has no likes of known items" in unknown
    same = run("recommend", "m.hush", "ratings.parquet", "--user", "u1", "--json")
    assert same.stdout == done.stdout, "a row is a like whatever its value"
