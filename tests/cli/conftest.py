"""Small files for the command line: generated once, never changed by a test."""

from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from hushrec.data import realistic, split_ratings
from tests.command_line import invoke


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Paths of ratings (all, train, test), a catalogue, and two models (private and not)."""
    folder = tmp_path_factory.mktemp("files")
    ratings = realistic(200, 40, 2500, seed=1)
    train, test = split_ratings(ratings, (0.8, 0.2), seed=100)
    paths = SimpleNamespace(folder=folder, items=list(ratings.domain.items))
    for name, part in (("ratings", ratings), ("train", train), ("test", test)):
        path = folder / f"{name}.parquet"
        pq.write_table(part.to_arrow(), path)
        setattr(paths, name, str(path))
    paths.catalogue = str(folder / "items.txt")
    (folder / "items.txt").write_text("\n".join(ratings.domain.items) + "\n", encoding="utf-8")
    paths.domain = ["--rating-range", "1", "5", "--catalogue", paths.catalogue]
    paths.model = str(folder / "model.hush")
    arguments = ["train", paths.train, "--model", "item-bias", "--epsilon", "5", "--delta", "1e-6"]
    arguments += [*paths.domain, "--out", paths.model, "--ledger", str(folder / "fixture.sqlite")]
    assert invoke(*arguments).exit_code == 0
    return paths


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command with a new ledger, in an empty folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HUSHREC_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.delenv("HUSHREC_DEBUG", raising=False)

    def run_here(*arguments, **typed):
        return invoke(*arguments, **typed)

    run_here.folder = folder
    run_here.ledger = tmp_path / "ledger.sqlite"
    return run_here
