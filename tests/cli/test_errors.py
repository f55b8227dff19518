"""Bad input: exit code 2, one sentence on stderr, no budget spent, nothing half-written."""

import os
import sqlite3
import unicodedata
from contextlib import closing
from pathlib import Path

import pytest

from hushrec.cli.files import output_file
from hushrec.cli.output import visible
from hushrec.errors import InputError
from hushrec.privacy import Ledger

GOOD = {
    "--model": "item-bias",
    "--epsilon": "5",
    "--delta": "1e-6",
    "--rating-range": ("1", "5"),
    "--out": "model.hush",
}


#: Classes of Unicode's bidirectional algorithm that reorder what follows.
TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def arguments(files, **changes):
    """The good command line with some options changed; None leaves one out."""
    options = {**GOOD, "--catalogue": files.catalogue}
    options |= {"--" + name.replace("_", "-"): value for name, value in changes.items()}
    line = ["train", files.ratings]
    for name, value in options.items():
        if value is not None:
            line += [name, *(value if isinstance(value, tuple) else (value,))]
    return line


def charges(run):
    """Charges in the test's ledger."""
    if not run.ledger.exists():
        return 0
    with closing(sqlite3.connect(run.ledger)) as connection:
        return connection.execute("SELECT COUNT(*) FROM charges").fetchone()[0]


def assert_refused(result, run, code=2, says=""):
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1
    assert result.stderr.rstrip().endswith((".", "?)"))
    assert "Traceback" not in result.stderr
    assert says in result.stderr
    assert charges(run) == 0
    assert not any(run.folder.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_an_input_is_not_overwritten_under_another_name_and_a_link_is_written_through(tmp_path):
    ratings, other, soft, hard = (tmp_path / name for name in ("r.csv", "other.csv", "soft.csv", "hard.csv"))
    ratings.touch()
    other.touch()
    soft.symlink_to(ratings)
    os.link(ratings, hard)
    for out, path in ((soft, ratings), (ratings, soft), (hard, ratings), (hard, soft)):
        with pytest.raises(InputError, match="is one of the inputs"):
            output_file(str(out), [None, str(other), str(path)], True)
    assert output_file(str(soft), [str(other)], True) == ratings


def test_inputs_are_not_overwritten(files, run):
    for path in (files.ratings, files.catalogue):
        before = Path(path).read_bytes()
        assert_refused(run(*arguments(files, out=path)), run, says="overwritten")
        assert Path(path).read_bytes() == before
    assert run("ledger", "open", "--epsilon", "5", "--delta", "1e-6").exit_code == 0
    assert_refused(
        run(*arguments(files, out=str(run.ledger), ledger=str(run.ledger))), run, says="overwritten"
    )
    line = ["recommend", files.model, files.train, "--all", "--out", files.train]
    assert_refused(run(*line), run, says="overwritten")
    items = Path(files.catalogue).read_bytes()
    for option in ("--items", "--exclude-items"):
        path = Path(files.catalogue).with_name("some.csv")
        path.write_bytes(items)
        line = ["recommend", files.model, files.train, "--all", option, path, "--out", path, "--force"]
        assert_refused(run(*line), run, says="overwritten")
        assert path.read_bytes() == items
        path.unlink()


@pytest.mark.parametrize("damage", ["none", "empty", "cut short", "cut in half", "a bit", "before", "after"])
def test_damaged_models(damage, files, run, tmp_path):
    raw, path = Path(files.model).read_bytes(), tmp_path / "damaged.hush"
    middle = len(raw) // 2
    found = {"empty": b"", "cut short": raw[:-1], "cut in half": raw[:middle], "before": b"PK" + raw}
    found |= {"a bit": raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :], "after": raw + b"x"}
    if damage != "none":
        path.write_bytes(found[damage])
    for line in (
        ("report", path),
        ("report", path, "--json"),
        ("evaluate", path, files.train, files.test),
        ("recommend", path, files.train, "--user", "u000001"),
        ("recommend", path, files.train, "--all", "--out", "lists.parquet"),
        ("recommend", path, files.train, "--all", "--out-dir", "lists"),
    ):
        assert_refused(run(*line), run)


def test_a_refused_budget_is_exit_one(files, run):
    assert run("ledger", "open", "--epsilon", "1", "--delta", "1e-6").exit_code == 0
    assert_refused(run(*arguments(files, epsilon="2")), run, code=1, says="budget")
    assert_refused(run(*arguments(files, epsilon="inf")), run, says="pass --dataset with another name")
    assert run(*arguments(files, epsilon="1")).exit_code == 0
    (run.folder / "model.hush").unlink()
    again = run(*arguments(files, epsilon="0.1"))
    assert again.exit_code == 1 and Ledger(run.ledger).summary("default").runs == 1


def raises(error):
    def train(*args, **kwargs):
        raise error

    return train


def test_no_character_moves_the_cursor_or_turns_a_line_around():
    """Of Unicode's controls a line break and a tabulator pass, and of its formats those of words."""
    for code in range(0x3000):
        shown, kind = visible(chr(code)), unicodedata.category(chr(code))
        moves = kind in ("Cc", "Zl", "Zp") or unicodedata.bidirectional(chr(code)) in TURNS
        assert (shown == chr(code)) == (not moves or chr(code) in "\t\n"), hex(code)
        assert shown.isascii() or not moves


def test_interrupting_is_one_line(files, run, monkeypatch):
    monkeypatch.setattr("hushrec.training.run.train", raises(KeyboardInterrupt()))
    result = run(*arguments(files))
    assert result.exit_code == 130
    assert result.stderr == "Error: Interrupted; what was charged before stays charged.\n"


def test_an_unexpected_error_tells_no_rows(files, run, monkeypatch):
    monkeypatch.setattr("hushrec.training.run.train", raises(RuntimeError("user 42 rated 5")))
    assert_refused(run(*arguments(files)), run, code=1, says="RuntimeError")
    assert "42" not in run(*arguments(files)).stderr
