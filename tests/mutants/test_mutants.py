"""A8: every planted privacy bug is killed by the test that is named for it, which passes without the bug."""

import inspect
from pathlib import Path

import mpmath
import pytest

from hushrec.privacy import SystemNoise
from tests.mutants.__main__ import table
from tests.mutants.driver import MARK
from tests.mutants.mutants import MUTANTS, Killer, Mutant
from tests.privacy.test_sampler import spied_slow_draws

DOCUMENT = Path(__file__).parents[2] / "docs" / "mutants.md"


def run(killer: Killer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(*_):
        raise AssertionError("noise was drawn")

    ledger = tmp_path / "state" / "ledger.sqlite"
    fixtures = {"tmp_path": tmp_path, "path": ledger, "monkeypatch": monkeypatch}
    if "no_noise" in killer.fixtures:
        monkeypatch.setattr(SystemNoise, "add_gaussian", drawn)
        fixtures["no_noise"] = None
    if "slow_draws" in killer.fixtures:
        fixtures["slow_draws"] = spied_slow_draws(monkeypatch)
    given = {name: fixtures[name] for name in killer.fixtures}
    if "record_property" in inspect.signature(killer.test).parameters:
        given["record_property"] = lambda *_: None
    with mpmath.workdps(50):
        killer.test(**killer.arguments, **given)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_killed(mutant: Mutant, tmp_path, monkeypatch, record_property) -> None:
    record_property("planted", 1)
    mutant.plant(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)) as death:
        run(mutant.killer, tmp_path, monkeypatch)
    assert not isinstance(death.value, TypeError | NameError | AttributeError), "the mutant does not run"
    record_property("killed", 1)


@pytest.mark.parametrize(
    "killer",
    {mutant.killer.name: mutant.killer for mutant in MUTANTS}.values(),
    ids=lambda killer: killer.name,
)
def test_without_the_bug_the_test_passes(killer: Killer, tmp_path, monkeypatch) -> None:
    run(killer, tmp_path, monkeypatch)


def test_there_are_enough_and_the_table_shows_them() -> None:
    assert len(MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert DOCUMENT.read_text(encoding="utf-8").partition(MARK)[0] == table()
