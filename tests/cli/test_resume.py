"""`hushrec train --resume`: charged releases are neither drawn nor charged again."""

import pytest

import hushrec
from hushrec.privacy import Ledger, SystemNoise
from hushrec.serving.model import Model


@pytest.mark.true("A8")
def test_a_training_that_could_not_be_saved_is_resumed_at_no_cost(run, files, monkeypatch):
    ask = ["train", files.train, "--model", "ratings", "--epsilon", "5", "--delta", "1e-6", *files.domain]
    ask += ["--out", "model.hush"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(*ask).exit_code == 130
    before = Ledger(run.ledger).summary("default", 1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SystemNoise, "add_gaussian", lambda *_: pytest.fail("noise was drawn"))
        found = run(*ask, "--resume")
        assert (found.exit_code, found.stderr) == (0, "")
        again = run(*ask, "--resume", "--force")
    assert Ledger(run.ledger).summary("default", 1e-6) == before
    assert again.exit_code == 2 and "one that was saved is closed" in again.stderr
    model = hushrec.load(run.folder / "model.hush")
    assert len(model.privacy.releases) == before.charges
    other = run(*ask, "--resume", "--force", "--dataset", "another")
    assert other.exit_code == 2 and '"another"' in other.stderr


def test_resuming_needs_a_ledger(run, files):
    ask = ["train", files.train, "--model", "item-bias", *files.domain, "--out", "m.hush", "--resume"]
    found = run(*ask, "--epsilon", "1", "--delta", "1e-6", "--data-is-public")
    assert found.exit_code == 2 and "keeps a journal" in found.stderr
