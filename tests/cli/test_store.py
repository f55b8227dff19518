"""The command line on stores: prepare, and a store wherever a file is taken."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hushrec
from tests.cli.test_errors import charges


@pytest.fixture
def stored(run, files, tmp_path):
    """A store of the training part."""
    out = str(tmp_path / "train.store")
    result = run("prepare", files.train, *files.domain, "--out", out, "--partitions", "3")
    assert result.exit_code == 0, result.stderr
    return out


def test_prepare_says_that_what_it_prints_is_private(run, files, stored):
    shown = run("prepare", files.train, files.test, *files.domain, "--out", "both", "--json")
    found = json.loads(shown.stdout)
    assert found["note"].startswith("PRIVATE") and found["users"] == 200 and shown.stderr == ""
    one = run("prepare", files.train, *files.domain, "--partitions", "1", "--out", "one")
    assert "in 1 partition\n" in one.stdout
    assert found["ratings"] == sum(pq.read_table(p).num_rows for p in (files.train, files.test))
    table = pq.read_table(files.train)
    pq.write_table(table.append_column("date", table["rating"]), "timed.parquet")
    n_users = len(table["user"].unique())
    text = run("prepare", "timed.parquet", *files.domain, "--out", "again", "--times")
    assert text.exit_code == 0 and "PRIVATE" in text.stdout and f"{n_users} users" in text.stdout
    assert hushrec.Store("again").ratings().times is not None
    assert charges(run) == 0


def test_every_command_takes_a_store(run, files, stored, tmp_path):
    test = str(tmp_path / "test.store")
    assert run("prepare", files.test, *files.domain, "--out", test).exit_code == 0
    figures = [
        json.loads(run("evaluate", files.model, *pair, "--json").stdout)
        for pair in ((files.train, files.test), (stored, test))
    ]
    assert figures[0]["rmse"] == pytest.approx(figures[1]["rmse"])
    user = str(pq.read_table(files.train)["user"][0].as_py())
    lists = [run("recommend", files.model, each, "--user", user).stdout for each in (files.train, stored)]
    assert lists[0] == lists[1] and user in lists[0]
    (run.folder / "none.txt").write_text("\n".join(files.items[:30]))
    for number, each in enumerate((files.train, stored)):
        line = ["recommend", files.model, each, "--all", "--exclude-items", "none.txt"]
        assert run(*line, "--out-parts", f"lists{number}").exit_code == 0
        assert set(pq.read_table(f"lists{number}")["item"].to_pylist()) <= set(files.items[30:])
    refused = run("recommend", files.model, stored, "--all", "--out-parts", "lists0")
    assert refused.exit_code == 2 and "not empty" in refused.stderr
    line = ["--models", "item-bias", "--epsilons", "5", "--delta", "1e-6", "--data-is-public"]
    line += ["--out-dir", "c"]
    assert run("compare", stored, *line).exit_code == 0
    assert run("split", stored, "--test-share", "0.2", "--out-dir", "parts").exit_code == 0
    part = ["prepare", "parts/train.parquet", *files.domain, "--out", "part.store"]
    assert run(*part).exit_code == 0
    refused = run("compare", "part.store", *line, "--force")
    assert refused.exit_code == 2 and "seed 0" in refused.stderr and "--seed 1" in refused.stderr


def change_one_rating(path):
    """Change it in the file, which can still be read: only the digest changes."""
    with pa.memory_map(path) as file:
        ratings = pa.ipc.open_file(file).get_batch(0).column("ratings").values.field("rating")
        codes = ratings.buffers()[1].to_pybytes()[: len(ratings)]
    with open(path, "r+b", buffering=0) as file:
        place = file.read().index(codes)
        file.seek(place)
        file.write(bytes([1 - codes[0]]))  # codes are by first appearance: this is 0
    assert codes[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ["recommend", "MODEL", "STORE", "--user", "USER"],
        ["recommend", "MODEL", "STORE", "--all", "--out", "l.private.parquet"],
        ["evaluate", "MODEL", "STORE", "STORE"],
        ["train", "STORE", "--model", "item-bias", "--epsilon", "inf", "--data-is-public", "--out", "m.hush"],
        ["split", "STORE", "--test-share", "0.2", "--out-dir", "parts"],
    ],
    ids=" ".join,
)
def test_a_store_with_one_rating_changed_is_not_read(run, files, stored, words):
    user = hushrec.Store(stored).partitions()[1].ratings().users[0]
    change_one_rating(os.path.join(stored, "part-00001.arrow"))
    named = {"MODEL": files.model, "STORE": stored, "USER": str(user)}
    result = run(*(named.get(word, word) for word in words))
    assert result.exit_code == 2 and "'part-00001.arrow'" in result.stderr, result.stdout
    assert os.listdir() == [] and result.stdout == ""
