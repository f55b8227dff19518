"""Other accounts of the machine cannot read private files."""

import os

import pytest

import hushrec
from hushrec import Accountant, Budget, ItemBias, Ledger, Store, write_lists

pytestmark = [
    pytest.mark.true("A8"),
    pytest.mark.skipif(os.name != "posix", reason="files have no modes here"),
]

STALE = b"of another time"


@pytest.fixture
def shared(run):
    """A folder that all can read, with files that all can read; new files get the same mode by default."""
    mask = os.umask(0o022)
    (run.folder / "there").mkdir()
    for name in ("u000001.csv", *(f"comparison.{kind}" for kind in ("parquet", "md", "png", "svg"))):
        (run.folder / "there" / name).write_bytes(STALE)
    yield run.folder
    os.umask(mask)


def exposed(folder) -> dict[str, str]:
    """Files that others can reach and read, with their modes; not those that were there before."""
    found = {}
    for path in folder.iterdir():
        mode = path.stat().st_mode
        if path.is_dir() and mode & 0o077:
            found |= exposed(path)
        elif not path.is_dir() and mode & 0o077 and path.read_bytes() != STALE:
            found[path.name] = oct(mode & 0o777)
    return found


@pytest.mark.parametrize(
    "line",
    [
        "train {train} --epsilon 5 --delta 1e-6 --model item-bias --ledger there/l.sqlite --out there/m.hush",
        "recommend {model} {train} --all --out there/lists.private.csv",
        "recommend {model} {train} --all --out-dir lists",
        "recommend {model} {train} --all --out-dir there --force",
        "recommend {model} {train} --all --out-parts there/parts",
        "predict {model} {train} {test} --out there/predictions.private.parquet",
        "split {train} --test-share 0.2 --out-dir there",
        "prepare {train} --out there/store",
        "compare {train} --models item-bias --epsilons 1 --delta 1e-6 --data-is-public --out-dir there"
        " --force",
        "export {model} --int8 --out there/small.hush",
    ],
)
def test_what_a_command_writes_is_its_owners(run, files, shared, line: str) -> None:
    """Killed: a user's list, or a comparison on held-out ratings, that all accounts can read."""
    words = line.format(**vars(files)).split()
    done = run(*words, *(files.domain if words[0] in ("train", "prepare", "split", "compare") else []))
    assert done.exit_code == 0, done.output
    assert exposed(shared) == {}


def test_what_python_writes_is_its_owners(files, shared) -> None:
    """A store, a ledger with what it keeps of a training, a model, lists; killed: a store that all accounts
    can read."""
    domain = hushrec.load(files.model).domain
    store = Store.prepare(files.train, shared / "there" / "store", domain)
    ledger = Ledger(shared / "there" / "ledger.sqlite")
    model = ItemBias().fit(Store(store.path), Accountant(Budget(5, 1e-6), ledger=ledger))
    model.save(shared / "there" / "m.hush")
    write_lists(model, store, shared / "there" / "lists")
    assert (shared / "there" / "ledger.sqlite.trainings").is_dir()
    assert exposed(shared) == {}
