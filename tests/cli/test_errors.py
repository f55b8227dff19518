"""Bad input: exit code 2, one sentence on stderr, no budget spent, nothing half-written."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hushrec.training
from hushrec.errors import InputError
from hushrec.privacy import Ledger

GOOD = {
    "--model": "item-bias",
    "--epsilon": "5",
    "--delta": "1e-6",
    "--rating-range": ("1", "5"),
    "--out": "model.hush",
}


def arguments(files, ratings=None, **changes):
    """The good command line with some options changed; None leaves one out."""
    options = {**GOOD, "--catalogue": files.catalogue}
    options |= {"--" + name.replace("_", "-"): value for name, value in changes.items()}
    line = ["train", ratings or files.ratings]
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


WRONG_OPTIONS = {
    "negative epsilon": ({"epsilon": "-1"}, "epsilon"),
    "zero epsilon": ({"epsilon": "0"}, "epsilon"),
    "epsilon NaN": ({"epsilon": "nan"}, "epsilon"),
    "epsilon below the smallest number": ({"epsilon": "1e-400"}, "epsilon"),
    "epsilon too large to be a number": ({"epsilon": "1e400"}, "the word inf"),
    "a column in two roles": ({"columns": "user=user,item=user"}, "two roles; pass --columns item=NAME"),
    "output is a device": ({"out": "/dev/null"}, "not a regular file"),
    "minus infinity": ({"epsilon": "-inf"}, "epsilon"),
    "negative delta": ({"delta": "-1e-6"}, "delta"),
    "zero delta": ({"delta": "0"}, "delta"),
    "delta one": ({"delta": "1"}, "delta"),
    "delta NaN": ({"delta": "nan"}, "delta"),
    "range NaN": ({"rating_range": ("nan", "5")}, "range"),
    "catalogue not there": ({"catalogue": "nowhere.txt"}, "cannot be read"),
    "catalogue is a folder": ({"catalogue": "."}, "cannot be read"),
    "cap of zero": ({"max_ratings_per_user": "0"}, "--max-ratings-per-user"),
    "unknown setting": ({"depth": "3"}, "--depth"),
    "setting without value": ({"clip": ()}, "--clip"),
    "setting out of range": ({"clip": "-1"}, "--clip"),
    "setting NaN": ({"clip": "nan"}, "--clip"),
    "setting is a word": ({"clip": "wide"}, "--clip"),
    "an option twice": ({"clip": ("1", "--clip", "2")}, "--clip is given twice"),
    "unknown relation": ({"relation": "sibling"}, "relation"),
    "negative seed": ({"seed": "-1"}, "seed"),
    "no users": ({"users": "0"}, "users"),
    "output is a folder": ({"out": "."}, "is a folder"),
    "unknown option": ({"speed": "9"}, "--speed"),
    "data set without a name": ({"dataset": ""}, "dataset"),
}


@pytest.mark.parametrize("case", WRONG_OPTIONS)
def test_wrong_options(case, files, run):
    changes, says = WRONG_OPTIONS[case]
    assert_refused(run(*arguments(files, **changes)), run, says=says)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00i", b"\n \n", b"a\nb\na\n"])
def test_wrong_catalogues(content, files, run, tmp_path):
    (tmp_path / "items.txt").write_bytes(content)
    assert_refused(run(*arguments(files, catalogue=str(tmp_path / "items.txt"))), run, says="catalogue")


def test_wrong_tables(files, run, tmp_path):
    """None, a folder, no Parquet, one cut short, and columns that are missing or hold lists."""
    path = tmp_path / "table.parquet"
    assert_refused(run(*arguments(files, ratings=str(path))), run)
    assert_refused(run(*arguments(files, ratings=str(tmp_path))), run)
    pq.write_table(pa.table({"user": [1] * 9, "item": [2] * 9, "rating": [3.0] * 9}), path)
    for content in (bytes(range(256)) * 20, path.read_bytes()[:-10], b""):
        path.write_bytes(content)
        assert_refused(run(*arguments(files, ratings=str(path))), run)
    for table in ({"user": [1], "item": [2]}, {"user": [[1]], "item": [2], "rating": [3.0]}):
        pq.write_table(pa.table(table), path)
        assert_refused(run(*arguments(files, ratings=str(path))), run)


@pytest.mark.parametrize(("text", "says"), [("", "is empty"), ("1,2,5\n3,4,1\n", "holds the columns' names")])
def test_tables_without_a_header(text, says, files, run, tmp_path):
    (tmp_path / "table.csv").write_text(text)
    assert_refused(run(*arguments(files, ratings=str(tmp_path / "table.csv"))), run, says=says)


def test_inputs_are_not_overwritten(files, run):
    for path in (files.ratings, files.catalogue):
        before = Path(path).read_bytes()
        assert_refused(run(*arguments(files, out=path)), run, says="overwritten")
        assert Path(path).read_bytes() == before
    assert run("ledger", "open", "--epsilon", "5", "--delta", "1e-6").exit_code == 0
    assert_refused(
        run(*arguments(files, out=str(run.ledger), ledger=str(run.ledger))), run, says="overwritten"
    )
    line = ["recommend", files.model, files.train, "--all-users", "--out", files.train]
    assert_refused(run(*line), run, says="overwritten")
    items = Path(files.catalogue).read_bytes()
    for option in ("--items", "--exclude-items"):
        path = Path(files.catalogue).with_name("some.csv")
        path.write_bytes(items)
        line = ["recommend", files.model, files.train, "--all-users", option, path, "--out", path, "--force"]
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
        ("recommend", path, files.train, "--all-users", "--out", "lists.parquet"),
        ("recommend", path, files.train, "--all-users", "--out-dir", "lists"),
    ):
        assert_refused(run(*line), run)


WRONG_COMMANDS = """
recommend MODEL TRAIN
recommend MODEL TRAIN --user u1 --all-users
recommend MODEL TRAIN --all-users
recommend MODEL TRAIN --all-users --out a.parquet --out-dir b
recommend MODEL TRAIN --user u1 --out a.parquet
recommend MODEL TRAIN --user u1 -n 0
recommend MODEL TRAIN --user u1 --items nowhere.txt
recommend MODEL TRAIN --all-users --out no/such/a.parquet
recommend MODEL TRAIN --all-users --out-dir no/such/lists
recommend MODEL nowhere.parquet --user u1
evaluate MODEL TRAIN
evaluate MODEL TRAIN nowhere.parquet
evaluate MODEL TRAIN TEST -k 0
evaluate MODEL TRAIN TEST --relevant-from nan
plan --epsilon 1 --delta 1e-6 --rating-range 1 5
plan --delta 1e-6 --rating-range 1 5 --catalogue CATALOGUE
plan --epsilon 1 --delta 1e-6 --rating-range 1 5 --catalogue CATALOGUE
plan --epsilon 1 --delta 1e-6 --items 2000
plan --epsilon 1 --delta 1e-6 --items 0 --users 10
plan --epsilon 1 --delta 1e-6 --items 9 --users 9 --catalogue CATALOGUE
plan --epsilon 1 --delta 1e-6 --items 9 --users 9 --model dpals
plan --epsilon 1 --delta 1e-6 --items 9 --users 9 --ratings-per-user 0
plan --epsilon 1 --delta 1e-6 --items 9 --users 9 --spread 1
plan --epsilon 1 --delta 1e-6 --items 9 --users 9 --rating-range 1 5 --spread 2.1
plan --epsilon 1 --delta 1e-6 --items 9 --users 9 --rating-range 1 5 --spread nan
compare TRAIN --delta 1e-6
compare TRAIN --epsilons 1,much --delta 1e-6
compare TRAIN --epsilons 1,-2 --delta 1e-6 DOMAIN --out-dir o
compare TRAIN --epsilons inf --delta 1e-6 DOMAIN --out-dir o
compare TRAIN --epsilons 1 --delta 1e-6 DOMAIN --out-dir no/such/o
compare TRAIN --epsilons 1 --delta 1e-6 DOMAIN --holdout 1 --out-dir o
compare TRAIN --epsilons 1 --delta 1e-6 DOMAIN --private-als.depth 1 --out-dir o
compare TRAIN --models magic --epsilons 1 --delta 1e-6 DOMAIN --out-dir o
ledger open --epsilon 5
ledger open --epsilon inf --delta 1e-6
train
fly
trian
ledger shwo
ledger show more
compare TRAIN --epsilons 0 --delta 1e-6 DOMAIN --out-dir o
"""


def test_wrong_commands(files, run):
    names = {"MODEL": [files.model], "TRAIN": [files.train], "TEST": [files.test]}
    names |= {"CATALOGUE": [files.catalogue], "DOMAIN": files.domain}
    for line in WRONG_COMMANDS.strip().splitlines():
        assert_refused(run(*(part for word in line.split() for part in names.get(word, [word]))), run)


def test_an_item_outside_the_catalogue_is_named(files, run, tmp_path):
    (tmp_path / "some.txt").write_text("no-such-item\n")
    result = run("recommend", files.model, files.train, "--user", "u1", "--items", tmp_path / "some.txt")
    assert_refused(result, run, says="no-such-item")


def test_what_rows_hold_changes_nothing(files, run, tmp_path):
    """No row, no usable row, hostile rows: the same outcome and the same words."""
    items, no_text = files.items, pa.array([], pa.string())
    wild = [float("nan"), float("inf"), 1e300, -1.0]
    tables = {  # names of one length, since statements are wrapped
        "good": {"user": ["a", "b"], "item": items[:2], "rating": [3.0, 4.0]},
        "void": {"user": no_text, "item": no_text, "rating": pa.array([], pa.float64())},
        "drop": {"user": ["a", None], "item": ["?", items[0]], "rating": [3.0, 4.0]},
        "wild": {"user": ["a"] * 4, "item": items[:4], "rating": wild},
        "text": {"user": ["a", "b"], "item": ["A7", items[0]], "rating": ["n/a", "3"]},
    }
    outcomes = set()
    for name, table in tables.items():
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table(table), path)
        result = run(*arguments(files, ratings=str(path), dataset=name), "--force")
        outcomes.add((result.exit_code, result.stderr, result.stdout.replace(name, "NAME")))
    assert len(outcomes) == 1
    assert next(iter(outcomes))[:2] == (0, "")


def test_a_refused_budget_is_exit_one(files, run):
    assert run("ledger", "open", "--epsilon", "1", "--delta", "1e-6").exit_code == 0
    assert_refused(run(*arguments(files, epsilon="2")), run, code=1, says="budget")
    assert_refused(run(*arguments(files, epsilon="inf")), run, says="pass --dataset with a name of its own")
    assert run(*arguments(files, epsilon="1")).exit_code == 0
    (run.folder / "model.hush").unlink()
    again = run(*arguments(files, epsilon="0.1"))
    assert again.exit_code == 1 and Ledger(run.ledger).summary("default").runs == 1


def test_an_unusable_ledger_is_exit_one(files, run, tmp_path):
    (tmp_path / "ledger.sqlite").write_bytes(b"not a ledger" * 100)
    result = run(*arguments(files))
    assert result.exit_code == 1 and result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1
    assert not any(run.folder.iterdir())


def raises(error):
    def train(*args, **kwargs):
        raise error

    return train


def test_interrupting_is_one_line(files, run, monkeypatch):
    monkeypatch.setattr(hushrec.training, "train", raises(KeyboardInterrupt()))
    result = run(*arguments(files))
    assert result.exit_code == 130
    assert result.stderr == "Error: Interrupted; what was charged before stays charged.\n"


def test_an_unexpected_error_tells_no_rows(files, run, monkeypatch):
    monkeypatch.setattr(hushrec.training, "train", raises(RuntimeError("user 42 rated 5")))
    assert_refused(run(*arguments(files)), run, code=1, says="RuntimeError")
    assert "42" not in run(*arguments(files)).stderr


def test_a_failed_run_stays_charged(files, run, monkeypatch):
    def full(path, parts):
        raise InputError("Cannot write 'model.hush' (No space left on device); free space.")

    monkeypatch.setattr("hushrec.modelfile.write_atomically", full)
    result = run(*arguments(files))
    assert result.exit_code == 1 and "No space left" in result.stderr and "charged" in result.stderr
    assert not any(run.folder.iterdir())
    assert charges(run) == 1


NAMED = {
    "a word nearly right": (["trian"], "no command 'trian' (did you mean train?); see hushrec --help."),
    "an option nearly right": (["train", "TRAIN", "--epsilom", "1"], "no option --epsilom (did you mean --epsilon?)"),  # noqa: E501
    "an option that another model has": (["train", "TRAIN", "--rank", "3"], "--model; see hushrec train --model item-bias"),  # noqa: E501
    "a short option": (["train", "TRAIN", "-o", "x"], "has no option -o; see"),
    "no value": (["train", "TRAIN", "--clip"], "--clip needs a value"),
    "one of two values": (["train", "TRAIN", "--rating-range", "1"], "--rating-range needs 2 values"),
    "no whole number": (["train", "TRAIN", "--seed", "1.5"], "--seed '1.5' is not understood: pass an integer."),  # noqa: E501
    "no number": (["train", "TRAIN", "--clip", "wide"], "--clip 'wide' is not understood: pass a number."),
    "out of range": (["train", "TRAIN", "--users", "0"], "--users 0 is out of range: it must be >= 1."),
    "no choice": (["train", "TRAIN", "--unit", "item"], "--unit 'item' is not understood: pass one of user, rating."),  # noqa: E501
    "a field out of range": (["train", "TRAIN", "--clip", "-1"], "--clip=-1.0 is out of range; pass a number from"),  # noqa: E501
    "a declaration": (["train", "TRAIN", "--rating-range", "5", "1"], "--rating-range must increase from low to high"),  # noqa: E501
    "one of a list": (["compare", "TRAIN", "--models", "magic"], "--models 'magic' is not known"),
    "a field of one of several": (["compare", "TRAIN", "--item-bias.clip", "-1"], "--item-bias.clip=-1.0 is out of range"),  # noqa: E501
    "a field without its model": (["compare", "TRAIN", "--dpals.clip", "1"], "no option --dpals.clip; see hushrec compare"),  # noqa: E501
    "a flag to leave": (["train", "TRAIN", "--model", "private-als", "--features", "--rank", "1"], "pass --no-features."),  # noqa: E501
    "no such way to read": (["train", "TRAIN", "--format", "xls"], "--format must be one of parquet"),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMED)
def test_errors_name_the_option(case, files, run):
    words, says = NAMED[case]
    words = [files.train if word == "TRAIN" else word for word in words]
    good = {"--epsilon": ["5"], "--delta": ["1e-6"], "--rating-range": ["1", "5"], "--out": ["m.hush"]}
    good |= {"--catalogue": [files.catalogue], "--model": ["item-bias"]}
    if words[0] == "compare":
        del good["--model"], good["--out"], good["--epsilon"]
        good |= {"--epsilons": ["1"], "--out-dir": ["out"]}
    if len(words) > 1:
        words += [part for name, values in good.items() if name not in words for part in (name, *values)]
    result = run(*words)
    assert_refused(result, run, says=says)
