"""The frontier for outsiders: an estimator from outside, and files of the published benchmarks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.frontier import data, own, tables
from docs._ext.execute import run_page
from examples import ml20m
from hushrec.errors import InputError
from hushrec.models import Popular

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "own-model.md"


def test_the_other_blocks_of_the_page_run():
    assert [printed for _, printed in run_page(PAGE.read_text())] == ["", "", "True\n"]


def run(code, folder):
    """Run code in a process with small data sets."""
    env = os.environ | {"TOY": "1", "HUSHREC_DATA": str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, cwd=ROOT)


def test_the_ten_lines_of_the_page_put_an_own_mechanism_on_the_frontier(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (code,) = [each for each in blocks if "beside" in each]
    assert len(code.strip().splitlines()) <= 10
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    head, _, row = done.stdout.splitlines()
    assert head == "| test RMSE | 1 | 5 |" and re.match(r"\| my-mean \(yours\) \| \S+.* \| \S+.* \|", row)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((Popular, "synthetic"), "scores likes"),
        (("popular", "synthetic"), "pass the class"),
        ((Popular, "netflix"), "no data set 'netflix'"),
        ((Popular, "ml-10m"), "no data set 'ml-10m'"),
        ((type("Mine", (Popular,), {"name": "dpals"}), "synthetic"), "another name"),
        ((type("Mine", (Popular,), {"name": "mine", "scores": "ratings"}), "synthetic", [3]), "no epsilon 3"),
    ],
)
def test_what_the_frontier_does_not_have_is_refused(given, says, monkeypatch):
    monkeypatch.delenv("HUSHREC_DATA", raising=False)
    with pytest.raises(InputError, match=says):
        own.beside(*given)


def test_a_row_of_an_unknown_method_is_refused():
    row = {"method": "mine", "epsilon": 1.0, "rmse": 0.9, "draw": 0}
    with pytest.raises(ValueError, match="'mine' is no method of coat"):
        tables.markdown("coat", [row], "rmse")


def triplets(n_users=60, n_items=40, seed=0):
    rng = np.random.default_rng(seed)
    cells = rng.choice(n_users * n_items, n_users * n_items // 2, replace=False)
    steps = rng.integers(1, 11, len(cells)) / 2
    return pd.DataFrame({"user": cells // n_items + 1, "item": cells % n_items + 1, "rating": steps})


def test_movielens_10m_is_read_and_split_as_the_reference_code_does(tmp_path, monkeypatch):
    table = triplets()
    (tmp_path / "ml-10M100K").mkdir()
    lines = [f"{u}::{i}::{r:g}::97830{n}" for n, (u, i, r) in enumerate(table.itertuples(index=False))]
    (tmp_path / "ml-10M100K/ratings.dat").write_text("\n".join(lines))
    monkeypatch.setenv("HUSHREC_DATA", str(tmp_path))
    assert data.available("ml-10m")
    parts = data.DATASETS["ml-10m"].load(0)
    train = table.sample(frac=0.8, random_state=1234)
    rest = table.drop(train.index)
    test = rest.drop(rest.sample(frac=0.5, random_state=1234).index)
    for found, expected in ((parts.train, train), (parts.targets["rmse"], test)):
        assert cells_of(found) == {(str(u), int(i), r) for u, i, r in expected.itertuples(index=False)}
    assert parts.history.n_ratings == len(table) - len(test)


def cells_of(ratings):
    users = np.repeat(ratings.user_texts.to_pylist(), np.diff(ratings.matrix.indptr))
    items = np.asarray(ratings.domain.items)[ratings.matrix.indices]
    return {(str(u), int(i), float(r)) for u, i, r in zip(users, items, ratings.matrix.data)}


@pytest.mark.parametrize("name", ["ml-20m-likes", "msd-likes"])
def test_likes_are_split_by_users_as_published(name, tmp_path, monkeypatch, capsys):
    """No test user trains; each has a fifth of their likes judged; items are those of the training users."""
    monkeypatch.setenv("HUSHREC_DATA", str(tmp_path))
    n_users = 60 if name == "ml-20m-likes" else 500
    table = triplets(n_users)
    if name == "ml-20m-likes":
        (tmp_path / "ml-20m").mkdir()
        named = table.rename(columns={"user": "userId", "item": "movieId"}).assign(timestamp=1)
        named.to_csv(tmp_path / "ml-20m/ratings.csv", index=False)
        table, least = table[table["rating"] >= 4], 5
        ml20m.main(tmp_path / "ml-20m")
        figures = re.findall(r"[01]\.\d{3}", capsys.readouterr().out)
        assert len(figures) == 15 and figures[4::5] == ["0.391", "0.521", "0.420"]
    else:
        table.assign(rating=1).to_csv(tmp_path / "train_triplets.txt", sep="\t", header=False, index=False)
        counts = table["item"].value_counts()
        table, least = table[table["item"].map(counts) >= 200], 20
    table = table[table["user"].map(table["user"].value_counts()) >= least]
    parts = data.DATASETS[name].load(0)
    rows = parts.train, parts.history, parts.targets["recall@20"]
    train, history, target = map(cells_of, rows)
    users = [{u for u, *_ in part} for part in (train, history, target)]
    assert not users[0] & users[1] and users[2] <= users[1]
    everything = {(str(u), int(i)) for u, i, _ in table.itertuples(index=False)}
    known = {i for _, i, _ in train}
    assert {(u, i) for u, i, _ in train | history | target} <= everything
    assert len(users[1]) == len({u for u, _ in everything}) // 4
    for user in users[1]:
        own_likes = {i for u, i in everything if u == user} & known
        judged = {i for u, i, _ in target if u == user}
        assert judged | {i for u, i, _ in history if u == user} == own_likes
        assert len(judged) == (int(0.2 * len(own_likes)) if len(own_likes) >= 5 else 0)
