"""Streams that are closed or cannot be written: finished work is no failure, and nothing else is charged."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushrec import Accountant, Budget, Domain, ItemBias, Ratings
from tests.cli.test_process import HUSHREC

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="a shell's redirections"), pytest.mark.true("F1")]

#: Redirections of a shell, most after the command; the last pipe has lost its reader before the first write.
STREAMS = {
    "none": "<&- >&- 2>&-",
    "a full stdout": ">/dev/full",
    "both full": ">/dev/full 2>&1",
    "a reader that is gone": "| true",
    "read-only": "1</dev/null",
}


def shell(tmp_path, streams, *words, **variables):
    """Exit code and stderr of a command, as the shell sees it."""
    line = f'set -o pipefail; "$@" {streams}'
    environment = {**os.environ, "HUSHREC_LEDGER": str(tmp_path / "ledger.sqlite"), **variables}
    words = ["bash", "-c", line, "bash", *HUSHREC, *map(str, words)]
    return subprocess.run(words, env=environment, capture_output=True, cwd=tmp_path, timeout=600)


def runs(tmp_path):
    """Trainings in the ledger."""
    path = tmp_path / "ledger.sqlite"
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT COUNT(DISTINCT run) FROM charges").fetchone()[0]


@pytest.mark.parametrize("streams", STREAMS)
def test_a_model_that_was_written_is_no_failure(streams, files, tmp_path):
    line = ["train", files.train, "--model", "item-bias", "--epsilon", 5, "--delta", 1e-6, "--users", 200]
    as_json = ["--json"] * (streams == "both full")
    done = shell(tmp_path, STREAMS[streams], *line, *files.domain, "--out", "model.hush", *as_json)
    assert done.returncode == 0, done
    assert (tmp_path / "model.hush").exists() and runs(tmp_path) == 1
    assert b"Error" not in done.stderr and b"Traceback" not in done.stderr
    if streams not in ("none", "a full stdout"):
        return
    done = shell(tmp_path, STREAMS[streams], *line, *files.domain, "--out", "model.hush")
    assert done.returncode == 2 and runs(tmp_path) == 1
    if streams == "a full stdout":
        assert done.stderr.startswith(b"Error: 'model.hush' exists already") and done.stderr.count(b"\n") == 1


def test_what_other_commands_did_is_done(files, tmp_path):
    declared = [*files.domain, "--model", "item-bias"]
    season = ["--epsilon", "5", "--delta", "1e-6", "--dataset", "weekly"]
    for line, made in (
        (["season", "open", *season], "ledger.sqlite"),
        (["train", files.train, *declared, *season, "--season", "1", "--out", "week-0.hush"], "week-0.hush"),
        (["recommend", "week-0.hush", files.train, "--all", "--out", "lists.parquet"], "lists.parquet"),
        (["split", files.train, *files.domain, "--test-share", "0.2", "--out-dir", "parts"], "parts"),
    ):
        done = shell(tmp_path, ">/dev/full 2>&1", *line)
        assert done.returncode == 0 and (tmp_path / made).exists(), (line, done)
    assert runs(tmp_path) == 1


def test_what_only_prints_fails_where_it_cannot_print(files, tmp_path):
    for line in (["report", files.model], ["--version"]):
        assert shell(tmp_path, ">&-", *line).returncode == 0  # the caller wants nothing
        done = shell(tmp_path, ">/dev/full", *line)
        assert done.returncode == 1 and b"standard output" in done.stderr and done.stderr.count(b"\n") == 1


def test_json_is_ascii_and_no_id_reaches_a_terminal_as_an_escape(files, tmp_path, run):
    ids = ["nov\xe9l", "\x1b[31mred\x1b]0;owned\x07", "line\nbreak", "\x9b2J", "\u202egnp", "\u540d"]
    table = {"user": ["u"] * len(ids), "item": ids, "rating": [4.0] * len(ids)}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    pq.write_table(pa.table({"item": ids, "title": ids}), tmp_path / "titles.parquet")
    ratings = Ratings.from_any(table, Domain(ids, rating_range=(1, 5)))
    ItemBias().fit(ratings, Accountant(Budget(5, 1e-6), data_is_public=True)).save(tmp_path / "m.hush")
    model, rows, titles = (str(tmp_path / name) for name in ("m.hush", "rows.parquet", "titles.parquet"))
    user = ["recommend", model, rows, "--user", "nobody", "--titles", titles]
    odd = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    as_json = shell(tmp_path, "", *user, "--json", **odd).stdout
    assert as_json.isascii() and {row["item"] for row in json.loads(as_json)["items"]} == set(ids)
    for line in (
        user,
        ["report", model, "--titles", titles],
        ["similar", model, ids[1]],
        [*user[:3], "--user", "a", "--items", "no\x1b[2J.txt"],
    ):
        shown = run(*line).output
        assert shown and all(letter == "\n" or letter.isprintable() for letter in shown), shown
    listed = run(*user).stdout.splitlines()
    assert len([row for row in listed if "\\x1b[31mred" in row]) == 1  # one line an item


def test_without_a_home_folder_the_ledger_is_asked_for(files, tmp_path):
    line = ["train", files.train, "--model", "item-bias", "--epsilon", "5", "--delta", "1e-6", *files.domain]
    code = (
        "import pathlib, sys, os\n"
        "def home(*_): raise RuntimeError('Could not determine home directory.')\n"  # no passwd entry
        "pathlib.Path.home = classmethod(home); os.environ.pop('HUSHREC_LEDGER', None)\n"
        "from hushrec.cli import main; main()"
    )
    words = [sys.executable, "-c", code, *line, "--out", str(tmp_path / "m.hush")]
    bare = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_STATE_HOME")}
    done = subprocess.run(words, env=bare, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "--ledger" in done.stderr and "HUSHREC_LEDGER" in done.stderr
    named = [*words, "--ledger", str(tmp_path / "l.sqlite")]
    assert subprocess.run(named, env=bare, capture_output=True).returncode == 0
