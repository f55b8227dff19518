"""Code that only runs on other systems, in a simulation of what those systems refuse.

Windows has no fcntl, opens no folder, and neither renames nor deletes a file that is open; macOS leaves
synced data in the disk's cache unless asked for more; both spawn processes and do not fork.
"""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import hushrec
from hushrec import Accountant, Budget, ItemBias, Ledger, realistic
from hushrec.errors import LedgerError
from hushrec.privacy import journal

BUDGET = Budget(5, 1e-6)
RATINGS = realistic(60, 12, 500, seed=0)
HANDLES = Path("/proc/self/fd")


def opened(path):
    """Return whether this process has the file open, or one in the folder."""
    place = Path(path).absolute()
    for handle in HANDLES.iterdir():
        try:
            target = Path(os.readlink(handle))
        except OSError:
            continue
        if target == place or place in target.parents:
            return True
    return False


@pytest.fixture
def windows(monkeypatch):
    """Make the package believe that the system is Windows."""
    if not HANDLES.exists():
        pytest.skip("who has a file open is read from /proc")

    def refusing(name):
        real = getattr(os, name)

        def refused(path, *others, **options):
            if opened(path):
                raise PermissionError(13, "The process cannot access the file, it is being used", str(path))
            return real(path, *others, **options)

        return refused

    def no_folders(path, *others, **options):
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        return os.open(path, *others, **options)

    for name in ("rename", "replace", "unlink"):
        monkeypatch.setattr(os, name, refusing(name))
    known = {name: getattr(os, name) for name in dir(os) if name != "posix_fallocate"}
    there = SimpleNamespace(**known | {"name": "nt", "open": no_folders})
    for name, module in list(sys.modules.items()):
        if name.startswith("hushrec") and getattr(module, "os", None) is os:
            monkeypatch.setattr(module, "os", there)
    monkeypatch.setitem(sys.modules, "fcntl", None)


@pytest.mark.usefixtures("windows")
def test_a_training_with_ledger_and_file(tmp_path):
    for _ in range(2):
        accountant = Accountant(BUDGET, ledger=Ledger(tmp_path / "ledger.sqlite"), dataset="shop")
        model = ItemBias().fit(RATINGS, accountant)
    model.save(tmp_path / "model.hush")
    model.save(tmp_path / "model.hush")
    assert hushrec.load(tmp_path / "model.hush").to_bytes() == model.to_bytes()
    assert len(Ledger(tmp_path / "ledger.sqlite").history("shop", 1e-6)) > 0
    assert sorted(path.name for path in tmp_path.iterdir() if "ledger" not in path.name) == ["model.hush"]


@pytest.mark.usefixtures("windows")
def test_a_training_that_is_cut_off_goes_on(tmp_path, monkeypatch):
    book = Ledger(tmp_path / "ledger.sqlite")
    real = journal.Journal.keep

    def cut_off(self, *given):
        raise KeyboardInterrupt

    monkeypatch.setattr(journal.Journal, "keep", cut_off)
    with pytest.raises(KeyboardInterrupt):
        ItemBias().fit(RATINGS, Accountant(BUDGET, ledger=book, dataset="shop"))
    monkeypatch.setattr(journal.Journal, "keep", real)
    fresh = Accountant(Budget(10, 1e-6), ledger=book, dataset="shop")
    assert ItemBias().fit(RATINGS, fresh).privacy.private


def test_a_disk_that_does_not_sync_takes_no_charge(tmp_path, monkeypatch):
    """A charge that cannot be brought to the disk is refused, and nothing is released."""

    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("shop", BUDGET)
    accountant = Accountant(BUDGET, ledger=ledger, dataset="shop")

    def failing(handle):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(LedgerError, match="nothing was charged"):
        ItemBias().fit(RATINGS, accountant)
    assert accountant.releases == ()
